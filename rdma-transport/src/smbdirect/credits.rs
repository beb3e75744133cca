//! Credits both ways (MS-SMBD sections 3.1.5.1, 3.1.5.8, 3.1.5.9): pure.
//!
//! A Receive is posted directly before the message that grants it, so what the peer holds is what is posted. The goal is what
//! the peer asks for, within our limits. Nothing is sent on the last credit without a grant in it, or both sides could come
//! to hold nothing; for that grant the goal may be passed. A peer that has used half of what it had is granted the rest
//! without being asked, by a message of its own if there is no other. Half and not less, because peers that keep their last
//! credit never use all of them; half and not more, because then grants would answer grants for ever.

use super::violation::Violation;
use crate::limits;

/// The credits of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Credits {
    /// Messages that we may send.
    send: u32,
    /// Messages that the peer may send: as many Receives are posted.
    held: u16,
    /// What the peer asks for.
    target: u16,
    /// What this side may grant.
    most: u16,
}

impl Credits {
    /// After the negotiation: the peer granted `send`, was granted `held` and wants `target`.
    pub(super) fn new(send: u16, held: u16, target: u16) -> Self {
        Self { send: send.into(), held, target, most: limits::SMBD_CREDITS_MAX }
    }

    /// This side may grant so many from now on.
    pub(super) fn set_most(&mut self, most: u16) {
        self.most = most.clamp(limits::SMBD_CREDITS_MIN, limits::SMBD_CREDITS_MAX);
    }

    /// What this side may grant.
    pub(super) fn most(&self) -> u16 {
        self.most
    }

    fn goal(&self) -> u16 {
        self.target.clamp(limits::SMBD_CREDITS_MIN, self.most)
    }

    /// A message has come, which wants and grants so many.
    pub(super) fn received(&mut self, requested: u16, granted: u16) -> Result<(), Violation> {
        self.held = self.held.checked_sub(1).ok_or(Violation::CreditsOverrun)?;
        self.target = requested;
        self.send = self.send.saturating_add(granted.into());
        Ok(())
    }

    /// How many more the peer may get while `busy` Receives hold messages that nobody has taken.
    fn room(&self, busy: usize) -> u16 {
        let busy = u16::try_from(busy).unwrap_or(u16::MAX);
        self.goal().saturating_sub(self.held).saturating_sub(busy)
    }

    /// Whether a message may be sent now, and what it grants.
    pub(super) fn next(&self, busy: usize) -> Option<u16> {
        let grant = self.room(busy);
        match self.send {
            0 => None,
            1 if grant == 0 => (self.held < limits::SMBD_CREDITS_MAX).then_some(1),
            _ => Some(grant),
        }
    }

    /// A message was sent that grants so many.
    pub(super) fn sent(&mut self, grant: u16) {
        debug_assert!(self.send > 0, "nothing is sent without a credit");
        self.send = self.send.saturating_sub(1);
        self.held += grant;
    }

    /// The peer is to be granted credits although there is nothing to say to it.
    pub(super) fn is_low(&self, busy: usize) -> bool {
        self.held <= self.goal() / 2 && self.room(busy) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_last_credit_is_spent_only_with_a_grant() {
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
    fn no_grant_beyond_what_is_posted_and_free() {
        let mut c = Credits::new(100, 10, 10);
        for _ in 0..10 {
            c.received(10, 0).unwrap();
        }
        assert_eq!(c.received(10, 0), Err(Violation::CreditsOverrun));
        assert_eq!(c.next(4), Some(6), "four Receives hold messages that nobody has taken");
        assert_eq!(c.next(10), Some(0));
        assert!(!c.is_low(10));
        assert!(c.is_low(9));
        // A peer that asks for more than there are gets what there are.
        c.held = 1;
        c.received(u16::MAX, 0).unwrap();
        assert_eq!(c.next(0), Some(255));
    }

    #[test]
    fn grants_do_not_answer_grants() {
        for target in [1, 2, 3, 4, 5, 255] {
            let mut c = Credits::new(9, 1, target);
            // The peer's message left it with little, so it is granted the rest.
            assert!(c.is_low(0));
            let grant = c.next(0).unwrap();
            c.sent(grant);
            // The peer answers by a grant of its own: that must be the end of it.
            c.received(target, 9).unwrap();
            assert!(!c.is_low(0), "target {target}");
        }
    }

    /// One of two sides: its credits, messages that it has to send, messages on the way to it.
    #[derive(Debug)]
    struct Side {
        credits: Credits,
        to_say: usize,
        said: usize,
        inbox: std::collections::VecDeque<u16>,
    }

    impl Side {
        /// Sends what it may; gives the grants of the messages that it sent.
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
        /// Whatever the targets and however messages cross: all are said, nobody sends without a credit, and the line
        /// falls silent.
        #[test]
        fn two_sides_never_wait_for_each_other(
            targets in [1u16..300, 1u16..300],
            to_say in [0usize..400, 0usize..400],
            order in proptest::collection::vec(any::<bool>(), 1..200),
        ) {
            let granted = |t: u16| t.min(limits::SMBD_CREDITS_MAX);
            // The acceptor granted what the initiator wanted; the initiator has granted nothing yet, and speaks first.
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
