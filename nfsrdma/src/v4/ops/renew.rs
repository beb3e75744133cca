//! RENEW (RFC 7530 section 16.31).

use state::ClientId;

use crate::v4::clients::ms;
use crate::v4::compound::Compound;
use crate::v4::stateid;
use crate::v4::status::Status;

pub(in crate::v4) async fn renew(cx: &mut Compound<'_>) -> Result<(), Status> {
    let id = ClientId(cx.args.value()?);
    cx.nfs.clients.tidy(ms(cx.call.now));
    cx.nfs.clients.find_v40(id).map(|_| ()).map_err(|status| match status {
        // Only what was before a restart is stale: a client that thinks of one would reclaim.
        Status::StaleClientId if cx.nfs.core.boot.instance == stateid::instance_of(id) => {
            Status::Expired
        }
        status => status,
    })
}
