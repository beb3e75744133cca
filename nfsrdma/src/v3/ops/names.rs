//! LOOKUP, REMOVE, RMDIR, RENAME, LINK (RFC 1813 sections 3.3.3 and 3.3.12 to 3.3.15).

use nfs_proto::nfs3::{Diropargs3, LinkWcc, Lookup3resok, RenameWcc};
use vfs::{Attr, DirChange, Kind, NodeRef, VfsError, VfsResult};

use super::super::attr::{dir_wcc, post};
use super::{Op, OpResult, Target, answer};
use crate::status::Failed;
use rdma_transport::xdr::Writer;

pub(super) async fn lookup(op: &Op<'_>, what: Diropargs3<'_>, out: &mut Writer) -> OpResult {
    let t = op.target(what.dir).await?;
    let is_inside = !matches!(what.name, b"." | b"..");
    let found = match is_inside && op.is_link(&t) {
        true => Err(VfsError::NotFound),
        false => find(&t, what.name).await,
    };
    match found {
        Ok((node, attr)) => {
            t.note_link(what.name, &node);
            let fh = op.fh(&t.share, &node);
            let known = op.core.namespace.by(None).is_known(&node);
            let ok = Lookup3resok {
                object: fh.as_bytes(),
                obj_attributes: post(&t.share, known.then_some(&attr)),
                dir_attributes: post(&t.share, t.after().await.as_ref()),
            };
            answer(out, &ok);
        }
        Err(e) => t.fail_post(out, e).await,
    }
    Ok(())
}

/// Looks a name up. `.` is handled here, because backends store no such name.
async fn find(dir: &Target, name: &[u8]) -> VfsResult<(NodeRef, Attr)> {
    if name != b"." {
        return dir.node.lookup(&dir.cred, name).await;
    }
    if dir.node.kind() != Kind::Dir {
        return Err(VfsError::NotDir);
    }
    Ok((dir.node.clone(), dir.node.getattr().await?))
}

pub(super) async fn remove(op: &Op<'_>, object: Diropargs3<'_>, out: &mut Writer) -> OpResult {
    let t = op.target(object.dir).await?;
    let removed = op.file_ops_by_name().unlink(&t.share, &t.node, &t.cred, object.name).await;
    removed_from(&t, removed, out).await;
    Ok(())
}

pub(super) async fn rmdir(op: &Op<'_>, object: Diropargs3<'_>, out: &mut Writer) -> OpResult {
    let t = op.target(object.dir).await?;
    // RFC 1813 section 3.3.13: INVAL for ".", EXIST for "..".
    let file_ops = op.file_ops_by_name();
    let removed = match t.writable(op) {
        Ok(()) if object.name == b".." => Err(VfsError::Exists),
        Ok(()) => file_ops.rmdir(&t.share, &t.node, &t.cred, object.name).await,
        Err(e) => Err(e),
    };
    removed_from(&t, removed, out).await;
    Ok(())
}

async fn removed_from(dir: &Target, change: VfsResult<DirChange>, out: &mut Writer) {
    match change {
        Ok(change) => answer(out, &dir_wcc(&dir.share, &change)),
        Err(e) => dir.fail_wcc(out, e).await,
    }
}

pub(super) async fn rename(
    op: &Op<'_>,
    from: Diropargs3<'_>,
    to: Diropargs3<'_>,
    out: &mut Writer,
) -> OpResult {
    let source = op.target(from.dir).await?;
    let target = op.target(to.dir).await?;
    let renamed = if source.share.id == target.share.id {
        let file_ops = op.file_ops_by_name();
        file_ops
            .rename(&source.share, &source.node, &source.cred, from.name, &target.node, to.name)
            .await
    } else {
        Err(VfsError::CrossDevice)
    };
    match renamed {
        Ok((from_change, to_change)) => {
            let fromdir_wcc = dir_wcc(&source.share, &from_change);
            let todir_wcc = dir_wcc(&target.share, &to_change);
            answer(out, &RenameWcc { fromdir_wcc, todir_wcc });
        }
        Err(e) => {
            out.value(&Failed::from(e).0);
            let fromdir_wcc = source.wcc_after().await;
            let todir_wcc = target.wcc_after().await;
            out.value(&RenameWcc { fromdir_wcc, todir_wcc });
        }
    }
    Ok(())
}

pub(super) async fn link(
    op: &Op<'_>,
    file: &[u8],
    link: Diropargs3<'_>,
    out: &mut Writer,
) -> OpResult {
    let t = op.target(file).await?;
    let dir = op.target(link.dir).await?;
    let linked = if t.share.id != dir.share.id {
        Err(VfsError::CrossDevice)
    } else {
        op.file_ops_by_name().link(&t.share, &t.node, &t.cred, &dir.node, link.name).await
    };
    match linked {
        Ok((attr, change)) => {
            let file_attributes = post(&t.share, Some(&attr));
            let linkdir_wcc = dir_wcc(&dir.share, &change);
            answer(out, &LinkWcc { file_attributes, linkdir_wcc });
        }
        Err(e) => {
            out.value(&Failed::from(e).0);
            let file_attributes = post(&t.share, t.after().await.as_ref());
            out.value(&LinkWcc { file_attributes, linkdir_wcc: dir.wcc_after().await });
        }
    }
    Ok(())
}
