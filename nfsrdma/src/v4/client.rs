//! A client of NFSv4: its identity, its sessions and its state.
//!
//! Lock order: the registry of [`super::clients`], then a client's `held`, then the shards of `state`. These locks are never held
//! across an await.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use mutex::locked;
use state::{ClientId, Lease};
use tokio::sync::Notify;

use super::machine::Bound;
use super::name::Name;
use super::opens::{Held, StatesMax};
use super::principal::Principal;
use super::recovery::Owner;
use super::room::ClientPermit;
use super::session::Session;
use crate::context::CallContext;

/// The identity that a client sends with EXCHANGE_ID or SETCLIENTID.
#[derive(Clone, Copy)]
pub(super) struct Introduction<'a> {
    pub(super) name: &'a Name,
    /// The verifier. It changes when the client restarts.
    pub(super) verifier: [u8; 8],
    pub(super) principal: Principal,
    /// The call has integrity protection.
    pub(super) is_protected: bool,
    /// State protection that the client requests for its principal.
    pub(super) bound: Option<Bound>,
    pub(super) at: IpAddr,
}

impl Introduction<'_> {
    /// True if the call comes from the principal of this client, with the protection that its state requires.
    pub(super) fn is_by(&self, client: &Client) -> bool {
        let is_protected = self.is_protected || client.bound.is_none();
        self.principal == client.principal && is_protected
    }

    /// Like [`Introduction::is_by`], for the client of an earlier run that left this record.
    pub(super) fn is_of(&self, owner: Owner) -> bool {
        let is_protected = self.is_protected || !owner.is_bound;
        self.principal.is_proven() && self.principal.gss == owner.principal && is_protected
    }
}

/// The sequence of CREATE_SESSION, which has no slot (RFC 8881 section 18.36.4).
#[derive(Debug)]
pub(super) struct CreateOrder {
    pub(super) next: u32,
    pub(super) last_reply: Option<Arc<[u8]>>,
    /// The sequence number of the last request, if it failed.
    pub(super) failed: Option<u32>,
}

pub struct Client {
    pub(super) id: ClientId,
    pub(super) name: Name,
    pub(super) verifier: [u8; 8],
    pub(super) principal: Principal,
    /// State protection: the operations that only the machine's credential may use.
    pub(super) bound: Option<Bound>,
    pub(super) lease: Arc<Lease>,
    pub(super) confirmed: AtomicBool,
    pub(super) reclaimed: AtomicBool,
    /// The client's name is in the recovery store.
    pub(super) recorded: AtomicBool,
    /// Revoked delegations that the client has not freed yet.
    pub(super) revoked: AtomicUsize,
    /// Opens and locks revoked by an administrator that the client has not freed yet.
    pub(super) admin_revoked: AtomicUsize,
    /// The address from which it last introduced itself, or bound a connection.
    at: Mutex<Option<IpAddr>>,
    /// Counts the client in its network's part of the limit.
    pub(super) place: ClientPermit,
    /// Number of its files checked for a link count of 0 since its lease lapsed.
    pub(super) looked_at: AtomicUsize,
    /// Notified when a delegation of the client is recalled.
    pub(super) recalls: Notify,
    /// When it was last asked whether it answers callbacks again, in milliseconds of the server's clock.
    pub(super) asked_at: AtomicU64,
    /// Minor version 0: the verifier for SETCLIENTID_CONFIRM.
    confirm: Mutex<[u8; 8]>,
    create_order: Mutex<CreateOrder>,
    sessions: Mutex<Vec<Arc<Session>>>,
    held: Mutex<Held>,
}

impl Client {
    /// Creates a client with this number and lease.
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
            recalls: Notify::new(),
            asked_at: AtomicU64::new(0),
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

    /// Updates the client's address.
    pub(super) fn note_at(&self, ip: IpAddr) {
        *locked(&self.at) = Some(ip.to_canonical());
    }

    pub(super) fn at(&self) -> Option<IpAddr> {
        *locked(&self.at)
    }

    /// The only principal that may reclaim this client's state after a restart; `None` if the client did not prove one, so that any
    /// client of the same name may.
    pub(super) fn owner(&self) -> Option<Owner> {
        let Principal { gss: principal, .. } = self.principal;
        self.principal.is_proven().then(|| Owner { principal, is_bound: self.bound.is_some() })
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed.load(Ordering::Acquire)
    }

    /// True if the call proves the principal that introduced the client, with integrity protection.
    fn is_by_machine(&self, call: &CallContext) -> bool {
        self.principal == Principal::of(call) && call.flavor.is_protected()
    }

    /// True if the client's state is bound to a credential other than the call's.
    pub(super) fn is_bound_to_other(&self, call: &CallContext) -> bool {
        self.bound.is_some() && !self.is_by_machine(call)
    }

    /// True if only the client's machine may use this operation, and the call is not from it.
    pub(super) fn enforces(&self, opcode: u32, call: &CallContext) -> bool {
        self.bound.is_some_and(|bound| bound.enforce.has(opcode)) && !self.is_by_machine(call)
    }

    /// True if the client's machine may use this operation on behalf of its users, and the call is from it.
    pub(super) fn allows(&self, opcode: u32, call: &CallContext) -> bool {
        self.bound.is_some_and(|bound| bound.allow.has(opcode)) && self.is_by_machine(call)
    }

    pub(super) fn confirm_verifier(&self) -> MutexGuard<'_, [u8; 8]> {
        locked(&self.confirm)
    }
}
