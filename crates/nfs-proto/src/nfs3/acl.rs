//! NFSACL version 3: POSIX.1e access lists for NFS version 3, as a separate RPC program. It has no RFC; the source is Solaris'
//! `nfs_acl.x`, which Linux implements since 2.6.13.

use super::{FH_MAX, Fattr3, PostOpAttr, Res};
use crate::xdr::{choice, structs};

/// Version of the RPC program.
pub const VERSION: u32 = 3;
/// Maximum number of entries in a list (`NFS_ACL_MAX_ENTRIES`).
pub const ENTRIES_MAX: usize = 1024;

/// Procedure numbers.
#[allow(missing_docs)] // Names from the program, without ACLPROC3_.
pub mod procedure {
    pub const NULL: u32 = 0;
    pub const GETACL: u32 = 1;
    pub const SETACL: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const ACCESS: u32 = 4;
    pub const GETXATTRDIR: u32 = 5;
}

/// Bits of a mask: the parts that a request asks for or a reply contains.
pub mod mask {
    /// The node's own list.
    pub const ACL: u32 = 1;
    /// Number of its entries.
    pub const ACLCNT: u32 = 2;
    /// A directory's default list.
    pub const DFACL: u32 = 4;
    /// Number of its entries.
    pub const DFACLCNT: u32 = 8;
}

/// Marks the tags of a default list.
pub const OF_DEFAULT: u32 = 0x1000;

structs! {
    /// `aclent`.
    #[derive(Copy)]
    pub struct Aclent {
        tag: u32,
        id: u32,
        perm: u32,
    }

    /// `secattr`. A count is the length of the list even if the list itself is omitted.
    #[derive(Default)]
    pub struct Secattr {
        mask: u32,
        aclcnt: u32,
        aclent: Vec<Aclent> as ENTRIES_MAX,
        dfaclcnt: u32,
        dfaclent: Vec<Aclent> as ENTRIES_MAX,
    }

    /// `GETACL3args`.
    #[derive(Copy)]
    pub struct Getacl3args<'a> {
        fh: &'a [u8] as FH_MAX,
        mask: u32,
    }

    /// `GETACL3resok`.
    pub struct Getacl3resok {
        attr: Option<Fattr3>,
        acl: Secattr,
    }

    /// `SETACL3args`.
    pub struct Setacl3args<'a> {
        fh: &'a [u8] as FH_MAX,
        acl: Secattr,
    }
}

choice! {
    /// Arguments of the supported procedures, selected by the procedure number.
    pub enum Args<'a> {
        0 => Null,
        1 => Getacl(Getacl3args<'a>),
        2 => Setacl(Setacl3args<'a>),
    }

    /// Results, selected by the procedure number.
    pub enum Results {
        0 => Null,
        1 => Getacl(Res<Getacl3resok, PostOpAttr>),
        2 => Setacl(Res<PostOpAttr, PostOpAttr>),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::sample::choices;

    choices! {
        args: Args<'_>,
        results: Results,
    }
}
