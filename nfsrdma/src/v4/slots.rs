//! The slots of a session and the replies kept in them: each request is executed exactly once (RFC 8881 section 2.10.6).
//! Pure.

use std::sync::Arc;

/// What is kept of the last request of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kept {
    /// There was none.
    Nothing,
    /// It is still being executed.
    Busy,
    /// The client did not want its reply to be kept.
    Forgotten,
    /// Its reply, from the COMPOUND's status on.
    Reply(Arc<[u8]>),
}

#[derive(Clone, Debug)]
struct Slot {
    sequence: u32,
    /// Tells another request under the same number from a repetition.
    fingerprint: u64,
    kept: Kept,
}

/// What a request on a slot is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// New: execute it, then [`Slots::finish`].
    New,
    /// A repetition: this was the reply.
    Replay(Arc<[u8]>),
    /// The number of a request whose reply was not to be kept.
    Uncached,
}

/// Why a request on a slot is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotError {
    /// There is no such slot (NFS4ERR_BADSLOT).
    BadSlot,
    /// The number is neither that of the last request nor the next (NFS4ERR_SEQ_MISORDERED).
    Misordered,
    /// A repetition while the original is being executed (NFS4ERR_DELAY).
    Busy,
    /// The number of the last request, whose reply is kept, but another request (NFS4ERR_SEQ_FALSE_RETRY).
    FalseRetry,
}

/// The slots of one direction of a session.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
}

impl Slots {
    /// `count` unused slots.
    pub(super) fn new(count: u32) -> Self {
        let unused = Slot { sequence: 0, fingerprint: 0, kept: Kept::Nothing };
        Self { slots: (0..count).map(|_| unused.clone()).collect() }
    }

    /// Requests that are being executed.
    pub(super) fn busy(&self) -> usize {
        self.slots.iter().filter(|s| s.kept == Kept::Busy).count()
    }

    fn slot(&mut self, slot: u32) -> Option<&mut Slot> {
        self.slots.get_mut(usize::try_from(slot).ok()?)
    }

    /// A request under this number would be new.
    pub(super) fn is_next(&mut self, slot: u32, sequence: u32) -> bool {
        self.slot(slot).is_some_and(|slot| sequence == slot.sequence.wrapping_add(1))
    }

    /// A request has come on a slot.
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
                // Another request too: without a kept reply nothing false is answered, and a client that dropped a call whose
                // number it then uses for the next gets on. Linux' server and Ganesha answer the same.
                Kept::Forgotten => Ok(Begin::Uncached),
                Kept::Reply(_) if fingerprint != slot.fingerprint => Err(SlotError::FalseRetry),
                Kept::Reply(reply) => Ok(Begin::Replay(reply.clone())),
            };
        }
        // RFC 8881 section 2.10.6.1: a new number means that the client has the reply to the last.
        if sequence != slot.sequence.wrapping_add(1) || slot.kept == Kept::Busy {
            return Err(SlotError::Misordered);
        }
        *slot = Slot { sequence, fingerprint, kept: Kept::Busy };
        Ok(Begin::New)
    }

    /// A request that was new has been executed.
    pub(super) fn finish(&mut self, slot: u32, reply: Option<Arc<[u8]>>) {
        if let Some(slot) = self.slot(slot) {
            slot.kept = reply.map_or(Kept::Forgotten, Kept::Reply);
        }
    }
}

/// A number that two different requests hardly share. Not a secret: a client can only deceive itself.
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
    fn a_request_is_executed_once_and_its_reply_is_repeated() {
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
    fn fingerprints_see_every_byte_and_the_length() {
        let base = fingerprint(b"0123456789", 1);
        assert_eq!(base, fingerprint(b"0123456789", 1));
        for other in [&b"0123456788"[..], b"1123456789", b"012345678", b"0123456789\0"] {
            assert_ne!(base, fingerprint(other, 1));
        }
        assert_ne!(base, fingerprint(b"0123456789", 2));
    }
}
