//! Protects the links of a share and of the shares that overlap it: a folder has one identity in all of them.

use crate::backend::NodeRef;
use crate::error::VfsResult;
use crate::links::{Change, Links};
use crate::namespace::{FileOps, Share};
use crate::types::NodeId;

impl FileOps<'_> {
    /// Refuses a change of a name that [`Links::refuse`] refuses in any of the shares.
    pub(crate) fn guard_links(
        &self,
        share: &Share,
        dir: NodeId,
        name: &[u8],
        change: Change,
    ) -> VfsResult<()> {
        self.all_links(share, |links| links.refuse(dir, name, change))
    }

    /// Refuses to announce the removal of a name that a link of any of the shares needs.
    pub fn check_not_linked(&self, share: &Share, dir: &NodeRef, name: &[u8]) -> VfsResult<()> {
        self.guard_links(share, dir.id(), name, Change::Take)
    }

    /// Refuses a change of attributes that [`Links::refuse_attributes`] refuses in any of the shares.
    pub(crate) fn guard_link_attributes(&self, share: &Share, node: NodeId) -> VfsResult<()> {
        self.all_links(share, |links| links.refuse_attributes(node))
    }

    /// Refuses a symbolic link that [`Links::refuse_text`] refuses in any of the shares.
    pub(crate) fn guard_link_text(&self, share: &Share, text: &[u8]) -> VfsResult<()> {
        self.all_links(share, |links| links.refuse_text(text))
    }

    fn all_links(&self, share: &Share, check: impl Fn(&Links) -> VfsResult<()>) -> VfsResult<()> {
        check(&share.rules.links)?;
        let overlaps = self.watches.overlaps();
        if !overlaps.exist() {
            return Ok(());
        }
        overlaps.of(share.id).iter().try_for_each(|other| check(&other.rules.links))
    }
}
