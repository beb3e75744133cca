//! Rules of a header that a peer can violate. No I/O.

use std::fmt;

use wire::{Fault, Malformed, Rule};

use super::wire::WRITES;
use crate::channel::RemoteSeg;

/// A violated rule of RFC 8166 or RFC 8167.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Section 4.2: a message has xid, version, credits and procedure.
    HeaderShort(Fault),
    /// Section 4.2.2: the version is 1.
    Version(u32),
    /// Section 4.2.4: RDMA_MSG, RDMA_NOMSG or RDMA_ERROR; others are unknown or obsolete.
    Procedure(u32),
    /// Section 4.3: the lists end inside the message.
    ListTruncated(Fault),
    /// Section 4.3 and RFC 4506 section 4.19: an optional item is present (1) or absent (0).
    ListFlag(Fault),
    /// [`crate::limits::RPCRDMA_SEGMENTS_MAX`]
    SegmentsTooMany(Fault),
    /// [`crate::limits::RPCRDMA_CHUNKS_MAX`]: entries of the Write list.
    WritesTooMany(Fault),
    /// [`crate::limits::RPCRDMA_CHUNKS_MAX`]: positions in the Read list.
    ReadsTooMany,
    /// Section 4.1.1: a segment is within the 64-bit address space.
    SegmentWraps(Fault),
    /// [`crate::limits::RPC_PAYLOAD_MAX`]
    ChunkTooLong(u64),
    /// Section 3.4.5 and RFC 4506 section 3: a data item begins at a multiple of four.
    PositionUnaligned(u32),
    /// Section 3.4.5: the data of a Read chunk has its position inside the message.
    PositionBeyondMessage(u32),
    /// Section 3.4.5: the data of Read chunks does not overlap.
    PositionOverlaps(u32),
    /// Section 3.4.6: Write chunks and the Reply chunk name different memory.
    SegmentsOverlap,
    /// Section 3.5.1: a Position Zero Read chunk goes with RDMA_NOMSG.
    CallChunkWithMessage,
    /// Section 3.5.3: the message of an RDMA_NOMSG call is in a Position Zero Read chunk.
    CallChunkMissing,
    /// Section 3.5.3: RDMA_NOMSG has no data after its header.
    MessageAfterNoMsg,
    /// Section 4.2.1: the RPC message has the xid of the header.
    XidMismatch,
    /// RFC 5531 section 9: an RPC message has an xid and a type.
    MessageShort,
    /// Section 3.3.1: no more requests than were granted.
    CreditsOverrun,
    /// RFC 8167 section 5.1: reverse-direction messages have no chunks.
    ReverseChunks,
    /// Section 4.5: RDMA_ERROR contains an error code.
    ErrorMalformed(Fault),
    /// Section 3.5.3: the message of an RDMA_NOMSG reply is in the Reply chunk.
    ReplyChunkMissing,
    /// Section 3.4.6.2: a reply returns the chunks of its call.
    ListsChanged,
}

crate::rule_names!(Violation {
    Violation::HeaderShort(_) => "rpcrdma.header.short",
    Violation::Version(_) => "rpcrdma.header.version",
    Violation::Procedure(_) => "rpcrdma.header.procedure",
    Violation::ListTruncated(_) => "rpcrdma.list.truncated",
    Violation::ListFlag(_) => "rpcrdma.list.flag",
    Violation::SegmentsTooMany(_) => "rpcrdma.list.segments",
    Violation::WritesTooMany(_) | Violation::ReadsTooMany => "rpcrdma.list.chunks",
    Violation::SegmentWraps(_) => "rpcrdma.segment.wraps",
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
    Violation::ErrorMalformed(_) => "rpcrdma.error.malformed",
    Violation::ReplyChunkMissing => "rpcrdma.reply.no-chunk",
    Violation::ListsChanged => "rpcrdma.reply.lists",
});

impl Violation {
    /// The rule that the lists of `message` violate.
    pub(super) fn of_lists(why: Malformed<'_>, message: &[u8]) -> Self {
        let fault = why.at(message);
        match fault.rule {
            Rule::Truncated => Self::ListTruncated(fault),
            Rule::Value => Self::ListFlag(fault),
            Rule::OverLimit { .. } if fault.field == WRITES => Self::WritesTooMany(fault),
            Rule::OverLimit { .. } => Self::SegmentsTooMany(fault),
            Rule::OutOfBounds => Self::SegmentWraps(fault),
        }
    }

    /// True if the connection must end: the message cannot be answered, or the peer has miscounted its credits.
    pub fn is_fatal(self) -> bool {
        matches!(self, Self::HeaderShort(_) | Self::CreditsOverrun)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeaderShort(fault)
            | Self::ListTruncated(fault)
            | Self::ListFlag(fault)
            | Self::SegmentsTooMany(fault)
            | Self::WritesTooMany(fault)
            | Self::SegmentWraps(fault)
            | Self::ErrorMalformed(fault) => write!(f, "{fault}"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// Checks that the segments to be written name no byte of the peer's memory twice.
pub fn no_overlap<'a>(targets: impl Iterator<Item = &'a RemoteSeg>) -> Result<(), Violation> {
    let mut sorted: Vec<RemoteSeg> = targets.filter(|s| s.len > 0).copied().collect();
    sorted.sort_unstable_by_key(|s| (s.handle, s.offset));
    let overlap = sorted.windows(2).any(|pair| match pair {
        [a, b] => a.handle == b.handle && b.offset - a.offset < u64::from(a.len),
        _ => false,
    });
    if overlap { Err(Violation::SegmentsOverlap) } else { Ok(()) }
}
