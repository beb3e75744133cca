//! SETCLIENTID (RFC 7530 section 16.33).

use rdma_transport::channel::Facts;

use crate::v4::client::{Name, Principal};
use crate::v4::compound::Compound;
use crate::v4::limits::NETADDR_MAX;
use crate::v4::status::Status;
use crate::v4::wire::OPAQUE_LIMIT;

pub(in crate::v4) async fn setclientid(cx: &mut Compound<'_>) -> Result<(), Status> {
    let verifier = cx.args.fixed()?;
    let owner = cx.args.opaque(OPAQUE_LIMIT)?;
    // A client of minor version 0 says nothing of itself; the kernel's is known by how it begins its name.
    if owner.starts_with(b"Linux ") {
        cx.conn.info.facts.note(Facts::CLIENT, "Linux");
    }
    // Where this client could be called back. No delegations are given in minor version 0, so nobody calls.
    let _program = cx.args.u32()?;
    let _netid = cx.args.opaque(NETADDR_MAX)?;
    let _address = cx.args.opaque(NETADDR_MAX)?;
    let _ident = cx.args.u32()?;
    let (name, principal) = (Name::new(false, owner), Principal::of(cx.call));
    let at = cx.conn.info.peer.ip();
    match cx.nfs.clients.set_client_id(&name, verifier, principal, at).await {
        Ok((id, confirm)) => {
            if let Some(client) = cx.nfs.clients.find(id) {
                client.note_at(at);
            }
            cx.out.u64(id.0);
            cx.out.fixed(&confirm);
            Ok(())
        }
        Err(status) => {
            if status == Status::ClidInUse {
                // Who uses it: the address is nobody's business.
                cx.out.opaque(b"");
                cx.out.opaque(b"");
            }
            Err(status)
        }
    }
}
