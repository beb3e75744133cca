//! Access control lists on a real directory: the gateway's together with the host's (POSIX.1e), and the kernel's additional checks.

// Helpers of tests are tests too.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::XattrFlags;
use vfs::acl::posix::{self, Change, Lists, Posix, tag};
use vfs::acl::{Ace, Acl, Owner, Who, flag, mask};
use vfs::arbiter::WaitPolicy;
use vfs::backend::{Backend, BoxFuture, FoundOrFolder};
use vfs::local::{LocalBackend, LocalConfig};
use vfs::namespace::{Enforce, Namespace, Protocols, Rules, Share, Squash};
use vfs::*;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const ANN: u32 = 1001;
const BOB: u32 = 1002;

fn block_on<T>(f: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(f)
}

fn open(root: &Path, unprivileged: bool) -> Arc<LocalBackend> {
    let config = LocalConfig { unprivileged, recheck: Duration::ZERO, ..LocalConfig::new(root) };
    LocalBackend::open(config).unwrap()
}

fn user(uid: u32) -> Cred {
    Cred { uid, gid: uid, groups: Arc::new([]), token: vfs::Token::NONE }
}

fn mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

/// Builds a list from the bits of the owner, of Ann, of the group, of the mask, and of all others.
fn host_list([owner, ann, group, most, other]: [u32; 5]) -> Posix {
    let classes = [(tag::USER_OBJ, owner), (tag::GROUP_OBJ, group), (tag::MASK, most)];
    let classes = classes.into_iter().chain([(tag::OTHER, other)]);
    let classes = classes.map(|(tag, bits)| (tag, bits, u32::MAX));
    Posix::new(classes.chain([(tag::USER, ann, ANN)])).unwrap()
}

/// Reads an attribute on the host.
fn on_host(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut room = vec![0; 1024];
    let len = rustix::fs::getxattr(path, name, &mut room[..]).ok()?;
    room.truncate(len);
    Some(room)
}

/// A folder and a file of the superuser, with their paths; `None` if the test cannot run.
struct Bench {
    dir: tempfile::TempDir,
    root: NodeRef,
    folder: NodeRef,
    file: NodeRef,
}

impl Bench {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: serving callers as themselves needs root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let probe = host_list([7, 7, 7, 7, 7]).encode();
        if let Err(e) = rustix::fs::setxattr(dir.path(), DEFAULT, &probe, XattrFlags::empty()) {
            println!("skipped: no access control lists here: {e}");
            return None;
        }
        rustix::fs::removexattr(dir.path(), DEFAULT).unwrap();
        let root = open(dir.path(), false).root();
        let (folder, file) = block_on(async {
            let how = CreateHow::Guarded;
            let c = Cred::root();
            let folder = root.mkdir(Acting::caller(&c), b"folder", mode(0o755)).await.unwrap().node;
            (folder, root.create(Acting::caller(&c), b"file", how, mode(0o644)).await.unwrap().node)
        });
        Some(Self { dir, root, folder, file })
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }
}

async fn kept(node: &NodeRef) -> Option<Acl> {
    let attr = node.getattr().await.unwrap();
    node.acl(&attr).await.unwrap().map(|acl| Acl::clone(&acl))
}

async fn shown(node: &NodeRef) -> Acl {
    let attr = node.getattr().await.unwrap();
    Acl::clone(&*node.acl_shown(&attr).await.unwrap())
}

async fn of_host(node: &NodeRef) -> Lists {
    let attr = node.getattr().await.unwrap();
    node.posix(&attr).await.unwrap()
}

async fn mode_of(node: &NodeRef) -> u32 {
    node.getattr().await.unwrap().mode
}

fn all_to(uid: u32) -> Acl {
    Acl::new(vec![Ace::allow(Who::User(uid), mask::FILE_ALL, 0)])
}

#[test]
fn host_lists_are_set_and_shown() {
    let Some(b) = Bench::new() else { return };
    let access = host_list([6, 7, 4, 6, 0]);
    let default = host_list([7, 5, 5, 7, 0]);
    block_on(async {
        for (node, mode) in [(&b.file, 0o644), (&b.folder, 0o755)] {
            let plain = Lists { access: Posix::of_mode(mode), default: None };
            assert_eq!(of_host(node).await, plain);
            let is_dir = mode == 0o755;
            assert_eq!(shown(node).await, Acl::of_mode(mode, is_dir));
            // Setting a host's list removes the gateway's.
            node.acl_set(&all_to(BOB), 0o600).await.unwrap();
            let change = Change { access: Some(access.clone()), default: None };
            node.posix_set(&change).await.unwrap();
            assert_eq!(kept(node).await, None);
            let lists = Lists { access: access.clone(), default: None };
            assert_eq!(of_host(node).await, lists);
            assert_eq!(mode_of(node).await, 0o660, "the mask is the group's part of the mode");
            let value = access.encode();
            let want = posix::list(0o660, Some(&value), None, is_dir).unwrap();
            assert_eq!(shown(node).await, want);
            assert!(want.entries().iter().any(
                |e| matches!(e, Ace::Simple { who: Who::User(ANN), mask, .. } if mask & mask::WRITE_DATA != 0)
            ));
        }
        assert_eq!(on_host(&b.path("file"), ACCESS), Some(access.encode()));

        // Only folders have a default list for new nodes.
        let change = Change { access: None, default: Some(Some(default.clone())) };
        assert_eq!(b.file.posix_set(&change).await, Err(VfsError::Invalid));
        b.folder.posix_set(&change).await.unwrap();
        assert_eq!(on_host(&b.path("folder"), DEFAULT), Some(default.encode()));
        let lists = Lists { access: access.clone(), default: Some(default.clone()) };
        assert_eq!(of_host(&b.folder).await, lists);
        let (own, further) = (access.encode(), default.encode());
        let want = posix::list(0o660, Some(&own), Some(&further), true).unwrap();
        assert_eq!(shown(&b.folder).await, want);
        let passed_on =
            |e: &Ace| matches!(e, Ace::Simple { flags, .. } if flags & flag::INHERIT_ONLY != 0);
        assert_eq!(want.entries().iter().filter(|e| passed_on(e)).count(), 4);
        let none = Change { access: None, default: Some(None) };
        for _ in 0..2 {
            b.folder.posix_set(&none).await.unwrap();
            assert_eq!(on_host(&b.path("folder"), DEFAULT), None);
        }
        b.file.posix_set(&none).await.unwrap();
        assert_eq!(of_host(&b.folder).await, Lists { access, default: None });
    });
}

/// The last list that was set applies.
#[test]
fn last_list_set_applies() {
    let Some(b) = Bench::new() else { return };
    let list = host_list([7, 7, 5, 7, 5]);
    block_on(async {
        for (node, name) in [(&b.file, "file"), (&b.folder, "folder")] {
            let default = (name == "folder").then(|| Some(list.clone()));
            let change = Change { access: Some(list.clone()), default };
            node.posix_set(&change).await.unwrap();
            node.acl_set(&all_to(BOB), 0o700).await.unwrap();
            assert_eq!(on_host(&b.path(name), ACCESS), None);
            assert_eq!(on_host(&b.path(name), DEFAULT), None);
            assert_eq!((kept(node).await, mode_of(node).await), (Some(all_to(BOB)), 0o700));
            assert_eq!(shown(node).await, all_to(BOB));
            let as_host = all_to(BOB).posix(Owner { uid: 0, gid: 0 });
            let as_host = Lists { access: as_host, default: None };
            assert_eq!(of_host(node).await, as_host, "what can be said of it");
            // Set by a program of the host: it applies at once and permanently.
            let set =
                || rustix::fs::setxattr(b.path(name), ACCESS, &list.encode(), XattrFlags::empty());
            set().unwrap();
            assert_eq!(kept(node).await, None);
            assert_eq!(of_host(node).await.access, list);
            rustix::fs::removexattr(b.path(name), ACCESS).unwrap();
            assert!(kept(node).await.is_some(), "ours is there still");
        }
    });
}

/// A gateway that serves all callers as one user needs access to its own files whatever the list contains.
#[test]
fn owner_bits_kept_when_serving_unprivileged() {
    let dir = tempfile::tempdir().unwrap();
    let root = open(dir.path(), true).root();
    block_on(async {
        let c = Cred::root();
        let file = root
            .create(Acting::caller(&c), b"f", CreateHow::Guarded, mode(0o644))
            .await
            .unwrap()
            .node;
        let folder = root.mkdir(Acting::caller(&c), b"d", mode(0o755)).await.unwrap().node;
        for (asked, of_file, of_folder) in
            [(0, 0o600, 0o700), (0o640, 0o640, 0o740), (0o750, 0o750, 0o750), (0o044, 0o644, 0o744)]
        {
            file.acl_set(&all_to(BOB), asked).await.unwrap();
            folder.acl_set(&all_to(BOB), asked).await.unwrap();
            let found = (mode_of(&file).await, mode_of(&folder).await);
            assert_eq!(found, (of_file, of_folder), "{asked:o}");
        }
    });
}

/// A list that cannot be stored changes neither the old list nor the mode, which was reduced for it.
#[test]
fn unstorable_list_leaves_file_unchanged() {
    let Some(b) = Bench::new() else { return };
    // Attributes of Linux have at most 64 KiB.
    let huge = Acl { audit: Some(vec![7; 1 << 17]), ..all_to(BOB) };
    block_on(async {
        assert!(b.file.acl_set(&huge, 0o600).await.is_err());
        assert_eq!((kept(&b.file).await, mode_of(&b.file).await), (None, 0o644));
        b.file.acl_set(&all_to(ANN), 0o640).await.unwrap();
        assert!(b.file.acl_set(&huge, 0o606).await.is_err());
        let found = (kept(&b.file).await, mode_of(&b.file).await);
        assert_eq!(found, (Some(all_to(ANN)), 0o640));
    });
}

/// A folder's list that lets a caller add names must not let it link a file that it may not write: the kernel's rule for links
/// (proc(5), `protected_hardlinks`), which exempts the owner and the superuser.
#[test]
fn list_cannot_permit_foreign_links() {
    let Some(b) = Bench::new() else { return };
    let rule = std::fs::read("/proc/sys/fs/protected_hardlinks").unwrap_or_default();
    if !rule.starts_with(b"1") {
        println!("skipped: this kernel lets everybody link everything");
        return;
    }
    let (bob, c) = (user(BOB), Cred::root());
    block_on(async {
        b.folder.acl_set(&all_to(BOB), 0o700).await.unwrap();
        let f = &b.file;
        for (bits, may) in [
            (0o666, true),
            (0o644, false),
            (0o662, false),
            // Files with set-id bits cannot be linked; a set-group-ID bit without group execute does not count.
            (0o4666, false),
            (0o2676, false),
            (0o2666, true),
            (0o676, true),
        ] {
            f.setattr(&c, mode(bits), false).await.unwrap();
            let done = f.link(Acting::caller(&bob), b.folder.as_ref(), b"link").await.map(drop);
            let want = if may { Ok(()) } else { Err(VfsError::Perm) };
            assert_eq!(done, want, "{bits:o}");
            f.link(Acting::caller(&c), b.folder.as_ref(), b"roots").await.unwrap();
            b.folder.unlink(Acting::caller(&c), b"roots").await.unwrap();
            if may {
                b.folder.unlink(Acting::caller(&c), b"link").await.unwrap();
            }
        }
        // Every user may link its own file.
        let own = SetAttr { uid: Some(BOB), ..mode(0o4400) };
        f.setattr(&c, own, false).await.unwrap();
        f.link(Acting::caller(&bob), b.folder.as_ref(), b"own").await.unwrap();
        let fifo = b.root.mknod(&c, b"fifo", Special::Fifo, mode(0o666)).await.unwrap().node;
        fifo.setattr(&c, mode(0o666), false).await.unwrap();
        let done = fifo.link(Acting::caller(&bob), b.folder.as_ref(), b"fifo").await.map(drop);
        assert_eq!(done, Err(VfsError::Perm));
        // The kernel does not know the read and write rights of the gateway's list.
        f.setattr(&c, SetAttr { uid: Some(0), ..mode(0o600) }, false).await.unwrap();
        f.acl_set(&all_to(BOB), 0o600).await.unwrap();
        f.link(Acting::caller(&bob), b.folder.as_ref(), b"by-its-list").await.unwrap();
        f.acl_set(&all_to(ANN), 0o600).await.unwrap();
        let done = f.link(Acting::caller(&bob), b.folder.as_ref(), b"by-no-list").await.map(drop);
        assert_eq!(done, Err(VfsError::Perm));
    });
}

fn share_of(b: &Bench) -> Share {
    Share {
        name: "data".into(),
        id: Share::id_of("data"),
        backend: open(b.dir.path(), false),
        read_only: false,
        protocols: Protocols::Both,
        squash: Squash::None,
        nfs_locks: Enforce::Smb,
        clients: None,
        rules: Rules::default(),
    }
}

/// RFC 8275 section 5: the client's umask applies if the folder has no default list, which would otherwise limit the mode.
#[test]
fn umask_counts_without_default_list() {
    let Some(b) = Bench::new() else { return };
    let namespace = Namespace::new(vec![share_of(&b)]);
    let share = &namespace.shares()[0];
    let default = host_list([7, 5, 5, 7, 0]);
    block_on(async {
        let c = Cred::root();
        let folder = share.backend.root().lookup(&c, b"folder").await.unwrap().0;
        let of = |mode| SetAttr { mode: Some(mode), umask: 0o077, ..SetAttr::default() };
        for (default, wanted) in [
            (None, [0o600, 0o700, 0o600]),
            (Some(&default), [0o660, 0o770, 0o660]),
            (None, [0o600, 0o700, 0o600]),
        ] {
            let path = b.path("folder");
            match default {
                Some(list) => {
                    let set = XattrFlags::empty();
                    rustix::fs::setxattr(&path, DEFAULT, &list.encode(), set).unwrap();
                }
                None => drop(rustix::fs::removexattr(&path, DEFAULT)),
            }
            let (ops, how) = (namespace.by(None), CreateHow::Guarded);
            let made = [
                ops.create(share, &folder, &c, b"file", how, of(0o666)).await,
                ops.mkdir(share, &folder, &c, b"dir", of(0o777)).await,
                ops.mknod(share, &folder, &c, b"fifo", Special::Fifo, of(0o666)).await,
            ];
            for ((made, want), name) in made.into_iter().zip(wanted).zip(["file", "dir", "fifo"]) {
                assert_eq!(mode_of(&made.unwrap().node).await, want, "{name} {default:?}");
                let list = on_host(&path.join(name), ACCESS);
                assert_eq!(list.is_some(), default.is_some(), "{name}");
                match name {
                    "dir" => drop(ops.rmdir(share, &folder, &c, b"dir").await.unwrap()),
                    _ => drop(ops.unlink(share, &folder, &c, name.as_bytes()).await.unwrap()),
                }
            }
        }
    });
}

/// A request of SMB, which may have waited for another client.
struct Request {
    has_waited: bool,
}

impl WaitPolicy for Request {
    fn begin(&self) -> BoxFuture<'_, VfsResult<()>> {
        Box::pin(async { Ok(()) })
    }

    fn has_waited(&self) -> bool {
        self.has_waited
    }
}

#[test]
fn folder_is_read_again_after_a_wait() {
    let Some(b) = Bench::new() else { return };
    let namespace = Namespace::new(vec![share_of(&b)]);
    let share = &namespace.shares()[0];
    block_on(async {
        let c = Cred::root();
        let folder = share.backend.root().lookup(&c, b"folder").await.unwrap().0;
        let then = folder.getattr().await.unwrap();
        folder.create(Acting::caller(&c), b"other", CreateHow::Guarded, mode(0o644)).await.unwrap();
        assert_ne!(then.change, folder.getattr().await.unwrap().change);
        for (has_waited, is_read) in [(None, true), (Some(true), true), (Some(false), false)] {
            let request = has_waited.map(|has_waited| Request { has_waited });
            let ops = namespace.by(None).having_read(Some(then));
            let ops = match &request {
                Some(request) => ops.waiting(request),
                None => ops,
            };
            let (how, set) = (CreateHow::Guarded, mode(0o644));
            let made = ops.create(share, &folder, &c, b"new", how, set).await.unwrap();
            assert_eq!(made.dir.before.change != then.change, is_read, "{has_waited:?}");
            namespace.unlink(share, &folder, &c, b"new").await.unwrap();
        }
    });
}

/// Each list that a folder may have, by mode, of the host for itself and for new files, and of the gateway, for each caller: one
/// question for list and rights has the answers of separate ones, whether the folder has just changed or not.
#[test]
fn combined_questions_match_separate_ones() {
    const ALL: Access =
        Access(Access::READ | Access::LOOKUP | Access::MODIFY | Access::EXTEND | Access::DELETE);
    let Some(b) = Bench::new() else { return };
    let access = host_list([7, 7, 5, 7, 0]);
    let default = host_list([7, 5, 5, 7, 0]);
    let lists = [(false, false), (true, false), (false, true), (true, true)];
    let shapes = [0o755, 0o700, 0o1777].into_iter().flat_map(|mode| {
        lists.into_iter().flat_map(move |of_host| [(mode, of_host, false), (mode, of_host, true)])
    });
    block_on(async {
        for (number, (bits, (has_access, has_default), is_listed)) in shapes.enumerate() {
            let (name, c) = (format!("shape{number}"), Cred::root());
            let by = Acting::caller(&c);
            let made = b.root.mkdir(by, name.as_bytes(), mode(bits)).await.unwrap();
            let dir = made.node;
            if is_listed {
                dir.acl_set(&all_to(BOB), bits & 0o777).await.unwrap();
            }
            // A list of the host that is set later removes that of the gateway from effect.
            let path = b.path(&name);
            for (wanted, name, list) in
                [(has_access, ACCESS, &access), (has_default, DEFAULT, &default)]
            {
                if wanted {
                    let value = list.encode();
                    rustix::fs::setxattr(&path, name, &value, XattrFlags::empty()).unwrap();
                }
            }
            for is_settled in [false, true] {
                if is_settled {
                    tokio::task::yield_now().await;
                    std::thread::sleep(Duration::from_millis(60));
                }
                let case = format!("{bits:o} {has_access} {has_default} {is_listed} {is_settled}");
                let attr = dir.getattr().await.unwrap();
                let acl = dir.acl(&attr).await.unwrap();
                assert_eq!(acl.is_some(), is_listed && !has_access, "{case}");
                let passed = dir.passed_on(&attr).await.unwrap();
                assert_eq!(passed, (acl.clone(), has_default && acl.is_none()), "{case}");
                for uid in [0, ANN, BOB] {
                    let may = dir.access(&user(uid), ALL, &attr).await.unwrap();
                    let both = dir.acl_access(&user(uid), ALL, &attr).await.unwrap();
                    assert_eq!(both, (acl.clone(), may), "{case} {uid}");
                    let by_list = acl.is_some() && uid == BOB;
                    let by_host =
                        acl.is_none() && (bits & 2 != 0 && !has_access || has_access && uid == ANN);
                    let adds = may.0 & Access::EXTEND != 0;
                    assert_eq!(adds, uid == 0 || by_list || by_host, "{case} {uid}");
                    let missing = dir.lookup_or_folder(&user(uid), b"missing").await;
                    let found = dir.lookup(&user(uid), b"missing").await.map(drop);
                    match missing {
                        Ok(FoundOrFolder::Missing(seen)) => {
                            assert_eq!((found, seen), (Err(VfsError::NotFound), attr), "{case}");
                        }
                        Ok(FoundOrFolder::Found(..)) => panic!("{case} {uid}: it is not there"),
                        Err(e) => assert_eq!((found, e), (Err(e), VfsError::Access), "{case}"),
                    }
                }
            }
        }
    });
}
