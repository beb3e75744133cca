//! Tests of a full state folder: the status reports it, and a start explains it. The folder is a separate file system in a
//! private mount namespace, so that no file remains on the host.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use client::connect::{self, Local};
use client::nfs4::{Minor, Nfs4, OpenHow};
use client::{Credential, NoCallbacks};
use gateway::admin::show::{fetch, snapshot};
use recovery::StoreTrouble;

const PATIENCE: Duration = Duration::from_secs(60);
/// More clients than fit into the free part of the store's existing pages.
const CLIENTS: u32 = 400;
/// Mounts a small file system at `$0` and executes the next program.
const SMALL: &str = "mount -t tmpfs -o size=8M,mode=0700 small \"$0\" && ";

/// Returns a command that runs `then` and the gateway on `state`. `None` if this user gets no mount namespace.
fn command(state: &Path, then: &str) -> Option<Command> {
    let probe = Command::new("unshare").args(["--mount", "true"]).output().unwrap();
    if !probe.status.success() {
        println!("skipped: no mount namespace for this user");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c"]).arg(format!("{SMALL}{then} exec \"$@\"")).arg(state);
    command.args([env!("CARGO_BIN_EXE_headgate"), "serve", "--bind", "127.0.0.1"]);
    command.args(["--portmap", "off", "--share", "data=mem:,squash=none", "--admin"]);
    command.args(["127.0.0.1:0", "--nfs-port", "0", "--nfs-rdma-port", "0", "--state"]);
    command.arg(state).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(command)
}

struct Daemon(Child);

impl Daemon {
    /// Returns the state folder as this process sees it.
    fn inside(&self, state: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.0.id()));
        root.join(state.strip_prefix("/").unwrap())
    }

    fn end(mut self) -> String {
        self.0.kill().unwrap();
        std::io::read_to_string(self.0.stderr.take().unwrap()).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    for size in [65_536, 4096] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
}

/// Connects a client with a long name that holds a file open.
async fn holder(at: SocketAddr, n: u32) -> Result<Nfs4, client::Error> {
    let rpc = connect::tcp(at, &Local::default(), Arc::new(NoCallbacks)).await?;
    let name = format!("{n:0900}");
    let root = Credential::sys(0, 0, &[]);
    let nfs = Nfs4::connect(rpc, root, Minor::Two, name.as_bytes(), *b"verifier").await?;
    let how = OpenHow { create: Some(0o666), want: OpenHow::WANT_NO_DELEG, ..OpenHow::WRITE };
    nfs.open(&nfs.walk("/data").await?, b"f", b"a", how).await?;
    Ok(nfs)
}

#[tokio::test]
async fn a_full_state_folder_is_shown_until_there_is_space_again() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut command) = command(dir.path(), "") else { return };
    let mut daemon = Daemon(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(daemon.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let at = |name: &str| -> SocketAddr {
        let word = line.split_whitespace().find_map(|w| w.strip_prefix(name)).expect(name);
        word.parse().unwrap()
    };
    let (nfs, admin) = (at("nfs="), at("admin="));
    assert_eq!(fetch(admin, "/readyz").await.unwrap(), "ready\n");
    assert!(snapshot(admin).await.unwrap().store.is_none());

    let filler = daemon.inside(dir.path()).join("filler");
    fill(&filler);
    let mut refused = None;
    for n in 0..CLIENTS {
        if let Err(why) = holder(nfs, n).await {
            refused = Some(why);
            break;
        }
    }
    assert!(refused.is_some(), "a full folder kept {CLIENTS} clients");
    let why = fetch(admin, "/readyz").await.unwrap_err();
    let folder = dir.path().display().to_string();
    for part in ["503", &folder, "make space", "bytes are free", StoreTrouble::CONSEQUENCE] {
        assert!(why.contains(part), "{part} in {why}");
    }
    let store = snapshot(admin).await.unwrap().store.unwrap();
    assert_eq!((store.folder, store.free_bytes), (folder.clone(), Some(0)));
    let metrics = fetch(admin, "/metrics").await.unwrap();
    for line in ["headgate_ready 0", "headgate_state_folder_writable 0"] {
        assert!(metrics.lines().any(|l| l == line), "{line} in {metrics}");
    }

    std::fs::remove_file(&filler).unwrap();
    let healed = async {
        while fetch(admin, "/readyz").await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, healed).await.expect("it finds out by itself");
    assert!(snapshot(admin).await.unwrap().store.is_none());
    holder(nfs, CLIENTS).await.unwrap();
    let log = daemon.end();
    let lines = |part: &str| log.lines().filter(|l| l.contains(part)).count();
    assert_eq!(lines("make space"), 1, "{log}");
    assert_eq!(lines("can be written again"), 1, "{log}");
}

#[test]
fn a_start_on_a_full_state_folder_names_it_and_what_helps() {
    let full = "cat /dev/zero > \"$0/filler\" 2>/dev/null;";
    // At a first start, without free inodes, and with files of an earlier start.
    let no_inodes = "i=0; while touch \"$0/$i\" 2>/dev/null; do i=$((i+1)); done;".to_owned();
    let secret = format!("head -c 32 /dev/urandom > \"$0/secret\"; {full}");
    for then in [full.to_owned(), no_inodes, secret] {
        let dir = tempfile::tempdir().unwrap();
        let small = format!("mount -o remount,nr_inodes=64 \"$0\"; {then}");
        let Some(mut command) = command(dir.path(), &small) else { return };
        let ended = command.output().unwrap();
        let text = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{text}");
        let last = text.lines().last().unwrap();
        let remedy = format!("make space on the file system of {}", dir.path().display());
        assert!(last.contains(&remedy) && last.contains("`state`"), "{then}: {text}");
    }
}
