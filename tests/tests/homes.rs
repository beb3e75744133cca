//! A share with a folder for each user: `path: /home/{user}`.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;

use client::connect::Local;
use client::smb::{Caching, Options, Smb, User};
use client::target::{Transport, Version};
use client::{Error, Result};
use config::{Access, Identity, Settings, Share, Source};
use headgate_tests::world::World;
use headgate_tests::world::smb::{alice, with_alice};
use smb_proto::NtStatus;
use smb_proto::smb2::Command;
use tempfile::TempDir;

/// The store of a stopped gateway is free within this time.
const SOON: Duration = Duration::from_secs(30);
const USERS: [(&str, u32); 3] = [("bob", 2001), ("Carol", 2002), ("eve", 2003)];

/// A gateway with homes in the folder behind `data`, and three users with separate ids; `eve` is denied.
async fn world() -> (World, TempDir, Settings) {
    let mut kept = Settings::default();
    let (world, dir) = with_alice(|settings| {
        let Source::Folder(folder) = settings.shares[0].source.clone() else { unreachable!() };
        let deny = vec!["eve".parse().unwrap()];
        settings.shares[1] = Share {
            homes: true,
            continuous_availability: true,
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
    connect_again(world, user, 0).await
}

/// Reconnects from the machine of this user, which has lost the connection of that session.
async fn connect_again(world: &World, user: &str, previous_session: u64) -> Result<Smb> {
    let machine = Some([user.as_bytes()[0]; 16]);
    let options = Options { machine, previous_session, ..Options::default() };
    let user = User { name: user.into(), ..alice() };
    let at = ("127.0.0.1", "home");
    Smb::connect(world.running.smb[0], false, at, &user, options, &Local::default()).await
}

fn refused(status: NtStatus) -> Option<Error> {
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
async fn user_sees_own_home_only() {
    if !is_root() {
        return;
    }
    let (world, _dir, _) = world().await;
    let bob = connect(&world, "bob").await.unwrap();
    // The folder has the name of the account, however the user types it.
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
    // Over NFS the share is the folder with all homes, and modes decide.
    let nfs = world.client("home", (Version::V42, Transport::Tcp)).await.unwrap();
    let mut listed = nfs.list().await.unwrap();
    listed.retain(|name| !name.starts_with(b"."));
    listed.sort();
    assert_eq!(listed, [&b"Carol"[..], b"bob"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denied_user_gets_no_home() {
    if !is_root() {
        return;
    }
    let (mut world, _dir, mut settings) = world().await;
    assert_eq!(connect(&world, "eve").await.err(), refused(NtStatus::ACCESS_DENIED));
    std::os::unix::fs::symlink("/etc", homes(&world).join("bob")).unwrap();
    assert_eq!(connect(&world, "bob").await.err(), refused(NtStatus::BAD_NETWORK_NAME));
    settings.shares[1].read_only = true;
    world.running.reload(settings.clone()).await.unwrap();
    assert_eq!(connect(&world, "carol").await.err(), refused(NtStatus::BAD_NETWORK_NAME));
    let made = std::fs::read_dir(homes(&world)).unwrap();
    let made =
        made.map(|e| e.unwrap().file_name()).filter(|n| !n.to_string_lossy().starts_with('.'));
    assert_eq!(made.collect::<Vec<_>>(), ["bob"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn home_handle_survives_restart() {
    if !is_root() {
        return;
    }
    let (mut world, _dir, settings) = world().await;
    let bob = connect(&world, "BOB").await.unwrap();
    let guid = [1; 16];
    let (file, _) = bob.open_persistent("kept", guid, Caching::None).await.unwrap();
    let paths = async |world: &World| {
        let held = world.running.held_files().await.files;
        held.into_iter().map(|file| file.path.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(paths(&world).await, ["bob/kept"]);
    let session = bob.session();
    world.running.stop().await;
    // Tasks of ending connections hold the store until they are finished.
    let again = async {
        loop {
            match gateway::serve::start(settings.clone()).await {
                Ok(running) => return running,
                Err(why) => assert!(why.contains("is in use"), "{why}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    world.running = tokio::time::timeout(SOON, again).await.expect("the store is free");
    assert_eq!(paths(&world).await, ["bob/kept"], "it waits for its client");
    let bob = connect_again(&world, "BOB", session).await.unwrap();
    let (file, _) = bob.take_up("kept", guid, Some(&file), Caching::None).await.unwrap();
    assert_eq!(bob.path(&file).await.unwrap(), "kept");
    bob.close(file).await.unwrap();
    bob.unlink("kept").await.unwrap();
    assert!(!homes(&world).join("bob/kept").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removing_homes_ends_tree_connects() {
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
