//! Backend for a real directory of the host.
//!
//! *Operation.* Every file in use has one record (`node`) that holds it by an `O_PATH` descriptor; names are single components
//! relative to such descriptors and symbolic links are never followed, so no request can leave the share. Metadata calls run in
//! place, as the caller (`cred`); data is transferred by `preadv2` and `pwritev2`, in place while it is in the page cache, else on
//! the threads of [`crate::engine`].
//!
//! *Boundary.* A directory that was moved out of the share's folder on the host is no longer served after at most
//! [`LocalConfig::recheck`]; `..` is checked each time. A file that was moved out stays reachable by handles obtained before, as
//! with the kernel's server without `subtree_check`: a file may have many names, and the kernel does not report them when it opens
//! a file by handle, so it is unknown whether one of them is inside. (Handles are assumed to be genuine: front ends reject others.)
//! Other file systems mounted below the share are served if it crosses mount points ([`cross`]); otherwise their mount points are
//! listed and refused with [`VfsError::Access`]. Subvolumes of one file system are served, each with a separate `fsid`.
//!
//! *Handles.* See `handle`: kernel handles if the process may open them, else inode numbers that are searched for after a restart.
//! Both survive renames. If the folder vanishes, all files in it are [`VfsError::Stale`]. The same applies to a file without a
//! name, even if a process on the host has it open, unless a client does.
//!
//! *Link counts.* Some file systems in user space report a link count of 0 for all files. A file with count 0 is assumed to have
//! one name until another count was seen.
//!
//! *Inodes of FUSE.* A file system in user space may give each name of a file a separate kernel inode with the same number
//! (mergerfs with `use_ino`): the inode is stale once its name is gone, although the file has other names. The record has one
//! descriptor, which is opened again through a known name of the file ([`renew`]).
//!
//! *Change attribute.* The change time in nanoseconds. If the kernel's clock for it is coarse, several changes can share one value:
//! while a record exists the attribute is incremented for each change made here, and never decreases. After a restart it is the
//! change time again, which is larger unless more changes than nanoseconds occurred.
//!
//! *Before and after.* The attributes around a change of a directory are never reported as atomic: another process on the host may
//! change the directory between two system calls.
//!
//! *Durability.* Data becomes durable when a client requests it (stable writes, commit); `sync` handles its failures. Changes of
//! names and attributes reach the host when an operation ends, and are durable before the reply if the share is strict
//! ([`crate::durability`]). Otherwise they survive the end of this process, but the last seconds may be lost in a crash of the
//! host.
//!
//! *Descriptors.* A file written through the share stays open for writing for up to 20 seconds after its last use, and any used
//! file for up to a minute: until then the host cannot execute the written file (ETXTBSY), and the storage of a file removed on the
//! host is not freed. Files removed through the share are closed at once.
//!
//! *Process-wide effects.* Opening a backend sets the umask to 0 (clients send complete modes; the kernel applies default ACLs) and
//! raises the soft limit of open files to the hard one.

mod acl;
mod apart;
mod append;
mod attrs;
mod basket;
mod cache;
mod counterpart;
mod cred;
mod cross;
mod data;
mod decide;
mod descriptors;
mod dir;
mod external;
mod fanotify;
mod generation;
mod handle;
mod held;
mod names;
mod node;
mod past;
mod probe;
mod proc_path;
mod quota;
mod quotactl;
mod renew;
mod seal;
mod search;
mod side;
mod silent;
mod space;
mod stat;
mod sync;
mod sync_queue;
mod sys;
mod waste;
mod xattr;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use mutex::locked;
use rustix::fs::{CWD, Mode, OFlags};

use policy::SnapshotPattern;

use crate::backend::{Backend, BoxFuture, NodeRef, SnapshotsTold, ready};
use crate::engine::far::{PayloadBudget, Turns};
use crate::engine::threads::Engine;
use crate::error::{VfsError, VfsResult};
use crate::fnv::fnv;
use crate::place::Place;
use crate::quota::{Quota, QuotaKind, QuotaLimits, QuotaState};
use crate::types::Losses;
use crate::types::{Attr, Capabilities, FsStat, Handle, Kind};
use crate::wastebasket::Basket;

use cache::Cache;
use cred::Identity;
pub use cred::give_up_devices;
use cross::Border;
pub use cross::is_kernels_own;
pub use descriptors::{
    HeldDescriptors, descriptors_held, descriptors_max, limit_descriptors, raise_open_files,
};
use handle::{Form, Parsed};
use node::LocalNode;
use past::PastNode;
use probe::Found;
use proc_path::decimal;
pub use seal::{SealKey, refused as refused_lists};
use stat::Stat;
pub use sync::SyncCalls;
use sync::{Kernel, Ledger};
use sync_queue::SyncQueue;

/// Configuration of a directory.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// The directory. Symbolic links in this path are followed once, at opening.
    pub root: PathBuf,
    /// True to refuse all changes.
    pub read_only: bool,
    /// Use no privilege even if the process has it: no kernel handles, and all callers are served as the process itself. This is
    /// always so for a process that is not root.
    pub unprivileged: bool,
    /// Threads of the runtime never switch identity themselves, which costs some microseconds for each access that needs switching:
    /// for a process that uses RDMA devices.
    pub callers_apart: bool,
    /// How long a directory found below the share is assumed to be still there.
    pub recheck: Duration,
    /// System calls for syncs in place of the kernel's. A volume that has them counts as storage, whatever its file system.
    pub calls: Option<Arc<dyn SyncCalls>>,
    /// Authenticates access control lists if the process may not use `trusted.` attributes. `None`: uses a key of this run.
    pub seal: Option<SealKey>,
    /// Limits the payload held by transfers, if the volume may stop responding (FUSE, NFS and the like).
    pub payload: PayloadBudget,
    /// Serve file systems mounted below the directory, too ([`Backend::set_cross`]).
    pub cross: bool,
}

impl LocalConfig {
    /// Creates default settings for this folder.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            read_only: false,
            unprivileged: false,
            callers_apart: false,
            recheck: Duration::from_secs(1),
            calls: None,
            seal: None,
            payload: PayloadBudget::default(),
            cross: false,
        }
    }
}

/// State shared by all records of a backend.
struct Volume {
    /// The boundary of the share, which contains this volume and perhaps others.
    border: Arc<Border>,
    /// For a volume mounted below the share: the inode number of the folder that its root covers.
    covers: Option<u64>,
    /// The volume's own descriptors, if they are part of the budget of clients' files.
    _held: Option<HeldDescriptors>,
    /// A readable descriptor of the root: identifies the file system for handles, and is used for `statfs`.
    root: OwnedFd,
    root_dev: u64,
    root_ino: u64,
    mount: u64,
    fsid: u64,
    uuid: Option<[u8; 16]>,
    tag: [u8; 4],
    /// `/proc/self/fd`, to reopen files held by an `O_PATH` descriptor.
    proc_fd: OwnedFd,
    identity: Identity,
    handles: Form,
    read_only: bool,
    /// The path in messages, as configured.
    folder: PathBuf,
    vanished: AtomicBool,
    open_to_others: AtomicBool,
    recheck: Duration,
    started: Instant,
    caps: Capabilities,
    /// The file system refuses `RWF_NOWAIT`, as the first attempt has shown.
    no_nowait_read: AtomicBool,
    no_nowait_write: AtomicBool,
    /// True if the volume provides no pages of its files, as the first attempt has shown.
    no_pages: AtomicBool,
    /// Files are in memory: reads and writes never wait for a device.
    in_memory: bool,
    /// Turns of operations, if the file system may stop responding.
    turns: Option<Turns>,
    /// Threads for waiting work: separate ones if the file system may stop responding.
    engine: Arc<Engine>,
    /// Sync calls, the queue of syncs of the whole volume, and the record of lost data.
    calls: Arc<dyn SyncCalls>,
    syncs: Arc<SyncQueue>,
    /// Files with unsynced data that hold all descriptors; callers wait until they are durable.
    pressed: Mutex<Vec<Arc<LocalNode>>>,
    pressing: Arc<SyncQueue>,
    ledger: Ledger,
    /// For NFS and for SMB: see [`Backend::is_strict`].
    strict: [AtomicBool; 2],
    /// See [`probe::Found::posix`].
    posix: bool,
    /// See [`probe::Found::exact_times`].
    exact_times: bool,
    /// The file system reports link counts: its type does, or a file with one was seen.
    counts_links: AtomicBool,
    /// See [`probe::Found::inode_per_name`].
    inode_per_name: bool,
    /// See [`probe::Found::reuses_numbers`].
    reuses_numbers: bool,
    /// See [`probe::Found::large_folder`].
    large_folder: u64,
    /// Side data is stored in `trusted.` attributes.
    trusted: bool,
    /// Authenticates lists stored elsewhere.
    seal: SealKey,
    cache: Cache,
    search: search::Search,
    /// See [`waste`].
    waste_turns: waste::Turns,
    /// Held by each operation on a file in the wastebasket.
    basket_turn: Mutex<()>,
}

/// A served directory of the host.
pub struct LocalBackend {
    volume: Arc<Volume>,
    root: Arc<LocalNode>,
    hidden: Mutex<Hidden>,
}

/// Name of the gateway's own folder in the root of a share.
const HIDDEN: &[u8] = b".headgate";

/// The state of that folder, which only this process creates.
#[derive(Default)]
enum Hidden {
    #[default]
    Unknown,
    Absent,
    There(Arc<LocalNode>),
}

impl LocalBackend {
    /// Opens the directory and determines the capabilities of its file system.
    pub fn open(config: LocalConfig) -> VfsResult<Arc<Self>> {
        Self::open_with(config, |_| {})
    }

    /// Like [`LocalBackend::open`], with `change` applied to the detected capabilities.
    fn open_with(config: LocalConfig, change: impl Fn(&mut Found)) -> VfsResult<Arc<Self>> {
        rustix::process::umask(Mode::empty());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, &config.root, flags, Mode::empty())?;
        let stat = stat::of_fd(root.as_fd())?;
        let border = Arc::new(Border::new(root.as_fd(), &stat, &config)?);
        let volume = Volume::open(config, root, (border.clone(), None), change)?;
        border.set_top(&volume);
        let path_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::openat(&volume.root, c".", path_flags, Mode::empty())?;
        let root = volume.adopt(top, &stat)?;
        border.snapshots.set_root(&root);
        volume.look_for_waste();
        janitor(Arc::downgrade(&volume));
        Ok(Arc::new(Self { volume, root, hidden: Mutex::default() }))
    }

    fn hidden_folder(&self, make: bool) -> VfsResult<Option<NodeRef>> {
        let mut hidden = locked(&self.hidden);
        match &*hidden {
            // A program on the host may have emptied the share, including this folder.
            Hidden::There(node) if node.attr().is_ok() => {
                return Ok(Some(node.clone()));
            }
            Hidden::There(_) => {}
            Hidden::Absent if !make => return Ok(None),
            Hidden::Absent | Hidden::Unknown => {}
        }
        let found = self.volume.open_hidden(make)?;
        *hidden = found.clone().map_or(Hidden::Absent, Hidden::There);
        Ok(found.map(|n| n as NodeRef))
    }

    /// True if access control lists are stored where no local user can change them; otherwise they are authenticated, and a user
    /// with write permission on the file can remove them.
    pub fn has_trusted_lists(&self) -> bool {
        self.volume.trusted
    }

    /// The volume of a node of this backend.
    fn volume_of<'a>(&'a self, node: &'a NodeRef) -> &'a Arc<Volume> {
        let node = node.as_any();
        match (node.downcast_ref::<LocalNode>(), node.downcast_ref::<PastNode>()) {
            (Some(node), _) => &node.volume,
            (_, Some(past)) => past.volume(),
            _ => &self.volume,
        }
    }

    /// True if file handles are the kernel's. Otherwise a file that is not in a record is searched for by its number.
    pub fn has_kernel_handles(&self) -> bool {
        self.volume.handles == Form::Kernel
    }
}

impl Drop for LocalBackend {
    fn drop(&mut self) {
        // Records refer to the volume, and its clock refers to records: this breaks the cycle.
        self.volume.cache.clear();
        self.volume.border.forget_recent();
        self.volume.border.snapshots.close_all();
        self.volume.border.crossed().iter().for_each(|crossed| crossed.cache.clear());
    }
}

/// Runs a thread that releases idle records, until the backend is dropped.
fn janitor(volume: Weak<Volume>) {
    let started = std::thread::Builder::new().name("vfs-janitor".into()).spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(10));
            let Some(volume) = volume.upgrade() else { return };
            volume.cache.sweep();
            volume.border.forget_recent();
            volume.border.crossed().iter().for_each(|crossed| crossed.cache.sweep());
            volume.border.snapshots.sweep();
        }
    });
    if let Err(e) = started {
        tracing::warn!(error = %e, "no thread to close idle files");
    }
}

impl Volume {
    /// Opens the volume of this folder, given a readable descriptor.
    fn open(
        config: LocalConfig,
        root: OwnedFd,
        (border, covers): (Arc<Border>, Option<u64>),
        change: impl Fn(&mut Found),
    ) -> VfsResult<Arc<Self>> {
        let path_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc_fd = rustix::fs::openat(CWD, c"/proc/self/fd", path_flags, Mode::empty())?;
        let stat = stat::of_fd(root.as_fd())?;
        let mut found = probe::probe(root.as_fd(), config.read_only)?;
        change(&mut found);
        if covers.is_some() && !found.is_numbered {
            // As for every FUSE file system: its path distinguishes it from others.
            found.fsid ^= fnv(config.root.as_os_str().as_bytes());
        }
        if covers.is_some() {
            found.fsid ^= found.subvolume;
        }
        Ok(Arc::new(Volume {
            border,
            covers,
            _held: covers.map(|_| HeldDescriptors::count(2)),
            root_dev: stat.dev,
            root_ino: stat.ino,
            mount: stat.mount,
            fsid: found.fsid,
            uuid: found.uuid,
            tag: handle::tag(found.fsid, &stat),
            proc_fd,
            identity: Identity::probe(config.unprivileged, config.callers_apart)?,
            handles: match found.handles {
                Form::Kernel if config.unprivileged => Form::Search,
                handles => handles,
            },
            read_only: config.read_only,
            folder: config.root,
            vanished: AtomicBool::new(false),
            open_to_others: AtomicBool::new(false),
            recheck: config.recheck,
            started: Instant::now(),
            caps: found.caps,
            no_nowait_read: AtomicBool::new(false),
            no_nowait_write: AtomicBool::new(false),
            no_pages: AtomicBool::new(false),
            in_memory: found.in_memory && config.calls.is_none(),
            engine: silent::engine(found.magic),
            turns: silent::turns(found.magic, &config.payload),
            calls: config.calls.unwrap_or_else(|| Arc::new(Kernel)),
            syncs: Arc::default(),
            pressed: Mutex::default(),
            pressing: Arc::default(),
            ledger: Ledger::default(),
            strict: [AtomicBool::new(false), AtomicBool::new(false)],
            posix: found.posix,
            exact_times: found.exact_times,
            counts_links: AtomicBool::new(found.counts_links),
            inode_per_name: found.inode_per_name,
            reuses_numbers: found.reuses_numbers,
            large_folder: found.large_folder,
            trusted: found.trusted && !config.unprivileged,
            seal: config.seal.map_or_else(SealKey::random, Ok)?,
            cache: Cache::default(),
            search: search::Search::default(),
            waste_turns: Default::default(),
            basket_turn: Mutex::default(),
            root,
        }))
    }

    /// The record of an open file.
    fn adopt(self: &Arc<Self>, fd: OwnedFd, stat: &Stat) -> VfsResult<Arc<LocalNode>> {
        if stat.mount != self.mount {
            return self.border.volume(fd.as_fd(), stat)?.adopt(fd, stat);
        }
        let handle = handle::make(fd.as_fd(), stat, self.tag, self.handles)?;
        let shared = self.shared(stat, &handle);
        let node = LocalNode::new(self.clone(), fd, stat, (handle, shared));
        let node = self.cache.enter(node);
        self.hold(&node);
        Ok(node)
    }

    /// Refuses objects mounted below a share that does not cross mount points.
    fn crosses(&self) -> VfsResult<()> {
        if self.border.crosses() { Ok(()) } else { Err(VfsError::Access) }
    }

    /// Refuses objects on another volume.
    fn same_mount(&self, stat: &Stat) -> VfsResult<()> {
        if stat.mount == self.mount { Ok(()) } else { Err(VfsError::Access) }
    }

    /// Reopens any descriptor with other flags, as the process: the caller checks permission.
    fn reopen(&self, fd: BorrowedFd<'_>, flags: OFlags) -> VfsResult<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let mut name = [0u8; 12];
        let name = decimal(fd.as_raw_fd(), &mut name);
        Ok(rustix::fs::openat(&self.proc_fd, name, flags, Mode::empty())?)
    }

    /// The path of an open file, according to the kernel.
    fn path_of(&self, fd: BorrowedFd<'_>) -> VfsResult<Vec<u8>> {
        let mut name = [0u8; 12];
        let name = decimal(fd.as_raw_fd(), &mut name);
        Ok(rustix::fs::readlinkat(&self.proc_fd, name, Vec::with_capacity(512))?.into_bytes())
    }

    /// True if the directory is the root of the share or below it. The kernel reports both paths in the same mount and at that
    /// moment; if a path is too long for it, the ancestors are walked.
    fn is_inside(&self, fd: BorrowedFd<'_>) -> VfsResult<bool> {
        let root = self.path_of(self.border.root.as_fd())?;
        let own = || self.path_of(self.root.as_fd());
        if self.covers.is_some() && !cross::is_mount_below(&own()?, &root) {
            return Ok(false);
        }
        match self.path_of(fd) {
            Ok(path) => {
                let rest = path.strip_prefix(&root[..]);
                let rest = rest.filter(|r| r.is_empty() || r.starts_with(b"/") || root == b"/");
                Ok(rest.is_some_and(|rest| !self.is_in_snapshots(rest)))
            }
            Err(VfsError::NameTooLong) => self.walk_up(fd),
            Err(e) => Err(e),
        }
    }

    /// True if a path below the share is in its folder of snapshots.
    fn is_in_snapshots(&self, path: &[u8]) -> bool {
        self.border.snapshots.hold(path.strip_prefix(b"/").unwrap_or(path))
    }

    fn walk_up(&self, fd: BorrowedFd<'_>) -> VfsResult<bool> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = rustix::fs::openat(fd, c".", flags, Mode::empty())?;
        let mut here = stat::of_fd(at.as_fd())?;
        for _ in 0..crate::engine::limits::DEPTH_MAX {
            if (here.dev, here.ino) == (self.border.dev, self.border.ino) {
                return Ok(true);
            }
            at = rustix::fs::openat(&at, c"..", flags, Mode::empty())?;
            let above = stat::of_fd(at.as_fd())?;
            if (above.dev, above.ino) == (here.dev, here.ino) {
                return Ok(false);
            }
            here = above;
        }
        Err(VfsError::NameTooLong)
    }

    /// Opens the gateway's own folder. A folder that another user has created or can enter is refused: that user could read and
    /// change the clients' data in it.
    fn open_hidden(self: &Arc<Self>, make: bool) -> VfsResult<Option<Arc<LocalNode>>> {
        if make {
            self.writable()?;
            match rustix::fs::mkdirat(&self.root, HIDDEN, Mode::RWXU) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(&self.root, HIDDEN, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let stat = stat::of_fd(fd.as_fd())?;
        let own = rustix::process::geteuid().as_raw();
        if stat.attr.uid != own || stat.attr.mode & 0o077 != 0 {
            self.is_open_to_others();
            return Err(VfsError::NotSupported);
        }
        self.adopt(fd, &stat).map(Some)
    }

    /// Warns once that the share's folder is gone.
    fn has_vanished(&self) {
        if !self.vanished.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                folder = %self.folder.display(),
                "the folder of a share was removed on this host; its clients get stale handles until it is served anew"
            );
        }
    }

    /// Warns once that streams and the wastebasket do not work.
    fn is_open_to_others(&self) {
        if !self.open_to_others.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                folder = %self.folder.display(),
                "the gateway's own folder .headgate of a share belongs to another user or is open to others: streams are \
                 not served, and with a wastebasket nothing is removed; look at what is in it, and give it to the gateway's \
                 user with mode 0700"
            );
        }
    }

    /// Milliseconds since the backend was opened, at least 1.
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn writable(&self) -> VfsResult<()> {
        if self.read_only { Err(VfsError::ReadOnly) } else { Ok(()) }
    }

    /// Finds a node by a handle of this volume.
    fn resolve<'a>(self: &'a Arc<Self>, handle: &'a Handle) -> BoxFuture<'a, VfsResult<NodeRef>> {
        let volume = self;
        let known = move || volume.cache.by_handle(handle).filter(|node| node.has_a_name());
        if volume.turns.is_some() {
            let open = || volume.cache.with_room(|| volume.open_handle(handle));
            let find = move || known().map_or_else(open, Ok);
            return volume.patient(move || find().map(|n| n as NodeRef));
        }
        if let Some(node) = known() {
            return ready(Ok(node));
        }
        if !matches!(handle::parse(handle, volume.tag, volume.handles), Ok(Parsed::Search { .. })) {
            let open = || volume.cache.with_room(|| volume.open_handle(handle));
            return volume.patient(move || open().map(|n| n as NodeRef));
        }
        // The search may visit the whole share.
        let (volume, handle) = (volume.clone(), handle.clone());
        Box::pin(async move {
            let its = volume.clone();
            let open = move || its.cache.with_room(|| its.open_handle(&handle));
            volume.patient_apart(open).await.map(|n| n as NodeRef)
        })
    }

    fn statfs(self: &Arc<Self>) -> BoxFuture<'_, VfsResult<FsStat>> {
        let volume = self.clone();
        self.steps(self.engine.run_long(move || {
            let s = rustix::fs::fstatvfs(&volume.root)?;
            Ok(FsStat {
                total_bytes: s.f_blocks.saturating_mul(s.f_frsize),
                free_bytes: s.f_bfree.saturating_mul(s.f_frsize),
                avail_bytes: s.f_bavail.saturating_mul(s.f_frsize),
                total_files: s.f_files,
                free_files: s.f_ffree,
                avail_files: s.f_favail,
            })
        }))
    }

    /// True if the handle's file is in a wastebasket.
    async fn holds_waste(self: &Arc<Self>, handle: &Handle) -> VfsResult<bool> {
        if !waste::may_exist() {
            return Ok(false);
        }
        let (its, handle) = (self.clone(), handle.clone());
        let is_waste = move || {
            let fd = match its.fd_of_handle(&handle) {
                Err(VfsError::Stale | VfsError::BadHandle) => return Ok(false),
                fd => fd?,
            };
            let stat = stat::of_fd(fd.as_fd())?;
            its.is_waste(fd.as_fd(), &stat)
        };
        self.stepped(self.patient_apart(is_waste)).await
    }

    fn fd_of_handle(&self, handle: &Handle) -> VfsResult<OwnedFd> {
        match handle::parse(handle, self.tag, self.handles)? {
            Parsed::Kernel { kind, bytes } => {
                // EINVAL: not a handle of this type of file system.
                sys::open_by_handle(self.root.as_fd(), kind, bytes).map_err(|e| match e {
                    VfsError::Invalid => VfsError::BadHandle,
                    VfsError::NotFound => VfsError::Stale,
                    e => e,
                })
            }
            Parsed::Search { ino } => self.find_by_number(ino, handle),
        }
    }

    /// Opens the file of a handle that is in no record.
    fn open_handle(self: &Arc<Self>, handle: &Handle) -> VfsResult<Arc<LocalNode>> {
        let fd = self.fd_of_handle(handle)?;
        let stat = stat::of_fd(fd.as_fd())?;
        if stat.attr.kind == Kind::Dir && !self.is_inside(fd.as_fd())? {
            return Err(VfsError::Stale);
        }
        // A handle of a file in the folder of snapshots may be older than the share's pattern.
        if self.border.snapshots.is_on() {
            let root = self.path_of(self.border.root.as_fd())?;
            let path = self.path_of(fd.as_fd()).unwrap_or_default();
            if path.strip_prefix(&root[..]).is_some_and(|rest| self.is_in_snapshots(rest)) {
                return Err(VfsError::Stale);
            }
        }
        // A file that a client has open has a record, which the caller has found before.
        if self.is_removed(&stat.attr) || self.is_waste(fd.as_fd(), &stat)? {
            return Err(VfsError::Stale);
        }
        let node = self.adopt(fd, &stat)?;
        // If each name has an inode, each has a handle; the file has one record.
        let is_it = node.handle == *handle || self.inode_per_name;
        if is_it { Ok(node) } else { Err(VfsError::Stale) }
    }

    /// True if attributes from the kernel belong to a file without a name.
    fn is_removed(&self, attr: &Attr) -> bool {
        attr.nlink == 0 && (attr.kind == Kind::Dir || self.counts_links.load(Ordering::Relaxed))
    }
}

impl Backend for LocalBackend {
    fn root(&self) -> NodeRef {
        self.root.clone()
    }

    fn resolve<'a>(&'a self, handle: &'a Handle) -> BoxFuture<'a, VfsResult<NodeRef>> {
        if past::is_marked(handle) {
            return self.volume.resolve_marked(&self.root, handle);
        }
        if !handle::has_tag(handle, self.volume.tag) && self.volume.border.crosses() {
            return match self.volume.border.volume_of(handle) {
                Ok(volume) => Box::pin(async move { volume.resolve(handle).await }),
                Err(e) => ready(Err(e)),
            };
        }
        self.volume.resolve(handle)
    }

    fn stored(&self, handle: &Handle) -> Handle {
        handle::retag(handle, self.volume.tag, handle::volume_tag(self.volume.fsid))
    }

    fn served(&self, stored: &Handle) -> Handle {
        handle::retag(stored, handle::volume_tag(self.volume.fsid), self.volume.tag)
    }

    fn knows(&self, handle: &Handle) -> bool {
        // A snapshot that is not mounted now may be mounted again.
        if past::is_marked(handle) {
            return false;
        }
        let (own, border) = (&self.volume, &self.volume.border);
        if handle::has_tag(handle, own.tag) || !border.crosses() {
            return own.handles.gives(handle);
        }
        // A volume that is not mounted now may be mounted again.
        border.held(handle).is_some_and(|its| its.handles.gives(handle))
    }

    fn is_gone<'a>(&'a self, handle: &'a Handle) -> BoxFuture<'a, VfsResult<bool>> {
        if past::is_marked(handle) {
            return ready(Ok(false));
        }
        Box::pin(async move {
            let (own, border) = (&self.volume, &self.volume.border);
            let its = if handle::has_tag(handle, own.tag) || !border.crosses() {
                own.clone()
            } else {
                // A volume that is not mounted now may be mounted again.
                match border.volume_of(handle) {
                    Err(VfsError::Stale | VfsError::BadHandle) => return Ok(false),
                    other => other?,
                }
            };
            // A program in user space may not recognize its handles after a remount.
            if !its.handles.gives(handle) || its.inode_per_name {
                return Ok(false);
            }
            match its.resolve(handle).await {
                // Files of a volume unmounted meanwhile do not count as gone.
                Err(VfsError::Stale | VfsError::BadHandle) => {
                    Ok(its.is_mounted() && !its.holds_waste(handle).await?)
                }
                other => other.map(|_| false),
            }
        })
    }

    fn counterpart<'a>(&'a self, node: &'a NodeRef) -> BoxFuture<'a, VfsResult<Option<NodeRef>>> {
        match node.as_any().downcast_ref::<LocalNode>() {
            // What is in a snapshot is not in the folder, and no link leads from there to the folders above it.
            None => ready(Ok(None)),
            Some(other) if Arc::ptr_eq(&other.volume.border, &self.volume.border) => {
                ready(Ok(Some(node.clone())))
            }
            Some(other) => self.volume.patient(move || self.find_counterpart(other)),
        }
    }

    fn place(&self) -> Option<Place> {
        let path = self.volume.path_of(self.volume.border.root.as_fd()).ok()?;
        Some(Place { tree: Place::HOST, path })
    }

    fn capabilities(&self) -> Capabilities {
        self.volume.caps
    }

    fn is_strict(&self, by_smb: bool) -> bool {
        let strict = &self.volume.strict[usize::from(by_smb)];
        let is_lost = self.volume.in_memory && !self.volume.border.crosses();
        strict.load(Ordering::Relaxed) && !is_lost
    }

    fn set_cross(&self, crosses: bool, others: Vec<PathBuf>) {
        self.volume.border.set_cross(crosses, others);
    }

    fn set_snapshots(&self, pattern: Option<&SnapshotPattern>) {
        let root = self.volume.path_of(self.volume.border.root.as_fd()).unwrap_or_default();
        self.volume.border.snapshots.set(&root, pattern);
    }

    fn has_snapshots(&self) -> bool {
        self.volume.border.snapshots.is_on()
    }

    fn snapshots_told(&self) -> BoxFuture<'_, VfsResult<Option<SnapshotsTold>>> {
        if !self.volume.border.snapshots.is_on() {
            return ready(Ok(None));
        }
        let volume = self.volume.clone();
        let look = move || volume.border.snapshots.told(&volume).map(Some);
        self.volume.steps(self.volume.patient_apart(look))
    }

    /// A snapshot has the streams of its files under the handles that they had then, which cannot be told.
    fn hidden_of<'a>(
        &'a self,
        node: &'a NodeRef,
    ) -> BoxFuture<'a, VfsResult<(Option<NodeRef>, Handle)>> {
        let handle = node.handle();
        if past::is_marked(&handle) {
            return ready(Ok((None, handle)));
        }
        Box::pin(async move { Ok((self.hidden(false).await?, handle)) })
    }

    fn is_of_inner_mount(&self, handle: &Handle) -> bool {
        self.volume.border.crosses() && !handle::has_tag(handle, self.volume.tag)
    }

    fn capabilities_of(&self, node: &NodeRef) -> Capabilities {
        self.volume_of(node).caps
    }

    fn statfs_of<'a>(&'a self, node: &'a NodeRef) -> BoxFuture<'a, VfsResult<FsStat>> {
        let volume = self.volume_of(node).clone();
        Box::pin(async move { volume.statfs().await })
    }

    fn quota_state<'a>(
        &'a self,
        node: &'a NodeRef,
        kind: QuotaKind,
    ) -> BoxFuture<'a, VfsResult<QuotaState>> {
        let volume = self.volume_of(node).clone();
        Box::pin(async move { volume.quota_state(kind).await })
    }

    fn quota<'a>(
        &'a self,
        node: &'a NodeRef,
        kind: QuotaKind,
        id: u32,
    ) -> BoxFuture<'a, VfsResult<Quota>> {
        let volume = self.volume_of(node).clone();
        Box::pin(async move { volume.quota(kind, id).await })
    }

    fn quotas<'a>(
        &'a self,
        node: &'a NodeRef,
        kind: QuotaKind,
        from: u32,
        entries_max: usize,
    ) -> BoxFuture<'a, VfsResult<Vec<Quota>>> {
        let volume = self.volume_of(node).clone();
        Box::pin(async move { volume.quotas(kind, from, entries_max).await })
    }

    fn quota_set<'a>(
        &'a self,
        node: &'a NodeRef,
        kind: QuotaKind,
        id: u32,
        limits: QuotaLimits,
    ) -> BoxFuture<'a, VfsResult<()>> {
        let volume = self.volume_of(node).clone();
        Box::pin(async move { volume.quota_set(kind, id, limits).await })
    }

    fn limit_size(&self, bytes: u64, sets: bool) -> Result<(), String> {
        self.volume.limit_size(bytes, sets)
    }

    fn set_strict(&self, nfs: bool, smb: bool) {
        self.volume.strict[0].store(nfs, Ordering::Relaxed);
        self.volume.strict[1].store(smb, Ordering::Relaxed);
    }

    fn losses(&self) -> Losses {
        let crossed = self.volume.border.crossed();
        let all = crossed.iter().map(|volume| volume.ledger.losses());
        all.fold(self.volume.ledger.losses(), Losses::with)
    }

    fn hidden(&self, make: bool) -> BoxFuture<'_, VfsResult<Option<NodeRef>>> {
        self.volume.at_once(move || self.hidden_folder(make))
    }

    fn statfs(&self) -> BoxFuture<'_, VfsResult<FsStat>> {
        self.volume.statfs()
    }

    fn basket(&self) -> Option<Arc<dyn Basket>> {
        Some(Arc::new(basket::LocalBasket::of(&self.volume)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Cred;

    fn block_on<T>(f: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(f)
    }

    /// Creates a file that was removed on the host and is still open there; files on a file system without link counts look the
    /// same.
    fn without_links(counts: bool, test: impl AsyncFn(&LocalBackend, &Handle)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"data").unwrap();
        let backend = LocalBackend::open(LocalConfig::new(dir.path())).unwrap();
        if !backend.has_kernel_handles() {
            return;
        }
        block_on(async {
            let (node, _) = backend.root().lookup(&Cred::root(), b"f").await.unwrap();
            let handle = node.handle();
            let open = std::fs::File::open(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            backend.volume.counts_links.store(counts, Ordering::Relaxed);
            drop(node);
            test(&backend, &handle).await;
            drop(open);
        });
    }

    /// The number of a file removed within the tick of its birth is not reused until no other birth time can equal it.
    #[test]
    fn handles_are_unique() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let backend = LocalBackend::open_with(LocalConfig::new(dir.path()), |found| {
            found.handles = Form::Birth
        })
        .unwrap();
        let mut last: Option<(Handle, Attr)> = None;
        for round in 0..100 {
            std::fs::write(&path, b"").unwrap();
            let (node, attr) =
                block_on(async { backend.root().lookup(&Cred::root(), b"a").await }).unwrap();
            let handle = node.handle();
            std::fs::remove_file(&path).unwrap();
            drop(node);
            backend.volume.cache.clear();
            if let Some((its, before)) = last.replace((handle.clone(), attr)) {
                assert_ne!(handle, its, "{round}");
                let birth = |a: &Attr| a.btime.map(|t| (t.sec, t.nsec / 10_000_000));
                let is_known = before.btime.is_some();
                assert!(
                    !is_known || attr.fileid != before.fileid || birth(&attr) != birth(&before),
                    "{round}: {attr:?} after {before:?}"
                );
            }
        }
    }

    #[test]
    fn early_inode_number_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let backend = LocalBackend::open(LocalConfig::new(dir.path())).unwrap();
        let cache = &backend.volume.cache;
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        std::fs::create_dir(&one).unwrap();
        let moment = cache.moment();
        let seen = stat::of_name(backend.volume.root.as_fd(), b"one").unwrap();
        std::fs::remove_dir(&one).unwrap();
        std::fs::write(&other, b"").unwrap();
        let (node, attr) =
            block_on(async { backend.root().lookup(&Cred::root(), b"other").await }).unwrap();
        assert_eq!((node.kind(), attr.kind), (Kind::File, Kind::File));
        // Whether or not the number was reused.
        for ino in [seen.ino, attr.fileid] {
            assert!(cache.held_since(moment, seen.dev, ino).is_none());
        }
        assert!(cache.held_since(cache.moment(), seen.dev, attr.fileid).is_some());
    }

    #[test]
    fn zero_links_means_removed() {
        without_links(true, async |backend, handle| {
            backend.volume.cache.clear();
            assert_eq!(backend.resolve(handle).await.err(), Some(VfsError::Stale));
        });
    }

    #[test]
    fn uncounted_links_mean_one_name() {
        without_links(false, async |backend, handle| {
            for look in 0..3 {
                let node = backend.resolve(handle).await.unwrap();
                assert_eq!(node.getattr().await.unwrap().nlink, 1, "{look}");
            }
            backend.volume.cache.clear();
            let node = backend.resolve(handle).await.unwrap();
            assert_eq!(node.getattr().await.unwrap().nlink, 1);
            assert!(!backend.volume.counts_links.load(Ordering::Relaxed));
        });
    }

    #[test]
    fn nonzero_link_count_enables_counting() {
        without_links(false, async |backend, _| {
            let root = backend.root();
            std::fs::write(backend.volume.folder.join("g"), b"data").unwrap();
            root.getattr().await.unwrap();
            assert!(!backend.volume.counts_links.load(Ordering::Relaxed), "folders do not tell");
            root.lookup(&Cred::root(), b"g").await.unwrap();
            assert!(backend.volume.counts_links.load(Ordering::Relaxed));
        });
    }
}
