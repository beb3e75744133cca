//! A referenced inode and its operations.

use std::ffi::{CString, c_int};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::Errno;
use crate::ffi::{self, CEPH_STATX_ALL_STATS, ceph_statx};
use crate::mount::{Calls, Mount, Perm, Vino};

/// Initial buffer size for the value of an extended attribute, and the maximum (`XATTR_SIZE_MAX`).
const VALUE_USUAL: usize = 1024;
const VALUE_MAX: usize = 64 << 10;
/// Maximum length of a symbolic link's target (`PATH_MAX`).
const TARGET_MAX: usize = 4096;

/// A name in a folder, or of an extended attribute.
#[derive(Clone, Debug)]
pub struct Name(CString);

impl Name {
    /// Converts a name; fails with EINVAL if it contains a zero byte.
    pub fn new(name: &[u8]) -> Result<Self, Errno> {
        CString::new(name).map(Self).map_err(|_| Errno(libc::EINVAL))
    }

    pub(crate) fn as_ptr(&self) -> *const libc::c_char {
        self.0.as_ptr()
    }
}

/// Attributes to set: bits `CEPH_SETATTR_*` and their values.
#[derive(Clone, Copy, Debug)]
pub struct Changes {
    pub mask: c_int,
    /// The new values.
    pub to: ceph_statx,
}

impl Default for Changes {
    fn default() -> Self {
        Self { mask: 0, to: ceph_statx::empty() }
    }
}

/// A referenced inode of a mount.
pub struct Inode {
    mount: Arc<Mount>,
    raw: NonNull<ffi::Inode>,
}

// SAFETY: the library takes its own lock in each call, on any thread.
unsafe impl Send for Inode {}
// SAFETY: see above.
unsafe impl Sync for Inode {}

impl Drop for Inode {
    fn drop(&mut self) {
        // SAFETY: this releases once the reference that came with the inode.
        unsafe { (self.api().ceph_ll_put)(self.mnt(), self.raw.as_ptr()) };
    }
}

impl Mount {
    /// Returns the mounted folder.
    pub fn root(self: &Arc<Self>) -> Result<Inode, Errno> {
        let mut found = std::ptr::null_mut();
        // SAFETY: a live mount and a place for a pointer.
        let answer =
            unsafe { (self.calls().ceph_ll_lookup_root)(self.raw.as_ptr(), &raw mut found) };
        Inode::adopt(self, answer, found)
    }

    /// Returns the inode with this number.
    pub fn find(self: &Arc<Self>, vino: Vino) -> Result<Inode, Errno> {
        let raw = ffi::vinodeno_t {
            ino: ffi::inodeno_t { val: vino.ino },
            snapid: ffi::snapid_t { val: vino.snap },
        };
        let mut found = std::ptr::null_mut();
        // SAFETY: a live mount and a place for a pointer.
        let answer =
            unsafe { (self.calls().ceph_ll_lookup_vino)(self.raw.as_ptr(), raw, &raw mut found) };
        Inode::adopt(self, answer, found)
    }
}

impl Inode {
    /// Takes ownership of the reference that a successful call returned.
    pub(crate) fn adopt(
        mount: &Arc<Mount>,
        answer: c_int,
        found: *mut ffi::Inode,
    ) -> Result<Self, Errno> {
        Errno::check(answer)?;
        let raw = NonNull::new(found).ok_or(Errno(libc::EIO))?;
        Ok(Self { mount: mount.clone(), raw })
    }

    pub(crate) fn api(&self) -> Calls<'_> {
        self.mount.calls()
    }

    pub(crate) fn mnt(&self) -> *mut ffi::ceph_mount_info {
        self.mount.raw.as_ptr()
    }

    pub(crate) fn raw(&self) -> *mut ffi::Inode {
        self.raw.as_ptr()
    }

    pub fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }

    /// Returns the current attributes, including changes by other clients. Needs no permission.
    pub fn getattr(&self, perm: &Perm) -> Result<ceph_statx, Errno> {
        let mut stx = ceph_statx::empty();
        let (want, flags) = (CEPH_STATX_ALL_STATS, 0);
        // SAFETY: a held inode of a live mount and a place for attributes.
        let answer = unsafe {
            (self.api().ceph_ll_getattr)(
                self.mnt(),
                self.raw(),
                &raw mut stx,
                want,
                flags,
                perm.as_ptr(),
            )
        };
        Errno::check(answer).map(|_| stx)
    }

    /// Sets attributes. The library checks POSIX permissions as chmod(2) and similar calls do.
    pub fn setattr(&self, changes: &Changes, perm: &Perm) -> Result<(), Errno> {
        let mut to = changes.to;
        // SAFETY: a held inode of a live mount and attributes that the call may change.
        let answer = unsafe {
            (self.api().ceph_ll_setattr)(
                self.mnt(),
                self.raw(),
                &raw mut to,
                changes.mask,
                perm.as_ptr(),
            )
        };
        Errno::check(answer).map(drop)
    }

    /// Returns the free space of the file system; for a folder with a quota, the rest of the quota.
    pub fn statfs(&self) -> Result<libc::statvfs, Errno> {
        let mut stat = std::mem::MaybeUninit::zeroed();
        // SAFETY: a held inode of a live mount and a place for the answer.
        let answer =
            unsafe { (self.api().ceph_ll_statfs)(self.mnt(), self.raw(), stat.as_mut_ptr()) };
        // SAFETY: the structure has only numbers, which may be zero.
        Errno::check(answer).map(|_| unsafe { stat.assume_init() })
    }

    /// Makes all changes durable: data, attributes, and the names in a folder.
    pub fn sync(&self) -> Result<(), Errno> {
        // SAFETY: a held inode of a live mount.
        let answer = unsafe { (self.api().ceph_ll_sync_inode)(self.mnt(), self.raw(), 0) };
        Errno::check(answer).map(drop)
    }

    /// Returns the target of a symbolic link.
    pub fn readlink(&self, perm: &Perm) -> Result<Vec<u8>, Errno> {
        let mut target = vec![0_u8; TARGET_MAX];
        // SAFETY: a held inode of a live mount and room for as many bytes as are said.
        let answer = unsafe {
            (self.api().ceph_ll_readlink)(
                self.mnt(),
                self.raw(),
                target.as_mut_ptr().cast(),
                target.len(),
                perm.as_ptr(),
            )
        };
        let n = Errno::check(answer)?;
        target.truncate(usize::try_from(n).unwrap_or(0).min(TARGET_MAX));
        Ok(target)
    }

    /// Looks up a name in this folder and returns the inode and its attributes. `..` of the mounted folder is outside of the mount.
    pub fn lookup(&self, name: &Name, perm: &Perm) -> Result<(Self, ceph_statx), Errno> {
        let (mut found, mut stx) = (std::ptr::null_mut(), ceph_statx::empty());
        // SAFETY: a held inode of a live mount, a C string, and places for the answers.
        let answer = unsafe {
            (self.api().ceph_ll_lookup)(
                self.mnt(),
                self.raw(),
                name.as_ptr(),
                &raw mut found,
                &raw mut stx,
                CEPH_STATX_ALL_STATS,
                0,
                perm.as_ptr(),
            )
        };
        Ok((Self::adopt(&self.mount, answer, found)?, stx))
    }

    /// Creates a folder.
    pub fn mkdir(&self, name: &Name, mode: u32, perm: &Perm) -> Result<(Self, ceph_statx), Errno> {
        let (mut made, mut stx) = (std::ptr::null_mut(), ceph_statx::empty());
        // SAFETY: see `lookup`.
        let answer = unsafe {
            (self.api().ceph_ll_mkdir)(
                self.mnt(),
                self.raw(),
                name.as_ptr(),
                mode,
                &raw mut made,
                &raw mut stx,
                CEPH_STATX_ALL_STATS,
                0,
                perm.as_ptr(),
            )
        };
        Ok((Self::adopt(&self.mount, answer, made)?, stx))
    }

    /// Creates a device, pipe or socket: `mode` includes the type.
    pub fn mknod(
        &self,
        name: &Name,
        mode: u32,
        rdev: u64,
        perm: &Perm,
    ) -> Result<(Self, ceph_statx), Errno> {
        let (mut made, mut stx) = (std::ptr::null_mut(), ceph_statx::empty());
        // SAFETY: see `lookup`.
        let answer = unsafe {
            (self.api().ceph_ll_mknod)(
                self.mnt(),
                self.raw(),
                name.as_ptr(),
                mode,
                rdev,
                &raw mut made,
                &raw mut stx,
                CEPH_STATX_ALL_STATS,
                0,
                perm.as_ptr(),
            )
        };
        Ok((Self::adopt(&self.mount, answer, made)?, stx))
    }

    /// Creates a symbolic link.
    pub fn symlink(
        &self,
        name: &Name,
        target: &Name,
        perm: &Perm,
    ) -> Result<(Self, ceph_statx), Errno> {
        let (mut made, mut stx) = (std::ptr::null_mut(), ceph_statx::empty());
        // SAFETY: see `lookup`; the second C string is the target.
        let answer = unsafe {
            (self.api().ceph_ll_symlink)(
                self.mnt(),
                self.raw(),
                name.as_ptr(),
                target.as_ptr(),
                &raw mut made,
                &raw mut stx,
                CEPH_STATX_ALL_STATS,
                0,
                perm.as_ptr(),
            )
        };
        Ok((Self::adopt(&self.mount, answer, made)?, stx))
    }

    /// Adds a hard link in `dir` under an unused name.
    pub fn link(&self, dir: &Self, name: &Name, perm: &Perm) -> Result<(), Errno> {
        // SAFETY: two held inodes of a live mount and a C string.
        let answer = unsafe {
            (self.api().ceph_ll_link)(
                self.mnt(),
                self.raw(),
                dir.raw(),
                name.as_ptr(),
                perm.as_ptr(),
            )
        };
        Errno::check(answer).map(drop)
    }

    /// Removes a name that is not a folder.
    pub fn unlink(&self, name: &Name, perm: &Perm) -> Result<(), Errno> {
        // SAFETY: a held inode of a live mount and a C string.
        let answer = unsafe {
            (self.api().ceph_ll_unlink)(self.mnt(), self.raw(), name.as_ptr(), perm.as_ptr())
        };
        Errno::check(answer).map(drop)
    }

    /// Removes an empty folder.
    pub fn rmdir(&self, name: &Name, perm: &Perm) -> Result<(), Errno> {
        // SAFETY: a held inode of a live mount and a C string.
        let answer = unsafe {
            (self.api().ceph_ll_rmdir)(self.mnt(), self.raw(), name.as_ptr(), perm.as_ptr())
        };
        Errno::check(answer).map(drop)
    }

    /// Renames `from` in this folder to `to` in `dir`; replaces an existing file.
    pub fn rename(&self, from: &Name, dir: &Self, to: &Name, perm: &Perm) -> Result<(), Errno> {
        // SAFETY: two held inodes of a live mount and two C strings.
        let answer = unsafe {
            (self.api().ceph_ll_rename)(
                self.mnt(),
                self.raw(),
                from.as_ptr(),
                dir.raw(),
                to.as_ptr(),
                perm.as_ptr(),
            )
        };
        Errno::check(answer).map(drop)
    }

    /// Returns the value of an extended attribute, whose name includes the prefix; ENODATA if it does not exist.
    pub fn getxattr(&self, name: &Name, perm: &Perm) -> Result<Vec<u8>, Errno> {
        growing(|room| {
            // SAFETY: a held inode of a live mount, a C string, and room for as many bytes as are said.
            let answer = unsafe {
                (self.api().ceph_ll_getxattr)(
                    self.mnt(),
                    self.raw(),
                    name.as_ptr(),
                    room.as_mut_ptr().cast(),
                    room.len(),
                    perm.as_ptr(),
                )
            };
            Errno::check(answer)
        })
    }

    /// Sets an extended attribute with the `flags` of setxattr(2).
    pub fn setxattr(
        &self,
        name: &Name,
        value: &[u8],
        flags: c_int,
        perm: &Perm,
    ) -> Result<(), Errno> {
        // SAFETY: a held inode of a live mount, a C string, and as many bytes as are said.
        let answer = unsafe {
            (self.api().ceph_ll_setxattr)(
                self.mnt(),
                self.raw(),
                name.as_ptr(),
                value.as_ptr().cast(),
                value.len(),
                flags,
                perm.as_ptr(),
            )
        };
        Errno::check(answer).map(drop)
    }

    /// Removes an extended attribute; ENODATA if it does not exist.
    pub fn removexattr(&self, name: &Name, perm: &Perm) -> Result<(), Errno> {
        // SAFETY: a held inode of a live mount and a C string.
        let answer = unsafe {
            (self.api().ceph_ll_removexattr)(self.mnt(), self.raw(), name.as_ptr(), perm.as_ptr())
        };
        Errno::check(answer).map(drop)
    }

    /// Returns the names of all extended attributes, each terminated by a zero.
    pub fn listxattr(&self, perm: &Perm) -> Result<Vec<u8>, Errno> {
        growing(|room| {
            let mut used = 0;
            // SAFETY: a held inode of a live mount, room for as many bytes as are said, and a place for a number.
            let answer = unsafe {
                (self.api().ceph_ll_listxattr)(
                    self.mnt(),
                    self.raw(),
                    room.as_mut_ptr().cast(),
                    room.len(),
                    &raw mut used,
                    perm.as_ptr(),
                )
            };
            Errno::check(answer).map(|_| used as u64)
        })
    }
}

/// Tries a small buffer first, then one of the maximum size if that was too small.
fn growing(ask: impl Fn(&mut [u8]) -> Result<u64, Errno>) -> Result<Vec<u8>, Errno> {
    let mut room = vec![0; VALUE_USUAL];
    let n = match ask(&mut room) {
        Err(Errno(libc::ERANGE)) => {
            room.resize(VALUE_MAX, 0);
            ask(&mut room)?
        }
        other => other?,
    };
    room.truncate(usize::try_from(n).unwrap_or(usize::MAX));
    Ok(room)
}
