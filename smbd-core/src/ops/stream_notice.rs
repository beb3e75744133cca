//! Notifies watchers of a directory about changes to named streams in it: FILE_ACTION_MODIFIED_STREAM (MS-FSCC section 2.7.1). The
//! kernel reports only changes to files.

use vfs::watch::what;

use crate::open::File;
use crate::request_context::RequestContext;

/// Returns the size of a stream before a change if a watcher exists, else `None` without asking the file system.
pub(super) async fn size_before(cx: &RequestContext, file: &File) -> Option<u64> {
    if !file.is_stream() || !cx.server.namespace.watches().is_watched(file.share.id) {
        return None;
    }
    file.node().getattr().await.ok().map(|a| a.size)
}

/// Reports a change to a stream whose size was `before`: a write ([`what::STREAM_WRITE`]), or only a change of its size (0).
pub(super) async fn changed(cx: &RequestContext, file: &File, before: Option<u64>, kind: u32) {
    let (Some(name), Some(before)) = (file.stream(), before) else { return };
    let is_other = file.node().getattr().await.is_ok_and(|a| a.size != before);
    let kind = if is_other { kind | what::STREAM_SIZE } else { kind };
    if kind != 0 {
        cx.server.namespace.by(None).stream_changed(&file.share, &file.base(), &name, kind).await;
    }
}
