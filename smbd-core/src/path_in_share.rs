//! Where a file is in its share, and how a path walk got there.

use std::sync::Arc;

use vfs::backend::NodeRef;

use crate::folders::Above;

/// The directory and name of a file; changes when the file is renamed.
#[derive(Clone)]
pub struct PathInShare {
    /// The directory; the root of a share is its own directory.
    pub dir: NodeRef,
    /// The file's name in that directory, as the file system has it; empty for the root.
    pub name: Vec<u8>,
    /// The path from the root of the share as clients see it: `\` between names, without a leading one.
    pub path: String,
    /// The walk that led to the directory.
    pub(crate) walk: Option<Walk>,
}

/// The directories that a path walk passed through. Stale, and then ignored, if any directory was renamed since the walk began.
#[derive(Clone)]
pub(crate) struct Walk {
    /// The last directory and those above it.
    pub(crate) above: Arc<Above<NodeRef>>,
    /// [`Opens::renames`](crate::open::Opens::renames) when the walk began.
    pub(crate) began: u64,
}

/// Records that a walk reached `node` from `parent`, which is `None` for the first directory.
pub(crate) fn walked(node: &NodeRef, parent: Option<Arc<Above<NodeRef>>>) -> Arc<Above<NodeRef>> {
    Arc::new(Above { id: node.id(), node: node.clone(), parent })
}

impl PathInShare {
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.dir.id() == other.dir.id() && self.name == other.name
    }
}
