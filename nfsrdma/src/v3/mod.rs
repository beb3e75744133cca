//! NFS version 3 (RFC 1813): all 22 procedures. And NFSACL, which is its own program.

pub mod acl;
mod attr;
mod ops;

pub use nfs_proto::nfs3::procedure;
pub use ops::{serve, serve_acl};

/// A repetition of this procedure must get the first reply again instead of being done twice.
pub fn is_once(procedure: u32) -> bool {
    matches!(procedure, procedure::SETATTR | procedure::WRITE..=procedure::LINK)
}
