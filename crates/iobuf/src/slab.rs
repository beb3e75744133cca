//! The pieces in which pools take memory from the system, for those who register memory with a device as a whole.
//!
//! *Operation.* Each is as large as a huge page and aligned to it, and the kernel is asked to back it with one: a device then has
//! one page to translate instead of 512. *Memory.* Zeroed. *Errors.* Where huge pages are forbidden, or there are none, small
//! ones serve.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::{Mutex, Weak};

use mutex::locked;

/// Slabs are this large and aligned to it.
pub(crate) const SLAB: usize = 2 << 20;

/// One slab of a pool: it stays where it is until the pool goes, which no buffer of it outlives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slab(usize);

fn layout() -> Layout {
    // Invariant: 2 MiB is a power of two and far below isize::MAX.
    #[allow(clippy::unwrap_used)]
    Layout::from_size_align(SLAB, SLAB).unwrap()
}

impl Slab {
    /// Memory of a new one; `None` where the system has none.
    pub(crate) fn take() -> Option<NonNull<u8>> {
        // SAFETY: the layout has a non-zero size.
        let base = NonNull::new(unsafe { std::alloc::alloc(layout()) })?;
        // SAFETY: `base` has `SLAB` bytes, which nobody else has seen yet. The advice changes no content and may be refused.
        // Zeroed after it, which is when the pages come, so that every byte of a slice is initialised.
        unsafe {
            libc::madvise(base.as_ptr().cast(), SLAB, libc::MADV_HUGEPAGE);
            base.as_ptr().write_bytes(0, SLAB);
        }
        Some(base)
    }

    /// Gives it back to the system.
    ///
    /// # Safety
    ///
    /// It came from [`Slab::take`], and nobody uses it any more.
    pub(crate) unsafe fn give_back(base: NonNull<u8>) {
        // SAFETY: as the caller says; `take` used the same layout.
        unsafe { std::alloc::dealloc(base.as_ptr(), layout()) };
    }

    /// The slab that this memory of a pool lies in.
    pub(crate) fn around(memory: NonNull<u8>) -> Self {
        Self(memory.addr().get() & !(SLAB - 1))
    }

    /// Its first byte, as an address.
    pub fn base(self) -> usize {
        self.0
    }

    /// Its size in bytes, the same for all.
    pub const LEN: usize = SLAB;

    /// Tells all who watch, before the memory goes back to the system.
    pub(crate) fn tell_freed(self) {
        let watches = locked(&WATCHES).clone();
        watches.iter().filter_map(Weak::upgrade).for_each(|watch| watch.freed(self));
    }
}

/// Somebody who keeps something for slabs, such as a device that has registered them.
pub trait SlabWatch: Send + Sync {
    /// The slab is about to go: nobody uses its memory any more, and what was kept for it has to be given up now.
    fn freed(&self, slab: Slab);
}

static WATCHES: Mutex<Vec<Weak<dyn SlabWatch>>> = Mutex::new(Vec::new());

/// From now on `watch` is told of every slab that goes, for as long as it lives.
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
    struct Seen(Mutex<Vec<Slab>>);

    impl SlabWatch for Seen {
        fn freed(&self, slab: Slab) {
            self.0.lock().unwrap().push(slab);
        }
    }

    #[test]
    fn buffers_know_their_slab_and_its_end_is_told() {
        let seen = Arc::new(Seen::default());
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

    /// The kernel's flags of the mapping that holds this address (`VmFlags` of proc_pid_smaps(5)).
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
    fn the_kernel_is_asked_for_huge_pages_and_does_without() {
        let pool = Pool::new(PoolLimits { buffers_max: [4; 3] });
        let mut buf = pool.try_get(1 << 20).unwrap();
        assert!(buf.whole_mut().iter().all(|b| *b == 0), "it comes zeroed");
        let flags = kernel_flags(buf.slab().unwrap().base()).unwrap();
        let has_huge_pages = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
        assert_eq!(flags.split_whitespace().any(|f| f == "hg"), has_huge_pages, "{flags}");
    }

    #[test]
    fn memory_outside_pools_has_none() {
        assert_eq!(BufMut::heap(8).slab(), None);
        assert_eq!(BufMut::heap(8).freeze().slab(), None);
        assert_eq!(crate::Buf::from(vec![1]).slab(), None);
        assert_eq!(crate::Buf::from_static(b"x").slab(), None);
    }
}
