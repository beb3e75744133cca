//! Slots of a session with cached replies: each request is executed exactly once (RFC 8881 section 2.10.6). No I/O.
//!
//! ```text
//!              begin, next number            finish(reply)      +--------+
//!   Nothing ------------------------> Busy -------------------> | Reply  | begin, same number: Replay
//!                                     ^  |   finish(None)       +--------+
//!                                     |  +--------------------> Forgotten  begin, same number: Uncached
//!                                     |                             |
//!                                     +-----------------------------+
//!                                     begin, next number, from Reply or Forgotten
//! ```
//!
//! [`Slots::begin`] returns [`SlotError::Busy`] for the same number while the slot is Busy, [`SlotError::FalseRetry`] for another
//! request with the number of a cached reply, and [`SlotError::Misordered`] for any other number.

use std::sync::Arc;

/// The cache entry of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kept {
    /// The slot has had no request yet.
    Nothing,
    /// The request is in progress.
    Busy,
    /// The client did not request caching.
    Forgotten,
    /// The reply, beginning with the COMPOUND's status.
    Reply(Arc<[u8]>),
}

#[derive(Clone, Debug)]
struct Slot {
    sequence: u32,
    /// Distinguishes a retransmission from another request with the same number.
    fingerprint: u64,
    kept: Kept,
}

/// How a request relates to its slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// A new request: execute it, then call [`Slots::finish`].
    New,
    /// A retransmission, with the cached reply.
    Replay(Arc<[u8]>),
    /// A retransmission whose reply was not cached.
    Uncached,
}

/// The reason for refusing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotError {
    /// The slot does not exist (NFS4ERR_BADSLOT).
    BadSlot,
    /// The number is neither the last nor the next one (NFS4ERR_SEQ_MISORDERED).
    Misordered,
    /// A retransmission while the original is in progress (NFS4ERR_DELAY).
    Busy,
    /// A different request with the number of a cached reply (NFS4ERR_SEQ_FALSE_RETRY).
    FalseRetry,
}

/// The slots of one direction of a session.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
}

impl Slots {
    /// Creates `count` unused slots.
    pub(super) fn new(count: u32) -> Self {
        let unused = Slot { sequence: 0, fingerprint: 0, kept: Kept::Nothing };
        Self { slots: (0..count).map(|_| unused.clone()).collect() }
    }

    /// Number of requests in progress.
    pub(super) fn busy(&self) -> usize {
        self.slots.iter().filter(|s| s.kept == Kept::Busy).count()
    }

    fn slot(&mut self, slot: u32) -> Option<&mut Slot> {
        self.slots.get_mut(usize::try_from(slot).ok()?)
    }

    /// True if a request with this number would be new.
    pub(super) fn is_next(&mut self, slot: u32, sequence: u32) -> bool {
        self.slot(slot).is_some_and(|slot| sequence == slot.sequence.wrapping_add(1))
    }

    /// Checks a request on a slot.
    pub(super) fn begin(
        &mut self,
        slot: u32,
        sequence: u32,
        fingerprint: u64,
    ) -> Result<Begin, SlotError> {
        let slot = self.slot(slot).ok_or(SlotError::BadSlot)?;
        if sequence == slot.sequence {
            return match &slot.kept {
                Kept::Nothing => Err(SlotError::Misordered),
                Kept::Busy => Err(SlotError::Busy),
                // A different request also gets this result: without a cached reply no wrong answer is possible, and a client that
                // dropped a call and reuses its number can continue. Linux' server and Ganesha do the same.
                Kept::Forgotten => Ok(Begin::Uncached),
                Kept::Reply(_) if fingerprint != slot.fingerprint => Err(SlotError::FalseRetry),
                Kept::Reply(reply) => Ok(Begin::Replay(reply.clone())),
            };
        }
        // RFC 8881 section 2.10.6.1: a new number acknowledges the reply to the last request.
        if sequence != slot.sequence.wrapping_add(1) || slot.kept == Kept::Busy {
            return Err(SlotError::Misordered);
        }
        *slot = Slot { sequence, fingerprint, kept: Kept::Busy };
        Ok(Begin::New)
    }

    /// Ends a new request and caches its reply.
    pub(super) fn finish(&mut self, slot: u32, reply: Option<Arc<[u8]>>) {
        if let Some(slot) = self.slot(slot) {
            slot.kept = reply.map_or(Kept::Forgotten, Kept::Reply);
        }
    }
}

/// A hash that two different requests are unlikely to share. It need not be secret: a client could only deceive itself.
pub(super) fn fingerprint(args: &[u8], seed: u64) -> u64 {
    let mix = |h: u64, n: u64| {
        let h = (h ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        h ^ (h >> 32)
    };
    let (words, rest) = args.as_chunks::<8>();
    let mut h = mix(seed, args.len() as u64);
    for w in words {
        h = mix(h, u64::from_ne_bytes(*w));
    }
    rest.iter().fold(h, |h, b| mix(h, u64::from(*b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(n: u8) -> Arc<[u8]> {
        Arc::from([n])
    }

    #[test]
    fn retransmission_gets_cached_reply() {
        let mut s = Slots::new(2);
        assert_eq!(s.begin(0, 1, 7), Ok(Begin::New));
        assert_eq!(s.begin(0, 1, 7), Err(SlotError::Busy));
        assert_eq!(s.begin(0, 2, 8), Err(SlotError::Misordered), "the first has no reply yet");
        s.finish(0, Some(reply(1)));
        assert_eq!(s.begin(0, 1, 7), Ok(Begin::Replay(reply(1))));
        assert_eq!(s.begin(0, 1, 7), Ok(Begin::Replay(reply(1))));
        assert_eq!(s.begin(0, 1, 9), Err(SlotError::FalseRetry));
        assert_eq!(s.begin(0, 2, 9), Ok(Begin::New));
        s.finish(0, None);
        assert_eq!(s.begin(0, 2, 9), Ok(Begin::Uncached));
        assert_eq!(s.begin(0, 2, 1), Ok(Begin::Uncached), "no reply is kept");
        assert_eq!(s.begin(0, 1, 7), Err(SlotError::Misordered), "forgotten");
        assert_eq!(s.busy(), 0);
    }

    #[test]
    fn slots_are_apart_and_bounded() {
        let mut s = Slots::new(2);
        assert_eq!(s.begin(2, 1, 0), Err(SlotError::BadSlot));
        assert_eq!(s.begin(1, 0, 0), Err(SlotError::Misordered), "nothing was sent yet");
        assert_eq!(s.begin(1, 2, 0), Err(SlotError::Misordered), "numbers begin at 1");
        assert_eq!(s.begin(1, 1, 0), Ok(Begin::New));
        assert_eq!(s.begin(0, 1, 0), Ok(Begin::New));
        assert_eq!(s.busy(), 2);
    }

    #[test]
    fn numbers_wrap() {
        let mut s = Slots::new(1);
        s.slots[0] = Slot { sequence: u32::MAX, fingerprint: 0, kept: Kept::Forgotten };
        assert_eq!(s.begin(0, 0, 0), Ok(Begin::New));
    }

    #[test]
    fn fingerprint_covers_bytes_and_length() {
        let base = fingerprint(b"0123456789", 1);
        assert_eq!(base, fingerprint(b"0123456789", 1));
        for other in [&b"0123456788"[..], b"1123456789", b"012345678", b"0123456789\0"] {
            assert_ne!(base, fingerprint(other, 1));
        }
        assert_ne!(base, fingerprint(b"0123456789", 2));
    }
}
