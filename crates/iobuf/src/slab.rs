//! The units in which pools take memory from the system, for devices that register memory in large pieces.
//!
//! *Operation.* Each slab has the size and alignment of a huge page, and the kernel is advised to back it with one: a device then
//! translates one page instead of 512. *Memory.* Zeroed. *Errors.* If huge pages are disabled or unavailable, small pages are used.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::{Mutex, Weak};

use mutex::locked;

/// Size and alignment of a slab, in bytes.
pub(crate) const SLAB: usize = 2 << 20;

/// One slab of a pool. It exists at a fixed address as long as the pool, which outlives all its buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slab(usize);

fn layout() -> Layout {
    // Invariant: 2 MiB is a power of two and far below isize::MAX.
    #[allow(clippy::unwrap_used)]
    Layout::from_size_align(SLAB, SLAB).unwrap()
}

impl Slab {
    /// Allocates a slab; `None` if the system has no memory.
    pub(crate) fn take() -> Option<NonNull<u8>> {
        // SAFETY: the layout has a non-zero size.
        let base = NonNull::new(unsafe { std::alloc::alloc(layout()) })?;
        // SAFETY: `base` has `SLAB` bytes that no other code has seen yet. The advice changes no content and may be refused.
        // Zeroing follows it, because that is when the pages are allocated, and initialises every byte.
        unsafe {
            libc::madvise(base.as_ptr().cast(), SLAB, libc::MADV_HUGEPAGE);
            base.as_ptr().write_bytes(0, SLAB);
        }
        Some(base)
    }

    /// Returns the slab to the system.
    ///
    /// # Safety
    ///
    /// It came from [`Slab::take`] and is no longer in use.
    pub(crate) unsafe fn give_back(base: NonNull<u8>) {
        // SAFETY: the caller guarantees this; `take` used the same layout.
        unsafe { std::alloc::dealloc(base.as_ptr(), layout()) };
    }

    /// Returns the slab that contains this memory of a pool.
    pub(crate) fn around(memory: NonNull<u8>) -> Self {
        Self(memory.addr().get() & !(SLAB - 1))
    }

    /// Returns the address of the first byte.
    pub fn base(self) -> usize {
        self.0
    }

    /// Size of every slab, in bytes.
    pub const LEN: usize = SLAB;

    /// Notifies all watchers before the memory returns to the system.
    pub(crate) fn tell_freed(self) {
        let watches = locked(&WATCHES).clone();
        watches.iter().filter_map(Weak::upgrade).for_each(|watch| watch.freed(self));
    }
}

/// An object with state for slabs, such as a device that has registered them.
pub trait SlabWatch: Send + Sync {
    /// The slab is about to be freed and its memory is no longer in use; the watcher must release its state for it now.
    fn freed(&self, slab: Slab);
}

static WATCHES: Mutex<Vec<Weak<dyn SlabWatch>>> = Mutex::new(Vec::new());

/// Notifies `watch` of every freed slab for as long as it exists.
pub fn watch_slabs(watch: Weak<dyn SlabWatch>) {
    let mut watches = locked(&WATCHES);
    watches.retain(|w| w.strong_count() > 0);
    watches.push(watch);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{BufMut, Pool, PoolLimits};

    #[derive(Default)]
    struct FreedSlabs(Mutex<Vec<Slab>>);

    impl SlabWatch for FreedSlabs {
        fn freed(&self, slab: Slab) {
            self.0.lock().unwrap().push(slab);
        }
    }

    #[test]
    fn slab_watch_reports_freed_slab() {
        let seen = Arc::new(FreedSlabs::default());
        let as_watch: Arc<dyn SlabWatch> = seen.clone();
        watch_slabs(Arc::downgrade(&as_watch));
        let pool = Pool::new(PoolLimits { buffers_max: [4; 3] });
        let (small, large) = (pool.try_get(1).unwrap(), pool.try_get(1 << 20).unwrap());
        let slab = small.slab().unwrap();
        assert_ne!(Some(slab), large.slab(), "sizes do not share slabs");
        let mut small = small;
        let at = small.whole_mut().as_ptr().addr();
        assert!((slab.base()..slab.base() + Slab::LEN).contains(&at));
        small.set_filled(100);
        let view = small.freeze();
        assert_eq!(view.slice(40..90).slab(), Some(slab));
        drop((pool, large));
        assert!(!seen.0.lock().unwrap().contains(&slab), "a view keeps all of the pool");
        drop(view);
        assert!(seen.0.lock().unwrap().contains(&slab));
    }

    /// Returns the kernel's flags of the mapping that contains this address (`VmFlags` of proc_pid_smaps(5)).
    fn kernel_flags(address: usize) -> Option<String> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_here = false;
        for line in smaps.lines() {
            let first = line.split(' ').next().unwrap();
            if let Some((from, to)) = first.split_once('-') {
                let at = |hex| usize::from_str_radix(hex, 16).unwrap();
                is_here = (at(from)..at(to)).contains(&address);
            }
            if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_here) {
                return Some(flags.to_owned());
            }
        }
        None
    }

    #[test]
    fn huge_pages_are_advised_but_optional() {
        let pool = Pool::new(PoolLimits { buffers_max: [4; 3] });
        let mut buf = pool.try_get(1 << 20).unwrap();
        assert!(buf.whole_mut().iter().all(|b| *b == 0), "it comes zeroed");
        let flags = kernel_flags(buf.slab().unwrap().base()).unwrap();
        let has_huge_pages = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
        assert_eq!(flags.split_whitespace().any(|f| f == "hg"), has_huge_pages, "{flags}");
    }

    #[test]
    fn heap_memory_has_no_slab() {
        assert_eq!(BufMut::heap(8).slab(), None);
        assert_eq!(BufMut::heap(8).freeze().slab(), None);
        assert_eq!(crate::Buf::from(vec![1]).slab(), None);
        assert_eq!(crate::Buf::from_static(b"x").slab(), None);
    }
}
