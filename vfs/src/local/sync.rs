//! Making durable, and what follows when the storage fails to.
//!
//! *Operation.* Linux reports a failed write-back once per open file description. Each report here is therefore taken by one
//! caller only and then told to all: the shared descriptor of a file ([`LocalNode::data_fd`]) is synced by one job at a time,
//! whose result goes to everybody who waited for it (group commit); a stable write uses a descriptor of its own, so that it
//! neither takes the report of another write nor loses its own. A failure first moves the file's count ([`Node::losses`]) and
//! the volume's verifier ([`Node::verifier`]), and is answered after that. A verifier never comes back in the life of the
//! process, not even when a volume is closed and opened anew.
//!
//! *Memory.* A file with data that was written and not synced keeps its descriptor and its record: the cache syncs it in the
//! background before it closes either.
//!
//! *Errors.* The kernel's. A write that the volume refuses (no space, quota, size) has taken nothing, so it moves nothing.

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

/// The system calls by which data becomes durable. The default methods are the kernel's; tests put failing ones in their place.
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

/// The kernel's own.
#[derive(Debug)]
pub(super) struct Kernel;

impl SyncCalls for Kernel {}

/// What a volume has lost.
pub(super) struct Ledger {
    verifier: AtomicU64,
    losses: Mutex<Losses>,
}

/// A number that no verifier of this process had before.
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

/// How often a caller waits for the syncs of files that hold all descriptors.
const PRESSED_TRIES: u32 = 3;

fn retried(mut call: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// The volume had no room for what was to be written, or could not have it at all: nothing that was accepted is concerned.
fn is_refusal(e: &io::Error) -> bool {
    let refusals =
        [libc::ENOSPC, libc::EDQUOT, libc::EFBIG, libc::EAGAIN, libc::EPERM, libc::EINVAL];
    e.raw_os_error().is_some_and(|e| refusals.contains(&e))
}

impl Volume {
    /// Asks for the whole file system to be durable.
    fn ask_sync(self: &Arc<Self>) -> VfsResult<Told> {
        let me = self.clone();
        self.syncs.ask(&self.engine, true, move || {
            retried(|| me.calls.syncfs(me.root.as_fd())).map_err(|e| {
                me.lost(me.folder.display().to_string(), &e, true);
                e.into()
            })
        })
    }

    /// Starts to make these durable, so that they can be closed: all at once, by a sync of the whole file system.
    pub(super) fn press(self: &Arc<Self>, nodes: Vec<Arc<LocalNode>>) {
        *locked(&self.pressed) = nodes;
        if let Err(e) = self.ask_pressed(false) {
            tracing::debug!(error = %e, "no descriptor becomes free");
            drop(std::mem::take(&mut *locked(&self.pressed)));
        }
    }

    /// Asks to be told when what is pressed now has been made durable.
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
            // Which of them it concerns is not said.
            let same = || e.raw_os_error().map_or(e.kind().into(), io::Error::from_raw_os_error);
            for node in nodes {
                let _ = node.failed(same());
            }
            e.into()
        })
    }

    /// Runs what opens something. Where no descriptor is to be had because files wait for their syncs, that is waited for, aside,
    /// and it is tried again; in vain at last, it is [`VfsError::Resources`].
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

    /// The same for an operation that has its turn of a volume which may fall silent.
    pub(super) async fn retried<T>(
        self: &Arc<Self>,
        f: impl Fn() -> VfsResult<T> + Send,
    ) -> VfsResult<T> {
        match f() {
            Err(VfsError::Resources) => self.again(move || std::future::ready(f())).await,
            other => other,
        }
    }

    /// The same for what runs on a thread of its own.
    pub(super) async fn patient_apart<T: Send + 'static>(
        self: &Arc<Self>,
        f: impl Fn() -> VfsResult<T> + Clone + Send + 'static,
    ) -> VfsResult<T> {
        match self.engine.run_long(f.clone()).await {
            Err(VfsError::Resources) => self.again(|| self.engine.run_long(f.clone())).await,
            other => other,
        }
    }

    /// Runs `f` after each round of syncs, until it has what it needs.
    async fn again<T, F: Future<Output = VfsResult<T>>>(
        self: &Arc<Self>,
        f: impl Fn() -> F,
    ) -> VfsResult<T> {
        for _ in 0..PRESSED_TRIES {
            // A sync that fails is told to those whose data it was.
            let _ = told(self.ask_pressed(true)).await;
            match f().await {
                Err(VfsError::Resources) => {}
                other => return other,
            }
        }
        durability::counters().refused.fetch_add(1, Ordering::Relaxed);
        Err(VfsError::Resources)
    }

    /// Moves the verifier and tells the log.
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
    /// Data was written that no sync has covered: the descriptor stays until one has.
    pub(super) fn note_unsynced(&self) {
        if !self.volume.in_memory {
            self.unsynced.store(true, Ordering::Release);
        }
    }

    /// Notes that the storage did not keep what it should, before anybody is answered.
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

    /// A write failed with this error: notes it where data that was accepted may be concerned.
    pub(super) fn write_failed(&self, error: io::Error) -> VfsError {
        if is_refusal(&error) { error.into() } else { self.failed(error) }
    }

    /// Asks for this node to be durable with all that was done to it before. The sync is on its way when this returns.
    pub(super) fn ask_sync(&self, waits: bool) -> VfsResult<Told> {
        if !matches!(self.kind, Kind::File | Kind::Dir) {
            // A link, a device or a pipe cannot be opened to be synced.
            return self.volume.ask_sync();
        }
        let me = self.strong()?;
        self.syncs.ask(&self.volume.engine, waits, move || me.sync_now())
    }

    /// Before the descriptor is closed.
    pub(super) fn sync_in_background(&self) {
        if let Err(e) = self.ask_sync(false) {
            tracing::debug!(error = %e, "an idle file is synced later");
        }
    }

    fn sync_now(&self) -> VfsResult<()> {
        let volume = &self.volume;
        // Before the call: what is written from here on needs the next one.
        self.unsynced.store(false, Ordering::Release);
        let done = if self.kind == Kind::Dir {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            match volume.cache.with_room(|| self.reopen(flags)).map(Fd::new) {
                Ok(fd) => retried(|| volume.calls.fsync(fd.as_fd())),
                // Removed meanwhile, by its mode closed to an ordinary process, or no descriptor left.
                Err(_) => retried(|| volume.calls.syncfs(volume.root.as_fd())),
            }
        } else {
            match self.data_fd(false) {
                Ok(fd) => retried(|| volume.calls.fsync(fd.as_fd())),
                Err(_) => retried(|| volume.calls.syncfs(volume.root.as_fd())),
            }
        };
        match done {
            // A file system that syncs no folders by themselves.
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

    /// Sweeps until nothing is left but the root, and gives how many syncs that took.
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
    async fn what_was_written_is_synced_before_its_descriptor_is_closed() {
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
