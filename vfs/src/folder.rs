//! Who may change the names of a folder whose host judges by itself: a kernel, or the library of a cluster.
//!
//! *Operation.* The host knows nothing of the lists that are kept with files. Here it is decided whether the folder's list permits
//! a change of names, or the list of the file that loses one; how the call is made that this permits is the backend's part.
//!
//! *Errors.* [`VfsError::Access`] where a list says no, [`VfsError::Perm`] where a sticky folder does.

use std::sync::Arc;

use crate::acl::mask;
use crate::authority::Acting;
use crate::backend::Node;
use crate::error::{VfsError, VfsResult};
use crate::perm::{self, Need};
use crate::types::{Attr, Cred};

/// Who judges a change of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The host: the folder keeps no list.
    Host,
    /// The folder's list, or a right that it gave an open before. It permits the change.
    List,
}

/// By what a name may be taken away.
pub(crate) enum Taking<N> {
    Folder,
    /// By the list of this file alone: the name must still be this file's when it is taken.
    File(Arc<N>),
}

/// A folder as its backend judges a caller. `attr` was just seen, in each.
pub(crate) trait Folder: Node + Sized {
    /// What the list that is kept with the node gives the caller; `None` where there is none, and for the superuser.
    fn rights_by_list(&self, cred: &Cred, attr: &Attr) -> VfsResult<Option<u32>>;

    /// The caller has this, by the list that is kept with the node, or as the host says.
    fn permits(&self, cred: &Cred, need: Need, attr: &Attr) -> VfsResult<()>;

    /// What has this name, as the process finds it.
    fn named(&self, name: &[u8]) -> VfsResult<(Arc<Self>, Attr)>;

    /// The owner of what has this name.
    fn owner_of(&self, name: &[u8]) -> VfsResult<u32>;

    /// Who judges what needs this on the names here.
    fn judged_by(&self, by: &Acting<'_>, need: Need, attr: &Attr) -> VfsResult<By> {
        if by.has(self.id(), need.rights & !mask::EXECUTE) {
            return Ok(By::List);
        }
        match self.rights_by_list(by.cred, attr)? {
            None => Ok(By::Host),
            Some(allowed) => perm::enough(allowed, need).map(|()| By::List),
        }
    }

    /// The caller may change names here so, by the folder's list or by what the host says of it.
    fn permits_names(&self, by: &Acting<'_>, need: Need, attr: &Attr) -> VfsResult<()> {
        match self.judged_by(by, need, attr)? {
            By::List => Ok(()),
            By::Host => self.permits(by.cred, need, attr),
        }
    }

    /// The caller may take this name away: by the folder, or because it may delete the file itself (RFC 8881 section 6.2.1.3.2).
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

    /// In a sticky folder only the owner of the folder, of the file and the superuser take a name away (inode(7)).
    fn is_sticky_for(&self, cred: &Cred, name: &[u8], attr: &Attr) -> VfsResult<bool> {
        if attr.mode & 0o1000 == 0 || [0, attr.uid].contains(&cred.uid) {
            return Ok(false);
        }
        Ok(self.owner_of(name)? != cred.uid)
    }

    /// The file of this name, which its own list lets the caller delete.
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
