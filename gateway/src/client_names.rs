//! Looks up who clients are by name, for shares whose `clients` name hosts, patterns or netgroups.
//!
//! *Operation.* As mountd(8) does it. A host name means the addresses that it has. A client's own name is that of its address,
//! where it leads back to it; patterns and netgroups are compared with that. A client is looked up before its connection is
//! served, host names at the start and at a reload; [`keep`] asks again what is [`FRESH`] old. What calls look at is a table
//! ([`vfs::client_names`]).
//!
//! *Memory.* That table is bounded. At most [`TURNS`] threads ask for connections, as many for host names and clients that are
//! connected already, and [`DATAGRAM_TURNS`] for datagrams, whose senders may be others than they say. Of each host one look-up is
//! under way in each of these, for which its others wait: one whose zone gives no answer takes one turn.
//!
//! *Errors.* Who has no answer within [`PATIENCE`] is not known by name: `client-names` counts it, and the shares refuse what the
//! name might have taken away.

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

/// The limit that a look-up meets.
pub(crate) const LIMIT: &str = "client-names";
/// How long a connection waits for its client's name.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How long the start, or a reload, waits for host names and for clients who are there.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// How old an answer is when it is asked for again.
const FRESH: Duration = Duration::from_secs(300);
/// How old one is that says that a client has no name, or a host no address.
const FRESH_NONE: Duration = Duration::from_secs(30);
/// Between two looks for what is to be asked again.
const BEAT: Duration = Duration::from_secs(15);
/// Threads that ask at once because of connections, and as many for what is asked again.
const TURNS: usize = 8;
/// Threads that ask at once because of datagrams.
const DATAGRAM_TURNS: usize = 2;

/// What asks. Each may wait.
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

/// What the shares of a configuration name.
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

    /// Clients are to be looked up by their addresses.
    fn asks_clients(&self) -> bool {
        self.patterns || !self.netgroups.is_empty()
    }
}

/// Why somebody is looked up, and so who waits for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Why {
    /// A new connection.
    Connection,
    /// A datagram.
    Datagram,
    /// The configuration, or that an answer about somebody who is connected is old.
    Kept,
}

/// What one look-up at a time asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Asked {
    /// A client, by the address that its host counts by. Datagrams, which anybody may send under its address, do not delay it.
    Client(IpAddr, Why),
    Host(Arc<str>),
}

/// The look-up of one host, and those of it that wait.
#[derive(Debug)]
struct Queue {
    turn: Arc<Semaphore>,
    /// The address that was looked up last, and when that ended.
    last: Mutex<Option<(IpAddr, Instant)>>,
}

impl Queue {
    fn last(&self) -> Option<(IpAddr, Instant)> {
        *locked(&self.last)
    }
}

/// No other look-up of this host is under way while this is there.
struct Alone {
    queue: Arc<Queue>,
    _turn: OwnedSemaphorePermit,
}

impl Alone {
    /// The look-up of this address has ended, with or without an answer.
    fn has_ended(&self, ip: IpAddr) {
        let mut last = locked(&self.queue.last);
        *last = Some((ip, Instant::now()));
    }
}

/// Looks up hosts and clients.
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
    /// For the shares that ask this table.
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

    /// Looks up what these settings name and nothing did before, and who is connected and was not asked for that, within a time
    /// that has an end. Shares may ask for it from then on; what the shares in force name is asked for as well until
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
        // Who connects from here on is asked for all that.
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

    /// These settings are in force, and nothing asks for what others name.
    pub(crate) fn settle(&self, settings: &Settings) {
        *locked(&self.named) = Arc::new(Named::of(settings));
    }

    /// Looks up a client, unless that was done lately or nothing asks for its name. Afterwards the shares know what there is to
    /// know.
    pub(crate) async fn client(&self, ip: IpAddr, why: Why) {
        if self.is_asked_for(ip) {
            self.ask_client(ip.to_canonical(), why).await;
        }
    }

    /// A share asks who this is, and that was not looked up lately, or not for all of them.
    pub(crate) fn is_asked_for(&self, ip: IpAddr) -> bool {
        let (named, ip) = (self.named(), ip.to_canonical());
        named.asks_clients()
            && !(is_fresh(self.known.of_client(ip))
                && named.netgroups.iter().all(|group| self.known.has_asked(ip, group)))
    }

    /// True: something else is known of it than before.
    async fn ask_client(&self, ip: IpAddr, why: Why) -> bool {
        let (named, service, began) = (self.named(), self.service, Instant::now());
        let work = move || facts(service, &named, ip);
        let answer = async {
            let alone = self.alone(Asked::Client(host_of(ip), why)).await?;
            if alone.queue.last().is_some_and(|(last, at)| last == ip && at >= began) {
                // Another one has asked meanwhile, and what there is to know is known.
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

    /// True: it has other addresses than before.
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

    /// Waits until no other look-up of that is under way.
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

    /// Asks by a thread, when it is its turn. A thread that nobody waits for any more keeps its turn, and the host its only one: it
    /// is still a thread.
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

    /// Asks again what is old, of clients that are connected; of others it is forgotten. True: somebody is somebody else.
    async fn refresh(&self, connected: &HashSet<IpAddr>) -> bool {
        let named = self.named();
        self.known.retain(|name| named.hosts.contains(name), Instant::now());
        let of_host = |name: &str| {
            self.known.of_host(name).map(|(at, addresses)| (at, !addresses.is_empty()))
        };
        let hosts: Vec<_> = named.hosts.iter().filter(|name| !is_fresh(of_host(name))).collect();
        let clients: Vec<_> = connected.iter().filter(|ip| self.is_asked_for(**ip)).collect();
        let mut is_new = false;
        // These turns are not those of who connects.
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

/// Asks again what is old, for as long as the gateway serves. Who is somebody else by now keeps by SMB what it would be granted
/// again, as after a reload; NFS asks with each call.
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

/// Looks up what these settings name and one client, by a runtime of its own. Blocks, for a time that has an end.
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

/// The hosts that these settings name and of which the name service knows no address. Blocks, for a time that has an end.
pub(crate) fn missing(settings: &Settings) -> Result<Vec<Arc<str>>, String> {
    let (known, named) = (Arc::new(ClientNames::default()), Named::of(settings));
    look_up(settings, known.clone(), None)?;
    let is_missing =
        |name: &Arc<str>| known.of_host(name).is_none_or(|(_, addresses)| addresses.is_empty());
    Ok(named.hosts.into_iter().filter(is_missing).collect())
}

/// What the name service says of a client. Blocks.
fn facts(service: Service, named: &Named, ip: IpAddr) -> io::Result<ClientFacts> {
    let names = (service.names)(ip)?;
    let text = ip.to_string();
    let own = if named.netgroups.is_empty() { None } else { (service.own_domain)() };
    // As mountd: the name, the name without its domain, and the address itself. But a host of another domain is not the one that a
    // netgroup has by the same short name.
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

/// An answer within [`PATIENCE`].
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

/// A thread of its own, as the runtime does not end before those of its own have.
fn by_thread<T: Send + 'static>(
    turn: OwnedSemaphorePermit,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (tell, told) = oneshot::channel();
    thread::Builder::new().name("client-names".into()).spawn(move || {
        let answer = work();
        drop(turn);
        // Whoever asked may have gone.
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

    /// A name service that knows `ws.lab`, which is in the netgroup `hosts` by its short name.
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
        // Of a netgroup that comes by a reload it is known of those who are there.
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
        // A netgroup is asked for, too, of who is known lately without it.
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
        // Twice, as what nobody waits for any more is still a thread.
        for _ in 0..2 {
            let of_one = (0..20).map(|n| format!("2001:db8::{n}").parse().unwrap());
            join_all(of_one.map(|ip| lookup.client(ip, Why::Connection))).await;
        }
        assert_eq!(lookup.turns.available_permits(), TURNS - 1);
        // The clock, which goes on when nothing else does, does not wait for the thread.
        let began = Instant::now();
        while ASKING.load(Ordering::Relaxed) == 0 && began.elapsed() < Duration::from_secs(60) {
            thread::yield_now();
        }
        assert_eq!(ASKING.load(Ordering::Relaxed), 1);
        // Nor does it take any from who is connected, or from others who come.
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
        // Datagrams have turns of their own, as connections have.
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
