//! Reserves memory for a large response.
//!
//! *Operation.* A command with a possibly large response takes [`Room`] before it builds the response. Like READ, it waits while
//! its client leaves responses unread, and for its share of message memory. From then on the response is counted until it has been
//! sent (`respond` in [`crate::compound`]).
//!
//! *Memory.* The requested size is counted while the command runs.
//!
//! *Errors.* STATUS_INSUFFICIENT_RESOURCES if memory is not available within [`WAIT_MAX`].

use std::time::Duration;

use iobuf::{Admitted, Paid};
use tokio::time::timeout;

use crate::request_context::RequestContext;
use crate::status::Status;

/// Responses up to this size, which one credit covers, need no reservation.
pub(crate) const SMALL_MAX: usize = crate::limits::CREDIT_BYTES as usize;
/// Longest wait for memory. Clients that stop reading free their memory sooner, because their connection ends.
const WAIT_MAX: Duration = Duration::from_secs(90);

/// Held while a response is built.
pub(crate) struct Room<'a> {
    _turn: Admitted<'a>,
    _paid: Paid,
}

/// Reserves memory for a response of this many bytes; `None` if it is small.
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
