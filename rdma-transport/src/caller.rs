//! The client's side of a connection: sends calls, and receives replies in any order, with their bulk data separate.
//!
//! *Operation.* One task owns a [`Caller`] and polls it. [`Caller::call`] queues a call; [`Caller::poll_event`] moves bytes in both
//! directions and yields replies and calls of the server (NFSv4.1 callbacks). The user of this trait chooses the xids.
//!
//! *Memory.* As in [`crate::channel`]: bulk arguments are sent from their buffers, bulk results are in [`Answer::read_chunks`].
//! Over RDMA the client offers memory and the server moves the bytes; on a byte stream, large results are read directly into a pool
//! buffer.
//!
//! *Errors.* When the connection ends, so do all calls in progress; the user decides which ones to repeat.

use std::sync::Arc;
use std::task::{Context, Poll};

use iobuf::Buf;

use crate::channel::{ChannelError, Info, Payload, ReadChunkData};

/// Locates the bulk data of a reply from its first bytes (beginning with the xid): offset and length in bytes. `None` if there is
/// no bulk data, or if the bytes do not suffice to tell. The offset is the one of an inline copy, directly after the length word.
/// No side effects.
pub type LocateResult = fn(&[u8]) -> Option<(usize, usize)>;

/// A bulk result that a call expects.
#[derive(Clone, Copy, Debug)]
pub struct BulkResult {
    /// Maximum size: the length of the Write chunk offered over RDMA. 0 offers no chunk.
    pub max: usize,
    /// Locates it in the reply.
    pub locate: LocateResult,
}

#[derive(Clone, Debug)]
pub struct Call {
    /// The RPC message without bulk data, beginning with the xid, which no other call in progress may have.
    pub head: Vec<u8>,
    /// Bulk arguments in ascending order of `at`. Over RDMA each becomes a Read chunk unless it fits inline.
    pub payloads: Vec<Payload>,
    /// Maximum size of the reply without its bulk data. RDMA offers a Reply chunk if that exceeds the inline threshold.
    pub reply_max: usize,
    /// The bulk result, if there may be one.
    pub bulk: Option<BulkResult>,
}

impl Call {
    /// The xid: the first word of the message.
    pub fn xid(&self) -> u32 {
        self.head.first_chunk().map_or(0, |x| u32::from_be_bytes(*x))
    }
}

#[derive(Clone, Debug)]
pub struct Answer {
    /// The RPC reply without the data in `read_chunks`, beginning with the xid.
    pub body: Buf,
    /// Bulk data in ascending order of `at`, as in a [`crate::channel::Request`].
    pub read_chunks: Vec<ReadChunkData>,
}

/// An event of a [`Caller`].
#[derive(Debug)]
pub enum Event {
    /// The reply to the call with this xid.
    Answer(u32, Answer),
    /// The call with this xid gets no reply, though the connection continues.
    Refused(u32, ChannelError),
    /// A call from the server: the whole RPC message, beginning with the xid. [`Caller::answer`] replies to it.
    Callback(Buf),
}

/// One connection, owned by the task that polls it.
pub trait Caller: Send {
    /// Properties of the connection. [`Info::traffic`] is this side's view: `rdma_write` counts bytes that the server wrote into
    /// our memory, `rdma_read` bytes that it read.
    fn info(&self) -> &Arc<Info>;

    /// Queues a call, which is sent by a later poll; RDMA delays it until the server's credits allow it.
    fn call(&mut self, call: Call);

    /// Queues the reply to a callback: a whole RPC reply with the callback's xid.
    fn answer(&mut self, reply: Vec<u8>);

    /// Sends queued messages, then yields the next event. Must not be polled again after an error.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, ChannelError>>;
}
