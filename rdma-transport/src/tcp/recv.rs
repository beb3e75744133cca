//! The receiving half of a byte stream: from readable socket to records.
//!
//! *Operation.* [`Receiver::next_record`] takes records out of what has come; [`Receiver::poll_fill`] reads more. A
//! record that is whole in the receive buffer is a slice of it. The rest of a larger one goes straight from the socket to a
//! pool buffer if the protocol can tell where its bulk data stands, and is put together on the heap if not.
//!
//! *Memory.* Receive buffers come from their own pool when the socket is readable, and go back when nothing is left in
//! them: a silent connection holds none. A payload buffer is waited for while nothing else of this connection is read,
//! which is the backpressure; whoever holds one needs none of this connection's to finish.
//!
//! *Errors.* A broken rule ends the connection.

use std::io::{self, IoSliceMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use iobuf::{Acquire, Buf, BufMut, Pool};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

use super::record::{Fragments, MARK_LEN, Mark, Violation};
use crate::channel::{Info, Locate, Pulled, Traffic};
use crate::limits;

/// One whole RPC message.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) body: Buf,
    pub(super) pulled: Vec<Pulled>,
}

/// A large record whose bulk data goes straight into place.
struct Bulk {
    /// The message before its bulk data.
    head: Buf,
    /// The part of the bulk data that came with the head.
    first: Buf,
    /// The rest of the bulk data: bytes, and where they go.
    rest: usize,
    into: Option<BufMut>,
    wait: Option<Acquire>,
    /// Padding and what follows it, and how much of that has come.
    tail: Vec<u8>,
    tail_have: usize,
    pad: usize,
}

impl Bulk {
    fn rest_left(&self) -> usize {
        self.rest - self.into.as_ref().map_or(0, BufMut::len)
    }

    fn is_whole(&self) -> bool {
        self.rest_left() == 0 && self.tail_have == self.tail.len()
    }

    fn into_record(self) -> Record {
        let at = self.head.len();
        let body = match self.tail.get(self.pad..) {
            Some(behind) if !behind.is_empty() => {
                let mut body = Vec::with_capacity(at + behind.len());
                body.extend_from_slice(&self.head);
                body.extend_from_slice(behind);
                Buf::from(body)
            }
            _ => self.head,
        };
        let mut data = Vec::with_capacity(2);
        data.extend(Some(self.first).filter(|b| !b.is_empty()));
        data.extend(self.into.map(BufMut::freeze));
        Record { body, pulled: vec![Pulled { at, data }] }
    }
}

/// A record in several fragments, or a large one without recognisable bulk data.
#[derive(Default)]
struct Assembly {
    bytes: Vec<u8>,
    fragments: Fragments,
    mark: [u8; MARK_LEN],
    mark_have: usize,
    /// Bytes of the fragment that have not come; `None` between fragments.
    left: Option<usize>,
    last: bool,
    /// A buffer of the pool that is not used but taken, so that records on the heap are bounded as payload is.
    paid: Option<BufMut>,
    wait: Option<Acquire>,
}

impl Assembly {
    fn begin(&mut self, mark: Mark) -> Result<(), Violation> {
        let end = self.fragments.begin(mark)?;
        self.left = Some(end - self.bytes.len());
        self.last = mark.last;
        Ok(())
    }

    /// Takes what belongs to the record; `true` when it is whole.
    fn take(&mut self, held: &mut Buf) -> Result<bool, Violation> {
        loop {
            let Some(left) = self.left else {
                if held.is_empty() {
                    return Ok(false);
                }
                let part = held.split_to(MARK_LEN - self.mark_have);
                self.mark[self.mark_have..self.mark_have + part.len()].copy_from_slice(&part);
                self.mark_have += part.len();
                if self.mark_have == MARK_LEN {
                    self.mark_have = 0;
                    self.begin(Mark::parse(self.mark))?;
                }
                continue;
            };
            let part = held.split_to(left);
            self.bytes.extend_from_slice(&part);
            iobuf::copied_note(part.len());
            if part.len() < left {
                self.left = Some(left - part.len());
                return Ok(false);
            }
            if self.last {
                return Ok(true);
            }
            self.left = None;
        }
    }
}

enum State {
    /// At a mark.
    Mark,
    Bulk(Box<Bulk>),
    Assembly(Box<Assembly>),
}

/// What the bytes at a mark allow.
enum Step {
    Record(Record),
    Enter(State),
    More,
}

pub(super) struct Receiver {
    info: Arc<Info>,
    recvs: Pool,
    /// Bytes that came and were not taken.
    held: Buf,
    /// Being filled; begins with what was left of `held`.
    next: Option<BufMut>,
    wait: Option<Acquire>,
    /// The last small buffer was filled to its end.
    busy: bool,
    state: State,
}

impl Receiver {
    pub(super) fn new(info: Arc<Info>, recvs: Pool) -> Self {
        Self {
            info,
            recvs,
            held: Buf::empty(),
            next: None,
            wait: None,
            busy: false,
            state: State::Mark,
        }
    }

    /// A record has begun and not ended.
    pub(super) fn is_inside_record(&self) -> bool {
        !self.held.is_empty()
            || self.next.as_ref().is_some_and(|b| !b.is_empty())
            || !matches!(self.state, State::Mark)
    }

    /// The next whole record of what has come.
    pub(super) fn next_record(&mut self, locate: &dyn Locate) -> Result<Option<Record>, Violation> {
        loop {
            let step = match &mut self.state {
                State::Mark => self.at_mark(locate)?,
                State::Assembly(a) => match a.take(&mut self.held)? {
                    true => {
                        let body = Buf::from(std::mem::take(&mut a.bytes));
                        Step::Record(Record { body, pulled: Vec::new() })
                    }
                    false => Step::More,
                },
                State::Bulk(b) if b.is_whole() => {
                    match std::mem::replace(&mut self.state, State::Mark) {
                        State::Bulk(b) => Step::Record(b.into_record()),
                        _ => Step::More,
                    }
                }
                State::Bulk(_) => Step::More,
            };
            match step {
                Step::Record(record) => {
                    self.state = State::Mark;
                    return Ok(Some(record));
                }
                Step::Enter(state) => self.state = state,
                Step::More => return Ok(None),
            }
        }
    }

    fn at_mark(&mut self, locate: &dyn Locate) -> Result<Step, Violation> {
        let Some(&mark) = self.held.first_chunk::<MARK_LEN>() else { return Ok(Step::More) };
        let mark = Mark::parse(mark);
        let total = Fragments::default().begin(mark)?;
        let have = self.held.len() - MARK_LEN;
        if !mark.last {
            return self.assemble(mark);
        }
        if have >= total {
            let mut body = self.held.split_to(MARK_LEN + total);
            body = body.slice(MARK_LEN..body.len());
            return Ok(Step::Record(Record { body, pulled: Vec::new() }));
        }
        if MARK_LEN + total <= limits::TCP_RECV_SMALL || have < limits::RECORD_LOCATE_MIN {
            return Ok(Step::More);
        }
        let head = self.held.slice(MARK_LEN..self.held.len());
        let Some((at, len)) = locate.bulk(&head, total) else { return self.assemble(mark) };
        // The locator read these from the peer's bytes.
        let pad = len.wrapping_neg() % 4;
        let behind = at
            .checked_add(len)
            .and_then(|end| end.checked_add(pad))
            .and_then(|end| total.checked_sub(end));
        let Some(behind) = behind else { return self.assemble(mark) };
        if len > limits::RPC_PAYLOAD_MAX || behind > limits::RECORD_TAIL_MAX {
            return self.assemble(mark);
        }
        if at > have {
            let room = MARK_LEN + have < limits::TCP_RECV_SMALL;
            return if room { Ok(Step::More) } else { self.assemble(mark) };
        }
        self.held = Buf::empty();
        let first = head.slice(at..at + len);
        let came = head.slice(at + len..head.len());
        let mut tail = vec![0; pad + behind];
        tail[..came.len()].copy_from_slice(&came);
        Ok(Step::Enter(State::Bulk(Box::new(Bulk {
            head: head.slice(0..at),
            rest: len - first.len(),
            first,
            into: None,
            wait: None,
            tail,
            tail_have: came.len(),
            pad,
        }))))
    }

    fn assemble(&mut self, mark: Mark) -> Result<Step, Violation> {
        self.held.split_to(MARK_LEN);
        let mut assembly = Assembly::default();
        assembly.begin(mark)?;
        Ok(Step::Enter(State::Assembly(Box::new(assembly))))
    }

    /// Reads once from the socket. Ready with the number of bytes; 0 is the end of the stream. To be called when
    /// [`Receiver::next_record`] has none.
    pub(super) fn poll_fill(
        &mut self,
        stream: &mut TcpStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let read = match &self.state {
            State::Bulk(_) => self.poll_fill_bulk(stream, cx),
            _ => self.poll_fill_records(stream, cx),
        };
        if read.is_pending() && self.next.as_ref().is_some_and(BufMut::is_empty) {
            self.next = None;
        }
        if let Poll::Ready(Ok(n)) = &read {
            Traffic::add(&self.info.traffic.inline_in, *n as u64);
        }
        read
    }

    fn poll_fill_records(
        &mut self,
        stream: &mut TcpStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_pay(cx))?;
        ready!(stream.poll_read_ready(cx))?;
        let mut next = match self.next.take() {
            Some(next) => next,
            None => ready!(self.poll_buffer(cx))?,
        };
        // What is left of the last buffer is the start of a record, shorter than the smallest buffer.
        if !self.held.is_empty() {
            next.append(&self.held);
            self.held = Buf::empty();
        }
        let room = next.spare_mut().len();
        let mut into = ReadBuf::new(next.spare_mut());
        let read = Pin::new(stream).poll_read(cx, &mut into);
        let n = into.filled().len();
        match read {
            Poll::Ready(Ok(())) => {
                next.advance(n);
                self.busy = n == room || (self.busy && n >= limits::TCP_RECV_SMALL);
                self.held = next.freeze();
                Poll::Ready(Ok(n))
            }
            Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
            Poll::Pending => {
                self.next = Some(next);
                Poll::Pending
            }
        }
    }

    /// Sets memory of the pool aside for a large record that is put together on the heap.
    fn poll_pay(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let State::Assembly(a) = &mut self.state
            && a.paid.is_none()
            && a.bytes.len() > limits::ASSEMBLY_FREE_MAX
        {
            let info = &self.info;
            let pay = || info.pool.acquire(limits::RPC_PAYLOAD_MAX, info.account);
            let wait = a.wait.get_or_insert_with(pay);
            a.paid = Some(ready!(Pin::new(wait).poll(cx)).map_err(io::Error::other)?);
            a.wait = None;
        }
        Poll::Ready(Ok(()))
    }

    /// A receive buffer: a large one for a busy stream if there is one, else a small one, which may have to be waited for.
    fn poll_buffer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<BufMut>> {
        if self.busy
            && self.wait.is_none()
            && let Some(large) = self.recvs.try_get(limits::TCP_RECV_LARGE)
        {
            return Poll::Ready(Ok(large));
        }
        let (recvs, account) = (&self.recvs, self.info.account);
        let wait = self.wait.get_or_insert_with(|| recvs.acquire(limits::TCP_RECV_SMALL, account));
        let buffer = ready!(Pin::new(wait).poll(cx));
        self.wait = None;
        Poll::Ready(buffer.map_err(io::Error::other))
    }

    fn poll_fill_bulk(
        &mut self,
        stream: &mut TcpStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let State::Bulk(bulk) = &mut self.state else { return Poll::Ready(Ok(0)) };
        if bulk.rest > 0 && bulk.into.is_none() {
            let (info, rest) = (&self.info, bulk.rest);
            let wait = bulk.wait.get_or_insert_with(|| info.pool.acquire(rest, info.account));
            bulk.into = Some(ready!(Pin::new(wait).poll(cx)).map_err(io::Error::other)?);
            bulk.wait = None;
        }
        let n = loop {
            ready!(stream.poll_read_ready(cx))?;
            // The same system call takes the start of what follows, if a buffer for that is at hand.
            if self.next.is_none() {
                self.next = self.recvs.try_get(limits::TCP_RECV_SMALL);
            }
            let left = bulk.rest_left();
            let mut into = [
                IoSliceMut::new(bulk.into.as_mut().map_or(&mut [], |b| &mut b.spare_mut()[..left])),
                IoSliceMut::new(&mut bulk.tail[bulk.tail_have..]),
                IoSliceMut::new(self.next.as_mut().map_or(&mut [], |b| b.spare_mut())),
            ];
            match stream.try_read_vectored(&mut into) {
                Ok(n) => break n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        };
        let mut behind = n;
        if let Some(into) = &mut bulk.into {
            let part = behind.min(bulk.rest - into.len());
            into.advance(part);
            behind -= part;
        }
        let part = behind.min(bulk.tail.len() - bulk.tail_have);
        bulk.tail_have += part;
        behind -= part;
        if behind > 0
            && let Some(mut next) = self.next.take()
        {
            next.advance(behind);
            self.held = next.freeze();
        }
        Poll::Ready(Ok(n))
    }
}
