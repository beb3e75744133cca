//! Reclaim after a restart (RFC 8881 section 8.4.2).
//!
//! For a while after a start, clients that were known before may take back what they held, and nobody may take anything new.
//! The time ends early when every one of them has said that it is done, and is no time at all when none is known.

use std::collections::HashMap;

use crate::holder::Millis;

/// Who may reclaim, and until when. Clients are named by the bytes by which they name themselves, since their numbers are of
/// the time before.
#[derive(Debug)]
pub struct Grace {
    ends: Option<Millis>,
    known: HashMap<Box<[u8]>, bool>,
}

impl Grace {
    /// Begins now for these clients and lasts at most `length_ms`.
    pub fn new(known: impl IntoIterator<Item = Box<[u8]>>, now: Millis, length_ms: u64) -> Self {
        let known: HashMap<_, _> = known.into_iter().map(|name| (name, false)).collect();
        let ends = (!known.is_empty()).then(|| now.saturating_add(length_ms));
        Self { ends, known }
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
            self.ends = Some(now.saturating_add(length_ms));
        }
    }

    /// Nothing new may be taken.
    pub fn is_active(&self, now: Millis) -> bool {
        self.ends.is_some_and(|ends| now < ends)
    }

    /// When it ends at the latest; `None` when it is over.
    pub fn ends(&self) -> Option<Millis> {
        self.ends
    }

    /// This client held something before the restart and has not yet said that it is done.
    pub fn may_reclaim(&self, client: &[u8], now: Millis) -> bool {
        self.is_active(now) && self.known.get(client) == Some(&false)
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
        let g = Grace::new(names(&[]), 0, 90_000);
        assert!(!g.is_active(0));
        assert!(!g.may_reclaim(b"a", 0));
    }

    #[test]
    fn it_ends_when_all_are_done() {
        let mut g = Grace::new(names(&["a", "b"]), 0, 90_000);
        assert!(g.is_active(1) && g.may_reclaim(b"a", 1) && !g.may_reclaim(b"c", 1));
        assert!(!g.complete(b"a"));
        assert!(!g.may_reclaim(b"a", 1), "done is done");
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
        assert!(g.may_reclaim(b"lock", 90_004) && !g.is_active(90_005));
        let mut g = Grace::new(names(&["a"]), 0, 90_000);
        g.expect(names(&["lock"]), 10, 90_000);
        assert!(!g.complete(b"a"), "the other is not done");
        assert!(g.is_active(89_999) && !g.is_active(90_000), "one time for all");
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
