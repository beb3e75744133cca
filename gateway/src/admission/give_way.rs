//! Chooses the connection to evict when a limit is reached.
//!
//! *Operation.* A connection that moved no data for [`IDLE_SECONDS_MIN`] is idle; the housekeeping checks once a second
//! ([`Admission::observe`]). Among the connections that count against the limit, an idle one without state is evicted, first of
//! hosts that exceed their fair share of the limit, and of those the one that is idle for the longest time. Its peer loses no
//! state: an NFS client reconnects and continues, as does an SMB client without opens. A connection with SMB opens is evicted last,
//! and only if its host exceeds its share.
//!
//! For a host within its share, an active connection may be evicted too, of the host that exceeds its share by the largest number:
//! a host that keeps all its connections active must not keep other hosts out. A host that exceeds its share never replaces a
//! connection of a host within its share.
//!
//! The connection is cut without waiting for its peer to take pending data, so its descriptor is free as soon as its task runs. At
//! most [`CLOSING_MAX`] evicted connections are open at the same time: a storm uses no more descriptors than were reserved for it.
//! Half of them are evicted only for hosts within their share, and a quarter only for hosts with little of it ([`closing_max`]).
//!
//! *Memory.* One entry for each connection. A search that finds no connection is not repeated for its host for [`PAUSE`], nor for
//! any host whose search would find no more ([`InVain::holds_for`]), so that a storm of connections costs no more than a check of
//! the limits.
//!
//! *Errors.* Counted as the limit `gave-way`; the log line of the connection's end says why.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rdma_transport::channel::{Info, Traffic};
use rdma_transport::count;
use tokio::sync::oneshot;

use super::{Address, Admission, Limit, Tables};
use crate::descriptors::CLOSING_MAX;

/// Seconds without a byte after which a connection may be evicted.
pub(super) const IDLE_SECONDS_MIN: u64 = 5;
/// Time between a failed search and the next one.
const PAUSE: Duration = Duration::from_millis(100);
/// Connections per search that are checked for state.
const ASKED_MAX: usize = 64;
/// Name of the limit.
const GAVE_WAY: &str = "gave-way";

type Holds = Arc<dyn Fn() -> bool + Send + Sync>;

/// A connection that counts.
pub(super) struct Entry {
    pub(super) host: IpAddr,
    /// Set until its client has introduced itself.
    pub(super) is_new: bool,
    since: Instant,
    /// Time of the last observed traffic.
    active: Instant,
    moved: u64,
    serving: Option<(Arc<Info>, Holds)>,
    cut: oneshot::Sender<String>,
}

/// Returns the sum of all traffic counters of a connection, which changes whenever it moves data.
fn moved(t: &Traffic) -> u64 {
    [&t.requests, &t.inline_in, &t.inline_out, &t.rdma_read, &t.rdma_write]
        .iter()
        .fold(0, |sum, counter| sum.wrapping_add(counter.load(Ordering::Relaxed)))
}

impl Entry {
    pub(super) fn new(host: IpAddr) -> (Self, oneshot::Receiver<String>) {
        let (cut, told) = oneshot::channel();
        let now = Instant::now();
        let entry =
            Self { host, is_new: true, since: now, active: now, moved: 0, serving: None, cut };
        (entry, told)
    }

    pub(super) fn serving(&mut self, info: Arc<Info>, holds: Holds) {
        self.serving = Some((info, holds));
    }

    fn observe(&mut self, now: Instant) {
        let Some((info, _)) = &self.serving else { return };
        let moved = moved(&info.traffic);
        if std::mem::replace(&mut self.moved, moved) != moved {
            self.active = now;
        }
    }
}

/// A search that found no connection.
#[derive(Clone, Copy)]
pub(super) struct InVain {
    host: IpAddr,
    /// Set if the host was within its share, so that no other host may have more connections closed on its behalf.
    is_within: bool,
    /// Set if the host was one of those that have a share; another one makes all shares smaller.
    has_share: bool,
    at: Instant,
}

impl InVain {
    /// Returns whether a search for this host at the same limit would fail, too.
    fn holds_for(&self, tables: &Tables, limit: Limit, host: IpAddr) -> bool {
        if self.at.elapsed() >= PAUSE {
            return false;
        }
        // At a limit on one host, the search only covered that host's connections.
        self.host == host
            || self.is_within
                && !limit.is_of_address()
                && (!self.has_share || tables.has_share(limit, host))
    }
}

/// Returns the number of evicted connections that may be open when a host with `count` connections of a share of `part` evicts
/// another. A host that connects without end evicts some without end, and must leave room for hosts with few connections.
fn closing_max(count: usize, part: usize) -> usize {
    match (count < part, count.saturating_mul(4) < part) {
        (false, _) => CLOSING_MAX / 2,
        (true, false) => CLOSING_MAX / 4 * 3,
        (true, true) => CLOSING_MAX,
    }
}

/// A connection that can be evicted; the smallest is evicted first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    has_part: bool,
    is_active: bool,
    /// Connections of its host, if it is active.
    of_host: Reverse<usize>,
    active: Instant,
    since: Instant,
    id: u64,
}

/// Returns whether a host has a share under this limit. Hosts with newcomers only reduce the shares of newcomers: addresses without
/// a logon must not make a known client exceed its share.
fn shares(limit: Limit, address: &Address) -> bool {
    limit.is_for_newcomers() || address.counts.open > address.counts.new
}

impl Tables {
    /// Returns the number of this host's connections that count against this limit.
    fn count_of(&self, limit: Limit, host: IpAddr) -> usize {
        let counts = self.addresses.get(&host).map(|a| a.counts).unwrap_or_default();
        if limit.is_for_newcomers() { counts.new } else { counts.open }
    }

    /// Returns whether the host is one of those among which this limit is divided.
    fn has_share(&self, limit: Limit, host: IpAddr) -> bool {
        self.addresses.get(&host).is_some_and(|address| shares(limit, address))
    }

    /// Returns the fair share of each host under this limit, assuming that `host` connects.
    fn part(&self, limit: Limit, host: IpAddr, limits: usize) -> usize {
        let hosts = self.addresses.values().filter(|address| shares(limit, address)).count();
        (limits / (hosts + usize::from(!self.has_share(limit, host)))).max(1)
    }

    /// Returns whether the host has less than its share, so that it may have one more connection.
    fn is_within(&self, limit: Limit, host: IpAddr, limits: usize) -> bool {
        self.count_of(limit, host) < self.part(limit, host, limits)
    }

    /// Returns the connections that a connection of this host may replace, best first, before they are checked for state.
    fn candidates(&mut self, limit: Limit, host: IpAddr, limits: usize) -> Vec<Candidate> {
        let now = Instant::now();
        let (part, is_within) =
            (self.part(limit, host, limits), self.is_within(limit, host, limits));
        let only_new = limit.is_for_newcomers();
        let only_host = limit.is_of_address();
        let Self { addresses, open, .. } = self;
        let one = |(id, e): (&u64, &mut Entry)| {
            if e.serving.is_none() || only_new && !e.is_new || only_host && e.host != host {
                return None;
            }
            e.observe(now);
            let counts = addresses.get(&e.host).map(|a| a.counts).unwrap_or_default();
            let of_host = if only_new { counts.new } else { counts.open };
            let has_part = of_host <= part;
            let is_active = now.duration_since(e.active).as_secs() < IDLE_SECONDS_MIN;
            let may_go = match e.host == host || only_host {
                true => !is_active || e.is_new && !has_part && !only_host,
                // A host that exceeds its share may replace newcomers and idle connections of other such hosts.
                false if !is_within => !has_part && (!is_active || e.is_new),
                false => !is_active || !has_part,
            };
            let of_host = Reverse(if is_active { of_host } else { 0 });
            let (active, since) = (e.active, e.since);
            may_go.then_some(Candidate { has_part, is_active, of_host, active, since, id: *id })
        };
        let mut all: Vec<Candidate> = open.iter_mut().filter_map(one).collect();
        all.sort_unstable();
        all
    }

    fn holds(&self, id: u64) -> Option<Holds> {
        self.open.get(&id)?.serving.as_ref().map(|(_, holds)| holds.clone())
    }
}

impl Admission {
    /// Records the traffic of every connection. Must be called once a second.
    pub fn observe(&self) {
        let now = Instant::now();
        self.lock().open.values_mut().for_each(|e| e.observe(now));
    }

    /// Evicts a connection that counts against this limit, for one of this host. Returns false if no connection can be evicted.
    pub(super) fn make_room(&self, limit: Limit, host: IpAddr) -> bool {
        let limits = self.limits().by(limit);
        let all = {
            let mut tables = self.lock();
            let in_vain = tables.in_vain[limit as usize];
            if in_vain.is_some_and(|last| last.holds_for(&tables, limit, host)) {
                return false;
            }
            // Descriptors of these connections are not free yet.
            if tables.closing >= CLOSING_MAX {
                return false;
            }
            let count = tables.count_of(limit, host);
            if tables.closing >= CLOSING_MAX / 2
                && tables.closing >= closing_max(count, tables.part(limit, host, limits))
            {
                return false;
            }
            tables.candidates(limit, host, limits)
        };
        // Called without the lock, because `holds` takes locks of the protocol.
        let holds = |c: &&Candidate| {
            let holds = self.lock().holds(c.id);
            holds.is_none_or(|holds| holds())
        };
        let free = all.iter().take(ASKED_MAX).find(|c| !holds(c));
        let chosen = free.or_else(|| all.first().filter(|c| !c.has_part));
        let gone = chosen.map(|c| {
            let mut tables = self.lock();
            let gone = tables.remove(c.id)?;
            tables.closing += 1;
            Some(gone)
        });
        match gone {
            // The connection has ended since the search.
            Some(None) => true,
            Some(Some(entry)) => {
                count::limit_met(GAVE_WAY);
                let name = limit.name();
                let idle = entry.active.elapsed().as_secs();
                let what = match idle {
                    0..IDLE_SECONDS_MIN => "its address has more than its part".to_owned(),
                    _ => format!("it was idle for {idle} s"),
                };
                let why = format!("closed to admit another connection: limit `{name}`; {what}");
                // A connection that is ending at this moment frees its entry as well.
                let _ = entry.cut.send(why);
                true
            }
            None => {
                let mut tables = self.lock();
                let is_within = tables.is_within(limit, host, limits);
                let has_share = tables.has_share(limit, host);
                tables.in_vain[limit as usize] =
                    Some(InVain { host, is_within, has_share, at: Instant::now() });
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use rdma_transport::channel::Transport;

    use super::super::{AdmissionPermit, ConnectionLimits};
    use super::*;

    fn admission(all: usize) -> Arc<Admission> {
        let introduction = Duration::from_secs(45);
        let limits = ConnectionLimits { all, is_short: false, address: None, introduction };
        let pool = || iobuf::Pool::new(iobuf::PoolLimits { buffers_max: [4; 3] });
        Admission::new(limits, pool(), pool())
    }

    fn served(
        a: &Arc<Admission>,
        from: u8,
        holds: bool,
    ) -> (AdmissionPermit, oneshot::Receiver<String>) {
        let peer = SocketAddr::from(([10, 0, 0, from], 1));
        let mut place = a.admit(peer).unwrap();
        let info = Info::new(peer, peer, Transport::Tcp, place.payload().clone());
        place.serving(Arc::new(info), move || holds);
        let cut = place.cut();
        (place, cut)
    }

    /// Acts as if the connection had been idle for this time.
    fn idle(a: &Admission, place: &AdmissionPermit, seconds: u64) {
        let mut tables = a.lock();
        let entry = tables.open.get_mut(&place.id).unwrap();
        entry.active = entry.active.checked_sub(Duration::from_secs(seconds)).unwrap();
    }

    fn again(a: &Admission) {
        a.lock().in_vain = Default::default();
    }

    #[test]
    fn the_connection_gives_way_that_is_idle_for_the_longest_and_holds_nothing() {
        let a = admission(4);
        let mut all: Vec<_> =
            [(1, true), (2, false), (3, false), (4, false)].map(|(n, h)| served(&a, n, h)).into();
        all.iter_mut().for_each(|(place, _)| place.established());
        let newcomer = SocketAddr::from(([10, 0, 0, 9], 1));
        assert!(a.admit(newcomer).is_none(), "all are busy");
        again(&a);
        for (at, seconds) in [(0, 90), (1, 30), (2, 60), (3, 1)] {
            idle(&a, &all[at].0, seconds);
        }
        let place = a.admit(newcomer).unwrap();
        let why = all[2].1.try_recv().unwrap();
        assert!(why.contains("idle for 6") && why.contains("`connections`"), "{why}");
        for (at, (_, cut)) in all.iter_mut().enumerate().filter(|(at, _)| *at != 2) {
            assert!(cut.try_recv().is_err(), "{at} stays");
        }
        // Its permit was returned by the eviction, and must not be returned again when its task ends.
        assert_eq!(a.lock().all.open, 4);
        drop(all.remove(2));
        assert_eq!(a.lock().all.open, 4);
        drop((all, place));
        let tables = a.lock();
        assert_eq!((tables.all.open, tables.all.new, tables.addresses.len()), (0, 0, 0));
    }

    #[test]
    fn two_hosts_cannot_hold_all_connections_though_they_are_never_idle() {
        let a = admission(64);
        let mut all = Vec::new();
        for n in 0..48 {
            let (mut place, cut) = served(&a, 1 + n % 2, false);
            place.established();
            all.push((place, cut));
        }
        // Newcomers of the two hosts fill the remaining newcomer limit, and another host is still admitted.
        while let Some(place) = a.admit(SocketAddr::from(([10, 0, 0, 1], 1))) {
            all.push((place, oneshot::channel().1));
            if a.lock().all.open == 64 {
                break;
            }
        }
        assert_eq!(a.lock().all.open, 64);
        again(&a);
        idle(&a, &all[1].0, IDLE_SECONDS_MIN);
        assert!(a.admit(SocketAddr::from(([10, 0, 0, 3], 1))).is_some());
        assert!(all[1].1.try_recv().is_ok());
    }

    /// Returns active connections of this host whose clients have introduced themselves.
    fn active(
        a: &Arc<Admission>,
        from: u8,
        count: usize,
        holds: bool,
    ) -> Vec<(AdmissionPermit, oneshot::Receiver<String>)> {
        let one = |_| {
            let (mut place, cut) = served(a, from, holds);
            place.established();
            (place, cut)
        };
        (0..count).map(one).collect()
    }

    fn gone(all: &mut [(AdmissionPermit, oneshot::Receiver<String>)]) -> usize {
        all.iter_mut().filter_map(|(_, cut)| cut.try_recv().ok()).count()
    }

    #[test]
    fn active_hosts_beyond_their_part_admit_others() {
        for holds in [false, true] {
            let a = admission(64);
            let mut first = active(&a, 1, 32, holds);
            let mut second = active(&a, 2, 31, holds);
            let mut small = active(&a, 3, 1, holds);
            // Each new address is admitted, up to its share, and replaces a connection of the host with the most.
            let mut come = Vec::new();
            for from in 10..14 {
                let (mut place, cut) = served(&a, from, holds);
                place.established();
                come.push((place, cut));
            }
            let (first, second) = (gone(&mut first), gone(&mut second));
            assert!(first > 0 && second > 0 && first + second == 4, "{first} and {second}");
            assert_eq!((gone(&mut small), gone(&mut come)), (0, 0));
        }
    }

    #[test]
    fn host_beyond_its_part_takes_no_place_of_others() {
        let a = admission(64);
        let mut greedy = active(&a, 1, 48, false);
        let mut others = active(&a, 2, 8, false);
        others.extend(active(&a, 3, 8, false));
        others.iter().for_each(|(place, _)| idle(&a, place, 100));
        let newcomer = |from| a.admit(SocketAddr::from(([10, 0, 0, from], 1)));
        assert!(newcomer(1).is_none());
        assert_eq!((gone(&mut greedy), gone(&mut others)), (0, 0));
        // A failed search for a host beyond its share does not stop one for a host within its share.
        assert!(newcomer(4).is_some());
        assert_eq!((gone(&mut greedy), gone(&mut others)), (1, 0));
    }

    #[test]
    fn strangers_take_no_place_of_known_clients() {
        // Newcomers meet their own limit first, which is half of all connections.
        let a = admission(64);
        let mut known = active(&a, 1, 32, false);
        let mut strangers: Vec<_> = (10..42).map(|from| served(&a, from, false)).collect();
        let stranger = |from| a.admit(SocketAddr::from(([10, 0, 0, from], 1)));
        assert!(stranger(50).is_none());
        assert_eq!((gone(&mut known), gone(&mut strangers)), (0, 0));
        drop((known, strangers));
        // Even where newcomers may have more, known clients within their share stay.
        let a = admission(64);
        let mut known: Vec<_> = (1..4).flat_map(|from| active(&a, from, 16, false)).collect();
        let mut strangers: Vec<_> = (10..26).map(|from| served(&a, from, false)).collect();
        let stranger = |from| a.admit(SocketAddr::from(([10, 0, 0, from], 1)));
        assert!(stranger(50).is_none());
        assert_eq!((gone(&mut known), gone(&mut strangers)), (0, 0));
    }

    #[test]
    fn what_a_client_holds_by_smb_is_not_taken_for_a_newcomer_unless_it_has_more_than_its_part() {
        let a = admission(2);
        let (one, mut cut_one) = served(&a, 1, true);
        let (two, mut cut_two) = served(&a, 2, true);
        for place in [&one, &two] {
            idle(&a, place, 100);
        }
        let newcomer = SocketAddr::from(([10, 0, 0, 9], 1));
        assert!(a.admit(newcomer).is_none(), "each has its part");
        again(&a);
        drop(two);
        assert!(cut_two.try_recv().is_err());
        let (third, _cut) = served(&a, 1, true);
        idle(&a, &third, 10);
        assert!(a.admit(newcomer).is_some(), "two of two are more than a part");
        assert!(cut_one.try_recv().is_ok());
    }

    #[test]
    fn no_more_give_way_than_are_closed() {
        let a = admission(4 * CLOSING_MAX);
        let mut all = Vec::new();
        for _ in 0..2 * CLOSING_MAX {
            let (mut place, cut) = served(&a, 1, false);
            place.established();
            all.push((place, cut));
        }
        a.set(ConnectionLimits { all: 2 * CLOSING_MAX, ..a.limits() });
        all.iter().for_each(|(place, _)| idle(&a, place, 100));
        let newcomer = |from| a.admit(SocketAddr::from(([10, 0, 1, from], 1)));
        let come = 0..u8::try_from(CLOSING_MAX).unwrap();
        let mut come: Vec<AdmissionPermit> = come.map(|from| newcomer(from).unwrap()).collect();
        assert!(newcomer(99).is_none(), "the descriptors of those are still open");
        let gone = all.iter_mut().position(|(_, cut)| cut.try_recv().is_ok()).unwrap();
        drop(all.remove(gone));
        again(&a);
        come.push(a.admit(SocketAddr::from(([10, 0, 0, 8], 1))).unwrap());
        drop((all, come));
        let a = a.lock();
        assert_eq!((a.closing, a.all.open), (0, 0));
    }

    /// Hosts that connect without end have their newcomers evicted faster than these close.
    #[test]
    fn hosts_with_many_connections_leave_room_to_close_some_for_others() {
        let a = admission(128);
        let mut greedy = active(&a, 1, 64, false);
        greedy.extend(active(&a, 2, 60, false));
        let mut small = active(&a, 3, 1, false);
        let mut come = Vec::new();
        for from in [1, 2].repeat(CLOSING_MAX) {
            again(&a);
            let peer = SocketAddr::from(([10, 0, 0, from], 1));
            let Some(place) = a.admit(peer) else { continue };
            let info = Info::new(peer, peer, Transport::Tcp, place.payload().clone());
            place.serving(Arc::new(info), || false);
            come.push(place);
        }
        assert_eq!(a.lock().closing, CLOSING_MAX / 2);
        for from in 3..7 {
            again(&a);
            assert!(a.admit(SocketAddr::from(([10, 0, 0, from], 1))).is_some(), "{from}");
        }
        assert_eq!(gone(&mut small), 0);
    }

    #[test]
    fn search_for_known_host_does_not_stop_one_for_new_host() {
        let a = admission(64);
        let mut known = active(&a, 1, 30, false);
        known.extend(active(&a, 2, 32, false));
        let _strangers = [served(&a, 3, false), served(&a, 4, false)];
        let newcomer = |from| a.admit(SocketAddr::from(([10, 0, 0, from], 1)));
        assert!(newcomer(1).is_none(), "no other host has more than half");
        assert!(newcomer(5).is_some(), "both have more than a third");
        assert_eq!(gone(&mut known), 1);
    }

    #[test]
    fn place_is_free_when_its_connection_ends_during_search() {
        let a = admission(4);
        let mut all = active(&a, 1, 3, false);
        let peer = SocketAddr::from(([10, 0, 0, 1], 1));
        let mut place = a.admit(peer).unwrap();
        place.established();
        let info = Info::new(peer, peer, Transport::Tcp, place.payload().clone());
        let ends = Arc::new(std::sync::Mutex::new(None));
        let its = ends.clone();
        place.serving(Arc::new(info), move || {
            drop(mutex::locked(&its).take());
            false
        });
        idle(&a, &place, 100);
        *mutex::locked(&ends) = Some(place);
        assert!(a.admit(SocketAddr::from(([10, 0, 0, 9], 1))).is_some());
        assert_eq!(gone(&mut all), 0);
    }

    #[test]
    fn what_moves_is_not_idle() {
        let a = admission(1);
        let (place, _cut) = served(&a, 1, false);
        idle(&a, &place, 100);
        let info = a.lock().open[&place.id].serving.as_ref().unwrap().0.clone();
        Traffic::add(&info.traffic.inline_out, 1);
        assert!(a.admit(SocketAddr::from(([10, 0, 0, 9], 1))).is_none());
    }

    #[test]
    fn a_network_of_version_6_is_one_host() {
        let a = admission(100);
        let from = |n: u128| {
            SocketAddr::new(std::net::Ipv6Addr::from(0x2001_0db8_u128 << 96 | n).into(), 1)
        };
        let places: Vec<AdmissionPermit> = (0..25).map(|n| a.admit(from(n)).unwrap()).collect();
        assert!(a.admit(from(1 << 63)).is_none(), "newcomers of one /64");
        assert!(a.admit(from(1 << 64)).is_some(), "another /64");
        drop(places);
    }
}
