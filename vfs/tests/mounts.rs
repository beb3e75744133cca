//! Tests that need separate file systems: a full volume, and volumes mounted below a share. Each test has a separate mount
//! namespace, so no mount remains.

// Helpers of tests are tests too; and test data is cut to bytes on purpose.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, dead_code)]
#![allow(unsafe_code)]

mod suite;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use iobuf::Buf;
use rustix::thread::UnshareFlags;
use suite::*;
use vfs::local::{LocalBackend, LocalConfig};
use vfs::*;

fn block_on<T>(f: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(f)
}

fn bench(root: &Path) -> Bench {
    let config = LocalConfig { recheck: Duration::ZERO, ..LocalConfig::new(root) };
    Bench::new(LocalBackend::open(config).unwrap())
}

fn run(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|o| o.status.success())
}

/// Runs `test` in a separate mount namespace, if that is permitted.
fn apart(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        // SAFETY: only this thread gets a new namespace; it shares no descriptor table or memory map by this.
        let apart =
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS | UnshareFlags::NEWNS) };
        if apart.is_err() || !run("mount", &["--make-rprivate", "/"]) {
            println!("skipped: no mount namespace for this user");
            return;
        }
        test();
    });
    thread.join().unwrap();
}

fn mount_tmpfs(at: &Path, options: &str) {
    assert!(run("mount", &["-t", "tmpfs", "-o", options, "tmpfs", at.to_str().unwrap()]));
}

#[test]
fn full_volume_keeps_its_data() {
    apart(|| {
        let dir = tempfile::tempdir().unwrap();
        mount_tmpfs(dir.path(), "size=1m,nr_inodes=50");
        block_on(async {
            let b = bench(dir.path());
            let f = b.file("f").await;
            let data = pattern(1, 700_000);
            b.write(&f, 0, &data).await;
            for stable in [Stable::Unstable, Stable::File] {
                let w = f
                    .write(WriteBy::Open(None), 700_000, vec![Buf::from(data.clone())], stable)
                    .await;
                let n = w.unwrap().count;
                assert!(n > 0 && n < 700_000);
            }
            let w = f
                .write(
                    WriteBy::Open(None),
                    2 << 20,
                    vec![Buf::from(data.clone())],
                    Stable::Unstable,
                )
                .await;
            assert_eq!(w.err(), Some(VfsError::NoSpace));
            let small = vec![Buf::from(vec![1; 4096])];
            let w = f.write(WriteBy::Open(None), 3 << 20, small, Stable::Unstable).await;
            assert_eq!(w.err(), Some(VfsError::NoSpace));
            refused(f.allocate(None, 0, 4 << 20), VfsError::NoSpace).await;
            assert!(b.contents(&f).await[..700_000] == data);
            // No inode left.
            let mut made = 0;
            let why = loop {
                match b.create(&format!("n{made}"), CreateHow::Guarded).await {
                    Ok(_) => made += 1,
                    Err(e) => break e,
                }
            };
            assert_eq!((why, made < 50), (VfsError::NoSpace, true));
            refused(b.root.mkdir(Acting::caller(&root()), b"d", mode(0o755)), VfsError::NoSpace)
                .await;
            // Removal frees the space at once, although the file was open here.
            drop(f);
            b.root.unlink(Acting::caller(&root()), b"f").await.unwrap();
            // A program that another test starts inherits all open files until it executes.
            let limit = Instant::now() + Duration::from_secs(60);
            let free = async || b.backend.statfs().await.unwrap().free_bytes;
            while free().await <= 900_000 {
                assert!(Instant::now() < limit, "{}", free().await);
                std::thread::yield_now();
            }
            let g = b.file("g").await;
            b.write(&g, 0, &data).await;
        });
    });
}

/// Mounts two folders as one, where each name of a file has an inode that ends with the name; false if this host has no mergerfs.
fn mount_pool(branches: &[&Path], at: &Path) -> bool {
    let branches: Vec<&str> = branches.iter().map(|b| b.to_str().unwrap()).collect();
    let options = "allow_other,use_ino,cache.files=off,category.create=mfs,minfreespace=0";
    run("mergerfs", &["-o", options, &branches.join(":"), at.to_str().unwrap()])
}

/// A hard link is made on the host, and the name that clients know is removed there.
#[test]
fn file_of_pool_outlives_one_name() {
    apart(|| {
        let dir = tempfile::tempdir().unwrap();
        let [a, at] = ["a", "at"].map(|name| dir.path().join(name));
        [&a, &at].iter().for_each(|path| std::fs::create_dir(path).unwrap());
        if !mount_pool(&[&a], &at) {
            println!("skipped: no mergerfs");
            return;
        }
        block_on(async {
            let b = bench(&at);
            let me = root();
            for (case, is_held) in [("held", true), ("not held", false)] {
                let name = |n: &str| format!("{case} {n}");
                let find = async |n: &str| b.root.lookup(&me, name(n).as_bytes()).await;
                let path = |n: &str| at.join(name(n));
                std::fs::write(path("one"), b"episode").unwrap();
                let (one, _) = find("one").await.unwrap();
                std::fs::hard_link(path("one"), path("two")).unwrap();
                let (two, attr) = find("two").await.unwrap();
                assert_eq!((two.id(), attr.nlink), (one.id(), 2), "{case}");
                let (id, handle) = (one.id(), one.handle());
                drop(two);
                let held = is_held.then_some(one);
                std::fs::remove_file(path("one")).unwrap();
                // Found by the handle, and by the name.
                let node = b.backend.resolve(&handle).await.unwrap();
                assert_eq!(node.id(), id, "{case}");
                node.getattr().await.unwrap();
                assert_eq!(b.contents(&node).await, b"episode", "{case}");
                let (two, _) = find("two").await.unwrap();
                assert_eq!((two.id(), b.contents(&two).await), (id, b"episode".to_vec()), "{case}");
                refused(find("one"), VfsError::NotFound).await;
                // Like a rotation of backups: the remaining name was never looked up before.
                std::fs::hard_link(path("two"), path("three")).unwrap();
                std::fs::remove_file(path("two")).unwrap();
                let (three, _) = find("three").await.unwrap();
                assert_eq!(b.contents(&three).await, b"episode", "{case}");
                std::fs::remove_file(path("three")).unwrap();
                refused(find("three"), VfsError::NotFound).await;
                drop(held);
            }
        });
        // The mount ends with the thread's namespace.
        run("umount", &["-l", at.to_str().unwrap()]);
    });
}

/// On the host, a file of a pool is replaced under its name, and the new file gets the old number.
#[test]
fn replaced_file_of_pool_is_new() {
    apart(|| {
        let dir = tempfile::tempdir().unwrap();
        let [branch, at] = ["branch", "at"].map(|name| dir.path().join(name));
        [&branch, &at].iter().for_each(|path| std::fs::create_dir(path).unwrap());
        if !mount_half_reserved(&dir.path().join("image"), &branch) || !mount_pool(&[&branch], &at)
        {
            println!("skipped: no mergerfs or no file system of its own");
            return;
        }
        block_on(async {
            let b = bench(&at);
            let find = async || b.root.lookup(&root(), b"f").await;
            std::fs::write(at.join("f"), b"old").unwrap();
            let (old, seen) = find().await.unwrap();
            let handle = old.handle();
            std::fs::remove_file(at.join("f")).unwrap();
            std::fs::write(at.join("f"), b"another").unwrap();
            let (new, attr) = find().await.unwrap();
            if attr.fileid != seen.fileid {
                println!("skipped: the number was not given again");
                return;
            }
            assert_ne!(new.id(), old.id());
            assert_eq!(b.contents(&new).await, b"another");
            refused(old.getattr(), VfsError::Stale).await;
            drop(old);
            refused(b.backend.resolve(&handle), VfsError::Stale).await;
        });
        for path in [&at, &branch] {
            run("umount", &["-l", path.to_str().unwrap()]);
        }
    });
}

/// As [`replaced_file_of_pool_is_new`], with several shares of the pool: one without a record of the old file finds the new one
/// first. And names of one file, each of which has an inode, are one file in all.
#[test]
fn replaced_file_of_pool_is_new_in_all_shares() {
    apart(|| {
        let dir = tempfile::tempdir().unwrap();
        let [branch, at] = ["branch", "at"].map(|name| dir.path().join(name));
        [&branch, &at].iter().for_each(|path| std::fs::create_dir(path).unwrap());
        if !mount_half_reserved(&dir.path().join("image"), &branch) || !mount_pool(&[&branch], &at)
        {
            println!("skipped: no mergerfs or no file system of its own");
            return;
        }
        block_on(async {
            let [one, two, three] = [(); 3].map(|()| bench(&at));
            let me = root();
            let find =
                async |b: &Bench, name: &str| b.root.lookup(&me, name.as_bytes()).await.unwrap();
            std::fs::write(at.join("g"), b"linked").unwrap();
            std::fs::hard_link(at.join("g"), at.join("h")).unwrap();
            assert_eq!(find(&one, "g").await.0.id(), find(&two, "h").await.0.id());
            std::fs::write(at.join("f"), b"old").unwrap();
            let (old, seen) = find(&one, "f").await;
            assert_eq!(find(&two, "f").await.0.id(), old.id());
            std::fs::remove_file(at.join("f")).unwrap();
            std::fs::write(at.join("f"), b"another").unwrap();
            let (there, attr) = find(&three, "f").await;
            if attr.fileid != seen.fileid {
                println!("skipped: the number was not given again");
                return;
            }
            assert_ne!(there.id(), old.id(), "two files have one identity");
            let (here, _) = find(&one, "f").await;
            assert_eq!(here.id(), there.id(), "one file has two identities");
            assert_eq!(find(&two, "f").await.0.id(), here.id());
        });
        for path in [&at, &branch] {
            run("umount", &["-l", path.to_str().unwrap()]);
        }
    });
}

/// Mounts an ext4 file system with half of its blocks reserved for root; false if this host cannot make or mount one.
fn mount_half_reserved(image: &Path, at: &Path) -> bool {
    let file = std::fs::File::create(image).unwrap();
    file.set_len(16 << 20).unwrap();
    let (image, at) = (image.to_str().unwrap(), at.to_str().unwrap());
    run("mkfs.ext4", &["-q", "-F", "-m", "50", image]) && run("mount", &["-o", "loop", image, at])
}

/// Writes by this function until the volume is full; returns how many bytes were written.
async fn until_full(mut write: impl AsyncFnMut(u64) -> VfsResult<u64>) -> u64 {
    let mut taken = 0;
    loop {
        match write(taken).await {
            Ok(0) | Err(VfsError::NoSpace) => return taken,
            Ok(n) => taken += n,
            Err(e) => panic!("{e}"),
        }
    }
}

const STEP: usize = 256 << 10;

/// Blocks reserved for root stay reserved: every way by which a caller uses storage fails at the reserve.
#[test]
fn callers_do_not_use_roots_reserve() {
    apart(|| {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("at");
        std::fs::create_dir(&at).unwrap();
        if !mount_half_reserved(&dir.path().join("image"), &at) {
            println!("skipped: no file system of its own to be had");
            return;
        }
        block_on(async {
            let b = bench(&at);
            b.root.setattr(&root(), mode(0o777), false).await.unwrap();
            let bob = user(1002);
            let free = async || b.backend.statfs().await.unwrap().avail_bytes;
            let data = || vec![Buf::from(vec![7; STEP])];
            for way in ["judged", "opened", "hole", "reserved", "copied", "durable"] {
                let f = b
                    .root
                    .create(Acting::caller(&bob), b"f", CreateHow::Guarded, mode(0o600))
                    .await
                    .unwrap();
                let f = f.node;
                let source = b.file("source").await;
                b.write(&source, 0, &vec![7; STEP]).await;
                if way == "hole" {
                    let grown = SetAttr { size: Some(64 << 20), ..SetAttr::default() };
                    f.setattr(&bob, grown, false).await.unwrap();
                }
                let room = free().await;
                let some = async |at: u64| {
                    let n = |w: Written| w.count as u64;
                    match way {
                        "judged" => f
                            .write(WriteBy::Caller(&bob), at, data(), Stable::Unstable)
                            .await
                            .map(n),
                        "durable" => f
                            .write(WriteBy::Open(Some(&bob)), at, data(), Stable::File)
                            .await
                            .map(n),
                        "reserved" => {
                            let step = STEP as u64;
                            f.allocate(Some(&bob), at, step).await.map(|()| step)
                        }
                        "copied" => {
                            let step = STEP as u64;
                            f.copy_range(Some(&bob), source.as_ref(), 0, at, step).await
                        }
                        _ => f
                            .write(WriteBy::Open(Some(&bob)), at, data(), Stable::Unstable)
                            .await
                            .map(n),
                    }
                };
                let taken = until_full(some).await;
                assert!(taken > 1 << 20 && taken <= room, "{way}: {taken} of {room}");
                // Root itself may use the reserve.
                let w =
                    source.write(WriteBy::Caller(&root()), STEP as u64, data(), Stable::File).await;
                assert_eq!(w.unwrap().count, STEP, "{way}");
                b.root.unlink(Acting::caller(&root()), b"f").await.unwrap();
                b.root.unlink(Acting::caller(&root()), b"source").await.unwrap();
                drop((f, source));
                b.root.getattr().await.unwrap();
                assert!(run("sync", &["-f", at.to_str().unwrap()]));
            }
        });
        assert!(run("umount", &["-l", at.to_str().unwrap()]));
    });
}

/// Set-id bits are cleared before the data changes, so that no program runs as its owner with data that another user wrote.
#[test]
fn set_id_bits_cleared_before_data() {
    // Separate volumes: the space of removed files is free only when all threads have closed them.
    for opened in [false, true] {
        apart(move || {
            let dir = tempfile::tempdir().unwrap();
            mount_tmpfs(dir.path(), "size=64k");
            block_on(async {
                let b = bench(dir.path());
                let bob = user(1002);
                let data = vec![Buf::from(vec![7; 4096])];
                let f = b.file("f").await;
                b.write(&f, 0, &[1; 4096]).await;
                let full = b.file("full").await;
                let _ = full
                    .write(WriteBy::Open(None), 0, vec![Buf::from(vec![1; 1 << 20])], Stable::File)
                    .await;
                f.setattr(&root(), mode(0o6777), false).await.unwrap();
                // The volume has no space for the data, which would come after the bits.
                let by = match opened {
                    true => WriteBy::Open(Some(&bob)),
                    false => WriteBy::Caller(&bob),
                };
                let why = f.write(by, 8192, data, Stable::Unstable).await;
                assert_eq!(why.err(), Some(VfsError::NoSpace));
                assert_eq!(f.getattr().await.unwrap().mode, 0o777, "{opened}");
            });
        });
    }
}

/// A share that crosses mount points serves the file systems below it, each as a separate volume.
#[test]
fn share_crosses_into_mounts_below() {
    apart(|| {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let share = dir.path().join("share");
        let path = |name: &str| share.join(name);
        for name in ["mem", "bound", "again", "up", "kernel", "theirs", "d/deep"] {
            std::fs::create_dir_all(path(name)).unwrap();
        }
        std::fs::write(outside.path().join("inner"), b"outside").unwrap();
        mount_tmpfs(&path("mem"), "size=1m");
        mount_tmpfs(&path("d/deep"), "size=1m");
        mount_tmpfs(&path("theirs"), "size=1m");
        let bind = |from: &Path, to: &str| {
            assert!(run("mount", &["--bind", from.to_str().unwrap(), path(to).to_str().unwrap()]));
        };
        bind(outside.path(), "bound");
        bind(&path("d"), "again");
        bind(dir.path(), "up");
        assert!(run("mount", &["-t", "proc", "proc", path("kernel").to_str().unwrap()]));
        block_on(async {
            let config =
                LocalConfig { recheck: Duration::ZERO, cross: true, ..LocalConfig::new(&share) };
            let b = Bench::new(LocalBackend::open(config).unwrap());
            b.backend.set_cross(true, vec![path("theirs")]);
            let (r, me) = (&b.root, root());
            let find = async |name: &str| r.lookup(&me, name.as_bytes()).await.map(|(n, _)| n);
            // The share itself mounted again, another share, or a file system of the kernel.
            for name in ["again", "up", "kernel", "theirs"] {
                assert_eq!(find(name).await.err(), Some(VfsError::Access), "{name}");
            }
            let own = r.getattr().await.unwrap();
            let listed = r.readdir(&me, 0, 100).await.unwrap().0;
            for (name, other_fs) in [("mem", true), ("bound", false)] {
                let top = find(name).await.unwrap();
                let attr = top.getattr().await.unwrap();
                assert_eq!(attr.fsid != own.fsid, other_fs, "{name}");
                let covered = listed.iter().find(|e| *e.name == *name.as_bytes()).unwrap().fileid;
                assert_eq!(top.mounted_on(), Some(covered), "{name}");
                assert_ne!(attr.fileid, covered, "{name}");
                assert!(top.is_beside(r.as_ref()) && r.mounted_on().is_none(), "{name}");
                // Back to the parent.
                let (above, _) = top.lookup(&me, b"..").await.unwrap();
                assert_eq!(above.id(), r.id(), "{name}");
                assert_eq!(top.path().await.unwrap(), name.as_bytes());
                let made = top.create(Acting::caller(&me), b"f", CreateHow::Guarded, mode(0o644));
                let f = made.await.unwrap().node;
                b.write(&f, 0, b"data").await;
                assert_eq!(f.path().await.unwrap(), format!("{name}/f").into_bytes());
                assert_eq!(b.backend.resolve(&f.handle()).await.unwrap().id(), f.id(), "{name}");
                assert_eq!(std::fs::read(path(name).join("f")).unwrap(), b"data");
                // Names do not move between volumes, and a mount point stays.
                let by = || Acting::caller(&me);
                let across = VfsError::CrossDevice;
                refused(top.rename(by(), b"f", r.as_ref(), b"f", true), across).await;
                refused(f.link(by(), r.as_ref(), b"g"), across).await;
                refused(r.rmdir(by(), name.as_bytes()), VfsError::Access).await;
                // Checked as the caller.
                top.setattr(&me, mode(0o700), false).await.unwrap();
                refused(top.lookup(&user(1003), b"f"), VfsError::Access).await;
            }
            volumes_come_and_go(&share, &b, own.fsid).await;
        });
    });
}

/// Part of [`share_crosses_into_mounts_below`]: a handle of an earlier run, and a volume that is unmounted while clients use it.
async fn volumes_come_and_go(share: &Path, b: &Bench, own: u64) {
    let me = root();
    let find = async |name: &str| b.root.lookup(&me, name.as_bytes()).await.map(|(n, _)| n);
    let mem = find("mem").await.unwrap();
    assert_eq!(b.backend.statfs_of(&mem).await.unwrap().total_bytes, 1 << 20);
    let deep = find("d").await.unwrap().lookup(&me, b"deep").await.unwrap().0;
    assert_eq!(deep.path().await.unwrap(), b"d/deep");
    // A handle of an earlier run finds its volume before a name does.
    let (f, _) = mem.lookup(&me, b"f").await.unwrap();
    let config = LocalConfig { cross: true, ..LocalConfig::new(share) };
    let later = LocalBackend::open(config).unwrap();
    let again = later.resolve(&f.handle()).await.unwrap();
    assert_eq!(again.path().await.unwrap(), b"mem/f");
    assert!(later.knows(&f.handle()) && b.backend.knows(&f.handle()));
    drop((again, later));
    // A volume that is unmounted while in use is stale, and its handles do not count as removed.
    assert!(run("umount", &["-l", share.join("mem").to_str().unwrap()]));
    refused(mem.lookup(&me, b"f"), VfsError::Stale).await;
    refused(mem.readdir(&me, 0, 10), VfsError::Stale).await;
    let covered = find("mem").await.unwrap();
    assert_eq!((covered.mounted_on(), covered.getattr().await.unwrap().fsid), (None, own));
    // When it no longer crosses mount points, all are refused.
    b.backend.set_cross(false, Vec::new());
    refused(find("bound"), VfsError::Access).await;
}

/// Two FUSE file systems have no number that distinguishes them.
#[test]
fn pools_below_share_are_distinguished() {
    apart(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["a", "b", "share/a", "share/b"] {
            std::fs::create_dir_all(path(name)).unwrap();
        }
        if !["a", "b"].iter().all(|n| mount_pool(&[&path(n)], &path("share").join(n))) {
            println!("skipped: no mergerfs");
            return;
        }
        block_on(async {
            let config = LocalConfig { cross: true, ..LocalConfig::new(path("share")) };
            let b = Bench::new(LocalBackend::open(config).unwrap());
            let me = root();
            let mut seen = Vec::new();
            for name in ["a", "b"] {
                std::fs::write(path(name).join("f"), name).unwrap();
                let top = b.root.lookup(&me, name.as_bytes()).await.unwrap().0;
                let f = top.lookup(&me, b"f").await.unwrap().0;
                seen.push((name, top.getattr().await.unwrap().fsid, f.handle()));
            }
            assert_ne!(seen[0].1, seen[1].1);
            for (name, _, handle) in seen {
                let f = b.backend.resolve(&handle).await.unwrap();
                assert_eq!(b.contents(&f).await, name.as_bytes());
            }
        });
        for name in ["a", "b"] {
            run("umount", &["-l", path("share").join(name).to_str().unwrap()]);
        }
    });
}

/// Runs `test` on a share with two volumes below it, and a backend that crosses into them.
fn share_with_two(test: impl AsyncFn(&Path, &Bench) + Send + 'static) {
    apart(move || {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            mount_tmpfs(&dir.path().join(name), "size=1m");
            std::fs::write(dir.path().join(name).join("f"), name).unwrap();
        }
        block_on(async { test(dir.path(), &crossing(dir.path())).await });
    });
}

fn crossing(root: &Path) -> Bench {
    Bench::new(LocalBackend::open(LocalConfig { cross: true, ..LocalConfig::new(root) }).unwrap())
}

async fn find_in(b: &Bench, folder: &str, name: &str) -> NodeRef {
    let (folder, _) = b.root.lookup(&root(), folder.as_bytes()).await.unwrap();
    folder.lookup(&root(), name.as_bytes()).await.unwrap().0
}

/// After a restart, handles of all mounts arrive within the same second.
#[test]
fn handles_of_all_mounts_outlive_restart() {
    share_with_two(async |share, b| {
        let mut handles = Vec::new();
        for name in ["a", "b"] {
            handles.push((name, find_in(b, name, "f").await.handle()));
        }
        let later = crossing(share);
        for round in 0..3 {
            for (name, handle) in &handles {
                let f = later.backend.resolve(handle).await.unwrap();
                assert_eq!(later.contents(&f).await, name.as_bytes(), "{round}");
            }
        }
        // A volume that is mounted after the scan is found, and one that is unmounted is stale.
        let unmounted = share.join("b");
        assert!(run("umount", &["-l", unmounted.to_str().unwrap()]));
        let later = crossing(share);
        refused(later.backend.resolve(&handles[1].1), VfsError::Stale).await;
        later.backend.resolve(&handles[0].1).await.unwrap();
        mount_tmpfs(&unmounted, "size=1m");
        std::fs::write(unmounted.join("g"), b"new").unwrap();
        let new = find_in(&crossing(share), "b", "g").await.handle();
        let f = later.backend.resolve(&new).await.unwrap();
        assert_eq!(later.contents(&f).await, b"new");
        refused(later.backend.resolve(&handles[1].1), VfsError::Stale).await;
    });
}

/// A start removes streams of missing files only on mounted volumes.
#[test]
fn streams_inside_mounts_outlive_sweep() {
    share_with_two(async |share, b| {
        let ns = suite::streams::served(b);
        for (folder, name) in [("a", "f"), ("a", "gone"), ("b", "f")] {
            std::fs::write(share.join(folder).join(name), name).unwrap();
            let f = find_in(b, folder, name).await;
            let made = ns.by(None).stream_create(&ns.shares()[0], &f, &root(), "s").await.unwrap();
            b.write(&made.0.node, 0, folder.as_bytes()).await;
        }
        std::fs::remove_file(share.join("a/gone")).unwrap();
        let sweep = async |removed| {
            let later = crossing(share);
            let ns = suite::streams::served(&later);
            assert_eq!(vfs::streams::sweep(&ns.shares()[0]).await, Ok(removed));
            later
        };
        let later = sweep(1).await;
        let ns = suite::streams::served(&later);
        for folder in ["a", "b"] {
            let f = find_in(&later, folder, "f").await;
            let s = vfs::streams::find(&ns.shares()[0], &f, "s").await.unwrap();
            assert_eq!(later.contents(&s.node).await, folder.as_bytes());
        }
        // A volume that is not mounted now may come back.
        assert!(run("umount", &["-l", share.join("b").to_str().unwrap()]));
        sweep(0).await;
    });
}

/// A file system program that never answers.
#[test]
fn silent_mount_delays_clients() {
    apart(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["branch", "share/mem", "share/pool"] {
            std::fs::create_dir_all(path(name)).unwrap();
        }
        std::fs::write(path("branch/f"), b"data").unwrap();
        mount_tmpfs(&path("share/mem"), "size=1m");
        std::fs::write(path("share/mem/f"), b"data").unwrap();
        let handle =
            block_on(async { find_in(&crossing(&path("share")), "mem", "f").await.handle() });
        let [branch, pool] = ["branch", "share/pool"].map(|n| path(n).to_str().unwrap().to_owned());
        let options = "allow_other,use_ino,cache.files=off,category.create=mfs,minfreespace=0";
        let program = Command::new("mergerfs")
            .args(["-f", "-o", options, &branch, &pool])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn();
        let Ok(mut program) = program else {
            println!("skipped: no mergerfs");
            return;
        };
        let limit = Instant::now() + Duration::from_secs(60);
        while !path("share/pool/f").exists() {
            assert!(Instant::now() < limit, "the pool is mounted");
            std::thread::yield_now();
        }
        let signal = |name| assert!(run("kill", &[name, &program.id().to_string()]));
        signal("-STOP");
        block_on(async {
            let b = crossing(&path("share"));
            let me = root();
            let pool = async || b.root.lookup(&me, b"pool").await;
            assert_eq!(pool().await.err(), Some(VfsError::Delay));
            let before = Instant::now();
            assert_eq!(pool().await.err(), Some(VfsError::Delay));
            assert!(before.elapsed() < Duration::from_secs(1), "only the first waits");
            b.backend.resolve(&handle).await.unwrap();
            find_in(&b, "mem", "f").await;
            // The pool may have issued this handle.
            let mut unknown = handle.as_bytes().to_vec();
            unknown[1] ^= 1;
            let unknown = Handle::new(&unknown).unwrap();
            refused(b.backend.resolve(&unknown), VfsError::Delay).await;
            signal("-CONT");
            let limit = Instant::now() + Duration::from_secs(60);
            let (top, _) = loop {
                match pool().await {
                    Err(VfsError::Delay) if Instant::now() < limit => std::thread::yield_now(),
                    found => break found.unwrap(),
                }
            };
            let (f, _) = top.lookup(&me, b"f").await.unwrap();
            assert_eq!(b.contents(&f).await, b"data");
            let why = loop {
                match b.backend.resolve(&unknown).await.err() {
                    Some(VfsError::Delay) if Instant::now() < limit => std::thread::yield_now(),
                    why => break why,
                }
            };
            assert_eq!(why, Some(VfsError::Stale));
        });
        run("umount", &["-l", &pool]);
        let _ = program.kill();
        let _ = program.wait();
    });
}

/// All subvolumes of btrfs have the UUID of their file system, and root inodes of the same number.
#[test]
fn subvolumes_below_share_are_distinguished() {
    apart(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["all", "share/a", "share/b"] {
            std::fs::create_dir_all(path(name)).unwrap();
        }
        let text = |name: &str| path(name).to_str().unwrap().to_owned();
        std::fs::File::create(path("image")).unwrap().set_len(128 << 20).unwrap();
        let is_made = run("mkfs.btrfs", &["-q", &text("image")])
            && run("mount", &["-o", "loop", &text("image"), &text("all")])
            && ["a", "b"].iter().all(|name| {
                let device = Command::new("findmnt").args(["-no", "SOURCE", &text("all")]).output();
                let device = String::from_utf8(device.unwrap().stdout).unwrap();
                let at = format!("subvol={name}");
                run("btrfs", &["subvolume", "create", &text(&format!("all/{name}"))])
                    && run("mount", &["-o", &at, device.trim(), &text(&format!("share/{name}"))])
            });
        if !is_made {
            println!("skipped: no btrfs to be had");
            return;
        }
        block_on(async {
            let b = crossing(&path("share"));
            let mut seen = Vec::new();
            for name in ["a", "b"] {
                std::fs::write(path("share").join(name).join("f"), name).unwrap();
                let (top, attr) = b.root.lookup(&root(), name.as_bytes()).await.unwrap();
                seen.push((attr.fsid, attr.fileid, top.handle(), find_in(&b, name, "f").await));
            }
            assert_eq!(seen[0].1, seen[1].1);
            assert_ne!(seen[0].0, seen[1].0);
            assert_ne!(seen[0].2, seen[1].2);
            let later = crossing(&path("share"));
            for ((.., f), name) in seen.iter().zip(["a", "b"]) {
                let f = later.backend.resolve(&f.handle()).await.unwrap();
                assert_eq!(later.contents(&f).await, name.as_bytes());
            }
        });
        for name in ["share/a", "share/b", "all"] {
            run("umount", &["-l", &text(name)]);
        }
    });
}

#[test]
fn mounts_refused_without_cross() {
    apart(|| {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("below");
        std::fs::create_dir(&below).unwrap();
        std::fs::write(dir.path().join("f"), b"").unwrap();
        mount_tmpfs(&below, "size=1m");
        std::fs::write(below.join("secret"), b"secret").unwrap();
        // The same file system, but through a bind mount of a folder outside.
        let bound = dir.path().join("bound");
        std::fs::create_dir(&bound).unwrap();
        assert!(run("mount", &["--bind", "/etc", bound.to_str().unwrap()]));
        block_on(async {
            let b = bench(dir.path());
            let c = root();
            let mut names = b.names(&b.root, 10).await;
            names.sort();
            assert_eq!(names, ["below", "bound", "f"]);
            for name in [&b"below"[..], b"bound"] {
                refused(b.root.lookup(&c, name), VfsError::Access).await;
                refused(b.root.rmdir(Acting::caller(&c), name), VfsError::Access).await;
                refused(
                    b.root.rename(Acting::caller(&c), name, b.root.as_ref(), b"x", true),
                    VfsError::Access,
                )
                .await;
                let why = b
                    .root
                    .create(Acting::caller(&c), name, CreateHow::Unchecked, mode(0o644))
                    .await
                    .err();
                assert_eq!(why, Some(VfsError::Access));
            }
        });
    });
}

#[test]
fn handles_of_another_volume_are_stale() {
    apart(|| {
        let dir = tempfile::tempdir().unwrap();
        mount_tmpfs(dir.path(), "size=1m");
        let handle = block_on(async { bench(dir.path()).file("f").await.handle() });
        assert!(run("umount", &["-l", dir.path().to_str().unwrap()]));
        // A new volume of the same type, whose files have the same numbers.
        mount_tmpfs(dir.path(), "size=1m");
        block_on(async {
            let b = bench(dir.path());
            b.file("f").await;
            let why = b.backend.resolve(&handle).await.err();
            assert_eq!(why, Some(VfsError::Stale));
        });
    });
}

#[test]
fn read_only_mount_is_reported() {
    apart(|| {
        let dir = tempfile::tempdir().unwrap();
        mount_tmpfs(dir.path(), "size=1m");
        std::fs::write(dir.path().join("f"), b"data").unwrap();
        assert!(run("mount", &["-o", "remount,ro", dir.path().to_str().unwrap()]));
        block_on(async {
            let b = bench(dir.path());
            let (f, _) = b.root.lookup(&root(), b"f").await.unwrap();
            assert_eq!(b.contents(&f).await, b"data");
            refused(b.create("x", CreateHow::Guarded), VfsError::ReadOnly).await;
            let w = f
                .write(WriteBy::Caller(&root()), 0, vec![Buf::from(vec![1])], Stable::Unstable)
                .await;
            assert_eq!(w.err(), Some(VfsError::ReadOnly));
            let may = f
                .access(&root(), Access(Access::READ | Access::MODIFY), &f.getattr().await.unwrap())
                .await
                .unwrap();
            assert_eq!(may.0, Access::READ);
        });
    });
}

/// Stacked file systems have no handles that can be opened: files are found by number and time of birth.
#[test]
fn volume_without_handles_is_searched() {
    apart(|| {
        let dir = tempfile::tempdir().unwrap();
        mount_tmpfs(dir.path(), "size=16m");
        for name in ["lower", "upper", "work", "at"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join("lower/old"), b"old").unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            path("lower"),
            path("upper"),
            path("work")
        );
        if !run("mount", &["-t", "overlay", "-o", &options, "overlay", &path("at")]) {
            println!("skipped: no overlay file system here");
            return;
        }
        let at = dir.path().join("at");
        block_on(async {
            let b = bench(&at);
            let f = b.file("f").await;
            b.write(&f, 0, b"data").await;
            let d = b.dir("d").await;
            let (old, _) = b.root.lookup(&root(), b"old").await.unwrap();
            let handles = [f.handle(), d.handle(), old.handle()];
            // The kernel applies further rules of permission there, which mode and owner do not show.
            f.setattr(&root(), mode(0o600), false).await.unwrap();
            refused(f.read(Some(&user(5)), 0, 10, &b.into), VfsError::Access).await;
            b.root.rename(Acting::caller(&root()), b"f", d.as_ref(), b"g", true).await.unwrap();
            drop((f, d, old, b));
            let b = bench(&at);
            for h in &handles {
                assert_eq!(b.backend.resolve(h).await.unwrap().handle(), *h);
            }
            let f = b.backend.resolve(&handles[0]).await.unwrap();
            assert_eq!(b.contents(&f).await, b"data");
        });
    });
}

/// Clones and holes on a file system with shared extents, if this host can make one.
#[test]
fn volume_with_shared_extents_clones() {
    apart(|| {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
        let at = dir.path().join("at");
        std::fs::create_dir(&at).unwrap();
        let (image, at_name) = (image.to_str().unwrap(), at.to_str().unwrap());
        if !run("mkfs.xfs", &["-q", "-m", "reflink=1", image])
            || !run("mount", &["-o", "loop", image, at_name])
        {
            println!("skipped: no xfs on a loop device here");
            return;
        }
        for test in 0..3 {
            let root = at.join(test.to_string());
            std::fs::create_dir(&root).unwrap();
            let b = bench(&root);
            assert!(b.backend.capabilities().reflink);
            block_on(async {
                match test {
                    0 => suite::data::copies_and_clones(b).await,
                    1 => suite::data::holes_and_storage(b).await,
                    _ => suite::names::cookies_hold_while_names_change(b).await,
                }
            });
        }
        assert!(run("umount", &["-l", at_name]));
    });
}

/// The same where files share storage, which few file systems support.
#[test]
fn set_id_bits_cleared_by_clone() {
    apart(|| {
        let dir = tempfile::tempdir().unwrap();
        let (image, at) = (dir.path().join("image"), dir.path().join("at"));
        std::fs::create_dir(&at).unwrap();
        std::fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
        let (image, on) = (image.to_str().unwrap(), at.to_str().unwrap());
        if !run("mkfs.xfs", &["-q", "-m", "reflink=1", image])
            || !run("mount", &["-o", "loop", image, on])
        {
            println!("skipped: no file system of its own to be had");
            return;
        }
        block_on(async {
            let b = bench(&at);
            assert!(b.backend.capabilities().reflink);
            rights::set_id_bits_cleared_by_other_writers(b).await;
        });
        assert!(run("umount", &["-l", on]));
    });
}
