//! Tries every command that changes file data through handles with each access, and checks that a refused change leaves no trace.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use rdma_transport::channel::RemoteSeg;
use vfs::local::{LocalBackend, LocalConfig};

use super::data::{RDMA, write, writing};
use super::info::set;
use super::ioctl::{get, put, status};
use crate::dtyp::{FileTime, mask};
use crate::fscc::file::Basic;
use crate::fscc::set::Set;
use crate::harness::{Client, Harness};
use crate::open::FileId;
use crate::status::Status;
use crate::wire::Command;
use crate::wire::create::{Disposition, option};
use crate::wire::fsctl::{Chunk, CopyChunks, DuplicateExtents, ResumeKey, Span, Trim, code};
use crate::wire::negotiate::Dialect;
use crate::wire::rdma::Channel;

/// Initial file size in bytes: four clusters, so that storage can be shared.
const SIZE: usize = 4 * 4096;
const END: u64 = SIZE as u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Write(u64),
    CopyWrite(u64),
    CopyRead(u64),
    Duplicate,
    Zero,
    Trim,
    Cut,
    Lengthen,
    Allocate,
    Reserve,
    ValidDataLength,
}

use Way::{
    Allocate, CopyRead, CopyWrite, Cut, Duplicate, Lengthen, Reserve, Trim as Trimmed,
    ValidDataLength, Write, Zero,
};

const WAYS: [Way; 17] = [
    Write(0),
    Write(END - 1),
    Write(END),
    Write(END + 9),
    Write(u64::MAX),
    CopyWrite(0),
    CopyWrite(END - 1),
    CopyWrite(END),
    CopyRead(0),
    Duplicate,
    Zero,
    Trimmed,
    Cut,
    Lengthen,
    Allocate,
    Reserve,
    ValidDataLength,
];

/// Model of MS-SMB2 section 3.3.5.13 and MS-FSA section 2.1.5: the status for a handle with this access.
fn model(way: Way, access: u32) -> Status {
    let has = |bit| access & bit != 0;
    let writes = has(mask::WRITE_DATA);
    let is_allowed = match way {
        Write(at) | CopyWrite(at) => writes || has(mask::APPEND_DATA) && at >= END,
        CopyRead(at) => (writes || has(mask::APPEND_DATA) && at >= END) && has(mask::READ_DATA),
        _ => writes,
    };
    if is_allowed { Status::SUCCESS } else { Status::ACCESS_DENIED }
}

async fn by(c: &Client, way: Way, file: FileId, source: FileId) -> Status {
    let span = |at: u64, other: u64| Span { at, other };
    let chunks = |to| {
        let chunks = vec![Chunk { from: 0, to, len: 8 }];
        CopyChunks { key: ResumeKey::of(source), count: 1, chunks }.emit()
    };
    match way {
        Write(at) => write(c, file, at, b"12345678").await,
        CopyWrite(at) => status(c, file, code::SRV_COPYCHUNK_WRITE, &chunks(at)).await,
        CopyRead(at) => status(c, file, code::SRV_COPYCHUNK, &chunks(at)).await,
        Duplicate => {
            let d = DuplicateExtents { source, from: 0, to: 0, count: 4096 };
            status(c, file, code::DUPLICATE_EXTENTS_TO_FILE, &d.emit()).await
        }
        Zero => status(c, file, code::SET_ZERO_DATA, &span(0, 4096).emit()).await,
        Trimmed => {
            let trim = Trim { ranges: vec![span(0, 4096)] };
            status(c, file, code::FILE_LEVEL_TRIM, &trim.emit()).await
        }
        Cut => set(c, file, Set::EndOfFile(1)).await,
        Lengthen => set(c, file, Set::EndOfFile(END * 2)).await,
        Allocate => set(c, file, Set::Allocation(1)).await,
        Reserve => set(c, file, Set::Allocation(END * 2)).await,
        ValidDataLength => set(c, file, Set::ValidDataLength(END)).await,
    }
}

#[tokio::test]
async fn a_handle_changes_what_its_access_allows_and_nothing_else() {
    let c = Harness::new().client();
    let (source, own) = (c.open("source").await, c.open("f").await);
    put(&c, source, 0, &[b's'; SIZE]).await;
    let bits = [
        mask::READ_DATA,
        mask::WRITE_DATA,
        mask::APPEND_DATA,
        mask::WRITE_ATTRIBUTES | mask::WRITE_EA,
        mask::DELETE | mask::WRITE_DAC | mask::WRITE_OWNER,
    ];
    let (mut allowed, mut refused) = (0, 0);
    for which in 1..1_usize << bits.len() {
        let chosen = bits.iter().enumerate().filter(|(n, _)| which >> n & 1 != 0);
        let access = chosen.fold(mask::READ_ATTRIBUTES, |all, (_, bit)| all | bit);
        for way in WAYS {
            assert_eq!(set(&c, own, Set::EndOfFile(0)).await, Status::SUCCESS);
            let before = vec![b'o'; SIZE];
            put(&c, own, 0, &before).await;
            let file = c.create("f", |r| r.access = access).await.unwrap().file;
            let want = model(way, access);
            assert_eq!(by(&c, way, file, source).await, want, "{way:?} {access:#x}");
            assert_eq!(c.close(file).await, Status::SUCCESS);
            let after = get(&c, own).await;
            if want == Status::SUCCESS {
                allowed += 1;
                assert!(
                    after != before || matches!(way, Trimmed | Reserve | ValidDataLength),
                    "{way:?}: nothing was done"
                );
            } else {
                refused += 1;
                assert!(after == before, "{way:?} {access:#x}: refused, and changed");
            }
            if access & mask::WRITE_DATA == 0 {
                assert!(after.starts_with(&before), "{way:?} {access:#x}: old bytes changed");
            }
        }
    }
    assert!(allowed > 100 && refused > 100, "{allowed} {refused}");
}

/// Makes the handle freeze the last-write time from now on.
async fn hold_time(c: &Client, file: FileId) {
    let basic = Basic { last_write: FileTime(130_000_000_000_000_000), ..Basic::default() };
    assert_eq!(set(c, file, Set::Basic(basic)).await, Status::SUCCESS);
}

/// Another handle may have written meanwhile, but this handle has no other change in progress (MS-FSA section 2.1.5.15.2).
#[tokio::test(start_paused = true)]
async fn every_change_leaves_the_time_that_its_handle_holds_as_it_finds_it() {
    let c = Harness::new().client();
    let [source, other, file] = [c.open("source").await, c.open("f").await, c.open("f").await];
    put(&c, source, 0, &[b's'; SIZE]).await;
    let open = c.core.opens.get(file).unwrap();
    let time = async || open.node().unwrap().getattr().await.unwrap().mtime;
    for way in WAYS.into_iter().filter(|way| !matches!(way, ValidDataLength)) {
        hold_time(&c, file).await;
        assert_eq!(set(&c, other, Set::EndOfFile(0)).await, Status::SUCCESS);
        put(&c, other, 0, &[b'o'; SIZE]).await;
        let found = time().await;
        let turn = open.open_state.timed.lock().await;
        let mut change = pin!(by(&c, way, file, source));
        for _ in 0..20 {
            let done = std::future::poll_fn(|task| Poll::Ready(change.as_mut().poll(task)));
            assert_eq!(done.await, Poll::Pending, "{way:?}: before its turn");
            tokio::task::yield_now().await;
        }
        drop(turn);
        assert_eq!(change.await, Status::SUCCESS, "{way:?}");
        assert_eq!(time().await, found, "{way:?}");
    }
}

/// A write that waits for the lock holds no data buffer, and its client can cancel it.
#[tokio::test(start_paused = true)]
async fn a_write_is_in_its_turn_before_its_data_is_fetched() {
    let c = Harness::new().client_by(0, Dialect::V311, RDMA);
    let file = c.open("f").await;
    hold_time(&c, file).await;
    let open = c.core.opens.get(file).unwrap();
    let turn = open.open_state.timed.lock().await;
    let remote = crate::wire::write::Request {
        data_offset: 0,
        channel: Some(Channel::RdmaV1),
        remaining: 5,
        descriptors: vec![RemoteSeg { handle: 7, len: 5, offset: 0 }],
        ..writing(file, 0, 0)
    };
    let remote = remote.emit();
    let cancelled = c.cancels_next();
    let asked = tokio::time::timeout(Duration::from_secs(60), c.ask(Command::Write, &remote));
    let (answer, ()) = tokio::join!(asked, cancelled);
    assert_eq!(answer.expect("it was cancelled").status(), Status::CANCELLED);
    assert!(c.asked.lock().unwrap().try_recv().is_err(), "nothing was fetched");
    drop(turn);
    let (answer, _) = tokio::join!(c.ask(Command::Write, &remote), c.pull_gets(b"later"));
    assert_eq!(answer.status(), Status::SUCCESS);
}

/// Counts syncs to stable storage.
#[derive(Debug, Default)]
struct Synced(AtomicUsize);

impl vfs::local::SyncCalls for Synced {
    fn fsync(&self, _: std::os::fd::BorrowedFd<'_>) -> std::io::Result<()> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn write(
        &self,
        fd: std::os::fd::BorrowedFd<'_>,
        data: &[std::io::IoSlice<'_>],
        at: u64,
        stable: vfs::Stable,
    ) -> std::io::Result<usize> {
        self.0.fetch_add(usize::from(stable != vfs::Stable::Unstable), Ordering::SeqCst);
        let bytes = data.iter().flat_map(|d| d.iter().copied()).collect::<Vec<_>>();
        std::os::unix::fs::FileExt::write_at(
            &std::fs::File::from(fd.try_clone_to_owned()?),
            &bytes,
            at,
        )
    }
}

/// Every data change through a write-through handle waits for exactly one sync; changes through other handles wait for no sync.
#[tokio::test]
async fn each_change_through_is_synced_once() {
    for strict in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let synced = Arc::new(Synced::default());
        let config = LocalConfig { calls: Some(synced.clone()), ..LocalConfig::new(dir.path()) };
        let harness = Harness::on(LocalBackend::open(config).unwrap(), None);
        harness.core.namespace.shares()[0].backend.set_strict(strict, strict);
        let c = harness.client();
        let count = || synced.0.swap(0, Ordering::SeqCst);
        let (source, own) = (c.open("source").await, c.open("f").await);
        put(&c, source, 0, &[b's'; SIZE]).await;
        for (through, by_mode) in [(false, false), (true, false), (true, true)] {
            let options = if through && !by_mode { option::WRITE_THROUGH } else { 0 };
            let file = c.create("f", |r| r.options = options).await.unwrap().file;
            if by_mode {
                let mode = Set::Mode(option::WRITE_THROUGH);
                assert_eq!(set(&c, file, mode).await, Status::SUCCESS);
            }
            for way in WAYS {
                put(&c, own, 0, &[b'o'; SIZE]).await;
                count();
                let done = by(&c, way, file, source).await;
                let is_kept = match way {
                    // The local volume may not support shared storage.
                    Duplicate if done != Status::SUCCESS => continue,
                    Reserve | ValidDataLength => continue,
                    _ => count(),
                };
                assert_eq!(done, Status::SUCCESS, "{way:?}");
                // A strict share syncs sizes and holes for every handle; zeroing counts twice, as a hole and as an allocation.
                let of_share =
                    strict && matches!(way, Cut | Lengthen | Allocate | Zero | Duplicate);
                let most = if of_share && way == Zero { 2 } else { 1 };
                let is_wanted = through || of_share;
                assert!(
                    if is_wanted { (1..=most).contains(&is_kept) } else { is_kept == 0 },
                    "{way:?} strict {strict} through {through}: {is_kept} syncs"
                );
            }
            c.close(file).await;
            count();
            let cut = c.create("f", |r| {
                (r.options, r.disposition) = (options, Disposition::Overwrite as u32);
            });
            c.close(cut.await.unwrap().file).await;
            assert_eq!(count() > 0, options != 0 || strict, "overwritten by CREATE");
        }
    }
}
