//! Every number of this crate that bounds something a peer can ask for.

/// Largest RPC message without its bulk data, and largest bulk payload of one request, in bytes.
pub const RPC_PAYLOAD_MAX: usize = 1 << 20;
/// Largest RPC message on a byte stream: one payload and a generous head.
pub const RPC_RECORD_MAX: usize = RPC_PAYLOAD_MAX + (64 << 10);
/// Requests of one connection that may be in work at once; more stay unread (TCP) or without credit (RDMA).
pub const REQUESTS_IN_WORK_MAX: usize = 128;
