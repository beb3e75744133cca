//! Decides how long to poll for completions before sleeping. No clock: time is an argument.

use std::time::Duration;

/// After this many sleeps without polling, polling is tried again.
const RETRY_EVERY: u32 = 64;

/// Adapts to success: a completion found doubles the next polling time, up to the limit; otherwise it is halved.
#[derive(Debug)]
pub(super) struct Spin {
    max: Duration,
    now: Duration,
    skipped: u32,
}

impl Spin {
    pub(super) fn new(max: Duration) -> Self {
        Self { max, now: max, skipped: 0 }
    }

    /// How long to poll now.
    pub(super) fn time(&mut self) -> Duration {
        if self.now.is_zero() && !self.max.is_zero() {
            self.skipped += 1;
            if self.skipped == RETRY_EVERY {
                self.skipped = 0;
                self.now = self.least();
            }
        }
        self.now
    }

    /// The shortest polling time that is worth reading the clock.
    fn least(&self) -> Duration {
        self.max / 8
    }

    pub(super) fn found(&mut self) {
        self.now = (self.now * 2).clamp(self.least(), self.max);
    }

    pub(super) fn missed(&mut self) {
        self.now = if self.now <= self.least() { Duration::ZERO } else { self.now / 2 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsuccessful_polling_stops_and_retries() {
        let mut spin = Spin::new(Duration::from_micros(16));
        let mut looked = Vec::new();
        for _ in 0..5 {
            looked.push(spin.time().as_micros());
            spin.missed();
        }
        assert_eq!(looked, [16, 8, 4, 2, 0]);
        let sleeps = (0..).take_while(|_| spin.time().is_zero()).count();
        assert!(sleeps < 70, "{sleeps}");
        spin.found();
        assert_eq!(spin.time().as_micros(), 4);
        for _ in 0..9 {
            spin.found();
        }
        assert_eq!(spin.time().as_micros(), 16, "the limit holds");
    }

    #[test]
    fn zero_limit_disables_polling() {
        let mut spin = Spin::new(Duration::ZERO);
        for _ in 0..200 {
            assert!(spin.time().is_zero());
            spin.found();
        }
    }
}
