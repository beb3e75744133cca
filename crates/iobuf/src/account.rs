//! The unit of fairness for waiting requests.

use std::sync::atomic::{AtomicU64, Ordering};

/// Identifies a connection for fair queuing: buffers are granted to accounts round-robin, so that one connection cannot starve
/// another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Account(u64);

impl Account {
    /// Creates an account that is unique in this process.
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
