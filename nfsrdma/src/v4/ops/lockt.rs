//! LOCKT (RFC 8881 section 18.11).

use state::{ClientId, HolderId, LockVerdict, Who};

use crate::v4::compound::Compound;
use crate::v4::locks::{decode_range, decode_type, write_denied};
use crate::v4::opens::Entry;
use crate::v4::status::Status;
use crate::v4::wire::OPAQUE_LIMIT;

/// No holder has this number: numbers are given from 1 on.
const NOBODY: HolderId = HolderId(0);

pub(in crate::v4) async fn lockt(cx: &mut Compound<'_>) -> Result<(), Status> {
    let kind = decode_type(&mut cx.args)?;
    let (offset, length) = (cx.args.u64()?, cx.args.u64()?);
    let client_id = ClientId(cx.args.u64()?);
    let owner = cx.args.opaque(OPAQUE_LIMIT)?;
    let at = cx.file()?;
    let range = decode_range(offset, length)?;
    let client = match &cx.client {
        Some(client) => client.clone(),
        None => cx.nfs.clients.find_v40(client_id)?,
    };
    if cx.nfs.clients.in_grace() {
        return Err(cx.nfs.clients.not_yet());
    }
    let holder = {
        let held = client.held();
        let number = held.lock_owners.get(owner).and_then(|o| o.states.get(&at.node.id()));
        match number.and_then(|n| held.get(*n)) {
            Some(Entry::Lock(l)) => l.party.holder,
            _ => NOBODY,
        }
    };
    let keeper = cx.nfs.core.namespace.keeper();
    let who = Some(Who { client: client.id, holder: None });
    keeper.locks_known(at.node.id(), who).await?;
    let verdict = keeper.state().test(at.node.id(), holder, range, kind, cx.nfs.clients.now());
    match verdict {
        LockVerdict::Denied(lock) => {
            write_denied(cx, &lock);
            Err(Status::Denied)
        }
        // Those whose lease has lapsed would give way.
        LockVerdict::Go | LockVerdict::Lapsed(_) | LockVerdict::Full(_) => Ok(()),
    }
}
