//! Checks what a caller may do with a node, for backends that have no permission checks.
//!
//! *Operation.* The list stored with the node decides, else its mode bits; no list restricts the superuser. A judge is valid only
//! for the attributes and the list from which it was made: a backend makes one for each call ([`judge`](crate::backend::judge)).
//!
//! *Errors.* [`VfsError::Access`] and [`VfsError::Perm`] as in POSIX.

use std::sync::Arc;

use crate::acl::{Acl, Owner, mask};
use crate::authority::Acting;
use crate::error::{VfsError, VfsResult};
use crate::perm::{self, Need};
use crate::types::{Access, Attr, Cred, Kind, NodeId, SetAttr, SetTime};

/// The rights of one caller to one node.
pub struct Judge<'a> {
    node: NodeId,
    attr: &'a Attr,
    cred: &'a Cred,
    list: Option<Arc<Acl>>,
}

impl<'a> Judge<'a> {
    /// Creates a judge for a node whose attributes and list were just read.
    pub(crate) fn new(
        node: NodeId,
        attr: &'a Attr,
        cred: &'a Cred,
        list: Option<Arc<Acl>>,
    ) -> Self {
        Self { node, attr, cred, list }
    }

    fn owner(&self) -> Owner {
        Owner::of(self.attr)
    }

    fn is_owner(&self) -> bool {
        self.cred.uid == 0 || self.cred.uid == self.attr.uid
    }

    fn has(&self, need: Need) -> bool {
        match &self.list {
            Some(list) => perm::enough(list.allowed(self.cred, self.owner()), need).is_ok(),
            None => {
                let Attr { kind, mode, uid, gid, .. } = *self.attr;
                perm::rights(kind, mode, uid, gid, self.cred) & need.bits == need.bits
            }
        }
    }

    fn permit(&self, need: Need) -> VfsResult<()> {
        if self.has(need) { Ok(()) } else { Err(VfsError::Access) }
    }

    /// Checks permission to look names up in this directory.
    pub fn look_up(&self) -> VfsResult<()> {
        self.permit(perm::EXECUTE)
    }

    /// Checks permission to list the names in this directory.
    pub fn list(&self) -> VfsResult<()> {
        self.permit(perm::READ)
    }

    /// Checks permission to read or execute: an NFS client can execute only by reading.
    fn readable(&self) -> VfsResult<()> {
        let runs = match &self.list {
            Some(list) => list.runs(self.cred, self.owner()),
            None => self.has(perm::EXECUTE),
        };
        if runs { Ok(()) } else { self.permit(perm::READ) }
    }

    /// Checks permission to read, or write, data of this file. The owner may use a file that it has open (RFC 1813 section 4.4).
    pub fn data(&self, write: bool) -> VfsResult<()> {
        regular(self.attr.kind)?;
        match write {
            _ if self.cred.uid == self.attr.uid => Ok(()),
            true => self.permit(perm::WRITE),
            false => self.readable(),
        }
    }

    /// Checks permission to open this file with this access.
    pub fn open(&self, read: bool, write: bool) -> VfsResult<()> {
        regular(self.attr.kind)?;
        match (read, write) {
            (false, false) => Ok(()),
            (true, false) => self.readable(),
            (false, true) => self.permit(perm::WRITE),
            (true, true) => self.permit(perm::BOTH),
        }
    }

    /// Checks permission to change these attributes. `open_write`: as for [`Node::setattr`](crate::backend::Node::setattr).
    pub fn set(&self, set: &SetAttr, open_write: bool) -> VfsResult<()> {
        let bad = |t: Option<SetTime>| matches!(t, Some(SetTime::At(t)) if t.nsec >= 1_000_000_000);
        // The kernel takes this number for "leave unchanged", so it cannot be an owner.
        if [set.uid, set.gid].contains(&Some(u32::MAX)) || bad(set.atime) || bad(set.mtime) {
            return Err(VfsError::Invalid);
        }
        if set.size.is_some() {
            regular(self.attr.kind)?;
            if !open_write {
                self.data(true)?;
            }
        }
        if self.cred.uid == 0 {
            return Ok(());
        }
        if let Some(list) = &self.list {
            let allowed = list.allowed(self.cred, self.owner());
            return perm::may_set(allowed, self.cred, self.owner(), set);
        }
        match perm::may_set_by_mode(self.cred, self.owner(), set)? {
            true => self.permit(perm::WRITE),
            false => Ok(()),
        }
    }

    /// Checks permission to change extended attributes.
    pub(crate) fn set_xattr(&self) -> VfsResult<()> {
        self.permit(perm::WRITE_XATTR)
    }

    /// Checks permission to add a name of a node of this kind to this directory. The powers in `acting` count, too.
    pub fn add(&self, acting: &Acting<'_>, kind: Kind) -> VfsResult<()> {
        self.names(acting, perm::adding(kind))
    }

    /// Checks permission to remove a name of the victim from this directory, or to replace it: by the right to remove names here,
    /// or by the right to remove the victim (RFC 8881 section 6.2.1.3.2).
    pub fn remove(&self, acting: &Acting<'_>, victim: &Self) -> VfsResult<()> {
        const STICKY: u32 = 0o1000;
        let by_own = victim.list.as_ref().is_some_and(|list| {
            list.allowed(victim.cred, victim.owner()) & mask::DELETE != 0 && self.has(perm::EXECUTE)
        });
        if acting.has(victim.node, mask::DELETE) || by_own {
            return Ok(());
        }
        self.names(acting, perm::REMOVE)?;
        let is_kept = self.attr.mode & STICKY != 0 && !self.is_owner() && !victim.is_owner();
        if is_kept { Err(VfsError::Perm) } else { Ok(()) }
    }

    fn names(&self, acting: &Acting<'_>, need: Need) -> VfsResult<()> {
        let helps = acting.has(self.node, need.rights & !mask::EXECUTE);
        if helps { Ok(()) } else { self.permit(need) }
    }

    /// Returns the rights of `wanted` that the caller has.
    pub fn access(&self, wanted: Access) -> Access {
        let needs = perm::of_access(self.attr.kind).iter();
        let may = needs.filter(|(_, need)| self.has(*need)).fold(0, |may, (bit, _)| may | bit);
        Access(may & wanted.0)
    }
}

/// Fails with [`VfsError::IsDir`] and similar errors for a node that is not a regular file.
pub fn regular(kind: Kind) -> VfsResult<()> {
    match kind {
        Kind::File => Ok(()),
        Kind::Dir => Err(VfsError::IsDir),
        Kind::Symlink => Err(VfsError::Symlink),
        _ => Err(VfsError::WrongType),
    }
}
