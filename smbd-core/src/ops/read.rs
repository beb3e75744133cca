//! READ (MS-SMB2 section 3.3.5.12).
//!
//! *Operation.* The backend's buffers go into the message without a copy, or are sent with RDMA Write to the memory that the
//! request names, then signed or encrypted separately if the request was and both sides support it. A message that is neither
//! signed, encrypted nor compressed may refer to the file's pages directly.
//!
//! *Memory.* At most `MaxReadSize`, checked before any buffer is allocated.
//!
//! *Errors.* The token of an RDMA_V1_INVALIDATE request is invalidated also if the request fails.

use std::sync::atomic::Ordering;

use iobuf::{Buf, Pages};
use rates::Kind;
use rdma_transport::channel::Place;

use crate::answer::{Answer, Bulk, ERROR_BODY};
use crate::compression;
use crate::dtyp::mask;
use crate::fscc::mac::AfpInfo;
use crate::mac::{self, Special};
use crate::open::Open;
use crate::ops::pipe;
use crate::ops::remote::{self, Remote};
use crate::request_context::RequestContext;
use crate::status::Status;
use crate::wire::negotiate::Dialect;
use crate::wire::read::{REQUEST_COMPRESSED, RESPONSE_TRANSFORM, Request, Response, UNBUFFERED};

pub(crate) async fn call(cx: &RequestContext) -> Result<Answer, Status> {
    let r = cx.parse(Request::parse)?;
    let remote = remote::for_read(cx, r.channel, &r.descriptors, r.length)?;
    let invalidate = remote::token(cx, r.channel, &r.descriptors);
    match read(cx, &r, remote).await {
        Ok(answer) => Ok(Answer { invalidate, ..answer }),
        Err(status) if invalidate.is_some() => {
            Ok(Answer { status, body: ERROR_BODY.to_vec(), invalidate, ..Answer::default() })
        }
        Err(status) => Err(status),
    }
}

async fn read(cx: &RequestContext, r: &Request, remote: Option<Remote>) -> Result<Answer, Status> {
    let open = cx.open(r.file)?;
    let max = cx.conn.negotiated().map_or(0, |n| n.read_max);
    if r.length > max {
        return Err(Status::INVALID_PARAMETER);
    }
    cx.check_charge(r.length)?;
    if open.pipe().is_some() {
        if cx.conn.dialect() >= Dialect::V302 && r.flags & UNBUFFERED != 0 {
            return Err(Status::INVALID_PARAMETER);
        }
        return of_pipe(cx, &open, r, remote).await;
    }
    let node = open.node()?;
    if open.is_dir() {
        return Err(Status::INVALID_DEVICE_REQUEST);
    }
    open.check(mask::READ_DATA | mask::EXECUTE)?;
    // Offsets are signed in the file system (MS-FSA section 2.1.5.3).
    let end = r.offset.checked_add(u64::from(r.length));
    if end.is_none_or(|e| i64::try_from(e).is_err()) {
        return Err(Status::INVALID_PARAMETER);
    }
    let count = usize::try_from(r.length).map_err(|_| Status::INVALID_PARAMETER)?;
    if remote.is_none() && !remote::fits(cx, count) {
        return Err(Status::INVALID_PARAMETER);
    }
    if count == 0 && r.minimum_count == 0 {
        // An empty read cannot conflict with a lock or a lease.
        return answer(cx, Vec::new(), None, 0, remote);
    }
    cx.in_rates_of(&open, Kind::Read, r.length, 0).await?;
    if open.file()?.special() == Some(Special::Info)
        && let Some(info) = finder_info(cx, &open, r.offset, count).await?
    {
        let len = u32::try_from(info.len()).map_err(|_| Status::INTERNAL_ERROR)?;
        if len == 0 || len < r.minimum_count {
            return Err(Status::END_OF_FILE);
        }
        cx.moved(len);
        return answer(cx, vec![info.into()], None, len, remote);
    }
    let file_ops = cx.file_ops(&open);
    let compresses = remote.is_none() && asks_compressed(cx, r);
    let into = if remote.is_none() && !compresses { cx.unseen() } else { &cx.conn.read_into };
    let got = file_ops.read(&node, None, r.offset, count, into);
    let got = cx.by_storage(got).await??;
    let len = u32::try_from(got.len()).map_err(|_| Status::INTERNAL_ERROR)?;
    if len == 0 && r.length > 0 || len < r.minimum_count {
        return Err(Status::END_OF_FILE);
    }
    cx.compresses.store(compresses, Ordering::Relaxed);
    open.open_state.set_position(r.offset + u64::from(len));
    cx.moved(len);
    answer(cx, got.data, got.pages, len, remote)
}

/// Reads FinderInfo as Apple's servers do ([`mac::info_read`]). The result is empty if a client other than macOS reads other
/// data; the caller then reads the stored bytes.
async fn finder_info(
    cx: &RequestContext,
    open: &Open,
    at: u64,
    count: usize,
) -> Result<Option<Vec<u8>>, Status> {
    // One byte more shows a stream that is too long.
    let (node, most) = (open.node()?, AfpInfo::LEN + 1);
    let file_ops = cx.file_ops(open);
    let got = file_ops.read(&node, None, 0, most, &cx.conn.read_into);
    let got = cx.by_storage(got).await??;
    let stored: Vec<u8> = got.data.iter().flat_map(|piece| piece.as_slice()).copied().collect();
    let is_other = !stored.is_empty() && !mac::is_info(&stored);
    if is_other && !open.open_state.by_macos {
        return Ok(None);
    }
    Ok(Some(mac::info_read(stored, at, count)))
}

/// Returns whether the client requests compression and has negotiated it. Other large responses to it may then be compressed too.
fn asks_compressed(cx: &RequestContext, r: &Request) -> bool {
    let asks = r.flags & REQUEST_COMPRESSED != 0 && compression::is_agreed(&cx.conn);
    if asks {
        cx.conn.wants_compressed.store(true, Ordering::Relaxed);
    }
    asks
}

/// Reads from a pipe: waiting data up to the end of its message, or the next data to arrive.
async fn of_pipe(
    cx: &RequestContext,
    open: &Open,
    r: &Request,
    remote: Option<Remote>,
) -> Result<Answer, Status> {
    let max = usize::try_from(r.length).map_err(|_| Status::INVALID_PARAMETER)?;
    let (status, data) = pipe::read(cx, open, max).await?;
    let len = u32::try_from(data.len()).map_err(|_| Status::INTERNAL_ERROR)?;
    Ok(Answer { status, ..answer(cx, vec![data.into()], None, len, remote)? })
}

/// Builds the response. Data sent with RDMA is counted in `DataRemaining`, and the data area describes how it is protected.
fn answer(
    cx: &RequestContext,
    data: Vec<Buf>,
    pages: Option<Pages>,
    len: u32,
    remote: Option<Remote>,
) -> Result<Answer, Status> {
    let inside = Response { data_offset: Response::DATA_OFFSET, ..Response::default() };
    let Some(remote) = remote else {
        let body = Response { data_length: len, ..inside }.emit();
        let place = Place::Inline;
        let bulk = Bulk { at: Response::LEN, data, pages, place, is_protected: false };
        return Ok(Answer { body, bulk: Some(bulk), ..Answer::default() });
    };
    let (data, transform) = remote.protect(cx.header.message_id, data)?;
    let mut described = Vec::new();
    if let Some(transform) = &transform {
        transform.put(&mut described, &[]);
    }
    let told = Response {
        data_length: u32::try_from(described.len()).map_err(|_| Status::INTERNAL_ERROR)?,
        data_remaining: len,
        flags: if transform.is_some() { RESPONSE_TRANSFORM } else { 0 },
        ..inside
    };
    let mut body = told.emit();
    body.append(&mut described);
    let (place, is_protected) = (Place::Remote(remote.segs), transform.is_some());
    let bulk = Bulk { at: body.len(), data, pages, place, is_protected };
    Ok(Answer { body, bulk: Some(bulk), ..Answer::default() })
}
