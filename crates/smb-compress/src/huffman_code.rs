//! Canonical prefix codes of LZ77+Huffman: 512 symbols, at most 15 bits per code (MS-XCA section 2.1.4).

use crate::Fault;
use crate::bits::Reader;

/// Literals, and matches by length and by magnitude of the distance.
pub(crate) const SYMBOLS: usize = 512;
/// Size in bytes of the code lengths before each block.
pub(crate) const TABLE_LEN: usize = SYMBOLS / 2;
const BITS_MAX: usize = 15;
/// Codes of at most this many bits are decoded with one table lookup.
const QUICK: usize = 11;

/// Decodes symbols.
pub(crate) struct Decoder {
    /// Indexed by the next bits: symbol and code length, or zero if the code is longer.
    quick: [u16; 1 << QUICK],
    /// Symbols sorted by code length, then by number.
    sorted: [u16; SYMBOLS],
    /// Indexed by code length: the first code after the codes of that length, padded to 15 bits.
    limit: [u32; BITS_MAX + 1],
    /// Indexed by code length: the offset from a code to its index in `sorted`.
    base: [u32; BITS_MAX + 1],
}

impl Decoder {
    pub(crate) fn new() -> Self {
        Self {
            quick: [0; 1 << QUICK],
            sorted: [0; SYMBOLS],
            limit: [0; BITS_MAX + 1],
            base: [0; BITS_MAX + 1],
        }
    }

    /// Builds the tables for a block. Every bit string must decode to a symbol.
    pub(crate) fn learn(&mut self, table: &[u8; TABLE_LEN]) -> Result<(), Fault> {
        let length = |symbol: usize| usize::from(table[symbol / 2] >> (4 * (symbol & 1)) & 15);
        let mut counts = [0_u32; BITS_MAX + 1];
        (0..SYMBOLS).for_each(|symbol| counts[length(symbol)] += 1);
        let (mut code, mut place) = (0_u32, 0_u32);
        let mut next = [0_u32; BITS_MAX + 1];
        for bits in 1..=BITS_MAX {
            next[bits] = place;
            self.base[bits] = place.wrapping_sub(code >> (BITS_MAX - bits));
            code += counts[bits] << (BITS_MAX - bits);
            place += counts[bits];
            self.limit[bits] = code;
        }
        if code != 1 << BITS_MAX {
            return Err(Fault::Code);
        }
        for symbol in 0..SYMBOLS {
            let bits = length(symbol);
            if bits > 0 {
                self.sorted[next[bits] as usize] = narrow(symbol);
                next[bits] += 1;
            }
        }
        self.fill_quick(&counts);
        Ok(())
    }

    fn fill_quick(&mut self, counts: &[u32; BITS_MAX + 1]) {
        let (mut at, mut place) = (0, 0);
        for (bits, count) in counts.iter().enumerate().take(QUICK + 1).skip(1) {
            let width = 1 << (QUICK - bits);
            for _ in 0..*count {
                let entry = self.sorted[place] << 4 | narrow(bits);
                self.quick[at..at + width].fill(entry);
                at += width;
                place += 1;
            }
        }
        self.quick[at..].fill(0);
    }

    /// Reads the next symbol.
    #[inline]
    pub(crate) fn symbol(&self, bits: &mut Reader<'_>) -> Result<usize, Fault> {
        let peeked = bits.peek();
        let entry = self.quick[peeked >> (BITS_MAX - QUICK)];
        if entry != 0 {
            bits.skip(u32::from(entry & 15))?;
            return Ok(usize::from(entry >> 4));
        }
        let code = u32::from(narrow(peeked));
        let len = (QUICK + 1..=BITS_MAX).find(|n| code < self.limit[*n]).ok_or(Fault::Code)?;
        bits.skip(u32::from(narrow(len)))?;
        let place = self.base[len].wrapping_add(code >> (BITS_MAX - len)) as usize;
        self.sorted.get(place).map(|s| usize::from(*s)).ok_or(Fault::Code)
    }
}

/// Assigns a code to each symbol that occurs.
pub(crate) struct Encoder {
    pub(crate) codes: [u16; SYMBOLS],
    pub(crate) lengths: [u8; SYMBOLS],
}

impl Encoder {
    /// Builds the code for symbols with these frequencies.
    pub(crate) fn new(counts: &[u32; SYMBOLS]) -> Self {
        let mut by_count: Vec<(u32, u16)> = Vec::with_capacity(SYMBOLS);
        by_count.extend((0_u16..).zip(counts).filter(|(_, n)| **n > 0).map(|(s, n)| (*n, s)));
        // The format needs at least two symbols.
        for spare in 0..2 {
            if by_count.len() < 2 && by_count.iter().all(|(_, s)| *s != spare) {
                by_count.push((1, spare));
            }
        }
        by_count.sort_unstable();
        let mut of_length = depths(&by_count);
        limit(&mut of_length);
        let mut lengths = [0; SYMBOLS];
        let mut rarest = by_count.iter();
        for bits in (1..=15_u8).rev() {
            for (_, symbol) in rarest.by_ref().take(of_length[usize::from(bits)]) {
                lengths[usize::from(*symbol)] = bits;
            }
        }
        Self { codes: codes(&lengths), lengths }
    }

    /// Writes the code lengths that precede a block.
    pub(crate) fn emit(&self, out: &mut [u8; TABLE_LEN]) {
        for (byte, pair) in out.iter_mut().zip(self.lengths.as_chunks::<2>().0) {
            *byte = pair[0] | pair[1] << 4;
        }
    }
}

/// Cannot truncate: symbols, code lengths and codes are all below 2^15.
fn narrow(n: usize) -> u16 {
    u16::try_from(n).unwrap_or(0)
}

/// Counts the symbols of each code length with Huffman's algorithm. Lengths above the maximum count as the maximum.
fn depths(by_count: &[(u32, u16)]) -> [usize; BITS_MAX + 1] {
    let n = by_count.len();
    // Leaves, then inner nodes in the order of their creation; both are sorted by weight.
    let mut weights: Vec<u32> = by_count.iter().map(|(count, _)| *count).collect();
    let mut parents = vec![0; 2 * n - 1];
    let (mut leaf, mut inner) = (0, n);
    for node in n..2 * n - 1 {
        let mut weight = 0;
        for _ in 0..2 {
            let takes_leaf = leaf < n && (inner >= node || weights[leaf] <= weights[inner]);
            let lightest = if takes_leaf { &mut leaf } else { &mut inner };
            weight += weights[*lightest];
            parents[*lightest] = node;
            *lightest += 1;
        }
        weights.push(weight);
    }
    let mut depth = vec![0_usize; 2 * n - 1];
    let mut of_length = [0; BITS_MAX + 1];
    for node in (0..2 * n - 2).rev() {
        depth[node] = depth[parents[node]] + 1;
        if node < n {
            of_length[depth[node].min(BITS_MAX)] += 1;
        }
    }
    of_length
}

/// Makes the code valid after lengths were cut to the maximum, by lengthening shorter codes.
fn limit(of_length: &mut [usize; BITS_MAX + 1]) {
    let used = |counts: &[usize; BITS_MAX + 1]| -> usize {
        (1..=BITS_MAX).map(|bits| counts[bits] << (BITS_MAX - bits)).sum()
    };
    while used(of_length) > 1 << BITS_MAX {
        let Some(bits) = (1..BITS_MAX).rev().find(|bits| of_length[*bits] > 0) else { return };
        of_length[BITS_MAX] -= 1;
        of_length[bits] -= 1;
        of_length[bits + 1] += 2;
    }
}

/// Assigns canonical codes: by length, then by symbol.
fn codes(lengths: &[u8; SYMBOLS]) -> [u16; SYMBOLS] {
    let mut codes = [0; SYMBOLS];
    let mut code = 0_u16;
    for bits in 1..=BITS_MAX {
        for (symbol, _) in lengths.iter().enumerate().filter(|(_, n)| usize::from(**n) == bits) {
            codes[symbol] = code;
            code = code.wrapping_add(1);
        }
        code <<= 1;
    }
    codes
}
