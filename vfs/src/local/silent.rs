//! File systems that may fall silent: another machine or a program answers for them.
//!
//! *Operation.* An operation on a disk of this host runs in place. On FUSE, NFS, CIFS, Ceph and the like it takes one of the
//! volume's turns ([`crate::engine::far`]), and what runs on threads has threads of the volume's own.
//!
//! *Memory.* Payload up to the volume's part ([`LocalConfig::payload`](super::LocalConfig)).
//!
//! *Errors.* Those of turns.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use crate::backend::{BoxFuture, ready};
use crate::engine::far::{self, PayloadBudget, Room, Turn, Turns};
use crate::engine::threads::Engine;
use crate::error::VfsResult;

use super::Volume;
use super::held::DataFd;
use super::stat::{self, Stat};

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

/// The same by the names of their types, as proc_pid_mountinfo(5) has them.
const TYPES: [&str; 19] = [
    "fuse", "fuseblk", "virtiofs", "nfs", "nfs4", "smbfs", "cifs", "smb3", "ceph", "9p", "afs",
    "coda", "autofs", "lustre", "gpfs", "ocfs2", "gfs2", "pvfs2", "vboxsf",
];

/// A file system of this type may fall silent.
pub(super) fn is_far(kind: &str) -> bool {
    TYPES.contains(&kind)
}

/// Turns of a volume of this kind, where it may fall silent, with so many bytes of payload.
pub(super) fn turns(kind: u64, payload: &PayloadBudget) -> Option<Turns> {
    KINDS.contains(&kind).then(|| Turns::new(payload))
}

/// Threads for a volume of this kind: its own, where it may fall silent.
pub(super) fn engine(kind: u64) -> Arc<Engine> {
    if KINDS.contains(&kind) { far::engine() } else { Engine::common() }
}

impl Volume {
    /// Of a name in a folder of this volume. What is mounted there is not asked: of that only number and mount hold.
    pub(super) fn stat_of(&self, dir: BorrowedFd<'_>, name: &[u8]) -> VfsResult<Stat> {
        let at_hand = stat::name_at_hand(dir, name)?;
        // These file systems have no other attributes than those at hand.
        if self.posix || at_hand.mount != self.mount {
            return Ok(at_hand);
        }
        stat::of_name(dir, name)
    }

    /// Runs what asks this volume on behalf of an operation of another one.
    pub(super) fn visited<T>(&self, f: impl FnOnce() -> VfsResult<T>) -> VfsResult<T> {
        match &self.turns {
            None => f(),
            Some(turns) => turns.in_turn_at_once(f),
        }
    }

    /// An operation each step of which may block.
    pub(super) fn steps<'a, T: Send + 'a>(
        &'a self,
        f: impl Future<Output = VfsResult<T>> + Send + 'a,
    ) -> BoxFuture<'a, VfsResult<T>> {
        match &self.turns {
            None => Box::pin(f),
            Some(turns) => Box::pin(turns.stepped(f)),
        }
    }

    /// The same for an operation that holds so many bytes of payload.
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

    /// An operation without payload, as a part of another.
    pub(super) async fn stepped<T>(&self, f: impl Future<Output = VfsResult<T>>) -> VfsResult<T> {
        match &self.turns {
            None => f.await,
            Some(turns) => turns.stepped(f).await,
        }
    }

    /// A part of an operation that has its turn.
    pub(super) async fn polled<T>(&self, f: impl Future<Output = T>) -> T {
        if self.turns.is_none() { f.await } else { far::polled(f).await }
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

    /// A turn of the volume together with what depends on other clients, such as memory ([`Turns::next_with`]).
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
