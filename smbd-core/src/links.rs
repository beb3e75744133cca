//! Links: folders of a share that are on other servers, to which clients are referred by DFS (MS-DFSC).
//!
//! *Operation.* A share with links is the root of a DFS namespace. Whatever walks a path ([`covered`]) ends at the first link with
//! STATUS_PATH_NOT_COVERED, whether or not the client says that the path is one of DFS (MS-DFSC section 3.2.4.1), and the client
//! asks for the servers of that path ([`walk`], for FSCTL_DFS_GET_REFERRALS). Listings show links as reparse points.

use std::borrow::Cow;
use std::sync::Arc;

use rdma_transport::turn;
use vfs::links::Link;
use vfs::names::{Found, Look};
use vfs::namespace::Share;
use vfs::{Kind, NodeRef, VfsError};

use crate::fscc::attribute;
use crate::fscc::file::FileInfo;
use crate::request_context::RequestContext;
use crate::security;
use crate::status::Status;
use crate::tree::Tree;
use crate::wire::Flags;

/// IO_REPARSE_TAG_DFS (MS-FSCC section 2.1.2.1).
pub(crate) const TAG_DFS: u32 = 0x8000_000a;
/// Names after which other tasks may run.
const NAMES_BEFORE_PAUSE: usize = 16;
/// Most names that are looked up for one referral.
const NAMES_MAX: usize = 1024;

/// Returns whether the share is the root of a namespace.
pub(crate) fn is_root(share: &Share) -> bool {
    !share.rules.links.is_empty()
}

/// Fails with STATUS_PATH_NOT_COVERED if a walk has come to a link.
pub(crate) async fn covered(share: &Share, dir: &NodeRef, found: &Found) -> Result<(), Status> {
    match share.rules.links.find(dir, &found.name, &found.node).await? {
        Some(_) => Err(Status::PATH_NOT_COVERED),
        None => Ok(()),
    }
}

/// Like [`covered`], if no file has this name: the folder of a link was removed by a process of the host.
pub(crate) fn missing(
    share: &Share,
    dir: &NodeRef,
    name: &str,
    is_exact: bool,
) -> Result<(), Status> {
    match share.rules.links.missing(dir.id(), name, is_exact) {
        Some(_) => Err(Status::PATH_NOT_COVERED),
        None => Ok(()),
    }
}

/// Returns the name of a CREATE as a path of the share: in a tree of DFS a client may send it behind the names of server and share
/// (MS-SMB2 section 3.3.5.9). Like smbd, ignores which server and share are named.
pub(crate) fn local_name<'a>(
    cx: &RequestContext,
    tree: &Tree,
    name: Cow<'a, [u8]>,
) -> Result<Cow<'a, [u8]>, Status> {
    if !tree.is_dfs || !cx.header.flags.has(Flags::DFS) {
        return Ok(name);
    }
    let rest = below_share(&name)?;
    Ok(match name {
        Cow::Borrowed(name) => Cow::Borrowed(&name[rest..]),
        Cow::Owned(name) => Cow::Owned(name[rest..].to_vec()),
    })
}

/// Returns where the path below server and share begins, in bytes of UTF-16. Some clients begin with separators.
fn below_share(name: &[u8]) -> Result<usize, Status> {
    if name.is_empty() {
        return Err(Status::INVALID_PARAMETER);
    }
    let units = || name.as_chunks::<2>().0.iter().map(|unit| *unit == [b'\\', 0]);
    let lead = units().take_while(|is_separator| *is_separator).count();
    let mut ends = units().enumerate().skip(lead).filter(|(_, is_separator)| *is_separator);
    let end = ends.nth(1).map(|(at, _)| (at + 1) * 2);
    Ok(end.unwrap_or(name.len()))
}

/// Shows a link in a listing, as a folder with a reparse point.
pub(crate) fn show(facts: &mut FileInfo) {
    let kept = facts.basic.attributes & (attribute::HIDDEN | attribute::SYSTEM);
    facts.basic.attributes = kept | attribute::DIRECTORY | attribute::REPARSE_POINT;
    facts.standard.allocation = 0;
    facts.standard.end_of_file = 0;
    facts.standard.directory = 1;
    facts.reparse_tag = TAG_DFS;
    // A directory has no type in this field.
    facts.posix.mode &= 0o7777;
}

/// Finds the first link on a path as a user of the share. Returns it with the number of names up to it; `None` if the path has no
/// link.
pub(crate) async fn walk(
    cx: &RequestContext,
    (share, tree): (&Arc<Share>, &Tree),
    names: &[&str],
) -> Result<Option<(Arc<Link>, usize)>, Status> {
    let mut dir = tree.top(share);
    for (at, name) in names.iter().enumerate().take(NAMES_MAX) {
        if matches!(*name, "." | "..") {
            return Ok(None);
        }
        if at % NAMES_BEFORE_PAUSE == NAMES_BEFORE_PAUSE - 1 {
            turn::pause().await;
        }
        let found = match look(cx, tree, &dir, name).await {
            Ok(Look::Found(found)) => found,
            Ok(Look::Missing(_)) | Err(VfsError::NotFound) => {
                let link = share.rules.links.missing(dir.id(), name, false);
                return Ok(link.map(|link| (link.clone(), at + 1)));
            }
            Err(VfsError::Access | VfsError::BadName | VfsError::NotDir | VfsError::Stale) => {
                return Ok(None);
            }
            Err(e) => return Err(e.into()),
        };
        if let Some(link) = share.rules.links.find(&dir, &found.name, &found.node).await? {
            return Ok(Some((link, at + 1)));
        }
        dir = match found.attr.kind {
            Kind::Dir => found.node,
            _ => return Ok(None),
        };
    }
    Ok(None)
}

/// Looks a name up as the user, who may traverse folders that only its traverse right opens, as in CREATE.
async fn look(cx: &RequestContext, tree: &Tree, dir: &NodeRef, name: &str) -> vfs::VfsResult<Look> {
    let names = cx.server.namespace.names();
    match names.look_for(cx.host(), dir, &tree.cred, name).await {
        Err(VfsError::Access) => match security::may_pass(&tree.cred, dir).await? {
            Some(power) => {
                let actor = vfs::authority::Actor::by(power);
                names.look_for(cx.host(), dir, actor.cred(), name).await
            }
            None => Err(VfsError::Access),
        },
        other => other,
    }
}
