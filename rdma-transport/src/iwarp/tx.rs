//! Sending: converts messages to FPDUs and keeps them until the socket has taken them. No I/O.
//!
//! *Operation.* [`Tx::frame`] appends one FPDU to the batch; [`Tx::slices`] returns the batch for the socket, with headers and
//! trailers from a small scratch buffer and payload in place; [`Tx::wrote`] reports FPDUs written completely.
//!
//! *Memory.* The batch keeps views of the payload until the socket has taken it.

use std::collections::VecDeque;
use std::io::IoSlice;

use iobuf::Buf;

use super::wire::terminate::Terminate;
use super::wire::{ddp, mpa, rdmap};

/// FPDUs framed at once.
const FRAMES_MAX: usize = 384;
/// Bytes framed at once: small enough that the socket's copy finds them in the cache after the checksum.
const BATCH_MAX: usize = 512 << 10;
/// Pieces for one system call (`IOV_MAX`).
const PIECES_MAX: usize = 1024;

/// Pieces for which an idle connection keeps memory.
const PIECES_KEPT: usize = 32;

/// The item that completes when the last byte of an FPDU was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The queue has no item to send.
    Nothing,
    /// The work request with this number.
    Work(u64),
    /// The response to an RDMA Read of the peer.
    Response,
}

enum Piece {
    /// A range of `scratch`.
    Scratch {
        from: usize,
        len: usize,
    },
    Data(Buf),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Scratch { len, .. } => *len,
            Self::Data(b) => b.len(),
        }
    }
}

/// Largest payload of an FPDU, by kind of segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FpduSize {
    pub(crate) tagged: usize,
    pub(crate) untagged: usize,
}

impl FpduSize {
    /// Computes the sizes of FPDUs that fit one TCP segment each, or the largest possible. Always whole words, so that only the
    /// last FPDU of a message has padding.
    pub(crate) fn new(mss: usize, large: bool) -> Self {
        let around = mpa::LENGTH_LEN + mpa::CRC_LEN;
        // An absurd MSS still yields FPDUs with payload.
        let ulpdu = if large { mpa::ULPDU_MAX } else { mss.max(256) - around }.min(mpa::ULPDU_MAX);
        let payload = |header: usize| (ulpdu - header) & !3;
        Self { tagged: payload(ddp::TAGGED_LEN), untagged: payload(ddp::UNTAGGED_LEN) }
    }
}

/// The sending half of a connection.
pub(crate) struct Tx {
    crc: mpa::Crc,
    pub(crate) size: FpduSize,
    scratch: Vec<u8>,
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece already written.
    first_at: usize,
    /// Ends of FPDUs, as positions in the stream.
    ends: VecDeque<(u64, Mark)>,
    framed: u64,
    written: u64,
    /// End of the last FPDU written completely.
    through: u64,
    batch: usize,
}

impl Tx {
    pub(crate) fn new(crc: bool, size: FpduSize) -> Self {
        Self {
            crc: mpa::Crc::new(crc),
            size,
            scratch: Vec::new(),
            pieces: VecDeque::new(),
            first_at: 0,
            ends: VecDeque::new(),
            framed: 0,
            written: 0,
            through: 0,
            batch: 0,
        }
    }

    /// True if all framed data was written.
    pub(crate) fn is_empty(&self) -> bool {
        self.framed == self.written
    }

    /// True if another FPDU fits into this batch.
    pub(crate) fn has_room(&self) -> bool {
        self.is_empty() || self.ends.len() < FRAMES_MAX && self.batch < BATCH_MAX
    }

    /// Frees surplus memory of an idle connection.
    pub(crate) fn rest(&mut self) {
        if self.is_empty() && self.pieces.capacity() > PIECES_KEPT {
            self.pieces = VecDeque::new();
            self.ends = VecDeque::new();
            self.scratch = Vec::new();
        }
    }

    /// Bytes of memory used by this value.
    #[cfg(test)]
    pub(crate) fn footprint(&self) -> usize {
        self.pieces.capacity() * size_of::<Piece>()
            + self.ends.capacity() * size_of::<(u64, Mark)>()
            + self.scratch.capacity()
    }

    fn scratch(&mut self, bytes: &[u8]) {
        let from = self.scratch.len();
        self.scratch.extend_from_slice(bytes);
        match self.pieces.back_mut() {
            // A trailer and the following header form one piece.
            Some(Piece::Scratch { from: f, len }) if *f + *len == from => *len += bytes.len(),
            _ => self.pieces.push_back(Piece::Scratch { from, len: bytes.len() }),
        }
    }

    /// Appends an FPDU: `header` consists of DDP's and RDMAP's header, `payload` is the rest of the ULPDU, together at most 65,535
    /// bytes.
    pub(crate) fn frame(
        &mut self,
        header: &[u8],
        payload: impl Iterator<Item = Buf>,
        payload_len: usize,
        mark: Mark,
    ) {
        if self.is_empty() {
            self.scratch.clear();
            self.batch = 0;
        }
        let ulpdu_len = header.len() + payload_len;
        // Invariant: `FpduSize` and the fixed headers fit 16 bits.
        #[allow(clippy::cast_possible_truncation)]
        let length = (ulpdu_len as u16).to_be_bytes();
        self.crc.start();
        for part in [&length, header] {
            self.crc.update(part);
            self.scratch(part);
        }
        for piece in payload {
            if !piece.is_empty() {
                self.crc.update(&piece);
                self.pieces.push_back(Piece::Data(piece));
            }
        }
        let pad = &[0; 3][..mpa::pad(ulpdu_len)];
        self.crc.update(pad);
        self.scratch(pad);
        let crc = self.crc.field();
        self.scratch(&crc);
        let len = mpa::LENGTH_LEN + ulpdu_len + pad.len() + crc.len();
        self.framed += len as u64;
        self.batch += len;
        self.ends.push_back((self.framed, mark));
    }

    /// The data to write next.
    pub(crate) fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut skip = self.first_at;
        let mut out = Vec::with_capacity(self.pieces.len().min(PIECES_MAX));
        for piece in self.pieces.iter().take(PIECES_MAX) {
            let bytes = match piece {
                Piece::Scratch { from, len } => &self.scratch[*from..*from + *len],
                Piece::Data(b) => b.as_slice(),
            };
            out.push(IoSlice::new(&bytes[skip..]));
            skip = 0;
        }
        out
    }

    /// Handles `n` bytes taken by the socket; `over` gets the mark of every FPDU written completely.
    pub(crate) fn wrote(&mut self, n: usize, mut over: impl FnMut(Mark)) {
        self.written += n as u64;
        self.first_at += n;
        while let Some(first) = self.pieces.front()
            && self.first_at >= first.len()
        {
            self.first_at -= first.len();
            self.pieces.pop_front();
        }
        while let Some(&(end, mark)) = self.ends.front()
            && end <= self.written
        {
            self.ends.pop_front();
            self.through = end;
            over(mark);
        }
    }

    /// Drops framed data after the partially written FPDU, which must be completed.
    fn cut(&mut self) {
        let begun = self.written > self.through;
        let mut keep = 0;
        match self.ends.front() {
            Some(&(end, _)) if begun => {
                keep = usize::try_from(end - self.written).unwrap_or(usize::MAX);
                self.framed = end;
                self.ends.truncate(1);
            }
            _ => {
                self.framed = self.written;
                self.ends.clear();
            }
        }
        let mut room = self.first_at + keep;
        let mut kept = 0;
        for piece in &mut self.pieces {
            if room == 0 || keep == 0 {
                break;
            }
            let n = piece.len().min(room);
            match piece {
                Piece::Scratch { len, .. } => *len = n,
                Piece::Data(b) => *b = b.slice(0..n),
            }
            room -= n;
            kept += 1;
        }
        self.pieces.truncate(kept);
        if kept == 0 {
            self.first_at = 0;
        }
    }

    /// Ends the stream with a Terminate message, dropping FPDUs that were not begun.
    pub(crate) fn terminate(&mut self, t: &Terminate) {
        self.cut();
        let header = ddp::Untagged {
            last: true,
            ulp: rdmap::Opcode::Terminate.control(),
            ulp_word: 0,
            queue: ddp::queue::TERMINATE,
            msn: 1,
            mo: 0,
        };
        let body = t.emit();
        let len = body.len();
        self.frame(&header.emit(), std::iter::once(Buf::from(body)), len, Mark::Nothing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(tx: &Tx) -> Vec<u8> {
        tx.slices().iter().flat_map(|s| s.iter().copied()).collect()
    }

    fn tx() -> Tx {
        let mut tx = Tx::new(true, FpduSize::new(1448, false));
        for i in 0..3u8 {
            let data = Buf::from(vec![i; 5]);
            tx.frame(&[i; 14], std::iter::once(data), 5, Mark::Work(u64::from(i)));
        }
        tx
    }

    #[test]
    fn sizes_fit_the_segment() {
        let s = FpduSize::new(1448, false);
        assert_eq!(s, FpduSize { tagged: 1428, untagged: 1424 });
        assert_eq!(2 + 14 + s.tagged + 4, 1448);
        let s = FpduSize::new(1448, true);
        assert_eq!(s, FpduSize { tagged: 64_752, untagged: 64_748 });
        assert!(FpduSize::new(0, false).untagged > 0);
        assert_eq!(FpduSize::new(1 << 20, false), FpduSize::new(0, true));
    }

    #[test]
    fn stream_is_independent_of_write_sizes() {
        let whole = bytes(&tx());
        assert_eq!(whole.len(), 3 * (2 + 14 + 5 + 3 + 4));
        for step in 1..whole.len() {
            let (mut t, mut out, mut over) = (tx(), Vec::new(), Vec::new());
            while !t.is_empty() {
                let b = bytes(&t);
                let n = step.min(b.len());
                out.extend_from_slice(&b[..n]);
                t.wrote(n, |m| over.push(m));
            }
            assert_eq!(out, whole);
            assert_eq!(over, [Mark::Work(0), Mark::Work(1), Mark::Work(2)]);
        }
    }

    #[test]
    fn terminate_follows_partial_fpdu() {
        let whole = bytes(&tx());
        let one = whole.len() / 3;
        let cause = super::super::wire::terminate::Cause::new(2, 0, 2);
        let t = Terminate { cause, segment_len: None, ddp: None, read_request: None };
        for taken in 0..=whole.len() {
            let mut tx = tx();
            tx.wrote(taken, |_| ());
            tx.terminate(&t);
            let mut out = whole[..taken].to_vec();
            out.extend(bytes(&tx));
            let kept = taken.div_ceil(one) * one;
            assert_eq!(out[..kept], whole[..kept]);
            assert_eq!(out[kept..][..4], [0, 22, 0x41, 0x47], "taken {taken}");
            assert_eq!(out[kept + 20..][..4], [0x20, 2, 0, 0]);
            assert_eq!(out.len(), kept + 2 + 22 + 4);
        }
    }
}
