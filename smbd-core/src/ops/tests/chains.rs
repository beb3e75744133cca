//! Compound requests with commands that must wait: interim responses, their order, and cancellation (MS-SMB2 sections 3.3.4.2,
//! 3.3.5.2.7 and 3.3.5.16). The expected results match Windows and Samba (smbtorture's `smb2.compound` and `smb2.compound_async`).

use std::time::Duration;

use super::hold::{ALONE, HANDLE, READ, WRITE, acknowledge, leased, lock};
use super::info::to;
use crate::fscc::set::Set;
use crate::harness::{Answered, Client, Harness, create_request};
use crate::open::FileId;
use crate::status::Status;
use crate::wire::create::Disposition;
use crate::wire::lock::{Element, flag};
use crate::wire::negotiate::Dialect;
use crate::wire::query_info::info_type;
use crate::wire::{
    Command, Flags, change_notify, close, create, flush, lock as lock_wire, oplock_break, set_info,
};

/// The file of the previous command.
const RELATED: FileId = FileId { persistent: u64::MAX, volatile: u64::MAX };

fn opens(name: &str) -> (Command, Vec<u8>) {
    let open = |r: &mut create::Request<'_>| r.disposition = Disposition::Open as u32;
    (Command::Create, create_request(name, open).emit())
}

fn closes() -> (Command, Vec<u8>) {
    (Command::Close, close::Request { flags: 0, file: RELATED }.emit())
}

fn flushes() -> (Command, Vec<u8>) {
    (Command::Flush, flush::Request::of(RELATED).emit())
}

fn renames(file: FileId, name: &str) -> (Command, Vec<u8>) {
    let (class, buffer) = Set::Rename(to(name, 0)).emit();
    let r = set_info::Request { info_type: info_type::FILE, class, additional: 0, file, buffer };
    (Command::SetInfo, r.emit())
}

fn statuses(answers: &[Answered]) -> Vec<Status> {
    answers.iter().map(Answered::status).collect()
}

/// Returns a client that caches the file and one that conflicts with it.
async fn two(state: u32) -> (Client, Client) {
    let harness = Harness::new();
    crate::recall::attach(&harness.core);
    let (holder, other) = (
        harness.client(),
        harness.machine(2, 0, Dialect::V311, rdma_transport::channel::Transport::Tcp),
    );
    leased(&holder, "f", 1, state).await.unwrap();
    (holder, other)
}

async fn told(holder: &Client) -> (u32, u32) {
    match oplock_break::Response::parse(&holder.pushed().await.message) {
        Ok(oplock_break::Response::LeaseNotice(n)) => (n.from, n.to),
        other => panic!("{other:?}"),
    }
}

/// smb2.compound_async.getinfo_middle
#[tokio::test(start_paused = true)]
async fn a_create_that_waits_in_a_chain_is_told_of_and_the_chain_is_answered_as_one() {
    let (holder, other) = two(READ | WRITE | HANDLE).await;
    let (interim, id) = other.chain(&[opens("f"), flushes(), closes()]).await;
    assert_eq!(statuses(&interim), [Status::PENDING]);
    let interim = &interim[0].header;
    assert!(interim.flags.has(Flags::ASYNC) && interim.message_id == id && interim.credits > 0);
    assert_eq!(told(&holder).await, (READ | WRITE | HANDLE, READ | HANDLE));
    assert_eq!(acknowledge(&holder, 1, READ | HANDLE).await, Status::SUCCESS);
    let answers = other.pushed_chain().await;
    assert_eq!(statuses(&answers), [Status::SUCCESS; 3]);
    let asyncs: Vec<_> = answers.iter().map(|a| a.header.flags.has(Flags::ASYNC)).collect();
    assert_eq!(asyncs, [true, false, false]);
    assert_eq!(answers[0].header.tree_or_async, interim.tree_or_async);
    let credits: Vec<_> = answers.iter().map(|a| a.header.credits > 0).collect();
    assert_eq!(credits, [false, true, true], "the first has got its own");
    assert_eq!(answers.iter().map(|a| a.header.message_id - id).collect::<Vec<_>>(), [0, 1, 2]);
}

/// The server ignores FILE_OPEN_REQUIRING_OPLOCK, which on NTFS fails an open that must wait for a break (MS-SMB2 section 2.2.13).
#[tokio::test(start_paused = true)]
async fn open_requiring_oplock_waits_as_others() {
    use crate::wire::create::option::OPEN_REQUIRING_OPLOCK;
    for options in [0, OPEN_REQUIRING_OPLOCK] {
        let (holder, other) = two(READ | WRITE | HANDLE).await;
        let pending = other.create("f", |r| {
            (r.options, r.disposition) = (options, Disposition::Open as u32);
        });
        assert_eq!(pending.await.unwrap_err(), Status::PENDING, "{options:#x}");
        assert_eq!(told(&holder).await, (READ | WRITE | HANDLE, READ | HANDLE));
        assert_eq!(acknowledge(&holder, 1, READ | HANDLE).await, Status::SUCCESS);
        assert_eq!(other.pushed().await.status(), Status::SUCCESS, "{options:#x}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_create_that_waits_in_a_chain_can_be_given_up_and_the_chain_with_it() {
    for by_async_id in [true, false] {
        let (holder, other) = two(READ | WRITE).await;
        let (interim, id) = other.chain(&[opens("f"), closes()]).await;
        assert_eq!(statuses(&interim), [Status::PENDING]);
        told(&holder).await;
        let name = interim[0].header.tree_or_async;
        // Identifiers that match no request.
        other.cancel(id + 1, None).await;
        other.cancel(id, Some(name + 1)).await;
        other.cancel(id, by_async_id.then_some(name)).await;
        let answers = other.pushed_chain().await;
        assert_eq!(statuses(&answers), [Status::CANCELLED; 2]);
        assert!(answers[0].header.flags.has(Flags::ASYNC));
    }
}

/// Every request of the connection can be cancelled, including those that have not started (MS-SMB2 section 3.3.5.16).
#[tokio::test(start_paused = true)]
async fn a_command_behind_one_that_waits_can_be_given_up() {
    let (holder, other) = two(READ | WRITE | HANDLE).await;
    let (interim, id) = other.chain(&[opens("f"), flushes(), closes()]).await;
    assert_eq!(statuses(&interim), [Status::PENDING]);
    told(&holder).await;
    other.cancel(id + 1, None).await;
    other.cancel(id + 3, None).await;
    assert_eq!(acknowledge(&holder, 1, READ | HANDLE).await, Status::SUCCESS);
    let answers = other.pushed_chain().await;
    assert_eq!(statuses(&answers), [Status::SUCCESS, Status::CANCELLED, Status::SUCCESS]);
}

/// A command that waits in the middle does not delay the use of the message ids after it.
#[tokio::test(start_paused = true)]
async fn the_message_ids_of_a_chain_are_used_when_it_comes() {
    let (_holder, other) = two(READ | WRITE).await;
    let (interim, id) = other.chain(&[opens("f"), flushes(), closes()]).await;
    assert_eq!(statuses(&interim), [Status::PENDING]);
    for used in [id, id + 1, id + 2] {
        assert!(!other.conn.take_ids(used, 1));
    }
    assert!(other.conn.take_ids(id + 3, 1));
}

/// MS-SMB2 section 3.3.4.2 leaves interim responses for bounded waits to the server. Windows, as recorded by smb2.compound_async
/// (rename_non_compound_no_async, rename_last, rename_middle), sends no interim response.
#[tokio::test(start_paused = true)]
async fn a_rename_waits_without_an_interim_answer() {
    let mine = |other: &Client| {
        let core = other.core.clone();
        move || core.opens.count()
    };
    for chain in [vec![renames(RELATED, "g")], vec![renames(RELATED, "g"), closes()]] {
        let (holder, other) = two(READ | HANDLE).await;
        let opened = mine(&other);
        let before = opened();
        let commands: Vec<_> = [opens("f")].into_iter().chain(chain).collect();
        let (answers, ()) = tokio::join!(other.chain(&commands), async {
            assert_eq!(told(&holder).await, (READ | HANDLE, READ));
            // Longer than the delay before an interim response.
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(acknowledge(&holder, 1, READ).await, Status::SUCCESS);
        });
        let (answers, _) = answers;
        assert_eq!(statuses(&answers), vec![Status::SUCCESS; commands.len()]);
        assert!(answers.iter().all(|a| !a.header.flags.has(Flags::ASYNC)));
        assert_eq!(opened() - before, usize::from(commands.len() == 2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_rename_that_waits_is_found_by_its_message_id() {
    let (holder, other) = two(READ | HANDLE).await;
    let file = other.open("f").await;
    // Alone, and in the middle of a compound request.
    for (chain, at) in
        [(vec![renames(file, "g")], 0), (vec![opens("f"), renames(RELATED, "g"), closes()], 1)]
    {
        let whole = other.chain(&chain);
        let first = other.conn.clone();
        let (answers, ()) = tokio::join!(whole, async {
            let id = loop {
                match first.waiting_ids().first() {
                    Some(id) => break *id,
                    None => tokio::task::yield_now().await,
                }
            };
            other.cancel(id, None).await;
        });
        let (answers, _) = answers;
        assert_eq!(answers[at].status(), Status::CANCELLED);
        assert_eq!(answers.len(), chain.len());
    }
    drop(holder);
}

/// smb2.compound_async.rename_same_srcdst_non_compound_no_async
#[tokio::test(start_paused = true)]
async fn a_rename_to_its_own_name_takes_cached_handles_back() {
    let (holder, other) = two(READ | HANDLE).await;
    let file = other.open("f").await;
    let alone = [renames(file, "f")];
    let ((answers, _), ()) = tokio::join!(other.chain(&alone), async {
        assert_eq!(told(&holder).await, (READ | HANDLE, READ));
        assert_eq!(acknowledge(&holder, 1, READ).await, Status::SUCCESS);
    });
    assert_eq!(statuses(&answers), [Status::SUCCESS]);
}

/// The serve loop finishes commands in progress; a command of a disconnected client must not wait for other clients.
#[tokio::test(start_paused = true)]
async fn a_rename_that_waits_ends_with_its_connection() {
    let (holder, other) = two(READ | HANDLE).await;
    let file = other.open("f").await;
    let began = tokio::time::Instant::now();
    let alone = [renames(file, "g")];
    let ((answers, _), ()) = tokio::join!(other.chain(&alone), async {
        assert_eq!(told(&holder).await, (READ | HANDLE, READ));
        other.asked.lock().unwrap().close();
    });
    assert_eq!(statuses(&answers), [Status::CANCELLED]);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// smb2.compound.interim2: the other commands are answered as if this one were absent.
#[tokio::test(start_paused = true)]
async fn what_would_wait_for_ever_in_the_middle_of_a_chain_is_refused() {
    let harness = Harness::new();
    let c = harness.client();
    let folder = |r: &mut create::Request<'_>| {
        r.options = create::option::DIRECTORY_FILE;
    };
    let makes = (Command::Create, create_request("d", folder).emit());
    let watches =
        change_notify::Request { flags: 0, output_len: 4096, file: RELATED, filter: 0xfff };
    let watches = (Command::ChangeNotify, watches.emit());
    let (answers, _) = c.chain(&[makes.clone(), watches.clone(), closes()]).await;
    assert_eq!(statuses(&answers), [Status::SUCCESS, Status::INTERNAL_ERROR, Status::SUCCESS]);

    let held = c.open("f").await;
    assert_eq!(lock(&c, held, &[(0, 1, ALONE)]).await, Status::SUCCESS);
    let waits = lock_wire::Request {
        sequence_number: 0,
        sequence_index: 0,
        file: RELATED,
        locks: vec![Element { offset: 0, length: 1, flags: flag::EXCLUSIVE }],
    };
    let locks = (Command::Lock, waits.emit());
    let (answers, _) = c.chain(&[opens("f"), locks, closes()]).await;
    assert_eq!(statuses(&answers), [Status::SUCCESS, Status::INTERNAL_ERROR, Status::SUCCESS]);

    // smb2.compound.interim3: the last command may wait, and the commands before it are answered separately.
    let (answers, _) = c.chain(&[makes.clone(), closes(), makes, watches]).await;
    assert_eq!(statuses(&answers), [Status::SUCCESS; 3]);
    let interim = c.pushed().await;
    assert_eq!(interim.status(), Status::PENDING);
    c.cancel(0, Some(interim.header.tree_or_async)).await;
    assert_eq!(c.pushed().await.status(), Status::CANCELLED);
}

/// Commands that run outside the serve loop count until they end, even if they wait without an interim response.
#[tokio::test(start_paused = true)]
async fn chains_that_wait_are_bounded() {
    let (holder, other) = two(READ | WRITE).await;
    let free = other.conn.apart.available_permits();
    let (interim, id) = other.chain(&[opens("f"), closes()]).await;
    assert_eq!(statuses(&interim), [Status::PENDING]);
    assert_eq!(other.conn.apart.available_permits(), free - 1);
    other.cancel(id, None).await;
    other.pushed_chain().await;
    tokio::task::yield_now().await;
    assert_eq!(other.conn.apart.available_permits(), free);
    let all = u32::try_from(free).unwrap();
    let _taken = other.conn.apart.clone().try_acquire_many_owned(all).unwrap();
    let (answers, _) = other.chain(&[opens("f"), closes()]).await;
    assert_eq!(answers[0].status(), Status::CANCELLED);
    drop(holder);
}
