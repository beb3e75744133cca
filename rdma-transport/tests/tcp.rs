//! RPC over a byte stream: every split of every message arrives complete, bulk data is read into place, rules are enforced.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

mod common;

use common::{
    Echo, Message, SEALED, exhausted, nobody_holds, pair, pool, read_record, run,
    run_by_virtual_time, served,
};
use iobuf::{Buf, Pages, PagesMut, Pool, PoolLimits};
use proptest::prelude::*;
use rdma_transport::channel::{
    BoxFuture, Channel, ChannelError, Payload, Place, ReadChunkData, Reply, Service,
};
use rdma_transport::limits;
use rdma_transport::serve::serve;
use rdma_transport::tcp::TcpChannel;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn mark(last: bool, len: usize) -> [u8; 4] {
    (u32::from(last) << 31 | u32::try_from(len).unwrap()).to_be_bytes()
}

/// Splits `record` into fragments at the positions in `cuts`, as fractions of 256.
fn fragments(record: &[u8], cuts: &[u8]) -> Vec<u8> {
    let mut at: Vec<usize> = cuts.iter().map(|&c| record.len() * usize::from(c) / 256).collect();
    at.sort_unstable();
    at.push(record.len());
    let (mut out, mut from) = (Vec::new(), 0);
    for (i, &to) in at.iter().enumerate() {
        out.extend_from_slice(&mark(i + 1 == at.len(), to - from));
        out.extend_from_slice(&record[from..to]);
        from = to;
    }
    out
}

fn message() -> impl Strategy<Value = (Message, Vec<u8>)> {
    let bulk = prop_oneof![
        2 => Just(0),
        2 => 1usize..9000,
        1 => 30_000usize..40_000,
        1 => 1usize..200_000,
        1 => Just(1 << 20),
    ];
    let cuts = prop_oneof![3 => Just(vec![]), 1 => proptest::collection::vec(any::<u8>(), 1..5)];
    (0u32..256, 0usize..600, bulk, 0usize..200, cuts)
        .prop_map(|(xid, head, bulk, tail, cuts)| (Message::new(xid, head, bulk, tail), cuts))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// For all messages, fragments and split sizes: each message returns byte for byte.
    #[test]
    fn every_byte_returns_unchanged(
        messages in proptest::collection::vec(message(), 1..12),
        writes in proptest::collection::vec(1usize..70_000, 1..6),
    ) {
        run(async {
            let (client, server, recvs, payload) = served(Echo::default()).await;
            let mut wire = Vec::new();
            let mut expected = Vec::new();
            for (m, cuts) in &messages {
                wire.extend_from_slice(&fragments(&m.emit(), cuts));
                expected.push(m.reply());
            }
            let (mut read, mut write) = client.into_split();
            let writer = tokio::spawn(async move {
                let (mut rest, mut sizes) = (&wire[..], writes.iter().cycle());
                while !rest.is_empty() {
                    let (now, later) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                    write.write_all(now).await.unwrap();
                    tokio::task::yield_now().await;
                    rest = later;
                }
                // All requests are answered even after the peer has closed its sending half.
                write.shutdown().await.unwrap();
            });
            let mut got = Vec::new();
            for _ in &expected {
                let n = (read.read_u32().await.unwrap() & 0x7fff_ffff) as usize;
                let mut body = vec![0; n];
                read.read_exact(&mut body).await.unwrap();
                got.push(body);
            }
            // Replies may overtake each other.
            got.sort();
            expected.sort();
            assert!(got == expected);
            writer.await.unwrap();
            assert_eq!(server.await.unwrap(), ChannelError::Closed("by the peer".into()));
            nobody_holds(&recvs);
            nobody_holds(&payload);
        });
    }
}

#[test]
fn idle_connection_holds_no_buffer() {
    run(async {
        let (mut client, _server, recvs, payload) = served(Echo::default()).await;
        let m = Message::new(1, 0, 0, 0);
        client.write_all(&fragments(&m.emit(), &[])).await.unwrap();
        assert_eq!(read_record(&mut client).await, m.reply());
        tokio::task::yield_now().await;
        nobody_holds(&recvs);
        nobody_holds(&payload);
        assert!(size_of::<TcpChannel>() < 2048);
    });
}

async fn ends_with(wire: Vec<u8>) -> ChannelError {
    let (mut client, server, _, _) = served(Echo::default()).await;
    client.write_all(&wire).await.unwrap();
    server.await.unwrap()
}

#[test]
fn broken_marks_end_the_connection() {
    run(async {
        let rule = |e| match e {
            ChannelError::Violation(rule, _) => rule,
            ChannelError::Closed(why) => panic!("{why}"),
        };
        let too_long = mark(true, limits::RPC_RECORD_MAX + 1).to_vec();
        assert_eq!(rule(ends_with(too_long).await), "rpc.record.too-long");
        assert_eq!(
            rule(ends_with([mark(true, 7).to_vec(), vec![0; 7]].concat()).await),
            "rpc.record.too-short"
        );
        let empty = mark(false, 0).repeat(limits::RECORD_EMPTY_FRAGMENTS_MAX + 1);
        assert_eq!(rule(ends_with(empty).await), "rpc.record.empty-fragments");
        let crumbs = [&mark(false, 1)[..], b"x"].concat().repeat(limits::RECORD_FRAGMENTS_MAX + 1);
        assert_eq!(rule(ends_with(crumbs).await), "rpc.record.fragments");
    });
}

#[test]
fn truncated_record_is_reported() {
    run(async {
        let (mut client, server, _, _) = served(Echo::default()).await;
        client.write_all(&mark(true, 100)).await.unwrap();
        client.shutdown().await.unwrap();
        let expected = ChannelError::Closed("by the peer inside a message".into());
        assert_eq!(server.await.unwrap(), expected);
    });
}

#[test]
fn concurrent_requests_are_limited() {
    run(async {
        let hold = Arc::new(tokio::sync::Semaphore::new(0));
        let echo = Echo { hold: Some(hold.clone()), ..Echo::default() };
        let (in_work, most) = (echo.in_work.clone(), echo.in_work_most.clone());
        let (client, server, _, _) = served(echo).await;
        let (mut read, mut write) = client.into_split();
        let count = 3 * limits::REQUESTS_IN_WORK_MAX;
        for xid in 0..count {
            let m = Message::new(xid as u32, 0, 0, 0);
            write.write_all(&fragments(&m.emit(), &[])).await.unwrap();
        }
        while in_work.load(Ordering::SeqCst) < limits::REQUESTS_IN_WORK_MAX {
            tokio::task::yield_now().await;
        }
        hold.add_permits(count);
        for _ in 0..count {
            let n = (read.read_u32().await.unwrap() & 0x7fff_ffff) as usize;
            read.read_exact(&mut vec![0; n]).await.unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), limits::REQUESTS_IN_WORK_MAX);
        drop((read, write));
        server.await.unwrap();
    });
}

/// An exhausted pool only delays requests; two connections alternate.
#[test]
fn scarce_pool_only_delays_requests() {
    run(async {
        let (recvs, payload) = (pool(8), Pool::new(PoolLimits { buffers_max: [1, 1, 1] }));
        let mut clients = Vec::new();
        for _ in 0..4 {
            let (client, channel) = pair(recvs.clone(), payload.clone()).await;
            tokio::spawn(serve(Box::new(channel), Arc::new(Echo::default())));
            clients.push(client);
        }
        let m = Message::new(3, 20, 300_000, 0);
        let tasks: Vec<_> = clients
            .into_iter()
            .map(|client| {
                let m = m.clone();
                tokio::spawn(async move {
                    let (mut read, mut write) = client.into_split();
                    let wire = fragments(&m.emit(), &[]).repeat(5);
                    let writer = tokio::spawn(async move {
                        write.write_all(&wire).await.unwrap();
                        write
                    });
                    for _ in 0..5 {
                        let n = (read.read_u32().await.unwrap() & 0x7fff_ffff) as usize;
                        let mut body = vec![0; n];
                        read.read_exact(&mut body).await.unwrap();
                        assert!(body == m.reply());
                    }
                    writer.await.unwrap();
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert!(payload.stats()[2].waits > 0, "the limit was reached");
    });
}

#[test]
fn callbacks_find_their_callers() {
    run(async {
        let (mut client, channel) = pair(pool(8), pool(8)).await;
        let handle = channel.handle();
        let server = tokio::spawn(serve(Box::new(channel), Arc::new(Echo::default())));
        let call = |last: u8| {
            let handle = handle.clone();
            tokio::spawn(async move { handle.call(vec![0, 0, 0, 0, 0, 0, 0, 0, last]).await })
        };
        let (first, second) = (call(1), call(2));
        let (one, two) = (read_record(&mut client).await, read_record(&mut client).await);
        assert_ne!(one[..4], two[..4], "each call has its own xid");
        // Answered in reverse order, with a stray and a duplicate reply in between.
        for call in [&two, &vec![9; 9], &two, &one] {
            let reply = [&call[..4], &[0, 0, 0, 1], &call[8..]].concat();
            client.write_all(&fragments(&reply, &[])).await.unwrap();
        }
        let (first, second) = (first.await.unwrap().unwrap(), second.await.unwrap().unwrap());
        let mut last = [first[8], second[8]];
        assert_eq!(last, [1, 2]);
        last.sort_unstable();
        // Requests are still served.
        let m = Message::new(1, 0, 0, 0);
        client.write_all(&fragments(&m.emit(), &[])).await.unwrap();
        assert_eq!(read_record(&mut client).await, m.reply());
        // A waiting caller gets an error when the connection ends.
        let third = call(3);
        read_record(&mut client).await;
        drop(client);
        server.await.unwrap();
        assert!(matches!(third.await.unwrap(), Err(ChannelError::Closed(_))));
        assert!(handle.is_closed());
    });
}

#[test]
fn shutdown_answers_requests_in_progress() {
    run(async {
        let hold = Arc::new(tokio::sync::Semaphore::new(0));
        let echo = Echo { hold: Some(hold.clone()), ..Echo::default() };
        let in_work = echo.in_work.clone();
        let (mut client, channel) = pair(pool(8), pool(8)).await;
        let handle = channel.handle();
        let server = tokio::spawn(serve(Box::new(channel), Arc::new(echo)));
        let m = Message::new(1, 0, 0, 0);
        client.write_all(&fragments(&m.emit(), &[])).await.unwrap();
        while in_work.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        handle.shutdown().await;
        tokio::task::yield_now().await;
        hold.add_permits(1);
        assert_eq!(read_record(&mut client).await, m.reply());
        assert_eq!(server.await.unwrap(), ChannelError::Closed("by this side".into()));
    });
}

#[test]
fn stalled_message_ends_connection() {
    // Time is virtual and advances when all tasks are idle.
    let rt = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    rt.block_on(async {
        let (mut client, server, _, _) = served(Echo::default()).await;
        client.write_all(&mark(true, 100)).await.unwrap();
        let ChannelError::Closed(why) = server.await.unwrap() else { panic!("not a violation") };
        assert!(why.contains("no progress"), "{why}");
    });
}

#[test]
fn trickling_message_counts_as_stalled() {
    let rt = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    rt.block_on(async {
        let (client, server, _, _) = served(Echo::default()).await;
        let (mut read, mut write) = client.into_split();
        let trickle = tokio::spawn(async move {
            write.write_all(&mark(true, 100_000)).await.unwrap();
            while write.write_all(&[0]).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        });
        let ChannelError::Closed(why) = server.await.unwrap() else { panic!("not a violation") };
        assert!(why.contains("no progress"), "{why}");
        assert!(read.read(&mut [0]).await.map_or(true, |n| n == 0));
        trickle.abort();
    });
}

/// Incoming calls do not excuse replies that are not taken.
#[test]
fn answers_not_taken_end_despite_calls() {
    run_by_virtual_time(async {
        let payload = pool(12);
        let (client, channel) = pair(pool(8), payload.clone()).await;
        let echo = Echo::default();
        let received = echo.read_chunks.clone();
        let server = tokio::spawn(serve(Box::new(channel), Arc::new(echo)));
        let (_unread, mut write) = client.into_split();
        let large = fragments(&Message::new(1, 0, 1 << 20, 0).emit(), &[]);
        for _ in 0..7 {
            write.write_all(&large).await.unwrap();
        }
        // Some may still be on their way: without memory they would be refused, with replies that the kernel takes.
        while received.load(Ordering::SeqCst) < 7 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let _others = exhausted(&payload);
        let began = tokio::time::Instant::now();
        let small = fragments(&Message::new(1, 0, 0, 0).emit(), &[]);
        let calls = tokio::spawn(async move {
            while write.write_all(&small).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(125)).await;
            }
        });
        let ChannelError::Closed(why) = server.await.unwrap() else { panic!("not a violation") };
        assert!(why.contains("others wait"), "{why}");
        assert!(began.elapsed() <= Duration::from_secs(7), "{:?}", began.elapsed());
        calls.abort();
    });
}

/// A partial record that occupies memory has the same short time limit as untaken replies, while other connections wait for memory.
#[test]
fn half_record_ends_while_others_wait() {
    run_by_virtual_time(async {
        for (m, whose) in [
            (Message::new(1, 0, 1 << 20, 0), "in a buffer"),
            (Message::new(1, 300_000, 0, 0), "on the heap"),
        ] {
            let payload = pool(4);
            let (mut client, channel) = pair(pool(8), payload.clone()).await;
            let server = tokio::spawn(serve(Box::new(channel), Arc::new(Echo::default())));
            client.write_all(&fragments(&m.emit(), &[])[..100_000]).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            let _others = exhausted(&payload);
            let began = tokio::time::Instant::now();
            let ChannelError::Closed(why) = server.await.unwrap() else { panic!("a violation") };
            assert!(why.contains("others wait"), "{whose}: {why}");
            assert!(began.elapsed() <= Duration::from_secs(7), "{whose}: {:?}", began.elapsed());
        }
    });
}

/// Data without memory is discarded as it arrives, and its request is answered, as are those sent together with it. The connection
/// continues, and accepts the same data when memory is available again.
#[test]
fn tcp_data_without_memory_is_refused() {
    run_by_virtual_time(async {
        let payload = pool(4);
        let (held, waiting) = exhausted(&payload);
        let (client, channel) = pair(pool(8), payload.clone()).await;
        let server = tokio::spawn(serve(Box::new(channel), Arc::new(Echo::default())));
        let (mut read, mut write) = client.into_split();
        let messages = [
            Message::new(1, 0, 1 << 20, 0),
            Message::new(2, 300, (1 << 20) - 3, 64),
            Message::new(4, 0, 0, 0),
            Message::new(5, 0, 5000, 4096),
            Message::new(7, 0, 0, 8),
        ];
        let wire: Vec<u8> = messages.iter().flat_map(|m| fragments(&m.emit(), &[])).collect();
        let began = tokio::time::Instant::now();
        let (again, first) = (wire.clone(), wire);
        let writer = tokio::spawn(async move {
            write.write_all(&first).await.unwrap();
            write
        });
        let mut record = async || {
            let n = (read.read_u32().await.unwrap() & 0x7fff_ffff) as usize;
            let mut body = vec![0; n];
            read.read_exact(&mut body).await.unwrap();
            body
        };
        for m in &messages {
            // Memory for small data is available.
            let is_large = m.bulk.len() > 64 << 10;
            let expected = if is_large { m.reply_without_data() } else { m.reply() };
            assert!(record().await == expected, "{}", m.xid);
        }
        let took = began.elapsed();
        let most = limits::MEMORY_WAIT_MAX + Duration::from_secs(1);
        assert!((limits::MEMORY_WAIT_MAX..most).contains(&took), "{took:?}");
        drop(held);
        waiting.await.unwrap();
        let mut write = writer.await.unwrap();
        let writer = tokio::spawn(async move {
            write.write_all(&again).await.unwrap();
            write
        });
        for m in &messages {
            assert!(record().await == m.reply(), "{}", m.xid);
        }
        let mut write = writer.await.unwrap();
        write.shutdown().await.unwrap();
        assert_eq!(server.await.unwrap(), ChannelError::Closed("by the peer".into()));
        nobody_holds(&payload);
    });
}

/// Data in several fragments, for which there is no memory on the heap, is thrown away as any other.
#[test]
fn fragments_without_memory_are_refused_in_time() {
    run_by_virtual_time(async {
        let payload = pool(4);
        payload.set_heap(1_000_000, 1_000_000);
        let paid = payload.pay_now(1_000_000);
        let (client, channel) = pair(pool(8), payload.clone()).await;
        let server = tokio::spawn(serve(Box::new(channel), Arc::new(Echo::default())));
        let (mut read, mut write) = client.into_split();
        let (m, small) = (Message::new(2, 300, 60_000, 0), Message::new(7, 0, 0, 8));
        let cut = [fragments(&m.emit(), &[1, 40, 120]), fragments(&small.emit(), &[])];
        let began = tokio::time::Instant::now();
        let mut record = async || {
            let n = (read.read_u32().await.unwrap() & 0x7fff_ffff) as usize;
            let mut body = vec![0; n];
            read.read_exact(&mut body).await.unwrap();
            body
        };
        write.write_all(&cut.concat()).await.unwrap();
        assert!(record().await == m.reply_without_data());
        assert!(record().await == small.reply());
        let took = began.elapsed();
        let most = limits::MEMORY_WAIT_MAX + Duration::from_secs(1);
        assert!((limits::MEMORY_WAIT_MAX..most).contains(&took), "{took:?}");
        drop(paid);
        write.write_all(&cut.concat()).await.unwrap();
        assert!(record().await == m.reply());
        assert!(record().await == small.reply());
        write.shutdown().await.unwrap();
        assert_eq!(server.await.unwrap(), ChannelError::Closed("by the peer".into()));
        nobody_holds(&payload);
    });
}

/// Receive buffers are as others: a client that holds one with half of a record has little time while another waits for one.
#[test]
fn half_record_gives_up_receive_buffers() {
    run_by_virtual_time(async {
        let (payload, recvs) = (pool(4), pool(1));
        let (mut holder, channel) = pair(recvs.clone(), payload.clone()).await;
        let held = tokio::spawn(serve(Box::new(channel), Arc::new(Echo::default())));
        let m = Message::new(1, 0, 0, 0);
        holder.write_all(&fragments(&m.emit(), &[])[..10]).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (client, channel) = pair(recvs, payload).await;
        let server = tokio::spawn(serve(Box::new(channel), Arc::new(Echo::default())));
        let (mut read, mut write) = client.into_split();
        let began = tokio::time::Instant::now();
        write.write_all(&fragments(&m.emit(), &[])).await.unwrap();
        let n = (read.read_u32().await.unwrap() & 0x7fff_ffff) as usize;
        let mut body = vec![0; n];
        read.read_exact(&mut body).await.unwrap();
        assert!(body == m.reply());
        assert!(began.elapsed() <= Duration::from_secs(7), "{:?}", began.elapsed());
        let ChannelError::Closed(why) = held.await.unwrap() else { panic!("not a violation") };
        assert!(why.contains("others wait"), "{why}");
        write.shutdown().await.unwrap();
        assert_eq!(server.await.unwrap(), ChannelError::Closed("by the peer".into()));
    });
}

/// Records that cannot be answered before they are read: the data of one is sealed, the other has none that is located.
fn unanswerable() -> [Message; 2] {
    [Message::new(SEALED, 0, 1 << 20, 0), Message::new(1, 300_000, 0, 0)]
}

/// A client whose record waits for memory of this side is not at fault, and is served when memory comes.
#[test]
fn record_waiting_for_memory_is_kept() {
    run_by_virtual_time(async {
        for m in unanswerable() {
            let payload = pool(4);
            payload.set_heap(1_000_000, 1_000_000);
            let paid = payload.pay_now(1_000_000);
            let (held, waiting) = exhausted(&payload);
            let (client, channel) = pair(pool(8), payload.clone()).await;
            let server = tokio::spawn(serve(Box::new(channel), Arc::new(Echo::default())));
            let (mut read, mut write) = client.into_split();
            let wire = fragments(&m.emit(), &[]);
            let writer = tokio::spawn(async move {
                write.write_all(&wire).await.unwrap();
                write
            });
            tokio::time::sleep(limits::MESSAGE_WAIT_MAX - Duration::from_secs(1)).await;
            assert!(!server.is_finished());
            drop((held, paid));
            waiting.await.unwrap();
            let n = (read.read_u32().await.unwrap() & 0x7fff_ffff) as usize;
            let mut body = vec![0; n];
            read.read_exact(&mut body).await.unwrap();
            assert!(body == m.reply());
            writer.await.unwrap();
        }
    });
}

/// Without memory its connection ends in time, and the log says that the client is not at fault.
#[test]
fn record_without_memory_ends_its_connection_in_time() {
    run_by_virtual_time(async {
        for m in unanswerable() {
            let payload = pool(4);
            payload.set_heap(1_000_000, 1_000_000);
            let paid = payload.pay_now(1_000_000);
            let (held, waiting) = exhausted(&payload);
            let (client, channel) = pair(pool(8), payload.clone()).await;
            let server = tokio::spawn(serve(Box::new(channel), Arc::new(Echo::default())));
            let (_read, mut write) = client.into_split();
            let wire = fragments(&m.emit(), &[]);
            let began = tokio::time::Instant::now();
            let writer = tokio::spawn(async move { drop(write.write_all(&wire).await) });
            let ChannelError::Closed(why) = server.await.unwrap() else { panic!("a violation") };
            assert!(why.contains("the gateway had no memory"), "{why}");
            let (took, most) = (began.elapsed(), limits::MESSAGE_WAIT_MAX + Duration::from_secs(1));
            assert!((limits::MESSAGE_WAIT_MAX..most).contains(&took), "{took:?}");
            writer.await.unwrap();
            drop((held, paid));
            waiting.await.unwrap();
            nobody_holds(&payload);
        }
    });
}

/// Half a record that waits for a receive buffer of this side ends as well.
#[test]
fn record_without_receive_buffer_ends_its_connection_in_time() {
    run_by_virtual_time(async {
        let recvs = pool(2);
        let held: Vec<_> = std::iter::from_fn(|| recvs.try_get(4096)).collect();
        let (mut client, channel) = pair(recvs, pool(4)).await;
        let server = tokio::spawn(serve(Box::new(channel), Arc::new(Echo::default())));
        let began = tokio::time::Instant::now();
        client.write_all(&fragments(&Message::new(1, 0, 0, 0).emit(), &[])).await.unwrap();
        let ChannelError::Closed(why) = server.await.unwrap() else { panic!("a violation") };
        assert!(why.contains("the gateway had no memory"), "{why}");
        let took = began.elapsed();
        assert!(took < limits::MESSAGE_WAIT_MAX + Duration::from_secs(1), "{took:?}");
        drop(held);
    });
}

/// A client that does not take its replies is not read from; when it does, it gets all replies.
#[test]
fn slow_reader_holds_bounded_memory() {
    run(async {
        let payload = pool(100);
        let (client, channel) = pair(pool(8), payload.clone()).await;
        let server = tokio::spawn(serve(Box::new(channel), Arc::new(Echo::default())));
        let (mut read, mut write) = client.into_split();
        let m = Message::new(1, 0, 1 << 20, 0);
        let wire = fragments(&m.emit(), &[]);
        let writer = tokio::spawn(async move {
            for _ in 0..60 {
                write.write_all(&wire).await.unwrap();
            }
            write
        });
        let held = || payload.stats()[2].in_use;
        // One reply beyond the limit stops it, and one more may be in progress.
        let most = limits::REPLY_BACKLOG_MAX / (1 << 20) + 2;
        let mut seen = 0;
        for _ in 0..20_000 {
            tokio::task::yield_now().await;
            seen = seen.max(held());
        }
        assert!(!writer.is_finished() && seen <= most && seen >= 4, "{seen}");
        let expected = m.reply();
        for _ in 0..60 {
            let n = (read.read_u32().await.unwrap() & 0x7fff_ffff) as usize;
            let mut body = vec![0; n];
            read.read_exact(&mut body).await.unwrap();
            assert!(body == expected);
            assert!(held() <= most);
        }
        drop((writer.await.unwrap(), read));
        server.await.unwrap();
        nobody_holds(&payload);
    });
}

/// Replies only when the test permits it, and holds the call until then.
#[derive(Clone)]
struct Holds {
    held: Arc<std::sync::atomic::AtomicUsize>,
    go: Arc<tokio::sync::Semaphore>,
}

impl Holds {
    fn new() -> Self {
        Self { held: Arc::default(), go: Arc::new(tokio::sync::Semaphore::new(0)) }
    }

    fn held(&self) -> usize {
        self.held.load(std::sync::atomic::Ordering::SeqCst)
    }
}

impl rdma_transport::channel::Service for Holds {
    fn call(
        &self,
        body: iobuf::Buf,
        _pulled: Vec<rdma_transport::channel::ReadChunkData>,
    ) -> rdma_transport::channel::BoxFuture<'static, Option<rdma_transport::channel::Reply>> {
        let Self { held, go } = self.clone();
        held.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Box::pin(async move {
            go.acquire().await.unwrap().forget();
            held.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            Some(rdma_transport::channel::Reply::of(body[..8].to_vec()))
        })
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = tokio::time::Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(tokio::time::Instant::now() < limit, "never: {what}");
        tokio::task::yield_now().await;
    }
}

/// Heap memory of a call counts until its request has ended, whatever its fragments. Calls beyond the limit stay with the client;
/// none is lost.
#[test]
fn heap_calls_are_limited_while_held() {
    run(async {
        const CALLS: usize = 40;
        const MOST: usize = 1_500_000;
        // A call of 60,000 bytes in one receive buffer is a slice of it.
        for (bytes, cuts) in
            [(300_000, &[128][..]), (300_000, &[]), (60_000, &[200]), (2000, &[100])]
        {
            let payload = pool(8);
            payload.set_heap(MOST, MOST);
            let (client, channel) = pair(pool(8), payload.clone()).await;
            let service = Holds::new();
            let server = tokio::spawn(serve(Box::new(channel), Arc::new(service.clone())));
            let m = Message::new(1, bytes, 0, 0);
            let (wire, bytes) = (fragments(&m.emit(), cuts), m.emit().len());
            let (mut read, mut write) = client.into_split();
            let writer = tokio::spawn(async move {
                for _ in 0..CALLS {
                    write.write_all(&wire).await.unwrap();
                }
                write
            });
            // Records of unknown length are charged the maximum until they are complete.
            let most = match cuts {
                [] => MOST / bytes,
                _ => MOST.saturating_sub(limits::RPC_RECORD_MAX) / bytes + 1,
            };
            let expected = most.min(CALLS);
            until("as many as may be", || service.held() == expected).await;
            let is_short = expected < CALLS;
            until("the rest waits", || (payload.heap_stats().waiting == 1) == is_short).await;
            let all = payload.heap_stats();
            assert_eq!(service.held(), expected, "{bytes} {cuts:?}");
            assert!(
                all.in_use <= MOST && all.in_use >= expected * bytes,
                "{bytes} {cuts:?}: {all:?}"
            );
            service.go.add_permits(CALLS);
            for _ in 0..CALLS {
                let n = (read.read_u32().await.unwrap() & 0x7fff_ffff) as usize;
                let mut body = vec![0; n];
                read.read_exact(&mut body).await.unwrap();
                assert_eq!(body, m.emit()[..8]);
            }
            drop((writer.await.unwrap(), read));
            server.await.unwrap();
            assert_eq!(payload.heap_stats().in_use, 0);
        }
    });
}

/// A call on the heap that needs a buffer for its reply gets it, even while other calls wait for the heap.
#[test]
fn heap_waiter_holds_no_payload() {
    run(async {
        let payload = Pool::new(PoolLimits { buffers_max: [1, 1, 1] });
        payload.set_heap(1000, 1000);
        let (mut client, channel) = pair(pool(8), payload.clone()).await;
        tokio::spawn(serve(Box::new(channel), Arc::new(Echo::default())));
        let held = payload.pay_now(1);
        let m = Message::new(1, 300_000, 0, 0);
        client.write_all(&fragments(&m.emit(), &[128])).await.unwrap();
        until("it waits", || payload.heap_stats().waiting == 1).await;
        let buffer = payload.try_get(1 << 20).expect("it is free");
        drop((held, buffer));
        assert!(read_record(&mut client).await == m.reply());
        nobody_holds(&payload);
    });
}

/// A request may wait for the reply to a callback on its own connection; the wait ends when the client disconnects.
#[test]
fn stream_end_cancels_callbacks_first() {
    struct AsksBack(std::sync::Mutex<Option<rdma_transport::channel::Handle>>);
    impl rdma_transport::channel::Service for AsksBack {
        fn call(
            &self,
            body: iobuf::Buf,
            _pulled: Vec<rdma_transport::channel::ReadChunkData>,
        ) -> rdma_transport::channel::BoxFuture<'static, Option<rdma_transport::channel::Reply>>
        {
            let handle = self.0.lock().unwrap().clone().unwrap();
            Box::pin(async move {
                let answer = handle.call(vec![0; 8]).await;
                assert!(matches!(answer, Err(ChannelError::Closed(_))));
                let head = body.to_vec();
                Some(rdma_transport::channel::Reply::of(head))
            })
        }
    }
    run(async {
        let (mut client, channel) = pair(pool(8), pool(8)).await;
        let service = AsksBack(std::sync::Mutex::new(Some(channel.handle())));
        let server = tokio::spawn(serve(Box::new(channel), Arc::new(service)));
        let m = Message::new(1, 0, 0, 0);
        client.write_all(&fragments(&m.emit(), &[])).await.unwrap();
        read_record(&mut client).await;
        client.shutdown().await.unwrap();
        assert_eq!(read_record(&mut client).await, m.emit());
        assert_eq!(server.await.unwrap(), ChannelError::Closed("by the peer".into()));
    });
}

/// Answers a call with a part of a file, selected in pages and bytes: some bytes in memory, the pages, and a tail.
struct Paged {
    file: std::fs::File,
    /// Pages to be sent a second time, which fails.
    again: std::sync::Mutex<Option<Pages>>,
}

impl Paged {
    const FIRST: &[u8] = b"in memory";

    fn of(bytes: &[u8]) -> Arc<Self> {
        let file = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0).unwrap();
        Arc::new(Self { file, again: Default::default() })
    }

    fn call_for(xid: u32, page: u32, count: u32) -> Vec<u8> {
        [xid, 0, page, count].iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn answer_to(xid: u32, data: &[u8]) -> Vec<u8> {
        [&xid.to_be_bytes()[..], &[0, 0, 0, 1], Self::FIRST, data, &[0; 3], b"tail"].concat()
    }
}

impl Service for Paged {
    fn call(&self, body: Buf, _: Vec<ReadChunkData>) -> BoxFuture<'static, Option<Reply>> {
        let word = |at: usize| u32::from_be_bytes(body[at..at + 4].try_into().unwrap());
        let mut pages = PagesMut::take(word(12) as usize).unwrap();
        let file = std::os::fd::AsFd::as_fd(&self.file);
        pages.fill(file, u64::from(word(8)) * 4096, word(12) as usize).unwrap();
        let pages = self.again.lock().unwrap().take().unwrap_or(pages.freeze(Vec::new()));
        if word(0) == u32::MAX {
            *self.again.lock().unwrap() = Some(pages.clone());
        }
        let data = vec![Buf::from(Self::FIRST.to_vec())];
        let payload = Payload { at: 8, data, pages: Some(pages), pad: 3, place: Place::Eligible };
        let head = [&word(0).to_be_bytes()[..], &[0, 0, 0, 1], b"tail"].concat();
        let reply = Reply { head, payloads: vec![payload], ..Reply::default() };
        Box::pin(std::future::ready(Some(reply)))
    }
}

#[test]
fn pages_stand_where_they_belong() {
    run(async {
        let all: Vec<u8> = (0..3 << 20).map(|i: u32| (i / 5 % 251) as u8).collect();
        let (mut client, channel) = pair(pool(8), pool(8)).await;
        assert!(channel.info().takes_pages.load(Ordering::Relaxed));
        let server = tokio::spawn(serve(Box::new(channel), Paged::of(&all)));
        let asked: Vec<(u32, u32)> = (0..60)
            .map(|i| (i * 37 % 500, [1, 4096, 70_001, 300_000, 1 << 20][i as usize % 5]))
            .collect();
        // All concurrently, so that replies wait for each other and for a full socket.
        for (xid, (page, count)) in (0..).zip(&asked) {
            let call = Paged::call_for(xid, *page, *count);
            client.write_all(&mark(true, call.len())).await.unwrap();
            client.write_all(&call).await.unwrap();
        }
        for (xid, (page, count)) in (0..).zip(asked) {
            let (at, count) = (page as usize * 4096, count as usize);
            let wanted = Paged::answer_to(xid, &all[at..all.len().min(at + count)]);
            assert!(read_record(&mut client).await == wanted, "{at} {count}");
        }
        drop(client);
        server.await.unwrap();
    });
}

#[test]
fn vanished_pages_end_connection() {
    run(async {
        let (mut client, channel) = pair(pool(8), pool(8)).await;
        let server = tokio::spawn(serve(Box::new(channel), Paged::of(&[7; 5000])));
        for xid in [u32::MAX, 5] {
            let call = Paged::call_for(xid, 0, 5000);
            client.write_all(&mark(true, call.len())).await.unwrap();
            client.write_all(&call).await.unwrap();
        }
        assert!(read_record(&mut client).await == Paged::answer_to(u32::MAX, &[7; 5000]));
        assert!(matches!(server.await.unwrap(), ChannelError::Closed(_)));
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest).await;
        assert!(rest.len() < 5000, "nothing stands for what is gone");
    });
}
