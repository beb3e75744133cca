//! RELEASE_LOCKOWNER (RFC 7530 section 16.37).

use nfs_proto::nfs4::StateOwner4;
use state::ClientId;

use crate::v4::compound::Compound;
use crate::v4::opens::Entry;
use crate::v4::status::Status;

pub(in crate::v4) async fn release_lockowner(cx: &mut Compound<'_>) -> Result<(), Status> {
    let StateOwner4 { clientid, owner } = cx.args.value()?;
    let client = cx.nfs.clients.find_v40(ClientId(clientid))?;
    let table = cx.nfs.core.namespace.arbiter().state();
    let mut held = client.held();
    let Some(found) = held.lock_owners.get(owner) else { return Ok(()) };
    let numbers: Vec<u32> = found.states.values().copied().collect();
    let locked = numbers.iter().any(|n| match held.get(*n) {
        Some(Entry::Lock(l)) => table.holds_lock(l.node.id(), l.party.holder),
        _ => false,
    });
    if locked {
        return Err(Status::LocksHeld);
    }
    numbers.into_iter().for_each(|n| held.remove_lock(n, table));
    held.lock_owners.remove(owner);
    Ok(())
}
