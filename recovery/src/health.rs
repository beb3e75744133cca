//! Whether the store can be written, for whoever watches the gateway.
//!
//! *Operation.* The writer notes how each commit ended. While one has failed and none has succeeded since, it tries by itself every
//! [`PROBE`](crate::limits::PROBE), so that trouble that has passed is not told of any longer, though nobody had anything to keep.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Error;

/// The store cannot be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreTrouble {
    /// The state folder.
    pub folder: PathBuf,
    /// Bytes that are free there for this process; `None` when the file system does not say.
    pub free: Option<u64>,
    /// What went wrong, with what to do about it.
    pub what: String,
}

impl StoreTrouble {
    /// What it means for clients.
    pub const CONSEQUENCE: &str = "NFSv4 clients that are new, and hosts that lock by NFSv3, are refused opens and locks; what \
                                   lapsed clients held stays theirs; SMB gives no persistent handles";
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
    trouble: Mutex<Option<String>>,
}

impl Health {
    pub(crate) fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), trouble: Mutex::default() }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn trouble(&self) -> MutexGuard<'_, Option<String>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A commit has ended. The log is told when trouble begins and when it is over, not of every commit between.
    pub(crate) fn note(&self, done: &Result<(), Error>) {
        let mut trouble = self.trouble();
        match (done, trouble.is_some()) {
            (Ok(()), true) => {
                *trouble = None;
                tracing::info!(folder = %self.folder.display(), "the state folder can be written again");
            }
            (Err(why), known) => {
                *trouble = Some(why.to_string());
                drop(trouble);
                if !known && let Some(told) = self.now() {
                    tracing::error!("{told}");
                }
            }
            (Ok(()), false) => {}
        }
    }

    pub(crate) fn is_troubled(&self) -> bool {
        self.trouble().is_some()
    }

    pub(crate) fn now(&self) -> Option<StoreTrouble> {
        let what = self.trouble().clone()?;
        let free = rustix::fs::statvfs(&self.folder).ok();
        let free = free.map(|s| s.f_bavail.saturating_mul(s.f_frsize));
        Some(StoreTrouble { folder: self.folder.clone(), free, what })
    }
}
