//! A file whose descriptor went stale, found again by its names.
//!
//! *Operation.* On a volume where each name may have an inode ([`super::probe::Found::inode_per_name`]) the record of a file keeps
//! the names by which it was found last. When the kernel calls its descriptor stale, the record opens the file again by one of
//! them, in place of the descriptor, so that the record stays the same to all that refer to it.
//!
//! *Memory.* [`NAMES_MAX`] names for each record of such a volume.
//!
//! *Errors.* [`VfsError::Stale`] where none of these names is the file's any more.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

use mutex::locked;
use rustix::fs::{Mode, OFlags};

use super::node::LocalNode;
use super::stat::{self, Stat};
use super::sys;
use crate::error::{VfsError, VfsResult};

/// Names that a record keeps.
const NAMES_MAX: usize = 4;

/// Directories and names in them, the last one found first.
#[derive(Default)]
pub(super) struct KnownNames(Vec<(Weak<LocalNode>, Box<[u8]>)>);

impl KnownNames {
    fn note(&mut self, dir: &Arc<LocalNode>, name: &[u8]) {
        let is_it = |(d, n): &(Weak<LocalNode>, Box<[u8]>)| {
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

    fn all(&self) -> Vec<(Arc<LocalNode>, Box<[u8]>)> {
        let known = self.0.iter();
        known.filter_map(|(dir, name)| Some((dir.upgrade()?, name.clone()))).collect()
    }
}

impl LocalNode {
    /// What `statx` says of the file now.
    pub(super) fn stat(&self) -> VfsResult<Stat> {
        match stat::of_fd(self.fd()) {
            Err(VfsError::Stale | VfsError::NotFound) if self.volume.inode_per_name => {
                self.renew()?;
                stat::of_fd(self.fd())
            }
            other => other,
        }
    }

    /// Opens the file again with other flags, as the process.
    pub(super) fn reopen(&self, flags: OFlags) -> VfsResult<OwnedFd> {
        match self.volume.reopen(self.fd(), flags) {
            Err(VfsError::Stale | VfsError::NotFound) if self.volume.inode_per_name => {
                self.renew()?;
                self.volume.reopen(self.fd(), flags)
            }
            other => other,
        }
    }

    /// Notes a name that the file was just found by, and opens it by that where the record's descriptor is stale.
    pub(super) fn renew_by(&self, dir: &LocalNode, name: &[u8]) -> VfsResult<()> {
        if !self.volume.inode_per_name || self.is_root() {
            return Ok(());
        }
        locked(&self.names).note(&dir.strong()?, name);
        self.stat().map(drop)
    }

    fn renew(&self) -> VfsResult<()> {
        let known = locked(&self.names).all();
        for (dir, name) in known {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(fd) = rustix::fs::openat(dir.fd(), &*name, flags, Mode::empty()) else {
                continue;
            };
            let Ok(found) = stat::of_fd(fd.as_fd()) else { continue };
            if (found.dev, found.ino, found.attr.kind) == (self.dev, self.ino, self.kind) {
                return sys::replace(self.fd(), &fd);
            }
        }
        Err(VfsError::Stale)
    }
}
