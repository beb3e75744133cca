//! Detects operations that occupy a worker of the runtime for longer than [`HELD_MAX`].
//!
//! *Operation.* Each poll of a connection's task is measured in processor time of its thread, so that preemption on a busy machine
//! does not count. Protocols name each operation at its start ([`operation`]); a long poll is attributed to the operation that took
//! most of it. Active in debug builds, and after [`turn_on`], which the soak calls.
//!
//! *Memory.* One entry for each name; names are constants of this program.
//!
//! *Errors.* A warning in the log, at most once a second for each name, and a count.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mutex::locked;
use rustix::time::{ClockId, clock_gettime};

/// Maximum processor time of one poll.
pub const HELD_MAX: Duration = Duration::from_millis(10);
/// Interval between two log lines of one operation.
const TOLD_AGAIN: Duration = Duration::from_secs(1);
/// The name for time that no operation claimed.
const UNNAMED: &str = "between operations";

static IS_ON: AtomicBool = AtomicBool::new(cfg!(debug_assertions));
static SLOW: Mutex<BTreeMap<&'static str, Slow>> = Mutex::new(BTreeMap::new());

/// Statistics of long polls of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slow {
    pub polls: u64,
    /// Processor time of the longest poll.
    pub longest: Duration,
    told: Option<Instant>,
}

/// The current poll of this thread.
#[derive(Clone, Copy)]
struct Running {
    /// Processor time of the thread at the start of the poll, and at the start of the current operation.
    began: Duration,
    current_began: Duration,
    current: &'static str,
    /// The longest operation so far.
    longest: (Duration, &'static str),
}

thread_local! {
    static RUNNING: Cell<Option<Running>> = const { Cell::new(None) };
}

/// Activates the watchdog, also in a release build.
pub fn turn_on() {
    IS_ON.store(true, Ordering::Relaxed);
}

fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Operations with long polls since the process began.
pub fn slow() -> Vec<(&'static str, Slow)> {
    locked(&SLOW).iter().map(|(name, slow)| (*name, *slow)).collect()
}

/// Marks the start of an operation on this thread.
#[inline]
pub fn operation(name: &'static str) {
    if is_on() {
        begin_operation(name);
    }
}

#[inline(never)]
fn begin_operation(name: &'static str) {
    if let Some(mut running) = RUNNING.get() {
        running.switch(name, processor_time());
        RUNNING.set(Some(running));
    }
}

impl Running {
    /// Switches to another operation.
    fn switch(&mut self, name: &'static str, now: Duration) {
        let took = now.saturating_sub(self.current_began);
        if took > self.longest.0 {
            self.longest = (took, self.current);
        }
        (self.current, self.current_began) = (name, now);
    }
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

/// Measures one poll, until dropped.
pub(crate) struct Poll(());

impl Poll {
    /// Starts measuring; `None` if the watchdog is inactive.
    #[inline]
    pub(crate) fn begin() -> Option<Self> {
        is_on().then(|| {
            let now = processor_time();
            let longest = (Duration::ZERO, UNNAMED);
            RUNNING.set(Some(Running {
                began: now,
                current_began: now,
                current: UNNAMED,
                longest,
            }));
            Self(())
        })
    }
}

impl Drop for Poll {
    fn drop(&mut self) {
        let Some(mut running) = RUNNING.take() else { return };
        let now = processor_time();
        running.switch(UNNAMED, now);
        let took = now.saturating_sub(running.began);
        if took > HELD_MAX {
            note(running.longest.1, took);
        }
    }
}

fn note(operation: &'static str, took: Duration) {
    let now = Instant::now();
    let mut all = locked(&SLOW);
    let fresh = Slow { polls: 0, longest: Duration::ZERO, told: None };
    let slow = all.entry(operation).or_insert(fresh);
    slow.polls += 1;
    slow.longest = slow.longest.max(took);
    let is_told_again = slow.told.is_none_or(|at| now.duration_since(at) >= TOLD_AGAIN);
    if is_told_again {
        slow.told = Some(now);
    }
    let polls = slow.polls;
    drop(all);
    if is_told_again {
        tracing::warn!(operation, ?took, polls, "an operation held a worker for too long");
    }
}

/// Uses this much processor time.
#[cfg(test)]
pub(crate) fn spin(time: Duration) {
    let until = processor_time() + time;
    while processor_time() < until {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polls(name: &str) -> u64 {
        slow().iter().find(|(n, _)| *n == name).map_or(0, |(_, slow)| slow.polls)
    }

    #[test]
    fn long_poll_counts_for_longest_operation() {
        let poll = Poll::begin();
        operation("short");
        spin(Duration::from_millis(1));
        operation("long");
        spin(HELD_MAX);
        operation("short again");
        drop(poll);
        assert_eq!((polls("short"), polls("long"), polls("short again")), (0, 1, 0));
    }

    #[test]
    fn off_processor_time_not_counted() {
        let poll = Poll::begin();
        operation("sleeps");
        std::thread::sleep(HELD_MAX * 3);
        drop(poll);
        assert_eq!(polls("sleeps"), 0);
        operation("outside");
        spin(HELD_MAX);
        assert_eq!(polls("outside"), 0, "no poll runs");
    }
}
