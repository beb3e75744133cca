//! SETCLIENTID (RFC 7530 section 16.33).

use nfs_proto::nfs4::Netaddr4;
use nfs_proto::nfs4::ops::{ClientidConfirm, Setclientid};
use rdma_transport::channel::Facts;

use crate::v4::compound::Compound;
use crate::v4::name::Name;
use crate::v4::principal::Principal;
use crate::v4::status::Status;

pub(in crate::v4) async fn setclientid(cx: &mut Compound<'_>) -> Result<(), Status> {
    // The callback address is ignored: minor version 0 gets no delegations, so there are no callbacks.
    let Setclientid { verifier, id: owner, .. } = cx.args.value()?;
    // Clients of minor version 0 do not name their implementation; Linux' is recognized by the prefix of its id.
    if owner.starts_with(b"Linux ") {
        cx.conn.info.facts.note(Facts::CLIENT, "Linux");
    }
    let (name, principal) = (Name::new(false, owner), Principal::of(cx.call));
    let at = cx.conn.info.peer.ip();
    match cx.nfs.clients.set_client_id(&name, verifier, principal, at).await {
        Ok((id, confirm)) => {
            if let Some(client) = cx.nfs.clients.find(id) {
                client.note_at(at);
            }
            cx.out.value(&ClientidConfirm { clientid: id.0, confirm });
            Ok(())
        }
        Err(status) => {
            if status == Status::ClidInUse {
                // The address of the client that uses the name is not disclosed.
                cx.out.value(&Netaddr4 { na_r_netid: b"", na_r_addr: b"" });
            }
            Err(status)
        }
    }
}
