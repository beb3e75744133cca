//! COMPOUNDs of NFSv4 on a server with memory volumes.

use std::cell::Cell;
use std::sync::Arc;

use iobuf::{Buf, Pool, PoolLimits};
use nfs_proto::nfs4::Nfsstat4;
use nfsrdma::clock::Clock;
use nfsrdma::fh::Handles;
use nfsrdma::rpc::program;
use nfsrdma::server::{Server, Session};
use nfsrdma::server_state::{Boot, ServerState};
use nfsrdma::v4::wire::op;
use rdma_transport::channel::{Handle, Info, Service, Transport};
use rdma_transport::xdr::{Reader, Writer};
use vfs::namespace::Namespace;

use super::share;

/// Input: number of operations (the first byte) and the operations of a COMPOUND of minor version 0. The share is `d`; it has an
/// empty file `f`.
pub fn nfs40_args(data: &[u8]) {
    compound(0, data);
}

/// Like [`nfs40_args`] for minor version 1, in a session.
pub fn nfs41_args(data: &[u8]) {
    compound(1, data);
}

/// Like [`nfs40_args`] for minor version 2, in a session.
pub fn nfs42_args(data: &[u8]) {
    compound(2, data);
}

fn compound(minor: u32, data: &[u8]) {
    let [count, ops @ ..] = data else { return };
    let client = Client::new();
    let session = (minor > 0).then(|| client.session(minor));
    let mut body = Writer::new();
    let count = usize::from(*count);
    body.opaque(b"");
    body.u32(minor);
    body.count(count + usize::from(minor > 0));
    if let Some(id) = session {
        sequence(&mut body, &id, 2);
    }
    let mut body = body.into_reply().head;
    body.extend_from_slice(ops);
    let Some(reply) = client.compound(&body) else { return };
    let mut r = Reader::new(&reply, &[]);
    let status = r.u32().ok().and_then(Nfsstat4::from_u32);
    assert!(status.is_some(), "a status that there is not");
    assert_eq!(r.opaque(0), Ok(&b""[..]));
    let results = r.u32().map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    assert!(results <= count + 1, "{results} results of {count} operations");
    assert!(status != Some(Nfsstat4::Ok) || results >= count, "operations were left out");
}

/// SEQUENCE on the first slot, without caching.
fn sequence(w: &mut Writer, session: &[u8; 16], number: u32) {
    w.u32(op::SEQUENCE);
    w.fixed(session);
    [number, 0, 0, 0].into_iter().for_each(|v| w.u32(v));
}

thread_local! {
    #[allow(clippy::expect_used)]
    static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
}

struct Client {
    session: Session,
    xid: Cell<u32>,
}

impl Client {
    fn new() -> Self {
        let (share, _) = RUNTIME.with(|r| share(1 << 22, r));
        let boot = Boot { write_verifier: 1, instance: 1 };
        let namespace = Arc::new(Namespace::new(vec![share]));
        let core =
            ServerState::new(namespace, Handles::new([1; 16]), boot, Clock::Manual(0.into()));
        let info = Info::new(
            ([192, 0, 2, 9], 700).into(),
            ([192, 0, 2, 1], 2049).into(),
            Transport::Tcp,
            Pool::new(PoolLimits { buffers_max: [16, 4, 4] }),
        );
        let session = Server::new(core, [2; 16]).session(Arc::new(info), Handle::detached());
        Self { session, xid: 0.into() }
    }

    /// The reply after its RPC header; `None` if the arguments were garbage.
    fn compound(&self, args: &[u8]) -> Option<Buf> {
        self.xid.set(self.xid.get() + 1);
        let mut w = Writer::new();
        [self.xid.get(), 0, 2, program::NFS, 4, 1, 1].into_iter().for_each(|v| w.u32(v));
        let mut cred = Writer::new();
        [0, 0, 0, 0, 0].into_iter().for_each(|v| cred.u32(v));
        w.opaque(cred.bytes());
        w.u32(0);
        w.u32(0);
        let mut call = w.into_reply().head;
        call.extend_from_slice(args);
        let reply = RUNTIME.with(|r| r.block_on(self.session.call(Buf::from(call), vec![])))?;
        let flat: Vec<u8> = reply.pieces().flatten().copied().collect();
        assert!(flat.len() <= nfsrdma::v4::limits::REPLY_MAX, "a reply of {} bytes", flat.len());
        // xid, REPLY, accepted, an empty verifier, then the accept status.
        let accepted = flat.get(20..24) == Some(&[0; 4][..]);
        accepted.then(|| Buf::from(flat).slice(24..usize::MAX))
    }

    /// EXCHANGE_ID, CREATE_SESSION and RECLAIM_COMPLETE. Returns the session id.
    #[allow(clippy::expect_used)]
    fn session(&self, minor: u32) -> [u8; 16] {
        let run = |count: u32, args: &dyn Fn(&mut Writer)| {
            let mut w = Writer::new();
            w.opaque(b"");
            w.u32(minor);
            w.u32(count);
            args(&mut w);
            self.compound(w.bytes()).expect("a readable COMPOUND")
        };
        let reply = run(1, &|w| {
            w.u32(op::EXCHANGE_ID);
            w.u64(7);
            w.opaque(b"owner");
            [0, 0, 0].into_iter().for_each(|v| w.u32(v));
        });
        // The client and its sequence number follow status, tag, count, opcode and status.
        let mut r = Reader::new(&reply, &[]);
        let client = (0..5).try_for_each(|_| r.u32().map(drop)).and_then(|()| r.u64());
        let (client, number) = (client.expect("a client"), r.u32().expect("a sequence"));
        let reply = run(1, &|w| {
            w.u32(op::CREATE_SESSION);
            w.u64(client);
            w.u32(number);
            w.u32(0);
            for _channel in 0..2 {
                [0, 1 << 20, 1 << 20, 4096, 64, 1, 0].into_iter().for_each(|v| w.u32(v));
            }
            [0x4000_0000, 1, 0].into_iter().for_each(|v| w.u32(v));
        });
        let mut r = Reader::new(&reply, &[]);
        let id = (0..5).try_for_each(|_| r.u32().map(drop)).and_then(|()| r.fixed());
        let id = id.expect("a session");
        run(2, &|w| {
            sequence(w, &id, 1);
            w.u32(op::RECLAIM_COMPLETE);
            w.bool(false);
        });
        id
    }
}
