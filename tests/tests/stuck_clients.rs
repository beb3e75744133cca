//! Clients that are stuck at every possible point, while others work: they delay no other client, those that never introduce
//! themselves are disconnected, and the limits reached are reported by name.

#![allow(clippy::unwrap_used)] // A test that cannot continue fails.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::connect::Local;
use client::smb::{Options, Smb};
use client::target::{Transport, Version};
use config::{Admin, Limits, PrivilegedPorts};
use gateway::admin::show;
use gateway::admin::snapshot::Snapshot;
use headgate_tests::raw::{self, MPA_REQUEST, RawIwarp, words};
use headgate_tests::world::smb::{alice, with_alice};
use headgate_tests::world::{World, pattern, read_all, write_all};

/// Number of clients of each kind.
const STUCK: usize = 12;
const MIB: u32 = 1 << 20;
/// Clients that take no replies: each occupies about one, together more than one address may.
const DEAF: usize = 24;
/// Replies of 1 MiB that a client requests and does not take.
const NOT_TAKEN: u32 = 24;
/// The file that is read.
const LARGE: usize = 8 << 20;

async fn world() -> (World, tempfile::TempDir) {
    with_alice(|s| {
        s.admin = Admin::At(([127, 0, 0, 1], 0).into());
        s.connections = 800;
        // The clients here are bare sockets on any port.
        s.privileged_ports = PrivilegedPorts::Off;
        // The server has 24 buffers of 1 MiB, fewer than the stuck clients request. Half of the memory is for payload.
        s.memory = 97 << 20;
        // Long enough for all valid clients to introduce themselves, even on a busy machine; stalled clients are disconnected after
        // 5 s.
        s.limits = Limits { introduction: Duration::from_secs(4), ..Limits::default() };
    })
    .await
}

async fn look(world: &World) -> Snapshot {
    show::snapshot(world.running.admin.unwrap()).await.unwrap()
}

fn limit(s: &Snapshot, name: &str) -> u64 {
    s.limits.get(name).copied().unwrap_or(0)
}

/// An ONC RPC call as root with its record mark.
fn call(program: u32, procedure: u32, args: &[u32]) -> Vec<u8> {
    // AUTH_SYS: stamp, no name, uid, gid, no groups.
    let cred = [1, 20, 0, 0, 0, 0, 0];
    let head = [7, 0, 2, program, 3, procedure];
    let body = words(&[&head[..], &cred, &[0, 0], args].concat());
    let mark = 0x8000_0000 | u32::try_from(body.len()).unwrap();
    [words(&[mark]), body].concat()
}

/// The words of the reply after its RPC head.
fn answer(stream: &mut TcpStream) -> Vec<u32> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mut body = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut body).unwrap();
    let words = body.chunks_exact(4).map(|w| u32::from_be_bytes([w[0], w[1], w[2], w[3]]));
    words.skip(6).collect()
}

/// A string in XDR form.
fn text(s: &str) -> Vec<u32> {
    let mut bytes = s.as_bytes().to_vec();
    bytes.resize(s.len().next_multiple_of(4), 0);
    let words = bytes.chunks_exact(4).map(|w| u32::from_be_bytes([w[0], w[1], w[2], w[3]]));
    [vec![u32::try_from(s.len()).unwrap()], words.collect()].concat()
}

/// The handle of `/data/large` over NFS version 3, as READ needs it: length and bytes.
fn handle(to: SocketAddr) -> Vec<u32> {
    let first = |list: &[u32]| list[..1 + (list[0] as usize).div_ceil(4)].to_vec();
    let mut stream = RawIwarp::dial(to).unwrap();
    stream.write_all(&call(100_005, 1, &text("/data"))).unwrap();
    let root = answer(&mut stream);
    assert_eq!(root[0], 0, "MNT");
    stream.write_all(&call(100_003, 3, &[first(&root[1..]), text("large")].concat())).unwrap();
    let found = answer(&mut stream);
    assert_eq!(found[0], 0, "LOOKUP");
    first(&found[1..])
}

/// Requests much data and reads no response.
fn takes_nothing(to: SocketAddr, handle: &[u32]) -> TcpStream {
    asks_for_much(RawIwarp::dial(to).unwrap(), handle)
}

fn asks_for_much(mut stream: TcpStream, handle: &[u32]) -> TcpStream {
    socket_takes_little(&stream);
    for _ in 0..NOT_TAKEN {
        let read = call(100_003, 6, &[handle, &[0, 0, MIB]].concat());
        stream.write_all(&read).unwrap();
    }
    stream
}

/// Shrinks the socket's buffer, because the kernel would otherwise take the data for the client.
fn socket_takes_little(stream: &TcpStream) {
    rustix::net::sockopt::set_socket_recv_buffer_size(stream, 16 << 10).unwrap();
}

/// Mounts, and then stops inside a message.
fn half_a_record(to: SocketAddr) -> TcpStream {
    let mut stream = RawIwarp::dial(to).unwrap();
    stream.write_all(&call(100_005, 1, &text("/data"))).unwrap();
    assert_eq!(answer(&mut stream)[0], 0, "MNT");
    let null = call(100_003, 0, &[]);
    stream.write_all(&null[..20]).unwrap();
    stream
}

/// Clients that never introduce themselves, by the limit that disconnects them.
fn strangers(
    nfs: SocketAddr,
    rdma: SocketAddr,
    smb: SocketAddr,
    direct: SocketAddr,
) -> Vec<TcpStream> {
    let begun = |to: SocketAddr, bytes: &[u8]| {
        let mut stream = RawIwarp::dial(to).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let mut all = Vec::new();
    for _ in 0..STUCK {
        all.push(begun(nfs, &[]));
        all.push(begun(nfs, &call(100_003, 0, &[])[..20]));
        all.push(begun(rdma, &MPA_REQUEST[..7]));
        all.push(begun(direct, &[]));
        // Shakes hands but never makes a request, or never negotiates.
        all.push(begun(rdma, &MPA_REQUEST));
        all.push(begun(direct, &MPA_REQUEST));
        all.push(begun(smb, &[]));
        all.push(begun(smb, &[0, 0, 1, 0, 0xfe, b'S']));
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn stuck_clients_do_not_delay_others() {
    let (world, _dir) = world().await;
    let wanted = pattern("large", LARGE);
    let tcp = world.client("data", (Version::V42, Transport::Tcp)).await.unwrap();
    write_all(&tcp, "large", &wanted).await.unwrap();
    let rdma = world.client("data", (Version::V3, Transport::Rdma)).await.unwrap();
    // The client has mounted over another connection and makes its first call on this one.
    rdma.find("large").await.unwrap();
    let to = &world.running;
    let local = Local::default();
    let share = ("127.0.0.1", "data");
    let smb =
        Smb::connect(to.smb[0], false, share, &alice(), Options::default(), &local).await.unwrap();
    let good = [tcp, rdma, client::Volume::Smb(smb)];

    let (nfs, to_rdma, to_smb, direct) = (to.nfs[0], to.nfs_rdma[0], to.smb[0], to.smb_direct[0]);
    static DONE: AtomicBool = AtomicBool::new(false);
    let stuck = tokio::task::spawn_blocking(move || {
        let file = handle(nfs);
        let deaf: Vec<TcpStream> = (0..DEAF).map(|_| takes_nothing(nfs, &file)).collect();
        let half: Vec<TcpStream> = (0..STUCK).map(|_| half_a_record(nfs)).collect();
        (deaf, half, strangers(nfs, to_rdma, to_smb, direct))
    });
    let (deaf, half, strangers) = stuck.await.unwrap();
    // Sends a byte now and then, of a record that never ends.
    let trickle = std::thread::spawn(move || {
        let mut stream = half_a_record(nfs);
        stream.write_all(&call(100_003, 0, &[])[20..]).unwrap();
        stream.write_all(&words(&[0x8001_0000])).unwrap();
        while !DONE.load(Ordering::Relaxed) {
            let _ = stream.write_all(&[0]);
            std::thread::sleep(Duration::from_millis(100));
        }
    });

    // The working clients need memory that the stalled ones occupy, and get it.
    for round in 0..3 {
        for volume in &good {
            assert!(read_all(volume, "large").await.unwrap() == wanted, "round {round}");
        }
    }
    let s = look(&world).await;
    assert!(limit(&s, "no-progress-while-others-wait") > 0, "{:?}", s.limits);
    assert_eq!(limit(&s, "no-progress"), 0, "nobody had to wait for that: {:?}", s.limits);

    // Clients that have not introduced themselves are disconnected by the limit of their stage.
    let strangers = tokio::task::spawn_blocking(move || {
        strangers.into_iter().for_each(|mut s| raw::wait_for_end(&mut s).unwrap());
    });
    strangers.await.unwrap();
    let s = look(&world).await;
    let each = STUCK as u64;
    assert_eq!(limit(&s, "first-request"), 3 * each, "{:?}", s.limits);
    assert_eq!(limit(&s, "logon"), 3 * each, "{:?}", s.limits);
    assert_eq!(s.violations.get("iwarp_mpa_timeout"), Some(&(2 * each)), "{:?}", s.violations);
    println!("{:?}\n{:?}", s.limits, s.violations);

    // Introduced clients stay connected for the time limit of a message.
    DONE.store(true, Ordering::Relaxed);
    trickle.join().unwrap();
    for mut stream in half {
        let rest = call(100_003, 0, &[])[20..].to_vec();
        stream.write_all(&rest).unwrap();
        assert!(answer(&mut stream).is_empty());
    }
    drop((deaf, good));
    world.running.stop().await;
}

/// Connects from an address other than the rest.
async fn dial_as_another(to: SocketAddr) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 2], 0).into()).unwrap();
    let stream = socket.connect(to).await.unwrap().into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn address_cannot_exhaust_payload_memory() {
    let (world, _dir) = world().await;
    let wanted = pattern("large", LARGE);
    let good = world.client("data", (Version::V42, Transport::Tcp)).await.unwrap();
    write_all(&good, "large", &wanted).await.unwrap();
    let to = world.running.nfs[0];
    let file = tokio::task::spawn_blocking(move || handle(to)).await.unwrap();
    let mut greedy = Vec::new();
    for _ in 0..DEAF {
        greedy.push(dial_as_another(to).await);
    }
    // Together they request twenty-four times the memory, and take enough data not to count as stalled.
    static DONE: AtomicBool = AtomicBool::new(false);
    let greedy = std::thread::spawn(move || {
        let mut greedy: Vec<TcpStream> =
            greedy.into_iter().map(|s| asks_for_much(s, &file)).collect();
        while !DONE.load(Ordering::Relaxed) {
            for stream in &mut greedy {
                stream.read_exact(&mut [0; 1024]).unwrap();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    // The stuck clients have reached their share of memory, and wait.
    let told = async {
        while limit(&look(&world).await, "memory-of-address") == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), told).await.unwrap();
    for _ in 0..3 {
        assert!(read_all(&good, "large").await.unwrap() == wanted);
    }
    let s = look(&world).await;
    let largest = s.pool.last().unwrap();
    assert!(largest.waiting > 0 && largest.used <= largest.max / 4 * 3, "{largest:?}");
    assert_eq!(limit(&s, "no-progress-while-others-wait"), 0, "{:?}", s.limits);
    DONE.store(true, Ordering::Relaxed);
    greedy.join().unwrap();
    drop(good);
    world.running.stop().await;
}

/// Names in the folder that is listed.
const NAMES: usize = 1500;
/// Listings that each of two connections keeps requested.
const LISTINGS: usize = 120;

/// Two connections with many concurrent listings: each request of another client is executed in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_listings_delay_no_others() {
    let (world, _dir) = world().await;
    for n in 0..NAMES {
        std::fs::write(world.folder().join(format!("name-{n}")), "").unwrap();
    }
    let to = world.running.nfs[0];
    let longest = tokio::task::spawn_blocking(move || {
        let mut victim = RawIwarp::dial(to).unwrap();
        victim.write_all(&call(100_005, 1, &text("/data"))).unwrap();
        let root = answer(&mut victim)[1..].to_vec();
        let root = root[..1 + (root[0] as usize).div_ceil(4)].to_vec();
        let list = call(100_003, 17, &[&root[..], &[0, 0, 0, 0, MIB, MIB]].concat());
        let done = std::sync::Arc::new(AtomicBool::new(false));
        let listing = [(); 2].map(|()| {
            let mut stream = RawIwarp::dial(to).unwrap();
            let (list, done) = (list.clone(), done.clone());
            stream.write_all(&list.repeat(LISTINGS)).unwrap();
            std::thread::spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(answer(&mut stream)[0], 0, "READDIRPLUS");
                    stream.write_all(&list).unwrap();
                }
            })
        });
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            let asked = std::time::Instant::now();
            victim.write_all(&call(100_003, 1, &root)).unwrap();
            assert_eq!(answer(&mut victim)[0], 0, "GETATTR");
            longest = longest.max(asked.elapsed());
        }
        done.store(true, Ordering::Relaxed);
        listing.into_iter().for_each(|one| one.join().unwrap());
        longest
    });
    let longest = longest.await.unwrap();
    println!("longest GETATTR {longest:?}");
    // A turn of 64 listings took longer, and a client waited for several turns.
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    world.running.stop().await;
}
