//! Share reservations of all hosts, by the address of the host.
//!
//! READ and WRITE of version 3 carry no open state. They are attributed to a reservation by the client's address, so that a
//! reservation does not block the host that made it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use mutex::locked;
use state::{Holder, HolderId, NodeId, Requester, Rights};

type ByFile = HashMap<(IpAddr, NodeId), Vec<(Requester, Rights)>>;

#[derive(Debug, Default)]
pub struct Reservations {
    /// Number of reservations. It is usually 0, and the lock is not taken then.
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

    /// Returns the rights that this reservation gives its owner.
    pub(super) fn access(&self, ip: IpAddr, node: NodeId, holder: HolderId) -> Option<Rights> {
        let of = self.of();
        let mine = |(who, _): &&(Requester, Rights)| who.holder == Some(holder);
        of.get(&(ip, node))?.iter().find(mine).map(|(_, access)| *access)
    }

    /// Returns the open through which an access from this address is made.
    pub fn who(&self, ip: IpAddr, node: NodeId, access: Rights) -> Option<Requester> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let of = self.of();
        of.get(&(ip, node))?.iter().find(|(_, has)| has.has(access)).map(|(who, _)| *who)
    }
}
