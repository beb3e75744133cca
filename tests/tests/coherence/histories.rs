//! Short histories of programs that meet on one file, some by SMB and some by NFS: how office programs and editors save, how a
//! version control system fills a folder, what waits to be deleted while others move it.

use std::collections::BTreeSet;
use std::time::Duration;

use client::Error;
use client::nfs3::CreateHow;
use client::nfs4::{LockType4, OpenHow as V4How, StableHow4};
use client::smb::{Break, Caching, OpenHow, SmbFile};
use config::NfsLocks;
use headgate_tests::world::smb::{alice, with_alice};
use headgate_tests::world::{World, buf};
use smb_proto::NtStatus;
use smb_proto::fscc::notify::{Action, Change};
use smb_proto::smb2::change_notify::filter;
use smb_proto::smb2::create::{Disposition, access, share};

use crate::side::{RANGE, Side, Way, patiently};

/// `NFS3ERR_STALE` (RFC 1813 section 2.6).
const STALE: u32 = 70;
const FILE_SYNC: StableHow4 = StableHow4::FileSync;
const ENOUGH: Duration = Duration::from_secs(60);
/// A lock of NFSv4 that excludes all others (RFC 8881 section 3.3.11).
const WRITE_LT: LockType4 = LockType4::Write;

async fn sides() -> (World, tempfile::TempDir, Side, Side) {
    let (world, dir) = with_alice(|_| ()).await;
    let a = Side::connect(&world, &alice(), Way::Tcp).await.unwrap();
    let b = Side::connect(&world, &alice(), Way::Tcp).await.unwrap();
    (world, dir, a, b)
}

const TO_DELETE: OpenHow =
    OpenHow { access: OpenHow::WRITE.access | access::DELETE, ..OpenHow::WRITE };

/// A file by SMB, written and closed.
async fn save(a: &Side, name: &str, text: &[u8]) {
    let how = OpenHow { disposition: Disposition::OverwriteIf, ..OpenHow::WRITE };
    let (file, _) = a.smb.open_cached(name, &how).await.unwrap();
    a.smb.write(&file, 0, vec![buf(text)]).await.unwrap();
    a.smb.close(file).await.unwrap();
}

async fn rename(a: &Side, from: &str, to: &str) {
    let (file, _) = a.smb.open_cached(from, &TO_DELETE).await.unwrap();
    a.smb.rename(&file, to, false).await.unwrap();
    a.smb.close(file).await.unwrap();
}

/// A file by NFS 4.2, written and closed.
async fn save4(b: &Side, name: &str, text: &[u8]) {
    let how = V4How { want: V4How::WANT_NO_DELEG, ..V4How::create(0o644) };
    let open = patiently(|| b.nfs4.open(&b.root4, name.as_bytes(), b"saver", how)).await.unwrap();
    let write = || b.nfs4.write(&open.fh, open.stateid, 0, vec![buf(text)], FILE_SYNC);
    patiently(write).await.unwrap();
    b.nfs4.close(&open).await.unwrap();
}

async fn text(a: &Side, file: &SmbFile) -> Vec<u8> {
    a.smb.read(file, 0, 100).await.unwrap().iter().flat_map(|b| b.to_vec()).collect()
}

async fn text_of(a: &Side, name: &str) -> Vec<u8> {
    let (file, _) = a.smb.open_cached(name, &OpenHow::READ).await.unwrap();
    let found = text(a, &file).await;
    a.smb.close(file).await.unwrap();
    found
}

async fn text3(b: &Side, name: &str) -> Vec<u8> {
    let (fh, _) = b.nfs3.lookup(&b.root3, name.as_bytes()).await.unwrap();
    let read = patiently(|| b.nfs3.read(&fh, 0, 100)).await.unwrap();
    read.data.iter().flat_map(|b| b.to_vec()).collect()
}

fn names(world: &World) -> BTreeSet<String> {
    let all = std::fs::read_dir(world.folder()).unwrap();
    all.map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| n != ".headgate")
        .collect()
}

fn are(world: &World, wanted: &[&str]) {
    assert_eq!(names(world), wanted.iter().map(|n| (*n).to_owned()).collect());
}

/// An office program writes a new file, moves the old one away, the new one to its name, and removes the old one.
#[tokio::test(flavor = "multi_thread")]
async fn an_office_program_saves_what_nfs_has_open() {
    let (world, _dir, a, b) = sides().await;
    save(&a, "doc", b"first").await;
    let (before, _) = b.nfs3.lookup(&b.root3, b"doc").await.unwrap();
    let how = V4How { want: V4How::WANT_NO_DELEG, ..V4How::READ };
    let open = b.nfs4.open(&b.root4, b"doc", b"reader", how).await.unwrap();
    save(&a, "~tmp", b"second").await;
    rename(&a, "doc", "~old").await;
    rename(&a, "~tmp", "doc").await;
    assert_eq!(text3(&b, "doc").await, b"second");
    a.smb.unlink("~old").await.unwrap();
    are(&world, &["doc"]);
    // Who has it open reads what it opened, to the end.
    let (data, _) = patiently(|| b.nfs4.read(&open.fh, open.stateid, 0, 100)).await.unwrap();
    assert_eq!(data.iter().flat_map(|b| b.to_vec()).collect::<Vec<_>>(), b"first");
    b.nfs4.close(&open).await.unwrap();
    let gone = b.nfs3.getattr(&before).await;
    assert!(matches!(gone, Err(Error::Nfs3(STALE))), "{gone:?}");
    assert_eq!(text3(&b, "doc").await, b"second");
    world.running.stop().await;
}

/// An editor moves the file to a name for the old one, writes a new one, and removes the old one.
#[tokio::test(flavor = "multi_thread")]
async fn an_editor_on_nfs_saves_what_smb_has_open() {
    let (world, _dir, a, b) = sides().await;
    save(&a, "doc", b"first").await;
    let (file, _) = a.smb.open_cached("doc", &TO_DELETE).await.unwrap();
    patiently(|| b.nfs4.rename(&b.root4, b"doc", &b.root4, b"doc~")).await.unwrap();
    save4(&b, "doc", b"second").await;
    assert_eq!(text(&a, &file).await, b"first", "it has the file, not the name");
    assert_eq!(text_of(&a, "doc").await, b"second");
    // What it does to the name, it does to that of its file, and not to the file that has the old one now.
    a.smb.rename(&file, "kept", false).await.unwrap();
    are(&world, &["doc", "kept"]);
    assert_eq!(
        (text3(&b, "doc").await, text3(&b, "kept").await),
        (b"second".into(), b"first".into())
    );
    patiently(|| b.nfs4.remove(&b.root4, b"kept")).await.unwrap();
    are(&world, &["doc"]);
    assert_eq!(text(&a, &file).await, b"first");
    // Without a name there is nothing to rename or to remove.
    let nameless = a.smb.rename(&file, "again", false).await;
    assert!(
        matches!(nameless, Err(Error::Smb(_, NtStatus::OBJECT_NAME_NOT_FOUND))),
        "{nameless:?}"
    );
    a.smb.close(file).await.unwrap();
    are(&world, &["doc"]);
    world.running.stop().await;
}

/// What an SMB client wants deleted goes, whatever name others have given it meanwhile, and nothing else does.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_to_be_deleted_goes_by_the_name_that_it_has() {
    let (world, _dir, a, b) = sides().await;
    std::fs::create_dir(world.folder().join("d")).unwrap();
    let (d4, d3) = (b.nfs4.walk("/data/d").await.unwrap(), &b.root3);
    for (round, to_dir) in [&b.root4, &d4].into_iter().enumerate() {
        save(&a, "doomed", b"first").await;
        let (file, _) = a.smb.open_cached("doomed", &TO_DELETE).await.unwrap();
        a.smb.delete_on_close(&file).await.unwrap();
        patiently(|| b.nfs4.rename(&b.root4, b"doomed", to_dir, b"moved")).await.unwrap();
        let path = if round == 0 { "moved" } else { "d\\moved" };
        let again = a.smb.open_cached(path, &OpenHow::READ).await;
        let pending = matches!(again, Err(Error::Smb(_, NtStatus::DELETE_PENDING)));
        assert!(pending, "{path}: {again:?}");
        save4(&b, "doomed", b"second").await;
        a.smb.close(file).await.unwrap();
        are(&world, &["d", "doomed"]);
        assert!(!world.folder().join("d/moved").exists());
        assert_eq!(text3(&b, "doomed").await, b"second");
        b.nfs3.remove(d3, b"doomed").await.unwrap();
    }
    // Of a file with several names the one that was marked goes, by the name that it has now.
    save(&a, "doomed", b"first").await;
    let (file, _) = a.smb.open_cached("doomed", &TO_DELETE).await.unwrap();
    a.smb.delete_on_close(&file).await.unwrap();
    let (fh, _) = b.nfs3.lookup(&b.root3, b"doomed").await.unwrap();
    b.nfs3.link(&fh, &b.root3, b"other").await.unwrap();
    b.nfs3.rename(&b.root3, b"doomed", &b.root3, b"moved").await.unwrap();
    a.smb.close(file).await.unwrap();
    are(&world, &["d", "other"]);
    world.running.stop().await;
}

/// A process of the host may rename as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_rename_on_the_host_is_followed() {
    let (world, _dir, a, b) = sides().await;
    save(&a, "f", b"text").await;
    let (file, _) = a.smb.open_cached("f", &TO_DELETE).await.unwrap();
    std::fs::rename(world.folder().join("f"), world.folder().join("g")).unwrap();
    a.smb.rename(&file, "h", false).await.unwrap();
    are(&world, &["h"]);
    std::fs::create_dir(world.folder().join("d")).unwrap();
    std::fs::rename(world.folder().join("h"), world.folder().join("d/i")).unwrap();
    a.smb.delete_on_close(&file).await.unwrap();
    a.smb.close(file).await.unwrap();
    assert!(!world.folder().join("d/i").exists());
    drop(b);
    world.running.stop().await;
}

/// A folder that others rename takes along what SMB has open below it: shown by its new path, renamed and removed where it is now,
/// and in the way of whoever wants to rename the folder by SMB. A folder that has the old name now has nothing to do with it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_open_below_a_folder_goes_with_it() {
    for by_nfs in [true, false] {
        let (world, _dir, a, b) = sides().await;
        let at = world.folder();
        std::fs::create_dir_all(at.join("one/two")).unwrap();
        save(&a, "one\\two\\f", b"text").await;
        save(&a, "one\\two\\doomed", b"text").await;
        let (file, _) = a.smb.open_cached("one\\two\\f", &TO_DELETE).await.unwrap();
        let (doomed, _) = a.smb.open_cached("one\\two\\doomed", &TO_DELETE).await.unwrap();
        assert_eq!(a.smb.path(&file).await.unwrap(), "one\\two\\f");
        match by_nfs {
            true => patiently(|| b.nfs4.rename(&b.root4, b"one", &b.root4, b"uno")).await.unwrap(),
            false => std::fs::rename(at.join("one"), at.join("uno")).unwrap(),
        }
        std::fs::create_dir_all(at.join("one/two")).unwrap();
        for name in ["f", "doomed"] {
            std::fs::write(at.join("one/two").join(name), b"another").unwrap();
        }
        assert_eq!(a.smb.path(&file).await.unwrap(), "uno\\two\\f");
        let how = OpenHow { access: OpenHow::LIST.access | access::DELETE, ..OpenHow::LIST };
        let (dir, _) = a.smb.open_cached("uno", &how).await.unwrap();
        let refused = a.smb.rename(&dir, "eins", false).await;
        assert!(matches!(refused, Err(Error::Smb(_, NtStatus::ACCESS_DENIED))), "{refused:?}");
        a.smb.close(dir).await.unwrap();
        let (dir, _) = a.smb.open_cached("one", &how).await.unwrap();
        a.smb.rename(&dir, "ein", false).await.unwrap();
        a.smb.close(dir).await.unwrap();
        a.smb.delete_on_close(&doomed).await.unwrap();
        a.smb.close(doomed).await.unwrap();
        assert!(!at.join("uno/two/doomed").exists());
        a.smb.rename(&file, "uno\\g", false).await.unwrap();
        assert_eq!(a.smb.path(&file).await.unwrap(), "uno\\g");
        assert_eq!(std::fs::read(at.join("uno/g")).unwrap(), b"text");
        assert!(!at.join("uno/two/f").exists());
        for name in ["f", "doomed"] {
            assert_eq!(std::fs::read(at.join("ein/two").join(name)).unwrap(), b"another");
        }
        a.smb.close(file).await.unwrap();
        world.running.stop().await;
    }
}

/// A client of SMB keeps the handle of a file after its program has closed it, and would give it to the next that opens the old
/// path. It is asked for it before NFS renames a folder above; what a program really has open goes with the folder.
#[tokio::test(flavor = "multi_thread")]
async fn handles_that_are_only_cached_are_given_back_before_a_folder_above_moves() {
    for version in [3, 4] {
        let (world, _dir, mut a, b) = sides().await;
        std::fs::create_dir_all(world.folder().join("one/two")).unwrap();
        save(&a, "one\\two\\f", b"text").await;
        save(&a, "one\\two\\g", b"used").await;
        let cached = |key| OpenHow::READ.cached(Caching::Lease([key; 16], 3));
        let (f, _) = a.smb.open_cached("one\\two\\f", &cached(1)).await.unwrap();
        let (g, granted) = a.smb.open_cached("one\\two\\g", &cached(2)).await.unwrap();
        assert_eq!(granted, 3);
        let moves = async {
            match version {
                3 => patiently(|| b.nfs3.rename(&b.root3, b"one", &b.root3, b"uno")).await.unwrap(),
                _ => patiently(|| b.nfs4.rename(&b.root4, b"one", &b.root4, b"uno")).await.unwrap(),
            };
        };
        let gives_back = async {
            for _ in 0..2 {
                let told = tokio::time::timeout(ENOUGH, a.breaks.recv()).await.expect("a break");
                let Some(Break::LeaseNotice(n)) = told else { panic!("{told:?}") };
                assert_eq!((n.from, n.to, n.acknowledge), (3, 1, true));
                assert!(world.folder().join("one").exists(), "nothing has moved yet");
                if n.key == [2; 16] {
                    a.smb.acknowledge_lease(n.key, n.to).await.unwrap();
                }
            }
            a.smb.close(f).await.unwrap();
        };
        tokio::join!(moves, gives_back);
        assert_eq!(a.smb.path(&g).await.unwrap(), "uno\\two\\g");
        assert_eq!(text(&a, &g).await, b"used");
        a.smb.close(g).await.unwrap();
        world.running.stop().await;
    }
}

/// NFS moves a file over one that SMB has open: only if that shares deleting; its open goes on with what it opened.
#[tokio::test(flavor = "multi_thread")]
async fn nfs_moves_over_what_smb_has_open() {
    let (world, _dir, a, b) = sides().await;
    for shared in [share::READ | share::WRITE, share::READ | share::WRITE | share::DELETE] {
        save(&a, "target", b"old").await;
        save4(&b, "new", b"new").await;
        let (file, _) =
            a.smb.open_cached("target", &OpenHow { share: shared, ..TO_DELETE }).await.unwrap();
        let moved = b.nfs4.rename(&b.root4, b"new", &b.root4, b"target").await;
        let moved3 = b.nfs3.rename(&b.root3, b"new", &b.root3, b"target").await;
        if shared & share::DELETE == 0 {
            // RFC 8881 section 15.1.4.5
            assert!(matches!(moved, Err(Error::Nfs4(_, 10_046))), "NFS4ERR_FILE_OPEN: {moved:?}");
            assert!(matches!(moved3, Err(Error::Nfs3(_))), "{moved3:?}");
            are(&world, &["new", "target"]);
            assert_eq!(text3(&b, "target").await, b"old");
        } else {
            moved.unwrap();
            assert_eq!(text3(&b, "target").await, b"new");
            // What it has open has no name: deleting it leaves the file that has the name.
            a.smb.delete_on_close(&file).await.unwrap();
        }
        assert_eq!(text(&a, &file).await, b"old");
        a.smb.close(file).await.unwrap();
    }
    are(&world, &["target"]);
    assert_eq!(text_of(&a, "target").await, b"new");
    world.running.stop().await;
}

/// A version control system makes objects under names for the moment and moves them; a client of SMB that caches the listing sees
/// each of them after the call that made it.
#[tokio::test(flavor = "multi_thread")]
async fn a_listing_by_smb_keeps_up_with_what_nfs_makes() {
    let (world, _dir, mut a, b) = sides().await;
    std::fs::create_dir(world.folder().join("objects")).unwrap();
    let dir = b.nfs3.lookup(&b.root3, b"objects").await.unwrap().0;
    let key = [3; 16];
    let mut wanted = BTreeSet::new();
    for n in 0..20 {
        let how = OpenHow::LIST.cached(Caching::Lease(key, 3));
        let (listed, granted) = a.smb.open_cached("objects", &how).await.unwrap();
        assert_eq!(granted, 3, "round {n}: the listing may be cached");
        let (tmp, name) = (format!("tmp_obj_{n}"), format!("{n:038x}"));
        let made = async {
            let (fh, _) =
                b.nfs3.create(&dir, tmp.as_bytes(), CreateHow::Exclusive([n; 8])).await.unwrap();
            if n % 2 == 0 {
                b.nfs3.link(&fh, &dir, name.as_bytes()).await.unwrap();
                b.nfs3.remove(&dir, tmp.as_bytes()).await.unwrap();
            } else {
                b.nfs3.rename(&dir, tmp.as_bytes(), &dir, name.as_bytes()).await.unwrap();
            }
        };
        let told = async {
            let Some(client::smb::Break::LeaseNotice(told)) = a.breaks.recv().await else {
                panic!("a lease is broken");
            };
            assert_eq!((told.key, told.to & 1), (key, 0), "the listing may be cached no more");
            // It may hold no handle either, for want of a reason: both are given up.
            a.smb.acknowledge_lease(key, told.to).await.unwrap();
        };
        tokio::join!(made, told);
        wanted.insert(name);
        let seen: BTreeSet<String> =
            a.smb.list("objects").await.unwrap().into_iter().map(|e| e.name).collect();
        assert_eq!(seen, wanted, "round {n}");
        a.smb.close(listed).await.unwrap();
    }
    world.running.stop().await;
}

/// A stream that SMB has made goes where NFS moves its file, and with it.
#[tokio::test(flavor = "multi_thread")]
async fn streams_go_with_a_file_that_nfs_moves_and_removes() {
    let (world, _dir, a, b) = sides().await;
    save(&a, "f", b"text").await;
    save(&a, "f:mark", b"from the web").await;
    b.nfs3.rename(&b.root3, b"f", &b.root3, b"g").await.unwrap();
    assert_eq!(text_of(&a, "g:mark").await, b"from the web");
    // A new file of the old name has none; one that is replaced takes its streams along.
    save4(&b, "f", b"new").await;
    let none = a.smb.open_cached("f:mark", &OpenHow::READ).await;
    assert!(matches!(none, Err(Error::Smb(_, NtStatus::OBJECT_NAME_NOT_FOUND))), "{none:?}");
    b.nfs3.rename(&b.root3, b"f", &b.root3, b"g").await.unwrap();
    let none = a.smb.open_cached("g:mark", &OpenHow::READ).await;
    assert!(matches!(none, Err(Error::Smb(_, NtStatus::OBJECT_NAME_NOT_FOUND))), "{none:?}");
    // An open stream is no hindrance to who moves its file, and goes on.
    save(&a, "g:mark", b"again").await;
    let (stream, _) = a.smb.open_cached("g:mark", &OpenHow::READ).await.unwrap();
    b.nfs3.rename(&b.root3, b"g", &b.root3, b"h").await.unwrap();
    assert_eq!(text(&a, &stream).await, b"again");
    a.smb.close(stream).await.unwrap();
    world.running.stop().await;
}

/// Names that differ in case alone, as NFS makes them: SMB reaches each, and what it does to one leaves the other.
#[tokio::test(flavor = "multi_thread")]
async fn names_that_differ_in_case_are_kept_apart() {
    let (world, _dir, a, b) = sides().await;
    save4(&b, "Makefile", b"large").await;
    save4(&b, "makefile", b"small").await;
    let listed: BTreeSet<String> =
        a.smb.list("").await.unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(listed, ["Makefile", "makefile"].map(String::from).into());
    save(&a, "makefile", b"SMALL").await;
    assert_eq!(
        (text3(&b, "Makefile").await, text3(&b, "makefile").await),
        (b"large".into(), b"SMALL".into())
    );
    // An editor by SMB saves one of them by renames.
    save(&a, "tmp", b"newer").await;
    rename(&a, "makefile", "old").await;
    are(&world, &["Makefile", "old", "tmp"]);
    let (file, _) = a.smb.open_cached("tmp", &TO_DELETE).await.unwrap();
    let collides = a.smb.rename(&file, "makefile", false).await;
    assert!(
        matches!(collides, Err(Error::Smb(_, NtStatus::OBJECT_NAME_COLLISION))),
        "{collides:?}"
    );
    a.smb.close(file).await.unwrap();
    a.smb.unlink("old").await.unwrap();
    are(&world, &["Makefile", "tmp"]);
    assert_eq!(text3(&b, "Makefile").await, b"large");
    // In another case it is the same file to SMB, and its name is that which it is given last.
    rename(&a, "MAKEFILE", "makefile").await;
    are(&world, &["makefile", "tmp"]);
    world.running.stop().await;
}

/// Who watches two folders is told of a file that goes from one to the other by NFS, in each; who watches the tree, of both.
#[tokio::test(flavor = "multi_thread")]
async fn a_move_by_nfs_is_told_in_both_folders() {
    let (world, _dir, a, b) = sides().await;
    for dir in ["one", "two"] {
        std::fs::create_dir(world.folder().join(dir)).unwrap();
    }
    std::fs::write(world.folder().join("one/f"), b"text").unwrap();
    let mut dirs = Vec::new();
    for dir in ["one", "two", ""] {
        let (dir, _) = a.smb.open_cached(dir, &OpenHow::LIST).await.unwrap();
        dirs.push(dir);
    }
    let (one, _) = b.nfs3.lookup(&b.root3, b"one").await.unwrap();
    let (two, _) = b.nfs3.lookup(&b.root3, b"two").await.unwrap();
    let interims = a.smb.interims();
    let moved = async {
        // All three watch once they were told that it takes a while.
        while a.smb.interims() < interims + 3 {
            tokio::task::yield_now().await;
        }
        b.nfs3.rename(&one, b"f", &two, b"g").await.unwrap();
    };
    let (first, second, tree, ()) = tokio::join!(
        a.smb.notify(&dirs[0], false, filter::ALL),
        a.smb.notify(&dirs[1], false, filter::ALL),
        a.smb.notify(&dirs[2], true, filter::ALL),
        moved
    );
    let change = |action, name: &str| Change { action, name: name.into() };
    assert_eq!(first.unwrap(), [change(Action::Removed, "f")]);
    assert_eq!(second.unwrap(), [change(Action::Added, "g")]);
    let mut tree = tree.unwrap();
    while !tree.contains(&change(Action::Added, "two\\g")) {
        tree.extend(a.smb.notify(&dirs[2], true, filter::ALL).await.unwrap());
    }
    assert!(tree.contains(&change(Action::Removed, "one\\f")), "{tree:?}");
    world.running.stop().await;
}

/// What a lock of NFS excludes a program of SMB cannot write, unless the share says that such locks are advice. Locks of both
/// exclude each other in either case.
#[tokio::test(flavor = "multi_thread")]
async fn locks_of_nfs_bind_data_of_smb_as_the_share_says() {
    for nfs_locks in [NfsLocks::Enforced, NfsLocks::Advisory] {
        let (world, _dir) = with_alice(|s| s.shares[0].nfs_locks = nfs_locks).await;
        let a = Side::connect(&world, &alice(), Way::Tcp).await.unwrap();
        let b = Side::connect(&world, &alice(), Way::Tcp).await.unwrap();
        save(&a, "by4", b"first").await;
        save(&a, "by3", b"first").await;
        let how = V4How { want: V4How::WANT_NO_DELEG, ..V4How::WRITE };
        let open = patiently(|| b.nfs4.open(&b.root4, b"by4", b"locker", how)).await.unwrap();
        patiently(|| b.nfs4.lock(&open, b"locker", WRITE_LT, RANGE)).await.unwrap();
        let (fh, _) = b.nfs3.lookup(&b.root3, b"by3").await.unwrap();
        patiently(|| b.nlm.lock(&fh, RANGE, true)).await.unwrap();
        for name in ["by4", "by3"] {
            let (file, _) = a.smb.open_cached(name, &OpenHow::WRITE).await.unwrap();
            let lock = a.smb.lock(&file, RANGE, true, false).await;
            assert!(
                matches!(lock, Err(Error::Smb(_, NtStatus::LOCK_NOT_GRANTED))),
                "{name} {nfs_locks:?}: {lock:?}"
            );
            let written = a.smb.write(&file, 0, vec![buf(b"other")]).await;
            match nfs_locks {
                NfsLocks::Enforced => assert!(
                    matches!(written, Err(Error::Smb(_, NtStatus::FILE_LOCK_CONFLICT))),
                    "{name}: {written:?}"
                ),
                NfsLocks::Advisory => drop(written.unwrap()),
            }
            a.smb.close(file).await.unwrap();
        }
        let left: &[u8] = if nfs_locks == NfsLocks::Advisory { b"other" } else { b"first" };
        assert_eq!(text3(&b, "by3").await, left);
        world.running.stop().await;
    }
}
