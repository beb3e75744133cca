//! The arbiter's access to SMB clients: breaks caching, ends opens that conflict, and passes on renames by clients of other
//! protocols.

use std::sync::{Arc, Weak};

use state::{Break, Caching, ClientId, NodeId};
use vfs::VfsResult;
use vfs::arbiter::Recall;
use vfs::backend::{BoxFuture, NodeRef};

use crate::open::Open;
use crate::server_state::ServerState;
use crate::{lease, path_tracking, teardown};

/// The link from [`state`] to the holders. Weak, because the server keeps the namespace, which keeps this link.
struct Link(Weak<ServerState>);

/// Connects the server to `FileOps`.
pub(crate) fn attach(core: &Arc<ServerState>) {
    let link = Arc::new(Link(Arc::downgrade(core)));
    if !core.namespace.arbiter().attach_keys(link) {
        tracing::warn!(
            "these shares have an SMB server already; only its clients receive break notifications"
        );
    }
}

impl Recall for Link {
    fn recall(&self, what: &Break) {
        if let Some(core) = self.0.upgrade() {
            lease::tell(&core, what, true);
        }
    }

    fn revoke(&self, what: &Break) {
        if let Some(core) = self.0.upgrade() {
            lease::overrule(&core, what);
        }
    }

    fn release(&self, client: ClientId) -> BoxFuture<'_, ()> {
        let core = self.0.upgrade();
        Box::pin(async move {
            if let Some(core) = core {
                teardown::give_way(&core, client).await;
            }
        })
    }

    fn follows_names(&self) -> bool {
        self.0.upgrade().is_some_and(|core| core.opens.follow_names())
    }

    fn linked(&self, node: NodeId) {
        if let Some(core) = self.0.upgrade() {
            core.opens.linked(node);
        }
    }

    fn renamed<'a>(
        &'a self,
        node: NodeId,
        from: (&'a NodeRef, &'a [u8]),
        to: (&'a NodeRef, &'a [u8]),
    ) -> BoxFuture<'a, ()> {
        let core = self.0.upgrade();
        Box::pin(async move {
            if let Some(core) = core {
                core.opens.renamed(node, from, to).await;
            }
        })
    }

    fn handles_below(&self, share: u32, dir: &NodeRef) -> BoxFuture<'_, VfsResult<Vec<NodeId>>> {
        self.cached_below(share, dir, |rights, _| rights.has(Caching::HANDLE))
    }

    fn listings_below(&self, share: u32, top: &NodeRef) -> BoxFuture<'_, VfsResult<Vec<NodeId>>> {
        self.cached_below(share, top, |rights, open| open.is_dir() && rights.has(Caching::READ))
    }
}

impl Link {
    /// Returns the nodes below a directory whose opens have caching rights that `which` accepts.
    fn cached_below(
        &self,
        share: u32,
        dir: &NodeRef,
        which: fn(Caching, &Open) -> bool,
    ) -> BoxFuture<'_, VfsResult<Vec<NodeId>>> {
        let (core, dir) = (self.0.upgrade(), dir.clone());
        Box::pin(async move {
            let Some(core) = core else { return Ok(Vec::new()) };
            let shares = core.namespace.shares();
            let Some(share) = shares.iter().find(|s| s.id == share) else { return Ok(Vec::new()) };
            let cached = |o: &Open| which(lease::rights(&core, o), o);
            path_tracking::below(&core.opens, share, &dir, usize::MAX, cached).await
        })
    }
}
