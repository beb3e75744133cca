//! What lanes owed that ended while others waited: a client with one request at a time is such a lane again and again.
//!
//! *Operation.* A debt lasts as long as its bytes take at the rate, and [`DEBT_MAX`] at least, so that a client with pauses is no
//! better off; later nobody waits for its turns any more.
//!
//! *Memory.* At most [`DEBTS_MAX`] debts. While there are as many, further ones are not kept.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use crate::bucket::DEBT_MAX;

/// Lanes that have ended and whose debts are kept.
const DEBTS_MAX: usize = 4096;
/// The shortest time between two looks for debts that are over.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// The debts, by lane.
pub(crate) struct Debts<K> {
    /// The bytes, and when the debt is over.
    of: HashMap<K, (i64, Duration)>,
    looked: Duration,
}

impl<K> Default for Debts<K> {
    fn default() -> Self {
        Self { of: HashMap::new(), looked: Duration::ZERO }
    }
}

impl<K: Eq + Hash> Debts<K> {
    /// Keeps what a lane owes that ends. `takes`: the time of its bytes.
    pub(crate) fn add(&mut self, key: K, owed: i64, takes: Duration, now: Duration) {
        if self.of.len() >= DEBTS_MAX && now >= self.looked + LOOK_PAUSE {
            self.looked = now;
            self.of.retain(|_, (_, until)| *until > now);
        }
        if self.of.len() < DEBTS_MAX {
            self.of.insert(key, (owed, now + takes.max(DEBT_MAX)));
        }
    }

    /// Returns what a lane owes that begins.
    pub(crate) fn take(&mut self, key: K, now: Duration) -> Option<i64> {
        self.of.remove(&key).filter(|(_, until)| *until > now).map(|(owed, _)| owed)
    }

    pub(crate) fn clear(&mut self) {
        self.of.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debts_that_are_over_make_room() {
        let mut debts = Debts::default();
        let at = Duration::from_secs;
        let all = u64::try_from(DEBTS_MAX).unwrap();
        for n in 0..=all {
            debts.add(n, 5, at(if n == 0 { 40 } else { 1 }), at(n / 1000));
        }
        assert_eq!(debts.take(all, at(5)), None, "there was no room");
        assert_eq!(debts.take(1, at(5)), Some(5));
        debts.add(1, 6, at(1), at(5));
        debts.add(all, 7, at(1), at(12));
        let now = |debts: &mut Debts<u64>, n| debts.take(n, at(15));
        assert_eq!([0, 1, 2, all].map(|n| now(&mut debts, n)), [Some(5), None, None, Some(7)]);
    }
}
