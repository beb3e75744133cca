//! [`VfsError`] as the status of each protocol, in one place.

use vfs::VfsError;

/// Status of NFS version 3 (RFC 1813 section 2.6, `nfsstat3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)] // The names are the specification's own, without NFS3ERR_.
pub enum Nfsstat3 {
    Perm = 1,
    Noent = 2,
    Io = 5,
    Nxio = 6,
    Acces = 13,
    Exist = 17,
    Xdev = 18,
    Notdir = 20,
    Isdir = 21,
    Inval = 22,
    Fbig = 27,
    Nospc = 28,
    Rofs = 30,
    Mlink = 31,
    Nametoolong = 63,
    Notempty = 66,
    Dquot = 69,
    Stale = 70,
    Badhandle = 10001,
    NotSync = 10002,
    BadCookie = 10003,
    Notsupp = 10004,
    Toosmall = 10005,
    Serverfault = 10006,
    Badtype = 10007,
    Jukebox = 10008,
}

impl Nfsstat3 {
    /// As an operation on the data of a file tells an error: a symbolic link has none.
    pub fn of_data(e: VfsError) -> Self {
        if e == VfsError::Symlink { Self::Inval } else { e.into() }
    }
}

impl From<VfsError> for Nfsstat3 {
    fn from(e: VfsError) -> Self {
        match e {
            VfsError::Access | VfsError::ShareDenied | VfsError::Locked | VfsError::InUse => {
                Self::Acces
            }
            VfsError::Perm => Self::Perm,
            VfsError::NotFound => Self::Noent,
            VfsError::Exists => Self::Exist,
            // Where a directory is meant; elsewhere see `of_data`.
            VfsError::NotDir | VfsError::Symlink => Self::Notdir,
            VfsError::IsDir => Self::Isdir,
            VfsError::NotEmpty => Self::Notempty,
            VfsError::WrongType | VfsError::Invalid | VfsError::BadName | VfsError::XattrTooBig => {
                Self::Inval
            }
            VfsError::NameTooLong => Self::Nametoolong,
            VfsError::TooBig => Self::Fbig,
            VfsError::NoSpace => Self::Nospc,
            VfsError::Quota => Self::Dquot,
            VfsError::ReadOnly => Self::Rofs,
            VfsError::CrossDevice => Self::Xdev,
            VfsError::TooManyLinks => Self::Mlink,
            VfsError::Stale => Self::Stale,
            VfsError::BadHandle => Self::Badhandle,
            VfsError::BadCookie => Self::BadCookie,
            VfsError::NotSupported | VfsError::NoXattr => Self::Notsupp,
            VfsError::NoMoreData => Self::Nxio,
            // RFC 1813 section 2.6: "the server initiated the request, but was not able to complete it in a timely
            // fashion. The client should wait and then try the request with a new RPC transaction ID."
            VfsError::Delay | VfsError::Resources | VfsError::Cancelled => Self::Jukebox,
            VfsError::Io => Self::Io,
        }
    }
}
