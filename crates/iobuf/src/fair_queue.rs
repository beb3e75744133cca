//! A queue that serves accounts in turn, so that who asks often is not served more often than who asks once.

use std::collections::VecDeque;

use crate::account::Account;

/// One queue per account, in the order in which accounts get their turn.
pub(crate) struct FairQueue<T>(VecDeque<(Account, VecDeque<T>)>);

impl<T> FairQueue<T> {
    pub(crate) const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Behind what this account waits for already.
    pub(crate) fn push(&mut self, account: Account, one: T) {
        match self.0.iter_mut().find(|(a, _)| *a == account) {
            Some((_, queue)) => queue.push_back(one),
            None => self.0.push_back((account, VecDeque::from([one]))),
        }
    }

    /// The next one to be served: first account, first of its queue.
    pub(crate) fn front(&self) -> Option<&T> {
        self.0.front()?.1.front()
    }

    /// Takes the next one; its account then goes to the end of the line.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let (account, mut queue) = self.0.pop_front()?;
        let first = queue.pop_front();
        if !queue.is_empty() {
            self.0.push_back((account, queue));
        }
        first
    }
}
