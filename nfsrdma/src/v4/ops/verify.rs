//! VERIFY and NVERIFY (RFC 8881 sections 18.31 and 18.15): the values are compared in their encoded form.

use crate::v4::attrs::{Facts, is_write_only, supported};
use crate::v4::compound::{Compound, Object};
use crate::v4::pseudo;
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
    let object = cx.mounted()?;
    let caps = match object {
        Object::Above(_) => pseudo::CAPABILITIES,
        Object::Node(at) => at.share.backend.capabilities(),
    };
    if is_write_only(&want) || want.has(attr::RDATTR_ERROR) {
        return Err(Status::Inval);
    }
    if !want.is_within(&supported(cx.minor, &caps)) {
        return Err(Status::AttrNotSupp);
    }
    let facts = Facts::of(cx, object, &want).await?;
    let mut ours = Vec::new();
    facts.encode(&want, &mut ours);
    Ok(ours == encode(&sent))
}
