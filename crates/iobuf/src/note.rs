//! Counts CPU copies of payload, for the copy budget. All code that copies payload must report here.

use std::sync::atomic::{AtomicU64, Ordering};

static COPIED: AtomicU64 = AtomicU64::new(0);

/// Copies `src` to `dst` and counts it. Both should have the same length; otherwise the shorter length applies.
pub fn copied(dst: &mut [u8], src: &[u8]) {
    let n = dst.len().min(src.len());
    dst[..n].copy_from_slice(&src[..n]);
    copied_note(n);
}

/// Counts a copy of `n` payload bytes made by other means.
pub fn copied_note(n: usize) {
    COPIED.fetch_add(n as u64, Ordering::Relaxed);
}

/// Returns the number of payload bytes that the CPU copied since the process began.
pub fn copied_bytes() -> u64 {
    COPIED.load(Ordering::Relaxed)
}
