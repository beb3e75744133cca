//! A byte stream as a channel.
//!
//! *Operation.* [`TcpChannel::poll_recv`] passes on received records, then sends queued replies, then reads. The replies to all
//! requests of one read are therefore sent together. RPC messages of type REPLY answer the callbacks of [`Handle::call`]; one
//! without a waiting caller is counted and dropped. SMB messages of [`Handle::push`] are queued with the replies.
//!
//! *Memory.* See [`super::recv`]. While the socket does not take more than [`limits::UNTAKEN_MAX`] bytes of replies, reads wait
//! before they take memory; above [`limits::REPLY_BACKLOG_MAX`] bytes the socket is not read.
//!
//! A reply that [starts TLS](Reply::starts_tls) is the last in clear: no record is processed until the handshake is complete.
//!
//! *Errors.* Invalid record marks end the connection, as does a peer that makes no progress for [`limits::STALL_SECONDS_MAX`] with
//! a message half sent or half received, or for a shorter time while it occupies contended memory. Progress is counted separately
//! for each direction: incoming calls do not excuse replies that are not taken. A request that waits too long for memory, and that
//! no answer fits before it is read, ends it as well; this is not counted as the peer's fault.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use audit::PeerText;
use iobuf::Pool;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::framing::{Framing, Violation};
use super::recv::{Receiver, Record};
use super::send::Sender;
use super::stream::Stream;
use crate::calls::{Calls, xid_and_is_reply};
use crate::channel::{
    Channel, ChannelError, Command, Facts, Handle, Info, PayloadLocator, Reply, ReplyTo, Request,
    Traffic,
};
use crate::limits;
use crate::refused::{self, Refused};
use crate::stall::{Stall, Stalled};
use crate::tls;
use crate::untaken::Untaken;

/// The rule violated by an invalid TLS handshake or record.
pub const TLS_HANDSHAKE: &str = "tls-handshake";
/// The remedy, unless a certificate was the cause.
const HANDSHAKE_REMEDY: &str =
    "look at what `tlshd` of the client says: it proposed TLS and did not make it";

/// RPC or SMB over one TCP connection.
pub struct TcpChannel {
    info: Arc<Info>,
    framing: Framing,
    locate: Arc<dyn PayloadLocator>,
    stream: Stream,
    recv: Receiver,
    send: Sender,
    commands: mpsc::Receiver<Command>,
    handle: Handle,
    calls: Calls,
    /// Requests passed on and not answered.
    in_work: usize,
    next_request: u64,
    /// The reason why no more requests are accepted.
    draining: Option<ChannelError>,
    /// The reason to end with the next poll.
    aborted: Option<ChannelError>,
    /// Detects replies that the peer does not take.
    sending: Stall,
    /// Detects a record that the peer does not complete.
    receiving: Stall,
    untaken: Untaken,
    /// The peer's next bytes belong to a TLS handshake.
    is_starting_tls: bool,
}

impl TcpChannel {
    /// Wraps a connected stream. `recvs` provides receive buffers (4 KiB and 64 KiB), `locate` locates bulk data, `framing` selects
    /// the protocol.
    pub fn new(
        stream: TcpStream,
        info: Arc<Info>,
        recvs: Pool,
        locate: Arc<dyn PayloadLocator>,
        framing: Framing,
    ) -> io::Result<Self> {
        crate::socket::tune(&stream)?;
        let (sender, commands) = mpsc::channel(limits::COMMANDS_WAITING_MAX);
        info.takes_pages.store(true, Ordering::Relaxed);
        Ok(Self {
            recv: Receiver::new(info.clone(), recvs, framing),
            untaken: Untaken::new(info.clone()),
            info,
            framing,
            locate,
            stream: Stream::plain(stream),
            is_starting_tls: false,
            send: Sender::new(framing),
            commands,
            handle: Handle { commands: sender },
            calls: Calls::default(),
            in_work: 0,
            next_request: 0,
            draining: None,
            aborted: None,
            sending: Stall::default(),
            receiving: Stall::default(),
        })
    }

    fn take_commands(&mut self, cx: &mut Context<'_>) {
        while self.calls.has_room() && !self.is_stuffed() {
            match self.commands.poll_recv(cx) {
                Poll::Ready(Some(Command::Call { answer, .. }))
                    if self.framing == Framing::Direct =>
                {
                    // Here and below, the caller may have given up.
                    let _ = answer.send(Err(ChannelError::unsupported("a callback")));
                }
                Poll::Ready(Some(Command::Push { taken, .. }))
                    if self.framing == Framing::Record =>
                {
                    let _ = taken.send(Err(ChannelError::unsupported("a push")));
                }
                Poll::Ready(Some(Command::Push { message, taken })) => {
                    self.send.push(message);
                    let _ = taken.send(Ok(()));
                }
                Poll::Ready(Some(Command::Pull { fetched, .. })) => {
                    let _ = fetched.send(Err(ChannelError::unsupported("RDMA Read").into()));
                }
                Poll::Ready(Some(Command::Call { head, answer })) => {
                    if let Some((_, head)) = self.calls.begin(head, answer) {
                        self.send.push(Reply::of(head));
                    }
                }
                Poll::Ready(Some(Command::Silence { answer })) => {
                    let _ =
                        answer.send(crate::socket::silence(self.stream.socket()).map_err(closed));
                }
                Poll::Ready(Some(Command::Shutdown)) => self.shutdown(),
                Poll::Ready(Some(Command::Abort { why })) => {
                    // Sends a reset: an orderly end would be queued behind unacknowledged data.
                    let _ = socket2::SockRef::from(self.stream.socket())
                        .set_linger(Some(Duration::ZERO));
                    self.aborted.get_or_insert(ChannelError::Closed(why));
                }
                Poll::Ready(None) | Poll::Pending => return,
            }
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
        let mut left = 0;
        let sent = self.send.poll_flush(&mut self.stream, cx, &mut left);
        if left > 0 {
            self.sending.progress(left);
            Traffic::add(&self.info.traffic.inline_out, left as u64);
        }
        let refused = if sent.is_pending() { self.send.waiting() } else { 0 };
        self.untaken.tell(left, refused, limits::UNTAKEN_MAX);
        sent.map_err(closed)
    }

    /// Passes a record on as a request; `None` if it was the reply to a callback.
    fn route(&mut self, record: Record) -> Option<Request> {
        if self.framing == Framing::Record
            && let Some((xid, true)) = xid_and_is_reply(&record.body)
        {
            self.calls.end(xid, Ok(record.body));
            return None;
        }
        self.in_work += 1;
        self.next_request += 1;
        let reply_to = ReplyTo(self.next_request);
        Some(Request { body: record.body, read_chunks: record.read_chunks, reply_to })
    }

    /// True if too many replies wait for the peer: reads and pushes then wait.
    fn is_stuffed(&self) -> bool {
        self.send.waiting() > limits::REPLY_BACKLOG_MAX
    }

    fn poll_drained(&mut self, why: ChannelError) -> Poll<Result<Request, ChannelError>> {
        if self.in_work == 0 && self.send.waiting() == 0 {
            return Poll::Ready(Err(why));
        }
        Poll::Pending
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Request, ChannelError>> {
        loop {
            let stuffed = self.is_stuffed();
            self.take_commands(cx);
            if let Some(why) = self.aborted.take() {
                return Poll::Ready(Err(why));
            }
            // Bulk data is sent while it is still in the processor's cache, so that the peer can begin to process it.
            if self.send.waiting() > limits::REPLY_GATHER_MAX
                && let Poll::Ready(Err(e)) = self.poll_send(cx)
            {
                return Poll::Ready(Err(e));
            }
            if self.is_starting_tls
                && self.draining.is_none()
                && let Err(e) = ready!(self.poll_tls(cx))
            {
                return Poll::Ready(Err(e));
            }
            if self.draining.is_none() && !self.is_stuffed() {
                match self.recv.next_record(&*self.locate) {
                    Ok(Some(record)) => match self.route(record) {
                        Some(request) => return Poll::Ready(Ok(request)),
                        None => continue,
                    },
                    Ok(None) => {}
                    Err(v) => return Poll::Ready(Err(violation(v))),
                }
            }
            if let Poll::Ready(Err(e)) = self.poll_send(cx) {
                return Poll::Ready(Err(e));
            }
            if let Some(why) = self.draining.clone() {
                return self.poll_drained(why);
            }
            if self.is_stuffed() {
                return Poll::Pending;
            }
            if stuffed {
                // Waiting pushes have room again.
                continue;
            }
            if ready!(self.recv.poll_pay(Some(&*self.locate), cx)) {
                continue;
            }
            match self.recv.poll_fill(&mut self.stream, cx) {
                Poll::Ready(Ok(0)) => {
                    self.draining = Some(self.end_of_stream());
                    // No reply will arrive; a request in progress may be waiting for one.
                    self.calls = Calls::default();
                }
                Poll::Ready(Ok(n)) => self.receiving.progress(n),
                Poll::Ready(Err(e)) => return Poll::Ready(Err(self.failed(&e))),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn failed(&self, e: &io::Error) -> ChannelError {
        match e.kind() {
            io::ErrorKind::InvalidData if self.stream.has_tls() => {
                ChannelError::Violation(TLS_HANDSHAKE, e.to_string())
            }
            _ => ChannelError::Closed(e.to_string()),
        }
    }

    /// Sends the reply to AUTH_TLS, then performs the handshake (RFC 9289 section 4.1).
    fn poll_tls(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
        if !self.stream.has_tls() {
            ready!(self.poll_send(cx))?;
            // The reply contained STARTTLS because TLS is available.
            let begun = self.info.tls.begin();
            let begun = begun.map_err(|e| ChannelError::Closed(format!("TLS: {e}")))?;
            let Some(came) = self.recv.take_held() else {
                let what = "a call in clear is still on its way".to_owned();
                return Poll::Ready(Err(ChannelError::Violation(TLS_HANDSHAKE, what)));
            };
            self.stream.start_tls(begun.into(), &came);
        }
        match ready!(self.stream.poll_handshake(cx)) {
            Ok(done) => {
                if let Some(done) = done {
                    let protection = self.info.tls.agreed(done);
                    self.info.facts.note(Facts::PROTECTION, protection);
                    audit::record(|| {
                        let agreed = self.info.tls.peer();
                        let name = agreed.and_then(|peer| peer.name.clone()).unwrap_or_default();
                        audit::Event::Tls { peer: self.info.peer.ip(), name: name.into() }
                    });
                }
                self.is_starting_tls = false;
                Poll::Ready(Ok(()))
            }
            Err(e) => {
                let (user, share) = (PeerText::default(), PeerText::default());
                let peer = self.info.peer.ip();
                let of = |rule, remedy: &'static str| Refused {
                    peer,
                    user,
                    share,
                    rule,
                    remedy: remedy.into(),
                };
                match tls::remedy(&e) {
                    Some(remedy) => refused::note(of(tls::CERTIFICATE, remedy)),
                    // A violation is counted and logged elsewhere.
                    None => drop(refused::record(of(TLS_HANDSHAKE, HANDSHAKE_REMEDY))),
                }
                Poll::Ready(Err(self.failed(&e)))
            }
        }
    }

    fn end_of_stream(&self) -> ChannelError {
        let how = if self.recv.is_inside_record() { "inside a message" } else { "" };
        ChannelError::Closed(format!("by the peer {how}").trim_end().into())
    }

    /// Called when no progress is possible: checks how long that has lasted. `is_reading`: more of a record would be accepted. A
    /// peer whose record waits for memory of this side is not at fault.
    fn poll_stalled(&mut self, is_reading: bool, cx: &mut Context<'_>) -> Poll<ChannelError> {
        let pool = &self.info.pool;
        let is_sending = self.send.waiting() > 0;
        if let Poll::Ready(stalled) = self.sending.poll(is_sending, is_sending.then_some(pool), cx)
        {
            return Poll::Ready(stalled.end());
        }
        let is_inside = is_reading && self.recv.is_inside_record() && !self.recv.is_waiting();
        let is_receiving = is_inside || self.is_starting_tls;
        let holds = if is_inside { self.recv.holds_memory() } else { None };
        self.receiving.poll(is_receiving, holds, cx).map(Stalled::end)
    }
}

impl Channel for TcpChannel {
    fn info(&self) -> &Arc<Info> {
        &self.info
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Request, ChannelError>> {
        match self.poll_next(cx) {
            Poll::Pending => {
                let is_reading = self.draining.is_none() && !self.is_stuffed();
                if let Poll::Ready(why) = self.recv.poll_waited(is_reading, cx) {
                    return Poll::Ready(Err(why));
                }
                self.poll_stalled(is_reading, cx).map(Err)
            }
            ready => ready,
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
        loop {
            let stuffed = self.is_stuffed();
            self.take_commands(cx);
            if let Some(why) = self.aborted.take() {
                return Poll::Ready(Err(why));
            }
            match self.poll_send(cx) {
                Poll::Pending if stuffed && !self.is_stuffed() => {}
                Poll::Pending => return self.poll_stalled(false, cx).map(Err),
                Poll::Ready(Ok(())) if stuffed => {}
                ready => return ready,
            }
        }
    }

    fn reply(&mut self, _to: ReplyTo, reply: Option<Reply>) {
        self.in_work = self.in_work.saturating_sub(1);
        if let Some(reply) = reply {
            if reply.starts_tls {
                // File pages can no longer be sent directly.
                self.info.takes_pages.store(false, Ordering::Relaxed);
                self.is_starting_tls = true;
            }
            self.send.push(reply);
            // Reported until the socket was tried, so that the next read does not begin before.
            self.untaken.tell(0, self.send.waiting(), limits::UNTAKEN_MAX);
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

fn closed(e: io::Error) -> ChannelError {
    ChannelError::Closed(e.to_string())
}

fn violation(v: Violation) -> ChannelError {
    ChannelError::Violation(v.name(), v.detail())
}
