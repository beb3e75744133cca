//! LZ77+Huffman (MS-XCA sections 2.1 and 2.2): blocks of 64 KiB, each preceded by the code lengths of its symbols.

use crate::Fault;
use crate::bits::{Reader, Writer};
use crate::huffman_code::{Decoder, Encoder, SYMBOLS, TABLE_LEN};
use crate::matches::{common, copy, hash, word};

const BLOCK: usize = 65_536;
const DISTANCE_MAX: usize = 65_535;
const MATCH_MIN: usize = 4;
const HASH_BITS: u32 = 14;
const SKIP: usize = 5;
/// End-of-stream symbol, which follows the last one.
const END: usize = 256;

/// Decompresses `data`, which must fill `out` exactly. Ignores trailing bytes that are too few for another block, because encoders
/// end a stream in several ways.
pub(crate) fn decompress(data: &[u8], out: &mut [u8]) -> Result<(), Fault> {
    let mut decoder = Decoder::new();
    let (mut src, mut dst) = (0, 0);
    while dst < out.len() {
        let Some(table) = data.get(src..).and_then(|d| d.first_chunk::<TABLE_LEN>()) else {
            return Err(if src == data.len() { Fault::TooLittle } else { Fault::Truncated });
        };
        decoder.learn(table)?;
        let mut bits = Reader::new(data, src + TABLE_LEN);
        let end = dst + BLOCK;
        while dst < end.min(out.len()) {
            let symbol = decoder.symbol(&mut bits)?;
            if let Ok(literal) = u8::try_from(symbol) {
                out[dst] = literal;
                dst += 1;
                continue;
            }
            let token = symbol - END;
            let mut len = token & 15;
            if len == 15 {
                len = long(&mut bits)?;
            }
            let high = token >> 4;
            let distance = (1 << high) + bits.take(high)?;
            copy(out, dst, distance, len + 3)?;
            dst += len + 3;
        }
        src = bits.at;
    }
    // Allow for the end symbol, and for a last block that contains only the end symbol.
    if data.len() - src > TABLE_LEN + 8 { Err(Fault::TooMuch) } else { Ok(()) }
}

/// Reads a length that is too large for the symbol.
fn long(bits: &mut Reader<'_>) -> Result<usize, Fault> {
    let mut len = bits.byte()?;
    if len == 255 {
        len = bits.byte()? | bits.byte()? << 8;
        if len == 0 {
            for shift in [0, 8, 16, 24] {
                len |= bits.byte()? << shift;
            }
        }
        len = len.checked_sub(15).ok_or(Fault::Length)?;
    }
    Ok(len + 15)
}

/// A literal if the distance is zero, else a match.
#[derive(Clone, Copy)]
struct Token {
    distance: u16,
    /// The literal, or the match length minus three.
    value: u16,
}

impl Token {
    fn symbol(self) -> usize {
        let value = usize::from(self.value);
        match self.distance.checked_ilog2() {
            None => value,
            Some(high) => END + (high as usize) * 16 + value.min(15),
        }
    }
}

/// Compresses `data` into the beginning of `out` and returns the length, or `None` if `out` is too short.
pub(crate) fn compress(data: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut table = vec![0_u32; 1 << HASH_BITS];
    let mut tokens = Vec::with_capacity(data.len().min(BLOCK));
    let (mut begin, mut at) = (0, 0);
    while begin < data.len() {
        let end = data.len().min(begin + BLOCK);
        tokens.clear();
        tokenize(data, begin, end, &mut table, &mut tokens)?;
        at = block(&tokens, end == data.len(), out, at)?;
        begin = end;
    }
    Some(at)
}

/// Finds the matches of one block.
fn tokenize(
    data: &[u8],
    begin: usize,
    end: usize,
    table: &mut [u32],
    tokens: &mut Vec<Token>,
) -> Option<()> {
    let mut at = begin;
    let mut anchor = begin;
    let mut misses = 1 << SKIP;
    let literals = |tokens: &mut Vec<Token>, bytes: &[u8]| {
        tokens.extend(bytes.iter().map(|b| Token { distance: 0, value: u16::from(*b) }));
    };
    while at + MATCH_MIN <= end {
        let here = word(data, at)?;
        let slot = &mut table[hash::<HASH_BITS>(here)];
        let before = usize::try_from(*slot).ok()?;
        *slot = u32::try_from(at).ok()?;
        let found = before < at && at - before <= DISTANCE_MAX && word(data, before) == Some(here);
        if !found {
            at += misses >> SKIP;
            misses += 1;
            continue;
        }
        misses = 1 << SKIP;
        let len = MATCH_MIN + common(data, before + MATCH_MIN, at + MATCH_MIN, end);
        literals(tokens, &data[anchor..at]);
        let distance = u16::try_from(at - before).ok()?;
        tokens.push(Token { distance, value: u16::try_from(len - 3).ok()? });
        at += len;
        anchor = at;
    }
    literals(tokens, &data[anchor..end]);
    Some(())
}

/// Writes one block at `at` and returns the offset of its end.
fn block(tokens: &[Token], is_last: bool, out: &mut [u8], at: usize) -> Option<usize> {
    let mut counts = [0_u32; SYMBOLS];
    tokens.iter().for_each(|token| counts[token.symbol()] += 1);
    counts[END] += u32::from(is_last);
    let encoder = Encoder::new(&counts);
    encoder.emit(out.get_mut(at..)?.first_chunk_mut::<TABLE_LEN>()?);
    let mut bits = Writer::new(out, at + TABLE_LEN)?;
    let code = |bits: &mut Writer<'_>, symbol: usize| {
        bits.bits(u32::from(encoder.codes[symbol]), u32::from(encoder.lengths[symbol]))
    };
    for token in tokens {
        code(&mut bits, token.symbol())?;
        let Some(high) = token.distance.checked_ilog2() else { continue };
        if let Some(more) = token.value.checked_sub(15) {
            match u8::try_from(more) {
                Ok(more) if more < 255 => bits.byte(more)?,
                _ => {
                    bits.byte(255)?;
                    let [low, high] = token.value.to_le_bytes();
                    bits.byte(low)?;
                    bits.byte(high)?;
                }
            }
        }
        bits.bits(u32::from(token.distance) - (1 << high), high)?;
    }
    if is_last {
        code(&mut bits, END)?;
    }
    Some(bits.finish())
}
