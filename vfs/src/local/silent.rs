//! File systems that may fall silent: another machine or a program answers for them.
//!
//! *Operation.* An operation on a disk of this host runs in place. On FUSE, NFS, CIFS, Ceph and the like it blocks for as
//! long as the other says nothing, and a worker of the runtime that blocks takes with it the tasks in its queue, and the turn
//! to wait for sockets. So the worker leaves its place to another thread first ([`tokio::task::block_in_place`]): everybody
//! else goes on.
//!
//! What runs on threads (transfers, long work, syncs) has threads of the volume's own: [`Engine::of_one`].
//!
//! *Memory.* A thread for each operation that waits, [`AT_ONCE`] for a volume at most, and payload up to the volume's part
//! ([`LocalConfig::payload_max`](super::LocalConfig)): of operations, and of the [`JOBS_MAX`] jobs on threads, which keep it also
//! when their clients have gone.
//!
//! *Errors.* [`VfsError::Delay`] for an operation that had no turn in [`PATIENCE`]: those before it get no answer. While that
//! lasts, for each that comes.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use iobuf::CLASS_SIZES;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::backend::{BoxFuture, ready};
use crate::engine::threads::Engine;
use crate::error::{VfsError, VfsResult};

use super::Volume;
use super::data::DataFd;

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

/// Of file systems that ask somebody else (statfs(2), linux/magic.h).
const KINDS: [u64; 17] = [
    0x6573_5546, // FUSE, virtiofs
    0x6969,      // NFS
    0x517b,      // smbfs
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB 2 and 3
    0x00c3_6400, // Ceph
    0x0102_1997, // 9p
    0x5346_414f, // AFS
    0x6b41_4653, // kAFS
    0x7375_7245, // Coda
    0x0187,      // autofs
    0x0bd0_0bd0, // Lustre
    0x4750_4653, // GPFS
    0x7461_636f, // OCFS2
    0x0116_1970, // GFS2
    0x2003_0528, // OrangeFS
    0x786f_4256, // vboxsf
];

static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Operations that had no turn, since the start.
pub fn refused() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// Bytes of payload that are counted as one.
const UNIT: usize = 4 << 10;

/// Payload that an operation may hold: taken for as long as somebody has a clone, its client's request or a job on a thread.
pub(super) type Room = Arc<OwnedSemaphorePermit>;

/// The turns of a volume.
pub(super) struct Turns {
    free: Semaphore,
    /// Payload that may be held besides, in [`UNIT`]s, and all there is of it.
    room: Arc<Semaphore>,
    room_max: u32,
    /// All were taken for [`PATIENCE`], and no operation has ended since. Nobody waits for the next: the payload of a crowd that
    /// waits would be missed by other shares.
    stuck: AtomicBool,
}

/// One of them.
pub(super) struct Turn<'a> {
    of: &'a Turns,
    room: Option<Room>,
    _permit: SemaphorePermit<'a>,
}

impl Turn<'_> {
    /// For a job that holds the operation's payload on a thread.
    pub(super) fn room(&self) -> Option<Room> {
        self.room.clone()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.of.stuck.store(false, Ordering::Relaxed);
    }
}

/// Turns of a volume of this kind, where it may fall silent, with so many bytes of payload.
pub(super) fn turns(kind: u64, payload_max: usize) -> Option<Turns> {
    let room_max = u32::try_from(payload_max / UNIT).unwrap_or(u32::MAX).max(1);
    let all = || Turns {
        free: Semaphore::new(AT_ONCE),
        room: Arc::new(Semaphore::new(room_max as usize)),
        room_max,
        stuck: AtomicBool::new(false),
    };
    KINDS.contains(&kind).then(all)
}

/// Bytes of the buffers that hold so many (see `iobuf::CLASS_SIZES`).
fn held(bytes: usize) -> usize {
    let [small, middle, large] = CLASS_SIZES;
    [small, middle].into_iter().find(|size| bytes <= *size).unwrap_or(bytes.next_multiple_of(large))
}

/// Threads for a volume of this kind: its own, where it may fall silent.
pub(super) fn engine(kind: u64) -> Arc<Engine> {
    match KINDS.contains(&kind) {
        true => Engine::of_one(JOBS_MAX, &REFUSED),
        false => Engine::common(),
    }
}

fn refuse() -> VfsError {
    REFUSED.fetch_add(1, Ordering::Relaxed);
    VfsError::Delay
}

impl Turns {
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
}

/// Runs what may block, with no task behind it. Elsewhere than on a worker of several there is nobody to leave the place to.
fn in_place<T>(f: impl FnOnce() -> T) -> T {
    let has_others = |h: Handle| h.runtime_flavor() == RuntimeFlavor::MultiThread;
    if Handle::try_current().is_ok_and(has_others) { tokio::task::block_in_place(f) } else { f() }
}

impl Volume {
    /// An operation each step of which may block.
    pub(super) fn steps<'a, T: Send + 'a>(
        &'a self,
        f: impl Future<Output = VfsResult<T>> + Send + 'a,
    ) -> BoxFuture<'a, VfsResult<T>> {
        match &self.turns {
            None => Box::pin(f),
            Some(_) => Box::pin(self.stepped(f)),
        }
    }

    /// The same for an operation that holds so many bytes of payload.
    pub(super) fn steps_with<'a, T: Send + 'a, F: Future<Output = VfsResult<T>> + Send + 'a>(
        &'a self,
        bytes: usize,
        f: impl FnOnce(Option<Room>) -> F + Send + 'a,
    ) -> BoxFuture<'a, VfsResult<T>> {
        let Some(turns) = &self.turns else { return Box::pin(f(None)) };
        Box::pin(async move {
            let turn = turns.next(bytes).await?;
            self.polled(f(turn.room())).await
        })
    }

    /// An operation without payload, as a part of another.
    pub(super) async fn stepped<T>(&self, f: impl Future<Output = VfsResult<T>>) -> VfsResult<T> {
        let Some(turns) = &self.turns else { return f.await };
        let _turn = turns.next(0).await?;
        self.polled(f).await
    }

    /// A part of an operation that has its turn.
    pub(super) async fn polled<T>(&self, f: impl Future<Output = T>) -> T {
        if self.turns.is_none() {
            return f.await;
        }
        let mut f = pin!(f);
        poll_fn(|cx| in_place(|| f.as_mut().poll(cx))).await
    }

    /// An operation that is done when it returns.
    pub(super) fn at_once<'a, T: Send + 'a>(
        &'a self,
        f: impl FnOnce() -> VfsResult<T> + Send + 'a,
    ) -> BoxFuture<'a, VfsResult<T>> {
        match &self.turns {
            None => ready(f()),
            Some(_) => self.steps(async move { f() }),
        }
    }

    /// A turn of the volume together with what depends on other clients, such as memory. Waits for neither while it has the other:
    /// a client that takes no answers keeps nobody from the volume, and a volume that hangs keeps no memory from others.
    /// The turn has room for so many bytes.
    pub(super) async fn turn_with<T, F: Future<Output = VfsResult<T>>>(
        &self,
        bytes: usize,
        wanted: impl Fn() -> F,
    ) -> VfsResult<(Option<Turn<'_>>, T)> {
        let Some(turns) = &self.turns else { return Ok((None, wanted().await?)) };
        for round in 1..=TRIES {
            let turn = turns.next(bytes).await?;
            {
                let mut got = pin!(wanted());
                let at_once = poll_fn(|cx| Poll::Ready(got.as_mut().poll(cx))).await;
                if let Poll::Ready(got) = at_once {
                    return Ok((Some(turn), got?));
                }
            }
            drop(turn);
            let got = wanted().await?;
            if let Some(turn) = turns.at_once(bytes) {
                return Ok((Some(turn), got));
            }
            // Many want both: the last time it waits for a turn with what it has, though not for long.
            if round == TRIES
                && let Ok(turn) = tokio::time::timeout(HELD_MAX, turns.next(bytes)).await
            {
                return Ok((Some(turn?), got));
            }
        }
        Err(refuse())
    }

    /// Closes the file's descriptor on a thread of the volume, if that may wait for an answer.
    pub(super) fn close_apart(&self, data: &mut Mutex<Option<DataFd>>) {
        if self.turns.is_none() {
            return;
        }
        let fd = data.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(fd) = fd {
            self.engine.dispose(move || drop(fd));
        }
    }
}
