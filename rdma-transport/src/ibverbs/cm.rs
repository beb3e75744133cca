//! librdmacm: identifiers, event channels, and addresses.
//!
//! *Operation.* Every listener and every connection has a separate event channel, whose descriptor the runtime watches. *Memory.*
//! An event is copied and acknowledged at once, so the library never waits for us. *Errors.* `io::Error` from `errno`.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::io::{self, Error, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::{self, NonNull};
use std::task::{Context, Poll};

use bytes::Bytes;
use rdma_sys::*;
use socket2::SockAddr;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::traffic_class::TrafficClass;

/// A descriptor that its owner closes after the runtime has deregistered it.
pub(super) struct Borrowed(RawFd);

impl AsRawFd for Borrowed {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

/// Registers this descriptor with the runtime and makes it non-blocking.
///
/// # Safety
///
/// The descriptor is open, and stays open until the returned value is dropped.
pub(super) unsafe fn watch(fd: RawFd) -> io::Result<AsyncFd<Borrowed>> {
    // SAFETY: plain calls on a number; a wrong one gives an error.
    let set = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK)
    };
    if set < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: as the caller says.
    let watched = unsafe { AsyncFd::register_with_interest(Borrowed(fd), Interest::READABLE) };
    watched.map_err(Error::from)
}

/// Converts the result of a call that returns 0 or -1.
fn checked(answer: c_int) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Copies a text of the library.
///
/// # Safety
///
/// `text` is null or a C string that lives as long as the library.
pub(super) unsafe fn words(text: *const std::ffi::c_char) -> String {
    if text.is_null() {
        return "?".into();
    }
    // SAFETY: as the caller says.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// An event of the library.
pub(super) struct Event {
    pub(super) kind: rdma_cm_event_type::Type,
    pub(super) status: c_int,
    /// With [`rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST`], the new identifier.
    pub(super) new: Option<Id>,
    pub(super) private_data: Bytes,
    /// Maximum RDMA Reads that the peer may have outstanding.
    pub(super) reads_in: u8,
    /// Maximum RDMA Reads that this side may have outstanding.
    pub(super) reads_out: u8,
}

impl Event {
    pub(super) fn name(&self) -> String {
        // SAFETY: the library answers with a constant.
        unsafe { words(rdma_event_str(self.kind)) }
    }
}

struct RawChannel(NonNull<rdma_event_channel>);

// SAFETY: librdmacm is thread-safe; this only says where the channel lives.
unsafe impl Send for RawChannel {}
// SAFETY: as above.
unsafe impl Sync for RawChannel {}

impl Drop for RawChannel {
    fn drop(&mut self) {
        // SAFETY: this owns the channel; all events were given back, all identifiers on it are gone (field order of those
        // who hold one).
        unsafe { rdma_destroy_event_channel(self.0.as_ptr()) };
    }
}

/// Receives events of identifiers. Must be dropped after them.
pub(super) struct Events {
    // Dropped before the channel, which closes the descriptor.
    fd: AsyncFd<Borrowed>,
    raw: RawChannel,
}

impl Events {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: no arguments.
        let raw = unsafe { rdma_create_event_channel() };
        let raw = RawChannel(NonNull::new(raw).ok_or_else(Error::last_os_error)?);
        // SAFETY: the channel is alive, and outlives `fd` by field order.
        let fd = unsafe { watch(raw.0.as_ref().fd)? };
        Ok(Self { fd, raw })
    }

    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<io::Result<Event>> {
        loop {
            let mut ready = match self.fd.poll_read_ready(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(ready) => ready?,
            };
            match self.take() {
                Err(e) if e.kind() == ErrorKind::WouldBlock => ready.clear_ready(),
                other => return Poll::Ready(other),
            }
        }
    }

    pub(super) async fn next(&self) -> io::Result<Event> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn take(&self) -> io::Result<Event> {
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is alive; on success `raw` is an event until it is given back below.
        unsafe {
            checked(rdma_get_cm_event(self.raw.0.as_ptr(), &raw mut raw))?;
            let kind = (*raw).event;
            let is_new = kind == rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST;
            let mut event = Event {
                kind,
                status: (*raw).status,
                new: if is_new { NonNull::new((*raw).id).map(Id) } else { None },
                private_data: Bytes::new(),
                reads_in: 0,
                reads_out: 0,
            };
            use rdma_cm_event_type::*;
            if matches!(
                kind,
                RDMA_CM_EVENT_CONNECT_REQUEST
                    | RDMA_CM_EVENT_CONNECT_RESPONSE
                    | RDMA_CM_EVENT_ESTABLISHED
                    | RDMA_CM_EVENT_REJECTED
            ) {
                let conn = (*raw).param.conn;
                event.reads_in = conn.responder_resources;
                event.reads_out = conn.initiator_depth;
                if !conn.private_data.is_null() && conn.private_data_len > 0 {
                    let len = usize::from(conn.private_data_len);
                    let data = std::slice::from_raw_parts(conn.private_data.cast::<u8>(), len);
                    event.private_data = Bytes::copy_from_slice(data);
                }
            }
            rdma_ack_cm_event(raw);
            Ok(event)
        }
    }
}

/// An identifier of librdmacm: a listener, or a connection with its queue pair.
pub(super) struct Id(NonNull<rdma_cm_id>);

// SAFETY: librdmacm is thread-safe, and an identifier has one owner.
unsafe impl Send for Id {}
// SAFETY: shared references only read fields that do not change once the owner has it.
unsafe impl Sync for Id {}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: this owns the identifier; its queue pair is gone (`Hardware`), its events were given back.
        unsafe { rdma_destroy_id(self.0.as_ptr()) };
    }
}

/// Parameters of a connection request or reply.
pub(super) struct Terms<'a> {
    pub(super) private_data: &'a [u8],
    pub(super) reads_in: u8,
    pub(super) reads_out: u8,
}

/// How often the peer's card retries if no Receive is posted, after 0.65 s each. Credits ensure that one is posted.
const RECEIVE_RETRIES: u8 = 6;
/// How often a lost packet is retransmitted; the maximum.
const RETRIES: u8 = 7;

impl Terms<'_> {
    fn param(&self) -> io::Result<rdma_conn_param> {
        let len = u8::try_from(self.private_data.len())
            .map_err(|_| Error::new(ErrorKind::InvalidInput, "private data above 255 bytes"))?;
        Ok(rdma_conn_param {
            private_data: self.private_data.as_ptr().cast::<c_void>(),
            private_data_len: len,
            responder_resources: self.reads_in,
            initiator_depth: self.reads_out,
            flow_control: 1,
            retry_count: RETRIES,
            rnr_retry_count: RECEIVE_RETRIES,
            srq: 0,
            qp_num: 0,
        })
    }
}

impl Id {
    pub(super) fn new(events: &Events) -> io::Result<Self> {
        let mut raw = ptr::null_mut();
        let ps = rdma_port_space::RDMA_PS_TCP;
        // SAFETY: the channel is alive and outlives the identifier, by field order of those who hold both.
        checked(unsafe {
            rdma_create_id(events.raw.0.as_ptr(), &raw mut raw, ptr::null_mut(), ps)
        })?;
        NonNull::new(raw).map(Self).ok_or_else(|| ErrorKind::Other.into())
    }

    pub(super) fn raw(&self) -> *mut rdma_cm_id {
        self.0.as_ptr()
    }

    /// The device that it is bound to.
    pub(super) fn context(&self) -> Option<NonNull<ibv_context>> {
        // SAFETY: the identifier is alive.
        NonNull::new(unsafe { (*self.raw()).verbs })
    }

    /// True if its device uses iWARP; `None` if it is not bound.
    pub(super) fn is_iwarp(&self) -> Option<bool> {
        let context = self.context()?;
        // SAFETY: the library keeps the context of a bound identifier open, and a context has a device.
        let transport = unsafe { (*context.as_ref().device).transport_type };
        Some(transport == ibv_transport_type::IBV_TRANSPORT_IWARP)
    }

    /// Redirects events to `events`.
    pub(super) fn migrate(&self, events: &Events) -> io::Result<()> {
        // SAFETY: both are alive; no event of this identifier is held, so this does not wait.
        checked(unsafe { rdma_migrate_id(self.raw(), events.raw.0.as_ptr()) })
    }

    /// Allows to listen on a port again directly after another listener.
    pub(super) fn reuse_address(&self) -> io::Result<()> {
        // SAFETY: the option is an int.
        unsafe { self.set_option::<c_int>(RDMA_OPTION_ID_REUSEADDR, 1) }
    }

    /// Sets how long the card waits for an acknowledgement: 4.096 us times two to the power of this.
    pub(super) fn set_ack_timeout(&self, exponent: u8) -> io::Result<()> {
        // SAFETY: the option is a byte.
        unsafe { self.set_option::<u8>(RDMA_OPTION_ID_ACK_TIMEOUT, exponent) }
    }

    /// Sets the traffic class. Must precede listening and resolving the route, which use it.
    pub(super) fn set_class(&self, class: &TrafficClass) -> io::Result<()> {
        let Some(byte) = class.byte() else { return Ok(()) };
        // SAFETY: the option is a byte.
        unsafe { self.set_option::<u8>(RDMA_OPTION_ID_TOS, byte) }
    }

    /// # Safety
    ///
    /// The option's value is of this type.
    unsafe fn set_option<T>(&self, option: u32, mut value: T) -> io::Result<()> {
        let at = (&raw mut value).cast::<c_void>();
        let (level, option) = (RDMA_OPTION_ID.cast_signed(), option.cast_signed());
        // SAFETY: the value lives through the call; its type is as the caller says.
        checked(unsafe { rdma_set_option(self.raw(), level, option, at, size_of::<T>()) })
    }

    /// The port of its device.
    pub(super) fn port(&self) -> u8 {
        // SAFETY: the identifier is alive.
        unsafe { (*self.raw()).port_num }
    }

    pub(super) fn bind(&self, at: SocketAddr) -> io::Result<()> {
        let at = SockAddr::from(at);
        // SAFETY: the address lives through the call, which only reads it.
        checked(unsafe { rdma_bind_addr(self.raw(), at.as_ptr().cast_mut().cast()) })
    }

    pub(super) fn listen(&self, backlog: c_int) -> io::Result<()> {
        // SAFETY: the identifier is alive.
        checked(unsafe { rdma_listen(self.raw(), backlog) })
    }

    pub(super) fn resolve_addr(&self, to: SocketAddr, milliseconds: c_int) -> io::Result<()> {
        let to = SockAddr::from(to);
        // SAFETY: the address lives through the call, which only reads it.
        checked(unsafe {
            let to = to.as_ptr().cast_mut().cast();
            rdma_resolve_addr(self.raw(), ptr::null_mut(), to, milliseconds)
        })
    }

    pub(super) fn resolve_route(&self, milliseconds: c_int) -> io::Result<()> {
        // SAFETY: the identifier is alive.
        checked(unsafe { rdma_resolve_route(self.raw(), milliseconds) })
    }

    pub(super) fn connect(&self, terms: &Terms<'_>) -> io::Result<()> {
        let mut param = terms.param()?;
        // SAFETY: the parameters and the private data live through the call.
        checked(unsafe { rdma_connect(self.raw(), &raw mut param) })
    }

    pub(super) fn accept(&self, terms: &Terms<'_>) -> io::Result<()> {
        let mut param = terms.param()?;
        // SAFETY: as above.
        checked(unsafe { rdma_accept(self.raw(), &raw mut param) })
    }

    pub(super) fn reject(&self, private_data: &[u8]) {
        let data = &private_data[..private_data.len().min(usize::from(u8::MAX))];
        let len = u8::try_from(data.len()).unwrap_or(0);
        // SAFETY: the data lives through the call. The result is ignored: the connection ends here whether or not the peer learns
        // of it.
        unsafe { rdma_reject(self.raw(), data.as_ptr().cast::<c_void>(), len) };
    }

    /// Disconnects and moves the queue pair to the error state.
    pub(super) fn disconnect(&self) {
        // SAFETY: the identifier is alive. The call fails if the connection has already ended; no further step is needed then.
        unsafe { rdma_disconnect(self.raw()) };
    }

    /// Tells librdmacm that a message arrived although the last packet of the peer's handshake was lost.
    pub(super) fn notify_established(&self) {
        // SAFETY: the identifier is alive. The call fails if the connection is already established; no further step is needed then.
        unsafe { rdma_notify(self.raw(), ibv_event_type::IBV_EVENT_COMM_EST) };
    }

    pub(super) fn local(&self) -> SocketAddr {
        // SAFETY: the identifier is alive, and the library keeps an address of a known family there.
        unsafe { address(&raw const (*self.raw()).route.addr.src_addr_union.src_storage) }
    }

    pub(super) fn peer(&self) -> SocketAddr {
        // SAFETY: as above.
        unsafe { address(&raw const (*self.raw()).route.addr.dst_addr_union.dst_storage) }
    }
}

/// Converts a C address.
///
/// # Safety
///
/// `at` points to initialised storage.
unsafe fn address(at: *const libc::sockaddr_storage) -> SocketAddr {
    // SAFETY: the storage is large enough for every family, and the family says which it holds.
    unsafe {
        match c_int::from((*at).ss_family) {
            libc::AF_INET6 => {
                let a = *at.cast::<libc::sockaddr_in6>();
                let (ip, port) = (Ipv6Addr::from(a.sin6_addr.s6_addr), u16::from_be(a.sin6_port));
                SocketAddrV6::new(ip, port, a.sin6_flowinfo, a.sin6_scope_id).into()
            }
            libc::AF_INET => {
                let a = *at.cast::<libc::sockaddr_in>();
                let ip = Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr));
                (ip, u16::from_be(a.sin_port)).into()
            }
            _ => (Ipv4Addr::UNSPECIFIED, 0).into(),
        }
    }
}
