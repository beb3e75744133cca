//! A share with a folder for each user: `path: /home/{user}`.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use client::connect::Local;
use client::smb::{Options, Smb, User};
use client::target::{Transport, Version};
use client::{Error, Result};
use config::{Access, Identity, Settings, Share, Source};
use headgate_tests::world::World;
use headgate_tests::world::smb::{alice, with_alice};
use smb_proto::smb2::Command;
use smbd_core::status::Status;
use tempfile::TempDir;

const USERS: [(&str, u32); 3] = [("bob", 2001), ("Carol", 2002), ("eve", 2003)];

/// A gateway with homes in the folder behind `data`, and three users with numbers of their own; `eve` is denied.
async fn world() -> (World, TempDir, Settings) {
    let mut kept = Settings::default();
    let (world, dir) = with_alice(|settings| {
        let Source::Folder(folder) = settings.shares[0].source.clone() else { unreachable!() };
        let deny = vec!["eve".parse().unwrap()];
        settings.shares[1] = Share {
            homes: true,
            access: Some(Access { deny, ..Access::default() }),
            ..Share::new("home", Source::Folder(folder.parent().unwrap().join("home")))
        };
        std::fs::create_dir(folder.parent().unwrap().join("home")).unwrap();
        for (name, uid) in USERS {
            let identity = Identity { uid: Some(uid), gid: Some(uid), groups: Some(vec![]) };
            let user = settings.users[0].clone();
            settings.users.push(config::User { name: name.into(), identity, ..user });
        }
        kept = settings.clone();
    })
    .await;
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(world.folder().parent().unwrap(), open).unwrap();
    (world, dir, kept)
}

fn homes(world: &World) -> PathBuf {
    world.folder().parent().unwrap().join("home")
}

async fn connect(world: &World, user: &str) -> Result<Smb> {
    let user = User { name: user.into(), ..alice() };
    let at = ("127.0.0.1", "home");
    Smb::connect(world.running.smb[0], false, at, &user, Options::default(), &Local::default())
        .await
}

fn refused(status: Status) -> Option<Error> {
    Some(Error::Smb(Command::TreeConnect, status))
}

async fn names(smb: &Smb, folder: &str) -> Vec<String> {
    let names = smb.list(folder).await.unwrap().into_iter().map(|entry| entry.name);
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: only root has other users to be");
    }
    is_root
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_user_has_a_folder_of_its_own_and_sees_that_one_alone() {
    if !is_root() {
        return;
    }
    let (world, _dir, _) = world().await;
    let bob = connect(&world, "bob").await.unwrap();
    // By the name of the account, however it is typed.
    let carol = connect(&world, "CAROL").await.unwrap();
    for (name, uid) in [("bob", 2001), ("Carol", 2002)] {
        let made = std::fs::metadata(homes(&world).join(name)).unwrap();
        assert_eq!((made.uid(), made.gid(), made.mode() & 0o7777), (uid, uid, 0o700), "{name}");
    }
    let file = bob.create("note").await.unwrap();
    assert_eq!(bob.path(&file).await.unwrap(), "note");
    bob.rename(&file, "told", false).await.unwrap();
    assert_eq!(bob.path(&file).await.unwrap(), "told");
    bob.close(file).await.unwrap();
    assert_eq!(names(&bob, "").await, ["told"]);
    assert!(homes(&world).join("bob/told").exists());
    assert!(names(&carol, "").await.is_empty());
    for path in ["bob", r"..\bob", r"Carol"] {
        assert!(carol.find(path).await.is_err(), "{path}");
    }
    // By NFS it is the folder with all of them, and modes decide.
    let nfs = world.client("home", (Version::V42, Transport::Tcp)).await.unwrap();
    let mut listed = nfs.list().await.unwrap();
    listed.retain(|name| !name.starts_with(b"."));
    listed.sort();
    assert_eq!(listed, [&b"Carol"[..], b"bob"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_come_has_no_folder_made() {
    if !is_root() {
        return;
    }
    let (mut world, _dir, mut settings) = world().await;
    assert_eq!(connect(&world, "eve").await.err(), refused(Status::ACCESS_DENIED));
    std::os::unix::fs::symlink("/etc", homes(&world).join("bob")).unwrap();
    assert_eq!(connect(&world, "bob").await.err(), refused(Status::BAD_NETWORK_NAME));
    settings.shares[1].read_only = true;
    world.running.reload(settings.clone()).await.unwrap();
    assert_eq!(connect(&world, "carol").await.err(), refused(Status::BAD_NETWORK_NAME));
    let made = std::fs::read_dir(homes(&world)).unwrap();
    let made =
        made.map(|e| e.unwrap().file_name()).filter(|n| !n.to_string_lossy().starts_with('.'));
    assert_eq!(made.collect::<Vec<_>>(), ["bob"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_that_has_homes_no_more_ends_its_tree_connects() {
    if !is_root() {
        return;
    }
    let (mut world, _dir, mut settings) = world().await;
    let bob = connect(&world, "bob").await.unwrap();
    bob.create("mine").await.unwrap();
    settings.shares[1].homes = false;
    let changes = world.running.reload(settings).await.unwrap();
    assert_eq!((changes.shares_changed, changes.trees_ended), (vec!["home".into()], 1));
    assert!(bob.find("mine").await.is_err());
    let whole = connect(&world, "bob").await.unwrap();
    assert_eq!(names(&whole, "").await, ["bob"]);
    assert_eq!(names(&whole, "bob").await, ["mine"]);
}
