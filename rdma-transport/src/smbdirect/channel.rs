//! The server's side of SMB Direct (the acceptor of MS-SMBD), as a channel.
//!
//! *Operation.* The port handles negotiation, fragments and credits. Requests are complete when passed on. A reply becomes RDMA
//! Writes into the regions named in its request, then Sends. [`Handle::pull`] becomes RDMA Reads; [`Handle::push`] queues a message
//! with the replies.
//!
//! *Memory.* See `port` and `pulls`. While more than [`limits::REPLY_BACKLOG_MAX`] bytes of replies wait for the peer, no request
//! is passed on, no data is fetched and pushes wait.
//!
//! *Errors.* The errors of the port, and a peer that makes no progress for [`limits::STALL_SECONDS_MAX`].

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use iobuf::Pool;
use tokio::sync::mpsc;

use super::port::{Port, params};
use super::pulls::Pulls;
use crate::channel::{
    Channel, ChannelError, Command, Handle, Info, PayloadLocator, Reply, ReplyTo, Request,
};
use crate::limits;
use crate::untaken::Untaken;
use crate::verbs::{ConnectParams, QueuePair};

/// Private data of an iWARP initiator that sends IRD and ORD there instead of in MPA's fields: two 32-bit words.
const LEGACY_DEPTHS_LEN: usize = 8;

/// SMB over one RDMA connection.
pub struct SmbDirectChannel {
    port: Port,
    pulls: Pulls,
    commands: mpsc::Receiver<Command>,
    handle: Handle,
    /// Requests passed on and not answered.
    in_work: usize,
    next_request: u64,
    draining: Option<ChannelError>,
    disconnected: bool,
    untaken: Untaken,
}

impl SmbDirectChannel {
    /// The parameters for accepting a connection of this kind, with `private_data` from the peer. SMB Direct defines no private
    /// data; Linux' iWARP initiators send their depths there, and expect ours in the same form, in network order.
    pub fn accept_params(private_data: &[u8]) -> ConnectParams {
        let reads_out = limits::SMBD_READS_OUT;
        let mut depths = Bytes::new();
        if private_data.len() == LEGACY_DEPTHS_LEN {
            // This side never offers memory for reading, but zero would mean "not specified".
            let words = [1, u32::from(reads_out)].map(u32::to_be_bytes);
            depths = words.concat().into();
        }
        ConnectParams { private_data: depths, reads_out, ..params() }
    }

    /// Wraps an accepted queue pair. `recvs` provides receive buffers. Fails if there are none, or if the queue pair refuses them.
    pub fn new(qp: Box<dyn QueuePair>, info: Arc<Info>, recvs: Pool) -> Result<Self, ChannelError> {
        let (sender, commands) = mpsc::channel(limits::COMMANDS_WAITING_MAX);
        Ok(Self {
            untaken: Untaken::new(info.clone()),
            port: Port::acceptor(qp, info, recvs)?,
            pulls: Pulls::default(),
            commands,
            handle: Handle { commands: sender },
            in_work: 0,
            next_request: 0,
            draining: None,
            disconnected: false,
        })
    }

    /// Messages in fragments whose bulk data this finds are handed up without it where no memory comes for them in time.
    pub fn locating(mut self, locate: Arc<dyn PayloadLocator>) -> Self {
        self.port.locate(locate);
        self
    }

    fn take_commands(&mut self, cx: &mut Context<'_>) {
        while self.pulls.has_room() && !self.is_stuffed() {
            // The caller may have given up.
            match self.commands.poll_recv(cx) {
                Poll::Ready(Some(Command::Push { message, taken })) => {
                    self.port.push(message);
                    let _ = taken.send(Ok(()));
                }
                Poll::Ready(Some(Command::Pull { from, fetched })) => self.pulls.ask(from, fetched),
                Poll::Ready(Some(Command::Call { answer, .. })) => {
                    let _ = answer.send(Err(ChannelError::unsupported("a callback")));
                }
                Poll::Ready(Some(Command::Silence { answer })) => {
                    let _ = answer.send(Err(ChannelError::unsupported("a look at the peer")));
                }
                Poll::Ready(Some(Command::Shutdown | Command::Abort { .. })) => self.shutdown(),
                Poll::Ready(None) | Poll::Pending => return,
            }
        }
    }

    /// True if too many replies wait for the peer.
    fn is_stuffed(&self) -> bool {
        self.port.backlog() > limits::REPLY_BACKLOG_MAX
    }

    /// Makes all possible progress. Ready when a request may be available.
    fn drive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
        loop {
            self.take_commands(cx);
            if self.is_stuffed() {
                self.pulls.pause();
            } else {
                self.pulls.start(&self.port.info, &mut self.port.link.reads, cx);
            }
            if let Some(why) = &self.draining
                && self.in_work == 0
                && self.port.is_flushed()
                && !self.disconnected
            {
                tracing::debug!(peer = %self.port.info.peer, %why, "disconnecting");
                self.disconnected = true;
                self.port.link.qp.disconnect();
            }
            let polled = self.port.poll(cx);
            self.port.tell_untaken(&mut self.untaken);
            for done in self.port.reads.drain(..) {
                self.pulls.done(&self.port.info, done);
            }
            match polled {
                Poll::Ready(Ok(())) if !self.port.is_ready() || self.is_stuffed() => {}
                Poll::Ready(Ok(())) => return Poll::Ready(Ok(())),
                Poll::Ready(Err(why)) => return Poll::Ready(Err(self.ended(why))),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn ended(&mut self, why: ChannelError) -> ChannelError {
        match self.draining.take() {
            Some(intended) if self.disconnected => intended,
            _ => why,
        }
    }

    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<ChannelError> {
        let is_reading = self.draining.is_none() && !self.is_stuffed();
        self.port.poll_stalled(is_reading, self.disconnected, cx)
    }
}

impl Channel for SmbDirectChannel {
    fn info(&self) -> &Arc<Info> {
        &self.port.info
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Request, ChannelError>> {
        loop {
            while !self.is_stuffed()
                && let Some((body, read_chunks)) = self.port.pop()
            {
                if self.draining.is_some() {
                    // Never answered here: the client repeats it on its next connection.
                    continue;
                }
                self.in_work += 1;
                self.next_request += 1;
                let reply_to = ReplyTo(self.next_request);
                return Poll::Ready(Ok(Request { body, read_chunks, reply_to }));
            }
            match self.drive(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                // A request was completed just now, when memory became available or replies were sent.
                Poll::Pending if self.port.is_ready() && !self.is_stuffed() => {}
                Poll::Pending => return self.poll_stalled(cx).map(Err),
            }
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
        loop {
            match self.drive(cx) {
                // Requests stay in their queue, and their Receives are not granted again.
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending if self.port.is_flushed() => return Poll::Ready(Ok(())),
                Poll::Pending => return self.poll_stalled(cx).map(Err),
            }
        }
    }

    fn reply(&mut self, _to: ReplyTo, reply: Option<Reply>) {
        self.in_work = self.in_work.saturating_sub(1);
        if let Some(reply) = reply {
            self.port.push(reply);
            self.port.tell_untaken(&mut self.untaken);
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
