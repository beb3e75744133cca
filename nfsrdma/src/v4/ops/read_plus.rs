//! READ_PLUS (RFC 7862 section 15.10): returns data and holes. The data is always inline (RFC 8267 section 3.1 allows RDMA for READ
//! and READLINK only).

use nfs_proto::nfs4::ops::{Hole4, Read, ReadPlusContent, ReadPlusDone};
use vfs::{Seek, VfsError};

use super::allocate::may_read;
use crate::v4::compound::Compound;
use crate::v4::limits::IO_MAX;
use crate::v4::object::Located;
use crate::v4::stateid_access::{IoAccess, check_io};
use crate::v4::status::Status;
use crate::v4::wire::NFS4_CONTENT_DATA;

/// Segments in one reply: a file with many small holes needs several replies.
const SEGMENTS_MAX: u32 = 16;
/// Bytes of a segment without its data: kind, offset, length and padding.
const AROUND_SEGMENT: usize = 4 + 8 + 8 + 3;
/// `rpr_eof` and the count of segments.
const AROUND: usize = 8;

pub(in crate::v4) async fn read_plus(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Read { stateid, offset, count } = cx.args.value()?;
    let at = cx.file()?;
    let right = check_io(cx, &at, stateid, IoAccess::Read).await?;
    may_read(&at, &right).await?;
    let attr = at.node.getattr().await?;
    let size = attr.size;
    // A file with as much storage as its length has no useful holes. tmpfs searches for the next hole page by page up to the end of
    // the file, which costs more than the read.
    let dense = attr.used >= size;
    let end = offset.saturating_add(u64::from(count)).min(size);

    let eof_at = cx.out.len();
    // `read_plus_res4`; both words are overwritten at the end.
    cx.out.value(&ReadPlusDone { eof: false, contents: Vec::new() });
    // Remaining room in the reply, and the part of it that may be data.
    let mut room = cx.room_for_data(AROUND);
    let mut data_left = IO_MAX;
    let (mut pos, mut segments) = (offset, 0);
    let file_ops = cx.nfs.core.namespace.by(right.who);
    while pos < end && segments < SEGMENTS_MAX && room > AROUND_SEGMENT && data_left > 0 {
        room -= AROUND_SEGMENT;
        let data = if dense { pos } else { next(&at, pos, Seek::Data, end).await? };
        segments += 1;
        if data > pos {
            let hole = Hole4 { offset: pos, length: data - pos };
            cx.out.value(&ReadPlusContent::Hole(hole));
            pos = data;
            continue;
        }
        let hole = if dense { end } else { next(&at, pos, Seek::Hole, end).await? };
        let want = usize::try_from(hole - pos).unwrap_or(IO_MAX).min(room).min(data_left);
        let got = file_ops.read(&at.node, right.cred(&at), pos, want, &cx.conn.read_into).await?;
        let len = got.len();
        // `data4`, whose bytes are not copied.
        cx.out.value(&NFS4_CONTENT_DATA);
        cx.out.value(&pos);
        cx.out.opaque_of(got.data);
        pos += len as u64;
        room -= len;
        data_left -= len;
        cx.moved += len as u64;
        if len < want || got.eof {
            break;
        }
    }
    cx.out.patch_u32(eof_at, u32::from(pos >= size));
    cx.out.patch_u32(eof_at + 4, segments);
    Ok(())
}

/// The start of the next data or hole, at most `end`. A volume that cannot tell reports no holes.
async fn next(at: &Located, pos: u64, what: Seek, end: u64) -> Result<u64, Status> {
    match at.node.seek(pos, what).await {
        Ok(found) => Ok(found.clamp(pos, end)),
        Err(VfsError::NoMoreData) => Ok(end),
        Err(VfsError::NotSupported) => Ok(if what == Seek::Data { pos } else { end }),
        Err(e) => Err(e.into()),
    }
}
