//! Long operations give the thread back while they work, so that no other client waits for all of one.

use std::time::{Duration, Instant};

/// An operation keeps the thread for this long at most, and for one step more.
const STRETCH: Duration = Duration::from_millis(2);

/// When an operation took the thread.
pub(crate) struct Pace(Instant);

impl Pace {
    /// Of an operation that begins.
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }

    /// Lets others work first, where this operation has worked for long enough. To be called between two of its steps.
    pub(crate) async fn keep(&mut self) {
        if self.0.elapsed() >= STRETCH {
            tokio::task::yield_now().await;
            self.0 = Instant::now();
        }
    }
}
