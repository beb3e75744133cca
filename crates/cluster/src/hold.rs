//! The time for which an owner may act.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Safety margin by which an owner stops before its lease ends: covers the clock drift during a TTL and the time to notice.
pub(crate) const MARGIN: Duration = Duration::from_secs(1);

/// Returns the time since the machine was started, including sleep.
pub(crate) fn now() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), nanos)
}

/// The time during which a node knows that its lease has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    ttl: Duration,
    sent: Duration,
}

impl Hold {
    /// Builds the hold for a lease of `ttl` that was requested at `sent`.
    pub fn new(ttl: Duration, sent: Duration) -> Self {
        Self { ttl, sent }
    }

    /// Extends the hold after a renewal that was sent at this time.
    pub fn renewed(&mut self, sent: Duration) {
        self.sent = self.sent.max(sent);
    }

    /// Returns the time until which the owner may act, on the clock of [`now`].
    pub fn until(&self) -> Duration {
        self.sent + self.ttl.saturating_sub(MARGIN)
    }

    /// Returns how long the owner may still act; zero: it must have stopped.
    pub fn left(&self, now: Duration) -> Duration {
        self.until().saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn hold_counts_from_answered_renewal() {
        let mut hold = Hold::new(5 * SECOND, 10 * SECOND);
        assert_eq!(hold.left(10 * SECOND), 4 * SECOND);
        assert_eq!(hold.left(13 * SECOND), SECOND);
        assert_eq!(hold.left(14 * SECOND), Duration::ZERO);
        assert_eq!(hold.left(1000 * SECOND), Duration::ZERO, "after a long sleep");
        hold.renewed(12 * SECOND);
        assert_eq!(hold.left(13 * SECOND), 3 * SECOND);
        // Renewal replies that arrive out of order never shorten the hold.
        hold.renewed(11 * SECOND);
        assert_eq!(hold.left(13 * SECOND), 3 * SECOND);
    }

    #[test]
    fn short_lease_gives_no_time() {
        assert_eq!(Hold::new(SECOND / 2, SECOND).left(SECOND), Duration::ZERO);
    }
}
