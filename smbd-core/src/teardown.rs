//! The end of opens, sessions and connections (MS-SMB2 sections 3.3.4.17, 3.3.5.6, 3.3.5.10, 3.3.7.1; MS-FSA section 2.1.5.5). No
//! function that this module calls calls back into it.
//!
//! *Operation.* An open first leaves the table, so that no command can use it; then its locks and caching are released; last, names
//! that waited for its close are removed. If another client must first give back caching of such a file, the open has ended and the
//! name is removed after that; until then it cannot be opened. The right to delete was checked when the file was opened, so the
//! file is removed from whatever folder another client has moved it into. If a process of the host may have moved it, its user must
//! have the right to delete there, unless the file's own list grants it.
//!
//! A durable open that has lost its connection waits for its client instead. It ends when another request conflicts with it
//! ([`give_way`], [`go_with_file`]) or its timeout ends.
//!
//! *Memory.* One task for each open that waits for its client, and for names whose removal waits.
//!
//! *Errors.* A name that cannot be removed remains. The CLOSE that would have removed it reports the error, as with Samba, except
//! that a folder is not empty (MS-FSA section 2.1.5.5 keeps such a folder without one).

use std::sync::Arc;

use state::{Caching, ClientId, Operation, Requester, Rights};
use tokio::time::{Duration, Instant};
use vfs::{Kind, NodeId, VfsError, streams};

use crate::conn::Conn;
use crate::lease;
use crate::mac::Special;
use crate::open::{File, Open};
use crate::pace::Pace;
use crate::path_tracking;
use crate::persist;
use crate::security;
use crate::server_state::ServerState;
use crate::session::Session;
use crate::status::Status;

/// How many records one commit deletes, if many opens end together.
const STRUCK_AT_ONCE: usize = 256;

/// Why opens end without a CLOSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TeardownReason {
    /// The client gave them up by TREE_DISCONNECT, or lost the right to them. They are closed even if they are durable.
    GivenUp,
    /// The connection was lost, or the session ended by LOGOFF: durable opens wait for their client (MS-SMB2 sections 3.3.7.1,
    /// 3.3.5.6).
    Connection,
}

/// Ends an open: by CLOSE, or because its tree, session or connection has ended. Returns why a name that waited for this remains.
pub(crate) async fn end_open(core: &Arc<ServerState>, open: &Arc<Open>) -> Option<VfsError> {
    let (is_over, why) = end_but_record(core, open).await;
    if is_over {
        persist::forget(core, std::slice::from_ref(open)).await;
    }
    why
}

/// Ends an open, and leaves its record to the caller. Returns false if the record is deleted later, after names whose removal
/// waits, or if the open had ended before; and why a name remains.
async fn end_but_record(core: &Arc<ServerState>, open: &Arc<Open>) -> (bool, Option<VfsError>) {
    if is_left_empty(open).await {
        open.set_goes_if_empty();
        give_back_share(core, open);
    }
    let Some(ripe) = core.opens.remove(open) else { return (false, None) };
    if let Ok(file) = open.file() {
        let (arbiter, node) = (core.namespace.arbiter(), file.node().id());
        match open.caching.is_given_back() {
            true => arbiter.give_back(node, open.party.holder),
            false => arbiter.close(node, open.party.holder),
        }
    }
    lease::closed(core, open);
    core.creates.closed(open);
    let (mut waits, mut why) = (false, None);
    if open.delete_on_close() && !ripe.iter().any(|o| Arc::ptr_eq(o, open)) {
        marked(core, open);
    }
    for doomed in &ripe {
        match remove(core, doomed, open).await {
            Ok(()) | Err(VfsError::NotFound | VfsError::NotEmpty) => {}
            Err(VfsError::Delay) => waits = true,
            // The server tidies up an empty stream of macOS, which the client did not ask for.
            Err(_) if doomed.goes_if_empty() => {}
            Err(error) => why = Some(error),
        }
    }
    if waits {
        let (core, open) = (core.clone(), open.clone());
        tokio::spawn(async move {
            remove_later(&core, &ripe, &open).await;
            core.opens.removed(&ripe);
            persist::forget(&core, &[open]).await;
        });
    } else {
        core.opens.removed(&ripe);
    }
    (!waits, why)
}

/// Gives back the share access of an open that is about to leave the table. Other opens keep theirs.
fn give_back_share(core: &ServerState, open: &Open) {
    if let Ok(node) = open.node() {
        let none = state::Share::new(Rights::NONE, Rights::NONE);
        core.namespace.arbiter().state().narrow(node.id(), open.party.holder, none);
    }
}

/// Returns whether the open leaves a stream of macOS behind that clients take as missing, because it has no bytes.
async fn is_left_empty(open: &Open) -> bool {
    let Ok(file) = open.file() else { return false };
    let is_kept = file.special().is_none() || file.share.read_only;
    !is_kept && file.node().getattr().await.is_ok_and(|attr| attr.size == 0)
}

/// Returns whether a stream stays although its open has marked it for removal: it got bytes since it was found without, or it is a
/// resource fork with contents, which macOS removes by cutting it.
async fn stays(open: &Open, file: &File) -> bool {
    if !open.goes_if_empty() && file.special() != Some(Special::Resource) {
        return false;
    }
    file.node().getattr().await.is_ok_and(|attr| attr.size > 0)
}

/// Returns whether the name of an open stream still leads to it, and not to one that a client has made since.
async fn has_its_name(file: &File, stream: &str) -> Result<bool, VfsError> {
    let named = streams::find(&file.share, &file.base(), stream).await?;
    Ok(named.node.id() == file.node().id())
}

/// Recalls cached handles of a file that has other opens and is marked for removal by the close of this one (MS-FSA section
/// 2.1.5.15.3).
fn marked(core: &ServerState, open: &Open) {
    let Ok(file) = open.file() else { return };
    let who = Requester { client: open.party.client(), via: 0, holder: None };
    core.namespace.arbiter().tell(file.node().id(), Some(who), Operation::Delete);
}

/// Retries the removal until other clients have given back their caching, at most until it is revoked.
async fn remove_later(core: &ServerState, ripe: &[Arc<Open>], last: &Open) {
    /// Pause between tries; each try also waits briefly itself.
    const PAUSE: Duration = Duration::from_millis(100);
    let wait = Duration::from_millis(core.namespace.arbiter().state().deadlines().wait_ms());
    let until = Instant::now() + wait;
    for doomed in ripe {
        while remove(core, doomed, last).await == Err(VfsError::Delay) && Instant::now() < until {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Removes the name that `open` marked, because `last` was its last open. Succeeds if the name is already gone.
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
    let who = Requester { client: open.party.client(), via: 0, holder: None };
    let file_ops = core.namespace.by_smb(Some(who)).from_parent(parent).audited(open);
    if let Some(stream) = file.stream() {
        if stays(open, file).await || open.goes_if_empty() && !has_its_name(file, &stream).await? {
            return Ok(());
        }
        return file_ops.stream_remove(&file.share, &file.base(), &stream).await.map(drop);
    }
    let place = path_tracking::look(&core.opens, file).await?;
    // A user that may delete names in a folder need not be allowed to look names up there.
    let folder = security::may_take_from(&open.cred, &place.dir).await?;
    let file_ops = file_ops.granted(open.to_delete_from(&place.dir), folder.as_ref());
    if file.base().kind() == Kind::Dir {
        file_ops.rmdir(&file.share, &place.dir, &open.cred, &place.name).await?;
    } else {
        file_ops.unlink(&file.share, &place.dir, &open.cred, &place.name).await?;
    }
    Ok(())
}

/// Ends a session with its trees, its opens and its waiting requests. `reason`: for the audit trail, which records the end of
/// sessions whose user had logged on.
pub(crate) async fn end_session(
    core: &Arc<ServerState>,
    session: &Arc<Session>,
    loss: TeardownReason,
    reason: &'static str,
) {
    if !session.end() {
        return;
    }
    session.tell_end(reason);
    core.sessions.remove(session.id);
    for channel in session.channels() {
        if let Some(conn) = channel.conn.upgrade() {
            conn.remove_channel(session.id);
            conn.end_waits(Status::USER_SESSION_DELETED, |p| p.session_id == session.id);
            session.remove_channel(&conn);
        }
    }
    session.take_trees();
    lose(core, session.id, None, loss).await;
}

/// Ends or disconnects the opens of a session, or of one of its trees.
pub(crate) async fn lose(
    core: &Arc<ServerState>,
    session: u64,
    tree: Option<u32>,
    loss: TeardownReason,
) {
    let mut pace = Pace::begin();
    let mut ended = Vec::new();
    for open in core.opens.of_session(session, tree) {
        let ends = loss == TeardownReason::GivenUp || !disconnect(core, &open);
        if ends && end_but_record(core, &open).await.0 {
            ended.push(open);
        }
        if ended.len() == STRUCK_AT_ONCE {
            persist::forget(core, &std::mem::take(&mut ended)).await;
        }
        pace.keep().await;
    }
    persist::forget(core, &ended).await;
}

/// Cleans up after a connection has ended (MS-SMB2 section 3.3.7.1).
pub(crate) async fn end_of_connection(core: &Arc<ServerState>, conn: &Arc<Conn>) {
    conn.end_waits(Status::CANCELLED, |p| !p.survives);
    for channel in conn.take_channels() {
        if channel.session.remove_channel(conn) {
            end_session(core, &channel.session, TeardownReason::Connection, "connection").await;
        }
    }
    for session in conn.take_logons() {
        end_session(core, &session, TeardownReason::Connection, "connection").await;
    }
    conn.end_waits(Status::CANCELLED, |p| core.sessions.get(p.session_id).is_none());
}

/// Returns whether its caching lets an open wait for its client. Locks cannot be broken, so an open with locks needs WRITE caching
/// as well: then a conflicting open breaks that caching, which ends the waiting open.
fn keeps_handle(core: &ServerState, open: &Open) -> bool {
    let Ok(node) = open.node() else { return false };
    let table = core.namespace.arbiter().state();
    let holder = open.caching.lease().map_or(open.party.holder, |l| l.party.holder);
    let held = table.held(node.id(), holder).unwrap_or_default();
    // A waiting client cannot acknowledge, so count a running break as complete.
    let rights = held.breaking_to.unwrap_or(held.rights);
    let locks = table.holds_lock(node.id(), open.party.holder);
    rights.has(Caching::HANDLE) && (!locks || rights.has(Caching::WRITE))
}

/// Handles the loss of an open's connection. Returns true if the open now waits for its client; otherwise the caller must close it.
fn disconnect(core: &Arc<ServerState>, open: &Arc<Open>) -> bool {
    let handles = keeps_handle(core, open);
    let stands = open.durable.stands();
    // A persistent or resilient open that deletes its file at close waits like any other, and deletes it when its timeout ends (as
    // with Windows).
    let doomed = core.opens.is_delete_pending(open);
    if !open.durable.is_durable() || !stands && (!handles || doomed) {
        return false;
    }
    core.opens.move_to(open, 0, 0);
    if !stands {
        open.party.lease.let_go(core.now());
        if let Some(lease) = open.caching.lease() {
            lease.follow(core.now());
        }
        core.namespace.arbiter().released();
    }
    wait_for_client(core, open);
    true
}

/// Ends opens that wait for a client, do not outlive the server and delete their file at close. Called at a stop of the server.
/// Other opens leave no state behind after the process.
pub(crate) async fn stop(core: &Arc<ServerState>) {
    let goes = |o: &Open| o.delete_on_close() || core.opens.is_delete_pending(o);
    for open in core.opens.of_session(0, None) {
        if !open.durable.is_persistent() && goes(&open) {
            end_open(core, &open).await;
        }
    }
}

/// Starts the timeout of an open that belongs to no session.
pub(crate) fn wait_for_client(core: &Arc<ServerState>, open: &Arc<Open>) {
    let (timeout_ms, losses) = open.durable.lose_connection();
    let (core, open) = (Arc::downgrade(core), Arc::downgrade(open));
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(u64::from(timeout_ms))).await;
        if let (Some(core), Some(open)) = (core.upgrade(), open.upgrade())
            && open.session_id() == 0
            && open.durable.losses() == losses
        {
            end_open(&core, &open).await;
        }
    });
}

/// Ends the waiting opens of `client` because another request conflicts with what they hold.
pub(crate) async fn give_way(core: &Arc<ServerState>, client: ClientId) {
    for open in core.opens.of_session(0, None) {
        let is_its = open.party.client() == client && open.session_id() == 0;
        if is_its && open.party.lease.end_if_lapsed(core.now()) {
            end_open(core, &open).await;
        }
    }
}

/// Ends waiting opens that delete this file at close, because another client with the right to do so opens the file. Returns
/// whether one was closed.
pub(crate) async fn go_with_file(core: &Arc<ServerState>, node: NodeId) -> bool {
    let mut gone = false;
    for open in core.opens.of_node(node) {
        let waits = open.session_id() == 0 && open.delete_on_close() && !open.durable.stands();
        if waits && open.party.lease.end_if_lapsed(core.now()) {
            end_open(core, &open).await;
            gone = true;
        }
    }
    gone
}
