//! Handles a queue pair for RPC-over-RDMA and SMB Direct: keeps Receives posted, posts work in order, takes completions.
//!
//! *Operation.* [`Link::post`] posts owed Receives first, since the following messages may grant the peer credits for them; then
//! RDMA Reads; then Writes and Sends, in order.
//!
//! *Memory.* Receive buffers are bounded by credits ([`crate::receives`]). Buffers of the pool are preferred; when all are in use
//! because requests are still being processed, the heap provides one, so that a reply need not wait for peers that may be waiting
//! for the reply.
//!
//! *Errors.* If the queue is full, the rest is posted later.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use iobuf::{Buf, BufMut, Pool};

use crate::channel::{ChannelError, Info, Traffic, UntilLeft};
use crate::lease;
use crate::moves::RdmaWrite;
use crate::stall::Stall;
use crate::untaken::Untaken;
use crate::verbs::{Completion, QueuePair, Refused, Rejected, Work, WorkId, WorkKind};

pub(crate) struct Link {
    pub(crate) qp: Box<dyn QueuePair>,
    recvs: Pool,
    /// Bytes of each Receive.
    recv_size: usize,
    /// RDMA Reads to post.
    pub(crate) reads: VecDeque<Work>,
    /// Writes and Sends to post.
    out: VecDeque<Work>,
    /// Bytes in `out`, and bytes posted from it and not completed.
    backlog: usize,
    /// Bytes of Writes and Sends completed since [`Link::tell_untaken`].
    left: usize,
    /// Sends ever queued, and completed.
    sends: (u64, u64),
    /// Values to drop when this many Sends have completed.
    leaving: VecDeque<(u64, UntilLeft)>,
    /// Receives to post before the entries of `out`.
    pub(crate) recvs_owed: usize,
    /// Posted work other than Receives.
    posted: usize,
    /// Posted RDMA Reads.
    posted_reads: usize,
    /// The queue pair refused work although it had room, and may accept it on the next try.
    refused: bool,
    /// Detects Writes and Sends that the peer does not take.
    sending: Stall,
    /// Detects RDMA Reads that it does not respond to.
    fetching: Stall,
    /// Detects other operations that the peer does not complete.
    pub(crate) receiving: Stall,
}

/// The state of operations that the peer must complete, other than Writes, Sends and RDMA Reads.
#[derive(Clone, Copy, Default)]
pub(crate) struct Half {
    /// True if such an operation exists and does not wait for memory of this side.
    pub(crate) is_there: bool,
    /// True if the operation occupies memory of the pool.
    pub(crate) holds_memory: bool,
}

impl Link {
    /// Receives that the queue pair takes at once.
    pub(crate) fn recvs_max(&self) -> usize {
        self.qp.limits().recvs_max
    }

    /// Posts `count` Receives of `recvs`, each of `recv_size` bytes.
    pub(crate) fn new(
        mut qp: Box<dyn QueuePair>,
        recvs: Pool,
        count: usize,
        recv_size: usize,
    ) -> Result<Self, ChannelError> {
        let mut chain = Vec::with_capacity(count);
        for _ in 0..count {
            let into = recvs.try_get(recv_size).unwrap_or_else(|| BufMut::heap(recv_size));
            chain.push(Work::Recv { id: WorkId(0), into });
        }
        let recvs_owed = match qp.post(chain) {
            Ok(()) => 0,
            Err(Rejected { why: Refused::Full, .. }) => count,
            Err(r) => return Err(ChannelError::Closed(format!("receives refused: {:?}", r.why))),
        };
        Ok(Self {
            qp,
            recvs,
            recv_size,
            reads: VecDeque::new(),
            out: VecDeque::new(),
            backlog: 0,
            left: 0,
            sends: (0, 0),
            leaving: VecDeque::new(),
            recvs_owed,
            posted: 0,
            posted_reads: 0,
            refused: false,
            sending: Stall::default(),
            fetching: Stall::default(),
            receiving: Stall::default(),
        })
    }

    /// Queues a Send.
    pub(crate) fn send(&mut self, info: &Info, from: Vec<Buf>, invalidate: Option<u32>) {
        let len: usize = from.iter().map(Buf::len).sum();
        let mut from = from;
        if from.len() > self.qp.limits().send_pieces_max {
            // A COMPOUND with dozens of tiny payloads, which together fit the inline threshold.
            let whole: Vec<u8> = from.iter().flat_map(|b| b.iter().copied()).collect();
            iobuf::copied_note(whole.len());
            from = vec![whole.into()];
        }
        Traffic::add(&info.traffic.inline_out, len as u64);
        Traffic::add(&info.traffic.invalidations, invalidate.is_some().into());
        self.backlog += len;
        self.sends.0 += 1;
        self.out.push_back(Work::Send { id: WorkId(0), from, invalidate });
    }

    /// Keeps the value until all Sends queued so far have completed; they complete in order.
    pub(crate) fn keep_until_sent(&mut self, until_left: Option<UntilLeft>) {
        self.leaving.extend(until_left.map(|kept| (self.sends.0, kept)));
    }

    fn sent(&mut self, sends: usize) {
        self.sends.1 += sends as u64;
        while self.leaving.front().is_some_and(|(until, _)| *until <= self.sends.1) {
            self.leaving.pop_front();
        }
    }

    /// Queues RDMA Writes, which the following Send proves.
    pub(crate) fn write(&mut self, info: &Info, moves: Vec<RdmaWrite>) {
        for RdmaWrite { from, to } in moves {
            self.backlog += from.len();
            Traffic::add(&info.traffic.rdma_write, from.len() as u64);
            self.out.push_back(Work::Write { id: WorkId(0), from, to });
        }
    }

    /// Bytes of Writes and Sends that are queued or in progress.
    pub(crate) fn backlog(&self) -> usize {
        self.backlog
    }

    /// Reports the bytes sent and pending to the throttle of this connection's reads; `queued` bytes are not in the link yet.
    pub(crate) fn tell_untaken(&mut self, queued: usize, untaken: &mut Untaken) {
        let useful = self.qp.limits().backlog_useful;
        untaken.tell(std::mem::take(&mut self.left), queued + self.backlog, useful);
    }

    /// Posts as much work as the queue pair accepts now.
    pub(crate) fn post(&mut self) -> Result<(), ChannelError> {
        self.refused = false;
        self.post_receives()?;
        let (mut reads, mut out) = (std::mem::take(&mut self.reads), std::mem::take(&mut self.out));
        let before = reads.len();
        let mut posted = self.post_from(&mut reads);
        self.posted_reads += before - reads.len();
        if posted.is_ok() && self.recvs_owed == 0 && reads.is_empty() {
            posted = self.post_from(&mut out);
        }
        (self.reads, self.out) = (reads, out);
        posted
    }

    fn post_receives(&mut self) -> Result<(), ChannelError> {
        if self.recvs_owed == 0 {
            return Ok(());
        }
        let mut chain = Vec::with_capacity(self.recvs_owed);
        for _ in 0..self.recvs_owed {
            let into = self.recvs.try_get(self.recv_size);
            let into = into.unwrap_or_else(|| BufMut::heap(self.recv_size));
            chain.push(Work::Recv { id: WorkId(0), into });
        }
        match self.qp.post(chain) {
            Ok(()) => self.recvs_owed = 0,
            Err(r) => self.on_refused(r.why)?,
        }
        Ok(())
    }

    fn post_from(&mut self, queue: &mut VecDeque<Work>) -> Result<(), ChannelError> {
        let room = self.qp.limits().sends_max.saturating_sub(self.posted);
        let n = queue.len().min(room);
        if n == 0 {
            return Ok(());
        }
        lease::check();
        match self.qp.post(queue.drain(..n).collect()) {
            Ok(()) => self.posted += n,
            Err(Rejected { why, chain }) => {
                for work in chain.into_iter().rev() {
                    queue.push_front(work);
                }
                self.on_refused(why)?;
            }
        }
        Ok(())
    }

    fn on_refused(&mut self, why: Refused) -> Result<(), ChannelError> {
        match why {
            Refused::Full => self.refused = true,
            // The next poll of the queue pair reports the reason.
            Refused::Down => {}
            Refused::Invalid => {
                debug_assert!(false, "posted work is within the queue pair's limits");
                return Err(ChannelError::Closed("work refused as invalid".into()));
            }
        }
        Ok(())
    }

    /// Moves data in both directions and appends completions.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<Completion>,
    ) -> Poll<Result<(), ChannelError>> {
        match self.qp.poll(cx, out) {
            Poll::Ready(Ok(())) => {
                let others = out.iter().filter(|done| done.kind != WorkKind::Recv).count();
                self.posted = self.posted.saturating_sub(others);
                let reads = out.iter().filter(|done| done.kind == WorkKind::Read);
                self.posted_reads = self.posted_reads.saturating_sub(reads.clone().count());
                self.fetching.progress(reads.filter_map(|c| c.result.ok()).sum());
                let sent =
                    out.iter().filter(|c| matches!(c.kind, WorkKind::Send | WorkKind::Write));
                let sent: usize = sent.filter_map(|c| c.result.ok()).sum();
                self.sending.progress(sent);
                self.backlog = self.backlog.saturating_sub(sent);
                self.left += sent;
                self.sent(out.iter().filter(|done| done.kind == WorkKind::Send).count());
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(down)) => Poll::Ready(Err(match down.violation {
                Some(rule) => ChannelError::Violation(rule, down.reason),
                None => ChannelError::Closed(down.reason),
            })),
            Poll::Pending => {
                if self.refused && self.posted == 0 {
                    // No completion will follow to trigger the next try.
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }

    /// True if the send queue is empty.
    pub(crate) fn is_flushed(&self) -> bool {
        self.out.is_empty() && self.reads.is_empty() && self.posted == 0
    }

    /// Called when no operation can make progress: checks whether the peer has stalled for too long. `half`: pending operations
    /// other than posted work. `payload`: the memory that it may occupy by that.
    pub(crate) fn poll_stalled(
        &mut self,
        half: Half,
        payload: Option<&Pool>,
        cx: &mut Context<'_>,
    ) -> Poll<ChannelError> {
        let is_fetching = !self.reads.is_empty() || self.posted_reads > 0;
        let is_sending = !self.out.is_empty() || self.posted > self.posted_reads;
        let all = [
            (&mut self.sending, is_sending, is_sending),
            (&mut self.fetching, is_fetching, is_fetching),
            (&mut self.receiving, half.is_there, half.is_there && half.holds_memory),
        ];
        for (stall, half_done, holds) in all {
            if let Poll::Ready(stalled) = stall.poll(half_done, payload.filter(|_| holds), cx) {
                return Poll::Ready(stalled.end());
            }
        }
        Poll::Pending
    }
}
