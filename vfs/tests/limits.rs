//! A process that may have few files open. The limit is the whole process's, so this is a program of its own with one test.

// Helpers of tests are tests too; and test data is cut to bytes on purpose.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, dead_code)]

mod suite;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};
use suite::*;
use vfs::local::{LocalBackend, LocalConfig, SyncCalls, limit_descriptors};
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
        // What is held keeps its number, by whichever way it is found; everything else is found again.
        for (i, f) in &held {
            let (same, _) = b.root.lookup(&root(), format!("f{i}").as_bytes()).await.unwrap();
            assert_eq!(same.id(), f.id());
            assert_eq!(b.backend.resolve(&handles[*i]).await.unwrap().id(), f.id());
        }
        for (i, handle) in handles.iter().enumerate() {
            let f = b.backend.resolve(handle).await.unwrap();
            assert_eq!(b.contents(&f).await, format!("data {i}").as_bytes());
        }
        // Holding more than there can be is refused, in words, and what is held goes on working.
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
        // A bound of its own leaves the others to the rest of the process.
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
    });
}

/// Where no descriptor is left: a folder that stayed would have neither the list nor the attributes that it was to get.
async fn nothing_is_made_that_cannot_be_opened(b: &Bench, dir: &Path, many: &mut Vec<NodeRef>) {
    let c = root();
    for what in ["folder", "link", "pipe"] {
        let (name, why) = loop {
            let name = format!("{what} {}", many.len());
            let set = SetAttr::default();
            let made = match what {
                "folder" => b.root.mkdir(&c, name.as_bytes(), set).await,
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

/// A device that keeps nothing before the test lets it.
#[derive(Debug, Default)]
struct Slow {
    begun: AtomicBool,
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
}

impl SyncCalls for Slow {
    fn fsync(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        self.sync()
    }

    fn syncfs(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        self.sync()
    }
}

/// Who writes more files than there are descriptors waits for their syncs; the thread that serves him serves others meanwhile, of
/// whom one here makes the device go on.
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
    let other = async {
        while !device.begun.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        // The writer goes on until it waits.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        *device.opened.0.lock().unwrap() = true;
        device.opened.1.notify_all();
    };
    tokio::join!(writer, other);
    assert!(!device.held_up.load(Ordering::SeqCst));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 400);
}
