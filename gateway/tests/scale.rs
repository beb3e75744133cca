//! Tests of ten thousand idle connections, and of many that arrive at once. The gateway is a separate process here, so that
//! only its memory is measured.
#![allow(clippy::unwrap_used, missing_docs)] // A test that cannot go on says so.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::connect::Local;
use client::smb::{Options, Smb, User};
use gateway::admin::protocol::Protocol;
use gateway::admin::show;

const NFS: usize = 9_000;
const SMB: usize = 1_000;
const STORM: usize = 2_000;
/// Threads that send the storm.
const WINDS: usize = 4;
/// Maximum cost of a connection in bytes; docs/tuning.md has the measured cost.
const NFS_BYTES_MAX: u64 = 16 << 10;
const SMB_BYTES_MAX: u64 = 32 << 10;
const PASSWORD: &str = "correct horse";

struct Daemon {
    child: Child,
    line: String,
    _dir: tempfile::TempDir,
}

impl Daemon {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let password = dir.path().join("password");
        std::fs::write(&password, PASSWORD).unwrap();
        std::fs::set_permissions(&password, std::fs::Permissions::from_mode(0o600)).unwrap();
        let text = format!(
            "shares: [{{name: m, memory: true, squash: none}}]\nbind: 127.0.0.1\nadmin: 127.0.0.1:0\nconnections: 14000\n\
             limits: {{client_connections: 12000}}\nnfs: {{port: 0, rdma_port: 0, portmap: off}}\n\
             smb: {{port: 0, direct_port: 0}}\nlog: {{level: warn}}\n\
             users: [{{name: alice, password_file: {}, uid: 0, gid: 0, groups: []}}]\n",
            password.display()
        );
        std::fs::write(dir.path().join("gw.yaml"), text).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_headgate"))
            .args(["serve", "--config", "gw.yaml", "--state", "state"])
            .current_dir(&dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, line, _dir: dir }
    }

    fn at(&self, what: &str) -> SocketAddr {
        self.line.split_whitespace().find_map(|w| w.strip_prefix(what)).unwrap().parse().unwrap()
    }

    /// Returns the resident memory in bytes.
    fn resident(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends NULL of NFS version 3 over a byte stream.
fn null(stream: &mut TcpStream) -> std::io::Result<()> {
    let call = [0x8000_0028_u32, 9, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];
    let bytes: Vec<u8> = call.iter().flat_map(|w| w.to_be_bytes()).collect();
    stream.write_all(&bytes)?;
    let mut reply = [0; 28];
    stream.read_exact(&mut reply)?;
    assert_eq!(reply[..8], [0x80, 0, 0, 24, 0, 0, 0, 9]);
    Ok(())
}

/// Sends MNT of `/m` (MOUNT version 3): a call that a share admits, which makes the client known.
fn mount(stream: &mut TcpStream) -> std::io::Result<()> {
    let call =
        [0x8000_0030_u32, 8, 0, 2, 100_005, 3, 1, 0, 0, 0, 0, 2, u32::from_be_bytes(*b"/m\0\0")];
    let bytes: Vec<u8> = call.iter().flat_map(|w| w.to_be_bytes()).collect();
    stream.write_all(&bytes)?;
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply)?;
    assert_eq!(reply[20..28], [0; 8], "accepted, and mounted");
    Ok(())
}

fn dial(to: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn many(to: SocketAddr, number: usize) -> Vec<TcpStream> {
    let one = |n| {
        let mut stream = dial(to).unwrap_or_else(|e| panic!("connection {n}: {e}"));
        mount(&mut stream).unwrap_or_else(|e| panic!("connection {n}: {e}"));
        stream
    };
    (0..number).map(one).collect()
}

async fn logged_on(at: SocketAddr) -> Smb {
    let user = User { name: "alice".into(), domain: String::new(), password: PASSWORD.into() };
    let (share, local) = (("127.0.0.1", "m"), Local::default());
    Smb::connect(at, false, share, &user, Options::default(), &local).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_idle_connections_are_held_and_answered_when_they_speak() {
    vfs::local::raise_open_files(0);
    let daemon = Daemon::start();
    let (nfs, smb) = (daemon.at("nfs="), daemon.at("smb="));
    // One-time costs of the first connection do not count.
    let (first, first_smb) = (many(nfs, 1), logged_on(smb).await);
    let before = daemon.resident();
    let mut streams = tokio::task::spawn_blocking(move || many(nfs, NFS)).await.unwrap();
    let between = daemon.resident();
    let mut sessions = Vec::new();
    while sessions.len() < SMB {
        sessions.extend(futures_util::future::join_all((0..50).map(|_| logged_on(smb))).await);
    }
    let after = daemon.resident();
    let each = |from: u64, to: u64, n: usize| to.saturating_sub(from) / n as u64;
    let (of_nfs, of_smb) = (each(before, between, NFS), each(between, after, SMB));
    println!("{of_nfs} bytes for a connection of NFS, {of_smb} for one of SMB with its session");
    let seen = show::snapshot(daemon.at("admin=")).await.unwrap();
    let count = |p| seen.connections.iter().filter(|c| c.protocol == p).count();
    assert_eq!((count(Protocol::Nfs), count(Protocol::Smb)), (NFS + 1, SMB + 1));
    assert_eq!(seen.connections_refused, 0);
    let spoken = tokio::task::spawn_blocking(move || {
        streams.iter_mut().try_for_each(null).map(|()| streams)
    });
    let streams = spoken.await.unwrap().unwrap();
    for session in &sessions {
        session.list("").await.unwrap();
    }
    assert!(of_nfs <= NFS_BYTES_MAX, "{of_nfs} bytes for a connection of NFS");
    assert!(of_smb <= SMB_BYTES_MAX, "{of_smb} bytes for a connection of SMB");
    drop((first, first_smb, streams, sessions));
}

#[test]
fn a_storm_of_connections_is_served_and_does_not_disturb_who_is_there() {
    let daemon = Daemon::start();
    let nfs = daemon.at("nfs=");
    let mut calm = dial(nfs).unwrap();
    let begun = Instant::now();
    let winds: Vec<_> = (0..WINDS)
        .map(|_| {
            std::thread::spawn(move || {
                for _ in 0..STORM / WINDS {
                    // Each connects, sends one call and closes.
                    drop(many(nfs, 1));
                }
            })
        })
        .collect();
    let mut answered = 0;
    while winds.iter().any(|w| !w.is_finished()) {
        null(&mut calm).unwrap();
        answered += 1;
    }
    let took = begun.elapsed();
    winds.into_iter().for_each(|w| w.join().unwrap());
    assert!(answered > 0);
    let rate = STORM as f64 / took.as_secs_f64();
    println!("{rate:.0} connections a second, and {answered} answers to another meanwhile");
}
