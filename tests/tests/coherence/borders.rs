//! Shares whose folders overlap: the identity of files, and notices of changes across the border of an inner share.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use vfs::local::{LocalBackend, LocalConfig};
use vfs::namespace::{Enforce, Namespace, Protocols, Rules, Share, Squash};
use vfs::watch::Watch;
use vfs::*;

fn open(root: &Path, unprivileged: bool) -> Arc<LocalBackend> {
    LocalBackend::open(LocalConfig { unprivileged, ..LocalConfig::new(root) }).unwrap()
}

async fn find(backend: &dyn Backend, path: &str) -> VfsResult<NodeRef> {
    let mut at = backend.root();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        at = at.lookup(&Cred::root(), name.as_bytes()).await?.0;
    }
    Ok(at)
}

/// Folders and files below the outermost folder.
const FOLDERS: [&str; 5] = ["", "d", "in", "in/e", "in/e/g"];
const FILES: [&str; 4] = ["f", "d/f", "in/f", "in/e/f"];

fn tree(at: &Path) {
    FOLDERS.iter().for_each(|dir| std::fs::create_dir_all(at.join(dir)).unwrap());
    FILES.iter().for_each(|file| std::fs::write(at.join(file), file).unwrap());
}

/// The path of a node from the root of a share in `inner`, if it is there.
fn inside<'a>(path: &'a str, inner: &str) -> Option<&'a str> {
    match inner {
        "" => Some(path),
        _ if path == inner => Some(""),
        _ => path.strip_prefix(inner)?.strip_prefix('/'),
    }
}

/// Every node through every pair of shares, with kernel handles and without.
#[tokio::test]
async fn file_has_one_identity_in_all_shares() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    for unprivileged in [false, true] {
        let shares: Vec<_> = ["", "", "in", "in/e", "d"]
            .map(|at| (at, open(&dir.path().join(at), unprivileged)))
            .into_iter()
            .collect();
        let mut ids = HashSet::new();
        for path in FOLDERS.iter().chain(&FILES) {
            let mut id = None;
            for (at, one) in &shares {
                let Some(here) = inside(path, at) else { continue };
                let node = find(&**one, here).await.unwrap();
                assert_eq!(*id.get_or_insert(node.id()), node.id(), "{path} in {at}");
                for (to, other) in &shares {
                    let found = other.counterpart(&node).await.unwrap();
                    let there = inside(path, to);
                    assert_eq!(found.is_some(), there.is_some(), "{path} of {at} in {to}");
                    let Some((found, there)) = found.zip(there) else { continue };
                    assert!(other.root().is_beside(found.as_ref()), "{path} of {at} in {to}");
                    assert_eq!(found.id(), node.id(), "{path} of {at} in {to}");
                    assert_eq!(found.path().await.unwrap(), there.as_bytes(), "{path}, {at}, {to}");
                }
            }
            assert!(ids.insert(id.unwrap()), "{path} has an id of its own");
        }
    }
}

/// A file that takes the number of a removed one is another file, for each share.
#[tokio::test]
async fn new_file_is_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (open(dir.path(), false), open(dir.path(), false));
    let mut seen = HashSet::new();
    for round in 0..200 {
        std::fs::write(dir.path().join("f"), b"").unwrap();
        let (a, b) = (find(&*one, "f").await.unwrap(), find(&*other, "f").await.unwrap());
        assert_eq!(a.id(), b.id(), "{round}");
        assert!(seen.insert(a.id()), "{round}");
        std::fs::remove_file(dir.path().join("f")).unwrap();
        // One share learns of it later.
        let _ = a.getattr().await;
        if round % 2 == 0 {
            drop((a, b));
        }
    }
}

const DIRS: [&str; 4] = ["", "d", "in", "in/e"];
const NAMES: [&str; 3] = ["x", "y", "z"];

fn share(name: &str, at: &Path) -> Share {
    Share {
        name: name.into(),
        id: Share::id_of(name),
        backend: open(at, false),
        protocols: Protocols::Both,
        read_only: false,
        squash: Squash::None,
        nfs_locks: Enforce::Smb,
        clients: None,
        rules: Rules::default(),
    }
}

/// A watcher: the folder of its share, the watched folder, and whether it watches all below.
type Watcher = (&'static str, &'static str, bool);

/// The events of a rename, by the paths on the host alone. A missing side is a creation or a removal.
fn model((_, dir, below): Watcher, from: Option<&str>, to: Option<&str>) -> Vec<(Action, String)> {
    let folder = |path: &str| path.rsplit_once('/').map_or("", |(dir, _)| dir).to_owned();
    let same = from.map(folder) == to.map(folder);
    let seen = |path: &str| {
        let shown = inside(path, dir)?;
        (below || !shown.contains('/')).then(|| shown.to_owned())
    };
    let (gone, come) = match same {
        true => (Action::RenamedOld, Action::RenamedNew),
        false => (Action::Removed, Action::Added),
    };
    let gone = from.and_then(seen).map(|path| (gone, path));
    let come = to.and_then(seen).map(|path| (come, path));
    gone.into_iter().chain(come).collect()
}

fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.into() } else { format!("{dir}/{name}") }
}

/// Changes through each share, also across the border of the inner one, and what watchers in each share see.
#[tokio::test]
async fn notices_are_those_of_the_model() {
    let dir = tempfile::tempdir().unwrap();
    DIRS.iter().for_each(|d| std::fs::create_dir_all(dir.path().join(d)).unwrap());
    let at = [("outer", ""), ("twin", ""), ("inner", "in")];
    let namespace = Namespace::new(at.map(|(name, d)| share(name, &dir.path().join(d))).into());
    let shares = namespace.shares();
    let root = Cred::root();
    let mut watchers: Vec<(Watcher, Watch)> = Vec::new();
    for ((_, top), share) in at.iter().zip(shares.iter()) {
        for path in DIRS {
            let Some(here) = inside(path, top) else { continue };
            for below in [false, true] {
                let node = find(&*share.backend, here).await.unwrap();
                let watch = namespace.watches().watch((share, &root), node, 0xfff, below);
                watchers.push(((*top, path, below), watch.await.unwrap()));
            }
        }
    }
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut roll = |n: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 33) as usize % n
    };
    let (file_ops, mut crossings) = (namespace.by(None), 0);
    for round in 0..600 {
        let which = roll(at.len());
        let (share, top) = (&shares[which], at[which].1);
        let reach: Vec<&str> = DIRS.into_iter().filter(|d| inside(d, top).is_some()).collect();
        let (from_dir, to_dir) = (reach[roll(reach.len())], reach[roll(reach.len())]);
        let (from, to) = (NAMES[roll(NAMES.len())], NAMES[roll(NAMES.len())]);
        let (old, new) = (join(from_dir, from), join(to_dir, to));
        let there = |path: &str| dir.path().join(path).exists();
        let node = |path: &str| {
            let here = inside(path, top).unwrap().to_owned();
            async move { find(&*share.backend, &here).await.unwrap() }
        };
        let (a, b) = (node(from_dir).await, node(to_dir).await);
        let (gone, come) = match (there(&old), there(&new)) {
            (true, false) => {
                let moved = file_ops.rename(share, &a, &root, from.as_bytes(), &b, to.as_bytes());
                moved.await.unwrap();
                crossings += usize::from(from_dir.starts_with("in") != to_dir.starts_with("in"));
                (Some(old), Some(new))
            }
            (true, true) => {
                file_ops.unlink(share, &a, &root, from.as_bytes()).await.unwrap();
                (Some(old), None)
            }
            (false, _) => {
                let how = CreateHow::Guarded;
                let set = SetAttr { mode: Some(0o644), ..SetAttr::default() };
                file_ops.create(share, &a, &root, from.as_bytes(), how, set).await.unwrap();
                (None, Some(old))
            }
        };
        for (watcher, watch) in &watchers {
            let seen = watch.take().events.into_iter();
            let seen = seen.map(|e| (e.action, String::from_utf8(e.path).unwrap()));
            let wanted = model(*watcher, gone.as_deref(), come.as_deref());
            let what = format!("{round}: {gone:?} to {come:?} by {which}, {watcher:?}");
            assert_eq!(seen.collect::<Vec<_>>(), wanted, "{what}");
        }
    }
    assert!(crossings > 20, "{crossings}");
}
