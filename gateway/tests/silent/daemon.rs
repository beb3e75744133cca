//! The gateway as a separate process, with a share on a local disk and one on the file system that hangs.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use client::connect::Local;
use client::nfs3::{Fh, Nfs3};
use client::nfs4::Nfs4;
use client::smb::{Options, Smb, User};
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

/// Waits for a future, with a time limit.
pub async fn within<T>(what: &str, done: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, done).await.unwrap_or_else(|_| panic!("not so: {what}"))
}

/// Polls for an event without notification.
pub async fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not so: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Runs the program in a folder to its end.
pub async fn headgate(home: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headgate"));
    command.args(args).current_dir(home);
    within(&format!("{args:?} ends"), async {
        tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
    })
    .await
}

/// Starts to serve from a folder; its standard error can be read.
pub fn begun(home: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headgate"));
    command.args(["serve", "--config", "gw.yaml", "--state", "state"]).current_dir(home);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Creates a folder with a configuration of these shares, and of `ok` on a local disk.
pub fn home(shares: &[(&str, &Path)]) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let password = home.path().join("password");
    std::fs::create_dir(home.path().join("ok")).unwrap();
    std::fs::write(&password, PASSWORD).unwrap();
    std::fs::set_permissions(&password, Permissions::from_mode(0o600)).unwrap();
    configure(home.path(), shares, "");
    home
}

/// Writes its configuration. `of_ok` has options of the share `ok`.
pub fn configure(home: &Path, shares: &[(&str, &Path)], of_ok: &str) {
    let share = |(name, path): &(&str, &Path)| {
        format!(", {{name: {name}, path: {}, squash: none}}", path.display())
    };
    let shares: String = shares.iter().map(share).collect();
    let text = format!(
        "shares: [{{name: ok, path: {home}/ok, squash: none{of_ok}}}{shares}]\nbind: 127.0.0.1\nadmin: 127.0.0.1:0\n\
         privileged_ports: off\nrdma: off\nnfs: {{port: 0, portmap: off}}\nsmb: {{port: 0}}\n\
         users: [{{name: alice, password_file: {home}/password, uid: 0, gid: 0, groups: []}}]\n",
        home = home.display(),
    );
    std::fs::write(home.join("gw.yaml"), text).unwrap();
}

impl Daemon {
    pub fn start(fuse: &Fuse) -> Self {
        Self::at_home(home(&[("silent", fuse.path())]))
    }

    pub fn at_home(home: tempfile::TempDir) -> Self {
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

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Returns the folder of the share `ok`.
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

    /// Connects from a machine that the gateway knows again.
    pub async fn connect_as(&self, machine: u8, share: &str) -> Smb {
        let user = User { name: "alice".into(), domain: String::new(), password: PASSWORD.into() };
        let options = Options { machine: Some([machine; 16]), ..Options::default() };
        let server = ("127.0.0.1", share);
        let local = Local::default();
        Smb::connect(self.at("smb="), false, server, &user, options, &local).await.unwrap()
    }

    /// Returns the shares whose storage does not respond, according to the status.
    async fn stuck(&self) -> Vec<String> {
        let seen = snapshot(self.at("admin=")).await.unwrap();
        seen.shares.into_iter().filter(|share| share.waiting > 0).map(|share| share.name).collect()
    }

    /// Waits until only this share is reported as stuck, which is checked every few seconds.
    pub async fn names_as_stuck(&self, share: &str) {
        while self.stuck().await != [share] {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let told = headgate(self.home(), &["status", "--state", "state"]).await;
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(told.contains(&format!("share {share}: its storage does not respond")), "{told}");
    }

    pub async fn names_none_as_stuck(&self) {
        while !self.stuck().await.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Queries the admin address and the control socket as an administrator does.
    pub async fn look(&self) {
        let admin = self.at("admin=");
        assert_eq!(fetch(admin, "/livez").await.unwrap(), "ok\n");
        let seen = snapshot(admin).await.unwrap();
        assert!(seen.ready && seen.shares.iter().any(|share| share.name == "ok"));
        assert!(headgate(self.home(), &["status", "--state", "state"]).await.status.success());
    }
}

impl Daemon {
    /// Kills the gateway and returns its folder.
    pub fn kill(mut self) -> tempfile::TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::mem::replace(&mut self.home, tempfile::tempdir().unwrap())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        // Requests to the hung file system keep the process until that is unmounted.
    }
}
