//! Attributes, permission and extended attributes in memory, by the rules of Linux.

use std::sync::Arc;

use crate::acl::{self, Acl, Kept};
use crate::backend::check_side_name;
use crate::engine::limits::{SIDE_MAX, XATTR_MAX};
use crate::error::{VfsError, VfsResult};
use crate::perm;
use crate::types::*;

use super::node::{Inner, MemNode};
use super::{NODE_BYTES, SIZE_MAX};

/// Longest name of an extended attribute: Linux's limit of 255 less the prefix, which is not stored.
const XATTR_NAME_MAX: usize = 250;

impl Inner {
    /// Sets the size after the permission check.
    pub(super) fn set_size(&mut self, size: u64) -> VfsResult<()> {
        if size > SIZE_MAX {
            return Err(VfsError::TooBig);
        }
        self.file()?.resize(size)
    }

    pub(super) fn set_times(&mut self, set: &SetAttr) -> VfsResult<()> {
        check_times(set)?;
        let value = |t| match t {
            SetTime::Now => Time::now(),
            SetTime::At(t) => t,
        };
        if let Some(t) = set.atime {
            self.atime = value(t);
        }
        if let Some(t) = set.mtime {
            self.mtime = value(t);
        }
        Ok(())
    }

    /// Checks everything that can forbid a change of attributes.
    fn may_set(&self, kind: Kind, cred: &Cred, set: &SetAttr, open_write: bool) -> VfsResult<()> {
        check_owner(set)?;
        check_times(set)?;
        if set.size.is_some() && !open_write {
            self.permit_data(cred, true)?;
        }
        if cred.uid == 0 {
            return Ok(());
        }
        if let Some(allowed) = self.by_list(kind, cred) {
            return perm::may_set(allowed, cred, self.owner(), set);
        }
        match perm::may_set_by_mode(cred, self.owner(), set)? {
            true => self.permit(kind, cred, perm::WRITE),
            false => Ok(()),
        }
    }

    fn set(&mut self, kind: Kind, cred: &Cred, set: &SetAttr) -> VfsResult<()> {
        if let Some(size) = set.size {
            self.set_size(size)?;
            self.shed_set_id(Some(cred));
            self.modified();
        }
        if (set.uid.is_some() || set.gid.is_some()) && kind != Kind::Dir {
            self.shed_set_id(None);
        }
        if let Some(uid) = set.uid {
            self.uid = uid;
        }
        if let Some(gid) = set.gid {
            self.gid = gid;
        }
        if let Some(mode) = set.mode
            && kind != Kind::Symlink
        {
            self.mode = match cred.uid {
                0 => mode & 0o7777,
                _ => perm::settable(mode, cred, self.owner()),
            };
        }
        self.set_times(set)?;
        self.touched();
        // A client that repeats its exclusive create has now seen the answer to the first one, so the verifier is no longer needed.
        self.verifier = None;
        Ok(())
    }
}

/// Refuses the number that the kernel takes for "leave unchanged".
pub(super) fn check_owner(set: &SetAttr) -> VfsResult<()> {
    match [set.uid, set.gid].contains(&Some(u32::MAX)) {
        true => Err(VfsError::Invalid),
        false => Ok(()),
    }
}

fn check_times(set: &SetAttr) -> VfsResult<()> {
    let bad = |t: Option<SetTime>| matches!(t, Some(SetTime::At(t)) if t.nsec >= 1_000_000_000);
    if bad(set.atime) || bad(set.mtime) { Err(VfsError::Invalid) } else { Ok(()) }
}

impl MemNode {
    pub(super) fn do_setattr(
        &self,
        cred: &Cred,
        set: &SetAttr,
        open_write: bool,
    ) -> VfsResult<(Attr, Attr)> {
        self.volume.writable()?;
        let mut inner = self.lock();
        if self.kind == Kind::Dir {
            inner.dir()?;
        }
        if set.size.is_some() {
            inner.file()?;
        }
        inner.may_set(self.kind, cred, set, open_write)?;
        let before = self.attr_of(&inner);
        if *set != SetAttr::default() {
            inner.set(self.kind, cred, set)?;
        }
        Ok((before, self.attr_of(&inner)))
    }

    pub(super) fn do_may(&self, cred: &Cred, intent: Intent<'_>) -> VfsResult<()> {
        let mut inner = self.lock();
        match intent {
            Intent::Read => inner.file().map(drop).and_then(|()| inner.permit_data(cred, false)),
            Intent::Write => inner.file().map(drop).and_then(|()| inner.permit_data(cred, true)),
            Intent::Set { set, open_write } => {
                if set.size.is_some() {
                    inner.file()?;
                }
                inner.may_set(self.kind, cred, set, open_write)
            }
            Intent::SetXattr if !self.has_xattrs() => Err(VfsError::NotSupported),
            Intent::SetXattr => inner.permit(self.kind, cred, perm::WRITE_XATTR),
            Intent::Link => Ok(()),
            Intent::Add(kind) => inner.permit(self.kind, cred, perm::adding(kind)),
        }
    }

    pub(super) fn do_access(&self, cred: &Cred, wanted: Access) -> Access {
        const CHANGES: u32 = Access::MODIFY | Access::EXTEND | Access::DELETE | Access::XATTR_WRITE;
        let inner = self.lock();
        let list = inner.by_list(self.kind, cred);
        let rights = inner.rights(self.kind, cred);
        let has = |need: perm::Need| match list {
            Some(allowed) => allowed & need.rights == need.rights,
            None => rights & need.bits == need.bits,
        };
        let granted = perm::of_access(self.kind).iter().filter(|(_, need)| has(*need));
        let mut may = granted.fold(0, |may, (bit, _)| may | bit);
        if self.volume.read_only {
            may &= !CHANGES;
        }
        Access(may & wanted.0)
    }

    pub(super) fn do_open(&self, cred: &Cred, read: bool, write: bool) -> VfsResult<Attr> {
        let mut inner = self.lock();
        inner.file()?;
        if write {
            self.volume.writable()?;
            inner.permit(self.kind, cred, perm::WRITE)?;
        }
        if read {
            match write {
                true => inner.permit(self.kind, cred, perm::READ)?,
                false => inner.readable(self.kind, cred)?,
            }
        }
        Ok(self.attr_of(&inner))
    }

    fn has_xattrs(&self) -> bool {
        matches!(self.kind, Kind::File | Kind::Dir)
    }

    pub(super) fn do_xattr_get(&self, cred: &Cred, name: &[u8]) -> VfsResult<Vec<u8>> {
        check_xattr_name(name)?;
        if !self.has_xattrs() {
            return Err(VfsError::NotSupported);
        }
        let inner = self.lock();
        inner.permit(self.kind, cred, perm::READ_XATTR)?;
        inner.xattrs.get(name).map(|(v, _)| v.clone()).ok_or(VfsError::NoXattr)
    }

    pub(super) fn do_xattr_set(
        &self,
        cred: &Cred,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> VfsResult<(Attr, Attr)> {
        self.volume.writable()?;
        check_xattr_name(name)?;
        if value.len() > XATTR_MAX {
            return Err(VfsError::XattrTooBig);
        }
        if !self.has_xattrs() {
            return Err(VfsError::NotSupported);
        }
        let mut inner = self.lock();
        inner.permit(self.kind, cred, perm::WRITE_XATTR)?;
        match (how, inner.xattrs.contains_key(name)) {
            (XattrHow::Create, true) => return Err(VfsError::Exists),
            (XattrHow::Replace, false) => return Err(VfsError::NoXattr),
            _ => {}
        }
        // All names must fit one answer.
        let names: usize = inner.xattrs.keys().map(|n| n.len() + 8).sum();
        if names + name.len() + 8 > XATTR_MAX {
            return Err(VfsError::NoSpace);
        }
        let before = self.attr_of(&inner);
        let bytes = (name.len() + value.len()) as u64 + NODE_BYTES / 8;
        let charge = self.volume.usage.charge(bytes)?;
        inner.xattrs.insert(name.to_vec(), (value.to_vec(), charge));
        inner.touched();
        Ok((before, self.attr_of(&inner)))
    }

    pub(super) fn do_xattr_remove(&self, cred: &Cred, name: &[u8]) -> VfsResult<(Attr, Attr)> {
        self.volume.writable()?;
        check_xattr_name(name)?;
        let mut inner = self.lock();
        inner.permit(self.kind, cred, perm::WRITE_XATTR)?;
        let before = self.attr_of(&inner);
        inner.xattrs.remove(name).ok_or(VfsError::NoXattr)?;
        inner.touched();
        Ok((before, self.attr_of(&inner)))
    }

    pub(super) fn do_side_get(&self, name: &str) -> VfsResult<Option<Vec<u8>>> {
        check_side_name(name)?;
        Ok(self.lock().side.get(name).map(|(value, _)| value.clone()))
    }

    pub(super) fn do_side_set(&self, name: &str, value: Option<&[u8]>) -> VfsResult<()> {
        self.volume.writable()?;
        check_side_name(name)?;
        self.side_set_in(&mut self.lock(), name, value)
    }

    fn side_set_in(&self, inner: &mut Inner, name: &str, value: Option<&[u8]>) -> VfsResult<()> {
        match value {
            Some(value) if value.len() > SIDE_MAX => return Err(VfsError::XattrTooBig),
            Some(value) => {
                let bytes = (name.len() + value.len()) as u64 + NODE_BYTES / 8;
                let charge = self.volume.usage.charge(bytes)?;
                inner.side.insert(name.to_owned(), (value.to_vec(), charge));
            }
            None => {
                if inner.side.remove(name).is_none() {
                    return Ok(());
                }
            }
        }
        if name == acl::NAME {
            inner.acl = value.and_then(Kept::decode).map(Arc::new);
        }
        inner.touched();
        Ok(())
    }

    pub(super) fn do_acl_set(&self, acl: &Acl, mode: u32) -> VfsResult<()> {
        self.volume.writable()?;
        // Checks list and mode bits under one lock: with the old bits the new list would have another meaning.
        let mut inner = self.lock();
        let kept = Kept { mode: mode & 0o777, owner: inner.owner(), acl: acl.clone() };
        self.side_set_in(&mut inner, acl::NAME, Some(&kept.encode()))?;
        inner.mode = inner.mode & 0o7000 | mode & 0o777;
        Ok(())
    }

    pub(super) fn do_xattr_sizes(&self) -> XattrSizes {
        let mut sizes = XattrSizes::default();
        self.lock().xattrs.iter().for_each(|(name, (value, _))| sizes.add(name.len(), value.len()));
        sizes
    }

    pub(super) fn do_xattr_list(&self, cred: &Cred) -> VfsResult<Vec<Vec<u8>>> {
        let inner = self.lock();
        if self.has_xattrs() {
            inner.permit(self.kind, cred, perm::READ_XATTR)?;
        }
        Ok(inner.xattrs.keys().cloned().collect())
    }
}

fn check_xattr_name(name: &[u8]) -> VfsResult<()> {
    if name.is_empty() || name.contains(&0) {
        return Err(VfsError::Invalid);
    }
    if name.len() > XATTR_NAME_MAX { Err(VfsError::NameTooLong) } else { Ok(()) }
}
