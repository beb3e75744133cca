//! The result of a file operation, independent of the protocol. Each front end translates it once, at its edge.

use std::fmt;

/// The result of most operations.
pub type VfsResult<T> = Result<T, VfsError>;

/// Why an operation failed. Names follow the equivalent POSIX errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VfsError {
    /// The caller may not do this to this object (EACCES).
    Access,
    /// Only the owner or root may do this (EPERM).
    Perm,
    /// The name does not exist (ENOENT).
    NotFound,
    /// The name exists already (EEXIST).
    Exists,
    /// Not a directory (ENOTDIR).
    NotDir,
    /// A directory where the operation does not allow one (EISDIR): removed as a file, read, written, or given a second name.
    IsDir,
    /// The directory is not empty (ENOTEMPTY).
    NotEmpty,
    /// A symbolic link where the operation does not allow one (ELOOP).
    Symlink,
    /// The object's type lacks this operation (a read of a pipe or a device).
    WrongType,
    /// An argument is invalid (EINVAL).
    Invalid,
    /// The name is longer than the file system can hold (ENAMETOOLONG).
    NameTooLong,
    /// The name has bytes that the file system cannot hold.
    BadName,
    /// The file would exceed the largest possible size (EFBIG).
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
    /// The object of the handle no longer exists (ESTALE).
    Stale,
    /// The handle is damaged or was not issued by this gateway.
    BadHandle,
    /// The directory listing cannot be continued from this cookie.
    BadCookie,
    /// The volume does not support the operation (EOPNOTSUPP).
    NotSupported,
    /// The extended attribute does not exist (ENODATA).
    NoXattr,
    /// The extended attribute or its list is too large for the caller or the volume (ERANGE, E2BIG).
    XattrTooBig,
    /// Beyond the last data or hole (ENXIO).
    NoMoreData,
    /// Another client holds a conflicting right; try again soon (a recall is under way).
    Delay,
    /// The share mode of another open forbids it.
    ShareDenied,
    /// The byte-range lock of another client forbids it.
    Locked,
    /// Another client has the file open and forbids removal and renaming, or the file will be removed when that client closes it.
    InUse,
    /// A wait was given up: its request was cancelled, or too many requests wait.
    Cancelled,
    /// The device failed (EIO), or another error without a variant here.
    Io,
    /// The audit trail is required and cannot be written: the operation was not performed.
    NotRecorded,
    /// Memory, descriptors or another resource of this server ran out.
    Resources,
}

impl VfsError {
    /// Converts an `errno` value of the kernel.
    pub fn from_errno(errno: i32) -> Self {
        match errno {
            // ETXTBSY: a program of the host runs from this file, possibly for ever, so a retry would not help.
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
