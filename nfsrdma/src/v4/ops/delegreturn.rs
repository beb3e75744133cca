//! DELEGRETURN (RFC 8881 section 18.6).

use crate::v4::compound::Compound;
use crate::v4::opens::Entry;
use crate::v4::resolve::resolve;
use crate::v4::status::Status;
use crate::v4::wire::Stateid;

pub(in crate::v4) async fn delegreturn(cx: &mut Compound<'_>) -> Result<(), Status> {
    let stateid = cx.args.value::<Stateid>()?;
    let file = cx.given_back()?.file();
    let named = resolve(cx, stateid)?;
    {
        let mut held = named.client.held();
        match named.entry(&mut held, file, cx.minor)? {
            Entry::Delegation(d) if d.revoked => return Err(Status::DelegRevoked),
            Entry::Delegation(_) => {}
            _ => return Err(Status::BadStateId),
        }
    }
    cx.nfs.clients.delegation_returned(&named.client, named.number);
    Ok(())
}
