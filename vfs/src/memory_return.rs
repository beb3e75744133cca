//! Memory that was freed in small pieces, returned to the host.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Freed bytes from which on a return is worth its time.
const LARGE: usize = 4 << 20;

static FREED: AtomicUsize = AtomicUsize::new(0);
static RETURNS: AtomicBool = AtomicBool::new(false);

/// Notes that so many bytes were freed. Now and then a thread returns what the allocator keeps of them.
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
