//! Converts [`VfsError`] to statuses of NFSv3.

use nfs_proto::nfs3::Nfsstat3;
use vfs::VfsError;

/// A failed procedure of NFSv3, with its status (RFC 1813 section 2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed(pub Nfsstat3);

impl Failed {
    /// Converts an error of an operation on file data: a symbolic link has no data.
    pub fn of_data(e: VfsError) -> Self {
        if e == VfsError::Symlink { Self(Nfsstat3::Inval) } else { e.into() }
    }
}

impl From<Nfsstat3> for Failed {
    fn from(status: Nfsstat3) -> Self {
        Self(status)
    }
}

impl From<VfsError> for Failed {
    fn from(e: VfsError) -> Self {
        Self(match e {
            VfsError::Access | VfsError::ShareDenied | VfsError::Locked | VfsError::InUse => {
                Nfsstat3::Acces
            }
            VfsError::Perm => Nfsstat3::Perm,
            VfsError::NotFound => Nfsstat3::Noent,
            VfsError::Exists => Nfsstat3::Exist,
            // For operations on directories; for file data see `of_data`.
            VfsError::NotDir | VfsError::Symlink => Nfsstat3::Notdir,
            VfsError::IsDir => Nfsstat3::Isdir,
            VfsError::NotEmpty => Nfsstat3::Notempty,
            VfsError::WrongType | VfsError::Invalid | VfsError::BadName | VfsError::XattrTooBig => {
                Nfsstat3::Inval
            }
            VfsError::NameTooLong => Nfsstat3::Nametoolong,
            VfsError::TooBig => Nfsstat3::Fbig,
            VfsError::NoSpace => Nfsstat3::Nospc,
            VfsError::Quota => Nfsstat3::Dquot,
            VfsError::ReadOnly => Nfsstat3::Rofs,
            VfsError::CrossDevice => Nfsstat3::Xdev,
            VfsError::TooManyLinks => Nfsstat3::Mlink,
            VfsError::Stale => Nfsstat3::Stale,
            VfsError::BadHandle => Nfsstat3::Badhandle,
            VfsError::BadCookie => Nfsstat3::BadCookie,
            VfsError::NotSupported | VfsError::NoXattr => Nfsstat3::Notsupp,
            VfsError::NoMoreData => Nfsstat3::Nxio,
            // RFC 1813 section 2.6: "the server initiated the request, but was not able to complete it in a timely
            // fashion. The client should wait and then try the request with a new RPC transaction ID."
            VfsError::Delay | VfsError::Resources | VfsError::Cancelled => Nfsstat3::Jukebox,
            VfsError::Io => Nfsstat3::Io,
            VfsError::NotRecorded => Nfsstat3::Serverfault,
        })
    }
}
