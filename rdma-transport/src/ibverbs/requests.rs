//! Builds work requests in the card's format.
//!
//! *Operation.* [`Sender::post`] converts waiting work to one list of requests, as far as there is room, and posts it with one
//! call. *Memory.* Pieces in slabs are referenced in place. Small pieces outside are sent inline or gathered in a buffer of the
//! device; large ones are registered for the request. *Errors.* Work that the device cannot accept ends the connection.
#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::ptr;

use iobuf::{Buf, BufMut};
use rdma_sys::*;

use super::hardware::Hardware;
use super::keys::{Key, Keys};
use super::memory::Registered;
use super::queue::{SendQueue, Waiting};
use super::windows::Windows;
use crate::verbs::{Counters, RemoteSeg, Work, WorkId, WorkKind};

/// Up to this many bytes, pieces outside of slabs are gathered; registering costs more than copying them.
const GATHER_MAX: usize = 16 << 10;
/// Requests in one list.
const LIST_MAX: usize = 64;

/// Posted work with all memory that the card may access for it.
pub(super) struct InFlight {
    pub(super) id: WorkId,
    pub(super) kind: WorkKind,
    pub(super) bytes: usize,
    /// The target of a Read.
    pub(super) into: Option<BufMut>,
    _from: Vec<Buf>,
    _gathered: Option<BufMut>,
    _registered: Vec<Registered>,
}

/// A list of requests under construction.
#[derive(Default)]
struct List {
    requests: Vec<ibv_send_wr>,
    pieces: Vec<ibv_sge>,
    /// Number of pieces of each request.
    counts: Vec<usize>,
}

// SAFETY: the pointers within are set just before the list is posted, and not used afterwards.
unsafe impl Send for List {}

impl List {
    fn push(&mut self, number: u64, asks: bool, kind: Kind, pieces: &[ibv_sge]) {
        // SAFETY: null pointers and zeroes are a value of this structure.
        let mut wr: ibv_send_wr = unsafe { mem::zeroed() };
        wr.wr_id = number;
        wr.num_sge = i32::try_from(pieces.len()).unwrap_or(0);
        if asks {
            wr.send_flags |= ibv_send_flags::IBV_SEND_SIGNALED.0;
        }
        match kind {
            Kind::Send { invalidate, inline } => {
                wr.opcode = ibv_wr_opcode::IBV_WR_SEND;
                if let Some(invalidated_rkey) = invalidate {
                    wr.opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_INV;
                    wr.imm_data_invalidated_rkey_union =
                        imm_data_invalidated_rkey_union_t { invalidated_rkey };
                    // siw's library reads it from there.
                    wr.wr.rdma.rkey = invalidated_rkey;
                }
                if inline {
                    wr.send_flags |= ibv_send_flags::IBV_SEND_INLINE.0;
                }
            }
            Kind::Write { to } => {
                wr.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
                wr.wr.rdma = rdma_t { remote_addr: to.offset, rkey: to.handle };
            }
            Kind::Open { bind } => {
                wr.opcode = ibv_wr_opcode::IBV_WR_BIND_MW;
                wr.bind_mw_tso_union.bind_mw = bind;
            }
            Kind::Read { from } => {
                wr.opcode = ibv_wr_opcode::IBV_WR_RDMA_READ;
                wr.wr.rdma = rdma_t { remote_addr: from.offset, rkey: from.handle };
            }
        }
        self.requests.push(wr);
        self.pieces.extend_from_slice(pieces);
        self.counts.push(pieces.len());
    }

    /// Sets the pointers, and makes the last request ask for a completion.
    fn finish(&mut self) -> &mut [ibv_send_wr] {
        let mut at = 0;
        let base = self.requests.as_mut_ptr();
        let last = self.requests.len().saturating_sub(1);
        for (i, wr) in self.requests.iter_mut().enumerate() {
            // Points past the end only for a request without pieces, whose pointer is not used.
            wr.sg_list = self.pieces.as_mut_ptr().wrapping_add(at);
            at += self.counts[i];
            wr.next = if i == last { ptr::null_mut() } else { base.wrapping_add(i + 1) };
            if i == last {
                wr.send_flags |= ibv_send_flags::IBV_SEND_SIGNALED.0;
            }
        }
        &mut self.requests
    }

    fn clear(&mut self) {
        self.requests.clear();
        self.pieces.clear();
        self.counts.clear();
    }
}

enum Kind {
    Send { invalidate: Option<u32>, inline: bool },
    Write { to: RemoteSeg },
    Read { from: RemoteSeg },
    Open { bind: bind_mw_t },
}

pub(super) fn piece(at: usize, len: usize, key: u32) -> ibv_sge {
    ibv_sge { addr: at as u64, length: u32::try_from(len).unwrap_or(u32::MAX), lkey: key }
}

fn address(buf: &Buf) -> usize {
    buf.as_slice().as_ptr().expose_provenance()
}

/// The sending half of a connection.
pub(super) struct Sender {
    pub(super) queue: SendQueue<InFlight>,
    list: List,
    pieces: Vec<ibv_sge>,
    /// The key of a Read whose first segments are posted while the others wait for room.
    partial: Option<Key>,
    keys: Keys,
}

impl Sender {
    pub(super) fn new(keys: Keys, depth: u32, reads_max: usize) -> Self {
        Self {
            queue: SendQueue::new(depth, reads_max),
            list: List::default(),
            pieces: Vec::new(),
            partial: None,
            keys,
        }
    }

    /// Posts waiting work, as far as there is room.
    pub(super) fn post(
        &mut self,
        hw: &mut Hardware,
        windows: &Windows,
        counters: &mut Counters,
    ) -> io::Result<()> {
        while self.queue.has_waiting() && self.queue.room() > 0 {
            self.list.clear();
            let mut fits = true;
            while fits && self.queue.room() > 0 && self.list.requests.len() < LIST_MAX {
                fits = match self.queue.first() {
                    None => false,
                    Some(Waiting::Work(Work::Read { .. })) => self.read(counters)?,
                    Some(Waiting::Work(_)) => self.send_or_write(hw, counters)?,
                    Some(Waiting::Opening(_)) => self.open(windows),
                };
            }
            if self.list.requests.is_empty() {
                return Ok(());
            }
            self.queue.ask_last();
            // SAFETY: what the requests point to is kept in `queue` until their completions come or `hw` is gone.
            unsafe { hw.post_sends(self.list.finish())? };
        }
        Ok(())
    }

    /// Posts a Read of zero bytes, which references no memory; the peer's card responds to it. Skipped while Reads are outstanding,
    /// whose responses have the same effect.
    pub(super) fn read_nothing(&mut self, hw: &mut Hardware) -> io::Result<()> {
        if self.queue.has_reads() || self.queue.reads_room() == 0 {
            return Ok(());
        }
        self.list.clear();
        let (number, asks) = self.queue.number_read(true);
        let from = RemoteSeg { handle: 0, len: 0, offset: 0 };
        self.list.push(number, asks, Kind::Read { from }, &[piece(0, 0, 0)]);
        // SAFETY: the request points to no memory.
        unsafe { hw.post_sends(self.list.finish()) }
    }

    /// Opens a window of this side, unless it was canceled.
    fn open(&mut self, windows: &Windows) -> bool {
        if let Some(Waiting::Opening(opening)) = self.queue.take_first()
            && let Some(bind) = windows.bind(opening.key)
        {
            let (number, asks) = self.queue.number(false);
            self.list.push(number, asks, Kind::Open { bind }, &[]);
        }
        true
    }

    fn send_or_write(&mut self, hw: &Hardware, counters: &mut Counters) -> io::Result<bool> {
        let (id, from, to, invalidate) = match self.queue.take_first() {
            Some(Waiting::Work(Work::Send { id, from, invalidate })) => {
                (id, from, None, invalidate)
            }
            Some(Waiting::Work(Work::Write { id, from, to })) => (id, vec![from], Some(to), None),
            _ => return Ok(false),
        };
        let bytes: usize = from.iter().map(Buf::len).sum();
        let bare = invalidate.is_none() || !self.keys.device.quirks.invalidates_without_inline;
        let fits = bytes <= hw.inline_max && from.len() <= hw.pieces_max;
        let inline = to.is_none() && bare && fits;
        let kind = match to {
            None => {
                counters.sends += 1;
                counters.sends_invalidate += u64::from(invalidate.is_some());
                counters.send_bytes += bytes as u64;
                Kind::Send { invalidate, inline: inline && bytes > 0 }
            }
            Some(to) => {
                counters.writes += 1;
                counters.write_bytes += bytes as u64;
                Kind::Write { to }
            }
        };
        self.pieces.clear();
        let (mut gathered, mut registered) = (None, Vec::new());
        let built = if bytes == 0 {
            Ok(())
        } else if inline {
            self.pieces.extend(from.iter().map(|b| piece(address(b), b.len(), 0)));
            Ok(())
        } else {
            self.gather(hw, &from, bytes, &mut gathered, &mut registered)
        };
        let is_write = to.is_some();
        // An empty Write needs no request: it completes with its predecessor.
        if built.is_ok() && !(is_write && bytes == 0) {
            let (number, asks) = self.queue.number(bytes >= self.keys.device.quirks.asks_from);
            self.list.push(number, asks, kind, &self.pieces);
        }
        // Recorded even if it could not be built: it is returned when the connection ends.
        self.queue.posted(InFlight {
            id,
            kind: if is_write { WorkKind::Write } else { WorkKind::Send },
            bytes,
            into: None,
            _from: from,
            _gathered: gathered,
            _registered: registered,
        });
        built.map(|()| true)
    }

    /// Fills `pieces` with all of `from`, which is not empty.
    fn gather(
        &mut self,
        hw: &Hardware,
        from: &[Buf],
        bytes: usize,
        gathered: &mut Option<BufMut>,
        registered: &mut Vec<Registered>,
    ) -> io::Result<()> {
        let lies_in_slabs = from.iter().all(|b| b.slab().is_some());
        let many = from.len() > hw.pieces_max;
        if many || (!lies_in_slabs && bytes <= GATHER_MAX) {
            let whole = self.keys.device.gather.try_get(bytes);
            // If no gather buffer is free or large enough, uses the heap, registered for this request.
            let mut whole = whole.unwrap_or_else(|| BufMut::heap(bytes));
            for b in from {
                whole.append(b);
            }
            let (slab, at) = (whole.slab(), whole.filled().as_ptr().expose_provenance());
            // SAFETY: `gathered` is kept with the work.
            let key = unsafe { self.keys.key(slab, at, bytes, 0)? };
            self.pieces.push(piece(at, bytes, key.local));
            registered.extend(key.registered);
            *gathered = Some(whole);
            return Ok(());
        }
        for b in from.iter().filter(|b| !b.is_empty()) {
            let at = address(b);
            // SAFETY: `from` is kept with the work.
            let key = unsafe { self.keys.key(b.slab(), at, b.len(), 0)? };
            self.pieces.push(piece(at, b.len(), key.local));
            registered.extend(key.registered);
        }
        Ok(())
    }

    /// Builds one request for each segment; false if not all fit.
    fn read(&mut self, counters: &mut Counters) -> io::Result<bool> {
        let (begun, room) = (self.queue.segments_done, self.queue.reads_room());
        let Some(Waiting::Work(Work::Read { from, .. })) = self.queue.first() else {
            return Ok(false);
        };
        let total: usize = from.iter().map(|s| s.len as usize).sum();
        let before: usize = from[..begun].iter().map(|s| s.len as usize).sum();
        let end = from.len().min(begun + room);
        let now: Vec<RemoteSeg> = from[begun..end].to_vec();
        let complete = end == from.len();
        let Some((at, slab)) = self.queue.read_target() else { return Ok(false) };
        let key = match self.partial.take() {
            Some(key) => key,
            None => {
                let remote = self.keys.device.quirks.read_sink_is_remote;
                let rights = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0
                    | if remote { ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0 } else { 0 };
                let slab = slab.filter(|_| !remote);
                // SAFETY: the target is kept with the work, waiting or posted.
                unsafe { self.keys.key(slab, at, total.max(1), rights)? }
            }
        };
        let mut to = at + before;
        let last = now.iter().rposition(|s| s.len > 0);
        for (i, from) in now.into_iter().enumerate().filter(|(_, s)| s.len > 0) {
            let (number, asks) = self.queue.number_read(Some(i) == last);
            let target = [piece(to, from.len as usize, key.local)];
            self.list.push(number, asks, Kind::Read { from }, &target);
            to += from.len as usize;
        }
        if !complete {
            self.queue.segments_done = end;
            self.partial = Some(key);
            return Ok(false);
        }
        if let Some(Waiting::Work(Work::Read { id, into, .. })) = self.queue.take_first() {
            counters.reads += 1;
            counters.read_bytes += total as u64;
            self.queue.posted(InFlight {
                id,
                kind: WorkKind::Read,
                bytes: total,
                into: Some(into),
                _from: Vec::new(),
                _gathered: None,
                _registered: key.registered.into_iter().collect(),
            });
        }
        Ok(true)
    }
}
