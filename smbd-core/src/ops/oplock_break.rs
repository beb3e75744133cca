//! OPLOCK_BREAK (MS-SMB2 section 3.3.5.22): clients acknowledge a break of an oplock or lease.

use state::Caching;

use crate::answer::Answer;
use crate::caching::{from_state, to_state};
use crate::lease;
use crate::persist;
use crate::request_context::RequestContext;
use crate::status::Status;
use crate::wire::create::oplock;
use crate::wire::negotiate::Dialect;
use crate::wire::oplock_break::{Lease, Oplock, Request, Response};

pub(crate) async fn call(cx: &RequestContext) -> Result<Answer, Status> {
    let response = match cx.parse(Request::parse)? {
        Request::Oplock(ack) => Response::Oplock(of_oplock(cx, ack).await?),
        Request::Lease(ack) => Response::Lease(of_lease(cx, ack).await?),
    };
    Ok(Answer::ok(response.emit()))
}

/// Acknowledges an oplock break (MS-SMB2 section 3.3.5.22.1).
async fn of_oplock(cx: &RequestContext, ack: Oplock) -> Result<Oplock, Status> {
    let open = cx.open(ack.file)?;
    let node = open.node()?.id();
    lease::settled(&cx.server, std::slice::from_ref(&open)).await;
    let table = cx.server.namespace.arbiter().state();
    let held = table.held(node, open.party.holder).unwrap_or_default();
    // An acknowledgment without a pending break gets the same status as on Windows. Breaks of level II need no acknowledgment.
    let to = held.breaking_to.ok_or(Status::INVALID_OPLOCK_PROTOCOL)?;
    let was_batch = held.rights.has(Caching::HANDLE);
    let (keep, answer) = match ack.level {
        oplock::NONE => (Caching::NONE, Ok(ack)),
        oplock::II if to.has(Caching::READ) => (Caching::READ, Ok(ack)),
        // No break goes from batch to exclusive; a client that acknowledges this level loses its oplock.
        oplock::EXCLUSIVE if was_batch => {
            (Caching::NONE, Ok(Oplock { level: oplock::NONE, ..ack }))
        }
        // Requesting more than the break allows, or an invalid level, ends the oplock.
        oplock::LEASE => (Caching::NONE, Err(Status::INVALID_PARAMETER)),
        _ => (Caching::NONE, Err(Status::INVALID_OPLOCK_PROTOCOL)),
    };
    lease::acknowledge(cx, node, open.party.holder, keep);
    if answer.is_ok() {
        persist::save(&cx.server, &open).await?;
    }
    answer
}

/// Acknowledges a lease break (MS-SMB2 section 3.3.5.22.2).
async fn of_lease(cx: &RequestContext, ack: Lease) -> Result<Lease, Status> {
    if cx.conn.dialect() == Dialect::V202 {
        return Err(Status::INVALID_PARAMETER);
    }
    let session = cx.session()?;
    let found = cx.server.leases.find(session.client_guid(), &session.owner(), ack.key);
    let found = found.ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
    found.not_replayable();
    lease::settled(&cx.server, &found.opens()).await;
    let table = cx.server.namespace.arbiter().state();
    let held = table.held(found.node(), found.party.holder).unwrap_or_default();
    let to = held.breaking_to.ok_or(Status::UNSUCCESSFUL)?;
    let keep = from_state(ack.state);
    if ack.state != to_state(keep) || !to.has(keep) {
        return Err(Status::REQUEST_NOT_ACCEPTED);
    }
    lease::acknowledge(cx, found.node(), found.party.holder, keep);
    persist::save_lease(&cx.server, &found).await?;
    Ok(ack)
}
