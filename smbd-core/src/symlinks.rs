//! Symbolic links that the server follows, and the facts that clients see of links that it does not follow.
//!
//! *Operation.* [`follow`] walks a target name by name with the rights of the caller. Each step is a look-up in a folder beneath
//! the top of the share, so that no target leads outside, whatever another process changes meanwhile. An absolute target, and a
//! target that climbs above the top, are followed if their text leads back into the folder of the share, as with smbd.
//!
//! *Memory.* One path of at most [`STEPS_MAX`] names.
//!
//! *Errors.* [`VfsError::NotFound`] for a link that dangles, leaves the share, or is one of more than [`LINKS_MAX`].

use std::path::Path;
use std::sync::Arc;

use rdma_transport::turn;
use vfs::authority::Actor;
use vfs::links::Links;
use vfs::names::Found;
use vfs::namespace::Share;
use vfs::reparse::Tagged;
use vfs::{Attr, Cred, Kind, NodeId, NodeRef, VfsError, VfsResult};

use crate::dtyp::mask;
use crate::folders::Above;
use crate::fscc::attribute;
use crate::fscc::file::FileInfo;
use crate::open::{File, Open, walked};
use crate::path_tracking;
use crate::request_context::RequestContext;
use crate::security;
use crate::settings::Symlinks;
use crate::tree::Tree;
use crate::wire::close::Basics;
use crate::wire::reparse::{TAG_NFS, TAG_SYMLINK};

/// Links in one target, as many as Linux allows.
const LINKS_MAX: usize = 40;
/// Most names that are looked up for one target.
const STEPS_MAX: usize = 1024;
/// Names after which other tasks may run.
const STEPS_BEFORE_PAUSE: usize = 16;

type Name = Vec<u8>;
type Chain = Arc<Above<NodeRef>>;

/// The target of a link.
pub(crate) struct Target {
    pub(crate) found: Found,
    /// The folder that contains the target; for the top of the share, the top itself.
    pub(crate) above: Chain,
}

impl Target {
    /// Returns the target as a folder below the folders that lead to it; `None` if it is not a folder.
    pub(crate) fn into_folder(self) -> Option<Chain> {
        let parent = (!self.found.name.is_empty()).then_some(self.above);
        (self.found.attr.kind == Kind::Dir).then(|| walked(&self.found.node, parent))
    }
}

/// Returns whether the server follows links for this client: its share says so, and it has not negotiated the POSIX extensions.
/// Linux negotiates them on each connection and makes, reads and follows links itself, even on a mount without them.
pub(crate) fn are_followed(cx: &RequestContext, tree: &Tree) -> bool {
    let has_posix = cx.conn.negotiated().is_some_and(|n| n.posix);
    !has_posix && tree.settings.symlinks != Symlinks::Client
}

fn names_of(path: &[u8]) -> Vec<Name> {
    let parts = path.split(|b| *b == b'/');
    parts.filter(|name| !name.is_empty() && *name != b".").map(<[u8]>::to_vec).collect()
}

/// Returns the remaining names of a path that begins at `start`, once its text has reached `folder`.
fn names_beneath(folder: &[Name], mut start: Vec<Name>, names: &[Name]) -> Option<Vec<Name>> {
    for (at, name) in names.iter().enumerate() {
        if start == folder {
            return Some(names[at..].to_vec());
        }
        match &name[..] {
            b"." => {}
            b".." => drop(start.pop()),
            name => start.push(name.to_vec()),
        }
    }
    (start == folder).then(Vec::new)
}

/// A walk along the target of a link.
struct Route {
    /// The folder reached so far.
    at: Chain,
    /// The name by which it was reached, if that is its own name.
    name: Option<Name>,
    /// Names to look up, the next one last.
    rest: Vec<Name>,
    followed: usize,
    /// The links of the share to other servers.
    links: Arc<Links>,
    /// The top of the share.
    top: NodeRef,
    /// The paths of the top on the host. Empty if absolute targets are not followed.
    folders: Vec<Vec<Name>>,
}

impl Route {
    async fn new(tree: &Tree, share: &Share, from: &Chain) -> VfsResult<Self> {
        let top = tree.top(share);
        let mut folders = Vec::new();
        // No path leads from a folder of a snapshot back to the present.
        if let Symlinks::Server(all) = &tree.settings.symlinks
            && contains(from, top.id())
        {
            let home = match &tree.home {
                Some(home) => names_of(&home.path().await?),
                None => Vec::new(),
            };
            let whole = |folder: &Path| {
                let mut names = names_of(folder.as_os_str().as_encoded_bytes());
                names.extend_from_slice(&home);
                names
            };
            folders = all.iter().map(|folder| whole(folder)).collect();
        }
        let (name, rest, links) = (None, Vec::new(), share.rules.links.clone());
        Ok(Self { at: from.clone(), name, rest, followed: 0, links, top, folders })
    }

    /// Puts the names of a target before the remaining ones.
    fn take(&mut self, target: &[u8]) -> VfsResult<()> {
        self.followed += 1;
        if self.followed > LINKS_MAX {
            return Err(VfsError::NotFound);
        }
        if target.ends_with(b"/") || target.ends_with(b"/.") {
            // Only a folder may match.
            self.rest.push(b".".to_vec());
        }
        self.rest.extend(names_of(target).into_iter().rev());
        if target.starts_with(b"/") { self.come_back(false) } else { Ok(()) }
    }

    /// Continues at the top of the share if the remaining names lead there: from the root of the host, or from the folder that
    /// contains the share.
    fn come_back(&mut self, from_above: bool) -> VfsResult<()> {
        let names: Vec<Name> = self.rest.iter().rev().cloned().collect();
        let beneath = |folder: &Vec<Name>| {
            let above = folder.split_last().map_or(&[][..], |(_, above)| above);
            let start = if from_above { above.to_vec() } else { Vec::new() };
            names_beneath(folder, start, &names)
        };
        let mut rest = self.folders.iter().find_map(beneath).ok_or(VfsError::NotFound)?;
        rest.reverse();
        (self.rest, self.name, self.at) = (rest, None, walked(&self.top, None));
        Ok(())
    }

    fn climb(&mut self) -> VfsResult<()> {
        if self.at.id == self.top.id() {
            return self.come_back(true);
        }
        self.name = None;
        self.at = self.at.parent.clone().ok_or(VfsError::NotFound)?;
        Ok(())
    }

    /// Looks up the remaining names. Returns the last one if it is not a folder, `None` if the walk ends in the folder `at`.
    async fn go(&mut self, cred: &Cred) -> VfsResult<Option<Found>> {
        for step in 0..STEPS_MAX {
            if step % STEPS_BEFORE_PAUSE == STEPS_BEFORE_PAUSE - 1 {
                turn::pause().await;
            }
            let Some(name) = self.rest.pop() else { return Ok(None) };
            match &name[..] {
                b"." => continue,
                b".." => {
                    self.climb()?;
                    continue;
                }
                _ => {}
            }
            let (node, attr) = look_up(cred, &self.at.node, &name).await?;
            if self.links.find(&self.at.node, &name, &node).await?.is_some() {
                // The target is on another server.
                return Err(VfsError::NotFound);
            }
            // A reparse point that Windows made leads nowhere on this host.
            if is_passed(attr.kind) && tagged(&node, &attr, false).await?.is_some() {
                return Err(VfsError::NotFound);
            }
            match attr.kind {
                Kind::Dir => {
                    self.at = walked(&node, Some(self.at.clone()));
                    self.name = Some(name);
                }
                Kind::Symlink => self.take(&node.readlink(cred).await?)?,
                _ if self.rest.is_empty() => return Ok(Some(Found { node, attr, name })),
                _ => return Err(VfsError::NotFound),
            }
        }
        Err(VfsError::NotFound)
    }
}

/// Returns whether a walk goes on at such a node.
fn is_passed(kind: Kind) -> bool {
    matches!(kind, Kind::Dir | Kind::Symlink)
}

/// Returns the reparse point that a client keeps with a node (`vfs::reparse`). `attr`: the node's own, just read. Clients with the
/// POSIX extensions see a symbolic link as such, whatever else is kept with it.
pub(crate) async fn tagged(node: &NodeRef, attr: &Attr, posix: bool) -> VfsResult<Option<Tagged>> {
    if posix && attr.kind == Kind::Symlink {
        return Ok(None);
    }
    Ok(node.dos(attr).await?.reparse)
}

/// Returns whether the folder is this one or below it.
fn contains(chain: &Chain, id: NodeId) -> bool {
    let mut at = Some(chain);
    while let Some(folder) = at {
        if folder.id == id {
            return true;
        }
        at = folder.parent.as_ref();
    }
    false
}

/// Looks a name up as the caller, which may traverse the folder even if the folder's list does not allow it to look names up.
async fn look_up(cred: &Cred, dir: &NodeRef, name: &[u8]) -> VfsResult<(NodeRef, Attr)> {
    match dir.lookup(cred, name).await {
        Err(VfsError::Access) => match security::may_pass(cred, dir).await? {
            Some(power) => dir.lookup(Actor::by(power).cred(), name).await,
            None => Err(VfsError::Access),
        },
        Err(VfsError::Stale | VfsError::NotDir) => Err(VfsError::NotFound),
        other => other,
    }
}

/// Follows a link in a folder as the user of a tree connect. `from`: that folder and those above it.
pub(crate) async fn follow(
    tree: &Tree,
    share: &Share,
    from: &Chain,
    link: &NodeRef,
) -> VfsResult<Target> {
    let mut route = Route::new(tree, share, from).await?;
    route.take(&link.readlink(&tree.cred).await?)?;
    if let Some(found) = route.go(&tree.cred).await? {
        return Ok(Target { found, above: route.at });
    }
    let (at, is_top) = (route.at.clone(), route.at.id == route.top.id());
    let attr = at.node.getattr().await?;
    let (above, name) = match (&at.parent, route.name) {
        (Some(parent), Some(name)) => (parent.clone(), name),
        (Some(parent), None) if !is_top => {
            let path = at.node.path().await?;
            (parent.clone(), names_of(&path).pop().unwrap_or_default())
        }
        _ => (at.clone(), Vec::new()),
    };
    Ok(Target { found: Found { node: at.node.clone(), attr, name }, above })
}

/// The facts of a link that is shown as a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkFacts {
    /// The tag that GET_REPARSE_POINT reports.
    pub(crate) tag: u32,
    /// True if it leads to a folder: Windows enters a link only if its attributes say so (MS-FSCC section 2.6).
    pub(crate) to_folder: bool,
}

impl LinkFacts {
    /// Reads the facts of a link in this folder. Clients of the POSIX extensions see each link as an NFS link.
    pub(crate) async fn read(
        tree: &Tree,
        share: &Share,
        from: &Chain,
        link: &NodeRef,
        posix: bool,
    ) -> Self {
        let kept = async { tagged(link, &link.getattr().await?, posix).await };
        if let Ok(Some(Tagged { tag, is_dir })) = kept.await {
            return Self { tag, to_folder: is_dir };
        }
        let target = link.readlink(&tree.cred).await.unwrap_or_default();
        let tag = if posix || target.starts_with(b"/") { TAG_NFS } else { TAG_SYMLINK };
        let to_folder = !posix
            && follow(tree, share, from, link).await.is_ok_and(|t| t.found.attr.kind == Kind::Dir);
        Self { tag, to_folder }
    }

    /// Reads the facts of an open link; `None` if the file is no link.
    pub(crate) async fn of_open(cx: &RequestContext, open: &Open, file: &File) -> Option<Self> {
        if file.node().kind() != Kind::Symlink {
            return None;
        }
        let tree = cx.tree().ok()?;
        let from = path_tracking::chain(&file.share, &file.place().dir).await;
        Some(Self::read(tree, &file.share, &from, &file.node(), open.posix).await)
    }

    pub(crate) fn add_to(self, facts: &mut FileInfo) {
        facts.reparse_tag = self.tag;
        if self.to_folder {
            facts.basic.attributes |= attribute::DIRECTORY;
            facts.standard.directory = 1;
        }
    }

    pub(crate) fn add_to_basics(self, basics: &mut Basics) {
        if self.to_folder {
            basics.attributes |= attribute::DIRECTORY;
        }
    }
}

/// Removes DELETE from the access of an open through a link. Removing and renaming need an open of the link itself, so that no
/// client removes a target that it means to keep.
pub(crate) fn without_delete(access: u32) -> u32 {
    access & !mask::DELETE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_paths_come_to_the_folder() {
        for (folder, start, path, wanted) in [
            ("/srv/data", "", "/srv/data/a/b", Some("a/b")),
            ("/srv/data", "", "/srv/data", Some("")),
            ("/srv/data", "", "//srv/./data//a/", Some("a")),
            ("/srv/data", "", "/srv/x/../data/../a", Some("../a")),
            ("/srv/data", "", "/srv/database/a", None),
            ("/srv/data", "", "/srv", None),
            ("/srv/data", "", "/../etc", None),
            ("/srv/data", "/srv", "data/a", Some("a")),
            ("/srv/data", "/srv", "../srv/data/a", Some("a")),
            ("/srv/data", "/srv", "other", None),
            ("/", "", "/a", Some("a")),
        ] {
            let found = names_beneath(
                &names_of(folder.as_bytes()),
                names_of(start.as_bytes()),
                &names_of(path.as_bytes()),
            );
            assert_eq!(found, wanted.map(|w| names_of(w.as_bytes())), "{start} {path}");
        }
    }
}
