//! States of lock owners: created by an owner's first LOCK on a file, then identified by a stateid.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nfs_proto::nfs4::ops::LockDenied;
use nfs_proto::nfs4::{LockType4, StateOwner4};
use state::{Holder, HolderId, Lock, LockKind, Range};
use vfs::NodeRef;

use super::client::Client;
use super::compound::Compound;
use super::opens::{Entry, Held, LockState};
use super::status::Status;

/// The kind of a lock. The blocking types are equal to the others: clients wait by repeating the request (RFC 8881 section
/// 18.10.4).
pub(super) fn kind_of(locktype: LockType4) -> LockKind {
    match locktype {
        LockType4::Read | LockType4::ReadWait => LockKind::Shared,
        LockType4::Write | LockType4::WriteWait => LockKind::Exclusive,
    }
}

/// Converts `offset` and `length` to a range (RFC 8881 section 18.10.3).
pub(super) fn range_of(offset: u64, length: u64) -> Result<Range, Status> {
    Range::new(offset, length).ok_or(Status::Inval)
}

/// Checks that a lock may be taken now (RFC 8881 section 8.4.2): no new locks in the grace period, and reclaims only in it.
pub(super) fn check_grace(cx: &Compound<'_>, client: &Client, reclaim: bool) -> Result<(), Status> {
    let clients = &cx.nfs.clients;
    let now = clients.now();
    let must_wait = !reclaim && clients.in_grace();
    let mut grace = clients.grace();
    let done = client.reclaimed.load(Ordering::Acquire);
    match (reclaim, grace.is_active(now)) {
        (true, false) => Err(Status::NoGrace),
        (true, true) if done => Err(Status::NoGrace),
        (true, true) if grace.reclaim(client.name.as_bytes(), now) => Ok(()),
        (true, true) => Err(Status::ReclaimBad),
        (false, _) if must_wait => {
            drop(grace);
            Err(clients.not_yet())
        }
        // RFC 8881 section 18.51.3: a client with sessions must send RECLAIM_COMPLETE first.
        (false, _) if cx.minor > 0 && !done => Err(Status::Grace),
        (false, _) => Ok(()),
    }
}

/// Finds or creates the state of a lock owner on the file of an open. `true`: this call created it.
pub(super) fn lock_state(
    held: &mut Held,
    client: &Arc<Client>,
    open: u32,
    owner: &[u8],
    holder: impl FnOnce() -> HolderId,
) -> Option<(u32, Holder, bool)> {
    let (node, via): (NodeRef, u32) = {
        let opened = held.open(open)?;
        (opened.node.clone(), opened.party.via)
    };
    let file = (via, node.id());
    let (name, found) = held.lock_owner(owner)?;
    if let Some(number) = found.states.get(&file).copied() {
        return match held.get(number)? {
            Entry::Lock(lock) => Some((number, lock.party.clone(), false)),
            _ => None,
        };
    }
    let party = Holder { holder: holder(), lease: client.lease.clone(), via };
    let number = held.add(Entry::Lock(LockState {
        seqid: 0,
        node,
        owner: name.clone(),
        party: party.clone(),
        open,
        place: None,
    }))?;
    held.lock_owners.get_mut(&name)?.states.insert(file, number);
    held.open_mut(open)?.locks.push(number);
    Some((number, party, true))
}

/// Writes `LOCK4denied` (RFC 8881 section 18.10.2).
pub(super) fn write_denied(cx: &mut Compound<'_>, lock: &Lock<Holder>) {
    let id = lock.owner.client();
    let owner = cx.nfs.clients.find(id).and_then(|client| {
        let held = client.held();
        match held.get(held.number_of(lock.owner.holder)?)? {
            Entry::Lock(l) => Some(l.owner.clone()),
            _ => None,
        }
    });
    cx.out.value(&LockDenied {
        offset: lock.range.first,
        length: lock.range.length(),
        locktype: match lock.kind {
            LockKind::Shared => LockType4::Read,
            LockKind::Exclusive => LockType4::Write,
        },
        owner: StateOwner4 { clientid: id.0, owner: owner.as_deref().unwrap_or_default() },
    });
}
