//! Opens: files, directories, streams and pipes as one client has them open (MS-SMB2 section 3.3.1.10).
//!
//! *Operation.* [`Opens`] is `GlobalOpenTable`. Beside it stands one record per file that is open, with what must outlive each
//! single open: that a name is to be removed when its last open closes (MS-FSA section 2.1.5.5).
//!
//! *Memory.* One entry per open, at most [`OPENS_MAX`] in all; how many a session and an address may have is asked before anything
//! is done for a CREATE ([`RequestContext::room_for_an_open`](crate::request_context::RequestContext)).
//!
//! *Errors.* STATUS_DELETE_PENDING for a name that waits to be removed; STATUS_INSUFFICIENT_RESOURCES at the limits.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use dashmap::DashMap;
use mutex::{locked, reading, writing};
use rdma_transport::channel::host_of;
use state::{Holder, Name, Opening, Rights};
use vfs::audited::Acting;
use vfs::authority::{Actor, Grant};
use vfs::backend::NodeRef;
use vfs::names::Spelling;
use vfs::namespace::{Namespace, Share};
use vfs::{Cred, NodeId};

use crate::caching::OpenCaching;
use crate::dtyp::mask;
use crate::folders::{Above, Folders};
use crate::limits::OPENS_MAX;
use crate::open_durable::OpenDurable;
use crate::open_state::OpenState;
use crate::parts::Part;
use crate::pipe::Pipe;
use crate::sequence::Sequence;
use crate::status::Status;
use crate::wire::create::{option, share};
pub use crate::wire::file_id::FileId;

/// Where a file stands: changes when it is renamed.
#[derive(Clone)]
pub struct PathInShare {
    /// The directory; of the root of a share the root itself.
    pub dir: NodeRef,
    /// Its name there, as the file system has it; empty for the root.
    pub name: Vec<u8>,
    /// The path from the root of the share as clients see it, with `\` between names and none before the first.
    pub path: String,
    /// The walk that has led to the directory.
    pub(crate) walk: Option<Walk>,
}

/// The directories through which a walk has led. A directory that is renamed meanwhile makes the walk stale: it then says nothing.
#[derive(Clone)]
pub(crate) struct Walk {
    /// The last directory and those above it.
    pub(crate) above: Arc<Above<NodeRef>>,
    /// [`Opens::renames`] when it began.
    pub(crate) began: u64,
}

/// A directory that a walk has come to from another one; the first one has none above.
pub(crate) fn walked(node: &NodeRef, parent: Option<Arc<Above<NodeRef>>>) -> Arc<Above<NodeRef>> {
    Arc::new(Above { id: node.id(), node: node.clone(), parent })
}

impl PathInShare {
    fn is(&self, other: &Self) -> bool {
        self.dir.id() == other.dir.id() && self.name == other.name
    }
}

struct Nodes {
    node: NodeRef,
    base: NodeRef,
}

struct Placed {
    at: PathInShare,
    /// In the folder that judged the open, or where a client has put it since: what that folder has granted counts there.
    granted: bool,
}

/// What is open.
pub struct File {
    nodes: RwLock<Nodes>,
    stream: RwLock<Option<String>>,
    /// The share.
    pub share: Arc<Share>,
    place: RwLock<Placed>,
    only_name: AtomicBool,
}

impl File {
    /// The file or directory at this place, or one of its streams. `links`: names that the file has.
    pub fn new(
        (node, base): (NodeRef, NodeRef),
        stream: Option<String>,
        share: Arc<Share>,
        place: PathInShare,
        links: u32,
    ) -> Self {
        let (nodes, stream) = (RwLock::new(Nodes { node, base }), RwLock::new(stream));
        let place = RwLock::new(Placed { at: place, granted: true });
        Self { nodes, stream, share, place, only_name: AtomicBool::new(links == 1) }
    }

    /// Name of the stream that is open, without its type; `None` for the file itself.
    pub fn stream(&self) -> Option<String> {
        reading(&self.stream).clone()
    }

    /// It is a stream of a file that is open, and not the file.
    pub fn is_stream(&self) -> bool {
        reading(&self.stream).is_some()
    }

    /// What is read and written: the file or directory, or one of its streams.
    pub fn node(&self) -> NodeRef {
        reading(&self.nodes).node.clone()
    }

    /// The file or directory itself; the same as [`File::node`] unless a stream is open.
    pub fn base(&self) -> NodeRef {
        reading(&self.nodes).base.clone()
    }

    /// Another node stands in the place of the one that was opened: it became a reparse point, or ceased to be one.
    fn becomes(&self, node: &NodeRef) {
        let nodes = Nodes { node: node.clone(), base: node.clone() };
        *writing(&self.nodes) = nodes;
    }

    /// Where it stands.
    pub fn place(&self) -> PathInShare {
        reading(&self.place).at.clone()
    }

    /// The same with the folders above it, which are not kept.
    fn place_once(&self) -> PathInShare {
        let at = &mut writing(&self.place).at;
        let walk = at.walk.take();
        PathInShare { walk, ..at.clone() }
    }

    /// It was renamed; `by_client`: by a client of the gateway, which had the right to. Where else it was found is no such proof.
    fn set_place(&self, to: PathInShare, by_client: bool) {
        let mut place = writing(&self.place);
        place.granted &= by_client || place.at.dir.id() == to.dir.id();
        place.at = to;
    }

    /// What the folder has granted by which it was opened counts in this one.
    fn is_granted_in(&self, dir: NodeId) -> bool {
        let place = reading(&self.place);
        place.granted && place.at.dir.id() == dir
    }

    /// The folder in which it stood is not known any more.
    pub(crate) fn lose_place(&self) {
        writing(&self.place).granted = false;
    }

    /// It had no other name when it was opened, and got none since by a client of the gateway.
    pub(crate) fn has_one_name(&self) -> bool {
        self.only_name.load(Ordering::Acquire)
    }

    pub(crate) fn same_name(&self, other: &Self) -> bool {
        self.base().id() == other.base().id()
            && self.stream_key() == other.stream_key()
            && self.place().is(&other.place())
    }

    fn stream_key(&self) -> Option<String> {
        self.stream().map(|s| s.to_lowercase())
    }
}

/// What an open shows.
pub enum Target {
    /// Something of a share of files.
    File(File),
    /// A named pipe of `IPC$`.
    Pipe(Pipe),
}

/// One open.
pub struct Open {
    /// Its name.
    pub id: FileId,
    session_id: AtomicU64,
    tree_id: AtomicU64,
    /// What it shows.
    pub target: Target,
    /// Who holds it, to [`state`].
    pub party: Holder,
    /// On whose behalf it works.
    pub cred: Cred,
    /// What was granted: bits of [`access`], none of them generic.
    pub granted: u32,
    /// What of it the file's own list has granted: for calls that need it, and the kernel would not let the user make.
    pub by_list: Option<Grant>,
    /// The right to remove the file that was opened, where DELETE was granted: for the delete that waits for the last close.
    to_delete: Option<Grant>,
    /// DELETE comes from the file's own list, and counts for each of its names. Else the folder in which the file stood gave it.
    pub(crate) deletes_by_list: bool,
    /// What others may do: bits of [`share`].
    pub shared: u32,
    /// `CreateOptions` of the request.
    pub options: u32,
    /// What it remembers between commands about information.
    pub open_state: OpenState,
    /// What it caches, and under whose key.
    pub caching: OpenCaching,
    /// What becomes of it when its connection is lost.
    pub durable: OpenDurable,
    /// `Open.LockSequenceArray`
    pub lock_sequences: LockSequences,
    pub(crate) sequence: Sequence,
    /// Opened with the POSIX extensions: names that its client sends are of that kind.
    pub posix: bool,
    /// Who opened it, for the audit trail, where its share has one.
    pub(crate) opener: Option<Box<Acting>>,
    /// Its place among those of its client's address.
    pub(crate) part: Option<Part>,
    /// Byte ranges that are locked by it.
    pub(crate) locks: AtomicUsize,
    delete_on_close: AtomicBool,
    goes_at_once: AtomicBool,
    closed: AtomicBool,
}

/// For what is done when it closes, after its connection or the gateway that made it.
impl vfs::audited::Actor for Open {
    fn acting(&self) -> Acting {
        self.opener.as_deref().cloned().unwrap_or_else(|| Acting {
            peer: self.durable.at().unwrap_or(std::net::Ipv4Addr::UNSPECIFIED.into()),
            protocol: "smb",
            party: audit::Party::named(self.durable.owner(), self.cred.uid),
        })
    }
}

impl Open {
    /// Each change of data through it is on stable storage when it is answered: said at its CREATE, by the share, or since then by
    /// FileModeInformation.
    pub(crate) fn writes_through(&self) -> bool {
        (self.options | self.open_state.mode()) & option::WRITE_THROUGH != 0
    }

    /// How its client writes names.
    pub(crate) fn spelling(&self) -> Spelling {
        if self.posix { Spelling::Posix } else { Spelling::Windows }
    }

    /// An open that is in no table yet.
    pub fn new(
        owner: (u64, u32),
        target: Target,
        party: Holder,
        cred: Cred,
        granted: u32,
    ) -> Result<Self, Status> {
        let mut random = [[0; 8]; 2];
        getrandom::fill(random.as_flattened_mut()).map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        let [persistent, volatile] = random.map(u64::from_le_bytes);
        let to_delete = match &target {
            Target::File(file) if !file.is_stream() => Grant::of_deleter(&file.base(), granted),
            _ => None,
        };
        // All ones in both halves would mean "the file of the command before".
        let id = FileId { persistent: persistent & (u64::MAX >> 1), volatile };
        Ok(Self {
            id,
            session_id: AtomicU64::new(owner.0),
            tree_id: AtomicU64::new(u64::from(owner.1)),
            target,
            party,
            cred,
            granted,
            by_list: None,
            to_delete,
            deletes_by_list: false,
            shared: share::READ | share::WRITE | share::DELETE,
            options: 0,
            open_state: OpenState::default(),
            caching: OpenCaching::default(),
            durable: OpenDurable::default(),
            lock_sequences: LockSequences::default(),
            sequence: Sequence::default(),
            posix: false,
            opener: None,
            part: None,
            locks: AtomicUsize::new(0),
            delete_on_close: AtomicBool::new(false),
            goes_at_once: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        })
    }

    /// The session that it belongs to; 0 while a durable open waits for its client.
    pub fn session_id(&self) -> u64 {
        self.session_id.load(Ordering::Acquire)
    }

    /// The tree that it belongs to.
    pub fn tree_id(&self) -> u32 {
        u32::try_from(self.tree_id.load(Ordering::Acquire)).unwrap_or(0)
    }

    /// It is of this session and this tree.
    pub fn belongs_to(&self, session_id: u64, tree_id: u32) -> bool {
        self.session_id() == session_id && self.tree_id() == tree_id
    }

    /// The file; STATUS_INVALID_DEVICE_REQUEST for a pipe.
    pub fn file(&self) -> Result<&File, Status> {
        match &self.target {
            Target::File(file) => Ok(file),
            Target::Pipe(_) => Err(Status::INVALID_DEVICE_REQUEST),
        }
    }

    /// The pipe.
    pub fn pipe(&self) -> Option<&Pipe> {
        match &self.target {
            Target::Pipe(pipe) => Some(pipe),
            Target::File(_) => None,
        }
    }

    /// What is read and written; STATUS_INVALID_DEVICE_REQUEST for a pipe.
    pub fn node(&self) -> Result<NodeRef, Status> {
        self.file().map(File::node)
    }

    /// The share; STATUS_INVALID_DEVICE_REQUEST for a pipe.
    pub fn share(&self) -> Result<&Arc<Share>, Status> {
        self.file().map(|f| &f.share)
    }

    /// A directory is open.
    pub fn is_dir(&self) -> bool {
        self.file().is_ok_and(|f| f.node().kind() == vfs::Kind::Dir)
    }

    /// As whom one call on this node is made, which needs one right.
    pub(crate) fn actor(&self, node: &NodeRef, right: u32) -> Actor<'_> {
        Actor::on(node.as_ref(), &self.cred, self.by_list.as_ref(), right)
    }

    /// The right to remove the file's name from this folder that its open gave; elsewhere the user's own rights count alone.
    pub(crate) fn to_delete_from(&self, dir: &NodeRef) -> Option<&Grant> {
        self.to_delete.as_ref().filter(|_| self.may_take_from(dir))
    }

    /// What the file's own list has granted, for a change of its name in this folder.
    pub(crate) fn by_list_in(&self, dir: &NodeRef) -> Option<&Grant> {
        self.by_list.as_ref().filter(|_| self.may_take_from(dir))
    }

    fn may_take_from(&self, dir: &NodeRef) -> bool {
        self.deletes_by_list || self.file().is_ok_and(|f| f.is_granted_in(dir.id()))
    }

    /// One of these bits was granted; else STATUS_ACCESS_DENIED.
    pub fn check(&self, any_of: u32) -> Result<(), Status> {
        if self.granted & any_of != 0 { Ok(()) } else { Err(Status::ACCESS_DENIED) }
    }

    /// Its file is removed when it closes.
    pub fn set_delete_on_close(&self) {
        self.delete_on_close.store(true, Ordering::Release);
    }

    /// See [`Open::set_delete_on_close`].
    pub fn delete_on_close(&self) -> bool {
        self.delete_on_close.load(Ordering::Acquire)
    }

    /// A name that is to be removed because of this open goes when it closes, whoever has the file open still
    /// (FILE_DISPOSITION_POSIX_SEMANTICS, MS-FSCC section 2.4.12).
    pub fn set_goes_at_once(&self, at_once: bool) {
        self.goes_at_once.store(at_once, Ordering::Release);
    }

    /// See [`Open::set_goes_at_once`].
    fn goes_now(&self) -> bool {
        self.goes_at_once.load(Ordering::Acquire) && self.is_closed()
    }

    /// It was closed, and whoever still works with it does so for nothing.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// How an open of this access, ShareAccess and disposition is entered in [`state`] (MS-FSA sections 2.1.4.12 and 2.1.5.1.2).
    /// One that neither reads, writes nor deletes forbids nothing; one that asks for attributes only takes no part at all.
    pub fn opening(granted: u32, shared: u32, overwrites: bool) -> Opening {
        let rights = |bits: u32, of: [(u32, Rights); 3]| {
            of.iter().filter(|(b, _)| bits & b != 0).fold(Rights::NONE, |all, (_, r)| all | *r)
        };
        let does = rights(
            granted,
            [
                (mask::READ_DATA | mask::EXECUTE, Rights::READ),
                (mask::WRITE_DATA | mask::APPEND_DATA, Rights::WRITE),
                (mask::DELETE, Rights::DELETE),
            ],
        );
        let leaves = rights(
            shared,
            [
                (share::READ, Rights::READ),
                (share::WRITE, Rights::WRITE),
                (share::DELETE, Rights::DELETE),
            ],
        );
        const ATTRIBUTES: u32 =
            mask::READ_ATTRIBUTES | mask::WRITE_ATTRIBUTES | mask::READ_CONTROL | mask::SYNCHRONIZE;
        Opening {
            share: state::Share::of(does, leaves),
            overwrites,
            attributes_only: granted & !ATTRIBUTES == 0,
            control: granted & mask::READ_CONTROL != 0,
        }
    }
}

/// Entries of `Open.LockSequenceArray` (MS-SMB2 section 3.3.1.10).
pub const LOCK_SEQUENCES: usize = 64;

/// The numbers of locks that were done, by which a client that lost the answer asks again.
pub struct LockSequences(Mutex<[Option<u8>; LOCK_SEQUENCES]>);

impl Default for LockSequences {
    fn default() -> Self {
        Self::of([None; LOCK_SEQUENCES])
    }
}

impl LockSequences {
    /// As they were in another run of the server.
    pub fn of(numbers: [Option<u8>; LOCK_SEQUENCES]) -> Self {
        Self(Mutex::new(numbers))
    }

    /// All of them.
    pub fn all(&self) -> [Option<u8>; LOCK_SEQUENCES] {
        *locked(&self.0)
    }

    /// This request was done before. If another one was, its number is forgotten.
    pub fn is_done(&self, slot: usize, number: u8) -> bool {
        let mut slots = locked(&self.0);
        let same = slots[slot] == Some(number);
        if !same {
            slots[slot] = None;
        }
        same
    }

    /// This request has been done.
    pub fn done(&self, slot: usize, number: u8) {
        locked(&self.0)[slot] = Some(number);
    }
}

/// A file that somebody has open.
#[derive(Default)]
struct Record {
    opens: Vec<Arc<Open>>,
    /// Opens whose name is to be removed when nobody has it open any more. They need not be open themselves.
    doomed: Vec<Arc<Open>>,
}

fn file_of(open: &Open) -> Option<&File> {
    open.file().ok()
}

impl Record {
    fn is_doomed(&self, file: &File) -> bool {
        // A file that goes takes its streams with it.
        self.doomed
            .iter()
            .filter_map(|d| file_of(d))
            .any(|d| d.same_name(file) || !d.is_stream() && d.place().is(&file.place()))
    }

    /// The name of this open is to be removed; whoever watches it as a directory is told.
    fn doom(&mut self, open: &Arc<Open>) {
        self.doomed.push(open.clone());
        self.opens.iter().for_each(|o| o.open_state.end_watch(Status::DELETE_PENDING));
    }

    /// Names that are marked, or that an open takes with it when it closes. Streams have none that others open.
    fn pending(&self) -> Vec<Name> {
        let on_close = self.opens.iter().filter(|o| o.delete_on_close());
        let files = on_close.chain(&self.doomed).filter_map(|o| file_of(o));
        files
            .filter(|f| !f.is_stream())
            .map(|f| f.place())
            .map(|place| Name { dir: place.dir.id(), name: place.name.into() })
            .collect()
    }

    /// Takes out what nobody has open any more.
    fn ripe(&mut self) -> Vec<Arc<Open>> {
        let opens = &self.opens;
        self.doomed
            .extract_if(.., |d| {
                if d.goes_now() {
                    return true;
                }
                let Some(d) = file_of(d) else { return true };
                !opens
                    .iter()
                    .filter_map(|o| file_of(o))
                    .any(|o| o.same_name(d) || !d.is_stream() && d.place().is(&o.place()))
            })
            .collect()
    }
}

#[derive(Default)]
struct Files {
    records: HashMap<NodeId, Record>,
    /// Opens of each session; 0: of those that wait for their client.
    per_session: HashMap<u64, HashSet<u64>>,
    /// Those that wait for their client, by the number that the client knows after its connection.
    waiting: HashMap<u64, u64>,
    folders: Folders<NodeRef>,
}

impl Files {
    /// Enters an open for a session.
    fn enter(&mut self, open: &Open, session: u64) {
        self.per_session.entry(session).or_default().insert(open.id.volatile);
        if session == 0 {
            self.waiting.insert(open.id.persistent, open.id.volatile);
        }
    }

    /// Takes an open out of its session.
    fn leave(&mut self, open: &Open) {
        let session = open.session_id();
        if let Some(own) = self.per_session.get_mut(&session) {
            own.remove(&open.id.volatile);
            if own.is_empty() {
                self.per_session.remove(&session);
            }
        }
        if session == 0 {
            self.waiting.remove(&open.id.persistent);
        }
    }

    /// Lists an open in the folder of its name. `renames`: of directories so far.
    fn list(&mut self, open: &Open, renames: u64) {
        let Some(file) = file_of(open) else { return };
        let (place, share) = (file.place_once(), &file.share);
        let at = (place.dir.id(), &place.dir);
        self.folders.add(share.id, open.id.volatile, at, fresh(&place, renames));
        self.folders.is_top(share.id, share.backend.root().id());
    }

    /// An open has another name.
    fn relist(&mut self, open: &Open, renames: u64) {
        let Some(file) = file_of(open) else { return };
        let place = file.place_once();
        let at = (place.dir.id(), &place.dir);
        self.folders.shift(file.share.id, open.id.volatile, at, fresh(&place, renames));
        // A folder takes what is below it along.
        self.folders.place(file.share.id, file.base().id(), at);
    }
}

/// The directories above a name, unless one of them may have been renamed since they were found.
fn fresh(place: &PathInShare, renames: u64) -> Option<&Arc<Above<NodeRef>>> {
    place.walk.as_ref().filter(|walk| walk.began == renames).map(|walk| &walk.above)
}

/// `GlobalOpenTable`.
pub struct Opens {
    all: DashMap<u64, Arc<Open>>,
    files: Mutex<Files>,
    /// Renames of directories. Changes with the lock of `files`, before the index follows the rename.
    renames: AtomicU64,
    /// Where front ends without such deletes ask for names that wait to be removed.
    namespace: Arc<Namespace>,
}

impl Opens {
    /// An empty table.
    pub fn new(namespace: Arc<Namespace>) -> Self {
        let (all, files, renames) = (DashMap::new(), Mutex::default(), AtomicU64::new(0));
        Self { all, files, renames, namespace }
    }

    /// Tells `state` which names of a file wait to be removed. Called with the lock, so that what was entered last stands.
    fn publish(&self, files: &Files, id: NodeId) {
        let names = files.records.get(&id).map(Record::pending).unwrap_or_default();
        let arbiter = self.namespace.arbiter();
        if !names.is_empty() || arbiter.state().has_pending_deletes(id) {
            arbiter.set_pending_deletes(id, names);
        }
    }

    /// The open of this name.
    pub fn get(&self, id: FileId) -> Option<Arc<Open>> {
        self.all.get(&id.volatile).filter(|o| o.id == id).map(|o| o.clone())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// How many a session has; 0: how many belong to none and wait for their client.
    pub fn count_of(&self, session: u64) -> usize {
        locked(&self.files).per_session.get(&session).map_or(0, HashSet::len)
    }

    /// What a session, and all sessions of an address, have of a file and its streams, each open counted as `weight` says. Not
    /// counted, and zero, where the file has fewer than `many` opens.
    pub(crate) fn share_of(
        &self,
        base: NodeId,
        (session, from): (u64, IpAddr),
        many: usize,
        weight: impl Fn(&Open) -> usize,
    ) -> (usize, usize) {
        let from = host_of(from);
        let files = locked(&self.files);
        let Some(record) = files.records.get(&base).filter(|r| r.opens.len() >= many) else {
            return (0, 0);
        };
        record.opens.iter().fold((0, 0), |(own, near), open| {
            let n = weight(open);
            let is_own = open.session_id() == session;
            let is_near = is_own || open.durable.at().is_some_and(|at| host_of(at) == from);
            (own + if is_own { n } else { 0 }, near + if is_near { n } else { 0 })
        })
    }

    /// Adds one. STATUS_DELETE_PENDING when its name waits to be removed.
    pub fn insert(&self, open: Arc<Open>) -> Result<(), Status> {
        let mut files = locked(&self.files);
        if self.all.len() >= OPENS_MAX {
            return Err(Status::INSUFFICIENT_RESOURCES);
        }
        // Session 0 is all clients that have not come back yet.
        files.enter(&open, open.session_id());
        if let Some(file) = file_of(&open) {
            let id = file.base().id();
            if files.records.is_empty() {
                // Other protocols did not tell of their renames so far.
                self.renames.fetch_add(1, Ordering::Release);
            }
            let record = files.records.entry(id).or_default();
            if record.is_doomed(file) {
                files.leave(&open);
                return Err(Status::DELETE_PENDING);
            }
            record.opens.push(open.clone());
            files.list(&open, self.renames());
            self.publish(&files, id);
        }
        self.all.insert(open.id.volatile, open);
        Ok(())
    }

    /// Takes one out; `None` when it was taken out before. Gives the opens whose names are to be removed now: the caller does
    /// so and then calls [`Opens::removed`]. Until then these names cannot be opened.
    pub fn remove(&self, open: &Arc<Open>) -> Option<Vec<Arc<Open>>> {
        self.all.remove(&open.id.volatile)?;
        open.closed.store(true, Ordering::Release);
        open.open_state.end_watch(Status::NOTIFY_CLEANUP);
        if let Some(pipe) = open.pipe() {
            pipe.close();
        }
        let mut files = locked(&self.files);
        files.leave(open);
        files.folders.remove(open.id.volatile);
        let Some(file) = file_of(open) else { return Some(Vec::new()) };
        let Some(record) = files.records.get_mut(&file.base().id()) else {
            return Some(Vec::new());
        };
        record.opens.retain(|o| !Arc::ptr_eq(o, open));
        if open.delete_on_close() && !record.is_doomed(file) {
            record.doom(open);
        }
        let ripe = record.ripe();
        record.doomed.extend(ripe.iter().cloned());
        self.tidy(&mut files, file.base().id());
        self.publish(&files, file.base().id());
        Some(ripe)
    }

    /// The names of these opens, which [`Opens::remove`] gave, are gone or could not be removed.
    pub fn removed(&self, ripe: &[Arc<Open>]) {
        let mut files = locked(&self.files);
        for open in ripe {
            let Some(file) = file_of(open) else { continue };
            if let Some(record) = files.records.get_mut(&file.base().id()) {
                record.doomed.retain(|d| !Arc::ptr_eq(d, open));
            }
            self.tidy(&mut files, file.base().id());
            self.publish(&files, file.base().id());
        }
    }

    fn tidy(&self, files: &mut Files, id: NodeId) {
        if files.records.get(&id).is_some_and(|r| r.opens.is_empty() && r.doomed.is_empty()) {
            files.records.remove(&id);
        }
    }

    /// The opens of a file or directory and of its streams.
    pub fn of_node(&self, base: NodeId) -> Vec<Arc<Open>> {
        locked(&self.files).records.get(&base).map(|r| r.opens.clone()).unwrap_or_default()
    }

    /// Another node has taken the place of this one: all its opens are of that from now on. Gives them.
    pub(crate) fn becomes(&self, old: NodeId, new: &NodeRef) -> Vec<Arc<Open>> {
        let mut files = locked(&self.files);
        let Some(record) = files.records.remove(&old) else { return Vec::new() };
        let all = record.opens.iter().chain(&record.doomed);
        all.filter_map(|o| file_of(o)).for_each(|f| f.becomes(new));
        let opens = record.opens.clone();
        // Somebody may have found it under its name already.
        let there = files.records.entry(new.id()).or_default();
        there.opens.extend(record.opens);
        there.doomed.extend(record.doomed);
        self.publish(&files, old);
        self.publish(&files, new.id());
        opens
    }

    /// The name of this open is removed when its last open closes, or is not (MS-FSA section 2.1.5.15.3).
    pub fn set_delete_pending(&self, open: &Arc<Open>, pending: bool) {
        let Some(file) = file_of(open) else { return };
        let mut files = locked(&self.files);
        let Some(record) = files.records.get_mut(&file.base().id()) else { return };
        if !pending {
            record.doomed.retain(|d| !file_of(d).is_some_and(|d| d.same_name(file)));
        } else if !record.doomed.iter().any(|d| Arc::ptr_eq(d, open)) {
            // Each for itself: one of them may go at once.
            record.doom(open);
        }
        self.publish(&files, file.base().id());
    }

    /// The name of this open waits to be removed.
    pub fn is_delete_pending(&self, open: &Open) -> bool {
        file_of(open).is_some_and(|f| self.is_doomed(f))
    }

    /// This name waits to be removed.
    pub fn is_doomed(&self, file: &File) -> bool {
        let files = locked(&self.files);
        files.records.get(&file.base().id()).is_some_and(|r| r.is_doomed(file))
    }

    /// All opens of this file whose name waits to be removed.
    pub(crate) fn doomed(&self, node: NodeId) -> Vec<Arc<Open>> {
        let files = locked(&self.files);
        files.records.get(&node).map_or_else(Vec::new, |r| r.doomed.clone())
    }

    /// Some file is open: this table is told of names that others change.
    pub(crate) fn follow_names(&self) -> bool {
        !locked(&self.files).records.is_empty()
    }

    /// Renames of directories so far, for a walk that begins.
    pub(crate) fn renames(&self) -> u64 {
        self.renames.load(Ordering::Acquire)
    }

    fn relist(&self, open: &Open) {
        let mut files = locked(&self.files);
        files.relist(open, self.renames());
    }

    /// Makes the walks that are under way stale, unless what was renamed is known to be no directory.
    fn note_rename(&self, node: NodeId) {
        let files = locked(&self.files);
        let opens = files.records.get(&node).map(|r| r.opens.iter().chain(&r.doomed));
        let mut known = opens.into_iter().flatten().filter_map(|o| file_of(o));
        if !known.any(|file| file.base().kind() != vfs::Kind::Dir) {
            self.renames.fetch_add(1, Ordering::Release);
        }
    }

    /// A folder has another place in each share that has it in its index.
    fn place_folder(&self, node: NodeId, dir: &NodeRef) {
        for share in self.namespace.shares().iter() {
            locked(&self.files).folders.place(share.id, node, (dir.id(), dir));
        }
    }

    fn of_name(&self, node: NodeId) -> impl Iterator<Item = Arc<Open>> {
        self.of_node(node).into_iter().chain(self.doomed(node))
    }

    /// A client of SMB has given a file another name: its opens by the old one, and those that are closed and wait for its removal,
    /// are told.
    pub(crate) fn moved(&self, node: NodeId, old: &PathInShare, new: &PathInShare) {
        self.note_rename(node);
        for open in self.of_name(node) {
            if let Some(file) = file_of(&open).filter(|f| f.place().is(old)) {
                file.set_place(new.clone(), true);
                self.relist(&open);
            }
        }
        self.place_folder(node, &new.dir);
        self.publish(&locked(&self.files), node);
    }

    /// A file was found under another name: its opens by the old one that knew of no other are told.
    pub(crate) fn found(&self, node: NodeId, old: &PathInShare, new: &PathInShare) {
        for open in self.of_name(node) {
            let of_old = |f: &&File| f.has_one_name() && f.place().is(old);
            if let Some(file) = file_of(&open).filter(of_old) {
                file.set_place(new.clone(), false);
                self.relist(&open);
            }
        }
        self.publish(&locked(&self.files), node);
    }

    /// A client of another protocol has renamed a file. Its path stays the one by which the client of the open knows it.
    pub(crate) fn renamed(&self, node: NodeId, from: (&NodeRef, &[u8]), to: (&NodeRef, &[u8])) {
        self.note_rename(node);
        for open in self.of_name(node) {
            let Some(file) = file_of(&open) else { continue };
            let old = file.place();
            if old.dir.id() == from.0.id() && old.name == from.1 {
                let (dir, name) = (to.0.clone(), to.1.to_vec());
                file.set_place(PathInShare { dir, name, path: old.path, walk: None }, true);
                self.relist(&open);
            }
        }
        self.place_folder(node, to.0);
        self.publish(&locked(&self.files), node);
    }

    /// A client has given a file a further name.
    pub(crate) fn linked(&self, node: NodeId) {
        for open in self.of_name(node) {
            if let Some(file) = file_of(&open) {
                file.only_name.store(false, Ordering::Release);
            }
        }
    }

    /// A stream has another name: all its opens are told.
    pub(crate) fn stream_moved(&self, base: NodeId, stream: NodeId, new: &str) {
        for open in self.of_node(base).into_iter().chain(self.doomed(base)) {
            if let Some(file) = file_of(&open).filter(|f| f.is_stream() && f.node().id() == stream)
            {
                let name = Some(new.to_owned());
                *writing(&file.stream) = name;
            }
        }
    }

    fn of_ids(&self, ids: Vec<u64>) -> impl Iterator<Item = Arc<Open>> {
        ids.into_iter().filter_map(|id| self.all.get(&id).map(|o| o.clone()))
    }

    /// Everything that is open of this session, or of one of its trees. Session 0: of those that wait for their client.
    pub fn of_session(&self, session: u64, tree: Option<u32>) -> Vec<Arc<Open>> {
        let files = locked(&self.files);
        let ids = files.per_session.get(&session).map(|own| own.iter().copied().collect());
        drop(files);
        let is_its = |o: &Arc<Open>| o.session_id() == session;
        let own = self.of_ids(ids.unwrap_or_default()).filter(is_its);
        own.filter(|o| tree.is_none_or(|t| o.tree_id() == t)).collect()
    }

    /// Folders of a share of which it is not known where they stand.
    pub(crate) fn unknown_folders(&self, share: u32) -> Vec<(NodeId, NodeRef)> {
        locked(&self.files).folders.unknown(share)
    }

    /// Links a folder to those above it, as a walk has found them. False where the walk is stale.
    pub(crate) fn link_folder(&self, share: u32, walk: &Walk) -> bool {
        let mut files = locked(&self.files);
        let is_fresh = walk.began == self.renames();
        if is_fresh {
            files.folders.link(share, &walk.above);
        }
        is_fresh
    }

    /// No folder above this one matters: it has no name any more, or is the root of its share.
    pub(crate) fn note_top_folder(&self, share: u32, id: NodeId) {
        locked(&self.files).folders.is_top(share, id);
    }

    /// The opens below a folder as far as it is known where they stand.
    pub(crate) fn below(&self, share: u32, dir: NodeId) -> Vec<Arc<Open>> {
        let ids = locked(&self.files).folders.below(share, dir);
        self.of_ids(ids).collect()
    }

    /// The opens below the folders of a share of which it is not known where they stand.
    pub(crate) fn below_unknown(&self, share: u32) -> Vec<Arc<Open>> {
        let files = locked(&self.files);
        let unknown = files.folders.unknown(share).into_iter();
        let ids = unknown.flat_map(|(id, _)| files.folders.below(share, id)).collect();
        drop(files);
        self.of_ids(ids).collect()
    }

    /// Every open for which this holds. Looks at all of them.
    pub fn all(&self, which: impl Fn(&Open) -> bool) -> Vec<Arc<Open>> {
        self.all.iter().filter(|o| which(o)).map(|o| o.clone()).collect()
    }

    /// The open of this persistent number, where it waits for its client.
    pub(crate) fn waiting_by_id(&self, persistent: u64) -> Option<Arc<Open>> {
        let volatile = locked(&self.files).waiting.get(&persistent).copied()?;
        let found = self.all.get(&volatile).filter(|o| o.session_id() == 0);
        found.map(|o| o.clone())
    }

    /// An open for which this holds, of those that belong to no session.
    pub fn waiting(&self, which: impl Fn(&Open) -> bool) -> Option<Arc<Open>> {
        self.of_session(0, None).into_iter().find(|o| which(o))
    }

    /// Gives an open that belongs to no session to one. False when somebody else was first, or it has been closed.
    pub fn take_up(&self, open: &Open, session: u64, tree: u32) -> bool {
        let mut files = locked(&self.files);
        if open.is_closed() || open.session_id() != 0 {
            return false;
        }
        files.leave(open);
        files.enter(open, session);
        open.tree_id.store(u64::from(tree), Ordering::Release);
        open.session_id.store(session, Ordering::Release);
        true
    }

    /// Gives an open to another session: a durable one that its client has taken up again, or one that waits for it (session 0).
    pub fn move_to(&self, open: &Open, session: u64, tree: u32) {
        let mut files = locked(&self.files);
        files.leave(open);
        files.enter(open, session);
        open.session_id.store(session, Ordering::Release);
        open.tree_id.store(u64::from(tree), Ordering::Release);
    }
}
