//! One node as several shares have it: shares may overlap, and each has a record of its own for a file.

use std::collections::HashMap;
use std::sync::Arc;

use vfs::NodeRef;
use vfs::namespace::Share;

/// A node with its counterparts in other shares. A share that does not show it has the node itself.
pub(crate) struct Seen {
    node: NodeRef,
    /// By the number of the share, for shares other than that of the node.
    shares: HashMap<u32, NodeRef>,
}

impl Seen {
    pub(crate) fn new(node: &NodeRef) -> Self {
        Self { node: node.clone(), shares: HashMap::new() }
    }

    /// Returns the node for files of this share; `None` before [`Seen::look`] has looked through it.
    pub(crate) fn through(&self, share: &Share) -> Option<&NodeRef> {
        match share.backend.root().is_beside(self.node.as_ref()) {
            true => Some(&self.node),
            false => self.shares.get(&share.id),
        }
    }

    /// Looks through these shares.
    pub(crate) async fn look(&mut self, shares: Vec<Arc<Share>>) {
        for share in shares {
            if self.through(&share).is_none() {
                let here = share.backend.counterpart(&self.node).await.ok().flatten();
                self.shares.insert(share.id, here.unwrap_or_else(|| self.node.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use vfs::local::{LocalBackend, LocalConfig};
    use vfs::namespace::{Enforce, Protocols, Rules, Squash};

    use super::*;

    fn share(id: u32, folder: &std::path::Path) -> Arc<Share> {
        Arc::new(Share {
            name: format!("s{id}"),
            id,
            backend: LocalBackend::open(LocalConfig::new(folder)).unwrap(),
            protocols: Protocols::Both,
            read_only: false,
            squash: Squash::None,
            nfs_locks: Enforce::Smb,
            clients: None,
            rules: Rules::default(),
        })
    }

    /// An open through a share that was not looked through must not get the node of another share.
    #[tokio::test]
    async fn node_of_another_share_is_unknown_before_a_look() {
        let disk = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(disk.path().join("in/d")).unwrap();
        let [outer, twin] = [1, 2].map(|id| share(id, disk.path()));
        let inner = share(3, &disk.path().join("in"));
        let (root, cred) = (inner.backend.root(), vfs::Cred::root());
        let (folder, _) = root.lookup(&cred, b"d").await.unwrap();
        let mut seen = Seen::new(&folder);
        assert!(Arc::ptr_eq(seen.through(&inner).unwrap(), &folder));
        assert!(seen.through(&outer).is_none());
        seen.look(vec![outer.clone(), inner, outer.clone()]).await;
        let here = seen.through(&outer).unwrap();
        assert!(here.is_beside(outer.backend.root().as_ref()) && here.id() == folder.id());
        // A share through which a client opens the file only now.
        assert!(seen.through(&twin).is_none());
        seen.look(vec![twin.clone()]).await;
        assert!(seen.through(&twin).unwrap().is_beside(twin.backend.root().as_ref()));
    }
}
