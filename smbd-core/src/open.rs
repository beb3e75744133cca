//! Opens: the files, directories, streams and pipes that clients have open (MS-SMB2 section 3.3.1.10).
//!
//! *Operation.* [`Opens`] is `GlobalOpenTable`. It also keeps one record per open file for state that must outlive a single open:
//! the names to remove when the last open closes (MS-FSA section 2.1.5.5). [`crate::durable`] draws the states of an open.
//!
//! *Memory.* One entry per open, at most [`OPENS_MAX`] in all. Before a CREATE changes anything,
//! [`RequestContext::room_for_an_open`](crate::request_context::RequestContext) checks how many opens the session and the address
//! may have.
//!
//! *Errors.* STATUS_DELETE_PENDING for a name that waits to be removed; STATUS_INSUFFICIENT_RESOURCES at the limits.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use ahash::{HashMap, HashSet, RandomState};
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
pub use crate::lock_sequences::{LOCK_SEQUENCES, LockSequences};
use crate::mac::Special;
use crate::open_durable::OpenDurable;
use crate::open_quotas::Quotas;
use crate::open_state::OpenState;
use crate::parts::Part;
pub use crate::path_in_share::PathInShare;
pub(crate) use crate::path_in_share::{Walk, walked};
use crate::pipe::Pipe;
use crate::random_ids;
use crate::seen::Seen;
use crate::sequence::Sequence;
use crate::status::Status;
use crate::wire::create::{option, share};
pub use crate::wire::file_id::FileId;

struct Nodes {
    node: NodeRef,
    base: NodeRef,
}

struct Placed {
    at: PathInShare,
    /// True while the file is in the folder that the open was checked against, or where an SMB client has since moved it. Only then
    /// do rights that the folder granted still count.
    granted: bool,
}

/// An open file.
pub struct File {
    nodes: RwLock<Nodes>,
    stream: RwLock<Option<String>>,
    pub share: Arc<Share>,
    place: RwLock<Placed>,
    only_name: AtomicBool,
}

impl File {
    /// Builds the file or directory at this place, or one of its streams. `links`: the number of names that the file has.
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

    /// Returns the name of the open stream without its type, `None` for the file itself.
    pub fn stream(&self) -> Option<String> {
        reading(&self.stream).clone()
    }

    /// Returns whether this is a stream of a file rather than the file itself.
    pub fn is_stream(&self) -> bool {
        reading(&self.stream).is_some()
    }

    /// Returns the kind of the open stream if it follows the rules of Apple's servers.
    pub(crate) fn special(&self) -> Option<Special> {
        reading(&self.stream).as_deref().and_then(Special::named)
    }

    /// Returns the node that is read and written: the file, the directory or one of the file's streams.
    pub fn node(&self) -> NodeRef {
        reading(&self.nodes).node.clone()
    }

    /// Returns the file or directory itself; the same as [`File::node`] unless a stream is open.
    pub fn base(&self) -> NodeRef {
        reading(&self.nodes).base.clone()
    }

    /// Replaces the node that was opened by another one: the file became a reparse point or ceased to be one.
    fn becomes(&self, node: &NodeRef) {
        let nodes = Nodes { node: node.clone(), base: node.clone() };
        *writing(&self.nodes) = nodes;
    }

    pub fn place(&self) -> PathInShare {
        reading(&self.place).at.clone()
    }

    /// As [`File::place`], with the folders above it, which are not stored.
    fn place_once(&self) -> PathInShare {
        let at = &mut writing(&self.place).at;
        let walk = at.walk.take();
        PathInShare { walk, ..at.clone() }
    }

    /// Records a rename. `by_client`: an SMB client renamed it and had the right to. Finding the file elsewhere does not prove that
    /// right.
    fn set_place(&self, to: PathInShare, by_client: bool) {
        let mut place = writing(&self.place);
        place.granted &= by_client || place.at.dir.id() == to.dir.id();
        place.at = to;
    }

    /// Returns its place after a move that its client does not know of: the path remains the one by which the client knows it.
    fn moved_to(&self, dir: &NodeRef, name: &[u8]) -> PathInShare {
        let path = reading(&self.place).at.path.clone();
        PathInShare { dir: dir.clone(), name: name.to_vec(), path, walk: None }
    }

    /// Returns whether rights that came from the folder at open time still apply in `dir`.
    fn is_granted_in(&self, dir: NodeId) -> bool {
        let place = reading(&self.place);
        place.granted && place.at.dir.id() == dir
    }

    /// Records that the file's folder is no longer known.
    pub(crate) fn lose_place(&self) {
        writing(&self.place).granted = false;
    }

    /// Returns whether the file had one name when it was opened and no client of the gateway has added one since.
    pub(crate) fn has_one_name(&self) -> bool {
        self.only_name.load(Ordering::Acquire)
    }

    pub(crate) fn same_name(&self, other: &Self) -> bool {
        self.base().id() == other.base().id()
            && self.stream_key() == other.stream_key()
            && self.is_at(other)
    }

    /// Returns whether two opens of one file have the same name. A directory has one name, although it is nameless as the root of
    /// a share that lies inside another.
    fn is_at(&self, other: &Self) -> bool {
        self.base().kind() == vfs::Kind::Dir || self.place().is(&other.place())
    }

    /// Returns whether the directory belongs to the share through which the file is open. A client of another share that overlaps
    /// may have moved the file.
    pub(crate) fn is_within_share(&self, dir: &NodeRef) -> bool {
        self.share.backend.root().is_beside(dir.as_ref())
    }

    fn stream_key(&self) -> Option<String> {
        self.stream().map(|s| s.to_lowercase())
    }
}

/// The object that an open refers to.
pub enum Target {
    /// A file, directory or stream of a share.
    File(File),
    /// A named pipe of `IPC$`.
    Pipe(Pipe),
    /// The quotas of a share's volume.
    Quotas(Quotas),
}

pub struct Open {
    pub id: FileId,
    session_id: AtomicU64,
    tree_id: AtomicU64,
    pub target: Target,
    /// The holder under which [`state`] records this open.
    pub party: Holder,
    /// The credentials that calls through this open use.
    pub cred: Cred,
    /// The granted access: bits of [`access`] without generic rights.
    pub granted: u32,
    /// The part of the access that the file's own list or a privilege granted, for calls that the kernel would refuse this user.
    pub by_list: Option<Grant>,
    /// The part of the access that only a privilege granted.
    pub(crate) by_privilege: u32,
    /// The right to remove the opened file, where DELETE was granted: kept for the delete at the last close.
    to_delete: Option<Grant>,
    /// True if DELETE comes from the file's own list and so holds for each of its names; otherwise the file's folder granted it.
    pub(crate) deletes_by_list: bool,
    /// Access that other opens may have: bits of [`share`].
    pub shared: u32,
    /// `CreateOptions` of the request.
    pub options: u32,
    /// State that information commands keep between requests.
    pub open_state: OpenState,
    /// The lease or oplock of this open.
    pub caching: OpenCaching,
    /// How the open behaves when its connection is lost.
    pub durable: OpenDurable,
    /// `Open.LockSequenceArray`
    pub lock_sequences: LockSequences,
    pub(crate) sequence: Sequence,
    /// True if opened with the POSIX extensions: names from its client are POSIX names.
    pub posix: bool,
    /// The user that opened it, for the audit trail, if the share has one.
    pub(crate) opener: Option<Box<Acting>>,
    /// Its slot in the quota of the client's address.
    pub(crate) part: Option<Part>,
    /// Number of byte ranges that this open has locked.
    pub(crate) locks: AtomicUsize,
    delete_on_close: AtomicBool,
    goes_at_once: AtomicBool,
    goes_if_empty: AtomicBool,
    closed: AtomicBool,
    pub(crate) is_proven: bool,
}

/// Names the user for operations at close, which may come after the connection, or the gateway that made the open, has ended.
impl vfs::audited::Actor for Open {
    fn acting(&self) -> Acting {
        self.opener.as_deref().cloned().unwrap_or_else(|| Acting {
            peer: self.durable.at().unwrap_or(std::net::Ipv4Addr::UNSPECIFIED.into()),
            protocol: "smb",
            party: audit::Party::named(self.durable.owner(), self.cred.uid),
            is_proven: self.is_proven,
        })
    }
}

impl Open {
    /// Returns whether each change of data must be on stable storage before it is answered: requested at CREATE, set for the share,
    /// or set since by FileModeInformation.
    pub(crate) fn writes_through(&self) -> bool {
        (self.options | self.open_state.mode()) & option::WRITE_THROUGH != 0
    }

    /// Returns how its client writes names.
    pub(crate) fn spelling(&self) -> Spelling {
        if self.posix { Spelling::Posix } else { Spelling::Windows }
    }

    /// Builds an open that is in no table yet.
    pub fn new(
        owner: (u64, u32),
        target: Target,
        party: Holder,
        cred: Cred,
        granted: u32,
    ) -> Result<Self, Status> {
        let [persistent, volatile] = random_ids::take()?;
        let to_delete = match &target {
            Target::File(file) if !file.is_stream() => Grant::of_deleter(&file.base(), granted),
            _ => None,
        };
        // All ones in both halves would mean "the file of the command before" in a related chain.
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
            by_privilege: 0,
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
            goes_if_empty: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            is_proven: false,
        })
    }

    /// Returns the session that it belongs to; 0 while a durable open waits for its client.
    pub fn session_id(&self) -> u64 {
        self.session_id.load(Ordering::Acquire)
    }

    /// Returns the tree that it belongs to.
    pub fn tree_id(&self) -> u32 {
        u32::try_from(self.tree_id.load(Ordering::Acquire)).unwrap_or(0)
    }

    /// Returns whether it belongs to this session and tree.
    pub fn belongs_to(&self, session_id: u64, tree_id: u32) -> bool {
        self.session_id() == session_id && self.tree_id() == tree_id
    }

    /// Returns the file, or STATUS_INVALID_DEVICE_REQUEST for a pipe.
    pub fn file(&self) -> Result<&File, Status> {
        match &self.target {
            Target::File(file) => Ok(file),
            Target::Pipe(_) | Target::Quotas(_) => Err(Status::INVALID_DEVICE_REQUEST),
        }
    }

    pub fn pipe(&self) -> Option<&Pipe> {
        match &self.target {
            Target::Pipe(pipe) => Some(pipe),
            Target::File(_) | Target::Quotas(_) => None,
        }
    }

    /// Returns the node that is read and written, or STATUS_INVALID_DEVICE_REQUEST for a pipe.
    pub fn node(&self) -> Result<NodeRef, Status> {
        self.file().map(File::node)
    }

    /// Returns the share, or STATUS_INVALID_DEVICE_REQUEST for a pipe.
    pub fn share(&self) -> Result<&Arc<Share>, Status> {
        self.file().map(|f| &f.share)
    }

    pub fn is_dir(&self) -> bool {
        self.file().is_ok_and(|f| f.node().kind() == vfs::Kind::Dir)
    }

    /// Returns the identity for one call on `node` that needs `right`.
    pub(crate) fn actor(&self, node: &NodeRef, right: u32) -> Actor<'_> {
        Actor::on(node.as_ref(), &self.cred, self.by_list.as_ref(), right)
    }

    /// Returns the right, obtained at open, to remove the file's name from `dir`. For other folders `None`: there only the user's
    /// own rights count.
    pub(crate) fn to_delete_from(&self, dir: &NodeRef) -> Option<&Grant> {
        self.to_delete.as_ref().filter(|_| self.may_take_from(dir))
    }

    /// Returns the rights that the file's own list granted, for a change of its name in `dir`.
    pub(crate) fn by_list_in(&self, dir: &NodeRef) -> Option<&Grant> {
        self.by_list.as_ref().filter(|_| self.may_take_from(dir))
    }

    fn may_take_from(&self, dir: &NodeRef) -> bool {
        self.deletes_by_list || self.file().is_ok_and(|f| f.is_granted_in(dir.id()))
    }

    /// Checks that at least one of these bits was granted; otherwise STATUS_ACCESS_DENIED.
    pub fn check(&self, any_of: u32) -> Result<(), Status> {
        if self.granted & any_of != 0 { Ok(()) } else { Err(Status::ACCESS_DENIED) }
    }

    /// Has the file removed when this open closes.
    pub fn set_delete_on_close(&self) {
        self.delete_on_close.store(true, Ordering::Release);
    }

    /// See [`Open::set_delete_on_close`].
    pub fn delete_on_close(&self) -> bool {
        self.delete_on_close.load(Ordering::Acquire)
    }

    /// Sets whether a delete through this open removes the name as soon as this open closes, even while other opens keep the file
    /// (FILE_DISPOSITION_POSIX_SEMANTICS, MS-FSCC section 2.4.12).
    pub fn set_goes_at_once(&self, at_once: bool) {
        self.goes_at_once.store(at_once, Ordering::Release);
    }

    /// Has its stream removed at its close if that is the last, and the stream has no bytes even then.
    pub(crate) fn set_goes_if_empty(&self) {
        self.goes_if_empty.store(true, Ordering::Release);
    }

    /// See [`Open::set_goes_if_empty`].
    pub(crate) fn goes_if_empty(&self) -> bool {
        self.goes_if_empty.load(Ordering::Acquire)
    }

    /// See [`Open::set_goes_at_once`].
    fn goes_now(&self) -> bool {
        self.goes_at_once.load(Ordering::Acquire) && self.is_closed()
    }

    /// Returns whether it was closed. Commands that still use it then have no effect.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Maps access, ShareAccess and disposition to an entry in [`state`] (MS-FSA sections 2.1.4.12 and 2.1.5.1.2). An open that
    /// neither reads, writes nor deletes forbids others no access; one for attributes only takes no part in sharing at all.
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

/// One file with at least one open.
#[derive(Default)]
struct Record {
    opens: Vec<Arc<Open>>,
    /// Opens whose name is removed at the last close. They may be closed themselves.
    doomed: Vec<Arc<Open>>,
}

fn file_of(open: &Open) -> Option<&File> {
    open.file().ok()
}

impl Record {
    fn is_doomed(&self, file: &File) -> bool {
        // Deleting a file deletes its streams, so opens of streams count as well.
        self.doomed
            .iter()
            .filter_map(|d| file_of(d))
            .any(|d| d.same_name(file) || !d.is_stream() && d.is_at(file))
    }

    /// Returns whether the stream or file of this name is open.
    fn has_open(&self, file: &File) -> bool {
        self.opens.iter().filter_map(|o| file_of(o)).any(|o| o.same_name(file))
    }

    /// Marks the name of this open for removal and ends the watches of a directory's opens.
    fn doom(&mut self, open: &Arc<Open>) {
        self.doomed.push(open.clone());
        self.opens.iter().for_each(|o| o.open_state.end_watch(Status::DELETE_PENDING));
    }

    /// Returns the names that are marked for removal or that an open removes when it closes. Streams have no name that other
    /// protocols could open.
    fn pending(&self) -> Vec<Name> {
        let on_close = self.opens.iter().filter(|o| o.delete_on_close());
        let files = on_close.chain(&self.doomed).filter_map(|o| file_of(o));
        files
            .filter(|f| !f.is_stream())
            .map(|f| f.place())
            .map(|place| Name { dir: place.dir.id(), name: place.name.into() })
            .collect()
    }

    /// Takes out the marked opens whose file or stream has no open left.
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
                    .any(|o| o.same_name(d) || !d.is_stream() && d.is_at(o))
            })
            .collect()
    }
}

#[derive(Default)]
struct Files {
    records: HashMap<NodeId, Record>,
    /// Opens of each session; entry 0 has the durable opens that wait for their client.
    per_session: HashMap<u64, HashSet<u64>>,
    /// Opens that wait for their client, by persistent id: clients name an open by it after a reconnect.
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

    /// Lists an open in the folder of its name. `renames`: number of directory renames so far.
    fn list(&mut self, open: &Open, renames: u64) {
        let Some(file) = file_of(open) else { return };
        let (place, share) = (file.place_once(), &file.share);
        let at = (place.dir.id(), &place.dir);
        self.folders.add(share.id, open.id.volatile, at, fresh(&place, renames));
        self.folders.is_top(share.id, share.backend.root().id());
    }

    /// Lists an open in the folder of its new name.
    fn relist(&mut self, open: &Open, renames: u64) {
        let Some(file) = file_of(open) else { return };
        let place = file.place_once();
        let at = (place.dir.id(), &place.dir);
        self.folders.shift(file.share.id, open.id.volatile, at, fresh(&place, renames));
        // A renamed folder takes its content along.
        self.folders.place(file.share.id, file.base().id(), at);
    }
}

/// Returns the directories above a name, `None` if one of them may have been renamed since the walk.
fn fresh(place: &PathInShare, renames: u64) -> Option<&Arc<Above<NodeRef>>> {
    place.walk.as_ref().filter(|walk| walk.began == renames).map(|walk| &walk.above)
}

/// `GlobalOpenTable`.
pub struct Opens {
    all: DashMap<u64, Arc<Open>, RandomState>,
    files: Mutex<Files>,
    /// Counts renames of directories. Incremented under the lock of `files`, before the index follows the rename.
    renames: AtomicU64,
    /// Front ends of other protocols, which have no pending deletes, query this for names that wait to be removed.
    namespace: Arc<Namespace>,
}

impl Opens {
    /// An empty table.
    pub fn new(namespace: Arc<Namespace>) -> Self {
        let (all, files, renames) = (DashMap::default(), Mutex::default(), AtomicU64::new(0));
        Self { all, files, renames, namespace }
    }

    /// Publishes to `state` the names of a file that wait to be removed. Call it with the lock held, so that the latest change is
    /// published last.
    fn publish(&self, files: &Files, id: NodeId) {
        let names = files.records.get(&id).map(Record::pending).unwrap_or_default();
        let arbiter = self.namespace.arbiter();
        if !names.is_empty() || arbiter.state().has_pending_deletes(id) {
            arbiter.set_pending_deletes(id, names);
        }
    }

    pub fn get(&self, id: FileId) -> Option<Arc<Open>> {
        self.all.get(&id.volatile).filter(|o| o.id == id).map(|o| o.clone())
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Counts the opens of a session; session 0: opens that wait for their client.
    pub fn count_of(&self, session: u64) -> usize {
        locked(&self.files).per_session.get(&session).map_or(0, HashSet::len)
    }

    /// Sums `weight` over the opens of a file and its streams: once for one session, and once for all sessions of its address.
    /// Returns zeros without counting if the file has fewer than `many` opens.
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

    /// Adds an open; STATUS_DELETE_PENDING if its name waits to be removed.
    pub fn insert(&self, open: Arc<Open>) -> Result<(), Status> {
        let mut files = locked(&self.files);
        if self.all.len() >= OPENS_MAX {
            return Err(Status::INSUFFICIENT_RESOURCES);
        }
        // Session 0 holds the opens whose client has not reconnected yet.
        files.enter(&open, open.session_id());
        if let Some(file) = file_of(&open) {
            let id = file.base().id();
            if files.records.is_empty() {
                // This table does not follow renames by other protocols while no file is open, so any walk may be stale.
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

    /// Takes an open out, `None` if that was done before. Returns the opens whose names must be removed now: the caller removes
    /// them and then calls [`Opens::removed`]. Until then these names cannot be opened.
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
        // The caller has given back its own share access. Opens that are not in the table yet have theirs, and copies.
        let is_used = || self.namespace.arbiter().state().opens(file.node().id(), None) > 0;
        let is_last = !record.is_doomed(file) && !record.has_open(file);
        if open.goes_if_empty() && is_last && !is_used() {
            record.doomed.push(open.clone());
        }
        let ripe = record.ripe();
        record.doomed.extend(ripe.iter().cloned());
        self.tidy(&mut files, file.base().id());
        self.publish(&files, file.base().id());
        Some(ripe)
    }

    /// Ends the removal of names that [`Opens::remove`] began, whether it succeeded or not.
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
        drop(files);
        self.namespace.arbiter().released();
    }

    fn tidy(&self, files: &mut Files, id: NodeId) {
        if files.records.get(&id).is_some_and(|r| r.opens.is_empty() && r.doomed.is_empty()) {
            files.records.remove(&id);
        }
    }

    /// Returns the opens of a file or directory and of its streams.
    pub fn of_node(&self, base: NodeId) -> Vec<Arc<Open>> {
        locked(&self.files).records.get(&base).map(|r| r.opens.clone()).unwrap_or_default()
    }

    /// Moves all opens of the node `old` to the node `new`, which has replaced it, and returns them.
    pub(crate) async fn becomes(&self, old: NodeId, new: &NodeRef) -> Vec<Arc<Open>> {
        let mut seen = Seen::new(new);
        let (mut files, record) = loop {
            seen.look(self.unseen(old, &seen)).await;
            let mut files = locked(&self.files);
            let Some(record) = files.records.get(&old) else { return Vec::new() };
            let all = record.opens.iter().chain(&record.doomed).filter_map(|o| file_of(o));
            let nodes: Option<Vec<_>> = all.map(|f| Some((f, seen.through(&f.share)?))).collect();
            // A client has opened it through another share meanwhile.
            let Some(nodes) = nodes else { continue };
            nodes.into_iter().for_each(|(file, node)| file.becomes(node));
            let Some(record) = files.records.remove(&old) else { return Vec::new() };
            break (files, record);
        };
        let opens = record.opens.clone();
        // Another client may have opened the new node by its name already.
        let there = files.records.entry(new.id()).or_default();
        there.opens.extend(record.opens);
        there.doomed.extend(record.doomed);
        self.publish(&files, old);
        self.publish(&files, new.id());
        opens
    }

    /// Sets or clears the removal of this open's name at the last close (MS-FSA section 2.1.5.15.3).
    pub fn set_delete_pending(&self, open: &Arc<Open>, pending: bool) {
        let Some(file) = file_of(open) else { return };
        let mut files = locked(&self.files);
        let Some(record) = files.records.get_mut(&file.base().id()) else { return };
        if !pending {
            record.doomed.retain(|d| !file_of(d).is_some_and(|d| d.same_name(file)));
        } else if !record.doomed.iter().any(|d| Arc::ptr_eq(d, open)) {
            // Each open is marked separately, because one of them may remove its name at once.
            record.doom(open);
        }
        self.publish(&files, file.base().id());
    }

    /// Returns whether the name of this open waits to be removed.
    pub fn is_delete_pending(&self, open: &Open) -> bool {
        file_of(open).is_some_and(|f| self.is_doomed(f))
    }

    /// Returns whether this name waits to be removed.
    pub fn is_doomed(&self, file: &File) -> bool {
        let files = locked(&self.files);
        files.records.get(&file.base().id()).is_some_and(|r| r.is_doomed(file))
    }

    /// Returns the opens of this file whose names wait to be removed.
    pub(crate) fn doomed(&self, node: NodeId) -> Vec<Arc<Open>> {
        let files = locked(&self.files);
        files.records.get(&node).map_or_else(Vec::new, |r| r.doomed.clone())
    }

    /// Returns whether any file is open, so that this table must follow renames by other protocols.
    pub(crate) fn follow_names(&self) -> bool {
        !locked(&self.files).records.is_empty()
    }

    /// Returns the number of directory renames so far, for a walk that begins.
    pub(crate) fn renames(&self) -> u64 {
        self.renames.load(Ordering::Acquire)
    }

    fn relist(&self, open: &Open) {
        let mut files = locked(&self.files);
        files.relist(open, self.renames());
    }

    /// Makes the current walks stale, unless the renamed file is known not to be a directory.
    fn note_rename(&self, node: NodeId) {
        let files = locked(&self.files);
        let opens = files.records.get(&node).map(|r| r.opens.iter().chain(&r.doomed));
        let mut known = opens.into_iter().flatten().filter_map(|o| file_of(o));
        if !known.any(|file| file.base().kind() != vfs::Kind::Dir) {
            self.renames.fetch_add(1, Ordering::Release);
        }
    }

    /// Updates a folder's place in each share that has it in its index.
    fn place_folder(&self, node: NodeId, dir: &NodeRef) {
        for share in self.namespace.shares().iter() {
            locked(&self.files).folders.place(share.id, node, (dir.id(), dir));
        }
    }

    fn of_name(&self, node: NodeId) -> impl Iterator<Item = Arc<Open>> {
        self.of_node(node).into_iter().chain(self.doomed(node))
    }

    /// Returns the shares through which a file is open and that were not looked through.
    fn unseen(&self, file: NodeId, seen: &Seen) -> Vec<Arc<Share>> {
        let unseen = |open: Arc<Open>| {
            let share = &file_of(&open)?.share;
            seen.through(share).is_none().then(|| share.clone())
        };
        self.of_name(file).filter_map(unseen).collect()
    }

    /// Changes the opens of a file by what the shares show of `seen`. `change` returns false for an open through a share that was
    /// not looked through: clients open files while others are changed.
    async fn change_each(
        &self,
        file: NodeId,
        seen: &mut Seen,
        change: impl Fn(&Arc<Open>, &File, &Seen) -> bool,
    ) {
        loop {
            seen.look(self.unseen(file, seen)).await;
            let mut is_done = true;
            for open in self.of_name(file) {
                is_done &= file_of(&open).is_none_or(|file| change(&open, file, seen));
            }
            if is_done {
                return;
            }
        }
    }

    /// Records a rename by an SMB client in the opens of the old name, and in closed ones that wait for its removal. For clients of
    /// other shares it is a rename by another protocol.
    pub(crate) async fn moved(&self, node: NodeId, old: &PathInShare, new: &PathInShare) {
        self.note_rename(node);
        let change = |open: &Arc<Open>, file: &File, seen: &Seen| {
            if file.place().is(old) {
                let to = match seen.through(&file.share) {
                    None => return false,
                    Some(_) if file.is_within_share(&new.dir) => new.clone(),
                    Some(dir) => file.moved_to(dir, &new.name),
                };
                file.set_place(to, true);
                self.relist(open);
            }
            true
        };
        self.change_each(node, &mut Seen::new(&new.dir), change).await;
        self.place_folder(node, &new.dir);
        self.publish(&locked(&self.files), node);
    }

    /// Records that a file was found under another name, in opens by the old name that knew of no other.
    pub(crate) fn found(&self, node: NodeId, old: &PathInShare, new: &PathInShare) {
        for open in self.of_name(node) {
            let of_old =
                |f: &&File| f.has_one_name() && f.is_within_share(&new.dir) && f.place().is(old);
            if let Some(file) = file_of(&open).filter(of_old) {
                file.set_place(new.clone(), false);
                self.relist(&open);
            }
        }
        self.publish(&locked(&self.files), node);
    }

    /// Records a rename by a client of another protocol. The path remains the one by which the SMB client knows the file.
    pub(crate) async fn renamed(
        &self,
        node: NodeId,
        from: (&NodeRef, &[u8]),
        to: (&NodeRef, &[u8]),
    ) {
        self.note_rename(node);
        let change = |open: &Arc<Open>, file: &File, seen: &Seen| {
            let old = file.place();
            if old.dir.id() == from.0.id() && old.name == from.1 {
                let Some(dir) = seen.through(&file.share) else { return false };
                file.set_place(file.moved_to(dir, to.1), true);
                self.relist(open);
            }
            true
        };
        self.change_each(node, &mut Seen::new(to.0), change).await;
        self.place_folder(node, to.0);
        self.publish(&locked(&self.files), node);
    }

    /// Records that a client has added a name to a file.
    pub(crate) fn linked(&self, node: NodeId) {
        for open in self.of_name(node) {
            if let Some(file) = file_of(&open) {
                file.only_name.store(false, Ordering::Release);
            }
        }
    }

    /// Records the new name of a stream in all its opens.
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

    /// Returns the opens of this session, or of one of its trees. Session 0: opens that wait for their client.
    pub fn of_session(&self, session: u64, tree: Option<u32>) -> Vec<Arc<Open>> {
        let files = locked(&self.files);
        let ids = files.per_session.get(&session).map(|own| own.iter().copied().collect());
        drop(files);
        let is_its = |o: &Arc<Open>| o.session_id() == session;
        let own = self.of_ids(ids.unwrap_or_default()).filter(is_its);
        own.filter(|o| tree.is_none_or(|t| o.tree_id() == t)).collect()
    }

    /// Returns the shares that overlap this one.
    pub(crate) fn overlapping(&self, share: u32) -> Vec<Arc<Share>> {
        self.namespace.overlaps().of(share)
    }

    /// Returns the folders of a share whose place in the tree is not known.
    pub(crate) fn unknown_folders(&self, share: u32) -> Vec<(NodeId, NodeRef)> {
        locked(&self.files).folders.unknown(share)
    }

    /// Links a folder to those above it, as a walk found them. Returns false if the walk is stale.
    pub(crate) fn link_folder(&self, share: u32, walk: &Walk) -> bool {
        let mut files = locked(&self.files);
        let is_fresh = walk.began == self.renames();
        if is_fresh {
            files.folders.link(share, &walk.above);
        }
        is_fresh
    }

    /// Records that this folder has no relevant folder above it: it has lost its name, or is the root of its share.
    pub(crate) fn note_top_folder(&self, share: u32, id: NodeId) {
        locked(&self.files).folders.is_top(share, id);
    }

    /// Returns the opens below a folder, as far as their place is known.
    pub(crate) fn below(&self, share: u32, dir: NodeId) -> Vec<Arc<Open>> {
        let ids = locked(&self.files).folders.below(share, dir);
        self.of_ids(ids).collect()
    }

    /// Returns the opens below those folders of a share whose place in the tree is not known.
    pub(crate) fn below_unknown(&self, share: u32) -> Vec<Arc<Open>> {
        let files = locked(&self.files);
        let unknown = files.folders.unknown(share).into_iter();
        let ids = unknown.flat_map(|(id, _)| files.folders.below(share, id)).collect();
        drop(files);
        self.of_ids(ids).collect()
    }

    /// Returns every open that `which` accepts. Visits all opens.
    pub fn all(&self, which: impl Fn(&Open) -> bool) -> Vec<Arc<Open>> {
        self.all.iter().filter(|o| which(o)).map(|o| o.clone()).collect()
    }

    /// Returns the open with this persistent id if it waits for its client.
    pub(crate) fn waiting_by_id(&self, persistent: u64) -> Option<Arc<Open>> {
        let volatile = locked(&self.files).waiting.get(&persistent).copied()?;
        let found = self.all.get(&volatile).filter(|o| o.session_id() == 0);
        found.map(|o| o.clone())
    }

    /// Returns an open that belongs to no session and that `which` accepts.
    pub fn waiting(&self, which: impl Fn(&Open) -> bool) -> Option<Arc<Open>> {
        self.of_session(0, None).into_iter().find(|o| which(o))
    }

    /// Gives an open without a session to this session. Returns false if another session took it first or it has been closed.
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

    /// Gives an open to another session: a durable one that its client has reclaimed, or session 0 to one that waits for it.
    pub fn move_to(&self, open: &Open, session: u64, tree: u32) {
        let mut files = locked(&self.files);
        files.leave(open);
        files.enter(open, session);
        open.session_id.store(session, Ordering::Release);
        open.tree_id.store(u64::from(tree), Ordering::Release);
    }
}
