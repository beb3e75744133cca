//! Snapshots of a folder of the host: what clients are told and find, and with which rights.

// Helpers of tests are tests too.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iobuf::{Account, Pool};
use vfs::acl::{Ace, Acl, Who, kind, mask};
use vfs::backend::ReadInto;
use vfs::local::{LocalBackend, LocalConfig};
use vfs::*;

fn block_on<T>(f: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap().block_on(f)
}

/// Makes a folder, and those above it, that only its owner may write: backends set the umask to 0.
fn folder(path: &Path) {
    fs::create_dir_all(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A share with the folder of its snapshots beside it.
struct Place {
    dir: tempfile::TempDir,
}

const MONDAY: (&str, i64, &str) = ("2023-11-27_080000", 1_701_072_000, "@GMT-2023.11.27-08.00.00");
const FRIDAY: (&str, i64, &str) = ("2023-12-01_080000", 1_701_417_600, "@GMT-2023.12.01-08.00.00");

impl Place {
    fn new() -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap() };
        for made in ["share", "snapshots"] {
            folder(&place.dir.path().join(made));
        }
        fs::set_permissions(place.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        place
    }

    fn share(&self) -> PathBuf {
        self.dir.path().join("share")
    }

    fn snapshot(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join("snapshots").join(name);
        folder(&path);
        path
    }

    fn pattern(&self) -> String {
        format!("{}/snapshots/{{time:%Y-%m-%d_%H%M%S}}", self.dir.path().display())
    }

    fn open(&self) -> Arc<LocalBackend> {
        self.open_as(false)
    }

    fn open_as(&self, unprivileged: bool) -> Arc<LocalBackend> {
        let config = LocalConfig { unprivileged, ..LocalConfig::new(self.share()) };
        let backend = LocalBackend::open(config).unwrap();
        backend.set_snapshots(Some(&self.pattern().parse().unwrap()));
        backend
    }
}

fn user(uid: u32) -> Cred {
    Cred { uid, gid: uid, groups: [].into(), token: Token::NONE }
}

async fn at(from: &NodeRef, path: &str, cred: &Cred) -> VfsResult<NodeRef> {
    let mut node = from.clone();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        node = node.lookup(cred, name.as_bytes()).await?.0;
    }
    Ok(node)
}

async fn names(dir: &NodeRef, cred: &Cred) -> VfsResult<Vec<String>> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        // One at a time, so that each cookie is used.
        let (some, is_end) = dir.readdir(cred, cookie, 1).await?;
        cookie = some.last().map_or(cookie, |entry| entry.cookie);
        all.extend(some.into_iter().map(|e| String::from_utf8(e.name.into()).unwrap()));
        if is_end {
            all.sort();
            return Ok(all);
        }
    }
}

async fn content(file: &NodeRef, cred: Option<&Cred>) -> VfsResult<Vec<u8>> {
    let into = ReadInto {
        pool: Pool::new(iobuf::PoolLimits::of_bytes(4 << 20)),
        account: Account::default(),
        backpressure: None,
        pages: false,
        attributes: true,
    };
    let read = file.read(cred, 0, 4096, &into).await?;
    assert!(read.attr.is_none_or(|attr| attr.sealed != file.is_cacheable()));
    Ok(read.data.iter().flat_map(|buf| buf.iter().copied()).collect())
}

#[test]
fn files_are_found_as_they_were() {
    let place = Place::new();
    for (name, text) in [(MONDAY.0, "monday"), (FRIDAY.0, "friday")] {
        let path = place.snapshot(name);
        fs::create_dir(path.join("d")).unwrap();
        fs::write(path.join("d/f"), text).unwrap();
    }
    fs::write(place.snapshot(FRIDAY.0).join("d/late"), "late").unwrap();
    for other in ["lost+found", "2023-13-01_000000"] {
        place.snapshot(other);
    }
    fs::create_dir(place.share().join("d")).unwrap();
    fs::write(place.share().join("d/f"), "today").unwrap();
    let backend = place.open();
    let (root, cred) = (backend.root(), Cred::root());
    block_on(async {
        assert_eq!(names(&root, &cred).await.unwrap(), ["d"], "no listing has them");
        let all = at(&root, ".snapshot", &cred).await.unwrap();
        assert_eq!(names(&all, &cred).await.unwrap(), [MONDAY.2, FRIDAY.2]);
        for (when, text) in [(MONDAY, "monday"), (FRIDAY, "friday")] {
            for path in [format!(".snapshot/{}/d/f", when.2), format!("d/.snapshot/{}/f", when.2)] {
                let file = at(&root, &path, &cred).await.unwrap();
                assert_eq!(content(&file, Some(&cred)).await.unwrap(), text.as_bytes());
            }
        }
        let path = format!("d/.snapshot/{}/f", MONDAY.2);
        let file = at(&root, &path, &cred).await.unwrap();
        let shown = format!(".snapshot/{}/d/f", MONDAY.2);
        assert_eq!(file.path().await.unwrap(), shown.as_bytes());
        let dir = at(&root, "d/.snapshot", &cred).await.unwrap();
        assert_eq!(dir.path().await.unwrap(), b"d/.snapshot");
        // By time, as SMB asks.
        let d = at(&root, "d", &cred).await.unwrap();
        let times = async |name: Option<&str>| {
            let times = d.snapshot_times(&cred, name.map(str::as_bytes)).await.unwrap();
            times.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(times(None).await, [MONDAY.1, FRIDAY.1]);
        assert_eq!(times(Some("late")).await, [FRIDAY.1]);
        assert_eq!(times(Some("never")).await, [0; 0]);
        let then = d.snapshot_at(&cred, FRIDAY.1).await.unwrap().unwrap();
        assert_eq!(names(&then, &cred).await.unwrap(), ["f", "late"]);
        assert!(d.snapshot_at(&cred, 7).await.unwrap().is_none());
        assert!(then.snapshot_times(&cred, None).await.unwrap().is_empty(), "none of its own");
        assert_eq!(then.lookup(&cred, b".snapshot").await.err(), Some(VfsError::NotFound));
        // The way up ends in the folder of snapshots, and then in the share.
        let monday = at(&root, &format!(".snapshot/{}", MONDAY.2), &cred).await.unwrap();
        let up = at(&monday, "d/..", &cred).await.unwrap();
        assert_eq!(up.id(), monday.id());
        assert_eq!(at(&monday, "..", &cred).await.unwrap().id(), all.id());
        assert_eq!(at(&all, "..", &cred).await.unwrap().id(), root.id());
        for bad in
            ["@GMT-2023.11.27-08.00.01", "@GMT-2023.11.27-08.00.00 ", "2023-11-27_080000", "x"]
        {
            let found = all.lookup(&cred, bad.as_bytes()).await;
            assert_eq!(found.err(), Some(VfsError::NotFound), "{bad}");
        }
    });
}

#[test]
fn nothing_in_a_snapshot_changes() {
    let place = Place::new();
    let monday = place.snapshot(MONDAY.0);
    fs::write(monday.join("f"), "monday").unwrap();
    let backend = place.open();
    let (root, cred) = (backend.root(), Cred::root());
    block_on(async {
        let all = at(&root, ".snapshot", &cred).await.unwrap();
        let then = at(&all, MONDAY.2, &cred).await.unwrap();
        let file = at(&then, "f", &cred).await.unwrap();
        let by = || Acting::caller(&cred);
        let set = || SetAttr { mode: Some(0o600), ..SetAttr::default() };
        for dir in [&all, &then] {
            let ops: [VfsResult<()>; 7] = [
                dir.create(by(), b"n", CreateHow::Unchecked, set()).await.map(drop),
                dir.create(by(), b"f", CreateHow::Unchecked, set()).await.map(drop),
                dir.mkdir(by(), b"n", set()).await.map(drop),
                dir.symlink(&cred, b"n", b"t", set()).await.map(drop),
                dir.remove(by(), b"f", false).await.map(drop),
                dir.rename(by(), b"f", root.as_ref(), b"g", true).await.map(drop),
                dir.setattr(&cred, set(), false).await.map(drop),
            ];
            assert_eq!(ops.map(Result::err), [Some(VfsError::ReadOnly); 7]);
        }
        let write = WriteBy::Open(Some(&cred));
        let ops: [VfsResult<()>; 8] = [
            file.setattr(&cred, set(), true).await.map(drop),
            file.write(write, 0, Vec::new(), Stable::File).await.map(drop),
            file.open(&cred, true, true).await.map(drop),
            file.xattr_set(&cred, b"x", b"y", XattrHow::Either).await.map(drop),
            file.side_set("x", None).await,
            file.acl_set(&Acl::new(Vec::new()), 0).await,
            file.dos_set(Dos::default()).await,
            file.may(&cred, Intent::Write).await,
        ];
        assert_eq!(ops.map(Result::err), [Some(VfsError::ReadOnly); 8]);
        // The folder of the share cannot be a target either, and the name is taken.
        let crossed = root.rename(by(), b"x", then.as_ref(), b"y", true).await.err();
        assert!(matches!(crossed, Some(VfsError::CrossDevice | VfsError::NotFound)), "{crossed:?}");
        assert_eq!(file.link(by(), root.as_ref(), b"l").await.err(), Some(VfsError::CrossDevice));
        let made = root.mkdir(by(), b".snapshot", set()).await.map(drop);
        assert_eq!(made.err(), Some(VfsError::Access));
        assert!(!file.is_cacheable() && file.getattr().await.unwrap().sealed);
        assert_eq!(content(&file, None).await.unwrap(), b"monday");
    });
    assert_eq!(fs::read_dir(&monday).unwrap().count(), 1);
    assert_eq!(fs::read_dir(place.share()).unwrap().count(), 0);
}

#[test]
fn files_are_distinct_from_those_of_today() {
    let place = Place::new();
    for path in [place.share(), place.snapshot(MONDAY.0), place.snapshot(FRIDAY.0)] {
        fs::write(path.join("f"), "text").unwrap();
    }
    // As snapshots of hard links have it: one file, three times.
    for name in [MONDAY.0, FRIDAY.0] {
        fs::hard_link(place.share().join("f"), place.snapshot(name).join("same")).unwrap();
    }
    fs::hard_link(place.share().join("f"), place.share().join("same")).unwrap();
    let backend = place.open();
    let (root, cred) = (backend.root(), Cred::root());
    block_on(async {
        for name in ["f", "same"] {
            let (mut files, mut handles) = (Vec::new(), Vec::new());
            for dir in [
                String::new(),
                format!(".snapshot/{}/", MONDAY.2),
                format!(".snapshot/{}/", FRIDAY.2),
            ] {
                let file = at(&root, &format!("{dir}{name}"), &cred).await.unwrap();
                let attr = file.getattr().await.unwrap();
                files.push((attr.fsid, attr.fileid));
                handles.push(file.handle());
            }
            for (i, one) in files.iter().enumerate() {
                assert!(files[..i].iter().all(|other| other.0 != one.0), "{files:?}");
                assert!(!handles[..i].contains(&handles[i]));
            }
        }
        // The folder of snapshots is in the file system of the share, under a number that no file has.
        let all = at(&root, ".snapshot", &cred).await.unwrap();
        let (its, top) = (all.getattr().await.unwrap(), root.getattr().await.unwrap());
        assert_eq!(its.fsid, top.fsid);
        assert!(its.fileid >> 63 == 1 && top.fileid >> 63 == 0);
        let entered = at(&all, MONDAY.2, &cred).await.unwrap();
        let (listed, _) = all.readdir(&cred, 0, 9).await.unwrap();
        assert_eq!(entered.mounted_on(), Some(listed[0].fileid));
    });
}

#[test]
fn handles_survive_a_restart_and_end_with_the_snapshot() {
    let place = Place::new();
    let monday = place.snapshot(MONDAY.0);
    fs::create_dir_all(monday.join("d/e")).unwrap();
    fs::write(monday.join("d/e/f"), "monday").unwrap();
    fs::create_dir(place.share().join("d")).unwrap();
    for unprivileged in [false, true] {
        let cred = Cred::root();
        let paths = [".snapshot", "d/.snapshot", "@", "@/d", "@/d/e/f"];
        let path = |path: &str| path.replace('@', &format!(".snapshot/{}", MONDAY.2));
        let first = place.open_as(unprivileged);
        let handles: Vec<Handle> = block_on(async {
            let mut all = Vec::new();
            for one in paths {
                all.push(at(&first.root(), &path(one), &cred).await.unwrap().handle());
            }
            all
        });
        drop(first);
        let again = place.open_as(unprivileged);
        block_on(async {
            for (handle, one) in handles.iter().zip(paths) {
                let node = again.resolve(handle).await.unwrap();
                assert_eq!(node.handle(), *handle, "{one}");
                assert_eq!(node.id(), at(&again.root(), &path(one), &cred).await.unwrap().id());
                assert!(!again.knows(handle) && !again.is_gone(handle).await.unwrap());
            }
            let file = again.resolve(&handles[4]).await.unwrap();
            assert_eq!(content(&file, Some(&cred)).await.unwrap(), b"monday");
            let dir = again.resolve(&handles[3]).await.unwrap();
            assert_eq!(names(&dir, &cred).await.unwrap(), ["e"]);
            // Another time, another share.
            for bad in [vec![0x81], vec![0x81, 0, 0, 0, 0], vec![0xff; 48], vec![0x41; 30]] {
                let found = again.resolve(&Handle::new(&bad).unwrap()).await.map(drop);
                assert!(matches!(found, Err(VfsError::Stale | VfsError::BadHandle)), "{found:?}");
            }
            // Removed while files in it are open.
            fs::rename(&monday, place.dir.path().join("gone")).unwrap();
            let began = Instant::now();
            while again.resolve(&handles[4]).await.err() != Some(VfsError::Stale) {
                assert!(began.elapsed() < Duration::from_secs(10));
                std::thread::sleep(Duration::from_millis(10));
            }
            let all = at(&again.root(), ".snapshot", &cred).await.unwrap();
            assert_eq!(names(&all, &cred).await.unwrap(), [""; 0]);
            fs::rename(place.dir.path().join("gone"), &monday).unwrap();
        });
    }
}

#[test]
fn a_folder_made_anew_under_the_name_is_another_snapshot() {
    let place = Place::new();
    let monday = place.snapshot(MONDAY.0);
    fs::write(monday.join("f"), "first").unwrap();
    let backend = place.open();
    let (root, cred, path) = (backend.root(), Cred::root(), format!(".snapshot/{}/f", MONDAY.2));
    block_on(async {
        let old = at(&root, &path, &cred).await.unwrap();
        fs::rename(&monday, place.dir.path().join("old")).unwrap();
        fs::write(place.snapshot(MONDAY.0).join("f"), "second").unwrap();
        std::thread::sleep(Duration::from_millis(1100));
        let new = at(&root, &path, &cred).await.unwrap();
        assert_eq!(content(&new, Some(&cred)).await.unwrap(), b"second");
        assert_ne!(old.id(), new.id());
    });
}

#[test]
fn no_way_leads_out_of_a_snapshot() {
    let place = Place::new();
    let secret = place.dir.path().join("secret");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("f"), "secret").unwrap();
    let monday = place.snapshot(MONDAY.0);
    symlink(&secret, monday.join("link")).unwrap();
    symlink("../../secret", monday.join("up")).unwrap();
    // A whole snapshot that is a link.
    symlink(&secret, place.dir.path().join("snapshots").join(FRIDAY.0)).unwrap();
    let backend = place.open();
    let (root, cred) = (backend.root(), Cred::root());
    block_on(async {
        let then = at(&root, &format!(".snapshot/{}", MONDAY.2), &cred).await.unwrap();
        for name in ["link", "up"] {
            let link = at(&then, name, &cred).await.unwrap();
            assert_eq!(link.kind(), Kind::Symlink);
            assert_eq!(link.lookup(&cred, b"f").await.err(), Some(VfsError::Symlink));
        }
        assert!(at(&root, &format!(".snapshot/{}", FRIDAY.2), &cred).await.is_err());
        assert_eq!(at(&then, "../../..", &cred).await.unwrap().id(), root.id());
    });
}

#[test]
fn snapshots_inside_the_share_are_reached_by_one_name_only() {
    let place = Place::new();
    let inner = place.share().join(".zfs/snapshot/auto-2023-11-27_08-00-00-daily");
    folder(&inner);
    folder(inner.parent().unwrap());
    fs::write(inner.join("f"), "monday").unwrap();
    let config = LocalConfig::new(place.share());
    let cred = Cred::root();
    let absolute =
        format!("{}/.zfs/snapshot/auto-{{time:%Y-%m-%d_%H-%M-%S}}-*", place.share().display());
    for pattern in [".zfs/snapshot/auto-{time:%Y-%m-%d_%H-%M-%S}-*", &absolute] {
        let backend = LocalBackend::open(config.clone()).unwrap();
        let root = backend.root();
        block_on(async {
            assert_eq!(names(&root, &cred).await.unwrap(), [".zfs"]);
            backend.set_snapshots(Some(&pattern.parse().unwrap()));
            let file = at(&root, &format!(".snapshot/{}/f", MONDAY.2), &cred).await.unwrap();
            assert_eq!(content(&file, Some(&cred)).await.unwrap(), b"monday");
            assert_eq!(at(&root, ".zfs", &cred).await.err(), Some(VfsError::NotFound));
        });
        // A listing that was read ahead may be a second old.
        let fresh = LocalBackend::open(config.clone()).unwrap();
        fresh.set_snapshots(Some(&pattern.parse().unwrap()));
        assert_eq!(block_on(names(&fresh.root(), &cred)).unwrap(), [""; 0]);
        fresh.set_snapshots(None);
        assert!(block_on(fresh.snapshots_told()).unwrap().is_none());
        assert_eq!(block_on(at(&fresh.root(), ".snapshot", &cred)).err(), Some(VfsError::NotFound));
    }
}

#[test]
fn numbered_snapshots_have_the_time_that_snapper_wrote() {
    let place = Place::new();
    let all = place.share().join(".snapshots");
    for (number, info) in [("1", "<date>2023-11-27 08:00:00</date>"), ("2", "none"), ("x", "")] {
        folder(&all);
        folder(&all.join(number).join("snapshot"));
        fs::write(all.join(number).join("info.xml"), info).unwrap();
        fs::write(all.join(number).join("snapshot/f"), number).unwrap();
    }
    let backend = LocalBackend::open(LocalConfig::new(place.share())).unwrap();
    backend.set_snapshots(Some(&".snapshots/{number}/snapshot".parse().unwrap()));
    let (root, cred) = (backend.root(), Cred::root());
    block_on(async {
        let dir = at(&root, ".snapshot", &cred).await.unwrap();
        assert_eq!(names(&dir, &cred).await.unwrap(), [MONDAY.2]);
        let file = at(&dir, &format!("{}/f", MONDAY.2), &cred).await.unwrap();
        assert_eq!(content(&file, Some(&cred)).await.unwrap(), b"1");
    });
}

/// Otherwise clients could read files there by the rights of then alone, and write them.
#[test]
fn snapshots_inside_the_share_have_no_other_name() {
    let place = Place::new();
    for base in ["snapshots", "a/.snapshots"] {
        let of_then = place.share().join(base).join(MONDAY.0);
        fs::create_dir_all(&of_then).unwrap();
        fs::write(of_then.join("f"), "then").unwrap();
        let base = place.share().join(base);
        fs::set_permissions(&base, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(base.join("2023-11-27_090000"), "no folder").unwrap();
    }
    let cred = Cred::root();
    let open = |base: &str| {
        let backend = LocalBackend::open(LocalConfig::new(place.share())).unwrap();
        let before =
            block_on(at(&backend.root(), &format!("{base}/{}/f", MONDAY.0), &cred)).unwrap();
        let pattern = format!("{base}/{{time:%Y-%m-%d_%H%M%S}}");
        backend.set_snapshots(Some(&pattern.parse().unwrap()));
        (backend, before.handle())
    };
    let (backend, handle) = open("snapshots");
    block_on(async {
        let root = backend.root();
        assert_eq!(at(&root, "snapshots", &cred).await.err(), Some(VfsError::NotFound));
        assert!(!names(&root, &cred).await.unwrap().contains(&"snapshots".to_owned()));
        let versions = at(&root, ".snapshot", &cred).await.unwrap();
        assert_eq!(names(&versions, &cred).await.unwrap(), [MONDAY.2]);
        let f = at(&versions, &format!("{}/f", MONDAY.2), &cred).await.unwrap();
        assert_eq!(content(&f, Some(&cred)).await.unwrap(), b"then");
    });
    // A client had looked the file up before the share got its pattern.
    drop(backend);
    let again = LocalBackend::open(LocalConfig::new(place.share())).unwrap();
    again.set_snapshots(Some(&"snapshots/{time:%Y-%m-%d_%H%M%S}".parse().unwrap()));
    assert_eq!(block_on(again.resolve(&handle)).err(), Some(VfsError::Stale));
    // Only the first name could be hidden here, and it is for other files as well.
    let (backend, _) = open("a/.snapshots");
    let told = block_on(backend.snapshots_told()).unwrap().unwrap();
    assert!(told.told == 0 && told.distrusted.is_some(), "{told:?}");
}

#[test]
fn a_folder_that_others_may_write_has_no_snapshots() {
    let place = Place::new();
    place.snapshot(MONDAY.0);
    let base = place.dir.path().join("snapshots");
    for mode in [0o755, 0o775, 0o757, 0o1777, 0o700] {
        fs::set_permissions(&base, fs::Permissions::from_mode(mode)).unwrap();
        let told = block_on(place.open().snapshots_told()).unwrap().unwrap();
        assert_eq!(
            (told.told == 1, told.distrusted.is_some()),
            (mode & 0o022 == 0, mode & 0o022 != 0)
        );
    }
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&base, Some(1000), None).unwrap();
        assert_eq!(block_on(place.open().snapshots_told()).unwrap().unwrap().told, 0);
    }
    fs::remove_dir_all(&base).unwrap();
    assert_eq!(block_on(place.open().snapshots_told()).unwrap(), Some(Default::default()));
}

#[test]
fn many_snapshots_are_told_and_few_stay_open() {
    let place = Place::new();
    for n in 0..300 {
        fs::write(
            place.snapshot(&format!("2023-11-27_{:02}{:02}00", n / 60, n % 60)).join("f"),
            "x",
        )
        .unwrap();
    }
    let backend = place.open();
    let (root, cred) = (backend.root(), Cred::root());
    block_on(async {
        let times = root.snapshot_times(&cred, Some(b"f")).await.unwrap();
        assert_eq!(times.len(), 300);
        let told = backend.snapshots_told().await.unwrap().unwrap();
        assert_eq!((told.told, told.open), (300, 128));
        // Clients that hold one in each leave room for others.
        let mut held = Vec::new();
        for sec in &times {
            held.push(root.snapshot_at(&cred, *sec).await.unwrap().unwrap());
        }
        assert_eq!(backend.snapshots_told().await.unwrap().unwrap().open, 300);
        drop(held);
        let sec = *times.iter().next().unwrap();
        assert!(root.snapshot_at(&cred, sec).await.unwrap().is_some());
    });
}

fn run(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|done| done.status.success())
}

/// Unmounts at the end, whatever the test finds.
struct Mounted(String);

impl Drop for Mounted {
    fn drop(&mut self) {
        run("umount", &["-l", &self.0]);
    }
}

/// Read-only snapshots of a real Btrfs: numbers of files are those of today, and a snapshot can be deleted while it is in use.
#[test]
fn snapshots_of_btrfs_are_served_until_they_are_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let text = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    folder(&dir.path().join("all"));
    fs::File::create(dir.path().join("image")).unwrap().set_len(128 << 20).unwrap();
    let is_made = run("mkfs.btrfs", &["-q", &text("image")])
        && run("mount", &["-o", "loop", &text("image"), &text("all")]);
    if !is_made {
        println!("skipped: no btrfs to be had");
        return;
    }
    let _mounted = Mounted(text("all"));
    let share = dir.path().join("all/share");
    assert!(run("btrfs", &["subvolume", "create", &text("all/share")]));
    fs::set_permissions(&share, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(share.join("d")).unwrap();
    fs::write(share.join("d/f"), "monday").unwrap();
    folder(&share.join(".snapshots"));
    let monday = text(&format!("all/share/.snapshots/{}", MONDAY.0));
    assert!(run("btrfs", &["subvolume", "snapshot", "-r", &text("all/share"), &monday]));
    fs::write(share.join("d/f"), "today").unwrap();
    fs::rename(share.join("d/f"), share.join("d/renamed")).unwrap();
    let open = || {
        let backend = LocalBackend::open(LocalConfig::new(&share)).unwrap();
        backend.set_snapshots(Some(&".snapshots/{time:%Y-%m-%d_%H%M%S}".parse().unwrap()));
        backend
    };
    let (backend, cred) = (open(), Cred::root());
    let path = format!(".snapshot/{}/d/f", MONDAY.2);
    block_on(async {
        let file = at(&backend.root(), &path, &cred).await.unwrap();
        assert_eq!(content(&file, Some(&cred)).await.unwrap(), b"monday");
        let today = at(&backend.root(), "d/renamed", &cred).await.unwrap();
        let (then, now) = (file.getattr().await.unwrap(), today.getattr().await.unwrap());
        assert_eq!(then.fileid, now.fileid, "btrfs keeps the numbers");
        assert!(then.fsid != now.fsid && file.id() != today.id());
        let again = open();
        let found = again.resolve(&file.handle()).await.unwrap();
        assert_eq!(content(&found, Some(&cred)).await.unwrap(), b"monday");
        assert!(run("btrfs", &["subvolume", "delete", &monday]), "it is not busy");
        let began = Instant::now();
        while backend.resolve(&file.handle()).await.err() != Some(VfsError::Stale) {
            assert!(began.elapsed() < Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(at(&backend.root(), &path, &cred).await.is_err());
        assert_eq!(content(&today, Some(&cred)).await.map(|_| ()), Ok(()), "today goes on");
    });
}

/// What a file or folder has: nothing, mode bits for others, or a list that gives one user these bits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Has {
    None,
    Mode(u32),
    List(u32),
}

/// The slow model: the bits that the user has.
fn bits(has: Has) -> Option<u32> {
    match has {
        Has::None => None,
        Has::Mode(bits) | Has::List(bits) => Some(bits),
    }
}

/// Both must give the bits, as far as there is something today.
fn permits(then: Has, now: Has, need: u32) -> bool {
    let gives = |has| bits(has).is_none_or(|bits| bits & need == need);
    gives(then) && gives(now)
}

async fn give(path: &Path, has: Has) {
    let mode = match has {
        Has::Mode(bits) => 0o700 | bits,
        Has::List(_) | Has::None => 0o700,
    };
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    if let Has::List(bits) = has {
        let is_dir = fs::metadata(path).unwrap().is_dir();
        let read = if bits & 4 != 0 { mask::READ_DATA | mask::READ_EA } else { 0 };
        let run = if bits & 1 != 0 { mask::EXECUTE } else { 0 };
        let rights = mask::READ_ATTRIBUTES | mask::READ_CONTROL | mask::SYNCHRONIZE | read | run;
        let ace = Ace::allow(Who::User(1000), rights, 0);
        assert!(matches!(ace, Ace::Simple { kind: kind::ALLOWED, .. }));
        let (top, name) = (path.parent().unwrap(), path.file_name().unwrap());
        let backend = LocalBackend::open(LocalConfig::new(top)).unwrap();
        let node = at(&backend.root(), name.to_str().unwrap(), &Cred::root()).await.unwrap();
        node.acl_set(&Acl::new(vec![ace]), if is_dir { 0o700 } else { 0o600 }).await.unwrap();
    }
}

/// The table: what folder and file give then, times what they give today, times what a caller wants.
#[test]
fn a_caller_needs_the_right_then_and_today() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: serving callers as themselves needs root");
        return;
    }
    let folders = [
        Has::Mode(0),
        Has::Mode(1),
        Has::Mode(4),
        Has::Mode(5),
        Has::List(1),
        Has::List(4),
        Has::List(5),
    ];
    let files = [Has::Mode(0), Has::Mode(4), Has::Mode(1), Has::List(0), Has::List(4)];
    let mut cases = 0;
    for dir_then in folders {
        for dir_now in folders.into_iter().chain([Has::None]) {
            let all_then = if dir_then == Has::Mode(5) { &files[..] } else { &files[1..2] };
            for file_then in all_then {
                let today = files.into_iter().chain([Has::None]);
                for file_now in today.filter(|f| dir_now != Has::None || *f == Has::None) {
                    one_case((dir_then, dir_now), (*file_then, file_now));
                    cases += 1;
                }
            }
        }
    }
    assert!(cases > 400, "{cases}");
}

fn one_case((dir_then, dir_now): (Has, Has), (file_then, file_now): (Has, Has)) {
    let place = Place::new();
    fs::set_permissions(place.share(), fs::Permissions::from_mode(0o755)).unwrap();
    let what =
        format!("folder {dir_then:?}, today {dir_now:?}; file {file_then:?}, today {file_now:?}");
    let monday = place.snapshot(MONDAY.0);
    block_on(async {
        for (top, dir, file) in
            [(&monday, dir_then, file_then), (&place.share(), dir_now, file_now)]
        {
            if dir == Has::None {
                continue;
            }
            fs::create_dir(top.join("d")).unwrap();
            if file != Has::None {
                fs::write(top.join("d/f"), "x").unwrap();
                give(&top.join("d/f"), file).await;
            }
            give(&top.join("d"), dir).await;
        }
        let backend = place.open();
        let (root, cred) = (backend.root(), user(1000));
        let then = at(&root, &format!(".snapshot/{}", MONDAY.2), &cred).await.unwrap();
        let dir = at(&then, "d", &cred).await.unwrap();
        let lists = permits(dir_then, dir_now, 4);
        let listed = names(&dir, &cred).await;
        assert_eq!(listed.is_ok(), lists, "{what}: {listed:?}");
        let attr = dir.getattr().await.unwrap();
        let can = dir.access(&cred, Access(Access::READ | Access::LOOKUP), &attr).await.unwrap().0;
        assert_eq!(can & Access::READ != 0, lists, "{what}");
        let passes = permits(dir_then, dir_now, 1);
        assert_eq!(can & Access::LOOKUP != 0, passes, "{what}");
        assert_eq!(dir.lookup(&cred, b"f").await.is_ok(), passes, "{what}");
        assert_eq!(
            root.snapshot_times(&cred, None).await.unwrap().len(),
            1,
            "the root lets all pass"
        );
        // By its handle, as NFS, whose callers need no way to it in the snapshot.
        let file = at(&then, "d/f", &Cred::root()).await.unwrap();
        let file = backend.resolve(&file.handle()).await.unwrap();
        let reachable = permits(Has::None, dir_now, 1);
        // The way of today ends where there is no folder.
        let now = if dir_now == Has::None { Has::None } else { file_now };
        // A client of NFS executes what it may read only so.
        let runs = |has| bits(has).is_some_and(|bits| bits & 5 != 0);
        let reads = reachable && runs(file_then) && (now == Has::None || runs(now));
        let got = content(&file, Some(&cred)).await;
        assert_eq!(got.is_ok(), reads, "{what}: {got:?}");
        assert_eq!(file.open(&cred, true, false).await.is_ok(), reads, "{what}");
        assert_eq!(file.may(&cred, Intent::Read).await.is_ok(), reads, "{what}");
        // What the right to read is by a list, as SMB asks.
        let may = reachable && permits(file_then, now, 4);
        let attr = file.getattr().await.unwrap();
        let can = file.access(&cred, Access(Access::READ | Access::MODIFY), &attr).await.unwrap().0;
        assert_eq!(can, if may { Access::READ } else { 0 }, "{what}");
        let bound = file.bounds(&cred).await.unwrap();
        let bounded = reachable && permits(Has::None, now, 4);
        assert_eq!(bound & mask::READ_DATA != 0, bounded, "{what}");
        let changes = mask::WRITE_DATA | mask::APPEND_DATA | mask::DELETE | mask::WRITE_ATTRIBUTES;
        assert_eq!(bound & (changes | mask::WRITE_OWNER), 0, "{what}");
        let grant = vfs::authority::Grant::decide(&file, &attr, &cred).await.unwrap();
        let granted = grant.map(|grant| grant.rights() & mask::READ_DATA != 0);
        assert!(granted.is_none_or(|granted| granted == may), "{what}: {granted:?}");
    });
    assert_eq!(fs::metadata(place.share()).unwrap().mode() & 0o777, 0o755);
}
