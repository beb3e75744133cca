//! CREATE, MKDIR, SYMLINK, MKNOD (RFC 1813 sections 3.3.8 to 3.3.11): one form of results for all four.

use vfs::backend::Made;
use vfs::{CreateHow, SetAttr, Special, VfsResult};

use super::super::args::Where;
use super::super::attr::{put_dir_wcc, put_post};
use super::{OK, Op, OpResult, Target};
use crate::exclusive::of_address;
use crate::limits::PATH_MAX;
use crate::status::Nfsstat3;
use crate::xdr::Writer;

pub(super) async fn create(
    op: &Op<'_>,
    place: Where<'_>,
    how: CreateHow,
    new: SetAttr,
    out: &mut Writer,
) -> OpResult {
    let t = op.target(place.dir).await?;
    let how = match how {
        CreateHow::Exclusive(v) => CreateHow::Exclusive(of_address(&v, op.conn.info.peer.ip())),
        how => how,
    };
    let made = op.core.namespace.create(&t.share, &t.node, &t.cred, place.name, how, new).await;
    answer(op, &t, made, out).await;
    Ok(())
}

pub(super) async fn mkdir(
    op: &Op<'_>,
    place: Where<'_>,
    new: SetAttr,
    out: &mut Writer,
) -> OpResult {
    let t = op.target(place.dir).await?;
    let door = op.core.namespace.by(None);
    let made = door.mkdir(&t.share, &t.node, &t.cred, place.name, new).await;
    answer(op, &t, made, out).await;
    Ok(())
}

pub(super) async fn symlink(
    op: &Op<'_>,
    place: Where<'_>,
    new: SetAttr,
    target: &[u8],
    out: &mut Writer,
) -> OpResult {
    let t = op.target(place.dir).await?;
    if target.is_empty() || target.contains(&0) {
        t.fail_wcc(out, Nfsstat3::Inval).await;
        return Ok(());
    }
    if target.len() > PATH_MAX {
        t.fail_wcc(out, Nfsstat3::Nametoolong).await;
        return Ok(());
    }
    let door = op.core.namespace.by(None);
    let made = door.symlink(&t.share, &t.node, &t.cred, place.name, target, new).await;
    answer(op, &t, made, out).await;
    Ok(())
}

pub(super) async fn mknod(
    op: &Op<'_>,
    place: Where<'_>,
    what: Option<(Special, SetAttr)>,
    out: &mut Writer,
) -> OpResult {
    let t = op.target(place.dir).await?;
    let Some((what, new)) = what else {
        t.fail_wcc(out, Nfsstat3::Badtype).await;
        return Ok(());
    };
    let door = op.core.namespace.by(None);
    let made = door.mknod(&t.share, &t.node, &t.cred, place.name, what, new).await;
    answer(op, &t, made, out).await;
    Ok(())
}

async fn answer(op: &Op<'_>, dir: &Target, made: VfsResult<Made>, out: &mut Writer) {
    match made {
        Ok(made) => {
            out.u32(OK);
            op.put_fh(out, &dir.share, &made.node);
            put_post(out, &dir.share, Some(&made.attr));
            put_dir_wcc(out, &dir.share, &made.dir);
        }
        Err(e) => dir.fail_wcc(out, e).await,
    }
}
