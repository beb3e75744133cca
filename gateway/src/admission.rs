//! Which connections are let in: limits on all connections, on those of one host, and on those whose clients have not introduced
//! themselves.
//!
//! *Operation.* A connection takes a place before anything is done for it ([`Admission::admit`]) and gives it back when its
//! [`AdmissionPermit`] is dropped, however its task ends. Until [`AdmissionPermit::established`] it counts among the newcomers, of
//! which there are few, so that those who connect and say nothing cannot keep others out; and it ends when it remains one for too
//! long ([`Admission::introduction`]). At a limit, an idle connection gives way to the new one ([`give_way`]).
//!
//! *Memory.* All connections of one host take payload memory and receive buffers by one handle of each pool
//! ([`AdmissionPermit::payload`], [`AdmissionPermit::recvs`]), so that no client takes what the others need. A host is an IPv4
//! address or an IPv6 /64 ([`host_of`]).
//!
//! *Errors.* A refusal is counted by the limit that it met, kept and logged ([`refused`]).

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

/// Below so many connections in all, no share of them is kept for anybody.
const FEW: usize = 64;
/// Requests of a client wait for its own share of payload memory.
const MEMORY_OF_ADDRESS: &str = "memory-of-address";

/// A limit that was met.
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
    /// How many there are.
    const COUNT: usize = 5;
    /// Those that bound a number of connections, in the order in which they are met: a newcomer takes the place of a newcomer, of
    /// its own address first, before a client that is known loses one.
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
    /// It bounds connections whose clients have not introduced themselves.
    fn is_for_newcomers(self) -> bool {
        matches!(self, Self::Newcomers | Self::NewcomersOfAddress)
    }

    /// It bounds the connections of one host.
    fn is_of_address(self) -> bool {
        matches!(self, Self::Address | Self::NewcomersOfAddress)
    }

    /// What to change where the client is to be let in.
    fn remedy(self, limits: &ConnectionLimits) -> &'static str {
        match (self, limits.address) {
            (Self::Address, Some(_)) => "raise `limits.client_connections`",
            _ if limits.is_short => "raise `LimitNOFILE=` or `ulimit -Hn`",
            _ => "raise `connections`",
        }
    }
}

/// Returns the change by which a share admits this address beside its present clients. `near`: the networks whose clients need no
/// list, for a protocol with such networks.
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
        // A share without a list admits it.
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
    /// By number: oldest first.
    open: BTreeMap<u64, Entry>,
    next: u64,
    /// Those that gave way and are not closed yet.
    closing: usize,
    /// The last search for a connection that could give way that found none, by limit.
    in_vain: [Option<InVain>; Limit::COUNT],
}

/// A host that has connections.
struct Address {
    counts: Counts,
    memory: Memory,
    /// How many of its waits for its share of the pool were told.
    told: u64,
}

/// What the configuration says.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Connections of all clients.
    pub all: usize,
    /// They are fewer than `connections`, because this process may open few files.
    pub is_short: bool,
    /// Connections from one address; `None`: three quarters of all.
    pub address: Option<usize>,
    /// How long a newcomer may take.
    pub introduction: Duration,
}

impl ConnectionLimits {
    /// As these settings have it.
    pub(crate) fn of(settings: &Settings, descriptors: Descriptors) -> Self {
        let limits = &settings.limits;
        Self {
            all: descriptors.connections,
            is_short: descriptors.connections < settings.connections,
            address: limits.client_connections,
            introduction: limits.introduction,
        }
    }

    /// How many a limit allows. Half of the places are kept for those who are known, and a quarter for other addresses.
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

    /// The limit that a refusal names: where a share is as large as the whole, the whole.
    fn named(&self, limit: Limit) -> Limit {
        if self.by(limit) == self.all { Limit::All } else { limit }
    }
}

/// The limits and who is counted against them.
pub struct Admission {
    limits: RwLock<ConnectionLimits>,
    payload: Pool,
    recvs: Pool,
    tables: Mutex<Tables>,
    /// Refusals by each limit.
    refused: [AtomicU64; Limit::COUNT],
}

/// Where the memory of one host comes from.
#[derive(Clone)]
struct Memory {
    payload: Pool,
    recvs: Pool,
}

/// The place of one connection.
pub struct AdmissionPermit {
    admission: Arc<Admission>,
    id: u64,
    memory: Memory,
    cut: Option<oneshot::Receiver<String>>,
}

impl Admission {
    /// With these limits, for connections whose payload is in one pool, and what comes over TCP in another.
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

    /// With these limits from now on. Those who are there stay, also when they are more.
    pub fn set(&self, limits: ConnectionLimits) {
        *writing(&self.limits) = limits;
    }

    fn limits(&self) -> ConnectionLimits {
        *reading(&self.limits)
    }

    /// Connections that are let in.
    pub fn connections_max(&self) -> usize {
        self.limits().all
    }

    /// Connections that are open, or gave way and are not closed yet.
    pub fn connections(&self) -> usize {
        let tables = self.lock();
        tables.all.open + tables.closing
    }

    /// How long a newcomer may take.
    pub fn introduction(&self) -> Duration {
        self.limits().introduction
    }

    /// Room for one more connection, which an idle one may have to give up.
    pub fn admit(self: &Arc<Self>, peer: SocketAddr) -> Option<AdmissionPermit> {
        let host = host_of(peer.ip());
        let mut tried = self.try_admit(host);
        // One for each limit that may be met.
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

    /// A connection was closed as it came, because no share admits its address. `near`: the networks that need no list.
    pub fn refuse_stranger(&self, peer: SocketAddr, near: Option<&[Cidr]>) {
        self.note(Limit::Clients, peer, admitting(near, peer.ip()).into());
    }

    /// Connections that were refused so far.
    pub fn refusals(&self) -> u64 {
        self.refused.iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }

    /// Tells of those whose requests had to wait for their share of payload memory since it was asked last.
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
    /// Where the payload of this connection comes from.
    pub fn payload(&self) -> &Pool {
        &self.memory.payload
    }

    /// Where what comes over TCP is read to.
    pub fn recvs(&self) -> &Pool {
        &self.memory.recvs
    }

    /// Says why the connection has to be closed at once, when it does. Given once; never ready when asked again.
    pub fn cut(&mut self) -> oneshot::Receiver<String> {
        self.cut.take().unwrap_or_else(|| oneshot::channel().1)
    }

    /// The connection is set up, and may give way when it is idle. `holds`: its end would take something from its client.
    pub fn serving(&self, info: Arc<Info>, holds: impl Fn() -> bool + Send + Sync + 'static) {
        if let Some(entry) = self.admission.lock().open.get_mut(&self.id) {
            entry.serving(info, Arc::new(holds));
        }
    }

    /// The connection has shown who it is, or done what there is to be done before its first request.
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
    /// Takes a connection out of all counts. `None`: it gave way before.
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

    /// Newcomers, each from an address of its own.
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
        // Who comes back is the same client as long as a connection of it is there.
        drop(one);
        let again = a.admit(peer(1)).unwrap();
        assert!(again.payload().try_get(1).is_none());
        drop(held);
        assert!(again.payload().try_get(1).is_some());
    }
}
