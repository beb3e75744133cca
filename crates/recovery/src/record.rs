//! Records, and what is done to them.

use std::sync::atomic::AtomicU64;

use crate::error::Error;
use crate::limits::{KEY_MAX, VALUE_MAX};

/// Sorts of records. Keys of one sort are apart from those of all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// What the server is: its number of starts, its names.
    Server,
    /// Clients of NFSv4 that hold something, by their names.
    NfsClient,
    /// Persistent handles of SMB, by their numbers.
    SmbOpen,
    /// Hosts that hold locks by NLM and are to be told of a restart, by their names.
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

/// A step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Keeps a record, in place of one with the same key.
    Put(Kind, Box<[u8]>, Box<[u8]>),
    /// Removes a record, if it is there.
    Remove(Kind, Box<[u8]>),
}

impl Change {
    /// See [`Change::Put`].
    pub fn put(kind: Kind, key: &[u8], value: &[u8]) -> Self {
        Self::Put(kind, key.into(), value.into())
    }

    /// See [`Change::Remove`].
    pub fn remove(kind: Kind, key: &[u8]) -> Self {
        Self::Remove(kind, key.into())
    }

    /// Neither key nor value is too long.
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

/// How often what was done.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests that were made durable.
    pub requests: AtomicU64,
    /// Commits that they shared.
    pub commits: AtomicU64,
    /// Commits that failed.
    pub failed: AtomicU64,
    /// Requests refused because too many waited.
    pub refused: AtomicU64,
    /// Microseconds that commits took, together.
    pub commit_us: AtomicU64,
}
