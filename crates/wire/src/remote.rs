//! Memory that a peer offers for RDMA.

/// A range of the peer's memory: an RPC-over-RDMA segment (RFC 8166 section 3.4) and a Buffer Descriptor V1 of SMB Direct
/// (MS-SMBD section 2.2.3.1) carry the same three fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSeg {
    /// STag or R_key.
    pub handle: u32,
    /// Bytes.
    pub len: u32,
    /// Tagged offset or virtual address of the first byte.
    pub offset: u64,
}
