//! LZNT1 (MS-XCA section 2.5): independent chunks of 4 KiB, compressed or stored.

use crate::Fault;
use crate::matches::{common, copy, half, hash, word};

const CHUNK: usize = 4096;
/// Signature bits of a chunk header.
const SIGNATURE: u16 = 0x3000;
const COMPRESSED: u16 = 0x8000;
const HASH_BITS: u32 = 11;
const MATCH_MIN: usize = 4;

/// Decompresses `data`, which must fill `out` exactly.
pub(crate) fn decompress(data: &[u8], out: &mut [u8]) -> Result<(), Fault> {
    let (mut src, mut dst) = (0, 0);
    while src < data.len() {
        let header = half(data, src).ok_or(Fault::Truncated)?;
        src += 2;
        if header == 0 {
            break;
        }
        if header & 0x7000 != SIGNATURE {
            return Err(Fault::Chunk);
        }
        let len = usize::from(header & 0xFFF) + 1;
        let chunk = data.get(src..src + len).ok_or(Fault::Truncated)?;
        src += len;
        if header & COMPRESSED == 0 {
            out.get_mut(dst..dst + len).ok_or(Fault::TooMuch)?.copy_from_slice(chunk);
            dst += len;
        } else {
            let end = out.len().min(dst + CHUNK);
            dst += expand(chunk, &mut out[dst..end])?;
        }
    }
    if dst == out.len() { Ok(()) } else { Err(Fault::TooLittle) }
}

/// Expands one chunk and returns its length.
fn expand(chunk: &[u8], out: &mut [u8]) -> Result<usize, Fault> {
    let (mut src, mut dst) = (0, 0);
    while src < chunk.len() {
        let mut flags = chunk[src];
        src += 1;
        for _ in 0..8 {
            if src == chunk.len() {
                break;
            }
            if flags & 1 == 0 {
                *out.get_mut(dst).ok_or(Fault::TooMuch)? = chunk[src];
                src += 1;
                dst += 1;
            } else {
                let token = half(chunk, src).ok_or(Fault::Truncated)?;
                src += 2;
                let bits = length_bits(dst);
                let len = usize::from(token & ((1 << bits) - 1)) + 3;
                copy(out, dst, usize::from(token >> bits) + 1, len)?;
                dst += len;
            }
            flags >>= 1;
        }
    }
    Ok(dst)
}

/// Returns the number of length bits in a token: the farther back a match can begin, the fewer they are.
fn length_bits(at: usize) -> u32 {
    let farthest = at.max(1) - 1;
    12 - (usize::BITS - (farthest >> 4).leading_zeros())
}

/// Compresses `data` into the beginning of `out` and returns the length, or `None` if `out` is too short.
pub(crate) fn compress(data: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut table = [0_u16; 1 << HASH_BITS];
    let mut at = 0;
    for chunk in data.chunks(CHUNK) {
        let room = out.get_mut(at..)?;
        let (header, rest) = room.split_first_chunk_mut::<2>()?;
        table.fill(0);
        let shorter = rest.len().min(chunk.len() - 1);
        let (len, flag) = match shrink(chunk, &mut rest[..shorter], &mut table) {
            Some(len) => (len, COMPRESSED),
            None => {
                rest.get_mut(..chunk.len())?.copy_from_slice(chunk);
                (chunk.len(), 0)
            }
        };
        *header = (flag | SIGNATURE | u16::try_from(len - 1).ok()?).to_le_bytes();
        at += 2 + len;
    }
    Some(at)
}

/// Compresses one chunk; fails if the result is not shorter.
fn shrink(chunk: &[u8], out: &mut [u8], table: &mut [u16]) -> Option<usize> {
    let (mut src, mut dst) = (0, 0);
    while src < chunk.len() {
        let flags_at = dst;
        let mut flags = 0;
        dst += 1;
        for bit in 0..8 {
            if src == chunk.len() {
                break;
            }
            if let Some((distance, len)) = find(chunk, src, table) {
                let bits = length_bits(src);
                let token = (distance - 1) << bits | (len - 3);
                out.get_mut(dst..dst + 2)?
                    .copy_from_slice(&u16::try_from(token).ok()?.to_le_bytes());
                flags |= 1 << bit;
                dst += 2;
                src += len;
            } else {
                *out.get_mut(dst)? = chunk[src];
                dst += 1;
                src += 1;
            }
        }
        *out.get_mut(flags_at)? = flags;
    }
    Some(dst)
}

/// Finds an earlier match and returns its distance and length.
fn find(chunk: &[u8], at: usize, table: &mut [u16]) -> Option<(usize, usize)> {
    let here = word(chunk, at)?;
    let slot = &mut table[hash::<HASH_BITS>(here)];
    let before = usize::from(*slot);
    *slot = u16::try_from(at).ok()?;
    if before >= at || word(chunk, before) != Some(here) {
        return None;
    }
    let longest = (1_usize << length_bits(at)) + 2;
    let end = chunk.len().min(at + longest);
    let len =
        MATCH_MIN + common(chunk, before + MATCH_MIN, at + MATCH_MIN, end.max(at + MATCH_MIN));
    Some((at - before, len.min(longest)))
}
