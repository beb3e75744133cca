//! Reparse points (MS-FSA sections 2.1.5.10.14, 2.1.5.10.37 and 2.1.5.10.3).
//!
//! *Operation.* What Linux has a kind of node for becomes that node: a relative link, a POSIX link, a device, a pipe. The file is
//! atomically replaced by the new node, along with all its opens ([`NodeReplacement`]). An absolute link of Windows, a junction and
//! a link of its Subsystem for Linux become a link with the text of the client, and their data is kept with it ([`vfs::reparse`]):
//! NFS clients read the text, and the gateway never follows it. Each other tag, and a link that cannot take the place of its file
//! (which has contents, streams or further names), is kept with the file, which NFS clients see as it was.
//!
//! *Memory.* One buffer of at most 16 KiB.

use vfs::names::{Spelling, to_client, to_disk};
use vfs::namespace::Share;
use vfs::reparse::{self, Kept};
use vfs::replace::New;
use vfs::{Kind, NodeRef, Special, VfsError, streams};

use crate::answer::Answer;
use crate::dtyp::mask;
use crate::lease;
use crate::node_replacement::NodeReplacement;
use crate::open::File;
use crate::ops::set_info::is_empty;
use crate::path_tracking;
use crate::security;
use crate::status::Status;
use crate::symlinks::LinkFacts;
use crate::wire::reparse::{Buffer, Reparse, TAG_MOUNT_POINT, TAG_NFS, TAG_SYMLINK};

use super::Asked;

/// Longest target of a link on a host, in bytes (PATH_MAX without its NUL).
const TARGET_MAX: usize = 4095;

pub(super) async fn get(a: &Asked<'_>) -> Result<Answer, Status> {
    let shown = shown(a, a.file()?).await?.ok_or(Status::NOT_A_REPARSE_POINT)?;
    let head = Buffer::of_any_length(&shown)?.head_len();
    a.room(u32::try_from(head).unwrap_or(u32::MAX), Status::BUFFER_TOO_SMALL)?;
    a.cut(&shown)
}

/// Returns the reparse point of a file as this client sees it; `None` for other files.
async fn shown(a: &Asked<'_>, file: &File) -> Result<Option<Vec<u8>>, Status> {
    let node = file.base();
    let reparse = match node.kind() {
        // Clients with the POSIX extensions get the target unchanged.
        Kind::Symlink if a.open.posix => posix_link(&node.readlink(&a.open.cred).await?),
        Kind::Symlink => match Kept::of(&node).await? {
            Some(kept) => return Ok(Some(kept.buffer)),
            None => link_of(&node.readlink(&a.open.cred).await?),
        },
        Kind::Fifo => Reparse::NfsFifo,
        Kind::Socket => Reparse::NfsSocket,
        Kind::Char | Kind::Block => {
            let (major, minor) = node.getattr().await?.rdev;
            if node.kind() == Kind::Char {
                Reparse::NfsChar(major, minor)
            } else {
                Reparse::NfsBlock(major, minor)
            }
        }
        Kind::File | Kind::Dir => return Ok(Kept::of(&node).await?.map(|kept| kept.buffer)),
    };
    Ok(Some(reparse.emit()))
}

/// Converts a link for clients. An absolute target is a path on the host, which only the POSIX form can express.
fn link_of(target: &[u8]) -> Reparse {
    let name = |name: &[u8]| match name {
        b"" | b"." | b".." => String::from_utf8_lossy(name).into_owned(),
        name => to_client(name),
    };
    if target.starts_with(b"/") {
        return posix_link(target);
    }
    let names: Vec<_> = target.split(|b| *b == b'/').map(name).collect();
    Reparse::Symlink { target: names.join("\\"), relative: true }
}

fn posix_link(target: &[u8]) -> Reparse {
    Reparse::NfsLink(String::from_utf8_lossy(target).into_owned())
}

/// Converts the relative target of a link from a Windows client to the text of a link that the host follows; `None` if it has no
/// such form.
fn target_of(target: &str) -> Option<Vec<u8>> {
    let names = target.split(['\\', '/']).map(|name| match name {
        "" | "." | ".." => Ok(name.as_bytes().to_vec()),
        name => to_disk(name),
    });
    let target = names.collect::<Result<Vec<_>, _>>().ok()?.join(&b'/');
    (!target.is_empty() && !target.starts_with(b"/")).then_some(target)
}

/// Converts the target of a link from a client with the POSIX extensions, absolute or relative, to bytes. Linux (6.12) marks a
/// target that begins with `/` as absolute, and sends it without that character.
fn posix_target_of(target: &str, relative: bool) -> Result<Vec<u8>, Status> {
    let names = target.split('/').map(|name| match name {
        "" | "." | ".." => Ok(name.as_bytes().to_vec()),
        name => Spelling::Posix.to_disk(name),
    });
    let mut target = names.collect::<Result<Vec<_>, _>>()?.join(&b'/');
    if !relative && !target.starts_with(b"/") {
        target.insert(0, b'/');
    }
    if target.is_empty() { Err(Status::IO_REPARSE_DATA_INVALID) } else { Ok(target) }
}

/// The form in which a reparse point is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// A node of the host: no data is kept beside it.
    Node(Made),
    /// A link that the host follows. If it cannot take the place of the file, the data is kept with the file.
    Link(Vec<u8>),
    /// A link with the text of the client, and the data beside it; or the data with the file.
    Text(Vec<u8>),
    /// The data with the file.
    Data,
}

/// A node of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Made {
    Link(Vec<u8>),
    Special(Special),
}

/// Decides on the form of a reparse point.
fn form(buffer: &Buffer<'_>, posix: bool) -> Result<Form, Status> {
    let invalid = |_| Status::IO_REPARSE_DATA_INVALID;
    if buffer.guid.is_some() {
        return Ok(Form::Data);
    }
    let node = |special| Ok(Form::Node(Made::Special(special)));
    match Reparse::parse_data(buffer.tag, buffer.data).map_err(invalid)? {
        Some(Reparse::Symlink { target, relative }) if posix => {
            Ok(Form::Node(Made::Link(posix_target_of(&target, relative)?)))
        }
        Some(Reparse::NfsLink(target)) => Ok(Form::Node(Made::Link(target.into_bytes()))),
        Some(Reparse::NfsChar(major, minor)) => node(Special::Char(major, minor)),
        Some(Reparse::NfsBlock(major, minor)) => node(Special::Block(major, minor)),
        Some(Reparse::NfsFifo) => node(Special::Fifo),
        Some(Reparse::NfsSocket) => node(Special::Socket),
        Some(Reparse::Symlink { target, relative }) => {
            let followed = if relative { target_of(&target) } else { None };
            followed.map_or_else(|| as_text(target), |target| Ok(Form::Link(target)))
        }
        Some(Reparse::MountPoint(target) | Reparse::LxLink(target)) => as_text(target),
        None => Ok(Form::Data),
    }
}

/// Returns the form of a link with the text of the client. Text that no link of the host can have stays in the data.
fn as_text(target: String) -> Result<Form, Status> {
    match target.len() {
        0 => Err(Status::IO_REPARSE_DATA_INVALID),
        len if len > TARGET_MAX || target.contains('\0') => Ok(Form::Data),
        _ => Ok(Form::Text(target.into_bytes())),
    }
}

pub(super) async fn set(a: &Asked<'_>) -> Result<Answer, Status> {
    let file = a.file()?;
    a.open.check(mask::WRITE_DATA | mask::WRITE_ATTRIBUTES)?;
    if file.is_stream() {
        return Err(Status::INVALID_PARAMETER);
    }
    if file.share.read_only {
        return Err(Status::MEDIA_WRITE_PROTECTED);
    }
    // No client could open a share whose top is a reparse point.
    if file.place().name.is_empty() {
        return Err(Status::ACCESS_DENIED);
    }
    let buffer = Buffer::parse(a.input())?;
    let form = form(&buffer, a.open.posix)?;
    let is_dir = is_folder(a, file).await;
    if buffer.tag == TAG_MOUNT_POINT && !is_dir {
        return Err(Status::NOT_A_DIRECTORY);
    }
    if file.base().kind() == Kind::Dir && !is_empty(file, &a.open.cred).await? {
        return Err(Status::DIRECTORY_NOT_EMPTY);
    }
    check_owner(a, file, &buffer, !matches!(form, Form::Node(Made::Special(_)) | Form::Data))
        .await?;
    let kept = Kept { is_dir, buffer: buffer.emit() };
    match &form {
        Form::Node(Made::Link(target)) => replace(a, file, New::Link(target), None).await?,
        Form::Node(Made::Special(special)) => {
            replace(a, file, New::Special(*special), None).await?;
        }
        Form::Link(target) => replace_or_keep(a, file, (target, None), &kept).await?,
        Form::Text(target) => replace_or_keep(a, file, (target, Some(&kept)), &kept).await?,
        Form::Data if is_plain(file) => keep(a, file, Some(&kept)).await?,
        Form::Data => replace(a, file, plain(is_dir), Some(&kept)).await?,
    }
    lease::listing_changed(&a.cx.server, &a.open);
    a.answer(&[])
}

/// Returns whether the file can keep contents beside a reparse point.
fn is_plain(file: &File) -> bool {
    matches!(file.base().kind(), Kind::File | Kind::Dir)
}

/// Returns the kind of node that takes the place of a link.
fn plain(is_dir: bool) -> New<'static> {
    if is_dir { New::Dir } else { New::File }
}

/// Returns whether clients see the file as a folder.
async fn is_folder(a: &Asked<'_>, file: &File) -> bool {
    let link = LinkFacts::of_open(a.cx, &a.open, file).await;
    file.base().kind() == Kind::Dir || link.is_some_and(|link| link.to_folder)
}

/// Checks that the file has no reparse point of another owner. `for_link`: the request is about a link, if the file is one.
async fn check_owner(
    a: &Asked<'_>,
    file: &File,
    buffer: &Buffer<'_>,
    for_link: bool,
) -> Result<(), Status> {
    let Some(there) = shown(a, file).await? else { return Ok(()) };
    let there = Buffer::of_any_length(&there)?;
    // A link of the host has either tag.
    let is_link = |tag| tag == TAG_SYMLINK || tag == TAG_NFS;
    let are_links = is_link(there.tag) && is_link(buffer.tag);
    if file.base().kind() == Kind::Symlink && for_link && are_links {
        return Ok(());
    }
    Ok(buffer.check_owner(&there)?)
}

pub(super) async fn delete(a: &Asked<'_>) -> Result<Answer, Status> {
    let file = a.file()?;
    a.open.check(mask::WRITE_DATA | mask::WRITE_ATTRIBUTES)?;
    if file.share.read_only {
        return Err(Status::MEDIA_WRITE_PROTECTED);
    }
    let buffer = Buffer::parse_without_data(a.input())?;
    if shown(a, file).await?.is_none() {
        return Err(Status::NOT_A_REPARSE_POINT);
    }
    check_owner(a, file, &buffer, true).await?;
    match file.base().kind() {
        Kind::File | Kind::Dir => keep(a, file, None).await?,
        _ => {
            let kept = Kept::of(&file.base()).await?;
            let was_dir = kept.is_some_and(|kept| kept.is_dir);
            replace(a, file, plain(was_dir), None).await?;
        }
    }
    lease::listing_changed(&a.cx.server, &a.open);
    a.answer(&[])
}

/// Keeps the data with the file, or removes it.
async fn keep(a: &Asked<'_>, file: &File, kept: Option<&Kept>) -> Result<(), Status> {
    Ok(a.file_ops().reparse_set(&file.share, &file.base(), kept).await?)
}

/// Replaces the file by a link, with data beside it if there is any. Keeps the data `or` with the file where a link cannot take
/// its place: it would lose what the file has, or the volume or the caller cannot exchange the two. Windows needs no right to the
/// folder either.
async fn replace_or_keep(
    a: &Asked<'_>,
    file: &File,
    (target, beside): (&[u8], Option<&Kept>),
    or: &Kept,
) -> Result<(), Status> {
    match replace(a, file, New::Link(target), beside).await {
        Err(Status::NOT_SUPPORTED | Status::NOT_SAME_DEVICE | Status::ACCESS_DENIED)
            if file.base().kind() != Kind::Symlink =>
        {
            keep(a, file, Some(or)).await
        }
        other => other,
    }
}

/// Refuses a replacement that would lose data: the new node cannot keep contents, links or streams of the file, which any share
/// that shows it may have.
async fn may_go(a: &Asked<'_>, file: &File, old: &NodeRef) -> Result<(), Status> {
    let attr = old.getattr().await?;
    if old.kind() == Kind::Dir {
        if !is_empty(file, &a.open.cred).await? {
            return Err(Status::DIRECTORY_NOT_EMPTY);
        }
    } else if attr.nlink != 1 || old.kind() == Kind::File && attr.size != 0 {
        return Err(Status::NOT_SUPPORTED);
    }
    let extended = match old.xattr_sizes(&attr).await {
        Err(VfsError::NotSupported) => 0,
        sizes => sizes?.count,
    };
    if extended != 0 || has_streams(&file.share, old).await? {
        return Err(Status::NOT_SUPPORTED);
    }
    // Each share keeps streams of its own, which would end with the file, and holds its root.
    for other in a.cx.server.namespace.overlaps().of(file.share.id) {
        let Some(there) = other.backend.counterpart(old).await? else { continue };
        if there.id() == other.backend.root().id() || has_streams(&other, &there).await? {
            return Err(Status::NOT_SUPPORTED);
        }
    }
    Ok(())
}

async fn has_streams(share: &Share, file: &NodeRef) -> Result<bool, Status> {
    match streams::list(share, file).await {
        Ok(streams) => Ok(!streams.is_empty()),
        Err(VfsError::NotSupported) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Replaces the node of an open file and of all its other opens. `beside`: the data to keep with the new node.
async fn replace(
    a: &Asked<'_>,
    file: &File,
    new: New<'_>,
    beside: Option<&Kept>,
) -> Result<(), Status> {
    let place = path_tracking::look(&a.cx.server.opens, file).await?;
    let tree = a.cx.tree()?;
    let share = &tree.share_now(&a.cx.server.namespace).ok_or(Status::INVALID_DEVICE_REQUEST)?;
    let cred = &a.open.cred;
    let (dir, name, old) = (&place.dir, &place.name[..], file.base());
    if name.is_empty() || a.cx.server.opens.is_delete_pending(&a.open) {
        return Err(Status::ACCESS_DENIED);
    }
    // A client that caches may have data for a file that is empty here. No client gets a write cache before the exchange.
    let state = a.cx.server.namespace.arbiter().state();
    let _announced = state.writing(old.id());
    if old.kind() == Kind::File && old.getattr().await?.size == 0 {
        a.file_ops().check_unwritten(&old).await?;
    }
    may_go(a, file, &old).await?;
    let dir_attr = dir.getattr().await?;
    let folder = security::may_add(tree, dir, &dir_attr, false).await?;
    let file_ops = a.file_ops().granted(a.open.by_list_in(dir), folder.as_ref());
    let staged = file_ops.stage(share, dir, cred, &old, new).await?;
    let announced = async {
        if let Some(kept) = beside {
            staged.node.side_set(reparse::NAME, Some(&kept.encode())).await?;
        }
        let mut replacement = NodeReplacement::new(&a.cx.server, old.clone(), staged.node.clone())?;
        replacement.announce().await?;
        Ok(replacement)
    };
    let replacement = match announced.await {
        Ok(replacement) => replacement,
        Err(e) => {
            staged.give_up().await;
            return Err(e);
        }
    };
    file_ops.put_in_place(share, staged, cred, (dir, name), &old).await?;
    replacement.succeeds().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_go_both_ways() {
        for target in ["a", "../b/c", "./x", "dir/a*b"] {
            let Reparse::Symlink { target: shown, relative: true } = link_of(target.as_bytes())
            else {
                panic!("{target}");
            };
            assert!(!shown.contains(['/', '*']));
            assert_eq!(target_of(&shown).as_deref(), Some(target.as_bytes()));
        }
        for (target, relative, want) in [
            ("/", false, "/"),
            ("/etc/x", false, "/etc/x"),
            ("etc/x", false, "/etc/x"),
            ("", false, "/"),
            ("../a//b/", true, "../a//b/"),
            ("dir/a b", true, "dir/a b"),
        ] {
            assert_eq!(posix_target_of(target, relative).as_deref(), Ok(want.as_bytes()));
        }
        assert!(posix_target_of("", true).is_err());
        assert_eq!(link_of(b"/etc/x"), Reparse::NfsLink("/etc/x".into()));
        for bad in ["", "\\x", "/x", "a\\*"] {
            assert_eq!(target_of(bad), None, "{bad}");
        }
    }
}
