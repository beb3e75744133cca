//! CHANGE_NOTIFY (MS-SMB2 section 3.3.5.19, MS-FSA section 2.1.5.11).

use std::sync::Arc;

use mutex::locked;
use vfs::names::Spelling;
use vfs::watch::Rooms;

use crate::answer::Answer;
use crate::dtyp::mask;
use crate::fscc::notify::Change;
use crate::notify::{Watching, change};
use crate::open::Open;
use crate::request_context::RequestContext;
use crate::status::Status;
use crate::wire::change_notify::{Request, Response, WATCH_TREE};

pub(crate) async fn call(cx: &RequestContext) -> Result<Answer, Status> {
    let r = cx.parse(Request::parse)?;
    let open = cx.open(r.file)?;
    super::check_output(cx, r.output_len)?;
    cx.check_charge(r.output_len)?;
    if !open.is_dir() {
        return Err(Status::INVALID_PARAMETER);
    }
    open.check(mask::READ_DATA)?;
    if cx.server.opens.is_delete_pending(&open) {
        return Err(Status::DELETE_PENDING);
    }
    let watching = watching(cx, &open, &r).await?;
    // Enter the queue before sending the interim response, so that requests stay in order.
    let mut turn = std::pin::pin!(watching.turn.lock());
    let poll = std::future::poll_fn(|c| std::task::Poll::Ready(turn.as_mut().poll(c)));
    let limit = usize::try_from(r.output_len).unwrap_or(usize::MAX);
    let _turn = match poll.await {
        std::task::Poll::Ready(turn) => {
            if watching.is_ready().await {
                return take(&watching, open.spelling(), limit.min(watching.between));
            }
            cx.pend().await?;
            turn
        }
        std::task::Poll::Pending => {
            cx.pend().await?;
            tokio::select! {
                biased;
                why = cx.cancelled() => return given_up(why),
                turn = turn => turn,
            }
        }
    };
    tokio::select! {
        biased;
        why = cx.cancelled() => given_up(why),
        ready = watching.ready() => match ready {
            Ok(()) => take(&watching, open.spelling(), limit),
            Err(why) => ended(why),
        },
    }
}

/// Answers a request that was cancelled, or whose directory was closed because its session, tree or connection ended.
fn given_up(why: Status) -> Result<Answer, Status> {
    if why == Status::CANCELLED { Err(why) } else { ended(Status::NOTIFY_CLEANUP) }
}

/// Builds the final response. NOTIFY_CLEANUP is a success status, so its response has the success format.
fn ended(why: Status) -> Result<Answer, Status> {
    if why.is_error() {
        return Err(why);
    }
    Ok(Answer::with_status(why, Response { buffer: Vec::new() }.emit()))
}

/// Returns the watch of this open. The first request creates it, and its filter applies to all later ones (MS-FSA section
/// 2.1.5.11).
async fn watching(
    cx: &RequestContext,
    open: &Arc<Open>,
    r: &Request,
) -> Result<Arc<Watching>, Status> {
    if let Some(watching) = open.open_state.watching() {
        return match watching.why() {
            Some(Status::NOTIFY_CLEANUP) => Err(Status::FILE_CLOSED),
            _ => Ok(watching),
        };
    }
    let mut part = cx.server.watches_by_address.of(cx.conn.info.peer);
    part.set(1)?;
    let recursive = r.flags & WATCH_TREE != 0;
    let (share, dir) = (open.share()?, open.node()?);
    let hub = cx.server.namespace.watches();
    let mut covered = cx.server.covered_by_address.of(cx.conn.info.peer);
    let mut events = cx.server.watch_events_by_address.of(cx.conn.info.peer);
    let rooms = Rooms {
        covered: Box::new(move |folders| covered.set(folders).is_ok()),
        events: Box::new(move |bytes| events.set(bytes).is_ok()),
    };
    let watch = hub.watch_within((share, &open.cred), dir, r.filter, recursive, rooms).await?;
    let between = usize::try_from(r.output_len).unwrap_or(usize::MAX);
    let mut slot = locked(&open.open_state.watching);
    let watching =
        slot.get_or_insert_with(|| Arc::new(Watching::new(watch, between, part))).clone();
    if open.is_closed() {
        return Err(Status::FILE_CLOSED);
    }
    Ok(watching)
}

/// Builds the response from the recorded events.
fn take(watching: &Watching, spelling: Spelling, limit: usize) -> Result<Answer, Status> {
    let taken = watching.take();
    if taken.events.is_empty() && !taken.overflow && taken.gone {
        return Err(Status::DELETE_PENDING);
    }
    let changes: Vec<Change> = taken.events.iter().map(|event| change(event, spelling)).collect();
    let list = if taken.overflow { None } else { Change::emit_list(&changes, limit) };
    let (status, buffer) = match list {
        Some(buffer) if !buffer.is_empty() => (Status::SUCCESS, buffer),
        _ => (Status::NOTIFY_ENUM_DIR, Vec::new()),
    };
    Ok(Answer::with_status(status, Response { buffer }.emit()))
}
