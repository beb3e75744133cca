//! The client's side of a connection: calls go out, answers come back in any order, with their bulk data beside them.
//!
//! *Operation.* One task owns a [`Caller`] and polls it. [`Caller::call`] queues; [`Caller::poll_event`] moves bytes both
//! ways and yields answers, and calls of the server (NFSv4.1 callbacks). Whoever calls numbers its calls.
//!
//! *Memory.* As in [`crate::channel`]: bulk arguments leave from the buffers they are in, bulk results stand in
//! [`Answer::read_chunks`]. On RDMA the client offers its memory and the server moves the bytes; on a byte stream they are read
//! straight into a pool buffer when they are large.
//!
//! *Errors.* The end of the connection ends all calls under way; what can be repeated is the caller's to know.

use std::sync::Arc;
use std::task::{Context, Poll};

use iobuf::Buf;

use crate::channel::{ChannelError, Info, Payload, ReadChunkData};

/// Where the bulk data of a reply stands, from the reply's first bytes (the xid onwards): offset and length in bytes.
/// `None`: there is none, or the bytes do not reach far enough to tell. The offset is that of an inline copy, directly
/// behind the length word. Pure.
pub type LocateResult = fn(&[u8]) -> Option<(usize, usize)>;

/// A bulk result that a call expects.
#[derive(Clone, Copy, Debug)]
pub struct BulkResult {
    /// Most bytes of it: the length of the Write chunk that RDMA offers. 0 offers none.
    pub max: usize,
    /// Finds it in the reply.
    pub locate: LocateResult,
}

#[derive(Clone, Debug)]
pub struct Call {
    /// The RPC message without bulk data, from its xid on. The xid is not that of another call under way.
    pub head: Vec<u8>,
    /// Bulk arguments, `at` ascending. On RDMA each becomes a Read chunk unless it is short enough to go inline.
    pub payloads: Vec<Payload>,
    /// Most bytes of the reply without its bulk data. RDMA offers a Reply chunk if that is above the inline threshold.
    pub reply_max: usize,
    /// The bulk result, if there may be one.
    pub bulk: Option<BulkResult>,
}

impl Call {
    /// The number of the call: the first word of the message.
    pub fn xid(&self) -> u32 {
        self.head.first_chunk().map_or(0, |x| u32::from_be_bytes(*x))
    }
}

#[derive(Clone, Debug)]
pub struct Answer {
    /// The RPC reply without what stands in `read_chunks`, from its xid on.
    pub body: Buf,
    /// Bulk data, `at` ascending, as in a [`crate::channel::Request`].
    pub read_chunks: Vec<ReadChunkData>,
}

/// What a [`Caller`] yields.
#[derive(Debug)]
pub enum Event {
    /// The answer to the call of this number.
    Answer(u32, Answer),
    /// There will be no answer to the call of this number, though the connection goes on.
    Refused(u32, ChannelError),
    /// The server calls: the whole RPC message, from its xid on. [`Caller::answer`] answers.
    Callback(Buf),
}

/// One connection, owned by the task that polls it.
pub trait Caller: Send {
    /// What is known of it. [`Info::traffic`] is from this side's point of view: `rdma_write` counts what the server
    /// wrote into our memory, `rdma_read` what it read from it.
    fn info(&self) -> &Arc<Info>;

    /// Queues a call. It leaves at a poll; RDMA keeps it until the server's credits allow it.
    fn call(&mut self, call: Call);

    /// Queues the answer to a callback: a whole RPC reply with the callback's xid.
    fn answer(&mut self, reply: Vec<u8>);

    /// Sends what is queued, then yields what has come. After an error it must not be polled again.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, ChannelError>>;
}
