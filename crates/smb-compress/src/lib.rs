//! Codecs of SMB compression (MS-SMB2 section 2.2.3.1.3), pure: LZNT1, LZ77 and LZ77+Huffman of MS-XCA, LZ4, Pattern_V1.
//!
//! *Operation.* [`Algorithm::compress`] and [`Algorithm::decompress`] work on slices. [`pattern`] finds runs of one byte,
//! [`sample::is_compressible`] decides whether data is worth the work. [`message`] makes compressed messages of these, and reads
//! them.
//!
//! *Memory.* The caller gives the output, and its length is the bound: a stream that expands to more is a [`Fault`], and so is one
//! that expands to less. Decoders allocate nothing; the encoder of LZ77+Huffman keeps the matches of one block of 64 KiB, that of
//! LZ4 a buffer as large as its input.
//!
//! *Errors.* [`Fault`] for a stream that breaks its format. No input makes a decoder panic.

mod bits;
mod huffman;
mod huffman_code;
mod lz4;
mod lz77;
mod lznt1;
mod matches;
pub mod message;
pub mod pattern;
pub mod sample;

use std::fmt;

/// Codecs by which a peer may compress a part of a message. The value is its number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Algorithm {
    /// MS-XCA section 2.5.
    Lznt1 = 1,
    /// MS-XCA section 2.3 and 2.4.
    Lz77 = 2,
    /// MS-XCA section 2.1 and 2.2.
    Lz77Huffman = 3,
    /// The block format of LZ4.
    Lz4 = 5,
}

impl Algorithm {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Lznt1, Self::Lz77, Self::Lz77Huffman, Self::Lz4];

    /// Finds a codec by its number on the wire.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|a| *a as u16 == number)
    }

    /// Names it as logs and tables do.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lznt1 => "LZNT1",
            Self::Lz77 => "LZ77",
            Self::Lz77Huffman => "LZ77+Huffman",
            Self::Lz4 => "LZ4",
        }
    }

    /// Compresses `data` into the beginning of `out` and returns the length, or nothing where `out` is too short for it.
    pub fn compress(self, data: &[u8], out: &mut [u8]) -> Option<usize> {
        match self {
            Self::Lznt1 => lznt1::compress(data, out),
            Self::Lz77 => lz77::compress(data, out),
            Self::Lz77Huffman => huffman::compress(data, out),
            Self::Lz4 => lz4::compress(data, out),
        }
    }

    /// Decompresses `data`, which must fill `out` exactly.
    pub fn decompress(self, data: &[u8], out: &mut [u8]) -> Result<(), Fault> {
        match self {
            Self::Lznt1 => lznt1::decompress(data, out),
            Self::Lz77 => lz77::decompress(data, out),
            Self::Lz77Huffman => huffman::decompress(data, out),
            Self::Lz4 => lz4::decompress(data, out),
        }
    }
}

/// Reasons why a compressed stream is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The stream ends inside of an element.
    Truncated,
    /// A match begins before the first byte of the output.
    Distance,
    /// A length is written in more bytes than it needs, or is of no match.
    Length,
    /// The stream expands to more than it should.
    TooMuch,
    /// The stream expands to less than it should.
    TooLittle,
    /// The code lengths are of no prefix code.
    Code,
    /// A chunk has a header that the format does not know.
    Chunk,
    /// The LZ4 decoder refuses the block.
    Block,
}

impl Fault {
    /// Returns the rule that the stream breaks, in a few words.
    pub fn rule(self) -> &'static str {
        match self {
            Self::Truncated => "the compressed stream is truncated",
            Self::Distance => "a match begins before the output",
            Self::Length => "a match has an impossible length",
            Self::TooMuch => "the stream expands to more than it should",
            Self::TooLittle => "the stream expands to less than it should",
            Self::Code => "the code lengths are of no prefix code",
            Self::Chunk => "a chunk has an unknown header",
            Self::Block => "the LZ4 block is malformed",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rule())
    }
}

impl std::error::Error for Fault {}
