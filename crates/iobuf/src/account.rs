//! Whose turn it is.

use std::sync::atomic::{AtomicU64, Ordering};

/// Who waits: buffers are given to accounts in turn, so that one connection cannot starve another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Account(u64);

impl Account {
    /// A new account, different from all others of this process.
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Default for Account {
    fn default() -> Self {
        Self::new()
    }
}
