//! Limits of clients: one address takes all that it can get, and another one is served within a second, within the memory
//! configured. [`table`] has each limit of the gateway's list.

#![allow(clippy::unwrap_used, unreachable_pub)] // A test that cannot go on says so.

mod fill;
mod table;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use config::{Limits, PrivilegedPorts, Settings};
use headgate_tests::raw::words;
use headgate_tests::world::World;
use headgate_tests::world::smb::with_alice;
use tokio::net::TcpSocket;

/// In this time another client is served.
const SOON: Duration = Duration::from_secs(1);
/// Two addresses of clients.
const GREEDY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
const MEMORY: usize = 64 << 20;
/// Small receive buffers of one address: three quarters of half of a sixteenth of the memory.
const BUFFERS: usize = MEMORY / 16 / 2 / 4096 / 4 * 3;

async fn world() -> (World, tempfile::TempDir) {
    world_with(|_| ()).await
}

async fn world_with(change: impl FnOnce(&mut Settings)) -> (World, tempfile::TempDir) {
    with_alice(|s| {
        s.memory = MEMORY as u64;
        s.connections = 1200;
        // The clients here are bare sockets of any port.
        s.privileged_ports = PrivilegedPorts::Off;
        s.limits = Limits { introduction: Duration::from_secs(60), ..Limits::default() };
        change(s);
    })
    .await
}

async fn dial(from: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    let stream = socket.connect(to).await.unwrap().into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// MNT of `/data` with its record mark (MOUNT version 3, RFC 1813 appendix I), by AUTH_NONE.
fn mount() -> Vec<u8> {
    let path = [5, u32::from_be_bytes(*b"/dat"), u32::from_be_bytes(*b"a\0\0\0")];
    let call = [&[7, 0, 2, 100_005, 3, 1, 0, 0, 0, 0][..], &path].concat();
    let mark = 0x8000_0000 | u32::try_from(4 * call.len()).unwrap();
    words(&[&[mark][..], &call].concat())
}

fn ask(stream: &mut TcpStream, call: &[u8]) {
    stream.write_all(call).unwrap();
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[20..28], [0; 8], "accepted, and MNT3_OK");
}

/// How long it takes to connect and mount from another address.
async fn served(to: SocketAddr) -> Duration {
    let began = Instant::now();
    ask(&mut dial(OTHER, to).await, &mount());
    began.elapsed()
}

/// Bytes of this process that are resident (proc_pid_statm(5)).
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn met(name: &str) -> u64 {
    let met = rdma_transport::count::limits_met();
    met.iter().find(|(limit, _)| *limit == name).map_or(0, |(_, n)| *n)
}

/// As many known connections as one address gets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_address_leave_others_served() {
    let (world, _dir) = world().await;
    let to = world.running.nfs[0];
    let before = resident();
    let mut held = Vec::new();
    // Another test meets the same limit at another gateway, so the refused connection ends this one.
    loop {
        assert!(held.len() < 1000, "more than its part");
        let mut stream = dial(GREEDY, to).await;
        match stream.write_all(&mount()).is_ok() && stream.read(&mut [0; 256]).is_ok_and(|n| n > 0)
        {
            true => held.push(stream),
            false => break,
        }
    }
    assert!(met("connections-of-address") > 0);
    let took = served(to).await;
    assert!(took < SOON, "{took:?}");
    assert!(held.len() >= 800, "{}", held.len());
    let grown = resident().saturating_sub(before);
    assert!(grown < MEMORY as u64, "{} MiB", grown >> 20);
    drop(held);
    world.running.stop().await;
}

/// Connections that each hold a receive buffer with half of a call, more than one address may have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_requests_leave_receive_buffers_to_others() {
    let (world, _dir) = world().await;
    let to = world.running.nfs[0];
    let mut held = Vec::new();
    // This thread is none of the gateway's.
    for _ in 0..BUFFERS + 50 {
        let mut stream = dial(GREEDY, to).await;
        if held.len() < BUFFERS {
            ask(&mut stream, &mount());
        }
        stream.write_all(&mount()[..20]).unwrap();
        held.push(stream);
    }
    std::thread::sleep(Duration::from_millis(200));
    let took = served(to).await;
    assert!(took < SOON, "{took:?}");
    drop(held);
    world.running.stop().await;
}
