//! CLONE (RFC 7862 section 15.13): shares the storage of the whole range, or fails.

use super::copy::pair;
use crate::v4::compound::Compound;
use crate::v4::status::Status;
use nfs_proto::nfs4::ops::Clone4;

pub(in crate::v4) async fn clone(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Clone4 { src_stateid, dst_stateid, src_offset, dst_offset, count } = cx.args.value()?;
    let p = pair(cx, (src_stateid, src_offset), (dst_stateid, dst_offset), count).await?;
    let caps = p.to.share.backend.capabilities_of(&p.to.node);
    if !caps.reflink {
        return Err(Status::NotSupp);
    }
    let size = p.from.node.getattr().await?.size;
    let end = p.from_at + p.count;
    let block = u64::from(caps.clone_block.max(1));
    // RFC 7862 section 15.13.3: both ends are aligned, except at the end of the source.
    let count = if p.count == 0 { size.saturating_sub(p.from_at) } else { p.count };
    if end > size
        || p.overlaps(count)
        || p.from_at % block != 0
        || p.to_at % block != 0
        || p.count % block != 0 && end != size
    {
        return Err(Status::Inval);
    }
    let file_ops = cx.nfs.core.namespace.by(p.to_right.who).opened_by(&p.to.cred);
    let clone =
        file_ops.clone_range(&p.to.share, &p.to.node, &p.from.node, p.from_at, p.to_at, p.count);
    cx.recorded(&p.to, &p.to_right, clone).await?;
    Ok(())
}
