//! Reads and writes the bit stream of LZ77+Huffman: 16-bit words, most significant bit first, with whole bytes between them.

use crate::Fault;
use crate::matches::half;

/// Reads bits. Past the end it reads zeros; using more than two words of them is an error.
pub(crate) struct Reader<'a> {
    data: &'a [u8],
    pub(crate) at: usize,
    next: u32,
    /// Number of bits in `next` beyond the first 16.
    extra: i32,
    /// Words read past the end.
    over: u32,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(data: &'a [u8], at: usize) -> Self {
        let mut reader = Self { data, at, next: 0, extra: 16, over: 0 };
        reader.next = reader.word() << 16;
        reader.next |= reader.word();
        reader
    }

    #[inline]
    fn word(&mut self) -> u32 {
        match half(self.data, self.at) {
            Some(word) => {
                self.at += 2;
                u32::from(word)
            }
            None => {
                self.over += 1;
                0
            }
        }
    }

    /// Returns the next 15 bits without consuming them.
    #[inline]
    pub(crate) fn peek(&self) -> usize {
        (self.next >> 17) as usize
    }

    /// Skips `n` bits, at most 15.
    #[inline]
    pub(crate) fn skip(&mut self, n: u32) -> Result<(), Fault> {
        self.next <<= n;
        // Callers pass at most 15.
        self.extra -= n.cast_signed();
        if self.extra < 0 {
            self.next |= self.word() << self.extra.unsigned_abs();
            self.extra += 16;
            if self.over > 2 {
                return Err(Fault::Truncated);
            }
        }
        Ok(())
    }

    /// Reads `n` bits, at most 15.
    #[inline]
    pub(crate) fn take(&mut self, n: usize) -> Result<usize, Fault> {
        let bits = self.peek() >> (15 - n);
        self.skip(u32::try_from(n).map_err(|_| Fault::Code)?)?;
        Ok(bits)
    }

    /// Reads a whole byte, which follows the words read so far.
    pub(crate) fn byte(&mut self) -> Result<usize, Fault> {
        let byte = self.data.get(self.at).ok_or(Fault::Truncated)?;
        self.at += 1;
        Ok(usize::from(*byte))
    }
}

/// Writes bits. Two words stay reserved ahead of each whole byte, because readers have loaded both before they reach it.
pub(crate) struct Writer<'a> {
    out: &'a mut [u8],
    pub(crate) at: usize,
    open: [usize; 2],
    word: u32,
    free: u32,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut [u8], at: usize) -> Option<Self> {
        out.get_mut(at..at + 4)?.fill(0);
        Some(Self { out, at: at + 4, open: [at, at + 2], word: 0, free: 16 })
    }

    fn put(&mut self, at: usize, word: u32) {
        // The upper half is zero: at most 16 bits were shifted in.
        let [a, b, ..] = word.to_le_bytes();
        self.out[at..at + 2].copy_from_slice(&[a, b]);
    }

    /// Writes the lowest `n` bits of `bits`, at most 15.
    #[inline]
    pub(crate) fn bits(&mut self, bits: u32, n: u32) -> Option<()> {
        if self.free >= n {
            self.free -= n;
            self.word = self.word << n | bits;
            return Some(());
        }
        let rest = n - self.free;
        let word = self.word << self.free | bits >> rest;
        self.put(self.open[0], word);
        self.open = [self.open[1], self.at];
        self.out.get_mut(self.at..self.at + 2)?.fill(0);
        self.at += 2;
        self.free = 16 - rest;
        self.word = bits & ((1 << rest) - 1);
        Some(())
    }

    /// Writes a whole byte after the reserved words.
    pub(crate) fn byte(&mut self, byte: u8) -> Option<()> {
        *self.out.get_mut(self.at)? = byte;
        self.at += 1;
        Some(())
    }

    /// Writes the remaining bits and returns the end of the stream.
    pub(crate) fn finish(mut self) -> usize {
        let word = self.word << self.free;
        self.put(self.open[0], word);
        self.put(self.open[1], 0);
        self.at
    }
}
