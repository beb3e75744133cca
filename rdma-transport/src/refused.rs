//! Callers that the rules of a share keep away: each refusal is counted, and one line in the log tells of the same caller, share
//! and rule in a minute.
//!
//! *Memory.* The last [`REMEMBERED_MAX`] callers. Who makes up users without end makes lines without end no faster than the log
//! takes lines of one kind.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::count;

/// Callers that are remembered; of one more the oldest is forgotten.
const REMEMBERED_MAX: usize = 256;
/// For how long the same refusal is not told again.
const SILENCE: Duration = Duration::from_secs(60);

/// A caller that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The client.
    pub peer: IpAddr,
    /// The user, by number or name as its protocol has it.
    pub user: String,
    /// The share.
    pub share: String,
    /// The rule that refused it.
    pub rule: &'static str,
    /// What to change where the caller is to be let in.
    pub remedy: &'static str,
}

static TOLD: Mutex<Told> = Mutex::new(Told(VecDeque::new()));

/// Counts it, and tells the log of it unless that was told within the last minute.
pub fn note(one: Refused) {
    count::broken_again(one.rule);
    let is_news = TOLD.lock().unwrap_or_else(PoisonError::into_inner).is_news(&one, Instant::now());
    if is_news {
        let Refused { peer, user, share, rule, remedy } = one;
        tracing::warn!(%peer, user, share, rule, "kept away from a share; to let this caller in, {remedy}");
    }
}

/// What was told last, the oldest first.
struct Told(VecDeque<(Refused, Instant)>);

impl Told {
    fn is_news(&mut self, one: &Refused, now: Instant) -> bool {
        self.0.retain(|(_, told)| now.duration_since(*told) < SILENCE);
        if self.0.iter().any(|(told, _)| told == one) {
            return false;
        }
        if self.0.len() >= REMEMBERED_MAX {
            self.0.pop_front();
        }
        self.0.push_back((one.clone(), now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(user: usize, rule: &'static str) -> Refused {
        let (user, share) = (user.to_string(), "team".into());
        Refused { peer: IpAddr::from([192, 0, 2, 1]), user, share, rule, remedy: "" }
    }

    #[test]
    fn the_same_caller_is_told_of_once_in_a_minute() {
        let (mut told, began) = (Told(VecDeque::new()), Instant::now());
        assert!(told.is_news(&refused(1, "a"), began));
        assert!(!told.is_news(&refused(1, "a"), began + SILENCE / 2));
        assert!(told.is_news(&refused(2, "a"), began) && told.is_news(&refused(1, "b"), began));
        assert!(told.is_news(&refused(1, "a"), began + SILENCE));
    }

    #[test]
    fn users_without_end_are_not_remembered_without_end() {
        let (mut told, now) = (Told(VecDeque::new()), Instant::now());
        assert!((0..=REMEMBERED_MAX).all(|user| told.is_news(&refused(user, "a"), now)));
        assert_eq!(told.0.len(), REMEMBERED_MAX);
        assert!(!told.is_news(&refused(REMEMBERED_MAX, "a"), now));
        assert!(told.is_news(&refused(0, "a"), now), "the oldest was forgotten");
    }

    #[test]
    fn each_refusal_is_counted() {
        let of =
            || count::broken_rules().iter().find(|(r, _)| *r == "refused-test").map_or(0, |r| r.1);
        note(refused(1, "refused-test"));
        note(refused(1, "refused-test"));
        assert_eq!(of(), 2);
    }
}
