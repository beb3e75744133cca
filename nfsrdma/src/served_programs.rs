//! The programs that a port serves.

use nfs_proto::oncrpc::program;

/// The programs that a port serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedPrograms {
    All,
    /// Programs that clients call over UDP: all but NFS.
    Datagrams,
    /// Only the port mapper.
    Portmap,
}

impl ServedPrograms {
    pub(crate) fn has(self, program: u32) -> bool {
        match self {
            Self::All => true,
            Self::Datagrams => ![program::NFS, program::NFSACL].contains(&program),
            Self::Portmap => program == program::PORTMAP,
        }
    }
}
