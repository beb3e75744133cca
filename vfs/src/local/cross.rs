//! File systems mounted below a share.
//!
//! *Operation.* If a share crosses mount points, each mount is a [`Volume`] with a separate `fsid` and distinct handles, created
//! when a look-up or handle first leads there. Permission checks are the same as elsewhere. Names cannot be moved between volumes
//! ([`VfsError::CrossDevice`]).
//!
//! *No loops.* A mount that shows a part of the share again, or of another mount below it, or a folder that contains the share, is
//! refused with [`VfsError::Access`]: its files would have two records with separate locks. Kernel file systems ([`KERNELS_OWN`])
//! and files that are mount points are refused, too. A file with several hard links can still have two records: one link in the
//! share, and another in a folder outside it that is mounted below it.
//!
//! *Handles.* For a handle of a volume that is not in use, the share examines all mounts below it. It remembers their tags, and
//! keeps the volumes until the janitor's next round. A handle is [`VfsError::Stale`] only after an examination that began after the
//! request, or with a mount table that has not changed since according to the kernel; [`VfsError::Delay`] while some mount could
//! not be entered.
//!
//! *Mounts that may stop responding.* A mount served by another program or machine, or below such a mount, is entered on a separate
//! thread. Requests wait for that up to [`PATIENCE`], and then get [`VfsError::Delay`].
//!
//! *Unmounting.* A volume exists while a file in it is in use, or was recently; until then a plain `umount` on the host fails with
//! "busy". After a lazy unmount (`umount -l`) its files are [`VfsError::Stale`]. Handles identify a file system by its UUID or its
//! statfs(2) data, so they are valid again after it is mounted at the same path, also in another run.
//!
//! *Memory.* [`MOUNTS_MAX`] volumes, each with two descriptors.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use mutex::locked;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, RawDir, ResolveFlags};

use super::descriptors::HeldDescriptors;
use super::past::Snapshots;
use super::stat::{self, Stat};
use super::{LocalConfig, Volume, handle, silent, sys};
use crate::engine::far;
use crate::engine::limits::LISTING;
use crate::error::{VfsError, VfsResult};
use crate::types::{Handle, Kind};

/// Mounts below one share that are served concurrently.
const MOUNTS_MAX: usize = 256;
/// Least time between two examinations of the same mounts while some cannot be entered.
const PAUSE: Duration = Duration::from_secs(1);
/// How long requests wait for a mount that another program or machine serves.
const PATIENCE: Duration = Duration::from_secs(2);
/// Requests that wait for mounts of one share concurrently.
const WAITERS_MAX: usize = 32;
/// Volumes kept after an examination although no file in them is in use.
const RECENT_MAX: usize = 64;
/// Entries of a folder searched for the number of a covered one.
const ENTRIES_MAX: usize = 1 << 16;

const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// File systems of the kernel or of other programs that do not contain files (proc(5), `fs/*/` of Linux).
const KERNELS_OWN: [&str; 22] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nfsd",
    "nsfs",
    "proc",
    "pstore",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "sysfs",
    "tracefs",
];

/// The boundary of a share: the state shared by all its volumes.
pub(super) struct Border {
    /// The folder of the share.
    pub(super) root: OwnedFd,
    pub(super) dev: u64,
    pub(super) ino: u64,
    /// True if file systems mounted below the folder are served.
    crosses: AtomicBool,
    /// Folders of other shares.
    others: Mutex<Vec<PathBuf>>,
    /// The configuration of the share.
    config: LocalConfig,
    top: OnceLock<Weak<Volume>>,
    volumes: Mutex<Volumes>,
    survey: Mutex<Survey>,
    /// Locked by the request that examines the mounts.
    looking: Mutex<()>,
    /// The snapshots of the share.
    pub(super) snapshots: Snapshots,
    /// Entries in progress into mounts that may stop responding, by mount number.
    entries: Mutex<HashMap<u64, Arc<Entry>>>,
    waiters: AtomicUsize,
}

#[derive(Default)]
struct Volumes {
    /// Keyed by the kernel's mount number, which is not reused while the volume exists.
    by_mount: HashMap<u64, Weak<Volume>>,
    /// Volumes that handles have referred to recently.
    recent: Vec<Arc<Volume>>,
}

impl Volumes {
    fn keep(&mut self, volume: &Arc<Volume>) {
        let is_kept = self.recent.iter().any(|kept| Arc::ptr_eq(kept, volume));
        if !is_kept && self.recent.len() < RECENT_MAX {
            self.recent.push(volume.clone());
        }
    }
}

/// The result of the last examination of the mounts below the share.
#[derive(Default)]
struct Survey {
    watch: Option<Watch>,
    began: Option<Instant>,
    by_tag: HashMap<[u8; 4], PathBuf>,
    /// Each mount was entered, or is never served.
    is_complete: bool,
}

impl Survey {
    /// True if no file system was mounted or unmounted since.
    fn is_current(&mut self) -> bool {
        let is_current = self.watch.as_ref().is_some_and(Watch::is_unchanged);
        if !is_current {
            self.watch = None;
        }
        is_current
    }

    fn is_new(&self) -> bool {
        self.began.is_some_and(|began| began.elapsed() < PAUSE)
    }
}

/// The kernel's mount table, opened before it was read.
struct Watch {
    table: File,
    _held: HeldDescriptors,
}

impl Watch {
    /// The kernel reports a change of the table once to each descriptor (proc_pid_mountinfo(5)).
    fn is_unchanged(&self) -> bool {
        let changed = PollFlags::ERR | PollFlags::PRI;
        let mut polled = [PollFd::new(&self.table, PollFlags::PRI)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&at_once)).is_ok() && !polled[0].revents().intersects(changed)
    }
}

/// An entry in progress into a mount that may stop responding.
struct Entry {
    began: Instant,
    found: Mutex<Option<VfsResult<Arc<Volume>>>>,
    is_done: Condvar,
}

impl Entry {
    /// Waits for the volume, or returns [`VfsError::Delay`] if the entry takes too long.
    fn wait(&self) -> VfsResult<Arc<Volume>> {
        let left = PATIENCE.saturating_sub(self.began.elapsed());
        let found = locked(&self.found);
        let waited = self.is_done.wait_timeout_while(found, left, |found| found.is_none());
        let (found, _) = waited.unwrap_or_else(PoisonError::into_inner);
        found.clone().unwrap_or(Err(VfsError::Delay))
    }
}

/// Ends an entry, even if its job did not run.
struct EndOfEntry {
    border: Arc<Border>,
    mount: u64,
    entry: Arc<Entry>,
}

impl Drop for EndOfEntry {
    fn drop(&mut self) {
        locked(&self.border.entries).remove(&self.mount);
        locked(&self.entry.found).get_or_insert(Err(VfsError::Delay));
        self.entry.is_done.notify_all();
    }
}

impl Border {
    /// Creates the boundary of this folder, given a readable descriptor.
    pub(super) fn new(root: BorrowedFd<'_>, stat: &Stat, config: &LocalConfig) -> VfsResult<Self> {
        Ok(Self {
            root: root.try_clone_to_owned()?,
            dev: stat.dev,
            ino: stat.ino,
            crosses: AtomicBool::new(config.cross),
            others: Mutex::default(),
            config: config.clone(),
            top: OnceLock::new(),
            volumes: Mutex::default(),
            survey: Mutex::default(),
            looking: Mutex::default(),
            snapshots: Snapshots::default(),
            entries: Mutex::default(),
            waiters: AtomicUsize::new(0),
        })
    }

    /// The settings of the share's folder, for another one.
    pub(super) fn config(&self) -> LocalConfig {
        self.config.clone()
    }

    /// True if mounts are served.
    pub(super) fn crosses(&self) -> bool {
        self.crosses.load(Ordering::Relaxed)
    }

    /// Enables or disables mounts, except those in which other shares have folders.
    pub(super) fn set_cross(&self, crosses: bool, others: Vec<PathBuf>) {
        *locked(&self.others) = others;
        self.crosses.store(crosses, Ordering::Relaxed);
    }

    /// Sets the volume of the share's own folder.
    pub(super) fn set_top(&self, top: &Arc<Volume>) {
        let _ = self.top.set(Arc::downgrade(top));
    }

    fn top(&self) -> Option<Arc<Volume>> {
        self.top.get()?.upgrade()
    }

    /// True if another share has files of the mount at this path: a folder in it, or a folder below the share's own (`root`) that
    /// contains it.
    fn is_of_another(&self, root: &[u8], mount: &[u8]) -> bool {
        locked(&self.others).iter().any(|other| {
            let other = other.as_os_str().as_bytes();
            is_below(other, mount)
                || other != root && is_below(other, root) && is_below(mount, other)
        })
    }

    /// The volumes of mounts in use.
    pub(super) fn crossed(&self) -> Vec<Arc<Volume>> {
        let mut volumes = locked(&self.volumes);
        volumes.by_mount.retain(|_, volume| volume.strong_count() > 0);
        volumes.by_mount.values().filter_map(Weak::upgrade).collect()
    }

    /// Releases the volumes kept although no file in them is in use.
    pub(super) fn forget_recent(&self) {
        let recent = std::mem::take(&mut locked(&self.volumes).recent);
        drop(recent);
    }

    fn known(&self, mount: u64) -> Option<Arc<Volume>> {
        locked(&self.volumes).by_mount.get(&mount).and_then(Weak::upgrade)
    }

    /// The volume of an object that was opened through another one.
    pub(super) fn volume(
        self: &Arc<Self>,
        fd: BorrowedFd<'_>,
        seen: &Stat,
    ) -> VfsResult<Arc<Volume>> {
        if let Some(top) = self.top().filter(|top| top.mount == seen.mount) {
            return Ok(top);
        }
        if !self.crosses() {
            return Err(VfsError::Access);
        }
        if let Some(volume) = self.known(seen.mount) {
            return Ok(volume);
        }
        let all = mounted();
        let its = all.iter().find(|m| m.id == seen.mount).ok_or(VfsError::Access)?.clone();
        if is_kernels_own(&its.kind) {
            return Err(VfsError::Access);
        }
        if !its.may_fall_silent(&all) {
            return self.open(fd, seen, &its);
        }
        let (fd, seen) = (fd.try_clone_to_owned()?, *seen);
        let entry = self.start(its.id, move |border| border.open(fd.as_fd(), &seen, &its));
        self.waiting(|| entry.wait())
    }

    /// Opens the volume on a separate thread, unless another request has begun to.
    fn start(
        self: &Arc<Self>,
        mount: u64,
        open: impl FnOnce(&Arc<Self>) -> VfsResult<Arc<Volume>> + Send + 'static,
    ) -> Arc<Entry> {
        let entry = {
            let mut entries = locked(&self.entries);
            if let Some(entry) = entries.get(&mount) {
                return entry.clone();
            }
            let entry = Arc::new(Entry {
                began: Instant::now(),
                found: Mutex::default(),
                is_done: Condvar::new(),
            });
            entries.insert(mount, entry.clone());
            entry
        };
        let end = EndOfEntry { border: self.clone(), mount, entry: entry.clone() };
        // The thread ends after the job, so another mount never delays an engine.
        far::engine().dispose(move || {
            let found = open(&end.border);
            *locked(&end.entry.found) = Some(found);
        });
        entry
    }

    /// Waits on behalf of a request, while another worker of the runtime takes over.
    fn waiting<T>(&self, wait: impl FnOnce() -> VfsResult<T>) -> VfsResult<T> {
        let is_free = self.waiters.fetch_add(1, Ordering::Relaxed) < WAITERS_MAX;
        let got = if is_free { far::in_place(wait) } else { Err(VfsError::Delay) };
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        got
    }

    /// Enters a new volume, unless another request was faster. [`VfsError::Delay`] if another volume was added that may show the
    /// same files and is not among those `compared` with it.
    fn add(&self, volume: Arc<Volume>, compared: &[Arc<Volume>]) -> VfsResult<Arc<Volume>> {
        let mut volumes = locked(&self.volumes);
        if volumes.by_mount.len() >= MOUNTS_MAX {
            volumes.recent.clear();
        }
        volumes.by_mount.retain(|_, volume| volume.strong_count() > 0);
        if volumes.by_mount.len() >= MOUNTS_MAX {
            return Err(VfsError::Access);
        }
        let is_new = |other: &Arc<Volume>| {
            let is_one = other.root_dev == volume.root_dev
                || volume.uuid.is_some() && other.uuid == volume.uuid;
            is_one
                && other.mount != volume.mount
                && !compared.iter().any(|known| Arc::ptr_eq(known, other))
        };
        if volumes.by_mount.values().filter_map(Weak::upgrade).any(|other| is_new(&other)) {
            return Err(VfsError::Delay);
        }
        let entered = volumes.by_mount.entry(volume.mount).or_default();
        Ok(entered.upgrade().unwrap_or_else(|| {
            *entered = Arc::downgrade(&volume);
            volume
        }))
    }

    /// Opens the volume of the mount that contains this: its root is the root of the mount.
    fn open(
        self: &Arc<Self>,
        fd: BorrowedFd<'_>,
        seen: &Stat,
        its: &Mount,
    ) -> VfsResult<Arc<Volume>> {
        let top = self.top().ok_or(VfsError::Stale)?;
        if seen.attr.kind != Kind::Dir {
            return Err(VfsError::Access);
        }
        let root = top.reopen(fd, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let path = top.path_of(root.as_fd())?;
        // A handle or `..` may have led into the middle of the mount.
        if its.at.as_os_str().as_bytes() != path {
            return Err(VfsError::Access);
        }
        let own = top.path_of(self.root.as_fd())?;
        if !is_mount_below(&path, &own) || self.is_of_another(&own, &path) {
            return Err(VfsError::Access);
        }
        let others = self.crossed();
        if let Some(twice) = [&top].into_iter().chain(&others).find(|v| v.overlaps(root.as_fd())) {
            tracing::warn!(
                mount = %its.at.display(), folder = %twice.folder.display(),
                "a mount below a share is not served: it shows the files of this folder again"
            );
            return Err(VfsError::Access);
        }
        let covered = covered(root.as_fd(), &path).unwrap_or(seen.ino);
        let config = LocalConfig { root: its.at.clone(), ..self.config.clone() };
        self.add(Volume::open(config, root, (self.clone(), Some(covered)), |_| {})?, &others)
    }

    /// The volume in use to which this handle belongs. Chooses the one that is still mounted if two exist, for example after
    /// `umount -l`.
    pub(super) fn held(&self, handle: &Handle) -> Option<Arc<Volume>> {
        let mut given = self.crossed();
        given.retain(|volume| handle::has_tag(handle, volume.tag));
        let last = given.pop()?;
        if given.is_empty() || last.is_mounted() {
            return Some(last);
        }
        given.into_iter().find(|volume| volume.is_mounted())
    }

    /// The volume to which this handle belongs, if mounted. [`VfsError::Stale`] is certain.
    pub(super) fn volume_of(self: &Arc<Self>, handle: &Handle) -> VfsResult<Arc<Volume>> {
        if let Some(known) = self.held(handle) {
            return Ok(known);
        }
        if !self.crosses() {
            return Err(VfsError::Stale);
        }
        let tag = handle::tag_of(handle).ok_or(VfsError::BadHandle)?;
        self.waiting(|| {
            let _one = locked(&self.looking);
            // Another request has examined the mounts meanwhile.
            if let Some(known) = self.held(handle) {
                return Ok(known);
            }
            let mut survey = locked(&self.survey);
            if survey.is_current() && !survey.by_tag.contains_key(&tag) {
                if survey.is_complete {
                    return Err(VfsError::Stale);
                }
                if survey.is_new() {
                    return Err(VfsError::Delay);
                }
            }
            let at = survey.by_tag.get(&tag).cloned();
            drop(survey);
            self.at_its_place(at, tag).map_or_else(|| self.look(tag), Ok)
        })
    }

    /// The volume of this tag at the path of the last examination, without examining others.
    fn at_its_place(self: &Arc<Self>, at: Option<PathBuf>, tag: [u8; 4]) -> Option<Arc<Volume>> {
        let (at, all) = (at?, mounted());
        let own = self.top()?.path_of(self.root.as_fd()).ok()?;
        let its = all.iter().find(|m| m.at == at)?;
        let found = self.enter(&own, its, &all).wait();
        let volume = found.ok().filter(|volume| volume.tag == tag)?;
        locked(&self.volumes).keep(&volume);
        Some(volume)
    }

    /// Examines all mounts below the share for the volume of this tag.
    fn look(self: &Arc<Self>, tag: [u8; 4]) -> VfsResult<Arc<Volume>> {
        let own = self.top().ok_or(VfsError::Stale)?.path_of(self.root.as_fd())?;
        let began = Some(Instant::now());
        let (watch, all) = watched();
        let is_served = |m: &&Mount| m.is_inside(&own) && !is_kernels_own(&m.kind);
        let entries = all.iter().filter(is_served).map(|m| (m, self.enter(&own, m, &all)));
        // All mounts that may stop responding are entered concurrently.
        let entries: Vec<(&Mount, Found)> = entries.collect();
        let (mut by_tag, mut is_complete, mut found) = (HashMap::new(), watch.is_some(), None);
        for (mount, entry) in entries {
            match entry.wait() {
                Ok(volume) => {
                    by_tag.insert(volume.tag, mount.at.clone());
                    locked(&self.volumes).keep(&volume);
                    found = found.or_else(|| Some(volume).filter(|volume| volume.tag == tag));
                }
                // This file system is never served.
                Err(VfsError::Access) => {}
                Err(_) => is_complete = false,
            }
        }
        *locked(&self.survey) = Survey { watch, began, by_tag, is_complete };
        found.ok_or(if is_complete { VfsError::Stale } else { VfsError::Delay })
    }

    /// Enters a mount below the share, whose path is `own`, by its path.
    fn enter(self: &Arc<Self>, own: &[u8], mount: &Mount, all: &[Mount]) -> Found {
        if let Some(known) = self.known(mount.id) {
            return Found::Now(Ok(known));
        }
        let (own, its) = (own.to_vec(), mount.clone());
        let open = move |border: &Arc<Self>| border.open_at(&own, &its);
        if mount.may_fall_silent(all) {
            return Found::Later(self.start(mount.id, open));
        }
        Found::Now(open(self))
    }

    fn open_at(self: &Arc<Self>, own: &[u8], its: &Mount) -> VfsResult<Arc<Volume>> {
        let path = its.at.as_os_str().as_bytes().strip_prefix(own).ok_or(VfsError::NotFound)?;
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let fd = rustix::fs::openat2(&self.root, path, PATH, Mode::empty(), within)?;
        let seen = stat::at_hand(fd.as_fd())?;
        // Another file system was mounted there meanwhile.
        if seen.mount != its.id {
            return Err(VfsError::Delay);
        }
        self.open(fd.as_fd(), &seen, its)
    }
}

/// A volume, or the entry in progress into it.
enum Found {
    Now(VfsResult<Arc<Volume>>),
    Later(Arc<Entry>),
}

impl Found {
    fn wait(self) -> VfsResult<Arc<Volume>> {
        match self {
            Self::Now(found) => found,
            Self::Later(entry) => entry.wait(),
        }
    }
}

impl Volume {
    /// True if it is still mounted below the share, or is the share's own.
    pub(super) fn is_mounted(&self) -> bool {
        let paths = || {
            let own = self.path_of(self.root.as_fd())?;
            Ok::<_, VfsError>((own, self.path_of(self.border.root.as_fd())?))
        };
        self.covers.is_none() || paths().is_ok_and(|(own, share)| is_mount_below(&own, &share))
    }

    /// True if the folder is in this volume, or the volume's root is below the folder: both show the same files.
    fn overlaps(&self, folder: BorrowedFd<'_>) -> bool {
        let Ok(its) = stat::at_hand(folder) else { return true };
        let is_one =
            its.dev == self.root_dev || self.uuid.is_some() && self.uuid == sys::fs_uuid(folder);
        if !is_one {
            return false;
        }
        // The path of the folder through this mount.
        let seen = sys::name_to_handle(folder)
            .and_then(|h| sys::open_by_handle(self.root.as_fd(), h.kind, &h.bytes))
            .and_then(|fd| self.path_of(fd.as_fd()));
        let (Ok(there), Ok(here)) = (seen, self.path_of(self.root.as_fd())) else { return true };
        is_below(&there, &here) || is_below(&here, &there)
    }
}

/// True if a mount at this path is below this folder. An unmounted one has a different path.
pub(super) fn is_mount_below(mount: &[u8], folder: &[u8]) -> bool {
    mount != folder && mount != b"/" && is_below(mount, folder)
}

/// True if one path equals the other or is below it.
fn is_below(path: &[u8], folder: &[u8]) -> bool {
    let rest = path.strip_prefix(folder);
    folder == b"/" || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// The inode number of the folder that a mount covers, from the listing of its parent.
fn covered(root: BorrowedFd<'_>, path: &[u8]) -> Option<u64> {
    let name = path.rsplit(|b| *b == b'/').next()?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = rustix::fs::openat(root, c"..", flags, Mode::empty()).ok()?;
    let mut room: Vec<u8> = Vec::with_capacity(LISTING);
    let mut raw = RawDir::new(&above, room.spare_capacity_mut());
    for _ in 0..ENTRIES_MAX {
        let entry = raw.next()?.ok()?;
        if entry.file_name().to_bytes() == name {
            return Some(entry.ino());
        }
    }
    None
}

/// A mount of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    /// The kernel's mount number.
    id: u64,
    /// The mount point.
    at: PathBuf,
    /// The type of its file system.
    kind: String,
}

/// True if file systems of this type belong to the kernel or other programs, so they are never served below a share.
pub fn is_kernels_own(kind: &str) -> bool {
    KERNELS_OWN.contains(&kind)
}

impl Mount {
    fn is_inside(&self, folder: &[u8]) -> bool {
        let at = self.at.as_os_str().as_bytes();
        at != folder && is_below(at, folder)
    }

    /// True if its file system, or one on the path to it, is served by another program or machine.
    fn may_fall_silent(&self, all: &[Self]) -> bool {
        let at = self.at.as_os_str().as_bytes();
        let is_on_the_way = |m: &&Self| is_below(at, m.at.as_os_str().as_bytes());
        all.iter().filter(is_on_the_way).any(|m| silent::is_far(&m.kind))
    }
}

/// True if another program or machine serves the file system of this path, or one on the way to it. Reads the table of mounts
/// only.
pub(super) fn may_fall_silent(path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    let is_on_the_way = |mount: &Mount| {
        let at = mount.at.as_os_str().as_bytes();
        at == path || is_below(path, at)
    };
    mounted().iter().any(|mount| silent::is_far(&mount.kind) && is_on_the_way(mount))
}

/// All mounts visible to this process.
fn mounted() -> Vec<Mount> {
    watched().1
}

/// All mounts, with a watch for later changes. The last of several mounts at one path covers the others.
fn watched() -> (Option<Watch>, Vec<Mount>) {
    let mut text = Vec::new();
    let watch = File::open("/proc/thread-self/mountinfo").ok().and_then(|mut table| {
        table.read_to_end(&mut text).ok()?;
        Some(Watch { table, _held: HeldDescriptors::count(1) })
    });
    let mut all: Vec<Mount> = Vec::new();
    for mount in text.split(|b| *b == b'\n').filter_map(parse) {
        all.retain(|earlier| earlier.at != mount.at);
        all.push(mount);
    }
    (watch, all)
}

/// Parses a line of proc_pid_mountinfo(5).
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let at = PathBuf::from(OsString::from_vec(unescaped(fields.nth(3)?)));
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    let kind = String::from_utf8_lossy(kind);
    // The subtype, which a program in user space chooses, is ignored.
    let kind = kind.split('.').next().unwrap_or_default().to_owned();
    Some(Mount { id, at, kind })
}

/// Decodes blanks, line ends and backslashes, which are written as three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, more)) = rest.split_first() {
        let octal = more
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        out.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &more[3..] } else { more };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_lines_are_read() {
        let line =
            br"36 35 98:0 /mnt1 /srv/a\040b\134 rw,noatime master:1 - fuse.mergerfs /dev/x rw";
        let mount = parse(line).unwrap();
        assert_eq!((mount.id, &*mount.kind), (36, "fuse"));
        assert_eq!(mount.at, PathBuf::from("/srv/a b\\"));
        let plain = parse(b"1 0 8:1 / / rw - ext4 /dev/sda1 rw").unwrap();
        assert_eq!((plain.at, plain.kind), (PathBuf::from("/"), "ext4".into()));
        for cut in 0..line.len() - 24 {
            let _ = parse(&line[..cut]);
        }
        assert_eq!(parse(b"x 0 8:1 / / rw - ext4 /dev/sda1 rw"), None);
        assert_eq!(unescaped(br"\0"), br"\0");
    }

    #[test]
    fn paths_below_folder_are_recognized() {
        let table: [(&[u8], &[u8], bool); 6] = [
            (b"/a/b", b"/a", true),
            (b"/a", b"/a", true),
            (b"/ab", b"/a", false),
            (b"/a", b"/a/b", false),
            (b"/a", b"/", true),
            (b"/", b"/a", false),
        ];
        for (path, folder, want) in table {
            assert_eq!(is_below(path, folder), want, "{path:?} {folder:?}");
        }
    }
}
