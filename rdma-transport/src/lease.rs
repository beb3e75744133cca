//! Until when this process may serve.
//!
//! *Operation.* A gateway of a cluster serves until its lease ends; each renewal moves that time on ([`serve_until`]). A
//! process that stood still may wake after it, when another node serves the same files. So the time is looked at before a
//! request is carried out and before bytes go to a peer ([`check`]), and when it has passed the process ends itself by SIGKILL:
//! nothing of it runs any more, and the kernel sends nothing that was not with a socket already. A process that is stopped
//! between that look and the system call after it is not caught: what it writes then is for the fence.
//!
//! A gateway that lets go in order has sessions with its storage to end before it ends. Nothing else may happen meanwhile, neither
//! to files nor to clients, so threads that look at the time then stand still ([`leave`]).
//!
//! *Memory.* One number. Outside a cluster the check is one relaxed load.
//!
//! *Errors.* None: a time that has passed ends the process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use rustix::time::{ClockId, clock_gettime};

/// No lease: the process is of no cluster.
const FOR_EVER: u64 = u64::MAX;

/// Nanoseconds of `CLOCK_BOOTTIME`.
static UNTIL: AtomicU64 = AtomicU64::new(FOR_EVER);

/// Its time is over by its own will.
static LEAVES: AtomicBool = AtomicBool::new(false);

/// Time since the machine was started, in nanoseconds; it goes on while the machine sleeps.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nanos.unwrap_or(0))
}

/// Lets this process serve until this time of `CLOCK_BOOTTIME`, instead of what was said before.
pub fn serve_until(until: Duration) {
    // The largest number stands for no lease.
    let until = u64::try_from(until.as_nanos()).unwrap_or(FOR_EVER).min(FOR_EVER - 1);
    UNTIL.store(until, Ordering::Relaxed);
}

/// From here on no request is carried out or answered: whoever looks at the time waits for the end of this process, which is to
/// come soon, and which nobody who looks at the time brings about.
pub fn leave() {
    LEAVES.store(true, Ordering::Relaxed);
    // Whoever sees this sees that as well.
    UNTIL.store(0, Ordering::Release);
}

/// How long this process may serve; `None`: as long as it runs.
pub fn left() -> Option<Duration> {
    let until = UNTIL.load(Ordering::Acquire);
    (until != FOR_EVER).then(|| Duration::from_nanos(until.saturating_sub(now())))
}

/// Ends this process if its time is over, or waits for its end where it leaves.
#[inline]
pub fn check() {
    // A renewal that another thread has just heard of is seen at the next look.
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

/// Ends this process at once: it may not serve any more.
pub fn end() -> ! {
    // Of this thread nothing runs once the signal is pending.
    let _ = kill_process(getpid(), Signal::KILL);
    std::process::abort()
}
