//! READ (RFC 8881 section 18.22). The reply contains the volume's own buffers; the transport may transfer them by RDMA Write (RFC
//! 8267 section 3.1).

use crate::v4::compound::Compound;
use crate::v4::limits::IO_MAX;
use crate::v4::stateid_access::{IoAccess, check_io, file_of};
use crate::v4::status::Status;
use nfs_proto::nfs4::ops::{Read, ReadDone};
use nfs_proto::xdr::Bulk;

/// Bytes of the result without the data: eof, length, padding.
const AROUND: usize = 4 + 4 + 3;

pub(in crate::v4) async fn read(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Read { stateid, offset, count } = cx.args.value()?;
    let at = file_of(cx, stateid).await?;
    let right = check_io(cx, &at, stateid, IoAccess::Read).await?;
    // A short reply makes the client continue; an error would end the read.
    let count = usize::try_from(count).unwrap_or(IO_MAX).min(IO_MAX);
    let count = count.min(cx.room_for_data(AROUND));
    let file_ops = cx.nfs.core.namespace.by(right.who);
    let got =
        file_ops.read(&at.node, right.cred(&at), offset, count, cx.conn.unseen(cx.call)).await?;
    cx.moved = got.len() as u64;
    cx.out.value(&ReadDone { eof: got.eof, data: Bulk { len: got.len() } });
    cx.out.attach(got.data, got.pages);
    Ok(())
}
