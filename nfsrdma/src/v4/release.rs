//! Ends NFSv4 clients. A client's state is released only when the client cannot reclaim it after a restart.
//!
//! *Operation.* A client reclaims by its durable record. Releasing a client therefore takes three steps: it is *ended* (its lease
//! cannot be renewed, but its state still excludes others), its record is struck, and when that is durable the client is
//! *dissolved*. If the store is full, fails or hangs, the client stays ended and [`Clients::tick`] tries again. The same applies to
//! clients that did not return after a restart: the grace period lasts until their records are struck.
//!
//! A client whose lease lapses keeps its state as a courtesy. The courtesy ends after [`super::clients::Options::courtesy`]; at
//! once if the client has no state, or holds a file with link count 0, whose space it would occupy; for the longest silent clients
//! when all courtesies together exceed [`super::clients::Options::courtesy_files`]; and when other clients need the place
//! ([`super::make_room`]).
//!
//! *Errors.* NFS4ERR_SERVERFAULT where a retry would fail forever and the client cannot help it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use state::{ClientId, LeaseState, Millis};
use tokio::time::timeout;
use vfs::VfsError;

use super::client::Client;
use super::clients::Clients;
use super::limits::{LOOKED_AT_EACH, LOOKED_AT_PER_TICK, STORE_SECONDS_MAX, STRIKES_AT_ONCE};
use super::name::Name;
use super::opens::Entry;
use super::status::Status;

/// Longest wait of a request for the store.
const STORE_WAIT: Duration = Duration::from_secs(STORE_SECONDS_MAX);

/// Numbers about all clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Clients, confirmed or not.
    pub known: usize,
    /// Clients whose lease has lapsed, and which keep their state as a courtesy.
    pub lapsed: usize,
    /// Opens, locks and delegations of these.
    pub lapsed_states: usize,
    /// Clients to release whose records could not be struck from the store yet.
    pub unstruck: usize,
    /// Bytes reserved for replies cached by sessions.
    pub reply_bytes: usize,
    /// Sessions of versions 4.1 and 4.2.
    pub sessions: usize,
}

/// Marks a pass over the records to strike as running, until dropped.
struct Round(Arc<Clients>);

impl Drop for Round {
    fn drop(&mut self) {
        self.0.striking.runs.store(false, Ordering::Release);
    }
}

/// The result of evicting a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evicted {
    /// The client is gone.
    Gone,
    /// The client renewed its lease at this moment.
    CameBack,
    /// The store cannot strike records now.
    Unstruck,
}

impl Clients {
    /// Makes the client's name durable before it takes new state, so that it may reclaim after a restart: at RECLAIM_COMPLETE, or
    /// else at its first OPEN.
    pub(super) async fn enter(&self, client: &Arc<Client>) -> Result<(), Status> {
        if client.recorded.load(Ordering::Acquire) {
            return Ok(());
        }
        let name = client.name.as_bytes();
        if !self.note_recorded(client) {
            match timeout(STORE_WAIT, self.recovery.enter(name, client.owner())).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Err(self.unkept()),
            }
            if !self.note_recorded(client) {
                // The record was struck at this moment.
                return Err(Status::Delay);
            }
        }
        Ok(())
    }

    /// Marks the client's record as durable, if it is. No strike can begin meanwhile.
    fn note_recorded(&self, client: &Client) -> bool {
        let _registry = self.registry();
        let is_durable = self.recovery.has(client.name.as_bytes(), client.owner());
        if is_durable {
            client.recorded.store(true, Ordering::Release);
        }
        is_durable
    }

    /// The recovery store failed to write or delete a record and has logged why. Retries fail the same way until it recovers.
    fn unkept(&self) -> Status {
        self.counters.unkept.fetch_add(1, Ordering::Relaxed);
        Status::ServerFault
    }

    /// The status for a request that must wait for the grace period (RFC 8881 section 8.4.2): it ends by time, unless a record
    /// cannot be struck.
    pub(super) fn not_yet(&self) -> Status {
        if self.grace_is_stuck() {
            return self.unkept();
        }
        Status::Grace
    }

    /// True while no new state may be taken: clients may still reclaim, or the record of an absent client is not struck yet.
    pub fn in_grace(&self) -> bool {
        let now = self.now();
        if self.may_reclaim(now) {
            return true;
        }
        // The grace period may have ended just now: absent clients are listed before their state is granted to others.
        self.note_absent(now);
        self.striking.has_absent()
    }

    /// True while clients may reclaim state from before the restart.
    pub(super) fn may_reclaim(&self, now: Millis) -> bool {
        self.grace().is_active(now)
    }

    /// True if the grace period cannot end, because the record of an absent client cannot be struck.
    pub(crate) fn grace_is_stuck(&self) -> bool {
        self.striking.has_absent() && self.striking.fails.load(Ordering::Relaxed)
    }

    /// Starts to strike the client's record. `None` if it has no record of its own, because a new client of its name has taken it
    /// over.
    fn strike<'a>(
        &'a self,
        client: &Client,
    ) -> Option<impl Future<Output = std::io::Result<()>> + use<'a>> {
        let registry = self.registry();
        let confirmed = registry.get(&client.name).and_then(|k| k.confirmed.as_ref());
        if confirmed.is_none_or(|c| c.id != client.id) {
            return None;
        }
        // If the client continues anyway, it must be entered again.
        client.recorded.store(false, Ordering::Release);
        self.recovery.strike(client.name.as_bytes())
    }

    /// Like [`Clients::strike`], waiting for durability up to the limit of a request.
    async fn struck(&self, client: &Client) -> bool {
        let done = match self.strike(client) {
            Some(strike) => timeout(STORE_WAIT, strike).await.is_ok_and(|done| done.is_ok()),
            None => true,
        };
        if !done {
            self.unkept();
        }
        done
    }

    /// Ends a client that announces its end (DESTROY_CLIENTID).
    pub(super) async fn leave(&self, client: &Arc<Client>) -> Result<(), Status> {
        if client.is_confirmed() {
            if !self.struck(client).await {
                return Err(Status::ServerFault);
            }
            self.grace().complete(client.name.as_bytes());
        }
        self.dissolve(client);
        Ok(())
    }

    /// Strikes the records of clients without state before an orderly shutdown, after the last request, so that the next start does
    /// not wait for them. Not during the grace period, when a client may still have to reclaim.
    pub async fn strike_idle(&self) {
        if self.in_grace() {
            return;
        }
        let idle = self.all().into_iter().filter(|c| c.is_confirmed() && c.held().is_empty());
        let strikes: Vec<_> = idle.filter_map(|client| self.strike(&client)).collect();
        let done = timeout(STORE_WAIT, join_all(strikes)).await;
        if done.is_ok_and(|all| all.iter().all(Result::is_ok)) {
            return;
        }
        // The only effect is that the next start waits for these clients.
        tracing::warn!("records of clients that hold nothing cannot be removed");
    }

    /// Ends and releases a client whatever its lease. False if its record could not be struck: it stays ended, and its state still
    /// excludes others.
    pub(super) async fn release(&self, client: &Arc<Client>) -> bool {
        client.lease.end();
        let done = self.struck(client).await;
        if done {
            self.dissolve(client);
        }
        done
    }

    /// Releases a client with a lapsed lease, unless it has returned. Its record is struck durably first, so that it cannot reclaim
    /// after a restart what others have since taken.
    pub(super) async fn release_lapsed(&self, id: ClientId) {
        let Some(client) = self.find(id) else { return };
        if !client.lease.end_if_lapsed(self.now()) {
            return;
        }
        if self.struck(&client).await {
            self.expired(&client);
        }
    }

    /// Ends the courtesy of a lapsed client early, to make room.
    pub(super) async fn evict(&self, client: &Arc<Client>) -> Evicted {
        if self.striking.fails.load(Ordering::Relaxed) {
            // Ending the client now would cost it its state without freeing the place.
            return Evicted::Unstruck;
        }
        if !client.lease.end_if_lapsed(self.now()) {
            return Evicted::CameBack;
        }
        self.counters.evicted.fetch_add(1, Ordering::Relaxed);
        if !self.struck(client).await {
            return Evicted::Unstruck;
        }
        self.expired(client);
        Evicted::Gone
    }

    /// Releases all state of a client and removes it. The caller handles the durable record. False if that was done before.
    pub(super) fn dissolve(&self, client: &Arc<Client>) -> bool {
        client.lease.end();
        let was_known = {
            let mut registry = self.registry();
            if let Some(known) = registry.get_mut(&client.name) {
                if known.confirmed.as_ref().is_some_and(|c| c.id == client.id) {
                    known.confirmed = None;
                }
                if known.pending.as_ref().is_some_and(|p| p.client.id == client.id) {
                    known.pending = None;
                }
                if known.confirmed.is_none() && known.pending.is_none() {
                    registry.remove(&client.name);
                }
            }
            self.by_id.remove(&client.id.0).is_some()
        };
        for session in std::mem::take(&mut *client.sessions()) {
            session.kill();
            self.sessions.remove(&session.id);
        }
        let arbiter = self.core.namespace.arbiter();
        let gone = client.held().take_all();
        let delegations = gone.release(arbiter.state());
        self.delegations.fetch_sub(delegations, Ordering::Relaxed);
        arbiter.released();
        was_known
    }

    /// Removes a client that has ended and has no record.
    fn expired(&self, client: &Arc<Client>) {
        let was_confirmed = client.is_confirmed();
        if !self.dissolve(client) || !was_confirmed {
            return;
        }
        self.counters.expired.fetch_add(1, Ordering::Relaxed);
        tracing::info!(client = client.id.0, "released the state of a client whose lease expired");
    }

    /// Ends what is over: the grace period, courtesies, unconfirmed introductions. Runs at most once a second. Clients with a
    /// record are released by the next [`Clients::tick`].
    pub fn tidy(&self, now: Millis) {
        let last = self.tidied.load(Ordering::Relaxed);
        let due = last == 0 || now >= last.saturating_add(1_000);
        let mine = due
            && self
                .tidied
                .compare_exchange(last, now.max(1), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !mine {
            return;
        }
        self.note_absent(now);
        let over: Vec<_> = self
            .by_id
            .iter()
            .filter(|c| match c.lease.state(now) {
                LeaseState::Live => false,
                // A courtesy is only useful for a client with state.
                LeaseState::Courtesy => !c.is_confirmed() || c.held().is_empty(),
                LeaseState::Ended => true,
            })
            .map(|c| c.clone())
            .collect();
        over.iter().for_each(|client| self.end(client, now));
        self.limit_courtesy(now);
    }

    /// Ends a lapsed client. A client that has no record is removed at once.
    fn end(&self, client: &Arc<Client>, now: Millis) {
        if !client.lease.end_if_lapsed(now) && client.lease.renewed().is_some() {
            // The client renewed its lease just now.
            return;
        }
        if !client.is_confirmed() || !self.recovery.knows(client.name.as_bytes()) {
            self.expired(client);
        }
    }

    /// Limits the state of all lapsed clients together: the longest silent are ended first.
    fn limit_courtesy(&self, now: Millis) {
        let with_files = |c: Arc<Client>| {
            let files = c.held().len();
            (files, c)
        };
        let mut lapsed: Vec<_> = self.lapsed(now).into_iter().map(with_files).collect();
        let mut files: usize = lapsed.iter().map(|(files, _)| files).sum();
        if files <= self.options.courtesy_files {
            return;
        }
        lapsed.sort_by_key(|(_, c)| c.lease.renewed());
        for (of_client, client) in lapsed {
            if files <= self.options.courtesy_files {
                break;
            }
            files -= of_client;
            self.end_early(&client, now);
        }
    }

    fn end_early(&self, client: &Arc<Client>, now: Millis) {
        if client.lease.is_live(now) {
            return;
        }
        self.counters.evicted.fetch_add(1, Ordering::Relaxed);
        self.end(client, now);
    }

    /// Clients whose lease has lapsed.
    pub(super) fn lapsed(&self, now: Millis) -> Vec<Arc<Client>> {
        let is_lapsed = |c: &Client| c.is_confirmed() && c.lease.state(now) == LeaseState::Courtesy;
        self.by_id.iter().filter(|c| is_lapsed(c)).map(|c| c.clone()).collect()
    }

    /// Handles the end of the grace period: clients that did not return lose their state.
    pub(super) fn note_absent(&self, now: Millis) {
        let mut grace = self.grace();
        let Some(absent) = grace.finish(now) else { return };
        let known = absent.into_iter().filter(|name| self.recovery.knows(name));
        // Before the lock is released, so that at every moment either the grace period or the list applies.
        let mut listed = self.striking.absent();
        listed.extend(known.map(Name::of_bytes));
        tracing::info!(
            absent = listed.len(),
            "the grace period has ended: clients can no longer reclaim"
        );
    }

    /// Strikes the records of ended clients and releases them. Called about once a second. Waits for the store for a limited time;
    /// a longer pass continues in the background.
    pub(super) async fn settle(self: &Arc<Self>) {
        self.end_removed().await;
        if self.striking.runs.swap(true, Ordering::AcqRel) {
            return;
        }
        let round = Round(self.clone());
        let round = tokio::spawn(async move {
            let done = round.0.strike_due().await;
            round.0.note_strikes(!done);
        });
        if timeout(STORE_WAIT, round).await.is_err() {
            // The store timed out. The pass continues in the background; waiters get NFS4ERR_SERVERFAULT.
            self.note_strikes(true);
        }
    }

    fn note_strikes(&self, failed: bool) {
        if self.striking.fails.swap(failed, Ordering::Relaxed) == failed {
            return;
        }
        if failed {
            tracing::error!(
                "records of expired clients cannot be removed from the store: what these clients held stays reserved for them"
            );
        } else {
            tracing::info!("the records of expired clients are removed from the store");
        }
    }

    /// Makes one pass over all records to strike; false if some remain.
    async fn strike_due(&self) -> bool {
        let absent: Vec<_> = self.striking.absent().iter().take(STRIKES_AT_ONCE).cloned().collect();
        let strikes: Vec<_> = absent.iter().map(|name| self.strike_absent(name)).collect();
        let struck = join_all(strikes.into_iter().map(async |strike| match strike {
            Some(strike) => strike.await.is_ok(),
            None => true,
        }));
        let struck = struck.await;
        let gone: Vec<_> =
            absent.iter().zip(&struck).filter(|(_, done)| **done).map(|(name, _)| name).collect();
        self.striking.absent().retain(|name| !gone.contains(&name));

        let now = self.now();
        let ended = self.by_id.iter().filter(|c| c.lease.state(now) == LeaseState::Ended);
        let ended: Vec<_> = ended.take(STRIKES_AT_ONCE).map(|c| c.clone()).collect();
        let strikes: Vec<_> = ended.iter().map(|client| (client, self.strike(client))).collect();
        let released = join_all(strikes.into_iter().map(async |(client, strike)| {
            let done = match strike {
                Some(strike) => strike.await.is_ok(),
                None => true,
            };
            if done {
                self.expired(client);
            }
            done
        }));
        released.await.into_iter().chain(struck).all(|done| done)
    }

    /// Starts to strike the record of a client that did not return, unless it has returned since.
    fn strike_absent(&self, name: &Name) -> Option<impl Future<Output = std::io::Result<()>> + '_> {
        let registry = self.registry();
        let back = registry.get(name).and_then(|k| k.confirmed.as_ref());
        if back.is_some_and(|c| c.recorded.load(Ordering::Acquire)) {
            return None;
        }
        self.recovery.strike(name.as_bytes())
    }

    /// Ends the courtesy of clients that hold files with link count 0. Checks a limited number of files in each call.
    async fn end_removed(&self) {
        let now = self.now();
        let mut lapsed = self.lapsed(now);
        if lapsed.is_empty() {
            return;
        }
        lapsed.sort_by_key(|c| c.id.0);
        let from = self.striking.looked_from.fetch_add(1, Ordering::Relaxed) % lapsed.len();
        lapsed.rotate_left(from);
        let mut left = LOOKED_AT_PER_TICK;
        for client in lapsed {
            let begin = client.looked_at.load(Ordering::Relaxed);
            let some = left.min(LOOKED_AT_EACH);
            let nodes: Vec<_> = {
                let held = client.held();
                let nodes = held.entries().filter_map(|entry| match entry {
                    Entry::Open(_) | Entry::Delegation(_) => entry.node().cloned(),
                    _ => None,
                });
                nodes.skip(begin).take(some).collect()
            };
            left -= nodes.len();
            let next = if nodes.len() < some { 0 } else { begin + some };
            client.looked_at.store(next, Ordering::Relaxed);
            for node in nodes {
                let is_removed = match node.getattr().await {
                    Ok(attr) => attr.nlink == 0,
                    // Any other failure leaves the link count unknown.
                    Err(e) => e == VfsError::Stale,
                };
                if is_removed {
                    self.end_early(&client, now);
                    break;
                }
            }
            if left == 0 {
                return;
            }
        }
    }

    /// Counts the clients. Visits all of them.
    pub fn census(&self) -> Census {
        let now = self.now();
        let lapsed = self.lapsed(now);
        let is_ended = |c: &Client| c.lease.state(now) == LeaseState::Ended;
        Census {
            known: self.by_id.len(),
            lapsed: lapsed.len(),
            lapsed_states: lapsed.iter().map(|c| c.held().len()).sum(),
            unstruck: self.by_id.iter().filter(|c| is_ended(c)).count()
                + self.striking.absent().len(),
            reply_bytes: self.replies.used(),
            sessions: self.sessions.len(),
        }
    }
}
