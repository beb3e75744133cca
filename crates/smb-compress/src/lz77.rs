//! Plain LZ77 (MS-XCA sections 2.3 and 2.4): words of 32 flags, each followed by 32 literals and matches.

use crate::Fault;
use crate::matches::{common, copy, half, hash, word};

/// Largest match distance.
const WINDOW: usize = 8192;
/// Shortest match that saves space.
const MATCH_MIN: usize = 4;
/// Bytes at the end of the input that are always literals, so that words can be read without a bounds check.
const TAIL: usize = 12;
const HASH_BITS: u32 = 14;
/// Number of misses, as a power of two, after which the search takes larger steps.
const SKIP: usize = 5;
/// Literals copied in one step.
const WIDE: usize = 32;

/// Value of a flag word after all its flags were consumed.
const MARK: u64 = 1 << 63;

/// Decompresses `data`, which must fill `out` exactly.
pub(crate) fn decompress(data: &[u8], out: &mut [u8]) -> Result<(), Fault> {
    let (mut src, mut dst) = (0, 0);
    let mut shared = None;
    let ends = |src| if src == data.len() { Fault::TooLittle } else { Fault::Truncated };
    while dst < out.len() {
        let word = word(data, src).ok_or_else(|| ends(src))?;
        src += 4;
        // Put the mark after the last flag.
        let mut flags = u64::from(word) << 32 | MARK >> 32;
        while dst < out.len() {
            let literals = flags.leading_zeros();
            let n = (literals as usize).min(out.len() - dst);
            copy_literals(data, src, out, dst, n)?;
            src += n;
            dst += n;
            flags <<= literals;
            if flags == MARK || dst == out.len() {
                break;
            }
            let token = half(data, src).ok_or_else(|| ends(src))?;
            src += 2;
            let mut len = usize::from(token & 7);
            if len == 7 {
                len = long(data, &mut src, &mut shared)?;
            }
            len += 3;
            copy(out, dst, usize::from(token >> 3) + 1, len)?;
            dst += len;
            flags <<= 1;
        }
    }
    // An encoder that has filled its last word of flags appends an empty one.
    match data.len() - src {
        0 | 4 => Ok(()),
        _ => Err(Fault::TooMuch),
    }
}

#[inline]
fn copy_literals(
    data: &[u8],
    src: usize,
    out: &mut [u8],
    dst: usize,
    n: usize,
) -> Result<(), Fault> {
    let wide = data.get(src..).and_then(|d| d.first_chunk::<WIDE>());
    let room = out.get_mut(dst..).and_then(|o| o.first_chunk_mut::<WIDE>());
    if let (Some(from), Some(to)) = (wide, room) {
        *to = *from;
        return Ok(());
    }
    let from = data.get(src..src + n).ok_or(Fault::Truncated)?;
    out[dst..dst + n].copy_from_slice(from);
    Ok(())
}

/// Reads a length that is too large for the token. Two such lengths share one byte for their first four bits.
fn long(data: &[u8], src: &mut usize, shared: &mut Option<usize>) -> Result<usize, Fault> {
    let byte = |at: usize| data.get(at).copied().map(usize::from).ok_or(Fault::Truncated);
    let mut len = match shared.take() {
        Some(at) => byte(at)? >> 4,
        None => {
            *shared = Some(*src);
            *src += 1;
            byte(*src - 1)? & 15
        }
    };
    if len == 15 {
        len = byte(*src)?;
        *src += 1;
        if len == 255 {
            len = usize::from(half(data, *src).ok_or(Fault::Truncated)?);
            *src += 2;
            if len == 0 {
                let word = word(data, *src).ok_or(Fault::Truncated)?;
                len = usize::try_from(word).map_err(|_| Fault::Length)?;
                *src += 4;
            }
            len = len.checked_sub(15 + 7).ok_or(Fault::Length)?;
        }
        len += 15;
    }
    Ok(len + 7)
}

/// Compresses `data` into the beginning of `out` and returns the length, or `None` if `out` is too short.
pub(crate) fn compress(data: &[u8], out: &mut [u8]) -> Option<usize> {
    // Positions modulo 2^16: a candidate is compared with the data before it is used.
    let mut table = [0_u16; 1 << HASH_BITS];
    let mut writer = Writer::new(out)?;
    let (mut at, mut anchor) = (1, 0);
    let end = data.len().saturating_sub(TAIL);
    let mut misses = 1 << SKIP;
    while at < end {
        let here = word(data, at)?;
        let slot = &mut table[hash::<HASH_BITS>(here)];
        let low = low_bits(at);
        let distance = usize::from(low.wrapping_sub(*slot));
        *slot = low;
        let found = distance.wrapping_sub(1) < WINDOW
            && distance <= at
            && word(data, at - distance) == Some(here);
        if !found {
            at += misses >> SKIP;
            misses += 1;
            continue;
        }
        misses = 1 << SKIP;
        let len = MATCH_MIN + common(data, at - distance + MATCH_MIN, at + MATCH_MIN, data.len());
        writer.literals_before_match(data, anchor, at)?;
        writer.reference(distance, len)?;
        at += len;
        anchor = at;
        if at < end {
            table[hash::<HASH_BITS>(word(data, at - 1)?)] = low_bits(at - 1);
        }
    }
    writer.literals(&data[anchor..])?;
    writer.finish()
}

#[inline]
fn low_bits(at: usize) -> u16 {
    // Truncation is intended: slots hold only the low 16 bits.
    #[allow(clippy::cast_possible_truncation)]
    let low = at as u16;
    low
}

/// Writes flag words, each before the literals and matches that it describes.
struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
    flags_at: usize,
    flags: u32,
    count: u32,
    /// Index of the byte whose upper four bits are free for the next long length.
    shared: Option<usize>,
}

impl<'a> Writer<'a> {
    fn new(out: &'a mut [u8]) -> Option<Self> {
        (out.len() >= 4).then_some(Self {
            out,
            at: 4,
            flags_at: 0,
            flags: 0,
            count: 0,
            shared: None,
        })
    }

    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) -> Option<()> {
        *self.out.get_mut(self.at..)?.first_chunk_mut::<N>()? = bytes;
        self.at += N;
        Some(())
    }

    #[inline]
    fn flag(&mut self, n: u32) -> Option<()> {
        self.count += n;
        if self.count == 32 {
            self.out[self.flags_at..self.flags_at + 4].copy_from_slice(&self.flags.to_le_bytes());
            (self.flags_at, self.flags, self.count) = (self.at, 0, 0);
            self.put([0; 4])?;
        }
        Some(())
    }

    /// Writes `data[from..to]`. Usually there are few, for which the flags have room: one copy of a fixed size, and no branch that
    /// depends on their number.
    #[inline]
    fn literals_before_match(&mut self, data: &[u8], from: usize, to: usize) -> Option<()> {
        let n = u32::try_from(to - from).ok()?;
        if n < 32 - self.count
            && let Some(wide) = data.get(from..).and_then(|d| d.first_chunk::<WIDE>())
            && let Some(room) =
                self.out.get_mut(self.at..).and_then(|o| o.first_chunk_mut::<WIDE>())
        {
            *room = *wide;
            self.at += to - from;
            self.flags <<= n;
            self.count += n;
            return Some(());
        }
        self.literals(&data[from..to])
    }

    #[inline(never)]
    fn literals(&mut self, mut bytes: &[u8]) -> Option<()> {
        while !bytes.is_empty() {
            let n = bytes.len().min((32 - self.count) as usize);
            let wide = bytes.first_chunk::<WIDE>();
            let room = self.out.get_mut(self.at..)?;
            match (wide, room.first_chunk_mut::<WIDE>()) {
                (Some(from), Some(to)) => *to = *from,
                _ => room.get_mut(..n)?.copy_from_slice(&bytes[..n]),
            }
            self.at += n;
            bytes = &bytes[n..];
            // Cannot fail: `n` is at most 32.
            let n = u32::try_from(n).ok()?;
            self.flags = self.flags.checked_shl(n).unwrap_or(0);
            self.flag(n)?;
        }
        Some(())
    }

    #[inline]
    fn reference(&mut self, distance: usize, len: usize) -> Option<()> {
        let token = u16::try_from((distance - 1) << 3).ok()?;
        let len = len - 3;
        if len < 7 {
            self.put((token | u16::try_from(len).ok()?).to_le_bytes())?;
        } else {
            self.put((token | 7).to_le_bytes())?;
            self.long(len - 7)?;
        }
        self.flags = self.flags << 1 | 1;
        self.flag(1)
    }

    fn long(&mut self, len: usize) -> Option<()> {
        let nibble = u8::try_from(len.min(15)).ok()?;
        match self.shared.take() {
            Some(at) => self.out[at] |= nibble << 4,
            None => {
                self.shared = Some(self.at);
                self.put([nibble])?;
            }
        }
        let Some(len) = len.checked_sub(15) else { return Some(()) };
        match u8::try_from(len) {
            Ok(len) if len < 255 => self.put([len]),
            _ => {
                self.put([255])?;
                let len = len + 15 + 7;
                match u16::try_from(len) {
                    Ok(len) => self.put(len.to_le_bytes()),
                    Err(_) => {
                        self.put([0; 2])?;
                        self.put(u32::try_from(len).ok()?.to_le_bytes())
                    }
                }
            }
        }
    }

    /// Sets the remaining flags to one: a match flag without a token marks the end.
    fn finish(self) -> Option<usize> {
        let free = 32 - self.count;
        let flags = self.flags.checked_shl(free).unwrap_or(0) | u32::MAX >> self.count;
        self.out[self.flags_at..self.flags_at + 4].copy_from_slice(&flags.to_le_bytes());
        Some(self.at)
    }
}
