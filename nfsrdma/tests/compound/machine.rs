//! State that is bound to a machine's credential: SP4_MACH_CRED (RFC 8881 sections 2.10.8.3, 18.35.3).

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nfs_proto::rpcsec_gss::GssService;
use nfsrdma::context::Conn;
use nfsrdma::v4::Options;
use nfsrdma::v4::attrs::Bitmap;
use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::{Stateid, op};
use rdma_transport::channel::Handle;
use rdma_transport::xdr::Writer;
use recovery::Store;
use vfs::ANONYMOUS;
use vfs::Cred;
use vfs::namespace::Flavor as OfShare;

use crate::client::{
    BACK_CHAN, Client, FORE, Opened, R, close, conn_of, create, open_head, read, read_open,
    unchecked,
};
use crate::harness::{Args, Caller, Harness, Results};

const LEASE_MS: u64 = 10_000;
const UPDATE: u32 = 0x4000_0000;
const MACHINE: u128 = 0xa;
const OTHER: u128 = 0xb;
/// The operations that Linux 6.12 requests.
const ENFORCE: [u32; 5] = [
    op::BIND_CONN_TO_SESSION,
    op::EXCHANGE_ID,
    op::CREATE_SESSION,
    op::DESTROY_SESSION,
    op::DESTROY_CLIENTID,
];
const ALLOW: [u32; 11] = [
    op::CLOSE,
    op::OPEN_DOWNGRADE,
    op::LOCKU,
    op::DELEGRETURN,
    op::COMMIT,
    op::SECINFO,
    op::SECINFO_NO_NAME,
    op::LAYOUTRETURN,
    op::TEST_STATEID,
    op::FREE_STATEID,
    op::WRITE,
];
/// CDFC4_FORE, and CDFC4_BACK_OR_BOTH.
const DIRECTIONS_FORE: u32 = 1;
const DIRECTIONS_BOTH: u32 = 7;

/// A machine credential, which is the anonymous user for files.
fn by(principal: u128, service: GssService) -> Caller {
    let cred =
        Cred { uid: ANONYMOUS, gid: ANONYMOUS, groups: Arc::new([]), token: vfs::Token::NONE };
    Caller::krb5(principal, service, cred)
}

fn machine() -> Caller {
    by(MACHINE, GssService::Integrity)
}

/// Callers other than the machine, and the machine with weaker protection.
fn others() -> [Caller; 3] {
    [by(OTHER, GssService::Privacy), by(MACHINE, GssService::None), Caller::sys(&Cred::root())]
}

fn exchange(
    verifier: u64,
    flags: u32,
    how: u32,
    (enforce, allow): (&[u32], &[u32]),
) -> impl FnOnce(&mut Writer) {
    move |w| {
        w.u64(verifier);
        w.opaque(b"x");
        w.u32(flags);
        w.u32(how);
        if how == 1 {
            w.value(&Bitmap::of(enforce));
            w.value(&Bitmap::of(allow));
        }
        w.count(0);
    }
}

/// EXCHANGE_ID as Linux sends it.
fn as_linux(verifier: u64, flags: u32) -> impl FnOnce(&mut Writer) {
    exchange(verifier, flags, 1, (&ENFORCE, &ALLOW))
}

/// The results of EXCHANGE_ID.
#[derive(Debug, PartialEq, Eq)]
struct Introduced {
    id: u64,
    sequence: u32,
    enforce: Vec<u32>,
    allow: Vec<u32>,
}

async fn introduce(
    harness: &Harness,
    caller: &Caller,
    args: impl FnOnce(&mut Writer),
) -> Result<Introduced, Status> {
    let mut r = harness.run_by(&harness.conn, caller, 1, |c| c.op(op::EXCHANGE_ID, args)).await;
    r.expect(op::EXCHANGE_ID, r.status);
    if r.status != Status::Ok {
        return Err(r.status);
    }
    let (id, sequence, _flags) = (r.u64(), r.u32(), r.u32());
    let (enforce, allow) = match r.u32() {
        0 => (Vec::new(), Vec::new()),
        1 => (r.bitmap(), r.bitmap()),
        how => panic!("protected by {how}"),
    };
    Ok(Introduced { id, sequence, enforce, allow })
}

/// A session of the client with this number and sequence.
struct Session<'k> {
    harness: &'k Harness,
    id: Vec<u8>,
    conn: Arc<Conn>,
    sequence: Cell<u32>,
}

impl<'k> Session<'k> {
    async fn make(
        harness: &'k Harness,
        caller: &Caller,
        (id, sequence): (u64, u32),
    ) -> Result<Session<'k>, Status> {
        let conn = conn_of(Handle::detached());
        let args = create(id, sequence, BACK_CHAN, FORE);
        let mut r = harness.run_by(&conn, caller, 1, |c| c.op(op::CREATE_SESSION, args)).await;
        r.expect(op::CREATE_SESSION, r.status);
        if r.status != Status::Ok {
            return Err(r.status);
        }
        Ok(Session { harness, id: r.fixed(16), conn, sequence: 0.into() })
    }

    /// Creates a session as Linux does.
    async fn bound(harness: &'k Harness) -> Session<'k> {
        let client = introduce(harness, &machine(), as_linux(1, 0)).await.unwrap();
        let session = Self::make(harness, &machine(), (client.id, client.sequence)).await.unwrap();
        let complete = |a: Args| a.op(op::RECLAIM_COMPLETE, |w| w.bool(false));
        assert_eq!(session.run(&machine(), complete).await.status, Status::Ok);
        session
    }

    async fn send(
        &self,
        conn: &Arc<Conn>,
        caller: &Caller,
        sequence: u32,
        build: impl FnOnce(Args) -> Args,
    ) -> Results {
        let head = |w: &mut Writer| {
            w.fixed(&self.id);
            w.u32(sequence);
            w.u32(0);
            w.u32(0);
            w.bool(true);
        };
        self.harness.run_by(conn, caller, 1, |c| build(c.op(op::SEQUENCE, head))).await
    }

    /// Sends the next request on the session's connection; the result of SEQUENCE is decoded.
    async fn run(&self, caller: &Caller, build: impl FnOnce(Args) -> Args) -> Results {
        self.sequence.set(self.sequence.get() + 1);
        let mut r = self.send(&self.conn, caller, self.sequence.get(), build).await;
        r.expect(op::SEQUENCE, Status::Ok).fixed(16 + 5 * 4);
        r
    }

    async fn alone(&self, caller: &Caller, opcode: u32, args: impl FnOnce(&mut Writer)) -> Status {
        self.harness.run_by(&self.conn, caller, 1, |c| c.op(opcode, args)).await.status
    }

    async fn bind(&self, conn: &Arc<Conn>, caller: &Caller, direction: u32) -> Status {
        let args = |w: &mut Writer| {
            w.fixed(&self.id);
            w.u32(direction);
            w.bool(false);
        };
        self.harness.run_by(conn, caller, 1, |c| c.op(op::BIND_CONN_TO_SESSION, args)).await.status
    }

    /// The client's number, with which session ids begin.
    fn client(&self) -> u64 {
        u64::from_be_bytes(self.id[..8].try_into().unwrap())
    }

    async fn destroy(&self, caller: &Caller) -> Status {
        self.alone(caller, op::DESTROY_SESSION, |w| w.fixed(&self.id)).await
    }

    /// Opens a file of the share `data` as this user.
    async fn open(&self, user: &Caller, name: &[u8]) -> Opened {
        let args = unchecked(0, b"o", name, R, &[]);
        let mut r = self.run(user, |a| a.data().op(op::OPEN, args).getfh()).await;
        r.ok(&[op::PUTROOTFH, op::LOOKUP]);
        let mut opened = read_open(&mut r);
        opened.fh = r.expect(op::GETFH, Status::Ok).opaque();
        opened
    }
}

#[tokio::test]
async fn protected_machine_gets_state_protection() {
    let harness = Harness::new();
    let known = introduce(&harness, &machine(), as_linux(1, 0)).await.unwrap();
    assert_eq!((known.enforce.clone(), known.sequence), (sorted(&ENFORCE), 1));
    let allowed = [
        op::CLOSE,
        op::DELEGRETURN,
        op::LOCKU,
        op::OPEN_DOWNGRADE,
        op::TEST_STATEID,
        op::FREE_STATEID,
    ];
    assert_eq!(known.allow, sorted(&allowed));
    Session::make(&harness, &machine(), (known.id, known.sequence)).await.unwrap();
    // For a known client the answer is the first agreement, whatever it requests later.
    let none = exchange(1, 0, 0, (&[], &[]));
    let again = introduce(&harness, &machine(), none).await.unwrap();
    assert_eq!((again.id, again.enforce, again.allow), (known.id, known.enforce, known.allow));
}

fn sorted(opcodes: &[u32]) -> Vec<u32> {
    let mut sorted = opcodes.to_vec();
    sorted.sort_unstable();
    sorted
}

#[tokio::test]
async fn unprotected_call_binds_no_state() {
    let harness = Harness::new();
    for caller in [by(MACHINE, GssService::None), Caller::sys(&Cred::root())] {
        let refused = introduce(&harness, &caller, as_linux(1, 0)).await;
        assert_eq!(refused, Err(Status::Inval), "{caller:?}");
    }
    let none = exchange(1, 0, 0, (&[], &[]));
    let unbound = introduce(&harness, &machine(), none).await.unwrap();
    assert_eq!((unbound.enforce, unbound.allow), (vec![], vec![]));
}

#[tokio::test]
async fn only_machine_manages_bound_client() {
    let harness = Harness::new();
    let new = introduce(&harness, &machine(), as_linux(1, 0)).await.unwrap();
    for caller in &others() {
        let stolen = Session::make(&harness, caller, (new.id, new.sequence)).await.err();
        assert_eq!(stolen, Some(Status::WrongCred), "before it is confirmed: {caller:?}");
    }
    let session = Session::make(&harness, &machine(), (new.id, new.sequence)).await.unwrap();
    let id = |w: &mut Writer| w.u64(new.id);
    for caller in &others() {
        let stolen = Session::make(&harness, caller, (new.id, new.sequence + 1)).await.err();
        assert_eq!(stolen, Some(Status::WrongCred), "{caller:?}");
        let conn = conn_of(Handle::detached());
        assert_eq!(session.bind(&conn, caller, DIRECTIONS_BOTH).await, Status::WrongCred);
        assert_eq!(session.destroy(caller).await, Status::WrongCred, "{caller:?}");
        assert_eq!(session.alone(caller, op::DESTROY_CLIENTID, id).await, Status::WrongCred);
        let renewed = introduce(&harness, caller, as_linux(1, UPDATE)).await;
        // The protection of the call is checked before its arguments.
        let is_protected = caller.principal == OTHER;
        let refused = if is_protected { Status::WrongCred } else { Status::Inval };
        assert_eq!(renewed, Err(refused), "{caller:?}");
        let plain = exchange(1, UPDATE, 0, (&[], &[]));
        assert_eq!(introduce(&harness, caller, plain).await, Err(Status::WrongCred), "{caller:?}");
        for verifier in [1, 2] {
            let plain = exchange(verifier, 0, 0, (&[], &[]));
            assert_eq!(
                introduce(&harness, caller, plain).await,
                Err(Status::ClidInUse),
                "{caller:?}"
            );
        }
    }
    assert_eq!(session.run(&machine(), |a| a.root()).await.status, Status::Ok, "nothing was lost");
    let private = by(MACHINE, GssService::Privacy);
    assert_eq!(introduce(&harness, &private, as_linux(1, UPDATE)).await.unwrap().id, new.id);
    assert_eq!(session.destroy(&private).await, Status::Ok);
    // The client has no state now, but keeps its name as long as its lease lasts.
    let plain = || exchange(2, 0, 0, (&[], &[]));
    for caller in &others() {
        assert_eq!(
            introduce(&harness, caller, plain()).await,
            Err(Status::ClidInUse),
            "{caller:?}"
        );
    }
    harness.at_ms(90_001);
    assert!(introduce(&harness, &others()[0], plain()).await.is_ok());
}

#[tokio::test]
async fn requested_operations_are_enforced() {
    let harness = Harness::new();
    let asked = [op::BACKCHANNEL_CTL, op::DELEGPURGE];
    let new = introduce(&harness, &machine(), exchange(1, 0, 1, (&asked, &[]))).await.unwrap();
    assert_eq!(new.enforce, sorted(&[&asked[..], &ENFORCE].concat()));
    let session = Session::make(&harness, &machine(), (new.id, new.sequence)).await.unwrap();
    let control = |w: &mut Writer| {
        w.u32(1);
        w.u32(1);
        w.u32(0);
    };
    for caller in &others() {
        let mut r = session.run(caller, |a| a.op(op::BACKCHANNEL_CTL, control)).await;
        r.expect(op::BACKCHANNEL_CTL, Status::WrongCred);
    }
    session
        .run(&machine(), |a| a.op(op::BACKCHANNEL_CTL, control))
        .await
        .ok(&[op::BACKCHANNEL_CTL]);
    // Linux does not request this operation.
    let harness = Harness::new();
    let session = Session::bound(&harness).await;
    let user = by(OTHER, GssService::None);
    session.run(&user, |a| a.op(op::BACKCHANNEL_CTL, control)).await.ok(&[op::BACKCHANNEL_CTL]);
}

#[tokio::test]
async fn calls_need_bound_connection() {
    let harness = Harness::new();
    let session = Session::bound(&harness).await;
    let user = by(OTHER, GssService::None);
    let last = session.run(&user, |a| a.root().getfh()).await;
    assert_eq!(last.status, Status::Ok);
    let (number, other) = (session.sequence.get(), conn_of(Handle::detached()));
    let next = number + 1;
    let refused = session.send(&other, &user, next, |a| a.root()).await;
    assert_eq!(refused.status, Status::ConnNotBoundToSession);
    let kept = session.send(&other, &user, number, |a| a.root().getfh()).await;
    assert_eq!(kept.body, last.body, "what was done is told");
    assert_eq!(session.bind(&other, &machine(), DIRECTIONS_FORE).await, Status::Ok);
    let taken = session.send(&other, &user, next, |a| a.root()).await;
    assert_eq!(taken.status, Status::Ok, "under the number that was refused");
    harness.nfs.connection_closed(&other);
    let refused = session.send(&other, &user, next + 1, |a| a.root()).await;
    assert_eq!(refused.status, Status::ConnNotBoundToSession, "its binding ended with it");
    assert_eq!(session.bind(&other, &machine(), DIRECTIONS_BOTH).await, Status::Ok);
    assert_eq!(session.send(&other, &user, next + 1, |a| a.root()).await.status, Status::Ok);
}

#[tokio::test]
async fn oldest_bound_connection_is_dropped() {
    let harness = Harness::new();
    let session = Session::bound(&harness).await;
    let conns: Vec<_> = (0..64).map(|_| conn_of(Handle::detached())).collect();
    for conn in &conns {
        assert_eq!(session.bind(conn, &machine(), DIRECTIONS_FORE).await, Status::Ok);
    }
    let next = session.sequence.get() + 1;
    let first = session.send(&session.conn, &machine(), next, |a| a.root()).await;
    assert_eq!(first.status, Status::ConnNotBoundToSession);
    let second = session.send(&conns[0], &machine(), next, |a| a.root()).await;
    assert_eq!(second.status, Status::Ok);
}

/// Linux sends CLOSE, DELEGRETURN and the like with its machine's credential (krb5i) whenever allowed, whatever the mount's flavor.
#[tokio::test]
async fn machine_releases_state_of_users() {
    let harness = Harness::new();
    harness.reload("data", |share| share.rules.sec = [OfShare::Krb5p].into_iter().collect());
    let session = Session::bound(&harness).await;
    let user = Caller::krb5(OTHER, GssService::Privacy, Cred::root());
    let opened = session.open(&user, b"f").await;
    let given = |a: Args| a.putfh(&opened.fh).op(op::CLOSE, close(0, opened.stateid));
    let with_attributes =
        |a: Args| a.putfh(&opened.fh).getattr(&[4]).op(op::CLOSE, close(0, opened.stateid));

    // Other users of the machine, and the machine with weaker protection, get WRONGSEC.
    for caller in [by(7, GssService::Integrity), by(MACHINE, GssService::None)] {
        assert_eq!(session.run(&caller, given).await.status, Status::WrongSec, "{caller:?}");
        assert_eq!(session.run(&caller, with_attributes).await.status, Status::WrongSec);
    }
    // The machine gets no other access.
    let looked = |a: Args| a.putfh(&opened.fh).op(op::READ, read(opened.stateid));
    assert_eq!(session.run(&machine(), looked).await.status, Status::WrongSec);
    let asked = |a: Args| a.putfh(&opened.fh).getattr(&[4]);
    assert_eq!(session.run(&machine(), asked).await.status, Status::WrongSec);
    assert_eq!(session.run(&machine(), |a| a.data()).await.status, Status::WrongSec);
    let mut r = session.run(&machine(), with_attributes).await;
    r.ok(&[op::PUTFH]).expect(op::GETATTR, Status::Access);

    let unknown = Stateid { seqid: 1, other: [7; 12] };
    let returned = |a: Args| a.putfh(&opened.fh).op(op::DELEGRETURN, |w| w.value(&unknown));
    assert_eq!(session.run(&machine(), returned).await.status, Status::BadStateId);
    let mut r = session.run(&machine(), given).await;
    r.ok(&[op::PUTFH]).expect(op::CLOSE, Status::Ok);
    assert_eq!(session.run(&user, given).await.status, Status::BadStateId, "it is closed");
}

/// If the share requires less protection than the machine uses, Linux closes with a single call.
#[tokio::test]
async fn protected_machine_gets_attributes_on_close() {
    let harness = Harness::new();
    for (sec, user) in [
        (OfShare::Sys, Caller::sys(&Cred::root())),
        (OfShare::Krb5, Caller::krb5(OTHER, GssService::None, Cred::root())),
    ] {
        harness.reload("data", |share| share.rules.sec = [sec].into_iter().collect());
        let session = Session::bound(&harness).await;
        let opened = session.open(&user, b"f").await;
        let given =
            |a: Args| a.putfh(&opened.fh).getattr(&[4]).op(op::CLOSE, close(0, opened.stateid));
        let mut r = session.run(&machine(), given).await;
        r.ok(&[op::PUTFH]).expect(op::GETATTR, Status::Ok);
        assert_eq!((r.bitmap(), r.opaque()), (vec![4], vec![0; 8]), "the size");
        r.expect(op::CLOSE, Status::Ok);
        // Other operations are refused.
        let asked = |a: Args| a.putfh(&opened.fh).getattr(&[4]);
        assert_eq!(session.run(&machine(), asked).await.status, Status::WrongSec, "{sec:?}");
        assert_eq!(session.destroy(&machine()).await, Status::Ok);
        let gone = |w: &mut Writer| w.u64(session.client());
        assert_eq!(session.alone(&machine(), op::DESTROY_CLIENTID, gone).await, Status::Ok);
    }
}

/// A client without state protection has no such right.
#[tokio::test]
async fn unbound_machine_needs_share_flavor() {
    let harness = Harness::new();
    harness.reload("data", |share| share.rules.sec = [OfShare::Krb5p].into_iter().collect());
    let new = introduce(&harness, &machine(), exchange(1, 0, 0, (&[], &[]))).await.unwrap();
    let session = Session::make(&harness, &machine(), (new.id, new.sequence)).await.unwrap();
    session.run(&machine(), |a| a.op(op::RECLAIM_COMPLETE, |w| w.bool(false))).await;
    let user = Caller::krb5(OTHER, GssService::Privacy, Cred::root());
    let opened = session.open(&user, b"f").await;
    let given = |a: Args| a.putfh(&opened.fh).op(op::CLOSE, close(0, opened.stateid));
    assert_eq!(session.run(&machine(), given).await.status, Status::WrongSec);
    let other = conn_of(Handle::detached());
    let next = session.sequence.get() + 1;
    assert_eq!(session.send(&other, &user, next, |a| a.root()).await.status, Status::Ok);
}

fn kept_in(state: &Path) -> Options {
    let store = Some(Store::open(state).unwrap());
    let time = Duration::from_millis(LEASE_MS);
    Options { lease: time, grace: time, store, ..Options::default() }
}

/// Restarts a server while a machine has a file open; returns the handle of the file.
async fn restarted_while_open(state: &Path, user: &Caller) -> (Harness, Vec<u8>) {
    let harness = Harness::with(kept_in(state));
    let fh = {
        let session = Session::bound(&harness).await;
        session.open(user, b"f").await.fh
    };
    (harness.restart(|| kept_in(state)), fh)
}

/// Reclaims an open of this file by its handle.
async fn reclaim(session: &Session<'_>, user: &Caller, fh: &[u8]) -> Status {
    let args = |w: &mut Writer| {
        open_head(w, 0, 0, b"o", R);
        w.u32(0);
        w.u32(1);
        w.u32(0);
    };
    session.run(user, |a| a.putfh(fh).op(op::OPEN, args)).await.status
}

#[tokio::test]
async fn only_machine_reclaims_after_restart() {
    let state = tempfile::tempdir().unwrap();
    let user = Caller::sys(&Cred::root());
    let (harness, fh) = restarted_while_open(state.path(), &user).await;
    assert!(harness.nfs.clients.in_grace());
    for other in others() {
        let none = exchange(7, 0, 0, (&[], &[]));
        assert_eq!(
            introduce(&harness, &other, none).await.unwrap_err(),
            Status::Delay,
            "{other:?}"
        );
    }
    let known = introduce(&harness, &machine(), as_linux(2, 0)).await.unwrap();
    let session = Session::make(&harness, &machine(), (known.id, known.sequence)).await.unwrap();
    assert_eq!(reclaim(&session, &user, &fh).await, Status::Ok);
    let complete = |a: Args| a.op(op::RECLAIM_COMPLETE, |w| w.bool(false));
    assert_eq!(session.run(&machine(), complete).await.status, Status::Ok);
    assert!(!harness.nfs.clients.in_grace());
    // From now on the name is in use.
    let none = exchange(7, 0, 0, (&[], &[]));
    assert_eq!(introduce(&harness, &others()[0], none).await.unwrap_err(), Status::ClidInUse);
}

#[tokio::test]
async fn absent_machine_frees_its_name() {
    let state = tempfile::tempdir().unwrap();
    let user = Caller::sys(&Cred::root());
    let (harness, fh) = restarted_while_open(state.path(), &user).await;
    harness.at_ms(LEASE_MS + 1);
    harness.nfs.clients.tick().await;
    assert!(!harness.nfs.clients.in_grace());
    let [other, ..] = others();
    let known = introduce(&harness, &other, as_linux(7, 0)).await.unwrap();
    let session = Session::make(&harness, &other, (known.id, known.sequence)).await.unwrap();
    assert_eq!(reclaim(&session, &user, &fh).await, Status::NoGrace);
}

#[tokio::test]
async fn record_without_principal_fits_any_client() {
    let state = tempfile::tempdir().unwrap();
    let harness = Harness::with(kept_in(state.path()));
    let user = Caller::sys(&Cred::root());
    let fh = {
        let c = Client::new(&harness, b"x").await;
        c.open(b"o", b"f", R).await.unwrap().fh
    };
    let harness = harness.restart(|| kept_in(state.path()));
    let known = introduce(&harness, &machine(), as_linux(2, 0)).await.unwrap();
    let session = Session::make(&harness, &machine(), (known.id, known.sequence)).await.unwrap();
    assert_eq!(reclaim(&session, &user, &fh).await, Status::Ok);
    // The name belongs to the machine by now.
    let complete = |a: Args| a.op(op::RECLAIM_COMPLETE, |w| w.bool(false));
    assert_eq!(session.run(&machine(), complete).await.status, Status::Ok);
    drop(session);
    let harness = harness.restart(|| kept_in(state.path()));
    let none = exchange(7, 0, 0, (&[], &[]));
    assert_eq!(introduce(&harness, &user, none).await.unwrap_err(), Status::Delay);
}

/// RFC 8881 section 18.37.3.
#[tokio::test]
async fn sessions_end_over_bound_connections() {
    let harness = Harness::new();
    let known = introduce(&harness, &machine(), as_linux(1, 0)).await.unwrap();
    let session = Session::make(&harness, &machine(), (known.id, known.sequence)).await.unwrap();
    let other = conn_of(Handle::detached());
    let destroy = |conn: Arc<Conn>| {
        let (harness, id) = (&harness, &session.id);
        async move {
            let args = |w: &mut Writer| w.fixed(id);
            let caller = machine();
            harness.run_by(&conn, &caller, 1, |c| c.op(op::DESTROY_SESSION, args)).await.status
        }
    };
    assert_eq!(destroy(other.clone()).await, Status::ConnNotBoundToSession);
    assert_eq!(session.bind(&other, &machine(), 1).await, Status::Ok);
    assert_eq!(destroy(other).await, Status::Ok);
    assert_eq!(destroy(session.conn.clone()).await, Status::BadSession);
}
