//! Names as both protocols see them, and names removed while a client has the file open.

use std::collections::BTreeSet;

use client::Error;
use client::nfs3::{CreateHow, SetAttr};
use client::nfs4;
use client::smb::OpenHow;
use headgate_tests::world::World;
use headgate_tests::world::smb::{alice, with_alice};
use smb_proto::NtStatus;
use smb_proto::smb2::create::{Disposition, access, share};

use crate::side::{Side, Way, patiently};

/// Names over NFS and in the folder, with the same names over SMB.
const PAIRS: [(&str, &str); 8] = [
    ("plain", "plain"),
    ("Größe", "Größe"),
    ("a:b", "a\u{f022}b"),
    ("what? *now*", "what\u{f025} \u{f021}now\u{f021}"),
    ("\"<|>\"", "\u{f020}\u{f023}\u{f027}\u{f024}\u{f020}"),
    ("back\\slash", "back\u{f026}slash"),
    ("dot.", "dot\u{f029}"),
    ("space ", "space\u{f028}"),
];

async fn sides() -> (World, tempfile::TempDir, Side, Side) {
    let (world, dir) = with_alice(|_| ()).await;
    let a = Side::connect(&world, &alice(), Way::Tcp).await.unwrap();
    let b = Side::connect(&world, &alice(), Way::Tcp).await.unwrap();
    (world, dir, a, b)
}

async fn make(b: &Side, name: &str) {
    let how = CreateHow::Guarded(SetAttr::default());
    b.nfs3.create(&b.root3, name.as_bytes(), how).await.unwrap();
}

async fn status(a: &Side, name: &str, how: &OpenHow) -> Result<(), NtStatus> {
    match a.smb.open_cached(name, how).await {
        Ok((file, _)) => {
            a.smb.close(file).await.unwrap();
            Ok(())
        }
        Err(Error::Smb(_, status)) => Err(status),
        Err(other) => panic!("{name}: {other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn protocols_find_each_others_files() {
    let (world, _dir, a, b) = sides().await;
    for (at, (nfs, smb)) in PAIRS.iter().enumerate() {
        if at % 2 == 0 {
            make(&b, nfs).await;
        } else {
            let file = a.smb.create(smb).await.unwrap();
            a.smb.close(file).await.unwrap();
        }
    }
    let on_disk = std::fs::read_dir(world.folder()).unwrap();
    let on_disk: BTreeSet<String> =
        on_disk.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(on_disk, PAIRS.iter().map(|p| p.0.to_owned()).collect());
    let listed: BTreeSet<String> =
        a.smb.list("").await.unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(listed, PAIRS.iter().map(|p| p.1.to_owned()).collect());
    for (nfs, smb) in PAIRS {
        assert_eq!(status(&a, smb, &OpenHow::READ).await, Ok(()), "{smb:?}");
        b.nfs3.lookup(&b.root3, nfs.as_bytes()).await.unwrap();
    }
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_nfs_distinguishes_case() {
    let (world, _dir, a, b) = sides().await;
    make(&b, "Readme").await;
    assert_eq!(status(&a, "README", &OpenHow::READ).await, Ok(()));
    let new = OpenHow { disposition: Disposition::Create, ..OpenHow::WRITE };
    assert_eq!(status(&a, "readme", &new).await, Err(NtStatus::OBJECT_NAME_COLLISION));
    let missing = b.nfs3.lookup(&b.root3, b"readme").await;
    assert!(matches!(missing, Err(Error::Nfs3(2))), "NFS3ERR_NOENT: {missing:?}");
    // NFS may create a second one; then both protocols reach both by their exact names.
    make(&b, "readme").await;
    std::fs::write(world.folder().join("readme"), b"small").unwrap();
    for (name, size) in [("readme", 5), ("Readme", 0)] {
        let (file, _) = a.smb.open_cached(name, &OpenHow::READ).await.unwrap();
        assert_eq!(file.size, size, "{name}");
        a.smb.close(file).await.unwrap();
    }
    // Composed and decomposed letters are different names, over either protocol.
    make(&b, "u\u{308}").await;
    assert_eq!(status(&a, "\u{fc}", &OpenHow::READ).await, Err(NtStatus::OBJECT_NAME_NOT_FOUND));
    assert_eq!(status(&a, "u\u{308}", &OpenHow::READ).await, Ok(()));
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_without_share_delete_keeps_name() {
    let (world, _dir, a, b) = sides().await;
    make(&b, "kept").await;
    let no_delete = OpenHow { share: share::READ | share::WRITE, ..OpenHow::READ };
    let (file, _) = a.smb.open_cached("kept", &no_delete).await.unwrap();
    b.nfs3.remove(&b.root3, b"kept").await.unwrap_err();
    b.nfs3.rename(&b.root3, b"kept", &b.root3, b"moved").await.unwrap_err();
    b.nfs4.remove(&b.root4, b"kept").await.unwrap_err();
    b.nfs4.rename(&b.root4, b"kept", &b.root4, b"moved").await.unwrap_err();
    // Another file cannot be renamed over it either.
    make(&b, "other").await;
    b.nfs4.rename(&b.root4, b"other", &b.root4, b"kept").await.unwrap_err();
    assert!(world.folder().join("kept").exists());
    a.smb.close(file).await.unwrap();
    // An open that shares deletion lets an NFS client rename the file away (silly rename).
    let (file, _) = a.smb.open_cached("kept", &OpenHow::READ).await.unwrap();
    b.nfs4.rename(&b.root4, b"kept", &b.root4, b".nfs0001").await.unwrap();
    assert!(a.smb.read(&file, 0, 5).await.unwrap().is_empty());
    a.smb.close(file).await.unwrap();
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn state_belongs_to_file_not_name() {
    let (world, _dir, a, b) = sides().await;
    std::fs::write(world.folder().join("one"), b"12345").unwrap();
    let (fh, _) = b.nfs3.lookup(&b.root3, b"one").await.unwrap();
    b.nfs3.link(&fh, &b.root3, b"two").await.unwrap();
    let alone = OpenHow { share: 0, ..OpenHow::READ };
    let (file, _) = a.smb.open_cached("one", &alone).await.unwrap();
    assert_eq!(status(&a, "two", &OpenHow::READ).await, Err(NtStatus::SHARING_VIOLATION));
    let how = nfs4::OpenHow::READ;
    let open = b.nfs4.open(&b.root4, b"two", b"owner", how).await;
    assert!(matches!(open, Err(Error::Nfs4(_, 10015))), "NFS4ERR_SHARE_DENIED: {open:?}");
    a.smb.close(file).await.unwrap();
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn marked_file_removed_at_last_close() {
    let (world, _dir, mut a, b) = sides().await;
    std::fs::write(world.folder().join("doomed"), b"12345").unwrap();
    // An NFS client reads it under a delegation, which it returns when recalled.
    let how = nfs4::OpenHow::READ;
    let open = b.nfs4.open(&b.root4, b"doomed", b"owner", how).await.unwrap();
    let delegation = open.delegation.expect("a delegation");
    let mut b = b;
    let deleting = async {
        let mask = access::DELETE | access::READ_DATA;
        let how = OpenHow { access: mask, ..OpenHow::READ };
        let (file, _) = a.smb.open_cached("doomed", &how).await.unwrap();
        a.smb.delete_on_close(&file).await.unwrap();
        file
    };
    let giving_back = async {
        let recall = b.recalls.recv().await.expect("a recall");
        assert_eq!(recall.stateid, delegation.stateid);
        b.nfs4.delegreturn(&open.fh, delegation.stateid).await.unwrap();
    };
    let (file, ()) = tokio::join!(deleting, giving_back);
    assert_eq!(status(&a, "doomed", &OpenHow::READ).await, Err(NtStatus::DELETE_PENDING));
    assert!(world.folder().join("doomed").exists());
    a.smb.close(file).await.unwrap();
    assert!(!world.folder().join("doomed").exists());
    // An NFS client that has the file open keeps it, as after a removal over NFS.
    let read = patiently(|| b.nfs4.read(&open.fh, open.stateid, 0, 5)).await.unwrap();
    assert_eq!(read.0.iter().map(|p| p.len()).sum::<usize>(), 5);
    b.nfs4.close(&open).await.unwrap();
    assert!(a.breaks.try_recv().is_err());
    world.running.stop().await;
}
