//! The sending half of a byte stream: sends queued messages with few system calls.
//!
//! *Operation.* Marks, heads, payloads and padding of all queued messages are gathered into one `writev`, up to
//! [`limits::WRITEV_PIECES_MAX`] pieces, or up to the next pages, which need a separate call.
//!
//! *Memory.* A message keeps its payload until its last byte was sent; payload is never copied here.
//!
//! *Errors.* Errors of the socket. If pages cannot be sent, the connection ends.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};

use iobuf::Pages;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::framing::Framing;
use super::record::MARK_LEN;
use super::stream::Stream;
use crate::channel::{Piece, Reply};
use crate::{lease, limits};

struct Message {
    mark: [u8; MARK_LEN],
    reply: Reply,
    /// Bytes including the mark.
    len: usize,
}

impl Message {
    fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        std::iter::once(Piece::Bytes(&self.mark[..])).chain(self.reply.all_pieces())
    }
}

/// Retries until the socket has taken data or is full.
fn poll_try(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    send: impl Fn() -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    use io::ErrorKind::{Interrupted, WouldBlock};
    loop {
        ready!(stream.poll_write_ready(cx))?;
        match stream.try_io(Interest::WRITABLE, &send) {
            Err(e) if matches!(e.kind(), Interrupted | WouldBlock) => {}
            done => return Poll::Ready(done),
        }
    }
}

/// The error for pages on a TLS connection, which cannot occur: TLS starts before the first request.
fn pages_in_tls() -> io::Error {
    io::Error::other("pages of a file cannot be encrypted")
}

pub(super) struct Sender {
    framing: Framing,
    queue: VecDeque<Message>,
    /// Bytes of the first message already sent.
    sent: usize,
    /// Bytes that wait for the socket.
    waiting: usize,
    /// Size of a message that was too long for the framing.
    unsendable: Option<usize>,
}

impl Sender {
    pub(super) fn new(framing: Framing) -> Self {
        Self { framing, queue: VecDeque::new(), sent: 0, waiting: 0, unsendable: None }
    }

    pub(super) fn push(&mut self, reply: Reply) {
        let body = reply.inline_len();
        // Protocols limit their replies far below this; the peer of a larger one would wait forever.
        let Some(mark) = self.framing.before(body) else {
            self.unsendable.get_or_insert(body);
            return;
        };
        self.waiting += MARK_LEN + body;
        self.queue.push_back(Message { mark, reply, len: MARK_LEN + body });
    }

    /// Bytes waiting to be sent.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Sends until the queue is empty. Adds the number of bytes sent to `left`.
    pub(super) fn poll_flush(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
        left: &mut usize,
    ) -> Poll<io::Result<()>> {
        if let Some(len) = self.unsendable {
            let why = format!("a message of {len} bytes cannot be sent");
            return Poll::Ready(Err(io::Error::other(why)));
        }
        while !self.queue.is_empty() {
            let mut room = [IoSlice::new(&[]); limits::WRITEV_PIECES_MAX];
            let (count, pages) = self.gather(&mut room);
            let pieces = &room[..count];
            lease::check();
            let n = match pages {
                None => ready!(stream.poll_write_vectored(cx, pieces))?,
                Some(pages) => {
                    let Some(socket) = stream.as_plain() else {
                        return Poll::Ready(Err(pages_in_tls()));
                    };
                    if count == 0 {
                        let more = self.waiting > pages.left();
                        ready!(poll_try(socket, cx, || pages.send(socket.as_fd(), more)))?
                    } else {
                        let flags = libc::MSG_MORE | libc::MSG_NOSIGNAL;
                        let send = || SockRef::from(socket).send_vectored_with_flags(pieces, flags);
                        ready!(poll_try(socket, cx, send))?
                    }
                }
            };
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *left += n;
            self.advance(n);
        }
        stream.poll_flush(cx)
    }

    /// The data for the next call: a number of pieces, or zero and these pages. Pages after the pieces are reported too.
    fn gather<'a>(&'a self, into: &mut [IoSlice<'a>]) -> (usize, Option<&'a Pages>) {
        let (mut skip, mut count) = (self.sent, 0);
        let mut pieces = self.queue.iter().flat_map(Message::pieces);
        // With internal iteration: pulling items from so many chained iterators costs a small reply more than all the rest.
        let end = pieces.try_for_each(|piece| match piece {
            Piece::Bytes(bytes) => {
                let cut = skip.min(bytes.len());
                skip -= cut;
                if cut < bytes.len() {
                    let Some(slot) = into.get_mut(count) else { return ControlFlow::Break(None) };
                    *slot = IoSlice::new(&bytes[cut..]);
                    count += 1;
                }
                ControlFlow::Continue(())
            }
            Piece::Pages(pages) if skip >= pages.len() => {
                skip -= pages.len();
                ControlFlow::Continue(())
            }
            Piece::Pages(pages) => ControlFlow::Break(Some(pages)),
        });
        (count, end.break_value().flatten())
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
