//! Limits the descriptors held by all local backends of the process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::engine::limits::DESCRIPTORS_MAX;

static HELD: AtomicUsize = AtomicUsize::new(0);

/// A descriptor that counts against the budget.
pub(crate) struct Fd(OwnedFd);

impl Fd {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        HELD.fetch_add(1, Ordering::Relaxed);
        Self(fd)
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AsFd for Fd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Descriptors that count against the budget and are stored elsewhere, such as the sockets of calls to clients' hosts.
pub struct HeldDescriptors(usize);

impl HeldDescriptors {
    /// Counts this many descriptors until the value is dropped.
    pub fn count(descriptors: usize) -> Self {
        HELD.fetch_add(descriptors, Ordering::Relaxed);
        Self(descriptors)
    }
}

impl Drop for HeldDescriptors {
    fn drop(&mut self) {
        HELD.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Raises the limit on open files to the maximum, and at least to `wanted` if the process has the privilege (CAP_SYS_RESOURCE).
/// Returns the resulting limit; `u64::MAX`: unlimited.
pub fn raise_open_files(wanted: u64) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let more = now.maximum.map(|most| most.max(wanted));
    // Without the privilege the first attempt fails; the second fails only in a sandbox, and then the soft limit stays.
    for limit in [more, now.maximum] {
        if setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit }).is_ok() {
            break;
        }
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The bound of [`limit_descriptors`].
static BOUND: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Limits the descriptors of all local backends of the process: an operation that needs another one fails with
/// [`VfsError::Resources`](crate::VfsError::Resources) if no other can be closed. Useful in a process that needs descriptors for
/// other purposes.
pub fn limit_descriptors(most: usize) {
    BOUND.store(most, Ordering::Relaxed);
}

/// The number of descriptors that all local backends keep open for reuse: half of the process's limit, after its soft limit was
/// raised to the hard one.
pub fn descriptors_max() -> usize {
    static BUDGET: OnceLock<usize> = OnceLock::new();
    *BUDGET.get_or_init(|| {
        let may = raise_open_files(0);
        usize::try_from(may / 2).unwrap_or(usize::MAX).clamp(64, DESCRIPTORS_MAX)
    })
}

/// The number of descriptors that all local backends of the process hold now.
pub fn descriptors_held() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// The bound set with [`limit_descriptors`].
pub(super) fn bound() -> usize {
    BOUND.load(Ordering::Relaxed)
}
