//! Resolves a path to its directory and the file with the last name.
//!
//! *Operation.* A name that exists in the given spelling costs one lookup. If the share leaves symbolic links to its clients, the
//! response contains the link and its target, and the client sends another path, which starts at the share's root again. Otherwise
//! [`symlinks`] finds the target, and the walk continues from there. The open keeps the path that the client sent.
//!
//! If the request names a time in the past, the walk continues in the snapshot of that time, beginning at the first directory that
//! has it: so names deleted since then can be found below it.

use std::sync::Arc;

use vfs::authority::Actor;
use vfs::names::{Found, Look};
use vfs::reparse::{Kept, Tagged};
use vfs::{Attr, Cred, Kind, NodeId, NodeRef, VfsError, VfsResult};

use super::{Meets, Wanted, meets};
use crate::folders::Above;
use crate::links;
use crate::open::{PathInShare, Walk, walked};
use crate::path::join;
use crate::request_context::RequestContext;
use crate::security;
use crate::status::Status;
use crate::symlinks;
use crate::wire::reparse::Reparse;

/// The end of a path.
pub(super) struct Walked {
    /// The directory, or the root itself for the root of the share.
    pub(super) dir: NodeRef,
    /// The directory's path in the file system's spelling.
    pub(super) dir_path: String,
    /// The directory and its ancestors.
    pub(super) above: Arc<Above<NodeRef>>,
    /// Number of directory renames when the walk began.
    began: u64,
    /// The client's name for the file, if it was reached through a link.
    pub(super) link: Option<Vec<u8>>,
    /// The file with the last name.
    pub(super) found: Option<Found>,
    /// Attributes of the directory, if the file does not exist.
    pub(super) dir_attr: Option<Attr>,
}

/// A symbolic link that stopped the walk.
pub(super) struct Stopped {
    pub(super) link: NodeRef,
    /// Unparsed part of the path, in UTF-16 bytes, starting at the separator after the link.
    pub(super) unparsed: usize,
}

/// Reasons for ending a walk early.
pub(super) enum Ended {
    Failed(Status),
    Stopped(Stopped),
}

impl<S: Into<Status>> From<S> for Ended {
    fn from(s: S) -> Self {
        Self::Failed(s.into())
    }
}

impl Walked {
    /// Returns the location of a name, in the file system's spelling, in this directory.
    pub(super) fn place(&self, name: &[u8]) -> PathInShare {
        let shown = self.link.as_deref().unwrap_or(name);
        let path = join(&self.dir_path, &vfs::names::to_client(shown));
        let walk = Some(Walk { above: self.above.clone(), began: self.began });
        PathInShare { dir: self.dir.clone(), name: name.to_vec(), path, walk }
    }
}

/// Walks a path. The caller must handle a link at its end.
pub(super) async fn walk(cx: &RequestContext, w: &Wanted<'_>) -> Result<Walked, Ended> {
    let path = &w.path;
    let mut past = Past { then: w.past(), entry: None };
    let began = cx.server.opens.renames();
    let root = past.enter(w, w.tree.top(w.share)).await?;
    let above = walked(&root, None);
    let (dir_path, link) = (String::new(), None);
    let mut at = Walked { dir: root, dir_path, above, began, link, found: None, dir_attr: None };
    let Some((last, before)) = path.names.split_last() else {
        let attr = at.dir.getattr().await.map_err(Status::from)?;
        at.found = Some(Found { node: at.dir.clone(), attr, name: Vec::new() });
        return past.entered(at);
    };
    for (i, name) in before.iter().enumerate() {
        let found = match find(cx, w, &at.dir, name).await {
            Ok(Look::Found(found)) => found,
            Ok(Look::Missing(_)) | Err(VfsError::NotFound | VfsError::Stale) => {
                past.entered(())?;
                links::missing(w.share, &at.dir, name, w.posix)?;
                return Err(Status::OBJECT_PATH_NOT_FOUND.into());
            }
            Err(e) => return Err(Status::from(e).into()),
        };
        links::covered(w.share, &at.dir, &found).await?;
        let kept = symlinks::tagged(&found.node, &found.attr, w.posix).await;
        if let Some(kept) = kept.map_err(Status::from)? {
            return Err(ended_at(&path.names[i + 1..], found, kept));
        }
        match found.attr.kind {
            Kind::Dir => {
                at.dir = past.enter(w, found.node).await?;
                at.above = walked(&at.dir, Some(at.above));
            }
            Kind::Symlink if w.follows_links => {
                let target = follow(w, &past, &at, &found.node).await;
                let target = target.map_err(|e| match e {
                    VfsError::NotFound => Status::OBJECT_PATH_NOT_FOUND,
                    e => Status::from(e),
                })?;
                let folder = target.into_folder().ok_or(Status::OBJECT_PATH_NOT_FOUND)?;
                at.dir = past.enter(w, folder.node.clone()).await?;
                at.above = walked(&at.dir, folder.parent.clone());
            }
            Kind::Symlink => return Err(stopped_at(&path.names[i + 1..], found.node)),
            _ => return Err(Status::OBJECT_PATH_NOT_FOUND.into()),
        }
        at.dir_path = join(&at.dir_path, &vfs::names::to_client(&found.name));
    }
    match find(cx, w, &at.dir, last).await {
        Ok(Look::Found(mut found)) => {
            links::covered(w.share, &at.dir, &found).await?;
            if found.attr.kind == Kind::Symlink
                && w.follows_last_link()
                && symlinks::tagged(&found.node, &found.attr, w.posix)
                    .await
                    .map_err(Status::from)?
                    .is_none()
            {
                let target = follow(w, &past, &at, &found.node).await.map_err(Status::from)?;
                at.link = Some(std::mem::replace(&mut found, target.found).name);
                at.dir = target.above.node.clone();
                at.above = target.above;
            }
            if past.then.is_some() && found.attr.kind == Kind::Dir {
                found.node = past.enter(w, found.node).await?;
                found.attr = found.node.getattr().await.map_err(Status::from)?;
            }
            at.found = Some(found);
        }
        Ok(Look::Missing(dir)) => {
            links::missing(w.share, &at.dir, last, w.posix)?;
            at.dir_attr = Some(dir);
        }
        Err(VfsError::NotFound) => links::missing(w.share, &at.dir, last, w.posix)?,
        Err(e) => return Err(Status::from(e).into()),
    }
    past.entered(at)
}

/// Ends a walk at a link; `rest`: the names after it.
fn stopped_at(rest: &[String], link: NodeRef) -> Ended {
    let unparsed = rest.iter().map(|n| 2 + utf16_len(n)).sum();
    Ended::Stopped(Stopped { link, unparsed })
}

/// Ends a walk at a reparse point that a client keeps with a node: it cannot lead to any name below it.
fn ended_at(rest: &[String], found: Found, kept: Tagged) -> Ended {
    match meets(kept) {
        Meets::Link => stopped_at(rest, found.node),
        Meets::Other if kept.is_dir => Status::IO_REPARSE_TAG_NOT_HANDLED.into(),
        Meets::Other => Status::OBJECT_PATH_NOT_FOUND.into(),
    }
}

/// Finds the target of a link in the current folder of the walk.
async fn follow(
    w: &Wanted<'_>,
    past: &Past,
    at: &Walked,
    link: &NodeRef,
) -> VfsResult<symlinks::Target> {
    let from = past.entry.map(|entry| beneath(&at.above, entry));
    symlinks::follow(w.tree, w.share, from.as_ref().unwrap_or(&at.above), link).await
}

/// Returns a folder with its ancestors up to and including `first`.
fn beneath(above: &Arc<Above<NodeRef>>, first: NodeId) -> Arc<Above<NodeRef>> {
    let parent = above.parent.as_ref().filter(|_| above.id != first);
    walked(&above.node, parent.map(|parent| beneath(parent, first)))
}

/// The snapshot that a path refers to.
struct Past {
    /// Its time in seconds since 1970, until the walk enters it.
    then: Option<i64>,
    /// The directory at which the walk entered it.
    entry: Option<NodeId>,
}

impl Past {
    /// Returns the directory in that snapshot, or unchanged if the snapshot does not contain it.
    async fn enter(&mut self, w: &Wanted<'_>, dir: NodeRef) -> Result<NodeRef, Ended> {
        let Some(then) = self.then else { return Ok(dir) };
        let found = match dir.snapshot_at(&w.tree.cred, then).await {
            // A subdirectory may have snapshots for a caller that can only traverse this directory.
            Err(VfsError::Access) => None,
            found => found.map_err(Status::from)?,
        };
        let Some(found) = found else { return Ok(dir) };
        (self.then, self.entry) = (None, Some(found.id()));
        Ok(found)
    }

    /// Fails if the walk ended without entering the snapshot.
    fn entered<T>(&self, at: T) -> Result<T, Ended> {
        match self.then {
            None => Ok(at),
            Some(_) => Err(Status::OBJECT_NAME_NOT_FOUND.into()),
        }
    }
}

/// Finds a name. If the directory's access control list denies the search, the traverse right applies.
async fn find(cx: &RequestContext, w: &Wanted<'_>, dir: &NodeRef, name: &str) -> VfsResult<Look> {
    match find_as(cx, w, &w.tree.cred, dir, name).await {
        Err(VfsError::Access) => match security::may_pass(&w.tree.cred, dir).await? {
            Some(power) => find_as(cx, w, Actor::by(power).cred(), dir, name).await,
            None => match security::may_pass_beyond(dir, &w.beyond) {
                Some(power) => find_as(cx, w, Actor::by(power).cred(), dir, name).await,
                None => Err(VfsError::Access),
            },
        },
        other => other,
    }
}

/// Finds a name: exactly for clients with the POSIX extensions, else ignoring case.
async fn find_as(
    cx: &RequestContext,
    w: &Wanted<'_>,
    cred: &Cred,
    dir: &NodeRef,
    name: &str,
) -> VfsResult<Look> {
    if !w.posix {
        return cx.server.namespace.names().look_for(cx.host(), dir, cred, name).await;
    }
    w.spelling().exact(dir, cred, name).await.map(Look::Found)
}

fn utf16_len(text: &str) -> usize {
    text.encode_utf16().count() * 2
}

/// Builds the body of a symbolic link error (MS-SMB2 sections 2.2.2 and 2.2.2.2.1). Dialect 3.1.1 wraps it in a context. Clients
/// with the POSIX extensions get the target unchanged.
pub(super) async fn stopped(
    cx: &RequestContext,
    w: &Wanted<'_>,
    at: &Stopped,
) -> Result<Vec<u8>, Status> {
    use crate::wire::negotiate::Dialect;
    let (target, relative) = match kept_target(w, at).await? {
        Some(kept) => kept,
        None => {
            let target = at.link.readlink(&w.tree.cred).await?;
            let relative = !target.starts_with(b"/");
            let target = String::from_utf8_lossy(&target).into_owned();
            (if w.posix { target } else { target.replace('/', "\\") }, relative)
        }
    };
    let data = crate::wire::error::symlink(&target, relative, at.unparsed);
    Ok(crate::wire::error::body(&data, cx.conn.dialect() == Dialect::V311))
}

/// Returns the target of a link that a client keeps with a node, and whether it is relative; `None` for a link of the host.
async fn kept_target(w: &Wanted<'_>, at: &Stopped) -> Result<Option<(String, bool)>, Status> {
    if w.posix && at.link.kind() == Kind::Symlink {
        return Ok(None);
    }
    let Some(kept) = Kept::of(&at.link).await? else { return Ok(None) };
    match Reparse::parse(&kept.buffer) {
        Ok(Some(Reparse::Symlink { target, relative })) => Ok(Some((target, relative))),
        // Checked when it was set, so another program has changed it.
        _ => Err(Status::IO_REPARSE_DATA_INVALID),
    }
}
