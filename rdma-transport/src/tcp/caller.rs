//! The client's side of RPC over a byte stream.
//!
//! *Operation.* Calls queued since the last poll are sent with one system call; then received messages are passed on, then more is
//! read.
//!
//! *Memory.* As in [`super::recv`]: a large bulk result is read directly into a pool buffer, located by its call.
//!
//! *Errors.* A reply without a waiting call is dropped and counted.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use iobuf::Pool;
use tokio::net::TcpStream;

use super::framing::Framing;
use super::recv::Receiver;
use super::send::Sender;
use super::stream::Stream;
use crate::caller::{Answer, BulkResult, Call, Caller, Event};
use crate::calls::xid_and_is_reply;
use crate::channel::{ChannelError, Info, PayloadLocator, Reply, Traffic};

/// Calls in progress, and the locators of their bulk results.
#[derive(Default)]
struct Outstanding(HashMap<u32, Option<BulkResult>>);

impl PayloadLocator for Outstanding {
    fn bulk(&self, head: &[u8], _total: usize) -> Option<(usize, usize)> {
        let (xid, _) = xid_and_is_reply(head)?;
        let bulk = (*self.0.get(&xid)?)?;
        (bulk.locate)(head).filter(|(_, len)| *len <= bulk.max)
    }
}

/// Calls over one TCP connection.
pub struct TcpCaller {
    info: Arc<Info>,
    stream: Stream,
    recv: Receiver,
    send: Sender,
    outstanding: Outstanding,
    strays: u64,
}

impl TcpCaller {
    /// Wraps a connected stream. `recvs` provides receive buffers (4 KiB and 64 KiB).
    pub fn new(stream: TcpStream, info: Arc<Info>, recvs: Pool) -> io::Result<Self> {
        crate::socket::tune(&stream)?;
        Ok(Self {
            recv: Receiver::new(info.clone(), recvs, Framing::Record),
            info,
            stream: Stream::plain(stream),
            send: Sender::new(Framing::Record),
            outstanding: Outstanding::default(),
            strays: 0,
        })
    }

    /// Number of replies without a waiting call.
    pub fn strays(&self) -> u64 {
        self.strays
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Result<(), ChannelError> {
        let mut left = 0;
        let sent = self.send.poll_flush(&mut self.stream, cx, &mut left);
        Traffic::add(&self.info.traffic.inline_out, left as u64);
        match sent {
            Poll::Ready(Err(e)) => Err(ChannelError::Closed(e.to_string())),
            _ => Ok(()),
        }
    }
}

impl Caller for TcpCaller {
    fn info(&self) -> &Arc<Info> {
        &self.info
    }

    fn call(&mut self, call: Call) {
        Traffic::add(&self.info.traffic.requests, 1);
        self.outstanding.0.insert(call.xid(), call.bulk);
        self.send.push(Reply { head: call.head, payloads: call.payloads, ..Reply::default() });
    }

    fn answer(&mut self, reply: Vec<u8>) {
        self.send.push(Reply::of(reply));
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, ChannelError>> {
        self.poll_send(cx)?;
        loop {
            match self.recv.next_record(&self.outstanding) {
                Ok(Some(record)) => match xid_and_is_reply(&record.body) {
                    Some((xid, true)) if self.outstanding.0.remove(&xid).is_some() => {
                        let answer = Answer { body: record.body, read_chunks: record.read_chunks };
                        return Poll::Ready(Ok(Event::Answer(xid, answer)));
                    }
                    Some((_, false)) => return Poll::Ready(Ok(Event::Callback(record.body))),
                    _ => {
                        self.strays += 1;
                        continue;
                    }
                },
                Ok(None) => {}
                Err(v) => return Poll::Ready(Err(ChannelError::Violation(v.name(), v.detail()))),
            }
            if std::task::ready!(self.recv.poll_pay(None, cx)) {
                continue;
            }
            let read = match self.recv.poll_fill(&mut self.stream, cx) {
                Poll::Ready(read) => read,
                Poll::Pending => return Poll::Pending,
            };
            match read {
                Ok(0) => return Poll::Ready(Err(ChannelError::Closed("by the server".into()))),
                Ok(_) => {}
                Err(e) => return Poll::Ready(Err(ChannelError::Closed(e.to_string()))),
            }
        }
    }
}
