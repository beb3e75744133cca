//! Extended attributes of clients, and side data.
//!
//! *Operation.* Clients see the `user.` namespace. Side data is stored as `trusted.headgate.*`, which the library makes accessible
//! only to the superuser of the cluster. Access control lists are cached until the node's change attribute differs.
//!
//! *Errors.* [`VfsError::NoXattr`] for a missing name; [`VfsError::NotSupported`] if the node cannot have any. The MDS stores at
//! most 64 KiB for one node: [`VfsError::NoSpace`].

use std::sync::Arc;

use ceph_sys::{Inode, Name, Perm};
use mutex::locked;

use crate::acl::posix;
use crate::acl::{self, Kept, Owner};
use crate::backend::check_side_name;
use crate::dos;
use crate::engine::limits::{SIDE_MAX, XATTR_MAX};
use crate::error::{VfsError, VfsResult};
use crate::perm::{self, Need};
use crate::reparse;
use crate::types::*;
use crate::xattrs::{self, PREFIX, SAMBA, full, seen_by_clients};

use super::acl::{ACCESS, DEFAULT};
use super::held::Beside;
use super::node::CephNode;

/// Prefix of side data.
const SIDE: &str = "trusted.headgate.";

/// The id of the cluster; empty if the library does not report it.
pub(super) fn cluster_of(inode: &Inode, process: &Perm) -> Vec<u8> {
    let asked = Name::new(b"ceph.cluster_fsid").and_then(|name| inode.getxattr(&name, process));
    asked.unwrap_or_default()
}

impl CephNode {
    pub(super) fn has_xattrs(&self) -> bool {
        matches!(self.kind, Kind::File | Kind::Dir)
    }

    /// Reads an attribute by its full name, as the superuser.
    pub(super) fn value(&self, name: &[u8]) -> VfsResult<Option<Vec<u8>>> {
        let name = self.volume.done(Name::new(name))?;
        match self.volume.done(self.inode().getxattr(&name, &self.volume.process)) {
            Err(VfsError::NoXattr | VfsError::NotSupported) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Sets an attribute by its full name, or removes it (`None`), as the superuser.
    pub(super) fn set_value(&self, name: &[u8], value: Option<&[u8]>) -> VfsResult<()> {
        let name = self.volume.done(Name::new(name))?;
        let done = match value {
            Some(value) => self.inode().setxattr(&name, value, 0, &self.volume.process),
            None => self.inode().removexattr(&name, &self.volume.process),
        };
        *locked(&self.beside) = None;
        match self.volume.done(done) {
            Err(VfsError::NoXattr | VfsError::NotSupported) if value.is_none() => Ok(()),
            other => other,
        }
    }

    /// The access control lists of the node; `attr` was read just before. One listing of names tells which of them exist.
    pub(super) fn beside(&self, attr: &Attr) -> VfsResult<Arc<Beside>> {
        if let Some((change, known)) = &*locked(&self.beside)
            && *change == attr.change
        {
            return Ok(known.clone());
        }
        let names = match self.volume.done(self.inode().listxattr(&self.volume.process)) {
            Err(VfsError::NotSupported) => Vec::new(),
            other => other?,
        };
        let has = |name: &[u8]| xattrs::names(&names).any(|n| n == name);
        let ask = |name: &[u8]| if has(name) { self.value(name) } else { Ok(None) };
        let side = |name: &str| ask(format!("{SIDE}{name}").as_bytes());
        let is_dir = self.kind == Kind::Dir;
        let (access, default) = (ask(ACCESS)?, ask(DEFAULT)?);
        let list = access.as_deref();
        let of_host = list.and_then(|list| posix::list(attr.mode, Some(list), None, is_dir));
        let kept = side(acl::NAME)?.and_then(|record| Kept::decode(&record));
        // A POSIX list set by the cluster later is newer.
        let kept = kept.filter(|_| of_host.is_none());
        let now = |kept: Kept| kept.now(Owner::of(attr), attr.mode, is_dir).into_owned();
        let samba = || ask(SAMBA.as_bytes());
        let dos = xattrs::dos(side(dos::NAME)?, samba, side(reparse::NAME)?)?;
        let mut sizes = XattrSizes::default();
        if self.has_xattrs() {
            for name in seen_by_clients(&names) {
                // An attribute removed meanwhile does not count.
                if let Some(value) = self.value(&[PREFIX, name].concat())? {
                    sizes.add(name.len(), value.len());
                }
            }
        }
        let acl = kept.map(|kept| Arc::new(now(kept)));
        let found = Arc::new(Beside { acl, of_host, access, default, dos, sizes });
        *locked(&self.beside) = Some((attr.change, found.clone()));
        Ok(found)
    }

    /// Runs `f` as the caller, or as the superuser if a list permits it.
    fn with_xattrs<T>(
        &self,
        cred: &Cred,
        need: Need,
        f: impl FnOnce(&Perm) -> Result<T, ceph_sys::Errno>,
    ) -> VfsResult<T> {
        if !self.has_xattrs() {
            return Err(VfsError::NotSupported);
        }
        match self.by_list(cred, &self.attr()?)? {
            Some(allowed) => {
                perm::enough(allowed, need)?;
                self.volume.done(f(&self.volume.process))
            }
            None => {
                self.permitted_now(cred, need)?;
                let caller = self.volume.perm(cred)?;
                self.volume.done(f(&caller))
            }
        }
    }

    pub(super) fn do_xattr_get(&self, cred: &Cred, name: &[u8]) -> VfsResult<Vec<u8>> {
        let name = self.volume.done(Name::new(&full(name)?))?;
        self.with_xattrs(cred, perm::READ_XATTR, |perm| self.inode().getxattr(&name, perm))
    }

    pub(super) fn do_xattr_set(
        &self,
        cred: &Cred,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> VfsResult<(Attr, Attr)> {
        self.changeable()?;
        let name = self.volume.done(Name::new(&full(name)?))?;
        if value.len() > XATTR_MAX {
            return Err(VfsError::XattrTooBig);
        }
        let flags = match how {
            XattrHow::Either => 0,
            XattrHow::Create => libc::XATTR_CREATE,
            XattrHow::Replace => libc::XATTR_REPLACE,
        };
        let before = self.attr()?;
        self.with_xattrs(cred, perm::WRITE_XATTR, |perm| {
            self.inode().setxattr(&name, value, flags, perm)
        })?;
        Ok((before, self.attr()?))
    }

    pub(super) fn do_xattr_remove(&self, cred: &Cred, name: &[u8]) -> VfsResult<(Attr, Attr)> {
        self.changeable()?;
        let name = self.volume.done(Name::new(&full(name)?))?;
        let before = self.attr()?;
        self.with_xattrs(cred, perm::WRITE_XATTR, |perm| self.inode().removexattr(&name, perm))?;
        Ok((before, self.attr()?))
    }

    pub(super) fn do_xattr_list(&self, cred: &Cred) -> VfsResult<Vec<Vec<u8>>> {
        if !self.has_xattrs() {
            return Ok(Vec::new());
        }
        // The library lists names for every caller; a client needs read permission (RFC 8276 section 8.4.3).
        let list = self.with_xattrs(cred, perm::READ_XATTR, |perm| self.inode().listxattr(perm))?;
        Ok(seen_by_clients(&list).map(<[u8]>::to_vec).collect())
    }

    pub(super) fn do_side_get(&self, name: &str) -> VfsResult<Option<Vec<u8>>> {
        check_side_name(name)?;
        self.value(format!("{SIDE}{name}").as_bytes())
    }

    pub(super) fn do_side_set(&self, name: &str, value: Option<&[u8]>) -> VfsResult<()> {
        self.changeable()?;
        check_side_name(name)?;
        if value.is_some_and(|v| v.len() > SIDE_MAX) {
            return Err(VfsError::XattrTooBig);
        }
        self.set_value(format!("{SIDE}{name}").as_bytes(), value)
    }
}
