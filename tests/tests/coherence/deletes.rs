//! A file that an SMB client has marked for deletion, used by NFS clients until the last close. Operations that were acknowledged
//! must persist, and an acknowledged deletion must happen.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use client::nfs3::{CreateHow, Fh, SetAttr, Stable};
use client::nfs4::{OpenHow, StableHow4, Stateid};
use client::smb::{OpenHow as SmbHow, SmbFile, User};
use client::{Error, Result};
use config::Identity;
use headgate_tests::world::smb::{alice, with_alice};
use headgate_tests::world::{World, buf};
use smb_proto::smb2::create::access;

use crate::side::{Side, Way, patiently};

/// `NFS3ERR_ACCES` (RFC 1813 section 2.6).
const ACCES: u32 = 13;
/// `NFS4ERR_FILE_OPEN` (RFC 8881 section 15.1.4.3).
const FILE_OPEN: u32 = 10046;
const FILE_SYNC: StableHow4 = StableHow4::FileSync;
/// A user who is not the superuser.
const ANN: u32 = 4711;
const DATA: &[u8] = b"data of a file";

async fn sides() -> (World, tempfile::TempDir, Side, Side) {
    let (world, dir) = with_alice(|_| ()).await;
    let a = Side::connect(&world, &alice(), Way::Tcp).await.unwrap();
    let b = Side::connect(&world, &alice(), Way::Tcp).await.unwrap();
    (world, dir, a, b)
}

/// Opens the file as an SMB client does before deleting it.
async fn open_to_delete(side: &Side, name: &str) -> SmbFile {
    let how = SmbHow { access: SmbHow::READ.access | access::DELETE, ..SmbHow::READ };
    side.smb.open_cached(name, &how).await.unwrap().0
}

async fn create(side: &Side, name: &str) -> Result<Fh> {
    let how = CreateHow::Unchecked(SetAttr::default());
    side.nfs3.create(&side.root3, name.as_bytes(), how).await.map(|made| made.0)
}

fn refused(what: &str, done: Result<()>) {
    let named = matches!(done, Err(Error::Nfs3(ACCES) | Error::Nfs4(_, FILE_OPEN)));
    assert!(named, "{what}: {done:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn marked_file_accepts_no_nfs_changes() {
    let (world, _dir, a, b) = sides().await;
    fs::write(a.folder.join("f"), DATA).unwrap();
    let (fh, _) = b.nfs3.lookup(&b.root3, b"f").await.unwrap();
    let (fh4, _) = b.nfs4.lookup(&b.root4, b"f").await.unwrap();
    let how = OpenHow { want: OpenHow::WANT_NO_DELEG, ..OpenHow::WRITE };
    let before = b.nfs4.open(&b.root4, b"f", b"before", how).await.unwrap();
    let marked = open_to_delete(&a, "f").await;
    a.smb.delete_on_close(&marked).await.unwrap();

    refused("CREATE", create(&b, "f").await.map(drop));
    let data = || vec![buf(b"to nobody")];
    refused("WRITE", b.nfs3.write(&fh, 0, data(), Stable::File).await.map(drop));
    let cut = SetAttr { size: Some(0), ..SetAttr::default() };
    refused("SETATTR", b.nfs3.setattr(&fh, &cut).await);
    refused("OPEN", b.nfs4.open(&b.root4, b"f", b"after", how).await.map(drop));
    let anonymous = b.nfs4.write(&fh4, Stateid::ANONYMOUS, 0, data(), FILE_SYNC);
    refused("WRITE without an open", anonymous.await.map(drop));
    let read = b.nfs3.read(&fh, 0, 100).await.unwrap();
    assert_eq!(read.data.iter().flat_map(|d| d.to_vec()).collect::<Vec<_>>(), DATA);
    // Clients that have the file open keep it, as a removed file.
    b.nfs4.write(&before.fh, before.io(), 0, data(), FILE_SYNC).await.unwrap();

    a.smb.close(marked).await.unwrap();
    assert!(!a.folder.join("f").exists());
    let fresh = create(&b, "f").await.unwrap();
    b.nfs3.write(&fresh, 0, data(), Stable::File).await.unwrap();
    b.nfs4.close(&before).await.unwrap();
    assert_eq!(fs::read(a.folder.join("f")).unwrap(), b"to nobody");
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawn_mark_allows_opens() {
    let (world, _dir, a, b) = sides().await;
    fs::write(a.folder.join("f"), DATA).unwrap();
    let marked = open_to_delete(&a, "f").await;
    a.smb.delete_on_close(&marked).await.unwrap();
    refused("CREATE", create(&b, "f").await.map(drop));
    a.smb.keep(&marked).await.unwrap();
    create(&b, "f").await.unwrap();
    a.smb.close(marked).await.unwrap();
    assert_eq!(fs::read(a.folder.join("f")).unwrap(), DATA);
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn create_during_close_makes_new_file() {
    let (world, _dir, a, b) = sides().await;
    for round in 0..20 {
        let name = format!("f{round}");
        fs::write(a.folder.join(&name), DATA).unwrap();
        let marked = open_to_delete(&a, &name).await;
        a.smb.delete_on_close(&marked).await.unwrap();
        let (made, closed) = tokio::join!(create(&b, &name), a.smb.close(marked));
        closed.unwrap();
        // On a busy machine the close may come later than the NFS server waits for it.
        let made = match made {
            Err(Error::Nfs3(ACCES)) => create(&b, &name).await,
            made => made,
        };
        patiently(|| async { b.nfs3.getattr(made.as_ref().unwrap()).await }).await.unwrap();
        assert_eq!(fs::read(a.folder.join(&name)).unwrap(), b"");
    }
    world.running.stop().await;
}

/// A file with two links, so that its node does not tell which name must be removed.
#[tokio::test(flavor = "multi_thread")]
async fn renamed_name_is_deleted() {
    let (world, _dir, a, b) = sides().await;
    fs::create_dir(a.folder.join("d")).unwrap();
    let (d, _) = b.nfs3.lookup(&b.root3, b"d").await.unwrap();
    for (marked_first, name) in [(true, "f"), (false, "g")] {
        let other = format!("other-{name}");
        fs::write(a.folder.join(name), DATA).unwrap();
        fs::hard_link(a.folder.join(name), a.folder.join(&other)).unwrap();
        let marked = open_to_delete(&a, name).await;
        if marked_first {
            a.smb.delete_on_close(&marked).await.unwrap();
        }
        patiently(|| b.nfs3.rename(&b.root3, name.as_bytes(), &d, b"moved")).await.unwrap();
        let answered = marked_first || a.smb.delete_on_close(&marked).await.is_ok();
        a.smb.close(marked).await.unwrap();
        assert_eq!(a.folder.join("d/moved").exists(), !answered, "{name}: answered and done");
        assert_eq!(fs::read(a.folder.join(&other)).unwrap(), DATA);
    }
    world.running.stop().await;
}

/// Permission to delete was checked at the open, and the deletion was acknowledged. Another client moves the file into a folder
/// that grants that user neither deletion nor look-up.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_delete_survives_move() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: serving callers as themselves needs root");
        return;
    }
    let (world, _dir) = with_alice(|settings| {
        let mut ann = settings.users[0].clone();
        ann.name = "ann".into();
        ann.identity = Identity { uid: Some(ANN), gid: Some(ANN), groups: Some(Vec::new()) };
        settings.users.push(ann);
    })
    .await;
    let user = User { name: "ann".into(), ..alice() };
    let a = Side::connect(&world, &user, Way::Tcp).await.unwrap();
    let b = Side::connect(&world, &alice(), Way::Tcp).await.unwrap();
    let top = a.folder.parent().unwrap();
    fs::set_permissions(top, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&a.folder, Permissions::from_mode(0o777)).unwrap();
    for (to, mode) in [("closed", 0o700), ("shown", 0o755), ("sticky", 0o1777)] {
        fs::create_dir(a.folder.join(to)).unwrap();
        fs::set_permissions(a.folder.join(to), Permissions::from_mode(mode)).unwrap();
        let (dir, _) = b.nfs3.lookup(&b.root3, to.as_bytes()).await.unwrap();
        for (name, marked_first) in [("f", true), ("g", false)] {
            fs::write(a.folder.join(name), DATA).unwrap();
            let marked = open_to_delete(&a, name).await;
            if marked_first {
                a.smb.delete_on_close(&marked).await.unwrap();
            }
            patiently(|| b.nfs3.rename(&b.root3, name.as_bytes(), &dir, b"x")).await.unwrap();
            let moved = a.folder.join(to).join("x");
            assert!(moved.exists(), "{name} in {to}");
            if !marked_first {
                a.smb.delete_on_close(&marked).await.unwrap();
            }
            a.smb.close(marked).await.unwrap();
            assert!(!moved.exists(), "{name} in {to}: answered and done");
        }
        // Another file that has the name by then must not be deleted.
        fs::write(a.folder.join("f"), DATA).unwrap();
        let marked = open_to_delete(&a, "f").await;
        a.smb.delete_on_close(&marked).await.unwrap();
        patiently(|| b.nfs3.rename(&b.root3, b"f", &dir, b"x")).await.unwrap();
        fs::rename(a.folder.join(to).join("x"), top.join("outside")).unwrap();
        fs::write(a.folder.join(to).join("x"), b"another's").unwrap();
        a.smb.close(marked).await.unwrap();
        assert_eq!(fs::read(a.folder.join(to).join("x")).unwrap(), b"another's");
        fs::remove_file(top.join("outside")).unwrap();
    }
    world.running.stop().await;
}
