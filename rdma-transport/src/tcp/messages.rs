//! The client's side of SMB over a byte stream.
//!
//! *Operation.* Messages queued since the last poll are sent with one system call; then received messages are passed on, then more
//! is read.
//!
//! *Memory.* As in `recv`: located bulk data is read directly into pool buffers.
//!
//! *Errors.* Invalid framing ends the connection. Users set their own limits on replies.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use iobuf::Pool;
use tokio::net::TcpStream;

use super::framing::Framing;
use super::recv::Receiver;
use super::send::Sender;
use super::stream::Stream;
use crate::channel::{ChannelError, Info, PayloadLocator, Reply, Traffic};
use crate::messages::{Message, Messages};
use crate::verbs::{Refused, Region, RemoteSeg};

/// SMB over one TCP connection, from the client's side.
pub struct TcpMessages {
    info: Arc<Info>,
    stream: Stream,
    recv: Receiver,
    send: Sender,
    locate: Arc<dyn PayloadLocator>,
}

impl TcpMessages {
    /// Wraps a connected stream. `recvs` provides receive buffers (4 KiB and 64 KiB), `locate` locates bulk data in the server's
    /// messages.
    pub fn new(
        stream: TcpStream,
        info: Arc<Info>,
        recvs: Pool,
        locate: Arc<dyn PayloadLocator>,
    ) -> io::Result<Self> {
        crate::socket::tune(&stream)?;
        Ok(Self {
            recv: Receiver::new(info.clone(), recvs, Framing::Direct),
            info,
            stream: Stream::plain(stream),
            send: Sender::new(Framing::Direct),
            locate,
        })
    }
}

impl Messages for TcpMessages {
    fn info(&self) -> &Arc<Info> {
        &self.info
    }

    fn send(&mut self, message: Reply) {
        self.send.push(message);
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Message, ChannelError>> {
        let mut left = 0;
        let sent = self.send.poll_flush(&mut self.stream, cx, &mut left);
        Traffic::add(&self.info.traffic.inline_out, left as u64);
        if let Poll::Ready(Err(e)) = sent {
            return Poll::Ready(Err(ChannelError::Closed(e.to_string())));
        }
        loop {
            match self.recv.next_record(&*self.locate) {
                Ok(Some(record)) => {
                    let message = Message { body: record.body, read_chunks: record.read_chunks };
                    return Poll::Ready(Ok(message));
                }
                Ok(None) => {}
                Err(v) => return Poll::Ready(Err(ChannelError::Violation(v.name(), v.detail()))),
            }
            if std::task::ready!(self.recv.poll_pay(None, cx)) {
                continue;
            }
            match std::task::ready!(self.recv.poll_fill(&mut self.stream, cx)) {
                Ok(0) => return Poll::Ready(Err(ChannelError::Closed("by the server".into()))),
                Ok(_) => {}
                Err(e) => return Poll::Ready(Err(ChannelError::Closed(e.to_string()))),
            }
        }
    }

    fn register(&mut self, region: Region) -> Result<RemoteSeg, (Refused, Region)> {
        Err((Refused::Invalid, region))
    }

    fn release(&mut self, _handle: u32) -> Option<Region> {
        None
    }
}
