//! Every operation uses the user's own rights; access from one file's access control list applies only to that file.

use vfs::Acting;
use vfs::{CreateHow, Cred, Kind, NodeRef, SetAttr};

use super::info::{put, set, to};
use super::ioctl::status;
use crate::dtyp::{Ace, Acl, SecurityDescriptor, Sid, descriptor::control, mask};
use crate::fscc::set::{Set, rename};
use crate::harness::{Client, Harness, doom};
use crate::open::FileId;
use crate::security::{sid_of_gid, sid_of_uid};
use crate::status::Status;
use crate::wire::context::name::SD_BUFFER;
use crate::wire::create::{Context, Disposition, option};
use crate::wire::fsctl::code::SET_REPARSE_POINT;
use crate::wire::query_info::{info_type, security_information as part};
use crate::wire::reparse::Reparse;

pub(super) const ANN: u32 = 1000;
pub(super) const BOB: u32 = 2000;

fn of(uid: u32, mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), uid: Some(uid), gid: Some(uid), ..SetAttr::default() }
}

/// Creates a folder for this user with a file `x` that only the user may read.
pub(super) async fn folder(harness: &Harness, name: &str, uid: u32, mode: u32) -> NodeRef {
    let (root, top) = (Cred::root(), harness.core.namespace.shares()[0].backend.root());
    let dir = top.mkdir(Acting::caller(&root), name.as_bytes(), of(uid, mode)).await.unwrap().node;
    dir.create(Acting::caller(&root), b"x", CreateHow::Guarded, of(uid, 0o600)).await.unwrap();
    dir
}

pub(super) async fn with(c: &Client, name: &str, access: u32) -> Result<FileId, Status> {
    let asked = c.create(name, |r| {
        (r.access, r.disposition) = (access, Disposition::Open as u32);
    });
    asked.await.map(|r| r.file)
}

/// Sets the access control list of a file or folder.
pub(super) async fn give(c: &Client, name: &str, aces: Vec<Ace>) {
    let f = with(c, name, mask::WRITE_DAC).await.unwrap();
    let sd = SecurityDescriptor {
        control: control::DACL_PRESENT,
        dacl: Some(Acl::new(aces)),
        ..Default::default()
    };
    let done = put(c, f, info_type::SECURITY, 0, part::DACL, &sd.emit()).await;
    assert_eq!(done, Status::SUCCESS);
    c.close(f).await;
}

pub(super) async fn owner_of(dir: &NodeRef, name: &[u8]) -> Option<u32> {
    dir.lookup(&Cred::root(), name).await.ok().map(|(_, attr)| attr.uid)
}

#[tokio::test]
async fn a_rename_that_fails_leaves_the_name_in_another_case_alone() {
    let harness = Harness::new();
    let ann = harness.client_as(ANN);
    let from = folder(&harness, "from", ANN, 0o755).await;
    let into = folder(&harness, "into", ANN, 0o755).await;
    let f = with(&ann, "from\\x", mask::DELETE).await.unwrap();
    let root = Cred::root();
    let bits = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    from.setattr(&root, bits(0o555), false).await.unwrap();
    let over = || Set::Rename(to("into\\X", rename::REPLACE_IF_EXISTS));
    let there = into.lookup(&Cred::root(), b"x").await.unwrap().0.id();
    assert_eq!(set(&ann, f, over()).await, Status::ACCESS_DENIED);
    assert_eq!(into.lookup(&Cred::root(), b"x").await.unwrap().0.id(), there);
    from.setattr(&root, bits(0o755), false).await.unwrap();
    assert_eq!(set(&ann, f, over()).await, Status::SUCCESS);
    assert_eq!((owner_of(&into, b"x").await, owner_of(&into, b"X").await), (None, Some(ANN)));
    assert_eq!(owner_of(&from, b"x").await, None);
}

#[tokio::test]
async fn what_may_be_deleted_may_be_moved_out() {
    let harness = Harness::new();
    let (ann, bob) = (harness.client_as(ANN), harness.client_as(BOB));
    let from = folder(&harness, "from", BOB, 0o755).await;
    let into = folder(&harness, "into", ANN, 0o755).await;
    let all = Ace::allow(sid_of_uid(BOB), mask::FILE_ALL, 0);
    let allow = |rights| vec![all.clone(), Ace::allow(sid_of_uid(ANN), rights, 0)];
    // These rights do not allow lookups in the folder, but allow deleting a file that was found.
    give(&bob, "from", allow(mask::READ_DATA | mask::DELETE_CHILD)).await;
    let f = with(&ann, "from\\x", mask::DELETE).await.unwrap();
    assert_eq!(set(&ann, f, Set::Rename(to("into\\y", 0))).await, Status::SUCCESS);
    assert_eq!(owner_of(&from, b"x").await, None);
    assert_eq!(owner_of(&into, b"y").await, Some(BOB));
    // The folder grants the right to delete, and it applies where the file is now.
    let f2 = with(&ann, "into\\y", mask::DELETE).await.unwrap();
    give(&bob, "from", allow(mask::READ_DATA | mask::WRITE_DATA)).await;
    assert_eq!(set(&ann, f2, Set::Rename(to("from\\x", 0))).await, Status::SUCCESS);
    assert_eq!(set(&ann, f2, Set::Rename(to("into\\y", 0))).await, Status::ACCESS_DENIED);
    assert_eq!(owner_of(&from, b"x").await, Some(BOB));
}

/// On Windows every user may traverse folders (MS-FSA section 2.1.5.15.11): only the right to add a name and the replaced file's
/// own list matter.
#[tokio::test]
async fn a_deletable_file_is_replaced_unseen() {
    for posix in [0, rename::POSIX_SEMANTICS] {
        for deletes in [true, false] {
            let harness = Harness::new();
            let (ann, bob) = (harness.client_as(ANN), harness.client_as(BOB));
            folder(&harness, "from", ANN, 0o755).await;
            let into = folder(&harness, "into", BOB, 0o755).await;
            let all = Ace::allow(sid_of_uid(BOB), mask::FILE_ALL, 0);
            let allow = |rights| vec![all.clone(), Ace::allow(sid_of_uid(ANN), rights, 0)];
            let rights = if deletes { mask::DELETE } else { mask::APPEND_DATA };
            give(&bob, "into\\x", allow(rights)).await;
            // These rights do not allow lookups in the folder.
            give(&bob, "into", allow(mask::WRITE_DATA | mask::APPEND_DATA)).await;
            let f = with(&ann, "from\\x", mask::DELETE).await.unwrap();
            let over = to("into\\x", rename::REPLACE_IF_EXISTS | posix);
            let told = set(&ann, f, Set::Rename(over)).await;
            let want = if deletes { Status::SUCCESS } else { Status::ACCESS_DENIED };
            assert_eq!(told, want, "{deletes} {posix:#x}");
            let owner = if deletes { ANN } else { BOB };
            assert_eq!(owner_of(&into, b"x").await, Some(owner));
        }
    }
}

#[tokio::test]
async fn a_list_on_a_file_moves_it_into_no_folder_of_others() {
    let harness = Harness::new();
    let ann = harness.client_as(ANN);
    folder(&harness, "mine", ANN, 0o755).await;
    let bobs = folder(&harness, "bobs", BOB, 0o700).await;
    let roots = folder(&harness, "roots", 0, 0o755).await;
    give(&ann, "mine\\x", vec![Ace::allow(sid_of_uid(ANN), mask::FILE_ALL, 0)]).await;
    let f = with(&ann, "mine\\x", mask::FILE_ALL).await.unwrap();
    let posix = rename::REPLACE_IF_EXISTS | rename::POSIX_SEMANTICS;
    for flags in [0, rename::REPLACE_IF_EXISTS, posix] {
        for name in ["bobs\\x", "bobs\\new", "roots\\x", "roots\\new"] {
            for what in [Set::Rename(to(name, flags)), Set::Link(to(name, flags))] {
                let told = set(&ann, f, what).await;
                let collides = flags == 0 && name == "roots\\x";
                let want =
                    if collides { Status::OBJECT_NAME_COLLISION } else { Status::ACCESS_DENIED };
                assert_eq!(told, want, "{name} {flags:#x}");
            }
        }
    }
    for (dir, uid) in [(&bobs, BOB), (&roots, 0)] {
        assert_eq!(owner_of(dir, b"x").await, Some(uid));
        assert_eq!(owner_of(dir, b"new").await, None);
    }
    let moved = set(&ann, f, Set::Rename(to("mine\\y", 0))).await;
    assert_eq!(moved, Status::SUCCESS, "where it may");
}

#[tokio::test]
async fn a_handle_that_shows_attributes_replaces_nothing() {
    let harness = Harness::new();
    let (ann, bob) = (harness.client_as(ANN), harness.client_as(BOB));
    let mine = folder(&harness, "mine", ANN, 0o755).await;
    folder(&harness, "bobs", BOB, 0o755).await;
    give(&ann, "mine\\x", vec![Ace::allow(Sid::everyone(), mask::FILE_READ, 0)]).await;
    let f = with(&bob, "bobs\\x", mask::READ_ATTRIBUTES).await.unwrap();
    let over = |name: &str| Set::Link(to(name, rename::REPLACE_IF_EXISTS));
    assert_eq!(set(&bob, f, over("mine\\x")).await, Status::ACCESS_DENIED);
    // A folder's list that allows adding names does not allow replacing them.
    let add = Ace::allow(sid_of_uid(BOB), mask::WRITE_DATA | mask::EXECUTE, 0);
    let own = Ace::allow(sid_of_uid(ANN), mask::FILE_ALL, 0);
    give(&ann, "mine", vec![add, own]).await;
    assert_eq!(set(&bob, f, over("mine\\x")).await, Status::ACCESS_DENIED);
    assert_eq!(owner_of(&mine, b"x").await, Some(ANN));
    assert_eq!(set(&bob, f, over("mine\\y")).await, Status::SUCCESS, "a free name");
    assert_eq!(owner_of(&mine, b"y").await, Some(BOB));
    // The file's own list allows it.
    give(&ann, "mine\\x", vec![Ace::allow(sid_of_uid(BOB), mask::DELETE, 0)]).await;
    assert_eq!(set(&bob, f, over("mine\\x")).await, Status::SUCCESS);
    assert_eq!(owner_of(&mine, b"x").await, Some(BOB));
}

#[tokio::test]
async fn a_sticky_folder_is_sticky_for_smb() {
    let harness = Harness::new();
    let (ann, bob) = (harness.client_as(ANN), harness.client_as(BOB));
    let dir = folder(&harness, "tmp", ANN, 0o1777).await;
    let all = vec![Ace::allow(Sid::everyone(), mask::FILE_ALL, 0)];
    for listed in [false, true] {
        if listed {
            give(&ann, "tmp", all.clone()).await;
            dir.setattr(&Cred::root(), of(ANN, 0o1777), false).await.unwrap();
        }
        assert_eq!(with(&bob, "tmp\\x", mask::DELETE).await, Err(Status::ACCESS_DENIED));
        let doomed = bob.create("tmp\\x", doom).await;
        assert_eq!(doomed.map(drop), Err(Status::ACCESS_DENIED));
        let own = bob.open("tmp\\own").await;
        let over = Set::Rename(to("tmp\\x", rename::REPLACE_IF_EXISTS));
        assert_eq!(set(&bob, own, over).await, Status::ACCESS_DENIED);
        bob.close(own).await;
        let own = bob.create("tmp\\own", doom).await.unwrap().file;
        bob.close(own).await;
        assert_eq!(owner_of(&dir, b"own").await, None, "one's own goes");
        assert_eq!(owner_of(&dir, b"x").await, Some(ANN));
    }
    give(&ann, "tmp\\x", vec![Ace::allow(sid_of_uid(BOB), mask::DELETE, 0)]).await;
    let f = with(&bob, "tmp\\x", mask::DELETE).await.unwrap();
    assert_eq!(set(&bob, f, Set::Disposition { flags: 1, ex: false }).await, Status::SUCCESS);
    bob.close(f).await;
    assert_eq!(owner_of(&dir, b"x").await, None, "by its own list");
}

/// A handle keeps its granted access when the list changes later (MS-FSA section 2.1.5.1.2.1).
#[tokio::test]
async fn a_handle_keeps_what_it_was_granted() {
    let harness = Harness::new();
    let (ann, bob) = (harness.client_as(ANN), harness.client_as(BOB));
    let dir = folder(&harness, "mine", ANN, 0o755).await;
    give(&ann, "mine\\x", vec![Ace::allow(sid_of_uid(BOB), mask::FILE_ALL, 0)]).await;
    let f = with(&bob, "mine\\x", mask::DELETE | mask::WRITE_DATA).await.unwrap();
    give(&ann, "mine\\x", vec![]).await;
    assert_eq!(set(&bob, f, Set::EndOfFile(5)).await, Status::SUCCESS);
    assert_eq!(set(&bob, f, Set::Rename(to("mine\\y", 0))).await, Status::ACCESS_DENIED);
    assert_eq!(set(&bob, f, Set::Disposition { flags: 1, ex: false }).await, Status::SUCCESS);
    bob.close(f).await;
    assert_eq!(owner_of(&dir, b"x").await, None);
}

#[tokio::test]
async fn only_the_superuser_makes_devices() {
    let harness = Harness::new();
    let ann = harness.client_as(ANN);
    let dir = folder(&harness, "mine", ANN, 0o700).await;
    give(&ann, "mine", vec![Ace::allow(sid_of_uid(ANN), mask::FILE_ALL, 3)]).await;
    let f = ann.open("mine\\n").await;
    for what in [Reparse::NfsChar(1, 3), Reparse::NfsBlock(7, 0)] {
        let told = status(&ann, f, SET_REPARSE_POINT, &what.emit()).await;
        assert_eq!(told, Status::ACCESS_DENIED);
    }
    let (node, attr) = dir.lookup(&Cred::root(), b"n").await.unwrap();
    assert_eq!((node.kind(), attr.uid), (Kind::File, ANN));
    assert_eq!(status(&ann, f, SET_REPARSE_POINT, &Reparse::NfsFifo.emit()).await, Status::SUCCESS);
    let root = harness.client_as(0);
    let d = root.open("mine\\d").await;
    let device = Reparse::NfsChar(1, 3).emit();
    assert_eq!(status(&root, d, SET_REPARSE_POINT, &device).await, Status::SUCCESS);
}

/// An owner may give a file only to a group that the owner belongs to, as in chown(2).
#[tokio::test]
async fn an_owner_gives_a_file_to_its_own_groups_alone() {
    let harness = Harness::new();
    let ann = harness.client_as(ANN);
    let dir = folder(&harness, "mine", ANN, 0o700).await;
    let f = with(&ann, "mine\\x", mask::WRITE_OWNER | mask::READ_CONTROL).await.unwrap();
    for (gid, want) in
        [(0, Status::ACCESS_DENIED), (BOB, Status::ACCESS_DENIED), (ANN, Status::SUCCESS)]
    {
        let sd = SecurityDescriptor { group: Some(sid_of_gid(gid)), ..Default::default() };
        let told = put(&ann, f, info_type::SECURITY, 0, part::GROUP, &sd.emit()).await;
        assert_eq!(told, want, "{gid}");
        let (_, attr) = dir.lookup(&Cred::root(), b"x").await.unwrap();
        assert_eq!((attr.uid, attr.gid), (ANN, ANN));
    }
}

/// Records the permission bits at each sync: by then the name exists and watchers were notified.
#[derive(Debug, Default)]
struct Modes(std::sync::Mutex<Vec<(u64, u32)>>);

impl vfs::local::SyncCalls for Modes {
    fn fsync(&self, fd: std::os::fd::BorrowedFd<'_>) -> std::io::Result<()> {
        let stat = rustix::fs::fstat(fd)?;
        self.0.lock().unwrap().push((stat.st_ino, stat.st_mode & 0o777));
        Ok(())
    }
}

/// A new file has its access control list before it is durable, and until then its mode excludes other users.
#[tokio::test]
async fn list_is_set_before_sync() {
    use vfs::acl::flag::{CONTAINER_INHERIT, OBJECT_INHERIT};
    use vfs::local::{LocalBackend, LocalConfig};
    let (dir, modes) = (tempfile::tempdir().unwrap(), std::sync::Arc::new(Modes::default()));
    let config = LocalConfig { calls: Some(modes.clone()), ..LocalConfig::new(dir.path()) };
    let harness = Harness::on(LocalBackend::open(config).unwrap(), None);
    let (c, top) = (harness.client(), harness.core.namespace.shares()[0].backend.root());
    harness.core.namespace.shares()[0].backend.set_strict(true, true);
    let everyone = |flags| vec![Ace::allow(Sid::everyone(), mask::FILE_ALL, flags)];
    for folder in ["none", "ends", "passes"] {
        top.mkdir(Acting::caller(&Cred::root()), folder.as_bytes(), of(0, 0o755)).await.unwrap();
    }
    give(&c, "ends", everyone(0)).await;
    give(&c, "passes", everyone(OBJECT_INHERIT | CONTAINER_INHERIT)).await;
    let mine = SecurityDescriptor {
        control: control::DACL_PRESENT,
        dacl: Some(Acl::new(vec![Ace::allow(sid_of_uid(0), mask::FILE_ALL, 0)])),
        ..Default::default()
    };
    // The folder, whether the request has a security descriptor, and whether other users get access.
    let table = [
        ("none", false, true),
        ("none", true, false),
        ("ends", false, false),
        ("ends", true, false),
        ("passes", false, true),
        ("passes", true, false),
    ];
    for (folder, sd, others) in table {
        for (options, kind) in [(0, "file"), (option::DIRECTORY_FILE, "folder")] {
            modes.0.lock().unwrap().clear();
            let name = format!("{kind}{}", u32::from(sd));
            let path = format!("{folder}\\{name}");
            let made = c.create(&path, |r| {
                (r.options, r.disposition) = (options, Disposition::Create as u32);
                let (name, data) = (SD_BUFFER.to_vec().into(), mine.emit().into());
                r.contexts = if sd { vec![Context { name, data }] } else { vec![] };
            });
            c.close(made.await.unwrap().file).await;
            let (parent, _) = top.lookup(&Cred::root(), folder.as_bytes()).await.unwrap();
            let (_, attr) = parent.lookup(&Cred::root(), name.as_bytes()).await.unwrap();
            let seen = modes.0.lock().unwrap();
            let first = seen.iter().find(|(ino, _)| *ino == attr.fileid).unwrap().1;
            assert_eq!(first & 0o077 != 0, others, "{folder} {name} {first:o}");
            assert_eq!(first, attr.mode & 0o777, "{folder} {name}");
        }
    }
}

/// Opens or creates a stream.
async fn stream(c: &Client, name: &str, access: u32, how: Disposition) -> Result<(), Status> {
    let opened = c.create(name, |r| (r.access, r.disposition) = (access, how as u32)).await?;
    assert_eq!(c.close(opened.file).await, Status::SUCCESS);
    Ok(())
}

/// A stream's data is part of the file, so creating one changes the file, whatever access it is opened with (MS-FSA section
/// 2.1.5.1.2).
#[tokio::test]
async fn a_stream_is_made_by_whoever_may_write_the_file() {
    let harness = Harness::new();
    let (ann, bob) = (harness.client_as(ANN), harness.client_as(BOB));
    let (root, mine) = (Cred::root(), folder(&harness, "mine", ANN, 0o755).await);
    let top = harness.core.namespace.shares()[0].backend.root();
    top.setattr(&root, of(0, 0o755), false).await.unwrap();
    let (x, _) = mine.lookup(&root, b"x").await.unwrap();
    let modes = async |node: &NodeRef, mode| {
        node.setattr(&root, of(ANN, mode), false).await.unwrap();
    };
    let makes = [Disposition::OpenIf, Disposition::Create, Disposition::OverwriteIf];
    let looks = [mask::READ_ATTRIBUTES, mask::SYNCHRONIZE, mask::READ_CONTROL];
    for mode in [0o600, 0o644] {
        modes(&x, mode).await;
        for (how, access) in makes.iter().flat_map(|how| looks.map(|access| (*how, access))) {
            for of in ["mine\\x:s", "mine:s", ":s"] {
                let told = stream(&bob, of, access, how).await;
                assert_eq!(told, Err(Status::ACCESS_DENIED), "{of} {mode:o} {access:#x} {how:?}");
            }
        }
    }
    assert!(vfs::streams::list(&harness.core.namespace.shares()[0], &x).await.unwrap().is_empty());
    stream(&ann, "mine\\x:s", mask::READ_ATTRIBUTES, Disposition::Create).await.unwrap();
    stream(&bob, "mine\\x:s", mask::READ_DATA, Disposition::OpenIf).await.unwrap();
    let new = async |c: &Client, of: &str| {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("{of}:{number}");
        stream(c, &name, mask::READ_ATTRIBUTES, Disposition::OpenIf).await
    };
    modes(&x, 0o666).await;
    modes(&mine, 0o777).await;
    assert_eq!((new(&bob, "mine\\x").await, new(&bob, "mine").await), (Ok(()), Ok(())));
    // The owner needs write permission too, and the read-only attribute applies.
    modes(&x, 0o444).await;
    assert_eq!(new(&ann, "mine\\x").await, Err(Status::ACCESS_DENIED));
    modes(&x, 0o600).await;
    let dos = x.dos(&x.getattr().await.unwrap()).await.unwrap();
    for (attributes, told) in [(1, Err(Status::ACCESS_DENIED)), (0x80, Ok(()))] {
        x.dos_set(vfs::Dos { attributes: Some(attributes), ..dos }).await.unwrap();
        assert_eq!(new(&ann, "mine\\x").await, told);
    }
    // An access control list decides for each user.
    for (rights, told) in [
        (mask::FILE_READ | mask::APPEND_DATA, Err(Status::ACCESS_DENIED)),
        (mask::WRITE_DATA, Ok(())),
    ] {
        give(&ann, "mine\\x", vec![Ace::allow(sid_of_uid(BOB), rights, 0)]).await;
        assert_eq!(new(&bob, "mine\\x").await, told, "{rights:#x}");
    }
}

/// The maker of a file gets the requested access, also to the stream for which the file is created.
#[tokio::test]
async fn a_stream_of_a_file_that_is_made_with_it_takes_no_right_to_that() {
    let harness = Harness::new();
    let (ann, bob) = (harness.client_as(ANN), harness.client_as(BOB));
    let drop_box = folder(&harness, "box", ANN, 0o700).await;
    let own = Ace::allow(sid_of_uid(ANN), mask::FILE_ALL, 3);
    let adds = Ace::allow(sid_of_uid(BOB), mask::WRITE_DATA | mask::EXECUTE, 0);
    // Makers get almost no access to their new files.
    let makers = Ace::allow(Sid::creator_owner(), mask::READ_CONTROL, 3);
    give(&ann, "box", vec![own, adds, makers]).await;
    let made = stream(&bob, "box\\n:s", mask::READ_ATTRIBUTES, Disposition::Create).await;
    assert_eq!(made, Ok(()));
    assert_eq!(owner_of(&drop_box, b"n").await, Some(BOB));
    let again = stream(&bob, "box\\n:t", mask::READ_ATTRIBUTES, Disposition::Create).await;
    assert_eq!(again, Err(Status::ACCESS_DENIED), "the list of the file that it found");
}

/// Append-only and immutable files accept no extended attribute either, from any user.
#[tokio::test]
async fn nobody_makes_a_stream_of_what_the_host_has_sealed() {
    use rustix::fs::{IFlags, Mode, OFlags};
    use vfs::local::{LocalBackend, LocalConfig};
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    std::fs::write(dir.path().join("d/f"), "data").unwrap();
    let c = Harness::on(LocalBackend::open(LocalConfig::new(dir.path())).unwrap(), None).client();
    let seal = |at: &str, marks| {
        let file = rustix::fs::open(dir.path().join(at), OFlags::RDONLY, Mode::empty()).unwrap();
        let others = rustix::fs::ioctl_getflags(&file)? - (IFlags::APPEND | IFlags::IMMUTABLE);
        rustix::fs::ioctl_setflags(&file, others | marks)
    };
    let marks = [IFlags::APPEND, IFlags::IMMUTABLE];
    for (at, marks) in ["d/f", "d"].iter().flat_map(|at| marks.map(|m| (*at, m))) {
        if let Err(e) = seal(at, marks) {
            println!("skipped: {at} {marks:?}: {e}");
            continue;
        }
        let name = format!("{}:s", at.replace('/', "\\"));
        let told = stream(&c, &name, mask::READ_ATTRIBUTES, Disposition::OpenIf).await;
        // Restore before the assertions, so that the folder can be removed.
        seal(at, IFlags::empty()).unwrap();
        assert_eq!(told, Err(Status::ACCESS_DENIED), "{at} {marks:?}");
    }
    stream(&c, "d\\f:s", mask::READ_ATTRIBUTES, Disposition::OpenIf).await.unwrap();
}
