//! Resources of this process.

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

/// Raises the limit on open files as far as the system allows.
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // If that is not permitted, opening too many files fails later.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
