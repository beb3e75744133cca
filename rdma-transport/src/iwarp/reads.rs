//! RDMA Reads: the outstanding ones of this side, and those of the peer that wait for a response.

use std::collections::VecDeque;

use iobuf::{Buf, BufMut};

use super::violation::Violation;
use super::wire::rdmap::ReadRequest;

/// One `Work::Read`: a buffer filled by one or more Read Requests, in order.
struct Sink {
    /// Number of the work request in the send queue.
    seq: u64,
    /// The STag that the peer puts into its responses. It is never in the table of regions, so a Write to it fails.
    stag: u32,
    buf: BufMut,
    /// Read Requests not answered completely, posted or outstanding.
    requests_left: usize,
}

/// An outstanding Read Request.
struct Outstanding {
    seq: u64,
    stag: u32,
    /// Position of the next byte in the buffer, which is also the tagged offset.
    at: usize,
    left: usize,
}

/// Reads of this side.
pub(crate) struct Reads {
    sinks: VecDeque<Sink>,
    wire: VecDeque<Outstanding>,
    /// Maximum outstanding requests: the peer's IRD.
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

    /// Adds the buffer of a Read with this number of non-empty requests.
    pub(crate) fn post(&mut self, seq: u64, stag: u32, buf: BufMut, requests: usize) {
        self.sinks.push_back(Sink { seq, stag, buf, requests_left: requests });
    }

    /// True if another request may be sent.
    pub(crate) fn may_ask(&self) -> bool {
        self.wire.len() < self.ord
    }

    /// Records a sent request of `len` bytes for position `at` in the buffer of `seq`; returns its STag.
    pub(crate) fn ask(&mut self, seq: u64, at: usize, len: usize) -> Option<u32> {
        let stag = self.sinks.iter().find(|s| s.seq == seq)?.stag;
        self.wire.push_back(Outstanding { seq, stag, at, left: len });
        Some(stag)
    }

    /// Records the sending of the empty Read that serves as RTR.
    pub(crate) fn ask_rtr(&mut self, stag: u32) {
        self.wire.push_back(Outstanding { seq: NO_WORK, stag, at: 0, left: 0 });
    }

    /// Handles the start of a Read Response segment; returns its destination. Only the oldest outstanding request may be answered,
    /// and only in order, so the peer cannot place data that was not requested.
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

    /// Handles the complete arrival of the current segment: the buffer is filled up to its end.
    pub(crate) fn landed(&mut self, seq: u64, end: usize, last: bool) {
        if last {
            self.wire.pop_front();
        }
        if let Some(s) = self.sinks.iter_mut().find(|s| s.seq == seq) {
            s.buf.set_filled(end);
            s.requests_left -= usize::from(last);
        }
    }

    /// True if all responses to the Read `seq` have arrived, or it is not one of ours.
    pub(crate) fn is_done(&self, seq: u64) -> bool {
        self.sinks.iter().find(|s| s.seq == seq).is_none_or(|s| s.requests_left == 0)
    }

    /// The oldest outstanding Read.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.wire.front().map(|r| r.seq).filter(|&seq| seq != NO_WORK)
    }

    /// Takes the buffer of a Read.
    pub(crate) fn take(&mut self, seq: u64) -> Option<BufMut> {
        let i = self.sinks.iter().position(|s| s.seq == seq)?;
        self.sinks.remove(i).map(|s| s.buf)
    }

    pub(crate) fn window(&mut self, seq: u64) -> Option<&mut [u8]> {
        self.sinks.iter_mut().find(|s| s.seq == seq).map(|s| s.buf.whole_mut())
    }

    /// The Read and position for the next byte of a Read Response.
    pub(crate) fn next(&self) -> Option<(u64, usize)> {
        self.wire.iter().find(|r| r.left > 0).map(|r| (r.seq, r.at))
    }

    /// True if responses to another Read follow those to this one.
    pub(crate) fn comes_after(&self, seq: u64) -> bool {
        self.wire.iter().any(|r| r.left > 0 && r.seq != seq)
    }

    /// The remaining bytes of each of the oldest requests, as long as they belong to the Read `seq`.
    pub(crate) fn coming(&self, seq: u64) -> impl Iterator<Item = usize> {
        self.wire.iter().filter(|r| r.left > 0).take_while(move |r| r.seq == seq).map(|r| r.left)
    }
}

/// The response to a Read Request of the peer.
pub(crate) struct Response {
    pub(crate) stag: u32,
    pub(crate) to: u64,
    pub(crate) data: Buf,
}

/// Reads of the peer, answered in order.
pub(crate) struct Inbound {
    queue: VecDeque<Response>,
    /// Number of requests not answered completely, including queued ones.
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
    fn reads_reach_the_ird() {
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
