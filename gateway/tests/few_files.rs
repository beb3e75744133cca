//! Tests that a flood of connections to a gateway with few descriptors leaves enough for other users of the gateway.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use client::connect::{self, Local};
use client::mount::mount;
use client::nfs3::{CreateHow, Nfs3};
use client::{Credential, NoCallbacks};
use gateway::admin::show::{fetch, snapshot};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// Number of files that the gateway may open.
const FILES: u64 = 256;
/// Connections of the flood, and their source addresses.
const FLOOD: usize = 600;
const ADDRESSES: usize = 60;
/// Time limit for every client, also on a machine that is busy with other tests.
const SOON: Duration = Duration::from_secs(60);

struct Daemon(Child, String);

impl Daemon {
    /// Starts the gateway without the right to raise its limit.
    fn start(dir: &std::path::Path) -> Self {
        let limited = format!(
            "ulimit -n {FILES}; if [ $(id -u) = 0 ]; then exec setpriv --bounding-set=-sys_resource \"$@\"; fi; exec \"$@\""
        );
        let share = format!("data={},squash=none", dir.join("data").display());
        let mut child = Command::new("sh")
            .args(["-c", &limited, "sh", env!("CARGO_BIN_EXE_headgate"), "serve"])
            .args(["--bind", "127.0.0.1", "--portmap", "off", "--share", &share])
            .args(["--admin", "127.0.0.1:0", "--nfs-port", "0", "--nfs-rdma-port", "0", "--state"])
            .arg(dir.join("state"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child, line)
    }

    fn at(&self, name: &str) -> SocketAddr {
        let word = self.1.split_whitespace().find_map(|w| w.strip_prefix(name)).expect(&self.1);
        word.parse().unwrap()
    }

    fn files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.0.id())).unwrap().count()
    }

    fn end(mut self) -> String {
        self.0.kill().unwrap();
        let mut log = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        log
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Connects from the address with this number and mounts. `None` if the connection was closed.
async fn come(at: SocketAddr, n: usize) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    let from = IpAddr::from([127, 0, 1, u8::try_from(1 + n % ADDRESSES).unwrap()]);
    socket.bind((from, 0).into()).unwrap();
    let mut stream = socket.connect(at).await.ok()?;
    // MNT of `/data` (MOUNT version 3, RFC 1813 appendix I) with AUTH_NONE.
    let path = [5, u32::from_be_bytes(*b"/dat"), u32::from_be_bytes(*b"a\0\0\0")];
    let head = [0x8000_0034, 7, 0, 2, 100_005, 3, 1, 0, 0, 0, 0];
    let words = head.into_iter().chain(path);
    let call: Vec<u8> = words.flat_map(|w| w.to_be_bytes()).collect();
    stream.write_all(&call).await.ok()?;
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).await.ok()?;
    Some(stream)
}

#[tokio::test]
async fn a_flood_of_connections_leaves_files_for_the_admin_address_and_the_clients() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("data")).unwrap();
    let daemon = Daemon::start(dir.path());
    let (nfs, admin) = (daemon.at("nfs="), daemon.at("admin="));
    let most = usize::try_from(snapshot(admin).await.unwrap().connections_max).unwrap();
    assert!((20..128).contains(&most), "{most}");

    let mut held = Vec::new();
    for n in 0..FLOOD {
        let come =
            tokio::time::timeout(SOON, come(nfs, n)).await.expect("it is answered or closed");
        held.extend(come);
        if n % 50 == 0 {
            let ready = tokio::time::timeout(SOON, fetch(admin, "/readyz")).await.expect("in time");
            assert_eq!(ready.unwrap(), "ready\n");
        }
    }
    assert!(held.len() >= most, "{} of {most} came in", held.len());
    let seen = snapshot(admin).await.unwrap();
    assert!(seen.connections.len() <= most && seen.connections_refused > 0, "{seen:?}");
    assert!(daemon.files() < usize::try_from(FILES).unwrap() - 64, "{} files", daemon.files());
    // A closed connection makes room for another, which finds descriptors for files.
    held.clear();
    let local = Local::default();
    let root = Credential::sys(0, 0, &[]);
    let files = async {
        loop {
            // The gateway closes new connections at once for a moment after the flood.
            let rpc = connect::tcp(nfs, &local, Arc::new(NoCallbacks)).await.unwrap();
            if let Ok(share) = mount(&rpc, &root, "/data").await {
                return Nfs3::new(rpc, root.clone())
                    .create(&share, b"f", CreateHow::Exclusive([7; 8]))
                    .await
                    .unwrap();
            }
        }
    };
    tokio::time::timeout(SOON, files).await.expect("in time");
    let log = daemon.end();
    assert!(log.contains(&format!("connections={most}")) && log.contains("LimitNOFILE="), "{log}");
}
