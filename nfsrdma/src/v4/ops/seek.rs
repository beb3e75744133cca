//! SEEK (RFC 7862 section 15.11).

use nfs_proto::nfs4::ops::{Seek as Asked, Sought};
use vfs::{Seek, VfsError};

use super::allocate::may_look;
use crate::v4::compound::Compound;
use crate::v4::stateid_access::{IoAccess, check_io};
use crate::v4::status::Status;
use crate::v4::wire::{NFS4_CONTENT_DATA, NFS4_CONTENT_HOLE};

pub(in crate::v4) async fn seek(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Asked { stateid, offset, what } = cx.args.value()?;
    let what = match what {
        NFS4_CONTENT_DATA => Seek::Data,
        NFS4_CONTENT_HOLE => Seek::Hole,
        _ => return Err(Status::UnionNotSupp),
    };
    let at = cx.file()?;
    let right = check_io(cx, &at, stateid, IoAccess::Read).await?;
    may_look(&at, &right).await?;
    let size = at.node.getattr().await?.size;
    if offset >= size {
        return Err(Status::Nxio);
    }
    let found = match at.node.seek(offset, what).await {
        Ok(found) => found,
        // No such region up to the end of the file: the result is OK with eof.
        Err(VfsError::NoMoreData) => size,
        Err(e) => return Err(e.into()),
    };
    cx.out.value(&Sought { eof: found >= size, offset: found });
    Ok(())
}
