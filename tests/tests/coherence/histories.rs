//! Typical sequences of programs that share a file over SMB and NFS: saving by office programs and editors, a version control
//! system that fills a folder, deletion of a file that others move meanwhile.

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
/// An exclusive lock of NFSv4 (RFC 8881 section 3.3.11).
const WRITE_LT: LockType4 = LockType4::Write;

async fn sides() -> (World, tempfile::TempDir, Side, Side) {
    let (world, dir) = with_alice(|_| ()).await;
    let a = Side::connect(&world, &alice(), Way::Tcp).await.unwrap();
    let b = Side::connect(&world, &alice(), Way::Tcp).await.unwrap();
    (world, dir, a, b)
}

const TO_DELETE: OpenHow =
    OpenHow { access: OpenHow::WRITE.access | access::DELETE, ..OpenHow::WRITE };

/// Writes and closes a file over SMB.
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

/// Writes and closes a file over NFS 4.2.
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

/// An office program writes a new file, renames the old one, renames the new one to its name, and removes the old one.
#[tokio::test(flavor = "multi_thread")]
async fn office_save_replaces_nfs_file() {
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
    // A client that has the file open can read it to the end.
    let (data, _) = patiently(|| b.nfs4.read(&open.fh, open.stateid, 0, 100)).await.unwrap();
    assert_eq!(data.iter().flat_map(|b| b.to_vec()).collect::<Vec<_>>(), b"first");
    b.nfs4.close(&open).await.unwrap();
    let gone = b.nfs3.getattr(&before).await;
    assert!(matches!(gone, Err(Error::Nfs3(STALE))), "{gone:?}");
    assert_eq!(text3(&b, "doc").await, b"second");
    world.running.stop().await;
}

/// An editor renames the file to a backup name, writes a new one, and removes the backup.
#[tokio::test(flavor = "multi_thread")]
async fn nfs_editor_replaces_smb_file() {
    let (world, _dir, a, b) = sides().await;
    save(&a, "doc", b"first").await;
    let (file, _) = a.smb.open_cached("doc", &TO_DELETE).await.unwrap();
    patiently(|| b.nfs4.rename(&b.root4, b"doc", &b.root4, b"doc~")).await.unwrap();
    save4(&b, "doc", b"second").await;
    assert_eq!(text(&a, &file).await, b"first", "it has the file, not the name");
    assert_eq!(text_of(&a, "doc").await, b"second");
    // An operation on the name affects the open file, not the file that has the old name now.
    a.smb.rename(&file, "kept", false).await.unwrap();
    are(&world, &["doc", "kept"]);
    assert_eq!(
        (text3(&b, "doc").await, text3(&b, "kept").await),
        (b"second".into(), b"first".into())
    );
    patiently(|| b.nfs4.remove(&b.root4, b"kept")).await.unwrap();
    are(&world, &["doc"]);
    assert_eq!(text(&a, &file).await, b"first");
    // A file without a name cannot be renamed or removed.
    let nameless = a.smb.rename(&file, "again", false).await;
    assert!(
        matches!(nameless, Err(Error::Smb(_, NtStatus::OBJECT_NAME_NOT_FOUND))),
        "{nameless:?}"
    );
    a.smb.close(file).await.unwrap();
    are(&world, &["doc"]);
    world.running.stop().await;
}

/// The file that an SMB client has marked for deletion is removed, whatever name others have given it meanwhile, and no other file.
#[tokio::test(flavor = "multi_thread")]
async fn marked_file_is_deleted_after_rename() {
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
    // For a file with several links, the marked link is removed, under its present name.
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

/// A process on the host may rename the file as well.
#[tokio::test(flavor = "multi_thread")]
async fn host_rename_is_followed() {
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

/// When a folder is renamed, files below it that SMB clients have open follow: they are listed under the new path, can be renamed
/// and removed there, and block a rename of the folder over SMB. A new folder with the old name is unrelated.
#[tokio::test(flavor = "multi_thread")]
async fn open_files_follow_renamed_folder() {
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

/// An SMB client keeps the handle of a file after its program has closed it, and would reuse it for an open of the old path. The
/// handle is recalled before NFS renames a folder above; files that a program really has open follow the folder.
#[tokio::test(flavor = "multi_thread")]
async fn folder_rename_recalls_cached_handles() {
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

/// NFS may rename a file over one that SMB has open only if that open shares deletion; the open then continues with the old file.
#[tokio::test(flavor = "multi_thread")]
async fn nfs_rename_over_open_smb_file() {
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
            // The open file has no name: deleting it keeps the file that has the name.
            a.smb.delete_on_close(&file).await.unwrap();
        }
        assert_eq!(text(&a, &file).await, b"old");
        a.smb.close(file).await.unwrap();
    }
    are(&world, &["target"]);
    assert_eq!(text_of(&a, "target").await, b"new");
    world.running.stop().await;
}

/// A version control system creates objects under temporary names and renames them; an SMB client that caches the listing sees each
/// of them after the call that created it.
#[tokio::test(flavor = "multi_thread")]
async fn smb_listing_follows_nfs_changes() {
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
            // The break may also take handle caching away: both are acknowledged.
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

/// A stream created over SMB follows its file when NFS renames or removes it.
#[tokio::test(flavor = "multi_thread")]
async fn streams_follow_file_over_nfs() {
    let (world, _dir, a, b) = sides().await;
    save(&a, "f", b"text").await;
    save(&a, "f:mark", b"from the web").await;
    b.nfs3.rename(&b.root3, b"f", &b.root3, b"g").await.unwrap();
    assert_eq!(text_of(&a, "g:mark").await, b"from the web");
    // A new file with the old name has no streams; a replaced file loses its streams.
    save4(&b, "f", b"new").await;
    let none = a.smb.open_cached("f:mark", &OpenHow::READ).await;
    assert!(matches!(none, Err(Error::Smb(_, NtStatus::OBJECT_NAME_NOT_FOUND))), "{none:?}");
    b.nfs3.rename(&b.root3, b"f", &b.root3, b"g").await.unwrap();
    let none = a.smb.open_cached("g:mark", &OpenHow::READ).await;
    assert!(matches!(none, Err(Error::Smb(_, NtStatus::OBJECT_NAME_NOT_FOUND))), "{none:?}");
    // An open stream does not block a rename of its file, and stays usable.
    save(&a, "g:mark", b"again").await;
    let (stream, _) = a.smb.open_cached("g:mark", &OpenHow::READ).await.unwrap();
    b.nfs3.rename(&b.root3, b"g", &b.root3, b"h").await.unwrap();
    assert_eq!(text(&a, &stream).await, b"again");
    a.smb.close(stream).await.unwrap();
    world.running.stop().await;
}

/// Names that differ only in case, created over NFS: SMB can open each, and operations on one do not affect the other.
#[tokio::test(flavor = "multi_thread")]
async fn case_variants_are_distinct_files() {
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
    // An SMB editor saves one of them with renames.
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
    // In another case it is the same file for SMB, and the latest spelling becomes its name.
    rename(&a, "MAKEFILE", "makefile").await;
    are(&world, &["makefile", "tmp"]);
    world.running.stop().await;
}

/// Watchers of two folders are notified of a file that NFS moves from one to the other; a watcher of the tree gets both notices.
#[tokio::test(flavor = "multi_thread")]
async fn nfs_move_notifies_both_folders() {
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
        // All three requests are pending once their interim responses have arrived.
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

/// An SMB program cannot write a range locked over NFS, unless the share makes such locks advisory. Locks of both protocols always
/// exclude each other.
#[tokio::test(flavor = "multi_thread")]
async fn share_decides_whether_nfs_locks_bind() {
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
