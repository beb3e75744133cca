//! Replaces a node by another one under the same name: SMB needs that where a link or a pipe is a separate kind of node.
//!
//! *Operation.* The caller creates the new node in a separate folder within the share's hidden folder ([`FileOps::stage`]). There
//! the node gets the owner, mode, lists and Windows attributes of the old one, and then exchanges places with it in one step
//! ([`FileOps::put_in_place`]): every look-up finds the old node or the new one. The node that was taken out is then checked: if it
//! is not the old node, because another file was put there meanwhile, or if it is a directory that is not empty, it goes back.
//!
//! *Memory.* No state is kept. A caller that gives up halfway leaves no files in the hidden folder: a task removes them.
//!
//! *Errors.* Those of creating a node and of a rename. [`VfsError::NotSupported`] if the backend has no hidden folder,
//! [`VfsError::CrossDevice`] if the name is on another file system than that folder (a subvolume).

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Handle;

use crate::acl::mask;
use crate::acl::posix::{Change, Posix};
use crate::authority::Acting;
use crate::backend::NodeRef;
use crate::error::{VfsError, VfsResult};
use crate::inherited_acl::{InheritedAcl, ListOfNew};
use crate::links::Change as OfName;
use crate::namespace::{FileOps, Share};
use crate::streams::{if_there, made_folder};
use crate::types::*;

/// The folder for nodes that will replace others, in a share's hidden folder.
const FOLDER: &[u8] = b"new";
/// The one name in a folder below it.
const NAME: &[u8] = b"node";
/// Rights that the two steps of an exchange need.
const CHANGES: u32 = mask::DELETE | mask::DELETE_CHILD | mask::WRITE_DATA | mask::APPEND_DATA;
/// Mode of a file that replaces a link, the same as for a new file: a link's own mode has no meaning.
const FILE_MODE: u32 = 0o666;
/// The same for a directory.
const DIR_MODE: u32 = 0o777;
/// Bits cleared from these modes if the share sets no modes.
const UMASK: u32 = 0o022;

/// Distinguishes the folders of this run of the program from leftovers of an earlier one.
static RUN: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The kind of the new node.
#[derive(Clone, Copy, Debug)]
pub enum New<'a> {
    /// A symbolic link with this target.
    Link(&'a [u8]),
    /// A device, pipe or socket.
    Special(Special),
    /// An empty file.
    File,
    /// An empty directory.
    Dir,
}

/// A node that will replace another. No client can find it yet.
pub struct Staged {
    pub node: NodeRef,
    folder: Folder,
}

/// A folder for one node, removed when this value is dropped.
struct Folder {
    all: NodeRef,
    node: NodeRef,
    name: String,
    /// True if its contents must not be removed (any more).
    stays: bool,
}

impl Folder {
    /// Creates a folder. Its mode admits every user, but in the hidden folder only its own caller can reach it.
    async fn new(share: &Share) -> VfsResult<Self> {
        let hidden = share.backend.hidden(true).await?.ok_or(VfsError::NotSupported)?;
        let all = made_folder(&hidden, FOLDER).await?;
        let name = format!("{:016x}-{}", *RUN, NEXT.fetch_add(1, Ordering::Relaxed));
        let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        let node = all.mkdir(Acting::caller(&Cred::root()), name.as_bytes(), set).await?.node;
        let folder = Self { all, node, name, stays: false };
        // The entries that the share's own folder passes on must not apply here.
        let plain = Change { access: Some(Posix::of_mode(0o777)), default: Some(None) };
        match folder.node.posix_set(&plain).await {
            Ok(()) | Err(VfsError::NotSupported) => Ok(folder),
            Err(e) => {
                folder.remove().await;
                Err(e)
            }
        }
    }

    /// Removes it, with its contents.
    async fn remove(mut self) {
        if !std::mem::replace(&mut self.stays, true) {
            remove(&self.all, &self.node, &self.name).await;
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Only an operation that was given up halfway has files to remove here. Without a runtime the program is ending: the next
        // start removes them.
        if !self.stays
            && let Ok(runtime) = Handle::try_current()
        {
            let (all, node, name) =
                (self.all.clone(), self.node.clone(), std::mem::take(&mut self.name));
            runtime.spawn(async move { remove(&all, &node, &name).await });
        }
    }
}

/// Removes a folder for one node, with its contents.
async fn remove(all: &NodeRef, folder: &NodeRef, name: &str) {
    let root = Cred::root();
    let done = async {
        match folder.unlink(Acting::caller(&root), NAME).await {
            Err(VfsError::IsDir) => if_there(folder.rmdir(Acting::caller(&root), NAME).await)?,
            gone => if_there(gone)?,
        };
        if_there(all.rmdir(Acting::caller(&root), name.as_bytes()).await)
    };
    if let Err(e) = done.await {
        tracing::warn!(
            error = %e, folder = name,
            "a file in the gateway's own folder could not be removed; the next start removes it"
        );
    }
}

impl Staged {
    /// Discards the new node.
    pub async fn give_up(self) {
        self.folder.remove().await;
    }
}

/// Creates the node as the caller.
async fn make(folder: &Folder, cred: &Cred, new: New<'_>) -> VfsResult<NodeRef> {
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let dir = &folder.node;
    let made = match new {
        New::Link(target) => dir.symlink(cred, NAME, target, SetAttr::default()).await,
        New::Special(special) => dir.mknod(cred, NAME, special, set).await,
        New::File => dir.create(Acting::caller(cred), NAME, CreateHow::Guarded, set).await,
        New::Dir => dir.mkdir(Acting::caller(cred), NAME, set).await,
    };
    Ok(made?.node)
}

/// Returns the mode of a node that replaces a link, which only SMB asks for.
fn mode_of_new(share: &Share, kind: Kind) -> u32 {
    let most = if kind == Kind::Dir { DIR_MODE } else { FILE_MODE };
    let set = SetAttr { mode: Some(most), umask: UMASK, ..SetAttr::default() };
    let set = share.rules.masks.of_new(set, kind, true).set;
    set.mode.unwrap_or(most) & !set.umask
}

/// Copies the old node's attributes to the new one, because users take it for the same file. Set-id bits stay only if the superuser
/// makes the change, as with a write. `new_mode` applies if the old node was a link.
async fn resemble(
    new: &NodeRef,
    old: &NodeRef,
    (share, dir): (&Share, &NodeRef),
    (cred, new_mode): (&Cred, u32),
) -> VfsResult<()> {
    const SET_ID: u32 = 0o6000;
    let (root, from, to) = (Cred::root(), old.getattr().await?, new.getattr().await?);
    let is_link = [from.kind, to.kind].contains(&Kind::Symlink);
    let mode = match from.kind {
        // A directory's permission to search must not become permission to run a file.
        Kind::Dir => from.mode & 0o666,
        _ if cred.uid != 0 => from.mode & !SET_ID,
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
        InheritedAcl::of_dir((dir, dir.getattr().await?), ListOfNew::Inherited, 0)
            .await?
            .give_to(share, (new, &attr), new_mode)
            .await?;
    }
    let dos = old.dos(&from).await?;
    match new.dos_set(dos).await {
        // A volume without room for these attributes on such a node shows the node's own.
        Ok(()) | Err(VfsError::NotSupported) => Ok(()),
        Err(e) => Err(e),
    }
}

impl FileOps<'_> {
    /// Creates the node that will replace `old`, which has a name in `dir`. [`FileOps::put_in_place`] puts it there, or it is
    /// discarded.
    pub async fn stage(
        &self,
        share: &Share,
        dir: &NodeRef,
        cred: &Cred,
        old: &NodeRef,
        new: New<'_>,
    ) -> VfsResult<Staged> {
        self.writable(share)?;
        self.guard_link_attributes(share, old.id())?;
        if let New::Link(text) = new {
            self.guard_link_text(share, text)?;
        }
        let folder = Folder::new(share).await?;
        let made = async {
            let node = make(&folder, cred, new).await?;
            resemble(&node, old, (share, dir), (cred, mode_of_new(share, node.kind()))).await?;
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

    /// Gives a node a further name that belongs to another node, in one step: the other node keeps the name until then, and also if
    /// the step fails. The caller needs permission to link the one and to replace the other.
    pub(crate) async fn do_link_over(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
        (dir, name): (&NodeRef, &[u8]),
        old: &NodeRef,
    ) -> VfsResult<()> {
        self.writable(share)?;
        self.guard_links(share, dir.id(), name, OfName::Take)?;
        let folder = Folder::new(share).await?;
        let done = async {
            self.check_change(node).await?;
            self.check_change(old).await?;
            let announced = self.check_taken(dir, cred, name).await?;
            let victim = self.with_streams(share, dir, name).await;
            node.link(Acting::caller(cred), folder.node.as_ref(), NAME).await?;
            let names = ((&folder.node, NAME), (dir, name));
            let (change, kept) =
                self.rename_or_keep(share, names.0, names.1, (cred, CHANGES), true).await?;
            let change = change.1;
            self.arbiter.linked(node.id());
            self.lost_a_name(share, victim.filter(|_| kept.is_none())).await;
            Ok::<_, VfsError>((announced, change))
        };
        let done = done.await;
        folder.remove().await;
        let (_announced, change) = done?;
        self.took_its_place(share, (dir, name), old, &change).await;
        self.make_durable(share, &[dir, node]).await
    }

    /// Puts the new node under the name of the other, which was that node's last name. The caller needs permission to remove the
    /// one and to add the other.
    pub(crate) async fn do_put_in_place(
        &self,
        share: &Share,
        staged: Staged,
        cred: &Cred,
        (dir, name): (&NodeRef, &[u8]),
        old: &NodeRef,
    ) -> VfsResult<()> {
        let Staged { node, mut folder } = staged;
        let done = async {
            self.guard_links(share, dir.id(), name, OfName::Take)?;
            self.check_change(old).await?;
            let announced = self.check_taken(dir, cred, name).await?;
            // The steps below do not wait for clients, and the exchange is skipped if the name plainly belongs to another file by
            // now.
            if dir.lookup(cred, name).await?.0.id() != old.id() {
                return Err(VfsError::NotFound);
            }
            let change = folder.change_places(self, cred, (dir, name), old).await?;
            Ok((announced, change))
        };
        let done = done.await;
        folder.remove().await;
        let (_announced, change) = done?;
        self.took_its_place(share, (dir, name), old, &change).await;
        self.make_durable(share, &[dir, &node]).await
    }
}

impl Folder {
    /// Exchanges the new node, which gets the name, with the old node, which gets the place in this folder.
    async fn change_places(
        &mut self,
        file_ops: &FileOps<'_>,
        cred: &Cred,
        (dir, name): (&NodeRef, &[u8]),
        old: &NodeRef,
    ) -> VfsResult<DirChange> {
        let (root, by) = (Cred::root(), || file_ops.acting(cred, CHANGES));
        let new = self.node.lookup(&root, NAME).await?.0.id();
        let change = match self.node.exchange(by(), NAME, dir.as_ref(), name).await {
            // A file system without exchange: a node that another process puts there at this moment is replaced.
            Err(VfsError::NotSupported) if old.kind() != Kind::Dir => {
                let attr = old.getattr().await?;
                if attr.kind == Kind::File && attr.size != 0 {
                    return Err(VfsError::NotSupported);
                }
                return Ok(self.node.rename(by(), NAME, dir.as_ref(), name, true).await?.1);
            }
            other => other?.1,
        };
        // The node in here may be another user's file until it is known to be the old node, so it stays even if the operation is
        // given up.
        self.stays = true;
        let done = match self.node.lookup(&root, NAME).await {
            Ok((out, _)) if out.id() != old.id() => Err(VfsError::NotFound),
            // Written meanwhile: the new node cannot have these contents.
            Ok((_, attr)) if attr.kind == Kind::File && attr.size != 0 => {
                Err(VfsError::NotSupported)
            }
            Ok(_) if old.kind() == Kind::Dir => {
                self.node.rmdir(Acting::caller(&root), NAME).await.map(drop)
            }
            other => other.map(drop),
        };
        let Err(why) = done else {
            self.stays = false;
            return Ok(change);
        };
        let back = self.put_back((dir, name), new).await;
        self.stays = back.is_err();
        if let Err(e) = back {
            tracing::error!(
                error = %e,
                folder = self.name,
                "a client's file could not be moved back from the folder .headgate/new of its share; move it back by hand"
            );
        }
        Err(why)
    }

    /// Puts the node that was taken out back under its name. If a third file has that name by then, that file stays, and the node
    /// is kept in this folder.
    async fn put_back(&self, (dir, name): (&NodeRef, &[u8]), new: NodeId) -> VfsResult<()> {
        let root = Cred::root();
        match self.node.exchange(Acting::caller(&root), NAME, dir.as_ref(), name).await {
            // Another process has removed the node that had the name for that moment.
            Err(VfsError::NotFound) => {
                return self
                    .node
                    .rename(Acting::caller(&root), NAME, dir.as_ref(), name, false)
                    .await
                    .map(drop);
            }
            other => other.map(drop)?,
        }
        if self.node.lookup(&root, NAME).await?.0.id() == new {
            return Ok(());
        }
        self.node.exchange(Acting::caller(&root), NAME, dir.as_ref(), name).await?;
        Err(VfsError::Exists)
    }
}

/// Removes nodes that an earlier run of the program staged but did not put in place; returns how many. A directory that is not
/// empty and a file with data stay, because they may be a user's only copy.
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
            gone += usize::from(swept(&all, &entry.name, &folder).await?);
        }
        if end || entries.is_empty() {
            return Ok(gone);
        }
    }
}

/// Removes one of these folders; returns whether it did.
async fn swept(all: &NodeRef, name: &[u8], folder: &NodeRef) -> VfsResult<bool> {
    let root = Cred::root();
    if let Some((_, attr)) = if_there(folder.lookup(&root, NAME).await)? {
        match attr.kind {
            Kind::Dir => if_there(folder.rmdir(Acting::caller(&root), NAME).await).map(drop)?,
            // A file with another name is still available.
            Kind::File if attr.size != 0 && attr.nlink < 2 => return Ok(false),
            _ => if_there(folder.unlink(Acting::caller(&root), NAME).await).map(drop)?,
        }
    }
    Ok(if_there(all.rmdir(Acting::caller(&root), name).await)?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Backend;
    use crate::mem::MemBackend;
    use crate::namespace::{Enforce, Namespace, Protocols, Squash};

    /// Between the last check and the exchange another file, or a directory with files in it, gets the name.
    #[tokio::test]
    async fn foreign_file_under_name_goes_back() {
        let backend = MemBackend::new(1 << 20).unwrap();
        let (root, c) = (backend.root(), Cred::root());
        let ns = Namespace::new(vec![Share {
            name: "s".into(),
            id: Share::id_of("s"),
            backend,
            read_only: false,
            protocols: Protocols::Both,
            squash: Squash::None,
            nfs_locks: Enforce::Smb,
            clients: None,
            rules: crate::namespace::Rules::default(),
        }]);
        let (share, file_ops, set) = (ns.shares()[0].clone(), ns.by(None), SetAttr::default());
        let old =
            root.create(Acting::caller(&c), b"f", CreateHow::Guarded, set).await.unwrap().node;
        let others = [
            root.create(Acting::caller(&c), b"other", CreateHow::Guarded, set).await.unwrap().node,
            root.mkdir(Acting::caller(&c), b"dir", set).await.unwrap().node,
        ];
        others[1].create(Acting::caller(&c), b"inside", CreateHow::Guarded, set).await.unwrap();
        for (other, name) in others.iter().zip([&b"other"[..], b"dir"]) {
            let staged = file_ops.stage(&share, &root, &c, &old, New::Link(b"x")).await.unwrap();
            let Staged { node, mut folder } = staged;
            let done = folder.change_places(&file_ops, &c, (&root, name), &old).await;
            assert_eq!(done.map(drop), Err(VfsError::NotFound));
            assert_eq!(root.lookup(&c, name).await.unwrap().0.id(), other.id());
            let kept = folder.node.lookup(&c, NAME).await.unwrap().0.id();
            assert_eq!((kept, folder.stays), (node.id(), false));
            folder.remove().await;
        }
        assert_eq!(others[1].readdir(&c, 0, 9).await.unwrap().0.len(), 1);
    }
}
