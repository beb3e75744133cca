//! Reparse points: symbolic links and the special files of Linux clients (MS-FSA sections 2.1.5.10.14, 2.1.5.10.32 and 2.1.5.10.3).
//!
//! *Operation.* On Linux a link is a separate kind of node. A file becomes a link by atomically replacing it with a new node, along
//! with all its opens ([`NodeReplacement`]). The server itself never follows a link here. Targets are relative to the link's
//! directory; absolute targets have meaning only to the client, so Windows clients cannot create them.

use vfs::names::{Spelling, to_client, to_disk};
use vfs::replace::New;
use vfs::{Kind, NodeRef, Special, VfsError, streams};

use crate::answer::Answer;
use crate::dtyp::mask;
use crate::node_replacement::NodeReplacement;
use crate::open::File;
use crate::ops::set_info::is_empty;
use crate::path_tracking;
use crate::security;
use crate::status::Status;
use crate::wire::reparse::{Reparse, TAG_NFS, TAG_SYMLINK};

use super::Asked;

/// Largest reparse data in bytes (MS-FSCC section 2.1.2.2).
const DATA_MAX: usize = 16 << 10;
/// Smallest output buffer in bytes (REPARSE_DATA_BUFFER without data).
const HEAD: u32 = 8;

pub(super) async fn get(a: &Asked<'_>) -> Result<Answer, Status> {
    let file = a.file()?;
    let reparse = match file.node().kind() {
        // Clients with the POSIX extensions get the target unchanged.
        Kind::Symlink if a.open.posix => posix_link(&file.node().readlink(&a.open.cred).await?),
        Kind::Symlink => link_of(&file.node().readlink(&a.open.cred).await?),
        Kind::Fifo => Reparse::NfsFifo,
        Kind::Socket => Reparse::NfsSocket,
        Kind::Char | Kind::Block => {
            let (major, minor) = file.node().getattr().await?.rdev;
            if file.node().kind() == Kind::Char {
                Reparse::NfsChar(major, minor)
            } else {
                Reparse::NfsBlock(major, minor)
            }
        }
        Kind::File | Kind::Dir => return Err(Status::NOT_A_REPARSE_POINT),
    };
    a.room(HEAD, Status::BUFFER_TOO_SMALL)?;
    a.cut(&reparse.emit())
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

/// Converts the target of a link from a Windows client to bytes.
fn target_of(target: &str) -> Result<Vec<u8>, Status> {
    let names = target.split(['\\', '/']).map(|name| match name {
        "" | "." | ".." => Ok(name.as_bytes().to_vec()),
        name => to_disk(name),
    });
    let names = names.collect::<Result<Vec<_>, _>>()?;
    let target = names.join(&b'/');
    if target.is_empty() || target.starts_with(b"/") {
        return Err(Status::IO_REPARSE_DATA_INVALID);
    }
    Ok(target)
}

/// Converts the target of a link from a client with the POSIX extensions, absolute or relative, to bytes.
fn posix_target_of(target: &str) -> Result<Vec<u8>, Status> {
    let names = target.split('/').map(|name| match name {
        "" | "." | ".." => Ok(name.as_bytes().to_vec()),
        name => Spelling::Posix.to_disk(name),
    });
    let target = names.collect::<Result<Vec<_>, _>>()?.join(&b'/');
    if target.is_empty() { Err(Status::IO_REPARSE_DATA_INVALID) } else { Ok(target) }
}

pub(super) async fn set(a: &Asked<'_>) -> Result<Answer, Status> {
    let file = a.file()?;
    a.open.check(mask::WRITE_DATA | mask::WRITE_ATTRIBUTES)?;
    if file.is_stream() {
        return Err(Status::INVALID_PARAMETER);
    }
    // MS-FSA section 2.1.5.10.37 limits the data.
    if a.input().len() > DATA_MAX {
        return Err(Status::IO_REPARSE_DATA_INVALID);
    }
    let data = Reparse::parse(a.input()).map_err(|_| Status::IO_REPARSE_DATA_INVALID)?;
    let data = data.ok_or(Status::IO_REPARSE_TAG_NOT_HANDLED)?;
    let bytes;
    let made = match data {
        Reparse::Symlink { target, .. } if a.open.posix => {
            bytes = posix_target_of(&target)?;
            New::Link(&bytes)
        }
        Reparse::Symlink { relative: false, .. } => return Err(Status::NOT_SUPPORTED),
        Reparse::Symlink { target, relative: true } => {
            bytes = target_of(&target)?;
            New::Link(&bytes)
        }
        Reparse::NfsLink(target) => {
            bytes = target.into_bytes();
            New::Link(&bytes)
        }
        Reparse::NfsChar(a, b) => New::Special(Special::Char(a, b)),
        Reparse::NfsBlock(a, b) => New::Special(Special::Block(a, b)),
        Reparse::NfsFifo => New::Special(Special::Fifo),
        Reparse::NfsSocket => New::Special(Special::Socket),
    };
    replace(a, file, made).await?;
    a.answer(&[])
}

pub(super) async fn delete(a: &Asked<'_>) -> Result<Answer, Status> {
    let file = a.file()?;
    a.open.check(mask::WRITE_DATA | mask::WRITE_ATTRIBUTES)?;
    let tag = a.parse(Reparse::tag)?;
    match file.node().kind() {
        Kind::File | Kind::Dir => return Err(Status::NOT_A_REPARSE_POINT),
        Kind::Symlink if tag != TAG_SYMLINK && tag != TAG_NFS => {
            return Err(Status::IO_REPARSE_TAG_MISMATCH);
        }
        Kind::Symlink => {}
        _ if tag != TAG_NFS => return Err(Status::IO_REPARSE_TAG_MISMATCH),
        _ => {}
    }
    replace(a, file, New::File).await?;
    a.answer(&[])
}

/// Refuses a replacement that would lose data: the new node cannot keep contents, links or streams of the file.
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
    match streams::list(&file.share, old).await {
        Ok(streams) if streams.is_empty() && extended == 0 => Ok(()),
        Err(VfsError::NotSupported) if extended == 0 => Ok(()),
        Ok(_) | Err(VfsError::NotSupported) => Err(Status::NOT_SUPPORTED),
        Err(e) => Err(e.into()),
    }
}

/// Replaces the node of an open file and of all its other opens.
async fn replace(a: &Asked<'_>, file: &File, new: New<'_>) -> Result<(), Status> {
    let place = path_tracking::look(&a.cx.server.opens, file).await?;
    let tree = a.cx.tree()?;
    let share = &tree.share_now(&a.cx.server.namespace).ok_or(Status::INVALID_DEVICE_REQUEST)?;
    let cred = &a.open.cred;
    let (dir, name, old) = (&place.dir, &place.name[..], file.base());
    if name.is_empty() || a.cx.server.opens.is_delete_pending(&a.open) {
        return Err(Status::ACCESS_DENIED);
    }
    may_go(a, file, &old).await?;
    let dir_attr = dir.getattr().await?;
    let folder = security::may_add(tree, dir, &dir_attr, false).await?;
    let file_ops = a.file_ops().granted(a.open.by_list_in(dir), folder.as_ref());
    let staged = file_ops.stage(share, dir, cred, &old, new).await?;
    let announced = async {
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
            assert_eq!(target_of(&shown).as_deref(), Ok(target.as_bytes()));
        }
        for target in ["/", "/etc/x", "../a//b/", "dir/a b"] {
            assert_eq!(posix_target_of(target).as_deref(), Ok(target.as_bytes()));
        }
        assert!(posix_target_of("").is_err());
        assert_eq!(link_of(b"/etc/x"), Reparse::NfsLink("/etc/x".into()));
        for bad in ["", "\\x", "/x", "a\\*"] {
            assert!(target_of(bad).is_err(), "{bad}");
        }
    }
}
