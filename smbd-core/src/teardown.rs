//! The end of opens, sessions and connections (MS-SMB2 sections 3.3.4.17, 3.3.5.6, 3.3.5.10, 3.3.7.1; MS-FSA section 2.1.5.5).
//! Nothing that it calls calls it.
//!
//! *Operation.* An open leaves the table first, so nobody can use it any more; then what it held is given back; last, names that
//! waited for it are removed. Where somebody has to give back first what it caches of such a file, the open has ended and the name
//! goes when that is done; until then it cannot be opened. Whether the file may be deleted was decided when it was opened: it goes
//! from whatever folder another client has moved it into. Where a process of the host may have moved it, its user must have the
//! right to delete there, unless the file's own list gives it.
//!
//! A durable open that has lost its connection waits for its client instead. It ends when somebody else wants what it holds
//! ([`give_way`], [`go_with_file`]) or its time is over.
//!
//! *Memory.* One task for each open that waits for its client, and for names whose removal waits.
//!
//! *Errors.* A name that cannot be removed stays; nobody is left to be told.

use std::sync::Arc;

use state::{Caching, ClientId, Operation, Requester};
use tokio::time::{Duration, Instant};
use vfs::{Kind, NodeId, VfsError};

use crate::conn::Conn;
use crate::lease;
use crate::open::{File, Open};
use crate::pace::Pace;
use crate::path_tracking;
use crate::persist;
use crate::security;
use crate::server_state::ServerState;
use crate::session::Session;
use crate::status::Status;

/// Opens whose records go by one commit, where many end together.
const STRUCK_AT_ONCE: usize = 256;

/// Why opens go away without a CLOSE of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TeardownReason {
    /// The client gave them up by TREE_DISCONNECT, or lost the right to them. Nothing is kept.
    GivenUp,
    /// The connection is gone, or the session by LOGOFF: what is durable waits for its client (MS-SMB2 sections 3.3.7.1, 3.3.5.6).
    Connection,
}

/// Ends an open: by CLOSE, or because its tree, session or connection has ended.
pub(crate) async fn end_open(core: &Arc<ServerState>, open: &Arc<Open>) {
    if end_but_record(core, open).await {
        persist::forget(core, std::slice::from_ref(open)).await;
    }
}

/// Ends an open, and leaves its record to the caller. False where the record goes later, behind names whose removal waits, or where
/// the open has ended before.
async fn end_but_record(core: &Arc<ServerState>, open: &Arc<Open>) -> bool {
    let Some(ripe) = core.opens.remove(open) else { return false };
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
            core.opens.removed(&ripe);
            persist::forget(&core, &[open]).await;
        });
    } else {
        core.opens.removed(&ripe);
    }
    !waits
}

/// An open that is deleted with its close is not the last of its file, which is marked to be removed now: handles that are only
/// cached are given back (MS-FSA section 2.1.5.15.3).
fn marked(core: &ServerState, open: &Open) {
    let Ok(file) = open.file() else { return };
    let who = Requester { client: open.party.client(), holder: None };
    core.namespace.arbiter().tell(file.node().id(), Some(who), Operation::Delete);
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
    let file_ops = file_ops.granted(open.to_delete_from(&place.dir), folder.as_ref());
    if file.base().kind() == Kind::Dir {
        file_ops.rmdir(&file.share, &place.dir, &open.cred, &place.name).await?;
    } else {
        file_ops.unlink(&file.share, &place.dir, &open.cred, &place.name).await?;
    }
    Ok(())
}

/// Ends a session: its trees, its opens, what waits in it. `reason`: for the audit trail, which is told of those whose users had
/// logged on.
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

/// The opens of a session, or of one of its trees, lose what they belong to.
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
        if ends && end_but_record(core, &open).await {
            ended.push(open);
        }
        if ended.len() == STRUCK_AT_ONCE {
            persist::forget(core, &std::mem::take(&mut ended)).await;
        }
        pace.keep().await;
    }
    persist::forget(core, &ended).await;
}

/// What must happen when a connection has ended (MS-SMB2 section 3.3.7.1).
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

/// What an open may cache lets it wait for its client. Nobody breaks locks, so one that has some must keep others from the file
/// by WRITE caching: their opens break that, and end it.
fn keeps_handle(core: &ServerState, open: &Open) -> bool {
    let Ok(node) = open.node() else { return false };
    let table = core.namespace.arbiter().state();
    let holder = open.caching.lease().map_or(open.party.holder, |l| l.party.holder);
    let held = table.held(node.id(), holder).unwrap_or_default();
    // One that is being broken has nobody who would acknowledge.
    let rights = held.breaking_to.unwrap_or(held.rights);
    let locks = table.holds_lock(node.id(), open.party.holder);
    rights.has(Caching::HANDLE) && (!locks || rights.has(Caching::WRITE))
}

/// The connection of an open is gone. True when it waits for its client now; else it is to be closed.
fn disconnect(core: &Arc<ServerState>, open: &Arc<Open>) -> bool {
    let handles = keeps_handle(core, open);
    let stands = open.durable.stands();
    // One that removes its file when it closes waits as any other, and does so when its client is late (as with Windows).
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

/// The server stops, and what waits for a client and does not outlive it ends: files that go with it go now. Others have nothing
/// that would outlast the process.
pub(crate) async fn stop(core: &Arc<ServerState>) {
    let goes = |o: &Open| o.delete_on_close() || core.opens.is_delete_pending(o);
    for open in core.opens.of_session(0, None) {
        if !open.durable.is_persistent() && goes(&open) {
            end_open(core, &open).await;
        }
    }
}

/// An open belongs to no session: it ends when its client does not come back in time.
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

/// Somebody wants what opens with this key hold, and they wait for a client: they end.
pub(crate) async fn give_way(core: &Arc<ServerState>, client: ClientId) {
    for open in core.opens.of_session(0, None) {
        let is_its = open.party.client() == client && open.session_id() == 0;
        if is_its && open.party.lease.end_if_lapsed(core.now()) {
            end_open(core, &open).await;
        }
    }
}

/// A file that is to go with an open which waits for its client goes when another opens it who may. Gives whether one was closed.
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
