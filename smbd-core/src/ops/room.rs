//! Room for an answer that a client may take its time with.
//!
//! *Operation.* A command whose answer may be large takes its [`Room`] before it puts the answer together: as a READ does it waits
//! while its client leaves answers untaken, and for its part of the memory of messages. The answer is counted from then on until it
//! has left (`respond` in [`crate::compound`]).
//!
//! *Memory.* What the client asked for is counted as long as the command works.
//!
//! *Errors.* STATUS_INSUFFICIENT_RESOURCES when there is no memory in [`WAIT_MAX`].

use std::time::Duration;

use iobuf::{Admitted, Paid};
use tokio::time::timeout;

use crate::request_context::RequestContext;
use crate::status::Status;

/// Bytes of an answer that needs no room: as much as one credit pays for.
pub(crate) const SMALL_MAX: usize = crate::limits::CREDIT_BYTES as usize;
/// How long memory is waited for. A client that takes nothing gives its own back sooner: its connection ends.
const WAIT_MAX: Duration = Duration::from_secs(90);

/// Kept while an answer is put together.
pub(crate) struct Room<'a> {
    _turn: Admitted<'a>,
    _paid: Paid,
}

/// Room for an answer of so many bytes; `None` where it is small.
pub(crate) async fn room(cx: &RequestContext, bytes: u32) -> Result<Option<Room<'_>>, Status> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    if bytes <= SMALL_MAX {
        return Ok(None);
    }
    let info = &cx.conn.info;
    let room = async {
        let turn = info.backpressure.admit(bytes).await;
        let paid = timeout(WAIT_MAX, info.pool.pay(bytes)).await;
        Ok(Room { _turn: turn, _paid: paid.map_err(|_| Status::INSUFFICIENT_RESOURCES)? })
    };
    cx.by_storage(room).await?.map(Some)
}
