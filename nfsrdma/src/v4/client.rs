//! A client of version 4: who it is, its sessions and what it holds.
//!
//! Lock order: the registry of [`super::clients`], then a client's `held`, then the shards of `state`. Nothing awaits under any.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use mutex::locked;
use state::{ClientId, Lease};

use super::machine::Bound;
use super::name::Name;
use super::opens::{Held, StatesMax};
use super::principal::Principal;
use super::recovery::Owner;
use super::room::ClientPermit;
use super::session::Session;
use crate::context::CallContext;

/// What EXCHANGE_ID or SETCLIENTID says of a client.
#[derive(Clone, Copy)]
pub(super) struct Introduction<'a> {
    pub(super) name: &'a Name,
    /// Another one is another run of the client.
    pub(super) verifier: [u8; 8],
    pub(super) principal: Principal,
    /// The call proves that nobody changed it on its way.
    pub(super) is_protected: bool,
    /// What is to be bound to the principal.
    pub(super) bound: Option<Bound>,
    /// Where it calls from.
    pub(super) at: IpAddr,
}

impl Introduction<'_> {
    /// It comes from the principal of this client, protected as the client's state is.
    pub(super) fn is_by(&self, client: &Client) -> bool {
        let is_protected = self.is_protected || client.bound.is_none();
        self.principal == client.principal && is_protected
    }

    /// The same of the client of an earlier run that left this record.
    pub(super) fn is_of(&self, owner: Owner) -> bool {
        let is_protected = self.is_protected || !owner.is_bound;
        self.principal.is_proven() && self.principal.gss == owner.principal && is_protected
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
    /// What only its machine's credential may do to it.
    pub(super) bound: Option<Bound>,
    pub(super) lease: Arc<Lease>,
    pub(super) confirmed: AtomicBool,
    /// RECLAIM_COMPLETE was received.
    pub(super) reclaimed: AtomicBool,
    /// Its name is durable.
    pub(super) recorded: AtomicBool,
    /// Delegations that were revoked and that it has not freed yet.
    pub(super) revoked: AtomicUsize,
    /// Opens and locks that an administrator took from it and that it has not freed yet.
    pub(super) admin_revoked: AtomicUsize,
    /// Where it was heard of when it introduced itself, or last joined a connection to itself.
    at: Mutex<Option<IpAddr>>,
    /// Counts it among the clients of the network that it introduced itself from.
    pub(super) place: ClientPermit,
    /// How many of its files were looked at for their last name having gone, since it lapsed.
    pub(super) looked_at: AtomicUsize,
    /// 4.0: the verifier that confirms it.
    confirm: Mutex<[u8; 8]>,
    create_order: Mutex<CreateOrder>,
    sessions: Mutex<Vec<Arc<Session>>>,
    held: Mutex<Held>,
}

impl Client {
    /// One that has introduced itself like this, with this number and lease.
    pub(super) fn new(
        new: &Introduction<'_>,
        (id, lease): (ClientId, Arc<Lease>),
        place: ClientPermit,
        states_max: StatesMax,
    ) -> Self {
        let Introduction { name, verifier, principal, bound, at, .. } = *new;
        let usage = place.usage().clone();
        Self {
            id,
            name: name.clone(),
            verifier,
            principal,
            bound,
            lease,
            confirmed: false.into(),
            reclaimed: false.into(),
            recorded: false.into(),
            revoked: AtomicUsize::new(0),
            admin_revoked: AtomicUsize::new(0),
            at: Mutex::new(Some(at.to_canonical())),
            place,
            looked_at: AtomicUsize::new(0),
            confirm: Mutex::default(),
            create_order: Mutex::new(CreateOrder { next: 1, last_reply: None, failed: None }),
            sessions: Mutex::default(),
            held: Mutex::new(Held::within(states_max, usage)),
        }
    }

    pub(super) fn held(&self) -> MutexGuard<'_, Held> {
        locked(&self.held)
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, Vec<Arc<Session>>> {
        locked(&self.sessions)
    }

    pub(super) fn create_order(&self) -> MutexGuard<'_, CreateOrder> {
        locked(&self.create_order)
    }

    /// It calls from here.
    pub(super) fn note_at(&self, ip: IpAddr) {
        *locked(&self.at) = Some(ip.to_canonical());
    }

    pub(super) fn at(&self) -> Option<IpAddr> {
        *locked(&self.at)
    }

    /// Who alone may take back what it holds, after a restart; `None`: it has proved nothing, and whoever has its name may.
    pub(super) fn owner(&self) -> Option<Owner> {
        let Principal { gss: principal, .. } = self.principal;
        self.principal.is_proven().then(|| Owner { principal, is_bound: self.bound.is_some() })
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed.load(Ordering::Acquire)
    }

    /// The call proves the principal that introduced the client, and nobody changed it on its way.
    fn is_by_machine(&self, call: &CallContext) -> bool {
        self.principal == Principal::of(call) && call.flavor.is_protected()
    }

    /// Its state is bound to another credential than that of the call.
    pub(super) fn is_bound_to_other(&self, call: &CallContext) -> bool {
        self.bound.is_some() && !self.is_by_machine(call)
    }

    /// Only its machine may send this operation, and the call is not by it.
    pub(super) fn enforces(&self, opcode: u32, call: &CallContext) -> bool {
        self.bound.is_some_and(|bound| bound.enforce.has(opcode)) && !self.is_by_machine(call)
    }

    /// Its machine may send this operation in place of any of its users, and the call is by it.
    pub(super) fn allows(&self, opcode: u32, call: &CallContext) -> bool {
        self.bound.is_some_and(|bound| bound.allow.has(opcode)) && self.is_by_machine(call)
    }

    pub(super) fn confirm_verifier(&self) -> MutexGuard<'_, [u8; 8]> {
        locked(&self.confirm)
    }
}
