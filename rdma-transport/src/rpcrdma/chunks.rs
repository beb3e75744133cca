//! Parses headers with their chunk lists. No I/O.

use wire::decode;

use super::check::{self, Violation};
use super::wire::{
    Lists, Prefix, RDMA_DONE, RDMA_ERROR, RDMA_MSG, RDMA_NOMSG, RdmaError, ReadSeg, VERSION,
};
use crate::calls::xid_and_is_reply;
use crate::channel::RemoteSeg;
use crate::limits;

/// Bulk data of a call, to be fetched by this side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadChunk {
    /// Position of the chunk in the message without any bulk data.
    pub at: usize,
    /// Total bytes of the segments.
    pub len: usize,
    /// The chunk's segments, in order.
    pub segments: Vec<RemoteSeg>,
}

/// Chunks of a call that the reply may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyChunks {
    /// Write chunks, one for each result that may be moved.
    pub writes: Vec<Vec<RemoteSeg>>,
    /// Reply chunk, for a reply too long for a Send.
    pub reply: Option<Vec<RemoteSeg>>,
    /// The handle that the reply may invalidate.
    pub invalidate: Option<u32>,
}

/// A message from the peer, split from its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A call, complete once its Read chunks are fetched.
    Call {
        /// Offset of the RPC message, if it follows the header.
        inline: Option<usize>,
        /// The RPC message itself, if it is in a Position Zero Read chunk.
        call: Option<ReadChunk>,
        /// The call's bulk data in ascending order of `at`.
        reads: Vec<ReadChunk>,
        /// The chunks for the reply.
        offer: ReplyChunks,
    },
    /// The reply to a reverse-direction call (RFC 8167), at this offset after the header.
    ReverseReply(usize),
    /// RDMA_ERROR: a reverse-direction call failed.
    Failed,
    /// RDMA_DONE: obsolete and ignored.
    Done,
}

/// Parses one message of a client. [`Violation::is_fatal`] tells whether an error can be answered.
pub fn parse(message: &[u8]) -> Result<(Prefix, Message), (Option<Prefix>, Violation)> {
    let (rest, prefix) = decode(message, Prefix::parse)
        .map_err(|why| (None, Violation::HeaderShort(why.at(message))))?;
    match body(prefix, message, rest) {
        Ok(m) => Ok((prefix, m)),
        Err(v) => Err((Some(prefix), v)),
    }
}

fn body(prefix: Prefix, message: &[u8], rest: &[u8]) -> Result<Message, Violation> {
    if prefix.vers != VERSION {
        return Err(Violation::Version(prefix.vers));
    }
    match prefix.proc {
        RDMA_MSG | RDMA_NOMSG => {}
        RDMA_ERROR => {
            return decode(rest, RdmaError::parse)
                .map(|_| Message::Failed)
                .map_err(|why| Violation::ErrorMalformed(why.at(message)));
        }
        RDMA_DONE => return Ok(Message::Done),
        other => return Err(Violation::Procedure(other)),
    }
    let (payload, lists) =
        decode(rest, Lists::parse).map_err(|why| Violation::of_lists(why, message))?;
    if prefix.proc == RDMA_NOMSG {
        return nomsg(lists, payload);
    }
    let (xid, is_reply) = xid_and_is_reply(payload).ok_or(Violation::MessageShort)?;
    if xid != prefix.xid {
        return Err(Violation::XidMismatch);
    }
    let inline = message.len() - payload.len();
    if is_reply {
        return if lists.is_empty() {
            Ok(Message::ReverseReply(inline))
        } else {
            Err(Violation::ReverseChunks)
        };
    }
    if lists.reads.iter().any(|r| r.position == 0) {
        return Err(Violation::CallChunkWithMessage);
    }
    let reads = read_chunks(&lists.reads, payload.len())?;
    let offer = offer(lists)?;
    Ok(Message::Call { inline: Some(inline), call: None, reads, offer })
}

fn nomsg(lists: Lists, payload: &[u8]) -> Result<Message, Violation> {
    if !payload.is_empty() {
        return Err(Violation::MessageAfterNoMsg);
    }
    let zero = lists.reads.iter().filter(|r| r.position == 0).map(|r| r.target);
    let call = chunk(0, zero.collect(), limits::RPC_RECORD_MAX)?;
    if call.segments.is_empty() {
        return Err(Violation::CallChunkMissing);
    }
    if call.len < limits::RPC_MESSAGE_MIN {
        return Err(Violation::MessageShort);
    }
    let reads = read_chunks(&lists.reads, call.len)?;
    let offer = offer(lists)?;
    Ok(Message::Call { inline: None, call: Some(call), reads, offer })
}

fn chunk(at: usize, segments: Vec<RemoteSeg>, max: usize) -> Result<ReadChunk, Violation> {
    let len: u64 = segments.iter().map(|s| u64::from(s.len)).sum();
    match usize::try_from(len) {
        Ok(len) if len <= max => Ok(ReadChunk { at, len, segments }),
        _ => Err(Violation::ChunkTooLong(len)),
    }
}

/// Groups the entries by position. Positions refer to the message with all bulk data and its padding (RFC 8166 section 3.4.5);
/// `message` is its length without them.
fn read_chunks(entries: &[ReadSeg], message: usize) -> Result<Vec<ReadChunk>, Violation> {
    let mut entries: Vec<ReadSeg> = entries.iter().filter(|e| e.position != 0).copied().collect();
    // The sort is stable, so the segments of a chunk stay in order.
    entries.sort_by_key(|e| e.position);
    let mut chunks: Vec<ReadChunk> = Vec::new();
    let mut moved: u64 = 0;
    let mut total: u64 = 0;
    for entry in entries.chunk_by(|a, b| a.position == b.position) {
        let position = entry.first().map_or(0, |e| e.position);
        if position % 4 != 0 {
            return Err(Violation::PositionUnaligned(position));
        }
        if chunks.len() == limits::RPCRDMA_CHUNKS_MAX {
            return Err(Violation::ReadsTooMany);
        }
        let at = u64::from(position).checked_sub(moved);
        let before = chunks.last().map_or(0, |c| c.at);
        let at = at.and_then(|at| usize::try_from(at).ok()).filter(|&at| at >= before);
        let at = at.ok_or(Violation::PositionOverlaps(position))?;
        if at > message {
            return Err(Violation::PositionBeyondMessage(position));
        }
        let segments = entry.iter().map(|e| e.target).collect();
        let chunk = chunk(at, segments, limits::RPC_PAYLOAD_MAX)?;
        moved += (chunk.len as u64).next_multiple_of(4);
        total += chunk.len as u64;
        chunks.push(chunk);
    }
    // One request never takes more memory than its largest legal payload.
    if total > limits::RPC_PAYLOAD_MAX as u64 {
        return Err(Violation::ChunkTooLong(total));
    }
    Ok(chunks)
}

fn offer(lists: Lists) -> Result<ReplyChunks, Violation> {
    let targets = || lists.writes.iter().flatten().chain(lists.reply.iter().flatten());
    if targets().nth(1).is_some() {
        check::no_overlap(targets())?;
    }
    // A handle is invalidated only if it is the only one: otherwise the client has to invalidate the others itself, and
    // invalidating all costs it no more.
    let mut handles = lists.reads.iter().map(|r| &r.target).chain(targets()).map(|s| s.handle);
    let first = handles.next();
    let invalidate = first.filter(|&first| handles.all(|h| h == first));
    Ok(ReplyChunks { writes: lists.writes, reply: lists.reply, invalidate })
}
