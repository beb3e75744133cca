//! Plans the transfer of a reply: which bytes go by RDMA Write, and which by Send. No I/O.
//!
//! Every byte of a reply is transferred once and in order; only the padding of moved payloads is omitted (RFC 8166 section
//! 3.4.6.2).

use iobuf::Buf;

use super::chunks::ReplyChunks;
use super::wire::{Lists, PREFIX_LEN, Prefix, RDMA_MSG, RDMA_NOMSG, VERSION};
use crate::channel::{Payload, Place, RemoteSeg, Reply};
pub use crate::moves::RdmaWrite;
use crate::moves::{pieces, scatter};

/// A reply ready for posting: the Writes, then one Send.
#[derive(Debug, Default)]
pub struct Plan {
    /// RDMA Writes, in order.
    pub writes: Vec<RdmaWrite>,
    /// The pieces of the Send.
    pub send: Vec<Buf>,
}

/// The reply exceeds the chunks of its call (RFC 8166 section 4.5.3: ERR_CHUNK).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooBig {
    /// A result is longer than its Write chunk.
    WriteChunk,
    /// The rest is longer than a Send, and the Reply chunk is missing or too short. Or it consists of file pages, which a queue
    /// pair cannot send: an internal error.
    Message,
}

/// Plans the reply to the call `xid` that made `offer`. A Send takes `inline_max` bytes.
pub fn plan(
    xid: u32,
    credits: u32,
    offer: ReplyChunks,
    reply: Reply,
    inline_max: usize,
) -> Result<Plan, TooBig> {
    if reply.payloads.iter().any(|p| p.pages.is_some()) {
        return Err(TooBig::Message);
    }
    let mut lists = Lists { reads: Vec::new(), writes: offer.writes, reply: offer.reply };
    let mut writes = Vec::new();
    let stay = move_payloads(&mut lists.writes, reply.payloads, &mut writes)?;

    let header_len = PREFIX_LEN + lists.len();
    let payload_len: usize = stay.iter().map(|p| p.len() + usize::from(p.pad)).sum();
    let prefix = Prefix { xid, vers: VERSION, credits, proc: RDMA_MSG };
    if header_len + reply.head.len() + payload_len <= inline_max {
        for unused in lists.reply.iter_mut().flatten() {
            unused.len = 0;
        }
        let mut message = Vec::with_capacity(header_len + reply.head.len());
        prefix.emit(&mut message);
        lists.emit(&mut message);
        message.extend_from_slice(&reply.head);
        return Ok(Plan { writes, send: pieces(message.into(), header_len, stay) });
    }
    let chunk = lists.reply.as_mut().filter(|_| header_len <= inline_max);
    let chunk = chunk.ok_or(TooBig::Message)?;
    let pieces = pieces(reply.head.into(), 0, stay);
    scatter(pieces, chunk, &mut writes).ok_or(TooBig::Message)?;
    let mut message = Vec::with_capacity(header_len);
    Prefix { proc: RDMA_NOMSG, ..prefix }.emit(&mut message);
    lists.emit(&mut message);
    Ok(Plan { writes, send: vec![message.into()] })
}

/// Assigns each payload that may be moved to the next Write chunk, and returns the others. A chunk without segments keeps its
/// payload inline (RFC 8166 section 3.4.6.1); unused chunks are returned with lengths of zero.
fn move_payloads(
    chunks: &mut [Vec<RemoteSeg>],
    payloads: Vec<Payload>,
    writes: &mut Vec<RdmaWrite>,
) -> Result<Vec<Payload>, TooBig> {
    let mut chunks = chunks.iter_mut();
    let mut stay = Vec::new();
    for payload in payloads {
        let chunk = if payload.place == Place::Eligible { chunks.next() } else { None };
        match chunk.filter(|segments| !segments.is_empty()) {
            Some(chunk) => scatter(payload.data, chunk, writes).ok_or(TooBig::WriteChunk)?,
            None => stay.push(payload),
        }
    }
    for unused in chunks.flatten() {
        unused.len = 0;
    }
    Ok(stay)
}

#[cfg(test)]
mod tests;
