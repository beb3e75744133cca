//! System calls for which `rustix` has no safe wrapper, each behind a safe function.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::{VfsError, VfsResult};

/// Largest handle that the kernel returns (`MAX_HANDLE_SZ`).
const KERNEL_HANDLE_MAX: usize = 128;
const KERNEL_HANDLE_ROOM: u32 = 128;

/// `struct file_handle` with room for the largest handle.
#[repr(C)]
struct RawHandle {
    handle_bytes: u32,
    handle_type: i32,
    bytes: [u8; KERNEL_HANDLE_MAX],
}

/// The kernel's permanent identifier of a file: inode number, generation, and further data of the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelHandle {
    pub(crate) kind: i32,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) fn last_error() -> VfsError {
    io::Error::last_os_error().into()
}

fn check(answer: libc::c_long) -> VfsResult<()> {
    if answer < 0 { Err(last_error()) } else { Ok(()) }
}

/// Calls `name_to_handle_at` for the file itself.
pub(crate) fn name_to_handle(fd: BorrowedFd<'_>) -> VfsResult<KernelHandle> {
    let mut raw = RawHandle {
        handle_bytes: KERNEL_HANDLE_ROOM,
        handle_type: 0,
        bytes: [0; KERNEL_HANDLE_MAX],
    };
    let mut mount_id: libc::c_int = 0;
    // SAFETY: the path is an empty C string; `raw` has room for `handle_bytes` bytes and outlives the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            fd.as_raw_fd(),
            c"".as_ptr(),
            &raw mut raw,
            &raw mut mount_id,
            libc::AT_EMPTY_PATH,
        )
    })?;
    let n = (raw.handle_bytes as usize).min(KERNEL_HANDLE_MAX);
    Ok(KernelHandle { kind: raw.handle_type, bytes: raw.bytes[..n].to_vec() })
}

/// Calls `open_by_handle_at` on the file system of `mount`; the result is an `O_PATH` descriptor.
pub(crate) fn open_by_handle(mount: BorrowedFd<'_>, kind: i32, bytes: &[u8]) -> VfsResult<OwnedFd> {
    let mut raw = RawHandle { handle_bytes: 0, handle_type: kind, bytes: [0; KERNEL_HANDLE_MAX] };
    let Some(room) = raw.bytes.get_mut(..bytes.len()) else { return Err(VfsError::BadHandle) };
    room.copy_from_slice(bytes);
    raw.handle_bytes = u32::try_from(bytes.len()).map_err(|_| VfsError::BadHandle)?;
    // SAFETY: `raw` is a whole file handle of `handle_bytes` bytes that outlives the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_raw_fd(),
            &raw mut raw,
            libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC,
        )
    };
    let fd = i32::try_from(fd).map_err(|_| VfsError::Io)?;
    if fd < 0 {
        return Err(last_error());
    }
    // SAFETY: the kernel has just given this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes descriptor `old` refer to the file that `new` has open, in one step for all threads.
pub(crate) fn replace(old: BorrowedFd<'_>, new: &OwnedFd) -> VfsResult<()> {
    // SAFETY: two numbers; `old` stays a descriptor, as its owner expects.
    let answer = unsafe { libc::dup3(new.as_raw_fd(), old.as_raw_fd(), libc::O_CLOEXEC) };
    check(libc::c_long::from(answer))
}

/// Calls `faccessat2` for the file itself with the thread's file system identity. `mode`: `R_OK`, `W_OK`, `X_OK`.
pub(crate) fn access(fd: BorrowedFd<'_>, mode: u32) -> VfsResult<()> {
    // SAFETY: the path is an empty C string; nothing is written to memory of ours.
    check(unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            fd.as_raw_fd(),
            c"".as_ptr(),
            mode,
            libc::AT_EMPTY_PATH | libc::AT_EACCESS,
        )
    })
}

/// Sets this thread's file system user. The kernel reports no error: read the result with [`fsuid`].
pub(crate) fn set_fsuid(uid: u32) {
    // SAFETY: changes only the credentials of this thread.
    unsafe { libc::syscall(libc::SYS_setfsuid, uid) };
}

/// Returns this thread's file system user.
pub(crate) fn fsuid() -> u32 {
    // SAFETY: an id that is never valid changes nothing; the answer is the current one.
    fs_id(unsafe { libc::syscall(libc::SYS_setfsuid, u32::MAX) })
}

/// Like [`set_fsuid`], for the file system group.
pub(crate) fn set_fsgid(gid: u32) {
    // SAFETY: as in `set_fsuid`.
    unsafe { libc::syscall(libc::SYS_setfsgid, gid) };
}

/// Like [`fsuid`], for the file system group.
pub(crate) fn fsgid() -> u32 {
    // SAFETY: as in `fsuid`.
    fs_id(unsafe { libc::syscall(libc::SYS_setfsgid, u32::MAX) })
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn fs_id(answer: libc::c_long) -> u32 {
    // The kernel returns an unsigned 32-bit id in a register, so the sign has no meaning.
    answer as u32
}

/// Sets this thread's supplementary groups by the system call, because the C library's function changes all threads.
pub(crate) fn set_groups(groups: &[u32]) -> VfsResult<()> {
    // SAFETY: the pointer and length describe `groups`; changes only the credentials of this thread.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })
}

/// Calls `FICLONERANGE`: a `count` of 0 means up to the end of `from`.
pub(crate) fn clone_range(
    from: BorrowedFd<'_>,
    from_at: u64,
    to: BorrowedFd<'_>,
    at: u64,
    count: u64,
) -> VfsResult<()> {
    let range = libc::file_clone_range {
        src_fd: i64::from(from.as_raw_fd()),
        src_offset: from_at,
        src_length: count,
        dest_offset: at,
    };
    // SAFETY: the request takes a `struct file_clone_range`, which is only read.
    check(libc::c_long::from(unsafe {
        libc::ioctl(to.as_raw_fd(), libc::FICLONERANGE, &raw const range)
    }))
}

/// Returns how many links a file can have on the file system of `fd`.
pub(crate) fn link_max(fd: BorrowedFd<'_>) -> Option<u32> {
    // SAFETY: asks for a number; no memory is passed.
    let n = unsafe { libc::fpathconf(fd.as_raw_fd(), libc::_PC_LINK_MAX) };
    u32::try_from(n).ok()
}

/// Returns the file system's UUID, if the kernel reports it (`FS_IOC_GETFSUUID`, Linux 6.9).
pub(crate) fn fs_uuid(fd: BorrowedFd<'_>) -> Option<[u8; 16]> {
    /// `struct fsuuid2`.
    #[repr(C)]
    struct FsUuid {
        len: u8,
        uuid: [u8; 16],
    }
    /// `_IOR(0x15, 0, struct fsuuid2)`.
    const FS_IOC_GETFSUUID: libc::Ioctl = 0x8011_1500;
    let mut out = FsUuid { len: 0, uuid: [0; 16] };
    // SAFETY: the request writes one `struct fsuuid2`, which `out` is.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), FS_IOC_GETFSUUID, &raw mut out) };
    (answer == 0 && out.len == 16 && out.uuid != [0; 16]).then_some(out.uuid)
}
