//! IOCTL (MS-SMB2 section 3.3.5.15): makes the checks common to all control codes and dispatches to the handler.

mod copy;
mod copy_file;
mod copy_range;
pub(crate) mod dfs;
mod duplicate;
mod marks;
mod negotiate;
mod network;
mod ranges;
mod reparse;
mod snapshots;

use std::sync::Arc;

use rates::Kind;
use smb_proto::wire::Fault;
use vfs::namespace::FileOps;

use crate::answer::Answer;
use crate::open::{File, Open};
use crate::ops::bytes::{self, Change, Changing};
use crate::request_context::RequestContext;
use crate::status::Status;
use crate::wire::FileId;
use crate::wire::fsctl::code;
use crate::wire::fsctl::{PipeWait, Resiliency};
use crate::wire::ioctl::{IS_FSCTL, Request, Response};
use crate::wire::negotiate::Dialect;

pub(crate) async fn call(cx: &RequestContext) -> Result<Answer, Status> {
    let r = cx.parse(Request::parse)?;
    let output = r.output_max.checked_add(r.input_max).ok_or(Status::INVALID_PARAMETER)?;
    let input = u32::try_from(r.input.len()).map_err(|_| Status::INVALID_PARAMETER)?;
    let transact_max = cx.conn.negotiated().map_or(0, |n| n.transact_max);
    if input.max(r.output_max).max(r.input_max) > transact_max {
        return Err(Status::INVALID_PARAMETER);
    }
    cx.check_charge(input.max(output))?;
    cx.tree()?;
    if r.flags != IS_FSCTL {
        return Err(Status::NOT_SUPPORTED);
    }
    let without_file = matches!(
        r.code,
        code::DFS_GET_REFERRALS
            | code::DFS_GET_REFERRALS_EX
            | code::QUERY_NETWORK_INTERFACE_INFO
            | code::VALIDATE_NEGOTIATE_INFO
            | code::PIPE_WAIT
    );
    if !without_file {
        return on_open(cx, &r).await;
    }
    if r.file != FileId::PREVIOUS {
        return Err(Status::INVALID_PARAMETER);
    }
    match r.code {
        code::VALIDATE_NEGOTIATE_INFO => negotiate::validate(cx, &r).await,
        code::QUERY_NETWORK_INTERFACE_INFO => network::interfaces(cx, &r),
        code::DFS_GET_REFERRALS | code::DFS_GET_REFERRALS_EX => dfs::referrals(cx, &r).await,
        _ => pipe_wait(cx, &r),
    }
}

/// Answers FSCTL_PIPE_WAIT (MS-FSCC section 2.3.49). Pipes have no instance limit, so the wait ends at once.
fn pipe_wait(cx: &RequestContext, r: &Request<'_>) -> Result<Answer, Status> {
    if !cx.tree()?.is_pipes() {
        return Err(Status::INVALID_DEVICE_REQUEST);
    }
    // An invalid name matches no pipe (MS-SMB2 section 3.3.5.15.10).
    let wait = PipeWait::parse(r.input).map_err(|_| Status::OBJECT_NAME_NOT_FOUND)?;
    crate::pipe::find(&wait.name)?;
    Ok(Answer::ok(Response { code: r.code, file: r.file, output: &[] }.emit()))
}

/// A control request on an open.
struct Asked<'a> {
    cx: &'a RequestContext,
    request: &'a Request<'a>,
    open: Arc<Open>,
}

async fn on_open(cx: &RequestContext, r: &Request<'_>) -> Result<Answer, Status> {
    let a = Asked { cx, request: r, open: cx.open(r.file)? };
    if a.open.pipe().is_some() {
        let max = usize::try_from(r.output_max).unwrap_or(usize::MAX);
        let (status, out) = crate::ops::pipe::ioctl(cx, &a.open, r.code, r.input, max).await?;
        return Ok(Answer::with_status(status, a.response(&out)));
    }
    if !matches!(r.code, code::SRV_COPYCHUNK | code::SRV_COPYCHUNK_WRITE) {
        cx.in_rates_of(&a.open, Kind::Other, 0, 0).await?;
    }
    let done = on_file(&a).await;
    // A copy that failed halfway has changed data as well.
    bytes::settle(cx, &a.open).await?;
    done
}

async fn on_file(a: &Asked<'_>) -> Result<Answer, Status> {
    match a.request.code {
        code::SRV_REQUEST_RESUME_KEY => copy::resume_key(a),
        code::SRV_COPYCHUNK | code::SRV_COPYCHUNK_WRITE => copy::chunks(a).await,
        code::DUPLICATE_EXTENTS_TO_FILE => duplicate::extents(a).await,
        code::SET_SPARSE => ranges::set_sparse(a).await,
        code::SET_ZERO_DATA => ranges::set_zero_data(a).await,
        code::QUERY_ALLOCATED_RANGES => ranges::query_allocated(a).await,
        code::FILE_LEVEL_TRIM => ranges::trim(a).await,
        code::GET_REPARSE_POINT => reparse::get(a).await,
        code::SET_REPARSE_POINT => reparse::set(a).await,
        code::DELETE_REPARSE_POINT => reparse::delete(a).await,
        code::GET_COMPRESSION => marks::get_compression(a),
        code::SET_COMPRESSION => marks::set_compression(a),
        code::CREATE_OR_GET_OBJECT_ID | code::GET_OBJECT_ID => marks::object_id(a),
        code::SRV_ENUMERATE_SNAPSHOTS => snapshots::enumerate(a).await,
        // Windows file systems without stream snapshots return the same status.
        code::REFS_STREAM_SNAPSHOT_MANAGEMENT => Err(Status::NOT_SUPPORTED),
        // The server has no branch cache (MS-SMB2 section 3.3.5.15.7).
        code::SRV_READ_HASH => Err(Status::HASH_NOT_SUPPORTED),
        code::LMR_REQUEST_RESILIENCY => resilient(a),
        // Status for control codes that the file system does not know (MS-FSA section 2.1.5.10).
        _ => Err(Status::INVALID_DEVICE_REQUEST),
    }
}

/// Answers FSCTL_LMR_REQUEST_RESILIENCY (MS-SMB2 sections 2.2.31.3 and 3.3.5.15.9).
fn resilient(a: &Asked<'_>) -> Result<Answer, Status> {
    if a.cx.conn.dialect() == Dialect::V202 {
        return Err(Status::INVALID_DEVICE_REQUEST);
    }
    let Resiliency { timeout_ms } = a.parse(Resiliency::parse)?;
    if timeout_ms > crate::open_durable::TIMEOUT_MAX_MS {
        return Err(Status::INVALID_PARAMETER);
    }
    a.data()?;
    let session = a.cx.session()?;
    let owner = session.user().map(|u| u.name.clone()).unwrap_or_default();
    a.open.durable.set_resilient(session.client_guid(), owner, timeout_ms);
    a.answer(&[])
}

impl Asked<'_> {
    /// Returns the file or stream; fails with STATUS_INVALID_DEVICE_REQUEST for a pipe.
    fn file(&self) -> Result<&File, Status> {
        self.open.file()
    }

    /// Returns the file or stream; fails for directories.
    fn data(&self) -> Result<&File, Status> {
        if self.open.is_dir() {
            return Err(Status::INVALID_PARAMETER);
        }
        self.file()
    }

    /// Returns the right to change bytes of the file; see [`crate::ops::bytes`].
    async fn may_change(&self, change: Change) -> Result<Changing<'_>, Status> {
        self.cx.changing(&self.open, change).await
    }

    fn input(&self) -> &[u8] {
        self.request.input
    }

    /// Parses the input with this parser ([`RequestContext::parse_part`]).
    fn parse<T>(&self, parser: impl FnOnce(&[u8]) -> Result<T, Fault>) -> Result<T, Status> {
        self.cx.parse_part(self.input(), parser)
    }

    /// Returns `FileOps` for the client that has this file open.
    fn file_ops(&self) -> FileOps<'_> {
        self.file_ops_of(&self.open)
    }

    /// Returns `FileOps` for the client that has another file open.
    fn file_ops_of<'a>(&'a self, open: &'a Open) -> FileOps<'a> {
        self.cx.file_ops(open)
    }

    /// Returns the status `or` unless the output may have this many bytes.
    fn room(&self, bytes: u32, or: Status) -> Result<(), Status> {
        if self.request.output_max >= bytes { Ok(()) } else { Err(or) }
    }

    fn response(&self, output: &[u8]) -> Vec<u8> {
        Response { code: self.request.code, file: self.open.id, output }.emit()
    }

    /// Builds the response with this output, which must fit.
    fn answer(&self, output: &[u8]) -> Result<Answer, Status> {
        Ok(Answer::ok(self.response(output)))
    }

    /// Builds the response, truncated with a warning to the size that the client accepts.
    fn cut(&self, output: &[u8]) -> Result<Answer, Status> {
        let max = usize::try_from(self.request.output_max).unwrap_or(usize::MAX);
        match output.get(..max) {
            Some(part) if part.len() < output.len() => {
                Ok(Answer::with_status(Status::BUFFER_OVERFLOW, self.response(part)))
            }
            _ => self.answer(output),
        }
    }
}
