//! RDMA Reads: those this side has outstanding, and those of the peer that wait for their answer.

use std::collections::VecDeque;

use iobuf::{Buf, BufMut};

use super::violation::Violation;
use super::wire::rdmap::ReadRequest;

/// One `Work::Read`: a buffer that is filled by one or more Read Requests, in order.
struct Sink {
    /// Number of the work request in the send queue.
    seq: u64,
    /// What the peer is told to put into its responses. Never in the table of regions: a Write to it fails.
    stag: u32,
    buf: BufMut,
    /// Read Requests not answered in full, posted or on the wire.
    requests_left: usize,
}

/// One Read Request on the wire.
struct Outstanding {
    seq: u64,
    stag: u32,
    /// Position in the buffer, which is also the tagged offset, of the next byte.
    at: usize,
    left: usize,
}

/// Reads of this side.
pub(crate) struct Reads {
    sinks: VecDeque<Sink>,
    wire: VecDeque<Outstanding>,
    /// Requests that may be on the wire at once: what the peer's IRD allows.
    ord: usize,
}

/// An RTR Read (RFC 6581) has no work request.
const NO_WORK: u64 = u64::MAX;

impl Reads {
    pub(crate) fn new(ord: usize) -> Self {
        Self { sinks: VecDeque::new(), wire: VecDeque::new(), ord }
    }

    pub(crate) fn ord(&self) -> usize {
        self.ord
    }

    pub(crate) fn contains(&self, stag: u32) -> bool {
        self.sinks.iter().any(|s| s.stag == stag)
    }

    /// Accepts the buffer of a Read with this many requests of at least one byte.
    pub(crate) fn post(&mut self, seq: u64, stag: u32, buf: BufMut, requests: usize) {
        self.sinks.push_back(Sink { seq, stag, buf, requests_left: requests });
    }

    /// Another request may go on the wire.
    pub(crate) fn may_ask(&self) -> bool {
        self.wire.len() < self.ord
    }

    /// A request of `len` bytes for position `at` of the sink of `seq` goes on the wire; its STag.
    pub(crate) fn ask(&mut self, seq: u64, at: usize, len: usize) -> Option<u32> {
        let stag = self.sinks.iter().find(|s| s.seq == seq)?.stag;
        self.wire.push_back(Outstanding { seq, stag, at, left: len });
        Some(stag)
    }

    /// The Read without data that serves as RTR goes on the wire.
    pub(crate) fn ask_rtr(&mut self, stag: u32) {
        self.wire.push_back(Outstanding { seq: NO_WORK, stag, at: 0, left: 0 });
    }

    /// A segment of a Read Response begins: where it belongs. Only the oldest outstanding request is answered, and
    /// only in order, so the peer cannot place anything that was not asked for.
    pub(crate) fn begin(
        &mut self,
        stag: u32,
        to: u64,
        len: usize,
        last: bool,
    ) -> Result<(u64, usize), Violation> {
        let r = self.wire.front_mut().ok_or(Violation::ReadResponseUnexpected)?;
        if stag != r.stag {
            return Err(Violation::ReadResponseStag);
        }
        if to != r.at as u64 {
            return Err(Violation::ReadResponseBounds);
        }
        if len > r.left || last != (len == r.left) {
            return Err(Violation::ReadResponseLength);
        }
        let at = r.at;
        r.at += len;
        r.left -= len;
        Ok((r.seq, at))
    }

    /// The segment that began last has arrived whole: the position behind it counts as filled.
    pub(crate) fn landed(&mut self, seq: u64, end: usize, last: bool) {
        if last {
            self.wire.pop_front();
        }
        if let Some(s) = self.sinks.iter_mut().find(|s| s.seq == seq) {
            s.buf.set_filled(end);
            s.requests_left -= usize::from(last);
        }
    }

    /// All responses to the Read `seq` are here (or it is not one of ours).
    pub(crate) fn is_done(&self, seq: u64) -> bool {
        self.sinks.iter().find(|s| s.seq == seq).is_none_or(|s| s.requests_left == 0)
    }

    /// The oldest Read that is on the wire.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.wire.front().map(|r| r.seq).filter(|&seq| seq != NO_WORK)
    }

    /// Takes the buffer of a Read back.
    pub(crate) fn take(&mut self, seq: u64) -> Option<BufMut> {
        let i = self.sinks.iter().position(|s| s.seq == seq)?;
        self.sinks.remove(i).map(|s| s.buf)
    }

    pub(crate) fn window(&mut self, seq: u64) -> Option<&mut [u8]> {
        self.sinks.iter_mut().find(|s| s.seq == seq).map(|s| s.buf.whole_mut())
    }

    /// The next byte of a Read Response belongs to this Read, at this position.
    pub(crate) fn next(&self) -> Option<(u64, usize)> {
        self.wire.iter().find(|r| r.left > 0).map(|r| (r.seq, r.at))
    }

    /// Another Read is answered after this one.
    pub(crate) fn comes_after(&self, seq: u64) -> bool {
        self.wire.iter().any(|r| r.left > 0 && r.seq != seq)
    }

    /// Bytes that each of the requests in line still brings to the Read `seq`, as far as they are next.
    pub(crate) fn coming(&self, seq: u64) -> impl Iterator<Item = usize> {
        self.wire.iter().filter(|r| r.left > 0).take_while(move |r| r.seq == seq).map(|r| r.left)
    }
}

/// What the peer is to get for one of its Read Requests.
pub(crate) struct Response {
    pub(crate) stag: u32,
    pub(crate) to: u64,
    pub(crate) data: Buf,
}

/// Reads of the peer, answered in order.
pub(crate) struct Inbound {
    queue: VecDeque<Response>,
    /// Accepted and not yet answered to the last byte, those in the queue included.
    in_work: usize,
    ird: usize,
}

impl Inbound {
    pub(crate) fn new(ird: usize) -> Self {
        Self { queue: VecDeque::new(), in_work: 0, ird }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.in_work < self.ird
    }

    pub(crate) fn push(&mut self, request: &ReadRequest, data: Buf) {
        self.in_work += 1;
        self.queue.push_back(Response { stag: request.sink_stag, to: request.sink_to, data });
    }

    pub(crate) fn pop(&mut self) -> Option<Response> {
        self.queue.pop_front()
    }

    pub(crate) fn answered(&mut self) {
        self.in_work = self.in_work.saturating_sub(1);
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_come_in_order_and_complete() {
        let mut r = Reads::new(2);
        assert_eq!(r.begin(1, 0, 1, true), Err(Violation::ReadResponseUnexpected));
        let mut buf = BufMut::heap(64);
        buf.set_filled(4);
        r.post(3, 77, buf, 2);
        assert_eq!(r.ask(3, 4, 10), Some(77));
        assert_eq!(r.ask(3, 14, 20), Some(77));
        assert!(!r.may_ask());
        assert_eq!(r.next(), Some((3, 4)));
        assert_eq!(r.coming(3).collect::<Vec<_>>(), [10, 20]);
        assert_eq!(r.begin(78, 4, 6, false), Err(Violation::ReadResponseStag));
        assert_eq!(r.begin(77, 5, 6, false), Err(Violation::ReadResponseBounds));
        assert_eq!(r.begin(77, 4, 6, true), Err(Violation::ReadResponseLength));
        assert_eq!(r.begin(77, 4, 11, false), Err(Violation::ReadResponseLength));
        assert_eq!(r.begin(77, 4, 10, false), Err(Violation::ReadResponseLength));
        assert_eq!(r.begin(77, 4, 6, false), Ok((3, 4)));
        r.landed(3, 10, false);
        assert_eq!(r.coming(3).collect::<Vec<_>>(), [4, 20]);
        assert_eq!(r.begin(77, 10, 4, true), Ok((3, 10)));
        r.landed(3, 14, true);
        assert!(r.may_ask() && !r.is_done(3));
        assert_eq!(r.begin(77, 14, 20, true), Ok((3, 14)));
        r.landed(3, 34, true);
        assert!(r.is_done(3));
        assert_eq!(r.take(3).unwrap().len(), 34);
    }

    #[test]
    fn the_ird_is_reached() {
        let mut i = Inbound::new(1);
        let q = ReadRequest { sink_stag: 1, sink_to: 2, len: 3, source_stag: 4, source_to: 5 };
        assert!(i.has_room());
        i.push(&q, Buf::from(vec![0; 3]));
        assert!(!i.has_room());
        assert_eq!(i.pop().unwrap().data.len(), 3);
        assert!(!i.has_room());
        i.answered();
        assert!(i.has_room());
    }
}
