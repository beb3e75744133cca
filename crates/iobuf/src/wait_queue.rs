//! The queue of requests for several buffers.

use std::collections::VecDeque;
use std::task::Waker;

/// Waiting requests in order; the first one collects buffers.
#[derive(Default)]
pub(crate) struct WaitQueue {
    next: u64,
    waiting: VecDeque<(u64, Waker)>,
}

impl WaitQueue {
    /// Adds a request at the end and returns its ticket.
    pub(crate) fn join(&mut self, waker: &Waker) -> u64 {
        self.next += 1;
        self.waiting.push_back((self.next, waker.clone()));
        self.next
    }

    /// Checks whether this request is the first; if not, it is woken when it becomes the first.
    pub(crate) fn is_first(&mut self, ticket: u64, waker: &Waker) -> bool {
        if self.waiting.front().is_none_or(|(first, _)| *first == ticket) {
            return true;
        }
        if let Some((_, w)) = self.waiting.iter_mut().find(|(t, _)| *t == ticket) {
            w.clone_from(waker);
        }
        false
    }

    /// Removes a request; returns the waker of the next one, if this was the first.
    pub(crate) fn leave(&mut self, ticket: u64) -> Option<Waker> {
        let was_first = self.waiting.front().is_some_and(|(first, _)| *first == ticket);
        self.waiting.retain(|(t, _)| *t != ticket);
        if was_first { self.waiting.front().map(|(_, w)| w.clone()) } else { None }
    }
}
