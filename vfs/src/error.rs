//! The neutral status of a file operation. Each front end translates it once, at its edge.

use std::fmt;

/// The answer of most operations.
pub type VfsResult<T> = Result<T, VfsError>;

/// Why an operation failed. Names follow the POSIX errors they stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VfsError {
    /// The caller may not do this to this object (EACCES).
    Access,
    /// Only the owner or root may do this (EPERM).
    Perm,
    /// No such name (ENOENT).
    NotFound,
    /// The name exists already (EEXIST).
    Exists,
    /// Not a directory (ENOTDIR).
    NotDir,
    /// A directory where none may be (EISDIR): removed as a file, read, written, or given a second name.
    IsDir,
    /// The directory is not empty (ENOTEMPTY).
    NotEmpty,
    /// A symbolic link where none may be (ELOOP).
    Symlink,
    /// The object is of a type that cannot do this (a read of a pipe or a device).
    WrongType,
    /// An argument makes no sense (EINVAL).
    Invalid,
    /// The name is longer than the file system can hold (ENAMETOOLONG).
    NameTooLong,
    /// The name has bytes that the file system cannot hold.
    BadName,
    /// The file would grow beyond what is possible (EFBIG).
    TooBig,
    /// The volume is full (ENOSPC).
    NoSpace,
    /// The quota is used up (EDQUOT).
    Quota,
    /// The volume or share is read-only (EROFS).
    ReadOnly,
    /// The two objects are on different volumes (EXDEV).
    CrossDevice,
    /// Too many links (EMLINK).
    TooManyLinks,
    /// The handle names an object that is gone (ESTALE).
    Stale,
    /// The handle was never ours or is damaged.
    BadHandle,
    /// The cookie of a directory listing cannot be continued.
    BadCookie,
    /// The volume cannot do this (EOPNOTSUPP).
    NotSupported,
    /// No such extended attribute (ENODATA).
    NoXattr,
    /// The extended attribute or its list is too large for the caller or the volume (ERANGE, E2BIG).
    XattrTooBig,
    /// Beyond the last data or hole (ENXIO).
    NoMoreData,
    /// Somebody else holds it in a way that conflicts; try again soon (a recall is under way).
    Delay,
    /// Somebody else's share mode forbids it.
    ShareDenied,
    /// Somebody else's byte-range lock forbids it.
    Locked,
    /// Somebody has it open and lets nobody remove or rename it, or it is to be removed when that one closes it.
    InUse,
    /// A wait was given up: its request was cancelled, or too many wait.
    Cancelled,
    /// The device failed (EIO), or an error that has no name here.
    Io,
    /// The audit trail is required and cannot be written: nothing was done.
    NotRecorded,
    /// Memory, descriptors or another resource of this server ran out.
    Resources,
}

impl VfsError {
    /// From an `errno` value of the kernel.
    pub fn from_errno(errno: i32) -> Self {
        match errno {
            // ETXTBSY: a program of the host runs from this file. It may run for ever, so that trying again is no answer.
            libc::EACCES | libc::ETXTBSY => Self::Access,
            libc::EPERM => Self::Perm,
            libc::ENOENT => Self::NotFound,
            libc::EEXIST => Self::Exists,
            libc::ENOTDIR => Self::NotDir,
            libc::EISDIR => Self::IsDir,
            libc::ENOTEMPTY => Self::NotEmpty,
            libc::ELOOP => Self::Symlink,
            libc::EINVAL => Self::Invalid,
            libc::ENAMETOOLONG => Self::NameTooLong,
            libc::EILSEQ => Self::BadName,
            libc::EFBIG => Self::TooBig,
            libc::ENOSPC => Self::NoSpace,
            libc::EDQUOT => Self::Quota,
            libc::EROFS => Self::ReadOnly,
            libc::EXDEV => Self::CrossDevice,
            libc::EMLINK => Self::TooManyLinks,
            libc::ESTALE => Self::Stale,
            libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY => Self::NotSupported,
            libc::ENODATA => Self::NoXattr,
            libc::ERANGE | libc::E2BIG => Self::XattrTooBig,
            libc::ENXIO => Self::NoMoreData,
            libc::EAGAIN | libc::EBUSY => Self::Delay,
            libc::ENOMEM | libc::ENFILE | libc::EMFILE => Self::Resources,
            _ => Self::Io,
        }
    }
}

impl From<rustix::io::Errno> for VfsError {
    fn from(e: rustix::io::Errno) -> Self {
        Self::from_errno(e.raw_os_error())
    }
}

impl From<std::io::Error> for VfsError {
    fn from(e: std::io::Error) -> Self {
        e.raw_os_error().map_or(Self::Io, Self::from_errno)
    }
}

impl fmt::Display for VfsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for VfsError {}
