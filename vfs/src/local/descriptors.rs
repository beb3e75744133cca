//! Descriptors, and how many of them the local backends of the process may hold together.

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

/// Descriptors that count against the budget and are kept elsewhere.
pub(super) struct Held(usize);

impl Held {
    pub(super) fn count(descriptors: usize) -> Self {
        HELD.fetch_add(descriptors, Ordering::Relaxed);
        Self(descriptors)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Lets this process open as many files as it may, and at least so many where it has the privilege for that (CAP_SYS_RESOURCE).
/// Gives how many it may open then; `u64::MAX`: nothing limits it.
pub fn raise_open_files(wanted: u64) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let more = now.maximum.map(|most| most.max(wanted));
    // The first is refused to those without the privilege, the second only where a sandbox forbids it; then the soft limit is
    // what there is.
    for limit in [more, now.maximum] {
        if setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit }).is_ok() {
            break;
        }
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The bound of [`limit_descriptors`].
static BOUND: AtomicUsize = AtomicUsize::new(usize::MAX);

/// From now on all local backends of the process together hold no more descriptors than this: what would need another is refused
/// with [`VfsError::Resources`](crate::VfsError::Resources) when nothing can be closed. For a process that needs the others for
/// something else.
pub fn limit_descriptors(most: usize) {
    BOUND.store(most, Ordering::Relaxed);
}

/// How many descriptors all local backends of the process keep together while files are in use that can be spared: half of what the
/// process may have, after its soft limit was raised to the hard one.
pub fn descriptors_max() -> usize {
    static BUDGET: OnceLock<usize> = OnceLock::new();
    *BUDGET.get_or_init(|| {
        let may = raise_open_files(0);
        usize::try_from(may / 2).unwrap_or(usize::MAX).clamp(64, DESCRIPTORS_MAX)
    })
}

/// How many there are.
pub(super) fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// What [`limit_descriptors`] was told.
pub(super) fn bound() -> usize {
    BOUND.load(Ordering::Relaxed)
}
