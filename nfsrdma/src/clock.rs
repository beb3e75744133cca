//! The server's clock, which ignores time in which the process did not run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Interval between two calls of [`Clock::beat`].
pub const BEAT: Duration = Duration::from_millis(500);
/// Milliseconds by which the clock advances without a beat before it stops.
const AHEAD_MAX_MS: u64 = 1_000;

/// Time since an arbitrary moment before the server began. It never runs backwards.
#[derive(Debug)]
pub enum Clock {
    /// The machine's clock, counted only while this process runs.
    Real(Awake),
    /// Set by a test, in milliseconds.
    Manual(AtomicU64),
}

/// The machine's monotonic clock minus the time in which this process did not run: stopped, moved to another host, or starved of
/// processor time. Requests that clients sent meanwhile wait in the sockets, so that time must not expire a lease or a deadline.
#[derive(Debug)]
pub struct Awake {
    base: Instant,
    /// Milliseconds that the process missed.
    lost: AtomicU64,
    /// The clock stops at this value (in counted milliseconds) until the next beat. The maximum value means no limit, for clocks
    /// without beats.
    end: AtomicU64,
}

impl Awake {
    fn at(&self, then: Instant) -> Duration {
        // `end` is read before `lost`: a reader that sees a new end also sees the loss subtracted before it, so the clock does not
        // jump.
        let end = Duration::from_millis(self.end.load(Ordering::Acquire));
        let lost = Duration::from_millis(self.lost.load(Ordering::Acquire));
        then.saturating_duration_since(self.base).saturating_sub(lost).min(end)
    }

    fn beat(&self, then: Instant) -> Duration {
        let passed = then.saturating_duration_since(self.base);
        let passed = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        let counts = passed.saturating_sub(self.lost.load(Ordering::Acquire));
        let late = counts.saturating_sub(self.end.load(Ordering::Acquire));
        self.lost.fetch_add(late, Ordering::Release);
        self.end.store((counts - late).saturating_add(AHEAD_MAX_MS), Ordering::Release);
        Duration::from_millis(late)
    }
}

impl Clock {
    pub fn real() -> Self {
        let (lost, end) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        Self::Real(Awake { base: Instant::now(), lost, end })
    }

    pub fn now(&self) -> Duration {
        self.at(Instant::now())
    }

    /// Converts an instant of the machine's clock, for callers that have read it already.
    pub fn at(&self, then: Instant) -> Duration {
        match self {
            Self::Real(awake) => awake.at(then),
            Self::Manual(ms) => Duration::from_millis(ms.load(Ordering::Relaxed)),
        }
    }

    /// Records that the process runs, and returns how long it had not. One task calls it every [`BEAT`]; after the first call the
    /// clock stops whenever the calls stop.
    pub fn beat(&self) -> Duration {
        match self {
            Self::Real(awake) => awake.beat(Instant::now()),
            Self::Manual(_) => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn awake() -> (Awake, impl Fn(u64) -> Instant) {
        let Clock::Real(awake) = Clock::real() else { unreachable!() };
        let base = awake.base;
        (awake, move |ms| base + Duration::from_millis(ms))
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn clock_skips_time_of_stopped_process() {
        let (clock, at) = awake();
        assert_eq!(clock.at(at(70_000)), ms(70_000), "nobody beats yet");
        assert_eq!(clock.beat(at(100)), Duration::ZERO);
        assert_eq!(clock.beat(at(900)), Duration::ZERO, "late, but not held up");
        assert_eq!(clock.at(at(1_900)), ms(1_900));
        // The lost time is left out even before the beat that detects it.
        assert_eq!(clock.at(at(31_900)), ms(1_900));
        assert_eq!(clock.beat(at(31_900)), ms(30_000));
        assert_eq!((clock.at(at(31_900)), clock.at(at(32_000))), (ms(1_900), ms(2_000)));
        assert_eq!(clock.beat(at(32_400)), Duration::ZERO);
        assert_eq!(clock.at(at(33_000)), ms(3_000));
    }

    #[test]
    fn time_never_goes_back() {
        let (clock, at) = awake();
        let (mut machine, mut last) = (0, Duration::ZERO);
        for gap in [0, 1, 499, 500, 501, 999, 1_000, 1_001, 1_500, 60_000, 3, 2_000].repeat(3) {
            for step in [gap / 2, gap - gap / 2] {
                machine += step;
                let now = clock.at(at(machine));
                assert!(now >= last && now <= last + ms(step), "{machine}: {last:?} to {now:?}");
                last = now;
            }
            clock.beat(at(machine));
            assert_eq!(clock.at(at(machine)), last, "{machine}");
        }
    }
}
