//! Hash of bytes (FNV-1a, 64 bits): equal inputs have equal hashes; callers rely on no other property.

/// Returns the hash of these bytes.
pub(crate) fn fnv<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> u64 {
    bytes
        .into_iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}
