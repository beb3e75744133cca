//! Storage of files: holes, reservations, copies and clones by the kernel's own calls.
//!
//! *Operation.* Long calls run on a thread. Permission was checked when the caller opened the files. Every change of data still
//! runs with the caller's credentials, so that the blocks reserved for root and quotas apply, and the kernel clears set-id bits
//! before the data changes.
//!
//! *Errors.* [`VfsError::NotSupported`] where the file system lacks the operation; the front end then reports that to the client,
//! which copies the data itself.

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use crate::backend::Node;
use crate::engine::limits::COPY_MAX;
use crate::error::{VfsError, VfsResult};
use crate::types::{Cred, Seek};

use super::node::LocalNode;
use super::sys;

impl LocalNode {
    pub(super) fn do_seek(&self, at: u64, what: Seek) -> VfsResult<u64> {
        self.regular()?;
        if i64::try_from(at).is_err() {
            return Err(VfsError::NoMoreData);
        }
        let fd = self.data_fd(false)?;
        let from = match what {
            Seek::Data => SeekFrom::Data(at),
            Seek::Hole => SeekFrom::Hole(at),
        };
        Ok(rustix::fs::seek(&fd, from)?)
    }

    pub(super) async fn do_allocate(
        &self,
        opener: Option<&Cred>,
        at: u64,
        count: u64,
    ) -> VfsResult<()> {
        self.fallocate(opener, FallocateFlags::empty(), at, count).await
    }

    pub(super) async fn do_deallocate(
        &self,
        opener: Option<&Cred>,
        at: u64,
        count: u64,
    ) -> VfsResult<()> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.fallocate(opener, hole, at, count).await
    }

    /// Finishes a change of data with this result: some file systems leave it to the caller to clear set-id bits.
    fn changed_by<T>(&self, opener: Option<&Cred>, done: VfsResult<T>) -> VfsResult<T> {
        self.changed();
        let done = done?;
        self.shed_set_id(opener, &self.attr()?)?;
        Ok(done)
    }

    async fn fallocate(
        &self,
        opener: Option<&Cred>,
        flags: FallocateFlags,
        at: u64,
        count: u64,
    ) -> VfsResult<()> {
        self.volume.writable()?;
        self.regular()?;
        if count == 0 {
            return Err(VfsError::Invalid);
        }
        if i64::try_from(at.saturating_add(count)).is_err() {
            return Err(VfsError::TooBig);
        }
        let fd = self.data_fd_soon(true).await?;
        let owner = opener.filter(|c| self.volume.identity.differs(c));
        let me = self.strong()?;
        let take = move || {
            let done = rustix::fs::fallocate(&fd, flags, at, count);
            me.note_unsynced();
            Ok(done?)
        };
        let done = self.volume.engine.run_copy(self.later_as(owner, take)).await;
        self.changed_by(opener, done)
    }

    pub(super) async fn do_copy_range(
        &self,
        opener: Option<&Cred>,
        from: &dyn Node,
        from_at: u64,
        at: u64,
        count: u64,
    ) -> VfsResult<u64> {
        self.volume.writable()?;
        let from = self.same_backend(from)?;
        from.regular()?;
        self.regular()?;
        let size = from.attr()?.size;
        if from_at > size {
            return Err(VfsError::Invalid);
        }
        let count = if count == 0 { size - from_at } else { count.min(size - from_at) };
        if i64::try_from(at.saturating_add(count)).is_err() {
            return Err(VfsError::TooBig);
        }
        let wanted = usize::try_from(count.min(COPY_MAX)).unwrap_or(usize::MAX);
        let (source, sink) = (from.data_fd_soon(false).await?, self.data_fd_soon(true).await?);
        let owner = opener.filter(|c| self.volume.identity.differs(c));
        let me = self.strong()?;
        let copy = move || {
            let (mut here, mut there, mut n) = (from_at, at, 0);
            let mut failed = None;
            while n < wanted && failed.is_none() {
                let step = rustix::fs::copy_file_range(
                    &source,
                    Some(&mut here),
                    &sink,
                    Some(&mut there),
                    wanted - n,
                );
                match step {
                    Ok(0) => break,
                    Ok(some) => n += some,
                    Err(Errno::INTR) => {}
                    Err(e) => failed = Some(cannot(e)),
                }
            }
            me.note_unsynced();
            match failed {
                Some(e) if n == 0 => Err(e),
                _ => Ok(n as u64),
            }
        };
        let done = self.volume.engine.run_copy(self.later_as(owner, copy)).await;
        self.changed_by(opener, done)
    }

    pub(super) async fn do_clone_range(
        &self,
        opener: Option<&Cred>,
        from: &dyn Node,
        from_at: u64,
        at: u64,
        count: u64,
    ) -> VfsResult<()> {
        use std::os::fd::AsFd;
        self.volume.writable()?;
        let from = self.same_backend(from)?;
        from.regular()?;
        self.regular()?;
        let (source, sink) = (from.data_fd_soon(false).await?, self.data_fd_soon(true).await?);
        let owner = opener.filter(|c| self.volume.identity.differs(c));
        let me = self.strong()?;
        let clone = move || {
            let done = sys::clone_range(source.as_fd(), from_at, sink.as_fd(), at, count);
            me.note_unsynced();
            done
        };
        let done = self.volume.engine.run_copy(self.later_as(owner, clone)).await;
        self.changed_by(opener, done)
    }
}

/// Maps errors between two file systems below one share (subvolumes of some types) to [`VfsError::NotSupported`].
fn cannot(e: Errno) -> VfsError {
    if e == Errno::XDEV { VfsError::NotSupported } else { e.into() }
}
