//! RENAME (RFC 8881 section 18.26): from the saved directory to the current one.

use nfs_proto::nfs4::ops::{Rename, Renamed};
use vfs::{Kind, VfsError};

use crate::v4::compound::{Compound, change_info, component};
use crate::v4::object::Object;
use crate::v4::status::Status;

pub(in crate::v4) async fn rename(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Rename { oldname, newname } = cx.args.value()?;
    let from = match cx.saved_object()? {
        Object::Node(at) => at.clone(),
        Object::Above(_) => return Err(Status::RoFs),
    };
    let (old, new) = (component(oldname)?, component(newname)?);
    let to = cx.directory()?;
    if from.node.kind() != Kind::Dir {
        return Err(Status::NotDir);
    }
    if from.share.id != to.share.id {
        return Err(Status::Xdev);
    }
    if cx.nfs.clients.may_reclaim(cx.nfs.clients.now()) {
        // As in the kernel's server: another client may be about to reclaim by these names.
        return Err(Status::Grace);
    }
    let done = cx.file_ops().rename(&to.share, &from.node, &to.cred, old, &to.node, new).await;
    let done = done.map_err(|e| match e {
        // RFC 8881 section 18.26.3: the existing target has another type.
        VfsError::IsDir | VfsError::NotDir => Status::Exist,
        e => e.into(),
    })?;
    let (source_cinfo, target_cinfo) = (change_info(&done.0), change_info(&done.1));
    cx.out.value(&Renamed { source_cinfo, target_cinfo });
    Ok(())
}
