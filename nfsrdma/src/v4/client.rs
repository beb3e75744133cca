//! The clients of version 4: who they are, how they become known, and how they end.
//!
//! *Operation.* A client introduces itself by SETCLIENTID (4.0) or EXCHANGE_ID (4.1 and up) and is confirmed by a second step that
//! proves that it got the first answer. What it then holds is in its [`Held`]; how long, in its [`state::Lease`]. Silent clients
//! keep their state as a courtesy until others want it.
//!
//! *Memory.* Bounded by [`limits::CLIENTS_MAX`]; the longest-silent unconfirmed or lapsed client makes room for a new one.
//! Lock order: registry, then a client's `held`, then the shards of `state`. Nothing awaits under any of them.
//!
//! *Errors.* The [`Status`] of the specifications.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use recovery::Store;
use state::{ClientId, Grace, Lease, Millis, Standing, Terms};

use super::limits;
use super::names::Domain;
use super::opens::{Held, StatesMax};
use super::recovery::Recovery;
use super::session::{Session, SessionId};
use super::stateid;
use super::status::Status;
use super::watch::Watched;
use crate::context::{CallContext, Core};
use crate::rpc::Flavor;

/// What the administrator chooses.
#[derive(Clone, Debug)]
pub struct Options {
    /// The lease of a client.
    pub lease: Duration,
    /// Time to reclaim after a restart.
    pub grace: Duration,
    /// How long a silent client's state is kept while nobody else wants it.
    pub courtesy: Duration,
    /// Where what must survive a restart is kept; without it nothing does, and there is no time to reclaim.
    pub store: Option<Store>,
    /// Give read delegations.
    pub delegations: bool,
    /// Where users and groups have names; without it they are numbers.
    pub domain: Option<Arc<Domain>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(90),
            grace: Duration::from_secs(90),
            courtesy: Duration::from_secs(24 * 60 * 60),
            store: None,
            delegations: true,
            domain: None,
        }
    }
}

/// How often clients came, went, and were at fault.
#[derive(Debug, Default)]
pub struct Counters {
    /// Clients that became confirmed.
    pub confirmed: AtomicU64,
    /// Clients whose state was released because their lease had lapsed.
    pub expired: AtomicU64,
    /// Requests answered from a slot.
    pub replays: AtomicU64,
    /// Requests refused because a limit of this server was reached.
    pub limited: AtomicU64,
    /// Delegations given.
    pub delegated: AtomicU64,
    /// Delegations taken by force.
    pub revoked: AtomicU64,
    /// CB_RECALL: delegations that another wanted back.
    pub recall: Callbacks,
    /// CB_GETATTR: holders of write delegations that were asked for what they keep back.
    pub getattr: Callbacks,
}

/// How callbacks of one sort ended.
#[derive(Debug, Default)]
pub struct Callbacks {
    /// The client did what it was asked.
    pub answered: AtomicU64,
    /// There was no way to the client, or it refused.
    pub failed: AtomicU64,
}

impl Callbacks {
    pub(super) fn count(&self, success: bool) {
        let counter = if success { &self.answered } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Who a caller says it is, as far as the ownership of a client goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Principal {
    flavor: Flavor,
    uid: u32,
}

impl Principal {
    pub(super) fn of(call: &CallContext) -> Self {
        Self { flavor: call.flavor, uid: call.cred.uid }
    }
}

/// How a client names itself. The families of 4.0 and of sessions are apart: one host may use both.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name(Box<[u8]>);

impl Name {
    pub(super) fn new(sessions: bool, owner: &[u8]) -> Self {
        let mut name = vec![u8::from(sessions)];
        name.extend_from_slice(owner);
        Self(name.into())
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The order of CREATE_SESSION, which has no slot (RFC 8881 section 18.36.4).
#[derive(Debug)]
pub(super) struct CreateOrder {
    pub(super) next: u32,
    pub(super) last_reply: Option<Arc<[u8]>>,
    /// The number of the last one, if it failed.
    pub(super) failed: Option<u32>,
}

/// A client.
pub struct Client {
    pub(super) id: ClientId,
    pub(super) name: Name,
    pub(super) verifier: [u8; 8],
    pub(super) principal: Principal,
    pub(super) lease: Arc<Lease>,
    confirmed: AtomicBool,
    /// RECLAIM_COMPLETE was received.
    pub(super) reclaimed: AtomicBool,
    /// Its name is durable.
    recorded: AtomicBool,
    /// Delegations that were revoked and that it has not freed yet.
    pub(super) revoked: AtomicUsize,
    /// Opens and locks that an administrator took from it and that it has not freed yet.
    pub(super) admin_revoked: AtomicUsize,
    /// Where it was heard of when it introduced itself, or last joined a connection to itself.
    at: Mutex<Option<IpAddr>>,
    /// 4.0: the verifier that confirms it.
    confirm: Mutex<[u8; 8]>,
    create_order: Mutex<CreateOrder>,
    sessions: Mutex<Vec<Arc<Session>>>,
    held: Mutex<Held>,
}

impl Client {
    pub(super) fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, Vec<Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn create_order(&self) -> MutexGuard<'_, CreateOrder> {
        self.create_order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It calls from here.
    pub(super) fn note_at(&self, ip: IpAddr) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = Some(ip.to_canonical());
    }

    pub(super) fn at(&self) -> Option<IpAddr> {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed.load(Ordering::Acquire)
    }

    fn confirm_verifier(&self) -> MutexGuard<'_, [u8; 8]> {
        self.confirm.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known under one name: the client that is in use, and one that has introduced itself and not come back yet.
#[derive(Default)]
struct Known {
    confirmed: Option<Arc<Client>>,
    pending: Option<Pending>,
}

#[derive(Clone)]
struct Pending {
    client: Arc<Client>,
    confirm: [u8; 8],
    principal: Principal,
}

/// All clients.
pub struct Clients {
    pub(super) core: Arc<Core>,
    pub(super) options: Options,
    /// How often what happened.
    pub counters: Counters,
    registry: Mutex<HashMap<Name, Known>>,
    by_id: DashMap<u64, Arc<Client>>,
    pub(super) sessions: DashMap<SessionId, Arc<Session>>,
    grace: Mutex<Grace>,
    pub(super) recovery: Recovery,
    next: AtomicU32,
    tidied: AtomicU64,
    pub(super) delegations: AtomicUsize,
    pub(super) watched: Watched,
    pub(super) states_max: StatesMax,
}

/// A client and its sessions hold each other, so they do not go by themselves with the last server.
impl Drop for Clients {
    fn drop(&mut self) {
        self.by_id.iter().for_each(|client| client.sessions().clear());
    }
}

/// A time on the server's clock, in the unit of `state`.
pub(super) fn ms(d: Duration) -> Millis {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

impl Clients {
    /// No clients yet; those of before the restart may reclaim.
    pub fn new(core: Arc<Core>, options: Options) -> std::io::Result<Arc<Self>> {
        let (recovery, names) = Recovery::open(options.store.clone(), core.boot.write_verifier)?;
        let grace = Grace::new(names, ms(core.clock.now()), ms(options.grace));
        let all = Arc::new(Self {
            core,
            options,
            counters: Counters::default(),
            registry: Mutex::default(),
            by_id: DashMap::new(),
            sessions: DashMap::new(),
            grace: Mutex::new(grace),
            recovery,
            next: AtomicU32::new(1),
            tidied: AtomicU64::new(0),
            delegations: AtomicUsize::new(0),
            watched: Watched::default(),
            states_max: StatesMax::default(),
        });
        super::deleg::attach(&all);
        Ok(all)
    }

    /// The time, in the unit of `state`.
    pub(super) fn now(&self) -> Millis {
        ms(self.core.clock.now())
    }

    /// The lease, in seconds, as the attribute `lease_time` says it.
    pub fn lease_s(&self) -> u32 {
        u32::try_from(self.options.lease.as_secs()).unwrap_or(u32::MAX)
    }

    fn registry(&self) -> MutexGuard<'_, HashMap<Name, Known>> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn grace(&self) -> MutexGuard<'_, Grace> {
        self.grace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These others, who are no clients of version 4, may reclaim too. Told before anybody is served.
    pub(crate) fn expect_reclaims(&self, names: impl Iterator<Item = Box<[u8]>>) {
        self.grace().expect(names, self.now(), ms(self.options.grace));
    }

    /// Nothing new may be taken yet.
    pub fn in_grace(&self) -> bool {
        self.grace().is_active(self.now())
    }

    /// The client of this number.
    pub(super) fn find(&self, id: ClientId) -> Option<Arc<Client>> {
        self.by_id.get(&id.0).map(|c| c.clone())
    }

    /// A confirmed client of minor version 0, heard of now (RFC 7530 section 9.5).
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

    fn fresh(&self, name: &Name, verifier: [u8; 8], principal: Principal) -> Arc<Client> {
        let id =
            stateid::client_id(self.core.boot.instance, self.next.fetch_add(1, Ordering::Relaxed));
        let terms =
            Terms { lease_ms: ms(self.options.lease), courtesy_ms: ms(self.options.courtesy) };
        let client = Arc::new(Client {
            id,
            name: name.clone(),
            verifier,
            principal,
            lease: Arc::new(Lease::new(id, terms, self.now())),
            confirmed: false.into(),
            reclaimed: false.into(),
            recorded: false.into(),
            revoked: AtomicUsize::new(0),
            admin_revoked: AtomicUsize::new(0),
            at: Mutex::default(),
            confirm: Mutex::default(),
            create_order: Mutex::new(CreateOrder { next: 1, last_reply: None, failed: None }),
            sessions: Mutex::default(),
            held: Mutex::new(Held::within(self.states_max.clone())),
        });
        self.by_id.insert(id.0, client.clone());
        client
    }

    /// Forgets an unconfirmed client.
    fn drop_pending(&self, pending: Option<Pending>) {
        if let Some(p) = pending
            && !p.client.is_confirmed()
        {
            self.by_id.remove(&p.client.id.0);
        }
    }

    /// Makes room for one more client. False when all are in use.
    fn make_room(&self, registry: &mut HashMap<Name, Known>) -> bool {
        if self.by_id.len() < limits::CLIENTS_MAX {
            return true;
        }
        // Only those who never came back: the courtesy of others is ended when their state is wanted.
        let idle = registry
            .iter()
            .filter_map(|(name, k)| Some((name, k.pending.as_ref()?)))
            .filter(|(_, p)| !p.client.is_confirmed())
            .min_by_key(|(_, p)| p.client.lease.renewed())
            .map(|(name, _)| name.clone());
        let Some(known) = idle.and_then(|name| registry.get_mut(&name)) else {
            self.counters.limited.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        let pending = known.pending.take();
        self.drop_pending(pending);
        true
    }

    /// EXCHANGE_ID (RFC 8881 section 18.35.4; the numbers are those of its list). Gives the client and whether it is confirmed.
    pub(super) fn exchange(
        &self,
        name: &Name,
        verifier: [u8; 8],
        principal: Principal,
        update: bool,
    ) -> Result<(Arc<Client>, bool), Status> {
        self.tidy(self.now());
        if !update {
            self.give_way(name, principal)?;
        }
        let mut registry = self.registry();
        let old = registry.get(name).and_then(|k| k.confirmed.clone());
        if update {
            return match old {
                // 7
                None => Err(Status::NoEnt),
                // 8
                Some(c) if c.verifier != verifier => Err(Status::NotSame),
                // 9
                Some(c) if c.principal != principal => Err(Status::Perm),
                // 6
                Some(c) => Ok((c, true)),
            };
        }
        if let Some(c) = &old {
            if c.principal != principal {
                // It became known since it was asked to give way.
                return Err(Status::ClidInUse);
            }
            if c.verifier == verifier {
                // 2
                let pending = registry.get_mut(name).and_then(|k| k.pending.take());
                self.drop_pending(pending);
                c.lease.renew(self.now());
                return Ok((c.clone(), true));
            }
        }
        // 1, 4 and 5: what is confirmed stays until the new one is.
        if !self.make_room(&mut registry) {
            return Err(Status::Delay);
        }
        let client = self.fresh(name, verifier, principal);
        let known = registry.entry(name.clone()).or_default();
        let replaced =
            known.pending.replace(Pending { client: client.clone(), confirm: [0; 8], principal });
        self.drop_pending(replaced);
        Ok((client, false))
    }

    /// 3: a client that holds something is not thrown out by a stranger with its name; one that holds nothing goes at once.
    fn give_way(&self, name: &Name, principal: Principal) -> Result<(), Status> {
        let old = self.registry().get(name).and_then(|k| k.confirmed.clone());
        let Some(old) = old.filter(|c| c.principal != principal) else { return Ok(()) };
        let holds = !old.held().is_empty() || !old.sessions().is_empty();
        if holds && old.lease.is_live(self.now()) {
            return Err(Status::ClidInUse);
        }
        self.dissolve(&old);
        Ok(())
    }

    /// SETCLIENTID (RFC 7530 section 16.33.5). Gives the client's number and the verifier that confirms it.
    pub(super) fn set_client_id(
        &self,
        name: &Name,
        verifier: [u8; 8],
        principal: Principal,
    ) -> Result<(ClientId, [u8; 8]), Status> {
        self.tidy(self.now());
        let mut confirm = [0; 8];
        getrandom::fill(&mut confirm).map_err(|_| Status::ServerFault)?;
        let mut registry = self.registry();
        let old = registry.get(name).and_then(|k| k.confirmed.clone());
        if let Some(c) = &old
            && c.principal != principal
            && c.lease.is_live(self.now())
            && !c.held().is_empty()
        {
            return Err(Status::ClidInUse);
        }
        let client = match old {
            // The same client with a new callback: its number and what it holds stay.
            Some(c) if c.verifier == verifier && c.principal == principal => c,
            _ => {
                if !self.make_room(&mut registry) {
                    return Err(Status::Resource);
                }
                self.fresh(name, verifier, principal)
            }
        };
        let id = client.id;
        let known = registry.entry(name.clone()).or_default();
        let replaced = known.pending.replace(Pending { client, confirm, principal });
        if replaced.as_ref().is_some_and(|p| p.client.id != id) {
            self.drop_pending(replaced);
        }
        Ok((id, confirm))
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
                // A repetition.
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

    /// The last step of becoming known: the predecessor's state goes.
    fn confirmed(&self, client: &Arc<Client>, old: Option<Arc<Client>>) {
        if let Some(old) = old {
            self.dissolve(&old);
        }
        client.lease.renew(self.now());
        if !client.confirmed.swap(true, Ordering::AcqRel) {
            self.counters.confirmed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A client with sessions is confirmed by its first CREATE_SESSION.
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

    /// Makes the client's name durable before it takes anything new, so that it may reclaim after a restart: at its
    /// RECLAIM_COMPLETE, or in minor version 0 at its first open.
    pub(super) async fn enter(&self, client: &Arc<Client>) -> Result<(), Status> {
        if client.recorded.load(Ordering::Acquire) {
            return Ok(());
        }
        if !self.recovery.has(client.name.as_bytes()) {
            self.recovery.enter(client.name.as_bytes()).await.map_err(|e| {
                tracing::error!(error = %e, "a client's record cannot be written");
                Status::Delay
            })?;
        }
        client.recorded.store(true, Ordering::Release);
        Ok(())
    }

    /// The client says that it will not come back (DESTROY_CLIENTID).
    pub(super) async fn leave(&self, client: &Arc<Client>) -> Result<(), Status> {
        if client.is_confirmed() {
            let struck = self.recovery.strike(client.name.as_bytes()).await;
            struck.map_err(|e| {
                tracing::error!(error = %e, "a client's record cannot be removed");
                Status::Delay
            })?;
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
        for client in self.all() {
            if !client.is_confirmed() || !client.held().is_empty() {
                continue;
            }
            if let Err(e) = self.recovery.strike(client.name.as_bytes()).await {
                // The next start waits for it, no more than that.
                tracing::warn!(error = %e, "a client's record cannot be removed");
            }
        }
    }

    /// Takes everything from a client and forgets it. Its durable record is the caller's business.
    pub(super) fn dissolve(&self, client: &Arc<Client>) {
        client.lease.end();
        {
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
            self.by_id.remove(&client.id.0);
        }
        for session in std::mem::take(&mut *client.sessions()) {
            session.kill();
            self.sessions.remove(&session.id);
        }
        let keeper = self.core.namespace.keeper();
        let gone = client.held().take_all();
        let delegations = gone.release(keeper.state());
        self.delegations.fetch_sub(delegations, Ordering::Relaxed);
        keeper.released();
    }

    /// Every client that is known.
    pub(super) fn all(&self) -> Vec<Arc<Client>> {
        self.by_id.iter().map(|c| c.clone()).collect()
    }

    /// A share is not served any more: what clients hold in it ends, whatever they hold elsewhere stays. `root` is the share's.
    /// How many opens and delegations there were.
    pub fn leave_share(&self, root: &dyn vfs::backend::Node) -> usize {
        let keeper = self.core.namespace.keeper();
        let mut ended = 0;
        for client in self.all() {
            let (opens, delegations) =
                client.held().end_where(|node| node.is_beside(root), keeper.state());
            self.delegations.fetch_sub(delegations, Ordering::Relaxed);
            ended += opens + delegations;
        }
        keeper.released();
        ended
    }

    /// Releases a client whose lease has lapsed, unless it came back: durably first, so that it cannot reclaim after a restart
    /// what others take now.
    pub(super) async fn release_lapsed(&self, id: ClientId) {
        let Some(client) = self.find(id) else { return };
        if !client.lease.end_if_lapsed(self.now()) {
            return;
        }
        if let Err(e) = self.recovery.strike(client.name.as_bytes()).await {
            tracing::error!(error = %e, "a client's record cannot be removed");
        }
        self.counters.expired.fetch_add(1, Ordering::Relaxed);
        tracing::info!(
            client = id.0,
            "released the state of a client that was silent for too long"
        );
        self.dissolve(&client);
    }

    /// Ends what is over: the time to reclaim, courtesies, introductions that nobody came back to. At most once a second.
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
        self.strike_absent(now);
        let over: Vec<_> = self
            .by_id
            .iter()
            .filter(|c| match c.lease.standing(now) {
                Standing::Live => false,
                // Courtesy is for those who would lose something.
                Standing::Courtesy => !c.is_confirmed() || c.held().is_empty(),
                Standing::Ended => true,
            })
            .map(|c| c.clone())
            .collect();
        for client in over {
            if !client.lease.end_if_lapsed(now) && client.lease.renewed().is_some() {
                // It was heard of just now.
                continue;
            }
            if client.is_confirmed() {
                if let Err(e) = self.recovery.strike_blocking(client.name.as_bytes()) {
                    tracing::error!(error = %e, "a client's record cannot be removed");
                    continue;
                }
                self.counters.expired.fetch_add(1, Ordering::Relaxed);
            }
            self.dissolve(&client);
        }
    }

    /// When the time to reclaim is over: who did not come back has lost what it held.
    fn strike_absent(&self, now: Millis) {
        let Some(absent) = self.grace().finish(now) else { return };
        tracing::info!(absent = absent.len(), "clients can no longer reclaim");
        for name in absent {
            let name = Name(name);
            let is_back = self.registry().get(&name).is_some_and(|k| k.confirmed.is_some());
            if is_back {
                continue;
            }
            if let Err(e) = self.recovery.strike_blocking(name.as_bytes()) {
                tracing::error!(error = %e, "a client's record cannot be removed");
            }
        }
    }

    /// A connection has ended: it carries no callbacks any more.
    pub(super) fn connection_closed(&self, conn: u64) {
        for session in &self.sessions {
            session.back().unbind(conn);
        }
    }

    /// Opens, locks and delegations that one client may have, from now on.
    pub fn set_states_max(&self, most: usize) {
        self.states_max.set(most);
    }

    /// Clients that are known.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// No client is known.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}
