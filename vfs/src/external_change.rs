//! Reports of a backend about changes that were not made by `FileOps`.
//!
//! *Operation.* A backend whose files other processes can change returns a [`Watched`] for each node to be watched
//! ([`Node::watch_external`](crate::backend::Node::watch_external)), and calls the [`Listener`] until that is dropped.

use std::sync::Arc;

use crate::types::Action;

/// A change by another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The data of a watched file.
    Data,
    /// Attributes of a watched file, the number of its names, or the loss of its last name.
    Attributes,
    /// A name in a watched directory was added, removed or renamed; `Modified`: its node was changed.
    Name {
        /// The kind of change to the name.
        action: Action,
        /// The name that changed.
        name: Vec<u8>,
        is_dir: bool,
        /// True if data was changed, not only attributes.
        data: bool,
    },
    /// The kernel lost reports: everything may have changed.
    Overflow,
}

/// The function that receives the reports. Called on a separate thread; must not wait.
pub type Listener = Arc<dyn Fn(&Change) + Send + Sync>;

/// A watched node. Dropping it ends the watch.
pub struct Watched(#[expect(dead_code, reason = "its end is what counts")] Box<dyn Send + Sync>);

impl Watched {
    /// Creates a watch that ends by dropping `end`.
    pub fn new(end: impl Send + Sync + 'static) -> Self {
        Self(Box::new(end))
    }
}
