//! Names in any case.

use std::sync::atomic::Ordering;

use vfs::names::Names;
use vfs::*;

use super::*;

async fn found(names: &Names, dir: &NodeRef, text: &str) -> Option<String> {
    match names.find(dir, &root(), text).await {
        Ok(f) => Some(String::from_utf8(f.name).unwrap()),
        Err(VfsError::NotFound) => None,
        Err(e) => panic!("{e}"),
    }
}

fn scans(names: &Names) -> u64 {
    names.counters.scans.load(Ordering::Relaxed)
}

pub(crate) async fn names_are_found_in_any_case(b: Bench) {
    let names = Names::default();
    let d = b.dir("Folder").await;
    let c = root();
    for name in ["Readme.TXT", "ÄRGER", "a:b", "other"] {
        d.create(Acting::caller(&c), name.as_bytes(), CreateHow::Guarded, mode(0o644))
            .await
            .unwrap();
    }
    assert_eq!(found(&names, &b.root, "FOLDER").await.as_deref(), Some("Folder"));
    let before = scans(&names);
    assert_eq!(found(&names, &d, "Readme.TXT").await.as_deref(), Some("Readme.TXT"));
    assert_eq!(found(&names, &d, "a\u{f022}b").await.as_deref(), Some("a:b"));
    assert_eq!(scans(&names), before, "a name that exists as given needs no listing");
    assert_eq!(found(&names, &d, "README.txt").await.as_deref(), Some("Readme.TXT"));
    assert_eq!(found(&names, &d, "ärger").await.as_deref(), Some("ÄRGER"));
    assert_eq!(found(&names, &d, "A\u{f022}B").await.as_deref(), Some("a:b"));
    for n in 0..100 {
        assert_eq!(found(&names, &d, &format!("none{n}")).await, None);
    }
    assert_eq!(scans(&names), before + 1, "misses are answered by one scan");
    // A change of the directory by another process is noticed.
    d.create(Acting::caller(&c), b"Later", CreateHow::Guarded, mode(0o644)).await.unwrap();
    d.unlink(Acting::caller(&c), b"other").await.unwrap();
    assert_eq!(found(&names, &d, "LATER").await.as_deref(), Some("Later"));
    assert_eq!(found(&names, &d, "OTHER").await, None);
    refused(names.find(&d, &c, "a*"), VfsError::BadName).await;
    refused(names.find(&d, &c, ".."), VfsError::BadName).await;
}

pub(crate) async fn index_follows_own_changes(b: Bench) {
    let (names, c, r) = (Names::default(), root(), &b.root);
    b.file("first").await;
    assert_eq!(found(&names, r, "FIRST").await.as_deref(), Some("first"));
    for n in 0..50 {
        let name = format!("File{n}");
        assert_eq!(found(&names, r, &name).await, None);
        let made = b.create(&name, CreateHow::Guarded).await.unwrap();
        names.made(r.id(), name.as_bytes(), &made.dir);
        assert_eq!(found(&names, r, &name.to_uppercase()).await, Some(name));
    }
    for n in 0..50 {
        let name = format!("File{n}");
        let change = r.unlink(Acting::caller(&c), name.as_bytes()).await.unwrap();
        names.gone(r.id(), name.as_bytes(), &change);
        assert_eq!(found(&names, r, &name.to_uppercase()).await, None);
    }
    assert_eq!(scans(&names), 1);
}

/// Two files whose names differ only in case, made by other processes: each is found by its exact name, and one of them by any
/// other case.
pub(crate) async fn names_differing_only_in_case(b: Bench) {
    let names = Names::default();
    let (lower, upper) = (b.file("same").await, b.file("SAME").await);
    let find = async |text| names.find(&b.root, &root(), text).await.unwrap().node.id();
    assert_eq!(find("same").await, lower.id());
    assert_eq!(find("SAME").await, upper.id());
    assert_eq!(find("Same").await, upper.id());
}
