//! COMMIT (RFC 8881 section 18.3).

use crate::v4::compound::Compound;
use crate::v4::status::Status;
use nfs_proto::nfs4::ops::Commit;

pub(in crate::v4) async fn commit(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Commit { offset, count } = cx.args.value()?;
    let at = cx.file()?;
    at.node.commit(offset, u64::from(count)).await?;
    cx.out.value(&cx.nfs.core.write_verifier(at.node.verifier()));
    Ok(())
}
