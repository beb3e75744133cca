//! Named pipes of `IPC$`: a READ from an empty pipe queues, and every way for this wait to end.

use std::time::Duration;

use tokio::time::Instant;

use super::data::{reading, writing};
use super::info::put;
use crate::harness::{Answered, Client, Harness};
use crate::limits::{ASYNC_MAX, PIPE_CALL_WAIT_MAX, PIPE_CALLS_PER_ADDRESS_MAX};
use crate::open::FileId;
use crate::pipe::Interface;
use crate::pipe::rpc::{NDR, Syntax};
use crate::session::Session;
use crate::settings::ShareSettings;
use crate::status::Status;
use crate::teardown::{TeardownReason, end_session};
use crate::tree::{LastTakeUp, Target, Tree};
use crate::wire::fsctl::code;
use crate::wire::ioctl::{IS_FSCTL, Request};
use crate::wire::query_info::info_type;
use crate::wire::{Command, Flags};

/// FilePipeInformation
const PIPE_INFORMATION: u8 = 23;

/// Returns a client connected to `IPC$`.
fn client() -> Client {
    let mut c = Harness::new().client();
    let session = session(&c);
    let tree = session.add_tree(|id| Tree {
        last_take_up: LastTakeUp::default(),
        is_dfs: false,
        home: None,
        id,
        session_id: session.id,
        name: "IPC$".into(),
        target: Target::Pipes,
        cred: vfs::Cred::root(),
        maximal_access: 0x001f_00a9,
        settings: ShareSettings::default(),
    });
    c.tree_id = tree.unwrap().id;
    c
}

fn session(c: &Client) -> std::sync::Arc<Session> {
    c.core.sessions.get(c.session_id).unwrap()
}

async fn open(c: &Client) -> FileId {
    c.create("lsarpc", |r| r.access = 0x0012_019f).await.unwrap().file
}

/// Builds a bind request, which gets a single response with the same `call_id`.
fn bind(call_id: u32) -> Vec<u8> {
    let mut pdu = vec![5, 0, 11, 3, 16, 0, 0, 0, 72, 0, 0, 0];
    pdu.extend(call_id.to_le_bytes());
    pdu.extend([0xb8, 16, 0xb8, 16, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0]);
    for Syntax { uuid, version } in [Interface::Lsarpc.syntax(), NDR] {
        pdu.extend(uuid);
        pdu.extend(version.to_le_bytes());
    }
    pdu
}

async fn read(c: &Client, file: FileId, len: u32) -> Answered {
    c.ask(Command::Read, &reading(file, 0, len).emit()).await
}

/// Starts a read that must wait, and returns its `AsyncId`.
async fn waits(c: &Client, file: FileId) -> u64 {
    let interim = read(c, file, 1024).await;
    assert_eq!(interim.status(), Status::PENDING);
    assert!(interim.header.flags.has(Flags::ASYNC) && interim.header.credits > 0);
    interim.header.tree_or_async
}

async fn write(c: &Client, file: FileId, call_id: u32) {
    let bytes = bind(call_id);
    let body = writing(file, 0, bytes.len()).emit();
    assert_eq!(c.ask_with(Command::Write, &body, &bytes).await.status(), Status::SUCCESS);
}

/// Returns the `call_id` of the bind that this waiting read has received.
async fn taken(c: &Client, async_id: u64) -> u32 {
    let told = c.pushed().await;
    assert_eq!((told.status(), told.header.credits), (Status::SUCCESS, 0));
    assert_eq!(told.header.tree_or_async, async_id);
    u32::from_le_bytes(*told.data()[12..].first_chunk().unwrap())
}

#[tokio::test]
async fn reads_of_an_empty_pipe_wait_and_are_answered_in_their_order() {
    let c = client();
    let file = open(&c).await;
    let [first, second] = [waits(&c, file).await, waits(&c, file).await];
    write(&c, file, 71).await;
    assert_eq!(taken(&c, first).await, 71);
    // A second bind is rejected, which is a response as well.
    write(&c, file, 72).await;
    assert_eq!(taken(&c, second).await, 72);
    write(&c, file, 73).await;
    let told = read(&c, file, 1024).await;
    assert_eq!((told.status(), told.data()[12]), (Status::SUCCESS, 73), "nobody waits before it");
}

#[tokio::test]
async fn what_a_read_leaves_of_a_message_is_for_the_next() {
    let c = client();
    let file = open(&c).await;
    let interim = read(&c, file, 12).await;
    assert_eq!(interim.status(), Status::PENDING);
    let second = waits(&c, file).await;
    write(&c, file, 71).await;
    let [one, two] = [c.pushed().await, c.pushed().await];
    assert_eq!((one.status(), one.data().len()), (Status::BUFFER_OVERFLOW, 12));
    assert_eq!((two.status(), two.data()[0]), (Status::SUCCESS, 71));
    assert_eq!(two.header.tree_or_async, second);
}

/// MS-SMB2 section 3.3.5.15.3.
#[tokio::test]
async fn half_a_call_by_transceive_is_answered_with_the_other_half() {
    let c = client();
    let file = open(&c).await;
    let bytes = bind(71);
    let (code, input) = (code::PIPE_TRANSCEIVE, &bytes[..30]);
    let r = Request { code, file, input, input_max: 0, output_max: 1024, flags: IS_FSCTL };
    let interim = c.ask(Command::Ioctl, &r.emit()).await;
    assert_eq!(interim.status(), Status::PENDING);
    let body = writing(file, 0, bytes.len() - 30).emit();
    let done = c.ask_with(Command::Write, &body, &bytes[30..]).await;
    assert_eq!(done.status(), Status::SUCCESS);
    let told = c.pushed().await;
    assert_eq!((told.status(), told.header.command), (Status::SUCCESS, Command::Ioctl as u16));
}

#[tokio::test]
async fn a_read_that_waits_can_be_cancelled_and_takes_nothing() {
    let c = client();
    let file = open(&c).await;
    let [first, second] = [waits(&c, file).await, waits(&c, file).await];
    for id in [first, second] {
        c.cancel(0, Some(id)).await;
        let told = c.pushed().await;
        assert_eq!((told.status(), told.header.tree_or_async), (Status::CANCELLED, id));
    }
    write(&c, file, 71).await;
    assert_eq!(read(&c, file, 1024).await.status(), Status::SUCCESS);
    assert_eq!(c.conn.waits(), 0);
}

#[tokio::test]
async fn reads_that_wait_end_with_their_pipe_tree_session_and_connection() {
    for (end, why) in [
        ("close", Status::PIPE_BROKEN),
        ("tree", Status::PIPE_BROKEN),
        ("session", Status::USER_SESSION_DELETED),
        ("connection", Status::CANCELLED),
    ] {
        let c = client();
        let file = open(&c).await;
        let ids = [waits(&c, file).await, waits(&c, file).await];
        match end {
            "close" => assert_eq!(c.close(file).await, Status::SUCCESS),
            "tree" => {
                let done = c.ask(Command::TreeDisconnect, &[4, 0, 0, 0]).await;
                assert_eq!(done.status(), Status::SUCCESS);
            }
            "session" => {
                end_session(&c.core, &session(&c), TeardownReason::GivenUp, "logoff").await
            }
            _ => crate::teardown::end_of_connection(&c.core, &c.conn).await,
        }
        let mut told = [c.pushed().await, c.pushed().await];
        told.sort_by_key(|t| t.header.tree_or_async);
        assert_eq!(told.each_ref().map(|t| t.header.tree_or_async), ids, "{end}");
        assert_eq!(told.each_ref().map(Answered::status), [why; 2], "{end}");
        assert_eq!(c.conn.waits(), 0, "{end}");
    }
}

/// The server allows as many waiting reads as Windows; refused reads keep no resources.
#[tokio::test]
async fn so_many_reads_of_a_connection_wait_and_no_more() {
    let c = client();
    let file = open(&c).await;
    for n in 0..ASYNC_MAX {
        // Reads of zero bytes and of one byte both wait on an empty pipe.
        let interim = read(&c, file, u32::from(n % 2 == 0)).await;
        assert_eq!(interim.status(), Status::PENDING);
    }
    for _ in 0..3 {
        assert_eq!(read(&c, file, 1).await.status(), Status::INSUFFICIENT_RESOURCES);
    }
    assert_eq!(c.close(file).await, Status::SUCCESS);
    for _ in 0..ASYNC_MAX {
        assert_eq!(c.pushed().await.status(), Status::PIPE_BROKEN);
    }
    let again = open(&c).await;
    waits(&c, again).await;
}

/// Calls of one address that hang have their part of the threads; pipes of another address work.
#[tokio::test(start_paused = true)]
async fn pipe_calls_of_address_leave_threads_to_others() {
    let c = client();
    let file = open(&c).await;
    let calls = &c.core.pipe_calls;
    for (at, then) in [
        ([198, 51, 100, 1].into(), Status::SUCCESS),
        (c.conn.info.peer.ip(), Status::INSUFFICIENT_RESOURCES),
    ] {
        let mut held = Vec::new();
        while let Some(turn) = calls.take(at, 1, Duration::ZERO).await {
            held.push(turn);
        }
        assert_eq!(held.len(), PIPE_CALLS_PER_ADDRESS_MAX);
        let bytes = bind(1);
        let body = writing(file, 0, bytes.len()).emit();
        let began = Instant::now();
        assert_eq!(c.ask_with(Command::Write, &body, &bytes).await.status(), then);
        assert_eq!(began.elapsed() >= PIPE_CALL_WAIT_MAX, then != Status::SUCCESS);
    }
}

/// Tests `CompletionMode` (MS-FSCC section 2.4.37).
#[tokio::test]
async fn a_pipe_that_was_set_so_fails_at_once_when_it_is_empty() {
    let c = client();
    let file = open(&c).await;
    let mode = |completion: u32| [1, 0, 0, 0].into_iter().chain(completion.to_le_bytes());
    for (completion, set, then) in [
        (1, Status::SUCCESS, Status::PIPE_EMPTY),
        (2, Status::INVALID_PARAMETER, Status::PIPE_EMPTY),
        (0, Status::SUCCESS, Status::PENDING),
    ] {
        let buffer: Vec<u8> = mode(completion).collect();
        assert_eq!(put(&c, file, info_type::FILE, PIPE_INFORMATION, 0, &buffer).await, set);
        assert_eq!(read(&c, file, 1024).await.status(), then);
    }
    let short = put(&c, file, info_type::FILE, PIPE_INFORMATION, 0, &[1, 0, 0, 0]).await;
    assert_eq!(short, Status::INFO_LENGTH_MISMATCH);
}
