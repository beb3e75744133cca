//! Times that stay as an open holds them, and those of a file whose stream was written (MS-FSA section 2.1.5.15.2).

use tokio::sync::MutexGuard;
use vfs::dos::Changed;
use vfs::types::{Cred, SetAttr, SetTime, Time};
use vfs::{VfsError, VfsResult};

use crate::dtyp::{FileTime, time};
use crate::open::{File, Open};
use crate::request_context::RequestContext;
use crate::status::Status;

/// A change time to show instead of the host's, which moves when the record is written: until a moment from now.
pub(super) fn change_record(cx: &RequestContext, shown: Time) -> Changed {
    /// 20 ms: the host's clock for files ticks every 4 to 10.
    const MOMENT: u64 = 200_000;
    let until = time::time(FileTime(cx.server.filetime() + MOMENT)).unwrap_or_default();
    Changed { shown, until }
}

/// The turn of a change through an open that holds the last-write time; `None` for others, which need none. Such an open leaves the
/// time as it finds it, so that its changes come one after the other, each until it has [given the time back](give_times_back): one
/// must not find the time of another.
pub(super) async fn turn(open: &Open) -> Option<MutexGuard<'_, ()>> {
    if !holds_write_time(open) {
        return None;
    }
    Some(open.open_state.timed.lock().await)
}

/// Before an open changes bytes: one that holds the last-write time, in its [`turn`], holds the one that it finds, since another
/// may have written meanwhile.
pub(super) async fn check_write(open: &Open, file: &File, in_turn: bool) -> VfsResult<()> {
    open.open_state.note_written();
    if in_turn && holds_write_time(open) {
        let attr = file.base().getattr().await?;
        open.open_state.hold(Some(attr.mtime), None);
    }
    Ok(())
}

fn holds_write_time(open: &Open) -> bool {
    open.open_state.held().is_some_and(|held| held.write.is_some())
}

/// Gives the times back that this open holds, after it has changed the file.
pub(super) async fn give_times_back(cx: &RequestContext, open: &Open) -> Result<(), Status> {
    let Some(held) = open.open_state.held() else { return Ok(()) };
    let file = open.file()?;
    let file_ops = cx.file_ops(open);
    if let Some(mtime) = held.write {
        let set = SetAttr { mtime: Some(SetTime::At(mtime)), ..SetAttr::default() };
        // As the gateway: whether the open may set such a time was asked when it began to hold one.
        file_ops.setattr(&file.share, &file.base(), &Cred::root(), set, true).await?;
    }
    if let Some(shown) = held.change {
        let attr = file.base().getattr().await?;
        let mut dos = file.base().dos(&attr).await?;
        dos.changed = Some(change_record(cx, shown));
        file_ops.dos_set(&file.share, &file.base(), dos).await?;
    }
    Ok(())
}

/// A file of which a stream was written gets the time of that: to the host a stream is a file of its own. Errors: those of storage.
pub(super) async fn at_close(cx: &RequestContext, open: &Open) -> VfsResult<()> {
    let Ok(file) = open.file() else { return Ok(()) };
    let written = file.is_stream() && open.open_state.has_written();
    if !written || open.open_state.held().is_some_and(|h| h.write.is_some()) {
        return Ok(());
    }
    let file_ops = cx.server.namespace.by_smb(Some(open.party.requester()));
    let set = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
    let done = file_ops.setattr(&file.share, &file.base(), &Cred::root(), set, true).await;
    match done.map(drop) {
        Err(VfsError::Io | VfsError::NoSpace | VfsError::Quota) | Ok(()) => done.map(drop),
        Err(why) => {
            tracing::debug!("a last-write time was not set at the close: {why}");
            Ok(())
        }
    }
}
