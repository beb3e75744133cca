//! The state of one NFSv4 client: opens, lock states and delegations, by the number in their stateids.
//!
//! *Operation.* This is the protocol's view: numbers, seqids, owners. Exclusion of other clients is in `state`, under the holder of
//! each entry. An open is made in two steps, [`Held::reserve`] and [`Held::commit`], because `state` may have to wait in between.
//!
//! *Memory.* [`StatesMax`] entries, [`limits::OWNERS_PER_CLIENT_MAX`] owners of each kind.
//!
//! *Errors.* [`Status`]; the callers convert it for their minor version.

use std::collections::HashMap as StdHashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ahash::HashMap;
use state::{ClientId, Holder, HolderId, Lease, NodeHasher, Rights, Share, Table};
use vfs::{NodeId, NodeRef, Time};

use super::limits;
use super::owner::OpenOwnerSeqid;
use super::principal::Principal;
use super::stateid::{self, compose};
use super::status::Status;
use super::usage::{Usage, UsagePlace};
use super::wire::Stateid;

/// A file, with the number of the share through which the client uses it.
pub(super) type FileInShare = (u32, NodeId);

/// An owner's name, chosen by the client.
pub(super) type OwnerName = Arc<[u8]>;

/// The user of an OPEN.
#[derive(Clone, Copy)]
pub(super) struct Opener {
    /// User id after squashing.
    pub(super) uid: u32,
    pub(super) caller: Principal,
}

/// A file that a client holds open.
pub(super) struct Open {
    pub(super) seqid: u32,
    pub(super) node: NodeRef,
    pub(super) owner: OwnerName,
    pub(super) party: Holder,
    pub(super) share: Share,
    /// The user whose permissions the last OPEN checked, and the access that was checked for this user.
    pub(super) uid: u32,
    pub(super) checked: Rights,
    /// The caller of the last OPEN, before the share squashed it.
    pub(super) caller: Principal,
    /// A bit for each access and deny mode that made up `share`.
    modes: u16,
    /// Number of OPENs that wait for `state`.
    pub(super) opening: u32,
    /// Lock states created through it.
    pub(super) locks: Vec<u32>,
    pub(super) place: Option<UsagePlace>,
}

/// The locks of one owner on one file.
pub(super) struct LockState {
    pub(super) seqid: u32,
    pub(super) node: NodeRef,
    pub(super) owner: OwnerName,
    pub(super) party: Holder,
    /// The open through which it was created.
    pub(super) open: u32,
    pub(super) place: Option<UsagePlace>,
}

pub(super) struct Delegation {
    pub(super) seqid: u32,
    pub(super) node: NodeRef,
    pub(super) party: Holder,
    /// The file handle for callbacks.
    pub(super) fh: crate::fh::Fh,
    /// True for a write delegation.
    pub(super) write: bool,
    /// The holder also keeps the times of the file (RFC 9754 section 5).
    pub(super) times: bool,
    /// Lower bound of times accepted from the holder: the time of the grant, for a user who may write but not set times.
    pub(super) times_since: Option<Time>,
    /// The file's change attribute at the grant: see [`super::watch`], and RFC 8881 section 10.4.3.
    pub(super) change: u64,
    /// Counts it in the part of the client's address.
    pub(super) _of_address: Option<UsagePlace>,
    /// The user whose permissions the OPEN checked, and the access checked.
    pub(super) uid: u32,
    pub(super) checked: Rights,
    /// The caller of that OPEN, before the share squashed it.
    pub(super) caller: Principal,
    /// True if the state was revoked and the client has not freed it yet.
    pub(super) revoked: bool,
    pub(super) place: Option<UsagePlace>,
}

/// The state of a stateid.
pub(super) enum Entry {
    Open(Open),
    Lock(LockState),
    Delegation(Delegation),
    /// Minor version 0: the open that this owner closed last, for a retransmitted CLOSE.
    Closed(OwnerName),
    /// Revoked by an administrator; the client has not freed it yet.
    Revoked(Revoked),
}

/// State revoked by an administrator.
pub(super) struct Revoked {
    pub(super) node: NodeRef,
    /// The number of the share.
    via: u32,
    /// The number of the open itself, or of the open through which a lock was created.
    open: u32,
}

impl Entry {
    /// Attaches the entry's place in the limits of its address. Closed and revoked entries are small and have no place.
    fn count_in(&mut self, place: UsagePlace) {
        match self {
            Self::Open(Open { place: own, .. })
            | Self::Lock(LockState { place: own, .. })
            | Self::Delegation(Delegation { place: own, .. }) => *own = Some(place),
            Self::Closed(_) | Self::Revoked(_) => {}
        }
    }

    pub(super) fn seqid(&self) -> u32 {
        match self {
            Self::Open(o) => o.seqid,
            Self::Lock(l) => l.seqid,
            Self::Delegation(d) => d.seqid,
            Self::Closed(_) | Self::Revoked(_) => 0,
        }
    }

    pub(super) fn file(&self) -> Option<FileInShare> {
        match self {
            Self::Open(Open { node, party, .. })
            | Self::Lock(LockState { node, party, .. })
            | Self::Delegation(Delegation { node, party, .. }) => Some((party.via, node.id())),
            Self::Revoked(r) => Some((r.via, r.node.id())),
            Self::Closed(_) => None,
        }
    }

    pub(super) fn node(&self) -> Option<&NodeRef> {
        match self {
            Self::Open(o) => Some(&o.node),
            Self::Lock(l) => Some(&l.node),
            Self::Delegation(d) => Some(&d.node),
            Self::Revoked(r) => Some(&r.node),
            Self::Closed(_) => None,
        }
    }
}

#[derive(Default)]
pub(super) struct OpenOwner {
    pub(super) order: OpenOwnerSeqid,
    /// Minor version 0: OPEN_CONFIRM was received.
    pub(super) confirmed: bool,
    pub(super) opens: HashMap<FileInShare, u32>,
    closed: Option<u32>,
    _place: Option<UsagePlace>,
}

/// A lock owner. It has one holder for each file, whichever open a lock came through.
#[derive(Default)]
pub(super) struct LockOwner {
    pub(super) order: OpenOwnerSeqid,
    pub(super) states: HashMap<FileInShare, u32>,
    _place: Option<UsagePlace>,
}

/// The state of one client.
#[derive(Default)]
pub(super) struct Held {
    states: StdHashMap<u32, Entry, BuildHasherDefault<NodeHasher>>,
    pub(super) open_owners: HashMap<OwnerName, OpenOwner>,
    pub(super) lock_owners: HashMap<OwnerName, LockOwner>,
    next: u32,
    gone: bool,
    most: StatesMax,
    usage: Usage,
    /// Numbers of lock states and delegations, by holder in `state`.
    by_holder: HashMap<HolderId, u32>,
}

/// The entries of a client that has ended.
pub(super) struct Gone(Vec<Entry>);

impl Gone {
    /// Releases all entries in `state`; returns the number of delegations.
    pub(super) fn release(self, table: &Table) -> usize {
        let mut delegations = 0;
        for entry in self.0 {
            match entry {
                Entry::Open(o) => table.release(o.node.id(), o.party.holder),
                Entry::Lock(l) => table.release(l.node.id(), l.party.holder),
                Entry::Delegation(d) => {
                    delegations += usize::from(!d.revoked);
                    table.release(d.node.id(), d.party.holder);
                }
                Entry::Closed(_) | Entry::Revoked(_) => {}
            }
        }
        delegations
    }
}

fn mode_bit(share: Share) -> u16 {
    1 << (share.access.bits() | share.deny.bits() << 2)
}

fn modes_in(modes: u16) -> impl Iterator<Item = Share> {
    (0..16u32)
        .filter(move |n| modes & (1 << n) != 0)
        .filter_map(|n| Some(Share::new(Rights::from_bits(n & 3)?, Rights::from_bits(n >> 2)?)))
}

fn is_part(part: Share, whole: Share) -> bool {
    whole.access.has(part.access) && whole.deny.has(part.deny)
}

/// Limit on entries of one client; shared by all clients, so that it can change.
#[derive(Clone, Debug)]
pub(super) struct StatesMax(Arc<AtomicUsize>);

impl Default for StatesMax {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(limits::STATES_PER_CLIENT_MAX)))
    }
}

impl StatesMax {
    pub(super) fn set(&self, most: usize) {
        self.0.store(most, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Held {
    /// Creates an empty set with this limit, and the limit of its address.
    pub(super) fn within(most: StatesMax, usage: Usage) -> Self {
        Self { most, usage, ..Self::default() }
    }

    fn of_address_max(&self) -> usize {
        self.most.get().saturating_mul(limits::STATES_OF_ADDRESS_CLIENTS)
    }

    /// The limit that refused an entry or owner: the one of the address if it is reached, else this one.
    pub(super) fn limit_met(&self, own: (&'static str, usize)) -> (&'static str, usize) {
        if self.usage.has_all_owners() {
            ("nfs-owners-of-address", limits::OWNERS_OF_ADDRESS_MAX)
        } else if self.usage.has_states(self.of_address_max()) {
            ("nfs-opens-of-address", self.of_address_max())
        } else {
            own
        }
    }

    /// All entries, in no particular order.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.states.values()
    }

    /// True if no entry matters any more: closed entries only serve retransmissions, revoked ones only inform the client.
    pub(super) fn is_empty(&self) -> bool {
        self.states.values().all(|entry| match entry {
            Entry::Revoked(_) | Entry::Closed(_) => true,
            Entry::Delegation(d) => d.revoked,
            Entry::Open(_) | Entry::Lock(_) => false,
        })
    }

    /// Returns whether this caller has a file open, or holds a delegation.
    pub(super) fn has_file_of(&self, caller: Principal) -> bool {
        self.states.values().any(|entry| match entry {
            Entry::Open(open) => open.caller == caller,
            Entry::Delegation(d) => !d.revoked && d.caller == caller,
            _ => false,
        })
    }

    /// Number of entries; nearly all refer to a file.
    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// Ends the client: removes all entries and refuses new ones.
    pub(super) fn take_all(&mut self) -> Gone {
        self.gone = true;
        self.open_owners.clear();
        self.lock_owners.clear();
        self.by_holder.clear();
        Gone(self.states.drain().map(|(_, entry)| entry).collect())
    }

    pub(super) fn get(&self, number: u32) -> Option<&Entry> {
        self.states.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Entry> {
        self.states.get_mut(&number)
    }

    pub(super) fn open(&self, number: u32) -> Option<&Open> {
        match self.states.get(&number) {
            Some(Entry::Open(o)) => Some(o),
            _ => None,
        }
    }

    pub(super) fn open_mut(&mut self, number: u32) -> Option<&mut Open> {
        match self.states.get_mut(&number) {
            Some(Entry::Open(o)) => Some(o),
            _ => None,
        }
    }

    /// Adds an entry and returns its number; `None` if a limit is reached.
    pub(super) fn add(&mut self, mut entry: Entry) -> Option<u32> {
        if self.gone || self.states.len() >= self.most.get() {
            return None;
        }
        entry.count_in(self.usage.state(self.of_address_max())?);
        loop {
            self.next = self.next.wrapping_add(1);
            if !self.states.contains_key(&self.next) {
                if let Entry::Lock(LockState { party, .. })
                | Entry::Delegation(Delegation { party, .. }) = &entry
                {
                    self.by_holder.insert(party.holder, self.next);
                }
                self.states.insert(self.next, entry);
                return Some(self.next);
            }
        }
    }

    /// The number of the lock state or delegation with this holder in `state`.
    pub(super) fn number_of(&self, holder: HolderId) -> Option<u32> {
        self.by_holder.get(&holder).copied()
    }

    /// Like [`Held::number_of`], but also finds opens.
    pub(super) fn number_of_any(&self, holder: HolderId) -> Option<u32> {
        let is_it = |(number, entry): (&u32, &Entry)| match entry {
            Entry::Open(o) => (o.party.holder == holder).then_some(*number),
            _ => None,
        };
        self.number_of(holder).or_else(|| self.states.iter().find_map(is_it))
    }

    /// Removes an open with its locks, or a single lock state, and returns the removed entries.
    pub(super) fn take_one(&mut self, number: u32, table: &Table) -> Vec<(u32, Revoked)> {
        let (numbers, node, via, open) = match self.states.get(&number) {
            Some(Entry::Open(o)) => {
                ([&[number], &o.locks[..]].concat(), o.node.clone(), o.party.via, number)
            }
            Some(Entry::Lock(l)) => (vec![number], l.node.clone(), l.party.via, l.open),
            _ => return Vec::new(),
        };
        self.remove_lock(number, table);
        // Minor version 1 is passed because no retransmission of a CLOSE can follow.
        let _ = self.close(number, 1, table);
        numbers.into_iter().map(|n| (n, Revoked { node: node.clone(), via, open })).collect()
    }

    /// Marks this number as revoked by an administrator.
    pub(super) fn note_revoked(&mut self, number: u32, what: Revoked) {
        self.states.insert(number, Entry::Revoked(what));
    }

    /// The client frees a revoked stateid; returns the number of entries freed. An open is freed with its locks: Linux's client
    /// frees only the open, and any remaining lock would make each SEQUENCE ask it to look for losses.
    pub(super) fn free_revoked(&mut self, number: u32) -> usize {
        let Some(Entry::Revoked(_)) = self.states.get(&number) else { return 0 };
        let before = self.states.len();
        self.states
            .retain(|n, e| *n != number && !matches!(e, Entry::Revoked(r) if r.open == number));
        before - self.states.len()
    }

    /// Removes a delegation that was returned or freed.
    pub(super) fn remove_delegation(&mut self, number: u32) -> Option<Delegation> {
        match self.states.get(&number) {
            Some(Entry::Delegation(_)) => match self.states.remove(&number) {
                Some(Entry::Delegation(d)) => {
                    self.by_holder.remove(&d.party.holder);
                    Some(d)
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Finds or creates the open owner of this name. `None` if the limit is reached.
    pub(super) fn open_owner(&mut self, name: &[u8]) -> Option<(OwnerName, &mut OpenOwner)> {
        if !self.open_owners.contains_key(name) {
            if self.open_owners.len() >= limits::OWNERS_PER_CLIENT_MAX
                || self.usage.has_all_owners()
            {
                // Idle owners of 4.0 remain only for retransmissions, so they may go.
                self.open_owners.retain(|_, o| !o.opens.is_empty() || o.order.is_busy());
            }
            if self.gone || self.open_owners.len() >= limits::OWNERS_PER_CLIENT_MAX {
                return None;
            }
            let _place = Some(self.usage.owner()?);
            self.open_owners.insert(name.into(), OpenOwner { _place, ..OpenOwner::default() });
        }
        let name = self.open_owners.get_key_value(name).map(|(name, _)| name.clone())?;
        let owner = self.open_owners.get_mut(&name)?;
        Some((name, owner))
    }

    /// Finds or creates the lock owner of this name, like [`Held::open_owner`].
    pub(super) fn lock_owner(&mut self, name: &[u8]) -> Option<(OwnerName, &mut LockOwner)> {
        if !self.lock_owners.contains_key(name) {
            if self.lock_owners.len() >= limits::OWNERS_PER_CLIENT_MAX
                || self.usage.has_all_owners()
            {
                self.lock_owners.retain(|_, o| !o.states.is_empty() || o.order.is_busy());
            }
            if self.lock_owners.len() >= limits::OWNERS_PER_CLIENT_MAX {
                return None;
            }
            let _place = Some(self.usage.owner()?);
            self.lock_owners.insert(name.into(), LockOwner { _place, ..LockOwner::default() });
        }
        let name = self.lock_owners.get_key_value(name).map(|(name, _)| name.clone())?;
        let owner = self.lock_owners.get_mut(&name)?;
        Some((name, owner))
    }

    /// First step of an OPEN: finds or creates the entry of this owner and file. [`Held::commit`] or [`Held::abandon`] completes
    /// it.
    pub(super) fn reserve(
        &mut self,
        lease: &Arc<Lease>,
        owner: &[u8],
        (node, via, opener): (&NodeRef, u32, Opener),
        holder: impl FnOnce() -> HolderId,
    ) -> Option<(u32, Holder)> {
        let (name, found) = self.open_owner(owner)?;
        if let Some(number) = found.opens.get(&(via, node.id())).copied() {
            let open = self.open_mut(number)?;
            open.opening += 1;
            return Some((number, open.party.clone()));
        }
        let party = Holder { holder: holder(), lease: lease.clone(), via };
        let number = self.add(Entry::Open(Open {
            seqid: 0,
            node: node.clone(),
            owner: name.clone(),
            party: party.clone(),
            share: Share::default(),
            uid: opener.uid,
            checked: Rights::NONE,
            caller: opener.caller,
            modes: 0,
            opening: 1,
            locks: Vec::new(),
            place: None,
        }))?;
        self.open_owners.get_mut(&name)?.opens.insert((via, node.id()), number);
        Some((number, party))
    }

    /// Completes an open that `state` has granted to this user. `None` if the client or this open has ended meanwhile.
    pub(super) fn commit(
        &mut self,
        client: ClientId,
        number: u32,
        share: Share,
        opener: Opener,
    ) -> Option<Stateid> {
        let open = self.open_mut(number)?;
        open.opening -= 1;
        // One owner may act for several users, so access checked for one user says nothing about another.
        let before = if open.uid == opener.uid { open.checked } else { Rights::NONE };
        (open.uid, open.checked) = (opener.uid, before | share.access);
        open.caller = opener.caller;
        open.share = open.share.union(share);
        open.modes |= mode_bit(share);
        open.seqid = stateid::next(open.seqid);
        Some(compose(client, number, open.seqid))
    }

    /// Undoes a reservation whose open failed. An earlier open of the entry stays.
    pub(super) fn abandon(&mut self, number: u32) {
        let Some(open) = self.open_mut(number) else { return };
        open.opening -= 1;
        if open.opening == 0 && open.share.access.is_none() {
            let (owner, file) = (open.owner.clone(), (open.party.via, open.node.id()));
            self.states.remove(&number);
            self.forget_open(&owner, file);
        }
    }

    /// Removes the file from the owner's opens. An owner without opens is removed, unless it keeps a sequence of 4.0.
    fn forget_open(&mut self, owner: &OwnerName, file: FileInShare) {
        if let Some(o) = self.open_owners.get_mut(owner) {
            o.opens.remove(&file);
            if o.opens.is_empty() && o.order.is_unused() {
                self.open_owners.remove(owner);
            }
        }
    }

    /// Closes the open for which a delegation was granted instead (RFC 9754 section 4), unless it was used for more than this OPEN.
    pub(super) fn stand_in(&mut self, number: u32, table: &Table) -> bool {
        let fresh = |o: &Open| o.seqid == 1 && o.opening == 0 && o.locks.is_empty();
        self.open(number).is_some_and(fresh) && self.close(number, 1, table).is_ok()
    }

    /// OPEN_DOWNGRADE: `to` must be a union of modes of some of the OPENs (RFC 8881 section 18.18.3).
    pub(super) fn downgrade(
        &mut self,
        client: ClientId,
        number: u32,
        to: Share,
    ) -> Result<(Stateid, NodeId, HolderId), Status> {
        let open = self.open_mut(number).ok_or(Status::BadStateId)?;
        let parts = || modes_in(open.modes).filter(|part| is_part(*part, to));
        if parts().fold(Share::default(), Share::union) != to {
            return Err(Status::Inval);
        }
        open.modes = parts().map(mode_bit).fold(0, |all, bit| all | bit);
        open.share = to;
        open.checked = open.checked & to.access;
        open.seqid = stateid::next(open.seqid);
        let id = compose(client, number, open.seqid);
        Ok((id, open.node.id(), open.party.holder))
    }

    /// CLOSE: removes the open and its locks. Minor version 0 remembers the number for a retransmission.
    pub(super) fn close(&mut self, number: u32, minor: u32, table: &Table) -> Result<u32, Status> {
        let open = match self.states.remove(&number) {
            Some(Entry::Open(open)) => open,
            Some(other) => {
                self.states.insert(number, other);
                return Err(Status::BadStateId);
            }
            None => return Err(Status::BadStateId),
        };
        for lock in &open.locks {
            self.remove_lock(*lock, table);
        }
        table.release(open.node.id(), open.party.holder);
        if minor == 0 {
            self.states.insert(number, Entry::Closed(open.owner.clone()));
            let owner = self.open_owners.get_mut(&open.owner);
            if let Some(before) = owner.and_then(|o| o.closed.replace(number)) {
                self.states.remove(&before);
            }
        }
        self.forget_open(&open.owner, (open.party.via, open.node.id()));
        Ok(open.seqid)
    }

    /// Removes a lock owner's state on a file with its locks.
    pub(super) fn remove_lock(&mut self, number: u32, table: &Table) {
        let Some(Entry::Lock(_)) = self.states.get(&number) else { return };
        let Some(Entry::Lock(lock)) = self.states.remove(&number) else { return };
        self.by_holder.remove(&lock.party.holder);
        table.release(lock.node.id(), lock.party.holder);
        if let Some(open) = self.open_mut(lock.open) {
            open.locks.retain(|n| *n != number);
        }
        if let Some(owner) = self.lock_owners.get_mut(&lock.owner) {
            owner.states.remove(&(lock.party.via, lock.node.id()));
            if owner.states.is_empty() && owner.order.is_unused() {
                self.lock_owners.remove(&lock.owner);
            }
        }
    }

    /// Ends the state on all files that match; returns the number of opens and delegations.
    pub(super) fn end_where(
        &mut self,
        which: impl Fn(&NodeRef) -> bool,
        table: &Table,
    ) -> (usize, usize) {
        let of_these = |(number, entry): (&u32, &Entry)| {
            entry.node().is_some_and(&which).then_some((*number, matches!(entry, Entry::Open(_))))
        };
        let numbers: Vec<_> = self.states.iter().filter_map(of_these).collect();
        let (mut opens, mut delegations) = (0, 0);
        for (number, is_open) in numbers {
            // Closing an open also ends its locks. The share is not served, so no retransmitted CLOSE can follow.
            if is_open && self.close(number, 1, table).is_ok() {
                opens += 1;
            } else if let Some(d) = self.remove_delegation(number) {
                table.release(d.node.id(), d.party.holder);
                delegations += usize::from(!d.revoked);
            }
        }
        (opens, delegations)
    }

    /// Removes an owner of 4.0 that was never confirmed and starts again (RFC 7530 section 16.18.5), with its opens.
    pub(super) fn discard_owner(&mut self, name: &[u8], table: &Table) {
        let Some(owner) = self.open_owners.remove(name) else { return };
        for number in owner.opens.values() {
            if let Some(Entry::Open(open)) = self.states.remove(number) {
                open.locks.iter().for_each(|lock| self.remove_lock(*lock, table));
                table.release(open.node.id(), open.party.holder);
            }
        }
        if let Some(closed) = owner.closed {
            self.states.remove(&closed);
        }
    }
}

#[cfg(test)]
mod tests {
    use vfs::Backend;

    use super::*;

    #[test]
    fn idle_owners_are_evicted_at_limit() {
        let mut held = Held::default();
        let name = |n: usize| n.to_be_bytes();
        for n in 0..limits::OWNERS_PER_CLIENT_MAX {
            let (_, owner) = held.open_owner(&name(n)).unwrap();
            // All but the first have an open.
            if n > 0 {
                owner.opens.insert((0, NodeId(1)), 1);
            }
        }
        let more = limits::OWNERS_PER_CLIENT_MAX;
        let (_, owner) = held.open_owner(&name(more)).unwrap();
        owner.opens.insert((0, NodeId(1)), 1);
        assert!(!held.open_owners.contains_key(&name(0)[..]), "the idle one went");
        assert!(held.open_owner(&name(more + 1)).is_none());
        assert!(held.open_owner(&name(5)).is_some(), "those that are there stay");
    }

    #[test]
    fn entries_are_limited_and_numbers_unique() {
        let mut held = Held::default();
        let entry = || Entry::Closed([][..].into());
        let first = held.add(entry()).unwrap();
        held.next = u32::MAX - 1;
        assert_eq!(held.add(entry()), Some(u32::MAX));
        assert_eq!(held.add(entry()), Some(0));
        assert_eq!(held.add(entry()), Some(first + 1), "the first is still in use");
        while held.states.len() < limits::STATES_PER_CLIENT_MAX {
            held.add(entry()).unwrap();
        }
        assert_eq!(held.add(entry()), None);
        held.take_all();
        assert_eq!(held.add(entry()), None, "nothing is added to a client that has ended");
    }

    /// Each client is below its own limit, but all clients of the address together are at theirs.
    #[test]
    fn clients_of_one_address_share_limit() {
        let usage = Usage::default();
        let most = StatesMax::default();
        most.set(3);
        let client = |usage: &Usage| Held::within(most.clone(), usage.clone());
        let (mut a, mut b, mut other) = (client(&usage), client(&usage), client(&Usage::default()));
        let own = ("opens-of-client", 3);
        let node = vfs::mem::MemBackend::new(1 << 20).unwrap().root();
        let lease = Arc::new(Lease::held(ClientId(1)));
        let open = |held: &mut Held, n: usize| {
            let name = n.to_be_bytes();
            let opener = Opener { uid: 0, caller: Principal::of_uid(0) };
            let reserved =
                held.reserve(&lease, &name, (&node, 1, opener), || HolderId(n as u64 + 1));
            reserved.map(|(number, _)| number)
        };
        let first = open(&mut a, 0).unwrap();
        assert!((1..3).all(|n| open(&mut a, n).is_some()));
        assert_eq!((open(&mut a, 3), a.limit_met(own)), (None, own), "its own limit");
        let mut c = client(&usage);
        assert!((0..3).all(|n| open(&mut b, n).is_some()));
        assert_eq!(open(&mut c, 0), None);
        assert_eq!(c.limit_met(own), ("nfs-opens-of-address", 6));
        assert!(open(&mut other, 0).is_some(), "another address");
        a.abandon(first);
        assert!(open(&mut c, 0).is_some(), "what was given back is free again");
        drop((a, b, c));
        assert!(!usage.has_states(1) && usage.owner().is_some());
        let mut owners = client(&usage);
        let places: Vec<_> =
            (0..limits::OWNERS_OF_ADDRESS_MAX - 1).map(|_| usage.owner().unwrap()).collect();
        owners.open_owner(b"a").unwrap().1.opens.insert((1, node.id()), 1);
        assert!(owners.lock_owner(b"a").is_none());
        assert_eq!(owners.limit_met(own).0, "nfs-owners-of-address");
        drop(places);
        assert!(owners.lock_owner(b"a").is_some() && owners.open_owner(b"b").is_some());
    }

    #[test]
    fn downgrade_needs_union_of_opens() {
        let share = |a, d| Share::new(Rights::from_bits(a).unwrap(), Rights::from_bits(d).unwrap());
        let all = mode_bit(share(1, 0)) | mode_bit(share(2, 2));
        assert_eq!(modes_in(all).collect::<Vec<_>>(), [share(1, 0), share(2, 2)]);
        assert!(is_part(share(1, 0), share(3, 2)) && !is_part(share(2, 2), share(3, 0)));
    }
}
