//! Waits for conflicting holders of a file about to be opened, or refuses the open.

use std::sync::Arc;

use crate::dtyp::mask;
use crate::durable;
use crate::open::Open;
use crate::request_context::RequestContext;
use crate::status::Status;
use crate::wire::create::share;

/// Waits for the grace period: after a restart NFS clients reclaim their locks and opens before an existing file may be opened.
pub(super) async fn after_grace(
    cx: &RequestContext,
    open: &Open,
    access: u32,
) -> Result<(), Status> {
    if Open::opening(access, open.shared, false).attributes_only {
        return Ok(());
    }
    let wait = cx.server.namespace.arbiter().after_grace(Some(cx));
    Ok(cx.or_cancelled(wait).await??)
}

/// Requests share access from `state`, and waits for conflicting leases and oplocks to be broken.
pub(super) async fn share_with(
    cx: &RequestContext,
    open: &Arc<Open>,
    access: u32,
    overwrites: bool,
) -> Result<(), Status> {
    delete_sharing(cx, open, access)?;
    durable::check_waiting(cx, open, access).await?;
    let arbiter = cx.server.namespace.arbiter();
    let node = open.node()?.id();
    let opening = Open::opening(access, open.shared, overwrites);
    let wait = arbiter.open_waiting(node, &open.party, opening, Some(cx));
    cx.or_cancelled(wait).await??;
    let own = Open::opening(open.granted, open.shared, false).share;
    if own != opening.share {
        arbiter.state().narrow(node, open.party.holder, own);
    }
    Ok(())
}

/// Checks delete sharing between a file and its streams: deleting a file deletes its streams, so every open stream must share
/// DELETE, but `state` tracks each stream separately (MS-FSA section 2.1.5.1.2.2).
fn delete_sharing(cx: &RequestContext, open: &Arc<Open>, access: u32) -> Result<(), Status> {
    const SHARES: u32 =
        mask::READ_DATA | mask::EXECUTE | mask::WRITE_DATA | mask::APPEND_DATA | mask::DELETE;
    let conflict = |of_file: u32, of_stream: u32, shared: u32| {
        of_file & mask::DELETE != 0 && of_stream & SHARES != 0 && shared & share::DELETE == 0
    };
    let file = open.file()?;
    for other in cx.server.opens.of_node(file.base().id()) {
        let denied = match (file.is_stream(), other.file()?.is_stream()) {
            (false, true) => conflict(access, other.granted, other.shared),
            (true, false) => conflict(other.granted, access, open.shared),
            _ => false,
        };
        if denied {
            return Err(Status::SHARING_VIOLATION);
        }
    }
    Ok(())
}

/// Releases the share access of an open that failed.
pub(super) fn give_back(cx: &RequestContext, open: &Arc<Open>) {
    if let Ok(node) = open.node() {
        cx.server.namespace.arbiter().close(node.id(), open.party.holder);
    }
}
