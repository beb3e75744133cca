//! A file system that gives no answer any more: it keeps nobody from other shares, nor the administrator from the gateway. It
//! is one of FUSE whose program is this test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use client::connect::Local;
use client::nfs3::{CreateHow, Nfs3, SetAttr};
use client::target::Target;
use client::{Credential, Volume};
use gateway::admin::show::{fetch, snapshot};

const PATIENCE: Duration = Duration::from_secs(20);
/// More calls than there are workers.
const CALLS: usize = 100;

/// A folder with nothing in it, by linux/fuse.h.
struct Fuse {
    at: tempfile::TempDir,
    /// It answers nothing.
    silent: Arc<AtomicBool>,
    /// Requests that it did not answer.
    heard: Arc<AtomicUsize>,
}

const FORGET: u32 = 2;
const INIT: u32 = 26;
const NO_SYSTEM_CALL: i32 = -38;
const NO_ENTRY: i32 = -2;

/// What comes back for a request, or its error.
fn answer(operation: u32) -> Result<Vec<u8>, i32> {
    let words = |all: &[u32]| all.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>();
    match operation {
        // LOOKUP
        1 => Err(NO_ENTRY),
        // GETATTR: valid for no time at all, inode 1, a folder for everybody.
        3 => {
            let mut words = [0; 26];
            (words[4], words[19], words[20], words[23]) = (1, 0o040_777, 2, 4096);
            Ok(words.iter().flat_map(|w: &u32| w.to_le_bytes()).collect())
        }
        // STATFS
        17 => Ok(vec![0; 80]),
        INIT => {
            Ok(words(&[7, 31, 65_536, 0, 12 << 16 | 12, 131_072, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]))
        }
        _ => Err(NO_SYSTEM_CALL),
    }
}

impl Fuse {
    /// `None` where this user may not mount one.
    fn mount() -> Option<Self> {
        let at = tempfile::tempdir().unwrap();
        let device = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let how = "fd=0,rootmode=40000,user_id=0,group_id=0,allow_other";
        let mut mount = Command::new("mount");
        mount.args(["-i", "-t", "fuse.silent", "-o", how, "silent"]).arg(at.path());
        let mounted = mount.stdin(device.try_clone().unwrap()).stderr(Stdio::null()).status();
        if !mounted.is_ok_and(|s| s.success()) {
            return None;
        }
        let (silent, heard) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let fuse = Self { at, silent: silent.clone(), heard: heard.clone() };
        std::thread::spawn(move || serve(device, &silent, &heard));
        Some(fuse)
    }
}

fn serve(mut device: File, silent: &AtomicBool, heard: &AtomicUsize) {
    let mut request = vec![0; 1 << 20];
    // Unmounting ends it.
    while let Ok(n) = device.read(&mut request) {
        let word = |at: usize| request[..n][at..at + 4].try_into().map(u32::from_le_bytes).unwrap();
        let (operation, unique) = (word(4), request[8..16].to_vec());
        if operation == FORGET {
            continue;
        }
        if silent.load(Ordering::Acquire) {
            heard.fetch_add(1, Ordering::AcqRel);
            continue;
        }
        let (error, data) = match answer(operation) {
            Ok(data) => (0i32, data),
            Err(error) => (error, Vec::new()),
        };
        let length = u32::try_from(16 + data.len()).unwrap();
        let head = [&length.to_le_bytes()[..], &error.to_le_bytes(), &unique].concat();
        // A request that was given up is no longer there to be answered.
        let _ = device.write(&[head, data].concat());
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-f", "-l"]).arg(self.at.path()).status();
    }
}

struct Daemon(Child, String);

impl Daemon {
    fn start(state: &Path, shares: [(&str, &Path); 2]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headgate"));
        command.args(["serve", "--bind", "127.0.0.1", "--portmap", "off", "--rdma", "off"]);
        command.args(["--admin", "127.0.0.1:0", "--nfs-port", "0", "--state"]).arg(state);
        for (name, folder) in shares {
            command.args(["--share", &format!("{name}={},squash=none", folder.display())]);
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child, line)
    }

    fn at(&self, name: &str) -> SocketAddr {
        let word = self.1.split_whitespace().find_map(|w| w.strip_prefix(name)).expect(name);
        word.parse().unwrap()
    }

    async fn mount(&self, share: &str) -> (Nfs3, client::nfs3::Fh) {
        let port = self.at("nfs=").port();
        let target: Target =
            format!("nfs://127.0.0.1:{port}/{share}?version=3&transport=tcp&mountport={port}")
                .parse()
                .unwrap();
        let volume = Volume::open(&target, &Local::default(), Credential::sys(0, 0, &[])).await;
        let Volume::V3(nfs, root) = volume.unwrap() else { panic!("not NFS 3") };
        (nfs, root)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        // What it asked of the file system keeps it until that is gone.
    }
}

#[tokio::test]
async fn a_file_system_that_falls_silent_keeps_nobody_else_waiting() {
    let Some(fuse) = Fuse::mount() else {
        println!("skipped: this user may not mount a file system of FUSE");
        return;
    };
    let (ok, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let state = state.path().join("state");
    let daemon = Daemon::start(&state, [("ok", ok.path()), ("silent", fuse.at.path())]);
    let (nfs, root) = daemon.mount("silent").await;
    nfs.getattr(&root).await.unwrap();
    fuse.silent.store(true, Ordering::Release);
    let nfs = Arc::new(nfs);
    for n in 0..CALLS {
        let (nfs, root) = (nfs.clone(), root.clone());
        tokio::spawn(async move {
            match n % 2 {
                0 => drop(nfs.getattr(&root).await),
                _ => drop(nfs.lookup(&root, b"name").await),
            }
        });
    }
    let begun = tokio::time::timeout(PATIENCE, async {
        while fuse.heard.load(Ordering::Acquire) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    begun.await.expect("the file system is asked");

    let others = tokio::time::timeout(PATIENCE, async {
        for n in 0..20 {
            let (nfs, root) = daemon.mount("ok").await;
            let how = CreateHow::Guarded(SetAttr::default());
            let (file, _) = nfs.create(&root, format!("f{n}").as_bytes(), how).await.unwrap();
            nfs.getattr(&file).await.unwrap();
        }
        let admin = daemon.at("admin=");
        assert_eq!(fetch(admin, "/livez").await.unwrap(), "ok\n");
        let seen = snapshot(admin).await.unwrap();
        assert!(seen.ready && seen.shares.iter().any(|share| share.name == "silent"));
        let mut status = Command::new(env!("CARGO_BIN_EXE_headgate"));
        status.args(["status", "--state"]).arg(&state);
        let output = tokio::task::spawn_blocking(move || status.output()).await.unwrap();
        assert!(output.unwrap().status.success());
    });
    others.await.expect("others are served");
    drop(fuse);
    drop(daemon);
}
