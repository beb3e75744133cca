//! Rights of this process on this host, and whether a gateway already serves on the same state.

use std::fs::{self, File, TryLockError};
use std::path::Path;

use config::Settings;

use crate::descriptors::Descriptors;

/// Capabilities by their numbers in capabilities(7), and the effect of each one's absence.
const CAPABILITIES: [(u32, &str, &str); 4] = [
    (6, "CAP_SETGID", "every call acts with this user's groups"),
    (7, "CAP_SETUID", "every call acts as this user, whichever user made it"),
    (2, "CAP_DAC_READ_SEARCH", "handles of files that move while the gateway is down become stale"),
    (10, "CAP_NET_BIND_SERVICE", "the gateway cannot listen on ports below 1024"),
];

/// CAP_SYS_RESOURCE: allows a process to raise its limits.
const SYS_RESOURCE: u32 = 24;

/// Rights and limits of the process.
#[derive(Debug)]
pub(super) struct Rights {
    effective: u64,
    /// Limit of open files, once `serve` has raised it as far as it may; `None`: unlimited.
    pub(super) files: Option<u64>,
    /// Limit of locked memory, in bytes, if it is known and finite.
    pub(super) memlock: Option<u64>,
}

impl Rights {
    /// Reads the rights of this process.
    pub(super) fn own() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let effective = capabilities(&status);
        let most = fs::read_to_string("/proc/sys/fs/nr_open").unwrap_or_default();
        let raised = most.trim().parse().ok().filter(|_| effective & (1 << SYS_RESOURCE) != 0);
        let files =
            limit(&limits, "Max open files", Kind::Hard).map(|hard| hard.max(raised.unwrap_or(0)));
        let memlock = limit(&limits, "Max locked memory", Kind::Soft);
        Self { effective, files, memlock }
    }

    fn has(&self, number: u32) -> bool {
        self.effective & (1 << number) != 0
    }

    /// Returns whether each call can act as the user that made it.
    pub(super) fn acts_as_caller(&self) -> bool {
        self.has(6) && self.has(7)
    }

    /// Returns the missing capabilities, by name, with their effects.
    pub(super) fn missing(&self) -> Vec<(&'static str, &'static str)> {
        let missing = CAPABILITIES.iter().filter(|(number, ..)| !self.has(*number));
        missing.map(|(_, name, meaning)| (*name, *meaning)).collect()
    }

    /// Returns the number of connections that this configuration can have.
    pub(super) fn connections(&self, settings: &Settings) -> usize {
        Descriptors::of(settings, self.files.unwrap_or(u64::MAX)).connections
    }

    /// Describes a limit of open files that is too low for this configuration's connections.
    pub(super) fn too_few_files(&self, settings: &Settings) -> Option<String> {
        let limit = self.files?;
        let (asked, let_in) = (settings.connections, self.connections(settings));
        (let_in < asked).then(|| {
            format!(
                "{let_in} connections are admitted, fewer than the {asked} of `connections`, because this process may open at \
                 most {limit} files; raise `ulimit -Hn`, or LimitNOFILE= in the unit"
            )
        })
    }
}

/// Parses the line `CapEff` of /proc/self/status.
fn capabilities(status: &str) -> u64 {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

/// Soft limit, which applies, and hard limit, up to which a process may raise the soft one.
#[derive(Clone, Copy)]
enum Kind {
    Soft,
    Hard,
}

/// Parses a limit of /proc/self/limits; `None`: unlimited.
fn limit(limits: &str, name: &str, kind: Kind) -> Option<u64> {
    let line = limits.lines().find_map(|l| l.strip_prefix(name))?;
    line.split_whitespace().nth(kind as usize)?.parse().ok()
}

/// Returns the lowest port on this host that needs no privileges.
pub(super) fn first_unprivileged_port() -> Option<u16> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").ok()?;
    text.trim().parse().ok()
}

/// Returns whether a gateway holds the lock of this state folder.
pub(super) fn serves_already(state: &Path) -> bool {
    let lock = File::open(state.join("lock"));
    lock.is_ok_and(|f| matches!(f.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_read_from_the_kernels_text() {
        let status = "Name:\tx\nCapInh:\t0000000000000000\nCapEff:\t00000000000004c4\n";
        let rights = Rights { effective: capabilities(status), files: Some(100), memlock: None };
        assert!(rights.acts_as_caller() && rights.missing().is_empty());
        let none = Rights { effective: 0, files: None, memlock: None };
        assert!(!none.acts_as_caller());
        assert_eq!(none.missing().len(), CAPABILITIES.len());
        let settings = Settings { connections: 1000, ..Settings::default() };
        assert!(rights.too_few_files(&settings).unwrap().contains("at most 100 files"));
        assert_eq!(rights.connections(&settings), 4);
        assert_eq!(none.too_few_files(&settings), None);
    }

    #[test]
    fn limits_are_read_from_the_kernels_text() {
        let text = "Limit                     Soft Limit           Hard Limit           Units\n\
            Max open files            1024                 4096                 files\n\
            Max locked memory         unlimited            unlimited            bytes\n";
        assert_eq!(limit(text, "Max open files", Kind::Soft), Some(1024));
        assert_eq!(limit(text, "Max open files", Kind::Hard), Some(4096));
        assert_eq!(limit(text, "Max locked memory", Kind::Soft), None);
    }

    #[test]
    fn a_gateway_that_runs_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!serves_already(folder.path()));
        let lock = File::create(folder.path().join("lock")).unwrap();
        assert!(!serves_already(folder.path()));
        lock.lock().unwrap();
        assert!(serves_already(folder.path()));
    }
}
