//! The gateway as a separate process, and its measurements.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use gateway::admin::show::snapshot;
use gateway::control::client::{files, reload};

pub const PASSWORD: &str = "correct horse";

pub struct Daemon {
    child: Child,
    pub nfs: SocketAddr,
    pub nfs_rdma: SocketAddr,
    pub smb: SocketAddr,
    pub smb_rdma: SocketAddr,
    admin: SocketAddr,
    home: tempfile::TempDir,
}

/// Returns a configuration with short times, so that leftovers of clients expire within the soak. Lines use any source port.
/// `more` adds one share.
fn configuration(home: &Path, more: bool) -> String {
    let more = if more { ", {name: extra, memory: true}" } else { "" };
    format!(
        "shares: [{{name: data, path: {data}, squash: none}}, \
         {{name: scratch, path: {scratch}, squash: none, durability: relaxed}}, {{name: mem, memory: true, squash: none}}{more}]\n\
         bind: 127.0.0.1\nadmin: 127.0.0.1:0\nprivileged_ports: off\nrdma: iwarp\nrecall: 2s\n\
         nfs: {{port: 0, rdma_port: 0, portmap: off, lease: 4s, grace: 4s, courtesy: 2s}}\n\
         smb: {{port: 0, direct_port: 0, signing: offered}}\nlog: {{level: warn}}\n\
         users: [{{name: alice, password_file: {password}, uid: 0, gid: 0, groups: []}}]\n",
        data = home.join("data").display(),
        scratch = home.join("scratch").display(),
        password = home.join("password").display(),
    )
}

impl Daemon {
    pub fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        for share in ["data", "scratch"] {
            fs::create_dir(home.path().join(share)).unwrap();
        }
        let password = home.path().join("password");
        fs::write(&password, PASSWORD).unwrap();
        fs::set_permissions(&password, Permissions::from_mode(0o600)).unwrap();
        fs::write(home.path().join("gw.yaml"), configuration(home.path(), false)).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_headgate"))
            .args(["serve", "--config", "gw.yaml", "--state", "state"])
            .env(gateway::cli::WATCHDOG, "1")
            .current_dir(&home)
            .stdout(Stdio::piped())
            .stderr(File::create(home.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let log = || fs::read_to_string(home.path().join("log")).unwrap_or_default();
        let at = |name: &str| -> SocketAddr {
            let word = line.split_whitespace().find_map(|w| w.strip_prefix(name));
            word.unwrap_or_else(|| panic!("no {name} in `{line}`\n{}", log())).parse().unwrap()
        };
        let (nfs, smb, admin) = (at("nfs="), at("smb="), at("admin="));
        let (nfs_rdma, smb_rdma) = (at("nfs-rdma="), at("smb-direct="));
        Self { child, nfs, nfs_rdma, smb, smb_rdma, admin, home }
    }

    /// Reloads a configuration with or without one more share.
    pub async fn reload(&self, more: bool) {
        let home = self.home.path();
        fs::write(home.join("gw.yaml"), configuration(home, more)).unwrap();
        reload(&home.join("state"), true)
            .await
            .map(drop)
            .unwrap_or_else(|e| panic!("reload: {e:?}"));
    }

    /// Returns log lines about faults of the gateway itself.
    pub fn faults(&self) -> Vec<String> {
        let log = fs::read_to_string(self.log()).unwrap();
        let is_fault = |l: &&str| l.contains("panicked") || l.contains(" ERROR ");
        log.lines().filter(is_fault).map(str::to_owned).collect()
    }

    /// Returns log lines about operations that held a worker for too long.
    pub fn slow(&self) -> Vec<String> {
        let log = fs::read_to_string(self.log()).unwrap();
        let is_slow = |l: &&str| l.contains("an operation held a worker for too long");
        log.lines().filter(is_slow).map(str::to_owned).collect()
    }

    fn log(&self) -> PathBuf {
        self.home.path().join("log")
    }

    /// Returns the number of descriptors that are not files of clients, connections or pipes: the budget has a reserve for these.
    pub async fn uncounted(&self) -> u64 {
        let process = snapshot(self.admin).await.unwrap().process;
        process.open_fds.unwrap().saturating_sub(process.counted_fds.unwrap())
    }

    pub async fn figures(&self) -> Figures {
        let proc = |file: &str| format!("/proc/{}/{file}", self.child.id());
        let status = fs::read_to_string(proc("status")).unwrap();
        let of = |name: &str| -> u64 {
            let line = status.lines().find_map(|l| l.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        let seen = snapshot(self.admin).await.unwrap();
        // The table has one line for each file that a client holds.
        let held = files(&self.home.path().join("state"), true)
            .await
            .unwrap_or_else(|e| panic!("files: {e:?}"));
        let held: serde_json::Value = serde_json::from_str(&held).unwrap();
        Figures {
            descriptors: fs::read_dir(proc("fd")).unwrap().count() as u64,
            resident_kib: of("VmRSS:"),
            threads: of("Threads:"),
            connections: seen.connections.len() as u64,
            held: held["files"].as_array().map_or(0, |all| all.len() as u64),
            held_files: seen.state.nodes,
            cached_files: seen.state.grants,
            locks: seen.state.locks,
            nfs4_clients: seen.nfs4.clients,
            lapsed_states: seen.nfs4.lapsed_states,
            reply_bytes: seen.nfs4.reply_bytes,
            smb_sessions: seen.smb.sessions,
            smb_opens: seen.smb.opens,
            buffers: seen.pool.iter().map(|class| class.used).sum(),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Resources of the process, and its state for clients.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    descriptors: u64,
    resident_kib: u64,
    threads: u64,
    connections: u64,
    held: u64,
    held_files: u64,
    cached_files: u64,
    locks: u64,
    nfs4_clients: u64,
    lapsed_states: u64,
    reply_bytes: u64,
    smb_sessions: u64,
    smb_opens: u64,
    buffers: u64,
}

/// Tolerance for descriptors: logs of threads and of the store are opened and closed at any time.
const DESCRIPTORS_MORE: u64 = 8;
/// Tolerance for threads, which start with work and end some time after it.
const THREADS_MORE: u64 = 32;
/// Tolerance for resident memory, in addition to a tenth of the value at the start: the allocator keeps some freed memory.
const KIB_MORE: u64 = 16 << 10;

impl Figures {
    /// Returns name, value, and tolerance above the value at the start.
    fn rows(&self) -> [(&'static str, u64, u64); 14] {
        [
            ("descriptors", self.descriptors, DESCRIPTORS_MORE),
            ("resident memory, KiB", self.resident_kib, KIB_MORE + self.resident_kib / 10),
            ("threads", self.threads, THREADS_MORE),
            ("connections", self.connections, 0),
            ("files by `headgate files`", self.held, 0),
            ("files held", self.held_files, 0),
            ("files cached", self.cached_files, 0),
            ("locks", self.locks, 0),
            ("clients of NFSv4", self.nfs4_clients, 0),
            ("states of silent clients", self.lapsed_states, 0),
            ("bytes of kept replies", self.reply_bytes, 0),
            ("sessions of SMB", self.smb_sessions, 0),
            ("opens of SMB", self.smb_opens, 0),
            ("buffers in use", self.buffers, 0),
        ]
    }

    /// Returns true if the gateway keeps no state for clients.
    pub fn is_quiet(&self) -> bool {
        self.rows().into_iter().skip(3).all(|(_, now, _)| now == 0)
    }

    /// Returns the rows in which `self` exceeds `start` by more than the tolerance.
    pub fn above(&self, start: &Self) -> Vec<&'static str> {
        let both = start.rows().into_iter().zip(self.rows());
        both.filter(|((_, was, more), (_, is, _))| *is > was + more)
            .map(|((name, ..), _)| name)
            .collect()
    }

    /// Returns a table with start and end next to each other.
    pub fn table(&self, start: &Self) -> String {
        let head = format!("{:28} {:>10} {:>10} {:>12}\n", "", "start", "end", "at most");
        start.rows().into_iter().zip(self.rows()).fold(
            head,
            |text, ((name, was, more), (_, is, _))| {
                text + &format!("{name:28} {was:>10} {is:>10} {:>12}\n", was + more)
            },
        )
    }
}
