//! FREE_STATEID (RFC 8881 section 18.38).

use std::sync::atomic::Ordering;

use crate::v4::compound::Compound;
use crate::v4::opens::Entry;
use crate::v4::resolve::resolve_any;
use crate::v4::stateid::check_seqid;
use crate::v4::status::Status;
use crate::v4::wire::Stateid;

pub(in crate::v4) async fn free_stateid(cx: &mut Compound<'_>) -> Result<(), Status> {
    let stateid = cx.args.value::<Stateid>()?;
    let named = resolve_any(cx, stateid)?;
    let table = cx.nfs.core.namespace.arbiter().state();
    let mut held = named.client.held();
    let freed = held.free_revoked(named.number);
    if freed > 0 {
        named.client.admin_revoked.fetch_sub(freed, Ordering::AcqRel);
        return Ok(());
    }
    let entry = held.get(named.number).ok_or(Status::BadStateId)?;
    check_seqid(named.seqid, entry.seqid(), cx.minor)?;
    match entry {
        Entry::Delegation(d) if d.revoked => {
            held.remove_delegation(named.number);
            named.client.revoked.fetch_sub(1, Ordering::AcqRel);
            Ok(())
        }
        Entry::Lock(l) if !table.holds_lock(l.node.id(), l.party.holder) => {
            held.remove_lock(named.number, table);
            Ok(())
        }
        Entry::Open(_) | Entry::Lock(_) | Entry::Delegation(_) => Err(Status::LocksHeld),
        Entry::Closed(_) | Entry::Revoked(_) => Err(Status::BadStateId),
    }
}
