//! ONC RPC version 2 (RFC 5531): who calls, by numbers ([`auth`]) or by Kerberos ([`gss`]), and calls of ours to a client's host
//! ([`outgoing`]).

pub mod auth;
pub mod callee;
pub mod gss;
pub mod outgoing;
pub(crate) mod reply;

pub use auth::{Flavor, decode_cred};
pub use nfs_proto::oncrpc::program;

use nfs_proto::oncrpc::{CallError, CallHead};

use rdma_transport::xdr::Reader;

/// Reads the head of a call; what is left in `r` are the arguments.
pub fn decode_call<'a>(r: &mut Reader<'a>) -> Result<CallHead<'a>, CallError> {
    let (arguments, head) = CallHead::decode(r.rest()).map_err(|(error, _)| error)?;
    r.skip_to(arguments);
    Ok(head)
}
