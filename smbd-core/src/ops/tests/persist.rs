//! Persistent handles: what their client finds after the server was killed, and what other clients are refused meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rdma_transport::channel::Transport;
use recovery::{Change, Kind, Store};
use vfs::Acting;
use vfs::arbiter::Recall;
use vfs::backend::BoxFuture;
use vfs::local::{LocalBackend, LocalConfig};
use vfs::mem::MemBackend;
use vfs::replace::New;
use vfs::{Backend, Capabilities, Cred, FsStat, Handle, NodeRef, Special, VfsError, VfsResult};

use super::ioctl::{done, owner, put};
use crate::dtyp::mask;
use crate::fscc::file::Basic;
use crate::fscc::set::Set;
use crate::harness::{Client, Harness};
use crate::node_replacement::NodeReplacement;
use crate::open::FileId;
use crate::restore::NotRestored;
use crate::status::Status;
use crate::wire::context::{
    Asked, DHANDLE_FLAG_PERSISTENT, DurableV2, Lease, LeaseV2, ReconnectV2, Told, name,
};
use crate::wire::create::{self, Context, Disposition, oplock, option, share};
use crate::wire::fsctl::code;
use crate::wire::ioctl::{self, IS_FSCTL};
use crate::wire::lock::{self, Element, flag};
use crate::wire::negotiate::Dialect;
use crate::wire::reparse::Reparse;
use crate::wire::{Command, oplock_break, set_info};

const GUID: [u8; 16] = [7; 16];
const RWH: u32 = 7;
pub(super) const ALONE: u32 = flag::EXCLUSIVE | flag::FAIL_IMMEDIATELY;

/// A server that can be killed and restarted on the same volume and state folder.
struct World {
    folder: tempfile::TempDir,
    volume: Arc<MemBackend>,
    harness: Harness,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let volume = MemBackend::new(64 << 20).unwrap();
        let harness = Harness::on(volume.clone(), Some(Store::open(folder.path()).unwrap()));
        Self { folder, volume, harness }
    }

    /// Restarts the server with only its disk preserved. Returns the number of restored handles.
    async fn restart(self) -> (Self, usize) {
        let Self { folder, volume, harness } = self;
        let core = Arc::downgrade(&harness.core);
        drop(harness);
        // A task may still be ending.
        while core.strong_count() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let harness = Harness::on(volume.clone(), Some(Store::open(folder.path()).unwrap()));
        let count = crate::restore::restore(&harness.core, Duration::from_secs(60)).await.unwrap();
        (Self { folder, volume, harness }, count)
    }

    fn machine(&self, guid: u8) -> Client {
        self.harness.machine(guid, 0, Dialect::V311, Transport::Tcp)
    }
}

fn asks(timeout: u32) -> Context<'static> {
    DurableV2 { timeout, flags: DHANDLE_FLAG_PERSISTENT, guid: GUID }.context()
}

fn lease(epoch: u16) -> Context<'static> {
    let v2 = Some(LeaseV2 { parent: [0; 16], epoch });
    Lease { key: [9; 16], state: RWH, flags: 0, v2 }.context()
}

/// Opens a file persistently with a full lease and full sharing.
async fn persistent(c: &Client, file: &str, timeout: u32) -> (FileId, Told) {
    let opened = c.create(file, |r| {
        r.oplock_level = oplock::LEASE;
        r.contexts = vec![lease(1), asks(timeout)];
    });
    let opened = opened.await.unwrap();
    (opened.file, Told::parse(&opened.contexts).unwrap())
}

/// Opens a file persistently without caching.
pub(super) async fn plain(c: &Client, file: &str, timeout: u32) -> FileId {
    let opened = c.create(file, |r| r.contexts = vec![asks(timeout)]).await.unwrap();
    let told = Told::parse(&opened.contexts).unwrap();
    assert_eq!(told.durable_v2.unwrap().1, DHANDLE_FLAG_PERSISTENT);
    opened.file
}

async fn again(
    c: &Client,
    path: &str,
    file: FileId,
    contexts: Vec<Context<'static>>,
) -> Result<create::Response<'static>, Status> {
    let back = ReconnectV2 { file, guid: GUID, flags: DHANDLE_FLAG_PERSISTENT }.context();
    c.create(path, |r| {
        r.oplock_level = oplock::LEASE;
        r.contexts = contexts;
        r.contexts.push(back);
    })
    .await
}

async fn lock_as(c: &Client, file: FileId, at: u64, flags: u32) -> Status {
    let locks = vec![Element { offset: at, length: 10, flags }];
    let request = lock::Request { sequence_number: 0, sequence_index: 0, file, locks };
    c.ask(Command::Lock, &request.emit()).await.status()
}

pub(super) async fn opens(c: &Client, path: &str) -> Result<FileId, Status> {
    c.create(path, |r| r.disposition = Disposition::Open as u32).await.map(|r| r.file)
}

/// MS-SMB2 sections 3.3.5.9.10 and 3.3.5.9.12.
#[tokio::test]
async fn a_killed_server_gives_handle_lease_and_locks_back() {
    let world = World::new();
    let c = world.machine(1);
    let (file, told) = persistent(&c, "f", 0).await;
    assert_eq!(told.durable_v2, Some((60_000, DHANDLE_FLAG_PERSISTENT)));
    assert_eq!(told.lease.unwrap().state, RWH);
    assert_eq!(lock_as(&c, file, 0, ALONE).await, Status::SUCCESS);
    assert_eq!(lock_as(&c, file, 20, ALONE).await, Status::SUCCESS);
    assert_eq!(lock_as(&c, file, 20, flag::UNLOCK).await, Status::SUCCESS);
    drop(c);

    let (world, count) = world.restart().await;
    assert_eq!(count, 1);
    let other = world.machine(2);
    assert_eq!(opens(&other, "f").await.unwrap_err(), Status::FILE_NOT_AVAILABLE);
    // An open for attributes only succeeds.
    let looks = other.create("f", |r| r.access = mask::READ_ATTRIBUTES).await;
    assert_eq!(other.close(looks.unwrap().file).await, Status::SUCCESS);

    let c = world.machine(1);
    let back = again(&c, "f", file, vec![lease(6)]).await.unwrap();
    assert_eq!(back.file, file);
    let told = Told::parse(&back.contexts).unwrap().lease.unwrap();
    assert_eq!((told.state, told.v2.unwrap().epoch), (RWH, 6), "never before what it knew");
    assert_eq!(
        again(&c, "f", file, vec![lease(6)]).await.unwrap_err(),
        Status::OBJECT_NAME_NOT_FOUND,
        "it is taken"
    );
    assert_eq!(lock_as(&c, file, 0, flag::UNLOCK).await, Status::SUCCESS, "still held");
    assert_eq!(lock_as(&c, file, 20, flag::UNLOCK).await, Status::RANGE_NOT_LOCKED);
    // A break reaches the client that has reconnected.
    let notice = async { c.pushed().await };
    let (asked, told) = tokio::join!(opens(&other, "f"), notice);
    assert_eq!(asked.unwrap_err(), Status::PENDING);
    assert_eq!(told.header.command(), Some(Command::OplockBreak));
    assert_eq!(c.close(file).await, Status::SUCCESS);
    assert_eq!(other.pushed().await.status(), Status::SUCCESS, "the other's turn");
    drop((c, other));
    let (_world, count) = world.restart().await;
    assert_eq!(count, 0, "a close is for ever");
}

#[tokio::test]
async fn locks_of_a_client_that_is_not_back_yet_stand_in_the_way() {
    let world = World::new();
    let c = world.machine(1);
    let file = plain(&c, "f", 0).await;
    assert_eq!(lock_as(&c, file, 0, ALONE).await, Status::SUCCESS);
    let denies = c.create("g", |r| {
        r.contexts = vec![DurableV2 { timeout: 0, flags: 2, guid: [8; 16] }.context()];
        r.share = share::READ;
    });
    denies.await.unwrap();
    drop(c);
    let (world, count) = world.restart().await;
    assert_eq!(count, 2);
    let other = world.machine(2);
    let mine = opens(&other, "f").await.unwrap();
    assert_eq!(lock_as(&other, mine, 5, ALONE).await, Status::LOCK_NOT_GRANTED);
    assert_eq!(opens(&other, "g").await.unwrap_err(), Status::FILE_NOT_AVAILABLE);
    let reads = other.create("g", |r| r.access = mask::READ_DATA);
    reads.await.unwrap();
    // Reconnecting fails from another machine, as another user, and without the persistent flag.
    let stranger = world.harness.machine(1, 7, Dialect::V311, Transport::Tcp);
    let c = world.machine(1);
    let quiet = ReconnectV2 { file, guid: GUID, flags: 0 }.context();
    let asked = c.create("f", |r| r.contexts = vec![quiet]).await;
    assert_eq!(asked.unwrap_err(), Status::OBJECT_NAME_NOT_FOUND);
    drop(stranger);
    again(&c, "f", file, vec![]).await.unwrap();
    assert_eq!(lock_as(&c, file, 0, flag::UNLOCK).await, Status::SUCCESS);
    assert_eq!(lock_as(&other, mine, 5, ALONE).await, Status::SUCCESS);
}

/// MS-SMB2 section 3.3.5.9: a write on a continuously available share is durable before the response.
#[tokio::test]
async fn a_share_that_is_continuously_available_writes_through() {
    let through = |harness: &Harness, file| {
        harness.core.opens.get(file).unwrap().options & create::option::WRITE_THROUGH != 0
    };
    let world = World::new();
    let file = world.machine(1).open("f").await;
    assert!(through(&world.harness, file));
    let harness = Harness::new();
    let file = harness.client().open("f").await;
    assert!(!through(&harness, file));
}

#[tokio::test]
async fn a_create_that_is_sent_again_after_a_restart_finds_its_open() {
    let world = World::new();
    let c = world.machine(1);
    let file = plain(&c, "f", 0).await;
    drop(c);
    let (world, _) = world.restart().await;
    let c = world.machine(1);
    let asked = c.create("f", |r| r.contexts = vec![asks(0)]).await;
    assert_eq!(asked.unwrap_err(), Status::DUPLICATE_OBJECTID, "it does not say so");
    c.replays.store(true, Ordering::Relaxed);
    let told = c.create("f", |r| r.contexts = vec![asks(0)]).await.unwrap();
    assert_eq!((told.file, told.action), (file, create::action::CREATED));
    let contexts = Told::parse(&told.contexts).unwrap();
    assert_eq!(contexts.durable_v2, Some((60_000, DHANDLE_FLAG_PERSISTENT)));
    c.replays.store(false, Ordering::Relaxed);
    assert_eq!(c.close(file).await, Status::SUCCESS);
}

/// A replayed create must name the same lease as before (MS-SMB2 section 3.3.5.9.10).
#[tokio::test]
async fn a_create_that_is_sent_again_names_no_lease_of_another_file() {
    let world = World::new();
    let c = world.machine(1);
    let (file, _) = persistent(&c, "f", 0).await;
    let v2 = Some(LeaseV2 { parent: [0; 16], epoch: 1 });
    let theirs = Lease { key: [8; 16], state: RWH, flags: 0, v2 }.context();
    let create = async |name, contexts| {
        let asked = c.create(name, |r| (r.oplock_level, r.contexts) = (oplock::LEASE, contexts));
        asked.await.map(|told| told.file)
    };
    let other = create("g", vec![theirs.clone()]).await.unwrap();
    c.replays.store(true, Ordering::Relaxed);
    assert_eq!(create("f", vec![theirs, asks(0)]).await, Err(Status::ACCESS_DENIED));
    assert_eq!(create("f", vec![lease(1), asks(0)]).await, Ok(file));
    c.replays.store(false, Ordering::Relaxed);
    for open in [file, other] {
        assert_eq!(c.close(open).await, Status::SUCCESS);
    }
}

/// A client that never got the response knows only its CreateGuid (MS-SMB2 section 3.3.5.9.12).
#[tokio::test]
async fn an_open_is_found_by_its_create() {
    let world = World::new();
    let c = world.machine(1);
    let file = plain(&c, "f", 0).await;
    drop(c);
    let (world, _) = world.restart().await;
    let c = world.machine(1);
    let unknown = FileId { persistent: 3, volatile: 4 };
    assert_eq!(again(&c, "f", unknown, vec![]).await.unwrap().file, file);
}

#[tokio::test]
async fn who_does_not_come_back_in_time_has_lost_it() {
    let world = World::new();
    let c = world.machine(1);
    let file = plain(&c, "f", 300).await;
    assert_eq!(lock_as(&c, file, 0, ALONE).await, Status::SUCCESS);
    drop(c);
    let (world, count) = world.restart().await;
    assert_eq!(count, 1);
    let other = world.machine(2);
    let mine = opens(&other, "f").await.unwrap();
    while lock_as(&other, mine, 0, ALONE).await != Status::SUCCESS {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let c = world.machine(1);
    assert_eq!(again(&c, "f", file, vec![]).await.unwrap_err(), Status::OBJECT_NAME_NOT_FOUND);
    drop((c, other));
    assert_eq!(world.restart().await.1, 0);
}

/// A client may lose the response to its create and then send a new one.
#[tokio::test]
async fn what_a_client_does_not_take_up_keeps_nobody_from_the_file() {
    let world = World::new();
    let c = world.machine(1);
    let (left, _) = persistent(&c, "f", 0).await;
    let again_guid = |guid| DurableV2 { timeout: 0, flags: DHANDLE_FLAG_PERSISTENT, guid };
    let held = c.create("g", |r| {
        r.share = 0;
        r.contexts = vec![again_guid([8; 16]).context()];
    });
    let held = held.await.unwrap().file;
    let dies = c.create("d", |r| {
        (r.share, r.access) = (0, mask::READ_DATA | mask::DELETE);
        r.options = option::DELETE_ON_CLOSE;
        r.contexts = vec![again_guid([9; 16]).context()];
    });
    dies.await.unwrap();
    drop(c);
    let (world, count) = world.restart().await;
    assert_eq!(count, 3);
    let (c, other) = (world.machine(1), world.machine(2));
    let done = || {
        let session = c.core.sessions.get(c.session_id).unwrap();
        let long_ago = Instant::now().checked_sub(Duration::from_secs(10)).unwrap();
        session.trees().iter().for_each(|tree| tree.last_take_up.note(long_ago));
        let lost_before = long_ago.checked_sub(Duration::from_secs(10));
        let all = c.core.opens.waiting(|open| {
            open.durable.durability().lost_at = lost_before;
            false
        });
        assert!(all.is_none());
    };
    assert_eq!(opens(&other, "f").await.unwrap_err(), Status::FILE_NOT_AVAILABLE, "just back");
    done();
    let back = ReconnectV2 { file: held, guid: [8; 16], flags: DHANDLE_FLAG_PERSISTENT };
    c.create("g", |r| r.contexts = vec![back.context()]).await.unwrap();
    assert_eq!(opens(&c, "f").await.unwrap_err(), Status::FILE_NOT_AVAILABLE, "it takes opens up");
    done();
    let why = "who opens it would have a file without a name";
    assert_eq!(opens(&other, "d").await.unwrap_err(), Status::FILE_NOT_AVAILABLE, "{why}");
    opens(&c, "f").await.unwrap();
    assert_eq!(opens(&c, "g").await.unwrap_err(), Status::SHARING_VIOLATION, "that is its own");
    let gone = again(&c, "f", left, vec![lease(6)]).await;
    assert_eq!(gone.unwrap_err(), Status::OBJECT_NAME_NOT_FOUND);
    drop((c, other));
    let (_world, count) = world.restart().await;
    assert_eq!(count, 2, "what is closed does not come back");
}

/// Creates `f` with the lease of [`persistent`] and a different CreateGuid.
async fn anew(c: &Client) -> Status {
    let guid = DurableV2 { timeout: 0, flags: DHANDLE_FLAG_PERSISTENT, guid: [8; 16] };
    let made = c.create("f", |r| {
        r.disposition = Disposition::Create as u32;
        r.oplock_level = oplock::LEASE;
        r.contexts = vec![lease(1), guid.context()];
    });
    made.await.unwrap_err()
}

#[tokio::test]
async fn a_client_that_sends_a_create_anew_has_left_what_came_of_the_first_one() {
    let world = World::new();
    let c = world.machine(1);
    let (left, _) = persistent(&c, "f", 0).await;
    drop(c);
    let (world, _) = world.restart().await;
    let (c, other) = (world.machine(1), world.machine(2));
    assert_eq!(opens(&c, "f").await.unwrap_err(), Status::FILE_NOT_AVAILABLE, "it may come back");
    assert_eq!(anew(&c).await, Status::OBJECT_NAME_COLLISION);
    assert_eq!(opens(&other, "f").await.unwrap_err(), Status::FILE_NOT_AVAILABLE);
    again(&c, "f", left, vec![lease(6)]).await.unwrap();
    crate::teardown::end_of_connection(&world.harness.core, &c.conn).await;
    let c = world.machine(1);
    assert_eq!(opens(&c, "f").await.unwrap_err(), Status::FILE_NOT_AVAILABLE, "it was known");
    assert_eq!(anew(&c).await, Status::OBJECT_NAME_COLLISION);
    opens(&c, "f").await.unwrap();
    opens(&other, "f").await.unwrap();
}

#[tokio::test]
async fn a_lost_connection_does_not_make_it_give_way() {
    let world = World::new();
    let c = world.machine(1);
    let (file, _) = persistent(&c, "f", 0).await;
    crate::teardown::end_of_connection(&world.harness.core, &c.conn).await;
    let other = world.machine(2);
    assert_eq!(opens(&other, "f").await.unwrap_err(), Status::FILE_NOT_AVAILABLE);
    let c = world.machine(1);
    again(&c, "f", file, vec![lease(1)]).await.unwrap();
}

/// A conflict with the lease of a client that has not reconnected breaks the lease when the client is back.
#[tokio::test]
async fn a_break_waits_for_the_client() {
    let world = World::new();
    let c = world.machine(1);
    let (file, _) = persistent(&c, "f", 0).await;
    drop(c);
    let (world, _) = world.restart().await;
    let namespace = world.harness.core.namespace.clone();
    let share = namespace.shares()[0].clone();
    let (node, _) = share.backend.root().lookup(&vfs::Cred::root(), b"f").await.unwrap();
    // NFS makes this check before a write.
    let before = namespace.arbiter().check_conflicts(
        node.id(),
        None,
        state::Operation::Write,
        state::Range::ALL,
    );
    assert_eq!(before.await, Err(vfs::VfsError::Delay));
    let c = world.machine(1);
    again(&c, "f", file, vec![lease(1)]).await.unwrap();
    let told = c.pushed().await;
    let notice = oplock_break::Response::parse(&told.message).unwrap();
    let oplock_break::Response::LeaseNotice(n) = notice else { panic!("{notice:?}") };
    assert_eq!((n.from, n.acknowledge), (RWH, true));
    let ack = oplock_break::Lease { key: [9; 16], state: n.to }.emit();
    assert_eq!(c.ask(Command::OplockBreak, &ack).await.status(), Status::SUCCESS);
}

#[tokio::test]
async fn names_and_deletion_survive() {
    let world = World::new();
    let c = world.machine(1);
    let file = plain(&c, "old", 0).await;
    let mut name = Vec::new();
    crate::wire::put_utf16(&mut name, "new");
    let mut buffer = vec![0; 16];
    buffer.extend(u32::try_from(name.len()).unwrap().to_le_bytes());
    buffer.extend(name);
    let rename = set_info::Request { info_type: 1, class: 10, additional: 0, file, buffer };
    assert_eq!(c.ask(Command::SetInfo, &rename.emit()).await.status(), Status::SUCCESS);
    let buffer = vec![1];
    let goes = set_info::Request { info_type: 1, class: 13, additional: 0, file, buffer };
    assert_eq!(c.ask(Command::SetInfo, &goes.emit()).await.status(), Status::SUCCESS);
    drop(c);
    let (world, _) = world.restart().await;
    let c = world.machine(1);
    assert_eq!(opens(&c, "new").await.unwrap_err(), Status::DELETE_PENDING);
    again(&c, "new", file, vec![]).await.unwrap();
    assert_eq!(c.close(file).await, Status::SUCCESS);
    assert_eq!(opens(&c, "new").await.unwrap_err(), Status::OBJECT_NAME_NOT_FOUND);
}

/// Checks for each kind of SET_INFO on a file with many persistent handles how much it writes to the store, in how many requests.
#[tokio::test]
async fn handles_are_written_only_when_changed() {
    const HANDLES: usize = 200;
    let world = World::new();
    let c = world.machine(1);
    let first = plain(&c, "old", 0).await;
    for n in 1..HANDLES {
        let guid = [u8::try_from(n + 20).unwrap(); 16];
        let asks = DurableV2 { timeout: 0, flags: DHANDLE_FLAG_PERSISTENT, guid }.context();
        c.create("old", |r| r.contexts = vec![asks]).await.unwrap();
    }
    let store = world.harness.core.store.as_ref().unwrap();
    let requests = || store.counters().requests.load(Ordering::Relaxed);
    let stored = || store.read(Kind::SmbOpen).unwrap();
    let name = |name: &str| crate::fscc::set::NewName { flags: 0, root: 0, name: name.into() };
    let disposition = |flags| Set::Disposition { flags, ex: true };
    let cases = [
        (Set::Basic(Basic::default()), 0),
        (Set::EndOfFile(1), 0),
        (Set::Allocation(9), 0),
        (Set::Position(5), 0),
        (Set::Mode(0), 0),
        (Set::Link(name("further")), 0),
        (Set::Rename(name("old")), 0),
        (Set::Rename(name("new")), HANDLES),
        (disposition(1), HANDLES),
        (disposition(1), 0),
        (disposition(0), HANDLES),
        (disposition(0), 0),
    ];
    for (set, written) in cases {
        let what = format!("{set:?}");
        let (before, old) = (requests(), stored());
        assert_eq!(super::info::set(&c, first, set).await, Status::SUCCESS, "{what}");
        let changed = stored().iter().zip(&old).filter(|(now, then)| now != then).count();
        assert_eq!(changed, written, "{what}");
        assert_eq!(requests() - before, written.div_ceil(64) as u64, "{what}");
    }
    drop(c);
    let (_world, count) = world.restart().await;
    assert_eq!(count, HANDLES);
}

/// When a tree with many persistent handles ends, their records are deleted together.
#[tokio::test]
async fn records_of_ended_tree_go_at_once() {
    const HANDLES: u8 = 200;
    let world = World::new();
    let c = world.machine(1);
    for n in 0..HANDLES {
        let asks = DurableV2 { timeout: 0, flags: DHANDLE_FLAG_PERSISTENT, guid: [n + 20; 16] };
        c.create("f", |r| r.contexts = vec![asks.context()]).await.unwrap();
    }
    let store = world.harness.core.store.as_ref().unwrap();
    let requests = || store.counters().requests.load(Ordering::Relaxed);
    assert_eq!(store.read(Kind::SmbOpen).unwrap().len(), usize::from(HANDLES));
    let before = requests();
    let ended = c.ask(Command::TreeDisconnect, &crate::wire::simple::BODY).await;
    assert_eq!(ended.status(), Status::SUCCESS);
    assert_eq!((requests() - before, store.read(Kind::SmbOpen).unwrap().len()), (1, 0));
}

#[tokio::test]
async fn a_handle_whose_file_is_gone_is_given_up_alone() {
    let world = World::new();
    let c = world.machine(1);
    plain(&c, "f", 0).await;
    let two = [8; 16];
    let kept = DurableV2 { timeout: 0, flags: DHANDLE_FLAG_PERSISTENT, guid: two }.context();
    c.create("g", |r| r.contexts = vec![kept]).await.unwrap();
    drop(c);
    let cred = vfs::Cred::root();
    vfs::Backend::root(&*world.volume).unlink(Acting::caller(&cred), b"f").await.unwrap();
    let store = world.harness.core.store.clone().unwrap();
    store.commit_blocking(vec![Change::put(Kind::SmbOpen, b"torn", b"\x01half")]).unwrap();
    drop(store);
    let (world, count) = world.restart().await;
    assert_eq!(count, 1);
    let left = world.harness.core.store.as_ref().unwrap().read(Kind::SmbOpen).unwrap();
    assert_eq!(left.len(), 1);
}

/// Persistence is granted only if it is requested, configured and stored (MS-SMB2 section 3.3.5.9.10).
#[tokio::test]
async fn persistence_is_promised_only_where_it_is_kept() {
    let told = |r: create::Response<'static>| Told::parse(&r.contexts).unwrap().durable_v2;
    let world = World::new();
    let old = world.harness.machine(1, 0, Dialect::V210, Transport::Tcp);
    let asked = old.create("a", |r| r.contexts = vec![asks(0)]).await.unwrap();
    assert_eq!(told(asked), None, "dialect 2.1");
    let c = world.machine(1);
    let asked = c.create("d", |r| {
        r.options = create::option::DIRECTORY_FILE;
        r.contexts = vec![asks(0)];
    });
    assert_eq!(told(asked.await.unwrap()), None, "a directory");
    let harness = Harness::new();
    let asked = harness.client().create("a", |r| r.contexts = vec![asks(0)]).await.unwrap();
    assert_eq!(told(asked), None, "no such share");
    let c = harness.client();
    let batch = c.create("b", |r| {
        r.oplock_level = oplock::BATCH;
        r.contexts = vec![DurableV2 { timeout: 0, flags: 2, guid: [3; 16] }.context()];
    });
    assert_eq!(told(batch.await.unwrap()), Some((60_000, 0)), "durable, and no more");
}

/// MS-SMB2 sections 3.3.5.9.13 and 3.3.5.9.15.
#[tokio::test]
async fn an_application_takes_over_from_an_older_self_only() {
    let instance = || {
        let mut data = vec![20, 0, 0, 0];
        data.extend([5; 16]);
        Context::new(name::APP_INSTANCE_ID, data)
    };
    let version = |n: u64| {
        let mut data = vec![24, 0, 0, 0, 0, 0, 0, 0];
        data.extend(1_u64.to_le_bytes());
        data.extend(n.to_le_bytes());
        Context::new(name::APP_INSTANCE_VERSION, data)
    };
    let contexts = vec![instance(), version(2)];
    assert_eq!(Asked::parse(&contexts).unwrap().app_version, Some((1, 2)));
    let world = World::new();
    let first = world.machine(1);
    let open = async |c: Client, n| {
        let contexts = vec![asks(0), instance(), version(n)];
        c.create("disk", |r| (r.contexts, r.share) = (contexts, 0)).await
    };
    let held = open(first, 2).await.unwrap().file;
    let (world, _) = world.restart().await;
    for n in [1, 2] {
        let asked = open(world.machine(2), n).await;
        assert_eq!(asked.unwrap_err(), Status::FILE_FORCED_CLOSED, "version {n}");
    }
    open(world.machine(2), 3).await.unwrap();
    let first = world.machine(1);
    assert_eq!(
        again(&first, "disk", held, vec![]).await.unwrap_err(),
        Status::OBJECT_NAME_NOT_FOUND
    );
}

/// MS-SMB2 section 3.3.5.15.9.
#[tokio::test]
async fn a_resilient_open_waits_without_any_caching() {
    let harness = Harness::new();
    let c = harness.machine(1, 0, Dialect::V210, Transport::Tcp);
    let file = c.create("f", |r| r.share = 0).await.unwrap().file;
    let ask = |c, input: &'static [u8]| {
        let request = ioctl::Request {
            code: code::LMR_REQUEST_RESILIENCY,
            file,
            input,
            input_max: 0,
            output_max: 0,
            flags: IS_FSCTL,
        };
        let c: &Client = c;
        let body = request.emit();
        async move { c.ask(Command::Ioctl, &body).await.status() }
    };
    assert_eq!(ask(&c, &[0; 7]).await, Status::INVALID_PARAMETER, "too short");
    assert_eq!(ask(&c, &[0xff; 8]).await, Status::INVALID_PARAMETER, "too long");
    assert_eq!(ask(&c, &[0x10, 0x27, 0, 0, 0, 0, 0, 0]).await, Status::SUCCESS);
    assert_eq!(lock_as(&c, file, 0, ALONE).await, Status::SUCCESS);
    crate::teardown::end_of_connection(&harness.core, &c.conn).await;
    let other = harness.machine(2, 0, Dialect::V210, Transport::Tcp);
    assert_eq!(opens(&other, "f").await.unwrap_err(), Status::FILE_NOT_AVAILABLE);
    let c = harness.machine(1, 0, Dialect::V210, Transport::Tcp);
    let back = Context::new(name::DURABLE_HANDLE_RECONNECT, file.emit().to_vec());
    let back = c.create("f", |r| r.contexts = vec![back]).await.unwrap();
    assert_eq!(back.file, file);
    assert_eq!(lock_as(&c, file, 0, flag::UNLOCK).await, Status::SUCCESS);
}

/// Clients of another protocol that may still reclaim state.
#[derive(Default)]
pub(super) struct Others {
    in_grace: AtomicBool,
    is_stuck: AtomicBool,
}

impl Recall for Others {
    fn recall(&self, _: &state::Break) {}
    fn revoke(&self, _: &state::Break) {}
    fn release(&self, _: state::ClientId) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
    fn in_grace(&self) -> bool {
        self.in_grace.load(Ordering::Relaxed)
    }
    fn grace_is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed)
    }
}

/// While another client may reclaim state, no conflicting state is granted (RFC 8881 section 8.4.2).
#[tokio::test]
async fn opens_and_locks_wait_for_those_who_reclaim() {
    let world = World::new();
    let others = Arc::new(Others::default());
    assert!(world.harness.core.namespace.arbiter().attach(others.clone(), || 0));
    let c = world.machine(1);
    let file = plain(&c, "f", 0).await;
    others.in_grace.store(true, Ordering::Relaxed);
    let looks = c.create("f", |r| r.access = mask::READ_ATTRIBUTES).await.unwrap();
    assert_eq!(c.close(looks.file).await, Status::SUCCESS);
    c.open("new").await;
    assert_eq!(opens(&c, "f").await.unwrap_err(), Status::PENDING);
    assert_eq!(lock_as(&c, file, 0, ALONE).await, Status::PENDING);
    others.in_grace.store(false, Ordering::Relaxed);
    for _ in 0..2 {
        assert_eq!(c.pushed().await.status(), Status::SUCCESS);
    }
}

/// If completed reclaims cannot be recorded, waiting requests fail instead of waiting for an end that never comes.
#[tokio::test(start_paused = true)]
async fn who_waits_for_those_who_reclaim_is_told_that_it_does_not_end() {
    let world = World::new();
    let others = Arc::new(Others::default());
    assert!(world.harness.core.namespace.arbiter().attach(others.clone(), || 0));
    let c = world.machine(1);
    let file = plain(&c, "f", 0).await;
    others.in_grace.store(true, Ordering::Relaxed);
    assert_eq!(opens(&c, "f").await.unwrap_err(), Status::PENDING);
    assert_eq!(lock_as(&c, file, 0, ALONE).await, Status::PENDING);
    others.is_stuck.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        assert_eq!(c.pushed().await.status(), Status::INSUFFICIENT_RESOURCES);
    }
}

/// A file that became a pipe, and then a link, keeps its handle, before and after a restart (MS-FSA section 2.1.5.10.37).
#[tokio::test]
async fn a_handle_stays_with_what_its_file_became() {
    let mut world = World::new();
    let link = Reparse::Symlink { target: "elsewhere".into(), relative: true };
    let c = world.machine(1);
    let (file, _) = persistent(&c, "f", 0).await;
    drop(c);
    for (at, what) in [Reparse::NfsFifo, link].into_iter().enumerate() {
        let count;
        (world, count) = world.restart().await;
        assert_eq!(count, 1, "before {what:?}");
        let c = world.machine(1);
        again(&c, "f", file, vec![lease(6)]).await.unwrap();
        if at > 0 {
            done(&c, file, code::DELETE_REPARSE_POINT, &owner(&Reparse::NfsFifo)).await;
        }
        done(&c, file, code::SET_REPARSE_POINT, &what.emit()).await;
        drop(c);
        (world, _) = world.restart().await;
        let other = world.machine(2);
        let itself = other.create("f", |r| {
            (r.disposition, r.options) = (Disposition::Open as u32, option::OPEN_REPARSE_POINT);
        });
        assert_eq!(itself.await.unwrap_err(), Status::FILE_NOT_AVAILABLE);
        let c = world.machine(1);
        let back = again(&c, "f", file, vec![lease(7)]).await.unwrap();
        assert_eq!(Told::parse(&back.contexts).unwrap().lease.unwrap().state, RWH);
        assert_eq!(done(&c, file, code::GET_REPARSE_POINT, &[]).await, what.emit());
        assert!(at == 0 || c.close(file).await == Status::SUCCESS);
    }
}

/// A kill before or after a pipe replaces the file leaves the handle on the node that has the name.
#[tokio::test]
async fn a_kill_while_a_file_becomes_another_node_loses_no_handle() {
    for placed in [false, true] {
        let world = World::new();
        let c = world.machine(1);
        let (file, _) = persistent(&c, "f", 0).await;
        let core = &world.harness.core;
        let share = core.namespace.shares()[0].clone();
        let (root, cred) = (world.volume.root(), Cred::root());
        let file_ops = core.namespace.by(Some(core.opens.get(file).unwrap().party.requester()));
        let (old, _) = root.lookup(&cred, b"f").await.unwrap();
        let made = New::Special(Special::Fifo);
        let staged = file_ops.stage(&share, &root, &cred, &old, made).await.unwrap();
        let mut replacement = NodeReplacement::new(core, old.clone(), staged.node.clone()).unwrap();
        replacement.announce().await.unwrap();
        if placed {
            file_ops.put_in_place(&share, staged, &cred, (&root, b"f"), &old).await.unwrap();
        } else {
            staged.give_up().await;
        }
        drop((replacement, c, share, old));
        let (world, count) = world.restart().await;
        assert_eq!(count, 1, "in its place: {placed}");
        let c = world.machine(1);
        let back = again(&c, "f", file, vec![lease(6)]).await.unwrap();
        assert_eq!(Told::parse(&back.contexts).unwrap().lease.unwrap().state, RWH);
        if placed {
            let pipe = Reparse::NfsFifo.emit();
            assert_eq!(done(&c, file, code::GET_REPARSE_POINT, &[]).await, pipe);
        } else {
            put(&c, file, 0, b"a file as before").await;
        }
        assert_eq!(c.close(file).await, Status::SUCCESS);
        assert_eq!(world.harness.core.namespace.arbiter().state().nodes(), 0);
    }
}

/// In the next run the share refers to another folder of the same file system, from which the handle's file is reachable as well.
#[tokio::test]
async fn a_handle_does_not_come_back_when_the_share_has_another_folder() {
    for (next, wanted) in [("share", 1), (".", 0), ("other", 0)] {
        let (state, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for dir in ["share", "other"] {
            std::fs::create_dir(disk.path().join(dir)).unwrap();
        }
        let start = |dir: &str| {
            let volume = LocalBackend::open(LocalConfig::new(disk.path().join(dir))).unwrap();
            Harness::on(volume, Some(Store::open(state.path()).unwrap()))
        };
        let harness = start("share");
        let c = harness.machine(1, 0, Dialect::V311, Transport::Tcp);
        plain(&c, "f", 0).await;
        let core = Arc::downgrade(&harness.core);
        drop((c, harness));
        while core.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
        let harness = start(next);
        assert_eq!(
            crate::restore::restore(&harness.core, Duration::from_secs(60)).await.unwrap(),
            wanted,
            "{next}"
        );
    }
}

/// A volume that cannot locate files for the first few calls, as while the mounts inside a share are not all known.
struct Late {
    volume: Arc<MemBackend>,
    refusals: AtomicUsize,
    /// Its files are those of a mount inside the share.
    is_inner: bool,
}

impl Backend for Late {
    fn is_of_inner_mount(&self, _handle: &Handle) -> bool {
        self.is_inner
    }

    fn root(&self) -> NodeRef {
        self.volume.root()
    }

    fn resolve<'a>(&'a self, handle: &'a Handle) -> BoxFuture<'a, VfsResult<NodeRef>> {
        let less = |n: usize| n.checked_sub(1);
        match self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            Ok(_) => Box::pin(async { Err(VfsError::Delay) }),
            Err(_) => self.volume.resolve(handle),
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.volume.capabilities()
    }

    fn statfs(&self) -> BoxFuture<'_, VfsResult<FsStat>> {
        self.volume.statfs()
    }
}

/// Neither the handle nor the folder of its name is dropped meanwhile; handles that take too long stay in the store.
#[tokio::test]
async fn handles_of_a_late_volume_come_back() {
    for (refusals, limit, wanted) in
        [(3, 60_000, Some(1)), (usize::MAX, 200, None), (0, 60_000, Some(1))]
    {
        let world = World::new();
        plain(&world.machine(1), "f", 0).await;
        let World { folder, volume, harness } = world;
        let core = Arc::downgrade(&harness.core);
        drop(harness);
        while core.strong_count() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let refusals_left = AtomicUsize::new(refusals);
        let late =
            Arc::new(Late { volume: volume.clone(), refusals: refusals_left, is_inner: false });
        let harness = Harness::on(late, Some(Store::open(folder.path()).unwrap()));
        let count = crate::restore::restore(&harness.core, Duration::from_millis(limit)).await;
        match wanted {
            Some(count_wanted) => assert_eq!(count.unwrap(), count_wanted, "{refusals}"),
            None => assert!(matches!(count, Err(NotRestored::Silent(share)) if share == "data")),
        }
        let opens = harness.core.store.as_ref().unwrap().read(Kind::SmbOpen).unwrap();
        assert_eq!(opens.len(), 1, "{refusals}: still recorded");
    }
}

/// A silent mount inside a share does not keep a server from starting; its handles come back when it answers.
#[tokio::test]
async fn handles_of_silent_inner_mount_come_back_later() {
    let world = World::new();
    plain(&world.machine(1), "f", 0).await;
    plain(&world.machine(2), "g", 0).await;
    let World { folder, volume, harness } = world;
    let core = Arc::downgrade(&harness.core);
    drop(harness);
    while core.strong_count() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let late = Arc::new(Late { volume, refusals: AtomicUsize::new(usize::MAX), is_inner: true });
    let harness = Harness::on(late.clone(), Some(Store::open(folder.path()).unwrap()));
    let began = std::time::Instant::now();
    let limit = Duration::from_millis(300);
    assert_eq!(crate::restore::restore(&harness.core, limit).await.unwrap(), 0);
    assert!(began.elapsed() < 2 * limit, "one wait for both");
    assert_eq!(harness.core.opens.count(), 0);
    late.refusals.store(0, Ordering::Relaxed);
    let until = began + Duration::from_secs(30);
    while harness.core.opens.count() < 2 {
        assert!(std::time::Instant::now() < until, "they do not come back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let records = harness.core.store.as_ref().unwrap().read(Kind::SmbOpen).unwrap();
    assert_eq!(records.len(), 2, "still recorded");
}
