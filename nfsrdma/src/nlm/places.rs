//! Places that requests take while they wait. One address has a part of them (of IPv6 one /64), so that others find some.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};

use mutex::locked;
use rdma_transport::channel::host_of;

/// So many places, and how many of them each address has.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    of_address_max: usize,
    taken: Mutex<HashMap<IpAddr, usize>>,
}

impl Places {
    pub(super) fn new(most: usize, of_address_max: usize) -> Self {
        Self { most, of_address_max, taken: Mutex::default() }
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        locked(&self.taken)
    }

    /// A place for a request from this address; `None` when its part or all of them are taken.
    pub(super) fn take(&self, at: IpAddr) -> Option<Place<'_>> {
        let at = host_of(at);
        let mut taken = self.taken();
        let of_address = taken.get(&at).copied().unwrap_or(0);
        if of_address >= self.of_address_max || taken.values().sum::<usize>() >= self.most {
            return None;
        }
        taken.insert(at, of_address + 1);
        Some(Place { places: self, at })
    }
}

/// A place, given back also when the request is dropped.
#[derive(Debug)]
pub(super) struct Place<'a> {
    places: &'a Places,
    at: IpAddr,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(of_address) = taken.get_mut(&self.at) {
            *of_address -= 1;
            if *of_address == 0 {
                taken.remove(&self.at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_places_to_others() {
        let places = Places::new(3, 2);
        let take = |at: &str| places.take(at.parse().unwrap());
        let first = (take("2001:db8::1"), take("2001:db8::2"));
        assert!(first.0.is_some() && first.1.is_some());
        assert!(take("2001:db8::3").is_none(), "of the same /64");
        let other = take("192.0.2.1");
        assert!(other.is_some());
        assert!(take("192.0.2.2").is_none(), "all are taken");
        drop(first);
        assert!(take("::ffff:192.0.2.1").is_some_and(|p| p.at == other.as_ref().unwrap().at));
        drop(other);
        assert!(places.taken().is_empty(), "nothing is left of those that went");
    }
}
