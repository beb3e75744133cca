//! A separate network for each run: a namespace with tap devices, the gateway on one side, guests on the other.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sh::{Result, output};

const PREFIX: &str = "headgate-";

/// The first guest has two taps, so that it can be two clients; the second guest has one.
const TAPS: usize = 3;
pub(crate) const FIRST_GUEST: [usize; 2] = [0, 1];
pub(crate) const SECOND_GUEST: [usize; 1] = [2];
/// The address of servers in a guest.
pub(crate) const INSIDE: &str = "10.88.0.1";

/// A network namespace; removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) name: String,
}

impl Net {
    /// Creates it, after removing the namespaces of runs that were killed.
    pub(crate) fn new() -> Result<Net> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        remove_stale();
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let net = Net { name: format!("{PREFIX}{}-{number}", std::process::id()) };
        output(&["ip", "netns", "add", &net.name])?;
        net.ip("link set lo up")?;
        for n in 0..TAPS {
            let tap = tap(n);
            let made = ["ip", "netns", "exec", &net.name, "ip", "tuntap", "add", "dev", &tap];
            output(&[&made[..], &["mode", "tap"]].concat())?;
            net.ip(&format!("addr add {}/24 dev {tap}", host_address(n)))?;
            net.ip(&format!("link set {tap} up"))?;
        }
        Ok(net)
    }

    /// Runs `ip WORDS` in the namespace.
    pub(crate) fn ip(&self, words: &str) -> Result<()> {
        let mut all = vec!["ip", "-n", &self.name];
        all.extend(words.split(' '));
        output(&all).map(drop)
    }

    /// Lets guests reach each other through the namespace.
    pub(crate) fn forward(&self) -> Result<()> {
        self.output(&["sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"]).map(drop)
    }

    /// Runs a command in the namespace; returns its output.
    pub(crate) fn output(&self, words: &[&str]) -> Result<String> {
        output(&[&["ip", "netns", "exec", &self.name], words].concat())
    }

    /// Checks whether the guest on tap `n` answers at all: its kernel refuses a connection to a port without a listener.
    pub(crate) fn answers(&self, n: usize) -> bool {
        let knock = format!("exec 3<>/dev/tcp/{}/9", guest_address(n));
        let done = Command::new("ip")
            .args(["netns", "exec", &self.name, "timeout", "5", "bash", "-c", &knock])
            .output();
        done.is_ok_and(|d| String::from_utf8_lossy(&d.stderr).contains("refused"))
    }

    /// Returns a command in the namespace, killed when the thread that starts it ends.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "ip", "netns", "exec", &self.name, program]);
        command
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // The namespace may already be removed.
        let _ = output(&["ip", "netns", "del", &self.name]);
    }
}

/// Returns the name of tap device `n`, on the host's side.
pub(crate) fn tap(n: usize) -> String {
    format!("tap{n}")
}

/// Returns the gateway's address on tap `n`.
pub(crate) fn host_address(n: usize) -> String {
    format!("10.77.{n}.1")
}

/// Returns a second address of the gateway on tap `n`.
pub(crate) fn second_address(n: usize) -> String {
    format!("10.77.{n}.3")
}

/// Returns the guest's address on tap `n`.
pub(crate) fn guest_address(n: usize) -> String {
    format!("10.77.{n}.2")
}

fn remove_stale() {
    let Ok(list) = output(&["ip", "netns", "list"]) else { return };
    for name in list.lines().filter_map(|l| l.split(' ').next()) {
        let Some((pid, _)) = name.strip_prefix(PREFIX).and_then(|n| n.split_once('-')) else {
            continue;
        };
        if !Path::new(&format!("/proc/{pid}")).exists() {
            let _ = output(&["ip", "netns", "del", name]);
        }
    }
}
