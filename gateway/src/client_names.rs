//! Looks up the names of clients, for shares whose `clients` contain hosts, patterns or netgroups.
//!
//! *Operation.* Follows mountd(8). A host name means the addresses that it resolves to. The name of a client is the name of its
//! address, if that name resolves to the same address again; patterns and netgroups are compared with it. The lookup of a client
//! happens before its connection is served, lookups of host names at the start and at a reload; [`keep`] repeats lookups that are
//! [`FRESH`] old. Calls read the results from a table ([`vfs::client_names`]).
//!
//! *Memory.* The table is bounded. At most [`TURNS`] threads perform lookups for new connections, as many for host names and
//! connected clients, and [`DATAGRAM_TURNS`] for datagrams, whose sender addresses can be forged. In each of these groups a host
//! has one lookup at a time, and its others wait for that: a host whose DNS zone does not answer occupies one thread.
//!
//! *Errors.* A client without an answer within [`PATIENCE`] has no known name: the limit `client-names` counts it, and shares
//! refuse the access that its name might take away.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use config::{Settings, Whom};
use futures_util::future::join_all;
use mutex::locked;
use rdma_transport::channel::host_of;
use rdma_transport::count;
use smbd_core::server::Server;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::MissedTickBehavior;
use vfs::client_names::{ClientFacts, ClientNames};
use vfs::hosts;

use crate::shutdown::Connections;

/// Name of the limit on lookups.
pub(crate) const LIMIT: &str = "client-names";
/// How long a connection waits for its client's name.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How long the start, or a reload, waits for host names and for connected clients.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// Age at which an answer is refreshed.
const FRESH: Duration = Duration::from_secs(300);
/// Age at which an answer is refreshed that found no name of a client, or no address of a host.
const FRESH_NONE: Duration = Duration::from_secs(30);
/// Time between two searches for answers to refresh.
const BEAT: Duration = Duration::from_secs(15);
/// Lookup threads for connections, and as many for refreshed answers.
const TURNS: usize = 8;
/// Lookup threads for datagrams.
const DATAGRAM_TURNS: usize = 2;

/// The functions that query the name service. Each may block.
#[derive(Clone, Copy)]
pub(crate) struct Service {
    pub(crate) addresses: fn(&str) -> io::Result<Vec<IpAddr>>,
    pub(crate) names: fn(IpAddr) -> io::Result<Vec<String>>,
    pub(crate) in_netgroup: fn(&str, &[&str]) -> Option<bool>,
    pub(crate) own_domain: fn() -> Option<String>,
}

const HOST: Service = Service {
    addresses: hosts::addresses,
    names: hosts::names_that_lead_back,
    in_netgroup: hosts::in_netgroup,
    own_domain: hosts::own_domain,
};

/// Hosts, netgroups and patterns in the shares of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Named {
    hosts: BTreeSet<Arc<str>>,
    netgroups: BTreeSet<Arc<str>>,
    patterns: bool,
}

impl Named {
    fn of(settings: &Settings) -> Self {
        let mut named = Self::default();
        for client in settings.shares.iter().filter_map(|s| s.clients.as_ref()).flatten() {
            match &client.from {
                Whom::Range(_) => {}
                Whom::Host(name) => drop(named.hosts.insert(name.as_str().into())),
                Whom::Netgroup(name) => drop(named.netgroups.insert(name.as_str().into())),
                Whom::Pattern(_) => named.patterns = true,
            }
        }
        named
    }

    /// Returns whether shares need the names of clients.
    fn asks_clients(&self) -> bool {
        self.patterns || !self.netgroups.is_empty()
    }
}

/// The cause of a lookup, which decides the group of threads and the queue that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Why {
    Connection,
    Datagram,
    /// The configuration, or an outdated answer about a connected client.
    Kept,
}

/// The key of a queue of lookups, of which one runs at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Asked {
    /// A client, keyed by host. Datagrams have separate queues, so that forged ones do not delay the real client.
    Client(IpAddr, Why),
    Host(Arc<str>),
}

/// Serializes the lookups of one host.
#[derive(Debug)]
struct Queue {
    turn: Arc<Semaphore>,
    /// The address of the last lookup, and when it ended.
    last: Mutex<Option<(IpAddr, Instant)>>,
}

impl Queue {
    fn last(&self) -> Option<(IpAddr, Instant)> {
        *locked(&self.last)
    }
}

/// Holds the queue of one host: no other lookup of this host runs until it is dropped.
struct Alone {
    queue: Arc<Queue>,
    _turn: OwnedSemaphorePermit,
}

impl Alone {
    /// Records that the lookup of this address has ended, with or without an answer.
    fn has_ended(&self, ip: IpAddr) {
        let mut last = locked(&self.queue.last);
        *last = Some((ip, Instant::now()));
    }
}

pub(crate) struct Lookup {
    known: Arc<ClientNames>,
    named: Mutex<Arc<Named>>,
    under_way: Mutex<HashMap<Asked, Weak<Queue>>>,
    turns: Arc<Semaphore>,
    datagram_turns: Arc<Semaphore>,
    kept_turns: Arc<Semaphore>,
    service: Service,
}

impl Lookup {
    /// Stores the results in this table, which shares read.
    pub(crate) fn new(known: Arc<ClientNames>) -> Self {
        Self::by(known, HOST)
    }

    fn by(known: Arc<ClientNames>, service: Service) -> Self {
        Self {
            known,
            named: Mutex::default(),
            under_way: Mutex::default(),
            turns: Arc::new(Semaphore::new(TURNS)),
            datagram_turns: Arc::new(Semaphore::new(DATAGRAM_TURNS)),
            kept_turns: Arc::new(Semaphore::new(TURNS)),
            service,
        }
    }

    fn named(&self) -> Arc<Named> {
        locked(&self.named).clone()
    }

    /// Looks up hosts that these settings name and the current ones do not, and connected clients whose names become necessary,
    /// within a bounded time. Shares may use the new names from then on; names in the current settings are refreshed as well until
    /// [`Self::settle`].
    pub(crate) async fn prepare(
        &self,
        settings: &Settings,
        connected: impl FnOnce() -> HashSet<IpAddr>,
    ) {
        let (before, next) = (self.named(), Named::of(settings));
        if *before == next {
            return;
        }
        let both = Named {
            hosts: before.hosts.union(&next.hosts).cloned().collect(),
            netgroups: before.netgroups.union(&next.netgroups).cloned().collect(),
            patterns: before.patterns || next.patterns,
        };
        *locked(&self.named) = Arc::new(both);
        let hosts: Vec<_> = next.hosts.difference(&before.hosts).cloned().collect();
        // Lookups of clients that connect from now on use the new settings.
        let connected = connected();
        let clients: Vec<_> = connected.into_iter().filter(|ip| self.is_asked_for(*ip)).collect();
        let all = async {
            for some in hosts.chunks(TURNS) {
                join_all(some.iter().map(|name| self.host(name.clone()))).await;
            }
            for some in clients.chunks(TURNS) {
                join_all(some.iter().map(|ip| self.ask_client(*ip, Why::Kept))).await;
            }
        };
        if tokio::time::timeout(START_PATIENCE, all).await.is_err() {
            count::limit_met(LIMIT);
            tracing::warn!(
                limit = LIMIT,
                "hosts that `clients` names are not looked up yet: the name service of this host does not answer in time"
            );
        }
    }

    /// Puts these settings into force, and stops lookups that only other settings need.
    pub(crate) fn settle(&self, settings: &Settings) {
        *locked(&self.named) = Arc::new(Named::of(settings));
    }

    /// Looks up a client, unless a recent answer exists or no share needs its name. Afterwards the table has all that the name
    /// service knows.
    pub(crate) async fn client(&self, ip: IpAddr, why: Why) {
        if self.is_asked_for(ip) {
            self.ask_client(ip.to_canonical(), why).await;
        }
    }

    /// Returns whether some share needs the client's name and the last lookup is too old or does not cover all netgroups.
    pub(crate) fn is_asked_for(&self, ip: IpAddr) -> bool {
        let (named, ip) = (self.named(), ip.to_canonical());
        named.asks_clients()
            && !(is_fresh(self.known.of_client(ip))
                && named.netgroups.iter().all(|group| self.known.has_asked(ip, group)))
    }

    /// Looks up a client. Returns true if the result differs from the last one.
    async fn ask_client(&self, ip: IpAddr, why: Why) -> bool {
        let (named, service, began) = (self.named(), self.service, Instant::now());
        let work = move || facts(service, &named, ip);
        let answer = async {
            let alone = self.alone(Asked::Client(host_of(ip), why)).await?;
            if alone.queue.last().is_some_and(|(last, at)| last == ip && at >= began) {
                // Another task looked it up meanwhile, and its result is in the table.
                return Ok(None);
            }
            self.ask(why, alone, work).await.map(Some)
        };
        match in_time(answer).await {
            Ok(Some((Ok(facts), alone))) => {
                let is_new = self.known.set_client(ip, facts, Instant::now());
                alone.has_ended(ip);
                is_new
            }
            Ok(Some((Err(error), alone))) => {
                alone.has_ended(ip);
                tracing::info!(%ip, %error, "the name of a client could not be looked up");
                false
            }
            Ok(None) => false,
            Err(error) => {
                tracing::info!(%ip, %error, "the name of a client could not be looked up");
                false
            }
        }
    }

    /// Looks up a host. Returns true if its addresses have changed.
    async fn host(&self, name: Arc<str>) -> bool {
        let (addresses, asked) = (self.service.addresses, name.clone());
        let answer = async {
            let alone = self.alone(Asked::Host(name.clone())).await?;
            self.ask(Why::Kept, alone, move || addresses(&asked)).await
        };
        match in_time(answer).await.and_then(|(found, _)| found) {
            Ok(found) => {
                if found.is_empty() {
                    tracing::info!(host = &*name, "a host that `clients` names has no address");
                }
                let is_new = self.known.of_host(&name).is_none_or(|(_, before)| before != found);
                self.known.set_host(name, found, Instant::now());
                is_new
            }
            Err(error) => {
                tracing::warn!(host = &*name, %error, "a host that `clients` names could not be looked up");
                false
            }
        }
    }

    /// Waits until no other lookup with this key runs.
    async fn alone(&self, asked: Asked) -> io::Result<Alone> {
        let queue = {
            let mut all = locked(&self.under_way);
            all.retain(|_, queue| queue.strong_count() > 0);
            let entry = all.entry(asked).or_default();
            entry.upgrade().unwrap_or_else(|| {
                let turn = Arc::new(Semaphore::new(1));
                let queue = Arc::new(Queue { turn, last: Mutex::default() });
                *entry = Arc::downgrade(&queue);
                queue
            })
        };
        let turn = queue.turn.clone().acquire_owned().await.map_err(io::Error::other)?;
        Ok(Alone { queue, _turn: turn })
    }

    /// Runs the work on a thread once one is free. If the caller gives up, the running thread still occupies its place, and the
    /// only one of its host.
    async fn ask<T: Send + 'static>(
        &self,
        why: Why,
        alone: Alone,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<(io::Result<T>, Alone)> {
        let turns = match why {
            Why::Connection => &self.turns,
            Why::Datagram => &self.datagram_turns,
            Why::Kept => &self.kept_turns,
        };
        let turn = turns.clone().acquire_owned().await.map_err(io::Error::other)?;
        by_thread(turn, move || (work(), alone))?.await.map_err(io::Error::other)
    }

    /// Refreshes old answers about hosts and connected clients, and drops other old answers. Returns true if a result has changed.
    async fn refresh(&self, connected: &HashSet<IpAddr>) -> bool {
        let named = self.named();
        self.known.retain(|name| named.hosts.contains(name), Instant::now());
        let of_host = |name: &str| {
            self.known.of_host(name).map(|(at, addresses)| (at, !addresses.is_empty()))
        };
        let hosts: Vec<_> = named.hosts.iter().filter(|name| !is_fresh(of_host(name))).collect();
        let clients: Vec<_> = connected.iter().filter(|ip| self.is_asked_for(**ip)).collect();
        let mut is_new = false;
        // These lookups do not use the threads for new connections.
        for some in hosts.chunks(TURNS) {
            let asked = some.iter().map(|name| self.host((*name).clone()));
            is_new |= join_all(asked).await.into_iter().any(|is_new| is_new);
        }
        for some in clients.chunks(TURNS) {
            let asked = some.iter().map(|ip| self.ask_client(**ip, Why::Kept));
            is_new |= join_all(asked).await.into_iter().any(|is_new| is_new);
        }
        is_new
    }
}

/// Refreshes old answers for as long as the gateway serves. When a client's name changes, SMB sessions keep the access that the new
/// name would be granted, as after a reload; NFS checks each call anyway.
pub(crate) async fn keep(lookup: Arc<Lookup>, connections: Arc<Connections>, smb: Server) {
    let mut beats = tokio::time::interval(BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beats.tick().await;
        if lookup.refresh(&connections.peers()).await {
            let taken = smb.reauthorize().await;
            tracing::info!(
                sessions = taken.sessions,
                trees = taken.trees,
                "the addresses of the names in `clients` have changed"
            );
        }
    }
}

/// Looks up the names in these settings and one client, on a separate runtime. Blocks for a bounded time.
pub(crate) fn look_up(
    settings: &Settings,
    known: Arc<ClientNames>,
    client: Option<IpAddr>,
) -> Result<(), String> {
    if Named::of(settings) == Named::default() {
        return Ok(());
    }
    let settings = settings.clone();
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        runtime.block_on(async {
            let lookup = Lookup::new(known);
            lookup.prepare(&settings, HashSet::new).await;
            if let Some(ip) = client {
                lookup.client(ip, Why::Connection).await;
            }
        });
        Ok::<(), io::Error>(())
    };
    let done = thread::spawn(work).join();
    let done = done.unwrap_or_else(|_| Err(io::Error::other("the thread panicked")));
    done.map_err(|e| format!("names of clients could not be looked up: {e}"))
}

/// Returns hosts in these settings without an address in the name service. Blocks for a bounded time.
pub(crate) fn missing(settings: &Settings) -> Result<Vec<Arc<str>>, String> {
    let (known, named) = (Arc::new(ClientNames::default()), Named::of(settings));
    look_up(settings, known.clone(), None)?;
    let is_missing =
        |name: &Arc<str>| known.of_host(name).is_none_or(|(_, addresses)| addresses.is_empty());
    Ok(named.hosts.into_iter().filter(is_missing).collect())
}

/// Queries the name service for a client. Blocks.
fn facts(service: Service, named: &Named, ip: IpAddr) -> io::Result<ClientFacts> {
    let names = (service.names)(ip)?;
    let text = ip.to_string();
    let own = if named.netgroups.is_empty() { None } else { (service.own_domain)() };
    // Like mountd, compare the name, the name without its domain, and the address. But a host of another domain does not match a
    // netgroup's short name.
    let short = |name: &String| {
        let (first, domain) = name.trim_end_matches('.').split_once('.')?;
        own.as_ref().filter(|own| domain.eq_ignore_ascii_case(own)).map(|_| first.to_owned())
    };
    let short: Vec<String> = names.iter().filter_map(short).collect();
    let all = names.iter().chain(&short).map(String::as_str).chain([text.as_str()]);
    let all: Vec<&str> = all.collect();
    let is_in = |group: &Arc<str>| (group.clone(), (service.in_netgroup)(group, &all));
    let netgroups: Vec<_> = named.netgroups.iter().map(is_in).collect();
    for (netgroup, _) in netgroups.iter().filter(|(_, is_in)| is_in.is_none()) {
        tracing::info!(%ip, %netgroup, "the name service does not know this netgroup, or does not answer");
    }
    Ok(ClientFacts { names, netgroups })
}

/// Waits for an answer, at most [`PATIENCE`].
async fn in_time<T>(answer: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|_| {
        count::limit_met(LIMIT);
        let why = format!("no answer within {} s (`{LIMIT}`)", PATIENCE.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    })
}

fn is_fresh(told: Option<(Instant, bool)>) -> bool {
    told.is_some_and(|(at, some)| at.elapsed() < if some { FRESH } else { FRESH_NONE })
}

/// Runs work on a dedicated thread, because a runtime does not shut down before its own blocking threads have ended.
fn by_thread<T: Send + 'static>(
    turn: OwnedSemaphorePermit,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (tell, told) = oneshot::channel();
    thread::Builder::new().name("client-names".into()).spawn(move || {
        let answer = work();
        drop(turn);
        // The caller may have stopped waiting.
        let _ = tell.send(answer);
    })?;
    Ok(told)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use vfs::client_names::{HostName, NameKind};

    use super::*;

    const WS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 8));

    /// A name service that knows `ws.lab`, which is in the netgroup `hosts` with its short name.
    const KNOWS: Service = Service {
        addresses: |name| Ok(if name == "ws.lab" { vec![WS] } else { vec![] }),
        names: |ip| Ok(if ip == WS { vec!["ws.lab".into()] } else { vec![] }),
        in_netgroup: |group, host| Some(group == "hosts" && host.contains(&"ws")),
        own_domain: || Some("LAB".into()),
    };

    fn settings(clients: &[&str]) -> Settings {
        let mut share = config::Share::new("team", config::Source::Memory);
        share.clients = Some(clients.iter().map(|c| c.parse().unwrap()).collect());
        Settings { shares: vec![share], ..Settings::default() }
    }

    fn has(lookup: &Lookup, kind: NameKind, name: &str, ip: IpAddr) -> Option<bool> {
        let name = HostName { name: name.into(), kind, known: lookup.known.clone() };
        name.has(ip, Instant::now())
    }

    use NameKind::{Host, Netgroup, Pattern};

    #[tokio::test]
    async fn hosts_are_known_from_the_start_and_clients_when_they_come() {
        let lookup = Lookup::by(Arc::default(), KNOWS);
        lookup.prepare(&settings(&["ws.lab", "*.lab", "@hosts"]), HashSet::new).await;
        assert_eq!(has(&lookup, Host, "ws.lab", WS), Some(true));
        assert_eq!(has(&lookup, Host, "ws.lab", OTHER), Some(false));
        assert_eq!(has(&lookup, Pattern, "*.lab", WS), None);
        for ip in [WS, OTHER] {
            lookup.client(ip, Why::Connection).await;
            assert_eq!(has(&lookup, Pattern, "*.lab", ip), Some(ip == WS));
            assert_eq!(has(&lookup, Netgroup, "hosts", ip), Some(ip == WS));
        }
        // A reload that adds a netgroup looks up connected clients.
        lookup.prepare(&settings(&["*.lab", "@others"]), || HashSet::from([WS])).await;
        assert_eq!(has(&lookup, Netgroup, "others", WS), Some(false));
    }

    #[tokio::test]
    async fn who_is_connected_is_asked_for_the_first_pattern_of_a_reload() {
        let lookup = Lookup::by(Arc::default(), KNOWS);
        lookup.prepare(&settings(&["10.0.0.0/8"]), HashSet::new).await;
        lookup.client(WS, Why::Connection).await;
        lookup.prepare(&settings(&["*.lab"]), || HashSet::from([WS, OTHER])).await;
        assert_eq!(has(&lookup, Pattern, "*.lab", WS), Some(true));
        assert_eq!(has(&lookup, Pattern, "*.lab", OTHER), Some(false));
        // A new netgroup also requires a lookup of clients whose recent answer does not cover it.
        lookup.prepare(&settings(&["@hosts"]), || HashSet::from([WS])).await;
        assert_eq!(has(&lookup, Netgroup, "hosts", WS), Some(true));
        lookup.settle(&settings(&["*.lab"]));
        assert!(!lookup.is_asked_for(WS));
    }

    #[tokio::test]
    async fn a_short_name_is_that_of_a_host_of_this_domain() {
        let foreign = Service { names: |_| Ok(vec!["ws.elsewhere".into()]), ..KNOWS };
        let none = Service { own_domain: || None, ..KNOWS };
        for (service, is_in) in [(KNOWS, true), (foreign, false), (none, false)] {
            let lookup = Lookup::by(Arc::default(), service);
            lookup.prepare(&settings(&["@hosts"]), || HashSet::from([WS])).await;
            assert_eq!(has(&lookup, Netgroup, "hosts", WS), Some(is_in));
        }
    }

    #[tokio::test]
    async fn a_netgroup_that_cannot_be_asked_is_unknown_and_asked_for_again() {
        let away = Service { in_netgroup: |_, _| None, ..KNOWS };
        let lookup = Lookup::by(Arc::default(), away);
        lookup.prepare(&settings(&["@hosts", "*.lab"]), || HashSet::from([WS])).await;
        assert_eq!(has(&lookup, Netgroup, "hosts", WS), None);
        assert_eq!(has(&lookup, Pattern, "*.lab", WS), Some(true));
        assert_eq!(lookup.known.of_client(WS).map(|(_, is_whole)| is_whole), Some(false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_whose_zone_gives_no_answer_takes_one_turn() {
        static ASKING: AtomicUsize = AtomicUsize::new(0);
        let silent = Service {
            names: |ip| match ip {
                WS => (KNOWS.names)(ip),
                _ => {
                    ASKING.fetch_add(1, Ordering::Relaxed);
                    loop {
                        thread::park();
                    }
                }
            },
            ..KNOWS
        };
        let lookup = Lookup::by(Arc::default(), silent);
        lookup.prepare(&settings(&["*.lab"]), HashSet::new).await;
        // Twice, because an abandoned lookup still occupies a thread.
        for _ in 0..2 {
            let of_one = (0..20).map(|n| format!("2001:db8::{n}").parse().unwrap());
            join_all(of_one.map(|ip| lookup.client(ip, Why::Connection))).await;
        }
        assert_eq!(lookup.turns.available_permits(), TURNS - 1);
        // The paused clock advances whenever the runtime is idle, and does not wait for the thread.
        let began = Instant::now();
        while ASKING.load(Ordering::Relaxed) == 0 && began.elapsed() < Duration::from_secs(60) {
            thread::yield_now();
        }
        assert_eq!(ASKING.load(Ordering::Relaxed), 1);
        // It occupies no thread of connected clients or of other new ones.
        assert!(!lookup.refresh(&HashSet::from([OTHER])).await);
        assert_eq!(lookup.turns.available_permits(), TURNS - 1);
        assert_eq!(lookup.kept_turns.available_permits(), TURNS - 1);
        tokio::time::resume();
        lookup.ask_client(WS, Why::Connection).await;
        assert_eq!(has(&lookup, Pattern, "*.lab", WS), Some(true));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn those_of_one_host_wait_for_one_answer() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        static GO_ON: Semaphore = Semaphore::const_new(0);
        let fails = Service {
            names: |_| {
                ASKED.fetch_add(1, Ordering::Relaxed);
                while GO_ON.try_acquire().is_err() {
                    thread::yield_now();
                }
                Err(io::ErrorKind::TimedOut.into())
            },
            ..KNOWS
        };
        let lookup = Lookup::by(Arc::default(), fails);
        lookup.prepare(&settings(&["*.lab"]), HashSet::new).await;
        let waiting = join_all((0..20).map(|_| lookup.client(WS, Why::Connection)));
        let let_go = async {
            while ASKED.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            GO_ON.add_permits(1);
        };
        tokio::join!(waiting, let_go);
        assert_eq!(ASKED.load(Ordering::Relaxed), 1, "an answer that fails is one for all of them");
    }

    #[tokio::test]
    async fn nobody_is_asked_for_where_ranges_alone_are_named_and_nobody_twice() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let counts = Service {
            names: |ip| {
                ASKED.fetch_add(1, Ordering::Relaxed);
                (KNOWS.names)(ip)
            },
            ..KNOWS
        };
        let lookup = Lookup::by(Arc::default(), counts);
        lookup.prepare(&settings(&["10.0.0.0/8", "ws.lab"]), HashSet::new).await;
        lookup.client(WS, Why::Connection).await;
        assert_eq!(ASKED.load(Ordering::Relaxed), 0);
        lookup.prepare(&settings(&["*.lab"]), HashSet::new).await;
        for _ in 0..3 {
            lookup.client(WS, Why::Connection).await;
        }
        assert_eq!(ASKED.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_service_that_does_not_answer_is_waited_for_a_while_and_by_few_threads() {
        static ASKING: AtomicUsize = AtomicUsize::new(0);
        let silent = Service {
            names: |_| {
                ASKING.fetch_add(1, Ordering::Relaxed);
                loop {
                    thread::park();
                }
            },
            ..KNOWS
        };
        let lookup = Lookup::by(Arc::default(), silent);
        lookup.prepare(&settings(&["*.lab"]), HashSet::new).await;
        let many = (0..20u8).map(|n| IpAddr::from([198, 51, 100, n]));
        let began = tokio::time::Instant::now();
        join_all(many.map(|ip| lookup.client(ip, Why::Connection))).await;
        assert_eq!(began.elapsed(), PATIENCE);
        assert!(ASKING.load(Ordering::Relaxed) <= TURNS);
        assert_eq!(has(&lookup, Pattern, "*.lab", WS), None);
        let met = count::limits_met();
        assert!(met.iter().any(|(limit, n)| *limit == LIMIT && *n >= 20));
        // Datagrams use separate threads, as connections do.
        assert_eq!(lookup.datagram_turns.available_permits(), DATAGRAM_TURNS);
    }

    #[tokio::test]
    async fn what_the_name_service_cannot_tell_stays_as_it_was() {
        static IS_AWAY: AtomicUsize = AtomicUsize::new(0);
        let fails = Service {
            names: |ip| match IS_AWAY.load(Ordering::Relaxed) {
                0 => (KNOWS.names)(ip),
                1 => Err(io::ErrorKind::TimedOut.into()),
                _ => Ok(vec!["other.org".into()]),
            },
            ..KNOWS
        };
        let lookup = Lookup::by(Arc::default(), fails);
        lookup.prepare(&settings(&["*.lab"]), HashSet::new).await;
        assert!(lookup.ask_client(WS, Why::Connection).await);
        IS_AWAY.store(1, Ordering::Relaxed);
        assert!(!lookup.ask_client(WS, Why::Connection).await);
        assert_eq!(has(&lookup, Pattern, "*.lab", WS), Some(true));
        IS_AWAY.store(2, Ordering::Relaxed);
        assert!(lookup.ask_client(WS, Why::Connection).await, "it is another");
        assert_eq!(has(&lookup, Pattern, "*.lab", WS), Some(false));
        assert!(!lookup.refresh(&HashSet::from([WS])).await, "what is fresh is not asked for");
    }
}
