//! The rules of a header that a peer can break, and the walk that finds out before anything is built: pure.

use std::fmt;

use super::wire::{segment, word};
use crate::channel::RemoteSeg;
use crate::limits;

/// A rule of RFC 8166 or RFC 8167 that a peer broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Section 4.2: a message has xid, version, credits and procedure.
    HeaderShort,
    /// Section 4.2.2: the version is 1.
    Version(u32),
    /// Section 4.2.4: RDMA_MSG, RDMA_NOMSG or RDMA_ERROR; others are unknown or no longer used.
    Procedure(u32),
    /// Section 4.3: the lists end inside the message.
    ListTruncated,
    /// Section 4.3 and RFC 4506 section 4.19: an optional item is there (1) or not (0).
    ListFlag(u32),
    /// [`limits::RPCRDMA_SEGMENTS_MAX`]
    SegmentsTooMany,
    /// [`limits::RPCRDMA_CHUNKS_MAX`]
    ChunksTooMany,
    /// Section 4.1.1: a segment lies within the 64-bit address space.
    SegmentWraps,
    /// [`limits::RPC_PAYLOAD_MAX`]
    ChunkTooLong(u64),
    /// Section 3.4.5 and RFC 4506 section 3: a data item begins at a multiple of four.
    PositionUnaligned(u32),
    /// Section 3.4.5: a Read chunk's data belongs inside the message.
    PositionBeyondMessage(u32),
    /// Section 3.4.5: the data of Read chunks does not overlap.
    PositionOverlaps(u32),
    /// Section 3.4.6: Write chunks and the Reply chunk name different memory.
    SegmentsOverlap,
    /// Section 3.5.1: a Position Zero Read chunk goes with RDMA_NOMSG.
    CallChunkWithMessage,
    /// Section 3.5.3: the message of an RDMA_NOMSG call is in a Position Zero Read chunk.
    CallChunkMissing,
    /// Section 3.5.3: nothing follows the header of RDMA_NOMSG.
    MessageAfterNoMsg,
    /// Section 4.2.1: the RPC message has the xid of the header.
    XidMismatch,
    /// RFC 5531 section 9: an RPC message has an xid and a type.
    MessageShort,
    /// Section 3.3.1: no more requests than were granted.
    CreditsOverrun,
    /// RFC 8167 section 5.1: no chunks in the reverse direction.
    ReverseChunks,
    /// Section 4.5: RDMA_ERROR says which error.
    ErrorMalformed,
    /// Section 3.5.3: the message of an RDMA_NOMSG reply is in the Reply chunk.
    ReplyChunkMissing,
    /// Section 3.4.6.2: a reply returns the chunks of its call.
    ListsChanged,
}

crate::rule_names!(Violation {
    Violation::HeaderShort => "rpcrdma.header.short",
    Violation::Version(_) => "rpcrdma.header.version",
    Violation::Procedure(_) => "rpcrdma.header.procedure",
    Violation::ListTruncated => "rpcrdma.list.truncated",
    Violation::ListFlag(_) => "rpcrdma.list.flag",
    Violation::SegmentsTooMany => "rpcrdma.list.segments",
    Violation::ChunksTooMany => "rpcrdma.list.chunks",
    Violation::SegmentWraps => "rpcrdma.segment.wraps",
    Violation::ChunkTooLong(_) => "rpcrdma.chunk.too-long",
    Violation::PositionUnaligned(_) => "rpcrdma.position.unaligned",
    Violation::PositionBeyondMessage(_) => "rpcrdma.position.beyond",
    Violation::PositionOverlaps(_) => "rpcrdma.position.overlap",
    Violation::SegmentsOverlap => "rpcrdma.segment.overlap",
    Violation::CallChunkWithMessage => "rpcrdma.msg.call-chunk",
    Violation::CallChunkMissing => "rpcrdma.nomsg.no-call-chunk",
    Violation::MessageAfterNoMsg => "rpcrdma.nomsg.message",
    Violation::XidMismatch => "rpcrdma.message.xid",
    Violation::MessageShort => "rpcrdma.message.short",
    Violation::CreditsOverrun => "rpcrdma.credits.overrun",
    Violation::ReverseChunks => "rpcrdma.reverse.chunks",
    Violation::ErrorMalformed => "rpcrdma.error.malformed",
    Violation::ReplyChunkMissing => "rpcrdma.reply.no-chunk",
    Violation::ListsChanged => "rpcrdma.reply.lists",
});

impl Violation {
    /// The connection cannot go on: there is nothing to answer to, or the peer has lost count.
    pub fn is_fatal(self) -> bool {
        matches!(self, Self::HeaderShort | Self::CreditsOverrun)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// What the lists hold, counted before anything is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Entries of the Read list.
    pub reads: usize,
    /// Chunks of the Write list.
    pub writes: usize,
    /// There is a Reply chunk.
    pub reply: bool,
    /// Segments of all lists.
    pub segments: usize,
    /// Bytes of the three lists.
    pub len: usize,
}

/// Walks the three lists at the start of `from` (what follows the prefix).
pub fn shape(from: &[u8]) -> Result<Shape, Violation> {
    let mut shape = Shape::default();
    let mut rest = from;
    while flag(&mut rest)? {
        take(&mut rest, word)?;
        walk_segments(&mut rest, 1, &mut shape)?;
        shape.reads += 1;
    }
    while flag(&mut rest)? {
        shape.writes += 1;
        if shape.writes > limits::RPCRDMA_CHUNKS_MAX {
            return Err(Violation::ChunksTooMany);
        }
        let count = take(&mut rest, word)?;
        walk_segments(&mut rest, count, &mut shape)?;
    }
    if flag(&mut rest)? {
        shape.reply = true;
        let count = take(&mut rest, word)?;
        walk_segments(&mut rest, count, &mut shape)?;
    }
    shape.len = from.len() - rest.len();
    Ok(shape)
}

fn take<'a, T>(
    rest: &mut &'a [u8],
    item: impl Fn(&'a [u8]) -> Option<(T, &'a [u8])>,
) -> Result<T, Violation> {
    let (value, behind) = item(rest).ok_or(Violation::ListTruncated)?;
    *rest = behind;
    Ok(value)
}

fn flag(rest: &mut &[u8]) -> Result<bool, Violation> {
    match take(rest, word)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Violation::ListFlag(other)),
    }
}

fn walk_segments(rest: &mut &[u8], count: u32, shape: &mut Shape) -> Result<(), Violation> {
    let room = limits::RPCRDMA_SEGMENTS_MAX - shape.segments;
    let count = usize::try_from(count).ok().filter(|&n| n <= room);
    let count = count.ok_or(Violation::SegmentsTooMany)?;
    for _ in 0..count {
        let s = take(rest, segment)?;
        if s.offset.checked_add(u64::from(s.len)).is_none() {
            return Err(Violation::SegmentWraps);
        }
    }
    shape.segments += count;
    Ok(())
}

/// No byte of the peer's memory is named twice by what this side may write to.
pub fn no_overlap<'a>(targets: impl Iterator<Item = &'a RemoteSeg>) -> Result<(), Violation> {
    let mut sorted: Vec<RemoteSeg> = targets.filter(|s| s.len > 0).copied().collect();
    sorted.sort_unstable_by_key(|s| (s.handle, s.offset));
    let overlap = sorted.windows(2).any(|pair| match pair {
        [a, b] => a.handle == b.handle && b.offset - a.offset < u64::from(a.len),
        _ => false,
    });
    if overlap { Err(Violation::SegmentsOverlap) } else { Ok(()) }
}
