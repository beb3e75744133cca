//! Makes changes durable before their answers.
//!
//! *Operation.* On a strict share, `FileOps` makes each object that an operation has changed durable before it returns the answer:
//! the folders whose names changed, and the node itself. All syncs are requested at once, so that a journal commits them together,
//! and all callers that wait for the same object share a sync (RFC 1813 section 4.8, RFC 8881 section 18.26.3: "must be committed
//! to stable storage before returning"). SMB treats only continuously available shares as strict. A volume in memory pays one load.
//!
//! *Errors.* A failed sync is the result of the operation, although its change was made: the caller must not treat the change as
//! durable.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::backend::NodeRef;
use crate::error::{VfsError, VfsResult};
use crate::namespace::{FileOps, Share};
use crate::types::Kind;

/// How often a sync is requested again when too many callers wait for it, and the pause before each request.
const CROWDED_TRIES: u32 = 20;
const CROWDED_PAUSE: Duration = Duration::from_millis(50);

/// Counts of syncs, waits and failures for all volumes since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Syncs of a file, a folder or a volume.
    pub syncs: AtomicU64,
    /// Callers that waited for a sync: more than `syncs` where syncs were shared.
    pub waited: AtomicU64,
    pub failed: AtomicU64,
    /// Callers refused because too many waited for one object.
    pub refused: AtomicU64,
    /// Failures of storage to keep accepted data.
    pub losses: AtomicU64,
}

/// Returns the counters of this process.
pub fn counters() -> &'static Counters {
    static COUNTERS: Counters = Counters {
        syncs: AtomicU64::new(0),
        waited: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        losses: AtomicU64::new(0),
    };
    &COUNTERS
}

impl FileOps<'_> {
    /// Makes these nodes durable, if the share and `FileOps` require it. Fails with the errors of [`crate::Node::sync`].
    pub async fn make_durable(&self, share: &Share, nodes: &[&NodeRef]) -> VfsResult<()> {
        if !share.backend.is_strict(self.smb) {
            return Ok(());
        }
        // A link, a device or a pipe cannot be opened for a sync: the journal contains it with the folder that got its name.
        let opens = |node: &NodeRef| matches!(node.kind(), Kind::File | Kind::Dir);
        let has_folder = nodes.iter().any(|node| node.kind() == Kind::Dir);
        let changed: Vec<_> = nodes
            .iter()
            .enumerate()
            .filter(|(i, node)| nodes.iter().take(*i).all(|before| before.id() != node.id()))
            .filter(|(_, node)| opens(node) || !has_folder)
            .map(|(_, node)| *node)
            .collect();
        if let Some((last, others)) = changed.split_last()
            && !others.is_empty()
            && let Some(all) = last.sync_with(others)
        {
            match all.await {
                // Too many callers wait: the syncs are requested again below.
                Err(VfsError::Delay) => {}
                done => return done,
            }
        }
        // All syncs are requested before the first wait.
        let asked: Vec<_> = changed.into_iter().map(|node| (node, node.sync())).collect();
        let mut done = Ok(());
        for (node, one) in asked {
            let one = uncrowded(node, one.await).await;
            done = done.and(one);
        }
        done
    }
}

/// Makes a node durable whatever its share requires: for a handle that writes through. Fails with the errors of
/// [`crate::Node::sync`].
pub async fn make_node_durable(node: &NodeRef) -> VfsResult<()> {
    uncrowded(node, node.sync().await).await
}

/// Requests the sync again while too many callers wait. The change was made: a caller that retries would make it a second time.
async fn uncrowded(node: &NodeRef, mut done: VfsResult<()>) -> VfsResult<()> {
    for _ in 0..CROWDED_TRIES {
        if done != Err(VfsError::Delay) {
            return done;
        }
        tokio::time::sleep(CROWDED_PAUSE).await;
        done = node.sync().await;
    }
    done.map_err(|e| if e == VfsError::Delay { VfsError::Io } else { e })
}
