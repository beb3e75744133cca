//! LOOKUP, REMOVE, RMDIR, RENAME, LINK (RFC 1813 sections 3.3.3 and 3.3.12 to 3.3.15).

use vfs::{Attr, DirChange, Kind, NodeRef, VfsError, VfsResult};

use super::super::args::Where;
use super::super::attr::{put_dir_wcc, put_post, put_wcc};
use super::{OK, Op, OpResult, Target};
use crate::status::Nfsstat3;
use crate::xdr::Writer;

pub(super) async fn lookup(op: &Op<'_>, what: Where<'_>, out: &mut Writer) -> OpResult {
    let t = op.target(what.dir).await?;
    match find(&t, what.name).await {
        Ok((node, attr)) => {
            out.u32(OK);
            out.opaque(op.core.handles.of_node(&t.share, &node.handle()).as_bytes());
            put_post(out, &t.share, op.core.namespace.by(None).is_known(&node).then_some(&attr));
            put_post(out, &t.share, t.after().await.as_ref());
        }
        Err(e) => t.fail_post(out, e).await,
    }
    Ok(())
}

/// Backends know no `.`, since no name is stored under it.
async fn find(dir: &Target, name: &[u8]) -> VfsResult<(NodeRef, Attr)> {
    if name != b"." {
        return dir.node.lookup(&dir.cred, name).await;
    }
    if dir.node.kind() != Kind::Dir {
        return Err(VfsError::NotDir);
    }
    Ok((dir.node.clone(), dir.node.getattr().await?))
}

pub(super) async fn remove(op: &Op<'_>, object: Where<'_>, out: &mut Writer) -> OpResult {
    let t = op.target(object.dir).await?;
    let removed = op.core.namespace.unlink(&t.share, &t.node, &t.cred, object.name).await;
    answer(&t, removed, out).await;
    Ok(())
}

pub(super) async fn rmdir(op: &Op<'_>, object: Where<'_>, out: &mut Writer) -> OpResult {
    let t = op.target(object.dir).await?;
    // RFC 1813 section 3.3.13: INVAL for ".", EXIST for "..".
    let door = op.core.namespace.by(None);
    let removed = match t.writable(op) {
        Ok(()) if object.name == b".." => Err(VfsError::Exists),
        Ok(()) => door.rmdir(&t.share, &t.node, &t.cred, object.name).await,
        Err(e) => Err(e),
    };
    answer(&t, removed, out).await;
    Ok(())
}

async fn answer(dir: &Target, change: VfsResult<DirChange>, out: &mut Writer) {
    match change {
        Ok(change) => {
            out.u32(OK);
            put_dir_wcc(out, &dir.share, &change);
        }
        Err(e) => dir.fail_wcc(out, e).await,
    }
}

pub(super) async fn rename(
    op: &Op<'_>,
    from: Where<'_>,
    to: Where<'_>,
    out: &mut Writer,
) -> OpResult {
    let source = op.target(from.dir).await?;
    let target = op.target(to.dir).await?;
    let renamed = if source.share.id == target.share.id {
        let ns = &op.core.namespace;
        ns.rename(&source.share, &source.node, &source.cred, from.name, &target.node, to.name).await
    } else {
        Err(VfsError::CrossDevice)
    };
    match renamed {
        Ok((from_change, to_change)) => {
            out.u32(OK);
            put_dir_wcc(out, &source.share, &from_change);
            put_dir_wcc(out, &target.share, &to_change);
        }
        Err(e) => {
            out.u32(Nfsstat3::from(e) as u32);
            put_wcc(out, &source.share, None, source.after().await.as_ref());
            put_wcc(out, &target.share, None, target.after().await.as_ref());
        }
    }
    Ok(())
}

pub(super) async fn link(op: &Op<'_>, file: &[u8], link: Where<'_>, out: &mut Writer) -> OpResult {
    let t = op.target(file).await?;
    let dir = op.target(link.dir).await?;
    let linked = if t.share.id != dir.share.id {
        Err(VfsError::CrossDevice)
    } else {
        op.core.namespace.link(&t.share, &t.node, &t.cred, &dir.node, link.name).await
    };
    match linked {
        Ok((attr, change)) => {
            out.u32(OK);
            put_post(out, &t.share, Some(&attr));
            put_dir_wcc(out, &dir.share, &change);
        }
        Err(e) => {
            t.fail_post(out, e).await;
            put_wcc(out, &dir.share, None, dir.after().await.as_ref());
        }
    }
    Ok(())
}
