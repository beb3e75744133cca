//! LOCK, leases and their acknowledgments, durable contexts: their effects, and the errors that clients can make with each.

use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use rates::{Most, Plan};
use rdma_transport::channel::{RemoteSeg, Transport};

use super::data::{RDMA, writing};
use super::info::{set, to};
use crate::fscc::ea::FullEa;
use crate::fscc::set::Set;
use crate::harness::{Answered, Client, Harness, create_request, doom};
use crate::open::FileId;
use crate::status::Status;
use crate::wire::context::{DurableV2, Lease, LeaseV2, ReconnectV2, Told, lease_flag, name};
use crate::wire::create::{Context, Disposition, oplock, option};
use crate::wire::lock::{Element, Request, flag};
use crate::wire::negotiate::Dialect;
use crate::wire::rdma::Channel;
use crate::wire::{Command, create, oplock_break, write};

pub(super) async fn lock(c: &Client, file: FileId, locks: &[(u64, u64, u32)]) -> Status {
    let element = |l: &(u64, u64, u32)| Element { offset: l.0, length: l.1, flags: l.2 };
    let locks = locks.iter().map(element).collect();
    let request = Request { sequence_number: 0, sequence_index: 0, file, locks };
    c.ask(Command::Lock, &request.emit()).await.status()
}

const NOW: u32 = flag::FAIL_IMMEDIATELY;
pub(super) const ALONE: u32 = flag::EXCLUSIVE | NOW;

/// Valid combinations of elements, and what is undone when one fails (MS-SMB2 section 3.3.5.14).
#[tokio::test]
async fn locks_that_make_no_sense_are_refused_and_leave_what_the_specification_leaves() {
    let harness = Harness::new();
    let c = harness.client();
    let (a, b) = (c.open("f").await, c.open("f").await);
    for flags in [0, flag::SHARED | flag::EXCLUSIVE, 0x20, NOW] {
        assert_eq!(lock(&c, a, &[(0, 1, flags)]).await, Status::INVALID_PARAMETER, "{flags:#x}");
    }
    for flags in [flag::UNLOCK | NOW, flag::UNLOCK | flag::SHARED] {
        assert_eq!(lock(&c, a, &[(0, 1, flags)]).await, Status::INVALID_PARAMETER, "{flags:#x}");
    }
    assert_eq!(lock(&c, a, &[(u64::MAX, 2, ALONE)]).await, Status::INVALID_LOCK_RANGE);
    let may_wait = [(0, 1, ALONE), (4, 1, flag::EXCLUSIVE)];
    assert_eq!(lock(&c, a, &may_wait).await, Status::INVALID_PARAMETER);
    assert_eq!(lock(&c, a, &[(10, 5, ALONE)]).await, Status::SUCCESS);
    let second_fails = [(0, 5, ALONE), (12, 1, ALONE)];
    assert_eq!(lock(&c, b, &second_fails).await, Status::LOCK_NOT_GRANTED);
    assert_eq!(lock(&c, a, &[(0, 5, ALONE)]).await, Status::SUCCESS, "the first was undone");
    assert_eq!(lock(&c, a, &[(10, 4, flag::UNLOCK)]).await, Status::RANGE_NOT_LOCKED);
    assert_eq!(lock(&c, a, &[(10, 5, flag::UNLOCK)]).await, Status::SUCCESS);
    assert_eq!(lock(&c, b, &[(10, 5, ALONE)]).await, Status::SUCCESS);
    let unknown = FileId { persistent: 1, volatile: 1 };
    assert_eq!(lock(&c, unknown, &[(0, 1, ALONE)]).await, Status::FILE_CLOSED);
}

/// A session at its limit for one file does not stop other sessions from opening and locking it.
#[tokio::test]
async fn one_session_does_not_keep_others_out_of_a_file() {
    use crate::limits::{LOCKS_OF_FILE_PER_SESSION_MAX, OPENS_OF_FILE_PER_SESSION_MAX};
    let harness = Harness::new();
    let (greedy, other) = (harness.client(), harness.client());
    let first = greedy.open("f").await;
    for n in 0..LOCKS_OF_FILE_PER_SESSION_MAX as u64 / 128 {
        let some: Vec<_> = (0..128).map(|m| ((n * 128 + m) * 2, 1, ALONE)).collect();
        assert_eq!(lock(&greedy, first, &some).await, Status::SUCCESS);
    }
    let second = greedy.open("f").await;
    let beyond = [(u64::from(u32::MAX), 1, ALONE)];
    for file in [first, second] {
        assert_eq!(lock(&greedy, file, &beyond).await, Status::INSUFFICIENT_RESOURCES);
    }
    let theirs = other.open("f").await;
    assert_eq!(lock(&other, theirs, &beyond).await, Status::SUCCESS);
    assert_eq!(lock(&greedy, first, &[(0, 1, flag::UNLOCK)]).await, Status::SUCCESS);
    assert_eq!(lock(&greedy, second, &[(0, 1, ALONE)]).await, Status::SUCCESS, "one is free");
    assert_eq!(greedy.close(first).await, Status::SUCCESS);
    for _ in 1..OPENS_OF_FILE_PER_SESSION_MAX - 1 {
        greedy.open("f").await;
    }
    greedy.open("f").await;
    other.open("f").await;
    let refused = greedy.create("f", |_| {}).await.map(|r| r.file);
    assert_eq!(refused, Err(Status::TOO_MANY_OPENED_FILES));
    greedy.open("g").await;
    let met = rdma_transport::count::limits_met();
    for limit in ["opens-of-file-by-session", "locks-of-file-by-session"] {
        assert!(met.iter().any(|(l, n)| *l == limit && *n > 0), "{limit}");
    }
}

/// MS-FSA section 2.1.5.8.
#[tokio::test]
async fn a_directory_has_no_bytes_to_lock() {
    let c = Harness::new().client();
    let d = c.create("d", |r| r.options = option::DIRECTORY_FILE).await.unwrap().file;
    let now = flag::EXCLUSIVE | flag::FAIL_IMMEDIATELY;
    assert_eq!(lock(&c, d, &[(0, 1, now)]).await, Status::INVALID_PARAMETER);
    assert_eq!(lock(&c, d, &[(0, 1, flag::UNLOCK)]).await, Status::INVALID_PARAMETER);
}

pub(super) const READ: u32 = 1;
pub(super) const WRITE: u32 = 4;
pub(super) const HANDLE: u32 = 2;

fn lease(key: u8, state: u32) -> Context<'static> {
    let v2 = Some(LeaseV2 { parent: [0; 16], epoch: 7 });
    Lease { key: [key; 16], state, flags: 0, v2 }.context()
}

pub(super) async fn leased(c: &Client, name: &str, key: u8, state: u32) -> Result<FileId, Status> {
    let response = c
        .create(name, |r| {
            r.oplock_level = oplock::LEASE;
            r.contexts = vec![lease(key, state)];
        })
        .await?;
    assert_eq!(response.oplock_level, oplock::LEASE);
    Ok(response.file)
}

pub(super) async fn acknowledge(c: &Client, key: u8, state: u32) -> Status {
    let body = oplock_break::Lease { key: [key; 16], state }.emit();
    c.ask(Command::OplockBreak, &body).await.status()
}

/// MS-SMB2 sections 3.3.5.9.8 and 3.3.5.22.2.
#[tokio::test]
async fn a_lease_is_of_one_file_and_acknowledged_only_while_it_breaks() {
    let harness = Harness::new();
    crate::recall::attach(&harness.core);
    let c = harness.client();
    let first = leased(&c, "f", 1, READ).await.unwrap();
    assert_eq!(leased(&c, "g", 1, READ).await, Err(Status::INVALID_PARAMETER), "another file's");
    assert_eq!(acknowledge(&c, 1, 0).await, Status::UNSUCCESSFUL, "it does not break");
    assert_eq!(acknowledge(&c, 9, 0).await, Status::OBJECT_NAME_NOT_FOUND);
    // Another open empties the file. Losing only READ needs no acknowledgment, so the open does not wait.
    let cuts = Disposition::OverwriteIf as u32;
    let second = c.create("f", |r| r.disposition = cuts).await.unwrap().file;
    let told = c.pushed().await;
    let notice = oplock_break::Response::parse(&told.message).unwrap();
    let oplock_break::Response::LeaseNotice(n) = notice else { panic!("{notice:?}") };
    assert_eq!((n.key, n.from, n.to, n.acknowledge), ([1; 16], READ, 0, false));
    assert_eq!(n.epoch, 9, "granted as 8");
    assert_eq!(acknowledge(&c, 1, 0).await, Status::UNSUCCESSFUL, "nothing was asked");
    assert_eq!(harness.core.leases.count(), 1);
    assert_eq!(c.close(first).await, Status::SUCCESS);
    assert_eq!(harness.core.leases.count(), 0, "a lease goes with its last open");
    assert_eq!(c.close(second).await, Status::SUCCESS);
}

/// The same lease key from two users of one client makes two leases, which conflict with each other (MS-SMB2 section 3.3.5.9.8).
#[tokio::test]
async fn two_users_of_one_client_have_two_leases_of_one_key() {
    let harness = Harness::new();
    crate::recall::attach(&harness.core);
    let (alice, bob) = (harness.user("alice"), harness.user("bob"));
    let all = READ | WRITE | HANDLE;
    let first = leased(&alice, "f", 1, all).await.unwrap();
    assert_eq!(leased(&bob, "f", 1, all).await, Err(Status::PENDING));
    let notice = oplock_break::Response::parse(&alice.pushed().await.message).unwrap();
    let oplock_break::Response::LeaseNotice(n) = notice else { panic!("{notice:?}") };
    assert_eq!((n.key, n.from, n.to), ([1; 16], all, READ | HANDLE));
    assert_eq!(acknowledge(&bob, 1, READ | HANDLE).await, Status::UNSUCCESSFUL, "not bob's");
    assert_eq!(acknowledge(&alice, 1, READ | HANDLE).await, Status::SUCCESS);
    assert_eq!(granted(bob.pushed().await), (READ | HANDLE, 0), "no WRITE beside another lease");
    assert_eq!(harness.core.leases.count(), 2);
    // Bob's write breaks Alice's cache. The notice goes to her connection although both leases have that key.
    let second = bob.create("f", |r| r.disposition = Disposition::Open as u32).await.unwrap().file;
    let written = super::data::write(&bob, second, 0, b"new").await;
    assert_eq!(written, Status::SUCCESS);
    let notice = oplock_break::Response::parse(&alice.pushed().await.message).unwrap();
    let oplock_break::Response::LeaseNotice(n) = notice else { panic!("{notice:?}") };
    assert_eq!((n.key, n.to), ([1; 16], 0));
    assert_eq!(alice.close(first).await, Status::SUCCESS);
    assert_eq!(leased(&alice, "g", 1, READ).await.map(|_| ()), Ok(()), "hers is free again");
}

/// A client holds READ and WRITE on a file that another client is about to open, and opens it again: both opens are pending.
async fn opened_while_it_breaks(c: &Client, other: &Client) {
    let file = leased(c, "f", 1, READ | WRITE).await.unwrap();
    assert_eq!(lock(c, file, &[(0, 1, ALONE)]).await, Status::SUCCESS);
    let opened = other.create("f", |r| r.disposition = Disposition::Open as u32).await;
    assert_eq!(opened.unwrap_err(), Status::PENDING);
    let told = c.pushed().await;
    let notice = oplock_break::Response::parse(&told.message).unwrap();
    let oplock_break::Response::LeaseNotice(n) = notice else { panic!("{notice:?}") };
    assert_eq!((n.from, n.to, n.acknowledge), (READ | WRITE, READ, true));
    assert_eq!(leased(c, "f", 1, READ | WRITE).await, Err(Status::PENDING));
}

/// Returns the lease state and flags in the response to a CREATE.
fn granted(answer: Answered) -> (u32, u32) {
    let answer = answer.ok().unwrap();
    let response = create::Response::parse(&answer.message).unwrap();
    let lease = Told::parse(&response.contexts).unwrap().lease.unwrap();
    (lease.state, lease.flags)
}

/// Linux drops locks that it kept locally if an open is answered before it has sent them.
#[tokio::test]
async fn an_open_under_a_lease_that_loses_write_waits_for_its_acknowledgement() {
    let harness = Harness::new();
    crate::recall::attach(&harness.core);
    let (c, other) = (harness.client(), harness.client());
    opened_while_it_breaks(&c, &other).await;
    assert_eq!(acknowledge(&c, 1, READ).await, Status::SUCCESS);
    // Its first open has sent a LOCK.
    assert_eq!(granted(c.pushed().await), (READ, 0));
    assert_eq!(other.pushed().await.status(), Status::SUCCESS);
}

/// A new open may upgrade a lease to WRITE, but not while a LOCK may be in progress.
#[tokio::test]
async fn a_lease_is_not_widened_to_write_beside_an_open_that_locks() {
    let harness = Harness::new();
    crate::recall::attach(&harness.core);
    let c = harness.client();
    let widened = async |key, name| {
        let answer = c
            .create(name, |r| {
                r.oplock_level = oplock::LEASE;
                r.contexts = vec![lease(key, READ | WRITE)];
            })
            .await
            .unwrap();
        Told::parse(&answer.contexts).unwrap().lease.unwrap().state
    };
    let quiet = leased(&c, "f", 1, READ).await.unwrap();
    assert_eq!(widened(1, "f").await, READ | WRITE);
    assert_eq!(c.close(quiet).await, Status::SUCCESS);
    let locks = leased(&c, "g", 2, READ).await.unwrap();
    assert_eq!(lock(&c, locks, &[(0, 1, ALONE)]).await, Status::SUCCESS);
    assert_eq!(lock(&c, locks, &[(0, 1, flag::UNLOCK)]).await, Status::SUCCESS);
    assert_eq!(widened(2, "g").await, READ);
    assert_eq!(c.close(locks).await, Status::SUCCESS);
    assert_eq!(widened(2, "g").await, READ | WRITE, "the one that locked has gone");
}

/// An open does not require its own acknowledgment: it is answered with the break in progress (MS-SMB2 section 3.3.5.9.8).
#[tokio::test(start_paused = true)]
async fn an_open_waits_for_no_client_that_does_nothing() {
    let harness = Harness::new();
    crate::recall::attach(&harness.core);
    let (c, other) = (harness.client(), harness.client());
    opened_while_it_breaks(&c, &other).await;
    assert_eq!(granted(c.pushed().await), (READ | WRITE, lease_flag::BREAK_IN_PROGRESS));
    assert_eq!(acknowledge(&c, 1, READ).await, Status::SUCCESS);
    assert_eq!(other.pushed().await.status(), Status::SUCCESS);
}

async fn folder(c: &Client, name: &str, how: Disposition) -> FileId {
    let made =
        c.create(name, |r| (r.options, r.disposition) = (option::DIRECTORY_FILE, how as u32));
    made.await.unwrap().file
}

/// Returns the key of the lease whose HANDLE caching is broken.
async fn asked_for_handles(c: &Client) -> u8 {
    let notice = oplock_break::Response::parse(&c.pushed().await.message).unwrap();
    let oplock_break::Response::LeaseNotice(n) = notice else { panic!("{notice:?}") };
    assert_eq!((n.from, n.to, n.acknowledge), (READ | HANDLE, READ, true));
    n.key[0]
}

/// Runs a rename that must wait, together with the actions of the lease holders.
async fn renaming(
    other: &Client,
    (file, name): (FileId, &str),
    holders: impl Future<Output = ()>,
) -> Status {
    let (renamed, ()) = tokio::join!(set(other, file, Set::Rename(to(name, 0))), holders);
    renamed
}

/// Cached handles below a directory are closed before it is renamed (MS-SMB2 section 3.3.1.4).
#[tokio::test]
async fn a_directory_is_renamed_when_those_below_have_given_their_handles_back() {
    let harness = Harness::new();
    crate::recall::attach(&harness.core);
    let (c, other) = (harness.client(), harness.client());
    c.close(folder(&c, "d", Disposition::Create).await).await;
    let f = leased(&c, "d\\f", 1, READ | HANDLE).await.unwrap();
    let g = leased(&c, "d\\g", 2, READ | HANDLE).await.unwrap();
    let dir = folder(&other, "d", Disposition::Open).await;
    let renamed = renaming(&other, (dir, "e"), async {
        let mut keys = [asked_for_handles(&c).await, asked_for_handles(&c).await];
        keys.sort_unstable();
        assert_eq!(keys, [1, 2], "both at once");
        assert_eq!(c.close(f).await, Status::SUCCESS);
        assert_eq!(acknowledge(&c, 2, READ).await, Status::SUCCESS);
    });
    assert_eq!(renamed.await, Status::ACCESS_DENIED, "one is needed");
    assert_eq!(c.close(g).await, Status::SUCCESS);
    let f = leased(&c, "d\\f", 1, READ | HANDLE).await.unwrap();
    let renamed = renaming(&other, (dir, "e"), async {
        assert_eq!(asked_for_handles(&c).await, 1);
        assert_eq!(c.close(f).await, Status::SUCCESS);
    });
    assert_eq!(renamed.await, Status::SUCCESS);
    assert!(leased(&c, "e\\f", 1, READ).await.is_ok());
}

/// The same for a cached handle that conflicts with names moving into its directory.
#[tokio::test]
async fn a_cached_handle_of_the_directory_that_a_name_moves_to_is_given_back_first() {
    let harness = Harness::new();
    crate::recall::attach(&harness.core);
    let (c, other) = (harness.client(), harness.client());
    c.close(folder(&c, "d", Disposition::Create).await).await;
    let dir = leased(&c, "d", 1, READ | HANDLE).await.unwrap();
    let f = other.open("f").await;
    let renamed = renaming(&other, (f, "d\\f"), async {
        assert_eq!(asked_for_handles(&c).await, 1);
        assert_eq!(acknowledge(&c, 1, READ).await, Status::SUCCESS);
    });
    assert_eq!(renamed.await, Status::SHARING_VIOLATION, "it may delete");
    assert_eq!(c.close(dir).await, Status::SUCCESS);
    let dir = leased(&c, "d", 1, READ | HANDLE).await.unwrap();
    let renamed = renaming(&other, (f, "d\\f"), async {
        assert_eq!(asked_for_handles(&c).await, 1);
        assert_eq!(c.close(dir).await, Status::SUCCESS);
    });
    assert_eq!(renamed.await, Status::SUCCESS);
}

fn of_file(key: u8, parent: Option<u8>) -> Context<'static> {
    let flags = parent.map_or(0, |_| lease_flag::PARENT_LEASE_KEY_SET);
    let v2 = Some(LeaseV2 { parent: [parent.unwrap_or(0); 16], epoch: 1 });
    Lease { key: [key; 16], state: READ, flags, v2 }.context()
}

/// Changes a file through a handle that names this key as its parent directory's lease. Returns the keys of the directory leases
/// that were notified.
async fn told_of(parent: Option<u8>, change: impl AsyncFn(&Client, FileId)) -> Vec<u8> {
    let harness = Harness::new();
    crate::recall::attach(&harness.core);
    let (holder, other) = (harness.client(), harness.machine(1, 0, Dialect::V311, RDMA));
    for name in ["d", "e"] {
        holder.close(folder(&holder, name, Disposition::Create).await).await;
    }
    holder.close(holder.open("d\\f").await).await;
    // Opening the file before the leases exist must not matter.
    let file = other
        .create("d\\f", |r| {
            r.oplock_level = oplock::LEASE;
            r.contexts = vec![of_file(9, parent)];
        })
        .await
        .unwrap()
        .file;
    for (name, key) in [("d", 1), ("e", 2)] {
        let opened = holder.create(name, |r| {
            // An access that does not conflict with adding and removing names.
            r.access = crate::dtyp::mask::READ_DATA;
            r.oplock_level = oplock::LEASE;
            r.contexts = vec![lease(key, READ | HANDLE)];
        });
        assert_eq!(opened.await.unwrap().oplock_level, oplock::LEASE);
    }
    // Notices go to the client's oldest connection, which is the holder's.
    let mut keys = Vec::new();
    let done = async {
        change(&other, file).await;
        // A response follows the notices that its command caused; closing this open causes the last notice.
        let last = holder.create("e\\last", |r| r.contexts = Vec::new()).await;
        assert!(last.is_ok());
    };
    let heard = async {
        loop {
            let notice = oplock_break::Response::parse(&holder.pushed().await.message).unwrap();
            let oplock_break::Response::LeaseNotice(n) = notice else { continue };
            keys.push(n.key[0]);
            if n.key[0] == 2 {
                return;
            }
        }
    };
    tokio::join!(done, heard);
    keys
}

/// Size, attributes and times of a file are part of its directory's listing (MS-FSA sections 2.1.4.17 and 2.1.5.15, MS-SMB2 section
/// 3.3.4.20). The holder of the lease that the open named is not notified.
#[tokio::test]
async fn whoever_caches_a_directory_learns_what_is_set_on_a_file_in_it() {
    use crate::dtyp::FileTime;
    use crate::fscc::file::Basic;
    let basic = |b: Basic| {
        async move |c: &Client, file: FileId| {
            assert_eq!(set(c, file, Set::Basic(b)).await, Status::SUCCESS);
        }
    };
    let time = FileTime(133_000_000_000_000_000);
    let none = Basic::default();
    for (parent, want) in [(None, &[1, 2][..]), (Some(7), &[1, 2]), (Some(1), &[2])] {
        for b in [
            Basic { creation: time, ..none },
            Basic { last_access: time, ..none },
            Basic { last_write: time, ..none },
            Basic { change: time, ..none },
            Basic { attributes: 2, ..none },
        ] {
            assert_eq!(told_of(parent, basic(b)).await, want, "{parent:?} {b:?}");
        }
        for size in [Set::EndOfFile(9), Set::EndOfFile(0), Set::Allocation(0)] {
            let change = async |c: &Client, file: FileId| {
                super::ioctl::put(c, file, 0, b"data").await;
                assert_eq!(set(c, file, size.clone()).await, Status::SUCCESS);
            };
            let told = told_of(parent, change).await;
            assert_eq!(told, want, "{parent:?} {size:?}");
        }
        // Extended attributes do not count (section 2.1.5.15.5).
        let ea = FullEa { flags: 0, name: b"A".to_vec(), value: b"1".to_vec() };
        let with_ea = told_of(parent, async |c, file| {
            assert_eq!(set(c, file, Set::FullEa(ea.emit())).await, Status::SUCCESS);
        });
        assert_eq!(with_ea.await, [2], "{parent:?} extended attribute");
        let renamed = told_of(parent, async |c, file| {
            assert_eq!(set(c, file, Set::Rename(to("d\\g", 0))).await, Status::SUCCESS);
        });
        assert_eq!(renamed.await, want, "{parent:?} rename");
        let removed = told_of(parent, async |c, file| {
            let flags = 1;
            let set = set(c, file, Set::Disposition { flags, ex: false }).await;
            assert_eq!(set, Status::SUCCESS);
            assert_eq!(c.close(file).await, Status::SUCCESS);
        });
        assert_eq!(removed.await, want, "{parent:?} removal");
    }
}

fn leasing(name: &str, key: u8, state: u32) -> create::Request<'static> {
    create_request(name, |r| {
        r.oplock_level = oplock::LEASE;
        r.contexts = vec![lease(key, state)];
    })
}

/// A client would mistake the break of a right that it does not know yet for the break of another right (MS-SMB2 section 3.3.4.7).
#[tokio::test(start_paused = true)]
async fn a_notice_waits_until_the_answer_that_told_of_the_right_has_left() {
    let harness = Harness::new();
    crate::recall::attach(&harness.core);
    let (c, other) = (harness.client(), harness.machine(2, 0, Dialect::V311, RDMA));
    let created = c.reply(Command::Create, &leasing("f", 1, READ | WRITE).emit(), &[]).await;
    assert_eq!(Answered::of(created.clone()).status(), Status::SUCCESS);
    assert_eq!(other.create("f", |_| {}).await.unwrap_err(), Status::PENDING);
    let early = tokio::time::timeout(Duration::from_millis(900), c.pushed()).await;
    assert!(early.is_err(), "the answer has not left");
    let began = tokio::time::Instant::now();
    drop(created);
    assert_eq!(c.pushed().await.header.command(), Some(Command::OplockBreak));
    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// A peer that reads no responses delays others only briefly, and is counted.
#[tokio::test(start_paused = true)]
async fn a_notice_does_not_wait_for_ever_for_an_answer_to_leave() {
    let harness = Harness::new();
    crate::recall::attach(&harness.core);
    let (c, other) = (harness.client(), harness.machine(2, 0, Dialect::V311, RDMA));
    let met = || {
        let limits = rdma_transport::count::limits_met();
        limits.iter().find(|(limit, _)| *limit == "notice-behind-answer").map_or(0, |(_, n)| *n)
    };
    let before = met();
    let _stuck = c.reply(Command::Create, &leasing("f", 1, READ | WRITE).emit(), &[]).await;
    let began = tokio::time::Instant::now();
    assert_eq!(other.create("f", |_| {}).await.unwrap_err(), Status::PENDING);
    assert_eq!(c.pushed().await.header.command(), Some(Command::OplockBreak));
    assert_eq!(began.elapsed(), Duration::from_secs(1));
    assert!(met() > before);
}

/// For a break in two steps: a client that receives the second step before the response to the first acknowledgment would
/// acknowledge the wrong one.
#[tokio::test(start_paused = true)]
async fn the_next_step_of_a_break_waits_until_the_acknowledgement_is_answered() {
    let harness = Harness::new();
    crate::recall::attach(&harness.core);
    let (c, other) = (harness.client(), harness.machine(2, 0, Dialect::V311, RDMA));
    leased(&c, "f", 1, READ | WRITE | HANDLE).await.unwrap();
    assert_eq!(other.create("f", |_| {}).await.unwrap_err(), Status::PENDING);
    let cuts = |r: &mut create::Request<'_>| r.disposition = Disposition::Overwrite as u32;
    assert_eq!(other.create("f", cuts).await.unwrap_err(), Status::PENDING);
    let told = |answered: Answered| match oplock_break::Response::parse(&answered.message) {
        Ok(oplock_break::Response::LeaseNotice(n)) => (n.from, n.to),
        other => panic!("{other:?}"),
    };
    assert_eq!(told(c.pushed().await), (READ | WRITE | HANDLE, READ | HANDLE));
    let body = oplock_break::Lease { key: [1; 16], state: READ | HANDLE }.emit();
    let acknowledged = c.reply(Command::OplockBreak, &body, &[]).await;
    assert_eq!(Answered::of(acknowledged.clone()).status(), Status::SUCCESS);
    let early = tokio::time::timeout(Duration::from_millis(900), c.pushed()).await;
    assert!(early.is_err(), "the answer has not left");
    let began = tokio::time::Instant::now();
    drop(acknowledged);
    assert_eq!(told(c.pushed().await), (READ | HANDLE, READ));
    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// The acknowledgement waits for the writes of its client, and other clients wait for it.
#[tokio::test(start_paused = true)]
async fn writes_under_a_lease_that_breaks_wait_for_no_rate() {
    let harness = Harness::new();
    crate::recall::attach(&harness.core);
    let (c, other) = (harness.client(), harness.machine(2, 0, Dialect::V311, RDMA));
    let file = leased(&c, "f", 1, READ | WRITE).await.unwrap();
    let limits = &harness.core.namespace.limits;
    let mut plan = Plan::default();
    plan.all.write = Some(1);
    limits.set(plan, Most::of_memory(1 << 30));
    assert_eq!(super::data::write(&c, file, 0, b"0123456789").await, Status::SUCCESS);
    let began = tokio::time::Instant::now();
    let breaks = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(limits.counts().0, 1, "the second write waits");
        assert_eq!(other.create("f", |_| {}).await.unwrap_err(), Status::PENDING);
        assert_eq!(told(&c, 1).await, [(1, READ)]);
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(limits.counts().0, 0, "the write passes when the break begins");
        assert_eq!(super::data::write(&c, file, 3, b"more").await, Status::SUCCESS);
        assert_eq!(acknowledge(&c, 1, READ).await, Status::SUCCESS);
        assert_eq!(other.pushed().await.status(), Status::SUCCESS);
    };
    let (written, ()) = tokio::join!(super::data::write(&c, file, 0, b"new"), breaks);
    assert_eq!(written, Status::SUCCESS);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(limits.read()[0].passed, 17, "they count");
    let later = tokio::time::timeout(Duration::from_secs(1), super::data::write(&c, file, 0, b"x"));
    assert!(later.await.is_err(), "the break is over");
}

/// Collects the notices that this client has received: each key with the remaining caching.
async fn told(c: &Client, count: usize) -> Vec<(u8, u32)> {
    let mut all = Vec::new();
    while all.len() < count {
        let notice = oplock_break::Response::parse(&c.pushed().await.message).unwrap();
        let oplock_break::Response::LeaseNotice(n) = notice else { panic!("{notice:?}") };
        all.push((n.key[0], n.to));
    }
    all.sort_unstable();
    all
}

/// Opens directories, each with a lease that only a change of the listing breaks.
pub(super) async fn cached_folders(c: &Client, names: &[(&str, u8)]) {
    for (name, key) in names {
        let opened = c.create(name, |r| {
            r.access = crate::dtyp::mask::READ_DATA;
            r.oplock_level = oplock::LEASE;
            r.contexts = vec![lease(*key, READ | HANDLE)];
        });
        assert_eq!(opened.await.unwrap().oplock_level, oplock::LEASE);
    }
}

fn how(disposition: Disposition) -> impl Fn(&mut create::Request<'static>) {
    move |r| r.disposition = disposition as u32
}

/// Opens a file under the lease `key` with this parent.
async fn with_parent(
    c: &Client,
    name: &str,
    (key, parent): (u8, Option<u8>),
    set: impl Fn(&mut create::Request<'static>),
) -> FileId {
    let made = c.create(name, |r| {
        set(r);
        r.oplock_level = oplock::LEASE;
        r.contexts = vec![of_file(key, parent)];
    });
    made.await.unwrap().file
}

/// The lease with the key 7 is broken, acknowledged and granted again.
async fn told_and_again(c: &Client) {
    assert_eq!(told(c, 1).await, [(7, 0)]);
    assert_eq!(acknowledge(c, 7, 0).await, Status::SUCCESS);
    cached_folders(c, &[("d", 7)]).await;
}

/// A CREATE that creates or overwrites a file changes the listing for all but the holder of the lease that it names as its parent,
/// which may be another client's lease: section 2.1.4.12.2 compares keys (MS-FSA section 2.1.5.1).
#[tokio::test]
async fn a_create_spares_the_lease_of_the_directory_that_it_names() {
    let harness = Harness::new();
    crate::recall::attach(&harness.core);
    let (holder, own) = (harness.client(), harness.machine(2, 0, Dialect::V311, RDMA));
    let stranger = harness.machine(3, 0, Dialect::V311, RDMA);
    own.close(folder(&own, "d", Disposition::Create).await).await;
    cached_folders(&own, &[("d", 1)]).await;
    cached_folders(&holder, &[("d", 7)]).await;
    for (n, c) in [&own, &stranger].into_iter().enumerate() {
        let name = format!("d\\f{n}");
        let file = with_parent(c, &name, (9, Some(1)), how(Disposition::Create)).await;
        told_and_again(&holder).await;
        assert_eq!(c.close(file).await, Status::SUCCESS);
        let file = with_parent(c, &name, (9, Some(1)), how(Disposition::Overwrite)).await;
        told_and_again(&holder).await;
        assert_eq!(c.close(file).await, Status::SUCCESS);
    }
    // No notice was pending for the holder of the named lease: this is its first.
    with_parent(&stranger, "d\\g", (8, Some(2)), how(Disposition::Create)).await;
    assert_eq!(told(&own, 1).await, [(1, 0)]);
}

/// A removal marked by one open and completed by the close of another counts for both: only a lease that both name is spared.
#[tokio::test]
async fn a_removal_spares_the_lease_that_all_who_caused_it_name() {
    for (parents, want) in [((1, 1), &[(2, 0)][..]), ((1, 2), &[(1, 0), (2, 0)])] {
        let harness = Harness::new();
        crate::recall::attach(&harness.core);
        let c = harness.client();
        c.close(folder(&c, "d", Disposition::Create).await).await;
        c.close(c.open("d\\f").await).await;
        let marks = with_parent(&c, "d\\f", (8, Some(parents.0)), doom).await;
        let last = with_parent(&c, "d\\f", (9, Some(parents.1)), how(Disposition::Open)).await;
        cached_folders(&c, &[("d", 1), ("d", 2)]).await;
        assert_eq!(c.close(marks).await, Status::SUCCESS);
        assert_eq!(c.close(last).await, Status::SUCCESS);
        assert_eq!(told(&c, want.len()).await, want);
    }
}

/// Closing a delete-on-close handle in any way marks its file for deletion (MS-FSA section 2.1.5.15.3).
#[tokio::test]
async fn cached_handles_of_a_file_are_given_back_when_a_close_marks_it() {
    let harness = Harness::new();
    crate::recall::attach(&harness.core);
    let (c, other) = (harness.client(), harness.machine(2, 0, Dialect::V311, RDMA));
    c.close(c.open("f").await).await;
    leased(&c, "f", 1, READ | HANDLE).await.unwrap();
    other.create("f", doom).await.unwrap();
    assert_eq!(
        other.ask(Command::TreeDisconnect, &crate::wire::simple::BODY).await.status(),
        Status::SUCCESS
    );
    assert_eq!(asked_for_handles(&c).await, 1);
}

/// Linux keeps listing a directory from its cache until the notice arrives, even after its own change. Before dialect 3.1.1 the
/// server cannot recognize Linux.
#[tokio::test(start_paused = true)]
async fn an_answer_goes_behind_the_notice_that_its_command_has_caused() {
    for is_old in [false, true] {
        let harness = Harness::new();
        crate::recall::attach(&harness.core);
        let c = match is_old {
            true => harness.client_by(0, Dialect::V302, Transport::Tcp),
            false => harness.posix_client(),
        };
        c.close(folder(&c, "d", Disposition::Create).await).await;
        let dir = leased(&c, "d", 1, READ | HANDLE).await.unwrap();
        let made = c.create("d\\f", |_| {});
        tokio::pin!(made);
        let early = tokio::time::timeout(Duration::from_millis(20), &mut made).await;
        assert!(early.is_err(), "nobody has taken the notice");
        let notice = oplock_break::Response::parse(&c.pushed().await.message).unwrap();
        let oplock_break::Response::LeaseNotice(n) = notice else { panic!("{notice:?}") };
        assert_eq!((n.key, n.from, n.to), ([1; 16], READ | HANDLE, 0));
        assert!(made.await.is_ok());
        assert_eq!(c.close(dir).await, Status::SUCCESS);
    }
}

/// A client flushes and acknowledges at the same time: the client that waited must find the flushed data.
#[tokio::test]
async fn an_acknowledgement_does_not_overtake_a_write() {
    let harness = Harness::new();
    crate::recall::attach(&harness.core);
    let (c, other) = (harness.client_by(0, Dialect::V311, RDMA), harness.client());
    let file = leased(&c, "f", 1, READ | WRITE).await.unwrap();
    let descriptors = vec![RemoteSeg { handle: 7, len: 5, offset: 0 }];
    let write = write::Request {
        channel: Some(Channel::RdmaV1),
        descriptors,
        remaining: 5,
        data_offset: 0,
        ..writing(file, 0, 0)
    };
    let write = write.emit();
    let reader = async {
        let opened = other.create("f", |r| r.disposition = Disposition::Open as u32).await;
        assert_eq!(opened.unwrap_err(), Status::PENDING);
        let opened = other.pushed().await.ok().unwrap();
        let opened = create::Response::parse(&opened.message).unwrap();
        assert_eq!(opened.basics.end_of_file, 5, "what was flushed");
    };
    let flush = async {
        assert_eq!(c.ask(Command::Write, &write).await.status(), Status::SUCCESS);
    };
    let holder = async {
        let oplock_break::Response::LeaseNotice(n) =
            oplock_break::Response::parse(&c.pushed().await.message).unwrap()
        else {
            panic!("a notice of a lease")
        };
        assert!(n.acknowledge);
        let mut flush = std::pin::pin!(flush);
        let mut acknowledged = std::pin::pin!(acknowledge(&c, 1, READ));
        // The write waits for its data, and the acknowledgment for the write, however often both are polled.
        for _ in 0..100 {
            let early = std::future::poll_fn(|task| {
                let written = flush.as_mut().poll(task).is_ready();
                Poll::Ready(written || acknowledged.as_mut().poll(task).is_ready())
            });
            assert!(!early.await, "the acknowledgement has overtaken the write");
            tokio::task::yield_now().await;
        }
        let fetched = c.pull_gets(b"later");
        let ((), acknowledged, _) = tokio::join!(flush, acknowledged, fetched);
        assert_eq!(acknowledged, Status::SUCCESS);
    };
    tokio::join!(reader, holder);
}

/// An invalid level ends the oplock, and waiting requests continue (MS-SMB2 section 3.3.5.22.1).
#[tokio::test]
async fn an_acknowledgement_that_makes_no_sense_ends_the_oplock() {
    for (had, level, want) in [
        (oplock::BATCH, oplock::II, Ok(oplock::II)),
        (oplock::BATCH, oplock::NONE, Ok(oplock::NONE)),
        (oplock::BATCH, oplock::EXCLUSIVE, Ok(oplock::NONE)),
        (oplock::EXCLUSIVE, oplock::EXCLUSIVE, Err(Status::INVALID_OPLOCK_PROTOCOL)),
        (oplock::BATCH, oplock::BATCH, Err(Status::INVALID_OPLOCK_PROTOCOL)),
        (oplock::BATCH, oplock::LEASE, Err(Status::INVALID_PARAMETER)),
    ] {
        let harness = Harness::new();
        let (a, b) = (harness.client(), harness.machine(2, 0, Dialect::V311, RDMA));
        let file = a.create("f", |r| r.oplock_level = had).await.unwrap().file;
        let ack = oplock_break::Request::Oplock(oplock_break::Oplock { file, level }).emit();
        let holder = async {
            a.pushed().await;
            let answer = a.ask(Command::OplockBreak, &ack).await;
            answer.ok().map(|a| match oplock_break::Response::parse(&a.message).unwrap() {
                oplock_break::Response::Oplock(o) => o.level,
                other => panic!("{other:?}"),
            })
        };
        let other = async {
            let opened = b.create("f", |r| r.disposition = Disposition::Open as u32).await;
            assert_eq!(opened.unwrap_err(), Status::PENDING);
            b.pushed().await.status()
        };
        let (told, opened) = tokio::join!(holder, other);
        assert_eq!(told, want, "{had} {level}");
        assert_eq!(opened, Status::SUCCESS, "{had} {level}");
        let again = a.ask(Command::OplockBreak, &ack).await.status();
        assert_eq!(again, Status::INVALID_OPLOCK_PROTOCOL, "nothing breaks any more");
    }
}

/// MS-SMB2 sections 3.3.5.9.7, 3.3.5.9.10 and 3.3.5.9.12.
#[tokio::test]
async fn durable_contexts_exclude_each_other_and_name_what_is_there() {
    let harness = Harness::new();
    let c = harness.client();
    let new = DurableV2 { timeout: 0, flags: 0, guid: [5; 16] };
    let again =
        ReconnectV2 { file: FileId { persistent: 3, volatile: 4 }, guid: [5; 16], flags: 0 };
    let with = |contexts: Vec<Context<'static>>| {
        c.create("f", move |r| {
            r.oplock_level = oplock::BATCH;
            r.contexts = contexts;
        })
    };
    let both = with(vec![new.context(), again.context()]).await;
    assert_eq!(both.map(|r| r.file), Err(Status::INVALID_PARAMETER));
    let nobody = with(vec![again.context()]).await;
    assert_eq!(nobody.map(|r| r.file), Err(Status::OBJECT_NAME_NOT_FOUND));
    assert!(with(vec![new.context()]).await.is_ok());
    let same_name = with(vec![new.context()]).await;
    assert_eq!(same_name.map(|r| r.file), Err(Status::DUPLICATE_OBJECTID));
}

/// The response to a create was lost along with the connection and the session (MS-SMB2 section 3.3.5.9.10).
#[tokio::test]
async fn a_create_that_is_sent_again_by_a_new_session_finds_its_durable_open() {
    let harness = Harness::new();
    let asks = |r: &mut create::Request<'static>| {
        r.oplock_level = oplock::BATCH;
        r.contexts = vec![DurableV2 { timeout: 0, flags: 0, guid: [5; 16] }.context()];
    };
    let first = harness.client();
    let lost = first.create("f", asks).await.unwrap().file;
    let second = harness.client();
    second.replays.store(true, Ordering::Relaxed);
    let early = second.create("f", asks).await;
    assert_eq!(early.map(|r| r.file), Err(Status::DUPLICATE_OBJECTID), "the first session has it");
    crate::teardown::end_of_connection(&harness.core, &first.conn).await;
    let again = second.create("f", asks).await.unwrap();
    assert_eq!((again.file, again.action), (lost, create::action::CREATED));
    assert_eq!(second.close(lost).await, Status::SUCCESS);
}

/// A delete-on-close durable open waits for its client like any other, and deletes the file if the client does not return.
#[tokio::test(start_paused = true)]
async fn a_durable_open_that_is_deleted_on_close_waits_for_its_client() {
    for comes_back in [true, false] {
        let harness = Harness::new();
        let durable = DurableV2 { timeout: 9_000, flags: 0, guid: [5; 16] };
        let first = harness.client();
        let asked = first.create("f", |r| {
            doom(r);
            r.oplock_level = oplock::BATCH;
            r.contexts = vec![durable.context()];
        });
        let file = asked.await.unwrap().file;
        crate::teardown::end_of_connection(&harness.core, &first.conn).await;
        let second = harness.client();
        if comes_back {
            let again = ReconnectV2 { file, guid: [5; 16], flags: 0 };
            let back = second.create("f", |r| {
                r.oplock_level = oplock::BATCH;
                r.contexts = vec![again.context()];
            });
            assert_eq!(back.await.unwrap().action, create::action::OPENED);
            let back = FileId { persistent: file.persistent, ..file };
            assert_eq!(second.close(back).await, Status::SUCCESS);
        } else {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        let gone = second.create("f", how(Disposition::Open)).await;
        assert_eq!(gone.map(|r| r.file), Err(Status::OBJECT_NAME_NOT_FOUND), "{comes_back}");
    }
}

/// Another client that opens the file finds it missing: the durable open ends, and its file is deleted.
#[tokio::test]
async fn a_durable_open_that_is_deleted_on_close_gives_way_to_whoever_opens_its_file() {
    let harness = Harness::new();
    crate::recall::attach(&harness.core);
    // In the server's first millisecond no time is in the past yet.
    tokio::time::sleep(Duration::from_millis(3)).await;
    let first = harness.client();
    let asked = first.create("f", |r| {
        doom(r);
        r.share = 0;
        r.oplock_level = oplock::BATCH;
        r.contexts = vec![DurableV2 { timeout: 0, flags: 0, guid: [5; 16] }.context()];
    });
    asked.await.unwrap();
    crate::teardown::end_of_connection(&harness.core, &first.conn).await;
    let other = harness.machine(2, 0, Dialect::V311, RDMA);
    assert_eq!(other.create("f", |_| {}).await.unwrap().action, create::action::CREATED);
}

/// Locks cannot be broken: a disconnected open with a lock stays only if its caching already excludes other clients.
#[tokio::test]
async fn a_durable_open_with_locks_is_kept_with_write_caching_alone() {
    for (state, want) in
        [(READ | HANDLE, Err(Status::OBJECT_NAME_NOT_FOUND)), (READ | HANDLE | WRITE, Ok(()))]
    {
        let harness = Harness::new();
        let first = harness.client();
        let asked = first.create("f", |r| {
            r.oplock_level = oplock::LEASE;
            let durable = DurableV2 { timeout: 0, flags: 0, guid: [5; 16] };
            r.contexts = vec![lease(1, state), durable.context()];
        });
        let file = asked.await.unwrap().file;
        assert_eq!(lock(&first, file, &[(0, 1, ALONE)]).await, Status::SUCCESS);
        crate::teardown::end_of_connection(&harness.core, &first.conn).await;
        let again = ReconnectV2 { file, guid: [5; 16], flags: 0 };
        let second = harness.client();
        let back = second.create("f", |r| {
            r.oplock_level = oplock::LEASE;
            r.contexts = vec![lease(1, state), again.context()];
        });
        assert_eq!(back.await.map(|_| ()), want, "{state}");
    }
}

async fn open(c: &Client, name: &str, with: Vec<Context<'static>>) -> Result<FileId, Status> {
    c.create(name, |r| r.contexts = with).await.map(|r| r.file)
}

/// MS-SMB2 section 3.3.5.9.13.
#[tokio::test]
async fn an_application_takes_over_its_own_file_and_no_other() {
    let harness = Harness::new();
    let (a, b) = (harness.client(), harness.machine(2, 0, Dialect::V311, RDMA));
    let instance = || Context::new(name::APP_INSTANCE_ID, [&[20, 0, 0, 0][..], &[7; 16]].concat());
    let version = |high: u64| {
        let words = [24_u64, high, 0].map(u64::to_le_bytes).concat();
        Context::new(name::APP_INSTANCE_VERSION, words)
    };
    b.open("g").await;
    let first = open(&a, "f", vec![instance(), version(2)]).await.unwrap();
    open(&b, "g", vec![instance(), version(9)]).await.unwrap();
    open(&b, "nowhere\\f", vec![instance(), version(9)]).await.unwrap_err();
    for too_old in [vec![instance()], vec![instance(), version(2)]] {
        let refused = open(&b, "f", too_old).await;
        assert_eq!(refused, Err(Status::FILE_FORCED_CLOSED));
    }
    assert_eq!(lock(&a, first, &[(0, 1, ALONE)]).await, Status::SUCCESS, "it is open");
    open(&b, "f", vec![instance(), version(3)]).await.unwrap();
    assert_eq!(a.close(first).await, Status::FILE_CLOSED);
    // A user without read access cannot take over another user's open.
    let secret = open(&a, "h", vec![instance()]).await.unwrap();
    let file_ops = harness.core.namespace.shares()[0].backend.root();
    let (node, _) = file_ops.lookup(&vfs::Cred::root(), b"h").await.unwrap();
    let private = vfs::SetAttr { mode: Some(0o600), ..vfs::SetAttr::default() };
    node.setattr(&vfs::Cred::root(), private, false).await.unwrap();
    let stranger = harness.machine(3, 1005, Dialect::V311, RDMA);
    open(&stranger, "h", vec![instance()]).await.unwrap();
    assert_eq!(a.close(secret).await, Status::SUCCESS);
}

/// A waiting request uses one of its address's slots until the wait succeeds or is given up.
#[tokio::test]
async fn an_address_has_its_part_of_the_places_of_those_who_wait() {
    let harness = Harness::new();
    let (holder, waiter) = (harness.client(), harness.client());
    let (f, g) = (holder.open("f").await, waiter.open("f").await);
    assert_eq!(lock(&holder, f, &[(0, 9, ALONE)]).await, Status::SUCCESS);
    let mut rest = harness.core.waits_by_address.of(waiter.conn.info.peer);
    let most = crate::limits::WAITS_PER_ADDRESS_MAX;
    rest.set(most).unwrap();
    let wait = [(0, 9, flag::EXCLUSIVE)];
    assert_eq!(lock(&waiter, g, &wait).await, Status::INSUFFICIENT_RESOURCES);
    rest.set(most - 1).unwrap();
    assert_eq!(lock(&waiter, g, &wait).await, Status::PENDING);
    assert_eq!(rest.set(most), Err(Status::INSUFFICIENT_RESOURCES), "its place is taken");
    assert_eq!(lock(&holder, f, &[(0, 9, flag::UNLOCK)]).await, Status::SUCCESS);
    assert_eq!(waiter.pushed().await.status(), Status::SUCCESS);
    tokio::task::yield_now().await;
    rest.set(most).unwrap();
}
