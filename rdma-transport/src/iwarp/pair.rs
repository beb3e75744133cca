//! A queue pair without its socket: posted work, arriving data, and completions in order. No I/O.
//!
//! *Operation.* The driver obtains memory to read into ([`Pair::read_slices`]) and bytes to write ([`Pair::write_slices`]), reports
//! how many bytes the socket moved, and collects completions.
//!
//! *Memory.* A posted buffer is in the send queue, among the Receives or in the table of regions until its completion or release.
//! Payload is never copied on the way out, and on the way in only when the receiver's prediction was wrong.
//!
//! *Errors.* [`Pair::received`] returns the rule that the peer violated; [`Pair::fail`] then returns all work.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};

use iobuf::{Buf, BufMut};

use super::connect::{Agreed, RtrKind};
use super::memory::{Memory, Stags};
use super::reads::{Inbound, Reads, Response};
use super::rx::{Rx, Targets};
use super::tx::{FpduSize, Mark, Tx};
use super::violation::Violation;
use super::wire::ddp;
use super::wire::rdmap::{Opcode, ReadRequest};
use super::wire::terminate::Terminate;
use crate::limits::{IWARP_READ_SEGMENTS_MAX, IWARP_SEND_PIECES_MAX};
use crate::verbs::{
    Completion, Counters, Limits, Refused, Region, Rejected, RemoteSeg, Work, WorkError, WorkId,
    WorkKind,
};

/// Entries of the send queue for which an idle connection keeps memory.
const ENTRIES_KEPT: usize = 16;

enum Job {
    Send { from: Vec<Buf>, invalidate: Option<u32> },
    Write { from: Buf, to: RemoteSeg },
    Read { from: Vec<RemoteSeg> },
}

/// A Send, Write or Read that is not complete.
struct Entry {
    id: WorkId,
    job: Job,
    len: usize,
    /// Position in the buffer of a Read at which its first byte is stored.
    base: usize,
    /// True if the last byte of the Send or Write was written to the socket.
    written: bool,
}

impl Entry {
    fn kind(&self) -> WorkKind {
        match self.job {
            Job::Send { .. } => WorkKind::Send,
            Job::Write { .. } => WorkKind::Write,
            Job::Read { .. } => WorkKind::Read,
        }
    }
}

/// Progress of the message that is being framed.
#[derive(Default)]
struct Progress {
    /// Index of the piece (Send) or segment (Read).
    piece: usize,
    /// Framed bytes of that piece.
    piece_at: usize,
    /// Framed bytes of the message.
    at: usize,
}

/// The message that is being framed; messages are not interleaved.
enum Current {
    None,
    Work,
    Response(Response, usize),
}

/// The core of a queue pair.
pub(crate) struct Pair {
    limits: Limits,
    rx: Rx,
    tx: Tx,
    targets: Targets,
    stags: Stags,
    queue: VecDeque<Entry>,
    /// Number of the first entry of the queue.
    first: u64,
    /// Number of the entry to frame next or in part.
    cursor: u64,
    progress: Progress,
    current: Current,
    /// The last message was a work request, so a response is next.
    response_next: bool,
    send_msn: u32,
    read_msn: u32,
    /// The initiator may send at once, the responder after the first FPDU (RFC 5044 section 7.1.2).
    initiator: bool,
    counters: Counters,
}

impl Pair {
    pub(crate) fn new(initiator: bool, agreed: &Agreed, size: FpduSize, limits: Limits) -> Self {
        let rtr_send = !initiator && agreed.rtr == Some(RtrKind::Send);
        let mut pair = Self {
            limits,
            rx: Rx::new(agreed.crc, rtr_send),
            tx: Tx::new(agreed.framing(), size),
            targets: Targets {
                recvs: VecDeque::new(),
                memory: Memory::new(limits.regions_max),
                reads: Reads::new(agreed.ord),
                inbound: Inbound::new(agreed.ird),
                done: Vec::new(),
            },
            stags: Stags::new(),
            queue: VecDeque::new(),
            first: 0,
            cursor: 0,
            progress: Progress::default(),
            current: Current::None,
            response_next: false,
            send_msn: 1,
            read_msn: 1,
            initiator,
            counters: Counters::default(),
        };
        if let Some(kind) = agreed.rtr.filter(|_| initiator) {
            pair.frame_rtr(kind);
        }
        pair
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    fn draw(&mut self) -> Option<u32> {
        let (memory, reads) = (&self.targets.memory, &self.targets.reads);
        self.stags.draw(|s| memory.contains(s) || reads.contains(s))
    }

    pub(crate) fn register(&mut self, region: Region) -> Result<RemoteSeg, (Refused, Region)> {
        let stag = self.draw();
        self.targets.memory.insert(stag, region)
    }

    pub(crate) fn release(&mut self, handle: u32) -> Option<Region> {
        self.targets.memory.release(handle)
    }

    /// Checks one work request; returns the bytes to transfer.
    fn judge(&self, work: &Work) -> Option<usize> {
        match work {
            Work::Recv { .. } => Some(0),
            Work::Send { from, .. } => {
                let len: usize = from.iter().map(Buf::len).sum();
                (from.len() <= IWARP_SEND_PIECES_MAX && u32::try_from(len).is_ok()).then_some(len)
            }
            Work::Write { from, to, .. } => {
                let room = usize::try_from(to.len).ok()?;
                (from.len() <= room).then_some(from.len())
            }
            Work::Read { from, into, .. } => {
                let room = into.capacity() - into.len();
                let len = from
                    .iter()
                    .try_fold(0usize, |sum, s| sum.checked_add(usize::try_from(s.len).ok()?))?;
                let ok = len <= room && from.len() <= IWARP_READ_SEGMENTS_MAX;
                (ok && (self.targets.reads.ord() > 0 || len == 0)).then_some(len)
            }
        }
    }

    pub(crate) fn post(&mut self, chain: Vec<Work>) -> Result<(), Rejected> {
        let recvs = chain.iter().filter(|w| matches!(w, Work::Recv { .. })).count();
        let sends = chain.len() - recvs;
        let mut why = None;
        if chain.iter().any(|w| self.judge(w).is_none()) {
            why = Some(Refused::Invalid);
        } else if self.targets.recvs.len() + recvs > self.limits.recvs_max
            || self.queue.len() + sends > self.limits.sends_max
        {
            why = Some(Refused::Full);
        }
        if let Some(why) = why {
            return Err(Rejected { why, chain });
        }
        for work in chain {
            self.enqueue(work);
        }
        Ok(())
    }

    fn enqueue(&mut self, work: Work) {
        let len = self.judge(&work).unwrap_or(0);
        let entry = |id, job, base| Entry { id, job, len, base, written: false };
        let new = match work {
            Work::Recv { id, mut into } => {
                into.set_filled(0);
                self.targets.recvs.push_back((id, into));
                return;
            }
            Work::Send { id, from, invalidate } => entry(id, Job::Send { from, invalidate }, 0),
            Work::Write { id, from, to } => entry(id, Job::Write { from, to }, 0),
            Work::Read { id, mut from, into } => {
                // Empty segments need no request.
                from.retain(|s| s.len > 0);
                let (base, seq) = (into.len(), self.first + self.queue.len() as u64);
                let stag = self.draw().unwrap_or_default();
                self.targets.reads.post(seq, stag, into, from.len());
                entry(id, Job::Read { from }, base)
            }
        };
        self.queue.push_back(new);
    }

    /// Collects completions of finished work, in order.
    pub(crate) fn collect(&mut self, out: &mut Vec<Completion>) {
        for c in self.targets.done.drain(..) {
            if let Ok(n) = c.result {
                self.counters.recvs += 1;
                self.counters.recv_bytes += n as u64;
            }
            out.push(c);
        }
        while let Some(e) = self.queue.front() {
            let over = match e.job {
                Job::Read { .. } => {
                    self.cursor > self.first && self.targets.reads.is_done(self.first)
                }
                _ => e.written,
            };
            if !over {
                break;
            }
            self.pop(out, None);
        }
    }

    /// Completes the first entry of the queue.
    fn pop(&mut self, out: &mut Vec<Completion>, error: Option<WorkError>) {
        let Some(e) = self.queue.pop_front() else { return };
        let buf = self.targets.reads.take(self.first);
        self.first += 1;
        let result = error.map_or(Ok(e.len), Err);
        if error.is_none() {
            let (c, n) = (&mut self.counters, e.len as u64);
            match &e.job {
                Job::Send { invalidate, .. } => {
                    c.sends += 1;
                    c.send_bytes += n;
                    c.sends_invalidate += u64::from(invalidate.is_some());
                }
                Job::Write { .. } => {
                    c.writes += 1;
                    c.write_bytes += n;
                }
                Job::Read { .. } => {
                    c.reads += 1;
                    c.read_bytes += n;
                }
            }
        }
        out.push(Completion { id: e.id, kind: e.kind(), result, buf, invalidated: None });
    }

    /// Returns all posted work, with `oldest_read` as the result of the oldest outstanding Read.
    pub(crate) fn flush(&mut self, out: &mut Vec<Completion>, oldest_read: WorkError) {
        self.collect(out);
        let refused = self.targets.reads.oldest();
        while let Some(e) = self.queue.front() {
            let mut error = (!e.written).then_some(WorkError::Flushed);
            if refused == Some(self.first) {
                error = Some(oldest_read);
            }
            self.pop(out, error);
        }
        self.cursor = self.first;
        self.current = Current::None;
        self.targets.inbound.clear();
        self.flush_recvs(out);
    }

    /// Returns all posted Receives as failed completions.
    pub(crate) fn flush_recvs(&mut self, out: &mut Vec<Completion>) {
        for (id, mut buf) in self.targets.recvs.drain(..) {
            buf.set_filled(0);
            out.push(Completion {
                id,
                kind: WorkKind::Recv,
                result: Err(WorkError::Flushed),
                buf: Some(buf),
                invalidated: None,
            });
        }
    }
}

impl Pair {
    pub(crate) fn read_slices(&mut self) -> Result<Vec<IoSliceMut<'_>>, Violation> {
        self.rx.slices(&mut self.targets)
    }

    pub(crate) fn received(&mut self, n: usize) -> Result<(), Violation> {
        self.rx.received(&mut self.targets, n)
    }

    /// Frees surplus memory of an idle connection.
    pub(crate) fn rest(&mut self) {
        self.rx.rest();
        self.tx.rest();
        if self.queue.is_empty() && self.queue.capacity() > ENTRIES_KEPT {
            self.queue = VecDeque::new();
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        self.rx.feed(&mut self.targets, bytes)
    }

    /// The peer's Terminate, if it has arrived.
    pub(crate) fn terminated(&self) -> Option<&Terminate> {
        self.rx.terminated.as_ref()
    }

    /// True if the stream may end here.
    pub(crate) fn is_between(&self) -> bool {
        self.rx.is_between()
    }
}

impl Pair {
    fn may_send(&self) -> bool {
        self.initiator || self.rx.started
    }

    /// True if all data that can be sent now was taken by the socket.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.fill();
        self.tx.is_empty()
    }

    /// True if the data to write next ends a TCP segment; see [`Tx::ends_segment`].
    pub(crate) fn ends_segment(&self) -> bool {
        self.tx.ends_segment()
    }

    pub(crate) fn write_slices(&mut self) -> Vec<IoSlice<'_>> {
        self.fill();
        self.tx.slices()
    }

    pub(crate) fn wrote(&mut self, n: usize) {
        let Self { tx, queue, first, targets, .. } = self;
        tx.wrote(n, |mark| match mark {
            Mark::Nothing => {}
            Mark::Response => targets.inbound.answered(),
            Mark::Work(seq) => {
                // The entry may have been flushed meanwhile.
                let i = seq.checked_sub(*first).and_then(|i| usize::try_from(i).ok());
                if let Some(e) = i.and_then(|i| queue.get_mut(i)) {
                    e.written = true;
                }
            }
        });
    }

    /// Ends the stream with the Terminate for `v`.
    pub(crate) fn terminate(&mut self, v: Violation) {
        let t = self.rx.terminate(v);
        self.tx.terminate(&t);
    }

    /// Frames a batch of waiting data after the socket has taken the previous batch.
    fn fill(&mut self) {
        if !self.tx.is_empty() || !self.may_send() {
            return;
        }
        while self.tx.has_room() {
            if matches!(self.current, Current::None) && !self.choose() {
                break;
            }
            match std::mem::replace(&mut self.current, Current::None) {
                Current::None => {}
                Current::Work => self.frame_work(),
                Current::Response(r, at) => self.frame_response(r, at),
            }
        }
    }

    /// Chooses the next message: work and responses alternate, so that neither starves.
    fn choose(&mut self) -> bool {
        for turn in [self.response_next, !self.response_next] {
            if turn {
                if let Some(r) = self.targets.inbound.pop() {
                    self.current = Current::Response(r, 0);
                    self.response_next = false;
                    return true;
                }
            } else if self.work_is_ready() {
                self.current = Current::Work;
                self.response_next = true;
                return true;
            }
        }
        false
    }

    fn index(&self) -> usize {
        // Invariant: the cursor is never before the first entry, and the queue fits memory.
        usize::try_from(self.cursor - self.first).unwrap_or(usize::MAX)
    }

    fn work_is_ready(&self) -> bool {
        match self.queue.get(self.index()).map(|e| &e.job) {
            None => false,
            Some(Job::Read { from }) => from.is_empty() || self.targets.reads.may_ask(),
            Some(_) => true,
        }
    }

    fn frame_response(&mut self, r: Response, at: usize) {
        let n = self.tx.size.tagged.min(r.data.len() - at);
        let last = at + n == r.data.len();
        let header = ddp::Tagged {
            last,
            ulp: Opcode::ReadResponse.control(),
            stag: r.stag,
            // The peer chose the base of its offsets; a wrap is its own fault.
            to: r.to.wrapping_add(at as u64),
        };
        let data = r.data.slice(at..at + n);
        let mark = if last { Mark::Response } else { Mark::Nothing };
        self.tx.frame(&header.emit(), std::iter::once(data), n, mark);
        if !last {
            self.current = Current::Response(r, at + n);
        }
    }

    fn frame_work(&mut self) {
        let i = self.index();
        let Some(e) = self.queue.get(i) else { return };
        let (over, whole) = match &e.job {
            Job::Send { .. } => (self.frame_send(i), false),
            Job::Write { .. } => (self.frame_write(i), false),
            // Each request is a separate message: the next one may have to wait.
            Job::Read { .. } => (self.frame_read(i), true),
        };
        if over {
            self.cursor += 1;
            self.progress = Progress::default();
        } else if !whole {
            self.current = Current::Work;
        }
    }

    fn frame_send(&mut self, i: usize) -> bool {
        let Job::Send { from, invalidate } = &self.queue[i].job else { return true };
        let p = &mut self.progress;
        let n = self.tx.size.untagged.min(self.queue[i].len - p.at);
        let last = p.at + n == self.queue[i].len;
        let opcode = if invalidate.is_some() { Opcode::SendInvalidate } else { Opcode::Send };
        // Invariant: `judge` accepts no Send above 32 bits.
        #[allow(clippy::cast_possible_truncation)]
        let mo = p.at as u32;
        let header = ddp::Untagged {
            last,
            ulp: opcode.control(),
            ulp_word: invalidate.unwrap_or(0),
            queue: ddp::queue::SEND,
            msn: self.send_msn,
            mo,
        };
        let mut left = n;
        let pieces = std::iter::from_fn(|| {
            let b = from.get(p.piece).filter(|_| left > 0)?;
            let part = b.slice(p.piece_at..p.piece_at.saturating_add(left));
            left -= part.len();
            p.piece_at += part.len();
            if p.piece_at == b.len() {
                p.piece += 1;
                p.piece_at = 0;
            }
            Some(part)
        });
        let mark = if last { Mark::Work(self.cursor) } else { Mark::Nothing };
        self.tx.frame(&header.emit(), pieces, n, mark);
        p.at += n;
        if last {
            self.send_msn = self.send_msn.wrapping_add(1);
        }
        last
    }

    fn frame_write(&mut self, i: usize) -> bool {
        let Job::Write { from, to } = &self.queue[i].job else { return true };
        let at = self.progress.at;
        let n = self.tx.size.tagged.min(from.len() - at);
        let last = at + n == from.len();
        let header = ddp::Tagged {
            last,
            ulp: Opcode::Write.control(),
            stag: to.handle,
            to: to.offset.wrapping_add(at as u64),
        };
        let data = from.slice(at..at + n);
        let mark = if last { Mark::Work(self.cursor) } else { Mark::Nothing };
        self.tx.frame(&header.emit(), std::iter::once(data), n, mark);
        self.progress.at += n;
        last
    }

    /// Frames the Read Request for the next segment.
    fn frame_read(&mut self, i: usize) -> bool {
        let e = &self.queue[i];
        let Job::Read { from } = &e.job else { return true };
        let Some(s) = from.get(self.progress.piece) else { return true };
        let (seg, at, count) = (*s, e.base + self.progress.at, from.len());
        // Invariant: `judge` accepted no Read larger than memory.
        let len = usize::try_from(seg.len).unwrap_or(usize::MAX);
        if let Some(stag) = self.targets.reads.ask(self.cursor, at, len) {
            self.frame_read_request(&ReadRequest {
                sink_stag: stag,
                sink_to: at as u64,
                len: seg.len,
                source_stag: seg.handle,
                source_to: seg.offset,
            });
        }
        self.progress.at += len;
        self.progress.piece += 1;
        self.progress.piece == count
    }

    fn frame_read_request(&mut self, r: &ReadRequest) {
        let header = ddp::Untagged {
            last: true,
            ulp: Opcode::ReadRequest.control(),
            ulp_word: 0,
            queue: ddp::queue::READ_REQUEST,
            msn: self.read_msn,
            mo: 0,
        };
        self.read_msn = self.read_msn.wrapping_add(1);
        let all = [&header.emit()[..], &r.emit()[..]].concat();
        self.tx.frame(&all, std::iter::empty(), 0, Mark::Nothing);
    }

    /// Frames the message that lets the responder send (RFC 6581).
    fn frame_rtr(&mut self, kind: RtrKind) {
        match kind {
            RtrKind::Write => {
                let ulp = Opcode::Write.control();
                let header = ddp::Tagged { last: true, ulp, stag: 0, to: 0 };
                self.tx.frame(&header.emit(), std::iter::empty(), 0, Mark::Nothing);
            }
            RtrKind::Send => {
                let header = ddp::Untagged {
                    last: true,
                    ulp: Opcode::Send.control(),
                    ulp_word: 0,
                    queue: ddp::queue::SEND,
                    msn: self.send_msn,
                    mo: 0,
                };
                self.send_msn = self.send_msn.wrapping_add(1);
                self.tx.frame(&header.emit(), std::iter::empty(), 0, Mark::Nothing);
            }
            RtrKind::Read => {
                let sink_stag = self.draw().unwrap_or_default();
                self.targets.reads.ask_rtr(sink_stag);
                self.frame_read_request(&ReadRequest {
                    sink_stag,
                    sink_to: 0,
                    len: 0,
                    source_stag: 0,
                    source_to: 0,
                });
            }
        }
    }
}

/// Feeds hostile bytes to a queue pair's receiver: for the fuzz target. Half of the runs use the socket path with its predictions,
/// half the plain one; both must end the same way.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    let Some((&[flags, step], bytes)) = data.split_first_chunk::<2>() else { return };
    let run = |guess: bool| {
        let mut p = test_pair(flags & 1 != 0);
        let mut out = Vec::new();
        let mut result = Ok(());
        let mut rest = bytes;
        while result.is_ok() && !rest.is_empty() {
            let n = ((usize::from(step) + 1) << (flags >> 5)).min(rest.len());
            let (now, later) = rest.split_at(n);
            result = if guess { p.feed_guessing(now) } else { p.feed(now) };
            rest = later;
            p.collect(&mut out);
        }
        p.flush(&mut out, WorkError::Flushed);
        let seen: Vec<_> = out
            .iter()
            .map(|c| (c.id, c.result, c.buf.as_ref().map(|b| b.filled().to_vec())))
            .collect();
        (result, seen)
    };
    assert_eq!(run(false), run(true));
}

/// A responder with all kinds of targets: Receives, regions under known STags, an outstanding Read.
fn test_pair(crc: bool) -> Pair {
    let agreed = Agreed {
        crc,
        markers: false,
        large_fpdus: false,
        ird: 2,
        ord: 2,
        rtr: None,
        private_data: bytes::Bytes::new(),
    };
    let limits = Limits {
        recvs_max: 4,
        sends_max: 4,
        send_pieces_max: IWARP_SEND_PIECES_MAX,
        reads_in_flight_max: 2,
        regions_max: 4,
        backlog_useful: crate::limits::UNTAKEN_MAX,
    };
    let mut p = Pair::new(false, &agreed, FpduSize::new(1448, false, false), limits);
    for i in 0..4 {
        p.enqueue(Work::Recv { id: WorkId(i), into: BufMut::heap(300) });
    }
    let _ = p.targets.memory.insert(Some(1), Region::Writable(BufMut::heap(8000)));
    let _ = p.targets.memory.insert(Some(2), Region::Readable(Buf::from(vec![7; 4000])));
    p.targets.reads.post(0, 3, BufMut::heap(5000), 2);
    p.targets.reads.ask(0, 0, 3000);
    p.targets.reads.ask(0, 3000, 2000);
    p
}

impl Pair {
    /// Like [`Pair::feed`], but through the socket path.
    fn feed_guessing(&mut self, mut bytes: &[u8]) -> Result<(), Violation> {
        while !bytes.is_empty() {
            let mut n = 0;
            for mut s in self.read_slices()? {
                let k = s.len().min(bytes.len() - n);
                s[..k].copy_from_slice(&bytes[n..n + k]);
                n += k;
            }
            self.received(n)?;
            bytes = &bytes[n..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iwarp::wire::mpa;

    /// After the peer's Terminate, further data of any kind is ignored: here a Send that would fill a Receive, and frames that
    /// would each end the connection.
    #[test]
    fn data_after_terminate_is_ignored() {
        let frame = |ulpdu: &[u8], spoilt: u8| {
            let mut b = u16::try_from(ulpdu.len()).unwrap().to_be_bytes().to_vec();
            b.extend(ulpdu);
            b.resize(b.len().next_multiple_of(4), 0);
            let mut crc = mpa::Crc::new(true);
            crc.start();
            crc.update(&b);
            b.extend(crc.field());
            *b.last_mut().unwrap() ^= spoilt;
            b
        };
        let untagged = |opcode: u8, queue: u8, data: &[u8]| {
            let mut b =
                vec![0x41, 0x40 | opcode, 0, 0, 0, 0, 0, 0, 0, queue, 0, 0, 0, 1, 0, 0, 0, 0];
            b.extend(data);
            b
        };
        let mut all = frame(&untagged(7, 2, &[0x11, 0, 0, 0]), 0);
        let end = all.len();
        all.extend(frame(&untagged(3, 0, b"a Send"), 0));
        for spoilt in [1, 0, 1] {
            all.extend(frame(&untagged(3, 0, b"one with a CRC that is wrong"), spoilt));
        }
        for step in 1..=all.len() {
            for guess in [false, true] {
                let (mut p, mut out) = (test_pair(true), Vec::new());
                for piece in all.chunks(step) {
                    let fed = if guess { p.feed_guessing(piece) } else { p.feed(piece) };
                    assert_eq!(fed, Ok(()), "{step}");
                }
                assert!(p.terminated().is_some(), "{end} bytes of {step} each");
                p.collect(&mut out);
                assert!(out.is_empty(), "{step}: {out:?}");
            }
        }
    }

    /// After any load, an idle connection takes at most 12 KiB in addition to its posted Receives.
    #[test]
    fn idle_connection_uses_little_memory() {
        let footprint = |p: &Pair| {
            size_of::<Pair>()
                + p.rx.footprint()
                + p.tx.footprint()
                + p.queue.capacity() * size_of::<Entry>()
        };
        let mut p = test_pair(true);
        p.rx.started = true;
        p.limits.sends_max = 256;
        let data = Buf::from(vec![1; 4 << 10]);
        for i in 0..250 {
            let to = RemoteSeg { handle: 1, len: 4 << 10, offset: 0 };
            p.post(vec![Work::Write { id: WorkId(i), from: data.clone(), to }]).unwrap();
        }
        let (mut most, mut out) = (0, Vec::new());
        while out.len() < 250 {
            let n = p.write_slices().iter().map(|s| s.len()).sum();
            most = most.max(footprint(&p));
            p.wrote(n);
            p.collect(&mut out);
        }
        // The prediction is wrong: the data after it is spilled.
        let _ = p.feed_guessing(&[0; 3000]);
        p.rest();
        assert!(most > 40 << 10, "{most}");
        assert!(footprint(&p) <= 12 << 10, "{}", footprint(&p));
    }
}
