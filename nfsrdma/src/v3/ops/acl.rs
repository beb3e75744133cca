//! GETACL and SETACL of NFSACL version 3 ([`super::super::acl`]).

use nfs_proto::nfs3::Nfsstat3;
use nfs_proto::nfs3::acl::{Getacl3args, Getacl3resok, Secattr, Setacl3args};
use vfs::acl::{Owner, mask};

use super::super::acl::{ALL, lists, secattr};
use super::super::attr::{fattr, post_op};
use super::{Op, OpResult, Target, answer};
use crate::status::Failed;
use rdma_transport::xdr::Writer;

pub(super) async fn getacl(op: &Op<'_>, args: Getacl3args<'_>, out: &mut Writer) -> OpResult {
    let t = op.target(args.fh).await?;
    if args.mask & !ALL != 0 {
        t.fail_post(out, Nfsstat3::Inval).await;
        return Ok(());
    }
    let attr = op.core.namespace.by(None).getattr(&t.node).await?;
    // A stored list is shown only to callers whom it grants READ_CONTROL.
    if let Some(acl) = t.node.acl(&attr).await?
        && acl.allowed(&t.cred, Owner::of(&attr))
            & t.node.bounds(&t.cred).await?
            & mask::READ_CONTROL
            == 0
    {
        t.fail_post(out, Nfsstat3::Acces).await;
        return Ok(());
    }
    let lists = t.node.posix(&attr).await?;
    let acl = secattr(args.mask, &lists.access, lists.default.as_ref(), Owner::of(&attr));
    answer(out, &Getacl3resok { attr: Some(fattr(&t.share, &attr)), acl });
    Ok(())
}

pub(super) async fn setacl(op: &Op<'_>, args: Setacl3args<'_>, out: &mut Writer) -> OpResult {
    let t = op.target(args.fh).await?;
    match change(op, &t, &args.acl).await {
        Ok(()) => answer(out, &post_op(&t.share, t.after().await.as_ref())),
        Err(status) => t.fail_post(out, status).await,
    }
    Ok(())
}

async fn change(op: &Op<'_>, t: &Target, new: &Secattr) -> Result<(), Failed> {
    t.writable(op)?;
    let change = lists(new).ok_or(Nfsstat3::Inval)?;
    Ok(op.file_ops_by_name().posix_change(&t.share, &t.node, &t.cred, &change).await?)
}
