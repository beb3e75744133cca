//! Who may change names, and the one call that a list permits.
//!
//! *Operation.* The library knows nothing of the lists that are kept with files. A change of names that a list permits is made as
//! the superuser of the cluster, whom the library asks nothing: so all that it would have asked the caller is asked here, the
//! sticky bit too. [`Override`] is that permission: made by a decision about one folder, consumed by one call. Where it is the
//! file's own list that permits a removal, the name is looked at once more just before the call, which is made only while it still
//! is that file's.
//!
//! *Errors.* [`VfsError::Access`] where a list says no, [`VfsError::Perm`] where a sticky folder does.

use std::sync::Arc;

use ceph_sys::{Name, Perm, Vino};

use crate::authority::Acting;
use crate::error::{VfsError, VfsResult};
use crate::folder::{By, Folder, Taking};
use crate::perm::{self, Need, sheds_set_id};
use crate::types::*;

use super::node::CephNode;
use super::stat::vino_of;

/// Who judges a change of names in a folder.
pub(super) enum Judge<'a> {
    /// The folder keeps no list: the library.
    Library,
    /// Its list has permitted it.
    List(Override<'a>),
}

/// Permission for one call that changes names. It can be neither copied nor used twice.
pub(super) struct Override<'a> {
    folder: &'a CephNode,
    /// The only file that may lose this name.
    exact: Option<(&'a [u8], Vino)>,
}

impl<'a> Override<'a> {
    /// Only while the name is still that of the file that was seen under it.
    pub(super) fn of_exactly(mut self, name: &'a [u8], seen: Vino) -> Self {
        self.exact.get_or_insert((name, seen));
        self
    }

    /// Makes the call as the superuser.
    pub(super) fn run<T>(self, call: impl FnOnce(&Perm) -> VfsResult<T>) -> VfsResult<T> {
        self.verify()?;
        call(&self.folder.volume.process)
    }

    /// Makes a call that changes names in two folders, each of which was decided about.
    pub(super) fn run_both<T>(
        self,
        other: Override<'_>,
        call: impl FnOnce(&Perm) -> VfsResult<T>,
    ) -> VfsResult<T> {
        self.verify()?;
        other.run(call)
    }

    /// The name is still that of the file whose own list was asked.
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

    /// What has this name here now, as the superuser sees it: its number and its owner.
    pub(super) fn seen(&self, name: &[u8]) -> VfsResult<(Vino, Attr)> {
        let name = self.volume.done(Name::new(name))?;
        let (_, stat) = self.by_name(|| self.inode().lookup(&name, &self.volume.process))?;
        Ok((vino_of(&stat), self.volume.present(&stat)?))
    }

    /// Who judges what needs this on the names here; `attr` was just seen.
    pub(super) fn decide(&self, by: &Acting<'_>, need: Need, attr: &Attr) -> VfsResult<Judge<'_>> {
        Ok(match self.judged_by(by, need, attr)? {
            By::Host => Judge::Library,
            By::List => Judge::List(self.override_here()),
        })
    }

    /// The caller may change names here so, by the folder's list or by mode bits.
    pub(super) fn allows_names(
        &self,
        by: &Acting<'_>,
        need: Need,
        attr: &Attr,
    ) -> VfsResult<Override<'_>> {
        self.permits_names(by, need, attr)?;
        Ok(self.override_here())
    }

    /// The caller may take this name away; where that is by the file's own list, of this file alone.
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

    /// As [`CephNode::may_take`], by the list of the file alone.
    pub(super) fn may_delete_itself<'a>(
        &'a self,
        by: &Acting<'_>,
        name: &'a [u8],
        attr: &Attr,
    ) -> VfsResult<Override<'a>> {
        let file = self.permits_taking_itself(by, name, attr)?;
        Ok(Override { folder: self, exact: Some((name, file.vino)) })
    }

    /// What is asked of whoever links a file that is not its own (proc(5), `protected_hardlinks`; the library asks the same): it is
    /// a regular file without set-id bits, and the caller may read and write it.
    pub(super) fn may_be_linked(&self, cred: &Cred, attr: &Attr) -> VfsResult<()> {
        if [0, attr.uid].contains(&cred.uid) {
            return Ok(());
        }
        if self.kind != Kind::File || sheds_set_id(attr.mode) {
            return Err(VfsError::Perm);
        }
        self.permitted(cred, perm::BOTH, attr).map_err(|_| VfsError::Perm)
    }

    /// Takes back what was made a moment ago under this name, if it still is that.
    pub(super) fn unmake(&self, name: &[u8], made: Vino, kind: Kind) {
        let power = Override { folder: self, exact: Some((name, made)) };
        // Nobody is left to be told.
        let _ = power.run(|perm| self.take_name(name, kind == Kind::Dir, perm));
    }
}
