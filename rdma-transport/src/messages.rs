//! The client's side of an SMB connection: whole messages in both directions, in any order.
//!
//! *Operation.* One task owns a [`Messages`] and polls it. The messages themselves tell which request a reply belongs to.
//!
//! *Memory.* As in [`crate::channel`]: bulk data is sent from its buffers. Over RDMA the client registers memory and names it in
//! its requests; on a byte stream large replies are read directly into pool buffers.
//!
//! *Errors.* Every error ends the connection.

use std::sync::Arc;
use std::task::{Context, Poll};

use iobuf::Buf;

use crate::channel::{ChannelError, Info, ReadChunkData, Reply};
use crate::verbs::{Refused, Region, RemoteSeg};

/// A message of the server.
#[derive(Debug)]
pub struct Message {
    /// The message without the data in `read_chunks`.
    pub body: Buf,
    /// Bulk data in ascending order of `at`, as in a [`crate::channel::Request`].
    pub read_chunks: Vec<ReadChunkData>,
}

/// One connection, owned by the task that polls it.
pub trait Messages: Send {
    /// Properties of the connection.
    fn info(&self) -> &Arc<Info>;

    /// Queues a message, all of it inline, which is sent by a later poll.
    fn send(&mut self, message: Reply);

    /// Sends queued messages, then yields the next message. Must not be polled again after an error.
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Message, ChannelError>>;

    /// Gives the server access to this memory until it is released, invalidated, or the connection ends. Not supported on a byte
    /// stream.
    fn register(&mut self, region: Region) -> Result<RemoteSeg, (Refused, Region)>;

    /// Ends that access and returns the memory.
    fn release(&mut self, handle: u32) -> Option<Region>;
}
