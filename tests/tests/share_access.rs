//! The key `access` of a share, over every protocol.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;

use client::connect::{self, Local};
use client::nfs3::{Fh, Nfs3};
use client::nfs4::{Minor, Nfs4};
use client::smb::{Options, Smb, User};
use client::target::{Transport, Version};
use client::{Credential, Error, NoCallbacks, Result, Volume, mount};
use config::{Access, Client, Identity, Settings, Share, Who};
use headgate_tests::world::World;
use headgate_tests::world::smb::{alice, with_alice};
use smb_proto::NtStatus;
use smb_proto::smb2::Command;
use smb_proto::smb2::create::{Disposition, option};
use smbd_core::dtyp::mask;
use tempfile::TempDir;

const READER: u32 = 2001;
const WRITER: u32 = 2002;
const DENIED: u32 = 2003;
const STRANGER: u32 = 2004;
/// Number of the operation (RFC 8881 section 16.2).
const READ: u32 = 25;
/// Group of readers.
const READERS: u32 = 2100;
const USERS: [(&str, u32); 4] =
    [("reader", READER), ("writer", WRITER), ("denied", DENIED), ("stranger", STRANGER)];

const NFS: [(Version, Transport); 3] = [
    (Version::V3, Transport::Tcp),
    (Version::V41, Transport::Tcp),
    (Version::V42, Transport::Rdma),
];

fn access(read: &[&str], write: &[&str], deny: &[&str]) -> Access {
    let who = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
    Access { read: who(read), write: who(write), deny: who(deny), ..Access::default() }
}

/// A gateway whose share `data` lists its users; all users may access a folder in it and a file.
async fn world(access: Access) -> (World, TempDir, Settings) {
    let mut kept = Settings::default();
    let (world, dir) = with_alice(|settings| {
        settings.shares[0].access = Some(access);
        for (name, uid) in USERS {
            let groups = if name == "stranger" { vec![] } else { vec![READERS] };
            let identity = Identity { uid: Some(uid), gid: Some(uid), groups: Some(groups) };
            let user = settings.users[0].clone();
            settings.users.push(config::User { name: name.into(), identity, ..user });
        }
        kept = settings.clone();
    })
    .await;
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let folder = world.folder();
    open(folder.parent().unwrap(), 0o755);
    open(&folder, 0o777);
    std::fs::write(folder.join("file"), "text").unwrap();
    open(&folder.join("file"), 0o666);
    std::fs::create_dir(folder.join("below")).unwrap();
    open(&folder.join("below"), 0o777);
    (world, dir, kept)
}

fn credential(uid: u32) -> Credential {
    let groups: &[u32] = if uid == STRANGER { &[] } else { &[READERS] };
    Credential::sys(uid, uid, groups)
}

async fn volume(world: &World, way: (Version, Transport), cred: Credential) -> Result<Volume> {
    let rdma = rdma_transport::iwarp::Iwarp::new(rdma_transport::iwarp::IwarpConfig::default());
    let local = Local { rdma: Some(Arc::new(rdma)), ..Local::default() };
    Volume::open(&world.target("data", way), &local, cred).await
}

async fn smb(world: &World, name: &str) -> Result<Smb> {
    let (at, share) = (world.running.smb[0], ("127.0.0.1", "data"));
    let user = User { name: name.into(), ..alice() };
    Smb::connect(at, false, share, &user, Options::default(), &Local::default()).await
}

fn is_root() -> bool {
    let yes = rustix::process::geteuid().is_root();
    if !yes {
        println!("skipped: serving callers as themselves needs root");
    }
    yes
}

fn counted(rule: &str) -> u64 {
    rdma_transport::refused::counts().iter().find(|(r, _)| *r == rule).map_or(0, |(_, n)| *n)
}

/// Reads a file and creates one; returns which of the two was allowed.
async fn by_nfs(volume: &Volume, name: &str) -> (bool, bool) {
    let allowed = |done: Result<()>| match done {
        Ok(()) => true,
        Err(Error::Nfs3(13 | 30) | Error::Nfs4(_, 13 | 30)) => false,
        Err(e) => panic!("{e}"),
    };
    let read = async {
        let file = volume.find("file").await?;
        volume.read(&file, 0, 4).await?;
        volume.close(file).await
    };
    let read = allowed(read.await);
    let made = async { volume.close(volume.create(name).await?).await };
    (read, allowed(made.await))
}

async fn by_smb(smb: &Smb, name: &str) -> (bool, bool) {
    let allowed = |done: Result<()>| match done {
        Ok(()) => true,
        Err(Error::Smb(_, NtStatus::ACCESS_DENIED | NtStatus::MEDIA_WRITE_PROTECTED)) => false,
        Err(e) => panic!("{e}"),
    };
    let read = async {
        let file = smb.find("file").await?;
        smb.read(&file, 0, 4).await?;
        smb.close(file).await
    };
    let read = allowed(read.await);
    let made = async { smb.close(smb.create(name).await?).await };
    (read, allowed(made.await))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_lists_are_enforced() {
    if !is_root() {
        return;
    }
    let named = access(&["reader", "@2100"], &["writer"], &["denied"]);
    let (world, _dir, _) = world(named).await;
    for (name, uid) in USERS {
        let wanted = match uid {
            READER => (true, false),
            WRITER => (true, true),
            _ => (false, false),
        };
        for (n, way) in NFS.into_iter().enumerate() {
            // Even a refused user can mount, because clients mount as root.
            let volume = volume(&world, way, credential(uid)).await.unwrap();
            assert_eq!(by_nfs(&volume, &format!("{name}{n}")).await, wanted, "{name} {way:?}");
        }
        match smb(&world, name).await {
            Ok(smb) => assert_eq!(by_smb(&smb, name).await, wanted, "{name}"),
            Err(Error::Smb(_, NtStatus::ACCESS_DENIED)) => assert!(!wanted.0, "{name}"),
            Err(e) => panic!("{name}: {e}"),
        }
    }
    // A member of the group may read, even without an account in the gateway.
    let member = volume(&world, NFS[0], Credential::sys(9, 9, &[1, READERS])).await.unwrap();
    assert_eq!(by_nfs(&member, "member").await, (true, false));
    assert!(counted("share-access") > 0 && counted("share-access-deny") > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_user_sees_share_root_only() {
    let (world, _dir, _) = world(access(&[], &["writer"], &[])).await;
    let rpc = connect::tcp(world.running.nfs[0], &Local::default(), Arc::new(NoCallbacks)).await;
    let rpc = rpc.unwrap();
    let root = mount::mount(&rpc, &credential(STRANGER), "/data").await.unwrap();
    let (stranger, writer) =
        (Nfs3::new(rpc.clone(), credential(STRANGER)), Nfs3::new(rpc.clone(), credential(WRITER)));
    let (below, _) = writer.lookup(&root, b"below").await.unwrap();
    let refused = Error::Nfs3(13);
    // The calls of a mount.
    stranger.getattr(&root).await.unwrap();
    stranger.fsinfo(&root).await.unwrap();
    stranger.fsstat(&root).await.unwrap();
    stranger.pathconf(&root).await.unwrap();
    for what in [&root, &below] {
        assert_eq!(stranger.access(what, 0x3f).await.unwrap_err(), refused);
        assert_eq!(stranger.list(what).await.err(), Some(refused.clone()));
        assert_eq!(stranger.lookup(what, b".").await.err(), Some(refused.clone()));
        assert_eq!(stranger.mkdir(what, b"n", 0o755).await.err(), Some(refused.clone()));
    }
    assert_eq!(stranger.getattr(&below).await.err(), Some(refused.clone()));
    assert_eq!(stranger.fsinfo(&below).await.err(), Some(refused));
    let mounted = mount::mount(&rpc, &credential(STRANGER), "/data/below").await;
    assert_eq!(mounted.err(), Some(Error::Mount(13)));
    mount::mount(&rpc, &credential(WRITER), "/data/below").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_gets_no_write_access_bits() {
    let (world, _dir, _) = world(access(&["reader"], &["writer"], &[])).await;
    let rpc = connect::tcp(world.running.nfs[0], &Local::default(), Arc::new(NoCallbacks)).await;
    let rpc = rpc.unwrap();
    let root = mount::mount(&rpc, &credential(READER), "/data").await.unwrap();
    let bits = async |uid: u32, fh: &Fh| {
        Nfs3::new(rpc.clone(), credential(uid)).access(fh, 0x3f).await.unwrap()
    };
    // MODIFY, EXTEND and DELETE (RFC 1813 section 3.3.4).
    const CHANGES: u32 = 0x04 | 0x08 | 0x10;
    assert_eq!(
        (bits(READER, &root).await & CHANGES, bits(WRITER, &root).await & CHANGES),
        (0, CHANGES)
    );
    let maximal = async |name: &str| smb(&world, name).await.unwrap().maximal_access();
    assert_eq!((maximal("reader").await, maximal("writer").await), (0x0012_00a9, 0x001f_01ff));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn narrowest_address_range_applies() {
    if !is_root() {
        return;
    }
    let (mut world, _dir, settings) = world(access(&["*"], &["writer"], &[])).await;
    let with = |change: &dyn Fn(&mut Client)| {
        let mut here: Client = "127.0.0.1".parse().unwrap();
        change(&mut here);
        let mut settings = settings.clone();
        settings.shares[0].access = None;
        settings.shares[0].clients = Some(vec!["127.0.0.0/8".parse().unwrap(), here]);
        settings
    };
    world.running.reload(with(&|here| here.read_only = true)).await.unwrap();
    for way in NFS {
        let volume = volume(&world, way, credential(WRITER)).await.unwrap();
        assert_eq!(by_nfs(&volume, "read-only").await, (true, false), "{way:?}");
    }
    let by_writer = smb(&world, "writer").await.unwrap();
    assert_eq!(
        (by_smb(&by_writer, "no").await, by_writer.maximal_access()),
        ((true, false), 0x0012_00a9)
    );

    let anonymous = |here: &mut Client| {
        here.squash = Some(config::Squash::All);
        (here.anonuid, here.anongid) = (Some(READER), Some(READERS));
    };
    world.running.reload(with(&anonymous)).await.unwrap();
    let owner = |name: &str| {
        let found = std::fs::metadata(world.folder().join(name)).unwrap();
        (found.uid(), found.gid())
    };
    for (n, way) in NFS.into_iter().enumerate() {
        let (volume, name) =
            (volume(&world, way, credential(WRITER)).await.unwrap(), format!("anonymous{n}"));
        assert_eq!(by_nfs(&volume, &name).await, (true, true), "{way:?}");
        assert_eq!(owner(&name), (READER, READERS), "{way:?}");
    }
    // SMB users have logged on, so their identity is known.
    let by_writer = smb(&world, "writer").await.unwrap();
    assert_eq!(by_smb(&by_writer, "writers").await, (true, true));
    assert_eq!(owner("writers"), (WRITER, WRITER));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forced_user_and_masks_apply() {
    if !is_root() {
        return;
    }
    let (mut world, _dir, mut settings) = world(access(&["reader"], &["writer"], &[])).await;
    let group: Who = "@2100".parse().unwrap();
    settings.shares[0].force =
        config::Force { user: Some("stranger".parse().unwrap()), group: Some(group) };
    let (file, folder) = ("0660".parse().unwrap(), "2770".parse().unwrap());
    settings.shares[0].masks = config::Masks { file: Some(file), folder: Some(folder) };
    world.running.reload(settings).await.unwrap();
    let found = |name: &str| {
        let found = std::fs::metadata(world.folder().join(name)).unwrap();
        (found.uid(), found.gid(), found.mode() & 0o7777)
    };
    for (n, way) in NFS.into_iter().enumerate() {
        // Access is checked for the caller, not for the forced user.
        let stranger = volume(&world, way, credential(STRANGER)).await.unwrap();
        assert_eq!(by_nfs(&stranger, "no").await, (false, false));
        let reader = volume(&world, way, credential(READER)).await.unwrap();
        assert_eq!(by_nfs(&reader, "no").await, (true, false));
        let (writer, name) =
            (volume(&world, way, credential(WRITER)).await.unwrap(), format!("f{n}"));
        assert_eq!(by_nfs(&writer, &name).await, (true, true));
        let (uid, gid, mode) = found(&name);
        assert_eq!((uid, gid, mode & !0o660), (STRANGER, READERS, 0), "{way:?} {mode:o}");
    }
    let rpc = connect::tcp(world.running.nfs[0], &Local::default(), Arc::new(NoCallbacks)).await;
    let rpc = rpc.unwrap();
    let root = mount::mount(&rpc, &credential(WRITER), "/data").await.unwrap();
    let writer = Nfs3::new(rpc, credential(WRITER));
    writer.mkdir(&root, b"d3", 0o755).await.unwrap();
    assert_eq!(found("d3"), (STRANGER, READERS, 0o2750), "a client's umask still counts");
    let by_writer = smb(&world, "writer").await.unwrap();
    assert_eq!(by_smb(&by_writer, "f").await, (true, true));
    assert_eq!(found("f"), (STRANGER, READERS, 0o660), "SMB asks for all that may be had");
    let access = mask::READ_ATTRIBUTES;
    let made =
        by_writer.open("d", access, Disposition::Create, option::DIRECTORY_FILE).await.unwrap();
    by_writer.close(made).await.unwrap();
    assert_eq!(found("d"), (STRANGER, READERS, 0o2770));
}

/// Over versions 3 and 4, whatever the names of the share and its folder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn share_is_mounted_by_exported_path() {
    let (mut world, _dir, mut settings) = world(access(&["*"], &["writer"], &[])).await;
    settings.shares[0].export = Some("/srv/nfs/public".parse().unwrap());
    world.running.reload(settings).await.unwrap();
    let rpc = connect::tcp(world.running.nfs[0], &Local::default(), Arc::new(NoCallbacks)).await;
    let rpc = rpc.unwrap();
    let cred = credential(WRITER);
    let root = mount::mount(&rpc, &cred, "/srv/nfs/public").await.unwrap();
    assert_eq!(mount::mount(&rpc, &cred, "/data").await.err(), Some(Error::Mount(2)));
    assert!(mount::exports(&rpc, &cred).await.unwrap().contains(&"/srv/nfs/public".to_owned()));
    let v4 = Nfs4::connect(rpc, cred, Minor::Two, b"exports", [1; 8]).await.unwrap();
    assert_eq!(v4.walk("/srv/nfs/public").await.unwrap(), root, "one handle by both");
    let listed = v4.list(&v4.walk("/srv").await.unwrap()).await.unwrap();
    assert_eq!(listed.iter().map(|entry| &entry.name[..]).collect::<Vec<_>>(), [b"nfs"]);
    assert_eq!(smb(&world, "writer").await.map(drop), Ok(()), "SMB goes by the name");
}

async fn names_by_smb(world: &World, user: &str) -> Vec<String> {
    let listed = smb(world, user).await.unwrap().list("").await.unwrap();
    let names = listed.into_iter().map(|entry| entry.name);
    let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listings_hide_inaccessible_entries() {
    if !is_root() {
        return;
    }
    let (mut world, _dir, mut settings) = world(access(&["reader"], &["writer"], &[])).await;
    let of = |name: &str, uid: u32, mode: u32| {
        let path = world.folder().join(name);
        std::os::unix::fs::chown(&path, Some(uid), Some(uid)).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    // More entries than fetched at once, all hidden from the reader.
    for n in 0..1500 {
        let name = format!("z{n:04}");
        std::fs::write(world.folder().join(&name), "").unwrap();
        of(&name, WRITER, 0o600);
    }
    for (name, mode) in [("closed", 0o700), ("enter", 0o711)] {
        std::fs::create_dir(world.folder().join(name)).unwrap();
        of(name, WRITER, mode);
    }
    settings.shares[0].list = config::List::Visible;
    world.running.reload(settings.clone()).await.unwrap();
    let wanted = ["below", "enter", "file"];
    for way in NFS {
        let names = async |uid| {
            let listed = volume(&world, way, credential(uid)).await.unwrap().list().await.unwrap();
            let names = listed.into_iter().map(|name| String::from_utf8(name).unwrap());
            let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
            names.sort();
            names
        };
        assert_eq!(names(READER).await, wanted, "{way:?}");
        assert_eq!(names(WRITER).await.len(), 1500 + 4, "{way:?}");
    }
    assert_eq!(names_by_smb(&world, "reader").await, wanted);
    assert_eq!(names_by_smb(&world, "writer").await.len(), 1500 + 4);
    settings.shares[0].list = config::List::All;
    world.running.reload(settings).await.unwrap();
    assert_eq!(names_by_smb(&world, "reader").await.len(), 1500 + 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_changes_access_rights() {
    let (mut world, _dir, settings) = world(access(&["reader"], &["writer"], &[])).await;
    let volumes = [
        volume(&world, NFS[0], credential(WRITER)).await.unwrap(),
        volume(&world, NFS[1], credential(WRITER)).await.unwrap(),
    ];
    let (by_reader, by_writer) =
        (smb(&world, "reader").await.unwrap(), smb(&world, "writer").await.unwrap());
    assert_eq!(by_smb(&by_writer, "before").await, (true, true));

    let with = |access| Settings {
        shares: vec![
            Share { access: Some(access), ..settings.shares[0].clone() },
            settings.shares[1].clone(),
        ],
        ..settings.clone()
    };
    let changes =
        world.running.reload(with(access(&["writer", "reader"], &[], &[]))).await.unwrap();
    assert_eq!((changes.shares_changed, changes.trees_ended), (vec!["data".into()], 1));
    for volume in &volumes {
        assert_eq!(by_nfs(volume, "after").await, (true, false));
    }
    // The reader's tree connect granted more; it keeps its rights.
    assert!(by_writer.find("file").await.is_err());
    assert_eq!(by_smb(&by_reader, "after").await, (true, false));
    assert_eq!(by_smb(&smb(&world, "writer").await.unwrap(), "after").await, (true, false));

    // State can be released after the loss of rights.
    let held = volumes[1].find("file").await.unwrap();
    world.running.reload(with(access(&["reader"], &[], &[]))).await.unwrap();
    assert_eq!(by_nfs(&volumes[1], "lost").await, (false, false));
    assert_eq!(volumes[1].read(&held, 0, 4).await.err(), Some(Error::Nfs4(READ, 13)));
    volumes[1].close(held).await.unwrap();

    let changes = world.running.reload(with(access(&[], &[], &["reader"]))).await.unwrap();
    assert_eq!(changes.trees_ended, 1);
    assert!(by_reader.find("file").await.is_err());
    for volume in &volumes {
        assert_eq!(
            by_nfs(volume, &format!("again-{:?}", volume.info().peer.port())).await,
            (true, true)
        );
    }
    let unknown = with(access(&[], &[], &["nobody-has-this-name"]));
    let why = world.running.reload(unknown).await.unwrap_err().to_string();
    assert!(why.contains("share data: access: there is no user `nobody-has-this-name`"), "{why}");
    assert_eq!(
        smb(&world, "reader").await.err(),
        Some(Error::Smb(Command::TreeConnect, NtStatus::ACCESS_DENIED))
    );
}
