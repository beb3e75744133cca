//! NLM version 4, NSM and the port mapper, with whole calls: locks, conflicts, and notifications.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

#[path = "../common/mod.rs"]
mod common;
mod holders;
mod limits;
mod rights;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::nfs3::{Client, Results, share};
use common::{call, flat, head, session_from};
use iobuf::Buf;
use nfs_proto::oncrpc::AcceptStat;
use nfsrdma::clock::Clock;
use nfsrdma::fh::Handles;
use nfsrdma::nlm::procedure as p;
use nfsrdma::nlm::{self, Stat};
use nfsrdma::nsm::procedure as sm;
use nfsrdma::rpc::program::{NLM, NSM, PORTMAP};
use nfsrdma::server_state::{Boot, ServerState};

use nfsrdma::served_programs::ServedPrograms;
use nfsrdma::server::{Server, Session};
use nfsrdma::v4;
use rdma_transport::channel::{Handle, Info, Service, Transport};
use rdma_transport::xdr::{Reader, Writer};
use recovery::Store;
use state::{Enforce, Holder, Lease, LockKind, LockVerdict, Range, Rights, SmbLockRange, Terms};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use vfs::Acting;
use vfs::namespace::Namespace;

const GRANTED: u32 = Stat::Granted as u32;
const DENIED: u32 = Stat::Denied as u32;
const BLOCKED: u32 = Stat::Blocked as u32;
const GRACE: u32 = Stat::DeniedGracePeriod as u32;

/// A process that locks a file of a server.
#[derive(Clone, Copy)]
struct Who<'a> {
    host: &'a str,
    svid: i32,
}

const A: Who<'_> = Who { host: "a", svid: 1 };
const B: Who<'_> = Who { host: "b", svid: 1 };

fn alock(w: &mut Writer, who: Who<'_>, fh: &[u8], (offset, length): (u64, u64)) {
    w.opaque(who.host.as_bytes());
    w.opaque(fh);
    w.opaque(format!("{}@{}", who.svid, who.host).as_bytes());
    w.i32(who.svid);
    w.u64(offset);
    w.u64(length);
}

fn lock_args(
    who: Who<'_>,
    fh: &[u8],
    at: (u64, u64),
    exclusive: bool,
    (block, reclaim): (bool, bool),
) -> Vec<u8> {
    let mut w = Writer::new();
    w.opaque(b"cook");
    w.bool(block);
    w.bool(exclusive);
    alock(&mut w, who, fh, at);
    w.bool(reclaim);
    w.i32(3);
    w.into_reply().head
}

fn cancel_args(who: Who<'_>, fh: &[u8], at: (u64, u64), exclusive: bool) -> Vec<u8> {
    let mut w = Writer::new();
    w.opaque(b"cook");
    w.bool(true);
    w.bool(exclusive);
    alock(&mut w, who, fh, at);
    w.into_reply().head
}

fn unlock_args(who: Who<'_>, fh: &[u8], at: (u64, u64)) -> Vec<u8> {
    let mut w = Writer::new();
    w.opaque(b"cook");
    alock(&mut w, who, fh, at);
    w.into_reply().head
}

fn test_args(who: Who<'_>, fh: &[u8], at: (u64, u64), exclusive: bool) -> Vec<u8> {
    let mut w = Writer::new();
    w.opaque(b"cook");
    w.bool(exclusive);
    alock(&mut w, who, fh, at);
    w.into_reply().head
}

fn share_args(who: Who<'_>, fh: &[u8], deny: u32, access: u32) -> Vec<u8> {
    let mut w = Writer::new();
    w.opaque(b"cook");
    w.opaque(who.host.as_bytes());
    w.opaque(fh);
    w.opaque(b"oh");
    w.u32(deny);
    w.u32(access);
    w.bool(false);
    w.into_reply().head
}

fn notify_args(name: &str, state: i32) -> Vec<u8> {
    let mut w = Writer::new();
    w.opaque(name.as_bytes());
    w.i32(state);
    w.into_reply().head
}

/// Encodes a call.
fn message(program: u32, version: u32, number: u32, uid: u32, args: &[u8]) -> Vec<u8> {
    static XID: AtomicU32 = AtomicU32::new(0x1_0000);
    let w = head(XID.fetch_add(1, Ordering::Relaxed), program, version, number, uid);
    let mut call = flat(w.into_reply());
    call.extend_from_slice(args);
    call
}

/// Decodes the status after the cookie.
fn stat(results: &Results) -> u32 {
    let mut r = results.reader();
    assert_eq!(r.opaque(64), Ok(&b"cook"[..]));
    r.u32().unwrap()
}

/// A server with one file, whose lock table tests can inspect.
struct Bed {
    client: Client,
    fh: Vec<u8>,
}

impl Bed {
    fn new() -> Self {
        let client = Client::new();
        let fh = client.create(&client.root(), "f", 0o644).unwrap();
        Self { client, fh }
    }

    fn nlm(&self, number: u32, args: &[u8]) -> Results {
        self.from("127.0.0.1:700", 0, number, args)
    }

    fn from(&self, peer: &str, uid: u32, number: u32, args: &[u8]) -> Results {
        let session = session_from(&self.client.server, peer, Transport::Tcp);
        results(call(&session, message(NLM, 4, number, uid, args), vec![]))
    }

    fn lock(&self, who: Who<'_>, at: (u64, u64), exclusive: bool) -> u32 {
        stat(&self.nlm(p::LOCK, &lock_args(who, &self.fh, at, exclusive, (false, false))))
    }

    fn unlock(&self, who: Who<'_>, at: (u64, u64)) -> u32 {
        stat(&self.nlm(p::UNLOCK, &unlock_args(who, &self.fh, at)))
    }

    fn table(&self) -> &state::Table {
        self.client.server.core().namespace.arbiter().state()
    }

    fn node(&self) -> state::NodeId {
        let core = self.client.server.core();
        let resolved = core.handles.resolve(&core.namespace, &self.fh);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(resolved).unwrap().1.id()
    }
}

fn results(reply: Option<rdma_transport::channel::Reply>) -> Results {
    let reply = flat(reply.expect("an answer"));
    assert_eq!(&reply[4..24], &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    Results(Buf::from(reply[24..].to_vec()))
}

/// A holder of another protocol.
fn party(table: &state::Table, client: state::ClientId) -> Holder {
    let terms = Terms { lease_ms: u64::MAX / 4, courtesy_ms: 0 };
    Holder { holder: table.holder(), lease: Arc::new(Lease::new(client, terms, 0)), via: 0 }
}

#[test]
fn locks_exclude_other_owners() {
    let bed = Bed::new();
    assert_eq!(bed.lock(A, (0, 10), true), GRANTED);
    assert_eq!(bed.lock(A, (0, 10), true), GRANTED, "again by its owner");
    assert_eq!(bed.lock(B, (9, 1), false), DENIED);
    assert_eq!(bed.lock(Who { svid: 2, ..A }, (9, 1), false), DENIED, "another process");
    assert_eq!(bed.lock(B, (10, 0), true), GRANTED, "to the end");
    assert_eq!(bed.lock(A, (1 << 40, 1), false), DENIED);
    assert_eq!(bed.unlock(A, (3, 2)), GRANTED);
    assert_eq!(bed.lock(B, (3, 2), true), GRANTED, "the hole");
    assert_eq!(bed.unlock(B, (0, 0)), GRANTED, "of everything, also of what is not held");
    assert_eq!(bed.lock(A, (0, 0), true), GRANTED);
    assert_eq!(bed.unlock(A, (0, 0)), GRANTED);
    assert_eq!(bed.table().nodes(), 0, "nothing is left");
    assert_eq!(bed.client.server.nlm().hosts(), 2);
}

#[test]
fn test_reports_conflicting_holder() {
    let bed = Bed::new();
    let test = |who, at, exclusive| bed.nlm(p::TEST, &test_args(who, &bed.fh, at, exclusive));
    assert_eq!(stat(&test(B, (0, 1), true)), GRANTED);
    assert_eq!(bed.lock(A, (5, 0), false), GRANTED);
    assert_eq!(stat(&test(A, (0, 0), true)), GRANTED, "not one's own");
    assert_eq!(stat(&test(B, (0, 0), false)), GRANTED, "shared beside shared");
    let denied = test(B, (0, 0), true);
    assert_eq!(stat(&denied), DENIED);
    let mut r = denied.reader();
    r.opaque(64).unwrap();
    r.u32().unwrap();
    let (exclusive, svid) = (r.bool().unwrap(), r.i32().unwrap());
    assert_eq!((exclusive, svid, r.opaque(64).unwrap()), (false, 1, &b"1@a"[..]));
    assert_eq!((r.u64(), r.u64(), r.is_at_end()), (Ok(5), Ok(0), true));
}

#[test]
fn locks_conflict_across_protocols() {
    let bed = Bed::new();
    let (table, node) = (bed.table(), bed.node());
    let v4 = party(table, state::ClientId(7));
    let smb = party(table, table.key());
    let range = |first, last| Range { first, last };
    let lock4 = |r| table.lock(node, &v4, r, LockKind::Exclusive, Enforce::Advisory, 0);
    let lock_smb = |offset, length| {
        let extent = SmbLockRange::new(offset, length).unwrap();
        table.lock_smb(node, &smb, extent, LockKind::Exclusive, 0)
    };
    assert_eq!(lock4(range(0, 9)), LockVerdict::Go);
    assert_eq!(lock_smb(100, 10), LockVerdict::Go);
    assert_eq!(bed.lock(A, (5, 1), false), DENIED);
    assert_eq!(bed.lock(A, (109, 1), false), DENIED);
    let denied = bed.nlm(p::TEST, &test_args(A, &bed.fh, (0, 1), false));
    let mut r = denied.reader();
    r.opaque(64).unwrap();
    assert_eq!((r.u32(), r.bool(), r.i32()), (Ok(DENIED), Ok(true), Ok(0)));
    assert_eq!((r.opaque(9), r.u64(), r.u64()), (Ok(&b""[..]), Ok(0), Ok(10)));
    assert_eq!(bed.lock(A, (50, 10), true), GRANTED);
    assert!(matches!(lock4(range(59, 59)), LockVerdict::Denied(_)));
    assert!(matches!(lock_smb(50, 1), LockVerdict::Denied(_)));
}

#[test]
fn exclusive_lock_recalls_read_caching() {
    let bed = Bed::new();
    let (table, node) = (bed.table(), bed.node());
    let reader = party(table, state::ClientId(7));
    assert_eq!(bed.lock(A, (0, 1), true), GRANTED);
    let delegate = || table.delegate(node, &reader, state::Caching::READ_HANDLE, 0);
    assert!(!delegate(), "somebody writes");
    bed.unlock(A, (0, 0));
    assert!(delegate());
    // The caching right is not returned, so the client must retry.
    assert_eq!(bed.lock(A, (0, 1), true), GRACE);
    assert_eq!(bed.lock(A, (0, 1), false), GRANTED, "readers share");
}

#[test]
fn unlockable_files_get_specific_status() {
    let mut readonly = share("ro");
    readonly.read_only = true;
    let mut elsewhere = share("elsewhere");
    elsewhere.clients = Some(vec![]);
    let client = Client::of(vec![share("data"), readonly, elsewhere]);
    let fh = client.create(&client.root(), "f", 0o600).unwrap();
    let bed = Bed { client, fh };
    let lock = |fh: &[u8], at, uid| {
        let args = lock_args(A, fh, at, true, (false, false));
        stat(&bed.from("127.0.0.1:700", uid, p::LOCK, &args))
    };
    assert_eq!(lock(&bed.fh, (u64::MAX, 2), 0), Stat::Fbig as u32);
    assert_eq!(lock(&bed.fh, (0, 0), 1000), Stat::Failed as u32, "who may not open may not lock");
    assert_eq!(lock(&[1; 30], (0, 0), 0), Stat::StaleFh as u32);
    assert_eq!(lock(&[], (0, 0), 0), Stat::StaleFh as u32);
    let root = bed.client.root();
    assert_eq!(lock(&root, (0, 0), 0), Stat::Failed as u32, "a directory");
    let core = bed.client.server.core();
    let of = |name: &[u8]| {
        let share = core.namespace.share_named(name).unwrap().clone();
        core.handles.of_node(&share, &share.backend.root().handle())
    };
    assert_eq!(lock(of(b"elsewhere").as_bytes(), (0, 0), 0), Stat::Failed as u32);
    assert_eq!(stat(&bed.nlm(p::GRANTED, &test_args(A, &bed.fh, (0, 0), true))), DENIED);
}

#[test]
fn unknown_versions_are_refused() {
    let bed = Bed::new();
    let session = session_from(&bed.client.server, "127.0.0.1:700", Transport::Tcp);
    let ask = |program, version, number| {
        let reply =
            flat(call(&session, message(program, version, number, 0, &[]), vec![]).unwrap());
        common::words(&reply[8..])
    };
    for version in [1, 3] {
        assert_eq!(ask(NLM, version, 0), [0, 0, 0, 2, 4, 4], "PROG_MISMATCH");
    }
    assert_eq!(ask(NSM, 2, 0), [0, 0, 0, 2, 1, 1]);
    assert_eq!(ask(NLM, 4, 0), [0, 0, 0, 0]);
    assert_eq!(
        ask(NLM, 4, 16),
        [0, 0, 0, 3],
        "a procedure between a client's own kernel and itself"
    );
    assert_eq!(ask(NLM, 4, p::LOCK), [0, 0, 0, 4], "GARBAGE_ARGS");
    assert_eq!(ask(NSM, 1, 7), [0, 0, 0, 3]);
}

#[test]
fn late_retransmission_does_not_lock() {
    let bed = Bed::new();
    let session = session_from(&bed.client.server, "127.0.0.1:700", Transport::Tcp);
    let args = lock_args(A, &bed.fh, (0, 1), true, (false, false));
    let lock = message(NLM, 4, p::LOCK, 0, &args);
    assert_eq!(stat(&results(call(&session, lock.clone(), vec![]))), GRANTED);
    assert_eq!(bed.unlock(A, (0, 1)), GRANTED);
    assert_eq!(stat(&results(call(&session, lock, vec![]))), GRANTED, "the first reply again");
    assert_eq!(bed.lock(B, (0, 1), true), GRANTED);
}

#[test]
fn reservations_do_not_block_own_host() {
    const BOTH: u32 = 3;
    const NONE: u32 = 0;
    const WRITE: u32 = 2;
    let bed = Bed::new();
    let do_share = |peer: &str, number, who, deny, access| {
        stat(&bed.from(peer, 0, number, &share_args(who, &bed.fh, deny, access)))
    };
    let (mine, other) = ("127.0.0.1:700", "127.0.0.2:700");
    assert_eq!(do_share(mine, p::SHARE, A, WRITE, BOTH), GRANTED);
    assert_eq!(do_share(other, p::SHARE, B, NONE, WRITE), DENIED);
    assert_eq!(do_share(other, p::SHARE, B, NONE, 1), GRANTED);
    assert_eq!(bed.client.write(&bed.fh, 0, b"mine", 2).status().0, 0, "its own host writes");
    assert_eq!(bed.lock(A, (0, 1), true), GRANTED, "and locks");
    assert_eq!(bed.unlock(A, (0, 1)), GRANTED);
    let session = session_from(&bed.client.server, other, Transport::Tcp);
    let mut stranger = Client::new();
    stranger.session = session;
    assert_eq!(stranger.write(&bed.fh, 0, b"hers", 2).status().0, 13, "another may not");
    // The second SHARE replaces the first.
    assert_eq!(do_share(mine, p::SHARE, A, NONE, BOTH), GRANTED);
    assert_eq!(stranger.write(&bed.fh, 0, b"hers", 2).status().0, 0);
    assert_eq!(do_share(mine, p::UNSHARE, A, NONE, BOTH), GRANTED);
    assert_eq!(do_share(mine, p::UNSHARE, A, NONE, BOTH), GRANTED, "again");
    assert_eq!(do_share(other, p::UNSHARE, B, NONE, 1), GRANTED);
    assert_eq!(bed.table().nodes(), 0);
}

#[test]
fn restarted_host_loses_locks() {
    let bed = Bed::new();
    let tell = |peer: &str, program, version, number, args: &[u8]| {
        let session = session_from(&bed.client.server, peer, Transport::Tcp);
        results(call(&session, message(program, version, number, 0, args), vec![]));
    };
    let take = || {
        assert_eq!(bed.lock(A, (0, 10), true), GRANTED);
        assert_eq!(bed.lock(B, (10, 10), false), GRANTED);
        let share = share_args(A, &bed.fh, 2, 1);
        assert_eq!(stat(&bed.nlm(p::SHARE, &share)), GRANTED);
    };
    take();
    tell("127.0.0.1:700", NSM, 1, sm::NOTIFY, &notify_args("nobody", 9));
    assert_eq!(bed.lock(B, (0, 10), true), DENIED, "two names come from there: neither is meant");
    tell("192.0.2.77:700", NSM, 1, sm::NOTIFY, &notify_args("a", 9));
    assert_eq!(bed.lock(B, (0, 10), true), DENIED, "a stranger's word");
    tell("127.0.0.1:700", NSM, 1, sm::NOTIFY, &notify_args("A", 9));
    assert_eq!(bed.table().nodes(), 1);
    assert_eq!(bed.lock(A, (10, 10), true), DENIED, "of the other nothing is released");
    assert_eq!(bed.lock(B, (0, 10), true), GRANTED);
    assert_eq!(bed.client.write(&bed.fh, 0, b"free", 2).status().0, 0);
    tell("127.0.0.1:700", NLM, 4, p::FREE_ALL, &notify_args("b", 0));
    assert_eq!(bed.table().nodes(), 0);
    let counters = &bed.client.server.nlm().counters;
    assert_eq!(counters.reboots.load(Ordering::Relaxed), 2);
    assert_eq!(counters.strangers.load(Ordering::Relaxed), 1);
    assert_eq!(counters.ignored.load(Ordering::Relaxed), 1);
}

/// The share admits this host and its neighbours: all of 127.0.0.0/8.
#[test]
fn notice_must_come_from_host() {
    let bed = Bed::new();
    let server = &bed.client.server;
    let by_stream = |peer: &str, (program, version, number): (u32, u32, u32), args: &[u8]| {
        let session = session_from(server, peer, Transport::Tcp);
        results(call(&session, message(program, version, number, 0, args), vec![]));
    };
    let by_datagram = |peer: &str, (program, version, number): (u32, u32, u32), args: &[u8]| {
        let pool = iobuf::Pool::new(iobuf::PoolLimits { buffers_max: [4, 4, 4] });
        let local = ([127, 0, 0, 1], 2049).into();
        let info = Arc::new(Info::new(peer.parse().unwrap(), local, Transport::Tcp, pool));
        let body = Buf::from(message(program, version, number, 0, args));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(runtime.block_on(server.datagram(info, body, ServedPrograms::Datagrams)).is_some());
    };
    let (notify, free_all) = ((NSM, 1, sm::NOTIFY), (NLM, 4, p::FREE_ALL));
    assert_eq!(bed.lock(A, (0, 10), true), GRANTED);
    for peer in ["127.0.0.2:700", "127.0.0.3:999"] {
        for (what, state) in [(notify, 7), (free_all, 0)] {
            by_stream(peer, what, &notify_args(A.host, state));
            by_datagram(peer, what, &notify_args(A.host, state));
        }
        assert_eq!(bed.lock(B, (0, 10), true), DENIED, "an admitted neighbour's word");
    }
    let counters = &server.nlm().counters;
    assert_eq!(counters.ignored.load(Ordering::Relaxed), 8);
    // A notice from the host itself, as a datagram.
    by_datagram("127.0.0.1:700", notify, &notify_args(A.host, 7));
    assert_eq!(bed.lock(B, (0, 10), true), GRANTED);
    assert_eq!(counters.reboots.load(Ordering::Relaxed), 1);
}

#[test]
fn stale_notice_is_ignored() {
    let bed = Bed::new();
    let notify = |state| {
        let session = session_from(&bed.client.server, "127.0.0.1:700", Transport::Tcp);
        results(call(
            &session,
            message(NSM, 1, sm::NOTIFY, 0, &notify_args(A.host, state)),
            vec![],
        ));
    };
    // The last four bytes of a LOCK are the number of its host's status monitor; 0 means unknown.
    let lock = |at, state: i32| {
        let mut args = lock_args(A, &bed.fh, at, true, (false, false));
        let end = args.len();
        args[end - 4..].copy_from_slice(&state.to_be_bytes());
        assert_eq!(stat(&bed.nlm(p::LOCK, &args)), GRANTED);
    };
    lock((0, 10), 7);
    notify(7);
    assert_eq!(bed.lock(B, (0, 10), true), DENIED, "it locked under this number");
    notify(9);
    assert_eq!(bed.lock(B, (0, 10), true), GRANTED, "it was restarted");
    assert_eq!(bed.unlock(B, (0, 10)), GRANTED);
    lock((0, 10), 0);
    notify(9);
    assert_eq!(bed.lock(B, (0, 10), true), DENIED, "a late repetition of the last notice");
    let counters = &bed.client.server.nlm().counters;
    assert_eq!(counters.reboots.load(Ordering::Relaxed), 1);
    assert_eq!(counters.ignored.load(Ordering::Relaxed), 2);
}

/// One owner has ranges from two runs of its host, whose first notice is late or lost.
#[test]
fn lock_of_new_run_releases_old() {
    let bed = Bed::new();
    let notify = |state| {
        let session = session_from(&bed.client.server, "127.0.0.1:700", Transport::Tcp);
        let args = notify_args(A.host, state);
        results(call(&session, message(NSM, 1, sm::NOTIFY, 0, &args), vec![]));
    };
    let lock = |at, state: i32| {
        let mut args = lock_args(A, &bed.fh, at, true, (false, false));
        let end = args.len();
        args[end - 4..].copy_from_slice(&state.to_be_bytes());
        assert_eq!(stat(&bed.nlm(p::LOCK, &args)), GRANTED);
    };
    let is_free = |at| {
        let free = bed.lock(B, at, true) == GRANTED;
        assert_eq!(bed.unlock(B, at), GRANTED);
        free
    };
    lock((0, 10), 7);
    assert_eq!(stat(&bed.nlm(p::SHARE, &share_args(A, &bed.fh, 0, 1))), GRANTED);
    lock((10, 10), 9);
    assert!(is_free((0, 10)), "of the last life");
    notify(9);
    assert!(!is_free((10, 10)), "taken under the number of the notice");
    notify(7);
    assert!(!is_free((10, 10)), "a notice from the last life");
    lock((20, 10), 7);
    assert!(!is_free((10, 10)), "a LOCK from the last life");
    notify(11);
    assert!(is_free((10, 10)) && is_free((20, 10)), "restarted again");
    assert_eq!(bed.table().nodes(), 0, "the reservation is gone as well");
    let counters = &bed.client.server.nlm().counters;
    assert_eq!(counters.reboots.load(Ordering::Relaxed), 2);
    assert_eq!(counters.ignored.load(Ordering::Relaxed), 2);
}

#[test]
fn status_monitor_refuses_other_monitoring() {
    let bed = Bed::new();
    let session = session_from(&bed.client.server, "127.0.0.1:700", Transport::Tcp);
    let state = bed.client.server.nlm().state_number();
    assert_eq!(state % 2, 1);
    let mut mon = Writer::new();
    mon.opaque(b"host");
    mon.opaque(b"me");
    (0..3).for_each(|n| mon.u32(n));
    mon.fixed(&[0; 16]);
    let ask = |number, args: &[u8]| {
        let reply = results(call(&session, message(NSM, 1, number, 0, args), vec![]));
        common::words(reply.0.as_slice())
    };
    let number = u32::try_from(state).unwrap();
    assert_eq!(ask(sm::MON, mon.bytes()), [1, number]);
    assert_eq!(ask(sm::STAT, &notify_args("host", 5)[..8]), [0, number]);
    assert_eq!(ask(sm::UNMON, &mon.bytes()[..28]), [number]);
    assert!(ask(sm::SIMU_CRASH, &[]).is_empty());
}

#[test]
fn port_mapper_serves_three_versions() {
    let bed = Bed::new();
    let ports = bed.client.server.ports();
    ports.set_tcp(2049);
    ports.set_udp(2050);
    let info = |local: &str| {
        let (peer, local) = ("127.0.0.1:700".parse().unwrap(), local.parse().unwrap());
        let pool = iobuf::Pool::new(iobuf::PoolLimits { buffers_max: [4, 4, 4] });
        Arc::new(Info::new(peer, local, Transport::Tcp, pool))
    };
    let server = &bed.client.server;
    let ask = |local, version, number, args: &[u8]| {
        let session = server.session_of(info(local), Handle::detached(), ServedPrograms::Portmap);
        let reply = call(&session, message(PORTMAP, version, number, 0, args), vec![]);
        results(reply)
    };
    let port = |program, version, by| {
        let mut w = Writer::new();
        [program, version, by, 0].into_iter().for_each(|v| w.u32(v));
        ask("192.0.2.1:111", 2, 3, w.bytes()).reader().u32().unwrap()
    };
    assert_eq!((port(NLM, 4, 6), port(NLM, 4, 17), port(NSM, 1, 17)), (2049, 2050, 2050));
    assert_eq!((port(NLM, 3, 6), port(100_003, 3, 17), port(100_005, 3, 17)), (2049, 0, 2050));
    let address = |local, version, number, netid: &str| {
        let mut w = Writer::new();
        w.u32(NLM);
        w.u32(4);
        w.opaque(netid.as_bytes());
        w.opaque(b"");
        w.opaque(b"");
        let reply = ask(local, version, number, w.bytes());
        String::from_utf8(reply.reader().opaque(64).unwrap().to_vec()).unwrap()
    };
    assert_eq!(address("192.0.2.1:111", 3, 3, "tcp"), "192.0.2.1.8.1");
    assert_eq!(address("192.0.2.1:111", 4, 9, "udp"), "192.0.2.1.8.2");
    assert_eq!(address("[fd00::1]:111", 4, 3, "tcp6"), "fd00::1.8.1");
    assert_eq!(address("[::ffff:192.0.2.1]:111", 4, 3, "tcp"), "192.0.2.1.8.1");
    assert_eq!(address("192.0.2.1:111", 4, 3, "tcp6"), "");
    assert_eq!(ask("192.0.2.1:111", 4, 1, &[]).reader().bool(), Ok(false), "SET");
    let entries = |version| {
        let reply = ask("192.0.2.1:111", version, 4, &[]);
        let mut r = reply.reader();
        let mut n = 0;
        while r.bool().unwrap() {
            r.u64().unwrap();
            match version {
                2 => assert!(r.u64().is_ok()),
                _ => (0..3).for_each(|_| assert!(r.opaque(64).is_ok())),
            }
            n += 1;
        }
        assert!(r.is_at_end());
        n
    };
    assert_eq!((entries(2), entries(3), entries(4)), (15, 15, 15));
    ports.set_mapper(111);
    assert_eq!((entries(2), port(PORTMAP, 2, 17)), (21, 111));
    // Port 111 serves no other program.
    let session =
        server.session_of(info("192.0.2.1:111"), Handle::detached(), ServedPrograms::Portmap);
    let reply = call(&session, message(NLM, 4, 0, 0, &[]), vec![]).unwrap();
    assert_eq!(common::words(&flat(reply)[8..]), [0, 0, 0, 1], "PROG_UNAVAIL");
}

/// Program, procedure, arguments.
type Called = (u32, u32, Vec<u8>);

/// A client host: its rpcbind, and one port for its lock manager and status monitor.
struct Host {
    rpcbind: u16,
    calls: Arc<Mutex<Vec<Called>>>,
    /// The status that the lock manager answers; above the highest status it does not answer.
    answers: Arc<AtomicU32>,
}

impl Host {
    async fn start() -> Self {
        let calls = Arc::new(Mutex::new(Vec::<Called>::new()));
        let answers = Arc::new(AtomicU32::new(GRANTED));
        let manager = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = manager.local_addr().unwrap().port();
        let mapper = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let rpcbind = mapper.local_addr().unwrap().port();
        tokio::spawn(Self::serve(mapper, move |_, _, _| {
            Some(u32::from(port).to_be_bytes().into())
        }));
        let (log, say) = (calls.clone(), answers.clone());
        tokio::spawn(Self::serve(manager, move |program, number, args| {
            log.lock().unwrap().push((program, number, args.to_vec()));
            let stat = say.load(Ordering::Relaxed);
            let mut w = Writer::new();
            w.opaque(b"");
            w.u32(stat);
            (stat <= 9).then(|| w.into_reply().head)
        }));
        Self { rpcbind, calls, answers }
    }

    async fn serve(
        listener: TcpListener,
        answer: impl Fn(u32, u32, &[u8]) -> Option<Vec<u8>> + Send + 'static,
    ) {
        while let Ok((mut stream, _)) = listener.accept().await {
            let Ok(mark) = stream.read_u32().await else { continue };
            let mut call = vec![0; (mark & 0x7fff_ffff) as usize];
            stream.read_exact(&mut call).await.unwrap();
            let call = Buf::from(call);
            let mut r = Reader::new(&call, &[]);
            let head = nfsrdma::rpc::decode_call(&mut r).unwrap();
            let Some(results) = answer(head.program, head.procedure, r.rest()) else { continue };
            let mut w = Writer::new();
            nfs_proto::oncrpc::ReplyHead::accepted(head.xid, AcceptStat::Success).emit(w.head());
            let reply = [w.bytes(), &results].concat();
            stream.write_u32(0x8000_0000 | reply.len() as u32).await.unwrap();
            stream.write_all(&reply).await.unwrap();
        }
    }

    fn called(&self, program: u32, number: u32) -> Vec<Vec<u8>> {
        let calls = self.calls.lock().unwrap();
        let these = calls.iter().filter(|c| (c.0, c.1) == (program, number));
        these.map(|c| c.2.clone()).collect()
    }

    async fn wait_for(&self, program: u32, number: u32, times: usize) -> Vec<u8> {
        let seen = async {
            while self.called(program, number).len() < times {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), seen).await.expect("a call");
        self.called(program, number).pop().unwrap()
    }
}

/// A server that calls its clients back, on a runtime.
struct Live {
    server: Arc<Server>,
    session: Session,
    fh: Vec<u8>,
}

impl Live {
    async fn start(rpcbind_port: u16, store: Option<Store>, instance: u32) -> Self {
        let boot = Boot { write_verifier: 1, instance };
        let share = share("data");
        let root = share.backend.root();
        let cred = vfs::Cred::root();
        let how = vfs::CreateHow::Guarded;
        let made =
            root.create(Acting::caller(&cred), b"f", how, vfs::SetAttr::default()).await.unwrap();
        let namespace = Arc::new(Namespace::new(vec![share]));
        let core =
            ServerState::new(namespace, Handles::new([3; 16]), boot, Clock::Manual(0.into()));
        let v4 = v4::Options { store, grace: Duration::from_secs(90), ..v4::Options::default() };
        let server = Server::with(core, [4; 16], v4, nlm::Options { rpcbind_port }).unwrap();
        let core = server.core();
        let share = core.namespace.share_named(b"data").unwrap().clone();
        let fh = core.handles.of_node(&share, &made.node.handle()).as_bytes().to_vec();
        let peer: SocketAddr = "127.0.0.1:700".parse().unwrap();
        let pool = iobuf::Pool::new(iobuf::PoolLimits { buffers_max: [4, 4, 4] });
        let info = Info::new(peer, "127.0.0.1:2049".parse().unwrap(), Transport::Tcp, pool);
        let session = server.session(Arc::new(info), Handle::detached());
        Self { server, session, fh }
    }

    fn advance(&self, ms: u64) {
        let Clock::Manual(now) = &self.server.core().clock else { unreachable!() };
        now.fetch_add(ms, Ordering::Relaxed);
    }

    async fn nlm(&self, number: u32, args: Vec<u8>) -> Results {
        let call = Buf::from(message(NLM, 4, number, 0, &args));
        results(self.session.call(call, vec![]).await)
    }

    async fn lock(&self, who: Who<'_>, block: bool) -> u32 {
        let args = lock_args(who, &self.fh, (0, 10), true, (block, false));
        stat(&self.nlm(p::LOCK, args).await)
    }

    async fn reclaim(&self, who: Who<'_>) -> u32 {
        let args = lock_args(who, &self.fh, (0, 10), true, (false, true));
        stat(&self.nlm(p::LOCK, args).await)
    }

    async fn unlock(&self, who: Who<'_>) {
        let args = unlock_args(who, &self.fh, (0, 10));
        assert_eq!(stat(&self.nlm(p::UNLOCK, args).await), GRANTED);
    }

    async fn nobody_waits(&self) {
        let done = async {
            while self.server.nlm().waiting() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), done).await.expect("the queue is empty");
    }
}

#[tokio::test]
async fn waiting_lock_is_granted_by_callback() {
    let host = Host::start().await;
    let live = Live::start(host.rpcbind, None, 1).await;
    assert_eq!(live.lock(A, true).await, GRANTED);
    assert_eq!(live.lock(B, true).await, BLOCKED);
    assert_eq!(live.lock(B, true).await, BLOCKED, "asked again, it still waits, once");
    assert_eq!(live.server.nlm().waiting(), 1);
    assert!(host.called(NLM, p::GRANTED).is_empty());
    live.unlock(A).await;
    let args = host.wait_for(NLM, p::GRANTED, 1).await;
    // The server chooses the cookie; the rest repeats the client's request.
    let wanted = test_args(B, &live.fh, (0, 10), true);
    assert_eq!(args[12..], wanted[8..]);
    live.nobody_waits().await;
    assert_eq!(live.lock(A, false).await, DENIED);
    live.unlock(B).await;
    assert_eq!(live.lock(A, false).await, GRANTED);
}

#[tokio::test]
async fn release_by_other_protocol_grants_lock() {
    let host = Host::start().await;
    let live = Live::start(host.rpcbind, None, 1).await;
    let core = live.server.core().clone();
    let arbiter = core.namespace.arbiter();
    let (_, node) = core.handles.resolve(&core.namespace, &live.fh).await.unwrap();
    let smb = party(arbiter.state(), arbiter.state().key());
    let extent = SmbLockRange::new(5, 1).unwrap();
    arbiter.lock(node.id(), &smb, extent, LockKind::Exclusive, None).await.unwrap();
    assert_eq!(live.lock(A, true).await, BLOCKED);
    assert!(arbiter.unlock(node.id(), &smb, extent));
    host.wait_for(NLM, p::GRANTED, 1).await;
    live.nobody_waits().await;
    // A lock request also waits for share modes.
    live.unlock(A).await;
    let deny = state::Share::new(Rights::READ, Rights::WRITE);
    arbiter.open(node.id(), &smb, deny).await.unwrap();
    assert_eq!(live.lock(A, false).await, DENIED);
    assert_eq!(live.lock(A, true).await, BLOCKED);
    arbiter.close(node.id(), smb.holder);
    host.wait_for(NLM, p::GRANTED, 2).await;
}

#[tokio::test]
async fn granted_is_repeated_until_answered() {
    let host = Host::start().await;
    let live = Live::start(host.rpcbind, None, 1).await;
    assert_eq!(live.lock(A, true).await, GRANTED);
    assert_eq!(live.lock(B, true).await, BLOCKED);
    host.answers.store(GRACE, Ordering::Relaxed);
    live.unlock(A).await;
    host.wait_for(NLM, p::GRANTED, 2).await;
    assert_eq!(live.lock(A, false).await, DENIED, "it is held meanwhile");
    host.answers.store(GRANTED, Ordering::Relaxed);
    live.nobody_waits().await;
}

#[tokio::test]
async fn refused_grant_releases_lock() {
    let host = Host::start().await;
    let live = Live::start(host.rpcbind, None, 1).await;
    assert_eq!(live.lock(A, true).await, GRANTED);
    assert_eq!(live.lock(B, true).await, BLOCKED);
    host.answers.store(DENIED, Ordering::Relaxed);
    live.unlock(A).await;
    live.nobody_waits().await;
    assert_eq!(live.lock(A, false).await, GRANTED);
}

#[tokio::test]
async fn canceled_request_gets_no_lock() {
    let host = Host::start().await;
    let live = Live::start(host.rpcbind, None, 1).await;
    assert_eq!(live.lock(A, true).await, GRANTED);
    assert_eq!(live.lock(B, true).await, BLOCKED);
    let cancel = || cancel_args(B, &live.fh, (0, 10), true);
    assert_eq!(stat(&live.nlm(p::CANCEL, cancel()).await), GRANTED);
    assert_eq!(live.server.nlm().waiting(), 0);
    assert_eq!(stat(&live.nlm(p::CANCEL, cancel()).await), GRANTED, "again");
    live.unlock(A).await;
    assert_eq!(live.lock(A, false).await, GRANTED);
    live.unlock(A).await;
    // Granted, and canceled before the client has answered.
    assert_eq!(live.lock(A, true).await, GRANTED);
    assert_eq!(live.lock(B, true).await, BLOCKED);
    host.answers.store(99, Ordering::Relaxed);
    live.unlock(A).await;
    host.wait_for(NLM, p::GRANTED, 1).await;
    assert_eq!(stat(&live.nlm(p::CANCEL, cancel()).await), GRANTED);
    assert_eq!(live.lock(A, false).await, GRANTED);
}

#[tokio::test]
async fn repeated_lock_stops_notification() {
    let host = Host::start().await;
    let live = Live::start(host.rpcbind, None, 1).await;
    assert_eq!(live.lock(A, true).await, GRANTED);
    assert_eq!(live.lock(B, true).await, BLOCKED);
    host.answers.store(99, Ordering::Relaxed);
    live.unlock(A).await;
    host.wait_for(NLM, p::GRANTED, 1).await;
    assert_eq!(live.lock(B, true).await, GRANTED);
    live.nobody_waits().await;
    assert_eq!(live.lock(A, false).await, DENIED);
}

#[tokio::test]
async fn asynchronous_calls_are_answered_by_calls() {
    let host = Host::start().await;
    let live = Live::start(host.rpcbind, None, 1).await;
    let at = (0, 10);
    for (number, result, args) in [
        (p::LOCK_MSG, p::LOCK_RES, lock_args(A, &live.fh, at, true, (false, false))),
        (p::TEST_MSG, p::TEST_RES, test_args(A, &live.fh, at, true)),
        (p::UNLOCK_MSG, p::UNLOCK_RES, unlock_args(A, &live.fh, at)),
        (p::CANCEL_MSG, p::CANCEL_RES, cancel_args(A, &live.fh, at, true)),
    ] {
        assert!(live.nlm(number, args).await.0.is_empty(), "nothing in the reply");
        let answer = host.wait_for(NLM, result, 1).await;
        assert_eq!(answer, [0, 0, 0, 4, b'c', b'o', b'o', b'k', 0, 0, 0, 0]);
    }
    let args = test_args(A, &live.fh, at, true);
    assert!(live.nlm(p::GRANTED_MSG, args).await.0.is_empty());
    let answer = host.wait_for(NLM, p::GRANTED_RES, 1).await;
    assert_eq!(answer[8..], DENIED.to_be_bytes());
    // The result of a call that this server never made.
    let mut w = Writer::new();
    w.opaque(b"cook");
    w.u32(0);
    assert!(live.nlm(p::GRANTED_RES, w.into_reply().head).await.0.is_empty());
}

#[tokio::test]
async fn restart_notifies_hosts_that_reclaim() {
    let host = Host::start().await;
    let folder = tempfile::tempdir().unwrap();
    let open = || Some(Store::open(folder.path()).unwrap());
    let live = Live::start(host.rpcbind, open(), 1).await;
    assert_eq!(live.lock(A, false).await, GRANTED);
    let unmonitored = lock_args(B, &live.fh, (50, 1), true, (false, false));
    assert_eq!(stat(&live.nlm(p::NM_LOCK, unmonitored).await), GRANTED);
    let before = live.server.nlm().state_number();
    drop(live);

    let live = Live::start(host.rpcbind, open(), 2).await;
    let telling = tokio::spawn(live.server.nlm().clone().notify_all());
    let told = host.wait_for(NSM, sm::NOTIFY, 1).await;
    let told = Buf::from(told);
    let mut r = Reader::new(&told, &[]);
    assert_eq!(r.opaque(64), Ok(&b"127.0.0.1"[..]), "the address by which the host knows us");
    let number = r.i32().unwrap();
    assert!(number != before && number == live.server.nlm().state_number());
    let test = test_args(B, &live.fh, (0, 1), false);
    assert_eq!(stat(&live.nlm(p::TEST, test).await), GRACE);
    assert_eq!(live.lock(B, true).await, GRACE);
    assert_eq!(live.reclaim(B).await, DENIED, "it held nothing that was recorded");
    assert_eq!(live.reclaim(A).await, GRANTED);
    assert!(live.server.v4().clients.in_grace(), "one time for all protocols");
    live.advance(90_001);
    assert_eq!(live.reclaim(A).await, DENIED, "too late");
    assert_eq!(live.lock(B, false).await, DENIED);
    live.unlock(A).await;
    assert_eq!(live.lock(B, false).await, GRANTED);
    tokio::time::timeout(Duration::from_secs(60), telling).await.unwrap().unwrap();
    assert_eq!(host.called(NSM, sm::NOTIFY).len(), 1);
    drop(live);

    // Both hosts held locks in the second run; in the third neither returns, and both are struck.
    let live = Live::start(host.rpcbind, open(), 3).await;
    let telling = tokio::spawn(live.server.nlm().clone().notify_all());
    host.wait_for(NSM, sm::NOTIFY, 3).await;
    live.advance(90_001);
    tokio::time::timeout(Duration::from_secs(60), telling).await.unwrap().unwrap();
    drop(live);
    let live = Live::start(host.rpcbind, open(), 4).await;
    assert!(!live.server.v4().clients.in_grace(), "nobody is left to wait for");
}

#[tokio::test]
async fn idle_hosts_are_forgotten() {
    let host = Host::start().await;
    let folder = tempfile::tempdir().unwrap();
    let live = Live::start(host.rpcbind, Some(Store::open(folder.path()).unwrap()), 1).await;
    assert_eq!(live.lock(A, false).await, GRANTED);
    assert_eq!(live.lock(B, true).await, BLOCKED);
    live.advance(301_000);
    live.server.nlm().tick().await;
    assert_eq!(live.server.nlm().hosts(), 2, "one holds, one waits");
    let cancel = cancel_args(B, &live.fh, (0, 10), true);
    live.nlm(p::CANCEL, cancel).await;
    live.unlock(A).await;
    live.server.nlm().tick().await;
    assert_eq!(live.server.nlm().hosts(), 0);
    drop(live);
    let live = Live::start(host.rpcbind, Some(Store::open(folder.path()).unwrap()), 2).await;
    assert!(!live.server.v4().clients.in_grace());
}

#[tokio::test]
async fn datagrams_serve_all_but_nfs() {
    let live = Live::start(0, None, 1).await;
    let ask = |peer: &str, program, version| {
        let peer: SocketAddr = peer.parse().unwrap();
        let local = SocketAddr::new(IpAddr::from([127, 0, 0, 1]), 2049);
        let pool = iobuf::Pool::new(iobuf::PoolLimits { buffers_max: [4, 4, 4] });
        let info = Info::new(peer, local, Transport::Tcp, pool);
        let body = Buf::from(message(program, version, 0, 0, &[]));
        let server = live.server.clone();
        async move {
            let reply = server.datagram(Arc::new(info), body, ServedPrograms::Datagrams).await?;
            Some(common::words(&flat(reply)[8..]))
        }
    };
    for (program, version) in [(NLM, 4), (NSM, 1), (100_005, 3), (PORTMAP, 2)] {
        assert_eq!(ask("127.0.0.1:700", program, version).await, Some(vec![0, 0, 0, 0]));
    }
    assert_eq!(ask("127.0.0.1:700", 100_003, 3).await, Some(vec![0, 0, 0, 1]), "PROG_UNAVAIL");
    assert_eq!(ask("198.51.100.1:700", NLM, 4).await, None);
}

#[test]
fn removed_share_releases_locks() {
    let bed = Bed::new();
    let server = &bed.client.server;
    assert_eq!(bed.lock(A, (0, 10), true), GRANTED);
    assert_eq!(bed.lock(Who { svid: 2, ..A }, (20, 1), true), GRANTED);
    let args = share_args(B, &bed.fh, 0, 1);
    assert_eq!(stat(&bed.nlm(p::SHARE, &args)), GRANTED);
    let namespace = &server.core().namespace;
    let share = namespace.shares()[0].clone();
    namespace.set_shares([].into());
    assert_eq!(server.nlm().leave_share(&*share.backend.root()), 3);
    assert_eq!(bed.table().nodes(), 0, "nothing is left");
    const STALE: u32 = Stat::StaleFh as u32;
    assert_eq!(bed.lock(A, (0, 10), true), STALE);
    assert_eq!(bed.unlock(A, (0, 10)), GRANTED, "what is not held can be given back");
    // The share is served again and has no locks.
    namespace.set_shares([share].into());
    assert_eq!(bed.lock(B, (0, 0), true), GRANTED);
}
