//! Memory that a peer makes available for RDMA.

/// A range of the peer's memory: an RPC-over-RDMA segment (RFC 8166 section 3.4) and an SMB Direct Buffer Descriptor V1 (MS-SMBD
/// section 2.2.3.1) have the same three fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSeg {
    /// STag or R_key.
    pub handle: u32,
    /// Length in bytes.
    pub len: u32,
    /// Tagged offset or virtual address of the first byte.
    pub offset: u64,
}
