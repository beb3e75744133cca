//! What the store could not be told of persistent handles, and the order of what it was told.
//!
//! *Operation.* A handle whose change could not be written is written again every second, as it is then, until that is durable;
//! one that is gone is struck. Until then a restart finds an older state of it, or a handle that was closed. So each record has a
//! number, and where two cannot stand together at a restart, the later one was true and the earlier one could not be changed.
//!
//! *Memory.* An entry per handle.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use mutex::locked;

use crate::open::Open;

pub(crate) type Handles = HashMap<u64, Weak<Open>>;

/// Handles that are not in the store as they are.
#[derive(Default)]
pub(crate) struct Unwritten {
    /// By `Open.DurableFileId`; of one that is gone only its record is left.
    handles: Mutex<Handles>,
    /// They are being written.
    busy: AtomicBool,
    /// Number of the last record.
    order: AtomicU64,
}

impl Unwritten {
    fn handles(&self) -> MutexGuard<'_, Handles> {
        locked(&self.handles)
    }

    /// The record of a handle may be another than it should be.
    pub(crate) fn owe(&self, open: &Arc<Open>) {
        self.add(open.id.persistent, Arc::downgrade(open));
    }

    /// A handle is gone, and its record may be there.
    pub(crate) fn owe_strike(&self, persistent: u64) {
        self.add(persistent, Weak::new());
    }

    fn add(&self, persistent: u64, open: Weak<Open>) {
        let mut handles = self.handles();
        if handles.is_empty() {
            tracing::warn!(
                "persistent handles are not in the state folder as they are, and are written again every second: after a restart \
                 before that, closed ones come back until their time is over"
            );
        }
        handles.insert(persistent, open);
    }

    /// Number of the next record.
    pub(crate) fn next_order(&self) -> u64 {
        self.order.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Records to come are later than this one, of another run of the server.
    pub(crate) fn comes_after(&self, order: u64) {
        self.order.fetch_max(order, Ordering::Relaxed);
    }

    /// Nothing is to be written, and nothing is being written.
    #[cfg(test)]
    pub(crate) fn is_settled(&self) -> bool {
        !self.busy.load(Ordering::Acquire) && self.handles().is_empty()
    }

    /// They may be written now: there are some, and nobody else does it until [`Unwritten::end`].
    pub(crate) fn begin(&self) -> bool {
        !self.handles().is_empty() && !self.busy.swap(true, Ordering::AcqRel)
    }

    /// See [`Unwritten::begin`].
    pub(crate) fn end(&self) {
        self.busy.store(false, Ordering::Release);
    }

    /// All of them, to be written.
    pub(crate) fn take(&self) -> Handles {
        std::mem::take(&mut *self.handles())
    }

    /// Gives back those that were not. True: all are written.
    pub(crate) fn give_back(&self, owed: impl Iterator<Item = (u64, Weak<Open>)>) -> bool {
        let mut handles = self.handles();
        owed.for_each(|(persistent, open)| {
            // What has become of it meanwhile is newer.
            handles.entry(persistent).or_insert(open);
        });
        handles.is_empty()
    }
}
