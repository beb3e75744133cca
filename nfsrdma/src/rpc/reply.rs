//! Replies to calls that are refused.

use nfs_proto::oncrpc::{AcceptStat, AuthStat, ReplyBody, ReplyHead};
use rdma_transport::channel::Reply;
use rdma_transport::xdr::Writer;

/// A reply that says why the call was refused.
pub(crate) fn refusal(xid: u32, stat: AcceptStat) -> Reply {
    let mut out = Writer::new();
    ReplyHead::accepted(xid, stat).emit(out.head());
    out.into_reply()
}

/// Encodes the whole reply to a call whose credential is refused.
pub(crate) fn auth_error(out: &mut Writer, xid: u32, stat: AuthStat) {
    ReplyHead { xid, body: ReplyBody::AuthError(stat) }.emit(out.head());
}
