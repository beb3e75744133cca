//! Makes long operations yield their thread, so that other clients need not wait for their end.

use std::time::{Duration, Instant};

/// The longest time that an operation keeps the thread, plus one step.
const STRETCH: Duration = Duration::from_millis(2);

/// When an operation last got the thread.
pub(crate) struct Pace(Instant);

impl Pace {
    /// Starts the clock of an operation.
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }

    /// Yields if the operation has worked for long enough. Call it between two steps.
    pub(crate) async fn keep(&mut self) {
        if self.0.elapsed() >= STRETCH {
            tokio::task::yield_now().await;
            self.0 = Instant::now();
        }
    }
}
