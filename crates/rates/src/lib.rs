//! Rates that an operator sets: bytes and operations for each second, for a share, a user, a client, or all together.
//!
//! *Operation.* A protocol calls [`Limits::admit`] after it has checked the rights of a request, and before the request acts. The
//! request passes at once or waits; it holds no lock, no thread and no memory beyond its own message meanwhile. Afterwards
//! [`Limits::settle`] puts back what it asked for and did not move. The engine decides who passes ([`engine`]).
//!
//! *Memory.* Requests that wait are limited ([`Most`]).
//!
//! *Cost.* Without rates, a request loads one atomic; else it takes one lock for its few buckets.
//!
//! *Errors.* [`Refused`]: the request waited too long, or too many wait.

#![allow(missing_docs, reason = "comments that only repeat a name are left out")]

mod bucket;
mod debts;
mod engine;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mutex::locked;
use policy::{Measure, Rates};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use engine::{Arrival, Engine, Key};
pub use engine::{Caller, Kind};

/// The shortest time between two looks at all that wait.
const PAUSE: Duration = Duration::from_millis(1);
/// The most lanes of waiting requests for which an arriving one looks at all.
const LOOKED_AT_ONCE: usize = 64;

/// All rates of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Limits all clients together.
    pub all: Rates,
    /// Limits each client address.
    pub client: Rates,
    pub shares: Vec<OfShare>,
    pub users: Vec<OfUser>,
}

/// The rates of a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfShare {
    /// Its number in file handles.
    pub id: u32,
    pub name: String,
    pub rates: Rates,
}

/// The rates of a user, over all protocols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfUser {
    /// The name that SMB clients log on with; case is ignored.
    pub name: String,
    /// The number of NFS calls; `None`: its NFS calls do not count.
    pub uid: Option<u32>,
    pub rates: Rates,
}

/// The most that requests may hold while they wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    pub requests: usize,
    /// Of one address.
    pub requests_of_address: usize,
    /// Payload memory of writes that wait.
    pub bytes: u64,
    /// Of one address.
    pub bytes_of_address: u64,
}

impl Most {
    /// Requests that wait, in all.
    pub const REQUESTS: usize = 16_384;
    /// Requests that wait, of one address or IPv6 network of 64 bits.
    pub const REQUESTS_OF_ADDRESS: usize = 2_048;

    /// Derives the limits from the payload memory in large buffers: half of it is left to others, and three quarters by each
    /// address.
    pub fn of_memory(bytes: u64) -> Self {
        /// The largest WRITE of SMB.
        const LARGEST: u64 = 8 << 20;
        Self {
            requests: Self::REQUESTS,
            requests_of_address: Self::REQUESTS_OF_ADDRESS,
            bytes: (bytes / 2).max(2 * LARGEST),
            bytes_of_address: (bytes / 4).max(LARGEST),
        }
    }
}

/// The limit that a request met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    Requests(usize),
    RequestsOfAddress(usize),
    Bytes(u64),
    BytesOfAddress(u64),
}

/// Why a request may not act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It waited as long as its protocol lets it.
    Late,
    /// Too many wait.
    Full(Full),
}

impl Refused {
    /// The name of the limit, and its value.
    pub fn limit(self) -> (&'static str, usize) {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        match self {
            Self::Late => ("rate-wait", usize::try_from(Limits::LONGEST.as_secs()).unwrap_or(0)),
            Self::Full(Full::Requests(most)) => ("rate-waits", most),
            Self::Full(Full::RequestsOfAddress(most)) => ("rate-waits-of-address", most),
            Self::Full(Full::Bytes(most)) => ("rate-bytes", size(most)),
            Self::Full(Full::BytesOfAddress(most)) => ("rate-bytes-of-address", size(most)),
        }
    }
}

/// The scope of a rate.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScopeName {
    #[default]
    All,
    /// Each client address.
    EachClient,
    Share(String),
    User(String),
}

impl ScopeName {
    /// The word for its kind: `all`, `client`, `share` or `user`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::All => "all",
            Self::EachClient => "client",
            Self::Share(_) => "share",
            Self::User(_) => "user",
        }
    }

    /// The name of the share or user; empty for others.
    pub fn name(&self) -> &str {
        match self {
            Self::All | Self::EachClient => "",
            Self::Share(name) | Self::User(name) => name,
        }
    }
}

/// The counters of a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    pub scope: ScopeName,
    pub measure: Measure,
    /// Bytes or operations for each second.
    pub rate: u64,
    pub burst: Duration,
    /// Bytes or operations that passed.
    pub passed: u64,
    /// Requests that had to wait and passed.
    pub waited: u64,
    /// The time that they waited, together.
    pub waited_for: Duration,
    /// Requests that wait now.
    pub waiting: usize,
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            scope: ScopeName::All,
            measure: Measure::Read,
            rate: 0,
            burst: Duration::ZERO,
            passed: 0,
            waited: 0,
            waited_for: Duration::ZERO,
            waiting: 0,
        }
    }
}

/// A request that asks whether it may act.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Number of its share.
    pub share: u32,
    /// The client's address, or its IPv6 network of 64 bits.
    pub host: IpAddr,
    pub caller: Caller<'a>,
    pub kind: Kind,
    /// Bytes of file data that it moves at most.
    pub bytes: u64,
    /// Payload memory that it holds while it waits.
    pub held: u64,
}

/// A request that may act.
#[derive(Clone, Copy, Debug)]
#[must_use = "the bytes that it does not move are to be put back by `settle`"]
pub struct Admitted {
    took: Option<(Key, u64)>,
    has_waited: bool,
    /// It did not wait, although a rate may have been exceeded.
    is_owed: bool,
}

impl Admitted {
    /// The pass of a request that no rate applies to.
    pub const FREE: Self = Self { took: None, has_waited: false, is_owed: false };

    /// Returns true if time has passed, so that what was checked before may have changed.
    pub fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// Returns true if a rate applies to it.
    pub fn is_limited(&self) -> bool {
        self.took.is_some()
    }
}

type Tell = oneshot::Sender<()>;

/// The rates in force, and the requests that wait.
pub struct Limits {
    is_on: AtomicBool,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Notify,
    /// Requests refused because they waited too long, or because too many wait.
    refused: AtomicU64,
    origin: Instant,
}

struct State {
    engine: Engine<Tell>,
    /// A task lets those pass that wait.
    is_driven: bool,
    looked_at: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let engine = Engine::new(Most::of_memory(256 << 20));
        let state = State { engine, is_driven: false, looked_at: Duration::ZERO };
        let shared = Shared {
            state: Mutex::new(state),
            changed: Notify::new(),
            refused: AtomicU64::new(0),
            origin: Instant::now(),
        };
        Self { is_on: AtomicBool::new(false), shared: Arc::new(shared) }
    }
}

impl std::fmt::Debug for Limits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limits").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}

impl Limits {
    /// The longest wait of a request whose client repeats it when told to.
    pub const LONGEST: Duration = Duration::from_secs(30);

    /// Returns true if any rate is set.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Puts other rates in force, for those that wait as well.
    pub fn set(&self, plan: Plan, most: Most) {
        let mut state = locked(&self.shared.state);
        let now = self.shared.now();
        state.engine.set_most(most);
        state.engine.set(plan, now);
        let is_on = state.engine.is_on();
        self.is_on.store(is_on, Ordering::Relaxed);
        let passed =
            if is_on { self.shared.look(&mut state, now).0 } else { state.engine.release_all() };
        drop(state);
        passed.into_iter().for_each(tell);
        self.shared.changed.notify_one();
    }

    /// Lets all pass that wait, and all that come: the gateway ends, and waits for its requests.
    pub fn lift(&self) {
        self.set(Plan::default(), Most::of_memory(0));
    }

    /// Waits until the request may act, `longest` at most. A future that is dropped leaves its place.
    ///
    /// # Errors
    ///
    /// [`Refused`].
    pub async fn admit(&self, ask: &Ask<'_>, longest: Duration) -> Result<Admitted, Refused> {
        if !self.is_on() {
            return Ok(Admitted::FREE);
        }
        match self.arrive(ask) {
            Ok(Begun::Passes(admitted)) => Ok(admitted),
            Ok(Begun::Waits(mut waits)) => {
                let told = tokio::time::timeout(longest, &mut waits.told).await;
                match told {
                    Ok(_) => {
                        waits.is_over = true;
                        let took = Some((waits.key, ask.bytes));
                        Ok(Admitted { took, has_waited: true, is_owed: false })
                    }
                    Err(_) => Err(self.refuse(Refused::Late)),
                }
            }
            Err(full) => Err(self.refuse(Refused::Full(full))),
        }
    }

    /// Counts a request that must not wait, because others wait for what it does. [`Self::settle`] makes its bytes a debt, which
    /// later requests wait for.
    pub fn owe(&self, ask: &Ask<'_>) -> Admitted {
        if !self.is_on() {
            return Admitted::FREE;
        }
        let now = self.shared.now();
        let engine = &mut locked(&self.shared.state).engine;
        let key = engine.key(ask.share, ask.host, ask.caller, ask.kind);
        let took = engine.owe(key, now).then_some((key, 0));
        Admitted { took, has_waited: false, is_owed: true }
    }

    fn refuse(&self, why: Refused) -> Refused {
        self.shared.refused.fetch_add(1, Ordering::Relaxed);
        why
    }

    fn arrive(&self, ask: &Ask<'_>) -> Result<Begun, Full> {
        let mut guard = locked(&self.shared.state);
        let state = &mut *guard;
        let now = self.shared.now();
        let key = state.engine.key(ask.share, ask.host, ask.caller, ask.kind);
        let mut told = None;
        let arrival = state.engine.arrive(key, (ask.bytes, ask.held), now, || {
            let (tell, hears) = oneshot::channel();
            told = Some(hears);
            tell
        })?;
        let (Arrival::Waits(id), Some(told)) = (&arrival, told) else {
            let took = (arrival == Arrival::Passed).then_some((key, ask.bytes));
            return Ok(Begun::Passes(Admitted { took, has_waited: false, is_owed: false }));
        };
        let id = *id;
        let is_driven = std::mem::replace(&mut state.is_driven, true);
        // A look at a few is quick, and it may pass before those that wait for longer.
        let looks = state.engine.lanes() <= LOOKED_AT_ONCE;
        let passed = if looks { self.shared.look(state, now).0 } else { Vec::new() };
        drop(guard);
        passed.into_iter().for_each(tell);
        if !is_driven {
            tokio::spawn(drive(self.shared.clone()));
        } else {
            self.shared.changed.notify_one();
        }
        let (shared, bytes) = (self.shared.clone(), ask.bytes);
        Ok(Begun::Waits(Waits { shared, key, id, bytes, told, is_over: false }))
    }

    /// Notes that an admitted request has moved `moved` bytes: fewer than it asked for are put back, more are owed.
    pub fn settle(&self, admitted: Admitted, moved: u64) {
        let Some((key, asked)) = admitted.took.filter(|(_, asked)| *asked != moved) else { return };
        let now = self.shared.now();
        locked(&self.shared.state).engine.settle(key, (asked, admitted.is_owed), moved, now);
        if moved < asked {
            self.shared.changed.notify_one();
        }
    }

    /// Returns the number of requests that wait, and of those that were refused.
    pub fn counts(&self) -> (usize, u64) {
        let refused = self.shared.refused.load(Ordering::Relaxed);
        (locked(&self.shared.state).engine.waiting(), refused)
    }

    /// Returns the counters of all rates, in order.
    pub fn read(&self) -> Vec<Reading> {
        let figures = locked(&self.shared.state).engine.figures();
        figures.readings()
    }
}

enum Begun {
    Passes(Admitted),
    Waits(Waits),
}

/// A place among those that wait, left when dropped.
struct Waits {
    shared: Arc<Shared>,
    key: Key,
    id: u64,
    bytes: u64,
    told: oneshot::Receiver<()>,
    is_over: bool,
}

impl Drop for Waits {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = locked(&self.shared.state);
        let now = self.shared.now();
        if !state.engine.give_up(self.key, self.id, now) {
            // It passed at the moment at which it was given up.
            state.engine.undo(self.key, self.bytes, now);
        }
        drop(state);
        self.shared.changed.notify_one();
    }
}

impl Shared {
    /// The time since the rates exist, by the runtime's clock.
    fn now(&self) -> Duration {
        Instant::now().saturating_duration_since(self.origin)
    }

    fn look(&self, state: &mut State, now: Duration) -> (Vec<Tell>, Option<Duration>) {
        state.looked_at = now;
        state.engine.turn(now)
    }
}

fn tell(to: Tell) {
    // A request that was given up meanwhile puts back what it took.
    let _ = to.send(());
}

/// Lets requests pass as time does, and ends with the last of them.
async fn drive(shared: Arc<Shared>) {
    loop {
        let (passed, next, rest) = {
            let mut state = locked(&shared.state);
            let now = shared.now();
            let rest = (state.looked_at + PAUSE).saturating_sub(now);
            if rest.is_zero() {
                let (passed, next) = shared.look(&mut state, now);
                if passed.is_empty() && state.engine.waiting() == 0 {
                    state.is_driven = false;
                    return;
                }
                (passed, next, Duration::ZERO)
            } else {
                (Vec::new(), None, rest)
            }
        };
        passed.into_iter().for_each(tell);
        if !rest.is_zero() {
            tokio::time::sleep(rest).await;
            continue;
        }
        // Without a time, only a change lets more pass.
        let wait = next.unwrap_or(Duration::from_secs(1)).max(PAUSE);
        let _ = tokio::time::timeout(wait, shared.changed.notified()).await;
    }
}
