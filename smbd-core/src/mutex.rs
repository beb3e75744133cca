//! Mutexes of this crate: what they guard is whole at every step, so that a panic of another holder leaves nothing half done.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks it, also after a panic.
pub(crate) fn locked<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}
