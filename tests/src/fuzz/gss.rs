//! Tokens of Kerberos contexts from a sender without and with the key; and RPCSEC_GSS calls with a valid header.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use gss_krb5::{Context, Enctype, Role};
use iobuf::{Buf, Pool, PoolLimits};
use nfs_proto::oncrpc::{AcceptStat, OpaqueAuth, ReplyBody, ReplyHead};
use nfs_proto::rpcsec_gss::{GssCred, GssInitArg, GssInitRes, GssProc, GssService, RPCSEC_GSS};
use nfs_proto::xdr;
use nfsrdma::clock::Clock;
use nfsrdma::fh::Handles;
use nfsrdma::locate::NfsLocate;
use nfsrdma::rpc::gss::{Accept, Accepted, Gss, NotAccepted};
use nfsrdma::rpc::program;
use nfsrdma::served_programs::ServedPrograms;
use nfsrdma::server::{Server, Session};
use nfsrdma::server_state::{Boot, ServerState};
use rdma_transport::channel::{
    BoxFuture, Handle, Info, PayloadLocator, ReadChunkData, Service, Transport,
};
use rdma_transport::xdr::Writer;
use vfs::Cred;
use vfs::namespace::{Flavor, Namespace};

use super::share;

/// The contexts of both ends; the first two bytes of the input choose the type and the split.
pub(super) fn ends(kind: u8) -> Option<[Context; 2]> {
    let enctype = Enctype::ALL[usize::from(kind % 4)];
    let key = vec![kind; enctype.key_len()];
    let of = |role| Context::new(enctype, &key, role, kind & 4 != 0).ok();
    Some([of(Role::Initiator)?, of(Role::Acceptor)?])
}

/// The other end's result for a token in pieces.
fn opened(context: &Context, token: &[u8], size: usize) -> Option<(bool, Vec<u8>)> {
    let mut work = token.to_vec();
    let mut pieces: Vec<&mut [u8]> = work.chunks_mut(size).collect();
    let done = context.unwrap(&mut pieces).ok()?;
    let plain = work.get(done.start..done.start + done.len);
    assert!(plain.is_some(), "the plaintext is inside of the token");
    Some((done.is_sealed, plain?.to_vec()))
}

/// Input: encryption type, bytes of a piece, then a rotation (two bytes), then a token, which is also a message.
pub fn gss_tokens(data: &[u8]) {
    let [kind, size, r0, r1, data @ ..] = data else { return };
    let (size, rotation) = (usize::from(*size) + 1, u16::from_be_bytes([*r0, *r1]));
    let Some([initiator, acceptor]) = ends(*kind) else { return };
    assert_eq!(opened(&acceptor, data, size), None, "opened without its key");
    assert!(acceptor.verify_mic(data, &[data]).is_err(), "verified without its key");

    let mut message = data.to_vec();
    let mut pieces: Vec<&mut [u8]> = message.chunks_mut(size).collect();
    let Ok(wrapped) = initiator.wrap(1, &mut pieces) else { return };
    let mut token = [wrapped.head(), &message, wrapped.tail()].concat();
    token[6..8].copy_from_slice(&rotation.to_be_bytes());
    let rest = token[16..].len();
    token[16..].rotate_right(usize::from(rotation) % rest);
    assert_eq!(opened(&acceptor, &token, size), Some((true, data.to_vec())));
    let last = token.len() - 1;
    token[last] ^= 1;
    assert_eq!(opened(&acceptor, &token, size), None, "a bit of it was changed");
}

thread_local! {
    #[allow(clippy::expect_used)]
    static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    /// A server for each kind of key, because creating one takes longer than a call.
    static SESSIONS: RefCell<[Option<Rc<Session>>; 8]> = const { RefCell::new([const { None }; 8]) };
}

/// A connection to the server of this kind.
pub(super) fn session_of(kind: u8) -> Rc<Session> {
    SESSIONS.with_borrow_mut(|sessions| {
        let place = &mut sessions[usize::from(kind % 8)];
        place.get_or_insert_with(|| Rc::new(session(kind % 8))).clone()
    })
}

/// Gives every client the context of [`ends`].
struct Everybody(u8);

impl Accept for Everybody {
    fn accept(
        &self,
        token: Buf,
        _from: IpAddr,
    ) -> BoxFuture<'static, Result<Accepted, NotAccepted>> {
        let keys = ends(self.0).map(|[_, acceptor]| acceptor);
        let accepted = keys.map(|keys| Accepted {
            token: token.to_vec(),
            keys,
            sequence: 0,
            principal: "alice@LAB.TEST".into(),
            cred: Cred { uid: 7, gid: 7, groups: [].into(), token: vfs::Token::NONE },
            lifetime: Duration::from_secs(1000),
        });
        Box::pin(async move { accepted.ok_or(NotAccepted::Busy) })
    }
}

fn session(kind: u8) -> Session {
    let (mut share, _) = RUNTIME.with(|runtime| share(1 << 20, runtime));
    share.rules.sec = Flavor::ALL.into_iter().collect();
    let (handles, boot) = (Handles::new([1; 16]), Boot { write_verifier: 1, instance: 1 });
    let namespace = Arc::new(Namespace::new(vec![share]));
    let mut core = ServerState::new(namespace, handles, boot, Clock::Manual(0.into()));
    core.gss = Gss::new(Some(Arc::new(Everybody(kind))), [3; 16]);
    let pool = Pool::new(PoolLimits { buffers_max: [4, 4, 4] });
    let (peer, local) = (([127, 0, 0, 1], 50_000).into(), ([127, 0, 0, 1], 2049).into());
    let info = Arc::new(Info::new(peer, local, Transport::Tcp, pool));
    Server::new(core, [2; 16]).session_of(info, Handle::detached(), ServedPrograms::All)
}

/// The server's reply to a call with this credential and these arguments.
fn answer(
    session: &Session,
    cred: &GssCred<'_>,
    by: &Context,
    procedure: u32,
    args: &[u8],
) -> Option<Vec<u8>> {
    let mut w = Writer::new();
    [9, 0, 2, program::NFS, 3, procedure].into_iter().for_each(|v| w.u32(v));
    w.value(&OpaqueAuth { flavor: RPCSEC_GSS, body: &xdr::encode(cred) });
    let mic = by.mic(1, &[w.bytes()]);
    let none = cred.gss_proc == GssProc::Init;
    w.value(&if none { OpaqueAuth::NONE } else { OpaqueAuth { flavor: RPCSEC_GSS, body: &mic } });
    w.head().extend_from_slice(args);
    call(session, w.into_reply().head)
}

/// The server's reply to a whole call, with bulk data separate as the transport locates it.
pub(super) fn call(session: &Session, mut message: Vec<u8>) -> Option<Vec<u8>> {
    let mut read_chunks = Vec::new();
    if let Some((at, len)) = NfsLocate.bulk(&message, message.len()) {
        let behind = message.split_off(at);
        let (data, rest) = behind.split_at(len);
        message.extend_from_slice(rest.get(len.wrapping_neg() % 4..).unwrap_or_default());
        let data = data.chunks(len / 2 + 1).map(|piece| Buf::from(piece.to_vec())).collect();
        read_chunks.push(ReadChunkData { at, data });
    }
    let reply = RUNTIME.with(|r| r.block_on(session.call(Buf::from(message), read_chunks)))?;
    Some(reply.pieces().flatten().copied().collect())
}

/// Input: encryption type, service, procedure of version 3, whether the arguments are protected correctly (each a byte); then the
/// arguments. The header verifies, so only the protection of the arguments may be wrong.
pub fn gss_calls(data: &[u8]) {
    let [kind, service, procedure, is_good, args @ ..] = data else { return };
    let service = GssService::ALL[usize::from(service % 3)];
    let kind = kind % 8;
    let Some([client, _]) = ends(kind) else { return };
    let session = session_of(kind);
    let init = GssCred { vers: 1, gss_proc: GssProc::Init, seq_num: 0, service, handle: &[] };
    let token = xdr::encode(&GssInitArg { gss_token: b"a ticket" });
    let Some(made) = answer(&session, &init, &client, 0, &token) else { return };
    let handle = ::wire::decode(&made, ReplyHead::parse)
        .and_then(|(results, _)| xdr::decode::<GssInitRes<'_>>(results))
        .map(|(_, made)| made.handle.to_vec());
    let Ok(handle) = handle else { panic!("a context is made: {made:?}") };
    let cred = GssCred { vers: 1, gss_proc: GssProc::Data, seq_num: 7, service, handle: &handle };
    let mut plain = [&7u32.to_be_bytes()[..], args].concat();
    let mut protected = Writer::new();
    match service {
        _ if is_good & 1 == 0 => protected.head().extend_from_slice(args),
        GssService::None => protected.head().extend_from_slice(args),
        GssService::Integrity => {
            protected.opaque(&plain);
            protected.opaque(&client.mic(2, &[&plain]));
        }
        GssService::Privacy => {
            let Ok(wrapped) = client.wrap(3, &mut [&mut plain]) else { return };
            protected.opaque(&[wrapped.head(), &plain, wrapped.tail()].concat());
        }
    }
    let procedure = u32::from(*procedure % 24);
    let Some(reply) = answer(&session, &cred, &client, procedure, protected.bytes()) else {
        return;
    };
    let Ok((_, head)) = ::wire::decode(&reply, ReplyHead::parse) else { panic!("a reply") };
    let ReplyBody::Accepted(verf, stat) = head.body else { return };
    let verifies = client.verify_mic(verf.body, &[&7u32.to_be_bytes()]).is_ok();
    assert!(verifies && verf.flavor == RPCSEC_GSS, "a reply without its verifier");
    let is_protected = service != GssService::None;
    if is_protected && is_good & 1 == 0 {
        assert_eq!(stat, AcceptStat::GarbageArgs, "arguments that nobody protected");
    }
}

/// LOOKUP and WRITE with the three services, protected and unprotected.
pub(super) fn call_seeds() -> Vec<Vec<u8>> {
    let lookup = crate::raw::words(&[4, 9, 1, 0x6600_0000]);
    let write = crate::raw::words(&[4, 9, 0, 0, 5, 2, 5, 0x6162_6364, 0x6500_0000]);
    let mut seeds = Vec::new();
    for service in 0..3 {
        for (procedure, args) in [(3, &lookup), (7, &write), (0, &Vec::new())] {
            for is_good in 0..2 {
                seeds.push([&[5, service, procedure, is_good][..], args].concat());
            }
        }
    }
    seeds
}

/// A token of each kind, with a valid header.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let header = |kind: u8, first: [u8; 4]| {
        [&[kind, 8, 0, 28][..], &first, &[0, 0, 0, 28], &[0; 8], &[9; 61]].concat()
    };
    vec![
        header(4, [5, 4, 6, 0xff]),
        header(5, [5, 4, 6, 0xff]),
        header(6, [5, 4, 4, 0xff]),
        header(7, [5, 4, 6, 0xff]),
        header(3, [4, 4, 0, 0xff]),
    ]
}
