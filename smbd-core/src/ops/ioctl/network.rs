//! FSCTL_QUERY_NETWORK_INTERFACE_INFO (MS-SMB2 section 3.3.5.15.11): lists the server's interfaces and whether they support RDMA.

use rdma_transport::channel::Facts;

use crate::answer::Answer;
use crate::request_context::RequestContext;
use crate::status::Status;
use crate::wire::FileId;
use crate::wire::fsctl::{INTERFACE_LEN, emit_interfaces};
use crate::wire::ioctl::{Request, Response};
use crate::wire::negotiate::CAP_MULTI_CHANNEL;

pub(super) fn interfaces(cx: &RequestContext, r: &Request<'_>) -> Result<Answer, Status> {
    let n = cx.conn.negotiated().ok_or(Status::NOT_SUPPORTED)?;
    if !n.dialect.is_3() || n.capabilities & CAP_MULTI_CHANNEL == 0 {
        return Err(Status::NOT_SUPPORTED);
    }
    let list = cx.server.interfaces.seen_from(cx.conn.info.local.ip());
    // Clients cannot tell interfaces without an index apart, so omit them.
    let list: Vec<_> = list.iter().copied().filter(|i| i.index != 0).collect();
    let rdma = list.iter().filter(|i| i.rdma).count();
    let facts = &cx.conn.info.facts;
    facts.note("addresses told", list.len().to_string());
    facts.note(Facts::RDMA_TOLD, rdma.to_string());
    let output = emit_interfaces(&list);
    let max = usize::try_from(r.output_max).unwrap_or(usize::MAX);
    let response = |output: &[u8]| Response { code: r.code, file: FileId::PREVIOUS, output }.emit();
    if output.len() <= max {
        return Ok(Answer::ok(response(&output)));
    }
    if max < INTERFACE_LEN {
        return Err(Status::BUFFER_TOO_SMALL);
    }
    // Emit whole records only, so that the last one is marked as the last.
    let some = emit_interfaces(&list[..max / INTERFACE_LEN]);
    Ok(Answer::with_status(Status::BUFFER_OVERFLOW, response(&some)))
}
