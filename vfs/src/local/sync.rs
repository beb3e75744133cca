//! Makes data durable, and handles failures of the storage.
//!
//! *Operation.* Linux reports a failed write-back once for each open file description. Therefore one caller takes each report and
//! passes it to all the others: one job at a time syncs the shared descriptor of a file ([`LocalNode::data_fd`]), and every caller
//! that waited gets its result (group commit). A stable write uses a separate descriptor, so that it neither takes the report of
//! another write nor loses its own. After a failure the file's count of losses ([`Node::losses`]) and the volume's verifier
//! ([`Node::verifier`]) change before the callers get their answers. The process never uses a verifier twice, not even when a
//! volume is closed and opened again.
//!
//! *Memory.* A file with unsynced data keeps its descriptor and its record: the cache syncs the file in the background before it
//! closes either.
//!
//! *Errors.* The kernel's. A write that the volume refuses (no space, quota, size) loses no accepted data, so the verifier stays.

use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use mutex::locked;
use rustix::fs::OFlags;
use rustix::io::ReadWriteFlags;

use crate::backend::{BoxFuture, ready};
use crate::durability;
use crate::error::{VfsError, VfsResult};
use crate::types::Losses;
use crate::types::{Kind, Stable};

use super::Volume;
use super::descriptors::Fd;
use super::node::LocalNode;
use super::sync_queue::{Told, told};

/// The system calls by which data becomes durable. The default methods call the kernel; tests replace them by failing ones.
pub trait SyncCalls: Debug + Send + Sync + 'static {
    /// `fsync(2)`.
    fn fsync(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(rustix::fs::fsync(fd)?)
    }

    /// `syncfs(2)`.
    fn syncfs(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(rustix::fs::syncfs(fd)?)
    }

    /// `pwritev2(2)` with `RWF_DSYNC` ([`Stable::Data`]) or `RWF_SYNC` ([`Stable::File`]).
    fn write(
        &self,
        fd: BorrowedFd<'_>,
        data: &[IoSlice<'_>],
        at: u64,
        stable: Stable,
    ) -> io::Result<usize> {
        let flags = match stable {
            Stable::Unstable => ReadWriteFlags::empty(),
            Stable::Data => ReadWriteFlags::DSYNC,
            Stable::File => ReadWriteFlags::SYNC,
        };
        Ok(rustix::io::pwritev2(fd, data, at, flags)?)
    }
}

/// The kernel's implementation of these calls.
#[derive(Debug)]
pub(super) struct Kernel;

impl SyncCalls for Kernel {}

/// Record of the data that a volume has lost.
pub(super) struct Ledger {
    verifier: AtomicU64,
    losses: Mutex<Losses>,
}

/// Returns a verifier that this process has not used before.
fn next_verifier() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::AcqRel)
}

impl Default for Ledger {
    fn default() -> Self {
        Self { verifier: AtomicU64::new(next_verifier()), losses: Mutex::default() }
    }
}

impl Ledger {
    pub(super) fn verifier(&self) -> u64 {
        self.verifier.load(Ordering::Acquire)
    }

    pub(super) fn losses(&self) -> Losses {
        locked(&self.losses).clone()
    }

    fn lost(&self, path: String) {
        self.verifier.fetch_max(next_verifier(), Ordering::AcqRel);
        let mut losses = locked(&self.losses);
        losses.count += 1;
        losses.last = Some(path);
    }
}

/// How many rounds of syncs a caller waits for while unsynced files hold all descriptors.
const PRESSED_TRIES: u32 = 3;

fn retried(mut call: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// True if the volume had no room for the data or could not accept it at all: data accepted earlier is not affected.
fn is_refusal(e: &io::Error) -> bool {
    let refusals =
        [libc::ENOSPC, libc::EDQUOT, libc::EFBIG, libc::EAGAIN, libc::EPERM, libc::EINVAL];
    e.raw_os_error().is_some_and(|e| refusals.contains(&e))
}

impl Volume {
    /// Asks for a sync of the whole file system.
    fn ask_sync(self: &Arc<Self>) -> VfsResult<Told> {
        let me = self.clone();
        self.syncs.ask(&self.engine, true, move || {
            retried(|| me.calls.syncfs(me.root.as_fd())).map_err(|e| {
                me.lost(me.folder.display().to_string(), &e, true);
                e.into()
            })
        })
    }

    /// Starts to make these nodes durable by one sync of the whole file system, so that they can be closed.
    pub(super) fn press(self: &Arc<Self>, nodes: Vec<Arc<LocalNode>>) {
        *locked(&self.pressed) = nodes;
        if let Err(e) = self.ask_pressed(false) {
            tracing::debug!(error = %e, "no descriptor becomes free");
            drop(std::mem::take(&mut *locked(&self.pressed)));
        }
    }

    /// Asks for a notification when the nodes pressed so far are durable.
    fn ask_pressed(self: &Arc<Self>, waits: bool) -> VfsResult<Told> {
        let me = self.clone();
        self.pressing.ask(&self.engine, waits, move || {
            let nodes = std::mem::take(&mut *locked(&me.pressed));
            if nodes.is_empty() { Ok(()) } else { me.sync_these(&nodes) }
        })
    }

    fn sync_these(&self, nodes: &[Arc<LocalNode>]) -> VfsResult<()> {
        nodes.iter().for_each(|node| node.unsynced.store(false, Ordering::Release));
        retried(|| self.calls.syncfs(self.root.as_fd())).map_err(|e| {
            // The error does not say which of the files it concerns, so all of them count as failed.
            let same = || e.raw_os_error().map_or(e.kind().into(), io::Error::from_raw_os_error);
            for node in nodes {
                let _ = node.failed(same());
            }
            e.into()
        })
    }

    /// Runs `f`, which opens a file. While no descriptor is free because files wait for their syncs, waits for those syncs without
    /// blocking the thread and tries again; fails with [`VfsError::Resources`] after the last try.
    pub(super) fn patient<'a, T: Send + 'a>(
        self: &'a Arc<Self>,
        f: impl Fn() -> VfsResult<T> + Send + 'a,
    ) -> BoxFuture<'a, VfsResult<T>> {
        if self.turns.is_some() {
            return self.steps(self.retried(f));
        }
        match f() {
            Err(VfsError::Resources) => Box::pin(self.again(move || std::future::ready(f()))),
            other => ready(other),
        }
    }

    /// Like [`Self::patient`], for an operation that already holds its turn of a volume which may stop answering.
    pub(super) async fn retried<T>(
        self: &Arc<Self>,
        f: impl Fn() -> VfsResult<T> + Send,
    ) -> VfsResult<T> {
        match f() {
            Err(VfsError::Resources) => self.again(move || std::future::ready(f())).await,
            other => other,
        }
    }

    /// Like [`Self::patient`], for work that runs on a separate thread.
    pub(super) async fn patient_apart<T: Send + 'static>(
        self: &Arc<Self>,
        f: impl Fn() -> VfsResult<T> + Clone + Send + 'static,
    ) -> VfsResult<T> {
        match self.engine.run_long(f.clone()).await {
            Err(VfsError::Resources) => self.again(|| self.engine.run_long(f.clone())).await,
            other => other,
        }
    }

    /// Runs `f` after each round of syncs, until it gets a descriptor.
    async fn again<T, F: Future<Output = VfsResult<T>>>(
        self: &Arc<Self>,
        f: impl Fn() -> F,
    ) -> VfsResult<T> {
        for _ in 0..PRESSED_TRIES {
            // A failed sync is reported to the callers that wrote the data.
            let _ = told(self.ask_pressed(true)).await;
            match f().await {
                Err(VfsError::Resources) => {}
                other => return other,
            }
        }
        durability::counters().refused.fetch_add(1, Ordering::Relaxed);
        Err(VfsError::Resources)
    }

    /// Changes the verifier and logs the loss.
    fn lost(&self, path: String, error: &io::Error, first: bool) {
        if first {
            tracing::error!(
                folder = %self.folder.display(),
                file = path,
                %error,
                "storage failed to keep data or a change of this file; clients are told to send again what is not committed"
            );
        } else {
            tracing::debug!(file = path, %error, "storage failed again to keep data or a change of this file");
        }
        durability::counters().losses.fetch_add(1, Ordering::Relaxed);
        self.ledger.lost(path);
    }
}

impl LocalNode {
    /// Notes that data was written which no sync has covered: the descriptor stays open until a sync has.
    pub(super) fn note_unsynced(&self) {
        if !self.volume.in_memory {
            self.unsynced.store(true, Ordering::Release);
        }
    }

    /// Records that the storage lost data, before any caller gets its answer.
    pub(super) fn failed(&self, error: io::Error) -> VfsError {
        let first = self.losses.fetch_add(1, Ordering::AcqRel) == 0;
        let path = self.volume.path_of(self.fd());
        let path = path.map_or_else(
            |_| format!("inode {}", self.ino),
            |p| String::from_utf8_lossy(&p).into_owned(),
        );
        self.volume.lost(path, &error, first);
        error.into()
    }

    /// Handles a failed write: records a loss if the error may concern data that was accepted.
    pub(super) fn write_failed(&self, error: io::Error) -> VfsError {
        if is_refusal(&error) { error.into() } else { self.failed(error) }
    }

    /// Asks for a sync of this node that covers every earlier change. The sync is already queued when this returns.
    pub(super) fn ask_sync(&self, waits: bool) -> VfsResult<Told> {
        if !matches!(self.kind, Kind::File | Kind::Dir) {
            // A link, a device or a pipe cannot be opened for a sync.
            return self.volume.ask_sync();
        }
        let me = self.strong()?;
        self.syncs.ask(&self.volume.engine, waits, move || me.sync_now())
    }

    /// Syncs the node in the background before its descriptor is closed.
    pub(super) fn sync_in_background(&self) {
        if let Err(e) = self.ask_sync(false) {
            tracing::debug!(error = %e, "an idle file is synced later");
        }
    }

    fn sync_now(&self) -> VfsResult<()> {
        let volume = &self.volume;
        // Cleared before the call: data written from here on needs the next sync.
        self.unsynced.store(false, Ordering::Release);
        let done = if self.kind == Kind::Dir {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            match volume.cache.with_room(|| self.reopen(flags)).map(Fd::new) {
                Ok(fd) => retried(|| volume.calls.fsync(fd.as_fd())),
                // The file was removed, its mode denies an ordinary process to open it, or no descriptor is free.
                Err(_) => retried(|| volume.calls.syncfs(volume.root.as_fd())),
            }
        } else {
            match self.data_fd(false) {
                Ok(fd) => retried(|| volume.calls.fsync(fd.as_fd())),
                Err(_) => retried(|| volume.calls.syncfs(volume.root.as_fd())),
            }
        };
        match done {
            // This file system cannot sync a single folder.
            Err(e) if self.kind == Kind::Dir && e.raw_os_error() == Some(libc::EINVAL) => {
                retried(|| volume.calls.syncfs(volume.root.as_fd())).map_err(|e| self.failed(e))
            }
            other => other.map_err(|e| self.failed(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use iobuf::Buf;

    use super::*;
    use crate::authority::Acting;
    use crate::backend::Backend;
    use crate::local::{LocalBackend, LocalConfig};
    use crate::types::WriteBy;
    use crate::types::{CreateHow, Cred, SetAttr};

    #[derive(Debug, Default)]
    struct Device {
        fails: AtomicBool,
        syncs: AtomicU64,
    }

    impl SyncCalls for Device {
        fn fsync(&self, _: BorrowedFd<'_>) -> io::Result<()> {
            self.syncs.fetch_add(1, Ordering::SeqCst);
            match self.fails.load(Ordering::SeqCst) {
                true => Err(io::Error::from_raw_os_error(libc::EIO)),
                false => Ok(()),
            }
        }
    }

    /// Sweeps the cache until only the root is left, and returns how many syncs that took.
    fn swept(backend: &LocalBackend, device: &Device, ino: (u64, u64)) -> u64 {
        let is_known = || backend.volume.cache.by_inode_untouched(ino).is_some();
        let began = std::time::Instant::now();
        while began.elapsed().as_secs() < 60 {
            backend.volume.cache.sweep();
            if !is_known() {
                return device.syncs.load(Ordering::SeqCst);
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("it stays for ever");
    }

    #[tokio::test]
    async fn unsynced_file_synced_before_close() {
        for fails in [false, true] {
            let (dir, device) = (tempfile::tempdir().unwrap(), Arc::new(Device::default()));
            let calls = Some(device.clone() as Arc<dyn SyncCalls>);
            let config = LocalConfig { calls, ..LocalConfig::new(dir.path()) };
            let backend = LocalBackend::open(config).unwrap();
            let set = SetAttr { mode: Some(0o644), ..SetAttr::default() };
            let made = backend
                .root()
                .create(Acting::caller(&Cred::root()), b"f", CreateHow::Guarded, set)
                .await;
            let node = made.unwrap().node;
            let data = vec![Buf::from(b"data".to_vec())];
            let written =
                node.write(WriteBy::Open(None), 0, data, Stable::Unstable).await.unwrap().verifier;
            let local: &LocalNode = node.as_any().downcast_ref().unwrap();
            let ino = (local.dev, local.ino);
            device.fails.store(fails, Ordering::SeqCst);
            drop(node);
            assert_eq!(swept(&backend, &device, ino), 1, "{fails}");
            assert_eq!(backend.root().verifier() != written, fails);
            assert_eq!(backend.losses().count, u64::from(fails));
        }
    }
}
