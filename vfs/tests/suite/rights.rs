//! Permission checks. They need a backend that serves callers with their own credentials.

use super::*;

const ANN: u32 = 1001;
const BOB: u32 = 1002;

fn with_groups(uid: u32, groups: &[u32]) -> Cred {
    Cred { uid, gid: uid, groups: groups.into(), token: vfs::Token::NONE }
}

/// Makes the root world-writable.
async fn open_root(b: &Bench) {
    b.root.setattr(&root(), mode(0o777), false).await.unwrap();
}

async fn made_by(b: &Bench, uid: u32, name: &[u8], m: u32) -> NodeRef {
    b.root.create(Acting::caller(&user(uid)), name, CreateHow::Guarded, mode(m)).await.unwrap().node
}

pub(crate) async fn files_belong_to_their_creator(b: Bench) {
    open_root(&b).await;
    let f = made_by(&b, ANN, b"f", 0o640).await;
    let a = f.getattr().await.unwrap();
    assert_eq!((a.uid, a.gid), (ANN, ANN));
    let d = b.root.mkdir(Acting::caller(&user(BOB)), b"d", mode(0o755)).await.unwrap();
    assert_eq!((d.attr.uid, d.attr.gid), (BOB, BOB));
    let s = b.root.symlink(&user(BOB), b"s", b"x", SetAttr::default()).await.unwrap();
    assert_eq!(s.attr.uid, BOB);
    // An owner that an ordinary user sets for a new file is ignored.
    let set = SetAttr { uid: Some(0), gid: Some(0), ..mode(0o600) };
    let n = b.root.create(Acting::caller(&user(ANN)), b"n", CreateHow::Guarded, set).await.unwrap();
    assert_eq!((n.attr.uid, n.attr.gid), (ANN, ANN));
    let n = b.root.create(Acting::caller(&root()), b"r", CreateHow::Guarded, set).await.unwrap();
    assert_eq!((n.attr.uid, n.attr.gid), (0, 0));
    // In a directory with the set-group-id bit, its group decides.
    let set = SetAttr { gid: Some(77), ..mode(0o2777) };
    let d = b.root.mkdir(Acting::caller(&root()), b"g", set).await.unwrap();
    assert_eq!((d.attr.gid, d.attr.mode), (77, 0o2777));
    let n = d
        .node
        .create(Acting::caller(&user(ANN)), b"n", CreateHow::Guarded, mode(0o644))
        .await
        .unwrap();
    assert_eq!(n.attr.gid, 77);
}

/// A repetition opens the file without a check of its bits.
pub(crate) async fn exclusive_create_repeated_only_by_creator(b: Bench) {
    open_root(&b).await;
    let mine = CreateHow::Exclusive(*b"verifier");
    let (ann, bob) = (user(ANN), user(BOB));
    let first = b.root.create(Acting::caller(&ann), b"x", mine, mode(0o600)).await.unwrap();
    refused(b.root.create(Acting::caller(&bob), b"x", mine, mode(0o600)), VfsError::Exists).await;
    let again = b.root.create(Acting::caller(&ann), b"x", mine, mode(0o600)).await.unwrap();
    assert_eq!((again.created, again.node.id()), (true, first.node.id()));
}

pub(crate) async fn data_needs_permission(b: Bench) {
    open_root(&b).await;
    let f = made_by(&b, ANN, b"f", 0o640).await;
    let (ann, bob, carl) = (user(ANN), user(BOB), with_groups(1003, &[5, ANN]));
    let data = || vec![Buf::from(b"data".to_vec())];
    f.write(WriteBy::Caller(&ann), 0, data(), Stable::Unstable).await.unwrap();
    refused(f.write(WriteBy::Caller(&bob), 0, data(), Stable::Unstable), VfsError::Access).await;
    refused(f.read(Some(&bob), 0, 10, &b.into), VfsError::Access).await;
    assert_eq!(f.read(Some(&carl), 0, 10, &b.into).await.unwrap().len(), 4);
    refused(f.write(WriteBy::Caller(&carl), 0, data(), Stable::Unstable), VfsError::Access).await;
    refused(f.open(&bob, true, false), VfsError::Access).await;
    refused(f.open(&carl, true, true), VfsError::Access).await;
    f.open(&carl, true, false).await.unwrap();
    // The owner keeps access to data over NFS after removing the mode bits, but cannot open the file again.
    f.setattr(&ann, mode(0), false).await.unwrap();
    f.write(WriteBy::Caller(&ann), 0, data(), Stable::Unstable).await.unwrap();
    assert!(f.read(Some(&ann), 0, 10, &b.into).await.is_ok());
    refused(f.open(&ann, true, false), VfsError::Access).await;
    refused(f.read(Some(&carl), 0, 10, &b.into), VfsError::Access).await;
    // The superuser always has access; an open that was checked needs no caller.
    assert!(f.read(Some(&root()), 0, 10, &b.into).await.is_ok());
    assert!(f.read(None, 0, 10, &b.into).await.is_ok());
    // A file that may be executed may be read, because a client executes it by reading.
    f.setattr(&ann, mode(0o711), false).await.unwrap();
    assert!(f.read(Some(&bob), 0, 10, &b.into).await.is_ok());
    f.open(&bob, true, false).await.unwrap();
    // A change of the size counts as a change of data.
    let cut = SetAttr { size: Some(0), ..SetAttr::default() };
    refused(f.setattr(&bob, cut, false), VfsError::Access).await;
    f.setattr(&bob, cut, true).await.unwrap();
}

pub(crate) async fn names_need_permission(b: Bench) {
    open_root(&b).await;
    let (ann, bob) = (user(ANN), user(BOB));
    let d = b.root.mkdir(Acting::caller(&ann), b"d", mode(0o755)).await.unwrap().node;
    d.create(Acting::caller(&ann), b"f", CreateHow::Guarded, mode(0o644)).await.unwrap();
    let set = mode(0o644);
    refused(d.create(Acting::caller(&bob), b"g", CreateHow::Guarded, set), VfsError::Access).await;
    refused(d.mkdir(Acting::caller(&bob), b"g", set), VfsError::Access).await;
    refused(d.symlink(&bob, b"g", b"x", set), VfsError::Access).await;
    refused(d.mknod(&bob, b"g", Special::Fifo, set), VfsError::Access).await;
    refused(d.unlink(Acting::caller(&bob), b"f"), VfsError::Access).await;
    refused(d.rename(Acting::caller(&bob), b"f", d.as_ref(), b"g", true), VfsError::Access).await;
    // Only the superuser creates devices.
    refused(d.mknod(&ann, b"n", Special::Char(1, 3), set), VfsError::Perm).await;
    d.lookup(&bob, b"f").await.unwrap();
    d.readdir(&bob, 0, 10).await.unwrap();
    d.setattr(&ann, mode(0o711), false).await.unwrap();
    d.lookup(&bob, b"f").await.unwrap();
    refused(d.readdir(&bob, 0, 10), VfsError::Access).await;
    d.setattr(&ann, mode(0o700), false).await.unwrap();
    refused(d.lookup(&bob, b"f"), VfsError::Access).await;
    refused(d.lookup(&bob, b"none"), VfsError::Access).await;
    // Sticky: only the owner removes.
    let t = b.root.mkdir(Acting::caller(&root()), b"t", mode(0o1777)).await.unwrap().node;
    t.create(Acting::caller(&ann), b"f", CreateHow::Guarded, set).await.unwrap();
    refused(t.unlink(Acting::caller(&bob), b"f"), VfsError::Perm).await;
    refused(t.rename(Acting::caller(&bob), b"f", t.as_ref(), b"g", true), VfsError::Perm).await;
    t.create(Acting::caller(&bob), b"b", CreateHow::Guarded, set).await.unwrap();
    refused(t.rename(Acting::caller(&bob), b"b", t.as_ref(), b"f", true), VfsError::Perm).await;
    t.unlink(Acting::caller(&ann), b"f").await.unwrap();
}

pub(crate) async fn attributes_need_ownership(b: Bench) {
    open_root(&b).await;
    let (ann, bob) = (user(ANN), user(BOB));
    let f = made_by(&b, ANN, b"f", 0o666).await;
    refused(f.setattr(&bob, mode(0o777), false), VfsError::Perm).await;
    let own = |uid, gid| SetAttr { uid, gid, ..SetAttr::default() };
    refused(f.setattr(&ann, own(Some(BOB), None), false), VfsError::Perm).await;
    refused(f.setattr(&ann, own(None, Some(5)), false), VfsError::Perm).await;
    refused(f.setattr(&bob, own(Some(BOB), None), false), VfsError::Perm).await;
    // The owner may give it to a group that he is in.
    let (_, a) = f.setattr(&with_groups(ANN, &[5]), own(None, Some(5)), false).await.unwrap();
    assert_eq!(a.gid, 5);
    let (_, a) = f.setattr(&root(), own(Some(BOB), Some(BOB)), false).await.unwrap();
    assert_eq!((a.uid, a.gid), (BOB, BOB));
    // Times: a caller with write access sets them to now, only the owner to other values.
    let now =
        SetAttr { mtime: Some(SetTime::Now), atime: Some(SetTime::Now), ..SetAttr::default() };
    f.setattr(&ann, now, false).await.unwrap();
    b.write(&f, 0, b"data").await;
    let one = |size| SetAttr { mtime: Some(SetTime::Now), size, ..SetAttr::default() };
    f.setattr(&ann, SetAttr { mtime: None, ..now }, false).await.unwrap();
    let (before, after) = f.setattr(&ann, one(Some(3)), false).await.unwrap();
    assert_eq!((before.size, after.size), (4, 3));
    let then = SetTime::At(Time { sec: 1, nsec: 0 });
    let old = SetAttr { mtime: Some(then), atime: Some(then), ..SetAttr::default() };
    refused(f.setattr(&ann, old, false), VfsError::Perm).await;
    refused(f.setattr(&ann, SetAttr { size: Some(0), ..old }, false), VfsError::Perm).await;
    assert_eq!(f.getattr().await.unwrap().size, 3, "refused as a whole");
    f.setattr(&bob, mode(0o600), false).await.unwrap();
    refused(f.setattr(&ann, one(None), false), VfsError::Access).await;
    refused(f.setattr(&ann, now, false), VfsError::Access).await;
    f.setattr(&bob, old, false).await.unwrap();
}

pub(crate) async fn set_id_bits_cleared_by_other_writers(b: Bench) {
    open_root(&b).await;
    let ann = user(ANN);
    let f = made_by(&b, ANN, b"f", 0o6777).await;
    let source = b.file("source").await;
    b.write(&source, 0, &pattern(5, 8192)).await;
    let (_, a) = f.setattr(&ann, mode(0o6777), false).await.unwrap();
    assert_eq!(a.mode, 0o6777);
    let data = || vec![Buf::from(b"x".to_vec())];
    let w = f.write(WriteBy::Caller(&user(BOB)), 0, data(), Stable::Unstable).await.unwrap();
    assert_eq!(w.after.mode, 0o777);
    f.setattr(&ann, mode(0o4777), false).await.unwrap();
    let w = f.write(WriteBy::Caller(&root()), 0, data(), Stable::Unstable).await.unwrap();
    assert_eq!(w.after.mode, 0o4777);
    // It makes no difference whether the caller was checked now or at an open. An unknown caller counts as an ordinary user.
    let (su, bob) = (root(), user(BOB));
    for (opener, kept) in [(Some(&su), 0o6777), (Some(&bob), 0o777), (None, 0o777)] {
        f.setattr(&su, mode(0o6777), false).await.unwrap();
        let w = f.write(WriteBy::Open(opener), 0, data(), Stable::Unstable).await.unwrap();
        assert_eq!(w.after.mode, kept, "{opener:?}");
        f.setattr(&su, mode(0o6777), false).await.unwrap();
        let a = f.append(opener, AppendAt::End, data(), Stable::Unstable).await.unwrap();
        assert_eq!(a.written.after.mode, kept, "{opener:?}");
    }
    for (opener, kept) in [(Some(&su), 0o6777), (Some(&bob), 0o777), (None, 0o777)] {
        for way in ["reserved", "hole", "copied", "cloned"] {
            f.setattr(&su, mode(0o6777), false).await.unwrap();
            let done = match way {
                "reserved" => f.allocate(opener, 0, 4096).await,
                "hole" => f.deallocate(opener, 0, 4096).await,
                "copied" => f.copy_range(opener, source.as_ref(), 0, 0, 0).await.map(drop),
                _ => f.clone_range(opener, source.as_ref(), 0, 0, 0).await,
            };
            match done {
                // Some volumes lack some of these operations.
                Err(VfsError::NotSupported) => {}
                done => {
                    done.unwrap();
                    let is = f.getattr().await.unwrap().mode;
                    assert_eq!(is, kept, "{way} by {opener:?}");
                }
            }
        }
    }
    f.setattr(&ann, mode(0o4777), false).await.unwrap();
    let cut = SetAttr { size: Some(0), ..SetAttr::default() };
    let (_, a) = f.setattr(&user(BOB), cut, false).await.unwrap();
    assert_eq!(a.mode, 0o777);
    f.setattr(&ann, mode(0o4777), false).await.unwrap();
    let own = SetAttr { gid: Some(ANN), ..SetAttr::default() };
    let (_, a) = f.setattr(&ann, own, false).await.unwrap();
    assert_eq!(a.mode, 0o777);
    // A mode that is set together with an owner wins.
    let both = SetAttr { uid: Some(BOB), ..mode(0o4755) };
    let (_, a) = f.setattr(&root(), both, false).await.unwrap();
    assert_eq!((a.uid, a.mode), (BOB, 0o4755));
}

/// If the name exists no node is created, so no right to add names is needed (open(2), mkdir(2)).
pub(crate) async fn existing_name_needs_no_add_right(b: Bench) {
    let d = b.dir("d").await;
    d.setattr(&root(), mode(0o755), false).await.unwrap();
    let (root, ann) = (root(), user(ANN));
    let make = |cred, name, how| d.create(Acting::caller(cred), name, how, mode(0o644));
    let f = make(&root, b"f", CreateHow::Guarded).await.unwrap().node;
    refused(make(&ann, b"f", CreateHow::Guarded), VfsError::Exists).await;
    let found = make(&ann, b"f", CreateHow::Unchecked).await.unwrap();
    assert_eq!((found.created, found.node.id()), (false, f.id()));
    refused(d.mkdir(Acting::caller(&ann), b"f", mode(0o755)), VfsError::Exists).await;
    refused(make(&ann, b"new", CreateHow::Unchecked), VfsError::Access).await;
    // A caller without search permission does not learn which names exist.
    d.setattr(&root, mode(0o744), false).await.unwrap();
    refused(make(&ann, b"f", CreateHow::Guarded), VfsError::Access).await;
}

pub(crate) async fn access_predicts_operations(b: Bench) {
    open_root(&b).await;
    let all = Access(0x1ff);
    let f = made_by(&b, ANN, b"f", 0o754).await;
    let bits = |c: Cred| {
        let f = f.clone();
        async move { f.access(&c, all, &f.getattr().await.unwrap()).await.unwrap().0 }
    };
    let read = Access::READ | Access::XATTR_READ | Access::XATTR_LIST;
    let write = Access::MODIFY | Access::EXTEND | Access::XATTR_WRITE;
    assert_eq!(bits(user(ANN)).await, read | write | Access::EXECUTE);
    assert_eq!(bits(with_groups(7, &[ANN])).await, read | Access::EXECUTE);
    assert_eq!(bits(user(BOB)).await, read);
    assert_eq!(bits(root()).await, read | write | Access::EXECUTE);
    f.setattr(&user(ANN), mode(0o600), false).await.unwrap();
    assert_eq!(bits(root()).await, read | write);
    assert_eq!(bits(user(BOB)).await, 0);
    let one =
        f.access(&user(ANN), Access(Access::READ), &f.getattr().await.unwrap()).await.unwrap();
    assert_eq!(one.0, Access::READ);
    let d = b.root.mkdir(Acting::caller(&user(ANN)), b"d", mode(0o751)).await.unwrap().node;
    let dir = read | write | Access::LOOKUP | Access::DELETE;
    assert_eq!(d.access(&user(ANN), all, &d.getattr().await.unwrap()).await.unwrap().0, dir);
    assert_eq!(
        d.access(&user(BOB), all, &d.getattr().await.unwrap()).await.unwrap().0,
        Access::LOOKUP
    );
    let group = with_groups(7, &[ANN]);
    assert_eq!(
        d.access(&group, all, &d.getattr().await.unwrap()).await.unwrap().0,
        read | Access::LOOKUP
    );
}

pub(crate) async fn extended_attributes_need_permission(b: Bench) {
    if !b.backend.capabilities().xattr {
        println!("skipped: this volume has no extended attributes");
        return;
    }
    open_root(&b).await;
    let (ann, bob) = (user(ANN), user(BOB));
    let f = made_by(&b, ANN, b"f", 0o644).await;
    f.xattr_set(&ann, b"a", b"1", XattrHow::Either).await.unwrap();
    f.xattr_get(&bob, b"a").await.unwrap();
    refused(f.xattr_set(&bob, b"a", b"2", XattrHow::Either), VfsError::Access).await;
    refused(f.xattr_remove(&bob, b"a"), VfsError::Access).await;
    f.setattr(&ann, mode(0o600), false).await.unwrap();
    refused(f.xattr_get(&bob, b"a"), VfsError::Access).await;
    refused(f.xattr_list(&bob), VfsError::Access).await;
}

/// The set-group-id bit of a new folder must not add other bits: neither those that a default list excludes nor those that its
/// creator has no right to.
pub(crate) async fn new_set_group_id_folder_gets_no_bits(b: Bench) {
    use vfs::acl::posix::{Change, Posix, tag};
    let alice = user(ANN);
    let d = b.dir("d").await;
    d.setattr(&root(), mode(0o777), false).await.unwrap();
    let bits = [(tag::USER_OBJ, 7), (tag::GROUP_OBJ, 7), (tag::MASK, 5), (tag::OTHER, 0)];
    let default = Posix::new(bits.map(|(tag, bits)| (tag, bits, u32::MAX)));
    match d.posix_set(&Change { access: None, default: Some(default) }).await {
        Ok(_) => {
            let made = d.mkdir(Acting::caller(&alice), b"kept-out", mode(0o2775)).await.unwrap();
            assert_eq!(made.attr.mode, 0o2750, "{:o}", made.attr.mode);
        }
        // A volume in memory has no such list.
        Err(e) => assert_eq!(e, VfsError::NotSupported),
    }

    // With a group that the caller is not in: the new folder gets both from its parent.
    let e = b.dir("e").await;
    let team = SetAttr { mode: Some(0o2777), gid: Some(7000), ..SetAttr::default() };
    e.setattr(&root(), team, false).await.unwrap();
    let made = e.mkdir(Acting::caller(&alice), b"team", mode(0o2770)).await.unwrap();
    assert_eq!((made.attr.mode, made.attr.gid), (0o2770, 7000), "{:o}", made.attr.mode);
    let made = b.dir("own").await.mkdir(Acting::caller(&root()), b"x", mode(0o6711)).await.unwrap();
    assert_eq!(made.attr.mode, 0o6711);
}

/// Same rule as Linux (`mode_strip_sgid`), also if a list lets the caller create files.
pub(crate) async fn new_file_drops_foreign_set_group_id(b: Bench) {
    use vfs::acl::{Ace, Acl, Owner, Who, mask};
    let (ann, member) = (user(ANN), with_groups(BOB, &[7000]));
    for (name, listed) in [("by-mode", false), ("by-list", true)] {
        let d = b.dir(name).await;
        let team = SetAttr { mode: Some(0o2777), gid: Some(7000), ..SetAttr::default() };
        d.setattr(&root(), team, false).await.unwrap();
        if listed {
            let makes = mask::WRITE_DATA | mask::APPEND_DATA | mask::EXECUTE;
            let acl = Acl::new(vec![Ace::allow(Who::Everyone, makes, 0)]);
            let attr = d.getattr().await.unwrap();
            d.acl_set(&acl, acl.mode(Owner::of(&attr))).await.unwrap();
        }
        for (who, kept) in [(&ann, 0o755), (&member, 0o2755)] {
            let name = |kind: &str| format!("{kind}{}", who.uid);
            let file = d
                .create(Acting::caller(who), name("f").as_bytes(), CreateHow::Guarded, mode(0o2755))
                .await;
            let pipe = d.mknod(who, name("p").as_bytes(), Special::Fifo, mode(0o2755)).await;
            for made in [file.unwrap(), pipe.unwrap()] {
                assert_eq!((made.attr.uid, made.attr.gid), (who.uid, 7000), "{listed}");
                assert_eq!(made.attr.mode, kept, "{listed} {}: {:o}", who.uid, made.attr.mode);
            }
        }
    }
}
