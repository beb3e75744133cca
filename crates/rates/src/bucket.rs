//! One rate of one scope, as a bucket of tokens.
//!
//! A request passes when the bucket has as many tokens as it costs. A request that costs more than a full bucket holds passes when
//! the bucket is full, and leaves it in debt: no request is too large to pass, and the rate holds over time. In each span of time
//! at most `rate * span + burst` passes, or the size of the largest request in place of a smaller burst.

use std::time::Duration;

/// Parts of a token: levels are exact, without loss over many short waits.
const PARTS: i128 = 1_000_000_000;
/// The time that repays the largest debt of work that was not asked for, and of a rate that was lowered.
pub(crate) const DEBT_MAX: Duration = Duration::from_secs(10);

/// A bucket of tokens. Times count from any origin and never decrease.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    /// Tokens for each second, at least 1.
    rate: i128,
    /// Most tokens, at least 1.
    burst: i128,
    /// Tokens in parts of [`PARTS`]; negative: debt.
    level: i128,
    at: Duration,
}

impl Bucket {
    /// Builds a full bucket. `burst` is the time in which `rate` fills it.
    pub(crate) fn new(rate: u64, burst: Duration, now: Duration) -> Self {
        let (rate, burst) = (i128::from(rate.max(1)), tokens(rate, burst));
        Self { rate, burst, level: burst * PARTS, at: now }
    }

    /// Changes the rate from `now` on. Its tokens stay, up to its new size, and its debt, up to what [`DEBT_MAX`] repays where the
    /// rate is lowered: a second's debt of a fast rate would be hours of a slow one.
    pub(crate) fn set(&mut self, rate: u64, burst: Duration, now: Duration) {
        self.fill(now);
        let is_lowered = i128::from(rate) < self.rate;
        self.rate = i128::from(rate.max(1));
        self.burst = tokens(rate, burst);
        self.level = self.level.min(self.burst * PARTS);
        if is_lowered {
            self.level = self.level.max(-i128::from(tokens_of(self.rate, DEBT_MAX)) * PARTS);
        }
    }

    /// Returns the tokens of a quarter of a second.
    pub(crate) fn quarter(&self) -> i64 {
        i64::try_from(self.rate / 4).unwrap_or(i64::MAX)
    }

    fn fill(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.at).as_nanos();
        self.at = self.at.max(now);
        let added = i128::try_from(elapsed).unwrap_or(i128::MAX).saturating_mul(self.rate);
        self.level = self.level.saturating_add(added).min(self.burst * PARTS);
    }

    fn need(&self, cost: u64) -> i128 {
        i128::from(cost).min(self.burst) * PARTS
    }

    /// Returns after how much time a request of this cost could pass, if no other does before it.
    pub(crate) fn wait(&mut self, cost: u64, now: Duration) -> Duration {
        self.fill(now);
        let missing = self.need(cost) - self.level;
        if missing <= 0 {
            return Duration::ZERO;
        }
        let nanos = (missing + self.rate - 1) / self.rate;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns true if a request of `later` could still pass at `at` after one of `cost` has passed now.
    pub(crate) fn leaves_room(
        &mut self,
        cost: u64,
        later: u64,
        at: Duration,
        now: Duration,
    ) -> bool {
        let mut after = self.clone();
        after.fill(now);
        after.level -= i128::from(cost) * PARTS;
        after.fill(at);
        after.level >= after.need(later)
    }

    /// Takes the tokens of a request.
    pub(crate) fn take(&mut self, cost: u64, now: Duration) {
        self.fill(now);
        self.level = self.level.saturating_sub(i128::from(cost) * PARTS);
    }

    /// Returns tokens that a request did not use.
    pub(crate) fn put_back(&mut self, unused: u64, now: Duration) {
        self.fill(now);
        self.level = self.level.saturating_add(i128::from(unused) * PARTS).min(self.burst * PARTS);
    }

    /// Takes tokens for what was done without asking. The debt stays below what `most` of time repays, so that one large copy does
    /// not keep others waiting for hours.
    pub(crate) fn owe(&mut self, cost: u64, most: Duration, now: Duration) {
        self.fill(now);
        let floor = (-i128::from(tokens_of(self.rate, most)) * PARTS).min(self.level);
        self.level = self.level.saturating_sub(i128::from(cost) * PARTS).max(floor);
    }

    /// Returns true if it is as full as a new one.
    pub(crate) fn is_full(&mut self, now: Duration) -> bool {
        self.fill(now);
        self.level == self.burst * PARTS
    }
}

/// Tokens that `rate` gives in `time`, at least 1.
fn tokens(rate: u64, time: Duration) -> i128 {
    tokens_of(i128::from(rate), time).into()
}

fn tokens_of(rate: i128, time: Duration) -> i64 {
    let nanos = i128::try_from(time.as_nanos()).unwrap_or(i128::MAX);
    i64::try_from(rate.saturating_mul(nanos) / PARTS).unwrap_or(i64::MAX).max(1)
}
