//! Outcomes of configuration reloads, for `status` and the metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

static DONE: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// 1 if the last reload was refused.
static LAST_REFUSED: AtomicU64 = AtomicU64::new(0);
/// Time of the last reload that succeeded, in seconds since 1970.
static LAST_DONE: AtomicU64 = AtomicU64::new(0);

/// Reloads of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadStatus {
    /// Reloads that came into force.
    pub done: u64,
    /// Reloads that were refused.
    pub refused: u64,
    /// The last one was refused, so the file differs from the configuration in force.
    pub last_refused: bool,
    /// When the configuration in force was read, in seconds since 1970-01-01 00:00 UTC; 0: at the start.
    pub last_done: u64,
}

/// Counts one reload.
pub(crate) fn note(is_done: bool) {
    let counter = if is_done { &DONE } else { &REFUSED };
    counter.fetch_add(1, Ordering::Relaxed);
    LAST_REFUSED.store((!is_done).into(), Ordering::Relaxed);
    if is_done {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        LAST_DONE.store(now.as_secs(), Ordering::Relaxed);
    }
}

/// Returns the counters so far.
pub(crate) fn seen() -> ReloadStatus {
    ReloadStatus {
        done: DONE.load(Ordering::Relaxed),
        refused: REFUSED.load(Ordering::Relaxed),
        last_refused: LAST_REFUSED.load(Ordering::Relaxed) == 1,
        last_done: LAST_DONE.load(Ordering::Relaxed),
    }
}
