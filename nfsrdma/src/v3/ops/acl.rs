//! GETACL and SETACL of NFSACL version 3 ([`super::super::acl`]).

use vfs::acl::{Owner, mask};

use super::super::acl::{Secattr, part, put};
use super::super::attr::{put_attr, put_post};
use super::{OK, Op, OpResult, Target};
use crate::status::Nfsstat3;
use crate::xdr::Writer;

pub(super) async fn getacl(op: &Op<'_>, object: &[u8], wanted: u32, out: &mut Writer) -> OpResult {
    let t = op.target(object).await?;
    if wanted & !part::ALL != 0 {
        t.fail_post(out, Nfsstat3::Inval).await;
        return Ok(());
    }
    let attr = op.core.namespace.by(None).getattr(&t.node).await?;
    // A list that was set is shown to those whom it lets see it.
    if let Some(acl) = t.node.acl(&attr).await?
        && acl.allowed(&t.cred, Owner::of(&attr)) & mask::READ_CONTROL == 0
    {
        t.fail_post(out, Nfsstat3::Acces).await;
        return Ok(());
    }
    let lists = t.node.posix(&attr).await?;
    out.u32(OK);
    out.bool(true);
    put_attr(out, &t.share, &attr);
    put(wanted, &lists.access, lists.default.as_ref(), Owner::of(&attr), out);
    Ok(())
}

pub(super) async fn setacl(op: &Op<'_>, object: &[u8], new: Secattr, out: &mut Writer) -> OpResult {
    let t = op.target(object).await?;
    match change(op, &t, new).await {
        Ok(()) => {
            out.u32(OK);
            put_post(out, &t.share, t.after().await.as_ref());
        }
        Err(status) => t.fail_post(out, status).await,
    }
    Ok(())
}

async fn change(op: &Op<'_>, t: &Target, new: Secattr) -> Result<(), Nfsstat3> {
    t.writable(op)?;
    let change = new.lists().ok_or(Nfsstat3::Inval)?;
    Ok(op.core.namespace.by(None).posix_change(&t.share, &t.node, &t.cred, &change).await?)
}
