//! Rates of shares, users and clients, over every protocol and transport. The tests compare the gateway's counters with the time
//! that passed, and do not depend on the speed of the machine.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::connect::Local;
use client::smb::{Options, Smb, User};
use client::target::{Transport, Version};
use client::{Error, File, Volume};
use config::{Identity, Measure, Rates, Settings};
use futures_util::future::join_all;
use headgate_tests::world::smb::{alice, with_alice};
use headgate_tests::world::{World, buf, pattern};
use rates::{Reading, ScopeName};
use rdma_transport::iwarp::{Iwarp, IwarpConfig};

const MIB: usize = 1 << 20;
/// One read.
const PIECE: u32 = 1 << 20;
const RATE: u64 = 8 << 20;
/// Requests that need not wait are done in this time.
const SOON: Duration = Duration::from_secs(5);

/// The protocol and transport of a client.
#[derive(Clone, Copy, Debug)]
enum Way {
    Nfs(Version, Transport),
    Smb(Transport),
}

const WAYS: [Way; 6] = [
    Way::Nfs(Version::V3, Transport::Tcp),
    Way::Nfs(Version::V3, Transport::Rdma),
    Way::Nfs(Version::V41, Transport::Tcp),
    Way::Nfs(Version::V41, Transport::Rdma),
    Way::Smb(Transport::Tcp),
    Way::Smb(Transport::Rdma),
];

fn bytes(rate: u64) -> Rates {
    Rates { read: Some(rate), write: Some(rate), ..Rates::default() }
}

/// Limits the share `data`.
fn limit_data(settings: &mut Settings, rates: Rates) {
    settings.shares.iter_mut().find(|s| s.name == "data").unwrap().limits = rates;
}

async fn smb(world: &World, transport: Transport, share: &str, user: &User) -> Volume {
    let iwarp = Arc::new(Iwarp::new(IwarpConfig::default()));
    let local = Local { rdma: Some(iwarp), ..Local::default() };
    let is_rdma = transport == Transport::Rdma;
    let at = if is_rdma { world.running.smb_direct[0] } else { world.running.smb[0] };
    let to = ("127.0.0.1", share);
    Volume::Smb(Smb::connect(at, is_rdma, to, user, Options::default(), &local).await.unwrap())
}

async fn dial(world: &World, way: Way, share: &str) -> Volume {
    match way {
        Way::Nfs(version, transport) => world.client(share, (version, transport)).await.unwrap(),
        Way::Smb(transport) => smb(world, transport, share, &alice()).await,
    }
}

fn readings(world: &World) -> Vec<Reading> {
    world.running.namespace().limits.read()
}

/// Returns the counters of a rate.
fn passed(world: &World, scope: &ScopeName, measure: Measure) -> Reading {
    let all = readings(world);
    all.into_iter().find(|r| r.scope == *scope && r.measure == measure).unwrap()
}

fn waiting(world: &World) -> usize {
    world.running.namespace().limits.counts().0
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn write(volume: &Volume, file: &File, data: &[u8]) {
    let pieces = data.chunks(MIB).enumerate().map(|(n, piece)| async move {
        let taken = volume.write(file, (n * MIB) as u64, vec![buf(piece)]).await.unwrap();
        assert_eq!(taken as usize, piece.len());
    });
    join_all(pieces).await;
}

async fn read(volume: &Volume, file: &File, len: usize) -> Vec<u8> {
    let pieces = (0..len / MIB).map(|n| async move {
        let (got, _) = volume.read(file, (n * MIB) as u64, PIECE).await.unwrap();
        got.iter().flat_map(|b| b.to_vec()).collect::<Vec<u8>>()
    });
    join_all(pieces).await.concat()
}

/// Writes and reads sixteen times a mebibyte at eight in a second.
async fn keeps_to_its_rate(way: Way) {
    let (world, _dir) = with_alice(|s| limit_data(s, bytes(RATE))).await;
    // The buckets are full since the gateway serves, so this is later, and what passes until the end is at most this.
    let began = Instant::now();
    let volume = dial(&world, way, "data").await;
    let file = volume.create("f").await.unwrap();
    let data = pattern(&format!("{way:?}"), 16 * MIB);
    write(&volume, &file, &data).await;
    assert!(read(&volume, &file, data.len()).await == data, "{way:?}: other data");
    let share = ScopeName::Share("data".into());
    for measure in [Measure::Read, Measure::Write] {
        let reading = passed(&world, &share, measure);
        let most = RATE as f64 * (began.elapsed().as_secs_f64() + 1.0);
        assert_eq!(reading.passed, data.len() as u64, "{way:?} {measure}");
        assert!(reading.passed as f64 <= most, "{way:?} {measure}: more than {most}");
        assert!(reading.waited >= 7, "{way:?} {measure}: eight mebibytes do not wait: {reading:?}");
        assert_eq!(reading.waiting, 0, "{way:?}");
    }
    // Eight mebibytes of each had to wait for a second.
    assert!(began.elapsed() >= Duration::from_secs(2), "{way:?}: {:?}", began.elapsed());
    volume.close(file).await.unwrap();
    drop(volume);
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_protocol_and_transport_keeps_to_a_rate() {
    join_all(WAYS.map(keeps_to_its_rate)).await;
}

/// A small file at the end of which reads stop, and data that is not there, count as what they moved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_reads_count_what_they_moved() {
    let (world, _dir) = with_alice(|s| limit_data(s, bytes(RATE))).await;
    let mut moved = 0;
    for way in WAYS {
        let volume = dial(&world, way, "data").await;
        let file = volume.create(&format!("{way:?}")).await.unwrap();
        volume.write(&file, 0, vec![buf(b"small")]).await.unwrap();
        for _ in 0..20 {
            let (got, _) = volume.read(&file, 0, PIECE).await.unwrap();
            assert_eq!(got.iter().map(|b| b.len()).sum::<usize>(), 5, "{way:?}");
            moved += 5;
        }
    }
    let reading = passed(&world, &ScopeName::Share("data".into()), Measure::Read);
    assert_eq!((reading.passed, reading.waited), (moved, 0));
    world.running.stop().await;
}

fn add_user(settings: &mut Settings, dir: &Path, name: &str, limits: Rates) -> User {
    let file = dir.join(name);
    fs::write(&file, "correct horse\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    // With root's number, the rate would count NFS calls of root.
    let identity = Identity { uid: Some(1077), gid: Some(1077), groups: Some(Vec::new()) };
    settings.users.push(config::User {
        name: name.into(),
        password_file: Some(file),
        identity,
        limits,
    });
    User { name: name.into(), ..alice() }
}

/// Keeps eight reads of this size under way until stopped; counts what came.
async fn reads(volume: Volume, len: u32, stop: Arc<AtomicBool>, moved: Arc<AtomicU64>) {
    let file = volume.find("f").await.unwrap();
    let one = async || {
        while !stop.load(Ordering::Relaxed) {
            let (got, _) = volume.read(&file, 0, len).await.unwrap();
            let got: usize = got.iter().map(|b| b.len()).sum();
            moved.fetch_add(got as u64, Ordering::Relaxed);
        }
    };
    join_all((0..8).map(|_| one())).await;
}

/// Two users share one rate: one reads little at a time over TCP, the other much over RDMA.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_who_share_a_rate_get_equal_parts() {
    let (mut world, _dir) = with_alice(|_| ()).await;
    let by_smb = smb(&world, Transport::Tcp, "data", &alice()).await;
    let by_nfs = world.client("data", (Version::V41, Transport::Rdma)).await.unwrap();
    let file = by_smb.create("f").await.unwrap();
    write(&by_smb, &file, &pattern("f", MIB)).await;
    by_smb.close(file).await.unwrap();
    let mut settings = world.running.settings().clone();
    limit_data(&mut settings, Rates { burst: Duration::from_millis(100), ..bytes(RATE) });
    world.running.reload(settings).await.unwrap();
    let stop = Arc::<AtomicBool>::default();
    let moved = [Arc::<AtomicU64>::default(), Arc::default()];
    let both = [(by_smb, 256 << 10), (by_nfs, PIECE)];
    let readers = both.into_iter().zip(&moved).map(|((volume, len), moved)| {
        tokio::spawn(reads(volume, len, stop.clone(), moved.clone()))
    });
    let readers: Vec<_> = readers.collect();
    // Each has had a dozen turns: the parts of both are known, whatever time that took.
    let all = || moved.iter().map(|n| n.load(Ordering::Relaxed)).sum::<u64>();
    until("24 MiB", || all() >= 24 << 20).await;
    let [small, large] = [0, 1].map(|n| moved[n].load(Ordering::Relaxed) as f64 / all() as f64);
    assert!((0.35..0.65).contains(&small), "{small} and {large}");
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.await.unwrap();
    }
    world.running.stop().await;
}

/// A user's own rate limits its SMB session, and does not delay others of the same share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rate_of_user_delays_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let mut slow = User::default();
    let (world, _dir) = with_alice(|s| {
        slow = add_user(
            s,
            dir.path(),
            "slow",
            Rates { burst: Duration::from_millis(10), ..bytes(MIB as u64) },
        );
    })
    .await;
    let mine = smb(&world, Transport::Tcp, "data", &alice()).await;
    let file = mine.create("f").await.unwrap();
    let data = pattern("f", 16 * MIB);
    write(&mine, &file, &data).await;
    let theirs = Arc::new(smb(&world, Transport::Tcp, "data", &slow).await);
    let held = theirs.find("f").await.unwrap();
    let waits: Vec<_> = (0..8)
        .map(|_| {
            let (theirs, held) = (theirs.clone(), held.clone());
            tokio::spawn(async move { theirs.read(&held, 0, PIECE).await.map(drop) })
        })
        .collect();
    until("a request waits", || waiting(&world) >= 4).await;
    let began = Instant::now();
    assert!(read(&mine, &file, data.len()).await == data);
    for way in WAYS {
        let other = dial(&world, way, "data").await;
        let file = other.find("f").await.unwrap();
        assert!(read(&other, &file, MIB).await == data[..MIB], "{way:?}");
    }
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let reading = passed(&world, &ScopeName::User("slow".into()), Measure::Read);
    assert!(reading.waiting > 0 && reading.passed < 8 * MIB as u64, "{reading:?}");
    for one in waits {
        one.await.unwrap().unwrap();
    }
    world.running.stop().await;
}

/// Starts `number` reads that wait for long, by this way, and returns when they do.
async fn many_that_wait(
    world: &World,
    way: Way,
    number: usize,
) -> Vec<tokio::task::JoinHandle<Result<(), Error>>> {
    let before = waiting(world);
    let volume = Arc::new(dial(world, way, "data").await);
    let file = volume.find("f").await.unwrap();
    let one = |_| {
        let (volume, file) = (volume.clone(), file.clone());
        tokio::spawn(async move { volume.read(&file, 0, PIECE).await.map(drop) })
    };
    let all = (0..number).map(one).collect();
    // The first may pass.
    until("they wait", || waiting(world) >= before + number - 1).await;
    all
}

async fn slow_world() -> (World, tempfile::TempDir) {
    let (mut world, dir) = with_alice(|_| ()).await;
    let volume = dial(&world, WAYS[0], "data").await;
    let file = volume.create("f").await.unwrap();
    write(&volume, &file, &pattern("f", MIB)).await;
    let mut settings = world.running.settings().clone();
    limit_data(&mut settings, Rates { burst: Duration::from_millis(10), ..bytes(64 << 10) });
    world.running.reload(settings).await.unwrap();
    (world, dir)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_frees_requests_that_wait() {
    let (mut world, _dir) = slow_world().await;
    let mut all = Vec::new();
    for way in WAYS {
        all.extend(many_that_wait(&world, way, 8).await);
    }
    let began = Instant::now();
    let mut settings = world.running.settings().clone();
    limit_data(&mut settings, Rates::default());
    let changes = world.running.reload(settings).await.unwrap();
    assert!(format!("{changes:?}").contains("rates none"), "{changes:?}");
    for one in all {
        one.await.unwrap().unwrap();
    }
    // At the rate, they would have taken twelve minutes.
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_connections_and_drain_end_waits() {
    let (world, _dir) = slow_world().await;
    // A client of TCP may close its side and still take answers, so the gateway waits for it until it sends one.
    let notices = |way: &Way| !matches!(way, Way::Nfs(_, Transport::Tcp));
    for way in WAYS.into_iter().filter(notices) {
        let all = many_that_wait(&world, way, 6).await;
        // Dropping the volume, which these share, ends the connection.
        all.iter().for_each(|one| one.abort());
        drop(all);
        until(&format!("{way:?}: none waits"), || waiting(&world) == 0).await;
    }
    let mut all = Vec::new();
    for way in WAYS {
        all.extend(many_that_wait(&world, way, 4).await);
    }
    let began = Instant::now();
    assert!(world.running.stop().await, "requests are left");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    for one in all {
        let _ = one.await.unwrap();
    }
}

/// A connection keeps places for other shares, and delays calls beyond the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_with_many_waits_serves_other_shares() {
    let (world, _dir) = slow_world().await;
    let way = (Version::V3, Transport::Tcp);
    let volume = Arc::new(world.client("data", way).await.unwrap());
    let file = volume.find("f").await.unwrap();
    let all: Vec<_> = (0..120)
        .map(|_| {
            let (volume, file) = (volume.clone(), file.clone());
            tokio::spawn(async move { volume.read(&file, 0, 1024).await.map(drop) })
        })
        .collect();
    until("48 wait", || waiting(&world) >= 44).await;
    // The other share is mounted over another connection, and the first one still takes a call.
    let free = tokio::time::timeout(SOON, volume.free()).await;
    assert!(free.unwrap().is_ok());
    let (mut late, mut done) = (0, 0);
    for one in all {
        match one.await.unwrap() {
            Ok(()) => done += 1,
            Err(e) => {
                assert!(e.to_string().to_lowercase().contains("jukebox"), "{e}");
                late += 1;
            }
        }
    }
    assert!(late >= 20 && done > 0, "{late} were refused, {done} done");
    world.running.stop().await;
}

/// Each measure in each scope: what it counts, counts there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_scope_counts_each_measure() {
    let wide = Rates {
        read: Some(1 << 30),
        write: Some(1 << 30),
        operations: Some(1 << 20),
        read_operations: Some(1 << 19),
        write_operations: Some(1 << 19),
        ..Rates::default()
    };
    let (world, _dir) = with_alice(|s| {
        limit_data(s, wide);
        s.users[0].limits = wide;
        s.limits.all = wide;
        s.limits.client = wide;
    })
    .await;
    let scopes = [
        ScopeName::All,
        ScopeName::EachClient,
        ScopeName::Share("data".into()),
        ScopeName::User("alice".into()),
    ];
    let count = |world: &World| {
        scopes
            .clone()
            .map(|scope| Measure::ALL.map(|measure| passed(world, &scope, measure).passed))
    };
    for way in WAYS {
        let volume = dial(&world, way, "data").await;
        let file = volume.create(&format!("{way:?}")).await.unwrap();
        let before = count(&world);
        volume.write(&file, 0, vec![buf(&[7; 5000])]).await.unwrap();
        volume.read(&file, 0, 3000).await.unwrap();
        let after = count(&world);
        for (n, scope) in scopes.iter().enumerate() {
            let more: Vec<u64> = before[n].iter().zip(&after[n]).map(|(b, a)| a - b).collect();
            assert_eq!(more, [3000, 5000, 2, 1, 1], "{way:?} {scope:?}");
        }
    }
    world.running.stop().await;
}

/// Other clients may wait for a close, so it does not wait behind operations that do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_does_not_wait_for_a_rate() {
    let few = Rates { operations: Some(10), burst: Duration::from_millis(10), ..Rates::default() };
    let (world, _dir) = with_alice(|s| limit_data(s, few)).await;
    for way in [WAYS[2], WAYS[3], WAYS[4], WAYS[5]] {
        let volume = Arc::new(dial(&world, way, "data").await);
        let name = format!("{way:?}");
        let held = volume.create(&name).await.unwrap();
        // A second open of the same file would change the stateid of the first.
        let other = volume.create(&format!("{name} 2")).await.unwrap();
        let looks: Vec<_> = (0..30)
            .map(|_| {
                let (volume, other) = (volume.clone(), other.clone());
                tokio::spawn(async move { volume.size(&other).await.map(drop) })
            })
            .collect();
        until("they wait", || waiting(&world) >= 20).await;
        volume.close(held).await.unwrap();
        assert!(waiting(&world) > 0, "{way:?}: the close came after all others");
        for look in looks {
            look.await.unwrap().unwrap();
        }
    }
    world.running.stop().await;
}
