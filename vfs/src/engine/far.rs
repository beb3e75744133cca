//! Turns of a volume that may stop responding, because another machine or a program serves it.
//!
//! *Operation.* An operation that blocks without an answer would also block the tasks queued on its worker of the runtime, and
//! possibly the polling of sockets. So the worker is replaced by another thread first ([`tokio::task::block_in_place`]).
//!
//! Transfers, long work and syncs run on the volume's own threads: [`engine`].
//!
//! *Memory.* A thread for each waiting operation, at most [`AT_ONCE`] for a volume, and payload within the volume's part
//! ([`PayloadBudget`]): of operations, and of the [`JOBS_MAX`] jobs on threads, which keep it even after their clients have
//! disconnected.
//!
//! *Errors.* [`VfsError::Delay`] for an operation that got no turn within [`PATIENCE`], because earlier ones get no answer; while
//! that lasts, for every further one at once.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Poll;
use std::time::Duration;

use iobuf::CLASS_SIZES;
use mutex::locked;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::error::{VfsError, VfsResult};

use super::threads::Engine;

/// Concurrent operations of one volume.
const AT_ONCE: usize = 48;
/// How long an operation waits for its turn.
const PATIENCE: Duration = Duration::from_secs(2);
/// Jobs of one volume on its threads, waiting and running, including some whose clients have disconnected.
const JOBS_MAX: usize = AT_ONCE + 16;
/// How often a read that has memory retries because others have taken all turns.
const TRIES: u32 = 3;
/// How long allocated memory waits for a turn of a busy volume.
const HELD_MAX: Duration = Duration::from_millis(200);

static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Number of operations without a turn, since the start.
pub fn refused() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// Unit of payload accounting, in bytes.
const UNIT: usize = 4 << 10;

/// Payload that an operation may hold: reserved until all clones are dropped, by the client's request and by jobs on threads.
pub(crate) type Room = Arc<[Taken]>;

/// The payload of all volumes of one server that may stop responding. Clones share it.
///
/// One volume may hold at most a quarter of all payload, and all together three quarters: the rest is for volumes that always
/// respond. A thirty-second is reserved for each volume, so that a responding one continues while others hang with the rest.
#[derive(Clone, Debug)]
pub struct PayloadBudget(Arc<Budget>);

#[derive(Debug)]
struct Budget {
    common: Units,
    volumes: Mutex<Volumes>,
}

/// The size of each volume's part, and the existing volumes.
#[derive(Debug)]
struct Volumes {
    sizes: Sizes,
    parts: Vec<Weak<Parts>>,
}

/// Sizes in [`UNIT`]s.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    own: u32,
    of_one: u32,
    of_all: u32,
}

impl Sizes {
    fn of(bytes: u64) -> Self {
        // A semaphore supports at most an eighth of the number range.
        let units = |part: u64| {
            u32::try_from(part / UNIT as u64).unwrap_or(u32::MAX).clamp(1, u32::MAX >> 3)
        };
        Self { own: units(bytes / 32), of_one: units(bytes / 32 * 7), of_all: units(bytes / 4 * 3) }
    }
}

impl PayloadBudget {
    /// Creates a budget of this many bytes.
    pub fn of(bytes: u64) -> Self {
        let sizes = Sizes::of(bytes);
        let volumes = Mutex::new(Volumes { sizes, parts: Vec::new() });
        Self(Arc::new(Budget { common: Units::new(sizes.of_all), volumes }))
    }

    /// Changes the budget, also for existing volumes. Amounts in use above it are not granted again.
    pub fn resize(&self, bytes: u64) {
        let mut volumes = self.volumes();
        volumes.sizes = Sizes::of(bytes);
        let Sizes { own, of_one, of_all } = volumes.sizes;
        self.0.common.resize(of_all);
        for parts in volumes.parts.iter().filter_map(Weak::upgrade) {
            parts.own.resize(own);
            parts.of_common.resize(of_one);
        }
    }

    fn volumes(&self) -> MutexGuard<'_, Volumes> {
        locked(&self.0.volumes)
    }

    /// Reserves the shares of a new volume.
    fn parts(&self) -> Arc<Parts> {
        let mut volumes = self.volumes();
        let Sizes { own, of_one, .. } = volumes.sizes;
        let parts = Arc::new(Parts { own: Units::new(own), of_common: Units::new(of_one) });
        volumes.parts.retain(|parts| parts.strong_count() > 0);
        volumes.parts.push(Arc::downgrade(&parts));
        parts
    }
}

impl Default for PayloadBudget {
    /// A budget that is never exhausted.
    fn default() -> Self {
        Self::of(u64::MAX)
    }
}

/// The parts of one volume.
#[derive(Debug)]
struct Parts {
    /// Payload reserved for this volume.
    own: Units,
    /// Limit of this volume on the shared payload.
    of_common: Units,
}

/// A counter of payload in [`UNIT`]s, with its limit.
#[derive(Debug)]
struct Units {
    free: Arc<Semaphore>,
    all: AtomicU32,
    /// Units in use that must not be granted again.
    excess: Arc<AtomicU32>,
}

impl Units {
    fn new(all: u32) -> Self {
        let free = Arc::new(Semaphore::new(all as usize));
        Self { free, all: all.into(), excess: Arc::default() }
    }

    fn all(&self) -> u32 {
        self.all.load(Ordering::Relaxed)
    }

    /// Must not be called concurrently.
    fn resize(&self, all: u32) {
        let before = self.all.swap(all, Ordering::Relaxed);
        let more = all.saturating_sub(before);
        let kept = take_from(&self.excess, more);
        self.free.add_permits((more - kept) as usize);
        let less = before.saturating_sub(all);
        let forgotten = self.free.forget_permits(less as usize);
        self.excess.fetch_add(less - u32::try_from(forgotten).unwrap_or(less), Ordering::Relaxed);
    }

    /// The units charged for a request: a single operation always fits, whatever its size.
    fn of(&self, units: u32) -> u32 {
        units.min(self.all())
    }

    fn taken(&self, permit: OwnedSemaphorePermit) -> Taken {
        Taken { permit, excess: self.excess.clone() }
    }

    fn try_take(&self, units: u32) -> Option<Taken> {
        let permit = self.free.clone().try_acquire_many_owned(self.of(units)).ok()?;
        Some(self.taken(permit))
    }

    async fn take(&self, units: u32) -> Result<Taken, AcquireError> {
        let permit = self.free.clone().acquire_many_owned(self.of(units)).await?;
        Ok(self.taken(permit))
    }
}

/// A charge for payload, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    permit: OwnedSemaphorePermit,
    excess: Arc<AtomicU32>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let held = u32::try_from(self.permit.num_permits()).unwrap_or(u32::MAX);
        let kept = take_from(&self.excess, held);
        if let Some(kept) = self.permit.split(kept as usize) {
            kept.forget();
        }
    }
}

/// Decrements a number by at most this; returns by how much.
fn take_from(number: &AtomicU32, most: u32) -> u32 {
    let less = |n: u32| Some(n.saturating_sub(most));
    let before = number.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    before.unwrap_or_default().min(most)
}

/// The turns of a volume.
pub(crate) struct Turns {
    free: Semaphore,
    parts: Arc<Parts>,
    budget: PayloadBudget,
    /// All turns were taken for [`PATIENCE`], and no operation has ended since. Operations then fail at once: the payload of
    /// waiting ones would be missing for other shares.
    stuck: AtomicBool,
}

/// A turn of the volume, held until it is dropped.
pub(crate) struct Turn<'a> {
    of: &'a Turns,
    room: Option<Room>,
    _permit: SemaphorePermit<'a>,
}

impl Turn<'_> {
    /// The operation's payload, for a job that keeps it on a thread.
    pub(crate) fn room(&self) -> Option<Room> {
        self.room.clone()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.of.stuck.store(false, Ordering::Relaxed);
    }
}

/// Creates threads for one volume that may stop responding.
pub(crate) fn engine() -> Arc<Engine> {
    Engine::of_one(JOBS_MAX, &REFUSED)
}

/// Bytes of the buffers for this many (see `iobuf::CLASS_SIZES`).
fn held(bytes: usize) -> usize {
    let [small, middle, large] = CLASS_SIZES;
    [small, middle].into_iter().find(|size| bytes <= *size).unwrap_or(bytes.next_multiple_of(large))
}

/// Units of the buffers for this many bytes.
fn units(bytes: usize) -> u32 {
    match bytes {
        0 => 0,
        _ => u32::try_from(held(bytes) / UNIT).unwrap_or(u32::MAX),
    }
}

fn refuse() -> VfsError {
    REFUSED.fetch_add(1, Ordering::Relaxed);
    VfsError::Delay
}

impl Turns {
    /// Creates turns with a part of this budget.
    pub(crate) fn new(payload: &PayloadBudget) -> Self {
        Self {
            free: Semaphore::new(AT_ONCE),
            parts: payload.parts(),
            budget: payload.clone(),
            stuck: AtomicBool::new(false),
        }
    }

    /// Takes a turn for an operation with this many bytes of payload.
    async fn next(&self, bytes: usize) -> VfsResult<Turn<'_>> {
        if let Some(turn) = self.at_once(bytes) {
            return Ok(turn);
        }
        if !self.stuck.load(Ordering::Relaxed) {
            match tokio::time::timeout(PATIENCE, self.both(bytes)).await {
                Ok(Ok(turn)) => return Ok(turn),
                _ => self.stuck.store(true, Ordering::Relaxed),
            }
        }
        Err(refuse())
    }

    async fn both(&self, bytes: usize) -> Result<Turn<'_>, AcquireError> {
        let room = match units(bytes) {
            0 => None,
            // Boxed because waiting is rare, and the future would enlarge every operation.
            units => Some(Box::pin(self.room(units)).await?),
        };
        Ok(Turn { of: self, room, _permit: self.free.acquire().await? })
    }

    /// Takes payload of the volume's own part or of the shared one, whichever is available first.
    async fn room(&self, units: u32) -> Result<Room, AcquireError> {
        let shared = async {
            // In this order, so that waiting for the volume's limit does not occupy shared payload.
            let part = self.parts.of_common.take(units).await?;
            Ok([part, self.budget.0.common.take(units).await?].into())
        };
        tokio::select! {
            own = self.parts.own.take(units) => Ok([own?].into()),
            both = shared => both,
        }
    }

    fn at_once(&self, bytes: usize) -> Option<Turn<'_>> {
        let permit = self.free.try_acquire().ok()?;
        let room = match units(bytes) {
            0 => None,
            units => Some(self.room_at_once(units)?),
        };
        Some(Turn { of: self, room, _permit: permit })
    }

    /// One operation larger than the volume's own part may use it as a last resort: it is charged less than its size there.
    fn room_at_once(&self, units: u32) -> Option<Room> {
        let Parts { own, of_common } = &*self.parts;
        let of_own = || Some([own.try_take(units)?].into());
        let shared = || {
            let part = of_common.try_take(units)?;
            Some([part, self.budget.0.common.try_take(units)?].into())
        };
        if units <= own.all() { of_own().or_else(shared) } else { shared().or_else(of_own) }
    }

    /// Runs an operation without payload, each step of which may block, in its turn.
    pub(crate) async fn stepped<T>(&self, f: impl Future<Output = VfsResult<T>>) -> VfsResult<T> {
        let _turn = self.next(0).await?;
        polled(f).await
    }

    /// Runs blocking work in a turn if one is free now, as part of an operation of another volume.
    pub(crate) fn in_turn_at_once<T>(&self, f: impl FnOnce() -> VfsResult<T>) -> VfsResult<T> {
        let _turn = self.at_once(0).ok_or_else(refuse)?;
        in_place(f)
    }

    /// Like [`Turns::stepped`], for an operation with this many bytes of payload.
    pub(crate) async fn stepped_with<T, F: Future<Output = VfsResult<T>>>(
        &self,
        bytes: usize,
        f: impl FnOnce(Option<Room>) -> F,
    ) -> VfsResult<T> {
        let turn = self.next(bytes).await?;
        polled(f(turn.room())).await
    }

    /// Runs an operation with this many bytes of payload that does all blocking work on the volume's threads ([`engine`]).
    pub(crate) async fn on_threads<T, F: Future<Output = VfsResult<T>>>(
        &self,
        bytes: usize,
        f: impl FnOnce(Option<Room>) -> F,
    ) -> VfsResult<T> {
        let turn = self.next(bytes).await?;
        f(turn.room()).await
    }

    /// Takes a turn together with a resource that depends on other clients, such as memory. Waits for neither while it holds the
    /// other: a client that takes no replies must not block the volume, and a hanging volume must not occupy memory. The turn
    /// covers this many bytes.
    pub(crate) async fn next_with<T, F: Future<Output = VfsResult<T>>>(
        &self,
        bytes: usize,
        wanted: impl Fn() -> F,
    ) -> VfsResult<(Turn<'_>, T)> {
        for round in 1..=TRIES {
            let turn = self.next(bytes).await?;
            {
                let mut got = pin!(wanted());
                let at_once = poll_fn(|cx| Poll::Ready(got.as_mut().poll(cx))).await;
                if let Poll::Ready(got) = at_once {
                    return Ok((turn, got?));
                }
            }
            drop(turn);
            let got = wanted().await?;
            if let Some(turn) = self.at_once(bytes) {
                return Ok((turn, got));
            }
            // The last attempt under contention waits for a turn while holding the resource, for a short time.
            if round == TRIES
                && let Ok(turn) = tokio::time::timeout(HELD_MAX, self.next(bytes)).await
            {
                return Ok((turn?, got));
            }
        }
        Err(refuse())
    }
}

/// Runs blocking work outside of a task. On a runtime with a single thread there is no other worker to take over.
pub(crate) fn in_place<T>(f: impl FnOnce() -> T) -> T {
    let has_others = |h: Handle| h.runtime_flavor() == RuntimeFlavor::MultiThread;
    if Handle::try_current().is_ok_and(has_others) { tokio::task::block_in_place(f) } else { f() }
}

/// Runs part of an operation that has its turn.
pub(crate) async fn polled<T>(f: impl Future<Output = T>) -> T {
    let mut f = pin!(f);
    poll_fn(|cx| in_place(|| f.as_mut().poll(cx))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;
    const ALL: usize = 128 * MIB;

    /// Fills a hanging volume; returns the rooms of transfers of 1 MiB that never end.
    fn filled(volume: &Turns) -> Vec<Room> {
        std::iter::from_fn(|| volume.room_at_once(units(MIB))).collect()
    }

    #[test]
    fn hanging_volume_leaves_payload_for_others() {
        let budget = PayloadBudget::of(ALL as u64);
        let volumes: Vec<Turns> = (0..5).map(|_| Turns::new(&budget)).collect();
        let held: Vec<_> = volumes[..4].iter().map(filled).collect();
        assert_eq!(held[0].len() * MIB, ALL / 4);
        let all: usize = held.iter().map(Vec::len).sum();
        assert_eq!(
            all * MIB,
            ALL / 4 * 3 + 4 * ALL / 32,
            "the rest is for volumes that always answer"
        );
        let rest = filled(&volumes[4]);
        assert_eq!(
            rest.len() * MIB,
            ALL / 32,
            "and its own for one that may fall silent and does not"
        );
        // An operation of any size gets its turn.
        drop(rest);
        assert!(volumes[4].at_once(64 * MIB).is_some());
    }

    #[test]
    fn resized_budget_applies_to_volumes() {
        let budget = PayloadBudget::of(ALL as u64);
        let volume = Turns::new(&budget);
        let room = |held: &[Room]| held.len() * MIB;
        let held = filled(&volume);
        assert_eq!(room(&held), ALL / 4);
        budget.resize(ALL as u64 / 2);
        assert!(volume.room_at_once(units(MIB)).is_none());
        drop(held);
        let held = filled(&volume);
        assert_eq!(room(&held), ALL / 8, "what was held beyond it is not given out again");
        budget.resize(2 * ALL as u64);
        let more = filled(&volume);
        assert_eq!(room(&held) + room(&more), ALL / 2);
        assert_eq!(room(&filled(&Turns::new(&budget))), ALL / 2);
        // Twice while all is in use: the second call must not grant what is still owed.
        for bytes in [ALL / 2, ALL] {
            budget.resize(bytes as u64);
        }
        assert!(volume.room_at_once(units(MIB)).is_none());
        drop((held, more));
        assert_eq!(room(&filled(&volume)), ALL / 4);
    }

    #[tokio::test]
    async fn waiter_takes_first_available_payload() {
        let budget = PayloadBudget::of(ALL as u64);
        let (one, other) = (Turns::new(&budget), Turns::new(&budget));
        let mut held = filled(&one);
        // The volume's own part was taken first.
        let ends = [held.remove(0), held.remove(held.len() - 1)];
        let mut turns = Vec::new();
        for first in ends {
            let mut waits = pin!(one.next(MIB));
            assert!(poll_fn(|cx| Poll::Ready(waits.as_mut().poll(cx).is_pending())).await);
            assert!(other.at_once(MIB).is_some(), "another volume does not notice");
            drop(first);
            turns.push(waits.await.unwrap_or_else(|e| panic!("{e}")));
        }
    }
}
