//! For how long an owner may act.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How much sooner than etcd an owner believes that its lease has ended: what its clock may be slow by in a TTL, and what an
/// answer takes that it has begun.
pub(crate) const MARGIN: Duration = Duration::from_secs(1);

/// Time since the machine was started, while it slept too.
pub(crate) fn now() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), nanos)
}

/// The time in which a node knows that its lease has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    ttl: Duration,
    sent: Duration,
}

impl Hold {
    /// Of a lease of `ttl` that was asked for at `sent`.
    pub fn new(ttl: Duration, sent: Duration) -> Self {
        Self { ttl, sent }
    }

    /// It was renewed by a request that was sent then.
    pub fn renewed(&mut self, sent: Duration) {
        self.sent = self.sent.max(sent);
    }

    /// Until when the owner may act, by the clock of [`now`].
    pub fn until(&self) -> Duration {
        self.sent + self.ttl.saturating_sub(MARGIN)
    }

    /// How long the owner may still act; zero: it must have stopped.
    pub fn left(&self, now: Duration) -> Duration {
        self.until().saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_owner_counts_from_the_last_renewal_that_was_answered() {
        let mut hold = Hold::new(5 * SECOND, 10 * SECOND);
        assert_eq!(hold.left(10 * SECOND), 4 * SECOND);
        assert_eq!(hold.left(13 * SECOND), SECOND);
        assert_eq!(hold.left(14 * SECOND), Duration::ZERO);
        assert_eq!(hold.left(1000 * SECOND), Duration::ZERO, "after a long sleep");
        hold.renewed(12 * SECOND);
        assert_eq!(hold.left(13 * SECOND), 3 * SECOND);
        // Answers that overtake each other take nothing back.
        hold.renewed(11 * SECOND);
        assert_eq!(hold.left(13 * SECOND), 3 * SECOND);
    }

    #[test]
    fn a_lease_that_is_shorter_than_the_margin_lets_nobody_act() {
        assert_eq!(Hold::new(SECOND / 2, SECOND).left(SECOND), Duration::ZERO);
    }
}
