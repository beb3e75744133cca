//! Limits how long a request waits for payload memory.
//!
//! *Operation.* A connection waits for the memory of one request at a time. After [`limits::MEMORY_WAIT_MAX`] the request is
//! refused, and so are requests after it that begin to wait within [`limits::MEMORY_WAIT_BEHIND`], because they were sent together.
//! A client that retries later waits again, in the order of the pool.
//!
//! *Errors.* A refused request reaches its protocol without its data ([`crate::channel::ReadChunkData::is_missing`]), which answers
//! "try again later". Each is counted.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep};

use crate::{count, limits};

/// The wait of one connection.
#[derive(Default)]
pub(crate) struct MemoryWait {
    timer: Option<Pin<Box<Sleep>>>,
    /// When a request was last refused after its full time.
    refused: Option<Instant>,
}

impl MemoryWait {
    /// Called while a request gets no memory: ready, and counted, when the request must not wait longer.
    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_behind = |at: Instant| at.elapsed() < limits::MEMORY_WAIT_BEHIND;
        if self.timer.is_some() || !self.refused.is_some_and(is_behind) {
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(tokio::time::sleep(limits::MEMORY_WAIT_MAX)));
            ready!(timer.as_mut().poll(cx));
            self.timer = None;
            self.refused = Some(Instant::now());
        }
        count::limit_met(limits::MEMORY_WAIT);
        Poll::Ready(())
    }

    /// Ends the wait: memory is available, or no request needs it.
    pub(crate) fn end(&mut self) {
        self.timer = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[tokio::test(start_paused = true)]
    async fn requests_after_refused_one_continue() {
        let mut wait = MemoryWait::default();
        let mut took = async || {
            let began = Instant::now();
            poll_fn(|cx| wait.poll_over(cx)).await;
            began.elapsed()
        };
        assert!(took().await >= limits::MEMORY_WAIT_MAX);
        assert!(took().await.is_zero(), "it came with the first");
        tokio::time::sleep(limits::MEMORY_WAIT_BEHIND).await;
        assert!(took().await >= limits::MEMORY_WAIT_MAX, "it was asked again");
    }

    #[tokio::test(start_paused = true)]
    async fn memory_ends_the_wait() {
        let mut wait = MemoryWait::default();
        let began = Instant::now();
        let half = limits::MEMORY_WAIT_MAX / 2;
        let first = tokio::time::timeout(half, poll_fn(|cx| wait.poll_over(cx))).await;
        assert!(first.is_err());
        wait.end();
        poll_fn(|cx| wait.poll_over(cx)).await;
        assert!(began.elapsed() >= half + limits::MEMORY_WAIT_MAX);
    }
}
