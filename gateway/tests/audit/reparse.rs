//! Records of reparse points, in each form in which the gateway keeps them, and of hard links that replace a file.

use client::smb::{Options, Smb};
use smb_proto::smb2::create::{Disposition, access, option};
use smb_proto::smb2::fsctl::code::{DELETE_REPARSE_POINT, SET_REPARSE_POINT};
use smb_proto::smb2::reparse::{Buffer, Reparse};

use super::{AUDITED, PASSWORD, World, and, assert_whole, file, records};

const REPARSE: (&str, &str) = ("what", "reparse");

/// Sets a reparse point, changes it, and removes it.
async fn set_and_remove(files: &Smb, name: &str, points: [&[u8]; 2]) {
    let rights = access::WRITE_ATTRIBUTES | access::READ_ATTRIBUTES;
    let of_itself = option::OPEN_REPARSE_POINT;
    let f = files.open(name, rights, Disposition::Open, of_itself).await.unwrap();
    for point in points {
        files.control(&f, SET_REPARSE_POINT, point).await.unwrap();
    }
    let mut owner = points[0][..8].to_vec();
    owner[4..].fill(0);
    files.control(&f, DELETE_REPARSE_POINT, &owner).await.unwrap();
    files.close(f).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_change_of_a_reparse_point_is_recorded_once() {
    let world = World::start("", AUDITED);
    let files = world.daemon.smb("team", "alice", PASSWORD, Options::default()).await.unwrap();
    let data = |len| Buffer { tag: 0x8000_0013, guid: None, data: &vec![1; len] }.emit();
    let link = |target: &str, relative| Reparse::Symlink { target: target.into(), relative }.emit();
    for (name, contents, points) in [
        ("kept", &b"contents"[..], [data(8), data(100)]),
        ("empty", b"", [data(8), data(100)]),
        ("relative", b"", [link("a", true), link("b", true)]),
        ("absolute", b"", [link("\\??\\C:\\a", false), link("\\??\\C:\\b", false)]),
        // A link that cannot take the place of its file.
        ("filled", b"contents", [link("a", true), link("\\??\\C:\\b", false)]),
        ("pipe", b"", [Reparse::NfsFifo.emit(), Reparse::NfsSocket.emit()]),
    ] {
        let f = files.create(name).await.unwrap();
        if !contents.is_empty() {
            files.write(&f, 0, vec![iobuf::Buf::from(contents.to_vec())]).await.unwrap();
        }
        files.close(f).await.unwrap();
        set_and_remove(&files, name, [&points[0], &points[1]]).await;
        files.unlink(name).await.unwrap();
        // Records are in order, so that all of the reparse point are there.
        world.event("delete", &file("smb", name));
        let all = records(&world.path());
        let of_it = all.iter().filter(|r| r["path"] == name && r["event"] == "attributes");
        let whats: Vec<_> = of_it.map(|r| (r["what"].clone(), r["result"].clone())).collect();
        assert_eq!(whats, vec![("reparse".into(), "ok".into()); 3], "{name}");
        world.event("attributes", &and(file("smb", name), REPARSE));
    }
    // A request that fails before it changes anything has no record, as any invalid request.
    let f = files.create("refused").await.unwrap();
    assert!(files.control(&f, SET_REPARSE_POINT, &data(8)[..7]).await.is_err());
    files.close(f).await.unwrap();
    files.unlink("refused").await.unwrap();
    world.event("delete", &file("smb", "refused"));
    let count = records(&world.path()).iter().filter(|r| r["what"] == "reparse").count();
    assert_eq!(count, 6 * 3);
    assert_whole(&world);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hard_link_over_a_file_is_recorded() {
    let world = World::start("", AUDITED);
    let files = world.daemon.smb("team", "alice", PASSWORD, Options::default()).await.unwrap();
    let f = files.create("f").await.unwrap();
    for (name, replace) in [("new", false), ("old", true)] {
        if replace {
            let old = files.create(name).await.unwrap();
            files.close(old).await.unwrap();
        }
        files.link(&f, name, replace).await.unwrap();
        world.event("create", &and(file("smb", name), ("kind", "name")));
    }
    files.close(f).await.unwrap();
    assert_whole(&world);
}
