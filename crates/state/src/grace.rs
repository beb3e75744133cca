//! Reclaim after a restart (RFC 8881 section 8.4.2).
//!
//! For a while after a start, clients that were known before may take back what they held, and nobody may take anything new.
//! The time ends early when every one of them has said that it is done, and is no time at all when none is known. It is longer, by
//! as much again at most, while they are still at it: who has much to take back, or comes late, does not lose the rest.

use std::collections::HashMap;

use crate::id::Millis;

/// The time goes on for so long after something was taken back.
const GOES_ON_MS: u64 = 1_000;

/// Who may reclaim, and until when. Clients are named by the bytes by which they name themselves, since their numbers are of
/// the time before.
#[derive(Debug)]
pub struct Grace {
    ends: Option<Millis>,
    ends_latest: Millis,
    known: HashMap<Box<[u8]>, bool>,
}

impl Grace {
    /// Begins now for these clients and lasts at most `length_ms`.
    pub fn new(known: impl IntoIterator<Item = Box<[u8]>>, now: Millis, length_ms: u64) -> Self {
        let mut grace = Self { ends: None, ends_latest: 0, known: HashMap::new() };
        grace.expect(known, now, length_ms);
        grace
    }

    /// These were known before, too: the time begins now if there was none yet.
    pub fn expect(
        &mut self,
        known: impl IntoIterator<Item = Box<[u8]>>,
        now: Millis,
        length_ms: u64,
    ) {
        self.known.extend(known.into_iter().map(|name| (name, false)));
        if self.ends.is_none() && !self.known.is_empty() {
            let ends = now.saturating_add(length_ms);
            self.ends = Some(ends);
            self.ends_latest = ends.saturating_add(length_ms);
        }
    }

    /// Nothing new may be taken.
    pub fn is_active(&self, now: Millis) -> bool {
        self.ends.is_some_and(|ends| now < ends)
    }

    /// This client takes something back: it may if it held something before the restart and has not yet said that it is done.
    pub fn reclaim(&mut self, client: &[u8], now: Millis) -> bool {
        let may = self.is_active(now) && self.known.get(client) == Some(&false);
        if may {
            let goes_on = now.saturating_add(GOES_ON_MS).min(self.ends_latest);
            self.ends = self.ends.max(Some(goes_on));
        }
        may
    }

    /// This client has taken back what it wanted. True when that ended the time for all.
    pub fn complete(&mut self, client: &[u8]) -> bool {
        if let Some(done) = self.known.get_mut(client) {
            *done = true;
        }
        let over = self.ends.is_some() && self.known.values().all(|done| *done);
        if over {
            self.ends = None;
        }
        over
    }

    /// Ends the time if it is up, and gives the names of those who never came back. Once.
    pub fn finish(&mut self, now: Millis) -> Option<Vec<Box<[u8]>>> {
        if self.ends.is_some_and(|ends| now < ends) || self.known.is_empty() {
            return None;
        }
        self.ends = None;
        Some(self.known.drain().filter(|(_, done)| !done).map(|(name, _)| name).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<Box<[u8]>> {
        list.iter().map(|n| n.as_bytes().into()).collect()
    }

    #[test]
    fn nobody_known_no_grace() {
        let mut g = Grace::new(names(&[]), 0, 90_000);
        assert!(!g.is_active(0));
        assert!(!g.reclaim(b"a", 0));
    }

    #[test]
    fn it_ends_when_all_are_done() {
        let mut g = Grace::new(names(&["a", "b"]), 0, 90_000);
        assert!(g.is_active(1) && g.reclaim(b"a", 1) && !g.reclaim(b"c", 1));
        assert!(!g.complete(b"a"));
        assert!(!g.reclaim(b"a", 1), "done is done");
        assert!(!g.complete(b"c"), "a stranger ends nothing");
        assert!(g.is_active(1));
        assert!(g.complete(b"b"));
        assert!(!g.is_active(1));
        assert_eq!(g.finish(1), Some(vec![]));
        assert_eq!(g.finish(1), None);
    }

    #[test]
    fn others_may_be_expected_too() {
        let mut g = Grace::new(names(&[]), 0, 90_000);
        g.expect(names(&[]), 5, 90_000);
        assert!(!g.is_active(5), "nobody is nobody");
        g.expect(names(&["lock"]), 5, 90_000);
        assert!(g.reclaim(b"lock", 5) && g.is_active(90_004) && !g.is_active(90_005));
        let mut g = Grace::new(names(&["a"]), 0, 90_000);
        g.expect(names(&["lock"]), 10, 90_000);
        assert!(!g.complete(b"a"), "the other is not done");
        assert!(g.is_active(89_999) && !g.is_active(90_000), "one time for all");
    }

    #[test]
    fn it_goes_on_while_something_is_taken_back_and_at_most_as_long_again() {
        let mut g = Grace::new(names(&["a"]), 1_000, 15_000);
        assert!(g.reclaim(b"a", 14_000) && !g.is_active(16_000), "there was time enough");
        assert!(g.reclaim(b"a", 15_900) && g.is_active(16_899));
        assert!(
            !g.reclaim(b"b", 16_800) && !g.is_active(16_900),
            "a stranger keeps nobody waiting"
        );
        let mut at = 16_800;
        while g.reclaim(b"a", at) {
            at += 900;
        }
        assert!(g.finish(30_999).is_none() && !g.is_active(31_000), "{at}");
        assert!(!g.reclaim(b"a", 31_000));
    }

    #[test]
    fn it_ends_by_time_and_names_the_absent() {
        let mut g = Grace::new(names(&["a", "b"]), 1_000, 90_000);
        g.complete(b"a");
        assert_eq!(g.finish(90_999), None);
        assert!(!g.is_active(91_000));
        assert_eq!(g.finish(91_000), Some(names(&["b"])));
    }
}
