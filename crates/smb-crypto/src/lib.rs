//! Integrity and secrecy of messages (MS-SMB2 sections 3.1.4 and 3.1.5), pure.
//!
//! *Operation.* [`preauth`] chains the hash of a negotiation, [`kdf`] makes the keys of a session out of it, [`sign`] computes and
//! compares signatures, [`seal`] encrypts and decrypts. Messages come as pieces, because bulk data never stands behind its
//! header in memory; nothing is joined, and the only copy is the one that encrypting is.
//!
//! *Memory.* Keys live in the contexts of the cryptographic library, which wipes them when they are freed, and in
//! [`zeroize::Zeroizing`] on the way there.
//!
//! *Errors.* [`Failed`], which says nothing more on purpose.

pub mod kdf;
pub mod preauth;
pub mod seal;
pub mod sign;

mod evp;

use std::sync::atomic::{AtomicU64, Ordering};

static TOUCHED: AtomicU64 = AtomicU64::new(0);

/// Bytes that were signed, verified, encrypted or decrypted since the process began; of a message its headers too.
pub fn touched_bytes() -> u64 {
    TOUCHED.load(Ordering::Relaxed)
}

/// Counts a pass over `n` bytes.
fn touched(n: usize) {
    TOUCHED.fetch_add(n as u64, Ordering::Relaxed);
}

/// A signature or seal that does not fit, a key of the wrong length, or a message too short to have a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

#[cfg(test)]
pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|d| u8::try_from(d).unwrap()).collect();
    digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect()
}
