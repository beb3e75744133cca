//! Records operations on files in the audit trail.
//!
//! *Operation.* Each operation that changes names, permissions or attributes passes through this module before the implementation
//! in `FileOps`. If its share asks for no record, or no actor is set, that costs one comparison. Otherwise room for the record is
//! reserved before the operation starts, and the record contains its result; an operation that waits for another client and must be
//! retried is not recorded.
//!
//! *Errors.* [`VfsError::NotRecorded`]: the trail is required and cannot be written.

use audit::{Event, FileEvent, Files, Permit, RecordText};

use crate::acl::{Acl, posix};
pub use crate::actor::{Acting, Actor};
use crate::backend::{Made, NodeRef};
use crate::dos::Dos;
use crate::error::{VfsError, VfsResult};
use crate::namespace::{FileOps, Share};
use crate::reparse::Kept;
use crate::replace::Staged;
use crate::streams::{self, Stream};
use crate::types::*;
use crate::waste_record::Id;

/// Names the result of an operation; these names are stable.
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

/// Begins the record of an operation on the files of a share; `None` if no record is required.
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
    /// Writes the record with the result. `path` is a name in the share.
    fn end<T>(self, path: Vec<u8>, done: &VfsResult<T>, event: impl FnOnce(FileEvent) -> Event) {
        if matches!(done, Err(VfsError::Delay | VfsError::Cancelled)) {
            return;
        }
        let Self { permit, acting: Acting { peer, protocol, party, .. }, share } = self;
        permit.record(|| {
            event(FileEvent {
                peer,
                protocol,
                party,
                share: share.name.as_str().into(),
                path: RecordText::of(&path),
                result: result(done),
            })
        });
    }
}

/// Returns the path of a name in its share. If the directory was removed and has no path any more, returns only the name.
pub async fn place(dir: &NodeRef, name: &[u8]) -> Vec<u8> {
    let mut path = dir.path().await.unwrap_or_default();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// Returns the access by which a file is opened.
fn access(how: (bool, bool)) -> (Files, &'static str) {
    match how {
        (_, false) => (Files::READS, "read"),
        (false, true) => (Files::WRITES, "write"),
        (true, true) => (Files::READS.and(Files::WRITES), "read and write"),
    }
}

/// The record of an open that is under way, with the requested access.
#[must_use]
pub struct Opening<'a>(Option<Recording<'a>>, (bool, bool));

/// Begins the record of an open of a file by this actor, for reading, writing or both.
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
    /// Returns true if a record is required.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Records a successful open with this access; the path comes from the file.
    pub async fn opened(self, node: &NodeRef, how: (bool, bool)) {
        if node.kind() == Kind::File {
            self.record(how, async || node.path().await.unwrap_or_default()).await;
        }
    }

    /// Like [`Opening::opened`], for a stream of this file or folder.
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

    /// Records the result of the operation that the open was for.
    pub async fn ended<T>(self, node: &NodeRef, done: &VfsResult<T>) {
        let how = self.1;
        match done {
            Ok(_) => self.opened(node, how).await,
            Err(why) => self.failed(node.path().await.unwrap_or_default(), *why),
        }
    }

    /// Records that the open failed.
    pub fn failed(self, path: Vec<u8>, why: VfsError) {
        if let Self(Some(recording), how) = self {
            let access = access(how).1;
            recording.end(path, &Err::<(), _>(why), |of| Event::Open { of, access });
        }
    }
}

impl<'a> FileOps<'a> {
    /// Makes later operations record this actor, where the share asks for records.
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

/// The operations that callers use.
impl FileOps<'_> {
    /// Creates or opens a regular file. An existing file that would be truncated is checked for conflicts like a write.
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
        // An existing file was opened, not created.
        if done.as_ref().map_or(true, |made| made.created) {
            let path = place(dir, name).await;
            recording.end(path, &done, |of| Event::Create { of, kind: "file" });
        }
        done
    }

    /// Creates a directory.
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

    /// Creates a symbolic link.
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

    /// Creates a device, pipe or socket.
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

    /// Gives a node a further name that belongs to another node ([`FileOps::do_link_over`]).
    pub async fn link_over(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
        (dir, name): (&NodeRef, &[u8]),
        old: &NodeRef,
    ) -> VfsResult<()> {
        let recording = self.recording(share)?;
        let done = self.do_link_over(share, node, cred, (dir, name), old).await;
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
        named(recording, (dir, name), &done, |of| Event::Delete { of, kept: None }).await;
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
        let (done, kept) = parted(self.do_unlink(share, dir, cred, name).await);
        // NFSv4 has one operation to remove files and directories: after this error the caller removes the directory by `rmdir`,
        // which records it.
        let recording = recording.filter(|_| !matches!(done, Err(VfsError::IsDir)));
        named(recording, (dir, name), &done, |of| Event::Delete { of, kept }).await;
        done
    }

    /// Moves a name; without `replace` the new name must be free.
    #[allow(clippy::too_many_arguments)] // Two names in two directories, with the caller and the options.
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
        let (done, kept) = parted(done);
        if let Some(recording) = recording {
            let (path, to) =
                (place(from_dir, from).await, RecordText::of(&place(to_dir, to).await));
            recording.end(path, &done, |of| Event::Rename { of, to, kept });
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

    /// Stores a list with a node, and sets the equivalent mode bits. The caller's permission was checked before.
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

    /// Like [`FileOps::acl_set`], for a caller who needs the right to change the mode.
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

    /// Sets the host's own lists on a node, for a caller who needs the right to change the mode.
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

/// Operations on attributes, lists and streams of a file. Reserving or freeing storage counts as a change of data, which is
/// recorded by the open, or by the first change without an open ([`opening`]).
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

    /// Stores the attributes that Windows clients set on a file. Only attributes that decide how a file is found and changed are
    /// recorded; times are not, as in [`FileOps::setattr`].
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

    /// Keeps a reparse point with a file, or removes it (`None`).
    pub async fn reparse_set(
        &self,
        share: &Share,
        node: &NodeRef,
        kept: Option<&Kept>,
    ) -> VfsResult<()> {
        let recording = self.recording(share)?;
        let done = self.do_reparse_set(share, node, kept).await;
        attributes(recording, node, &done, "reparse").await;
        done
    }

    /// Puts the node of a reparse point, or an ordinary file, in the place of a file ([`FileOps::do_put_in_place`]).
    pub async fn put_in_place(
        &self,
        share: &Share,
        staged: Staged,
        cred: &Cred,
        (dir, name): (&NodeRef, &[u8]),
        old: &NodeRef,
    ) -> VfsResult<()> {
        let recording = self.recording(share)?;
        let done = self.do_put_in_place(share, staged, cred, (dir, name), old).await;
        named(recording, (dir, name), &done, |of| Event::Attributes { of, what: "reparse" }).await;
        done
    }

    /// Creates a stream for a caller who may write the file, or returns the existing one; the flag tells which.
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
        of_stream(recording, (file, name), &done, |of| Event::Delete { of, kept: None }).await;
        done
    }

    /// Renames a stream. Without `replace` the new name must be free; a change of case is always possible.
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
            let new = RecordText::of(&streams::shown(&path, to));
            recording.end(streams::shown(&path, from), &done, |of| Event::Rename {
                of,
                to: new,
                kept: None,
            });
        }
        done
    }
}

/// Separates a result from the place in the wastebasket.
fn parted<T>(done: VfsResult<(T, Option<Id>)>) -> (VfsResult<T>, Option<RecordText>) {
    match done {
        Ok((done, kept)) => (Ok(done), kept.map(|id| id.to_string().into())),
        Err(why) => (Err(why), None),
    }
}

/// Windows attributes whose changes are recorded.
const RECORDED: u32 = Dos::READONLY | Dos::HIDDEN | Dos::SYSTEM;

/// Records the result of a change to a stream.
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

/// Records the result of a change to attributes.
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

/// Records the result of a change to a name in a directory.
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

/// Records the result of a change to permissions.
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
