//! Leases and oplocks of SMB clients, as data, and their association with opens.
//!
//! *Operation.* The grants themselves are in [`state`]; this module names them. A lease is identified by client, user and key
//! (`GlobalLeaseTableList`, MS-SMB2 section 3.3.1.11) and is shared by all opens of that user with that key; an oplock belongs to
//! one open. Two users of one client that use the same key have two leases, which break each other. [`crate::lease`] requests and
//! breaks them.
//!
//! *Memory.* One lease per key in use; it is dropped with its last open. One entry per address with connections.
//!
//! *Errors.* STATUS_INVALID_PARAMETER for a key that is in use for another file (MS-SMB2 section 3.3.5.9.8).

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use ahash::{HashMap, RandomState};
use dashmap::DashMap;
use mutex::locked;
use rdma_transport::channel::host_of;
use state::{Answers, Caching, ClientId, Holder, HolderId, Lease as HolderLease, NodeId};
use tokio::sync::Notify;
use vfs::namespace::Namespace;

use crate::in_flight::{Guard, InFlight};
use crate::open::Open;
use crate::status::Status;
use crate::wire::context::{Lease as Context, lease_flag};
use crate::wire::create::oplock;

type Guid = [u8; 16];

const STATE_READ: u32 = 1;
const STATE_HANDLE: u32 = 2;
const STATE_WRITE: u32 = 4;

const BITS: [(u32, Caching); 3] =
    [(STATE_READ, Caching::READ), (STATE_HANDLE, Caching::HANDLE), (STATE_WRITE, Caching::WRITE)];

/// Converts from `LeaseState`; ignores unknown bits (MS-SMB2 section 2.2.13.2.8).
pub fn from_state(state: u32) -> Caching {
    BITS.iter().filter(|(b, _)| state & b != 0).fold(Caching::NONE, |all, (_, c)| all.or(*c))
}

/// Converts to `LeaseState`.
pub fn to_state(caching: Caching) -> u32 {
    BITS.iter().filter(|(_, c)| caching.has(*c)).fold(0, |all, (b, _)| all | b)
}

/// Returns the caching that an oplock level allows.
pub(crate) fn of_level(level: u8) -> Caching {
    match level {
        oplock::II => Caching::READ,
        oplock::EXCLUSIVE => Caching::READ_WRITE,
        oplock::BATCH => Caching::ALL,
        _ => Caching::NONE,
    }
}

/// Returns the oplock level for these rights.
pub fn to_level(rights: Caching) -> u8 {
    if rights.has(Caching::ALL) {
        oplock::BATCH
    } else if rights.has(Caching::READ_WRITE) {
        oplock::EXCLUSIVE
    } else if rights.has(Caching::READ) {
        oplock::II
    } else {
        oplock::NONE
    }
}

/// A lease (MS-SMB2 section 3.3.1.12). Its grant is in [`state`], under `party`.
pub struct Lease {
    client: Guid,
    /// Name of the user whose sessions share it.
    owner: String,
    key: Guid,
    /// The file of the lease.
    node: AtomicU64,
    /// The holder of the grant.
    pub party: Holder,
    version_2: bool,
    versions: Mutex<Versions>,
    /// Pending answers that mention the lease, or that answer acknowledgements of its breaks.
    answers: Arc<InFlight>,
    /// Notified when a break begins.
    pub(crate) breaks: Arc<Notify>,
}

/// Fields of a lease that change together with its grant.
#[derive(Default)]
pub(crate) struct Versions {
    /// `Lease.Epoch`
    pub(crate) epoch: u16,
    /// The key of the directory's lease.
    pub(crate) parent: Option<Guid>,
    opens: Vec<Weak<Open>>,
}

impl Lease {
    /// Returns its opens that still exist.
    pub(crate) fn opens(&self) -> Vec<Arc<Open>> {
        self.versions().opens.iter().filter_map(Weak::upgrade).collect()
    }

    /// Locks the versions; held while a grant and its epoch change together.
    pub(crate) fn versions(&self) -> MutexGuard<'_, Versions> {
        locked(&self.versions)
    }

    /// Adds an open to the lease.
    pub(crate) fn add(&self, open: &Arc<Open>) {
        self.versions().opens.push(Arc::downgrade(open));
    }

    /// Removes an open from the lease.
    pub(crate) fn remove(&self, open: &Open) {
        self.versions().opens.retain(|o| !std::ptr::eq(o.as_ptr(), open));
    }

    /// Begins an answer that mentions the lease; it has left when the guard is dropped.
    pub(crate) fn answering(&self) -> Guard {
        self.answers.begin()
    }

    /// Returns the pending answers that its break notifications must not overtake.
    pub(crate) fn answers(&self) -> Arc<InFlight> {
        self.answers.clone()
    }

    /// Protects the grant from conflicting requests while an open of the lease has a connection, or is persistent or resilient.
    pub fn follow(&self, now: u64) {
        let stands = |o: &Open| o.session_id() != 0 || o.durable.stands();
        if self.opens().iter().any(|o| stands(o) && !o.is_closed()) {
            self.party.lease.hold();
        } else {
            self.party.lease.let_go(now);
        }
    }

    pub fn client(&self) -> Guid {
        self.client
    }

    /// Returns the name of the user whose sessions share it.
    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    /// Returns whether it belongs to this client and user.
    fn is_of(&self, client: Guid, owner: &str) -> bool {
        self.client == client && self.owner == owner
    }

    pub fn node(&self) -> NodeId {
        NodeId(self.node.load(Ordering::Acquire))
    }

    pub fn key(&self) -> Guid {
        self.key
    }

    /// Returns whether `Lease.Version` is 2.
    pub fn is_version_2(&self) -> bool {
        self.version_2
    }

    /// Returns `Lease.Epoch` and the key of the directory's lease.
    pub(crate) fn version(&self) -> (u16, Option<Guid>) {
        let versions = self.versions();
        (versions.epoch, versions.parent)
    }

    /// Raises the epoch to the one that the client knows, so that later notifications never carry an older one.
    pub(crate) fn not_before(&self, epoch: u16) {
        let mut versions = self.versions();
        if epoch.wrapping_sub(versions.epoch) < 0x8000 {
            versions.epoch = epoch;
        }
    }

    /// Adds an open that was restored after a restart of the server.
    pub(crate) fn came_back(self: &Arc<Self>, open: &Arc<Open>, parent: Option<Guid>) {
        if let Some(key) = parent {
            let _ = open.caching.parent.set((self.clone(), key));
        }
        let mut versions = self.versions();
        versions.opens.push(Arc::downgrade(open));
        versions.parent = parent;
    }

    /// See [`crate::open_durable::OpenDurable::not_replayable`].
    pub fn not_replayable(&self) {
        self.opens().iter().for_each(|o| o.durable.not_replayable());
    }
}

struct Entry {
    lease: Arc<Lease>,
    /// Number of opens, and of requests that are about to make one.
    claims: usize,
}

/// The lease or oplock of a holder.
#[derive(Clone)]
pub(crate) enum Owner {
    Lease(Arc<Lease>),
    Oplock(Weak<Open>),
}

#[derive(Default)]
pub struct Leases {
    /// Leases by key: one for each client and user of that key, nearly always one.
    by_key: Mutex<HashMap<Guid, Vec<Entry>>>,
    owners: DashMap<HolderId, Owner, RandomState>,
    /// Whether the clients of an address answer breaks.
    answers: Mutex<HashMap<IpAddr, Weak<Answers>>>,
}

/// The right to open a file under a lease; the lease exists as long as a claim on it does.
pub struct Claim {
    lease: Arc<Lease>,
    leases: Arc<Leases>,
    namespace: Arc<Namespace>,
    /// Whether the client ends it, by CLOSE: an answer to a break.
    is_given_back: bool,
}

impl Claim {
    pub fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let key = self.lease.key;
        {
            let mut by_key = locked(&self.leases.by_key);
            let Some(entries) = by_key.get_mut(&key) else { return };
            let own = |e: &Entry| Arc::ptr_eq(&e.lease, &self.lease);
            let Some(at) = entries.iter().position(own) else { return };
            let entry = &mut entries[at];
            entry.claims -= 1;
            if entry.claims != 0 {
                return;
            }
            entries.swap_remove(at);
            if entries.is_empty() {
                by_key.remove(&key);
            }
        }
        self.leases.owners.remove(&self.lease.party.holder);
        let (arbiter, holder) = (self.namespace.arbiter(), self.lease.party.holder);
        match self.is_given_back {
            true => arbiter.give_back(self.lease.node(), holder),
            false => arbiter.close(self.lease.node(), holder),
        }
    }
}

/// The caching state of an open.
#[derive(Default)]
pub struct OpenCaching {
    claim: Mutex<Option<Claim>>,
    /// Its lease, and the key of the directory's lease, which changes through this open do not break.
    parent: OnceLock<(Arc<Lease>, Guid)>,
    /// True if it changed attributes that a directory listing shows.
    changed: AtomicBool,
    /// True if its client has sent a LOCK through it.
    locks: AtomicBool,
    /// True if its client closes it.
    is_given_back: AtomicBool,
    writes: Arc<InFlight>,
    /// Pending answers that mention its oplock, or that answer acknowledgements of its breaks.
    answers: Arc<InFlight>,
    /// Notified when a break of its oplock begins.
    pub(crate) breaks: Arc<Notify>,
}

impl OpenCaching {
    /// Builds the state of an open that is being made.
    pub fn new(claim: Option<Claim>) -> Self {
        Self { claim: Mutex::new(claim), ..Self::default() }
    }

    /// As [`OpenCaching::new`], for a CREATE with this lease context.
    pub(crate) fn of_create(claim: Option<Claim>, context: Option<&Context>) -> Self {
        let lease = claim.as_ref().map(|claim| claim.lease.clone());
        let caching = Self::new(claim);
        if let Some(parent) = lease.zip(context.and_then(named_parent)) {
            let _ = caching.parent.set(parent);
        }
        caching
    }

    /// Returns its lease, if it has one.
    pub fn lease(&self) -> Option<Arc<Lease>> {
        locked(&self.claim).as_ref().map(|c| c.lease.clone())
    }

    /// Notes a change that a listing of the directory shows: size, times or attributes. Clients that cache the listing are notified
    /// when the open closes.
    pub fn note_changed(&self) {
        self.changed.store(true, Ordering::Relaxed);
    }

    /// See [`OpenCaching::note_changed`].
    pub(crate) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed)
    }

    /// Notes that the client sent a LOCK through it.
    pub(crate) fn note_lock(&self) {
        self.locks.store(true, Ordering::Relaxed);
    }

    /// See [`OpenCaching::note_lock`].
    pub(crate) fn has_locked(&self) -> bool {
        self.locks.load(Ordering::Relaxed)
    }

    /// Notes that the client closes the open, and so gives back the caching of its oplock, or of its lease if no other open has it.
    pub(crate) fn give_back(&self) {
        self.is_given_back.store(true, Ordering::Relaxed);
    }

    /// See [`OpenCaching::give_back`].
    pub(crate) fn is_given_back(&self) -> bool {
        self.is_given_back.load(Ordering::Relaxed)
    }

    /// Takes the claim on its lease, which ends with the open.
    pub(crate) fn take_claim(&self) -> Option<Claim> {
        let mut claim = locked(&self.claim).take()?;
        claim.is_given_back = self.is_given_back();
        Some(claim)
    }

    /// Begins a write or a change of the size, which ends when the guard is dropped. Call it before the command first waits, so
    /// that later commands on this connection see it.
    pub(crate) fn writing(&self) -> Guard {
        self.writes.begin()
    }

    /// Returns the operations begun by [`OpenCaching::writing`].
    pub(crate) fn writes(&self) -> &InFlight {
        &self.writes
    }

    /// As [`Lease::answering`], for its oplock.
    pub(crate) fn answering(&self) -> Guard {
        self.answers.begin()
    }

    /// As [`Lease::answers`], for its oplock.
    pub(crate) fn answers(&self) -> Arc<InFlight> {
        self.answers.clone()
    }
}

/// Returns `ParentLeaseKey` if the flag for it is set.
pub(crate) fn named_parent(context: &Context) -> Option<Guid> {
    let is_set = context.flags & lease_flag::PARENT_LEASE_KEY_SET != 0;
    context.v2.filter(|_| is_set).map(|v2| v2.parent)
}

impl Leases {
    /// Returns the lease of this client, user and key.
    pub fn find(&self, client: Guid, owner: &str, key: Guid) -> Option<Arc<Lease>> {
        let by_key = locked(&self.by_key);
        let mut entries = by_key.get(&key)?.iter();
        entries.find(|e| e.lease.is_of(client, owner)).map(|e| e.lease.clone())
    }

    /// Returns the current holder of the lease on the directory `dir` that an open of this client and user named as its parent.
    /// MS-FSA section 2.1.4.12.2 compares only keys, so another client may hold it; the client's own lease is preferred.
    pub(crate) fn parent(
        &self,
        client: Guid,
        owner: &str,
        key: Guid,
        dir: NodeId,
    ) -> Option<ClientId> {
        let by_key = locked(&self.by_key);
        let entries = by_key.get(&key)?;
        let own = entries.iter().find(|e| e.lease.is_of(client, owner));
        let found = own.or_else(|| entries.iter().find(|e| e.lease.node() == dir));
        Some(found?.lease.party.client())
    }

    /// Returns the current lease of the directory that the open named as its parent, for [`vfs::namespace::FileOps::from_parent`].
    /// That lease may be newer than the open.
    pub(crate) fn parent_of(&self, open: &Open) -> Option<ClientId> {
        let (lease, key) = open.caching.parent.get()?;
        let dir = open.file().ok()?.place().dir.id();
        self.parent(lease.client, &lease.owner, *key, dir)
    }

    /// As [`Leases::parent_of`], for a removal that `marked` requested and that the close of `last` triggers: if the two name
    /// leases of different directories, neither is spared from the break.
    pub(crate) fn parent_of_removal(&self, marked: &Open, last: &Open) -> Option<ClientId> {
        let key = |open: &Open| open.caching.parent.get().map(|(_, key)| *key);
        self.parent_of(last).filter(|_| key(marked) == key(last))
    }

    /// Returns whether a new connection from this address answers breaks: as the others of the address do, until it has answered
    /// one.
    pub(crate) fn answers(&self, at: IpAddr) -> Arc<Answers> {
        let at = host_of(at);
        let mut all = locked(&self.answers);
        let known = all.get(&at).and_then(Weak::upgrade);
        let of_address = known.unwrap_or_else(|| {
            all.retain(|_, answers| answers.strong_count() > 0);
            let new = Arc::default();
            all.insert(at, Arc::downgrade(&new));
            new
        });
        Arc::new(Answers::of(of_address))
    }

    /// Claims the right to open this file under the lease of a client, its user and a key, with its epoch in version 2. Makes the
    /// lease if it does not exist.
    pub(crate) fn claim(
        self: &Arc<Self>,
        namespace: &Arc<Namespace>,
        (client, owner, answers): (Guid, &str, &Arc<Answers>),
        (key, epoch): (Guid, Option<u16>),
        node: NodeId,
    ) -> Result<Claim, Status> {
        let mut by_key = locked(&self.by_key);
        let entries = by_key.entry(key).or_default();
        let known = entries.iter().position(|e| e.lease.is_of(client, owner));
        let new = || {
            let table = namespace.arbiter().state();
            let lease = HolderLease::held(table.key()).answered_by(answers.clone());
            let lease = Lease {
                client,
                owner: owner.to_owned(),
                key,
                node: AtomicU64::new(node.0),
                party: Holder { holder: table.holder(), lease: Arc::new(lease), via: 0 },
                version_2: epoch.is_some(),
                versions: Mutex::new(Versions { epoch: epoch.unwrap_or(0), ..Versions::default() }),
                answers: Arc::default(),
                breaks: Arc::default(),
            };
            Entry { lease: Arc::new(lease), claims: 0 }
        };
        let at = known.unwrap_or_else(|| {
            entries.push(new());
            entries.len() - 1
        });
        let entry = &mut entries[at];
        if entry.lease.node() != node {
            return Err(Status::INVALID_PARAMETER);
        }
        entry.claims += 1;
        let lease = entry.lease.clone();
        drop(by_key);
        // From here on breaks find the lease.
        self.owners.insert(lease.party.holder, Owner::Lease(lease.clone()));
        let (leases, namespace) = (self.clone(), namespace.clone());
        Ok(Claim { lease, leases, namespace, is_given_back: false })
    }

    /// Makes breaks of this open's oplock reach it.
    pub(crate) fn own_oplock(&self, open: &Arc<Open>) {
        self.owners.insert(open.party.holder, Owner::Oplock(Arc::downgrade(open)));
    }

    /// Removes this open as the owner of an oplock.
    pub(crate) fn disown_oplock(&self, open: &Open) {
        self.owners.remove(&open.party.holder);
    }

    /// Returns the owner of a holder's caching. `None` if it was just closed, which gives back more than a break asks for.
    pub(crate) fn owner(&self, holder: HolderId) -> Option<Owner> {
        self.owners.get(&holder).map(|owner| owner.clone())
    }

    /// Returns the opens that share a holder's caching.
    pub(crate) fn opens_of(&self, holder: HolderId) -> Vec<Arc<Open>> {
        match self.owner(holder) {
            Some(Owner::Lease(lease)) => lease.opens(),
            Some(Owner::Oplock(open)) => open.upgrade().into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// Returns the pending answers that the holder's break notifications must not overtake.
    pub(crate) fn answers_of(&self, holder: HolderId) -> Option<Arc<InFlight>> {
        Some(match self.owner(holder)? {
            Owner::Lease(lease) => lease.answers(),
            Owner::Oplock(open) => open.upgrade()?.caching.answers(),
        })
    }

    /// Moves a lease to the node that replaced its file. Returns false if its last open has been closed.
    pub(crate) fn becomes(&self, lease: &Arc<Lease>, node: NodeId) -> bool {
        // The close of the last open takes the lease out before it looks at the lease's file.
        let by_key = locked(&self.by_key);
        let entries = by_key.get(&lease.key);
        let is_there = entries.is_some_and(|e| e.iter().any(|e| Arc::ptr_eq(&e.lease, lease)));
        if is_there {
            lease.node.store(node.0, Ordering::Release);
        }
        is_there
    }

    pub fn count(&self) -> usize {
        locked(&self.by_key).values().map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_and_the_table_name_the_same_rights() {
        for state in 0..8 {
            assert_eq!(to_state(from_state(state)), state);
        }
        assert_eq!(from_state(STATE_READ | STATE_HANDLE), Caching::READ_HANDLE);
        assert_eq!(from_state(0xffff_fff8), Caching::NONE);
        for level in [oplock::NONE, oplock::II, oplock::EXCLUSIVE, oplock::BATCH] {
            assert_eq!(to_level(of_level(level)), level);
        }
        assert_eq!(of_level(oplock::LEASE), Caching::NONE);
    }
}
