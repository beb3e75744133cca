//! The common part of acceptor and initiator: whole messages in both directions over a queue pair.
//!
//! *Operation.* [`Port::poll`] assembles received fragments, sends as many messages as credits allow, and polls the queue pair. A
//! waiting message is split into fragments one by one, as credits arrive, without other messages in between. RDMA Writes of a
//! message are posted before its first fragment, so its Send proves them.
//!
//! *Memory.* Receives use 4 KiB buffers of a separate pool; a peer that has not logged on is granted few ([`crate::receives`]). A
//! message in one fragment is passed on in its Receive. A message in several fragments is copied to a payload buffer, which is
//! replaced by a larger one as fragments arrive, so that a peer occupies about as much memory as it has sent; while waiting for a
//! buffer, fragments keep their Receives, which are not granted again. Messages are sent from their own memory.
//! A message that gets no buffer within [`limits::MEMORY_WAIT_MAX`] is passed on without its bulk data if its first fragment shows
//! the data; others wait for [`limits::MESSAGE_WAIT_MAX`], and then the connection ends.
//!
//! *Errors.* A violation ends the connection (MS-SMBD section 3.1.5.8), as does a timer of section 3.1.6.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use iobuf::{Acquire, Buf, BufMut, Pay, Pool};
use tokio::time::{Instant, Sleep};

use super::credits::Credits;
use super::negotiate::{Ability, Agreed, Unfit, Verdict, conclude, judge, request};
use super::outgoing::Outgoing;
use super::reassembly::{Reassembly, Step};
use super::timers::{Due, Timers};
use super::violation::Violation;
use super::wire::{DATA_OFFSET, DataTransfer, RESPONSE_REQUESTED, size, wire_size};
use crate::channel::{ChannelError, Info, PayloadLocator, ReadChunkData, Reply, Traffic};
use crate::limits;
use crate::link::{Half, Link};
use crate::memory_wait::MemoryWait;
use crate::receives::credits_for;
use crate::untaken::Untaken;
use crate::verbs::{Completion, ConnectParams, QueuePair, WorkKind};

/// Maximum posted Receives: the granted ones, and one for the negotiation.
const RECVS: usize = limits::SMBD_CREDITS_MAX as usize + 1;

/// The parameters for creating a queue pair, without private data and RDMA Reads.
pub(super) fn params() -> ConnectParams {
    ConnectParams {
        private_data: bytes::Bytes::new(),
        recvs: RECVS,
        sends: limits::SMBD_SENDS_MAX,
        reads_out: 0,
        reads_in: 0,
        recv_size: limits::SMBD_RECV_SIZE,
    }
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The acceptor waits for a request.
    Accepting,
    /// The initiator waits for the response.
    Asking,
    Established(Agreed),
    /// The refusal is being sent; no message is accepted any more.
    Refused,
}

pub(super) struct Port {
    pub(super) info: Arc<Info>,
    pub(super) link: Link,
    own: Ability,
    phase: Phase,
    credits: Credits,
    reassembly: Reassembly,
    timers: Timers,
    /// Messages not sent completely.
    queue: VecDeque<Outgoing>,
    /// Total bytes of these messages.
    queued: usize,
    /// The peer requested a keepalive answer.
    answer_owed: bool,
    /// The next message requests an answer from the peer.
    ask: bool,
    /// Fragments that wait for memory of the pool.
    inbox: VecDeque<(Step, Buf)>,
    assembly: Option<BufMut>,
    /// The client has logged on, as of the last check.
    is_known: bool,
    /// Messages sent since the connection last requested more credits.
    messages: u32,
    wait: Option<Acquire>,
    /// Heap memory taken in excess that must be paid back first.
    debt: Option<Pay>,
    /// Bytes of the message in assembly.
    total: usize,
    /// Finds the bulk data of messages that may be refused.
    locate: Option<Arc<dyn PayloadLocator>>,
    memory_wait: MemoryWait,
    /// The part before the bulk data of a refused message, whose further fragments are discarded.
    without_data: Option<Buf>,
    /// Whole messages not passed on yet, and missing bulk data.
    ready: VecDeque<(Buf, Vec<ReadChunkData>)>,
    /// RDMA Reads that have completed.
    pub(super) reads: Vec<Completion>,
    completions: Vec<Completion>,
    began: Instant,
    timer: Option<(Duration, Pin<Box<Sleep>>)>,
    failed: Option<ChannelError>,
    /// The reason for ending the connection after the queued messages are sent.
    refused: Option<ChannelError>,
}

impl Port {
    fn new(
        qp: Box<dyn QueuePair>,
        info: Arc<Info>,
        recvs: Pool,
        phase: Phase,
        seconds: u64,
    ) -> Result<Self, ChannelError> {
        Ok(Self {
            info,
            link: Link::new(qp, recvs, 1, limits::SMBD_RECV_SIZE)?,
            own: Ability::OURS,
            phase,
            credits: Credits::new(0, 0, 0),
            reassembly: Reassembly::default(),
            timers: Timers::new(Duration::from_secs(seconds)),
            queue: VecDeque::new(),
            queued: 0,
            answer_owed: false,
            ask: false,
            inbox: VecDeque::new(),
            assembly: None,
            is_known: false,
            messages: 0,
            wait: None,
            debt: None,
            total: 0,
            locate: None,
            memory_wait: MemoryWait::default(),
            without_data: None,
            ready: VecDeque::new(),
            reads: Vec::new(),
            completions: Vec::new(),
            began: Instant::now(),
            timer: None,
            failed: None,
            refused: None,
        })
    }

    /// Creates the accepting side.
    pub(super) fn acceptor(
        qp: Box<dyn QueuePair>,
        info: Arc<Info>,
        recvs: Pool,
    ) -> Result<Self, ChannelError> {
        Self::new(qp, info, recvs, Phase::Accepting, limits::SMBD_ACCEPT_SECONDS)
    }

    /// Creates the dialling side; the first poll sends its request.
    pub(super) fn initiator(
        qp: Box<dyn QueuePair>,
        info: Arc<Info>,
        recvs: Pool,
    ) -> Result<Self, ChannelError> {
        let mut port = Self::new(qp, info, recvs, Phase::Asking, limits::SMBD_CONNECT_SECONDS)?;
        let asked = request(port.own).emit();
        port.link.send(&port.info, vec![asked.into()], None);
        Ok(port)
    }

    /// Queues a message. If it cannot be sent the connection ends, because its peer would wait forever.
    pub(super) fn push(&mut self, message: Reply) {
        let Some(message) = Outgoing::new(message) else {
            debug_assert!(false, "a protocol answers no more than was asked for");
            self.fail("a payload is larger than the regions that it goes to");
            return;
        };
        if let Phase::Established(agreed) = self.phase
            && message.left() > agreed.max_fragmented_send
        {
            return self.fail("a message is larger than the peer takes");
        }
        if message.left() == 0 {
            // The peer notices the RDMA Writes only by this Send.
            debug_assert!(false, "a message has a head");
            return;
        }
        self.queued += message.left() + message.writes.iter().map(|m| m.from.len()).sum::<usize>();
        self.queue.push_back(message);
    }

    fn fail(&mut self, why: &str) {
        self.failed.get_or_insert(ChannelError::Closed(why.into()));
    }

    fn broken(&mut self, v: Violation) {
        self.failed.get_or_insert(ChannelError::Violation(v.name(), v.to_string()));
    }

    /// Takes the next whole message.
    pub(super) fn pop(&mut self) -> Option<(Buf, Vec<ReadChunkData>)> {
        self.ready.pop_front()
    }

    /// Lets messages be refused whose bulk data this finds, if they get no memory in time.
    pub(super) fn locate(&mut self, locate: Arc<dyn PayloadLocator>) {
        self.locate = Some(locate);
    }

    /// True if whole messages are available.
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Bytes queued or being sent.
    pub(super) fn backlog(&self) -> usize {
        self.queued + self.link.backlog()
    }

    /// Reports the pending bytes to the throttle of this connection's reads.
    pub(super) fn tell_untaken(&mut self, untaken: &mut Untaken) {
        self.link.tell_untaken(self.queued, untaken);
    }

    /// True if the send queue is empty.
    pub(super) fn is_flushed(&self) -> bool {
        self.queue.is_empty() && self.link.is_flushed()
    }

    /// True after the negotiation.
    pub(super) fn is_established(&self) -> bool {
        matches!(self.phase, Phase::Established(_))
    }

    /// Receives with unprocessed data.
    fn busy(&self) -> usize {
        self.inbox.len() + self.ready.len()
    }

    fn on_message(&mut self, message: BufMut) {
        Traffic::add(&self.info.traffic.inline_in, message.len() as u64);
        let message = message.freeze();
        match self.phase {
            Phase::Accepting => self.on_request(&message),
            Phase::Asking => self.on_response(&message),
            Phase::Established(agreed) => {
                if let Err(v) = self.on_data(&message, agreed) {
                    self.broken(v);
                }
            }
            Phase::Refused => {}
        }
    }

    fn on_request(&mut self, message: &[u8]) {
        match judge(self.own, message) {
            Ok(Verdict::Accept(mut response, agreed)) => {
                let granted = response.credits_granted.min(self.allowed());
                response.credits_granted = granted;
                self.link.recvs_owed += usize::from(granted);
                self.link.send(&self.info, vec![response.emit().into()], None);
                self.establish(agreed, granted);
            }
            Ok(Verdict::Refuse(response, v)) => {
                self.phase = Phase::Refused;
                self.refused = Some(ChannelError::Violation(v.name(), v.to_string()));
                self.link.send(&self.info, vec![response.emit().into()], None);
            }
            Err(v) => self.broken(v),
        }
    }

    fn on_response(&mut self, message: &[u8]) {
        match conclude(self.own, message) {
            // The first message sent grants credits.
            Ok(agreed) => self.establish(agreed, 0),
            Err(Unfit::Violation(v)) => self.broken(v),
            Err(Unfit::Refused(status)) => {
                self.fail(&format!("SMB Direct was refused with status {status:#010x}"));
            }
        }
    }

    fn establish(&mut self, agreed: Agreed, held: u16) {
        self.phase = Phase::Established(agreed);
        self.credits = Credits::new(agreed.granted, held, agreed.wanted);
        self.credits.set_most(self.allowed());
        self.timers.negotiated();
        self.info.message_out_max.store(agreed.max_fragmented_send, Ordering::Relaxed);
        let Agreed { max_send, max_receive, max_fragmented_send, granted, .. } = agreed;
        let sizes =
            format!("{max_receive} bytes in, {max_send} out, {max_fragmented_send} in fragments");
        self.info.facts.note("SMB Direct", format!("{sizes}; {granted} credits granted"));
        tracing::debug!(peer = %self.info.peer, ?agreed, "SMB Direct negotiated");
    }

    /// Handles a data message (MS-SMBD section 3.1.5.8).
    fn on_data(&mut self, message: &Buf, agreed: Agreed) -> Result<(), Violation> {
        let (receive, fragmented) = (agreed.max_receive, agreed.max_fragmented_receive);
        let header = DataTransfer::parse(message, receive, fragmented)?;
        self.credits.received(header.credits_requested, header.credits_granted)?;
        self.answer_owed |= header.flags & RESPONSE_REQUESTED != 0;
        let step = self.reassembly.next(size(header.len), size(header.remaining))?;
        self.link.receiving.progress(size(header.len));
        if let Step::First(total) = step
            && total > limits::SMBD_FRAGMENTED_STRANGER_MAX
            && self.info.is_stranger()
        {
            return Err(Violation::FragmentedBeforeLogon(total));
        }
        if step != Step::Nothing {
            let at = size(header.offset);
            self.inbox.push_back((step, message.slice(at..at + size(header.len))));
        }
        Ok(())
    }

    /// Obtains a buffer for the message so far and its next fragment: one size for small messages, the next size for larger ones.
    fn make_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let more = self.inbox.front().map_or(0, |(_, data)| data.len());
        let have = self.assembly.as_ref().map_or(0, BufMut::len);
        if have + more <= self.assembly.as_ref().map_or(0, BufMut::capacity) {
            return Poll::Ready(());
        }
        let (pool, account) = (&self.info.pool, self.info.account);
        if self.wait.is_none() && (self.debt.is_some() || pool.is_overdrawn()) {
            ready!(Pin::new(self.debt.get_or_insert_with(|| pool.pay(0))).poll(cx));
            self.debt = None;
        }
        let wait = self.wait.get_or_insert_with(|| pool.acquire(have + more, account));
        let larger = ready!(Pin::new(wait).poll(cx));
        self.wait = None;
        // The size of the whole message was checked against the largest buffer.
        let Ok(mut larger) = larger else { return Poll::Ready(()) };
        if let Some(smaller) = self.assembly.take() {
            larger.append(smaller.filled());
        }
        self.assembly = Some(larger);
        Poll::Ready(())
    }

    /// Credits that this side may grant now.
    fn allowed(&self) -> u16 {
        // One Receive is that of the negotiation.
        let most = credits_for(self.link.recvs_max(), 1, limits::SMBD_CREDITS_MAX);
        self.info.receives_allowed(limits::SMBD_CREDITS_MIN.min(most), most)
    }

    /// True if the peer has sent part of a message, and does not have to wait for memory of this side.
    fn is_half(&self) -> bool {
        self.reassembly.is_inside() && self.inbox.is_empty()
    }

    /// Called when no progress is possible. `is_reading`: more fragments would be accepted; `is_ending`: waiting for the end of the
    /// connection.
    pub(super) fn poll_stalled(
        &mut self,
        is_reading: bool,
        is_ending: bool,
        cx: &mut Context<'_>,
    ) -> Poll<ChannelError> {
        let is_waiting = is_reading && (self.wait.is_some() || self.debt.is_some());
        if let Poll::Ready(why) = self.memory_wait.poll_end(is_waiting, self.info.peer, cx) {
            return Poll::Ready(why);
        }
        let holds_memory = self.assembly.is_some();
        let half = Half { is_there: is_ending || is_reading && self.is_half(), holds_memory };
        self.link.poll_stalled(half, Some(&self.info.pool), cx)
    }

    /// Assembles messages, as far as memory is available.
    fn assemble(&mut self, cx: &mut Context<'_>) {
        while let Some(&(step, _)) = self.inbox.front() {
            if let Step::First(total) = step {
                if !self.ready.is_empty() {
                    // Whole messages are passed on before another takes memory.
                    return;
                }
                self.total = total;
            }
            if step != Step::Whole && self.without_data.is_none() {
                match self.make_room(cx) {
                    Poll::Ready(()) => self.memory_wait.end(),
                    Poll::Pending if self.refuse(cx) => {}
                    Poll::Pending => return,
                }
            }
            let Some((step, data)) = self.inbox.pop_front() else { return };
            if step == Step::Whole {
                self.ready.push_back((data, Vec::new()));
                continue;
            }
            if self.without_data.is_some() {
                let head = self.without_data.take_if(|_| step == Step::Last);
                self.ready.extend(head.map(|head| {
                    let missing = ReadChunkData::missing(head.len());
                    (head, vec![missing])
                }));
                continue;
            }
            if let Some(assembly) = &mut self.assembly {
                assembly.append(&data);
            }
            if step == Step::Last
                && let Some(whole) = self.assembly.take()
            {
                self.ready.push_back((whole.freeze(), Vec::new()));
            }
        }
    }

    /// Refuses the message that waits for memory, if it has waited for too long and can be answered without its bulk data.
    fn refuse(&mut self, cx: &mut Context<'_>) -> bool {
        let first = self.inbox.front().map(|(_, data)| &**data);
        let head = self.assembly.as_ref().map(BufMut::filled).or(first).unwrap_or_default();
        let found = self.locate.as_ref().and_then(|locate| {
            let (at, _) = locate.bulk(head, self.total)?;
            head.get(..at).filter(|_| !locate.is_sealed(head))
        });
        let Some(before) = found.map(<[u8]>::to_vec) else { return false };
        if self.memory_wait.poll_over(cx).is_pending() {
            return false;
        }
        (self.assembly, self.wait, self.debt) = (None, None, None);
        self.without_data = Some(before.into());
        true
    }

    /// Raises the limit on grants after the client has logged on, if receives are available.
    fn allow_more(&mut self) {
        if self.credits.most() == limits::SMBD_CREDITS_MAX || self.queue.is_empty() {
            return;
        }
        self.messages += 1;
        let is_known = self.info.introduction.is_done();
        let is_news = is_known && !std::mem::replace(&mut self.is_known, is_known);
        if is_news || self.messages >= limits::REPLIES_BEFORE_CREDITS {
            self.messages = 0;
            let allowed = self.allowed();
            self.credits.set_most(allowed);
        }
    }

    /// Sends messages as credits allow (MS-SMBD section 3.1.5.1).
    fn pump(&mut self) {
        let Phase::Established(agreed) = self.phase else { return };
        self.allow_more();
        let busy = self.busy();
        let mut starved = false;
        while let Some(front) = self.queue.front_mut() {
            let writes = std::mem::take(&mut front.writes);
            self.queued -= writes.iter().map(|m| m.from.len()).sum::<usize>();
            self.link.write(&self.info, writes);
            let Some(grant) = self.credits.next(busy) else {
                starved = true;
                break;
            };
            let fragment = front.next(agreed.max_send);
            let is_whole = front.left() == 0;
            self.queued -= fragment.len;
            let header = DataTransfer {
                remaining: wire_size(fragment.remaining),
                offset: wire_size(DATA_OFFSET),
                len: wire_size(fragment.len),
                ..DataTransfer::default()
            };
            self.send(header, grant, fragment.data, fragment.invalidate);
            if is_whole && let Some(sent) = self.queue.pop_front() {
                self.link.keep_until_sent(sent.until_left);
            }
        }
        let now = self.began.elapsed();
        self.timers.starved(starved, now);
        self.note_waiting(if starved { self.queue.len() as u64 } else { 0 });
        if self.queue.is_empty()
            && (self.answer_owed || self.ask || self.credits.is_low(busy))
            && let Some(grant) = self.credits.next(busy)
        {
            self.send(DataTransfer::default(), grant, Vec::new(), None);
        }
    }

    /// Updates the counters of waiting messages.
    fn note_waiting(&self, now: u64) {
        let traffic = &self.info.traffic;
        if now > 0 && traffic.credits_waiting.load(Ordering::Relaxed) == 0 {
            Traffic::add(&traffic.credit_waits, 1);
        }
        traffic.credits_waiting.store(now, Ordering::Relaxed);
    }

    fn send(&mut self, header: DataTransfer, grant: u16, data: Vec<Buf>, invalidate: Option<u32>) {
        let ask = std::mem::take(&mut self.ask);
        self.answer_owed = false;
        self.credits.sent(grant);
        // The granted Receives are posted before the message that grants them.
        self.link.recvs_owed += usize::from(grant);
        let header = DataTransfer {
            credits_requested: self.own.credits,
            credits_granted: grant,
            flags: if ask { RESPONSE_REQUESTED } else { 0 },
            ..header
        };
        let mut from = Vec::with_capacity(1 + data.len());
        from.push(Buf::from(header.emit()));
        from.extend(data);
        self.link.send(&self.info, from, invalidate);
    }

    /// Makes all possible progress. Ready when an event occurred; an error ends the connection.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
        self.assemble(cx);
        self.pump();
        self.link.post()?;
        if let Some(why) = self.failed.take() {
            return Poll::Ready(Err(why));
        }
        if self.refused.is_some() {
            // Posted work is still sent.
            self.link.qp.disconnect();
        }
        let mut completions = std::mem::take(&mut self.completions);
        let polled = self.link.poll(cx, &mut completions);
        if !completions.is_empty() && completions.iter().any(|c| c.kind == WorkKind::Recv) {
            self.timers.heard(self.began.elapsed());
        }
        for done in completions.drain(..) {
            match done.kind {
                WorkKind::Recv => {
                    // A failed request ends the connection; the queue pair reports that after all work was returned.
                    if let (Ok(_), Some(buf)) = (done.result, done.buf) {
                        let invalidated = u64::from(done.invalidated.is_some());
                        Traffic::add(&self.info.traffic.invalidations, invalidated);
                        self.on_message(buf);
                    }
                }
                WorkKind::Read => self.reads.push(done),
                WorkKind::Send | WorkKind::Write => {}
            }
        }
        self.completions = completions;
        self.assemble(cx);
        match polled {
            Poll::Ready(Err(why)) => Poll::Ready(Err(self.refused.take().unwrap_or(why))),
            Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
            Poll::Pending => self.poll_timers(cx),
        }
    }

    /// Called when no progress is possible: checks the timers.
    fn poll_timers(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
        loop {
            let at = self.timers.deadline();
            let (armed, timer) = self
                .timer
                .get_or_insert_with(|| (at, Box::pin(tokio::time::sleep_until(self.began + at))));
            if at < *armed {
                *armed = at;
                timer.as_mut().reset(self.began + at);
            }
            ready!(timer.as_mut().poll(cx));
            // A timer whose deadline was postponed fires at its old time and is armed again.
            *armed = at;
            timer.as_mut().reset(self.began + at);
            let now = self.began.elapsed();
            match self.timers.due(now) {
                None => {}
                Some(Due::Ask) => {
                    self.ask = true;
                    self.timers.asked(now);
                    return Poll::Ready(Ok(()));
                }
                Some(due) => {
                    let why = ChannelError::Closed(due.reason().into());
                    return Poll::Ready(Err(self.refused.take().unwrap_or(why)));
                }
            }
        }
    }
}
