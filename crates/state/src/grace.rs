//! Reclaim of state after a restart (RFC 8881 section 8.4.2).
//!
//! During the grace period after a start, clients known from before may reclaim what they held, and no client may acquire new
//! state. The period ends early when every known client has reported completion, and is skipped if no client is known. While
//! clients are still reclaiming it is extended, at most to twice its length, so that a client with much to reclaim or a late one
//! does not lose the rest.

use std::collections::HashMap;

use crate::id::Millis;

/// Each reclaim extends the grace period to at least this long after it.
const GOES_ON_MS: u64 = 1_000;

/// The clients that may reclaim, and the end of the grace period. Clients are identified by the owner string that they send,
/// because client numbers from before the restart are void.
#[derive(Debug)]
pub struct Grace {
    ends: Option<Millis>,
    ends_latest: Millis,
    known: HashMap<Box<[u8]>, bool>,
}

impl Grace {
    /// Starts a grace period for these clients that lasts at most `length_ms`.
    pub fn new(known: impl IntoIterator<Item = Box<[u8]>>, now: Millis, length_ms: u64) -> Self {
        let mut grace = Self { ends: None, ends_latest: 0, known: HashMap::new() };
        grace.expect(known, now, length_ms);
        grace
    }

    /// Adds further clients known from before; starts the grace period if it is not active.
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

    /// Checks that the grace period is active, so that no new state may be granted.
    pub fn is_active(&self, now: Millis) -> bool {
        self.ends.is_some_and(|ends| now < ends)
    }

    /// Lets a client reclaim if it held state before the restart and has not reported completion. Extends the period in that case.
    pub fn reclaim(&mut self, client: &[u8], now: Millis) -> bool {
        let may = self.is_active(now) && self.known.get(client) == Some(&false);
        if may {
            let goes_on = now.saturating_add(GOES_ON_MS).min(self.ends_latest);
            self.ends = self.ends.max(Some(goes_on));
        }
        may
    }

    /// Records that a client has finished reclaiming. Returns true if that ended the grace period.
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

    /// Ends the grace period once its time is over, and returns the clients that never came back. Later calls return `None`.
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
    fn grace_without_known_clients_is_skipped() {
        let mut g = Grace::new(names(&[]), 0, 90_000);
        assert!(!g.is_active(0));
        assert!(!g.reclaim(b"a", 0));
    }

    #[test]
    fn grace_ends_after_last_completion() {
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
    fn grace_accepts_further_clients() {
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
    fn grace_extends_while_clients_reclaim() {
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
    fn grace_timeout_names_absent_clients() {
        let mut g = Grace::new(names(&["a", "b"]), 1_000, 90_000);
        g.complete(b"a");
        assert_eq!(g.finish(90_999), None);
        assert!(!g.is_active(91_000));
        assert_eq!(g.finish(91_000), Some(names(&["b"])));
    }
}
