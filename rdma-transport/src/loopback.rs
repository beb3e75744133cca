//! Queue pairs within this process: implements [`crate::verbs`] without a network, for tests and demonstrations.
//!
//! *Operation.* Both ends of a connection share one state under a lock. A poll executes the work that its side has posted, at once
//! and in order: a Send fills the peer's next Receive, Write and Read access the peer's regions. Then it returns completions.
//!
//! *Memory.* Posted memory belongs to the queue pair until its completion. Copies in place of DMA do not count as copies.
//!
//! *Errors.* A Send without a Receive at the peer, a message longer than the Receive, and an access outside a region or against its
//! rights violate a rule: the connection ends, and all posted work is returned as flushed.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use iobuf::BufMut;
use mutex::locked;
use tokio::sync::{mpsc, oneshot};

use crate::verbs::{
    BoxFuture, Completion, ConnectParams, Connected, Counters, Down, Incoming, Limits, Listener,
    Provider, QueuePair, Refused, Region, Rejected, RemoteSeg, Work, WorkError, WorkId, WorkKind,
};

const SEND_PIECES_MAX: usize = 64;
const REGIONS_MAX: usize = 4096;
const PENDING_CONNECTIONS_MAX: usize = 128;

/// The provider. All instances share the listeners of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loopback;

struct Dialled {
    peer: SocketAddr,
    params: ConnectParams,
    answer: oneshot::Sender<io::Result<Connected>>,
}

struct Listeners {
    next_port: u16,
    at: HashMap<SocketAddr, mpsc::Sender<Dialled>>,
}

static LISTENERS: Mutex<Option<Listeners>> = Mutex::new(None);

/// Calls `f` with the table of listeners, after finding an unused port.
fn with_listeners<T>(f: impl FnOnce(&mut Listeners) -> T) -> T {
    let mut table = locked(&LISTENERS);
    f(table.get_or_insert_with(|| Listeners { next_port: 1024, at: HashMap::new() }))
}

impl Listeners {
    fn any_port(&mut self) -> u16 {
        self.next_port = self.next_port.checked_add(1).unwrap_or(1024);
        self.next_port
    }
}

impl Provider for Loopback {
    fn name(&self) -> &'static str {
        "loopback"
    }

    fn listen(&self, at: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let (sender, dialled) = mpsc::channel(PENDING_CONNECTIONS_MAX);
            let local = with_listeners(|table| {
                table.at.retain(|_, listener| !listener.is_closed());
                let mut local = at;
                if at.port() == 0 {
                    let mut tries = 0..=u16::MAX;
                    local.set_port(table.any_port());
                    while table.at.contains_key(&local) && tries.next().is_some() {
                        local.set_port(table.any_port());
                    }
                }
                if table.at.contains_key(&local) {
                    return Err(io::Error::from(io::ErrorKind::AddrInUse));
                }
                table.at.insert(local, sender);
                Ok(local)
            })?;
            Ok(Box::new(LoopbackListener { local, dialled }) as Box<dyn Listener>)
        })
    }

    fn connect(
        &self,
        to: SocketAddr,
        params: ConnectParams,
    ) -> BoxFuture<'_, io::Result<Connected>> {
        Box::pin(async move {
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            let (listener, port) =
                with_listeners(|table| (table.at.get(&to).cloned(), table.any_port()));
            let (answer, answered) = oneshot::channel();
            let peer = SocketAddr::new(to.ip(), port);
            let dialled = Dialled { peer, params, answer };
            listener.ok_or_else(refused)?.send(dialled).await.map_err(|_| refused())?;
            answered.await.map_err(|_| refused())?
        })
    }
}

struct LoopbackListener {
    local: SocketAddr,
    dialled: mpsc::Receiver<Dialled>,
}

impl Listener for LoopbackListener {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Incoming>>> {
        Box::pin(async move {
            // The table holds the sender, so this waits for a connection.
            let dialled = self.dialled.recv().await;
            let dialled = dialled.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
            let incoming = LoopbackIncoming { local: self.local, dialled };
            Ok(Box::new(incoming) as Box<dyn Incoming>)
        })
    }
}

struct LoopbackIncoming {
    local: SocketAddr,
    dialled: Dialled,
}

impl Incoming for LoopbackIncoming {
    fn peer(&self) -> SocketAddr {
        self.dialled.peer
    }

    fn request(&mut self) -> BoxFuture<'_, io::Result<Bytes>> {
        let private_data = self.dialled.params.private_data.clone();
        Box::pin(async move { Ok(private_data) })
    }

    fn accept(self: Box<Self>, params: ConnectParams) -> BoxFuture<'static, io::Result<Connected>> {
        Box::pin(async move {
            let Self { local, dialled: Dialled { peer, params: theirs, answer } } = *self;
            let [client, server] = pair(&theirs, &params);
            let connected =
                |qp, private_data, peer, local| Connected { qp, private_data, peer, local };
            let client = connected(client, params.private_data, local, peer);
            answer.send(Ok(client)).map_err(|_| io::ErrorKind::ConnectionAborted)?;
            Ok(connected(server, theirs.private_data, peer, local))
        })
    }

    fn reject(self: Box<Self>, _private_data: Bytes) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // The dialling side may have given up.
            let _ = self.dialled.answer.send(Err(io::ErrorKind::ConnectionRefused.into()));
        })
    }
}

/// Creates two connected queue pairs, each sized by the parameters of its side.
pub fn pair(first: &ConnectParams, second: &ConnectParams) -> [Box<dyn QueuePair>; 2] {
    let shared = Arc::new(Mutex::new(Shared { ends: [End::new(first), End::new(second)] }));
    [0, 1].map(|side| Box::new(LoopbackPair { shared: shared.clone(), side }) as Box<dyn QueuePair>)
}

struct Known {
    region: Region,
    offset: u64,
    valid: bool,
}

impl Known {
    fn len(&self) -> usize {
        match &self.region {
            Region::Writable(b) => b.capacity(),
            Region::Readable(b) => b.len(),
        }
    }
}

struct End {
    limits: Limits,
    recvs: VecDeque<(WorkId, BufMut)>,
    work: VecDeque<Work>,
    done: VecDeque<Completion>,
    regions: HashMap<u32, Known>,
    counters: Counters,
    waker: Option<Waker>,
    leaving: bool,
    down: Option<Down>,
}

struct Shared {
    ends: [End; 2],
}

struct LoopbackPair {
    shared: Arc<Mutex<Shared>>,
    side: usize,
}

/// The failure of a work request.
struct Failed {
    error: WorkError,
    rule: &'static str,
}

const fn failed(error: WorkError, rule: &'static str) -> Failed {
    Failed { error, rule }
}

impl End {
    fn new(params: &ConnectParams) -> Self {
        Self {
            limits: Limits {
                recvs_max: params.recvs,
                sends_max: params.sends,
                send_pieces_max: SEND_PIECES_MAX,
                reads_in_flight_max: usize::from(params.reads_out),
                regions_max: REGIONS_MAX,
                backlog_useful: crate::limits::UNTAKEN_MAX,
            },
            recvs: VecDeque::new(),
            work: VecDeque::new(),
            done: VecDeque::new(),
            regions: HashMap::new(),
            counters: Counters::default(),
            waker: None,
            leaving: false,
            down: None,
        }
    }

    fn complete(
        &mut self,
        id: WorkId,
        kind: WorkKind,
        result: Result<usize, WorkError>,
        buf: Option<BufMut>,
    ) {
        self.done.push_back(Completion { id, kind, result, buf, invalidated: None });
    }

    /// Returns all work with the reason of the end.
    fn flush(&mut self, down: Down) {
        if self.down.is_some() {
            return;
        }
        let flushed = Err(WorkError::Flushed);
        for (id, buf) in std::mem::take(&mut self.recvs) {
            self.complete(id, WorkKind::Recv, flushed, Some(buf));
        }
        for work in std::mem::take(&mut self.work) {
            let (id, kind, buf) = dissolve(work);
            self.complete(id, kind, flushed, buf);
        }
        self.down = Some(down);
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Checks an access of the peer; returns the region and the position in it.
    fn touch(
        &mut self,
        seg: RemoteSeg,
        len: usize,
        write: bool,
    ) -> Result<(&mut Region, usize), Failed> {
        let refused = |rule| failed(WorkError::RemoteAccess, rule);
        let known = self.regions.get_mut(&seg.handle).filter(|k| k.valid);
        let known = known.ok_or(refused("loopback.region.unknown"))?;
        let start = seg.offset.checked_sub(known.offset).and_then(|s| usize::try_from(s).ok());
        let inside = start.filter(|s| s.checked_add(len).is_some_and(|end| end <= known.len()));
        let start = inside.ok_or(refused("loopback.region.bounds"))?;
        match &known.region {
            Region::Writable(_) if write => Ok((&mut known.region, start)),
            Region::Readable(_) if !write => Ok((&mut known.region, start)),
            _ => Err(refused("loopback.region.access")),
        }
    }
}

fn dissolve(work: Work) -> (WorkId, WorkKind, Option<BufMut>) {
    match work {
        Work::Recv { id, into } => (id, WorkKind::Recv, Some(into)),
        Work::Send { id, .. } => (id, WorkKind::Send, None),
        Work::Write { id, .. } => (id, WorkKind::Write, None),
        Work::Read { id, into, .. } => (id, WorkKind::Read, Some(into)),
    }
}

impl Shared {
    /// This end and the other one.
    fn split(&mut self, side: usize) -> (&mut End, &mut End) {
        let [a, b] = &mut self.ends;
        if side == 0 { (a, b) } else { (b, a) }
    }

    /// Executes the work posted by `side`.
    fn run(&mut self, side: usize) {
        if self.ends[side].down.is_some() {
            return;
        }
        while self.ends[side].down.is_none() {
            let (me, peer) = self.split(side);
            let Some(mut work) = me.work.pop_front() else { break };
            let outcome = match &mut work {
                Work::Send { from, invalidate, .. } => send(from, *invalidate, me, peer),
                Work::Write { from, to, .. } => write(from, *to, me, peer),
                Work::Read { from, into, .. } => read(from, into, me, peer),
                Work::Recv { .. } => Ok(0),
            };
            self.finish_one(side, work, outcome);
        }
        let (me, peer) = self.split(side);
        if me.leaving {
            let down = |reason: &str| Down { reason: reason.into(), violation: None };
            me.flush(down("disconnected by this side"));
            peer.flush(down("disconnected by the peer"));
            peer.wake();
        }
    }

    fn finish_one(&mut self, side: usize, work: Work, outcome: Result<usize, Failed>) {
        let (me, peer) = self.split(side);
        let (id, kind, buf) = dissolve(work);
        me.complete(id, kind, outcome.as_ref().map(|n| *n).map_err(|f| f.error), buf);
        if let Err(f) = outcome {
            // The violation is reported at the peer, which was the target.
            me.flush(Down { reason: format!("refused by the peer: {}", f.rule), violation: None });
            let reason = format!("the peer broke {}", f.rule);
            peer.flush(Down { reason, violation: Some(f.rule) });
            peer.wake();
        }
    }
}

fn send(
    from: &[iobuf::Buf],
    invalidate: Option<u32>,
    me: &mut End,
    peer: &mut End,
) -> Result<usize, Failed> {
    let len: usize = from.iter().map(|b| b.len()).sum();
    let recv = peer.recvs.pop_front();
    let (id, mut into) = recv.ok_or(failed(WorkError::Protocol, "loopback.send.no-receive"))?;
    if len > into.capacity() {
        peer.complete(id, WorkKind::Recv, Err(WorkError::Length), Some(into));
        return Err(failed(WorkError::Length, "loopback.send.too-long"));
    }
    if let Some(handle) = invalidate {
        match peer.regions.get_mut(&handle).filter(|k| k.valid) {
            Some(known) => known.valid = false,
            None => {
                peer.complete(id, WorkKind::Recv, Err(WorkError::Protocol), Some(into));
                return Err(failed(WorkError::RemoteAccess, "loopback.send.invalidate"));
            }
        }
        me.counters.sends_invalidate += 1;
    }
    let mut at = 0;
    for piece in from {
        into.whole_mut()[at..at + piece.len()].copy_from_slice(piece);
        at += piece.len();
    }
    into.set_filled(len);
    me.counters.sends += 1;
    me.counters.send_bytes += len as u64;
    peer.counters.recvs += 1;
    peer.counters.recv_bytes += len as u64;
    let (kind, buf) = (WorkKind::Recv, Some(into));
    peer.done.push_back(Completion { id, kind, result: Ok(len), buf, invalidated: invalidate });
    peer.wake();
    Ok(len)
}

fn write(from: &iobuf::Buf, to: RemoteSeg, me: &mut End, peer: &mut End) -> Result<usize, Failed> {
    if let (Region::Writable(region), at) = peer.touch(to, from.len(), true)? {
        region.whole_mut()[at..at + from.len()].copy_from_slice(from);
    }
    me.counters.writes += 1;
    me.counters.write_bytes += from.len() as u64;
    Ok(from.len())
}

fn read(
    from: &[RemoteSeg],
    into: &mut BufMut,
    me: &mut End,
    peer: &mut End,
) -> Result<usize, Failed> {
    let mut total = 0;
    for seg in from {
        let len = usize::try_from(seg.len).unwrap_or(usize::MAX);
        if let (Region::Readable(region), at) = peer.touch(*seg, len, false)? {
            into.spare_mut()[..len].copy_from_slice(&region[at..at + len]);
        }
        into.advance(len);
        total += len;
    }
    me.counters.reads += 1;
    me.counters.read_bytes += total as u64;
    Ok(total)
}

/// True for a chain that exceeds a fixed limit, whatever completes.
fn is_invalid(work: &Work, limits: &Limits) -> bool {
    match work {
        Work::Recv { .. } => false,
        Work::Send { from, .. } => from.len() > limits.send_pieces_max,
        Work::Write { from, to, .. } => u32::try_from(from.len()).map_or(true, |n| n > to.len),
        Work::Read { from, into, .. } => {
            let wanted: u64 = from.iter().map(|s| u64::from(s.len)).sum();
            wanted > (into.capacity() - into.len()) as u64
        }
    }
}

impl QueuePair for LoopbackPair {
    fn limits(&self) -> Limits {
        locked(&self.shared).ends[self.side].limits
    }

    fn post(&mut self, chain: Vec<Work>) -> Result<(), Rejected> {
        let mut shared = locked(&self.shared);
        let (me, _) = shared.split(self.side);
        let recvs = chain.iter().filter(|w| matches!(w, Work::Recv { .. })).count();
        // Completions that were not polled still occupy their slots.
        let done_recvs = me.done.iter().filter(|c| c.kind == WorkKind::Recv).count();
        let done_others = me.done.len() - done_recvs;
        let why = if me.down.is_some() || me.leaving {
            Some(Refused::Down)
        } else if chain.iter().any(|w| is_invalid(w, &me.limits)) {
            Some(Refused::Invalid)
        } else if me.recvs.len() + done_recvs + recvs > me.limits.recvs_max
            || me.work.len() + done_others + chain.len() - recvs > me.limits.sends_max
        {
            Some(Refused::Full)
        } else {
            None
        };
        if let Some(why) = why {
            return Err(Rejected { why, chain });
        }
        for work in chain {
            match work {
                Work::Recv { id, into } => me.recvs.push_back((id, into)),
                other => me.work.push_back(other),
            }
        }
        Ok(())
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Vec<Completion>) -> Poll<Result<(), Down>> {
        let mut shared = locked(&self.shared);
        shared.run(self.side);
        let (me, _) = shared.split(self.side);
        if !me.done.is_empty() {
            out.extend(me.done.drain(..));
            return Poll::Ready(Ok(()));
        }
        if let Some(down) = &me.down {
            return Poll::Ready(Err(down.clone()));
        }
        me.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn register(&mut self, region: Region) -> Result<RemoteSeg, (Refused, Region)> {
        let mut shared = locked(&self.shared);
        let (me, _) = shared.split(self.side);
        if me.down.is_some() {
            return Err((Refused::Down, region));
        }
        if me.regions.len() >= me.limits.regions_max {
            return Err((Refused::Full, region));
        }
        let len = match &region {
            Region::Writable(b) => b.capacity(),
            Region::Readable(b) => b.len(),
        };
        let Ok(len) = u32::try_from(len) else { return Err((Refused::Invalid, region)) };
        // Handles and offsets are random, so that their users cannot rely on particular values.
        let mut handle = random_word();
        while handle == 0 || me.regions.contains_key(&handle) {
            handle = handle.wrapping_add(1);
        }
        let offset = u64::from(random_word()) << 16;
        me.regions.insert(handle, Known { region, offset, valid: true });
        Ok(RemoteSeg { handle, len, offset })
    }

    fn release(&mut self, handle: u32) -> Option<Region> {
        locked(&self.shared).ends[self.side].regions.remove(&handle).map(|k| k.region)
    }

    fn disconnect(&mut self) {
        let mut shared = locked(&self.shared);
        let (me, _) = shared.split(self.side);
        me.leaving = true;
        // This side's own poll executes it.
        me.wake();
    }

    fn counters(&self) -> Counters {
        locked(&self.shared).ends[self.side].counters
    }
}

fn random_word() -> u32 {
    // Without entropy handles are guessable, but only by this process.
    getrandom::u32().unwrap_or(1)
}

impl Drop for LoopbackPair {
    fn drop(&mut self) {
        let mut shared = locked(&self.shared);
        let (me, peer) = shared.split(self.side);
        peer.flush(Down { reason: "the peer is gone".into(), violation: None });
        peer.wake();
        me.recvs.clear();
        me.work.clear();
        me.done.clear();
        me.regions.clear();
        me.down = Some(Down { reason: "dropped".into(), violation: None });
    }
}
