//! CPU time of processes, from `/proc`.

use std::fs;
use std::time::Duration;

/// Returns the user and system CPU time of a process and all its descendants: a server may have a process for each client. Fails if
/// no such process exists.
///
/// `/proc/PID/task/*/schedstat` counts nanoseconds but forgets threads that have ended; `/proc/PID/stat` counts all, in hundredths
/// of a second. The larger of the two is right to a tick, and to the nanosecond while threads live.
pub fn of(pid: u32) -> Option<Duration> {
    let (ticks, mut sum) = of_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    let mut fine = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let read = |file| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let ns = read("schedstat").split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        fine += Duration::from_nanos(ns);
        let children = read("children");
        // A child may have ended meanwhile; then its parent's time includes its own.
        sum +=
            children.split_whitespace().filter_map(|pid| of(pid.parse().ok()?)).sum::<Duration>();
    }
    let tick = Duration::from_millis(20);
    sum += if fine + tick >= ticks { fine } else { ticks };
    Some(sum)
}

/// Returns the CPU time of this process.
pub fn own() -> Duration {
    of(std::process::id()).unwrap_or_default()
}

/// Parses `utime` and `stime` of `/proc/PID/stat`, and the same of children that have ended. They count hundredths of a second on
/// every Linux.
fn of_stat(stat: &str) -> Option<(Duration, Duration)> {
    // The name in parentheses may contain spaces and parentheses; the fields behind it do not.
    let fields = stat.rsplit_once(')')?.1;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut both = || {
        let (user, system): (u64, u64) =
            (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(Duration::from_millis((user + system).checked_mul(10)?))
    };
    Some((both()?, both()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        let stat = "7 (a) (b c) S 1 7 7 0 -1 4194304 1 2 3 4 150 25 3 1 20 0 1 0 99";
        let times = (Duration::from_millis(1750), Duration::from_millis(40));
        assert_eq!(of_stat(stat), Some(times));
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
    #[test]
    fn what_a_child_used_counts_while_it_lives_and_afterwards() {
        let mut shell = std::process::Command::new("sh")
            .args([
                "-c",
                "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; read x'; read x",
            ])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let used = || of(shell.id()).unwrap();
        while used() < Duration::from_millis(30) {
            std::thread::yield_now();
        }
        let before = used();
        let mut input = shell.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, b"go\n").unwrap();
        while !fs::read_to_string(format!("/proc/{0}/task/{0}/children", shell.id()))
            .unwrap()
            .is_empty()
        {
            std::thread::yield_now();
        }
        // The counters are exact to one tick each.
        assert!(of(shell.id()).unwrap() + Duration::from_millis(20) >= before);
        drop(input);
        shell.wait().unwrap();
    }
}
