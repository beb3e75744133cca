//! LOOKUPP (RFC 8881 section 18.14).

use vfs::Kind;

use crate::v4::above::Above;
use crate::v4::compound::Compound;
use crate::v4::links;
use crate::v4::object::Object;
use crate::v4::status::Status;

pub(in crate::v4) async fn lookupp(cx: &mut Compound<'_>) -> Result<(), Status> {
    let parent = parent(cx).await?;
    cx.set_current(parent);
    Ok(())
}

/// Finds the parent of the current directory. The parent of a share's root is the pseudo folder of its path; the root of all has
/// none.
pub(super) async fn parent(cx: &Compound<'_>) -> Result<Object, Status> {
    let at = match cx.mounted()? {
        Object::Above(above) => return above.parent().map(Object::Above).ok_or(Status::NoEnt),
        Object::Node(at) => at,
    };
    match at.node.kind() {
        Kind::Dir if at.share.backend.root().id() == at.node.id() => {
            Ok(Object::Above(Above::of_share(&at.share)))
        }
        Kind::Dir => {
            let (node, _) = at.node.lookup(&at.cred, b"..").await?;
            links::across(Object::Node(at.beside(node)), None).await
        }
        Kind::Symlink if cx.minor > 0 => Err(Status::Symlink),
        _ => Err(Status::NotDir),
    }
}
