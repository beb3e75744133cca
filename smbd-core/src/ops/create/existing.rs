//! What stands under the name already (MS-FSA section 2.1.5.1.2).

use std::sync::Arc;

use vfs::names::Found;
use vfs::{Attr, Dos, Kind, NodeRef};

use super::{Opened, Walked, Wanted, action_on_existing, entry, implied};
use crate::dtyp::mask;
use crate::durable;
use crate::fscc::attribute;
use crate::lease;
use crate::open::{File, Open};
use crate::path_tracking;
use crate::request_context::RequestContext;
use crate::security::{self, Granted};
use crate::status::Status;
use crate::teardown;
use crate::wire::create::{Disposition, option, share};

/// Opens it. `None` where the name is to be looked up again: a handle that waited for its client was closed, and may have taken the
/// file with it. That is done for a create whose user may open the file, and for no other.
pub(super) async fn open(
    cx: &RequestContext,
    w: &Wanted<'_>,
    at: &Walked,
    found: Found,
) -> Result<Option<Opened>, Status> {
    kind(w, &found.attr)?;
    if let Some(stream) = &w.path.stream {
        return super::stream::open(cx, w, at, found, stream).await;
    }
    let Found { node, attr, name } = found;
    let is_root = name.is_empty();
    let file = File::new(node.clone(), node.clone(), None, w.share.clone(), at.place(&name));
    path_tracking::look_for_doomed(&cx.server.opens, &file).await;
    if cx.server.opens.is_doomed(&file) {
        return Err(Status::DELETE_PENDING);
    }
    let dos = node.dos(&attr).await?;
    let granted = granted(w, &node, &attr, &dos, (!is_root).then_some(&at.dir)).await?;
    attributes(w, &dos)?;
    if w.has(option::DELETE_ON_CLOSE) {
        check_delete(&granted, &attr, &dos)?;
        check_folder(&at.dir).await?;
    }
    if teardown::go_with_file(&cx.server, node.id()).await {
        return Ok(None);
    }
    let access = granted.access;
    let open = Arc::new(entry(cx, w, file, granted)?);
    // Cutting a file is writing to it, whatever was asked for.
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

/// Whether the same application had it open on another machine, and that was closed now.
pub(super) async fn is_taken_over(
    cx: &RequestContext,
    w: &Wanted<'_>,
    at: &Walked,
    found: &Found,
) -> Result<bool, Status> {
    let Found { node, attr, name } = found;
    let stream = w.path.stream.clone();
    let file = File::new(node.clone(), node.clone(), stream, w.share.clone(), at.place(name));
    let parent = (!name.is_empty()).then_some(&at.dir);
    let readable = async {
        let all = security::maximal(w.tree, node, attr, parent).await?;
        Ok(all & mask::READ_DATA != 0)
    };
    durable::take_over(cx, &w.asked, &file, readable).await
}

/// It is of the kind that is meant, and there may be something there.
fn kind(w: &Wanted<'_>, attr: &Attr) -> Result<(), Status> {
    let is_dir = attr.kind == Kind::Dir;
    if w.path.stream.is_some() {
        return if w.is_dir() { Err(Status::NOT_A_DIRECTORY) } else { Ok(()) };
    }
    if w.disposition == Disposition::Create {
        return Err(Status::OBJECT_NAME_COLLISION);
    }
    if is_dir && w.is_file() {
        return Err(Status::FILE_IS_A_DIRECTORY);
    }
    if !is_dir && w.is_dir() {
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

/// What the user gets of what it wants.
pub(super) async fn granted(
    w: &Wanted<'_>,
    node: &NodeRef,
    attr: &Attr,
    dos: &Dos,
    parent: Option<&NodeRef>,
) -> Result<Granted, Status> {
    const WRITES: u32 = mask::WRITE_DATA | mask::APPEND_DATA;
    let implied = implied(w.disposition);
    let desired = mask::map_generic(w.request.access);
    let mut got = security::granted(w.tree, node, attr, parent, desired | implied).await?;
    let read_only = attr.kind != Kind::Dir
        && (dos.attributes.unwrap_or(0) & attribute::READONLY != 0 || w.share.read_only);
    if read_only {
        if (desired | implied) & WRITES != 0 {
            return Err(Status::ACCESS_DENIED);
        }
        got.access &= !(WRITES | mask::DELETE_CHILD);
    }
    if desired & mask::MAXIMUM_ALLOWED == 0 {
        got.access &= desired;
    }
    Ok(got)
}

/// A file that is cut must not be hidden or a system's unless it stays so (MS-FSA section 2.1.5.1.2).
fn attributes(w: &Wanted<'_>, dos: &Dos) -> Result<(), Status> {
    const KEPT: u32 = attribute::HIDDEN | attribute::SYSTEM;
    let has = dos.attributes.unwrap_or(0);
    if w.disposition.cuts() && has & KEPT & !w.request.attributes != 0 {
        return Err(Status::ACCESS_DENIED);
    }
    Ok(())
}

/// It may be removed when it closes (MS-FSA section 2.1.5.1.2).
pub(super) fn check_delete(granted: &Granted, attr: &Attr, dos: &Dos) -> Result<(), Status> {
    if granted.access & mask::DELETE == 0 {
        return Err(Status::ACCESS_DENIED);
    }
    let read_only = dos.attributes.unwrap_or(0) & attribute::READONLY != 0;
    if attr.sealed || read_only && attr.kind != Kind::Dir {
        return Err(Status::CANNOT_DELETE);
    }
    Ok(())
}

/// Refuses the removal of a name in a folder that is immutable or append-only. A folder that is gone seals nothing.
pub(in crate::ops) async fn check_folder(dir: &NodeRef) -> Result<(), Status> {
    let sealed = dir.getattr().await.is_ok_and(|attr| attr.sealed);
    if sealed { Err(Status::CANNOT_DELETE) } else { Ok(()) }
}

/// After a restart clients of NFS reclaim what they held: until they have, nobody else opens a file that was there.
pub(super) async fn after_grace(
    cx: &RequestContext,
    open: &Open,
    access: u32,
) -> Result<(), Status> {
    if Open::opening(access, open.shared, false).attributes_only {
        return Ok(());
    }
    let wait = cx.server.namespace.arbiter().after_grace(Some(cx));
    Ok(cx.or_cancelled(wait).await??)
}

/// Asks `state` for the sharing, and waits for what others must give back first.
pub(super) async fn share_with(
    cx: &RequestContext,
    open: &Arc<Open>,
    access: u32,
    overwrites: bool,
) -> Result<(), Status> {
    delete_sharing(cx, open, access)?;
    crate::durable::check_waiting(&cx.server, open, access)?;
    let arbiter = cx.server.namespace.arbiter();
    let node = open.node()?.id();
    let opening = Open::opening(access, open.shared, overwrites);
    let wait = arbiter.open_waiting(node, &open.party, opening, Some(cx));
    cx.or_cancelled(wait).await??;
    let own = Open::opening(open.granted, open.shared, false).share;
    if own != opening.share {
        arbiter.state().narrow(node, open.party.holder, own);
    }
    Ok(())
}

/// Whoever deletes a file deletes its streams, so that all who have one open must agree, while `state` knows each stream by itself
/// (MS-FSA section 2.1.5.1.2.2).
fn delete_sharing(cx: &RequestContext, open: &Arc<Open>, access: u32) -> Result<(), Status> {
    const SHARES: u32 =
        mask::READ_DATA | mask::EXECUTE | mask::WRITE_DATA | mask::APPEND_DATA | mask::DELETE;
    let conflict = |of_file: u32, of_stream: u32, shared: u32| {
        of_file & mask::DELETE != 0 && of_stream & SHARES != 0 && shared & share::DELETE == 0
    };
    let file = open.file()?;
    for other in cx.server.opens.of_node(file.base().id()) {
        let denied = match (file.is_stream(), other.file()?.is_stream()) {
            (false, true) => conflict(access, other.granted, other.shared),
            (true, false) => conflict(other.granted, access, open.shared),
            _ => false,
        };
        if denied {
            return Err(Status::SHARING_VIOLATION);
        }
    }
    Ok(())
}

/// Takes back what was begun for an open that did not come about.
pub(super) fn give_back(cx: &RequestContext, open: &Arc<Open>) {
    if let Ok(node) = open.node() {
        cx.server.namespace.arbiter().close(node.id(), open.party.holder);
    }
}

/// Cuts it where that was asked for, and enters the open.
async fn finish(
    cx: &RequestContext,
    w: &Wanted<'_>,
    open: &Arc<Open>,
    attr: Attr,
    dos: Dos,
) -> Result<(Attr, Dos), Status> {
    if !w.disposition.cuts() {
        cx.server.opens.insert(open.clone())?;
        // Whoever had to give something back has written what it had only cached; who need not may know better.
        let is_old = cx.has_waited() || !cx.file_ops(open).is_known(&open.node()?);
        return if is_old { super::now(cx, open).await } else { Ok((attr, dos)) };
    }
    let node = open.node()?;
    let file_ops = cx.file_ops(open);
    let (_, mut attr) = file_ops.empty(w.share, &node, &open.cred).await?;
    lease::listing_changed(&cx.server, open);
    let new = super::new::kept_attributes(w, false);
    let mut now = dos;
    now.attributes = new;
    if w.disposition == Disposition::Supersede {
        now.created = None;
    }
    if now != dos {
        file_ops.dos_set(w.share, &node, now).await?;
    }
    // Named streams go with the old contents (MS-FSA section 2.1.5.1.2). Extended attributes should, too, but they are those of the
    // host: a program that empties a file over NFS or on Linux' mount of SMB loses none, and Samba keeps them.
    for stream in vfs::streams::list(w.share, &node).await? {
        file_ops.stream_remove(w.share, &node, &stream.name).await?;
    }
    super::new::extended_attributes(cx, &file_ops, w, (&node, &open.cred)).await?;
    if now != dos || w.asked.ea.is_some() {
        attr = node.getattr().await?;
    }
    cx.server.opens.insert(open.clone())?;
    Ok((attr, now))
}
