//! The limit on waiting for a peer that has something half done.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use iobuf::Pool;
use tokio::time::{Instant, Sleep};

use crate::channel::ChannelError;
use crate::{count, limits};

/// A look at the timer that comes so late means that this process itself did not run: its machine was stopped, or starves. How
/// little a peer moved in that time says nothing of the peer, which may have had no more than a moment of it.
const LATE: Duration = Duration::from_secs(1);

/// How long a peer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stalled {
    /// It made no progress for the whole of [`limits::STALL_SECONDS_MAX`].
    Long,
    /// It made none for [`limits::STALL_SECONDS_PRESSED`] and holds memory that others wait for.
    Pressed,
}

impl Stalled {
    /// The end of its connection; counted.
    pub(crate) fn end(self) -> ChannelError {
        let (limit, n, why) = match self {
            Self::Long => (limits::STALL, limits::STALL_SECONDS_MAX, ""),
            Self::Pressed => {
                let why = ", and others wait for the memory that its answers take";
                (limits::STALL_PRESSED, limits::STALL_SECONDS_PRESSED, why)
            }
        };
        count::limit_met(limit);
        ChannelError::Closed(format!("no progress inside a message for {n} s{why}"))
    }
}

/// Notices a peer that makes no progress. The timer is armed once and looked at when it fires, so that progress costs an
/// addition and nothing else.
#[derive(Default)]
pub(crate) struct Stall {
    /// Bytes since the timer was looked at.
    moved: usize,
    /// Bytes before that, and how often the timer was looked at, since the time began that a peer has.
    before: usize,
    looks: u64,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stall {
    /// So many bytes moved.
    pub(crate) fn progress(&mut self, bytes: usize) {
        self.moved = self.moved.saturating_add(bytes);
    }

    /// Ready when something has been half done for too long with too little progress. `holds`: the pool of which the peer
    /// holds memory, by not taking what it asked for.
    pub(crate) fn poll(
        &mut self,
        half_done: bool,
        holds: Option<&Pool>,
        cx: &mut Context<'_>,
    ) -> Poll<Stalled> {
        if !half_done {
            // An armed timer stays, so that a busy connection does not arm one for every message; it finds this.
            self.moved = usize::MAX;
            if self.timer.is_none() {
                return Poll::Pending;
            }
        }
        let pause = Duration::from_secs(limits::STALL_SECONDS_PRESSED);
        if self.timer.is_none() {
            (self.moved, self.before, self.looks) = (0, 0, 0);
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
        while timer.as_mut().poll(cx).is_ready() {
            if !half_done {
                self.timer = None;
                return Poll::Pending;
            }
            let is_late = timer.deadline().elapsed() > LATE;
            let moved = std::mem::take(&mut self.moved);
            self.before = self.before.saturating_add(moved);
            self.looks += 1;
            if self.looks == limits::STALL_SECONDS_MAX / limits::STALL_SECONDS_PRESSED {
                if self.before < limits::STALL_BYTES_MIN {
                    return Poll::Ready(Stalled::Long);
                }
                (self.before, self.looks) = (0, 0);
            }
            if !is_late
                && moved < limits::STALL_BYTES_PRESSED
                && holds.is_some_and(Pool::is_waited_for)
            {
                return Poll::Ready(Stalled::Pressed);
            }
            timer.as_mut().reset(Instant::now() + pause);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};

    use iobuf::{Account, PoolLimits};

    use super::*;

    /// When a peer ends that has moved so many bytes in every second, with or without memory that is waited for.
    async fn end(bytes: usize, pool: Option<&Pool>) -> (Stalled, u64) {
        let mut stall = Stall::default();
        let begun = Instant::now();
        let mut second = tokio::time::interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                how = poll_fn(|cx| stall.poll(true, pool, cx)) => {
                    return (how, begun.elapsed().as_secs());
                }
                _ = second.tick() => stall.progress(bytes),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_holds_what_others_wait_for_has_less_time() {
        let pool = Pool::new(PoolLimits { buffers_max: [1, 1, 1] });
        let held = pool.try_get(4096).unwrap();
        assert_eq!(end(0, Some(&pool)).await, (Stalled::Long, 60), "nobody waits");
        assert_eq!(end(100, None).await, (Stalled::Long, 60), "a trickle");
        let mut wait = pool.acquire(4096, Account::new());
        poll_fn(|cx| {
            assert!(Pin::new(&mut wait).poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        assert_eq!(end(0, Some(&pool)).await, (Stalled::Pressed, 5));
        assert_eq!(end(100, Some(&pool)).await, (Stalled::Pressed, 5), "a trickle");
        assert_eq!(end(260, Some(&pool)).await, (Stalled::Long, 60), "slow, and not stuck");
        let alive = end(1000, Some(&pool));
        let long = Duration::from_secs(1000);
        assert!(tokio::time::timeout(long, alive).await.is_err(), "it makes progress");
        drop(held);
        assert!(wait.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn no_peer_is_to_blame_for_the_time_in_which_this_process_did_not_run() {
        let pool = Pool::new(PoolLimits { buffers_max: [1, 1, 1] });
        let _held = pool.try_get(4096).unwrap();
        let mut wait = pool.acquire(4096, Account::new());
        let mut look = async |stall: &mut Stall, after: u64| {
            tokio::time::advance(Duration::from_secs(after)).await;
            poll_fn(|cx| {
                assert!(Pin::new(&mut wait).poll(cx).is_pending());
                Poll::Ready(stall.poll(true, Some(&pool), cx))
            })
            .await
        };
        // It is armed; then the machine stops, again and again.
        let stall = &mut Stall::default();
        assert_eq!(look(stall, 0).await, Poll::Pending);
        for stop in 1..12 {
            assert_eq!(look(stall, 7).await, Poll::Pending, "stop {stop}");
        }
        assert_eq!(look(stall, 7).await, Poll::Ready(Stalled::Long), "there is an end to it");
        let stall = &mut Stall::default();
        assert_eq!(look(stall, 0).await, Poll::Pending);
        assert_eq!(look(stall, 30).await, Poll::Pending);
        assert_eq!(look(stall, 5).await, Poll::Ready(Stalled::Pressed), "it had its time");
    }
}
