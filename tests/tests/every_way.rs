//! Every version over every transport: data written by one client is visible to all others and in the folder.

use std::fs;

use headgate_tests::world::{WAYS, World, pattern, read_all, write_all};

/// Sizes around the inline thresholds, pages and buffer sizes.
const SIZES: [usize; 14] = [
    0,
    1,
    127,
    1340,
    4095,
    4096,
    4097,
    8193,
    65_535,
    65_537,
    1 << 20,
    (1 << 20) + 1,
    3 << 20,
    7_654_321,
];

#[tokio::test(flavor = "multi_thread")]
async fn written_data_read_by_every_way() {
    let world = World::start().await;
    let mut clients = Vec::new();
    for way in WAYS {
        clients.push((
            way,
            world.client("data", way).await.unwrap_or_else(|e| panic!("{way:?}: {e}")),
        ));
    }
    for (way, writer) in &clients {
        for size in SIZES {
            let name = format!("{}-{}-{size}", way.0, way.1);
            let wanted = pattern(&name, size);
            write_all(writer, &name, &wanted).await.unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(
                fs::read(world.folder().join(&name)).unwrap() == wanted,
                "{name} in the folder"
            );
            for (other, reader) in &clients {
                let found = read_all(reader, &name)
                    .await
                    .unwrap_or_else(|e| panic!("{name} by {other:?}: {e}"));
                assert!(found == wanted, "{name} by {other:?}");
            }
        }
    }
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tcp_sends_bulk_data_as_pages() {
    let world = World::start().await;
    let wanted = pattern("paged", 5 << 20);
    for (version, transport) in WAYS {
        let client = world.client("data", (version, transport)).await.unwrap();
        write_all(&client, "paged", &wanted).await.unwrap();
        let mut attempts = 0;
        loop {
            let before = iobuf::paged_bytes();
            assert!(read_all(&client, "paged").await.unwrap() == wanted);
            // Other tests of this process may add to it, or use up the pipes: then bytes are copied once.
            let paged = iobuf::paged_bytes() - before;
            if transport == client::target::Transport::Rdma || paged >= 5 << 20 {
                break;
            }
            attempts += 1;
            assert!(attempts < 10, "{version}: {paged} bytes as pages");
        }
    }
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bulk_uses_rdma_otherwise_inline() {
    let world = World::start().await;
    for way in WAYS.into_iter().filter(|w| w.1 == client::target::Transport::Rdma) {
        let client = world.client("mem", way).await.unwrap();
        let traffic = |c: &rdma_transport::channel::Traffic| {
            use std::sync::atomic::Ordering::Relaxed;
            (c.rdma_write.load(Relaxed), c.rdma_read.load(Relaxed), c.inline_in.load(Relaxed))
        };
        let before = traffic(&client.info().traffic);
        write_all(&client, "bulk", &pattern("bulk", 4 << 20)).await.unwrap();
        assert_eq!(read_all(&client, "bulk").await.unwrap().len(), 4 << 20);
        let after = traffic(&client.info().traffic);
        assert!(
            after.0 - before.0 >= 4 << 20,
            "{way:?}: {} bytes by RDMA Write",
            after.0 - before.0
        );
        assert!(
            after.1 - before.1 >= 4 << 20,
            "{way:?}: {} bytes by RDMA Read",
            after.1 - before.1
        );
        assert!(after.2 - before.2 < 64 << 10, "{way:?}: {} bytes in line", after.2 - before.2);
        client.remove("bulk").await.unwrap();
    }
    world.running.stop().await;
}
