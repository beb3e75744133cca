//! The client half of RPC-over-RDMA over a queue pair.
//!
//! *Operation.* A call that fits is one Send. Otherwise its bulk arguments become Read chunks, and a message that is still too long
//! becomes a Position Zero Read chunk. For large results a Write chunk is offered, for large replies a Reply chunk. Calls beyond
//! the server's credits wait in order.
//!
//! *Memory.* Arguments are registered in place, results arrive in a pool buffer for which the call has waited. All registrations of
//! a call are released with its reply, whether or not the server invalidated them.
//!
//! *Errors.* RDMA_ERROR fails its call. The connection ends if the server violates a rule, returns other chunks than offered, or
//! fails.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use iobuf::{Acquire, Buf, BufMut, Pool};

use super::answer::{self, FromServer};
use super::check::Violation;
use super::credits::{Asking, Granting};
use super::wire::{
    Lists, PREFIX_LEN, Prefix, PrivateData, RDMA_MSG, RDMA_NOMSG, RdmaError, ReadSeg, VERSION,
};
use crate::caller::{Answer, BulkResult, Call, Caller, Event};
use crate::channel::{ChannelError, Info, Payload, Place, ReadChunkData, RemoteSeg, Traffic};
use crate::limits;
use crate::link::{Half, Link};
use crate::moves::pieces;
use crate::receives::credits_for;
use crate::verbs::{Completion, ConnectParams, QueuePair, Refused, Region, WorkKind};

const RECVS: usize = (limits::RPCRDMA_CREDITS + limits::RPCRDMA_CREDITS_REVERSE) as usize;

/// A call in progress.
struct Outstanding {
    offered: Lists,
    bulk: Option<BulkResult>,
    /// Bytes that the server reads.
    reads: usize,
}

/// Calls over one RDMA connection.
pub struct RdmaCaller {
    info: Arc<Info>,
    link: Link,
    inline_out: usize,
    inline_in: usize,
    credits: Asking,
    /// Callbacks not answered yet.
    reverse: Granting,
    queue: VecDeque<Call>,
    /// The buffer for the bulk result of the first queued call.
    wait: Option<Acquire>,
    outstanding: HashMap<u32, Outstanding>,
    completions: Vec<Completion>,
    events: VecDeque<Event>,
    failed: Option<ChannelError>,
    strays: u64,
}

impl RdmaCaller {
    /// The parameters for dialling a connection of this kind.
    pub fn connect_params() -> ConnectParams {
        let ours = PrivateData { remote_invalidation: true, ..PrivateData::OURS };
        ConnectParams {
            private_data: ours.emit().to_vec().into(),
            recvs: RECVS,
            sends: limits::RPCRDMA_SENDS_MAX,
            // A client offers memory but never accesses the peer's (RFC 8166 section 3.2).
            reads_out: 0,
            reads_in: limits::RPCRDMA_READS_OUT,
            recv_size: limits::RPCRDMA_INLINE,
        }
    }

    /// Wraps a dialled queue pair. `private_data` is the server's answer, `recvs` provides receive buffers.
    pub fn new(
        qp: Box<dyn QueuePair>,
        info: Arc<Info>,
        recvs: Pool,
        private_data: &[u8],
    ) -> Result<Self, ChannelError> {
        let count = RECVS.min(qp.limits().recvs_max);
        let wanted = credits_for(count, limits::RPCRDMA_CREDITS_REVERSE, limits::RPCRDMA_CREDITS);
        let server = PrivateData::parse(private_data).unwrap_or(PrivateData::DEFAULT);
        Ok(Self {
            info,
            link: Link::new(qp, recvs, count, limits::RPCRDMA_INLINE)?,
            inline_out: server.recv_size.min(PrivateData::OURS.send_size),
            inline_in: server.send_size.min(PrivateData::OURS.recv_size),
            credits: Asking::new(wanted),
            reverse: Granting::new(limits::RPCRDMA_CREDITS_REVERSE),
            queue: VecDeque::new(),
            wait: None,
            outstanding: HashMap::new(),
            completions: Vec::new(),
            events: VecDeque::new(),
            failed: None,
            strays: 0,
        })
    }

    /// Number of replies without a waiting call.
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// Sends queued calls that have credit and memory, in order.
    fn start_calls(&mut self, cx: &mut Context<'_>) {
        while self.credits.has_room() {
            let Some(call) = self.queue.front() else { return };
            let bulk =
                call.bulk.filter(|b| b.max > 0 && self.reply_len(call, b.max) > self.inline_in);
            let into = match bulk {
                None => None,
                Some(b) => {
                    let (pool, account) = (&self.info.pool, self.info.account);
                    let wait = self.wait.get_or_insert_with(|| pool.acquire(b.max, account));
                    let Poll::Ready(got) = Pin::new(wait).poll(cx) else { return };
                    self.wait = None;
                    match got {
                        Ok(buf) => Some(buf),
                        Err(e) => {
                            let xid = call.xid();
                            self.queue.pop_front();
                            self.fail(xid, e.to_string());
                            continue;
                        }
                    }
                }
            };
            let Some(call) = self.queue.pop_front() else { return };
            match self.start(&call, into) {
                Ok(()) => {}
                Err(Refused::Full) if !self.outstanding.is_empty() => {
                    // Calls in progress return memory with their replies.
                    self.queue.push_front(call);
                    return;
                }
                Err(why) => self.fail(call.xid(), format!("memory is not taken: {why:?}")),
            }
        }
    }

    fn fail(&mut self, xid: u32, why: String) {
        self.events.push_back(Event::Refused(xid, ChannelError::Closed(why)));
    }

    /// Bytes of the reply as a single Send, with `bulk` bytes inline.
    fn reply_len(&self, call: &Call, bulk: usize) -> usize {
        PREFIX_LEN + Lists::default().len() + call.reply_max + bulk.next_multiple_of(4)
    }

    fn start(&mut self, call: &Call, bulk_into: Option<BufMut>) -> Result<(), Refused> {
        let mut lists = Lists::default();
        let made = self.offer(call, bulk_into, &mut lists);
        let made = made.and_then(|()| self.message(call, &mut lists));
        let (message, proc, reads) = match made {
            Ok(made) => made,
            Err(why) => {
                self.take_back(&lists);
                return Err(why);
            }
        };
        let xid = call.xid();
        let mut header = Vec::with_capacity(PREFIX_LEN + lists.len());
        Prefix { xid, vers: VERSION, credits: self.credits.wanted(), proc }.emit(&mut header);
        lists.emit(&mut header);
        let mut send = vec![Buf::from(header)];
        send.extend(message);
        self.credits.begin();
        Traffic::add(&self.info.traffic.requests, 1);
        self.outstanding.insert(xid, Outstanding { offered: lists, bulk: call.bulk, reads });
        self.link.send(&self.info, send, None);
        Ok(())
    }

    /// Creates Write chunk and Reply chunk.
    fn offer(
        &mut self,
        call: &Call,
        bulk_into: Option<BufMut>,
        lists: &mut Lists,
    ) -> Result<(), Refused> {
        if let (Some(into), Some(bulk)) = (bulk_into, call.bulk) {
            let mut segment = self.register(Region::Writable(into))?;
            segment.len = segment.len.min(u32::try_from(bulk.max).unwrap_or(u32::MAX));
            lists.writes.push(vec![segment]);
        }
        if PREFIX_LEN + lists.len() + call.reply_max > self.inline_in {
            let segment = self.register(Region::Writable(BufMut::heap(call.reply_max)))?;
            lists.reply = Some(vec![segment]);
        }
        Ok(())
    }

    /// Builds the data after the header, and returns it with the header's procedure and the bytes that the server will read. Adds
    /// Read chunks.
    fn message(
        &mut self,
        call: &Call,
        lists: &mut Lists,
    ) -> Result<(Vec<Buf>, u32, usize), Refused> {
        let len = |p: &Payload| p.len() + usize::from(p.pad);
        let inline: usize = call.head.len() + call.payloads.iter().map(len).sum::<usize>();
        let fits = PREFIX_LEN + lists.len() + inline <= self.inline_out;
        let (mut stay, mut reads, mut before) = (Vec::new(), 0, 0);
        for payload in &call.payloads {
            // Positions refer to the message with all its bulk data (RFC 8166 section 3.4.5).
            let position = payload.at + before;
            before += len(payload);
            if fits || payload.place != Place::Eligible {
                stay.push(payload.clone());
                continue;
            }
            reads += payload.len();
            self.readable(position, &payload.data, lists)?;
        }
        let message = pieces(Buf::from(call.head.clone()), 0, stay);
        let inline: usize = message.iter().map(Buf::len).sum();
        if PREFIX_LEN + lists.len() + inline <= self.inline_out {
            return Ok((message, RDMA_MSG, reads));
        }
        self.readable(0, &message, lists)?;
        Ok((Vec::new(), RDMA_NOMSG, reads + inline))
    }

    fn readable(&mut self, at: usize, data: &[Buf], lists: &mut Lists) -> Result<(), Refused> {
        let position = u32::try_from(at).map_err(|_| Refused::Invalid)?;
        for buf in data.iter().filter(|b| !b.is_empty()) {
            let target = self.register(Region::Readable(buf.clone()))?;
            lists.reads.push(ReadSeg { position, target });
        }
        Ok(())
    }

    fn register(&mut self, region: Region) -> Result<RemoteSeg, Refused> {
        self.link.qp.register(region).map_err(|(why, _)| why)
    }

    /// Releases the registrations of a call: the memory of its Write chunk and of its Reply chunk.
    fn take_back(&mut self, offered: &Lists) -> (Option<BufMut>, Option<BufMut>) {
        for read in &offered.reads {
            self.link.qp.release(read.target.handle);
        }
        let mut writable = |chunk: Option<&Vec<RemoteSeg>>| {
            let handle = chunk?.first()?.handle;
            match self.link.qp.release(handle)? {
                Region::Writable(b) => Some(b),
                Region::Readable(_) => None,
            }
        };
        (writable(offered.writes.first()), writable(offered.reply.as_ref()))
    }

    fn on_message(&mut self, buf: BufMut) -> Result<(), Violation> {
        Traffic::add(&self.info.traffic.inline_in, buf.len() as u64);
        let message = buf.freeze();
        let (prefix, from) = answer::parse(&message)?;
        if let FromServer::Callback(at) = from {
            // The Receive of a callback is posted again with its answer.
            self.reverse.begin()?;
            self.events.push_back(Event::Callback(message.slice(at..message.len())));
            return Ok(());
        }
        self.link.recvs_owed += 1;
        let Some(call) = self.outstanding.remove(&prefix.xid) else {
            self.strays += 1;
            return Ok(());
        };
        self.credits.end(prefix.credits);
        let (bulk, reply) = self.take_back(&call.offered);
        match from {
            FromServer::Reply(at, lists) => {
                answer::check(&call.offered, &lists)?;
                let inline = at.map(|at| message.slice(at..message.len()));
                self.finish(prefix.xid, call, &lists, inline, bulk, reply)
            }
            FromServer::Failed(error) => {
                let why = match error {
                    RdmaError::Chunk => "RDMA_ERROR: ERR_CHUNK".into(),
                    RdmaError::Versions { low, high } => {
                        format!("RDMA_ERROR: ERR_VERS, versions {low} to {high}")
                    }
                };
                self.fail(prefix.xid, why);
                Ok(())
            }
            FromServer::Callback(_) => Ok(()),
        }
    }

    fn finish(
        &mut self,
        xid: u32,
        call: Outstanding,
        returned: &Lists,
        inline: Option<Buf>,
        bulk: Option<BufMut>,
        reply: Option<BufMut>,
    ) -> Result<(), Violation> {
        let filled = |chunk: Option<&Vec<RemoteSeg>>, buf: Option<BufMut>| {
            let len = chunk?.first().and_then(|s| usize::try_from(s.len).ok())?;
            let mut buf = buf.filter(|_| len > 0)?;
            buf.set_filled(len);
            Some(buf.freeze())
        };
        let bulk = filled(returned.writes.first(), bulk);
        let long = filled(returned.reply.as_ref(), reply);
        let written = [&bulk, &long].into_iter().flatten().map(Buf::len).sum::<usize>();
        Traffic::add(&self.info.traffic.rdma_write, written as u64);
        Traffic::add(&self.info.traffic.rdma_read, call.reads as u64);
        let body = inline.or(long).ok_or(Violation::MessageShort)?;
        match crate::calls::xid_and_is_reply(&body) {
            Some((there, true)) if there == xid => {}
            Some(_) => return Err(Violation::XidMismatch),
            None => return Err(Violation::MessageShort),
        }
        let read_chunks = bulk.map(|data| {
            let found = call.bulk.and_then(|b| (b.locate)(&body));
            let (at, len) = found.unwrap_or((body.len(), data.len()));
            ReadChunkData { at, data: vec![data.slice(0..len)] }
        });
        let read_chunks = read_chunks.into_iter().collect();
        self.events.push_back(Event::Answer(xid, Answer { body, read_chunks }));
        Ok(())
    }

    fn on_completion(&mut self, done: Completion) {
        let (Ok(_), Some(buf), WorkKind::Recv) = (done.result, done.buf, done.kind) else { return };
        if let Err(v) = self.on_message(buf) {
            self.failed = Some(ChannelError::Violation(v.name(), v.to_string()));
        }
    }

    /// Ready when an event may be available.
    fn drive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
        self.start_calls(cx);
        self.link.post()?;
        if let Some(why) = self.failed.take() {
            return Poll::Ready(Err(why));
        }
        if !self.events.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let mut completions = std::mem::take(&mut self.completions);
        let polled = self.link.poll(cx, &mut completions);
        for done in completions.drain(..) {
            self.on_completion(done);
        }
        self.completions = completions;
        ready!(polled)?;
        Poll::Ready(Ok(()))
    }
}

impl Caller for RdmaCaller {
    fn info(&self) -> &Arc<Info> {
        &self.info
    }

    fn call(&mut self, call: Call) {
        self.queue.push_back(call);
    }

    fn answer(&mut self, reply: Vec<u8>) {
        self.reverse.end();
        self.link.recvs_owed += 1;
        let lists = Lists::default();
        let xid = reply.first_chunk().map_or(0, |x| u32::from_be_bytes(*x));
        let mut message = Vec::with_capacity(PREFIX_LEN + lists.len() + reply.len());
        let credits = self.reverse.granted();
        Prefix { xid, vers: VERSION, credits, proc: RDMA_MSG }.emit(&mut message);
        lists.emit(&mut message);
        message.extend_from_slice(&reply);
        self.link.send(&self.info, vec![message.into()], None);
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, ChannelError>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Poll::Ready(Ok(event));
            }
            match self.drive(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending => return self.link.poll_stalled(Half::default(), None, cx).map(Err),
            }
        }
    }
}
