//! Attributes and permission checks of CephFS files.
//!
//! *Operation.* Data permission is checked here, by a stored list, a POSIX list, or mode, owner and group, because one open file
//! serves all callers; as in `nfsd`, a regular file's owner needs no permission. Changes of attributes are checked here first, so
//! that an operation is never done in part, and then by the library for the caller.

use std::sync::atomic::Ordering;

use ceph_sys::ffi::{self, CEPH_NOSNAP};
use ceph_sys::{Changes, Perm};

use crate::acl::{Owner, mask};
use crate::error::{VfsError, VfsResult};
use crate::perm::{self, Need, R, W, X, sheds_set_id, without_set_id};
use crate::types::*;

use super::node::CephNode;
use super::stat::kept;

/// The rule that decides on a caller's rights.
enum Judge {
    /// A stored list grants these rights.
    List(u32),
    /// Mode bits or a POSIX list grant these bits.
    Bits(u32),
}

impl CephNode {
    fn judge(&self, cred: &Cred, attr: &Attr) -> VfsResult<Judge> {
        let by_mode = || perm::rights(self.kind, attr.mode, attr.uid, attr.gid, cred);
        if cred.uid == 0 {
            return Ok(Judge::Bits(by_mode()));
        }
        let beside = self.beside(attr)?;
        if let Some(acl) = &beside.acl {
            return Ok(Judge::List(acl.allowed(cred, Owner::of(attr))));
        }
        Ok(Judge::Bits(match &beside.of_host {
            Some(list) => {
                let allowed = list.allowed(cred, Owner::of(attr));
                let of = |(right, bit)| if allowed & right != 0 { bit } else { 0 };
                [(mask::READ_DATA, R), (mask::WRITE_DATA, W), (mask::EXECUTE, X)]
                    .into_iter()
                    .fold(0, |all, one| all | of(one))
            }
            None => by_mode(),
        }))
    }

    /// The caller's rights by the stored list; `None` if there is no list, and for the superuser.
    pub(super) fn by_list(&self, cred: &Cred, attr: &Attr) -> VfsResult<Option<u32>> {
        Ok(match self.judge(cred, attr)? {
            Judge::List(allowed) => Some(allowed),
            Judge::Bits(_) => None,
        })
    }

    /// Checks that the caller has the needed rights; `attr` was read just before.
    pub(super) fn permitted(&self, cred: &Cred, need: Need, attr: &Attr) -> VfsResult<()> {
        match self.judge(cred, attr)? {
            Judge::List(allowed) => perm::enough(allowed, need),
            Judge::Bits(bits) if bits & need.bits == need.bits => Ok(()),
            Judge::Bits(_) => Err(VfsError::Access),
        }
    }

    /// Like [`CephNode::permitted`], but reads the attributes first.
    pub(super) fn permitted_now(&self, cred: &Cred, need: Need) -> VfsResult<()> {
        self.permitted(cred, need, &self.attr()?)
    }

    /// Checks that the caller may read or write the file's data; `attr` was read just before.
    pub(super) fn may_use_data(&self, cred: &Cred, attr: &Attr, write: bool) -> VfsResult<()> {
        if cred.uid == 0 || cred.uid == attr.uid {
            return Ok(());
        }
        if write { self.permitted(cred, perm::WRITE, attr) } else { self.readable(cred, attr) }
    }

    /// Checks for read permission, or for execute permission, which an NFS client can use only by reading.
    fn readable(&self, cred: &Cred, attr: &Attr) -> VfsResult<()> {
        let why = match self.permitted(cred, perm::READ, attr) {
            Err(why @ VfsError::Access) => why,
            other => return other,
        };
        match &self.beside(attr)?.acl {
            Some(acl) if acl.runs(cred, Owner::of(attr)) => Ok(()),
            Some(_) => Err(why),
            None => self.permitted(cred, perm::EXECUTE, attr),
        }
    }

    pub(super) fn do_open(&self, cred: &Cred, read: bool, write: bool) -> VfsResult<Attr> {
        self.regular()?;
        if write {
            self.changeable()?;
        }
        let attr = self.attr()?;
        match (read, write) {
            (true, true) => self.permitted(cred, perm::BOTH, &attr)?,
            (false, true) => self.permitted(cred, perm::WRITE, &attr)?,
            (true, false) => self.readable(cred, &attr)?,
            (false, false) => {}
        }
        Ok(attr)
    }

    /// [`VfsError::ReadOnly`] in a snapshot, and on a read-only share.
    pub(super) fn changeable(&self) -> VfsResult<()> {
        match self.vino.snap {
            CEPH_NOSNAP => self.volume.writable(),
            _ => Err(VfsError::ReadOnly),
        }
    }

    pub(super) fn do_access(&self, cred: &Cred, wanted: Access, attr: &Attr) -> VfsResult<Access> {
        const CHANGES: u32 = Access::MODIFY | Access::EXTEND | Access::DELETE | Access::XATTR_WRITE;
        let judge = self.judge(cred, attr)?;
        let has = |need: Need| match judge {
            Judge::List(allowed) => allowed & need.rights == need.rights,
            Judge::Bits(bits) => bits & need.bits == need.bits,
        };
        let granted = perm::of_access(self.kind).iter().filter(|(_, need)| has(*need));
        let may = granted.fold(0, |may, (bit, _)| may | bit) & wanted.0;
        Ok(Access(if self.changeable().is_err() { may & !CHANGES } else { may }))
    }

    pub(super) fn do_setattr(
        &self,
        cred: &Cred,
        set: &SetAttr,
        open_write: bool,
    ) -> VfsResult<(Attr, Attr)> {
        self.changeable()?;
        let before = self.attr()?;
        if set.size.is_some() {
            self.regular()?;
            if !open_write {
                self.may_use_data(cred, &before, true)?;
            }
        }
        self.apply(cred, set, &before)?;
        Ok((before, self.attr()?))
    }

    pub(super) fn do_may(&self, cred: &Cred, intent: Intent<'_>) -> VfsResult<()> {
        match intent {
            Intent::Read => {
                self.regular()?;
                self.may_use_data(cred, &self.attr()?, false)
            }
            Intent::Write => {
                self.changeable()?;
                self.regular()?;
                self.may_use_data(cred, &self.attr()?, true)
            }
            Intent::Set { set, open_write } => {
                self.changeable()?;
                let attr = self.attr()?;
                if set.size.is_some() {
                    self.regular()?;
                    if !open_write {
                        self.may_use_data(cred, &attr, true)?;
                    }
                }
                self.may_set(cred, set, &attr).map(drop)
            }
            Intent::SetXattr if !self.has_xattrs() => Err(VfsError::NotSupported),
            Intent::SetXattr => self.permitted_now(cred, perm::WRITE_XATTR),
            Intent::Link => self.may_be_linked(cred, &self.attr()?),
            Intent::Add(kind) => self.permitted_now(cred, perm::adding(kind)),
        }
    }

    /// Checks all that forbids a change of attributes, except the size, which was checked as data. True if the caller may set times
    /// only because it may write (utimensat(2)).
    fn may_set(&self, cred: &Cred, set: &SetAttr, attr: &Attr) -> VfsResult<bool> {
        // This value means "unchanged" in other calls, and is not a valid id.
        if [set.uid, set.gid].contains(&Some(u32::MAX)) {
            return Err(VfsError::Invalid);
        }
        let bad = |t| matches!(t, Some(SetTime::At(t)) if t.nsec >= 1_000_000_000);
        if bad(set.atime) || bad(set.mtime) {
            return Err(VfsError::Invalid);
        }
        if cred.uid == 0 {
            return Ok(false);
        }
        let owner = Owner::of(attr);
        if let Some(allowed) = self.by_list(cred, attr)? {
            return perm::may_set(allowed, cred, owner, set).map(|()| false);
        }
        let by_writing = perm::may_set_by_mode(cred, owner, set)?;
        if by_writing {
            self.permitted(cred, perm::WRITE, attr)?;
        }
        Ok(by_writing)
    }

    /// Sets attributes: owner and mode first, times last, because a new size changes them.
    pub(super) fn apply(&self, cred: &Cred, set: &SetAttr, attr: &Attr) -> VfsResult<()> {
        // Symbolic links have no mode, but clients send one when they create a link.
        let mut set = SetAttr { mode: set.mode.filter(|_| self.kind != Kind::Symlink), ..*set };
        if set == (SetAttr { umask: set.umask, ..SetAttr::default() }) {
            return Ok(());
        }
        let by_writing = self.may_set(cred, &set, attr)?;
        let listed = self.by_list(cred, attr)?.is_some();
        if listed {
            set.mode = set.mode.map(|mode| perm::settable(mode, cred, Owner::of(attr)));
        }
        let caller = if listed { None } else { Some(self.volume.perm(cred)?) };
        let perm = caller.as_ref().unwrap_or(&self.volume.process);
        let times = SetAttr { atime: set.atime, mtime: set.mtime, ..SetAttr::default() };
        // The library lets only the owner set times without writing.
        let for_times = if by_writing { &self.volume.process } else { perm };
        self.set(&SetAttr { atime: None, mtime: None, ..set }, perm)?;
        self.shed(cred, &set, attr)?;
        if let Some(size) = set.size {
            self.cut(size)?;
        }
        self.set(&times, for_times)
    }

    /// Clears set-id bits when the owner changes, or when a user other than the superuser changes the data.
    fn shed(&self, cred: &Cred, set: &SetAttr, attr: &Attr) -> VfsResult<()> {
        let owned = (set.uid.is_some() || set.gid.is_some()) && self.kind != Kind::Dir;
        let cut = set.size.is_some() && cred.uid != 0;
        if !sheds_set_id(attr.mode) || set.mode.is_some() || !(owned || cut) {
            return Ok(());
        }
        let mode = Some(without_set_id(attr.mode));
        self.set(&SetAttr { mode, ..SetAttr::default() }, &self.volume.process)
    }

    /// Clears set-id bits after a write.
    pub(super) fn shed_by_writing(&self, mode: u32) -> VfsResult<()> {
        let mode = Some(without_set_id(mode));
        self.set(&SetAttr { mode, ..SetAttr::default() }, &self.volume.process)
    }

    pub(super) fn cut(&self, size: u64) -> VfsResult<()> {
        if i64::try_from(size).is_err() {
            return Err(VfsError::TooBig);
        }
        // The cluster leaves the time unchanged if the size stays the same; other file systems do not.
        let mask = ffi::CEPH_SETATTR_SIZE | ffi::CEPH_SETATTR_MTIME | ffi::CEPH_SETATTR_MTIME_NOW;
        let mut changes = Changes { mask, ..Changes::default() };
        (changes.to.stx_size, changes.to.stx_mtime) = (size, kept(Time::now()));
        self.size.store(size, Ordering::Relaxed);
        self.volume.done(self.inode().setattr(&changes, &self.volume.process)).map_err(
            |e| match e {
                VfsError::Invalid => VfsError::TooBig,
                e => e,
            },
        )
    }

    /// Sets owner, mode and times as this user.
    pub(super) fn set(&self, set: &SetAttr, perm: &Perm) -> VfsResult<()> {
        let mut changes = Changes::default();
        let to = &mut changes.to;
        let mut mask = 0;
        if let Some(uid) = set.uid {
            (to.stx_uid, mask) = (uid, mask | ffi::CEPH_SETATTR_UID);
        }
        if let Some(gid) = set.gid {
            (to.stx_gid, mask) = (gid, mask | ffi::CEPH_SETATTR_GID);
        }
        if let Some(mode) = set.mode {
            // Invariant: 12 bits.
            to.stx_mode = u16::try_from(mode & 0o7777).unwrap_or(0);
            mask |= ffi::CEPH_SETATTR_MODE;
        }
        let spec = |t: SetTime| kept(if let SetTime::At(t) = t { t } else { Time::now() });
        if let Some(t) = set.atime {
            to.stx_atime = spec(t);
            let now = if t == SetTime::Now { ffi::CEPH_SETATTR_ATIME_NOW } else { 0 };
            mask |= ffi::CEPH_SETATTR_ATIME | now;
        }
        if let Some(t) = set.mtime {
            to.stx_mtime = spec(t);
            let now = if t == SetTime::Now { ffi::CEPH_SETATTR_MTIME_NOW } else { 0 };
            mask |= ffi::CEPH_SETATTR_MTIME | now;
        }
        if mask == 0 {
            return Ok(());
        }
        changes.mask = mask;
        self.volume.done(self.inode().setattr(&changes, perm))
    }

    pub(super) fn chmod(&self, mode: u32) -> VfsResult<()> {
        if self.kind == Kind::Symlink {
            return Ok(());
        }
        self.set(&SetAttr { mode: Some(mode), ..SetAttr::default() }, &self.volume.process)
    }
}
