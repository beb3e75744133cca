//! Limits on clients: silent clients make room, no address can take all places, and state is granted to others only when its client
//! cannot reclaim it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nfsrdma::context::Conn;
use nfsrdma::v4::Options;
use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::op;
use rdma_transport::channel::Handle;
use rdma_transport::xdr::Writer;
use recovery::faults::{Disk, Fault};
use vfs::Cred;

use crate::client::{
    Client, FORE, Opened, R, RW, W, close, create, exchange, open_head, read_open,
};
use crate::harness::{Harness, conn_from};
use crate::minor0;

const LEASE_MS: u64 = 10_000;
/// Share modes that exclude all other clients.
const ALONE: (u32, u32) = (3, 3);

fn options() -> Options {
    let lease = Duration::from_millis(LEASE_MS);
    Options { lease, grace: lease, courtesy: Duration::from_secs(3_600), ..Options::default() }
}

fn on_disk(disk: &Disk) -> Options {
    Options { store: Some(disk.store().unwrap()), ..options() }
}

/// Connects a new client from an address, with EXCHANGE_ID and CREATE_SESSION with these limits: slots and bytes of a cached reply.
async fn session_from(
    harness: &Harness,
    conn: &Arc<Conn>,
    name: u32,
    fore: [u32; 5],
) -> Result<(u32, u32), Status> {
    let name = name.to_be_bytes();
    let args = exchange(&name, 1, 0);
    let mut r = harness.run_on(conn, &Cred::root(), 1, |c| c.op(op::EXCHANGE_ID, args)).await;
    if r.status != Status::Ok {
        return Err(r.status);
    }
    r.expect(op::EXCHANGE_ID, Status::Ok);
    let args = create(r.u64(), r.u32(), 0, fore);
    let mut r = harness.run_on(conn, &Cred::root(), 1, |c| c.op(op::CREATE_SESSION, args)).await;
    if r.status != Status::Ok {
        return Err(r.status);
    }
    r.expect(op::CREATE_SESSION, Status::Ok).fixed(16);
    let agreed: Vec<u32> = (0..9).map(|_| r.u32()).collect();
    Ok((agreed[7], agreed[5]))
}

async fn reclaimed(c: &Client<'_>, fh: &[u8], share: (u32, u32)) -> Result<Opened, Status> {
    let args = |w: &mut Writer| {
        open_head(w, 0, 0, b"o", share);
        w.u32(0);
        w.u32(1);
        w.u32(0);
    };
    let mut r = c.run(|a| a.putfh(fh).op(op::OPEN, args)).await;
    r.ok(&[op::PUTFH]);
    if r.status == Status::Ok { Ok(read_open(&mut r)) } else { Err(r.status) }
}

#[tokio::test]
async fn idle_v40_client_ends_with_lease() {
    let harness = Harness::with(options());
    let id = minor0::client(&harness, b"x").await;
    let opened = minor0::confirmed(&harness, id, b"o", b"f").await;
    let closed = minor0::on(&harness, &opened.fh, op::CLOSE, close(3, opened.stateid)).await;
    assert_eq!(closed.0, Status::Ok);
    let keeps = minor0::client(&harness, b"y").await;
    minor0::confirmed(&harness, keeps, b"o", b"g").await;
    harness.at_ms(LEASE_MS + 1_500);
    harness.nfs.clients.tick().await;
    assert_eq!(harness.nfs.clients.len(), 1, "who has something open keeps it");
    let census = harness.nfs.clients.census();
    assert_eq!((census.known, census.lapsed, census.lapsed_states), (1, 1, 1));
}

#[tokio::test]
async fn oldest_lapsed_client_is_evicted() {
    let harness = Harness::with(options());
    harness.nfs.clients.set_clients_max(3);
    let mut held = Vec::new();
    for (n, name) in [b"a", b"b", b"c"].into_iter().enumerate() {
        harness.at_ms(n as u64 * 100);
        let c = Client::new(&harness, name).await;
        c.open(b"o", name, ALONE).await.unwrap();
        held.push(c);
    }
    let stranger = conn_from([10, 0, 0, 77], Handle::detached());
    let refused = session_from(&harness, &stranger, 1, FORE).await;
    assert_eq!(refused, Err(Status::Delay), "all of them are live");
    harness.at_ms(LEASE_MS + 500);
    let c = Client::new(&harness, b"d").await;
    assert_eq!(harness.nfs.clients.len(), 3);
    assert_eq!(harness.nfs.clients.counters.evicted.load(Ordering::Relaxed), 1);
    c.open(b"o", b"a", W).await.unwrap();
    for silent in &held[1..] {
        silent.run(|a| a.root()).await.ok(&[op::PUTROOTFH]);
    }
    let gone = held[0].send(0, 99, false, |a| a.root()).await;
    assert_eq!(gone.status, Status::BadSession, "the longest silent");
}

#[tokio::test]
async fn removed_file_ends_courtesy() {
    let harness = Harness::with(options());
    let (c, d) = (Client::new(&harness, b"x").await, Client::new(&harness, b"y").await);
    c.open(b"o", b"f", RW).await.unwrap();
    d.open(b"o", b"g", RW).await.unwrap();
    let other = Client::new(&harness, b"z").await;
    let remove = other.run(|a| a.data().op(op::REMOVE, |w| w.opaque(b"f"))).await;
    assert_eq!(remove.status, Status::Ok);
    harness.nfs.clients.tick().await;
    assert_eq!(harness.nfs.clients.len(), 3, "its lease holds");
    harness.at_ms(LEASE_MS - 1);
    other.run(|a| a.root()).await;
    harness.at_ms(LEASE_MS + 1_500);
    harness.nfs.clients.tick().await;
    assert_eq!(c.send(0, 99, false, |a| a.root()).await.status, Status::BadSession);
    d.run(|a| a.root()).await.ok(&[op::PUTROOTFH]);
    assert_eq!(harness.nfs.clients.counters.evicted.load(Ordering::Relaxed), 1);
    assert_eq!(
        harness.nfs.core.namespace.arbiter().state().nodes(),
        1,
        "the removed file is let go"
    );
}

#[tokio::test]
async fn courtesy_files_are_limited() {
    let harness = Harness::with(Options { courtesy_files: 3, ..options() });
    let c = Client::new(&harness, b"x").await;
    for name in [b"a", b"b"] {
        c.open(b"o", name, R).await.unwrap();
    }
    harness.at_ms(100);
    let d = Client::new(&harness, b"y").await;
    for name in [b"c", b"d"] {
        d.open(b"o", name, R).await.unwrap();
    }
    harness.at_ms(LEASE_MS + 50);
    harness.nfs.clients.tick().await;
    assert_eq!(harness.nfs.clients.census().lapsed_states, 2, "the other is live");
    harness.at_ms(LEASE_MS + 1_500);
    harness.nfs.clients.tick().await;
    let census = harness.nfs.clients.census();
    assert_eq!((census.lapsed, census.lapsed_states), (1, 2), "the longest silent went");
    d.run(|a| a.root()).await.ok(&[op::PUTROOTFH]);
}

#[tokio::test]
async fn clients_per_address_are_limited() {
    let harness = Harness::with(options());
    harness.nfs.clients.set_clients_max(256);
    let (busy, other) = (
        conn_from([10, 0, 0, 9], Handle::detached()),
        conn_from([10, 0, 0, 10], Handle::detached()),
    );
    for n in 0..32 {
        session_from(&harness, &busy, n, FORE).await.unwrap();
    }
    assert_eq!(session_from(&harness, &busy, 32, FORE).await, Err(Status::ServerFault));
    let v40 = minor0::introduce(&harness, 0, b"of 4.0", 1).await;
    assert_eq!(v40, Err(Status::Resource), "the same address");
    session_from(&harness, &other, 33, FORE).await.unwrap();
    // A client without state is evicted as soon as its lease lapses.
    harness.at_ms(LEASE_MS + 1);
    session_from(&harness, &busy, 34, FORE).await.unwrap();
}

#[tokio::test]
async fn session_replies_stay_within_memory() {
    const MEMORY: usize = 1 << 20;
    const MANY: [u32; 5] = [1 << 20, 1 << 20, 8 << 10, 16, 128];
    let harness = Harness::with(options());
    harness.nfs.clients.set_replies_max(MEMORY);
    let (mut many, mut refused) = (0, 0);
    for n in 0..4_096_u32 {
        let [_, _, c, d] = n.to_be_bytes();
        let conn = conn_from([10, 7, c, d], Handle::detached());
        match session_from(&harness, &conn, n, MANY).await {
            Ok((slots, cached)) => {
                assert!(slots >= 1 && cached >= 512, "{slots} slots, {cached} bytes");
                many += usize::from(slots >= 8);
            }
            Err(status) => {
                assert_eq!(status, Status::NoSpc);
                refused += 1;
            }
        }
    }
    let used = harness.nfs.clients.census().reply_bytes;
    assert!(used <= MEMORY && used > MEMORY / 2, "{used}");
    assert!(refused > 0 && many > 0);
}

#[tokio::test]
async fn lapsed_clients_free_reply_memory() {
    let harness = Harness::with(options());
    // Each session has one slot with a reply of 512 bytes; one address has room for sixteen.
    harness.nfs.clients.set_replies_max(64 << 10);
    let mut clients = Vec::new();
    for n in 0..16_u8 {
        let c = Client::with(&harness, &[n], Handle::detached(), FORE).await;
        c.run(|a| a.op(op::RECLAIM_COMPLETE, |w| w.bool(false))).await.ok(&[op::RECLAIM_COMPLETE]);
        c.open(b"o", &[b'a' + n], R).await.unwrap();
        clients.push(c);
    }
    assert_eq!(session_from(&harness, &harness.conn, 99, FORE).await, Err(Status::NoSpc));
    harness.at_ms(LEASE_MS + 1);
    session_from(&harness, &harness.conn, 100, FORE).await.unwrap();
    assert_eq!(
        harness.nfs.clients.counters.evicted.load(Ordering::Relaxed),
        1,
        "no more than it takes"
    );
}

#[tokio::test]
async fn state_is_kept_until_record_struck() {
    for fault in [Fault::Full, Fault::Broken] {
        let disk = Disk::default();
        let harness = Harness::with(on_disk(&disk));
        let fh = {
            let (c, d) = (Client::new(&harness, b"x").await, Client::new(&harness, b"y").await);
            let fh = c.open(b"o", b"f", ALONE).await.unwrap().fh;
            d.open(b"o", b"g", R).await.unwrap();
            harness.at_ms(LEASE_MS);
            d.run(|a| a.root()).await;
            harness.at_ms(LEASE_MS + 1);
            disk.set(fault);
            for _ in 0..3 {
                assert_eq!(d.open(b"o", b"f", W).await.unwrap_err(), Status::Delay, "{fault:?}");
                harness.nfs.clients.tick().await;
            }
            assert_eq!(harness.nfs.clients.census().unstruck, 1);
            assert!(harness.nfs.clients.counters.unkept.load(Ordering::Relaxed) > 0);
            fh
        };
        // The server is killed in that state. No other client got the first one's state, so it reclaims.
        disk.set(Fault::None);
        let harness = harness.restart(|| on_disk(&disk));
        let c = Client::unreclaimed(&harness, b"x", Handle::detached()).await;
        reclaimed(&c, &fh, ALONE).await.unwrap();
    }
}

#[tokio::test]
async fn failed_strike_is_retried() {
    let disk = Disk::default();
    let harness = Harness::with(on_disk(&disk));
    let fh = {
        let (c, d) = (Client::new(&harness, b"x").await, Client::new(&harness, b"y").await);
        let fh = c.open(b"o", b"f", ALONE).await.unwrap().fh;
        harness.at_ms(LEASE_MS);
        d.run(|a| a.root()).await;
        harness.at_ms(LEASE_MS + 1);
        disk.set(Fault::Full);
        assert_eq!(d.open(b"o", b"f", W).await.unwrap_err(), Status::Delay);
        let again = Client::unreclaimed(&harness, b"x", Handle::detached()).await;
        assert_ne!(again.id, c.id, "who comes back meanwhile is a new client");
        assert_eq!(c.send(0, 99, false, |a| a.root()).await.status, Status::BadSession);
        disk.set(Fault::None);
        harness.nfs.clients.tick().await;
        d.open(b"o", b"f", W).await.unwrap();
        assert_eq!(harness.nfs.clients.census().unstruck, 0);
        fh
    };
    let harness = harness.restart(|| on_disk(&disk));
    let d = Client::unreclaimed(&harness, b"y", Handle::detached()).await;
    reclaimed(&d, &fh, W).await.unwrap();
}

#[tokio::test]
async fn slow_store_grants_no_conflict() {
    let disk = Disk::default();
    let harness = Harness::with(on_disk(&disk));
    let (c, d) = (Client::new(&harness, b"x").await, Client::new(&harness, b"y").await);
    let e = Client::new(&harness, b"z").await;
    let fh = c.open(b"o", b"f", ALONE).await.unwrap().fh;
    harness.at_ms(LEASE_MS);
    d.run(|a| a.root()).await;
    e.run(|a| a.root()).await;
    harness.at_ms(LEASE_MS + 1);
    disk.set(Fault::Hangs);
    let (opened, ()) = tokio::join!(d.open(b"o", b"f", W), async {
        let hangs = disk.clone();
        tokio::task::spawn_blocking(move || hangs.wait_for_hanging()).await.unwrap();
        assert_eq!(e.open(b"p", b"f", W).await.unwrap_err(), Status::Delay, "while it is struck");
        disk.set(Fault::None);
    });
    opened.unwrap();
    drop((c, d, e));
    let harness = harness.restart(|| on_disk(&disk));
    let c = Client::unreclaimed(&harness, b"x", Handle::detached()).await;
    assert_eq!(reclaimed(&c, &fh, ALONE).await.unwrap_err(), Status::ReclaimBad);
}

#[tokio::test]
async fn grace_lasts_until_absent_are_struck() {
    let disk = Disk::default();
    let harness = Harness::with(on_disk(&disk));
    let fh = {
        let (c, d) = (Client::new(&harness, b"x").await, Client::new(&harness, b"y").await);
        d.open(b"o", b"g", R).await.unwrap();
        c.open(b"o", b"f", ALONE).await.unwrap().fh
    };
    let harness = harness.restart(|| on_disk(&disk));
    let fh = {
        let d = Client::new(&harness, b"y").await;
        disk.set(Fault::Full);
        harness.at_ms(LEASE_MS);
        d.run(|a| a.root()).await;
        // The time has just ended, and no tick has run since.
        let refused = d.open(b"o", b"f", W).await.unwrap_err();
        assert_eq!(refused, Status::Grace);
        harness.nfs.clients.tick().await;
        assert!(harness.nfs.clients.in_grace());
        let refused = d.open(b"o", b"f", W).await.unwrap_err();
        assert_eq!(refused, Status::ServerFault, "an error that ends");
        fh
    };
    // The server is killed now, so the absent client can still reclaim.
    disk.set(Fault::None);
    let harness = harness.restart(|| on_disk(&disk));
    let c = Client::unreclaimed(&harness, b"x", Handle::detached()).await;
    reclaimed(&c, &fh, ALONE).await.unwrap();
    let d = Client::new(&harness, b"y").await;
    harness.at_ms(LEASE_MS);
    d.run(|a| a.root()).await;
    harness.nfs.clients.tick().await;
    assert!(!harness.nfs.clients.in_grace());
}

#[tokio::test]
async fn full_store_returns_final_error() {
    let disk = Disk::default();
    let options = on_disk(&disk);
    let store = options.store.clone().unwrap();
    let harness = Harness::with(options);
    disk.set(Fault::Full);
    let c = Client::new(&harness, b"x").await;
    assert_eq!(c.open(b"o", b"f", RW).await.unwrap_err(), Status::ServerFault);
    let id = minor0::client(&harness, b"y").await;
    assert_eq!(minor0::open(&harness, 1, id, b"o", b"g").await.0, Status::ServerFault);
    let trouble = store.health().expect("trouble");
    assert!(trouble.to_string().contains("make space"), "{trouble}");
    disk.set(Fault::None);
    c.open(b"o", b"f", RW).await.unwrap();
    // The store's own probe detects that the disk works again.
    let until = Instant::now() + Duration::from_secs(30);
    while store.health().is_some() {
        assert!(Instant::now() < until, "no probe has ended the trouble");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[tokio::test]
async fn failed_destroy_clientid_is_reported() {
    let disk = Disk::default();
    let harness = Harness::with(on_disk(&disk));
    let c = Client::new(&harness, b"x").await;
    let session = c.session.clone();
    c.run(|a| a.op(op::DESTROY_SESSION, |w| w.fixed(&session))).await.ok(&[op::DESTROY_SESSION]);
    disk.set(Fault::Full);
    let id = c.id;
    let leave =
        async || harness.run_minor(1, |a| a.op(op::DESTROY_CLIENTID, |w| w.u64(id))).await.status;
    assert_eq!(leave().await, Status::ServerFault);
    disk.set(Fault::None);
    assert_eq!(leave().await, Status::Ok);
}
