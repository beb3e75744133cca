//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock, also behind a panic.
pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code of ours panics under these locks; if one did, the lists are still whole at every step.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}
