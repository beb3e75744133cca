//! Durable handles: opens that wait for their client after its connection is lost (MS-SMB2 sections 3.3.5.9.6, 3.3.5.9.7,
//! 3.3.5.9.10, 3.3.5.9.12, 3.3.7.1), and CREATEs that are sent again because their answer was lost.
//!
//! *Operation.* An open whose client may cache handles can be made durable. When its last connection is lost it belongs to no
//! session and keeps what it holds until a conflicting request arrives ([`crate::teardown`]) or its timeout ends. A client that
//! reconnects names the open and gets it back unchanged. A persistent open also outlives the server ([`crate::persist`]). No
//! conflicting request ends a resilient open before its timeout, and it ends a persistent one only if the client has abandoned it
//! ([`check_waiting`]).
//!
//! *Errors.* STATUS_OBJECT_NAME_NOT_FOUND for an open that has ended or belongs to another client, STATUS_ACCESS_DENIED for another
//! user.
//!
//! # States of an open
//!
//! ```text
//!  CREATE                     disconnect                     restart
//!  Opens::insert  +-------------------------------+  restore::take_up_state
//!       |         |                               |             |
//!       v         |                               v             v
//!   CONNECTED ----+                             WAITING <-------+
//!   session_id > 0                              session_id = 0
//!       | ^                                       | |
//!       | +---------------------------------------+ |
//!       |                take_up                    |
//!       |                                           |
//!       +---------------> CLOSED <------------------+
//!          end_open                 end_open
//! ```
//!
//! `disconnect` and `end_open` are in [`crate::teardown`]. A CONNECTED open is *plain* at first. [`grant`] makes it *durable*, or
//! *persistent* if its record is in the store; `ops::ioctl::resilient` makes it *resilient*.
//!
//! | from | event | function | to |
//! |---|---|---|---|
//! | CONNECTED | its session loses all connections or ends by LOGOFF; persistent or resilient | `disconnect` | WAITING |
//! | CONNECTED | the same; durable, `teardown::keeps_handle`, no pending delete | `disconnect` | WAITING |
//! | CONNECTED | the same, any other open | [`teardown::lose`] | CLOSED |
//! | CONNECTED | CLOSE | `ops::close::call` | CLOSED |
//! | CONNECTED | TREE_DISCONNECT, lost rights, an order of the administrator | [`teardown::lose`] (`GivenUp`) | CLOSED |
//! | WAITING | reconnect, or replay of its CREATE, with the same rights | [`reconnect`], [`begin`]: `take_up` | CONNECTED |
//! | WAITING | the same with fewer rights | `take_up` | CLOSED |
//! | WAITING | its timeout ends | [`teardown::wait_for_client`] | CLOSED |
//! | WAITING | conflict with another client; durable only | [`teardown::give_way`], [`teardown::go_with_file`] | CLOSED |
//! | WAITING | the same, persistent: its client is back and did not reclaim it | [`check_waiting`] | CLOSED |
//! | WAITING | lost rights, an order of the administrator | `reauthorize`, `disconnect_client` | CLOSED |
//! | WAITING | stop of the server; delete-on-close, not persistent | [`teardown::stop`] | CLOSED |
//! | any | a newer instance of its application opens the file | [`take_over`] | CLOSED |
//!
//! `teardown::end_open` takes an open out of the table once ([`crate::open::Opens::remove`]), releases its locks and caching,
//! removes names that waited for it, and strikes its record.

use std::sync::Arc;
use std::time::Duration;

use state::Caching;
use vfs::NodeId;
use vfs::names::to_client;

use crate::caching::from_state;
use crate::creates::Ticket;
use crate::lease;
use crate::open::{File, Open};
use crate::open_durable::{CreateInfo, TIMEOUT_DEFAULT_MS, TIMEOUT_MAX_MS, Version};
use crate::path::Path;
use crate::persist;
use crate::request_context::RequestContext;
use crate::server_state::ServerState;
use crate::session::Session;
use crate::share_access;
use crate::status::Status;
use crate::teardown;
use crate::wire::context::{
    Asked, DHANDLE_FLAG_PERSISTENT, Lease as LeaseContext, ReconnectV2, Told,
};
use crate::wire::create::{Request, oplock};
use crate::wire::file_id::FileId;
use crate::wire::negotiate::{CAP_PERSISTENT_HANDLES, Dialect};
use crate::wire::{self, Flags};

/// A session number that is never assigned: an open with it is out of reach of every client.
const NOBODY: (u64, u32) = (u64::MAX, 0);
/// How long after its last reclaim a reconnected client may still reclaim opens. Clients reclaim all their opens one after the
/// other.
const TAKES_UP_MAX: Duration = Duration::from_secs(5);

/// How a CREATE proceeds after the check for a replay.
pub(crate) enum Begun {
    /// It opens the file.
    New(Ticket),
    /// It was done before and made this open.
    Before(Arc<Open>),
}

/// Checks that the durability contexts of a CREATE may be combined (MS-SMB2 sections 3.3.5.9.6, 3.3.5.9.7, 3.3.5.9.10, 3.3.5.9.12).
pub(crate) fn check(asked: &Asked<'_>) -> Result<(), Status> {
    // A version 1 request together with a version 1 reconnect is ignored; every other combination is an error.
    let sorts = [
        asked.durable || asked.reconnect.is_some(),
        asked.durable_v2.is_some(),
        asked.reconnect_v2.is_some(),
    ];
    let fine = sorts.iter().filter(|s| **s).count() <= 1;
    if fine { Ok(()) } else { Err(Status::INVALID_PARAMETER) }
}

/// Returns whether the requested oplock level or lease allows a durable handle.
fn keeps_handles(cx: &RequestContext, request: &Request<'_>, asked: &Asked<'_>) -> bool {
    match lease::asked(cx, request.oplock_level, asked.lease.as_ref()) {
        Some(context) => from_state(context.state).has(Caching::HANDLE),
        None => request.oplock_level == oplock::BATCH,
    }
}

/// Checks whether this CREATE was done before (MS-SMB2 section 3.3.5.9.10).
pub(crate) async fn begin(
    cx: &RequestContext,
    request: &Request<'_>,
    asked: &Asked<'_>,
) -> Result<Begun, Status> {
    let Some(v2) = asked.durable_v2.filter(|_| cx.conn.dialect().is_3()) else {
        return Ok(Begun::New(Ticket::default()));
    };
    let session = cx.session()?;
    let key = (session.client_guid(), v2.guid);
    let replay = cx.header.flags.has(Flags::REPLAY);
    let found = match cx.server.creates.begin(key) {
        Ok(ticket) => {
            cx.outlives_connection();
            return Ok(Begun::New(ticket));
        }
        Err(found) => found,
    };
    let Some(open) = found.filter(|o| !o.is_closed()) else {
        // The earlier CREATE is still running and its outcome is unknown.
        let under_way =
            if replay { Status::FILE_NOT_AVAILABLE } else { Status::DUPLICATE_OBJECTID };
        return Err(under_way);
    };
    if !replay {
        return Err(Status::DUPLICATE_OBJECTID);
    }
    if !open.durable.is_replayable() {
        // The client has received the answer to the earlier CREATE, so this is a new one (as with Windows).
        cx.outlives_connection();
        return Ok(Begun::New(cx.server.creates.begin_again(key)));
    }
    let user = session.user().map(|u| u.name.clone()).unwrap_or_default();
    if open.durable.owner() != user {
        return Err(Status::ACCESS_DENIED);
    }
    if let Some(context) = lease::asked(cx, request.oplock_level, asked.lease.as_ref())
        && open.caching.lease().is_none_or(|l| l.key() != context.key)
    {
        return Err(Status::ACCESS_DENIED);
    }
    // The answer was lost with the server, or with all connections, and the open waits for this client.
    let waits = open.session_id() == 0;
    if open.session_id() != session.id && !(waits && take_up(cx, &open).await?) {
        return Err(Status::DUPLICATE_OBJECTID);
    }
    Ok(Begun::Before(open))
}

/// Detects a CREATE of this file with the lease key of a persistent open that waits for this client, but with another CreateGuid.
/// Either it is another open of the file, from a client that uses one key per file. Or the answer to the first CREATE was lost and
/// the client sent a new CREATE instead of a replay, from a client that uses one key per CREATE (Linux 6.12, mounted with `hard`:
/// `smb2_should_replay` leaves the count of replays at zero, so that `SMB2_open` makes another CreateGuid).
pub(crate) fn note_sent_anew(
    cx: &RequestContext,
    (request, asked): (&Request<'_>, &Asked<'_>),
    node: NodeId,
) -> Result<(), Status> {
    if asked.durable_v2.is_none() {
        return Ok(());
    }
    let Some(context) = lease::asked(cx, request.oplock_level, asked.lease.as_ref()) else {
        return Ok(());
    };
    let session = cx.session()?;
    let lease = cx.server.leases.find(session.client_guid(), &session.owner(), context.key);
    for open in lease.into_iter().flat_map(|lease| lease.opens()) {
        let waits = open.session_id() == 0 && open.durable.is_persistent();
        if waits && open.file()?.base().id() == node {
            open.durable.durability().sent_anew = true;
        }
    }
    Ok(())
}

/// Answers a replayed CREATE for its open: level, lease context and `CreateAction`; also fills in the durability contexts.
pub(crate) fn replayed(
    cx: &RequestContext,
    open: &Open,
    request: &Request<'_>,
    asked: &Asked<'_>,
    told: &mut Told,
) -> (u8, Option<LeaseContext>, u32) {
    let durability = open.durable.durability();
    // The answer reports the oplock level of this request, but the lease in its present state.
    let handles = open.caching.lease().is_some() || keeps_handles(cx, request, asked);
    if durability.version == Some(Version::Two) && (handles || durability.persistent) {
        let flags = if durability.persistent { DHANDLE_FLAG_PERSISTENT } else { 0 };
        told.durable_v2 = Some((durability.facts.timeout_ms, flags));
    }
    let action = durability.facts.action;
    drop(durability);
    match lease::describe(&cx.server, open) {
        (oplock::LEASE, context) => (oplock::LEASE, context, action),
        // Return the level of this request, as Windows does.
        _ => (request.oplock_level, None, action),
    }
}

/// Returns whether an open of this tree may outlive the server (MS-SMB2 section 3.3.5.9.10).
pub(crate) fn may_persist(cx: &RequestContext) -> bool {
    let agreed = cx.conn.negotiated().is_some_and(|n| n.capabilities & CAP_PERSISTENT_HANDLES != 0);
    agreed && cx.tree().is_ok_and(|t| cx.server.is_continuous(&t.settings))
}

/// Makes a new open durable if requested and possible. For a persistent open, returns once its record is in the store.
pub(crate) async fn grant(
    cx: &RequestContext,
    open: &Arc<Open>,
    request: &Request<'_>,
    asked: &Asked<'_>,
    action: u32,
    ticket: Ticket,
    told: &mut Told,
) {
    let Ok(session) = cx.session() else { return };
    open.durable.note_at(cx.conn.info.peer.ip());
    let handles = keeps_handles(cx, request, asked)
        && lease::rights(&cx.server, open).has(Caching::HANDLE)
        && !open.is_dir()
        // A privilege may be taken away while the client is gone.
        && open.by_privilege == 0;
    let v2 = asked.durable_v2.filter(|_| ticket.is_named());
    let persistent = v2.is_some_and(|v| v.flags & DHANDLE_FLAG_PERSISTENT != 0)
        && !open.is_dir()
        // The record of an open has no privileges.
        && open.by_privilege == 0
        && may_persist(cx);
    {
        let mut durability = open.durable.durability();
        durability.facts.client = session.client_guid();
        durability.facts.owner = session.user().map(|u| u.name.clone()).unwrap_or_default();
        durability.facts.action = action;
        durability.facts.app_instance = asked.app_instance;
        durability.facts.app_version = asked.app_version;
        if let Some(v2) = v2 {
            durability.facts.create = Some(v2.guid);
            durability.facts.timeout_ms = match v2.timeout {
                0 => TIMEOUT_DEFAULT_MS,
                ms => ms.min(TIMEOUT_MAX_MS),
            };
            durability.persistent = persistent;
            durability.version = (handles || persistent).then_some(Version::Two);
        } else if asked.durable && handles {
            durability.version = Some(Version::One);
            durability.facts.timeout_ms = TIMEOUT_DEFAULT_MS;
            told.durable = true;
        }
    }
    if persistent && persist::save(&cx.server, open).await.is_err() {
        // Promise no durability that would not be kept.
        let mut durability = open.durable.durability();
        durability.persistent = false;
        durability.version = handles.then_some(Version::Two);
    }
    {
        let durability = open.durable.durability();
        if durability.version == Some(Version::Two) {
            let flags = if durability.persistent { DHANDLE_FLAG_PERSISTENT } else { 0 };
            told.durable_v2 = Some((durability.facts.timeout_ms, flags));
        }
    }
    ticket.done(open);
}

/// Gives an open back to its client if the request is a reconnect (MS-SMB2 sections 3.3.5.9.7 and 3.3.5.9.12).
pub(crate) async fn reconnect(
    cx: &RequestContext,
    request: &Request<'_>,
    asked: &Asked<'_>,
) -> Result<Option<Arc<Open>>, Status> {
    let found = match (asked.reconnect, asked.reconnect_v2) {
        (Some(id), None) => find(cx, id)?,
        // Dialects before 3.0 have no version 2 handles, so the lookup fails (MS-SMB2 section 3.3.5.9.12).
        (None, Some(_)) if !cx.conn.dialect().is_3() => {
            return Err(Status::OBJECT_NAME_NOT_FOUND);
        }
        (None, Some(again)) => find_v2(cx, &again)?,
        _ => return Ok(None),
    };
    let session = cx.session()?;
    let CreateInfo { client, owner, .. } = found.durable.facts();
    // Like most of the request, the level is ignored; only the context counts.
    let context = lease::asked(cx, oplock::LEASE, asked.lease.as_ref());
    match (found.caching.lease(), context) {
        (None, None) => {}
        (Some(lease), Some(context))
            if lease.key() == context.key
                && lease.client() == session.client_guid()
                && lease.is_version_2() == context.v2.is_some() =>
        {
            // MS-SMB2 3.3.5.9.7: a reconnect to an open with a lease must give the file's name.
            let name = wire::utf16(&request.name).unwrap_or_default();
            if !is_name_of(&found, &name) {
                return Err(Status::INVALID_PARAMETER);
            }
            // The record may lack breaks that were sent just before a crash.
            lease.not_before(context.v2.map_or(0, |v| v.epoch));
        }
        _ => return Err(Status::OBJECT_NAME_NOT_FOUND),
    }
    if client != session.client_guid() && found.caching.lease().is_some() {
        return Err(Status::OBJECT_NAME_NOT_FOUND);
    }
    if session.user().is_none_or(|u| u.name != owner) {
        return Err(Status::ACCESS_DENIED);
    }
    if !take_up(cx, &found).await? {
        return Err(Status::OBJECT_NAME_NOT_FOUND);
    }
    found.durable.not_replayable();
    Ok(Some(found))
}

/// Returns whether the client of an open calls its file by this name.
fn is_name_of(open: &Open, name: &str) -> bool {
    let Ok(path) = open.file().map(|file| file.place().path) else { return false };
    if !open.posix {
        return path.eq_ignore_ascii_case(name.split(':').next().unwrap_or_default());
    }
    let shown = |name: &String| Some(to_client(&open.spelling().to_disk(name).ok()?));
    let names = Path::of_posix(name).ok();
    let names = names.and_then(|path| path.names.iter().map(shown).collect::<Option<Vec<_>>>());
    names.is_some_and(|names| names.join("\\") == path)
}

/// Gives a waiting open to the session of this request. Returns false if another request took it first. Ends the open and returns
/// STATUS_ACCESS_DENIED if this tree would not grant the open's access to its user: the share, or the address of the client, may
/// allow less than at open time.
async fn take_up(cx: &RequestContext, open: &Arc<Open>) -> Result<bool, Status> {
    let (session, tree) = (cx.session()?, cx.tree()?);
    if open.share()?.id != tree.share().ok_or(Status::OBJECT_NAME_NOT_FOUND)?.id {
        return Ok(false);
    }
    // No other request can take the open after this; one may have just done so.
    let stands =
        share_access::is_within(open.granted, &open.cred, (tree.maximal_access, &tree.cred));
    let (owner, of_tree) = if stands { (session.id, tree.id) } else { NOBODY };
    if !open.party.lease.hold() || !cx.server.opens.take_up(open, owner, of_tree) {
        return Ok(false);
    }
    if !stands {
        tracing::info!(
            peer = %cx.conn.info.peer, share = tree.name, user = &*session.owner(),
            "a durable handle is closed: its client reconnected with different rights"
        );
        teardown::end_open(&cx.server, open).await;
        return Err(Status::ACCESS_DENIED);
    }
    if let Some(lease) = open.caching.lease() {
        lease.party.lease.hold();
    }
    open.durable.note_at(cx.conn.info.peer.ip());
    open.durable.durability().sent_anew = false;
    lease::tell_again(cx, open);
    Ok(true)
}

/// As [`find`], for a version 2 request. A client that got no answer to its CREATE does not know the open's persistent id, but
/// knows its CreateGuid.
fn find_v2(cx: &RequestContext, again: &ReconnectV2) -> Result<Arc<Open>, Status> {
    let persistent = again.flags & DHANDLE_FLAG_PERSISTENT != 0;
    let by_create = |o: &Open| {
        let durability = o.durable.durability();
        durability.persistent && durability.facts.create == Some(again.guid)
    };
    let found = match find(cx, again.file) {
        Err(_) if persistent && may_persist(cx) => cx.server.opens.waiting(by_create),
        other => Some(other?),
    };
    let open = found.ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
    let fits = {
        let durability = open.durable.durability();
        // An open made without a CreateGuid matches all zeros.
        durability.facts.create.unwrap_or_default() == again.guid
            && durability.persistent == persistent
    };
    if fits { Ok(open) } else { Err(Status::OBJECT_NAME_NOT_FOUND) }
}

/// Returns an open that waits for its client. Each version of the request finds opens of both versions, as with Windows.
fn find(cx: &RequestContext, id: FileId) -> Result<Arc<Open>, Status> {
    let found = cx.server.opens.waiting_by_id(id.persistent);
    found.filter(|o| o.durable.is_durable()).ok_or(Status::OBJECT_NAME_NOT_FOUND)
}

/// Handles a CREATE that conflicts with a persistent or resilient open which waits for its client: fails with
/// STATUS_FILE_NOT_AVAILABLE, so that it is retried (MS-SMB2 section 3.3.5.9). Closes an open that its client has abandoned.
pub(crate) async fn check_waiting(
    cx: &RequestContext,
    open: &Open,
    access: u32,
) -> Result<(), Status> {
    let (core, file) = (&cx.server, open.file()?);
    let wanted = Open::opening(access, open.shared, false);
    if wanted.attributes_only {
        return Ok(());
    }
    let mut left = Vec::new();
    for other in core.opens.of_node(file.base().id()) {
        if other.session_id() != 0
            || !other.durable.stands()
            || other.node()?.id() != file.node().id()
            || other.party.client() == open.party.client()
        {
            continue;
        }
        let theirs = Open::opening(other.granted, other.shared, false);
        let shares = !theirs.attributes_only && theirs.share.conflicts(wanted.share);
        if !shares && !lease::rights(core, &other).has(Caching::HANDLE) {
            continue;
        }
        if !is_left(cx, &other)? {
            return Err(Status::FILE_NOT_AVAILABLE);
        }
        left.push(other);
    }
    for other in left {
        if !take_away(core, &other) {
            return Err(Status::FILE_NOT_AVAILABLE);
        }
        tracing::info!(
            share = other.share()?.name,
            path = file.place().path,
            user = other.durable.owner(),
            "a persistent handle is closed: another open needs the file, and its client, which is connected again, has not \
             reclaimed it"
        );
        teardown::end_open(core, &other).await;
    }
    Ok(())
}

/// Returns whether the client has abandoned a waiting persistent open: it sent a new CREATE and uses another lease key for the file
/// now, or it has reconnected to the share and reclaimed no open for [`TAKES_UP_MAX`]. Connections that existed before the loss do
/// not count as a reconnect. An open that deletes its file at close waits for its full timeout.
fn is_left(cx: &RequestContext, open: &Open) -> Result<bool, Status> {
    if !open.durable.is_persistent() || open.delete_on_close() {
        return Ok(false);
    }
    let (CreateInfo { client, owner, .. }, share) = (open.durable.facts(), open.share()?.id);
    let is_its =
        |s: &Session| s.client_guid() == client && s.user().is_some_and(|user| user.name == owner);
    if open.durable.durability().sent_anew && is_its(cx.session()?) {
        return Ok(true);
    }
    let sessions = cx.server.sessions.of_client(client).into_iter().filter(|s| is_its(s));
    let trees = sessions.flat_map(|s| s.trees());
    let of_share = trees.filter(|tree| tree.share().is_some_and(|it| it.id == share));
    let Some(lost_at) = open.durable.durability().lost_at else { return Ok(false) };
    let ago = of_share.filter_map(|tree| tree.last_take_up.ago(lost_at)).min();
    Ok(lost_at.elapsed() >= TAKES_UP_MAX && ago.is_some_and(|ago| ago >= TAKES_UP_MAX))
}

/// Takes the open away from reconnects. Returns false if a reconnect was first.
fn take_away(core: &ServerState, open: &Open) -> bool {
    open.party.lease.hold() && core.opens.take_up(open, NOBODY.0, NOBODY.1)
}

/// Closes the opens of this file that an earlier instance of the same application has elsewhere, if the user may read the file, so
/// that the application can move to another machine: `SMB2_CREATE_APP_INSTANCE_ID` and `SMB2_CREATE_APP_INSTANCE_VERSION` (MS-SMB2
/// sections 3.3.5.9.13 and 3.3.5.9.15). An open made with a version can be replaced only by the same or a newer version. Returns
/// whether an open was closed.
pub(crate) async fn take_over(
    cx: &RequestContext,
    asked: &Asked<'_>,
    file: &File,
    readable: impl Future<Output = Result<bool, Status>>,
) -> Result<bool, Status> {
    let dialect = cx.conn.dialect();
    let Some(instance) = asked.app_instance.filter(|_| dialect.is_3()) else { return Ok(false) };
    let version = asked.app_version.filter(|_| dialect == Dialect::V311);
    let client = cx.session()?.client_guid();
    let elsewhere = |o: &Arc<Open>| {
        let facts = o.durable.facts();
        let same = |f: &File| f.share.id == file.share.id && f.same_name(file);
        facts.app_instance == Some(instance) && facts.client != client && o.file().is_ok_and(same)
    };
    let mut older = cx.server.opens.of_node(file.base().id());
    older.retain(elsewhere);
    if older.is_empty() || !readable.await? {
        return Ok(false);
    }
    let kept = |was| version.is_none_or(|version| was >= version);
    if older.iter().any(|o| o.durable.facts().app_version.is_some_and(kept)) {
        return Err(Status::FILE_FORCED_CLOSED);
    }
    for open in older {
        teardown::end_open(&cx.server, &open).await;
    }
    Ok(true)
}
