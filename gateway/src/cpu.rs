//! CPU time of processes, from `/proc`.

use std::fs;
use std::time::Duration;

/// CPU time that a process has used, user and system. `None` if there is no such process.
///
/// `/proc/PID/task/*/schedstat` counts nanoseconds but forgets threads that have ended; `/proc/PID/stat` counts all, in
/// hundredths of a second. The larger of the two is right to a tick, and to the nanosecond while threads live.
pub fn of(pid: u32) -> Option<Duration> {
    let ticks = of_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    let mut fine = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let ns = text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        fine += Duration::from_nanos(ns);
    }
    let tick = Duration::from_millis(20);
    Some(if fine + tick >= ticks { fine } else { ticks })
}

/// CPU time of this process.
pub fn own() -> Duration {
    of(std::process::id()).unwrap_or_default()
}

/// `utime` and `stime` of `/proc/PID/stat`, which counts hundredths of a second on every Linux.
fn of_stat(stat: &str) -> Option<Duration> {
    // The name in parentheses may hold spaces and parentheses; the fields behind it do not.
    let fields = stat.rsplit_once(')')?.1;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis((user + system).checked_mul(10)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        let stat = "7 (a) (b c) S 1 7 7 0 -1 4194304 1 2 3 4 150 25 0 0 20 0 1 0 99";
        assert_eq!(of_stat(stat), Some(Duration::from_millis(1750)));
        assert_eq!(of_stat("7 (a"), None);
    }

    #[test]
    fn this_process_uses_time() {
        let before = own();
        let mut x = 1u64;
        while own() < before + Duration::from_millis(30) {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(own() > before);
    }
}
