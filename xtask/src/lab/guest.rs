//! One guest: runs the lab's kernel as a program, and reads its console line by line.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use super::net::{Net, guest_address, host_address, tap};
use super::pulse;
use crate::sh::{Result, Tally, workspace};

/// Text of a failure when the guest's network no longer answers.
pub(crate) const NETWORK_DEAD: &str = "the guest's network is dead";

/// Description of a guest to boot.
#[derive(Debug)]
pub(crate) struct Guest<'a> {
    pub(crate) kernel: PathBuf,
    pub(crate) net: &'a Net,
    /// The taps of the guest, as vec0, vec1 and so on.
    pub(crate) taps: &'a [usize],
    /// A folder of the host, writable in the guest as /scratch.
    pub(crate) scratch: PathBuf,
    pub(crate) memory: &'a str,
    pub(crate) seconds_max: u32,
    /// Environment of the guest's jobs.
    pub(crate) env: Vec<(&'a str, String)>,
    pub(crate) verbose: bool,
}

impl Guest<'_> {
    /// Boots the guest, runs it, and counts its checks. `on_host` is called for each line in which the guest sends a request to the
    /// host.
    pub(crate) fn run(
        &self,
        label: &str,
        mut on_host: impl FnMut(&str) -> Result<()>,
    ) -> Result<Tally> {
        let mut child = self
            .command()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("cannot boot {}: {e}", self.kernel.display()))?;
        let stdout = child.stdout.take().ok_or("no console")?;
        let mut console = Console { label, verbose: self.verbose, ..Console::default() };
        let dead = thread::scope(|scope| {
            let (ended, end) = mpsc::channel::<()>();
            let started = child.id();
            let watch = scope.spawn(move || pulse::watch(self, started, &end));
            for line in BufReader::new(stdout).split(b'\n') {
                let line = line.map_err(|e| format!("console: {e}"))?;
                if let Some(words) = console.line(String::from_utf8_lossy(&line).trim_end()) {
                    let done = on_host(&words);
                    console.tally.count(&format!("{label}/host: {words}"), done);
                }
                if console.exit.is_some() {
                    let _ = ended.send(());
                }
            }
            drop(ended);
            watch.join().map_err(|_| "the watch broke down".to_owned())
        })?;
        child.wait().map_err(|e| format!("guest: {e}"))?;
        let mut tally = console.end(self.seconds_max);
        if dead {
            tally.fail(format!("{label}/guest: {NETWORK_DEAD}"));
        }
        Ok(tally)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("setpriv");
        let limit = self.seconds_max.to_string();
        // A guest consists of several processes; in a separate PID namespace they all end with the first.
        command
            .args(["--pdeathsig", "KILL", "timeout", "-s", "KILL", &limit])
            .args(["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", &self.net.name])
            .args(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .arg(&self.kernel)
            .args([
                "rootfstype=hostfs",
                "rootflags=/",
                "ro",
                "quiet",
                "con=null",
                "con0=fd:0,fd:1",
            ]);
        let lab = workspace().join("tests/lab");
        command.arg(format!("init={}", lab.join("init").display()));
        command.arg(format!("LAB={}", lab.display()));
        command.arg(format!("SCRATCH={}", self.scratch.display()));
        command.arg(format!("mem={}", self.memory));
        for (i, n) in self.taps.iter().enumerate() {
            command.arg(format!("vec{i}:transport=tap,ifname={},depth=128,gro=1", tap(*n)));
        }
        if let Some(n) = self.taps.first() {
            command.arg(format!("ADDR={}/24", guest_address(*n)));
            command.arg(format!("SERVER={}", host_address(*n)));
        }
        command.args(self.env.iter().map(|(name, value)| format!("{name}={value}")));
        command
    }
}

/// Reads the console's lines; tests/lab/guest/lab.py defines the lines with a meaning.
#[derive(Debug, Default)]
struct Console<'a> {
    label: &'a str,
    verbose: bool,
    tally: Tally,
    /// The check that has begun and not ended.
    at: Option<String>,
    exit: Option<i32>,
    /// Other lines of the console, to be shown after a failure.
    other: Vec<String>,
}

impl Console<'_> {
    /// Handles one line; returns the words of a request to the host.
    fn line(&mut self, line: &str) -> Option<String> {
        if self.verbose && !line.is_empty() {
            println!("    {line}");
        }
        if let Some(name) = line.strip_prefix("@at ") {
            self.at = Some(name.to_owned());
        } else if line.starts_with("ok ") {
            self.tally.passed += 1;
            self.at = None;
        } else if let Some(what) = line.strip_prefix("not ok ") {
            self.tally.fail(what.to_owned());
            self.at = None;
        } else if let Some(took) = line.strip_prefix("@took ") {
            println!("   {took} s");
        } else if let Some(code) = line.strip_prefix("GUEST_EXIT=") {
            self.exit = code.trim().parse().ok();
        } else if let Some(words) = line.strip_prefix("@host ") {
            return Some(words.to_owned());
        } else if !line.trim().is_empty() && !line.contains("initialize ubd") {
            self.other.push(line.to_owned());
        }
        None
    }

    /// Ends the reading. A guest that stopped early, or that ended with an error but without a failed check, counts as a failure.
    fn end(mut self, seconds_max: u32) -> Tally {
        let failed = !self.tally.failures.is_empty();
        let why = match (self.exit, &self.at) {
            (None, Some(at)) => {
                Some(format!("did not end within {seconds_max} s, or broke down, in {at}"))
            }
            (None, None) => Some(format!("did not end within {seconds_max} s, or broke down")),
            (Some(0), _) if self.tally.passed == 0 => Some("ran no check".into()),
            (Some(0), _) => None,
            (Some(_), _) if failed => None,
            (Some(code), _) => Some(format!("ended with {code}")),
        };
        if let Some(why) = why {
            self.tally.fail(format!("{}/guest: {why}", self.label));
        }
        if !self.tally.failures.is_empty() && !self.verbose {
            self.other.iter().rev().take(40).rev().for_each(|line| println!("    {line}"));
        }
        self.tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Tally {
        let mut console = Console { label: "x", ..Console::default() };
        for line in lines {
            console.line(line);
        }
        console.end(9)
    }

    #[test]
    fn checks_are_counted() {
        let tally = read(&["@at a", "ok a", "@at b", "not ok b: why", "noise", "GUEST_EXIT=1"]);
        assert_eq!((tally.passed, tally.failures), (1, vec!["b: why".to_owned()]));
    }

    #[test]
    fn hung_guest_names_the_check() {
        let tally = read(&["@at a", "ok a", "@at b"]);
        assert_eq!(tally.passed, 1);
        assert!(tally.failures[0].contains("in b"), "{:?}", tally.failures);
    }

    #[test]
    fn guest_without_checks_fails() {
        assert_eq!(read(&["GUEST_EXIT=0"]).failures.len(), 1);
        assert_eq!(read(&["ok a", "GUEST_EXIT=3"]).failures.len(), 1);
        assert_eq!(read(&["ok a", "GUEST_EXIT=0"]).failures.len(), 0);
    }

    #[test]
    fn requests_to_the_host_come_out() {
        let mut console = Console::default();
        assert_eq!(console.line("@host kill-gateway"), Some("kill-gateway".into()));
        assert_eq!(console.line("hello"), None);
    }
}
