//! The folder of a new node: what is known of it, and what the node inherits.

use state::ClientId;

use crate::backend::NodeRef;
use crate::error::VfsResult;
use crate::inherited_acl::InheritedAcl;
use crate::namespace::FileOps;
use crate::types::Attr;

impl FileOps<'_> {
    /// Excludes a directory lease with this key from the breaks for changes in the directory.
    pub fn from_parent(self, key: Option<ClientId>) -> Self {
        Self { parent: key, ..self }
    }

    /// Uses these attributes of the folder of a new name, which the request has just read, unless the request waits meanwhile.
    pub fn having_read(self, folder: Option<Attr>) -> Self {
        Self { folder, ..self }
    }

    /// Reads what a new node in this directory inherits.
    pub(crate) async fn inherited(&self, dir: &NodeRef, umask: u32) -> VfsResult<InheritedAcl> {
        let is_fresh = self.wait_policy.is_some_and(|policy| !policy.has_waited());
        let attr = match self.folder.filter(|_| is_fresh) {
            Some(attr) => attr,
            None => dir.getattr().await?,
        };
        InheritedAcl::of_dir((dir, attr), self.list, umask).await
    }
}
