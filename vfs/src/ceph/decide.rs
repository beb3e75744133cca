//! Permission for changes of names, and the single call that a list permits.
//!
//! *Operation.* The library ignores stored lists. A change of names that a list permits is made as the superuser of the cluster,
//! without a permission check by the library: so all checks for the caller are made here, including the sticky bit. [`Override`]
//! represents the permission: created by a decision on one folder, consumed by one call. If a file's own list permits its removal,
//! the backend looks the name up again just before the call, which it makes only if it still refers to that file.
//!
//! *Errors.* [`VfsError::Access`] if a list denies, [`VfsError::Perm`] if a sticky folder does.

use std::sync::Arc;

use ceph_sys::{Name, Perm, Vino};

use crate::authority::Acting;
use crate::error::{VfsError, VfsResult};
use crate::folder::{By, Folder, Taking};
use crate::perm::{self, Need, sheds_set_id};
use crate::types::*;

use super::node::CephNode;
use super::stat::vino_of;

/// The authority that decides on a change of names in a folder.
pub(super) enum Judge<'a> {
    /// The library, because the folder has no stored list.
    Library,
    /// The folder's list, which has permitted it.
    List(Override<'a>),
}

/// Permission for one call that changes names. It can be neither copied nor reused.
pub(super) struct Override<'a> {
    folder: &'a CephNode,
    /// The only file that this name may be removed from.
    exact: Option<(&'a [u8], Vino)>,
}

impl<'a> Override<'a> {
    /// Restricts the permission to the file that was found under the name.
    pub(super) fn of_exactly(mut self, name: &'a [u8], seen: Vino) -> Self {
        self.exact.get_or_insert((name, seen));
        self
    }

    /// Makes the call as the superuser.
    pub(super) fn run<T>(self, call: impl FnOnce(&Perm) -> VfsResult<T>) -> VfsResult<T> {
        self.verify()?;
        call(&self.folder.volume.process)
    }

    /// Makes a call that changes names in two folders, with a permission for each.
    pub(super) fn run_both<T>(
        self,
        other: Override<'_>,
        call: impl FnOnce(&Perm) -> VfsResult<T>,
    ) -> VfsResult<T> {
        self.verify()?;
        other.run(call)
    }

    /// Checks that the name still refers to the file whose own list was checked.
    fn verify(&self) -> VfsResult<()> {
        let Some((name, file)) = self.exact else { return Ok(()) };
        if self.folder.seen(name)?.0 == file { Ok(()) } else { Err(VfsError::NotFound) }
    }
}

impl Folder for CephNode {
    fn rights_by_list(&self, cred: &Cred, attr: &Attr) -> VfsResult<Option<u32>> {
        self.by_list(cred, attr)
    }

    fn permits(&self, cred: &Cred, need: Need, attr: &Attr) -> VfsResult<()> {
        self.permitted(cred, need, attr)
    }

    fn named(&self, name: &[u8]) -> VfsResult<(Arc<Self>, Attr)> {
        self.find(name)
    }

    fn owner_of(&self, name: &[u8]) -> VfsResult<u32> {
        Ok(self.seen(name)?.1.uid)
    }
}

impl CephNode {
    fn override_here(&self) -> Override<'_> {
        Override { folder: self, exact: None }
    }

    /// Looks up this name as the superuser; returns the inode number and attributes.
    pub(super) fn seen(&self, name: &[u8]) -> VfsResult<(Vino, Attr)> {
        let name = self.volume.done(Name::new(name))?;
        let (_, stat) = self.by_name(|| self.inode().lookup(&name, &self.volume.process))?;
        Ok((vino_of(&stat), self.volume.present(&stat)?))
    }

    /// Decides which authority checks this need for names here; `attr` was read just before.
    pub(super) fn decide(&self, by: &Acting<'_>, need: Need, attr: &Attr) -> VfsResult<Judge<'_>> {
        Ok(match self.judged_by(by, need, attr)? {
            By::Host => Judge::Library,
            By::List => Judge::List(self.override_here()),
        })
    }

    /// Checks that the caller may change names here, by the folder's list or by mode bits.
    pub(super) fn allows_names(
        &self,
        by: &Acting<'_>,
        need: Need,
        attr: &Attr,
    ) -> VfsResult<Override<'_>> {
        self.permits_names(by, need, attr)?;
        Ok(self.override_here())
    }

    /// Checks that the caller may remove this name; if only the file's own list permits it, the permission is restricted to this
    /// file.
    pub(super) fn may_take<'a>(
        &'a self,
        by: &Acting<'_>,
        name: &'a [u8],
        attr: &Attr,
    ) -> VfsResult<Override<'a>> {
        Ok(match self.permits_taking(by, name, attr)? {
            Taking::Folder => self.override_here(),
            Taking::File(file) => Override { folder: self, exact: Some((name, file.vino)) },
        })
    }

    /// Like [`CephNode::may_take`], using only the file's own list.
    pub(super) fn may_delete_itself<'a>(
        &'a self,
        by: &Acting<'_>,
        name: &'a [u8],
        attr: &Attr,
    ) -> VfsResult<Override<'a>> {
        let file = self.permits_taking_itself(by, name, attr)?;
        Ok(Override { folder: self, exact: Some((name, file.vino)) })
    }

    /// The rule for linking a file of another owner (proc(5), `protected_hardlinks`; the library applies the same): it is a regular
    /// file without set-id bits, and the caller may read and write it.
    pub(super) fn may_be_linked(&self, cred: &Cred, attr: &Attr) -> VfsResult<()> {
        if [0, attr.uid].contains(&cred.uid) {
            return Ok(());
        }
        if self.kind != Kind::File || sheds_set_id(attr.mode) {
            return Err(VfsError::Perm);
        }
        self.permitted(cred, perm::BOTH, attr).map_err(|_| VfsError::Perm)
    }

    /// Removes an object created just before under this name, if the name still refers to it.
    pub(super) fn unmake(&self, name: &[u8], made: Vino, kind: Kind) {
        let power = Override { folder: self, exact: Some((name, made)) };
        // The result does not matter: the caller already returns an error.
        let _ = power.run(|perm| self.take_name(name, kind == Kind::Dir, perm));
    }
}
