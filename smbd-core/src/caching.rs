//! What clients of SMB may cache, as data: leases, oplocks, and which open has which.
//!
//! *Operation.* The promises are grants in [`state`]; here are their names. A lease is known by its client, its user and its key
//! (`GlobalLeaseTableList`, MS-SMB2 section 3.3.1.11) and shared by all opens of that user with that key; an oplock is its open's.
//! Two users of one client who name one key have two leases, which break each other. How they are asked for and taken back is
//! [`crate::lease`]'s.
//!
//! *Memory.* One lease per key in use; it goes with its last open.
//!
//! *Errors.* STATUS_INVALID_PARAMETER for a key that is another file's already (MS-SMB2 section 3.3.5.9.8).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use dashmap::DashMap;
use mutex::locked;
use state::{Caching, ClientId, Holder, HolderId, Lease as HolderLease, NodeId};
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

/// From `LeaseState`; unknown bits mean nothing (MS-SMB2 section 2.2.13.2.8).
pub fn from_state(state: u32) -> Caching {
    BITS.iter().filter(|(b, _)| state & b != 0).fold(Caching::NONE, |all, (_, c)| all.or(*c))
}

/// As `LeaseState`.
pub fn to_state(caching: Caching) -> u32 {
    BITS.iter().filter(|(_, c)| caching.has(*c)).fold(0, |all, (b, _)| all | b)
}

/// What an oplock of this level lets its holder cache.
pub(crate) fn of_level(level: u8) -> Caching {
    match level {
        oplock::II => Caching::READ,
        oplock::EXCLUSIVE => Caching::READ_WRITE,
        oplock::BATCH => Caching::ALL,
        _ => Caching::NONE,
    }
}

/// The level of an oplock with these rights.
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

/// A lease (MS-SMB2 section 3.3.1.12). What it grants is in [`state`], under `party`.
pub struct Lease {
    client: Guid,
    /// Name of the user whose sessions it is of.
    owner: String,
    key: Guid,
    /// It is of this file.
    node: AtomicU64,
    /// Who holds the grant.
    pub party: Holder,
    version_2: bool,
    versions: Mutex<Versions>,
    /// Answers that tell of it, or to acknowledgements of its breaks, that have not left.
    answers: Arc<InFlight>,
}

/// What of a lease changes together with its grant.
#[derive(Default)]
pub(crate) struct Versions {
    /// `Lease.Epoch`
    pub(crate) epoch: u16,
    /// The key of the lease of its directory.
    pub(crate) parent: Option<Guid>,
    opens: Vec<Weak<Open>>,
}

impl Lease {
    /// Its opens that are still there.
    pub(crate) fn opens(&self) -> Vec<Arc<Open>> {
        self.versions().opens.iter().filter_map(Weak::upgrade).collect()
    }

    /// Held while a grant and its epoch change together.
    pub(crate) fn versions(&self) -> MutexGuard<'_, Versions> {
        locked(&self.versions)
    }

    /// One more open is of it.
    pub(crate) fn add(&self, open: &Arc<Open>) {
        self.versions().opens.push(Arc::downgrade(open));
    }

    /// An open of it has gone.
    pub(crate) fn remove(&self, open: &Open) {
        self.versions().opens.retain(|o| !std::ptr::eq(o.as_ptr(), open));
    }

    /// An answer that tells of it begins: it has left when the value is dropped.
    pub(crate) fn answering(&self) -> Guard {
        self.answers.begin()
    }

    /// The answers that its notices must not overtake.
    pub(crate) fn answers(&self) -> Arc<InFlight> {
        self.answers.clone()
    }

    /// The opens have a connection, or none of them has one: the grant stands or gives way.
    pub fn follow(&self, now: u64) {
        let stands = |o: &Open| o.session_id() != 0 || o.durable.stands();
        if self.opens().iter().any(|o| stands(o) && !o.is_closed()) {
            self.party.lease.hold();
        } else {
            self.party.lease.let_go(now);
        }
    }

    /// The client that has it.
    pub fn client(&self) -> Guid {
        self.client
    }

    /// Name of the user whose sessions it is of.
    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    /// It is this client's and user's.
    fn is_of(&self, client: Guid, owner: &str) -> bool {
        self.client == client && self.owner == owner
    }

    /// The file that it is of.
    pub fn node(&self) -> NodeId {
        NodeId(self.node.load(Ordering::Acquire))
    }

    /// Its key.
    pub fn key(&self) -> Guid {
        self.key
    }

    /// `Lease.Version` is 2.
    pub fn is_version_2(&self) -> bool {
        self.version_2
    }

    /// `Lease.Epoch`, and the key of the lease of its directory.
    pub(crate) fn version(&self) -> (u16, Option<Guid>) {
        let versions = self.versions();
        (versions.epoch, versions.parent)
    }

    /// Its client knows this epoch: none before it is told any more.
    pub(crate) fn not_before(&self, epoch: u16) {
        let mut versions = self.versions();
        if epoch.wrapping_sub(versions.epoch) < 0x8000 {
            versions.epoch = epoch;
        }
    }

    /// An open of it came back with the server.
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
    /// Opens of it, and requests that are about to be.
    claims: usize,
}

/// For whose caching a holder stands.
#[derive(Clone)]
pub(crate) enum Owner {
    Lease(Arc<Lease>),
    Oplock(Weak<Open>),
}

/// All leases and oplocks.
#[derive(Default)]
pub struct Leases {
    /// By key: one for each client and user that names it, nearly always one.
    by_key: Mutex<HashMap<Guid, Vec<Entry>>>,
    owners: DashMap<HolderId, Owner>,
}

/// The right to open a file under a lease; the lease lives as long as somebody has one.
pub struct Claim {
    lease: Arc<Lease>,
    leases: Arc<Leases>,
    namespace: Arc<Namespace>,
}

impl Claim {
    /// The lease.
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
        self.namespace.arbiter().close(self.lease.node(), self.lease.party.holder);
    }
}

/// What an open has to do with caching.
#[derive(Default)]
pub struct OpenCaching {
    claim: Mutex<Option<Claim>>,
    /// Its lease, and the key of the lease of its directory, which its own changes there do not break.
    parent: OnceLock<(Arc<Lease>, Guid)>,
    /// It changed what a listing shows of its file.
    changed: AtomicBool,
    /// Its client has sent a LOCK through it.
    locks: AtomicBool,
    writes: Arc<InFlight>,
    /// Answers that tell of its oplock, or to acknowledgements of its breaks, that have not left.
    answers: Arc<InFlight>,
}

impl OpenCaching {
    /// Of an open that is about to come about.
    pub fn new(claim: Option<Claim>) -> Self {
        Self { claim: Mutex::new(claim), ..Self::default() }
    }

    /// As [`OpenCaching::new`], for a CREATE with this context.
    pub(crate) fn of_create(claim: Option<Claim>, context: Option<&Context>) -> Self {
        let lease = claim.as_ref().map(|claim| claim.lease.clone());
        let caching = Self::new(claim);
        if let Some(parent) = lease.zip(context.and_then(named_parent)) {
            let _ = caching.parent.set(parent);
        }
        caching
    }

    /// The lease it is of.
    pub fn lease(&self) -> Option<Arc<Lease>> {
        locked(&self.claim).as_ref().map(|c| c.lease.clone())
    }

    /// Something that a listing of the directory shows was changed through it: size, times, attributes. Whoever caches the listing
    /// is told when it closes.
    pub fn note_changed(&self) {
        self.changed.store(true, Ordering::Relaxed);
    }

    /// See [`OpenCaching::note_changed`].
    pub(crate) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed)
    }

    /// A LOCK came through it.
    pub(crate) fn note_lock(&self) {
        self.locks.store(true, Ordering::Relaxed);
    }

    /// See [`OpenCaching::note_lock`].
    pub(crate) fn has_locked(&self) -> bool {
        self.locks.load(Ordering::Relaxed)
    }

    /// The right to its lease, which goes with it.
    pub(crate) fn take_claim(&self) -> Option<Claim> {
        locked(&self.claim).take()
    }

    /// A write or a change of the size begins; it is over when the value is dropped. Call it before the first wait of the command:
    /// what the client sends afterwards on this connection finds it.
    pub(crate) fn writing(&self) -> Guard {
        self.writes.begin()
    }

    /// What has begun by [`OpenCaching::writing`].
    pub(crate) fn writes(&self) -> &InFlight {
        &self.writes
    }

    /// The same as [`Lease::answering`] for its oplock.
    pub(crate) fn answering(&self) -> Guard {
        self.answers.begin()
    }

    /// The same as [`Lease::answers`] for its oplock.
    pub(crate) fn answers(&self) -> Arc<InFlight> {
        self.answers.clone()
    }
}

/// `ParentLeaseKey`, where it is set.
pub(crate) fn named_parent(context: &Context) -> Option<Guid> {
    let is_set = context.flags & lease_flag::PARENT_LEASE_KEY_SET != 0;
    context.v2.filter(|_| is_set).map(|v2| v2.parent)
}

impl Leases {
    /// The lease of this client, user and key.
    pub fn find(&self, client: Guid, owner: &str, key: Guid) -> Option<Arc<Lease>> {
        let by_key = locked(&self.by_key);
        let mut entries = by_key.get(&key)?.iter();
        entries.find(|e| e.lease.is_of(client, owner)).map(|e| e.lease.clone())
    }

    /// Who holds the lease of the directory `dir` that an open of this client and user named as its parent, if there is one now.
    /// MS-FSA section 2.1.4.12.2 compares keys alone, so another client may hold it; one's own comes first.
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

    /// See [`vfs::namespace::FileOps::from_parent`]: the lease of the directory that the open named, if there is one now. It may
    /// have come after the open.
    pub(crate) fn parent_of(&self, open: &Open) -> Option<ClientId> {
        let (lease, key) = open.caching.parent.get()?;
        let dir = open.file().ok()?.place().dir.id();
        self.parent(lease.client, &lease.owner, *key, dir)
    }

    /// As [`Leases::parent_of`], of the removal that `marked` has asked for and that happens because `last` closes: where the two
    /// name different directories' leases, neither is spared.
    pub(crate) fn parent_of_removal(&self, marked: &Open, last: &Open) -> Option<ClientId> {
        let key = |open: &Open| open.caching.parent.get().map(|(_, key)| *key);
        self.parent_of(last).filter(|_| key(marked) == key(last))
    }

    /// The right to open this file under the lease of a client, its user and a key, with its epoch in version 2. The lease is made
    /// where there is none.
    pub(crate) fn claim(
        self: &Arc<Self>,
        namespace: &Arc<Namespace>,
        (client, owner): (Guid, &str),
        (key, epoch): (Guid, Option<u16>),
        node: NodeId,
    ) -> Result<Claim, Status> {
        let mut by_key = locked(&self.by_key);
        let entries = by_key.entry(key).or_default();
        let known = entries.iter().position(|e| e.lease.is_of(client, owner));
        let new = || {
            let table = namespace.arbiter().state();
            let lease = Arc::new(HolderLease::held(table.key()));
            let lease = Lease {
                client,
                owner: owner.to_owned(),
                key,
                node: AtomicU64::new(node.0),
                party: Holder { holder: table.holder(), lease },
                version_2: epoch.is_some(),
                versions: Mutex::new(Versions { epoch: epoch.unwrap_or(0), ..Versions::default() }),
                answers: Arc::default(),
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
        // Seen by breaks from now on.
        self.owners.insert(lease.party.holder, Owner::Lease(lease.clone()));
        Ok(Claim { lease, leases: self.clone(), namespace: namespace.clone() })
    }

    /// Breaks of what this open caches by an oplock reach it.
    pub(crate) fn own_oplock(&self, open: &Arc<Open>) {
        self.owners.insert(open.party.holder, Owner::Oplock(Arc::downgrade(open)));
    }

    /// This open caches nothing by an oplock.
    pub(crate) fn disown_oplock(&self, open: &Open) {
        self.owners.remove(&open.party.holder);
    }

    /// For whose caching a holder stands. None: just closed, which gives back more than was asked for.
    pub(crate) fn owner(&self, holder: HolderId) -> Option<Owner> {
        self.owners.get(&holder).map(|owner| owner.clone())
    }

    /// The opens whose caching a holder stands for.
    pub(crate) fn opens_of(&self, holder: HolderId) -> Vec<Arc<Open>> {
        match self.owner(holder) {
            Some(Owner::Lease(lease)) => lease.opens(),
            Some(Owner::Oplock(open)) => open.upgrade().into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// The answers to the holder that its notices must not overtake.
    pub(crate) fn answers_of(&self, holder: HolderId) -> Option<Arc<InFlight>> {
        Some(match self.owner(holder)? {
            Owner::Lease(lease) => lease.answers(),
            Owner::Oplock(open) => open.upgrade()?.caching.answers(),
        })
    }

    /// Another node has taken the place of the file that a lease is of. False when its last open has been closed.
    pub(crate) fn becomes(&self, lease: &Arc<Lease>, node: NodeId) -> bool {
        // Whoever closes the last one takes it out first, and then looks of which file it is.
        let by_key = locked(&self.by_key);
        let entries = by_key.get(&lease.key);
        let is_there = entries.is_some_and(|e| e.iter().any(|e| Arc::ptr_eq(&e.lease, lease)));
        if is_there {
            lease.node.store(node.0, Ordering::Release);
        }
        is_there
    }

    /// How many there are.
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
