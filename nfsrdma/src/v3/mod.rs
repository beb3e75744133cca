//! NFS version 3 (RFC 1813) with all 22 procedures, and the separate program NFSACL.

pub mod acl;
mod attr;
mod ops;

pub use nfs_proto::nfs3::procedure;
pub use ops::{serve, serve_acl};

/// True if a retransmission of this procedure must get the first reply again instead of being executed twice.
pub fn is_once(procedure: u32) -> bool {
    matches!(procedure, procedure::SETATTR | procedure::WRITE..=procedure::LINK)
}
