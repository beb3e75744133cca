//! Signing and encryption of messages (MS-SMB2 sections 3.1.4 and 3.1.5), pure.
//!
//! *Operation.* [`preauth`] chains the hash of a negotiation, [`kdf`] derives the keys of a session from it, [`sign`] computes and
//! verifies signatures, [`seal`] encrypts and decrypts. Messages are passed in pieces, because bulk data does not follow its header
//! in memory; pieces are never joined, and encryption is the only copy.
//!
//! *Memory.* Keys are stored in the contexts of the cryptographic library, which wipes them when they are freed, and in
//! [`zeroize::Zeroizing`] before that.
//!
//! *Errors.* [`Failed`], deliberately without a reason.

#![allow(missing_docs, reason = "comments that only repeat a name are left out")]

pub mod kdf;
pub mod preauth;
pub mod seal;
pub mod sign;

mod evp;

use std::sync::atomic::{AtomicU64, Ordering};

static TOUCHED: AtomicU64 = AtomicU64::new(0);

/// Returns the number of bytes signed, verified, encrypted or decrypted since the process began, including message headers.
pub fn touched_bytes() -> u64 {
    TOUCHED.load(Ordering::Relaxed)
}

/// Counts a pass over `n` bytes.
fn touched(n: usize) {
    TOUCHED.fetch_add(n as u64, Ordering::Relaxed);
}

/// The error for a wrong signature or seal, a key of the wrong length, or a message without a complete header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

#[cfg(test)]
pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|d| u8::try_from(d).unwrap()).collect();
    digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect()
}
