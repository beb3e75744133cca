//! State shared by all connections of one card: the protection domain, the registered slabs, and asynchronous events.
//!
//! *Operation.* A device is opened with its first connection and stays open, so that slabs are registered once. A task reads its
//! events and ends with it. *Memory.* One registration for each slab of 2 MiB. *Errors.* If a card fails or is removed, the device
//! is marked as lost; every connection notices at its next poll.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::c_int;
use std::io::{self, Error};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use iobuf::{Pool, PoolLimits, SlabWatch, watch_slabs};
use mutex::locked;
use rdma_sys::*;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use super::VerbsConfig;
use super::cm::{self, Borrowed, Events, Id};
use super::events::{Action, Ports, Told, action};
use super::memory::{Domain, Slabs};
use super::quirks::{Quirks, quirks};
use super::vectors::Vectors;
use crate::devices;

/// Buffers of each device for gathering small pieces: 4 KiB, 64 KiB, 1 MiB.
pub const GATHER: PoolLimits = PoolLimits { buffers_max: [4096, 256, 16] };

/// Interval at which the existence of a device is checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Asynchronous events of one queue pair.
pub(super) struct Notice {
    /// Addresses of its completion queues.
    queues: [usize; 2],
    port: u8,
    told: Mutex<Option<Told>>,
    lost: AtomicBool,
    pub(super) waker: AtomicWaker,
}

impl Notice {
    /// Takes the event that arrived since the last call.
    pub(super) fn take(&self) -> Option<Told> {
        locked(&self.told).take()
    }

    fn tell(&self, what: Told) {
        *locked(&self.told) = Some(what);
        self.waker.wake();
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }
}

pub(super) struct Device {
    pub(super) name: String,
    pub(super) attr: ibv_device_attr,
    pub(super) quirks: Quirks,
    /// Buffers for gathering small pieces.
    pub(super) gather: Pool,
    /// The slabs in the domain that most connections share.
    slabs: Arc<Slabs>,
    /// Every connection gets a domain of its own.
    separates: bool,
    vectors: Vectors,
    /// Index of the first request for a queue pair ([`super::hardware`]) that the device has accepted.
    pub(super) step: AtomicUsize,
    ports: Mutex<Ports>,
    notices: Mutex<HashMap<u32, Arc<Notice>>>,
    lost: Arc<AtomicBool>,
    /// Dropping it ends the task that reads events.
    _ends: oneshot::Sender<()>,
    known: Weak<Known>,
    context: NonNull<ibv_context>,
    // Dropped after all objects on the device.
    _letting_go: LettingGo,
    // Dropped last: librdmacm keeps the context open while an identifier is bound to it.
    _anchor: (Id, Arc<Events>),
}

/// Devices by the address of their context.
type Known = Mutex<HashMap<usize, Arc<Device>>>;

/// Closes the files of a lost device, which librdmacm keeps open until it sees another device: the kernel would wait for that with
/// the removal. Their descriptor numbers stay in use, so that the library cannot close an unrelated file.
struct LettingGo {
    context: NonNull<ibv_context>,
    lost: Arc<AtomicBool>,
}

impl Drop for LettingGo {
    fn drop(&mut self) {
        if !self.lost.load(Ordering::Acquire) {
            return;
        }
        let Ok(null) = std::fs::File::open("/dev/null") else { return };
        // SAFETY: the context is open, by field order; all that we made on it is gone.
        let files = unsafe { [self.context.as_ref().cmd_fd, self.context.as_ref().async_fd] };
        for file in files {
            // SAFETY: puts another file under a number that the library owns, and uses no more for this device.
            unsafe { libc::dup3(null.as_raw_fd(), file, libc::O_CLOEXEC) };
        }
    }
}

// SAFETY: the context is libibverbs's, which is thread-safe, and stays open while `_anchor` lives.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// Opens the device that `id` is bound to.
    fn open(
        id: &Id,
        context: NonNull<ibv_context>,
        known: &Arc<Known>,
        config: &VerbsConfig,
    ) -> io::Result<Arc<Self>> {
        let events = Arc::new(Events::new()?);
        let anchor = Id::new(&events)?;
        let mut at = id.local();
        at.set_port(0);
        anchor.bind(at)?;
        if anchor.context() != Some(context) {
            return Err(Error::other(format!("{at} changed its RDMA device")));
        }
        let mut attr = MaybeUninit::zeroed();
        // SAFETY: the context is open; `attr` has room for the answer, and zeroes are a value of it.
        let attr = unsafe {
            if ibv_query_device(context.as_ptr(), attr.as_mut_ptr()) != 0 {
                return Err(Error::last_os_error());
            }
            attr.assume_init()
        };
        // SAFETY: the context is open, and texts of its device end within their arrays.
        let (name, path, transport, async_fd, vectors) = unsafe {
            let context = context.as_ref();
            let device = &*context.device;
            let path = PathBuf::from(cm::words(device.dev_path.as_ptr()));
            let vectors = Vectors::new(context.num_comp_vectors);
            (
                cm::words(device.name.as_ptr()),
                path,
                device.transport_type,
                context.async_fd,
                vectors,
            )
        };
        // SAFETY: `_anchor` keeps the context open until after the domain is gone.
        let slabs = unsafe { watched(context, config.relaxed_ordering)? };
        let (ends, end) = oneshot::channel();
        let lost = Arc::new(AtomicBool::new(false));
        let is_iwarp = transport == ibv_transport_type::IBV_TRANSPORT_IWARP;
        let quirks = quirks(is_iwarp, attr.vendor_id);
        let device = Arc::new(Self {
            separates: quirks.read_sink_is_remote || config.separate_domains,
            quirks,
            name,
            attr,
            gather: Pool::new(GATHER),
            slabs,
            vectors,
            step: AtomicUsize::new(0),
            ports: Mutex::default(),
            notices: Mutex::default(),
            _letting_go: LettingGo { context, lost: lost.clone() },
            lost,
            _ends: ends,
            known: Arc::downgrade(known),
            context,
            _anchor: (anchor, events.clone()),
        });
        // A separate descriptor, because the runtime may drop it after the context was closed. SAFETY: duplicating a number; a
        // wrong one gives an error.
        let fd = unsafe { libc::fcntl(async_fd, libc::F_DUPFD_CLOEXEC, 0) };
        if fd < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: the descriptor was made just now and is nobody else's.
        let own = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the task that gets both drops `own` last.
        let watched = unsafe { cm::watch(fd)? };
        tokio::spawn(read_events(Arc::downgrade(&device), watched, own, (events, path), end));
        tracing::info!(
            device = device.name,
            is_iwarp,
            queue_pairs = device.attr.max_qp,
            "opened RDMA device"
        );
        Ok(device)
    }

    /// Returns the domain of a new connection with the slabs that are registered in it. A queue pair reaches only memory of its
    /// domain. Where the target of an RDMA Read must be writable for the peer, each connection has a domain of its own, because any
    /// connection in the domain could write to that target as long as the Read lasts.
    pub(super) fn slabs(&self) -> io::Result<Arc<Slabs>> {
        if !self.separates {
            return Ok(self.slabs.clone());
        }
        // SAFETY: the context is open, and connections drop the domain before their device.
        unsafe { watched(self.context, self.slabs.domain().relaxes()) }
    }

    pub(super) fn context(&self) -> *mut ibv_context {
        self.context.as_ptr()
    }

    /// True if memory windows are supported, so that the peer need not get the key of the memory region.
    pub(super) fn has_windows(&self) -> bool {
        use ibv_device_cap_flags as caps;
        let either = caps::IBV_DEVICE_MEM_WINDOW_TYPE_2A.0 | caps::IBV_DEVICE_MEM_WINDOW_TYPE_2B.0;
        self.attr.device_cap_flags & either != 0
    }

    /// Registers a queue pair for events, which the returned value collects.
    pub(super) fn join(&self, qp_num: u32, queues: [usize; 2], port: u8) -> Arc<Notice> {
        let notice = Arc::new(Notice {
            queues,
            port,
            told: Mutex::default(),
            lost: AtomicBool::new(self.is_lost()),
            waker: AtomicWaker::new(),
        });
        locked(&self.notices).insert(qp_num, notice.clone());
        notice
    }

    pub(super) fn leave(&self, qp_num: u32) {
        locked(&self.notices).remove(&qp_num);
    }

    /// Returns the completion vector of a new connection.
    pub(super) fn next_vector(&self) -> c_int {
        self.vectors.take()
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Marks the device as lost: all connections end, and the next one opens a device again.
    pub(super) fn lose(&self) {
        if self.lost.swap(true, Ordering::AcqRel) {
            return;
        }
        tracing::warn!(device = self.name, "RDMA device is gone");
        if let Some(known) = self.known.upgrade() {
            let own = locked(&known).remove(&self.context.addr().get());
            // Dropped outside the lock.
            drop(own);
        }
        for notice in locked(&self.notices).values() {
            notice.lost.store(true, Ordering::Release);
            notice.waker.wake();
        }
    }

    /// Handles one event; false if no event is available.
    fn take_event(&self) -> bool {
        let mut event = MaybeUninit::<ibv_async_event>::zeroed();
        // SAFETY: the context is open; on success the event is filled, and given back at once.
        unsafe {
            if ibv_get_async_event(self.context(), event.as_mut_ptr()) != 0 {
                return false;
            }
            let mut event = event.assume_init();
            self.on_event(&event);
            ibv_ack_async_event(&raw mut event);
        };
        true
    }

    /// # Safety
    ///
    /// `event` is an event of this device that is not acknowledged yet.
    unsafe fn on_event(&self, event: &ibv_async_event) {
        // SAFETY: the library answers with a constant.
        let what = unsafe { cm::words(ibv_event_type_str(event.event_type)) };
        let device = &self.name;
        match action(event.event_type) {
            Action::Tell(told) => {
                if told != Told::Established {
                    tracing::warn!(device, what, "RDMA device ends a connection");
                }
                // SAFETY: events of these kinds name a queue pair, and destroying one waits for its events to be given back.
                let qp_num = unsafe { (*event.element.qp).qp_num };
                if let Some(notice) = locked(&self.notices).get(&qp_num) {
                    notice.tell(told);
                }
            }
            Action::TellOfQueue => {
                tracing::error!(device, what, "RDMA device ends the connection of a broken queue");
                // SAFETY: this kind of event names a completion queue.
                let broken = unsafe { event.element.cq }.addr();
                self.tell_those(Told::QueueBroke, |notice| notice.queues.contains(&broken));
            }
            Action::Lose => {
                tracing::error!(device, "RDMA device broke down or was removed");
                self.lose();
            }
            Action::PortDown => {
                let port = port_of(event);
                tracing::warn!(device, port, "RDMA port went down");
                locked(&self.ports).went_down(port, Instant::now());
                devices::note_change();
            }
            Action::PortUp => {
                let port = port_of(event);
                tracing::info!(device, port, "RDMA port is up");
                locked(&self.ports).came_up(port);
                devices::note_change();
            }
            Action::LookAgain => {
                tracing::info!(device, what, "addresses of an RDMA device may have changed");
                devices::note_change();
            }
            Action::Log => tracing::info!(device, what, "RDMA device tells"),
        }
    }

    fn tell_those(&self, what: Told, which: impl Fn(&Notice) -> bool) {
        let notices = locked(&self.notices);
        notices.values().filter(|n| which(n)).for_each(|n| n.tell(what));
    }

    /// Ends the connections over ports that have been down for too long.
    fn end_overdue(&self) {
        let overdue = locked(&self.ports).overdue(Instant::now());
        for port in overdue {
            tracing::warn!(device = self.name, port, "RDMA port stays down: its connections end");
            self.tell_those(Told::PortDown, |notice| notice.port == port);
        }
    }
}

/// Creates a domain whose slabs are deregistered when they are freed.
///
/// # Safety
///
/// As for [`Domain::new`].
unsafe fn watched(context: NonNull<ibv_context>, relaxes: bool) -> io::Result<Arc<Slabs>> {
    // SAFETY: as the caller says.
    let slabs = Arc::new(Slabs::new(unsafe { Domain::new(context, relaxes)? }));
    let as_watch: Arc<dyn SlabWatch> = slabs.clone();
    watch_slabs(Arc::downgrade(&as_watch));
    Ok(slabs)
}

fn port_of(event: &ibv_async_event) -> u8 {
    // SAFETY: events of these kinds hold the number of a port; others hold an address, of which this reads a part.
    u8::try_from(unsafe { event.element.port_num }).unwrap_or(0)
}

async fn read_events(
    device: Weak<Device>,
    fd: AsyncFd<Borrowed>,
    own: OwnedFd,
    (anchor, path): (Arc<Events>, PathBuf),
    mut end: oneshot::Receiver<()>,
) {
    let mut look = tokio::time::interval(LOOK_EVERY);
    loop {
        tokio::select! {
            _ = &mut end => break,
            // The removal of siw or rxe waits for us to close the device before it sends an event.
            _ = look.tick() => {
                let Some(device) = device.upgrade() else { break };
                if !path.exists() {
                    device.lose();
                    break;
                }
                device.end_overdue();
            }
            event = anchor.next() => {
                let Some(device) = device.upgrade() else { break };
                let removed = |e: &cm::Event| {
                    e.kind == rdma_cm_event_type::RDMA_CM_EVENT_DEVICE_REMOVAL
                };
                if event.as_ref().map_or(true, removed) {
                    device.lose();
                    break;
                }
            }
            ready = fd.readable() => {
                let Ok(mut ready) = ready else { break };
                let Some(device) = device.upgrade() else { break };
                while device.take_event() {}
                ready.clear_ready();
                if device.is_lost() {
                    break;
                }
            }
        }
    }
    // The runtime deregisters it first.
    drop(fd);
    drop(own);
}

/// The open devices of one provider.
#[derive(Default)]
pub(super) struct Devices(Arc<Known>);

impl Devices {
    /// Returns the device of this identifier. The first call for a device decides how it registers memory.
    pub(super) fn of(&self, id: &Id, config: &VerbsConfig) -> io::Result<Arc<Device>> {
        let context = id.context().ok_or_else(|| Error::other("bound to no RDMA device"))?;
        let mut known = locked(&self.0);
        if let Some(device) = known.get(&context.addr().get()) {
            return Ok(device.clone());
        }
        let device = Device::open(id, context, &self.0, config)?;
        known.insert(context.addr().get(), device.clone());
        Ok(device)
    }
}
