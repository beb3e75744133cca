//! File systems that are mounted below a share.
//!
//! *Operation.* Where a share crosses into them, each mount is a [`Volume`] with an `fsid` and handles that say so, made when a
//! look-up or a handle first leads there. The kernel judges callers there as everywhere else, and so do lists. Names do not move
//! between volumes ([`VfsError::CrossDevice`]).
//!
//! *No loops.* A mount that shows a part of the share again, or of another mount below it, or a folder that the share is below, is
//! refused with [`VfsError::Access`]: one file would have two records, of which neither knew the locks of the other. So are the
//! kernel's own file systems ([`KERNELS_OWN`]), and files that are mount points.
//!
//! *Coming and going.* A volume lives while somebody uses a file in it, or has lately; until then the host says "busy" to a plain
//! `umount`. What was unmounted all the same (`umount -l`) is [`VfsError::Stale`]. Handles name a file system by its UUID or by
//! what statfs(2) says, so that they hold again when it is mounted at its place again, also in another run.
//!
//! *Memory.* [`MOUNTS_MAX`] volumes, each with two descriptors.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use mutex::locked;
use rustix::fs::{Mode, OFlags, RawDir, ResolveFlags};

use super::stat::{self, Stat};
use super::{LocalConfig, Volume, handle, sys};
use crate::engine::limits::LISTING;
use crate::error::{VfsError, VfsResult};
use crate::types::{Handle, Kind};

/// Mounts below one share that are served at once.
const MOUNTS_MAX: usize = 256;
/// Least time between two looks at the host's mounts for a handle that no volume knows.
const PAUSE: Duration = Duration::from_secs(1);
/// Entries of a folder that are looked at for the number of the one that is covered.
const ENTRIES_MAX: usize = 1 << 16;

const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// File systems that show the kernel or other programs, not files (proc(5), `fs/*/` of Linux).
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

/// Where a share ends: what all its volumes have in common.
pub(super) struct Border {
    /// The folder of the share.
    pub(super) root: OwnedFd,
    pub(super) dev: u64,
    pub(super) ino: u64,
    /// Mounts are served.
    crosses: AtomicBool,
    /// Folders of other shares.
    others: Mutex<Vec<PathBuf>>,
    /// As the share was opened.
    config: LocalConfig,
    top: OnceLock<Weak<Volume>>,
    volumes: Mutex<Volumes>,
}

#[derive(Default)]
struct Volumes {
    /// By the kernel's number of the mount, which nobody else gets while its volume lives.
    by_mount: HashMap<u64, Weak<Volume>>,
    /// When the host's mounts were last looked through.
    looked: Option<Instant>,
}

impl Border {
    /// Around this folder, of which a readable descriptor is given.
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
        })
    }

    /// Mounts are served.
    pub(super) fn crosses(&self) -> bool {
        self.crosses.load(Ordering::Relaxed)
    }

    /// Serves mounts or not, but those in which other shares have folders.
    pub(super) fn set_cross(&self, crosses: bool, others: Vec<PathBuf>) {
        *locked(&self.others) = others;
        self.crosses.store(crosses, Ordering::Relaxed);
    }

    /// The volume of the share's own folder.
    pub(super) fn set_top(&self, top: &Arc<Volume>) {
        let _ = self.top.set(Arc::downgrade(top));
    }

    fn top(&self) -> Option<Arc<Volume>> {
        self.top.get()?.upgrade()
    }

    /// Another share has files of the mount at this path: a folder in it, or one below the share's own (`root`) in which it is.
    fn is_of_another(&self, root: &[u8], mount: &[u8]) -> bool {
        locked(&self.others).iter().any(|other| {
            let other = other.as_os_str().as_bytes();
            is_below(other, mount)
                || other != root && is_below(other, root) && is_below(mount, other)
        })
    }

    /// The volumes of mounts that are in use.
    pub(super) fn crossed(&self) -> Vec<Arc<Volume>> {
        let mut volumes = locked(&self.volumes);
        volumes.by_mount.retain(|_, volume| volume.strong_count() > 0);
        volumes.by_mount.values().filter_map(Weak::upgrade).collect()
    }

    /// The volume of what was just opened in another one.
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
        let known = locked(&self.volumes).by_mount.get(&seen.mount).and_then(Weak::upgrade);
        if let Some(volume) = known {
            return Ok(volume);
        }
        let volume = self.open(fd, seen)?;
        let mut volumes = locked(&self.volumes);
        volumes.by_mount.retain(|_, volume| volume.strong_count() > 0);
        if volumes.by_mount.len() >= MOUNTS_MAX {
            return Err(VfsError::Access);
        }
        // Another may have been as quick.
        let entered = volumes.by_mount.entry(seen.mount).or_default();
        Ok(entered.upgrade().unwrap_or_else(|| {
            *entered = Arc::downgrade(&volume);
            volume
        }))
    }

    /// Opens the volume of the mount in which this is: its root is at the mount's top.
    fn open(self: &Arc<Self>, fd: BorrowedFd<'_>, seen: &Stat) -> VfsResult<Arc<Volume>> {
        let top = self.top().ok_or(VfsError::Stale)?;
        let all = mounted();
        let its = all.iter().find(|m| m.id == seen.mount).ok_or(VfsError::Access)?;
        if seen.attr.kind != Kind::Dir || is_kernels_own(&its.kind) {
            return Err(VfsError::Access);
        }
        let root = top.reopen(fd, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let path = top.path_of(root.as_fd())?;
        // A handle or `..` may have led into the middle of it.
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
        Volume::open(config, root, (self.clone(), Some(covered)), |_| {})
    }

    /// The volume that gave this handle, where it is mounted.
    pub(super) fn volume_of(self: &Arc<Self>, handle: &Handle) -> Option<Arc<Volume>> {
        let has_given = |volume: &Arc<Volume>| handle::has_tag(handle, volume.tag);
        if let Some(known) = self.crossed().into_iter().find(has_given) {
            return Some(known);
        }
        if !self.crosses() {
            return None;
        }
        {
            let mut volumes = locked(&self.volumes);
            if volumes.looked.is_some_and(|looked| looked.elapsed() < PAUSE) {
                return None;
            }
            volumes.looked = Some(Instant::now());
        }
        let own = self.top()?.path_of(self.root.as_fd()).ok()?;
        let below = mounted_below(&own).into_iter().filter(|m| !is_kernels_own(&m.kind));
        below.filter_map(|m| self.enter(&own, &m.at).ok()).find(has_given)
    }

    fn enter(self: &Arc<Self>, own: &[u8], at: &Path) -> VfsResult<Arc<Volume>> {
        let path = at.as_os_str().as_bytes().strip_prefix(own).ok_or(VfsError::NotFound)?;
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let fd = rustix::fs::openat2(&self.root, path, PATH, Mode::empty(), within)?;
        self.volume(fd.as_fd(), &stat::of_fd(fd.as_fd())?)
    }
}

impl Volume {
    /// The folder is in this volume, or the volume's root is in it: both show the same files.
    fn overlaps(&self, folder: BorrowedFd<'_>) -> bool {
        let (Ok(its), Ok(own)) = (stat::of_fd(folder), stat::of_fd(self.root.as_fd())) else {
            return true;
        };
        let uuids = (sys::fs_uuid(folder), sys::fs_uuid(self.root.as_fd()));
        let is_one = its.dev == own.dev || uuids.0.is_some() && uuids.0 == uuids.1;
        if !is_one {
            return false;
        }
        // Where the folder is by the way of this mount.
        let seen = sys::name_to_handle(folder)
            .and_then(|h| sys::open_by_handle(self.root.as_fd(), h.kind, &h.bytes))
            .and_then(|fd| self.path_of(fd.as_fd()));
        let (Ok(there), Ok(here)) = (seen, self.path_of(self.root.as_fd())) else { return true };
        is_below(&there, &here) || is_below(&here, &there)
    }
}

/// A mount at this path is below this folder. One that was unmounted has another path.
pub(super) fn is_mount_below(mount: &[u8], folder: &[u8]) -> bool {
    mount != folder && mount != b"/" && is_below(mount, folder)
}

/// One path is the other or below it.
fn is_below(path: &[u8], folder: &[u8]) -> bool {
    let rest = path.strip_prefix(folder);
    folder == b"/" || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// The number of the folder that a mount covers, as the folder above lists it.
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
    /// The kernel's number of it.
    id: u64,
    /// Where it is.
    at: PathBuf,
    /// The type of its file system.
    kind: String,
}

/// A file system of this type shows the kernel or other programs, and is never served below a share.
pub fn is_kernels_own(kind: &str) -> bool {
    KERNELS_OWN.contains(&kind)
}

fn mounted_below(folder: &[u8]) -> Vec<Mount> {
    let is_inside = |m: &Mount| {
        let at = m.at.as_os_str().as_bytes();
        at != folder && is_below(at, folder)
    };
    mounted().into_iter().filter(is_inside).collect()
}

/// All mounts that this process sees. Of several at one place the last covers the others.
fn mounted() -> Vec<Mount> {
    let text = std::fs::read("/proc/thread-self/mountinfo").unwrap_or_default();
    let mut all: Vec<Mount> = Vec::new();
    for mount in text.split(|b| *b == b'\n').filter_map(parse) {
        all.retain(|earlier| earlier.at != mount.at);
        all.push(mount);
    }
    all
}

/// A line of proc_pid_mountinfo(5).
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let at = PathBuf::from(OsString::from_vec(unescaped(fields.nth(3)?)));
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    let kind = String::from_utf8_lossy(kind);
    // What a program in user space calls itself is not asked for.
    let kind = kind.split('.').next().unwrap_or_default().to_owned();
    Some(Mount { id, at, kind })
}

/// Blanks, line ends and backslashes are written as three octal digits.
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
    fn paths_below_folder_are_told() {
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
