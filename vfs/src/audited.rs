//! Operations on files that a share has in the audit trail.
//!
//! *Operation.* Each operation that changes names, permissions or attributes passes here, on its way to the work of `FileOps`.
//! Where its share asks for no record, or nobody is named who acts, that costs one comparison. Otherwise room for the record is
//! kept before anything is done, and the record says how it ended; what waits for another client and is to be tried again is not
//! told of.
//!
//! *Errors.* [`VfsError::NotRecorded`]: the trail is required and cannot be written.

use audit::{Event, FileEvent, Files, Permit};

use crate::acl::{Acl, posix};
pub use crate::actor::{Acting, Actor};
use crate::backend::{Made, NodeRef};
use crate::dos::Dos;
use crate::error::{VfsError, VfsResult};
use crate::namespace::{FileOps, Share};
use crate::streams::{self, Stream};
use crate::types::*;

/// How an operation ended, by a name that stays.
fn result<T>(done: &VfsResult<T>) -> &'static str {
    match done {
        Ok(_) => "ok",
        Err(VfsError::Access | VfsError::Perm) => "denied",
        Err(VfsError::NotFound) => "not found",
        Err(VfsError::Exists) => "exists",
        Err(VfsError::NotEmpty) => "not empty",
        Err(VfsError::ReadOnly) => "read-only",
        Err(VfsError::ShareDenied | VfsError::InUse | VfsError::Locked) => "in use",
        Err(VfsError::NoSpace | VfsError::Quota) => "no space",
        Err(_) => "failed",
    }
}

/// A record that is under way.
struct Recording<'a> {
    permit: Permit,
    acting: Acting,
    share: &'a Share,
}

/// Begins the record of an operation on the files of a share; `None`: there is none.
fn begin<'a>(
    share: &'a Share,
    what: Files,
    acting: impl FnOnce() -> Acting,
) -> VfsResult<Option<Recording<'a>>> {
    if !share.rules.audit.has(what) {
        return Ok(None);
    }
    let permit = audit::permit().map_err(|_| VfsError::NotRecorded)?;
    Ok(permit.is_on().then(|| Recording { permit, acting: acting(), share }))
}

impl Recording<'_> {
    /// Writes how it ended. `path` is a name in the share.
    fn end<T>(self, path: Vec<u8>, done: &VfsResult<T>, event: impl FnOnce(FileEvent) -> Event) {
        if matches!(done, Err(VfsError::Delay | VfsError::Cancelled)) {
            return;
        }
        let Self { permit, acting: Acting { peer, protocol, party }, share } = self;
        permit.record(|| {
            event(FileEvent {
                peer,
                protocol,
                party,
                share: share.name.clone(),
                path: text(&path),
                result: result(done),
            })
        });
    }
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// Where a name stands in its share. A directory that has no path any more, as its own name is gone, leaves the name alone.
pub async fn place(dir: &NodeRef, name: &[u8]) -> Vec<u8> {
    let mut path = dir.path().await.unwrap_or_default();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// Which way a file is opened.
fn access(how: (bool, bool)) -> (Files, &'static str) {
    match how {
        (_, false) => (Files::READS, "read"),
        (false, true) => (Files::WRITES, "write"),
        (true, true) => (Files::READS.and(Files::WRITES), "read and write"),
    }
}

/// The record of an open that is under way, and how it is to be opened.
#[must_use]
pub struct Opening<'a>(Option<Recording<'a>>, (bool, bool));

/// Begins the record of an open of a file, by somebody who acts as this; it reads, writes or both.
///
/// # Errors
/// [`VfsError::NotRecorded`].
pub fn opening<'a>(
    share: &'a Share,
    (reads, writes): (bool, bool),
    acting: impl FnOnce() -> Acting,
) -> VfsResult<Opening<'a>> {
    let how = (reads, writes);
    Ok(Opening(if reads || writes { begin(share, access(how).0, acting)? } else { None }, how))
}

impl Opening<'_> {
    /// There is something to record.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// It is open, in this way: at which path is asked of the file.
    pub async fn opened(self, node: &NodeRef, how: (bool, bool)) {
        if node.kind() == Kind::File {
            self.record(how, async || node.path().await.unwrap_or_default()).await;
        }
    }

    /// As [`Opening::opened`], of a stream of this file or folder.
    pub async fn opened_stream(self, file: &NodeRef, name: &str, how: (bool, bool)) {
        let path = async || streams::shown(&file.path().await.unwrap_or_default(), name);
        self.record(how, path).await;
    }

    async fn record(self, how: (bool, bool), path: impl AsyncFnOnce() -> Vec<u8>) {
        let Some(recording) = self.0 else { return };
        let (what, access) = access(how);
        if how != (false, false) && recording.share.rules.audit.has(what) {
            recording.end(path().await, &Ok(()), |of| Event::Open { of, access });
        }
    }

    /// What was to be done by it has ended so.
    pub async fn ended<T>(self, node: &NodeRef, done: &VfsResult<T>) {
        let how = self.1;
        match done {
            Ok(_) => self.opened(node, how).await,
            Err(why) => self.failed(node.path().await.unwrap_or_default(), *why),
        }
    }

    /// It was not opened.
    pub fn failed(self, path: Vec<u8>, why: VfsError) {
        if let Self(Some(recording), how) = self {
            let access = access(how).1;
            recording.end(path, &Err::<(), _>(why), |of| Event::Open { of, access });
        }
    }
}

impl<'a> FileOps<'a> {
    /// What is done is recorded as done by this one, where its share asks for that.
    #[must_use]
    pub fn audited(self, actor: &'a dyn Actor) -> Self {
        Self { actor: Some(actor), ..self }
    }

    fn recording<'s>(&self, share: &'s Share) -> VfsResult<Option<Recording<'s>>> {
        match self.actor {
            Some(actor) => begin(share, Files::CHANGES, || actor.acting()),
            None => Ok(None),
        }
    }
}

/// The operations, as callers have them.
impl FileOps<'_> {
    /// Makes or opens a regular file. A file that is found and would be cut is asked about like a write.
    pub async fn create(
        &self,
        share: &Share,
        dir: &NodeRef,
        cred: &Cred,
        name: &[u8],
        how: CreateHow,
        set: SetAttr,
    ) -> VfsResult<Made> {
        let Some(recording) = self.recording(share)? else {
            return self.do_create(share, dir, cred, name, how, set).await;
        };
        let done = self.do_create(share, dir, cred, name, how, set).await;
        // What was found is opened, not made.
        if done.as_ref().map_or(true, |made| made.created) {
            let path = place(dir, name).await;
            recording.end(path, &done, |of| Event::Create { of, kind: "file" });
        }
        done
    }

    /// Makes a directory.
    pub async fn mkdir(
        &self,
        share: &Share,
        dir: &NodeRef,
        cred: &Cred,
        name: &[u8],
        set: SetAttr,
    ) -> VfsResult<Made> {
        let recording = self.recording(share)?;
        let done = self.do_mkdir(share, dir, cred, name, set).await;
        named(recording, (dir, name), &done, |of| Event::Create { of, kind: "folder" }).await;
        done
    }

    /// Makes a symbolic link.
    pub async fn symlink(
        &self,
        share: &Share,
        dir: &NodeRef,
        cred: &Cred,
        name: &[u8],
        target: &[u8],
        set: SetAttr,
    ) -> VfsResult<Made> {
        let recording = self.recording(share)?;
        let done = self.do_symlink(share, dir, cred, name, target, set).await;
        named(recording, (dir, name), &done, |of| Event::Create { of, kind: "link" }).await;
        done
    }

    /// Makes a device, pipe or socket.
    pub async fn mknod(
        &self,
        share: &Share,
        dir: &NodeRef,
        cred: &Cred,
        name: &[u8],
        special: Special,
        set: SetAttr,
    ) -> VfsResult<Made> {
        let recording = self.recording(share)?;
        let done = self.do_mknod(share, dir, cred, name, special, set).await;
        named(recording, (dir, name), &done, |of| Event::Create { of, kind: "special" }).await;
        done
    }

    /// Gives a node a further name.
    pub async fn link(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
        dir: &NodeRef,
        name: &[u8],
    ) -> VfsResult<(Attr, DirChange)> {
        let recording = self.recording(share)?;
        let done = self.do_link(share, node, cred, dir, name).await;
        named(recording, (dir, name), &done, |of| Event::Create { of, kind: "name" }).await;
        done
    }

    /// Removes an empty directory.
    pub async fn rmdir(
        &self,
        share: &Share,
        dir: &NodeRef,
        cred: &Cred,
        name: &[u8],
    ) -> VfsResult<DirChange> {
        let recording = self.recording(share)?;
        let done = self.do_rmdir(share, dir, cred, name).await;
        named(recording, (dir, name), &done, |of| Event::Delete { of }).await;
        done
    }

    /// Removes a name that is not a directory's.
    pub async fn unlink(
        &self,
        share: &Share,
        dir: &NodeRef,
        cred: &Cred,
        name: &[u8],
    ) -> VfsResult<DirChange> {
        let recording = self.recording(share)?;
        let done = self.do_unlink(share, dir, cred, name).await;
        // NFSv4 asks by one operation for whatever stands there, and is told of a directory to remove that in its turn.
        let recording = recording.filter(|_| !matches!(done, Err(VfsError::IsDir)));
        named(recording, (dir, name), &done, |of| Event::Delete { of }).await;
        done
    }

    /// Moves a name; without `replace` the new name must be free.
    #[allow(clippy::too_many_arguments)] // Two names in two directories, by whom and how.
    pub async fn rename_with(
        &self,
        share: &Share,
        from_dir: &NodeRef,
        cred: &Cred,
        from: &[u8],
        to_dir: &NodeRef,
        to: &[u8],
        replace: bool,
    ) -> VfsResult<(DirChange, DirChange)> {
        let recording = self.recording(share)?;
        let done = self.do_rename(share, from_dir, cred, from, to_dir, to, replace).await;
        if let Some(recording) = recording {
            let (path, to) = (place(from_dir, from).await, text(&place(to_dir, to).await));
            recording.end(path, &done, |of| Event::Rename { of, to });
        }
        done
    }

    /// Changes attributes.
    pub async fn setattr(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
        set: SetAttr,
        open_write: bool,
    ) -> VfsResult<(Attr, Attr)> {
        let what = match (set.uid.is_some() || set.gid.is_some(), set.mode.is_some()) {
            (true, _) => "owner",
            (false, true) => "mode",
            (false, false) => return self.do_setattr(share, node, cred, set, open_write).await,
        };
        let recording = self.recording(share)?;
        let done = self.do_setattr(share, node, cred, set, open_write).await;
        permissions(recording, node, &done, what).await;
        done
    }

    /// Keeps a list with a node, and with it the mode bits that stand for it. The caller's right to do so was checked.
    pub async fn acl_set(
        &self,
        share: &Share,
        node: &NodeRef,
        acl: &Acl,
        mode: u32,
    ) -> VfsResult<()> {
        let recording = self.recording(share)?;
        let done = self.do_acl_set(share, node, acl, mode).await;
        permissions(recording, node, &done, "list").await;
        done
    }

    /// As [`FileOps::acl_set`], for a caller who must have the right to: the one to change the mode.
    pub async fn acl_change(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
        acl: &Acl,
    ) -> VfsResult<()> {
        let recording = self.recording(share)?;
        let done = self.do_acl_change(share, node, cred, acl).await;
        permissions(recording, node, &done, "list").await;
        done
    }

    /// Gives a node lists of the host's own, for a caller who must have the right to.
    pub async fn posix_change(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
        change: &posix::Change,
    ) -> VfsResult<()> {
        let recording = self.recording(share)?;
        let done = self.do_posix_change(share, node, cred, change).await;
        permissions(recording, node, &done, "list").await;
        done
    }
}

/// What a file keeps beside its data. Storage that is reserved or given back is data, which an open or the first change without one
/// records ([`opening`]).
impl FileOps<'_> {
    /// Sets an extended attribute.
    pub async fn xattr_set(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> VfsResult<(Attr, Attr)> {
        let recording = self.recording(share)?;
        let done = self.do_xattr_set(share, node, cred, name, value, how).await;
        attributes(recording, node, &done, "extended").await;
        done
    }

    /// Removes an extended attribute.
    pub async fn xattr_remove(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
        name: &[u8],
    ) -> VfsResult<(Attr, Attr)> {
        let recording = self.recording(share)?;
        let done = self.do_xattr_remove(share, node, cred, name).await;
        attributes(recording, node, &done, "extended").await;
        done
    }

    /// Keeps what Windows clients set on a file. A record is made of the attributes that decide how a file is found and changed;
    /// times have none, as in [`FileOps::setattr`].
    pub async fn dos_set(&self, share: &Share, node: &NodeRef, dos: Dos) -> VfsResult<()> {
        let Some(recording) = self.recording(share)? else {
            return self.do_dos_set(share, node, dos).await;
        };
        let recorded = |dos: Dos| dos.attributes.unwrap_or(0) & RECORDED;
        let before = node.dos(&node.getattr().await?).await?;
        let done = self.do_dos_set(share, node, dos).await;
        if recorded(before) != recorded(dos) {
            attributes(Some(recording), node, &done, "windows").await;
        }
        done
    }

    /// Makes a stream for a caller who may write the file, or gives the one that is there; the flag says which.
    pub async fn stream_create(
        &self,
        share: &Share,
        file: &NodeRef,
        cred: &Cred,
        name: &str,
    ) -> VfsResult<(Stream, bool)> {
        let recording = self.recording(share)?;
        let done = self.do_stream_create(share, file, cred, name).await;
        let recording = recording.filter(|_| done.as_ref().map_or(true, |(_, made)| *made));
        of_stream(recording, (file, name), &done, |of| Event::Create { of, kind: "stream" }).await;
        done
    }

    pub async fn stream_remove(&self, share: &Share, file: &NodeRef, name: &str) -> VfsResult<()> {
        let recording = self.recording(share)?;
        let done = self.do_stream_remove(share, file, name).await;
        of_stream(recording, (file, name), &done, |of| Event::Delete { of }).await;
        done
    }

    /// Gives a stream another name. Without `replace` it must be free; a change of case alone is always possible.
    pub async fn stream_rename(
        &self,
        share: &Share,
        file: &NodeRef,
        from: &str,
        to: &str,
        replace: bool,
    ) -> VfsResult<()> {
        let recording = self.recording(share)?;
        let done = self.do_stream_rename(share, file, from, to, replace).await;
        if let Some(recording) = recording {
            let path = file.path().await.unwrap_or_default();
            let new = text(&streams::shown(&path, to));
            recording.end(streams::shown(&path, from), &done, |of| Event::Rename { of, to: new });
        }
        done
    }
}

/// Attributes of Windows of which a record is made.
const RECORDED: u32 = Dos::READONLY | Dos::HIDDEN | Dos::SYSTEM;

/// A change of a stream has ended so.
async fn of_stream<T>(
    recording: Option<Recording<'_>>,
    (file, name): (&NodeRef, &str),
    done: &VfsResult<T>,
    event: impl FnOnce(FileEvent) -> Event,
) {
    if let Some(recording) = recording {
        let path = file.path().await.unwrap_or_default();
        recording.end(streams::shown(&path, name), done, event);
    }
}

/// A change of attributes has ended so.
async fn attributes<T>(
    recording: Option<Recording<'_>>,
    node: &NodeRef,
    done: &VfsResult<T>,
    what: &'static str,
) {
    if let Some(recording) = recording {
        let path = node.path().await.unwrap_or_default();
        recording.end(path, done, |of| Event::Attributes { of, what });
    }
}

/// A change of a name in a directory has ended so.
async fn named<T>(
    recording: Option<Recording<'_>>,
    (dir, name): (&NodeRef, &[u8]),
    done: &VfsResult<T>,
    event: impl FnOnce(FileEvent) -> Event,
) {
    if let Some(recording) = recording {
        recording.end(place(dir, name).await, done, event);
    }
}

/// A change of permissions has ended so.
async fn permissions<T>(
    recording: Option<Recording<'_>>,
    node: &NodeRef,
    done: &VfsResult<T>,
    what: &'static str,
) {
    if let Some(recording) = recording {
        let path = node.path().await.unwrap_or_default();
        recording.end(path, done, |of| Event::Permissions { of, what });
    }
}
