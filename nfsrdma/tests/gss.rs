//! RPCSEC_GSS calls (RFC 2203) with real keys on both sides; the test decides which context gets which keys.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

mod common;

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use common::nfs3::share;
use common::{MOUNT, NFS, call, flat, session, session_from, words};
use gss_krb5::{Context, Enctype, Role};
use iobuf::{Buf, BufMut};
use nfs_proto::oncrpc::{AcceptStat, AuthStat, OpaqueAuth, ReplyBody, ReplyHead};
use nfs_proto::rpcsec_gss::{
    GssCred, GssInitArg, GssInitRes, GssInteg, GssMic, GssProc, GssService, MAXSEQ, RPCSEC_GSS,
};
use nfs_proto::xdr;
use nfsrdma::clock::Clock;
use nfsrdma::fh::Handles;
use nfsrdma::rpc::gss::table::CONTEXTS_OF_ADDRESS_MAX;
use nfsrdma::rpc::gss::{Accept, Accepted, Gss, NotAccepted, TOKEN_MAX, Why};
use nfsrdma::server::{Server, Session};
use nfsrdma::server_state::{Boot, ServerState};
use nfsrdma::v3::procedure as p;
use rdma_transport::channel::{BoxFuture, ReadChunkData, Reply, Transport};
use rdma_transport::xdr::{Reader, Writer};
use vfs::namespace::{Flavor, Namespace, Share};
use vfs::{Acting, Cred, NodeRef, SetAttr};

static OWNER: LazyLock<Cred> =
    LazyLock::new(|| Cred { uid: 7, gid: 7, groups: [].into(), token: vfs::Token::NONE });

const SERVICES: [GssService; 3] = [GssService::None, GssService::Integrity, GssService::Privacy];
const WINDOW: u32 = 128;

/// Accepts a token of two bytes, which name the context: encryption type and user.
struct Keys;

fn keys(enctype: Enctype, role: Role) -> Context {
    let key: Vec<u8> = (3..).take(enctype.key_len()).collect();
    Context::new(enctype, &key, role, true).unwrap()
}

impl Accept for Keys {
    fn accept(
        &self,
        token: Buf,
        _from: IpAddr,
    ) -> BoxFuture<'static, Result<Accepted, NotAccepted>> {
        let accepted = match token[..] {
            [enctype, user] => Ok(Accepted {
                token: b"an answer".to_vec(),
                keys: keys(Enctype::from_number(enctype.into()).unwrap(), Role::Acceptor),
                sequence: 1 << 40,
                principal: format!("user{user}@LAB.TEST"),
                cred: Cred {
                    uid: user.into(),
                    gid: user.into(),
                    groups: [].into(),
                    token: vfs::Token::NONE,
                },
                lifetime: Duration::from_secs(if user == 99 { 0 } else { 3600 }),
            }),
            _ => Err(NotAccepted::Refused {
                why: Why::Kerberos(gss_krb5::Cause::Other),
                token: b"an error".to_vec(),
                principal: String::new(),
                detail: "not two bytes".into(),
            }),
        };
        Box::pin(async move { accepted })
    }
}

fn server() -> Arc<Server> {
    let all = Flavor::ALL.into_iter().collect();
    let mut share = share("data");
    share.rules.sec = all;
    server_of(share)
}

fn server_of(share: Share) -> Arc<Server> {
    let boot = Boot { write_verifier: 1, instance: 7 };
    let namespace = Arc::new(Namespace::new(vec![share]));
    let mut core = ServerState::new(namespace, Handles::new([3; 16]), boot, Clock::real());
    core.gss = Gss::new(Some(Arc::new(Keys)), [5; 16]);
    Server::new(core, [4; 16])
}

/// The RPC-level result of a call.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Done(Vec<u8>),
    Auth(AuthStat),
    Accepted(AcceptStat),
    None,
}

struct Client {
    session: Session,
    keys: Context,
    handle: Vec<u8>,
    service: GssService,
    number: Cell<u32>,
}

/// A call: its xid, sequence number, and deliberate errors.
struct Sent {
    xid: u32,
    number: u32,
    program: u32,
    procedure: u32,
    gss_proc: GssProc,
}

impl Client {
    fn new(server: &Arc<Server>, enctype: Enctype, user: u8, service: GssService) -> Self {
        Self::on(session(server), enctype, user, service)
    }

    /// Creates a client on this connection.
    fn on(session: Session, enctype: Enctype, user: u8, service: GssService) -> Self {
        let keys = keys(enctype, Role::Initiator);
        let mut client = Self { session, keys, handle: vec![], service, number: Cell::new(0) };
        let reply = client.init(&[enctype as u8, user], 0);
        let (results, head) = xdr_head(&reply);
        let ReplyBody::Accepted(verf, AcceptStat::Success) = head.body else { panic!("{head:?}") };
        let (rest, made) = xdr::decode::<GssInitRes<'_>>(results).unwrap();
        assert!(rest.is_empty());
        assert_eq!(
            (made.gss_major, made.seq_window, made.gss_token),
            (0, WINDOW, &b"an answer"[..])
        );
        assert_eq!(verf.flavor, RPCSEC_GSS);
        let sequence = client.keys.verify_mic(verf.body, &[&WINDOW.to_be_bytes()]);
        assert_eq!(sequence, Ok(1 << 40));
        client.handle = made.handle.to_vec();
        assert_eq!(client.handle.len(), 16);
        client
    }

    fn init(&self, token: &[u8], procedure: u32) -> Vec<u8> {
        let mut w = head(1, NFS, procedure);
        let cred = GssCred {
            vers: 1,
            gss_proc: GssProc::Init,
            seq_num: 0,
            service: self.service,
            handle: &[],
        };
        w.value(&OpaqueAuth { flavor: RPCSEC_GSS, body: &xdr::encode(&cred) });
        w.value(&OpaqueAuth::NONE);
        w.value(&GssInitArg { gss_token: token });
        flat(call(&self.session, w.into_reply().head, vec![]).unwrap())
    }

    /// Encodes the head of a call with its verifier.
    fn head(&self, sent: &Sent) -> Writer {
        let mut w = head(sent.xid, sent.program, sent.procedure);
        let cred = GssCred {
            vers: 1,
            gss_proc: sent.gss_proc,
            seq_num: sent.number,
            service: self.service,
            handle: &self.handle,
        };
        w.value(&OpaqueAuth { flavor: RPCSEC_GSS, body: &xdr::encode(&cred) });
        let mic = self.keys.mic(7, &[w.bytes()]);
        w.value(&OpaqueAuth { flavor: RPCSEC_GSS, body: &mic });
        w
    }

    /// Protects arguments as a client does.
    fn protected(&self, number: u32, args: &[u8]) -> Vec<u8> {
        let mut plain = number.to_be_bytes().to_vec();
        plain.extend_from_slice(args);
        let mut out = Writer::new();
        match self.service {
            GssService::None => return args.to_vec(),
            GssService::Integrity => {
                out.opaque(&plain);
                out.opaque(&self.keys.mic(8, &[&plain]));
            }
            GssService::Privacy => {
                let wrapped = self.keys.wrap(9, &mut [&mut plain]).unwrap();
                out.opaque(&[wrapped.head(), &plain, wrapped.tail()].concat());
            }
        }
        out.into_reply().head
    }

    fn sent(&self, program: u32, procedure: u32) -> Sent {
        let number = self.number.get() + 1;
        self.number.set(number);
        Sent { xid: 1000 + number, number, program, procedure, gss_proc: GssProc::Data }
    }

    fn send(&self, sent: &Sent, args: &[u8]) -> Answer {
        let mut w = self.head(sent);
        w.head().extend_from_slice(&self.protected(sent.number, args));
        self.answered(sent, call(&self.session, w.into_reply().head, vec![]))
    }

    /// Verifies and decodes a reply.
    fn answered(&self, sent: &Sent, reply: Option<Reply>) -> Answer {
        let Some(reply) = reply else { return Answer::None };
        let may_place =
            reply.payloads.iter().any(|p| p.place == rdma_transport::channel::Place::Eligible);
        assert!(!may_place || self.service == GssService::None, "placed beside its protection");
        let reply = flat(reply);
        let (results, head) = xdr_head(&reply);
        assert_eq!(head.xid, sent.xid);
        let (verf, stat) = match head.body {
            ReplyBody::Accepted(verf, stat) => (verf, stat),
            ReplyBody::AuthError(stat) => return Answer::Auth(stat),
            other @ ReplyBody::RpcMismatch(..) => panic!("{other:?}"),
        };
        assert_eq!(verf.flavor, RPCSEC_GSS);
        self.keys.verify_mic(verf.body, &[&sent.number.to_be_bytes()]).expect("a verifier");
        if stat != AcceptStat::Success {
            assert!(results.is_empty());
            return Answer::Accepted(stat);
        }
        let plain = match self.service {
            _ if sent.gss_proc == GssProc::Destroy => results.to_vec(),
            GssService::None => results.to_vec(),
            GssService::Integrity => {
                let (rest, integ) = xdr::decode::<GssInteg>(results).unwrap();
                let len = integ.databody_integ as usize;
                let (plain, rest) = rest.split_at(len - 4);
                let (rest, mic) = xdr::decode::<GssMic<'_>>(rest).unwrap();
                assert_eq!((integ.seq_num, rest), (sent.number, &[][..]));
                self.keys.verify_mic(mic.checksum, &[&results[4..4 + len]]).expect("a MIC");
                plain.to_vec()
            }
            GssService::Privacy => {
                let body = Buf::from(results.to_vec());
                let mut token = Reader::new(&body, &[]).opaque(1 << 21).unwrap().to_vec();
                let plain = self.keys.unwrap(&mut [&mut token]).expect("a token");
                assert!(plain.is_sealed);
                let plain = &token[plain.start..plain.start + plain.len];
                assert_eq!(plain[..4], sent.number.to_be_bytes());
                plain[4..].to_vec()
            }
        };
        Answer::Done(plain)
    }

    fn nfs(&self, procedure: u32, args: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut w = Writer::new();
        args(&mut w);
        match self.send(&self.sent(NFS, procedure), w.bytes()) {
            Answer::Done(results) => results,
            other => panic!("{other:?}"),
        }
    }

    fn root(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.opaque(b"/data");
        let sent = self.sent(MOUNT, 1);
        let Answer::Done(results) = self.send(&sent, w.bytes()) else { panic!("MOUNT") };
        let body = Buf::from(results);
        let mut r = Reader::new(&body, &[]);
        assert_eq!(r.u32(), Ok(0));
        r.opaque(64).unwrap().to_vec()
    }

    /// Creates a file and returns its handle.
    fn create(&self, root: &[u8], name: &str) -> Vec<u8> {
        let results = self.nfs(p::CREATE, |w| create_args(w, root, name));
        made(&results)
    }
}

fn create_args(w: &mut Writer, root: &[u8], name: &str) {
    w.opaque(root);
    w.opaque(name.as_bytes());
    // GUARDED with mode 0600, no other attributes.
    [1, 1, 0o600, 0, 0, 0, 0, 0].into_iter().for_each(|v| w.u32(v));
}

fn made(results: &[u8]) -> Vec<u8> {
    let body = Buf::from(results.to_vec());
    let mut r = Reader::new(&body, &[]);
    assert_eq!((r.u32(), r.bool()), (Ok(0), Ok(true)));
    r.opaque(64).unwrap().to_vec()
}

fn head(xid: u32, program: u32, procedure: u32) -> Writer {
    let mut w = Writer::new();
    [xid, 0, 2, program, 3, procedure].into_iter().for_each(|v| w.u32(v));
    w
}

/// Splits a reply into its head and the rest.
fn xdr_head(reply: &[u8]) -> (&[u8], ReplyHead<'_>) {
    wire::decode(reply, ReplyHead::parse).unwrap()
}

fn root_of(server: &Arc<Server>) -> (Client, Vec<u8>) {
    let client = Client::new(server, Enctype::Aes256Sha1, 0, GssService::None);
    let root = client.root();
    client.nfs(p::SETATTR, |w| {
        w.opaque(&root);
        [1, 0o777, 0, 0, 0, 0, 0, 0].into_iter().for_each(|v| w.u32(v));
    });
    (client, root)
}

#[test]
fn files_work_with_every_service() {
    let server = server();
    let (_, root) = root_of(&server);
    let data: Vec<u8> = (0..70_001).map(|i| (i % 251) as u8).collect();
    for enctype in Enctype::ALL {
        for service in SERVICES {
            let client = Client::new(&server, enctype, 7, service);
            let name = format!("{} {service:?}", enctype.name());
            let file = client.create(&root, &name);
            let results = client.nfs(p::WRITE, |w| {
                w.opaque(&file);
                w.u64(3);
                [data.len() as u32, 2, data.len() as u32].into_iter().for_each(|v| w.u32(v));
                w.fixed(&data);
            });
            assert_eq!(words(&results)[0], 0, "{name}");
            let results = client.nfs(p::READ, |w| {
                w.opaque(&file);
                w.u64(3);
                w.u32(100_000);
            });
            // Status, attributes of 84 bytes after their flag, count, eof, length.
            let (front, read) = results.split_at(4 + 4 + 84 + 12);
            assert_eq!((words(front)[0], words(front)[3 + 2]), (0, 7), "{name}: its owner");
            assert_eq!(read[..data.len()], data, "{name}");
        }
    }
}

/// A token longer than any ticket is refused unread.
#[test]
fn oversized_token_is_refused() {
    let server = server();
    let client = Client::new(&server, Enctype::Aes256Sha1, 7, GssService::None);
    let stat = |len| {
        let reply = client.init(&vec![7; len], 0);
        let (results, head) = xdr_head(&reply);
        let ReplyBody::Accepted(_, stat) = head.body else { panic!("{head:?}") };
        let major = (!results.is_empty())
            .then(|| xdr::decode::<GssInitRes<'_>>(results).unwrap().1.gss_major);
        (stat, major)
    };
    assert_eq!(stat(TOKEN_MAX), (AcceptStat::Success, Some(13 << 16)));
    assert_eq!(stat(TOKEN_MAX + 1), (AcceptStat::GarbageArgs, None));
}

/// RFC 8166 section 3.4: data outside the message is covered by the MIC, with its padding.
#[test]
fn chunk_data_is_verified() {
    let server = server();
    let (_, root) = root_of(&server);
    for service in [GssService::None, GssService::Integrity] {
        let client = Client::new(&server, Enctype::Aes128Sha2, 7, service);
        let file = client.create(&root, &format!("beside {service:?}"));
        let mut args = Writer::new();
        args.opaque(&file);
        args.u64(0);
        [7, 2, 7].into_iter().for_each(|v| args.u32(v));
        let (before, data) = (args.len(), b"abcdefg\0");
        args.fixed(data);
        let write = |changed: bool| {
            let sent = client.sent(NFS, p::WRITE);
            let mut w = client.head(&sent);
            let protected = client.protected(sent.number, args.bytes());
            let front = if service == GssService::None { 0 } else { 8 };
            let at = w.len() + front + before;
            w.head().extend_from_slice(&protected[..front + before]);
            w.head().extend_from_slice(&protected[front + before + data.len()..]);
            let mut rest = BufMut::heap(4);
            rest.append(if changed { b"defG" } else { b"defg" });
            let data = vec![Buf::from(b"abc".to_vec()), rest.freeze()];
            let read_chunks = vec![ReadChunkData { at, data }];
            client.answered(&sent, call(&client.session, w.into_reply().head, read_chunks))
        };
        assert!(matches!(write(false), Answer::Done(results) if words(&results)[0] == 0));
        let missing = {
            let sent = client.sent(NFS, p::WRITE);
            let mut w = client.head(&sent);
            let protected = client.protected(sent.number, args.bytes());
            let front = if service == GssService::None { 0 } else { 8 };
            let at = w.len() + front + before;
            w.head().extend_from_slice(&protected[..front + before]);
            w.head().extend_from_slice(&protected[front + before + data.len()..]);
            let read_chunks = vec![ReadChunkData { at, data: Vec::new() }];
            client.answered(&sent, call(&client.session, w.into_reply().head, read_chunks))
        };
        if service == GssService::Integrity {
            assert_eq!(write(true), Answer::Accepted(AcceptStat::GarbageArgs));
        }
        // The head is verified, and shows enough to answer NFS3ERR_JUKEBOX.
        assert!(matches!(missing, Answer::Done(results) if words(&results)[0] == 10008));
        let results = client.nfs(p::READ, |w| {
            w.opaque(&file);
            w.u64(0);
            w.u32(100);
        });
        assert_eq!(results[4 + 4 + 84 + 12..], *data);
    }
}

/// A token that the transport has read into several buffers is decrypted in place, and WRITE data is used from there; other
/// arguments are joined.
#[test]
fn chunk_token_is_decrypted_in_place() {
    let server = server();
    let (_, root) = root_of(&server);
    let client = Client::new(&server, Enctype::Aes256Sha2, 7, GssService::Privacy);
    let file = client.create(&root, "sealed beside");
    let data: Vec<u8> = (0..50_001).map(|i| (i % 251) as u8).collect();
    let send = |procedure: u32, args: &[u8], sizes: usize, changed: bool| {
        let sent = client.sent(NFS, procedure);
        let mut w = client.head(&sent);
        let protected = client.protected(sent.number, args);
        w.head().extend_from_slice(&protected[..4]);
        let len = words(&protected[..4])[0] as usize;
        let mut token = protected[4..4 + len].to_vec();
        token[len / 2] ^= u8::from(changed);
        let piece = |bytes: &[u8]| {
            let mut own = BufMut::heap(bytes.len());
            own.append(bytes);
            own.freeze()
        };
        let read_chunks =
            vec![ReadChunkData { at: w.len(), data: token.chunks(sizes).map(piece).collect() }];
        client.answered(&sent, call(&client.session, w.into_reply().head, read_chunks))
    };
    for sizes in [37, 4096, 100_000] {
        let mut args = Writer::new();
        args.opaque(&file);
        args.u64(sizes as u64);
        [data.len() as u32, 2, data.len() as u32].into_iter().for_each(|v| args.u32(v));
        args.fixed(&data);
        let garbage = Answer::Accepted(AcceptStat::GarbageArgs);
        assert_eq!(send(p::WRITE, args.bytes(), sizes, true), garbage);
        let Answer::Done(results) = send(p::WRITE, args.bytes(), sizes, false) else { panic!() };
        assert_eq!(words(&results)[0], 0);
        let mut args = Writer::new();
        args.opaque(&file);
        args.u64(sizes as u64);
        args.u32(100_000);
        let Answer::Done(results) = send(p::READ, args.bytes(), sizes, false) else { panic!() };
        assert_eq!(results[4 + 4 + 84 + 12..][..data.len()], data);
    }
}

/// One address creates contexts without end: it evicts its own, and another address keeps its context.
#[test]
fn address_evicts_only_own_contexts() {
    let server = server();
    let [enctype, ..] = Enctype::ALL;
    let client = Client::new(&server, enctype, 7, GssService::Integrity);
    let flood = session_from(&server, "192.0.2.66:700", Transport::Tcp);
    let flood = Client::on(flood, enctype, 9, GssService::Integrity);
    let null = |client: &Client| client.send(&client.sent(NFS, 0), &[]);
    assert_eq!(null(&flood), Answer::Done(vec![]));
    for _ in 0..CONTEXTS_OF_ADDRESS_MAX {
        flood.init(&[enctype as u8, 9], 0);
    }
    assert_eq!(server.core().gss.contexts(), CONTEXTS_OF_ADDRESS_MAX + 1);
    assert_eq!(null(&flood), Answer::Auth(AuthStat::RpcsecGssCredproblem), "its first one");
    assert_eq!(null(&client), Answer::Done(vec![]));
}

#[test]
fn sequence_window_is_enforced() {
    let client = Client::new(&server(), Enctype::Aes256Sha2, 7, GssService::Integrity);
    let null = |number| {
        let sent = Sent { number, ..client.sent(NFS, p::NULL) };
        client.send(&sent, &[])
    };
    assert_eq!(null(500), Answer::Done(vec![]));
    assert_eq!(null(500), Answer::None, "heard before");
    assert_eq!(null(500 - WINDOW + 1), Answer::Done(vec![]));
    assert_eq!(null(500 - WINDOW), Answer::None, "below the window");
    assert_eq!(null(MAXSEQ + 1), Answer::Auth(AuthStat::RpcsecGssCtxproblem));
    assert_eq!(null(501), Answer::Done(vec![]));
}

#[test]
fn bad_verifier_gets_credproblem() {
    let server = server();
    let mut client = Client::new(&server, Enctype::Aes128Sha1, 7, GssService::None);
    let problem = Answer::Auth(AuthStat::RpcsecGssCredproblem);
    let null = |client: &Client| client.send(&client.sent(NFS, p::NULL), &[]);
    assert_eq!(null(&client), Answer::Done(vec![]));
    let stranger = Client {
        session: session(&server),
        keys: Context::new(Enctype::Aes128Sha1, &[9; 16], Role::Initiator, true).unwrap(),
        handle: client.handle.clone(),
        service: GssService::None,
        number: Cell::new(100),
    };
    assert_eq!(null(&stranger), problem, "the handle without the key");
    client.handle[0] ^= 1;
    assert_eq!(null(&client), problem, "no such handle");
    let expired = Client::new(&server, Enctype::Aes128Sha1, 99, GssService::None);
    assert_eq!(null(&expired), problem, "its ticket has run out");
    // The refused calls did not use up their sequence numbers.
    client.handle[0] ^= 1;
    client.number.set(100);
    assert_eq!(null(&client), Answer::Done(vec![]));
}

#[test]
fn context_calls_need_null_procedure() {
    let server = server();
    let client = Client::new(&server, Enctype::Aes256Sha1, 7, GssService::Privacy);
    let bad = |reply: &[u8]| assert_eq!(words(reply)[2..], [1, 1, AuthStat::BadCred as u32]);
    bad(&client.init(&[18, 7], 1));
    let sent = Sent { gss_proc: GssProc::Destroy, ..client.sent(NFS, p::GETATTR) };
    assert_eq!(client.send(&sent, &[]), Answer::Auth(AuthStat::BadCred));
    let sent = Sent { gss_proc: GssProc::ContinueInit, ..client.sent(NFS, p::NULL) };
    assert_eq!(client.send(&sent, &[]), Answer::Auth(AuthStat::RpcsecGssCredproblem));
    assert_eq!(server.core().gss.contexts(), 1);
    let sent = Sent { gss_proc: GssProc::Destroy, ..client.sent(NFS, p::NULL) };
    assert_eq!(client.send(&sent, &[]), Answer::Done(vec![]));
    assert_eq!(server.core().gss.contexts(), 0);
    let after = client.send(&client.sent(NFS, p::NULL), &[]);
    assert_eq!(after, Answer::Auth(AuthStat::RpcsecGssCredproblem));
}

/// True if a refusal of this rule was counted.
fn is_counted(rule: &str) -> bool {
    rdma_transport::refused::counts().iter().any(|(counted, n)| *counted == rule && *n > 0)
}

/// Authenticates with [`Keys`], while the mapping of users changes.
struct Changing(Weak<Server>);

impl Accept for Changing {
    fn accept(
        &self,
        token: Buf,
        from: IpAddr,
    ) -> BoxFuture<'static, Result<Accepted, NotAccepted>> {
        if let Some(server) = self.0.upgrade() {
            server.core().gss.forget();
        }
        Keys.accept(token, from)
    }
}

#[test]
fn changed_users_drop_all_contexts() {
    let server = server();
    let problem = Answer::Auth(AuthStat::RpcsecGssCredproblem);
    let null = |client: &Client| client.send(&client.sent(NFS, p::NULL), &[]);
    let client = Client::new(&server, Enctype::Aes256Sha1, 7, GssService::None);
    assert_eq!(null(&client), Answer::Done(vec![]));
    server.core().gss.forget();
    assert_eq!(null(&client), problem);
    let again = Client::new(&server, Enctype::Aes256Sha1, 7, GssService::None);
    assert_eq!(null(&again), Answer::Done(vec![]));
    server.core().gss.set(Some(Arc::new(Changing(Arc::downgrade(&server)))));
    let late = Client::new(&server, Enctype::Aes256Sha1, 7, GssService::None);
    assert_eq!(null(&late), problem);
}

#[test]
fn refused_token_gets_mechanism_error() {
    let server = server();
    let client = Client::new(&server, Enctype::Aes256Sha1, 7, GssService::None);
    let reply = client.init(b"no ticket", 0);
    let (results, head) = xdr_head(&reply);
    assert_eq!(head.body, ReplyBody::Accepted(OpaqueAuth::NONE, AcceptStat::Success));
    let (_, made) = xdr::decode::<GssInitRes<'_>>(results).unwrap();
    assert_eq!(
        (made.gss_major, made.handle, made.gss_token),
        (13 << 16, &[][..], &b"an error"[..])
    );
    assert_eq!(server.core().gss.contexts(), 1);
    assert!(is_counted("rpc-kerberos"));
}

#[test]
fn unverified_arguments_are_garbage() {
    let server = server();
    let garbage = Answer::Accepted(AcceptStat::GarbageArgs);
    for service in [GssService::Integrity, GssService::Privacy] {
        let client = Client::new(&server, Enctype::Aes256Sha1, 7, service);
        let send = |change: &dyn Fn(&mut Vec<u8>), number: u32| {
            let sent = client.sent(NFS, p::NULL);
            let mut w = client.head(&sent);
            let mut args = client.protected(sent.number + number, &[]);
            change(&mut args);
            w.head().extend_from_slice(&args);
            client.answered(&sent, call(&client.session, w.into_reply().head, vec![]))
        };
        assert_eq!(send(&|_| (), 0), Answer::Done(vec![]));
        assert_eq!(send(&|_| (), 1), garbage, "the number of another call");
        for at in 0..client.protected(1, &[]).len() {
            assert_eq!(send(&|args| args[at] ^= 0x40, 0), garbage, "byte {at}");
            assert_eq!(send(&|args| args.truncate(at), 0), garbage, "cut at {at}");
        }
        assert_eq!(send(&|args| args.extend([0; 4]), 0), garbage, "something behind it");
    }
    // Signed but not encrypted.
    let client = Client::new(&server, Enctype::Aes256Sha1, 7, GssService::Privacy);
    let sent = client.sent(NFS, p::NULL);
    let plain = sent.number.to_be_bytes();
    let wrapped = client.keys.wrap_unsealed(1, &[&plain]);
    let mut w = client.head(&sent);
    w.opaque(&[wrapped.head(), &plain, wrapped.tail()].concat());
    let answer = client.answered(&sent, call(&client.session, w.into_reply().head, vec![]));
    assert_eq!(answer, garbage);
}

/// A retransmission has a new sequence number, so a new credential and verifier; it gets the first reply with a new verifier.
#[test]
fn repeated_call_gets_own_reply() {
    let server = server();
    let (_, root) = root_of(&server);
    for service in SERVICES {
        let client = Client::new(&server, Enctype::Aes256Sha1, 7, service);
        let mut args = Writer::new();
        create_args(&mut args, &root, &format!("once {service:?}"));
        let first = client.sent(NFS, p::CREATE);
        let Answer::Done(results) = client.send(&first, args.bytes()) else { panic!() };
        made(&results);
        let again = Sent { xid: first.xid, ..client.sent(NFS, p::CREATE) };
        assert_eq!(client.send(&again, args.bytes()), Answer::Done(results));
        // The same arguments from another user: the file exists.
        let mut other = Client::new(&server, Enctype::Aes256Sha1, 8, service);
        other.session = session(&server);
        let sent = Sent { xid: first.xid, ..other.sent(NFS, p::CREATE) };
        let Answer::Done(results) = other.send(&sent, args.bytes()) else { panic!() };
        assert_eq!(words(&results)[0], 17);
    }
}

/// A server with a share that accepts only krb5i and krb5p.
fn strict() -> Arc<Server> {
    let mut share = share("data");
    share.rules.sec = [Flavor::Krb5i, Flavor::Krb5p].into_iter().collect();
    server_of(share)
}

/// The reply to a MOUNT with AUTH_SYS.
fn mount(server: &Arc<Server>, uid: u32, path: &[u8]) -> Vec<u8> {
    let mut w = common::head(1, MOUNT, 3, 1, uid);
    w.opaque(path);
    flat(call(&session(server), w.into_reply().head, vec![]).unwrap())
}

/// Mounts `/data` with AUTH_SYS; returns the handle and its flavors (RFC 2623 section 2.2.1).
fn mounted(server: &Arc<Server>) -> (Vec<u8>, Vec<u32>) {
    let reply = mount(server, 0, b"/data");
    let body = Buf::from(reply[24..].to_vec());
    let mut r = Reader::new(&body, &[]);
    assert_eq!(r.u32(), Ok(0));
    let handle = r.opaque(64).unwrap().to_vec();
    let flavors = (0..r.count(9).unwrap()).map(|_| r.u32().unwrap()).collect();
    (handle, flavors)
}

/// RFC 2623 sections 2.3.2 and 2.5: MOUNT and a mount's calls on the root may use any flavor, all others need the share's.
#[test]
fn v3_share_needs_its_flavors() {
    let server = strict();
    let (root, flavors) = mounted(&server);
    assert_eq!(flavors, [390_005, 390_004]);
    assert_eq!(mounted(&self::server()).1, [390_005, 390_004, 390_003, 1, 0]);
    let by_sys = |procedure: u32, more: &dyn Fn(&mut Writer)| {
        let mut w = common::head(1, NFS, 3, procedure, 0);
        w.opaque(&root);
        more(&mut w);
        words(&flat(call(&session(&server), w.into_reply().head, vec![]).unwrap()))[2..].to_vec()
    };
    let too_weak = [1, 1, AuthStat::TooWeak as u32];
    assert_eq!(by_sys(p::LOOKUP, &|w| w.opaque(b"x")), too_weak);
    assert_eq!(by_sys(p::READDIR, &|w| (0..5).for_each(|_| w.u32(0))), too_weak);
    assert!(is_counted("share-sec"));
    assert_eq!(by_sys(p::FSINFO, &|_| ())[..5], [0, 0, 0, 0, 0]);
    assert_eq!(by_sys(p::GETATTR, &|_| ())[3], 0);
    assert_eq!(by_sys(p::PATHCONF, &|_| ())[3], 0);
    assert_eq!(by_sys(p::FSSTAT, &|_| ()), too_weak, "no call of a mount");
    let by = |service| {
        let client = Client::new(&server, Enctype::Aes256Sha1, 7, service);
        let mut args = Writer::new();
        args.opaque(&root);
        args.opaque(b"x");
        client.send(&client.sent(NFS, p::LOOKUP), args.bytes())
    };
    assert_eq!(by(GssService::None), Answer::Auth(AuthStat::TooWeak));
    for service in [GssService::Integrity, GssService::Privacy] {
        assert!(
            matches!(by(service), Answer::Done(results) if words(&results)[0] == 2),
            "no such file"
        );
    }
}

/// A share that requires Kerberos does not trust the AUTH_SYS user of a MOUNT below its root.
#[test]
fn mount_without_ticket_is_anonymous() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut data = share("data");
    data.rules.sec = [Flavor::Krb5i].into_iter().collect();
    let root = data.backend.root();
    let server = server_of(data);
    let of = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    let mkdir = |at: &NodeRef, name: &[u8], mode| {
        let made = at.mkdir(Acting::caller(&OWNER), name, of(mode));
        runtime.block_on(made).unwrap().node
    };
    runtime.block_on(root.setattr(&Cred::root(), of(0o777), false)).unwrap();
    let private = mkdir(&root, b"private", 0o700);
    mkdir(&private, b"sub", 0o755);
    let status = |uid| words(&mount(&server, uid, b"/data/private/sub"))[6];
    assert_eq!([status(OWNER.uid), status(0)], [13, 13]);
    runtime.block_on(private.setattr(&OWNER, of(0o711), false)).unwrap();
    assert_eq!([status(OWNER.uid), status(0)], [0, 0]);
    // A caller with a ticket is identified by its user.
    runtime.block_on(private.setattr(&OWNER, of(0o700), false)).unwrap();
    let mut args = Writer::new();
    args.opaque(b"/data/private/sub");
    let by = |user| {
        let client = Client::new(&server, Enctype::Aes256Sha1, user, GssService::Integrity);
        match client.send(&client.sent(MOUNT, 1), args.bytes()) {
            Answer::Done(results) => words(&results)[0],
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([by(7), by(8)], [0, 13]);
}

/// Sends a COMPOUND of version 4.0 with AUTH_SYS; returns its status and the words after the last opcode.
fn compound(server: &Arc<Server>, ops: &[&[u32]]) -> (u32, Vec<u32>) {
    let mut w = common::head(1, NFS, 4, 1, 0);
    [0, 0, ops.len() as u32].into_iter().for_each(|v| w.u32(v));
    ops.iter().flat_map(|op| op.iter()).for_each(|v| w.u32(*v));
    let reply = words(&flat(call(&session(server), w.into_reply().head, vec![]).unwrap()));
    (reply[6], reply[9..].to_vec())
}

const PUTROOTFH: &[u32] = &[24];
const DATA: u32 = u32::from_be_bytes(*b"data");
const LOOKUP: &[u32] = &[15, 4, DATA];
const WRONGSEC: u32 = 10016;

/// RFC 8881 section 2.6.3.1.1: entering the share fails with WRONGSEC, and SECINFO lists the accepted flavors.
#[test]
fn secinfo_lists_share_flavors() {
    let server = strict();
    let (status, results) = compound(&server, &[PUTROOTFH, LOOKUP, &[10]]);
    assert_eq!((status, &results[2..]), (WRONGSEC, &[15, WRONGSEC][..]));
    let (status, results) = compound(&server, &[PUTROOTFH, &[33, 4, DATA]]);
    assert_eq!(status, 0);
    let krb5 = |service| [6, 9, 0x2a86_4886, 0xf712_0102, 0x0200_0000, 0, service];
    assert_eq!(results[2..], [&[33, 0, 2][..], &krb5(3), &krb5(2)].concat());
    let (status, results) = compound(&server, &[PUTROOTFH, &[33, 4, DATA]]);
    assert_eq!((status, results[4]), (0, 2), "asked again");
    // PUTFH with an earlier handle of the share fails with WRONGSEC, unless the next operation reports it.
    let handle = {
        let (root, _) = mounted(&server);
        let mut w = Writer::new();
        w.opaque(&root);
        [vec![22], words(w.bytes())].concat()
    };
    let getattr: &[u32] = &[9, 1, 0x10];
    let (status, results) = compound(&server, &[&handle, getattr]);
    assert_eq!((status, &results[..]), (WRONGSEC, &[22, WRONGSEC][..]));
    let (status, results) = compound(&server, &[&handle, &[15, 4, DATA]]);
    assert_eq!((status, &results[..]), (WRONGSEC, &[22, 0, 15, WRONGSEC][..]));
    let (status, results) = compound(&server, &[&handle, &[33, 4, DATA]]);
    assert_eq!((status, results[..5].to_vec()), (0, vec![22, 0, 33, 0, 2]));
    let (status, _) = compound(&server, &[&handle]);
    assert_eq!(status, 0);
}

/// A listing of the folder above hides the same attributes of the root as GETATTR.
#[test]
fn root_listing_hides_protected_attributes() {
    let server = strict();
    let readdir = |want: u32| [26, 0, 0, 0, 0, 4096, 4096, 1, want];
    let (rdattr_error, size) = (1 << 11, 1 << 4);
    let (status, _) = compound(&server, &[PUTROOTFH, &readdir(size)]);
    assert_eq!(status, WRONGSEC);
    let (status, results) = compound(&server, &[PUTROOTFH, &readdir(size | rdattr_error)]);
    assert_eq!(status, 0);
    // The only attribute of the entry, and its value.
    assert!(results.windows(4).any(|w| w == [1, rdattr_error, 4, WRONGSEC]), "{results:x?}");
    let open = self::server();
    let (status, results) = compound(&open, &[PUTROOTFH, &readdir(size | rdattr_error)]);
    assert_eq!(status, 0);
    assert!(!results.contains(&WRONGSEC));
}

/// A flavor that proves no identity cannot release state, not even through the saved file handle.
#[test]
fn state_release_needs_share_flavor() {
    let server = strict();
    let handle = {
        let (root, _) = mounted(&server);
        let mut w = Writer::new();
        w.opaque(&root);
        [vec![22], words(w.bytes())].concat()
    };
    let stateid = [1, 2, 3, 4];
    let close = [&[4, 0][..], &stateid].concat();
    let give_back = [&[8][..], &stateid].concat();
    for given in [&close[..], &give_back] {
        let (status, results) = compound(&server, &[&handle, &[32], &[31], given]);
        assert_eq!((status, results.last()), (WRONGSEC, Some(&WRONGSEC)), "{given:?}");
    }
}
