//! LINK (RFC 8881 section 18.9): adds a name for the saved file in the current directory.

use nfs_proto::nfs4::ops::Component4;
use vfs::Kind;

use crate::v4::compound::{Compound, change_info, component};
use crate::v4::object::Object;
use crate::v4::status::Status;

pub(in crate::v4) async fn link(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Component4 { name } = cx.args.value()?;
    let file = match cx.saved_object()? {
        Object::Node(at) => at.clone(),
        Object::Above(_) => return Err(Status::IsDir),
    };
    let name = component(name)?;
    let dir = cx.directory()?;
    if file.node.kind() == Kind::Dir {
        return Err(Status::IsDir);
    }
    if file.share.id != dir.share.id {
        return Err(Status::Xdev);
    }
    let file_ops = cx.file_ops();
    let (_, change) = file_ops.link(&dir.share, &file.node, &dir.cred, &dir.node, name).await?;
    cx.out.value(&change_info(&change));
    Ok(())
}
