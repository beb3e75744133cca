//! A node in memory, and the connection from the trait to the operations.
//!
//! *Memory.* A directory holds its children; a child has a weak reference to its directory. A node lives while a name or a
//! reference to it exists.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use iobuf::Buf;
use mutex::locked;

use crate::acl::{Acl, Kept};
use crate::authority::Acting;
use crate::backend::{BoxFuture, Made, Node, NodeRef, ReadInto, ready};
use crate::error::{VfsError, VfsResult};
use crate::types::*;

use super::pages::{Charge, Pages};
use super::{NODE_BYTES, Volume};

/// A node of a volume in memory.
pub(super) struct MemNode {
    pub(super) volume: Arc<Volume>,
    pub(super) me: Weak<MemNode>,
    pub(super) id: NodeId,
    pub(super) fileid: u64,
    pub(super) kind: Kind,
    pub(super) inner: Mutex<Inner>,
    /// The bytes that the node occupies of the volume's limit.
    _charge: Charge,
}

/// The part of a node that can change.
pub(super) struct Inner {
    pub(super) mode: u32,
    pub(super) nlink: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) rdev: (u32, u32),
    pub(super) atime: Time,
    pub(super) mtime: Time,
    pub(super) ctime: Time,
    pub(super) btime: Time,
    pub(super) change: u64,
    pub(super) xattrs: BTreeMap<Vec<u8>, (Vec<u8>, Charge)>,
    /// The access control list in its stored form.
    pub(super) acl: Option<Arc<Kept>>,
    /// Side data by name.
    pub(super) side: BTreeMap<String, (Vec<u8>, Charge)>,
    /// A directory that the node was last entered in, and the name there.
    pub(super) home: (Weak<MemNode>, Box<[u8]>),
    /// Verifier of the exclusive create that made the file.
    pub(super) verifier: Option<[u8; 8]>,
    pub(super) body: Body,
}

/// The contents of a node, apart from its attributes.
pub(super) enum Body {
    File(Pages),
    Dir(Dir),
    Link(Box<[u8]>),
    Special,
}

/// The names of a directory, in the order of creation.
pub(super) struct Dir {
    pub(super) parent: Weak<MemNode>,
    pub(super) cookies: HashMap<Box<[u8]>, u64>,
    pub(super) entries: BTreeMap<u64, Entry>,
    pub(super) next: u64,
}

/// One name of a directory, with its node.
pub(super) struct Entry {
    pub(super) name: Box<[u8]>,
    pub(super) node: Arc<MemNode>,
    _charge: Charge,
}

impl Entry {
    pub(super) fn new(volume: &Volume, name: &[u8], node: Arc<MemNode>) -> VfsResult<Self> {
        // The name is stored twice, with some overhead.
        let charge = volume.usage.charge(2 * name.len() as u64 + 128)?;
        Ok(Self { name: name.into(), node, _charge: charge })
    }
}

impl Dir {
    pub(super) fn new(parent: Weak<MemNode>) -> Self {
        Self {
            parent,
            cookies: HashMap::new(),
            entries: BTreeMap::new(),
            next: DirEntry::COOKIE_MIN,
        }
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&Arc<MemNode>> {
        self.cookies.get(name).and_then(|c| self.entries.get(c)).map(|e| &e.node)
    }

    /// Enters a name, or gives it to another node. An existing name keeps its cookie, so that no listing shows it twice.
    pub(super) fn put(&mut self, entry: Entry) -> Option<Entry> {
        if let Some(cookie) = self.cookies.get(&entry.name) {
            return self.entries.insert(*cookie, entry);
        }
        self.cookies.insert(entry.name.clone(), self.next);
        self.entries.insert(self.next, entry);
        self.next += 1;
        None
    }

    pub(super) fn take(&mut self, name: &[u8]) -> Option<Entry> {
        self.cookies.remove(name).and_then(|c| self.entries.remove(&c))
    }
}

impl Inner {
    pub(super) fn new(mode: u32, cred: &Cred, body: Body) -> Self {
        let now = Time::now();
        Self {
            mode: mode & 0o7777,
            nlink: if matches!(body, Body::Dir(_)) { 2 } else { 1 },
            uid: cred.uid,
            gid: cred.gid,
            rdev: (0, 0),
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            change: 1,
            xattrs: BTreeMap::new(),
            acl: None,
            side: BTreeMap::new(),
            home: (Weak::new(), Box::default()),
            verifier: None,
            body,
        }
    }

    /// Updates the times after a change of attributes.
    pub(super) fn touched(&mut self) {
        self.ctime = Time::now();
        self.change += 1;
    }

    /// Updates the times after a change of data or names.
    pub(super) fn modified(&mut self) {
        self.touched();
        self.mtime = self.ctime;
    }

    pub(super) fn file(&mut self) -> VfsResult<&mut Pages> {
        match &mut self.body {
            Body::File(pages) => Ok(pages),
            Body::Dir(_) => Err(VfsError::IsDir),
            Body::Link(_) => Err(VfsError::Symlink),
            Body::Special => Err(VfsError::WrongType),
        }
    }

    /// Returns the names of a directory that still exists.
    pub(super) fn dir(&mut self) -> VfsResult<&mut Dir> {
        match &mut self.body {
            Body::Dir(_) if self.nlink == 0 => Err(VfsError::Stale),
            Body::Dir(dir) => Ok(dir),
            Body::Link(_) => Err(VfsError::Symlink),
            _ => Err(VfsError::NotDir),
        }
    }
}

impl MemNode {
    pub(super) fn new(volume: &Arc<Volume>, kind: Kind, inner: Inner) -> VfsResult<Arc<Self>> {
        let charge = volume.usage.charge(NODE_BYTES)?;
        let fileid = volume.next.fetch_add(1, Ordering::Relaxed);
        let node = Arc::new_cyclic(|me| Self {
            volume: volume.clone(),
            me: me.clone(),
            id: next_node_id(),
            fileid,
            kind,
            inner: Mutex::new(inner),
            _charge: charge,
        });
        volume.nodes.insert(fileid, Arc::downgrade(&node));
        Ok(node)
    }

    pub(super) fn root(volume: &Arc<Volume>) -> VfsResult<Arc<Self>> {
        let inner = Inner::new(0o777, &Cred::root(), Body::Dir(Dir::new(Weak::new())));
        Self::new(volume, Kind::Dir, inner)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        // The code under this lock does not panic; if it did, every step leaves the node consistent.
        locked(&self.inner)
    }

    pub(super) fn names_lock(&self) -> MutexGuard<'_, ()> {
        locked(&self.volume.names)
    }

    /// Returns the attributes of this node; the caller holds its lock.
    pub(super) fn attr_of(&self, inner: &Inner) -> Attr {
        let (size, used) = match &inner.body {
            Body::File(pages) => (pages.size, pages.used),
            Body::Dir(dir) => (dir.entries.len() as u64 * 32, NODE_BYTES),
            Body::Link(target) => (target.len() as u64, 0),
            Body::Special => (0, 0),
        };
        Attr {
            kind: self.kind,
            mode: inner.mode,
            nlink: inner.nlink,
            uid: inner.uid,
            gid: inner.gid,
            size,
            used,
            rdev: inner.rdev,
            fsid: u64::from_be_bytes(self.volume.boot),
            fileid: self.fileid,
            atime: inner.atime,
            mtime: inner.mtime,
            ctime: inner.ctime,
            btime: Some(inner.btime),
            change: inner.change,
            sealed: false,
        }
    }

    pub(super) fn attr(&self) -> VfsResult<Attr> {
        let inner = self.lock();
        if self.kind == Kind::Dir && inner.nlink == 0 {
            return Err(VfsError::Stale);
        }
        Ok(self.attr_of(&inner))
    }

    /// Returns the other node of an operation on two nodes, if it belongs to the same volume.
    pub(super) fn same_backend<'a>(&self, other: &'a dyn Node) -> VfsResult<&'a Self> {
        other
            .as_any()
            .downcast_ref::<Self>()
            .filter(|o| Arc::ptr_eq(&o.volume, &self.volume))
            .ok_or(VfsError::CrossDevice)
    }
}

impl Drop for MemNode {
    fn drop(&mut self) {
        self.volume.nodes.remove(&self.fileid);
        // A deep tree is freed by a loop, not by recursion. No other reference to the lock exists here.
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut left = children(inner);
        while let Some(node) = left.pop() {
            if let Some(mut node) = Arc::into_inner(node) {
                let inner = node.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
                left.extend(children(inner));
            }
        }
    }
}

fn children(inner: &mut Inner) -> Vec<Arc<MemNode>> {
    match &mut inner.body {
        Body::Dir(dir) => std::mem::take(&mut dir.entries).into_values().map(|e| e.node).collect(),
        _ => Vec::new(),
    }
}

impl Node for MemNode {
    fn id(&self) -> NodeId {
        self.id
    }

    fn handle(&self) -> Handle {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.volume.boot);
        bytes[8..].copy_from_slice(&self.fileid.to_be_bytes());
        // Invariant: 16 bytes are below the limit of a handle.
        #[allow(clippy::expect_used)]
        Handle::new(&bytes).expect("a short handle")
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn is_beside(&self, other: &dyn Node) -> bool {
        self.same_backend(other).is_ok()
    }

    fn as_any(&self) -> &(dyn Any + Send + Sync) {
        self
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
        ready(self.do_setattr(cred, &set, open_write))
    }

    fn access<'a>(
        &'a self,
        cred: &'a Cred,
        wanted: Access,
        _attr: &'a Attr,
    ) -> BoxFuture<'a, VfsResult<Access>> {
        ready(Ok(self.do_access(cred, wanted)))
    }

    fn may<'a>(&'a self, cred: &'a Cred, intent: Intent<'a>) -> BoxFuture<'a, VfsResult<()>> {
        ready(self.do_may(cred, intent))
    }

    fn lookup<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(NodeRef, Attr)>> {
        ready(self.do_lookup(cred, name).map(|(n, a)| (n as NodeRef, a)))
    }

    fn readdir<'a>(
        &'a self,
        cred: &'a Cred,
        cookie: u64,
        entries_max: usize,
    ) -> BoxFuture<'a, VfsResult<(Vec<DirEntry>, bool)>> {
        ready(self.do_readdir(cred, cookie, entries_max))
    }

    fn readlink<'a>(&'a self, _cred: &'a Cred) -> BoxFuture<'a, VfsResult<Vec<u8>>> {
        ready(match &self.lock().body {
            Body::Link(target) => Ok(target.to_vec()),
            _ => Err(VfsError::Invalid),
        })
    }

    fn symlink<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
        target: &'a [u8],
        set: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>> {
        ready(self.do_symlink(&Acting::caller(cred), name, target, set))
    }

    fn mknod<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
        what: Special,
        set: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>> {
        ready(self.do_mknod(&Acting::caller(cred), name, what, set))
    }

    fn create<'a>(
        &'a self,
        by: Acting<'a>,
        name: &'a [u8],
        how: CreateHow,
        set: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>> {
        ready(self.do_create(&by, name, how, set))
    }

    fn mkdir<'a>(
        &'a self,
        by: Acting<'a>,
        name: &'a [u8],
        set: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>> {
        ready(self.do_mkdir(&by, name, set))
    }

    fn remove<'a>(
        &'a self,
        by: Acting<'a>,
        name: &'a [u8],
        dir: bool,
    ) -> BoxFuture<'a, VfsResult<DirChange>> {
        ready(self.do_remove(&by, name, dir))
    }

    fn rename<'a>(
        &'a self,
        by: Acting<'a>,
        from: &'a [u8],
        to_dir: &'a dyn Node,
        to: &'a [u8],
        replace: bool,
    ) -> BoxFuture<'a, VfsResult<(DirChange, DirChange)>> {
        ready(self.do_rename(&by, from, to_dir, to, replace))
    }

    fn exchange<'a>(
        &'a self,
        by: Acting<'a>,
        here: &'a [u8],
        other: &'a dyn Node,
        there: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(DirChange, DirChange)>> {
        ready(self.do_exchange(&by, here, other, there))
    }

    fn link<'a>(
        &'a self,
        by: Acting<'a>,
        dir: &'a dyn Node,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(Attr, DirChange)>> {
        ready(self.do_link(&by, dir, name))
    }

    fn open<'a>(
        &'a self,
        cred: &'a Cred,
        read: bool,
        write: bool,
    ) -> BoxFuture<'a, VfsResult<Attr>> {
        ready(self.do_open(cred, read, write))
    }

    fn read<'a>(
        &'a self,
        cred: Option<&'a Cred>,
        at: u64,
        count: usize,
        _into: &'a ReadInto,
    ) -> BoxFuture<'a, VfsResult<ReadData>> {
        ready(self.do_read(cred, at, count))
    }

    fn write<'a>(
        &'a self,
        by: WriteBy<'a>,
        at: u64,
        data: Vec<Buf>,
        stable: Stable,
    ) -> BoxFuture<'a, VfsResult<Written>> {
        ready(self.do_write(by, at, &data, stable))
    }

    fn append<'a>(
        &'a self,
        opener: Option<&'a Cred>,
        at: AppendAt,
        data: Vec<Buf>,
        stable: Stable,
    ) -> BoxFuture<'a, VfsResult<Appended>> {
        ready(self.do_append(opener, at, &data, stable))
    }

    fn commit(&self, _at: u64, _count: u64) -> BoxFuture<'_, VfsResult<Attr>> {
        let regular = self.lock().file().map(|_| ());
        ready(regular.and_then(|()| self.attr()))
    }

    fn seek(&self, at: u64, what: Seek) -> BoxFuture<'_, VfsResult<u64>> {
        ready(self.do_seek(at, what))
    }

    fn allocate<'a>(
        &'a self,
        opener: Option<&'a Cred>,
        at: u64,
        count: u64,
    ) -> BoxFuture<'a, VfsResult<()>> {
        ready(self.change_storage(opener, at, count, Pages::allocate))
    }

    fn deallocate<'a>(
        &'a self,
        opener: Option<&'a Cred>,
        at: u64,
        count: u64,
    ) -> BoxFuture<'a, VfsResult<()>> {
        ready(self.change_storage(opener, at, count, Pages::punch))
    }

    fn copy_range<'a>(
        &'a self,
        opener: Option<&'a Cred>,
        from: &'a dyn Node,
        from_at: u64,
        at: u64,
        count: u64,
    ) -> BoxFuture<'a, VfsResult<u64>> {
        ready(self.do_copy_range(opener, from, from_at, at, count))
    }

    fn clone_range<'a>(
        &'a self,
        opener: Option<&'a Cred>,
        from: &'a dyn Node,
        from_at: u64,
        at: u64,
        count: u64,
    ) -> BoxFuture<'a, VfsResult<()>> {
        ready(self.do_clone_range(opener, from, from_at, at, count))
    }

    fn xattr_get<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<Vec<u8>>> {
        ready(self.do_xattr_get(cred, name))
    }

    fn xattr_set<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
        value: &'a [u8],
        how: XattrHow,
    ) -> BoxFuture<'a, VfsResult<(Attr, Attr)>> {
        ready(self.do_xattr_set(cred, name, value, how))
    }

    fn xattr_remove<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(Attr, Attr)>> {
        ready(self.do_xattr_remove(cred, name))
    }

    fn xattr_sizes<'a>(&'a self, _: &'a Attr) -> BoxFuture<'a, VfsResult<XattrSizes>> {
        ready(Ok(self.do_xattr_sizes()))
    }

    fn xattr_list<'a>(&'a self, cred: &'a Cred) -> BoxFuture<'a, VfsResult<Vec<Vec<u8>>>> {
        ready(self.do_xattr_list(cred))
    }

    fn side_get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, VfsResult<Option<Vec<u8>>>> {
        ready(self.do_side_get(name))
    }

    fn acl<'a>(&'a self, _attr: &'a Attr) -> BoxFuture<'a, VfsResult<Option<Arc<Acl>>>> {
        let inner = self.lock();
        ready(Ok(inner.acl(self.kind).map(|acl| Arc::new(acl.into_owned()))))
    }

    fn acl_shown<'a>(&'a self, attr: &'a Attr) -> BoxFuture<'a, VfsResult<Arc<Acl>>> {
        let inner = self.lock();
        let acl = inner.acl(self.kind).map(std::borrow::Cow::into_owned);
        let is_dir = self.kind == Kind::Dir;
        ready(Ok(Arc::new(acl.unwrap_or_else(|| Acl::of_mode(attr.mode, is_dir)))))
    }

    fn acl_set<'a>(&'a self, acl: &'a Acl, mode: u32) -> BoxFuture<'a, VfsResult<()>> {
        ready(self.do_acl_set(acl, mode))
    }

    fn side_set<'a>(
        &'a self,
        name: &'a str,
        value: Option<&'a [u8]>,
    ) -> BoxFuture<'a, VfsResult<()>> {
        ready(self.do_side_set(name, value))
    }

    fn path(&self) -> BoxFuture<'_, VfsResult<Vec<u8>>> {
        ready(self.do_path())
    }
}
