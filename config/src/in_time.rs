//! File system queries with a time limit, run by threads that may be abandoned.
//!
//! *Operation.* [`ask`] runs a query for a path in its own thread and waits up to the given limit. A hanging system call (a stopped
//! FUSE program, an unreachable NFS server, a failing disk) cannot be cancelled: its thread remains until the file system answers.
//!
//! *Memory.* At most one such thread per path: while it hangs, further queries for the path fail at once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use mutex::locked;

/// Time limit for a query of a folder: it takes microseconds, unless a disk has to spin up first.
pub const LOOK_MAX: Duration = Duration::from_secs(5);

/// Paths with an abandoned query that has not returned.
static LEFT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn left() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    // Consistent after every step, so a poisoned lock is safe to use.
    locked(&LEFT)
}

/// The error for a file system that did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silent;

/// Runs `look` for this path and returns its result. Blocks for at most `limit`.
///
/// # Errors
///
/// [`Silent`] after `limit`, and at once while an earlier query for this path has not returned.
pub fn ask<T: Send + 'static>(
    path: &Path,
    limit: Duration,
    look: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Silent> {
    if left().contains(path) {
        return Err(Silent);
    }
    let (tell, told) = mpsc::channel();
    let (done, is_done) = mpsc::channel::<()>();
    let its = path.to_owned();
    let work = move || {
        let _ = tell.send(look());
        // If the receiver is gone, the caller has given up and has recorded the path before that.
        if is_done.recv().is_err() {
            left().remove(&its);
        }
    };
    if std::thread::Builder::new().name("look".into()).spawn(work).is_err() {
        // The thread could not be started. It is unknown whether the file system hangs; do not record the path.
        return Err(Silent);
    }
    match told.recv_timeout(limit) {
        Ok(found) => {
            let _ = done.send(());
            Ok(found)
        }
        Err(RecvTimeoutError::Timeout) => {
            left().insert(path.to_owned());
            drop(done);
            Err(Silent)
        }
        Err(RecvTimeoutError::Disconnected) => Err(Silent),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn hanging_query_is_not_repeated() {
        let (path, other) = (Path::new("/hangs"), Path::new("/answers"));
        let (go_on, hangs) = mpsc::channel::<()>();
        let hung = ask(path, Duration::from_millis(1), move || hangs.recv());
        assert_eq!(hung, Err(Silent));
        let began = Instant::now();
        assert_eq!(ask(path, Duration::from_secs(600), || 1), Err(Silent));
        assert!(began.elapsed() < Duration::from_secs(600));
        assert_eq!(ask(other, Duration::from_secs(600), || 2), Ok(2));
        drop(go_on);
        while left().contains(path) {
            assert!(began.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
        assert_eq!(ask(path, Duration::from_secs(600), || 3), Ok(3));
    }

    #[test]
    fn panicking_query_counts_as_silent() {
        let path = Path::new("/panics");
        assert_eq!(
            ask(path, Duration::from_secs(600), || -> u8 { panic!("on purpose") }),
            Err(Silent)
        );
        assert_eq!(ask(path, Duration::from_secs(600), || 4), Ok(4));
    }
}
