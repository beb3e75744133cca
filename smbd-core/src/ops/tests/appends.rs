//! Concurrent appends to one file: access and locks are checked at the final offset, not at the end of file seen earlier.

use vfs::local::{LocalBackend, LocalConfig};

use super::data::write;
use super::hold::{ALONE, lock};
use super::ioctl::{copying, key_of};
use crate::dtyp::mask;
use crate::harness::{Client, Harness};
use crate::open::FileId;
use crate::ops::tests::ioctl::status;
use crate::status::Status;
use crate::wire::fsctl::code;

async fn with_access(c: &Client, access: u32) -> FileId {
    c.create("f", |r| r.access = access).await.unwrap().file
}

fn on_disk() -> (Harness, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let backend = LocalBackend::open(LocalConfig::new(dir.path())).unwrap();
    (Harness::on(backend, None), dir)
}

/// A copy through an append-only handle never overwrites data that arrived meanwhile (MS-SMB2 section 3.3.5.15.6, MS-FSA section
/// 2.1.5.4).
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_may_only_append_replaces_nothing() {
    const EACH: usize = 1500;
    let (harness, dir) = on_disk();
    let path = dir.path().join("f");
    std::fs::write(dir.path().join("from"), b"copy").unwrap();
    std::fs::write(&path, b"").unwrap();
    let (c, writer) = (harness.client_as(0), harness.client_as(0));
    let to = with_access(&c, mask::APPEND_DATA).await;
    let key = key_of(&c, c.open("from").await).await;
    let writing = tokio::spawn(async move {
        let f = with_access(&writer, mask::APPEND_DATA).await;
        for _ in 0..EACH {
            assert_eq!(write(&writer, f, u64::MAX, b"data").await, Status::SUCCESS);
        }
    });
    let (mut copied, mut refused) = (0, 0);
    while !writing.is_finished() {
        let end = std::fs::metadata(&path).unwrap().len();
        let chunks = copying(key, &[(0, end, 4)]).emit();
        match status(&c, to, code::SRV_COPYCHUNK_WRITE, &chunks).await {
            Status::SUCCESS => copied += 1,
            Status::ACCESS_DENIED => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    writing.await.unwrap();
    let all = std::fs::read(&path).unwrap();
    let count = |what: &[u8]| all.chunks(4).filter(|c| *c == what).count();
    assert_eq!((count(b"data"), count(b"copy")), (EACH, copied), "{refused} came too late");
}

/// A server-side copy continues while its client reads no responses, since its data does not go to the client.
#[tokio::test]
async fn a_copy_does_not_wait_for_a_client_that_takes_no_answers() {
    let (harness, dir) = on_disk();
    std::fs::write(dir.path().join("f"), b"01234567").unwrap();
    let c = harness.client_as(0);
    let f = c.open("f").await;
    // An overlapping copy, which needs a read and a write.
    let chunks = copying(key_of(&c, f).await, &[(0, 2, 4)]).emit();
    c.conn.info.backpressure.moved(0, true, std::time::Instant::now());
    let copied = status(&c, f, code::SRV_COPYCHUNK, &chunks);
    let soon = std::time::Duration::from_secs(5);
    assert_eq!(tokio::time::timeout(soon, copied).await, Ok(Status::SUCCESS));
    assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"01012367");
}

/// Concurrent appends succeed only in front of a range that another client has locked (MS-SMB2 section 3.3.5.13, MS-FSA section
/// 2.1.5.4).
#[tokio::test(flavor = "multi_thread")]
async fn none_of_several_additions_reaches_a_locked_range() {
    const ROUNDS: usize = 40;
    const AT_ONCE: usize = 6;
    let (harness, dir) = on_disk();
    let path = dir.path().join("f");
    std::fs::write(&path, b"").unwrap();
    let owner = harness.client_as(0);
    let locked = with_access(&owner, mask::READ_DATA | mask::WRITE_DATA).await;
    assert_eq!(lock(&owner, locked, &[(400, 1 << 20, ALONE)]).await, Status::SUCCESS);
    let mut adding = Vec::new();
    for n in 0..AT_ONCE {
        let c = harness.client_as(0);
        let access = if n % 2 == 0 { mask::APPEND_DATA } else { mask::WRITE_DATA };
        adding.push((with_access(&c, access).await, c));
    }
    for round in 0..ROUNDS {
        std::fs::write(&path, [b'.'; 392]).unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for (f, c) in adding.drain(..) {
            tasks.spawn(async move { (write(&c, f, u64::MAX, b"data").await, f, c) });
        }
        let mut taken = 0;
        for (status, f, c) in tasks.join_all().await {
            match status {
                Status::SUCCESS => taken += 1,
                Status::FILE_LOCK_CONFLICT => {}
                other => panic!("{other:?}"),
            }
            adding.push((f, c));
        }
        assert_eq!((taken, std::fs::metadata(&path).unwrap().len()), (2, 400), "round {round}");
    }
}
