//! What is made because nothing stands under the name (MS-FSA section 2.1.5.1.1).

use std::sync::Arc;

use vfs::backend::Made;
use vfs::names::Found;
use vfs::{Attr, CreateHow, Dos, SetAttr, XattrHow};

use super::existing::{give_back, share_with};
use super::{Opened, Walked, Wanted, entry};
use crate::cx::Cx;
use crate::dtyp::{SecurityDescriptor, mask};
use crate::fscc::attribute;
use crate::fscc::ea::{self, FullEa};
use crate::open::{File, Open};
use crate::security::{self, Basis};
use crate::status::Status;
use crate::wire::create::{action, option};

/// Permission bits of what a client makes that says nothing about them, and those it has not where it inherits no list.
const FILE_MODE: u32 = 0o666;
/// The bits of a mode that tell the type. No type has all of them: so clients of the POSIX extensions say that they know no mode
/// (Linux, fs/smb/client, `ACL_NO_MODE`: of what `mknod` makes).
const KIND: u32 = 0o170000;
const DIR_MODE: u32 = 0o777;
const UMASK: u32 = 0o022;

/// Makes it and opens it.
pub(super) async fn make(cx: &Cx, w: &Wanted<'_>, at: &Walked) -> Result<Opened, Status> {
    let (_, last) = w.path.split_last().ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
    let is_dir = w.is_dir();
    if w.path.slash && !w.has(option::DIRECTORY_FILE) {
        return Err(Status::OBJECT_NAME_INVALID);
    }
    if w.share.read_only {
        return Err(Status::MEDIA_WRITE_PROTECTED);
    }
    let read_only = w.request.attributes & attribute::READONLY != 0;
    if read_only && w.has(option::DELETE_ON_CLOSE) {
        return Err(Status::CANNOT_DELETE);
    }
    crate::lease::check_new(cx, w.request.oplock_level, w.asked.lease.as_ref())?;
    let name = vfs::names::to_disk(last)?;
    let given = w.asked.sd.map(SecurityDescriptor::parse).transpose()?;
    let granted = granted(w)?;
    let dir_attr = match at.dir_attr {
        Some(seen) => seen,
        None => at.dir.getattr().await?,
    };
    let basis = security::may_add(w.tree, &at.dir, &dir_attr, is_dir).await?;
    let made = node(cx, w, at, &name, basis).await?;
    if let Some(stream) = &w.path.stream {
        let found = Found { node: made.node, attr: made.attr, name };
        return super::stream::open(cx, w, at, found, stream).await;
    }
    let place = at.place(&name);
    let file = File::new(made.node.clone(), made.node.clone(), None, w.share.clone(), place);
    let open = Arc::new(entry(cx, w, file, granted, basis)?);
    match furnish(cx, w, basis, &open, &made, given.as_ref()).await {
        Ok((attr, dos)) => Ok(Opened { open, attr, dos, action: action::CREATED }),
        Err(status) => {
            give_back(cx, &open);
            undo(cx, w, at, &open, &name, is_dir).await;
            Err(status)
        }
    }
}

/// Whoever makes something gets what it asks for, as far as the share allows it.
fn granted(w: &Wanted<'_>) -> Result<u32, Status> {
    let desired = mask::map_generic(w.request.access);
    let most = w.tree.maximal_access;
    if desired & mask::ACCESS_SYSTEM_SECURITY != 0 && w.tree.cred.uid != 0 {
        return Err(Status::PRIVILEGE_NOT_HELD);
    }
    let all = if desired & mask::MAXIMUM_ALLOWED != 0 { mask::FILE_ALL & most } else { 0 };
    let wanted = desired & !mask::MAXIMUM_ALLOWED;
    if wanted & !(most | mask::ACCESS_SYSTEM_SECURITY) != 0 {
        return Err(Status::ACCESS_DENIED);
    }
    Ok(wanted | all)
}

/// Makes the file or directory itself. Where the directory's descriptor allowed it, the gateway does it for the user.
async fn node(
    cx: &Cx,
    w: &Wanted<'_>,
    at: &Walked,
    name: &[u8],
    basis: Basis,
) -> Result<Made, Status> {
    let door = cx.server.namespace.by(None);
    let cred = security::acting(basis, &w.tree.cred);
    let is_dir = w.is_dir();
    let (mode, umask) = match w.asked.posix {
        Some(mode) if mode & KIND != KIND => (mode & 0o7777, 0),
        _ => (if is_dir { DIR_MODE } else { FILE_MODE }, UMASK),
    };
    let mut set = SetAttr { mode: Some(mode), umask, ..SetAttr::default() };
    if basis == Basis::List {
        (set.uid, set.gid) = (Some(w.tree.cred.uid), Some(w.tree.cred.gid));
    }
    Ok(if is_dir {
        door.mkdir(w.share, &at.dir, &cred, name, set).await?
    } else {
        door.create(w.share, &at.dir, &cred, name, CreateHow::Guarded, set).await?
    })
}

/// Gives a new file everything that the request brought for it, shares it and enters the open.
async fn furnish(
    cx: &Cx,
    w: &Wanted<'_>,
    basis: Basis,
    open: &Arc<Open>,
    made: &Made,
    given: Option<&SecurityDescriptor>,
) -> Result<(Attr, Dos), Status> {
    let (node, mut attr) = (&made.node, made.attr);
    share_with(cx, open, open.granted, false).await?;
    security::inherit(w.tree, basis, (node, &attr), given).await?;
    let attributes = kept_attributes(w, w.is_dir());
    let dos = Dos { attributes, ..Dos::default() };
    if dos.attributes.is_some() {
        // Not through the door: who watches was told of the file already.
        node.dos_set(dos).await?;
    }
    extended_attributes(cx, w, open).await?;
    reserve(w).await?;
    if dos.attributes.is_some() || given.is_some() || w.asked.ea.is_some() {
        attr = node.getattr().await?;
    }
    cx.server.opens.insert(open.clone())?;
    Ok((attr, dos))
}

/// Sets the extended attributes that the request brought.
pub(super) async fn extended_attributes(
    cx: &Cx,
    w: &Wanted<'_>,
    open: &Arc<Open>,
) -> Result<(), Status> {
    let Some(list) = w.asked.ea else { return Ok(()) };
    let door = cx.door(open);
    for ea in FullEa::parse_list(list)? {
        if !ea::is_name(&ea.name) {
            return Err(Status::INVALID_EA_NAME);
        }
        if !ea.value.is_empty() {
            let node = open.node()?;
            let how = XattrHow::Either;
            door.xattr_set(w.share, &node, &open.cred, &ea.name, &ea.value, how).await?;
        }
    }
    Ok(())
}

/// A file for which there is no room is not made. Nothing is kept for it: the volume gives storage when it is written.
async fn reserve(w: &Wanted<'_>) -> Result<(), Status> {
    let wanted = w.asked.allocation_size.unwrap_or(0);
    if wanted > 0 && wanted > w.share.backend.statfs().await?.avail_bytes {
        return Err(Status::DISK_FULL);
    }
    Ok(())
}

/// What is kept of the attributes that something is given when it is made or cut; `None` where it is what is shown of something
/// that nothing is kept of. A file always gets ARCHIVE (MS-FSA section 2.1.5.1.1). To clients of the POSIX extensions the mode says
/// who may write: Linux sends READONLY beside a mode that lets nobody, but its own user goes on with what he has opened.
pub(super) fn kept_attributes(w: &Wanted<'_>, is_dir: bool) -> Option<u32> {
    let given = w.request.attributes & !(if w.posix { attribute::READONLY } else { 0 });
    let shown = if is_dir { 0 } else { attribute::ARCHIVE };
    let kept = given & attribute::SETTABLE | shown;
    (kept != shown).then_some(kept)
}

/// Removes what was made for an open that did not come about.
async fn undo(cx: &Cx, w: &Wanted<'_>, at: &Walked, open: &Open, name: &[u8], is_dir: bool) {
    let door = cx.door(open);
    // Nobody is left to be told; a file that stays is empty.
    let _ = if is_dir {
        door.rmdir(w.share, &at.dir, &open.cred, name).await
    } else {
        door.unlink(w.share, &at.dir, &open.cred, name).await
    };
}
