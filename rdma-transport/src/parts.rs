//! What clients may have of something of which there is only so much: a part of it for each address, so that none takes it all.
//!
//! *Memory.* An entry for each address that has something. An IPv6 network of 64 bits counts as one address.
//!
//! *Errors.* The [`Limit`] that was met; who asked counts it by its name.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use mutex::locked;

use crate::channel::host_of;

/// A limit, by the name under which it is counted when a client meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub name: &'static str,
    /// How much there may be.
    pub most: usize,
}

impl Limit {
    /// Of this name.
    pub const fn new(name: &'static str, most: usize) -> Self {
        Self { name, most }
    }
}

/// All there is, and who has it.
#[derive(Debug)]
pub struct Parts {
    taken: Mutex<Taken>,
}

#[derive(Debug)]
struct Taken {
    of_all: Limit,
    of_address: Limit,
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl Parts {
    /// With these limits: of all, and of one address.
    pub fn new([of_all, of_address]: [Limit; 2]) -> Arc<Self> {
        let taken = Taken { of_all, of_address, all: 0, by_address: HashMap::new() };
        Arc::new(Self { taken: Mutex::new(taken) })
    }

    /// Changes how much there may be: of all, and of one address. What is taken beyond that stays taken until it is given back.
    pub fn set_most(&self, [of_all, of_address]: [usize; 2]) {
        let mut taken = locked(&self.taken);
        (taken.of_all.most, taken.of_address.most) = (of_all, of_address);
    }

    /// The part of one who is at this address; nothing so far.
    pub fn of(self: &Arc<Self>, at: IpAddr) -> Part {
        Part { parts: self.clone(), at: host_of(at), count: 0 }
    }

    /// One, for one who is at this address.
    pub fn take(self: &Arc<Self>, at: IpAddr) -> Result<Part, Limit> {
        let mut part = self.of(at);
        part.set(1)?;
        Ok(part)
    }
}

/// What somebody has, until it is dropped.
#[derive(Debug)]
pub struct Part {
    parts: Arc<Parts>,
    at: IpAddr,
    count: usize,
}

impl Part {
    /// How much it is.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Has so much from now on; where that would be too much it has what it had. Less than before is never too much.
    pub fn set(&mut self, count: usize) -> Result<(), Limit> {
        let mut taken = locked(&self.parts.taken);
        let own = taken.by_address.get(&self.at).copied().unwrap_or(0) - self.count + count;
        let all = taken.all - self.count + count;
        if count > self.count {
            let limits = [(own, taken.of_address), (all, taken.of_all)];
            if let Some((_, limit)) = limits.into_iter().find(|(n, limit)| *n > limit.most) {
                return Err(limit);
            }
        }
        taken.all = all;
        match own {
            0 => drop(taken.by_address.remove(&self.at)),
            own => drop(taken.by_address.insert(self.at, own)),
        }
        self.count = count;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Limit = Limit::new("all", 25);
    const OF_ONE: Limit = Limit::new("of-one", 10);

    #[test]
    fn changed_limits_hold_for_new_parts() {
        let parts = Parts::new([ALL, OF_ONE]);
        let mut part = parts.of("192.0.2.1".parse().unwrap());
        assert_eq!((part.set(11), part.set(10)), (Err(OF_ONE), Ok(())));
        parts.set_most([6, 4]);
        assert_eq!(part.set(11), Err(Limit { most: 4, ..OF_ONE }));
        // It keeps what it has, and may have less.
        assert_eq!((part.count(), part.set(5), part.set(4)), (10, Ok(()), Ok(())));
        let mut other = parts.of("192.0.2.2".parse().unwrap());
        assert_eq!((other.set(3), other.set(2)), (Err(Limit { most: 6, ..ALL }), Ok(())));
        parts.set_most([30, 20]);
        assert_eq!(part.set(20), Ok(()));
    }

    #[test]
    fn an_address_has_its_part_and_no_more() {
        let parts = Parts::new([ALL, OF_ONE]);
        let at = |text: &str| parts.of(text.parse().unwrap());
        let (mut a, mut b) = (at("192.0.2.1"), at("::ffff:192.0.2.1"));
        assert_eq!((a.set(6), b.set(5), b.set(4)), (Ok(()), Err(OF_ONE), Ok(())));
        // Less is possible always, and what was refused was not taken.
        assert_eq!((a.set(7), a.set(5), b.set(5)), (Err(OF_ONE), Ok(()), Ok(())));
        let (mut c, mut d) = (at("2001:db8::1"), at("2001:db8::ffff"));
        assert_eq!((c.set(7), d.set(4), d.set(3)), (Ok(()), Err(OF_ONE), Ok(())), "one network");
        let mut e = at("2001:db8:0:1::");
        assert_eq!((e.set(6), e.set(5)), (Err(ALL), Ok(())), "all of it");
        assert_eq!(parts.take("192.0.2.2".parse().unwrap()).unwrap_err(), ALL);
        drop((a, b));
        assert_eq!((e.set(10), locked(&parts.taken).all), (Ok(()), 20));
        drop((c, d, e));
        assert!(locked(&parts.taken).by_address.is_empty(), "all was given back");
        assert_eq!(parts.take("192.0.2.2".parse().unwrap()).map(|one| one.count()), Ok(1));
    }
}
