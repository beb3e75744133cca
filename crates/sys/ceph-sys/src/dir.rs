//! An open folder.

use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::Errno;
use crate::ffi;
use crate::inode::Inode;
use crate::mount::Perm;

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name; entries include `.` and `..`.
    pub name: Box<[u8]>,
    /// Inode number.
    pub ino: u64,
    /// Position of the next entry, valid for [`Dir::seek`] even in another run.
    pub next: i64,
    /// Type of the entry, as `DT_*`.
    pub kind: u8,
}

/// An open folder with a position in its entries. Dropping it closes it.
pub struct Dir {
    inode: Arc<Inode>,
    raw: NonNull<ffi::ceph_dir_result>,
}

// SAFETY: the library takes its own lock in each call, on any thread. Not `Sync`: two readers would share one position.
unsafe impl Send for Dir {}

impl Drop for Dir {
    fn drop(&mut self) {
        // SAFETY: the library opened it, and it is closed once.
        unsafe { (self.inode.api().ceph_ll_releasedir)(self.inode.mnt(), self.raw.as_ptr()) };
    }
}

impl Dir {
    fn open(inode: &Arc<Inode>, perm: &Perm) -> Result<Self, Errno> {
        let mut found = std::ptr::null_mut();
        // SAFETY: a held inode of a live mount and a place for a pointer.
        let answer = unsafe {
            (inode.api().ceph_ll_opendir)(inode.mnt(), inode.raw(), &raw mut found, perm.as_ptr())
        };
        Errno::check(answer)?;
        let raw = NonNull::new(found).ok_or(Errno(libc::EIO))?;
        Ok(Self { inode: inode.clone(), raw })
    }

    /// Continues after the entry with this position; zero is the start.
    pub fn seek(&mut self, to: i64) {
        // SAFETY: an open folder of a live mount.
        unsafe { (self.inode.api().ceph_seekdir)(self.inode.mnt(), self.raw.as_ptr(), to) };
    }

    /// Returns the next entry; `None` at the end.
    pub fn read(&mut self) -> Result<Option<Entry>, Errno> {
        // SAFETY: the structure has only numbers and bytes, which may be zero.
        let mut entry: libc::dirent64 = unsafe { std::mem::zeroed() };
        // SAFETY: an open folder of a live mount and a place for an entry.
        let answer = unsafe {
            (self.inode.api().ceph_readdir_r)(self.inode.mnt(), self.raw.as_ptr(), &raw mut entry)
        };
        if Errno::check(answer)? == 0 {
            return Ok(None);
        }
        // SAFETY: the library terminates the name with a zero inside the array.
        let name = unsafe { CStr::from_ptr(entry.d_name.as_ptr()) };
        Ok(Some(Entry {
            name: name.to_bytes().into(),
            ino: entry.d_ino,
            next: entry.d_off,
            kind: entry.d_type,
        }))
    }
}

impl Inode {
    /// Opens a folder for listing.
    pub fn opendir(self: &Arc<Self>, perm: &Perm) -> Result<Dir, Errno> {
        Dir::open(self, perm)
    }
}
