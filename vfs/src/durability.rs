//! What is answered is on stable storage.
//!
//! *Operation.* On a share that is strict, `FileOps` makes each object that an operation has changed durable before it gives the
//! answer: the folders whose names changed, and the node itself. All of them are asked for at once, so that a journal commits
//! them together, and a sync is shared by everyone who waits for the same object (RFC 1813 section 4.8, RFC 8881 section
//! 18.26.3: "must be committed to stable storage before returning"). By SMB only shares that are
//! continuously available are strict. A volume in memory pays one load.
//!
//! *Errors.* A sync that fails is the answer of the operation, though it was done: the caller must not take it for kept.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::backend::NodeRef;
use crate::error::{VfsError, VfsResult};
use crate::namespace::{FileOps, Share};
use crate::types::Kind;

/// How often a sync is asked for again when too many wait for it, and after which time each.
const CROWDED_TRIES: u32 = 20;
const CROWDED_PAUSE: Duration = Duration::from_millis(50);

/// What making things durable has cost, for all volumes since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Syncs of a file, a folder or a volume.
    pub syncs: AtomicU64,
    /// Callers who waited for them: more than `syncs` where they were shared.
    pub waited: AtomicU64,
    /// Syncs that failed.
    pub failed: AtomicU64,
    /// Callers refused because too many waited for one object.
    pub refused: AtomicU64,
    /// Failures of storage to keep what it had taken.
    pub losses: AtomicU64,
}

/// The counters of this process.
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
    /// Makes these nodes durable, if the share and `FileOps` ask for it. Errors: those of [`crate::Node::sync`].
    pub async fn make_durable(&self, share: &Share, nodes: &[&NodeRef]) -> VfsResult<()> {
        if !share.backend.is_strict(self.smb) {
            return Ok(());
        }
        // A link, a device or a pipe cannot be opened to be synced: it is in the journal with the folder that got its name.
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
                // Too many wait: they are asked for again below.
                Err(VfsError::Delay) => {}
                done => return done,
            }
        }
        // Each is under way before the first is waited for.
        let asked: Vec<_> = changed.into_iter().map(|node| (node, node.sync())).collect();
        let mut done = Ok(());
        for (node, one) in asked {
            let one = uncrowded(node, one.await).await;
            done = done.and(one);
        }
        done
    }
}

/// Makes a node durable whatever its share asks for: for a handle that writes through. Errors: the ones of [`crate::Node::sync`].
pub async fn make_node_durable(node: &NodeRef) -> VfsResult<()> {
    uncrowded(node, node.sync().await).await
}

/// Asks again while too many wait for syncs. The change is made: whoever were told to come back would make it a second time.
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
