//! CLOSE (MS-SMB2 section 3.3.5.10), and the end of opens by other ways.
//!
//! *Operation.* An open leaves the table first, so nobody can use it any more; then what it held is given back; last, names that
//! waited for it are removed (MS-FSA section 2.1.5.5). Where somebody has to give back first what it caches of such a file, CLOSE
//! is answered and the name goes when it did; until then it cannot be opened. Whether the file may be deleted was decided when it
//! was opened: it goes from whatever folder another has moved it into.
//!
//! *Errors.* A name that cannot be removed stays; nobody is left to be told. Where storage has failed to keep what the open wrote
//! and did not flush, or the times that are set now, the open ends and the answer says so.

use std::sync::Arc;

use state::{ClientId, Operation, Requester};
use tokio::time::{Duration, Instant};
use vfs::{Kind, VfsError};

use crate::answer::Answer;
use crate::file_info;
use crate::lease;
use crate::open::{File, Open};
use crate::path_tracking;
use crate::request_context::RequestContext;
use crate::security;
use crate::server_state::ServerState;
use crate::status::Status;
use crate::wire::close::{Basics, POSTQUERY_ATTRIB, Request, Response};

/// Answers CLOSE.
pub(crate) async fn call(cx: &RequestContext) -> Result<Answer, Status> {
    let r = cx.parse(Request::parse)?;
    let open = cx.open(r.file)?;
    let dated = super::set_info::at_close(cx, &open).await;
    let basics = match open.file() {
        Ok(file) if r.flags & POSTQUERY_ATTRIB != 0 => basics(cx, &open, file).await,
        _ => None,
    };
    let lost = open.file().is_ok_and(|file| open.open_state.take_lost(file.node().losses()));
    end(&cx.server, &open).await;
    if lost {
        return Err(VfsError::Io.into());
    }
    dated?;
    Ok(Answer::ok(Response { basics }.emit()))
}

async fn basics(cx: &RequestContext, open: &Open, file: &File) -> Option<Basics> {
    let facts = file_info::of_file(&cx.file_ops(open), file).await.ok()?;
    let n = facts.network_open();
    Some(Basics {
        times: [n.creation.0, n.last_access.0, n.last_write.0, n.change.0],
        allocation_size: n.allocation,
        end_of_file: n.end_of_file,
        attributes: n.attributes,
    })
}

/// Ends an open: by CLOSE, or because its tree, session or connection has ended.
pub(crate) async fn end(core: &Arc<ServerState>, open: &Arc<Open>) {
    let Some(ripe) = core.opens.remove(open) else { return };
    if let Ok(file) = open.file() {
        core.namespace.arbiter().close(file.node().id(), open.party.holder);
    }
    lease::closed(core, open);
    core.creates.closed(open);
    let mut waits = false;
    if open.delete_on_close() && !ripe.iter().any(|o| Arc::ptr_eq(o, open)) {
        marked(core, open);
    }
    for doomed in &ripe {
        waits |= remove(core, doomed, open).await == Err(VfsError::Delay);
    }
    if waits {
        let (core, open) = (core.clone(), open.clone());
        tokio::spawn(async move {
            remove_later(&core, &ripe, &open).await;
            gone(&core, &open, &ripe).await;
        });
    } else {
        gone(core, open, &ripe).await;
    }
}

/// An open that is deleted with its close is not the last of its file, which is marked to be removed now: handles that are only
/// cached are given back (MS-FSA section 2.1.5.15.3).
fn marked(core: &ServerState, open: &Open) {
    let Ok(file) = open.file() else { return };
    let who = Requester { client: open.party.client(), holder: None };
    core.namespace.arbiter().tell(file.node().id(), Some(who), Operation::Delete);
}

async fn gone(core: &ServerState, open: &Arc<Open>, ripe: &[Arc<Open>]) {
    core.opens.removed(ripe);
    crate::persist::forget(core, open).await;
}

/// Asks again while somebody has to give back what it caches, at the longest until the rights are taken from it.
async fn remove_later(core: &ServerState, ripe: &[Arc<Open>], last: &Open) {
    /// Between two tries. Each waits for a moment by itself.
    const PAUSE: Duration = Duration::from_millis(100);
    let wait = Duration::from_millis(core.namespace.arbiter().state().deadlines().wait_ms());
    let until = Instant::now() + wait;
    for doomed in ripe {
        while remove(core, doomed, last).await == Err(VfsError::Delay) && Instant::now() < until {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Removes the name that `open` marked, because `last` was the last open of it. A name that is gone is none to remove.
async fn remove(core: &ServerState, open: &Open, last: &Open) -> Result<(), VfsError> {
    let Ok(file) = open.file() else { return Ok(()) };
    let parent = core.leases.parent_of_removal(open, last);
    let done = remove_name(core, open, file, parent).await;
    if let Err(why) = &done
        && *why != VfsError::NotFound
    {
        tracing::debug!(path = file.place().path, "a name cannot be removed: {why:?}");
    }
    done
}

async fn remove_name(
    core: &ServerState,
    open: &Open,
    file: &File,
    parent: Option<ClientId>,
) -> Result<(), VfsError> {
    let who = Requester { client: open.party.client(), holder: None };
    let file_ops = core.namespace.by_smb(Some(who)).from_parent(parent).audited(open);
    if let Some(stream) = file.stream() {
        return file_ops.stream_remove(&file.share, &file.base(), &stream).await.map(drop);
    }
    let place = path_tracking::look(&core.opens, file).await?;
    // The user need not be allowed to look names up where it may delete them.
    let folder = security::may_take_from(&open.cred, &place.dir).await?;
    let file_ops = file_ops.granted(open.to_delete.as_ref(), folder.as_ref());
    if file.base().kind() == Kind::Dir {
        file_ops.rmdir(&file.share, &place.dir, &open.cred, &place.name).await?;
    } else {
        file_ops.unlink(&file.share, &place.dir, &open.cred, &place.name).await?;
    }
    Ok(())
}
