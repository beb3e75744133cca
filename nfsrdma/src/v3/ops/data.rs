//! READ, WRITE, COMMIT, READLINK (RFC 1813 sections 3.3.5 to 3.3.7 and 3.3.21).

use iobuf::Buf;
use state::Rights;
use vfs::backend::ReadInto;
use vfs::{Kind, Stable, VfsError, VfsResult, Written};

use super::super::attr::{put_post, put_wcc};
use super::{OK, Op, OpResult, Target};
use crate::limits::TRANSFER_MAX;
use crate::status::Nfsstat3;
use crate::xdr::{Writer, at_most};

pub(super) async fn read(
    op: &Op<'_>,
    file: &[u8],
    offset: u64,
    count: u32,
    out: &mut Writer,
) -> OpResult {
    let t = op.target(file).await?;
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(TRANSFER_MAX);
    let door = op.door(&t, Rights::READ);
    // Of an owner who holds the file open perhaps, and of who may execute it, backends know (RFC 1813 section 4.4).
    let into = ReadInto { attributes: true, ..op.conn.unseen().clone() };
    match door.read(&t.node, Some(&t.cred), offset, count, &into).await {
        Ok(read) => {
            let t = op.found_again(t, file, read.attr.as_ref()).await?;
            op.moved(read.len());
            out.u32(OK);
            put_post(out, &t.share, read.attr.as_ref());
            out.count(read.len());
            out.bool(read.eof);
            out.file_data(read);
        }
        Err(e) => t.fail_post(out, Nfsstat3::of_data(e)).await,
    }
    Ok(())
}

pub(super) async fn write(
    op: &Op<'_>,
    file: &[u8],
    offset: u64,
    count: u32,
    stable: Stable,
    data: Vec<Buf>,
    out: &mut Writer,
) -> OpResult {
    let t = op.target(file).await?;
    let given: usize = data.iter().map(Buf::len).sum();
    if usize::try_from(count) != Ok(given) {
        t.fail_wcc(out, Nfsstat3::Inval).await;
        return Ok(());
    }
    let data = if given > TRANSFER_MAX { at_most(data, TRANSFER_MAX) } else { data };
    match store(op, &t, offset, data, stable).await {
        Ok(written) => {
            let t = op.found_again(t, file, Some(&written.after)).await?;
            op.moved(written.count);
            out.u32(OK);
            put_wcc(out, &t.share, written.before.as_ref(), Some(&written.after));
            out.count(written.count);
            out.u32(match written.stable {
                Stable::Unstable => 0,
                Stable::Data => 1,
                Stable::File => 2,
            });
            out.fixed(&op.core.write_verifier(written.verifier));
        }
        Err(e) => t.fail_wcc(out, Nfsstat3::of_data(e)).await,
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
    let door = op.door(t, Rights::WRITE).opened_by(&t.cred);
    // The pieces are views: cloning them for the rare second attempt copies no data.
    match door.write(&t.share, &t.node, Some(&t.cred), offset, data.clone(), stable).await {
        Err(VfsError::Access) if t.node.kind() == Kind::File && t.is_owner().await => {
            door.write(&t.share, &t.node, None, offset, data, stable).await
        }
        other => other,
    }
}

pub(super) async fn commit(
    op: &Op<'_>,
    file: &[u8],
    offset: u64,
    count: u32,
    out: &mut Writer,
) -> OpResult {
    let t = op.target(file).await?;
    if t.node.kind() != Kind::File {
        t.fail_wcc(out, Nfsstat3::Inval).await;
        return Ok(());
    }
    match t.node.commit(offset, u64::from(count)).await {
        Ok(after) => {
            let t = op.found_again(t, file, Some(&after)).await?;
            out.u32(OK);
            put_wcc(out, &t.share, None, Some(&after));
            out.fixed(&op.core.write_verifier(t.node.verifier()));
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
            out.u32(OK);
            put_post(out, &t.share, t.after().await.as_ref());
            out.bulk(vec![Buf::from(target)]);
        }
        Err(e) => t.fail_post(out, e).await,
    }
    Ok(())
}
