//! Sixty-four clients that all request the maximum concurrently: a small pool serves them all, and no request waits forever.

use std::sync::Arc;
use std::time::Duration;

use client::target::{Transport, Version};
use headgate_tests::process::{raise_open_files, resident};
use headgate_tests::world::{World, pattern, write_all};

const CLIENTS: usize = 64;
const AT_ONCE: usize = 4;
const MIB: usize = 1 << 20;
/// The gateway's memory; 64 clients with 4 reads each request four times as much.
const POOL: u64 = 64 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_pool_serves_many_large_reads() {
    raise_open_files();
    let world = World::with(|s| s.memory = POOL).await;
    let wanted = Arc::new(pattern("large", AT_ONCE * MIB));
    let writer = world.client("data", (Version::V3, Transport::Tcp)).await.unwrap();
    write_all(&writer, "large", &wanted).await.unwrap();
    let mut clients = Vec::new();
    for n in 0..CLIENTS {
        let transport = if n % 2 == 0 { Transport::Rdma } else { Transport::Tcp };
        let client = world.client("data", (Version::V3, transport)).await.unwrap();
        // Silent clients are disconnected, and on a busy machine connecting all clients takes long.
        let file = client.find("large").await.unwrap();
        clients.push((client, file));
    }
    let before = resident();
    let mut tasks = tokio::task::JoinSet::new();
    for (client, file) in clients {
        let wanted = wanted.clone();
        tasks.spawn(async move {
            let reads = (0..AT_ONCE).map(|i| client.read(&file, (i * MIB) as u64, 1 << 20));
            for (i, read) in futures_util::future::join_all(reads).await.into_iter().enumerate() {
                let (pieces, _) = read.unwrap();
                let data: Vec<u8> = pieces.iter().flat_map(|p| p.as_slice()).copied().collect();
                assert!(data == wanted[i * MIB..(i + 1) * MIB], "read {i} differs");
            }
        });
    }
    // Fairness is tested with the pool; this test checks that no client is forgotten.
    let mut ended = 0;
    while let Some(done) =
        tokio::time::timeout(Duration::from_secs(120), tasks.join_next()).await.expect("all end")
    {
        done.unwrap();
        ended += 1;
    }
    assert_eq!(ended, CLIENTS);
    // The clients' own buffers are in this process, too, so their maximum is subtracted.
    let clients_hold = (CLIENTS * AT_ONCE * MIB) as u64;
    let grown = resident().saturating_sub(before);
    assert!(grown < POOL + clients_hold + (64 << 20), "{} MiB more than before", grown >> 20);
    world.running.stop().await;
}
