//! Requests on the heap are limited by `memory` as long as they are held, whatever the sender: calls whose replies are not taken,
//! tickets of unauthenticated clients, and messages queued after a waiting request. Other clients are served meanwhile.

#![allow(clippy::unwrap_used)] // A test that cannot continue fails.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use client::connect::Local;
use client::smb::{Options, Smb};
use client::target::{Transport, Version};
use config::{Admin, PrivilegedPorts, Settings};
use gateway::admin::show;
use gateway::admin::snapshot::Snapshot;
use headgate_tests::raw::words;
use headgate_tests::world::smb::{alice, with_alice};
use headgate_tests::world::{World, pattern, read_all, write_all};
use smb_proto::smb2::negotiate::Dialect;
use tokio::net::TcpSocket;

/// An eighth of it is for large messages, and three quarters of that for one address.
const MEMORY: u64 = 64 << 20;
const OF_ADDRESS: u64 = MEMORY / 8 / 4 * 3;
const MIB: u32 = 1 << 20;
/// Size of the values to compare, which match no attribute.
const BULK: usize = 1_000_000;
/// Connections that take no replies, and calls that each sends: the first are answered as far as sockets buffer the replies, and at
/// least one more of each is held, which together exceeds the limit of the address.
const DEAF: usize = 12;
const CALLS: usize = 40;
const SOON: Duration = Duration::from_secs(60);

fn settings(s: &mut Settings) {
    s.admin = Admin::At(([127, 0, 0, 1], 0).into());
    s.privileged_ports = PrivilegedPorts::Off;
    s.memory = MEMORY;
}

async fn look(world: &World) -> Snapshot {
    show::snapshot(world.running.admin.unwrap()).await.unwrap()
}

/// Waits for this state of the gateway; checks that the limit is never exceeded.
async fn until(world: &World, what: &str, like: impl Fn(&Snapshot) -> bool) -> Snapshot {
    let began = Instant::now();
    loop {
        let seen = look(world).await;
        assert!(seen.heap.bytes <= OF_ADDRESS, "{:?}", seen.heap);
        if like(&seen) {
            return seen;
        }
        assert!(began.elapsed() < SOON, "never: {what}, {:?}", seen.heap);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn limit(s: &Snapshot, name: &str) -> u64 {
    s.limits.get(name).copied().unwrap_or(0)
}

/// Connects from this address, with a small receive buffer.
async fn dial(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    socket.bind((from, 0).into()).unwrap();
    let stream = socket.connect(to).await.unwrap().into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut out = words(&[u32::try_from(bytes.len()).unwrap()]);
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

fn marked(body: Vec<u8>) -> Vec<u8> {
    [words(&[0x8000_0000 | u32::try_from(body.len()).unwrap()]), body].concat()
}

/// A COMPOUND of NFS 4.0 as root that reads this much of `/data/large`, then compares this many bytes with attributes.
fn compound(read: u32, bulk: usize) -> Vec<u8> {
    let head = words(&[7, 0, 2, 100_003, 4, 1, 1, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 24, 15]);
    let (to, from) = ([opaque(b"data"), words(&[15]), opaque(b"large")].concat(), u32::MAX);
    let reads = words(&[25, from, from, from, from, 0, 0, read, 37, 0]);
    marked([head, to, reads, opaque(&vec![7; bulk])].concat())
}

/// RPCSEC_GSS_INIT (RFC 2203 section 5.2.2) with this token.
fn init(token: &[u8]) -> Vec<u8> {
    let head = words(&[7, 0, 2, 100_003, 4, 0, 6, 20, 1, 1, 0, 1, 0, 0, 0]);
    marked([head, opaque(token)].concat())
}

/// The next reply after its transaction id.
fn answer(stream: &mut TcpStream) -> Vec<u8> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mut body = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut body).unwrap();
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn held_calls_are_limited() {
    let world = World::with(settings).await;
    let wanted = pattern("large", 4 << 20);
    let good = world.client("data", (Version::V42, Transport::Tcp)).await.unwrap();
    write_all(&good, "large", &wanted).await.unwrap();
    let to = world.running.nfs[0];
    let mut deaf = Vec::new();
    for _ in 0..DEAF {
        let mut stream = dial([127, 0, 0, 2], to).await;
        let other = stream.try_clone().unwrap();
        let sends = std::thread::spawn(move || {
            let call = compound(MIB, BULK);
            // The connection is ended at some point.
            (0..CALLS).all(|_| stream.write_all(&call).is_ok())
        });
        deaf.push((other, sends));
    }
    let full = OF_ADDRESS - BULK as u64;
    let seen = until(&world, "one waits", |s| s.heap.waiting > 0 && s.heap.bytes > full).await;
    assert!(limit(&seen, "large-messages") > 0, "{:?}", seen.limits);
    // Other clients have their parts of payload and of large messages.
    assert!(read_all(&good, "large").await.unwrap() == wanted);
    let mut other = dial([127, 0, 0, 1], to).await;
    let answered = tokio::task::spawn_blocking(move || {
        other.write_all(&compound(64, BULK)).unwrap();
        answer(&mut other)
    });
    let answered = tokio::time::timeout(SOON, answered).await.unwrap().unwrap();
    assert_eq!(answered[..12], words(&[7, 1, 0]), "an accepted call");
    for (stream, sends) in deaf {
        // The peer may have closed it.
        let _ = stream.shutdown(std::net::Shutdown::Both);
        sends.join().unwrap();
    }
    until(&world, "all of it comes back", |s| s.heap.bytes == 0 && s.heap.waiting == 0).await;
    drop(good);
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tickets_of_unknown_clients_bounded() {
    const CONNECTIONS: usize = 100;
    const EACH: usize = 8;
    let dir = tempfile::tempdir().unwrap();
    let keytab = dir.path().join("keytab");
    // The head of a keytab without keys.
    std::fs::write(&keytab, [5, 2]).unwrap();
    let world = World::with(|s| {
        settings(s);
        s.kerberos = Some(config::Kerberos::new(&keytab));
    })
    .await;
    let to = world.running.nfs[0];
    let mut all = Vec::new();
    for n in 0..CONNECTIONS {
        let mut stream = dial([127, 0, 0, 2], to).await;
        // Longer than any ticket, and the longest valid one.
        let token = vec![0x6e; if n % 2 == 0 { 60_000 } else { 48_000 }];
        all.push(std::thread::spawn(move || {
            let mut reads = stream.try_clone().unwrap();
            let sends = std::thread::spawn(move || {
                (0..EACH).for_each(|_| stream.write_all(&init(&token)).unwrap());
            });
            let garbage = words(&[4]);
            let refused = (0..EACH).filter(|_| answer(&mut reads)[20..24] == garbage).count();
            sends.join().unwrap();
            refused
        }));
    }
    until(&world, "all are answered", |_| all.iter().all(|one| one.is_finished())).await;
    for (n, one) in all.into_iter().enumerate() {
        assert_eq!(one.join().unwrap(), if n % 2 == 0 { EACH } else { 0 }, "GARBAGE_ARGS");
    }
    until(&world, "all of it comes back", |s| s.heap.bytes == 0).await;
    world.running.stop().await;
}

/// Forwards SMB messages, replacing each LOCK with the result of this function. Counts interim responses.
fn with_locks(
    to: SocketAddr,
    lock: impl Fn(Vec<u8>) -> Vec<u8> + Send + 'static,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    let pending = Arc::new(AtomicUsize::new(0));
    let seen = pending.clone();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = TcpStream::connect(to).unwrap();
        let (mut from, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || {
            while let Some(message) = next_message(&mut from) {
                let is_pending = message[8..12] == 0x103_u32.to_le_bytes();
                seen.fetch_add(is_pending.into(), Ordering::SeqCst);
                pass_on(&mut back, &message);
            }
        });
        while let Some(message) = next_message(&mut client) {
            let is_lock = message[..4] == *b"\xfeSMB" && message[12..14] == [10, 0];
            pass_on(&mut server, &if is_lock { lock(message) } else { message });
        }
    });
    (at, pending)
}

fn next_message(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut prefix = [0; 4];
    from.read_exact(&mut prefix).ok()?;
    let mut message = vec![0; u32::from_be_bytes(prefix) as usize];
    from.read_exact(&mut message).ok()?;
    Some(message)
}

fn pass_on(to: &mut TcpStream, message: &[u8]) {
    let len = u32::try_from(message.len()).unwrap();
    // The other end may be closed.
    let _ = to.write_all(&[&len.to_be_bytes()[..], message].concat());
}

async fn connect(at: SocketAddr) -> Smb {
    let options = Options { dialect: Dialect::V210, ..Options::default() };
    let (share, local) = (("127.0.0.1", "data"), Local::default());
    Smb::connect(at, false, share, &alice(), options, &local).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_requests_queue_after_waiting_lock() {
    let (world, _dir) = with_alice(settings).await;
    let to = world.running.smb[0];
    let holder = connect(to).await;
    let held = holder.create("f").await.unwrap();
    holder.lock(&held, (0, 1), true, false).await.unwrap();
    let (at, _) = with_locks(to, |mut lock| {
        lock.resize(lock.len() + (4 << 20), 7);
        lock
    });
    let greedy = connect(at).await;
    let file = greedy.find("f").await.unwrap();
    for _ in 0..6 {
        let refused = tokio::time::timeout(SOON, greedy.lock(&file, (0, 1), true, true)).await;
        assert!(refused.expect("it waits with all that stands behind it").is_err());
    }
    until(&world, "nothing is kept", |s| s.heap.bytes == 0).await;
    greedy.close(file).await.unwrap();
    holder.close(held).await.unwrap();
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_requests_queue_before_waiting_lock() {
    const LOCKS: usize = 6;
    let (world, _dir) = with_alice(settings).await;
    let to = world.running.smb[0];
    let holder = connect(to).await;
    let held = holder.create("f").await.unwrap();
    holder.lock(&held, (0, 1), true, false).await.unwrap();
    // A chain of a CANCEL, which uses no message id, and the LOCK.
    let (at, pending) = with_locks(to, |lock| {
        let mut chain = lock[..64].to_vec();
        chain[12..14].copy_from_slice(&[12, 0]);
        chain.resize(4 << 20, 7);
        let next = u32::try_from(chain.len()).unwrap();
        chain[20..24].copy_from_slice(&next.to_le_bytes());
        [chain, lock].concat()
    });
    let greedy = Arc::new(connect(at).await);
    let file = Arc::new(greedy.find("f").await.unwrap());
    let mut waits = tokio::task::JoinSet::new();
    for _ in 0..LOCKS {
        let (greedy, file) = (greedy.clone(), file.clone());
        waits.spawn(async move { greedy.lock(&file, (0, 1), false, true).await });
    }
    let all_wait = |s: &Snapshot| pending.load(Ordering::SeqCst) == LOCKS && s.heap.bytes == 0;
    until(&world, "all wait, and nothing is kept", all_wait).await;
    holder.close(held).await.unwrap();
    while let Some(done) = waits.join_next().await {
        done.unwrap().unwrap();
    }
    world.running.stop().await;
}
