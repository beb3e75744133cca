//! Tests nodes with a real etcd. Each service is a program that holds a lock while it runs, which detects two at once.
//!
//! Requires `etcd` (package etcd-server), which the tier `third` installs.

#![allow(clippy::unwrap_used, clippy::expect_used, unreachable_pub)] // A test that cannot continue should panic with a message.

mod asked;
mod changes;
mod left;
mod shared;
mod world;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use cluster::Service;
use cluster::election::{Keys, Last, drained};
use tokio::time::sleep;
use world::{Node, PATIENCE, Proxy, TTL, World, compact, lives, until};

#[tokio::test(flavor = "multi_thread")]
async fn handover_needs_no_fence() {
    let world = World::new().await;
    let port = world.member.port;
    let etcd = world.etcd();
    let keys = Keys::new("c", "files");
    let one = world.node("gw1", port, world.service());
    let first = world.line(1).await;
    assert_eq!(first[..2], ["serves", "gw1"]);
    let two = world.node("gw2", port, world.service());
    // Prefer another node.
    etcd.put(&keys.wanted, b"gw2").await.unwrap();
    let second = world.line(2).await;
    assert_eq!(second[..2], ["serves", "gw2"]);
    assert!(second[2].parse::<u64>().unwrap() > first[2].parse().unwrap(), "epochs grow");
    assert!(!lives(&first[3]), "the gateway before has ended");
    // The preferred node is drained; the other node gets the service nevertheless.
    etcd.put(&drained("c", "gw2"), b"").await.unwrap();
    assert_eq!(world.line(3).await[..2], ["serves", "gw1"]);
    etcd.delete(&drained("c", "gw2")).await.unwrap();
    // The service returns to its preferred node; then that node ends.
    assert_eq!(world.line(4).await[..2], ["serves", "gw2"]);
    two.end().await;
    let last = world.line(5).await;
    assert_eq!(last[..2], ["serves", "gw1"]);
    one.end().await;
    assert!(!lives(&last[3]));
    assert!(world.journal().iter().all(|line| !line.starts_with("fenced")));
}

#[tokio::test(flavor = "multi_thread")]
async fn isolated_owner_stops_and_is_fenced() {
    let world = World::new().await;
    let way = Proxy::to(world.member.port).await;
    let one = world.node("gw1", way.port, world.service());
    let first = world.line(1).await;
    let two = world.node("gw2", world.member.port, world.service());
    way.set(Proxy::CUT);
    // The lock of the journal would detect an owner that had not stopped.
    let fenced = world.line(2).await;
    assert_eq!(fenced, ["fenced", "gw1", &first[2]]);
    assert!(!lives(&first[3]), "it stopped by its own clock");
    assert_eq!(world.line(3).await[..2], ["serves", "gw2"]);
    // The node returns, and learns that another owns the service now.
    way.set(Proxy::OPEN);
    two.end().await;
    assert_eq!(world.line(4).await[..2], ["serves", "gw1"]);
    one.end().await;
    assert_eq!(world.journal().len(), 4, "{:?}", world.journal());
}

#[tokio::test(flavor = "multi_thread")]
async fn node_without_fence_never_serves() {
    let world = World::new().await;
    let way = Proxy::to(world.member.port).await;
    let one = world.node("gw1", way.port, world.service());
    world.line(1).await;
    fs::write(world.path("no-fence"), b"").unwrap();
    let two = world.node("gw2", world.member.port, world.service());
    way.set(Proxy::CUT);
    // It was elected twice, and gave up.
    let etcd = world.etcd();
    let keys = Keys::new("c", "files");
    let began = Instant::now();
    let mut epochs = BTreeSet::new();
    while epochs.len() < 3 {
        epochs.extend(etcd.get(&keys.owner).await.unwrap().map(|owner| owner.created));
        assert!(began.elapsed() < PATIENCE, "{epochs:?}");
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(world.journal().len(), 1, "{:?}", world.journal());
    fs::remove_file(world.path("no-fence")).unwrap();
    assert_eq!(world.line(2).await[..2], ["fenced", "gw1"]);
    assert_eq!(world.line(3).await[..2], ["serves", "gw2"]);
    two.end().await;
    one.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_gateway_restarts_or_moves() {
    let world = World::new().await;
    let port = world.member.port;
    let one = world.node("gw1", port, world.service());
    let mut line = world.line(1).await;
    let two = world.node("gw2", port, world.service());
    let epoch = line[2].clone();
    for number in 2..=4 {
        assert!(Command::new("kill").args(["-9", &line[3]]).status().unwrap().success());
        line = world.line(number).await;
        assert_eq!(line[..3], ["serves", "gw1", &epoch], "in the same epoch");
    }
    assert!(Command::new("kill").args(["-9", &line[3]]).status().unwrap().success());
    let other = world.line(5).await;
    assert_eq!(other[..2], ["serves", "gw2"]);
    one.end().await;
    two.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_follows_etcd_availability() {
    let world = World::new().await;
    let way = Proxy::to(world.member.port).await;
    let one = world.node("gw1", way.port, world.service());
    let first = world.line(1).await;
    way.set(Proxy::CUT);
    until("it stops", || async { !lives(&first[3]) }).await;
    way.set(Proxy::OPEN);
    let again = world.line(2).await;
    assert_eq!(again[..2], ["serves", "gw1"], "the machine itself needs no fence");
    assert!(again[2].parse::<u64>().unwrap() > first[2].parse().unwrap());
    one.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_stays_while_preferred_node_absent() {
    let world = World::new().await;
    let port = world.member.port;
    let etcd = world.etcd();
    let one = world.node("gw1", port, world.service());
    let first = world.line(1).await;
    etcd.put(&Keys::new("c", "files").wanted, b"gw2").await.unwrap();
    // An owner that gave way would have checked three times by now, and left.
    sleep(TTL).await;
    assert!(lives(&first[3]), "{:?}", world.journal());
    let two = world.node("gw2", port, world.service());
    assert_eq!(world.line(2).await[..2], ["serves", "gw2"]);
    one.end().await;
    two.end().await;
}

/// Returns the epoch in which the service is owned, if it is.
async fn epoch(world: &World) -> Option<u64> {
    let etcd = world.etcd();
    etcd.get(&Keys::new("c", "files").owner).await.unwrap().map(|it| it.created)
}

/// Returns the time from the end of this epoch until line `number` of the journal.
async fn after(world: &World, ended: Option<u64>, number: usize) -> Duration {
    until("the epoch ends", || async { epoch(world).await != ended }).await;
    let began = Instant::now();
    world.line(number).await;
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_preferred_owner_is_not_awaited() {
    let world = World::new().await;
    let port = world.member.port;
    let etcd = world.etcd();
    let way = Proxy::to(port).await;
    etcd.put(&Keys::new("c", "files").wanted, b"gw1").await.unwrap();
    let one = world.node("gw1", way.port, world.service());
    assert_eq!(world.line(1).await[..2], ["serves", "gw1"]);
    let two = world.node("gw2", port, world.service());
    // It campaigns, and waits for the end of the owner.
    sleep(TTL).await;
    let first = epoch(&world).await;
    way.set(Proxy::CUT);
    let waited = after(&world, first, 2).await;
    assert!(waited < TTL, "{waited:?} until gw1 was fenced, which was cut off");
    assert_eq!(world.line(3).await[..2], ["serves", "gw2"]);
    // It returns and gets the service again; then it is drained.
    way.set(Proxy::OPEN);
    assert_eq!(world.line(4).await[..2], ["serves", "gw1"]);
    let third = epoch(&world).await;
    etcd.put(&drained("c", "gw1"), b"").await.unwrap();
    let waited = after(&world, third, 5).await;
    assert!(waited < TTL, "{waited:?} until another served, when gw1 was drained");
    assert_eq!(world.line(5).await[..2], ["serves", "gw2"]);
    one.end().await;
    two.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn takeover_after_compaction_is_fast() {
    let world = World::new().await;
    let port = world.member.port;
    let way = Proxy::to(port).await;
    let one = world.node("gw1", way.port, world.service());
    world.line(1).await;
    compact(port).await;
    let two = world.node("gw2", port, world.service());
    // It has campaigned, and waits.
    sleep(TTL).await;
    let began = Instant::now();
    way.set(Proxy::CUT);
    assert_eq!(world.line(3).await[..2], ["serves", "gw2"]);
    assert!(began.elapsed() < 5 * TTL, "{:?}", began.elapsed());
    one.end().await;
    two.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_release_avoids_fence() {
    let world = World::new().await;
    let port = world.member.port;
    let etcd = world.etcd();
    let journal = world.path("files.journal");
    let slow = |word: &str| {
        let line = format!("sleep {}; echo {word} >>{}", 2 * TTL.as_secs(), journal.display());
        vec!["sh".into(), "-c".into(), line]
    };
    let service = Service {
        attach: Some(vec!["true".into()]),
        detach: Some(slow("detached")),
        ..world.service()
    };
    let one = world.node("gw1", port, service.clone());
    world.line(1).await;
    let two = world.node("gw2", port, service);
    etcd.put(&Keys::new("c", "files").wanted, b"gw2").await.unwrap();
    assert_eq!(world.line(2).await, ["detached"]);
    assert_eq!(world.line(3).await[..2], ["serves", "gw2"]);
    one.end().await;
    two.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_release_report_avoids_fence() {
    let world = World::new().await;
    let way = Proxy::to(world.member.port).await;
    let one = world.node("gw1", way.port, world.service());
    let first = world.line(1).await;
    way.set(Proxy::UNCHANGED);
    world.etcd().put(&drained("c", "gw1"), b"").await.unwrap();
    // It waits a second for each reply, and reports for a TTL; later reports come from its checks.
    until("it says so no more", || async { way.kept_back() as u64 >= 2 * TTL.as_secs() }).await;
    assert!(!lives(&first[3]));
    way.set(Proxy::OPEN);
    let two = world.node("gw2", world.member.port, world.service());
    let second = world.line(2).await;
    assert_eq!(second[..2], ["serves", "gw2"], "{:?}", world.journal());
    one.end().await;
    two.end().await;
}

/// Returns a node that stopped because etcd was unresponsive, and whose key `owner` has expired.
async fn stopped_without_etcd(world: &World, way: &Proxy) -> Node {
    let one = world.node("gw1", way.port, world.service());
    let first = world.line(1).await;
    way.set(Proxy::CUT);
    until("it stops", || async { !lives(&first[3]) }).await;
    until("its key ends", || async { world.owner("files").await.is_none() }).await;
    one
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_owner_reports_after_outage() {
    let world = World::new().await;
    let (way, etcd) = (Proxy::to(world.member.port).await, world.etcd());
    let one = stopped_without_etcd(&world, &way).await;
    let keys = Keys::new("c", "files");
    let last = || async {
        let last = etcd.get(&keys.last).await.unwrap().unwrap();
        Last::parse(&last.value).unwrap()
    };
    assert!(!last().await.ended);
    // Elected, and about to fence.
    let lease = etcd.grant(PATIENCE).await.unwrap();
    etcd.create(&keys.owner, b"{\"node\":\"gw2\"}", lease, &keys.owner).await.unwrap();
    way.set(Proxy::OPEN);
    until("it says that it has let go", || async { last().await.ended }).await;
    assert_eq!(last().await.node, "gw1");
    one.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ending_node_reports_before_exit() {
    let world = World::new().await;
    let way = Proxy::to(world.member.port).await;
    let one = stopped_without_etcd(&world, &way).await;
    let tries = way.kept_back();
    let ending = tokio::spawn(one.end());
    until("it tries to say so", || async { way.kept_back() > tries + 2 }).await;
    assert!(!ending.is_finished());
    way.set(Proxy::OPEN);
    ending.await.unwrap();
    let two = world.node("gw2", world.member.port, world.service());
    assert_eq!(world.line(2).await[..2], ["serves", "gw2"], "{:?}", world.journal());
    two.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_restarts_while_etcd_slow() {
    let world = World::new().await;
    let way = Proxy::to(world.member.port).await;
    let (go_on, mut service) = (world.path("go-on"), world.service());
    let wait = format!("while test ! -e {}; do sleep 0.1; done; echo", go_on.display());
    service.command[2] = service.command[2].replace("echo headgate", &format!("{wait} headgate"));
    // It tries one after the other: a second for each.
    let one = world.node_of("gw1", &[way.port; 60], &[service]);
    let first = world.line(1).await;
    way.set(Proxy::UNCHANGED);
    fs::write(go_on, b"").unwrap();
    until("it says that it serves", || async { way.kept_back() > 0 }).await;
    assert!(Command::new("kill").args(["-9", &first[3]]).status().unwrap().success());
    let began = Instant::now();
    assert_eq!(world.line(2).await[..3], first[..3]);
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    way.set(Proxy::OPEN);
    one.end().await;
}
