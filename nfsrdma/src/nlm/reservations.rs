//! Share reservations of all hosts, by the address of the host.
//!
//! Reads and writes of version 3 come without an open. So that a reservation does not stand in the way of the host that made it,
//! it is found by that address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use mutex::locked;
use state::{Holder, HolderId, NodeId, Requester, Rights};

type ByFile = HashMap<(IpAddr, NodeId), Vec<(Requester, Rights)>>;

/// The reservations of all hosts, by address and file.
#[derive(Debug, Default)]
pub struct Reservations {
    /// Mostly there is none, and nobody has to look further.
    count: AtomicUsize,
    of: Mutex<ByFile>,
}

impl Reservations {
    fn of(&self) -> MutexGuard<'_, ByFile> {
        locked(&self.of)
    }

    pub(super) fn set(&self, ip: IpAddr, node: NodeId, party: &Holder, access: Rights) {
        let mut of = self.of();
        let list = of.entry((ip, node)).or_default();
        match list.iter_mut().find(|(who, _)| who.holder == Some(party.holder)) {
            Some((_, old)) => *old = access,
            None => {
                list.push((party.requester(), access));
                self.count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn remove(&self, ip: IpAddr, node: NodeId, holder: HolderId) {
        let mut of = self.of();
        let Some(list) = of.get_mut(&(ip, node)) else { return };
        let before = list.len();
        list.retain(|(who, _)| who.holder != Some(holder));
        self.count.fetch_sub(before - list.len(), Ordering::Relaxed);
        if list.is_empty() {
            of.remove(&(ip, node));
        }
    }

    /// What this reservation lets its owner do.
    pub(super) fn access(&self, ip: IpAddr, node: NodeId, holder: HolderId) -> Option<Rights> {
        let of = self.of();
        let mine = |(who, _): &&(Requester, Rights)| who.holder == Some(holder);
        of.get(&(ip, node))?.iter().find(mine).map(|(_, access)| *access)
    }

    /// Through which open such an access from this address goes.
    pub fn who(&self, ip: IpAddr, node: NodeId, access: Rights) -> Option<Requester> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let of = self.of();
        of.get(&(ip, node))?.iter().find(|(_, has)| has.has(access)).map(|(who, _)| *who)
    }
}
