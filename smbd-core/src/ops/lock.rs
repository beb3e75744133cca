//! LOCK (MS-SMB2 section 3.3.5.14): locks and unlocks byte ranges.
//!
//! *Operation.* A blocking lock sends an interim response and waits until the range is free, the request is cancelled, or its open
//! is closed. Clients number their lock requests, so that one sent again after a lost connection is not executed twice.
//!
//! *Errors.* As in the specification. If an element fails, a lock request undoes its earlier elements, but an unlock request leaves
//! them unlocked.

use std::sync::Arc;

use state::{LockKind, Operation, Range, SmbLockRange};
use vfs::arbiter::WaitPolicy;
use vfs::backend::BoxFuture;
use vfs::{NodeId, VfsError, VfsResult};

use crate::answer::Answer;
use crate::dtyp::mask;
use crate::open::Open;
use crate::pace::Pace;
use crate::persist;
use crate::persist::locks::LockChange;
use crate::request_context::RequestContext;
use crate::session::SessionState;
use crate::status::Status;
use crate::wire::lock::{Element, Request, Response, flag};
use crate::wire::negotiate::Dialect;

/// Elements of one request that are unlocked before the task may yield the thread.
const ELEMENTS_AT_ONCE: usize = 64;

pub(crate) async fn call(cx: &RequestContext) -> Result<Answer, Status> {
    let request = cx.parse(Request::parse)?;
    let open = cx.open(request.file)?;
    if open.is_dir() {
        // MS-FSA section 2.1.5.8 allows no locks on directories.
        return Err(Status::INVALID_PARAMETER);
    }
    let node = open.node()?.id();
    let sequence = slot(cx, &request).map(|slot| (slot, request.sequence_number));
    if let Some(sequence) = sequence
        && verifies(cx, &open)
        && persist::locks::is_done(&open, sequence).await
    {
        return Ok(Answer::ok(Response.emit()));
    }
    open.check(mask::READ_DATA | mask::WRITE_DATA)?;
    open.caching.note_lock();
    let unlocks = request.locks[0].flags & flag::UNLOCK != 0;
    // An expired session may unlock, but gets no new lock, as on Windows.
    if !unlocks && cx.session()?.state(cx.server.now()) == SessionState::Expired {
        return Err(Status::NETWORK_SESSION_EXPIRED);
    }
    let mut change = LockChange::new(node);
    let done = if unlocks {
        unlock(cx, &open, &request.locks, &mut change).await
    } else {
        lock(cx, &open, node, &request.locks, &mut change).await
    };
    tracing::debug!(open = open.id.volatile, ?node, locks = ?request.locks, ?done, "LOCK");
    if done.is_ok() {
        change.is_all(sequence);
    }
    // Save also after a failure: elements before the failed one remain in effect.
    change.settle(&cx.server, &open).await?;
    done?;
    Ok(Answer::ok(Response.emit()))
}

/// Returns the index of this request in `Open.LockSequenceArray`.
fn slot(cx: &RequestContext, request: &Request) -> Option<usize> {
    let index = usize::try_from(request.sequence_index).ok()?.checked_sub(1)?;
    (cx.conn.dialect() != Dialect::V202 && index < crate::open::LOCK_SEQUENCES).then_some(index)
}

/// Returns whether the server checks lock sequence numbers for this open.
fn verifies(cx: &RequestContext, open: &Open) -> bool {
    open.durable.is_durable() || cx.conn.dialect().is_3() && cx.conn.has_multichannel()
}

fn lock_range(l: &Element) -> Result<SmbLockRange, Status> {
    SmbLockRange::new(l.offset, l.length).ok_or(Status::INVALID_LOCK_RANGE)
}

/// Unlocks ranges (MS-SMB2 section 3.3.5.14.1). Elements before one that fails stay unlocked.
async fn unlock(
    cx: &RequestContext,
    open: &Open,
    locks: &[Element],
    change: &mut LockChange,
) -> Result<(), Status> {
    let mut pace = Pace::begin();
    for some in locks.chunks(ELEMENTS_AT_ONCE) {
        let ranges = some.iter().map(|l| match l.flags {
            flag::UNLOCK => lock_range(l),
            _ => Err(Status::INVALID_PARAMETER),
        });
        change.unlock(&cx.server, open, ranges)?;
        pace.keep().await;
    }
    Ok(())
}

/// Locks ranges (MS-SMB2 section 3.3.5.14.2).
async fn lock(
    cx: &RequestContext,
    open: &Arc<Open>,
    node: NodeId,
    locks: &[Element],
    change: &mut LockChange,
) -> Result<(), Status> {
    let at_once = |l: &Element| l.flags & flag::FAIL_IMMEDIATELY != 0;
    if locks.len() > 1 && !locks.iter().all(at_once) {
        return Err(Status::INVALID_PARAMETER);
    }
    if !persist::locks::has_room(open, locks.len()) {
        return Err(Status::INSUFFICIENT_RESOURCES);
    }
    let mut pace = Pace::begin();
    for l in locks {
        pace.keep().await;
        // Ranges locked before an element with invalid flags stay locked.
        let kind = match l.flags & !flag::FAIL_IMMEDIATELY {
            flag::SHARED => LockKind::Shared,
            flag::EXCLUSIVE => LockKind::Exclusive,
            _ => return Err(Status::INVALID_PARAMETER),
        };
        let done = match lock_range(l) {
            Ok(lock_range) => {
                one(cx, open, node, lock_range, kind, at_once(l)).await.map(|()| lock_range)
            }
            Err(status) => Err(status),
        };
        match done {
            Ok(lock_range) => change.locked(open, (lock_range, kind)),
            Err(status) => {
                change.undo(&cx.server, open);
                return Err(status);
            }
        }
    }
    Ok(())
}

async fn one(
    cx: &RequestContext,
    open: &Arc<Open>,
    node: NodeId,
    lock_range: SmbLockRange,
    kind: LockKind,
    at_once: bool,
) -> Result<(), Status> {
    let arbiter = cx.server.namespace.arbiter();
    cx.or_cancelled(arbiter.after_grace(Some(cx))).await??;
    // Other clients must not serve reads from their caches in a locked range (MS-FSA section 2.1.5.8).
    let who = Some(open.party.requester());
    let breaks = arbiter.check_conflicts_waiting(node, who, Operation::Lock, Range::ALL, Some(cx));
    cx.or_cancelled(breaks).await??;
    cx.room_for_a_lock(open)?;
    let wait = Wait { cx, open };
    // The wait is unbounded, and inside a compound request no interim response can be sent.
    let may_wait = !at_once && cx.may_go_async();
    let wait_policy: Option<&dyn WaitPolicy> = if may_wait { Some(&wait) } else { None };
    let got = cx.or_cancelled(arbiter.lock(node, &open.party, lock_range, kind, wait_policy)).await;
    let locked = match got {
        Ok(locked) => locked,
        // A cancelled request gets STATUS_CANCELLED (MS-SMB2 section 3.3.5.16); one whose session or tree has ended stops waiting
        // with STATUS_RANGE_NOT_LOCKED.
        Err(Status::CANCELLED) => return Err(Status::CANCELLED),
        Err(_) => return Err(Status::RANGE_NOT_LOCKED),
    };
    match locked {
        Ok(()) if open.is_closed() || has_lost_its_tree(cx) => {
            arbiter.close(node, open.party.holder);
            Err(Status::RANGE_NOT_LOCKED)
        }
        // Notifies clients that began to cache while this request waited for the range.
        Ok(()) => {
            arbiter.tell(node, who, Operation::Lock);
            Ok(())
        }
        Err(VfsError::Locked) if at_once || may_wait => Err(Status::LOCK_NOT_GRANTED),
        // MS-SMB2 section 3.3.5.2.7, product behaviour note for Windows.
        Err(VfsError::Locked) => Err(Status::INTERNAL_ERROR),
        Err(VfsError::Cancelled) => Err(Status::RANGE_NOT_LOCKED),
        Err(why) => Err(why.into()),
    }
}

/// Returns whether the tree ended during the wait, in which case its opens are about to close.
fn has_lost_its_tree(cx: &RequestContext) -> bool {
    let (Ok(session), Ok(tree)) = (cx.session(), cx.tree()) else { return true };
    session.tree(tree.id).is_none()
}

/// Waits for a lock until its open is closed.
struct Wait<'a> {
    cx: &'a RequestContext,
    open: &'a Open,
}

impl WaitPolicy for Wait<'_> {
    fn begin(&self) -> BoxFuture<'_, VfsResult<()>> {
        self.cx.begin()
    }

    fn goes_on(&self) -> bool {
        !self.open.is_closed()
    }
}
