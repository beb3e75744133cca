//! The current place of an open file after a rename by an NFS client or a process of the host.
//!
//! *Operation.* An open remembers the name by which it was opened; SMB renames update it. Renames by other means do not, so code
//! that is about to remove or rename an open file first checks that the name still leads to it: otherwise it would remove another
//! file that has the name now. A file that a host process has moved is found through its node, if it had one name at open time and
//! no client has added one since. Otherwise the remaining name may be another link, in a folder where the user has no rights: the
//! link to remove is the one that was opened (MS-FSA section 2.1.5.5).
//!
//! The path that an open remembers is the one by which its client knows it and reclaims it after a lost connection. Paths shown to
//! clients ([`path`]) come from the file system, because a directory on the path may have been renamed as well. Files below a
//! directory ([`below`]) are found by an index ([`crate::folders`]) and then checked against the file system.
//!
//! *Errors.* The file system's errors; [`VfsError::NotFound`] for a name that no longer exists.

use std::collections::HashSet;
use std::sync::Arc;

use vfs::names::{Spelling, to_client};
use vfs::namespace::Share;
use vfs::{Cred, NodeId, NodeRef, VfsError, VfsResult};

use crate::folders::Above;
use crate::open::{File, Open, Opens, PathInShare, Walk, walked};
use crate::pace::Pace;
use crate::path::join;

/// Looks up the place of an open file again. [`VfsError::NotFound`] if the name by which it was opened is gone.
pub(crate) async fn look(opens: &Opens, file: &File) -> VfsResult<PathInShare> {
    let (old, root) = (file.place(), Cred::root());
    if old.name.is_empty() || leads_to(&old, file).await? {
        return Ok(old);
    }
    if !file.has_one_name() || file.base().getattr().await?.nlink != 1 {
        return Err(VfsError::NotFound);
    }
    let began = opens.renames();
    let path = file.base().path().await.map_err(gone)?;
    let mut names: Vec<&[u8]> = path.split(|b| *b == b'/').collect();
    let name = names.pop().unwrap_or_default().to_vec();
    let mut dir = file.share.backend.root();
    let mut above = walked(&dir, None);
    for name in names {
        (dir, _) = dir.lookup(&root, name).await.map_err(gone)?;
        above = walked(&dir, Some(above));
    }
    let walk = Some(Walk { above, began });
    let new = PathInShare { dir, name, path: old.path.clone(), walk };
    // It may have been moved again.
    if !leads_to(&new, file).await? {
        return Err(VfsError::NotFound);
    }
    opens.found(file.base().id(), &old, &new);
    Ok(new)
}

/// As [`look`], for all opens of this file whose name waits to be removed.
pub(crate) async fn look_for_doomed(opens: &Opens, file: &File) {
    for open in opens.doomed(file.base().id()) {
        if let Ok(doomed) = open.file() {
            // If the name is gone, its pending removal is done as well.
            let _ = look(opens, doomed).await;
        }
    }
}

/// Returns the current path of an open file, as far as it can be known, from the top of its share or of the user's own folder in
/// it, spelled for its client.
pub(crate) async fn path(
    opens: &Opens,
    (file, spelling): (&File, Spelling),
    home: Option<&NodeRef>,
) -> String {
    let place = look(opens, file).await.unwrap_or_else(|_| file.place());
    if place.name.is_empty() {
        return place.path;
    }
    let dir = match file.is_within_share(&place.dir) {
        true => from_top(&place.dir, home).await,
        // A client of another share has moved the file out of this one.
        false => None,
    };
    match dir {
        Some(dir) if spelling == Spelling::Posix => {
            let whole =
                if dir.is_empty() { place.name } else { [&dir, &place.name[..]].join(&b'/') };
            let names: Vec<_> =
                whole.split(|b| *b == b'/').map(|n| spelling.to_client(n)).collect();
            names.join("/")
        }
        Some(dir) => join(&shown(&dir), &to_client(&place.name)),
        None => place.path,
    }
}

/// Returns the path of a directory below the top; `None` if it was removed or is outside.
async fn from_top(dir: &NodeRef, home: Option<&NodeRef>) -> Option<Vec<u8>> {
    let path = dir.path().await.ok()?;
    let Some(home) = home else { return Some(path) };
    let below = path.strip_prefix(&*home.path().await.ok()?)?;
    match below.split_first() {
        None => Some(Vec::new()),
        Some((b'/', below)) => Some(below.to_vec()),
        Some(_) => None,
    }
}

/// Returns the nodes of up to `most` opens that `which` accepts and that are below a directory of a share: opens through this
/// share, and through shares that overlap it. The cost is proportional to the opens below it, and other tasks run in between.
pub(crate) async fn below(
    opens: &Opens,
    share: &Share,
    dir: &NodeRef,
    most: usize,
    which: impl Fn(&Open) -> bool,
) -> VfsResult<Vec<NodeId>> {
    let (mut pace, mut below) = (Pace::begin(), Vec::new());
    below_in(opens, share, Within::Dir(dir), (&mut below, most), &which, &mut pace).await?;
    for other in opens.overlapping(share.id) {
        if below.len() >= most {
            break;
        }
        let here = other.backend.counterpart(dir).await?;
        let within = match &here {
            Some(here) => Within::Dir(here),
            None if is_above(share, dir, &other).await? => Within::All,
            None => continue,
        };
        below_in(opens, &other, within, (&mut below, most), &which, &mut pace).await?;
    }
    Ok(below)
}

/// Which part of a share lies below a directory.
#[derive(Clone, Copy)]
enum Within<'a> {
    /// What is below this directory of the share.
    Dir(&'a NodeRef),
    /// The whole share, with its root.
    All,
}

/// Returns whether the root of another share is below this directory.
async fn is_above(share: &Share, dir: &NodeRef, other: &Share) -> VfsResult<bool> {
    let Some(root) = share.backend.counterpart(&other.backend.root()).await? else {
        return Ok(false);
    };
    match (dir.path().await.map_err(gone), root.path().await.map_err(gone)) {
        (Ok(dir), Ok(root)) => Ok(lies_below(&root, &dir)),
        (Err(VfsError::NotFound), _) | (_, Err(VfsError::NotFound)) => Ok(false),
        (Err(e), _) | (_, Err(e)) => Err(e),
    }
}

/// Returns whether a path is below another one, both from the root of their share.
fn lies_below(path: &[u8], dir: &[u8]) -> bool {
    match dir.is_empty() {
        true => !path.is_empty(),
        false => path.strip_prefix(dir).is_some_and(|rest| rest.starts_with(b"/")),
    }
}

/// As [`below`], for the opens through one share.
async fn below_in(
    opens: &Opens,
    share: &Share,
    within: Within<'_>,
    (below, most): (&mut Vec<NodeId>, usize),
    which: impl Fn(&Open) -> bool,
    pace: &mut Pace,
) -> VfsResult<()> {
    link_folders(opens, share, pace).await;
    let top = match within {
        Within::Dir(dir) => dir.clone(),
        Within::All => share.backend.root(),
    };
    let mut path = None;
    let listed = opens.below(share.id, top.id()).into_iter().map(|open| (open, true));
    let unknown = opens.below_unknown(share.id).into_iter().map(|open| (open, false));
    let mut seen = HashSet::new();
    for (open, is_listed) in listed.chain(unknown).filter(|(o, _)| seen.insert(o.id.volatile)) {
        pace.keep().await;
        let Some(file) = open.file().ok().filter(|_| which(&open)) else { continue };
        let is_it = match within {
            Within::All => true,
            Within::Dir(dir) => {
                let path = match &path {
                    Some(path) => path,
                    None => path.insert(dir.path().await?),
                };
                match is_below(file, path).await {
                    // No index entry connects it with this directory.
                    Err(_) if !is_listed => false,
                    other => other?,
                }
            }
        };
        if is_it {
            below.push(file.node().id());
            if below.len() >= most {
                break;
            }
        }
    }
    Ok(())
}

/// Looks up the folders of a share whose place is unknown. If a lookup fails, the place remains unknown.
async fn link_folders(opens: &Opens, share: &Share, pace: &mut Pace) {
    const TRIES: usize = 3;
    for (id, folder) in opens.unknown_folders(share.id) {
        if id == share.backend.root().id() {
            opens.note_top_folder(share.id, id);
            continue;
        }
        for _ in 0..TRIES {
            pace.keep().await;
            let began = opens.renames();
            match walk_to(share, &folder).await {
                // It may have been renamed in the meantime.
                Ok(Some(above)) => {
                    if opens.link_folder(share.id, &Walk { above, began }) {
                        break;
                    }
                }
                Ok(None) if began != opens.renames() => {}
                Ok(None) => {
                    opens.note_top_folder(share.id, id);
                    break;
                }
                Err(_) => break,
            }
        }
    }
}

/// Returns a folder and those above it; only the folder if its path is not known, as in a snapshot.
pub(crate) async fn chain(share: &Share, folder: &NodeRef) -> Arc<Above<NodeRef>> {
    let known = walk_to(share, folder).await.ok().flatten();
    known.unwrap_or_else(|| walked(folder, None))
}

/// Returns a folder and those above it from the file system; `None` if it has no name any more or is renamed during each try.
async fn walk_to(share: &Share, folder: &NodeRef) -> VfsResult<Option<Arc<Above<NodeRef>>>> {
    const TRIES: usize = 3;
    for _ in 0..TRIES {
        if let Some(above) = walk_once(share, folder).await? {
            return Ok(Some(above));
        }
    }
    Ok(None)
}

async fn walk_once(share: &Share, folder: &NodeRef) -> VfsResult<Option<Arc<Above<NodeRef>>>> {
    // A client of another share may have moved a folder into this one.
    let Some(folder) = share.backend.counterpart(folder).await? else { return Ok(None) };
    let path = match folder.path().await.map_err(gone) {
        Err(VfsError::NotFound) => return Ok(None),
        path => path?,
    };
    let (mut dir, root) = (share.backend.root(), Cred::root());
    let mut above = walked(&dir, None);
    for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
        dir = match dir.lookup(&root, name).await.map_err(gone) {
            Err(VfsError::NotFound) => return Ok(None),
            found => found?.0,
        };
        above = walked(&dir, Some(above));
    }
    Ok((above.id == folder.id()).then_some(above))
}

/// Returns whether an open file is below this path, which is relative to the root of its share.
async fn is_below(file: &File, dir: &[u8]) -> VfsResult<bool> {
    let place = file.place();
    if place.name.is_empty() {
        // The top of its share, or a stream of it, is below no folder of the share, and has no name to look up.
        return Ok(false);
    }
    let below = |path: VfsResult<Vec<u8>>| match path {
        Ok(path) => Ok(lies_below(&path, dir)),
        // It has no name any more.
        Err(VfsError::Stale | VfsError::NotFound) => Ok(false),
        Err(e) => Err(e),
    };
    if below(file.base().path().await)? {
        return Ok(true);
    }
    // The file system may report another name of a file with several.
    let mut named = place.dir.path().await;
    if let Ok(path) = &mut named {
        path.push(b'/');
        path.extend_from_slice(&place.name);
    }
    Ok(below(named)? && leads_to(&place, file).await?)
}

fn shown(path: &[u8]) -> String {
    let names: Vec<_> = path.split(|b| *b == b'/').map(to_client).collect();
    names.join("\\")
}

async fn leads_to(place: &PathInShare, file: &File) -> VfsResult<bool> {
    leads_to_node(place, &file.base()).await
}

/// Returns whether this name leads to the node.
pub(crate) async fn leads_to_node(place: &PathInShare, base: &NodeRef) -> VfsResult<bool> {
    match place.dir.lookup(&Cred::root(), &place.name).await {
        Ok((node, _)) => Ok(node.id() == base.id()),
        Err(e) if gone(e) == VfsError::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Maps the error for a directory that is gone to the error for a missing name.
fn gone(e: VfsError) -> VfsError {
    match e {
        VfsError::Stale | VfsError::NotDir => VfsError::NotFound,
        e => e,
    }
}
