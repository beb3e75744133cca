//! Slows password guessing against one account from many addresses: after [`ACCOUNT_GUESSES_FREE`] wrong passwords, clients at
//! addresses without a successful logon to that account are answered one at a time, so that many addresses together guess no faster
//! than one. Clients at addresses with a successful logon never wait, so a stranger who guesses cannot lock out the user. Pure; the
//! time is an argument.
//!
//! *Operation.* One answer, right or wrong, is given per [`ACCOUNT_TURN`], and the result is not visible earlier. A client that
//! would have to wait longer than [`ACCOUNT_WAIT_MAX`] is refused, whatever its password.
//!
//! *Memory.* [`ACCOUNTS_MAX`] names, including names without an account, so that this does not reveal which accounts exist; of the
//! names with the fewest guesses the one that was quiet for longest is evicted. [`KNOWN_MAX`] pairs of an account and an address
//! with a successful logon, [`KNOWN_OF_ACCOUNT_MAX`] of one account; the oldest is evicted. An IPv6 network of 64 bits is one
//! address. A restart clears all of this.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use rdma_transport::channel::host_of;

use crate::limits::{
    ACCOUNT_GUESSES_FREE, ACCOUNT_TURN, ACCOUNT_WAIT_MAX, ACCOUNT_WINDOW, ACCOUNTS_MAX, KNOWN_MAX,
    KNOWN_OF_ACCOUNT_MAX,
};

/// The limit that a client without a turn has met.
pub const LIMIT: &str = "guesses-of-account";

/// When an answer is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogonDelay {
    /// At once.
    Free,
    /// After this time.
    Wait(Duration),
    /// Never: the logon is refused, whatever its result would be.
    None,
}

struct Guessed {
    /// When the window began.
    since: Duration,
    last: Duration,
    wrong: u32,
    /// When the next answer is given.
    next: Duration,
}

impl Guessed {
    fn is_hot(&self, now: Duration) -> bool {
        self.wrong >= ACCOUNT_GUESSES_FREE && now.saturating_sub(self.last) < ACCOUNT_WINDOW
    }
}

/// Accounts under attack, and addresses with successful logons.
#[derive(Default)]
pub struct Accounts {
    guessed: HashMap<String, Guessed>,
    known: HashMap<String, Vec<(IpAddr, Duration)>>,
    pairs: usize,
}

fn key(name: &str) -> String {
    name.to_lowercase()
}

impl Accounts {
    /// Notes a wrong password for this name.
    pub fn wrong(&mut self, name: &str, now: Duration) {
        let name = key(name);
        if self.guessed.len() >= ACCOUNTS_MAX && !self.guessed.contains_key(&name) {
            self.make_room(now);
        }
        let fresh = Guessed { since: now, last: now, wrong: 0, next: now };
        let g = self.guessed.entry(name).or_insert(fresh);
        if now.saturating_sub(g.since) >= ACCOUNT_WINDOW {
            // An account that is being slowed remains so while the guessing continues.
            g.wrong = if g.is_hot(now) { ACCOUNT_GUESSES_FREE } else { 0 };
            g.since = now;
        }
        g.last = now;
        g.wrong = g.wrong.saturating_add(1);
    }

    /// Notes a successful logon to this account from this address.
    pub fn right(&mut self, name: &str, from: IpAddr, now: Duration) {
        let (name, from) = (key(name), host_of(from));
        let hosts = self.known.entry(name).or_default();
        if let Some(known) = hosts.iter_mut().find(|(host, _)| *host == from) {
            known.1 = now;
            return;
        }
        if hosts.len() >= KNOWN_OF_ACCOUNT_MAX
            && let Some(oldest) =
                hosts.iter().enumerate().min_by_key(|(_, (_, at))| *at).map(|(n, _)| n)
        {
            hosts.swap_remove(oldest);
            self.pairs -= 1;
        }
        hosts.push((from, now));
        self.pairs += 1;
        if self.pairs > KNOWN_MAX {
            self.forget_oldest();
        }
    }

    /// Returns whether a logon to this name from this address would have to wait.
    pub fn is_slowed(&self, name: &str, from: IpAddr, now: Duration) -> bool {
        let (name, from) = (key(name), host_of(from));
        self.guessed.get(&name).is_some_and(|g| g.is_hot(now)) && !self.is_known(&name, from)
    }

    fn is_known(&self, key: &str, host: IpAddr) -> bool {
        self.known.get(key).is_some_and(|hosts| hosts.iter().any(|(known, _)| *known == host))
    }

    /// Returns when to answer a logon to this name from this address; a turn that is returned is used up.
    pub fn turn(&mut self, name: &str, from: IpAddr, now: Duration) -> LogonDelay {
        if !self.is_slowed(name, from, now) {
            return LogonDelay::Free;
        }
        let Some(g) = self.guessed.get_mut(&key(name)) else { return LogonDelay::Free };
        let at = g.next.max(now + ACCOUNT_TURN);
        let wait = at.saturating_sub(now);
        if wait > ACCOUNT_WAIT_MAX {
            return LogonDelay::None;
        }
        g.next = at + ACCOUNT_TURN;
        LogonDelay::Wait(wait)
    }

    /// Makes room for a name. Evicts an account under attack only if all are, so that invented names do not evict it.
    fn make_room(&mut self, now: Duration) {
        self.guessed.retain(|_, g| now.saturating_sub(g.last) < ACCOUNT_WINDOW);
        if self.guessed.len() < ACCOUNTS_MAX {
            return;
        }
        let least =
            self.guessed.iter().min_by_key(|(_, g)| (g.wrong.min(ACCOUNT_GUESSES_FREE), g.last));
        if let Some(name) = least.map(|(name, _)| name.clone()) {
            self.guessed.remove(&name);
        }
    }

    fn forget_oldest(&mut self) {
        let oldest = self.known.iter().filter_map(|(name, hosts)| {
            let (n, (_, at)) = hosts.iter().enumerate().min_by_key(|(_, (_, at))| *at)?;
            Some((*at, name, n))
        });
        if let Some((name, n)) = oldest.min().map(|(_, name, n)| (name.clone(), n))
            && let Some(hosts) = self.known.get_mut(&name)
        {
            hosts.swap_remove(n);
            self.pairs -= 1;
            if hosts.is_empty() {
                self.known.remove(&name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn host(n: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + n).into())
    }

    /// An account that a botnet attacks.
    fn attacked() -> Accounts {
        let mut accounts = Accounts::default();
        (0..ACCOUNT_GUESSES_FREE).for_each(|_| accounts.wrong("Alice", at(10)));
        accounts
    }

    #[test]
    fn many_addresses_guess_no_faster_than_one() {
        let mut accounts = attacked();
        let given =
            (0..1000).filter(|n| accounts.turn("alice", host(*n), at(10)) != LogonDelay::None);
        let most = ACCOUNT_WAIT_MAX.as_secs() / ACCOUNT_TURN.as_secs();
        assert_eq!(given.count() as u64, most);
        assert_eq!(accounts.turn("alice", host(5000), at(10)), LogonDelay::None);
        assert_eq!(accounts.turn("bob", host(5000), at(10)), LogonDelay::Free, "another account");
        assert_eq!(accounts.turn("ALICE", host(1), at(12)), LogonDelay::Wait(ACCOUNT_WAIT_MAX));
    }

    #[test]
    fn who_was_here_before_is_not_locked_out() {
        let mut accounts = Accounts::default();
        accounts.right("alice", host(7), at(1));
        (0..500).for_each(|n| accounts.wrong("alice", at(n)));
        while accounts.turn("alice", host(1), at(500)) != LogonDelay::None {}
        assert_eq!(accounts.turn("alice", host(7), at(500)), LogonDelay::Free);
        assert!(!accounts.is_slowed("ALICE", host(7), at(500)));
        assert!(accounts.is_slowed("ALICE", host(1), at(500)));
        let six: [IpAddr; 2] = ["2001:db8::1".parse().unwrap(), "2001:db8::ffff".parse().unwrap()];
        accounts.right("alice", six[0], at(500));
        assert_eq!(accounts.turn("alice", six[1], at(500)), LogonDelay::Free, "of one network");
    }

    #[test]
    fn few_wrong_ones_and_a_quiet_while_slow_nobody() {
        let mut accounts = Accounts::default();
        (1..ACCOUNT_GUESSES_FREE).for_each(|_| accounts.wrong("alice", at(0)));
        assert_eq!(accounts.turn("alice", host(1), at(0)), LogonDelay::Free);
        accounts.wrong("alice", at(0));
        assert_eq!(accounts.turn("alice", host(1), at(0)), LogonDelay::Wait(ACCOUNT_TURN));
        let quiet = ACCOUNT_WINDOW;
        assert_eq!(accounts.turn("alice", host(1), quiet), LogonDelay::Free);
    }

    #[test]
    fn names_that_are_made_up_do_not_push_an_attacked_account_out() {
        let mut accounts = attacked();
        for n in 0..2 * ACCOUNTS_MAX {
            accounts.wrong(&format!("nobody{n}"), at(11));
        }
        assert_eq!(accounts.guessed.len(), ACCOUNTS_MAX);
        assert_ne!(accounts.turn("alice", host(1), at(11)), LogonDelay::Free);
    }

    #[test]
    fn the_addresses_that_are_known_are_bounded() {
        let mut accounts = Accounts::default();
        let count = |most: usize| u32::try_from(most).unwrap() + 10;
        for n in 0..count(KNOWN_OF_ACCOUNT_MAX) {
            accounts.right("alice", host(n), at(n.into()));
        }
        assert_eq!(accounts.known["alice"].len(), KNOWN_OF_ACCOUNT_MAX);
        assert!(accounts.known["alice"].iter().all(|(h, _)| *h != host(0)), "the oldest went");
        for n in 0..count(KNOWN_MAX) {
            accounts.right(&format!("user{n}"), host(n), at(1000 + u64::from(n)));
        }
        assert_eq!(accounts.pairs, KNOWN_MAX);
        assert_eq!(accounts.pairs, accounts.known.values().map(Vec::len).sum::<usize>());
        assert!(!accounts.known.contains_key("alice"));
    }
}
