//! Backend for a folder of a CephFS file system, using the cluster's own client library.
//!
//! *Operation.* The gateway is one client of the cluster for each share ([`ceph_sys::Mount`]). Every file in use has one record
//! (`node`) with its inode; names are single components looked up in these inodes, and symbolic links are never followed. Each call
//! is made as its caller: the library checks user, group and groups against mode bits and POSIX lists, as a kernel does. If a
//! stored list grants more, that single call is made as the superuser after checking the list ([`crate::authority`]). Each call may
//! wait for other machines, so it takes one of the volume's turns ([`crate::engine::far`]), and data is transferred on the volume's
//! own threads.
//!
//! *Handles.* Inode and snapshot number, after a tag of the served folder. They survive renames, restarts of the gateway and of the
//! cluster. A file that another client has moved out of the folder stays reachable by earlier handles, a directory does not.
//!
//! *Durability.* The library does not buffer data (`client_oc`): the data of an answered WRITE is with the OSDs. If the gateway
//! crashes before it reports the new size of a file, the MDS recovers the size from the OSDs.
//!
//! *Restart.* A mount has a name that stays the same from one run to the next. Mounting ends the session of an earlier run, and of
//! another gateway that uses the same state folder, which can then no longer write. A gateway whose session was ended reports it in
//! its log and status, and fails every operation ([`VfsError::Io`]).
//!
//! *Change attribute.* The cluster's own (`STATX_VERSION`).
//!
//! *Limits.* The file system sends no events for changes by other clients of the cluster. Storage cannot be reserved, holes look
//! like zeros, and server-side copy, clone and exchange are not available.

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
use crate::place::Place;
use crate::types::*;

use handle::Tag;
use node::CephNode;
use records::Records;

/// Configuration of a CephFS folder.
#[derive(Clone, Debug)]
pub struct CephConfig {
    /// Name of the cluster's file system.
    pub fs: String,
    /// The folder in it, absolute.
    pub root: String,
    /// The user of the cluster, without `client.`; `None`: `admin`.
    pub id: Option<String>,
    /// The cluster's configuration file; `None`: the default locations.
    pub conf: Option<PathBuf>,
    /// The user's keyring; `None`: as configured.
    pub keyring: Option<PathBuf>,
    /// The name of the session, constant from one run to the next; `None`: no earlier session is ended.
    pub uuid: Option<String>,
    /// True to refuse all changes.
    pub read_only: bool,
    /// No other client of the cluster changes the folder, so that clients of the gateway may cache its content.
    pub exclusive: bool,
    /// Limits the payload held by transfers in total, including those whose clients have disconnected.
    pub payload: PayloadBudget,
}

impl CephConfig {
    /// Creates default settings for this folder of the file system.
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

/// Settings of the library: it buffers no written data, supports POSIX lists, checks permission itself, gives up on silent
/// monitors, and reports the number of names as the size of a directory.
const SETTINGS: [(&str, &str); 5] = [
    ("client_oc", "false"),
    ("client_acl_type", "posix_acl"),
    ("client_permissions", "true"),
    ("client_mount_timeout", "8"),
    ("client_dirsize_rbytes", "false"),
];

/// Unless configured otherwise, the library does not log each call in memory (for crash reports): a thread would wake up for every
/// line. Option, the library's default, and ours.
const DEFAULTS: [(&str, &str, &str); 1] = [("debug_client", "0/5", "0/0")];

/// The message after the session was ended.
const CUT_OFF: &str = "the cluster has cut this gateway off (its address is in `ceph osd blocklist ls`, or its session was ended): \
     every operation on the share fails until the configuration is read again; does another gateway use the same state folder?";

/// Name of the gateway's own folder in the root of a share.
const HIDDEN: &[u8] = b".headgate";

/// Interval at which idle records are released.
const SWEEP: Duration = Duration::from_secs(10);

/// State shared by all records of a backend.
struct Volume {
    /// `None` after the volume was dropped.
    mount: Option<Arc<Mount>>,
    /// The superuser of the cluster.
    process: Perm,
    root: Vino,
    /// The served folder is the root of the file system.
    is_whole: bool,
    tag: Tag,
    fsid: u64,
    read_only: bool,
    exclusive: bool,
    /// The name in messages, as configured.
    name: String,
    /// The path of the folder in its file system.
    folder: Vec<u8>,
    turns: Turns,
    engine: Arc<Engine>,
    records: Records,
    renames: Renames,
    started: Instant,
    strict: [AtomicBool; 2],
    /// The cluster has ended this client's session.
    cut_off: AtomicBool,
    open_to_others: AtomicBool,
}

/// Excludes renames from all other calls that use names in the same folder. libcephfs 16.2 makes calls wait for a rename of the
/// same name, and never wakes them if the rename finds no file to move. The backend therefore looks the name up first, and this
/// lock keeps this gateway from removing it in between.
struct Renames([RwLock<()>; Self::PARTS]);

impl Default for Renames {
    fn default() -> Self {
        Self(std::array::from_fn(|_| RwLock::default()))
    }
}

impl Renames {
    /// Several folders share a lock.
    const PARTS: usize = 64;

    fn part(dir: Vino) -> usize {
        // Invariant: below the number of parts.
        usize::try_from(dir.ino % Self::PARTS as u64).unwrap_or(0)
    }

    /// Locks for a call that uses a name in this folder.
    fn name(&self, dir: Vino) -> RwLockReadGuard<'_, ()> {
        reading(&self.0[Self::part(dir)])
    }

    /// Locks for a rename from one of these folders to the other.
    #[allow(clippy::type_complexity)] // The function returns two guards.
    fn rename(
        &self,
        from: Vino,
        to: Vino,
    ) -> (RwLockWriteGuard<'_, ()>, Option<RwLockWriteGuard<'_, ()>>) {
        let (a, b) = (Self::part(from), Self::part(to));
        let lock = |part: usize| writing(&self.0[part]);
        // In a fixed order, so that two renames cannot deadlock.
        let first = lock(a.min(b));
        (first, (a != b).then(|| lock(a.max(b))))
    }
}

/// Mounts a folder for the gateway's own data, with the settings of a served folder and additional ones; ends the sessions named in
/// `ended` first, as well as an earlier one of its own name. Blocks for some seconds if no monitor answers.
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

/// A served folder of CephFS.
pub struct CephBackend {
    volume: Arc<Volume>,
    root: Arc<CephNode>,
    hidden: Mutex<Option<Arc<CephNode>>>,
}

impl CephBackend {
    /// Mounts. Blocks for some seconds if no monitor answers.
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
            folder: config.root.as_bytes().to_vec(),
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

    /// The cluster's number of this client.
    pub fn client_id(&self) -> u64 {
        self.volume.mount.as_ref().map_or(0, |mount| mount.client_id())
    }

    /// Checks that the superuser has the rights that the gateway itself needs: creates a file, stores side data with it, and
    /// removes it. Blocks.
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

    /// In a snapshot, the hidden folder exists if the snapshot was taken of the share's own folder or of one above it.
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

/// Inode number of the root of every CephFS file system (`CEPH_INO_ROOT`).
const ROOT_INO: u64 = 1;

impl Drop for CephBackend {
    fn drop(&mut self) {
        // Records refer to the volume, and its list refers to records: this breaks the cycle.
        self.volume.records.clear();
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Unmounting on another thread, so that dropping a share does not wait for the cluster.
        self.mount.take().into_iter().for_each(unmount_aside);
    }
}

/// Runs a thread that releases idle records, until the backend is dropped.
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

    /// Converts the library's result, and detects that the cluster has ended the session.
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

    /// Converts the caller to the library's form.
    fn perm(&self, cred: &Cred) -> VfsResult<Perm> {
        let mount = self.mount.as_ref().ok_or(VfsError::Io)?;
        self.done(Perm::new(mount, cred.uid, cred.gid, &cred.groups))
    }

    /// The superuser with this primary group, which its new files get.
    fn process_in(&self, gid: u32) -> VfsResult<Perm> {
        self.perm(&Cred { uid: 0, gid, groups: Arc::new([]), token: crate::Token::NONE })
    }

    /// The record of an inode obtained just now.
    fn adopt(self: &Arc<Self>, inode: Inode, stat: &stat::Stat) -> VfsResult<Arc<CephNode>> {
        let vino = stat::vino_of(stat);
        if let Some(node) = self.records.find(vino, self.now()) {
            return Ok(node);
        }
        let node = CephNode::new(self.clone(), Arc::new(inode), stat)?;
        Ok(self.records.enter(node, self.now()))
    }

    /// The node of a handle if no request to the cluster is needed: an open file.
    fn at_hand(&self, handle: &Handle) -> Option<Arc<CephNode>> {
        let node = self.records.find(self.tag.parse(handle).ok()?, self.now())?;
        (node.kind != Kind::Dir && node.is_held()).then_some(node)
    }

    /// Finds the node of a handle.
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

    /// The record of an inode by its number, anywhere in the file system. [`VfsError::Stale`] if it does not exist.
    fn hold(self: &Arc<Self>, vino: Vino) -> VfsResult<Arc<CephNode>> {
        if let Some(node) = self.records.find(vino, self.now()) {
            return Ok(node);
        }
        let mount = self.mount.as_ref().ok_or(VfsError::Io)?;
        let stale = |e| match e {
            VfsError::NotFound | VfsError::Invalid => VfsError::Stale,
            e => e,
        };
        // The library aborts the process for a zero number.
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

    /// True if the inode exists: the MDS also finds inodes in snapshots that were removed, whose data the OSDs may drop, or never
    /// taken.
    fn is_there(&self, vino: Vino, inode: &Inode, stat: &stat::Stat) -> VfsResult<bool> {
        match vino.snap {
            CEPH_NOSNAP => Ok(true),
            paths::SNAPDIR => Ok(stat::kind_of(stat)? == Kind::Dir),
            _ => Ok(snapshots::taken(inode, &self.process).is_some()),
        }
    }

    /// Runs a synchronous operation in its turn.
    fn at_once<'a, T: Send + 'a>(
        &'a self,
        f: impl FnOnce() -> VfsResult<T> + Send + 'a,
    ) -> BoxFuture<'a, VfsResult<T>> {
        Box::pin(self.turns.stepped(async move { f() }))
    }

    /// Warns once that streams are not supported.
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

    fn counterpart<'a>(&'a self, node: &'a NodeRef) -> BoxFuture<'a, VfsResult<Option<NodeRef>>> {
        let Some(other) = node.as_any().downcast_ref::<CephNode>() else { return ready(Ok(None)) };
        if Arc::ptr_eq(&other.volume, &self.volume) {
            return ready(Ok(Some(node.clone())));
        }
        let (fsid, vino) = (other.volume.fsid, other.vino);
        let find = move || {
            if fsid != self.volume.fsid {
                return Ok(None);
            }
            let found = self.volume.hold(vino).and_then(|node| {
                let known = locked(&other.home).clone();
                let mut home = locked(&node.home);
                *home = home.take().or(known);
                drop(home);
                node.do_path().map(|_| node)
            });
            match found {
                Ok(node) => Ok(Some(node as NodeRef)),
                Err(VfsError::Stale | VfsError::NotFound | VfsError::NotDir) => Ok(None),
                Err(e) => Err(e),
            }
        };
        self.volume.at_once(find)
    }

    fn place(&self) -> Option<Place> {
        let tree = self.volume.fsid.max(Place::HOST + 1);
        Some(Place { tree, path: self.volume.folder.clone() })
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

    fn has_snapshots(&self) -> bool {
        true
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name_max: 255,
            // The file system has its own limit (`max_file_size`), which the library does not report.
            size_max: i64::MAX.unsigned_abs(),
            link_max: u32::MAX,
            xattr: true,
            reflink: false,
            clone_block: 0,
            deallocate: true,
            block: 4096,
            handles_persist: true,
            read_only: self.volume.read_only,
            quotas: false,
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
