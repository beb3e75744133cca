//! Runs the server without a network: takes whole calls and returns whole replies.
#![allow(dead_code, unreachable_pub)]

pub mod nfs3;

use std::net::SocketAddr;
use std::sync::Arc;

use iobuf::{Buf, Pool, PoolLimits};
use nfsrdma::clock::Clock;
use nfsrdma::fh::Handles;
use nfsrdma::server::{Server, Session};
use nfsrdma::server_state::{Boot, ServerState};
use rdma_transport::channel::{Handle, Info, ReadChunkData, Reply, Service, Transport};
use rdma_transport::xdr::Writer;
use vfs::namespace::{Namespace, Share};

pub const NFS: u32 = 100_003;
pub const MOUNT: u32 = 100_005;

/// Builds a server for these shares with the write verifier 0x0102030405060708.
pub fn server(shares: Vec<Share>) -> Arc<Server> {
    server_over(Namespace::new(shares))
}

pub fn server_over(namespace: Namespace) -> Arc<Server> {
    let boot = Boot { write_verifier: 0x0102_0304_0506_0708, instance: 7 };
    let core = ServerState::new(namespace.into(), Handles::new([3; 16]), boot, Clock::real());
    Server::new(core, [4; 16])
}

/// Opens a connection from this address.
pub fn session_from(server: &Arc<Server>, peer: &str, transport: Transport) -> Session {
    let peer: SocketAddr = peer.parse().unwrap();
    let info = Info::new(
        peer,
        "192.0.2.1:2049".parse().unwrap(),
        transport,
        Pool::new(PoolLimits { buffers_max: [64, 16, 4] }),
    );
    server.session(Arc::new(info), Handle::detached())
}

/// Opens a connection from this host.
pub fn session(server: &Arc<Server>) -> Session {
    session_from(server, "127.0.0.1:700", Transport::Tcp)
}

/// Encodes the head of an AUTH_SYS call.
pub fn head(xid: u32, program: u32, version: u32, procedure: u32, uid: u32) -> Writer {
    let mut cred = Writer::new();
    cred.u32(1);
    cred.opaque(b"client");
    cred.u32(uid);
    cred.u32(uid);
    cred.u32(0);
    let mut w = Writer::new();
    [xid, 0, 2, program, version, procedure, 1].into_iter().for_each(|v| w.u32(v));
    w.opaque(cred.bytes());
    w.u32(0);
    w.u32(0);
    w
}

pub fn call(session: &Session, call: Vec<u8>, read_chunks: Vec<ReadChunkData>) -> Option<Reply> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(session.call(Buf::from(call), read_chunks))
}

/// Joins a reply to one piece.
pub fn flat(reply: Reply) -> Vec<u8> {
    let mut out = Vec::new();
    let mut from = 0;
    for p in &reply.payloads {
        out.extend_from_slice(&reply.head[from..p.at]);
        from = p.at;
        p.data.iter().for_each(|b| out.extend_from_slice(b));
        out.extend(vec![0; usize::from(p.pad)]);
    }
    out.extend_from_slice(&reply.head[from..]);
    out
}

/// Bytes as big-endian words.
pub fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(4).map(|c| u32::from_be_bytes(c.try_into().unwrap())).collect()
}
