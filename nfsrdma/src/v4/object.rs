//! What a file handle names, for the caller who sent it.

use std::sync::Arc;

use vfs::namespace::{Refusal, Share};
use vfs::{Cred, NodeRef};

use super::above::Above;

/// A file or directory that a file handle names.
#[derive(Clone)]
pub struct Located {
    /// The share.
    pub share: Arc<Share>,
    /// The node.
    pub node: NodeRef,
    /// The caller as this share sees it.
    pub cred: Cred,
    /// The caller may not use the share, for this reason: it may give back what it holds, and mount the root where only its user
    /// is kept away.
    pub closed: Option<Refusal>,
}

impl Located {
    /// Another node of the same share, for the same caller.
    pub fn beside(&self, node: NodeRef) -> Self {
        Self { node, ..self.clone() }
    }
}

impl Object {
    /// The caller may use it by another flavor alone.
    pub fn wants_flavor(&self) -> bool {
        matches!(self, Self::Node(Located { closed: Some(why), .. }) if why.is_of_protection())
    }

    /// Its file system is on another server, and the caller may be told so (RFC 8881 section 11.3).
    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Self::Node(Located { closed: Some(Refusal::Elsewhere), .. }))
    }
}

/// What a file handle names.
#[derive(Clone)]
pub enum Object {
    /// A folder above the shares.
    Above(Above),
    /// A node of a share.
    Node(Located),
}
