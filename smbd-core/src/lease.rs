//! Leases and oplocks: what clients of SMB may cache, and how it is taken back.
//!
//! *Operation.* The promises are grants in [`state`]; here are their names. A lease is known by its client, its user and its key
//! (`GlobalLeaseTableList`, MS-SMB2 section 3.3.1.11) and shared by all opens of that user with that key; an oplock is its open's.
//! Two users of one client who name one key have two leases, which break each other. CREATE
//! takes a [`Claim`] before it opens, so that the open acts under the lease's key, and asks for caching when it is open
//! ([`request`]). A break of [`state`] becomes a notice on a live connection of its session, with a task that overrules the
//! holder when its time is over.
//!
//! A client learns of a right and of its end in this order: the notice waits until the answer to the CREATE that told of the
//! right, or to the acknowledgement of the step before, has left its connection. And a CREATE waits while the WRITE caching of
//! its lease is being taken back ([`given_back`]): Linux (fs/smb/client, `cifs_new_fileinfo`) drops the locks that it has kept to
//! itself and was about to send when an open is answered in between.
//!
//! *Memory.* One lease per key in use; it goes with its last open.
//!
//! *Errors.* STATUS_INVALID_PARAMETER for a key that is another file's already (MS-SMB2 section 3.3.5.9.8).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use dashmap::DashMap;
use rdma_transport::count;
use state::{
    Break, CacheRequest, Caching, ClientId, Holder, HolderId, Kind, Lease as Standing, NodeId,
    Requester, Stage,
};
use tokio::time::Instant;
use vfs::VfsResult;
use vfs::arbiter::{Recall, WaitPolicy};
use vfs::backend::{BoxFuture, NodeRef};
use vfs::namespace::Namespace;

use crate::conn::Conn;
use crate::in_flight::{Guard, InFlight};
use crate::mutex::locked;
use crate::notice::{Following, HEARD_MAX, To, send, ways};
use crate::open::Open;
use crate::path_tracking;
use crate::request_context::RequestContext;
use crate::server::ServerState;
use crate::slot::{Behind, behind_answer};
use crate::status::Status;
use crate::wire::context::{Lease as Context, LeaseV2, lease_flag};
use crate::wire::create::oplock;
use crate::wire::negotiate::Dialect;
use crate::wire::oplock_break::{LeaseNotice, Oplock};

type Guid = [u8; 16];

/// A notice waits no longer than this until the answers that tell of the right, or of the step before, have left. Windows tells a
/// new right from an old one by its epoch.
const ANSWERS_MAX: Duration = Duration::from_secs(1);
/// The name by which it is counted that a notice waited for so long.
const ANSWERS_TAKE_LONG: &str = "notice-behind-answer";
/// A CREATE waits no longer than this for a client that gives back WRITE caching and writes nothing: one that does not do so before
/// its CREATE is answered must not lose what it caches.
const IDLE_MAX: Duration = Duration::from_secs(1);

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
fn of_level(level: u8) -> Caching {
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
    inner: Mutex<Inner>,
    /// Answers that tell of it, or to acknowledgements of its breaks, that have not left.
    answers: Arc<InFlight>,
}

#[derive(Default)]
struct Inner {
    epoch: u16,
    parent: Option<Guid>,
    opens: Vec<Weak<Open>>,
}

impl Lease {
    /// Its opens that are still there.
    pub(crate) fn opens(&self) -> Vec<Arc<Open>> {
        locked(&self.inner).opens.iter().filter_map(Weak::upgrade).collect()
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
        let inner = locked(&self.inner);
        (inner.epoch, inner.parent)
    }

    /// Its client knows this epoch: none before it is told any more.
    pub(crate) fn not_before(&self, epoch: u16) {
        let mut inner = locked(&self.inner);
        if epoch.wrapping_sub(inner.epoch) < 0x8000 {
            inner.epoch = epoch;
        }
    }

    /// An open of it came back with the server.
    pub(crate) fn came_back(self: &Arc<Self>, open: &Arc<Open>, parent: Option<Guid>) {
        if let Some(key) = parent {
            let _ = open.caching.parent.set((self.clone(), key));
        }
        let mut inner = locked(&self.inner);
        inner.opens.push(Arc::downgrade(open));
        inner.parent = parent;
    }

    /// See [`crate::durable::OpenDurable::not_replayable`].
    pub fn not_replayable(&self) {
        self.opens().iter().for_each(|o| o.durable.not_replayable());
    }
}

struct Entry {
    lease: Arc<Lease>,
    /// Opens of it, and requests that are about to be.
    claims: usize,
}

enum Owner {
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
    /// The same as [`Lease::answers`] for its oplock.
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

    /// A LOCK came through it.
    pub(crate) fn note_lock(&self) {
        self.locks.store(true, Ordering::Relaxed);
    }

    /// A write or a change of the size begins; it is over when the value is dropped. Call it before the first wait of the command:
    /// what the client sends afterwards on this connection finds it.
    pub(crate) fn writing(&self) -> Guard {
        self.writes.begin()
    }
}

/// See [`vfs::namespace::FileOps::from_parent`]: the lease of the directory that the open named, if there is one now. It may have
/// come after the open.
pub(crate) fn parent(core: &ServerState, open: &Open) -> Option<ClientId> {
    let (lease, key) = open.caching.parent.get()?;
    let dir = open.file().ok()?.place().dir.id();
    core.leases.parent(lease.client, &lease.owner, *key, dir)
}

/// As [`parent`], of the removal that `marked` has asked for and that happens because `last` closes: where the two name different
/// directories' leases, neither is spared.
pub(crate) fn parent_of_removal(
    core: &ServerState,
    marked: &Open,
    last: &Open,
) -> Option<ClientId> {
    let key = |open: &Open| open.caching.parent.get().map(|(_, key)| *key);
    parent(core, last).filter(|_| key(marked) == key(last))
}

/// As [`parent`], for a CREATE that makes what it opens in this directory.
pub(crate) fn parent_of_new(
    cx: &RequestContext,
    level: u8,
    context: Option<&Context>,
    dir: &NodeRef,
) -> Option<ClientId> {
    let key = named_parent(asked(cx, level, context)?)?;
    let session = cx.session().ok()?;
    cx.server.leases.parent(session.client_guid(), &session.owner(), key, dir.id())
}

/// `ParentLeaseKey`, where it is set.
fn named_parent(context: &Context) -> Option<Guid> {
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
    fn parent(&self, client: Guid, owner: &str, key: Guid, dir: NodeId) -> Option<ClientId> {
        let by_key = locked(&self.by_key);
        let entries = by_key.get(&key)?;
        let own = entries.iter().find(|e| e.lease.is_of(client, owner));
        let found = own.or_else(|| entries.iter().find(|e| e.lease.node() == dir));
        Some(found?.lease.party.client())
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

/// The lease that a CREATE asks for, if it does: one in its context, in a dialect that has them, of a version that it has.
pub(crate) fn asked<'a>(
    cx: &RequestContext,
    level: u8,
    context: Option<&'a Context>,
) -> Option<&'a Context> {
    let dialect = cx.conn.dialect();
    let context = context.filter(|_| level == oplock::LEASE && dialect != Dialect::V202)?;
    (context.v2.is_none() || dialect.is_3()).then_some(context)
}

/// Before a file is made: nobody may have a lease of this key on another one.
pub(crate) fn check_new(
    cx: &RequestContext,
    level: u8,
    context: Option<&Context>,
) -> Result<(), Status> {
    let Some(context) = asked(cx, level, context) else { return Ok(()) };
    let session = cx.session()?;
    match cx.server.leases.find(session.client_guid(), &session.owner(), context.key) {
        Some(_) => Err(Status::INVALID_PARAMETER),
        None => Ok(()),
    }
}

/// Who holds something that nobody caches: a pipe.
pub(crate) fn party(cx: &RequestContext) -> Holder {
    let table = cx.server.namespace.arbiter().state();
    Holder { holder: table.holder(), lease: Arc::new(Standing::held(table.key())) }
}

/// Before a file is opened: who is going to hold it, under the key of the lease that the request names or one of its own.
pub(crate) fn claim(
    cx: &RequestContext,
    level: u8,
    context: Option<&Context>,
    node: NodeId,
) -> Result<(Holder, Option<Claim>), Status> {
    let lease = asked(cx, level, context).map(|c| (c.key, c.v2.map(|v| v.epoch)));
    let session = cx.session()?;
    claim_for(&cx.server, (session.client_guid(), &session.owner()), lease, node)
}

/// As [`claim`], for a client, its user and the key of the lease with, in version 2, its epoch.
pub(crate) fn claim_for(
    core: &Arc<ServerState>,
    (client, owner): (Guid, &str),
    lease: Option<(Guid, Option<u16>)>,
    node: NodeId,
) -> Result<(Holder, Option<Claim>), Status> {
    let table = core.namespace.arbiter().state();
    let party = |client| Holder { holder: table.holder(), lease: Arc::new(Standing::held(client)) };
    let Some((key, epoch)) = lease else { return Ok((party(table.key()), None)) };
    let mut by_key = locked(&core.leases.by_key);
    let entries = by_key.entry(key).or_default();
    let known = entries.iter().position(|e| e.lease.is_of(client, owner));
    let new = || {
        let lease = Lease {
            client,
            owner: owner.to_owned(),
            key,
            node: AtomicU64::new(node.0),
            party: party(table.key()),
            version_2: epoch.is_some(),
            inner: Mutex::new(Inner { epoch: epoch.unwrap_or(0), ..Inner::default() }),
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
    core.leases.owners.insert(lease.party.holder, Owner::Lease(lease.clone()));
    let holder = party(lease.party.client());
    let claim = Claim { lease, leases: core.leases.clone(), namespace: core.namespace.clone() };
    Ok((holder, Some(claim)))
}

/// Asks for caching for an open that has just come about, and says what CREATE answers: `OplockLevel` and, for a lease, its
/// context. `allocated`: bytes of its file.
pub(crate) fn request(
    cx: &RequestContext,
    open: &Arc<Open>,
    level: u8,
    context: Option<&Context>,
    allocated: u64,
) -> (u8, Option<Context>) {
    let Ok(node) = open.node() else { return (oplock::NONE, None) };
    let (arbiter, file) = (cx.server.namespace.arbiter(), &node);
    let node = node.id();
    if let (Some(context), Some(lease)) = (asked(cx, level, context), open.caching.lease()) {
        locked(&lease.inner).opens.push(Arc::downgrade(open));
        lease.party.lease.hold();
        cx.until_answered(lease.answers.begin());
        let told = request_lease(cx, open, &lease, context, allocated);
        if told.state != 0 {
            arbiter.watch_external(file);
        }
        return (oplock::LEASE, Some(told));
    }
    let want = of_level(level);
    if want.is_none() || open.is_dir() || !file.is_cacheable() {
        return (oplock::NONE, None);
    }
    own_oplock(&cx.server, open);
    cx.until_answered(open.caching.answers.begin());
    let want = CacheRequest { kind: Kind::Oplock, rights: want, allocated };
    let held = arbiter.state().cache(node, &open.party, want, cx.server.now());
    if held.rights.is_none() {
        cx.server.leases.owners.remove(&open.party.holder);
    } else {
        arbiter.watch_external(file);
    }
    (to_level(held.rights), None)
}

/// Before CREATE asks for the caching of an open whose lease is just losing WRITE: waits until the client has given it back, for as
/// long as it writes.
pub(crate) async fn given_back(cx: &RequestContext, open: &Open) {
    let Some(lease) = open.caching.lease() else { return };
    let arbiter = cx.server.namespace.arbiter();
    let is_losing = || {
        let held = arbiter.state().held(lease.node(), lease.party.holder).unwrap_or_default();
        held.rights.has(Caching::WRITE)
            && held.breaking_to.is_some_and(|to| !to.has(Caching::WRITE))
    };
    if !is_losing() {
        return;
    }
    // Where it cannot be said, it is waited for all the same: in the middle of a chain.
    let _ = cx.begin().await;
    let written = || lease.opens().iter().map(|o| o.caching.writes.begun()).sum::<u64>();
    let wait = async {
        loop {
            let before = written();
            let given = async {
                loop {
                    let returned = arbiter.returned();
                    tokio::pin!(returned);
                    returned.as_mut().enable();
                    if !is_losing() {
                        return;
                    }
                    returned.await;
                }
            };
            if tokio::time::timeout(IDLE_MAX, given).await.is_ok() || written() == before {
                return;
            }
        }
    };
    // The file is open; to cancel comes too late.
    let _ = cx.or_cancelled(wait).await;
}

/// A lease that has opens already may be widened to WRITE for this one. A client with WRITE keeps its locks to itself: one that has
/// just sent a LOCK through an older open must not be told so meanwhile, or two of its processes have the same range, one there and
/// one here. Linux, whose kernel is known by its context of the POSIX extensions, sends the two at the same time (fs/smb/client,
/// `cifs_setlk` and `cifs_new_fileinfo`).
fn may_have_write(cx: &RequestContext, open: &Arc<Open>, lease: &Lease) -> bool {
    let is_linux = cx.conn.negotiated().is_some_and(|n| n.posix);
    let older = lease.opens().into_iter().filter(|o| !Arc::ptr_eq(o, open));
    !older.into_iter().any(|o| is_linux || o.caching.locks.load(Ordering::Relaxed))
}

fn request_lease(
    cx: &RequestContext,
    open: &Arc<Open>,
    lease: &Arc<Lease>,
    asked: &Context,
    allocated: u64,
) -> Context {
    let table = cx.server.namespace.arbiter().state();
    let mut want = from_state(asked.state).grantable();
    if open.is_dir() {
        // MS-SMB2 section 3.3.5.9.8: only version 2 knows directories, whose contents nobody writes.
        want = if lease.version_2 { want.without(Caching::WRITE) } else { Caching::NONE };
    }
    if !open.node().is_ok_and(|node| node.is_cacheable()) {
        want = Caching::NONE;
    }
    if !may_have_write(cx, open, lease) {
        want = want.without(Caching::WRITE).grantable();
    }
    // One lock over the grant and its epoch, so that a break that comes at once counts after it.
    let mut inner = locked(&lease.inner);
    let before = table.held(lease.node(), lease.party.holder).unwrap_or_default();
    let request = CacheRequest { kind: Kind::Lease, rights: want, allocated };
    let held = table.cache(lease.node(), &lease.party, request, cx.server.now());
    if held.rights != before.rights {
        inner.epoch = inner.epoch.wrapping_add(1);
    }
    let mut flags = 0;
    if held.breaking_to.is_some() {
        flags |= lease_flag::BREAK_IN_PROGRESS;
    }
    if let Some(parent) = named_parent(asked) {
        inner.parent = Some(parent);
    }
    let v2 = lease.version_2.then(|| {
        if inner.parent.is_some() {
            flags |= lease_flag::PARENT_LEASE_KEY_SET;
        }
        LeaseV2 { parent: inner.parent.unwrap_or_default(), epoch: inner.epoch }
    });
    tracing::debug!(
        open = open.id.volatile,
        holder = lease.party.holder.0,
        ?want,
        ?held,
        epoch = inner.epoch,
        "lease"
    );
    Context { key: lease.key, state: to_state(held.rights), flags, v2 }
}

/// What CREATE answers about caching for an open that is taken up again.
pub(crate) fn describe(core: &ServerState, open: &Open) -> (u8, Option<Context>) {
    let table = core.namespace.arbiter().state();
    let Ok(node) = open.node() else { return (oplock::NONE, None) };
    let Some(lease) = open.caching.lease() else {
        let held = table.held(node.id(), open.party.holder).unwrap_or_default();
        return (to_level(held.rights), None);
    };
    let held = table.held(lease.node(), lease.party.holder).unwrap_or_default();
    let inner = locked(&lease.inner);
    let mut flags = 0;
    if held.breaking_to.is_some() {
        flags |= lease_flag::BREAK_IN_PROGRESS;
    }
    let v2 = lease.version_2.then(|| {
        if inner.parent.is_some() {
            flags |= lease_flag::PARENT_LEASE_KEY_SET;
        }
        LeaseV2 { parent: inner.parent.unwrap_or_default(), epoch: inner.epoch }
    });
    (oplock::LEASE, Some(Context { key: lease.key, state: to_state(held.rights), flags, v2 }))
}

/// Breaks of what this open caches by an oplock reach it.
pub(crate) fn own_oplock(core: &ServerState, open: &Arc<Open>) {
    core.leases.owners.insert(open.party.holder, Owner::Oplock(Arc::downgrade(open)));
}

/// The rights that an open may cache now.
pub(crate) fn rights(core: &ServerState, open: &Open) -> Caching {
    let table = core.namespace.arbiter().state();
    let Ok(node) = open.node() else { return Caching::NONE };
    let holder = open.caching.lease().map_or(open.party.holder, |l| l.party.holder);
    table.held(node.id(), holder).unwrap_or_default().rights
}

/// An open has gone: what it alone cached is nobody's any more.
pub(crate) fn closed(core: &ServerState, open: &Open) {
    if open.caching.changed.load(Ordering::Relaxed) {
        listing_changed(core, open);
    }
    core.leases.owners.remove(&open.party.holder);
    let claim = locked(&open.caching.claim).take();
    if let Some(claim) = claim {
        let lease = claim.lease.clone();
        {
            let mut inner = locked(&lease.inner);
            inner.opens.retain(|o| !std::ptr::eq(o.as_ptr(), open));
        }
        drop(claim);
        lease.follow(core.now());
    }
}

/// What `open` did to its file changes what a listing of its directory shows: whoever caches that is told (MS-FSA sections 2.1.5.5
/// and 2.1.5.15, PARENT_OBJECT).
pub(crate) fn listing_changed(core: &ServerState, open: &Open) {
    let Ok(file) = open.file() else { return };
    let who = parent(core, open).map(|client| Requester { client, holder: None });
    core.namespace.arbiter().tell(file.place().dir.id(), who, state::Operation::Contents);
}

/// How [`state`] reaches the holders. It does not keep the server alive: that keeps the namespace which keeps this.
struct Link(Weak<ServerState>);

/// Joins the server to `FileOps`.
pub(crate) fn attach(core: &Arc<ServerState>) {
    let link = Arc::new(Link(Arc::downgrade(core)));
    if !core.namespace.arbiter().attach_keys(link) {
        tracing::warn!(
            "these shares have an SMB server already; only its clients receive break notifications"
        );
    }
}

impl Recall for Link {
    fn recall(&self, what: &Break) {
        if let Some(core) = self.0.upgrade() {
            tell(&core, what, true);
        }
    }

    fn revoke(&self, what: &Break) {
        if let Some(core) = self.0.upgrade() {
            overrule(&core, what);
        }
    }

    fn release(&self, client: ClientId) -> BoxFuture<'_, ()> {
        let core = self.0.upgrade();
        Box::pin(async move {
            if let Some(core) = core {
                crate::durable::give_way(&core, client).await;
            }
        })
    }

    fn renamed(&self, node: NodeId, from: (&NodeRef, &[u8]), to: (&NodeRef, &[u8])) {
        if let Some(core) = self.0.upgrade() {
            core.opens.renamed(node, from, to);
        }
    }

    fn handles_below(&self, share: u32, dir: &NodeRef) -> BoxFuture<'_, VfsResult<Vec<NodeId>>> {
        let (core, dir) = (self.0.upgrade(), dir.clone());
        Box::pin(async move {
            let Some(core) = core else { return Ok(Vec::new()) };
            let cached = |o: &Open| rights(&core, o).has(Caching::HANDLE);
            path_tracking::below(&core.opens, share, &dir, cached).await
        })
    }
}

/// Takes by force what was not given back in time.
fn overrule(core: &Arc<ServerState>, what: &Break) {
    let arbiter = core.namespace.arbiter();
    let breaking = arbiter.state().held(what.node, what.holder).and_then(|h| h.breaking_to);
    if breaking == Some(what.to) {
        tracing::warn!(
            holder = what.holder.0,
            "an oplock or lease break was not acknowledged in time; the right is revoked"
        );
        arbiter.acknowledge(what.node, what.holder, Caching::NONE);
        crate::persist::note(core, opens_of(core, what.holder));
    }
}

/// The opens whose caching a holder stands for.
fn opens_of(core: &ServerState, holder: HolderId) -> Vec<Arc<Open>> {
    let Some(owner) = core.leases.owners.get(&holder) else { return Vec::new() };
    match owner.value() {
        Owner::Lease(lease) => lease.opens(),
        Owner::Oplock(open) => open.upgrade().into_iter().collect(),
    }
}

/// The answers to the holder that its notices must not overtake.
fn answers_of(core: &ServerState, holder: HolderId) -> Option<Arc<InFlight>> {
    let owner = core.leases.owners.get(&holder)?;
    Some(match owner.value() {
        Owner::Lease(lease) => lease.answers.clone(),
        Owner::Oplock(open) => open.upgrade()?.caching.answers.clone(),
    })
}

/// The notice of a break, whom it is for, and the answers that must come before. The steps of one break have one epoch, that of the
/// `first`.
fn notice(core: &ServerState, what: &Break, first: bool) -> Option<(To, Vec<u8>, Arc<InFlight>)> {
    // No owner: just closed, which gives back more than was asked for.
    let owner = core.leases.owners.get(&what.holder)?;
    Some(match owner.value() {
        Owner::Oplock(open) => {
            let open = open.upgrade()?;
            let notice = Oplock { level: to_level(what.to), file: open.id };
            (To::Session(open.session_id()), notice.emit(), open.caching.answers.clone())
        }
        Owner::Lease(lease) => {
            let mut inner = locked(&lease.inner);
            inner.epoch = inner.epoch.wrapping_add(u16::from(first));
            let notice = LeaseNotice {
                epoch: if lease.version_2 { inner.epoch } else { 0 },
                acknowledge: what.stage == Stage::Started,
                key: lease.key,
                from: to_state(what.from),
                to: to_state(what.to),
            };
            (To::Lease(lease.clone()), notice.emit(), lease.answers.clone())
        }
    })
}

/// Sends the notice of a break. Called by [`state`]'s arbiter in the order of the breaks; the notice is composed here, so that
/// epochs follow that order too. What the connection answers from now on comes behind it: Linux that has changed a directory which
/// it caches itself learns that its listing is old before it learns that the change is made. Others learn that as they do from
/// Windows, with the notice behind the answer to their change.
fn tell(core: &Arc<ServerState>, what: &Break, first: bool) {
    let Some((to, body, answers)) = notice(core, what, first) else { return };
    tracing::debug!(?what, "break notice");
    let (core, what) = (core.clone(), *what);
    let now = ways(&core, &to);
    let change = now.first().and_then(|(_, conn)| own_change(&what, &to, conn));
    let (change, turn) = change.map(|c| ([c.answer, c.before], c.placing)).unzip();
    let at_once = (answers.is_settled() && change.is_none()).then_some(now);
    let placing = at_once.iter().flatten().next().map(|(_, conn)| conn.notices.begin());
    tokio::spawn(async move {
        let ways = match at_once {
            Some(ways) => ways,
            None => {
                left(&answers).await;
                for earlier in change.iter().flatten() {
                    left(earlier).await;
                }
                ways(&core, &to)
            }
        };
        let sent = send(ways, &body).await;
        drop((placing, turn));
        // A server that has ended is not kept for this.
        let server = Arc::downgrade(&core);
        let follow = sent.map(|sent| Following { core: server.clone(), what, to, body, sent });
        let acknowledged = what.stage == Stage::Started;
        let wait = if acknowledged { what.deadline.saturating_sub(core.now()) } else { HEARD_MAX };
        drop(core);
        let until = Instant::now() + Duration::from_millis(wait);
        if let Some(follow) = follow {
            let _ = tokio::time::timeout_at(until, follow.until_heard()).await;
        }
        if acknowledged {
            tokio::time::sleep_until(until).await;
            if let Some(core) = server.upgrade() {
                overrule(&core, &what);
            }
        }
    });
}

/// The answer that the notice goes behind: to the command by which this client itself, which is not Linux, has changed what a
/// listing of its directory shows. Nobody waits for such a break (MS-FSA section 2.1.4.12, PARENT_OBJECT).
fn own_change(what: &Break, to: &To, conn: &Conn) -> Option<Behind> {
    // By dialect 3.1.1 Linux is known by its context of the POSIX extensions; by an older one it may be anybody.
    let is_linux = conn.negotiated().is_none_or(|n| n.posix || n.dialect != Dialect::V311);
    let is_waited_for = what.from.has(Caching::WRITE) || !what.to.is_none();
    let To::Lease(lease) = to else { return None };
    if is_linux || is_waited_for || !lease.opens().iter().any(|o| o.is_dir()) {
        return None;
    }
    behind_answer(conn)
}

/// Waits until these answers have left. Windows is not confused by the other order, and a connection that takes no answers takes no
/// notice either.
async fn left(answers: &InFlight) {
    if tokio::time::timeout(ANSWERS_MAX, answers.settled()).await.is_err() {
        count::limit_met(ANSWERS_TAKE_LONG);
    }
}

/// A client has taken an open up again: of a break that began meanwhile it has not been told.
pub(crate) fn tell_again(cx: &RequestContext, open: &Open) {
    let core = &cx.server;
    let (Ok(node), lease) = (open.node(), open.caching.lease()) else { return };
    let (holder, kind) = match &lease {
        Some(lease) => (lease.party.holder, Kind::Lease),
        None => (open.party.holder, Kind::Oplock),
    };
    let (node, client) = (node.id(), open.party.client());
    let held = core.namespace.arbiter().state().held(node, holder).unwrap_or_default();
    let Some(to) = held.breaking_to else { return };
    let (stage, deadline, from) = (Stage::Started, core.now(), held.rights);
    let what = Break { node, holder, client, kind, from, to, stage, deadline };
    let Some((to, body, answers)) = notice(core, &what, false) else { return };
    cx.until_answered(answers.begin());
    let core = core.clone();
    tokio::spawn(async move {
        left(&answers).await;
        send(ways(&core, &to), &body).await;
    });
}

/// The writes that came by these opens before an acknowledgement are done. A client may send its acknowledgement right behind the
/// data that it flushes, as Linux does when it keeps READ caching, and then whoever waits for it must find that data.
pub(crate) async fn settled(core: &ServerState, opens: &[Arc<Open>]) {
    let wait = Duration::from_millis(core.namespace.arbiter().state().deadlines().wait_ms());
    let all = async {
        for open in opens {
            open.caching.writes.settled().await;
        }
    };
    // Past this the break was decided without the client.
    let _ = tokio::time::timeout(wait, all).await;
}

/// Acknowledges a break by its holder. Whoever waited goes on at once; a further step of the break is told when the answer to the
/// acknowledgement has left.
pub(crate) fn acknowledge(cx: &RequestContext, node: NodeId, holder: HolderId, to: Caching) {
    tracing::debug!(?node, holder = holder.0, ?to, "break acknowledged");
    let core = &cx.server;
    if let Some(answers) = answers_of(core, holder) {
        cx.until_answered(answers.begin());
    }
    if let Some(next) = core.namespace.arbiter().acknowledged(node, holder, to) {
        tell(core, &next, false);
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
