//! LOOKUP (RFC 8881 section 18.13).

use nfs_proto::nfs4::ops::Component4;
use vfs::Kind;

use crate::v4::above::Child;
use crate::v4::compound::{Compound, component};
use crate::v4::links;
use crate::v4::object::{Located, Object};
use crate::v4::status::Status;

/// Longest name in a pseudo folder, in bytes, as in any directory.
const SHARE_NAME_MAX: usize = 255;

pub(in crate::v4) async fn lookup(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Component4 { name } = cx.args.value()?;
    cx.object()?;
    let enters = matches!(cx.object()?, Object::Above(_));
    // If auditing is mandatory and the record cannot be written, the look-up fails.
    let permit =
        if enters { audit::permit().map_err(|_| Status::ServerFault)? } else { Default::default() };
    let found = child(cx, component(name)?).await?;
    if let Object::Node(Located { share, closed: Some(why), .. }) = &found
        && why.is_of_protection()
    {
        // RFC 8881 section 2.6.3.1.1.5: the client will send SECINFO for this name.
        return Err(cx.closed(share, *why));
    }
    if let Object::Node(Located { share, closed: None, .. }) = &found {
        let path = share.nfs_path().as_bytes();
        cx.nfs.core.mounted((cx.conn, cx.call), permit, share, "4", path);
    }
    cx.set_current(found);
    Ok(())
}

/// Finds a name in the directory of the current file handle, which may be the root of a share.
pub(super) async fn child(cx: &Compound<'_>, name: &[u8]) -> Result<Object, Status> {
    match cx.object()? {
        Object::Above(above) => {
            if name.len() > SHARE_NAME_MAX {
                return Err(Status::NameTooLong);
            }
            match above.find(cx, name).ok_or(Status::NoEnt)? {
                Child::Share(share) => Ok(cx.root_of(share)),
                Child::Folder(folder) => Ok(Object::Above(folder)),
            }
        }
        Object::Node(at) => match at.node.kind() {
            Kind::Dir => {
                let (node, _) = at.node.lookup(&at.cred, name).await?;
                links::across(Object::Node(at.beside(node)), Some((&at.node, name))).await
            }
            Kind::Symlink => Err(Status::Symlink),
            _ => Err(Status::NotDir),
        },
    }
}
