//! Tests of a client that waits for an answer when its node stops responding.

use std::fs;
use std::time::{Duration, Instant};

use crate::late::has_stopped;
use crate::load::connect;
use crate::until;
use crate::world::{Setup, World, sh};

/// Time limit for the notification of a client; the machine may be loaded.
const TOLD_MAX: Duration = Duration::from_millis(1500);

/// Stops a node that holds requests which its TCP has acknowledged, and cuts its link. Returns how long clients of NFS and
/// SMB, over TCP and iWARP, then wait after another node has the address; `None` if they wait without end.
async fn wait_of_a_client(is_told: bool) -> Option<Duration> {
    let world = World::of_both(Setup::default()).await;
    let vip = world.vip();
    let clients = [
        format!("nfs://{vip}/data?version=3&mountport=2049"),
        format!("nfs://{vip}/data?version=3&transport=rdma&mountport=2049"),
        format!("smb://alice:moves-with-it@{vip}/data"),
        format!("smb+rdma://alice:moves-with-it@{vip}/data"),
    ];
    let mut volumes = Vec::new();
    for client in &clients {
        volumes.push(connect(client).await.unwrap());
    }
    let file = world.path("state/connections");
    let known = || fs::read_to_string(&file).unwrap_or_default();
    let ports = [":2049 ", ":20049 ", ":445 ", ":5445 "];
    until("the connections are kept", || ports.iter().all(|p| known().contains(p))).await;
    until("all requests are read", || world.unread(0).is_empty()).await;
    let gateway = world.gateway(0);
    sh(&format!("kill -STOP {gateway}"));
    until("the gateway stands still", || has_stopped(&gateway)).await;
    let mut waiting = tokio::task::JoinSet::new();
    for (i, volume) in volumes.into_iter().enumerate() {
        waiting.spawn(async move { volume.create(&format!("new-{i}")).await.map(drop) });
    }
    let all = clients.len();
    until("all requests are in the sockets of the node", || world.unread(0).len() == all).await;
    // The acknowledgment may come after the data: TCP may delay it, and the client's TCP would send unacknowledged data again.
    until("all are acknowledged", || world.is_acknowledged()).await;
    if !is_told {
        fs::remove_file(&file).unwrap();
    }
    world.link(0, "down");
    until("another node serves", || world.has_address(1)).await;
    let began = Instant::now();
    // A request that a thread had read before the stop may be answered; its client does not wait.
    let ended = async {
        while let Some(done) = waiting.join_next().await {
            println!("{:?}", done.unwrap());
        }
    };
    let waited = tokio::time::timeout(3 * TOLD_MAX, ended).await.ok().map(|()| began.elapsed());
    println!("told: {is_told}, waited: {waited:?}");
    waited
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_is_told_at_once_when_another_node_takes_over() {
    let waited = wait_of_a_client(true).await.expect("they are told");
    assert!(waited < TOLD_MAX, "{waited:?}");
    assert_eq!(wait_of_a_client(false).await, None, "nothing else tells them");
}
