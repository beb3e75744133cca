//! Runs those rules of [`suite`] on the example backend that the required methods and the default layers can keep.

// Helpers of tests are tests too; and test data is cut to bytes on purpose.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, dead_code)]

#[path = "../examples/backend.rs"]
mod backend;
mod suite;

use iobuf::Buf;
use suite::*;
use vfs::acl::{Ace, Acl, Who, mask};
use vfs::*;

fn bench() -> Bench {
    Bench::new(backend::Own::new())
}

macro_rules! of_one_s_own {
    ($($module:ident :: $test:ident),* $(,)?) => { $(
        #[tokio::test]
        async fn $test() {
            suite::$module::$test(bench()).await;
        }
    )* };
}

of_one_s_own!(
    names::lookup_finds_created_nodes,
    names::unlink_and_rmdir_check_kind,
    names::listing_is_complete_in_every_step,
    names::cookies_hold_while_names_change,
    data::read_and_write_at_every_size,
    data::writes_come_in_pieces,
    data::attributes_are_set_and_kept,
    data::change_attribute_always_moves,
    anycase::names_are_found_in_any_case,
);

#[tokio::test]
async fn bad_names_are_refused() {
    let bench = bench();
    for (name, why) in [
        (&b""[..], VfsError::Invalid),
        (b".", VfsError::Invalid),
        (b"a/b", VfsError::BadName),
        (&[b'x'; 256], VfsError::NameTooLong),
    ] {
        let set = SetAttr::default();
        refused(bench.root.create(Acting::caller(&root()), name, CreateHow::Unchecked, set), why)
            .await;
        refused(bench.root.mkdir(Acting::caller(&root()), name, set), why).await;
        refused(bench.root.lookup(&root(), name), why).await;
        refused(bench.root.unlink(Acting::caller(&root()), name), why).await;
    }
}

/// A list in side data decides, by the default layers only.
#[tokio::test]
async fn list_decides_instead_of_mode() {
    let bench = bench();
    let file = bench.file("f").await;
    let (ann, bob) = (user(7), user(8));
    file.open(&ann, true, false).await.unwrap();
    refused(file.open(&bob, false, true), VfsError::Access).await;
    let list = Acl::new(vec![Ace::allow(Who::User(8), mask::READ_DATA | mask::WRITE_DATA, 0)]);
    file.acl_set(&list, 0o660).await.unwrap();
    let attr = file.open(&bob, true, true).await.unwrap();
    assert_eq!(attr.mode & 0o777, 0o660);
    refused(file.open(&ann, true, false), VfsError::Access).await;
    assert_eq!(file.acl_shown(&attr).await.unwrap().entries, list.entries);
    let all = Access(Access::READ | Access::MODIFY | Access::EXECUTE);
    let granted = file.access(&bob, all, &attr).await.unwrap();
    assert_eq!(granted.0, Access::READ | Access::MODIFY);
    let data = vec![Buf::from(b"bob's".to_vec())];
    file.write(WriteBy::Caller(&bob), 0, data, Stable::File).await.unwrap();
    assert_eq!(bench.contents(&file).await, b"bob's");
}

#[tokio::test]
async fn unimplemented_methods_are_not_supported() {
    let bench = bench();
    let file = bench.file("f").await;
    bench.write(&file, 0, b"data").await;
    let (dir, none) = (&bench.root, VfsError::NotSupported);
    refused(dir.symlink(&root(), b"l", b"f", SetAttr::default()), none).await;
    refused(file.link(Acting::caller(&root()), dir.as_ref(), b"g"), none).await;
    refused(file.xattr_list(&root()), none).await;
    refused(file.allocate(None, 0, 9), none).await;
    refused(file.clone_range(None, file.as_ref(), 0, 0, 0), none).await;
    // The backend reports no holes: everything up to the end is data.
    assert_eq!(file.seek(1, Seek::Data).await, Ok(1));
    assert_eq!(file.seek(1, Seek::Hole).await, Ok(4));
    assert_eq!(file.seek(4, Seek::Data).await, Err(VfsError::NoMoreData));
    assert_eq!(file.commit(0, 0).await.unwrap().size, 4);
    assert_eq!(file.dos(&file.getattr().await.unwrap()).await, Ok(Dos::default()));
}
