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

/// The same where a peer has no more than a second: that must be all its own.
const LATE_AGAIN: Duration = Duration::from_millis(250);

/// Seconds that are looked back at.
#[allow(clippy::cast_possible_truncation)] // A minute at most.
const BACK: usize = limits::STALL_SECONDS_MAX as usize;
#[allow(clippy::cast_possible_truncation)] // A minute at most.
const BACK_PRESSED: usize = limits::STALL_SECONDS_PRESSED as usize;

/// From look to look.
const SECOND: Duration = Duration::from_secs(1);

/// How long a peer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stalled {
    /// It made no progress for the whole of [`limits::STALL_SECONDS_MAX`].
    Long,
    /// It made none for so many seconds, [`limits::STALL_SECONDS_PRESSED`] or [`limits::STALL_SECONDS_AGAIN`], and holds memory
    /// that others wait for.
    Pressed(u64),
}

impl Stalled {
    /// The end of its connection; counted.
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

/// Notices a peer that makes no progress with one thing that it must do: take answers, finish a record, answer RDMA Reads. Each
/// has a [`Stall`], so that progress with one does not count for another. The timer is looked at once a second, so that progress
/// costs an addition and nothing else.
#[derive(Default)]
pub(crate) struct Stall {
    /// Bytes since the timer was looked at.
    moved: usize,
    armed: Option<Box<Armed>>,
}

impl Stall {
    /// So many bytes moved.
    pub(crate) fn progress(&mut self, bytes: usize) {
        self.moved = self.moved.saturating_add(bytes);
    }

    /// Ready when something has been half done for too long with too little progress. `holds`: the pool of which the peer
    /// holds memory by that.
    pub(crate) fn poll(
        &mut self,
        half_done: bool,
        holds: Option<&Pool>,
        cx: &mut Context<'_>,
    ) -> Poll<Stalled> {
        if !half_done {
            // An armed timer stays, so that a busy connection does not arm one for every message; it finds this.
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

/// How long a peer may take that holds what others wait for: less when another connection of its address took too long lately.
fn seconds_pressed(pool: &Pool, now: std::time::Instant) -> u64 {
    let lately = Duration::from_secs(limits::STALL_AGAIN_SECONDS);
    match pool.last_stalled() {
        Some(at) if now.saturating_duration_since(at) < lately => limits::STALL_SECONDS_AGAIN,
        _ => limits::STALL_SECONDS_PRESSED,
    }
}

/// Bytes that it must move in so many seconds.
const fn bytes_pressed(seconds: u64) -> usize {
    #[allow(clippy::cast_possible_truncation)] // At most a minute.
    let part = limits::STALL_BYTES_PRESSED * seconds as usize;
    part / BACK_PRESSED
}

/// What a peer did lately that has something half done.
struct Armed {
    /// Ends with each second.
    timer: Pin<Box<Sleep>>,
    /// Bytes of each of the last seconds, the newest first, as far as they can be counted.
    seconds: [u16; BACK],
    /// Seconds in a row for which the peer has held memory of the pool; none when it holds no such memory.
    held: Option<Held>,
}

/// For how long a peer has held memory.
#[derive(Clone, Copy)]
struct Held {
    /// Seconds in a row, none of them later than [`LATE`].
    seconds: u64,
    /// Seconds in a row whose beginning and end were no later than [`LATE_AGAIN`]; none where the last look was.
    punctual: Option<u64>,
}

impl Held {
    const BEGINS: Self = Self { seconds: 0, punctual: Some(0) };

    /// At the end of another second, by a look that is so late.
    fn after(self, late: Duration) -> Self {
        let seconds = if late <= LATE { self.seconds + 1 } else { 0 };
        let punctual = (late <= LATE_AGAIN).then(|| self.punctual.map_or(0, |so_far| so_far + 1));
        Self { seconds, punctual }
    }

    /// The peer had all of so many seconds.
    fn had(self, seconds: u64) -> bool {
        let held = if is_short(seconds) { self.punctual } else { Some(self.seconds) };
        held >= Some(seconds)
    }
}

/// It is the time of a peer whose address took too long lately.
const fn is_short(seconds: u64) -> bool {
    seconds < limits::STALL_SECONDS_PRESSED
}

/// A second in which enough moved for all that is asked can be told from any other.
const _: () = assert!(limits::STALL_BYTES_MIN <= u16::MAX as usize);

impl Armed {
    fn new(is_held: bool) -> Self {
        // The beginning stands for progress, so that the time counts from it.
        let mut seconds = [0; BACK];
        seconds[0] = u16::MAX;
        Self {
            timer: Box::pin(tokio::time::sleep(SECOND)),
            seconds,
            held: is_held.then_some(Held::BEGINS),
        }
    }

    /// At the end of a second, or later: `moved` bytes since the last look.
    fn look(&mut self, moved: usize, holds: Option<&Pool>) -> Option<Stalled> {
        let deadline = self.timer.deadline();
        let late = deadline.elapsed();
        self.timer.as_mut().reset(deadline + SECOND + Duration::from_secs(late.as_secs()));
        // However late it is, it takes no more than this from the time that the peer has.
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
        // The short time is for what an address did by the long one: it must not renew itself without end.
        if !is_short(seconds) {
            pool.note_stalled(now);
        }
        Some(Stalled::Pressed(seconds))
    }

    /// Bytes of so many seconds until now.
    fn moved_within(&self, seconds: usize) -> usize {
        self.seconds.iter().take(seconds).map(|&bytes| usize::from(bytes)).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};

    use super::*;
    use iobuf::{Account, PoolLimits};

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

    /// Somebody who waits for memory of this pool, of which nothing is left.
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
    async fn who_holds_what_others_wait_for_has_less_time() {
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
        for second in 1..5 {
            assert_eq!(look(stall, 1).await, Poll::Pending, "second {second}");
        }
        assert_eq!(look(stall, 1).await, Poll::Ready(Stalled::Pressed(5)), "it had its time");
    }

    /// Looks at a peer every half second and returns in which second it ended. `moved` tells what it moved in a second, in the
    /// middle of it; `half_done`, what is so at a look.
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
    async fn the_time_counts_from_the_last_byte() {
        for last in [1, 2, 4, 5, 30, 56, 59, 60, 61, 115, 119] {
            let moved = |second| if second <= last { 1 << 20 } else { 0 };
            let how = ended(|_| None, moved, |_| true).await;
            assert_eq!(how, (Stalled::Long, last + 60), "the last byte in second {last}");
            // So it does from when something was last not half done, whether the timer was seen to fire in that time or not.
            let how = ended(|_| None, |_| 0, |look| look == 0 || look > last * 2).await;
            assert_eq!(how, (Stalled::Long, last + 61), "half done after second {last}");
            let how = ended(|_| None, |_| 0, |look| look != last * 2 - 1).await;
            let expected = if last > 60 { 60 } else { last + 60 };
            assert_eq!(how, (Stalled::Long, expected), "whole in second {last}");
        }
        // Just enough, once: no sum of what came before it helps.
        let once = |second| if second == 20 { limits::STALL_BYTES_MIN } else { 1 };
        assert_eq!(ended(|_| None, once, |_| true).await, (Stalled::Long, 80));
        // A stream that becomes a trickle: it ends when the last 60 s hold too little.
        let thin = |second| if second <= 100 { 1024 } else { 100 };
        assert_eq!(ended(|_| None, thin, |_| true).await, (Stalled::Long, 149));
    }

    #[tokio::test(start_paused = true)]
    async fn who_begins_to_hold_what_others_wait_for_has_the_shorter_time_from_then() {
        let pool = Pool::new(PoolLimits { buffers_max: [1, 1, 1] });
        let _held = pool.try_get(4096).unwrap();
        let _wait = waiting(&pool).await;
        let from_20 = |second| (second >= 20).then(|| pool.clone());
        assert_eq!(ended(from_20, |_| 0, |_| true).await, (Stalled::Pressed(5), 25));
        let until_12 = |second| if second <= 12 { 1 << 20 } else { 0 };
        let always = |_| Some(pool.clone());
        assert_eq!(ended(always, until_12, |_| true).await, (Stalled::Pressed(5), 17));
    }

    /// Holds memory that something waits for; the pool of an address that met the limit of 5 s.
    async fn stalled_lately() -> (Pool, iobuf::BufMut, iobuf::Acquire) {
        let pool = Pool::new(PoolLimits { buffers_max: [1, 1, 1] }).of_one_client();
        let held = pool.try_get(4096).unwrap();
        let wait = waiting(&pool).await;
        assert_eq!(end(0, Some(&pool)).await, (Stalled::Pressed(5), 5));
        (pool, held, wait)
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_is_late_takes_nothing_of_the_one_second() {
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
    async fn ends_by_the_shorter_time_do_not_renew_it() {
        let (pool, _held, _wait) = stalled_lately().await;
        for _ in 0..40 {
            assert_eq!(end(0, Some(&pool)).await, (Stalled::Pressed(1), 1));
        }
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(end(0, Some(&pool)).await, (Stalled::Pressed(5), 5));
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_was_deaf_lately_has_less_time() {
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
