//! READLINK (RFC 8881 section 18.24). The transport may transfer the target by RDMA Write (RFC 8267 section 3.1).

use iobuf::Buf;
use nfs_proto::nfs4::ops::ReadlinkDone;
use nfs_proto::xdr::Bulk;
use vfs::Kind;

use crate::v4::compound::Compound;
use crate::v4::object::Object;
use crate::v4::status::Status;

pub(in crate::v4) async fn readlink(cx: &mut Compound<'_>) -> Result<(), Status> {
    let wrong = if cx.minor == 0 { Status::Inval } else { Status::WrongType };
    let at = match cx.object()? {
        Object::Node(at) if at.node.kind() == Kind::Symlink => at,
        _ => return Err(wrong),
    };
    let target = at.node.readlink(&at.cred).await?;
    cx.out.value(&ReadlinkDone { link: Bulk { len: target.len() } });
    cx.out.attach(vec![Buf::from(target)], None);
    Ok(())
}
