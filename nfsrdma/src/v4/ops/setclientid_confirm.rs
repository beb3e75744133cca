//! SETCLIENTID_CONFIRM (RFC 7530 section 16.34).

use nfs_proto::nfs4::ops::ClientidConfirm;
use state::ClientId;

use crate::v4::compound::Compound;
use crate::v4::principal::Principal;
use crate::v4::status::Status;

pub(in crate::v4) async fn setclientid_confirm(cx: &mut Compound<'_>) -> Result<(), Status> {
    let ClientidConfirm { clientid, confirm } = cx.args.value()?;
    cx.nfs.clients.set_client_id_confirm(ClientId(clientid), confirm, Principal::of(cx.call))
}
