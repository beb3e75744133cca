//! Tests the features of a share's file system when the share is opened.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom, StatVfsMountFlags, XattrFlags};

use crate::error::{VfsError, VfsResult};
use crate::fnv::fnv;
use crate::quota::QuotaKind;
use crate::types::Capabilities;

use super::handle::Form;
use super::{quotactl, sys};

const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;
const EXT_MAGIC: u64 = 0xef53;
const XFS_MAGIC: u64 = 0x5846_5342;
const BTRFS_MAGIC: u64 = 0x9123_683e;
const F2FS_MAGIC: u64 = 0xf2f5_2010;
const FUSE_MAGIC: u64 = 0x6573_5546;

const LARGE_FOLDER: u64 = 8 << 20;

/// Local file systems with the kernel's own permission check.
const POSIX_MAGICS: [u64; 6] =
    [TMPFS_MAGIC, RAMFS_MAGIC, EXT_MAGIC, XFS_MAGIC, BTRFS_MAGIC, F2FS_MAGIC];

pub(super) struct Found {
    pub(super) caps: Capabilities,
    pub(super) fsid: u64,
    pub(super) uuid: Option<[u8; 16]>,
    /// Tells apart the subvolumes of one file system that share one UUID.
    pub(super) subvolume: u64,
    /// True if `fsid` was made from a number or UUID that the file system itself reports.
    pub(super) is_numbered: bool,
    pub(super) handles: Form,
    /// True if side data is kept in `trusted.` attributes; see [`super::side`].
    pub(super) trusted: bool,
    pub(super) in_memory: bool,
    /// File system type as statfs(2) reports it.
    pub(super) magic: u64,
    /// True if permission depends only on mode, owner, group and access control list.
    pub(super) posix: bool,
    /// True if two changes never get the same change time when the time was read between them (multigrain time stamps, Linux 6.13).
    pub(super) exact_times: bool,
    /// True if the file system's type is known to count the links of files.
    pub(super) counts_links: bool,
    /// True if the kernel may hold several inodes for one file, one for each name, and an inode ends when its name is removed.
    pub(super) inode_per_name: bool,
    /// True if an inode number may be given to another file while this process holds the inode: a program or another machine does
    /// not know that.
    pub(super) reuses_numbers: bool,
    /// Bytes of a folder that one call may take long to read.
    pub(super) large_folder: u64,
}

pub(super) fn probe(root: BorrowedFd<'_>, read_only: bool) -> VfsResult<Found> {
    let s = rustix::fs::fstatvfs(root)?;
    let magic = magic_of(root)?;
    let uuid = sys::fs_uuid(root);
    let id = match uuid {
        Some(uuid) => fnv(&uuid),
        None => fnv(&s.f_fsid.to_be_bytes()),
    };
    let scratch = if read_only { None } else { scratch(root) };
    let handles = match sys::name_to_handle(root) {
        Ok(h) if sys::open_by_handle(root, h.kind, &h.bytes).is_ok() => Form::Kernel,
        Ok(_) => Form::Search,
        Err(_) => Form::Birth,
    };
    let caps = Capabilities {
        name_max: u32::try_from(s.f_namemax).unwrap_or(255),
        size_max: scratch.as_ref().map_or(i64::MAX.unsigned_abs(), size_max),
        link_max: sys::link_max(root).unwrap_or(32_000),
        xattr: has_xattr(root),
        reflink: scratch.as_ref().is_some_and(|a| has_reflink(root, a)),
        clone_block: u32::try_from(s.f_bsize).unwrap_or(4096),
        deallocate: scratch.as_ref().is_some_and(has_holes),
        block: 4096,
        handles_persist: true,
        read_only,
        quotas: quotactl::enforces(root, QuotaKind::User).is_ok(),
    };
    Ok(Found {
        caps,
        fsid: id,
        uuid,
        subvolume: match uuid {
            Some(_) if magic == BTRFS_MAGIC => fnv(&s.f_fsid.to_be_bytes()),
            _ => 0,
        },
        is_numbered: uuid.is_some() || s.f_fsid != 0,
        handles,
        trusted: match &scratch {
            Some(file) => is_trusted(file.as_fd()),
            None => may_administer(),
        },
        in_memory: matches!(magic, TMPFS_MAGIC | RAMFS_MAGIC),
        magic,
        exact_times: POSIX_MAGICS.contains(&magic) && scratch.as_ref().is_some_and(has_exact_times),
        counts_links: POSIX_MAGICS.contains(&magic),
        inode_per_name: magic == FUSE_MAGIC,
        reuses_numbers: super::silent::is_served_elsewhere(magic),
        large_folder: LARGE_FOLDER,
        posix: POSIX_MAGICS.contains(&magic) && !s.f_flag.contains(StatVfsMountFlags::RDONLY),
    })
}

#[allow(clippy::cast_sign_loss)]
fn magic_of(fd: BorrowedFd<'_>) -> VfsResult<u64> {
    // `f_type` is a 32-bit number in a word whose sign depends on the platform.
    Ok(rustix::fs::fstatfs(fd)?.f_type as u64 & 0xffff_ffff)
}

/// Checks whether a descriptor is of a file of XFS.
pub(super) fn is_xfs(fd: BorrowedFd<'_>) -> VfsResult<bool> {
    Ok(magic_of(fd)? == XFS_MAGIC)
}

/// Checks for the capability that the kernel requires for `trusted.` attributes, and to set quotas.
pub(super) fn may_administer() -> bool {
    let own = rustix::thread::capabilities(None);
    own.is_ok_and(|c| c.effective.contains(rustix::thread::CapabilitySet::SYS_ADMIN))
}

/// Checks whether the process may keep `trusted.` attributes on this file.
fn is_trusted(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fsetxattr(file, c"trusted.headgate.probe", b"1", XattrFlags::empty()).is_ok()
}

/// Creates a nameless file on the volume, if the file system supports that.
fn scratch(root: BorrowedFd<'_>) -> Option<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::openat(root, c".", flags, Mode::RUSR | Mode::WUSR).ok()
}

/// Returns the largest offset that a file can have: the kernel refuses to seek beyond it.
fn size_max(file: &OwnedFd) -> u64 {
    let (mut fits, mut beyond) = (0, 1_u64 << 63);
    while beyond - fits > 1 {
        let middle = fits + (beyond - fits) / 2;
        match rustix::fs::seek(file, SeekFrom::Start(middle)) {
            Ok(_) => fits = middle,
            Err(_) => beyond = middle,
        }
    }
    fits
}

/// Changes a file repeatedly and reads its change time after each change. A clock with ticks of at least a millisecond gives two
/// changes the same time, or times that differ by whole ticks.
fn has_exact_times(file: &OwnedFd) -> bool {
    const LOOKS: usize = 9;
    const BELOW_A_TICK: Duration = Duration::from_micros(500);
    let look = |_| {
        rustix::fs::fchmod(file, Mode::RUSR | Mode::WUSR).ok()?;
        let ctime = super::stat::of_fd(file.as_fd()).ok()?.attr.ctime;
        Some(Duration::new(u64::try_from(ctime.sec).ok()?, ctime.nsec))
    };
    let Some(seen) = (0..LOOKS).map(look).collect::<Option<Vec<_>>>() else { return false };
    let steps = || seen.windows(2).map(|w| w[1].saturating_sub(w[0]));
    steps().all(|step| !step.is_zero()) && steps().any(|step| step < BELOW_A_TICK)
}

fn has_xattr(root: BorrowedFd<'_>) -> bool {
    let mut none = [0u8; 0];
    let asked = rustix::fs::fgetxattr(root, c"user.headgate.probe", &mut none);
    !matches!(asked.map_err(VfsError::from), Err(VfsError::NotSupported))
}

fn has_reflink(root: BorrowedFd<'_>, a: &OwnedFd) -> bool {
    scratch(root).is_some_and(|b| sys::clone_range(b.as_fd(), 0, a.as_fd(), 0, 0).is_ok())
}

fn has_holes(a: &OwnedFd) -> bool {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(a, flags, 0, 4096).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stamp_reported_exact_is_exact() {
        let dir = tempfile::tempdir().unwrap();
        let root = rustix::fs::open(dir.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
        let Some(file) = scratch(root.as_fd()).filter(has_exact_times) else {
            println!("change times go by ticks here");
            return;
        };
        let look = || super::super::stat::of_fd(file.as_fd()).unwrap().attr.ctime;
        let mut last = look();
        for round in 0..2000 {
            rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR).unwrap();
            let now = look();
            assert!(now > last, "{round}: {now:?} after {last:?}");
            last = now;
        }
    }
}
