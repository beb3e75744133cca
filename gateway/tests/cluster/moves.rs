//! Clients that work while the service moves.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use crate::load::{Writer, connect};
use crate::world::{How, World, sh};
use crate::{TTL, headgate, until};

#[tokio::test(flavor = "multi_thread")]
async fn clients_go_on_when_the_service_moves_and_nothing_acknowledged_is_lost() {
    let mut world = World::new().await;
    until("the service is served", || world.owner().is_some()).await;
    world.start(1);
    let vip = world.vip();
    let writers = [
        Writer::new("v3", format!("nfs://{vip}/data?version=3&mountport=2049")),
        Writer::new("v41", format!("nfs://{vip}/data?version=4.1")),
        Writer::new("smb", format!("smb://alice:moves-with-it@{vip}/data")),
    ];
    let tasks: Vec<_> = writers.iter().map(|w| tokio::spawn(w.clone().run())).collect();
    let progress = |from: [u64; 3]| writers.iter().zip(from).all(|(w, from)| w.count() > from + 5);
    let counts = || [writers[0].count(), writers[1].count(), writers[2].count()];
    until("all clients write", || progress([0; 3])).await;
    for how in [How::Drain, How::Kill, How::Cut, How::StandStill] {
        let (owner, epoch) = world.owner().unwrap();
        let node = usize::from(owner == "gw1");
        for writer in &writers {
            writer.longest.store(0, Ordering::Relaxed);
        }
        world.strike(how, node);
        until("another node serves", || {
            world.owner().is_some_and(|(other, later)| other != owner && later > epoch)
        })
        .await;
        let before = counts();
        until(&format!("all clients write after {how:?}"), || progress(before)).await;
        let stalls = writers.each_ref().map(|w| w.longest.load(Ordering::Relaxed));
        println!("{how:?}: {owner} in epoch {epoch}; longest stalls in ms: {stalls:?}");
        world.mend(how, node).await;
    }
    a_second_run_on_the_node_of_the_owner_takes_no_address(&world).await;
    for writer in &writers {
        writer.stop.store(true, Ordering::Relaxed);
    }
    for task in tasks {
        task.await.unwrap();
    }
    for writer in &writers {
        writer.check(&world.path("share"));
    }
    println!("acknowledged and there: {:?} blocks", counts());
}

/// What is left there would answer a client that comes back by the same port, as Linux does with NFS 3, once the service is
/// there again.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lets_go_keeps_no_connection_of_the_service() {
    let mut world = World::new().await;
    until("the service is served", || world.owner().is_some() && world.has_address(0)).await;
    world.start(1);
    until("the other node stands", || world.logs().matches("stands for").count() == 2).await;
    let vip = world.vip();
    let nfs = connect(&format!("nfs://{vip}/data?version=3&mountport=2049")).await.unwrap();
    let smb = connect(&format!("smb://alice:moves-with-it@{vip}/data")).await.unwrap();
    assert!(world.connections(0).len() >= 2, "{:?}", world.connections(0));
    world.strike(How::Drain, 0);
    until("another node serves", || world.has_address(1)).await;
    assert_eq!(world.connections(0), [""; 0], "on the node that has let go");
    drop((nfs, smb));
}

async fn a_second_run_on_the_node_of_the_owner_takes_no_address(world: &World) {
    let node = usize::from(world.owner().unwrap().0 == "gw1");
    let log = world.path("second.log");
    let mut second = Command::new("ip")
        .args(["netns", "exec", &world.space(node), headgate(), "cluster", "run", "--config"])
        .arg(world.path(&format!("gw{node}.yaml")))
        .stderr(fs::File::create(&log).unwrap())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("the second run has begun", || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains("is a candidate for its services"))
    })
    .await;
    // It asks etcd every fifth of a TTL.
    sleep(Duration::from_secs(TTL)).await;
    sh(&format!("kill -TERM {}", second.id()));
    second.wait().unwrap();
    assert!(world.has_address(node));
}
