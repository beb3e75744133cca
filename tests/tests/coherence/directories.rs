//! Caching of directories and of file times by NFSv4 clients, over a session with its backchannel.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use client::connect::{self, Local};
use client::nfs3::{CreateHow, SetAttr};
use client::nfs4::{DelegatedAttrs, Fh, Minor, Nfs4, OpenHow, Recalls, Stateid};
use client::{Credential, Error};
use headgate_tests::world::World;
use headgate_tests::world::smb::{alice, with_alice};

use crate::side::{Side, Way, patiently};

const ENOUGH: Duration = Duration::from_secs(60);

fn sh(dir: &std::path::Path, script: &str) {
    let done = Command::new("sh").arg("-c").arg(script).current_dir(dir).status().unwrap();
    assert!(done.success(), "{script}: {done}");
}

async fn sides() -> (World, tempfile::TempDir, Side, Side) {
    let (world, dir) = with_alice(|_| ()).await;
    let a = Side::connect(&world, &alice(), Way::Tcp).await.unwrap();
    let b = Side::connect(&world, &alice(), Way::Tcp).await.unwrap();
    (world, dir, a, b)
}

/// Obtains a delegation of a new directory.
async fn delegated(a: &Side, name: &str) -> (Fh, Stateid) {
    std::fs::create_dir(a.folder.join(name)).unwrap();
    let (dir, _) = a.nfs4.lookup(&a.root4, name.as_bytes()).await.unwrap();
    let stateid = a.nfs4.get_dir_delegation(&dir).await.unwrap();
    (dir, stateid.unwrap())
}

/// Waits for the recall, checks whether the listing is unchanged, and returns the delegation.
async fn give_back(a: &mut Side, dir: &Fh, stateid: Stateid, unchanged: bool) {
    let recall = tokio::time::timeout(ENOUGH, a.recalls.recv()).await.unwrap();
    assert_eq!(recall.map(|r| (r.stateid, r.fh)), Some((stateid, dir.clone())));
    if unchanged {
        assert!(a.nfs4.list(dir).await.unwrap().is_empty(), "what it kept of it is still true");
    }
    a.nfs4.delegreturn(dir, stateid).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_delegation_is_recalled_before_change() {
    let (world, _dir, mut a, b) = sides().await;
    for protocol in ["SMB", "NFSv3", "NFSv4", "local"] {
        let (dir, stateid) = delegated(&a, protocol).await;
        let comes = async {
            match protocol {
                "SMB" => {
                    let file = b.smb.create(&format!("{protocol}\\new")).await.unwrap();
                    b.smb.close(file).await.unwrap();
                }
                "NFSv3" => {
                    let (d, _) = b.nfs3.lookup(&b.root3, protocol.as_bytes()).await.unwrap();
                    let how = || CreateHow::Guarded(SetAttr::default());
                    patiently(|| b.nfs3.create(&d, b"new", how())).await.unwrap();
                }
                "NFSv4" => {
                    let (d, _) = b.nfs4.lookup(&b.root4, protocol.as_bytes()).await.unwrap();
                    // Without this flag it would get a delegation, and be queried for the size of the new file, but it does not
                    // answer callbacks.
                    let want = OpenHow::WANT_NO_DELEG;
                    let how = OpenHow { want, ..OpenHow::create(0o644) };
                    let made = patiently(|| b.nfs4.open(&d, b"new", b"owner", how)).await.unwrap();
                    b.nfs4.close(&made).await.unwrap();
                }
                _ => sh(&b.folder, "touch local/new"),
            }
        };
        let (_, ()) = tokio::join!(comes, give_back(&mut a, &dir, stateid, protocol != "local"));
        assert_eq!(a.nfs4.list(&dir).await.unwrap().len(), 1, "{protocol}");
    }
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_lease_and_delegation_coexist() {
    use client::smb::{Caching, OpenHow as Smb};
    let (world, _dir, mut a, mut b) = sides().await;
    let (dir, stateid) = delegated(&a, "d").await;
    let (handle, granted) =
        b.smb.open_cached("d", &Smb::LIST.cached(Caching::Lease([7; 16], 3))).await.unwrap();
    assert_eq!(granted, 3, "readers of one directory");
    sh(&a.folder, "touch d/new");
    give_back(&mut a, &dir, stateid, false).await;
    let told = tokio::time::timeout(ENOUGH, b.breaks.recv()).await.expect("a break");
    let Some(client::smb::Break::LeaseNotice(n)) = told else { panic!("{told:?}") };
    b.smb.acknowledge_lease([7; 16], n.to).await.unwrap();
    b.smb.close(handle).await.unwrap();
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn delegated_times_are_visible_and_kept() {
    let (world, _dir, a, b) = sides().await;
    let (callbacks, _recalls) = Recalls::new();
    let keeps = callbacks.keeps();
    let local = Local::default();
    let rpc = connect::tcp(world.running.nfs[0], &local, Arc::new(callbacks)).await.unwrap();
    let root = Credential::sys(0, 0, &[]);
    let nfs = Nfs4::connect(rpc, root, Minor::Two, b"times", *b"one boot").await.unwrap();
    let want = OpenHow::WANT_DELEG_TIMESTAMPS | OpenHow::WANT_OPEN_XOR_DELEGATION;
    std::fs::write(a.folder.join("f"), b"base!").unwrap();
    let how = OpenHow { want, ..OpenHow::WRITE };
    let file = nfs.open(&a.root4, b"f", b"owner", how).await.unwrap();
    let given = file.delegation.expect("a delegation");
    assert!(given.write && given.times && !file.is_open());
    let change = nfs.getattr(&file.fh).await.unwrap().change;
    let (access, modify) = ((1_000_000_000, 1), (1_000_000_001, 2));
    let kept = DelegatedAttrs { change: change + 1, size: 7, access, modify };
    keeps.lock().unwrap().insert(file.fh.clone(), kept);
    // Other clients over each protocol see 7 bytes, of which the server has 5.
    let (fh3, _) = b.nfs3.lookup(&b.root3, b"f").await.unwrap();
    let seen = b.nfs3.getattr(&fh3).await.unwrap();
    assert_eq!((seen.size, seen.mtime), (7, (1_000_000_001, 2)));
    assert_eq!(b.nfs4.lookup(&b.root4, b"f").await.unwrap().1.size, 7);
    let stranger = b.nfs4.set_delegated_times(&file.fh, given.stateid, (access, modify)).await;
    assert!(matches!(stranger, Err(Error::Nfs4(_, 10025))), "NFS4ERR_BAD_STATEID: {stranger:?}");
    let modify = (1_000_000_002, 3);
    nfs.set_delegated_times(&file.fh, given.stateid, (access, modify)).await.unwrap();
    nfs.delegreturn(&file.fh, given.stateid).await.unwrap();
    assert_eq!(b.nfs3.getattr(&fh3).await.unwrap().mtime, (1_000_000_002, 3));
    world.running.stop().await;
}
