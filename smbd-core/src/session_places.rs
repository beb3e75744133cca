//! Places of logged-on sessions: limits per address, and eviction.
//!
//! *Operation.* Each session has a place, under the address of the connection that made it. At the limit of an address, or of the
//! server, an idle session without opens is evicted for the new one (by [`crate::ops`]): from the same address, or from the address
//! with the most sessions. Candidates are checked in the order of their arrival; one that is spared moves to the end, so that each
//! check costs the same however many there are.
//!
//! *Memory.* An entry for each session. An IPv6 network of 64 bits counts as one address.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use rdma_transport::channel::host_of;
use rdma_transport::parts::Limit;

/// Limits on the number of sessions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// For all clients.
    pub(crate) of_all: Limit,
    /// For one address.
    pub(crate) of_address: Limit,
}

/// A limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    pub(crate) limit: Limit,
    /// The address to evict a session from.
    pub(crate) host: IpAddr,
    /// True if that address exceeds the new session's address by more than one session.
    pub(crate) has_more: bool,
}

#[derive(Debug)]
pub(crate) struct Places {
    limits: Limits,
    next: u64,
    /// Address and place of each session.
    sessions: HashMap<u64, (IpAddr, u64)>,
    /// Sessions of each address, by number of their places.
    hosts: HashMap<IpAddr, BTreeMap<u64, u64>>,
}

impl Places {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, next: 0, sessions: HashMap::new(), hosts: HashMap::new() }
    }

    fn count_of(&self, host: IpAddr) -> usize {
        self.hosts.get(&host).map_or(0, BTreeMap::len)
    }

    /// Returns the limit that rejects a further session of this address.
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

    /// Gives a session a place, or returns the limit that prevents it.
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

    /// Removes an ended session.
    pub(crate) fn remove(&mut self, session: u64) {
        let Some((host, number)) = self.sessions.remove(&session) else { return };
        if let Some(own) = self.hosts.get_mut(&host) {
            own.remove(&number);
            if own.is_empty() {
                self.hosts.remove(&host);
            }
        }
    }

    /// Returns the next candidates of an address and moves them to the end.
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
        // The address with the most sessions loses one to an address that has fewer.
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
