//! SETCLIENTID_CONFIRM (RFC 7530 section 16.34).

use state::ClientId;

use crate::v4::client::Principal;
use crate::v4::compound::Compound;
use crate::v4::status::Status;

pub(in crate::v4) async fn setclientid_confirm(cx: &mut Compound<'_>) -> Result<(), Status> {
    let id = ClientId(cx.args.u64()?);
    let confirm = cx.args.fixed()?;
    cx.nfs.clients.set_client_id_confirm(id, confirm, Principal::of(cx.call))
}
