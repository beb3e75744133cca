//! Names that are removed when the last open closes.

use std::sync::Arc;
use std::time::Duration;

use state::{Caching, Holder, Lease};

use vfs::types::Time;

use super::data::write;
use super::info::{query, set, to};
use crate::dtyp::mask;
use crate::dtyp::time::file_time;
use crate::fscc::file::{Basic, Class};
use crate::fscc::set::Set;
use crate::harness::{Client, Harness, doom};
use crate::status::Status;
use crate::wire::create::{Disposition, option};
use crate::wire::utf16;

async fn exists(c: &Client, name: &str) -> Result<(), Status> {
    let found = c
        .create(name, |r| {
            r.disposition = Disposition::Open as u32;
            r.access = mask::READ_ATTRIBUTES;
        })
        .await?;
    c.close(found.file).await;
    Ok(())
}

#[tokio::test]
async fn the_last_close_removes() {
    let harness = Harness::new();
    let (a, b) = (harness.client(), harness.client());
    let doomed = a.create("f", doom).await.unwrap().file;
    let other = b.open("f").await;
    assert_eq!(exists(&b, "f").await, Ok(()), "not before the close of the one that says so");
    a.close(doomed).await;
    assert_eq!(exists(&b, "f").await, Err(Status::DELETE_PENDING));
    assert_eq!(b.create("F", |_| {}).await.unwrap_err(), Status::DELETE_PENDING);
    b.close(other).await;
    assert_eq!(exists(&b, "f").await, Err(Status::OBJECT_NAME_NOT_FOUND));
}

/// An NFS client caches the file: CLOSE does not wait for the recall, but the name is removed.
#[tokio::test]
async fn a_name_that_somebody_caches_goes_when_it_is_given_back() {
    let harness = Harness::new();
    let c = harness.client();
    let doomed = c
        .create("f", |r| {
            r.options = option::DELETE_ON_CLOSE;
            r.access = mask::READ_DATA | mask::DELETE;
        })
        .await;
    let doomed = doomed.unwrap().file;
    let node = harness.core.opens.get(doomed).unwrap().node().unwrap().id();
    let arbiter = harness.core.namespace.arbiter();
    let table = arbiter.state();
    let party =
        Holder { holder: table.holder(), lease: Arc::new(Lease::held(table.key())), via: 0 };
    assert!(table.delegate(node, &party, Caching::READ_HANDLE, harness.core.now()));
    assert_eq!(c.close(doomed).await, Status::SUCCESS);
    assert_eq!(exists(&c, "f").await, Err(Status::DELETE_PENDING), "it is cached still");
    arbiter.close(node, party.holder);
    let gone = async {
        while exists(&c, "f").await != Err(Status::OBJECT_NAME_NOT_FOUND) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect("the name goes");
}

/// What an open removes at CLOSE counts to its user, with or without an audit trail.
#[tokio::test]
async fn opens_know_that_their_user_is_proven() {
    use vfs::audited::Actor;
    let harness = Harness::new();
    let c = harness.client();
    let open = harness.core.opens.get(c.open("f").await).unwrap();
    assert!(open.opener.is_none() && open.acting().is_proven);
}

#[tokio::test]
async fn a_disposition_can_be_taken_back() {
    let harness = Harness::new();
    let c = harness.client();
    let f = c.open("f").await;
    let open = harness.core.opens.get(f).unwrap();
    harness.core.opens.set_delete_pending(&open, true);
    assert!(harness.core.opens.is_delete_pending(&open));
    assert_eq!(exists(&c, "f").await, Err(Status::DELETE_PENDING));
    harness.core.opens.set_delete_pending(&open, false);
    assert_eq!(exists(&c, "f").await, Ok(()));
    harness.core.opens.set_delete_pending(&open, true);
    drop(open);
    c.close(f).await;
    assert_eq!(exists(&c, "f").await, Err(Status::OBJECT_NAME_NOT_FOUND));
}

#[tokio::test]
async fn directories_go_when_they_are_empty() {
    let c = Harness::new().client();
    let doomed_dir = async || {
        let made = c.create("d", |r| {
            r.options = option::DIRECTORY_FILE;
            doom(r);
        });
        made.await.unwrap().file
    };
    let d = doomed_dir().await;
    let f = c.open("d\\f").await;
    c.close(f).await;
    c.close(d).await;
    assert_eq!(exists(&c, "d\\f").await, Ok(()), "it was not empty");
    let f = c.create("d\\f", doom).await.unwrap().file;
    c.close(f).await;
    let d = doomed_dir().await;
    c.close(d).await;
    assert_eq!(exists(&c, "d").await, Err(Status::OBJECT_NAME_NOT_FOUND));
}

#[tokio::test]
async fn a_stream_goes_alone_and_a_file_takes_its_streams() {
    let c = Harness::new().client();
    let f = c.open("f").await;
    let s = c.create("f:s", doom).await.unwrap().file;
    c.close(s).await;
    assert_eq!(exists(&c, "f:s").await, Err(Status::OBJECT_NAME_NOT_FOUND));
    assert_eq!(exists(&c, "f").await, Ok(()));
    let s = c.open("f:s").await;
    c.close(f).await;
    let f = c.create("f", doom).await.unwrap().file;
    c.close(f).await;
    assert_eq!(exists(&c, "f:s").await, Err(Status::DELETE_PENDING), "a stream is open still");
    assert_eq!(exists(&c, "f").await, Err(Status::DELETE_PENDING));
    c.close(s).await;
    assert_eq!(exists(&c, "f").await, Err(Status::OBJECT_NAME_NOT_FOUND));
}

#[tokio::test]
async fn the_end_of_a_session_closes_what_it_had() {
    let harness = Harness::new();
    let (a, b) = (harness.client(), harness.client());
    let f = a
        .create("f", |r| {
            doom(r);
            r.share = 0;
        })
        .await;
    assert!(f.is_ok());
    assert_eq!(b.create("f", |_| {}).await.unwrap_err(), Status::SHARING_VIOLATION);
    crate::teardown::end_of_connection(&harness.core, &a.conn).await;
    assert_eq!(exists(&b, "f").await, Err(Status::OBJECT_NAME_NOT_FOUND));
    assert_eq!(harness.core.opens.count(), 0);
}

/// Removes the stream's current name, not another stream that has taken its old name.
#[tokio::test]
async fn a_stream_that_was_renamed_goes_by_its_new_name() {
    let harness = Harness::new();
    let (c, other) = (harness.client(), harness.client());
    let stream = c.open("f:a").await;
    let second = other.open("f:a").await;
    assert_eq!(set(&c, stream, Set::Rename(to(":b", 0))).await, Status::SUCCESS);
    let shown = query(&other, second, Class::All).await.unwrap();
    assert_eq!(utf16(&shown[100..]).unwrap(), "\\f:b", "to all who have it open");
    other.close(second).await;
    let new = other.open("f:a").await;
    assert_eq!(write(&other, new, 0, b"another's").await, Status::SUCCESS);
    let replace = Set::Rename(to(":a", 1));
    assert_eq!(set(&c, stream, replace.clone()).await, Status::INVALID_PARAMETER, "it is open");
    other.close(new).await;
    assert_eq!(set(&c, stream, replace).await, Status::INVALID_PARAMETER, "it has data");
    let goes = Set::Disposition { flags: 1, ex: false };
    assert_eq!(set(&c, stream, goes).await, Status::SUCCESS);
    assert_eq!(exists(&other, "f:b").await, Err(Status::DELETE_PENDING));
    assert_eq!(exists(&other, "f:a").await, Ok(()));
    c.close(stream).await;
    assert_eq!(exists(&other, "f:b").await, Err(Status::OBJECT_NAME_NOT_FOUND));
    assert_eq!(exists(&other, "f:a").await, Ok(()));
}

/// Programs that search for changed files by time must find a file of which only a stream was written (MS-FSA section 2.1.4.17).
#[tokio::test]
async fn what_is_written_to_a_stream_shows_in_the_time_of_its_file() {
    let c = Harness::new().client();
    let stream = c.open("f:a").await;
    let file = c.open("f").await;
    let old =
        Basic { last_write: file_time(Time { sec: 1_000_000_000, nsec: 0 }), ..Basic::default() };
    assert_eq!(set(&c, file, Set::Basic(old)).await, Status::SUCCESS);
    let last_write =
        async || Basic::parse(&query(&c, file, Class::Basic).await.unwrap()).unwrap().last_write;
    assert_eq!(last_write().await, old.last_write);
    assert_eq!(write(&c, stream, 0, b"data").await, Status::SUCCESS);
    c.close(stream).await;
    assert_ne!(last_write().await, old.last_write);
}

/// The file system refuses to remove append-only or immutable files, or names in such folders. The client must get the error when
/// it requests the deletion, because closing the last open reports no error.
#[tokio::test]
async fn what_the_host_has_sealed_is_not_removed() {
    use rustix::fs::{IFlags, Mode, OFlags};
    use vfs::local::{LocalBackend, LocalConfig};
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    std::fs::write(dir.path().join("d/f"), "data").unwrap();
    let c = Harness::on(LocalBackend::open(LocalConfig::new(dir.path())).unwrap(), None).client();
    let f = c.open("d\\f").await;
    let seal = |at: &str, marks| {
        let file = rustix::fs::open(dir.path().join(at), OFlags::RDONLY, Mode::empty()).unwrap();
        let others = rustix::fs::ioctl_getflags(&file)? - (IFlags::APPEND | IFlags::IMMUTABLE);
        rustix::fs::ioctl_setflags(&file, others | marks)
    };
    for (at, marks, refused) in [
        ("d/f", IFlags::APPEND, Status::CANNOT_DELETE),
        ("d/f", IFlags::IMMUTABLE, Status::CANNOT_DELETE),
        ("d", IFlags::APPEND, Status::CANNOT_DELETE),
        // An immutable folder grants no write access, and so no DELETE access to its files.
        ("d", IFlags::IMMUTABLE, Status::ACCESS_DENIED),
    ] {
        if let Err(e) = seal(at, marks) {
            println!("skipped: {at} {marks:?}: {e}");
            continue;
        }
        let on_close = c.create("d\\f", doom).await.map(|_| ());
        let mut answers = Vec::new();
        for (flags, ex) in [(1, false), (1, true), (1 | 0x10, true)] {
            answers.push(set(&c, f, Set::Disposition { flags, ex }).await);
        }
        // Restore before the assertions, so that the folder can be removed.
        seal(at, IFlags::empty()).unwrap();
        assert_eq!(on_close, Err(refused), "{at} {marks:?}");
        assert_eq!(answers, [Status::CANNOT_DELETE; 3], "{at} {marks:?}");
    }
    assert_eq!(set(&c, f, Set::Disposition { flags: 1, ex: false }).await, Status::SUCCESS);
    assert_eq!(c.close(f).await, Status::SUCCESS);
    assert!(!dir.path().join("d/f").exists());
}
