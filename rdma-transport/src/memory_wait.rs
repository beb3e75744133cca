//! Limits how long a request waits for payload memory.
//!
//! *Operation.* A connection waits for the memory of one request at a time. After [`limits::MEMORY_WAIT_MAX`] the request is
//! refused, and so are requests after it that begin to wait within [`limits::MEMORY_WAIT_BEHIND`], because they were sent together.
//! A client that retries later waits again, in the order of the pool.
//!
//! *Errors.* A refused request reaches its protocol without its data ([`crate::channel::ReadChunkData::is_missing`]), which answers
//! "try again later". A request that no answer fits before its data is there ends its connection after
//! [`limits::MESSAGE_WAIT_MAX`], and its client repeats it on the next one. Each is counted.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use audit::PeerText;
use tokio::time::{Instant, Sleep};

use crate::channel::ChannelError;
use crate::refused::{self, Refused};
use crate::{count, limits};

/// The wait of one connection.
#[derive(Default)]
pub(crate) struct MemoryWait {
    timer: Option<Pin<Box<Sleep>>>,
    /// Runs while the connection waits at all.
    until_end: Option<Pin<Box<Sleep>>>,
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
            self.refused = Some(Instant::now());
        }
        self.end();
        count::limit_met(limits::MEMORY_WAIT);
        Poll::Ready(())
    }

    /// Ends the wait: memory is available, or no request needs it.
    pub(crate) fn end(&mut self) {
        (self.timer, self.until_end) = (None, None);
    }

    /// Called when the connection makes no progress: ready with the reason for ending it when it has waited for memory for too
    /// long.
    pub(crate) fn poll_end(
        &mut self,
        is_waiting: bool,
        peer: SocketAddr,
        cx: &mut Context<'_>,
    ) -> Poll<ChannelError> {
        if !is_waiting {
            self.until_end = None;
            return Poll::Pending;
        }
        let timer = self
            .until_end
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(limits::MESSAGE_WAIT_MAX)));
        ready!(timer.as_mut().poll(cx));
        self.end();
        Poll::Ready(ChannelError::Closed(no_memory(peer)))
    }
}

/// Counts and logs a request that got no memory within [`limits::MESSAGE_WAIT_MAX`] and cannot be answered without it. Returns the
/// reason for ending its connection, which is not the client's fault.
pub fn no_memory(peer: SocketAddr) -> String {
    count::limit_met(limits::MESSAGE_WAIT);
    let remedy = limits::remedy(limits::MESSAGE_WAIT);
    let (user, share) = (PeerText::default(), PeerText::default());
    let (rule, seconds) = (limits::MESSAGE_WAIT, limits::MESSAGE_WAIT_MAX.as_secs());
    if refused::record(Refused { peer: peer.ip(), user, share, rule, remedy: remedy.into() }) {
        tracing::warn!(%peer, rule, "the gateway had no memory for a request for {seconds} s; {remedy}");
    }
    format!(
        "the gateway had no memory for a request for {seconds} s, and no answer fits before it is read"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::time::Duration;

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

    #[tokio::test(start_paused = true)]
    async fn request_without_answer_ends_its_connection() {
        let peer = "192.0.2.7:1000".parse().unwrap();
        let mut wait = MemoryWait::default();
        let look = async |is_waiting, wait: &mut MemoryWait| {
            let end = poll_fn(|cx| wait.poll_end(is_waiting, peer, cx));
            tokio::time::timeout(limits::MESSAGE_WAIT_MAX / 2 + Duration::from_secs(1), end).await
        };
        assert!(look(true, &mut wait).await.is_err(), "half of the time");
        wait.end();
        assert!(look(true, &mut wait).await.is_err(), "memory came between");
        assert!(look(false, &mut wait).await.is_err(), "it does not wait");
        assert!(look(true, &mut wait).await.is_err(), "it began anew");
        let end = look(true, &mut wait).await.unwrap();
        let ChannelError::Closed(why) = end else { panic!("a violation: {end}") };
        assert!(why.contains("the gateway had no memory"), "{why}");
    }
}
