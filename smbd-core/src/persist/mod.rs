//! Persistent handles: opens that outlive the server itself (MS-SMB2 sections 3.3.1.10 `Open.IsPersistent`, 3.3.5.9.10).
//!
//! *Operation.* On a share that is continuously available an open can be made persistent. From then on [`save`] writes all that
//! it is and holds after every change of it, and no answer that tells of the change leaves before that is durable.
//! [`crate::restore`] opens what is found, before the first client can come: share modes, leases and locks stand in everybody's
//! way again, and each handle waits for its client for the time that it was promised.
//!
//! *Memory.* A record per handle in the store, at most [`LOCKS_MAX`] locks each.
//!
//! *Errors.* What cannot be written is refused to the client, and [written later](rewrite) where it is so all the same. A record
//! whose file or share is gone is given up, with a line in the log.

pub(crate) mod locks;
pub(crate) mod record;
pub(crate) mod rewrite;

use std::sync::Arc;

use state::Caching;

use crate::caching::Lease;
use crate::open::Open;
use crate::open_durable::Saving;
use crate::server_state::ServerState;
use crate::status::Status;

use record::{Caches, Record};
use recovery::{Change, Kind};

/// Byte-range locks that one persistent handle may hold: each change writes all of them.
pub const LOCKS_MAX: usize = 1_024;

fn key(persistent: u64) -> [u8; 8] {
    persistent.to_be_bytes()
}

/// Writes a persistent handle as it is now; of another there is nothing to write. Ready when it is durable. After an error the
/// record may be the old one or the new one, and is written again later.
pub(crate) async fn save(core: &ServerState, open: &Arc<Open>) -> Result<(), Status> {
    let written = write(core, open).await;
    if written.is_err() {
        core.unwritten.owe(open);
    }
    written
}

async fn write(core: &ServerState, open: &Open) -> Result<(), Status> {
    let pending = {
        // What is seen first is written first.
        let saving = open.durable.saving();
        let Some(store) = core.store.as_ref().filter(|_| open.durable.is_persistent()) else {
            return Ok(());
        };
        if saving.forgotten {
            return Ok(());
        }
        let record = snapshot(core, open, &saving)?;
        store.submit(vec![Change::put(Kind::SmbOpen, &key(open.id.persistent), &record.encode())])
    };
    // The store has logged why.
    pending.await.map_err(|_| Status::INSUFFICIENT_RESOURCES)
}

/// Writes all persistent handles of a lease. Ready when they are durable.
pub(crate) async fn save_lease(core: &ServerState, lease: &Lease) -> Result<(), Status> {
    for open in lease.opens() {
        save(core, &open).await?;
    }
    Ok(())
}

/// Begins to write what has become of a holder's rights, for those who cannot wait. What is written later comes after it.
pub(crate) fn note(core: &Arc<ServerState>, opens: Vec<Arc<Open>>) {
    for open in opens.into_iter().filter(|o| o.durable.is_persistent()) {
        let core = core.clone();
        tokio::spawn(async move { save(&core, &open).await });
    }
}

/// A handle has gone. Ready when a restart does not bring it back, or that could not be written and is tried again later.
pub(crate) async fn forget(core: &ServerState, open: &Open) {
    if open.durable.is_persistent() {
        // Nothing is written of it from here on.
        open.durable.saving().forgotten = true;
        strike(core, open.id.persistent).await;
    }
}

/// Removes the record of a handle. After an error it may be there or not, and is struck again later.
async fn strike(core: &ServerState, persistent: u64) {
    let Some(store) = &core.store else { return };
    if store.submit(vec![Change::remove(Kind::SmbOpen, &key(persistent))]).await.is_err() {
        core.unwritten.owe_strike(persistent);
    }
}

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
        order: core.unwritten.next_order(),
    })
}

/// What the handle may cache. During a break still all that it had: its client may know of no break.
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
