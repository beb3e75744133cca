//! FSSTAT, FSINFO, PATHCONF (RFC 1813 sections 3.3.18 to 3.3.20).

use nfs_proto::nfs3::{Fsinfo3resok, Fsstat3resok, Nfstime3, Pathconf3resok};

use super::super::attr::post;
use super::{Op, OpResult, answer};
use crate::limits::{LISTING_PREFERRED, TRANSFER_MAX};
use rdma_transport::xdr::Writer;

pub(super) async fn fsstat(op: &Op<'_>, root: &[u8], out: &mut Writer) -> OpResult {
    let t = op.target_of_space(root).await?;
    match t.share.backend.statfs_of(&t.node).await {
        Ok(s) => {
            let ok = Fsstat3resok {
                obj_attributes: post(&t.share, t.after().await.as_ref()),
                tbytes: s.total_bytes,
                fbytes: s.free_bytes,
                abytes: s.avail_bytes,
                tfiles: s.total_files,
                ffiles: s.free_files,
                afiles: s.avail_files,
                // The values may change at any time.
                invarsec: 0,
            };
            answer(out, &ok);
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
    let t = op.target_of_mount(root).await?;
    let can = t.share.backend.capabilities_of(&t.node);
    let transfer_max = u32::try_from(TRANSFER_MAX).unwrap_or(u32::MAX);
    let ok = Fsinfo3resok {
        obj_attributes: post(&t.share, t.after().await.as_ref()),
        rtmax: transfer_max,
        rtpref: transfer_max,
        rtmult: can.block,
        wtmax: transfer_max,
        wtpref: transfer_max,
        wtmult: can.block,
        dtpref: LISTING_PREFERRED,
        maxfilesize: can.size_max,
        // The server stores nanoseconds.
        time_delta: Nfstime3 { seconds: 0, nseconds: 1 },
        properties: FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME,
    };
    answer(out, &ok);
    Ok(())
}

pub(super) async fn pathconf(op: &Op<'_>, object: &[u8], out: &mut Writer) -> OpResult {
    let t = op.target_of_mount(object).await?;
    let can = t.share.backend.capabilities_of(&t.node);
    let ok = Pathconf3resok {
        obj_attributes: post(&t.share, t.after().await.as_ref()),
        linkmax: can.link_max,
        name_max: can.name_max,
        // Too long names are refused rather than truncated; only root may chown; names are case-sensitive and keep their case.
        no_trunc: true,
        chown_restricted: true,
        case_insensitive: false,
        case_preserving: true,
    };
    answer(out, &ok);
    Ok(())
}
