//! A limited resource with a part for each address, so that no client takes all of it.
//!
//! *Memory.* An entry for each address that uses the resource. An IPv6 /64 counts as one address.
//!
//! *Errors.* The [`Limit`] that was reached; the caller counts it by name.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use ahash::HashMap;
use mutex::locked;

use crate::channel::host_of;

/// A limit, with the name under which refusals are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub name: &'static str,
    /// Largest amount that one address may use.
    pub most: usize,
}

impl Limit {
    pub const fn new(name: &'static str, most: usize) -> Self {
        Self { name, most }
    }
}

/// The resource and its users.
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
    /// Creates a resource with these limits: in total, and for one address.
    pub fn new([of_all, of_address]: [Limit; 2]) -> Arc<Self> {
        let taken = Taken { of_all, of_address, all: 0, by_address: HashMap::default() };
        Arc::new(Self { taken: Mutex::new(taken) })
    }

    /// Changes the limits: in total, and for one address. Amounts above a new limit stay in use until released.
    pub fn set_most(&self, [of_all, of_address]: [usize; 2]) {
        let mut taken = locked(&self.taken);
        (taken.of_all.most, taken.of_address.most) = (of_all, of_address);
    }

    /// Creates an empty part for a user at this address.
    pub fn of(self: &Arc<Self>, at: IpAddr) -> Part {
        Part { parts: self.clone(), at: host_of(at), count: 0 }
    }

    /// Takes one unit for a user at this address.
    pub fn take(self: &Arc<Self>, at: IpAddr) -> Result<Part, Limit> {
        let mut part = self.of(at);
        part.set(1)?;
        Ok(part)
    }
}

/// The amount used by one user; released when dropped.
#[derive(Debug)]
pub struct Part {
    parts: Arc<Parts>,
    at: IpAddr,
    count: usize,
}

impl Part {
    /// Returns the amount that this holder uses.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Changes the amount; if that exceeds a limit, the amount stays as it was. A reduction always succeeds.
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
        // The holder keeps its amount and may reduce it.
        assert_eq!((part.count(), part.set(5), part.set(4)), (10, Ok(()), Ok(())));
        let mut other = parts.of("192.0.2.2".parse().unwrap());
        assert_eq!((other.set(3), other.set(2)), (Err(Limit { most: 6, ..ALL }), Ok(())));
        parts.set_most([30, 20]);
        assert_eq!(part.set(20), Ok(()));
    }

    #[test]
    fn address_part_is_limited() {
        let parts = Parts::new([ALL, OF_ONE]);
        let at = |text: &str| parts.of(text.parse().unwrap());
        let (mut a, mut b) = (at("192.0.2.1"), at("::ffff:192.0.2.1"));
        assert_eq!((a.set(6), b.set(5), b.set(4)), (Ok(()), Err(OF_ONE), Ok(())));
        // A reduction always succeeds, and a refused increase changes no counter.
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
