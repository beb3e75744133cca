//! One connection over a card.
//!
//! *Operation.* [`QueuePair::poll`] posts waiting work, takes completions, reads events of librdmacm and the device, and arms the
//! completion queues only when all of these are idle. All activity happens in polls; no task is spawned. The completion of a few
//! Sends and Writes is noticed together with the next event, or a moment later: a wake-up for it would cost more than it gains.
//!
//! *Memory.* Work keeps its memory in the queues until the card reports completion, or until the queue pair is destroyed. Regions
//! for the peer are registered one by one; their keys end with the connection.
//!
//! *Errors.* The first error ends the connection: the peer is informed, completions are still taken until the peer agrees or time
//! is up, the queue pair is destroyed, and all remaining work is returned as flushed.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use iobuf::BufMut;
use rdma_sys::*;
use tokio::time::Sleep;

use super::cm::Event;
use super::events::Told;
use super::failures;
use super::hardware::{BATCH, Hardware};
use super::keys::{Key, Keys};
use super::memory::Registered;
use super::queue::Opening;
use super::receives::{Early, Front, Posted, Receives};
use super::requests::{InFlight, Sender, piece};
use super::spin::Spin;
use super::windows::Windows;
use crate::turn;
use crate::verbs::{
    Completion, Counters, Down, Limits, QueuePair, Refused, Region, Rejected, RemoteSeg, Work,
    WorkError, WorkId, WorkKind,
};

/// Flag in the number of a Receive.
const OF_RECV: u64 = 1 << 63;
/// Completions of one poll; then the task yields to others.
const COMPLETIONS_MAX: usize = 256;
/// Sends and Writes whose completion is noticed with the next event: how many, with how many bytes, and for how long.
const LINGER_WORK_MAX: usize = 16;
const LINGER_BYTES_MAX: usize = 2 << 20;
const LINGER_TIME_MAX: Duration = Duration::from_millis(50);
/// If a peer has sent no message this long after the accept, its first one may be stuck in the device.
const FIRST_TIME_MAX: Duration = Duration::from_millis(200);

const MESSAGE_LENGTH: &str = "verbs-message-length";
const REMOTE_ACCESS: &str = "verbs-remote-access";
const REQUEST: &str = "verbs-request";
const TOUCHED: &str = "the peer touched memory that it may not";
const REFUSED: &str = "the peer sent a request that the card refused";
/// Rules whose violation a card reports.
pub const RULES: &[&str] = &[MESSAGE_LENGTH, REMOTE_ACCESS, REQUEST];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// [`QueuePair::disconnect`] was called: posted work is still sent.
    Closing,
    /// The peer was informed of the end; its answer is awaited.
    Ending,
    Over,
}

/// The reason of the end.
struct End {
    reason: String,
    violation: Option<&'static str>,
    /// The reason is only a flushed completion, so any other reason is more informative.
    is_flush: bool,
}

impl End {
    fn because(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), violation: None, is_flush: false }
    }

    fn broken(rule: &'static str, reason: &str) -> Self {
        Self { violation: Some(rule), ..Self::because(reason) }
    }

    fn flushed() -> Self {
        Self { is_flush: true, ..Self::because("connection ended") }
    }

    /// Returns the more informative of this reason and a later one.
    fn or(self, later: Self) -> Self {
        if self.is_flush { later } else { self }
    }
}

/// The more informative of two results.
fn both(first: Result<(), End>, then: Result<(), End>) -> Result<(), End> {
    match (first, then) {
        (Err(first), Err(then)) => Err(first.or(then)),
        (first, then) => first.and(then),
    }
}

pub(super) struct VerbsPair {
    // Dropped first: after that the card touches no memory.
    hw: Option<Hardware>,
    recvs: Receives<Option<Registered>>,
    sender: Sender,
    windows: Windows,
    /// Registrations of the provider's own Receives that are outside of slabs.
    early: Vec<Registered>,
    limits: Limits,
    counters: Counters,
    phase: Phase,
    end: Option<End>,
    peer_is_gone: bool,
    /// A failure was logged.
    has_failed: bool,
    spin: Spin,
    close_time_max: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
    /// Deadline after which completions are requested.
    linger: Option<Pin<Box<Sleep>>>,
    /// When to probe for the peer's first message, on devices that need it.
    first: Option<Pin<Box<Sleep>>>,
    // Dropped last: the domain of all registrations, and the device.
    keys: Keys,
}

impl VerbsPair {
    pub(super) fn new(
        hw: Hardware,
        keys: Keys,
        limits: Limits,
        depth: u32,
        spin_max: Duration,
        close_time_max: Duration,
    ) -> Self {
        Self {
            hw: Some(hw),
            recvs: Receives::new([].into()),
            sender: Sender::new(keys.clone(), depth, limits.reads_in_flight_max),
            windows: Windows::default(),
            early: Vec::new(),
            limits,
            counters: Counters::default(),
            phase: Phase::Open,
            end: None,
            peer_is_gone: false,
            has_failed: false,
            spin: Spin::new(spin_max),
            close_time_max,
            deadline: None,
            linger: None,
            first: None,
            keys,
        }
    }

    /// The hardware, until the connection is over.
    pub(super) fn hardware(&self) -> Option<&Hardware> {
        self.hw.as_ref()
    }

    /// Notes that the connection was accepted, so the peer may send.
    pub(super) fn accepted(&mut self) {
        if self.keys.device.quirks.first_may_lie && self.limits.reads_in_flight_max > 0 {
            self.first = Some(Box::pin(tokio::time::sleep(FIRST_TIME_MAX)));
        }
    }

    /// Sends a Read to a peer that seems silent: with its response, the device notices a message that arrived before. Done once,
    /// because later messages are never stuck, and only after a delay, because the peer must send first (RFC 5044 section 7.1.2).
    fn look_for_first(&mut self, cx: &mut Context<'_>) {
        let Some(time) = &mut self.first else { return };
        let is_wanted = self.counters.recvs == 0 && self.phase == Phase::Open;
        if is_wanted && time.as_mut().poll(cx).is_pending() {
            return;
        }
        self.first = None;
        if is_wanted
            && let Some(hw) = &mut self.hw
            && let Err(e) = self.sender.read_nothing(hw)
        {
            self.begin_end(End::because(e.to_string()));
        }
    }

    /// Posts the provider's own Receives, for messages that arrive before the protocol has posted its Receives.
    pub(super) fn post_early(&mut self, count: usize, size: usize) -> std::io::Result<()> {
        let take = || self.keys.device.gather.try_get(size).unwrap_or_else(|| BufMut::heap(size));
        let mut early: Vec<BufMut> = (0..count).map(|_| take()).collect();
        let mut keys = Vec::new();
        for buf in &mut early {
            keys.push(recv_key(&self.keys, buf)?);
        }
        let pieces: Vec<ibv_sge> = early.iter_mut().zip(&keys).map(|(b, k)| whole(b, k)).collect();
        self.early.extend(keys.into_iter().filter_map(|k| k.registered));
        self.recvs = Receives::new(early.into());
        self.post_recv_list(pieces)
    }

    fn post_recv_list(&mut self, mut pieces: Vec<ibv_sge>) -> std::io::Result<()> {
        let Some(hw) = &mut self.hw else { return Ok(()) };
        let (base, last) = (pieces.as_mut_ptr(), pieces.len().saturating_sub(1));
        let mut list: Vec<ibv_recv_wr> = (0..pieces.len())
            .map(|i| ibv_recv_wr {
                wr_id: OF_RECV,
                next: std::ptr::null_mut(),
                sg_list: base.wrapping_add(i),
                num_sge: 1,
            })
            .collect();
        let first = list.as_mut_ptr();
        for (i, wr) in list.iter_mut().enumerate().take(last) {
            wr.next = first.wrapping_add(i + 1);
        }
        if list.is_empty() {
            return Ok(());
        }
        // SAFETY: the buffers are kept in `recvs` until their completions come or the hardware is gone.
        unsafe { hw.post_recvs(&mut list) }
    }

    fn post_recvs(&mut self, recvs: Vec<(WorkId, BufMut)>) -> std::io::Result<()> {
        let mut pieces = Vec::with_capacity(recvs.len());
        let mut failed = None;
        for (id, into) in recvs {
            let Some((id, mut into)) = self.recvs.hold(id, into) else { continue };
            into.set_filled(0);
            let keep = match recv_key(&self.keys, &mut into) {
                Ok(key) => {
                    pieces.push(whole(&mut into, &key));
                    key.registered
                }
                Err(e) => {
                    failed = Some(e);
                    None
                }
            };
            // Recorded even if the card refused it: it is returned when the connection ends.
            self.recvs.posted(Posted { id, into, _keep: keep });
        }
        match failed {
            Some(e) => Err(e),
            None => self.post_recv_list(pieces),
        }
    }

    /// Delivers early messages to the Receives that they belong to.
    fn match_early(&mut self, out: &mut Vec<Completion>) -> Result<(), End> {
        while let Some((id, buf, early)) = self.recvs.matched() {
            let Some(early) = early else {
                out.push(recv_done(id, Err(WorkError::Length), buf, None));
                return Err(too_long());
            };
            if let Some(key) = early.invalidated {
                self.windows.close(key);
            }
            out.push(recv_done(id, Ok(buf.len()), buf, early.invalidated));
        }
        Ok(())
    }

    /// Takes completions until the queues are empty or the limit of a poll is reached.
    fn harvest(&mut self, out: &mut Vec<Completion>) -> Result<(), End> {
        let before = out.len();
        let mut result = self.match_early(out);
        while out.len() - before < COMPLETIONS_MAX {
            let Some(hw) = &mut self.hw else { break };
            let mut batch = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
            let n = hw.take(&mut batch).map_err(|e| End::because(e.to_string()))?;
            for wc in &batch[..n.min(BATCH)] {
                // SAFETY: the library filled the first `n`.
                let wc = unsafe { wc.assume_init_ref() };
                let one = if wc.wr_id & OF_RECV != 0 {
                    self.on_recv(wc, out)
                } else {
                    self.on_sent(wc, out)
                };
                result = both(result, one);
            }
            if n < BATCH {
                break;
            }
        }
        while let Some(done) = self.sender.queue.pop_done() {
            out.push(sent_done(done, None));
        }
        result
    }

    fn on_recv(&mut self, wc: &ibv_wc, out: &mut Vec<Completion>) -> Result<(), End> {
        let Some(front) = self.recvs.front() else {
            return Err(End::because("the card gave back a receive that it did not have"));
        };
        if wc.status != ibv_wc_status::IBV_WC_SUCCESS {
            self.note_failure(wc, "receive");
            let (error, end) = judge_recv(wc.status);
            if let Front::Posted(p) = front {
                out.push(recv_done(p.id, Err(error), p.into, None));
            }
            return Err(end);
        }
        let len = wc.byte_len as usize;
        self.counters.recvs += 1;
        self.counters.recv_bytes += len as u64;
        let with_invalidate = wc.wc_flags & ibv_wc_flags::IBV_WC_WITH_INV.0 != 0;
        // SAFETY: with this flag the union holds the key; both members are plain numbers.
        let key = unsafe { wc.imm_data_invalidated_rkey_union.invalidated_rkey };
        let invalidated = with_invalidate.then_some(key);
        match front {
            Front::Early(mut data) => {
                data.set_filled(len);
                self.recvs.came(Early { data, invalidated });
                self.match_early(out)?;
            }
            Front::Posted(mut p) => {
                p.into.set_filled(len);
                if let Some(key) = invalidated {
                    self.windows.close(key);
                }
                out.push(recv_done(p.id, Ok(len), p.into, invalidated));
            }
        }
        Ok(())
    }

    fn on_sent(&mut self, wc: &ibv_wc, out: &mut Vec<Completion>) -> Result<(), End> {
        let ok = wc.status == ibv_wc_status::IBV_WC_SUCCESS;
        if ok {
            self.sender.queue.done(wc.wr_id);
        } else {
            self.sender.queue.failed(wc.wr_id);
        }
        while let Some(done) = self.sender.queue.pop_done() {
            out.push(sent_done(done, None));
        }
        if ok {
            return Ok(());
        }
        let kind = self.sender.queue.under_way().next().map(|w| w.kind);
        self.note_failure(wc, operation(kind));
        let (error, end) = judge_sent(wc.status);
        // The first failed request completes its work; further requests of the same work find no entry.
        if self.phase != Phase::Ending
            && let Some(failed) = self.sender.queue.pop_posted()
        {
            out.push(sent_done(failed, Some(error)));
        }
        Err(end)
    }

    /// Counts failed work, and logs the first failure of the connection; later ones follow from it.
    fn note_failure(&mut self, wc: &ibv_wc, operation: &'static str) {
        let Some(status) = failures::name(wc.status) else { return };
        failures::count(status);
        let Some(hw) = self.hw.as_ref().filter(|_| !std::mem::replace(&mut self.has_failed, true))
        else {
            return;
        };
        tracing::warn!(
            peer = %hw.id.peer(),
            device = self.keys.device.name,
            operation,
            status,
            vendor_error = format_args!("{:#x}", wc.vendor_err),
            "RDMA work failed"
        );
    }

    /// Informs the peer of the end. Completions are still taken until the peer agrees.
    fn begin_end(&mut self, end: End) {
        self.end = Some(match self.end.take() {
            Some(first) => first.or(end),
            None => end,
        });
        if matches!(self.phase, Phase::Open | Phase::Closing) {
            self.phase = Phase::Ending;
            self.deadline = None;
            if let Some(hw) = &self.hw {
                hw.id.disconnect();
            }
        }
    }

    /// Destroys the queue pair and returns all work.
    fn finish(&mut self, out: &mut Vec<Completion>) {
        self.phase = Phase::Over;
        // A window refers to its queue pair, so it is closed first.
        self.windows.close_all();
        // Work that completed before the end; the reason for the failure of the rest is known.
        while let Some(hw) = &mut self.hw {
            let mut batch = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
            let n = hw.take(&mut batch).unwrap_or(0);
            for wc in &batch[..n.min(BATCH)] {
                // SAFETY: the library filled the first `n`.
                let wc = unsafe { wc.assume_init_ref() };
                let _ = match wc.wr_id & OF_RECV {
                    0 => self.on_sent(wc, out),
                    _ => self.on_recv(wc, out),
                };
            }
            if n < BATCH {
                self.hw = None;
            }
        }
        let flushed = Err(WorkError::Flushed);
        out.extend(self.recvs.drain().map(|(id, into)| recv_done(id, flushed, into, None)));
        while let Some(posted) = self.sender.queue.pop_posted() {
            out.push(sent_done(posted, Some(WorkError::Flushed)));
        }
        while let Some(work) = self.sender.queue.pop_waiting() {
            out.push(never_posted(work));
        }
        self.early.clear();
    }

    /// Reads events of librdmacm and the device.
    fn look_around(&mut self, cx: &mut Context<'_>) {
        let Some(hw) = &mut self.hw else { return };
        hw.notice.waker.register(cx.waker());
        if hw.notice.is_lost() {
            self.peer_is_gone = true;
            return self
                .begin_end(End::because(format!("RDMA device {} is gone", self.keys.device.name)));
        }
        match hw.notice.take() {
            Some(Told::Established) => hw.id.notify_established(),
            Some(told) => {
                // After these events the peer's answer cannot arrive.
                self.peer_is_gone |=
                    matches!(told, Told::PairBroke | Told::QueueBroke | Told::PortDown);
                self.begin_end(judge_told(told));
            }
            None => {}
        }
        while let Some(hw) = &self.hw
            && let Poll::Ready(event) = hw.events.poll(cx)
        {
            let end = match event {
                Ok(event) => self.on_cm(&event),
                Err(e) => {
                    self.peer_is_gone = true;
                    Some(End::because(format!("connection manager: {e}")))
                }
            };
            if let Some(end) = end {
                return self.begin_end(end);
            }
        }
    }

    /// Handles an event of librdmacm; `None` if it does not end the connection.
    fn on_cm(&mut self, event: &Event) -> Option<End> {
        use rdma_cm_event_type::*;
        match event.kind {
            RDMA_CM_EVENT_ESTABLISHED => None,
            // The connection is bound to the port that the address has left; the peer has to reconnect.
            RDMA_CM_EVENT_ADDR_CHANGE => {
                Some(End::because("the address moved to another port or device"))
            }
            RDMA_CM_EVENT_DISCONNECTED | RDMA_CM_EVENT_TIMEWAIT_EXIT => {
                self.peer_is_gone = true;
                Some(End::because("closed by peer"))
            }
            RDMA_CM_EVENT_DEVICE_REMOVAL => {
                self.peer_is_gone = true;
                self.keys.device.lose();
                Some(End::because(format!("RDMA device {} is gone", self.keys.device.name)))
            }
            _ => {
                self.peer_is_gone = true;
                Some(End::because(format!("{} ({})", event.name(), event.status)))
            }
        }
    }

    /// Posts waiting work. An error begins the end.
    fn send(&mut self) {
        if matches!(self.phase, Phase::Open | Phase::Closing)
            && let Some(hw) = &mut self.hw
            && let Err(e) = self.sender.post(hw, &self.windows, &mut self.counters)
        {
            self.begin_end(End::because(e.to_string()));
        }
    }

    /// Posts work and takes completions. An error begins the end.
    fn move_on(&mut self, out: &mut Vec<Completion>) {
        loop {
            self.send();
            let room = (self.sender.queue.room(), self.sender.queue.reads_room());
            if let Err(end) = self.harvest(out) {
                return self.begin_end(end);
            }
            // Completions may have made room for waiting work, and no event would follow for it.
            let queue = &self.sender.queue;
            if !queue.has_waiting() || (queue.room(), queue.reads_room()) == room {
                return;
            }
        }
    }

    /// Polls for completions for a while, then arms the queues. True if another round is worthwhile.
    fn rest(&mut self, cx: &mut Context<'_>, out: &mut Vec<Completion>) -> bool {
        let before = out.len();
        let time = self.spin.time();
        if !time.is_zero() && !self.sender.queue.is_empty() {
            let end = Instant::now() + time;
            while Instant::now() < end {
                self.move_on(out);
                if out.len() > before {
                    self.spin.found();
                    turn::waited();
                    return true;
                }
                std::hint::spin_loop();
            }
            self.spin.missed();
        }
        let waits = self.waits_for_sends(cx);
        let Some(hw) = &mut self.hw else { return true };
        let armed = match hw.arm(waits) {
            Ok(armed) => armed,
            Err(e) => {
                self.begin_end(End::because(format!("completion queue: {e}")));
                return true;
            }
        };
        if armed {
            return true;
        }
        match hw.poll_woken(cx) {
            Poll::Pending => false,
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(e)) => {
                self.begin_end(End::because(format!("completion channel: {e}")));
                true
            }
        }
    }

    /// True if completions other than Receives must cause a wake-up.
    fn waits_for_sends(&mut self, cx: &mut Context<'_>) -> bool {
        let queue = &self.sender.queue;
        if queue.is_empty() {
            return false;
        }
        let work = queue.under_way();
        if self.phase != Phase::Open
            || queue.has_waiting()
            || queue.has_reads()
            || work.len() > LINGER_WORK_MAX
            || work.map(|w| w.bytes).sum::<usize>() > LINGER_BYTES_MAX
        {
            return true;
        }
        let sleep = || Box::pin(tokio::time::sleep(LINGER_TIME_MAX));
        let over = self.linger.get_or_insert_with(sleep).as_mut().poll(cx).is_ready();
        if over {
            self.linger = None;
        }
        over
    }

    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        let limit = self.close_time_max;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        deadline.as_mut().poll(cx).is_ready()
    }

    fn check(&self, chain: &[Work]) -> Result<(), Refused> {
        if self.phase != Phase::Open {
            return Err(Refused::Down);
        }
        let recvs = chain.iter().filter(|w| matches!(w, Work::Recv { .. })).count();
        if recvs + self.recvs.len() > self.limits.recvs_max
            || chain.len() - recvs + self.sender.queue.len() > self.limits.sends_max
        {
            return Err(Refused::Full);
        }
        let fits = |work: &Work| match work {
            Work::Recv { .. } => true,
            Work::Send { from, .. } => from.len() <= self.limits.send_pieces_max,
            Work::Write { from, to, .. } => from.len() <= to.len as usize,
            Work::Read { from, into, .. } => {
                let all: u64 = from.iter().map(|s| u64::from(s.len)).sum();
                all <= (into.capacity() - into.len()) as u64
            }
        };
        if chain.iter().all(fits) { Ok(()) } else { Err(Refused::Invalid) }
    }
}

fn recv_key(keys: &Keys, into: &mut BufMut) -> std::io::Result<Key> {
    let (slab, len) = (into.slab(), into.capacity());
    let at = into.whole_mut().as_mut_ptr().expose_provenance();
    // SAFETY: the buffer is kept with the Receive until the card is done with it.
    unsafe { keys.key(slab, at, len.max(1), ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0) }
}

fn whole(into: &mut BufMut, key: &Key) -> ibv_sge {
    let len = into.capacity();
    piece(into.whole_mut().as_mut_ptr().expose_provenance(), len, key.local)
}

fn recv_done(
    id: WorkId,
    result: Result<usize, WorkError>,
    buf: BufMut,
    invalidated: Option<u32>,
) -> Completion {
    Completion { id, kind: WorkKind::Recv, result, buf: Some(buf), invalidated }
}

fn sent_done(done: InFlight, error: Option<WorkError>) -> Completion {
    let InFlight { id, kind, bytes, into, .. } = done;
    let mut buf = into;
    let result = match error {
        Some(e) => Err(e),
        None => {
            if let Some(into) = &mut buf {
                into.advance(bytes);
            }
            Ok(bytes)
        }
    };
    Completion { id, kind, result, buf, invalidated: None }
}

fn never_posted(work: Work) -> Completion {
    let id = work.id();
    let (kind, buf) = match work {
        Work::Recv { into, .. } => (WorkKind::Recv, Some(into)),
        Work::Send { .. } => (WorkKind::Send, None),
        Work::Write { .. } => (WorkKind::Write, None),
        Work::Read { into, .. } => (WorkKind::Read, Some(into)),
    };
    Completion { id, kind, result: Err(WorkError::Flushed), buf, invalidated: None }
}

/// Returns the name, for logs, of the oldest posted work. Without any, the failed request binds a window.
fn operation(kind: Option<WorkKind>) -> &'static str {
    match kind {
        Some(WorkKind::Send) => "send",
        Some(WorkKind::Write) => "write",
        Some(WorkKind::Read) => "read",
        Some(WorkKind::Recv) => "receive",
        None => "window",
    }
}

fn too_long() -> End {
    End::broken(MESSAGE_LENGTH, "the peer sent a message longer than the receive")
}

/// The consequence of a Receive's status for the connection.
fn judge_recv(status: ibv_wc_status::Type) -> (WorkError, End) {
    use ibv_wc_status::*;
    match status {
        IBV_WC_LOC_LEN_ERR => (WorkError::Length, too_long()),
        IBV_WC_WR_FLUSH_ERR => (WorkError::Flushed, End::flushed()),
        IBV_WC_REM_ACCESS_ERR | IBV_WC_LOC_ACCESS_ERR | IBV_WC_LOC_PROT_ERR => {
            (WorkError::Flushed, End::broken(REMOTE_ACCESS, TOUCHED))
        }
        IBV_WC_REM_INV_REQ_ERR | IBV_WC_LOC_QP_OP_ERR | IBV_WC_REM_OP_ERR => {
            (WorkError::Protocol, End::broken(REQUEST, REFUSED))
        }
        _ => (WorkError::Flushed, End::because(format!("receive failed: {}", status_text(status)))),
    }
}

/// The consequence of the status of other work for the connection.
fn judge_sent(status: ibv_wc_status::Type) -> (WorkError, End) {
    use ibv_wc_status::*;
    match status {
        IBV_WC_WR_FLUSH_ERR => (WorkError::Flushed, End::flushed()),
        IBV_WC_REM_ACCESS_ERR => {
            (WorkError::RemoteAccess, End::because("the peer refused access to its memory"))
        }
        IBV_WC_RETRY_EXC_ERR => (WorkError::Flushed, End::because("the peer does not answer")),
        IBV_WC_RNR_RETRY_EXC_ERR => {
            (WorkError::Flushed, End::because("the peer posts no receive for what is sent to it"))
        }
        _ => (WorkError::Protocol, End::because(format!("work failed: {}", status_text(status)))),
    }
}

fn status_text(status: ibv_wc_status::Type) -> String {
    // SAFETY: the library answers with a constant.
    unsafe { super::cm::words(ibv_wc_status_str(status)) }
}

/// The consequence of a device event for a connection.
fn judge_told(told: Told) -> End {
    match told {
        Told::Access => End::broken(REMOTE_ACCESS, TOUCHED),
        Told::Request => End::broken(REQUEST, REFUSED),
        Told::PortDown => End::because("the port of the RDMA device is down"),
        Told::QueueBroke => End::because("the card broke a completion queue"),
        Told::PairBroke | Told::Established => End::because("the card broke off the connection"),
    }
}

impl Drop for VerbsPair {
    fn drop(&mut self) {
        // A window refers to its queue pair, so it is closed first.
        self.windows.close_all();
    }
}

impl QueuePair for VerbsPair {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn post(&mut self, chain: Vec<Work>) -> Result<(), Rejected> {
        if let Err(why) = self.check(&chain) {
            return Err(Rejected { why, chain });
        }
        let mut recvs = Vec::new();
        for work in chain {
            match work {
                Work::Recv { id, into } => recvs.push((id, into)),
                other => self.sender.queue.push(other),
            }
        }
        if !recvs.is_empty()
            && let Err(e) = self.post_recvs(recvs)
        {
            // The next poll reports it.
            self.begin_end(End::because(format!("receives: {e}")));
        }
        Ok(())
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Vec<Completion>) -> Poll<Result<(), Down>> {
        let before = out.len();
        loop {
            if self.phase == Phase::Over {
                if out.len() > before {
                    return Poll::Ready(Ok(()));
                }
                let end = self.end.get_or_insert_with(|| End::because("closed by this side"));
                let (reason, violation) = (end.reason.clone(), end.violation);
                return Poll::Ready(Err(Down { reason, violation }));
            }
            self.move_on(out);
            if out.len() > before {
                return Poll::Ready(Ok(()));
            }
            self.look_around(cx);
            self.look_for_first(cx);
            if self.phase == Phase::Closing && (self.sender.queue.is_empty() || self.is_late(cx)) {
                self.begin_end(End::because("closed by this side"));
            }
            if self.phase == Phase::Ending && (self.peer_is_gone || self.is_late(cx)) {
                self.finish(out);
                continue;
            }
            if !self.rest(cx, out) {
                return Poll::Pending;
            }
            if out.len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn register(&mut self, region: Region) -> Result<RemoteSeg, (Refused, Region)> {
        if self.phase != Phase::Open {
            return Err((Refused::Down, region));
        }
        if self.windows.len() >= self.limits.regions_max {
            return Err((Refused::Full, region));
        }
        let (lent, opens) = self.windows.lend(&self.keys, region)?;
        if opens {
            self.sender.queue.open(Opening { key: lent.handle });
            self.send();
        }
        Ok(lent)
    }

    fn release(&mut self, handle: u32) -> Option<Region> {
        self.sender.queue.give_up(handle);
        self.windows.take(handle)
    }

    fn disconnect(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Closing;
        }
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn informative_reason_is_reported() {
        let reason = |first: End, then: End| both(Err(first), Err(then)).unwrap_err().reason;
        assert_eq!(reason(End::flushed(), End::because("silent")), "silent");
        assert_eq!(reason(End::because("silent"), End::flushed()), "silent");
        assert_eq!(reason(End::because("first"), End::because("then")), "first");
        let rule = both(Err(End::flushed()), Err(too_long())).unwrap_err().violation;
        assert_eq!(rule, Some(MESSAGE_LENGTH));
        assert!(both(Ok(()), Err(End::flushed())).is_err());
        assert!(both(Ok(()), Ok(())).is_ok());
    }
}
