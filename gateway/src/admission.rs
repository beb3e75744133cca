//! Admission of connections: limits on all connections, on the connections of one host, and on connections whose clients have
//! not introduced themselves.
//!
//! *Operation.* Each connection gets a permit before any work for it ([`Admission::admit`]), and returns it when its
//! [`AdmissionPermit`] is dropped, however its task ends. Until [`AdmissionPermit::established`] it counts as a newcomer. The limit
//! on newcomers is low, so that clients that connect and send no request cannot keep others out, and a connection that remains a
//! newcomer for too long ends ([`Admission::introduction`]). At a limit, a new connection evicts an idle one ([`give_way`]).
//!
//! *Memory.* All connections of one host take payload memory and receive buffers through one handle of each pool
//! ([`AdmissionPermit::payload`], [`AdmissionPermit::recvs`]), so that no client uses up the memory of others. A host is an IPv4
//! address or an IPv6 /64 ([`host_of`]).
//!
//! *Errors.* A refusal is counted under the limit that caused it, recorded and logged ([`refused`]).

mod give_way;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;

use audit::PeerText;
use config::{Cidr, Protocols, Settings};
use iobuf::Pool;
use mutex::{locked, reading, writing};
use rdma_transport::channel::{Info, host_of};
use rdma_transport::count;
use rdma_transport::refused::{self, Refused};
use tokio::sync::oneshot;
use vfs::clients_remedy::clients_with;

use crate::descriptors::Descriptors;
use give_way::{Entry, InVain};

/// If the limit on all connections is below this, it reserves no connections for known clients or other addresses.
const FEW: usize = 64;
/// The limit that counts requests that wait for their client's share of payload memory.
const MEMORY_OF_ADDRESS: &str = "memory-of-address";

/// A limit on connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    All,
    Address,
    Newcomers,
    NewcomersOfAddress,
    /// No share admits the address.
    Clients,
}

impl Limit {
    /// Number of limits.
    const COUNT: usize = 5;
    /// Limits on the number of connections, in the order in which they are checked: a newcomer replaces another newcomer, first one
    /// of the same address, before a known client loses a connection.
    const BOUNDS: [Self; 4] = [Self::NewcomersOfAddress, Self::Newcomers, Self::Address, Self::All];

    fn name(self) -> &'static str {
        match self {
            Self::All => "connections",
            Self::Address => "connections-of-address",
            Self::Newcomers => "newcomers",
            Self::NewcomersOfAddress => "newcomers-of-address",
            Self::Clients => "clients",
        }
    }
}

impl Limit {
    /// Returns whether it limits connections whose clients have not introduced themselves.
    fn is_for_newcomers(self) -> bool {
        matches!(self, Self::Newcomers | Self::NewcomersOfAddress)
    }

    /// Returns whether it limits the connections of one host.
    fn is_of_address(self) -> bool {
        matches!(self, Self::Address | Self::NewcomersOfAddress)
    }

    /// Returns the change that would admit the client.
    fn remedy(self, limits: &ConnectionLimits) -> &'static str {
        match (self, limits.address) {
            (Self::Address, Some(_)) => "raise `limits.client_connections`",
            _ if limits.is_short => "raise `LimitNOFILE=` or `ulimit -Hn`",
            _ => "raise `connections`",
        }
    }
}

/// Returns the change that makes a share admit this address in addition to its present clients. `near`: the networks whose clients
/// need no list, for a protocol with such networks.
fn admitting(near: Option<&[Cidr]>, peer: IpAddr) -> String {
    let peer = peer.to_canonical();
    match near {
        Some(near) if !near.iter().any(|network| network.contains(peer)) => {
            let list = clients_with(None, (Protocols::Both, Protocols::Nfs), near, peer);
            format!(
                "this host is attached to no network of {peer}: add it to `clients` of a share, or write `clients: [{list}]` in \
                 one that has no list: a list replaces the attached networks"
            )
        }
        // A share without a list would have admitted this address, so every share has one.
        _ => format!("add {peer} to `clients` of a share: each has a list, and none names it"),
    }
}

#[derive(Clone, Copy, Default)]
struct Counts {
    open: usize,
    new: usize,
}

#[derive(Default)]
struct Tables {
    all: Counts,
    addresses: HashMap<IpAddr, Address>,
    /// Open connections by number: oldest first.
    open: BTreeMap<u64, Entry>,
    next: u64,
    /// Evicted connections that are not closed yet.
    closing: usize,
    /// The last failed search for a connection to evict, for each limit.
    in_vain: [Option<InVain>; Limit::COUNT],
}

/// A host with open connections.
struct Address {
    counts: Counts,
    memory: Memory,
    /// Number of waits for its share of the pool that were already reported.
    told: u64,
}

/// Limits from the configuration.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Connections of all clients.
    pub all: usize,
    /// Set if `all` is below `connections` because this process may open few files.
    pub is_short: bool,
    /// Connections from one address; `None`: three quarters of all.
    pub address: Option<usize>,
    /// Time within which a newcomer must introduce itself.
    pub introduction: Duration,
}

impl ConnectionLimits {
    /// Returns the limits of these settings.
    pub(crate) fn of(settings: &Settings, descriptors: Descriptors) -> Self {
        let limits = &settings.limits;
        Self {
            all: descriptors.connections,
            is_short: descriptors.connections < settings.connections,
            address: limits.client_connections,
            introduction: limits.introduction,
        }
    }

    /// Returns the number that a limit allows. Half of the connections are reserved for known clients, and a quarter for other
    /// addresses.
    fn by(&self, limit: Limit) -> usize {
        let share = |quarters: usize| match self.all < FEW {
            true => self.all,
            false => self.all / 4 * quarters,
        };
        match limit {
            Limit::All => self.all,
            Limit::Address => self.address.unwrap_or(share(3)),
            Limit::Newcomers => share(2),
            Limit::NewcomersOfAddress => share(1),
            Limit::Clients => usize::MAX,
        }
    }

    /// Returns the limit to name in a refusal: the limit on all connections, if the given one allows the same number.
    fn named(&self, limit: Limit) -> Limit {
        if self.by(limit) == self.all { Limit::All } else { limit }
    }
}

/// The limits and the connections that count against them.
pub struct Admission {
    limits: RwLock<ConnectionLimits>,
    payload: Pool,
    recvs: Pool,
    tables: Mutex<Tables>,
    /// Number of refusals by each limit.
    refused: [AtomicU64; Limit::COUNT],
}

/// Memory pools of one host.
#[derive(Clone)]
struct Memory {
    payload: Pool,
    recvs: Pool,
}

/// Permit for one connection.
pub struct AdmissionPermit {
    admission: Arc<Admission>,
    id: u64,
    memory: Memory,
    cut: Option<oneshot::Receiver<String>>,
}

impl Admission {
    /// Applies these limits to connections that take payload from one pool and receive buffers of TCP from another.
    pub fn new(limits: ConnectionLimits, payload: Pool, recvs: Pool) -> Arc<Self> {
        Arc::new(Self {
            limits: RwLock::new(limits),
            payload,
            recvs,
            tables: Mutex::default(),
            refused: Default::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        locked(&self.tables)
    }

    /// Replaces the limits. Open connections stay, even if there are now too many.
    pub fn set(&self, limits: ConnectionLimits) {
        *writing(&self.limits) = limits;
    }

    fn limits(&self) -> ConnectionLimits {
        *reading(&self.limits)
    }

    /// Returns the number of connections that the limits allow.
    pub fn connections_max(&self) -> usize {
        self.limits().all
    }

    /// Returns the number of connections that are open, or evicted and not closed yet.
    pub fn connections(&self) -> usize {
        let tables = self.lock();
        tables.all.open + tables.closing
    }

    /// Returns the time within which a newcomer must introduce itself.
    pub fn introduction(&self) -> Duration {
        self.limits().introduction
    }

    /// Admits one more connection, and evicts an idle one if a limit requires it.
    pub fn admit(self: &Arc<Self>, peer: SocketAddr) -> Option<AdmissionPermit> {
        let host = host_of(peer.ip());
        let mut tried = self.try_admit(host);
        // Evict at most one connection for each limit.
        for _ in Limit::BOUNDS {
            match tried {
                Err(limit) if self.make_room(limit, host) => tried = self.try_admit(host),
                _ => break,
            }
        }
        match tried {
            Ok((id, memory, cut)) => {
                Some(AdmissionPermit { admission: self.clone(), id, memory, cut: Some(cut) })
            }
            Err(limit) => {
                let limits = self.limits();
                let limit = limits.named(limit);
                self.note(limit, peer, limit.remedy(&limits).into());
                None
            }
        }
    }

    /// Records a connection that was closed at once because no share admits its address. `near`: the networks that need no list.
    pub fn refuse_stranger(&self, peer: SocketAddr, near: Option<&[Cidr]>) {
        self.note(Limit::Clients, peer, admitting(near, peer.ip()).into());
    }

    /// Returns the number of refused connections.
    pub fn refusals(&self) -> u64 {
        self.refused.iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }

    /// Reports clients whose requests had to wait for their share of payload memory since the last call.
    pub fn tell_held_back(&self) {
        let mut tables = self.lock();
        for (ip, address) in &mut tables.addresses {
            let waits = address.memory.payload.held_back();
            let new = waits - std::mem::replace(&mut address.told, waits);
            if new > 0 {
                count::limit_met_times(MEMORY_OF_ADDRESS, new);
                tracing::info!(
                    peer = %ip, limit = MEMORY_OF_ADDRESS, requests = new,
                    "requests waited for the client's share of payload memory; `limits.client_memory` raises it"
                );
            }
        }
    }

    fn try_admit(&self, host: IpAddr) -> Result<(u64, Memory, oneshot::Receiver<String>), Limit> {
        let limits = self.limits();
        let mut tables = self.lock();
        let of_address = tables.addresses.get(&host).map(|a| a.counts).unwrap_or_default();
        let taken = |limit| match limit {
            Limit::All => tables.all.open,
            Limit::Address => of_address.open,
            Limit::Newcomers => tables.all.new,
            Limit::NewcomersOfAddress => of_address.new,
            Limit::Clients => 0,
        };
        if let Some(limit) = Limit::BOUNDS.into_iter().find(|l| taken(*l) >= limits.by(*l)) {
            return Err(limit);
        }
        let Tables { all, addresses, open, next, .. } = &mut *tables;
        let address = addresses.entry(host).or_insert_with(|| Address {
            counts: Counts::default(),
            memory: Memory {
                payload: self.payload.of_one_client(),
                recvs: self.recvs.of_one_client(),
            },
            told: 0,
        });
        for counts in [all, &mut address.counts] {
            counts.open += 1;
            counts.new += 1;
        }
        let (entry, cut) = Entry::new(host);
        *next += 1;
        open.insert(*next, entry);
        Ok((*next, address.memory.clone(), cut))
    }

    fn note(&self, limit: Limit, peer: SocketAddr, remedy: Cow<'static, str>) {
        let refused = self.refused[limit as usize].fetch_add(1, Ordering::Relaxed) + 1;
        count::limit_met(limit.name());
        let (user, share) = (PeerText::default(), PeerText::default());
        let rule = limit.name();
        if !refused::record(Refused { peer: peer.ip(), user, share, rule, remedy: remedy.clone() })
        {
            return;
        }
        let (open, limits) = (self.lock().all.open, self.limits().by(limit));
        if limit == Limit::Clients {
            tracing::warn!(%peer, refused, limit = rule, "connection refused: no share admits this address; {remedy}");
            return;
        }
        tracing::warn!(
            %peer, open, refused, limit = rule, limits,
            "connection refused: the limit is reached, and no connection is idle enough to be closed for it; {remedy}"
        );
    }
}

impl AdmissionPermit {
    /// Pool for the payload of this connection.
    pub fn payload(&self) -> &Pool {
        &self.memory.payload
    }

    /// Pool for data that is read from TCP.
    pub fn recvs(&self) -> &Pool {
        &self.memory.recvs
    }

    /// Receives the reason if the connection must be closed at once. The receiver is returned once; later calls return one that
    /// never becomes ready.
    pub fn cut(&mut self) -> oneshot::Receiver<String> {
        self.cut.take().unwrap_or_else(|| oneshot::channel().1)
    }

    /// Marks the connection as set up, so that it can be evicted when idle. `holds` returns whether its client would lose state.
    pub fn serving(&self, info: Arc<Info>, holds: impl Fn() -> bool + Send + Sync + 'static) {
        if let Some(entry) = self.admission.lock().open.get_mut(&self.id) {
            entry.serving(info, Arc::new(holds));
        }
    }

    /// Marks the client as known: it has introduced itself, or needs no introduction.
    pub fn established(&mut self) {
        let mut tables = self.admission.lock();
        let Tables { all, addresses, open, .. } = &mut *tables;
        let Some(entry) = open.get_mut(&self.id).filter(|e| e.is_new) else { return };
        entry.is_new = false;
        all.new -= 1;
        if let Some(address) = addresses.get_mut(&entry.host) {
            address.counts.new -= 1;
        }
    }
}

impl Tables {
    /// Removes a connection from all counts. Returns `None` if it was evicted before.
    fn remove(&mut self, id: u64) -> Option<Entry> {
        let entry = self.open.remove(&id)?;
        let new = usize::from(entry.is_new);
        self.all.open -= 1;
        self.all.new -= new;
        if let Some(address) = self.addresses.get_mut(&entry.host) {
            address.counts.open -= 1;
            address.counts.new -= new;
            if address.counts.open == 0 {
                self.addresses.remove(&entry.host);
            }
        }
        Some(entry)
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        let mut tables = self.admission.lock();
        if tables.remove(self.id).is_none() {
            tables.closing -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, n], 1))
    }

    fn refusal(a: &Admission, from: u8) -> Option<Limit> {
        a.try_admit(peer(from).ip()).err().map(|limit| a.limits().named(limit))
    }

    fn limits(all: usize) -> ConnectionLimits {
        ConnectionLimits {
            all,
            is_short: false,
            address: None,
            introduction: Duration::from_secs(45),
        }
    }

    fn admission(all: usize) -> Arc<Admission> {
        let pool = || Pool::new(iobuf::PoolLimits { buffers_max: [4; 3] });
        Admission::new(limits(all), pool(), pool())
    }

    /// Returns newcomers, each from a different address.
    fn come(a: &Arc<Admission>, from: std::ops::Range<u8>) -> Vec<AdmissionPermit> {
        from.map(|n| a.admit(peer(n)).unwrap()).collect()
    }

    #[test]
    fn remedies_for_strangers_say_why() {
        let cidr = |addr: [u8; 4], bits| Cidr { addr: addr.into(), bits };
        let near = [cidr([10, 0, 0, 1], 24)];
        let far = admitting(Some(&near), [192, 0, 2, 9].into());
        assert!(far.starts_with("this host is attached to no network of 192.0.2.9"), "{far}");
        assert!(far.contains("from: 10.0.0.0/24") && far.contains("from: 192.0.2.9"), "{far}");
        for (near, peer) in [(Some(&near[..]), [10, 0, 0, 9]), (None, [192, 0, 2, 9])] {
            let all_have_lists = admitting(near, peer.into());
            assert!(all_have_lists.contains("each has a list"), "{all_have_lists}");
            assert!(!all_have_lists.contains("no network"), "{all_have_lists}");
        }
    }

    #[test]
    fn each_limit_is_met_and_left_again() {
        let a = admission(100);
        let mut places = come(&a, 0..50);
        assert!(a.admit(peer(50)).is_none(), "half of the places are not for newcomers");
        for place in &mut places {
            place.established();
            place.established();
        }
        let mut others = come(&a, 50..100);
        assert!(a.admit(peer(100)).is_none(), "all places are taken");
        others.iter_mut().for_each(AdmissionPermit::established);
        drop((places, others));
        let tables = a.lock();
        assert_eq!((tables.all.open, tables.all.new), (0, 0));
        assert!(tables.addresses.is_empty());
    }

    #[test]
    fn the_limit_changes_while_connections_are_open() {
        let a = admission(3);
        let places = come(&a, 0..3);
        a.set(limits(2));
        assert_eq!(refusal(&a, 9), Some(Limit::All));
        a.set(limits(4));
        drop((a.admit(peer(3)).unwrap(), places));
        a.set(limits(1));
        let _one = a.admit(peer(1)).unwrap();
        assert!(a.admit(peer(2)).is_none());
    }

    #[test]
    fn one_address_cannot_take_all_unless_there_are_few() {
        let a = admission(100);
        let mut places: Vec<_> = (0..25).map(|_| a.admit(peer(1)).unwrap()).collect();
        assert_eq!(refusal(&a, 1), Some(Limit::NewcomersOfAddress));
        assert!(a.admit(peer(2)).is_some());
        places.iter_mut().for_each(AdmissionPermit::established);
        while places.len() < 75 {
            let mut place = a.admit(peer(1)).unwrap();
            place.established();
            places.push(place);
        }
        assert_eq!(refusal(&a, 1), Some(Limit::Address));
        a.set(ConnectionLimits { address: Some(10), ..limits(100) });
        assert_eq!(refusal(&a, 1), Some(Limit::Address), "by the configuration");
        let few = admission(3);
        let places: Vec<_> = (0..3).map(|_| few.admit(peer(1)).unwrap()).collect();
        assert_eq!(refusal(&few, 1), Some(Limit::All));
        drop(places);
    }

    #[test]
    fn connections_of_one_address_share_its_payload_memory() {
        let a = admission(100);
        a.payload.set_share(iobuf::PoolLimits { buffers_max: [3; 3] });
        let (one, two, other) =
            (a.admit(peer(1)).unwrap(), a.admit(peer(1)).unwrap(), a.admit(peer(2)).unwrap());
        let held: Vec<_> = [&one, &two, &one].map(|p| p.payload().try_get(1).unwrap()).into();
        assert!(two.payload().try_get(1).is_none());
        assert!(other.payload().try_get(1).is_some());
        // A client that reconnects is the same client as long as one of its connections is open.
        drop(one);
        let again = a.admit(peer(1)).unwrap();
        assert!(again.payload().try_get(1).is_none());
        drop(held);
        assert!(again.payload().try_get(1).is_some());
    }
}
