//! Writers of the fields that the parsers read. All append.

use crate::leaf::pad;

/// Two bytes, the lowest first.
#[inline]
pub fn le_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Four bytes, the lowest first.
#[inline]
pub fn le_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Four bytes, the highest first.
#[inline]
pub fn be_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Eight bytes, the highest first.
#[inline]
pub fn be_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// A count or length of XDR. The caller keeps it below the limit of its type; 2^32 and above become 2^32 - 1.
#[inline]
pub fn count(out: &mut Vec<u8>, n: usize) {
    be_u32(out, u32::try_from(n).unwrap_or(u32::MAX));
}

/// XDR's `opaque<>` and `string<>`, with their length and padding.
#[inline]
pub fn opaque(out: &mut Vec<u8>, bytes: &[u8]) {
    count(out, bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(&[0; 3][..pad(bytes.len())]);
}
