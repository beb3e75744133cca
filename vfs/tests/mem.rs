//! The rules of [`suite`] on a volume in memory, and tests that need memory.

// Helpers of tests are tests too; and test data is cut to bytes on purpose.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

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
    names::lookup_finds_what_was_made,
    names::bad_names_are_refused,
    names::create_in_its_three_ways,
    names::exclusive_create_can_be_repeated,
    names::unlink_and_rmdir_know_the_difference,
    names::a_removed_file_lives_while_it_is_held,
    names::rename_moves_and_replaces,
    names::hard_links_are_one_node,
    names::links_and_special_nodes,
    names::devices_keep_their_numbers,
    names::what_cannot_be_made_as_asked_is_not_made,
    names::listing_is_complete_in_every_step,
    names::cookies_hold_while_names_change,
    names::handles_find_their_nodes,
    data::read_and_write_at_every_size,
    data::large_reads_take_several_buffers,
    data::writes_come_in_pieces,
    data::offsets_at_the_edge_of_the_world,
    data::sizes_change_up_and_down,
    data::attributes_are_set_and_kept,
    data::the_change_attribute_always_moves,
    data::holes_and_storage,
    data::copies_and_clones,
    data::extended_attributes,
    data::a_read_is_short_at_the_end_alone,
    data::additions_never_overlap,
    crowd::many_change_the_same_names,
    anycase::names_are_found_in_any_case,
    anycase::the_index_follows_changes_of_ours,
    anycase::names_that_differ_by_case_alone,
    streams::streams_are_looked_up_when_taken,
    streams::streams_hold_data_beside_a_file,
    streams::streams_are_made_by_whoever_may_write_the_file,
    streams::streams_go_where_the_file_goes,
    streams::nobody_sees_where_streams_are,
    replace::a_node_takes_the_place_of_another,
    replace::a_node_of_another_has_no_set_id_bits_in_its_new_place,
    replace::a_file_that_was_a_link_has_the_mode_of_a_new_one,
    replace::a_file_that_was_a_link_has_the_mode_that_masks_leave,
    replace::a_file_that_was_a_link_inherits,
    replace::what_fails_halfway_leaves_the_old_node,
    replace::a_start_removes_what_an_earlier_run_left,
    replace::the_caller_needs_permission,
    windows::side_data_is_kept_and_hidden,
    windows::dos_records_are_kept,
    windows::a_node_knows_its_path,
    windows::a_rename_can_leave_what_is_there,
    windows::the_door_tells_of_changes,
    rights::files_belong_to_who_made_them,
    rights::an_exclusive_create_is_repeated_by_its_maker_alone,
    rights::data_needs_permission,
    rights::names_need_permission,
    rights::attributes_need_ownership,
    rights::set_id_bits_go_when_others_write,
    rights::a_name_that_is_there_is_found_without_the_right_to_add,
    rights::access_says_what_would_happen,
    rights::extended_attributes_need_permission,
    rights::a_new_folder_that_is_set_group_id_gets_no_other_bit,
    rights::a_new_file_lends_no_group_that_its_maker_is_not_in,
    lists::a_list_decides_about_data,
    lists::a_changed_mode_acts_on_the_list_and_keeps_it,
    lists::a_changed_mode_says_who_searches_a_folder,
    lists::a_list_says_who_changes_attributes,
    lists::a_list_decides_about_names,
    lists::a_list_decides_about_renames,
    lists::no_list_makes_a_device,
    lists::a_list_leaves_a_sticky_folder_sticky,
    lists::a_right_that_was_granted_is_enough,
    lists::a_list_helps_in_its_own_folder_alone,
    lists::owners_date_a_file_and_whom_its_list_lets,
    lists::a_failed_create_removes_what_it_made_alone,
    lists::a_listing_shows_a_file_to_whom_its_list_lets_read_all_of_it,
    lists::a_list_goes_with_its_file,
    lists::what_is_made_inherits,
    lists::mode_bits_limit_what_is_inherited,
    lists::a_giver_gives_its_list_to_what_is_made,
    lists::a_list_is_set_by_those_who_may_change_the_mode,
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
fn clones_cost_nothing_until_they_differ() {
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
fn a_read_only_volume_refuses() {
    block_on(async {
        let b = Bench::new(MemBackend::with(1 << 20, true).unwrap());
        refused(b.create("x", CreateHow::Guarded), VfsError::ReadOnly).await;
        refused(b.root.setattr(&root(), mode(0o700), false), VfsError::ReadOnly).await;
    });
}
