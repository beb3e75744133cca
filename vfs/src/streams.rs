//! Named streams: further data of a file, which Linux cannot store.
//!
//! *Operation.* Each share has one folder that no client sees ([`crate::Backend::hidden`]). It contains a folder for each file with
//! streams, named after the file's handle in hexadecimal; a regular file there holds the data of one stream: of any size, read,
//! written, locked, cached and copied like every other file, by its own node. A file's handle survives renames and is never given
//! to another file, so streams stay with the file and end with it: `FileOps` removes them with the last name of a file, and
//! [`sweep`] removes streams of files that were removed while no gateway ran. Names are found in any case.
//!
//! *Memory.* No state is kept. A file has at most [`STREAMS_MAX`] streams.
//!
//! *Errors.* [`VfsError::BadName`] for a name that MS-FSCC section 2.1.5.3 does not allow, [`VfsError::NameTooLong`] for one of
//! more than [`NAME_MAX`] bytes, [`VfsError::NotSupported`] if the backend has no hidden folder. A copy of a share's files that is
//! made on the host contains no streams.

use std::fmt::Write;

use crate::acl::mask;
use crate::authority::{Acting, Actor};
use crate::backend::NodeRef;
use crate::error::{VfsError, VfsResult};
use crate::names::same;
use crate::namespace::{FileOps, Share};
use crate::types::*;
use crate::watch::what;

/// Largest number of streams of one file.
pub const STREAMS_MAX: usize = 1024;
/// Longest name of a stream in bytes.
pub const NAME_MAX: usize = 254;

/// The folder of all streams of a share, in its hidden folder.
const FOLDER: &[u8] = b"streams";
/// Prefix that makes every stream's name a valid file name.
const MARK: u8 = b'=';

/// One stream of a file.
#[derive(Clone)]
pub struct Stream {
    /// The stream's name, in the case in which it was made.
    pub name: String,
    pub node: NodeRef,
    /// Size and storage are the stream's own; all other attributes are copied from its file.
    pub attr: Attr,
}

/// Returns the file name of a stream's data.
fn to_disk(name: &str) -> VfsResult<Vec<u8>> {
    if name.is_empty() || name.contains(['\\', '/', ':', '\0']) {
        return Err(VfsError::BadName);
    }
    if name.len() > NAME_MAX {
        return Err(VfsError::NameTooLong);
    }
    Ok([&[MARK], name.as_bytes()].concat())
}

fn to_client(name: &[u8]) -> Option<String> {
    let name = name.strip_prefix(&[MARK])?;
    String::from_utf8(name.to_vec()).ok()
}

/// Returns the name of a file's folder, which is the same whichever folder above it is served
/// ([`Backend::stored`](crate::Backend::stored)).
fn folder_of(share: &Share, handle: &Handle) -> String {
    hex(&share.backend.stored(handle))
}

fn hex(handle: &Handle) -> String {
    handle.as_bytes().iter().fold(String::new(), |mut out, b| {
        // Writing to a string does not fail.
        let _ = write!(out, "{b:02x}");
        out
    })
}

fn handle_of(folder: &[u8]) -> Option<Handle> {
    let (pairs, rest) = folder.as_chunks::<2>();
    let byte = |pair: &[u8; 2]| {
        let digits = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(digits, 16).ok().filter(|_| pair[0] != b'+')
    };
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    bytes.filter(|_| rest.is_empty()).and_then(|b| Handle::new(&b))
}

/// Turns "not found" into `None`.
pub(crate) fn if_there<T>(found: VfsResult<T>) -> VfsResult<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(VfsError::NotFound) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Returns the folder of all streams, if it exists.
async fn all(share: &Share) -> VfsResult<Option<NodeRef>> {
    all_in(share.backend.hidden(false).await).await
}

async fn all_in(hidden: VfsResult<Option<NodeRef>>) -> VfsResult<Option<NodeRef>> {
    let hidden = match hidden {
        // A folder with that name is not the gateway's, and a file without streams is still a file.
        Ok(None) | Err(VfsError::NotSupported) => return Ok(None),
        Ok(Some(hidden)) => hidden,
        Err(e) => return Err(e),
    };
    Ok(if_there(hidden.lookup(&Cred::root(), FOLDER).await)?.map(|f| f.0))
}

/// Returns the folder of a file's streams, if it exists.
async fn folder(share: &Share, file: &NodeRef) -> VfsResult<Option<NodeRef>> {
    let (hidden, handle) = match share.backend.hidden_of(file).await {
        Ok((hidden, handle)) => (Ok(hidden), handle),
        Err(e) => (Err(e), file.handle()),
    };
    let Some(all) = all_in(hidden).await? else { return Ok(None) };
    let name = folder_of(share, &handle);
    Ok(if_there(all.lookup(&Cred::root(), name.as_bytes()).await)?.map(|f| f.0))
}

/// Finds or creates a folder of this name.
pub(crate) async fn made_folder(dir: &NodeRef, name: &[u8]) -> VfsResult<NodeRef> {
    let private = SetAttr { mode: Some(0o700), ..SetAttr::default() };
    match dir.mkdir(Acting::caller(&Cred::root()), name, private).await {
        Ok(made) => Ok(made.node),
        Err(VfsError::Exists) => Ok(dir.lookup(&Cred::root(), name).await?.0),
        Err(e) => Err(e),
    }
}

/// Names of streams that are read at once.
const STEP: usize = 32;

/// Iterates over the streams of a file or directory, in no order: a caller takes as many as it has room for.
pub struct Streams {
    folder: Option<NodeRef>,
    /// Names that were read and not yet returned.
    names: std::vec::IntoIter<DirEntry>,
    cookie: u64,
    end: bool,
}

impl Streams {
    /// Begins at the first stream.
    pub async fn of(share: &Share, file: &NodeRef) -> VfsResult<Self> {
        Ok(Self::in_folder(folder(share, file).await?))
    }

    fn in_folder(folder: Option<NodeRef>) -> Self {
        Self { folder, names: Vec::new().into_iter(), cookie: 0, end: false }
    }

    pub async fn next(&mut self) -> VfsResult<Option<Stream>> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let root = Cred::root();
        loop {
            let Some(entry) = self.names.next() else {
                if self.end {
                    return Ok(None);
                }
                let (entries, end) = folder.readdir(&root, self.cookie, STEP).await?;
                self.end = end || entries.is_empty();
                self.names = entries.into_iter();
                continue;
            };
            self.cookie = entry.cookie;
            let Some(name) = to_client(&entry.name) else { continue };
            if let Some((node, attr)) = if_there(folder.lookup(&root, &entry.name).await)? {
                return Ok(Some(Stream { name, node, attr }));
            }
        }
    }
}

/// Lists the streams of a file or directory, in no order.
pub async fn list(share: &Share, file: &NodeRef) -> VfsResult<Vec<Stream>> {
    let (mut streams, mut out) = (Streams::of(share, file).await?, Vec::new());
    while let Some(stream) = streams.next().await? {
        out.push(stream);
    }
    Ok(out)
}

/// The streams of a file or directory that has some, or had.
pub struct Folder(NodeRef);

impl Folder {
    /// Returns those of a file; `None` if it has none.
    pub async fn of(share: &Share, file: &NodeRef) -> VfsResult<Option<Self>> {
        Ok(folder(share, file).await?.map(Self))
    }

    /// Finds a stream by its name in this case only, which takes no listing.
    pub async fn exact(&self, name: &str) -> VfsResult<Option<Stream>> {
        let disk = to_disk(name)?;
        let found = if_there(self.0.lookup(&Cred::root(), &disk).await)?;
        Ok(found.map(|(node, attr)| Stream { name: name.to_owned(), node, attr }))
    }
}

/// Finds a stream in any case.
pub async fn find(share: &Share, file: &NodeRef, name: &str) -> VfsResult<Stream> {
    to_disk(name)?;
    let folder = folder(share, file).await?.ok_or(VfsError::NotFound)?;
    find_in(&folder, name).await
}

async fn find_in(folder: &NodeRef, name: &str) -> VfsResult<Stream> {
    let disk = to_disk(name)?;
    if let Some((node, attr)) = if_there(folder.lookup(&Cred::root(), &disk).await)? {
        return Ok(Stream { name: name.to_owned(), node, attr });
    }
    let mut all = Streams::in_folder(Some(folder.clone()));
    while let Some(stream) = all.next().await? {
        if same(&stream.name, name) {
            return Ok(stream);
        }
    }
    Err(VfsError::NotFound)
}

/// Removes all streams of a file that no longer exists.
pub(crate) async fn forget(share: &Share, file: &Handle) -> VfsResult<()> {
    let Some(all) = all(share).await? else { return Ok(()) };
    let (root, name) = (Cred::root(), folder_of(share, file));
    let Some((folder, _)) = if_there(all.lookup(&root, name.as_bytes()).await)? else {
        return Ok(());
    };
    loop {
        let (entries, end) = folder.readdir(&root, 0, STREAMS_MAX).await?;
        for entry in entries {
            if_there(folder.unlink(Acting::caller(&root), &entry.name).await)?;
        }
        if end {
            break;
        }
    }
    if_there(all.rmdir(Acting::caller(&root), name.as_bytes()).await)?;
    Ok(())
}

/// Removes the streams of files that no longer exist, and returns how many such files had streams. A file below a folder that was
/// moved out of the share counts as removed; a file that was moved out directly still exists.
pub async fn sweep(share: &Share) -> VfsResult<usize> {
    if share.read_only {
        return Ok(0);
    }
    let Some(all) = all(share).await? else { return Ok(0) };
    let (mut cookie, mut gone) = (0, 0);
    loop {
        let (entries, end) = all.readdir(&Cred::root(), cookie, STREAMS_MAX).await?;
        for entry in &entries {
            cookie = entry.cookie;
            let Some(stored) = handle_of(&entry.name) else { continue };
            let handle = share.backend.served(&stored);
            // If the result is unknown now, the streams are checked at the next start of the gateway.
            if share.backend.is_gone(&handle).await == Ok(true) {
                forget(share, &handle).await?;
                gone += 1;
            }
        }
        if end || entries.is_empty() {
            return Ok(gone);
        }
    }
}

/// Returns the bytes of `file:stream` for watchers and for the audit trail.
pub(crate) fn shown(file: &[u8], stream: &str) -> Vec<u8> {
    [file, b":", stream.as_bytes()].concat()
}

impl FileOps<'_> {
    /// Creates a stream for a caller who may write the file, or returns the existing one; the flag tells which.
    pub(crate) async fn do_stream_create(
        &self,
        share: &Share,
        file: &NodeRef,
        cred: &Cred,
        name: &str,
    ) -> VfsResult<(Stream, bool)> {
        self.writable(share)?;
        let disk = to_disk(name)?;
        self.check_new_stream(file, cred).await?;
        match self.create_in_folder(share, file, (name, &disk)).await {
            // The last other stream was removed meanwhile, and the folder with it.
            Err(VfsError::NotFound | VfsError::Stale) => {
                self.create_in_folder(share, file, (name, &disk)).await
            }
            done => done,
        }
    }

    async fn create_in_folder(
        &self,
        share: &Share,
        file: &NodeRef,
        (name, disk): (&str, &[u8]),
    ) -> VfsResult<(Stream, bool)> {
        let hidden = share.backend.hidden(true).await?.ok_or(VfsError::NotSupported)?;
        let all = made_folder(&hidden, FOLDER).await?;
        let folder = made_folder(&all, folder_of(share, &file.handle()).as_bytes()).await?;
        match find_in(&folder, name).await {
            Err(VfsError::NotFound) => {}
            found => return found.map(|s| (s, false)),
        }
        if folder.readdir(&Cred::root(), 0, STREAMS_MAX).await?.0.len() >= STREAMS_MAX {
            return Err(VfsError::NoSpace);
        }
        let attr = file.getattr().await?;
        // Storage of streams is charged to the file's owner.
        let set = SetAttr {
            mode: Some(0o600),
            uid: Some(attr.uid),
            gid: Some(attr.gid),
            ..SetAttr::default()
        };
        let made =
            folder.create(Acting::caller(&Cred::root()), disk, CreateHow::Unchecked, set).await?;
        self.told(share, file, name, Action::AddedStream, what::STREAM_NAME).await;
        self.make_durable(share, &[&hidden, &all, &folder, &made.node]).await?;
        let stream = Stream { name: name.to_owned(), node: made.node, attr: made.attr };
        Ok((stream, made.created))
    }

    /// Checks permission to create a stream: it counts as data of the file, but it is in a folder of the gateway where the kernel
    /// checks no caller.
    async fn check_new_stream(&self, file: &NodeRef, cred: &Cred) -> VfsResult<()> {
        let attr = file.getattr().await?;
        if attr.sealed {
            return Err(VfsError::Perm);
        }
        let Actor::Caller(cred) = self.actor(file, cred, mask::WRITE_DATA) else { return Ok(()) };
        let may = match attr.kind {
            // The mode of a link has no meaning.
            Kind::Symlink => [0, attr.uid].contains(&cred.uid),
            _ => file.access(cred, Access(Access::MODIFY), &attr).await?.0 & Access::MODIFY != 0,
        };
        if may { Ok(()) } else { Err(VfsError::Access) }
    }

    pub(crate) async fn do_stream_remove(
        &self,
        share: &Share,
        file: &NodeRef,
        name: &str,
    ) -> VfsResult<()> {
        self.writable(share)?;
        let folder = folder(share, file).await?.ok_or(VfsError::NotFound)?;
        let found = find_in(&folder, name).await?;
        folder.unlink(Acting::caller(&Cred::root()), &to_disk(&found.name)?).await?;
        self.make_durable(share, &[&folder]).await?;
        self.told(share, file, &found.name, Action::RemovedStream, what::STREAM_NAME).await;
        // The last stream removes the folder too.
        if let Some(all) = all(share).await? {
            match all
                .rmdir(Acting::caller(&Cred::root()), folder_of(share, &file.handle()).as_bytes())
                .await
            {
                Ok(_) | Err(VfsError::NotEmpty | VfsError::NotFound) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Renames a stream. Without `replace` the new name must be free; a change of case is always possible.
    pub(crate) async fn do_stream_rename(
        &self,
        share: &Share,
        file: &NodeRef,
        from: &str,
        to: &str,
        replace: bool,
    ) -> VfsResult<()> {
        self.writable(share)?;
        let new = to_disk(to)?;
        let folder = folder(share, file).await?.ok_or(VfsError::NotFound)?;
        let old = find_in(&folder, from).await?;
        let root = Cred::root();
        // The replaced stream exists until the other has its name, even if the program ends in between: the name gets the case of
        // `to` last.
        let first = match if_there(find_in(&folder, to).await)? {
            Some(there) if there.node.id() == old.node.id() => new.clone(),
            Some(_) if !replace => return Err(VfsError::Exists),
            Some(there) => to_disk(&there.name)?,
            None => new.clone(),
        };
        let caller = || Acting::caller(&root);
        folder.rename(caller(), &to_disk(&old.name)?, folder.as_ref(), &first, true).await?;
        if first != new {
            folder.rename(caller(), &first, folder.as_ref(), &new, true).await?;
        }
        self.told(share, file, &old.name, Action::RemovedStream, what::STREAM_NAME).await;
        self.told(share, file, to, Action::AddedStream, what::STREAM_NAME).await;
        self.make_durable(share, &[&folder]).await
    }

    /// Reports that the data of a stream was changed. `kind`: [`what::STREAM_SIZE`] or [`what::STREAM_WRITE`] or both.
    pub async fn stream_changed(&self, share: &Share, file: &NodeRef, name: &str, kind: u32) {
        self.told(share, file, name, Action::ModifiedStream, kind).await;
    }

    async fn told(&self, share: &Share, file: &NodeRef, name: &str, action: Action, kind: u32) {
        let path = |of: &[u8]| shown(of, name);
        self.watches.post_stream(share.id, file, path, (action, kind)).await;
    }

    /// Returns the file under a name if its streams must be removed with it. Looks the name up only if the share has any streams.
    pub(crate) async fn with_streams(
        &self,
        share: &Share,
        dir: &NodeRef,
        name: &[u8],
    ) -> Option<NodeRef> {
        if !matches!(share.backend.hidden(false).await, Ok(Some(_))) {
            return None;
        }
        dir.lookup(&Cred::root(), name).await.ok().map(|found| found.0)
    }

    /// Called after a name of this file was removed: with the last name its streams are removed, too.
    pub(crate) async fn lost_a_name(&self, share: &Share, file: Option<NodeRef>) {
        let Some(file) = file else { return };
        if file.getattr().await.is_ok_and(|a| a.nlink > 0) {
            return;
        }
        if let Err(e) = forget(share, &file.handle()).await {
            tracing::warn!(share = share.name, error = %e, "streams of a removed file stay until the next start");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_bear_handles() {
        let handle = Handle::new(&[0, 0xff, 7]).unwrap();
        assert_eq!(hex(&handle), "00ff07");
        assert_eq!(handle_of(b"00ff07"), Some(handle));
        for bad in [&b"0"[..], b"zz", b"+1", &[b'0'; 100]] {
            assert_eq!(handle_of(bad), None);
        }
    }

    #[test]
    fn names_of_streams_are_checked() {
        for bad in ["", "a:b", "a/b", "a\\b", "\0"] {
            assert_eq!(to_disk(bad), Err(VfsError::BadName));
        }
        assert_eq!(to_disk(&"x".repeat(NAME_MAX + 1)), Err(VfsError::NameTooLong));
        for good in [".", "..", "a*?\"<>|", "\u{1}", "ä"] {
            let disk = to_disk(good).unwrap();
            assert_eq!(to_client(&disk).as_deref(), Some(good));
        }
    }
}
