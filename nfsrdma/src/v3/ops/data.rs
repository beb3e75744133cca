//! READ, WRITE, COMMIT, READLINK (RFC 1813 sections 3.3.5 to 3.3.7 and 3.3.21).

use iobuf::Buf;
use nfs_proto::nfs3::{
    Commit3args, Commit3resok, Nfsstat3, Read3args, Read3resok, Readlink3resok, StableHow,
    Write3args, Write3resok,
};
use nfs_proto::xdr::Bulk;
use state::Rights;
use vfs::backend::ReadInto;
use vfs::{Kind, Stable, VfsError, VfsResult, Written};

use super::super::attr::{post, wcc};
use super::{Op, OpResult, Target, answer};
use crate::limits::TRANSFER_MAX;
use crate::status::Failed;
use rdma_transport::xdr::{Writer, at_most};

/// Converts a byte count to the protocol's 32 bits. Counts never exceed [`TRANSFER_MAX`].
fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

pub(super) async fn read(op: &Op<'_>, args: &Read3args<'_>, out: &mut Writer) -> OpResult {
    let Read3args { file, offset, count: wanted } = *args;
    let t = op.target(file).await?;
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX).min(TRANSFER_MAX);
    let file_ops = op.file_ops(&t, Rights::READ);
    // The backends themselves allow reads to the owner (who may have the file open) and to callers with execute permission (RFC
    // 1813 section 4.4).
    let into = ReadInto { attributes: true, ..op.conn.unseen(op.call).clone() };
    match file_ops.read(&t.node, Some(&t.cred), offset, wanted, &into).await {
        Ok(read) => {
            let t = op.found_again(t, file, read.attr.as_ref()).await?;
            op.moved(read.len());
            let ok = Read3resok {
                file_attributes: post(&t.share, read.attr.as_ref()),
                count: count(read.len()),
                eof: read.eof,
                data: Bulk { len: read.len() },
            };
            answer(out, &ok);
            out.attach(read.data, read.pages);
        }
        Err(e) => t.fail_post(out, Failed::of_data(e)).await,
    }
    Ok(())
}

pub(super) async fn write(
    op: &Op<'_>,
    args: &Write3args<'_>,
    data: Vec<Buf>,
    out: &mut Writer,
) -> OpResult {
    let Write3args { file, offset, .. } = *args;
    let t = op.target(file).await?;
    let given: usize = data.iter().map(Buf::len).sum();
    if usize::try_from(args.count) != Ok(given) {
        t.fail_wcc(out, Nfsstat3::Inval).await;
        return Ok(());
    }
    let data = if given > TRANSFER_MAX { at_most(data, TRANSFER_MAX) } else { data };
    let stable = match args.stable {
        StableHow::Unstable => Stable::Unstable,
        StableHow::DataSync => Stable::Data,
        StableHow::FileSync => Stable::File,
    };
    match store(op, &t, offset, data, stable).await {
        Ok(written) => {
            let t = op.found_again(t, file, Some(&written.after)).await?;
            op.moved(written.count);
            let committed = match written.stable {
                Stable::Unstable => StableHow::Unstable,
                Stable::Data => StableHow::DataSync,
                Stable::File => StableHow::FileSync,
            };
            let file_wcc = wcc(&t.share, written.before.as_ref(), Some(&written.after));
            let verf = op.core.write_verifier(written.verifier);
            answer(out, &Write3resok { file_wcc, count: count(written.count), committed, verf });
        }
        Err(e) => t.fail_wcc(out, Failed::of_data(e)).await,
    }
    Ok(())
}

async fn store(
    op: &Op<'_>,
    t: &Target,
    offset: u64,
    data: Vec<Buf>,
    stable: Stable,
) -> VfsResult<Written> {
    let file_ops = op.file_ops(t, Rights::WRITE).opened_by(&t.cred);
    let write = async {
        // The pieces are views: cloning them for the rare second attempt copies no data.
        match file_ops.write(&t.share, &t.node, Some(&t.cred), offset, data.clone(), stable).await {
            Err(VfsError::Access) if t.node.kind() == Kind::File && t.is_owner().await => {
                file_ops.write(&t.share, &t.node, None, offset, data, stable).await
            }
            other => other,
        }
    };
    op.core.writers.recorded(false, (&t.share, &t.node), op.call, write).await
}

pub(super) async fn commit(op: &Op<'_>, args: &Commit3args<'_>, out: &mut Writer) -> OpResult {
    let Commit3args { file, offset, count } = *args;
    let t = op.target(file).await?;
    if t.node.kind() != Kind::File {
        t.fail_wcc(out, Nfsstat3::Inval).await;
        return Ok(());
    }
    match t.node.commit(offset, u64::from(count)).await {
        Ok(after) => {
            let t = op.found_again(t, file, Some(&after)).await?;
            let file_wcc = wcc(&t.share, None, Some(&after));
            let verf = op.core.write_verifier(t.node.verifier());
            answer(out, &Commit3resok { file_wcc, verf });
        }
        Err(e) => t.fail_wcc(out, e).await,
    }
    Ok(())
}

pub(super) async fn readlink(op: &Op<'_>, symlink: &[u8], out: &mut Writer) -> OpResult {
    let t = op.target(symlink).await?;
    if t.node.kind() != Kind::Symlink {
        t.fail_post(out, Nfsstat3::Inval).await;
        return Ok(());
    }
    match t.node.readlink(&t.cred).await {
        Ok(target) => {
            let symlink_attributes = post(&t.share, t.after().await.as_ref());
            let data = Bulk { len: target.len() };
            answer(out, &Readlink3resok { symlink_attributes, data });
            out.attach(vec![Buf::from(target)], None);
        }
        Err(e) => t.fail_post(out, e).await,
    }
    Ok(())
}
