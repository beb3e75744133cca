//! Tests a process with a low limit of open files. The limit applies to the whole process, so this is a separate program with one
//! test.

// Helpers of tests are tests too; and test data is cut to bytes on purpose.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, dead_code)]

mod suite;

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};
use suite::*;
use vfs::acl::{Ace, Acl, Who, mask};
use vfs::local::{LocalBackend, LocalConfig, SealKey, SyncCalls, limit_descriptors};
use vfs::*;

#[test]
fn more_files_than_descriptors() {
    let few = Rlimit { current: Some(256), maximum: Some(512) };
    setrlimit(Resource::Nofile, few).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let b = Bench::new(LocalBackend::open(LocalConfig::new(dir.path())).unwrap());
        let mut held = Vec::new();
        let mut handles = Vec::new();
        for i in 0..1500 {
            let f = b.file(&format!("f{i}")).await;
            b.write(&f, 0, format!("data {i}").as_bytes()).await;
            handles.push(f.handle());
            if i % 30 == 0 {
                held.push((i, f));
            }
        }
        // A file in use keeps its id, by whichever way it is found; every other file is found again.
        for (i, f) in &held {
            let (same, _) = b.root.lookup(&root(), format!("f{i}").as_bytes()).await.unwrap();
            assert_eq!(same.id(), f.id());
            assert_eq!(b.backend.resolve(&handles[*i]).await.unwrap().id(), f.id());
        }
        for (i, handle) in handles.iter().enumerate() {
            let f = b.backend.resolve(handle).await.unwrap();
            assert_eq!(b.contents(&f).await, format!("data {i}").as_bytes());
        }
        // Holding more files than the limit is refused with an explanation, and the held files continue to work.
        let mut many = Vec::new();
        let why = loop {
            match b.backend.resolve(&handles[many.len()]).await {
                Ok(f) => many.push(f),
                Err(e) => break e,
            }
        };
        assert_eq!(why, VfsError::Resources);
        assert!(many.len() > 300);
        many[0].getattr().await.unwrap();
        nothing_is_made_that_cannot_be_opened(&b, dir.path(), &mut many).await;
        many.truncate(10);
        assert!(b.backend.resolve(&handles[700]).await.is_ok());
        assert_eq!(b.contents(&held[0].1).await, b"data 0");
        // A lower limit for the gateway leaves the other descriptors to the rest of the process.
        drop(many);
        limit_descriptors(170);
        let mut many = Vec::new();
        let why = loop {
            match b.backend.resolve(&handles[many.len()]).await {
                Ok(f) => many.push(f),
                Err(e) => break e,
            }
        };
        assert_eq!(why, VfsError::Resources);
        let open = std::fs::read_dir("/proc/self/fd").unwrap().count();
        assert!((130..200).contains(&open), "{open}");
        many[0].getattr().await.unwrap();
        many.truncate(10);
        assert_eq!(b.contents(&held[0].1).await, b"data 0");
        drop((many, held, b));
        files_that_wait_for_their_syncs_hold_nobody_else_up().await;
        limit_descriptors(usize::MAX);
        let mut refused = Vec::new();
        for what in OPERATIONS {
            match while_all_wait_for_their_syncs(what).await {
                Ok(()) | Err(VfsError::NotSupported) => {}
                Err(e) => refused.push((what, e)),
            }
        }
        assert_eq!(refused, [], "whatever opens something waits for those syncs");
    });
}

/// Without a free descriptor no folder is created: it would have neither the list nor the attributes that it should get.
async fn nothing_is_made_that_cannot_be_opened(b: &Bench, dir: &Path, many: &mut Vec<NodeRef>) {
    let c = root();
    for what in ["folder", "link", "pipe"] {
        let (name, why) = loop {
            let name = format!("{what} {}", many.len());
            let set = SetAttr::default();
            let made = match what {
                "folder" => b.root.mkdir(Acting::caller(&c), name.as_bytes(), set).await,
                "link" => b.root.symlink(&c, name.as_bytes(), b"target", set).await,
                _ => b.root.mknod(&c, name.as_bytes(), Special::Fifo, set).await,
            };
            match made {
                Ok(made) => many.push(made.node),
                Err(e) => break (name, e),
            }
        };
        assert_eq!(why, VfsError::Resources, "{what}");
        assert!(dir.join(&name).symlink_metadata().is_err(), "{name} is left");
    }
}

/// A device that stores data only when the test permits it.
#[derive(Debug, Default)]
struct Slow {
    begun: AtomicBool,
    done: AtomicBool,
    held_up: AtomicBool,
    opened: (Mutex<bool>, Condvar),
}

impl Slow {
    fn sync(&self) -> io::Result<()> {
        self.begun.store(true, Ordering::SeqCst);
        let wait = Duration::from_secs(30);
        let opened = self.opened.0.lock().unwrap();
        let (_opened, timeout) =
            self.opened.1.wait_timeout_while(opened, wait, |open| !*open).unwrap();
        self.held_up.fetch_or(timeout.timed_out(), Ordering::SeqCst);
        Ok(())
    }

    /// Lets the device store data once a sync has begun, or the caller that needs one has ended.
    async fn goes_on(&self) {
        while !self.begun.load(Ordering::SeqCst) && !self.done.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        // Lets the other callers run until they really wait.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        *self.opened.0.lock().unwrap() = true;
        self.opened.1.notify_all();
    }
}

impl SyncCalls for Slow {
    fn fsync(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        self.sync()
    }

    fn syncfs(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        self.sync()
    }
}

/// A client that writes more files than there are descriptors waits for their syncs; its thread serves other clients meanwhile, one
/// of which makes the device continue here.
async fn files_that_wait_for_their_syncs_hold_nobody_else_up() {
    let dir = tempfile::tempdir().unwrap();
    let device = Arc::new(Slow::default());
    let config = LocalConfig { calls: Some(device.clone()), ..LocalConfig::new(dir.path()) };
    let b = Bench::new(LocalBackend::open(config).unwrap());
    let writer = async {
        for i in 0..400 {
            let f = b.file(&format!("f{i}")).await;
            b.write(&f, 0, b"data").await;
        }
    };
    tokio::join!(writer, device.goes_on());
    assert!(!device.held_up.load(Ordering::SeqCst));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 400);
}

/// Operations that open a file internally.
const OPERATIONS: [&str; 16] = [
    "mkdir",
    "symlink",
    "mknod",
    "readdir",
    "cut",
    "cut much",
    "allocate",
    "deallocate",
    "seek",
    "copy",
    "clone",
    "attributes of a file",
    "attributes of a folder",
    "search",
    "unlink",
    "rename",
];

async fn operation(
    b: &Bench,
    what: &str,
    [data, large, folder]: &[NodeRef; 3],
    handle: &Handle,
) -> VfsResult<()> {
    let (c, set) = (root(), SetAttr::default());
    let size = |size| SetAttr { size: Some(size), ..set };
    match what {
        "mkdir" => b.root.mkdir(Acting::caller(&c), b"d", set).await.map(drop),
        "symlink" => b.root.symlink(&c, b"l", b"data", set).await.map(drop),
        "mknod" => b.root.mknod(&c, b"p", Special::Fifo, set).await.map(drop),
        "readdir" => folder.readdir(&c, 0, 10).await.map(drop),
        "cut" => data.setattr(&c, size(1), true).await.map(drop),
        "cut much" => large.setattr(&c, size(1), true).await.map(drop),
        "allocate" => data.allocate(None, 0, 8192).await,
        "deallocate" => data.deallocate(None, 0, 4096).await,
        "seek" => data.seek(0, Seek::Hole).await.map(drop),
        "copy" => data.copy_range(None, large.as_ref(), 0, 0, 4096).await.map(drop),
        "clone" => data.clone_range(None, large.as_ref(), 0, 0, 0).await,
        "attributes of a file" => data.xattr_list(&c).await.map(drop),
        "attributes of a folder" => folder.xattr_list(&c).await.map(drop),
        "search" => b.backend.resolve(handle).await.map(drop),
        // Another user may do this by the file's list.
        "unlink" => folder.unlink(Acting::caller(&user(1000)), b"new").await.map(drop),
        _ => folder
            .rename(Acting::caller(&user(1000)), b"new", b.root.as_ref(), b"to", true)
            .await
            .map(drop),
    }
}

/// Runs an operation while the process has no free descriptor, because the device has not stored the data of open files.
async fn while_all_wait_for_their_syncs(what: &str) -> VfsResult<()> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("data"), b"data").unwrap();
    std::fs::File::create(dir.path().join("large")).unwrap().set_len(80 << 20).unwrap();
    std::fs::create_dir(dir.path().join("folder")).unwrap();
    // Other users may add files here, and may not remove any from there.
    for (folder, mode) in [(".", 0o777), ("folder", 0o755)] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(dir.path().join(folder), mode).unwrap();
    }
    std::fs::write(dir.path().join("folder/new"), b"data").unwrap();
    let device = Arc::new(Slow::default());
    // In a search for a handle all callers act as the process itself.
    let (unprivileged, seal) = (what == "search", Some(SealKey::new(&[7; 32])));
    let config =
        || LocalConfig { unprivileged, seal: seal.clone(), ..LocalConfig::new(dir.path()) };
    let handle = {
        let another = LocalBackend::open(config()).unwrap();
        let (folder, _) = another.root().lookup(&root(), b"folder").await.unwrap();
        let (new, _) = folder.lookup(&root(), b"new").await.unwrap();
        let ace = Ace::allow(Who::Everyone, mask::DELETE, 0);
        new.acl_set(&Acl::new(vec![ace]), 0o644).await.unwrap();
        new.handle()
    };
    let config = LocalConfig { calls: Some(device.clone()), ..config() };
    let b = Bench::new(LocalBackend::open(config).unwrap());
    let find = async |name: &[u8]| b.root.lookup(&root(), name).await.unwrap().0;
    let nodes = [find(b"data").await, find(b"large").await, find(b"folder").await];
    let hoard = all_descriptors_wait(&b).await;
    let operation = async {
        let answer = operation(&b, what, &nodes, &handle).await;
        device.done.store(true, Ordering::SeqCst);
        answer
    };
    let (answer, ()) = tokio::join!(operation, device.goes_on());
    drop(hoard);
    assert!(!device.held_up.load(Ordering::SeqCst), "{what}");
    answer
}

/// Opens files with unsynced data, and uses up all other descriptors of the process.
async fn all_descriptors_wait(b: &Bench) -> Vec<std::fs::File> {
    for i in 0..50 {
        let f = b.file(&format!("f{i}")).await;
        b.write(&f, 0, b"data").await;
    }
    std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect()
}
