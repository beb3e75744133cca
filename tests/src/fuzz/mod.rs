//! What the fuzz targets do with their bytes: one function for each way in from the network. The programs in `fuzz/` call
//! them under a fuzzer; `cargo test` calls them with seeds and with thousands of small changes of these.
//!
//! Each takes any bytes and must return. Beyond not panicking they assert what holds for all input: what was read can be
//! written and is the same, limits are kept, two readers of the same bytes agree.

mod nfs4;
mod rdma;
mod rpc;
pub mod seeds;
mod side;
mod smb;
mod smb_direct;
mod smb_pipe;
mod smb_seeds;
mod smb_session;

pub use nfs4::{nfs40_args, nfs41_args, nfs42_args};
pub use rdma::{mpa_ddp_rdmap, rpcrdma_header};
pub use rpc::{nfs3_args, rpc};
pub use side::side_calls;
pub use smb::{smb2_message, smb2_values};
pub use smb_direct::smb_direct;
pub use smb_pipe::smb_pipe;
pub use smb_session::{smb2_connection, smb2_session};

/// A target.
pub type Target = fn(&[u8]);

/// All of them, by the names of their programs.
pub const TARGETS: [(&str, Target); 14] = [
    ("mpa_ddp_rdmap", mpa_ddp_rdmap),
    ("rpcrdma_header", rpcrdma_header),
    ("rpc", rpc),
    ("nfs3_args", nfs3_args),
    ("nfs40_args", nfs40_args),
    ("nfs41_args", nfs41_args),
    ("nfs42_args", nfs42_args),
    ("side_calls", side_calls),
    ("smb2_message", smb2_message),
    ("smb2_values", smb2_values),
    ("smb_direct", smb_direct),
    ("smb_pipe", smb_pipe),
    ("smb2_connection", smb2_connection),
    ("smb2_session", smb2_session),
];
