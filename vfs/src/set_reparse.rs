//! Sets and removes reparse points, as [`crate::audited`] records it.

use crate::backend::NodeRef;
use crate::error::VfsResult;
use crate::namespace::{FileOps, Share};
use crate::reparse::{Kept, NAME};
use crate::watch::what;

impl FileOps<'_> {
    /// Keeps a reparse point with a file, or removes it. Contents, names and rights of the file stay.
    pub(crate) async fn do_reparse_set(
        &self,
        share: &Share,
        node: &NodeRef,
        kept: Option<&Kept>,
    ) -> VfsResult<()> {
        self.writable(share)?;
        self.guard_link_attributes(share, node.id())?;
        self.check_attributes(node).await?;
        let record = kept.map(Kept::encode);
        node.side_set(NAME, record.as_deref()).await?;
        self.watches.post_node(share.id, node, what::ATTRIBUTES).await;
        self.make_durable(share, &[node]).await
    }
}
