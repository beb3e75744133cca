//! Reads the clock once for each operation.
//!
//! *Operation.* While the serve loop has the thread, operations of a connection follow each other without a pause: the reading that
//! ends one ([`done`]) also begins the next ([`began`]). It is discarded when the loop yields or has waited, so the start of an
//! operation is early only by the work in between. Outside the loop, each call reads the clock. On an ordinary machine this saves
//! little; where reading the clock is a system call, it saves most of the cost of a small operation.

use std::cell::Cell;
use std::net::IpAddr;
use std::task::Context;
use std::time::Instant;

use iobuf::ClientWork;

use crate::{limits, watchdog};

/// The time known to this thread.
#[derive(Clone, Copy)]
enum Seen {
    /// The thread serves no connection.
    Outside,
    /// The loop serves a request, and has not read the clock yet.
    Nothing,
    At(Instant),
}

thread_local! {
    static SEEN: Cell<Seen> = const { Cell::new(Seen::Outside) };
    /// When this turn is over: a while after its first reading.
    static UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// One turn of a serve loop; ends when dropped.
pub(crate) struct Turn(());

impl Turn {
    pub(crate) fn begin() -> Self {
        SEEN.set(Seen::Nothing);
        UNTIL.set(None);
        Self(())
    }

    /// True if the turn has lasted for [`limits::TURN_MAX`], by the last reading of the clock.
    #[allow(clippy::unused_self)] // A turn belongs to the thread.
    pub(crate) fn is_over(&self) -> bool {
        is_over()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        SEEN.set(Seen::Outside);
        UNTIL.set(None);
    }
}

/// Yields: the runtime polls this task again after all other ready tasks, and after polling sockets and timers. Waking at once
/// would put the task before that, which happens only every [`limits::POLLS_BEFORE_IO`] polls.
pub(crate) fn defer(cx: &mut Context<'_>) {
    let yields = std::pin::pin!(tokio::task::yield_now());
    let _ = yields.poll(cx);
}

/// Runs work of the client of this address in turns, as requests of a connection run, and measures it for the watchdog: for work
/// outside of a serve loop.
pub async fn in_turns<T>(client: IpAddr, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|cx| {
        let _work = ClientWork::begin(client);
        let _turn = Turn::begin();
        let _watch = watchdog::Poll::begin();
        began();
        done();
        work.as_mut().poll(cx)
    })
    .await
}

/// Yields if this turn has lasted for [`limits::TURN_MAX`]: for long operations that do not wait. Outside of a turn it returns at
/// once.
pub async fn pause() {
    if UNTIL.get().is_some() {
        done();
        pause_as_seen().await;
    }
}

/// Like [`pause`], using the last reading of the clock, which may be as old as the last operation.
pub async fn pause_as_seen() {
    if is_over() {
        tokio::task::yield_now().await;
    }
}

/// Returns whether the turn of this thread is over, by the last reading of the clock.
pub(crate) fn is_over() -> bool {
    match (SEEN.get(), UNTIL.get()) {
        (Seen::At(last), Some(until)) => last >= until,
        _ => false,
    }
}

/// The start time of the next operation.
pub fn began() -> Instant {
    match SEEN.get() {
        Seen::At(then) => then,
        Seen::Nothing | Seen::Outside => done(),
    }
}

/// Reads the time at the end of an operation.
pub(crate) fn done() -> Instant {
    let now = Instant::now();
    if !matches!(SEEN.get(), Seen::Outside) {
        SEEN.set(Seen::At(now));
        if UNTIL.get().is_none() {
            UNTIL.set(Some(now + limits::TURN_MAX));
        }
    }
    now
}

/// Discards the last reading, because time has passed without work.
pub(crate) fn waited() {
    if !matches!(SEEN.get(), Seen::Outside) {
        SEEN.set(Seen::Nothing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_ends_by_time() {
        let turn = Turn::begin();
        assert!(!turn.is_over(), "it has not looked at the clock");
        let first = began();
        SEEN.set(Seen::At(first + limits::TURN_MAX / 2));
        assert!(!turn.is_over());
        SEEN.set(Seen::At(first + limits::TURN_MAX));
        assert!(turn.is_over());
        drop(turn);
        assert!(!Turn::begin().is_over(), "each turn has all of its time");
    }

    #[test]
    fn turn_shares_clock_readings() {
        let turn = Turn::begin();
        let first = began();
        assert_eq!(began(), first, "nothing was done in between");
        let end = done();
        assert!(end >= first);
        assert_eq!(began(), end);
        waited();
        assert!(matches!(SEEN.get(), Seen::Nothing), "after a wait the clock is looked at");
        assert!(began() >= end);
        drop(turn);
        assert!(matches!(SEEN.get(), Seen::Outside));
    }

    /// Steps of work are polled by as many polls, where each takes a turn, and nothing is remembered behind them.
    #[test]
    fn work_in_turns_pauses() {
        const STEPS: usize = 5;
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut polls = 0;
        runtime.block_on(async {
            let mut work = Box::pin(in_turns([192, 0, 2, 1].into(), async {
                for _ in 0..STEPS {
                    std::thread::sleep(limits::TURN_MAX);
                    pause().await;
                }
            }));
            std::future::poll_fn(|cx| {
                polls += 1;
                work.as_mut().poll(cx)
            })
            .await;
        });
        assert_eq!(polls, STEPS + 1);
        assert!(matches!(SEEN.get(), Seen::Outside));
    }

    #[test]
    fn no_reading_is_kept_outside_turn() {
        let (_, _) = (began(), done());
        assert!(matches!(SEEN.get(), Seen::Outside));
        waited();
        assert!(matches!(SEEN.get(), Seen::Outside));
    }
}
