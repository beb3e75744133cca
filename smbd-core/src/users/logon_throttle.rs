//! Slows answers to an address after ten wrong passwords in a minute. Pure; the time is an argument.
//!
//! *Memory.* At most [`GUESSERS_MAX`] addresses; beyond that, the one that has been quiet longest is forgotten. An IPv6 network of
//! 64 bits counts as one address, because its holder controls all of it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use rdma_transport::channel::host_of;

use crate::limits::{GUESS_DELAY, GUESS_WINDOW, GUESSERS_MAX, GUESSES_FREE};

struct Guesser {
    /// When the window began.
    since: Duration,
    last: Duration,
    wrong: u32,
}

/// Counts of wrong passwords by address.
#[derive(Default)]
pub struct LogonThrottle(HashMap<IpAddr, Guesser>);

impl LogonThrottle {
    /// Notes a wrong password from this address, `now` on any monotonic clock. Returns the count for this minute.
    pub fn wrong(&mut self, from: IpAddr, now: Duration) -> u32 {
        let from = host_of(from);
        if self.0.len() >= GUESSERS_MAX && !self.0.contains_key(&from) {
            self.make_room(now);
        }
        let g = self.0.entry(from).or_insert(Guesser { since: now, last: now, wrong: 0 });
        if now.saturating_sub(g.since) >= GUESS_WINDOW {
            // An address that is being slowed remains so while the guessing continues.
            g.wrong = if g.wrong >= GUESSES_FREE { GUESSES_FREE } else { 0 };
            g.since = now;
        }
        g.last = now;
        g.wrong = g.wrong.saturating_add(1);
        g.wrong
    }

    /// Returns the delay of the next answer to this address, right or wrong.
    pub fn delay(&self, from: IpAddr, now: Duration) -> Option<Duration> {
        let g = self.0.get(&host_of(from))?;
        let recent = now.saturating_sub(g.last) < GUESS_WINDOW;
        (recent && g.wrong >= GUESSES_FREE).then_some(GUESS_DELAY)
    }

    fn make_room(&mut self, now: Duration) {
        self.0.retain(|_, g| now.saturating_sub(g.last) < GUESS_WINDOW);
        if self.0.len() >= GUESSERS_MAX
            && let Some(quiet) = self.0.iter().min_by_key(|(_, g)| g.last).map(|(ip, _)| *ip)
        {
            self.0.remove(&quiet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn ten_in_a_minute_slow_an_address_and_no_other() {
        let mut throttle = LogonThrottle::default();
        let (here, there): (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        for n in 1..=9 {
            assert_eq!(throttle.wrong(here, at(n)), u32::try_from(n).unwrap());
        }
        assert_eq!(throttle.delay(here, at(9)), None);
        throttle.wrong(here, at(10));
        assert_eq!(throttle.delay(here, at(10)), Some(GUESS_DELAY));
        assert_eq!(throttle.delay(there, at(10)), None);
        assert_eq!(throttle.delay(here, at(70)), None, "a quiet minute");
    }

    #[test]
    fn a_slow_guesser_is_not_slowed_and_a_persistent_one_stays_so() {
        let mut throttle = LogonThrottle::default();
        let here = IpAddr::from([192, 0, 2, 1]);
        for n in 0..100 {
            throttle.wrong(here, at(n * 7));
            assert_eq!(throttle.delay(here, at(n * 7)), None);
        }
        for n in 1000..1200 {
            throttle.wrong(here, at(n));
            assert_eq!(throttle.delay(here, at(n)).is_some(), n >= 1009, "{n}");
        }
    }

    #[test]
    fn a_network_of_version_6_is_one_guesser() {
        let mut throttle = LogonThrottle::default();
        for n in 0..10_u16 {
            throttle.wrong(IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, n]), at(1));
        }
        assert!(throttle.delay("2001:db8:0:1::ffff".parse().unwrap(), at(1)).is_some());
        assert!(throttle.delay("2001:db8:0:2::1".parse().unwrap(), at(1)).is_none());
        for n in 0..10 {
            let mapped: IpAddr = format!("::ffff:192.0.2.{n}").parse().unwrap();
            assert_eq!(throttle.wrong(mapped, at(1)), 1, "mapped addresses are of version 4");
        }
    }

    #[test]
    fn the_table_is_bounded() {
        let mut throttle = LogonThrottle::default();
        for n in 0..u32::try_from(GUESSERS_MAX).unwrap() + 100 {
            throttle.wrong(IpAddr::V4(n.into()), Duration::from_millis(n.into()));
        }
        assert_eq!(throttle.0.len(), GUESSERS_MAX);
        assert_eq!(throttle.wrong(IpAddr::V4(0.into()), at(9)), 1, "the oldest was forgotten");
    }
}
