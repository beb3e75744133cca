//! quotactl_fd(2): the quotas of the file system of a descriptor (Linux 5.14), and the project of a folder.
//!
//! *Errors.* [`VfsError::NotSupported`] if the kernel is older, or if the file system has no quotas of this kind or does not count
//! them now; [`VfsError::Perm`] for what only CAP_SYS_ADMIN permits.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::thread::CapabilitySets;

use crate::error::{VfsError, VfsResult};
use crate::quota::{Quota, QuotaKind, QuotaLimits};

use super::sys::last_error;

// Commands of <linux/quota.h> and <linux/dqblk_xfs.h>.
const Q_GETQUOTA: u32 = 0x80_0007;
const Q_SETQUOTA: u32 = 0x80_0008;
const Q_GETNEXTQUOTA: u32 = 0x80_0009;
const Q_XGETQSTATV: u32 = 0x5808;

/// The kernel counts limits of space in these units (`QIF_DQBLKSIZE`).
pub(super) const UNIT: u64 = 1024;

/// Only the limits of space are set (`QIF_BLIMITS`).
const ONLY_SPACE_LIMITS: u32 = 1;

/// `struct if_nextdqblk`, which begins like `struct if_dqblk`; both have the same size.
#[repr(C)]
#[derive(Clone, Copy, Default)]
#[allow(dead_code, reason = "the kernel reads some fields")]
struct Block {
    hard_units: u64,
    soft_units: u64,
    used_bytes: u64,
    hard_files: u64,
    soft_files: u64,
    files: u64,
    bytes_until: u64,
    files_until: u64,
    valid: u32,
    id: u32,
}

/// Room for `struct fs_quota_statv` (168 bytes), which begins with a version, a byte of padding and the flags.
#[repr(C)]
#[allow(dead_code, reason = "most is only written by the kernel")]
struct State {
    version: u8,
    pad: u8,
    flags: u16,
    more: [u32; 63],
}

fn number(kind: QuotaKind) -> u32 {
    match kind {
        QuotaKind::User => 0,
        QuotaKind::Group => 1,
        QuotaKind::Project => 2,
    }
}

/// Calls the kernel.
///
/// # Safety
/// `argument` is the structure that the command reads or writes.
unsafe fn call<T>(
    fd: BorrowedFd<'_>,
    (command, kind): (u32, QuotaKind),
    id: u32,
    argument: &mut T,
) -> Result<(), i32> {
    let command = command << 8 | number(kind);
    let argument: *mut T = argument;
    // SAFETY: the caller passes the structure of the command, which outlives the call.
    let answer =
        unsafe { libc::syscall(libc::SYS_quotactl_fd, fd.as_raw_fd(), command, id, argument) };
    match answer {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// Converts an error of the kernel. EINVAL: the file system has no quotas of this kind; ESRCH: it does not count them now.
fn error(errno: i32) -> VfsError {
    match errno {
        libc::ESRCH | libc::EINVAL | libc::ENOSYS | libc::ENOTBLK => VfsError::NotSupported,
        other => VfsError::from_errno(other),
    }
}

fn limit(n: u64, unit: u64) -> Option<u64> {
    (n != 0).then(|| n.saturating_mul(unit))
}

impl Block {
    fn quota(&self, id: u32) -> Quota {
        let until = |used: u64, soft: Option<u64>, time: u64| {
            let is_over = soft.is_some_and(|soft| used > soft) && time != 0;
            is_over.then(|| i64::try_from(time).unwrap_or(i64::MAX))
        };
        let soft = limit(self.soft_units, UNIT);
        let soft_files = limit(self.soft_files, 1);
        Quota {
            id,
            used: self.used_bytes,
            limits: QuotaLimits { soft, hard: limit(self.hard_units, UNIT) },
            bytes_until: until(self.used_bytes, soft, self.bytes_until),
            files: self.files,
            file_limits: QuotaLimits { soft: soft_files, hard: limit(self.hard_files, 1) },
            files_until: until(self.files, soft_files, self.files_until),
        }
    }
}

/// Returns one entry. One that the file system does not have is empty.
pub(super) fn get(fd: BorrowedFd<'_>, kind: QuotaKind, id: u32) -> VfsResult<Quota> {
    let mut block = Block::default();
    // SAFETY: Q_GETQUOTA writes one `struct if_dqblk`, for which `Block` has room.
    match unsafe { call(fd, (Q_GETQUOTA, kind), id, &mut block) } {
        // XFS has no entry for a user that never had a file.
        Ok(()) | Err(libc::ENOENT) => Ok(block.quota(id)),
        Err(errno) => Err(error(errno)),
    }
}

/// Returns the first entry of this number or a greater one; absent after the last entry.
pub(super) fn next(fd: BorrowedFd<'_>, kind: QuotaKind, from: u32) -> VfsResult<Option<Quota>> {
    let mut block = Block::default();
    // SAFETY: Q_GETNEXTQUOTA writes one `struct if_nextdqblk`, which `Block` is.
    match unsafe { call(fd, (Q_GETNEXTQUOTA, kind), from, &mut block) } {
        Ok(()) => Ok(Some(block.quota(block.id))),
        Err(libc::ENOENT) => Ok(None),
        Err(errno) => Err(error(errno)),
    }
}

/// Sets the limits of space, in whole units. A limit below one unit becomes one unit, because zero would remove the limit.
pub(super) fn set(
    fd: BorrowedFd<'_>,
    kind: QuotaKind,
    id: u32,
    limits: QuotaLimits,
) -> VfsResult<()> {
    let units = |limit: Option<u64>| limit.map_or(0, |bytes| (bytes / UNIT).max(1));
    let mut block = Block {
        hard_units: units(limits.hard),
        soft_units: units(limits.soft),
        valid: ONLY_SPACE_LIMITS,
        ..Block::default()
    };
    // SAFETY: Q_SETQUOTA reads one `struct if_dqblk`, with which `Block` begins.
    unsafe { call(fd, (Q_SETQUOTA, kind), id, &mut block) }.map_err(|errno| match errno {
        // A limit that the format of the quota file cannot hold.
        libc::ERANGE => VfsError::TooBig,
        errno => error(errno),
    })
}

/// Returns whether the file system enforces the limits; [`VfsError::NotSupported`] if it does not even count.
pub(super) fn enforces(fd: BorrowedFd<'_>, kind: QuotaKind) -> VfsResult<bool> {
    const VERSION: u8 = 1;
    let mut state = State { version: VERSION, pad: 0, flags: 0, more: [0; 63] };
    // SAFETY: Q_XGETQSTATV reads the version and writes one `struct fs_quota_statv`, for which `State` has room.
    unsafe { call(fd, (Q_XGETQSTATV, kind), 0, &mut state) }.map_err(error)?;
    // Each kind has a bit for counting and a bit for enforcing, from FS_QUOTA_UDQ_ACCT on.
    let bits = state.flags >> (2 * number(kind));
    if bits & 1 == 0 { Err(VfsError::NotSupported) } else { Ok(bits & 2 != 0) }
}

/// Returns the project of a folder, and whether what is made in it belongs to that project too.
pub(super) fn project(fd: BorrowedFd<'_>) -> VfsResult<(u32, bool)> {
    /// `struct fsxattr`.
    #[repr(C)]
    #[derive(Default)]
    #[allow(dead_code, reason = "most is only written by the kernel")]
    struct Attributes {
        flags: u32,
        extent_size: u32,
        extents: u32,
        project: u32,
        cow_extent_size: u32,
        pad: [u8; 8],
    }
    /// `_IOR('X', 31, struct fsxattr)`.
    const FS_IOC_FSGETXATTR: libc::Ioctl = 0x801c_581f;
    /// `FS_XFLAG_PROJINHERIT`.
    const INHERITS: u32 = 0x200;
    let mut out = Attributes::default();
    // SAFETY: the request writes one `struct fsxattr`, which `out` is.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), FS_IOC_FSGETXATTR, &raw mut out) };
    if answer < 0 {
        return Err(last_error());
    }
    Ok((out.project, out.flags & INHERITS != 0))
}

/// While this exists, the thread has the effective user or group of a caller, which the kernel permits to read its own quota. The
/// file system identity changes with it.
struct Effective {
    is_user: bool,
    own: u32,
    had: CapabilitySets,
}

impl Effective {
    /// Fails for a kind that has no identity, and if the kernel refuses the number.
    fn enter(kind: QuotaKind, id: u32) -> Option<Self> {
        const KEEP: u32 = u32::MAX;
        if id == KEEP {
            return None;
        }
        let had = rustix::thread::capabilities(None).ok()?;
        let (is_user, own, answer) = match kind {
            QuotaKind::User => {
                let own = rustix::process::geteuid().as_raw();
                // SAFETY: changes only the credentials of this thread: it is the system call, not the C library's function.
                (true, own, unsafe { libc::syscall(libc::SYS_setresuid, KEEP, id, KEEP) })
            }
            QuotaKind::Group => {
                let own = rustix::process::getegid().as_raw();
                // SAFETY: as above.
                (false, own, unsafe { libc::syscall(libc::SYS_setresgid, KEEP, id, KEEP) })
            }
            QuotaKind::Project => return None,
        };
        (answer == 0).then_some(Self { is_user, own, had })
    }
}

impl Drop for Effective {
    fn drop(&mut self) {
        const KEEP: u32 = u32::MAX;
        let call = if self.is_user { libc::SYS_setresuid } else { libc::SYS_setresgid };
        // SAFETY: as in `enter`. The real and the saved identity never changed, so the kernel always allows the way back.
        if unsafe { libc::syscall(call, KEEP, self.own, KEEP) } != 0 {
            let error = io::Error::last_os_error();
            tracing::error!(%error, "a thread cannot leave the identity of a caller: the gateway ends");
            std::process::abort();
        }
        // It restores all permitted capabilities, also those that this thread had given up.
        if let Err(error) = rustix::thread::set_capabilities(None, self.had) {
            tracing::warn!(%error, "a thread has capabilities that it had given up");
        }
    }
}

/// Like [`get`], with the identity of the user or group: the kernel permits every user to read its own quota, and only a process
/// with CAP_SYS_ADMIN to read others.
pub(super) fn get_as_itself(fd: BorrowedFd<'_>, kind: QuotaKind, id: u32) -> VfsResult<Quota> {
    let itself = Effective::enter(kind, id).ok_or(VfsError::Perm)?;
    let quota = get(fd, kind, id);
    drop(itself);
    quota
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn structures_have_the_size_of_the_kernels() {
        assert_eq!(size_of::<Block>(), 72);
        assert_eq!(size_of::<State>(), 256);
        assert_eq!((std::mem::offset_of!(State, flags), std::mem::offset_of!(Block, id)), (2, 68));
    }

    #[test]
    fn limits_are_none_or_bytes() {
        let block = Block {
            hard_units: 4,
            used_bytes: 5000,
            soft_units: 3,
            bytes_until: 77,
            files: 2,
            soft_files: 2,
            files_until: 88,
            ..Block::default()
        };
        let quota = block.quota(1000);
        assert_eq!(quota.limits, QuotaLimits { soft: Some(3072), hard: Some(4096) });
        assert_eq!((quota.used, quota.bytes_until), (5000, Some(77)));
        assert_eq!(quota.file_limits, QuotaLimits { soft: Some(2), hard: None });
        assert_eq!(quota.files_until, None, "not exceeded");
    }

    #[test]
    fn file_system_without_quotas_says_so() {
        let proc = std::fs::File::open("/proc").unwrap();
        for kind in [QuotaKind::User, QuotaKind::Group, QuotaKind::Project] {
            assert_eq!(get(proc.as_fd(), kind, 0), Err(VfsError::NotSupported), "{kind:?}");
            assert_eq!(enforces(proc.as_fd(), kind), Err(VfsError::NotSupported), "{kind:?}");
        }
        assert_eq!(next(proc.as_fd(), QuotaKind::User, 0), Err(VfsError::NotSupported));
    }

    #[test]
    fn identity_comes_back() {
        let before = (rustix::process::geteuid(), rustix::process::getegid());
        let capabilities = || rustix::thread::capabilities(None).unwrap();
        let mut had = capabilities();
        // Threads that have acted as a caller have dropped it.
        had.effective.remove(rustix::thread::CapabilitySet::SYS_RESOURCE);
        rustix::thread::set_capabilities(None, had).unwrap();
        let proc = std::fs::File::open("/proc").unwrap();
        for kind in [QuotaKind::User, QuotaKind::Group] {
            // Not permitted to a process that is not root.
            let asked = get_as_itself(proc.as_fd(), kind, 12_345);
            assert!(matches!(asked, Err(VfsError::NotSupported | VfsError::Perm)), "{asked:?}");
        }
        assert_eq!((rustix::process::geteuid(), rustix::process::getegid()), before);
        assert_eq!(capabilities().effective, had.effective);
    }
}
