//! Returns freed memory to the host that was allocated in small pieces.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Number of freed bytes that makes a return worthwhile.
const LARGE: usize = 4 << 20;

static FREED: AtomicUsize = AtomicUsize::new(0);
static RETURNS: AtomicBool = AtomicBool::new(false);

/// Notes that this many bytes were freed. A thread returns from time to time the memory that the allocator holds free.
pub(crate) fn note_freed(bytes: usize) {
    if FREED.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) < LARGE
        || RETURNS.swap(true, Ordering::AcqRel)
    {
        return;
    }
    FREED.store(0, Ordering::Relaxed);
    let started = std::thread::Builder::new().name("memory-return".into()).spawn(|| {
        trim();
        RETURNS.store(false, Ordering::Release);
    });
    if started.is_err() {
        RETURNS.store(false, Ordering::Release);
    }
}

fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes a number, and releases only pages that the allocator holds free.
    unsafe {
        libc::malloc_trim(0);
    }
}
