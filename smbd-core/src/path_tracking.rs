//! Where an open file stands when somebody else has renamed it: a client of NFS, or a process of the host.
//!
//! *Operation.* An open remembers the name by which it was opened, and renames by SMB tell it a new one. Others know of no opens.
//! So whoever is about to remove or rename what is open looks first whether the name still leads to it: else another file, which
//! has the name now, would go. One that a process of the host has moved is followed by its node, if it had one name when it was
//! opened and got no other since by a client. Else the name that is left may be another link, in a folder where its user has no
//! rights: what is removed is the link by which the open was made (MS-FSA section 2.1.5.5).
//!
//! The path that an open remembers is the one by which its client knows it, and takes it up again after a lost connection. What is
//! shown ([`path`]) is asked of the file system, because a directory on the way may have been renamed, too. What is below a
//! directory ([`below`]) is found by an index ([`crate::folders`]) and then asked of the file system.
//!
//! *Memory.* None.
//!
//! *Errors.* Those of the file system; a name that is gone is [`VfsError::NotFound`].

use std::collections::HashSet;
use std::sync::Arc;

use vfs::names::{Spelling, to_client};
use vfs::namespace::Share;
use vfs::{Cred, NodeId, NodeRef, VfsError, VfsResult};

use crate::folders::Above;
use crate::open::{File, Open, Opens, PathInShare, Walk, walked};
use crate::pace::Pace;
use crate::path::join;

/// The place of an open file, looked up anew. [`VfsError::NotFound`] when the name by which it was opened is gone.
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

/// The same for all opens of this file whose name waits to be removed.
pub(crate) async fn look_for_doomed(opens: &Opens, file: &File) {
    for open in opens.doomed(file.base().id()) {
        if let Ok(doomed) = open.file() {
            // A name that is gone waits for nothing.
            let _ = look(opens, doomed).await;
        }
    }
}

/// The path of an open file from the top of its share, or of the user's own folder in it, as its client writes it: as it is now, as
/// far as that can be known.
pub(crate) async fn path(
    opens: &Opens,
    (file, spelling): (&File, Spelling),
    home: Option<&NodeRef>,
) -> String {
    let place = look(opens, file).await.unwrap_or_else(|_| file.place());
    if place.name.is_empty() {
        return place.path;
    }
    match from_top(&place.dir, home).await {
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

/// The path of a directory from there; `None`: it was removed, or is outside of it.
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

/// The nodes of the opens of a share for which `which` holds and that stand somewhere below a directory, `most` of them. Costs what
/// the opens below it cost, and lets others work meanwhile.
pub(crate) async fn below(
    opens: &Opens,
    share: &Share,
    dir: &NodeRef,
    most: usize,
    which: impl Fn(&Open) -> bool,
) -> VfsResult<Vec<NodeId>> {
    let mut pace = Pace::begin();
    link_folders(opens, share, &mut pace).await;
    let (mut below, mut path) = (Vec::new(), None);
    let listed = opens.below(share.id, dir.id()).into_iter().map(|open| (open, true));
    let unknown = opens.below_unknown(share.id).into_iter().map(|open| (open, false));
    let mut seen = HashSet::new();
    for (open, is_listed) in listed.chain(unknown).filter(|(o, _)| seen.insert(o.id.volatile)) {
        pace.keep().await;
        let Some(file) = open.file().ok().filter(|_| which(&open)) else { continue };
        let path = match &path {
            Some(path) => path,
            None => path.insert(dir.path().await?),
        };
        let is_below = match is_below(file, path).await {
            // Nothing says that it has to do with this directory.
            Err(_) if !is_listed => false,
            other => other?,
        };
        if is_below {
            below.push(file.node().id());
            if below.len() >= most {
                break;
            }
        }
    }
    Ok(below)
}

/// Looks up the folders of a share that have an unknown place. One that cannot be looked up keeps it.
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
                // It may have been renamed meanwhile.
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

/// A folder and those above it; the folder alone where its path is not known, as in a snapshot.
pub(crate) async fn chain(share: &Share, folder: &NodeRef) -> Arc<Above<NodeRef>> {
    let known = walk_to(share, folder).await.ok().flatten();
    known.unwrap_or_else(|| walked(folder, None))
}

/// A folder and those above it as the file system has them; `None`: it has no name any more, or gets another one time after time.
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

/// What is open stands somewhere below this path of the file system from the root of its share.
async fn is_below(file: &File, dir: &[u8]) -> VfsResult<bool> {
    let below = |path: VfsResult<Vec<u8>>| match path {
        Ok(path) => Ok(path.strip_prefix(dir).is_some_and(|rest| rest.starts_with(b"/"))),
        // It has no name any more.
        Err(VfsError::Stale | VfsError::NotFound) => Ok(false),
        Err(e) => Err(e),
    };
    if below(file.base().path().await)? {
        return Ok(true);
    }
    // Of a file with further names another may have been told.
    let place = file.place();
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

/// This name is the node's.
pub(crate) async fn leads_to_node(place: &PathInShare, base: &NodeRef) -> VfsResult<bool> {
    match place.dir.lookup(&Cred::root(), &place.name).await {
        Ok((node, _)) => Ok(node.id() == base.id()),
        Err(e) if gone(e) == VfsError::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// A directory on the way went as well.
fn gone(e: VfsError) -> VfsError {
    match e {
        VfsError::Stale | VfsError::NotDir => VfsError::NotFound,
        e => e,
    }
}
