//! Finds a file again by its names after its descriptor became stale.
//!
//! *Operation.* On a volume where each name may have an inode ([`super::probe::Found::inode_per_name`]) the record of a file keeps
//! the names by which it was last found. When the kernel calls its descriptor stale, the record opens the file again by one of
//! these names and replaces the descriptor, so every reference to the record stays valid. A file system may give the inode number
//! to another file under the same name: the record refuses a file that cannot be its own ([`LastSeen`](super::held::LastSeen)), and
//! the new file gets a new record.
//!
//! *Memory.* [`KnownNames`](super::held::KnownNames) for each record of such a volume.
//!
//! *Errors.* [`VfsError::Stale`] when these names no longer lead to the file.

use std::os::fd::{AsFd, OwnedFd};

use mutex::locked;
use rustix::fs::{Mode, OFlags};

use super::node::LocalNode;
use super::stat::{self, Stat};
use super::sys;
use crate::error::{VfsError, VfsResult};

impl LocalNode {
    /// Returns the current answer of `statx` for the file.
    pub(super) fn stat(&self) -> VfsResult<Stat> {
        match stat::of_fd(self.fd()) {
            Err(VfsError::Stale | VfsError::NotFound) if self.volume.inode_per_name => {
                self.renew()?;
                stat::of_fd(self.fd())
            }
            other => other,
        }
    }

    /// Opens the file again with other flags, with the credentials of the process.
    pub(super) fn reopen(&self, flags: OFlags) -> VfsResult<OwnedFd> {
        match self.volume.reopen(self.fd(), flags) {
            Err(VfsError::Stale | VfsError::NotFound) if self.volume.inode_per_name => {
                self.renew()?;
                self.volume.reopen(self.fd(), flags)
            }
            other => other,
        }
    }

    /// Notes a name by which the file was just found, and opens the file by that name if the record's descriptor is stale.
    pub(super) fn renew_by(&self, dir: &LocalNode, name: &[u8]) -> VfsResult<()> {
        if !self.volume.inode_per_name || self.is_root() {
            return Ok(());
        }
        locked(&self.names).note(&dir.strong()?, name);
        self.stat().map(drop)
    }

    fn renew(&self) -> VfsResult<()> {
        let known = locked(&self.names).all();
        let seen = *locked(&self.seen);
        for (dir, name) in known {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(fd) = rustix::fs::openat(dir.fd(), &*name, flags, Mode::empty()) else {
                continue;
            };
            let Ok(found) = stat::of_fd(fd.as_fd()) else { continue };
            let is_it = (found.dev, found.ino, found.attr.kind) == (self.dev, self.ino, self.kind);
            if is_it && seen.is_none_or(|seen| seen.may_be(&found.attr)) {
                return sys::replace(self.fd(), &fd);
            }
        }
        Err(VfsError::Stale)
    }
}
