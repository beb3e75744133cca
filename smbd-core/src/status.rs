//! Status codes of commands, and the mapping from errors of file operations to NTSTATUS.

use std::fmt;

use smb_proto::NtStatus;
use smb_proto::smb2::Header;
use vfs::VfsError;

/// The result of a command: an [`NtStatus`] as a local type, so that errors of files and parsers can be converted to it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Status(pub u32);

macro_rules! same_names {
    ($($name:ident = $value:literal,)*) => {
        #[allow(missing_docs)] // The names are those of MS-ERREF.
        impl Status { $(pub const $name: Self = Self(NtStatus::$name.0);)* }
    };
}

smb_proto::nt_statuses!(same_names);

impl Status {
    /// Returns the status in the header of an answer.
    pub fn of(header: &Header) -> Self {
        Self(header.status)
    }

    /// Returns whether it is neither a success nor a warning: the two high bits are set (MS-ERREF section 2.3).
    pub fn is_error(self) -> bool {
        NtStatus(self.0).is_error()
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        NtStatus(self.0).fmt(f)
    }
}

impl From<NtStatus> for Status {
    fn from(status: NtStatus) -> Self {
        Self(status.0)
    }
}

/// Maps the error of a file operation. Operations for which MS-FSA names another status map that themselves.
impl From<VfsError> for Status {
    fn from(e: VfsError) -> Self {
        match e {
            VfsError::Access | VfsError::Perm => Self::ACCESS_DENIED,
            VfsError::NotFound => Self::OBJECT_NAME_NOT_FOUND,
            VfsError::Exists => Self::OBJECT_NAME_COLLISION,
            VfsError::NotDir => Self::NOT_A_DIRECTORY,
            VfsError::IsDir => Self::FILE_IS_A_DIRECTORY,
            VfsError::NotEmpty => Self::DIRECTORY_NOT_EMPTY,
            VfsError::Symlink => Self::STOPPED_ON_SYMLINK,
            VfsError::WrongType => Self::INVALID_DEVICE_REQUEST,
            VfsError::Invalid | VfsError::BadCookie => Self::INVALID_PARAMETER,
            // MS-FSA 2.1.5.1: a component longer than the file system allows is not a valid name.
            VfsError::NameTooLong | VfsError::BadName => Self::OBJECT_NAME_INVALID,
            VfsError::TooBig => Self::FILE_TOO_LARGE,
            VfsError::NoSpace => Self::DISK_FULL,
            VfsError::Quota => Self::QUOTA_EXCEEDED,
            VfsError::ReadOnly => Self::MEDIA_WRITE_PROTECTED,
            VfsError::CrossDevice => Self::NOT_SAME_DEVICE,
            VfsError::TooManyLinks => Self::TOO_MANY_LINKS,
            VfsError::Stale | VfsError::BadHandle => Self::FILE_CLOSED,
            VfsError::NotSupported => Self::NOT_SUPPORTED,
            VfsError::NoXattr => Self::NONEXISTENT_EA_ENTRY,
            VfsError::XattrTooBig => Self::EA_TOO_LARGE,
            VfsError::NoMoreData => Self::END_OF_FILE,
            VfsError::Delay | VfsError::ShareDenied | VfsError::InUse => Self::SHARING_VIOLATION,
            VfsError::Cancelled => Self::CANCELLED,
            VfsError::Locked => Self::FILE_LOCK_CONFLICT,
            VfsError::Io => Self::UNEXPECTED_IO_ERROR,
            VfsError::NotRecorded => Self::AUDIT_FAILED,
            VfsError::Resources => Self::INSUFFICIENT_RESOURCES,
        }
    }
}
