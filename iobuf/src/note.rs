//! Counters of what the CPU does to payload, for its budget: whoever copies, signs or encrypts payload bytes says so here.

use std::sync::atomic::{AtomicU64, Ordering};

static COPIED: AtomicU64 = AtomicU64::new(0);
static TOUCHED: AtomicU64 = AtomicU64::new(0);

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

/// Counts a pass over `n` bytes that signs, verifies, encrypts or decrypts them.
pub fn touched_note(n: usize) {
    TOUCHED.fetch_add(n as u64, Ordering::Relaxed);
}

/// Bytes that were signed, verified, encrypted or decrypted since the process began; of a message its headers too.
pub fn touched_bytes() -> u64 {
    TOUCHED.load(Ordering::Relaxed)
}
