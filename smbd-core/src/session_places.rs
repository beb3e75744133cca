//! Places of sessions whose users have logged on: how many an address may have, and which sessions give way.
//!
//! *Operation.* Each session has a place, under the address of the connection that made it. At the limit of an address, or of the
//! server, an idle session without opens ends for the new one ([`crate::ops`] ends it): of the same address, or of the address with
//! the most sessions. Sessions are looked at in the order in which they came; one that is spared goes to the end of that order, so
//! that each look costs the same however many there are.
//!
//! *Memory.* An entry for each session. An IPv6 network of 64 bits counts as one address.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use rdma_transport::channel::host_of;
use rdma_transport::parts::Limit;

/// How many sessions there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Of all clients.
    pub(crate) of_all: Limit,
    /// Of one address.
    pub(crate) of_address: Limit,
}

/// A limit that is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    pub(crate) limit: Limit,
    /// The address whose sessions give way.
    pub(crate) host: IpAddr,
    /// That address has more than one session more than the address of the new one.
    pub(crate) has_more: bool,
}

/// All places.
#[derive(Debug)]
pub(crate) struct Places {
    limits: Limits,
    next: u64,
    /// Where a session has its place.
    sessions: HashMap<u64, (IpAddr, u64)>,
    /// Sessions of an address, by number of their places.
    hosts: HashMap<IpAddr, BTreeMap<u64, u64>>,
}

impl Places {
    /// No session yet.
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, next: 0, sessions: HashMap::new(), hosts: HashMap::new() }
    }

    fn count_of(&self, host: IpAddr) -> usize {
        self.hosts.get(&host).map_or(0, BTreeMap::len)
    }

    /// The limit that keeps a further session of this address out.
    pub(crate) fn full(&self, from: IpAddr) -> Option<Full> {
        let (own, Limits { of_all, of_address }) = (host_of(from), self.limits);
        let count = self.count_of(own);
        if count >= of_address.most {
            return Some(Full { limit: of_address, host: own, has_more: false });
        }
        if self.sessions.len() < of_all.most {
            return None;
        }
        let (host, most) = self.hosts.iter().max_by_key(|(_, sessions)| sessions.len())?;
        Some(Full { limit: of_all, host: *host, has_more: most.len() > count + 1 })
    }

    /// Gives a session its place. An error: there is none.
    pub(crate) fn add(&mut self, session: u64, from: IpAddr) -> Result<(), Limit> {
        if self.sessions.contains_key(&session) {
            return Ok(());
        }
        if let Some(full) = self.full(from) {
            return Err(full.limit);
        }
        self.place(session, host_of(from));
        Ok(())
    }

    fn place(&mut self, session: u64, host: IpAddr) {
        let number = self.next;
        self.next += 1;
        self.sessions.insert(session, (host, number));
        self.hosts.entry(host).or_default().insert(number, session);
    }

    /// A session has ended.
    pub(crate) fn remove(&mut self, session: u64) {
        let Some((host, number)) = self.sessions.remove(&session) else { return };
        if let Some(own) = self.hosts.get_mut(&host) {
            own.remove(&number);
            if own.is_empty() {
                self.hosts.remove(&host);
            }
        }
    }

    /// The next sessions of an address to look at, which are looked at again after all others.
    pub(crate) fn next_of(&mut self, host: IpAddr, most: usize) -> Vec<u64> {
        let own = self.hosts.get(&host).into_iter().flat_map(BTreeMap::values);
        let some: Vec<u64> = own.take(most).copied().collect();
        for session in &some {
            self.remove(*session);
            self.place(*session, host);
        }
        some
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Limit = Limit::new("all", 10);
    const OF_ONE: Limit = Limit::new("of-one", 6);

    fn at(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    #[test]
    fn each_address_has_its_part() {
        let mut places = Places::new(Limits { of_all: ALL, of_address: OF_ONE });
        for session in 0..6 {
            assert_eq!(places.add(session, at(1)), Ok(()));
        }
        assert_eq!((places.add(0, at(1)), places.add(6, at(1))), (Ok(()), Err(OF_ONE)));
        let own = Full { limit: OF_ONE, host: at(1), has_more: false };
        assert_eq!(places.full(at(1)), Some(own));
        for session in 10..14 {
            assert_eq!(places.add(session, at(2)), Ok(()));
        }
        // The address with the most sessions gives way to one that has fewer.
        for (newcomer, has_more) in [(2, true), (3, true)] {
            let full = Full { limit: ALL, host: at(1), has_more };
            assert_eq!(places.full(at(newcomer)), Some(full));
        }
        places.remove(3);
        assert_eq!((places.full(at(3)), places.add(20, at(3))), (None, Ok(())));
        for session in (0..14).chain([20]) {
            places.remove(session);
        }
        assert!(places.hosts.is_empty() && places.sessions.is_empty());
    }

    #[test]
    fn looks_come_round_to_all() {
        let mut places = Places::new(Limits { of_all: ALL, of_address: OF_ONE });
        (0..5).for_each(|session| places.add(session, at(1)).unwrap());
        assert_eq!(places.next_of(at(1), 3), [0, 1, 2]);
        places.remove(3);
        assert_eq!(places.next_of(at(1), 3), [4, 0, 1]);
        assert_eq!(places.next_of(at(1), 9), [2, 4, 0, 1]);
        assert!(places.next_of(at(2), 3).is_empty());
    }
}
