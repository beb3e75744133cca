//! Round-robin queue over accounts: each account gets one grant per round, however many requests it has queued.

use std::collections::VecDeque;

use crate::account::Account;

/// One queue per account, in round-robin order.
pub(crate) struct FairQueue<T>(VecDeque<(Account, VecDeque<T>)>);

impl<T> FairQueue<T> {
    pub(crate) const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Appends a request to the queue of its account.
    pub(crate) fn push(&mut self, account: Account, one: T) {
        match self.0.iter_mut().find(|(a, _)| *a == account) {
            Some((_, queue)) => queue.push_back(one),
            None => self.0.push_back((account, VecDeque::from([one]))),
        }
    }

    /// Returns the next request: first account, first in its queue.
    pub(crate) fn front(&self) -> Option<&T> {
        self.0.front()?.1.front()
    }

    /// Takes the next request; its account then moves to the end.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let (account, mut queue) = self.0.pop_front()?;
        let first = queue.pop_front();
        if !queue.is_empty() {
            self.0.push_back((account, queue));
        }
        first
    }
}
