//! The rules of [`suite`] on a real directory, and tests that need a real directory.

// Helpers of tests are tests too; and test data is cut to bytes on purpose.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod suite;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use suite::*;
use vfs::local::{LocalBackend, LocalConfig};
use vfs::*;

fn by(cred: &Cred) -> Acting<'_> {
    Acting::caller(cred)
}

fn block_on<T>(f: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(f)
}

fn open(root: &Path, unprivileged: bool) -> Arc<LocalBackend> {
    let config = LocalConfig { unprivileged, recheck: Duration::ZERO, ..LocalConfig::new(root) };
    LocalBackend::open(config).unwrap()
}

fn bench(root: &Path) -> Bench {
    Bench::new(open(root, false))
}

fn is_root() -> bool {
    let yes = rustix::process::geteuid().is_root();
    if !yes {
        println!("skipped: serving callers as themselves needs root");
    }
    yes
}

/// Longer than a change time can stay the same: the backend caches no data of a file whose last change is younger.
const SETTLED: Duration = Duration::from_millis(60);

/// Waits until the last change of this file is that old.
fn until_settled(path: &Path) {
    let m = std::fs::metadata(path).unwrap();
    let (sec, nsec) = (m.ctime().try_into().unwrap(), m.ctime_nsec().try_into().unwrap());
    let changed = UNIX_EPOCH + Duration::new(sec, nsec);
    while SystemTime::now().duration_since(changed).is_ok_and(|age| age <= SETTLED) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

macro_rules! on_local {
    ($($module:ident :: $test:ident),* $(,)?) => { $(
        #[test]
        fn $test() {
            let dir = tempfile::tempdir().unwrap();
            block_on(suite::$module::$test(bench(dir.path())));
            let dir = tempfile::tempdir().unwrap();
            block_on(suite::$module::$test(Bench::new(open(dir.path(), true))));
        }
    )* };
}

macro_rules! on_local_as_root {
    ($($module:ident :: $test:ident),* $(,)?) => { $(
        #[test]
        fn $test() {
            if is_root() {
                let dir = tempfile::tempdir().unwrap();
                block_on(suite::$module::$test(bench(dir.path())));
            }
        }
    )* };
}

on_local!(
    names::lookup_finds_created_nodes,
    names::bad_names_are_refused,
    names::create_in_three_ways,
    names::exclusive_create_can_be_repeated,
    names::unlink_and_rmdir_check_kind,
    names::removed_file_lives_while_held,
    names::rename_moves_and_replaces,
    names::hard_links_are_one_node,
    names::links_and_special_nodes,
    names::listing_is_complete_in_every_step,
    names::cookies_hold_while_names_change,
    names::handles_find_their_nodes,
    data::read_and_write_at_every_size,
    data::large_reads_take_several_buffers,
    data::writes_come_in_pieces,
    data::offsets_at_the_largest_size,
    data::sizes_change_up_and_down,
    data::attributes_are_set_and_kept,
    data::change_attribute_always_moves,
    data::holes_and_storage,
    data::copies_and_clones,
    data::extended_attributes,
    data::reads_are_short_only_at_end,
    data::appends_never_overlap,
    crowd::many_change_the_same_names,
    anycase::names_are_found_in_any_case,
    anycase::index_follows_own_changes,
    anycase::names_differing_only_in_case,
    streams::streams_are_looked_up_when_taken,
    streams::streams_hold_data_of_their_own,
    streams::streams_follow_their_file,
    streams::stream_folder_is_hidden,
    streams::gateway_folder_is_hidden_at_any_depth,
    replace::node_replaces_another,
    replace::file_replacing_link_gets_default_mode,
    replace::file_replacing_link_gets_masked_mode,
    replace::file_replacing_link_inherits,
    replace::file_written_meanwhile_stays,
    replace::failed_replacement_keeps_old_node,
    replace::start_removes_leftovers,
    windows::side_data_is_kept_and_hidden,
    windows::dos_records_are_kept,
    windows::reparse_points_are_kept,
    windows::node_reports_its_path,
    windows::rename_without_replace_keeps_target,
    windows::file_ops_report_changes,
);

on_local_as_root!(
    streams::stream_creation_needs_write_permission,
    replace::replacement_of_foreign_node_loses_set_id,
    names::devices_keep_their_numbers,
    names::failed_create_leaves_no_node,
    replace::replacement_needs_permission,
    rights::files_belong_to_their_creator,
    rights::exclusive_create_repeated_only_by_creator,
    rights::data_needs_permission,
    rights::names_need_permission,
    rights::attributes_need_ownership,
    rights::set_id_bits_cleared_by_other_writers,
    rights::existing_name_needs_no_add_right,
    rights::access_predicts_operations,
    rights::extended_attributes_need_permission,
    rights::new_set_group_id_folder_gets_no_bits,
    rights::new_file_drops_foreign_set_group_id,
    lists::list_decides_about_data,
    lists::changed_mode_applies_to_kept_list,
    lists::changed_mode_decides_folder_search,
    lists::list_decides_about_attributes,
    lists::list_decides_about_names,
    lists::list_decides_about_renames,
    lists::no_list_permits_devices,
    lists::list_keeps_folder_sticky,
    lists::granted_right_is_enough,
    lists::list_applies_only_to_its_folder,
    lists::owner_or_list_permits_dating,
    lists::failed_create_removes_only_own_file,
    lists::listing_needs_all_read_rights,
    lists::list_follows_its_file,
    lists::new_nodes_inherit_list,
    lists::mode_bits_limit_inherited_list,
    lists::giver_sets_list_on_new_nodes,
    lists::setting_list_needs_mode_permission,
);

#[test]
fn two_backends_do_not_mix() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    block_on(suite::names::two_backends_do_not_mix(bench(a.path()), bench(b.path())));
}

#[test]
fn restart_keeps_handles() {
    for unprivileged in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        block_on(async {
            let b = Bench::new(open(dir.path(), unprivileged));
            let d = b.dir("d").await;
            let e = d.mkdir(by(&root()), b"e", mode(0o755)).await.unwrap().node;
            let f = b.file("f").await;
            b.write(&f, 0, b"kept").await;
            let gone = b.file("gone").await;
            let link = b.root.symlink(&root(), b"s", b"t", SetAttr::default()).await.unwrap().node;
            let pipe = b.root.mknod(&root(), b"p", Special::Fifo, mode(0o600)).await.unwrap().node;
            let handles = [&b.root, &d, &e, &f, &link, &pipe].map(|n| n.handle());
            b.root.rename(by(&root()), b"f", e.as_ref(), b"g", true).await.unwrap();
            let gone_handle = gone.handle();
            let mine = CreateHow::Exclusive(*b"verifier");
            let first = b.create("exclusive", mine).await.unwrap().node.handle();
            drop((gone, link, pipe, d, e, f, b));
            std::fs::remove_file(dir.path().join("gone")).unwrap();
            // A new file may get the old number, but not the old handle.
            std::fs::write(dir.path().join("new"), b"").unwrap();
            std::fs::rename(dir.path().join("d/e"), dir.path().join("moved")).unwrap();
            let b = Bench::new(open(dir.path(), unprivileged));
            assert_eq!(b.root.handle(), handles[0]);
            for h in &handles {
                assert_eq!(b.backend.resolve(h).await.unwrap().handle(), *h);
            }
            let f = b.backend.resolve(&handles[3]).await.unwrap();
            assert_eq!(b.contents(&f).await, b"kept");
            let e = b.backend.resolve(&handles[2]).await.unwrap();
            assert_eq!(e.lookup(&root(), b"g").await.unwrap().0.id(), f.id());
            assert_eq!(e.lookup(&root(), b"..").await.unwrap().0.id(), b.root.id());
            // A program that another test starts inherits all open files until it executes.
            let limit = Instant::now() + Duration::from_secs(60);
            let resolved = async || open(dir.path(), unprivileged).resolve(&gone_handle).await;
            while resolved().await.is_ok() && Instant::now() < limit {
                std::thread::yield_now();
            }
            refused(resolved(), VfsError::Stale).await;
            let again = b.create("exclusive", mine).await.unwrap();
            assert_eq!((again.created, again.node.handle()), (true, first));
        });
    }
}

/// The folders are on one file system, where every file can be found by its handle.
#[test]
fn handles_stale_in_another_folder() {
    for unprivileged in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        [&old, &new].iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        block_on(async {
            let b = Bench::new(open(&old, unprivileged));
            let (f, d) = (b.file("f").await, b.dir("d").await);
            let below = d.mkdir(by(&root()), b"e", mode(0o755)).await.unwrap().node;
            let handles = [&b.root, &f, &d, &below].map(|n| n.handle());
            drop((f, d, below, b));
            // All files are below the new folder as well; old handles must be refused nevertheless.
            let others = [open(&new, unprivileged), open(dir.path(), unprivileged)];
            for (other, handle) in others.iter().flat_map(|o| handles.iter().map(move |h| (o, h))) {
                refused(other.resolve(handle), VfsError::Stale).await;
            }
            std::fs::rename(&old, dir.path().join("renamed")).unwrap();
            let same = open(&dir.path().join("renamed"), unprivileged);
            for handle in &handles {
                assert_eq!(same.resolve(handle).await.unwrap().handle(), *handle);
            }
        });
    }
}

#[test]
fn symbolic_links_lead_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/etc", dir.path().join("etc")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("passwd")).unwrap();
    std::os::unix::fs::symlink("new-outside", dir.path().join("dangling")).unwrap();
    block_on(async {
        let b = bench(dir.path());
        let c = root();
        let (etc, attr) = b.root.lookup(&c, b"etc").await.unwrap();
        assert_eq!(attr.kind, Kind::Symlink);
        refused(etc.lookup(&c, b"passwd"), VfsError::Symlink).await;
        refused(etc.readdir(&c, 0, 10), VfsError::Symlink).await;
        refused(etc.create(by(&c), b"x", CreateHow::Guarded, mode(0o644)), VfsError::Symlink).await;
        let (passwd, _) = b.root.lookup(&c, b"passwd").await.unwrap();
        refused(passwd.read(Some(&c), 0, 10, &b.into), VfsError::Symlink).await;
        refused(passwd.open(&c, true, false), VfsError::Symlink).await;
        let cut = SetAttr { size: Some(0), ..SetAttr::default() };
        refused(passwd.setattr(&c, cut, false), VfsError::Symlink).await;
        // A create over a link finds the link and creates no file at its target.
        let made = b.create("dangling", CreateHow::Unchecked).await.unwrap();
        assert_eq!((made.attr.kind, made.created), (Kind::Symlink, false));
        assert!(!dir.path().join("new-outside").exists());
        // Attributes are the link's own.
        let mtime = std::fs::metadata("/etc/passwd").unwrap().mtime();
        let set = SetAttr { mtime: Some(SetTime::At(Time { sec: 1, nsec: 0 })), ..mode(0o777) };
        passwd.setattr(&c, set, false).await.unwrap();
        assert_eq!(std::fs::metadata("/etc/passwd").unwrap().mtime(), mtime);
        assert_eq!(passwd.getattr().await.unwrap().mtime.sec, 1);
    });
}

#[test]
fn file_moved_out_not_served() {
    for unprivileged in [false, true] {
        let outer = tempfile::tempdir().unwrap();
        let share = outer.path().join("share");
        // A sibling whose name begins like the share's must not count as part of it.
        let outside = outer.path().join("share-not");
        std::fs::create_dir_all(share.join("d/sub")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("secret"), b"secret").unwrap();
        block_on(async {
            let b = Bench::new(open(&share, unprivileged));
            let c = root();
            let (d, _) = b.root.lookup(&c, b"d").await.unwrap();
            let (sub, _) = d.lookup(&c, b"sub").await.unwrap();
            std::fs::rename(share.join("d"), outside.join("d")).unwrap();
            refused(d.lookup(&c, b".."), VfsError::Stale).await;
            refused(d.lookup(&c, b"sub"), VfsError::Stale).await;
            refused(sub.lookup(&c, b".."), VfsError::Stale).await;
            refused(sub.readdir(&c, 0, 10), VfsError::Stale).await;
            refused(sub.create(by(&c), b"x", CreateHow::Guarded, mode(0o644)), VfsError::Stale)
                .await;
            refused(b.root.rename(by(&c), b"x", sub.as_ref(), b"y", true), VfsError::Stale).await;
            let handle = d.handle();
            drop((d, sub, b));
            let b = Bench::new(open(&share, unprivileged));
            refused(b.backend.resolve(&handle), VfsError::Stale).await;
        });
    }
}

#[test]
fn vanished_share_is_stale() {
    let outer = tempfile::tempdir().unwrap();
    let share = outer.path().join("share");
    std::fs::create_dir(&share).unwrap();
    std::fs::write(share.join("f"), b"").unwrap();
    block_on(async {
        let b = bench(&share);
        let (f, _) = b.root.lookup(&root(), b"f").await.unwrap();
        let handle = b.root.handle();
        std::fs::remove_dir_all(&share).unwrap();
        refused(b.root.getattr(), VfsError::Stale).await;
        refused(b.root.lookup(&root(), b"f"), VfsError::Stale).await;
        refused(b.root.readdir(&root(), 0, 10), VfsError::Stale).await;
        refused(b.create("x", CreateHow::Guarded), VfsError::Stale).await;
        let root = b.backend.resolve(&handle).await.unwrap();
        refused(root.getattr(), VfsError::Stale).await;
        assert_eq!(f.getattr().await.unwrap().nlink, 0);
        b.backend.statfs().await.unwrap();
    });
}

#[test]
fn read_only_share_refuses_changes() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), b"data").unwrap();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    let config = LocalConfig { read_only: true, ..LocalConfig::new(dir.path()) };
    let b = Bench::new(LocalBackend::open(config).unwrap());
    block_on(async {
        let c = root();
        let r = b.root.as_ref();
        let why = VfsError::ReadOnly;
        let (f, before) = b.root.lookup(&c, b"f").await.unwrap();
        refused(b.create("x", CreateHow::Guarded), why).await;
        refused(b.root.mkdir(by(&c), b"x", mode(0o755)), why).await;
        refused(b.root.symlink(&c, b"x", b"y", mode(0o755)), why).await;
        refused(b.root.mknod(&c, b"x", Special::Fifo, mode(0o755)), why).await;
        refused(b.root.unlink(by(&c), b"f"), why).await;
        refused(b.root.rmdir(by(&c), b"d"), why).await;
        refused(b.root.rename(by(&c), b"f", r, b"g", true), why).await;
        refused(f.link(by(&c), r, b"g"), why).await;
        refused(f.setattr(&c, mode(0o600), false), why).await;
        refused(f.write(WriteBy::Open(None), 0, vec![], Stable::Unstable), why).await;
        refused(f.open(&c, true, true), why).await;
        refused(f.allocate(None, 0, 10), why).await;
        refused(f.deallocate(None, 0, 10), why).await;
        refused(f.copy_range(None, f.as_ref(), 0, 10, 1), why).await;
        refused(f.clone_range(None, f.as_ref(), 0, 10, 1), why).await;
        refused(f.xattr_set(&c, b"a", b"", XattrHow::Either), why).await;
        refused(f.xattr_remove(&c, b"a"), why).await;
        let may = f.access(&c, Access(0x1ff), &f.getattr().await.unwrap()).await.unwrap().0;
        assert_eq!(may & (Access::MODIFY | Access::EXTEND | Access::XATTR_WRITE), 0);
        assert_eq!(b.contents(&f).await, b"data");
        assert_eq!(f.getattr().await.unwrap().change, before.change);
    });
}

#[test]
fn changes_on_the_host_are_seen() {
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let b = bench(dir.path());
        let f = b.file("f").await;
        b.write(&f, 0, b"old").await;
        let before = f.getattr().await.unwrap();
        std::fs::write(dir.path().join("f"), b"longer than before").unwrap();
        let after = f.getattr().await.unwrap();
        assert!(after.change > before.change);
        assert_eq!(b.contents(&f).await, b"longer than before");
        // A file that was removed and created again on the host is a different file.
        std::fs::remove_file(dir.path().join("f")).unwrap();
        std::fs::write(dir.path().join("f"), b"new").unwrap();
        let (new, _) = b.root.lookup(&root(), b"f").await.unwrap();
        assert_ne!(new.id(), f.id());
        assert_eq!(b.contents(&new).await, b"new");
    });
}

/// Sets a file's list to user::rwx, user:1001:`perm`, user:1002:---, and `perm` for all others.
fn set_list(path: &Path, perm: u16) -> bool {
    let mut acl = 2_u32.to_le_bytes().to_vec();
    let entries: [(u16, u16, u32); 6] = [
        (1, 7, u32::MAX),
        (2, perm, 1001),
        (2, 0, 1002),
        (4, perm, u32::MAX),
        (16, perm, u32::MAX),
        (32, perm, u32::MAX),
    ];
    for (tag, perm, id) in entries {
        acl.extend(tag.to_le_bytes());
        acl.extend(perm.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    let flags = rustix::fs::XattrFlags::empty();
    match rustix::fs::setxattr(path, "system.posix_acl_access", &acl, flags) {
        Ok(()) => true,
        Err(e) => {
            println!("skipped: no access control lists here: {e}");
            false
        }
    }
}

/// A list that is added later applies, however often the file was used without one.
#[test]
fn later_permission_list_applies() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let sub = dir.path().join("d");
    std::fs::create_dir(&sub).unwrap();
    std::fs::write(sub.join("f"), b"data").unwrap();
    block_on(async {
        let b = bench(dir.path());
        b.root.setattr(&root(), mode(0o755), false).await.unwrap();
        let (d, _) = b.root.lookup(&root(), b"d").await.unwrap();
        d.setattr(&root(), mode(0o777), false).await.unwrap();
        // Results from now on are cached.
        until_settled(&sub);
        for _ in 0..3 {
            d.lookup(&user(1002), b"f").await.unwrap();
            d.readdir(&user(1002), 0, 10).await.unwrap();
        }
        if !set_list(&sub, 7) {
            return;
        }
        let bob = user(1002);
        refused(d.lookup(&bob, b"f"), VfsError::Access).await;
        refused(d.readdir(&bob, 0, 10), VfsError::Access).await;
        refused(d.unlink(by(&bob), b"f"), VfsError::Access).await;
        refused(d.rename(by(&bob), b"f", d.as_ref(), b"g", true), VfsError::Access).await;
        refused(d.create(by(&bob), b"h", CreateHow::Guarded, mode(0o644)), VfsError::Access).await;
        assert_eq!(
            d.access(&bob, Access(0x1ff), &d.getattr().await.unwrap()).await.unwrap(),
            Access(0)
        );
        d.lookup(&user(1001), b"f").await.unwrap();
        d.unlink(by(&user(1003)), b"f").await.unwrap();
    });
}

/// Data about a file is cached only if no change can go unnoticed: an outdated value is never used, not even for a moment.
#[test]
fn host_changes_count_at_next_access() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let none = rustix::fs::XattrFlags::empty();
    // Samba's record, version 5: hidden.
    let hidden = [0, 0, 5, 0, 5, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0];
    block_on(async {
        let b = bench(dir.path());
        let bob = user(1002);
        for round in 0..50 {
            let name = format!("f{round}");
            let path = dir.path().join(&name);
            let how = CreateHow::Guarded;
            let f =
                b.root.create(by(&root()), name.as_bytes(), how, mode(0o644)).await.unwrap().node;
            assert!(f.read(Some(&bob), 0, 1, &b.into).await.is_ok(), "{round}");
            assert_eq!(f.dos(&f.getattr().await.unwrap()).await.unwrap().attributes, None);
            if !set_list(&path, 4) {
                return;
            }
            refused(f.read(Some(&bob), 0, 1, &b.into), VfsError::Access).await;
            rustix::fs::removexattr(&path, "system.posix_acl_access").unwrap();
            assert!(f.read(Some(&bob), 0, 1, &b.into).await.is_ok(), "{round}");
            rustix::fs::setxattr(&path, "user.DOSATTRIB", &hidden, none).unwrap();
            let now = f.dos(&f.getattr().await.unwrap()).await.unwrap();
            assert_eq!(now.attributes, Some(Dos::HIDDEN), "{round}");
        }
    });
}

/// A slow operation delays no other: a separate thread frees the storage.
#[test]
fn large_file_truncated_by_thread() {
    let long_stats = || vfs::engine::threads::Engine::common().long_stats();
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let b = bench(dir.path());
        let f = b.file("f").await;
        let sized = |size| SetAttr { size: Some(size), ..SetAttr::default() };
        f.setattr(&root(), sized(65 << 20), false).await.unwrap();
        let done = long_stats().done;
        let (before, after) = f.setattr(&root(), sized(5), false).await.unwrap();
        assert_eq!((before.size, after.size), (65 << 20, 5));
        assert!(long_stats().done > done);
    });
}

#[test]
fn permission_lists_decide_like_host() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), b"data").unwrap();
    if !set_list(&dir.path().join("f"), 4) {
        return;
    }
    block_on(async {
        let b = bench(dir.path());
        let (f, _) = b.root.lookup(&root(), b"f").await.unwrap();
        assert!(f.read(Some(&user(1001)), 0, 10, &b.into).await.is_ok());
        // The mode would let this user read.
        refused(f.read(Some(&user(1002)), 0, 10, &b.into), VfsError::Access).await;
        assert!(f.read(Some(&user(1003)), 0, 10, &b.into).await.is_ok());
        let may =
            f.access(&user(1002), Access(Access::READ), &f.getattr().await.unwrap()).await.unwrap();
        assert_eq!(may, Access(0));
    });
}

/// The file that a link should replace stays until the link has its name, and also if the link fails.
#[test]
fn failed_link_keeps_replaced_file() {
    let rule = std::fs::read("/proc/sys/fs/protected_hardlinks").unwrap_or_default();
    if !is_root() || !rule.starts_with(b"1") {
        return;
    }
    use vfs::namespace::{Enforce, Namespace, Protocols, Share, Squash};
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let b = bench(dir.path());
        let share = Share {
            name: "s".into(),
            id: Share::id_of("s"),
            backend: b.backend.clone(),
            read_only: false,
            protocols: Protocols::Both,
            squash: Squash::None,
            nfs_locks: Enforce::Smb,
            clients: None,
            rules: vfs::namespace::Rules::default(),
        };
        let namespace = Namespace::new(vec![share]);
        let (share, file_ops) = (namespace.shares()[0].clone(), namespace.by(None));
        let (bob, set) = (suite::user(1002), suite::mode(0o600));
        b.root.setattr(&Cred::root(), suite::mode(0o777), false).await.unwrap();
        let mine = b.root.mkdir(by(&bob), b"mine", suite::mode(0o700)).await.unwrap().node;
        let old = mine.create(by(&bob), b"old", CreateHow::Guarded, set).await.unwrap().node;
        let roots =
            b.root.create(by(&Cred::root()), b"roots", CreateHow::Guarded, set).await.unwrap();
        let over = (&mine, &b"old"[..]);
        let done = file_ops.link_over(&share, &roots.node, &bob, over, &old).await;
        assert_eq!(done, Err(VfsError::Perm));
        assert_eq!(mine.lookup(&bob, b"old").await.unwrap().0.id(), old.id());
        let new = mine.create(by(&bob), b"new", CreateHow::Guarded, set).await.unwrap().node;
        file_ops.link_over(&share, &new, &bob, over, &old).await.unwrap();
        let (there, attr) = mine.lookup(&bob, b"old").await.unwrap();
        assert_eq!((there.id(), attr.nlink), (new.id(), 2));
        assert_eq!(old.getattr().await.unwrap().nlink, 0);
    });
}

/// Returns the user, group and groups with which this thread accesses files.
fn file_identity() -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    status.lines().filter(|l| l.starts_with("Uid:") || l.starts_with("Gid:")).collect()
}

#[test]
fn no_thread_stays_another() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let b = Arc::new(bench(dir.path()));
    let before = file_identity();
    block_on(b.root.setattr(&root(), mode(0o1777), false)).unwrap();
    let threads: Vec<_> = (0..4_u32)
        .map(|t| {
            let (b, before) = (b.clone(), before.clone());
            std::thread::spawn(move || {
                for i in 0..50_u32 {
                    let c = Cred {
                        uid: 1000 + t,
                        gid: 2000 + i % 3,
                        groups: [7, i].into(),
                        token: vfs::Token::NONE,
                    };
                    let name = format!("{t}-{i}");
                    let how = CreateHow::Guarded;
                    let made = block_on(b.root.create(by(&c), name.as_bytes(), how, mode(0o600)));
                    assert_eq!(file_identity(), before);
                    let made = made.unwrap();
                    assert_eq!((made.attr.uid, made.attr.gid), (c.uid, c.gid));
                    // Failures restore the identity as well.
                    let other = Cred { uid: 3000, ..c.clone() };
                    block_on(refused(b.root.unlink(by(&other), name.as_bytes()), VfsError::Perm));
                    block_on(refused(made.node.open(&other, true, false), VfsError::Access));
                    assert_eq!(file_identity(), before);
                    let nobody = Cred { uid: u32::MAX, ..c.clone() };
                    let why = block_on(b.root.create(by(&nobody), b"x", how, mode(0o600))).err();
                    assert_eq!(why, Some(VfsError::Access));
                    assert_eq!(file_identity(), before);
                    // The thread's own operations use the process's identity.
                    let own = tempfile::tempfile().unwrap();
                    assert_eq!(own.metadata().unwrap().uid(), 0);
                }
            })
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
}

/// Simulates a process that is not root, as far as one thread can.
#[test]
fn ordinary_user_can_serve() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
    let served = std::thread::spawn(move || {
        let (uid, gid) =
            (rustix::process::Uid::from_raw(65534), rustix::process::Gid::from_raw(65534));
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        block_on(async {
            let b = bench(&path);
            // The files belong to the server's user, for every caller.
            let made =
                b.root.create(by(&user(5)), b"f", CreateHow::Guarded, mode(0o600)).await.unwrap();
            assert_eq!((made.attr.uid, made.attr.gid), (65534, 65534));
            b.write(&made.node, 0, b"data").await;
            assert_eq!(b.contents(&made.node).await, b"data");
            let give = SetAttr { uid: Some(0), ..SetAttr::default() };
            refused(made.node.setattr(&root(), give, false), VfsError::Perm).await;
            made.node.link(by(&user(5)), b.root.as_ref(), b"g").await.unwrap();
            let d = b.dir("d").await;
            b.root.rename(by(&root()), b"f", d.as_ref(), b"f", true).await.unwrap();
            assert_eq!(b.names(&d, 10).await, ["f"]);
            d.setattr(&root(), mode(0), false).await.unwrap();
            refused(d.lookup(&root(), b"f"), VfsError::Access).await;
            refused(d.readdir(&root(), 0, 10), VfsError::Access).await;
            d.setattr(&root(), mode(0o700), false).await.unwrap();
            let handle = made.node.handle();
            drop((made, d, b));
            let b = bench(&path);
            let f = b.backend.resolve(&handle).await.unwrap();
            assert_eq!(b.contents(&f).await, b"data");
        });
    });
    served.join().unwrap();
}

#[test]
fn deep_tree_served_up_to_limit() {
    let outer = tempfile::tempdir().unwrap();
    let share = outer.path().join("share");
    std::fs::create_dir(&share).unwrap();
    block_on(async {
        let b = bench(&share);
        let c = root();
        // Longer than any path that the kernel accepts or reports.
        let name = vec![b'd'; 250];
        let top = b.root.mkdir(by(&c), &name, mode(0o755)).await.unwrap().node;
        let mut at = top.clone();
        for _ in 0..20 {
            at = at.mkdir(by(&c), &name, mode(0o755)).await.unwrap().node;
        }
        at.create(by(&c), b"f", CreateHow::Guarded, mode(0o644)).await.unwrap();
        assert_eq!(b.names(&at, 10).await, ["f"]);
        at.lookup(&c, b"..").await.unwrap();
        let out = outer.path().join("out");
        std::fs::rename(share.join(std::str::from_utf8(&name).unwrap()), out).unwrap();
        refused(at.lookup(&c, b"f"), VfsError::Stale).await;
        refused(at.lookup(&c, b".."), VfsError::Stale).await;
        refused(top.readdir(&c, 0, 10), VfsError::Stale).await;
        // More directories than the check follows: refused.
        let mut at = b.root.clone();
        let mut depth = 0;
        let why = loop {
            match at.mkdir(by(&c), b"d", mode(0o755)).await {
                Ok(made) => at = made.node,
                Err(e) => break e,
            }
            depth += 1;
            assert!(depth < 3000);
        };
        assert_eq!((why, depth > 2000), (VfsError::NameTooLong, true));
    });
}

#[test]
fn superuser_without_setuid_refused() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    // Each thread has separate capabilities.
    let refused = std::thread::spawn(move || {
        let mut sets = rustix::thread::capabilities(None).unwrap();
        sets.effective.remove(rustix::thread::CapabilitySet::SETUID);
        rustix::thread::set_capabilities(None, sets).unwrap();
        LocalBackend::open(LocalConfig::new(path)).err()
    });
    assert_eq!(refused.join().unwrap(), Some(VfsError::Perm));
}

#[test]
fn running_program_refuses_writes() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let mut running = std::process::Command::new(&program).arg("60").spawn().unwrap();
    block_on(async {
        let b = bench(dir.path());
        let (f, _) = b.root.lookup(&root(), b"program").await.unwrap();
        let data = vec![iobuf::Buf::from(vec![1])];
        refused(f.write(WriteBy::Caller(&root()), 0, data, Stable::Unstable), VfsError::Access)
            .await;
        assert!(!b.contents(&f).await.is_empty());
    });
    running.kill().unwrap();
    running.wait().unwrap();
}

/// Data that is not, or only in part, in the page cache is read completely.
#[test]
fn uncached_data_read_on_thread() {
    let dir = tempfile::tempdir().unwrap();
    let data = pattern(5, 1 << 20);
    std::fs::write(dir.path().join("f"), &data).unwrap();
    let file = std::fs::File::open(dir.path().join("f")).unwrap();
    file.sync_all().unwrap();
    block_on(async {
        let b = bench(dir.path());
        let (f, _) = b.root.lookup(&root(), b"f").await.unwrap();
        // First no page cached; then single pages; then all.
        let pages: [&[u64]; 3] = [&[], &[0, 1, 7, 100], &[]];
        for cached in pages {
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
            for page in cached {
                let mut one = [0; 4096];
                std::os::unix::fs::FileExt::read_exact_at(&file, &mut one, page * 4096).unwrap();
            }
            for (at, n) in [(0, 65536), (4096, 65536), (28_000, 10_000), (0, 1 << 20)] {
                let (read, eof) = b.read(&f, at, n).await;
                assert!(read == data[at as usize..at as usize + n], "{at} {n}");
                assert_eq!(eof, at as usize + n == data.len());
            }
        }
        assert!(
            vfs::engine::threads::Engine::common().stats().threads
                <= vfs::engine::limits::IO_THREADS
        );
    });
}

/// Handles stored on the volume keep their form from before a share's folder became a part of handles.
#[test]
fn streams_stay_when_parent_is_served() {
    for unprivileged in [false, true] {
        let above = tempfile::tempdir().unwrap();
        let share = above.path().join("share");
        std::fs::create_dir(&share).unwrap();
        block_on(async {
            let b = Bench::new(open(&share, unprivileged));
            let ns = suite::streams::served(&b);
            let f = b.file("f").await;
            let made = ns.by(None).stream_create(&ns.shares()[0], &f, &root(), "s").await.unwrap();
            b.write(&made.0.node, 0, b"of a stream").await;
            drop((made, f, ns, b));
            std::fs::rename(share.join(".headgate"), above.path().join(".headgate")).unwrap();
            let b = Bench::new(open(above.path(), unprivileged));
            let ns = suite::streams::served(&b);
            let share = &ns.shares()[0];
            assert_eq!(vfs::streams::sweep(share).await, Ok(0), "its file is there");
            let (dir, _) = b.root.lookup(&root(), b"share").await.unwrap();
            let (f, _) = dir.lookup(&root(), b"f").await.unwrap();
            let s = vfs::streams::find(share, &f, "s").await.unwrap();
            assert_eq!(b.contents(&s.node).await, b"of a stream");
            // The removal is still detected.
            drop((s, f, dir, ns, b));
            std::fs::remove_file(above.path().join("share/f")).unwrap();
            let ns = suite::streams::served(&Bench::new(open(above.path(), unprivileged)));
            assert_eq!(vfs::streams::sweep(&ns.shares()[0]).await, Ok(1));
        });
    }
}

/// A run that cannot open the kernel's handles finds no file by them: it must not treat the files as removed.
#[test]
fn streams_survive_unprivileged_run() {
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        for (first, then) in [(false, true), (true, false)] {
            let open = |unprivileged| Bench::new(open(dir.path(), unprivileged));
            let b = open(first);
            let name = format!("f{first}");
            let f = b.file(&name).await;
            let ns = suite::streams::served(&b);
            let made = ns.by(None).stream_create(&ns.shares()[0], &f, &root(), "s").await.unwrap();
            b.write(&made.0.node, 0, b"of a stream").await;
            drop((made, f, ns, b));
            let ns = suite::streams::served(&open(then));
            assert_eq!(vfs::streams::sweep(&ns.shares()[0]).await, Ok(0));
            drop(ns);
            let b = open(first);
            let ns = suite::streams::served(&b);
            let (f, _) = b.root.lookup(&root(), name.as_bytes()).await.unwrap();
            assert_eq!(vfs::streams::sweep(&ns.shares()[0]).await, Ok(0));
            let s = vfs::streams::find(&ns.shares()[0], &f, "s").await.unwrap();
            assert_eq!(b.contents(&s.node).await, b"of a stream");
        }
    });
}

#[test]
fn foreign_hidden_folder_not_used() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join(".headgate")).unwrap();
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(dir.path().join(".headgate"), open_to_all).unwrap();
    block_on(async {
        let b = bench(dir.path());
        for make in [false, true] {
            refused(b.backend.hidden(make), VfsError::NotSupported).await;
        }
        refused(b.root.lookup(&root(), b".headgate"), VfsError::NotFound).await;
        refused(b.root.rmdir(by(&root()), b".headgate"), VfsError::Access).await;
        refused(b.root.mkdir(by(&root()), b".headgate", mode(0o755)), VfsError::Access).await;
        assert!(b.names(&b.root, 10).await.is_empty());
        // Files are served nevertheless: they have no streams, and can be truncated and removed.
        let ns = suite::streams::served(&b);
        let share = &ns.shares()[0];
        let f = b.file("f").await;
        assert!(vfs::streams::list(share, &f).await.unwrap().is_empty());
        refused(vfs::streams::find(share, &f, "x"), VfsError::NotFound).await;
        refused(ns.by(None).stream_create(share, &f, &root(), "x"), VfsError::NotSupported).await;
        assert_eq!(vfs::streams::sweep(share).await, Ok(0));
        assert!(ns.unlink(share, &b.root, &root(), b"f").await.is_ok());
    });
}

#[test]
fn hidden_folder_recreated_after_clearing() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path(), false);
    block_on(async {
        let first = backend.hidden(true).await.unwrap().unwrap();
        std::fs::remove_dir_all(dir.path().join(".headgate")).unwrap();
        assert!(backend.hidden(false).await.unwrap().is_none());
        let again = backend.hidden(true).await.unwrap().unwrap();
        assert_ne!(again.id(), first.id());
        let made = again.mkdir(by(&Cred::root()), b"streams", SetAttr::default()).await;
        assert!(made.is_ok());
    });
}

/// Returns the contents of pages as a peer receives them.
fn sent(pages: &iobuf::Pages) -> Vec<u8> {
    use std::io::Read;
    use std::os::fd::AsFd;
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let (len, pages) = (pages.len(), pages.clone());
    let sender = std::thread::spawn(move || {
        while pages.left() > 0 {
            pages.send(ours.as_fd(), false).unwrap();
        }
    });
    let mut got = vec![0; len];
    theirs.read_exact(&mut got).unwrap();
    sender.join().unwrap();
    got
}

#[test]
fn large_socket_read_uses_file_pages() {
    let dir = tempfile::tempdir().unwrap();
    let mut b = bench(dir.path());
    b.into.pages = true;
    let all: Vec<u8> = (0..1_500_000_u32).map(|i| (i / 3 % 251) as u8).collect();
    block_on(async {
        let file = b.file("large").await;
        b.write(&file, 0, &all).await;
        // A hole of more than a page, followed by data.
        b.write(&file, 1_600_000, &[9; 10]).await;
        let all = [&all[..], &[0; 100_000], &[9; 10]].concat();
        let (mib, end) = (1 << 20, all.len());
        let parts = [(0, mib), (mib, mib), (4096, 65_537), (mib + 4096 * 50, mib), (4096, 8 * mib)];
        for (at, count) in parts {
            let read = file.read(Some(&root()), at as u64, count, &b.into).await.unwrap();
            assert!(read.data.is_empty());
            assert_eq!(read.len(), count.min(end - at));
            assert_eq!((read.eof, read.attr.unwrap().size), (at + count >= end, end as u64));
            // The read's buffers stay in use until it is dropped.
            let taken = b.into.pool.stats().iter().map(|s| s.in_use).sum::<usize>();
            assert_eq!(taken, read.len().div_ceil(mib));
            let wanted = &all[at..at + read.len()];
            assert!(sent(&read.pages.unwrap()) == wanted, "{at}");
        }
        for (at, count) in [(0, 65_536), (1, mib), (end, mib), (end + 4096, mib)] {
            let read = file.read(Some(&root()), at as u64, count, &b.into).await.unwrap();
            assert_eq!(read.pages.as_ref().map_or(0, iobuf::Pages::len), 0, "{at} {count}");
            assert_eq!(read.eof, at + read.len() >= end);
        }
        assert_eq!(b.into.pool.stats().iter().map(|s| s.in_use).sum::<usize>(), 0);
    });
}

#[test]
fn pages_need_read_permission() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut b = bench(dir.path());
    b.into.pages = true;
    block_on(async {
        let file = b.file("closed").await;
        b.write(&file, 0, &[1; 200_000]).await;
        let closed = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        file.setattr(&root(), closed, false).await.unwrap();
        let other = Cred { uid: 4711, gid: 4711, groups: [].into(), token: vfs::Token::NONE };
        let refused = file.read(Some(&other), 0, 1 << 20, &b.into).await;
        assert_eq!(refused.unwrap_err(), VfsError::Access);
        assert_eq!(file.read(None, 0, 1 << 20, &b.into).await.unwrap().len(), 200_000);
    });
}

#[test]
fn read_within_known_size_skips_stat() {
    let dir = tempfile::tempdir().unwrap();
    let mut b = bench(dir.path());
    b.into.attributes = false;
    block_on(async {
        let file = b.file("known").await;
        b.write(&file, 0, &[5; 10_000]).await;
        let read = async |at| file.read(None, at, 4096, &b.into).await.unwrap();
        let first = read(0).await;
        assert_eq!((first.len(), first.eof, first.attr.is_none()), (4096, false, true));
        // Near the known end the file's size is read: the host may have extended or truncated the file.
        let last = read(8192).await;
        assert_eq!((last.len(), last.eof, last.attr.is_some()), (1808, true, true));
        let host = std::fs::File::options().write(true).open(dir.path().join("known")).unwrap();
        host.set_len(20_000).unwrap();
        assert!(!read(8192).await.eof && !read(12_288).await.eof, "grown");
        host.set_len(6000).unwrap();
        let last = read(4096).await;
        assert_eq!((last.len(), last.eof), (1904, true), "cut");
        let other = file.read(Some(&root()), 0, 1000, &b.into).await.unwrap().attr;
        assert!(other.is_some(), "without an open");
    });
}
/// A name is removed and created again as another kind of node repeatedly, so that its inode number is reused at once.
#[test]
fn reused_inode_number_is_new_node() {
    for unprivileged in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let b = Arc::new(Bench::new(open(dir.path(), unprivileged)));
        let change = |b: Arc<Bench>| {
            block_on(async {
                for _ in 0..500 {
                    let _ = b.root.mkdir(by(&root()), b"a", mode(0o755)).await;
                    let _ = b.root.rmdir(by(&root()), b"a").await;
                    let _ = b.create("a", CreateHow::Guarded).await;
                    let _ = b.root.unlink(by(&root()), b"a").await;
                }
            });
        };
        let look = |b: Arc<Bench>| {
            block_on(async {
                for _ in 0..5000 {
                    if let Ok((node, attr)) = b.root.lookup(&root(), b"a").await {
                        assert_eq!(node.kind(), attr.kind);
                        if let Ok(again) = b.backend.resolve(&node.handle()).await {
                            assert_eq!((again.kind(), again.id()), (node.kind(), node.id()));
                        }
                    }
                }
            });
        };
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| change(b.clone()));
                s.spawn(|| look(b.clone()));
            }
        });
    }
}
