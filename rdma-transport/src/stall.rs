//! Limits how long a connection waits for a peer that has an operation half done.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use iobuf::Pool;
use tokio::time::{Instant, Sleep};

use crate::channel::ChannelError;
use crate::{count, limits};

/// A timer that fires this late means that this process did not run: the machine was stopped, or is overloaded. The peer's lack of
/// progress in that time says little, because it may have had only a moment of it.
const LATE: Duration = Duration::from_secs(1);

/// Like [`LATE`], for a peer whose limit is one second: the peer must get all of that second.
const LATE_AGAIN: Duration = Duration::from_millis(250);

/// Number of seconds recorded.
#[allow(clippy::cast_possible_truncation)] // A minute at most.
const BACK: usize = limits::STALL_SECONDS_MAX as usize;
#[allow(clippy::cast_possible_truncation)] // A minute at most.
const BACK_PRESSED: usize = limits::STALL_SECONDS_PRESSED as usize;

/// Interval between two checks for stalled peers.
const SECOND: Duration = Duration::from_secs(1);

/// The limit that a peer exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stalled {
    /// No progress for the whole of [`limits::STALL_SECONDS_MAX`].
    Long,
    /// No progress for this many seconds ([`limits::STALL_SECONDS_PRESSED`] or [`limits::STALL_SECONDS_AGAIN`]), while it occupied
    /// memory that other connections wait for.
    Pressed(u64),
}

impl Stalled {
    /// Counts the stall and returns the reason for ending the connection.
    pub(crate) fn end(self) -> ChannelError {
        let (limit, n, why) = match self {
            Self::Long => (limits::STALL, limits::STALL_SECONDS_MAX, ""),
            Self::Pressed(seconds) => {
                let why = ", and others wait for the memory that it holds";
                (limits::STALL_PRESSED, seconds, why)
            }
        };
        count::limit_met(limit);
        ChannelError::Closed(format!("no progress inside a message for {n} s{why}"))
    }
}

/// Detects a peer that makes no progress with one of its duties: taking replies, completing a record, responding to RDMA Reads.
/// Each duty has a separate [`Stall`], so that progress with one does not count for another. The timer fires once a second, so
/// progress costs only an addition.
#[derive(Default)]
pub(crate) struct Stall {
    /// Bytes moved since the last check.
    moved: usize,
    armed: Option<Box<Armed>>,
}

impl Stall {
    /// Counts bytes that the peer has taken.
    pub(crate) fn progress(&mut self, bytes: usize) {
        self.moved = self.moved.saturating_add(bytes);
    }

    /// Ready when an operation was half done for too long with too little progress. `holds`: the pool whose memory the peer
    /// occupies by that.
    pub(crate) fn poll(
        &mut self,
        half_done: bool,
        holds: Option<&Pool>,
        cx: &mut Context<'_>,
    ) -> Poll<Stalled> {
        if !half_done {
            // An armed timer stays armed, so that a busy connection need not arm one for every message; it finds this value.
            self.moved = usize::MAX;
            if self.armed.is_none() {
                return Poll::Pending;
            }
        }
        if self.armed.is_none() {
            self.moved = 0;
        }
        let armed = self.armed.get_or_insert_with(|| Box::new(Armed::new(holds.is_some())));
        while armed.timer.as_mut().poll(cx).is_ready() {
            if !half_done {
                self.armed = None;
                return Poll::Pending;
            }
            if let Some(stalled) = armed.look(std::mem::take(&mut self.moved), holds) {
                return Poll::Ready(stalled);
            }
        }
        Poll::Pending
    }
}

/// The limit for a peer that occupies contended memory: shorter if another connection of its address has stalled recently.
fn seconds_pressed(pool: &Pool, now: std::time::Instant) -> u64 {
    let lately = Duration::from_secs(limits::STALL_AGAIN_SECONDS);
    match pool.last_stalled() {
        Some(at) if now.saturating_duration_since(at) < lately => limits::STALL_SECONDS_AGAIN,
        _ => limits::STALL_SECONDS_PRESSED,
    }
}

/// Bytes to move in this many seconds.
const fn bytes_pressed(seconds: u64) -> usize {
    #[allow(clippy::cast_possible_truncation)] // At most a minute.
    let part = limits::STALL_BYTES_PRESSED * seconds as usize;
    part / BACK_PRESSED
}

/// The recent progress of a peer with an operation half done.
struct Armed {
    /// Fires at the end of each second.
    timer: Pin<Box<Sleep>>,
    /// Bytes of each of the last seconds, newest first, saturating.
    seconds: [u16; BACK],
    /// Seconds in a row for which the peer has occupied pool memory; `None` when it does not.
    held: Option<Held>,
}

/// How long a peer has occupied memory.
#[derive(Clone, Copy)]
struct Held {
    /// Seconds in a row, none of them later than [`LATE`].
    seconds: u64,
    /// Seconds in a row whose start and end were at most [`LATE_AGAIN`] late; `None` if the last check was later.
    punctual: Option<u64>,
}

impl Held {
    const BEGINS: Self = Self { seconds: 0, punctual: Some(0) };

    /// Adds a second whose check was this late.
    fn after(self, late: Duration) -> Self {
        let seconds = if late <= LATE { self.seconds + 1 } else { 0 };
        let punctual = (late <= LATE_AGAIN).then(|| self.punctual.map_or(0, |so_far| so_far + 1));
        Self { seconds, punctual }
    }

    /// True if the peer had all of this many seconds.
    fn had(self, seconds: u64) -> bool {
        let held = if is_short(seconds) { self.punctual } else { Some(self.seconds) };
        held >= Some(seconds)
    }
}

/// True for the limit of an address that stalled recently.
const fn is_short(seconds: u64) -> bool {
    seconds < limits::STALL_SECONDS_PRESSED
}

/// A second in which enough bytes moved must be representable.
const _: () = assert!(limits::STALL_BYTES_MIN <= u16::MAX as usize);

impl Armed {
    fn new(is_held: bool) -> Self {
        // The start counts as progress, so that time is measured from it.
        let mut seconds = [0; BACK];
        seconds[0] = u16::MAX;
        Self {
            timer: Box::pin(tokio::time::sleep(SECOND)),
            seconds,
            held: is_held.then_some(Held::BEGINS),
        }
    }

    /// Checks at the end of a second, or later: `moved` bytes since the last check.
    fn look(&mut self, moved: usize, holds: Option<&Pool>) -> Option<Stalled> {
        let deadline = self.timer.deadline();
        let late = deadline.elapsed();
        self.timer.as_mut().reset(deadline + SECOND + Duration::from_secs(late.as_secs()));
        // However late the check is, it costs the peer at most this much of its time.
        let counted =
            usize::try_from(late.as_secs()).map_or(BACK_PRESSED, |n| BACK_PRESSED.min(n + 1));
        self.seconds.rotate_right(counted);
        self.seconds[..counted].fill(0);
        self.seconds[0] = u16::try_from(moved).unwrap_or(u16::MAX);
        let before = self.held;
        self.held = holds.map(|_| before.map_or(Held::BEGINS, |held| held.after(late)));
        if self.moved_within(BACK) < limits::STALL_BYTES_MIN {
            return Some(Stalled::Long);
        }
        let pool = holds?;
        let now = Instant::now().into_std();
        let seconds = seconds_pressed(pool, now);
        let is_stuck = self.held.is_some_and(|held| held.had(seconds))
            && self.moved_within(usize::try_from(seconds).unwrap_or(BACK_PRESSED))
                < bytes_pressed(seconds)
            && pool.is_waited_for();
        if !is_stuck {
            return None;
        }
        // Only the long limit marks the address: the short one must not prolong itself without end.
        if !is_short(seconds) {
            pool.note_stalled(now);
        }
        Some(Stalled::Pressed(seconds))
    }

    /// Bytes moved in this many seconds until now.
    fn moved_within(&self, seconds: usize) -> usize {
        self.seconds.iter().take(seconds).map(|&bytes| usize::from(bytes)).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};

    use super::*;
    use iobuf::{Account, PoolLimits};

    /// Returns when a peer is ended that moves this many bytes in every second, with or without contended memory.
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

    /// Starts waiting for memory of this pool, which is exhausted.
    async fn waiting(pool: &Pool) -> iobuf::Acquire {
        let mut wait = pool.acquire(4096, Account::new());
        poll_fn(|cx| {
            assert!(Pin::new(&mut wait).poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        wait
    }

    #[tokio::test(start_paused = true)]
    async fn contended_memory_shortens_limit() {
        let pool = Pool::new(PoolLimits { buffers_max: [1, 1, 1] });
        let held = pool.try_get(4096).unwrap();
        assert_eq!(end(0, Some(&pool)).await, (Stalled::Long, 60), "nobody waits");
        assert_eq!(end(100, None).await, (Stalled::Long, 60), "a trickle");
        let wait = waiting(&pool).await;
        assert_eq!(end(0, Some(&pool)).await, (Stalled::Pressed(5), 5));
        assert_eq!(end(100, Some(&pool)).await, (Stalled::Pressed(5), 5), "a trickle");
        assert_eq!(end(260, Some(&pool)).await, (Stalled::Long, 60), "slow, and not stuck");
        let alive = end(1000, Some(&pool));
        let long = Duration::from_secs(1000);
        assert!(tokio::time::timeout(long, alive).await.is_err(), "it makes progress");
        drop(held);
        assert!(wait.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn stopped_process_is_no_stall() {
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
        // The timer is armed; then the machine stops repeatedly.
        let stall = &mut Stall::default();
        assert_eq!(look(stall, 0).await, Poll::Pending);
        for stop in 1..12 {
            assert_eq!(look(stall, 7).await, Poll::Pending, "stop {stop}");
        }
        assert_eq!(look(stall, 7).await, Poll::Ready(Stalled::Long), "there is an end to it");
        let stall = &mut Stall::default();
        assert_eq!(look(stall, 0).await, Poll::Pending);
        assert_eq!(look(stall, 30).await, Poll::Pending);
        for second in 1..5 {
            assert_eq!(look(stall, 1).await, Poll::Pending, "second {second}");
        }
        assert_eq!(look(stall, 1).await, Poll::Ready(Stalled::Pressed(5)), "it had its time");
    }

    /// Checks a peer every half second and returns the second in which it was ended. `moved` gives the bytes moved in the middle of
    /// a second; `half_done`, whether an operation is half done at a check.
    async fn ended(
        holds: impl Fn(u64) -> Option<Pool>,
        moved: impl Fn(u64) -> usize,
        half_done: impl Fn(u64) -> bool,
    ) -> (Stalled, u64) {
        let mut stall = Stall::default();
        for look in 0..2000_u64 {
            let second = look.div_ceil(2);
            let pool = holds(second);
            let how = poll_fn(|cx| Poll::Ready(stall.poll(half_done(look), pool.as_ref(), cx)));
            if let Poll::Ready(stalled) = how.await {
                return (stalled, second);
            }
            if look % 2 == 1 {
                stall.progress(moved(second));
            }
            tokio::time::advance(Duration::from_millis(500)).await;
        }
        panic!("it never ends");
    }

    #[tokio::test(start_paused = true)]
    async fn time_counts_from_last_byte() {
        for last in [1, 2, 4, 5, 30, 56, 59, 60, 61, 115, 119] {
            let moved = |second| if second <= last { 1 << 20 } else { 0 };
            let how = ended(|_| None, moved, |_| true).await;
            assert_eq!(how, (Stalled::Long, last + 60), "the last byte in second {last}");
            // Time also counts from the moment when the operation became half done, whether or not the timer fired before.
            let how = ended(|_| None, |_| 0, |look| look == 0 || look > last * 2).await;
            assert_eq!(how, (Stalled::Long, last + 61), "half done after second {last}");
            let how = ended(|_| None, |_| 0, |look| look != last * 2 - 1).await;
            let expected = if last > 60 { 60 } else { last + 60 };
            assert_eq!(how, (Stalled::Long, expected), "whole in second {last}");
        }
        // Just enough, once: the sum of earlier bytes does not help.
        let once = |second| if second == 20 { limits::STALL_BYTES_MIN } else { 1 };
        assert_eq!(ended(|_| None, once, |_| true).await, (Stalled::Long, 80));
        // A stream that becomes a trickle: it ends when the last 60 s contain too few bytes.
        let thin = |second| if second <= 100 { 1024 } else { 100 };
        assert_eq!(ended(|_| None, thin, |_| true).await, (Stalled::Long, 149));
    }

    #[tokio::test(start_paused = true)]
    async fn contention_shortens_limit_from_its_start() {
        let pool = Pool::new(PoolLimits { buffers_max: [1, 1, 1] });
        let _held = pool.try_get(4096).unwrap();
        let _wait = waiting(&pool).await;
        let from_20 = |second| (second >= 20).then(|| pool.clone());
        assert_eq!(ended(from_20, |_| 0, |_| true).await, (Stalled::Pressed(5), 25));
        let until_12 = |second| if second <= 12 { 1 << 20 } else { 0 };
        let always = |_| Some(pool.clone());
        assert_eq!(ended(always, until_12, |_| true).await, (Stalled::Pressed(5), 17));
    }

    /// Occupies contended memory; the pool of an address that has exceeded the limit of 5 s.
    async fn stalled_lately() -> (Pool, iobuf::BufMut, iobuf::Acquire) {
        let pool = Pool::new(PoolLimits { buffers_max: [1, 1, 1] }).of_one_client();
        let held = pool.try_get(4096).unwrap();
        let wait = waiting(&pool).await;
        assert_eq!(end(0, Some(&pool)).await, (Stalled::Pressed(5), 5));
        (pool, held, wait)
    }

    #[tokio::test(start_paused = true)]
    async fn late_check_keeps_full_second() {
        let (pool, _held, _wait) = stalled_lately().await;
        let stall = &mut Stall::default();
        let mut look = async |after: u64| {
            tokio::time::advance(Duration::from_millis(after)).await;
            poll_fn(|cx| Poll::Ready(stall.poll(true, Some(&pool), cx))).await
        };
        assert_eq!(look(0).await, Poll::Pending);
        assert_eq!(look(1900).await, Poll::Pending, "it may have had 0.1 s of them");
        assert_eq!(look(100).await, Poll::Pending, "and these 0.1 s");
        assert_eq!(look(1000).await, Poll::Ready(Stalled::Pressed(1)), "a second of its own");
    }

    #[tokio::test(start_paused = true)]
    async fn short_limit_does_not_prolong_itself() {
        let (pool, _held, _wait) = stalled_lately().await;
        for _ in 0..40 {
            assert_eq!(end(0, Some(&pool)).await, (Stalled::Pressed(1), 1));
        }
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(end(0, Some(&pool)).await, (Stalled::Pressed(5), 5));
    }

    #[tokio::test(start_paused = true)]
    async fn recently_stalled_address_has_shorter_limit() {
        let all = Pool::new(PoolLimits { buffers_max: [2, 2, 2] });
        all.set_share(PoolLimits { buffers_max: [1, 1, 1] });
        let (deaf, other) = (all.of_one_client(), all.of_one_client());
        let held: Vec<_> = [&deaf, &other].map(|p| p.try_get(4096).unwrap()).into();
        let mut waits = [&deaf, &other].map(|p| p.acquire(4096, Account::new()));
        poll_fn(|cx| {
            assert!(waits.iter_mut().all(|w| Pin::new(w).poll(cx).is_pending()));
            Poll::Ready(())
        })
        .await;
        assert_eq!(end(0, Some(&deaf)).await, (Stalled::Pressed(5), 5));
        assert_eq!(end(0, Some(&deaf)).await, (Stalled::Pressed(1), 1));
        assert_eq!(end(100, Some(&deaf)).await, (Stalled::Pressed(1), 1), "a trickle");
        let slow = ended(|_| Some(deaf.clone()), |_| 260, |_| true).await;
        assert_eq!(slow, (Stalled::Long, 60), "slow, and not stuck");
        assert_eq!(end(0, Some(&other)).await, (Stalled::Pressed(5), 5), "others are not to blame");
        assert_eq!(end(0, Some(&deaf)).await, (Stalled::Pressed(5), 5), "a minute later");
        drop(held);
    }
}
