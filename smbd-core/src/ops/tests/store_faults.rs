//! Compares locks and closes of persistent handles with the store, when a request fails halfway, and when the disk is full, fails
//! or hangs.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use rdma_transport::channel::Transport;
use recovery::faults::{Disk, Fault};
use recovery::{Change, Kind};
use state::{LockKind, SmbLockRange};
use tokio::sync::oneshot;
use vfs::mem::MemBackend;

use super::persist::{ALONE, opens};
use crate::harness::{Client, Harness};
use crate::persist::LOCKS_MAX;
use crate::persist::record::Record;
use crate::persist::rewrite;
use crate::status::Status;
use crate::wire::Command;
use crate::wire::context::{DHANDLE_FLAG_PERSISTENT, DurableV2, ReconnectV2, Told};
use crate::wire::file_id::FileId;
use crate::wire::lock::{self, Element, flag};
use crate::wire::negotiate::Dialect;

/// A server that can be killed and restarted, on one volume and a store whose disk has faults.
struct World {
    disk: Disk,
    volume: Arc<MemBackend>,
    harness: Harness,
}

impl World {
    fn new() -> Self {
        let disk = Disk::default();
        let volume = MemBackend::new(64 << 20).unwrap();
        let harness = Harness::on(volume.clone(), Some(disk.store().unwrap()));
        Self { disk, volume, harness }
    }

    /// Restarts the server with only its disk preserved. Returns the number of restored handles.
    async fn restart(self) -> (Self, usize) {
        let Self { disk, volume, harness } = self;
        let core = Arc::downgrade(&harness.core);
        drop(harness);
        // A task may still be ending.
        while core.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
        let harness = Harness::on(volume.clone(), Some(disk.store().unwrap()));
        let count = crate::restore::restore(&harness.core, Duration::from_secs(60)).await.unwrap();
        (Self { disk, volume, harness }, count)
    }

    /// Retries failed writes until they succeed.
    async fn catches_up(&self) {
        while !self.harness.core.unwritten.is_settled() {
            rewrite::tick(&self.harness.core);
            tokio::task::yield_now().await;
        }
    }

    /// Waits until a write hangs. Uses a separate thread, so that the test can end without joining it.
    fn hangs(&self) -> impl Future<Output = ()> + use<> {
        let ((tell, told), disk) = (oneshot::channel(), self.disk.clone());
        std::thread::spawn(move || {
            disk.wait_for_hanging();
            tell.send(())
        });
        async { told.await.unwrap() }
    }

    fn stored(&self) -> Vec<Record> {
        let records = self.harness.core.store.as_ref().unwrap().read(Kind::SmbOpen).unwrap();
        records.iter().map(|(_, value)| Record::decode(value).unwrap()).collect()
    }

    /// Returns the number of handles in the store.
    fn records(&self) -> usize {
        self.stored().len()
    }

    /// Returns the offsets of the locks stored for a handle.
    fn stored_locks(&self, file: FileId) -> Vec<u64> {
        let of_it = self.stored().into_iter().filter(|record| record.id == file);
        let mut at: Vec<u64> = of_it.flat_map(|r| r.locks).map(|(range, _)| range.offset).collect();
        at.sort_unstable();
        at
    }

    fn machine(&self, guid: u8) -> Client {
        self.harness.machine(guid, 0, Dialect::V311, Transport::Tcp)
    }
}

/// Opens a file persistently with this CreateGuid and ShareAccess.
async fn persistent(c: &Client, name: &str, guid: u8, share: u32) -> FileId {
    let asked = DurableV2 { timeout: 0, flags: DHANDLE_FLAG_PERSISTENT, guid: [guid; 16] };
    let opened = c.create(name, |r| (r.contexts, r.share) = (vec![asked.context()], share)).await;
    let opened = opened.unwrap();
    let told = Told::parse(&opened.contexts).unwrap();
    assert_eq!(told.durable_v2.unwrap().1, DHANDLE_FLAG_PERSISTENT);
    opened.file
}

/// Reconnects to such a handle.
async fn again(c: &Client, name: &str, file: FileId, guid: u8) -> Result<(), Status> {
    let back = ReconnectV2 { file, guid: [guid; 16], flags: DHANDLE_FLAG_PERSISTENT };
    c.create(name, |r| r.contexts = vec![back.context()]).await.map(|back| {
        assert_eq!(back.file, file);
    })
}

const ALL: u32 = 7;

/// Sends LOCK with ranges of ten bytes at these offsets.
async fn locks(c: &Client, file: FileId, elements: &[(u64, u32)]) -> Status {
    numbered(c, file, elements, (0, 0)).await
}

/// Sends LOCK with this LockSequence index and number.
async fn numbered(
    c: &Client,
    file: FileId,
    elements: &[(u64, u32)],
    (sequence_index, sequence_number): (u32, u8),
) -> Status {
    let locks = elements.iter();
    let locks = locks.map(|(offset, flags)| Element { offset: *offset, length: 10, flags: *flags });
    let locks = locks.collect();
    let request = lock::Request { sequence_number, sequence_index, file, locks };
    c.ask(Command::Lock, &request.emit()).await.status()
}

/// Ranges unlocked before the element that fails are free for other clients, before and after a restart (MS-SMB2 section
/// 3.3.5.14.1).
#[tokio::test]
async fn an_unlock_before_one_that_fails_is_in_the_store() {
    let world = World::new();
    let (a, b) = (world.machine(1), world.machine(2));
    let first = persistent(&a, "f", 1, ALL).await;
    let second = persistent(&b, "f", 2, ALL).await;
    assert_eq!(locks(&a, first, &[(0, ALONE), (20, ALONE)]).await, Status::SUCCESS);
    let three = [(0, flag::UNLOCK), (20, flag::UNLOCK), (100, flag::UNLOCK)];
    assert_eq!(locks(&a, first, &three).await, Status::RANGE_NOT_LOCKED);
    assert_eq!(locks(&b, second, &[(0, ALONE)]).await, Status::SUCCESS);
    drop((a, b));
    let (world, count) = world.restart().await;
    assert_eq!(count, 2);
    let (a, b) = (world.machine(1), world.machine(2));
    again(&a, "f", first, 1).await.unwrap();
    again(&b, "f", second, 2).await.unwrap();
    for at in [0, 20] {
        let unlock = locks(&a, first, &[(at, flag::UNLOCK)]).await;
        assert_eq!(unlock, Status::RANGE_NOT_LOCKED, "at {at}");
    }
    assert_eq!(locks(&b, second, &[(0, flag::UNLOCK)]).await, Status::SUCCESS);
}

/// Ranges locked before an invalid element stay locked, also after a restart.
#[tokio::test]
async fn a_lock_before_an_element_that_makes_no_sense_is_in_the_store() {
    let world = World::new();
    let a = world.machine(1);
    let file = persistent(&a, "f", 1, ALL).await;
    let both = [(0, ALONE), (100, flag::UNLOCK | ALONE)];
    assert_eq!(locks(&a, file, &both).await, Status::INVALID_PARAMETER);
    drop(a);
    let (world, count) = world.restart().await;
    assert_eq!(count, 1);
    let other = world.machine(2);
    let theirs = opens(&other, "f").await.unwrap();
    assert_eq!(locks(&other, theirs, &[(0, ALONE)]).await, Status::LOCK_NOT_GRANTED);
}

/// A handle closed while the store cannot be written is deleted from it once it is writable.
#[tokio::test]
async fn a_closed_handle_is_struck_until_that_is_durable() {
    for fault in [Fault::Full, Fault::Broken] {
        let world = World::new();
        let (a, b) = (world.machine(1), world.machine(2));
        let closed = persistent(&a, "f", 1, ALL).await;
        let stays = persistent(&b, "g", 2, ALL).await;
        world.disk.set(fault);
        assert_eq!(a.close(closed).await, Status::SUCCESS);
        rewrite::tick(&world.harness.core);
        world.disk.set(Fault::None);
        world.catches_up().await;
        assert_eq!(world.records(), 1, "{fault:?}");
        drop((a, b));
        let (world, count) = world.restart().await;
        assert_eq!(count, 1);
        again(&world.machine(2), "g", stays, 2).await.unwrap();
    }
}

/// The store hangs while the deletion of a closed handle is retried: other requests must not wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_hangs_keeps_nobody_who_does_not_write() {
    let world = World::new();
    let a = world.machine(1);
    let closed = persistent(&a, "f", 1, ALL).await;
    world.disk.set(Fault::Full);
    assert_eq!(a.close(closed).await, Status::SUCCESS);
    world.disk.set(Fault::Hangs);
    rewrite::tick(&world.harness.core);
    world.hangs().await;
    rewrite::tick(&world.harness.core);
    let b = world.machine(2);
    let other = opens(&b, "f").await.unwrap();
    assert_eq!(b.close(other).await, Status::SUCCESS);
    world.disk.set(Fault::None);
    world.catches_up().await;
    assert_eq!(world.records(), 0);
}

/// A restart before the retry finds two conflicting handles of one file: the later one is valid.
#[tokio::test]
async fn a_handle_that_could_not_be_struck_takes_nobodys_place() {
    let world = World::new();
    let (a, b) = (world.machine(1), world.machine(2));
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut closed = Vec::new();
    for (name, guid) in names.into_iter().zip(1..) {
        closed.push(persistent(&a, name, guid, 0).await);
    }
    world.disk.set(Fault::Full);
    for file in closed {
        assert_eq!(a.close(file).await, Status::SUCCESS);
    }
    world.disk.set(Fault::None);
    let mut held = Vec::new();
    for (name, guid) in names.into_iter().zip(100..) {
        held.push(persistent(&b, name, guid, 0).await);
    }
    assert_eq!(world.records(), 2 * names.len());
    drop((a, b));
    let (world, count) = world.restart().await;
    assert_eq!((count, world.records()), (names.len(), names.len()));
    let b = world.machine(2);
    for ((name, file), guid) in names.into_iter().zip(held).zip(100..) {
        again(&b, name, file, guid).await.unwrap();
    }
    // The next restart must give the same result.
    persistent(&b, "new", 200, 0).await;
    let mut orders: Vec<u64> = world.stored().iter().map(|record| record.order).collect();
    orders.sort_unstable();
    assert!(orders.is_sorted_by(|a, b| a < b), "{orders:?}");
}

/// If a create cannot be stored, the open is not persistent, and remains of its record are deleted.
#[tokio::test]
async fn a_handle_that_could_not_be_written_is_not_persistent() {
    let world = World::new();
    let a = world.machine(1);
    world.disk.set(Fault::Broken);
    let asked = DurableV2 { timeout: 0, flags: DHANDLE_FLAG_PERSISTENT, guid: [1; 16] };
    let opened = a.create("f", |r| r.contexts = vec![asked.context()]).await.unwrap();
    assert_eq!(Told::parse(&opened.contexts).unwrap().durable_v2, None);
    world.disk.set(Fault::None);
    assert!(!world.harness.core.unwritten.is_settled());
    // Simulates that the failed write reached the disk.
    let key = opened.file.persistent.to_be_bytes();
    let left = vec![Change::put(Kind::SmbOpen, &key, b"left")];
    world.harness.core.store.as_ref().unwrap().commit_blocking(left).unwrap();
    world.catches_up().await;
    assert_eq!(world.records(), 0);
}

/// A lock that cannot be stored fails and has no effect.
#[tokio::test]
async fn a_lock_that_cannot_be_written_is_not_held() {
    let world = World::new();
    let (a, b) = (world.machine(1), world.machine(2));
    let file = persistent(&a, "f", 1, ALL).await;
    let other = opens(&b, "f").await.unwrap();
    assert_eq!(locks(&a, file, &[(0, ALONE)]).await, Status::SUCCESS);
    world.disk.set(Fault::Full);
    let nonsense = flag::UNLOCK | ALONE;
    for elements in
        [&[(20, ALONE)][..], &[(20, ALONE), (40, ALONE)], &[(20, ALONE), (60, nonsense)]]
    {
        assert_eq!(locks(&a, file, elements).await, Status::INSUFFICIENT_RESOURCES);
        for (at, _) in elements {
            assert_eq!(locks(&b, other, &[(*at, ALONE)]).await, Status::SUCCESS, "at {at}");
            assert_eq!(locks(&b, other, &[(*at, flag::UNLOCK)]).await, Status::SUCCESS);
        }
    }
    // The range already held must survive the failure.
    let shared = flag::SHARED | flag::FAIL_IMMEDIATELY;
    assert_eq!(locks(&a, file, &[(0, shared)]).await, Status::INSUFFICIENT_RESOURCES);
    assert_eq!(locks(&b, other, &[(0, shared)]).await, Status::LOCK_NOT_GRANTED);
    assert_eq!(world.harness.core.opens.get(file).unwrap().locks.load(Ordering::Relaxed), 1);
    world.disk.set(Fault::None);
    world.catches_up().await;
    assert_eq!(world.stored_locks(file), [0]);
}

/// An unlock that cannot be stored has no effect, and no other client gets the range.
#[tokio::test]
async fn an_unlock_that_cannot_be_written_is_not_done() {
    let world = World::new();
    let (a, b) = (world.machine(1), world.machine(2));
    let file = persistent(&a, "f", 1, ALL).await;
    let other = persistent(&b, "f", 2, ALL).await;
    assert_eq!(locks(&a, file, &[(0, ALONE), (20, ALONE)]).await, Status::SUCCESS);
    world.disk.set(Fault::Broken);
    for elements in [&[(0, flag::UNLOCK)][..], &[(20, flag::UNLOCK), (100, flag::UNLOCK)]] {
        assert_eq!(locks(&a, file, elements).await, Status::INSUFFICIENT_RESOURCES);
        let at = elements[0].0;
        assert_eq!(locks(&b, other, &[(at, ALONE)]).await, Status::LOCK_NOT_GRANTED, "at {at}");
    }
    world.disk.set(Fault::None);
    world.catches_up().await;
    assert_eq!(world.stored_locks(file), [0, 20]);
    assert_eq!(locks(&a, file, &[(0, flag::UNLOCK)]).await, Status::SUCCESS);
    assert_eq!(world.stored_locks(file), [20]);
    assert_eq!(locks(&b, other, &[(0, ALONE)]).await, Status::SUCCESS);
    drop((a, b));
    let (world, _) = world.restart().await;
    let (a, b) = (world.machine(1), world.machine(2));
    again(&a, "f", file, 1).await.unwrap();
    again(&b, "f", other, 2).await.unwrap();
    assert_eq!(locks(&a, file, &[(20, flag::UNLOCK)]).await, Status::SUCCESS);
    assert_eq!(locks(&b, other, &[(0, flag::UNLOCK)]).await, Status::SUCCESS);
}

/// The range stays locked for other clients until its unlock is stored, and no other record of the handle reverts it. The client
/// may disconnect meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_range_is_free_when_its_unlock_is_durable() {
    for client_stays in [true, false] {
        let world = World::new();
        let (a, b) = (world.machine(1), world.machine(2));
        let file = persistent(&a, "f", 1, ALL).await;
        let other = opens(&b, "f").await.unwrap();
        assert_eq!(locks(&a, file, &[(0, ALONE), (20, ALONE)]).await, Status::SUCCESS);
        world.disk.set(Fault::Hangs);
        let mut unlock = Box::pin(locks(&a, file, &[(0, flag::UNLOCK)]));
        tokio::select! {
            biased;
            done = &mut unlock => {
                world.disk.set(Fault::None);
                panic!("{done:?}");
            }
            () = world.hangs() => {}
        }
        assert_eq!(locks(&b, other, &[(0, ALONE)]).await, Status::LOCK_NOT_GRANTED);
        assert_eq!(locks(&a, file, &[(0, flag::UNLOCK)]).await, Status::RANGE_NOT_LOCKED, "twice");
        let mut second = Box::pin(locks(&a, file, &[(40, ALONE)]));
        let waits = poll_fn(|cx| Poll::Ready(second.as_mut().poll(cx).is_pending())).await;
        assert!(waits);
        if client_stays {
            world.disk.set(Fault::None);
            assert_eq!(unlock.await, Status::SUCCESS);
        } else {
            drop(unlock);
            world.disk.set(Fault::None);
        }
        assert_eq!(second.await, Status::SUCCESS);
        assert_eq!(world.stored_locks(file), [20, 40]);
        while locks(&b, other, &[(0, ALONE)]).await != Status::SUCCESS {
            tokio::task::yield_now().await;
        }
    }
}

/// A handle may have 1,024 locks; a request that exceeds this is refused before it locks any range.
#[tokio::test]
async fn a_handle_locks_no_more_ranges_than_its_record_may_have() {
    let world = World::new();
    let (a, b) = (world.machine(1), world.machine(2));
    let file = persistent(&a, "f", 1, ALL).await;
    let other = opens(&b, "f").await.unwrap();
    let at = |n: usize| 20 * n as u64;
    let most: Vec<_> = (0..LOCKS_MAX - 1).map(|n| (at(n), ALONE)).collect();
    for part in most.chunks(60) {
        assert_eq!(locks(&a, file, part).await, Status::SUCCESS);
    }
    let (last, over) = ((at(LOCKS_MAX), ALONE), (at(LOCKS_MAX + 1), ALONE));
    assert_eq!(locks(&a, file, &[last, over]).await, Status::INSUFFICIENT_RESOURCES);
    assert_eq!(locks(&a, file, &[last]).await, Status::SUCCESS);
    assert_eq!(locks(&a, file, &[over]).await, Status::INSUFFICIENT_RESOURCES);
    assert_eq!(locks(&b, other, &[over]).await, Status::SUCCESS);
    assert_eq!(locks(&a, file, &[(last.0, flag::UNLOCK)]).await, Status::SUCCESS);
    assert_eq!(locks(&b, other, &[last]).await, Status::SUCCESS);
    assert!(world.harness.core.unwritten.is_settled());
}

/// A lock that a later element undid may already be in a stored record; the next record omits it.
#[tokio::test]
async fn what_a_lock_undid_is_not_left_in_the_store() {
    let world = World::new();
    let (a, b) = (world.machine(1), world.machine(2));
    let file = persistent(&a, "f", 1, ALL).await;
    let other = opens(&b, "f").await.unwrap();
    assert_eq!(locks(&b, other, &[(20, ALONE)]).await, Status::SUCCESS);
    // Simulates a record written while the first element was locked.
    let mut left = world.stored().remove(0);
    left.locks.push((SmbLockRange { offset: 0, length: 10 }, LockKind::Exclusive));
    let key = file.persistent.to_be_bytes();
    let left = vec![Change::put(Kind::SmbOpen, &key, &left.encode())];
    world.harness.core.store.as_ref().unwrap().commit_blocking(left).unwrap();
    assert_eq!(world.stored_locks(file), [0]);
    assert_eq!(locks(&a, file, &[(0, ALONE), (20, ALONE)]).await, Status::LOCK_NOT_GRANTED);
    let written = async {
        while !world.stored_locks(file).is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), written).await.unwrap();
}

/// If two records have the same lock because the earlier one could not be updated, the later one is valid.
#[tokio::test]
async fn a_lock_that_two_records_have_is_of_the_later_one() {
    for _ in 0..8 {
        let world = World::new();
        let (a, b) = (world.machine(1), world.machine(2));
        let first = persistent(&a, "f", 1, ALL).await;
        let second = persistent(&b, "f", 2, ALL).await;
        assert_eq!(locks(&a, first, &[(0, ALONE)]).await, Status::SUCCESS);
        let mut left = world.stored();
        left.retain(|record| record.id == first);
        assert_eq!(locks(&a, first, &[(0, flag::UNLOCK)]).await, Status::SUCCESS);
        assert_eq!(locks(&b, second, &[(0, ALONE)]).await, Status::SUCCESS);
        let key = first.persistent.to_be_bytes();
        let left = vec![Change::put(Kind::SmbOpen, &key, &left[0].encode())];
        world.harness.core.store.as_ref().unwrap().commit_blocking(left).unwrap();
        drop((a, b));
        let (world, count) = world.restart().await;
        assert_eq!(count, 2);
        let b = world.machine(2);
        again(&b, "f", second, 2).await.unwrap();
        assert_eq!(locks(&b, second, &[(0, flag::UNLOCK)]).await, Status::SUCCESS);
    }
}

/// A replayed LOCK counts as done only if the original was stored (MS-SMB2 section 3.3.5.14).
#[tokio::test]
async fn a_lock_that_was_refused_is_not_done_when_it_is_sent_again() {
    let world = World::new();
    let a = world.machine(1);
    let file = persistent(&a, "f", 1, ALL).await;
    let (lock, unlock) = ([(0, ALONE)], [(0, flag::UNLOCK)]);
    for (elements, number, left) in [(lock, 1, vec![]), (unlock, 2, vec![0])] {
        world.disk.set(Fault::Full);
        for _ in 0..3 {
            let refused = numbered(&a, file, &elements, (1, number)).await;
            assert_eq!(refused, Status::INSUFFICIENT_RESOURCES);
        }
        world.disk.set(Fault::None);
        assert_eq!(world.stored_locks(file), left);
        for _ in 0..3 {
            let done = numbered(&a, file, &elements, (1, number)).await;
            assert_eq!(done, Status::SUCCESS, "{number}");
        }
        assert_ne!(world.stored_locks(file), left);
        assert_eq!(world.stored()[0].sequences[0], Some(number));
    }
    drop(a);
    let (world, _) = world.restart().await;
    let a = world.machine(1);
    again(&a, "f", file, 1).await.unwrap();
    assert_eq!(numbered(&a, file, &unlock, (1, 2)).await, Status::SUCCESS, "as before");
    assert_eq!(numbered(&a, file, &unlock, (1, 3)).await, Status::RANGE_NOT_LOCKED);
}

/// A LOCK replayed while the original waits for the store waits too, and is executed again if the original failed.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_sent_again_waits_for_the_first() {
    for then in [Fault::None, Fault::Broken] {
        let world = World::new();
        let a = world.machine(1);
        let file = persistent(&a, "f", 1, ALL).await;
        world.disk.set(Fault::Hangs);
        let lock = || Box::pin(numbered(&a, file, &[(0, ALONE)], (1, 1)));
        let mut first = lock();
        tokio::select! {
            biased;
            done = &mut first => {
                world.disk.set(Fault::None);
                panic!("{done:?}");
            }
            () = world.hangs() => {}
        }
        let mut again = lock();
        let waits = poll_fn(|cx| Poll::Ready(again.as_mut().poll(cx).is_pending())).await;
        world.disk.set(then);
        assert!(waits);
        // The connection is lost.
        drop(first);
        if then == Fault::Broken {
            while world.harness.core.unwritten.is_settled() {
                tokio::task::yield_now().await;
            }
            world.disk.set(Fault::None);
        }
        assert_eq!(again.await, Status::SUCCESS, "{then:?}");
        assert_eq!(world.stored_locks(file), [0]);
        assert_eq!(locks(&a, file, &[(0, flag::UNLOCK)]).await, Status::SUCCESS);
        assert_eq!(locks(&a, file, &[(0, flag::UNLOCK)]).await, Status::RANGE_NOT_LOCKED, "once");
    }
}
