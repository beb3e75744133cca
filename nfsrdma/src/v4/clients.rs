//! The clients of NFSv4: how they introduce themselves and are confirmed.
//!
//! *Operation.* A client introduces itself with SETCLIENTID (4.0) or EXCHANGE_ID (4.1 and later) and is confirmed by a second step,
//! which proves that it received the first answer. Its state is in [`super::opens::Held`], its lease in [`state::Lease`]. A client
//! whose lease lapses keeps its state as a courtesy until another client needs it.
//!
//! [`super::release`] ends clients, [`super::room`] limits their number.
//!
//! *Memory.* Bounded by `limits.nfs_clients`; a new client evicts the unconfirmed or lapsed client that has been silent longest.
//! Lock order: registry, then a client's `held`, then the shards of `state`. These locks are never held across an await.
//!
//! *Errors.* The [`Status`] that the specifications prescribe.
//!
//! # States of a client
//!
//! ```text
//!  EXCHANGE_ID, SETCLIENTID          CREATE_SESSION, SETCLIENTID_CONFIRM
//!  ------------------------> PENDING -----------------------------------> CONFIRMED
//!                               |                                          |     ^
//!                               |                            lease lapses  |     | SEQUENCE, RENEW,
//!                               |                                          v     | use of state
//!                               |                                         COURTESY
//!                               |                                             |
//!                               |                                             | no longer kept
//!                               |                   record is struck          v
//!                               +--------> (gone) <------------------------ ENDED
//! ```
//!
//! PENDING and CONFIRMED are the two places of `Known`; COURTESY and ENDED are [`LeaseState`]s of the client's lease.
//!
//! | from | event | function | to |
//! |---|---|---|---|
//! | unknown | EXCHANGE_ID | [`Clients::exchange`]: `try_exchange` | PENDING |
//! | unknown | SETCLIENTID | [`Clients::set_client_id`]: `try_set_client_id` | PENDING |
//! | PENDING | first CREATE_SESSION of its principal | [`Clients::confirm_by_session`] | CONFIRMED; its predecessor is dissolved |
//! | PENDING | SETCLIENTID_CONFIRM | [`Clients::set_client_id_confirm`] | CONFIRMED; its predecessor is dissolved |
//! | PENDING | another introduction by its name | `drop_pending` | gone |
//! | PENDING | its lease lapses | [`Clients::tidy`] | gone |
//! | CONFIRMED | the same introduction again | `try_exchange`, `try_set_client_id` | CONFIRMED, the same client |
//! | CONFIRMED | silent for [`Options::lease`], no request in execution | time | COURTESY |
//! | CONFIRMED | DESTROY_CLIENTID without sessions and state | [`Clients::leave`] | gone, after its record |
//! | CONFIRMED | EXCHANGE_ID of another principal by its name; no state | `give_way`: [`Clients::release`] | ENDED |
//! | COURTESY | EXCHANGE_ID of another principal by its name | `give_way`: [`Clients::release`] | ENDED |
//! | COURTESY | SEQUENCE, RENEW, use of its state | [`Lease::renew`], [`Lease::begin_request`] | CONFIRMED |
//! | COURTESY | conflict with another client | [`Clients::release_lapsed`] | ENDED |
//! | COURTESY | its place is needed | [`Clients::make_room`]: [`Clients::evict`] | ENDED |
//! | COURTESY | no state, over [`Options::courtesy`], or over [`Options::courtesy_files`] | [`Clients::tidy`] | ENDED |
//! | COURTESY | it holds a file with link count 0 | [`Clients::tick`]: `end_removed` | ENDED |
//! | ENDED | its record is struck, or does not exist | [`Clients::dissolve`] | gone |
//! | ENDED | the store fails | [`Clients::tick`]: `strike_due` tries again | ENDED |
//!
//! [`Clients::enter`] makes a client's record durable at RECLAIM_COMPLETE or before its first open or delegation, so that the
//! client can reclaim after a restart.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use dashmap::DashMap;
use mutex::locked;
use rdma_transport::channel::host_of;
use recovery::Store;
use state::{Answers, ClientId, Grace, Lease, LeaseState, Millis, Terms};

use super::client::{Client, Introduction};
use super::limits;
use super::name::{Name, shown};
use super::names::Domain;
use super::opens::StatesMax;
use super::principal::Principal;
use super::recovery::Recovery;
use super::room::{Full, Replies, Room};
use super::session::{Session, SessionId};
use super::stateid;
use super::status::Status;
use super::striking::Striking;
use super::watched::Watched;
use crate::server_state::ServerState;

/// Attempts to evict a client for one introduction: another introduction may take the place first.
const ROOM_ROUNDS_MAX: usize = 4;

/// Settings of the administrator.
#[derive(Clone, Debug)]
pub struct Options {
    pub lease: Duration,
    /// The grace period after a restart.
    pub grace: Duration,
    /// How long a lapsed client keeps state that no other client needs.
    pub courtesy: Duration,
    /// The recovery store. Without it no state survives a restart, and no grace period is needed.
    pub store: Option<Store>,
    /// Files that all lapsed clients together may keep open as a courtesy.
    pub courtesy_files: usize,
    /// True if the server grants delegations.
    pub delegations: bool,
    /// Translates ids to names; without it, ids are sent as numbers.
    pub domain: Option<Arc<Domain>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(90),
            grace: Duration::from_secs(90),
            courtesy: Duration::from_secs(24 * 60 * 60),
            store: None,
            courtesy_files: limits::COURTESY_FILES_MAX,
            delegations: true,
            domain: None,
        }
    }
}

/// Counts events of clients, such as granted delegations and recalls.
#[derive(Debug, Default)]
pub struct Counters {
    pub confirmed: AtomicU64,
    /// Clients released because their lease had lapsed.
    pub expired: AtomicU64,
    /// Clients of [`Counters::expired`] released early: to make room, or because of the files that they kept.
    pub evicted: AtomicU64,
    /// Active clients replaced by one from another address.
    pub moved: AtomicU64,
    /// Requests answered from a slot's cached reply.
    pub replays: AtomicU64,
    /// Requests refused because a limit was reached.
    pub limited: AtomicU64,
    /// Requests refused because the recovery store could not write or delete a record.
    pub unkept: AtomicU64,
    pub delegated: AtomicU64,
    pub revoked: AtomicU64,
    /// CB_RECALL: delegations recalled.
    pub recall: Callbacks,
    /// CB_GETATTR: queries to holders of write delegations.
    pub getattr: Callbacks,
}

/// Results of one kind of callback.
#[derive(Debug, Default)]
pub struct Callbacks {
    /// The client answered the callback without an error.
    pub answered: AtomicU64,
    /// The client was unreachable, or refused.
    pub failed: AtomicU64,
}

impl Callbacks {
    pub(super) fn count(&self, success: bool) {
        let counter = if success { &self.answered } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// The clients of one name: the active one, and one that has introduced itself but is not confirmed yet.
#[derive(Default)]
pub(super) struct Known {
    pub(super) confirmed: Option<Arc<Client>>,
    pub(super) pending: Option<Pending>,
}

#[derive(Clone)]
pub(super) struct Pending {
    pub(super) client: Arc<Client>,
    confirm: [u8; 8],
    principal: Principal,
}

pub struct Clients {
    pub(super) core: Arc<ServerState>,
    pub(super) options: Options,
    /// Event counters.
    pub counters: Counters,
    registry: Mutex<HashMap<Name, Known>>,
    pub(super) by_id: DashMap<u64, Arc<Client>>,
    /// Limits the number of clients.
    pub(super) room: Room,
    /// Limits the memory for replies cached by sessions.
    pub(super) replies: Replies,
    /// Records whose deletion is not durable yet.
    pub(super) striking: Striking,
    pub(super) sessions: DashMap<SessionId, Arc<Session>>,
    grace: Mutex<Grace>,
    pub(super) recovery: Recovery,
    next: AtomicU32,
    pub(super) tidied: AtomicU64,
    pub(super) delegations: AtomicUsize,
    pub(super) watched: Watched,
    pub(super) states_max: StatesMax,
}

/// Clients and sessions refer to each other; breaking the cycle here lets them be freed.
impl Drop for Clients {
    fn drop(&mut self) {
        self.by_id.iter().for_each(|client| client.sessions().clear());
    }
}

/// Converts server time to the unit of `state`.
pub(super) fn ms(d: Duration) -> Millis {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

impl Clients {
    /// Creates an empty registry. Clients recorded before the restart may reclaim.
    pub fn new(core: Arc<ServerState>, options: Options) -> std::io::Result<Arc<Self>> {
        let (recovery, names) = Recovery::open(options.store.clone(), core.boot.write_verifier)?;
        let grace = Grace::new(names, ms(core.clock.now()), ms(options.grace));
        Ok(Arc::new(Self {
            core,
            options,
            counters: Counters::default(),
            registry: Mutex::default(),
            by_id: DashMap::new(),
            room: Room::default(),
            replies: Replies::default(),
            striking: Striking::default(),
            sessions: DashMap::new(),
            grace: Mutex::new(grace),
            recovery,
            next: AtomicU32::new(1),
            tidied: AtomicU64::new(0),
            delegations: AtomicUsize::new(0),
            watched: Watched::default(),
            states_max: StatesMax::default(),
        }))
    }

    /// The current time, in the unit of `state`.
    pub(super) fn now(&self) -> Millis {
        ms(self.core.clock.now())
    }

    /// The lease in seconds, for the attribute `lease_time`.
    pub fn lease_s(&self) -> u32 {
        u32::try_from(self.options.lease.as_secs()).unwrap_or(u32::MAX)
    }

    pub(super) fn registry(&self) -> MutexGuard<'_, HashMap<Name, Known>> {
        locked(&self.registry)
    }

    pub(crate) fn grace(&self) -> MutexGuard<'_, Grace> {
        locked(&self.grace)
    }

    /// Adds names of other protocols that may reclaim in the grace period. Called before the first request is served.
    pub(crate) fn expect_reclaims(&self, names: impl Iterator<Item = Box<[u8]>>) {
        self.grace().expect(names, self.now(), ms(self.options.grace));
    }

    /// Finds the client of this number.
    pub(super) fn find(&self, id: ClientId) -> Option<Arc<Client>> {
        self.by_id.get(&id.0).map(|c| c.clone())
    }

    /// Finds a confirmed client of minor version 0 and renews its lease (RFC 7530 section 9.5).
    pub(super) fn find_v40(&self, id: ClientId) -> Result<Arc<Client>, Status> {
        if stateid::instance_of(id) != self.core.boot.instance {
            return Err(Status::StaleClientId);
        }
        match self.find(id) {
            Some(c) if c.is_confirmed() && c.lease.renew(self.now()) => Ok(c),
            Some(c) if c.is_confirmed() => Err(Status::Expired),
            _ => Err(Status::StaleClientId),
        }
    }

    /// Creates a client; `None` if the limit is reached. Called with the registry locked, so that the limit is exact.
    fn fresh(&self, new: &Introduction<'_>) -> Option<Arc<Client>> {
        let place = self.room.take(new.at)?;
        let id =
            stateid::client_id(self.core.boot.instance, self.next.fetch_add(1, Ordering::Relaxed));
        let terms =
            Terms { lease_ms: ms(self.options.lease), courtesy_ms: ms(self.options.courtesy) };
        let answers = Arc::new(Answers::of(place.usage().answers()));
        let lease = Lease::new(id, terms, self.now()).of_host(place.network()).answered_by(answers);
        let lease = Arc::new(lease);
        let client = Arc::new(Client::new(new, (id, lease), place, self.states_max.clone()));
        self.by_id.insert(id.0, client.clone());
        Some(client)
    }

    /// Removes an unconfirmed client.
    pub(super) fn drop_pending(&self, pending: Option<Pending>) {
        if let Some(p) = pending
            && !p.client.is_confirmed()
        {
            self.by_id.remove(&p.client.id.0);
        }
    }

    /// EXCHANGE_ID (RFC 8881 section 18.35.4; comments give the case number of its list). Returns the client and whether it is
    /// confirmed.
    pub(super) async fn exchange(
        &self,
        new: Introduction<'_>,
        update: bool,
    ) -> Result<(Arc<Client>, bool), Status> {
        self.tidy(self.now());
        if update {
            return self.update(&new);
        }
        self.give_way(&new).await?;
        for _ in 0..ROOM_ROUNDS_MAX {
            if let Some(done) = self.try_exchange(&new) {
                return done;
            }
            self.make_room(new.at).await.map_err(|full| match full {
                // Other leases will end soon, so the client should retry.
                Full::All => Status::Delay,
                // NFSv4.1 has no NFS4ERR_RESOURCE, and DELAY would make the client retry without end.
                Full::Address => Status::ServerFault,
            })?;
        }
        Err(Status::Delay)
    }

    fn update(&self, new: &Introduction<'_>) -> Result<(Arc<Client>, bool), Status> {
        let old = self.registry().get(new.name).and_then(|k| k.confirmed.clone());
        match old.filter(|c| c.lease.state(self.now()) != LeaseState::Ended) {
            // 7
            None => Err(Status::NoEnt),
            // Checked before the cases of the list, like in Linux' server.
            Some(c) if c.bound.is_some() && !new.is_by(&c) => Err(Status::WrongCred),
            // 8
            Some(c) if c.verifier != new.verifier => Err(Status::NotSame),
            // 9
            Some(c) if c.principal != new.principal => Err(Status::Perm),
            // 6
            Some(c) => Ok((c, true)),
        }
    }

    /// Handles the cases of EXCHANGE_ID that are not updates; `None` if the limit of clients is reached.
    fn try_exchange(&self, new: &Introduction<'_>) -> Option<Result<(Arc<Client>, bool), Status>> {
        let Introduction { name, verifier, principal, .. } = *new;
        let mut registry = self.registry();
        if let Some(c) = registry.get(name).and_then(|k| k.confirmed.clone()) {
            if !new.is_by(&c) {
                // The client was confirmed after `give_way` had checked the name.
                return Some(Err(Status::ClidInUse));
            }
            // A client that has ended remains until its record is struck; a returning client gets a new entry.
            if c.verifier == verifier && !c.lease.has_ended() {
                // 2
                let pending = registry.get_mut(name).and_then(|k| k.pending.take());
                self.drop_pending(pending);
                return Some(Ok((c, true)));
            }
        }
        if self.is_kept_for_other(&registry, new) {
            return Some(Err(Status::Delay));
        }
        // 1, 4 and 5: the confirmed client stays until the new one is confirmed.
        let client = self.fresh(new)?;
        let known = registry.entry(name.clone()).or_default();
        let replaced =
            known.pending.replace(Pending { client: client.clone(), confirm: [0; 8], principal });
        self.drop_pending(replaced);
        Some(Ok((client, false)))
    }

    /// True if a record of an earlier run belongs to another principal, which has not returned yet (RFC 8881 section 8.4.2.1 leaves
    /// the form of such records to servers; Linux' also compares principals). The caller waits until the record is struck or its
    /// owner has returned.
    fn is_kept_for_other(&self, registry: &HashMap<Name, Known>, new: &Introduction<'_>) -> bool {
        let is_back = registry.get(new.name).is_some_and(|known| known.confirmed.is_some());
        let owner = self.recovery.owner(new.name.as_bytes());
        let is_kept = !is_back && owner.is_some_and(|owner| !new.is_of(owner));
        if is_kept {
            let client = shown(new.name.shown());
            tracing::debug!(client, at = %new.at, "a name is kept for another principal that held it before the restart");
        }
        is_kept
    }

    /// Case 3: the name belongs to a client with another principal. It stays if it has state; without state it is released, unless
    /// it is bound to its machine's credential (RFC 8881 section 18.35.3).
    async fn give_way(&self, new: &Introduction<'_>) -> Result<(), Status> {
        let old = self.registry().get(new.name).and_then(|k| k.confirmed.clone());
        let Some(old) = old.filter(|c| !new.is_by(c)) else { return Ok(()) };
        let holds = !old.held().is_empty() || !old.sessions().is_empty() || old.bound.is_some();
        if holds && old.lease.is_live(self.now()) {
            return Err(Status::ClidInUse);
        }
        // The record is struck first, so that the next client of this name cannot reclaim the old client's state.
        if self.release(&old).await { Ok(()) } else { Err(Status::ServerFault) }
    }

    /// SETCLIENTID (RFC 7530 section 16.33.5). Returns the client's number and the verifier to confirm it.
    pub(super) async fn set_client_id(
        &self,
        name: &Name,
        verifier: [u8; 8],
        principal: Principal,
        at: IpAddr,
    ) -> Result<(ClientId, [u8; 8]), Status> {
        self.tidy(self.now());
        let mut confirm = [0; 8];
        getrandom::fill(&mut confirm).map_err(|_| Status::ServerFault)?;
        for _ in 0..ROOM_ROUNDS_MAX {
            if let Some(done) = self.try_set_client_id(name, verifier, principal, (confirm, at)) {
                return done;
            }
            self.make_room(at).await.map_err(|_full| Status::Resource)?;
        }
        Err(Status::Resource)
    }

    fn try_set_client_id(
        &self,
        name: &Name,
        verifier: [u8; 8],
        principal: Principal,
        (confirm, at): ([u8; 8], IpAddr),
    ) -> Option<Result<(ClientId, [u8; 8]), Status>> {
        let mut registry = self.registry();
        let old = registry.get(name).and_then(|k| k.confirmed.clone());
        let now = self.now();
        if let Some(c) = &old
            && c.principal != principal
            && c.lease.is_live(now)
            && !c.held().is_empty()
        {
            return Some(Err(Status::ClidInUse));
        }
        let (bound, is_protected) = (None, false);
        let new = Introduction { name, verifier, principal, is_protected, bound, at };
        if self.is_kept_for_other(&registry, &new) {
            return Some(Err(Status::Delay));
        }
        let is_same = |c: &Arc<Client>| {
            let has_ended = c.lease.state(now) == LeaseState::Ended;
            c.verifier == verifier && c.principal == principal && !has_ended
        };
        let client = match old {
            // The same client with a new callback address keeps its number and state.
            Some(c) if is_same(&c) => c,
            _ => self.fresh(&new)?,
        };
        let id = client.id;
        let known = registry.entry(name.clone()).or_default();
        let replaced = known.pending.replace(Pending { client, confirm, principal });
        if replaced.as_ref().is_some_and(|p| p.client.id != id) {
            self.drop_pending(replaced);
        }
        Some(Ok((id, confirm)))
    }

    /// SETCLIENTID_CONFIRM (RFC 7530 section 16.34.5).
    pub(super) fn set_client_id_confirm(
        &self,
        id: ClientId,
        confirm: [u8; 8],
        principal: Principal,
    ) -> Result<(), Status> {
        let client = self.find(id).ok_or(Status::StaleClientId)?;
        let old = {
            let mut registry = self.registry();
            let known = registry.get_mut(&client.name).ok_or(Status::StaleClientId)?;
            match &known.pending {
                Some(p) if p.client.id == id && p.confirm == confirm => {
                    if p.principal != principal {
                        return Err(Status::ClidInUse);
                    }
                    known.pending = None;
                    known.confirmed.replace(client.clone()).filter(|c| c.id != id)
                }
                // The client has repeated a confirmed call.
                _ if client.is_confirmed() && *client.confirm_verifier() == confirm => {
                    return if client.principal == principal {
                        Ok(())
                    } else {
                        Err(Status::ClidInUse)
                    };
                }
                _ => return Err(Status::StaleClientId),
            }
        };
        *client.confirm_verifier() = confirm;
        self.confirmed(&client, old);
        Ok(())
    }

    /// Confirms a client and releases the state of its predecessor.
    fn confirmed(&self, client: &Arc<Client>, old: Option<Arc<Client>>) {
        if let Some(old) = old {
            self.note_moved(client, &old);
            self.dissolve(&old);
        }
        client.lease.renew(self.now());
        if !client.confirmed.swap(true, Ordering::AcqRel) {
            self.counters.confirmed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts and logs an active client that introduces itself again from another address: it moved and restarted, or another host
    /// uses the same name. AUTH_SYS does not distinguish these clients, and in the protocols the latest wins.
    fn note_moved(&self, client: &Client, old: &Client) {
        let (Some(was), Some(now)) = (old.at(), client.at()) else { return };
        if host_of(was) == host_of(now) || !old.lease.is_live(self.now()) {
            return;
        }
        self.counters.moved.fetch_add(1, Ordering::Relaxed);
        let held = old.held().entries().count();
        tracing::warn!(
            client = shown(client.name.shown()), %was, %now, held,
            "an active NFSv4 client restarted from another address, and its state was released: if it did not \
             move, two hosts send the same client name (Linux: set the module \
             parameter nfs4_unique_id on each), or one uses the name of the other"
        );
    }

    /// Confirms a client at its first CREATE_SESSION.
    pub(super) fn confirm_by_session(
        &self,
        client: &Arc<Client>,
        principal: Principal,
    ) -> Result<(), Status> {
        if client.is_confirmed() {
            return Ok(());
        }
        let old = {
            let mut registry = self.registry();
            let known = registry.get_mut(&client.name).ok_or(Status::StaleClientId)?;
            match &known.pending {
                Some(p) if p.client.id == client.id && p.principal != principal => {
                    return Err(Status::ClidInUse);
                }
                Some(p) if p.client.id == client.id => {}
                _ => return Err(Status::StaleClientId),
            }
            known.pending = None;
            known.confirmed.replace(client.clone()).filter(|c| c.id != client.id)
        };
        self.confirmed(client, old);
        Ok(())
    }

    pub(super) fn all(&self) -> Vec<Arc<Client>> {
        self.by_id.iter().map(|c| c.clone()).collect()
    }

    /// Ends the state of all clients in a share that is no longer served, and returns the number of opens and delegations. State in
    /// other shares is kept. `root` is the share's root.
    pub fn leave_share(&self, root: &dyn vfs::backend::Node) -> usize {
        let arbiter = self.core.namespace.arbiter();
        let mut ended = 0;
        for client in self.all() {
            let (opens, delegations) =
                client.held().end_where(|node| node.is_beside(root), arbiter.state());
            self.delegations.fetch_sub(delegations, Ordering::Relaxed);
            ended += opens + delegations;
        }
        arbiter.released();
        ended
    }

    /// Removes a closed connection from the backchannels.
    pub(super) fn connection_closed(&self, conn: u64) {
        for session in &self.sessions {
            session.back().unbind(conn);
            session.unbind_fore(conn);
        }
    }

    /// Changes the limit on clients.
    pub fn set_clients_max(&self, most: usize) {
        self.room.set(most);
        self.replies.set_clients(most);
    }

    /// Changes the memory for replies cached by sessions, in bytes. Existing sessions keep their size.
    pub fn set_replies_max(&self, bytes: usize) {
        self.replies.set(bytes);
    }

    /// Changes the limit on opens, locks and delegations of one client.
    pub fn set_states_max(&self, most: usize) {
        self.states_max.set(most);
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}
