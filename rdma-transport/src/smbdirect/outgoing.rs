//! Splits messages into fragments that the peer accepts, each byte once and in order (MS-SMBD section 3.1.5.4). No I/O.

use std::collections::VecDeque;

use iobuf::Buf;

use super::wire::DATA_OFFSET;
use crate::channel::{Payload, Place, Reply, UntilLeft};
use crate::moves::{RdmaWrite, pieces, scatter};

/// A message not sent completely.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// RDMA Writes before its first fragment.
    pub(super) writes: Vec<RdmaWrite>,
    pieces: VecDeque<Buf>,
    /// Bytes not put into fragments yet.
    left: usize,
    invalidate: Option<u32>,
    /// See [`Reply::until_left`].
    pub(super) until_left: Option<UntilLeft>,
}

#[derive(Debug)]
pub(super) struct Fragment {
    pub(super) data: Vec<Buf>,
    /// Bytes of its data.
    pub(super) len: usize,
    /// Bytes of the message in later fragments.
    pub(super) remaining: usize,
    /// The token for its Send to invalidate; only on the last fragment of the message.
    pub(super) invalidate: Option<u32>,
}

impl Outgoing {
    /// Plans a message: payloads for regions of the peer become RDMA Writes. `None` if the regions are too short, and for file
    /// pages, which a queue pair cannot send.
    pub(super) fn new(message: Reply) -> Option<Self> {
        if message.payloads.iter().any(|p| p.pages.is_some()) {
            return None;
        }
        let mut writes = Vec::new();
        let mut stay = Vec::with_capacity(message.payloads.len());
        for payload in message.payloads {
            match payload.place {
                Place::Remote(mut segments) => {
                    scatter(payload.data, &mut segments, &mut writes)?;
                }
                Place::Inline | Place::Eligible => {
                    stay.push(Payload { place: Place::Inline, ..payload });
                }
            }
        }
        let pieces: VecDeque<Buf> = pieces(message.head.into(), 0, stay).into();
        let left = pieces.iter().map(Buf::len).sum();
        let Reply { invalidate, until_left, .. } = message;
        Some(Self { writes, pieces, left, invalidate, until_left })
    }

    /// Bytes for Sends that are not in fragments yet.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// The next fragment, for a peer that accepts messages of `max_send` bytes.
    pub(super) fn next(&mut self, max_send: usize) -> Fragment {
        let mut room = max_send.saturating_sub(DATA_OFFSET);
        let mut data = Vec::with_capacity(2);
        let mut len = 0;
        while room > 0 {
            let Some(piece) = self.pieces.front_mut() else { break };
            let part = piece.split_to(room);
            if piece.is_empty() {
                self.pieces.pop_front();
            }
            room -= part.len();
            len += part.len();
            data.push(part);
        }
        self.left -= len;
        let invalidate = if self.left == 0 { self.invalidate.take() } else { None };
        Fragment { data, len, remaining: self.left, invalidate }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::RemoteSeg;
    use proptest::prelude::*;

    fn bytes(n: usize) -> Vec<u8> {
        (0..n).map(|i| u8::try_from(i % 251).unwrap()).collect()
    }

    #[test]
    fn regions_limit_rdma_writes() {
        let seg = |handle, len| RemoteSeg { handle, len, offset: 1000 };
        let payload = |place| Payload {
            at: 4,
            data: vec![bytes(700).into(), bytes(400).into()],
            pages: None,
            pad: 0,
            place,
        };
        let message = |segs| Reply {
            head: bytes(8),
            payloads: vec![payload(Place::Remote(segs))],
            invalidate: Some(7),
            until_left: None,
            starts_tls: false,
        };
        let mut o = Outgoing::new(message(vec![seg(1, 500), seg(2, 0), seg(3, 900)])).unwrap();
        let moved: Vec<_> =
            o.writes.iter().map(|m| (m.to.handle, m.to.offset, m.from.len())).collect();
        assert_eq!(moved, [(1, 1000, 500), (3, 1000, 200), (3, 1200, 400)]);
        let whole = o.next(1024);
        assert_eq!((whole.len, whole.remaining, whole.invalidate), (8, 0, Some(7)));
        assert!(Outgoing::new(message(vec![seg(1, 500), seg(3, 599)])).is_none());
    }

    proptest! {
        /// Each byte is sent once and in order, each fragment fits the peer's limit, the token is on the last one.
        #[test]
        fn every_byte_leaves_once(
            head in 0usize..600,
            payloads in proptest::collection::vec((0usize..600, 0usize..3000), 0..4),
            max_send in 128usize..2000,
        ) {
            let mut payloads: Vec<_> = payloads
                .into_iter()
                .map(|(at, len)| Payload {
                    at: at.min(head),
                    data: vec![bytes(len).into()],
                    pages: None, pad: 0,
                    place: Place::Inline,
                })
                .collect();
            payloads.sort_by_key(|p| p.at);
            let message = Reply { head: bytes(head), payloads, invalidate: Some(9), until_left: None, starts_tls: false };
            let expected: Vec<u8> = message.pieces().flatten().copied().collect();
            prop_assume!(!expected.is_empty());
            let mut o = Outgoing::new(message).unwrap();
            let (mut got, mut tokens) = (Vec::new(), 0);
            while o.left() > 0 {
                let f = o.next(max_send);
                prop_assert!(f.len > 0 && f.len + DATA_OFFSET <= max_send);
                prop_assert_eq!(f.remaining, o.left());
                tokens += usize::from(f.invalidate.is_some());
                prop_assert_eq!(f.invalidate.is_some(), o.left() == 0);
                got.extend(f.data.iter().flat_map(|b| b.to_vec()));
            }
            prop_assert_eq!(tokens, 1);
            prop_assert_eq!(got, expected);
        }
    }
}
