//! Tests of two services on one node, which has one lease for both.

use crate::late::has_ended;
use crate::load::connect;
use crate::until;
use crate::world::{Setup, World, sh};

#[tokio::test(flavor = "multi_thread")]
async fn one_moves_without_the_other_and_both_end_where_the_runner_stands_still() {
    let mut world = World::of(Setup { has_second: true, ..Setup::default() }).await;
    let both = [world.vip(), world.second_vip()];
    let has_both = |world: &World, node| both.iter().all(|ip| world.has(node, ip));
    until("both are served", || has_both(&world, 0)).await;
    world.start(1);
    let (first, before) = (world.owner().unwrap(), world.programs(0, "serve"));
    world.ask(0, &["move", "second", "gw1"]).unwrap();
    until("the second has moved", || world.has(1, &both[1])).await;
    assert!(world.has(0, &both[0]) && !world.has(0, &both[1]) && !world.has(1, &both[0]));
    let left = world.programs(0, "serve");
    assert!(left.len() == 1 && before.contains(&left[0]), "{left:?} of {before:?}");
    assert_eq!(world.owner().unwrap(), first);
    world.ask(0, &["move", "second", "gw0"]).unwrap();
    until("the second is back", || has_both(&world, 0)).await;
    world.ask(0, &["move", "second"]).unwrap();
    // Only the runner is stopped, and the fence ends no process: the records of both services are locked while their gateways
    // live.
    world
        .script("fence", &format!("echo $HEADGATE_FENCED_NODE >>{}", world.path("told").display()));
    let gateways = world.programs(0, "serve");
    assert_eq!(gateways.len(), 2);
    let runner = world.programs(0, "cluster").pop().unwrap();
    sh(&format!("kill -STOP {runner}"));
    until("the other node serves both", || has_both(&world, 1)).await;
    assert!(gateways.iter().all(|pid| has_ended(pid)), "each gateway ended by its own clock");
    let told = std::fs::read_to_string(world.path("told")).unwrap();
    assert_eq!(told, "gw0\ngw0\n");
    let owner = world.owner().unwrap();
    sh(&format!("kill -CONT {runner}"));
    until("the runner has let go of both", || both.iter().all(|ip| !world.has(0, ip))).await;
    assert!(has_both(&world, 1));
    assert_eq!(world.owner().unwrap(), owner);
    for (ip, share) in both.iter().zip(["data", "archive"]) {
        connect(&format!("nfs://{ip}/{share}?version=3&mountport=2049")).await.unwrap();
    }
}
