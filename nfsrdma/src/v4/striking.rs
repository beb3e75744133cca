//! Records of clients that are to be struck, and how that goes: see [`super::release`].

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Mutex, MutexGuard};

use mutex::locked;

use super::name::Name;

/// Strikes that are not durable yet.
#[derive(Debug, Default)]
pub(super) struct Striking {
    /// Those who did not come back in the time to reclaim.
    absent: Mutex<Vec<Name>>,
    /// A round is under way.
    pub(super) runs: AtomicBool,
    /// The last round left something.
    pub(super) fails: AtomicBool,
    /// Where the next look at files of lapsed clients begins.
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
