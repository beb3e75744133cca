//! A folder of a CephFS file system, by the cluster's own client library.
//!
//! *Operation.* The gateway is one client of the cluster for each share ([`ceph_sys::Mount`]). Every file in use has one record
//! (`node`) that holds its inode; names are single components looked up in inodes that are held, and symbolic links are never
//! followed. Each call is made as its caller: the library compares user, group and groups with mode bits and POSIX lists, as a
//! kernel does. Where a list that is kept with a file grants more, that one call is made as the superuser, after the list was asked
//! ([`crate::authority`]). Each call may wait for other machines, so it takes one of the volume's turns ([`crate::engine::far`]),
//! and data moves on threads of the volume alone.
//!
//! *Handles.* Number of the inode and of its snapshot, behind a tag of the folder that is served. They survive renames, restarts
//! of the gateway and of the cluster. A file that was moved out of the folder by another client stays reachable by handles from
//! before, a directory does not.
//!
//! *Durability.* The library keeps no data back (`client_oc`): what a WRITE has taken is with the OSDs when it is answered. What
//! the gateway does not live to say, the size of a file that has grown, the MDS finds out from the OSDs.
//!
//! *Another run.* A mount is called by a name that stays the same from one run to the next. Mounting ends the session of an earlier
//! run, and of another gateway that uses the same state folder: what is left of it can write no more. A gateway that was cut off so
//! says it in its log and its status, and fails every operation ([`VfsError::Io`]).
//!
//! *Change attribute.* The cluster's own (`STATX_VERSION`).
//!
//! *Limits.* No file system event tells what other clients of the cluster change. Storage cannot be reserved, holes are not told
//! apart from zeros, and nothing is copied, cloned or exchanged inside the cluster.

mod acl;
mod attrs;
mod data;
mod decide;
mod dir;
mod exclusive;
mod handle;
mod held;
mod names;
mod node;
mod paths;
mod records;
mod snapshots;
mod stat;
mod xattr;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::{Duration, Instant};

use ceph_sys::ffi::CEPH_NOSNAP;
use ceph_sys::{Errno, Inode, Mount, Options, Perm, Vino, unmount_aside};
pub use ceph_sys::{MountError, Step, leave, wait_unmounted};
use mutex::{locked, reading, writing};

use crate::backend::{Backend, BoxFuture, NodeRef, ready};
use crate::engine::far::{self, PayloadBudget, Turns};
use crate::engine::threads::Engine;
use crate::error::{VfsError, VfsResult};
use crate::fnv::fnv;
use crate::types::*;

use handle::Tag;
use node::CephNode;
use records::Records;

/// How a folder of CephFS is served.
#[derive(Clone, Debug)]
pub struct CephConfig {
    /// The file system.
    pub fs: String,
    /// The folder in it, absolute.
    pub root: String,
    /// The user of the cluster, without `client.`; `None`: `admin`.
    pub id: Option<String>,
    /// The cluster's configuration; `None`: the usual places.
    pub conf: Option<PathBuf>,
    /// The user's key; `None`: where the configuration says.
    pub keyring: Option<PathBuf>,
    /// Stays the same from one run to the next; `None`: no earlier session is ended.
    pub uuid: Option<String>,
    /// Nothing may be changed.
    pub read_only: bool,
    /// No other client of the cluster changes anything in the folder, so that clients of the gateway may cache what is there.
    pub exclusive: bool,
    /// Payload that transfers hold at most, together and also those whose clients have gone.
    pub payload: PayloadBudget,
}

impl CephConfig {
    /// With the usual settings.
    pub fn new(fs: impl Into<String>, root: impl Into<String>) -> Self {
        Self {
            fs: fs.into(),
            root: root.into(),
            id: None,
            conf: None,
            keyring: None,
            uuid: None,
            read_only: false,
            exclusive: true,
            payload: PayloadBudget::default(),
        }
    }
}

/// What the library is told. It keeps back no written data, knows POSIX lists, compares rights itself, gives up on monitors that
/// say nothing, and tells the number of names as the size of a directory.
const SETTINGS: [(&str, &str); 5] = [
    ("client_oc", "false"),
    ("client_acl_type", "posix_acl"),
    ("client_permissions", "true"),
    ("client_mount_timeout", "8"),
    ("client_dirsize_rbytes", "false"),
];

/// Where the configuration does not say otherwise the library keeps no log of each call in memory, for the case that it ends the
/// process: a thread of it wakes up for every line. Option, the library's own value, and ours.
const DEFAULTS: [(&str, &str, &str); 1] = [("debug_client", "0/5", "0/0")];

/// What is told once nothing works any more.
const CUT_OFF: &str = "the cluster has cut this gateway off (its address is in `ceph osd blocklist ls`, or its session was ended): \
     every operation on the share fails until the configuration is read again; does another gateway use the same state folder?";

/// Name of the gateway's own folder in the root of a share.
const HIDDEN: &[u8] = b".headgate";

/// How often what is idle is let go.
const SWEEP: Duration = Duration::from_secs(10);

/// What all records of a backend share.
struct Volume {
    /// Gone when the volume goes.
    mount: Option<Arc<Mount>>,
    /// The superuser of the cluster.
    process: Perm,
    root: Vino,
    /// The folder that is served is the whole file system.
    is_whole: bool,
    tag: Tag,
    fsid: u64,
    read_only: bool,
    exclusive: bool,
    /// As it was configured, for messages.
    name: String,
    turns: Turns,
    engine: Arc<Engine>,
    records: Records,
    renames: Renames,
    started: Instant,
    strict: [AtomicBool; 2],
    /// The cluster refuses this client.
    cut_off: AtomicBool,
    open_to_others: AtomicBool,
}

/// Keeps renames apart from everything else that names something in the same folder. libcephfs 16.2 lets calls wait that name what
/// another is renaming, and never wakes them where that rename finds nothing to move. So the name is looked at first, and nobody
/// here removes it in between.
struct Renames([RwLock<()>; Self::PARTS]);

impl Default for Renames {
    fn default() -> Self {
        Self(std::array::from_fn(|_| RwLock::default()))
    }
}

impl Renames {
    /// Folders share locks.
    const PARTS: usize = 64;

    fn part(dir: Vino) -> usize {
        // Invariant: below the number of parts.
        usize::try_from(dir.ino % Self::PARTS as u64).unwrap_or(0)
    }

    /// Held by a call that names something in this folder.
    fn name(&self, dir: Vino) -> RwLockReadGuard<'_, ()> {
        reading(&self.0[Self::part(dir)])
    }

    /// Held by a rename from one of these folders to the other.
    #[allow(clippy::type_complexity)] // Two guards.
    fn rename(
        &self,
        from: Vino,
        to: Vino,
    ) -> (RwLockWriteGuard<'_, ()>, Option<RwLockWriteGuard<'_, ()>>) {
        let (a, b) = (Self::part(from), Self::part(to));
        let lock = |part: usize| writing(&self.0[part]);
        // In one order, or two renames would wait for each other.
        let first = lock(a.min(b));
        (first, (a != b).then(|| lock(a.max(b))))
    }
}

/// Mounts a folder for what the gateway keeps for itself, by the settings of one that is served and these; the sessions of the
/// names in `ended` are ended first, as that of its own name is. Blocks for some seconds where no monitor answers.
pub fn mount(
    config: &CephConfig,
    more: &[(&str, &str)],
    ended: &[&str],
) -> Result<Arc<Mount>, MountError> {
    let keyring = config.keyring.as_ref().map(|path| path.display().to_string());
    let mut settings = SETTINGS.to_vec();
    settings.extend(more);
    settings.extend(keyring.as_deref().map(|path| ("keyring", path)));
    Mount::open(&Options {
        id: config.id.as_deref(),
        conf: config.conf.as_deref(),
        settings: &settings,
        defaults: &DEFAULTS,
        fs: &config.fs,
        root: &config.root,
        uuid: config.uuid.as_deref(),
        ended,
    })
}

/// A folder of CephFS that is served.
pub struct CephBackend {
    volume: Arc<Volume>,
    root: Arc<CephNode>,
    hidden: Mutex<Option<Arc<CephNode>>>,
}

impl CephBackend {
    /// Mounts. Blocks for some seconds where no monitor answers.
    pub fn open(config: &CephConfig) -> Result<Arc<Self>, MountError> {
        Self::on(mount(config, &[], &[])?, config).map_err(|errno| MountError {
            step: Step::Mount,
            errno,
            why: format!("looking at the folder: {errno}"),
        })
    }

    fn on(mount: Arc<Mount>, config: &CephConfig) -> Result<Arc<Self>, Errno> {
        let process = Perm::new(&mount, 0, 0, &[])?;
        let inode = mount.root()?;
        let stat = inode.getattr(&process)?;
        let root = stat::vino_of(&stat);
        let cluster = xattr::cluster_of(&inode, &process);
        let fscid = mount.fscid()?;
        let fsid = fnv(cluster.iter().chain(&fscid.to_be_bytes()));
        let volume = Arc::new(Volume {
            mount: Some(mount),
            process,
            root,
            is_whole: root.ino == ROOT_INO,
            tag: Tag::new(fsid, root),
            fsid,
            read_only: config.read_only,
            exclusive: config.exclusive,
            name: format!("ceph:{}{}", config.fs, config.root),
            turns: Turns::new(&config.payload),
            engine: far::engine(),
            records: Records::default(),
            renames: Renames::default(),
            started: Instant::now(),
            strict: [AtomicBool::new(false), AtomicBool::new(false)],
            cut_off: AtomicBool::new(false),
            open_to_others: AtomicBool::new(false),
        });
        let root = volume.adopt(inode, &stat).map_err(|_| Errno(libc::EIO))?;
        janitor(Arc::downgrade(&volume));
        Ok(Arc::new(Self { volume, root, hidden: Mutex::default() }))
    }

    /// The number by which the cluster knows this client.
    pub fn client_id(&self) -> u64 {
        self.volume.mount.as_ref().map_or(0, |mount| mount.client_id())
    }

    /// Whether the superuser may do here what the gateway does by itself: it makes a file, keeps side data with it, and removes it.
    /// Blocks.
    pub fn prove(&self) -> VfsResult<()> {
        self.root.prove()
    }

    fn hidden_folder(&self, make: bool) -> VfsResult<Option<NodeRef>> {
        let known = locked(&self.hidden).clone();
        if let Some(node) = known
            && node.attr().is_ok()
        {
            return Ok(Some(node));
        }
        let found = self.root.open_hidden(make)?;
        *locked(&self.hidden) = found.clone();
        Ok(found.map(|n| n as NodeRef))
    }

    /// A snapshot has the folder where it was taken of the share's own folder or of one above it.
    fn hidden_folder_of(&self, node: &NodeRef) -> VfsResult<(Option<NodeRef>, Handle)> {
        let Vino { ino, snap } = self.root.same_backend(&**node)?.vino;
        if snap == CEPH_NOSNAP {
            return Ok((self.hidden_folder(false)?, node.handle()));
        }
        let all = self.root.do_snapshots(&Cred::root())?;
        let mut tops = all.iter().filter_map(|s| self.root.same_backend(&*s.node).ok());
        let hidden = match tops.find(|top| top.vino.snap == snap) {
            Some(top) => top.open_hidden(false)?.map(|n| n as NodeRef),
            None => None,
        };
        Ok((hidden, self.volume.tag.make(Vino { ino, snap: CEPH_NOSNAP })?))
    }
}

/// Number of the top of every CephFS file system (`CEPH_INO_ROOT`).
const ROOT_INO: u64 = 1;

impl Drop for CephBackend {
    fn drop(&mut self) {
        // Records refer to the volume and its list to records: this ends the circle.
        self.volume.records.clear();
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Whoever lets go of a share last does not wait for the cluster.
        self.mount.take().into_iter().for_each(unmount_aside);
    }
}

/// A thread that lets go of what is idle, until the backend is gone.
fn janitor(volume: Weak<Volume>) {
    let started = std::thread::Builder::new().name("ceph-janitor".into()).spawn(move || {
        loop {
            std::thread::sleep(SWEEP);
            let Some(volume) = volume.upgrade() else { return };
            volume.records.sweep(volume.now());
        }
    });
    if let Err(e) = started {
        tracing::warn!(error = %e, "no thread to close idle files");
    }
}

impl Volume {
    /// Milliseconds since the backend was opened, at least 1.
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn writable(&self) -> VfsResult<()> {
        if self.read_only { Err(VfsError::ReadOnly) } else { Ok(()) }
    }

    /// The library's answer. Notices when the cluster has cut this client off.
    fn done<T>(&self, answer: Result<T, Errno>) -> VfsResult<T> {
        answer.map_err(|e| self.failed(e))
    }

    fn failed(&self, Errno(errno): Errno) -> VfsError {
        match errno {
            libc::ESHUTDOWN | libc::ENOTCONN => {
                if !self.cut_off.swap(true, Ordering::Relaxed) {
                    tracing::error!(volume = %self.name, "{CUT_OFF}");
                }
                VfsError::Io
            }
            errno => VfsError::from_errno(errno),
        }
    }

    /// The caller, as the library knows users.
    fn perm(&self, cred: &Cred) -> VfsResult<Perm> {
        let mount = self.mount.as_ref().ok_or(VfsError::Io)?;
        self.done(Perm::new(mount, cred.uid, cred.gid, &cred.groups))
    }

    /// The superuser with this first group: what it makes belongs to that.
    fn process_in(&self, gid: u32) -> VfsResult<Perm> {
        self.perm(&Cred { uid: 0, gid, groups: Arc::new([]) })
    }

    /// The record of an inode that was just given.
    fn adopt(self: &Arc<Self>, inode: Inode, stat: &stat::Stat) -> VfsResult<Arc<CephNode>> {
        let vino = stat::vino_of(stat);
        if let Some(node) = self.records.find(vino, self.now()) {
            return Ok(node);
        }
        let node = CephNode::new(self.clone(), Arc::new(inode), stat)?;
        Ok(self.records.enter(node, self.now()))
    }

    /// What a handle names, where the cluster need not be asked: a file that somebody holds open.
    fn at_hand(&self, handle: &Handle) -> Option<Arc<CephNode>> {
        let node = self.records.find(self.tag.parse(handle).ok()?, self.now())?;
        (node.kind != Kind::Dir && node.is_held()).then_some(node)
    }

    /// Finds what a handle names.
    fn open_handle(self: &Arc<Self>, handle: &Handle) -> VfsResult<Arc<CephNode>> {
        let node = self.hold(self.tag.parse(handle)?)?;
        if !node.has_a_name()? {
            return Err(VfsError::Stale);
        }
        if node.kind == Kind::Dir {
            node.inside()?;
        }
        Ok(node)
    }

    /// The record of an inode by its number, wherever it is. [`VfsError::Stale`] where there is none.
    fn hold(self: &Arc<Self>, vino: Vino) -> VfsResult<Arc<CephNode>> {
        if let Some(node) = self.records.find(vino, self.now()) {
            return Ok(node);
        }
        let mount = self.mount.as_ref().ok_or(VfsError::Io)?;
        let stale = |e| match e {
            VfsError::NotFound | VfsError::Invalid => VfsError::Stale,
            e => e,
        };
        // Of what has no number the library ends the process.
        if vino.ino == 0 || vino.snap == 0 {
            return Err(VfsError::Stale);
        }
        let inode = self.done(mount.find(vino)).map_err(stale)?;
        let stat = self.done(inode.getattr(&self.process)).map_err(stale)?;
        if stat::vino_of(&stat) != vino || !self.is_there(vino, &inode, &stat)? {
            return Err(VfsError::Stale);
        }
        self.adopt(inode, &stat)
    }

    /// The MDS finds an inode also in a snapshot that was removed, whose data the OSDs are free to drop, or never taken.
    fn is_there(&self, vino: Vino, inode: &Inode, stat: &stat::Stat) -> VfsResult<bool> {
        match vino.snap {
            CEPH_NOSNAP => Ok(true),
            paths::SNAPDIR => Ok(stat::kind_of(stat)? == Kind::Dir),
            _ => Ok(snapshots::taken(inode, &self.process).is_some()),
        }
    }

    /// An operation that is done when it returns, in its turn.
    fn at_once<'a, T: Send + 'a>(
        &'a self,
        f: impl FnOnce() -> VfsResult<T> + Send + 'a,
    ) -> BoxFuture<'a, VfsResult<T>> {
        Box::pin(self.turns.stepped(async move { f() }))
    }

    /// Says once that streams are not served.
    fn is_open_to_others(&self) {
        if !self.open_to_others.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                volume = %self.name,
                "the gateway's own folder .headgate of a share belongs to another user or is open to others: streams are \
                 not served; look at what is in it, and give it to the superuser with mode 0700"
            );
        }
    }
}

impl Backend for CephBackend {
    fn root(&self) -> NodeRef {
        self.root.clone()
    }

    fn resolve<'a>(&'a self, handle: &'a Handle) -> BoxFuture<'a, VfsResult<NodeRef>> {
        match self.volume.at_hand(handle) {
            Some(node) => ready(Ok(node)),
            None => {
                let find = move || self.volume.open_handle(handle).map(|n| n as NodeRef);
                self.volume.at_once(find)
            }
        }
    }

    fn ended(&self) -> Option<&'static str> {
        self.volume.cut_off.load(Ordering::Relaxed).then_some(CUT_OFF)
    }

    fn stored(&self, handle: &Handle) -> Handle {
        self.volume.tag.stored(handle)
    }

    fn served(&self, stored: &Handle) -> Handle {
        self.volume.tag.served(stored)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name_max: 255,
            // The file system has a limit of its own (`max_file_size`), which the library does not tell.
            size_max: i64::MAX.unsigned_abs(),
            link_max: u32::MAX,
            xattr: true,
            reflink: false,
            clone_block: 0,
            deallocate: true,
            block: 4096,
            handles_persist: true,
            read_only: self.volume.read_only,
        }
    }

    fn is_strict(&self, by_smb: bool) -> bool {
        self.volume.strict[usize::from(by_smb)].load(Ordering::Relaxed)
    }

    fn set_strict(&self, nfs: bool, smb: bool) {
        self.volume.strict[0].store(nfs, Ordering::Relaxed);
        self.volume.strict[1].store(smb, Ordering::Relaxed);
    }

    fn hidden(&self, make: bool) -> BoxFuture<'_, VfsResult<Option<NodeRef>>> {
        self.volume.at_once(move || self.hidden_folder(make))
    }

    fn hidden_of<'a>(
        &'a self,
        node: &'a NodeRef,
    ) -> BoxFuture<'a, VfsResult<(Option<NodeRef>, Handle)>> {
        self.volume.at_once(move || self.hidden_folder_of(node))
    }

    fn statfs(&self) -> BoxFuture<'_, VfsResult<FsStat>> {
        self.volume.at_once(move || {
            let s = self.volume.done(self.root.inode().statfs())?;
            let bytes = |blocks: u64| blocks.saturating_mul(s.f_frsize);
            Ok(FsStat {
                total_bytes: bytes(s.f_blocks),
                free_bytes: bytes(s.f_bfree),
                avail_bytes: bytes(s.f_bavail),
                total_files: s.f_files,
                free_files: s.f_ffree,
                avail_files: s.f_favail,
            })
        })
    }
}
