//! NFS version 3 (RFC 1813): all 22 procedures. And NFSACL, which is its own program.

pub mod acl;
mod args;
mod attr;
mod ops;

pub use args::{Args, decode_args};
pub use ops::{serve, serve_acl};

/// Procedure numbers (RFC 1813 section 3.3).
#[allow(missing_docs)] // The names are the specification's own, without NFSPROC3_.
pub mod procedure {
    pub const NULL: u32 = 0;
    pub const GETATTR: u32 = 1;
    pub const SETATTR: u32 = 2;
    pub const LOOKUP: u32 = 3;
    pub const ACCESS: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const READ: u32 = 6;
    pub const WRITE: u32 = 7;
    pub const CREATE: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const SYMLINK: u32 = 10;
    pub const MKNOD: u32 = 11;
    pub const REMOVE: u32 = 12;
    pub const RMDIR: u32 = 13;
    pub const RENAME: u32 = 14;
    pub const LINK: u32 = 15;
    pub const READDIR: u32 = 16;
    pub const READDIRPLUS: u32 = 17;
    pub const FSSTAT: u32 = 18;
    pub const FSINFO: u32 = 19;
    pub const PATHCONF: u32 = 20;
    pub const COMMIT: u32 = 21;
}

/// A repetition of this procedure must get the first reply again instead of being done twice.
pub fn is_once(procedure: u32) -> bool {
    matches!(procedure, procedure::SETATTR | procedure::WRITE..=procedure::LINK)
}
