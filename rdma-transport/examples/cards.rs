//! A double of libibverbs and librdmacm with one card, for `tests/cards`. It moves no data: it offers a connection request for each
//! of `CARDS_CLIENTS` clients, applies the limits of the profile `CARDS_PROFILE`, and appends what it is asked to `CARDS_LOG`.
#![allow(unsafe_code, clippy::missing_safety_doc, clippy::unwrap_used, missing_docs)]

use std::collections::{HashMap, VecDeque};
use std::ffi::{c_char, c_int, c_void};
use std::io::Write;
use std::mem;
use std::ptr;
use std::sync::{LazyLock, Mutex, MutexGuard};

use rdma_sys::*;

/// What a card says of itself and what it refuses.
struct Profile {
    name: &'static str,
    is_iwarp: bool,
    vendor: u32,
    max_sge: c_int,
    max_qp_wr: c_int,
    /// Blocks of 32 bytes in the send queue: a request takes one for its header and one for each two pieces.
    blocks: u32,
}

const PROFILES: [Profile; 2] = [
    Profile {
        name: "x722",
        is_iwarp: true,
        vendor: 0x8086,
        max_sge: 3,
        max_qp_wr: 2048,
        blocks: 256,
    },
    Profile {
        name: "cx5-roce",
        is_iwarp: false,
        vendor: 0x02c9,
        max_sge: 30,
        max_qp_wr: 32768,
        blocks: u32::MAX,
    },
];

static PROFILE: LazyLock<&'static Profile> = LazyLock::new(|| {
    let wanted = std::env::var("CARDS_PROFILE").unwrap();
    PROFILES.iter().find(|p| p.name == wanted).unwrap()
});

/// The address of the card's context.
static CONTEXT: LazyLock<usize> = LazyLock::new(|| {
    // SAFETY: zeroes are values of these structures.
    let (mut device, mut context) =
        unsafe { (mem::zeroed::<ibv_device>(), mem::zeroed::<ibv_context>()) };
    device.transport_type = match PROFILE.is_iwarp {
        true => ibv_transport_type::IBV_TRANSPORT_IWARP,
        false => ibv_transport_type::IBV_TRANSPORT_IB,
    };
    for (into, text) in [(&mut device.name[..], "card0"), (&mut device.dev_path[..], "/sys")] {
        into.iter_mut()
            .zip(text.bytes())
            .for_each(|(to, from)| *to = c_char::from_ne_bytes([from]));
    }
    context.device = Box::into_raw(Box::new(device));
    context.async_fd = event_fd();
    context.cmd_fd = event_fd();
    context.num_comp_vectors = 1;
    context.ops.poll_cq = Some(poll_cq);
    context.ops.req_notify_cq = Some(req_notify_cq);
    context.ops.post_send = Some(post_send);
    context.ops.post_recv = Some(post_recv);
    Box::into_raw(Box::new(context)).expose_provenance()
});

fn context() -> *mut ibv_context {
    ptr::with_exposed_provenance_mut(*CONTEXT)
}

#[derive(Default)]
struct State {
    /// Events that wait, by channel.
    events: HashMap<usize, VecDeque<usize>>,
    next: u32,
    /// Domains of registrations, by key.
    keys: HashMap<u32, u32>,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap()
}

fn next() -> u32 {
    let mut state = state();
    state.next += 1;
    state.next
}

fn log(line: &str) {
    let path = std::env::var("CARDS_LOG").unwrap();
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    writeln!(file, "{line}").unwrap();
}

fn event_fd() -> c_int {
    // SAFETY: no memory is passed.
    unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC) }
}

fn fail(errno: c_int) -> c_int {
    // SAFETY: `errno` of this thread is always writable.
    unsafe { *libc::__errno_location() = errno };
    -1
}

fn tell(id: *mut rdma_cm_id, kind: rdma_cm_event_type::Type, new: *mut rdma_cm_id) {
    // SAFETY: zeroes are a value; the identifier and its channel are alive.
    unsafe {
        let mut event: rdma_cm_event = mem::zeroed();
        event.id = if new.is_null() { id } else { new };
        event.event = kind;
        event.param.conn.responder_resources = 8;
        event.param.conn.initiator_depth = 8;
        let (channel, event) = ((*id).channel, Box::into_raw(Box::new(event)).expose_provenance());
        state().events.entry(channel.addr()).or_default().push_back(event);
        libc::write((*channel).fd, (&raw const ONE).cast(), 8);
    }
}

static ONE: u64 = 1;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    Box::into_raw(Box::new(rdma_event_channel { fd: event_fd() }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    // SAFETY: it was made above.
    unsafe { libc::close(Box::from_raw(channel).fd) };
}

fn new_id(channel: *mut rdma_event_channel) -> *mut rdma_cm_id {
    // SAFETY: zeroes are a value.
    let mut id: rdma_cm_id = unsafe { mem::zeroed() };
    id.channel = channel;
    id.port_num = 1;
    Box::into_raw(Box::new(id))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    _context: *mut c_void,
    _ps: rdma_port_space::Type,
) -> c_int {
    // SAFETY: the caller has room for the answer.
    unsafe { *id = new_id(channel) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: it was made above.
    drop(unsafe { Box::from_raw(id) });
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_set_option(
    _id: *mut rdma_cm_id,
    _level: c_int,
    option: c_int,
    value: *mut c_void,
    len: usize,
) -> c_int {
    // SAFETY: the value has `len` bytes, of which the lowest is first.
    log(&format!("option {option} {} {len}", unsafe { *value.cast::<u8>() }));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, at: *mut libc::sockaddr) -> c_int {
    // SAFETY: the address is one of IPv4, and the identifier is alive.
    unsafe {
        (*id).route.addr.src_addr_union.src_sin = *at.cast();
        (*id).verbs = context();
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, _backlog: c_int) -> c_int {
    log("listen");
    let clients: u16 = std::env::var("CARDS_CLIENTS").unwrap().parse().unwrap();
    for n in 0..clients {
        // SAFETY: the identifiers are alive; all addresses are of IPv4.
        unsafe {
            let new = new_id((*id).channel);
            (*new).verbs = context();
            let addr = &mut (*new).route.addr;
            addr.src_addr_union = (*id).route.addr.src_addr_union;
            addr.dst_addr_union.dst_sin = addr.src_addr_union.src_sin;
            addr.dst_addr_union.dst_sin.sin_port = (40_000 + n).to_be();
            tell(id, rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST, new);
        }
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    let first = state().events.get_mut(&channel.addr()).and_then(VecDeque::pop_front);
    let Some(first) = first else { return fail(libc::EAGAIN) };
    // SAFETY: the channel is alive; the caller has room for the answer.
    unsafe {
        let mut taken = 0_u64;
        libc::read((*channel).fd, (&raw mut taken).cast(), 8);
        *event = ptr::with_exposed_provenance_mut(first);
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    // SAFETY: it was made in `tell`.
    drop(unsafe { Box::from_raw(event) });
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    // SAFETY: the identifier is alive.
    unsafe { (*id).channel = channel };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: identifier, domain and attributes are alive; zeroes are a value.
    unsafe {
        let cap = (*attr).cap;
        let request = 1 + cap.max_send_sge.div_ceil(2).max(cap.max_inline_data.div_ceil(32));
        let sge = cap.max_send_sge.cast_signed();
        if sge > PROFILE.max_sge || cap.max_send_wr.saturating_mul(request) > PROFILE.blocks {
            return fail(libc::EINVAL);
        }
        let mut qp: ibv_qp = mem::zeroed();
        (qp.context, qp.pd, qp.qp_num) = (context(), pd, next());
        let ibv_qp_cap { max_send_wr, max_send_sge, max_inline_data, .. } = cap;
        log(&format!(
            "qp {} pd {} sends {max_send_wr} pieces {max_send_sge} inline {max_inline_data}",
            qp.qp_num,
            (*pd).handle
        ));
        (*id).qp = Box::into_raw(Box::new(qp));
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    // SAFETY: it was made above.
    let qp = unsafe { Box::from_raw((*id).qp) };
    log(&format!("end of qp {}", qp.qp_num));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_accept(id: *mut rdma_cm_id, _param: *mut rdma_conn_param) -> c_int {
    log("accept");
    tell(id, rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED, ptr::null_mut());
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    _from: *mut libc::sockaddr,
    to: *mut libc::sockaddr,
    _time: c_int,
) -> c_int {
    log("resolve");
    // SAFETY: the address is one of IPv4, and the identifier is alive.
    unsafe {
        let addr = &mut (*id).route.addr;
        addr.dst_addr_union.dst_sin = *to.cast();
        addr.src_addr_union.src_sin = *to.cast();
        (*id).verbs = context();
    }
    tell(id, rdma_cm_event_type::RDMA_CM_EVENT_ADDR_RESOLVED, ptr::null_mut());
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_resolve_route(id: *mut rdma_cm_id, _time: c_int) -> c_int {
    tell(id, rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_RESOLVED, ptr::null_mut());
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_connect(id: *mut rdma_cm_id, _param: *mut rdma_conn_param) -> c_int {
    tell(id, rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED, ptr::null_mut());
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_reject(
    _id: *mut rdma_cm_id,
    _data: *const c_void,
    _len: u8,
) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_disconnect(_id: *mut rdma_cm_id) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_event_str(_event: rdma_cm_event_type::Type) -> *const c_char {
    c"event".as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_event_type_str(_event: ibv_event_type::Type) -> *const c_char {
    c"event".as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_device(
    _context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    // SAFETY: the caller has room for the answer; zeroes are a value.
    unsafe {
        let mut known: ibv_device_attr = mem::zeroed();
        (known.vendor_id, known.max_sge, known.max_qp_wr) =
            (PROFILE.vendor, PROFILE.max_sge, PROFILE.max_qp_wr);
        (known.max_qp, known.max_cq, known.max_qp_rd_atom, known.max_qp_init_rd_atom) =
            (1000, 2000, 16, 16);
        *attr = known;
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_async_event(
    _context: *mut ibv_context,
    _event: *mut ibv_async_event,
) -> c_int {
    fail(libc::EAGAIN)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    Box::into_raw(Box::new(ibv_pd { context, handle: next() }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: it was made above.
    let pd = unsafe { Box::from_raw(pd) };
    // The kernel refuses this while registrations are left.
    let left = state().keys.values().filter(|of| **of == pd.handle).count();
    log(&format!("end of pd {} with {left} registrations", pd.handle));
    0
}

fn register(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: u32) -> *mut ibv_mr {
    let key = next();
    // SAFETY: the domain is alive.
    let handle = unsafe { (*pd).handle };
    state().keys.insert(key, handle);
    log(&format!("mr {key} pd {handle} access {access} length {length}"));
    let (lkey, rkey) = (key, key);
    Box::into_raw(Box::new(ibv_mr {
        context: context(),
        pd,
        addr,
        length,
        handle: key,
        lkey,
        rkey,
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    register(pd, addr, length, access.cast_unsigned())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    _iova: u64,
    access: u32,
) -> *mut ibv_mr {
    register(pd, addr, length, access)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: it was made above.
    let mr = unsafe { Box::from_raw(mr) };
    state().keys.remove(&mr.lkey);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    Box::into_raw(Box::new(ibv_comp_channel { context, fd: event_fd(), refcnt: 0 }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: it was made above.
    unsafe { libc::close(Box::from_raw(channel).fd) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    _entries: c_int,
    _cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    _vector: c_int,
) -> *mut ibv_cq {
    // SAFETY: zeroes are a value.
    let mut cq: ibv_cq = unsafe { mem::zeroed() };
    (cq.context, cq.channel) = (context, channel);
    Box::into_raw(Box::new(cq))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: it was made above.
    drop(unsafe { Box::from_raw(cq) });
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_cq_event(
    _channel: *mut ibv_comp_channel,
    _cq: *mut *mut ibv_cq,
    _context: *mut *mut c_void,
) -> c_int {
    fail(libc::EAGAIN)
}

unsafe extern "C" fn poll_cq(_cq: *mut ibv_cq, _most: c_int, _into: *mut ibv_wc) -> c_int {
    0
}

unsafe extern "C" fn req_notify_cq(_cq: *mut ibv_cq, _solicited: c_int) -> c_int {
    0
}

/// Checks that a queue pair reaches the memory of these pieces, as a card does.
///
/// # Safety
///
/// The queue pair is alive, and the list has so many pieces.
unsafe fn reach(qp: *mut ibv_qp, what: &str, pieces: *const ibv_sge, number: c_int) {
    // SAFETY: as the caller says.
    let (qp_num, of_qp) = unsafe { ((*qp).qp_num, (*(*qp).pd).handle) };
    for i in 0..usize::try_from(number).unwrap() {
        // SAFETY: as the caller says.
        let key = unsafe { (*pieces.add(i)).lkey };
        let domain = state().keys.get(&key).copied();
        log(&format!("{what} of qp {qp_num} by key {key}"));
        if domain != Some(of_qp) {
            log(&format!("VIOLATION: key {key} is of {domain:?}, not of domain {of_qp}"));
        }
    }
}

unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    mut wr: *mut ibv_send_wr,
    _bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the list is terminated, and its requests are alive.
    while let Some(request) = unsafe { wr.as_ref() } {
        let is_inline = request.send_flags & ibv_send_flags::IBV_SEND_INLINE.0 != 0;
        if !is_inline {
            let is_read = request.opcode == ibv_wr_opcode::IBV_WR_RDMA_READ;
            // SAFETY: as above.
            unsafe {
                reach(qp, if is_read { "read" } else { "send" }, request.sg_list, request.num_sge)
            };
        }
        wr = request.next;
    }
    0
}

unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    mut wr: *mut ibv_recv_wr,
    _bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the list is terminated, and its requests are alive.
    while let Some(request) = unsafe { wr.as_ref() } {
        // SAFETY: as above.
        unsafe { reach(qp, "receive", request.sg_list, request.num_sge) };
        wr = request.next;
    }
    0
}
