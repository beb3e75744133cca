//! The time, looked at once for one operation.
//!
//! *Operation.* While the serve loop has the thread, a connection's operations follow each other without a pause: the look at the
//! clock that ends one ([`done`]) is also that which begins the next ([`began`]). What was seen is forgotten when the loop gives
//! the thread back, and when it has waited, so a beginning is early by the work between two operations and by nothing else. Out of
//! the loop each look is one at the clock. On a usual machine that saves little; where a clock is a system call, most of
//! what a small operation costs.

use std::cell::Cell;
use std::task::Context;
use std::time::Instant;

use crate::limits;

/// What this thread knows of the time.
#[derive(Clone, Copy)]
enum Seen {
    /// It serves no connection.
    Outside,
    /// It does, and has not looked yet.
    Nothing,
    At(Instant),
}

thread_local! {
    static SEEN: Cell<Seen> = const { Cell::new(Seen::Outside) };
    /// The first time that this turn has seen.
    static FIRST: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// One turn of a serve loop, until this is dropped.
pub(crate) struct Turn(());

impl Turn {
    pub(crate) fn begin() -> Self {
        SEEN.set(Seen::Nothing);
        FIRST.set(None);
        Self(())
    }

    /// The turn has lasted for [`limits::TURN_MAX`], by the last look at the clock. Without a look it has not.
    #[allow(clippy::unused_self)] // There is one of this thread.
    pub(crate) fn is_over(&self) -> bool {
        is_over()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        SEEN.set(Seen::Outside);
        FIRST.set(None);
    }
}

/// Has the runtime poll this task again behind all others that are ready, and behind a look at sockets and timers. A waker that is
/// called at once would put the task before that look, which comes only after [`limits::POLLS_BEFORE_IO`] polls.
pub(crate) fn defer(cx: &mut Context<'_>) {
    let yields = std::pin::pin!(tokio::task::yield_now());
    let _ = yields.poll(cx);
}

/// For operations that do much without a wait: gives the thread to other tasks when this turn has lasted for
/// [`limits::TURN_MAX`]. Outside of a turn it returns at once.
pub async fn pause() {
    if FIRST.get().is_some() {
        done();
        pause_as_seen().await;
    }
}

/// The same by the last look at the clock, where that is as old as the last operation.
pub async fn pause_as_seen() {
    if is_over() {
        tokio::task::yield_now().await;
    }
}

fn is_over() -> bool {
    match (SEEN.get(), FIRST.get()) {
        (Seen::At(last), Some(first)) => last.saturating_duration_since(first) >= limits::TURN_MAX,
        _ => false,
    }
}

/// The time at which an operation begins that is there to be done.
pub fn began() -> Instant {
    match SEEN.get() {
        Seen::At(then) => then,
        Seen::Nothing | Seen::Outside => done(),
    }
}

/// The time at which an operation is done.
pub(crate) fn done() -> Instant {
    let now = Instant::now();
    if !matches!(SEEN.get(), Seen::Outside) {
        SEEN.set(Seen::At(now));
        if FIRST.get().is_none() {
            FIRST.set(Some(now));
        }
    }
    now
}

/// Time has passed in which nothing was done: the next operation looks at the clock itself.
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
    fn the_end_of_one_operation_is_the_beginning_of_the_next_within_a_turn() {
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

    #[test]
    fn out_of_a_turn_nothing_is_remembered() {
        let (_, _) = (began(), done());
        assert!(matches!(SEEN.get(), Seen::Outside));
        waited();
        assert!(matches!(SEEN.get(), Seen::Outside));
    }
}
