//! LOCK (RFC 8881 section 18.10, RFC 7530 section 16.10).

use std::sync::Arc;

use nfs_proto::nfs4::StateOwner4;
use nfs_proto::nfs4::ops::{ExistLockOwner4, Lock, Locker4, OpenToLockOwner4};
use state::{Holder, LockKind, LockVerdict, Operation, Range, Rights};
use vfs::NodeId;

use crate::v4::client::Client;
use crate::v4::compound::Compound;
use crate::v4::locks::{check_grace, kind_of, lock_state, range_of, write_denied};
use crate::v4::object::Located;
use crate::v4::open_owner_seqid::{self, Begun, Owner};
use crate::v4::opens::{Entry, Held};
use crate::v4::resolve::{ResolvedStateid, resolve};
use crate::v4::stateid::{self, compose};
use crate::v4::stateid_access::is_confirmed;
use crate::v4::status::Status;
use crate::v4::wire::op;

/// How often one request removes conflicting clients whose lease has lapsed.
const ROUNDS_MAX: usize = 4;

struct Wanted {
    kind: LockKind,
    reclaim: bool,
    range: Result<Range, Status>,
}

pub(in crate::v4) async fn lock(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Lock { locktype, reclaim, offset, length, locker } = cx.args.value()?;
    let wanted = Wanted { kind: kind_of(locktype), reclaim, range: range_of(offset, length) };
    match locker {
        Locker4::Open(opening) => {
            let named = resolve(cx, opening.open_stateid)?;
            let owner = {
                let held = named.client.held();
                held.open(named.number).map(|o| o.owner.clone()).ok_or(Status::BadStateId)?
            };
            let (owner, seqid) = (Owner::Open(owner), opening.open_seqid);
            match open_owner_seqid::begin(cx, op::LOCK, &named.client, owner, seqid).await? {
                Begun::Done(done) => done,
                Begun::Do(ticket) => {
                    let done = first_lock(cx, &named, &opening, &wanted).await;
                    ticket.end(cx, done)
                }
            }
        }
        Locker4::Exist(ExistLockOwner4 { lock_stateid, lock_seqid }) => {
            let named = resolve(cx, lock_stateid)?;
            match open_owner_seqid::begin(
                cx,
                op::LOCK,
                &named.client,
                named.lock_owner()?,
                lock_seqid,
            )
            .await?
            {
                Begun::Done(done) => done,
                Begun::Do(ticket) => {
                    let done = next_lock(cx, &named, &wanted).await;
                    ticket.end(cx, done)
                }
            }
        }
    }
}

/// Handles an owner's first lock on a file, through an open.
async fn first_lock(
    cx: &mut Compound<'_>,
    named: &ResolvedStateid,
    opening: &OpenToLockOwner4<'_>,
    wanted: &Wanted,
) -> Result<(), Status> {
    let at = cx.file()?;
    let range = wanted.range?;
    let StateOwner4 { clientid, owner } = opening.lock_owner;
    if cx.minor == 0 && clientid != named.client.id.0 {
        return Err(Status::BadStateId);
    }
    let client = &named.client;
    let opener = client.held().open(named.number).map(|o| o.uid);
    check_user(&at, opener).await?;
    let arbiter = cx.nfs.core.namespace.arbiter();
    let (number, party, fresh) = {
        let mut held = client.held();
        match named.entry(&mut held, at.file(), cx.minor)? {
            Entry::Open(open) => check_mode(open.share.access, wanted.kind)?,
            _ => return Err(Status::BadStateId),
        }
        if cx.minor == 0 && !is_confirmed(&held, named.number) {
            return Err(Status::BadStateId);
        }
        check_grace(cx, client, wanted.reclaim)?;
        let made = lock_state(&mut held, client, named.number, owner, || arbiter.state().holder());
        let (number, party, fresh) = made.ok_or_else(|| limit(cx, &held))?;
        if cx.minor == 0 {
            let owner = held.lock_owners.get_mut(owner);
            if let Some(owner) = owner {
                // An owner with locks on this file may use the open's stateid again, in sequence.
                if !fresh && !owner.order.is_next(opening.lock_seqid) {
                    return Err(Status::BadSeqId);
                }
                owner.order.start(opening.lock_seqid);
            }
        }
        (number, party, fresh)
    };
    let done = take(cx, client, &at, number, &party, wanted.kind, range).await;
    if done.is_err() && fresh {
        client.held().remove_lock(number, arbiter.state());
    }
    done
}

async fn next_lock(
    cx: &mut Compound<'_>,
    named: &ResolvedStateid,
    wanted: &Wanted,
) -> Result<(), Status> {
    let at = cx.file()?;
    let range = wanted.range?;
    let opener = {
        let mut held = named.client.held();
        let open = match held.get_mut(named.number) {
            Some(Entry::Lock(l)) => l.open,
            _ => return Err(Status::BadStateId),
        };
        held.open(open).map(|o| o.uid)
    };
    check_user(&at, opener).await?;
    let party = {
        let mut held = named.client.held();
        let (open, party) = match named.entry(&mut held, at.file(), cx.minor)? {
            Entry::Lock(l) => (l.open, l.party.clone()),
            _ => return Err(Status::BadStateId),
        };
        let open = held.open(open).ok_or(Status::BadStateId)?;
        check_mode(open.share.access, wanted.kind)?;
        party
    };
    check_grace(cx, &named.client, wanted.reclaim)?;
    take(cx, &named.client, &at, named.number, &party, wanted.kind, range).await
}

/// Checks a user who locks through another user's open: like the kernel's server, requires permission to read the file, or its
/// ownership. A lock blocks others, and stateids are not secret.
async fn check_user(at: &Located, opener: Option<u32>) -> Result<(), Status> {
    let is_own = opener.is_none_or(|uid| uid == at.cred.uid);
    if !is_own && at.node.getattr().await?.uid != at.cred.uid {
        at.node.open(&at.cred, true, false).await?;
    }
    Ok(())
}

/// A write lock needs an open for writing. A read lock may use any open, as reads may.
fn check_mode(access: Rights, kind: LockKind) -> Result<(), Status> {
    if kind == LockKind::Exclusive && !access.has(Rights::WRITE) {
        return Err(Status::OpenMode);
    }
    Ok(())
}

fn limit(cx: &Compound<'_>, held: &Held) -> Status {
    let (limit, most) = held.limit_met(("locks-of-client", cx.nfs.clients.states_max.get()));
    cx.limited(limit, most)
}

/// Takes the lock in `state`, and writes the result.
async fn take(
    cx: &mut Compound<'_>,
    client: &Arc<Client>,
    at: &Located,
    number: u32,
    party: &Holder,
    kind: LockKind,
    range: Range,
) -> Result<(), Status> {
    let clients = cx.nfs.clients.clone();
    let arbiter = cx.nfs.core.namespace.arbiter();
    let (node, enforce): (NodeId, _) = (at.node.id(), at.share.nfs_locks);
    // SMB clients must not read from their caches a range that is locked against reading: caching rights are recalled now, and
    // those granted between this recall and the lock are recalled when it is held.
    let who = Some(party.requester());
    arbiter.check_conflicts(node, who, Operation::Advise, Range::ALL).await?;
    for _ in 0..ROUNDS_MAX {
        let verdict = {
            // Runs under the client's lock, so that a state that has just ended gets no lock.
            let mut held = client.held();
            let Some(Entry::Lock(state)) = held.get_mut(number) else {
                return Err(Status::BadStateId);
            };
            let verdict = arbiter.state().lock(node, party, range, kind, enforce, clients.now());
            if verdict == LockVerdict::Go {
                if kind == LockKind::Shared {
                    // The previous lock may have been exclusive, so waiting requests are retried.
                    arbiter.released();
                }
                state.seqid = stateid::next(state.seqid);
                let id = compose(client.id, number, state.seqid);
                cx.out.value(&id);
                cx.current_stateid = Some(id);
                arbiter.tell(node, who, Operation::Advise);
                return Ok(());
            }
            verdict
        };
        match verdict {
            LockVerdict::Go => return Ok(()),
            LockVerdict::Denied(lock) => {
                write_denied(cx, &lock);
                return Err(Status::Denied);
            }
            LockVerdict::Lapsed(lapsed) => arbiter.release(&lapsed).await,
            LockVerdict::Full("locks_per_host") => {
                let most = state::Limits::default().locks_per_host;
                return Err(cx.limited("locks-of-file-by-address", most));
            }
            LockVerdict::Full(_) => {
                return Err(cx.limited("locks-of-file", state::Limits::default().locks_per_client));
            }
        }
    }
    Err(Status::Delay)
}
