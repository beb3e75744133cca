//! WRITE (MS-SMB2 section 3.3.5.13).
//!
//! *Operation.* Data inside the message was read into buffers of its own when it came; data in the client's memory is fetched by
//! RDMA Read once everything else is known to be right.
//!
//! *Memory.* At most `MaxWriteSize`, checked before any buffer is taken.
//!
//! *Errors.* A request of channel RDMA_V1_INVALIDATE has its token invalidated also when it fails.

use std::sync::Arc;

use iobuf::Buf;
use rdma_transport::channel::RemoteSeg;
use vfs::Stable;
use vfs::watch::what;

use crate::compound::ERROR_BODY;
use crate::cx::{Answer, Cx};
use crate::open::Open;
use crate::ops::{pipe, remote, set_info, stream_notice};
use crate::status::Status;
use crate::wire::create::{access, option};
use crate::wire::negotiate::Dialect;
use crate::wire::write::{Request, Response, WRITE_THROUGH, WRITE_UNBUFFERED};

/// An offset that means the end of the file (MS-FSA section 2.1.5.4).
const END: u64 = u64::MAX;
/// The data begins no further from the header (MS-SMB2 section 3.3.5.13).
const DATA_OFFSET_MAX: u16 = 0x100;

/// Answers WRITE.
pub(crate) async fn call(cx: &Cx) -> Result<Answer, Status> {
    let r = Request::parse(&cx.message)?;
    let remote = remote::check(cx, r.channel, &r.descriptors, r.remaining)?;
    let invalidate = remote::token(cx, r.channel, &r.descriptors);
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

async fn write(cx: &Cx, r: &Request, remote: Option<Vec<RemoteSeg>>) -> Result<u32, Status> {
    let open = cx.open(r.file)?;
    let _writing = open.caching.writing();
    let len = if remote.is_some() { r.remaining } else { r.length };
    let max = cx.conn.negotiated().map_or(0, |n| n.write_max);
    if len > max || remote.is_some() && (r.length != 0 || r.data_offset != 0) {
        return Err(Status::INVALID_PARAMETER);
    }
    cx.check_charge(len)?;
    if open.pipe().is_some() {
        if cx.conn.dialect().is_3() && r.flags & (WRITE_THROUGH | WRITE_UNBUFFERED) != 0 {
            return Err(Status::INVALID_PARAMETER);
        }
        let data = fetch(cx, r, remote, len).await?;
        return pipe::write(cx, &open, data).await.map(|()| len);
    }
    let (node, share) = (open.node()?, open.share()?);
    if open.is_dir() {
        return Err(Status::INVALID_DEVICE_REQUEST);
    }
    open.check(access::WRITE_DATA | access::APPEND_DATA)?;
    let at = start(&open, r.offset, len).await?;
    let data = fetch(cx, r, remote, len).await?;
    if len == 0 {
        return Ok(0);
    }
    set_info::before_write(cx, &open).await?;
    let size = stream_notice::size_before(cx, open.file()?).await;
    let door = cx.door(&open);
    let done = door.write(share, &node, None, at, data, stable(cx, r, &open));
    let done = cx.or_cancelled(done).await??;
    cx.moved(u32::try_from(done.count).unwrap_or(len));
    open.extra.set_position(at + u64::from(len));
    open.caching.note_changed();
    set_info::archive(cx, &open).await?;
    set_info::give_times_back(cx, &open).await?;
    stream_notice::changed(cx, open.file()?, size, what::STREAM_WRITE).await;
    if done.count < usize::try_from(len).unwrap_or(usize::MAX) {
        return Err(Status::DISK_FULL);
    }
    Ok(len)
}

/// The data, wherever it is.
async fn fetch(
    cx: &Cx,
    r: &Request,
    remote: Option<Vec<RemoteSeg>>,
    len: u32,
) -> Result<Vec<Buf>, Status> {
    match remote {
        Some(segs) if len > 0 => cx.conn.handle.pull(segs).await.map_err(|e| {
            tracing::debug!(peer = %cx.conn.info.peer, "WRITE could not be fetched: {e}");
            Status::UNEXPECTED_IO_ERROR
        }),
        Some(_) => Ok(Vec::new()),
        None => inline(cx, r),
    }
}

/// The data inside the message, in place.
fn inline(cx: &Cx, r: &Request) -> Result<Vec<Buf>, Status> {
    if r.length == 0 {
        return Ok(Vec::new());
    }
    let len = usize::try_from(r.length).map_err(|_| Status::INVALID_PARAMETER)?;
    // The fixed part and the channel information come first (MS-SMB2 section 3.3.5.13).
    if !(Request::DATA_OFFSET..=DATA_OFFSET_MAX).contains(&r.data_offset) {
        return Err(Status::INVALID_PARAMETER);
    }
    cx.bulk(usize::from(r.data_offset), len)
}

/// Where the data goes. Whoever may only append changes nothing that is there (MS-SMB2 section 3.3.5.13).
async fn start(open: &Arc<Open>, offset: u64, len: u32) -> Result<u64, Status> {
    let appends = open.granted & access::WRITE_DATA == 0;
    if offset == END || appends {
        let size = open.node()?.getattr().await?.size;
        if offset == END {
            return Ok(size);
        }
        if offset < size && len > 0 {
            return Err(Status::ACCESS_DENIED);
        }
    }
    let end = offset.checked_add(u64::from(len));
    if end.and_then(|e| i64::try_from(e).ok()).is_none() {
        return Err(Status::INVALID_PARAMETER);
    }
    Ok(offset)
}

/// How durable the data must be before the answer. The flag means nothing in dialect 2.0.2.
fn stable(cx: &Cx, r: &Request, open: &Open) -> Stable {
    let asked = r.flags & WRITE_THROUGH != 0 && cx.conn.dialect() > Dialect::V202;
    if asked || open.options & option::WRITE_THROUGH != 0 { Stable::Data } else { Stable::Unstable }
}
