//! Names: lookup, create, remove, rename, link, list.

use super::*;

pub(crate) async fn lookup_finds_created_nodes(b: Bench) {
    let made = b.create("a", CreateHow::Guarded).await.unwrap();
    assert!(made.created);
    assert_eq!((made.attr.kind, made.attr.mode, made.attr.nlink), (Kind::File, 0o644, 1));
    let (node, attr) = b.root.lookup(&root(), b"a").await.unwrap();
    assert_eq!(node.id(), made.node.id());
    assert_eq!(node.handle(), made.node.handle());
    assert_eq!(attr.fileid, made.attr.fileid);
    refused(b.root.lookup(&root(), b"b"), VfsError::NotFound).await;
    refused(node.lookup(&root(), b"b"), VfsError::NotDir).await;
    let dir = b.dir("d").await;
    let (up, _) = dir.lookup(&root(), b"..").await.unwrap();
    assert_eq!(up.id(), b.root.id());
    let (up, _) = b.root.lookup(&root(), b"..").await.unwrap();
    assert_eq!(up.id(), b.root.id());
}

pub(crate) async fn bad_names_are_refused(b: Bench) {
    let long = vec![b'x'; b.backend.capabilities().name_max as usize + 1];
    let cases: [(&[u8], VfsError); 6] = [
        (b"", VfsError::Invalid),
        (b".", VfsError::Invalid),
        (b"a/b", VfsError::BadName),
        (b"/etc", VfsError::BadName),
        (b"a\0b", VfsError::BadName),
        (&long, VfsError::NameTooLong),
    ];
    let c = root();
    let set = mode(0o644);
    for (name, why) in cases {
        refused(b.root.lookup(&c, name), why).await;
        refused(b.root.create(Acting::caller(&c), name, CreateHow::Unchecked, set), why).await;
        refused(b.root.mkdir(Acting::caller(&c), name, set), why).await;
        refused(b.root.symlink(&c, name, b"t", set), why).await;
        refused(b.root.mknod(&c, name, Special::Fifo, set), why).await;
        refused(b.root.unlink(Acting::caller(&c), name), why).await;
        refused(b.root.rmdir(Acting::caller(&c), name), why).await;
        refused(b.root.rename(Acting::caller(&c), name, b.root.as_ref(), b"y", true), why).await;
        refused(b.root.rename(Acting::caller(&c), b"y", b.root.as_ref(), name, true), why).await;
    }
    for name in [&b".."[..]] {
        refused(
            b.root.create(Acting::caller(&c), name, CreateHow::Unchecked, set),
            VfsError::Invalid,
        )
        .await;
        refused(b.root.mkdir(Acting::caller(&c), name, set), VfsError::Invalid).await;
        refused(b.root.unlink(Acting::caller(&c), name), VfsError::Invalid).await;
        refused(b.root.rmdir(Acting::caller(&c), name), VfsError::Invalid).await;
        refused(
            b.root.rename(Acting::caller(&c), b"y", b.root.as_ref(), name, true),
            VfsError::Invalid,
        )
        .await;
    }
    // Names are bytes: a name need not be UTF-8.
    let odd = b"\xff\xfe name\x01";
    b.root.create(Acting::caller(&c), odd, CreateHow::Guarded, set).await.unwrap();
    assert!(b.root.lookup(&c, odd).await.is_ok());
    let (entries, _) = b.root.readdir(&c, 0, 10).await.unwrap();
    assert!(entries.iter().any(|e| &*e.name == odd));
}

pub(crate) async fn create_in_three_ways(b: Bench) {
    let first = b.create("a", CreateHow::Unchecked).await.unwrap();
    assert!(first.created);
    b.write(&first.node, 0, b"hello").await;
    refused(b.create("a", CreateHow::Guarded), VfsError::Exists).await;
    let again = b.create("a", CreateHow::Unchecked).await.unwrap();
    assert!(!again.created);
    assert_eq!((again.node.id(), again.attr.size), (first.node.id(), 5));
    let cut = SetAttr { size: Some(0), ..mode(0o600) };
    let again =
        b.root.create(Acting::caller(&root()), b"a", CreateHow::Unchecked, cut).await.unwrap();
    assert_eq!((again.attr.size, again.attr.mode), (0, 0o644));
    let sized = SetAttr { size: Some(1000), ..mode(0o600) };
    let made =
        b.root.create(Acting::caller(&root()), b"sized", CreateHow::Guarded, sized).await.unwrap();
    assert_eq!(made.attr.size, 1000);
}

pub(crate) async fn exclusive_create_can_be_repeated(b: Bench) {
    let mine = CreateHow::Exclusive(*b"\xff23\x0056\xfe8");
    let first = b.create("x", mine).await.unwrap();
    assert!(first.created);
    let again = b.create("x", mine).await.unwrap();
    assert_eq!(again.node.id(), first.node.id());
    assert!(again.created);
    refused(b.create("x", CreateHow::Exclusive(*b"87654321")), VfsError::Exists).await;
    // An existing file that was created otherwise never counts as a repeated create.
    b.file("y").await;
    refused(b.create("y", mine), VfsError::Exists).await;
    b.dir("d").await;
    refused(b.create("d", mine), VfsError::Exists).await;
}

pub(crate) async fn unlink_and_rmdir_check_kind(b: Bench) {
    let c = root();
    let f = b.file("f").await;
    let d = b.dir("d").await;
    d.create(Acting::caller(&c), b"inner", CreateHow::Guarded, mode(0o644)).await.unwrap();
    refused(b.root.unlink(Acting::caller(&c), b"d"), VfsError::IsDir).await;
    refused(b.root.rmdir(Acting::caller(&c), b"f"), VfsError::NotDir).await;
    refused(b.root.rmdir(Acting::caller(&c), b"d"), VfsError::NotEmpty).await;
    refused(b.root.unlink(Acting::caller(&c), b"none"), VfsError::NotFound).await;
    refused(b.root.rmdir(Acting::caller(&c), b"none"), VfsError::NotFound).await;
    let change = b.root.unlink(Acting::caller(&c), b"f").await.unwrap();
    assert_ne!(change.before.change, change.after.change);
    refused(b.root.lookup(&c, b"f"), VfsError::NotFound).await;
    drop(f);
    d.unlink(Acting::caller(&c), b"inner").await.unwrap();
    let nlink = b.root.getattr().await.unwrap().nlink;
    let change = b.root.rmdir(Acting::caller(&c), b"d").await.unwrap();
    assert!(change.after.nlink <= nlink);
    // A removed directory is stale for every operation.
    refused(d.getattr(), VfsError::Stale).await;
    refused(d.lookup(&c, b"x"), VfsError::Stale).await;
    refused(d.create(Acting::caller(&c), b"x", CreateHow::Guarded, mode(0o644)), VfsError::Stale)
        .await;
    refused(d.mkdir(Acting::caller(&c), b"x", mode(0o644)), VfsError::Stale).await;
    refused(d.readdir(&c, 0, 10), VfsError::Stale).await;
    let handle = d.handle();
    drop(d);
    refused(b.backend.resolve(&handle), VfsError::Stale).await;
}

pub(crate) async fn removed_file_lives_while_held(b: Bench) {
    let f = b.file("f").await;
    b.write(&f, 0, b"still here").await;
    let handle = f.handle();
    b.root.unlink(Acting::caller(&root()), b"f").await.unwrap();
    assert_eq!(f.getattr().await.unwrap().nlink, 0);
    assert_eq!(b.contents(&f).await, b"still here");
    b.write(&f, 6, b"there").await;
    assert_eq!(b.contents(&f).await, b"still there");
    // While it is in use, its handle works and returns the same node.
    let same = b.backend.resolve(&handle).await.unwrap();
    assert_eq!(same.id(), f.id());
    drop(same);
    // A new file of the same name is a different node.
    let new = b.file("f").await;
    assert_ne!(new.id(), f.id());
    assert_ne!(new.handle(), handle);
    drop(f);
    refused(b.backend.resolve(&handle), VfsError::Stale).await;
}

pub(crate) async fn rename_moves_and_replaces(b: Bench) {
    let c = root();
    let f = b.file("f").await;
    b.write(&f, 0, b"f").await;
    let d = b.dir("d").await;
    let e = b.dir("e").await;
    let (from, to) = b.root.rename(Acting::caller(&c), b"f", d.as_ref(), b"g", true).await.unwrap();
    assert_ne!(from.before.change, from.after.change);
    assert_ne!(to.before.change, to.after.change);
    refused(b.root.lookup(&c, b"f"), VfsError::NotFound).await;
    let (g, _) = d.lookup(&c, b"g").await.unwrap();
    assert_eq!((g.id(), g.handle()), (f.id(), f.handle()));
    assert_eq!(b.contents(&f).await, b"f");
    // Over an existing file: that file is removed.
    let old = b.file("h").await;
    d.rename(Acting::caller(&c), b"g", b.root.as_ref(), b"h", true).await.unwrap();
    assert_eq!(old.getattr().await.unwrap().nlink, 0);
    assert_eq!(b.root.lookup(&c, b"h").await.unwrap().0.id(), f.id());
    // Directories over empty directories only, never over files, and files never over directories.
    d.create(Acting::caller(&c), b"inner", CreateHow::Guarded, mode(0o644)).await.unwrap();
    let r = b.root.as_ref();
    refused(b.root.rename(Acting::caller(&c), b"e", r, b"d", true), VfsError::NotEmpty).await;
    refused(b.root.rename(Acting::caller(&c), b"h", r, b"e", true), VfsError::IsDir).await;
    refused(b.root.rename(Acting::caller(&c), b"h", r, b"d", true), VfsError::IsDir).await;
    refused(b.root.rename(Acting::caller(&c), b"e", r, b"h", true), VfsError::NotDir).await;
    refused(b.root.rename(Acting::caller(&c), b"none", r, b"x", true), VfsError::NotFound).await;
    refused(b.root.rename(Acting::caller(&c), b"d", d.as_ref(), b"x", true), VfsError::Invalid)
        .await;
    b.root.rename(Acting::caller(&c), b"d", r, b"e", true).await.unwrap();
    refused(e.getattr(), VfsError::Stale).await;
    assert_eq!(b.root.lookup(&c, b"e").await.unwrap().0.id(), d.id());
    // To itself, and between two names of one file: no change.
    let (from, to) = b.root.rename(Acting::caller(&c), b"h", r, b"h", true).await.unwrap();
    assert!(from.is_none() && to.is_none());
    f.link(Acting::caller(&c), r, b"h2").await.unwrap();
    let (from, to) = b.root.rename(Acting::caller(&c), b"h", r, b"h2", true).await.unwrap();
    assert!(from.is_none() && to.is_none());
    assert_eq!(f.getattr().await.unwrap().nlink, 2);
    // Below a directory that moves, `..` follows.
    let (sub, _) = {
        let m = d.mkdir(Acting::caller(&c), b"sub", mode(0o755)).await.unwrap();
        (m.node, m.attr)
    };
    let other = b.dir("other").await;
    d.rename(Acting::caller(&c), b"sub", other.as_ref(), b"sub", true).await.unwrap();
    assert_eq!(sub.lookup(&c, b"..").await.unwrap().0.id(), other.id());
}

pub(crate) async fn hard_links_are_one_node(b: Bench) {
    let c = root();
    let f = b.file("f").await;
    let d = b.dir("d").await;
    let (attr, change) = f.link(Acting::caller(&c), d.as_ref(), b"g").await.unwrap();
    assert_eq!(attr.nlink, 2);
    assert_ne!(change.before.change, change.after.change);
    let (g, _) = d.lookup(&c, b"g").await.unwrap();
    assert_eq!((g.id(), g.handle()), (f.id(), f.handle()));
    refused(f.link(Acting::caller(&c), d.as_ref(), b"g"), VfsError::Exists).await;
    refused(d.link(Acting::caller(&c), b.root.as_ref(), b"dd"), VfsError::IsDir).await;
    refused(f.link(Acting::caller(&c), f.as_ref(), b"x"), VfsError::NotDir).await;
    b.root.unlink(Acting::caller(&c), b"f").await.unwrap();
    assert_eq!(g.getattr().await.unwrap().nlink, 1);
    b.write(&f, 0, b"one").await;
    assert_eq!(b.contents(&g).await, b"one");
    // Symbolic links and special files have links too.
    let s = b.root.symlink(&c, b"s", b"target", SetAttr::default()).await.unwrap().node;
    s.link(Acting::caller(&c), b.root.as_ref(), b"s2").await.unwrap();
    let (s2, attr) = b.root.lookup(&c, b"s2").await.unwrap();
    assert_eq!((s2.id(), attr.kind, attr.nlink), (s.id(), Kind::Symlink, 2));
}

pub(crate) async fn links_and_special_nodes(b: Bench) {
    let c = root();
    let target = b"../../etc/passwd\xff";
    let s = b.root.symlink(&c, b"s", target, SetAttr::default()).await.unwrap();
    assert_eq!((s.attr.kind, s.attr.size), (Kind::Symlink, target.len() as u64));
    assert_eq!(s.node.readlink(&c).await.unwrap(), target);
    refused(b.root.readlink(&c), VfsError::Invalid).await;
    refused(b.root.symlink(&c, b"s", b"x", SetAttr::default()), VfsError::Exists).await;
    refused(b.root.symlink(&c, b"e", b"", SetAttr::default()), VfsError::Invalid).await;
    let made = b.root.mknod(&c, b"p", Special::Fifo, mode(0o640)).await.unwrap();
    assert_eq!((made.attr.kind, made.attr.mode), (Kind::Fifo, 0o640));
    let made = b.root.mknod(&c, b"k", Special::Socket, mode(0o600)).await.unwrap();
    assert_eq!(made.attr.kind, Kind::Socket);
    // Reads and writes of nodes without data.
    let p = b.root.lookup(&c, b"p").await.unwrap().0;
    refused(p.read(Some(&c), 0, 10, &b.into), VfsError::WrongType).await;
    refused(p.write(WriteBy::Caller(&c), 0, vec![], Stable::Unstable), VfsError::WrongType).await;
    refused(s.node.read(Some(&c), 0, 10, &b.into), VfsError::Symlink).await;
    refused(b.root.read(Some(&c), 0, 10, &b.into), VfsError::IsDir).await;
    refused(b.root.open(&c, true, false), VfsError::IsDir).await;
    refused(s.node.lookup(&c, b"passwd"), VfsError::Symlink).await;
    // Listed with their kinds.
    let (entries, _) = b.root.readdir(&c, 0, 100).await.unwrap();
    for e in entries {
        let (_, attr) = b.root.lookup(&c, &e.name).await.unwrap();
        assert_eq!(e.fileid, attr.fileid);
        assert!(e.kind.is_none_or(|k| k == attr.kind));
    }
}

pub(crate) async fn devices_keep_their_numbers(b: Bench) {
    let c = root();
    let made = b.root.mknod(&c, b"n", Special::Char(1, 3), mode(0o666)).await.unwrap();
    assert_eq!((made.attr.kind, made.attr.rdev), (Kind::Char, (1, 3)));
    let made = b.root.mknod(&c, b"b", Special::Block(259, 70000), mode(0o600)).await.unwrap();
    assert_eq!((made.attr.kind, made.attr.rdev), (Kind::Block, (259, 70000)));
    refused(b.root.mknod(&c, b"n", Special::Char(1, 3), mode(0o666)), VfsError::Exists).await;
    for what in [Special::Char(0x1000, 0), Special::Block(0, 0x10_0000)] {
        refused(b.root.mknod(&c, b"x", what, mode(0o600)), VfsError::Invalid).await;
    }
}

pub(crate) async fn failed_create_leaves_no_node(b: Bench) {
    let c = root();
    let nobodys = SetAttr { uid: Some(u32::MAX), ..mode(0o700) };
    refused(
        b.root.create(Acting::caller(&c), b"f", CreateHow::Guarded, nobodys),
        VfsError::Invalid,
    )
    .await;
    refused(b.root.mkdir(Acting::caller(&c), b"d", nobodys), VfsError::Invalid).await;
    assert_eq!(b.names(&b.root, 10).await, [] as [&str; 0]);
}

pub(crate) async fn listing_is_complete_in_every_step(b: Bench) {
    let d = b.dir("d").await;
    assert!(b.names(&d, 10).await.is_empty());
    let mut made: Vec<String> = (0..257).map(|i| format!("file-{i:03}-with-a-name")).collect();
    for name in &made {
        d.create(Acting::caller(&root()), name.as_bytes(), CreateHow::Guarded, mode(0o644))
            .await
            .unwrap();
    }
    made.sort();
    for step in [1, 2, 7, 100, 256, 257, 258, 5000] {
        let mut names = b.names(&d, step).await;
        names.sort();
        assert_eq!(names, made, "step {step}");
    }
    refused(b.file("f").await.readdir(&root(), 0, 10), VfsError::NotDir).await;
    // If the last entry is included, its answer reports the end.
    let (all, end) = d.readdir(&root(), 0, 257).await.unwrap();
    assert!(end);
    // Continues from a cookie in the middle, also after the listing continued elsewhere.
    let middle = all[99].cookie;
    let (rest, _) = d.readdir(&root(), middle, 5000).await.unwrap();
    assert_eq!(rest, all[100..]);
    let (none, end) = d.readdir(&root(), all[256].cookie, 10).await.unwrap();
    assert!(none.is_empty() && end);
}

/// A name that stays is listed exactly once, whatever names are added and removed meanwhile.
pub(crate) async fn cookies_hold_while_names_change(b: Bench) {
    let c = root();
    let d = b.dir("d").await;
    let stay: Vec<String> = (0..300).map(|i| format!("stay{i}")).collect();
    for (i, name) in stay.iter().enumerate() {
        d.create(Acting::caller(&c), name.as_bytes(), CreateHow::Guarded, mode(0o644))
            .await
            .unwrap();
        let go = format!("go{i}");
        d.create(Acting::caller(&c), go.as_bytes(), CreateHow::Guarded, mode(0o644)).await.unwrap();
    }
    let mut seen = Vec::new();
    let (mut cookie, mut round) = (0, 0);
    loop {
        let (some, end) = d.readdir(&c, cookie, 37).await.unwrap();
        for e in &some {
            seen.push(String::from_utf8(e.name.to_vec()).unwrap());
        }
        if let Some(last) = some.last() {
            cookie = last.cookie;
            // The entry of the cookie itself is removed as well, if it still exists: a listing may be slightly outdated.
            if last.name.starts_with(b"go") {
                let gone = d.unlink(Acting::caller(&c), &last.name).await;
                assert!(matches!(gone, Ok(_) | Err(VfsError::NotFound)));
            }
        }
        if end {
            break;
        }
        for i in 0..10 {
            let old = format!("go{}", round * 10 + i);
            let _ = d.unlink(Acting::caller(&c), old.as_bytes()).await;
            let new = format!("new{}", round * 10 + i);
            d.create(Acting::caller(&c), new.as_bytes(), CreateHow::Guarded, mode(0o644))
                .await
                .unwrap();
        }
        round += 1;
        assert!(round < 200, "the listing does not end");
    }
    let mut kept: Vec<_> = seen.iter().filter(|n| n.starts_with("stay")).cloned().collect();
    kept.sort();
    let mut stay = stay;
    stay.sort();
    assert_eq!(kept, stay);
    let mut once = seen.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), seen.len(), "a name came twice");
}

pub(crate) async fn handles_find_their_nodes(b: Bench) {
    let c = root();
    let f = b.file("f").await;
    let d = b.dir("d").await;
    let handle = f.handle();
    assert!(handle.as_bytes().len() <= Handle::MAX);
    assert_eq!(b.backend.resolve(&handle).await.unwrap().id(), f.id());
    let id = f.id();
    // While one reference exists the id stays.
    b.root.rename(Acting::caller(&c), b"f", d.as_ref(), b"g", true).await.unwrap();
    assert_eq!(b.backend.resolve(&handle).await.unwrap().id(), id);
    drop(f);
    assert!(b.backend.resolve(&handle).await.is_ok());
    assert_eq!(b.backend.resolve(&b.root.handle()).await.unwrap().id(), b.root.id());
    for bytes in [&b""[..], b"\x01", b"\x07abcdefghijklmnop", &[0xff; 48], &[1; 30]] {
        let answer = b.backend.resolve(&Handle::new(bytes).unwrap()).await;
        assert!(matches!(answer.err(), Some(VfsError::BadHandle | VfsError::Stale)), "{bytes:?}");
    }
}

pub(crate) async fn two_backends_do_not_mix(a: Bench, b: Bench) {
    let c = root();
    let f = a.file("f").await;
    refused(f.link(Acting::caller(&c), b.root.as_ref(), b"f"), VfsError::CrossDevice).await;
    refused(
        a.root.rename(Acting::caller(&c), b"f", b.root.as_ref(), b"f", true),
        VfsError::CrossDevice,
    )
    .await;
    let g = b.file("g").await;
    refused(g.copy_range(None, f.as_ref(), 0, 0, 1), VfsError::CrossDevice).await;
    refused(g.clone_range(None, f.as_ref(), 0, 0, 1), VfsError::CrossDevice).await;
    assert_ne!(f.id(), g.id());
}
