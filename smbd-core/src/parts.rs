//! What clients may have of something of which there is only so much: a part of it for each address, so that none takes it all.
//!
//! *Memory.* An entry for each address that has something. An IPv6 network of 64 bits counts as one address.
//!
//! *Errors.* STATUS_INSUFFICIENT_RESOURCES to who would have more; the limit is counted by its name.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use mutex::locked;
use rdma_transport::channel::host_of;
use rdma_transport::count;

use crate::status::Status;

/// A limit: its name, and how much.
type Limit = (&'static str, usize);

/// All there is, and who has it.
pub struct Parts {
    of_address: Limit,
    of_all: Limit,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl Parts {
    /// With these limits.
    pub fn new(of_address: Limit, of_all: Limit) -> Arc<Self> {
        Arc::new(Self { of_address, of_all, taken: Mutex::default() })
    }

    /// The part of one who is at this address; nothing so far.
    pub fn of(self: &Arc<Self>, peer: SocketAddr) -> Part {
        Part { parts: self.clone(), peer, count: 0 }
    }
}

/// What somebody has, until it is dropped.
pub struct Part {
    parts: Arc<Parts>,
    peer: SocketAddr,
    count: usize,
}

impl Part {
    /// How much it is.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// How much its address could have beside what it has.
    #[cfg(test)]
    pub(crate) fn set_to_most(mut self) -> usize {
        let most = self.parts.of_address.1;
        (0..=most).rev().find(|n| self.set(*n).is_ok()).unwrap_or(0)
    }

    /// Has so much from now on; where that would be too much it has what it had.
    pub fn set(&mut self, count: usize) -> Result<(), Status> {
        let Parts { of_address, of_all, taken } = &*self.parts;
        let mut taken = locked(taken);
        let host = host_of(self.peer.ip());
        let own = taken.by_address.get(&host).copied().unwrap_or(0) - self.count + count;
        let all = taken.all - self.count + count;
        let met = [(own, of_address), (all, of_all)].into_iter().find(|(n, limit)| *n > limit.1);
        if let Some((_, (limit, most))) = met.filter(|_| count > self.count) {
            drop(taken);
            count::limited(limit, *most, self.peer);
            return Err(Status::INSUFFICIENT_RESOURCES);
        }
        taken.all = all;
        match own {
            0 => drop(taken.by_address.remove(&host)),
            own => drop(taken.by_address.insert(host, own)),
        }
        self.count = count;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // To have less is never too much.
        let _ = self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_part_and_no_more() {
        let parts = Parts::new(("of-one", 10), ("of-all", 25));
        let at = |text: &str| parts.of(text.parse().unwrap());
        let full = Err(Status::INSUFFICIENT_RESOURCES);
        let (mut a, mut b) = (at("192.0.2.1:1"), at("192.0.2.1:2"));
        assert_eq!((a.set(6), b.set(5), b.set(4)), (Ok(()), full, Ok(())));
        // Less is possible always, and what was refused was not taken.
        assert_eq!((a.set(7), a.set(5), b.set(5)), (full, Ok(()), Ok(())));
        let (mut c, mut d) = (at("[2001:db8::1]:1"), at("[2001:db8::ffff]:1"));
        assert_eq!((c.set(7), d.set(4), d.set(3)), (Ok(()), full, Ok(())), "one network");
        let mut e = at("[2001:db8:0:1::]:1");
        assert_eq!((e.set(6), e.set(5)), (full, Ok(())), "all of it");
        drop((a, b));
        assert_eq!((e.set(10), locked(&parts.taken).all), (Ok(()), 20));
        drop((c, d, e));
        assert!(locked(&parts.taken).by_address.is_empty());
    }
}
