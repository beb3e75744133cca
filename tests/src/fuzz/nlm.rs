//! Calls of NLM, NSM and the port mapper, run against a server over memory.

use std::sync::Arc;

use iobuf::{Buf, Pool, PoolLimits};
use nfsrdma::context::{Boot, Clock, Core};
use nfsrdma::fh::Handles;
use nfsrdma::nlm::procedure as p;
use nfsrdma::nlm::wire::{Args, decode_args};
use nfsrdma::nsm::procedure as sm;
use nfsrdma::rpc::program;
use nfsrdma::server::{Offer, Server, Session};
use nfsrdma::xdr::{Reader, Writer};
use rdma_transport::channel::{Handle, Info, Service, Transport};
use vfs::mem::MemBackend;
use vfs::namespace::{Cidr, Namespace, Protocols, Share, Squash};
use vfs::{Backend, CreateHow, Cred, SetAttr};

/// The programs, and a version of each that is served.
const PROGRAMS: [(u32, u32); 5] = [
    (program::NLM, 4),
    (program::NSM, 1),
    (program::PORTMAP, 2),
    (program::PORTMAP, 3),
    (program::PORTMAP, 4),
];

thread_local! {
    #[allow(clippy::expect_used)]
    static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
}

/// Calls, one behind the other: the program (a byte, see [`PROGRAMS`]), the procedure (a byte), the length of the arguments (a
/// byte), the arguments. All are of one host. The share is `d`; it has a file `f`.
pub fn lock_calls(data: &[u8]) {
    let (session, _) = server();
    let mut rest = data;
    // Locks are tried for as long as caching rights of others are on their way back; nobody has any here.
    for xid in 1..=16 {
        let [program, number, length, tail @ ..] = rest else { return };
        let (args, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = tail;
        let (program, version) = PROGRAMS[usize::from(*program) % PROGRAMS.len()];
        let number = u32::from(*number % 26);
        let mut w = Writer::new();
        for v in [xid, 0, 2, program, version, number, 1, 20, 0, 0, 0, 0, 0, 0, 0] {
            w.u32(v);
        }
        let call = [w.bytes(), args].concat();
        let reply = RUNTIME.with(|r| r.block_on(session.call(Buf::from(call), vec![])));
        let Some(reply) = reply else { continue };
        let flat: Vec<u8> = reply.pieces().flatten().copied().collect();
        if flat.get(20..24) == Some(&[0; 4][..]) && program == program::NLM {
            answer_fits(number, args, &flat[24..]);
        }
    }
}

/// What was answered begins with the cookie of the call and a status that there is.
fn answer_fits(number: u32, args: &[u8], answer: &[u8]) {
    let (args, answer) = (Buf::from(args.to_vec()), Buf::from(answer.to_vec()));
    let cookie = match decode_args(number, &mut Reader::new(&args, &[])) {
        Ok(Some(
            Args::Test { cookie, .. }
            | Args::Lock { cookie, .. }
            | Args::Cancel { cookie, .. }
            | Args::Unlock { cookie, .. }
            | Args::Granted { cookie, .. }
            | Args::Share { cookie, .. }
            | Args::Unshare { cookie, .. },
        )) => cookie,
        other => {
            assert!(other.is_ok_and(|args| args.is_some()), "arguments that cannot be read");
            return assert!(answer.is_empty());
        }
    };
    if (p::TEST_MSG..=p::GRANTED_MSG).contains(&number) {
        return assert!(answer.is_empty(), "the answer is a call of its own");
    }
    let mut r = Reader::new(&answer, &[]);
    assert_eq!(r.opaque(cookie.len()), Ok(cookie));
    assert!(r.u32().is_ok_and(|stat| stat <= 9));
}

/// A server and the handle of its file.
#[allow(clippy::expect_used)]
fn server() -> (Session, Vec<u8>) {
    let backend = MemBackend::new(1 << 20).expect("memory");
    let (root, cred) = (backend.root(), Cred::root());
    let made = root.create(&cred, b"f", CreateHow::Guarded, SetAttr::default());
    let made = RUNTIME.with(|r| r.block_on(made)).expect("a file");
    let share = Share {
        name: "d".into(),
        id: Share::id_of("d"),
        backend,
        read_only: false,
        protocols: Protocols::Both,
        squash: Squash::None,
        clients: Some(vec![Cidr { addr: [0, 0, 0, 0].into(), bits: 0 }]),
    };
    let boot = Boot { write_verifier: 1, instance: 1 };
    let handles = Handles::new([1; 16]);
    let fh = handles.of_node(&share, &made.node.handle()).as_bytes().to_vec();
    let namespace = Arc::new(Namespace::new(vec![share]));
    let core = Core::new(namespace, handles, boot, Clock::Manual(0.into()));
    let pool = Pool::new(PoolLimits { buffers_max: [4, 4, 4] });
    let (peer, local) = (([127, 0, 0, 1], 700).into(), ([127, 0, 0, 1], 2049).into());
    let info = Arc::new(Info::new(peer, local, Transport::Tcp, pool));
    let server = Server::new(core, [2; 16]);
    server.ports().set_tcp(2049);
    (server.session_of(info, Handle::detached(), Offer::All), fh)
}

/// One call of every kind, and a history of them.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let fh = server().1;
    let call = |program: u8, number: u32, args: &dyn Fn(&mut Writer)| {
        let mut w = Writer::new();
        args(&mut w);
        let args = w.into_reply().head;
        let byte = |n: usize| u8::try_from(n).unwrap_or(u8::MAX);
        let number = u8::try_from(number).unwrap_or(u8::MAX);
        [&[program, number, byte(args.len())][..], &args].concat()
    };
    let lock = |w: &mut Writer, flags: &[u32], svid: u32, tail: &[u32]| {
        w.opaque(b"c");
        flags.iter().for_each(|v| w.u32(*v));
        w.opaque(b"host");
        w.opaque(&fh);
        w.opaque(b"oh");
        w.u32(svid);
        w.u64(5);
        w.u64(10);
        tail.iter().for_each(|v| w.u32(*v));
    };
    let share = |w: &mut Writer| {
        w.opaque(b"c");
        w.opaque(b"host");
        w.opaque(&fh);
        w.opaque(b"oh");
        [2, 3, 0].into_iter().for_each(|v| w.u32(v));
    };
    let named = |w: &mut Writer| {
        w.opaque(b"host");
        w.u32(3);
    };
    let mapping = |w: &mut Writer| {
        [program::NLM, 4, 6, 0].into_iter().for_each(|v| w.u32(v));
    };
    let address = |w: &mut Writer| {
        w.u32(program::NSM);
        w.u32(1);
        [&b"tcp"[..], b"0.0.0.0.8.1", b""].into_iter().for_each(|s| w.opaque(s));
    };
    let calls = vec![
        call(0, p::LOCK, &|w| lock(w, &[1, 1], 1, &[0, 3])),
        call(0, p::TEST, &|w| lock(w, &[1], 2, &[])),
        call(0, p::LOCK, &|w| lock(w, &[1, 1], 2, &[0, 3])),
        call(0, p::CANCEL, &|w| lock(w, &[1, 1], 2, &[])),
        call(0, p::UNLOCK, &|w| lock(w, &[], 1, &[])),
        call(0, p::SHARE, &share),
        call(0, p::NM_LOCK, &|w| lock(w, &[0, 0], 1, &[0, 3])),
        call(0, p::UNSHARE, &share),
        call(0, p::GRANTED, &|w| lock(w, &[1], 1, &[])),
        call(0, p::FREE_ALL, &named),
        call(1, sm::STAT, &|w| w.opaque(b"host")),
        call(1, sm::NOTIFY, &named),
        call(2, 3, &mapping),
        call(2, 4, &|_| {}),
        call(3, 3, &address),
        call(4, 9, &address),
    ];
    let history = calls.concat();
    calls.into_iter().chain([history]).collect()
}
