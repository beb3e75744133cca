//! GETATTR, SETATTR, ACCESS (RFC 1813 sections 3.3.1, 3.3.2, 3.3.4).

use nfs_proto::nfs3::{Access3resok, Getattr3resok, Nfsstat3, Setattr3args};
use state::Rights;
use vfs::{Access, Attr, SetAttr, Time, VfsError};

use super::super::attr::{fattr, post, set_attr, time, wcc};
use super::{Op, OpResult, Target, answer};
use crate::status::Failed;
use rdma_transport::xdr::Writer;

pub(super) async fn getattr(op: &Op<'_>, object: &[u8], out: &mut Writer) -> OpResult {
    let t = op.target_of_mount(object).await?;
    let attr = op.core.namespace.by(None).getattr(&t.node).await?;
    let t = op.found_again(t, object, Some(&attr)).await?;
    answer(out, &Getattr3resok { obj_attributes: fattr(&t.share, &attr) });
    Ok(())
}

pub(super) async fn setattr(op: &Op<'_>, args: &Setattr3args<'_>, out: &mut Writer) -> OpResult {
    let t = op.target(args.object).await?;
    match change(op, &t, set_attr(&args.new_attributes), args.guard.map(time)).await {
        Ok((before, after)) => {
            let t = op.found_again(t, args.object, Some(&after)).await?;
            answer(out, &wcc(&t.share, Some(&before), Some(&after)));
        }
        Err(status) => t.fail_wcc(out, status).await,
    }
    Ok(())
}

async fn change(
    op: &Op<'_>,
    t: &Target,
    new: SetAttr,
    guard: Option<Time>,
) -> Result<(Attr, Attr), Failed> {
    if let Some(ctime) = guard
        && t.node.getattr().await?.ctime != ctime
    {
        return Err(Nfsstat3::NotSync.into());
    }
    let file_ops = op.file_ops(t, Rights::WRITE).audited(op.call);
    let set = async {
        match file_ops.setattr(&t.share, &t.node, &t.cred, new, false).await {
            // A program that has the file open may truncate it whatever the current mode (RFC 1813 section 4.4).
            Err(VfsError::Access) if new.size.is_some() && t.is_owner().await => {
                file_ops.setattr(&t.share, &t.node, &t.cred, new, true).await
            }
            other => other,
        }
    };
    // Changing the size changes file data; other attributes do not.
    let keeps_bytes = new.size.is_none();
    let done = op.core.writers.recorded(keeps_bytes, (&t.share, &t.node), op.call, set).await;
    done.map_err(Failed::of_data)
}

pub(super) async fn access(op: &Op<'_>, object: &[u8], wanted: u32, out: &mut Writer) -> OpResult {
    const KNOWN: u32 = 0x3f;
    const CHANGING: u32 = Access::MODIFY | Access::EXTEND | Access::DELETE;
    let t = op.target(object).await?;
    let mut wanted = wanted & KNOWN;
    if t.writable(op).is_err() || op.is_link(&t) {
        wanted &= !CHANGING;
    }
    let granted = match t.node.getattr().await {
        Ok(attr) => t.node.access(&t.cred, Access(wanted), &attr).await,
        Err(e) => Err(e),
    };
    match granted {
        Ok(granted) => {
            let after = t.after().await;
            let t = op.found_again(t, object, after.as_ref()).await?;
            let obj_attributes = post(&t.share, after.as_ref());
            answer(out, &Access3resok { obj_attributes, access: granted.0 & wanted });
        }
        Err(e) => t.fail_post(out, e).await,
    }
    Ok(())
}

impl Target {
    /// True if the caller owns the file. NFSv3 has no opens, so the owner may have opened the file before a chmod: it may read and
    /// write whatever the mode (RFC 1813 section 4.4).
    pub(super) async fn is_owner(&self) -> bool {
        self.node.getattr().await.is_ok_and(|a| a.uid == self.cred.uid)
    }
}
