//! Creates a file or directory if the name does not exist (MS-FSA section 2.1.5.1.1).

use std::sync::{Arc, OnceLock};

use vfs::authority::Grant;
use vfs::backend::{Made, NodeRef};
use vfs::names::Found;
use vfs::{Attr, CreateHow, Dos, SetAttr};

use super::attributes::{extended_attributes, kept_attributes};
use super::sharing::{give_back, share_with};
use super::{Opened, Walked, Wanted, entry};
use crate::dtyp::{SecurityDescriptor, mask};
use crate::fscc::attribute;
use crate::lease;
use crate::open::{File, Open};
use crate::ops::pipe_host::machine;
use crate::owners;
use crate::privileges::Privileges;
use crate::request_context::RequestContext;
use crate::security::{self, Granted};
use crate::status::Status;
use crate::wire::create::{action, option};
use crate::wire::query_info::security_information as part;

/// Default permission bits of new files. The bits of [`UMASK`] are removed unless an access control list is inherited.
const FILE_MODE: u32 = 0o666;
/// Modes that mean "no mode" for files made by `mknod` on clients with the POSIX extensions: Linux sends `ACL_NO_MODE`, which has
/// 16 bits (fs/smb/client).
const NO_MODE: [u32; 2] = [u32::MAX, u16::MAX as u32];
const DIR_MODE: u32 = 0o777;
const UMASK: u32 = 0o022;

/// Creates the file or directory and opens it.
pub(super) async fn make(
    cx: &RequestContext,
    w: &Wanted<'_>,
    at: &Walked,
) -> Result<Opened, Status> {
    let (_, last) = w.path.split_last().ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
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
    lease::check_new(cx, w.request.oplock_level, w.asked.lease.as_ref())?;
    let name = w.spelling().to_disk(last)?;
    let mut given =
        w.asked.sd.map(|sd| cx.parse_part(sd, SecurityDescriptor::parse)).transpose()?;
    if let Some(sd) = &mut given {
        security::know_accounts(sd, &machine(&cx.server.settings().server_guid));
    }
    let owners = match given.take_if(|sd| w.posix && security::tells_mode(sd)) {
        Some(sd) => owners_of(w, at, &sd).await?,
        None => (None, None),
    };
    let granted = granted(w)?;
    if w.has(option::DELETE_ON_CLOSE) && granted & mask::DELETE == 0 {
        return Err(Status::ACCESS_DENIED);
    }
    let mut allowed = may_make(cx, w, at).await?;
    if let Some(sd) = &given {
        let caller = (&w.tree.cred, &w.beyond);
        owners::learn_new(cx, caller, part::OWNER | part::GROUP, sd).await?;
        // The folder may have changed meanwhile.
        if cx.has_waited() {
            allowed = may_make(cx, w, at).await?;
        }
    }
    let (folder, listed) = allowed;
    let how = (folder.as_ref(), listed, given.as_ref());
    let made = node(cx, w, at, &name, how, owners).await?;
    let by_grant = listed || w.beyond.may(Privileges::RESTORE);
    if let Some(stream) = &w.path.stream {
        return file_of(cx, w, at, (made, name), (stream, granted, listed, by_grant)).await;
    }
    let (place, nodes) = (at.place(&name), (made.node.clone(), made.node.clone()));
    let file = File::new(nodes, None, w.share.clone(), place, made.attr.nlink);
    let granted = of_maker(&made, granted, by_grant);
    let mut open = entry(cx, w, file, granted)?;
    // The maker's access does not come from an access control list.
    open.deletes_by_list = false;
    let open = Arc::new(open);
    match furnish(cx, w, listed, &open, &made).await {
        Ok((attr, dos)) => Ok(Opened { open, attr, dos, action: action::CREATED }),
        Err(status) => {
            give_back(cx, &open);
            cx.file_ops(&open).unmake(w.share, &at.dir, &w.tree.cred, &name, &made).await;
            Err(status)
        }
    }
}

/// Returns the owner and group for a new file in a descriptor that tells no list ([`security::tells_mode`]): only the superuser
/// makes files of other users, as by NFS. In a set-group-id folder the folder's group applies.
async fn owners_of(
    w: &Wanted<'_>,
    at: &Walked,
    sd: &SecurityDescriptor,
) -> Result<(Option<u32>, Option<u32>), Status> {
    const SET_GROUP_ID: u32 = 0o2000;
    if w.tree.cred.uid != 0 {
        return Ok((None, None));
    }
    let (uid, gid) = security::numbers(&w.tree.cred, sd);
    let inherits = at.dir.getattr().await?.mode & SET_GROUP_ID != 0;
    Ok((uid, gid.filter(|_| !inherits)))
}

/// Checks that the caller may make the file or directory in its folder, as the folder is now ([`security::may_create`]).
async fn may_make(
    cx: &RequestContext,
    w: &Wanted<'_>,
    at: &Walked,
) -> Result<(Option<Grant>, bool), Status> {
    let dir_attr = match at.dir_attr.filter(|_| !cx.has_waited()) {
        Some(seen) => seen,
        None => at.dir.getattr().await?,
    };
    security::may_create(w.tree, &at.dir, &dir_attr, (w.is_dir(), &w.beyond)).await
}

/// Continues with a file that was created for a stream. The attributes in the request apply to the file, not to the stream (MS-FSA
/// section 2.1.5.1.1). If the stream cannot be created, the file is removed.
async fn file_of(
    cx: &RequestContext,
    w: &Wanted<'_>,
    at: &Walked,
    (made, name): (Made, Vec<u8>),
    (stream, access, listed, by_grant): (&str, u32, bool, bool),
) -> Result<Opened, Status> {
    let (granted, base) = (of_maker(&made, access, by_grant), made.node.clone());
    let maker = Grant::of_maker(&made, mask::WRITE_DATA);
    let opened = match dress(cx, w, listed, &made).await {
        Ok((attr, dos)) => {
            let found = Found { node: base, attr, name: name.clone() };
            super::stream::make(cx, w, at, (found, dos), (stream, maker.as_ref()), granted).await
        }
        Err(status) => Err(status),
    };
    if opened.is_err() {
        let file_ops = cx.server.namespace.by_smb(None);
        file_ops.unmake(w.share, &at.dir, &w.tree.cred, &name, &made).await;
    }
    opened
}

/// Returns the access of the open that created a file. In a folder with an access control list the new file also has a list, which
/// may grant its maker less than that; and a restored file may get another owner.
fn of_maker(made: &Made, access: u32, by_grant: bool) -> Granted {
    let by_list = Grant::of_maker(made, access).filter(|_| by_grant);
    Granted { access, by_list, by_privilege: 0 }
}

/// Returns the maker's access: everything requested, as far as the share allows it.
fn granted(w: &Wanted<'_>) -> Result<u32, Status> {
    let desired = mask::map_generic(w.request.access);
    let most = w.tree.maximal_access;
    if desired & mask::ACCESS_SYSTEM_SECURITY != 0
        && w.tree.cred.uid != 0
        && w.beyond.give(mask::ACCESS_SYSTEM_SECURITY, false) == 0
    {
        return Err(Status::PRIVILEGE_NOT_HELD);
    }
    let all = if desired & mask::MAXIMUM_ALLOWED != 0 { mask::FILE_ALL & most } else { 0 };
    let wanted = desired & !mask::MAXIMUM_ALLOWED;
    if wanted & !(most | mask::ACCESS_SYSTEM_SECURITY) != 0 {
        return Err(Status::ACCESS_DENIED);
    }
    Ok(wanted | all)
}

/// Returns the requested permission bits, and those to remove if no access control list is inherited.
fn mode(w: &Wanted<'_>) -> (u32, u32) {
    match w.asked.posix {
        Some(mode) if !NO_MODE.contains(&mode) => (mode & 0o7777, 0),
        _ => (if w.is_dir() { DIR_MODE } else { FILE_MODE }, UMASK),
    }
}

/// Creates the file or directory itself as the user. `folder`: the access granted by the directory's list; `given`: the security
/// descriptor for the new file ([`security::ListOf`]).
async fn node(
    cx: &RequestContext,
    w: &Wanted<'_>,
    at: &Walked,
    name: &[u8],
    (folder, is_listed, given): (Option<&Grant>, bool, Option<&SecurityDescriptor>),
    (uid, gid): (Option<u32>, Option<u32>),
) -> Result<Made, Status> {
    let list = security::list_of_new(is_listed, given);
    let (mode, umask) = mode(w);
    let refused = OnceLock::new();
    let (tree, share, asked) = (w.tree, w.share, &w.beyond);
    let giver = security::ListOf { tree, share, is_listed, mode, given, asked, refused };
    let parent = lease::parent_of_new(cx, w.request.oplock_level, w.asked.lease.as_ref(), &at.dir);
    let file_ops = cx.server.namespace.by_smb(None).waiting(cx).from_parent(parent).audited(cx);
    let file_ops = file_ops.with_deletes().granted(None, folder).with_list(list, &giver);
    let file_ops = file_ops.having_read(at.dir_attr);
    let cred = &w.tree.cred;
    let set = SetAttr { mode: Some(mode), umask, uid, gid, ..SetAttr::default() };
    let made = match w.is_dir() {
        true => file_ops.mkdir(w.share, &at.dir, cred, name, set).await,
        false => file_ops.create(w.share, &at.dir, cred, name, CreateHow::Guarded, set).await,
    };
    made.map_err(|e| giver.refused.into_inner().unwrap_or_else(|| e.into()))
}

/// Registers share access for a new file, applies the attributes in the request, and adds the open to the table.
async fn furnish(
    cx: &RequestContext,
    w: &Wanted<'_>,
    listed: bool,
    open: &Arc<Open>,
    made: &Made,
) -> Result<(Attr, Dos), Status> {
    share_with(cx, open, open.granted, false).await?;
    let shown = dress(cx, w, listed, made).await?;
    cx.server.opens.insert(open.clone())?;
    Ok(shown)
}

/// Applies everything that the request specifies for a new file or directory.
async fn dress(
    cx: &RequestContext,
    w: &Wanted<'_>,
    listed: bool,
    made: &Made,
) -> Result<(Attr, Dos), Status> {
    let (node, mut attr) = (&made.node, made.attr);
    let attributes = kept_attributes(w, w.is_dir());
    let dos = Dos { attributes, ..Dos::default() };
    if dos.attributes.is_some() {
        // `FileOps` would notify watchers again, who already know of the file.
        node.dos_set(dos).await?;
    }
    let maker = Grant::of_maker(made, mask::WRITE_EA);
    let file_ops =
        cx.server.namespace.by_smb(None).granted(maker.as_ref().filter(|_| listed), None);
    extended_attributes(cx, &file_ops, w, (node, &w.tree.cred)).await?;
    reserve(w, node).await?;
    file_ops.make_durable(w.share, &[node]).await?;
    if dos.attributes.is_some() || w.asked.ea.is_some() {
        attr = node.getattr().await?;
    }
    Ok((attr, dos))
}

/// Fails if the volume has no room for the allocation size. Reserves no storage, since the volume allocates on write.
async fn reserve(w: &Wanted<'_>, node: &NodeRef) -> Result<(), Status> {
    let wanted = w.asked.allocation_size.unwrap_or(0);
    if wanted > 0 && wanted > w.share.backend.statfs_of(node).await?.avail_bytes {
        return Err(Status::DISK_FULL);
    }
    Ok(())
}
