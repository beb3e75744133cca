//! Attributes as the kernel reports them.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, Statx, StatxAttributes, StatxFlags, StatxTimestamp};

use crate::error::{VfsError, VfsResult};
use crate::types::{Attr, Kind, Time};

/// One answer of `statx`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stat {
    pub(super) dev: u64,
    pub(super) ino: u64,
    pub(super) mount: u64,
    /// `fsid` still holds the device number and `change` the change time in nanoseconds; the record replaces both.
    pub(super) attr: Attr,
}

fn mask() -> StatxFlags {
    StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID
}

/// Returns the attributes of an open file of any kind.
pub(super) fn of_fd(fd: BorrowedFd<'_>) -> VfsResult<Stat> {
    convert(&rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, mask())?)
}

/// Returns the attributes of an open file that the kernel already holds, without asking the program or machine that serves the file
/// system.
pub(super) fn at_hand(fd: BorrowedFd<'_>) -> VfsResult<Stat> {
    convert(&rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, mask())?)
}

/// Like [`at_hand`], for a name in a directory.
pub(super) fn name_at_hand(dir: BorrowedFd<'_>, name: &[u8]) -> VfsResult<Stat> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    convert(&rustix::fs::statx(dir, name, flags, mask())?)
}

/// Returns the attributes of a name in a directory; a symbolic link is not followed.
pub(super) fn of_name(dir: BorrowedFd<'_>, name: &[u8]) -> VfsResult<Stat> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    convert(&rustix::fs::statx(dir, name, flags, mask())?)
}

fn time(t: &StatxTimestamp) -> Time {
    Time { sec: t.tv_sec, nsec: t.tv_nsec }
}

pub(super) fn kind_of(t: FileType) -> Option<Kind> {
    Some(match t {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        FileType::BlockDevice => Kind::Block,
        FileType::CharacterDevice => Kind::Char,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::Unknown => return None,
    })
}

/// Returns the change attribute for a time: nanoseconds since 1970.
fn change_of(t: &StatxTimestamp) -> u64 {
    let ns = i128::from(t.tv_sec) * 1_000_000_000 + i128::from(t.tv_nsec);
    u64::try_from(ns).unwrap_or(0)
}

fn convert(x: &Statx) -> VfsResult<Stat> {
    let kind = kind_of(FileType::from_raw_mode(u32::from(x.stx_mode))).ok_or(VfsError::Io)?;
    let dev = u64::from(x.stx_dev_major) << 32 | u64::from(x.stx_dev_minor);
    let born = x.stx_mask & StatxFlags::BTIME.bits() != 0;
    let sealed = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
    let attr = Attr {
        kind,
        mode: u32::from(x.stx_mode) & 0o7777,
        nlink: x.stx_nlink,
        uid: x.stx_uid,
        gid: x.stx_gid,
        size: x.stx_size,
        used: x.stx_blocks.saturating_mul(512),
        rdev: (x.stx_rdev_major, x.stx_rdev_minor),
        fsid: dev,
        fileid: x.stx_ino,
        atime: time(&x.stx_atime),
        mtime: time(&x.stx_mtime),
        ctime: time(&x.stx_ctime),
        btime: born.then(|| time(&x.stx_btime)),
        change: change_of(&x.stx_ctime),
        sealed: x.stx_attributes.intersects(sealed),
    };
    Ok(Stat { dev, ino: x.stx_ino, mount: x.stx_mnt_id, attr })
}
