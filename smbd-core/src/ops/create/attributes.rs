//! Attributes that a request specifies for a new or overwritten file.

use vfs::namespace::FileOps;
use vfs::{Cred, NodeRef, VfsError, XattrHow};

use super::Wanted;
use crate::fscc::attribute;
use crate::fscc::ea::{self, FullEa};
use crate::request_context::RequestContext;
use crate::status::Status;

/// Removes the extended attributes of an overwritten file along with its contents (MS-FSA section 2.1.5.1.2, NTFS). Keeps them for
/// clients with the POSIX extensions, which overwrite when a program truncates a file.
pub(super) async fn remove_extended_attributes(
    cx: &RequestContext,
    file_ops: &FileOps<'_>,
    w: &Wanted<'_>,
    (node, cred): (&NodeRef, &Cred),
) -> Result<(), Status> {
    if cx.conn.negotiated().is_some_and(|n| n.posix) {
        return Ok(());
    }
    // The contents are gone already, so a caller without a right to the attributes leaves them.
    let names = match node.xattr_list(cred).await {
        Err(VfsError::NotSupported | VfsError::Access | VfsError::Perm) => return Ok(()),
        names => names?,
    };
    for name in names {
        match file_ops.xattr_remove(w.share, node, cred, &name).await {
            Ok(_) | Err(VfsError::NoXattr | VfsError::Access | VfsError::Perm) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Sets the extended attributes in the request.
pub(super) async fn extended_attributes(
    cx: &RequestContext,
    file_ops: &FileOps<'_>,
    w: &Wanted<'_>,
    (node, cred): (&NodeRef, &Cred),
) -> Result<(), Status> {
    let Some(list) = w.asked.ea else { return Ok(()) };
    for ea in cx.parse_part(list, FullEa::parse_list)? {
        if !ea::is_name(&ea.name) {
            return Err(Status::INVALID_EA_NAME);
        }
        if !ea.value.is_empty() {
            file_ops.xattr_set(w.share, node, cred, &ea.name, &ea.value, XattrHow::Either).await?;
        }
    }
    Ok(())
}

/// Returns the attributes to store for a new or overwritten file, or `None` if they equal the defaults shown without a stored
/// record. Files always get ARCHIVE (MS-FSA section 2.1.5.1.1). The mode controls writing for clients with the POSIX extensions:
/// Linux sends READONLY with a mode that forbids writing, but the creating user may still write through the new handle.
pub(super) fn kept_attributes(w: &Wanted<'_>, is_dir: bool) -> Option<u32> {
    let given = w.request.attributes & !(if w.posix { attribute::READONLY } else { 0 });
    let shown = if is_dir { 0 } else { attribute::ARCHIVE };
    let kept = given & attribute::SETTABLE | shown;
    (kept != shown).then_some(kept)
}
