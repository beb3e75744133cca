//! Clients, owners and their sequences in minor version 0 (RFC 7530 sections 9.1.7, 16.16 to 16.19, 16.33, 16.34, 16.37).

use nfs_proto::rpcsec_gss::GssService;
use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::{Stateid, op};
use rdma_transport::xdr::Writer;
use vfs::Cred;
use vfs::namespace::{Flavor, ShareAccess, Squash};

use crate::client::{
    Opened, RW, close, first_lock, open_head, read, read_open, read_stateid, write,
};
use crate::harness::{Caller, Harness, Results, fattr};

fn introduction(name: &[u8], verifier: u64) -> impl FnOnce(&mut Writer) {
    move |w| {
        w.u64(verifier);
        w.opaque(name);
        w.u32(0x4000_0000);
        w.opaque(b"tcp");
        w.opaque(b"10.0.0.9.3.1");
        w.u32(1);
    }
}

pub type Known = (u64, [u8; 8]);

pub async fn introduce(
    harness: &Harness,
    uid: u32,
    name: &[u8],
    verifier: u64,
) -> Result<Known, Status> {
    let cred = Cred { uid, ..Cred::root() };
    let args = introduction(name, verifier);
    let mut r = harness.run_on(&harness.conn, &cred, 0, |c| c.op(op::SETCLIENTID, args)).await;
    let status = r.status;
    r.expect(op::SETCLIENTID, status);
    match status {
        Status::Ok => Ok((r.u64(), r.fixed(8).try_into().unwrap())),
        _ => Err(status),
    }
}

async fn confirm(harness: &Harness, uid: u32, (id, verifier): Known) -> Status {
    let cred = Cred { uid, ..Cred::root() };
    let args = |w: &mut Writer| {
        w.u64(id);
        w.fixed(&verifier);
    };
    harness.run_on(&harness.conn, &cred, 0, |c| c.op(op::SETCLIENTID_CONFIRM, args)).await.status
}

pub async fn client(harness: &Harness, name: &[u8]) -> u64 {
    let known = introduce(harness, 0, name, 1).await.unwrap();
    assert_eq!(confirm(harness, 0, known).await, Status::Ok);
    known.0
}

fn open_args(
    seqid: u32,
    id: u64,
    owner: &[u8],
    name: &[u8],
    share: (u32, u32),
) -> impl FnOnce(&mut Writer) {
    move |w| {
        open_head(w, seqid, id, owner, share);
        w.u32(1);
        w.u32(0);
        fattr(w, &[33], |v| v.u32(0o644));
        w.u32(0);
        w.opaque(name);
    }
}

pub async fn open(
    harness: &Harness,
    seqid: u32,
    id: u64,
    owner: &[u8],
    name: &[u8],
) -> (Status, Results) {
    let args = open_args(seqid, id, owner, name, RW);
    let mut r = harness.run(|c| c.data().op(op::OPEN, args).getfh()).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]);
    (r.status, r)
}

async fn opened(harness: &Harness, seqid: u32, id: u64, owner: &[u8], name: &[u8]) -> Opened {
    let (_, mut r) = open(harness, seqid, id, owner, name).await;
    let mut o = read_open(&mut r);
    o.fh = r.expect(op::GETFH, Status::Ok).opaque();
    o
}

fn confirm_args(stateid: Stateid, seqid: u32) -> impl FnOnce(&mut Writer) {
    move |w| {
        w.value(&stateid);
        w.u32(seqid);
    }
}

/// Runs an operation on the file.
pub async fn on(
    harness: &Harness,
    fh: &[u8],
    opcode: u32,
    args: impl FnOnce(&mut Writer),
) -> (Status, Results) {
    let mut r = harness.run(|c| c.putfh(fh).op(opcode, args)).await;
    r.ok(&[op::PUTFH]);
    let status = r.status;
    r.expect(opcode, status);
    (status, r)
}

/// Callbacks of this version use the flavor of SETCLIENTID (RFC 7530 section 3.3.3), so an RPCSEC_GSS client would need a ticket
/// from this server: no client of this version gets a delegation.
#[tokio::test]
async fn minor_version_0_gets_no_delegation() {
    let harness = Harness::new();
    harness.reload("data", |share| share.rules.sec = Flavor::ALL.into_iter().collect());
    for (name, service) in [(b"a", GssService::None), (b"b", GssService::Privacy)] {
        let caller = Caller::krb5(7, service, Cred::root());
        let args = introduction(name, 1);
        let mut r =
            harness.run_by(&harness.conn, &caller, 0, |c| c.op(op::SETCLIENTID, args)).await;
        r.expect(op::SETCLIENTID, Status::Ok);
        let (id, verifier) = (r.u64(), r.fixed(8));
        let args = |w: &mut Writer| {
            w.u64(id);
            w.fixed(&verifier);
        };
        let r = harness
            .run_by(&harness.conn, &caller, 0, |c| c.op(op::SETCLIENTID_CONFIRM, args))
            .await;
        assert_eq!(r.status, Status::Ok);
        let args = open_args(1, id, b"o", name, RW);
        let mut r =
            harness.run_by(&harness.conn, &caller, 0, |c| c.data().op(op::OPEN, args)).await;
        r.ok(&[op::PUTROOTFH, op::LOOKUP]);
        assert_eq!(read_open(&mut r).delegation, (0, None), "{service:?}");
    }
}

/// Opens a file for a confirmed owner, whose next sequence number is 3.
pub async fn confirmed(harness: &Harness, id: u64, owner: &[u8], name: &[u8]) -> Opened {
    let mut o = opened(harness, 1, id, owner, name).await;
    let (status, mut r) = on(harness, &o.fh, op::OPEN_CONFIRM, confirm_args(o.stateid, 2)).await;
    assert_eq!(status, Status::Ok);
    o.stateid = read_stateid(&mut r);
    o
}

#[tokio::test]
async fn every_case_of_setclientid() {
    let harness = Harness::new();
    let a = introduce(&harness, 0, b"x", 1).await.unwrap();
    let b = introduce(&harness, 0, b"x", 1).await.unwrap();
    assert_ne!(a, b);
    assert_eq!(
        confirm(&harness, 0, a).await,
        Status::StaleClientId,
        "replaced before it was confirmed"
    );
    assert_eq!(confirm(&harness, 0, (b.0, [9; 8])).await, Status::StaleClientId);
    assert_eq!(confirm(&harness, 5, b).await, Status::ClidInUse);
    assert_eq!(confirm(&harness, 0, b).await, Status::Ok);
    assert_eq!(confirm(&harness, 0, b).await, Status::Ok, "a repetition");
    let again = introduce(&harness, 0, b"x", 1).await.unwrap();
    assert_eq!(again.0, b.0, "the same client, another callback");
    let o = confirmed(&harness, b.0, b"o", b"f").await;
    assert_eq!(confirm(&harness, 0, again).await, Status::Ok);
    assert_eq!(
        on(&harness, &o.fh, op::READ, read(o.stateid)).await.0,
        Status::Ok,
        "nothing was lost"
    );
    assert_eq!(introduce(&harness, 5, b"x", 1).await, Err(Status::ClidInUse));
    let reborn = introduce(&harness, 0, b"x", 2).await.unwrap();
    assert_ne!(reborn.0, b.0);
    assert_eq!(on(&harness, &o.fh, op::READ, read(o.stateid)).await.0, Status::Ok, "not yet");
    assert_eq!(confirm(&harness, 0, reborn).await, Status::Ok);
    assert_eq!(on(&harness, &o.fh, op::READ, read(o.stateid)).await.0, Status::Expired);
    let renew = |id: u64| harness.run(move |c| c.op(op::RENEW, |w| w.u64(id)));
    assert_eq!(renew(b.0).await.status, Status::Expired);
    assert_eq!(renew(reborn.0).await.status, Status::Ok);
    assert_eq!(
        renew(u64::from(6_u32) << 32).await.status,
        Status::StaleClientId,
        "of a run before"
    );
}

#[tokio::test]
async fn new_owner_must_be_confirmed() {
    let harness = Harness::new();
    let id = client(&harness, b"x").await;
    let o = opened(&harness, 77, id, b"o", b"f").await;
    assert_eq!(o.rflags, 2 | 4);
    assert_eq!(on(&harness, &o.fh, op::READ, read(o.stateid)).await.0, Status::BadStateId);
    let (status, _) = on(&harness, &o.fh, op::OPEN_CONFIRM, confirm_args(o.stateid, 80)).await;
    assert_eq!(status, Status::BadSeqId);
    let (status, mut r) = on(&harness, &o.fh, op::OPEN_CONFIRM, confirm_args(o.stateid, 78)).await;
    assert_eq!(status, Status::Ok);
    let now = read_stateid(&mut r);
    assert_eq!(now.seqid, 2);
    assert_eq!(on(&harness, &o.fh, op::READ, read(now)).await.0, Status::Ok);
    let (status, mut r) = on(&harness, &o.fh, op::OPEN_CONFIRM, confirm_args(o.stateid, 78)).await;
    assert_eq!((status, read_stateid(&mut r)), (Status::Ok, now), "a repetition");
    let (status, _) = on(&harness, &o.fh, op::OPEN_CONFIRM, confirm_args(now, 79)).await;
    assert_eq!(status, Status::BadStateId, "once");
    let again = opened(&harness, 79, id, b"o", b"g").await;
    assert_eq!(again.rflags, 4, "the number of an error that is not counted comes again");
}

#[tokio::test]
async fn failed_unconfirmed_open_is_reexecuted() {
    let harness = Harness::new();
    let id = client(&harness, b"x").await;
    let args = open_args(5, id, b"o", b"..", RW);
    let r = harness.run(|c| c.data().op(op::OPEN, args)).await;
    assert_eq!(r.status, Status::BadName);
    let o = opened(&harness, 5, id, b"o", b"f").await;
    assert_eq!(o.rflags, 2 | 4, "the client did not count the failure");
    let again = opened(&harness, 5, id, b"o", b"f").await;
    assert_eq!(again.stateid, o.stateid, "a success is repeated");
}

#[tokio::test]
async fn unconfirmed_owner_starts_again() {
    let harness = Harness::new();
    let id = client(&harness, b"x").await;
    let first = opened(&harness, 5, id, b"o", b"f").await;
    let second = opened(&harness, 500, id, b"o", b"f").await;
    assert_eq!(second.rflags, 2 | 4);
    let (status, _) =
        on(&harness, &first.fh, op::OPEN_CONFIRM, confirm_args(first.stateid, 6)).await;
    assert_eq!(status, Status::BadStateId);
    let (status, _) =
        on(&harness, &first.fh, op::OPEN_CONFIRM, confirm_args(second.stateid, 501)).await;
    assert_eq!(status, Status::Ok);
}

#[tokio::test]
async fn retransmission_gets_original_reply() {
    let harness = Harness::new();
    let id = client(&harness, b"x").await;
    let o = confirmed(&harness, id, b"o", b"f").await;
    let (_, first) = open(&harness, 3, id, b"o", b"g").await;
    let (status, again) = open(&harness, 3, id, b"o", b"g").await;
    assert_eq!(status, Status::Ok);
    assert_eq!(again.body, first.body, "with the file handle that GETFH reads");
    let (status, _) = open(&harness, 5, id, b"o", b"g").await;
    assert_eq!(status, Status::BadSeqId);
    let (status, mut r) = on(&harness, &o.fh, op::CLOSE, close(4, o.stateid)).await;
    assert_eq!(status, Status::Ok);
    let closed = read_stateid(&mut r);
    let (status, mut r) = on(&harness, &o.fh, op::CLOSE, close(4, o.stateid)).await;
    assert_eq!((status, read_stateid(&mut r)), (Status::Ok, closed), "also of what is gone");
    let (status, _) = on(&harness, &o.fh, op::CLOSE, close(5, o.stateid)).await;
    assert_eq!(status, Status::BadStateId);
    let (status, _) = open(&harness, 5, id, b"o", b"").await;
    assert_eq!(status, Status::Inval);
    let (status, _) = open(&harness, 5, id, b"o", b"").await;
    assert_eq!(status, Status::Inval, "errors are repeated as well");
    assert_eq!(open(&harness, 6, id, b"o", b"f").await.0, Status::Ok);
}

/// A retransmission gets the original reply, but the operations after it are checked again: the caller may be another user, or may
/// have lost its rights.
#[tokio::test]
async fn repeated_open_rechecks_rights() {
    let harness = Harness::new();
    let id = client(&harness, b"x").await;
    confirmed(&harness, id, b"o", b"f").await;
    assert_eq!(open(&harness, 3, id, b"o", b"g").await.0, Status::Ok);
    let (root, other) = (Cred::root(), Cred { uid: 5, gid: 5, ..Cred::root() });
    let written_behind = async |cred: &Cred| {
        let args = open_args(3, id, b"o", b"g", RW);
        let run = harness
            .run_on(&harness.conn, cred, 0, |c| c.data().op(op::OPEN, args).write(0, 2, b"x"));
        let mut r = run.await;
        r.ok(&[op::PUTROOTFH, op::LOOKUP]);
        let status = r.status;
        read_open(&mut r);
        r.expect(op::WRITE, status);
        status
    };
    assert_eq!(written_behind(&root).await, Status::Ok);
    assert_eq!(written_behind(&other).await, Status::Access, "its mode is 0644, and root's it is");
    harness.reload("data", |share| share.read_only = true);
    assert_eq!(written_behind(&root).await, Status::RoFs);
    harness.reload("data", |share| share.rules.access = Some(ShareAccess::default()));
    assert_eq!(written_behind(&root).await, Status::Access);
}

/// Stateids are not secret: a caller gets only its own permissions with one.
#[tokio::test]
async fn foreign_stateid_grants_no_rights() {
    let harness = Harness::new();
    let id = client(&harness, b"x").await;
    let o = confirmed(&harness, id, b"o", b"f").await;
    let other = Cred { uid: 5, gid: 5, ..Cred::root() };
    let by_other = |opcode, args: Vec<u8>| {
        let fh = o.fh.clone();
        let (harness, other) = (&harness, &other);
        async move {
            let run = harness
                .run_on(&harness.conn, other, 0, |c| c.putfh(&fh).op(opcode, |w| w.fixed(&args)));
            run.await.status
        }
    };
    let bytes = |args: &dyn Fn(&mut Writer)| {
        let mut w = Writer::new();
        args(&mut w);
        w.into_reply().head
    };
    let written = bytes(&|w| write(o.stateid, b"mine")(w));
    assert_eq!(by_other(op::WRITE, written).await, Status::Access);
    let readable = bytes(&|w| read(o.stateid)(w));
    assert_eq!(by_other(op::READ, readable).await, Status::Ok, "its mode lets everybody read");
    assert_eq!(on(&harness, &o.fh, op::WRITE, write(o.stateid, b"mine")).await.0, Status::Ok);
}

#[tokio::test]
async fn lock_owners_have_separate_sequence() {
    let harness = Harness::new();
    let id = client(&harness, b"x").await;
    let o = confirmed(&harness, id, b"o", b"f").await;
    let lock = |open_seqid: u32, lock_seqid: u32, owner: &'static [u8]| {
        let stateid = o.stateid;
        move |w: &mut Writer| {
            for v in [2, 0] {
                w.u32(v);
            }
            w.u64(0);
            w.u64(10);
            w.bool(true);
            w.u32(open_seqid);
            w.value(&stateid);
            w.u32(lock_seqid);
            w.u64(id);
            w.opaque(owner);
        }
    };
    let (status, mut r) = on(&harness, &o.fh, op::LOCK, lock(3, 40, b"a")).await;
    assert_eq!(status, Status::Ok);
    let held = read_stateid(&mut r);
    let (status, mut r) = on(&harness, &o.fh, op::LOCK, lock(3, 40, b"a")).await;
    assert_eq!((status, read_stateid(&mut r)), (Status::Ok, held), "a repetition");
    let (status, _) = on(&harness, &o.fh, op::LOCK, lock(4, 40, b"a")).await;
    assert_eq!(status, Status::BadSeqId, "its number does not follow");
    let (status, first) = on(&harness, &o.fh, op::LOCK, lock(4, 7, b"b")).await;
    assert_eq!(status, Status::Denied);
    let (status, again) = on(&harness, &o.fh, op::LOCK, lock(4, 7, b"b")).await;
    assert_eq!((status, again.body), (Status::Denied, first.body));
    let unlock = |seqid: u32, stateid: Stateid| {
        move |w: &mut Writer| {
            w.u32(2);
            w.u32(seqid);
            w.value(&stateid);
            w.u64(0);
            w.u64(u64::MAX);
        }
    };
    let release = |owner: &'static [u8]| {
        harness.run(move |c| {
            c.op(op::RELEASE_LOCKOWNER, |w| {
                w.u64(id);
                w.opaque(owner);
            })
        })
    };
    assert_eq!(release(b"a").await.status, Status::LocksHeld);
    assert_eq!(on(&harness, &o.fh, op::LOCKU, unlock(43, held)).await.0, Status::BadSeqId);
    let (status, mut r) = on(&harness, &o.fh, op::LOCKU, unlock(41, held)).await;
    assert_eq!((status, read_stateid(&mut r).seqid), (Status::Ok, 2));
    assert_eq!(
        on(&harness, &o.fh, op::LOCKU, unlock(41, held)).await.0,
        Status::Ok,
        "a repetition"
    );
    let (status, mut r) = on(&harness, &o.fh, op::LOCK, lock(5, 42, b"a")).await;
    assert_eq!(status, Status::Ok, "through the open again, in its order");
    let held = read_stateid(&mut r);
    assert_eq!(on(&harness, &o.fh, op::LOCKU, unlock(43, held)).await.0, Status::Ok);
    assert_eq!(release(b"a").await.status, Status::Ok);
    assert_eq!(release(b"never").await.status, Status::Ok);
    let (status, _) = on(&harness, &o.fh, op::LOCK, lock(6, 90, b"a")).await;
    assert_eq!(status, Status::Ok, "a released owner is new again");
}

#[tokio::test]
async fn other_operation_is_no_retransmission() {
    let harness = Harness::new();
    let id = client(&harness, b"x").await;
    let o = confirmed(&harness, id, b"o", b"f").await;
    assert_eq!(open(&harness, 2, id, b"o", b"f").await.0, Status::BadSeqId);
    assert_eq!(on(&harness, &o.fh, op::CLOSE, close(2, o.stateid)).await.0, Status::BadSeqId);
    assert_eq!(on(&harness, &o.fh, op::READ, read(o.stateid)).await.0, Status::Ok, "it is open");
}

#[tokio::test]
async fn owner_is_confirmed_once_before_locking() {
    let harness = Harness::new();
    let id = client(&harness, b"x").await;
    let o = opened(&harness, 1, id, b"o", b"f").await;
    let lock = |w: &mut Writer| {
        w.u32(2);
        w.bool(false);
        w.u64(0);
        w.u64(10);
        w.bool(true);
        w.u32(2);
        w.value(&o.stateid);
        w.u32(1);
        w.u64(id);
        w.opaque(b"a");
    };
    assert_eq!(on(&harness, &o.fh, op::LOCK, lock).await.0, Status::BadStateId);
    let (status, mut r) = on(&harness, &o.fh, op::OPEN_CONFIRM, confirm_args(o.stateid, 2)).await;
    assert_eq!(status, Status::Ok);
    let stateid = read_stateid(&mut r);
    let (status, _) = on(&harness, &o.fh, op::OPEN_CONFIRM, confirm_args(stateid, 3)).await;
    assert_eq!(status, Status::BadStateId);
    assert_eq!(on(&harness, &o.fh, op::READ, read(stateid)).await.0, Status::Ok, "as it was");
}

#[tokio::test]
async fn stateids_of_earlier_run_are_stale() {
    let harness = Harness::new();
    let id = client(&harness, b"x").await;
    let o = confirmed(&harness, id, b"o", b"f").await;
    let mut old = o.stateid;
    old.other[3] -= 1;
    assert_eq!(on(&harness, &o.fh, op::READ, read(old)).await.0, Status::StaleStateId);
    let locking = first_lock(1, (0, 1), old, b"a", false);
    assert_eq!(on(&harness, &o.fh, op::LOCK, locking).await.0, Status::StaleStateId);
    let mut other = o.stateid;
    other.other[7] ^= 0x7f;
    assert_eq!(on(&harness, &o.fh, op::READ, read(other)).await.0, Status::Expired);
    let sent = Stateid { seqid: 1, ..o.stateid };
    assert_eq!(on(&harness, &o.fh, op::READ, read(sent)).await.0, Status::OldStateId);
    let zero = Stateid { seqid: 0, ..o.stateid };
    assert_eq!(
        on(&harness, &o.fh, op::READ, read(zero)).await.0,
        Status::OldStateId,
        "no newest in 4.0"
    );
    for (share, want) in [((0x401, 0), Status::Inval), ((1, 0), Status::Ok)] {
        let args = open_args(3, id, b"o", b"h", share);
        assert_eq!(harness.run(|c| c.data().op(op::OPEN, args)).await.status, want);
        if want == Status::Inval {
            assert_eq!(open(&harness, 4, id, b"o", b"h").await.0, Status::Ok);
            return;
        }
    }
}

/// RFC 7530 section 16.31: the client's principal renews its lease, and so do users with state of the client.
#[tokio::test]
async fn strangers_renew_no_lease() {
    let harness = Harness::new();
    let id = client(&harness, b"x").await;
    let renew = |uid: u32| {
        let cred = Cred { uid, ..Cred::root() };
        let harness = &harness;
        async move {
            harness.run_on(&harness.conn, &cred, 0, |c| c.op(op::RENEW, |w| w.u64(id))).await.status
        }
    };
    assert_eq!(renew(5).await, Status::Ok, "there is no state yet");
    confirmed(&harness, id, b"o", b"f").await;
    assert_eq!(renew(5).await, Status::Access);
    assert_eq!(renew(0).await, Status::Ok);
    let user = Cred { uid: 5, ..Cred::root() };
    let args = open_args(1, id, b"p", b"f", (1, 0));
    let mut r = harness.run_on(&harness.conn, &user, 0, |c| c.data().op(op::OPEN, args)).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::OPEN, Status::Ok);
    assert_eq!(renew(5).await, Status::Ok, "its own open renews the lease as well");
    assert_eq!(introduce(&harness, 5, b"x", 1).await, Err(Status::ClidInUse));
}

/// A client without a machine credential renews with a user's, whatever the share maps that user to.
#[tokio::test]
async fn squashed_users_renew_their_leases() {
    let krb5 =
        |principal| Caller::krb5(principal, GssService::Privacy, Cred { uid: 5, ..Cred::root() });
    let sys = |uid| Caller::sys(&Cred { uid, ..Cred::root() });
    for (user, stranger) in [(sys(5), sys(6)), (krb5(5), krb5(6)), (krb5(5), sys(5))] {
        let harness = Harness::new();
        let id = client(&harness, b"x").await;
        confirmed(&harness, id, b"o", b"f").await;
        harness.reload("data", |share| {
            share.squash = Squash::All;
            share.rules.sec = [Flavor::Sys, Flavor::Krb5p].into_iter().collect();
        });
        let renew = async |caller: &Caller| {
            harness
                .run_by(&harness.conn, caller, 0, |c| c.op(op::RENEW, |w| w.u64(id)))
                .await
                .status
        };
        assert_eq!(renew(&user).await, Status::Access, "{user:?} has no file open");
        let args = open_args(1, id, b"p", b"f", (1, 0));
        let mut r = harness.run_by(&harness.conn, &user, 0, |c| c.data().op(op::OPEN, args)).await;
        r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::OPEN, Status::Ok);
        assert_eq!(renew(&user).await, Status::Ok, "{user:?}");
        assert_eq!(renew(&stranger).await, Status::Access, "{stranger:?}");
    }
}
