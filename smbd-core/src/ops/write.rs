//! WRITE (MS-SMB2 section 3.3.5.13).
//!
//! *Operation.* Data in the message was received into separate buffers; data in client memory is fetched with RDMA Read after all
//! other checks, and verified or decrypted before use.
//!
//! *Memory.* At most `MaxWriteSize`, checked before any buffer is allocated.
//!
//! *Errors.* The token of an RDMA_V1_INVALIDATE request is invalidated also if the request fails.

use iobuf::Buf;
use rates::Kind;
use rdma_transport::channel::PullError;

use crate::answer::{Answer, ERROR_BODY};
use crate::dtyp::mask;
use crate::open::Open;
use crate::ops::bytes::Change;
use crate::ops::pipe;
use crate::ops::remote::{self, Remote};
use crate::request_context::RequestContext;
use crate::status::Status;
use crate::violation::Violation;
use crate::wire::create::option;
use crate::wire::negotiate::Dialect;
use crate::wire::write::{Request, Response, WRITE_THROUGH, WRITE_UNBUFFERED};

/// Largest offset of the data from the header (MS-SMB2 section 3.3.5.13).
const DATA_OFFSET_MAX: u16 = 0x100;

pub(crate) async fn call(cx: &RequestContext) -> Result<Answer, Status> {
    let r = cx.parse(Request::parse)?;
    let remote = remote::for_write(cx, &r)?;
    let channel = r.transform.as_ref().map_or(r.channel, |t| Some(t.channel));
    let invalidate = remote::token(cx, channel, &r.descriptors);
    match write(cx, &r, remote).await {
        Ok(count) => {
            let body = Response { count }.emit();
            Ok(Answer { body, invalidate, ..Answer::default() })
        }
        Err(status) if invalidate.is_some() => {
            Ok(Answer { status, body: ERROR_BODY.to_vec(), invalidate, ..Answer::default() })
        }
        Err(status) => Err(status),
    }
}

async fn write(cx: &RequestContext, r: &Request, remote: Option<Remote>) -> Result<u32, Status> {
    let open = cx.open(r.file)?;
    let _writing = open.caching.writing();
    let len = if remote.is_some() { r.remaining } else { r.length };
    let max = cx.conn.negotiated().map_or(0, |n| n.write_max);
    if len > max || remote.is_some() && (r.length != 0 || r.data_offset != 0) {
        return Err(Status::INVALID_PARAMETER);
    }
    if let Some(remote) = &remote {
        remote.check(r.transform.as_ref())?;
    }
    cx.check_charge(len)?;
    if open.pipe().is_some() {
        if cx.conn.dialect().is_3() && r.flags & (WRITE_THROUGH | WRITE_UNBUFFERED) != 0 {
            return Err(Status::INVALID_PARAMETER);
        }
        let data = fetch(cx, r, remote, len).await?;
        return pipe::write(cx, &open, data).await.map(|()| len);
    }
    if open.is_dir() {
        return Err(Status::INVALID_DEVICE_REQUEST);
    }
    if is_through(cx, r) && !is_unbuffered(cx, &open, r) {
        return Err(Status::INVALID_PARAMETER);
    }
    // Fails below with the status of each reason.
    if open.check(mask::WRITE_DATA | mask::APPEND_DATA).is_ok() {
        cx.in_rates_of(&open, Kind::Write, len, r.length).await?;
    }
    let right = cx.changing(&open, Change::Write { at: r.offset, len: len.into() }).await?;
    let data = fetch(cx, r, remote, len).await?;
    if len == 0 {
        return Ok(0);
    }
    let (at, count) = right.write(0, data, is_through(cx, r)).await?;
    cx.moved(u32::try_from(count).unwrap_or(len));
    open.open_state.set_position(at.saturating_add(u64::from(len)));
    right.done().await?;
    if count < usize::try_from(len).unwrap_or(usize::MAX) {
        return Err(Status::DISK_FULL);
    }
    Ok(len)
}

/// Returns the data of the request, fetching it from client memory if necessary.
async fn fetch(
    cx: &RequestContext,
    r: &Request,
    remote: Option<Remote>,
    len: u32,
) -> Result<Vec<Buf>, Status> {
    match remote {
        Some(mut remote) if len > 0 => {
            let segs = std::mem::take(&mut remote.segs);
            let data = cx.conn.handle.pull(segs).await.map_err(|e| {
                tracing::debug!(peer = %cx.conn.info.peer, "WRITE could not be fetched: {e}");
                match e {
                    PullError::NoMemory => Status::INSUFFICIENT_RESOURCES,
                    _ => Status::UNEXPECTED_IO_ERROR,
                }
            })?;
            remote.unprotect(r.transform.as_ref(), data).inspect_err(|_| {
                Violation::Payload.note(
                    &cx.conn,
                    "the data read from the client's memory does not match its signature",
                );
            })
        }
        Some(_) => Ok(Vec::new()),
        None => inline(cx, r),
    }
}

/// Returns the data inside the message without a copy.
fn inline(cx: &RequestContext, r: &Request) -> Result<Vec<Buf>, Status> {
    if r.length == 0 {
        return Ok(Vec::new());
    }
    let len = usize::try_from(r.length).map_err(|_| Status::INVALID_PARAMETER)?;
    // The data follows the fixed part and the channel information (MS-SMB2 section 3.3.5.13).
    if !(Request::DATA_OFFSET..=DATA_OFFSET_MAX).contains(&r.data_offset) {
        return Err(Status::INVALID_PARAMETER);
    }
    cx.bulk(usize::from(r.data_offset), len)
}

/// Returns whether the handle, or since dialect 3.0.2 the request, is unbuffered. Only such writes may have the write-through flag
/// (MS-SMB2 section 3.3.5.13), because handles that write through are opened with FILE_WRITE_THROUGH.
fn is_unbuffered(cx: &RequestContext, open: &Open, r: &Request) -> bool {
    let by_request = cx.conn.dialect() >= Dialect::V302 && r.flags & WRITE_UNBUFFERED != 0;
    by_request || open.options & option::NO_INTERMEDIATE_BUFFERING != 0
}

/// Returns whether the request has the write-through flag, which has no meaning in dialect 2.0.2.
fn is_through(cx: &RequestContext, r: &Request) -> bool {
    r.flags & WRITE_THROUGH != 0 && cx.conn.dialect() > Dialect::V202
}
