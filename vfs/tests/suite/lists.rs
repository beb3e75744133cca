//! Access control lists: a backend checks every caller by the list stored with a file.

use std::sync::atomic::{AtomicU32, Ordering};

use vfs::acl::posix::{self, Posix};
use vfs::acl::{Ace, Acl, Owner, Who, flag, mask};
use vfs::authority::{Acting, Grant};
use vfs::namespace::{GiveList, ListOfNew, Namespace, Share};

use super::streams::{plain, served};
use super::*;

const ANN: u32 = 1001;
const BOB: u32 = 1002;
const CARL: u32 = 1003;

/// Sets a list on a node, with the equivalent mode bits.
async fn give(node: &NodeRef, entries: Vec<Ace>) {
    let acl = Acl::new(entries);
    let attr = node.getattr().await.unwrap();
    node.acl_set(&acl, acl.mode(Owner::of(&attr))).await.unwrap();
}

fn allow(uid: u32, mask: u32) -> Ace {
    Ace::allow(Who::User(uid), mask, 0)
}

async fn kept(node: &NodeRef) -> Option<Acl> {
    let attr = node.getattr().await.unwrap();
    node.acl(&attr).await.unwrap().map(|acl| Acl::clone(&acl))
}

async fn owned(b: &Bench, name: &[u8], m: u32) -> NodeRef {
    let set = SetAttr { uid: Some(ANN), gid: Some(ANN), ..mode(m) };
    b.root.create(Acting::caller(&root()), name, CreateHow::Guarded, set).await.unwrap().node
}

async fn folder(b: &Bench, name: &[u8], entries: Vec<Ace>) -> NodeRef {
    let set = SetAttr { uid: Some(ANN), gid: Some(ANN), ..mode(0o700) };
    let dir = b.root.mkdir(Acting::caller(&root()), name, set).await.unwrap().node;
    give(&dir, entries).await;
    dir
}

pub(crate) async fn list_decides_about_data(b: Bench) {
    let f = owned(&b, b"f", 0o644).await;
    assert_eq!(kept(&f).await, None);
    let shown = f.acl_shown(&f.getattr().await.unwrap()).await.unwrap();
    assert_eq!(*shown, Acl::of_mode(0o644, false), "what mode bits say");
    let rw = mask::READ_DATA | mask::WRITE_DATA | mask::APPEND_DATA;
    give(&f, vec![Ace::deny(Who::User(CARL), rw, 0), allow(BOB, rw)]).await;
    assert_eq!(f.getattr().await.unwrap().mode, 0);
    let (bob, carl) = (user(BOB), user(CARL));
    let data = || vec![Buf::from(b"data".to_vec())];
    f.write(WriteBy::Caller(&bob), 0, data(), Stable::Unstable).await.unwrap();
    assert_eq!(f.read(Some(&bob), 0, 10, &b.into).await.unwrap().len(), 4);
    f.open(&bob, true, true).await.unwrap();
    refused(f.open(&carl, true, false), VfsError::Access).await;
    refused(f.read(Some(&carl), 0, 10, &b.into), VfsError::Access).await;
    refused(f.open(&user(ANN), true, false), VfsError::Access).await;
    assert!(f.open(&root(), true, true).await.is_ok());
    let all = Access(0x1ff);
    let may = f.access(&bob, all, &f.getattr().await.unwrap()).await.unwrap().0;
    assert_eq!(may, Access::READ | Access::MODIFY | Access::EXTEND);
    assert_eq!(f.access(&carl, all, &f.getattr().await.unwrap()).await.unwrap().0, 0);
    // In a list of Windows each right is separate.
    refused(f.xattr_get(&bob, b"x"), VfsError::Access).await;
    refused(f.xattr_get(&carl, b"x"), VfsError::Access).await;
    // Mode bits that grant more do not override the list.
    give(&f, vec![Ace::deny(Who::User(CARL), rw, 0), Ace::allow(Who::Everyone, rw, 0)]).await;
    assert_eq!(f.getattr().await.unwrap().mode, 0o666);
    refused(f.open(&carl, true, false), VfsError::Access).await;
}

/// Permission to date a file is the same as permission to set a time in the past: write access is not enough.
pub(crate) async fn owner_or_list_permits_dating(b: Bench) {
    let f = owned(&b, b"f", 0o666).await;
    let may = async |uid| {
        let attr = f.getattr().await.unwrap();
        let may = f.may_date(&user(uid), &attr).await.unwrap();
        let set =
            SetAttr { mtime: Some(SetTime::At(Time { sec: 7, nsec: 0 })), ..SetAttr::default() };
        assert_eq!(f.setattr(&user(uid), set, true).await.is_ok(), may, "{uid}");
        may
    };
    assert_eq!([may(0).await, may(ANN).await, may(BOB).await], [true, true, false]);
    let lets = vec![allow(BOB, mask::WRITE_ATTRIBUTES), allow(CARL, mask::WRITE_DATA)];
    give(&f, lets).await;
    assert_eq!([may(0).await, may(ANN).await], [true; 2]);
    assert_eq!([may(BOB).await, may(CARL).await], [true, false]);
}

pub(crate) async fn changed_mode_applies_to_kept_list(b: Bench) {
    let f = owned(&b, b"f", 0o644).await;
    let entries = vec![
        allow(BOB, mask::READ_DATA | mask::READ_CONTROL),
        Ace::allow(Who::Owner, mask::FILE_ALL, 0),
        Ace::allow(Who::Group, mask::READ_DATA, 0),
    ];
    give(&f, entries.clone()).await;
    assert_eq!(f.getattr().await.unwrap().mode, 0o740);
    let bob = user(BOB);
    f.open(&bob, true, false).await.unwrap();
    f.setattr(&user(ANN), mode(0o700), false).await.unwrap();
    refused(f.open(&bob, true, false), VfsError::Access).await;
    let now = kept(&f).await.unwrap();
    assert!(now.entries().contains(&allow(BOB, mask::READ_CONTROL)));
    refused(f.setattr(&bob, mode(0o777), false), VfsError::Perm).await;
    f.setattr(&user(ANN), mode(0o740), false).await.unwrap();
    assert_eq!(kept(&f).await.unwrap().entries(), entries);
    f.open(&bob, true, false).await.unwrap();
}

/// A list of Windows keeps the right to run a file when a mode has no execute bits, but loses the right to search a folder. In a
/// list of NFS form the execute bits count for files as well.
pub(crate) async fn changed_mode_decides_folder_search(b: Bench) {
    let read = mask::READ_DATA | mask::WRITE_DATA | mask::APPEND_DATA;
    let entries =
        vec![allow(BOB, mask::READ_DATA | mask::EXECUTE), Ace::allow(Who::Owner, read, 0)];
    let d = folder(&b, b"d", entries.clone()).await;
    let f = owned(&b, b"f", 0o600).await;
    give(&f, entries).await;
    let runs = async |node: &NodeRef, right| {
        let attr = node.getattr().await.unwrap();
        node.access(&user(BOB), Access(right), &attr).await.unwrap() == Access(right)
    };
    assert!(runs(&f, Access::EXECUTE).await && runs(&d, Access::LOOKUP).await);
    let w = owned(&b, b"w", 0o600).await;
    give(&w, vec![allow(BOB, mask::READ_DATA | mask::EXECUTE), allow(ANN, read)]).await;
    for node in [&f, &d, &w] {
        node.setattr(&user(ANN), mode(0o640), false).await.unwrap();
    }
    assert!(runs(&w, Access::EXECUTE).await, "no bit to run it was changed");
    assert!(!runs(&f, Access::EXECUTE).await && runs(&f, Access::READ).await);
    assert!(!runs(&d, Access::LOOKUP).await);
    assert!(runs(&d, Access::READ).await);
}

pub(crate) async fn list_decides_about_attributes(b: Bench) {
    let f = owned(&b, b"f", 0o644).await;
    let (ann, bob, carl) = (user(ANN), user(BOB), user(CARL));
    give(
        &f,
        vec![allow(BOB, mask::WRITE_DAC | mask::WRITE_ATTRIBUTES), allow(CARL, mask::WRITE_OWNER)],
    )
    .await;
    let at = SetAttr { mtime: Some(SetTime::At(Time { sec: 5, nsec: 0 })), ..SetAttr::default() };
    f.setattr(&bob, at, false).await.unwrap();
    f.setattr(&ann, at, false).await.unwrap();
    refused(f.setattr(&carl, at, false), VfsError::Perm).await;
    // Only the owner may set set-id bits.
    let (_, attr) = f.setattr(&bob, mode(0o4600), false).await.unwrap();
    assert_eq!(attr.mode, 0o600);
    let own = |uid| SetAttr { uid: Some(uid), ..SetAttr::default() };
    refused(f.setattr(&bob, own(BOB), false), VfsError::Perm).await;
    refused(f.setattr(&carl, own(BOB), false), VfsError::Perm).await;
    f.setattr(&carl, own(CARL), false).await.unwrap();
    assert_eq!(f.getattr().await.unwrap().uid, CARL);
}

pub(crate) async fn list_decides_about_names(b: Bench) {
    let (bob, carl) = (user(BOB), user(CARL));
    let make = |dir: &NodeRef, cred: Cred, name: &'static [u8]| {
        let dir = dir.clone();
        async move { dir.create(Acting::caller(&cred), name, CreateHow::Guarded, mode(0o640)).await }
    };
    let add = mask::WRITE_DATA | mask::EXECUTE;
    let d =
        folder(&b, b"d", vec![allow(BOB, add), allow(CARL, mask::DELETE_CHILD | mask::EXECUTE)])
            .await;
    let made = make(&d, bob.clone(), b"f").await.unwrap();
    assert_eq!((made.attr.uid, made.attr.gid, made.attr.mode), (BOB, BOB, 0o640));
    d.lookup(&bob, b"f").await.unwrap();
    refused(d.lookup(&user(ANN), b"f"), VfsError::Access).await;
    refused(d.readdir(&bob, 0, 9), VfsError::Access).await;
    refused(d.mkdir(Acting::caller(&bob), b"s", mode(0o755)), VfsError::Access).await;
    refused(d.unlink(Acting::caller(&bob), b"f"), VfsError::Access).await;
    refused(make(&d, carl.clone(), b"g"), VfsError::Access).await;
    refused(make(&d, carl.clone(), b"f"), VfsError::Exists).await;
    // A caller without search permission does not learn which names exist.
    refused(make(&d, user(ANN), b"f"), VfsError::Access).await;
    refused(make(&d, bob.clone(), b"f"), VfsError::Exists).await;
    d.unlink(Acting::caller(&carl), b"f").await.unwrap();
    // A caller with permission to delete a file may delete it in any folder.
    let f = make(&d, bob.clone(), b"f").await.unwrap().node;
    give(&f, vec![allow(BOB, mask::DELETE)]).await;
    d.unlink(Acting::caller(&bob), b"f").await.unwrap();
    let plain = b.dir("plain").await;
    let set = SetAttr { uid: Some(ANN), ..mode(0o600) };
    let f =
        plain.create(Acting::caller(&root()), b"f", CreateHow::Guarded, set).await.unwrap().node;
    refused(plain.unlink(Acting::caller(&bob), b"f"), VfsError::Access).await;
    give(&f, vec![allow(BOB, mask::FILE_ALL & !mask::DELETE)]).await;
    refused(plain.unlink(Acting::caller(&bob), b"f"), VfsError::Access).await;
    give(&f, vec![allow(BOB, mask::DELETE)]).await;
    // To find it there the caller needs search permission on the folder.
    plain.setattr(&root(), mode(0o744), false).await.unwrap();
    refused(plain.unlink(Acting::caller(&bob), b"f"), VfsError::Access).await;
    plain.setattr(&root(), mode(0o755), false).await.unwrap();
    plain.unlink(Acting::caller(&bob), b"f").await.unwrap();
}

pub(crate) async fn list_decides_about_renames(b: Bench) {
    let bob = user(BOB);
    let from = folder(&b, b"from", vec![allow(BOB, mask::DELETE_CHILD | mask::EXECUTE)]).await;
    let to = folder(&b, b"to", vec![allow(BOB, mask::WRITE_DATA | mask::EXECUTE)]).await;
    let make = |dir: &NodeRef, name: &'static [u8]| {
        let dir = dir.clone();
        async move {
            dir.create(Acting::caller(&root()), name, CreateHow::Guarded, mode(0o600))
                .await
                .unwrap()
        }
    };
    make(&from, b"f").await;
    refused(to.rename(Acting::caller(&bob), b"g", from.as_ref(), b"g", true), VfsError::NotFound)
        .await;
    from.rename(Acting::caller(&bob), b"f", to.as_ref(), b"f", true).await.unwrap();
    refused(to.rename(Acting::caller(&bob), b"f", from.as_ref(), b"f", true), VfsError::Access)
        .await;
    make(&from, b"f").await;
    // A replaced file counts as removed.
    refused(from.rename(Acting::caller(&bob), b"f", to.as_ref(), b"f", true), VfsError::Access)
        .await;
    from.rename(Acting::caller(&bob), b"f", to.as_ref(), b"g", true).await.unwrap();
    let d = from.mkdir(Acting::caller(&root()), b"s", mode(0o777)).await.unwrap();
    assert_eq!(d.attr.kind, Kind::Dir);
    refused(from.rename(Acting::caller(&bob), b"s", to.as_ref(), b"s", true), VfsError::Access)
        .await;
}

/// No rights in a folder's list permit creating a device: that needs the superuser.
pub(crate) async fn no_list_permits_devices(b: Bench) {
    let add = mask::WRITE_DATA | mask::EXECUTE;
    let d = folder(&b, b"d", vec![allow(BOB, add)]).await;
    let bob = user(BOB);
    for what in [Special::Char(1, 3), Special::Block(7, 0)] {
        refused(d.mknod(&bob, b"n", what, mode(0o600)), VfsError::Perm).await;
        refused(d.mknod(&user(CARL), b"n", what, mode(0o600)), VfsError::Access).await;
    }
    refused(d.lookup(&root(), b"n"), VfsError::NotFound).await;
    let fifo = d.mknod(&bob, b"p", Special::Fifo, mode(0o640)).await.unwrap();
    assert_eq!((fifo.attr.kind, fifo.attr.uid, fifo.attr.mode), (Kind::Fifo, BOB, 0o640));
    let link = d.symlink(&bob, b"s", b"x", SetAttr::default()).await.unwrap();
    assert_eq!((link.attr.uid, link.attr.gid), (BOB, BOB));
}

/// A sticky folder stays sticky with a list: another user's file cannot be removed, unless the file's own list permits it.
pub(crate) async fn list_keeps_folder_sticky(b: Bench) {
    let all = mask::FILE_ALL & !mask::WRITE_DAC & !mask::WRITE_OWNER;
    let d = folder(&b, b"d", vec![allow(BOB, all), allow(CARL, all)]).await;
    d.setattr(&user(ANN), mode(0o1777), false).await.unwrap();
    assert!(kept(&d).await.is_some());
    let (bob, carl) = (user(BOB), user(CARL));
    let make = |name: &'static [u8], cred: Cred| {
        let d = d.clone();
        async move {
            d.create(Acting::caller(&cred), name, CreateHow::Guarded, mode(0o666))
                .await
                .unwrap()
                .node
        }
    };
    let f = make(b"carls", carl.clone()).await;
    make(b"bobs", bob.clone()).await;
    let sub = d.mkdir(Acting::caller(&carl), b"sub", mode(0o777)).await.unwrap();
    assert_eq!(sub.attr.uid, CARL);
    refused(d.unlink(Acting::caller(&bob), b"carls"), VfsError::Perm).await;
    refused(d.rmdir(Acting::caller(&bob), b"sub"), VfsError::Perm).await;
    refused(d.rename(Acting::caller(&bob), b"carls", d.as_ref(), b"x", true), VfsError::Perm).await;
    refused(d.rename(Acting::caller(&bob), b"bobs", d.as_ref(), b"carls", true), VfsError::Perm)
        .await;
    d.unlink(Acting::caller(&bob), b"bobs").await.unwrap();
    give(&f, vec![allow(BOB, mask::DELETE)]).await;
    d.rename(Acting::caller(&bob), b"carls", d.as_ref(), b"x", true).await.unwrap();
    d.unlink(Acting::caller(&bob), b"x").await.unwrap();
    make(b"more", carl.clone()).await;
    d.unlink(Acting::caller(&user(ANN)), b"more").await.unwrap();
    // Every user may move its own file, also onto another file that it owns; the owner of the folder and the superuser may move any
    // file.
    for name in [b"one", b"two"] {
        make(name, carl.clone()).await;
    }
    d.rename(Acting::caller(&carl), b"one", d.as_ref(), b"two", true).await.unwrap();
    for (who, from, to) in [(user(ANN), b"two", b"3rd"), (root(), b"3rd", b"4th")] {
        refused(d.rename(Acting::caller(&bob), from, d.as_ref(), to, true), VfsError::Perm).await;
        d.rename(Acting::caller(&who), from, d.as_ref(), to, true).await.unwrap();
    }
    d.setattr(&user(ANN), mode(0o777), false).await.unwrap();
    d.rename(Acting::caller(&bob), b"4th", d.as_ref(), b"5th", true).await.unwrap();
}

/// A right granted by a folder's list stays valid for the call that was decided about, and permits no other call.
pub(crate) async fn granted_right_is_enough(b: Bench) {
    let d = folder(&b, b"d", vec![allow(BOB, mask::FILE_ALL)]).await;
    for name in [b"f", b"g"] {
        d.create(Acting::caller(&root()), name, CreateHow::Guarded, mode(0o600)).await.unwrap();
    }
    let bob = user(BOB);
    let grant = Grant::decide(&d, &d.getattr().await.unwrap(), &bob).await.unwrap().unwrap();
    give(&d, vec![allow(CARL, mask::READ_DATA)]).await;
    let remove = |name: &'static [u8], right: u32| {
        let by = Acting::with(&bob, [None, None, grant.power(right), None]);
        d.remove(by, name, false)
    };
    refused(d.unlink(Acting::caller(&bob), b"f"), VfsError::Access).await;
    refused(remove(b"f", mask::WRITE_DATA | mask::EXECUTE), VfsError::Access).await;
    remove(b"f", mask::DELETE_CHILD).await.unwrap();
    refused(d.unlink(Acting::caller(&bob), b"g"), VfsError::Access).await;
}

/// The rights that a folder's list grants a caller do not apply in other folders.
pub(crate) async fn list_applies_only_to_its_folder(b: Bench) {
    let bob = user(BOB);
    let mine = folder(&b, b"mine", vec![allow(BOB, mask::FILE_ALL)]).await;
    let set = SetAttr { uid: Some(CARL), gid: Some(CARL), ..mode(0o755) };
    let other = b.root.mkdir(Acting::caller(&root()), b"other", set).await.unwrap().node;
    let theirs = SetAttr { uid: Some(CARL), gid: Some(CARL), ..mode(0o600) };
    other.create(Acting::caller(&root()), b"f", CreateHow::Guarded, theirs).await.unwrap();
    mine.create(Acting::caller(&bob), b"g", CreateHow::Guarded, mode(0o600)).await.unwrap();
    refused(mine.rename(Acting::caller(&bob), b"g", other.as_ref(), b"f", true), VfsError::Access)
        .await;
    refused(mine.rename(Acting::caller(&bob), b"g", other.as_ref(), b"h", true), VfsError::Access)
        .await;
    refused(other.rename(Acting::caller(&bob), b"f", mine.as_ref(), b"f", true), VfsError::Access)
        .await;
    let (g, _) = mine.lookup(&bob, b"g").await.unwrap();
    refused(g.link(Acting::caller(&bob), other.as_ref(), b"h"), VfsError::Access).await;
}

/// A node whose creation fails later is removed if its name still belongs to it, for every creator and whatever the folder's list
/// contains.
pub(crate) async fn failed_create_removes_only_own_file(b: Bench) {
    let namespace = served(&b);
    let (share, file_ops) = (namespace.shares()[0].clone(), namespace.by(None));
    let add = mask::WRITE_DATA | mask::EXECUTE;
    let d = folder(&b, b"d", vec![allow(BOB, add)]).await;
    let bob = user(BOB);
    let made = d.create(Acting::caller(&bob), b"f", CreateHow::Guarded, mode(0o600)).await.unwrap();
    d.rename(Acting::caller(&root()), b"f", d.as_ref(), b"g", true).await.unwrap();
    let other = d
        .create(Acting::caller(&root()), b"f", CreateHow::Guarded, mode(0o600))
        .await
        .unwrap()
        .node;
    file_ops.unmake(&share, &d, &bob, b"f", &made).await;
    assert_eq!(d.lookup(&root(), b"f").await.unwrap().0.id(), other.id());
    assert_eq!(d.lookup(&root(), b"g").await.unwrap().0.id(), made.node.id());
    refused(d.unlink(Acting::caller(&bob), b"g"), VfsError::Access).await;
    file_ops.unmake(&share, &d, &bob, b"g", &made).await;
    refused(d.lookup(&root(), b"g"), VfsError::NotFound).await;
}

/// As on Windows: a file is hidden from a caller that has only a part of the read rights in its list.
pub(crate) async fn listing_needs_all_read_rights(b: Bench) {
    let rules = vfs::namespace::Rules { only_visible: true, ..Default::default() };
    let share = Share { rules, ..plain(&b) };
    let f = owned(&b, b"f", 0o600).await;
    let all = mask::READ_DATA | mask::READ_EA | mask::READ_ATTRIBUTES | mask::READ_CONTROL;
    for (rights, shown) in [
        (all, true),
        (all & !mask::READ_DATA, false),
        (all & !mask::READ_EA, false),
        (all & !mask::READ_ATTRIBUTES, false),
    ] {
        give(&f, vec![allow(BOB, rights)]).await;
        let attr = f.getattr().await.unwrap();
        assert_eq!(share.shows(&f, &attr, &user(BOB)).await, Ok(shown), "{rights:x}");
        let (listed, end) = share.readdir(&b.root, &user(BOB), 0, 99).await.unwrap();
        assert!(listed.iter().all(|e| e.found.is_some()), "it had to be looked at");
        assert_eq!(
            (listed.iter().any(|e| *e.entry.name == *b"f"), end),
            (shown, true),
            "{rights:x}"
        );
        assert_eq!(share.shows(&f, &attr, &root()).await, Ok(true));
    }
}

pub(crate) async fn list_follows_its_file(b: Bench) {
    let f = owned(&b, b"f", 0o600).await;
    let entries = vec![allow(BOB, mask::READ_DATA)];
    give(&f, entries.clone()).await;
    f.link(Acting::caller(&root()), b.root.as_ref(), b"g").await.unwrap();
    b.root.rename(Acting::caller(&root()), b"f", b.root.as_ref(), b"h", true).await.unwrap();
    for name in [&b"g"[..], b"h"] {
        let (node, _) = b.root.lookup(&root(), name).await.unwrap();
        assert_eq!(kept(&node).await.unwrap().entries(), entries);
    }
    assert_eq!(
        f.xattr_list(&root()).await.unwrap(),
        Vec::<Vec<u8>>::new(),
        "nobody sees it as data"
    );
}

pub(crate) async fn new_nodes_inherit_list(b: Bench) {
    let namespace = served(&b);
    let share = namespace.shares()[0].clone();
    let file_ops = namespace.by(None);
    let on = flag::OBJECT_INHERIT | flag::CONTAINER_INHERIT;
    let rw = mask::READ_DATA | mask::WRITE_DATA | mask::APPEND_DATA;
    let passes = vec![
        Ace::allow(Who::User(BOB), rw, on),
        Ace::allow(Who::Owner, mask::FILE_ALL, on),
        Ace::allow(Who::Everyone, mask::EXECUTE, 0),
    ];
    let d = folder(&b, b"d", passes).await;
    let by = root();
    let make =
        |name: &'static [u8], set| file_ops.create(&share, &d, &by, name, CreateHow::Guarded, set);
    // Created by a client that applies its umask itself, and by one that leaves it to the folder.
    let strict = make(b"strict", mode(0o644)).await.unwrap();
    assert_eq!(strict.attr.mode, 0o600);
    strict.node.open(&user(BOB), true, false).await.unwrap();
    refused(strict.node.open(&user(BOB), true, true), VfsError::Access).await;
    let open = make(b"open", SetAttr { umask: 0o022, ..mode(0o666) }).await.unwrap();
    open.node.open(&user(BOB), true, true).await.unwrap();
    refused(open.node.open(&user(CARL), true, false), VfsError::Access).await;
    let ran = async |node: &NodeRef, who, right| {
        let attr = node.getattr().await.unwrap();
        node.access(&user(who), Access(right), &attr).await.unwrap() == Access(right)
    };
    assert!(!ran(&strict.node, BOB, Access::EXECUTE).await, "what is passed on says so");
    let sub = file_ops.mkdir(&share, &d, &by, b"sub", mode(0o777)).await.unwrap().node;
    let deep =
        file_ops.create(&share, &sub, &by, b"deep", CreateHow::Guarded, mode(0o666)).await.unwrap();
    deep.node.open(&user(BOB), true, true).await.unwrap();
    // If no entry is inherited, the umask applies.
    let plain = b.dir("plain").await;
    let set = SetAttr { umask: 0o027, ..mode(0o666) };
    let made = file_ops.create(&share, &plain, &by, b"f", CreateHow::Guarded, set).await.unwrap();
    assert_eq!((made.attr.mode, kept(&made.node).await), (0o640, None));
}

/// Mode bits limit the inherited rights: searching a folder needs a bit, running a file does not. A pipe inherits no list.
pub(crate) async fn mode_bits_limit_inherited_list(b: Bench) {
    let namespace = served(&b);
    let (share, file_ops, by) = (namespace.shares()[0].clone(), namespace.by(None), root());
    let on = flag::OBJECT_INHERIT | flag::CONTAINER_INHERIT;
    let d = folder(&b, b"d", vec![Ace::allow(Who::User(BOB), mask::FILE_ALL, on)]).await;
    let rights = async |node: &NodeRef| {
        kept(node).await.unwrap().allowed(&user(BOB), Owner { uid: ANN, gid: ANN })
    };
    let how = CreateHow::Guarded;
    let f = file_ops.create(&share, &d, &by, b"f", how, mode(0o644)).await.unwrap().node;
    let write = mask::WRITE_DATA | mask::APPEND_DATA | mask::WRITE_EA;
    assert_eq!(rights(&f).await, mask::FILE_ALL & !write);
    let sub = file_ops.mkdir(&share, &d, &by, b"sub", mode(0o740)).await.unwrap().node;
    let left = mask::FILE_ALL & !(write | mask::DELETE_CHILD | mask::EXECUTE);
    assert_eq!(rights(&sub).await, left);
    let set = SetAttr { umask: 0o022, ..mode(0o666) };
    let fifo = file_ops.mknod(&share, &d, &by, b"p", Special::Fifo, set).await.unwrap();
    assert_eq!((fifo.attr.mode, kept(&fifo.node).await), (0o644, None), "it inherits nothing");
}

/// Sets a list on new nodes, or fails.
struct Gives {
    result: VfsResult<()>,
    times: AtomicU32,
}

impl GiveList for Gives {
    fn give<'a>(&'a self, made: &'a Made, _: Option<u32>) -> BoxFuture<'a, VfsResult<()>> {
        assert_eq!(made.attr.mode & 0o077, 0, "until then it is its owner's alone");
        self.times.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {
            self.result?;
            made.node.acl_set(&Acl::new(vec![allow(CARL, mask::READ_DATA)]), 0).await
        })
    }
}

/// The giver sets its list on a new node where requested, after the inherited one; a node whose list cannot be set is removed.
pub(crate) async fn giver_sets_list_on_new_nodes(b: Bench) {
    let namespace = served(&b);
    let (share, by, how) = (namespace.shares()[0].clone(), root(), CreateHow::Guarded);
    let plain = b.dir("plain").await;
    let on = flag::OBJECT_INHERIT | flag::CONTAINER_INHERIT;
    let passed = Ace::allow(Who::User(BOB), mask::READ_DATA, on);
    let d = folder(&b, b"d", vec![passed]).await;
    // The creator has the rights.
    let maker = Ace::allow(Who::User(0), mask::FILE_ALL, 0);
    let bobs = vec![allow(BOB, mask::READ_DATA), maker];
    let carls = vec![allow(CARL, mask::READ_DATA)];
    for (dir, list, calls, want) in [
        (&plain, ListOfNew::Inherited, 0, None),
        (&plain, ListOfNew::InheritedOrGiven, 1, Some(&carls)),
        (&plain, ListOfNew::Given, 1, Some(&carls)),
        (&d, ListOfNew::Inherited, 0, Some(&bobs)),
        (&d, ListOfNew::InheritedOrGiven, 1, Some(&carls)),
        (&d, ListOfNew::Given, 1, Some(&carls)),
    ] {
        let giver = Gives { result: Ok(()), times: AtomicU32::new(0) };
        let file_ops = namespace.by(None).with_list(list, &giver);
        let made = file_ops.create(&share, dir, &by, b"f", how, mode(0o640)).await.unwrap();
        assert_eq!(giver.times.into_inner(), calls, "{list:?}");
        let found = kept(&made.node).await;
        assert_eq!(found.as_ref().map(Acl::entries), want.map(|w| &w[..]), "{list:?}");
        assert_eq!(made.attr, made.node.getattr().await.unwrap(), "as it is after that");
        dir.unlink(Acting::caller(&by), b"f").await.unwrap();
    }
    let giver = Gives { result: Err(VfsError::NoSpace), times: AtomicU32::new(0) };
    let file_ops = namespace.by(None).with_list(ListOfNew::Given, &giver);
    refused(file_ops.create(&share, &d, &by, b"f", how, mode(0o640)), VfsError::NoSpace).await;
    refused(file_ops.mkdir(&share, &d, &by, b"s", mode(0o750)), VfsError::NoSpace).await;
    assert_eq!(b.names(&d, 10).await, [] as [&str; 0]);
}

/// RFC 8881 section 6.2.1.3.1: the owner, and principals with ACE4_WRITE_ACL.
pub(crate) async fn setting_list_needs_mode_permission(b: Bench) {
    let namespace = served(&b);
    let (share, file_ops) = (namespace.shares()[0].clone(), namespace.by(None));
    let f = owned(&b, b"f", 0o640).await;
    let read = mask::READ_DATA | mask::WRITE_DAC;
    let acl = Acl::new(vec![Ace::allow(Who::Owner, mask::FILE_ALL, 0), allow(BOB, read)]);
    for who in [BOB, CARL] {
        refused(file_ops.acl_change(&share, &f, &user(who), &acl), VfsError::Perm).await;
    }
    assert_eq!((kept(&f).await, f.getattr().await.unwrap().mode), (None, 0o640));
    file_ops.acl_change(&share, &f, &user(ANN), &acl).await.unwrap();
    assert_eq!((kept(&f).await, f.getattr().await.unwrap().mode), (Some(acl.clone()), 0o700));
    let more = Acl::new([acl.entries(), &[Ace::allow(Who::Group, mask::READ_DATA, 0)]].concat());
    refused(file_ops.acl_change(&share, &f, &user(CARL), &more), VfsError::Perm).await;
    file_ops.acl_change(&share, &f, &user(BOB), &more).await.unwrap();
    assert_eq!((kept(&f).await, f.getattr().await.unwrap().mode), (Some(more.clone()), 0o740));

    let change = posix::Change { access: Some(Posix::of_mode(0o604)), default: None };
    refused(file_ops.posix_change(&share, &f, &user(CARL), &change), VfsError::Perm).await;
    assert_eq!(kept(&f).await, Some(more.clone()));
    match file_ops.posix_change(&share, &f, &user(BOB), &change).await {
        Ok(()) => assert_eq!((kept(&f).await, f.getattr().await.unwrap().mode), (None, 0o604)),
        // A volume in memory has no such list.
        Err(e) => assert_eq!(e, VfsError::NotSupported),
    }

    let fixed = Namespace::new(vec![Share { read_only: true, ..plain(&b) }]);
    let (share, file_ops, before) = (fixed.shares()[0].clone(), fixed.by(None), kept(&f).await);
    refused(file_ops.acl_change(&share, &f, &root(), &acl), VfsError::ReadOnly).await;
    refused(file_ops.acl_set(&share, &f, &acl, 0o777), VfsError::ReadOnly).await;
    refused(file_ops.posix_change(&share, &f, &root(), &change), VfsError::ReadOnly).await;
    assert_eq!(kept(&f).await, before);
}
