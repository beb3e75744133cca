//! Shares that overlap: two of one folder, and one inside another. A file is one file, whatever share, path and protocol a client
//! uses. The matrix runs on pairs of such shares as well; here are the holdings that it does not have: pending deletes, notices and
//! leases of folders, renames of folders above, and one client that uses a file through two shares.

use std::sync::Arc;
use std::time::Duration;

use client::connect::Local;
use client::nfs3::{CreateHow, SetAttr};
use client::nfs4::{Fh, LockType4, Minor, Nfs4, OpenHow as V4How, Recalls, StableHow4};
use client::smb::{Break, Caching, OpenHow, SmbFile};
use client::{Credential, Error, Result};
use config::{Share, Source, Squash};
use headgate_tests::world::smb::{alice, with_alice};
use headgate_tests::world::{World, buf, is_on_ceph};
use smb_proto::fscc::notify::Action;
use smb_proto::smb2::change_notify::filter;
use smb_proto::smb2::create::access;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::side::{At, DATA, Side, Way, patiently, refusal};

const ENOUGH: Duration = Duration::from_secs(60);

/// The folder `in` by every share that has it.
const OUTER: At = At { share: "data", folder: "in", on_disk: "in" };
const TWIN: At = At { share: "twin", folder: "in", on_disk: "in" };
const INNER: At = At { share: "inner", folder: "", on_disk: "in" };

/// Pairs of ways to one folder through different shares.
pub(crate) const DIFFERENT: [(At, At); 3] = [(OUTER, TWIN), (OUTER, INNER), (INNER, TWIN)];
/// All pairs; the first uses one share.
const PAIRS: [(At, At); 7] = [
    (OUTER, OUTER),
    (OUTER, TWIN),
    (TWIN, OUTER),
    (OUTER, INNER),
    (INNER, OUTER),
    (INNER, TWIN),
    (INNER, INNER),
];

/// The protocol of the second client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Smb,
    Nfs3,
    Nfs4,
}

const PROTOCOLS: [By; 3] = [By::Smb, By::Nfs3, By::Nfs4];

/// A gateway with the share `data`, a second one of the same folder, and one of a folder inside.
pub(crate) async fn world() -> (World, TempDir) {
    with_alice(|settings| {
        let source = settings.shares[0].source.clone();
        let inner = match &source {
            Source::Folder(path) => {
                std::fs::create_dir_all(path.join("in")).unwrap();
                Source::Folder(path.join("in"))
            }
            Source::Ceph(ceph) => {
                let mount = std::env::var_os("HEADGATE_ON_CEPH").unwrap();
                let at = std::path::Path::new(&mount).join(ceph.path.trim_start_matches('/'));
                std::fs::create_dir_all(at.join("in")).unwrap();
                Source::Ceph(config::Ceph { path: format!("{}/in", ceph.path), ..ceph.clone() })
            }
            other => other.clone(),
        };
        for (name, source) in [("twin", source), ("inner", inner)] {
            settings.shares.push(Share { squash: Squash::None, ..Share::new(name, source) });
        }
    })
    .await
}

async fn side(world: &World, at: At) -> Side {
    Side::connect_at(world, &alice(), Way::Tcp, at).await.unwrap()
}

/// The handle of a name in a client's folder.
async fn find4(side: &Side, name: &str) -> Result<Fh> {
    let mut at = side.root4.clone();
    for name in name.split('/') {
        at = patiently(|| side.nfs4.lookup(&at, name.as_bytes())).await?.0;
    }
    Ok(at)
}

async fn find3(side: &Side, name: &str) -> Result<client::nfs3::Fh> {
    let mut at = side.root3.clone();
    for name in name.split('/') {
        at = side.nfs3.lookup(&at, name.as_bytes()).await?.0;
    }
    Ok(at)
}

/// Creates a file in a folder, or opens the one that is there, and closes it.
async fn create(side: &Side, by: By, dir: &str, name: &str) -> Result<()> {
    match by {
        By::Smb => {
            let how = OpenHow {
                disposition: smb_proto::smb2::create::Disposition::OpenIf,
                ..OpenHow::WRITE
            };
            let path = side.path(&format!("{}\\{name}", dir.replace('/', "\\")));
            let (file, _) = side.smb.open_cached(&path, &how).await?;
            side.smb.close(file).await
        }
        By::Nfs3 => {
            let dir = find3(side, dir).await?;
            let how = || CreateHow::Unchecked(SetAttr::default());
            patiently(|| side.nfs3.create(&dir, name.as_bytes(), how())).await.map(drop)
        }
        By::Nfs4 => {
            let dir = find4(side, dir).await?;
            let how = V4How { want: V4How::WANT_NO_DELEG, ..V4How::create(0o644) };
            let open = || side.nfs4.open(&dir, name.as_bytes(), b"maker", how);
            let file = patiently(open).await?;
            patiently(|| side.nfs4.close(&file)).await
        }
    }
}

/// Renames a folder of a client's folder.
async fn rename(side: &Side, by: By, from: &str, to: &str) -> Result<()> {
    match by {
        By::Smb => {
            let how = OpenHow { access: access::DELETE | access::READ_DATA, ..OpenHow::LIST };
            let (dir, _) = side.smb.open_cached(&side.path(from), &how).await?;
            let done = side.smb.rename(&dir, &side.path(to), false).await;
            side.smb.close(dir).await?;
            done
        }
        By::Nfs3 => {
            let (root, from, to) = (&side.root3, from.as_bytes(), to.as_bytes());
            patiently(|| side.nfs3.rename(root, from, root, to)).await
        }
        By::Nfs4 => {
            let (root, from, to) = (&side.root4, from.as_bytes(), to.as_bytes());
            patiently(|| side.nfs4.rename(root, from, root, to)).await
        }
    }
}

async fn to_delete(side: &Side, name: &str) -> SmbFile {
    let how = OpenHow { access: OpenHow::READ.access | access::DELETE, ..OpenHow::READ };
    side.smb.open_cached(&side.path(name), &how).await.unwrap().0
}

fn shown(done: &Result<()>) -> String {
    done.as_ref().map_or_else(refusal, |()| "done".into())
}

/// What the second client gets while the first has marked a file for deletion.
async fn pending_delete(a: &Side, b: &Side, by: By) -> String {
    std::fs::create_dir_all(a.folder.join("d")).unwrap();
    std::fs::write(a.folder.join("d/f"), b"text").unwrap();
    let marked = to_delete(a, "d\\f").await;
    a.smb.delete_on_close(&marked).await.unwrap();
    let got = create(b, by, "d", "f").await;
    a.smb.close(marked).await.unwrap();
    let left = if a.folder.join("d/f").exists() { "is left" } else { "is gone" };
    format!("{}, {left}", shown(&got))
}

/// The notice to a client that watches a folder and all below.
async fn notice(a: &Side, b: &Side, by: By) -> String {
    let top = format!("top-{by:?}");
    std::fs::create_dir_all(a.folder.join(&top).join("d")).unwrap();
    let (dir, _) = a.smb.open_cached(&a.path(&top), &OpenHow::LIST).await.unwrap();
    let before = a.smb.interims();
    let change = async {
        while a.smb.interims() == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        create(b, by, &format!("{top}/d"), "new").await.unwrap();
    };
    let seen = async {
        loop {
            let news = timeout(ENOUGH, a.smb.notify(&dir, true, filter::ALL)).await;
            let news =
                news.unwrap_or_else(|_| panic!("no notice to {:?} of {by:?} in {:?}", a.at, b.at));
            if let Some(found) = news.unwrap().iter().find(|c| c.action == Action::Added) {
                return found.name.clone();
            }
        }
    };
    let (seen, ()) = tokio::join!(seen, change);
    a.smb.close(dir).await.unwrap();
    format!("added {seen}")
}

/// The break of a folder's lease by a new name in it.
async fn folder_lease(a: &mut Side, b: &Side, by: By) -> String {
    let (top, key) = (format!("leased-{by:?}"), [9; 16]);
    std::fs::create_dir_all(a.folder.join(&top)).unwrap();
    let how = OpenHow::LIST.cached(Caching::Lease(key, 3));
    let (dir, granted) = a.smb.open_cached(&a.path(&top), &how).await.unwrap();
    assert_eq!(granted, 3, "a lease of the folder");
    create(b, by, &top, "new").await.unwrap();
    let told = timeout(ENOUGH, a.breaks.recv())
        .await
        .unwrap_or_else(|_| panic!("no break for {:?} by {by:?} in {:?}", a.at, b.at));
    let Some(Break::LeaseNotice(n)) = told else { panic!("{told:?}") };
    if n.acknowledge {
        a.smb.acknowledge_lease(key, n.to).await.unwrap();
    }
    a.smb.close(dir).await.unwrap();
    format!("{} to {}", n.from, n.to)
}

/// The recall of a folder's delegation before a new name in it.
async fn folder_delegation(a: &mut Side, b: &Side, by: By) -> String {
    let top = format!("delegated-{by:?}");
    std::fs::create_dir_all(a.folder.join(&top)).unwrap();
    let dir = find4(a, &top).await.unwrap();
    let stateid = a.nfs4.get_dir_delegation(&dir).await.unwrap().unwrap();
    let gives_back = async {
        let recall = timeout(ENOUGH, a.recalls.recv())
            .await
            .unwrap_or_else(|_| panic!("no recall from {:?} for {by:?} in {:?}", a.at, b.at));
        assert_eq!(recall.map(|r| r.stateid), Some(stateid));
        let names = a.nfs4.list(&dir).await.unwrap().len();
        a.nfs4.delegreturn(&dir, stateid).await.unwrap();
        names
    };
    let (made, names) = tokio::join!(create(b, by, &top, "new"), gives_back);
    format!("{}, {names} names before", shown(&made))
}

/// A folder is renamed while a client keeps the handle of one file below it, and a program has another open.
async fn rename_above(a: &mut Side, b: &Side, by: By) -> String {
    let top = format!("above-{by:?}");
    std::fs::create_dir_all(a.folder.join(&top).join("sub")).unwrap();
    for name in ["kept", "used"] {
        std::fs::write(a.folder.join(&top).join("sub").join(name), b"text").unwrap();
    }
    let how = OpenHow::READ.cached(Caching::Lease([5; 16], 3));
    let (kept, granted) =
        a.smb.open_cached(&a.path(&format!("{top}\\sub\\kept")), &how).await.unwrap();
    assert_eq!(granted, 3);
    let (used, _) =
        a.smb.open_cached(&a.path(&format!("{top}\\sub\\used")), &OpenHow::READ).await.unwrap();
    let to = format!("moved-{by:?}");
    let gives_back = async {
        let told = timeout(ENOUGH, a.breaks.recv())
            .await
            .unwrap_or_else(|_| panic!("no break for {:?} by {by:?} in {:?}", a.at, b.at));
        let Some(Break::LeaseNotice(n)) = told else { panic!("{told:?}") };
        a.smb.close(kept).await.unwrap();
        n.to
    };
    let (done, kept) = tokio::join!(rename(b, by, &top, &to), gives_back);
    let path = a.smb.path(&used).await.unwrap();
    a.smb.close(used).await.unwrap();
    for name in [&top, &to] {
        let _ = std::fs::remove_dir_all(a.folder.join(name));
    }
    let path = path.strip_prefix(&a.path("")).unwrap_or(&path).to_owned();
    format!("{}, keeps {kept}, at {path}", shown(&done))
}

/// What holds where both clients use one share.
fn expected(what: &str, by: By) -> String {
    match (what, by) {
        ("pending delete", By::Smb) => "STATUS_DELETE_PENDING, is gone".into(),
        ("pending delete", By::Nfs3) => "NFS3ERR_ACCES, is gone".into(),
        ("pending delete", By::Nfs4) => "NFS4ERR_FILEOPEN, is gone".into(),
        ("notice", _) => "added d\\new".into(),
        ("folder lease", _) => "3 to 0".into(),
        ("folder delegation", _) => "done, 0 names before".into(),
        ("rename above", By::Smb) => {
            format!("STATUS_ACCESS_DENIED, keeps 1, at above-{by:?}\\sub\\used")
        }
        ("rename above", _) => format!("done, keeps 1, at moved-{by:?}\\sub\\used"),
        other => panic!("{other:?}"),
    }
}

const KINDS: [&str; 5] =
    ["pending delete", "notice", "folder lease", "folder delegation", "rename above"];

async fn outcome(what: &str, a: &mut Side, b: &Side, by: By) -> String {
    match what {
        "pending delete" => pending_delete(a, b, by).await,
        "notice" => notice(a, b, by).await,
        "folder lease" => folder_lease(a, b, by).await,
        "folder delegation" => folder_delegation(a, b, by).await,
        _ => rename_above(a, b, by).await,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn holdings_are_those_of_one_share() {
    let mut running = Vec::new();
    for (a, b) in PAIRS {
        running.push(tokio::spawn(async move {
            let (world, _dir) = world().await;
            let (mut first, second) = (side(&world, a).await, side(&world, b).await);
            let mut faults = Vec::new();
            for what in KINDS {
                for by in PROTOCOLS {
                    let seen = outcome(what, &mut first, &second, by).await;
                    let wanted = expected(what, by);
                    if seen != wanted {
                        let pair = (a.share, b.share);
                        faults.push(format!("{what}, {pair:?}, {by:?}: {seen}; not {wanted}"));
                    }
                }
            }
            world.running.stop().await;
            faults
        }));
    }
    let mut faults = Vec::new();
    for pair in running {
        faults.extend(pair.await.unwrap());
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A folder that contains the inner share is renamed through the outer one: files below it that are open through the inner share
/// count as those of the outer.
#[tokio::test(flavor = "multi_thread")]
async fn rename_of_folder_above_inner_share_asks_its_clients() {
    for by in PROTOCOLS {
        let (world, _dir) = world().await;
        let (mut a, b) = (side(&world, INNER).await, side(&world, DATA).await);
        std::fs::write(a.folder.join("kept"), b"text").unwrap();
        let how = OpenHow::READ.cached(Caching::Lease([5; 16], 3));
        let (kept, _) = a.smb.open_cached("kept", &how).await.unwrap();
        let gives_back = async {
            let told = timeout(ENOUGH, a.breaks.recv()).await.expect("a break");
            let Some(Break::LeaseNotice(n)) = told else { panic!("{told:?}") };
            // The program has the file open still.
            a.smb.acknowledge_lease(n.key, n.to).await.unwrap();
        };
        let (done, ()) = tokio::join!(rename(&b, by, "in", "out"), gives_back);
        let wanted = if by == By::Smb { "STATUS_ACCESS_DENIED" } else { "done" };
        assert_eq!(shown(&done), wanted, "{by:?}");
        assert_eq!(a.smb.path(&kept).await.unwrap(), "kept", "its share has moved along");
        a.smb.close(kept).await.unwrap();
        world.running.stop().await;
    }
}

/// A file that a client of one share moves keeps its pending delete, and leaves the share that it is moved out of.
#[tokio::test(flavor = "multi_thread")]
async fn moved_file_is_deleted_where_it_is() {
    for by in [By::Nfs3, By::Nfs4] {
        let (world, _dir) = world().await;
        let (a, b) = (side(&world, INNER).await, side(&world, DATA).await);
        std::fs::create_dir_all(a.folder.join("d")).unwrap();
        for (to_share, name) in [(true, "one"), (false, "two")] {
            std::fs::write(a.folder.join(name), b"text").unwrap();
            let file = to_delete(&a, name).await;
            let to = if to_share { "in/d" } else { "." };
            match by {
                By::Nfs4 => {
                    let from = find4(&b, "in").await.unwrap();
                    let to = if to_share { find4(&b, to).await.unwrap() } else { b.root4.clone() };
                    let name = name.as_bytes();
                    patiently(|| b.nfs4.rename(&from, name, &to, b"moved")).await.unwrap();
                }
                _ => {
                    let from = find3(&b, "in").await.unwrap();
                    let to = if to_share { find3(&b, to).await.unwrap() } else { b.root3.clone() };
                    let name = name.as_bytes();
                    patiently(|| b.nfs3.rename(&from, name, &to, b"moved")).await.unwrap();
                }
            }
            let path = if to_share { "d\\moved" } else { name };
            assert_eq!(a.smb.path(&file).await.unwrap(), path, "{by:?}");
            a.smb.delete_on_close(&file).await.unwrap();
            a.smb.close(file).await.unwrap();
            let there = if to_share { "in/d/moved" } else { "moved" };
            assert!(!b.folder.join(there).exists(), "{by:?} {there}");
        }
        world.running.stop().await;
    }
}

/// One NFSv4 client that uses a file through two shares has two caches of it, two opens and two locks.
#[tokio::test(flavor = "multi_thread")]
async fn client_on_two_shares_has_two_caches() {
    let (world, _dir) = world().await;
    std::fs::write(world.folder().join("in/f"), b"base!").unwrap();
    let (callbacks, mut recalls) = Recalls::new();
    let at = world.running.nfs[0];
    let rpc = client::connect::tcp(at, &Local::default(), Arc::new(callbacks)).await.unwrap();
    let root = Credential::sys(0, 0, &[]);
    let nfs = Nfs4::connect(rpc, root, Minor::Two, b"both shares", *b"one boot").await.unwrap();
    let (outer, inner) = (nfs.walk("/data/in").await.unwrap(), nfs.walk("/inner").await.unwrap());
    let how = V4How { want: V4How::WANT_DELEG_TIMESTAMPS, ..V4How::WRITE };
    let first = nfs.open(&outer, b"f", b"owner", how).await.unwrap();
    let given = first.delegation.expect("a write delegation");
    assert!(given.write);
    // The cache behind the other share would not see what the client keeps back here.
    let opening = patiently(|| nfs.open(&inner, b"f", b"owner", how));
    let gives_back = async {
        let recall = timeout(ENOUGH, recalls.recv()).await.expect("a recall").unwrap();
        assert_eq!(recall.stateid, given.stateid);
        nfs.delegreturn(&first.fh, given.stateid).await.unwrap();
    };
    let (second, ()) = tokio::join!(opening, gives_back);
    let second = second.unwrap();
    assert!(second.delegation.is_none(), "beside the open through the other share");
    assert_ne!((&first.fh, first.stateid), (&second.fh, second.stateid));
    // A stateid belongs to the handle through which it was obtained.
    let mixed = nfs.read(&second.fh, first.stateid, 0, 5).await;
    assert!(matches!(mixed, Err(Error::Nfs4(_, 10025))), "NFS4ERR_BAD_STATEID: {mixed:?}");
    let range = (0, 10);
    let lock = nfs.lock(&first, b"locker", LockType4::Write, range).await.unwrap();
    let denied = nfs.lock(&second, b"locker", LockType4::Write, range).await;
    assert!(matches!(denied, Err(Error::Nfs4(_, 10010))), "NFS4ERR_DENIED: {denied:?}");
    nfs.unlock(&first.fh, lock, LockType4::Write, range).await.unwrap();
    nfs.close(&first).await.unwrap();
    // The other open is another one.
    let data = vec![buf(b"after")];
    nfs.write(&second.fh, second.stateid, 0, data, StableHow4::FileSync).await.unwrap();
    nfs.close(&second).await.unwrap();
    assert_eq!(std::fs::read(world.folder().join("in/f")).unwrap(), b"after");
    world.running.stop().await;
}

/// Attributes that clients cache depend on the change attribute: each change through any share moves it, for all shares.
#[tokio::test(flavor = "multi_thread")]
async fn change_attribute_moves_for_every_share() {
    if is_on_ceph() {
        // The cluster counts.
        return;
    }
    let (world, _dir) = world().await;
    std::fs::write(world.folder().join("in/f"), b"base!").unwrap();
    let (a, b) = (side(&world, OUTER).await, side(&world, INNER).await);
    let (by_a, by_b) = (find4(&a, "f").await.unwrap(), find4(&b, "f").await.unwrap());
    let file = find3(&a, "f").await.unwrap();
    let mut last = b.nfs4.getattr(&by_b).await.unwrap().change;
    for round in 0..200_u32 {
        // Quicker than a tick of the kernel's clock.
        let data = vec![buf(&round.to_be_bytes())];
        a.nfs3.write(&file, 0, data, client::nfs3::Stable::Unstable).await.unwrap();
        let now = b.nfs4.getattr(&by_b).await.unwrap().change;
        assert!(now > last, "round {round}");
        assert_eq!(a.nfs4.getattr(&by_a).await.unwrap().change, now, "round {round}");
        last = now;
    }
    world.running.stop().await;
}
