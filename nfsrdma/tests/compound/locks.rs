//! Byte-range locks (RFC 8881 sections 18.10 to 18.12, 18.38, 18.48).

use nfs_proto::nfs4::Nfsstat4;
use nfsrdma::v4::holdings::Held;
use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::{Stateid, op};

use crate::client::{
    Client, Opened, R, READ_LT, RW, WRITE_LT, close, first_lock, lockt, locku, next_lock,
    read_stateid,
};
use crate::harness::{Harness, Results};

const ALL: (u64, u64) = (0, u64::MAX);

pub async fn lock(
    c: &Client<'_>,
    o: &Opened,
    owner: &[u8],
    kind: u32,
    range: (u64, u64),
) -> Result<Stateid, (Status, Results)> {
    let (status, mut r) =
        c.on(&o.fh, op::LOCK, first_lock(kind, range, o.stateid, owner, false)).await;
    if status == Status::Ok { Ok(read_stateid(&mut r)) } else { Err((status, r)) }
}

fn denied(r: &mut Results) -> (u64, u64, u32, u64, Vec<u8>) {
    (r.u64(), r.u64(), r.u32(), r.u64(), r.opaque())
}

#[tokio::test]
async fn refused_lock_reports_conflict() {
    let harness = Harness::new();
    let (c, d) = (Client::new(&harness, b"x").await, Client::new(&harness, b"y").await);
    let (o, p) = (c.open(b"o", b"f", RW).await.unwrap(), d.open(b"o", b"f", RW).await.unwrap());
    let held = lock(&c, &o, b"alice", WRITE_LT, (10, 10)).await.unwrap();
    assert_eq!(held.seqid, 1);
    let (status, mut r) = lock(&d, &p, b"bob", READ_LT, (0, 11)).await.unwrap_err();
    assert_eq!(status, Status::Denied);
    assert_eq!(denied(&mut r), (10, 10, WRITE_LT, c.id, b"alice".to_vec()));
    r.end(Status::Denied);
    let (status, mut r) = d.on(&p.fh, op::LOCKT, lockt(3, ALL, b"bob")).await;
    assert_eq!(status, Status::Denied);
    assert_eq!(denied(&mut r).4, b"alice");
    assert_eq!(c.on(&o.fh, op::LOCKT, lockt(WRITE_LT, ALL, b"alice")).await.0, Status::Ok);
    assert_eq!(c.on(&o.fh, op::LOCKT, lockt(WRITE_LT, ALL, b"other")).await.0, Status::Denied);
    lock(&d, &p, b"bob", READ_LT, (0, 10)).await.unwrap();
    lock(&d, &p, b"eve", WRITE_LT, (20, u64::MAX)).await.unwrap();
    let (_, mut r) = c.on(&o.fh, op::LOCKT, lockt(WRITE_LT, (30, 1), b"alice")).await;
    assert_eq!(denied(&mut r), (20, u64::MAX, WRITE_LT, d.id, b"eve".to_vec()));
}

#[tokio::test]
async fn locks_split_and_merge() {
    let harness = Harness::new();
    let (c, d) = (Client::new(&harness, b"x").await, Client::new(&harness, b"y").await);
    let (o, p) = (c.open(b"o", b"f", RW).await.unwrap(), d.open(b"o", b"f", RW).await.unwrap());
    let held = lock(&c, &o, b"a", WRITE_LT, (0, 100)).await.unwrap();
    let (status, mut r) = c.on(&o.fh, op::LOCKU, locku((40, 20), held)).await;
    assert_eq!(status, Status::Ok);
    let held = read_stateid(&mut r);
    assert_eq!(held.seqid, 2);
    lock(&d, &p, b"b", WRITE_LT, (40, 20)).await.unwrap();
    assert_eq!(lock(&d, &p, b"c", READ_LT, (39, 1)).await.unwrap_err().0, Status::Denied);
    let (status, mut r) = c.on(&o.fh, op::LOCK, next_lock(READ_LT, (0, 40), held)).await;
    assert_eq!(status, Status::Ok, "a write lock becomes a read lock");
    let held = read_stateid(&mut r);
    lock(&d, &p, b"c", READ_LT, (39, 1)).await.unwrap();
    let (status, _) = c.on(&o.fh, op::LOCK, next_lock(WRITE_LT, (0, 40), held)).await;
    assert_eq!(status, Status::Denied, "and not back while another reads");
    assert_eq!(c.on(&o.fh, op::LOCKU, locku(ALL, held)).await.0, Status::Ok);
    lock(&d, &p, b"d", WRITE_LT, (60, u64::MAX)).await.unwrap();
}

#[tokio::test]
async fn ranges_stateids_and_modes_are_checked() {
    let harness = Harness::new();
    let c = Client::new(&harness, b"x").await;
    let o = c.open(b"o", b"f", R).await.unwrap();
    for range in [(0, 0), (u64::MAX, 2), (2, u64::MAX - 1)] {
        assert_eq!(lock(&c, &o, b"a", READ_LT, range).await.unwrap_err().0, Status::Inval);
        assert_eq!(c.on(&o.fh, op::LOCKT, lockt(READ_LT, range, b"a")).await.0, Status::Inval);
    }
    assert_eq!(lock(&c, &o, b"a", WRITE_LT, ALL).await.unwrap_err().0, Status::OpenMode);
    assert_eq!(lock(&c, &o, b"a", 5, ALL).await.unwrap_err().0, Status::BadXdr);
    let held = lock(&c, &o, b"a", READ_LT, (u64::MAX - 1, 1)).await.unwrap();
    let (status, _) = c.on(&o.fh, op::LOCK, next_lock(WRITE_LT, ALL, held)).await;
    assert_eq!(status, Status::OpenMode);
    let (status, _) = c.on(&o.fh, op::LOCK, next_lock(READ_LT, ALL, o.stateid)).await;
    assert_eq!(status, Status::BadStateId, "an open's stateid is not a lock's");
    let as_open = Opened { stateid: held, ..o.clone() };
    assert_eq!(lock(&c, &as_open, b"a", READ_LT, ALL).await.unwrap_err().0, Status::BadStateId);
    let old = Stateid { seqid: held.seqid, ..held };
    c.on(&o.fh, op::LOCK, next_lock(READ_LT, ALL, held)).await;
    assert_eq!(c.on(&o.fh, op::LOCKU, locku(ALL, old)).await.0, Status::OldStateId);
    let reclaim = first_lock(READ_LT, ALL, o.stateid, b"z", true);
    assert_eq!(c.on(&o.fh, op::LOCK, reclaim).await.0, Status::NoGrace);
}

#[tokio::test]
async fn lock_stateid_ends_with_open() {
    let harness = Harness::new();
    let (c, d) = (Client::new(&harness, b"x").await, Client::new(&harness, b"y").await);
    let o = c.open(b"o", b"f", RW).await.unwrap();
    let held = lock(&c, &o, b"a", WRITE_LT, ALL).await.unwrap();
    assert_eq!(c.write(&o.fh, held, b"x").await, Status::Ok);
    assert_eq!(c.read(&o.fh, held).await, Status::Ok);
    let p = d.open(b"o", b"f", RW).await.unwrap();
    assert_eq!(d.write(&p.fh, p.stateid, b"x").await, Status::Ok, "locks are advisory");
    assert_eq!(lock(&d, &p, b"a", READ_LT, ALL).await.unwrap_err().0, Status::Denied);
    assert_eq!(c.on(&o.fh, op::CLOSE, close(0, o.stateid)).await.0, Status::Ok);
    assert_eq!(c.read(&o.fh, held).await, Status::BadStateId);
    lock(&d, &p, b"a", READ_LT, ALL).await.unwrap();
}

#[tokio::test]
async fn stateids_are_tested_and_freed() {
    let harness = Harness::new();
    let c = Client::new(&harness, b"x").await;
    let o = c.open(b"o", b"f", RW).await.unwrap();
    let held = lock(&c, &o, b"a", WRITE_LT, ALL).await.unwrap();
    let strange = Stateid { seqid: 1, other: [9; 12] };
    let future = Stateid { seqid: 9, ..o.stateid };
    let ids = [o.stateid, held, strange, future, Stateid::ANONYMOUS];
    let mut r = c
        .run(|a| {
            a.op(op::TEST_STATEID, |w| {
                w.count(ids.len());
                ids.iter().for_each(|id| w.value(id));
            })
        })
        .await;
    r.expect(op::TEST_STATEID, Status::Ok);
    let said: Vec<_> =
        (0..r.u32()).map(|_| Nfsstat4::from_u32(r.u32()).map(Status).unwrap()).collect();
    let bad = Status::BadStateId;
    assert_eq!(said, [Status::Ok, Status::Ok, bad, bad, bad]);
    let free = |id: Stateid| c.run(move |a| a.op(op::FREE_STATEID, |w| w.value(&id)));
    assert_eq!(free(o.stateid).await.status, Status::LocksHeld);
    assert_eq!(free(held).await.status, Status::LocksHeld);
    assert_eq!(free(strange).await.status, Status::BadStateId);
    c.on(&o.fh, op::LOCKU, locku(ALL, held)).await;
    assert_eq!(free(held).await.status, Status::OldStateId);
    assert_eq!(free(Stateid { seqid: 2, ..held }).await.status, Status::Ok);
    assert_eq!(c.on(&o.fh, op::LOCKU, locku(ALL, held)).await.0, Status::BadStateId);
}

#[tokio::test]
async fn refused_first_lock_leaves_no_state() {
    let harness = Harness::new();
    let (c, d) = (Client::new(&harness, b"x").await, Client::new(&harness, b"y").await);
    let (o, p) = (c.open(b"o", b"f", RW).await.unwrap(), d.open(b"o", b"f", RW).await.unwrap());
    lock(&c, &o, b"a", WRITE_LT, ALL).await.unwrap();
    for _ in 0..3 {
        assert_eq!(lock(&d, &p, b"b", WRITE_LT, ALL).await.unwrap_err().0, Status::Denied);
    }
    assert_eq!(d.close(&p).await, Status::Ok);
    assert_eq!(c.close(&o).await, Status::Ok);
    assert_eq!(harness.nfs.core.namespace.arbiter().state().nodes(), 0);
}

#[tokio::test]
async fn revoked_state_is_reported_until_freed() {
    /// SEQ4_STATUS_ADMIN_STATE_REVOKED
    const TAKEN: u32 = 0x20;
    let harness = Harness::new();
    let (c, d) = (Client::new(&harness, b"x").await, Client::new(&harness, b"y").await);
    let (o, p) = (c.open(b"o", b"f", RW).await.unwrap(), d.open(b"o", b"f", RW).await.unwrap());
    let held = lock(&c, &o, b"alice", WRITE_LT, ALL).await.unwrap();
    let holdings = harness.nfs.clients.holdings();
    let mine = holdings.iter().filter(|h| h.client == "x");
    let open = mine.clone().find(|h| !matches!(h.held, Held::Locked)).unwrap().holder;
    assert!(mine.clone().any(|h| h.held == Held::Locked));
    assert_eq!(c.flags.get() & TAKEN, 0);
    assert!(harness.nfs.clients.take_away(open));
    assert!(!harness.nfs.clients.take_away(open), "nobody holds it any more");
    // Revoking an open also revokes its lock.
    lock(&d, &p, b"bob", WRITE_LT, ALL).await.unwrap();
    assert_eq!(c.read(&o.fh, o.stateid).await, Status::AdminRevoked);
    assert_eq!(c.read(&o.fh, held).await, Status::AdminRevoked);
    assert_eq!(c.flags.get() & TAKEN, TAKEN);
    assert_eq!(harness.nfs.clients.holdings().iter().filter(|h| h.client == "x").count(), 0);
    let free = async |id: Stateid| c.run(|a| a.op(op::FREE_STATEID, |w| w.value(&id))).await.status;
    assert_eq!(free(held).await, Status::Ok);
    assert_eq!(c.read(&o.fh, held).await, Status::BadStateId);
    assert_eq!(c.read(&o.fh, o.stateid).await, Status::AdminRevoked);
    assert_eq!(free(o.stateid).await, Status::Ok);
    assert_eq!(c.read(&o.fh, o.stateid).await, Status::BadStateId);
    c.run(|a| a.root()).await;
    assert_eq!(c.flags.get() & TAKEN, 0);
    // Freeing an open frees its locks, in whichever order they were revoked.
    assert_eq!(d.close(&p).await, Status::Ok);
    for locked in [true, false] {
        let o = c.open(b"o", b"f", RW).await.unwrap();
        let held = lock(&c, &o, b"alice", WRITE_LT, ALL).await.unwrap();
        let mut holdings = harness.nfs.clients.holdings();
        holdings.sort_by_key(|h| (h.held == Held::Locked) != locked);
        for h in holdings {
            harness.nfs.clients.take_away(h.holder);
        }
        assert_eq!(c.read(&o.fh, held).await, Status::AdminRevoked);
        assert_eq!(c.flags.get() & TAKEN, TAKEN);
        assert_eq!(free(o.stateid).await, Status::Ok);
        assert_eq!(c.read(&o.fh, held).await, Status::BadStateId);
        assert_eq!(c.flags.get() & TAKEN, 0, "the lock was taken first: {locked}");
    }
}

/// Clients choose their names: however many clients a host poses as, other hosts can still lock the file.
#[tokio::test]
async fn clients_of_host_share_file_limits() {
    let limits = state::Limits { opens_per_host: 2, locks_per_host: 3, ..Default::default() };
    let harness = Harness::within(limits);
    let (c, d) = (Client::new(&harness, b"x").await, Client::new(&harness, b"y").await);
    let e = Client::new(&harness, b"z").await;
    let (o, p) = (c.open(b"o", b"f", RW).await.unwrap(), d.open(b"o", b"f", RW).await.unwrap());
    assert_eq!(e.open(b"o", b"f", RW).await.unwrap_err(), Status::Delay, "a third open");
    lock(&c, &o, b"a", WRITE_LT, (0, 1)).await.unwrap();
    lock(&d, &p, b"b", WRITE_LT, (10, 1)).await.unwrap();
    assert_eq!(lock(&d, &p, b"c", WRITE_LT, (20, 1)).await.unwrap_err().0, Status::Delay);
    let met = rdma_transport::count::limits_met();
    assert!(met.iter().any(|(limit, _)| *limit == "locks-of-file-by-address"), "{met:?}");
}
