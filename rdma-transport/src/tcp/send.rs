//! The sending half of a byte stream: queued messages leave by as few system calls as their pieces allow.
//!
//! *Operation.* Marks, heads, payloads and padding of all queued messages are gathered into one `writev`, up to
//! [`limits::WRITEV_PIECES_MAX`] pieces.
//!
//! *Memory.* A message keeps its payload until its last byte has left; nothing is copied here.
//!
//! *Errors.* Those of the socket.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

use super::framing::Framing;
use super::record::MARK_LEN;
use crate::channel::Reply;
use crate::limits;

struct Message {
    mark: [u8; MARK_LEN],
    reply: Reply,
    /// Bytes with the mark.
    len: usize,
}

impl Message {
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&self.mark[..]).chain(self.reply.pieces())
    }
}

pub(super) struct Sender {
    framing: Framing,
    queue: VecDeque<Message>,
    /// Bytes of the first message that have left.
    sent: usize,
    /// Bytes that wait.
    waiting: usize,
    /// A message of so many bytes was to be sent, which the framing cannot say.
    unsendable: Option<usize>,
}

impl Sender {
    pub(super) fn new(framing: Framing) -> Self {
        Self { framing, queue: VecDeque::new(), sent: 0, waiting: 0, unsendable: None }
    }

    pub(super) fn push(&mut self, reply: Reply) {
        let body = reply.inline_len();
        // Protocols bound their replies far below what the framing can say. One that were not would leave its peer waiting.
        let Some(mark) = self.framing.before(body) else {
            self.unsendable.get_or_insert(body);
            return;
        };
        self.waiting += MARK_LEN + body;
        self.queue.push_back(Message { mark, reply, len: MARK_LEN + body });
    }

    /// Bytes that wait to be sent.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Sends until nothing waits. Adds what left to `left`.
    pub(super) fn poll_flush(
        &mut self,
        stream: &mut TcpStream,
        cx: &mut Context<'_>,
        left: &mut usize,
    ) -> Poll<io::Result<()>> {
        if let Some(len) = self.unsendable {
            let why = format!("a message of {len} bytes cannot be sent");
            return Poll::Ready(Err(io::Error::other(why)));
        }
        while !self.queue.is_empty() {
            let mut pieces = [IoSlice::new(&[]); limits::WRITEV_PIECES_MAX];
            let count = self.gather(&mut pieces);
            let n = ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &pieces[..count]))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *left += n;
            self.advance(n);
        }
        Poll::Ready(Ok(()))
    }

    fn gather<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let mut skip = self.sent;
        let all = self.queue.iter().flat_map(Message::pieces);
        let rest = all.filter_map(|piece| {
            let cut = skip.min(piece.len());
            skip -= cut;
            Some(&piece[cut..]).filter(|p| !p.is_empty())
        });
        let mut count = 0;
        for (slot, piece) in into.iter_mut().zip(rest) {
            *slot = IoSlice::new(piece);
            count += 1;
        }
        count
    }

    fn advance(&mut self, n: usize) {
        self.waiting -= n;
        self.sent += n;
        while let Some(first) = self.queue.front()
            && self.sent >= first.len
        {
            self.sent -= first.len;
            self.queue.pop_front();
        }
    }
}
