//! RENEW (RFC 7530 section 16.31).
//!
//! *Errors.* NFS4ERR_ACCESS if the client has state and the principal is not the one that introduced it: a foreign caller could
//! keep that state alive. A user with an open or a delegation of the client may renew, as each use of these renews the lease
//! (section 9.5); Linux sends RENEW as such a user if it has no machine credential. Callers are compared before a share's `squash`.

use state::ClientId;

use crate::v4::clients::ms;
use crate::v4::compound::Compound;
use crate::v4::principal::Principal;
use crate::v4::stateid;
use crate::v4::status::Status;

pub(in crate::v4) async fn renew(cx: &mut Compound<'_>) -> Result<(), Status> {
    let id = ClientId(cx.args.value()?);
    cx.nfs.clients.tidy(ms(cx.call.now));
    check_principal(cx, id)?;
    cx.nfs.clients.find_v40(id).map(|_| ()).map_err(|status| match status {
        // STALE_CLIENTID is only for ids from before a restart: it makes a client reclaim.
        Status::StaleClientId if cx.nfs.core.boot.instance == stateid::instance_of(id) => {
            Status::Expired
        }
        status => status,
    })
}

fn check_principal(cx: &Compound<'_>, id: ClientId) -> Result<(), Status> {
    let Some(client) = cx.nfs.clients.find(id) else { return Ok(()) };
    let caller = Principal::of(cx.call);
    if client.principal == caller {
        return Ok(());
    }
    let held = client.held();
    if held.is_empty() || held.has_file_of(caller) { Ok(()) } else { Err(Status::Access) }
}
