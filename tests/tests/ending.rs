//! Revocation by the administrator: single opens and locks with `headgate close`, whole clients with `headgate disconnect`. The
//! client is informed as its protocol allows, conflicting clients proceed, and acknowledged data is kept.

#![allow(clippy::unwrap_used)]
use std::sync::Arc;
use std::time::Duration;

use client::connect::Local;
use client::nfs4::{LockType4, Minor, Nfs4, OpenFile, OpenHow, Recall, Recalls, StableHow4};
use client::nlm::Nlm;
use client::smb::{Break, Caching, OpenHow as SmbHow, Options, Smb};
use client::{Credential, Error, NoCallbacks, mount};
use gateway::control::ending::{Client, Disconnected, What};
use gateway::control::files::HeldFile;
use headgate_tests::world::smb::{alice, with_alice};
use headgate_tests::world::{World, buf};
use nfs_proto::nfs4::Nfsstat4;
use smb_proto::NtStatus;
use smb_proto::smb2::create::{Disposition, oplock, option};
use smbd_core::dtyp::mask;
use tokio::sync::mpsc::Receiver;

const ALL: (u64, u64) = (0, 10);
const EXCLUSIVE: LockType4 = LockType4::Write;
/// READ, HANDLE and WRITE caching of a lease.
const RWH: u32 = 7;
const PATIENCE: Duration = Duration::from_secs(60);

fn cred() -> Credential {
    Credential::sys(0, 0, &[])
}

async fn smb(world: &World) -> Smb {
    let at = world.running.smb[0];
    let local = Local::default();
    Smb::connect(at, false, ("127.0.0.1", "data"), &alice(), Options::default(), &local)
        .await
        .unwrap()
}

async fn nfs4(world: &World, owner: &[u8]) -> (Nfs4, Receiver<Recall>) {
    let (callbacks, recalls) = Recalls::new();
    let at = world.running.nfs[0];
    let rpc = client::connect::tcp(at, &Local::default(), Arc::new(callbacks)).await.unwrap();
    (Nfs4::connect(rpc, cred(), Minor::Two, owner, [7; 8]).await.unwrap(), recalls)
}

async fn nlm(world: &World, host: &str) -> (Nlm, client::nfs3::Fh) {
    let at = world.running.nfs[0];
    let local = Local::default();
    let rpc = client::connect::tcp(at, &local, Arc::new(NoCallbacks)).await.unwrap();
    let root = mount::mount(&rpc, &cred(), "/data").await.unwrap();
    let nfs3 = client::nfs3::Nfs3::new(rpc.clone(), cred());
    let (fh, _) = nfs3.lookup(&root, b"f").await.unwrap();
    (Nlm::new(rpc, cred(), host), fh)
}

async fn open(nfs: &Nfs4, how: OpenHow) -> OpenFile {
    let dir = nfs.walk("/data").await.unwrap();
    nfs.open(&dir, b"f", b"owner", how).await.unwrap()
}

fn plain() -> OpenHow {
    OpenHow { want: OpenHow::WANT_NO_DELEG, ..OpenHow::WRITE }
}

/// The holdings of the file that match.
async fn held(world: &World, is: impl Fn(&HeldFile) -> bool) -> Vec<HeldFile> {
    let all = world.running.held_files().await.files;
    all.into_iter().filter(|f| f.path.as_deref() == Some("f") && is(f)).collect()
}

async fn close(world: &World, what: What) -> Vec<HeldFile> {
    let closed = tokio::time::timeout(PATIENCE, world.running.close(&what)).await;
    closed.unwrap().files
}

async fn disconnect(world: &World, client: &str) -> Disconnected {
    world.running.disconnect(&client.parse::<Client>().unwrap()).await
}

fn refused<T>(done: Result<T, Error>) -> Nfsstat4 {
    match done {
        Err(Error::Nfs4(_, status)) => Nfsstat4::from_u32(status).unwrap(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was done"),
    }
}

async fn with_a_file() -> (World, tempfile::TempDir) {
    let (world, dir) = with_alice(|s| s.shares[0].continuous_availability = true).await;
    std::fs::write(world.folder().join("f"), b"content").unwrap();
    (world, dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_are_listed_and_revoked_separately() {
    let (world, _dir) = with_a_file().await;
    let (first, fh) = nlm(&world, "first").await;
    let (second, _) = nlm(&world, "second").await;
    first.lock(&fh, ALL, true).await.unwrap();
    let locks = held(&world, |f| f.how == "locked").await;
    let [lock] = &locks[..] else { panic!("{locks:?}") };
    assert_eq!((lock.share.as_str(), lock.client.as_str()), ("data", "first"));
    assert_eq!((lock.protocol.as_str(), lock.address), ("nfs", Some([127, 0, 0, 1].into())));
    assert!(second.lock(&fh, ALL, true).await.is_err());
    assert_eq!(close(&world, What::Id(lock.id)).await, locks);
    assert_eq!(close(&world, What::Id(lock.id)).await, [], "it is gone");
    second.lock(&fh, ALL, true).await.unwrap();
    second.unlock(&fh, ALL).await.unwrap();
    // Version 4: only the lock is revoked, and the client is informed.
    let (nfs, _recalls) = nfs4(&world, b"four").await;
    let file = open(&nfs, plain()).await;
    let stateid = nfs.lock(&file, b"locker", EXCLUSIVE, ALL).await.unwrap();
    assert!(first.lock(&fh, ALL, true).await.is_err());
    let locks = held(&world, |f| f.how == "locked").await;
    let [lock] = &locks[..] else { panic!("{locks:?}") };
    assert_eq!(lock.client, "four");
    assert_eq!(close(&world, What::Id(lock.id)).await, locks);
    first.lock(&fh, ALL, true).await.unwrap();
    let unlocked = nfs.unlock(&file.fh, stateid, EXCLUSIVE, ALL).await;
    assert_eq!(refused(unlocked), Nfsstat4::AdminRevoked);
    nfs.read(&file.fh, file.stateid, 0, 7).await.unwrap();
    nfs.close(&file).await.unwrap();
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_file_informs_all_holders() {
    let (world, _dir) = with_a_file().await;
    let (nfs, _recalls) = nfs4(&world, b"four").await;
    let file = open(&nfs, plain()).await;
    nfs.write(&file.fh, file.stateid, 0, vec![buf(b"CONTENT")], StableHow4::Unstable)
        .await
        .unwrap();
    let smb = smb(&world).await;
    let by_smb = smb.find("f").await.unwrap();
    let (host, fh) = nlm(&world, "host").await;
    host.lock(&fh, ALL, false).await.unwrap();
    let before = held(&world, |_| true).await;
    assert_eq!(before.len(), 3, "{before:?}");
    assert_eq!(close(&world, What::File("/data/F".into())).await, [], "another file");
    assert_eq!(close(&world, What::File("/data/f".into())).await, before);
    assert_eq!(held(&world, |_| true).await, []);
    let read = nfs.read(&file.fh, file.stateid, 0, 7).await;
    assert_eq!(refused(read), Nfsstat4::AdminRevoked);
    let read = smb.read(&by_smb, 0, 7).await;
    assert!(matches!(read, Err(Error::Smb(_, NtStatus::FILE_CLOSED))), "{read:?}");
    assert_eq!(std::fs::read(world.folder().join("f")).unwrap(), b"CONTENT");
    // No client is blocked any more.
    let file = open(&nfs, plain()).await;
    nfs.close(&file).await.unwrap();
    let again = smb.find("f").await.unwrap();
    smb.close(again).await.unwrap();
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn caching_holder_is_recalled_before_close() {
    let (world, _dir) = with_a_file().await;
    let (nfs, mut recalls) = nfs4(&world, b"four").await;
    let file = open(&nfs, OpenHow::WRITE).await;
    let delegated = file.delegation.expect("who is alone gets a delegation");
    let holder = async {
        let recall = recalls.recv().await.unwrap();
        assert_eq!(recall.stateid, delegated.stateid);
        nfs.write(&file.fh, delegated.stateid, 0, vec![buf(b"by nfs.")], StableHow4::FileSync)
            .await
            .unwrap();
        nfs.delegreturn(&file.fh, delegated.stateid).await.unwrap();
    };
    let (closed, ()) = tokio::join!(close(&world, What::File("/data/f".into())), holder);
    assert!(closed.iter().any(|f| f.how.starts_with("delegated")), "{closed:?}");
    assert_eq!(std::fs::read(world.folder().join("f")).unwrap(), b"by nfs.");
    assert_eq!(held(&world, |_| true).await, []);
    nfs.destroy().await.unwrap();

    let smb = smb(&world).await;
    let mut breaks = smb.breaks().unwrap();
    let how = SmbHow::WRITE.cached(Caching::Lease([9; 16], RWH));
    let (by_smb, granted) = smb.open_cached("f", &how).await.unwrap();
    assert_eq!(granted, RWH);
    // The lease is given up step by step, as requested.
    let holder = async {
        let mut wrote = false;
        while let Some(Break::LeaseNotice(told)) = breaks.recv().await {
            if !wrote {
                smb.write(&by_smb, 0, vec![buf(b"by smb.")]).await.unwrap();
                wrote = true;
            }
            if told.acknowledge {
                smb.acknowledge_lease(told.key, told.to).await.unwrap();
            }
        }
    };
    let closed = tokio::select! {
        closed = close(&world, What::File("/data/f".into())) => closed,
        () = holder => panic!("no more breaks"),
    };
    assert_eq!(closed.len(), 1, "{closed:?}");
    assert_eq!(std::fs::read(world.folder().join("f")).unwrap(), b"by smb.");
    let read = smb.read(&by_smb, 0, 7).await;
    assert!(matches!(read, Err(Error::Smb(_, NtStatus::FILE_CLOSED))), "{read:?}");
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnected_client_returns_without_state() {
    let (world, _dir) = with_a_file().await;
    // A persistent handle waits for its client, which has disconnected.
    let gone = smb(&world).await;
    let (_, _) = gone.open_persistent("f", [3; 16], Caching::None).await.unwrap();
    drop(gone);
    let waits =
        async || held(&world, |f| f.client == "disconnected, may come back").await.len() == 1;
    until(waits).await;
    let (nfs, _recalls) = nfs4(&world, b"four").await;
    let file = open(&nfs, plain()).await;
    nfs.write(&file.fh, file.stateid, 0, vec![buf(b"written")], StableHow4::Unstable)
        .await
        .unwrap();
    let (host, fh) = nlm(&world, "host").await;
    host.lock(&fh, ALL, true).await.unwrap();
    let smb = smb(&world).await;
    let by_smb = smb.find("f").await.unwrap();
    assert_eq!(disconnect(&world, "192.0.2.1").await, Disconnected::default(), "somebody else");
    let lost = disconnect(&world, "127.0.0.1").await;
    assert_eq!(
        lost,
        Disconnected {
            connections: 3,
            smb_sessions: 1,
            smb_waiting_opens: 1,
            nfs4_clients: 1,
            nfs3_hosts: 1,
        }
    );
    until(async || world.running.connections() == 0).await;
    assert!(smb.read(&by_smb, 0, 7).await.is_err());
    assert_eq!(world.running.held_files().await.files, []);
    assert_eq!(std::fs::read(world.folder().join("f")).unwrap(), b"written");
    // With the same name and verifier: it is a new client without state.
    let (again, _recalls) = nfs4(&world, b"four").await;
    let read = again.read(&file.fh, file.stateid, 0, 7).await;
    assert_eq!(refused(read), Nfsstat4::BadStateId);
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ending_connection_creates_no_state() {
    let (world, _dir) = with_a_file().await;
    // Each needs a commit of the store at its end, which takes time.
    let mut hosts = Vec::new();
    for number in 0..40 {
        let (host, fh) = nlm(&world, &format!("host {number}")).await;
        host.lock(&fh, ALL, false).await.unwrap();
        hosts.push(host);
    }
    let (callbacks, _recalls) = Recalls::new();
    let at = world.running.nfs[0];
    let rpc = client::connect::tcp(at, &Local::default(), Arc::new(callbacks)).await.unwrap();
    // A client that has lost its session creates another and opens again, as long as its connection lasts.
    let (ready, is_ready) = tokio::sync::oneshot::channel();
    let mut ready = Some(ready);
    let stubborn = tokio::spawn(async move {
        while let Ok(nfs) = Nfs4::connect(rpc.clone(), cred(), Minor::Two, b"four", [7; 8]).await {
            let Ok(dir) = nfs.walk("/data").await else { continue };
            let Ok(file) = nfs.open(&dir, b"f", b"owner", plain()).await else { continue };
            if let Some(ready) = ready.take() {
                ready.send(()).unwrap();
            }
            while nfs.read(&file.fh, file.stateid, 0, 7).await.is_ok() {}
        }
    });
    is_ready.await.unwrap();
    let lost = disconnect(&world, "127.0.0.1").await;
    assert_eq!((lost.connections, lost.nfs4_clients, lost.nfs3_hosts), (41, 1, 40));
    tokio::time::timeout(PATIENCE, stubborn).await.unwrap().unwrap();
    assert_eq!(world.running.held_files().await.files, []);
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nfs_client_is_disconnected_by_name() {
    let (world, _dir) = with_a_file().await;
    let (one, _recalls) = nfs4(&world, b"one").await;
    let (other, _recalls) = nfs4(&world, b"other").await;
    let (of_one, of_other) = (open(&one, plain()).await, open(&other, plain()).await);
    let lost = disconnect(&world, "one").await;
    assert_eq!(lost, Disconnected { nfs4_clients: 1, ..Disconnected::default() });
    let read = one.read(&of_one.fh, of_one.stateid, 0, 7).await;
    assert_eq!(refused(read), Nfsstat4::BadSession);
    other.read(&of_other.fh, of_other.stateid, 0, 7).await.unwrap();
    world.running.stop().await;
}

async fn until(is: impl AsyncFn() -> bool) {
    let wait = async {
        while !is().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}

/// MS-SMB2 section 3.3.7.1 lets a durable open wait for its client; one with delete-on-close deletes its file at the latest when
/// the gateway stops, because the next run does not know of it.
#[tokio::test(flavor = "multi_thread")]
async fn stop_deletes_files_of_durable_opens() {
    let (world, _dir) = with_alice(|_| ()).await;
    let how = SmbHow {
        access: SmbHow::WRITE.access | mask::DELETE,
        disposition: Disposition::OpenIf,
        ..SmbHow::WRITE.cached(Caching::Oplock(oplock::BATCH))
    };
    let doomed = SmbHow { options: how.options | option::DELETE_ON_CLOSE, ..how };
    // One client has disconnected before the stop, the other is disconnected by it.
    let (gone, there) = (smb(&world).await, smb(&world).await);
    for (client, name) in [(&gone, "gone"), (&there, "there")] {
        client.open_durable(name, [1; 16], &doomed).await.unwrap();
    }
    gone.open_durable("kept", [2; 16], &how).await.unwrap();
    drop(gone);
    let folder = world.folder();
    assert!(world.running.stop().await);
    let left: Vec<_> = ["gone", "there", "kept"].map(|name| folder.join(name).exists()).into();
    assert_eq!(left, [false, false, true]);
}
