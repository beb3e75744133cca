//! Rate limit for log lines during an outage of etcd: each operation fails several times a second but is logged once a minute.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use mutex::locked;

/// Time during which the same failure is not logged again.
const SILENCE: Duration = Duration::from_secs(60);

/// The time at which each failure was last logged: one entry per kind and service.
#[derive(Debug)]
struct LogTimes(BTreeMap<(&'static str, String), Instant>);

static TOLD: Mutex<LogTimes> = Mutex::new(LogTimes(BTreeMap::new()));

impl LogTimes {
    fn is_news(&mut self, what: &'static str, service: &str, now: Instant) -> bool {
        let last = self.0.get(&(what, service.to_owned()));
        if last.is_some_and(|last| now.duration_since(*last) < SILENCE) {
            return false;
        }
        self.0.insert((what, service.to_owned()), now);
        true
    }
}

/// Checks whether to log this failure; `service` is empty if it concerns the whole node.
pub(crate) fn is_news(what: &'static str, service: &str) -> bool {
    locked(&TOLD).is_news(what, service, Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_is_logged_once_a_minute() {
        let (mut told, begun) = (LogTimes(BTreeMap::new()), Instant::now());
        let lines = |told: &mut LogTimes, what, service| {
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
