//! The client's side of SMB Direct (the initiator of MS-SMBD).
//!
//! *Operation.* The negotiation begins with the first poll; messages queued before its end wait. Memory named in requests is
//! registered with the queue pair while they are in progress.
//!
//! *Memory.* See `port`. Registered memory belongs to the queue pair until it is released.
//!
//! *Errors.* The errors of the port, and a server that makes no progress for [`limits::STALL_SECONDS_MAX`](crate::limits).

use std::sync::Arc;
use std::task::{Context, Poll};

use iobuf::Pool;

use super::port::{Port, params};
use crate::channel::{ChannelError, Info, Reply};
use crate::limits;
use crate::messages::{Message, Messages};
use crate::verbs::{ConnectParams, QueuePair, Refused, Region, RemoteSeg};

/// SMB over one RDMA connection, from the client's side.
pub struct SmbDirectCaller {
    port: Port,
}

impl SmbDirectCaller {
    /// The parameters for dialling a connection of this kind.
    pub fn connect_params() -> ConnectParams {
        ConnectParams { reads_in: limits::SMBD_READS_OUT, ..params() }
    }

    /// Wraps a dialled queue pair. `recvs` provides receive buffers.
    pub fn new(qp: Box<dyn QueuePair>, info: Arc<Info>, recvs: Pool) -> Result<Self, ChannelError> {
        Ok(Self { port: Port::initiator(qp, info, recvs)? })
    }

    /// True after the negotiation; then [`Info::message_out_max`] is the largest message.
    pub fn is_established(&self) -> bool {
        self.port.is_established()
    }
}

impl Messages for SmbDirectCaller {
    fn info(&self) -> &Arc<Info> {
        &self.port.info
    }

    fn send(&mut self, message: Reply) {
        self.port.push(message);
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Message, ChannelError>> {
        loop {
            if let Some((body, read_chunks)) = self.port.pop() {
                return Poll::Ready(Ok(Message { body, read_chunks }));
            }
            match self.port.poll(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending if self.port.is_ready() => {}
                Poll::Pending => return self.port.poll_stalled(false, false, cx).map(Err),
            }
        }
    }

    fn register(&mut self, region: Region) -> Result<RemoteSeg, (Refused, Region)> {
        self.port.link.qp.register(region)
    }

    fn release(&mut self, handle: u32) -> Option<Region> {
        self.port.link.qp.release(handle)
    }
}
