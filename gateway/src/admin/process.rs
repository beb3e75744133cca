//! Resource use of this process, under the names of Prometheus' own clients (`process_*`).
//!
//! *Operation.* Reads `/proc/self` (proc(5)) at each request.
//!
//! *Errors.* A value that cannot be read is `None`, and appears in no metric.

use std::fs;

use serde::{Deserialize, Serialize};

/// Resource use of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Milliseconds of processor time, user's and system's.
    pub cpu_milliseconds: Option<u64>,
    /// Bytes of memory that are resident.
    pub resident_bytes: Option<u64>,
    /// Bytes of address space.
    pub virtual_bytes: Option<u64>,
    /// Descriptors that are open.
    pub open_fds: Option<u64>,
    /// Of these, files that clients hold, connections and pipes: what grows with clients, and is bounded.
    #[serde(default)]
    pub counted_fds: Option<u64>,
    /// Descriptors that may be open.
    pub max_fds: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
    /// When it began, in seconds since 1970-01-01 00:00 UTC.
    pub start_seconds: Option<u64>,
}

impl ProcessStatus {
    /// Reads the current values of this process.
    pub fn own() -> Self {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let (stat, machine) = (read("/proc/self/stat"), read("/proc/stat"));
        let status = read("/proc/self/status");
        let kib = |name: &str| field(&status, name)?.checked_mul(1024);
        let ticks = rustix::param::clock_ticks_per_second();
        let at = |n: usize| nth(&stat, n);
        let milliseconds = |ticks_of: u64| (ticks_of * 1000).checked_div(ticks);
        let booted = machine.lines().find_map(|l| l.strip_prefix("btime "));
        let booted = booted.and_then(|s| s.trim().parse::<u64>().ok());
        Self {
            cpu_milliseconds: at(14).zip(at(15)).and_then(|(user, own)| milliseconds(user + own)),
            resident_bytes: kib("VmRSS:"),
            virtual_bytes: kib("VmSize:"),
            // Do not count the descriptor that reads the folder.
            open_fds: fs::read_dir("/proc/self/fd")
                .ok()
                .map(|all| (all.count() as u64).saturating_sub(1)),
            counted_fds: None,
            max_fds: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
            threads: field(&status, "Threads:"),
            start_seconds: booted
                .zip(at(22))
                .and_then(|(b, since)| Some(b + since.checked_div(ticks)?)),
        }
    }
}

/// Returns a field of `/proc/PID/stat` by its number in proc(5). The second field is a name that may contain spaces and brackets.
fn nth(stat: &str, number: usize) -> Option<u64> {
    let behind = stat.rsplit_once(')')?.1;
    behind.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

/// Returns a number from `/proc/PID/status`.
fn field(status: &str, name: &str) -> Option<u64> {
    let rest = status.lines().find_map(|l| l.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen_and_what_it_takes() {
        let before = ProcessStatus::own();
        let held: Vec<fs::File> = (0..20).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        let after = ProcessStatus::own();
        assert!(after.open_fds > before.open_fds && after.open_fds < after.max_fds, "{after:?}");
        assert!(after.resident_bytes > Some(1 << 20) && after.resident_bytes < after.virtual_bytes);
        assert!(after.threads >= Some(1) && after.cpu_milliseconds >= before.cpu_milliseconds);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let age = now.as_secs().abs_diff(after.start_seconds.unwrap());
        assert!(age < 3600, "it began {age} s ago");
        drop(held);
    }

    #[test]
    fn a_name_with_brackets_and_spaces_moves_no_field() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 111 222 0 0 20 0 5 0 999 0";
        assert_eq!(
            (nth(stat, 14), nth(stat, 15), nth(stat, 22)),
            (Some(111), Some(222), Some(999))
        );
        assert_eq!((nth("", 14), nth(stat, 0)), (None, None));
    }
}
