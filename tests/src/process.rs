//! What this process uses.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Resident memory in bytes.
#[allow(clippy::expect_used)] // Linux always has these.
pub fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("VmRSS");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of KiB");
    kib << 10
}

/// Lets this process open as many files as the system lets it.
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // A process that may not raise it finds out when it opens too many.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
