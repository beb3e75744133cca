//! Checks that a guest is alive: sends alarms for its clock, and probes its network.
//!
//! On a machine with more work than processors, User Mode Linux (6.12) was seen to hang in two ways.
//!
//! First, its clock had no alarm set, because one was lost. An alarm from outside makes it read its clock again, and has no effect
//! otherwise.
//!
//! Second, its network failed, in three of some forty runs of `survive` under load. The driver of its tap (`vector_kern.c`) needs
//! 64 KiB for each packet, without waiting. When a copy had filled the memory, it tried to read the packet into `drop_buffer`,
//! which is never set: readv failed with EFAULT (seen by the host's tracing of system calls). After a read or write that failed
//! with an error other than EAGAIN or ENOBUFS the driver sets `in_error`, and `vector_net_start_xmit` takes the tap out of epoll
//! and answers NETDEV_TX_BUSY for ever: `ksoftirqd` retries without a pause, and no packet enters or leaves. Only taking the device
//! down clears it, which would cut RDMA connections too. tests/lab/init keeps memory free to avoid this. If a guest's network fails
//! nevertheless, the guest is examined from outside, the result is printed, and the scenario is repeated.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use super::guest::Guest;
use super::net::{guest_address, tap};
use crate::sh::output;

/// Pause between two alarms.
const ALARM: Duration = Duration::from_secs(1);
/// Pause between two probes.
const KNOCK: Duration = Duration::from_secs(10);
/// A network that answered once and then stays silent for this long counts as failed. A guest that only waits for a processor
/// answers now and then.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Longest time for a guest to boot until its network answers. One takes a second, ten on a machine with much other work.
const BOOT_MAX: Duration = Duration::from_secs(120);

/// Longest time for a guest to power off after it reported how its jobs ended: some hung there until their time limit, without any
/// message.
const POWER_OFF_MAX: Duration = Duration::from_secs(30);

/// Watches the guest that `started` runs, until `end` is closed; a message there means that its jobs have ended. True if its
/// network failed before, or never answered: then its kernel was ended, and its state printed.
pub(super) fn watch(guest: &Guest<'_>, started: u32, end: &Receiver<()>) -> bool {
    let mut silence = Silence::since(Instant::now());
    let mut next_knock = Instant::now() + KNOCK;
    let mut off_until = None;
    loop {
        match end.recv_timeout(ALARM) {
            Ok(()) => off_until = off_until.or(Some(Instant::now() + POWER_OFF_MAX)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
        }
        // The kernel has not started, or has just ended.
        let Some(kernel) = find_kernel(started, &guest.kernel) else { continue };
        alarm(kernel);
        if let Some(until) = off_until {
            if Instant::now() > until {
                println!("    the guest does not power off: ended");
                end_kernel(kernel);
                return false;
            }
            continue;
        }
        let Some(&first) = guest.taps.first() else { continue };
        if Instant::now() < next_knock {
            continue;
        }
        let answered = guest.net.answers(first);
        next_knock = Instant::now() + KNOCK;
        if !silence.is_over(answered, Instant::now()) {
            continue;
        }
        match end.try_recv() {
            // A guest that has ended meanwhile did not fail.
            Ok(()) => off_until = Some(Instant::now() + POWER_OFF_MAX),
            Err(TryRecvError::Disconnected) => {}
            Err(TryRecvError::Empty) => {
                look(guest, kernel, first);
                end_kernel(kernel);
                return true;
            }
        }
    }
}

/// Since when a guest does not answer.
#[derive(Debug)]
struct Silence {
    started: Instant,
    last_answer: Option<Instant>,
}

impl Silence {
    fn since(started: Instant) -> Self {
        Silence { started, last_answer: None }
    }

    /// Records the result of a probe; returns true if the guest has been silent for too long.
    fn is_over(&mut self, answered: bool, now: Instant) -> bool {
        if answered {
            self.last_answer = Some(now);
        }
        match self.last_answer {
            Some(then) => now.duration_since(then) > SILENCE_MAX,
            // It still boots.
            None => now.duration_since(self.started) > BOOT_MAX,
        }
    }
}

/// Prints what can be seen of a guest before it is given up.
fn look(guest: &Guest<'_>, kernel: u32, n: usize) {
    let (pid, tap, address) = (kernel.to_string(), tap(n), guest_address(n));
    let seen = output(&["tests/lab/look-at-guest", &pid, &guest.net.name, &tap, &address]);
    let seen = seen.unwrap_or_else(|why| why);
    seen.lines().for_each(|line| println!("    {line}"));
}

/// Returns the guest's kernel: the first process that runs this program, along the chain of single children of `started`.
fn find_kernel(started: u32, kernel: &Path) -> Option<u32> {
    let mut at = started;
    while fs::read_link(format!("/proc/{at}/exe")).ok()? != kernel {
        let children = fs::read_to_string(format!("/proc/{at}/task/{at}/children")).ok()?;
        at = children.split(' ').next()?.parse().ok()?;
    }
    Some(at)
}

fn end_kernel(kernel: u32) {
    let _ = Command::new("kill").args(["-KILL", &kernel.to_string()]).status();
}

fn alarm(kernel: u32) {
    if catches_alarms(kernel) {
        let pid = kernel.to_string();
        let _ = Command::new("kill").args(["-ALRM", &pid]).stderr(Stdio::null()).status();
    }
}

/// Checks that a process handles SIGALRM; otherwise the signal would end it, like the kernel early at its boot.
fn catches_alarms(pid: u32) -> bool {
    const SIGALRM: u32 = 14;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & 1 << (SIGALRM - 1) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarm_sent_only_to_handlers() {
        // This program has no handler for the signal, and the other numbers are no processes.
        for pid in [std::process::id(), 0, u32::MAX] {
            assert!(!catches_alarms(pid), "{pid}");
        }
    }

    #[test]
    fn kernel_found_by_its_program() {
        let me = std::process::id();
        let program = std::env::current_exe().unwrap();
        assert_eq!(find_kernel(me, &program), Some(me));
        assert_eq!(find_kernel(u32::MAX, &program), None);
    }

    #[test]
    fn network_silent_after_answer_is_dead() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let mut silence = Silence::since(begun);
        assert!(!silence.is_over(false, after(100)), "it boots");
        assert!(!silence.is_over(true, after(101)));
        assert!(!silence.is_over(false, after(160)), "it may only wait for a processor");
        assert!(!silence.is_over(true, after(161)));
        assert!(!silence.is_over(false, after(220)));
        assert!(silence.is_over(false, after(222)));
    }

    #[test]
    fn guest_that_never_answers_is_dead() {
        let begun = Instant::now();
        let mut silence = Silence::since(begun);
        assert!(!silence.is_over(false, begun + BOOT_MAX));
        assert!(silence.is_over(false, begun + BOOT_MAX + Duration::from_secs(1)));
    }
}
