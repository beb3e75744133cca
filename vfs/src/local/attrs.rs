//! Attributes and permission.
//!
//! *Operation.* The kernel decides, asked with `faccessat2` as the caller, so access control lists and security modules count.
//! Two answers need no question: the superuser's, and for reads and writes of a regular file its owner's, who may have opened
//! it before he took the permission away (RFC 1813 section 4.4).

use rustix::fs::{AtFlags, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};

use crate::error::{VfsError, VfsResult};
use crate::types::*;

use super::node::LocalNode;
use super::sys;

const R: i32 = libc::R_OK;
const W: i32 = libc::W_OK;
const X: i32 = libc::X_OK;

impl LocalNode {
    /// Asks the kernel whether `cred` may do all of `mode`.
    pub(super) fn permitted(&self, cred: &Cred, mode: i32) -> VfsResult<()> {
        self.volume.identity.run(cred, || sys::access(self.fd(), mode))
    }

    /// May read or write the data of this file, of which `attr` was just seen.
    pub(super) fn may_use_data(&self, cred: &Cred, attr: &Attr, write: bool) -> VfsResult<()> {
        let who = self.volume.identity.effective(cred);
        if who.uid == 0 || who.uid == attr.uid {
            return Ok(());
        }
        if write {
            return self.permitted(cred, W);
        }
        self.readable(cred)
    }

    /// May read, or may execute, which an NFS client can do only by reading.
    fn readable(&self, cred: &Cred) -> VfsResult<()> {
        match self.permitted(cred, R) {
            Err(VfsError::Access) => self.permitted(cred, X),
            other => other,
        }
    }

    pub(super) fn do_open(&self, cred: &Cred, read: bool, write: bool) -> VfsResult<Attr> {
        self.regular()?;
        if write {
            self.volume.writable()?;
        }
        match (read, write) {
            (true, true) => self.permitted(cred, R | W)?,
            (false, true) => self.permitted(cred, W)?,
            (true, false) => self.readable(cred)?,
            (false, false) => {}
        }
        self.attr()
    }

    pub(super) fn do_access(&self, cred: &Cred, wanted: Access) -> VfsResult<Access> {
        let dir = self.kind == Kind::Dir;
        // Each bit and what it takes.
        let needs = [
            (Access::READ, R),
            (Access::LOOKUP, if dir { X } else { 0 }),
            (Access::MODIFY, if dir { W | X } else { W }),
            (Access::EXTEND, if dir { W | X } else { W }),
            (Access::DELETE, if dir { W | X } else { 0 }),
            (Access::EXECUTE, if dir { 0 } else { X }),
            (Access::XATTR_READ, R),
            (Access::XATTR_WRITE, W),
            (Access::XATTR_LIST, R),
        ];
        let asked = |bit: u32, need: i32| wanted.0 & bit != 0 && need != 0;
        let all = needs.iter().filter(|(b, n)| asked(*b, *n)).fold(0, |m, (_, n)| m | n);
        let mut may = 0;
        self.volume.identity.run(cred, || {
            if all != 0 && sys::access(self.fd(), all).is_ok() {
                may = all;
                return Ok(());
            }
            for one in [R, W, X] {
                if all & one == 0 {
                    continue;
                }
                match sys::access(self.fd(), one) {
                    Ok(()) => may |= one,
                    Err(VfsError::Access | VfsError::Perm | VfsError::ReadOnly) => {}
                    Err(e) => return Err(e),
                }
            }
            Ok(())
        })?;
        if self.volume.read_only {
            may &= !W;
        }
        let granted = needs.iter().filter(|(b, n)| asked(*b, *n) && may & n == *n);
        Ok(Access(granted.fold(0, |m, (b, _)| m | b)))
    }

    pub(super) fn do_setattr(
        &self,
        cred: &Cred,
        set: &SetAttr,
        open_write: bool,
    ) -> VfsResult<(Attr, Attr)> {
        self.volume.writable()?;
        let before = self.attr()?;
        if set.size.is_some() {
            self.regular()?;
            if !open_write {
                self.may_use_data(cred, &before, true)?;
            }
        }
        self.apply(cred, set)?;
        Ok((before, self.attr()?))
    }

    /// Sets attributes as the caller, by the kernel's rules. Owner first, because that clears the set-id bits that a new
    /// mode may ask for; times last, because a new size changes them.
    pub(super) fn apply(&self, cred: &Cred, set: &SetAttr) -> VfsResult<()> {
        if *set == SetAttr::default() {
            return Ok(());
        }
        let data = match set.size {
            Some(_) => Some(self.data_fd(true)?),
            None => None,
        };
        let done = self.volume.identity.run(cred, || {
            if set.uid.is_some() || set.gid.is_some() {
                self.chown(set.uid, set.gid)?;
            }
            if let Some(mode) = set.mode {
                self.chmod(mode)?;
            }
            if let (Some(size), Some(fd)) = (set.size, &data) {
                rustix::fs::ftruncate(fd, size).map_err(|e| match VfsError::from(e) {
                    VfsError::Invalid => VfsError::TooBig,
                    e => e,
                })?;
            }
            if set.atime.is_some() || set.mtime.is_some() {
                self.utimes(set.atime, set.mtime)?;
            }
            Ok(())
        });
        self.changed();
        done
    }

    fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> VfsResult<()> {
        // The number that the kernel takes for "leave it".
        if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
            return Err(VfsError::Invalid);
        }
        let uid = uid.map(rustix::fs::Uid::from_raw);
        let gid = gid.map(rustix::fs::Gid::from_raw);
        Ok(rustix::fs::chownat(self.fd(), c"", uid, gid, AtFlags::EMPTY_PATH)?)
    }

    pub(super) fn chmod(&self, mode: u32) -> VfsResult<()> {
        if self.kind == Kind::Symlink {
            // Linux keeps no mode for links; clients send one all the same when they make one.
            return Ok(());
        }
        self.volume.chmod(self.fd(), Mode::from_raw_mode(mode & 0o7777))
    }

    fn utimes(&self, atime: Option<SetTime>, mtime: Option<SetTime>) -> VfsResult<()> {
        let spec = |t| match t {
            None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
            Some(SetTime::At(t)) => Timespec { tv_sec: t.sec, tv_nsec: i64::from(t.nsec) },
        };
        if [atime, mtime]
            .iter()
            .any(|t| matches!(t, Some(SetTime::At(t)) if t.nsec >= 1_000_000_000))
        {
            return Err(VfsError::Invalid);
        }
        let times = Timestamps { last_access: spec(atime), last_modification: spec(mtime) };
        Ok(rustix::fs::utimensat(self.fd(), c"", &times, AtFlags::EMPTY_PATH)?)
    }
}
