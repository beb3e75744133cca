//! Decides which requests pass and in which order those that wait do. Pure: time is an argument.
//!
//! *Operation.* A request passes when each bucket of its scopes has the tokens that it costs, and takes them from all at once.
//! Waiting requests form lanes: one user at one address, one kind, one share, in the order of their arrival. Lanes alternate. A
//! lane passes [`QUANTUM`] bytes at most and then moves behind all others; the lanes of one address that use a bucket divide these
//! bytes, so that each address gets about the same from a bucket that they share, however many users it has. After a larger request
//! a lane lets the others have as many turns. A lane whose turn has come but that must wait for a bucket
//! lets later ones pass, as long as this does not delay it: a slow bucket stops only its users, and no lane starves.
//!
//! *Memory.* Requests that wait are limited, in all and for each address, as are the bytes that they hold ([`Most`]). Buckets of
//! addresses are forgotten when they are full again.

use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use policy::{Measure, Rates};

use crate::bucket::{Bucket, DEBT_MAX};
use crate::debts::Debts;
use crate::{Full, Most, Plan, Reading, ScopeName};

/// Bytes that a lane passes at most before it goes behind the others: fewer where a rate takes longer than [`TURN`] for them.
const QUANTUM: i64 = 1 << 20;
/// The longest time of the bytes of a turn.
const TURN: Duration = Duration::from_millis(250);
/// Operations of a turn at most, where these have a rate.
const QUANTUM_OPERATIONS: i64 = 16;
/// The least that a request counts in a turn.
const LEAST: i64 = 4096;
/// Lanes of one address and share for users by number without own rates. A client that claims many users gets no more turns.
const SLOTS: u64 = 8;
/// Addresses with own buckets; the clients beyond share one. Buckets that are full are forgotten before.
const ADDRESSES_MAX: usize = 65_536;
/// The shortest time between two looks for full buckets of addresses.
const FORGET_PAUSE: Duration = Duration::from_secs(1);
/// The address in place of those beyond.
const FURTHER: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
/// The most that a request counts in a turn.
const LARGEST: i64 = 64 * QUANTUM;

/// The work of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Reads file data.
    Read,
    /// Writes file data.
    Write,
    /// Works on names, attributes or state.
    Other,
}

impl Kind {
    /// Returns what a request of `bytes` costs in this measure.
    fn cost(self, measure: Measure, bytes: u64) -> u64 {
        match (self, measure) {
            (Self::Read, Measure::Read) | (Self::Write, Measure::Write) => bytes,
            (Self::Read, Measure::ReadOperations)
            | (Self::Write, Measure::WriteOperations)
            | (_, Measure::Operations) => 1,
            _ => 0,
        }
    }

    fn uses(self, measure: Measure) -> bool {
        self.cost(measure, 1) > 0
    }

    const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Other];

    fn index(self) -> usize {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Other => 2,
        }
    }
}

/// The user of a request: one with rates, by the hash of the name, or the slot of others, by name or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum User {
    Named(u64),
    Slot(u64),
}

/// Returns the payload memory that this many bytes take: buffers of 1 MiB, or smaller ones for little.
fn occupied(bytes: u64) -> u64 {
    const LARGE: u64 = 1 << 20;
    const SMALL_MAX: u64 = 64 << 10;
    if bytes > SMALL_MAX { bytes.saturating_add(LARGE - 1) / LARGE * LARGE } else { bytes }
}

/// Requests that take turns together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) share: u32,
    pub(crate) host: IpAddr,
    pub(crate) user: User,
    pub(crate) kind: Kind,
}

/// The user that a protocol knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller<'a> {
    /// A number, as NFS has it.
    Uid(u32),
    /// A name, as SMB has it; case is ignored.
    Name(&'a str),
}

/// The buckets of a scope.
#[derive(Debug, Default)]
struct Scope {
    buckets: [Option<Bucket>; Measure::ALL.len()],
    /// Counters of the scope. Buckets of addresses use [`Engine::of_clients`] instead.
    counts: AllCounts,
    /// Requests that wait and use the scope, by kind.
    waiting: ByKind,
}

type AllCounts = [Counts; Measure::ALL.len()];
type ByKind = [usize; Kind::ALL.len()];

/// Counters of requests that use a bucket.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Tokens that requests have used, or have asked for and not settled yet.
    passed: u64,
    /// The most that was shown of `passed`: a counter that others read never goes down.
    shown: u64,
    waited: u64,
    waited_for: Duration,
}

impl Counts {
    fn show(&mut self) {
        self.shown = self.shown.max(self.passed);
    }
}

impl Scope {
    /// Changes the rates; buckets that remain keep their tokens.
    fn set(&mut self, rates: &Rates, now: Duration) {
        for (measure, bucket) in Measure::ALL.into_iter().zip(&mut self.buckets) {
            match (rates.of(measure), bucket.as_mut()) {
                (Some(rate), Some(bucket)) => bucket.set(rate, rates.burst, now),
                (Some(rate), None) => *bucket = Some(Bucket::new(rate, rates.burst, now)),
                (None, _) => *bucket = None,
            }
        }
    }

    fn with(rates: &Rates, now: Duration) -> Self {
        let mut scope = Self::default();
        scope.set(rates, now);
        scope
    }

    fn used(&mut self, kind: Kind) -> impl Iterator<Item = (Measure, &mut Bucket)> {
        let all = Measure::ALL.into_iter().zip(&mut self.buckets);
        all.filter_map(move |(m, b)| kind.uses(m).then_some(m).zip(b.as_mut()))
    }

    /// Returns the measures of its buckets that this kind uses.
    fn measures(&self, kind: Kind) -> impl Iterator<Item = Measure> {
        let all = Measure::ALL.into_iter().zip(&self.buckets);
        all.filter_map(move |(m, b)| (kind.uses(m) && b.is_some()).then_some(m))
    }

    fn has_waiting(&self) -> bool {
        self.waiting.iter().any(|n| *n > 0)
    }
}

/// The name of a scope in the maps of [`Engine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Of {
    All,
    Share(u32),
    User(u64),
    Client(IpAddr),
    /// Never in the map.
    Nobody,
}

struct Waiter<T> {
    id: u64,
    bytes: u64,
    held: u64,
    since: Duration,
    token: T,
}

struct Lane<T> {
    key: Key,
    /// Bytes that it may still pass in this turn. Negative after a request larger than its turn, for which the others get as many
    /// turns.
    left: i64,
    waiters: VecDeque<Waiter<T>>,
    /// The buckets for which it counts in [`Engine::lanes_of`].
    uses: Vec<(Of, Measure)>,
}

/// Reservations of buckets, each a time and a cost: of the earliest lane, and of the one that can pass first, if that is another.
type Reserved = HashMap<(Of, Measure), [Option<(Duration, u64)>; 2]>;

/// The waiting requests of one address, or of all.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    requests: usize,
    bytes: u64,
}

/// Buckets, and the requests that wait for them. `T` tells a request that it passes.
pub(crate) struct Engine<T> {
    plan: Arc<Plan>,
    scopes: HashMap<Of, Scope>,
    /// The scopes that have a reading, apart from addresses.
    readable: Vec<(Of, Place)>,
    /// Counters of all addresses together, also of those that were forgotten.
    of_clients: AllCounts,
    /// Requests that wait and use buckets of addresses.
    clients_waiting: ByKind,
    users_by_uid: HashMap<u32, u64>,
    lanes: BTreeMap<u64, Lane<T>>,
    turns: HashMap<Key, u64>,
    /// Number of lanes of an address that use a bucket which other addresses use too.
    lanes_of: HashMap<(IpAddr, Of, Measure), i64>,
    debts: Debts<Key>,
    next_turn: u64,
    next_id: u64,
    most: Most,
    all: Held,
    held: HashMap<IpAddr, Held>,
    /// Number of addresses at which full buckets are forgotten next.
    forget_at: usize,
    /// When they were last forgotten: a look at all takes time.
    forgot: Option<Duration>,
    clients: usize,
}

/// The outcome for an arriving request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// No rate applies to it.
    Free,
    /// It has passed.
    Passed,
    /// It waits under this number.
    Waits(u64),
}

impl<T> Engine<T> {
    pub(crate) fn new(most: Most) -> Self {
        Self {
            plan: Arc::default(),
            scopes: HashMap::new(),
            readable: Vec::new(),
            of_clients: AllCounts::default(),
            clients_waiting: ByKind::default(),
            users_by_uid: HashMap::new(),
            lanes: BTreeMap::new(),
            turns: HashMap::new(),
            lanes_of: HashMap::new(),
            debts: Debts::default(),
            next_turn: 0,
            next_id: 0,
            most,
            all: Held::default(),
            held: HashMap::new(),
            forget_at: 1024,
            forgot: None,
            clients: 0,
        }
    }

    /// Changes the limits of requests that wait; those that wait already stay.
    pub(crate) fn set_most(&mut self, most: Most) {
        self.most = most;
    }

    /// Returns true if any rate is set.
    pub(crate) fn is_on(&self) -> bool {
        let plan = &self.plan;
        let all = plan.shares.iter().map(|s| &s.rates).chain(plan.users.iter().map(|u| &u.rates));
        all.chain([&plan.all, &plan.client]).any(|rates| !rates.is_empty())
    }

    /// Changes the rates. Buckets of scopes that remain keep their tokens and their counters.
    pub(crate) fn set(&mut self, plan: Plan, now: Duration) {
        let mut old = std::mem::take(&mut self.scopes);
        let shares = plan.shares.iter().map(|s| (Of::Share(s.id), &s.rates));
        let users = plan.users.iter().map(|u| (Of::User(number(&u.name)), &u.rates));
        let clients: Vec<_> =
            old.keys().filter(|of| matches!(of, Of::Client(_))).copied().collect();
        let clients = clients.into_iter().map(|of| (of, &plan.client));
        let all = [(Of::All, &plan.all)].into_iter().chain(shares).chain(users).chain(clients);
        for (of, rates) in all.filter(|(_, rates)| !rates.is_empty()) {
            let mut scope = old.remove(&of).unwrap_or_default();
            scope.waiting = ByKind::default();
            scope.set(rates, now);
            self.scopes.insert(of, scope);
        }
        self.clients = self.scopes.keys().filter(|of| matches!(of, Of::Client(_))).count();
        // The first of several users with one number counts.
        let by_uid = plan.users.iter().rev();
        self.users_by_uid = by_uid.filter_map(|u| Some((u.uid?, number(&u.name)))).collect();
        if plan.client.is_empty() {
            self.of_clients = AllCounts::default();
        }
        // They count in turns of the rates that were.
        self.debts.clear();
        self.readable = readable(&plan);
        self.plan = Arc::new(plan);
        self.clients_waiting = ByKind::default();
        let lanes: Vec<_> = self.lanes.values().map(|l| (l.key, l.waiters.len())).collect();
        for (key, waiting) in lanes {
            self.client(key.host, now);
            self.count_waiting(key, isize::try_from(waiting).unwrap_or(isize::MAX));
        }
        self.lanes_of.clear();
        let turns: Vec<_> = self.lanes.iter().map(|(turn, lane)| (*turn, lane.key)).collect();
        for (turn, key) in turns {
            let uses = self.count_lane(key);
            if let Some(lane) = self.lanes.get_mut(&turn) {
                lane.uses = uses;
            }
        }
    }

    /// Counts a lane for its buckets, and returns them.
    fn count_lane(&mut self, key: Key) -> Vec<(Of, Measure)> {
        let shared = self.scopes_of(key).into_iter().filter(|of| !matches!(of, Of::Client(_)));
        let buckets = |of: Of| {
            let scope = self.scopes.get(&of);
            let measures = scope.into_iter().flat_map(|scope| scope.measures(key.kind));
            measures.map(move |measure| (of, measure))
        };
        let uses: Vec<_> = shared.flat_map(buckets).collect();
        for (of, measure) in &uses {
            *self.lanes_of.entry((key.host, *of, *measure)).or_default() += 1;
        }
        uses
    }

    /// Returns the lane of a request.
    pub(crate) fn key(&self, share: u32, host: IpAddr, caller: Caller<'_>, kind: Kind) -> Key {
        let named = match caller {
            _ if self.plan.users.is_empty() => None,
            Caller::Uid(uid) => self.users_by_uid.get(&uid).copied(),
            Caller::Name(name) => {
                let number = number(name);
                self.scopes.contains_key(&Of::User(number)).then_some(number)
            }
        };
        let slot = || match caller {
            Caller::Uid(uid) => u64::from(uid) % SLOTS,
            // It has proved the name.
            Caller::Name(name) => number(name),
        };
        let user = named.map_or_else(|| User::Slot(slot()), User::Named);
        Key { share, host, user, kind }
    }

    /// Lets a request pass, or makes it wait. `token` is called if it waits.
    ///
    /// # Errors
    ///
    /// [`Full`]: too many wait, or they hold too many bytes.
    pub(crate) fn arrive(
        &mut self,
        key: Key,
        (bytes, held): (u64, u64),
        now: Duration,
        token: impl FnOnce() -> T,
    ) -> Result<Arrival, Full> {
        self.client(key.host, now);
        let scopes = self.scopes_of(key);
        let (mut is_free, mut must_wait) = (true, false);
        for of in scopes {
            let Some(scope) = self.scopes.get_mut(&of) else { continue };
            let others = scope.has_waiting();
            for (measure, bucket) in scope.used(key.kind) {
                is_free = false;
                must_wait |= others || !bucket.wait(key.kind.cost(measure, bytes), now).is_zero();
            }
        }
        if is_free {
            return Ok(Arrival::Free);
        }
        if !must_wait {
            self.take(key, bytes, now);
            return Ok(Arrival::Passed);
        }
        let held = occupied(held);
        self.hold(key.host, held)?;
        let id = self.next_id;
        self.next_id += 1;
        let waiter = Waiter { id, bytes, held, since: now, token: token() };
        self.count_waiting(key, 1);
        let turn = self.turns.get(&key).copied().unwrap_or_else(|| {
            self.next_turn += 1;
            self.turns.insert(key, self.next_turn);
            self.next_turn
        });
        if !self.lanes.contains_key(&turn) {
            let (uses, waiters) = (self.count_lane(key), VecDeque::new());
            self.lanes.insert(turn, Lane { key, left: 0, waiters, uses });
            let left = self.debts.take(key, now).map_or_else(|| self.quantum(key).0, |owed| -owed);
            if let Some(lane) = self.lanes.get_mut(&turn) {
                lane.left = left;
            }
        }
        if let Some(lane) = self.lanes.get_mut(&turn) {
            lane.waiters.push_back(waiter);
        }
        Ok(Arrival::Waits(id))
    }

    /// Lets pass all requests that can pass now, in turns: the tokens of those that pass, and the time until the next may.
    pub(crate) fn turn(&mut self, now: Duration) -> (Vec<T>, Option<Duration>) {
        let (mut passed, mut next) = (Vec::new(), None::<Duration>);
        let mut reserved = Reserved::new();
        let mut at = 0;
        // Lanes that have moved since a request passed or waited.
        let mut behind = 0;
        while let Some((&turn, _)) =
            self.lanes.range((Bound::Excluded(at), Bound::Unbounded)).next()
        {
            at = turn;
            while let Some((key, bytes)) = self.head(turn) {
                let owes = self.owes(turn);
                let wait = self.wait(key, bytes, now);
                if owes && !self.is_reserved(key, now + wait, &reserved) {
                    self.go_behind(turn);
                    behind += 1;
                    if behind >= self.lanes.len() {
                        self.skip_turns(at);
                        behind = 0;
                    }
                    break;
                }
                behind = 0;
                if !wait.is_zero() {
                    next = Some(next.map_or(wait, |n| n.min(wait)));
                }
                let waits = !wait.is_zero() || !self.leaves_room(key, bytes, &reserved, now);
                match (waits, owes) {
                    // Those before it have their turns first.
                    (true, true) => break,
                    (true, false) => {
                        self.reserve(key, bytes, now + wait, &mut reserved);
                        break;
                    }
                    // Lanes before it cannot use these tokens, so it owes no turn.
                    (false, true) => self.forgive(turn),
                    (false, false) => {}
                }
                self.take(key, bytes, now);
                passed.extend(self.pop(turn, now));
            }
        }
        (passed, next)
    }

    /// Returns the first request of the lane, unless the lane has moved behind the others.
    fn head(&self, turn: u64) -> Option<(Key, u64)> {
        let lane = self.lanes.get(&turn)?;
        Some((lane.key, lane.waiters.front()?.bytes))
    }

    /// Returns true if the lane has passed more than its turn, and the others have not had as many turns since.
    fn owes(&self, turn: u64) -> bool {
        self.lanes.get(&turn).is_some_and(|lane| lane.left <= 0)
    }

    fn forgive(&mut self, turn: u64) {
        let Some(key) = self.lanes.get(&turn).map(|lane| lane.key) else { return };
        let left = self.quantum(key).0;
        if let Some(lane) = self.lanes.get_mut(&turn) {
            lane.left = left;
        }
    }

    /// Moves a lane behind all others, for its next turn.
    fn go_behind(&mut self, turn: u64) {
        let Some(quantum) = self.lanes.get(&turn).map(|lane| self.quantum(lane.key).0) else {
            return;
        };
        if let Some(lane) = self.lanes.remove(&turn) {
            self.next_turn += 1;
            self.turns.insert(lane.key, self.next_turn);
            let left = lane.left + quantum;
            self.lanes.insert(self.next_turn, Lane { left, ..lane });
        }
    }

    /// Ends turns in which each lane after `at` would only move behind the others: all owe more than one turn.
    fn skip_turns(&mut self, at: u64) {
        let after = (Bound::Excluded(at), Bound::Unbounded);
        let owing: Vec<_> = self.lanes.range(after).map(|(turn, lane)| (*turn, lane.key)).collect();
        let quanta: Vec<_> =
            owing.into_iter().map(|(turn, key)| (turn, self.quantum(key).0)).collect();
        let rounds = |(turn, quantum): &(u64, i64)| -self.lanes[turn].left / quantum;
        let skipped = quanta.iter().map(rounds).min().unwrap_or(0).max(0);
        for (turn, quantum) in quanta {
            if let Some(lane) = self.lanes.get_mut(&turn) {
                lane.left += skipped * quantum;
            }
        }
    }

    /// Removes the first request of a lane, which passes. A lane whose turn is over goes behind all others.
    fn pop(&mut self, turn: u64, now: Duration) -> Option<T> {
        let key = self.lanes.get(&turn)?.key;
        let least = self.quantum(key).1;
        let lane = self.lanes.get_mut(&turn)?;
        let waiter = lane.waiters.pop_front()?;
        lane.left -= i64::try_from(waiter.bytes).unwrap_or(i64::MAX).clamp(least, LARGEST);
        let is_over = lane.left <= 0;
        if lane.waiters.is_empty() {
            self.end_lane(turn, now);
        } else if is_over {
            self.go_behind(turn);
        }
        self.count_waiting(key, -1);
        self.release(key.host, waiter.held);
        let waited = now.saturating_sub(waiter.since);
        self.each_used(key, |_, _, counts, _| {
            counts.waited += 1;
            counts.waited_for += waited;
        });
        Some(waiter.token)
    }

    /// Returns the bytes of a turn, which the lanes of an address divide, and its operations, where these have a rate.
    fn turn_of(&self, key: Key) -> (i64, Option<i64>) {
        let (mut bytes, mut operations) = (QUANTUM, None::<i64>);
        for scope in self.scopes_of(key).into_iter().filter_map(|of| self.scopes.get(&of)) {
            for (measure, bucket) in Measure::ALL.into_iter().zip(&scope.buckets) {
                let Some(bucket) = bucket.as_ref().filter(|_| key.kind.uses(measure)) else {
                    continue;
                };
                if measure.is_bytes() {
                    bytes = bytes.min(bucket.quarter()).max(LEAST);
                } else {
                    let most = bucket.quarter().clamp(1, QUANTUM_OPERATIONS);
                    operations = Some(operations.map_or(most, |n| n.min(most)));
                }
            }
        }
        (bytes, operations)
    }

    /// Returns the bytes of a turn of this lane, and the least that a request counts in it.
    fn quantum(&self, key: Key) -> (i64, i64) {
        let (bytes, operations) = self.turn_of(key);
        let uses =
            self.turns.get(&key).and_then(|turn| self.lanes.get(turn)).map(|lane| &lane.uses);
        let lanes = uses
            .into_iter()
            .flatten()
            .filter_map(|(of, m)| self.lanes_of.get(&(key.host, *of, *m)));
        let of_lane = bytes / lanes.copied().max().unwrap_or(1).max(1);
        (of_lane.max(1), operations.map_or(LEAST, |n| (bytes / n).max(LEAST)))
    }

    fn end_lane(&mut self, turn: u64, now: Duration) {
        let Some(lane) = self.lanes.remove(&turn) else { return };
        self.turns.remove(&lane.key);
        if self.lanes.is_empty() {
            self.debts.clear();
        } else if lane.left < 0 {
            let turns = u32::try_from(-lane.left / self.turn_of(lane.key).0).unwrap_or(u32::MAX);
            self.debts.add(lane.key, -lane.left, TURN * turns, now);
        }
        for (of, measure) in lane.uses {
            if let Entry::Occupied(mut lanes) = self.lanes_of.entry((lane.key.host, of, measure)) {
                *lanes.get_mut() -= 1;
                if *lanes.get() <= 0 {
                    lanes.remove();
                }
            }
        }
    }

    /// Removes a request that waits no longer. False: it has passed.
    pub(crate) fn give_up(&mut self, key: Key, id: u64, now: Duration) -> bool {
        let Some(turn) = self.turns.get(&key).copied() else { return false };
        let Some(lane) = self.lanes.get_mut(&turn) else { return false };
        let Some(at) = lane.waiters.iter().position(|w| w.id == id) else { return false };
        let removed = lane.waiters.remove(at);
        if lane.waiters.is_empty() {
            self.end_lane(turn, now);
        }
        self.count_waiting(key, -1);
        self.release(key.host, removed.map_or(0, |w| w.held));
        true
    }

    /// Lets all requests pass that wait, whatever the rates.
    pub(crate) fn release_all(&mut self) -> Vec<T> {
        let lanes = std::mem::take(&mut self.lanes);
        self.turns.clear();
        self.lanes_of.clear();
        self.debts.clear();
        self.held.clear();
        self.all = Held::default();
        self.scopes.values_mut().for_each(|scope| scope.waiting = ByKind::default());
        self.clients_waiting = ByKind::default();
        lanes.into_values().flat_map(|lane| lane.waiters).map(|w| w.token).collect()
    }

    /// Settles a request that has passed for `asked` bytes, or is owed, and has moved `moved`.
    pub(crate) fn settle(
        &mut self,
        key: Key,
        (asked, is_owed): (u64, bool),
        moved: u64,
        now: Duration,
    ) {
        self.each_used(key, |measure, bucket, counts, unasked| {
            if !measure.is_bytes() {
                return;
            }
            let (asked, moved) = (key.kind.cost(measure, asked), key.kind.cost(measure, moved));
            let debt = if is_owed { unasked } else { Some(DEBT_MAX) };
            if let Some(most) = debt {
                bucket.owe(moved.saturating_sub(asked), most, now);
            }
            bucket.put_back(asked.saturating_sub(moved), now);
            counts.passed = counts.passed.saturating_sub(asked).saturating_add(moved);
        });
    }

    /// Counts a request that acts without waiting; its bytes follow by [`Self::settle`]. False: no rate applies to it.
    pub(crate) fn owe(&mut self, key: Key, now: Duration) -> bool {
        self.client(key.host, now);
        let mut is_limited = false;
        self.each_used(key, |measure, bucket, counts, unasked| {
            is_limited = true;
            let cost = key.kind.cost(measure, 0);
            if let Some(most) = unasked {
                bucket.owe(cost, most, now);
            }
            counts.passed = counts.passed.saturating_add(cost);
        });
        is_limited
    }

    /// Puts back all that a request took, which passed but was given up.
    pub(crate) fn undo(&mut self, key: Key, asked: u64, now: Duration) {
        self.each_used(key, |measure, bucket, counts, _| {
            let cost = key.kind.cost(measure, asked);
            bucket.put_back(cost, now);
            counts.passed = counts.passed.saturating_sub(cost);
        });
    }

    /// Calls `act` with each bucket that a request uses, its counters, and how much work that did not ask the bucket may owe.
    fn each_used(
        &mut self,
        key: Key,
        mut act: impl FnMut(Measure, &mut Bucket, &mut Counts, Option<Duration>),
    ) {
        for of in self.scopes_of(key) {
            let Some(scope) = self.scopes.get_mut(&of) else { continue };
            // Others must not wait for one client's debt, nor may it take the tokens that they wait for.
            let unasked = match of {
                Of::Client(host) if host == key.host => Some(DEBT_MAX),
                _ if scope.has_waiting() => None,
                // NFS clients claim the numbers of users, who may be at other addresses as well.
                _ => Some(Duration::ZERO),
            };
            let Scope { buckets, counts, .. } = scope;
            let counts = if matches!(of, Of::Client(_)) { &mut self.of_clients } else { counts };
            for ((measure, bucket), counts) in Measure::ALL.into_iter().zip(buckets).zip(counts) {
                if let Some(bucket) = bucket.as_mut().filter(|_| key.kind.uses(measure)) {
                    act(measure, bucket, counts, unasked);
                }
            }
        }
    }

    /// Returns the number of addresses with buckets.
    #[cfg(test)]
    pub(crate) fn clients(&self) -> usize {
        self.clients
    }

    /// Returns how often lanes have begun or moved.
    #[cfg(test)]
    pub(crate) fn moves(&self) -> u64 {
        self.next_turn
    }

    /// Returns the number of lanes, which a look at all of them takes time for.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Returns the number of requests that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.all.requests
    }

    fn scopes_of(&self, key: Key) -> [Of; 4] {
        let has_own = self.scopes.contains_key(&Of::Client(key.host));
        let client = Of::Client(if has_own { key.host } else { FURTHER });
        let user = match key.user {
            User::Named(number) => Of::User(number),
            // The others have no scope, and the one of all is visited once.
            User::Slot(_) => Of::Nobody,
        };
        [client, user, Of::Share(key.share), Of::All]
    }

    /// Makes the buckets of an address, if clients have rates.
    fn client(&mut self, host: IpAddr, now: Duration) {
        if self.plan.client.is_empty() || self.scopes.contains_key(&Of::Client(host)) {
            return;
        }
        let is_soon = self.forgot.is_some_and(|at| now < at + FORGET_PAUSE);
        if self.clients >= self.forget_at && !is_soon {
            self.forgot = Some(now);
            self.scopes.retain(|of, scope| {
                let is_full = |b: &mut Option<Bucket>| b.as_mut().is_none_or(|b| b.is_full(now));
                !matches!(of, Of::Client(_))
                    || scope.has_waiting()
                    || !scope.buckets.iter_mut().all(is_full)
            });
            self.clients = self.scopes.keys().filter(|of| matches!(of, Of::Client(_))).count();
            self.forget_at = (self.clients * 2).clamp(1024, ADDRESSES_MAX);
        }
        let host = if self.clients < ADDRESSES_MAX { host } else { FURTHER };
        if let Entry::Vacant(place) = self.scopes.entry(Of::Client(host)) {
            place.insert(Scope::with(&self.plan.client, now));
            self.clients += 1;
        }
    }

    fn count_waiting(&mut self, key: Key, by: isize) {
        for of in self.scopes_of(key) {
            let Some(scope) = self.scopes.get_mut(&of) else { continue };
            let of_client = matches!(of, Of::Client(_)).then_some(&mut self.clients_waiting);
            for waiting in of_client.into_iter().chain([&mut scope.waiting]) {
                let n = &mut waiting[key.kind.index()];
                *n = n.saturating_add_signed(by);
            }
        }
    }

    fn wait(&mut self, key: Key, bytes: u64, now: Duration) -> Duration {
        let mut wait = Duration::ZERO;
        for of in self.scopes_of(key) {
            let Some(scope) = self.scopes.get_mut(&of) else { continue };
            for (measure, bucket) in scope.used(key.kind) {
                wait = wait.max(bucket.wait(key.kind.cost(measure, bytes), now));
            }
        }
        wait
    }

    /// Returns true if the request delays no earlier lane that has reserved a bucket.
    fn leaves_room(&mut self, key: Key, bytes: u64, reserved: &Reserved, now: Duration) -> bool {
        if reserved.is_empty() {
            return true;
        }
        for of in self.scopes_of(key) {
            let Some(scope) = self.scopes.get_mut(&of) else { continue };
            for (measure, bucket) in scope.used(key.kind) {
                let cost = key.kind.cost(measure, bytes);
                let mut all = reserved.get(&(of, measure)).into_iter().flatten().flatten();
                if !all.all(|(at, later)| bucket.leaves_room(cost, *later, *at, now)) {
                    return false;
                }
            }
        }
        true
    }

    /// Returns true if an earlier lane has reserved a bucket of this one for a time until `by`.
    fn is_reserved(&self, key: Key, by: Duration, reserved: &Reserved) -> bool {
        !reserved.is_empty()
            && self.scopes_of(key).into_iter().any(|of| {
                let mut measures = Measure::ALL.into_iter().filter(|m| key.kind.uses(*m));
                measures.any(|measure| {
                    let all = reserved.get(&(of, measure)).into_iter().flatten().flatten();
                    all.into_iter().any(|(at, _)| *at <= by)
                })
            })
    }

    /// Keeps the buckets of a request for the time at which it can pass, unless earlier lanes have reserved them for earlier times.
    fn reserve(&mut self, key: Key, bytes: u64, at: Duration, reserved: &mut Reserved) {
        for of in self.scopes_of(key) {
            let Some(scope) = self.scopes.get_mut(&of) else { continue };
            for (measure, _) in scope.used(key.kind) {
                let one = (at, key.kind.cost(measure, bytes));
                let [first, soonest] = reserved.entry((of, measure)).or_default();
                match (*first, *soonest) {
                    (None, _) => *first = Some(one),
                    (Some((of_first, _)), None) if at < of_first => *soonest = Some(one),
                    (_, Some((of_soonest, _))) if at < of_soonest => *soonest = Some(one),
                    _ => {}
                }
            }
        }
    }

    fn take(&mut self, key: Key, bytes: u64, now: Duration) {
        self.each_used(key, |measure, bucket, counts, _| {
            let cost = key.kind.cost(measure, bytes);
            bucket.take(cost, now);
            counts.passed = counts.passed.saturating_add(cost);
        });
    }

    /// Counts a request that begins to wait.
    fn hold(&mut self, host: IpAddr, bytes: u64) -> Result<(), Full> {
        let one = self.held.get(&host).copied().unwrap_or_default();
        let Most { requests, requests_of_address, bytes: most, bytes_of_address } = self.most;
        let full = match () {
            () if self.all.requests >= requests => Some(Full::Requests(requests)),
            () if one.requests >= requests_of_address => {
                Some(Full::RequestsOfAddress(requests_of_address))
            }
            // Only requests that hold data meet these.
            () if bytes > 0 && self.all.bytes.saturating_add(bytes) > most => {
                Some(Full::Bytes(most))
            }
            () if bytes > 0 && one.bytes.saturating_add(bytes) > bytes_of_address => {
                Some(Full::BytesOfAddress(bytes_of_address))
            }
            () => None,
        };
        if let Some(full) = full {
            return Err(full);
        }
        for held in [&mut self.all, self.held.entry(host).or_default()] {
            held.requests += 1;
            held.bytes += bytes;
        }
        Ok(())
    }

    fn release(&mut self, host: IpAddr, bytes: u64) {
        let less = |held: &mut Held| {
            held.requests = held.requests.saturating_sub(1);
            held.bytes = held.bytes.saturating_sub(bytes);
        };
        less(&mut self.all);
        if let Some(held) = self.held.get_mut(&host) {
            less(held);
            if held.requests == 0 {
                self.held.remove(&host);
            }
        }
    }

    /// Copies the counters of all rates. [`Figures::readings`] finds the names, without the lock.
    pub(crate) fn figures(&mut self) -> Figures {
        let mut rows = Vec::new();
        let mut add = |place, rates: &Rates, counts: &mut AllCounts, waiting: &ByKind| {
            for (measure, counts) in Measure::ALL.into_iter().zip(counts) {
                if rates.of(measure).is_some() {
                    let by_kind = Kind::ALL.into_iter().zip(waiting);
                    let waiting = by_kind.filter(|(k, _)| k.uses(measure)).map(|(_, n)| n).sum();
                    counts.show();
                    rows.push(Figure { place, measure, counts: *counts, waiting });
                }
            }
        };
        if self.clients > 0 {
            let rates = &self.plan.client;
            add(Place::EachClient, rates, &mut self.of_clients, &self.clients_waiting);
        }
        for (of, place) in &self.readable {
            if let Some(scope) = self.scopes.get_mut(of) {
                add(*place, place.rates(&self.plan), &mut scope.counts, &scope.waiting);
            }
        }
        Figures { plan: self.plan.clone(), rows }
    }
}

/// A scope with a reading: its index in the plan.
#[derive(Clone, Copy, Debug)]
enum Place {
    All,
    EachClient,
    Share(usize),
    User(usize),
}

impl Place {
    fn rates(self, plan: &Plan) -> &Rates {
        match self {
            Self::All => &plan.all,
            Self::EachClient => &plan.client,
            Self::Share(at) => plan.shares.get(at).map_or(&plan.all, |s| &s.rates),
            Self::User(at) => plan.users.get(at).map_or(&plan.all, |u| &u.rates),
        }
    }

    fn name(self, plan: &Plan) -> ScopeName {
        let named = |name: Option<&String>| name.cloned().unwrap_or_default();
        match self {
            Self::All => ScopeName::All,
            Self::EachClient => ScopeName::EachClient,
            Self::Share(at) => ScopeName::Share(named(plan.shares.get(at).map(|s| &s.name))),
            Self::User(at) => ScopeName::User(named(plan.users.get(at).map(|u| &u.name))),
        }
    }
}

/// Lists the scopes of a plan, each once, apart from addresses.
fn readable(plan: &Plan) -> Vec<(Of, Place)> {
    let shares = plan.shares.iter().enumerate();
    let shares = shares.map(|(at, s)| (Of::Share(s.id), Place::Share(at)));
    let users = plan.users.iter().enumerate();
    let users = users.map(|(at, u)| (Of::User(number(&u.name)), Place::User(at)));
    let mut seen = HashSet::new();
    let all = [(Of::All, Place::All)].into_iter().chain(shares).chain(users);
    all.filter(|(of, _)| seen.insert(*of)).collect()
}

struct Figure {
    place: Place,
    measure: Measure,
    counts: Counts,
    waiting: usize,
}

/// The counters of all rates at one moment.
pub(crate) struct Figures {
    plan: Arc<Plan>,
    rows: Vec<Figure>,
}

impl Figures {
    /// Returns them with their names, in order.
    pub(crate) fn readings(self) -> Vec<Reading> {
        let plan = &self.plan;
        let reading = |row: Figure| {
            let rates = row.place.rates(plan);
            Reading {
                scope: row.place.name(plan),
                measure: row.measure,
                rate: rates.of(row.measure).unwrap_or_default(),
                burst: rates.burst,
                passed: row.counts.shown,
                waited: row.counts.waited,
                waited_for: row.counts.waited_for,
                waiting: row.waiting,
            }
        };
        let mut out: Vec<_> = self.rows.into_iter().map(reading).collect();
        out.sort_by(|a, b| (&a.scope, a.measure).cmp(&(&b.scope, b.measure)));
        out
    }
}

/// Returns the number of a user's name in any case: the same before and after a reload.
fn number(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.to_lowercase().hash(&mut hasher);
    hasher.finish()
}
