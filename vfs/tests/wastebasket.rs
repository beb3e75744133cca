//! The wastebasket of a folder of the host: which removals keep a file, what clients see of it, and how it comes back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vfs::local::{LocalBackend, LocalConfig, SealKey};
use vfs::namespace::{Enforce, FileOps, Namespace, Protocols, Rules, Share, Squash};
use vfs::waste_record::{Id, Record, Way};
use vfs::wastebasket::{Entry, NotKept, Pattern, Wastebasket, counters};
use vfs::{Backend, Cred, Kind, NodeRef, VfsError};

/// A share with a wastebasket.
struct World {
    folder: tempfile::TempDir,
    backend: Arc<LocalBackend>,
    ns: Namespace,
}

impl World {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut LocalConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        Self::at(folder, change)
    }

    fn at(folder: tempfile::TempDir, change: impl FnOnce(&mut LocalConfig)) -> Self {
        let mut config = LocalConfig::new(folder.path());
        change(&mut config);
        let backend = LocalBackend::open(config).unwrap();
        let exclude = vec![Pattern::new("tmp"), Pattern::new("*.bak")];
        let basket = Wastebasket::new(Duration::from_secs(1000), None, exclude);
        let ns = Namespace::new(vec![Share {
            name: "s".into(),
            id: Share::id_of("s"),
            backend: backend.clone(),
            read_only: false,
            protocols: Protocols::Both,
            squash: Squash::None,
            nfs_locks: Enforce::Smb,
            clients: None,
            rules: Rules { wastebasket: Some(Arc::new(basket)), ..Rules::default() },
        }]);
        Self { folder, backend, ns }
    }

    /// Ends the process' knowledge of the share, and opens it again.
    fn again(self) -> Self {
        let Self { folder, backend, ns } = self;
        drop((ns, backend));
        Self::at(folder, |_| {})
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn share(&self) -> Arc<Share> {
        self.ns.shares()[0].clone()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    async fn node(&self, path: &str) -> Result<NodeRef, VfsError> {
        let mut at = self.backend.root();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            at = at.lookup(&Cred::root(), name.as_bytes()).await?.0;
        }
        Ok(at)
    }

    /// The files in the wastebasket, the oldest first.
    fn entries(&self) -> Vec<Entry> {
        let basket = self.backend.basket().unwrap();
        let mut ids: Vec<Id> = Vec::new();
        basket
            .weights(&mut |weight| {
                ids.push(weight.id);
                true
            })
            .unwrap();
        ids.sort_unstable();
        ids.into_iter().map(|id| basket.entry(id).unwrap()).collect()
    }

    fn kept(&self, entry: &Entry) -> PathBuf {
        self.path(".headgate/wastebasket").join(entry.id.path())
    }

    async fn remove(&self, path: &str, cred: &Cred) -> Result<(), VfsError> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = self.node(dir).await?;
        self.ns.unlink(&self.share(), &dir, cred, name.as_bytes()).await.map(drop)
    }
}

fn is_root() -> bool {
    let is = rustix::process::geteuid().is_root();
    if !is {
        println!("not root: files of other users are not tested");
    }
    is
}

fn user(uid: u32) -> Cred {
    Cred { uid, gid: uid, ..Cred::root() }
}

fn chown(path: &Path, uid: u32) {
    std::os::unix::fs::lchown(path, Some(uid), Some(uid)).unwrap();
}

/// The ways in which a file loses its name.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    Nfs,
    Smb,
    Rename,
    LinkOver,
}

const LOSSES: [Loss; 4] = [Loss::Nfs, Loss::Smb, Loss::Rename, Loss::LinkOver];

/// The files that lose it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Of {
    Own,
    Empty,
    /// Of another user, in a folder in which the caller may remove names.
    Others,
    /// The same, not readable by the caller.
    Private,
    /// Of another user, in a sticky folder.
    Sticky,
    /// In a folder in which the caller may not remove names.
    Closed,
    ExcludedFolder,
    ExcludedName,
    Silly,
    Linked,
    Open,
    Link,
    Pipe,
}

const FILES: [Of; 13] = [
    Of::Own,
    Of::Empty,
    Of::Others,
    Of::Private,
    Of::Sticky,
    Of::Closed,
    Of::ExcludedFolder,
    Of::ExcludedName,
    Of::Silly,
    Of::Linked,
    Of::Open,
    Of::Link,
    Of::Pipe,
];

impl Of {
    fn path(self) -> &'static str {
        match self {
            Self::Own | Self::Empty | Self::Linked | Self::Open => "own/file",
            Self::Others | Self::Private => "own/theirs",
            Self::Sticky => "sticky/theirs",
            Self::Closed => "closed/own",
            Self::ExcludedFolder => "tmp/file",
            Self::ExcludedName => "own/a.bak",
            Self::Silly => "own/.nfs000000000000abcd00000001",
            Self::Link => "own/link",
            Self::Pipe => "own/pipe",
        }
    }

    /// The rule: the error of the removal, or whether the file is kept.
    fn slow(self) -> Result<bool, VfsError> {
        match self {
            Self::Sticky => Err(VfsError::Perm),
            Self::Closed => Err(VfsError::Access),
            Self::Own | Self::Empty | Self::Others | Self::Private | Self::Open => Ok(true),
            _ => Ok(false),
        }
    }

    fn make(self, world: &World) {
        for (folder, owner, mode) in [
            ("own", 1000, 0o755),
            ("sticky", 0, 0o1777),
            ("closed", 0, 0o755),
            ("tmp", 1000, 0o755),
        ] {
            let path = world.path(folder);
            std::fs::create_dir(&path).unwrap();
            chown(&path, owner);
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        }
        let path = world.path(self.path());
        match self {
            Self::Link => std::os::unix::fs::symlink("target", &path).unwrap(),
            Self::Pipe => {
                let mode = rustix::fs::Mode::RWXU;
                let kind = rustix::fs::FileType::Fifo;
                rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
            }
            _ => std::fs::write(&path, if self == Self::Empty { "" } else { "old" }).unwrap(),
        }
        let others = matches!(self, Self::Others | Self::Private | Self::Sticky);
        chown(&path, if others { 2000 } else { 1000 });
        if self != Self::Link {
            let mode = if self == Self::Private { 0o600 } else { 0o640 };
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        }
        if self == Self::Linked {
            std::fs::hard_link(&path, world.path("own/second")).unwrap();
        }
        std::fs::write(world.path("own/new"), "new").unwrap();
        chown(&world.path("own/new"), 1000);
    }
}

async fn lose(world: &World, loss: Loss, of: Of) -> Result<(), VfsError> {
    let (share, cred) = (world.share(), user(1000));
    let (folder, name) = of.path().split_once('/').unwrap();
    let (dir, own) = (world.node(folder).await?, world.node("own").await?);
    let smb: FileOps<'_> = world.ns.by_smb(None);
    match loss {
        Loss::Nfs => world.ns.unlink(&share, &dir, &cred, name.as_bytes()).await.map(drop),
        Loss::Smb => smb.unlink(&share, &dir, &cred, name.as_bytes()).await.map(drop),
        Loss::Rename => {
            world.ns.rename(&share, &own, &cred, b"new", &dir, name.as_bytes()).await.map(drop)
        }
        Loss::LinkOver => {
            let (node, old) = (world.node("own/new").await?, world.node(of.path()).await?);
            smb.link_over(&share, &node, &cred, (&dir, name.as_bytes()), &old).await
        }
    }
}

#[tokio::test]
async fn removals_match_the_slow_model() {
    if !is_root() {
        return;
    }
    for loss in LOSSES {
        for of in FILES {
            let world = World::new();
            of.make(&world);
            let before = std::fs::symlink_metadata(world.path(of.path())).unwrap();
            let node = world.node(of.path()).await.unwrap();
            let (handle, id) = (node.handle(), node.id());
            let held = (of == Of::Open).then_some(node);
            let done = lose(&world, loss, of).await;
            let what = format!("{loss:?} {of:?}");
            let entries = world.entries();
            let replaced = matches!(loss, Loss::Rename | Loss::LinkOver);
            match of.slow() {
                Err(why) => {
                    assert_eq!(done, Err(why), "{what}");
                    let after = std::fs::symlink_metadata(world.path(of.path())).unwrap();
                    let times = |m: &std::fs::Metadata| (m.ino(), m.nlink(), m.ctime_nsec());
                    assert_eq!(times(&after), times(&before), "{what}: nothing was touched");
                    assert!(entries.is_empty() && world.backend.resolve(&handle).await.is_ok());
                    continue;
                }
                Ok(kept) => {
                    assert_eq!(done, Ok(()), "{what}");
                    assert_eq!(entries.len(), usize::from(kept), "{what}");
                }
            }
            if replaced {
                let now = std::fs::read(world.path(of.path())).unwrap();
                assert_eq!(now, b"new", "{what}");
            } else {
                assert!(world.node(of.path()).await.is_err(), "{what}");
            }
            match &held {
                // A client that has it open sees a removed file, and goes on.
                Some(node) => {
                    assert_eq!(node.getattr().await.unwrap().nlink, 0, "{what}");
                    assert_eq!(node.path().await.err(), Some(VfsError::Stale), "{what}");
                    assert_eq!(world.backend.resolve(&handle).await.unwrap().id(), id);
                }
                None if of != Of::Linked => {
                    let stale = world.backend.resolve(&handle).await.err();
                    assert_eq!(stale, Some(VfsError::Stale), "{what}");
                }
                None => assert!(world.backend.resolve(&handle).await.is_ok(), "{what}"),
            }
            let Some(entry) = entries.first() else { continue };
            let record = entry.record.clone().unwrap();
            let way = if replaced { Way::Replaced } else { Way::Removed };
            assert_eq!((record.path, record.way), (of.path().as_bytes().to_vec(), way), "{what}");
            assert_eq!(entry.id.uid, 1000, "{what}: of the user that removed it");
            let after = std::fs::metadata(world.kept(entry)).unwrap();
            let same = |m: &std::fs::Metadata| (m.ino(), m.uid(), m.gid(), m.mode(), m.nlink());
            assert_eq!(same(&after), same(&before), "{what}");
        }
    }
}

/// Handles are stale in the next run as well, and good again after the file is back.
#[tokio::test]
async fn handle_follows_the_file_through_restarts() {
    let world = World::new();
    world.write("f", "text");
    let handle = world.node("f").await.unwrap().handle();
    world.remove("f", &Cred::root()).await.unwrap();
    assert_eq!(world.backend.resolve(&handle).await.err(), Some(VfsError::Stale));
    let world = world.again();
    assert_eq!(world.backend.resolve(&handle).await.err(), Some(VfsError::Stale));
    // A look at it does not make it reachable.
    let id = world.entries()[0].id;
    assert_eq!(world.backend.resolve(&handle).await.err(), Some(VfsError::Stale));
    assert_eq!(world.backend.is_gone(&handle).await, Ok(false), "its streams stay");
    world.backend.basket().unwrap().restore(id, b"a/b/f", false).unwrap();
    assert_eq!(std::fs::read(world.path("a/b/f")).unwrap(), b"text");
    assert!(world.entries().is_empty());
    let node = world.backend.resolve(&handle).await.unwrap();
    assert_eq!(node.getattr().await.unwrap().nlink, 1);
    let found = world.node("a/b/f").await.unwrap();
    assert_eq!(found.id(), node.id());
    drop((node, found));
    let world = world.again();
    assert!(world.backend.resolve(&handle).await.is_ok(), "it has no record any more");
}

#[tokio::test]
async fn holder_finds_its_file_back() {
    let world = World::new();
    world.write("f", "text");
    let held = world.node("f").await.unwrap();
    world.remove("f", &Cred::root()).await.unwrap();
    assert_eq!(held.getattr().await.unwrap().nlink, 0);
    let id = world.entries()[0].id;
    world.backend.basket().unwrap().restore(id, b"f", false).unwrap();
    assert_eq!(held.getattr().await.unwrap().nlink, 1);
    assert_eq!(world.node("f").await.unwrap().id(), held.id());
    assert_eq!(held.path().await.unwrap(), b"f");
}

#[tokio::test]
async fn restore_replaces_only_when_told() {
    let world = World::new();
    world.write("f", "old");
    world.remove("f", &Cred::root()).await.unwrap();
    world.write("f", "new");
    std::os::unix::fs::symlink("/etc", world.path("out")).unwrap();
    let (id, basket) = (world.entries()[0].id, world.backend.basket().unwrap());
    assert_eq!(basket.restore(id, b"f", false), Err(VfsError::Exists));
    for bad in ["", "../f", "a//b", ".headgate/f", "/f"] {
        assert!(basket.restore(id, bad.as_bytes(), true).is_err(), "{bad}");
    }
    assert!(basket.restore(id, b"out/f", true).is_err(), "no link is followed");
    assert_eq!(world.entries().len(), 1);
    basket.restore(id, b"f", true).unwrap();
    assert_eq!(std::fs::read(world.path("f")).unwrap(), b"old");
    assert!(world.entries().is_empty());
    let handle = world.node("f").await.unwrap().handle();
    assert!(world.again().backend.resolve(&handle).await.is_ok());
}

/// A crash after any step leaves the file at its place, or in the wastebasket.
#[tokio::test]
async fn crash_between_steps_leaves_either() {
    for step in 0..3 {
        let world = World::new();
        world.write("f", "text");
        let handle = world.node("f").await.unwrap().handle();
        let ino = std::fs::metadata(world.path("f")).unwrap().ino();
        // The steps are those of a removal: a second name, the record, and the end of the first name.
        world.remove("f", &Cred::root()).await.unwrap();
        let entry = world.entries().remove(0);
        let kept = world.kept(&entry);
        if step < 2 {
            std::fs::hard_link(&kept, world.path("f")).unwrap();
        }
        if step < 1 {
            for space in ["trusted", "user"] {
                let name = format!("{space}.headgate.waste");
                let _ = rustix::fs::removexattr(&kept, &name[..]);
            }
        }
        let old = Id { at: 1, ..entry.id };
        let place = world.path(".headgate/wastebasket").join(old.path());
        if step < 2 {
            // Of an earlier run.
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::rename(&kept, &place).unwrap();
        }
        let world = world.again();
        if step < 2 {
            assert!(world.backend.resolve(&handle).await.is_ok(), "{step}: also before the repair");
        }
        let repaired = world.backend.basket().unwrap().repair().unwrap();
        assert_eq!(repaired, usize::from(step < 2), "{step}");
        let (there, entries) = (std::fs::metadata(world.path("f")), world.entries());
        assert_eq!(there.is_ok(), step < 2, "{step}");
        assert_eq!(entries.len(), usize::from(step == 2), "{step}");
        if let Ok(there) = there {
            assert_eq!((there.ino(), there.nlink()), (ino, 1), "{step}");
            // It can be removed again.
            world.remove("f", &Cred::root()).await.unwrap();
            assert_eq!(world.entries().len(), 1, "{step}");
        }
        assert_eq!(world.backend.resolve(&handle).await.err(), Some(VfsError::Stale), "{step}");
    }
}

/// An administrator moves a file out by hand.
#[tokio::test]
async fn file_moved_out_on_the_host_is_served() {
    let world = World::new();
    world.write("f", "text");
    let handle = world.node("f").await.unwrap().handle();
    world.remove("f", &Cred::root()).await.unwrap();
    std::fs::rename(world.kept(&world.entries()[0]), world.path("g")).unwrap();
    let world = world.again();
    assert!(world.backend.resolve(&handle).await.is_ok());
    world.remove("g", &Cred::root()).await.unwrap();
    let record = world.entries()[0].record.clone().unwrap();
    assert_eq!(record.path, b"g", "the new record counts");
}

/// Streams of a kept file come back with it, and go with it.
#[tokio::test]
async fn streams_stay_with_the_file() {
    let world = World::new();
    let (share, root) = (world.share(), Cred::root());
    for name in ["a", "b"] {
        world.write(name, "text");
        let file = world.node(name).await.unwrap();
        let smb = world.ns.by_smb(None);
        smb.stream_create(&share, &file, &root, "notes").await.unwrap();
        world.remove(name, &root).await.unwrap();
    }
    vfs::streams::sweep(&share).await.unwrap();
    let streams = world.path(".headgate/streams");
    assert_eq!(std::fs::read_dir(&streams).unwrap().count(), 2);
    let entries = world.entries();
    vfs::waste_keep::end(&share, entries[0].id).await.unwrap();
    assert_eq!(std::fs::read_dir(&streams).unwrap().count(), 1);
    world.backend.basket().unwrap().restore(entries[1].id, b"b", false).unwrap();
    let file = world.node("b").await.unwrap();
    assert_eq!(vfs::streams::list(&share, &file).await.unwrap().len(), 1);
}

/// Clients rename over one name at the same time: each file that had the name is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn simultaneous_renames_keep_every_file() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 40;
    let world = Arc::new(World::new());
    world.write("target", "first");
    let clients = (0..CLIENTS).map(|client| {
        let world = world.clone();
        tokio::spawn(async move {
            let (share, top, root) = (world.share(), world.node("").await.unwrap(), Cred::root());
            for round in 0..ROUNDS {
                let name = format!("{client}-{round}");
                world.write(&name, &name);
                loop {
                    let from = name.as_bytes();
                    match world.ns.rename(&share, &top, &root, from, &top, b"target").await {
                        Err(VfsError::Delay) => tokio::task::yield_now().await,
                        done => break done.map(drop).unwrap(),
                    }
                }
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    let mut texts: Vec<String> = world
        .entries()
        .iter()
        .map(|entry| std::fs::read_to_string(world.kept(entry)).unwrap())
        .collect();
    texts.push(std::fs::read_to_string(world.path("target")).unwrap());
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), CLIENTS * ROUNDS + 1, "no file was lost");
}

#[tokio::test]
async fn long_path_leaves_the_name() {
    let world = World::new();
    let deep = (0..18).map(|_| "d".repeat(240)).collect::<Vec<_>>().join("/");
    let mut at = world.node("").await.unwrap();
    let (share, root) = (world.share(), Cred::root());
    for name in deep.split('/') {
        at = world
            .ns
            .by(None)
            .mkdir(&share, &at, &root, name.as_bytes(), vfs::SetAttr::default())
            .await
            .unwrap()
            .node;
    }
    let set = vfs::SetAttr::default();
    let made =
        world.ns.create(&share, &at, &root, b"f", vfs::CreateHow::Guarded, set).await.unwrap();
    assert_eq!(made.node.kind(), Kind::File);
    world.ns.unlink(&share, &at, &root, b"f").await.unwrap();
    let entries = world.entries();
    let Record { path, is_whole, .. } = entries[0].record.clone().unwrap();
    assert!(path.ends_with(b"f"));
    assert!(is_whole || path == b"f", "{is_whole} {}", path.len());
}

/// A file system that is mounted while this lives.
struct Mount(PathBuf);

impl Mount {
    fn tmpfs(at: &Path, options: &str) -> Option<Self> {
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "waste-test"]).arg(at);
        let is_done = mount.output().is_ok_and(|done| done.status.success());
        if !is_done {
            println!("skipped: no file system can be mounted");
        }
        is_done.then(|| Self(at.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

fn not_kept(why: NotKept) -> u64 {
    let named = counters().named();
    named.into_iter().find(|(name, _)| *name == why.name()).unwrap().1
}

/// A file on a file system mounted inside is removed as asked, and counted.
#[tokio::test]
async fn file_of_an_inner_mount_is_removed() {
    let world = World::with(|config| config.cross = true);
    std::fs::create_dir(world.path("inner")).unwrap();
    let Some(_mount) = Mount::tmpfs(&world.path("inner"), "size=1m") else { return };
    let before = not_kept(NotKept::Elsewhere);
    for name in ["inner/a", "inner/b", "inner/c"] {
        world.write(name, "text");
    }
    world.remove("inner/a", &Cred::root()).await.unwrap();
    let (share, inner) = (world.share(), world.node("inner").await.unwrap());
    world.ns.rename(&share, &inner, &Cred::root(), b"b", &inner, b"c").await.unwrap();
    assert_eq!(std::fs::read_dir(world.path("inner")).unwrap().count(), 1);
    assert!(world.entries().is_empty());
    assert_eq!(not_kept(NotKept::Elsewhere), before + 2);
}

/// Without room for a further name a removal does what it always did, since room is what is missing.
#[tokio::test]
async fn full_file_system_removes_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_mount) = Mount::tmpfs(folder.path(), "size=1m,nr_inodes=12,mode=0777") else {
        return;
    };
    let world = World::at(folder, |_| {});
    world.write("first", "text");
    world.remove("first", &Cred::root()).await.unwrap();
    assert_eq!(world.entries().len(), 1);
    let mut files = 0;
    while std::fs::write(world.path(&format!("f{files}")), "x").is_ok() {
        files += 1;
    }
    let _ = std::fs::remove_file(world.path(&format!("f{files}")));
    assert!(files > 0);
    let before = not_kept(NotKept::NoSpace);
    // Takes the last free inode, where the failed write has left one.
    let _ = std::fs::hard_link(world.path("f0"), world.path("link"));
    world.remove("f0", &Cred::root()).await.unwrap();
    world.remove("link", &Cred::root()).await.ok();
    assert!(!world.path("f0").exists());
    for n in 1..files {
        world.remove(&format!("f{n}"), &Cred::root()).await.unwrap();
        assert!(!world.path(&format!("f{n}")).exists());
    }
    let kept = world.entries().len() - 1;
    assert!(not_kept(NotKept::NoSpace) > before, "{kept} of {files} were kept");
}

/// The removal of one name of a file with two keeps nothing; both at once keep the file.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn simultaneous_removals_of_all_names_keep_the_file() {
    let world = Arc::new(World::new());
    for round in 0..50 {
        let [one, two] = ["one", "two"].map(|name| format!("{name}{round}"));
        world.write(&one, "text");
        std::fs::hard_link(world.path(&one), world.path(&two)).unwrap();
        let removals = [one, two].map(|name| {
            let world = world.clone();
            tokio::spawn(async move { world.remove(&name, &Cred::root()).await })
        });
        for removal in removals {
            removal.await.unwrap().unwrap();
        }
        assert_eq!(world.entries().len(), round + 1);
    }
}

/// Without privileges handles are searched for, and records are where users of the host can write.
#[tokio::test]
async fn gateway_without_privileges_keeps_files() {
    let config = |config: &mut LocalConfig| {
        config.unprivileged = true;
        config.seal = Some(SealKey::new(&[7; 32]));
    };
    let world = World::with(config);
    world.write("f", "text");
    let handle = world.node("f").await.unwrap().handle();
    world.remove("f", &Cred::root()).await.unwrap();
    let entry = world.entries().remove(0);
    assert_eq!(entry.record.unwrap().path, b"f");
    let World { folder, backend, ns } = world;
    drop((backend, ns));
    let world = World::at(folder, config);
    assert_eq!(world.backend.resolve(&handle).await.err(), Some(VfsError::Stale));
    world.backend.basket().unwrap().restore(entry.id, b"f", false).unwrap();
    // The search for handles remembers folders for some seconds.
    assert_eq!(world.node("f").await.unwrap().handle(), handle);
    assert!(world.backend.resolve(&handle).await.is_ok());
    // A forged record neither removes a file nor says whence it came.
    let name = "user.headgate.waste";
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(world.path("f"), name, &[0; 90], flags).unwrap();
    let World { folder, backend, ns } = world;
    drop((backend, ns));
    let world = World::at(folder, config);
    assert!(world.backend.resolve(&handle).await.is_ok());
}

/// A client that has a kept file open gives it no name in the share.
#[tokio::test]
async fn kept_file_gets_no_name_by_a_client() {
    let world = World::new();
    world.write("f", "text");
    let (share, held, top) =
        (world.share(), world.node("f").await.unwrap(), world.node("").await.unwrap());
    world.remove("f", &Cred::root()).await.unwrap();
    let linked = world.ns.link(&share, &held, &Cred::root(), &top, b"again").await;
    assert_eq!(linked.map(drop), Err(VfsError::Stale));
    assert_eq!(world.entries().len(), 1);
}
