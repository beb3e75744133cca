//! Delegations (RFC 8881 section 10.4): granted with OPEN, recalled when another access conflicts, revoked if the client does not
//! return them in time.
//!
//! *Operation.* The exclusion of others is a grant in `state`; this module keeps its stateid and sends the recalls. Each recall has
//! a task, which runs until the delegation is returned or revoked. A client whose delegation was revoked has less time for its
//! further ones, and gets no new one, until it answers again ([`state::answers`]); it learns of the loss by the flags of SEQUENCE.
//!
//! *Memory.* [`limits::DELEGATIONS_MAX`] delegations of all clients, [`limits::DELEGATIONS_OF_ADDRESS_MAX`] of one address. Beyond
//! that, files are opened without one.
//!
//! *Errors.* `FileOps` returns NFS4ERR_DELAY to requests that conflict.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rdma_transport::count;
use state::{Break, CacheKey, Caching, ClientId, Holder, HolderId, Rights};
use vfs::arbiter::{DelegatedAttrs, Recall};
use vfs::backend::BoxFuture;
use vfs::{Kind, Time};

use super::callback::{self, Failed};
use super::client::Client;
use super::clients::Clients;
use super::compound::Compound;
use super::limits;
use super::object::Located;
use super::opens::{Delegation, Entry, FileInShare};
use super::principal::Principal;
use super::session::Session;
use super::stateid::{self, compose};
use super::status::Status;
use super::wire::Stateid;

/// Pause before a recall is repeated.
const AGAIN: Duration = Duration::from_millis(200);
/// Milliseconds between two questions whether a silent client answers again.
const ASK_EVERY_MS: u64 = 10_000;

/// The interface of `state` to the clients of NFSv4. Weak, because the clients own the namespace that owns this.
struct Link(Weak<Clients>);

/// Registers the clients with `FileOps`.
pub(super) fn attach(clients: &Arc<Clients>) {
    let weak = Arc::downgrade(clients);
    let core = Arc::downgrade(&clients.core);
    let clock = move || {
        let now = core.upgrade().map(|c| c.clock.now()).unwrap_or_default();
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
    };
    if !clients.core.namespace.arbiter().attach(Arc::new(Link(weak)), clock) {
        tracing::warn!("these shares have an NFS server already; only its clients receive recalls");
    }
}

impl Recall for Link {
    fn recall(&self, what: &Break) {
        let Some(clients) = self.0.upgrade() else { return };
        let what = *what;
        // In a separate task: a callback must not be canceled, and may take longer than the holder has.
        tokio::spawn({
            let clients = clients.clone();
            async move { clients.tell(&what).await }
        });
        tokio::spawn(async move { clients.recall_until_back(&what).await });
    }

    fn revoke(&self, what: &Break) {
        if let Some(clients) = self.0.upgrade() {
            clients.revoke(what);
        }
    }

    fn release(&self, client: ClientId) -> BoxFuture<'_, ()> {
        let clients = self.0.upgrade();
        Box::pin(async move {
            if let Some(clients) = clients {
                clients.release_lapsed(client).await;
            }
        })
    }

    fn delegated_attrs(
        &self,
        holder: (ClientId, HolderId),
    ) -> BoxFuture<'_, Option<DelegatedAttrs>> {
        let clients = self.0.upgrade();
        // In a separate task: the caller may give up waiting, but a callback must not be canceled.
        let asked = clients.map(|c| tokio::spawn(async move { c.ask_kept_back(holder).await }));
        Box::pin(async move { asked?.await.ok()? })
    }

    fn in_grace(&self) -> bool {
        self.0.upgrade().is_some_and(|clients| clients.in_grace())
    }

    fn grace_is_stuck(&self) -> bool {
        self.0.upgrade().is_some_and(|clients| clients.grace_is_stuck())
    }
}

/// Terms of a delegation to grant.
#[derive(Clone, Copy)]
pub(super) struct Given {
    /// The file's change attribute after the open.
    pub(super) change: u64,
    /// The access whose permission OPEN checked.
    pub(super) checked: Rights,
    /// True for a write delegation.
    pub(super) write: bool,
    /// The holder may keep the times, if it has a write delegation. Read delegations exclude that: the host cannot store an access
    /// time without a change that others see.
    pub(super) times: bool,
    /// Lower bound of the times accepted from the holder.
    pub(super) times_since: Option<Time>,
}

/// A delegation that a client holds.
#[derive(Clone, Copy)]
pub(super) struct Granted {
    pub(super) stateid: Stateid,
    pub(super) write: bool,
    pub(super) times: bool,
}

/// Grants a delegation on a file that the client has just opened, if no conflict prevents it. A read delegation of the client is
/// upgraded.
pub(super) fn delegate(
    cx: &Compound<'_>,
    client: &Arc<Client>,
    at: &Located,
    given: Given,
) -> Option<Granted> {
    if !can_recall(cx, client) || !at.node.is_cacheable() {
        return None;
    }
    let state = cx.nfs.core.namespace.arbiter().state();
    match state.delegation(at.node.id(), key_of(client, at)) {
        Some(_) if !given.write => None,
        Some(holder) => widen(cx, client, at, holder, given),
        None => delegate_anew(cx, client, at, given),
    }
    .map(|stateid| Granted { stateid, write: given.write, times: given.write && given.times })
}

/// Grants a delegation of a directory (RFC 8881 section 18.39) without notifications: other clients that change the directory wait
/// for its return. `None` if it cannot be granted.
pub(super) fn delegate_directory(
    cx: &Compound<'_>,
    client: &Arc<Client>,
    at: &Located,
    change: u64,
) -> Option<Stateid> {
    let state = cx.nfs.core.namespace.arbiter().state();
    let can = can_recall(cx, client)
        && at.node.is_cacheable()
        && state.delegation(at.node.id(), key_of(client, at)).is_none();
    let checked = Rights::NONE;
    let given = Given { change, checked, write: false, times: false, times_since: None };
    can.then(|| delegate_anew(cx, client, at, given))?
}

/// Returns true while the client's delegation of this file is recalled.
pub(super) fn is_recalled(cx: &Compound<'_>, client: &Client, at: &Located) -> bool {
    let state = cx.nfs.core.namespace.arbiter().state();
    let holder = state.delegation(at.node.id(), key_of(client, at));
    let held = holder.and_then(|holder| state.held(at.node.id(), holder));
    held.is_some_and(|held| held.breaking_to.is_some())
}

/// Waits until a delegation by which this client caches the file is recalled.
pub(super) async fn until_recalled(cx: &Compound<'_>, client: &Client, at: &Located) {
    loop {
        let begins = client.recalls.notified();
        tokio::pin!(begins);
        // Register before the look, so that no recall is missed.
        begins.as_mut().enable();
        if is_recalled(cx, client, at) {
            return;
        }
        begins.await;
    }
}

/// The key under which a client caches the file of this share.
fn key_of(client: &Client, at: &Located) -> CacheKey {
    CacheKey { client: client.id, via: at.share.id }
}

/// Checks that the client can be asked to return a delegation, and answered when it was asked before.
fn can_recall(cx: &Compound<'_>, client: &Arc<Client>) -> bool {
    let clients = &cx.nfs.clients;
    let works = cx.slot.as_ref().is_some_and(|s| s.session.back().works());
    if !clients.options.delegations || !works {
        return false;
    }
    let is_silent = client.lease.answers().is_silent();
    if is_silent {
        clients.ask_whether_reached(client);
    }
    !is_silent
}

fn rights(write: bool) -> Caching {
    if write { Caching::ALL } else { Caching::READ_HANDLE }
}

fn delegate_anew(
    cx: &Compound<'_>,
    client: &Arc<Client>,
    at: &Located,
    given: Given,
) -> Option<Stateid> {
    let clients = &cx.nfs.clients;
    let arbiter = cx.nfs.core.namespace.arbiter();
    if clients.delegations.load(Ordering::Relaxed) >= limits::DELEGATIONS_MAX {
        count::limit_met("delegations");
        return None;
    }
    let Some(of_address) = client.place.usage().delegation() else {
        count::limit_met("delegations-of-address");
        return None;
    };
    let object = super::object::Object::Node(at.clone());
    let fh = cx.fh_of(&object);
    let node = at.node.id();
    let (holder, via) = (arbiter.state().holder(), at.share.id);
    let party = Holder { holder, lease: client.lease.clone(), via };
    let Given { change, checked, write, times, times_since } = given;
    // Entered before the grant and under the same lock, so that an immediate recall finds it.
    let mut held = client.held();
    let entry = Delegation {
        seqid: 1,
        node: at.node.clone(),
        party: party.clone(),
        fh,
        write,
        times: write && times,
        times_since,
        change,
        _of_address: Some(of_address),
        uid: at.cred.uid,
        checked,
        caller: Principal::of(cx.call),
        revoked: false,
        place: None,
    };
    let number = held.add(Entry::Delegation(entry))?;
    let granted = arbiter.state().delegate(node, &party, rights(write), clients.now());
    if !granted {
        held.remove_delegation(number);
        return None;
    }
    let watched = arbiter.watch_external(&at.node);
    clients.delegations.fetch_add(1, Ordering::Relaxed);
    // Only files that others may change on the host are polled: not those of a write delegation's holder, and not directories that
    // the kernel watches.
    if !(write || watched && at.node.kind() == Kind::Dir) {
        clients.watched.add(client.id, number);
    }
    clients.counters.delegated.fetch_add(1, Ordering::Relaxed);
    Some(compose(client.id, number, 1))
}

/// Upgrades a read delegation to a write delegation: the same stateid with the next seqid (RFC 8881 section 10.4).
fn widen(
    cx: &Compound<'_>,
    client: &Arc<Client>,
    at: &Located,
    holder: HolderId,
    given: Given,
) -> Option<Stateid> {
    let clients = &cx.nfs.clients;
    let mut held = client.held();
    let number = held.number_of(holder)?;
    let Some(Entry::Delegation(d)) = held.get_mut(number) else { return None };
    let state = cx.nfs.core.namespace.arbiter().state();
    let granted = !d.revoked
        && !d.write
        && d.uid == at.cred.uid
        && state.delegate(at.node.id(), &d.party, Caching::ALL, clients.now());
    if !granted {
        return None;
    }
    (d.write, d.times, d.times_since) = (true, given.times, given.times_since);
    d.checked = d.checked | given.checked;
    d.seqid = stateid::next(d.seqid);
    clients.counters.delegated.fetch_add(1, Ordering::Relaxed);
    Some(compose(client.id, number, d.seqid))
}

impl Clients {
    /// Stateid and file handle of a delegation that was not returned yet.
    fn outstanding(&self, what: &Break) -> Option<(Arc<Client>, u32, Stateid, crate::fh::Fh)> {
        let client = self.find(what.client)?;
        let (number, stateid, fh) = {
            let held = client.held();
            let number = held.number_of(what.holder)?;
            match held.get(number)? {
                Entry::Delegation(d) if !d.revoked => {
                    (number, compose(client.id, number, d.seqid), d.fh)
                }
                _ => return None,
            }
        };
        Some((client, number, stateid, fh))
    }

    /// Waits for a delegation that is recalled, and revokes it when its time is over. A client that writes back may have got more
    /// meanwhile.
    async fn recall_until_back(&self, what: &Break) {
        if let Some(client) = self.find(what.client) {
            client.recalls.notify_waiters();
        }
        let state = self.core.namespace.arbiter().state();
        while self.outstanding(what).is_some() {
            let left = state.deadline(what).saturating_sub(self.now());
            if left == 0 {
                return self.revoke(what);
            }
            tokio::time::sleep(AGAIN.min(Duration::from_millis(left))).await;
        }
    }

    /// Recalls a delegation, repeatedly if needed, until its client has received the recall.
    async fn tell(&self, what: &Break) {
        while let Some((client, _, stateid, fh)) = self.outstanding(what) {
            match working_session(&client) {
                Some(session) => {
                    let done = callback::recall(&session, stateid, &fh).await;
                    self.counters.recall.count(done.is_ok());
                    match done {
                        Ok(()) => return,
                        // The client does not know the delegation: the reply to its OPEN is still in transit, or it has
                        // returned the delegation, which the next round detects.
                        Err(Failed::Refused(status)) => {
                            tracing::debug!(?status, client = client.id.0, "recall refused");
                        }
                        Err(why) => tracing::debug!(?why, client = client.id.0, "recall failed"),
                    }
                }
                None => tracing::debug!(client = client.id.0, "no backchannel for a recall"),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Asks a client that did not return a delegation in time whether it answers callbacks again.
    fn ask_whether_reached(self: &Arc<Self>, client: &Arc<Client>) {
        let (now, order) = (self.now(), Ordering::Relaxed);
        let due = |last: u64| (now >= last.saturating_add(ASK_EVERY_MS)).then_some(now);
        let Some(session) = working_session(client) else { return };
        if client.asked_at.fetch_update(order, order, due).is_err() {
            return;
        }
        let (clients, client) = (self.clone(), client.clone());
        tokio::spawn(async move {
            if callback::reach(&session).await.is_ok() {
                let least = clients.core.namespace.arbiter().state().deadlines().acknowledge_ms();
                client.lease.answers().reached(clients.now(), least);
            }
        });
    }

    /// Queries the holder of a write delegation for its cached attributes.
    async fn ask_kept_back(&self, holder: (ClientId, HolderId)) -> Option<DelegatedAttrs> {
        let client = self.find(holder.0)?;
        let (fh, given, times, since) = {
            let held = client.held();
            match held.get(held.number_of(holder.1)?)? {
                Entry::Delegation(d) if !d.revoked => (d.fh, d.change, d.times, d.times_since),
                _ => return None,
            }
        };
        let session = working_session(&client)?;
        let said = callback::attributes(&session, &fh, times).await;
        self.counters.getattr.count(said.is_ok());
        match said {
            Ok(now) => {
                let (modified, times) = (now.change != given, now.times.since(since));
                Some(DelegatedAttrs { size: now.size, modified, times })
            }
            Err(why) => {
                tracing::debug!(?why, client = client.id.0, "CB_GETATTR failed");
                None
            }
        }
    }

    /// Revokes a delegation. Its stateid remains until the client frees it, so that the client learns of the loss.
    fn revoke(&self, what: &Break) {
        let arbiter = self.core.namespace.arbiter();
        if let Some((client, number, ..)) = self.outstanding(what) {
            let mut held = client.held();
            if let Some(Entry::Delegation(d)) = held.get_mut(number)
                && !d.revoked
            {
                d.revoked = true;
                client.revoked.fetch_add(1, Ordering::AcqRel);
                self.delegations.fetch_sub(1, Ordering::Relaxed);
                self.counters.revoked.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    client = client.id.0,
                    "a delegation was not returned in time and is revoked"
                );
            }
        }
        arbiter.revoke(what);
    }

    pub(super) fn delegation_returned(&self, client: &Client, number: u32) {
        let Some(d) = client.held().remove_delegation(number) else { return };
        self.delegations.fetch_sub(1, Ordering::Relaxed);
        self.core.namespace.arbiter().acknowledge(d.node.id(), d.party.holder, Caching::NONE);
    }

    /// Finds the client's delegation on this file for an OPEN that claims it, and checks that it covers the requested access.
    pub(super) fn check_claimed(
        &self,
        cx: &Compound<'_>,
        client: &Client,
        stateid: Stateid,
        (file, access): (FileInShare, Rights),
    ) -> Result<(), Status> {
        let named = super::resolve::resolve(cx, stateid)?;
        if named.client.id != client.id {
            return Err(Status::BadStateId);
        }
        let mut held = client.held();
        match named.entry(&mut held, file, cx.minor)? {
            Entry::Delegation(d) if d.revoked => Err(Status::DelegRevoked),
            Entry::Delegation(d) if access.has(Rights::WRITE) && !d.write => Err(Status::OpenMode),
            Entry::Delegation(_) => Ok(()),
            _ => Err(Status::BadStateId),
        }
    }
}

/// Checks that this is a write delegation whose holder keeps the times of the file, used by the user to whom it was granted.
/// Returns the lower bound of accepted times.
pub(super) fn check_keeps_times(
    cx: &Compound<'_>,
    at: &Located,
    stateid: Stateid,
) -> Result<Option<Time>, Status> {
    let named = super::resolve::resolve(cx, stateid)?;
    let mut held = named.client.held();
    match named.entry(&mut held, at.file(), cx.minor)? {
        Entry::Delegation(d) if d.revoked => Err(Status::DelegRevoked),
        Entry::Delegation(d) if d.times && d.uid != at.cred.uid => Err(Status::Access),
        Entry::Delegation(d) if d.times => Ok(d.times_since),
        _ => Err(Status::BadStateId),
    }
}

fn working_session(client: &Client) -> Option<Arc<Session>> {
    client.sessions().iter().find(|s| s.back().works()).cloned()
}
