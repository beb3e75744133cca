//! The record of one inode, which implements the trait with the operations.
//!
//! *Operation.* Each operation is in the file of its name ([`super::attrs`], [`super::names`], [`super::dir`], [`super::data`],
//! [`super::xattr`], [`super::acl`]), and takes a turn of the volume.
//!
//! *Memory.* A record holds its inode as long as it exists, and opens it for data or listing on demand; the sweep closes these
//! again.
//!
//! *Errors.* A directory without a name is [`VfsError::Stale`]; a file without one works while it is referred to.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ceph_sys::{Inode, Vino};
use iobuf::Buf;

use crate::acl::Acl;
use crate::acl::posix::{self, Lists};
use crate::authority::Acting;
use crate::backend::{BoxFuture, Made, Node, NodeRef, ReadInto, Snapshot, ready};
use crate::dos::Dos;
use crate::error::{VfsError, VfsResult};
use crate::shared_file::{FileKey, Generation, SharedFile};
use crate::types::*;

use super::Volume;
use super::held::{Beside, Home, Listing, Open};
use super::stat::{self, Stat};

/// A file of CephFS.
pub(super) struct CephNode {
    pub(super) volume: Arc<Volume>,
    pub(super) me: Weak<CephNode>,
    /// Common to the records of this inode in all shares. Dropped before the inode, which keeps the number from being reused.
    pub(super) shared: Arc<SharedFile>,
    pub(super) kind: Kind,
    pub(super) vino: Vino,
    handle: Handle,
    inode: Arc<Inode>,
    /// The file, opened for reads and writes of data.
    pub(super) open: Mutex<Option<Open>>,
    pub(super) listing: Mutex<Option<Listing>>,
    /// Last known size: a hint for the size of buffers.
    pub(super) size: AtomicU64,
    /// When it was last found below the share, on the volume's clock; 0: never.
    pub(super) inside_at: AtomicU64,
    /// True if the node's link count is 0.
    nameless: AtomicBool,
    /// The node's access control lists, and the change attribute for which they are valid.
    pub(super) beside: Mutex<Option<(u64, Arc<Beside>)>>,
    /// Where it was last found.
    pub(super) home: Mutex<Option<Home>>,
    /// When it was last used; the next field tells whether the list of records keeps it.
    pub(super) used: AtomicU64,
    pub(super) is_kept: AtomicBool,
}

impl CephNode {
    pub(super) fn new(volume: Arc<Volume>, inode: Arc<Inode>, stat: &Stat) -> VfsResult<Arc<Self>> {
        let vino = stat::vino_of(stat);
        let handle = volume.tag.make(vino)?;
        let kind = stat::kind_of(stat)?;
        // The MDS gives each inode number once.
        let key = FileKey::Ceph(volume.fsid, vino.ino, vino.snap);
        let shared = SharedFile::of(key, Generation::only(kind));
        Ok(Arc::new_cyclic(|me| Self {
            volume,
            me: me.clone(),
            shared,
            kind,
            vino,
            handle,
            inode,
            open: Mutex::default(),
            listing: Mutex::default(),
            size: AtomicU64::new(stat.stx_size),
            inside_at: AtomicU64::new(0),
            nameless: AtomicBool::new(false),
            beside: Mutex::default(),
            home: Mutex::default(),
            used: AtomicU64::new(0),
            is_kept: AtomicBool::new(false),
        }))
    }

    pub(super) fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    pub(super) fn strong(&self) -> VfsResult<Arc<Self>> {
        // A method is being called, so a reference exists.
        self.me.upgrade().ok_or(VfsError::Stale)
    }

    pub(super) fn is_root(&self) -> bool {
        self.vino == self.volume.root
    }

    pub(super) fn is_nameless(&self) -> bool {
        self.nameless.load(Ordering::Relaxed)
    }

    /// True if a holder other than the caller has it open.
    pub(super) fn is_held(&self) -> bool {
        // One reference belongs to the caller, one to the list.
        let known = 1 + usize::from(self.is_kept.load(Ordering::Relaxed));
        self.me.strong_count() > known
    }

    /// For a record found by a handle: true if the file still has a name, or another holder has it open.
    pub(super) fn has_a_name(&self) -> VfsResult<bool> {
        if self.is_held() {
            return Ok(true);
        }
        match self.attr() {
            Ok(attr) => Ok(attr.nlink > 0),
            Err(VfsError::Stale | VfsError::NotFound) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Reads the current attributes from the cluster.
    pub(super) fn attr(&self) -> VfsResult<Attr> {
        let stat = self.volume.done(self.inode.getattr(&self.volume.process));
        let attr = self.take(&stat.map_err(|e| match e {
            VfsError::NotFound => VfsError::Stale,
            e => e,
        })?)?;
        if attr.nlink == 0 && self.kind == Kind::Dir {
            return Err(VfsError::Stale);
        }
        Ok(attr)
    }

    /// Converts attributes of this inode, read just now, for clients.
    pub(super) fn take(&self, stat: &Stat) -> VfsResult<Attr> {
        let attr = self.volume.present(stat)?;
        self.size.store(attr.size, Ordering::Relaxed);
        if attr.nlink == 0 && !self.nameless.swap(true, Ordering::Relaxed) {
            self.volume.records.forget(self);
        }
        Ok(attr)
    }

    /// Takes the open files, which can be opened again.
    pub(super) fn take_open(&self) -> (Option<Open>, Option<Listing>) {
        let open = self.open.try_lock().ok().and_then(|mut open| open.take());
        let listing = self.listing.try_lock().ok().and_then(|mut l| l.take());
        (open, listing)
    }

    /// The other node of an operation on two nodes.
    pub(super) fn same_backend<'a>(&self, other: &'a dyn Node) -> VfsResult<&'a Self> {
        other
            .as_any()
            .downcast_ref::<Self>()
            .filter(|o| Arc::ptr_eq(&o.volume, &self.volume))
            .ok_or(VfsError::CrossDevice)
    }

    /// Checks for a regular file; the error depends on the actual type.
    pub(super) fn regular(&self) -> VfsResult<()> {
        match self.kind {
            Kind::File => Ok(()),
            Kind::Dir => Err(VfsError::IsDir),
            Kind::Symlink => Err(VfsError::Symlink),
            _ => Err(VfsError::WrongType),
        }
    }
}

impl Drop for CephNode {
    fn drop(&mut self) {
        self.volume.records.gone(self.vino);
    }
}

impl Node for CephNode {
    fn id(&self) -> NodeId {
        self.shared.id
    }

    fn handle(&self) -> Handle {
        self.handle.clone()
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn is_beside(&self, other: &dyn Node) -> bool {
        self.same_backend(other).is_ok()
    }

    fn is_cacheable(&self) -> bool {
        self.volume.exclusive
    }

    fn as_any(&self) -> &(dyn Any + Send + Sync) {
        self
    }

    fn getattr(&self) -> BoxFuture<'_, VfsResult<Attr>> {
        self.volume.at_once(move || self.attr())
    }

    fn setattr<'a>(
        &'a self,
        cred: &'a Cred,
        set: SetAttr,
        open_write: bool,
    ) -> BoxFuture<'a, VfsResult<(Attr, Attr)>> {
        self.volume.at_once(move || self.do_setattr(cred, &set, open_write))
    }

    fn access<'a>(
        &'a self,
        cred: &'a Cred,
        wanted: Access,
        attr: &'a Attr,
    ) -> BoxFuture<'a, VfsResult<Access>> {
        self.volume.at_once(move || self.do_access(cred, wanted, attr))
    }

    fn may<'a>(&'a self, cred: &'a Cred, intent: Intent<'a>) -> BoxFuture<'a, VfsResult<()>> {
        self.volume.at_once(move || self.do_may(cred, intent))
    }

    fn lookup<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(NodeRef, Attr)>> {
        let find = move || self.do_lookup(cred, name).map(|(n, a)| (n as NodeRef, a));
        self.volume.at_once(find)
    }

    fn readdir<'a>(
        &'a self,
        cred: &'a Cred,
        cookie: u64,
        entries_max: usize,
    ) -> BoxFuture<'a, VfsResult<(Vec<DirEntry>, bool)>> {
        self.volume.at_once(move || self.do_readdir(cred, cookie, entries_max))
    }

    fn readlink<'a>(&'a self, _cred: &'a Cred) -> BoxFuture<'a, VfsResult<Vec<u8>>> {
        self.volume.at_once(move || self.do_readlink())
    }

    fn symlink<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
        target: &'a [u8],
        set: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>> {
        let by = Acting::caller(cred);
        self.volume.at_once(move || self.do_symlink(&by, name, target, set))
    }

    fn mknod<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
        what: Special,
        set: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>> {
        let by = Acting::caller(cred);
        self.volume.at_once(move || self.do_mknod(&by, name, what, set))
    }

    fn create<'a>(
        &'a self,
        by: Acting<'a>,
        name: &'a [u8],
        how: CreateHow,
        set: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>> {
        self.volume.at_once(move || self.do_create(&by, name, how, set))
    }

    fn mkdir<'a>(
        &'a self,
        by: Acting<'a>,
        name: &'a [u8],
        set: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>> {
        self.volume.at_once(move || self.do_mkdir(&by, name, set))
    }

    fn remove<'a>(
        &'a self,
        by: Acting<'a>,
        name: &'a [u8],
        dir: bool,
    ) -> BoxFuture<'a, VfsResult<DirChange>> {
        self.volume.at_once(move || self.do_remove(&by, name, dir))
    }

    fn rename<'a>(
        &'a self,
        by: Acting<'a>,
        from: &'a [u8],
        to_dir: &'a dyn Node,
        to: &'a [u8],
        replace: bool,
    ) -> BoxFuture<'a, VfsResult<(DirChange, DirChange)>> {
        self.volume.at_once(move || self.do_rename(&by, from, to_dir, to, replace))
    }

    fn exchange<'a>(
        &'a self,
        _by: Acting<'a>,
        _here: &'a [u8],
        other: &'a dyn Node,
        _there: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(DirChange, DirChange)>> {
        ready(self.same_backend(other).and(Err(VfsError::NotSupported)))
    }

    fn link<'a>(
        &'a self,
        by: Acting<'a>,
        dir: &'a dyn Node,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(Attr, DirChange)>> {
        self.volume.at_once(move || self.do_link(&by, dir, name))
    }

    fn open<'a>(
        &'a self,
        cred: &'a Cred,
        read: bool,
        write: bool,
    ) -> BoxFuture<'a, VfsResult<Attr>> {
        self.volume.at_once(move || self.do_open(cred, read, write))
    }

    fn read<'a>(
        &'a self,
        cred: Option<&'a Cred>,
        at: u64,
        count: usize,
        into: &'a ReadInto,
    ) -> BoxFuture<'a, VfsResult<ReadData>> {
        // The read takes its turn itself: never while it waits for its client or for memory.
        Box::pin(self.do_read(cred, at, count, into))
    }

    fn write<'a>(
        &'a self,
        by: WriteBy<'a>,
        at: u64,
        data: Vec<Buf>,
        stable: Stable,
    ) -> BoxFuture<'a, VfsResult<Written>> {
        let bytes = data.iter().map(Buf::len).sum();
        let write = move |room| self.do_write(room, by, at, data, stable);
        Box::pin(self.volume.turns.on_threads(bytes, write))
    }

    fn append<'a>(
        &'a self,
        opener: Option<&'a Cred>,
        at: AppendAt,
        data: Vec<Buf>,
        stable: Stable,
    ) -> BoxFuture<'a, VfsResult<Appended>> {
        let bytes = data.iter().map(Buf::len).sum();
        let append = move |room| self.do_append(room, opener, at, data, stable);
        Box::pin(self.volume.turns.on_threads(bytes, append))
    }

    fn sync(&self) -> BoxFuture<'_, VfsResult<()>> {
        self.start_sync(&[])
    }

    fn sync_with(&self, others: &[&NodeRef]) -> Option<BoxFuture<'_, VfsResult<()>>> {
        Some(self.start_sync(others))
    }

    fn commit(&self, _at: u64, _count: u64) -> BoxFuture<'_, VfsResult<Attr>> {
        Box::pin(self.volume.turns.stepped(self.do_commit()))
    }

    fn seek(&self, at: u64, what: Seek) -> BoxFuture<'_, VfsResult<u64>> {
        self.volume.at_once(move || self.do_seek(at, what))
    }

    fn allocate<'a>(
        &'a self,
        _opener: Option<&'a Cred>,
        _at: u64,
        _count: u64,
    ) -> BoxFuture<'a, VfsResult<()>> {
        // The library would extend the file without reserving storage.
        ready(self.volume.writable().and(self.regular()).and(Err(VfsError::NotSupported)))
    }

    fn deallocate<'a>(
        &'a self,
        opener: Option<&'a Cred>,
        at: u64,
        count: u64,
    ) -> BoxFuture<'a, VfsResult<()>> {
        Box::pin(self.volume.turns.stepped(self.do_deallocate(opener, at, count)))
    }

    fn copy_range<'a>(
        &'a self,
        _opener: Option<&'a Cred>,
        from: &'a dyn Node,
        _from_at: u64,
        _at: u64,
        _count: u64,
    ) -> BoxFuture<'a, VfsResult<u64>> {
        ready(self.same_backend(from).and(Err(VfsError::NotSupported)))
    }

    fn clone_range<'a>(
        &'a self,
        _opener: Option<&'a Cred>,
        from: &'a dyn Node,
        _from_at: u64,
        _at: u64,
        _count: u64,
    ) -> BoxFuture<'a, VfsResult<()>> {
        ready(self.same_backend(from).and(Err(VfsError::NotSupported)))
    }

    fn xattr_get<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<Vec<u8>>> {
        self.volume.at_once(move || self.do_xattr_get(cred, name))
    }

    fn xattr_set<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
        value: &'a [u8],
        how: XattrHow,
    ) -> BoxFuture<'a, VfsResult<(Attr, Attr)>> {
        self.volume.at_once(move || self.do_xattr_set(cred, name, value, how))
    }

    fn xattr_remove<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(Attr, Attr)>> {
        self.volume.at_once(move || self.do_xattr_remove(cred, name))
    }

    fn xattr_list<'a>(&'a self, cred: &'a Cred) -> BoxFuture<'a, VfsResult<Vec<Vec<u8>>>> {
        self.volume.at_once(move || self.do_xattr_list(cred))
    }

    fn side_get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, VfsResult<Option<Vec<u8>>>> {
        self.volume.at_once(move || self.do_side_get(name))
    }

    fn side_set<'a>(
        &'a self,
        name: &'a str,
        value: Option<&'a [u8]>,
    ) -> BoxFuture<'a, VfsResult<()>> {
        self.volume.at_once(move || self.do_side_set(name, value))
    }

    fn acl<'a>(&'a self, attr: &'a Attr) -> BoxFuture<'a, VfsResult<Option<Arc<Acl>>>> {
        self.volume.at_once(move || self.do_acl(attr))
    }

    fn acl_shown<'a>(&'a self, attr: &'a Attr) -> BoxFuture<'a, VfsResult<Arc<Acl>>> {
        self.volume.at_once(move || self.do_acl_shown(attr))
    }

    fn acl_set<'a>(&'a self, acl: &'a Acl, mode: u32) -> BoxFuture<'a, VfsResult<()>> {
        self.volume.at_once(move || self.do_acl_set(acl, mode))
    }

    fn posix<'a>(&'a self, attr: &'a Attr) -> BoxFuture<'a, VfsResult<Lists>> {
        self.volume.at_once(move || self.do_posix(attr))
    }

    fn posix_set<'a>(&'a self, change: &'a posix::Change) -> BoxFuture<'a, VfsResult<()>> {
        self.volume.at_once(move || self.do_posix_set(change))
    }

    fn dos<'a>(&'a self, attr: &'a Attr) -> BoxFuture<'a, VfsResult<Dos>> {
        self.volume.at_once(move || self.beside(attr).map(|b| b.dos))
    }

    fn xattr_sizes<'a>(&'a self, attr: &'a Attr) -> BoxFuture<'a, VfsResult<XattrSizes>> {
        self.volume.at_once(move || self.beside(attr).map(|b| b.sizes))
    }

    fn snapshots<'a>(&'a self, cred: &'a Cred) -> BoxFuture<'a, VfsResult<Vec<Snapshot>>> {
        self.volume.at_once(move || self.do_snapshots(cred))
    }

    fn path(&self) -> BoxFuture<'_, VfsResult<Vec<u8>>> {
        self.volume.at_once(move || self.do_path())
    }
}
