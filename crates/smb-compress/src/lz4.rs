//! LZ4 block format, implemented by the crate `lz4_flex`.

use lz4_flex::block;

use crate::Fault;

/// Compresses `data` into the beginning of `out` and returns the length, or `None` if `out` is too short.
pub(crate) fn compress(data: &[u8], out: &mut [u8]) -> Option<usize> {
    let largest = block::get_maximum_output_size(data.len());
    if out.len() >= largest {
        return block::compress_into(data, out).ok();
    }
    // The encoder requires a buffer for the worst case.
    let mut all = vec![0; largest];
    let len = block::compress_into(data, &mut all).ok()?;
    out.get_mut(..len)?.copy_from_slice(&all[..len]);
    Some(len)
}

/// Decompresses `data`, which must fill `out` exactly.
pub(crate) fn decompress(data: &[u8], out: &mut [u8]) -> Result<(), Fault> {
    if out.is_empty() && data.is_empty() {
        return Ok(());
    }
    let len = block::decompress_into(data, out).map_err(|_| Fault::Block)?;
    if len == out.len() { Ok(()) } else { Err(Fault::TooLittle) }
}
