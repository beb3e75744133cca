//! Health of the store, for monitoring.
//!
//! *Operation.* The writer records the result of each commit. After a failure it attempts a commit of realistic size
//! ([`PROBE_BYTES`](crate::limits::PROBE_BYTES)) every [`PROBE`](crate::limits::PROBE), and the trouble ends when one succeeds. A
//! small commit is not enough: on a full file system it may still fit into free pages of the store when the next client's record
//! does not.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use mutex::locked;

use crate::error::Error;
use crate::folder::Folder;

/// A failure to write the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreTrouble {
    pub folder: PathBuf,
    /// Free space for this process at the last attempt, in bytes; `None` if the file system does not report it.
    pub free: Option<u64>,
    /// Describes the failure and suggests a remedy.
    pub what: String,
}

impl StoreTrouble {
    /// Consequences for clients.
    pub const CONSEQUENCE: &str = "new NFSv4 clients, and hosts that lock through NFSv3, are refused opens and locks; \
                                   lapsed clients keep their opens and locks; SMB grants no persistent handles, and those \
                                   that exist can neither lock nor unlock";
}

impl fmt::Display for StoreTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        if let Some(free) = self.free {
            write!(f, " ({free} bytes are free)")?;
        }
        write!(f, ". Until then {}", Self::CONSEQUENCE)
    }
}

/// The result of the last commit.
#[derive(Debug)]
pub(crate) struct Health {
    folder: PathBuf,
    /// The folder to query for free space; a custom file layer has none.
    asked: Option<Arc<dyn Folder>>,
    trouble: Mutex<Option<StoreTrouble>>,
}

impl Health {
    pub(crate) fn of(folder: &Path, asked: Option<Arc<dyn Folder>>) -> Self {
        Self { folder: folder.to_owned(), asked, trouble: Mutex::default() }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn trouble(&self) -> MutexGuard<'_, Option<StoreTrouble>> {
        locked(&self.trouble)
    }

    /// Records the result of a commit. Logs one line when trouble begins.
    pub(crate) fn note(&self, done: &Result<(), Error>) {
        // Query the file system before taking the lock.
        let Some(now) = done.as_ref().err().map(|why| self.measured(why.to_string())) else {
            return;
        };
        if self.trouble().replace(now.clone()).is_none() {
            tracing::error!("{now}");
        }
    }

    /// Records the result of a probe. Logs one line when trouble ends.
    pub(crate) fn note_probe(&self, done: &Result<(), Error>) {
        self.note(done);
        if done.is_ok() && self.trouble().take().is_some() {
            tracing::info!(folder = %self.folder.display(), "the state folder can be written again");
        }
    }

    pub(crate) fn is_troubled(&self) -> bool {
        self.trouble().is_some()
    }

    pub(crate) fn now(&self) -> Option<StoreTrouble> {
        self.trouble().clone()
    }

    /// Queries the file system, which may hang, so call it only on the writer's thread.
    fn measured(&self, what: String) -> StoreTrouble {
        let free = self.asked.as_ref().and_then(|folder| folder.free());
        StoreTrouble { folder: self.folder.clone(), free, what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_ends_only_after_probe() {
        let health = Health::of(Path::new("/state"), None);
        health.note(&Ok(()));
        assert!(!health.is_troubled());
        health.note(&Err(Error::Ended));
        for _ in 0..3 {
            health.note(&Ok(()));
            assert!(health.is_troubled(), "a small commit says nothing of the next one");
        }
        health.note_probe(&Err(Error::Ended));
        assert!(health.is_troubled());
        health.note_probe(&Ok(()));
        assert!(health.now().is_none());
    }
}
