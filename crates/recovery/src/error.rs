//! Errors of the store, with a suggested remedy.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::names::{FORMAT_NOW, MADE};

/// Error of the store or of one request. Cheap to clone, because all requests in a failed commit get it.
#[derive(Clone, Debug)]
pub enum Error {
    /// The folder had a store, but the file is missing.
    Missing(PathBuf),
    /// The file exists but is not a valid store.
    Damaged {
        path: PathBuf,
        /// Describes the damage.
        why: String,
    },
    /// A newer version of the program created the file.
    Newer {
        path: PathBuf,
        /// Format version of the file.
        format: u64,
    },
    /// Another process has the store open.
    InUse(PathBuf),
    /// The file system returned an error.
    Io {
        /// The file or folder concerned.
        path: PathBuf,
        /// The error of the file system.
        why: Arc<io::Error>,
    },
    /// The records could not be made durable; all changes of the commit are lost.
    Commit {
        folder: PathBuf,
        /// The error of the file system or the database.
        why: String,
        /// The file system was full.
        full: bool,
    },
    /// A key or value exceeds [`crate::limits`].
    TooBig(&'static str),
    /// Too many requests are queued.
    Busy,
    /// The writer thread has ended.
    Ended,
}

impl Error {
    /// Builds the error for a failed operation on this path.
    pub fn io(path: impl Into<PathBuf>, why: io::Error) -> Self {
        Self::Io { path: path.into(), why: Arc::new(why) }
    }

    pub(crate) fn commit(folder: &Path, why: &redb::Error) -> Self {
        let full = matches!(why, redb::Error::Io(why) if is_full(why));
        Self::Commit { folder: folder.to_owned(), why: why.to_string(), full }
    }

    /// Checks whether the cause is a full file system.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Commit { full, .. } => *full,
            Self::Io { why, .. } => is_full(why),
            _ => false,
        }
    }
}

/// Checks for a full file system or an exceeded quota.
fn is_full(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Suggests a remedy for an error of the file system that contains the state folder.
fn remedy(folder: &Path, full: bool) -> String {
    let folder = folder.display();
    if full {
        format!(
            "make space on the file system of {folder}, or move the folder and set `state` to its new place"
        )
    } else {
        format!("see to the file system of {folder}")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way_out = |path: &PathBuf| {
            let made = path.with_file_name(MADE);
            format!(
                "put a sound copy back; or, to start without it, move {} and {} away: clients then lose the locks and \
                 persistent handles that they held, and keep their mounts",
                path.display(),
                made.display()
            )
        };
        match self {
            Self::Missing(path) => write!(
                f,
                "{} is missing, though this state folder had it; {}",
                path.display(),
                way_out(path)
            ),
            Self::Damaged { path, why } => {
                write!(f, "{} is damaged ({why}); {}", path.display(), way_out(path))
            }
            Self::Newer { path, format } => write!(
                f,
                "{} is of format {format}, which a newer headgate has written; this one knows {FORMAT_NOW}: run the newer \
                 version, or put back the copy that was made before the update",
                path.display()
            ),
            Self::InUse(path) => {
                write!(f, "{} is in use by another process; stop that one", path.display())
            }
            Self::Io { path, why } => {
                let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(path);
                write!(f, "{}: {why}; {}", path.display(), remedy(folder, is_full(why)))
            }
            Self::Commit { folder, why, full } => write!(
                f,
                "what must survive a restart was not written to the state folder {}: {why}; {}",
                folder.display(),
                remedy(folder, *full)
            ),
            Self::TooBig(what) => write!(f, "{what} is too long for the store"),
            Self::Busy => write!(f, "too many requests wait for the store"),
            Self::Ended => write!(f, "the store was closed"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(e: Error) -> Self {
        Self::other(e.to_string())
    }
}
