//! Notices to clients about links that a changed configuration adds or removes.

use state::Operation;

use crate::error::VfsResult;
use crate::links::Links;
use crate::namespace::{Namespace, Share};
use crate::types::Action;
use crate::watch::what;

impl Namespace {
    /// Tells clients of a share that these links have come or gone: a listing shows their folders otherwise.
    pub async fn links_changed(&self, share: &Share, links: &Links) {
        for (dir, name) in links.places() {
            self.arbiter().tell(dir.id(), None, Operation::Contents);
            let kind = what::ATTRIBUTES;
            self.watches().post(share.id, &dir, &name, Action::Modified, kind).await;
        }
    }

    /// Tells clients of a share that symbolic links in the style of Samba have become links, or are links no more: any listing may
    /// have one.
    pub async fn samba_links_changed(&self, share: &Share) -> VfsResult<()> {
        self.arbiter().listings_changed(share.id, &share.backend.root()).await
    }
}
