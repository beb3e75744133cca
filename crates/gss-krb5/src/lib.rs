//! Per-message tokens of an established Kerberos context: MIC and Wrap (RFC 4121 section 4.2), with encryption types 17 and 18 (RFC
//! 3962) and 19 and 20 (RFC 8009). Pure: uses no socket, file, clock or KDC. Another library establishes the context; this crate
//! needs only its session key.
//!
//! *Operation.* Start with [`Context`], which has the keys of both directions. A message is a list of byte slices, because bulk
//! data does not follow its header in memory. [`Context::wrap`] encrypts the slices in place in one pass and returns the bytes
//! before and after them; [`Context::unwrap`] verifies and decrypts in place and returns the position of the plaintext.
//!
//! *Memory.* Payload is never copied. Rotated tokens (RRC, RFC 4121 section 4.2.5) are moved in place with at most 64 KiB of extra
//! memory. Keys are stored in the contexts of the cryptographic library, and in [`zeroize::Zeroizing`] before that.
//!
//! *Errors.* [`Failed`], deliberately without a reason: an attacker must not learn which check failed.

#![allow(missing_docs, reason = "comments that only repeat a name are left out")]

mod cause;
mod cts;
mod enctype;
mod password;
mod pieces;
mod tag;
mod ticket;
mod token;

pub use cause::Cause;
pub use enctype::Enctype;
pub use tag::Tag;
pub use ticket::mandatory_types;
pub use token::{Context, Role, Unwrapped, Wrapped};

/// The error for a token that fails verification, an unknown encryption type, or a key of the wrong length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the token does not verify")
    }
}

impl std::error::Error for Failed {}

impl From<aws_lc_rs::error::Unspecified> for Failed {
    fn from(_: aws_lc_rs::error::Unspecified) -> Self {
        Self
    }
}

#[cfg(test)]
pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|d| u8::try_from(d).unwrap()).collect();
    digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect()
}
