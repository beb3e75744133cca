//! Whether the store can be written, for whoever watches the gateway.
//!
//! *Operation.* The writer notes how each commit ended. After one that failed it tries a commit of real size
//! ([`PROBE_BYTES`](crate::limits::PROBE_BYTES)) every [`PROBE`](crate::limits::PROBE), and the trouble ends when that succeeds: on
//! a full file system a small commit still finds room in the pages of the store, while the record of the next client finds none.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use mutex::locked;

use crate::error::Error;
use crate::folder::Folder;

/// The store cannot be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreTrouble {
    /// The state folder.
    pub folder: PathBuf,
    /// Bytes that were free there for this process at the last attempt; `None` when the file system does not say.
    pub free: Option<u64>,
    /// What went wrong, with what to do about it.
    pub what: String,
}

impl StoreTrouble {
    /// What it means for clients.
    pub const CONSEQUENCE: &str = "NFSv4 clients that are new, and hosts that lock by NFSv3, are refused opens and locks; what \
                                   lapsed clients held stays theirs; SMB gives no persistent handles, and those that it gave \
                                   lock and unlock nothing";
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

/// How the last commit ended.
#[derive(Debug)]
pub(crate) struct Health {
    folder: PathBuf,
    /// Is asked how much is free; a store on a file layer of its own has none.
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

    /// Notes how a commit ended. The log has one line when trouble begins.
    pub(crate) fn note(&self, done: &Result<(), Error>) {
        // The file system is asked before the lock is taken.
        let Some(now) = done.as_ref().err().map(|why| self.measured(why.to_string())) else {
            return;
        };
        if self.trouble().replace(now.clone()).is_none() {
            tracing::error!("{now}");
        }
    }

    /// Notes how a commit of real size ended. The log has one line when trouble ends.
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

    /// Asks the file system, which may hang: for the writer's thread.
    fn measured(&self, what: String) -> StoreTrouble {
        let free = self.asked.as_ref().and_then(|folder| folder.free());
        StoreTrouble { folder: self.folder.clone(), free, what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_ends_by_a_probe_alone() {
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
