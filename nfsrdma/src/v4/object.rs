//! The object of a file handle, with the caller's rights.

use std::sync::Arc;

use vfs::links::Link;
use vfs::namespace::{Refusal, Share};
use vfs::{Cred, NodeRef};

use super::above::Above;
use super::opens::FileInShare;

/// A file or directory of a share.
#[derive(Clone)]
pub struct Located {
    pub share: Arc<Share>,
    pub node: NodeRef,
    /// The caller's identity in this share.
    pub cred: Cred,
    /// Why the caller may not use the share. It may still release its state, and mount the root if only its user is refused.
    pub closed: Option<Refusal>,
    /// The link that the file is: its contents are on other servers.
    pub link: Option<Arc<Link>>,
}

impl Located {
    /// The file in this share: a client that reaches a file through two shares has separate state on each, as it has separate
    /// handles.
    pub(super) fn file(&self) -> FileInShare {
        (self.share.id, self.node.id())
    }

    /// Another file of the same share, for the same caller.
    pub fn beside(&self, node: NodeRef) -> Self {
        Self { node, link: None, ..self.clone() }
    }
}

impl Object {
    /// True if the share requires another flavor of the caller.
    pub fn wants_flavor(&self) -> bool {
        matches!(self, Self::Node(Located { closed: Some(why), .. }) if why.is_of_protection())
    }

    /// True if the file system is on another server and the caller may learn its location (RFC 8881 section 11.3).
    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Self::Node(Located { closed: Some(Refusal::Elsewhere), .. }))
    }
}

/// The object of a file handle.
#[derive(Clone)]
pub enum Object {
    /// A pseudo folder.
    Above(Above),
    Node(Located),
}
