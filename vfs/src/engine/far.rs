//! Turns of a volume that may fall silent: another machine or a program answers for it.
//!
//! *Operation.* An operation that blocks for as long as the other says nothing takes with it, of the runtime's worker that runs it,
//! the tasks in its queue, and the turn to wait for sockets. So the worker leaves its place to another thread first
//! ([`tokio::task::block_in_place`]): everybody else goes on.
//!
//! What runs on threads (transfers, long work, syncs) has threads of the volume's own: [`engine`].
//!
//! *Memory.* A thread for each operation that waits, [`AT_ONCE`] for a volume at most, and payload up to the volume's part: of
//! operations, and of the [`JOBS_MAX`] jobs on threads, which keep it also when their clients have gone.
//!
//! *Errors.* [`VfsError::Delay`] for an operation that had no turn in [`PATIENCE`]: those before it get no answer. While that
//! lasts, for each that comes.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use iobuf::CLASS_SIZES;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::error::{VfsError, VfsResult};

use super::threads::Engine;

/// Operations of one volume under way at once.
const AT_ONCE: usize = 48;
/// How long an operation waits for its turn.
const PATIENCE: Duration = Duration::from_secs(2);
/// Jobs of one volume on its threads, waiting and under way: those of the operations, and some whose clients
/// have gone.
const JOBS_MAX: usize = AT_ONCE + 16;
/// How often a read that has memory finds that others have taken all turns meanwhile.
const TRIES: u32 = 3;
/// How long memory waits for a turn of a volume that many use.
const HELD_MAX: Duration = Duration::from_millis(200);

static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Operations that had no turn, since the start.
pub fn refused() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// Bytes of payload that are counted as one.
const UNIT: usize = 4 << 10;

/// Payload that an operation may hold: taken for as long as somebody has a clone, its client's request or a job on a thread.
pub(crate) type Room = Arc<OwnedSemaphorePermit>;

/// The turns of a volume.
pub(crate) struct Turns {
    free: Semaphore,
    /// Payload that may be held besides, in [`UNIT`]s, and all there is of it.
    room: Arc<Semaphore>,
    room_max: u32,
    /// All were taken for [`PATIENCE`], and no operation has ended since. Nobody waits for the next: the payload of a crowd that
    /// waits would be missed by other shares.
    stuck: AtomicBool,
}

/// One of them.
pub(crate) struct Turn<'a> {
    of: &'a Turns,
    room: Option<Room>,
    _permit: SemaphorePermit<'a>,
}

impl Turn<'_> {
    /// For a job that holds the operation's payload on a thread.
    pub(crate) fn room(&self) -> Option<Room> {
        self.room.clone()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.of.stuck.store(false, Ordering::Relaxed);
    }
}

/// Threads for one volume that may fall silent.
pub(crate) fn engine() -> Arc<Engine> {
    Engine::of_one(JOBS_MAX, &REFUSED)
}

/// Bytes of the buffers that hold so many (see `iobuf::CLASS_SIZES`).
fn held(bytes: usize) -> usize {
    let [small, middle, large] = CLASS_SIZES;
    [small, middle].into_iter().find(|size| bytes <= *size).unwrap_or(bytes.next_multiple_of(large))
}

fn refuse() -> VfsError {
    REFUSED.fetch_add(1, Ordering::Relaxed);
    VfsError::Delay
}

impl Turns {
    /// With so many bytes of payload.
    pub(crate) fn new(payload_max: usize) -> Self {
        let room_max = u32::try_from(payload_max / UNIT).unwrap_or(u32::MAX).max(1);
        Self {
            free: Semaphore::new(AT_ONCE),
            room: Arc::new(Semaphore::new(room_max as usize)),
            room_max,
            stuck: AtomicBool::new(false),
        }
    }

    /// For an operation with so many bytes of payload.
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
        let room = match self.units(bytes) {
            0 => None,
            units => Some(Arc::new(self.room.clone().acquire_many_owned(units).await?)),
        };
        Ok(Turn { of: self, room, _permit: self.free.acquire().await? })
    }

    fn at_once(&self, bytes: usize) -> Option<Turn<'_>> {
        let permit = self.free.try_acquire().ok()?;
        let room = match self.units(bytes) {
            0 => None,
            units => Some(Arc::new(self.room.clone().try_acquire_many_owned(units).ok()?)),
        };
        Some(Turn { of: self, room, _permit: permit })
    }

    /// One operation has room by itself, whatever its size.
    fn units(&self, bytes: usize) -> u32 {
        match bytes {
            0 => 0,
            _ => u32::try_from(held(bytes) / UNIT).unwrap_or(u32::MAX).min(self.room_max),
        }
    }

    /// An operation without payload each step of which may block, in its turn.
    pub(crate) async fn stepped<T>(&self, f: impl Future<Output = VfsResult<T>>) -> VfsResult<T> {
        let _turn = self.next(0).await?;
        polled(f).await
    }

    /// The same for an operation that holds so many bytes of payload.
    pub(crate) async fn stepped_with<T, F: Future<Output = VfsResult<T>>>(
        &self,
        bytes: usize,
        f: impl FnOnce(Option<Room>) -> F,
    ) -> VfsResult<T> {
        let turn = self.next(bytes).await?;
        polled(f(turn.room())).await
    }

    /// An operation that holds so many bytes of payload and does all that may block on the volume's threads ([`engine`]).
    pub(crate) async fn on_threads<T, F: Future<Output = VfsResult<T>>>(
        &self,
        bytes: usize,
        f: impl FnOnce(Option<Room>) -> F,
    ) -> VfsResult<T> {
        let turn = self.next(bytes).await?;
        f(turn.room()).await
    }

    /// A turn together with what depends on other clients, such as memory. Waits for neither while it has the other: a client that
    /// takes no answers keeps nobody from the volume, and a volume that hangs keeps no memory from others. The turn has room for so
    /// many bytes.
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
            // Many want both: the last time it waits for a turn with what it has, though not for long.
            if round == TRIES
                && let Ok(turn) = tokio::time::timeout(HELD_MAX, self.next(bytes)).await
            {
                return Ok((turn?, got));
            }
        }
        Err(refuse())
    }
}

/// Runs what may block, with no task behind it. Elsewhere than on a worker of several there is nobody to leave the place to.
fn in_place<T>(f: impl FnOnce() -> T) -> T {
    let has_others = |h: Handle| h.runtime_flavor() == RuntimeFlavor::MultiThread;
    if Handle::try_current().is_ok_and(has_others) { tokio::task::block_in_place(f) } else { f() }
}

/// A part of an operation that has its turn.
pub(crate) async fn polled<T>(f: impl Future<Output = T>) -> T {
    let mut f = pin!(f);
    poll_fn(|cx| in_place(|| f.as_mut().poll(cx))).await
}
