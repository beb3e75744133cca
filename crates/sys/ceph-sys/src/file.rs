//! An open file.

use std::ffi::c_int;
use std::io::{IoSlice, IoSliceMut};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::Errno;
use crate::ffi::{self, CEPH_STATX_ALL_STATS, ceph_statx};
use crate::inode::{Inode, Name};
use crate::mount::Perm;

/// Maximum number of vectors in one call (`IOV_MAX`).
const VECTORS_MAX: usize = 1024;

/// An open file. Dropping it closes it.
pub struct File {
    inode: Arc<Inode>,
    raw: NonNull<ffi::Fh>,
}

// SAFETY: the library takes its own lock in each call, on any thread.
unsafe impl Send for File {}
// SAFETY: see above; reads and writes have explicit offsets.
unsafe impl Sync for File {}

/// A mode of [`File::fallocate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallocate {
    /// Punches a hole without changing the size.
    PunchHole,
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the library opened it, and it is closed once.
        unsafe { (self.inode.api().ceph_ll_close)(self.inode.mnt(), self.raw.as_ptr()) };
    }
}

impl File {
    fn adopt(inode: &Arc<Inode>, fh: *mut ffi::Fh) -> Result<Self, Errno> {
        let raw = NonNull::new(fh).ok_or(Errno(libc::EIO))?;
        Ok(Self { inode: inode.clone(), raw })
    }

    /// Reads as many bytes as the file has and the slices hold; zero at the end of the file.
    pub fn read(&self, at: u64, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        let at = offset(at)?;
        let count = counted(into.len());
        // SAFETY: an open file of a live mount. `IoSliceMut` has the layout of `iovec`; each is writable for its length.
        let answer = unsafe {
            (self.inode.api().ceph_ll_readv)(
                self.inode.mnt(),
                self.raw.as_ptr(),
                into.as_mut_ptr().cast::<libc::iovec>(),
                count,
                at,
            )
        };
        Errno::check(answer).map(|n| usize::try_from(n).unwrap_or(usize::MAX))
    }

    /// Writes data; may write fewer bytes.
    pub fn write(&self, at: u64, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let at = offset(at)?;
        let count = counted(from.len());
        // SAFETY: an open file of a live mount. `IoSlice` has the layout of `iovec`; the library only reads.
        let answer = unsafe {
            (self.inode.api().ceph_ll_writev)(
                self.inode.mnt(),
                self.raw.as_ptr(),
                from.as_ptr().cast::<libc::iovec>(),
                count,
                at,
            )
        };
        Errno::check(answer).map(|n| usize::try_from(n).unwrap_or(usize::MAX))
    }

    /// Makes written data durable, and all attributes unless `data_only`.
    pub fn fsync(&self, data_only: bool) -> Result<(), Errno> {
        let api = self.inode.api();
        // SAFETY: an open file of a live mount.
        let answer = unsafe {
            (api.ceph_ll_fsync)(self.inode.mnt(), self.raw.as_ptr(), c_int::from(data_only))
        };
        Errno::check(answer).map(drop)
    }

    /// Changes the allocation of a part of the file.
    pub fn fallocate(&self, how: Fallocate, at: u64, count: u64) -> Result<(), Errno> {
        let mode = match how {
            Fallocate::PunchHole => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
        };
        let (at, count) = (offset(at)?, offset(count)?);
        // SAFETY: an open file of a live mount.
        let answer = unsafe {
            (self.inode.api().ceph_ll_fallocate)(
                self.inode.mnt(),
                self.raw.as_ptr(),
                mode,
                at,
                count,
            )
        };
        Errno::check(answer).map(drop)
    }
}

impl Inode {
    /// Creates a regular file under an unused name and opens it for reading and writing.
    pub fn create(
        &self,
        name: &Name,
        mode: u32,
        perm: &Perm,
    ) -> Result<(Arc<Self>, File, ceph_statx), Errno> {
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_NOFOLLOW;
        let (mut made, mut fh) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mut stx = ceph_statx::empty();
        // SAFETY: a held inode of a live mount, a C string, and places for the answers.
        let answer = unsafe {
            (self.api().ceph_ll_create)(
                self.mnt(),
                self.raw(),
                name.as_ptr(),
                mode,
                flags,
                &raw mut made,
                &raw mut fh,
                &raw mut stx,
                CEPH_STATX_ALL_STATS,
                0,
                perm.as_ptr(),
            )
        };
        let inode = Arc::new(Self::adopt(self.mount(), answer, made)?);
        let file = File::adopt(&inode, fh)?;
        Ok((inode, file, stx))
    }

    /// Opens a regular file with the `flags` of open(2).
    pub fn open(self: &Arc<Self>, flags: c_int, perm: &Perm) -> Result<File, Errno> {
        let mut fh = std::ptr::null_mut();
        // SAFETY: a held inode of a live mount and a place for a pointer.
        let answer = unsafe {
            (self.api().ceph_ll_open)(self.mnt(), self.raw(), flags, &raw mut fh, perm.as_ptr())
        };
        Errno::check(answer)?;
        File::adopt(self, fh)
    }
}

fn offset(at: u64) -> Result<i64, Errno> {
    i64::try_from(at).map_err(|_| Errno(libc::EINVAL))
}

fn counted(vectors: usize) -> c_int {
    // Invariant: far below the limit of the type.
    c_int::try_from(vectors.min(VECTORS_MAX)).unwrap_or(c_int::MAX)
}
