//! Cached files and directories, watched for changes by others.
//!
//! *Operation.* Whoever grants caching says so by [`Minded::mind`]; what others change from then on waits in a list that
//! [`crate::keeper::Keeper::mind_outside`] empties.
//!
//! *Memory.* One watch for each node that somebody caches; one entry for each node that changed. Nodes that nobody caches any
//! more are let go when somebody looks.
//!
//! *Errors.* A node that cannot be watched is not.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use state::{NodeId, Operation};
use tokio::sync::Notify;

use crate::backend::NodeRef;
use crate::outside::{Change, Watched};

#[derive(Default)]
struct Queue {
    changed: Mutex<HashMap<NodeId, Vec<Operation>>>,
    came: Notify,
}

fn locked<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whole at every step.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The watched nodes.
#[derive(Default)]
pub(crate) struct Minded {
    nodes: Mutex<HashMap<NodeId, Watched>>,
    queue: Arc<Queue>,
}

impl Minded {
    /// Watches a node that somebody caches from now on.
    pub(crate) fn mind(&self, node: &NodeRef) {
        let id = node.id();
        let mut nodes = locked(&self.nodes);
        if nodes.contains_key(&id) {
            return;
        }
        let queue = self.queue.clone();
        let listener = move |change: &Change| queue.push(id, change);
        if let Some(watched) = node.watch_outside(Arc::new(listener)) {
            nodes.insert(id, watched);
        }
    }

    /// Waits for changes and takes them.
    pub(crate) async fn changes(&self) -> HashMap<NodeId, Vec<Operation>> {
        loop {
            // Enabled before the look, so that what comes between the two is not missed.
            let mut came = std::pin::pin!(self.queue.came.notified());
            came.as_mut().enable();
            let changed = std::mem::take(&mut *locked(&self.queue.changed));
            if !changed.is_empty() {
                return changed;
            }
            came.await;
        }
    }

    /// Lets nodes go that are not cached any more.
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
