//! Formats of MPA, DDP and RDMAP: parsing and encoding without side effects.

pub mod ddp;
pub mod mpa;
pub mod rdmap;
pub mod terminate;

/// Reads `N` bytes at `at`; zeros if `b` ends early, so that callers cannot index out of bounds.
pub(crate) fn field<const N: usize>(b: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(part) = b.get(at..at + N) {
        out.copy_from_slice(part);
    }
    out
}
