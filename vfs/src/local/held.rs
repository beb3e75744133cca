//! Further state in the record of an inode.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use crate::acl::Acl;
use crate::dos::Dos;
use crate::types::{Attr, DirEntry, Time, XattrSizes};

use super::descriptors::Fd;

/// A descriptor for data, shared by requests.
#[derive(Clone)]
pub(super) struct DataFd {
    fd: Arc<Fd>,
    pub(super) write: bool,
}

impl DataFd {
    pub(super) fn new(fd: OwnedFd, write: bool) -> Self {
        Self { fd: Arc::new(Fd::new(fd)), write }
    }

    /// True if it is unused. Called under the lock that lends it.
    pub(super) fn is_unused(&mut self) -> bool {
        Arc::get_mut(&mut self.fd).is_some()
    }
}

impl AsFd for DataFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// An open listing with its position.
pub(super) struct Listing {
    pub(super) fd: Fd,
    /// The cookie before the entries in `ahead`.
    pub(super) at: u64,
    pub(super) ahead: VecDeque<DirEntry>,
    /// No entries follow those in `ahead`.
    pub(super) end: bool,
    pub(super) fetched: u64,
}

/// Side data read when the node had this change time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside {
    pub(super) ctime: Time,
    pub(super) dos: Dos,
    pub(super) xattrs: XattrSizes,
}

/// The lists of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct StoredLists {
    /// The list stored by the gateway, unless a list of the host was set since.
    pub(super) acl: Option<Arc<Acl>>,
    /// Whether the host has a list for the node itself; `None`: unknown.
    pub(super) has_access: Option<bool>,
    /// Whether the host has a list for new nodes in the directory; `None`: unknown.
    pub(super) has_default: Option<bool>,
}

/// A directory just before a call that makes a node in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct FolderNow {
    pub(super) attr: Attr,
    /// False only if it is known to have no stored list.
    pub(super) may_be_listed: bool,
}

/// Marks a record outside the clock.
pub(super) const NO_SLOT: usize = usize::MAX;

/// A moment in the sequence of created records: see [`Cache::moment`](super::cache::Cache::moment).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(pub(super) u64);

/// Number of names that a record remembers.
const NAMES_MAX: usize = 4;

/// Directories of a file with its names in them, latest first: see [`super::renew`].
pub(super) struct KnownNames<Dir>(Vec<(Weak<Dir>, Box<[u8]>)>);

impl<Dir> Default for KnownNames<Dir> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<Dir> KnownNames<Dir> {
    pub(super) fn note(&mut self, dir: &Arc<Dir>, name: &[u8]) {
        let is_it = |(d, n): &(Weak<Dir>, Box<[u8]>)| {
            std::ptr::eq(d.as_ptr(), Arc::as_ptr(dir)) && **n == *name
        };
        match self.0.iter().position(is_it) {
            Some(at) => self.0[..=at].rotate_right(1),
            None => {
                self.0.insert(0, (Arc::downgrade(dir), name.into()));
                self.0.truncate(NAMES_MAX);
            }
        }
    }

    pub(super) fn all(&self) -> Vec<(Arc<Dir>, Box<[u8]>)> {
        let known = self.0.iter();
        known.filter_map(|(dir, name)| Some((dir.upgrade()?, name.clone()))).collect()
    }
}

/// Properties that show later whether a file is the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastSeen {
    /// True if the file has another name, according to its link count.
    has_more: bool,
    size: u64,
    mtime: Time,
    btime: Option<Time>,
}

impl LastSeen {
    pub(super) fn new(attr: &Attr, counts_links: bool) -> Self {
        let has_more = attr.nlink > 1 || !counts_links;
        Self { has_more, size: attr.size, mtime: attr.mtime, btime: attr.btime }
    }

    /// True if a file with the same number may be this one. A file seen with a single link may have got others on the host since,
    /// which changes neither size nor time.
    pub(super) fn may_be(&self, found: &Attr) -> bool {
        let is_born_alike = self.btime.zip(found.btime).is_none_or(|(one, other)| one == other);
        let is_unchanged = (self.size, self.mtime) == (found.size, found.mtime);
        is_born_alike && (self.has_more || is_unchanged)
    }
}
