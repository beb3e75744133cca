//! ALLOCATE and DEALLOCATE (RFC 7862 sections 15.1 and 15.4).

use crate::v4::compound::Compound;
use crate::v4::object::Located;
use crate::v4::stateid_access::{IoAccess, StateidAccess, check_io};
use crate::v4::status::Status;
use nfs_proto::nfs4::ops::Allocate;

pub(in crate::v4) async fn allocate(cx: &mut Compound<'_>) -> Result<(), Status> {
    let (at, right, offset, length) = args(cx).await?;
    let end = offset.checked_add(length).ok_or(Status::FBig)?;
    if end > at.share.backend.capabilities_of(&at.node).size_max {
        return Err(Status::FBig);
    }
    let file_ops = cx.nfs.core.namespace.by(right.who).opened_by(&at.cred);
    let allocate = file_ops.allocate(&at.share, &at.node, offset, length);
    Ok(cx.recorded(&at, &right, allocate).await?)
}

pub(in crate::v4) async fn deallocate(cx: &mut Compound<'_>) -> Result<(), Status> {
    let (at, right, offset, length) = args(cx).await?;
    // The range is clamped because DEALLOCATE never changes the size: bytes beyond the largest file do not exist.
    let max = at.share.backend.capabilities_of(&at.node).size_max;
    let length = length.min(max.saturating_sub(offset));
    if length == 0 {
        return Ok(());
    }
    let file_ops = cx.nfs.core.namespace.by(right.who).opened_by(&at.cred);
    let deallocate = file_ops.deallocate(&at.share, &at.node, offset, length);
    Ok(cx.recorded(&at, &right, deallocate).await?)
}

async fn args(cx: &mut Compound<'_>) -> Result<(Located, StateidAccess, u64, u64), Status> {
    let Allocate { stateid, offset, length } = cx.args.value()?;
    let at = cx.file()?;
    if length == 0 {
        return Err(Status::Inval);
    }
    let right = check_io(cx, &at, stateid, IoAccess::Write).await?;
    may_write(&at, &right).await?;
    Ok((at, right, offset, length))
}

/// Checks write permission, which the volume does not check for these operations, unless an open has done so.
pub(super) async fn may_write(at: &Located, right: &StateidAccess) -> Result<(), Status> {
    if !right.open_checked {
        at.node.open(&at.cred, false, true).await?;
    }
    Ok(())
}

/// Like [`may_write`], for reading.
pub(super) async fn may_read(at: &Located, right: &StateidAccess) -> Result<(), Status> {
    if !right.open_checked {
        at.node.open(&at.cred, true, false).await?;
    }
    Ok(())
}

/// Like [`may_read`], for operations that only report where data is: any open suffices, even one for writing.
pub(super) async fn may_look(at: &Located, right: &StateidAccess) -> Result<(), Status> {
    if right.is_opener { Ok(()) } else { may_read(at, right).await }
}
