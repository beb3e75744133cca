//! Pending deletes at `FileOps`: what a client of NFS may still do to a file that an SMB client has had marked for removal.
//!
//! *Operation.* SMB answers a delete when the name is marked, and removes it with the last close. What another client made or wrote
//! of that name meanwhile would be acknowledged and then gone. So a CREATE that finds the name, an OPEN, and every change of data
//! without an open wait a tenth of a second for the removal and are then refused. Reads and look-ups go on, and so does an
//! open from before the mark. A client of NFS may rename the file: its new name goes instead, also where it is marked after that.
//!
//! *Errors.* [`VfsError::InUse`] while the delete is pending; [`VfsError::Delay`] after a wait for one that was done.

use state::NodeId;

use crate::backend::NodeRef;
use crate::error::{VfsError, VfsResult};
use crate::namespace::FileOps;
use crate::types::{CreateHow, Cred, Kind};

impl FileOps<'_> {
    /// For a protocol with pending deletes of its own, which it has asked for itself.
    pub fn with_deletes(self) -> Self {
        Self { deletes: true, ..self }
    }

    /// The caller's protocol has pending deletes.
    fn has_deletes(&self) -> bool {
        self.deletes || self.requester.is_some_and(|w| w.client.is_key())
    }

    /// The caller's protocol knows no pending deletes, and one is pending somewhere. One load while none is.
    fn may_be_doomed(&self) -> bool {
        !self.has_deletes() && self.arbiter.state().pending_deletes() > 0
    }

    /// Before a file is made or opened by name. GUARDED finds the name taken, as it is.
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

    /// Before a name is put into a directory: one that is to be removed must stay empty.
    pub(crate) async fn check_new_entry(&self, dir: &NodeRef) -> VfsResult<()> {
        if !self.may_be_doomed() {
            return Ok(());
        }
        // A directory has one name.
        self.arbiter.after_delete(dir.id(), None, 1).await.map(drop)
    }

    /// Before the data of a file is changed. Who has had it open since before the mark goes on.
    pub(crate) async fn check_data(&self, node: &NodeRef) -> VfsResult<()> {
        if !self.may_be_doomed()
            || self.requester.is_some_and(|w| w.holder.is_some())
            || !self.arbiter.state().has_pending_deletes(node.id())
        {
            return Ok(());
        }
        let links = node.getattr().await?.nlink;
        // The file may be gone now: the caller finds out when it asks again.
        let waited = self.arbiter.after_delete(node.id(), None, links).await?;
        if waited { Err(VfsError::Delay) } else { Ok(()) }
    }

    /// The node that this name leads to, where an open by another protocol follows it to the new name. The volume says yes to a
    /// rename between two names of one file without a look at any right: such a change is no rename, and none is told that the
    /// caller would not be allowed.
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
