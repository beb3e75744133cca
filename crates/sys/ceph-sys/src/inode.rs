//! An inode that is held, and the calls on it.

use std::ffi::{CString, c_int};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::Errno;
use crate::ffi::{self, CEPH_STATX_ALL_STATS, ceph_statx};
use crate::mount::{Calls, Mount, Perm, Vino};

/// The first size of a value of an extended attribute that is asked for, and the largest there is (`XATTR_SIZE_MAX`).
const VALUE_USUAL: usize = 1024;
const VALUE_MAX: usize = 64 << 10;
/// The longest target of a symbolic link (`PATH_MAX`).
const TARGET_MAX: usize = 4096;

/// A name in a folder, or of an attribute.
#[derive(Clone, Debug)]
pub struct Name(CString);

impl Name {
    /// Error: EINVAL for one with a zero byte.
    pub fn new(name: &[u8]) -> Result<Self, Errno> {
        CString::new(name).map(Self).map_err(|_| Errno(libc::EINVAL))
    }

    pub(crate) fn as_ptr(&self) -> *const libc::c_char {
        self.0.as_ptr()
    }
}

/// Attributes to set: bits `CEPH_SETATTR_*` and the values that they are about.
#[derive(Clone, Copy, Debug)]
pub struct Changes {
    /// Which.
    pub mask: c_int,
    /// To what.
    pub to: ceph_statx,
}

impl Default for Changes {
    fn default() -> Self {
        Self { mask: 0, to: ceph_statx::empty() }
    }
}

/// An inode of a mount.
pub struct Inode {
    mount: Arc<Mount>,
    raw: NonNull<ffi::Inode>,
}

// SAFETY: the library takes its own lock in each call, from whatever thread.
unsafe impl Send for Inode {}
// SAFETY: as above.
unsafe impl Sync for Inode {}

impl Drop for Inode {
    fn drop(&mut self) {
        // SAFETY: the reference that the library gave with this inode is given back once.
        unsafe { (self.api().ceph_ll_put)(self.mnt(), self.raw.as_ptr()) };
    }
}

impl Mount {
    /// The folder that was mounted.
    pub fn root(self: &Arc<Self>) -> Result<Inode, Errno> {
        let mut found = std::ptr::null_mut();
        // SAFETY: a live mount and a place for a pointer.
        let answer =
            unsafe { (self.calls().ceph_ll_lookup_root)(self.raw.as_ptr(), &raw mut found) };
        Inode::adopt(self, answer, found)
    }

    /// An inode by its number.
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
    /// Takes the reference that a call gave which answered so.
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

    /// The mount that it is of.
    pub fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }

    /// Its attributes as of now, whoever else has changed them. Asks nobody for permission.
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

    /// Sets attributes. The library asks the rules of POSIX, as of chmod(2) and the like.
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

    /// The file system, of which this is a folder: with a quota on the folder, of what is left of that.
    pub fn statfs(&self) -> Result<libc::statvfs, Errno> {
        let mut stat = std::mem::MaybeUninit::zeroed();
        // SAFETY: a held inode of a live mount and a place for the answer.
        let answer =
            unsafe { (self.api().ceph_ll_statfs)(self.mnt(), self.raw(), stat.as_mut_ptr()) };
        // SAFETY: numbers alone, all of which may be zero.
        Errno::check(answer).map(|_| unsafe { stat.assume_init() })
    }

    /// Makes it durable with all that was done to it: data, attributes, and the names in a folder.
    pub fn sync(&self) -> Result<(), Errno> {
        // SAFETY: a held inode of a live mount.
        let answer = unsafe { (self.api().ceph_ll_sync_inode)(self.mnt(), self.raw(), 0) };
        Errno::check(answer).map(drop)
    }

    /// The target of a symbolic link.
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

    /// What has this name here, with its attributes. `..` is the folder above, which of the mounted one lies outside.
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

    /// Makes a folder.
    pub fn mkdir(&self, name: &Name, mode: u32, perm: &Perm) -> Result<(Self, ceph_statx), Errno> {
        let (mut made, mut stx) = (std::ptr::null_mut(), ceph_statx::empty());
        // SAFETY: as in `lookup`.
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

    /// Makes a device, pipe or socket: `mode` with the bits of its kind.
    pub fn mknod(
        &self,
        name: &Name,
        mode: u32,
        rdev: u64,
        perm: &Perm,
    ) -> Result<(Self, ceph_statx), Errno> {
        let (mut made, mut stx) = (std::ptr::null_mut(), ceph_statx::empty());
        // SAFETY: as in `lookup`.
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

    /// Makes a symbolic link.
    pub fn symlink(
        &self,
        name: &Name,
        target: &Name,
        perm: &Perm,
    ) -> Result<(Self, ceph_statx), Errno> {
        let (mut made, mut stx) = (std::ptr::null_mut(), ceph_statx::empty());
        // SAFETY: as in `lookup`, with a second C string.
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

    /// Gives this inode a further name in `dir`, which must be free.
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

    /// Removes a name that is no folder's.
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

    /// Moves `from` here to `to` in `dir`; what is there is replaced.
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

    /// The value of an extended attribute, named with its prefix. Error: ENODATA.
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

    /// Sets one; `flags` as of setxattr(2).
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

    /// Removes one. Error: ENODATA.
    pub fn removexattr(&self, name: &Name, perm: &Perm) -> Result<(), Errno> {
        // SAFETY: a held inode of a live mount and a C string.
        let answer = unsafe {
            (self.api().ceph_ll_removexattr)(self.mnt(), self.raw(), name.as_ptr(), perm.as_ptr())
        };
        Errno::check(answer).map(drop)
    }

    /// The names of all, each with a zero behind it.
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

/// Asks with a little room first, and with the most there can be where that did not do.
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
