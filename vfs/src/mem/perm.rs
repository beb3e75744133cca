//! Permission checks for nodes in memory.

use std::borrow::Cow;

use crate::acl::{Acl, Owner, mask};
use crate::authority::Acting;
use crate::error::{VfsError, VfsResult};
use crate::perm;
pub(super) use crate::perm::Need;
use crate::types::{Cred, Kind};

use super::node::{Inner, MemNode};

impl Inner {
    pub(super) fn owner(&self) -> Owner {
        Owner { uid: self.uid, gid: self.gid }
    }

    /// Returns the access control list as limited by the mode.
    pub(super) fn acl(&self, kind: Kind) -> Option<Cow<'_, Acl>> {
        let kept = self.acl.as_ref()?;
        Some(kept.now(self.owner(), self.mode, kind == Kind::Dir))
    }

    /// Returns the rights that the list grants the caller; `None` without a list and for the superuser.
    pub(super) fn by_list(&self, kind: Kind, cred: &Cred) -> Option<u32> {
        if cred.uid == 0 {
            return None;
        }
        self.acl(kind).map(|acl| acl.allowed(cred, self.owner()))
    }

    /// Returns the bits of `R | W | X` that the mode grants `cred` on a node of this kind.
    pub(super) fn rights(&self, kind: Kind, cred: &Cred) -> u32 {
        perm::rights(kind, self.mode, self.uid, self.gid, cred)
    }

    pub(super) fn permit(&self, kind: Kind, cred: &Cred, need: Need) -> VfsResult<()> {
        if let Some(allowed) = self.by_list(kind, cred) {
            return perm::enough(allowed, need);
        }
        let enough = self.rights(kind, cred) & need.bits == need.bits;
        if enough { Ok(()) } else { Err(VfsError::Access) }
    }

    /// Checks access to data of a regular file: the owner may use a file that he has open (RFC 1813 section 4.4), and a file that
    /// may be executed may be read.
    pub(super) fn permit_data(&self, cred: &Cred, write: bool) -> VfsResult<()> {
        if cred.uid == self.uid {
            return Ok(());
        }
        if write {
            return self.permit(Kind::File, cred, perm::WRITE);
        }
        self.readable(Kind::File, cred)
    }

    /// Checks permission to read, or to execute, which an NFS client can do only by reading.
    pub(super) fn readable(&self, kind: Kind, cred: &Cred) -> VfsResult<()> {
        let runs = match self.acl(kind) {
            Some(acl) => acl.runs(cred, self.owner()),
            None => self.permit(kind, cred, perm::EXECUTE).is_ok(),
        };
        if runs { Ok(()) } else { self.permit(kind, cred, perm::READ) }
    }

    /// Checks whether the caller is the owner or the superuser.
    pub(super) fn is_owner(&self, cred: &Cred) -> bool {
        cred.uid == 0 || cred.uid == self.uid
    }

    /// Clears set-id bits after a change of data; `None` means that the user is unknown.
    pub(super) fn shed_set_id(&mut self, who: Option<&Cred>) {
        if who.is_some_and(|c| c.uid == 0) {
            return;
        }
        self.mode &= !0o4000;
        if self.mode & 0o010 != 0 {
            self.mode &= !0o2000;
        }
    }
}

impl MemNode {
    /// Checks permission to change names in this directory, whose lock the caller holds as `here`.
    pub(super) fn permit_names(&self, here: &Inner, by: &Acting<'_>, need: Need) -> VfsResult<()> {
        if by.has(self.id, need.rights & !mask::EXECUTE) {
            return Ok(());
        }
        here.permit(Kind::Dir, by.cred, need)
    }

    /// Checks permission to remove or replace `victim` in this directory: by the right to remove names here, or by the right to
    /// remove the victim (RFC 8881 section 6.2.1.3.2).
    pub(super) fn permit_removal(
        &self,
        here: &Inner,
        by: &Acting<'_>,
        (victim, inner): (&MemNode, &Inner),
    ) -> VfsResult<()> {
        let by_own = |allowed: u32| allowed & mask::DELETE != 0;
        let passes = here.permit(Kind::Dir, by.cred, perm::EXECUTE).is_ok();
        if by.has(victim.id, mask::DELETE)
            || passes && inner.by_list(victim.kind, by.cred).is_some_and(by_own)
        {
            return Ok(());
        }
        self.permit_names(here, by, perm::REMOVE)?;
        let sticky = here.mode & 0o1000 != 0;
        if sticky && !here.is_owner(by.cred) && !inner.is_owner(by.cred) {
            return Err(VfsError::Perm);
        }
        Ok(())
    }
}
