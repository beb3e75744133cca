//! File systems that may fall silent: another machine or a program answers for them.
//!
//! *Operation.* An operation on a disk of this host runs in place. On FUSE, NFS, CIFS, Ceph and the like it blocks for as
//! long as the other says nothing, and a worker of the runtime that blocks takes with it the tasks in its queue, and the turn
//! to wait for sockets. So the worker leaves its place to another thread first ([`tokio::task::block_in_place`]): everybody
//! else goes on.
//!
//! *Memory.* A thread for each operation that waits, [`AT_ONCE`] for a volume at most.
//!
//! *Errors.* [`VfsError::Delay`] for an operation that had no turn in [`PATIENCE`]: those before it get no answer.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

use crate::backend::{BoxFuture, ready};
use crate::error::{VfsError, VfsResult};

use super::Volume;

/// Operations of one volume under way at once.
const AT_ONCE: usize = 48;
/// How long an operation waits for its turn.
const PATIENCE: Duration = Duration::from_secs(2);

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

/// Turns of a volume of this kind, where it may fall silent.
pub(super) fn turns(kind: u64) -> Option<Semaphore> {
    KINDS.contains(&kind).then(|| Semaphore::new(AT_ONCE))
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
        let Some(turns) = &self.turns else { return Box::pin(f) };
        Box::pin(async move {
            let Ok(Ok(_turn)) = tokio::time::timeout(PATIENCE, turns.acquire()).await else {
                REFUSED.fetch_add(1, Ordering::Relaxed);
                return Err(VfsError::Delay);
            };
            let mut f = pin!(f);
            std::future::poll_fn(|cx| in_place(|| f.as_mut().poll(cx))).await
        })
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
}
