//! ACCESS (RFC 8881 section 18.1, RFC 8276 section 8.5).

use nfs_proto::nfs4::ops::Accessed;
use vfs::{Access, Kind};

use crate::v4::compound::Compound;
use crate::v4::object::Object;
use crate::v4::status::Status;

const OF_NODES: u32 = Access::READ | Access::MODIFY | Access::EXTEND;
const OF_DIRECTORIES: u32 = OF_NODES | Access::LOOKUP | Access::DELETE;
const OF_XATTRS: u32 = Access::XATTR_READ | Access::XATTR_WRITE | Access::XATTR_LIST;
const CHANGES: u32 = Access::MODIFY | Access::EXTEND | Access::DELETE | Access::XATTR_WRITE;

pub(in crate::v4) async fn access(cx: &mut Compound<'_>) -> Result<(), Status> {
    let asked: u32 = cx.args.value()?;
    let (supported, granted, nlink) = match cx.object()? {
        Object::Above(_) => (asked & OF_DIRECTORIES, asked & (Access::READ | Access::LOOKUP), 1),
        Object::Node(at) => {
            let mut known = match at.node.kind() {
                Kind::Dir => OF_DIRECTORIES,
                _ => OF_NODES | Access::EXECUTE,
            };
            if cx.minor >= 2 && at.share.backend.capabilities_of(&at.node).xattr {
                known |= OF_XATTRS;
            }
            let supported = asked & known;
            let attr = at.node.getattr().await?;
            let Access(mut granted) = at.node.access(&at.cred, Access(supported), &attr).await?;
            if at.share.read_only {
                granted &= !CHANGES;
            }
            (supported, granted & supported, attr.nlink)
        }
    };
    cx.found_again(nlink).await?;
    cx.out.value(&Accessed { supported, access: granted });
    Ok(())
}
