//! Numbers and small types of version 4, under the names that this server has for them.

pub use nfs_proto::nfs4::{
    FHSIZE, MINOR_MAX, OPAQUE_LIMIT, PROC_COMPOUND, SESSIONID_SIZE, STATEID_SIZE,
    Stateid4 as Stateid, VERIFIER_SIZE, VERSION, attr, op,
};
pub use nfs_proto::oncrpc::program::NFS as PROGRAM;

/// `data_content4`: data.
pub const NFS4_CONTENT_DATA: u32 = 0;
/// `data_content4`: a hole.
pub const NFS4_CONTENT_HOLE: u32 = 1;
