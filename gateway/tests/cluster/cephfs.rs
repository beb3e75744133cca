//! Tests of a service whose shares and records are in CephFS, without other shared storage and without a fence.
//!
//! Needs Ceph in addition to etcd (packages of `tests/ceph/cluster`).

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use iobuf::Buf;

use crate::late::{Late, has_ended, has_stopped};
use crate::load::{BLOCK, Writer, Writers, block, connect};
use crate::world::{How, Setup, World, sh};
use crate::{headgate, until};

async fn world() -> World {
    World::of_both(Setup { is_on_ceph: true, ..Setup::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn takeovers_without_a_fence_lose_nothing_that_was_acknowledged() {
    let mut world = world().await;
    let vip = world.vip();
    let writers = Writers::start(vec![
        Writer::new("v3", format!("nfs://{vip}/data?version=3&mountport=2049")),
        Writer::new("v41", format!("nfs://{vip}/data?version=4.1")),
        Writer::new("smb", format!("smb://alice:moves-with-it@{vip}/data")),
        Writer::of_an_end("end", format!("nfs://{vip}/data?version=3&mountport=2049")),
    ])
    .await;
    writers.taken_over_in_turn(&mut world).await;
    println!("acknowledged: {:?} blocks", writers.counts());
    writers.end_by(|| world.reader()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_hands_over_has_nothing_that_is_to_be_cut_off() {
    let mut world = world().await;
    let vip = world.vip();
    let writers = Writers::start(vec![
        Writer::new("v3", format!("nfs://{vip}/data?version=3&mountport=2049")),
        Writer::new("smb", format!("smb://alice:moves-with-it@{vip}/data")),
        Writer::of_an_end("end", format!("nfs://{vip}/data?version=3&mountport=2049")),
    ])
    .await;
    writers.taken_over(&world, How::Drain).await;
    assert_eq!((world.cut_off(0), world.cut_off(1)), (0, 0));
    world.mend(How::Drain, 0).await;
    writers.taken_over(&world, How::Kill).await;
    // The sessions of the records and of the share.
    assert_eq!((world.cut_off(0), world.cut_off(1)), (0, 2));
    writers.end_by(|| world.reader()).await;
}

/// The runner is stopped after it told its gateway to leave, and the cluster does not answer the gateway.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_leaves_ends_in_time_though_its_storage_hangs() {
    let world = World::of(Setup { is_on_ceph: true, ..Setup::default() }).await;
    until("the service is served", || world.owner().is_some() && world.has_address(0)).await;
    let volume = connect(&format!("nfs://{}/data?version=3&mountport=2049", world.vip())).await;
    let volume = volume.unwrap();
    let file = volume.create("hangs").await.unwrap();
    let osd = fs::read_to_string(world.path("ceph/run/osd")).unwrap();
    sh(&format!("kill -STOP {}", osd.trim()));
    let gateway = world.gateway(0);
    sh(&format!("kill -STOP {gateway}"));
    until("the gateway stands still", || has_stopped(&gateway)).await;
    let write = tokio::spawn(async move {
        volume.write(&file, 0, vec![Buf::from(block("hangs", 1))]).await.is_ok()
    });
    until("the write is there", || world.unread(0).iter().any(|n| *n > BLOCK as u64)).await;
    sh(&format!("kill -CONT {gateway}"));
    until("the write is read", || world.unread(0).is_empty()).await;
    for runner in world.programs(0, "cluster") {
        sh(&format!("kill -STOP {runner}"));
    }
    let told = fs::File::options().write(true).open(format!("/proc/{gateway}/fd/0"));
    told.unwrap().write_all(b"leave\n").unwrap();
    until("the gateway has ended", || has_ended(&gateway)).await;
    sh(&format!("kill -CONT {}", osd.trim()));
    assert!(!write.is_finished() || !write.await.unwrap(), "the write was acknowledged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_former_owner_that_wakes_writes_and_answers_nothing() {
    let world = world().await;
    let late = Late::stopped(&world).await;
    until("another node serves", || world.has_address(1)).await;
    for name in ["nfs", "smb"] {
        crate::until_ok("it is written anew", async || {
            let volume = connect(&late.nfs).await?;
            let file = volume.find(name).await?;
            volume.write(&file, 0, vec![Buf::from(block("after", 3))]).await?;
            volume.commit(&file).await
        })
        .await;
    }
    late.wakes(&world).await;
}

/// Returns the first line of `headgate cluster run` for a service without a fence whose gateway has this file.
fn told(shares: &str, records: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().display();
    let gateway = format!("{shares}\n{records}state: {here}/state\nadmin: off\n");
    fs::write(dir.path().join("files.yaml"), gateway).unwrap();
    let file = dir.path().join("gw.yaml");
    let text = format!(
        "cluster:\n  etcd: http://127.0.0.1:1\n  node: gw\n  services:\n  - name: files\n    \
         config: {here}/files.yaml\n    addresses: 10.0.0.1/24@eth0\n    nodes: other\n"
    );
    fs::write(&file, text).unwrap();
    let mut run = Command::new(headgate());
    let mut child =
        run.args(["cluster", "run", "--config"]).arg(&file).stderr(Stdio::piped()).spawn().unwrap();
    let (mut said, mut stderr) = (String::new(), BufReader::new(child.stderr.take().unwrap()));
    while !said.contains("set `fence`") && !said.contains("is a candidate for its services") {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "{said}");
    }
    let _ = child.kill();
    child.wait().unwrap();
    said
}

#[test]
fn a_service_without_a_fence_is_all_in_cephfs_or_refused() {
    let ceph = "{name: c, ceph: {filesystem: fs, path: /c}}";
    let said = told(&format!("shares: [{ceph}, {{name: local, path: /usr}}]"), "records: c\n");
    assert!(
        said.contains("the folder of the share `local`") && said.contains("set `fence`"),
        "{said}"
    );
    let said = told(&format!("shares: [{ceph}]"), "");
    assert!(said.contains("the folders and the records of this service"), "{said}");
    assert!(said.contains("its `records` in one of them"), "{said}");
    let said = told(&format!("shares: [{ceph}]"), "records: c\n");
    assert!(!said.contains("fence"), "{said}");
}
