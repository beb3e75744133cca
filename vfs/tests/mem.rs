//! The rules of [`suite`] on a volume in memory, and tests that need memory.

// Helpers of tests are tests too; and test data is cut to bytes on purpose.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

#[allow(dead_code)] // A volume in memory has no folder of the gateway in its tree.
mod suite;

use iobuf::Buf;
use suite::*;
use vfs::mem::MemBackend;
use vfs::*;

fn block_on<T>(f: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(f)
}

fn bench() -> Bench {
    Bench::new(MemBackend::new(256 << 20).unwrap())
}

macro_rules! in_memory {
    ($($module:ident :: $test:ident),* $(,)?) => { $(
        #[test]
        fn $test() {
            block_on(suite::$module::$test(bench()));
        }
    )* };
}

in_memory!(
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
    streams::stream_creation_needs_write_permission,
    streams::streams_follow_their_file,
    streams::stream_folder_is_hidden,
    replace::node_replaces_another,
    replace::replacement_of_foreign_node_loses_set_id,
    replace::file_replacing_link_gets_default_mode,
    replace::file_replacing_link_gets_masked_mode,
    replace::file_replacing_link_inherits,
    replace::file_written_meanwhile_stays,
    replace::failed_replacement_keeps_old_node,
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

#[test]
fn handles_end_with_the_process() {
    block_on(async {
        let (a, b) = (bench(), bench());
        let handle = a.file("f").await.handle();
        b.file("f").await;
        refused(b.backend.resolve(&handle), VfsError::Stale).await;
        assert!(!a.backend.capabilities().handles_persist);
    });
}

#[test]
fn read_shares_pages_and_keeps_snapshot() {
    block_on(async {
        let b = bench();
        let f = b.file("f").await;
        let data = pattern(1, 200_000);
        b.write(&f, 0, &data).await;
        let seen = f.read(None, 0, 200_000, &b.into).await.unwrap();
        let again = f.read(None, 0, 200_000, &b.into).await.unwrap();
        // The same memory twice, without any buffer from the pool.
        for (x, y) in seen.data.iter().zip(&again.data) {
            assert_eq!(x.as_slice().as_ptr(), y.as_slice().as_ptr());
        }
        assert!(b.into.pool.stats().iter().all(|s| s.in_use == 0));
        b.write(&f, 0, &pattern(2, 200_000)).await;
        let cut = SetAttr { size: Some(10), ..SetAttr::default() };
        f.setattr(&root(), cut, false).await.unwrap();
        let bytes: Vec<u8> = seen.data.iter().flat_map(|x| x.iter().copied()).collect();
        assert!(bytes == data);
        assert!(b.contents(&f).await == pattern(2, 10));
    });
}

#[test]
fn limit_holds_and_space_is_freed() {
    block_on(async {
        let limit = 1 << 20;
        let b = Bench::new(MemBackend::new(limit).unwrap());
        let at_first = b.backend.statfs().await.unwrap().free_bytes;
        let f = b.file("f").await;
        let data = pattern(1, 700_000);
        b.write(&f, 0, &data).await;
        // A short write when it fills up half-way, and then an error; earlier data stays.
        let more = f
            .write(WriteBy::Open(None), 700_000, vec![Buf::from(data.clone())], Stable::Unstable)
            .await;
        let n = more.unwrap().count;
        assert!(n > 0 && n < 700_000);
        let more = f
            .write(WriteBy::Open(None), 5 << 20, vec![Buf::from(data.clone())], Stable::Unstable)
            .await;
        assert_eq!(more.err(), Some(VfsError::NoSpace));
        refused(f.allocate(None, 0, 10 << 20), VfsError::NoSpace).await;
        let read = b.contents(&f).await;
        assert!(read[..700_000] == data && read[700_000..] == data[..n]);
        let s = b.backend.statfs().await.unwrap();
        assert!(s.total_bytes == limit && s.free_bytes < 65536);
        // Names count as well.
        let mut made = 0;
        let full = loop {
            match b.create(&format!("n{made}"), CreateHow::Guarded).await {
                Ok(_) => made += 1,
                Err(e) => break e,
            }
        };
        assert_eq!(full, VfsError::NoSpace);
        let (c, large) = (root(), [0; 60_000]);
        refused(f.xattr_set(&c, b"a", &large, XattrHow::Either), VfsError::NoSpace).await;
        for i in 0..made {
            b.root.unlink(Acting::caller(&root()), format!("n{i}").as_bytes()).await.unwrap();
        }
        b.root.unlink(Acting::caller(&root()), b"f").await.unwrap();
        drop(f);
        assert_eq!(b.backend.statfs().await.unwrap().free_bytes, at_first);
    });
}

#[test]
fn clones_share_memory_until_written() {
    block_on(async {
        let b = bench();
        let f = b.file("f").await;
        b.write(&f, 0, &pattern(1, 10 << 20)).await;
        let free = b.backend.statfs().await.unwrap().free_bytes;
        let g = b.file("g").await;
        g.clone_range(None, f.as_ref(), 0, 0, 0).await.unwrap();
        let after = b.backend.statfs().await.unwrap().free_bytes;
        assert!(free - after < 4096, "{free} {after}");
        b.write(&g, 100, b"x").await;
        let changed = b.backend.statfs().await.unwrap().free_bytes;
        assert_eq!(after - changed, 65536);
    });
}

#[test]
fn deep_tree_freed_without_recursion() {
    block_on(async {
        let b = bench();
        let mut at = b.root.clone();
        for _ in 0..50_000 {
            at = at.mkdir(Acting::caller(&root()), b"d", mode(0o755)).await.unwrap().node;
        }
        drop(at);
        drop(b);
    });
}

#[test]
fn read_only_volume_refuses_changes() {
    block_on(async {
        let b = Bench::new(MemBackend::with(1 << 20, true).unwrap());
        refused(b.create("x", CreateHow::Guarded), VfsError::ReadOnly).await;
        refused(b.root.setattr(&root(), mode(0o700), false), VfsError::ReadOnly).await;
    });
}
