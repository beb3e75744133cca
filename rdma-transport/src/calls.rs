//! Callbacks to the peer, and the callers that wait for their replies. No I/O.

use std::collections::HashMap;

use iobuf::Buf;
use tokio::sync::oneshot;

use crate::channel::ChannelError;
use crate::limits;

/// The transaction id of an RPC message, and whether its type is REPLY (RFC 5531 section 9).
pub(crate) fn xid_and_is_reply(message: &[u8]) -> Option<(u32, bool)> {
    let &[a, b, c, d, e, f, g, h] = message.first_chunk::<8>()?;
    Some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]) == 1))
}

/// Callbacks of one connection that wait for their answers.
#[derive(Default)]
pub(crate) struct Calls {
    waiting: HashMap<u32, oneshot::Sender<Result<Buf, ChannelError>>>,
    next_xid: u32,
    /// Replies without a waiting caller.
    pub(crate) strays: u64,
}

impl Calls {
    /// True if another callback may start. Entries of callers that gave up are removed.
    pub(crate) fn has_room(&mut self) -> bool {
        if self.waiting.len() >= limits::CALLS_WAITING_MAX {
            self.waiting.retain(|_, answer| !answer.is_closed());
        }
        self.waiting.len() < limits::CALLS_WAITING_MAX
    }

    /// Assigns an xid; returns it with the message to send, or `None` if the message is too short to hold one.
    pub(crate) fn begin(
        &mut self,
        mut head: Vec<u8>,
        answer: oneshot::Sender<Result<Buf, ChannelError>>,
    ) -> Option<(u32, Vec<u8>)> {
        // A late reply may still carry the xid of a caller that gave up; reuse after 2^32 calls is safe.
        self.next_xid = self.next_xid.wrapping_add(1);
        head.first_chunk_mut::<4>()?.copy_from_slice(&self.next_xid.to_be_bytes());
        self.waiting.insert(self.next_xid, answer);
        Some((self.next_xid, head))
    }

    /// Delivers a reply to its caller; `false` if no caller waits for it.
    pub(crate) fn end(&mut self, xid: u32, answer: Result<Buf, ChannelError>) -> bool {
        match self.waiting.remove(&xid) {
            Some(caller) => {
                // The caller may have given up meanwhile.
                drop(caller.send(answer));
                true
            }
            None => {
                self.strays += 1;
                false
            }
        }
    }
}
