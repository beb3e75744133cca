//! Named streams.

use vfs::namespace::{Enforce, Namespace, Protocols, Share, Squash};
use vfs::streams;
use vfs::*;

use super::*;

pub(crate) fn served(b: &Bench) -> Namespace {
    Namespace::new(vec![plain(b)])
}

/// Returns a share without further rules.
pub(crate) fn plain(b: &Bench) -> Share {
    Share {
        name: "s".into(),
        id: Share::id_of("s"),
        backend: b.backend.clone(),
        read_only: false,
        protocols: Protocols::Both,
        squash: Squash::None,
        nfs_locks: Enforce::Smb,
        clients: None,
        rules: vfs::namespace::Rules::default(),
    }
}

async fn shown(share: &Share, file: &NodeRef) -> Vec<(String, u64)> {
    let list = streams::list(share, file).await.unwrap();
    let mut list: Vec<_> = list.into_iter().map(|s| (s.name, s.attr.size)).collect();
    list.sort();
    list
}

/// The look-up of a stream happens when a caller takes it: one that was removed before is left out.
pub(crate) async fn streams_are_looked_up_when_taken(b: Bench) {
    let ns = served(&b);
    let (share, file_ops) = (&ns.shares()[0].clone(), ns.by(None));
    let f = b.file("f").await;
    let names: Vec<String> = (0..100).map(|n| format!("stream {n}")).collect();
    for name in &names {
        file_ops.stream_create(share, &f, &root(), name).await.unwrap();
    }
    let mut want: Vec<_> = names.iter().map(|name| (name.clone(), 0)).collect();
    want.sort();
    assert_eq!(shown(share, &f).await, want, "more than are read at once");
    let mut taken = streams::Streams::of(share, &f).await.unwrap();
    let first = taken.next().await.unwrap().unwrap();
    for name in names.iter().filter(|name| **name != first.name) {
        file_ops.stream_remove(share, &f, name).await.unwrap();
    }
    assert!(taken.next().await.unwrap().is_none());
    assert_eq!(shown(share, &f).await, [(first.name, 0)]);
}

pub(crate) async fn streams_hold_data_of_their_own(b: Bench) {
    let ns = served(&b);
    let (share, file_ops) = (&ns.shares()[0].clone(), ns.by(None));
    let f = b.file("f").await;
    b.write(&f, 0, b"main").await;
    assert_eq!(shown(share, &f).await, []);
    refused(streams::find(share, &f, "x"), VfsError::NotFound).await;
    let (zone, made) = file_ops.stream_create(share, &f, &root(), "Zone.Identifier").await.unwrap();
    assert!(made);
    let large = pattern(3, 300_000);
    b.write(&zone.node, 0, &large).await;
    let (again, made) =
        file_ops.stream_create(share, &f, &root(), "ZONE.identifier").await.unwrap();
    assert!(!made && again.node.id() == zone.node.id() && again.name == "Zone.Identifier");
    file_ops.stream_create(share, &f, &root(), "a*b?").await.unwrap();
    assert!(
        b.contents(&streams::find(share, &f, "zone.IDENTIFIER").await.unwrap().node).await == large
    );
    let want = [("Zone.Identifier".to_owned(), 300_000), ("a*b?".to_owned(), 0)];
    assert_eq!(shown(share, &f).await, want);
    assert_eq!(b.contents(&f).await, b"main");
    refused(file_ops.stream_rename(share, &f, "A*B?", "zone.identifier", false), VfsError::Exists)
        .await;
    file_ops.stream_rename(share, &f, "zone.identifier", "ZONE", false).await.unwrap();
    file_ops.stream_rename(share, &f, "zone", "Zone", false).await.unwrap();
    file_ops.stream_rename(share, &f, "zone", "A*b?", true).await.unwrap();
    assert_eq!(shown(share, &f).await, [("A*b?".to_owned(), 300_000)]);
    file_ops.stream_remove(share, &f, "a*b?").await.unwrap();
    refused(file_ops.stream_remove(share, &f, "a*b?"), VfsError::NotFound).await;
    assert_eq!(shown(share, &f).await, []);
    for bad in ["", "a:b", "a/b"] {
        refused(file_ops.stream_create(share, &f, &root(), bad), VfsError::BadName).await;
    }
    let d = b.dir("d").await;
    file_ops.stream_create(share, &d, &root(), "of a directory").await.unwrap();
    assert_eq!(shown(share, &d).await.len(), 1);
}

/// The folder of streams belongs to the gateway: the kernel would admit no other user there, and checks no caller.
pub(crate) async fn stream_creation_needs_write_permission(b: Bench) {
    use vfs::acl::{Ace, Acl, Who, mask};
    use vfs::authority::Grant;
    const OWNER: u32 = 1000;
    let ns = served(&b);
    let (share, file_ops, c) = (&ns.shares()[0].clone(), ns.by(None), root());
    let of = |mode| {
        let (uid, gid) = (Some(OWNER), Some(OWNER));
        SetAttr { mode: Some(mode), uid, gid, ..SetAttr::default() }
    };
    let cred = |uid| Cred { uid, gid: uid, groups: [].into(), token: vfs::Token::NONE };
    let (owner, other) = (cred(OWNER), cred(OWNER + 1));
    let link = b.root.symlink(&c, b"l", b"x", SetAttr::default()).await.unwrap().node;
    let to_owner = SetAttr { mode: None, ..of(0) };
    link.setattr(&c, to_owner, false).await.unwrap();
    let (f, d) = (b.file("f").await, b.dir("d").await);
    for (node, open) in [(&f, 0o666), (&d, 0o777)] {
        node.setattr(&c, of(0o755), false).await.unwrap();
        refused(file_ops.stream_create(share, node, &other, "s"), VfsError::Access).await;
        assert_eq!(shown(share, node).await, []);
        file_ops.stream_create(share, node, &owner, "s").await.unwrap();
        node.setattr(&c, of(open), false).await.unwrap();
        file_ops.stream_create(share, node, &other, "t").await.unwrap();
    }
    refused(file_ops.stream_create(share, &link, &other, "s"), VfsError::Access).await;
    file_ops.stream_create(share, &link, &owner, "s").await.unwrap();
    // The rights of a list count, but only for its own file.
    f.setattr(&c, of(0o600), false).await.unwrap();
    let list = Acl::new(vec![Ace::allow(Who::User(other.uid), mask::WRITE_DATA, 0)]);
    f.acl_set(&list, 0o600).await.unwrap();
    let grant = Grant::decide(&f, &f.getattr().await.unwrap(), &other).await.unwrap();
    let granted = || ns.by(None).granted(grant.as_ref(), None);
    granted().stream_create(share, &f, &other, "u").await.unwrap();
    d.setattr(&c, of(0o755), false).await.unwrap();
    refused(granted().stream_create(share, &d, &other, "u"), VfsError::Access).await;
}

pub(crate) async fn streams_follow_their_file(b: Bench) {
    let ns = served(&b);
    let (share, file_ops, c, r) = (&ns.shares()[0].clone(), ns.by(None), root(), &b.root);
    let (f, g) = (b.file("f").await, b.file("g").await);
    for file in [&f, &g] {
        file_ops.stream_create(share, file, &root(), "s").await.unwrap();
    }
    f.link(Acting::caller(&c), r.as_ref(), b"f2").await.unwrap();
    file_ops.unlink(share, r, &c, b"f").await.unwrap();
    assert_eq!(shown(share, &f).await.len(), 1, "it has another name");
    let held = streams::find(share, &f, "s").await.unwrap();
    b.write(&held.node, 0, b"open").await;
    // The file is replaced, and its stream with it; an open stream stays open.
    file_ops.rename(share, r, &c, b"g", r, b"f2").await.unwrap();
    assert_eq!(shown(share, &f).await, []);
    assert_eq!(shown(share, &g).await.len(), 1);
    assert_eq!(b.contents(&held.node).await, b"open");
    let d = b.dir("d").await;
    file_ops.stream_create(share, &d, &root(), "s").await.unwrap();
    file_ops.rmdir(share, r, &c, b"d").await.unwrap();
    assert_eq!(shown(share, &d).await, []);
    // A file that was removed by other programs is found later.
    assert_eq!(streams::sweep(share).await, Ok(0));
    r.unlink(Acting::caller(&c), b"f2").await.unwrap();
    drop((f, g, d, held));
    assert_eq!(streams::sweep(share).await, Ok(1));
    assert_eq!(streams::sweep(share).await, Ok(0));
}

pub(crate) async fn stream_folder_is_hidden(b: Bench) {
    let ns = served(&b);
    let (share, file_ops, c) = (&ns.shares()[0].clone(), ns.by(None), root());
    let f = b.file("f").await;
    assert!(b.backend.hidden(false).await.unwrap().is_none());
    let (s, _) = file_ops.stream_create(share, &f, &root(), "s").await.unwrap();
    assert_eq!(b.names(&b.root, 10).await, ["f"]);
    refused(s.node.path(), VfsError::Stale).await;
    let hidden = b.backend.hidden(false).await.unwrap().unwrap();
    refused(hidden.path(), VfsError::Stale).await;
    match b.root.lookup(&c, b".headgate").await {
        Err(VfsError::NotFound) => {}
        other => panic!("{:?}", other.map(|o| o.1)),
    }
}

/// Another share's root may lie in any folder, so its own folder is hidden there as well.
pub(crate) async fn gateway_folder_is_hidden_at_any_depth(b: Bench) {
    let c = root();
    let d = b.dir("d").await;
    refused(d.mkdir(Acting::caller(&c), b".headgate", mode(0o755)), VfsError::Access).await;
    refused(d.lookup(&c, b".headgate"), VfsError::NotFound).await;
    assert!(b.names(&d, 10).await.is_empty());
}
