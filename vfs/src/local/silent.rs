//! File systems that may stop answering because another machine or a program serves them.
//!
//! *Operation.* An operation on a disk of this host runs in place. On FUSE, NFS, CIFS, Ceph and similar file systems it takes one
//! of the volume's turns ([`crate::engine::far`]), and blocking work runs on threads reserved for the volume.
//!
//! *Memory.* Payload up to the volume's share ([`LocalConfig::payload`](super::LocalConfig)).
//!
//! *Errors.* The errors of [`Turns`].

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use crate::backend::{BoxFuture, ready};
use crate::engine::far::{self, PayloadBudget, Room, Turn, Turns};
use crate::engine::threads::Engine;
use crate::error::VfsResult;

use super::Volume;
use super::held::DataFd;
use super::stat::{self, Stat};

/// File system types that ask another machine or program (statfs(2), linux/magic.h).
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

/// The same file systems by the names of their types, as in proc_pid_mountinfo(5).
const TYPES: [&str; 19] = [
    "fuse", "fuseblk", "virtiofs", "nfs", "nfs4", "smbfs", "cifs", "smb3", "ceph", "9p", "afs",
    "coda", "autofs", "lustre", "gpfs", "ocfs2", "gfs2", "pvfs2", "vboxsf",
];

/// Checks whether a file system of this type may stop answering.
pub(super) fn is_far(kind: &str) -> bool {
    TYPES.contains(&kind)
}

/// Checks whether a program or another machine serves file systems of this type.
pub(super) fn is_served_elsewhere(kind: u64) -> bool {
    KINDS.contains(&kind)
}

/// Returns the turns of a volume of this type, with this payload budget, if the file system may stop answering.
pub(super) fn turns(kind: u64, payload: &PayloadBudget) -> Option<Turns> {
    is_served_elsewhere(kind).then(|| Turns::new(payload))
}

/// Returns the threads for a volume of this type: separate ones if the file system may stop answering.
pub(super) fn engine(kind: u64) -> Arc<Engine> {
    if is_served_elsewhere(kind) { far::engine() } else { Engine::common() }
}

impl Volume {
    /// Returns attributes of a name in a folder of this volume. A file system mounted on that name is not asked; for it only inode
    /// number and mount are valid.
    pub(super) fn stat_of(&self, dir: BorrowedFd<'_>, name: &[u8]) -> VfsResult<Stat> {
        let at_hand = stat::name_at_hand(dir, name)?;
        // These file systems have no attributes beyond those that the kernel already holds.
        if self.posix || at_hand.mount != self.mount {
            return Ok(at_hand);
        }
        stat::of_name(dir, name)
    }

    /// Runs a request to this volume on behalf of an operation of another volume.
    pub(super) fn visited<T>(&self, f: impl FnOnce() -> VfsResult<T>) -> VfsResult<T> {
        match &self.turns {
            None => f(),
            Some(turns) => turns.in_turn_at_once(f),
        }
    }

    /// Runs an operation each step of which may block.
    pub(super) fn steps<'a, T: Send + 'a>(
        &'a self,
        f: impl Future<Output = VfsResult<T>> + Send + 'a,
    ) -> BoxFuture<'a, VfsResult<T>> {
        match &self.turns {
            None => Box::pin(f),
            Some(turns) => Box::pin(turns.stepped(f)),
        }
    }

    /// Like [`Self::steps`], for an operation that holds this many bytes of payload.
    pub(super) fn steps_with<'a, T: Send + 'a, F: Future<Output = VfsResult<T>> + Send + 'a>(
        &'a self,
        bytes: usize,
        f: impl FnOnce(Option<Room>) -> F + Send + 'a,
    ) -> BoxFuture<'a, VfsResult<T>> {
        match &self.turns {
            None => Box::pin(f(None)),
            Some(turns) => Box::pin(turns.stepped_with(bytes, f)),
        }
    }

    /// Runs an operation without payload as a part of another.
    pub(super) async fn stepped<T>(&self, f: impl Future<Output = VfsResult<T>>) -> VfsResult<T> {
        match &self.turns {
            None => f.await,
            Some(turns) => turns.stepped(f).await,
        }
    }

    /// Runs a part of an operation that already holds its turn.
    pub(super) async fn polled<T>(&self, f: impl Future<Output = T>) -> T {
        if self.turns.is_none() { f.await } else { far::polled(f).await }
    }

    /// Runs an operation that completes without waiting.
    pub(super) fn at_once<'a, T: Send + 'a>(
        &'a self,
        f: impl FnOnce() -> VfsResult<T> + Send + 'a,
    ) -> BoxFuture<'a, VfsResult<T>> {
        match &self.turns {
            None => ready(f()),
            Some(_) => self.steps(async move { f() }),
        }
    }

    /// Waits for a turn of the volume together with a resource that other clients hold, such as memory ([`Turns::next_with`]).
    pub(super) async fn turn_with<T, F: Future<Output = VfsResult<T>>>(
        &self,
        bytes: usize,
        wanted: impl Fn() -> F,
    ) -> VfsResult<(Option<Turn<'_>>, T)> {
        match &self.turns {
            None => Ok((None, wanted().await?)),
            Some(turns) => {
                let (turn, got) = turns.next_with(bytes, wanted).await?;
                Ok((Some(turn), got))
            }
        }
    }

    /// Closes the file's descriptor on a thread of the volume if closing may wait for an answer.
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
