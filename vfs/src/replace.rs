//! Another node in the place of one that has a name: what SMB needs where a link or a pipe is a node of its own kind.
//!
//! *Operation.* The new node is made by the caller in a folder of its own within the share's hidden folder ([`FileOps::stage`]),
//! looks like the old one when it is there (owner, mode, lists, what Windows keeps), and then changes places with it in one step
//! ([`FileOps::put_in_place`]): whoever looks finds the old node or the new one. What came out of the name is looked at then: if it
//! is not the old node, because somebody has put another file there meanwhile, or a directory that is not empty, it goes back.
//!
//! *Memory.* None is kept. A caller who goes away halfway leaves nothing in the hidden folder: a task removes it.
//!
//! *Errors.* Those of making a node and of a rename. [`VfsError::NotSupported`] where the backend keeps no hidden folder,
//! [`VfsError::CrossDevice`] where the name lies on another file system than that (a subvolume).

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
use crate::namespace::{FileOps, Share};
use crate::streams::{if_there, made_folder};
use crate::types::*;

/// The folder of all that is about to take a place, in a share's hidden folder.
const FOLDER: &[u8] = b"new";
/// The one name in a folder below it.
const NAME: &[u8] = b"node";
/// What the two steps of a change of places need.
const CHANGES: u32 = mask::DELETE | mask::DELETE_CHILD | mask::WRITE_DATA | mask::APPEND_DATA;
/// Mode of a file that takes the place of a link, as of a new one: a link's own mode means nothing.
const FILE_MODE: u32 = 0o666;
/// What that one is without where the share says nothing of modes.
const UMASK: u32 = 0o022;

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

/// A folder for one node. It goes with this value.
struct Folder {
    all: NodeRef,
    node: NodeRef,
    name: String,
    /// Nothing is to be removed of it (any more).
    stays: bool,
}

impl Folder {
    /// Makes one. Everybody may use it who reaches it: nobody does, in the hidden folder, but for whom it was made.
    async fn new(share: &Share) -> VfsResult<Self> {
        let hidden = share.backend.hidden(true).await?.ok_or(VfsError::NotSupported)?;
        let all = made_folder(&hidden, FOLDER).await?;
        let name = format!("{:016x}-{}", *RUN, NEXT.fetch_add(1, Ordering::Relaxed));
        let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        let node = all.mkdir(Acting::caller(&Cred::root()), name.as_bytes(), set).await?.node;
        let folder = Self { all, node, name, stays: false };
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

    /// Removes it, with what is in it.
    async fn remove(mut self) {
        if !std::mem::replace(&mut self.stays, true) {
            remove(&self.all, &self.node, &self.name).await;
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Only who was given up halfway comes here with something to remove. Without a runtime the program ends: the next start
        // does it.
        if !self.stays
            && let Ok(runtime) = Handle::try_current()
        {
            let (all, node, name) =
                (self.all.clone(), self.node.clone(), std::mem::take(&mut self.name));
            runtime.spawn(async move { remove(&all, &node, &name).await });
        }
    }
}

/// Removes a folder for one node, with what is in it.
async fn remove(all: &NodeRef, folder: &NodeRef, name: &str) {
    let root = Cred::root();
    let done = async {
        if_there(folder.unlink(Acting::caller(&root), NAME).await)?;
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
        New::File => dir.create(Acting::caller(cred), NAME, CreateHow::Guarded, set).await,
    };
    Ok(made?.node)
}

/// The mode of what takes the place of a link, which only SMB asks for.
fn mode_of_new(share: &Share, kind: Kind) -> u32 {
    let set = SetAttr { mode: Some(FILE_MODE), umask: UMASK, ..SetAttr::default() };
    let set = share.rules.masks.of_new(set, kind, true).set;
    set.mode.unwrap_or(FILE_MODE) & !set.umask
}

/// Gives a node what the old one has: it is the same file to whoever knows it by its name. What runs as its owner or group is such
/// after a change by the superuser alone, as with a write. `new_mode` is for what was a link.
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
        // Permission to search is nothing for what can be run.
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
        InheritedAcl::of_dir(dir, ListOfNew::Inherited, 0)
            .await?
            .give_to(share, (new, &attr), new_mode)
            .await?;
    }
    let dos = old.dos(&from).await?;
    match new.dos_set(dos).await {
        // A volume without room for it on such a node shows what the node says.
        Ok(()) | Err(VfsError::NotSupported) => Ok(()),
        Err(e) => Err(e),
    }
}

impl FileOps<'_> {
    /// Makes what is to take the place of `old`, which has a name in `dir`. It is put there by [`FileOps::put_in_place`], or given
    /// up.
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

    /// Gives a node a further name, that of another, in one step: until it has it the other is there, and if it cannot have it the
    /// other stays. The caller must be allowed to link the one and to replace the other.
    pub async fn link_over(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
        (dir, name): (&NodeRef, &[u8]),
        old: &NodeRef,
    ) -> VfsResult<()> {
        self.writable(share)?;
        let folder = Folder::new(share).await?;
        let done = async {
            self.check_change(node).await?;
            self.check_change(old).await?;
            let announced = self.check_taken(dir, cred, name).await?;
            let victim = self.with_streams(share, dir, name).await;
            node.link(Acting::caller(cred), folder.node.as_ref(), NAME).await?;
            let by = self.acting(cred, CHANGES);
            let change = folder.node.rename(by, NAME, dir.as_ref(), name, true).await?.1;
            self.arbiter.linked(node.id());
            self.lost_a_name(share, victim).await;
            Ok::<_, VfsError>((announced, change))
        };
        let done = done.await;
        folder.remove().await;
        let (_announced, change) = done?;
        self.took_its_place(share, (dir, name), old, &change).await;
        self.make_durable(share, &[dir, node]).await
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
        let Staged { node, mut folder } = staged;
        let done = async {
            self.check_change(old).await?;
            let announced = self.check_taken(dir, cred, name).await?;
            // Nobody is waited for from here on, and nothing is moved where it is plain that another file has come there.
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
    /// The node in it takes the name, and the old node its place in here.
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
            // A file system that knows no such thing: what comes there in this moment is replaced.
            Err(VfsError::NotSupported) if old.kind() != Kind::Dir => {
                return Ok(self.node.rename(by(), NAME, dir.as_ref(), name, true).await?.1);
            }
            other => other?.1,
        };
        // Until it is known to be the old node, what is in here may be somebody's file, and stays whoever gives up.
        self.stays = true;
        let done = match self.node.lookup(&root, NAME).await {
            Ok((out, _)) if out.id() != old.id() => Err(VfsError::NotFound),
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

    /// What came out of the name goes back there.
    /// Should a third file have come there since, that one stays, and what came out is kept in here.
    async fn put_back(&self, (dir, name): (&NodeRef, &[u8]), new: NodeId) -> VfsResult<()> {
        let root = Cred::root();
        match self.node.exchange(Acting::caller(&root), NAME, dir.as_ref(), name).await {
            // Somebody has removed what stood there for that moment.
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

/// Removes what an earlier run of the program did not come to put in its place, and gives how much. A directory that is not empty
/// and a file with data stay: somebody may miss them.
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

/// Removes one of these folders; whether it did.
async fn swept(all: &NodeRef, name: &[u8], folder: &NodeRef) -> VfsResult<bool> {
    let root = Cred::root();
    if let Some((_, attr)) = if_there(folder.lookup(&root, NAME).await)? {
        match attr.kind {
            Kind::Dir => if_there(folder.rmdir(Acting::caller(&root), NAME).await).map(drop)?,
            // One that has another name is missed by nobody.
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

    /// Between the last look and the step that takes the name another file, or a directory with something in it, comes there.
    #[tokio::test]
    async fn a_stranger_under_the_name_goes_back() {
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
