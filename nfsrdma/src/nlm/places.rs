//! Places for what hosts keep here, and for requests that wait. One address has a part of them, so that others find some.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use mutex::locked;
use rdma_transport::channel::host_of;

use super::limits::{Both, Limit};

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    of: HashMap<IpAddr, usize>,
}

/// So many places, and how many of them each address has.
#[derive(Debug)]
pub(super) struct Places {
    limits: Both,
    taken: Mutex<Taken>,
}

impl Places {
    pub(super) fn new(limits: Both) -> Arc<Self> {
        Arc::new(Self { limits, taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        locked(&self.taken)
    }

    /// A place for a host at this address.
    pub(super) fn take(self: &Arc<Self>, at: IpAddr) -> Result<Place, Limit> {
        let [all, of_address] = self.limits;
        let at = host_of(at);
        let mut taken = self.taken();
        if taken.of.get(&at).is_some_and(|of| *of >= of_address.most) {
            return Err(of_address);
        }
        if taken.all >= all.most {
            return Err(all);
        }
        taken.all += 1;
        *taken.of.entry(at).or_default() += 1;
        Ok(Place { places: self.clone(), at })
    }
}

/// A place, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    at: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.all -= 1;
        if let Some(of) = taken.of.get_mut(&self.at) {
            *of -= 1;
            if *of == 0 {
                taken.of.remove(&self.at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_places_to_others() {
        let limits = [Limit { name: "all", most: 3 }, Limit { name: "of-address", most: 2 }];
        let places = Places::new(limits);
        let take = |at: &str| places.take(at.parse().unwrap());
        let two = [take("2001:db8::1"), take("2001:db8::2")];
        assert!(two.iter().all(Result::is_ok));
        assert_eq!(take("2001:db8::3").unwrap_err(), limits[1], "of the same /64");
        let other = take("192.0.2.1").unwrap();
        assert_eq!(take("192.0.2.2").unwrap_err(), limits[0]);
        drop(two);
        assert_eq!(take("::ffff:192.0.2.1").unwrap().at, other.at);
        drop(other);
        assert!(places.taken().all == 0 && places.taken().of.is_empty(), "all were given back");
    }
}
