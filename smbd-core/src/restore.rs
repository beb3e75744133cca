//! Reopens the handles that were [persistent](crate::persist) when the server ended.
//!
//! *Operation.* First all opens, then their caching, then their locks: state that was compatible before does not conflict now; of
//! conflicting records the one written last counts. At the end, opens that their users would not be granted again are closed. No
//! client is connected yet.
//!
//! A file system mounted inside a share that does not answer delays nothing but its own files: its handles stay in the store and
//! are reopened when it answers, for as long as the server would wait for their clients. A client that opens such a file first
//! wins.
//!
//! *Errors.* [`NotRestored`] if the store, or the file system of a share itself, does not answer.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use state::{CacheRequest, Caching, Kind as Sort, Share as Sharing, Verdict};
use tokio::time::Instant;
use vfs::authority::Grant;
use vfs::namespace::Share;
use vfs::{Cred, Handle, NodeRef, VfsError, VfsResult, streams};

use crate::caching::OpenCaching;
use crate::dtyp::mask;
use crate::lease;
use crate::open::{File, LockSequences, Open, PathInShare, Target};
use crate::open_durable::CreateInfo;
use crate::open_state::OpenState;
use crate::path_tracking;
use crate::persist::record::{Caches, Record};
use crate::persist::token_of;
use crate::reauthorize::reauthorize;
use crate::server_state::ServerState;
use crate::teardown;
use recovery::{Change, Kind};

/// Pause before another try with a file system that cannot answer yet.
const RETRY: Duration = Duration::from_millis(50);
/// Pause before another try with the file systems inside shares that were silent at the start.
const RETRY_LATE: Duration = Duration::from_secs(1);
/// The longest time for questions to the service of the domain about all users of recorded handles.
const LEARN_MAX: Duration = Duration::from_secs(5);

/// The record of a handle, with its key in the store.
type Kept = (Box<[u8]>, Arc<Record>);

/// Why a record is dropped, in words.
type Lost = &'static str;

/// Why a handle was not opened.
enum Missed {
    /// It is dropped.
    Lost(Lost),
    /// Its file system cannot locate the file yet: its queue is full, or not all of its mounts are known.
    Delayed,
}

impl From<Lost> for Missed {
    fn from(why: Lost) -> Self {
        Self::Lost(why)
    }
}

impl Missed {
    /// Interprets an error of the file system: a delay, or the loss of the handle for the reason `why`.
    fn by(error: VfsError, why: Lost) -> Self {
        if error == VfsError::Delay { Self::Delayed } else { Self::Lost(why) }
    }
}

/// Why persistent handles were not reopened.
#[derive(Debug)]
pub enum NotRestored {
    /// The store cannot be read or written.
    Store(recovery::Error),
    /// The file system of this share does not answer. Its handles remain in the store.
    Silent(String),
}

impl From<recovery::Error> for NotRestored {
    fn from(why: recovery::Error) -> Self {
        Self::Store(why)
    }
}

/// As [`reopen`], with a time limit: a call to a file system that never answers is left behind in its own task.
async fn reopen_in_time(
    core: &Arc<ServerState>,
    record: &Arc<Record>,
    limit: Duration,
) -> Result<Result<Arc<Open>, Lost>, NotRestored> {
    let (core, its) = (core.clone(), record.clone());
    let work = tokio::spawn(async move {
        loop {
            match reopen(&core, &its).await {
                Ok(open) => return Ok(open),
                Err(Missed::Lost(why)) => return Err(why),
                Err(Missed::Delayed) => tokio::time::sleep(RETRY).await,
            }
        }
    });
    let ending = work.abort_handle();
    match tokio::time::timeout(limit, work).await {
        Ok(done) => Ok(done.unwrap_or(Err("it could not be opened"))),
        Err(_) => {
            ending.abort();
            Err(NotRestored::Silent(record.share.clone()))
        }
    }
}

/// Reopens all recorded handles that their users would be granted again, and returns their number. Call it once, before the first
/// client is served. `limit`: the longest time for one handle.
pub(crate) async fn restore(
    core: &Arc<ServerState>,
    limit: Duration,
) -> Result<usize, NotRestored> {
    let Some(store) = &core.store else { return Ok(0) };
    let reader = store.clone();
    let records = tokio::task::spawn_blocking(move || reader.read(Kind::SmbOpen)).await;
    let records = records.unwrap_or(Err(recovery::Error::Ended))?;
    let mut gone = Vec::new();
    let all = in_order(records, &mut gone);
    all.iter().for_each(|(_, record)| core.unwritten.comes_after(record.order));
    let (opens, late) = reopen_all(core, all, limit, &mut gone).await?;
    if !gone.is_empty() {
        store.submit(gone).await?;
    }
    take_up_state(core, &opens);
    learn_owners(core, &opens).await;
    // A handle that the configuration, or an account, no longer allows must not block other clients.
    let refused = reauthorize(core).await.opens;
    if !late.is_empty() {
        let handles = late.len();
        tracing::warn!(
            handles,
            "persistent handles wait for file systems inside shares that do not respond"
        );
        tokio::spawn(restore_late(Arc::downgrade(core), late));
    }
    if refused > 0 {
        tracing::warn!(
            refused,
            "persistent handles are dropped: the rights of their users have changed"
        );
    }
    Ok(opens.len().saturating_sub(refused))
}

/// Lets the service of the domain say whether the numbers of the users of these opens are those of identities of the domain, before
/// their rights are judged. Ends after [`LEARN_MAX`].
async fn learn_owners(core: &ServerState, opens: &[(Arc<Open>, Arc<Record>)]) {
    let Some(domain) = core.users.domain() else { return };
    let owners: BTreeSet<&str> = opens.iter().map(|(_, record)| &*record.owner).collect();
    let learn = async {
        for cred in owners.iter().filter_map(|owner| core.users.cred(owner)) {
            if let Some(asking) = domain.learn(Ipv4Addr::LOCALHOST.into(), &cred) {
                asking.await;
            }
        }
    };
    // Without an answer those that a domain might deny are dropped.
    let _ = tokio::time::timeout(LEARN_MAX, learn).await;
}

/// Reopens these handles. Returns the opens, and the handles of silent mounts inside shares; `gone` receives those that are
/// dropped.
async fn reopen_all(
    core: &Arc<ServerState>,
    records: Vec<Kept>,
    limit: Duration,
    gone: &mut Vec<Change>,
) -> Result<(Vec<(Arc<Open>, Arc<Record>)>, Vec<Kept>), NotRestored> {
    let (mut opens, mut late) = (Vec::with_capacity(records.len()), Vec::new());
    let mut silent = BTreeSet::new();
    for (key, record) in records {
        let is_inner = is_of_inner_mount(core, &record);
        // One wait for the mounts inside a share is enough.
        if is_inner && silent.contains(&record.share) {
            late.push((key, record));
            continue;
        }
        match reopen_in_time(core, &record, limit).await {
            Ok(Ok(open)) => opens.push((open, record)),
            Ok(Err(why)) => gone.push(dropped(key, &record, why)),
            Err(NotRestored::Silent(share)) if is_inner => {
                silent.insert(share);
                late.push((key, record));
            }
            Err(why) => return Err(why),
        }
    }
    Ok((opens, late))
}

fn is_of_inner_mount(core: &ServerState, record: &Record) -> bool {
    let base = Handle::new(&record.base);
    share_of(core, record)
        .zip(base)
        .is_some_and(|(share, base)| share.backend.is_of_inner_mount(&base))
}

fn dropped(key: Box<[u8]>, record: &Record, why: Lost) -> Change {
    tracing::warn!(
        share = record.share,
        path = record.path,
        user = record.owner,
        why,
        "a persistent handle is dropped"
    );
    Change::Remove(Kind::SmbOpen, key)
}

/// Restores caching and locks of reopened handles, and lets them wait for their clients.
fn take_up_state(core: &Arc<ServerState>, opens: &[(Arc<Open>, Arc<Record>)]) {
    for (open, record) in opens {
        cache(core, open, record);
    }
    for (open, record) in opens {
        lock(core, open, record);
    }
    for (open, record) in opens {
        if record.delete_pending {
            core.opens.set_delete_pending(open, true);
        }
        teardown::wait_for_client(core, open);
    }
}

/// Reopens the handles of silent mounts when these answer, until their clients need not be waited for.
async fn restore_late(core: Weak<ServerState>, mut late: Vec<Kept>) {
    let began = Instant::now();
    while !late.is_empty() {
        tokio::time::sleep(RETRY_LATE).await;
        let Some(core) = core.upgrade() else { return };
        let mut gone = Vec::new();
        let is_over = |record: &Record| {
            began.elapsed() >= Duration::from_millis(u64::from(record.timeout_ms))
        };
        let (over, due): (Vec<Kept>, _) = late.into_iter().partition(|(_, r)| is_over(r));
        gone.extend(over.into_iter().map(|(key, record)| {
            dropped(key, &record, "the file system inside its share did not respond in time")
        }));
        // Mounts inside shares are never an error here.
        let Ok((opens, left)) = reopen_all(&core, due, RETRY_LATE, &mut gone).await else { return };
        late = left;
        take_up_state(&core, &opens);
        if !opens.is_empty() {
            reauthorize(&core).await;
            tracing::info!(handles = opens.len(), "persistent handles wait for their clients");
        }
        if let Some(store) = core.store.as_ref().filter(|_| !gone.is_empty())
            && let Err(error) = store.submit(gone).await
        {
            tracing::error!(%error, "dropped persistent handles remain in the store");
        }
    }
}

/// Sorts records by age, latest first: of two that conflict, the earlier one belongs to a handle that was closed or unlocked
/// without reaching the store ([`crate::unwritten`]). `gone` receives the records that cannot be read.
fn in_order(records: Vec<recovery::Record>, gone: &mut Vec<Change>) -> Vec<Kept> {
    let mut all = Vec::with_capacity(records.len());
    for (key, value) in records {
        if let Some(record) = Record::decode(&value) {
            all.push((key, Arc::new(record)));
        } else {
            tracing::error!("a persistent handle of another version of this program is dropped");
            gone.push(Change::Remove(Kind::SmbOpen, key));
        }
    }
    all.sort_by_key(|(_, record)| Reverse(record.order));
    all
}

fn share_of(core: &ServerState, record: &Record) -> Option<Arc<Share>> {
    let shares = core.namespace.shares();
    shares.iter().filter(|s| s.protocols.smb()).find(|s| s.name == record.share).cloned()
}

/// Returns the file of a record and its place.
async fn file(core: &ServerState, record: &Record) -> Result<File, Missed> {
    let share = share_of(core, record).ok_or("its share is not served by SMB any more")?;
    let handle = |bytes: &[u8]| Handle::new(bytes).ok_or(Missed::Lost("its record is damaged"));
    // The place is needed to delete the file at close, which checks that the file still has it.
    let dir = unless_delayed(share.backend.resolve(&handle(&record.dir)?).await)?;
    let has_dir = dir.is_some();
    let dir = dir.unwrap_or_else(|| share.backend.root());
    let place =
        PathInShare { dir, name: record.name.clone(), path: record.path.clone(), walk: None };
    let next = match &record.next {
        Some(next) => in_place(&share, &handle(next)?, &place).await?,
        None => None,
    };
    let base = match next {
        Some(next) => next,
        None => share.backend.resolve(&handle(&record.base)?).await.map_err(|e| match e {
            VfsError::Stale | VfsError::NotFound => Missed::Lost("its file is gone"),
            other => Missed::by(other, "its file cannot be found"),
        })?,
    };
    let node = match &record.stream {
        None => base.clone(),
        Some(name) => {
            let stream = streams::find(&share, &base, name).await;
            stream.map_err(|e| Missed::by(e, "its stream is gone"))?.node
        }
    };
    // A name added in the meantime need not be the one that was opened.
    let links = match path_tracking::leads_to_node(&place, &base).await {
        Ok(true) => base.getattr().await.map_or(0, |attr| attr.nlink),
        _ => 0,
    };
    let file = File::new((node, base), record.stream.clone(), share, place, links);
    if !has_dir {
        file.lose_place();
    }
    Ok(file)
}

/// Returns what was found, if anything.
fn unless_delayed<T>(found: VfsResult<T>) -> Result<Option<T>, Missed> {
    match found {
        Err(VfsError::Delay) => Err(Missed::Delayed),
        other => Ok(other.ok()),
    }
}

/// Returns the node that was about to replace the recorded one, if it did.
async fn in_place(
    share: &Share,
    next: &Handle,
    place: &PathInShare,
) -> Result<Option<NodeRef>, Missed> {
    let next = unless_delayed(share.backend.resolve(next).await)?;
    let there = unless_delayed(place.dir.lookup(&Cred::root(), &place.name).await)?;
    Ok(next.filter(|next| there.is_some_and(|(there, _)| there.id() == next.id())))
}

async fn reopen(core: &Arc<ServerState>, record: &Record) -> Result<Arc<Open>, Missed> {
    let file = file(core, record).await?;
    let (base, node) = (file.base(), file.node().id());
    let losses = file.node().losses();
    let of_lease = match &record.caches {
        Some(Caches::Lease { key, version_2, epoch, .. }) => {
            Some((*key, version_2.then_some(*epoch)))
        }
        _ => None,
    };
    let client = (record.client, record.owner.as_str(), &Arc::default());
    let (party, claim) = lease::claim_for(core, client, of_lease, node)
        .map_err(|_| "its lease key is used for another file")?;
    let cred = Cred {
        uid: record.uid,
        gid: record.gid,
        groups: record.groups.as_slice().into(),
        token: token_of(core.users.domain().as_ref(), &record.sids),
    };
    let cred = file.share.identified(cred);
    let open = Open::new((0, 0), Target::File(file), party, cred, record.granted);
    let mut open = open.map_err(|_| "there are no random numbers")?;
    open.id = record.id;
    open.caching = OpenCaching::new(claim);
    let unread = "the attributes of its file cannot be read";
    let attr = base.getattr().await.map_err(|e| Missed::by(e, unread))?;
    let by_list = Grant::recorded(&base, &attr, &open.cred, record.granted).await;
    open.by_list = by_list.map_err(|e| Missed::by(e, "its access control list cannot be read"))?;
    open.deletes_by_list = open.by_list.as_ref().is_some_and(|g| g.rights() & mask::DELETE != 0);
    open.is_proven = core.users.cred(&record.owner).is_some_and(|c| !c.token.is_guest_account());
    open.shared = record.shared;
    open.options = record.options;
    open.posix = record.posix;
    open.open_state = OpenState::new(record.options);
    // Data written before the restart may not be on storage yet.
    open.open_state.note_unflushed(losses);
    open.lock_sequences = LockSequences::of(record.sequences);
    if record.delete_on_close {
        open.set_delete_on_close();
    }
    open.durable.set_persistent(CreateInfo {
        timeout_ms: record.timeout_ms,
        client: record.client,
        owner: record.owner.clone(),
        create: Some(record.create),
        app_instance: record.app_instance,
        app_version: record.app_version,
        action: record.action,
    });
    let open = Arc::new(open);
    let opening = Open::opening(record.granted, record.shared, false);
    let state = core.namespace.arbiter().state();
    if opening.share != Sharing::default()
        && matches!(
            state.open(node, &open.party, opening, core.now()),
            Verdict::Denied { .. } | Verdict::Full(_)
        )
    {
        return Err("another open conflicts with it".into());
    }
    if core.opens.insert(open.clone()).is_err() {
        state.release(node, open.party.holder);
        return Err("the limit of open files is reached".into());
    }
    core.creates.know(&open);
    Ok(open)
}

fn cache(core: &Arc<ServerState>, open: &Arc<Open>, record: &Record) {
    let Ok(node) = open.node() else { return };
    let state = core.namespace.arbiter().state();
    let rights_now = |rights| if node.is_cacheable() { rights } else { Caching::NONE };
    match &record.caches {
        None => {}
        Some(Caches::Oplock { rights }) => {
            core.leases.own_oplock(open);
            let held = state.cache(
                node.id(),
                &open.party,
                CacheRequest::new(Sort::Oplock, rights_now(*rights)),
                core.now(),
            );
            if held.rights != *rights {
                tracing::warn!(path = record.path, "an oplock is restored at a lower level");
            }
        }
        Some(Caches::Lease { rights, parent, .. }) => {
            let Some(lease) = open.caching.lease() else { return };
            lease.came_back(open, *parent);
            let held = state.cache(
                node.id(),
                &lease.party,
                CacheRequest::new(Sort::Lease, rights_now(*rights)),
                core.now(),
            );
            if !held.rights.has(*rights) {
                tracing::warn!(path = record.path, "a lease is restored with fewer rights");
            }
        }
    }
}

fn lock(core: &ServerState, open: &Open, record: &Record) {
    let Ok(node) = open.node() else { return };
    for (lock_range, kind) in &record.locks {
        let state = core.namespace.arbiter().state();
        let got = state.lock_smb(node.id(), &open.party, *lock_range, *kind, core.now());
        if got == state::LockVerdict::Go {
            open.locks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        } else {
            tracing::error!(
                path = record.path,
                ?lock_range,
                "a byte-range lock could not be restored: {got:?}"
            );
        }
    }
}
