//! Links: folders of a share that are on other servers, which NFS 4 shows as absent file systems (RFC 8881 section 11.3).

use vfs::NodeRef;
use vfs::namespace::Refusal;

use super::object::Object;
use super::status::Status;

/// Marks a file as absent if it is a link: every operation on it then returns MOVED, and its location can be read. `found`: the
/// folder and the name by which a look-up has found it.
pub(super) async fn across(
    object: Object,
    found: Option<(&NodeRef, &[u8])>,
) -> Result<Object, Status> {
    match object {
        Object::Node(at) if at.closed.is_none() && !at.share.rules.links.is_empty() => {
            // Boxed, so that the future of each PUTFH does not include it.
            Box::pin(mark(at, found)).await
        }
        object => Ok(object),
    }
}

async fn mark(
    mut at: super::object::Located,
    found: Option<(&NodeRef, &[u8])>,
) -> Result<Object, Status> {
    let links = &at.share.rules.links;
    let link = match found {
        Some((dir, name)) => links.find(dir, name, &at.node).await?,
        None => match links.of(at.node.id()) {
            Some(link) => Some(link.clone()),
            None => links.of_text(&at.node, None).await?,
        },
    };
    if link.is_some() {
        (at.closed, at.link) = (Some(Refusal::Elsewhere), link);
    }
    Ok(Object::Node(at))
}
