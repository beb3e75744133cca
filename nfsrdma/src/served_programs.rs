//! What a port serves.

use nfs_proto::oncrpc::program;

/// Which programs a port serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedPrograms {
    /// All of them.
    All,
    /// What clients call by datagrams: all but NFS.
    Datagrams,
    /// The port mapper alone.
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
