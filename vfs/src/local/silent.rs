//! File systems that may fall silent: another machine or a program answers for them.
//!
//! *Operation.* An operation on a disk of this host runs in place. On FUSE, NFS, CIFS, Ceph and the like it blocks for as
//! long as the other says nothing, and a worker of the runtime that blocks takes with it the tasks in its queue, and the turn
//! to wait for sockets. So the worker leaves its place to another thread first ([`tokio::task::block_in_place`]): everybody
//! else goes on.
//!
//! What runs on threads (transfers, long work, syncs) has threads of the volume's own: [`Engine::of_one`].
//!
//! *Memory.* A thread for each operation that waits, [`AT_ONCE`] for a volume at most, and payload of [`JOBS_MAX`] jobs.
//!
//! *Errors.* [`VfsError::Delay`] for an operation that had no turn in [`PATIENCE`]: those before it get no answer. While that
//! lasts, for each that comes.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Semaphore, SemaphorePermit};

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

/// The turns of a volume.
pub(super) struct Turns {
    free: Semaphore,
    /// All were taken for [`PATIENCE`], and no operation has ended since. Nobody waits for the next: the payload of a crowd that
    /// waits would be missed by other shares.
    stuck: AtomicBool,
}

/// One of them.
pub(super) struct Turn<'a> {
    of: &'a Turns,
    _permit: SemaphorePermit<'a>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.of.stuck.store(false, Ordering::Relaxed);
    }
}

/// Turns of a volume of this kind, where it may fall silent.
pub(super) fn turns(kind: u64) -> Option<Turns> {
    let all = || Turns { free: Semaphore::new(AT_ONCE), stuck: AtomicBool::new(false) };
    KINDS.contains(&kind).then(all)
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
    async fn next(&self) -> VfsResult<Turn<'_>> {
        if let Some(turn) = self.at_once() {
            return Ok(turn);
        }
        if !self.stuck.load(Ordering::Relaxed) {
            match tokio::time::timeout(PATIENCE, self.free.acquire()).await {
                Ok(Ok(permit)) => return Ok(Turn { of: self, _permit: permit }),
                _ => self.stuck.store(true, Ordering::Relaxed),
            }
        }
        Err(refuse())
    }

    fn at_once(&self) -> Option<Turn<'_>> {
        self.free.try_acquire().ok().map(|permit| Turn { of: self, _permit: permit })
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

    /// The same, as a part of another operation.
    pub(super) async fn stepped<T>(&self, f: impl Future<Output = VfsResult<T>>) -> VfsResult<T> {
        let Some(turns) = &self.turns else { return f.await };
        let _turn = turns.next().await?;
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
    pub(super) async fn turn_with<T, F: Future<Output = VfsResult<T>>>(
        &self,
        wanted: impl Fn() -> F,
    ) -> VfsResult<(Option<Turn<'_>>, T)> {
        let Some(turns) = &self.turns else { return Ok((None, wanted().await?)) };
        for round in 1..=TRIES {
            let turn = turns.next().await?;
            {
                let mut got = pin!(wanted());
                let at_once = poll_fn(|cx| Poll::Ready(got.as_mut().poll(cx))).await;
                if let Poll::Ready(got) = at_once {
                    return Ok((Some(turn), got?));
                }
            }
            drop(turn);
            let got = wanted().await?;
            if let Some(turn) = turns.at_once() {
                return Ok((Some(turn), got));
            }
            // Many want both: the last time it waits for a turn with what it has, though not for long.
            if round == TRIES
                && let Ok(turn) = tokio::time::timeout(HELD_MAX, turns.next()).await
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
