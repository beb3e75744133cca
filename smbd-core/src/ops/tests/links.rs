//! Files with several links: an open refers to the link through which it was opened (MS-FSA section 2.1.5.5).

use vfs::Acting;
use vfs::{Cred, NodeRef, SetAttr};

use super::authority::{ANN, BOB, folder, give, owner_of, with};
use super::info::{set, to};
use crate::dtyp::{Ace, Sid, mask};
use crate::fscc::set::{Set, disposition, rename};
use crate::harness::{Harness, doom};
use crate::open::FileId;
use crate::security::sid_of_uid;
use crate::status::Status;
use crate::wire::create::Disposition;

const DELETE: Set = Set::Disposition { flags: disposition::DELETE, ex: false };
const POSIX: Set =
    Set::Disposition { flags: disposition::DELETE | disposition::POSIX_SEMANTICS, ex: true };

/// Creates Ann's folder with her file `x`, and Bob's folder in which the same file has the name `l`.
async fn linked(harness: &Harness, names: [&str; 2]) -> [NodeRef; 2] {
    let anns = folder(harness, names[0], ANN, 0o755).await;
    let bobs = folder(harness, names[1], BOB, 0o755).await;
    let root = Cred::root();
    let (x, _) = anns.lookup(&root, b"x").await.unwrap();
    x.link(Acting::caller(&root), bobs.as_ref(), b"l").await.unwrap();
    [anns, bobs]
}

#[tokio::test]
async fn a_delete_takes_the_name_that_was_opened_and_no_other() {
    use std::os::unix::fs::PermissionsExt;
    use vfs::local::{LocalBackend, LocalConfig};
    removed_by_its_name(&Harness::new()).await;
    // On a local disk the server can find the remaining link.
    if !rustix::process::geteuid().is_root() {
        println!("skipped: serving callers as themselves needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let backend = LocalBackend::open(LocalConfig::new(dir.path())).unwrap();
    removed_by_its_name(&Harness::on(backend, None)).await;
}

async fn removed_by_its_name(harness: &Harness) {
    let (bob, root) = (harness.client_as(BOB), Cred::root());
    let ns = &harness.core.namespace;
    let share = &ns.shares()[0];
    for how in 0..3 {
        let names = [format!("anns{how}"), format!("bobs{how}")];
        let [anns, bobs] = linked(harness, [&names[0], &names[1]]).await;
        let name = format!("{}\\l", names[1]);
        let other = with(&bob, &name, mask::DELETE).await.unwrap();
        let marked = with(&bob, &name, mask::DELETE).await.unwrap();
        let doomed = bob.create(&name, |r| {
            doom(r);
            (r.access, r.disposition) = (mask::DELETE, Disposition::Open as u32);
        });
        let doomed = doomed.await.unwrap().file;
        match how {
            0 => {
                assert_eq!(set(&bob, other, POSIX).await, Status::SUCCESS);
                assert_eq!(bob.close(other).await, Status::SUCCESS);
            }
            1 => drop(ns.by(None).unlink(share, &bobs, &root, b"l").await.unwrap()),
            _ => drop(bobs.unlink(Acting::caller(&root), b"l").await.unwrap()),
        }
        assert_eq!((owner_of(&bobs, b"l").await, owner_of(&anns, b"x").await), (None, Some(ANN)));
        let moved = set(&bob, marked, Set::Rename(to(&format!("{}\\m", names[1]), 0))).await;
        assert_eq!(moved, Status::OBJECT_NAME_NOT_FOUND, "{how}");
        for what in [DELETE, POSIX] {
            assert_eq!(set(&bob, marked, what).await, Status::OBJECT_NAME_NOT_FOUND, "{how}");
        }
        for open in [marked, doomed] {
            assert_eq!(bob.close(open).await, Status::SUCCESS);
        }
        assert_eq!(owner_of(&anns, b"x").await, Some(ANN), "{how}: it was not opened by this name");
    }
}

/// The file system treats two links as one file, and checks no permission when one is renamed to the other.
#[tokio::test]
async fn a_name_of_the_same_file_gives_way_to_whoever_may_remove_it() {
    let harness = Harness::new();
    let bob = harness.client_as(BOB);
    let [anns, bobs] = linked(&harness, ["anns", "bobs"]).await;
    let f = with(&bob, "bobs\\l", mask::DELETE).await.unwrap();
    let over = || Set::Rename(to("anns\\x", rename::REPLACE_IF_EXISTS));
    assert_eq!(set(&bob, f, over()).await, Status::ACCESS_DENIED);
    assert_eq!((owner_of(&bobs, b"l").await, owner_of(&anns, b"x").await), (Some(ANN), Some(ANN)));
    let bits = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    anns.setattr(&Cred::root(), bits(0o1777), false).await.unwrap();
    assert_eq!(set(&bob, f, over()).await, Status::ACCESS_DENIED, "a sticky folder");
    // The same rename over NFS does not change anything, so the tracked paths stay too.
    let (ns, cred) = (
        &harness.core.namespace,
        Cred { uid: BOB, gid: BOB, groups: [].into(), token: vfs::Token::NONE },
    );
    let (share, file_ops) = (&ns.shares()[0], ns.by(None));
    file_ops.rename(share, &bobs, &cred, b"l", &anns, b"x").await.unwrap();
    anns.setattr(&Cred::root(), bits(0o777), false).await.unwrap();
    assert_eq!(set(&bob, f, over()).await, Status::SUCCESS);
    assert_eq!((owner_of(&bobs, b"l").await, owner_of(&anns, b"x").await), (None, Some(ANN)));
    assert_eq!(set(&bob, f, DELETE).await, Status::SUCCESS);
    bob.close(f).await;
    assert_eq!(owner_of(&anns, b"x").await, None, "it stands there by a right that was judged");
}

/// Access from the folder's list does not apply after a host process has moved the file: to the server this looks like another link
/// whose original was removed.
#[tokio::test]
async fn what_the_host_has_moved_goes_by_its_users_own_rights() {
    let harness = Harness::new();
    let (ann, bob, root) = (harness.client_as(ANN), harness.client_as(BOB), Cred::root());
    let from = folder(&harness, "from", ANN, 0o777).await;
    let shut = folder(&harness, "shut", ANN, 0o755).await;
    let free = folder(&harness, "free", BOB, 0o755).await;
    let open = async |name: &str| -> FileId {
        let set = SetAttr { mode: Some(0o666), uid: Some(ANN), ..SetAttr::default() };
        let how = vfs::CreateHow::Guarded;
        from.create(Acting::caller(&root), name.as_bytes(), how, set).await.unwrap();
        with(&bob, &format!("from\\{name}"), mask::DELETE).await.unwrap()
    };
    let moves = async |name: &str, to: &NodeRef| {
        let name = name.as_bytes();
        from.rename(Acting::caller(&root), name, to.as_ref(), name, false).await.unwrap();
    };
    for (to, told) in [(&shut, Status::ACCESS_DENIED), (&free, Status::SUCCESS)] {
        let [marked, before] = [open("marked").await, open("before").await];
        assert_eq!(set(&bob, before, DELETE).await, Status::SUCCESS);
        for name in ["marked", "before"] {
            moves(name, to).await;
        }
        assert_eq!(set(&bob, marked, DELETE).await, told);
        for f in [marked, before] {
            bob.close(f).await;
        }
        let stays = (told != Status::SUCCESS).then_some(ANN);
        for name in [&b"marked"[..], b"before"] {
            assert_eq!(owner_of(to, name).await, stays);
        }
    }
    // The file's own list applies everywhere.
    let f = open("listed").await;
    bob.close(f).await;
    give(&ann, "from\\listed", vec![Ace::allow(sid_of_uid(BOB), mask::DELETE, 0)]).await;
    let f = with(&bob, "from\\listed", mask::DELETE).await.unwrap();
    moves("listed", &shut).await;
    assert_eq!(set(&bob, f, DELETE).await, Status::SUCCESS);
    bob.close(f).await;
    assert_eq!(owner_of(&shut, b"listed").await, None);
}

/// The handle of a newly created file does not count as its access control list either.
#[tokio::test]
async fn whoever_made_a_file_does_not_take_it_from_where_the_host_has_put_it() {
    let harness = Harness::new();
    let (ann, bob, root) = (harness.client_as(ANN), harness.client_as(BOB), Cred::root());
    let drop_box = folder(&harness, "box", ANN, 0o700).await;
    let shut = folder(&harness, "shut", ANN, 0o755).await;
    let own = Ace::allow(sid_of_uid(ANN), mask::FILE_ALL, 3);
    let adds = Ace::allow(sid_of_uid(BOB), mask::WRITE_DATA | mask::EXECUTE, 0);
    // Makers get almost no access to their new files.
    let makers = Ace::allow(Sid::creator_owner(), mask::READ_CONTROL, 3);
    give(&ann, "box", vec![own, adds, makers]).await;
    for mark in [true, false] {
        let f = bob.create("box\\n", |r| {
            (r.access, r.disposition) = (mask::DELETE, Disposition::Create as u32);
        });
        let f = f.await.unwrap().file;
        let by = Acting::caller(&root);
        drop_box.rename(by, b"n", shut.as_ref(), b"n", false).await.unwrap();
        let told = match mark {
            true => set(&bob, f, DELETE).await,
            false => set(&bob, f, Set::Rename(to("box\\m", 0))).await,
        };
        assert_eq!(told, Status::ACCESS_DENIED);
        bob.close(f).await;
        assert_eq!(owner_of(&shut, b"n").await, Some(BOB));
        shut.unlink(Acting::caller(&root), b"n").await.unwrap();
    }
}

/// An NFS client with the permission moved the file before it was marked for deletion: the open follows the new name.
#[tokio::test]
async fn what_a_client_of_nfs_has_moved_goes_by_the_right_of_the_open() {
    let harness = Harness::new();
    let (bob, root) = (harness.client_as(BOB), Cred::root());
    let from = folder(&harness, "from", ANN, 0o777).await;
    let shut = folder(&harness, "shut", ANN, 0o755).await;
    let f = with(&bob, "from\\x", mask::DELETE).await.unwrap();
    let ns = &harness.core.namespace;
    let share = &ns.shares()[0];
    ns.by(None).rename(share, &from, &root, b"x", &shut, b"y").await.unwrap();
    assert_eq!(set(&bob, f, DELETE).await, Status::SUCCESS);
    bob.close(f).await;
    assert_eq!(owner_of(&shut, b"y").await, None);
}

/// A link added after the open is not the opened link, no matter who added it.
#[tokio::test]
async fn a_name_that_came_later_is_not_the_one_that_was_opened() {
    let harness = Harness::new();
    let (ann, bob, root) = (harness.client_as(ANN), harness.client_as(BOB), Cred::root());
    let from = folder(&harness, "from", ANN, 0o777).await;
    let kept = folder(&harness, "kept", BOB, 0o777).await;
    let ns = &harness.core.namespace;
    let share = &ns.shares()[0];
    for (by_nfs, name) in [(true, "a"), (false, "b")] {
        let path = format!("from\\{name}");
        let made = ann.open(&path).await;
        let f = with(&bob, &path, mask::DELETE).await.unwrap();
        if by_nfs {
            let (node, _) = from.lookup(&root, name.as_bytes()).await.unwrap();
            ns.by(None).link(share, &node, &root, &kept, name.as_bytes()).await.unwrap();
        } else {
            let link = Set::Link(to(&format!("kept\\{name}"), 0));
            assert_eq!(set(&ann, made, link).await, Status::SUCCESS);
        }
        ann.close(made).await;
        from.unlink(Acting::caller(&root), name.as_bytes()).await.unwrap();
        // Bob may delete here, but this is not the link that he opened.
        assert_eq!(set(&bob, f, DELETE).await, Status::OBJECT_NAME_NOT_FOUND, "{name}");
        bob.close(f).await;
        assert_eq!(owner_of(&kept, name.as_bytes()).await, Some(ANN), "{name}");
    }
}
