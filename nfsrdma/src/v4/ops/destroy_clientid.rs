//! DESTROY_CLIENTID (RFC 8881 section 18.50).

use state::ClientId;

use crate::v4::compound::Compound;
use crate::v4::status::Status;

pub(in crate::v4) async fn destroy_clientid(cx: &mut Compound<'_>) -> Result<(), Status> {
    let id = ClientId(cx.args.value()?);
    let clients = &cx.nfs.clients;
    // Clients of minor version 0 are not found here.
    let client = clients
        .find(id)
        .filter(|client| client.name.as_bytes().first() == Some(&1))
        .ok_or(Status::StaleClientId)?;
    cx.may_manage(&client)?;
    let busy = !client.sessions().is_empty() || !client.held().is_empty();
    if busy {
        return Err(Status::ClientIdBusy);
    }
    clients.leave(&client).await
}
