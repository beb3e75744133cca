//! Leases, courtesy, and reclaim after a restart (RFC 8881 sections 8.3, 8.4).

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nfsrdma::v4::Options;
use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::{Stateid, op};
use rdma_transport::channel::Handle;
use rdma_transport::xdr::Writer;
use recovery::Store;

use crate::client::{Client, Opened, R, RW, W, WRITE_LT, first_lock, lockt, open_head, read_open};
use crate::harness::Harness;

const LEASE_MS: u64 = 10_000;

fn options(state_dir: Option<&Path>) -> Options {
    Options {
        lease: Duration::from_millis(LEASE_MS),
        grace: Duration::from_millis(LEASE_MS),
        courtesy: Duration::from_secs(3_600),
        store: state_dir.map(|dir| Store::open(dir).unwrap()),
        ..Options::default()
    }
}

fn reclaim(share: (u32, u32)) -> impl FnOnce(&mut Writer) {
    move |w| {
        open_head(w, 0, 0, b"o", share);
        w.u32(0);
        w.u32(1);
        w.u32(0);
    }
}

async fn reclaimed(c: &Client<'_>, fh: &[u8], share: (u32, u32)) -> Result<Opened, Status> {
    let mut r = c.run(|a| a.putfh(fh).op(op::OPEN, reclaim(share))).await;
    r.ok(&[op::PUTFH]);
    if r.status == Status::Ok { Ok(read_open(&mut r)) } else { Err(r.status) }
}

async fn complete(c: &Client<'_>) {
    let r = c.run(|a| a.op(op::RECLAIM_COMPLETE, |w| w.bool(false))).await;
    assert_eq!(r.status, Status::Ok);
}

#[tokio::test]
async fn lapsed_client_keeps_uncontested_state() {
    let harness = Harness::with(options(None));
    let (c, d) = (Client::new(&harness, b"x").await, Client::new(&harness, b"y").await);
    let o = c.open(b"o", b"f", (3, 2)).await.unwrap();
    assert_eq!(d.open(b"o", b"f", W).await.unwrap_err(), Status::ShareDenied);
    harness.at_ms(LEASE_MS + 1);
    d.run(|a| a.root()).await;
    assert_eq!(c.write(&o.fh, o.stateid, b"back").await, Status::Ok, "a courtesy");
    assert_eq!(
        d.open(b"o", b"f", W).await.unwrap_err(),
        Status::ShareDenied,
        "its lease is renewed"
    );
    harness.at_ms(2 * LEASE_MS + 2);
    d.open(b"o", b"f", W).await.unwrap();
    assert_eq!(harness.nfs.clients.counters.expired.load(Ordering::Relaxed), 1);
    let r = c.send(0, 99, false, |a| a.root()).await;
    assert_eq!(r.status, Status::BadSession);
}

#[tokio::test]
async fn lapsed_locks_yield_to_conflicts() {
    let harness = Harness::with(options(None));
    let (c, d) = (Client::new(&harness, b"x").await, Client::new(&harness, b"y").await);
    let o = c.open(b"o", b"f", RW).await.unwrap();
    let p = d.open(b"o", b"f", RW).await.unwrap();
    let all = (0, u64::MAX);
    let lock = |id| first_lock(WRITE_LT, all, id, b"l", false);
    assert_eq!(c.on(&o.fh, op::LOCK, lock(o.stateid)).await.0, Status::Ok);
    assert_eq!(d.on(&p.fh, op::LOCK, lock(p.stateid)).await.0, Status::Denied);
    harness.at_ms(LEASE_MS);
    d.run(|a| a.root()).await;
    harness.at_ms(LEASE_MS + 1);
    assert_eq!(d.on(&p.fh, op::LOCKT, lockt(WRITE_LT, all, b"l")).await.0, Status::Ok);
    assert_eq!(d.on(&p.fh, op::LOCK, lock(p.stateid)).await.0, Status::Ok);
}

#[tokio::test]
async fn client_without_state_ends_with_lease() {
    let harness = Harness::with(options(None));
    let (_idle, d) = (Client::new(&harness, b"x").await, Client::new(&harness, b"y").await);
    assert_eq!(harness.nfs.clients.len(), 2);
    harness.at_ms(LEASE_MS - 1);
    d.run(|a| a.root()).await;
    harness.at_ms(LEASE_MS + 1_500);
    d.run(|a| a.root()).await;
    assert_eq!(harness.nfs.clients.len(), 1);
}

#[tokio::test]
async fn restart_allows_reclaim() {
    let state = tempfile::tempdir().unwrap();
    let harness = Harness::with(options(Some(state.path())));
    let all = (0, u64::MAX);
    let fh = {
        let (c, d) = (Client::new(&harness, b"x").await, Client::new(&harness, b"y").await);
        let o = c.open(b"o", b"f", (3, 2)).await.unwrap();
        let lock = first_lock(WRITE_LT, all, o.stateid, b"l", false);
        assert_eq!(c.on(&o.fh, op::LOCK, lock).await.0, Status::Ok);
        d.open(b"o", b"g", R).await.unwrap();
        o.fh
    };
    let harness = harness.restart(|| options(Some(state.path())));
    assert!(harness.nfs.clients.in_grace());
    let stranger = Client::new(&harness, b"z").await;
    assert_eq!(stranger.open(b"o", b"f", W).await.unwrap_err(), Status::Grace);
    assert_eq!(
        reclaimed(&stranger, &fh, R).await.unwrap_err(),
        Status::NoGrace,
        "said it was done"
    );
    let liar = Client::unreclaimed(&harness, b"liar", Handle::detached()).await;
    assert_eq!(reclaimed(&liar, &fh, R).await.unwrap_err(), Status::ReclaimBad);
    assert_eq!(liar.on(&fh, op::LOCKT, lockt(WRITE_LT, all, b"l")).await.0, Status::Grace);

    let c = Client::unreclaimed(&harness, b"x", Handle::detached()).await;
    let o = reclaimed(&c, &fh, (3, 2)).await.unwrap();
    let lock = |id: Stateid, reclaim| first_lock(WRITE_LT, all, id, b"l", reclaim);
    assert_eq!(c.on(&fh, op::LOCK, lock(o.stateid, false)).await.0, Status::Grace);
    assert_eq!(c.on(&fh, op::LOCK, lock(o.stateid, true)).await.0, Status::Ok);
    complete(&c).await;
    assert!(harness.nfs.clients.in_grace(), "the other has not come back");
    let d = Client::unreclaimed(&harness, b"y", Handle::detached()).await;
    assert_eq!(reclaimed(&d, &fh, W).await.unwrap_err(), Status::ReclaimConflict);
    complete(&d).await;
    assert!(!harness.nfs.clients.in_grace(), "all are back: no need to wait for the end");
    assert_eq!(reclaimed(&c, &fh, R).await.unwrap_err(), Status::NoGrace);
    assert_eq!(stranger.open(b"o", b"f", W).await.unwrap_err(), Status::ShareDenied);
    assert_eq!(c.write(&fh, o.stateid, b"mine").await, Status::Ok);
    stranger.open(b"o", b"new", W).await.unwrap();
}

#[tokio::test]
async fn grace_period_blocks_conflicting_io() {
    let state = tempfile::tempdir().unwrap();
    let harness = Harness::with(options(Some(state.path())));
    let fh = Client::new(&harness, b"x").await.open(b"o", b"f", (1, 2)).await.unwrap().fh;
    let harness = harness.restart(|| options(Some(state.path())));
    let d = Client::new(&harness, b"y").await;
    assert_eq!(d.write(&fh, Stateid::ANONYMOUS, b"x").await, Status::Grace);
    assert_eq!(d.write(&fh, Stateid::READ_BYPASS, b"x").await, Status::Grace);
    assert_eq!(d.read(&fh, Stateid::ANONYMOUS).await, Status::Grace);
    assert_eq!(d.read(&fh, Stateid::READ_BYPASS).await, Status::Ok);
    let remove = |w: &mut Writer| w.opaque(b"f");
    assert_eq!(d.run(|a| a.data().op(op::REMOVE, remove)).await.status, Status::Grace);
    let rename = |w: &mut Writer| {
        w.opaque(b"f");
        w.opaque(b"g");
    };
    let moved = d.run(|a| a.data().savefh().op(op::RENAME, rename)).await;
    assert_eq!(moved.status, Status::Grace);
    let c = Client::unreclaimed(&harness, b"x", Handle::detached()).await;
    reclaimed(&c, &fh, (1, 2)).await.unwrap();
    complete(&c).await;
    assert_eq!(d.write(&fh, Stateid::ANONYMOUS, b"x").await, Status::Locked);
    assert_eq!(d.read(&fh, Stateid::ANONYMOUS).await, Status::Ok);
    assert_eq!(d.run(|a| a.data().op(op::REMOVE, remove)).await.status, Status::Ok);
}

#[tokio::test]
async fn late_reclaim_is_refused() {
    let state = tempfile::tempdir().unwrap();
    let harness = Harness::with(options(Some(state.path())));
    let fh = {
        let (c, d) = (Client::new(&harness, b"x").await, Client::new(&harness, b"y").await);
        d.open(b"o", b"g", R).await.unwrap();
        c.open(b"o", b"f", RW).await.unwrap().fh
    };
    let harness = harness.restart(|| options(Some(state.path())));
    {
        let d = Client::unreclaimed(&harness, b"y", Handle::detached()).await;
        harness.at_ms(LEASE_MS);
        d.run(|a| a.root()).await;
        // The records of absent clients are struck before other clients take their state.
        harness.nfs.clients.tick().await;
        assert!(!harness.nfs.clients.in_grace());
        complete(&d).await;
        d.open(b"o", b"f", RW).await.unwrap();
        let c = Client::unreclaimed(&harness, b"x", Handle::detached()).await;
        assert_eq!(reclaimed(&c, &fh, RW).await.unwrap_err(), Status::NoGrace);
    }
    let harness = harness.restart(|| options(Some(state.path())));
    let c = Client::unreclaimed(&harness, b"x", Handle::detached()).await;
    assert_eq!(reclaimed(&c, &fh, RW).await.unwrap_err(), Status::ReclaimBad);
    let d = Client::unreclaimed(&harness, b"y", Handle::detached()).await;
    reclaimed(&d, &fh, RW).await.unwrap();
}

#[tokio::test]
async fn empty_record_set_needs_no_grace() {
    let state = tempfile::tempdir().unwrap();
    let harness = Harness::with(options(Some(state.path())));
    {
        let c = Client::new(&harness, b"x").await;
        let o = c.open(b"o", b"f", RW).await.unwrap();
        assert_eq!(c.close(&o).await, Status::Ok);
        let session = c.session.clone();
        c.run(|a| a.op(op::DESTROY_SESSION, |w| w.fixed(&session))).await;
        let id = c.id;
        let r = harness.run_minor(1, |a| a.op(op::DESTROY_CLIENTID, |w| w.u64(id))).await;
        assert_eq!(r.status, Status::Ok);
    }
    let harness = harness.restart(|| options(Some(state.path())));
    assert!(!harness.nfs.clients.in_grace());
    Client::new(&harness, b"z").await.open(b"o", b"f", RW).await.unwrap();
}

#[tokio::test]
async fn released_state_cannot_be_reclaimed() {
    let state = tempfile::tempdir().unwrap();
    let harness = Harness::with(options(Some(state.path())));
    let fh = {
        let (c, d) = (Client::new(&harness, b"x").await, Client::new(&harness, b"y").await);
        let fh = c.open(b"o", b"f", (3, 3)).await.unwrap().fh;
        harness.at_ms(LEASE_MS);
        d.run(|a| a.root()).await;
        harness.at_ms(LEASE_MS + 1);
        d.open(b"o", b"f", W).await.unwrap();
        fh
    };
    let harness = harness.restart(|| options(Some(state.path())));
    let c = Client::unreclaimed(&harness, b"x", Handle::detached()).await;
    assert_eq!(reclaimed(&c, &fh, (3, 3)).await.unwrap_err(), Status::ReclaimBad);
}

/// RFC 8881 section 18.46.3: only a successful SEQUENCE renews the lease.
#[tokio::test]
async fn failed_requests_renew_no_lease() {
    let harness = Harness::with(options(None));
    let c = Client::new(&harness, b"x").await;
    let lapsed = || harness.nfs.clients.census().lapsed;
    harness.at_ms(LEASE_MS / 2);
    let bad: [(u32, u32, Status); 3] =
        [(99, 1, Status::BadSlot), (0, 40, Status::SeqMisordered), (1, 0, Status::SeqMisordered)];
    for (slot, sequence, status) in bad {
        assert_eq!(c.send(slot, sequence, false, |a| a.root()).await.status, status);
    }
    let many = |a| (0..40).fold(a, |a: crate::harness::Args, _| a.root());
    assert_eq!(c.send(1, 1, false, many).await.status, Status::TooManyOps);
    // Neither EXCHANGE_ID of the same client nor an invalid BIND_CONN_TO_SESSION renews it.
    let again = crate::client::exchange(b"x", 1, 0);
    harness.run_on(&c.conn, &c.cred, 1, |a| a.op(op::EXCHANGE_ID, again)).await;
    let bind = |direction: u32| {
        let session = c.session.clone();
        move |w: &mut Writer| {
            w.fixed(&session);
            w.u32(direction);
            w.bool(false);
        }
    };
    let args = bind(9);
    let r = harness.run_on(&c.conn, &c.cred, 1, |a| a.op(op::BIND_CONN_TO_SESSION, args)).await;
    assert_eq!(r.status, Status::Inval);
    harness.at_ms(LEASE_MS + 1);
    assert_eq!(lapsed(), 1);
    // A successful request renews it, even as a retransmission.
    let last = c.sequence.get();
    assert_eq!(c.send(0, last, false, |a| a.root()).await.status, Status::RetryUncachedRep);
    assert_eq!(lapsed(), 0);
    harness.at_ms(3 * LEASE_MS);
    let args = bind(3);
    let r = harness.run_on(&c.conn, &c.cred, 1, |a| a.op(op::BIND_CONN_TO_SESSION, args)).await;
    assert_eq!((r.status, lapsed()), (Status::Ok, 0));
}
