//! Log lines of an outage of etcd: each thing that fails is tried several times a second, and told once a minute.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use mutex::locked;

/// For how long the same failure is not told again.
const SILENCE: Duration = Duration::from_secs(60);

/// When each failure was told last: one entry for each kind and service.
#[derive(Debug)]
struct Told(BTreeMap<(&'static str, String), Instant>);

static TOLD: Mutex<Told> = Mutex::new(Told(BTreeMap::new()));

impl Told {
    fn is_news(&mut self, what: &'static str, service: &str, now: Instant) -> bool {
        let last = self.0.get(&(what, service.to_owned()));
        if last.is_some_and(|last| now.duration_since(*last) < SILENCE) {
            return false;
        }
        self.0.insert((what, service.to_owned()), now);
        true
    }
}

/// Returns whether the log is to have this failure; `service` is empty where it is of the whole node.
pub(crate) fn is_news(what: &'static str, service: &str) -> bool {
    locked(&TOLD).is_news(what, service, Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_once_a_minute() {
        let (mut told, begun) = (Told(BTreeMap::new()), Instant::now());
        let lines = |told: &mut Told, what, service| {
            (0..240_u64)
                .filter(|n| told.is_news(what, service, begun + Duration::from_millis(250 * n)))
                .count()
        };
        assert_eq!(lines(&mut told, "watch", ""), 1);
        assert_eq!(lines(&mut told, "lease", ""), 1, "another failure");
        assert_eq!(lines(&mut told, "candidate", "files"), 1);
        assert_eq!(lines(&mut told, "candidate", "mail"), 1);
        assert!(told.is_news("watch", "", begun + SILENCE));
    }
}
