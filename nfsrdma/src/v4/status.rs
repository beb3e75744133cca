//! `nfsstat4`: results of operations of NFS 4.0, 4.1 and 4.2, and the conversion of [`VfsError`].

use std::fmt;

use nfs_proto::nfs4::Nfsstat4;
use vfs::VfsError;
use wire::Fault;

/// The status of an operation: an [`Nfsstat4`] in a separate type, because the server converts errors of files and parsers to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub Nfsstat4);

macro_rules! same_names {
    ($($(#[$doc:meta])* $name:ident = $number:literal),* $(,)?) => {
        #[allow(non_upper_case_globals)]
        impl Status { $($(#[$doc])* pub const $name: Self = Self(Nfsstat4::$name);)* }
    };
}

nfs_proto::nfsstat4s!(same_names);

impl Status {
    /// The number on the wire.
    pub fn to_u32(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Fault> for Status {
    fn from(_: Fault) -> Self {
        Self::BadXdr
    }
}

impl From<Status> for Nfsstat4 {
    fn from(status: Status) -> Self {
        status.0
    }
}

impl From<Nfsstat4> for Status {
    fn from(status: Nfsstat4) -> Self {
        Self(status)
    }
}

impl From<VfsError> for Status {
    fn from(e: VfsError) -> Self {
        match e {
            VfsError::Access => Self::Access,
            VfsError::Perm => Self::Perm,
            VfsError::NotFound => Self::NoEnt,
            VfsError::Exists => Self::Exist,
            VfsError::NotDir => Self::NotDir,
            VfsError::IsDir => Self::IsDir,
            VfsError::NotEmpty => Self::NotEmpty,
            VfsError::Symlink => Self::Symlink,
            // An operation on a wrong type gets INVAL in 4.0; operations that have WRONG_TYPE in 4.1 check the type before they
            // call the volume.
            VfsError::WrongType | VfsError::Invalid => Self::Inval,
            VfsError::NameTooLong => Self::NameTooLong,
            VfsError::BadName => Self::BadChar,
            VfsError::TooBig => Self::FBig,
            VfsError::NoSpace => Self::NoSpc,
            VfsError::Quota => Self::DQuot,
            VfsError::ReadOnly => Self::RoFs,
            VfsError::CrossDevice => Self::Xdev,
            VfsError::TooManyLinks => Self::MLink,
            VfsError::Stale => Self::Stale,
            VfsError::BadHandle => Self::BadHandle,
            VfsError::BadCookie => Self::BadCookie,
            VfsError::NotSupported => Self::NotSupp,
            VfsError::NoXattr => Self::NoXattr,
            VfsError::XattrTooBig => Self::Xattr2Big,
            VfsError::NoMoreData => Self::Nxio,
            // RESOURCE exists in 4.0 only; DELAY makes every client retry.
            VfsError::Delay | VfsError::Resources | VfsError::Cancelled => Self::Delay,
            VfsError::ShareDenied => Self::ShareDenied,
            VfsError::Locked => Self::Locked,
            // RFC 8881 section 15.1.4.3: for a change of names that conflicts with an open of another protocol.
            VfsError::InUse => Self::FileOpen,
            VfsError::Io => Self::Io,
            VfsError::NotRecorded => Self::ServerFault,
        }
    }
}
