//! Which Receive gets which message. Pure.
//!
//! The side that accepts has to have Receives posted before it says yes, and the protocol above posts its own only after
//! that. So the provider posts a few of its own first. Receives are filled in order; therefore as many of the protocol's
//! first ones are held back and filled by a copy, once in the life of a connection.

use std::collections::VecDeque;

use iobuf::BufMut;

use crate::verbs::WorkId;

/// A Receive of the protocol.
#[derive(Debug)]
pub(super) struct Posted<K> {
    pub(super) id: WorkId,
    pub(super) into: BufMut,
    /// What has to live as long as the card may write there.
    pub(super) _keep: K,
}

/// A message in a buffer of the provider's own.
#[derive(Debug)]
pub(super) struct Early {
    pub(super) data: BufMut,
    pub(super) invalidated: Option<u32>,
}

/// What came into the oldest Receive of the card.
#[derive(Debug)]
pub(super) enum Front<K> {
    /// Of the provider's own.
    Early(BufMut),
    /// Of the protocol.
    Posted(Posted<K>),
}

/// All Receives of a connection.
#[derive(Debug)]
pub(super) struct Receives<K> {
    /// Posted to the card by the provider, oldest first; before all of `posted`.
    early: VecDeque<BufMut>,
    /// Messages that came early.
    came: VecDeque<Early>,
    /// The protocol's that wait for such a message.
    held: VecDeque<(WorkId, BufMut)>,
    /// How many more of the protocol's are to be held.
    to_hold: usize,
    posted: VecDeque<Posted<K>>,
}

impl<K> Receives<K> {
    /// With these of the provider's own posted.
    pub(super) fn new(early: VecDeque<BufMut>) -> Self {
        Self {
            to_hold: early.len(),
            early,
            came: VecDeque::new(),
            held: VecDeque::new(),
            posted: VecDeque::new(),
        }
    }

    /// Receives of the protocol that have not come back.
    pub(super) fn len(&self) -> usize {
        self.held.len() + self.posted.len()
    }

    /// Keeps this one back if it stands for one of the provider's own; otherwise it is to be posted.
    pub(super) fn hold(&mut self, id: WorkId, into: BufMut) -> Option<(WorkId, BufMut)> {
        if self.to_hold == 0 {
            return Some((id, into));
        }
        self.to_hold -= 1;
        self.held.push_back((id, into));
        None
    }

    /// This one was posted.
    pub(super) fn posted(&mut self, posted: Posted<K>) {
        self.posted.push_back(posted);
    }

    /// The card is done with its oldest.
    pub(super) fn front(&mut self) -> Option<Front<K>> {
        match self.early.pop_front() {
            Some(data) => Some(Front::Early(data)),
            None => self.posted.pop_front().map(Front::Posted),
        }
    }

    /// A message came early.
    pub(super) fn came(&mut self, early: Early) {
        self.came.push_back(early);
    }

    /// A message that came early and the Receive that it is for. The second is `None` where it does not fit.
    pub(super) fn matched(&mut self) -> Option<(WorkId, BufMut, Option<Early>)> {
        if self.came.is_empty() || self.held.is_empty() {
            return None;
        }
        let ((id, mut into), early) = (self.held.pop_front()?, self.came.pop_front()?);
        if into.capacity() < early.data.len() {
            return Some((id, into, None));
        }
        into.set_filled(0);
        into.append(early.data.filled());
        Some((id, into, Some(early)))
    }

    /// All that are left, oldest first. The card is done with all of them.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (WorkId, BufMut)> + '_ {
        self.early.clear();
        self.came.clear();
        let posted = self.posted.drain(..).map(|p| (p.id, p.into));
        self.held.drain(..).chain(posted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_two_early() -> Receives<()> {
        Receives::new([BufMut::heap(8), BufMut::heap(8)].into())
    }

    fn message(bytes: &[u8]) -> Early {
        let mut data = BufMut::heap(8);
        data.append(bytes);
        Early { data, invalidated: None }
    }

    #[test]
    fn the_first_are_held_for_what_comes_early_and_keep_their_order() {
        let mut r = with_two_early();
        assert!(matches!(r.front(), Some(Front::Early(_))));
        r.came(message(b"one"));
        assert!(r.matched().is_none(), "nobody asked yet");
        assert!(r.hold(WorkId(1), BufMut::heap(8)).is_none());
        let (id, into, early) = r.matched().unwrap();
        assert_eq!((id, into.filled()), (WorkId(1), &b"one"[..]));
        assert!(early.is_some());
        assert!(r.hold(WorkId(2), BufMut::heap(8)).is_none());
        let (id, into) = r.hold(WorkId(3), BufMut::heap(8)).unwrap();
        r.posted(Posted { id, into, _keep: () });
        assert_eq!(r.len(), 2);
        assert!(matches!(r.front(), Some(Front::Early(_))));
        r.came(message(b"two"));
        assert_eq!(r.matched().unwrap().0, WorkId(2));
        assert!(matches!(r.front(), Some(Front::Posted(p)) if p.id == WorkId(3)));
        assert!(r.front().is_none());
    }

    #[test]
    fn an_early_message_that_does_not_fit_is_told() {
        let mut r = with_two_early();
        assert!(r.hold(WorkId(1), BufMut::heap(2)).is_none());
        r.came(message(b"too long"));
        assert!(matches!(r.matched(), Some((WorkId(1), _, None))));
    }

    #[test]
    fn all_come_back() {
        let mut r = with_two_early();
        for i in 0..4 {
            if let Some((id, into)) = r.hold(WorkId(i), BufMut::heap(1)) {
                r.posted(Posted { id, into, _keep: () });
            }
        }
        let ids: Vec<u64> = r.drain().map(|(id, _)| id.0).collect();
        assert_eq!(ids, [0, 1, 2, 3]);
        assert_eq!(r.len(), 0);
    }
}
