//! COMMIT (RFC 8881 section 18.3).

use crate::v4::compound::Compound;
use crate::v4::status::Status;

pub(in crate::v4) async fn commit(cx: &mut Compound<'_>) -> Result<(), Status> {
    let (offset, count) = (cx.args.u64()?, cx.args.u32()?);
    let at = cx.file()?;
    at.node.commit(offset, u64::from(count)).await?;
    cx.out.fixed(&cx.nfs.core.write_verifier(at.node.verifier()));
    Ok(())
}
