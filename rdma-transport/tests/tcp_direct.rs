//! SMB's Direct TCP transport: messages arrive complete whatever their size and split, bulk data is read into place, pushes are
//! sent, rules are enforced.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

mod common;

use common::{bytes, nobody_holds, pool, run};
use iobuf::{Buf, Pool, PoolLimits};
use rdma_transport::channel::{
    BoxFuture, Channel, ChannelError, Handle, Info, Payload, PayloadLocator, Place, ReadChunkData,
    RemoteSeg, Reply, Service, Transport, UntilLeft,
};
use rdma_transport::limits;
use rdma_transport::serve::serve;
use rdma_transport::tcp::{Framing, TcpChannel};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::JoinHandle;

const HEAD: usize = 8;

/// The test's message format: two words, the second of which is the size of the bulk data; then arbitrary data.
struct Locator;

impl PayloadLocator for Locator {
    fn bulk(&self, head: &[u8], total: usize) -> Option<(usize, usize)> {
        let len = u32::from_le_bytes(*head.get(4..)?.first_chunk()?) as usize;
        (len > 0 && HEAD + len <= total).then_some((HEAD, len))
    }
}

/// Returns each message unchanged; counts bulk data outside the body.
#[derive(Default)]
struct Echo {
    read_chunks: Arc<AtomicUsize>,
    pieces: Arc<AtomicUsize>,
}

impl Service for Echo {
    fn call(
        &self,
        body: Buf,
        read_chunks: Vec<ReadChunkData>,
    ) -> BoxFuture<'static, Option<Reply>> {
        self.read_chunks.fetch_add(read_chunks.len(), Ordering::SeqCst);
        self.pieces.fetch_max(read_chunks.first().map_or(0, |p| p.data.len()), Ordering::SeqCst);
        Box::pin(async move {
            let payload = |p: ReadChunkData| Payload {
                at: p.at,
                data: p.data,
                pages: None,
                pad: 0,
                place: Place::Inline,
            };
            let payloads = read_chunks.into_iter().map(payload).collect();
            Some(Reply {
                head: body.to_vec(),
                payloads,
                invalidate: Some(3),
                until_left: None,
                starts_tls: false,
            })
        })
    }
}

struct Served {
    client: TcpStream,
    end: JoinHandle<ChannelError>,
    handle: Handle,
    read_chunks: Arc<AtomicUsize>,
    pieces: Arc<AtomicUsize>,
    pools: [Pool; 2],
}

async fn served(payload: Pool) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, peer) = listener.accept().await.unwrap();
    let info = Info::new(peer, listener.local_addr().unwrap(), Transport::Tcp, payload.clone());
    let recvs = pool(8);
    let locate = Arc::new(Locator);
    let channel =
        TcpChannel::new(server, Arc::new(info), recvs.clone(), locate, Framing::Direct).unwrap();
    let echo = Echo::default();
    let (read_chunks, pieces) = (echo.read_chunks.clone(), echo.pieces.clone());
    let handle = channel.handle();
    let end = tokio::spawn(serve(Box::new(channel), Arc::new(echo)));
    Served { client, end, handle, read_chunks, pieces, pools: [recvs, payload] }
}

fn message(bulk: usize, tail: usize, seed: u8) -> Vec<u8> {
    let mut out = vec![seed, 0, 0, 0];
    out.extend((bulk as u32).to_le_bytes());
    out.extend(bytes(bulk, seed));
    out.extend(bytes(tail, !seed));
    out
}

fn framed(message: &[u8]) -> Vec<u8> {
    let mut out = (message.len() as u32).to_be_bytes().to_vec();
    out.extend_from_slice(message);
    out
}

async fn read_message(from: &mut TcpStream) -> Vec<u8> {
    let len = from.read_u32().await.unwrap();
    assert!(len >> 24 == 0, "the first byte is zero");
    let mut body = vec![0; len as usize];
    from.read_exact(&mut body).await.unwrap();
    body
}

#[test]
fn messages_of_every_size_come_back() {
    run(async {
        let Served { mut client, end, read_chunks, pieces, pools, .. } = served(pool(32)).await;
        let mib = 1 << 20;
        let sizes = [0, 1, 4000, 4096, 70_000, mib, mib + 1, 3 * mib + 5, 8 * mib];
        for (i, bulk) in sizes.into_iter().enumerate() {
            for tail in [0, 3, 5000] {
                let wanted = message(bulk, tail, i as u8);
                let (mut read, mut write) = client.split();
                let wire = framed(&wanted);
                let send = async { write.write_all(&wire).await.unwrap() };
                let receive = async {
                    let len = read.read_u32().await.unwrap() as usize;
                    let mut body = vec![0; len];
                    read.read_exact(&mut body).await.unwrap();
                    body
                };
                let ((), found) = tokio::join!(send, receive);
                assert!(found == wanted, "{bulk} and {tail}");
            }
        }
        assert!(read_chunks.load(Ordering::SeqCst) >= 8, "bulk data stood beside the body");
        assert!(pieces.load(Ordering::SeqCst) >= 8, "8 MiB need several buffers");
        drop(client);
        end.await.unwrap();
        pools.iter().for_each(nobody_holds);
    });
}

#[test]
fn keep_alives_are_passed_over() {
    run(async {
        let Served { mut client, .. } = served(pool(8)).await;
        let wanted = message(100, 0, 1);
        let mut wire = vec![0x85, 0, 0, 0, 0x85, 0, 0, 0];
        wire.extend(framed(&wanted));
        wire.extend([0x85, 0, 0, 0]);
        wire.extend(framed(&wanted));
        // Byte by byte, so that every split is covered.
        for byte in wire {
            client.write_all(&[byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        assert_eq!(read_message(&mut client).await, wanted);
        assert_eq!(read_message(&mut client).await, wanted);
    });
}

#[test]
fn every_violation_ends_connection() {
    let long = (limits::SMB_MESSAGE_MAX as u32 + 1).to_be_bytes();
    for (wire, rule) in [
        (vec![0x81, 0, 0, 68], "smb.direct-tcp.type"),
        (vec![0x7f, 0, 0, 68], "smb.direct-tcp.type"),
        (vec![0, 0, 0, 3], "smb.direct-tcp.length"),
        (vec![0, 0, 0, 0], "smb.direct-tcp.length"),
        (vec![0x85, 0, 0, 1], "smb.direct-tcp.length"),
        (long.to_vec(), "smb.direct-tcp.too-long"),
    ] {
        run(async {
            let Served { mut client, end, pools, .. } = served(pool(8)).await;
            client.write_all(&framed(&message(10, 0, 1))).await.unwrap();
            read_message(&mut client).await;
            client.write_all(&wire).await.unwrap();
            match end.await.unwrap() {
                ChannelError::Violation(name, _) => assert_eq!(name, rule),
                other => panic!("{other}"),
            }
            assert_eq!(client.read(&mut [0; 8]).await.unwrap_or(0), 0);
            pools.iter().for_each(nobody_holds);
        });
    }
}

#[test]
fn pushes_work_and_pulls_fail() {
    run(async {
        let Served { mut client, handle, .. } = served(pool(8)).await;
        for i in 0..100_u8 {
            handle.push(Reply::of(vec![i; 64])).await.unwrap();
        }
        for i in 0..100_u8 {
            assert_eq!(read_message(&mut client).await, [i; 64], "in order");
        }
        let seg = RemoteSeg { handle: 1, len: 10, offset: 0 };
        assert!(handle.pull(vec![seg]).await.is_err());
        assert!(handle.call(vec![0; 64]).await.is_err());
        // The connection continues.
        client.write_all(&framed(&message(10, 0, 1))).await.unwrap();
        assert_eq!(read_message(&mut client).await, message(10, 0, 1));
    });
}

/// A push to a peer that takes no data waits, and continues when the peer does.
#[test]
fn stalled_peer_delays_pushes() {
    run(async {
        let Served { mut client, handle, .. } = served(pool(8)).await;
        let pushed = Arc::new(AtomicUsize::new(0));
        let count = pushed.clone();
        let pusher = tokio::spawn(async move {
            for i in 0..400_u32 {
                handle.push(Reply::of(vec![i as u8; 100_000])).await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        let mut before = usize::MAX;
        while before != pushed.load(Ordering::SeqCst) {
            before = pushed.load(Ordering::SeqCst);
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert!(before < 400, "{before} were taken though nobody read");
        for i in 0..400_u32 {
            assert!(read_message(&mut client).await == vec![i as u8; 100_000]);
        }
        pusher.await.unwrap();
    });
}

/// Two messages that each need all buffers get them one after the other.
#[test]
fn large_messages_alternate_in_small_pool() {
    run(async {
        let payload = Pool::new(PoolLimits { buffers_max: [8, 8, 8] });
        let a = served(payload.clone()).await;
        let b = served(payload.clone()).await;
        let wanted = message(8 << 20, 0, 7);
        let talk = |mut client: TcpStream| {
            let wanted = wanted.clone();
            async move {
                for _ in 0..3 {
                    let (mut read, mut write) = client.split();
                    let wire = framed(&wanted);
                    let send = async { write.write_all(&wire).await.unwrap() };
                    let receive = async {
                        let len = read.read_u32().await.unwrap() as usize;
                        let mut body = vec![0; len];
                        read.read_exact(&mut body).await.unwrap();
                        body
                    };
                    let ((), found) = tokio::join!(send, receive);
                    assert!(found == wanted);
                }
            }
        };
        tokio::join!(talk(a.client), talk(b.client));
        drop((a.end.await, b.end.await));
        nobody_holds(&payload);
    });
}

/// Waiting for more memory than the pool has would never end.
#[test]
fn message_above_pool_ends_connection() {
    run(async {
        let Served { mut client, end, .. } = served(pool(2)).await;
        let wire = framed(&message(8 << 20, 0, 1));
        // The connection ends before all of it was taken.
        let _ = client.write_all(&wire).await;
        assert!(matches!(end.await.unwrap(), ChannelError::Closed(_)));
    });
}

/// More than the buffers of both sockets: the last byte is sent only after the peer has read.
#[test]
fn until_left_ends_with_last_byte() {
    run(async {
        let Served { mut client, handle, .. } = served(pool(8)).await;
        let (kept, mut left) = oneshot::channel::<()>();
        let until_left = Some(UntilLeft::new(kept));
        let message = Reply { until_left, ..Reply::of(vec![7; 0xff_f000]) };
        handle.push(message).await.unwrap();
        client.readable().await.unwrap();
        assert_eq!(left.try_recv(), Err(TryRecvError::Empty), "the peer has read nothing");
        assert_eq!(read_message(&mut client).await.len(), 0xff_f000);
        assert!(left.await.is_err(), "dropped");
    });
}

#[test]
fn until_left_ends_with_connection() {
    run(async {
        let Served { mut client, handle, end, .. } = served(pool(8)).await;
        let (kept, left) = oneshot::channel::<()>();
        let until_left = Some(UntilLeft::new(kept));
        let message = Reply { until_left, ..Reply::of(vec![7; 0xff_f000]) };
        handle.push(message).await.unwrap();
        client.shutdown().await.unwrap();
        drop(client);
        end.await.unwrap();
        assert!(left.await.is_err(), "dropped");
    });
}
