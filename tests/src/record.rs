//! Records one side's view of a connection: messages, the memory that it registers, and the peer's writes.
//!
//! *Operation.* [`Recording`] is a provider that wraps another one. Each of its connections gets a [`Tape`]. Readable memory is
//! recorded when it is registered, writable memory when it is released.
//!
//! *Memory.* All transferred data, until the tape is dropped: for tests of some megabytes.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use mutex::locked;
use rdma_transport::verbs::{
    BoxFuture, Completion, ConnectParams, Connected, Counters, Down, Limits, Listener, Provider,
    QueuePair, Refused, Region, Rejected, RemoteSeg, Work, WorkKind,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A Send of this side.
    Sent(Vec<u8>),
    /// A Send of the peer.
    Received(Vec<u8>),
    /// Readable memory at its registration.
    Lent(RemoteSeg, Vec<u8>),
    /// Writable memory at its release.
    TakenBack(RemoteSeg, Vec<u8>),
}

/// The events of one connection, in order.
#[derive(Clone, Debug, Default)]
pub struct Tape(Arc<Mutex<Vec<Event>>>);

/// A provider that records its connections.
pub struct Recording<P> {
    inner: P,
    tapes: Arc<Mutex<Vec<Tape>>>,
}

/// Bytes of an SMB Direct Data Transfer Message before its data, without padding (MS-SMBD section 2.2.3).
const DATA_HEADER: usize = 20;

impl Tape {
    fn note(&self, event: Event) {
        locked(&self.0).push(event);
    }

    /// The events so far.
    pub fn events(&self) -> Vec<Event> {
        locked(&self.0).clone()
    }

    /// The SMB Direct messages sent and received, assembled from their fragments.
    pub fn messages(&self) -> [Vec<Vec<u8>>; 2] {
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        for event in self.events() {
            match event {
                Event::Sent(bytes) => sent.push(bytes),
                Event::Received(bytes) => received.push(bytes),
                Event::Lent(..) | Event::TakenBack(..) => {}
            }
        }
        [sent, received].map(|all| joined(&all))
    }

    /// A line for each event: its kind and its bytes in hexadecimal; for memory, token and offset first.
    pub fn lines(&self) -> String {
        let mut text = String::new();
        for event in self.events() {
            let (what, seg, bytes) = match event {
                Event::Sent(bytes) => ("sent", None, bytes),
                Event::Received(bytes) => ("received", None, bytes),
                Event::Lent(seg, bytes) => ("lent", Some(seg), bytes),
                Event::TakenBack(seg, bytes) => ("taken-back", Some(seg), bytes),
            };
            text.push_str(what);
            // Writing to a string cannot fail.
            if let Some(seg) = seg {
                let _ = write!(text, " {} {}", seg.handle, seg.offset);
            }
            text.push(' ');
            for byte in bytes {
                let _ = write!(text, "{byte:02x}");
            }
            text.push('\n');
        }
        text
    }
}

/// The whole messages of one direction. Its first Send is the negotiation.
fn joined(sends: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut whole = Vec::new();
    let mut open: Vec<u8> = Vec::new();
    for send in sends.iter().skip(1) {
        let field = |at: usize| {
            let bytes = send.get(at..).and_then(|rest| rest.first_chunk::<4>());
            bytes.map_or(0, |b| usize::try_from(u32::from_le_bytes(*b)).unwrap_or(usize::MAX))
        };
        let (left, at, len) = (field(8), field(12), field(16));
        // A message that only grants credits has no data.
        if send.len() <= DATA_HEADER || len == 0 {
            continue;
        }
        let end = at.saturating_add(len);
        open.extend_from_slice(send.get(at..end).unwrap_or_default());
        if left == 0 {
            whole.push(std::mem::take(&mut open));
        }
    }
    whole
}

impl<P> Recording<P> {
    /// Wraps a provider whose events are recorded.
    pub fn new(inner: P) -> Self {
        Self { inner, tapes: Arc::default() }
    }

    /// The tapes of all connections, in order of creation.
    pub fn tapes(&self) -> Vec<Tape> {
        locked(&self.tapes).clone()
    }
}

impl<P: Provider> Provider for Recording<P> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn listen(&self, at: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        self.inner.listen(at)
    }

    fn connect(
        &self,
        to: SocketAddr,
        params: ConnectParams,
    ) -> BoxFuture<'_, io::Result<Connected>> {
        Box::pin(async move {
            let made = self.inner.connect(to, params).await?;
            let tape = Tape::default();
            locked(&self.tapes).push(tape.clone());
            let qp = Box::new(Recorded { inner: made.qp, tape, lent: HashMap::new() });
            Ok(Connected { qp, ..made })
        })
    }
}

struct Recorded {
    inner: Box<dyn QueuePair>,
    tape: Tape,
    /// Regions that the peer may write to.
    lent: HashMap<u32, RemoteSeg>,
}

impl QueuePair for Recorded {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn post(&mut self, chain: Vec<Work>) -> Result<(), Rejected> {
        let sends: Vec<Vec<u8>> = chain
            .iter()
            .filter_map(|work| match work {
                Work::Send { from, .. } => Some(from.iter().flat_map(|b| b.to_vec()).collect()),
                _ => None,
            })
            .collect();
        self.inner.post(chain)?;
        sends.into_iter().for_each(|bytes| self.tape.note(Event::Sent(bytes)));
        Ok(())
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Vec<Completion>) -> Poll<Result<(), Down>> {
        let before = out.len();
        let polled = self.inner.poll(cx, out);
        for done in &out[before..] {
            if let (WorkKind::Recv, Ok(_), Some(buf)) = (done.kind, done.result, &done.buf) {
                self.tape.note(Event::Received(buf.filled().to_vec()));
            }
        }
        polled
    }

    fn register(&mut self, region: Region) -> Result<RemoteSeg, (Refused, Region)> {
        let readable = match &region {
            Region::Readable(buf) => Some(buf.to_vec()),
            Region::Writable(_) => None,
        };
        let seg = self.inner.register(region)?;
        match readable {
            Some(bytes) => self.tape.note(Event::Lent(seg, bytes)),
            None => drop(self.lent.insert(seg.handle, seg)),
        }
        Ok(seg)
    }

    fn release(&mut self, handle: u32) -> Option<Region> {
        let mut region = self.inner.release(handle);
        if let (Some(Region::Writable(buf)), Some(seg)) = (&mut region, self.lent.remove(&handle)) {
            self.tape.note(Event::TakenBack(seg, buf.whole_mut().to_vec()));
        }
        region
    }

    fn disconnect(&mut self) {
        self.inner.disconnect();
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
