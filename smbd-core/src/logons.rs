//! Unfinished logons of all connections: limits per address, and eviction.
//!
//! *Operation.* Every logon holds a [`Ticket`] from its first message to its end. A logon beyond the limit of its address evicts
//! the oldest one of that address; one beyond the total evicts the oldest one of the address that has the most. An address that
//! begins logons without finishing them harms only itself. The client of an evicted logon starts again.
//!
//! *Memory.* At most [`LOGONS_MAX`] entries. An IPv6 network of 64 bits counts as one address.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};

use mutex::locked;
use rdma_transport::channel::host_of;

use crate::conn::Conn;
use crate::limits::{LOGONS_MAX, LOGONS_PER_ADDRESS_MAX};

/// Logons in progress.
#[derive(Default)]
pub struct Logons(Mutex<Table>);

#[derive(Default)]
struct Table {
    next: u64,
    /// In the order of their start.
    all: BTreeMap<u64, Entry>,
    by_address: HashMap<IpAddr, BTreeSet<u64>>,
}

struct Entry {
    from: IpAddr,
    conn: Weak<Conn>,
    session: u64,
}

/// The place of one logon, held until dropped.
pub(crate) struct Ticket {
    pub(crate) number: u64,
    logons: Arc<Logons>,
}

/// A logon that was evicted by another.
pub(crate) struct Evicted {
    pub(crate) conn: Weak<Conn>,
    pub(crate) session: u64,
    /// The limit that was reached, and its value.
    pub(crate) limit: (&'static str, usize),
}

impl Table {
    fn remove(&mut self, number: u64) -> Option<Entry> {
        let entry = self.all.remove(&number)?;
        if let Some(own) = self.by_address.get_mut(&entry.from) {
            own.remove(&number);
            if own.is_empty() {
                self.by_address.remove(&entry.from);
            }
        }
        Some(entry)
    }

    /// Returns the logon to evict for a new one from this address, if one must be.
    fn victim(&self, from: IpAddr) -> Option<(u64, (&'static str, usize))> {
        let own = self.by_address.get(&from);
        if let Some(own) = own.filter(|own| own.len() >= LOGONS_PER_ADDRESS_MAX) {
            return Some((*own.first()?, ("unfinished-logons-of-address", LOGONS_PER_ADDRESS_MAX)));
        }
        if self.all.len() < LOGONS_MAX {
            return None;
        }
        let most = self.by_address.values().max_by_key(|own| own.len())?;
        Some((*most.first()?, ("unfinished-logons", LOGONS_MAX)))
    }
}

impl Logons {
    pub fn count(&self) -> usize {
        locked(&self.0).all.len()
    }

    /// Begins a logon to `session` on a connection from this address. The caller must end the evicted one.
    pub(crate) fn begin(
        self: &Arc<Self>,
        from: IpAddr,
        conn: Weak<Conn>,
        session: u64,
    ) -> (Ticket, Option<Evicted>) {
        let from = host_of(from);
        let mut table = locked(&self.0);
        let victim = table.victim(from);
        let evicted = victim.and_then(|(number, limit)| {
            let Entry { conn, session, .. } = table.remove(number)?;
            Some(Evicted { conn, session, limit })
        });
        let number = table.next;
        table.next += 1;
        table.all.insert(number, Entry { from, conn, session });
        table.by_address.entry(from).or_default().insert(number);
        (Ticket { number, logons: self.clone() }, evicted)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        locked(&self.logons.0).remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn v6(network: u64, host: u64) -> IpAddr {
        Ipv6Addr::from_bits(u128::from(network) << 64 | u128::from(host)).into()
    }

    #[test]
    fn an_address_gives_way_to_itself() {
        let logons = Arc::new(Logons::default());
        let mut held = Vec::new();
        for n in 0..LOGONS_PER_ADDRESS_MAX as u64 {
            let (ticket, evicted) = logons.begin(v6(1, n), Weak::new(), n);
            assert!(evicted.is_none());
            held.push(ticket);
        }
        // Another host of the same network of 64 bits.
        let (_more, evicted) = logons.begin(v6(1, 1 << 40), Weak::new(), 7777);
        let evicted = evicted.unwrap();
        assert_eq!((evicted.session, evicted.limit.0), (0, "unfinished-logons-of-address"));
        let (_other, evicted) = logons.begin(v6(2, 1), Weak::new(), 1);
        assert!(evicted.is_none(), "another network has its own share");
        assert_eq!(logons.count(), LOGONS_PER_ADDRESS_MAX + 1);
        drop(held);
        assert_eq!(logons.count(), 2);
        assert_eq!(locked(&logons.0).by_address.len(), 2);
    }

    /// Many addresses fill the table together; a newcomer is not the one that is evicted.
    #[test]
    fn the_address_with_most_gives_way_to_a_new_one() {
        let logons = Arc::new(Logons::default());
        let addresses = u32::try_from(LOGONS_MAX / LOGONS_PER_ADDRESS_MAX).unwrap();
        let mut held = Vec::new();
        for a in 0..addresses {
            for n in 0..LOGONS_PER_ADDRESS_MAX as u64 {
                let from = Ipv4Addr::from_bits(a).into();
                held.push(logons.begin(from, Weak::new(), n));
            }
        }
        assert!(held.iter().all(|(_, evicted)| evicted.is_none()));
        let here = Ipv4Addr::from_bits(u32::MAX).into();
        let own: Vec<_> = (0..3).map(|n| logons.begin(here, Weak::new(), 1_000_000 + n)).collect();
        for (_, evicted) in &own {
            let evicted = evicted.as_ref().unwrap();
            assert_eq!(evicted.limit.0, "unfinished-logons");
            assert!(evicted.session < 1_000_000);
        }
        assert_eq!(logons.count(), LOGONS_MAX);
    }
}
