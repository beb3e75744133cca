//! The rotation of delegations whose files are checked: see [`super::watch`].
//!
//! *Memory.* Two numbers per delegation.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use mutex::locked;
use state::ClientId;

/// Delegations in the order of checking.
#[derive(Debug, Default)]
pub(super) struct Watched(Mutex<VecDeque<(ClientId, u32)>>);

impl Watched {
    fn queue(&self) -> MutexGuard<'_, VecDeque<(ClientId, u32)>> {
        locked(&self.0)
    }

    /// Adds a new delegation.
    pub(super) fn add(&self, client: ClientId, number: u32) {
        self.queue().push_back((client, number));
    }

    pub(super) fn next(&self) -> Option<(ClientId, u32)> {
        self.queue().pop_front()
    }

    pub(super) fn len(&self) -> usize {
        self.queue().len()
    }
}
