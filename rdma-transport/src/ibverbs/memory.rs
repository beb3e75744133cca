//! Registered memory.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::c_void;
use std::io::{self, Error};
use std::ptr::NonNull;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

use iobuf::{Slab, SlabWatch};
use mutex::{reading, writing};
use rdma_sys::*;

/// The card's writes may reach memory in any order: memory is read only after the completion, which follows all of them.
const RELAXED: u32 = ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING.0;

/// A protection domain of a device.
pub(super) struct Domain {
    pd: NonNull<ibv_pd>,
    /// Memory is registered with relaxed ordering.
    relaxes: AtomicBool,
}

// SAFETY: libibverbs is thread-safe; this only says where the domain lives.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    /// # Safety
    ///
    /// `context` is open and stays open until the domain and all its regions are dropped.
    pub(super) unsafe fn new(context: NonNull<ibv_context>, relaxes: bool) -> io::Result<Self> {
        // SAFETY: as the caller says.
        let pd = NonNull::new(unsafe { ibv_alloc_pd(context.as_ptr()) });
        let pd = pd.ok_or_else(Error::last_os_error)?;
        Ok(Self { pd, relaxes: AtomicBool::new(relaxes) })
    }

    /// True while memory is registered with relaxed ordering.
    pub(super) fn relaxes(&self) -> bool {
        self.relaxes.load(Ordering::Relaxed)
    }

    pub(super) fn raw(&self) -> *mut ibv_pd {
        self.pd.as_ptr()
    }

    /// Registers memory with the access rights `what`.
    ///
    /// # Safety
    ///
    /// The memory and the domain outlive the returned value, and only the card writes to the memory while it may.
    pub(super) unsafe fn register(
        &self,
        base: usize,
        len: usize,
        what: u32,
    ) -> io::Result<Registered> {
        let at = std::ptr::with_exposed_provenance_mut::<c_void>(base);
        relaxed_if_taken(&self.relaxes, what, |what| {
            // The plain call does not know rights that a kernel or device may ignore.
            let mr = match what & RELAXED {
                // SAFETY: as the caller says.
                0 => unsafe { ibv_reg_mr(self.raw(), at, len, what.cast_signed()) },
                // SAFETY: as the caller says; the card uses the same addresses as this process.
                _ => unsafe { ibv_reg_mr_iova2(self.raw(), at, len, base as u64, what) },
            };
            NonNull::new(mr).map(Registered).ok_or_else(Error::last_os_error)
        })
    }
}

/// Registers with relaxed ordering while `relaxes` is set. If the library lacks the function or the device refuses the right,
/// registers without it, and clears `relaxes`.
fn relaxed_if_taken<T>(
    relaxes: &AtomicBool,
    what: u32,
    register: impl Fn(u32) -> io::Result<T>,
) -> io::Result<T> {
    if !relaxes.load(Ordering::Relaxed) {
        return register(what);
    }
    let refused = |e: &Error| matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP));
    match register(what | RELAXED) {
        Err(e) if refused(&e) => {
            let plain = register(what)?;
            relaxes.store(false, Ordering::Relaxed);
            tracing::info!("the RDMA device takes no memory with relaxed ordering");
            Ok(plain)
        }
        done => done,
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: this owns the domain; queue pairs and regions in it are gone.
        unsafe { ibv_dealloc_pd(self.raw()) };
    }
}

/// Registered memory; deregistered when dropped.
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

/// The slabs registered on one device, each when one of its buffers is first used.
pub(super) struct Slabs {
    // Dropped before the domain.
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

    /// The key of this slab, of which the caller holds a buffer.
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

    /// Number of registered slabs.
    pub(super) fn count(&self) -> usize {
        reading(&self.known).len()
    }
}

impl SlabWatch for Slabs {
    fn freed(&self, slab: Slab) {
        writing(&self.known).remove(&slab);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Registers memory twice on a device that answers the relaxed right with this error; returns the requested rights and both
    /// results.
    fn rights_asked(relaxes: bool, error: Option<i32>) -> (Vec<u32>, [Option<i32>; 2]) {
        let (relaxes, asked) = (AtomicBool::new(relaxes), RefCell::new(Vec::new()));
        let once = || {
            let done = relaxed_if_taken(&relaxes, 1, |what| {
                asked.borrow_mut().push(what);
                match error.filter(|_| what & RELAXED != 0) {
                    Some(error) => Err(Error::from_raw_os_error(error)),
                    None => Ok(()),
                }
            });
            done.err().and_then(|e| e.raw_os_error())
        };
        let answers = [once(), once()];
        (asked.into_inner(), answers)
    }

    #[test]
    fn relaxed_ordering_is_used_where_taken() {
        let relaxed = RELAXED | 1;
        assert_eq!(relaxed, (1 << 20) | 1);
        assert_eq!(rights_asked(true, None), (vec![relaxed; 2], [None; 2]));
        assert_eq!(rights_asked(false, None), (vec![1; 2], [None; 2]));
        for refusal in [libc::EINVAL, libc::EOPNOTSUPP] {
            assert_eq!(rights_asked(true, Some(refusal)), (vec![relaxed, 1, 1], [None; 2]));
        }
        // Lack of lockable memory does not prove that the right is unsupported.
        let full = Some(libc::ENOMEM);
        assert_eq!(rights_asked(true, full), (vec![relaxed; 2], [full; 2]));
    }
}
