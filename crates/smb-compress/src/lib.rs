//! Codecs for SMB compression (MS-SMB2 section 2.2.3.1.3) without I/O: LZNT1, LZ77 and LZ77+Huffman of MS-XCA, LZ4, Pattern_V1.
//!
//! *Operation.* [`Algorithm::compress`] and [`Algorithm::decompress`] work on slices. [`pattern`] finds runs of one byte,
//! [`sample::is_compressible`] estimates whether data is worth compressing. [`message`] builds and parses whole compressed
//! messages.
//!
//! *Memory.* The caller allocates the output, whose length is a strict bound: a stream that expands to more or to less is a
//! [`Fault`]. Decoders do not allocate; the LZ77+Huffman encoder stores the matches of one block of 64 KiB, the LZ4 encoder a
//! buffer as large as its input.
//!
//! *Errors.* [`Fault`] for a stream with an invalid format. No input makes a decoder panic.

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

/// Codecs for one payload of a message. The value is the algorithm number on the wire.
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
    /// All codecs in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Lznt1, Self::Lz77, Self::Lz77Huffman, Self::Lz4];

    /// Returns the codec with this number on the wire.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|a| *a as u16 == number)
    }

    /// Returns the name used in logs and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lznt1 => "LZNT1",
            Self::Lz77 => "LZ77",
            Self::Lz77Huffman => "LZ77+Huffman",
            Self::Lz4 => "LZ4",
        }
    }

    /// Compresses `data` into the beginning of `out` and returns the length, or `None` if `out` is too short.
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

/// Reasons for rejecting a compressed stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The stream ends within an element.
    Truncated,
    /// A match begins before the first byte of the output.
    Distance,
    /// A length is encoded in more bytes than it needs, or is invalid for a match.
    Length,
    /// The stream expands to more than it should.
    TooMuch,
    /// The stream expands to less than it should.
    TooLittle,
    /// The code lengths do not form a prefix code.
    Code,
    /// A chunk header has an unknown signature.
    Chunk,
    /// The LZ4 decoder rejects the block.
    Block,
}

impl Fault {
    /// Describes the violated rule in a few words.
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
