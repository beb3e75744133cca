//! The attributes that a request brings for what it makes or cuts.

use vfs::namespace::FileOps;
use vfs::{Cred, NodeRef, VfsError, XattrHow};

use super::Wanted;
use crate::fscc::attribute;
use crate::fscc::ea::{self, FullEa};
use crate::request_context::RequestContext;
use crate::status::Status;

/// Removes the extended attributes of an overwritten file, with its contents (MS-FSA section 2.1.5.1.2, NTFS). They stay for a
/// client with the POSIX extensions: it overwrites where a program truncates a file.
pub(super) async fn remove_extended_attributes(
    cx: &RequestContext,
    file_ops: &FileOps<'_>,
    w: &Wanted<'_>,
    (node, cred): (&NodeRef, &Cred),
) -> Result<(), Status> {
    if cx.conn.negotiated().is_some_and(|n| n.posix) {
        return Ok(());
    }
    let names = match node.xattr_list(cred).await {
        Err(VfsError::NotSupported) => return Ok(()),
        names => names?,
    };
    for name in names {
        match file_ops.xattr_remove(w.share, node, cred, &name).await {
            Ok(_) | Err(VfsError::NoXattr) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Sets the extended attributes that the request brought.
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

/// What is kept of the attributes that something is given when it is made or cut; `None` where it is what is shown of something
/// that nothing is kept of. A file always gets ARCHIVE (MS-FSA section 2.1.5.1.1). To clients of the POSIX extensions the mode says
/// who may write: Linux sends READONLY beside a mode that lets nobody, but its own user goes on with what he has opened.
pub(super) fn kept_attributes(w: &Wanted<'_>, is_dir: bool) -> Option<u32> {
    let given = w.request.attributes & !(if w.posix { attribute::READONLY } else { 0 });
    let shown = if is_dir { 0 } else { attribute::ARCHIVE };
    let kept = given & attribute::SETTABLE | shown;
    (kept != shown).then_some(kept)
}
