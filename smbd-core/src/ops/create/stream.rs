//! Opens named streams of a file or directory (MS-FSA section 2.1.5.1).
//!
//! *Operation.* The file's access rights apply to its streams; each stream has separate data, share access and locks. Creating a
//! stream adds data to the file, so it requires the right to write to the file, whatever access the stream is opened with.

use std::sync::Arc;
use std::time::Duration;

use vfs::authority::Grant;
use vfs::names::Found;
use vfs::streams::{self, Stream};
use vfs::{Attr, Dos, VfsError};

use super::rights::{check_delete, granted_beside};
use super::sharing::{after_grace, give_back, share_with};
use super::{Opened, Walked, Wanted, action_on_existing, entry, implied};
use crate::dtyp::mask;
use crate::mac;
use crate::open::{File, Open, Opens};
use crate::ops::{bytes, stream_notice};
use crate::path_tracking;
use crate::request_context::RequestContext;
use crate::security::{Granted, Parent};
use crate::status::Status;
use crate::teardown;
use crate::wire::create::{Disposition, action, option};

/// Opens or creates the stream `name` of an existing file. Returns `None` as [`super::existing::open`] does.
pub(super) async fn open(
    cx: &RequestContext,
    w: &Wanted<'_>,
    at: &Walked,
    found: Found,
    name: &str,
) -> Result<Option<Opened>, Status> {
    let (base, attr) = (&found.node, &found.attr);
    let there = match streams::find(w.share, base, name).await {
        Err(VfsError::NotFound) => None,
        other => Some(other?),
    };
    let is_macos = cx.session()?.is_macos();
    let there = there.filter(|stream| mac::exists(name, stream.attr.size, is_macos));
    match (&there, w.disposition) {
        (Some(_), Disposition::Create) => return Err(Status::OBJECT_NAME_COLLISION),
        (None, d) if !d.makes() => return Err(Status::OBJECT_NAME_NOT_FOUND),
        _ => {}
    }
    let dos = base.dos(attr).await?;
    let parent = (!found.name.is_empty()).then(|| Parent::of(&at.dir));
    let writes = if there.is_none() { mask::WRITE_DATA } else { 0 };
    let rights = implied(w.disposition) | writes;
    let granted = granted_beside(w, (base, attr, &dos), parent, rights).await?;
    if w.has(option::DELETE_ON_CLOSE) {
        check_delete(&granted, attr, &dos)?;
    }
    if teardown::go_with_file(&cx.server, base.id()).await {
        return Ok(None);
    }
    let (stream, made) = match there {
        Some(stream) => (stream, false),
        // The volume may have it, without bytes.
        None => (new(cx, w, &found, name, granted.by_list.as_ref()).await?.0, true),
    };
    enter(cx, w, at, (found, dos), (stream, made), granted).await
}

/// Creates the stream `name` of a file that was just created. The file's maker gets the requested access.
pub(super) async fn make(
    cx: &RequestContext,
    w: &Wanted<'_>,
    at: &Walked,
    (found, dos): (Found, Dos),
    (name, maker): (&str, Option<&Grant>),
    granted: Granted,
) -> Result<Opened, Status> {
    let stream = new(cx, w, &found, name, maker).await?;
    let entered = enter(cx, w, at, (found, dos), stream, granted).await?;
    // Another client opened the new file and its stream, and left it without bytes: begin again with the file.
    entered.ok_or(Status::OBJECT_NAME_COLLISION)
}

/// Returns the stream, and whether it was created now. `file`: the access granted by the file's list or by its creation.
async fn new(
    cx: &RequestContext,
    w: &Wanted<'_>,
    found: &Found,
    name: &str,
    file: Option<&Grant>,
) -> Result<(Stream, bool), Status> {
    let file_ops = cx.server.namespace.by_smb(None).waiting(cx).granted(file, None).audited(cx);
    Ok(file_ops.stream_create(w.share, &found.node, &w.tree.cred, name).await?)
}

/// Registers share access for the stream and adds its open to the table. The caller must look the stream up again if the
/// result is empty: another client has left the stream without bytes, so that it was removed.
async fn enter(
    cx: &RequestContext,
    w: &Wanted<'_>,
    at: &Walked,
    (found, dos): (Found, Dos),
    (stream, made): (Stream, bool),
    granted: Granted,
) -> Result<Option<Opened>, Status> {
    let Found { node: base, attr, name } = found;
    let (place, nodes) = (at.place(&name), (stream.node.clone(), base));
    let file = File::new(nodes, Some(stream.name.clone()), w.share.clone(), place, attr.nlink);
    path_tracking::look_for_doomed(&cx.server.opens, &file).await;
    if cx.server.opens.is_doomed(&file) {
        return if has_left(cx, &file).await? { Ok(None) } else { Err(Status::DELETE_PENDING) };
    }
    let access = granted.access;
    let open = Arc::new(entry(cx, w, file, granted)?);
    let cuts = w.disposition.cuts() && !made;
    after_grace(cx, &open, access).await?;
    share_with(cx, &open, access | implied(w.disposition), cuts).await?;
    let now = match finish(cx, &open, &stream, cuts).await {
        Ok(Some(now)) => now,
        ended => {
            give_back(cx, &open);
            return ended.map(|_| None);
        }
    };
    let action = if made { action::CREATED } else { action_on_existing(w.disposition) };
    // A stream has its file's attributes but its own size.
    let size = mac::shown_size(&stream.name, now.size, open.open_state.by_macos);
    let attr = Attr { size, used: now.used, kind: now.kind, ..attr };
    Ok(Some(Opened { open, attr, dos, action }))
}

/// Returns the stream's attributes. An empty result has the meaning of an empty one of [`enter`].
async fn finish(
    cx: &RequestContext,
    open: &Arc<Open>,
    stream: &Stream,
    cuts: bool,
) -> Result<Option<Attr>, Status> {
    let mut attr = stream.attr;
    if open.file()?.special().is_some() {
        // The share access that this open has by now keeps the stream. It may have been removed before.
        if has_left(cx, open.file()?).await? {
            return Ok(None);
        }
        attr = match stream.node.getattr().await {
            Ok(now) if now.nlink > 0 => now,
            Ok(_) | Err(VfsError::NotFound | VfsError::Stale) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
    }
    if cuts {
        attr = bytes::empty(cx, open, &stream.node).await?;
        stream_notice::changed(cx, open.file()?, Some(stream.attr.size), 0).await;
    } else if cx.has_waited() {
        attr = stream.node.getattr().await?;
    }
    cx.server.opens.insert(open.clone())?;
    Ok(Some(attr))
}

/// Waits until a stream that a client left without bytes has been removed. Returns false at once if it is not being removed.
pub(in crate::ops) async fn has_left(cx: &RequestContext, file: &File) -> Result<bool, Status> {
    /// Longest wait. The caller tries again, and fails if the removal hangs.
    const WAIT_MAX: Duration = Duration::from_secs(1);
    let opens = &cx.server.opens;
    if !is_leaving(opens, file) {
        return Ok(false);
    }
    let left = async {
        loop {
            let mut removed = std::pin::pin!(cx.server.namespace.arbiter().returned());
            removed.as_mut().enable();
            if !is_leaving(opens, file) {
                return;
            }
            removed.await;
        }
    };
    // After the longest wait the caller finds it again.
    let _ = cx.or_cancelled(tokio::time::timeout(WAIT_MAX, left)).await?;
    Ok(true)
}

/// Returns whether a stream of this name is being removed because it was left without bytes.
fn is_leaving(opens: &Opens, file: &File) -> bool {
    let base = file.base().id();
    let has_name = |open: &Arc<Open>| open.file().is_ok_and(|other| other.same_name(file));
    opens.doomed(base).iter().any(|open| open.goes_if_empty() && has_name(open))
        && !opens.of_node(base).iter().any(has_name)
}
