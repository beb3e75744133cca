//! Opens below a folder that is renamed: found through an index, also after other clients changed names.

use std::sync::Arc;

use vfs::authority::Acting;
use vfs::namespace::{Enforce, Protocols, Rules, Share, Squash};
use vfs::{Cred, NodeRef};

use super::info::{set, to};
use crate::dtyp::mask;
use crate::fscc::set::Set;
use crate::harness::{Client, Harness};
use crate::open::{FileId, PathInShare, Walk, walked};
use crate::path_tracking;
use crate::status::Status;
use crate::tree::{LastTakeUp, Target, Tree};
use crate::wire::create::option;

async fn folder(c: &Client, name: &str) {
    let made = c.create(name, |r| r.options = option::DIRECTORY_FILE).await.unwrap();
    assert_eq!(c.close(made.file).await, Status::SUCCESS);
}

/// Returns a handle that can rename the folder.
async fn renamer(c: &Client, name: &str) -> FileId {
    let opened = c.create(name, |r| {
        r.options = option::DIRECTORY_FILE;
        r.access = mask::DELETE | mask::READ_ATTRIBUTES;
    });
    opened.await.unwrap().file
}

fn node(c: &Client, file: FileId) -> NodeRef {
    c.core.opens.get(file).unwrap().node().unwrap()
}

/// Returns the number of opens that the index lists below a folder.
fn listed(c: &Client, dir: FileId) -> usize {
    let share = c.core.opens.get(dir).unwrap().share().unwrap().id;
    c.core.opens.below(share, node(c, dir).id()).len()
}

async fn below(c: &Client, dir: FileId) -> usize {
    let open = c.core.opens.get(dir).unwrap();
    let share = open.share().unwrap();
    let dir = node(c, dir);
    let found = path_tracking::below(&c.core.opens, share, &dir, usize::MAX, |_| true);
    found.await.unwrap().len()
}

/// Renames a file as a client of another protocol.
async fn rename_by_nfs(c: &Client, from: (&NodeRef, &[u8]), to: (&NodeRef, &[u8])) {
    let share = c.core.namespace.shares()[0].clone();
    let nfs = c.core.namespace.by(None);
    nfs.rename(&share, from.0, &Cred::root(), from.1, to.0, to.1).await.unwrap();
}

#[tokio::test]
async fn renames_look_at_opens_below_alone() {
    let c = Harness::new().client();
    for name in ["a", r"a\b", r"a\b\c", "other"] {
        folder(&c, name).await;
    }
    for _ in 0..200 {
        c.open(r"a\b\c\f").await;
    }
    let (a, other) = (renamer(&c, "a").await, renamer(&c, "other").await);
    assert_eq!((listed(&c, a), listed(&c, other)), (200, 0));
    let opens = c.core.opens.of_session(c.session_id, None);
    let keeps_folders =
        |o: &Arc<crate::open::Open>| o.file().is_ok_and(|file| file.place().walk.is_some());
    assert!(!opens.iter().any(keeps_folders), "the path of a deep folder is not kept by each open");
    assert_eq!(set(&c, other, Set::Rename(to("elsewhere", 0))).await, Status::SUCCESS);
    assert_eq!(set(&c, a, Set::Rename(to("z", 0))).await, Status::ACCESS_DENIED);
    // The opens of a session are found without scanning the opens of other sessions.
    assert_eq!(c.core.opens.of_session(c.session_id, None).len(), 202);
    assert_eq!(c.core.opens.count_of(c.session_id), 202);
}

/// A walk through `d1\x` ends after a rename of `x` to `d2\x`: the index must not link `x` back to `d1`.
#[tokio::test]
async fn stale_walk_links_no_folder() {
    let c = Harness::new().client();
    for name in ["d1", r"d1\x", "d2"] {
        folder(&c, name).await;
    }
    // Keeps one file open during the whole test.
    let other = c.open("other").await;
    let x = renamer(&c, r"d1\x").await;
    let share = c.core.opens.get(other).unwrap().share().unwrap().clone();
    let root = share.backend.root();
    let (d1, _) = root.lookup(&Cred::root(), b"d1").await.unwrap();
    let began = c.core.opens.renames();
    let above = walked(&d1, Some(walked(&root, None)));
    let stale = Walk { above: walked(&node(&c, x), Some(above)), began };
    assert_eq!(set(&c, x, Set::Rename(to(r"d2\x", 0))).await, Status::SUCCESS);
    assert_eq!(c.close(x).await, Status::SUCCESS);
    let file = c.open(r"d2\x\f").await;
    let open = c.core.opens.get(file).unwrap();
    let old = open.file().unwrap().place();
    let new = PathInShare { walk: Some(stale), ..old.clone() };
    c.core.opens.moved(open.node().unwrap().id(), &old, &new).await;
    let d2 = renamer(&c, "d2").await;
    assert_eq!(below(&c, d2).await, 1);
    assert_eq!(set(&c, d2, Set::Rename(to("z", 0))).await, Status::ACCESS_DENIED);
}

/// Two shares of one folder: a rename through one share must update the index of the other.
#[tokio::test]
async fn rename_moves_folder_in_each_share() {
    let mut c = Harness::new().client();
    for name in ["a", r"a\b", "other"] {
        folder(&c, name).await;
    }
    let first = c.core.namespace.shares()[0].clone();
    let second = Arc::new(Share {
        name: "again".into(),
        id: Share::id_of("again"),
        backend: first.backend.clone(),
        read_only: false,
        protocols: Protocols::Both,
        squash: Squash::None,
        nfs_locks: Enforce::Smb,
        clients: None,
        rules: Rules::default(),
    });
    c.core.namespace.set_shares([first, second.clone()].into());
    let session = c.core.sessions.get(c.session_id).unwrap();
    let tree = session.tree(c.tree_id).unwrap();
    let other_tree = session.add_tree(|id| Tree {
        last_take_up: LastTakeUp::default(),
        is_dfs: false,
        home: None,
        id,
        session_id: session.id,
        name: "again".into(),
        target: Target::Files(second),
        cred: tree.cred.clone(),
        maximal_access: tree.maximal_access,
        settings: tree.settings.clone(),
    });
    let (by_first, by_second) = (c.tree_id, other_tree.unwrap().id);
    c.tree_id = by_second;
    // The second walk links the folders again instead of trusting the links of the first open.
    let opened = [c.open(r"a\b\f").await, c.open(r"a\b\f").await];
    let other = renamer(&c, "other").await;
    assert_eq!(below(&c, other).await, 0);
    assert_eq!(c.close(other).await, Status::SUCCESS);
    c.tree_id = by_first;
    let b = renamer(&c, r"a\b").await;
    assert_eq!(set(&c, b, Set::Rename(to(r"other\b", 0))).await, Status::SUCCESS);
    assert_eq!(c.close(b).await, Status::SUCCESS);
    c.tree_id = by_second;
    let other = renamer(&c, "other").await;
    assert_eq!(below(&c, other).await, opened.len());
    assert_eq!(set(&c, other, Set::Rename(to("z", 0))).await, Status::ACCESS_DENIED);
}

/// Moves a folder with opens below it in every way: both parent folders must see its current location.
#[tokio::test]
async fn folders_take_their_opens_along() {
    for by_host in [false, true] {
        let harness = Harness::new();
        let c = harness.client();
        for name in ["a", r"a\b", "other"] {
            folder(&c, name).await;
        }
        let file = c.open(r"a\b\f").await;
        let (a, other) = (renamer(&c, "a").await, renamer(&c, "other").await);
        assert_eq!((below(&c, a).await, below(&c, other).await), (1, 0));
        let (from, to_dir) = (node(&c, a), node(&c, other));
        if by_host {
            let root = Cred::root();
            from.rename(Acting::caller(&root), b"b", to_dir.as_ref(), b"b", true).await.unwrap();
            assert_eq!(below(&c, a).await, 0, "the file system is asked");
            // A new walk to the folder updates its location.
            let again = c.open(r"other\b\f").await;
            assert_eq!(below(&c, other).await, 2);
            assert_eq!(c.close(again).await, Status::SUCCESS);
        } else {
            rename_by_nfs(&c, (&from, b"b"), (&to_dir, b"b")).await;
            assert_eq!(below(&c, a).await, 0);
        }
        assert_eq!(below(&c, other).await, 1);
        assert_eq!(set(&c, other, Set::Rename(to("y", 0))).await, Status::ACCESS_DENIED);
        assert_eq!(set(&c, a, Set::Rename(to("z", 0))).await, Status::SUCCESS);
        assert_eq!(c.close(file).await, Status::SUCCESS);
        assert_eq!(set(&c, other, Set::Rename(to("y", 0))).await, Status::SUCCESS);
    }
}

/// An open of the top of a share, or of a stream of it, has no name to look up.
#[tokio::test]
async fn opens_of_the_top_are_below_nothing() {
    let c = Harness::new().client();
    c.open("f").await;
    c.open(":stream").await;
    let top = c.create("", |r| r.options = option::DIRECTORY_FILE).await.unwrap().file;
    assert_eq!(below(&c, top).await, 1);
}
