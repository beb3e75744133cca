//! The bodies of the fuzz targets: one function for each input from the network. The programs in `fuzz/` run them with a fuzzer;
//! `cargo test` runs them with seeds and thousands of small changes of these.
//!
//! Each accepts any bytes and must return. Besides the absence of panics they check properties that hold for all input: parsed
//! values survive encoding, limits are enforced, two parsers of the same bytes agree.

mod compress;
mod found;
mod gss;
mod gss_stranger;
mod nfs4;
mod nfs_proto;
mod pac;
mod rdma;
mod rpc;
pub mod seeds;
mod side;
mod smb;
mod smb_direct;
mod smb_pipe;
mod smb_seeds;
mod smb_session;
mod spnego;
mod tls;
mod wire;

use tokio::runtime::Runtime;
use vfs::Acting;
use vfs::backend::NodeRef;
use vfs::mem::MemBackend;
use vfs::namespace::{Cidr, Enforce, Protocols, Share, Squash};
use vfs::{Backend, CreateHow, Cred, SetAttr};

pub use compress::{compress_lz4, compress_lz77, compress_lz77_huffman, compress_lznt1};
pub use found::{discovery_dns, discovery_wsd};
pub use gss::{gss_calls, gss_tokens};
pub use gss_stranger::gss_stranger;
pub use nfs_proto::{nfs3_values, nfs4_values, side_values};
pub use nfs4::{nfs40_args, nfs41_args, nfs42_args};
pub use pac::pac_logon_info;
pub use rdma::{mpa_ddp_rdmap, rpcrdma_header};
pub use rpc::{nfs3_args, rpc};
pub use side::side_calls;
pub use smb::{smb2_message, smb2_values};
pub use smb_direct::smb_direct;
pub use smb_pipe::smb_pipe;
pub use smb_session::{smb2_connection, smb2_session};
pub use spnego::spnego_tickets;
pub use tls::tls_handshake;
pub use wire::wire_leaves;

/// A memory share `d` of this size for all clients; its folder, and its only file, `f`.
#[allow(clippy::expect_used)]
fn share(bytes: u64, runtime: &Runtime) -> (Share, [NodeRef; 2]) {
    let backend = MemBackend::new(bytes).expect("memory");
    let (root, cred) = (backend.root(), Cred::root());
    let file = SetAttr { mode: Some(0o644), ..SetAttr::default() };
    let made = root.create(Acting::caller(&cred), b"f", CreateHow::Guarded, file);
    let file = runtime.block_on(made).expect("a file").node;
    let share = Share {
        name: "d".into(),
        id: Share::id_of("d"),
        backend,
        read_only: false,
        protocols: Protocols::Both,
        squash: Squash::None,
        nfs_locks: Enforce::Smb,
        clients: Some(vec![Cidr { addr: [0, 0, 0, 0].into(), bits: 0 }.into()]),
        rules: vfs::namespace::Rules::default(),
    };
    (share, [root, file])
}

pub type Target = fn(&[u8]);

/// All targets, by the names of their programs.
pub const TARGETS: [(&str, Target); 30] = [
    ("mpa_ddp_rdmap", mpa_ddp_rdmap),
    ("rpcrdma_header", rpcrdma_header),
    ("rpc", rpc),
    ("nfs3_args", nfs3_args),
    ("nfs40_args", nfs40_args),
    ("nfs41_args", nfs41_args),
    ("nfs42_args", nfs42_args),
    ("side_calls", side_calls),
    ("gss_tokens", gss_tokens),
    ("gss_calls", gss_calls),
    ("gss_stranger", gss_stranger),
    ("discovery_dns", discovery_dns),
    ("discovery_wsd", discovery_wsd),
    ("pac_logon_info", pac_logon_info),
    ("nfs3_values", nfs3_values),
    ("nfs4_values", nfs4_values),
    ("side_values", side_values),
    ("smb2_message", smb2_message),
    ("smb2_values", smb2_values),
    ("smb_direct", smb_direct),
    ("smb_pipe", smb_pipe),
    ("compress_lznt1", compress_lznt1),
    ("compress_lz77", compress_lz77),
    ("compress_lz77_huffman", compress_lz77_huffman),
    ("compress_lz4", compress_lz4),
    ("smb2_connection", smb2_connection),
    ("smb2_session", smb2_session),
    ("spnego_tickets", spnego_tickets),
    ("tls_handshake", tls_handshake),
    ("wire_leaves", wire_leaves),
];
