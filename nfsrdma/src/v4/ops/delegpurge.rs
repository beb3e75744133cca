//! DELEGPURGE (RFC 8881 section 18.5) is not supported: delegations of a client's previous run are not kept for
//! CLAIM_DELEGATE_PREV.

use crate::v4::compound::Compound;
use crate::v4::status::Status;

pub(in crate::v4) async fn delegpurge(cx: &mut Compound<'_>) -> Result<(), Status> {
    let _client_id: u64 = cx.args.value()?;
    Err(Status::NotSupp)
}
