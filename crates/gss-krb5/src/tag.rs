//! The parts of a token outside of the message: a header, a checksum, or both.

use std::ops::Deref;

use crate::Enctype;
use crate::enctype::TAG_MAX;

/// Length of the header of either token, in bytes (RFC 4121 sections 4.2.6.1 and 4.2.6.2).
pub(crate) const HEADER: usize = 16;

/// Bytes of a token outside of the message: at most a header and a checksum.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    bytes: [u8; HEADER + TAG_MAX],
    len: usize,
}

impl Tag {
    /// Returns the part of a hash that this encryption type uses.
    pub(crate) fn of(enctype: Enctype, hash: &[u8]) -> Self {
        let hash = hash.get(..enctype.tag_len()).unwrap_or(hash);
        Self::joined(&[], hash)
    }

    /// Concatenates both.
    pub(crate) fn joined(first: &[u8], second: &[u8]) -> Self {
        let (mut bytes, mut len) = ([0; HEADER + TAG_MAX], 0);
        for (slot, byte) in bytes.iter_mut().zip(first.iter().chain(second)) {
            *slot = *byte;
            len += 1;
        }
        Self { bytes, len }
    }
}

impl Deref for Tag {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl std::fmt::Debug for Tag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tag({} bytes)", self.len)
    }
}
