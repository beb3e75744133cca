//! Example of a backend for the vfs: a tree of files in memory with only the methods that every backend must have.
//!
//! `tests/tests/own_backend.rs` serves it and mounts it by every protocol. `vfs/src/local` and `vfs/src/mem` are backends that do
//! more.
//!
//! *Operation.* All nodes are entries of one table, by number; a `Node` consists of a number and the table. Permission, access
//! control lists and Windows attributes come from the layers of [`vfs::backend`], which keep them in side data.
//!
//! *Memory.* As much as clients write, without a limit: a real backend needs a limit.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iobuf::Buf;
use vfs::authority::Acting;
use vfs::backend::{Made, ReadInto, check_name, check_side_name, judge, ready};
use vfs::judge::regular;
use vfs::*;

const NAME_MAX: u32 = 255;
const ROOT: u64 = 1;

/// All nodes, by number. The table exists in one process only, so handles end with it.
struct Tree(Mutex<BTreeMap<u64, Entry>>);

/// One entry of the table: the attributes and contents of a node.
struct Entry {
    id: NodeId,
    parent: u64,
    attr: Attr,
    body: Body,
    side: BTreeMap<String, Vec<u8>>,
}

enum Body {
    File(Vec<u8>),
    Dir(BTreeMap<Vec<u8>, u64>),
}

struct TreeNode {
    tree: Arc<Tree>,
    number: u64,
    id: NodeId,
    kind: Kind,
}

/// A backend whose nodes are the entries of a [`Tree`].
pub(crate) struct Own(Arc<Tree>);

impl Own {
    /// Creates an empty folder that belongs to root and that every user may write to.
    pub(crate) fn new() -> Arc<Self> {
        let tree = Arc::new(Tree(Mutex::new(BTreeMap::new())));
        let root = Entry::new(ROOT, ROOT, (Kind::Dir, 0o777), &Cred::root());
        tree.lock().insert(ROOT, root);
        Arc::new(Self(tree))
    }
}

impl Tree {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn node(self: &Arc<Self>, number: u64) -> VfsResult<NodeRef> {
        let all = self.lock();
        let found = all.get(&number).ok_or(VfsError::Stale)?;
        let (tree, id, kind) = (self.clone(), found.id, found.attr.kind);
        Ok(Arc::new(TreeNode { tree, number, id, kind }))
    }
}

impl Entry {
    fn new(number: u64, parent: u64, (kind, mode): (Kind, u32), cred: &Cred) -> Self {
        let now = Time::now();
        let attr = Attr {
            kind,
            mode,
            nlink: 1,
            uid: cred.uid,
            gid: cred.gid,
            size: 0,
            used: 0,
            rdev: (0, 0),
            fsid: 0x6f77_6e00,
            fileid: number,
            atime: now,
            mtime: now,
            ctime: now,
            btime: Some(now),
            change: 1,
            sealed: false,
        };
        let body = match kind {
            Kind::Dir => Body::Dir(BTreeMap::new()),
            _ => Body::File(Vec::new()),
        };
        Self { id: next_node_id(), parent, attr, body, side: BTreeMap::new() }
    }

    /// Updates the times after a change; with `data`, a change of the contents.
    fn touch(&mut self, data: bool) {
        self.attr.change += 1;
        self.attr.ctime = Time::now();
        if data {
            self.attr.mtime = self.attr.ctime;
        }
    }

    fn names(&mut self) -> VfsResult<&mut BTreeMap<Vec<u8>, u64>> {
        match &mut self.body {
            Body::Dir(names) => Ok(names),
            Body::File(_) => Err(VfsError::NotDir),
        }
    }

    fn data(&mut self) -> VfsResult<&mut Vec<u8>> {
        match &mut self.body {
            Body::File(data) => Ok(data),
            Body::Dir(_) => Err(VfsError::IsDir),
        }
    }

    fn resize(&mut self, size: u64) -> VfsResult<()> {
        let len = usize::try_from(size).map_err(|_| VfsError::TooBig)?;
        self.data()?.resize(len, 0);
        (self.attr.size, self.attr.used) = (size, size);
        self.touch(true);
        Ok(())
    }

    fn set(&mut self, set: &SetAttr) -> VfsResult<()> {
        let time = |t| match t {
            SetTime::Now => Time::now(),
            SetTime::At(t) => t,
        };
        if let Some(size) = set.size {
            self.resize(size)?;
        }
        let attr = &mut self.attr;
        attr.mode = set.mode.map_or(attr.mode, |mode| mode & 0o7777);
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        attr.atime = set.atime.map_or(attr.atime, time);
        attr.mtime = set.mtime.map_or(attr.mtime, time);
        self.touch(false);
        Ok(())
    }
}

impl TreeNode {
    /// Runs `work` on the entry of this node, under the lock.
    fn with<T>(&self, work: impl FnOnce(&mut Entry) -> VfsResult<T>) -> VfsResult<T> {
        work(self.tree.lock().get_mut(&self.number).ok_or(VfsError::Stale)?)
    }

    fn attr(&self) -> VfsResult<Attr> {
        self.with(|entry| Ok(entry.attr))
    }

    /// Returns the node of a name, without a permission check.
    fn child(&self, name: &[u8]) -> VfsResult<NodeRef> {
        let found = self.with(|entry| Ok(entry.names()?.get(name).copied()))?;
        self.tree.node(found.ok_or(VfsError::NotFound)?)
    }

    fn same_tree<'a>(&self, other: &'a dyn Node) -> VfsResult<&'a Self> {
        let other = other.as_any().downcast_ref::<Self>();
        other.filter(|o| Arc::ptr_eq(&o.tree, &self.tree)).ok_or(VfsError::CrossDevice)
    }

    /// Changes the names of this directory, and returns its attributes before and after.
    fn change(
        &self,
        work: impl FnOnce(&mut BTreeMap<Vec<u8>, u64>) -> VfsResult<()>,
    ) -> VfsResult<DirChange> {
        self.with(|entry| {
            let before = entry.attr;
            work(entry.names()?)?;
            entry.touch(true);
            Ok(DirChange { before, after: entry.attr, atomic: true })
        })
    }

    async fn make(
        &self,
        by: Acting<'_>,
        name: &[u8],
        (kind, mode): (Kind, u32),
        set: SetAttr,
    ) -> VfsResult<Made> {
        check_name(name, NAME_MAX)?;
        let here = self.attr()?;
        judge(self, &here, by.cred).await?.add(&by, kind)?;
        let number = {
            let mut all = self.tree.lock();
            let number = all.last_key_value().map_or(ROOT, |(last, _)| last + 1);
            let mut entry = Entry::new(number, self.number, (kind, mode), by.cred);
            // Only the superuser may create a file for another user.
            let is_root = by.cred.uid == 0;
            let (uid, gid) = (set.uid.filter(|_| is_root), set.gid.filter(|_| is_root));
            entry.set(&SetAttr { uid, gid, ..set })?;
            all.insert(number, entry);
            number
        };
        let added = self.change(|names| {
            if names.contains_key(name) {
                return Err(VfsError::Exists);
            }
            names.insert(name.to_vec(), number);
            Ok(())
        });
        let dir = added.inspect_err(|_| drop(self.tree.lock().remove(&number)))?;
        let node = self.tree.node(number)?;
        let attr = node.getattr().await?;
        Ok(Made { node, attr, dir, created: true })
    }

    /// Checks permission to remove a name from this directory, and returns its node.
    async fn victim(&self, by: &Acting<'_>, name: &[u8]) -> VfsResult<(NodeRef, Attr)> {
        check_name(name, NAME_MAX)?;
        let node = self.child(name)?;
        let (here, attr) = (self.attr()?, node.getattr().await?);
        let victim = judge(&*node, &attr, by.cred).await?;
        judge(self, &here, by.cred).await?.remove(by, &victim)?;
        Ok((node, attr))
    }

    /// Removes the node after its name was removed; its handles become stale.
    fn forget(&self, number: u64) {
        self.tree.lock().remove(&number);
    }

    fn is_empty(&self, node: &dyn Node) -> VfsResult<()> {
        let empty = self.same_tree(node)?.with(|e| Ok(e.names()?.is_empty()))?;
        if empty { Ok(()) } else { Err(VfsError::NotEmpty) }
    }
}

impl Backend for Own {
    fn root(&self) -> NodeRef {
        let (tree, number, kind) = (self.0.clone(), ROOT, Kind::Dir);
        let id = tree.lock().get(&ROOT).map_or_else(next_node_id, |root| root.id);
        Arc::new(TreeNode { tree, number, id, kind })
    }

    fn resolve<'a>(&'a self, handle: &'a Handle) -> BoxFuture<'a, VfsResult<NodeRef>> {
        let number = <[u8; 8]>::try_from(handle.as_bytes()).map_err(|_| VfsError::BadHandle);
        ready(number.and_then(|number| self.0.node(u64::from_be_bytes(number))))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name_max: NAME_MAX,
            size_max: 1 << 40,
            link_max: 1,
            xattr: false,
            reflink: false,
            clone_block: 0,
            deallocate: false,
            block: 4096,
            handles_persist: false,
            read_only: false,
            quotas: false,
        }
    }

    fn statfs(&self) -> BoxFuture<'_, VfsResult<FsStat>> {
        let [bytes, files] = [1 << 30, 1 << 20];
        ready(Ok(FsStat {
            total_bytes: bytes,
            free_bytes: bytes,
            avail_bytes: bytes,
            total_files: files,
            free_files: files,
            avail_files: files,
        }))
    }
}

impl Node for TreeNode {
    fn id(&self) -> NodeId {
        self.id
    }

    #[allow(clippy::expect_used)] // Invariant: eight bytes are fewer than a handle may have.
    fn handle(&self) -> Handle {
        Handle::new(&self.number.to_be_bytes()).expect("a short handle")
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn as_any(&self) -> &(dyn Any + Send + Sync) {
        self
    }

    fn is_beside(&self, other: &dyn Node) -> bool {
        self.same_tree(other).is_ok()
    }

    fn getattr(&self) -> BoxFuture<'_, VfsResult<Attr>> {
        ready(self.attr())
    }

    fn setattr<'a>(
        &'a self,
        cred: &'a Cred,
        set: SetAttr,
        open_write: bool,
    ) -> BoxFuture<'a, VfsResult<(Attr, Attr)>> {
        Box::pin(async move {
            let before = self.attr()?;
            judge(self, &before, cred).await?.set(&set, open_write)?;
            self.with(|entry| entry.set(&set))?;
            Ok((before, self.attr()?))
        })
    }

    fn lookup<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(NodeRef, Attr)>> {
        Box::pin(async move {
            let here = self.attr()?;
            self.with(|entry| entry.names().map(drop))?;
            judge(self, &here, cred).await?.look_up()?;
            let node = match name {
                b".." => self.tree.node(self.with(|entry| Ok(entry.parent))?)?,
                name => check_name(name, NAME_MAX).and_then(|()| self.child(name))?,
            };
            let attr = node.getattr().await?;
            Ok((node, attr))
        })
    }

    fn readdir<'a>(
        &'a self,
        cred: &'a Cred,
        cookie: u64,
        entries_max: usize,
    ) -> BoxFuture<'a, VfsResult<(Vec<DirEntry>, bool)>> {
        Box::pin(async move {
            let here = self.attr()?;
            judge(self, &here, cred).await?.list()?;
            // A cookie is the number of the node: it stays while other names come and go.
            let mut all: Vec<DirEntry> = self.with(|entry| {
                let entry_of = |(name, number): (&Vec<u8>, &u64)| DirEntry {
                    name: name.as_slice().into(),
                    fileid: *number,
                    cookie: DirEntry::COOKIE_MIN + number,
                    kind: None,
                };
                Ok(entry.names()?.iter().map(entry_of).collect())
            })?;
            all.retain(|entry| entry.cookie > cookie);
            all.sort_by_key(|entry| entry.cookie);
            let whole = all.len() <= entries_max;
            all.truncate(entries_max);
            Ok((all, whole))
        })
    }

    fn create<'a>(
        &'a self,
        by: Acting<'a>,
        name: &'a [u8],
        how: CreateHow,
        set: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>> {
        Box::pin(async move {
            let Ok(node) = self.child(name) else {
                let mode = set.mode.unwrap_or(0o600);
                return self.make(by, name, (Kind::File, mode), set).await;
            };
            // A real backend would recognize a repeated create by its verifier.
            if how != CreateHow::Unchecked {
                return Err(VfsError::Exists);
            }
            if set.size == Some(0) && node.kind() == Kind::File {
                let cut = SetAttr { size: Some(0), ..SetAttr::default() };
                node.setattr(by.cred, cut, false).await?;
            }
            let (here, attr) = (self.attr()?, node.getattr().await?);
            let dir = DirChange { before: here, after: here, atomic: true };
            Ok(Made { node, attr, dir, created: false })
        })
    }

    fn mkdir<'a>(
        &'a self,
        by: Acting<'a>,
        name: &'a [u8],
        set: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>> {
        let mode = set.mode.unwrap_or(0o700);
        Box::pin(self.make(by, name, (Kind::Dir, mode), SetAttr { size: None, ..set }))
    }

    fn remove<'a>(
        &'a self,
        by: Acting<'a>,
        name: &'a [u8],
        dir: bool,
    ) -> BoxFuture<'a, VfsResult<DirChange>> {
        Box::pin(async move {
            let (node, attr) = self.victim(&by, name).await?;
            match (dir, node.kind() == Kind::Dir) {
                (true, true) => self.is_empty(&*node)?,
                (true, false) => return Err(VfsError::NotDir),
                (false, true) => return Err(VfsError::IsDir),
                (false, false) => {}
            }
            let change = self.change(|names| match names.remove(name) {
                Some(_) => Ok(()),
                None => Err(VfsError::NotFound),
            })?;
            self.forget(attr.fileid);
            Ok(change)
        })
    }

    fn rename<'a>(
        &'a self,
        by: Acting<'a>,
        from: &'a [u8],
        to_dir: &'a dyn Node,
        to: &'a [u8],
        replace: bool,
    ) -> BoxFuture<'a, VfsResult<(DirChange, DirChange)>> {
        Box::pin(async move {
            let target = self.same_tree(to_dir)?;
            let (node, moved) = self.victim(&by, from).await?;
            let there = target.attr()?;
            judge(target, &there, by.cred).await?.add(&by, node.kind())?;
            let old = match target.child(to) {
                Ok(old) if old.id() == node.id() => {
                    let same = |attr| DirChange { before: attr, after: attr, atomic: true };
                    return Ok((same(self.attr()?), same(there)));
                }
                Ok(_) if !replace => return Err(VfsError::Exists),
                Ok(_) => Some(target.victim(&by, to).await?),
                Err(_) => None,
            };
            check_name(to, NAME_MAX)?;
            if let Some((old, _)) = &old {
                match (node.kind() == Kind::Dir, old.kind() == Kind::Dir) {
                    (true, true) => self.is_empty(&**old)?,
                    (true, false) => return Err(VfsError::NotDir),
                    (false, true) => return Err(VfsError::IsDir),
                    (false, false) => {}
                }
            }
            // A directory cannot move below itself.
            let mut above = target.number;
            while above != ROOT {
                if above == moved.fileid {
                    return Err(VfsError::Invalid);
                }
                let all = self.tree.lock();
                above = all.get(&above).ok_or(VfsError::Stale)?.parent;
            }
            let left =
                self.change(|names| names.remove(from).map(drop).ok_or(VfsError::NotFound))?;
            let came = target.change(|names| {
                names.insert(to.to_vec(), moved.fileid);
                Ok(())
            })?;
            self.same_tree(&*node)?.with(|entry| {
                entry.parent = target.number;
                entry.touch(false);
                Ok(())
            })?;
            if let Some((_, attr)) = old {
                self.forget(attr.fileid);
            }
            Ok((left, came))
        })
    }

    fn read<'a>(
        &'a self,
        cred: Option<&'a Cred>,
        at: u64,
        count: usize,
        into: &'a ReadInto,
    ) -> BoxFuture<'a, VfsResult<ReadData>> {
        Box::pin(async move {
            regular(self.kind)?;
            if let Some(cred) = cred {
                let attr = self.attr()?;
                judge(self, &attr, cred).await?.data(false)?;
            }
            // All buffers are requested at once: a caller that waits for memory must not hold any.
            let waited = into.pool.acquire_all(count.max(1), into.account).await;
            let buffers = waited.map_err(|_| VfsError::Resources)?;
            self.with(|entry| {
                let attr = Some(entry.attr);
                let data = entry.data()?;
                let from = usize::try_from(at).unwrap_or(usize::MAX).min(data.len());
                let end = data.len().min(from.saturating_add(count));
                let (mut rest, eof) = (&data[from..end], end == data.len());
                let mut taken = Vec::new();
                for mut buffer in buffers {
                    let n = buffer.append(rest);
                    rest = &rest[n..];
                    taken.extend((n > 0).then(|| buffer.freeze()));
                }
                Ok(ReadData { data: taken, pages: None, eof, attr })
            })
        })
    }

    fn write<'a>(
        &'a self,
        by: WriteBy<'a>,
        at: u64,
        data: Vec<Buf>,
        stable: Stable,
    ) -> BoxFuture<'a, VfsResult<Written>> {
        Box::pin(async move {
            regular(self.kind)?;
            let before = self.attr()?;
            if let Some(cred) = by.judged() {
                judge(self, &before, cred).await?.data(true)?;
            }
            let count: usize = data.iter().map(Buf::len).sum();
            self.with(|entry| {
                let end = at.checked_add(count as u64).ok_or(VfsError::TooBig)?;
                let mut to = usize::try_from(at).map_err(|_| VfsError::TooBig)?;
                entry.resize(entry.attr.size.max(end))?;
                for piece in &data {
                    entry.data()?[to..to + piece.len()].copy_from_slice(piece.as_slice());
                    to += piece.len();
                }
                let after = entry.attr;
                Ok(Written { count, stable, before: Some(before), after, verifier: 0 })
            })
        })
    }

    fn side_get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, VfsResult<Option<Vec<u8>>>> {
        ready(self.with(|entry| Ok(entry.side.get(name).cloned())))
    }

    fn side_set<'a>(
        &'a self,
        name: &'a str,
        value: Option<&'a [u8]>,
    ) -> BoxFuture<'a, VfsResult<()>> {
        ready(check_side_name(name).and_then(|()| {
            self.with(|entry| {
                match value {
                    Some(value) => entry.side.insert(name.to_owned(), value.to_vec()),
                    None => entry.side.remove(name),
                };
                entry.touch(false);
                Ok(())
            })
        }))
    }

    fn path(&self) -> BoxFuture<'_, VfsResult<Vec<u8>>> {
        let all = self.tree.lock();
        let (mut number, mut names) = (self.number, Vec::new());
        while number != ROOT {
            let parent = all.get(&number).and_then(|entry| all.get(&entry.parent));
            let Some((parent, Body::Dir(entries))) = parent.map(|p| (p, &p.body)) else {
                return ready(Err(VfsError::Stale));
            };
            let name = entries.iter().find(|(_, n)| **n == number).map(|(name, _)| name.clone());
            let Some(name) = name else { return ready(Err(VfsError::Stale)) };
            names.insert(0, name);
            number = parent.attr.fileid;
        }
        ready(Ok(names.join(&b'/')))
    }
}

#[allow(dead_code)] // Tests include this file as a module.
#[tokio::main(flavor = "current_thread")]
async fn main() -> VfsResult<()> {
    let (own, cred) = (Own::new(), Cred::root());
    let set = SetAttr { mode: Some(0o644), ..SetAttr::default() };
    let made = own.root().create(Acting::caller(&cred), b"hello", CreateHow::Guarded, set).await?;
    let data = vec![Buf::from(b"a file of one's own\n".to_vec())];
    let written = made.node.write(WriteBy::Caller(&cred), 0, data, Stable::File).await?;
    println!("{} bytes in {:?}", written.count, made.node.path().await);
    Ok(())
}
