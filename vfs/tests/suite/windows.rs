//! Features of Windows clients that POSIX lacks.

use vfs::engine::limits::SIDE_MAX;
use vfs::*;

use super::*;

pub(crate) async fn side_data_is_kept_and_hidden(b: Bench) {
    let c = root();
    let f = b.file("f").await;
    for node in [&f, &b.dir("d").await, &b.root] {
        assert_eq!(node.side_get("sd").await, Ok(None));
        let before = node.getattr().await.unwrap();
        node.side_set("sd", Some(b"one")).await.unwrap();
        node.side_set("sd", Some(b"two")).await.unwrap();
        node.side_set("other", Some(b"")).await.unwrap();
        assert_eq!(node.side_get("sd").await, Ok(Some(b"two".to_vec())));
        assert_eq!(node.side_get("other").await, Ok(Some(Vec::new())));
        assert!(node.getattr().await.unwrap().change > before.change);
        assert_eq!(node.xattr_list(&c).await, Ok(Vec::new()));
        refused(node.xattr_get(&c, b"headgate.sd"), VfsError::NoXattr).await;
        node.side_set("sd", None).await.unwrap();
        node.side_set("sd", None).await.unwrap();
        assert_eq!(node.side_get("sd").await, Ok(None));
    }
    for bad in ["", "A", "a b", "a/b", &"x".repeat(65)] {
        refused(f.side_get(bad), VfsError::Invalid).await;
        refused(f.side_set(bad, None), VfsError::Invalid).await;
    }
    let large = vec![0; SIDE_MAX + 1];
    refused(f.side_set("sd", Some(&large)), VfsError::XattrTooBig).await;
    // Side data belongs to the file, not to its name: it stays after a rename.
    f.side_set("sd", Some(b"kept")).await.unwrap();
    b.root.rename(Acting::caller(&c), b"f", b.root.as_ref(), b"g", true).await.unwrap();
    let (g, _) = b.root.lookup(&c, b"g").await.unwrap();
    assert_eq!(g.side_get("sd").await, Ok(Some(b"kept".to_vec())));
}

pub(crate) async fn dos_records_are_kept(b: Bench) {
    let f = b.file("f").await;
    let dos = |f: NodeRef| async move {
        let attr = f.getattr().await.unwrap();
        f.dos(&attr).await.unwrap()
    };
    assert_eq!(dos(f.clone()).await, Dos::default());
    let created = Time { sec: 1_000_000, nsec: 100 };
    let mut want = Dos {
        attributes: Some(Dos::HIDDEN | Dos::SYSTEM),
        created: Some(created),
        ..Dos::default()
    };
    f.dos_set(want).await.unwrap();
    assert_eq!(dos(f.clone()).await, want);
    // Often enough that some reads come from a cache, if one exists.
    for n in 0..50 {
        want.attributes = Some(n & !(Dos::DIRECTORY | Dos::NORMAL));
        f.dos_set(want).await.unwrap();
        for _ in 0..3 {
            assert_eq!(dos(f.clone()).await, want);
        }
    }
    f.dos_set(Dos::default()).await.unwrap();
    assert_eq!(dos(f.clone()).await, Dos::default());
    assert_eq!(f.side_get(vfs::dos::NAME).await, Ok(None));
}

/// The tag is found with the other properties; neither loses the other.
pub(crate) async fn reparse_points_are_kept(b: Bench) {
    use vfs::reparse::{Kept, NAME, Tagged};
    let c = root();
    let ns = super::streams::served(&b);
    let (share, file_ops) = (&ns.shares()[0].clone(), ns.by(None));
    let dos = |node: NodeRef| async move {
        let attr = node.getattr().await.unwrap();
        node.dos(&attr).await.unwrap()
    };
    for (node, is_dir) in [(b.file("f").await, false), (b.dir("d").await, true)] {
        let hidden = Dos { attributes: Some(Dos::HIDDEN), ..Dos::default() };
        node.dos_set(hidden).await.unwrap();
        for len in [8_u8, 200, 24] {
            let buffer: Vec<u8> = (0..len).collect();
            let kept = Kept { is_dir, buffer };
            let before = node.getattr().await.unwrap();
            file_ops.reparse_set(share, &node, Some(&kept)).await.unwrap();
            assert!(node.getattr().await.unwrap().change > before.change);
            assert_eq!(Kept::of(&node).await, Ok(Some(kept)));
            let reparse = Some(Tagged { tag: 0x0302_0100, is_dir });
            assert_eq!(dos(node.clone()).await, Dos { reparse, ..hidden });
            node.dos_set(Dos::default()).await.unwrap();
            assert_eq!(dos(node.clone()).await, Dos { reparse, ..Dos::default() });
            node.dos_set(Dos { reparse: None, ..hidden }).await.unwrap();
            assert_eq!(dos(node.clone()).await, Dos { reparse, ..hidden });
            assert_eq!(node.xattr_list(&c).await, Ok(Vec::new()));
        }
        for _ in 0..2 {
            file_ops.reparse_set(share, &node, None).await.unwrap();
            assert_eq!((Kept::of(&node).await, dos(node.clone()).await), (Ok(None), hidden));
        }
        assert_eq!(node.side_get(NAME).await, Ok(None));
    }
}

pub(crate) async fn node_reports_its_path(b: Bench) {
    let c = root();
    let d = b.dir("d").await;
    let e = d.mkdir(Acting::caller(&c), b"e", mode(0o755)).await.unwrap().node;
    let f = e.create(Acting::caller(&c), b"f", CreateHow::Guarded, mode(0o644)).await.unwrap().node;
    assert_eq!(b.root.path().await, Ok(Vec::new()));
    assert_eq!(e.path().await, Ok(b"d/e".to_vec()));
    assert_eq!(f.path().await, Ok(b"d/e/f".to_vec()));
    b.root.rename(Acting::caller(&c), b"d", b.root.as_ref(), b"moved", true).await.unwrap();
    assert_eq!(f.path().await, Ok(b"moved/e/f".to_vec()));
    e.rename(Acting::caller(&c), b"f", b.root.as_ref(), b"g (deleted)", true).await.unwrap();
    assert_eq!(f.path().await, Ok(b"g (deleted)".to_vec()));
    b.root.unlink(Acting::caller(&c), b"g (deleted)").await.unwrap();
    refused(f.path(), VfsError::Stale).await;
    d.rmdir(Acting::caller(&c), b"e").await.unwrap();
    refused(e.path(), VfsError::Stale).await;
}

pub(crate) async fn rename_without_replace_keeps_target(b: Bench) {
    let c = root();
    let r = b.root.as_ref();
    let f = b.file("f").await;
    b.file("g").await;
    b.dir("d").await;
    for taken in [&b"g"[..], b"d", b"f"] {
        refused(b.root.rename(Acting::caller(&c), b"f", r, taken, false), VfsError::Exists).await;
    }
    refused(b.root.rename(Acting::caller(&c), b"d", r, b"f", false), VfsError::Exists).await;
    refused(b.root.rename(Acting::caller(&c), b"none", r, b"x", false), VfsError::NotFound).await;
    b.root.rename(Acting::caller(&c), b"f", r, b"F", false).await.unwrap();
    assert_eq!(b.root.lookup(&c, b"F").await.unwrap().0.id(), f.id());
    let d = b.root.lookup(&c, b"d").await.unwrap().0;
    refused(b.root.rename(Acting::caller(&c), b"d", d.as_ref(), b"x", false), VfsError::Invalid)
        .await;
}

/// Every change through `FileOps`, by whatever caller, is reported to watchers and found in any case.
pub(crate) async fn file_ops_report_changes(b: Bench) {
    use vfs::Action::{Added, Modified, Removed, RenamedNew, RenamedOld};
    let ns = super::streams::served(&b);
    let (share, file_ops, c, r) = (&ns.shares()[0].clone(), ns.by(None), root(), &b.root);
    r.setattr(&c, mode(0o755), false).await.unwrap();
    let by = (share, &user(1003));
    let watch = ns.watches().watch(by, r.clone(), 0xfff, true).await.unwrap();
    let d = file_ops.mkdir(share, r, &c, b"Dir", mode(0o755)).await.unwrap().node;
    let f =
        file_ops.create(share, &d, &c, b"f", CreateHow::Guarded, mode(0o644)).await.unwrap().node;
    assert_eq!(ns.names().find(r, &c, "DIR").await.unwrap().name, b"Dir");
    file_ops.write(share, &f, None, 0, vec![Buf::from(vec![1])], Stable::Unstable).await.unwrap();
    file_ops.setattr(share, &f, &c, mode(0o600), false).await.unwrap();
    file_ops.link(share, &f, &c, r, b"g").await.unwrap();
    file_ops.symlink(share, r, &c, b"s", b"f", SetAttr::default()).await.unwrap();
    file_ops.unlink(share, r, &c, b"s").await.unwrap();
    file_ops.rename(share, r, &c, b"g", r, b"h").await.unwrap();
    file_ops.rename(share, r, &c, b"h", &d, b"h").await.unwrap();
    file_ops
        .dos_set(share, &d, Dos { attributes: Some(Dos::HIDDEN), ..Dos::default() })
        .await
        .unwrap();
    file_ops.rename(share, r, &c, b"Dir", r, b"Other").await.unwrap();
    assert_eq!(ns.names().find(r, &c, "OTHER").await.unwrap().name, b"Other");
    refused(ns.names().find(r, &c, "dir"), VfsError::NotFound).await;
    for name in [&b"f"[..], b"h"] {
        file_ops.unlink(share, &d, &c, name).await.unwrap();
    }
    file_ops.rmdir(share, r, &c, b"Other").await.unwrap();
    let told = watch.take();
    assert!(!told.overflow && !told.gone);
    let mut told: Vec<_> =
        told.events.iter().map(|e| (e.action, std::str::from_utf8(&e.path).unwrap())).collect();
    assert!(told.iter().any(|(action, path)| *action == Modified && *path == "Dir/f"));
    told.retain(|(action, _)| *action != Modified);
    let want = [
        (Added, "Dir"),
        (Added, "Dir/f"),
        (Added, "g"),
        (Added, "s"),
        (Removed, "s"),
        (RenamedOld, "g"),
        (RenamedNew, "h"),
        (Removed, "h"),
        (Added, "Dir/h"),
        (RenamedOld, "Dir"),
        (RenamedNew, "Other"),
        (Removed, "Other/f"),
        (Removed, "Other/h"),
        (Removed, "Other"),
    ];
    assert_eq!(told, want);
}
