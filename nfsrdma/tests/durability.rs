//! Checks that clients learn when storage lost data that they wrote.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

mod common;

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::nfs3::{Client, OK, share, wcc};
use nfsrdma::v3::procedure as p;
use vfs::Stable;
use vfs::local::{LocalBackend, LocalConfig, SyncCalls};
use vfs::namespace::Share;

const NFS3ERR_IO: u32 = 5;
const UNSTABLE: u32 = 0;
const FILE_SYNC: u32 = 2;

/// Storage that fails once, in the first call after the fault, as Linux reports it.
#[derive(Debug, Default)]
struct FailsOnce(AtomicBool);

impl FailsOnce {
    fn met(&self) -> io::Result<()> {
        if self.0.swap(false, Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(5));
        }
        Ok(())
    }
}

impl SyncCalls for FailsOnce {
    fn fsync(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        self.met()
    }

    fn write(
        &self,
        _: BorrowedFd<'_>,
        data: &[IoSlice<'_>],
        _: u64,
        _: Stable,
    ) -> io::Result<usize> {
        self.met()?;
        Ok(data.iter().map(|d| d.len()).sum())
    }
}

fn world() -> (tempfile::TempDir, Arc<FailsOnce>, Client) {
    let (dir, calls) = (tempfile::tempdir().unwrap(), Arc::new(FailsOnce::default()));
    let config = LocalConfig { calls: Some(calls.clone()), ..LocalConfig::new(dir.path()) };
    let backend = LocalBackend::open(config).unwrap();
    let client = Client::of(vec![Share { backend, ..share("data") }]);
    (dir, calls, client)
}

/// Returns status and verifier of a WRITE.
fn write(c: &Client, fh: &[u8], stable: u32) -> (u32, u64) {
    let res = c.write(fh, 0, b"data", stable);
    let (status, mut r) = res.status();
    wcc(&mut r);
    if status != OK {
        return (status, 0);
    }
    assert_eq!(r.u32().unwrap(), 4);
    assert_eq!(r.u32().unwrap(), stable);
    (status, r.u64().unwrap())
}

/// Returns status and verifier of a COMMIT.
fn commit(c: &Client, fh: &[u8]) -> (u32, u64) {
    let res = c.nfs(p::COMMIT, |w| {
        w.opaque(fh);
        w.u64(0);
        w.u32(0);
    });
    let (status, mut r) = res.status();
    wcc(&mut r);
    (status, if status == OK { r.u64().unwrap() } else { 0 })
}

#[test]
fn failed_stable_write_changes_verifier() {
    let (_dir, calls, c) = world();
    let fh = c.create(&c.root(), "f", 0o600).unwrap();
    let (_, written) = write(&c, &fh, UNSTABLE);
    calls.0.store(true, Ordering::SeqCst);
    assert_eq!(write(&c, &fh, FILE_SYNC).0, NFS3ERR_IO);
    let (status, committed) = commit(&c, &fh);
    assert_eq!(status, OK);
    assert_ne!(committed, written, "it must be sent again");
    // After a successful retry the data is durable.
    let (_, again) = write(&c, &fh, UNSTABLE);
    assert_eq!(commit(&c, &fh), (OK, again));
}

#[test]
fn failed_commit_changes_volume_verifier() {
    let (_dir, calls, c) = world();
    let [f, g] = ["f", "g"].map(|name| c.create(&c.root(), name, 0o600).unwrap());
    let (_, written) = write(&c, &f, UNSTABLE);
    let (_, other) = write(&c, &g, UNSTABLE);
    assert_eq!(written, other);
    calls.0.store(true, Ordering::SeqCst);
    assert_eq!(commit(&c, &f).0, NFS3ERR_IO);
    assert_ne!(commit(&c, &g).1, other);
}

#[test]
fn reopened_folder_changes_verifier() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let backend = LocalBackend::open(LocalConfig::new(dir.path())).unwrap();
        Client::of(vec![Share { backend, ..share("data") }])
    };
    let c = open();
    let fh = c.create(&c.root(), "f", 0o600).unwrap();
    let (_, written) = write(&c, &fh, UNSTABLE);
    drop(c);
    let (status, committed) = commit(&open(), &fh);
    assert_eq!(status, OK);
    assert_ne!(committed, written);
}
