//! Records and changes.

use std::sync::atomic::AtomicU64;

use crate::error::Error;
use crate::limits::{KEY_MAX, VALUE_MAX};

/// Kinds of records. Each kind has its own key space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Data of the server itself, such as its boot count and names.
    Server,
    /// NFSv4 clients with state, by name.
    NfsClient,
    /// Persistent SMB handles, by number.
    SmbOpen,
    /// Hosts with NLM locks, which must be notified of a restart, by name.
    NlmMonitor,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] =
        [Self::Server, Self::NfsClient, Self::SmbOpen, Self::NlmMonitor];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::NfsClient => "nfs-client",
            Self::SmbOpen => "smb-open",
            Self::NlmMonitor => "nlm-monitor",
        }
    }
}

/// A key and its value.
pub type Record = (Box<[u8]>, Box<[u8]>);

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Stores a record and replaces one with the same key.
    Put(Kind, Box<[u8]>, Box<[u8]>),
    /// Removes a record, if it exists.
    Remove(Kind, Box<[u8]>),
}

impl Change {
    pub fn put(kind: Kind, key: &[u8], value: &[u8]) -> Self {
        Self::Put(kind, key.into(), value.into())
    }

    pub fn remove(kind: Kind, key: &[u8]) -> Self {
        Self::Remove(kind, key.into())
    }

    /// Checks the lengths of key and value.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let (Self::Put(_, key, _) | Self::Remove(_, key)) = self;
        if key.len() > KEY_MAX {
            return Err(Error::TooBig("a key"));
        }
        match self {
            Self::Put(_, _, value) if value.len() > VALUE_MAX => Err(Error::TooBig("a record")),
            _ => Ok(()),
        }
    }
}

/// Counters of the store.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests made durable.
    pub requests: AtomicU64,
    /// Commits for these requests.
    pub commits: AtomicU64,
    pub failed: AtomicU64,
    /// Requests refused because the queue was full.
    pub refused: AtomicU64,
    /// Total duration of commits, in microseconds.
    pub commit_us: AtomicU64,
}
