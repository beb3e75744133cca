//! Locks that open behind a holder that has panicked. What our locks guard is whole at every step, so that nothing is half done
//! behind them; a fault of ours ends a connection, and others go on.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Locks it.
pub fn locked<T: ?Sized>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks it beside other readers.
pub fn reading<T: ?Sized>(m: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    m.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks it alone.
pub fn writing<T: ?Sized>(m: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    m.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_panic_of_a_holder_leaves_the_lock_open() {
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
