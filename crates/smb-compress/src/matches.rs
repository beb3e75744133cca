//! Finds, measures and copies matches, for all codecs.

use crate::Fault;

/// Bytes that a short copy moves in one step.
pub(crate) const WIDE: usize = 16;

/// Appends `len` bytes that begin `distance` bytes before `at`. The source may overlap the bytes being appended.
#[inline]
pub(crate) fn copy(out: &mut [u8], at: usize, distance: usize, len: usize) -> Result<(), Fault> {
    let from = at.checked_sub(distance).ok_or(Fault::Distance)?;
    let room = out.len() - at;
    if len > room {
        return Err(Fault::TooMuch);
    }
    // May write past the match; the next literal or match overwrites those bytes.
    if distance >= WIDE && len <= 2 * WIDE && room >= 2 * WIDE {
        copy_wide(out, from, at);
        if len > WIDE {
            copy_wide(out, from + WIDE, at + WIDE);
        }
    } else if distance < WIDE && len <= REPEATED && room >= 2 * WIDE {
        repeat(&mut out[from..at + 2 * WIDE], distance);
    } else if distance >= len {
        out.copy_within(from..from + len, at);
    } else {
        copy_overlapping(out, from, at, len);
    }
    Ok(())
}

#[inline]
fn copy_wide(out: &mut [u8], from: usize, at: usize) {
    if let Some(chunk) = out.get(from..).and_then(|o| o.first_chunk::<WIDE>()).copied()
        && let Some(to) = out.get_mut(at..).and_then(|o| o.first_chunk_mut::<WIDE>())
    {
        *to = chunk;
    }
}

/// Bytes that [`repeat`] writes at least.
const REPEATED: usize = 9 + WIDE;

/// Repeats the first `distance` bytes, fewer than [`WIDE`], so that at least [`REPEATED`] bytes follow them.
#[inline]
fn repeat(both: &mut [u8], distance: usize) {
    let Repeat { mask, factor, step } = REPEATS[distance % WIDE];
    let Some(first) = both.first_chunk::<WIDE>() else { return };
    let bytes = (u128::from_le_bytes(*first) & mask).wrapping_mul(factor).to_le_bytes();
    for at in [distance, distance + step] {
        if let Some(to) = both.get_mut(at..).and_then(|o| o.first_chunk_mut()) {
            *to = bytes;
        }
    }
}

#[derive(Clone, Copy)]
struct Repeat {
    /// Selects the bytes that are repeated.
    mask: u128,
    /// Repeats them in all 16 bytes.
    factor: u128,
    /// Bytes of all whole repetitions in 16 bytes: nine or more.
    step: usize,
}

/// Lists how to repeat as many bytes as the index says.
const REPEATS: [Repeat; WIDE] = {
    let mut rows = [Repeat { mask: 0, factor: 0, step: 0 }; WIDE];
    let mut distance = 1;
    while distance < WIDE {
        let row = &mut rows[distance];
        row.mask = (1 << (8 * distance)) - 1;
        row.step = WIDE - WIDE % distance;
        let mut shift = 0;
        while shift < 128 {
            row.factor |= 1 << shift;
            shift += 8 * distance;
        }
        distance += 1;
    }
    rows
};

/// Repeats the bytes between `from` and `at`. Each copy doubles the data available to the next one.
#[inline(never)]
fn copy_overlapping(out: &mut [u8], from: usize, at: usize, len: usize) {
    if at - from == 1 {
        let byte = out[from];
        out[at..at + len].fill(byte);
        return;
    }
    let mut done = 0;
    while done < len {
        let n = (at - from + done).min(len - done);
        out.copy_within(from..from + n, at + done);
        done += n;
    }
}

/// Reads four bytes at `at`.
#[inline]
pub(crate) fn word(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?.first_chunk::<4>().map(|b| u32::from_le_bytes(*b))
}

/// Reads two bytes at `at`.
#[inline]
pub(crate) fn half(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?.first_chunk::<2>().map(|b| u16::from_le_bytes(*b))
}

/// Returns the number of equal bytes at `first` and at the later `second`, stopping at `end`.
#[inline]
pub(crate) fn common(data: &[u8], first: usize, second: usize, end: usize) -> usize {
    let chunk = |at: usize| data[..end].get(at..).and_then(|d| d.first_chunk::<16>());
    match (chunk(first), chunk(second)) {
        (Some(a), Some(b)) => {
            // Nearly all matches end here: a loop over smaller steps would end at an unpredictable one.
            let differs = u128::from_le_bytes(*a) ^ u128::from_le_bytes(*b);
            if differs != 0 {
                return (differs.trailing_zeros() / 8) as usize;
            }
            16 + common_further(data, first + 16, second + 16, end)
        }
        _ => common_further(data, first, second, end),
    }
}

/// Does the same for matches that are longer than most.
#[inline(never)]
pub(crate) fn common_further(data: &[u8], first: usize, second: usize, end: usize) -> usize {
    let later = &data[second..end];
    let earlier = &data[first..first + later.len()];
    let mut n = 0;
    let (a, _) = earlier.as_chunks::<8>();
    let (b, _) = later.as_chunks::<8>();
    for (a, b) in a.iter().zip(b) {
        let differs = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differs != 0 {
            return n + (differs.trailing_zeros() / 8) as usize;
        }
        n += 8;
    }
    n + earlier[n..].iter().zip(&later[n..]).take_while(|(a, b)| a == b).count()
}

/// Returns the bits that differ in the first and in the last eight bytes. They are two numbers because the compiler would use
/// vector registers for one, and the way back from these takes longer.
#[inline]
pub(crate) fn differing(one: &[u8; WIDE], other: &[u8; WIDE]) -> [u64; 2] {
    let ([a, b], [c, d]) = (halves(one), halves(other));
    [a ^ c, b ^ d]
}

#[inline]
fn halves(bytes: &[u8; WIDE]) -> [u64; 2] {
    let (halves, _) = bytes.as_chunks::<8>();
    [u64::from_le_bytes(halves[0]), u64::from_le_bytes(halves[1])]
}

/// Hashes four bytes to `BITS` bits.
#[inline]
pub(crate) fn hash<const BITS: u32>(word: u32) -> usize {
    (word.wrapping_mul(0x9E37_79B1) >> (32 - BITS)) as usize
}
