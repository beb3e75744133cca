//! Whoever watches a directory is told that the data of a named stream below it has changed: FILE_ACTION_MODIFIED_STREAM
//! (MS-FSCC section 2.7.1). The kernel tells of files only.

use vfs::watch::what;

use crate::open::File;
use crate::request_context::RequestContext;

/// The size of a stream before it is changed, when anybody wants to know of changes; nothing is asked of the file system else.
pub(super) async fn size_before(cx: &RequestContext, file: &File) -> Option<u64> {
    if !file.is_stream() || !cx.server.namespace.watches().is_watched(file.share.id) {
        return None;
    }
    file.node().getattr().await.ok().map(|a| a.size)
}

/// The stream that had the size `before` was written to ([`what::STREAM_WRITE`]), or only cut or lengthened (0).
pub(super) async fn changed(cx: &RequestContext, file: &File, before: Option<u64>, kind: u32) {
    let (Some(name), Some(before)) = (file.stream(), before) else { return };
    let is_other = file.node().getattr().await.is_ok_and(|a| a.size != before);
    let kind = if is_other { kind | what::STREAM_SIZE } else { kind };
    if kind != 0 {
        cx.server.namespace.by(None).stream_changed(&file.share, &file.base(), &name, kind).await;
    }
}
