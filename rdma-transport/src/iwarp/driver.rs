//! Connects a queue pair to its socket.
//!
//! *Operation.* [`QueuePair::poll`] writes framed data and reads into memory chosen by the core, until there is a completion or the
//! socket is exhausted. All activity happens in polls; no task is spawned.
//!
//! *Memory.* Vectored calls directly from and to the buffers of work requests and regions.
//!
//! *Errors.* The first error flushes all work. After a violation a Terminate is sent, after a disconnect the work posted before it;
//! both have a time limit. The socket is then closed for writing, and read until the peer closes too, so that the peer receives the
//! last bytes instead of a reset.

use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::pair::Pair;
use super::violation::Violation;
use crate::lease;
use crate::verbs::{
    Completion, Counters, Down, Limits, QueuePair, Refused, Region, Rejected, RemoteSeg, Work,
    WorkError,
};

/// System calls of one poll; then the task yields to others.
const ROUNDS_MAX: usize = 16;

enum Phase {
    Open,
    /// [`QueuePair::disconnect`] was called: posted work is still sent.
    Closing,
    /// All work is returned; the last bytes are sent, then the peer's end of stream is awaited.
    Ending {
        down: Down,
        shut: bool,
    },
    Over(Down),
}

/// The reason of the end.
enum End {
    Violation(Violation),
    Socket(io::Error),
    /// The peer closed the connection; true if in the middle of a message.
    Closed(bool),
    /// The peer sent a Terminate.
    Terminated(String, WorkError),
}

pub(crate) struct IwarpPair {
    stream: TcpStream,
    pair: Pair,
    phase: Phase,
    /// Sending is delayed until then.
    hold: Option<Pin<Box<Sleep>>>,
    close_time_max: Duration,
    /// Set when the end begins.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl IwarpPair {
    pub(crate) fn new(
        stream: TcpStream,
        pair: Pair,
        first_fpdu_delay: Duration,
        close_time_max: Duration,
    ) -> Self {
        let hold =
            (!first_fpdu_delay.is_zero()).then(|| Box::pin(tokio::time::sleep(first_fpdu_delay)));
        Self { stream, pair, phase: Phase::Open, hold, close_time_max, deadline: None }
    }

    /// Writes once. False if there is no data, or the socket is full; it then wakes the task.
    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if let Some(hold) = &mut self.hold {
            if hold.as_mut().poll(cx).is_pending() {
                return Ok(false);
            }
            self.hold = None;
        }
        loop {
            let ends_segment = self.pair.ends_segment();
            let slices = self.pair.write_slices();
            if slices.is_empty() {
                return Ok(false);
            }
            match self.stream.poll_write_ready(cx) {
                Poll::Pending => return Ok(false),
                Poll::Ready(ready) => ready?,
            }
            lease::check();
            let taken = match ends_segment {
                true => write_end(&self.stream, &slices),
                false => self.stream.try_write_vectored(&slices),
            };
            match taken {
                Ok(n) => {
                    self.pair.wrote(n);
                    return Ok(true);
                }
                // The readiness was outdated: polling again arms the waker.
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Reads once. False if the socket is empty; it then wakes the task.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        loop {
            match self.stream.poll_read_ready(cx) {
                Poll::Pending => return Ok(false),
                Poll::Ready(ready) => ready.map_err(End::Socket)?,
            }
            let mut slices = self.pair.read_slices().map_err(End::Violation)?;
            match read_vectored(&self.stream, &mut slices) {
                Ok(0) => return Err(End::Closed(!self.pair.is_between())),
                Ok(n) => {
                    self.pair.received(n).map_err(End::Violation)?;
                    return Ok(true);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(End::Socket(e)),
            }
        }
    }

    /// Reads and discards. Ready at the end of the stream.
    fn drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut waste = [0; 4096];
        for _ in 0..ROUNDS_MAX {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_read(&mut waste) {
                Ok(0) => return Poll::Ready(Ok(())),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn check_terminated(&self) -> Result<(), End> {
        let Some(t) = self.pair.terminated() else { return Ok(()) };
        // RDMAP refuses a Read Request with a protection error; then it was the oldest one.
        let of_read = t.cause.layer == 0 && t.cause.etype == 1;
        let error = if of_read { WorkError::RemoteAccess } else { WorkError::Flushed };
        Err(End::Terminated(t.cause.to_string(), error))
    }

    fn open(&mut self, cx: &mut Context<'_>, out: &mut Vec<Completion>) -> Result<bool, End> {
        let before = out.len();
        for _ in 0..ROUNDS_MAX {
            let wrote = self.write(cx).map_err(End::Socket)?;
            let read = self.read(cx)?;
            self.pair.collect(out);
            self.check_terminated()?;
            if out.len() > before {
                return Ok(true);
            }
            if !wrote && !read {
                self.pair.rest();
                return Ok(false);
            }
        }
        cx.waker().wake_by_ref();
        Ok(false)
    }

    /// Returns all work and enters the phase for the remaining steps.
    fn end(&mut self, end: End, out: &mut Vec<Completion>) {
        let oldest_read = match &end {
            End::Terminated(_, e) => *e,
            _ => WorkError::Flushed,
        };
        let down = |reason: String| Down { reason, violation: None };
        let mut lingers = false;
        let down = match end {
            End::Violation(v) => {
                v.count();
                self.pair.flush(out, WorkError::Flushed);
                self.pair.terminate(v);
                lingers = true;
                let reason = format!("peer broke rule {v}; sent Terminate: {}", v.cause());
                Down { reason, violation: Some(v.name()) }
            }
            End::Socket(e) => down(format!("socket: {e}")),
            End::Closed(false) => down("closed by peer".into()),
            End::Closed(true) => down("closed by peer in the middle of a message".into()),
            End::Terminated(cause, _) => down(format!("peer sent Terminate: {cause}")),
        };
        self.pair.flush(out, oldest_read);
        self.phase = if lingers { Phase::Ending { down, shut: false } } else { Phase::Over(down) };
        self.hold = None;
    }

    /// Sends work posted before the disconnect. True when done.
    fn closing(&mut self, cx: &mut Context<'_>, out: &mut Vec<Completion>) -> bool {
        for _ in 0..ROUNDS_MAX {
            match self.write(cx) {
                Ok(true) => {}
                // A failing socket needs no further steps.
                Err(_) => return true,
                Ok(false) => {
                    self.pair.collect(out);
                    let held = self.hold.is_some();
                    // The peer may be blocked in its own write.
                    let gone = self.drain(cx).is_ready();
                    return gone || (!held && self.pair.is_idle());
                }
            }
        }
        cx.waker().wake_by_ref();
        false
    }

    /// Completes the end: sends the last bytes, closes the socket for writing, awaits the peer's end of stream.
    fn ending(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Phase::Ending { shut, .. } = &self.phase else { return Poll::Ready(()) };
        if !*shut {
            while let Ok(true) = self.write(cx) {}
            if !self.pair.is_idle() && !self.is_late(cx) {
                return Poll::Pending;
            }
            // The socket may be closed already.
            let _ = SockRef::from(&self.stream).shutdown(Shutdown::Write);
            if let Phase::Ending { shut, .. } = &mut self.phase {
                *shut = true;
            }
        }
        if self.drain(cx).is_ready() || self.is_late(cx) { Poll::Ready(()) } else { Poll::Pending }
    }

    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        let limit = self.close_time_max;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        deadline.as_mut().poll(cx).is_ready()
    }
}

/// Writes bytes that end a TCP segment: the kernel adds later ones to none that has a part of them (tcp(7) has no word of it, but
/// Linux keeps `MSG_EOR` since 4.7).
fn write_end(stream: &TcpStream, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
    let flags = libc::MSG_EOR | libc::MSG_NOSIGNAL;
    let send = || SockRef::from(stream).send_vectored_with_flags(slices, flags);
    stream.try_io(Interest::WRITABLE, send)
}

/// Reads into several buffers. A short read has emptied the socket: clearing the readiness in the same step saves the system call
/// that would return EAGAIN.
fn read_vectored(stream: &TcpStream, slices: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
    let room: usize = slices.iter().map(|s| s.len()).sum();
    let mut short = None;
    let result = stream.try_io(Interest::READABLE, || match stream.try_read_vectored(slices) {
        Ok(n) if 0 < n && n < room => {
            short = Some(n);
            Err(ErrorKind::WouldBlock.into())
        }
        other => other,
    });
    short.map_or(result, Ok)
}

impl QueuePair for IwarpPair {
    fn limits(&self) -> Limits {
        self.pair.limits()
    }

    fn post(&mut self, chain: Vec<Work>) -> Result<(), Rejected> {
        match self.phase {
            Phase::Open => self.pair.post(chain),
            _ => Err(Rejected { why: Refused::Down, chain }),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Vec<Completion>) -> Poll<Result<(), Down>> {
        let before = out.len();
        loop {
            match &self.phase {
                Phase::Open => match self.open(cx, out) {
                    Ok(true) => return Poll::Ready(Ok(())),
                    Ok(false) => return Poll::Pending,
                    Err(end) => self.end(end, out),
                },
                Phase::Closing => {
                    let done = self.closing(cx, out) || self.is_late(cx);
                    if done {
                        self.pair.flush(out, WorkError::Flushed);
                        let down = Down { reason: "closed by this side".into(), violation: None };
                        self.phase = Phase::Ending { down, shut: false };
                    } else if out.len() == before {
                        return Poll::Pending;
                    }
                }
                Phase::Ending { .. } if out.len() == before => {
                    ready!(self.ending(cx));
                    let over = Phase::Over(Down { reason: String::new(), violation: None });
                    if let Phase::Ending { down, .. } = std::mem::replace(&mut self.phase, over) {
                        self.phase = Phase::Over(down);
                    }
                }
                Phase::Over(down) if out.len() == before => {
                    return Poll::Ready(Err(down.clone()));
                }
                _ => {}
            }
            if out.len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn register(&mut self, region: Region) -> Result<RemoteSeg, (Refused, Region)> {
        match self.phase {
            Phase::Open => self.pair.register(region),
            _ => Err((Refused::Down, region)),
        }
    }

    fn release(&mut self, handle: u32) -> Option<Region> {
        self.pair.release(handle)
    }

    fn disconnect(&mut self) {
        if matches!(self.phase, Phase::Open) {
            self.phase = Phase::Closing;
        }
    }

    fn counters(&self) -> Counters {
        self.pair.counters()
    }
}
