//! The rules of [`suite`] on a CephFS, and tests that need a cluster.
//!
//! Needs a cluster with a file system `fs`: the one that `tests/ceph/cluster up` starts, or one whose configuration `CEPH_CONF`
//! names. `cargo xtask test --tier third` starts one and runs this.

// Helpers of tests are tests too; and test data is cut to bytes on purpose.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

#[allow(dead_code)] // CephFS has no copies, clones or exchanges.
mod suite;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use iobuf::Buf;
use suite::*;
use vfs::ceph::{CephBackend, CephConfig};
use vfs::*;

fn block_on<T>(f: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f)
}

fn conf() -> PathBuf {
    let conf = std::env::var_os("CEPH_CONF");
    let conf = conf.map_or("/var/tmp/headgate-ceph/ceph.conf".into(), PathBuf::from);
    assert!(conf.exists(), "no cluster: tests/ceph/cluster up");
    conf
}

fn config(root: &str) -> CephConfig {
    CephConfig { conf: Some(conf()), ..CephConfig::new("fs", root) }
}

fn open(root: &str) -> Arc<CephBackend> {
    CephBackend::open(&config(root)).unwrap()
}

/// Returns a backend of the whole file system.
fn whole() -> Arc<CephBackend> {
    open("/")
}

/// Creates a new world-writable folder of the file system.
fn folder() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("t{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = format!("/{name}");
    // A separate thread, because tests call this in their runtime, too.
    let make = move || {
        let top = whole().root();
        block_on(top.mkdir(Acting::caller(&root()), name.as_bytes(), mode(0o777)))
            .map(drop)
            .unwrap();
    };
    std::thread::spawn(make).join().unwrap();
    path
}

fn bench() -> Bench {
    Bench::new(open(&folder()))
}

macro_rules! on_ceph {
    ($($module:ident :: $test:ident),* $(,)?) => { $(
        #[test]
        fn $test() {
            block_on(suite::$module::$test(bench()));
        }
    )* };
}

on_ceph!(
    names::lookup_finds_created_nodes,
    names::bad_names_are_refused,
    names::create_in_three_ways,
    names::exclusive_create_can_be_repeated,
    names::unlink_and_rmdir_check_kind,
    names::removed_file_lives_while_held,
    names::rename_moves_and_replaces,
    names::hard_links_are_one_node,
    names::links_and_special_nodes,
    names::devices_keep_their_numbers,
    names::failed_create_leaves_no_node,
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
    data::extended_attributes,
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
    replace::file_replacing_link_gets_default_mode,
    replace::file_replacing_link_gets_masked_mode,
    replace::file_replacing_link_inherits,
    replace::start_removes_leftovers,
    replace::replacement_needs_permission,
    windows::side_data_is_kept_and_hidden,
    windows::dos_records_are_kept,
    windows::reparse_points_are_kept,
    windows::node_reports_its_path,
    windows::rename_without_replace_keeps_target,
    windows::file_ops_report_changes,
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
    block_on(suite::names::two_backends_do_not_mix(bench(), bench()));
}

/// The backend switches the library's log of its calls off, unless the configuration sets a level.
#[test]
fn library_logs_calls_if_configured() {
    let folder = folder();
    let level = |conf: PathBuf| {
        let config = CephConfig { conf: Some(conf), ..CephConfig::new("fs", &folder) };
        vfs::ceph::mount(&config, &[], &[]).unwrap().setting("debug_client").unwrap()
    };
    assert_eq!(level(conf()), "0/0");
    let loud = tempfile::NamedTempFile::new().unwrap();
    let text = std::fs::read_to_string(conf()).unwrap();
    std::fs::write(&loud, text.replace("[client]", "[client]\ndebug client = 1/3")).unwrap();
    assert_eq!(level(loud.path().into()), "1/3");
}

#[test]
fn unsupported_operations_are_refused() {
    block_on(async {
        let b = bench();
        let f = b.file("f").await;
        b.write(&f, 1 << 20, b"data").await;
        assert_eq!(f.seek(0, Seek::Data).await, Ok(0));
        assert_eq!(f.seek(0, Seek::Hole).await, Ok((1 << 20) + 4));
        refused(f.allocate(None, 0, 4096), VfsError::NotSupported).await;
        f.deallocate(None, (1 << 20) + 1, 2).await.unwrap();
        assert_eq!(b.read(&f, 1 << 20, 10).await, (b"d\0\0a".to_vec(), true));
        let g = b.file("g").await;
        refused(g.copy_range(None, f.as_ref(), 0, 0, 0), VfsError::NotSupported).await;
        refused(g.clone_range(None, f.as_ref(), 0, 0, 0), VfsError::NotSupported).await;
        refused(
            b.root.exchange(Acting::caller(&root()), b"f", b.root.as_ref(), b"g"),
            VfsError::NotSupported,
        )
        .await;
    });
}

/// The cluster has 32 bits for seconds: times beyond that are stored as the nearest possible value.
#[test]
fn times_kept_from_1970_to_2106() {
    block_on(async {
        let b = bench();
        let f = b.file("f").await;
        let last = i64::from(u32::MAX);
        for (sec, kept) in [(-1, 0), (0, 0), (last, last), (last + 1, last), (10_000_000_000, last)]
        {
            let at = Some(SetTime::At(Time { sec, nsec: 7 }));
            f.setattr(&root(), SetAttr { mtime: at, atime: at, ..SetAttr::default() }, false)
                .await
                .unwrap();
            let attr = f.getattr().await.unwrap();
            assert_eq!((attr.mtime.sec, attr.atime.sec), (kept, kept), "{sec}");
        }
    });
}

/// Same behaviour as ftruncate(2) on other file systems.
#[test]
fn setting_same_size_changes_time() {
    block_on(async {
        let b = bench();
        let f = b.file("f").await;
        for size in [0, 5, 5] {
            let old = SetTime::At(Time { sec: 1000, nsec: 0 });
            f.setattr(&root(), SetAttr { mtime: Some(old), ..SetAttr::default() }, false)
                .await
                .unwrap();
            f.setattr(&root(), SetAttr { size: Some(size), ..SetAttr::default() }, false)
                .await
                .unwrap();
            assert!(f.getattr().await.unwrap().mtime.sec > 1000, "cut to {size}");
        }
    });
}

/// The MDS reports that the first is gone before the second exists.
#[test]
fn second_run_disconnects_the_first() {
    block_on(async {
        let mut config = config(&folder());
        config.uuid = Some(format!("test-{}", std::process::id()));
        let first = Bench::new(CephBackend::open(&config).unwrap());
        let f = first.file("f").await;
        first.write(&f, 0, b"first").await;
        let handle = f.handle();
        let second = Bench::new(CephBackend::open(&config).unwrap());
        let again = second.backend.resolve(&handle).await.unwrap();
        assert_eq!(second.contents(&again).await, b"first");
        let lost =
            f.write(WriteBy::Open(None), 0, vec![Buf::from(b"LOST!".to_vec())], Stable::File).await;
        assert_eq!(lost.err(), Some(VfsError::Io));
        refused(first.root.mkdir(Acting::caller(&root()), b"d", mode(0o755)), VfsError::Io).await;
        second.write(&again, 0, b"again").await;
        assert_eq!(second.contents(&again).await, b"again");
    });
}

/// A mount that never ends leaves a session behind, which delays other clients for a minute.
#[test]
fn operation_after_release_keeps_no_mount() {
    block_on(async {
        let root = open(&folder()).root();
        let by = suite::root();
        let made = root.mkdir(Acting::caller(&by), b"d", mode(0o755)).await.unwrap().node;
        let all = [&root, &made].map(Arc::downgrade);
        drop((root, made));
        assert!(all.iter().all(|node| node.upgrade().is_none()), "the list of records has one");
    });
}

/// The first gateway is disconnected before the cluster has the times that contain the verifier; its client repeats the create at
/// the second gateway.
#[test]
fn exclusive_create_repeated_after_gateway_death() {
    use vfs::acl::{Ace, Acl, Owner, Who, mask};
    const UID: u32 = 1001;
    let mut config = config(&folder());
    config.uuid = Some(format!("exclusive-{}", std::process::id()));
    let open = || Bench::new(CephBackend::open(&config).unwrap());
    let (mine, other) = (CreateHow::Exclusive(*b"verifier"), CreateHow::Exclusive(*b"Verifier"));
    let (ann, bob) = (user(UID), user(UID + 1));
    let set = || mode(0o6750);
    block_on(async {
        let mut first = open();
        let listed = first.dir("listed").await;
        let list = [UID, UID + 1].map(|uid| Ace::allow(Who::User(uid), mask::FILE_ALL, 0));
        let list = Acl::new(list.to_vec());
        let owner = listed.getattr().await.unwrap();
        listed.acl_set(&list, list.mode(Owner::of(&owner))).await.unwrap();
        let (mut half_way, mut n) = ([0, 0], 0);
        // The library may have written to the cluster meanwhile.
        while half_way.contains(&0) {
            n += 1;
            assert!(n < 50, "the times were always kept: {half_way:?}");
            let name = format!("x{n}");
            let name = name.as_bytes();
            let listed = first.root.lookup(&root(), b"listed").await.unwrap().0;
            for dir in [&first.root, &listed] {
                let made = dir.create(Acting::caller(&ann), name, mine, set()).await.unwrap();
                assert!(made.created);
            }
            let plain = format!("y{n}");
            let plain = plain.as_bytes();
            first.root.create(Acting::caller(&ann), plain, mine, mode(0o750)).await.unwrap();
            let second = open();
            // Only a list could permit the rest of the create, and the folder has no list.
            let (_, seen) = second.root.lookup(&root(), plain).await.unwrap();
            if Some(seen.mtime) == seen.btime {
                let again = second.root.create(Acting::caller(&ann), plain, mine, set());
                refused(again, VfsError::Exists).await;
            }
            let listed = second.root.lookup(&root(), b"listed").await.unwrap().0;
            for (dir, half_way) in [&second.root, &listed].into_iter().zip(&mut half_way) {
                let (_, seen) = dir.lookup(&root(), name).await.unwrap();
                *half_way += u32::from(Some(seen.mtime) == seen.btime);
                assert_eq!(seen.rdev, (0, 0), "of a regular file");
                let create = |by, how| dir.create(Acting::caller(by), name, how, set());
                refused(create(&ann, other), VfsError::Exists).await;
                refused(create(&bob, mine), VfsError::Exists).await;
                refused(create(&ann, CreateHow::Guarded), VfsError::Exists).await;
                for _ in 0..2 {
                    let made = create(&ann, mine).await.unwrap();
                    assert!(made.created);
                    let (its, is) = (made.attr, (made.attr.uid, made.attr.gid, made.attr.mode));
                    assert_eq!(is, (UID, UID, 0o6750));
                    assert_ne!(Some(its.mtime), its.btime, "it is finished");
                }
                refused(create(&ann, other), VfsError::Exists).await;
                refused(create(&bob, mine), VfsError::Exists).await;
            }
            first = second;
        }
    });
}

#[test]
fn handles_survive_restart_within_one_folder() {
    block_on(async {
        let path = folder();
        let b = Bench::new(open(&path));
        let d = b.dir("d").await;
        let f = d
            .create(Acting::caller(&root()), b"f", CreateHow::Guarded, mode(0o644))
            .await
            .unwrap()
            .node;
        b.write(&f, 0, b"data").await;
        let (f, d) = (f.handle(), d.handle());
        drop(b);
        let b = Bench::new(open(&path));
        let found = b.backend.resolve(&f).await.unwrap();
        assert_eq!(b.contents(&found).await, b"data");
        let folder_again = b.backend.resolve(&d).await.unwrap();
        assert_eq!(folder_again.path().await.unwrap(), b"d");
        let below = Bench::new(open(&format!("{path}/d")));
        refused(below.backend.resolve(&f), VfsError::Stale).await;
        // Both find the file by the handle written on the volume.
        let stored = b.backend.stored(&f);
        let its = below.backend.resolve(&below.backend.served(&stored)).await.unwrap();
        assert_eq!(below.contents(&its).await, b"data");
        b.root
            .lookup(&root(), b"d")
            .await
            .unwrap()
            .0
            .unlink(Acting::caller(&root()), b"f")
            .await
            .unwrap();
        drop(found);
        refused(b.backend.resolve(&f), VfsError::Stale).await;
    });
}

#[test]
fn paths_above_folder_are_unreachable() {
    block_on(async {
        let path = folder();
        let above = Bench::new(open(&path));
        let share = above.dir("share").await;
        let d = share.mkdir(Acting::caller(&root()), b"d", mode(0o755)).await.unwrap().node;
        d.mkdir(Acting::caller(&root()), b"e", mode(0o755)).await.unwrap();
        let b = Bench::new(open(&format!("{path}/share")));
        let (up, _) = b.root.lookup(&root(), b"..").await.unwrap();
        assert_eq!(up.id(), b.root.id());
        let (d, _) = b.root.lookup(&root(), b"d").await.unwrap();
        let (e, _) = d.lookup(&root(), b"e").await.unwrap();
        assert_eq!(e.lookup(&root(), b"..").await.unwrap().0.id(), d.id());
        share
            .rename(Acting::caller(&root()), b"d", above.root.as_ref(), b"moved", true)
            .await
            .unwrap();
        // Another client of the cluster made that change.
        let began = std::time::Instant::now();
        let is_late = || began.elapsed() > std::time::Duration::from_secs(20);
        while d.lookup(&root(), b"..").await.is_ok() {
            assert!(!is_late());
        }
        refused(d.lookup(&root(), b".."), VfsError::Stale).await;
        // Handles of unused files are checked again after a while.
        let handle = e.handle();
        drop(e);
        while b.backend.resolve(&handle).await.is_ok() {
            assert!(!is_late());
        }
        refused(b.backend.resolve(&handle), VfsError::Stale).await;
    });
}

#[test]
fn snapshots_are_read_and_not_written() {
    block_on(async {
        let path = folder();
        let b = Bench::new(open(&path));
        let d = b.dir("d").await;
        let f = d
            .create(Acting::caller(&root()), b"f", CreateHow::Guarded, mode(0o644))
            .await
            .unwrap()
            .node;
        b.write(&f, 0, b"before").await;
        let (snapshots, _) = b.root.lookup(&root(), b".snap").await.unwrap();
        // Snapshots cannot be created through the gateway.
        refused(snapshots.mkdir(Acting::caller(&root()), b"mine", mode(0o755)), VfsError::ReadOnly)
            .await;
        let admin = ceph_sys::Mount::open(&ceph_sys::Options {
            conf: Some(&conf()),
            fs: "fs",
            root: &path,
            ..ceph_sys::Options::default()
        })
        .unwrap();
        let perm = ceph_sys::Perm::new(&admin, 0, 0, &[]).unwrap();
        let name = |name: &str| ceph_sys::Name::new(name.as_bytes()).unwrap();
        let (its, _) = admin.root().unwrap().lookup(&name(".snap"), &perm).unwrap();
        its.mkdir(&name("monday"), 0o755, &perm).unwrap();
        // A client that has seen the snapshot writes to the current file.
        assert_eq!(b.names(&snapshots, 10).await, ["monday"]);
        b.write(&f, 0, b"after!").await;
        let (monday, _) = snapshots.lookup(&root(), b"monday").await.unwrap();
        let (old_d, _) = monday.lookup(&root(), b"d").await.unwrap();
        let (old, attr) = old_d.lookup(&root(), b"f").await.unwrap();
        assert_eq!(b.contents(&old).await, b"before");
        assert_eq!(b.contents(&f).await, b"after!");
        let now = f.getattr().await.unwrap();
        assert_eq!(attr.fileid, now.fileid);
        assert_ne!(attr.fsid, now.fsid, "one number twice on one volume");
        let data = vec![Buf::from(b"x".to_vec())];
        refused(old.write(WriteBy::Caller(&root()), 0, data, Stable::Unstable), VfsError::ReadOnly)
            .await;
        refused(old_d.unlink(Acting::caller(&root()), b"f"), VfsError::ReadOnly).await;
        // The path upwards ends at the share's own folder.
        assert_eq!(old_d.lookup(&root(), b"..").await.unwrap().0.id(), monday.id());
        assert_eq!(monday.lookup(&root(), b"..").await.unwrap().0.id(), b.root.id());
        assert_eq!(snapshots.lookup(&root(), b"..").await.unwrap().0.id(), b.root.id());
        let handle = old.handle();
        drop((old, old_d, monday, snapshots));
        let b = Bench::new(open(&path));
        let old = b.backend.resolve(&handle).await.unwrap();
        assert_eq!(b.contents(&old).await, b"before");
        its.rmdir(&name("monday"), &perm).unwrap();
    });
}

/// Mounts this folder as another client of the cluster.
fn beside(path: &str) -> (Arc<ceph_sys::Mount>, ceph_sys::Perm) {
    let mount = ceph_sys::Mount::open(&ceph_sys::Options {
        conf: Some(&conf()),
        fs: "fs",
        root: path,
        ..ceph_sys::Options::default()
    });
    let mount = mount.unwrap();
    let perm = ceph_sys::Perm::new(&mount, 0, 0, &[]).unwrap();
    (mount, perm)
}

fn named(name: &str) -> ceph_sys::Name {
    ceph_sys::Name::new(name.as_bytes()).unwrap()
}

/// The quota is the size of the share.
#[test]
fn folder_quota_is_enforced() {
    block_on(async {
        let path = folder();
        let (admin, perm) = beside(&path);
        let top = admin.root().unwrap();
        top.setxattr(&named("ceph.quota.max_bytes"), b"8388608", 0, &perm).unwrap();
        let b = Bench::new(open(&path));
        let space = b.backend.statfs().await.unwrap();
        assert_eq!(space.total_bytes, 8 << 20);
        let f = b.file("f").await;
        let mut at = 0;
        let refused = loop {
            let data = vec![Buf::from(vec![1; 1 << 20])];
            match f.write(WriteBy::Caller(&root()), at, data, Stable::Unstable).await {
                Ok(written) => at += written.count as u64,
                Err(e) => break e,
            }
            // The cluster updates its sums with some delay.
            assert!(at < 256 << 20, "it is not kept");
        };
        assert_eq!(refused, VfsError::Quota);
        assert_eq!(b.read(&f, 0, 1 << 20).await.0, vec![1; 1 << 20]);
        // Space is free again.
        let cut = SetAttr { size: Some(0), ..SetAttr::default() };
        f.setattr(&root(), cut, false).await.unwrap();
        b.write(&f, 0, b"data").await;
    });
}

/// The library ends the process for some numbers, and for others it finds files in snapshots that do not exist.
#[test]
fn handle_of_missing_snapshot_is_stale() {
    block_on(async {
        let path = folder();
        let b = Bench::new(open(&path));
        let f = b.file("f").await;
        b.write(&f, 0, b"before").await;
        let (admin, perm) = beside(&path);
        let (snaps, _) = admin.root().unwrap().lookup(&named(".snap"), &perm).unwrap();
        snaps.mkdir(&named("gone"), 0o755, &perm).unwrap();
        let (all, _) = b.root.lookup(&root(), b".snap").await.unwrap();
        let (gone, _) = all.lookup(&root(), b"gone").await.unwrap();
        b.write(&f, 0, b"after!").await;
        let (old, _) = gone.lookup(&root(), b"f").await.unwrap();
        assert_eq!(b.contents(&old).await, b"before");
        let (f, old) = (f.handle(), old.handle());
        drop((gone, all));
        drop(b);
        let b = Bench::new(open(&path));
        b.backend.resolve(&old).await.unwrap();
        drop(b);
        snaps.rmdir(&named("gone"), &perm).unwrap();
        drop((snaps, admin));
        let b = Bench::new(open(&path));
        refused(b.backend.resolve(&old), VfsError::Stale).await;
        let with = |ino: Option<u64>, snap: u64| {
            let mut bytes = f.as_bytes().to_vec();
            if let Some(ino) = ino {
                bytes[4..12].copy_from_slice(&ino.to_be_bytes());
            }
            bytes[12..20].copy_from_slice(&snap.to_be_bytes());
            Handle::new(&bytes).unwrap()
        };
        for snap in [0, 1, 1 << 40, u64::MAX - 2, u64::MAX] {
            refused(b.backend.resolve(&with(None, snap)), VfsError::Stale).await;
        }
        for ino in [0, 2, 0x100, 0x600, u64::MAX, 0x100_dead_beef] {
            refused(b.backend.resolve(&with(Some(ino), u64::MAX - 1)), VfsError::Stale).await;
        }
        b.backend.resolve(&f).await.unwrap();
    });
}

/// The backend and the library check POSIX lists with the same result.
#[test]
fn posix_lists_decide() {
    use vfs::acl::posix::{Change, Posix, tag};
    block_on(async {
        let b = bench();
        let (bob, eve) = (user(1002), user(1003));
        let f = b
            .root
            .create(Acting::caller(&root()), b"f", CreateHow::Guarded, mode(0o600))
            .await
            .unwrap()
            .node;
        let d = b.root.mkdir(Acting::caller(&root()), b"d", mode(0o700)).await.unwrap().node;
        d.create(Acting::caller(&root()), b"in", CreateHow::Guarded, mode(0o600)).await.unwrap();
        let list = |bits| {
            let none = u32::MAX;
            Posix::new([
                (tag::USER_OBJ, 7, none),
                (tag::USER, bits, 1002),
                (tag::GROUP_OBJ, 0, none),
                (tag::MASK, 7, none),
                (tag::OTHER, 0, none),
            ])
        };
        for (node, bits) in [(&f, 4), (&d, 5)] {
            let change = Change { access: list(bits), default: None };
            node.posix_set(&change).await.unwrap();
            let attr = node.getattr().await.unwrap();
            assert_eq!(node.posix(&attr).await.unwrap().access, list(bits).unwrap());
        }
        f.read(Some(&bob), 0, 1, &b.into).await.unwrap();
        refused(f.read(Some(&eve), 0, 1, &b.into), VfsError::Access).await;
        let data = || vec![Buf::from(b"x".to_vec())];
        refused(f.write(WriteBy::Caller(&bob), 0, data(), Stable::Unstable), VfsError::Access)
            .await;
        d.lookup(&bob, b"in").await.unwrap();
        refused(d.lookup(&eve, b"in"), VfsError::Access).await;
        refused(d.unlink(Acting::caller(&bob), b"in"), VfsError::Access).await;
        let attr = f.getattr().await.unwrap();
        let all = Access(Access::READ | Access::MODIFY);
        assert_eq!(f.access(&bob, all, &attr).await, Ok(Access(Access::READ)));
    });
}
