//! Tests which callers learn that storage lost data, and what is synced before an answer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use iobuf::Buf;
use vfs::Acting;
use vfs::WriteBy;
use vfs::local::{LocalBackend, LocalConfig, SyncCalls};
use vfs::namespace::{Enforce, Namespace, Protocols, Share, Squash};
use vfs::{AppendAt, Backend, CreateHow, Cred, NodeRef, SetAttr, Stable, VfsError};

/// A device whose syncs report their start to the test and end with the result that the test sends.
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
    let made =
        backend.root().create(Acting::caller(&Cred::root()), name, CreateHow::Guarded, set).await;
    made.unwrap().node
}

async fn write(node: &NodeRef) -> u64 {
    let data = vec![Buf::from(b"data".to_vec())];
    node.write(WriteBy::Open(None), 0, data, Stable::Unstable).await.unwrap().verifier
}

#[tokio::test]
async fn concurrent_commits_all_learn_of_loss() {
    let (dir, (device, ends)) = (tempfile::tempdir().unwrap(), Device::new());
    let backend = open(&dir, device.clone());
    let node = file(&backend, b"f").await;
    let before = write(&node).await;
    // Linux reports the error to the first of three callers.
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

/// The verifier of a WRITE is from before it, so that a loss during the write is visible.
#[tokio::test]
async fn write_returns_verifier_before_loss() {
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

/// A device that is full when it has to store accepted data.
#[derive(Debug)]
struct Full;

impl SyncCalls for Full {
    fn fsync(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::ENOSPC))
    }

    fn write(
        &self,
        fd: BorrowedFd<'_>,
        _: &[io::IoSlice<'_>],
        _: u64,
        _: Stable,
    ) -> io::Result<usize> {
        self.fsync(fd).map(|()| 0)
    }
}

/// At any position in the file: the failure counts, and the error report of the file's own descriptor is left to the callers that
/// wait for it.
#[tokio::test]
async fn lost_durable_append_moves_verifier() {
    for hole in [0, 10] {
        let dir = tempfile::tempdir().unwrap();
        let backend = open(&dir, Arc::new(Full));
        let node = file(&backend, b"f").await;
        let before = write(&node).await;
        let (at, data) = (AppendAt::Offset(4 + hole), vec![Buf::from(b"more".to_vec())]);
        let done = node.append(None, at, data, Stable::Data).await;
        assert_eq!(done.map(drop), Err(VfsError::NoSpace), "{hole}");
        assert_eq!(node.losses(), 1, "{hole}");
        assert_ne!(node.verifier(), before, "{hole}");
    }
}

/// A device that stores data only when several callers have asked for it.
#[derive(Debug)]
struct Shared {
    wanted: usize,
    asked: (Mutex<usize>, std::sync::Condvar),
}

impl SyncCalls for Shared {
    fn fsync(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        let mut asked = self.asked.0.lock().unwrap();
        *asked += 1;
        self.asked.1.notify_all();
        let wait = std::time::Duration::from_secs(30);
        let few = |asked: &mut usize| *asked < self.wanted;
        let (_asked, waited) = self.asked.1.wait_timeout_while(asked, wait, few).unwrap();
        if waited.timed_out() { Err(eio()) } else { Ok(()) }
    }
}

/// Several appends to one file are made durable at the same time: no append holds a thread while it waits for another's sync.
#[tokio::test]
async fn durable_appends_share_the_wait() {
    const MANY: usize = 8;
    let dir = tempfile::tempdir().unwrap();
    let device = Shared { wanted: MANY, asked: Default::default() };
    let backend = open(&dir, Arc::new(device));
    let node = file(&backend, b"f").await;
    let added: Vec<_> = (0..MANY)
        .map(|_| {
            let (node, data) = (node.clone(), vec![Buf::from(b"data".to_vec())]);
            tokio::spawn(async move { node.append(None, AppendAt::End, data, Stable::Data).await })
        })
        .collect();
    let mut places = Vec::new();
    for one in added {
        places.push(one.await.unwrap().unwrap().at);
    }
    places.sort_unstable();
    assert!(places.into_iter().eq((0..MANY as u64).map(|i| 4 * i)));
}

/// Notes what is synced, and fails on request.
#[derive(Debug, Default)]
struct Notes {
    synced: Mutex<Vec<u64>>,
    fails: std::sync::atomic::AtomicBool,
}

/// Number that represents the whole file system.
const VOLUME: u64 = 0;

impl Notes {
    fn note(&self, what: u64) -> io::Result<()> {
        self.synced.lock().unwrap().push(what);
        if self.fails.load(Ordering::SeqCst) { Err(eio()) } else { Ok(()) }
    }

    fn taken(&self) -> Vec<u64> {
        let mut all = std::mem::take(&mut *self.synced.lock().unwrap());
        all.sort_unstable();
        all
    }
}

impl SyncCalls for Notes {
    fn fsync(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.note(rustix::fs::fstat(fd)?.st_ino)
    }

    fn syncfs(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        self.note(VOLUME)
    }
}

fn namespace(backend: Arc<LocalBackend>) -> Namespace {
    Namespace::new(vec![Share {
        name: "data".into(),
        id: Share::id_of("data"),
        backend,
        read_only: false,
        protocols: Protocols::Both,
        squash: Squash::None,
        nfs_locks: Enforce::Smb,
        clients: None,
        rules: vfs::namespace::Rules::default(),
    }])
}

/// Makes each change of names and attributes, with the nodes that must be synced for it. `smb`: by which protocol.
async fn changes(
    ns: &Namespace,
    notes: &Notes,
    smb: bool,
    check: impl Fn(&str, Result<(), VfsError>, Vec<u64>, Vec<u64>),
) {
    use vfs::{Special, XattrHow};
    let (share, root, set) = (ns.shares()[0].clone(), Cred::root(), SetAttr::default());
    let file_ops = if smb { ns.by_smb(None) } else { ns.by(None) };
    let top = share.backend.root();
    let ino = async |node: &NodeRef| node.getattr().await.unwrap().fileid;
    let sorted = |mut all: Vec<u64>| {
        all.sort_unstable();
        all
    };
    let here = ino(&top).await;
    let find = async |name: &[u8]| top.lookup(&root, name).await.unwrap().0;
    let _ = notes.taken();

    let done = file_ops.mkdir(&share, &top, &root, b"d", set).await.map(drop);
    let dir = find(b"d").await;
    check("mkdir", done, notes.taken(), sorted(vec![here, ino(&dir).await]));
    let done = file_ops.create(&share, &top, &root, b"f", CreateHow::Guarded, set).await.map(drop);
    let file = find(b"f").await;
    check("create", done, notes.taken(), sorted(vec![here, ino(&file).await]));
    let done =
        file_ops.create(&share, &top, &root, b"f", CreateHow::Unchecked, set).await.map(drop);
    check("create of what is there", done, notes.taken(), vec![]);
    let done = file_ops.symlink(&share, &top, &root, b"l", b"f", set).await.map(drop);
    check("symlink", done, notes.taken(), vec![here]);
    let done = file_ops.mknod(&share, &top, &root, b"p", Special::Fifo, set).await.map(drop);
    check("mknod", done, notes.taken(), vec![here]);
    let mode = SetAttr { mode: Some(0o600), ..set };
    let done = file_ops.setattr(&share, &file, &root, mode, false).await.map(drop);
    check("setattr", done, notes.taken(), vec![ino(&file).await]);
    let done = file_ops.link(&share, &file, &root, &dir, b"g").await.map(drop);
    check("link", done, notes.taken(), sorted(vec![ino(&dir).await, ino(&file).await]));
    let done = file_ops.rename(&share, &top, &root, b"f", &dir, b"f").await.map(drop);
    check("rename", done, notes.taken(), sorted(vec![here, ino(&dir).await]));
    let done =
        file_ops.xattr_set(&share, &dir, &root, b"x", b"1", XattrHow::Either).await.map(drop);
    if done != Err(VfsError::NotSupported) {
        check("setxattr", done, notes.taken(), vec![ino(&dir).await]);
        let done = file_ops.xattr_remove(&share, &dir, &root, b"x").await.map(drop);
        check("removexattr", done, notes.taken(), vec![ino(&dir).await]);
    }
    for name in [&b"f"[..], b"g"] {
        let done = file_ops.unlink(&share, &dir, &root, name).await.map(drop);
        check("unlink", done, notes.taken(), vec![ino(&dir).await]);
    }
    let done = file_ops.rmdir(&share, &top, &root, b"d").await.map(drop);
    check("rmdir", done, notes.taken(), vec![here]);
}

fn noted() -> (tempfile::TempDir, Arc<Notes>, Namespace) {
    let (dir, notes) = (tempfile::tempdir().unwrap(), Arc::new(Notes::default()));
    let ns = namespace(open(&dir, notes.clone()));
    (dir, notes, ns)
}

#[tokio::test]
async fn strict_share_syncs_before_answer() {
    for (smb, strict) in [(false, (true, false)), (true, (true, true))] {
        let (_dir, notes, ns) = noted();
        ns.shares()[0].backend.set_strict(strict.0, strict.1);
        changes(&ns, &notes, smb, |what, done, synced, wanted| {
            assert_eq!((done, synced), (Ok(()), wanted), "{what} {smb}");
        })
        .await;
    }
}

#[tokio::test]
async fn relaxed_share_waits_for_no_sync() {
    for (smb, strict) in [(false, (false, false)), (true, (true, false))] {
        let (_dir, notes, ns) = noted();
        ns.shares()[0].backend.set_strict(strict.0, strict.1);
        changes(&ns, &notes, smb, |what, done, synced, _| {
            assert_eq!((done, synced), (Ok(()), vec![]), "{what} {smb}");
        })
        .await;
    }
}

#[tokio::test]
async fn failed_sync_fails_change_and_verifier() {
    let (_dir, notes, ns) = noted();
    let backend = ns.shares()[0].backend.clone();
    backend.set_strict(true, false);
    notes.fails.store(true, Ordering::SeqCst);
    let last = std::cell::Cell::new(backend.root().verifier());
    changes(&ns, &notes, false, |what, done, _, wanted| {
        let now = backend.root().verifier();
        if wanted.is_empty() {
            return assert_eq!(done, Ok(()), "{what}");
        }
        assert_eq!(done, Err(VfsError::Io), "{what}");
        assert_ne!(last.replace(now), now, "{what}");
    })
    .await;
}

/// Sixteen names are added to one directory: those that arrive during a sync share the next.
#[tokio::test]
async fn changes_of_directory_share_sync() {
    let (dir, (device, ends)) = (tempfile::tempdir().unwrap(), Device::new());
    let ns = Arc::new(namespace(open(&dir, device.clone())));
    ns.shares()[0].backend.set_strict(true, false);
    let share = ns.shares()[0].clone();
    let node = file(&open(&dir, Arc::new(Notes::default())), b"f").await;
    drop(node);
    let top = share.backend.root();
    let (node, _) = top.lookup(&Cred::root(), b"f").await.unwrap();
    let unlinks: Vec<_> = (0..16)
        .map(|i| format!("f{i}").into_bytes())
        .map(|name| {
            let (ns, share, top, node) = (ns.clone(), share.clone(), top.clone(), node.clone());
            tokio::spawn(async move {
                node.link(Acting::caller(&Cred::root()), top.as_ref(), &name).await.unwrap();
                ns.by(None).unlink(&share, &top, &Cred::root(), &name).await
            })
        })
        .collect();
    // All wait before the first sync ends: each task runs until it waits.
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
    (0..16).for_each(|_| ends.results.send(Ok(())).unwrap());
    for unlink in unlinks {
        unlink.await.unwrap().unwrap();
    }
    assert!(device.syncs.load(Ordering::SeqCst) <= 2, "{:?}", device.syncs);
}

/// Checks whether a synced node has a list.
#[derive(Debug, Default)]
struct SeesLists(Mutex<Vec<(u64, bool)>>);

impl SyncCalls for SeesLists {
    fn fsync(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        let mut names = vec![0; 4096];
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let n = rustix::fs::listxattr(path, &mut names)?;
        let has = names[..n].windows(12).any(|w| w == b"headgate.acl");
        self.0.lock().unwrap().push((rustix::fs::fstat(fd)?.st_ino, has));
        Ok(())
    }
}

/// Gives a list of one entry.
struct Gives;

impl vfs::namespace::GiveList for Gives {
    fn give<'a>(
        &'a self,
        made: &'a vfs::backend::Made,
        _: Option<u32>,
    ) -> vfs::BoxFuture<'a, vfs::VfsResult<()>> {
        use vfs::acl::{Ace, Acl, Who, mask};
        assert_eq!(made.attr.mode & 0o077, 0, "until then it is its owner's alone");
        Box::pin(async {
            let ace = Ace::allow(Who::Everyone, mask::FILE_READ, 0);
            made.node.acl_set(&Acl::new(vec![ace]), 0o444).await
        })
    }
}

/// The list from its creator exists before the file is durable, also when an exclusive create is repeated after its answer was
/// lost.
#[tokio::test]
async fn new_file_listed_before_durable() {
    use vfs::namespace::ListOfNew;
    let (dir, seen) = (tempfile::tempdir().unwrap(), Arc::new(SeesLists::default()));
    let ns = namespace(open(&dir, seen.clone()));
    let share = ns.shares()[0].clone();
    share.backend.set_strict(true, false);
    let (top, c) = (share.backend.root(), Cred::root());
    let set = SetAttr { mode: Some(0o644), ..SetAttr::default() };
    let giving = ns.by(None).with_list(ListOfNew::Given, &Gives);
    let made = giving.create(&share, &top, &c, b"f", CreateHow::Guarded, set).await.unwrap();
    assert_eq!(made.attr.mode, 0o444, "as the list says");
    assert!(seen.0.lock().unwrap().contains(&(made.attr.fileid, true)));
    let made = giving.mkdir(&share, &top, &c, b"d", set).await.unwrap();
    assert!(seen.0.lock().unwrap().contains(&(made.attr.fileid, true)));
    // The state that a crash may leave.
    let how = CreateHow::Exclusive(*b"verifier");
    let closed = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let made = ns.by(None).create(&share, &top, &c, b"e", how, closed).await.unwrap();
    assert_eq!(made.node.acl(&made.attr).await.unwrap(), None);
    let made = giving.create(&share, &top, &c, b"e", how, set).await.unwrap();
    assert!(made.node.acl(&made.attr).await.unwrap().is_some());
    assert_eq!(made.attr.mode, 0o444);
}
