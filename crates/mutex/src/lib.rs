//! Locks that remain usable after a holder panicked. The data behind the project's locks is consistent after every step, so a panic
//! leaves no half-finished change; a bug ends one connection while the others continue.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Locks the mutex.
pub fn locked<T: ?Sized>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for reading.
pub fn reading<T: ?Sized>(m: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    m.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing.
pub fn writing<T: ?Sized>(m: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    m.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn panicked_holder_leaves_lock_usable() {
        let (one, many) = (Mutex::new(1), RwLock::new(1));
        let panics = |hold: &dyn Fn()| {
            let held = catch_unwind(AssertUnwindSafe(|| {
                hold();
            }));
            assert!(held.is_err());
        };
        panics(&|| {
            let mut held = locked(&one);
            *held += 1;
            panic!("with it");
        });
        panics(&|| {
            let mut held = writing(&many);
            *held += 1;
            panic!("with it");
        });
        assert!(one.is_poisoned() && many.is_poisoned());
        assert_eq!((*locked(&one), *reading(&many)), (2, 2));
    }
}
