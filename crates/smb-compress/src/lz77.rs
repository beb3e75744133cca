//! Plain LZ77 (MS-XCA sections 2.3 and 2.4): words of 32 flags, each followed by 32 literals and matches.

use std::hint::select_unpredictable;

use crate::Fault;
use crate::matches::{WIDE, common_further, copy, differing, half, hash, word};

/// Largest match distance, as a power of two.
const WINDOW_BITS: u32 = 13;
/// Length field of a token whose length follows it.
const MORE: u32 = 7;
/// Length of a match whose length follows the four bits after the token.
const LONGER: usize = 3 + 7 + 15;

/// Mark beyond the 32 flags of a word.
const MARK: u64 = 1 << 32;

/// Literals copied in one step at most: all of a word.
const LITERALS: usize = 32;
/// Bytes of a match that one step of the fast decoder copies, in two halves.
const SHORT: usize = 2 * WIDE;
/// Bytes that one step of the fast decoder may read: literals, a token and a part of a length.
const INPUT: usize = LITERALS + 4;
/// Bytes that one step of the fast decoder may write.
const OUTPUT: usize = LITERALS + SHORT;

/// Decompresses `data`, which must fill `out` exactly.
pub(crate) fn decompress(data: &[u8], out: &mut [u8]) -> Result<(), Fault> {
    let mut decoder = Decoder { data, out, dst: 0, flags: 1, fresh: 1, shared: 0 };
    decoder.bulk()?;
    decoder.rest()?;
    // An encoder that has filled its last word of flags appends an empty one.
    match decoder.data.len() {
        0 | 4 => Ok(()),
        _ => Err(Fault::TooMuch),
    }
}

struct Decoder<'a> {
    /// Holds the rest of the stream.
    data: &'a [u8],
    out: &'a mut [u8],
    dst: usize,
    /// Flags that are left, the next in bit 0, and above them a mark.
    flags: u64,
    /// Zero if the next long length begins with the four bits in `shared`, else one.
    fresh: u32,
    shared: u32,
}

impl<'a> Decoder<'a> {
    /// Decodes while input and output have room for a step of any kind. Such a step copies more than it needs, and has no branch
    /// that depends on a length below [`LONGER`], because those are mispredicted in text.
    #[inline(never)]
    fn bulk(&mut self) -> Result<(), Fault> {
        let Self { mut data, ref mut out, mut dst, mut flags, mut fresh, mut shared } = *self;
        while let Some(input) = data.first_chunk::<INPUT>()
            && let Some(room) = out.get_mut(dst..).and_then(|o| o.first_chunk_mut::<OUTPUT>())
        {
            let n = low_word(flags).trailing_zeros() as usize;
            let Some(head) = word(input, n) else { break };
            room[..WIDE].copy_from_slice(&input[..WIDE]);
            if n > WIDE {
                room[WIDE..LITERALS].copy_from_slice(&input[WIDE..LITERALS]);
            }
            dst += n;
            flags >>= n;
            if flags == 1 {
                data = &data[n + 4..];
                flags = u64::from(head.reverse_bits()) | MARK;
                continue;
            }
            flags >>= 1;
            let field = head & MORE;
            let is_long = (field + 1) >> 3;
            let distance = (head >> 3 & 0x1FFF) as usize + 1;
            let byte = select_unpredictable(fresh != 0, head >> 16, shared);
            let more = byte & (15 * is_long);
            data = &data[n + 2 + (is_long & fresh) as usize..];
            shared = select_unpredictable(is_long != 0, byte >> 4, shared);
            fresh ^= is_long;
            let len = (field + more) as usize + 3;
            if distance < WIDE || len == LONGER {
                (data, dst) = copy_rare(data, out, dst, distance, len)?;
                continue;
            }
            // Beyond the output if the match begins before it.
            let from = dst.wrapping_sub(distance);
            let both = out.get_mut(from..).and_then(|o| o.get_mut(..distance + SHORT));
            let both = both.ok_or(Fault::Distance)?;
            for at in [0, WIDE] {
                let Some(half) = both[at..].first_chunk::<WIDE>().copied() else { break };
                both[distance + at..][..WIDE].copy_from_slice(&half);
            }
            dst += len;
        }
        (self.data, self.dst, self.flags) = (data, dst, flags);
        (self.fresh, self.shared) = (fresh, shared);
        Ok(())
    }

    /// Decodes what is left, and checks each access.
    #[inline(never)]
    fn rest(&mut self) -> Result<(), Fault> {
        while self.dst < self.out.len() {
            if self.flags == 1 {
                let word = self.take(word)?;
                self.flags = u64::from(word.reverse_bits()) | MARK;
            }
            let is_match = self.flags & 1 == 1;
            self.flags >>= 1;
            if is_match {
                let token = self.take(half)?;
                let mut len = u32::from(token) & MORE;
                if len == MORE {
                    len += self.four_bits()?;
                }
                let (distance, len) = (usize::from(token >> 3) + 1, len as usize + 3);
                (self.data, self.dst) = copy_rare(self.data, self.out, self.dst, distance, len)?;
            } else {
                let (literal, data) = self.data.split_first().ok_or(Fault::Truncated)?;
                self.out[self.dst] = *literal;
                self.data = data;
                self.dst += 1;
            }
        }
        Ok(())
    }

    /// Takes a number. A stream may end before it, but not within.
    fn take<T>(&mut self, read: fn(&[u8], usize) -> Option<T>) -> Result<T, Fault> {
        let fault = if self.data.is_empty() { Fault::TooLittle } else { Fault::Truncated };
        let number = read(self.data, 0).ok_or(fault)?;
        self.data = &self.data[size_of::<T>()..];
        Ok(number)
    }

    /// Takes the first four bits of a long length. Two such lengths share one byte.
    fn four_bits(&mut self) -> Result<u32, Fault> {
        let mut byte = self.shared;
        if self.fresh != 0 {
            let (first, data) = self.data.split_first().ok_or(Fault::Truncated)?;
            (byte, self.data) = (u32::from(*first), data);
        }
        self.fresh ^= 1;
        self.shared = byte >> 4;
        Ok(byte & 15)
    }
}

/// Appends a match of any length from any distance. Returns the rest of the stream and the end of the match.
#[inline(never)]
fn copy_rare<'a>(
    data: &'a [u8],
    out: &mut [u8],
    dst: usize,
    distance: usize,
    len: usize,
) -> Result<(&'a [u8], usize), Fault> {
    let (len, data) = if len < LONGER { (len, data) } else { longer(data)? };
    copy(out, dst, distance, len)?;
    Ok((data, dst + len))
}

/// Takes the bytes of a length of at least [`LONGER`]. Returns it and the rest of the stream.
fn longer(data: &[u8]) -> Result<(usize, &[u8]), Fault> {
    let (byte, data) = data.split_first().ok_or(Fault::Truncated)?;
    if *byte < 255 {
        return Ok((usize::from(*byte) + LONGER, data));
    }
    let mut len = usize::from(half(data, 0).ok_or(Fault::Truncated)?);
    let mut data = &data[2..];
    if len == 0 {
        let word = word(data, 0).ok_or(Fault::Truncated)?;
        len = usize::try_from(word).map_err(|_| Fault::Length)?;
        data = &data[4..];
    }
    // The number does not count the three bytes that each match has.
    if len < LONGER - 3 {
        return Err(Fault::Length);
    }
    Ok((len.checked_add(3).ok_or(Fault::Length)?, data))
}

const HASH_BITS: u32 = 14;
/// Bits of the shortest match that the encoder uses.
const MATCH_BITS: u32 = 32;
/// Bits by which a match must be longer than the one that begins a byte before it.
const BETTER_BITS: u32 = 16;
/// Bytes after the current one that the search reads.
const AHEAD: usize = WIDE;
/// Number of bytes without a match, as a power of two, after which the search takes larger steps.
const SKIP: usize = 6;

/// Compresses `data` into the beginning of `out` and returns the length, or `None` if `out` is too short.
///
/// Looks for a match at two bytes at once, since waiting for the first result takes longer than the second search, and takes the
/// second match if it is longer. Branches on the results, because selecting one would make the next search wait for both.
pub(crate) fn compress(data: &[u8], out: &mut [u8]) -> Option<usize> {
    // Positions modulo 2^16: a candidate is compared with the data before it is used.
    let mut table = [0_u16; 1 << HASH_BITS];
    let mut writer = Writer::new(out)?;
    let (mut at, mut anchor) = (1, 0);
    while let Some(past) = data.get(..at + 1 + AHEAD)
        && let Some(here) = past.last_chunk::<{ AHEAD + 2 }>()
    {
        let slots = [0, 1, 2].map(|n| word(here, n).map_or(0, hash::<HASH_BITS>));
        let first_distance = usize::from(low_half(at).wrapping_sub(table[slots[1]]));
        table[slots[1]] = low_half(at);
        let second_distance = usize::from(low_half(at + 1).wrapping_sub(table[slots[2]]));
        table[slots[0]] = low_half(at - 1);
        table[slots[2]] = low_half(at + 1);
        let first_bits = equal_bits::<1>(past, first_distance);
        let second_bits = equal_bits::<0>(past, second_distance);
        let (mut bits, mut distance) = (first_bits, first_distance);
        if first_bits >= MATCH_BITS {
            if second_bits >= first_bits + BETTER_BITS {
                (bits, distance) = (second_bits, second_distance);
                at += 1;
            }
        } else if second_bits >= MATCH_BITS {
            (bits, distance) = (second_bits, second_distance);
            at += 1;
        } else {
            at += 2 + ((at - anchor) >> SKIP);
            continue;
        }
        let mut len = (bits / 8) as usize;
        if len == AHEAD {
            len += common_further(data, at - distance + AHEAD, at + AHEAD, data.len());
        }
        writer.sequence(data, anchor, at, distance, len)?;
        at += len;
        anchor = at;
    }
    writer.literals(&data[anchor..])?;
    writer.finish()
}

/// Counts the equal bits from the byte that is [`AHEAD`] and `AFTER` bytes before the end of `past`, and from the byte `distance`
/// bytes before it: at most eight times [`AHEAD`]. Returns less than [`MATCH_BITS`] if the distance is zero or too large.
#[inline]
fn equal_bits<const AFTER: usize>(past: &[u8], distance: usize) -> u32 {
    let Some(from) = past.len().checked_sub(AHEAD + AFTER + distance) else { return 0 };
    let Some(candidate) = past[from..].first_chunk::<AHEAD>() else { return 0 };
    let Some(here) = past[from + distance..].first_chunk::<AHEAD>() else { return 0 };
    let [low, high] = differing(candidate, here);
    let low = low | (distance.wrapping_sub(1) >> WINDOW_BITS) as u64;
    select_unpredictable(low == 0, 64 + high.trailing_zeros(), (low | 1 << 63).trailing_zeros())
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "only the low bits are wanted")]
fn low_half(number: usize) -> u16 {
    number as u16
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "only the low bits are wanted")]
fn low_word(flags: u64) -> u32 {
    flags as u32
}

/// Writes flag words, each before the literals and matches that it describes.
struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
    flags_at: usize,
    /// A mark, and below it the flags of the current word, the last in bit 0.
    flags: u64,
    /// Index of the byte whose upper four bits are free for the next long length, or zero.
    shared_at: usize,
}

impl<'a> Writer<'a> {
    fn new(out: &'a mut [u8]) -> Option<Self> {
        (out.len() >= 4).then_some(Self { out, at: 4, flags_at: 0, flags: 1, shared_at: 0 })
    }

    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) -> Option<()> {
        *self.out.get_mut(self.at..)?.first_chunk_mut::<N>()? = bytes;
        self.at += N;
        Some(())
    }

    /// Returns how many flags the current word has room for: at least one.
    #[inline]
    fn free(&self) -> u32 {
        self.flags.leading_zeros() - 31
    }

    /// Begins another word if the current one is full.
    #[inline]
    fn turn(&mut self) -> Option<()> {
        if self.flags >= MARK {
            let word = low_word(self.flags).to_le_bytes();
            self.out[self.flags_at..self.flags_at + 4].copy_from_slice(&word);
            (self.flags_at, self.flags) = (self.at, 1);
            self.put([0; 4])?;
        }
        Some(())
    }

    /// Writes `data[from..to]` and a match. Usually both are short, and the word has room for their flags: then there is one copy
    /// of a fixed size, and no branch that depends on a length.
    #[inline]
    fn sequence(
        &mut self,
        data: &[u8],
        from: usize,
        to: usize,
        distance: usize,
        len: usize,
    ) -> Option<()> {
        let n = to - from;
        let flags = self.flags << (n & 31) << 1 | 1;
        if n <= WIDE
            && flags < MARK
            && len < LONGER
            && let Some(wide) = data.get(from..).and_then(|d| d.first_chunk::<WIDE>())
            && let Some(room) =
                self.out.get_mut(self.at..).and_then(|o| o.first_chunk_mut::<{ WIDE + 4 }>())
        {
            self.flags = flags;
            room[..WIDE].copy_from_slice(wide);
            let len = len - 3;
            let is_long = len >= 7;
            let [low, high] =
                low_half((distance - 1) << 3 | select_unpredictable(is_long, 7, len)).to_le_bytes();
            let [more, _] =
                low_half(select_unpredictable(is_long, len.wrapping_sub(7), 0)).to_le_bytes();
            room[n..n + 4].copy_from_slice(&[low, high, more, 0]);
            let is_fresh = self.shared_at == 0;
            *self.out.get_mut(self.shared_at)? |= select_unpredictable(is_fresh, 0, more) << 4;
            let shared_at = select_unpredictable(is_fresh, self.at + n + 2, 0);
            self.shared_at = select_unpredictable(is_long, shared_at, self.shared_at);
            self.at += n + 2 + usize::from(is_long & is_fresh);
            return Some(());
        }
        self.literals(&data[from..to])?;
        self.reference(distance, len)
    }

    #[inline(never)]
    fn literals(&mut self, mut bytes: &[u8]) -> Option<()> {
        while !bytes.is_empty() {
            let n = bytes.len().min(self.free() as usize);
            let wide = bytes.first_chunk::<LITERALS>();
            let room = self.out.get_mut(self.at..)?;
            match (wide, room.first_chunk_mut::<LITERALS>()) {
                (Some(from), Some(to)) => *to = *from,
                _ => room.get_mut(..n)?.copy_from_slice(&bytes[..n]),
            }
            self.at += n;
            bytes = &bytes[n..];
            self.flags <<= n;
            self.turn()?;
        }
        Some(())
    }

    #[inline(never)]
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
        self.turn()
    }

    fn long(&mut self, len: usize) -> Option<()> {
        let nibble = u8::try_from(len.min(15)).ok()?;
        if self.shared_at == 0 {
            self.shared_at = self.at;
            self.put([nibble])?;
        } else {
            self.out[self.shared_at] |= nibble << 4;
            self.shared_at = 0;
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
        let free = self.free();
        let flags = low_word(self.flags << free) | u32::MAX >> (32 - free);
        self.out[self.flags_at..self.flags_at + 4].copy_from_slice(&flags.to_le_bytes());
        Some(self.at)
    }
}
