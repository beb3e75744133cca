//! Encoders for the fields that the parsers read. Each appends to `out`.

use crate::leaf::pad;

/// Appends two bytes, little-endian.
#[inline]
pub fn le_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends four bytes, little-endian.
#[inline]
pub fn le_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends four bytes, big-endian.
#[inline]
pub fn be_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends eight bytes, big-endian.
#[inline]
pub fn be_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends an XDR count or length. The caller ensures the limit of its type; values of 2^32 and above become 2^32 - 1.
#[inline]
pub fn count(out: &mut Vec<u8>, n: usize) {
    be_u32(out, u32::try_from(n).unwrap_or(u32::MAX));
}

/// Appends XDR's `opaque<>` or `string<>` with length and padding.
#[inline]
pub fn opaque(out: &mut Vec<u8>, bytes: &[u8]) {
    count(out, bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(&[0; 3][..pad(bytes.len())]);
}
