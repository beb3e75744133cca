//! Credits in both directions (MS-SMBD sections 3.1.5.1, 3.1.5.8, 3.1.5.9). No I/O.
//!
//! A Receive is posted directly before the message that grants it, so the peer's credits equal the posted Receives. The goal is the
//! number that the peer requests, within our limits. The last credit is only used for a message with a grant, or both sides could
//! end up without credits; for that grant the goal may be exceeded. When a peer has used half of its credits, the rest is granted
//! without a request, in a separate message if no other is pending. Not less than half, because peers that keep their last credit
//! never use all; not more than half, because then grants would answer grants without end.

use super::violation::Violation;
use crate::limits;

/// The credits of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Credits {
    /// Messages that this side may send.
    send: u32,
    /// Messages that the peer may send: the number of posted Receives.
    held: u16,
    /// The number that the peer requests.
    target: u16,
    /// The limit on grants of this side.
    most: u16,
}

impl Credits {
    /// State after the negotiation: the peer granted `send`, was granted `held` and requests `target`.
    pub(super) fn new(send: u16, held: u16, target: u16) -> Self {
        Self { send: send.into(), held, target, most: limits::SMBD_CREDITS_MAX }
    }

    /// Changes the limit on grants.
    pub(super) fn set_most(&mut self, most: u16) {
        self.most = most.clamp(limits::SMBD_CREDITS_MIN, limits::SMBD_CREDITS_MAX);
    }

    /// The limit on grants of this side.
    pub(super) fn most(&self) -> u16 {
        self.most
    }

    fn goal(&self) -> u16 {
        self.target.clamp(limits::SMBD_CREDITS_MIN, self.most)
    }

    /// Handles a message that requests and grants these numbers.
    pub(super) fn received(&mut self, requested: u16, granted: u16) -> Result<(), Violation> {
        self.held = self.held.checked_sub(1).ok_or(Violation::CreditsOverrun)?;
        self.target = requested;
        self.send = self.send.saturating_add(granted.into());
        Ok(())
    }

    /// How many more credits the peer may get while `busy` Receives contain unprocessed messages.
    fn room(&self, busy: usize) -> u16 {
        let busy = u16::try_from(busy).unwrap_or(u16::MAX);
        self.goal().saturating_sub(self.held).saturating_sub(busy)
    }

    /// If a message may be sent now, returns the grant that it carries.
    pub(super) fn next(&self, busy: usize) -> Option<u16> {
        let grant = self.room(busy);
        match self.send {
            0 => None,
            1 if grant == 0 => (self.held < limits::SMBD_CREDITS_MAX).then_some(1),
            _ => Some(grant),
        }
    }

    /// Counts a sent message with this grant.
    pub(super) fn sent(&mut self, grant: u16) {
        debug_assert!(self.send > 0, "nothing is sent without a credit");
        self.send = self.send.saturating_sub(1);
        self.held += grant;
    }

    /// True if a message must be sent only to grant credits.
    pub(super) fn is_low(&self, busy: usize) -> bool {
        self.held <= self.goal() / 2 && self.room(busy) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn last_credit_needs_grant() {
        let mut c = Credits::new(2, 10, 10);
        assert_eq!(c.next(0), Some(0));
        c.sent(0);
        assert_eq!(c.next(0), Some(1), "one more than the peer asked for");
        c.sent(1);
        assert_eq!(c.next(0), None);
        let full = Credits::new(1, limits::SMBD_CREDITS_MAX, 255);
        assert_eq!(full.next(0), None, "the peer has all there are, and can send a grant itself");
    }

    #[test]
    fn grants_are_limited_by_free_receives() {
        let mut c = Credits::new(100, 10, 10);
        for _ in 0..10 {
            c.received(10, 0).unwrap();
        }
        assert_eq!(c.received(10, 0), Err(Violation::CreditsOverrun));
        assert_eq!(c.next(4), Some(6), "four Receives hold messages that nobody has taken");
        assert_eq!(c.next(10), Some(0));
        assert!(!c.is_low(10));
        assert!(c.is_low(9));
        // A peer that requests more than the maximum gets the maximum.
        c.held = 1;
        c.received(u16::MAX, 0).unwrap();
        assert_eq!(c.next(0), Some(255));
    }

    #[test]
    fn grants_do_not_answer_grants() {
        for target in [1, 2, 3, 4, 5, 255] {
            let mut c = Credits::new(9, 1, target);
            // The peer's message left it with few credits, so the rest is granted.
            assert!(c.is_low(0));
            let grant = c.next(0).unwrap();
            c.sent(grant);
            // The peer answers with a grant, which must not cause another one.
            c.received(target, 9).unwrap();
            assert!(!c.is_low(0), "target {target}");
        }
    }

    /// One side: its credits, messages to send, messages in transit to it.
    #[derive(Debug)]
    struct Side {
        credits: Credits,
        to_say: usize,
        said: usize,
        inbox: std::collections::VecDeque<u16>,
    }

    impl Side {
        /// Sends as many messages as allowed; returns their grants.
        fn pump(&mut self) -> Vec<u16> {
            let mut sent = Vec::new();
            while self.to_say > 0 || self.credits.is_low(0) {
                let Some(grant) = self.credits.next(0) else { break };
                self.credits.sent(grant);
                if self.to_say > 0 {
                    self.to_say -= 1;
                    self.said += 1;
                }
                sent.push(grant);
            }
            sent
        }
    }

    proptest! {
        /// Whatever the targets and the order of messages: all are sent, never without a credit, and then no more messages follow.
        #[test]
        fn credit_exchange_never_deadlocks(
            targets in [1u16..300, 1u16..300],
            to_say in [0usize..400, 0usize..400],
            order in proptest::collection::vec(any::<bool>(), 1..200),
        ) {
            let granted = |t: u16| t.min(limits::SMBD_CREDITS_MAX);
            // The acceptor granted the initiator's request; the initiator has granted none yet, and sends first.
            let side = |send, held, target, to_say| Side {
                credits: Credits::new(send, held, target),
                to_say,
                said: 0,
                inbox: std::collections::VecDeque::new(),
            };
            let mut initiator =
                side(granted(targets[0]), 0, targets[1], to_say[0].max(1));
            let mut acceptor = side(0, granted(targets[0]), targets[0], to_say[1]);
            let mut order = order.into_iter().cycle();
            let mut quiet = 0;
            let mut messages = 0;
            while quiet < 2 {
                messages += 1;
                prop_assert!(messages < 5000, "the line does not fall silent");
                let turn = order.next().unwrap();
                let (a, b) = if turn { (&mut initiator, &mut acceptor) }
                    else { (&mut acceptor, &mut initiator) };
                let mut moved = false;
                for side in [&mut *a, &mut *b] {
                    if let Some(grant) = side.inbox.pop_front() {
                        let target = side.credits.target;
                        side.credits.received(target, grant).unwrap();
                        moved = true;
                    }
                }
                let sent = a.pump();
                moved |= !sent.is_empty();
                b.inbox.extend(sent);
                let sent = b.pump();
                moved |= !sent.is_empty();
                a.inbox.extend(sent);
                quiet = if moved { 0 } else { quiet + 1 };
            }
            prop_assert_eq!((initiator.to_say, acceptor.to_say), (0, 0));
        }
    }
}
