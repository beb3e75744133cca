//! Tests of clients that work while the service moves.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::load::{Writer, Writers, connect};
use crate::world::{How, Setup, World, sh};
use crate::{TTL, headgate, until};

/// Time for which a kernel keeps an address that is not renewed.
const ADDRESS_LIFETIME: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn clients_go_on_when_the_service_moves_and_nothing_acknowledged_is_lost() {
    let mut world = World::new().await;
    until("the service is served", || world.owner().is_some()).await;
    world.start(1);
    let vip = world.vip();
    let writers = Writers::start(vec![
        Writer::new("v3", format!("nfs://{vip}/data?version=3&mountport=2049")),
        Writer::new("v41", format!("nfs://{vip}/data?version=4.1")),
        Writer::new("smb", format!("smb://alice:moves-with-it@{vip}/data")),
    ])
    .await;
    writers.taken_over_in_turn(&mut world).await;
    a_second_run_on_the_node_of_the_owner_takes_no_address(&world).await;
    let counts = writers.counts();
    writers.end(&world.path("share")).await;
    println!("acknowledged and there: {counts:?} blocks at least");
}

/// A leftover connection would answer a client that returns with the same port, as Linux does for NFS 3, after the service
/// has returned to the node.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lets_go_keeps_no_connection_of_the_service() {
    let world = World::of_both(Setup::default()).await;
    let vip = world.vip();
    let nfs = connect(&format!("nfs://{vip}/data?version=3&mountport=2049")).await.unwrap();
    let smb = connect(&format!("smb://alice:moves-with-it@{vip}/data")).await.unwrap();
    assert!(world.connections(0).len() >= 2, "{:?}", world.connections(0));
    world.strike(How::Drain, 0);
    until("another node serves", || world.has_address(1)).await;
    assert_eq!(world.connections(0), [""; 0], "on the node that has let go");
    drop((nfs, smb));
}

/// A kernel that keeps the address of a dead gateway refuses connections, and refused clients back off for longer than a
/// takeover takes.
#[tokio::test(flavor = "multi_thread")]
async fn the_addresses_of_a_node_that_was_killed_go_by_themselves() {
    let world = World::of(Setup { has_ipv6: true, ..Setup::default() }).await;
    let (space, vip6) = (world.space(0), world.vip6());
    // Another address in that network, whose route must remain.
    sh(&format!("ip -n {space} address add {vip6}1/64 dev eth0 nodad"));
    let has_both = || world.has_address(0) && world.has(0, &vip6);
    until("the service is served", has_both).await;
    let began = Instant::now();
    while began.elapsed() < 2 * ADDRESS_LIFETIME {
        assert!(has_both(), "they are renewed while the node serves: {}", world.logs());
        sleep(Duration::from_millis(100)).await;
    }
    world.signal(0, "-9");
    until("the kernel has removed the addresses", || !world.has_address(0) && !world.has(0, &vip6))
        .await;
    let words = ["-n", &space, "-6", "route", "show", "proto", "kernel", "metric", "256"];
    let routes = Command::new("ip").args(words).output().unwrap();
    let routes = String::from_utf8_lossy(&routes.stdout);
    let stays = |line: &str| line.starts_with("fd77::/64") && !line.contains("expires");
    assert!(routes.lines().any(stays), "{routes}");
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
    // The node queries etcd five times per TTL.
    sleep(Duration::from_secs(TTL)).await;
    sh(&format!("kill -TERM {}", second.id()));
    second.wait().unwrap();
    assert!(world.has_address(node));
}
