//! The time until which this process may serve, in a cluster.
//!
//! *Operation.* A gateway of a cluster serves until its lease ends; each renewal extends it ([`serve_until`]). A process that was
//! suspended may resume after that, when another node serves the same files. So the lease is checked before a request is executed
//! and before bytes are sent ([`check`]), and if it has ended the process kills itself with SIGKILL: none of its code runs any
//! more, and the kernel sends only data already in sockets. If the process is suspended between that check and the following system
//! call, its write is not prevented here but by fencing.
//!
//! A gateway that leaves in order must close its storage sessions before it ends. Meanwhile it must not serve, so threads that
//! check the lease block ([`leave`]).
//!
//! *Memory.* One number. Outside a cluster the check is one relaxed load.
//!
//! *Errors.* An ended lease ends the process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use rustix::time::{ClockId, clock_gettime};

/// Marks a process outside a cluster, without a lease.
const FOR_EVER: u64 = u64::MAX;

/// End of the lease, in nanoseconds of `CLOCK_BOOTTIME`.
static UNTIL: AtomicU64 = AtomicU64::new(FOR_EVER);

/// The process is leaving in order.
static LEAVES: AtomicBool = AtomicBool::new(false);

/// Time since the machine was booted, in nanoseconds, including sleep.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nanos.unwrap_or(0))
}

/// Sets the end of the lease, as a time of `CLOCK_BOOTTIME`.
pub fn serve_until(until: Duration) {
    // The largest number means "no lease".
    let until = u64::try_from(until.as_nanos()).unwrap_or(FOR_EVER).min(FOR_EVER - 1);
    UNTIL.store(until, Ordering::Relaxed);
}

/// Stops serving: from now on every thread that calls [`check`] blocks until the process ends. The caller ends it soon, from a
/// thread that does not call it.
pub fn leave() {
    LEAVES.store(true, Ordering::Relaxed);
    // A thread that sees the ended lease also sees `LEAVES`.
    UNTIL.store(0, Ordering::Release);
}

/// Remaining time of the lease; `None` without a lease.
pub fn left() -> Option<Duration> {
    let until = UNTIL.load(Ordering::Acquire);
    (until != FOR_EVER).then(|| Duration::from_nanos(until.saturating_sub(now())))
}

/// Ends this process if its lease has ended, or blocks if it is leaving.
#[inline]
pub fn check() {
    // A renewal by another thread may be seen only at the next check.
    if UNTIL.load(Ordering::Relaxed) != FOR_EVER {
        end_if_over();
    }
}

#[inline(never)]
fn end_if_over() {
    if left().is_some_and(|left| left.is_zero()) {
        while LEAVES.load(Ordering::Relaxed) {
            std::thread::park();
        }
        end();
    }
}

/// Ends this process at once.
pub fn end() -> ! {
    // This thread executes no further code once the signal is pending.
    let _ = kill_process(getpid(), Signal::KILL);
    std::process::abort()
}
