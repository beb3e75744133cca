//! The server half of RPC-over-RDMA: a queue pair as a channel.
//!
//! *Operation.* A received Send is a call, the reply to a callback, or an error. A call with Read chunks is passed to the protocol
//! after they were fetched. A reply becomes RDMA Writes and one Send, posted in this order, so that the Send proves the Writes.
//! Before each reply the Receive for its credit is posted.
//!
//! *Memory.* Receives use 4 KiB buffers of a separate pool, so payload cannot take the memory that credits need. Until its client
//! has introduced itself a connection grants few credits ([`crate::receives`]). A call takes all payload buffers for its Read
//! chunks at once and never waits while it holds one; calls of one connection wait in order, and one that has waited for
//! [`limits::MEMORY_WAIT_MAX`] is passed on without its data. One whose RPC message is itself to be fetched has no answer before
//! that: after [`limits::MESSAGE_WAIT_MAX`] the connection ends. Payload is never copied: requests view the Receive or Read buffer,
//! Writes and Sends view the service's memory.
//!
//! *Errors.* A header that violates a rule is answered by RDMA_ERROR (RFC 8166 section 4.5), a limited number of times. A header
//! that cannot be answered, more calls than credits, or a failing queue pair end the connection. A reply too large for the chunks
//! of its call becomes ERR_CHUNK.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use iobuf::{Acquire, BufMut, Pay, Pool};
use tokio::sync::mpsc;

use super::check::Violation;
use super::chunks::{self, Message, ReplyChunks};
use super::credits::{Asking, Granting};
use super::fetch::Fetch;
use super::plan::{Plan, plan};
use super::wire::{Lists, Prefix, PrivateData, RDMA_MSG, RdmaError, VERSION};
use crate::calls::Calls;
use crate::channel::{
    Channel, ChannelError, Command, Handle, Info, Reply, ReplyTo, Request, Traffic,
};
use crate::link::{Half, Link};
use crate::memory_wait::MemoryWait;
use crate::receives::credits_for;
use crate::untaken::Untaken;
use crate::verbs::{Completion, ConnectParams, QueuePair, Work, WorkId, WorkKind};
use crate::{count, limits};

/// Maximum Receives posted on an idle connection: one for each credit, and one for the reply to each callback.
const RECVS: usize = (limits::RPCRDMA_CREDITS + limits::RPCRDMA_CREDITS_REVERSE) as usize;

/// A call not answered yet.
#[derive(Debug)]
struct Slot {
    prefix: Prefix,
    offer: ReplyChunks,
    /// Data still being fetched.
    fetch: Option<Fetch>,
}

/// The buffers of the next waiting call.
#[derive(Default)]
struct Buffers {
    /// The wait for a missing buffer, and its number.
    wait: Option<(usize, Acquire)>,
    /// Heap memory taken in excess that must be paid back first.
    debt: Option<Pay>,
}

/// RPC over one RDMA connection.
pub struct RdmaChannel {
    info: Arc<Info>,
    link: Link,
    /// Largest Send that the peer accepts, in bytes.
    inline_out: usize,
    /// The peer supports Send with Invalidate.
    invalidate: bool,
    credits: Granting,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// Calls ready for the protocol.
    ready: VecDeque<Request>,
    /// Calls that wait for buffers, in order.
    waiting: VecDeque<usize>,
    buffers: Buffers,
    memory_wait: MemoryWait,
    /// Bytes that RDMA Reads are fetching now.
    fetching: usize,
    completions: Vec<Completion>,
    commands: mpsc::Receiver<Command>,
    handle: Handle,
    calls: Calls,
    reverse: Asking,
    /// Replies since the connection last requested more credits.
    replies: u32,
    /// The client has introduced itself, as of the last check.
    is_known: bool,
    /// Receives are posted for replies to callbacks.
    takes_callbacks: bool,
    /// Violations answered by RDMA_ERROR.
    errors: usize,
    failed: Option<ChannelError>,
    draining: Option<ChannelError>,
    disconnected: bool,
    untaken: Untaken,
}

impl RdmaChannel {
    /// The parameters for accepting a connection of this kind.
    pub fn accept_params() -> ConnectParams {
        ConnectParams {
            private_data: PrivateData::OURS.emit().to_vec().into(),
            recvs: RECVS,
            sends: limits::RPCRDMA_SENDS_MAX,
            reads_out: limits::RPCRDMA_READS_OUT,
            // This side never offers memory for reading.
            reads_in: 0,
            recv_size: limits::RPCRDMA_INLINE,
        }
    }

    /// Wraps an accepted queue pair. `private_data` came with the peer's request, `recvs` provides receive buffers. Fails if there
    /// are no receive buffers, or if the queue pair refuses them.
    pub fn new(
        qp: Box<dyn QueuePair>,
        info: Arc<Info>,
        recvs: Pool,
        private_data: &[u8],
    ) -> Result<Self, ChannelError> {
        let peer = PrivateData::parse(private_data).unwrap_or(PrivateData::DEFAULT);
        let inline_out = peer.recv_size.min(PrivateData::OURS.send_size);
        let inline_in = limits::RPCRDMA_INLINE;
        let credits = credits_of(&info, qp.limits().recvs_max);
        let invalidation = if peer.remote_invalidation { "yes" } else { "no" };
        info.facts.note("inline", format!("{inline_in} bytes in, {inline_out} out"));
        info.facts.note("credits", credits.to_string());
        info.facts.note("remote invalidation", invalidation);
        let (sender, commands) = mpsc::channel(limits::COMMANDS_WAITING_MAX);
        Ok(Self {
            untaken: Untaken::new(info.clone()),
            info,
            link: Link::new(qp, recvs, usize::from(credits), limits::RPCRDMA_INLINE)?,
            replies: 0,
            is_known: false,
            takes_callbacks: false,
            inline_out,
            invalidate: peer.remote_invalidation,
            credits: Granting::new(credits),
            slots: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            waiting: VecDeque::new(),
            buffers: Buffers::default(),
            memory_wait: MemoryWait::default(),
            fetching: 0,
            completions: Vec::new(),
            commands,
            handle: Handle { commands: sender },
            calls: Calls::default(),
            reverse: Asking::new(limits::RPCRDMA_CREDITS_REVERSE),
            errors: 0,
            failed: None,
            draining: None,
            disconnected: false,
        })
    }

    fn take_commands(&mut self, cx: &mut Context<'_>) {
        while self.reverse.has_room() && self.calls.has_room() {
            match self.commands.poll_recv(cx) {
                Poll::Ready(Some(Command::Call { head, answer })) => {
                    let lists = Lists::default();
                    let header = super::wire::PREFIX_LEN + lists.len();
                    if header + head.len() > self.inline_out {
                        // RFC 8167 section 5: reverse-direction calls have no chunks here, so this one is too large.
                        let why = format!("a call of {} bytes exceeds the threshold", head.len());
                        drop(answer.send(Err(ChannelError::Closed(why))));
                        continue;
                    }
                    let Some((xid, head)) = self.calls.begin(head, answer) else { continue };
                    let mut message = Vec::with_capacity(header + head.len());
                    let credits = self.reverse.wanted();
                    Prefix { xid, vers: VERSION, credits, proc: RDMA_MSG }.emit(&mut message);
                    lists.emit(&mut message);
                    message.extend_from_slice(&head);
                    if !std::mem::replace(&mut self.takes_callbacks, true) {
                        self.link.recvs_owed += usize::from(limits::RPCRDMA_CREDITS_REVERSE);
                    }
                    self.reverse.begin();
                    self.link.send(&self.info, vec![message.into()], None);
                }
                // The caller may have given up.
                Poll::Ready(Some(Command::Push { taken, .. })) => {
                    let _ = taken.send(Err(ChannelError::unsupported("a push")));
                }
                Poll::Ready(Some(Command::Pull { fetched, .. })) => {
                    let _ = fetched.send(Err(ChannelError::unsupported("a pull").into()));
                }
                Poll::Ready(Some(Command::Silence { answer })) => {
                    let _ = answer.send(Err(ChannelError::unsupported("a look at the peer")));
                }
                Poll::Ready(Some(Command::Shutdown | Command::Abort { .. })) => self.shutdown(),
                Poll::Ready(None) | Poll::Pending => return,
            }
        }
    }

    /// Grants as many credits as allowed now. Their Receives are posted before the reply that announces them.
    fn grant_more(&mut self) {
        let granted = self.credits.granted();
        self.replies += 1;
        let is_known = self.info.introduction.is_done();
        let is_due = is_known && !std::mem::replace(&mut self.is_known, is_known)
            || self.replies >= limits::REPLIES_BEFORE_CREDITS;
        if granted >= u32::from(limits::RPCRDMA_CREDITS) || !is_due {
            return;
        }
        self.replies = 0;
        let allowed = credits_of(&self.info, self.link.recvs_max());
        let more = u32::from(allowed).saturating_sub(granted);
        self.link.recvs_owed += usize::try_from(more).unwrap_or(0);
        self.credits.raise(allowed);
    }

    fn send_error(&mut self, to: Prefix, error: RdmaError) {
        let message = error.answer(to, self.credits.granted());
        self.link.send(&self.info, vec![message.into()], None);
    }

    /// Handles a violation: answers it if possible, else ends the connection.
    fn on_violation(&mut self, prefix: Option<Prefix>, v: Violation) {
        let detail = v.to_string();
        self.errors += 1;
        match prefix {
            // An error is never answered by an error (RFC 8166 section 4.5).
            Some(_) if matches!(v, Violation::ErrorMalformed(_)) => {
                count::broken(v.name(), &detail, self.info.peer);
            }
            Some(prefix) if !v.is_fatal() && self.errors <= limits::RPCRDMA_ERRORS_MAX => {
                count::broken(v.name(), &detail, self.info.peer);
                let error = match v {
                    Violation::Version(_) => RdmaError::Versions { low: VERSION, high: VERSION },
                    _ => RdmaError::Chunk,
                };
                self.send_error(prefix, error);
            }
            // The receiver of the channel's error counts it.
            _ => self.failed = Some(ChannelError::Violation(v.name(), detail)),
        }
    }

    fn on_message(&mut self, buf: BufMut) {
        Traffic::add(&self.info.traffic.inline_in, buf.len() as u64);
        let message = buf.freeze();
        match chunks::parse(&message) {
            Ok((prefix, Message::Call { inline, call, reads, offer })) => {
                let inline = inline.map(|at| message.slice(at..message.len()));
                match Fetch::new(inline, call, reads) {
                    Ok(fetch) => return self.on_call(prefix, offer, fetch),
                    Err(v) => self.on_violation(Some(prefix), v),
                }
            }
            Ok((prefix, Message::ReverseReply(at))) => {
                if self.calls.end(prefix.xid, Ok(message.slice(at..message.len()))) {
                    self.reverse.end(prefix.credits);
                }
            }
            Ok((prefix, Message::Failed)) => {
                let why = ChannelError::Closed("the peer answered by RDMA_ERROR".into());
                if self.calls.end(prefix.xid, Err(why)) {
                    self.reverse.end(prefix.credits);
                }
            }
            Ok((_, Message::Done)) => {}
            Err((prefix, v)) => self.on_violation(prefix, v),
        }
        self.link.recvs_owed += 1;
    }

    fn on_call(&mut self, prefix: Prefix, offer: ReplyChunks, fetch: Fetch) {
        if let Err(v) = self.credits.begin() {
            return self.on_violation(None, v);
        }
        if self.draining.is_some() {
            // Never answered here: the client repeats it on its next connection.
            self.credits.end();
            self.link.recvs_owed += 1;
            return;
        }
        let slot = Slot { prefix, offer, fetch: Some(fetch) };
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let nothing_to_fetch = slot.fetch.as_ref().is_none_or(|f| f.wants().next().is_none());
        self.slots[index] = Some(slot);
        if nothing_to_fetch {
            self.hand_up(index);
        } else {
            self.waiting.push_back(index);
        }
    }

    fn take_slot(&mut self, index: usize) -> Option<Slot> {
        let slot = self.slots.get_mut(index)?.take()?;
        self.free.push(index);
        self.credits.end();
        self.link.recvs_owed += 1;
        Some(slot)
    }

    /// Passes a complete call to the protocol.
    fn hand_up(&mut self, index: usize) {
        let Some(Some(slot)) = self.slots.get_mut(index) else { return };
        let (Some(fetch), prefix) = (slot.fetch.take(), slot.prefix) else { return };
        match fetch.finish(prefix.xid, &self.info.pool) {
            Ok((body, read_chunks)) => {
                let reply_to = ReplyTo(index as u64);
                self.ready.push_back(Request { body, read_chunks, reply_to });
            }
            Err(v) => {
                self.take_slot(index);
                self.on_violation(Some(prefix), v);
            }
        }
    }

    /// Passes a call on without its data, for which no memory became available; the protocol answers it.
    fn refuse(&mut self, index: usize) {
        let Some(Some(slot)) = self.slots.get_mut(index) else { return };
        let Some(fetch) = slot.fetch.take() else { return };
        let (body, read_chunks) = fetch.refuse();
        self.ready.push_back(Request { body, read_chunks, reply_to: ReplyTo(index as u64) });
    }

    /// Assigns buffers to waiting calls, in order, as far as available.
    fn start_fetches(&mut self, cx: &mut Context<'_>) {
        if self.is_stuffed() {
            // A buffer assigned now would be unused as long as the peer takes no replies.
            self.buffers = Buffers::default();
            self.memory_wait.end();
            return;
        }
        if !self.ready.is_empty() {
            // Fetched calls are passed on before more are fetched.
            return;
        }
        while let Some(&index) = self.waiting.front() {
            let Some(Some(Slot { fetch: Some(fetch), .. })) = self.slots.get_mut(index) else {
                self.waiting.pop_front();
                continue;
            };
            let wanted: usize = fetch.wants().sum();
            if self.fetching > 0 && self.fetching + wanted > limits::RPCRDMA_FETCHING_MAX {
                return;
            }
            let Poll::Ready(bufs) = self.buffers.poll(fetch, &self.info, cx) else {
                // If the RPC message itself is in a chunk, the call cannot be answered without it, and waits longer.
                if !fetch.is_answerable() || self.memory_wait.poll_over(cx).is_pending() {
                    return;
                }
                self.buffers = Buffers::default();
                self.waiting.pop_front();
                self.refuse(index);
                continue;
            };
            self.memory_wait.end();
            self.fetching += wanted;
            for (part, into) in bufs.into_iter().enumerate() {
                let id = WorkId((index as u64) << 8 | part as u64);
                self.link.reads.push_back(Work::Read { id, from: fetch.source(part), into });
            }
            self.waiting.pop_front();
        }
    }

    fn on_completion(&mut self, done: Completion) {
        // A failed request ends the connection; the queue pair reports the reason after all work was returned.
        let (Ok(n), Some(buf)) = (done.result, done.buf) else { return };
        match done.kind {
            WorkKind::Recv => self.on_message(buf),
            WorkKind::Read => {
                Traffic::add(&self.info.traffic.rdma_read, n as u64);
                self.fetching = self.fetching.saturating_sub(n);
                let index = usize::try_from(done.id.0 >> 8).unwrap_or(usize::MAX);
                let part = usize::from(done.id.0.to_be_bytes()[7]);
                let slot = self.slots.get_mut(index).and_then(Option::as_mut);
                let fetch = slot.and_then(|s| s.fetch.as_mut());
                if fetch.is_some_and(|f| f.got(part, buf)) {
                    self.hand_up(index);
                }
            }
            WorkKind::Send | WorkKind::Write => {}
        }
    }

    /// Makes all possible progress. Ready when a message or an error needs the caller's attention.
    fn drive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
        loop {
            self.take_commands(cx);
            self.start_fetches(cx);
            if let Err(e) = self.link.post() {
                return Poll::Ready(Err(e));
            }
            if let Some(why) = self.failed.take() {
                return Poll::Ready(Err(why));
            }
            if let Some(why) = &self.draining
                && self.is_done()
                && !self.disconnected
            {
                tracing::debug!(peer = %self.info.peer, %why, "disconnecting");
                self.disconnected = true;
                self.link.qp.disconnect();
            }
            let mut completions = std::mem::take(&mut self.completions);
            let polled = self.link.poll(cx, &mut completions);
            self.link.tell_untaken(0, &mut self.untaken);
            for done in completions.drain(..) {
                self.on_completion(done);
            }
            self.completions = completions;
            match polled {
                Poll::Ready(Ok(())) if self.ready.is_empty() || self.is_stuffed() => {}
                Poll::Ready(Ok(())) => return Poll::Ready(Ok(())),
                Poll::Ready(Err(why)) => return Poll::Ready(Err(self.ended(why))),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// True if too many replies wait for the peer.
    fn is_stuffed(&self) -> bool {
        self.link.backlog() > limits::REPLY_BACKLOG_MAX
    }

    /// True if all calls are answered and all replies sent.
    fn is_done(&self) -> bool {
        self.credits.in_work() == 0 && self.link.is_flushed()
    }

    fn ended(&mut self, why: ChannelError) -> ChannelError {
        match self.draining.take() {
            Some(intended) if self.disconnected => intended,
            _ => why,
        }
    }

    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<ChannelError> {
        let is_waiting = self.buffers.wait.is_some() || self.buffers.debt.is_some();
        if let Poll::Ready(why) = self.memory_wait.poll_end(is_waiting, self.info.peer, cx) {
            return Poll::Ready(why);
        }
        // Calls that wait for this side's memory are not the peer's fault.
        let half = Half { is_there: self.disconnected, holds_memory: false };
        self.link.poll_stalled(half, Some(&self.info.pool), cx)
    }
}

/// The credits that a connection may grant now, on a queue pair that takes so many Receives.
fn credits_of(info: &Info, recvs_max: usize) -> u16 {
    let most = credits_for(recvs_max, limits::RPCRDMA_CREDITS_REVERSE, limits::RPCRDMA_CREDITS);
    info.receives_allowed(limits::RPCRDMA_CREDITS_FEW.min(most), most)
}

impl Buffers {
    /// Takes the buffers of a call, all at once. Holds no buffer while it waits for one.
    fn poll(&mut self, fetch: &Fetch, info: &Info, cx: &mut Context<'_>) -> Poll<Vec<BufMut>> {
        if self.wait.is_none() && (self.debt.is_some() || info.pool.is_overdrawn()) {
            ready!(Pin::new(self.debt.get_or_insert_with(|| info.pool.pay(0))).poll(cx));
            self.debt = None;
        }
        loop {
            let mut in_hand = None;
            if let Some((part, wait)) = &mut self.wait {
                let Poll::Ready(got) = Pin::new(wait).poll(cx) else { return Poll::Pending };
                // All sizes were checked against the largest buffer.
                in_hand = got.ok().map(|b| (*part, b));
                self.wait = None;
            }
            let mut bufs = Vec::with_capacity(2);
            let mut missing = None;
            for (part, len) in fetch.wants().enumerate() {
                let buf = match in_hand.take_if(|(there, _)| *there == part) {
                    Some((_, buf)) => Some(buf),
                    None => info.pool.try_get(len),
                };
                match buf {
                    Some(buf) => bufs.push(buf),
                    None => {
                        missing = Some((part, len));
                        break;
                    }
                }
            }
            let Some((part, len)) = missing else { return Poll::Ready(bufs) };
            drop((bufs, in_hand));
            self.wait = Some((part, info.pool.acquire(len, info.account)));
        }
    }
}

impl Channel for RdmaChannel {
    fn info(&self) -> &Arc<Info> {
        &self.info
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Request, ChannelError>> {
        loop {
            // A peer that does not take its replies gets no further requests executed, or its replies would exhaust the pool.
            if !self.is_stuffed()
                && let Some(request) = self.ready.pop_front()
            {
                return Poll::Ready(Ok(request));
            }
            match self.drive(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                // Refused just now for lack of memory.
                Poll::Pending if !self.ready.is_empty() && !self.is_stuffed() => {}
                Poll::Pending => return self.poll_stalled(cx).map(Err),
            }
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
        loop {
            match self.drive(cx) {
                // Requests stay in their queue, which the credits limit.
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending if self.link.is_flushed() => {
                    return Poll::Ready(Ok(()));
                }
                Poll::Pending => return self.poll_stalled(cx).map(Err),
            }
        }
    }

    fn reply(&mut self, to: ReplyTo, reply: Option<Reply>) {
        let Some(slot) = usize::try_from(to.0).ok().and_then(|index| self.take_slot(index)) else {
            debug_assert!(false, "each request is answered once");
            return;
        };
        let Some(mut reply) = reply else { return };
        let until_left = reply.until_left.take();
        self.grant_more();
        let Slot { prefix, mut offer, .. } = slot;
        let invalidate = offer.invalidate.take().filter(|_| self.invalidate);
        match plan(prefix.xid, self.credits.granted(), offer, reply, self.inline_out) {
            Ok(p) => {
                let Plan { writes, send } = p;
                self.link.write(&self.info, writes);
                self.link.send(&self.info, send, invalidate);
                self.link.keep_until_sent(until_left);
                self.link.tell_untaken(0, &mut self.untaken);
            }
            Err(why) => {
                tracing::debug!(peer = %self.info.peer, xid = prefix.xid, ?why, "no room for a reply");
                self.send_error(prefix, RdmaError::Chunk);
            }
        }
    }

    fn handle(&self) -> Handle {
        self.handle.clone()
    }

    fn shutdown(&mut self) {
        if self.draining.is_none() {
            self.draining = Some(ChannelError::Closed("by this side".into()));
        }
    }
}
