//! Time as the server's rules see it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Between two beats of [`Clock::beat`].
pub const BEAT: Duration = Duration::from_millis(500);
/// Time goes on for so long, in milliseconds, without a beat.
const AHEAD_MAX_MS: u64 = 1_000;

/// Time since some moment before the server began, never backwards.
#[derive(Debug)]
pub enum Clock {
    /// The machine's, while this process runs.
    Real(Awake),
    /// Set by a test, in milliseconds.
    Manual(AtomicU64),
}

/// The machine's monotonic clock without the time in which this process was held up: stopped, moved to another host, or one of too
/// many. What clients sent meanwhile lies in the sockets, so no lease may lapse and nobody may be late by that time.
#[derive(Debug)]
pub struct Awake {
    base: Instant,
    /// Milliseconds that do not count.
    lost: AtomicU64,
    /// Where time stands still until the next beat, in milliseconds that count. For ever where nobody beats.
    end: AtomicU64,
}

impl Awake {
    fn at(&self, then: Instant) -> Duration {
        // First: who sees a new end sees what was lost before it, and time does not jump.
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
    /// The machine's clock.
    pub fn real() -> Self {
        let (lost, end) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        Self::Real(Awake { base: Instant::now(), lost, end })
    }

    /// The time.
    pub fn now(&self) -> Duration {
        self.at(Instant::now())
    }

    /// What the time was then, for who has looked at the machine's clock already.
    pub fn at(&self, then: Instant) -> Duration {
        match self {
            Self::Real(awake) => awake.at(then),
            Self::Manual(ms) => Duration::from_millis(ms.load(Ordering::Relaxed)),
        }
    }

    /// The process runs. Called by one task, every [`BEAT`]; once it was, time stands still when it is not. How long that was.
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
    fn time_in_which_the_process_was_held_up_does_not_count() {
        let (clock, at) = awake();
        assert_eq!(clock.at(at(70_000)), ms(70_000), "nobody beats yet");
        assert_eq!(clock.beat(at(100)), Duration::ZERO);
        assert_eq!(clock.beat(at(900)), Duration::ZERO, "late, but not held up");
        assert_eq!(clock.at(at(1_900)), ms(1_900));
        // Also for who asks before the beat that finds out.
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
