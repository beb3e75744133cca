//! Times that an open has frozen, and times of files whose streams were written (MS-FSA section 2.1.5.15.2).

use tokio::sync::MutexGuard;
use vfs::dos::Changed;
use vfs::types::{Cred, SetAttr, SetTime, Time};
use vfs::{VfsError, VfsResult};

use crate::dtyp::{FileTime, time};
use crate::open::{File, Open};
use crate::request_context::RequestContext;
use crate::status::Status;

/// Returns a record that shows this change time instead of the host's, which moves when the record itself is written. The record
/// holds until shortly after now.
pub(super) fn change_record(cx: &RequestContext, shown: Time) -> Changed {
    /// 20 ms in units of 100 ns. The host's file clock ticks every 4 to 10 ms.
    const MOMENT: u64 = 200_000;
    let until = time::time(FileTime(cx.server.filetime() + MOMENT)).unwrap_or_default();
    Changed { shown, until }
}

/// Acquires the lock for a change through an open that freezes the last-write time; other opens need no lock and get `None`.
/// Changes through such an open run one at a time until each has [restored the time](give_times_back), so that a change never reads
/// the temporary time of another.
pub(super) async fn turn(open: &Open) -> Option<MutexGuard<'_, ()>> {
    if !holds_write_time(open) {
        return None;
    }
    Some(open.open_state.timed.lock().await)
}

/// Called before an open changes bytes. If it freezes the last-write time and holds the [`turn`] lock, records the current time to
/// restore, since another open may have written meanwhile.
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

/// Restores the times that this open has frozen, after it has changed the file.
pub(super) async fn give_times_back(cx: &RequestContext, open: &Open) -> Result<(), Status> {
    let Some(held) = open.open_state.held() else { return Ok(()) };
    let file = open.file()?;
    let file_ops = cx.file_ops(open);
    if let Some(mtime) = held.write {
        let set = SetAttr { mtime: Some(SetTime::At(mtime)), ..SetAttr::default() };
        // Uses the gateway's rights: the open's right to set the time was checked when the time was frozen.
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

/// At the close of a written stream, updates the file's last-write time: to the host a stream is a separate file. Returns only
/// errors from storage.
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
