//! IO_ADVISE (RFC 7862 section 15.5). Hints are decoded and ignored: the host's page cache has its own read-ahead.

use super::allocate::may_look;
use crate::v4::attrs::Bitmap;
use crate::v4::compound::Compound;
use crate::v4::stateid_access::{IoAccess, check_io};
use crate::v4::status::Status;
use nfs_proto::nfs4::ops::IoAdvise;

pub(in crate::v4) async fn io_advise(cx: &mut Compound<'_>) -> Result<(), Status> {
    let IoAdvise { stateid, .. } = cx.args.value()?;
    let at = cx.file()?;
    let right = check_io(cx, &at, stateid, IoAccess::Read).await?;
    may_look(&at, &right).await?;
    cx.out.value(&Bitmap::EMPTY);
    Ok(())
}
