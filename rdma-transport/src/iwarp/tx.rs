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
    /// last FPDU of a message has padding. With `markers` there is room for as many as can be in a segment (RFC 5044 section 4.5).
    pub(crate) fn new(mss: usize, large: bool, markers: bool) -> Self {
        // An absurd MSS still yields FPDUs with payload.
        let mss = mss.max(256);
        let around = mpa::LENGTH_LEN
            + mpa::CRC_LEN
            + if markers { mpa::MARKER_LEN * mss.div_ceil(mpa::MARKER_INTERVAL) } else { 0 };
        let ulpdu = if large { mpa::ULPDU_MAX } else { mss - around }.min(mpa::ULPDU_MAX);
        let payload = |header: usize| (ulpdu - header) & !3;
        Self { tagged: payload(ddp::TAGGED_LEN), untagged: payload(ddp::UNTAGGED_LEN) }
    }
}

/// Framing that both sides agreed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Framing {
    pub(crate) crc: bool,
    /// The peer wants markers.
    pub(crate) markers: bool,
    /// FPDUs begin TCP segments, because they fit into them.
    pub(crate) aligns: bool,
}

/// The sending half of a connection.
pub(crate) struct Tx {
    crc: mpa::Crc,
    markers: bool,
    aligns: bool,
    pub(crate) size: FpduSize,
    scratch: Vec<u8>,
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece already written.
    first_at: usize,
    /// Ends of FPDUs, as positions in the stream.
    ends: VecDeque<(u64, Mark)>,
    /// Bytes of all FPDUs so far, with their markers.
    framed: u64,
    written: u64,
    /// End of the last FPDU written completely.
    through: u64,
    batch: usize,
}

impl Tx {
    pub(crate) fn new(framing: Framing, size: FpduSize) -> Self {
        Self {
            crc: mpa::Crc::new(framing.crc),
            markers: framing.markers,
            aligns: framing.aligns,
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

    /// Appends a marker if one is due at the current position. `header` is the position of the FPDU's length field, to which the
    /// marker points; a marker in front of that field points nowhere (RFC 5044 section 4.3). Markers are part of the CRC.
    fn mark(&mut self, header: u64) {
        if self.markers && self.framed.is_multiple_of(mpa::MARKER_INTERVAL as u64) {
            let marker = mpa::marker(self.framed.saturating_sub(header));
            self.crc.update(&marker);
            self.scratch(&marker);
            self.framed += marker.len() as u64;
        }
    }

    /// Returns the number of bytes until the next marker, at most `len`.
    fn until_marker(&self, len: usize) -> usize {
        let interval = mpa::MARKER_INTERVAL as u64;
        let left = usize::try_from(interval - self.framed % interval).unwrap_or(len);
        if self.markers { left.min(len) } else { len }
    }

    /// Appends bytes of an FPDU.
    fn put(&mut self, header: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.mark(header);
            let (now, later) = bytes.split_at(self.until_marker(bytes.len()));
            self.crc.update(now);
            self.scratch(now);
            self.framed += now.len() as u64;
            bytes = later;
        }
    }

    /// Appends payload of an FPDU.
    fn put_data(&mut self, header: u64, data: Buf) {
        let mut at = 0;
        while at < data.len() {
            self.mark(header);
            let end = at + self.until_marker(data.len() - at);
            let now = if end - at == data.len() { data.clone() } else { data.slice(at..end) };
            self.crc.update(&now);
            self.framed += now.len() as u64;
            self.pieces.push_back(Piece::Data(now));
            at = end;
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
        let begin = self.framed;
        // A marker exactly between two FPDUs belongs to the second.
        self.mark(begin);
        let from = self.framed;
        self.put(from, &length);
        self.put(from, header);
        for piece in payload {
            self.put_data(from, piece);
        }
        self.put(from, &[0; 3][..mpa::pad(ulpdu_len)]);
        self.mark(from);
        let crc = self.crc.field();
        self.scratch(&crc);
        self.framed += crc.len() as u64;
        self.batch += usize::try_from(self.framed - begin).unwrap_or(usize::MAX);
        self.ends.push_back((self.framed, mark));
    }

    /// True if the socket took part of an FPDU: the data to write next is only the rest of it, and the data after that must begin
    /// a segment. Otherwise the rest and the FPDUs after it would share segments, none of which would begin with an FPDU (RFC 5044
    /// appendix A.1).
    pub(crate) fn ends_segment(&self) -> bool {
        self.aligns && self.written > self.through
    }

    /// The data to write next.
    pub(crate) fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut skip = self.first_at;
        let mut room = match self.ends.front() {
            Some((end, _)) if self.ends_segment() => {
                usize::try_from(end - self.written).unwrap_or(usize::MAX)
            }
            _ => usize::MAX,
        };
        let mut out = Vec::with_capacity(self.pieces.len().min(PIECES_MAX));
        for piece in self.pieces.iter().take(PIECES_MAX) {
            let bytes = match piece {
                Piece::Scratch { from, len } => &self.scratch[*from..*from + *len],
                Piece::Data(b) => b.as_slice(),
            };
            let bytes = &bytes[skip..];
            let bytes = &bytes[..bytes.len().min(room)];
            if bytes.is_empty() {
                break;
            }
            out.push(IoSlice::new(bytes));
            room -= bytes.len();
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
    use proptest::prelude::*;

    use super::*;
    use crate::iwarp::tests::receiver::{Receiver, Segments};

    const PLAIN: Framing = Framing { crc: true, markers: false, aligns: false };

    fn bytes(tx: &Tx) -> Vec<u8> {
        tx.slices().iter().flat_map(|s| s.iter().copied()).collect()
    }

    fn tx() -> Tx {
        let mut tx = Tx::new(PLAIN, FpduSize::new(1448, false, false));
        for i in 0..3u8 {
            let data = Buf::from(vec![i; 5]);
            tx.frame(&[i; 14], std::iter::once(data), 5, Mark::Work(u64::from(i)));
        }
        tx
    }

    #[test]
    fn sizes_fit_the_segment() {
        let s = FpduSize::new(1448, false, false);
        assert_eq!(s, FpduSize { tagged: 1428, untagged: 1424 });
        assert_eq!(2 + 14 + s.tagged + 4, 1448);
        let s = FpduSize::new(1448, true, false);
        assert_eq!(s, FpduSize { tagged: 64_752, untagged: 64_748 });
        assert!(FpduSize::new(0, false, false).untagged > 0);
        assert_eq!(FpduSize::new(1 << 20, false, false), FpduSize::new(0, true, false));
        // EMSS - (6 + 4 * ceiling(EMSS / 512) + EMSS mod 4), less the header.
        let s = FpduSize::new(1449, false, true);
        assert_eq!(s.tagged, 1449 - (6 + 4 * 3 + 1) - 14);
        assert!(FpduSize::new(0, false, true).untagged > 0);
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

    /// The first marker is in front of the first FPDU, the next 512 bytes later, inside the payload.
    #[test]
    fn markers_are_where_rfc_5044_puts_them() {
        let framing = Framing { crc: false, markers: true, aligns: false };
        let mut tx = Tx::new(framing, FpduSize::new(1448, false, true));
        tx.frame(&[1; 14], std::iter::once(Buf::from(vec![7; 600])), 600, Mark::Nothing);
        let b = bytes(&tx);
        assert_eq!(b.len(), 4 + 2 + 14 + 600 + 4 + 4);
        assert_eq!(b[..4], [0; 4]);
        assert_eq!(b[4..6], 614_u16.to_be_bytes());
        // From the length field at 4 to the marker at 512.
        assert_eq!(b[512..516], [0, 0, 1, 0xfc]);
        assert!(b[20..512].iter().chain(&b[516..624]).all(|b| *b == 7));
        assert_eq!(b[624..], [0; 4]);
        // The next FPDU ends exactly before the marker at 1024, which belongs to the one after.
        let room = 1024 - 628 - 2 - 14 - 4;
        tx.frame(&[2; 14], std::iter::once(Buf::from(vec![8; room])), room, Mark::Nothing);
        tx.frame(&[3; 14], std::iter::empty(), 0, Mark::Nothing);
        let b = bytes(&tx);
        assert_eq!(b[1024..1030], [0, 0, 0, 0, 0, 14]);
    }

    #[test]
    fn marker_in_front_of_crc_is_part_of_it() {
        let framing = Framing { crc: true, markers: true, aligns: false };
        let mut tx = Tx::new(framing, FpduSize::new(1448, false, true));
        let room = 512 - 4 - 2 - 14;
        tx.frame(&[1; 14], std::iter::once(Buf::from(vec![7; room])), room, Mark::Nothing);
        let b = bytes(&tx);
        assert_eq!((b.len(), &b[512..516]), (520, &[0, 0, 1, 0xfc][..]));
        assert_eq!(Receiver { crc: true, markers: true }.all(&b).len(), 1);
    }

    proptest! {
        /// A receiver that insists on every rule finds the messages, whatever their sizes and the sizes of writes.
        #[test]
        fn stream_with_markers_is_read_by_strict_receiver(
            sizes in proptest::collection::vec((0usize..3000, 0usize..3), 1..40),
            step in 1usize..5000,
            crc: bool,
            markers: bool,
            aligns: bool,
        ) {
            let mut tx = Tx::new(Framing { crc, markers, aligns }, FpduSize::new(1448, false, markers));
            let (mut out, mut wanted) = (Vec::new(), Vec::new());
            for (n, (size, pieces)) in sizes.into_iter().enumerate() {
                let header = [u8::try_from(n).unwrap(); 14];
                let data: Vec<u8> = (0..size).map(|i| u8::try_from(i % 251).unwrap()).collect();
                let (head, tail) = data.split_at(size / (pieces + 1));
                let parts = [head, tail].map(|part| Buf::from(part.to_vec()));
                tx.frame(&header, parts.into_iter(), size, Mark::Nothing);
                wanted.push([&header[..], &data].concat());
                while !tx.is_empty() {
                    let b = bytes(&tx);
                    let n = step.min(b.len());
                    out.extend_from_slice(&b[..n]);
                    tx.wrote(n, |_| ());
                }
            }
            let receiver = Receiver { crc, markers };
            prop_assert!(receiver.all(&out) == wanted);
        }

        /// A socket takes parts of a long message. Whether the kernel had sent what it had taken, or adds to it: every FPDU begins
        /// a segment, except while the rest of one is on its way.
        #[test]
        fn fpdus_begin_segments_after_partial_writes(
            parts in proptest::collection::vec((1usize..9000, any::<bool>()), 1..40),
            markers: bool,
        ) {
            const MSS: usize = 1448;
            let size = FpduSize::new(MSS, false, markers);
            let mut tx = Tx::new(Framing { crc: true, markers, aligns: true }, size);
            let mut segments = Segments::new(MSS);
            let mut parts = parts.into_iter().cycle();
            let mut starts = Vec::new();
            for _ in 0..3 {
                for _ in 0..20 {
                    starts.push(usize::try_from(tx.framed).unwrap());
                    // Without markers an FPDU is exactly a segment.
                    tx.frame(&[1; 14], std::iter::once(Buf::from(vec![7; size.tagged])), size.tagged, Mark::Nothing);
                }
                while !tx.is_empty() {
                    let (ends, all) = (tx.ends_segment(), bytes(&tx).len());
                    let (taken, is_sent) = parts.next().unwrap();
                    let taken = taken.min(all);
                    segments.write(taken, ends && taken == all, is_sent);
                    tx.wrote(taken, |_| ());
                }
                segments.write(0, false, true);
            }
            // With markers FPDUs differ in length by a marker, and only the one after a partial write is sure to begin a segment.
            let after_rest = segments.after_ends();
            for start in starts.iter().filter(|start| !markers || after_rest.contains(start)) {
                prop_assert!(segments.begins(*start), "{start} of {:?}", segments);
            }
        }
    }
}
