//! Persistent handles: opens that outlive the server itself (MS-SMB2 sections 3.3.1.10 `Open.IsPersistent`, 3.3.5.9.10).
//!
//! *Operation.* On a continuously available share an open can be made persistent. From then on [`save`] writes its whole state
//! after every change, and no answer that reports the change leaves before the record is durable. [`crate::restore`] reopens the
//! recorded handles before the first client can connect: their share modes, leases and locks apply to all clients again, and each
//! handle waits for its client for the time it was promised.
//!
//! *Memory.* A record per handle in the store, at most [`LOCKS_MAX`] locks each.
//!
//! *Errors.* A change that cannot be written is refused, and a change that cannot be refused is [written later](rewrite). A record
//! whose file or share is gone is dropped, with a line in the log.

pub(crate) mod locks;
pub(crate) mod record;
pub(crate) mod rewrite;

use std::sync::Arc;

use smb_proto::dtyp::Sid;
use state::Caching;
use vfs::{Domain, Token};

use crate::caching::Lease;
use crate::open::Open;
use crate::open_durable::Saving;
use crate::pace::Pace;
use crate::server_state::ServerState;
use crate::status::Status;

use record::{Caches, Record};
use recovery::{Change, Kind};

/// Byte-range locks that one persistent handle may hold: each change writes all of them.
pub const LOCKS_MAX: usize = 1_024;

fn key(persistent: u64) -> [u8; 8] {
    persistent.to_be_bytes()
}

/// Records written in one commit. Their handles are locked meanwhile, so no client waits for more records than these.
const BATCH: usize = 64;

/// Writes the present state of a handle if it is persistent. Returns once the record is durable. After an error the store may have
/// the old or the new record, which is written again later.
pub(crate) async fn save(core: &ServerState, open: &Arc<Open>) -> Result<(), Status> {
    save_all(core, std::slice::from_ref(open)).await
}

/// Writes the persistent handles among these in few commits of the store. Returns once they are durable. An error with one handle
/// does not prevent writing the others.
pub(crate) async fn save_all(core: &ServerState, opens: &[Arc<Open>]) -> Result<(), Status> {
    save_those(core, opens, |_, _| true).await
}

/// As [`save_all`], but skips handles whose record in the store is up to date.
pub(crate) async fn save_changed(core: &ServerState, opens: &[Arc<Open>]) -> Result<(), Status> {
    save_those(core, opens, |saving, digest| saving.durable != Some(digest)).await
}

async fn save_those(
    core: &ServerState,
    opens: &[Arc<Open>],
    which: impl Fn(&Saving, u64) -> bool,
) -> Result<(), Status> {
    let Some(store) = &core.store else { return Ok(()) };
    let persistent = |o: &&Arc<Open>| o.durable.is_persistent();
    let mut opens: Vec<Arc<Open>> = opens.iter().filter(persistent).cloned().collect();
    // Batches lock their common handles in the same order, so that they cannot deadlock.
    opens.sort_by_key(|o| (o.id.persistent, o.id.volatile));
    opens.dedup_by(|a, b| Arc::ptr_eq(a, b));
    let mut batches = Vec::with_capacity(opens.len().div_ceil(BATCH));
    let (mut all, mut pace) = (Ok(()), Pace::begin());
    for some in opens.chunks(BATCH) {
        pace.keep().await;
        let (batch, made) = Batch::submit(core, store, some, &which);
        batches.extend(batch);
        all = all.and(made);
    }
    for batch in batches {
        all = all.and(batch.written(core).await);
    }
    all
}

/// Records handed to the store together.
struct Batch {
    written: Vec<Written>,
    pending: recovery::Pending,
}

/// A record handed to the store.
struct Written {
    open: Arc<Open>,
    digest: u64,
    /// See [`Saving::submitted`].
    number: u64,
}

impl Batch {
    /// Hands the changed records to the store; `None` without any.
    fn submit(
        core: &ServerState,
        store: &recovery::Store,
        opens: &[Arc<Open>],
        which: &impl Fn(&Saving, u64) -> bool,
    ) -> (Option<Self>, Result<(), Status>) {
        let (mut written, mut changes) = (Vec::new(), Vec::new());
        // Keep a handle locked until its record is handed over, so that records are written in the order of the states they show.
        let (mut locked, mut all) = (Vec::with_capacity(opens.len()), Ok(()));
        for open in opens {
            let mut saving = open.durable.saving();
            if saving.forgotten {
                continue;
            }
            let record = match snapshot(core, open, &saving) {
                Ok(record) => record,
                Err(status) => {
                    core.unwritten.owe(open);
                    all = Err(status);
                    continue;
                }
            };
            let digest = record.digest();
            if !which(&saving, digest) {
                continue;
            }
            let number = saving.submit();
            let record = Record { order: core.unwritten.next_order(), ..record };
            changes.push(Change::put(Kind::SmbOpen, &key(open.id.persistent), &record.encode()));
            written.push(Written { open: open.clone(), digest, number });
            locked.push(saving);
        }
        if changes.is_empty() {
            return (None, all);
        }
        (Some(Self { written, pending: store.submit(changes) }), all)
    }

    /// Waits until the records are durable.
    async fn written(self, core: &ServerState) -> Result<(), Status> {
        let done = self.pending.await;
        for Written { open, digest, number } in self.written {
            match done {
                Ok(()) => open.durable.saving().is_durable(number, digest),
                Err(_) => core.unwritten.owe(&open),
            }
        }
        // The store has logged the reason.
        done.map_err(|_| Status::INSUFFICIENT_RESOURCES)
    }
}

/// Writes all persistent handles of a lease. Returns once they are durable.
pub(crate) async fn save_lease(core: &ServerState, lease: &Lease) -> Result<(), Status> {
    save_all(core, &lease.opens()).await
}

/// Starts to write a change of a holder's caching, for callers that cannot wait. Later writes are ordered after it.
pub(crate) fn note(core: &Arc<ServerState>, opens: Vec<Arc<Open>>) {
    if opens.iter().any(|o| o.durable.is_persistent()) {
        let core = core.clone();
        tokio::spawn(async move { save_all(&core, &opens).await });
    }
}

/// Forgets closed handles. Returns once their records are deleted, or once a failed deletion is scheduled to be tried again.
pub(crate) async fn forget(core: &ServerState, opens: &[Arc<Open>]) {
    let mut gone = Vec::new();
    for open in opens.iter().filter(|open| open.durable.is_persistent()) {
        // Prevent all further records of it.
        open.durable.saving().forgotten = true;
        gone.push(open.id.persistent);
    }
    strike(core, &gone).await;
}

/// Deletes the records of handles in one commit. After an error the store may still have them; they are deleted again later.
async fn strike(core: &ServerState, persistent: &[u64]) {
    let Some(store) = &core.store else { return };
    if persistent.is_empty() {
        return;
    }
    let strikes = persistent.iter().map(|id| Change::remove(Kind::SmbOpen, &key(*id)));
    if store.submit(strikes.collect()).await.is_err() {
        persistent.iter().for_each(|id| core.unwritten.owe_strike(*id));
    }
}

/// Builds the record of a handle, without its [`Record::order`].
fn snapshot(core: &ServerState, open: &Open, saving: &Saving) -> Result<Record, Status> {
    let file = open.file()?;
    let place = file.place();
    let locks = locks::recorded(core, open, file.node().id(), &saving.releasing);
    if locks.len() > LOCKS_MAX {
        return Err(Status::INSUFFICIENT_RESOURCES);
    }
    let facts = open.durable.facts();
    Ok(Record {
        id: open.id,
        share: file.share.name.clone(),
        base: file.base().handle().as_bytes().to_vec(),
        stream: file.stream(),
        dir: place.dir.handle().as_bytes().to_vec(),
        name: place.name,
        path: place.path,
        uid: open.cred.uid,
        gid: open.cred.gid,
        groups: open.cred.groups.to_vec(),
        sids: recorded(&open.cred.token),
        owner: facts.owner,
        client: facts.client,
        granted: open.granted,
        shared: open.shared,
        options: open.options,
        posix: open.posix,
        delete_on_close: open.delete_on_close(),
        delete_pending: core.opens.is_delete_pending(open),
        create: facts.create.unwrap_or_default(),
        action: facts.action,
        timeout_ms: facts.timeout_ms,
        app_instance: facts.app_instance,
        app_version: facts.app_version,
        caches: caches(core, open),
        locks,
        sequences: locks::sequences(open, saving),
        next: saving.next.as_ref().map(|n| n.handle().as_bytes().to_vec()),
        order: 0,
    })
}

/// Returns the SIDs of a ticket, the user's first. An account has that of its way of logon alone.
fn recorded(token: &Token) -> Vec<Sid> {
    if token.is_by_ntlm() && token.user().is_none() {
        return vec![Sid::ntlm()];
    }
    let user = token.user();
    let others = token.sids().iter().filter(|sid| Some(*sid) != user);
    user.into_iter().chain(others).cloned().collect()
}

/// Builds a token from the SIDs of a record.
pub(crate) fn token_of(domain: Option<&Arc<Domain>>, sids: &[Sid]) -> Token {
    match (domain, sids) {
        (domain, [one]) if *one == Sid::ntlm() => Token::of_account(domain),
        (Some(domain), [user, others @ ..]) => {
            Token::of_ticket(domain, user.clone(), others.iter().cloned())
        }
        _ => Token::NONE,
    }
}

/// Returns the caching of the handle. During a break this is all of the earlier caching, because its client may not know of the
/// break.
fn caches(core: &ServerState, open: &Open) -> Option<Caches> {
    let table = core.namespace.arbiter().state();
    let node = open.node().ok()?.id();
    let rights = |holder| table.held(node, holder).map_or(Caching::NONE, |h| h.rights);
    let Some(lease) = open.caching.lease() else {
        let rights = rights(open.party.holder);
        return (!rights.is_none()).then_some(Caches::Oplock { rights });
    };
    let (epoch, parent) = lease.version();
    let (key, version_2) = (lease.key(), lease.is_version_2());
    Some(Caches::Lease { rights: rights(lease.party.holder), key, version_2, epoch, parent })
}
