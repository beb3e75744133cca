//! Memory of this side that the peer may access.
//!
//! *Operation.* If the device supports memory windows of type 2, a region is registered for local use, and the peer gets the key of
//! a window onto it, which belongs to this connection and which the peer's Send may invalidate. Otherwise the peer gets the key of
//! the registration itself.
//!
//! *Memory.* A region keeps its memory until it is released; its registration is dropped first. *Errors.* A full table, or a device
//! without further resources, is [`Refused::Full`].
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ptr::NonNull;

use rdma_sys::*;

use super::keys::Keys;
use super::memory::Registered;
use crate::verbs::{Refused, Region, RemoteSeg};

/// A memory window; deallocated when dropped.
struct Window(NonNull<ibv_mw>);

// SAFETY: libibverbs is thread-safe, and a window has one owner.
unsafe impl Send for Window {}
// SAFETY: shared references only read what does not change.
unsafe impl Sync for Window {}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: this owns the window.
        unsafe { ibv_dealloc_mw(self.0.as_ptr()) };
    }
}

struct Lent {
    // Dropped before the registration that it refers to.
    window: Option<Window>,
    registered: Option<Registered>,
    region: Region,
    at: usize,
    len: usize,
    rights: u32,
}

impl Lent {
    fn close(&mut self) {
        self.window = None;
        self.registered = None;
    }
}

/// All regions of a connection, by the peer's key.
#[derive(Default)]
pub(super) struct Windows(HashMap<u32, Lent>);

impl Windows {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Makes a region available to the peer. `true`: its window opens with a request that must be posted before the peer learns the
    /// key.
    pub(super) fn lend(
        &mut self,
        keys: &Keys,
        mut region: Region,
    ) -> Result<(RemoteSeg, bool), (Refused, Region)> {
        use ibv_access_flags as flags;
        let (at, len, rights) = match &mut region {
            Region::Writable(b) => (
                b.whole_mut().as_mut_ptr().expose_provenance(),
                b.capacity(),
                flags::IBV_ACCESS_REMOTE_WRITE.0,
            ),
            Region::Readable(b) => (
                b.as_slice().as_ptr().expose_provenance(),
                b.len(),
                flags::IBV_ACCESS_REMOTE_READ.0,
            ),
        };
        let Ok(len_32) = u32::try_from(len) else { return Err((Refused::Invalid, region)) };
        // A writable window needs a registration with local write access.
        let local = match &region {
            Region::Writable(_) => flags::IBV_ACCESS_LOCAL_WRITE.0,
            Region::Readable(_) => 0,
        };
        let by_window = keys.device.has_windows();
        let of_region =
            if by_window { local | flags::IBV_ACCESS_MW_BIND.0 } else { local | rights };
        // SAFETY: the region is kept beside its registration, which is given up before it.
        let registered = unsafe { keys.slabs.domain().register(at, len.max(1), of_region) }.ok();
        let Some(registered) = registered else { return Err((Refused::Full, region)) };
        let (window, handle) = if by_window {
            // SAFETY: the domain is alive, and outlives the window: connections keep their device to the last.
            let mw = unsafe { ibv_alloc_mw(keys.slabs.domain().raw(), ibv_mw_type::IBV_MW_TYPE_2) };
            let Some(mw) = mw.and_then(NonNull::new) else { return Err((Refused::Full, region)) };
            // SAFETY: the window is alive.
            (Some(Window(mw)), unsafe { ibv_inc_rkey(mw.as_ref().rkey) })
        } else {
            (None, registered.remote_key())
        };
        let registered = Some(registered);
        self.0.insert(handle, Lent { window, registered, region, at, len, rights });
        Ok((RemoteSeg { handle, len: len_32, offset: at as u64 }, by_window))
    }

    /// The request that opens the window of this key; `None` if it was released already.
    pub(super) fn bind(&self, key: u32) -> Option<bind_mw_t> {
        let lent = self.0.get(&key)?;
        let (window, registered) = (lent.window.as_ref()?, lent.registered.as_ref()?);
        Some(bind_mw_t {
            mw: window.0.as_ptr(),
            rkey: key,
            bind_info: ibv_mw_bind_info {
                mr: registered.raw(),
                addr: lent.at as u64,
                length: lent.len as u64,
                mw_access_flags: lent.rights,
            },
        })
    }

    /// Marks a key as invalidated by the peer; the memory waits for its release.
    pub(super) fn close(&mut self, key: u32) {
        if let Some(lent) = self.0.get_mut(&key) {
            lent.close();
        }
    }

    /// Closes all windows at the end of the connection.
    pub(super) fn close_all(&mut self) {
        self.0.values_mut().for_each(Lent::close);
    }

    /// Removes the region of this key from the table and returns it.
    pub(super) fn take(&mut self, key: u32) -> Option<Region> {
        let mut lent = self.0.remove(&key)?;
        lent.close();
        Some(lent.region)
    }
}
