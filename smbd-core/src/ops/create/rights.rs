//! Computes the access granted to an existing file (MS-FSA section 2.1.5.1.2).

use vfs::{Attr, Dos, Kind, NodeRef};

use super::{Wanted, implied};
use crate::dtyp::mask;
use crate::fscc::attribute;
use crate::security::{self, Granted, Parent};
use crate::status::Status;

/// Returns the access that the user gets out of the requested access.
pub(super) async fn granted(
    w: &Wanted<'_>,
    node: &NodeRef,
    attr: &Attr,
    dos: &Dos,
    parent: Option<Parent<'_>>,
) -> Result<Granted, Status> {
    granted_beside(w, (node, attr, dos), parent, implied(w.disposition)).await
}

/// Like [`granted`], for a user who also needs the `implied` rights.
pub(super) async fn granted_beside(
    w: &Wanted<'_>,
    (node, attr, dos): (&NodeRef, &Attr, &Dos),
    parent: Option<Parent<'_>>,
    implied: u32,
) -> Result<Granted, Status> {
    const WRITES: u32 = mask::WRITE_DATA | mask::APPEND_DATA;
    let desired = mask::map_generic(w.request.access);
    let mut got =
        security::granted(w.tree, node, attr, parent, (desired | implied, &w.beyond)).await?;
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

/// Checks that the file may be deleted on close (MS-FSA section 2.1.5.1.2).
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

/// Refuses to remove a name from an immutable or append-only folder. `folder`: its attributes, or `None` for a deleted folder,
/// which is not an error.
pub(in crate::ops) fn check_folder(folder: Option<&Attr>) -> Result<(), Status> {
    if folder.is_some_and(|attr| attr.sealed) { Err(Status::CANNOT_DELETE) } else { Ok(()) }
}
