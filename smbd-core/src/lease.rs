//! Requests and breaks of leases and oplocks ([`crate::caching`]).
//!
//! *Operation.* CREATE takes a [`Claim`] before it opens the file, so that the open acts under the lease's key, and requests
//! caching once the file is open ([`request`]). A break in [`state`] becomes a notification on a live connection of its session,
//! and a task revokes the caching when the holder's deadline has passed.
//!
//! A client must see the grant of a right before its break. A notification therefore waits until the answer to the CREATE that
//! granted the right, or to the acknowledgement of the previous step, has left its connection. And a CREATE waits while the WRITE
//! caching of its lease is being broken ([`given_back`]): if an open is answered in between, Linux (fs/smb/client,
//! `cifs_new_fileinfo`) drops the locks that it cached and was about to send.
//!
//! *Memory.* One task for each pending break.
//!
//! *Errors.* STATUS_INVALID_PARAMETER for a key that is in use for another file (MS-SMB2 section 3.3.5.9.8).
//!
//! # States of a lease or oplock
//!
//! The grant is in [`state`] (`grants`), under the holder of the lease, or of the open that has the oplock.
//!
//! ```text
//!               request                     tell (Stage::Started)
//!   NO RIGHTS -----------> GRANTED -----------------------------------> BREAKING ---+
//!      ^ ^                  |   ^                                        |  |  ^    |  acknowledge, and more is
//!      | |                  |   |                acknowledge             |  |  +----+  needed: tell, next step
//!      | +------------------+   +----------------------------------------+  |
//!      |   tell (Stage::Done)                                               |
//!      +--------------------------------------------------------------------+
//!          overrule, acknowledge with no rights
//! ```
//!
//! | from | event | function | to |
//! |---|---|---|---|
//! | NO RIGHTS | CREATE asks for caching | [`request`] | GRANTED, or no change |
//! | GRANTED | CREATE with the same key asks for more | [`request`] | GRANTED, all of it or no change |
//! | GRANTED | conflict, and READ is all it has | [`tell`] (`Stage::Done`) | NO RIGHTS, no acknowledgement |
//! | GRANTED | any other conflict | [`tell`] (`Stage::Started`) | BREAKING |
//! | BREAKING | OPLOCK_BREAK that keeps no more than the break leaves | [`acknowledge`] | GRANTED or NO RIGHTS |
//! | BREAKING | the same, and another request needs more | [`acknowledge`], [`tell`] | BREAKING, with the next step |
//! | BREAKING | its deadline ends, and was not moved by a write of its client | [`overrule`] | NO RIGHTS |
//! | BREAKING | the client reconnects | [`tell_again`] | BREAKING |
//! | any | the last open of the lease, or the open of the oplock, closes | [`closed`] | NO RIGHTS |
//!
//! `ops::oplock_break` refuses an acknowledgement that no break asked for, and one of a lease that keeps too much; an oplock whose
//! acknowledgement keeps too much loses all rights. While all opens of a lease wait for their client
//! ([`Lease::follow`]), the first conflicting request ends those that are only durable, instead of waiting.

use std::sync::{Arc, Weak};
use std::time::Duration;

use rdma_transport::count;
use state::{
    Answers, Break, CacheRequest, Caching, ClientId, Holder, HolderId, Kind, Lease as HolderLease,
    NodeId, Requester, Stage,
};
use vfs::arbiter::WaitPolicy;
use vfs::backend::NodeRef;

use crate::caching::{Claim, Lease, Owner, from_state, named_parent, of_level, to_level, to_state};
use crate::conn::Conn;
use crate::in_flight::InFlight;
use crate::notice::{Following, HEARD_MAX, To, send, ways};
use crate::open::Open;
use crate::request_context::RequestContext;
use crate::server_state::ServerState;
use crate::slot::{Behind, behind_answer};
use crate::status::Status;
use crate::wire::context::{Lease as Context, LeaseV2, lease_flag};
use crate::wire::create::oplock;
use crate::wire::negotiate::Dialect;
use crate::wire::oplock_break::{LeaseNotice, Oplock};

type Guid = [u8; 16];

/// The longest time that a notification waits for the answers that granted the right or ended the previous step. Windows
/// distinguishes a new right from an old one by its epoch.
const ANSWERS_MAX: Duration = Duration::from_secs(1);
/// The counter of notifications that waited for [`ANSWERS_MAX`].
const ANSWERS_TAKE_LONG: &str = "notice-behind-answer";
/// The longest time that a CREATE waits for a client that is giving back WRITE caching but writes no data. A client that gives it
/// back only after the answer to its CREATE must not lose its cached data.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// Returns the parent's lease for [`vfs::namespace::FileOps::from_parent`], for a CREATE that makes a file in this directory.
pub(crate) fn parent_of_new(
    cx: &RequestContext,
    level: u8,
    context: Option<&Context>,
    dir: &NodeRef,
) -> Option<ClientId> {
    let key = named_parent(asked(cx, level, context)?)?;
    let session = cx.session().ok()?;
    cx.server.leases.parent(session.client_guid(), &session.owner(), key, dir.id())
}

/// Returns the lease that a CREATE requests, if its dialect has leases and supports the version of the context.
pub(crate) fn asked<'a>(
    cx: &RequestContext,
    level: u8,
    context: Option<&'a Context>,
) -> Option<&'a Context> {
    let dialect = cx.conn.dialect();
    let context = context.filter(|_| level == oplock::LEASE && dialect != Dialect::V202)?;
    (context.v2.is_none() || dialect.is_3()).then_some(context)
}

/// Checks, before a file is made, that no lease with this key exists for another file.
pub(crate) fn check_new(
    cx: &RequestContext,
    level: u8,
    context: Option<&Context>,
) -> Result<(), Status> {
    let Some(context) = asked(cx, level, context) else { return Ok(()) };
    let session = cx.session()?;
    match cx.server.leases.find(session.client_guid(), &session.owner(), context.key) {
        Some(_) => Err(Status::INVALID_PARAMETER),
        None => Ok(()),
    }
}

/// Returns a holder for an open without caching: a pipe.
pub(crate) fn party(cx: &RequestContext) -> Holder {
    let table = cx.server.namespace.arbiter().state();
    Holder { holder: table.holder(), lease: Arc::new(HolderLease::held(table.key())), via: 0 }
}

/// Returns the future holder of a file that is about to be opened, under the key of the requested lease or under a new key.
pub(crate) fn claim(
    cx: &RequestContext,
    level: u8,
    context: Option<&Context>,
    node: NodeId,
) -> Result<(Holder, Option<Claim>), Status> {
    let lease = asked(cx, level, context).map(|c| (c.key, c.v2.map(|v| v.epoch)));
    let session = cx.session()?;
    let answers = cx.conn.answers.get_or_init(|| cx.server.leases.answers(cx.conn.info.peer.ip()));
    claim_for(&cx.server, (session.client_guid(), &session.owner(), answers), lease, node)
}

/// As [`claim`], for a client, its user, whether it answers breaks, and the key of the lease with, in version 2, its epoch.
pub(crate) fn claim_for(
    core: &Arc<ServerState>,
    (client, owner, answers): (Guid, &str, &Arc<Answers>),
    lease: Option<(Guid, Option<u16>)>,
    node: NodeId,
) -> Result<(Holder, Option<Claim>), Status> {
    let table = core.namespace.arbiter().state();
    let party = |client| Holder {
        holder: table.holder(),
        lease: Arc::new(HolderLease::held(client).answered_by(answers.clone())),
        via: 0,
    };
    let Some(lease) = lease else { return Ok((party(table.key()), None)) };
    let claim = core.leases.claim(&core.namespace, (client, owner, answers), lease, node)?;
    let holder = party(claim.lease().party.client());
    Ok((holder, Some(claim)))
}

/// Requests caching for a new open and returns the answer of CREATE: `OplockLevel` and, for a lease, its context. `allocated`:
/// allocation size of its file.
pub(crate) fn request(
    cx: &RequestContext,
    open: &Arc<Open>,
    level: u8,
    context: Option<&Context>,
    allocated: u64,
) -> (u8, Option<Context>) {
    let Ok(node) = open.node() else { return (oplock::NONE, None) };
    let (arbiter, file) = (cx.server.namespace.arbiter(), &node);
    let node = node.id();
    if let (Some(context), Some(lease)) = (asked(cx, level, context), open.caching.lease()) {
        lease.add(open);
        lease.party.lease.hold();
        cx.until_answered(lease.answering());
        let told = request_lease(cx, open, &lease, context, allocated);
        if told.state != 0 {
            arbiter.watch_external(file);
        }
        return (oplock::LEASE, Some(told));
    }
    let want = of_level(level);
    if want.is_none() || open.is_dir() || !file.is_cacheable() {
        return (oplock::NONE, None);
    }
    cx.server.leases.own_oplock(open);
    cx.until_answered(open.caching.answering());
    let want = CacheRequest { kind: Kind::Oplock, rights: want, allocated };
    let held = arbiter.state().cache(node, &open.party, want, cx.server.now());
    if held.rights.is_none() {
        cx.server.leases.disown_oplock(open);
    } else {
        arbiter.watch_external(file);
    }
    (to_level(held.rights), None)
}

/// Waits, before CREATE requests caching for an open whose lease is losing WRITE, until the client has given WRITE back, as long as
/// the client keeps writing.
pub(crate) async fn given_back(cx: &RequestContext, open: &Open) {
    let Some(lease) = open.caching.lease() else { return };
    let arbiter = cx.server.namespace.arbiter();
    let is_losing = || {
        let held = arbiter.state().held(lease.node(), lease.party.holder).unwrap_or_default();
        held.rights.has(Caching::WRITE)
            && held.breaking_to.is_some_and(|to| !to.has(Caching::WRITE))
    };
    if !is_losing() {
        return;
    }
    // In the middle of a chain no interim answer is possible; wait without one.
    let _ = cx.begin().await;
    let written = || lease.opens().iter().map(|o| o.caching.writes().begun()).sum::<u64>();
    let wait = async {
        loop {
            let before = written();
            let given = async {
                loop {
                    let returned = arbiter.returned();
                    tokio::pin!(returned);
                    returned.as_mut().enable();
                    if !is_losing() {
                        return;
                    }
                    returned.await;
                }
            };
            if tokio::time::timeout(IDLE_MAX, given).await.is_ok() || written() == before {
                return;
            }
        }
    };
    // A cancel comes too late, because the file is open.
    let _ = cx.or_cancelled(wait).await;
}

/// Returns whether a lease that has other opens may be widened to WRITE for this one. A client with WRITE caching keeps its locks
/// local. If it has just sent a LOCK through an older open, it must not learn of WRITE at that moment: two of its processes could
/// lock the same range, one at the client and one at the server. Linux, recognized by its context of the POSIX extensions, sends
/// both at the same time (fs/smb/client, `cifs_setlk` and `cifs_new_fileinfo`).
fn may_have_write(cx: &RequestContext, open: &Arc<Open>, lease: &Lease) -> bool {
    let is_linux = cx.conn.negotiated().is_some_and(|n| n.posix);
    let older = lease.opens().into_iter().filter(|o| !Arc::ptr_eq(o, open));
    !older.into_iter().any(|o| is_linux || o.caching.has_locked())
}

fn request_lease(
    cx: &RequestContext,
    open: &Arc<Open>,
    lease: &Arc<Lease>,
    asked: &Context,
    allocated: u64,
) -> Context {
    let table = cx.server.namespace.arbiter().state();
    let mut want = from_state(asked.state).grantable();
    if open.is_dir() {
        // MS-SMB2 section 3.3.5.9.8: only version 2 has directory leases, and directories have no data to write.
        want = if lease.is_version_2() { want.without(Caching::WRITE) } else { Caching::NONE };
    }
    if !open.node().is_ok_and(|node| node.is_cacheable()) {
        want = Caching::NONE;
    }
    if !may_have_write(cx, open, lease) {
        want = want.without(Caching::WRITE).grantable();
    }
    // Hold one lock over the grant and its epoch, so that a break that comes at once gets a later epoch.
    let mut versions = lease.versions();
    let before = table.held(lease.node(), lease.party.holder).unwrap_or_default();
    let request = CacheRequest { kind: Kind::Lease, rights: want, allocated };
    let held = table.cache(lease.node(), &lease.party, request, cx.server.now());
    if held.rights != before.rights {
        versions.epoch = versions.epoch.wrapping_add(1);
    }
    let mut flags = 0;
    if held.breaking_to.is_some() {
        flags |= lease_flag::BREAK_IN_PROGRESS;
    }
    if let Some(parent) = named_parent(asked) {
        versions.parent = Some(parent);
    }
    let v2 = lease.is_version_2().then(|| {
        if versions.parent.is_some() {
            flags |= lease_flag::PARENT_LEASE_KEY_SET;
        }
        LeaseV2 { parent: versions.parent.unwrap_or_default(), epoch: versions.epoch }
    });
    tracing::debug!(
        open = open.id.volatile,
        holder = lease.party.holder.0,
        ?want,
        ?held,
        epoch = versions.epoch,
        "lease"
    );
    Context { key: lease.key(), state: to_state(held.rights), flags, v2 }
}

/// Returns what CREATE answers about caching for a reclaimed open.
pub(crate) fn describe(core: &ServerState, open: &Open) -> (u8, Option<Context>) {
    let table = core.namespace.arbiter().state();
    let Ok(node) = open.node() else { return (oplock::NONE, None) };
    let Some(lease) = open.caching.lease() else {
        let held = table.held(node.id(), open.party.holder).unwrap_or_default();
        return (to_level(held.rights), None);
    };
    let held = table.held(lease.node(), lease.party.holder).unwrap_or_default();
    let versions = lease.versions();
    let mut flags = 0;
    if held.breaking_to.is_some() {
        flags |= lease_flag::BREAK_IN_PROGRESS;
    }
    let v2 = lease.is_version_2().then(|| {
        if versions.parent.is_some() {
            flags |= lease_flag::PARENT_LEASE_KEY_SET;
        }
        LeaseV2 { parent: versions.parent.unwrap_or_default(), epoch: versions.epoch }
    });
    (oplock::LEASE, Some(Context { key: lease.key(), state: to_state(held.rights), flags, v2 }))
}

/// Returns the caching that an open has now.
pub(crate) fn rights(core: &ServerState, open: &Open) -> Caching {
    let table = core.namespace.arbiter().state();
    let Ok(node) = open.node() else { return Caching::NONE };
    let holder = open.caching.lease().map_or(open.party.holder, |l| l.party.holder);
    table.held(node.id(), holder).unwrap_or_default().rights
}

/// Returns true while a break takes caching from the holder of this open, which has not acknowledged it.
pub(crate) fn is_breaking(core: &ServerState, open: &Open) -> bool {
    let table = core.namespace.arbiter().state();
    let Ok(node) = open.node() else { return false };
    let holder = open.caching.lease().map_or(open.party.holder, |l| l.party.holder);
    table.held(node.id(), holder).is_some_and(|held| held.breaking_to.is_some())
}

/// Waits until a break takes caching from the holder of this open.
pub(crate) async fn until_breaking(core: &ServerState, open: &Open) {
    let breaks =
        open.caching.lease().map_or_else(|| open.caching.breaks.clone(), |l| l.breaks.clone());
    loop {
        let begins = breaks.notified();
        tokio::pin!(begins);
        // Register before the look, so that no break is missed.
        begins.as_mut().enable();
        if is_breaking(core, open) {
            return;
        }
        begins.await;
    }
}

/// Ends the caching of an open that has closed, unless other opens share it.
pub(crate) fn closed(core: &ServerState, open: &Open) {
    if open.caching.has_changed() {
        listing_changed(core, open);
    }
    core.leases.disown_oplock(open);
    if let Some(claim) = open.caching.take_claim() {
        let lease = claim.lease().clone();
        lease.remove(open);
        drop(claim);
        lease.follow(core.now());
    }
}

/// Breaks caching of the directory's listing after `open` changed an attribute that the listing shows (MS-FSA sections 2.1.5.5 and
/// 2.1.5.15, PARENT_OBJECT).
pub(crate) fn listing_changed(core: &ServerState, open: &Open) {
    let Ok(file) = open.file() else { return };
    let who = core.leases.parent_of(open).map(|client| Requester { client, via: 0, holder: None });
    core.namespace.arbiter().tell(file.place().dir.id(), who, state::Operation::Contents);
}

/// Revokes caching that was not given back in time. A later break of the same holder has its own time.
pub(crate) fn overrule(core: &Arc<ServerState>, what: &Break) {
    if core.namespace.arbiter().revoke(what) {
        tracing::warn!(
            holder = what.holder.0,
            "an oplock or lease break was not acknowledged in time; the right is revoked"
        );
        crate::persist::note(core, core.leases.opens_of(what.holder));
    }
}

/// Returns the notification of a break, its addressee and the answers that must leave before it. All steps of one break carry the
/// epoch of the `first`.
fn notice(core: &ServerState, what: &Break, first: bool) -> Option<(To, Vec<u8>, Arc<InFlight>)> {
    Some(match core.leases.owner(what.holder)? {
        Owner::Oplock(open) => {
            let open = open.upgrade()?;
            open.caching.breaks.notify_waiters();
            let notice = Oplock { level: to_level(what.to), file: open.id };
            (To::Session(open.session_id()), notice.emit(), open.caching.answers())
        }
        Owner::Lease(lease) => {
            lease.breaks.notify_waiters();
            let mut versions = lease.versions();
            versions.epoch = versions.epoch.wrapping_add(u16::from(first));
            let notice = LeaseNotice {
                epoch: if lease.is_version_2() { versions.epoch } else { 0 },
                acknowledge: what.stage == Stage::Started,
                key: lease.key(),
                from: to_state(what.from),
                to: to_state(what.to),
            };
            drop(versions);
            let answers = lease.answers();
            (To::Lease(lease), notice.emit(), answers)
        }
    })
}

/// Sends the notification of a break. The arbiter of [`state`] calls this in the order of the breaks, and the notification is
/// composed here so that epochs follow the same order. Later answers of the connection leave after it: a Linux client that changed
/// a directory which it caches itself learns that its listing is stale before it learns that the change succeeded. Other clients
/// get the notification after the answer to their change, as from Windows.
pub(crate) fn tell(core: &Arc<ServerState>, what: &Break, first: bool) {
    let Some((to, body, answers)) = notice(core, what, first) else { return };
    tracing::debug!(?what, "break notice");
    let (core, what) = (core.clone(), *what);
    let now = ways(&core, &to);
    let change = now.first().and_then(|(_, conn)| own_change(&what, &to, conn));
    let (change, turn) = change.map(|c| ([Some(c.answer), c.before], c.placing)).unzip();
    let at_once = (answers.is_settled() && change.is_none()).then_some(now);
    let placing = at_once.iter().flatten().next().map(|(_, conn)| conn.notices.begin());
    tokio::spawn(async move {
        let ways = match at_once {
            Some(ways) => ways,
            None => {
                left(&answers).await;
                for earlier in change.iter().flatten().flatten() {
                    left(earlier).await;
                }
                ways(&core, &to)
            }
        };
        let sent = send(ways, &to, &body).await;
        drop((placing, turn));
        // Do not keep a stopped server alive for this.
        let server = Arc::downgrade(&core);
        let follow = sent.map(|sent| Following { core: server.clone(), what, to, body, sent });
        drop(core);
        let acknowledged = what.stage == Stage::Started;
        let over = async {
            match acknowledged {
                true => until_overdue(&server, &what).await,
                false => tokio::time::sleep(Duration::from_millis(HEARD_MAX)).await,
            }
        };
        tokio::pin!(over);
        if let Some(follow) = follow {
            tokio::select! {
                () = &mut over => return end(&server, &what),
                () = follow.until_heard() => {}
            }
        }
        if acknowledged {
            over.await;
            end(&server, &what);
        }
    });
}

/// Waits until the break is overdue by the clock of leases, which stops while the process does not run: an acknowledgement that
/// came meanwhile is still in its socket. A holder whose client has written back meanwhile may have got more time.
async fn until_overdue(server: &Weak<ServerState>, what: &Break) {
    let left = || {
        let core = server.upgrade()?;
        Some(core.namespace.arbiter().state().deadline(what).saturating_sub(core.now()))
    };
    loop {
        match left().unwrap_or_default() {
            0 => return,
            left => tokio::time::sleep(Duration::from_millis(left)).await,
        }
    }
}

/// Ends a break whose time is over, if it needs an acknowledgement.
fn end(server: &Weak<ServerState>, what: &Break) {
    if what.stage == Stage::Started
        && let Some(core) = server.upgrade()
    {
        overrule(&core, what);
    }
}

/// Returns the answer that the notification must follow: to the command with which this client, if it is not Linux, changed what a
/// listing of its directory shows. Such breaks need no acknowledgement (MS-FSA section 2.1.4.12, PARENT_OBJECT).
fn own_change(what: &Break, to: &To, conn: &Conn) -> Option<Behind> {
    // In dialect 3.1.1 the context of the POSIX extensions identifies Linux; with older dialects any client may be Linux.
    let is_linux = conn.negotiated().is_none_or(|n| n.posix || n.dialect != Dialect::V311);
    let is_waited_for = what.from.has(Caching::WRITE) || !what.to.is_none();
    let To::Lease(lease) = to else { return None };
    if is_linux || is_waited_for || !lease.opens().iter().any(|o| o.is_dir()) {
        return None;
    }
    behind_answer(conn)
}

/// Waits until these answers have left. Windows accepts the other order, and a connection that takes no answers takes no
/// notification either.
async fn left(answers: &InFlight) {
    if tokio::time::timeout(ANSWERS_MAX, answers.settled()).await.is_err() {
        count::limit_met(ANSWERS_TAKE_LONG);
    }
}

/// Repeats the notification of a break that began while a reclaimed open had no connection.
pub(crate) fn tell_again(cx: &RequestContext, open: &Open) {
    let core = &cx.server;
    let (Ok(node), lease) = (open.node(), open.caching.lease()) else { return };
    let (holder, kind) = match &lease {
        Some(lease) => (lease.party.holder, Kind::Lease),
        None => (open.party.holder, Kind::Oplock),
    };
    let (node, client) = (node.id(), open.party.client());
    let held = core.namespace.arbiter().state().held(node, holder).unwrap_or_default();
    let Some(to) = held.breaking_to else { return };
    let (stage, deadline, from) = (Stage::Started, core.now(), held.rights);
    let what = Break { node, holder, client, kind, from, to, stage, deadline };
    let Some((to, body, answers)) = notice(core, &what, false) else { return };
    cx.until_answered(answers.begin());
    let core = core.clone();
    tokio::spawn(async move {
        left(&answers).await;
        send(ways(&core, &to), &to, &body).await;
    });
}

/// Waits for writes that came through these opens before an acknowledgement. A client may send the acknowledgement directly after
/// the data that it flushes, as Linux does when it keeps READ caching; the request that waits for the break must see that data.
pub(crate) async fn settled(core: &ServerState, opens: &[Arc<Open>]) {
    let wait = Duration::from_millis(core.namespace.arbiter().state().deadlines().wait_ms());
    let all = async {
        for open in opens {
            open.caching.writes().settled().await;
        }
    };
    // After this time the break was decided without the client.
    let _ = tokio::time::timeout(wait, all).await;
}

/// Acknowledges a break by its holder. Requests that waited for it continue at once; a further step of the break is sent after the
/// answer to the acknowledgement has left.
pub(crate) fn acknowledge(cx: &RequestContext, node: NodeId, holder: HolderId, to: Caching) {
    tracing::debug!(?node, holder = holder.0, ?to, "break acknowledged");
    let core = &cx.server;
    if let Some(answers) = core.leases.answers_of(holder) {
        cx.until_answered(answers.begin());
    }
    if let Some(next) = core.namespace.arbiter().acknowledged(node, holder, to) {
        tell(core, &next, false);
    }
}
