//! Records of clients that must be struck: see [`super::release`].

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Mutex, MutexGuard};

use mutex::locked;

use super::name::Name;

/// Strikes that are not durable yet.
#[derive(Debug, Default)]
pub(super) struct Striking {
    /// Clients that did not return in the grace period.
    absent: Mutex<Vec<Name>>,
    /// A pass is running.
    pub(super) runs: AtomicBool,
    /// The last pass did not strike all records.
    pub(super) fails: AtomicBool,
    /// Position of the next check of lapsed clients' files.
    pub(super) looked_from: AtomicUsize,
}

impl Striking {
    pub(super) fn absent(&self) -> MutexGuard<'_, Vec<Name>> {
        locked(&self.absent)
    }

    pub(super) fn has_absent(&self) -> bool {
        !self.absent().is_empty()
    }
}
