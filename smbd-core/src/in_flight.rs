//! Counts operations in progress, and waits until all have ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts operations that have begun and not ended.
#[derive(Default)]
pub(crate) struct InFlight {
    now: AtomicUsize,
    begun: AtomicU64,
    over: Notify,
}

impl InFlight {
    /// Begins an operation, which ends when the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Guard {
        self.now.fetch_add(1, Ordering::AcqRel);
        self.begun.fetch_add(1, Ordering::Relaxed);
        Guard(self.clone())
    }

    /// Returns how many operations have ever begun.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Returns whether no operation is in progress.
    pub(crate) fn is_settled(&self) -> bool {
        self.now.load(Ordering::Acquire) == 0
    }

    /// Waits until no operation is in progress.
    pub(crate) async fn settled(&self) {
        loop {
            let over = self.over.notified();
            tokio::pin!(over);
            // Register before reading the count, so that no end is missed.
            over.as_mut().enable();
            if self.is_settled() {
                return;
            }
            over.await;
        }
    }
}

/// See [`InFlight::begin`].
pub(crate) struct Guard(Arc<InFlight>);

impl Drop for Guard {
    fn drop(&mut self) {
        if self.0.now.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.over.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_wait_ends_with_the_last_of_them() {
        let all = Arc::new(InFlight::default());
        all.settled().await;
        let (one, two) = (all.begin(), all.begin());
        let waits = tokio::spawn({
            let all = all.clone();
            async move { all.settled().await }
        });
        tokio::task::yield_now().await;
        drop(one);
        tokio::task::yield_now().await;
        assert!(!waits.is_finished() && !all.is_settled());
        drop(two);
        waits.await.unwrap();
        assert_eq!(all.begun(), 2);
    }
}
