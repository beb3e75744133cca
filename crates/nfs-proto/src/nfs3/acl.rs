//! NFSACL version 3: lists of POSIX.1e beside NFS version 3, by a program of its own. No RFC has it; it is Solaris' `nfs_acl.x`, as
//! Linux has it since 2.6.13.

use super::{FH_MAX, Fattr3, PostOpAttr, Res};
use crate::xdr::{choice, structs};

/// Version of the program.
pub const VERSION: u32 = 3;
/// Entries of a list (`NFS_ACL_MAX_ENTRIES`).
pub const ENTRIES_MAX: usize = 1024;

/// Procedure numbers.
#[allow(missing_docs)] // The names are the program's own, without ACLPROC3_.
pub mod procedure {
    pub const NULL: u32 = 0;
    pub const GETACL: u32 = 1;
    pub const SETACL: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const ACCESS: u32 = 4;
    pub const GETXATTRDIR: u32 = 5;
}

/// Bits of a mask: which parts are asked for, or there.
pub mod mask {
    /// The node's own list.
    pub const ACL: u32 = 1;
    /// How many entries it has.
    pub const ACLCNT: u32 = 2;
    /// A directory's default list.
    pub const DFACL: u32 = 4;
    /// How many entries that has.
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

    /// `secattr`. A count is that of the list, also where the list itself is left out.
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
    /// Arguments by procedure: those that are in use.
    pub enum Args<'a> {
        0 => Null,
        1 => Getacl(Getacl3args<'a>),
        2 => Setacl(Setacl3args<'a>),
    }

    /// Results by procedure.
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
