//! Outcomes of attempts on the RDMA ports, so that a client's TCP connection can say why it is not on RDMA.
//!
//! *Memory.* One short record for each of at most [`CLIENTS_MAX`] addresses; a new address replaces the one with the oldest
//! attempt.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};

use mutex::locked;

use crate::admin::protocol::Protocol;

/// Addresses with a record.
pub const CLIENTS_MAX: usize = 4096;
/// Bytes of a reason that are kept.
const REASON_MAX: usize = 200;

/// The outcome of each address's last attempt.
#[derive(Debug, Default)]
pub struct Attempts(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    failed: HashMap<(Protocol, IpAddr), (u64, String)>,
    next: u64,
}

impl Attempts {
    fn lock(&self) -> MutexGuard<'_, Known> {
        locked(&self.0)
    }

    /// Records that an attempt of this address failed.
    pub fn failed(&self, protocol: Protocol, ip: IpAddr, why: &str) {
        let mut known = self.lock();
        let key = (protocol, ip.to_canonical());
        if known.failed.len() >= CLIENTS_MAX && !known.failed.contains_key(&key) {
            let oldest = known.failed.iter().min_by_key(|(_, (at, _))| *at).map(|(key, _)| *key);
            oldest.and_then(|key| known.failed.remove(&key));
        }
        let at = known.next;
        known.next += 1;
        known.failed.insert(key, (at, why.chars().take(REASON_MAX).collect()));
    }

    /// Records that an attempt of this address succeeded, which makes earlier failures irrelevant.
    pub fn succeeded(&self, protocol: Protocol, ip: IpAddr) {
        self.lock().failed.remove(&(protocol, ip.to_canonical()));
    }

    /// Returns the error of this address's last failed attempt, if it has not succeeded since.
    pub fn failure(&self, protocol: Protocol, ip: IpAddr) -> Option<String> {
        self.lock().failed.get(&(protocol, ip.to_canonical())).map(|(_, why)| why.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_failure_counts_until_one_comes_through() {
        let (a, nfs) = (Attempts::default(), Protocol::Nfs);
        let ip: IpAddr = [192, 0, 2, 1].into();
        a.failed(nfs, ip, "first");
        a.failed(nfs, ip, &"é".repeat(500));
        assert_eq!(a.failure(nfs, ip).unwrap().chars().count(), REASON_MAX);
        assert_eq!(a.failure(Protocol::Smb, ip), None);
        a.succeeded(nfs, ip);
        assert_eq!(a.failure(nfs, ip), None);
    }

    #[test]
    fn many_addresses_take_no_memory_without_end() {
        let (a, nfs) = (Attempts::default(), Protocol::Nfs);
        for n in 0..=u32::try_from(CLIENTS_MAX).unwrap() {
            a.failed(nfs, std::net::Ipv4Addr::from(n).into(), "x");
        }
        assert_eq!(a.lock().failed.len(), CLIENTS_MAX);
        assert_eq!(a.failure(nfs, std::net::Ipv4Addr::from(0).into()), None);
        assert!(a.failure(nfs, std::net::Ipv4Addr::from(1).into()).is_some());
    }
}
