//! Converts attributes between the forms of the library and of `vfs`.

use ceph_sys::Vino;
use ceph_sys::ffi::{self, CEPH_NOSNAP};

use crate::error::{VfsError, VfsResult};
use crate::types::*;

use super::Volume;

/// Attributes as the library gives them.
pub(super) type Stat = ffi::ceph_statx;

/// The inode number; the library reports the snapshot number as device number.
pub(super) fn vino_of(stat: &Stat) -> Vino {
    Vino { ino: stat.stx_ino, snap: stat.stx_dev }
}

pub(super) fn kind_of(stat: &Stat) -> VfsResult<Kind> {
    Ok(match u32::from(stat.stx_mode) & libc::S_IFMT {
        libc::S_IFREG => Kind::File,
        libc::S_IFDIR => Kind::Dir,
        libc::S_IFLNK => Kind::Symlink,
        libc::S_IFBLK => Kind::Block,
        libc::S_IFCHR => Kind::Char,
        libc::S_IFIFO => Kind::Fifo,
        libc::S_IFSOCK => Kind::Socket,
        _ => return Err(VfsError::Io),
    })
}

/// The nearest time that the cluster can store: it has 32 bits for the seconds since 1970, and would truncate others.
pub(super) fn kept(t: Time) -> libc::timespec {
    let last = i64::from(u32::MAX);
    let nsec = if (0..=last).contains(&t.sec) { t.nsec } else { 0 };
    libc::timespec { tv_sec: t.sec.clamp(0, last), tv_nsec: i64::from(nsec) }
}

fn time(t: libc::timespec) -> Time {
    Time { sec: t.tv_sec, nsec: u32::try_from(t.tv_nsec).unwrap_or(0) }
}

impl Volume {
    /// Converts attributes. Each snapshot has a separate file system id, and its files keep their numbers.
    pub(super) fn present(&self, stat: &Stat) -> VfsResult<Attr> {
        let in_snapshot = stat.stx_dev != CEPH_NOSNAP;
        let born = stat.stx_mask & ffi::CEPH_STATX_BTIME != 0;
        let kind = kind_of(stat)?;
        // Regular files may have a device number, too (see `exclusive`).
        let is_device = matches!(kind, Kind::Block | Kind::Char);
        let rdev = if is_device { stat.stx_rdev } else { 0 };
        Ok(Attr {
            kind,
            mode: u32::from(stat.stx_mode) & 0o7777,
            nlink: stat.stx_nlink,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            size: stat.stx_size,
            used: stat.stx_blocks.saturating_mul(512),
            rdev: (libc::major(rdev), libc::minor(rdev)),
            fsid: if in_snapshot { self.fsid ^ stat.stx_dev.rotate_left(32) } else { self.fsid },
            fileid: stat.stx_ino,
            atime: time(stat.stx_atime),
            mtime: time(stat.stx_mtime),
            ctime: time(stat.stx_ctime),
            btime: born.then(|| time(stat.stx_btime)),
            change: stat.stx_version,
            sealed: in_snapshot,
        })
    }
}
