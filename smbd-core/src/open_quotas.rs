//! The state of an open of the quotas of a volume.

use std::sync::{Arc, Mutex};

use mutex::locked;
use vfs::NodeRef;
use vfs::namespace::Share;

/// The quotas of the volume of a share, as clients open them by the name `$Extend\$Quota:$Q:$INDEX_ALLOCATION`.
pub struct Quotas {
    pub share: Arc<Share>,
    /// A folder on the volume.
    pub node: NodeRef,
    /// The user at which an enumeration continues; `None` at its end.
    next: Mutex<Option<u32>>,
}

impl Quotas {
    pub(crate) fn new(share: Arc<Share>, node: NodeRef) -> Self {
        Self { share, node, next: Mutex::new(Some(0)) }
    }

    /// Returns the user at which an enumeration continues; `None` at its end.
    pub(crate) fn next(&self) -> Option<u32> {
        *locked(&self.next)
    }

    pub(crate) fn set_next(&self, next: Option<u32>) {
        *locked(&self.next) = next;
    }
}
