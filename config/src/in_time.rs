//! Questions to a file system that may give no answer, asked by threads that can be left behind.
//!
//! *Operation.* [`ask`] runs a look at a path on a thread of its own and waits for as long as it is told. A system call that hangs
//! (a FUSE program that has stopped, a server of NFS that is gone, a failing disk) cannot be taken back: its thread stays until the
//! file system answers.
//!
//! *Memory.* One such thread for each path at most: while it stays, others who ask about the path are told at once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use mutex::locked;

/// How long a look at a folder may take: it is a matter of microseconds, or of a disk that has to start first.
pub const LOOK_MAX: Duration = Duration::from_secs(5);

/// What nobody waits for any more and has not come back.
static LEFT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn left() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    // Whole at every step.
    locked(&LEFT)
}

/// The file system did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silent;

/// What `look` finds at this path, if that takes no longer than `limit`. Blocks until then.
///
/// # Errors
///
/// [`Silent`] after `limit`, and at once while an earlier look at this path has not come back.
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
        // Nobody is told when the one who asked has waited: it has said so before it dropped its end.
        if is_done.recv().is_err() {
            left().remove(&its);
        }
    };
    if std::thread::Builder::new().name("look".into()).spawn(work).is_err() {
        // No thread is to be had. It is not known that this hangs.
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
    fn a_look_that_hangs_is_left_behind_and_nobody_waits_for_it_again() {
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
    fn a_look_that_panics_is_no_answer() {
        let path = Path::new("/panics");
        assert_eq!(
            ask(path, Duration::from_secs(600), || -> u8 { panic!("on purpose") }),
            Err(Silent)
        );
        assert_eq!(ask(path, Duration::from_secs(600), || 4), Ok(4));
    }
}
