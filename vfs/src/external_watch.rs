//! Watches cached files and directories for changes by other processes.
//!
//! *Operation.* The code that grants caching reports the node by [`ExternalWatch::add`]; later changes by other processes are kept
//! in a list that [`crate::arbiter::Arbiter::follow_external_changes`] empties.
//!
//! *Memory.* One watch for each node that a client caches; one entry for each node that changed. A watch ends at the next clean-up
//! once its node is no longer cached, and at once when its node has no name.
//!
//! *Errors.* A node that cannot be watched is left unwatched.

use ahash::HashMap;
use std::sync::{Arc, Mutex};

use mutex::locked;
use state::{NodeId, Operation};
use tokio::sync::Notify;

use crate::backend::NodeRef;
use crate::external_change::{Change, Watched};

#[derive(Default)]
struct Queue {
    changed: Mutex<HashMap<NodeId, Vec<Operation>>>,
    came: Notify,
}

/// The watched nodes.
#[derive(Default)]
pub(crate) struct ExternalWatch {
    nodes: Mutex<HashMap<NodeId, Watched>>,
    queue: Arc<Queue>,
}

impl ExternalWatch {
    /// Watches a node that a client caches from now on.
    pub(crate) fn add(&self, node: &NodeRef) -> bool {
        let id = node.id();
        let mut nodes = locked(&self.nodes);
        if nodes.contains_key(&id) {
            return true;
        }
        let queue = self.queue.clone();
        let listener = move |change: &Change| queue.push(id, change);
        let watched = node.watch_external(Arc::new(listener));
        watched.map(|watched| nodes.insert(id, watched)).is_some()
    }

    /// Waits for changes and takes them.
    pub(crate) async fn changes(&self) -> HashMap<NodeId, Vec<Operation>> {
        loop {
            // Enabled before the check, so that a change between the two is not missed.
            let mut came = std::pin::pin!(self.queue.came.notified());
            came.as_mut().enable();
            let changed = std::mem::take(&mut *locked(&self.queue.changed));
            if !changed.is_empty() {
                return changed;
            }
            came.await;
        }
    }

    /// Returns true if no node is watched.
    pub(crate) fn is_empty(&self) -> bool {
        locked(&self.nodes).is_empty()
    }

    /// Ends the watch of a node that has no name any more: the watch would keep its data on the disk.
    pub(crate) fn forget(&self, node: NodeId) {
        let gone = locked(&self.nodes).remove(&node);
        drop(gone);
    }

    /// Ends the watches of nodes that are not cached any more.
    pub(crate) fn tidy(&self, is_cached: impl Fn(NodeId) -> bool) {
        let gone: Vec<Watched> = {
            let mut nodes = locked(&self.nodes);
            nodes.extract_if(|id, _| !is_cached(*id)).map(|(_, watched)| watched).collect()
        };
        drop(gone);
    }
}

impl Queue {
    fn push(&self, id: NodeId, change: &Change) {
        let op = match change {
            Change::Data | Change::Overflow => Operation::Write,
            Change::Attributes => Operation::Attributes,
            Change::Name { .. } => Operation::Contents,
        };
        let mut changed = locked(&self.changed);
        let ops = changed.entry(id).or_default();
        if !ops.contains(&op) {
            ops.push(op);
        }
        drop(changed);
        self.came.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use crate::authority::Acting;
    use crate::local::{LocalBackend, LocalConfig};
    use crate::namespace::{Enforce, Namespace, Protocols, Share, Squash};
    use crate::types::{CreateHow, Cred, SetAttr};

    /// A watch would keep the file's data on the disk.
    #[tokio::test]
    async fn unlinked_file_is_not_held() {
        let dir = tempfile::tempdir().unwrap();
        let share = Share {
            name: "data".into(),
            id: Share::id_of("data"),
            backend: LocalBackend::open(LocalConfig::new(dir.path())).unwrap(),
            read_only: false,
            protocols: Protocols::Both,
            squash: Squash::None,
            nfs_locks: Enforce::Smb,
            clients: None,
            rules: crate::namespace::Rules::default(),
        };
        let namespace = Namespace::new(vec![share]);
        let (share, root) = (namespace.shares()[0].clone(), Cred::root());
        let (top, arbiter) = (share.backend.root(), namespace.arbiter());
        let set = SetAttr { mode: Some(0o644), ..SetAttr::default() };
        let made = top.create(Acting::caller(&root), b"f", CreateHow::Guarded, set).await.unwrap();
        made.node.link(Acting::caller(&root), top.as_ref(), b"g").await.unwrap();
        arbiter.watch_external(&made.node);
        assert!(!arbiter.has_no_external_watch());
        let file_ops = namespace.by(None);
        file_ops.unlink(&share, &top, &root, b"g").await.unwrap();
        assert!(!arbiter.has_no_external_watch(), "it has a name still");
        file_ops.unlink(&share, &top, &root, b"f").await.unwrap();
        assert!(arbiter.has_no_external_watch());
    }
}
