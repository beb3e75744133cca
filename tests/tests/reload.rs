//! Changes the configuration while clients work: unaffected clients notice no interruption, affected ones lose only what was
//! removed.

#![allow(clippy::unwrap_used)]
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use client::connect::Local;
use client::smb::{Options, Smb, User};
use client::target::{Transport, Version};
use client::{Error, Volume};
use config::{Identity, Protocols, Settings, Share, Signing, Source, Squash};
use gateway::changes::Refusal;
use headgate_tests::world::{WAYS, World, buf, pattern};
use rdma_transport::iwarp::{Iwarp, IwarpConfig};
use smb_proto::NtStatus;
use smb_proto::smb2::create::{Disposition, access, option};

const RELOADS: usize = 100;
const PIECE: usize = 100_000;

fn user(dir: &Path, name: &str) -> config::User {
    let file = dir.join(name);
    fs::write(&file, "correct horse\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let identity = Identity { uid: Some(0), gid: Some(0), groups: Some(Vec::new()) };
    config::User {
        name: name.into(),
        password_file: Some(file),
        identity,
        limits: config::Rates::default(),
    }
}

fn mem(name: &str) -> Share {
    Share { squash: Squash::None, ..Share::new(name, Source::Memory) }
}

/// Starts a gateway with users `alice` and `bob`; returns its settings, and a folder for their files.
async fn world() -> (World, Settings, tempfile::TempDir) {
    world_at([0; 4]).await
}

/// Ports unused at every address of this host, outside the kernel's ephemeral range, so that they stay free.
fn free_ports() -> [u16; 4] {
    let from = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    let is_free = |port: &u16| std::net::TcpListener::bind(("0.0.0.0", *port)).is_ok();
    let mut free = (from..).filter(is_free);
    std::array::from_fn(|_| free.next().unwrap())
}

/// Starts a gateway on these ports: NFS, NFS over RDMA, SMB, SMB Direct; 0 is any.
async fn world_at(ports: [u16; 4]) -> (World, Settings, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let mut kept = Settings::default();
    let world = World::with(|settings| {
        settings.users = vec![user(dir.path(), "alice"), user(dir.path(), "bob")];
        [settings.nfs_port, settings.nfs_rdma_port, settings.smb.port, settings.smb.direct_port] =
            ports;
        settings.smb.signing = Signing::Offered;
        kept = settings.clone();
    })
    .await;
    (world, kept, dir)
}

async fn smb(world: &World, rdma: bool, name: &str, share: &str) -> Result<Smb, Error> {
    let local =
        Local { rdma: Some(Arc::new(Iwarp::new(IwarpConfig::default()))), ..Local::default() };
    let at = if rdma { world.running.smb_direct[0] } else { world.running.smb[0] };
    let user = User { name: name.into(), domain: String::new(), password: "correct horse".into() };
    Smb::connect(at, rdma, ("127.0.0.1", share), &user, Options::default(), &local).await
}

/// Writes and reads until stopped: its own files, and one that it keeps open.
async fn work(volume: Volume, name: String, stop: Arc<AtomicBool>, done: Arc<AtomicU64>) {
    let held = volume.create(&format!("{name}-held")).await.unwrap();
    let mut at = 0;
    while !stop.load(Ordering::Relaxed) {
        let piece = pattern(&format!("{name}-{at}"), PIECE);
        let taken = volume.write(&held, at, vec![buf(&piece)]).await;
        let taken = taken.unwrap_or_else(|e| panic!("{name}: write: {e}"));
        assert_eq!(taken as usize, PIECE);
        let (read, _) = volume
            .read(&held, at, u32::try_from(PIECE).unwrap())
            .await
            .unwrap_or_else(|e| panic!("{name}: read: {e}"));
        let read: Vec<u8> = read.iter().flat_map(|b| b.to_vec()).collect();
        assert!(read == piece, "{name}: other data");
        let other = format!("{name}-other");
        let file = volume.create(&other).await.unwrap_or_else(|e| panic!("{name}: create: {e}"));
        volume.close(file).await.unwrap_or_else(|e| panic!("{name}: close: {e}"));
        volume.remove(&other).await.unwrap_or_else(|e| panic!("{name}: remove: {e}"));
        at = (at + PIECE as u64) % (20 * PIECE as u64);
        done.fetch_add(1, Ordering::Relaxed);
    }
    volume.close(held).await.unwrap_or_else(|e| panic!("{name}: close: {e}"));
}

/// The settings of one reload; each optional part comes and goes at its own interval.
fn step(base: &Settings, n: usize) -> Settings {
    let mut s = base.clone();
    if n % 2 == 1 {
        s.shares.push(mem("scratch"));
    }
    if n % 3 == 1 {
        s.shares.insert(0, mem("first"));
        s.users.truncate(1);
    }
    if n % 4 == 1 {
        s.bind.push([127, 0, 0, 2].into());
    }
    // Changes of a share in use that do not affect its clients.
    s.shares.iter_mut().filter(|s| s.name == "data").for_each(|s| s.comment = format!("step {n}"));
    s.connections = 2048 + n;
    s.memory = (256 - (n as u64 % 5) * 16) << 20;
    s
}

#[tokio::test(flavor = "multi_thread")]
async fn reloads_do_not_affect_other_clients() {
    let (mut world, base, _dir) = world().await;
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut clients = tokio::task::JoinSet::new();
    let mut volumes = Vec::new();
    for (version, transport) in WAYS {
        let volume = world.client("data", (version, transport)).await.unwrap();
        volumes.push((format!("{version:?}-{transport:?}"), volume));
    }
    for rdma in [false, true] {
        let smb = smb(&world, rdma, "alice", "data").await.unwrap();
        volumes.push((format!("smb-{rdma}"), Volume::Smb(smb)));
    }
    for (name, volume) in volumes {
        clients.spawn(work(volume, name, stop.clone(), done.clone()));
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut refused, mut at) = (0, done.load(Ordering::Relaxed));
    for n in 1..=RELOADS {
        // Some work is done between any two reloads, unless a client has failed.
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        while done.load(Ordering::Relaxed) < at + 4 {
            assert!(tokio::time::Instant::now() < deadline, "nobody works before reload {n}");
            if let Some(ended) = clients.try_join_next() {
                ended.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        at = done.load(Ordering::Relaxed);
        let mut next = step(&base, n);
        if n % 7 == 0 {
            // A reload that fails because its port is in use must not change any other setting.
            next.smb.port = taken.local_addr().unwrap().port();
            next.shares.remove(0);
            let before = world.running.endpoints();
            let why = world.running.reload(next).await.unwrap_err();
            assert!(matches!(&why, Refusal::Failed(why) if why.contains("is in use by")), "{why}");
            assert_eq!(world.running.endpoints(), before);
            refused += 1;
            continue;
        }
        let changes = world.running.reload(next).await.unwrap();
        assert_eq!(changes.sessions_ended + changes.trees_ended + changes.opens_ended, 0);
        assert_eq!(changes.connections_ended, 0, "{changes}");
        assert_eq!(world.running.nfs.len(), if n % 4 == 1 { 2 } else { 1 });
    }
    assert_eq!(refused, RELOADS / 7);
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    assert!(world.running.stop().await);
}

fn status(e: Error) -> NtStatus {
    match e {
        Error::Smb(_, status) => status,
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_share_affects_its_users_only() {
    let (mut world, base, _dir) = world().await;
    let mut with = base.clone();
    with.shares.push(mem("scratch"));
    world.running.reload(with.clone()).await.unwrap();
    let v3 = world.client("scratch", (Version::V3, Transport::Tcp)).await.unwrap();
    let v41 = world.client("scratch", (Version::V41, Transport::Rdma)).await.unwrap();
    let of_smb = smb(&world, true, "alice", "scratch").await.unwrap();
    let elsewhere = smb(&world, false, "alice", "data").await.unwrap();
    let (a, b) = (v3.create("a").await.unwrap(), v41.create("b").await.unwrap());
    let c = of_smb.create("c").await.unwrap();
    let d = elsewhere.create("d").await.unwrap();
    let changes = world.running.reload(base).await.unwrap();
    assert_eq!(changes.shares_removed, ["scratch"]);
    assert_eq!((changes.trees_ended, changes.sessions_ended), (1, 0));
    assert!(changes.opens_ended >= 1, "the open of version 4.1");
    for (volume, file) in [(&v3, &a), (&v41, &b)] {
        let why = volume.read(file, 0, 10).await.unwrap_err();
        // NFS3ERR_STALE and NFS4ERR_STALE.
        assert!(matches!(why, Error::Nfs3(70) | Error::Nfs4(_, 70)), "{why}");
    }
    let why = status(of_smb.read(&c, 0, 10).await.unwrap_err());
    assert_eq!(why, NtStatus::NETWORK_NAME_DELETED);
    // The connections stay open, and all else works.
    assert_eq!(elsewhere.write(&d, 0, vec![buf(b"still here")]).await.unwrap(), 10);
    let why = status(smb(&world, false, "alice", "scratch").await.err().unwrap());
    assert_eq!(why, NtStatus::BAD_NETWORK_NAME);
    // When served again it is a new volume without state.
    world.running.reload(with).await.unwrap();
    let again = smb(&world, false, "alice", "scratch").await.unwrap();
    assert_eq!(status(again.find("c").await.unwrap_err()), NtStatus::OBJECT_NAME_NOT_FOUND);
}

/// Requests that wait in it, for a lock or a change, are answered at once; their client continues elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn removed_share_ends_waiting_requests() {
    let (mut world, base, _dir) = world().await;
    let mut with = base.clone();
    with.shares.push(mem("scratch"));
    world.running.reload(with.clone()).await.unwrap();
    let holder = smb(&world, false, "alice", "scratch").await.unwrap();
    let waiter = Arc::new(smb(&world, true, "bob", "scratch").await.unwrap());
    let mine = holder.create("f").await.unwrap();
    holder.lock(&mine, (0, 10), true, true).await.unwrap();
    let theirs = Arc::new(waiter.find("f").await.unwrap());
    let (w, t) = (waiter.clone(), theirs.clone());
    let locking = tokio::spawn(async move { w.lock(&t, (0, 1), true, true).await });
    let (w, options) = (waiter.clone(), option::DIRECTORY_FILE);
    let root = w.open("", access::READ_DATA, Disposition::Open, options).await.unwrap();
    let watching = tokio::spawn(async move { w.notify(&root, true, 0xff).await });
    // Requests of one connection are started in order: when this one is answered, those before it are waiting.
    waiter.list("").await.unwrap();
    let changes = world.running.reload(base).await.unwrap();
    assert_eq!((changes.trees_ended, changes.sessions_ended), (2, 0));
    let ended = |e: Error| {
        let why = status(e);
        // Either the end of the open, or of the tree, whichever is noticed first (MS-SMB2 section 3.3.4.8, 3.3.5.8).
        let known = [
            NtStatus::NETWORK_NAME_DELETED,
            NtStatus::RANGE_NOT_LOCKED,
            NtStatus::NOTIFY_CLEANUP,
            NtStatus::CANCELLED,
            NtStatus::FILE_CLOSED,
        ];
        assert!(known.contains(&why), "{why:?}");
    };
    let soon = Duration::from_secs(60);
    let locked = tokio::time::timeout(soon, locking).await.unwrap().unwrap();
    ended(locked.unwrap_err());
    let told = tokio::time::timeout(soon, watching).await.unwrap().unwrap();
    ended(told.unwrap_err());
    // When served again, it has no locks.
    world.running.reload(with).await.unwrap();
    let again = smb(&world, false, "bob", "scratch").await.unwrap();
    let file = again.create("f").await.unwrap();
    again.lock(&file, (0, 0xff), true, false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn share_protocols_can_change() {
    let (mut world, base, _dir) = world().await;
    let by = |protocols| {
        let mut s = base.clone();
        s.shares.iter_mut().filter(|s| s.name == "mem").for_each(|s| s.protocols = protocols);
        s
    };
    let v3 = world.client("mem", (Version::V3, Transport::Tcp)).await.unwrap();
    let v41 = world.client("mem", (Version::V41, Transport::Rdma)).await.unwrap();
    let of_smb = smb(&world, true, "alice", "mem").await.unwrap();
    let (a, b) = (v3.create("a").await.unwrap(), v41.create("b").await.unwrap());
    let c = of_smb.create("c").await.unwrap();
    // Only SMB: NFS clients lose the share and cannot find it; the SMB client is not affected.
    let changes = world.running.reload(by(Protocols::Smb)).await.unwrap();
    assert_eq!((changes.trees_ended, changes.shares_changed), (0, vec!["mem".to_owned()]));
    assert!(changes.opens_ended >= 1, "the open of version 4.1");
    for (volume, file) in [(&v3, &a), (&v41, &b)] {
        let why = volume.read(file, 0, 10).await.unwrap_err();
        // NFS3ERR_STALE and NFS4ERR_STALE.
        assert!(matches!(why, Error::Nfs3(70) | Error::Nfs4(_, 70)), "{why}");
    }
    let why = world.client("mem", (Version::V3, Transport::Tcp)).await.err().unwrap();
    assert_eq!(why, Error::Mount(2));
    let why = world.client("mem", (Version::V42, Transport::Tcp)).await.err().unwrap();
    assert!(matches!(why, Error::Nfs4(_, 2)), "NFS4ERR_NOENT: {why}");
    let root = world.client("", (Version::V41, Transport::Tcp)).await.unwrap();
    let names = root.list().await.unwrap();
    assert!(!names.is_empty() && !names.contains(&b"mem".to_vec()), "{names:?}");
    assert_eq!(of_smb.write(&c, 0, vec![buf(b"still here")]).await.unwrap(), 10);
    // Only NFS: the reverse, and data written over SMB is present.
    let changes = world.running.reload(by(Protocols::Nfs)).await.unwrap();
    assert_eq!(changes.trees_ended, 1);
    let why = status(of_smb.read(&c, 0, 10).await.unwrap_err());
    assert_eq!(why, NtStatus::NETWORK_NAME_DELETED);
    let why = status(smb(&world, false, "alice", "mem").await.err().unwrap());
    assert_eq!(why, NtStatus::BAD_NETWORK_NAME);
    let v3 = world.client("mem", (Version::V3, Transport::Tcp)).await.unwrap();
    let c = v3.find("c").await.unwrap();
    assert_eq!(v3.size(&c).await.unwrap(), 10);
    // Both protocols again.
    world.running.reload(base.clone()).await.unwrap();
    smb(&world, false, "alice", "mem").await.unwrap().find("c").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_protocols_have_no_listener() {
    let (mut world, base, _dir) = world().await;
    let all = |protocols| {
        let mut s = base.clone();
        s.shares.iter_mut().for_each(|s| s.protocols = protocols);
        s
    };
    let at = |world: &World| {
        let r = &world.running;
        [&r.nfs, &r.nfs_rdma, &r.smb, &r.smb_direct].map(|list| list.len())
    };
    assert_eq!(at(&world), [1; 4]);
    world.running.reload(all(Protocols::Smb)).await.unwrap();
    assert_eq!(at(&world), [0, 0, 1, 1]);
    smb(&world, false, "alice", "data").await.unwrap();
    world.running.reload(all(Protocols::Nfs)).await.unwrap();
    assert_eq!(at(&world), [1, 1, 0, 0]);
    world.running.reload(base).await.unwrap();
    assert_eq!(at(&world), [1; 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_user_is_logged_off() {
    let (mut world, base, _dir) = world().await;
    let alice = smb(&world, false, "alice", "data").await.unwrap();
    let bob = smb(&world, false, "bob", "data").await.unwrap();
    let mut without = base.clone();
    without.users.retain(|u| u.name != "bob");
    let changes = world.running.reload(without).await.unwrap();
    assert_eq!((changes.users_removed, changes.sessions_ended), (vec!["bob".to_owned()], 1));
    assert_eq!(status(bob.list("").await.unwrap_err()), NtStatus::USER_SESSION_DELETED);
    alice.list("").await.unwrap();
    let why = status(smb(&world, false, "bob", "data").await.err().unwrap());
    assert_eq!(why, NtStatus::LOGON_FAILURE);
    // A changed uid: the session must not continue with the old one.
    let mut other = base;
    other.users[0].identity.uid = Some(7);
    let changes = world.running.reload(other).await.unwrap();
    assert_eq!(changes.sessions_ended, 1);
    assert_eq!(status(alice.list("").await.unwrap_err()), NtStatus::USER_SESSION_DELETED);
    smb(&world, false, "bob", "data").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn share_rules_apply_at_once() {
    let (mut world, base, _dir) = world().await;
    let nfs = world.client("mem", (Version::V41, Transport::Tcp)).await.unwrap();
    let of_smb = smb(&world, false, "alice", "mem").await.unwrap();
    let file = nfs.create("f").await.unwrap();
    nfs.write(&file, 0, vec![buf(b"kept")]).await.unwrap();
    let change = |f: fn(&mut Share)| {
        let mut s = base.clone();
        s.shares.iter_mut().filter(|s| s.name == "mem").for_each(f);
        s
    };
    // More address ranges, another comment: no client is affected.
    let wider = |s: &mut Share| {
        s.clients = Some(vec!["127.0.0.0/8".parse().unwrap(), "10.0.0.0/8".parse().unwrap()]);
    };
    let changes = world.running.reload(change(wider)).await.unwrap();
    assert_eq!((changes.trees_ended, changes.shares_changed), (0, vec!["mem".to_owned()]));
    of_smb.list("").await.unwrap();
    // Read-only: clients that could write must reconnect; existing data stays.
    let changes = world.running.reload(change(|s| s.read_only = true)).await.unwrap();
    assert_eq!(changes.trees_ended, 1);
    assert_eq!(status(of_smb.list("").await.unwrap_err()), NtStatus::NETWORK_NAME_DELETED);
    assert!(nfs.write(&file, 0, vec![buf(b"lost")]).await.is_err());
    let (data, _) = nfs.read(&file, 0, 10).await.unwrap();
    assert_eq!(data.iter().flat_map(|b| b.to_vec()).collect::<Vec<_>>(), b"kept");
    let again = smb(&world, false, "alice", "mem").await.unwrap();
    assert_eq!(status(again.create("g").await.unwrap_err()), NtStatus::MEDIA_WRITE_PROTECTED);
    // The change is reverted.
    world.running.reload(base).await.unwrap();
    nfs.write(&file, 0, vec![buf(b"more")]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_address_ends_its_connections() {
    let (mut world, base, _dir) = world_at(free_ports()).await;
    let stays = world.client("mem", (Version::V3, Transport::Tcp)).await.unwrap();
    let before = world.running.nfs.clone();
    let mut both = base.clone();
    both.bind.push([127, 0, 0, 3].into());
    let changes = world.running.reload(both).await.unwrap();
    assert_eq!((changes.opened.len(), changes.closed.len()), (4, 0), "{changes}");
    let second = world.running.nfs[1];
    let mut raw = tokio::net::TcpStream::connect(second).await.unwrap();
    // The connection is accepted before it is closed.
    while world.running.connections() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let changes = world.running.reload(base.clone()).await.unwrap();
    assert_eq!((changes.connections_ended, changes.closed.len()), (1, 4), "{changes}");
    let mut byte = [0; 1];
    let end = tokio::io::AsyncReadExt::read(&mut raw, &mut byte);
    let end = tokio::time::timeout(Duration::from_secs(60), end).await.unwrap();
    assert_eq!(end.unwrap(), 0, "an orderly end");
    assert!(tokio::net::TcpStream::connect(second).await.is_err());
    assert_eq!(world.running.nfs, before);
    stays.create("f").await.unwrap();
    // All addresses are replaced by a single wildcard on the same port: the old listener must close first.
    let port = before[0].port();
    let all = Settings { nfs_port: port, bind: vec![[0, 0, 0, 0].into()], ..base.clone() };
    world.running.reload(all).await.unwrap();
    assert_eq!(world.running.nfs, [([0, 0, 0, 0], port).into()]);
    let one = Settings { nfs_port: port, ..base.clone() };
    world.running.reload(one).await.unwrap();
    assert_eq!(world.running.nfs, before);
    stays.create("g").await.unwrap();
    // Without RDMA.
    let without = Settings { nfs_port: port, rdma: config::Rdma::Off, ..base };
    world.running.reload(without).await.unwrap();
    assert!(world.running.nfs_rdma.is_empty() && world.running.smb_direct.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_reload_changes_no_setting() {
    let (mut world, base, dir) = world().await;
    let mut next = base.clone();
    next.state = dir.path().join("elsewhere");
    next.lease = Duration::from_secs(7);
    next.shares.clear();
    next.shares.push(mem("other"));
    let why = world.running.reload(next).await.unwrap_err();
    let Refusal::Fixed(fixed) = &why else { panic!("{why}") };
    assert_eq!(fixed.iter().map(|f| f.key).collect::<Vec<_>>(), ["state", "nfs.lease"]);
    let text = why.to_string();
    let line =
        "error: `nfs.lease` cannot change while the gateway runs: it is 90s, and 7s was requested";
    assert!(text.contains(line) && text.contains("nothing was changed"), "{text}");
    smb(&world, false, "alice", "data").await.unwrap();
    let why = status(smb(&world, false, "alice", "other").await.err().unwrap());
    assert_eq!(why, NtStatus::BAD_NETWORK_NAME);
    // A folder that does not exist.
    let mut next = base;
    next.shares[0].source = Source::Folder("/no/such/folder".into());
    let why = world.running.reload(next).await.unwrap_err().to_string();
    assert!(why.contains("share data: /no/such/folder") && why.contains("nothing was"), "{why}");
    assert_eq!(world.running.reload(base_of(&world)).await.unwrap(), Default::default());
}

fn base_of(world: &World) -> Settings {
    world.running.settings().clone()
}

/// Handles become stale also if the new folder contains the old one, so that each file is served under another path.
#[tokio::test(flavor = "multi_thread")]
async fn changed_folder_makes_handles_stale() {
    let (mut world, base, dir) = world().await;
    let (above, old) = (dir.path().join("above"), dir.path().join("above/old"));
    fs::create_dir_all(&old).unwrap();
    let of = |folder: &Path| {
        let mut settings = base.clone();
        let source = Source::Folder(folder.to_owned());
        settings.shares.push(Share { squash: Squash::None, ..Share::new("moves", source) });
        settings
    };
    world.running.reload(of(&old)).await.unwrap();
    let v3 = world.client("moves", (Version::V3, Transport::Tcp)).await.unwrap();
    let v41 = world.client("moves", (Version::V41, Transport::Tcp)).await.unwrap();
    let (a, b) = (v3.create("a").await.unwrap(), v41.create("b").await.unwrap());
    world.running.reload(of(&above)).await.unwrap();
    for (volume, file) in [(&v3, &a), (&v41, &b)] {
        let why = volume.write(file, 0, vec![buf(b"to nobody")]).await.unwrap_err();
        // NFS3ERR_STALE and NFS4ERR_STALE.
        assert!(matches!(why, Error::Nfs3(70) | Error::Nfs4(_, 70)), "{why}");
    }
    assert_eq!(fs::read(old.join("a")).unwrap(), b"");
    // The old handles are valid again.
    world.running.reload(of(&old)).await.unwrap();
    assert_eq!(v3.write(&a, 0, vec![buf(b"again")]).await.unwrap(), 5);
    assert_eq!(fs::read(old.join("a")).unwrap(), b"again");
}
