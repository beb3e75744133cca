//! Memory that a card may use.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::c_void;
use std::io::{self, Error};
use std::ptr::NonNull;
use std::sync::RwLock;

use iobuf::{Slab, SlabWatch};
use mutex::{reading, writing};
use rdma_sys::*;

/// A protection domain of a device.
pub(super) struct Domain(NonNull<ibv_pd>);

// SAFETY: libibverbs is thread-safe; this only says where the domain lives.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    /// # Safety
    ///
    /// `context` is open and stays so until the domain and all its regions are dropped.
    pub(super) unsafe fn new(context: NonNull<ibv_context>) -> io::Result<Self> {
        // SAFETY: as the caller says.
        let pd = unsafe { ibv_alloc_pd(context.as_ptr()) };
        NonNull::new(pd).map(Self).ok_or_else(Error::last_os_error)
    }

    pub(super) fn raw(&self) -> *mut ibv_pd {
        self.0.as_ptr()
    }

    /// Registers memory; `what` are access rights.
    ///
    /// # Safety
    ///
    /// The memory outlives the answer, nobody but the card writes to it while the card may, and the domain outlives it.
    pub(super) unsafe fn register(
        &self,
        base: usize,
        len: usize,
        what: u32,
    ) -> io::Result<Registered> {
        let base = std::ptr::with_exposed_provenance_mut::<c_void>(base);
        // SAFETY: as the caller says.
        let mr = unsafe { ibv_reg_mr(self.raw(), base, len, what.cast_signed()) };
        NonNull::new(mr).map(Registered).ok_or_else(Error::last_os_error)
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: this owns the domain; queue pairs and regions in it are gone.
        unsafe { ibv_dealloc_pd(self.raw()) };
    }
}

/// Registered memory, until it is dropped.
pub(super) struct Registered(NonNull<ibv_mr>);

// SAFETY: libibverbs is thread-safe, and a region has one owner.
unsafe impl Send for Registered {}
// SAFETY: shared references only read keys, which do not change.
unsafe impl Sync for Registered {}

impl Registered {
    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: the region is alive.
        unsafe { self.0.as_ref() }.lkey
    }

    pub(super) fn raw(&self) -> *mut ibv_mr {
        self.0.as_ptr()
    }

    pub(super) fn remote_key(&self) -> u32 {
        // SAFETY: the region is alive.
        unsafe { self.0.as_ref() }.rkey
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: this owns the region, and no work that names it is posted any more.
        unsafe { ibv_dereg_mr(self.0.as_ptr()) };
    }
}

/// The slabs that one device knows, each registered when a buffer of it is first used.
pub(super) struct Slabs {
    // Before the domain.
    known: RwLock<HashMap<Slab, Registered>>,
    domain: Domain,
}

impl Slabs {
    pub(super) fn new(domain: Domain) -> Self {
        Self { known: RwLock::default(), domain }
    }

    pub(super) fn domain(&self) -> &Domain {
        &self.domain
    }

    /// The key of this slab. Whoever asks holds a buffer of it.
    pub(super) fn key(&self, slab: Slab) -> io::Result<u32> {
        let known = reading(&self.known);
        if let Some(registered) = known.get(&slab) {
            return Ok(registered.local_key());
        }
        drop(known);
        let mut known = writing(&self.known);
        if let Some(registered) = known.get(&slab) {
            return Ok(registered.local_key());
        }
        let rights = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
        // SAFETY: the slab lives until its pool goes, which `freed` tells before; the card writes only where posted work
        // that owns the buffer says so.
        let registered = unsafe { self.domain.register(slab.base(), Slab::LEN, rights)? };
        let key = registered.local_key();
        known.insert(slab, registered);
        Ok(key)
    }

    /// Slabs that are registered now.
    pub(super) fn count(&self) -> usize {
        reading(&self.known).len()
    }
}

impl SlabWatch for Slabs {
    fn freed(&self, slab: Slab) {
        writing(&self.known).remove(&slab);
    }
}
