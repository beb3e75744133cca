//! Why the store cannot be used, and what to do about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::names::{FORMAT_NOW, MADE};

/// Why the store, or one request to it, failed. Cheap to clone: one failed commit answers all who took part in it.
#[derive(Clone, Debug)]
pub enum Error {
    /// The folder had a store, and it is gone.
    Missing(PathBuf),
    /// The file is there and is no sound store.
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A newer version of the program made it.
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u64,
    },
    /// Another process has it open.
    InUse(PathBuf),
    /// The file system refused.
    Io {
        /// What was worked on.
        path: PathBuf,
        /// What it said.
        why: Arc<io::Error>,
    },
    /// The records could not be made durable; none of them is.
    Commit {
        /// Where they were to be kept.
        folder: PathBuf,
        /// What the file system or the store said.
        why: String,
        /// There was no space for them.
        full: bool,
    },
    /// A key or value is longer than [`crate::limits`] allow.
    TooBig(&'static str),
    /// More requests wait than may.
    Busy,
    /// The writer has ended.
    Ended,
}

impl Error {
    /// The file system refused what was to be done with this path.
    pub fn io(path: impl Into<PathBuf>, why: io::Error) -> Self {
        Self::Io { path: path.into(), why: Arc::new(why) }
    }

    pub(crate) fn commit(folder: &Path, why: &redb::Error) -> Self {
        let full = matches!(why, redb::Error::Io(why) if is_full(why));
        Self::Commit { folder: folder.to_owned(), why: why.to_string(), full }
    }

    /// There is no space for what the store has to keep.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Commit { full, .. } => *full,
            Self::Io { why, .. } => is_full(why),
            _ => false,
        }
    }
}

/// No space, or none of what the user may have.
fn is_full(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// What to do about an error of the file system below a state folder.
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
