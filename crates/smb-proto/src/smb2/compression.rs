//! Headers of compressed messages (MS-SMB2 section 2.2.42).

use wire::{Parser, Rule, bytes, le_u8, le_u16, le_u32, reject, take};

use super::Parsed;
use crate::parse::{Rejected, constant, size, whole};

/// The first four bytes.
pub const PROTOCOL_ID: [u8; 4] = *b"\xfcSMB";
/// Bytes of the unchained header, and of the chained one with its first payload header.
pub const LEN: usize = 16;
/// Bytes of the chained header; payloads follow.
pub const CHAINED_LEN: usize = 8;
/// SMB2_COMPRESSION_CAPABILITIES_FLAG_CHAINED
pub const CAPABILITY_CHAINED: u32 = 1;
/// SMB2_COMPRESSION_FLAG_CHAINED
const CHAINED: u16 = 1;

/// Algorithms that are not codecs.
pub mod algorithm {
    /// The data is as it was.
    pub const NONE: u16 = 0;
    /// A run of one byte.
    pub const PATTERN_V1: u16 = 4;
    /// LZNT1, LZ77, LZ77+Huffman and LZ4: what their payloads expand to stands ahead of them.
    pub const CODECS: [u16; 4] = [1, 2, 3, 5];
}

/// The header of a compressed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// SMB2_COMPRESSION_TRANSFORM_HEADER_UNCHAINED
    Unchained {
        /// Bytes that the compressed part expands to.
        original_len: u32,
        /// Number of the codec.
        algorithm: u16,
        /// Bytes behind this header that are not compressed.
        offset: u32,
    },
    /// SMB2_COMPRESSION_TRANSFORM_HEADER_CHAINED
    Chained {
        /// Bytes that all payloads expand to.
        original_len: u32,
    },
}

impl Compression {
    /// Reads it.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        whole(message, |i| {
            let (i, ()) = constant("ProtocolId", bytes("ProtocolId"), PROTOCOL_ID)(i)?;
            let (i, original_len) = le_u32("OriginalCompressedSegmentSize")(i)?;
            let at_algorithm = i;
            let (i, algorithm) = le_u16("CompressionAlgorithm")(i)?;
            let at_flags = i;
            let (i, (flags, offset)) = (le_u16("Flags"), le_u32("Offset")).parse(i)?;
            match flags {
                CHAINED => Ok((at_algorithm, Self::Chained { original_len })),
                0 if !algorithm::CODECS.contains(&algorithm) => {
                    Err(reject("CompressionAlgorithm", Rule::Value, at_algorithm))
                }
                0 if size(offset) > i.len() => Err(reject("Offset", Rule::OutOfBounds, at_flags)),
                0 => Ok((i, Self::Unchained { original_len, algorithm, offset })),
                _ => Err(reject("Flags", Rule::Value, at_flags)),
            }
        })
    }

    /// Reads the length that the header names, and checks nothing behind it.
    pub fn original_len(message: &[u8]) -> Parsed<u32> {
        whole(message, |i| {
            let (i, ()) = constant("ProtocolId", bytes("ProtocolId"), PROTOCOL_ID)(i)?;
            le_u32("OriginalCompressedSegmentSize")(i)
        })
    }

    /// Appends it.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend(PROTOCOL_ID);
        match *self {
            Self::Chained { original_len } => out.extend(original_len.to_le_bytes()),
            Self::Unchained { original_len, algorithm, offset } => {
                out.extend(original_len.to_le_bytes());
                out.extend(algorithm.to_le_bytes());
                out.extend([0; 2]);
                out.extend(offset.to_le_bytes());
            }
        }
    }
}

/// What stands behind an SMB2_COMPRESSION_CHAINED_PAYLOAD_HEADER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Data as it was.
    Plain(&'a [u8]),
    /// SMB2_COMPRESSION_PATTERN_PAYLOAD_V1
    Pattern {
        /// The byte.
        pattern: u8,
        /// How often it stands there.
        repetitions: u32,
    },
    /// The stream of a codec.
    Stream {
        /// Number of the codec.
        algorithm: u16,
        /// Bytes that it expands to (`OriginalPayloadSize`).
        original_len: u32,
        /// The stream.
        data: &'a [u8],
    },
}

impl<'a> Payload<'a> {
    /// Reads the first of `payloads`; returns it and those behind it.
    pub fn parse(payloads: &'a [u8]) -> Parsed<(Self, &'a [u8])> {
        whole(payloads, |i| {
            let (rest, payload) = Self::one(i)?;
            Ok((rest, (payload, rest)))
        })
    }

    fn one(at: &'a [u8]) -> wire::Parsed<'a, Self> {
        let (i, (algorithm, flags)) =
            (le_u16("CompressionAlgorithm"), le_u16("Flags")).parse(at)?;
        if flags > CHAINED {
            return Err(reject("Flags", Rule::Value, at));
        }
        let at_length = i;
        let (i, length) = le_u32("Length")(i)?;
        let (rest, data) = take(size(length), "Length")(i)?;
        let payload = match algorithm {
            algorithm::NONE => Self::Plain(data),
            algorithm::PATTERN_V1 => Self::pattern(data, at_length)?,
            codec if algorithm::CODECS.contains(&codec) => {
                let (data, original_len) = le_u32("OriginalPayloadSize")(data)?;
                Self::Stream { algorithm, original_len, data }
            }
            _ => return Err(reject("CompressionAlgorithm", Rule::Value, at)),
        };
        Ok((rest, payload))
    }

    fn pattern(data: &'a [u8], at_length: &'a [u8]) -> Result<Self, Rejected<'a>> {
        let (i, (pattern, _, _)) =
            (le_u8("Pattern"), le_u8("Reserved1"), le_u16("Reserved2")).parse(data)?;
        let (i, repetitions) = le_u32("Repetitions")(i)?;
        if !i.is_empty() {
            return Err(reject("Length", Rule::Value, at_length));
        }
        Ok(Self::Pattern { pattern, repetitions })
    }

    /// Appends its header, without the data behind it; `len` is the length of that.
    fn put_header(out: &mut Vec<u8>, is_first: bool, algorithm: u16, len: usize) {
        out.extend(algorithm.to_le_bytes());
        out.extend(u16::from(is_first).to_le_bytes());
        // Messages are far shorter than 4 GiB.
        out.extend(u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
    }

    /// Appends it; the first of a message says so.
    pub fn put(&self, is_first: bool, out: &mut Vec<u8>) {
        match *self {
            Self::Plain(data) => {
                Self::put_header(out, is_first, algorithm::NONE, data.len());
                out.extend(data);
            }
            Self::Pattern { pattern, repetitions } => {
                Self::put_header(out, is_first, algorithm::PATTERN_V1, 8);
                out.extend([pattern, 0, 0, 0]);
                out.extend(repetitions.to_le_bytes());
            }
            Self::Stream { algorithm, original_len, data } => {
                Self::put_header(out, is_first, algorithm, 4 + data.len());
                out.extend(original_len.to_le_bytes());
                out.extend(data);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smb2::test_harness::{named, unhex};

    #[test]
    fn unchained_header_round_trips() {
        let header = Compression::Unchained { original_len: 70_000, algorithm: 2, offset: 3 };
        let mut message = Vec::new();
        header.put(&mut message);
        assert_eq!(message, unhex("fc534d42 70110100 0200 0000 03000000"));
        assert_eq!(named(Compression::parse(&message)), Err("Offset"), "nothing is behind it");
        message.extend(b"abc");
        assert_eq!(Compression::parse(&message), Ok(header));
        assert_eq!(Compression::original_len(&message[..8]), Ok(70_000));
        assert_eq!(
            named(Compression::original_len(&message[..7])),
            Err("OriginalCompressedSegmentSize")
        );
        for (at, value, field) in [
            (0, 0xfe, "ProtocolId"),
            (8, 0, "CompressionAlgorithm"),
            (8, 4, "CompressionAlgorithm"),
            (10, 2, "Flags"),
        ] {
            let mut wrong = message.clone();
            wrong[at] = value;
            assert_eq!(named(Compression::parse(&wrong)), Err(field));
        }
        for (len, field) in [
            (3, "ProtocolId"),
            (7, "OriginalCompressedSegmentSize"),
            (9, "CompressionAlgorithm"),
            (11, "Flags"),
            (15, "Offset"),
        ] {
            assert_eq!(named(Compression::parse(&message[..len])), Err(field), "{len}");
        }
    }

    #[test]
    fn chained_payloads_round_trip() {
        let payloads = [
            Payload::Plain(b"head"),
            Payload::Pattern { pattern: 7, repetitions: 99 },
            Payload::Stream { algorithm: 5, original_len: 1000, data: b"stream" },
            Payload::Plain(b""),
        ];
        let mut message = Vec::new();
        Compression::Chained { original_len: 1103 }.put(&mut message);
        for (n, payload) in payloads.iter().enumerate() {
            payload.put(n == 0, &mut message);
        }
        assert_eq!(Compression::parse(&message), Ok(Compression::Chained { original_len: 1103 }));
        let mut rest = &message[CHAINED_LEN..];
        for payload in payloads {
            let (found, behind) = Payload::parse(rest).unwrap();
            assert_eq!(found, payload);
            rest = behind;
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn malformed_payloads_name_their_field() {
        for (text, field) in [
            ("02", "CompressionAlgorithm"),
            ("0200 01", "Flags"),
            ("0200 0200 04000000 00000000", "Flags"),
            ("0200 0100 0400", "Length"),
            ("0000 0000 04000000 616263", "Length"),
            ("0200 0000 03000000 616263", "OriginalPayloadSize"),
            ("0600 0000 04000000 00000000", "CompressionAlgorithm"),
            ("0400 0000 07000000 61000000 010000", "Repetitions"),
            ("0400 0000 09000000 61000000 01000000 00", "Length"),
        ] {
            assert_eq!(named(Payload::parse(&unhex(text))), Err(field), "{text}");
        }
    }
}
