//! The client's side of an SMB connection: whole messages both ways, in any order.
//!
//! *Operation.* One task owns a [`Messages`] and polls it. What an answer belongs to is said by the messages themselves.
//!
//! *Memory.* As in [`crate::channel`]: bulk data leaves from the buffers it is in. On RDMA the client registers memory and names
//! it in its requests; on a byte stream large answers are read straight into pool buffers.
//!
//! *Errors.* After an error a connection is over.

use std::sync::Arc;
use std::task::{Context, Poll};

use iobuf::Buf;

use crate::channel::{ChannelError, Info, ReadChunkData, Reply};
use crate::verbs::{Refused, Region, RemoteSeg};

/// A message of the server.
#[derive(Debug)]
pub struct Message {
    /// The message without what stands in `read_chunks`.
    pub body: Buf,
    /// Bulk data, `at` ascending, as in a [`crate::channel::Request`].
    pub read_chunks: Vec<ReadChunkData>,
}

/// One connection, owned by the task that polls it.
pub trait Messages: Send {
    /// What is known of it.
    fn info(&self) -> &Arc<Info>;

    /// Queues a message, all of it inline. It leaves at a poll.
    fn send(&mut self, message: Reply);

    /// Sends what is queued, then yields what has come. After an error it must not be polled again.
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Message, ChannelError>>;

    /// Lets the server touch this memory until it is released, invalidated, or the connection ends. Refused on a byte stream.
    fn register(&mut self, region: Region) -> Result<RemoteSeg, (Refused, Region)>;

    /// Takes it back.
    fn release(&mut self, handle: u32) -> Option<Region>;
}
