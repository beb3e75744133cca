//! RENEW (RFC 7530 section 16.31).
//!
//! *Errors.* NFS4ERR_ACCESS for another principal than the one that introduced the client, while the client holds something: it
//! would keep alive what it has no part in. A user with an open or a delegation of the client may, since each use of it renews the
//! lease (section 9.5); Linux sends RENEW as such a user where it has no credential of the machine. A share's `squash` changes who
//! acts on files, not who calls: callers are compared as they came.

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
        // Only what was before a restart is stale: a client that thinks of one would reclaim.
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
