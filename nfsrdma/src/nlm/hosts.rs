//! The hosts that lock files, and the holdings of each.
//!
//! A host is identified by the name that it reports and its address. Its processes own locks; an owner has one holder in `state`
//! for each file. Lock order: the registry, then a host's `held`, then the shards of `state` or the counted limits. These locks are
//! never held across an await.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use mutex::locked;
use rdma_transport::channel::host_of;
use rdma_transport::parts::{Limit, Part, Parts};
use state::{ClientId, Holder, HolderId, Lease, Millis, NodeId, Range, Table};
use vfs::NodeRef;

use super::limits;
use crate::fh::Fh;
use crate::rpc::outgoing::Route;

/// The identity of a host: its reported name and its address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// `caller_name`.
    pub name: Box<[u8]>,
    pub ip: IpAddr,
}

/// The kind of holding: byte-range locks, or a share reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Sort {
    Lock,
    Share,
}

/// A process of a host that holds locks or a reservation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    pub(super) sort: Sort,
    pub(super) svid: i32,
    pub(super) oh: Box<[u8]>,
}

/// The holder of an owner on one file.
pub(super) struct Held {
    /// Keeps the node alive, so that its number is not reused.
    pub(super) node: NodeRef,
    pub(super) fh: Fh,
    pub(super) party: Holder,
    /// The status monitor's number under which all of it was taken; 0 if the host did not send one.
    state: i32,
    _place: Part,
}

/// Released holdings: the number of holders, and file and holder of each share reservation among them.
pub(super) type Released = (usize, Vec<(NodeId, HolderId)>);

pub(super) type Holdings = HashMap<(Owner, NodeId), Held>;

pub struct Host {
    pub key: Key,
    pub(super) lease: Arc<Lease>,
    /// The route to its lock manager, and the server address that the host uses.
    pub(super) route: Route,
    /// The host is in the durable list of hosts to notify after a restart.
    pub(super) monitored: AtomicBool,
    heard: AtomicU64,
    /// The latest number of its status monitor; 0 before the first. Changed only with `held` locked.
    state: AtomicI32,
    /// The number in the last notice that released its holdings; 0 before the first.
    notified: AtomicI32,
    held: Mutex<Holdings>,
    /// Counts the holders of all hosts.
    holders: Arc<Parts>,
    _place: Part,
}

impl Host {
    pub(super) fn held(&self) -> MutexGuard<'_, Holdings> {
        locked(&self.held)
    }

    /// Returns the holder of this owner on this file, and creates it if the limits allow.
    pub(super) fn holder(
        &self,
        owner: &Owner,
        node: &NodeRef,
        fh: &Fh,
        fresh: impl FnOnce() -> HolderId,
    ) -> Result<Holder, Limit> {
        let mut held = self.held();
        let state = self.state.load(Ordering::Relaxed);
        let has_room = held.len() < limits::HOLDERS_OF_HOST.most;
        match held.entry((owner.clone(), node.id())) {
            MapEntry::Occupied(mut there) => {
                there.get_mut().state = state;
                Ok(there.get().party.clone())
            }
            MapEntry::Vacant(free) if has_room => {
                let _place = self.holders.take(self.key.ip)?;
                let party = Holder { holder: fresh(), lease: self.lease.clone(), via: 0 };
                let (node, fh) = (node.clone(), *fh);
                free.insert(Held { node, fh, party: party.clone(), state, _place });
                Ok(party)
            }
            MapEntry::Vacant(_) => Err(limits::HOLDERS_OF_HOST),
        }
    }

    /// Handles the status monitor's number in a LOCK. A number later than the known one proves that the host restarted, even
    /// without a notice: holdings of earlier numbers are released. 0 means unknown, and an earlier number belongs to a delayed
    /// LOCK.
    pub(super) fn note_state(&self, state: i32, table: &Table) -> Option<Released> {
        let mut held = self.held();
        let known = self.state.load(Ordering::Relaxed);
        if state == 0 || known != 0 && !is_later(state, known) {
            return None;
        }
        self.state.store(state, Ordering::Relaxed);
        let released = release(&mut held, |h| h.state != 0 && is_later(state, h.state), table);
        (released.0 > 0).then_some(released)
    }

    /// Handles the status monitor's number in a notice: releases the holdings taken under earlier numbers. `None` if the notice is
    /// no news: it repeats the last one, is older than a number seen since, or everything was taken under its number.
    pub(super) fn notified(&self, state: i32, table: &Table) -> Option<Released> {
        let mut held = self.held();
        let (known, last) =
            (self.state.load(Ordering::Relaxed), self.notified.load(Ordering::Relaxed));
        let comes_late =
            last != 0 && !is_later(state, last) || known != 0 && is_later(known, state);
        let before = |h: &Held| h.state == 0 || is_later(state, h.state);
        if comes_late || known == state && !held.values().any(before) {
            return None;
        }
        self.notified.store(state, Ordering::Relaxed);
        self.state.store(state, Ordering::Relaxed);
        Some(release(&mut held, before, table))
    }

    /// Removes a holder that has no locks left.
    pub(super) fn prune(&self, owner: &Owner, node: NodeId, table: &Table) {
        let mut held = self.held();
        if let MapEntry::Occupied(there) = held.entry((owner.clone(), node))
            && !table.holds_lock(node, there.get().party.holder)
        {
            table.release(node, there.remove().party.holder);
        }
    }

    /// Keeps the state that a waiting request entered for this holder. If the holder was removed meanwhile (its owner unlocked, its
    /// host restarted), that state has no owner: it is released here, and false is returned.
    pub(super) fn keep(
        &self,
        owner: &Owner,
        node: NodeId,
        holder: HolderId,
        table: &Table,
    ) -> bool {
        let held = self.held();
        let known = held.get(&(owner.clone(), node)).is_some_and(|h| h.party.holder == holder);
        if !known {
            table.release(node, holder);
        }
        known
    }

    /// Releases a range. False if the remaining pieces would exceed the limit on locks. `fh` finds the file after it was removed.
    pub(super) fn unlock(
        &self,
        owner: &Owner,
        node: Option<NodeId>,
        fh: &Fh,
        range: Range,
        table: &Table,
    ) -> bool {
        let node = node.or_else(|| {
            let held = self.held();
            held.iter().find(|((o, _), h)| o == owner && h.fh == *fh).map(|((_, node), _)| *node)
        });
        let Some(node) = node else { return true };
        let Some(party) = self.held().get(&(owner.clone(), node)).map(|h| h.party.clone()) else {
            return true;
        };
        let done = table.unlock(node, &party, range);
        self.prune(owner, node, table);
        done
    }

    /// True if this host has a share reservation on the file: its open covers the host's locks, too.
    pub(super) fn has_share(&self, node: NodeId) -> bool {
        self.held().keys().any(|(owner, n)| owner.sort == Sort::Share && *n == node)
    }

    /// The owners with locks on the file.
    pub(super) fn lockers(&self, node: NodeId) -> Vec<Holder> {
        let held = self.held();
        let lockers = held.iter().filter(|((o, n), _)| o.sort == Sort::Lock && *n == node);
        lockers.map(|(_, h)| h.party.clone()).collect()
    }

    /// Releases the holdings for which `which` is true.
    pub(super) fn release(&self, which: impl Fn(&Held) -> bool, table: &Table) -> Released {
        release(&mut self.held(), which, table)
    }

    /// The process and owner of a holder.
    fn owner_of(&self, holder: HolderId) -> Option<(i32, Box<[u8]>)> {
        let held = self.held();
        let (owner, _) = held.iter().find(|(_, h)| h.party.holder == holder)?.0;
        Some((owner.svid, owner.oh.clone()))
    }

    fn is_idle(&self, now: Millis) -> bool {
        let heard = self.heard.load(Ordering::Relaxed);
        now.saturating_sub(heard) > limits::IDLE_SECONDS_MAX * 1000 && self.held().is_empty()
    }
}

/// Compares numbers of a status monitor, which grow with each start of its host (X/Open XNFS section 11.2).
fn is_later(state: i32, than: i32) -> bool {
    state.wrapping_sub(than) > 0
}

fn release(held: &mut Holdings, which: impl Fn(&Held) -> bool, table: &Table) -> Released {
    let (mut number, mut shares) = (0, Vec::new());
    held.retain(|(owner, node), held| {
        if !which(held) {
            return true;
        }
        number += 1;
        table.release(*node, held.party.holder);
        if owner.sort == Sort::Share {
            shares.push((*node, held.party.holder));
        }
        false
    });
    (number, shares)
}

#[derive(Default)]
struct Registry {
    of: HashMap<Key, Arc<Host>>,
    by_id: HashMap<ClientId, Arc<Host>>,
}

pub(super) struct Hosts {
    registry: Mutex<Registry>,
    next: AtomicU32,
    places: Arc<Parts>,
    holders: Arc<Parts>,
}

impl Default for Hosts {
    fn default() -> Self {
        Self {
            registry: Mutex::default(),
            next: AtomicU32::new(0),
            places: Parts::new(limits::HOSTS),
            holders: Parts::new(limits::HOLDERS),
        }
    }
}

impl Hosts {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        locked(&self.registry)
    }

    pub(super) fn find(&self, key: &Key) -> Option<Arc<Host>> {
        self.registry().of.get(key).cloned()
    }

    /// Returns the host of this name and address, creating it if needed, and updates its time of last contact. `local` is the
    /// server address that it called.
    pub(super) fn heard(&self, key: &Key, local: IpAddr, now: Millis) -> Result<Arc<Host>, Limit> {
        let mut registry = self.registry();
        if let Some(host) = registry.of.get(key) {
            host.heard.store(now, Ordering::Relaxed);
            host.route.set_from(local);
            return Ok(host.clone());
        }
        let _place = self.places.take(key.ip)?;
        let id = ClientId::host(self.next.fetch_add(1, Ordering::Relaxed));
        let host = Arc::new(Host {
            key: key.clone(),
            lease: Arc::new(Lease::held(id).of_host(host_of(key.ip))),
            route: Route::new(key.ip, local),
            monitored: AtomicBool::new(false),
            heard: AtomicU64::new(now),
            state: AtomicI32::new(0),
            notified: AtomicI32::new(0),
            held: Mutex::default(),
            holders: self.holders.clone(),
            _place,
        });
        registry.of.insert(key.clone(), host.clone());
        registry.by_id.insert(id, host.clone());
        Ok(host)
    }

    /// Finds the host that a notice is about: the one with this name at the sender's address, or the only host at that address,
    /// since status monitor and lock manager of a host may name it differently. A host is never matched at an address that it did
    /// not lock from.
    pub(super) fn named(&self, name: &[u8], ip: IpAddr) -> Option<Arc<Host>> {
        let registry = self.registry();
        let there: Vec<_> = registry.of.values().filter(|h| h.key.ip == ip).collect();
        let is_named = |h: &&&Arc<Host>| h.key.name.eq_ignore_ascii_case(name);
        match (there.iter().find(is_named), &there[..]) {
            (Some(named), _) => Some((*named).clone()),
            (None, [only]) => Some((*only).clone()),
            _ => None,
        }
    }

    /// The process and owner of a holder in `state`, if it belongs to NLM.
    pub(super) fn owner_of(&self, client: ClientId, holder: HolderId) -> Option<(i32, Box<[u8]>)> {
        let host = self.registry().by_id.get(&client).cloned()?;
        host.owner_of(holder)
    }

    /// Removes hosts that hold no locks and have been silent for long, except those for which `busy` is true.
    pub(super) fn take_idle(&self, now: Millis, busy: impl Fn(&Host) -> bool) -> Vec<Arc<Host>> {
        let mut registry = self.registry();
        let idle: Vec<_> =
            registry.of.values().filter(|h| h.is_idle(now) && !busy(h)).cloned().collect();
        for host in &idle {
            registry.of.remove(&host.key);
            registry.by_id.remove(&host.lease.client());
        }
        idle
    }

    pub(super) fn all(&self) -> Vec<Arc<Host>> {
        self.registry().of.values().cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.registry().of.len()
    }
}

#[cfg(test)]
mod tests {
    use vfs::Backend;
    use vfs::mem::MemBackend;

    use super::*;

    #[test]
    fn hosts_of_one_address_share_limit() {
        let deadlines = state::Deadlines::new(1000, 2000).unwrap();
        let table = Table::new(deadlines, state::Limits::default(), 0);
        let hosts = Hosts::default();
        let node = MemBackend::new(1 << 20).unwrap().root();
        let host = |name: &[u8], ip: [u8; 4]| {
            let key = Key { name: name.into(), ip: ip.into() };
            hosts.heard(&key, [10, 0, 0, 1].into(), 0).unwrap()
        };
        let hold = |host: &Host, svid: usize| {
            let svid = i32::try_from(svid).unwrap();
            let owner = Owner { sort: Sort::Lock, svid, oh: Box::default() };
            host.holder(&owner, &node, &Fh::EMPTY, || table.holder()).map(drop)
        };
        let [_, of_address] = limits::HOLDERS;
        let of_host = limits::HOLDERS_OF_HOST;
        let many: Vec<_> = (0..u8::try_from(of_address.most / of_host.most).unwrap())
            .map(|n| host(&[n], [10, 0, 0, 2]))
            .collect();
        for one in &many {
            (0..of_host.most).for_each(|svid| assert_eq!(hold(one, svid), Ok(())));
            assert_eq!(hold(one, of_host.most), Err(of_host));
        }
        let more = host(b"more", [10, 0, 0, 2]);
        assert_eq!(hold(&more, 0), Err(of_address));
        assert_eq!(hold(&host(b"more", [10, 0, 0, 3]), 0), Ok(()), "another address");
        many[0].release(|_| true, &table);
        assert_eq!(hold(&more, 0), Ok(()), "what was given back is free again");
    }
}
