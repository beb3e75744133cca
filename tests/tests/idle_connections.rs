//! A thousand silent clients cost little memory, stay connected, and are answered when they send a call.
//!
//! Runs in a separate program, because it measures the memory of the whole process. The clients are bare sockets.

use headgate_tests::process::{raise_open_files, resident};
use headgate_tests::raw::RawIwarp;
use headgate_tests::world::World;

const CONNECTIONS: u32 = 1000;
const BYTES_MAX: u64 = 304 << 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_iwarp_connections_cost_little() {
    raise_open_files();
    // Half of an eighth is for the first receives, of which one address may have three quarters.
    let world = World::with(|s| s.memory = 512 << 20).await;
    let to = world.running.nfs_rdma[0];
    // One-time costs of the first connection (a pool's first slab, a thread's first stack) do not count.
    let first = tokio::task::spawn_blocking(move || {
        let mut first = RawIwarp::connect(to).unwrap();
        first.null(1).unwrap();
        first
    });
    let first = first.await.unwrap();
    let before = resident();
    let opened = tokio::task::spawn_blocking(move || {
        let mut all = Vec::new();
        for xid in 0..CONNECTIONS {
            let mut connection =
                RawIwarp::connect(to).unwrap_or_else(|e| panic!("connection {xid}: {e}"));
            connection.mount(xid).unwrap_or_else(|e| panic!("connection {xid}: {e}"));
            all.push(connection);
        }
        all
    });
    let mut all = opened.await.unwrap();
    let each = resident().saturating_sub(before) / u64::from(CONNECTIONS);
    println!("{each} bytes for each connection");
    assert!(each <= BYTES_MAX, "{each} bytes for each connection");
    let answered = tokio::task::spawn_blocking(move || {
        for (xid, connection) in (9000..).zip(&mut all) {
            connection.null(xid).unwrap_or_else(|e| panic!("connection {xid} later: {e}"));
        }
    });
    answered.await.unwrap();
    drop(first);
    world.running.stop().await;
}
