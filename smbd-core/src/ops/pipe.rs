//! The commands on named pipes of `IPC$` (MS-SMB2 sections 3.3.5.9, 3.3.5.12, 3.3.5.13, 3.3.5.15.10): the bytes are
//! [`crate::pipe`]'s.
//!
//! *Operation.* A pipe answers what completes a call while it is written. That may ask the host for names, which can wait for a
//! directory server, so it runs on a thread that may. A read that finds nothing waits with an interim answer, behind those that
//! came before it, until something comes, CANCEL names it, or the pipe, its tree, session or connection ends; not where the client
//! has set the pipe to fail at once.
//!
//! *Memory.* Bounded by [`crate::pipe`], and of each address by its [part](crate::parts); a WRITE is one buffer. Reads that wait
//! count as `waiting-requests` of their connection.
//!
//! *Errors.* STATUS_BUFFER_OVERFLOW with what fitted when a message is longer than the client's buffer, as pipes of messages do.

use std::sync::Arc;
use std::task::Poll;

use iobuf::Buf;
use smb_proto::fscc::file::{Basic, Standard};
use smb_proto::fscc::pipe::{
    COMPLETE_OPERATION, CONNECTED, FULL_DUPLEX, Information, LocalInformation, MESSAGE, PeekReply,
    SERVER_END,
};

use super::pipe_host::CoreHost;
use crate::answer::Answer;
use crate::dtyp::mask;
use crate::lease;
use crate::limits::FIXED_COMMAND_BYTES_MAX;
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
/// Bytes that a pipe announces to hold, each way.
const QUOTA: u32 = 4096;
/// Bytes of one WRITE or FSCTL_PIPE_TRANSCEIVE.
const WRITE_MAX: usize = 1 << 20;

/// CREATE on `IPC$`.
pub(crate) fn create(cx: &RequestContext, request: &Request<'_>) -> Result<Answer, Status> {
    /// A server may act for whoever opens a pipe, but not pass that on (MS-SMB2 section 3.3.5.9).
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
    open.part = Some(cx.part_of_opens()?);
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

/// Runs what may ask the host.
async fn run<T: Send + 'static>(
    cx: &RequestContext,
    open: &Arc<Open>,
    work: impl FnOnce(&Pipe, &CoreHost) -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    let (user, peer) = (cx.session()?.user(), cx.conn.info.peer.ip());
    let host = CoreHost { core: cx.server.clone(), user, peer };
    let open = open.clone();
    tokio::task::spawn_blocking(move || work(open.pipe().ok_or(Status::INVALID_HANDLE)?, &host))
        .await
        .map_err(|_| Status::INTERNAL_ERROR)?
}

/// What a WRITE brings.
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

/// What a READ takes: the status of the answer and the bytes.
pub(crate) async fn read(
    cx: &RequestContext,
    open: &Open,
    max: usize,
) -> Result<(Status, Vec<u8>), Status> {
    open.check(mask::READ_DATA)?;
    let pipe = open.pipe().ok_or(Status::INVALID_DEVICE_REQUEST)?;
    next(cx, pipe, max).await.map(status)
}

/// The first piece that comes, once the reads before this one have theirs (MS-SMB2 sections 3.3.5.12 and 3.3.4.2).
async fn next(cx: &RequestContext, pipe: &Pipe, max: usize) -> Result<Piece, Status> {
    let empty = |piece: &Result<Piece, Status>| *piece == Err(Status::PIPE_EMPTY);
    if pipe.fails_at_once() {
        return pipe.read(max);
    }
    // In the queue before the interim answer leaves, so that reads stay in order.
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

/// A control code: the status of the answer and its output.
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
            // MS-SMB2 section 3.3.5.15.3: what is not the end of a call is answered when its end has come.
            match taken {
                // The end of a call fits into a fragment; what is longer would be kept for as long as its client likes.
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

/// QUERY_INFO of a file class (MS-FSCC sections 2.4.37 to 2.4.47): what clients ask of pipes.
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

/// SET_INFO of FilePipeInformation: whether a read that finds nothing waits. `ReadMode` makes no difference to messages that are
/// whole (MS-FSCC section 2.4.37).
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
