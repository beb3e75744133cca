//! Constants and small types of NFSv4, under the names that this server uses.

pub use nfs_proto::nfs4::{MINOR_MAX, Stateid4 as Stateid, VERIFIER_SIZE, attr, op};

pub const NFS4_CONTENT_DATA: u32 = 0;
/// `data_content4`: a hole.
pub const NFS4_CONTENT_HOLE: u32 = 1;
