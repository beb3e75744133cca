//! Formats of RFC 8166 section 4 and RFC 8797 section 4. No I/O.

use wire::{Parsed, Parser, Rule, be_u32, be_u64, bytes, decode, emit, list, optional, reject};

use crate::channel::RemoteSeg;
use crate::limits;

/// The only RPC-over-RDMA version that is supported.
pub const VERSION: u32 = 1;
/// Bytes of the fixed part: xid, version, credits, procedure.
pub const PREFIX_LEN: usize = 16;
/// Bytes of a header whose three lists are empty.
pub const HEADER_MIN: usize = PREFIX_LEN + 12;

/// RDMA_MSG: the message follows the header.
pub const RDMA_MSG: u32 = 0;
/// RDMA_NOMSG: the message is in a chunk.
pub const RDMA_NOMSG: u32 = 1;
/// RDMA_MSGP: never used, must not be sent.
pub const RDMA_MSGP: u32 = 2;
/// RDMA_DONE: must not be sent.
pub const RDMA_DONE: u32 = 3;
/// RDMA_ERROR: the call was refused, or its reply could not be sent.
pub const RDMA_ERROR: u32 = 4;

/// The name of the Write list in errors.
pub(super) const WRITES: &str = "rdma_writes";

const ERR_VERS: u32 = 1;
const ERR_CHUNK: u32 = 2;

/// The fixed part of every message (RFC 8166 section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The xid of the RPC message.
    pub xid: u32,
    /// The version of the header.
    pub vers: u32,
    /// Credits requested or granted.
    pub credits: u32,
    /// The procedure (message type).
    pub proc: u32,
}

impl Prefix {
    /// Parses it from the start of a message.
    pub fn parse(message: &[u8]) -> Parsed<'_, Self> {
        let words =
            (be_u32("rdma_xid"), be_u32("rdma_vers"), be_u32("rdma_credit"), be_u32("rdma_proc"));
        let made = |(xid, vers, credits, proc)| Self { xid, vers, credits, proc };
        words.map(made).parse(message)
    }

    /// Appends the encoded header to `out`.
    pub fn emit(self, out: &mut Vec<u8>) {
        for w in [self.xid, self.vers, self.credits, self.proc] {
            emit::be_u32(out, w);
        }
    }
}

/// Parses a plain segment (RFC 8166 section 4.1.1) and checks that it is within the 64-bit address space.
fn segment(input: &[u8]) -> Parsed<'_, RemoteSeg> {
    let (rest, (handle, len)) = (be_u32("handle"), be_u32("length")).parse(input)?;
    let (behind, offset) = be_u64("offset")(rest)?;
    if offset.checked_add(u64::from(len)).is_none() {
        return Err(reject("offset", Rule::OutOfBounds, rest));
    }
    Ok((behind, RemoteSeg { handle, len, offset }))
}

/// Parses the segments of one chunk, at most `room` of them.
fn chunk<'a>(room: &mut usize, input: &'a [u8]) -> Parsed<'a, Vec<RemoteSeg>> {
    let (rest, segments) = list(*room, "segments", segment).parse(input)?;
    *room -= segments.len();
    Ok((rest, segments))
}

/// One entry of a Read list (RFC 8166 section 4.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSeg {
    /// Position of the data in the message; 0 for the message itself.
    pub position: u32,
    /// The memory that contains the data.
    pub target: RemoteSeg,
}

/// The three lists of RDMA_MSG and RDMA_NOMSG (RFC 8166 section 4.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// Read list: entries of the same position are one chunk.
    pub reads: Vec<ReadSeg>,
    /// Write list: chunks of segments.
    pub writes: Vec<Vec<RemoteSeg>>,
    /// Reply chunk.
    pub reply: Option<Vec<RemoteSeg>>,
}

/// Bytes of an entry of the Read list with its flag.
const READ_LEN: usize = 24;

impl Lists {
    /// Parses the three lists after the prefix. Each count is checked against its limit before memory is allocated.
    pub fn parse(input: &[u8]) -> Parsed<'_, Self> {
        let mut room = limits::RPCRDMA_SEGMENTS_MAX;
        let (rest, reads) = Self::parse_reads(&mut room, input)?;
        let (rest, writes) = Self::parse_writes(&mut room, rest)?;
        let (rest, reply) = optional("rdma_reply", |i| chunk(&mut room, i))(rest)?;
        Ok((rest, Self { reads, writes, reply }))
    }

    fn parse_reads<'a>(room: &mut usize, mut rest: &'a [u8]) -> Parsed<'a, Vec<ReadSeg>> {
        let there = |entry: &&[u8]| entry.starts_with(&[0, 0, 0, 1]);
        let count = rest.chunks_exact(READ_LEN).take_while(there).count();
        let mut reads = Vec::with_capacity(count.min(*room));
        let mut next = optional("rdma_reads", (be_u32("position"), segment));
        loop {
            match next.parse(rest)? {
                (behind, None) => return Ok((behind, reads)),
                (_, Some(_)) if *room == 0 => {
                    let rule = Rule::OverLimit { max: limits::RPCRDMA_SEGMENTS_MAX };
                    return Err(reject("rdma_reads", rule, rest));
                }
                (behind, Some((position, target))) => {
                    reads.push(ReadSeg { position, target });
                    (*room, rest) = (*room - 1, behind);
                }
            }
        }
    }

    fn parse_writes<'a>(room: &mut usize, mut rest: &'a [u8]) -> Parsed<'a, Vec<Vec<RemoteSeg>>> {
        let mut writes = Vec::new();
        loop {
            let (behind, there) = wire::bool(WRITES)(rest)?;
            if !there {
                return Ok((behind, writes));
            }
            if writes.len() == limits::RPCRDMA_CHUNKS_MAX {
                let rule = Rule::OverLimit { max: limits::RPCRDMA_CHUNKS_MAX };
                return Err(reject(WRITES, rule, rest));
            }
            let (behind, segments) = chunk(room, behind)?;
            writes.push(segments);
            rest = behind;
        }
    }

    /// Bytes that [`Lists::emit`] appends.
    pub fn len(&self) -> usize {
        let chunk = |segments: &Vec<RemoteSeg>| 8 + 16 * segments.len();
        let writes: usize = self.writes.iter().map(chunk).sum();
        12 + 24 * self.reads.len() + writes + self.reply.as_ref().map_or(0, |r| chunk(r) - 4)
    }

    /// True if all lists are empty.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty() && self.reply.is_none()
    }

    /// Appends the three lists.
    pub fn emit(&self, out: &mut Vec<u8>) {
        for read in &self.reads {
            emit::be_u32(out, 1);
            emit::be_u32(out, read.position);
            put_segment(out, read.target);
        }
        emit::be_u32(out, 0);
        for chunk in &self.writes {
            emit::be_u32(out, 1);
            put_chunk(out, chunk);
        }
        emit::be_u32(out, 0);
        match &self.reply {
            Some(chunk) => {
                emit::be_u32(out, 1);
                put_chunk(out, chunk);
            }
            None => emit::be_u32(out, 0),
        }
    }
}

fn put_segment(out: &mut Vec<u8>, s: RemoteSeg) {
    emit::be_u32(out, s.handle);
    emit::be_u32(out, s.len);
    emit::be_u64(out, s.offset);
}

fn put_chunk(out: &mut Vec<u8>, chunk: &[RemoteSeg]) {
    // Chunks have at most RPCRDMA_SEGMENTS_MAX segments: they come from a checked header or were made by this side.
    emit::count(out, chunk.len());
    for s in chunk {
        put_segment(out, *s);
    }
}

/// The body of RDMA_ERROR (RFC 8166 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RdmaError {
    /// ERR_VERS: the version is outside this range.
    Versions { low: u32, high: u32 },
    /// ERR_CHUNK: the header was invalid, or the reply too large.
    Chunk,
}

impl RdmaError {
    /// Parses the body of RDMA_ERROR, after the prefix.
    pub fn parse(from: &[u8]) -> Parsed<'_, Self> {
        match be_u32("rdma_err")(from)? {
            (rest, ERR_VERS) => {
                let versions = (be_u32("rdma_vers_low"), be_u32("rdma_vers_high"));
                versions.map(|(low, high)| Self::Versions { low, high }).parse(rest)
            }
            (rest, ERR_CHUNK) => Ok((rest, Self::Chunk)),
            _ => Err(reject("rdma_err", Rule::Value, from)),
        }
    }

    /// Builds the whole message that answers `to`, with the same xid and version (RFC 8166 section 4.5).
    pub fn answer(self, to: Prefix, credits: u32) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_MIN);
        Prefix { credits, proc: RDMA_ERROR, ..to }.emit(&mut out);
        match self {
            Self::Versions { low, high } => {
                [ERR_VERS, low, high].map(|w| emit::be_u32(&mut out, w)).len()
            }
            Self::Chunk => [ERR_CHUNK].map(|w| emit::be_u32(&mut out, w)).len(),
        };
        out
    }
}

/// The private data of a connection request or reply (RFC 8797 section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateData {
    /// The sender supports Send with Invalidate.
    pub remote_invalidation: bool,
    /// Largest Send of the sender, in bytes.
    pub send_size: usize,
    /// Largest Send that the sender accepts, in bytes.
    pub recv_size: usize,
}

const MAGIC: [u8; 4] = [0xf6, 0xab, 0x0e, 0x18];
const SIZE_UNIT: usize = 1024;

impl PrivateData {
    /// The values that this side announces.
    pub const OURS: Self = Self {
        remote_invalidation: false,
        send_size: limits::RPCRDMA_INLINE,
        recv_size: limits::RPCRDMA_INLINE,
    };

    /// The values of a peer that announces no private data.
    pub const DEFAULT: Self = Self {
        remote_invalidation: false,
        send_size: limits::RPCRDMA_INLINE_DEFAULT,
        recv_size: limits::RPCRDMA_INLINE_DEFAULT,
    };

    /// Parses it; `None` for another kind or version, which is no error: the defaults apply.
    pub fn parse(from: &[u8]) -> Option<Self> {
        let fields = |i| (bytes("format identifier"), bytes("version and sizes")).parse(i);
        let (_, (magic, [version, flags, send, recv])) = decode(from, fields).ok()?;
        let size = |code: u8| (usize::from(code) + 1) * SIZE_UNIT;
        (magic == MAGIC && version == 1).then(|| Self {
            remote_invalidation: flags & 1 != 0,
            send_size: size(send),
            recv_size: size(recv),
        })
    }

    /// Encodes the eight bytes.
    pub fn emit(self) -> [u8; 8] {
        let code =
            |size: usize| u8::try_from((size / SIZE_UNIT).saturating_sub(1)).unwrap_or(u8::MAX);
        let [a, b, c, d] = MAGIC;
        [a, b, c, d, 1, self.remote_invalidation.into(), code(self.send_size), code(self.recv_size)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_data_matches_linux() {
        // The NFS client of Linux 6.12, and the reply of its server.
        let client = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3];
        let told = PrivateData { remote_invalidation: true, send_size: 4096, recv_size: 4096 };
        assert_eq!(PrivateData::parse(&client), Some(told));
        assert_eq!(told.emit(), client);
        assert_eq!(PrivateData::OURS.emit(), [0xf6, 0xab, 0x0e, 0x18, 1, 0, 3, 3]);
        // Data of another protocol, another version, or too short: the defaults apply.
        assert_eq!(PrivateData::parse(&[0; 8]), None);
        assert_eq!(PrivateData::parse(&[0xf6, 0xab, 0x0e, 0x18, 2, 1, 3, 3]), None);
        assert_eq!(PrivateData::parse(&client[..7]), None);
        assert_eq!(PrivateData::parse(&[]), None);
    }

    #[test]
    fn errors_repeat_xid_and_version() {
        let to = Prefix { xid: 0x0102_0304, vers: 7, credits: 1, proc: RDMA_MSG };
        let versions = RdmaError::Versions { low: 1, high: 1 };
        let wire = versions.answer(to, 64);
        let expected =
            [1, 2, 3, 4, 0, 0, 0, 7, 0, 0, 0, 64, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1];
        assert_eq!(wire, expected);
        let (rest, prefix) = Prefix::parse(&wire).unwrap();
        assert_eq!((prefix.xid, prefix.proc), (to.xid, RDMA_ERROR));
        assert_eq!(RdmaError::parse(rest), Ok((&[][..], versions)));
        let wire = RdmaError::Chunk.answer(to, 64);
        assert_eq!(wire.len(), 20);
        assert_eq!(RdmaError::parse(&wire[16..]), Ok((&[][..], RdmaError::Chunk)));
        let fault = |from| decode(from, RdmaError::parse).map_err(|why| why.at(from).to_string());
        assert_eq!(fault(&[0, 0, 0, 3]), Err("rdma_err invalid at 0".into()));
        let short = [0, 0, 0, 1, 0, 0, 0, 1];
        assert_eq!(fault(&short), Err("rdma_vers_high truncated at 8".into()));
    }
}
