//! Compresses and expands whole messages (MS-SMB2 sections 3.1.4.4, 3.1.5.3 and 3.3.5.2.1.2).
//!
//! *Operation.* [`Expansion::begin`] checks all headers of a message and computes its expanded length before memory is allocated;
//! [`Expansion::expand`] fills that memory. [`shrink`] compresses a plain message.
//!
//! *Memory.* [`shrink`] allocates one buffer as large as the plain message.
//!
//! *Errors.* [`Broken`]: the receiver must close the connection.

use std::fmt;

use smb_proto::smb2::compression::{CHAINED_LEN, Compression, LEN, Payload, algorithm};
use smb_proto::wire::Fault;

use crate::{Algorithm, pattern, sample};

/// Bytes that a compressed message may have in addition to the largest payload (MS-SMB2 section 3.3.5.2.1.2).
pub const BESIDE_PAYLOAD: usize = 256 + LEN;
/// Most header bytes that one stream needs.
const STREAM_HEADERS: usize = 16;

/// Compression parameters negotiated for a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    /// Algorithm numbers (`Connection.CompressionIds`), in the client's order.
    pub algorithms: Vec<u16>,
    /// `Connection.SupportsChainedCompression`
    pub chained: bool,
}

impl Agreed {
    /// Selects the offered algorithms that this crate implements, without duplicates.
    pub fn of_offer(offered: &[u16], chained: bool) -> Self {
        let mut algorithms = Vec::new();
        for number in offered {
            let is_known =
                *number == algorithm::PATTERN_V1 || Algorithm::from_number(*number).is_some();
            if is_known && !algorithms.contains(number) {
                algorithms.push(*number);
            }
        }
        Self { algorithms, chained }
    }

    /// Returns the codec that the client prefers.
    pub fn codec(&self) -> Option<Algorithm> {
        self.algorithms.iter().find_map(|n| Algorithm::from_number(*n))
    }

    fn has(&self, number: u16) -> bool {
        self.algorithms.contains(&number)
    }

    fn has_pattern(&self) -> bool {
        self.chained && self.has(algorithm::PATTERN_V1)
    }
}

/// Reasons for rejecting a compressed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A header has an invalid format.
    Format(Fault),
    /// The connection did not negotiate this algorithm or form.
    NotAgreed,
    /// The announced expanded size exceeds the limit.
    TooLarge,
    /// The payloads expand to more or fewer bytes than announced.
    Length,
    /// A stream has an invalid format.
    Stream(crate::Fault),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format(fault) => fault.fmt(f),
            Self::NotAgreed => f.write_str("a form of compression that was not agreed on"),
            Self::TooLarge => f.write_str("OriginalCompressedSegmentSize is over the limit"),
            Self::Length => f.write_str("the payloads are not of OriginalCompressedSegmentSize"),
            Self::Stream(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for Broken {}

fn size(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// A compressed message with checked headers.
#[derive(Clone, Copy, Debug)]
pub struct Expansion<'a> {
    form: Form<'a>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
enum Form<'a> {
    Unchained { head: &'a [u8], codec: Algorithm, stream: &'a [u8] },
    Chained { payloads: &'a [u8] },
}

/// Payloads of one chain. Compressors make one for each buffer and each run of equal bytes at its ends.
const CHAIN_MAX: usize = 1024;

impl<'a> Expansion<'a> {
    /// Checks the headers of a message against the negotiated parameters and the largest payload of `payload_max` bytes.
    pub fn begin(message: &'a [u8], agreed: &Agreed, payload_max: usize) -> Result<Self, Broken> {
        let header = Compression::parse(message).map_err(Broken::Format)?;
        let (Compression::Unchained { original_len, .. } | Compression::Chained { original_len }) =
            header;
        let len = size(original_len);
        if len > payload_max.saturating_add(BESIDE_PAYLOAD) {
            return Err(Broken::TooLarge);
        }
        match header {
            Compression::Unchained { algorithm, offset, .. } => {
                let codec = Algorithm::from_number(algorithm).filter(|_| agreed.has(algorithm));
                let codec = codec.ok_or(Broken::NotAgreed)?;
                // Cannot panic: the parser has checked `offset` against the message length.
                let (head, stream) = message[LEN..].split_at(size(offset));
                Ok(Self { form: Form::Unchained { head, codec, stream }, len: head.len() + len })
            }
            Compression::Chained { .. } => {
                let payloads = &message[CHAINED_LEN..];
                check_chain(payloads, agreed, len)?;
                Ok(Self { form: Form::Chained { payloads }, len })
            }
        }
    }

    /// Returns the length of the plain message in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Writes the plain message to `out`, which must have [`Expansion::len`] bytes.
    pub fn expand(&self, out: &mut [u8]) -> Result<(), Broken> {
        if out.len() != self.len {
            return Err(Broken::Length);
        }
        match self.form {
            Form::Unchained { head, codec, stream } => {
                let (plain, rest) = out.split_at_mut(head.len());
                plain.copy_from_slice(head);
                codec.decompress(stream, rest).map_err(Broken::Stream)
            }
            Form::Chained { payloads } => expand_chain(payloads, out),
        }
    }
}

/// Checks the headers of all payloads and that they expand to `len` bytes in total.
fn check_chain(mut payloads: &[u8], agreed: &Agreed, len: usize) -> Result<(), Broken> {
    if !agreed.chained {
        return Err(Broken::NotAgreed);
    }
    let mut left = len;
    let mut count = 0;
    while !payloads.is_empty() {
        count += 1;
        if count > CHAIN_MAX {
            return Err(Broken::TooLarge);
        }
        let (payload, behind) = Payload::parse(payloads).map_err(Broken::Format)?;
        let (is_agreed, n) = match payload {
            Payload::Plain(data) => (true, data.len()),
            Payload::Pattern { repetitions, .. } => {
                (agreed.has(algorithm::PATTERN_V1), size(repetitions))
            }
            Payload::Stream { algorithm, original_len, .. } => {
                (agreed.has(algorithm), size(original_len))
            }
        };
        if !is_agreed {
            return Err(Broken::NotAgreed);
        }
        left = left.checked_sub(n).ok_or(Broken::Length)?;
        payloads = behind;
    }
    if left == 0 { Ok(()) } else { Err(Broken::Length) }
}

fn expand_chain(mut payloads: &[u8], mut out: &mut [u8]) -> Result<(), Broken> {
    while !payloads.is_empty() {
        let (payload, behind) = Payload::parse(payloads).map_err(Broken::Format)?;
        let n = match payload {
            Payload::Plain(data) => data.len(),
            Payload::Pattern { repetitions, .. } => size(repetitions),
            Payload::Stream { original_len, .. } => size(original_len),
        };
        let (part, rest) = out.split_at_mut_checked(n).ok_or(Broken::Length)?;
        match payload {
            Payload::Plain(data) => part.copy_from_slice(data),
            Payload::Pattern { pattern, .. } => part.fill(pattern),
            Payload::Stream { algorithm, data, .. } => {
                let codec = Algorithm::from_number(algorithm).ok_or(Broken::NotAgreed)?;
                codec.decompress(data, part).map_err(Broken::Stream)?;
            }
        }
        (payloads, out) = (behind, rest);
    }
    Ok(())
}

/// Returns whether at least one of these pieces is worth compressing.
pub fn is_worthwhile(pieces: &[&[u8]]) -> bool {
    pieces.iter().any(|piece| sample::is_compressible(piece))
}

/// Compresses the pieces of a message but not its `head`. Returns `None` if the result is not shorter than the message.
pub fn shrink(head: &[u8], pieces: &[&[u8]], agreed: &Agreed) -> Option<Vec<u8>> {
    let data: usize = pieces.iter().map(|p| p.len()).sum();
    let plain = head.len() + data;
    let mut out = Vec::with_capacity(plain + LEN);
    if agreed.chained {
        let original_len = u32::try_from(plain).ok()?;
        Compression::Chained { original_len }.put(&mut out);
        Payload::Plain(head).put(true, &mut out);
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            put_piece(piece, agreed, &mut out)?;
        }
    } else {
        let codec = agreed.codec()?;
        let (original_len, offset) = (u32::try_from(data).ok()?, u32::try_from(head.len()).ok()?);
        let algorithm = codec as u16;
        Compression::Unchained { original_len, algorithm, offset }.put(&mut out);
        out.extend(head);
        match pieces {
            [one] => put_stream(one, codec, &mut out)?,
            several => put_stream(&several.concat(), codec, &mut out)?,
        };
    }
    (out.len() < plain).then_some(out)
}

/// Appends the payloads of one piece: a run at the start, a stream, and a run at the end.
fn put_piece(piece: &[u8], agreed: &Agreed, out: &mut Vec<u8>) -> Option<()> {
    let run = |n: usize, of: &dyn Fn(&[u8]) -> usize| {
        if agreed.has_pattern() { of(&piece[n..]) } else { 0 }
    };
    let front = run(0, &pattern::leading);
    let back = run(front, &pattern::trailing);
    let middle = &piece[front..piece.len() - back];
    let put_run = |n: usize, byte: Option<&u8>, out: &mut Vec<u8>| {
        if let (Some(byte), Ok(repetitions)) = (byte, u32::try_from(n))
            && n > 0
        {
            Payload::Pattern { pattern: *byte, repetitions }.put(false, out);
        }
    };
    put_run(front, piece.first(), out);
    if !middle.is_empty() {
        let at = out.len();
        let codec = agreed.codec().filter(|_| sample::is_compressible(middle));
        let original_len = u32::try_from(middle.len()).ok()?;
        let shrunk = codec.and_then(|codec| {
            let (algorithm, data) = (codec as u16, &[]);
            Payload::Stream { algorithm, original_len, data }.put(false, out);
            let len = 4 + put_stream(middle, codec, out)?;
            out[at + 4..at + 8].copy_from_slice(&u32::try_from(len).ok()?.to_le_bytes());
            Some(())
        });
        if shrunk.is_none() {
            out.truncate(at);
            Payload::Plain(middle).put(false, out);
        }
    }
    put_run(back, piece.last(), out);
    Some(())
}

/// Appends a stream and returns its length, or `None` if it does not save more than its headers need.
fn put_stream(data: &[u8], codec: Algorithm, out: &mut Vec<u8>) -> Option<usize> {
    let at = out.len();
    out.resize(at + data.len().checked_sub(STREAM_HEADERS)?, 0);
    let len = codec.compress(data, &mut out[at..]);
    out.truncate(at + len.unwrap_or(0));
    len
}
