//! Changes by others than `FileOps`, as a backend tells of them.
//!
//! *Operation.* A backend whose files others can change gives a [`Watched`] for each node that it is asked to watch
//! ([`Node::watch_external`](crate::backend::Node::watch_external)), and calls the [`Listener`] until that is dropped.

use std::sync::Arc;

use crate::types::Action;

/// What somebody did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The data of a watched file.
    Data,
    /// Its attributes, its names, or its last name.
    Attributes,
    /// A name in a watched directory came, went or was given another; `Modified`: what it names was changed.
    Name {
        /// What happened to it.
        action: Action,
        /// It.
        name: Vec<u8>,
        is_dir: bool,
        /// Data was changed, not attributes alone.
        data: bool,
    },
    /// More than the kernel could keep: everything may have changed.
    Overflow,
}

/// Who is told. Called on a thread of its own; must not wait.
pub type Listener = Arc<dyn Fn(&Change) + Send + Sync>;

/// A watched node. Dropping it ends the watch.
pub struct Watched(#[expect(dead_code, reason = "its end is what counts")] Box<dyn Send + Sync>);

impl Watched {
    /// What ends the watch when it is dropped.
    pub fn new(end: impl Send + Sync + 'static) -> Self {
        Self(Box::new(end))
    }
}
