//! Counters shared by all clients of one address: a host can pose as many clients, but together they get no more than this.
//!
//! *Memory.* Three counters, and a time, for each address with clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use state::Answers;

use super::limits::{DELEGATIONS_OF_ADDRESS_MAX, OWNERS_OF_ADDRESS_MAX};

#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    states: Arc<AtomicUsize>,
    owners: Arc<AtomicUsize>,
    delegations: Arc<AtomicUsize>,
    answers: Arc<Answers>,
}

/// One counted item, until dropped.
#[derive(Debug)]
pub(super) struct UsagePlace(Arc<AtomicUsize>);

impl Usage {
    /// Counts an open, lock state or delegation; `None` at the limit `most`.
    pub(super) fn state(&self, most: usize) -> Option<UsagePlace> {
        UsagePlace::take(&self.states, most)
    }

    /// Counts an open owner or a lock owner.
    pub(super) fn owner(&self) -> Option<UsagePlace> {
        UsagePlace::take(&self.owners, OWNERS_OF_ADDRESS_MAX)
    }

    /// Counts a delegation, within the limit over all addresses.
    pub(super) fn delegation(&self) -> Option<UsagePlace> {
        UsagePlace::take(&self.delegations, DELEGATIONS_OF_ADDRESS_MAX)
    }

    /// Returns whether the clients answer recalls.
    pub(super) fn answers(&self) -> Arc<Answers> {
        self.answers.clone()
    }

    pub(super) fn has_states(&self, many: usize) -> bool {
        self.states.load(Ordering::Relaxed) >= many
    }

    pub(super) fn has_all_owners(&self) -> bool {
        self.owners.load(Ordering::Relaxed) >= OWNERS_OF_ADDRESS_MAX
    }
}

impl UsagePlace {
    fn take(count: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let more = |n| (n < most).then_some(n + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Self(count.clone()))
    }
}

impl Drop for UsagePlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v4::limits::DELEGATIONS_MAX;

    #[test]
    fn delegations_of_an_address_leave_room() {
        let (one, another) = (Usage::default(), Usage::default());
        let mut all: Vec<_> = std::iter::from_fn(|| one.clone().delegation()).collect();
        assert_eq!(all.len(), DELEGATIONS_OF_ADDRESS_MAX);
        assert!(all.len() < DELEGATIONS_MAX && another.delegation().is_some());
        all.pop();
        assert!(one.delegation().is_some(), "one was given back");
    }
}
