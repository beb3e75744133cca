//! Access control lists in `user.` attributes: only a list that the gateway wrote for this file counts.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use rustix::fs::XattrFlags;
use vfs::Acting;
use vfs::acl::{Ace, Acl, Owner, Who, mask};
use vfs::local::{LocalBackend, LocalConfig, SealKey, refused_lists};
use vfs::{Backend, CreateHow, Cred, NodeRef, SetAttr};

const NAME: &str = "user.headgate.acl";

fn open(root: &Path, key: u8) -> Arc<LocalBackend> {
    let seal = Some(SealKey::new(&[key; 32]));
    LocalBackend::open(LocalConfig { unprivileged: true, seal, ..LocalConfig::new(root) }).unwrap()
}

async fn make(b: &LocalBackend, name: &str, uid: u32) -> NodeRef {
    let (cred, set) = (Cred::root(), SetAttr::default());
    let made = b
        .root()
        .create(Acting::caller(&cred), name.as_bytes(), CreateHow::Guarded, set)
        .await
        .unwrap();
    let acl = Acl::new(vec![Ace::allow(Who::User(uid), mask::READ_DATA, 0)]);
    let attr = made.node.getattr().await.unwrap();
    made.node.acl_set(&acl, acl.mode(Owner::of(&attr))).await.unwrap();
    made.node
}

async fn kept(b: &LocalBackend, name: &str) -> Option<Acl> {
    let (node, attr) = b.root().lookup(&Cred::root(), name.as_bytes()).await.unwrap();
    node.acl(&attr).await.unwrap().map(|acl| Acl::clone(&acl))
}

fn record(path: &Path) -> Vec<u8> {
    let mut room = vec![0; 4096];
    let n = rustix::fs::getxattr(path, NAME, &mut room[..]).unwrap();
    room.truncate(n);
    room
}

fn forge(path: &Path, record: &[u8]) {
    rustix::fs::setxattr(path, NAME, record, XattrFlags::empty()).unwrap();
}

/// Checks for `user.` attributes: a host without them has no such lists.
fn keeps_attributes(dir: &Path) -> bool {
    rustix::fs::setxattr(dir, "user.probe", b"1", XattrFlags::empty()).is_ok()
}

#[tokio::test]
async fn foreign_list_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    assert!(keeps_attributes(dir.path()), "a file system with user attributes, for this test");
    let b = open(dir.path(), 1);
    make(&b, "a", 1001).await;
    make(&b, "b", 1002).await;
    let (a_path, b_path) = (dir.path().join("a"), dir.path().join("b"));
    let (of_a, of_b) = (record(&a_path), record(&b_path));
    let (list_a, list_b) = (kept(&b, "a").await, kept(&b, "b").await);
    assert!(list_a.is_some() && list_b.is_some() && list_a != list_b);

    // A user with write access to the file could set each of these.
    let turned = |at: usize| {
        let mut other = of_a.clone();
        other[at] ^= 1;
        other
    };
    let forged = [
        ("of another file", of_b.clone()),
        ("without a seal", of_a[32..].to_vec()),
        ("with another seal", turned(0)),
        ("with another list", turned(of_a.len() - 1)),
        ("cut", of_a[..20].to_vec()),
        ("empty", Vec::new()),
    ];
    for (what, record) in forged {
        let before = refused_lists();
        forge(&a_path, &record);
        assert_eq!(kept(&b, "a").await, None, "{what}");
        assert!(refused_lists() > before, "{what} is counted");
        forge(&a_path, &of_a);
        assert_eq!(kept(&b, "a").await, list_a, "its own stands again");
    }
}

#[tokio::test]
async fn list_needs_same_key_and_file() {
    let dir = tempfile::tempdir().unwrap();
    assert!(keeps_attributes(dir.path()), "a file system with user attributes, for this test");
    let path = dir.path().join("a");
    let b = open(dir.path(), 1);
    make(&b, "a", 1001).await;
    let list = kept(&b, "a").await;
    drop(b);
    let again = open(dir.path(), 1);
    assert_eq!(kept(&again, "a").await, list);
    std::fs::rename(&path, dir.path().join("moved")).unwrap();
    assert_eq!(kept(&again, "moved").await, list, "a name is no part of it");
    std::fs::copy(dir.path().join("moved"), &path).unwrap();
    forge(&path, &record(&dir.path().join("moved")));
    assert_eq!(kept(&again, "a").await, None, "a copy is another file");
    let other = open(dir.path(), 2);
    assert_eq!(kept(&other, "moved").await, None, "another gateway's");
}
