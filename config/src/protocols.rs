//! `protocols`: NFS, SMB, or both.

use crate::words::words;

/// By which protocols a share is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocols {
    /// NFS, of any version.
    Nfs,
    /// SMB.
    Smb,
    /// NFS and SMB.
    #[default]
    Both,
}

impl Protocols {
    /// NFS is among them.
    pub fn nfs(self) -> bool {
        self != Self::Smb
    }

    /// SMB is among them.
    pub fn smb(self) -> bool {
        self != Self::Nfs
    }
}

words!(Protocols, "is not a protocol", "nfs" => Nfs, "smb" => Smb, "both" => Both);
