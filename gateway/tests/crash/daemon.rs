//! The gateway process, started repeatedly on one folder.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// Time for clients to reclaim, unless `HEADGATE_CRASH_GRACE` is set: it must be enough on a machine that is busy with other
/// tests. NLM cannot report that a client is done, so every round takes this long.
const GRACE: &str = "4s";

/// The daemon, on the same ports in every run.
pub struct Daemon {
    pub child: Child,
    pub nfs: SocketAddr,
    pub smb: SocketAddr,
}

pub fn grace() -> String {
    std::env::var("HEADGATE_CRASH_GRACE").unwrap_or_else(|_| GRACE.into())
}

pub fn start(home: &Path, ports: Option<(u16, u16)>) -> Daemon {
    start_with(home, ports, &grace())
}

/// Starts the daemon with this lease and grace period.
pub fn start_with(home: &Path, ports: Option<(u16, u16)>, grace: &str) -> Daemon {
    let (nfs, smb) = ports.unwrap_or((0, 0));
    let data = format!("data={},ca,squash=none", home.join("data").display());
    let user = format!("alice={}", home.join("password").display());
    let mut child = Command::new(env!("CARGO_BIN_EXE_headgate"))
        .args(["serve", "--bind", "127.0.0.1", "--rdma", "off", "--share", &data, "--user", &user])
        .args(["--nfs-port", &nfs.to_string(), "--smb-port", &smb.to_string()])
        .args(["--lease", grace, "--grace", grace, "--portmap", "off", "--state"])
        .arg(home.join("state"))
        .stdout(Stdio::piped())
        .stderr(fs::File::create(home.join("log")).unwrap())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let log = || fs::read_to_string(home.join("log")).unwrap_or_default();
    assert!(line.starts_with("headgate ready"), "{line}{}", log());
    let at = |name: &str| {
        let word = line.split_whitespace().find_map(|w| w.strip_prefix(name)).expect(name);
        word.parse().unwrap()
    };
    Daemon { nfs: at("nfs="), smb: at("smb="), child }
}

impl Daemon {
    /// Stops it in order.
    pub fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // SIGKILL
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn home() -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o777)).unwrap();
    let password = home.path().join("password");
    fs::write(&password, "correct horse\n").unwrap();
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
    (home, data)
}
