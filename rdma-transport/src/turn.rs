//! The time, looked at once for one operation.
//!
//! *Operation.* While the serve loop has the thread, a connection's operations follow each other without a pause: the look at the
//! clock that ends one ([`done`]) is also that which begins the next ([`began`]). What was seen is forgotten when the loop gives
//! the thread back, and when it has waited, so a beginning is early by the work between two operations and by nothing else. Out of
//! the loop each look is one at the clock. On a usual machine that saves little; where a clock is a system call, most of
//! what a small operation costs.

use std::cell::Cell;
use std::time::Instant;

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
}

/// One turn of a serve loop, until this is dropped.
pub(crate) struct Turn(());

impl Turn {
    /// Begins it.
    pub(crate) fn begin() -> Self {
        SEEN.set(Seen::Nothing);
        Self(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        SEEN.set(Seen::Outside);
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
