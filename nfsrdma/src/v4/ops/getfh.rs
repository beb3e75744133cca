//! GETFH (RFC 8881 section 18.8).

use crate::v4::compound::Compound;
use crate::v4::status::Status;
use nfs_proto::nfs4::ops::NfsFh4;

pub(in crate::v4) async fn getfh(cx: &mut Compound<'_>) -> Result<(), Status> {
    let fh = cx.fh_of(cx.mounted()?);
    cx.out.value(&NfsFh4 { object: fh.as_bytes() });
    Ok(())
}
