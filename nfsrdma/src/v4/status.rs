//! `nfsstat4`: what operations of NFS 4.0, 4.1 and 4.2 end with, and the one translation of [`VfsError`] to it.

use std::fmt;

use nfs_proto::nfs4::Nfsstat4;
use vfs::VfsError;
use wire::Fault;

/// What an operation ends with: an [`Nfsstat4`], in a type of the server, because errors of files and of parsers become one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub Nfsstat4);

macro_rules! same_names {
    ($($(#[$doc:meta])* $name:ident = $number:literal),* $(,)?) => {
        #[allow(non_upper_case_globals)] // The names of the variants.
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
            // An operation on an object of the wrong type is INVAL in 4.0; the operations that name WRONG_TYPE in 4.1
            // check the type before they ask the volume.
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
            // RESOURCE exists in 4.0 only; DELAY tells every client to come back.
            VfsError::Delay | VfsError::Resources | VfsError::Cancelled => Self::Delay,
            VfsError::ShareDenied => Self::ShareDenied,
            VfsError::Locked => Self::Locked,
            // RFC 8881 section 15.1.4.3: for an operation on names that an open by another protocol forbids.
            VfsError::InUse => Self::FileOpen,
            VfsError::Io => Self::Io,
            VfsError::NotRecorded => Self::ServerFault,
        }
    }
}
