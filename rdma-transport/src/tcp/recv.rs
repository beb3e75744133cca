//! The receiving half of a byte stream: from the socket to records.
//!
//! *Operation.* [`Receiver::next_record`] extracts records from received bytes; [`Receiver::poll_fill`] reads more. A record that
//! fits the receive buffer is a slice of it. One of up to [`limits::TCP_GATHER_MAX`] bytes is gathered in a large receive buffer,
//! with the records after it: one system call then serves many small writes. The rest of a larger record is read directly into a
//! pool buffer if the protocol can locate its bulk data, and assembled on the heap otherwise.
//!
//! *Memory.* Receive buffers come from a separate pool when the socket is readable, and are returned when empty: a silent
//! connection holds none. While a record waits for a payload buffer, the connection reads no further data, which is the
//! backpressure; a holder of a buffer needs no data of this connection to finish. Heap memory of a record is paid for
//! ([`Pool::pay`]) before it exceeds [`limits::HEAP_FREE_MAX`] bytes, and counts until its request has ended.
//!
//! If no memory becomes available within [`limits::MEMORY_WAIT_MAX`], the bulk data is discarded as it arrives, and its record is
//! passed on without it; a record in several fragments also without the data that follows. A sealed record
//! ([`PayloadLocator::is_sealed`]) and one without located bulk data cannot be answered so, nor can data that waits for a receive
//! buffer: they wait for [`limits::MESSAGE_WAIT_MAX`].
//!
//! *Errors.* A violation ends the connection, as does the end of the longer wait.

use std::io::{self, IoSliceMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use iobuf::{Acquire, AcquireAll, Buf, BufMut, Paid, Pay, Pool};

use super::framing::{Framing, Next, Violation};
use super::record::{Fragments, MARK_LEN, Mark};
use super::stream::Stream;
use crate::channel::{ChannelError, Info, PayloadLocator, ReadChunkData, Traffic};
use crate::memory_wait::MemoryWait;
use crate::{count, limits};

#[derive(Debug)]
pub(super) struct Record {
    pub(super) body: Buf,
    pub(super) read_chunks: Vec<ReadChunkData>,
}

/// Buffers filled by one system call: for the largest bulk data, the data after it, and the start of the next message.
const BULK_PIECES: usize = limits::SMB_MESSAGE_MAX.div_ceil(1 << 20) + 2;

/// A large record whose bulk data is read directly into place.
struct Bulk {
    /// The message before its bulk data.
    head: Buf,
    /// The part of the bulk data that arrived with the head.
    first: Buf,
    /// The rest of the bulk data: its size, and its buffers.
    rest: usize,
    into: Vec<BufMut>,
    wait: Option<AcquireAll>,
    /// Heap memory taken in excess that must be paid back first.
    debt: Option<Pay>,
    /// Padding and the data after it, and how much of that has arrived.
    tail: Vec<u8>,
    tail_have: usize,
    pad: usize,
    /// The record cannot be processed without its bulk data.
    is_sealed: bool,
    /// No memory became available in time: `rest` is discarded as it arrives.
    is_refused: bool,
}

impl Bulk {
    /// Gives up on memory; the part of the bulk data already received is discarded as well.
    fn refuse(&mut self) {
        (self.is_refused, self.first) = (true, Buf::empty());
        (self.wait, self.debt) = (None, None);
    }

    /// Waits for memory for the rest of the bulk data; ready at once if none is needed.
    fn poll_memory(&mut self, info: &Info, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.rest == 0 || !self.into.is_empty() || self.is_refused {
            return Poll::Ready(Ok(()));
        }
        if self.wait.is_none() && (self.debt.is_some() || info.pool.is_overdrawn()) {
            ready!(Pin::new(self.debt.get_or_insert_with(|| info.pool.pay(0))).poll(cx));
            self.debt = None;
        }
        let rest = self.rest;
        let wait = self.wait.get_or_insert_with(|| info.pool.acquire_all(rest, info.account));
        self.into = ready!(Pin::new(wait).poll(cx)).map_err(io::Error::other)?;
        self.wait = None;
        Poll::Ready(Ok(()))
    }

    fn rest_left(&self) -> usize {
        self.rest - self.into.iter().map(BufMut::len).sum::<usize>()
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
        if self.is_refused {
            return Record { body, read_chunks: vec![ReadChunkData::missing(at)] };
        }
        let mut data = Vec::with_capacity(1 + self.into.len());
        data.extend(Some(self.first).filter(|b| !b.is_empty()));
        data.extend(self.into.into_iter().map(BufMut::freeze));
        Record { body, read_chunks: vec![ReadChunkData { at, data }] }
    }
}

/// A record in several fragments, or a large one without located bulk data.
#[derive(Default)]
struct Assembly {
    bytes: Vec<u8>,
    fragments: Fragments,
    mark: [u8; MARK_LEN],
    mark_have: usize,
    /// Missing bytes of the fragment; `None` between fragments.
    left: Option<usize>,
    last: bool,
    /// Bytes of the record, if known.
    total: Option<usize>,
    paid: Option<Paid>,
    wait: Option<Pay>,
    /// No memory came in time: bulk data begins there, and is thrown away as it comes with all that follows.
    refused: Option<usize>,
    /// Bytes that were thrown away.
    thrown: usize,
}

impl Assembly {
    /// Starts a message of known length.
    fn whole(total: usize) -> Self {
        Self { left: Some(total), last: true, total: Some(total), ..Self::default() }
    }

    fn begin(&mut self, mark: Mark) -> Result<(), Violation> {
        let end = self.fragments.begin(mark).map_err(Violation::Record)?;
        self.left = Some(end - self.bytes.len() - self.thrown);
        self.last = mark.last;
        Ok(())
    }

    /// True if it must be paid for before more data is taken.
    fn is_due(&self) -> bool {
        let bytes = self.total.unwrap_or(self.bytes.len() + 1);
        self.paid.is_none()
            && self.refused.is_none()
            && self.left.is_some_and(|left| left > 0)
            && bytes > limits::HEAP_FREE_MAX
    }

    /// Bytes that may be taken now.
    fn room(&self) -> usize {
        match (&self.paid, self.refused) {
            (None, None) => limits::HEAP_FREE_MAX.saturating_sub(self.bytes.len()),
            _ => usize::MAX,
        }
    }

    /// Where bulk data begins without which the record can be answered.
    fn answerable_before(&self, locate: &dyn PayloadLocator) -> Option<usize> {
        let total = self.total.unwrap_or(limits::RPC_RECORD_MAX);
        let (at, _) = locate.bulk(&self.bytes, total)?;
        (at <= self.bytes.len() && !locate.is_sealed(&self.bytes)).then_some(at)
    }

    /// No memory came: what is there of the bulk data goes as well.
    fn refuse(&mut self, at: usize) {
        (self.refused, self.wait) = (Some(at), None);
        self.thrown = self.bytes.len() - at;
        self.bytes.truncate(at);
    }

    fn into_record(self) -> Record {
        let read_chunks = self.refused.map(ReadChunkData::missing).into_iter().collect();
        let body = match self.paid {
            Some(paid) => paid.hold(self.bytes).freeze(),
            None => Buf::from(self.bytes),
        };
        Record { body, read_chunks }
    }

    /// Takes data of the record; `true` when it is complete. Stops early if it must be paid for first.
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
            let part = held.split_to(left.min(self.room()));
            match self.refused {
                Some(_) => self.thrown += part.len(),
                None => {
                    self.bytes.extend_from_slice(&part);
                    iobuf::copied_note(part.len());
                }
            }
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

/// A record whose beginning was copied to a large receive buffer, where the rest and the next records are read.
struct Gathering {
    buffer: BufMut,
    /// Bytes of the record with its mark.
    total: usize,
}

enum State {
    Mark,
    Gathering(Gathering),
    Bulk(Box<Bulk>),
    Assembly(Box<Assembly>),
}

/// The result of evaluating the bytes at a mark.
enum Step {
    Record(Record),
    Enter(State),
    More,
}

pub(super) struct Receiver {
    info: Arc<Info>,
    framing: Framing,
    recvs: Pool,
    /// Received bytes not processed yet.
    held: Buf,
    /// The buffer being filled; begins with the rest of `held`.
    next: Option<BufMut>,
    wait: Option<Acquire>,
    memory_wait: MemoryWait,
    /// The last small buffer was filled completely.
    busy: bool,
    state: State,
}

impl Receiver {
    pub(super) fn new(info: Arc<Info>, recvs: Pool, framing: Framing) -> Self {
        Self {
            info,
            framing,
            recvs,
            held: Buf::empty(),
            next: None,
            wait: None,
            memory_wait: MemoryWait::default(),
            busy: false,
            state: State::Mark,
        }
    }

    /// Takes all received, unprocessed bytes; `None` if a record has begun in another buffer.
    pub(super) fn take_held(&mut self) -> Option<Buf> {
        let has_begun = self.next.as_ref().is_some_and(|b| !b.is_empty());
        let is_between = matches!(self.state, State::Mark) && !has_begun;
        is_between.then(|| std::mem::take(&mut self.held))
    }

    /// True if a record has begun and not ended.
    pub(super) fn is_inside_record(&self) -> bool {
        !self.held.is_empty()
            || self.next.as_ref().is_some_and(|b| !b.is_empty())
            || !matches!(self.state, State::Mark)
    }

    /// Called when no progress is possible: ready with the reason for ending the connection if it has waited for memory for too
    /// long. `is_reading`: more data would be accepted.
    pub(super) fn poll_waited(
        &mut self,
        is_reading: bool,
        cx: &mut Context<'_>,
    ) -> Poll<ChannelError> {
        let is_waiting = is_reading && self.is_waiting();
        self.memory_wait.poll_end(is_waiting, self.info.peer, cx)
    }

    /// True if the next data waits for memory of this side.
    pub(super) fn is_waiting(&self) -> bool {
        let of_record = match &self.state {
            State::Mark | State::Gathering(_) => false,
            State::Bulk(bulk) => bulk.rest > 0 && bulk.into.is_empty() && !bulk.is_refused,
            State::Assembly(assembly) => assembly.wait.is_some(),
        };
        of_record || self.wait.is_some()
    }

    /// The pool whose memory the current record occupies: payload memory, or a receive buffer.
    pub(super) fn holds_memory(&self) -> Option<&Pool> {
        let has_payload = match &self.state {
            State::Mark | State::Gathering(_) => false,
            State::Bulk(bulk) => !bulk.into.is_empty(),
            State::Assembly(assembly) => assembly.paid.is_some(),
        };
        let has_buffer = !self.held.is_empty()
            || self.next.is_some()
            || matches!(self.state, State::Gathering(_));
        match has_payload {
            true => Some(&self.info.pool),
            false => has_buffer.then_some(&self.recvs),
        }
    }

    /// Extracts the next whole record.
    pub(super) fn next_record(
        &mut self,
        locate: &dyn PayloadLocator,
    ) -> Result<Option<Record>, Violation> {
        loop {
            let step = match &mut self.state {
                State::Mark => self.at_mark(locate)?,
                State::Assembly(a) => match a.take(&mut self.held)? {
                    true => Step::Record(std::mem::take(&mut **a).into_record()),
                    false => Step::More,
                },
                State::Bulk(b) if b.is_whole() => {
                    match std::mem::replace(&mut self.state, State::Mark) {
                        State::Bulk(b) => Step::Record(b.into_record()),
                        _ => Step::More,
                    }
                }
                State::Bulk(_) => Step::More,
                State::Gathering(g) if g.buffer.len() >= g.total => {
                    match std::mem::replace(&mut self.state, State::Mark) {
                        State::Gathering(g) => {
                            self.held = g.buffer.freeze();
                            continue;
                        }
                        _ => Step::More,
                    }
                }
                State::Gathering(_) => Step::More,
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

    fn at_mark(&mut self, locate: &dyn PayloadLocator) -> Result<Step, Violation> {
        let total = loop {
            let Some(&four) = self.held.first_chunk::<MARK_LEN>() else { return Ok(Step::More) };
            match self.framing.next(four)? {
                Next::Whole(total) => break total,
                Next::Fragment(mark) => {
                    let mut assembly = Assembly::default();
                    assembly.begin(mark)?;
                    return Ok(self.assemble(assembly));
                }
                Next::Skip => drop(self.held.split_to(MARK_LEN)),
            }
        };
        let have = self.held.len() - MARK_LEN;
        if have >= total {
            let mut body = self.held.split_to(MARK_LEN + total);
            body = body.slice(MARK_LEN..body.len());
            return Ok(Step::Record(Record { body, read_chunks: Vec::new() }));
        }
        if MARK_LEN + total <= limits::TCP_RECV_SMALL || have < limits::RECORD_LOCATE_MIN {
            return Ok(Step::More);
        }
        if MARK_LEN + total <= limits::TCP_GATHER_MAX
            && let Some(mut buffer) = self.recvs.try_get(limits::TCP_RECV_LARGE)
        {
            buffer.append(&std::mem::take(&mut self.held));
            // A spare small buffer would be the next one to be filled.
            self.next = None;
            return Ok(Step::Enter(State::Gathering(Gathering {
                buffer,
                total: MARK_LEN + total,
            })));
        }
        let head = self.held.slice(MARK_LEN..self.held.len());
        let Some((at, len)) = locate.bulk(&head, total) else {
            return Ok(self.assemble(Assembly::whole(total)));
        };
        // The numbers come from the peer's bytes, so arithmetic is checked.
        let pad = self.framing.pad(len);
        let behind = at
            .checked_add(len)
            .and_then(|end| end.checked_add(pad))
            .and_then(|end| total.checked_sub(end));
        // Head and tail together are small, so their heap memory is not counted.
        let behind = behind.filter(|n| *n == 0 || at.saturating_add(*n) <= limits::RECORD_TAIL_MAX);
        let Some(behind) = behind.filter(|_| len <= self.framing.bulk_max()) else {
            return Ok(self.assemble(Assembly::whole(total)));
        };
        if at > have {
            let room = MARK_LEN + have < limits::TCP_RECV_SMALL;
            let step = if room { Step::More } else { self.assemble(Assembly::whole(total)) };
            return Ok(step);
        }
        self.held = Buf::empty();
        let is_sealed = locate.is_sealed(&head);
        let first = head.slice(at..at + len);
        let came = head.slice(at + len..head.len());
        let mut tail = vec![0; pad + behind];
        tail[..came.len()].copy_from_slice(&came);
        Ok(Step::Enter(State::Bulk(Box::new(Bulk {
            head: head.slice(0..at),
            rest: len - first.len(),
            first,
            into: Vec::new(),
            wait: None,
            debt: None,
            tail,
            tail_have: came.len(),
            pad,
            is_sealed,
            is_refused: false,
        }))))
    }

    fn assemble(&mut self, assembly: Assembly) -> Step {
        self.held.split_to(MARK_LEN);
        Step::Enter(State::Assembly(Box::new(assembly)))
    }

    /// Reads once from the socket. Ready with the number of bytes; 0 at the end of the stream. Called when
    /// [`Receiver::next_record`] has none.
    pub(super) fn poll_fill(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let read = match &self.state {
            State::Bulk(_) => self.poll_fill_bulk(stream, cx),
            State::Gathering(_) => self.poll_fill_gathering(stream, cx),
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
        stream: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        ready!(stream.poll_read_ready(cx))?;
        let mut next = match self.next.take() {
            Some(next) => next,
            None => ready!(self.poll_buffer(cx))?,
        };
        // The rest of the last buffer is the start of a record, shorter than the smallest buffer.
        if !self.held.is_empty() {
            next.append(&self.held);
            self.held = Buf::empty();
        }
        let room = next.spare_mut().len();
        match stream.poll_read(cx, next.spare_mut()) {
            Poll::Ready(Ok(n)) => {
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

    /// Waits until a record on the heap is paid for, or is refused because no memory became available in time. It is refused only
    /// if `locate` finds its bulk data. `true` if either happened, so that more data can be processed. Called when
    /// [`Receiver::next_record`] has none, before [`Receiver::poll_fill`].
    pub(super) fn poll_pay(
        &mut self,
        locate: Option<&dyn PayloadLocator>,
        cx: &mut Context<'_>,
    ) -> Poll<bool> {
        let State::Assembly(a) = &mut self.state else { return Poll::Ready(false) };
        if !a.is_due() {
            return Poll::Ready(false);
        }
        let (pool, price) = (&self.info.pool, self.framing.price(a.total));
        let is_new = a.wait.is_none();
        let wait = a.wait.get_or_insert_with(|| pool.pay(price));
        let Poll::Ready(paid) = Pin::new(wait).poll(cx) else {
            if is_new {
                count::limit_met(limits::LARGE_MESSAGES);
            }
            let at = locate.and_then(|locate| a.answerable_before(locate));
            let Some(at) = at else { return Poll::Pending };
            ready!(self.memory_wait.poll_over(cx));
            a.refuse(at);
            return Poll::Ready(true);
        };
        self.memory_wait.end();
        a.wait = None;
        a.paid = Some(paid);
        if let Some(total) = a.total {
            a.bytes.reserve_exact(total.saturating_sub(a.bytes.len()));
        }
        Poll::Ready(true)
    }

    /// Obtains a receive buffer: a large one for a busy stream if available, else a small one, possibly after a wait.
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
        self.memory_wait.end();
        Poll::Ready(buffer.map_err(io::Error::other))
    }

    fn poll_fill_gathering(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let State::Gathering(Gathering { buffer, .. }) = &mut self.state else {
            return Poll::Ready(Ok(0));
        };
        let n = ready!(stream.poll_read(cx, buffer.spare_mut()))?;
        buffer.advance(n);
        // The next record is likely as large: its buffer is large from the start.
        self.busy = true;
        Poll::Ready(Ok(n))
    }

    fn poll_fill_bulk(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let State::Bulk(bulk) = &mut self.state else { return Poll::Ready(Ok(0)) };
        match bulk.poll_memory(&self.info, cx) {
            Poll::Ready(got) => {
                got?;
                self.memory_wait.end();
            }
            Poll::Pending if bulk.is_sealed => return Poll::Pending,
            Poll::Pending => {
                ready!(self.memory_wait.poll_over(cx));
                bulk.refuse();
            }
        }
        ready!(stream.poll_read_ready(cx))?;
        if bulk.is_refused && bulk.rest > 0 {
            let mut thrown = [0; limits::TCP_RECV_SMALL * 4];
            let part = bulk.rest.min(thrown.len());
            let n = ready!(stream.poll_read(cx, &mut thrown[..part]))?;
            bulk.rest -= n;
            return Poll::Ready(Ok(n));
        }
        // The same system call reads the start of the next message, if a buffer is available.
        if self.next.is_none() {
            self.next = self.recvs.try_get(limits::TCP_RECV_SMALL);
        }
        let mut left = bulk.rest_left();
        let mut into: [IoSliceMut<'_>; BULK_PIECES] =
            std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let mut slots = into.iter_mut();
        let mut put = |bytes| slots.next().map(|slot| *slot = IoSliceMut::new(bytes));
        for buffer in bulk.into.iter_mut().filter(|b| b.len() < b.capacity()) {
            let spare = buffer.spare_mut();
            let part = spare.len().min(left);
            left -= part;
            put(&mut spare[..part]);
        }
        put(&mut bulk.tail[bulk.tail_have..]);
        put(self.next.as_mut().map_or(&mut [], |b| b.spare_mut()));
        let n = ready!(stream.poll_read_vectored(cx, &mut into))?;
        let mut behind = n;
        let mut left = bulk.rest_left();
        for buffer in &mut bulk.into {
            let part = behind.min(left).min(buffer.capacity() - buffer.len());
            buffer.advance(part);
            behind -= part;
            left -= part;
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
