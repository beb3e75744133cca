//! Renames and links: FileRenameInformation and FileLinkInformation (MS-FSA sections 2.1.5.15.11 and 2.1.5.15.7).
//!
//! *Operation.* The new name is a path from the root of the share. First breaks caching of the renamed and the replaced file. After
//! a rename, every open of the old name has the new name.

use std::sync::Arc;

use state::{Operation, Range};
use vfs::Action;
use vfs::authority::Actor;
use vfs::backend::NodeRef;
use vfs::names::{self, Found};
use vfs::namespace::FileOps;
use vfs::watch::what;
use vfs::{Cred, Kind, VfsError, VfsResult};

use crate::dtyp::mask;
use crate::file_info;
use crate::folders::Above;
use crate::fscc::attribute;
use crate::fscc::set::{NewName, rename as flag};
use crate::links;
use crate::open::{File, Open, PathInShare, Walk, walked};
use crate::path::{Path, join};
use crate::path_tracking;
use crate::request_context::RequestContext;
use crate::security;
use crate::status::Status;
use crate::symlinks;

/// Breaks caching that depends on the name of the file, and waits for the acknowledgments.
pub(super) async fn check_names(
    cx: &RequestContext,
    open: &Open,
    node: &NodeRef,
) -> Result<(), Status> {
    ask(cx, open, node, Operation::Names).await
}

/// Breaks caching that conflicts with the operation `what`, and waits for the acknowledgments.
pub(super) async fn ask(
    cx: &RequestContext,
    open: &Open,
    node: &NodeRef,
    what: Operation,
) -> Result<(), Status> {
    let arbiter = cx.server.namespace.arbiter();
    let who = Some(open.party.requester());
    Ok(arbiter.check_conflicts_waiting(node.id(), who, what, Range::ALL, Some(cx)).await?)
}

/// The location of a new name.
struct Target {
    dir: NodeRef,
    /// The directory and its ancestors.
    above: Arc<Above<NodeRef>>,
    /// Number of directory renames when the walk began.
    began: u64,
    dir_path: String,
    /// The name in the file system's spelling.
    name: Vec<u8>,
    /// The file that has this name now.
    found: Option<Found>,
}

impl Target {
    fn place(&self) -> PathInShare {
        let path = join(&self.dir_path, &names::to_client(&self.name));
        let walk = Some(Walk { above: self.above.clone(), began: self.began });
        PathInShare { dir: self.dir.clone(), name: self.name.clone(), path, walk }
    }
}

/// Parses a new name in the spelling of this open's client.
fn new_path(open: &Open, name: &str) -> Result<Path, Status> {
    // Only clients with the POSIX extensions send paths that begin with a separator (MS-FSA section 2.1.5.15.12).
    if open.posix { Path::of_posix(name) } else { Path::of(name) }
}

/// Finds a name as the user. If the user may not search the directory, the traverse right applies, as in CREATE.
async fn find(cx: &RequestContext, open: &Open, dir: &NodeRef, name: &str) -> VfsResult<Found> {
    match find_as(cx, open, &open.cred, dir, name).await {
        Err(VfsError::Access) => match security::may_pass(&open.cred, dir).await? {
            Some(power) => find_as(cx, open, Actor::by(power).cred(), dir, name).await,
            None => Err(VfsError::Access),
        },
        other => other,
    }
}

/// Finds a name: exactly for clients with the POSIX extensions, else ignoring case.
async fn find_as(
    cx: &RequestContext,
    open: &Open,
    cred: &Cred,
    dir: &NodeRef,
    name: &str,
) -> VfsResult<Found> {
    if !open.posix {
        return cx.server.namespace.names().find_for(cx.host(), dir, cred, name).await;
    }
    open.spelling().exact(dir, cred, name).await
}

/// Walks to the directory of the new name, following links as CREATE does.
async fn target(
    cx: &RequestContext,
    open: &Open,
    file: &File,
    path: &Path,
) -> Result<Target, Status> {
    let (before, last) = path.split_last().ok_or(Status::OBJECT_NAME_INVALID)?;
    let tree = cx.tree()?;
    let follows = symlinks::are_followed(cx, tree);
    let (mut dir, mut dir_path) = (tree.top(&file.share), String::new());
    let (mut above, began) = (walked(&dir, None), cx.server.opens.renames());
    for name in before {
        let found = match find(cx, open, &dir, name).await {
            Err(VfsError::NotFound) => {
                links::missing(&file.share, &dir, name, open.posix)?;
                return Err(Status::OBJECT_PATH_NOT_FOUND);
            }
            found => found?,
        };
        links::covered(&file.share, &dir, &found).await?;
        if symlinks::tagged(&found.node, &found.attr, open.posix).await?.is_some() {
            return Err(Status::OBJECT_PATH_NOT_FOUND);
        }
        above = match found.attr.kind {
            Kind::Dir => walked(&found.node, Some(above)),
            Kind::Symlink if follows => {
                let target = match symlinks::follow(tree, &file.share, &above, &found.node).await {
                    Err(VfsError::NotFound) => return Err(Status::OBJECT_PATH_NOT_FOUND),
                    target => target?,
                };
                target.into_folder().ok_or(Status::OBJECT_PATH_NOT_FOUND)?
            }
            _ => return Err(Status::OBJECT_PATH_NOT_FOUND),
        };
        dir_path = join(&dir_path, &names::to_client(&found.name));
        dir = above.node.clone();
    }
    let found = match find(cx, open, &dir, last).await {
        Err(VfsError::NotFound) => {
            links::missing(&file.share, &dir, last, open.posix)?;
            None
        }
        found => Some(found?),
    };
    if let Some(found) = &found {
        links::covered(&file.share, &dir, found).await?;
    }
    Ok(Target { dir, above, began, dir_path, name: open.spelling().to_disk(last)?, found })
}

/// Checks whether the file that has the new name may be replaced (MS-FSA section 2.1.5.15.11): never a directory or an open file.
/// Clients with the POSIX extensions may replace whatever rename(2) may.
async fn may_replace(
    cx: &RequestContext,
    open: &Open,
    source_is_dir: bool,
    (dir, found): (&NodeRef, &Found),
    flags: u32,
) -> Result<(), Status> {
    if flags & flag::REPLACE_IF_EXISTS == 0 {
        return Err(Status::OBJECT_NAME_COLLISION);
    }
    let kept = symlinks::tagged(&found.node, &found.attr, open.posix).await?;
    let target_is_dir = found.attr.kind == Kind::Dir || kept.is_some_and(|kept| kept.is_dir);
    // Check permissions before any client has to break a lease or oplock.
    let file_ops = cx.file_ops(open);
    let gives_way = || file_ops.check_replaced(&found.node, dir, &open.cred);
    match (open.posix, source_is_dir, target_is_dir) {
        // Follows rename(2); the replacement itself checks that the directory is empty.
        (true, true, true) => return Ok(gives_way().await?),
        (true, true, false) => return Err(Status::NOT_A_DIRECTORY),
        (true, false, true) => return Err(Status::FILE_IS_A_DIRECTORY),
        (false, true, _) | (false, _, true) => return Err(Status::ACCESS_DENIED),
        (_, false, false) => {}
    }
    let dos = found.node.dos(&found.attr).await?;
    let read_only =
        file_info::attributes(&found.attr, &dos, &found.name) & attribute::READONLY != 0;
    if read_only && flags & flag::IGNORE_READONLY_ATTRIBUTE == 0 {
        return Err(Status::ACCESS_DENIED);
    }
    // Checked before ACCESS_DENIED for open files. Linux without the POSIX extensions gets this status when it renames over an open
    // file: after the first refusal it deletes the file itself, and returns ENOENT to the program.
    let opens = &cx.server.opens;
    if opens.of_node(found.node.id()).iter().any(|o| opens.is_delete_pending(o)) {
        return Err(Status::DELETE_PENDING);
    }
    gives_way().await?;
    let is_open = !cx.server.opens.of_node(found.node.id()).is_empty();
    if is_open && flags & flag::POSIX_SEMANTICS == 0 && !open.posix {
        return Err(Status::ACCESS_DENIED);
    }
    Ok(())
}

/// Handles FileRenameInformation and its variant with flags.
pub(super) async fn rename(
    cx: &RequestContext,
    open: &Arc<Open>,
    file: &File,
    new: NewName,
) -> Result<(), Status> {
    open.check(mask::DELETE)?;
    // A colon is part of the name for clients with the POSIX extensions.
    if let Some(stream) = new.name.strip_prefix(':').filter(|_| !open.posix) {
        return rename_stream(cx, open, file, stream, new.flags).await;
    }
    if file.is_stream() {
        // A stream cannot leave its file.
        return Err(Status::INVALID_PARAMETER);
    }
    let old = path_tracking::look(&cx.server.opens, file).await?;
    if old.name.is_empty() || cx.server.opens.is_delete_pending(open) {
        return Err(Status::ACCESS_DENIED);
    }
    let path = new_path(open, &new.name)?;
    if path.stream.is_some() || path.other_index {
        return Err(Status::INVALID_PARAMETER);
    }
    let to = target(cx, open, file, &path).await?;
    let is_dir = file.base().kind() == Kind::Dir;
    let same_dir = to.dir.id() == old.dir.id();
    if same_dir && to.name == old.name {
        // Windows breaks caching even if the name does not change; rename(2) does not.
        return if open.posix { Ok(()) } else { check_names(cx, open, &file.base()).await };
    }
    if is_dir {
        nothing_open_below(cx, open, file).await?;
    }
    check_sharing(cx, open, &to.dir).await?;
    // A change of case only is not a replacement; another link of the same file is replaced without a check.
    let itself = same_dir && to.found.as_ref().is_some_and(|f| f.name == old.name);
    let is_other = |f: &&Found| !itself && f.node.id() != file.base().id();
    if let Some(found) = to.found.as_ref().filter(is_other) {
        may_replace(cx, open, is_dir, (&to.dir, found), new.flags).await?;
    }
    let dir_attr = to.dir.getattr().await?;
    let comes = security::may_add(cx.tree()?, &to.dir, &dir_attr, is_dir).await?;
    let leaves = security::may_take_from(&open.cred, &old.dir).await?.filter(|_| !same_dir);
    if !itself && to.found.as_ref().is_some_and(|f| f.node.id() == file.base().id()) {
        // The file system sees a single file here and would not check the right to remove the replaced name.
        let by_list = open.by_list.as_ref().filter(|_| open.deletes_by_list);
        let file_ops = cx.file_ops(open).granted(by_list, comes.as_ref());
        file_ops.check_removal(&to.dir, &open.cred, &file.base()).await?;
        file_ops.check_adding(&to.dir, &open.cred, file.base().kind()).await?;
    }
    let own = open.by_list_in(&old.dir);
    let victim = match to.found.as_ref().filter(is_other) {
        Some(found) => security::may_delete(&open.cred, found).await?,
        None => None,
    };
    let file_ops = cx.file_ops(open).granted(own, comes.as_ref());
    let file_ops = file_ops.leaving(leaves.as_ref()).replacing(victim.as_ref());
    file_ops.check_named(&file.base(), &to.dir, &open.cred).await?;
    let name = move_name(&file_ops, open, file, &old, &to, itself).await?;
    let to = Target { name, ..to };
    if !is_dir {
        // Windows updates the change time of a renamed file and notifies watchers.
        let hub = cx.server.namespace.watches();
        let kind = what::ATTRIBUTES | what::CREATION;
        hub.post(file.share.id, &to.dir, &to.name, Action::Modified, kind).await;
    }
    cx.server.opens.moved(file.base().id(), &old, &to.place()).await;
    Ok(())
}

/// Moves the name and returns the resulting name. To the file system, spellings that differ in case are different names: so an
/// existing name is replaced in its own spelling, and then renamed to the new spelling. If only this last step fails, the old
/// spelling remains: an error would claim that no file was replaced.
async fn move_name(
    file_ops: &FileOps<'_>,
    open: &Open,
    file: &File,
    old: &PathInShare,
    to: &Target,
    itself: bool,
) -> Result<Vec<u8>, Status> {
    let (share, cred) = (&file.share, &open.cred);
    let found = to.found.as_ref().filter(|_| !itself);
    let same_file = found.is_some_and(|f| f.node.id() == file.base().id());
    if let Some(found) = found.filter(|_| same_file) {
        // Two links of one file: rename(2) would leave both.
        if found.name == to.name {
            file_ops.unlink(share, &old.dir, cred, &old.name).await?;
            return Ok(to.name.clone());
        }
        file_ops.unlink(share, &to.dir, cred, &found.name).await?;
    }
    let spelt = found.filter(|f| !same_file && f.name != to.name).map_or(&to.name, |f| &f.name);
    let replace = to.found.is_some();
    file_ops.rename_with(share, &old.dir, cred, &old.name, &to.dir, spelt, replace).await?;
    if *spelt != to.name {
        let again =
            file_ops.rename_with(share, &to.dir, cred, spelt, &to.dir, &to.name, false).await;
        return Ok(again.map_or(spelt, |_| &to.name).clone());
    }
    Ok(to.name.clone())
}

/// Fails if another handle that may delete the new parent directory is open. A rename opens this directory to add a name and does
/// not share delete access (as on Windows; rename(2) does not check). Breaks cached handles first.
async fn check_sharing(cx: &RequestContext, open: &Open, dir: &NodeRef) -> Result<(), Status> {
    let deletes = |o: &Arc<Open>| o.id != open.id && o.granted & mask::DELETE != 0;
    let is_shared = || open.posix || !cx.server.opens.of_node(dir.id()).iter().any(deletes);
    if is_shared() {
        return Ok(());
    }
    ask(cx, open, dir, Operation::Handles).await?;
    if is_shared() { Ok(()) } else { Err(Status::SHARING_VIOLATION) }
}

/// Fails if a file below the directory is open, except for clients with the POSIX extensions and for macOS, whose programs rename
/// such directories. Breaks cached handles first (MS-SMB2 section 3.3.1.4).
async fn nothing_open_below(cx: &RequestContext, open: &Open, file: &File) -> Result<(), Status> {
    let (share, dir) = (file.share.id, file.base());
    let arbiter = cx.server.namespace.arbiter();
    arbiter.check_moved(share, &dir, Some(open.party.requester()), Some(cx)).await?;
    if open.posix || cx.session()?.is_macos() {
        return Ok(());
    }
    let below = path_tracking::below(&cx.server.opens, &file.share, &dir, 1, |_| true).await?;
    if below.is_empty() { Ok(()) } else { Err(Status::ACCESS_DENIED) }
}

/// Renames a stream to `:new` or `:new:$DATA`.
async fn rename_stream(
    cx: &RequestContext,
    open: &Open,
    file: &File,
    new: &str,
    flags: u32,
) -> Result<(), Status> {
    let Some(old) = file.stream() else { return Err(Status::INVALID_PARAMETER) };
    // The type of a stream cannot change (MS-FSA section 2.1.5.15.11.1).
    if new.split_once(':').is_some_and(|(_, kind)| !kind.eq_ignore_ascii_case("$DATA")) {
        return Err(Status::OBJECT_TYPE_MISMATCH);
    }
    let path = Path::of(&format!("x:{new}"))?;
    // The name of the file's own data stream cannot be the target.
    let to = path.stream.ok_or(Status::INVALID_PARAMETER)?;
    let file_ops = cx.file_ops(open);
    let replace = flags & flag::REPLACE_IF_EXISTS != 0;
    let base = file.base();
    if replace {
        may_replace_stream(cx, file, &to).await?;
    }
    file_ops.stream_rename(&file.share, &base, &old, &to, replace).await?;
    cx.server.opens.stream_moved(base.id(), file.node().id(), &to);
    Ok(())
}

/// Refuses to replace a stream that has data or is open (MS-FSA section 2.1.5.15.12.1).
async fn may_replace_stream(cx: &RequestContext, file: &File, to: &str) -> Result<(), Status> {
    let base = file.base();
    let there = match vfs::streams::find(&file.share, &base, to).await {
        Err(VfsError::NotFound) => return Ok(()),
        there => there?,
    };
    if there.node.id() == file.node().id() {
        return Ok(());
    }
    let opens = cx.server.opens.of_node(base.id());
    let is_open = opens.iter().any(|o| o.node().is_ok_and(|n| n.id() == there.node.id()));
    if is_open || there.attr.size > 0 { Err(Status::INVALID_PARAMETER) } else { Ok(()) }
}

/// Adds a link (FileLinkInformation).
pub(super) async fn link(
    cx: &RequestContext,
    open: &Arc<Open>,
    file: &File,
    new: NewName,
) -> Result<(), Status> {
    if file.is_stream() {
        return Err(Status::INVALID_PARAMETER);
    }
    if file.base().kind() == Kind::Dir {
        return Err(Status::FILE_IS_A_DIRECTORY);
    }
    if cx.server.opens.is_delete_pending(open) {
        return Err(Status::ACCESS_DENIED);
    }
    // smbclient (4.17) sends the name of a link from the share's root with its separator; Samba takes it.
    let name = if open.posix { &new.name } else { new.name.trim_start_matches('\\') };
    let path = new_path(open, name)?;
    if path.stream.is_some() || path.other_index {
        return Err(Status::INVALID_PARAMETER);
    }
    let to = target(cx, open, file, &path).await?;
    let dir_attr = to.dir.getattr().await?;
    let folder = security::may_add(cx.tree()?, &to.dir, &dir_attr, false).await?;
    let victim = match &to.found {
        Some(found) => security::may_delete(&open.cred, found).await?,
        None => None,
    };
    let file_ops = cx.file_ops(open).granted(None, folder.as_ref()).replacing(victim.as_ref());
    let (share, cred) = (&file.share, &open.cred);
    if let Some(found) = &to.found {
        may_replace(cx, open, false, (&to.dir, found), new.flags).await?;
        if found.node.id() == file.base().id() {
            return Ok(());
        }
        file_ops.link_over(share, &file.base(), cred, (&to.dir, &found.name), &found.node).await?;
        if found.name != to.name {
            // The link exists; if only the change of its spelling fails, the old spelling remains.
            let (dir, name) = (&to.dir, &to.name);
            let _ = file_ops.rename_with(share, dir, cred, &found.name, dir, name, false).await;
        }
        return Ok(());
    }
    file_ops.link(&file.share, &file.base(), &open.cred, &to.dir, &to.name).await?;
    Ok(())
}
