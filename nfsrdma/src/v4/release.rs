//! How clients of version 4 end, and when: what they hold is given up only when nobody can take it back after a restart.
//!
//! *Operation.* The durable record of a client lets it reclaim. So whoever is released is first *ended* (its lease cannot be
//! renewed any more, what it holds still keeps others out), then its record is struck, and when that is durable it is
//! *dissolved*. A record that cannot be struck, because the store is full, fails or hangs, leaves its client ended;
//! [`Clients::tick`] tries again. The same goes for clients that did not come back after a restart: until their records are
//! struck, the time to reclaim is not over.
//!
//! A client that lapsed keeps what it holds as a courtesy. That ends with [`super::clients::Options::courtesy`]; at once when it
//! holds nothing, or a file that has lost its last name, which keeps the space of that file; oldest first when such clients
//! together keep more than [`super::clients::Options::courtesy_files`], and when there is no room for others
//! ([`super::make_room`]).
//!
//! *Errors.* NFS4ERR_SERVERFAULT where a client can do nothing about it and would ask for ever.

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

/// The longest that a request waits for the store.
const STORE_WAIT: Duration = Duration::from_secs(STORE_SECONDS_MAX);

/// How the clients stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Clients that are known, confirmed or not.
    pub known: usize,
    /// Of those, whose lease has lapsed and who keep what they hold as a courtesy.
    pub lapsed: usize,
    /// Opens, locks and delegations that these hold.
    pub lapsed_states: usize,
    /// Clients that are to be released, and whose records could not be struck from the store yet.
    pub unstruck: usize,
    /// Bytes that are set aside for the replies that sessions keep.
    pub reply_bytes: usize,
    /// Sessions of versions 4.1 and 4.2.
    pub sessions: usize,
}

/// A round over what is to be struck: another may begin when this one is dropped, however it ends.
struct Round(Arc<Clients>);

impl Drop for Round {
    fn drop(&mut self) {
        self.0.striking.runs.store(false, Ordering::Release);
    }
}

/// What became of a client that was to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evicted {
    /// Its place is free.
    Gone,
    /// It was heard of in this moment.
    CameBack,
    /// Its record cannot be struck from the store now, and neither can another's.
    Unstruck,
}

impl Clients {
    /// Makes the client's name durable before it takes anything new, so that it may reclaim after a restart: at its
    /// RECLAIM_COMPLETE, or else at its first open.
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
                // It was struck in this very moment.
                return Err(Status::Delay);
            }
        }
        Ok(())
    }

    /// Notes that the client's record is durable, if it is. Nobody begins to strike it meanwhile.
    fn note_recorded(&self, client: &Client) -> bool {
        let _registry = self.registry();
        let is_durable = self.recovery.has(client.name.as_bytes(), client.owner());
        if is_durable {
            client.recorded.store(true, Ordering::Release);
        }
        is_durable
    }

    /// Something could not be kept or struck. The store has told why; whoever asks again gets the same until it can.
    fn unkept(&self) -> Status {
        self.counters.unkept.fetch_add(1, Ordering::Relaxed);
        Status::ServerFault
    }

    /// What a request is told that must wait until all that was is back (RFC 8881 section 8.4.2): that time ends by itself, unless
    /// a record cannot be struck.
    pub(super) fn not_yet(&self) -> Status {
        if self.grace_is_stuck() {
            return self.unkept();
        }
        Status::Grace
    }

    /// Nothing new may be taken yet: some may still reclaim, or the record that would let one of them reclaim after the next
    /// restart is not struck yet.
    pub fn in_grace(&self) -> bool {
        let now = self.now();
        if self.may_reclaim(now) {
            return true;
        }
        // The time may have ended in this moment: those who did not come back are listed before anybody takes what was theirs.
        self.note_absent(now);
        self.striking.has_absent()
    }

    /// Clients may still take back what they held before the restart.
    pub(super) fn may_reclaim(&self, now: Millis) -> bool {
        self.grace().is_active(now)
    }

    /// Nothing new may be taken, and that does not end by itself: the record of a client that did not come back cannot be struck.
    pub(crate) fn grace_is_stuck(&self) -> bool {
        self.striking.has_absent() && self.striking.fails.load(Ordering::Relaxed)
    }

    /// What strikes the client's record, when it has one that is its own: a new client of its name has taken over its record.
    fn strike<'a>(
        &'a self,
        client: &Client,
    ) -> Option<impl Future<Output = std::io::Result<()>> + use<'a>> {
        let registry = self.registry();
        let confirmed = registry.get(&client.name).and_then(|k| k.confirmed.as_ref());
        if confirmed.is_none_or(|c| c.id != client.id) {
            return None;
        }
        // Whoever goes on all the same has to enter it again.
        client.recorded.store(false, Ordering::Release);
        self.recovery.strike(client.name.as_bytes())
    }

    /// As [`Clients::strike`], durably and for a request, which does not wait for ever.
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

    /// The client says that it will not come back (DESTROY_CLIENTID).
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

    /// Before an orderly end, when nobody is served any more: whoever holds nothing has nothing to reclaim, so the next start does
    /// not wait for it. Not in the grace period: who holds nothing yet may have more to take back.
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
        // The next start waits for them, no more than that.
        tracing::warn!("records of clients that hold nothing cannot be removed");
    }

    /// Ends a client whatever its lease, and releases it. False when its record could not be struck: it stays ended, and what it
    /// holds is nobody else's.
    pub(super) async fn release(&self, client: &Arc<Client>) -> bool {
        client.lease.end();
        let done = self.struck(client).await;
        if done {
            self.dissolve(client);
        }
        done
    }

    /// Releases a client whose lease has lapsed, unless it came back: durably first, so that it cannot reclaim after a restart
    /// what others take now.
    pub(super) async fn release_lapsed(&self, id: ClientId) {
        let Some(client) = self.find(id) else { return };
        if !client.lease.end_if_lapsed(self.now()) {
            return;
        }
        if self.struck(&client).await {
            self.expired(&client);
        }
    }

    /// Ends the courtesy of a lapsed client before its time, to make room.
    pub(super) async fn evict(&self, client: &Arc<Client>) -> Evicted {
        if self.striking.fails.load(Ordering::Relaxed) {
            // It would lose everything, and nobody would get it.
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

    /// Takes everything from a client and forgets it. Its durable record is the caller's business. False when it was done before.
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

    /// A client that ended by itself, and that has no record any more, goes.
    fn expired(&self, client: &Arc<Client>) {
        let was_confirmed = client.is_confirmed();
        if !self.dissolve(client) || !was_confirmed {
            return;
        }
        self.counters.expired.fetch_add(1, Ordering::Relaxed);
        tracing::info!(client = client.id.0, "released the state of a client whose lease expired");
    }

    /// Ends what is over: the time to reclaim, courtesies, introductions that nobody came back to. At most once a second. Who has
    /// a record goes with the next [`Clients::tick`].
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
                // Courtesy is for those who would lose something.
                LeaseState::Courtesy => !c.is_confirmed() || c.held().is_empty(),
                LeaseState::Ended => true,
            })
            .map(|c| c.clone())
            .collect();
        over.iter().for_each(|client| self.end(client, now));
        self.limit_courtesy(now);
    }

    /// Ends a lapsed client. One without a record goes at once.
    fn end(&self, client: &Arc<Client>, now: Millis) {
        if !client.lease.end_if_lapsed(now) && client.lease.renewed().is_some() {
            // It was heard of just now.
            return;
        }
        if !client.is_confirmed() || !self.recovery.knows(client.name.as_bytes()) {
            self.expired(client);
        }
    }

    /// Lapsed clients keep so much together and no more: those who have been silent for longest go first.
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

    /// Clients that keep what they hold as a courtesy.
    pub(super) fn lapsed(&self, now: Millis) -> Vec<Arc<Client>> {
        let is_lapsed = |c: &Client| c.is_confirmed() && c.lease.state(now) == LeaseState::Courtesy;
        self.by_id.iter().filter(|c| is_lapsed(c)).map(|c| c.clone()).collect()
    }

    /// When the time to reclaim is over: who did not come back has lost what it held.
    pub(super) fn note_absent(&self, now: Millis) {
        let mut grace = self.grace();
        let Some(absent) = grace.finish(now) else { return };
        let known = absent.into_iter().filter(|name| self.recovery.knows(name));
        // Before the lock is given back: there is no moment without either.
        let mut listed = self.striking.absent();
        listed.extend(known.map(Name::of_bytes));
        tracing::info!(
            absent = listed.len(),
            "the grace period has ended: clients can no longer reclaim"
        );
    }

    /// To be called about once a second: strikes the records of those who are to go, and lets them go. Waits for the store only so
    /// long; a round that takes longer goes on by itself.
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
            // The store does not answer. The round goes on by itself, and whoever waits for it is told so.
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

    /// One round over everything that is to be struck; false when something stays.
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

    /// What strikes the record of a client that did not come back, unless it has done so since.
    fn strike_absent(&self, name: &Name) -> Option<impl Future<Output = std::io::Result<()>> + '_> {
        let registry = self.registry();
        let back = registry.get(name).and_then(|k| k.confirmed.as_ref());
        if back.is_some_and(|c| c.recorded.load(Ordering::Acquire)) {
            return None;
        }
        self.recovery.strike(name.as_bytes())
    }

    /// Ends the courtesy of those who hold files that have lost their last name. Looks at some files at a time.
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
                    // Another failure says nothing of its names.
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

    /// How the clients stand. Looks at all of them.
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
