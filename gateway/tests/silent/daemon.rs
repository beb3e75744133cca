//! The gateway as a process of its own, with a share of a local disk and one of the file system that falls silent.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::connect::Local;
use client::nfs3::{Fh, Nfs3};
use client::nfs4::Nfs4;
use client::smb::Smb;
use client::target::Target;
use client::{Credential, Volume};
use gateway::admin::show::{fetch, snapshot};

use crate::fuse::Fuse;

pub const PATIENCE: Duration = Duration::from_secs(20);
const PASSWORD: &str = "correct-horse";

pub struct Daemon {
    child: Child,
    line: String,
    home: tempfile::TempDir,
}

/// What is to be done before anybody loses patience.
pub async fn within<T>(what: &str, done: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, done).await.unwrap_or_else(|_| panic!("not so: {what}"))
}

/// Waits for an event that nobody tells of.
pub async fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not so: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

impl Daemon {
    pub fn start(fuse: &Fuse) -> Self {
        let home = tempfile::tempdir().unwrap();
        let (ok, password) = (home.path().join("ok"), home.path().join("password"));
        std::fs::create_dir(&ok).unwrap();
        std::fs::write(&password, PASSWORD).unwrap();
        std::fs::set_permissions(&password, Permissions::from_mode(0o600)).unwrap();
        let shares = [("ok", ok.as_path()), ("silent", fuse.path())];
        std::fs::write(home.path().join("gw.yaml"), configuration(&shares, &password)).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_headgate"))
            .args(["serve", "--config", "gw.yaml", "--state", "state"])
            .current_dir(&home)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, line, home }
    }

    fn at(&self, name: &str) -> SocketAddr {
        let word = self.line.split_whitespace().find_map(|w| w.strip_prefix(name)).expect(name);
        word.parse().unwrap()
    }

    pub fn state(&self) -> PathBuf {
        self.home.path().join("state")
    }

    /// The folder of the share `ok`.
    pub fn folder(&self) -> PathBuf {
        self.home.path().join("ok")
    }

    async fn volume(target: String) -> Volume {
        let target: Target = target.parse().unwrap();
        Volume::open(&target, &Local::default(), Credential::sys(0, 0, &[])).await.unwrap()
    }

    pub async fn mount(&self, share: &str) -> (Nfs3, Fh) {
        let port = self.at("nfs=").port();
        let how = format!("version=3&transport=tcp&mountport={port}");
        match Self::volume(format!("nfs://127.0.0.1:{port}/{share}?{how}")).await {
            Volume::V3(nfs, root) => (nfs, root),
            _ => panic!("not NFS 3"),
        }
    }

    pub async fn mount_4(&self, share: &str) -> (Nfs4, Fh) {
        let at = self.at("nfs=");
        match Self::volume(format!("nfs://{at}/{share}?version=4.2&transport=tcp")).await {
            Volume::V4(nfs, root) => (nfs, root),
            _ => panic!("not NFS 4.2"),
        }
    }

    pub async fn connect(&self, share: &str) -> Smb {
        let at = self.at("smb=");
        match Self::volume(format!("smb://alice:{PASSWORD}@{at}/{share}")).await {
            Volume::Smb(smb) => smb,
            _ => panic!("not SMB"),
        }
    }

    /// What an administrator looks at: the admin address, and the control socket.
    pub async fn look(&self) {
        let admin = self.at("admin=");
        assert_eq!(fetch(admin, "/livez").await.unwrap(), "ok\n");
        let seen = snapshot(admin).await.unwrap();
        assert!(seen.ready && seen.shares.iter().any(|share| share.name == "silent"));
        let mut status = Command::new(env!("CARGO_BIN_EXE_headgate"));
        status.args(["status", "--state"]).arg(self.state());
        let output = tokio::task::spawn_blocking(move || status.output()).await.unwrap();
        assert!(output.unwrap().status.success());
    }
}

fn configuration(shares: &[(&str, &Path)], password: &Path) -> String {
    let share = |(name, path): &(&str, &Path)| {
        format!("{{name: {name}, path: {}, squash: none}}", path.display())
    };
    let shares: Vec<_> = shares.iter().map(share).collect();
    format!(
        "shares: [{}]\nbind: 127.0.0.1\nadmin: 127.0.0.1:0\nprivileged_ports: off\nrdma: off\n\
         nfs: {{port: 0, portmap: off}}\nsmb: {{port: 0}}\n\
         users: [{{name: alice, password_file: {}, uid: 0, gid: 0, groups: []}}]\n",
        shares.join(", "),
        password.display()
    )
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        // What it asked of the file system keeps it until that is gone.
    }
}
