//! The sending half of a byte stream: queued messages leave by as few system calls as their pieces allow.
//!
//! *Operation.* Marks, heads, payloads and padding of all queued messages are gathered into one `writev`, up to
//! [`limits::WRITEV_PIECES_MAX`] pieces, or up to where pages follow: those leave by a call of their own.
//!
//! *Memory.* A message keeps its payload until its last byte has left; nothing is copied here.
//!
//! *Errors.* Those of the socket. Pages that were promised and cannot be sent end the connection.

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
    /// Bytes with the mark.
    len: usize,
}

impl Message {
    fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        std::iter::once(Piece::Bytes(&self.mark[..])).chain(self.reply.all_pieces())
    }
}

/// Tries until the socket has taken something or takes nothing more.
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

/// A connection takes no pages once it has TLS, which begins before anything was asked of it.
fn pages_in_tls() -> io::Error {
    io::Error::other("pages of a file cannot be encrypted")
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

    /// What leaves next by one call: so many pieces, or none and these pages. Pages that follow the pieces are told too.
    fn gather<'a>(&'a self, into: &mut [IoSlice<'a>]) -> (usize, Option<&'a Pages>) {
        let (mut skip, mut count) = (self.sent, 0);
        let mut pieces = self.queue.iter().flat_map(Message::pieces);
        // From within: to ask so many joined iterators for one after the other costs a small reply more than the rest of this.
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
