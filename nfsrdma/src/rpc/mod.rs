//! ONC RPC version 2 (RFC 5531): credentials by number ([`auth`]) or Kerberos ([`gss`]), and calls from the server to programs on a
//! client's host ([`outgoing`]).

pub mod auth;
pub mod callee;
pub mod gss;
pub mod outgoing;
pub(crate) mod reply;

pub use auth::{Flavor, decode_cred};
pub use nfs_proto::oncrpc::program;

use nfs_proto::oncrpc::{CallError, CallHead};

use rdma_transport::xdr::Reader;

/// Decodes the head of a call; the arguments remain in `r`.
pub fn decode_call<'a>(r: &mut Reader<'a>) -> Result<CallHead<'a>, CallError> {
    let (arguments, head) = CallHead::decode(r.rest()).map_err(|(error, _)| error)?;
    r.skip_to(arguments);
    Ok(head)
}
