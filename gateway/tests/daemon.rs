//! Tests of the daemon from the user's view: the ready line, exit codes, messages, the end.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::connect::{self, Local};
use client::nfs4::{Minor, Nfs4, OpenHow};
use client::{Credential, NoCallbacks};
use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(60);

struct Daemon {
    child: Child,
    nfs: SocketAddr,
    nfs_rdma: SocketAddr,
}

fn command(state: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headgate"));
    command.args([
        "serve",
        "--bind",
        "127.0.0.1",
        "--portmap",
        "off",
        "--share",
        "data=mem:",
        "--state",
    ]);
    command.arg(state).args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(state: &Path) -> Daemon {
    start_with(state, &[])
}

fn start_with(state: &Path, more: &[&str]) -> Daemon {
    let mut command = command(state, &["--nfs-port", "0", "--nfs-rdma-port", "0"]);
    let mut child = command.args(more).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..2], ["headgate", "ready"], "{line}");
    let at = |name: &str| {
        let word = words.iter().find_map(|w| w.strip_prefix(name)).expect(name);
        word.parse().unwrap()
    };
    Daemon { nfs: at("nfs="), nfs_rdma: at("nfs-rdma="), child }
}

impl Daemon {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end and returns the exit code and standard error.
    fn end(mut self) -> (Option<i32>, String) {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < PATIENCE, "the daemon does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (status.code(), text)
    }
}

/// Returns the permitted capabilities of a process's threads from /proc.
fn permitted(daemon: &Daemon) -> Vec<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.child.id())).unwrap();
    let of = |path: std::path::PathBuf| {
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        let line = status.lines().find_map(|l| l.strip_prefix("CapPrm:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    tasks.filter_map(|task| of(task.unwrap().path())).collect()
}

/// No thread may create devices, unless a share leaves root unsquashed.
#[test]
fn no_right_to_make_devices_is_kept() {
    const MKNOD: u64 = 1 << 27;
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find_map(|l| l.strip_prefix("CapEff:")).unwrap();
    let has = u64::from_str_radix(own.trim(), 16).unwrap() & MKNOD;
    for (more, keeps) in [(&[][..], 0), (&["--share", "open=mem:,squash=none"], has)] {
        let state = tempfile::tempdir().unwrap();
        let daemon = start_with(state.path(), more);
        let threads = permitted(&daemon);
        assert!(threads.len() > 1);
        assert!(threads.iter().all(|bits| bits & MKNOD == keeps), "{more:?}: {threads:x?}");
        daemon.signal(Signal::TERM);
        assert_eq!(daemon.end().0, Some(0));
    }
}

/// Sends NULL of NFS version 3 over a byte stream.
fn null(stream: &mut TcpStream) {
    let call = [0x8000_0028_u32, 9, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];
    let bytes: Vec<u8> = call.iter().flat_map(|w| w.to_be_bytes()).collect();
    stream.write_all(&bytes).unwrap();
    let mut reply = [0; 28];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..8], [0x80, 0, 0, 24, 0, 0, 0, 9]);
}

#[test]
fn it_serves_until_it_is_told_to_stop_and_says_what_every_connection_did() {
    let state = tempfile::tempdir().unwrap();
    for signal in [Signal::TERM, Signal::INT] {
        let daemon = start(state.path());
        assert_ne!(daemon.nfs.port(), daemon.nfs_rdma.port());
        let mut stream = TcpStream::connect(daemon.nfs).unwrap();
        null(&mut stream);
        daemon.signal(signal);
        let (code, log) = daemon.end();
        assert_eq!(code, Some(0), "{log}");
        let end = log.lines().find(|l| l.contains("connection end")).expect(&log);
        for fact in ["transport=\"tcp\"", "requests=1 ", "inline_in=44 ", "inline_out=28 "] {
            assert!(end.contains(fact), "{fact} in {end}");
        }
        // The peer sees an orderly end.
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    }
}

#[test]
fn beyond_the_limit_connections_are_closed_and_the_others_served() {
    let state = tempfile::tempdir().unwrap();
    let daemon = start_with(state.path(), &["--connections", "2"]);
    let mut held: Vec<TcpStream> =
        (0..2).map(|_| TcpStream::connect(daemon.nfs).unwrap()).collect();
    held.iter_mut().for_each(null);
    let begun = Instant::now();
    for _ in 0..20 {
        let mut refused = TcpStream::connect(daemon.nfs).unwrap();
        refused.set_read_timeout(Some(PATIENCE)).unwrap();
        // An orderly end or a reset, depending on which arrives first.
        assert!(!matches!(refused.read(&mut [0; 1]), Ok(1)));
    }
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap();
    held.iter_mut().for_each(null);
    daemon.signal(Signal::TERM);
    let (code, log) = daemon.end();
    assert_eq!(code, Some(0), "{log}");
    let lines = log.lines().filter(|l| l.contains("the limit is reached")).count();
    // One line per second, where the first and the last second may be partial.
    assert!((1..=seconds + 2).contains(&lines), "{log}");
}

#[test]
fn a_second_one_on_the_same_state_is_refused() {
    let state = tempfile::tempdir().unwrap();
    let first = start(state.path());
    let more = ["--nfs-port", "0", "--nfs-rdma-port", "0"];
    let second = command(state.path(), &more).output().unwrap();
    let text = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{text}");
    assert!(text.contains("another headgate uses the state folder"), "{text}");
    first.signal(Signal::TERM);
    assert_eq!(first.end().0, Some(0));
}

#[test]
fn a_port_in_use_is_named_with_who_uses_it() {
    let state = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (option, other) in [("--nfs-port", "--nfs-rdma-port"), ("--nfs-rdma-port", "--nfs-port")] {
        let out = command(state.path(), &[option, &port, other, "0"]).output().unwrap();
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{text}");
        let me = format!("(process {})", std::process::id());
        assert!(text.contains("is in use by") && text.contains(&me), "{text}");
        assert!(text.contains(option), "{text}");
    }
}

async fn nfs4(at: SocketAddr, name: &[u8; 8]) -> Nfs4 {
    let rpc = connect::tcp(at, &Local::default(), Arc::new(NoCallbacks)).await.unwrap();
    let root = Credential::sys(0, 0, &[]);
    Nfs4::connect(rpc, root, Minor::Two, name, *name).await.unwrap()
}

#[tokio::test]
async fn a_client_loses_nothing_while_the_daemon_is_held_up() {
    const SHARE_DENIED: u32 = 10015;
    let state = tempfile::tempdir().unwrap();
    let daemon = start_with(state.path(), &["--lease", "3s", "--grace", "3s"]);
    let (holder, other) =
        (nfs4(daemon.nfs, b"holder  ").await, nfs4(daemon.nfs, b"other   ").await);
    let root = other.walk("/data").await.unwrap();
    let how =
        OpenHow { create: Some(0o666), deny: 3, want: OpenHow::WANT_NO_DELEG, ..OpenHow::WRITE };
    holder.open(&root, b"f", b"a", how).await.unwrap();
    daemon.signal(Signal::STOP);
    tokio::time::sleep(Duration::from_secs(5)).await;
    daemon.signal(Signal::CONT);
    // The other client is served first and gets the same answer as later.
    let refused = other.open(&root, b"f", b"b", how).await.unwrap_err();
    assert!(matches!(refused, client::Error::Nfs4(_, SHARE_DENIED)), "{refused}");
    holder.call(holder.compound()).await.unwrap();
    daemon.signal(Signal::TERM);
    let (_, log) = daemon.end();
    assert!(log.contains("this process was suspended"), "{log}");
}
