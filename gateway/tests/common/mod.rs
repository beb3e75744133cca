//! A running gateway, and clients that connect to it.

#![allow(dead_code)] // Each test uses its part.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use client::connect::{self, Local};
use client::smb::{Options, Smb, User};
use client::target::Target;
use client::{Credential, NoCallbacks, Result, Rpc, Volume, mount};
use gateway::admin::show::fetch;
use gateway::admin::snapshot::Snapshot;

pub(crate) const PASSWORD: &str = "correct horse";

/// Returns the addresses of NFS, SMB and the admin page from the ready line of a gateway that runs in this folder.
pub(crate) fn listening(child: &mut Child, home: &Path) -> [SocketAddr; 3] {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let log = || fs::read_to_string(home.join("log")).unwrap_or_default();
    ["nfs=", "smb=", "admin="].map(|name| {
        let word = line.split_whitespace().find_map(|w| w.strip_prefix(name));
        let at: SocketAddr =
            word.unwrap_or_else(|| panic!("no {name} in `{line}`\n{}", log())).parse().unwrap();
        (Ipv4Addr::LOCALHOST, at.port()).into()
    })
}

/// A gateway with this configuration on all addresses; clients use IPv4.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) nfs: SocketAddr,
    pub(crate) smb: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) home: tempfile::TempDir,
}

impl Daemon {
    pub(crate) fn start(configuration: &str) -> Self {
        Self::start_by(&[], configuration)
    }

    /// Starts the gateway through a command that executes its remaining arguments.
    pub(crate) fn start_by(by: &[&str], configuration: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let password = home.path().join("password");
        fs::write(&password, PASSWORD).unwrap();
        fs::set_permissions(&password, Permissions::from_mode(0o600)).unwrap();
        let users = format!(
            "users: [{{name: alice, password_file: {}, uid: 0, gid: 0, groups: []}}]",
            password.display()
        );
        let usual = "bind: '::'\ndiscovery: off\nadmin: 127.0.0.1:0\nnfs: {port: 0, rdma_port: 0, portmap: off}\n\
                     smb: {port: 0, direct_port: 0}\n";
        fs::write(home.path().join("gw.yaml"), format!("{usual}{users}\n{configuration}\n"))
            .unwrap();
        let own =
            [env!("CARGO_BIN_EXE_headgate"), "serve", "--config", "gw.yaml", "--state", "state"];
        let words = [by, &own].concat();
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .current_dir(&home)
            .stdout(Stdio::piped())
            .stderr(File::create(home.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let [nfs, smb, admin] = listening(&mut child, home.path());
        Self { child, nfs, smb, admin, home }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    pub(crate) async fn status(&self) -> Snapshot {
        serde_json::from_str(&fetch(self.admin, "/status").await.unwrap()).unwrap()
    }

    /// Returns the output of `headgate status --json`.
    pub(crate) fn told_status(&self) -> Snapshot {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headgate"));
        command.args(["status", "--json", "--state", "state"]).current_dir(&self.home);
        serde_json::from_slice(&command.output().unwrap().stdout).unwrap()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap()
    }

    /// Sends MNT of a path with this credential, from an unprivileged port.
    pub(crate) async fn mount(&self, path: &str, cred: Credential) -> Result<()> {
        mount::mount(&self.rpc().await?, &cred, path).await.map(drop)
    }

    /// Sends UMNT of a path, likewise.
    pub(crate) async fn unmount(&self, path: &str, cred: Credential) -> Result<()> {
        mount::unmount(&self.rpc().await?, &cred, path).await
    }

    async fn rpc(&self) -> Result<Rpc> {
        let local = Local { reserved_port: false, ..Local::default() };
        connect::tcp(self.nfs, &local, Arc::new(NoCallbacks)).await
    }

    pub(crate) async fn volume(&self, share: &str) -> Result<Volume> {
        let at = format!("nfs://{}/{share}?version=4.1", self.nfs);
        let target: Target = at.parse().unwrap();
        Volume::open(&target, &Local::default(), Credential::sys(0, 0, &[])).await
    }

    pub(crate) async fn smb(
        &self,
        share: &str,
        user: &str,
        password: &str,
        options: Options,
    ) -> Result<Smb> {
        let (name, password) = (user.to_owned(), password.to_owned());
        let user = User { name, domain: String::new(), password };
        Smb::connect(self.smb, false, ("127.0.0.1", share), &user, options, &Local::default()).await
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
