//! SMB over RDMA as a channel: the acceptor of MS-SMBD.
//!
//! *Operation.* Negotiation, fragments and credits are the port's. Requests are handed up whole. A reply becomes RDMA Writes
//! into the regions that its request named, then Sends. [`Handle::pull`] becomes RDMA Reads; [`Handle::push`] joins the
//! replies.
//!
//! *Memory.* See `port` and `pulls`. Over [`limits::REPLY_BACKLOG_MAX`] bytes of replies that the peer does not take, no
//! further request is handed up, nothing is fetched and nobody may push.
//!
//! *Errors.* Those of the port, and a peer that makes no progress for [`limits::STALL_SECONDS_MAX`].

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use iobuf::Pool;
use tokio::sync::mpsc;

use super::port::{Port, params};
use super::pulls::Pulls;
use crate::channel::{Channel, ChannelError, Command, Handle, Info, Reply, ReplyTo, Request};
use crate::limits;
use crate::untaken::Untaken;
use crate::verbs::{ConnectParams, QueuePair};

/// Private data of an iWARP initiator that says its IRD and ORD there instead of in MPA's own words: two of 32 bits.
const LEGACY_DEPTHS_LEN: usize = 8;

/// SMB over one RDMA connection.
pub struct SmbDirectChannel {
    port: Port,
    pulls: Pulls,
    commands: mpsc::Receiver<Command>,
    handle: Handle,
    /// Requests handed up and not answered.
    in_work: usize,
    next_request: u64,
    draining: Option<ChannelError>,
    disconnected: bool,
    untaken: Untaken,
}

impl SmbDirectChannel {
    /// What to tell a provider when a connection for such a channel is accepted, of which the peer's private data is
    /// `private_data`. SMB Direct has none of its own; the iWARP initiators of Linux say their depths there, and expect ours in
    /// the same place, in network order.
    pub fn accept_params(private_data: &[u8]) -> ConnectParams {
        let reads_out = limits::SMBD_READS_OUT;
        let mut depths = Bytes::new();
        if private_data.len() == LEGACY_DEPTHS_LEN {
            // Nothing of this side is ever offered for reading, but zero would be taken for "not said".
            let words = [1, u32::from(reads_out)].map(u32::to_be_bytes);
            depths = words.concat().into();
        }
        ConnectParams { private_data: depths, reads_out, ..params() }
    }

    /// Takes over an accepted queue pair. `recvs` lends receive buffers. The error says that there is none, or that the queue
    /// pair does not take it.
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

    fn take_commands(&mut self, cx: &mut Context<'_>) {
        while self.pulls.has_room() && !self.is_stuffed() {
            // Whoever asked may have given up.
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

    /// More replies wait to be taken than may.
    fn is_stuffed(&self) -> bool {
        self.port.backlog() > limits::REPLY_BACKLOG_MAX
    }

    /// Moves everything that can move. Ready when a request may be there.
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
                && let Some(body) = self.port.pop()
            {
                if self.draining.is_some() {
                    // Never answered here: the client asks again on its next connection.
                    continue;
                }
                self.in_work += 1;
                self.next_request += 1;
                let reply_to = ReplyTo(self.next_request);
                return Poll::Ready(Ok(Request { body, read_chunks: Vec::new(), reply_to }));
            }
            match self.drive(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                // Put together on the way, when memory came for it or replies left.
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
