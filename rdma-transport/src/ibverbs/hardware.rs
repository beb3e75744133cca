//! A queue pair of a card with its completion queues and their event descriptors.
//!
//! *Operation.* There is one completion queue for each direction, large enough for all work that can be posted, so it cannot
//! overflow. They are armed only when found empty: the one of Receives always, the other only when a task waits for it, so that a
//! sent reply causes no wake-up. *Memory.* This type owns no memory: the poster keeps the memory until the completion, or until
//! this is dropped. *Errors.* `io::Error`, whose text names the device and the remedy if there is one.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io::{self, Error, ErrorKind};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use rdma_sys::*;
use tokio::io::unix::AsyncFd;

use super::cm::{self, Borrowed, Events, Id};
use super::device::{Device, Notice};
use super::mappings;
use super::memory::{Domain, Slabs};

/// Sizes of inline Sends to try, best first, in bytes: the card then takes the data from the request itself.
const INLINE: [u32; 3] = [256, 64, 0];
/// Maximum pieces of one Send; more are gathered.
const PIECES_MAX: u32 = 8;
/// Completions taken at once.
pub(super) const BATCH: usize = 32;

/// Sizes of the queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depth {
    pub(super) recvs: u32,
    pub(super) sends: u32,
}

struct Channel(NonNull<ibv_comp_channel>);

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: this owns the channel; its completion queue is gone by field order.
        unsafe { ibv_destroy_comp_channel(self.0.as_ptr()) };
    }
}

struct Cq(NonNull<ibv_cq>);

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: this owns the queue; its queue pair is gone and its events were given back (`Hardware::drop`).
        unsafe { ibv_destroy_cq(self.0.as_ptr()) };
    }
}

/// One completion queue with its event descriptor.
struct Queue {
    cq: Cq,
    // Dropped before the channel, which closes the descriptor.
    fd: AsyncFd<Borrowed>,
    channel: Channel,
    /// Events that were read and must be acknowledged before the queue is destroyed.
    unacked: u32,
    armed: bool,
}

pub(super) struct Hardware {
    recvs: Queue,
    sends: Queue,
    pub(super) id: Id,
    pub(super) events: Events,
    /// The domain of the queue pair.
    _slabs: Arc<Slabs>,
    device: Arc<Device>,
    pub(super) notice: Arc<Notice>,
    qp: NonNull<ibv_qp>,
    qp_num: u32,
    /// The sizes that the device accepted.
    pub(super) depth: Depth,
    pub(super) inline_max: usize,
    pub(super) pieces_max: usize,
}

// SAFETY: all of it belongs to this alone, and libibverbs is thread-safe.
unsafe impl Send for Hardware {}
// SAFETY: shared references reach only the identifier and its events, which may be shared.
unsafe impl Sync for Hardware {}

fn int(n: u32) -> c_int {
    c_int::try_from(n).unwrap_or(c_int::MAX)
}

impl Queue {
    /// The device must stay open as long as this value exists.
    fn new(device: &Device, entries: u32, vector: c_int) -> io::Result<Self> {
        let explain =
            |what: &str| used_up(&device.name, what, device.attr.max_cq, &Error::last_os_error());
        let context = device.context();
        // SAFETY: the device's context is open.
        let channel = NonNull::new(unsafe { ibv_create_comp_channel(context) });
        let channel = Channel(channel.ok_or_else(|| explain("completion channel"))?);
        // SAFETY: the channel is alive, and outlives `fd` by field order.
        let fd = unsafe { cm::watch(channel.0.as_ref().fd)? };
        // SAFETY: context and channel are alive and outlive the queue, by field order.
        let cq = unsafe {
            ibv_create_cq(context, int(entries), ptr::null_mut(), channel.0.as_ptr(), vector)
        };
        let cq = NonNull::new(cq).map(Cq).ok_or_else(|| explain("completion queue"))?;
        Ok(Self { cq, fd, channel, unacked: 0, armed: false })
    }

    fn take(&mut self, into: &mut [MaybeUninit<ibv_wc>]) -> io::Result<usize> {
        let room = int(u32::try_from(into.len()).unwrap_or(0));
        // SAFETY: the queue is alive and `into` has room for so many.
        let n = unsafe { ibv_poll_cq(self.cq.0.as_ptr(), room, into.as_mut_ptr().cast()) };
        usize::try_from(n).map_err(|_| Error::other("the completion queue is broken"))
    }

    /// Arms the queue. True if it was not armed before.
    fn arm(&mut self) -> io::Result<bool> {
        if self.armed {
            return Ok(false);
        }
        // SAFETY: the queue is alive.
        match unsafe { ibv_req_notify_cq(self.cq.0.as_ptr(), 0) } {
            0 => {
                self.armed = true;
                Ok(true)
            }
            e => Err(Error::from_raw_os_error(e)),
        }
    }

    fn poll_woken(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.armed {
            let mut ready = match self.fd.poll_read_ready(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(ready) => ready?,
            };
            let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: the channel is alive; both answers have room.
            let taken =
                unsafe { ibv_get_cq_event(self.channel.0.as_ptr(), &raw mut cq, &raw mut context) };
            // Each arming causes one event, so there is no second one to read.
            ready.clear_ready();
            if taken == 0 {
                self.unacked += 1;
                self.armed = false;
                return Poll::Ready(Ok(()));
            }
            let e = Error::last_os_error();
            if e.kind() != ErrorKind::WouldBlock {
                return Poll::Ready(Err(e));
            }
        }
        Poll::Pending
    }

    /// Acknowledges the events; the queue pair is gone.
    fn settle(&mut self) {
        if self.unacked > 0 {
            // SAFETY: the queue is alive, and so many of its events were taken.
            unsafe { ibv_ack_cq_events(self.cq.0.as_ptr(), self.unacked) };
        }
    }
}

impl Hardware {
    /// On failure `id` is dropped before its event channel, because arguments are dropped from last to first.
    pub(super) fn new(
        events: Events,
        id: Id,
        (device, slabs): (Arc<Device>, Arc<Slabs>),
        depth: Depth,
    ) -> io::Result<Self> {
        let vector = device.next_vector();
        let recvs = Queue::new(&device, depth.recvs, vector)?;
        let sends = Queue::new(&device, depth.sends, vector)?;
        let had = mappings::some_are_left()
            .and_then(|()| create_qp(&id, (&device, slabs.domain()), (&sends.cq, &recvs.cq), depth))
            .map_err(|e| used_up(&device.name, "queue pair", device.attr.max_qp, &e))?;
        // SAFETY: the identifier is alive and has a queue pair now.
        let qp = NonNull::new(unsafe { (*id.raw()).qp }).ok_or(ErrorKind::Other)?;
        // SAFETY: it was made just now.
        let qp_num = unsafe { qp.as_ref() }.qp_num;
        let queues = [&sends, &recvs].map(|q| q.cq.0.as_ptr().addr());
        let port = id.port();
        Ok(Self {
            depth: Depth { recvs: had.asked.recvs, sends: had.asked.sends },
            recvs,
            sends,
            id,
            events,
            notice: device.join(qp_num, queues, port),
            _slabs: slabs,
            device,
            qp,
            qp_num,
            inline_max: usize::try_from(had.cap.max_inline_data).unwrap_or(0),
            pieces_max: usize::try_from(had.cap.max_send_sge.min(PIECES_MAX)).unwrap_or(1).max(1),
        })
    }

    /// Takes available completions, Receives first; returns their number. Fewer than fit means that the queues are empty.
    pub(super) fn take(&mut self, into: &mut [MaybeUninit<ibv_wc>; BATCH]) -> io::Result<usize> {
        let received = self.recvs.take(into)?.min(BATCH);
        if received == BATCH {
            return Ok(BATCH);
        }
        Ok(received + self.sends.take(&mut into[received..])?)
    }

    /// Arms the queue of Receives, and with `of_sends` the other, if not armed yet. After `true` the queues must be polled once
    /// more.
    pub(super) fn arm(&mut self, of_sends: bool) -> io::Result<bool> {
        let sends = of_sends && self.sends.arm()?;
        Ok(self.recvs.arm()? || sends)
    }

    /// Ready when completions may be available.
    pub(super) fn poll_woken(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.recvs.poll_woken(cx) {
            Poll::Pending => self.sends.poll_woken(cx),
            ready => ready,
        }
    }

    /// Posts a terminated list of sends.
    ///
    /// # Safety
    ///
    /// The memory that the list points to stays valid until the completions, or until this is dropped.
    pub(super) unsafe fn post_sends(&mut self, list: &mut [ibv_send_wr]) -> io::Result<()> {
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is alive; the rest as the caller says.
        match unsafe { ibv_post_send(self.qp.as_ptr(), list.as_mut_ptr(), &raw mut bad) } {
            0 => Ok(()),
            e => Err(Error::from_raw_os_error(e.abs())),
        }
    }

    /// Posts a terminated list of receives.
    ///
    /// # Safety
    ///
    /// As for `post_sends`.
    pub(super) unsafe fn post_recvs(&mut self, list: &mut [ibv_recv_wr]) -> io::Result<()> {
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is alive; the rest as the caller says.
        match unsafe { ibv_post_recv(self.qp.as_ptr(), list.as_mut_ptr(), &raw mut bad) } {
            0 => Ok(()),
            e => Err(Error::from_raw_os_error(e.abs())),
        }
    }
}

impl Drop for Hardware {
    fn drop(&mut self) {
        self.device.leave(self.qp_num);
        // SAFETY: the identifier owns this queue pair. When the call returns, the card uses no memory of its work any more.
        unsafe { rdma_destroy_qp(self.id.raw()) };
        self.recvs.settle();
        self.sends.settle();
    }
}

/// The error message for a device without resources for another connection.
pub(super) fn used_up(device: &str, what: &str, limit: i32, e: &Error) -> Error {
    let more = match e.raw_os_error() {
        Some(libc::ENOMEM) => {
            "; what is short may be locked memory (LimitMEMLOCK=, `ulimit -l`) or mappings of this process (vm.max_map_count)"
        }
        Some(libc::EMFILE | libc::ENFILE) => {
            "; raise the limit of open files (LimitNOFILE=, `ulimit -n`)"
        }
        _ => "",
    };
    let why = format!(
        "RDMA device {device} gives no further {what} (it has {limit} in all, a process may get fewer): {e}; set `connections:` \
         to what it can hold, or spread clients over more devices{more}"
    );
    Error::new(ErrorKind::QuotaExceeded, why)
}

/// Creates the queue pair of `id` with the best capabilities that the device accepts; returns them.
fn create_qp(
    id: &Id,
    (device, domain): (&Device, &Domain),
    (sends, recvs): (&Cq, &Cq),
    depth: Depth,
) -> io::Result<Had> {
    let pieces = u32::try_from(device.attr.max_sge).unwrap_or(1).clamp(1, PIECES_MAX);
    let mut last = Error::from(ErrorKind::Other);
    // The device has refused the requests before this one.
    let steps = steps(pieces, depth);
    // Lists for other depths have other lengths.
    let before = device.step.load(Ordering::Relaxed).min(steps.len().saturating_sub(1));
    // Only EINVAL says that the device cannot have a request of this size; other errors pass.
    let mut is_too_large = true;
    for (n, asked) in steps.into_iter().enumerate().skip(before) {
        let mut attr = ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq: sends.0.as_ptr(),
            recv_cq: recvs.0.as_ptr(),
            srq: ptr::null_mut(),
            cap: ibv_qp_cap {
                max_send_wr: asked.sends,
                max_recv_wr: asked.recvs,
                max_send_sge: asked.pieces,
                max_recv_sge: 1,
                max_inline_data: asked.inline,
            },
            qp_type: ibv_qp_type::IBV_QPT_RC,
            sq_sig_all: 0,
        };
        let domain = domain.raw();
        // SAFETY: identifier, domain and completion queue are of one device and alive; `attr` lives through the call.
        if unsafe { rdma_create_qp(id.raw(), domain, &raw mut attr) } == 0 {
            if is_too_large && n > device.step.fetch_max(n, Ordering::Relaxed) {
                let Step { sends, recvs, pieces, inline } = asked;
                let device = &device.name;
                tracing::info!(device, sends, recvs, pieces, inline, "RDMA device takes less");
            }
            return Ok(Had { asked, cap: attr.cap });
        }
        last = Error::last_os_error();
        is_too_large &= last.raw_os_error() == Some(libc::EINVAL);
        // These errors do not depend on the request.
        if matches!(last.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENODEV)) {
            break;
        }
    }
    Err(last)
}

/// An accepted request, and the capabilities that the device returned.
struct Had {
    asked: Step,
    cap: ibv_qp_cap,
}

/// The sizes in one request for a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    sends: u32,
    recvs: u32,
    pieces: u32,
    inline: u32,
}

/// Depth of a send queue below which pieces are reduced first.
const SENDS_KEPT: u32 = 64;
/// The smallest queues that a connection works with.
const SENDS_MIN: u32 = 8;
const RECVS_MIN: u32 = 16;

/// Returns the requests to try, best first. `max_sge` and `max_qp_wr` limit each size alone; a device reports the combined limit
/// only by refusing. Each step reduces the cheapest size: inline data saves a memory read, work beyond the depth waits in our
/// queue, pieces beyond the limit are copied into one buffer, and fewer Receives slow the peer down.
fn steps(pieces: u32, depth: Depth) -> Vec<Step> {
    let Depth { sends, recvs } = depth;
    let mut all: Vec<Step> =
        INLINE.iter().map(|inline| Step { sends, recvs, pieces, inline: *inline }).collect();
    let Some(&(mut at)) = all.last() else { return all };
    while at.sends > SENDS_KEPT {
        at.sends = (at.sends / 2).max(SENDS_KEPT);
        all.push(at);
    }
    for fewer in [4, 3, 2, 1].into_iter().filter(|n| *n < pieces) {
        at.pieces = fewer;
        all.push(at);
    }
    while at.sends > SENDS_MIN || at.recvs > RECVS_MIN {
        at.sends = (at.sends / 2).max(SENDS_MIN.min(at.sends));
        at.recvs = (at.recvs / 2).max(RECVS_MIN.min(at.recvs));
        all.push(at);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a device accepts a request.
    type Takes = fn(&Step) -> bool;

    #[test]
    fn request_is_stepped_down_to_what_devices_take() {
        let wanted = Depth { sends: 512, recvs: 258 };
        let first = |pieces, takes: Takes| steps(pieces, wanted).into_iter().find(takes);
        let step = |sends, recvs, pieces, inline| Some(Step { sends, recvs, pieces, inline });
        assert_eq!(first(8, |_| true), step(512, 258, 8, 256));
        assert_eq!(first(8, |s| s.inline <= 64), step(512, 258, 8, 64));
        // The send queue holds so many blocks of 64 bytes, whatever the requests are.
        let blocks: Takes = |s| s.sends * (32 + (16 * s.pieces).max(s.inline)).div_ceil(64) <= 768;
        assert_eq!(first(8, blocks), step(256, 258, 8, 0));
        // 3 pieces and 64 requests are all there is.
        assert_eq!(first(3, |s| s.sends <= 64), step(64, 258, 3, 0));
        assert_eq!(first(8, |s| s.sends <= 64 && s.pieces <= 3), step(64, 258, 3, 0));
        let tiny: Takes = |s| s.sends <= 16 && s.recvs <= 64 && s.pieces == 1 && s.inline == 0;
        assert_eq!(first(8, tiny), step(16, 64, 1, 0));
        assert_eq!(first(8, |_| false), None);
    }

    #[test]
    fn no_step_asks_for_more_than_before() {
        for (pieces, sends, recvs) in [(8, 512, 258), (1, 1, 1), (3, 64, 64), (2, 9, 17), (8, 0, 0)]
        {
            let all = steps(pieces, Depth { sends, recvs });
            assert!(all.len() < 24);
            for (a, b) in all.iter().zip(&all[1..]) {
                assert!(b.sends <= a.sends && b.recvs <= a.recvs && b.pieces <= a.pieces);
                assert!(b.inline <= a.inline && a != b, "{a:?} then {b:?}");
            }
        }
    }

    #[test]
    fn exhausted_device_is_named_with_remedy() {
        let cases = [
            (libc::ENOSPC, "queue pair", "`connections:`"),
            (libc::ENOMEM, "queue pair", "LimitMEMLOCK="),
            (libc::ENOMEM, "completion queue", "vm.max_map_count"),
            (libc::EMFILE, "completion channel", "LimitNOFILE="),
        ];
        for (errno, what, remedy) in cases {
            let e = used_up("mlx5_0", what, 131_072, &Error::from_raw_os_error(errno));
            assert_eq!(e.kind(), ErrorKind::QuotaExceeded);
            let why = e.to_string();
            for words in ["mlx5_0", what, "131072", remedy, "more devices"] {
                assert!(why.contains(words), "{words} in {why}");
            }
        }
    }
}
