//! LOCKT (RFC 8881 section 18.11).

use nfs_proto::nfs4::ops::Lockt;
use state::{ClientId, HolderId, LockVerdict, Requester};

use crate::v4::compound::Compound;
use crate::v4::locks::{kind_of, range_of, write_denied};
use crate::v4::opens::Entry;
use crate::v4::status::Status;

/// A number that no holder has: numbering begins at 1.
const NOBODY: HolderId = HolderId(0);

pub(in crate::v4) async fn lockt(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Lockt { locktype, offset, length, owner } = cx.args.value()?;
    let at = cx.file()?;
    let (kind, range) = (kind_of(locktype), range_of(offset, length)?);
    let client = match &cx.client {
        Some(client) => client.clone(),
        None => cx.nfs.clients.find_v40(ClientId(owner.clientid))?,
    };
    if cx.nfs.clients.in_grace() {
        return Err(cx.nfs.clients.not_yet());
    }
    let holder = {
        let held = client.held();
        let number = held.lock_owners.get(owner.owner).and_then(|o| o.states.get(&at.file()));
        match number.and_then(|n| held.get(*n)) {
            Some(Entry::Lock(l)) => l.party.holder,
            _ => NOBODY,
        }
    };
    let arbiter = cx.nfs.core.namespace.arbiter();
    let who = Some(Requester { client: client.id, via: at.share.id, holder: None });
    arbiter.locks_known(at.node.id(), who).await?;
    let verdict = arbiter.state().test(at.node.id(), holder, range, kind, cx.nfs.clients.now());
    match verdict {
        LockVerdict::Denied(lock) => {
            write_denied(cx, &lock);
            Err(Status::Denied)
        }
        // Holders whose lease has lapsed would be released.
        LockVerdict::Go | LockVerdict::Lapsed(_) | LockVerdict::Full(_) => Ok(()),
    }
}
