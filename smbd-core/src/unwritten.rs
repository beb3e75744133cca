//! Changes of persistent handles that could not be written to the store, and the order of records.
//!
//! *Operation.* A handle whose change could not be written is written every second, with its state at that time, until the record
//! is durable; the record of a closed handle is deleted. A restart before that finds an older state, or a handle that was closed.
//! So each record has a number, and of two conflicting records the later one is valid: the earlier one could not be updated.
//!
//! *Memory.* An entry per handle.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use mutex::locked;

use crate::open::Open;

pub(crate) type Handles = HashMap<u64, Weak<Open>>;

/// Handles whose record in the store is out of date.
#[derive(Default)]
pub(crate) struct Unwritten {
    /// By `Open.DurableFileId`; of a closed handle only the record is left.
    handles: Mutex<Handles>,
    /// True while they are being written.
    busy: AtomicBool,
    /// Number of the last record.
    order: AtomicU64,
}

impl Unwritten {
    fn handles(&self) -> MutexGuard<'_, Handles> {
        locked(&self.handles)
    }

    /// Notes that the record of a handle may be out of date.
    pub(crate) fn owe(&self, open: &Arc<Open>) {
        self.add(open.id.persistent, Arc::downgrade(open));
    }

    /// Notes that a closed handle may still have a record.
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

    /// Returns the number of the next record.
    pub(crate) fn next_order(&self) -> u64 {
        self.order.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Orders later records after this one of another run of the server.
    pub(crate) fn comes_after(&self, order: u64) {
        self.order.fetch_max(order, Ordering::Relaxed);
    }

    /// Returns whether no handle is waiting or being written.
    #[cfg(test)]
    pub(crate) fn is_settled(&self) -> bool {
        !self.busy.load(Ordering::Acquire) && self.handles().is_empty()
    }

    /// Begins a pass over the handles. Returns false if there are none, or if another pass has not called [`Unwritten::end`].
    pub(crate) fn begin(&self) -> bool {
        !self.handles().is_empty() && !self.busy.swap(true, Ordering::AcqRel)
    }

    /// See [`Unwritten::begin`].
    pub(crate) fn end(&self) {
        self.busy.store(false, Ordering::Release);
    }

    /// Takes all handles, to write them.
    pub(crate) fn take(&self) -> Handles {
        std::mem::take(&mut *self.handles())
    }

    /// Puts back the handles that could not be written. Returns true if all were written.
    pub(crate) fn give_back(&self, owed: impl Iterator<Item = (u64, Weak<Open>)>) -> bool {
        let mut handles = self.handles();
        owed.for_each(|(persistent, open)| {
            // An entry added in the meantime is newer.
            handles.entry(persistent).or_insert(open);
        });
        handles.is_empty()
    }
}
