//! Machines of a scenario: network namespaces on one bridge with the first guest, and an etcd.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::net::{FIRST_GUEST, Net, host_address, tap};
use crate::sh::{Result, output};

const BRIDGE: &str = "br0";
/// Longest wait on a machine under load for a step that is normally immediate.
const PATIENCE: Duration = Duration::from_secs(60);

/// The nodes, and the program that each of them runs.
#[derive(Debug)]
pub(super) struct Nodes<'a> {
    net: &'a Net,
    programs: Vec<Option<Child>>,
}

impl<'a> Nodes<'a> {
    /// Creates a bridge with the guest's taps, and this many nodes on it.
    pub(super) fn start(net: &'a Net, count: usize) -> Result<Nodes<'a>> {
        let nodes = Nodes { net, programs: (0..count).map(|_| None).collect() };
        net.ip(&format!("link add {BRIDGE} type bridge"))?;
        for n in FIRST_GUEST {
            net.ip(&format!("addr flush dev {}", tap(n)))?;
            net.ip(&format!("link set {} master {BRIDGE}", tap(n)))?;
        }
        net.ip(&format!("addr add {}/24 dev {BRIDGE}", host_address(0)))?;
        net.ip(&format!("link set {BRIDGE} up"))?;
        for node in 0..count {
            nodes.add(node)?;
        }
        Ok(nodes)
    }

    fn add(&self, node: usize) -> Result<()> {
        let (net, space) = (self.net, self.space(node));
        // `ip netns exec` mounts these files over this host's, as if the node were a separate machine.
        let own = Path::new("/etc/netns").join(&space);
        let failed = |e| format!("{}: {e}", own.display());
        fs::create_dir_all(&own).map_err(failed)?;
        let count = self.programs.len() as u128;
        let number = u128::from(std::process::id()) * count + node as u128;
        fs::write(own.join("machine-id"), format!("{number:032x}\n")).map_err(failed)?;
        output(&["ip", "netns", "add", &space])?;
        net.ip(&format!("link add n{node} type veth peer name eth0 netns {space}"))?;
        net.ip(&format!("link set n{node} master {BRIDGE} up"))?;
        self.ip(node, &format!("addr add 10.77.0.{}/24 dev eth0", 20 + node))?;
        self.ip(node, "link set eth0 up")?;
        self.ip(node, "link set lo up").map(drop)
    }

    fn space(&self, node: usize) -> String {
        // Named like a network of the lab, so that the same code removes it.
        format!("{}{node}", self.net.name)
    }

    /// Runs `ip WORDS` on the node.
    pub(super) fn ip(&self, node: usize, words: &str) -> Result<String> {
        let words: Vec<&str> = words.split(' ').collect();
        output(&[&["ip", "-n", &*self.space(node)], &*words].concat())
    }

    /// Runs a command on the node; returns its output.
    pub(super) fn output(&self, node: usize, words: &[&str]) -> Result<String> {
        output(&[&["ip", "netns", "exec", &*self.space(node)], words].concat())
    }

    /// Starts the program of the node; its output is appended to this file.
    pub(super) fn run(&mut self, node: usize, log: &Path, words: &[&str]) -> Result<()> {
        let log = fs::File::options().create(true).append(true).open(log);
        let mut run = Command::new("setpriv");
        run.args(["--pdeathsig", "KILL", "ip", "netns", "exec", &self.space(node)]).args(words);
        run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.map_err(|e| e.to_string())?);
        self.programs[node] = Some(run.spawn().map_err(|e| format!("node {node}: {e}"))?);
        Ok(())
    }

    pub(super) fn has_address(&self, node: usize, address: &str) -> bool {
        self.ip(node, "address").is_ok_and(|shown| shown.contains(&format!("{address}/")))
    }

    /// Sets the link of the node `up` or `down`.
    pub(super) fn link(&self, node: usize, state: &str) -> Result<()> {
        self.net.ip(&format!("link set n{node} {state}"))
    }

    /// Sends a signal to all processes of the node.
    pub(super) fn signal(&self, node: usize, signal: &str) {
        let pids = output(&["ip", "netns", "pids", &self.space(node)]).unwrap_or_default();
        for pid in pids.split_whitespace() {
            // The process may have ended meanwhile.
            let _ = output(&["kill", signal, pid]);
        }
    }

    /// Ends all processes of the node.
    pub(super) fn kill(&mut self, node: usize) {
        self.signal(node, "-KILL");
        if let Some(mut child) = self.programs[node].take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Asks the program of the node to end, without waiting for it.
    pub(super) fn terminate(&self, node: usize) -> Result<()> {
        let child = self.programs[node].as_ref().ok_or("the node runs nothing")?;
        output(&["kill", "-TERM", &child.id().to_string()]).map(drop)
    }

    /// Returns true if the program of the node has ended.
    pub(super) fn has_ended(&mut self, node: usize) -> bool {
        let child = self.programs[node].as_mut();
        child.is_none_or(|child| child.try_wait().is_ok_and(|status| status.is_some()))
    }
}

impl Drop for Nodes<'_> {
    fn drop(&mut self) {
        for node in 0..self.programs.len() {
            self.kill(node);
            // The link is deleted first: the namespace would keep it as long as a process there still ends.
            let _ = self.net.ip(&format!("link del n{node}"));
            let _ = output(&["ip", "netns", "del", &self.space(node)]);
            let _ = fs::remove_dir_all(Path::new("/etc/netns").join(self.space(node)));
        }
        // Restores the network for the next scenario.
        let _ = self.net.ip(&format!("link del {BRIDGE}"));
        for n in FIRST_GUEST {
            let _ = self.net.ip(&format!("addr replace {}/24 dev {}", host_address(n), tap(n)));
        }
    }
}

/// An etcd on the bridge.
#[derive(Debug)]
pub(super) struct Etcd(Child);

impl Etcd {
    pub(super) fn start(net: &Net, dir: &Path) -> Result<Etcd> {
        let (clients, peers) = (
            format!("http://{}:2379", host_address(0)),
            format!("http://{}:2380", host_address(0)),
        );
        let mut etcd = net.command("etcd");
        etcd.args(["--name", "m", "--initial-cluster", &format!("m={peers}")]);
        etcd.arg("--data-dir").arg(dir.join("etcd"));
        etcd.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        etcd.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        let log = fs::File::create(dir.join("etcd.log")).map_err(|e| e.to_string())?;
        let started = etcd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        started.map(Etcd).map_err(|e| format!("etcd: {e}"))
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn until(what: &str, mut is: impl FnMut() -> bool) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !is() {
        if Instant::now() > end {
            return Err(format!("waited in vain until {what}"));
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}
