//! Notices to SMB clients about directories that are changed over NFS, and outside the gateway.

use std::process::Command;
use std::time::Duration;

use client::nfs3::{CreateHow, SetAttr};
use client::smb::{Caching, OpenHow};
use headgate_tests::world::smb::{alice, with_alice};
use smb_proto::fscc::notify::{Action, Change};
use smb_proto::smb2::change_notify::filter;

use crate::side::{Side, Way};

const ENOUGH: Duration = Duration::from_secs(60);

fn sh(dir: &std::path::Path, script: &str) {
    let done = Command::new("sh").arg("-c").arg(script).current_dir(dir).status().unwrap();
    assert!(done.success(), "{script}: {done}");
}

/// Receives notices until all of `wanted` have arrived, in order.
async fn told(a: &Side, dir: &client::smb::SmbFile, below: bool, wanted: &[(Action, &str)]) {
    let mut wanted = wanted.iter().peekable();
    let mut seen: Vec<Change> = Vec::new();
    while let Some((action, name)) = wanted.peek() {
        let news = a.smb.notify(dir, below, filter::ALL);
        let news = tokio::time::timeout(ENOUGH, news).await;
        let news = news.unwrap_or_else(|_| panic!("{action:?} {name} is not told; {seen:?}"));
        for change in news.unwrap() {
            if wanted.peek().is_some_and(|(a, n)| (*a, *n) == (change.action, &*change.name)) {
                wanted.next();
            }
            seen.push(change);
        }
    }
}

/// Waits until more requests are pending than before.
async fn waits(a: &Side, before: u64) {
    let told = async {
        while a.smb.interims() == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(ENOUGH, told).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_reports_nfs_and_host_changes() {
    let (world, _dir) = with_alice(|_| ()).await;
    let folder = world.folder();
    sh(&folder, "mkdir -p d/sub");
    let a = Side::connect(&world, &alice(), Way::Tcp).await.unwrap();
    let b = Side::connect(&world, &alice(), Way::Tcp).await.unwrap();
    let (dir, _) = a.smb.open_cached("d", &OpenHow::LIST).await.unwrap();
    // The first request starts the watch, which is active when the interim response arrives; an event must end the request.
    let before = a.smb.interims();
    let first = async {
        waits(&a, before).await;
        let (d, _) = b.nfs3.lookup(&b.root3, b"d").await.unwrap();
        b.nfs3.create(&d, b"by-nfs", CreateHow::Unchecked(SetAttr::default())).await.unwrap();
    };
    tokio::join!(told(&a, &dir, true, &[(Action::Added, "by-nfs")]), first);
    sh(&folder, "echo hello > d/local && mv d/local d/other && rm d/other && mkdir d/new");
    let wanted = [
        (Action::Added, "local"),
        (Action::Modified, "local"),
        (Action::RenamedOldName, "local"),
        (Action::RenamedNewName, "other"),
        (Action::Removed, "other"),
        (Action::Added, "new"),
    ];
    told(&a, &dir, true, &wanted).await;
    sh(&folder, "echo x > d/sub/deep");
    told(&a, &dir, true, &[(Action::Added, "sub\\deep")]).await;
    // A directory created during the watch is watched as well, from the next request on.
    let before = a.smb.interims();
    let later = async {
        waits(&a, before).await;
        sh(&folder, "echo x > d/new/deep");
    };
    tokio::join!(told(&a, &dir, true, &[(Action::Added, "new\\deep")]), later);
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn host_change_breaks_directory_lease() {
    let (world, _dir) = with_alice(|_| ()).await;
    sh(&world.folder(), "mkdir d");
    let mut a = Side::connect(&world, &alice(), Way::Tcp).await.unwrap();
    let key = [7; 16];
    let how = OpenHow::LIST.cached(Caching::Lease(key, 3));
    let (dir, granted) = a.smb.open_cached("d", &how).await.unwrap();
    assert_eq!(granted, 3, "a lease of the directory");
    sh(&world.folder(), "touch d/new");
    let told = tokio::time::timeout(ENOUGH, a.breaks.recv()).await.expect("a break");
    let Some(client::smb::Break::LeaseNotice(n)) = told else { panic!("{told:?}") };
    assert_eq!((n.key, n.to & 1), (key, 0), "the listing may not be read from the cache");
    a.smb.acknowledge_lease(key, n.to).await.unwrap();
    a.smb.close(dir).await.unwrap();
    world.running.stop().await;
}
