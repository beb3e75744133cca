//! Pending deletes at `FileOps`: restricts what an NFS client may do with a file that an SMB client has marked for removal.
//!
//! *Operation.* SMB answers a delete when the name is marked, and removes the name at the last close. Data that another client
//! wrote under that name meanwhile would be acknowledged and then lost. A CREATE of the name, an OPEN, and every change of data
//! without an open wait a tenth of a second for the removal and then fail. Reads and look-ups are not affected, nor is an open from
//! before the mark. An NFS client may rename the file: then the new name is removed, even if the file is marked after the rename.
//!
//! *Errors.* [`VfsError::InUse`] while the delete is pending; [`VfsError::Delay`] after a wait for one that was completed.

use state::NodeId;

use crate::backend::NodeRef;
use crate::error::{VfsError, VfsResult};
use crate::namespace::FileOps;
use crate::types::{CreateHow, Cred, Kind};

impl FileOps<'_> {
    /// Skips these checks, for a protocol that checks pending deletes itself.
    pub fn with_deletes(self) -> Self {
        Self { deletes: true, ..self }
    }

    /// Returns true if the caller's protocol has pending deletes.
    fn has_deletes(&self) -> bool {
        self.deletes || self.requester.is_some_and(|w| w.client.is_key())
    }

    /// Returns true if the caller's protocol knows no pending deletes, and one is pending on any file. Costs one load while no
    /// delete is pending.
    fn may_be_doomed(&self) -> bool {
        !self.has_deletes() && self.arbiter.state().pending_deletes() > 0
    }

    /// Called before a file is created or opened by name. GUARDED reports that the name exists, as usual.
    pub(crate) async fn check_create(
        &self,
        dir: &NodeRef,
        cred: &Cred,
        name: &[u8],
        how: CreateHow,
    ) -> VfsResult<()> {
        if !self.may_be_doomed() {
            return Ok(());
        }
        self.check_new_entry(dir).await?;
        if how != CreateHow::Guarded
            && let Ok((node, attr)) = dir.lookup(cred, name).await
            && node.kind() != Kind::Dir
        {
            self.arbiter.after_delete(node.id(), Some((dir.id(), name)), attr.nlink).await?;
        }
        Ok(())
    }

    /// Called before a name is added to a directory: a directory that waits for removal must stay empty.
    pub(crate) async fn check_new_entry(&self, dir: &NodeRef) -> VfsResult<()> {
        if !self.may_be_doomed() {
            return Ok(());
        }
        // A directory has one name.
        self.arbiter.after_delete(dir.id(), None, 1).await.map(drop)
    }

    /// Called before the data of a file is changed. A client that has had it open since before the mark may continue.
    pub(crate) async fn check_data(&self, node: &NodeRef) -> VfsResult<()> {
        if !self.may_be_doomed()
            || self.requester.is_some_and(|w| w.holder.is_some())
            || !self.arbiter.state().has_pending_deletes(node.id())
        {
            return Ok(());
        }
        let links = node.getattr().await?.nlink;
        // The file may be gone now: the caller finds out when it tries again.
        let waited = self.arbiter.after_delete(node.id(), None, links).await?;
        if waited { Err(VfsError::Delay) } else { Ok(()) }
    }

    /// Returns the node of this name, if an open by another protocol must follow the rename to the new name. The volume accepts a
    /// rename between two names of one file without any permission check; such a call is no rename, and it must not be reported on
    /// behalf of a caller without the right to rename.
    pub(crate) async fn followed(
        &self,
        (from_dir, from): (&NodeRef, &[u8]),
        cred: &Cred,
        (to_dir, to): (&NodeRef, &[u8]),
    ) -> Option<NodeId> {
        if self.has_deletes() || !self.arbiter.follows_names() {
            return None;
        }
        let (node, attr) = from_dir.lookup(&Cred::root(), from).await.ok()?;
        self.check_adding(to_dir, cred, attr.kind).await.ok()?;
        if let Ok((there, _)) = to_dir.lookup(&Cred::root(), to).await {
            self.check_removal(to_dir, cred, &there).await.ok()?;
        }
        Some(node.id())
    }
}
