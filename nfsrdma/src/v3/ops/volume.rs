//! FSSTAT, FSINFO, PATHCONF (RFC 1813 sections 3.3.18 to 3.3.20).

use super::super::attr::put_post;
use super::{OK, Op, OpResult};
use crate::limits::{LISTING_PREFERRED, TRANSFER_MAX};
use crate::xdr::Writer;

pub(super) async fn fsstat(op: &Op<'_>, root: &[u8], out: &mut Writer) -> OpResult {
    let t = op.target(root).await?;
    match t.share.backend.statfs().await {
        Ok(s) => {
            out.u32(OK);
            put_post(out, &t.share, t.after().await.as_ref());
            out.u64(s.total_bytes);
            out.u64(s.free_bytes);
            out.u64(s.avail_bytes);
            out.u64(s.total_files);
            out.u64(s.free_files);
            out.u64(s.avail_files);
            // The figures may change at any time.
            out.u32(0);
        }
        Err(e) => t.fail_post(out, e).await,
    }
    Ok(())
}

pub(super) async fn fsinfo(op: &Op<'_>, root: &[u8], out: &mut Writer) -> OpResult {
    const FSF3_LINK: u32 = 0x01;
    const FSF3_SYMLINK: u32 = 0x02;
    const FSF3_HOMOGENEOUS: u32 = 0x08;
    const FSF3_CANSETTIME: u32 = 0x10;
    let t = op.target(root).await?;
    let can = t.share.backend.capabilities();
    out.u32(OK);
    put_post(out, &t.share, t.after().await.as_ref());
    for _read_then_write in 0..2 {
        out.count(TRANSFER_MAX);
        out.count(TRANSFER_MAX);
        out.u32(can.block);
    }
    out.u32(LISTING_PREFERRED);
    out.u64(can.size_max);
    // time_delta: the server keeps nanoseconds.
    out.u32(0);
    out.u32(1);
    out.u32(FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME);
    Ok(())
}

pub(super) async fn pathconf(op: &Op<'_>, object: &[u8], out: &mut Writer) -> OpResult {
    let t = op.target(object).await?;
    let can = t.share.backend.capabilities();
    out.u32(OK);
    put_post(out, &t.share, t.after().await.as_ref());
    out.u32(can.link_max);
    out.u32(can.name_max);
    // A name that is too long is refused, not cut; only root gives files away; case counts and is kept.
    out.bool(true);
    out.bool(true);
    out.bool(false);
    out.bool(true);
    Ok(())
}
