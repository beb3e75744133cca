//! Who learns that storage did not keep what it was given, and what is synced before an answer.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use iobuf::Buf;
use vfs::local::{LocalBackend, LocalConfig, SyncCalls};
use vfs::{Backend, CreateHow, Cred, NodeRef, SetAttr, Stable, VfsError};

/// A device whose syncs begin when the test is told and end as it says.
#[derive(Debug)]
struct Device {
    begun: Sender<()>,
    results: Mutex<Receiver<io::Result<()>>>,
    syncs: AtomicU64,
}

struct Ends {
    begun: Receiver<()>,
    results: Sender<io::Result<()>>,
}

impl Device {
    fn new() -> (Arc<Self>, Ends) {
        let ((begun, begins), (results, ends)) = (channel(), channel());
        let device = Self { begun, results: Mutex::new(ends), syncs: AtomicU64::new(0) };
        (Arc::new(device), Ends { begun: begins, results })
    }
}

impl SyncCalls for Device {
    fn fsync(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        let _ = self.begun.send(());
        self.results.lock().unwrap().recv().unwrap()
    }
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

fn open(dir: &tempfile::TempDir, calls: Arc<dyn SyncCalls>) -> Arc<LocalBackend> {
    LocalBackend::open(LocalConfig { calls: Some(calls), ..LocalConfig::new(dir.path()) }).unwrap()
}

async fn file(backend: &LocalBackend, name: &[u8]) -> NodeRef {
    let set = SetAttr { mode: Some(0o644), ..SetAttr::default() };
    let made = backend.root().create(&Cred::root(), name, CreateHow::Guarded, set).await;
    made.unwrap().node
}

async fn write(node: &NodeRef) -> u64 {
    let data = vec![Buf::from(b"data".to_vec())];
    node.write(None, 0, data, Stable::Unstable).await.unwrap().verifier
}

#[tokio::test]
async fn of_commits_at_once_each_learns_of_the_loss() {
    let (dir, (device, ends)) = (tempfile::tempdir().unwrap(), Device::new());
    let backend = open(&dir, device.clone());
    let node = file(&backend, b"f").await;
    let before = write(&node).await;
    // Linux tells the first of three who ask.
    let commits = [(); 3].map(|()| {
        let node = node.clone();
        tokio::spawn(async move {
            let done = node.commit(0, 0).await;
            (done.map(drop), node.verifier())
        })
    });
    while device.syncs.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    ends.begun.recv().unwrap();
    ends.results.send(Err(eio())).unwrap();
    ends.results.send(Ok(())).unwrap();
    let mut failed = 0;
    for commit in commits {
        let (done, verifier) = commit.await.unwrap();
        failed += usize::from(done == Err(VfsError::Io));
        assert_ne!(verifier, before, "{done:?}");
    }
    assert!(failed >= 1);
    assert!(device.syncs.load(Ordering::SeqCst) <= 2, "those who wait share a sync");
    assert_eq!(node.losses(), 1);
    let losses = backend.losses();
    assert_eq!(losses.count, 1);
    assert!(losses.last.unwrap().ends_with("/f"));
}

/// The verifier of a WRITE is from before it: data that is lost while it is under way shows.
#[tokio::test]
async fn a_write_names_the_verifier_from_before_a_loss_that_it_meets() {
    let (dir, (device, ends)) = (tempfile::tempdir().unwrap(), Device::new());
    let backend = open(&dir, device);
    let (f, g) = (file(&backend, b"f").await, file(&backend, b"g").await);
    let before = write(&f).await;
    ends.results.send(Err(eio())).unwrap();
    assert_eq!(g.commit(0, 0).await.map(drop), Err(VfsError::Io));
    assert_eq!((f.losses(), g.losses()), (0, 1), "the count is the file's");
    assert_ne!(f.verifier(), before, "the verifier is the volume's");
    assert_eq!(write(&f).await, f.verifier());
}
