//! Counter of CPU copies of payload, for the copy budget: whoever copies payload bytes says so here.

use std::sync::atomic::{AtomicU64, Ordering};

static COPIED: AtomicU64 = AtomicU64::new(0);

/// Copies `src` over `dst` and counts it. Both must have the same length; the shorter one decides otherwise.
pub fn copied(dst: &mut [u8], src: &[u8]) {
    let n = dst.len().min(src.len());
    dst[..n].copy_from_slice(&src[..n]);
    copied_note(n);
}

/// Counts a copy of `n` payload bytes made by other means.
pub fn copied_note(n: usize) {
    COPIED.fetch_add(n as u64, Ordering::Relaxed);
}

/// Payload bytes copied by the CPU since the process began.
pub fn copied_bytes() -> u64 {
    COPIED.load(Ordering::Relaxed)
}
