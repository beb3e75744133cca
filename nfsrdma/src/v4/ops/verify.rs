//! VERIFY and NVERIFY (RFC 8881 sections 18.31 and 18.15): the values are compared in their encoded form.

use crate::v4::attrs::{ObjectAttrs, is_write_only, supported_on};
use crate::v4::compound::Compound;
use crate::v4::status::Status;
use crate::v4::wire::attr;
use nfs_proto::nfs4::attrs::Fattr4;
use nfs_proto::xdr::encode;

pub(in crate::v4) async fn verify(cx: &mut Compound<'_>) -> Result<(), Status> {
    if same(cx).await? { Ok(()) } else { Err(Status::NotSame) }
}

pub(in crate::v4) async fn nverify(cx: &mut Compound<'_>) -> Result<(), Status> {
    if same(cx).await? { Err(Status::Same) } else { Ok(()) }
}

async fn same(cx: &mut Compound<'_>) -> Result<bool, Status> {
    let sent: Fattr4<'_> = cx.args.value()?;
    let want = sent.attrmask;
    let object = cx.described(&want)?;
    let supported = supported_on(cx.minor, object);
    if is_write_only(&want) || want.has(attr::RDATTR_ERROR) {
        return Err(Status::Inval);
    }
    if !want.is_within(&supported) {
        // RFC 8881 section 11.4.1: an absent file system lacks these attributes.
        return Err(if object.is_absent() { Status::Moved } else { Status::AttrNotSupp });
    }
    let facts = ObjectAttrs::of(cx, object, &want).await?;
    let mut ours = Vec::new();
    facts.encode(&want, &mut ours);
    Ok(ours == encode(&sent))
}
