//! CREATE, MKDIR, SYMLINK, MKNOD (RFC 1813 sections 3.3.8 to 3.3.11), which share one form of results.

use iobuf::Buf;
use nfs_proto::nfs3::{
    Create3args, Create3resok, Createhow3, Mkdir3args, Mknod3args, Mknoddata3, Nfsstat3, Sattr3,
    Specdata3, Symlink3args,
};
use vfs::backend::Made;
use vfs::{CreateHow, Special, VfsResult};

use super::super::attr::{dir_wcc, post, set_attr};
use super::{Op, OpResult, Target, answer};
use crate::exclusive::of_address;
use crate::limits::PATH_MAX;
use rdma_transport::xdr::{Writer, at_most};

pub(super) async fn create(op: &Op<'_>, args: &Create3args<'_>, out: &mut Writer) -> OpResult {
    let place = args.place;
    let t = op.target(place.dir).await?;
    let (how, new) = match &args.how {
        Createhow3::Unchecked(new) => (CreateHow::Unchecked, *new),
        Createhow3::Guarded(new) => (CreateHow::Guarded, *new),
        Createhow3::Exclusive(v) => {
            (CreateHow::Exclusive(of_address(v, op.conn.info.peer.ip())), Sattr3::default())
        }
    };
    let file_ops = op.file_ops_by_name();
    let made = file_ops.create(&t.share, &t.node, &t.cred, place.name, how, set_attr(&new)).await;
    reply(op, &t, made, out).await;
    Ok(())
}

pub(super) async fn mkdir(op: &Op<'_>, args: &Mkdir3args<'_>, out: &mut Writer) -> OpResult {
    let (place, new) = (args.place, set_attr(&args.attributes));
    let t = op.target(place.dir).await?;
    let file_ops = op.file_ops_by_name();
    let made = file_ops.mkdir(&t.share, &t.node, &t.cred, place.name, new).await;
    reply(op, &t, made, out).await;
    Ok(())
}

/// Joins the pieces of a path. `nfspath3` has no limit: of a path that is too long only enough bytes are kept to detect that.
fn path(data: Vec<Buf>) -> Vec<u8> {
    at_most(data, PATH_MAX + 1).iter().flat_map(|piece| piece.as_slice()).copied().collect()
}

pub(super) async fn symlink(
    op: &Op<'_>,
    args: &Symlink3args<'_>,
    data: Vec<Buf>,
    out: &mut Writer,
) -> OpResult {
    let (place, new) = (args.place, set_attr(&args.symlink_attributes));
    let t = op.target(place.dir).await?;
    let target = path(data);
    if target.is_empty() || target.contains(&0) {
        t.fail_wcc(out, Nfsstat3::Inval).await;
        return Ok(());
    }
    if target.len() > PATH_MAX {
        t.fail_wcc(out, Nfsstat3::Nametoolong).await;
        return Ok(());
    }
    let file_ops = op.file_ops_by_name();
    let made = file_ops.symlink(&t.share, &t.node, &t.cred, place.name, &target, new).await;
    reply(op, &t, made, out).await;
    Ok(())
}

/// The special file to create; `None` for a type that MKNOD does not support.
fn special(what: &Mknoddata3) -> Option<(Special, Sattr3)> {
    Some(match what {
        Mknoddata3::Blk(d) => {
            let Specdata3 { specdata1, specdata2 } = d.spec;
            (Special::Block(specdata1, specdata2), d.dev_attributes)
        }
        Mknoddata3::Chr(d) => {
            let Specdata3 { specdata1, specdata2 } = d.spec;
            (Special::Char(specdata1, specdata2), d.dev_attributes)
        }
        Mknoddata3::Sock(new) => (Special::Socket, *new),
        Mknoddata3::Fifo(new) => (Special::Fifo, *new),
        Mknoddata3::Reg | Mknoddata3::Dir | Mknoddata3::Lnk => return None,
    })
}

pub(super) async fn mknod(op: &Op<'_>, args: &Mknod3args<'_>, out: &mut Writer) -> OpResult {
    let place = args.place;
    let t = op.target(place.dir).await?;
    let Some((what, new)) = special(&args.what) else {
        t.fail_wcc(out, Nfsstat3::Badtype).await;
        return Ok(());
    };
    let file_ops = op.file_ops_by_name();
    let made = file_ops.mknod(&t.share, &t.node, &t.cred, place.name, what, set_attr(&new)).await;
    reply(op, &t, made, out).await;
    Ok(())
}

async fn reply(op: &Op<'_>, dir: &Target, made: VfsResult<Made>, out: &mut Writer) {
    match made {
        Ok(made) => {
            let fh = op.fh(&dir.share, &made.node);
            let ok = Create3resok {
                obj: Some(fh.as_bytes()),
                obj_attributes: post(&dir.share, Some(&made.attr)),
                dir_wcc: dir_wcc(&dir.share, &made.dir),
            };
            answer(out, &ok);
        }
        Err(e) => dir.fail_wcc(out, e).await,
    }
}
