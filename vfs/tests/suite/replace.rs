//! Replacing a node by another one under the same name.

use vfs::namespace::Share;
use vfs::replace::{self, New};
use vfs::*;

use super::streams::{plain, served};
use super::*;

/// Lists the folders in which nodes are staged.
async fn waiting(share: &Share) -> Vec<Vec<u8>> {
    let c = root();
    let Some(hidden) = share.backend.hidden(false).await.unwrap() else { return Vec::new() };
    let (new, _) = hidden.lookup(&c, b"new").await.unwrap();
    new.readdir(&c, 0, 100).await.unwrap().0.into_iter().map(|e| e.name.into_vec()).collect()
}

pub(crate) async fn node_replaces_another(b: Bench) {
    let ns = served(&b);
    let (share, file_ops, c, r) = (&ns.shares()[0].clone(), ns.by(None), root(), &b.root);
    for (new, kind) in [
        (New::Link(b"../target"), Kind::Symlink),
        (New::Special(Special::Fifo), Kind::Fifo),
        (New::Special(Special::Socket), Kind::Socket),
        (New::File, Kind::File),
    ] {
        let (file, dir) = (b.file("f").await, b.dir("d").await);
        file.setattr(&c, mode(0o4751), false).await.unwrap();
        let dos = Dos { attributes: Some(2), ..Dos::default() };
        file.dos_set(dos).await.unwrap();
        for (name, old) in [(&b"f"[..], &file), (b"d", &dir)] {
            let staged = file_ops.stage(share, r, &c, old, new).await.unwrap();
            let node = staged.node.clone();
            assert!(b.names(r, 100).await == ["f", "d"] || b.names(r, 100).await == ["d", "f"]);
            assert_eq!(r.lookup(&c, name).await.unwrap().0.id(), old.id(), "not yet");
            file_ops.put_in_place(share, staged, &c, (r, name), old).await.unwrap();
            let (found, attr) = r.lookup(&c, name).await.unwrap();
            assert_eq!((found.id(), attr.kind, attr.nlink), (node.id(), kind, 1));
            if kind != Kind::Symlink {
                let want = if name == b"f" { 0o4751 } else { 0o644 };
                assert_eq!(attr.mode, want, "{kind:?}");
            }
        }
        let (found, attr) = r.lookup(&c, b"f").await.unwrap();
        // A node that cannot store the attributes is not asked to.
        let kept = found.dos(&attr).await.unwrap();
        assert!(kept.attributes == Some(2) || kind != Kind::File);
        assert!(waiting(share).await.is_empty());
        for name in [b"f", b"d"] {
            r.unlink(Acting::caller(&c), name).await.unwrap();
        }
    }
}

/// A user who may change a folder replaces another user's pipe by a file: the new file must not run with the other user's identity.
pub(crate) async fn replacement_of_foreign_node_loses_set_id(b: Bench) {
    const OWNER: u32 = 1000;
    let ns = served(&b);
    let (share, file_ops, c, r) = (&ns.shares()[0].clone(), ns.by(None), root(), &b.root);
    let of = |uid, mode| {
        let set = SetAttr { uid: Some(uid), gid: Some(uid), ..SetAttr::default() };
        SetAttr { mode: Some(mode), ..set }
    };
    let other = Cred { uid: OWNER + 1, gid: OWNER + 1, groups: [].into(), token: vfs::Token::NONE };
    r.setattr(&c, mode(0o755), false).await.unwrap();
    let dir = b.dir("d").await;
    dir.setattr(&c, of(other.uid, 0o777), false).await.unwrap();
    for (name, new, kind) in
        [(&b"fifo"[..], New::File, Kind::File), (b"file", New::Special(Special::Fifo), Kind::Fifo)]
    {
        let by = Acting::caller(&c);
        let old = match kind {
            Kind::File => dir.mknod(&c, name, Special::Fifo, mode(0o600)).await.unwrap().node,
            _ => dir.create(by, name, CreateHow::Guarded, mode(0o600)).await.unwrap().node,
        };
        old.setattr(&c, of(OWNER, 0o7777), false).await.unwrap();
        assert_eq!(old.getattr().await.unwrap().mode, 0o7777);
        let staged = file_ops.stage(share, &dir, &other, &old, new).await.unwrap();
        file_ops.put_in_place(share, staged, &other, (&dir, name), &old).await.unwrap();
        let (_, attr) = dir.lookup(&c, name).await.unwrap();
        assert_eq!((attr.kind, attr.uid, attr.mode), (kind, OWNER, 0o1777));
    }
}

pub(crate) async fn file_replacing_link_gets_default_mode(b: Bench) {
    let ns = served(&b);
    let (share, file_ops, c, r) = (&ns.shares()[0].clone(), ns.by(None), root(), &b.root);
    let link = r.symlink(&c, b"l", b"x", SetAttr::default()).await.unwrap().node;
    let staged = file_ops.stage(share, r, &c, &link, New::File).await.unwrap();
    file_ops.put_in_place(share, staged, &c, (r, b"l"), &link).await.unwrap();
    let (_, attr) = r.lookup(&c, b"l").await.unwrap();
    assert_eq!((attr.kind, attr.mode, attr.size), (Kind::File, 0o644, 0));
}

/// Like a file that is created there: it inherits the folder's list, limited by the mode bits.
pub(crate) async fn file_replacing_link_inherits(b: Bench) {
    use vfs::acl::{Ace, Acl, Owner, Who, flag, mask};
    let ns = served(&b);
    let (share, file_ops, c) = (&ns.shares()[0].clone(), ns.by(None), root());
    let d = b.dir("d").await;
    let passed = Ace::allow(Who::User(1001), mask::FILE_ALL, flag::OBJECT_INHERIT);
    d.acl_set(&Acl::new(vec![passed]), 0o700).await.unwrap();
    let link = d.symlink(&c, b"l", b"x", SetAttr::default()).await.unwrap().node;
    let staged = file_ops.stage(share, &d, &c, &link, New::File).await.unwrap();
    file_ops.put_in_place(share, staged, &c, (&d, b"l"), &link).await.unwrap();
    let (node, attr) = d.lookup(&c, b"l").await.unwrap();
    let acl = node.acl(&attr).await.unwrap().unwrap();
    let rights = acl.allowed(&user(1001), Owner::of(&attr));
    let write = mask::WRITE_DATA | mask::APPEND_DATA | mask::WRITE_EA;
    assert_eq!(rights, mask::FILE_ALL & !write);
}

pub(crate) async fn file_replacing_link_gets_masked_mode(b: Bench) {
    let (c, r) = (root(), &b.root);
    let masks = namespace::Masks { file: Some(0o660), folder: None };
    let rules = namespace::Rules { masks, ..namespace::Rules::default() };
    let share = Share { rules, ..plain(&b) };
    let ns = namespace::Namespace::new(vec![share]);
    let (share, file_ops) = (&ns.shares()[0].clone(), ns.by(None));
    let link = r.symlink(&c, b"l", b"x", SetAttr::default()).await.unwrap().node;
    let staged = file_ops.stage(share, r, &c, &link, New::File).await.unwrap();
    file_ops.put_in_place(share, staged, &c, (r, b"l"), &link).await.unwrap();
    assert_eq!(r.lookup(&c, b"l").await.unwrap().1.mode, 0o660);
}

/// After a failure at any step the name is unchanged, and no files remain.
pub(crate) async fn failed_replacement_keeps_old_node(b: Bench) {
    let ns = served(&b);
    let (share, file_ops, c, r) = (&ns.shares()[0].clone(), ns.by(None), root(), &b.root);
    let (file, dir) = (b.file("f").await, b.dir("d").await);
    dir.create(Acting::caller(&c), b"inside", CreateHow::Guarded, mode(0o600)).await.unwrap();
    // The new node is created and exchanged with the directory, which then cannot be removed.
    let staged = file_ops.stage(share, r, &c, &dir, New::Link(b"x")).await.unwrap();
    refused(file_ops.put_in_place(share, staged, &c, (r, b"d"), &dir), VfsError::NotEmpty).await;
    assert_eq!(r.lookup(&c, b"d").await.unwrap().0.id(), dir.id());
    assert_eq!(b.names(&dir, 10).await, ["inside"]);
    let (up, _) = dir.lookup(&c, b"..").await.unwrap();
    assert_eq!(up.id(), r.id(), "it is where it was");
    assert_eq!(dir.path().await.unwrap(), b"d");
    // The node cannot be created.
    refused(file_ops.stage(share, r, &c, &file, New::Link(b"")), VfsError::Invalid).await;
    // Another file has the name by now, or the name no longer exists.
    let staged = file_ops.stage(share, r, &c, &file, New::File).await.unwrap();
    r.rename(Acting::caller(&c), b"f", r.as_ref(), b"g", true).await.unwrap();
    refused(file_ops.put_in_place(share, staged, &c, (r, b"f"), &file), VfsError::NotFound).await;
    let other = b.file("f").await;
    let staged = file_ops.stage(share, r, &c, &file, New::File).await.unwrap();
    refused(file_ops.put_in_place(share, staged, &c, (r, b"f"), &file), VfsError::NotFound).await;
    assert_eq!(r.lookup(&c, b"f").await.unwrap().0.id(), other.id());
    assert_eq!(r.lookup(&c, b"g").await.unwrap().0.id(), file.id());
    // The staged node is discarded.
    file_ops.stage(share, r, &c, &file, New::File).await.unwrap().give_up().await;
    assert!(waiting(share).await.is_empty());
    // The caller was dropped before it put the node in place.
    drop(file_ops.stage(share, r, &c, &file, New::File).await.unwrap());
    while !waiting(share).await.is_empty() {
        tokio::task::yield_now().await;
    }
}

/// A caller without permission to remove the name may not give it to another node, and only the superuser may create a device.
pub(crate) async fn replacement_needs_permission(b: Bench) {
    let ns = served(&b);
    let (share, file_ops, c, alice) = (&ns.shares()[0].clone(), ns.by(None), root(), user(1000));
    let dir = b.dir("d").await;
    let own = SetAttr { uid: Some(1000), gid: Some(1000), ..mode(0o640) };
    let file = dir.create(Acting::caller(&c), b"f", CreateHow::Guarded, own).await.unwrap().node;
    let fifo = New::Special(Special::Fifo);
    let staged = file_ops.stage(share, &dir, &alice, &file, fifo).await.unwrap();
    refused(file_ops.put_in_place(share, staged, &alice, (&dir, b"f"), &file), VfsError::Access)
        .await;
    assert_eq!(dir.lookup(&c, b"f").await.unwrap().0.id(), file.id());
    let device = New::Special(Special::Char(1, 3));
    refused(file_ops.stage(share, &dir, &alice, &file, device), VfsError::Perm).await;
    dir.setattr(&c, SetAttr { gid: Some(7), ..mode(0o2777) }, false).await.unwrap();
    let own = SetAttr { gid: Some(7), ..SetAttr::default() };
    file.setattr(&c, own, false).await.unwrap();
    let staged = file_ops.stage(share, &dir, &alice, &file, fifo).await.unwrap();
    file_ops.put_in_place(share, staged, &alice, (&dir, b"f"), &file).await.unwrap();
    let (_, attr) = dir.lookup(&c, b"f").await.unwrap();
    let found = (attr.kind, attr.uid, attr.gid, attr.mode);
    assert_eq!(found, (Kind::Fifo, 1000, 7, 0o640), "as the file was");
    assert!(waiting(share).await.is_empty());
}

pub(crate) async fn start_removes_leftovers(b: Bench) {
    let ns = served(&b);
    let (share, file_ops, c, r) = (&ns.shares()[0].clone(), ns.by(None), root(), &b.root);
    assert_eq!(replace::sweep(share).await, Ok(0));
    let file = b.file("f").await;
    let own = file_ops.stage(share, r, &c, &file, New::File).await.unwrap();
    let hidden = share.backend.hidden(false).await.unwrap().unwrap();
    let (new, _) = hidden.lookup(&c, b"new").await.unwrap();
    let mut left = Vec::new();
    for name in [b"0-0", b"0-1", b"0-2", b"0-3"] {
        left.push(new.mkdir(Acting::caller(&c), name, mode(0o777)).await.unwrap().node);
    }
    left[0].symlink(&c, b"node", b"x", SetAttr::default()).await.unwrap();
    left[1].mkdir(Acting::caller(&c), b"node", mode(0o777)).await.unwrap();
    assert_eq!(replace::sweep(share).await, Ok(4));
    assert_eq!(waiting(share).await.len(), 1, "what this run is about to place stays");
    file_ops.put_in_place(share, own, &c, (r, b"f"), &file).await.unwrap();
    let full = new.mkdir(Acting::caller(&c), b"0-4", mode(0o777)).await.unwrap().node;
    let moved = full.mkdir(Acting::caller(&c), b"node", mode(0o777)).await.unwrap().node;
    moved.create(Acting::caller(&c), b"inside", CreateHow::Guarded, mode(0o600)).await.unwrap();
    assert_eq!(replace::sweep(share).await, Err(VfsError::NotEmpty));
    assert_eq!(b.names(&moved, 10).await, ["inside"], "nobody's file is removed");
    moved.unlink(Acting::caller(&c), b"inside").await.unwrap();
    let full = new.mkdir(Acting::caller(&c), b"0-5", mode(0o777)).await.unwrap().node;
    let data = full
        .create(Acting::caller(&c), b"node", CreateHow::Guarded, mode(0o600))
        .await
        .unwrap()
        .node;
    data.setattr(&c, SetAttr { size: Some(1), ..SetAttr::default() }, false).await.unwrap();
    assert_eq!(replace::sweep(share).await, Ok(1));
    assert_eq!(b.names(&full, 10).await, ["node"], "nor is a file with data");
}

/// A link and a pipe have no contents: a file that is written between the last check and the exchange keeps its name.
pub(crate) async fn file_written_meanwhile_stays(b: Bench) {
    let ns = served(&b);
    let (share, file_ops, c, r) = (&ns.shares()[0].clone(), ns.by(None), root(), &b.root);
    for new in [New::Link(b"x"), New::Special(Special::Fifo)] {
        let file = b.file("f").await;
        let staged = file_ops.stage(share, r, &c, &file, new).await.unwrap();
        b.write(&file, 0, b"late").await;
        let done = file_ops.put_in_place(share, staged, &c, (r, b"f"), &file).await;
        assert_eq!(done, Err(VfsError::NotSupported), "{new:?}");
        let (found, attr) = r.lookup(&c, b"f").await.unwrap();
        assert_eq!((found.id(), attr.size, attr.nlink), (file.id(), 4, 1), "{new:?}");
        assert!(waiting(share).await.is_empty(), "{new:?}");
        r.unlink(Acting::caller(&c), b"f").await.unwrap();
    }
}
