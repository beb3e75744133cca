//! The rules of [`suite`] on a CephFS, and what only a cluster can show.
//!
//! It wants a cluster with a file system `fs`: that which `tests/ceph/cluster up` starts, or one whose configuration `CEPH_CONF`
//! names. `cargo xtask test --tier third` starts one and runs this.

// Helpers of tests are tests too; and test data is cut to bytes on purpose.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

#[allow(dead_code)] // Nothing is copied, cloned or exchanged in CephFS.
mod suite;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use suite::*;
use vfs::ceph::{CephBackend, CephConfig};
use vfs::*;

fn block_on<T>(f: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f)
}

fn config(root: &str) -> CephConfig {
    let conf = std::env::var_os("CEPH_CONF");
    let conf = conf.map_or("/var/tmp/headgate-ceph/ceph.conf".into(), PathBuf::from);
    assert!(conf.exists(), "no cluster: tests/ceph/cluster up");
    CephConfig { fs: "fs".into(), root: root.into(), conf: Some(conf), ..CephConfig::default() }
}

fn open(root: &str) -> Arc<CephBackend> {
    CephBackend::open(&config(root)).unwrap()
}

/// The whole file system.
fn whole() -> Arc<CephBackend> {
    open("/")
}

/// A new folder of the file system, open to everybody.
fn folder() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("t{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    block_on(async {
        let top = whole().root();
        let made = top.mkdir(&root(), name.as_bytes(), mode(0o777)).await.unwrap();
        made.node.setattr(&root(), mode(0o777), false).await.unwrap();
    });
    format!("/{name}")
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
    data::extended_attributes,
    data::additions_never_overlap,
    crowd::many_change_the_same_names,
    anycase::names_are_found_in_any_case,
    anycase::the_index_follows_changes_of_ours,
    anycase::names_that_differ_by_case_alone,
    streams::streams_hold_data_beside_a_file,
    streams::streams_go_where_the_file_goes,
    streams::nobody_sees_where_streams_are,
    replace::a_file_that_was_a_link_has_the_mode_of_a_new_one,
    replace::a_file_that_was_a_link_has_the_mode_that_masks_leave,
    replace::a_file_that_was_a_link_inherits,
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
    rights::access_says_what_would_happen,
    rights::extended_attributes_need_permission,
    rights::a_new_folder_that_is_set_group_id_gets_no_other_bit,
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
