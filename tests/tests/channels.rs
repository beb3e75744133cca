//! One session over several connections, TCP and SMB Direct over iWARP: losing a connection must lose no data.

#![allow(clippy::unwrap_used)]
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::connect::Local;
use client::smb::{Caching, Channels, OpenHow, Options, Smb};
use client::{Error, Result};
use config::Settings;
use futures_util::future::join_all;
use headgate_tests::world::smb::{alice, with_alice};
use headgate_tests::world::{World, buf, pattern};
use rdma_transport::iwarp::{Iwarp, IwarpConfig};
use smb_proto::NtStatus;
use smb_proto::smb2::Command;
use smb_proto::smb2::negotiate::Dialect;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

/// A relay to the server that breaks after this many bytes towards it: data in transit is lost.
struct Road {
    at: SocketAddr,
    left: Arc<AtomicU64>,
}

impl Road {
    async fn to(server: SocketAddr) -> Self {
        Self::from("127.0.0.1", server).await
    }

    /// A relay that reaches the server from this address.
    async fn from(address: &str, server: SocketAddr) -> Self {
        let from = SocketAddr::new(address.parse().unwrap(), 0);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let left = Arc::new(AtomicU64::new(u64::MAX));
        let bytes = left.clone();
        tokio::spawn(async move {
            let (client, _) = listener.accept().await.unwrap();
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(from).unwrap();
            let server = socket.connect(server).await.unwrap();
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            let there = async {
                let mut chunk = vec![0; 16 << 10];
                while let Ok(n @ 1..) = from_client.read(&mut chunk).await {
                    let taken = bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                        if left == u64::MAX { Some(left) } else { left.checked_sub(n as u64) }
                    });
                    if taken.is_err() || to_server.write_all(&chunk[..n]).await.is_err() {
                        break;
                    }
                }
            };
            let back = tokio::io::copy(&mut from_server, &mut to_client);
            // This closes both ends of both connections.
            tokio::select! { () = there => {}, _ = back => {} }
        });
        Self { at, left }
    }

    fn breaks_after(&self, bytes: u64) {
        self.left.store(bytes, Ordering::SeqCst);
    }
}

fn local() -> Local {
    Local { rdma: Some(Arc::new(Iwarp::new(IwarpConfig::default()))), ..Local::default() }
}

async fn first(at: SocketAddr, rdma: bool, options: Options) -> Smb {
    let options = Options { multichannel: true, ..options };
    Smb::connect(at, rdma, ("127.0.0.1", "data"), &alice(), options, &local()).await.unwrap()
}

async fn further(smb: &Smb, at: SocketAddr, rdma: bool) -> Result<Smb> {
    smb.bind(at, rdma, "127.0.0.1", &alice(), &local()).await
}

/// Bytes that a connection transferred for its client.
fn moved(smb: &Smb) -> u64 {
    let t = &smb.info().traffic;
    let sum = |counters: &[&AtomicU64]| counters.iter().map(|c| c.load(Ordering::Relaxed)).sum();
    sum(&[&t.inline_in, &t.inline_out, &t.rdma_read, &t.rdma_write])
}

const PIECE: usize = 200_000;
const PIECE_LEN: u32 = 200_000;
const PIECES: usize = 120;

/// Writes a file with many concurrent requests and reads it back, over any of the connections.
async fn there_and_back(world: &World, channels: &Channels, smb: &Smb, name: &str) {
    let data = pattern(name, PIECE * PIECES);
    let file = smb.create(name).await.unwrap();
    let pieces = data.chunks(PIECE).enumerate().map(|(n, piece)| async move {
        let offset = (n * PIECE) as u64;
        let piece = [buf(piece)];
        assert_eq!(channels.write(&file, offset, &piece).await, Ok(PIECE_LEN), "{name} {n}");
    });
    join_all(pieces).await;
    channels.flush(&file).await.unwrap();
    assert!(fs::read(world.folder().join(name)).unwrap() == data, "{name} in the folder");
    let pieces = data.chunks(PIECE).enumerate().map(|(n, piece)| async move {
        let read = channels.read(&file, (n * PIECE) as u64, PIECE_LEN).await.unwrap();
        let read: Vec<u8> = read.iter().flat_map(|b| b.to_vec()).collect();
        assert!(read == piece, "{name} {n} read back");
    });
    join_all(pieces).await;
    channels.by_any(async |smb| smb.close(file).await).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rdma_and_tcp_share_session() {
    let (world, _dir) = with_alice(|_| ()).await;
    let (tcp, direct) = (world.running.smb[0], world.running.smb_direct[0]);
    for dialect in [Dialect::V300, Dialect::V302, Dialect::V311] {
        for (sign, seal) in [(false, false), (true, false), (false, true)] {
            let options = Options { dialect, sign, seal, ..Options::default() };
            let a = first(tcp, false, options).await;
            let b = further(&a, direct, true).await.unwrap();
            let before = [moved(&a), moved(&b)];
            let channels = Channels::new(a.clone());
            channels.add(b.clone());
            there_and_back(&world, &channels, &a, "together").await;
            let half = (PIECE * PIECES) as u64 / 2;
            for (smb, before) in [&a, &b].into_iter().zip(before) {
                assert!(
                    moved(smb) - before > half,
                    "each moves its part: {dialect:?} {sign} {seal}"
                );
            }
            assert_eq!((channels.left(), channels.lost()), (2, 0));
            a.leave().await.unwrap();
        }
    }
    world.running.stop().await;
}

/// Each kind of connection breaks while the other one works, in the middle of writes and of reads.
#[tokio::test(flavor = "multi_thread")]
async fn lost_connection_loses_no_data() {
    let (world, _dir) = with_alice(|_| ()).await;
    let (tcp, direct) = (world.running.smb[0], world.running.smb_direct[0]);
    for (round, breaks_rdma) in [true, false, true, false].into_iter().enumerate() {
        let breaks = Road::to(if breaks_rdma { direct } else { tcp }).await;
        let stays = if breaks_rdma { tcp } else { direct };
        let a = first(breaks.at, breaks_rdma, Options::default()).await;
        let b = further(&a, stays, !breaks_rdma).await.unwrap();
        let channels = Channels::new(a);
        channels.add(b.clone());
        // Data read by RDMA is sent the other way: its requests are small.
        let (bytes, name) = match round {
            0 | 1 => (3_000_000, format!("write-{round}")),
            _ => (u64::MAX, format!("read-{round}")),
        };
        breaks.breaks_after(bytes);
        if bytes == u64::MAX {
            there_and_back(&world, &channels, &b, &name).await;
            assert_eq!(channels.lost(), 0);
            breaks.breaks_after(5_000);
        }
        there_and_back(&world, &channels, &b, &name).await;
        assert_eq!((channels.left(), channels.lost()), (1, 1), "{name}");
        b.leave().await.unwrap();
    }
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_ends_with_last_connection() {
    let (world, _dir) = with_alice(|_| ()).await;
    let roads = [Road::to(world.running.smb[0]).await, Road::to(world.running.smb_direct[0]).await];
    let a = first(roads[0].at, false, Options::default()).await;
    let b = further(&a, roads[1].at, true).await.unwrap();
    let file = a.create("kept").await.unwrap();
    let channels = Channels::new(a.clone());
    channels.add(b.clone());
    roads[0].breaks_after(0);
    for n in 0..4 {
        assert_eq!(channels.write(&file, n, &[buf(b"x")]).await, Ok(1));
    }
    assert_eq!((channels.left(), channels.lost()), (1, 1));
    assert!(matches!(
        further(&a, roads[0].at, false).await,
        Err(Error::Connect(_) | Error::Down(_))
    ));
    // A new connection replaces the lost one.
    channels.add(further(&b, world.running.smb[0], false).await.unwrap());
    roads[1].breaks_after(0);
    for n in 0..4 {
        assert_eq!(channels.write(&file, n, &[buf(b"y")]).await, Ok(1));
    }
    assert_eq!((channels.left(), channels.lost()), (1, 2));
    assert_eq!(fs::read(world.folder().join("kept")).unwrap(), b"yyyy");
    world.running.stop().await;
    assert!(matches!(channels.write(&file, 0, &[buf(b"z")]).await, Err(Error::Down(_))));
}

/// A lease granted over the lost connection is recalled over the remaining one.
#[tokio::test(flavor = "multi_thread")]
async fn break_uses_surviving_connection() {
    let (world, _dir) = with_alice(|_| ()).await;
    fs::write(world.folder().join("leased"), b"old").unwrap();
    let road = Road::to(world.running.smb[0]).await;
    let a = first(road.at, false, Options::default()).await;
    let b = further(&a, world.running.smb_direct[0], true).await.unwrap();
    let mut breaks = b.breaks().unwrap();
    let how = OpenHow::READ.cached(Caching::Lease([7; 16], 1));
    let (file, granted) = a.open_cached("leased", &how).await.unwrap();
    assert_eq!(granted, 1, "to cache what is read");
    road.breaks_after(0);
    assert!(matches!(a.size(&file).await, Err(Error::Down(_))));
    let other = first(world.running.smb[0], false, Options::default()).await;
    let writer = other.create("leased").await.unwrap();
    assert!(breaks.recv().await.is_some());
    other.close(writer).await.unwrap();
    assert_eq!(b.size(&file).await, Ok(0), "the open is still there");
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_users_cannot_bind_session() {
    let (world, _dir) = with_alice(|_| ()).await;
    let a = first(world.running.smb[0], false, Options::default()).await;
    let wrong = client::smb::User { password: "wrong".into(), ..alice() };
    let bound = a.bind(world.running.smb_direct[0], true, "127.0.0.1", &wrong, &local()).await;
    assert!(matches!(bound.map(|_| ()), Err(Error::Smb(_, NtStatus::LOGON_FAILURE))));
    assert_eq!(a.list("").await, Ok(vec![]), "it goes on");
    // Dialects before 3.0 have a single connection.
    let options = Options { dialect: Dialect::V210, ..Options::default() };
    let old = first(world.running.smb[0], false, options).await;
    let bound = further(&old, world.running.smb[0], false).await;
    assert!(matches!(bound.map(|_| ()), Err(Error::Smb(_, NtStatus::REQUEST_NOT_ACCEPTED))));
    world.running.stop().await;
}

const ELSEWHERE: &str = "127.0.0.2";

/// `clients` of a share applies to each connection of a session: MS-SMB2 section 3.3.5.5.3 lets any of them use its trees.
#[tokio::test(flavor = "multi_thread")]
async fn connection_rights_follow_its_address() {
    // The address may only read, or is refused.
    for rule in [Some(ELSEWHERE), None] {
        let mut kept = Settings::default();
        let (mut world, _dir) = with_alice(|settings| kept = settings.clone()).await;
        let at = world.running.smb[0];
        let limited = |clients: &[&str]| {
            let mut settings = kept.clone();
            let mut parsed: Vec<config::Client> =
                clients.iter().map(|range| range.parse().unwrap()).collect();
            parsed.iter_mut().skip(1).for_each(|elsewhere| elsewhere.read_only = true);
            settings.shares[0].clients = Some(parsed);
            settings
        };
        let mut ranges = vec!["127.0.0.1"];
        ranges.extend(rule);
        world.running.reload(limited(&ranges)).await.unwrap();
        let a = first(at, false, Options::default()).await;
        a.close(a.create("mine").await.unwrap()).await.unwrap();
        let road = Road::from(ELSEWHERE, at).await;
        let refused = further(&a, road.at, false).await.map(|_| ());
        let denied = Err(Error::Smb(Command::SessionSetup, NtStatus::ACCESS_DENIED));
        assert_eq!(refused, denied, "{rule:?}");
        a.close(a.create("still mine").await.unwrap()).await.unwrap();

        // With equal rights both connections belong to one session, until the configuration distinguishes them.
        world.running.reload(limited(&["127.0.0.0/8"])).await.unwrap();
        let road = Road::from(ELSEWHERE, at).await;
        let b = further(&a, road.at, false).await.unwrap();
        b.close(b.create("by the other").await.unwrap()).await.unwrap();
        let changes = world.running.reload(limited(&ranges)).await.unwrap();
        assert_eq!(changes.trees_ended, 1, "{rule:?}");
        for smb in [&a, &b] {
            assert!(smb.create("no more").await.is_err());
        }
    }
}
