//! Assigns messages to Receives. No I/O.
//!
//! The accepting side must have posted Receives before it accepts, but the protocol posts its own only afterwards. The provider
//! therefore posts a few first. Receives are filled in order; therefore as many of the protocol's first Receives are held back and
//! filled by a copy, once in the lifetime of a connection.

use std::collections::VecDeque;

use iobuf::BufMut;

use crate::verbs::WorkId;

/// A Receive of the protocol.
#[derive(Debug)]
pub(super) struct Posted<K> {
    pub(super) id: WorkId,
    pub(super) into: BufMut,
    /// Kept as long as the card may write to the buffer.
    pub(super) _keep: K,
}

/// A message in one of the provider's own buffers.
#[derive(Debug)]
pub(super) struct Early {
    pub(super) data: BufMut,
    pub(super) invalidated: Option<u32>,
}

/// The oldest Receive of the card.
#[derive(Debug)]
pub(super) enum Front<K> {
    /// One of the provider's own Receives.
    Early(BufMut),
    /// A Receive of the protocol.
    Posted(Posted<K>),
}

/// All Receives of a connection.
#[derive(Debug)]
pub(super) struct Receives<K> {
    /// Receives posted by the provider, oldest first, all before `posted`.
    early: VecDeque<BufMut>,
    /// Messages that came early.
    came: VecDeque<Early>,
    /// The protocol's Receives that wait for an early message.
    held: VecDeque<(WorkId, BufMut)>,
    /// How many more of the protocol's Receives must be held back.
    to_hold: usize,
    posted: VecDeque<Posted<K>>,
}

impl<K> Receives<K> {
    /// Creates the queue with these posted buffers of the provider.
    pub(super) fn new(early: VecDeque<BufMut>) -> Self {
        Self {
            to_hold: early.len(),
            early,
            came: VecDeque::new(),
            held: VecDeque::new(),
            posted: VecDeque::new(),
        }
    }

    /// Number of the protocol's Receives not returned yet.
    pub(super) fn len(&self) -> usize {
        self.held.len() + self.posted.len()
    }

    /// Holds a Receive back if one of the provider's own takes its place; otherwise returns it for posting.
    pub(super) fn hold(&mut self, id: WorkId, into: BufMut) -> Option<(WorkId, BufMut)> {
        if self.to_hold == 0 {
            return Some((id, into));
        }
        self.to_hold -= 1;
        self.held.push_back((id, into));
        None
    }

    /// Records a posted Receive.
    pub(super) fn posted(&mut self, posted: Posted<K>) {
        self.posted.push_back(posted);
    }

    /// Takes the oldest Receive, which the card has completed.
    pub(super) fn front(&mut self) -> Option<Front<K>> {
        match self.early.pop_front() {
            Some(data) => Some(Front::Early(data)),
            None => self.posted.pop_front().map(Front::Posted),
        }
    }

    /// Records an early message.
    pub(super) fn came(&mut self, early: Early) {
        self.came.push_back(early);
    }

    /// Takes an early message with its Receive. The message is `None` if it does not fit.
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

    /// Takes all remaining Receives, oldest first, after the card is done with all of them.
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
    fn early_messages_keep_order() {
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
    fn oversized_early_message_is_reported() {
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
