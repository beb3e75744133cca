//! Permission for nodes in memory.

use crate::error::{VfsError, VfsResult};
pub(super) use crate::perm::{R, W, X};
use crate::types::{Cred, Kind};

use super::node::Inner;

impl Inner {
    /// The bits of `R | W | X` that `cred` has on a node of this kind.
    pub(super) fn rights(&self, kind: Kind, cred: &Cred) -> u32 {
        crate::perm::rights(kind, self.mode, self.uid, self.gid, cred)
    }

    pub(super) fn permit(&self, kind: Kind, cred: &Cred, wanted: u32) -> VfsResult<()> {
        if self.rights(kind, cred) & wanted == wanted { Ok(()) } else { Err(VfsError::Access) }
    }

    /// For data of a regular file: the owner may use what he has open (RFC 1813 section 4.4), and what may be executed
    /// may be read.
    pub(super) fn permit_data(&self, cred: &Cred, write: bool) -> VfsResult<()> {
        if cred.uid == self.uid {
            return Ok(());
        }
        let rights = self.rights(Kind::File, cred);
        let enough = if write { rights & W } else { rights & (R | X) };
        if enough != 0 { Ok(()) } else { Err(VfsError::Access) }
    }

    /// The owner or the superuser.
    pub(super) fn is_owner(&self, cred: &Cred) -> bool {
        cred.uid == 0 || cred.uid == self.uid
    }

    /// May remove or replace `victim` in this directory.
    pub(super) fn permit_removal(&self, cred: &Cred, victim: &Inner) -> VfsResult<()> {
        self.permit(Kind::Dir, cred, W | X)?;
        let sticky = self.mode & 0o1000 != 0;
        if sticky && !self.is_owner(cred) && !victim.is_owner(cred) {
            return Err(VfsError::Perm);
        }
        Ok(())
    }

    /// What happens to set-id bits when somebody changes data.
    pub(super) fn shed_set_id(&mut self, cred: Option<&Cred>) {
        if cred.is_some_and(|c| c.uid == 0) {
            return;
        }
        self.mode &= !0o4000;
        if self.mode & 0o010 != 0 {
            self.mode &= !0o2000;
        }
    }
}
