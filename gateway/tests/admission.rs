//! Tests that unknown clients, and clients that hold idle connections, do not block other clients.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use config::{Limits, Settings, Share, Source};
use gateway::serve::Running;

/// Time limit for every answer.
const SOON: Duration = Duration::from_secs(30);

fn settings(state: &std::path::Path, clients: Option<&str>) -> Settings {
    let mut share = Share::new("data", Source::Memory);
    share.clients = clients.map(|range| vec![range.parse().unwrap()]);
    share.guest = true;
    let mut settings = Settings {
        shares: vec![share],
        bind: vec![[127, 0, 0, 1].into()],
        nfs_port: 0,
        nfs_rdma_port: 0,
        state: state.to_owned(),
        ..Settings::default()
    };
    (settings.smb.port, settings.smb.direct_port) = (0, 0);
    settings
}

fn dial(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

/// Sends an ONC RPC call with AUTH_NONE (RFC 5531) and returns the results of its reply; an error if the connection ended.
fn call(
    stream: &mut TcpStream,
    [program, version, procedure]: [u32; 3],
    args: &[u32],
) -> std::io::Result<Vec<u8>> {
    let mut words = vec![7, 0, 2, program, version, procedure, 0, 0, 0, 0];
    words.extend(args);
    let mark = 0x8000_0000 | u32::try_from(4 * words.len()).unwrap();
    let bytes: Vec<u8> = [mark].iter().chain(&words).flat_map(|w| w.to_be_bytes()).collect();
    stream.write_all(&bytes)?;
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply)?;
    assert_eq!(
        reply[..24],
        [0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    Ok(reply.split_off(24))
}

fn null(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    call(stream, [100_003, 3, 0], &[])
}

/// Sends MNT of `/data` (MOUNT version 3).
fn mount(stream: &mut TcpStream) -> Vec<u8> {
    let path = [5, u32::from_be_bytes(*b"/dat"), u32::from_be_bytes(*b"a\0\0\0")];
    let results = call(stream, [100_005, 3, 1], &path).unwrap();
    assert_eq!(results[..4], [0; 4], "mounted");
    results
}

/// Waits until the peer has closed the connection.
fn end_of(stream: &mut TcpStream) {
    let ended = match stream.read(&mut [0; 64]) {
        Ok(n) => n == 0,
        Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
    };
    assert!(ended, "it is still open after {SOON:?}");
}

fn limit(name: &str) -> u64 {
    rdma_transport::count::limits_met().iter().find(|(n, _)| *n == name).map_or(0, |(_, n)| *n)
}

async fn start(settings: Settings) -> Running {
    gateway::serve::start(settings).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_no_share_admits_is_closed_before_it_says_anything() {
    let state = tempfile::tempdir().unwrap();
    let running = start(settings(state.path(), Some("192.0.2.0/24"))).await;
    let before = limit("clients");
    for at in [running.nfs[0], running.smb[0]] {
        end_of(&mut dial(at));
    }
    assert!(limit("clients") >= before + 2);
    assert_eq!(running.connections(), 0);
    let other = tempfile::tempdir().unwrap();
    let admits = start(settings(other.path(), Some("127.0.0.0/8"))).await;
    assert!(null(&mut dial(admits.nfs[0])).is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_null_nor_a_call_that_no_share_admits_introduces_a_client() {
    let state = tempfile::tempdir().unwrap();
    let mut one = settings(state.path(), None);
    // The first share admits the client, so that it may connect at all; this one does not.
    let mut other = Share::new("other", Source::Memory);
    other.clients = Some(vec!["192.0.2.0/24".parse().unwrap()]);
    one.shares.push(other);
    one.limits = Limits { introduction: Duration::from_secs(10), ..Limits::default() };
    let running = start(one).await;
    let nfs = running.nfs[0];
    let mut mounted = dial(nfs);
    mount(&mut mounted);
    let mut silent = [dial(nfs), dial(nfs), dial(nfs), dial(nfs)];
    null(&mut silent[0]).unwrap();
    let path = [6, u32::from_be_bytes(*b"/oth"), u32::from_be_bytes(*b"er\0\0")];
    let refused = call(&mut silent[1], [100_005, 3, 1], &path).unwrap();
    assert_eq!(refused, 13_u32.to_be_bytes(), "MNT3ERR_ACCES");
    let exports = call(&mut silent[2], [100_005, 3, 5], &[]).unwrap();
    assert!(!exports.is_empty());
    // GETATTR of a handle that the gateway has not issued.
    let refused = call(&mut silent[3], [100_003, 3, 1], &[4, 0x4141_4141]).unwrap();
    assert_eq!(refused, 10_001_u32.to_be_bytes(), "NFS3ERR_BADHANDLE");
    silent.iter_mut().for_each(end_of);
    assert!(null(&mut mounted).is_ok(), "it introduced itself and stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_give_way_when_all_places_are_taken() {
    let state = tempfile::tempdir().unwrap();
    let running = start(Settings { connections: 6, ..settings(state.path(), None) }).await;
    let nfs = running.nfs[0];
    let before = limit("gave-way");
    let mut held: Vec<TcpStream> = (0..6).map(|_| dial(nfs)).collect();
    held.iter_mut().for_each(|stream| drop(mount(stream)));
    // One connection stays active and is therefore never idle.
    let begun = Instant::now();
    let mut came = loop {
        null(&mut held[0]).unwrap();
        let mut stream = dial(nfs);
        if null(&mut stream).is_ok() {
            break stream;
        }
        assert!(begun.elapsed() < SOON, "nobody gave way");
        std::thread::sleep(Duration::from_millis(20));
    };
    end_of(&mut held[1]);
    mount(&mut came);
    for (at, stream) in held.iter_mut().enumerate().filter(|(at, _)| *at != 1) {
        assert!(null(stream).is_ok(), "connection {at} stays");
    }
    assert!(limit("gave-way") > before);
}
