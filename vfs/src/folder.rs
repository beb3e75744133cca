//! Decides who may change the names of a folder on a host that checks permission itself: a kernel, or the library of a cluster.
//!
//! *Operation.* The host does not know the access control lists that the gateway stores with files. This module decides whether the
//! folder's list permits a change of names, or the list of the file that loses a name; the backend then makes the permitted call.
//!
//! *Errors.* [`VfsError::Access`] if a list denies the change, [`VfsError::Perm`] if a sticky folder does.

use std::sync::Arc;

use crate::acl::mask;
use crate::authority::Acting;
use crate::backend::Node;
use crate::error::{VfsError, VfsResult};
use crate::perm::{self, Need};
use crate::types::{Attr, Cred};

/// The authority that checks permission for a change of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The host, because the folder has no list.
    Host,
    /// The folder's list, or a right that it granted an open before. The change is permitted.
    List,
}

/// The right that permits the removal of a name.
pub(crate) enum Taking<N> {
    Folder,
    /// Only the list of this file: the name must still belong to this file when it is removed.
    File(Arc<N>),
}

/// A folder on which its backend checks permission. `attr` was just read, in each method.
pub(crate) trait Folder: Node + Sized {
    /// Returns the rights that the node's list grants the caller; `None` without a list, and for the superuser.
    fn rights_by_list(&self, cred: &Cred, attr: &Attr) -> VfsResult<Option<u32>>;

    /// Checks this right of the caller, by the node's list, or by the host.
    fn permits(&self, cred: &Cred, need: Need, attr: &Attr) -> VfsResult<()>;

    /// Returns the node of this name, looked up as the process.
    fn named(&self, name: &[u8]) -> VfsResult<(Arc<Self>, Attr)>;

    /// Returns the owner of the node of this name.
    fn owner_of(&self, name: &[u8]) -> VfsResult<u32>;

    /// Decides who checks a change of names here that needs this right.
    fn judged_by(&self, by: &Acting<'_>, need: Need, attr: &Attr) -> VfsResult<By> {
        if by.has(self.id(), need.rights & !mask::EXECUTE) {
            return Ok(By::List);
        }
        match self.rights_by_list(by.cred, attr)? {
            None => Ok(By::Host),
            Some(allowed) => perm::enough(allowed, need).map(|()| By::List),
        }
    }

    /// Checks that the caller may change names here, by the folder's list or by the host.
    fn permits_names(&self, by: &Acting<'_>, need: Need, attr: &Attr) -> VfsResult<()> {
        match self.judged_by(by, need, attr)? {
            By::List => Ok(()),
            By::Host => self.permits(by.cred, need, attr),
        }
    }

    /// Checks that the caller may remove this name: by the folder's rights, or because it may delete the file itself (RFC 8881
    /// section 6.2.1.3.2).
    fn permits_taking(&self, by: &Acting<'_>, name: &[u8], attr: &Attr) -> VfsResult<Taking<Self>> {
        let by_folder = match self.permits_names(by, perm::REMOVE, attr) {
            Ok(()) if self.is_sticky_for(by.cred, name, attr)? => Err(VfsError::Perm),
            other => other,
        };
        match by_folder {
            Ok(()) => Ok(Taking::Folder),
            Err(why @ (VfsError::Access | VfsError::Perm)) => {
                let itself = self.permits_taking_itself(by, name, attr);
                let file = itself.map_err(|e| if e == VfsError::Access { why } else { e })?;
                Ok(Taking::File(file))
            }
            Err(e) => Err(e),
        }
    }

    /// Returns true if the folder is sticky and forbids the removal: only the owner of the folder, the owner of the file and the
    /// superuser may remove a name there (inode(7)).
    fn is_sticky_for(&self, cred: &Cred, name: &[u8], attr: &Attr) -> VfsResult<bool> {
        if attr.mode & 0o1000 == 0 || [0, attr.uid].contains(&cred.uid) {
            return Ok(false);
        }
        Ok(self.owner_of(name)? != cred.uid)
    }

    /// Returns the file of this name if its own list lets the caller delete it.
    fn permits_taking_itself(
        &self,
        by: &Acting<'_>,
        name: &[u8],
        attr: &Attr,
    ) -> VfsResult<Arc<Self>> {
        let (node, its) = self.named(name)?;
        let granted = by.has(node.id(), mask::DELETE)
            || self.permits(by.cred, perm::EXECUTE, attr).is_ok()
                && node.rights_by_list(by.cred, &its)?.is_some_and(|r| r & mask::DELETE != 0);
        if granted { Ok(node) } else { Err(VfsError::Access) }
    }
}
