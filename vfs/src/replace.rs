//! Another node in the place of one that has a name: what SMB needs where a link or a pipe is a node of its own kind.
//!
//! *Operation.* The new node is made by the caller in a folder of its own within the share's hidden folder ([`Door::stage`]), looks
//! like the old one when it is there (owner, mode, lists, what Windows keeps), and then takes the name in one step
//! ([`Door::put_in_place`]): whoever looks finds the old node or the new one, and what fails halfway leaves the old one. A rename
//! replaces no directory by something else, so a directory changes places with the new node, and is put back when it is not empty.
//!
//! *Memory.* None is kept.
//!
//! *Errors.* Those of making a node and of a rename. [`VfsError::NotSupported`] where the backend keeps no hidden folder,
//! [`VfsError::CrossDevice`] where the name lies on another file system than that (a subvolume).

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::acl::posix::{Change, Posix};
use crate::backend::NodeRef;
use crate::error::{VfsError, VfsResult};
use crate::namespace::{Door, Share};
use crate::rights::heritage;
use crate::streams::{if_there, made_folder};
use crate::types::*;

/// The folder of all that is about to take a place, in a share's hidden folder.
const FOLDER: &[u8] = b"new";
/// The one name in a folder below it.
const NAME: &[u8] = b"node";
/// Mode of a file that takes the place of a link: a link's own mode means nothing.
const FILE_MODE: u32 = 0o644;

/// Tells the folders of this run of the program from those that an earlier one left.
static RUN: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
static NEXT: AtomicU64 = AtomicU64::new(0);

/// What takes the place of a node.
#[derive(Clone, Copy, Debug)]
pub enum New<'a> {
    /// A symbolic link with this target.
    Link(&'a [u8]),
    /// A device, pipe or socket.
    Special(Special),
    /// An empty file.
    File,
}

/// A node that is about to take the place of another. Nobody finds it yet.
pub struct Staged {
    /// It.
    pub node: NodeRef,
    folder: Folder,
}

/// A folder for one node.
struct Folder {
    all: NodeRef,
    node: NodeRef,
    name: String,
}

impl Folder {
    /// Makes one. Everybody may use it who reaches it: nobody does, in the hidden folder, but for whom it was made.
    async fn new(share: &Share) -> VfsResult<Self> {
        let hidden = share.backend.hidden(true).await?.ok_or(VfsError::NotSupported)?;
        let all = made_folder(&hidden, FOLDER).await?;
        let name = format!("{:016x}-{}", *RUN, NEXT.fetch_add(1, Ordering::Relaxed));
        let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        let node = all.mkdir(&Cred::root(), name.as_bytes(), set).await?.node;
        let folder = Self { all, node, name };
        // What the share's own folder passes on is not for these.
        let plain = Change { access: Some(Posix::of_mode(0o777)), default: Some(None) };
        match folder.node.posix_set(&plain).await {
            Ok(()) | Err(VfsError::NotSupported) => Ok(folder),
            Err(e) => {
                folder.remove().await;
                Err(e)
            }
        }
    }

    /// Removes it, with what was made in it.
    async fn remove(self) {
        let root = Cred::root();
        let done = async {
            if_there(self.node.unlink(&root, NAME).await)?;
            if_there(self.all.rmdir(&root, self.name.as_bytes()).await)
        };
        if let Err(e) = done.await {
            tracing::warn!(error = %e, folder = self.name, "something in the gateway's own folder stays until the next start");
        }
    }
}

impl Staged {
    /// It takes no place after all.
    pub async fn give_up(self) {
        self.folder.remove().await;
    }
}

/// Makes the node as the caller.
async fn make(folder: &Folder, cred: &Cred, new: New<'_>) -> VfsResult<NodeRef> {
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let dir = &folder.node;
    let made = match new {
        New::Link(target) => dir.symlink(cred, NAME, target, SetAttr::default()).await,
        New::Special(special) => dir.mknod(cred, NAME, special, set).await,
        New::File => dir.create(cred, NAME, CreateHow::Guarded, set).await,
    };
    Ok(made?.node)
}

/// Gives a node what the old one has: it is the same file to whoever knows it by its name.
async fn resemble(new: &NodeRef, old: &NodeRef, dir: &NodeRef) -> VfsResult<()> {
    let (root, from, to) = (Cred::root(), old.getattr().await?, new.getattr().await?);
    let is_link = [from.kind, to.kind].contains(&Kind::Symlink);
    let mode = match from.kind {
        // Permission to search is nothing for what can be run.
        Kind::Dir => from.mode & 0o666,
        _ => from.mode,
    };
    let set = SetAttr {
        uid: (from.uid != to.uid).then_some(from.uid),
        gid: (from.gid != to.gid).then_some(from.gid),
        mode: (!is_link).then_some(mode),
        ..SetAttr::default()
    };
    new.setattr(&root, set, false).await?;
    if !is_link {
        match old.acl(&from).await? {
            Some(acl) => new.acl_set(&acl, mode & 0o777).await?,
            None => {
                let access = old.posix(&from).await?.access;
                if access != Posix::of_mode(from.mode) && from.kind != Kind::Dir {
                    new.posix_set(&Change { access: Some(access), default: None }).await?;
                }
            }
        }
    } else if to.kind != Kind::Symlink {
        let attr = new.getattr().await?;
        heritage(dir).await?.give_to(new, &attr, FILE_MODE).await?;
    }
    let dos = old.dos(&from).await?;
    match new.dos_set(dos).await {
        // A volume without room for it on such a node shows what the node says.
        Ok(()) | Err(VfsError::NotSupported) => Ok(()),
        Err(e) => Err(e),
    }
}

impl Door<'_> {
    /// Makes what is to take the place of `old`, which has a name in `dir`. It is put there by [`Door::put_in_place`], or given up.
    pub async fn stage(
        &self,
        share: &Share,
        dir: &NodeRef,
        cred: &Cred,
        old: &NodeRef,
        new: New<'_>,
    ) -> VfsResult<Staged> {
        self.writable(share)?;
        let folder = Folder::new(share).await?;
        let made = async {
            let node = make(&folder, cred, new).await?;
            resemble(&node, old, dir).await?;
            Ok(node)
        };
        match made.await {
            Ok(node) => Ok(Staged { node, folder }),
            Err(e) => {
                folder.remove().await;
                Err(e)
            }
        }
    }

    /// Puts it under the name of the other, whose last name that was. The caller must be allowed to remove the one and to add the
    /// other.
    pub async fn put_in_place(
        &self,
        share: &Share,
        staged: Staged,
        cred: &Cred,
        (dir, name): (&NodeRef, &[u8]),
        old: &NodeRef,
    ) -> VfsResult<()> {
        let folder = staged.folder;
        let done = async {
            self.before_change(old).await?;
            let announced = self.before_entries(dir).await?;
            // Another file may have come there meanwhile.
            if dir.lookup(cred, name).await?.0.id() != old.id() {
                return Err(VfsError::NotFound);
            }
            let change = match old.kind() {
                Kind::Dir => swap(&folder, cred, (dir, name)).await?,
                _ => folder.node.rename(cred, NAME, dir.as_ref(), name, true).await?.1,
            };
            Ok((announced, change))
        };
        let done = done.await;
        folder.remove().await;
        let (_announced, change) = done?;
        self.took_its_place(share, (dir, name), old, &change).await;
        Ok(())
    }
}

/// A directory makes room for the new node when it is empty.
async fn swap(
    folder: &Folder,
    cred: &Cred,
    (dir, name): (&NodeRef, &[u8]),
) -> VfsResult<DirChange> {
    let (_, change) = folder.node.exchange(cred, NAME, dir.as_ref(), name).await?;
    let root = Cred::root();
    if let Err(e) = folder.node.rmdir(&root, NAME).await {
        folder.node.exchange(&root, NAME, dir.as_ref(), name).await?;
        return Err(e);
    }
    Ok(change)
}

/// Removes what an earlier run of the program did not come to put in its place, and gives how much. A directory that is not empty
/// stays: it was to make room, and somebody may miss it.
pub async fn sweep(share: &Share) -> VfsResult<usize> {
    if share.read_only {
        return Ok(0);
    }
    let root = Cred::root();
    let hidden = match share.backend.hidden(false).await {
        Ok(None) | Err(VfsError::NotSupported) => return Ok(0),
        Ok(Some(hidden)) => hidden,
        Err(e) => return Err(e),
    };
    let Some((all, _)) = if_there(hidden.lookup(&root, FOLDER).await)? else { return Ok(0) };
    let (mut cookie, mut gone, own) = (0, 0, format!("{:016x}-", *RUN));
    loop {
        let (entries, end) = all.readdir(&root, cookie, 256).await?;
        for entry in &entries {
            cookie = entry.cookie;
            if entry.name.starts_with(own.as_bytes()) {
                continue;
            }
            let Some((folder, _)) = if_there(all.lookup(&root, &entry.name).await)? else {
                continue;
            };
            match folder.unlink(&root, NAME).await {
                Err(VfsError::IsDir) => if_there(folder.rmdir(&root, NAME).await).map(drop)?,
                other => if_there(other).map(drop)?,
            }
            if_there(all.rmdir(&root, &entry.name).await)?;
            gone += 1;
        }
        if end || entries.is_empty() {
            return Ok(gone);
        }
    }
}
