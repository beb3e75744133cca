//! Commands on named pipes of `IPC$` (MS-SMB2 sections 3.3.5.9, 3.3.5.12, 3.3.5.13, 3.3.5.15.10); [`crate::pipe`] interprets the
//! bytes.
//!
//! *Operation.* A write that completes a call produces the reply immediately. Building it may look up names on the host and wait
//! for a directory server, so it runs on a blocking thread. A read from an empty pipe sends an interim response and queues behind
//! earlier reads until data arrives, it is cancelled, or the pipe, tree, session or connection ends. On a non-blocking pipe it
//! fails at once.
//!
//! *Memory.* Limited by [`crate::pipe`], and for each address by its [part](crate::parts); a WRITE uses one buffer. Waiting reads
//! count as `waiting-requests` of their connection.
//!
//! *Errors.* STATUS_BUFFER_OVERFLOW with partial data if a message is longer than the client's buffer, as for message-mode pipes.

use std::sync::Arc;
use std::task::Poll;

use iobuf::{Buf, ClientWork};
use rdma_transport::count;
use smb_proto::fscc::file::{Basic, Standard};
use smb_proto::fscc::pipe::{
    COMPLETE_OPERATION, CONNECTED, FULL_DUPLEX, Information, LocalInformation, MESSAGE, PeekReply,
    SERVER_END,
};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::pipe_host::{CoreHost, Tried};
use super::session_setup::slow_down;
use crate::answer::Answer;
use crate::dtyp::mask;
use crate::lease;
use crate::limits::{FIXED_COMMAND_BYTES_MAX, PIPE_CALL_WAIT, PIPE_CALL_WAIT_MAX};
use crate::open::{Open, Target};
use crate::pipe::{self, Piece, Pipe};
use crate::request_context::RequestContext;
use crate::status::Status;
use crate::wire::close::Basics;
use crate::wire::create::{Request, Response, action};
use crate::wire::fsctl::code;
use crate::wire::utf16;

/// FILE_ATTRIBUTE_NORMAL
const NORMAL: u32 = 0x80;
/// Buffer size in bytes that a pipe reports for each direction.
const QUOTA: u32 = 4096;
/// Largest WRITE or FSCTL_PIPE_TRANSCEIVE in bytes.
const WRITE_MAX: usize = 1 << 20;

/// Opens a pipe (CREATE on `IPC$`).
pub(crate) fn create(cx: &RequestContext, request: &Request<'_>) -> Result<Answer, Status> {
    /// The server may impersonate the client of a pipe, but cannot delegate (MS-SMB2 section 3.3.5.9).
    const DELEGATE: u32 = 3;
    if request.impersonation >= DELEGATE {
        return Err(Status::BAD_IMPERSONATION_LEVEL);
    }
    let tree = cx.tree()?;
    let name = utf16(&request.name).ok_or(Status::OBJECT_NAME_INVALID)?;
    let pipe = pipe::open(&name, cx.server.pipe_bytes.of(cx.conn.info.peer))?;
    let asked = mask::map_generic(request.access);
    let all = mask::READ_DATA
        | mask::WRITE_DATA
        | mask::APPEND_DATA
        | mask::READ_EA
        | mask::WRITE_EA
        | mask::READ_ATTRIBUTES
        | mask::WRITE_ATTRIBUTES
        | mask::READ_CONTROL
        | mask::SYNCHRONIZE;
    let granted = if asked & mask::MAXIMUM_ALLOWED != 0 { all } else { asked & all };
    let owner = (tree.session_id, tree.id);
    let party = lease::party(cx);
    let mut open = Open::new(owner, Target::Pipe(pipe), party, tree.cred.clone(), granted)?;
    open.part = Some(cx.part_of_opens(0)?);
    let open = Arc::new(open);
    cx.server.opens.insert(open.clone())?;
    let response = Response {
        oplock_level: 0,
        flags: 0,
        action: action::OPENED,
        basics: Basics {
            times: [0; 4],
            allocation_size: u64::from(QUOTA),
            end_of_file: 0,
            attributes: NORMAL,
        },
        file: open.id,
        contexts: Vec::new(),
    };
    Ok(Answer { opened: Some(open.id), ..Answer::ok(response.emit()) })
}

/// Runs work that may call the host on a blocking thread. Work that takes too long keeps its thread, and its caller gets an error.
async fn run<T: Send + 'static>(
    cx: &RequestContext,
    open: &Arc<Open>,
    work: impl FnOnce(&Pipe, &CoreHost) -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    if open.pipe().is_some_and(Pipe::takes_passwords) {
        slow_down(cx).await;
    }
    let (user, peer) = (cx.session()?.user(), cx.conn.info.peer.ip());
    let host = CoreHost { core: cx.server.clone(), user, peer, tried: Tried::default() };
    let open = open.clone();
    let turn = cx.server.pipe_calls.take(peer, 1, PIPE_CALL_WAIT_MAX).await;
    let turn = turn.ok_or(Status::INSUFFICIENT_RESOURCES)?;
    let work = spawn_blocking(move || {
        let _turn = turn;
        let _client = ClientWork::begin(peer);
        work(open.pipe().ok_or(Status::INVALID_HANDLE)?, &host)
    });
    match timeout(PIPE_CALL_WAIT_MAX, work).await {
        Ok(done) => done.map_err(|_| Status::INTERNAL_ERROR)?,
        Err(_) => {
            count::limit_met(PIPE_CALL_WAIT);
            Err(Status::INSUFFICIENT_RESOURCES)
        }
    }
}

/// Writes the data of a WRITE to a pipe.
pub(crate) async fn write(
    cx: &RequestContext,
    open: &Arc<Open>,
    data: Vec<Buf>,
) -> Result<(), Status> {
    open.check(mask::WRITE_DATA | mask::APPEND_DATA)?;
    let len: usize = data.iter().map(Buf::len).sum();
    if len > WRITE_MAX {
        return Err(Status::INVALID_PARAMETER);
    }
    let bytes: Vec<u8> = data.iter().flat_map(|b| b.as_slice()).copied().collect();
    run(cx, open, move |pipe, host| pipe.write(host, &bytes)).await
}

/// Reads from a pipe. Returns the response status and the data.
pub(crate) async fn read(
    cx: &RequestContext,
    open: &Open,
    max: usize,
) -> Result<(Status, Vec<u8>), Status> {
    open.check(mask::READ_DATA)?;
    let pipe = open.pipe().ok_or(Status::INVALID_DEVICE_REQUEST)?;
    next(cx, pipe, max).await.map(status)
}

/// Returns the next piece of data, after earlier reads have got theirs (MS-SMB2 sections 3.3.5.12 and 3.3.4.2).
async fn next(cx: &RequestContext, pipe: &Pipe, max: usize) -> Result<Piece, Status> {
    let empty = |piece: &Result<Piece, Status>| *piece == Err(Status::PIPE_EMPTY);
    if pipe.fails_at_once() {
        return pipe.read(max);
    }
    // Enter the queue before sending the interim response, so that reads stay in order.
    let mut turn = std::pin::pin!(pipe.turn.lock());
    let polled = std::future::poll_fn(|task| Poll::Ready(turn.as_mut().poll(task))).await;
    let _turn = match polled {
        Poll::Ready(turn) => {
            let piece = pipe.read(max);
            if !empty(&piece) {
                return piece;
            }
            cx.pend().await?;
            turn
        }
        Poll::Pending => {
            cx.pend().await?;
            tokio::select! {
                biased;
                why = cx.cancelled() => return Err(why),
                turn = turn => turn,
            }
        }
    };
    let come = async {
        loop {
            let piece = pipe.read(max);
            if !empty(&piece) {
                return piece;
            }
            pipe.changed().await;
        }
    };
    tokio::select! {
        biased;
        why = cx.cancelled() => Err(why),
        piece = come => piece,
    }
}

fn status(piece: Piece) -> (Status, Vec<u8>) {
    let status = if piece.more { Status::BUFFER_OVERFLOW } else { Status::SUCCESS };
    (status, piece.data)
}

/// Executes a control code. Returns the response status and the output.
pub(crate) async fn ioctl(
    cx: &RequestContext,
    open: &Arc<Open>,
    code: u32,
    input: &[u8],
    max: usize,
) -> Result<(Status, Vec<u8>), Status> {
    let pipe = open.pipe().ok_or(Status::INVALID_DEVICE_REQUEST)?;
    match code {
        code::PIPE_TRANSCEIVE => {
            open.check(mask::READ_DATA)?;
            open.check(mask::WRITE_DATA | mask::APPEND_DATA)?;
            if input.len() > WRITE_MAX {
                return Err(Status::INVALID_PARAMETER);
            }
            let bytes = input.to_vec();
            let taken = run(cx, open, move |pipe, host| pipe.transceive(host, &bytes, max)).await;
            // If the input does not complete a call, the response waits until another request completes it (MS-SMB2 section
            // 3.3.5.15.3).
            match taken {
                // The end of a call fits into one fragment; waiting with a longer input would hold memory for as long as the client
                // likes.
                Err(Status::PIPE_EMPTY) if input.len() <= FIXED_COMMAND_BYTES_MAX => {
                    next(cx, pipe, max).await.map(status)
                }
                taken => taken.map(status),
            }
        }
        code::PIPE_PEEK => {
            let (all, first) = pipe.waiting();
            let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            let out = PeekReply {
                state: CONNECTED,
                read_data_available: number(all),
                messages: u32::from(all > 0),
                message_length: number(first),
            }
            .emit();
            if max < out.len() { Err(Status::BUFFER_TOO_SMALL) } else { Ok((Status::SUCCESS, out)) }
        }
        _ => Err(Status::INVALID_DEVICE_REQUEST),
    }
}

/// FilePipeInformation
const PIPE: u8 = 23;

/// Answers QUERY_INFO with the file classes that clients request for pipes (MS-FSCC sections 2.4.37 to 2.4.47).
pub(crate) fn query(open: &Open, class: u8, max: usize) -> Result<Vec<u8>, Status> {
    const BASIC: u8 = 4;
    const STANDARD: u8 = 5;
    const PIPE_LOCAL: u8 = 24;
    let pipe = open.pipe().ok_or(Status::INVALID_DEVICE_REQUEST)?;
    let (all, _) = pipe.waiting();
    let waiting = u32::try_from(all).unwrap_or(u32::MAX);
    let out = match class {
        BASIC => Basic { attributes: NORMAL, ..Basic::default() }.emit(),
        STANDARD => {
            let allocation = QUOTA.into();
            Standard { allocation, links: 1, delete_pending: 1, ..Standard::default() }.emit()
        }
        PIPE => {
            let completion_mode = if pipe.fails_at_once() { COMPLETE_OPERATION } else { 0 };
            Information { read_mode: MESSAGE, completion_mode }.emit()
        }
        PIPE_LOCAL => LocalInformation {
            pipe_type: MESSAGE,
            configuration: FULL_DUPLEX,
            maximum_instances: u32::MAX,
            current_instances: 1,
            inbound_quota: QUOTA,
            read_data_available: waiting,
            outbound_quota: QUOTA,
            write_quota_available: QUOTA,
            state: CONNECTED,
            end: SERVER_END,
        }
        .emit(),
        _ => return Err(Status::INVALID_PARAMETER),
    };
    if max < out.len() { Err(Status::INFO_LENGTH_MISMATCH) } else { Ok(out) }
}

/// Sets FilePipeInformation: whether reads from an empty pipe wait. `ReadMode` is ignored, because messages are always whole
/// (MS-FSCC section 2.4.37).
pub(crate) fn set(open: &Open, class: u8, buffer: &[u8]) -> Result<(), Status> {
    let pipe = open.pipe().filter(|_| class == PIPE).ok_or(Status::INVALID_PARAMETER)?;
    let set = Information::parse(buffer).map_err(|_| Status::INFO_LENGTH_MISMATCH)?;
    match set.completion_mode {
        // FILE_PIPE_QUEUE_OPERATION
        0 => pipe.set_fails_at_once(false),
        COMPLETE_OPERATION => pipe.set_fails_at_once(true),
        _ => return Err(Status::INVALID_PARAMETER),
    }
    Ok(())
}
