//! Opens an existing file (MS-FSA section 2.1.5.1.2).

use std::sync::Arc;

use vfs::names::Found;
use vfs::{Attr, Dos, Kind};

use super::attributes::{extended_attributes, kept_attributes, remove_extended_attributes};
use super::rights::{check_delete, check_folder, granted};
use super::sharing::{after_grace, give_back, share_with};
use super::{Opened, Walked, Wanted, action_on_existing, entry, implied};
use crate::dtyp::mask;
use crate::durable;
use crate::fscc::attribute;
use crate::lease;
use crate::open::{File, Open};
use crate::ops::bytes;
use crate::path_tracking;
use crate::request_context::RequestContext;
use crate::security::{self, Parent};
use crate::status::Status;
use crate::symlinks::{self, LinkFacts};
use crate::teardown;
use crate::wire::create::{Disposition, option};

/// Opens the file. Returns `None` if the caller must look the name up again, because a disconnected handle with delete-on-close was
/// closed and may have deleted the file. Such handles are closed only for users who may open the file.
pub(super) async fn open(
    cx: &RequestContext,
    w: &Wanted<'_>,
    at: &Walked,
    found: Found,
) -> Result<Option<Opened>, Status> {
    durable::note_sent_anew(cx, (w.request, &w.asked), found.node.id())?;
    let dos = found.node.dos(&found.attr).await?;
    let is_folder = !w.posix && dos.reparse.is_some_and(|kept| kept.is_dir);
    kind(w, &found.attr, is_folder, leads_to_folder(w, at, &found).await)?;
    if let Some(stream) = &w.path.stream {
        return super::stream::open(cx, w, at, found, stream).await;
    }
    let Found { node, attr, name } = found;
    let is_root = name.is_empty();
    let (nodes, place) = ((node.clone(), node.clone()), at.place(&name));
    let file = File::new(nodes, None, w.share.clone(), place, attr.nlink);
    path_tracking::look_for_doomed(&cx.server.opens, &file).await;
    if cx.server.opens.is_doomed(&file) {
        return Err(Status::DELETE_PENDING);
    }
    let folder = match w.has(option::DELETE_ON_CLOSE) {
        // A deleted folder is no error.
        true => at.dir.getattr().await.ok(),
        false => None,
    };
    let parent = (!is_root).then_some(Parent { dir: &at.dir, attr: folder });
    let mut granted = granted(w, &node, &attr, &dos, parent).await?;
    if at.link.is_some() {
        granted.access = symlinks::without_delete(granted.access);
    }
    attributes(w, &dos)?;
    if w.has(option::DELETE_ON_CLOSE) {
        check_delete(&granted, &attr, &dos)?;
        check_folder(folder.as_ref())?;
        let place = file.place();
        let file_ops = cx.server.namespace.by(None);
        file_ops.check_not_linked(w.share, &place.dir, &place.name)?;
    }
    if teardown::go_with_file(&cx.server, node.id()).await {
        return Ok(None);
    }
    let access = granted.access;
    let open = Arc::new(entry(cx, w, file, granted)?);
    // Truncation counts as a write, whatever access was requested.
    after_grace(cx, &open, access).await?;
    share_with(cx, &open, access | implied(w.disposition), w.disposition.cuts()).await?;
    match finish(cx, w, &open, attr, dos).await {
        Ok((attr, dos)) => {
            let action = action_on_existing(w.disposition);
            Ok(Some(Opened { open, attr, dos, action }))
        }
        Err(status) => {
            give_back(cx, &open);
            Err(status)
        }
    }
}

/// Returns whether an open of the same application on another machine was closed just now.
pub(super) async fn is_taken_over(
    cx: &RequestContext,
    w: &Wanted<'_>,
    at: &Walked,
    found: &Found,
) -> Result<bool, Status> {
    let Found { node, attr, name } = found;
    let stream = w.path.stream.clone();
    let (nodes, place) = ((node.clone(), node.clone()), at.place(name));
    let file = File::new(nodes, stream, w.share.clone(), place, attr.nlink);
    let parent = (!name.is_empty()).then_some(&at.dir);
    let readable = async {
        let all = security::maximal(w.tree, node, attr, parent).await?;
        Ok(all & mask::READ_DATA != 0)
    };
    durable::take_over(cx, &w.asked, &file, readable).await
}

/// Returns whether a link leads to a folder. If a directory is requested such a link opens as a link: Windows removes it this way.
async fn leads_to_folder(w: &Wanted<'_>, at: &Walked, found: &Found) -> bool {
    found.attr.kind == Kind::Symlink
        && w.is_dir()
        && LinkFacts::read(w.tree, w.share, &at.above, &found.node, w.posix).await.to_folder
}

/// Checks that the file has the requested kind and may already exist. `is_folder`: it is a reparse point that was made of a folder.
fn kind(w: &Wanted<'_>, attr: &Attr, is_folder: bool, to_folder: bool) -> Result<(), Status> {
    let is_dir = attr.kind == Kind::Dir || is_folder;
    if w.path.stream.is_some() {
        return if w.is_dir() { Err(Status::NOT_A_DIRECTORY) } else { Ok(()) };
    }
    if w.disposition == Disposition::Create {
        return Err(Status::OBJECT_NAME_COLLISION);
    }
    if is_dir && w.is_file() {
        return Err(Status::FILE_IS_A_DIRECTORY);
    }
    if !is_dir && w.is_dir() && !to_folder {
        return Err(if w.path.slash {
            Status::OBJECT_NAME_INVALID
        } else {
            Status::NOT_A_DIRECTORY
        });
    }
    if is_dir && w.disposition.cuts() {
        return Err(Status::INVALID_PARAMETER);
    }
    Ok(())
}

/// Refuses to overwrite a hidden or system file unless the request keeps these attributes (MS-FSA section 2.1.5.1.2).
fn attributes(w: &Wanted<'_>, dos: &Dos) -> Result<(), Status> {
    const KEPT: u32 = attribute::HIDDEN | attribute::SYSTEM;
    let has = dos.attributes.unwrap_or(0);
    if w.disposition.cuts() && has & KEPT & !w.request.attributes != 0 {
        return Err(Status::ACCESS_DENIED);
    }
    Ok(())
}

/// Truncates the file if requested, and adds the open to the table.
async fn finish(
    cx: &RequestContext,
    w: &Wanted<'_>,
    open: &Arc<Open>,
    attr: Attr,
    dos: Dos,
) -> Result<(Attr, Dos), Status> {
    if !w.disposition.cuts() {
        cx.server.opens.insert(open.clone())?;
        // A client whose cached data was recalled has written to the file meanwhile; a client that still caches may have newer
        // attributes than the server.
        let is_old = cx.has_waited() || !cx.file_ops(open).is_known(&open.node()?);
        return if is_old { super::now(cx, open).await } else { Ok((attr, dos)) };
    }
    let node = open.node()?;
    let file_ops = cx.file_ops(open);
    let mut attr = bytes::empty(cx, open, &node).await?;
    lease::listing_changed(&cx.server, open);
    let new = kept_attributes(w, false);
    let mut now = dos;
    now.attributes = new;
    if w.disposition == Disposition::Supersede {
        now.created = None;
    }
    if now != dos {
        file_ops.dos_set(w.share, &node, now).await?;
    }
    // The old named streams are removed along with the contents (MS-FSA section 2.1.5.1.2).
    for stream in vfs::streams::list(w.share, &node).await? {
        file_ops.stream_remove(w.share, &node, &stream.name).await?;
    }
    remove_extended_attributes(cx, &file_ops, w, (&node, &open.cred)).await?;
    extended_attributes(cx, &file_ops, w, (&node, &open.cred)).await?;
    // The tag describes the contents that are gone.
    let was_tagged = now.reparse.take().is_some();
    if was_tagged {
        file_ops.reparse_set(w.share, &node, None).await?;
    }
    if now != dos || w.asked.ea.is_some() {
        attr = node.getattr().await?;
    }
    cx.server.opens.insert(open.clone())?;
    Ok((attr, now))
}
