//! Receiving: splits the byte stream into FPDUs, checks them, and determines where the next bytes belong. No I/O.
//!
//! *Operation.* [`Rx::slices`] returns the memory to read the socket into, [`Rx::received`] takes the number of bytes read. The
//! memory is a prediction: the rest of the arriving payload, then alternately a small slot for a trailer and the following header,
//! and the memory of the next payload if the peer continues as before. A wrong prediction costs a copy, never an error.
//! [`Rx::feed`] does the same from a slice, always by copy.
//!
//! *Memory.* Payload is read directly into the Receive, the Read's buffer or the region. Bytes that are not identified yet are only
//! read into unused memory: the spare part of a Receive or Read, or a part of a region where no data was ever placed. Such a part
//! may contain stray bytes afterwards; only the peer's message tells what it wrote. A CRC is checked after placement, so a region
//! may contain bytes of a damaged FPDU when the connection ends; the protocol above never uses them.
//!
//! *Errors.* [`Violation`], after which no data may be received.

use std::collections::VecDeque;
use std::io::IoSliceMut;

use iobuf::BufMut;

use super::memory::Memory;
use super::reads::{Inbound, Reads};
use super::violation::Violation;
use super::wire::rdmap::{Opcode, ReadRequest};
use super::wire::terminate::{self, DdpHeader, Terminate};
use super::wire::{ddp, field, mpa, rdmap};
use crate::verbs::{Completion, WorkError, WorkId, WorkKind};

/// Size of the buffer for slots and unpredicted bytes.
const SIDE: usize = 8 << 10;
/// Part of it reserved for bytes after the prediction.
const TAIL: usize = 4 << 10;
/// FPDUs predicted at once. 128 of 1,448 bytes are 181 KiB for one system call.
const GUESSES_MAX: usize = 128;
/// Payload predicted at once, in bytes: the usual size of a transfer.
const GUESSED_MAX: usize = 1 << 20;
/// Entries of a plan for which an idle connection keeps memory.
const TURNS_KEPT: usize = 16;
/// An FPDU with at least this payload is worth a separate system call.
const LARGE: usize = 16 << 10;
/// Assumed payload of an FPDU before the first was seen.
const FIRST_GUESS: usize = 64 << 10;
/// FPDUs with less payload are not worth a separate slot.
const GUESS_MIN: usize = 256;
/// Length field and the longer of the two headers.
const HEADER_MAX: usize = mpa::LENGTH_LEN + ddp::UNTAGGED_LEN;

/// The destination of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    /// [`Rx::control`]: messages for the provider itself.
    Control,
    /// The segment goes into the oldest posted Receive.
    Recv,
    /// The Read with this number.
    Sink(u64),
    /// The region with this STag.
    Region(u32),
}

/// Everything that received bytes may modify.
pub(crate) struct Targets {
    pub(crate) recvs: VecDeque<(WorkId, BufMut)>,
    pub(crate) memory: Memory,
    pub(crate) reads: Reads,
    pub(crate) inbound: Inbound,
    pub(crate) done: Vec<Completion>,
}

impl Targets {
    fn window(&mut self, place: Destination) -> Option<&mut [u8]> {
        match place {
            Destination::Control => None,
            Destination::Recv => self.recvs.front_mut().map(|(_, b)| b.whole_mut()),
            Destination::Sink(seq) => self.reads.window(seq),
            Destination::Region(stag) => self.memory.window(stag),
        }
    }

    fn recv_done(&mut self, result: Result<usize, WorkError>, invalidated: Option<u32>) {
        if let Some((id, mut buf)) = self.recvs.pop_front() {
            buf.set_filled(result.unwrap_or(0));
            let buf = Some(buf);
            self.done.push(Completion { id, kind: WorkKind::Recv, result, buf, invalidated });
        }
    }
}

/// The segment that is arriving.
#[derive(Clone, Copy, Debug)]
struct Segment {
    opcode: Opcode,
    last: bool,
    /// The STag to invalidate, of a Send with Invalidate.
    invalidate: Option<u32>,
    place: Destination,
    /// Position of the next byte in the destination.
    at: usize,
    /// Remaining bytes of payload.
    left: usize,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Header,
    Payload(Segment),
    Trailer(Segment),
}

/// A partially received Send.
struct Message {
    opcode: Opcode,
    filled: usize,
}

/// The predicted destination of the next payload.
#[derive(Clone, Copy)]
struct Next {
    place: Destination,
    at: usize,
    /// Payload of one FPDU.
    len: usize,
}

/// The predicted data: FPDUs with this header and `len` bytes of payload each, destined for `place` from `at` on.
struct Guess {
    place: Destination,
    at: usize,
    /// Bytes of length field and header.
    header: usize,
    len: usize,
    /// Sizes of consecutive messages; the last FPDU of each may be shorter.
    chunks: Vec<usize>,
}

/// Bytes before the next payload.
struct Missing {
    /// Remaining trailer of the arriving FPDU.
    trailer: usize,
    /// Bytes of the next header already received.
    have: usize,
}

/// The buffers for the next read: alternately a slot in `side` and a piece of the memory of `place` from `at` on.
struct Plan {
    place: Destination,
    at: usize,
    turns: Vec<(usize, usize)>,
}

/// The receiving half of a connection.
pub(crate) struct Rx {
    state: State,
    crc: mpa::Crc,
    /// Buffer for bytes that are not payload, or not known to be: `used..have` is received and not processed.
    side: Box<[u8; SIDE]>,
    used: usize,
    have: usize,
    /// Length field and header of the arriving FPDU.
    header: [u8; HEADER_MAX],
    header_len: usize,
    control: [u8; terminate::LEN_MAX],
    send_msn: u32,
    read_msn: u32,
    message: Option<Message>,
    plan: Plan,
    next: Option<Next>,
    /// Payload to predict at once: reduced after a badly wrong prediction.
    reach: usize,
    /// Payload of a full tagged FPDU of this peer.
    usual: usize,
    spill: Vec<u8>,
    /// A Send or an empty FPDU may arrive first as RTR, without using a Receive (RFC 6581).
    rtr_send: bool,
    /// At least one FPDU has arrived.
    pub(crate) started: bool,
    /// The Terminate message that the peer has sent.
    pub(crate) terminated: Option<Terminate>,
}

impl Rx {
    pub(crate) fn new(crc: bool, rtr_send: bool) -> Self {
        Self {
            state: State::Header,
            crc: mpa::Crc::new(crc),
            side: Box::new([0; SIDE]),
            used: 0,
            have: 0,
            header: [0; HEADER_MAX],
            header_len: 0,
            control: [0; terminate::LEN_MAX],
            send_msn: 1,
            read_msn: 1,
            message: None,
            plan: Plan { place: Destination::Control, at: 0, turns: Vec::new() },
            next: None,
            reach: FIRST_GUESS,
            usual: 0,
            spill: Vec::new(),
            rtr_send,
            started: false,
            terminated: None,
        }
    }

    /// True if no message is partially received, so that the stream may end here.
    pub(crate) fn is_between(&self) -> bool {
        matches!(self.state, State::Header) && self.used == self.have && self.message.is_none()
    }

    /// The Terminate for a violation by the latest data (RFC 5040 section 4.8).
    pub(crate) fn terminate(&self, v: Violation) -> Terminate {
        let cause = v.cause();
        let mut t = Terminate { cause, segment_len: None, ddp: None, read_request: None };
        // After an LLP error the headers cannot be trusted.
        if cause.layer < 2 && self.header_len > mpa::LENGTH_LEN {
            let ddp_header = &self.header[mpa::LENGTH_LEN..];
            t.segment_len = Some(u16::from_be_bytes(field(&self.header, 0)));
            t.ddp = Some(if ddp::is_tagged(ddp_header[0]) {
                DdpHeader::Tagged(field(ddp_header, 0))
            } else {
                DdpHeader::Untagged(field(ddp_header, 0))
            });
            let is_request = Opcode::of(ddp_header[1]) == Some(Opcode::ReadRequest);
            // The range of an RDMA Read is known, and checked, only after its request has arrived completely.
            let is_judged = is_request && (cause.layer, cause.etype) == (0, 1);
            t.read_request = is_judged.then(|| field(&self.control, 0));
        }
        t
    }

    /// Frees surplus memory of an idle connection.
    pub(crate) fn rest(&mut self) {
        if self.plan.turns.capacity() > TURNS_KEPT {
            self.plan.turns = Vec::new();
        }
        self.spill = Vec::new();
    }

    /// Bytes of memory used by this value.
    #[cfg(test)]
    pub(crate) fn footprint(&self) -> usize {
        SIDE + self.plan.turns.capacity() * size_of::<(usize, usize)>() + self.spill.capacity()
    }

    /// Takes bytes from a slice.
    pub(crate) fn feed(&mut self, t: &mut Targets, mut bytes: &[u8]) -> Result<(), Violation> {
        while !bytes.is_empty() && self.terminated.is_none() {
            let n = match &mut self.state {
                State::Payload(s) if self.used == self.have => {
                    let n = s.left.min(bytes.len());
                    Self::copy(&mut self.crc, &mut self.control, t, s, &bytes[..n])?;
                    n
                }
                _ => {
                    self.compact();
                    let n = self.missing().min(bytes.len());
                    self.side[self.have..self.have + n].copy_from_slice(&bytes[..n]);
                    self.have += n;
                    n
                }
            };
            bytes = &bytes[n..];
            self.run(t)?;
        }
        Ok(())
    }

    /// Bytes needed in `side` for the next step: at least 1.
    fn missing(&self) -> usize {
        let have = self.have - self.used;
        let need = match &self.state {
            State::Header => self.header_need(),
            State::Payload(_) => 0,
            State::Trailer(_) => self.trailer_len(),
        };
        need.saturating_sub(have).max(1)
    }

    /// Bytes of length field and header, as far as known; only the length field if the length is wrong.
    fn header_need(&self) -> usize {
        let seen = &self.side[self.used..self.have];
        let ulpdu_len = || usize::from(u16::from_be_bytes(field(seen, 0)));
        match seen {
            [] | [_] => mpa::LENGTH_LEN,
            _ if ulpdu_len() < ddp::TAGGED_LEN => mpa::LENGTH_LEN,
            [_, _] => mpa::LENGTH_LEN + 1,
            [_, _, control, ..] if ddp::is_tagged(*control) => mpa::LENGTH_LEN + ddp::TAGGED_LEN,
            _ if ulpdu_len() < ddp::UNTAGGED_LEN => mpa::LENGTH_LEN,
            _ => HEADER_MAX,
        }
    }

    fn ulpdu_len(&self) -> usize {
        usize::from(u16::from_be_bytes(field(&self.header, 0)))
    }

    fn trailer_len(&self) -> usize {
        mpa::pad(self.ulpdu_len()) + mpa::CRC_LEN
    }

    fn compact(&mut self) {
        self.side.copy_within(self.used..self.have, 0);
        self.have -= self.used;
        self.used = 0;
    }

    /// Copies payload that was not read into place.
    fn copy(
        crc: &mut mpa::Crc,
        control: &mut [u8],
        t: &mut Targets,
        s: &mut Segment,
        bytes: &[u8],
    ) -> Result<(), Violation> {
        crc.update(bytes);
        let (from, to) = (s.at, s.at + bytes.len());
        if s.place == Destination::Control {
            // Invariant: `begin` accepts no larger control message.
            control[from..to].copy_from_slice(bytes);
        } else {
            // The owner may have released the region during the segment.
            let window = t.window(s.place).and_then(|w| w.get_mut(from..to));
            iobuf::copied(window.ok_or(Violation::WriteStag)?, bytes);
        }
        s.at = to;
        s.left -= bytes.len();
        Ok(())
    }

    /// Processes the bytes in `side`, as far as possible. Bytes after the peer's Terminate are ignored.
    fn run(&mut self, t: &mut Targets) -> Result<(), Violation> {
        loop {
            if self.terminated.is_some() {
                self.used = self.have;
                return Ok(());
            }
            let have = self.have - self.used;
            match &mut self.state {
                State::Header => {
                    // The required size depends on the bytes known so far.
                    let need = self.header_need();
                    if have < need {
                        return Ok(());
                    }
                    self.header_len = need;
                    self.header[..need].copy_from_slice(&self.side[self.used..self.used + need]);
                    self.used += need;
                    self.crc.start();
                    self.crc.update(&self.header[..need]);
                    let segment = self.begin(t)?;
                    self.state = State::Payload(segment);
                }
                State::Payload(s) => {
                    if s.left > 0 {
                        if have == 0 {
                            return Ok(());
                        }
                        let n = s.left.min(have);
                        let bytes = &self.side[self.used..self.used + n];
                        Self::copy(&mut self.crc, &mut self.control, t, s, bytes)?;
                        self.used += n;
                    }
                    if s.left == 0 {
                        self.state = State::Trailer(*s);
                    }
                }
                State::Trailer(s) => {
                    let s = *s;
                    let need = self.trailer_len();
                    if have < need {
                        return Ok(());
                    }
                    let trailer = &self.side[self.used..self.used + need];
                    let (pad, crc) = trailer.split_at(need - mpa::CRC_LEN);
                    self.crc.update(pad);
                    if !self.crc.matches(field(crc, 0)) {
                        return Err(Violation::CrcMismatch);
                    }
                    self.used += need;
                    self.state = State::Header;
                    self.complete(t, &s)?;
                }
            }
        }
    }

    /// Evaluates a complete header: the kind of segment, and the destination of its payload.
    fn begin(&mut self, t: &mut Targets) -> Result<Segment, Violation> {
        let ulpdu_len = self.ulpdu_len();
        let header = &self.header[mpa::LENGTH_LEN..];
        let rtr = self.rtr_send && !self.started;
        if rtr && ulpdu_len == 0 {
            return Ok(self.segment(Opcode::Send, true, Destination::Control, 0, 0));
        }
        if self.header_len == mpa::LENGTH_LEN {
            return Err(Violation::UlpduLength);
        }
        let len = ulpdu_len - (self.header_len - mpa::LENGTH_LEN);
        let tagged = ddp::is_tagged(header[0]);
        if ddp::version(header[0]) != ddp::VERSION {
            let untagged = Violation::DdpVersionUntagged;
            return Err(if tagged { Violation::DdpVersionTagged } else { untagged });
        }
        if rdmap::version(header[1]) != rdmap::VERSION {
            return Err(Violation::RdmapVersion);
        }
        let opcode = Opcode::of(header[1]).ok_or(Violation::OpcodeUnexpected)?;
        if opcode.is_tagged() != tagged {
            return Err(Violation::OpcodeTagging);
        }
        if tagged {
            let h = ddp::Tagged::parse(&field(header, 0));
            self.begin_tagged(t, opcode, &h, len)
        } else {
            let h = ddp::Untagged::parse(&field(header, 0));
            self.begin_untagged(t, opcode, &h, len, rtr)
        }
    }

    fn segment(
        &self,
        opcode: Opcode,
        last: bool,
        place: Destination,
        at: usize,
        len: usize,
    ) -> Segment {
        Segment { opcode, last, invalidate: None, place, at, left: len, len }
    }

    fn begin_tagged(
        &mut self,
        t: &mut Targets,
        opcode: Opcode,
        h: &ddp::Tagged,
        len: usize,
    ) -> Result<Segment, Violation> {
        let (place, at) = match opcode {
            Opcode::ReadResponse => {
                let (seq, at) = t.reads.begin(h.stag, h.to, len, h.last)?;
                (Destination::Sink(seq), at)
            }
            // An empty segment touches no memory, and its STag and TO are ignored (RFC 5041 section 5.2).
            _ if len == 0 => (Destination::Control, 0),
            _ => (Destination::Region(h.stag), t.memory.write_at(h.stag, h.to, len)?),
        };
        Ok(self.segment(opcode, h.last, place, at, len))
    }

    fn begin_untagged(
        &mut self,
        t: &mut Targets,
        opcode: Opcode,
        h: &ddp::Untagged,
        len: usize,
        rtr: bool,
    ) -> Result<Segment, Violation> {
        let (queue, msn) = match opcode {
            Opcode::ReadRequest => (ddp::queue::READ_REQUEST, self.read_msn),
            Opcode::Terminate => (ddp::queue::TERMINATE, 1),
            _ => (ddp::queue::SEND, self.send_msn),
        };
        if h.queue != queue {
            return Err(Violation::QueueNumber);
        }
        if h.msn != msn {
            return Err(Violation::MsnInvalid);
        }
        match opcode {
            Opcode::ReadRequest if len != rdmap::READ_REQUEST_LEN || h.mo != 0 || !h.last => {
                Err(Violation::ReadRequestSize)
            }
            Opcode::Terminate if len > terminate::LEN_MAX || h.mo != 0 || !h.last => {
                Err(Violation::TerminateMalformed)
            }
            Opcode::ReadRequest | Opcode::Terminate => {
                Ok(self.segment(opcode, true, Destination::Control, 0, len))
            }
            _ if rtr && len == 0 && h.last && h.mo == 0 => {
                self.send_msn = self.send_msn.wrapping_add(1);
                Ok(self.segment(Opcode::Send, true, Destination::Control, 0, 0))
            }
            _ => self.begin_send(t, opcode, h, len),
        }
    }

    fn begin_send(
        &mut self,
        t: &mut Targets,
        opcode: Opcode,
        h: &ddp::Untagged,
        len: usize,
    ) -> Result<Segment, Violation> {
        let filled = self.message.as_ref().map_or(0, |m| m.filled);
        if self.message.as_ref().is_some_and(|m| m.opcode != opcode) {
            return Err(Violation::OpcodeUnexpected);
        }
        if usize::try_from(h.mo) != Ok(filled) {
            return Err(Violation::MoInvalid);
        }
        let Some((_, buf)) = t.recvs.front() else {
            return Err(Violation::NoReceive);
        };
        if len > buf.capacity() - filled {
            t.recv_done(Err(WorkError::Length), None);
            return Err(Violation::MessageTooLong);
        }
        self.message = Some(Message { opcode, filled });
        let invalidate = opcode.invalidates().then_some(h.ulp_word);
        Ok(Segment { invalidate, ..self.segment(opcode, h.last, Destination::Recv, filled, len) })
    }

    /// Handles a complete FPDU with a correct CRC.
    fn complete(&mut self, t: &mut Targets, s: &Segment) -> Result<(), Violation> {
        self.started = true;
        if s.opcode.is_tagged() && s.len >= GUESS_MIN && (!s.last || s.len > self.usual) {
            self.usual = s.len;
        }
        self.next = self.following(s);
        match s.opcode {
            Opcode::Write => Ok(()),
            Opcode::ReadResponse => {
                if let Destination::Sink(seq) = s.place {
                    t.reads.landed(seq, s.at, s.last);
                }
                Ok(())
            }
            Opcode::ReadRequest => self.read_request(t),
            Opcode::Terminate => {
                let header = Terminate::parse(&self.control[..s.len]);
                self.terminated = Some(header.ok_or(Violation::TerminateMalformed)?);
                Ok(())
            }
            _ if s.place == Destination::Control => Ok(()),
            _ if !s.last => {
                self.message = Some(Message { opcode: s.opcode, filled: s.at });
                Ok(())
            }
            _ => {
                self.message = None;
                self.send_msn = self.send_msn.wrapping_add(1);
                if let Some(stag) = s.invalidate {
                    t.memory.invalidate(stag)?;
                }
                t.recv_done(Ok(s.at), s.invalidate);
                Ok(())
            }
        }
    }

    fn read_request(&mut self, t: &mut Targets) -> Result<(), Violation> {
        let request = ReadRequest::parse(&field(&self.control, 0));
        if !t.inbound.has_room() {
            return Err(Violation::ReadRequestLimit);
        }
        let len = usize::try_from(request.len).map_err(|_| Violation::ReadRequestBounds)?;
        // An empty Read touches no memory, and its STag is ignored.
        let data = match len {
            0 => iobuf::Buf::empty(),
            _ => t.memory.read_at(request.source_stag, request.source_to, len)?,
        };
        self.read_msn = self.read_msn.wrapping_add(1);
        t.inbound.push(&request, data);
        Ok(())
    }
}

// Prediction of the next reads, and evaluation of their results.
impl Rx {
    /// The memory to read the socket into.
    pub(crate) fn slices<'a>(
        &'a mut self,
        t: &'a mut Targets,
    ) -> Result<Vec<IoSliceMut<'a>>, Violation> {
        self.compact();
        self.make_plan(t);
        let Plan { place, at, turns } = &self.plan;
        let placed: usize = turns.iter().map(|(_, data)| data).sum();
        let mut window: &mut [u8] = &mut [];
        if placed > 0 {
            let w = match place {
                Destination::Control => Some(&mut self.control[..]),
                _ => t.window(*place),
            };
            window = w.and_then(|w| w.get_mut(*at..*at + placed)).ok_or(Violation::WriteStag)?;
        }
        let mut side = &mut self.side[self.have..];
        let mut out = Vec::with_capacity(2 * turns.len());
        for &(slot, data) in turns {
            for (from, n) in [(&mut side, slot), (&mut window, data)] {
                if n > 0 {
                    let (head, rest) = std::mem::take(from).split_at_mut(n);
                    *from = rest;
                    out.push(IoSliceMut::new(head));
                }
            }
        }
        Ok(out)
    }

    fn make_plan(&mut self, t: &Targets) {
        let pad_and_crc = self.trailer_len();
        self.plan.turns.clear();
        let (guess, missing) = match &self.state {
            State::Header => {
                let guess = self.next.and_then(|n| self.goes_on(t, n)).or_else(|| self.begins(t));
                (guess, Missing { trailer: 0, have: self.have })
            }
            State::Trailer(s) => {
                let next = self.following(s);
                let guess = next.and_then(|n| self.goes_on(t, n)).or_else(|| self.begins(t));
                (guess, Missing { trailer: pad_and_crc - self.have, have: 0 })
            }
            State::Payload(s) => {
                (self.plan.place, self.plan.at) = (s.place, s.at);
                self.plan.turns.push((0, s.left));
                // A plan has a single destination, so only this payload's can be continued.
                let guess = self.following(s).and_then(|n| self.goes_on(t, n));
                (guess, Missing { trailer: pad_and_crc, have: 0 })
            }
        };
        if let (Some(g), true) = (&guess, self.plan.turns.is_empty()) {
            (self.plan.place, self.plan.at) = (g.place, g.at);
        }
        self.lay_out(t, guess, missing);
    }

    /// The destination after this segment, if its message or Read may continue.
    fn following(&self, s: &Segment) -> Option<Next> {
        let goes_on = s.opcode == Opcode::ReadResponse || !s.last;
        let len = if s.last { self.usual.max(s.len) } else { s.len };
        let next = Next { place: s.place, at: s.at + s.left, len };
        (s.len >= GUESS_MIN && goes_on).then_some(next)
    }

    /// Predicts that the peer continues as before.
    fn goes_on(&self, t: &Targets, next: Next) -> Option<Guess> {
        let Next { place, at, len } = next;
        let mut header = mpa::LENGTH_LEN + ddp::TAGGED_LEN;
        let chunks: Vec<usize> = match place {
            Destination::Sink(seq) => t.reads.coming(seq).collect(),
            Destination::Region(stag) => vec![t.memory.fresh(stag, at)],
            Destination::Recv => {
                header = HEADER_MAX;
                let (_, b) = t.recvs.front().filter(|_| self.message.is_some())?;
                vec![b.capacity().saturating_sub(at)]
            }
            Destination::Control => return None,
        };
        chunks.iter().any(|n| *n > 0).then_some(Guess { place, at, header, len, chunks })
    }

    /// Predicts the next data when no message continues: the response to the oldest Read, or else a Send.
    fn begins(&self, t: &Targets) -> Option<Guess> {
        if let Some((seq, at)) = t.reads.next() {
            let place = Destination::Sink(seq);
            let len = if self.usual == 0 { FIRST_GUESS } else { self.usual };
            let header = mpa::LENGTH_LEN + ddp::TAGGED_LEN;
            return Some(Guess { place, at, header, len, chunks: t.reads.coming(seq).collect() });
        }
        let (_, b) = t.recvs.front().filter(|_| self.message.is_none())?;
        let len = b.capacity();
        Some(Guess { place: Destination::Recv, at: 0, header: HEADER_MAX, len, chunks: vec![len] })
    }

    /// Extends the plan: entries for the prediction as far as possible, and a tail for later bytes.
    fn lay_out(&mut self, t: &Targets, guess: Option<Guess>, missing: Missing) {
        let Missing { mut trailer, mut have } = missing;
        let mut room = SIDE - self.have - TAIL;
        // After a large FPDU whose message continues, without a prediction: an additional system call is cheaper than a copy.
        let large = |s: &Segment| !s.last && s.len >= LARGE;
        let mut more_follows = matches!(&self.state, State::Payload(s) if large(s));
        let header = guess.as_ref().map_or(HEADER_MAX, |g| g.header);
        let turns = &mut self.plan.turns;
        let mut guessed = 0;
        let (len, chunks) = guess.map_or((0, Vec::new()), |g| (g.len, g.chunks));
        'guesses: for mut chunk in chunks {
            while chunk > 0 {
                let data = len.min(chunk);
                let slot = (trailer + header).saturating_sub(have);
                let enough = turns.len() > GUESSES_MAX || guessed >= self.reach;
                if enough || slot == 0 || slot > room {
                    more_follows = true;
                    break 'guesses;
                }
                turns.push((slot, data));
                room -= slot;
                guessed += data;
                chunk -= data;
                have = 0;
                trailer = mpa::pad(header - mpa::LENGTH_LEN + data) + mpa::CRC_LEN;
            }
        }
        if let (Destination::Sink(seq), false) = (self.plan.place, turns.is_empty()) {
            more_follows |= t.reads.comes_after(seq);
        }
        let slot = (trailer + header).saturating_sub(have);
        // Payload that is certain to follow must not be read into the tail.
        let only_header = more_follows && slot > 0 && !turns.is_empty();
        turns.push((if only_header { slot.min(room) } else { room + TAIL }, 0));
    }

    /// Handles `n` bytes read into the memory from [`Rx::slices`].
    pub(crate) fn received(&mut self, t: &mut Targets, mut n: usize) -> Result<(), Violation> {
        let (place, mut at) = (self.plan.place, self.plan.at);
        let turns = std::mem::take(&mut self.plan.turns);
        let mut result = Ok(());
        for (i, &(slot, data)) in turns.iter().enumerate() {
            let k = slot.min(n);
            if i > 0 && n > k && self.goes_astray(place) {
                self.gather(t, &turns[i - 1..], turns[i - 1].1, at, n);
                result = self.feed_spill(t);
                break;
            }
            self.have += k;
            n -= k;
            if k > 0 {
                result = self.run(t);
            }
            if n == 0 || result.is_err() {
                break;
            }
            let k = data.min(n);
            let taken = if k > 0 { self.take_placed(t, place, at, k) } else { 0 };
            if taken < k {
                // The prediction was wrong: the bytes from here on belong elsewhere.
                self.gather(t, &turns[i..], taken, at + taken, n - taken);
                result = self.feed_spill(t);
                break;
            }
            n -= k;
            at += k;
            // The prediction was right up to the last piece of payload.
            if i + 2 == turns.len() {
                self.reach = (self.reach * 2).min(GUESSED_MAX);
            }
        }
        self.plan.turns = turns;
        result
    }

    /// True if the prediction is wrong before the next slot is processed, and processing it would damage the bytes read after it:
    /// an FPDU longer than predicted continues there, and the end of a Send takes its buffer away.
    fn goes_astray(&self, place: Destination) -> bool {
        match &self.state {
            State::Header => false,
            State::Payload(_) => true,
            State::Trailer(s) => {
                s.last && s.place == Destination::Recv && place == Destination::Recv
            }
        }
    }

    fn feed_spill(&mut self, t: &mut Targets) -> Result<(), Violation> {
        let spill = std::mem::take(&mut self.spill);
        if spill.len() > SIDE {
            self.reach = (self.reach / 4).max(LARGE);
        }
        let result = self.feed(t, &spill);
        if spill.capacity() <= SIDE {
            self.spill = spill;
        }
        result
    }

    /// Returns how many of `k` bytes, read to `at` of `place`, are payload that belongs there.
    fn take_placed(&mut self, t: &mut Targets, place: Destination, at: usize, k: usize) -> usize {
        if self.used != self.have {
            return 0;
        }
        let State::Payload(s) = &mut self.state else { return 0 };
        if s.place != place || s.at != at {
            return 0;
        }
        let m = k.min(s.left);
        let window = match place {
            Destination::Control => Some(&mut self.control[..]),
            _ => t.window(place),
        };
        let Some(bytes) = window.and_then(|w| w.get(at..at + m)) else { return 0 };
        self.crc.update(bytes);
        s.at += m;
        s.left -= m;
        if s.left == 0 {
            self.state = State::Trailer(*s);
        }
        m
    }

    /// Copies the last `n` bytes read into `spill`: first the data of `turns[0]` after the `skip` processed bytes, located at `at`
    /// in the destination, then the later entries. The slots are in `side` from `have` on.
    fn gather(
        &mut self,
        t: &mut Targets,
        turns: &[(usize, usize)],
        skip: usize,
        mut at: usize,
        mut n: usize,
    ) {
        self.spill.clear();
        self.spill.reserve(n);
        let mut slot_at = self.have;
        for (i, &(slot, data)) in turns.iter().enumerate() {
            let (slot, data) = if i == 0 { (0, data - skip) } else { (slot, data) };
            let k = slot.min(n);
            self.spill.extend_from_slice(&self.side[slot_at..slot_at + k]);
            slot_at += k;
            n -= k;
            let k = data.min(n);
            let window = match self.plan.place {
                Destination::Control => Some(&mut self.control[..]),
                place => t.window(place),
            };
            if let Some(bytes) = window.and_then(|w| w.get(at..at + k)) {
                self.spill.extend_from_slice(bytes);
            }
            at += k;
            n -= k;
        }
    }
}
