//! The record of one inode, which implements the trait with the operations.
//!
//! *Operation.* Metadata operations run in place and their futures are ready at the first poll; each is in the file of its name
//! ([`super::attrs`], [`super::names`], [`super::dir`], [`super::data`], [`super::space`], [`super::xattr`]).
//!
//! *Memory.* A record holds one `O_PATH` descriptor as long as it exists, and opens a second one for data or listing on demand; the
//! clock closes those again.
//!
//! *Errors.* A directory without a name is [`VfsError::Stale`]; a file without one works while it is referred to.

use std::any::Any;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use iobuf::Buf;
use mutex::locked;

use super::external;
use crate::acl::Acl;
use crate::acl::posix::{self, Lists};
use crate::authority::Acting;
use crate::backend::{self, BoxFuture, FoundOrFolder, Made, Node, NodeRef, ReadInto, ready};
use crate::dos::Dos;
use crate::engine::threads::JobQueue;
use crate::error::{VfsError, VfsResult};
use crate::external_change;
use crate::fnv::fnv;
use crate::perm::sheds_set_id;
use crate::shared_file::SharedFile;
use crate::types::*;
use crate::wastebasket::{Outcome, Waste};

use super::Volume;
use super::descriptors::Fd;
use super::handle;
use super::held::{Beside, DataFd, KnownNames, LastSeen, Listing, Moment, NO_SLOT, StoredLists};
use super::past::{self, PastNode, Versions};
use super::stat::Stat;
use super::sync_queue::{self, SyncQueue};

/// How long a file that had a name is assumed to still have one, in milliseconds.
const ALIVE_MS: u64 = 500;

/// A file of a local directory.
pub(super) struct LocalNode {
    pub(super) volume: Arc<Volume>,
    pub(super) me: Weak<LocalNode>,
    /// Common to the records of this inode in all shares. Dropped before the descriptor, which keeps the number from being reused.
    pub(super) shared: Arc<SharedFile>,
    pub(super) kind: Kind,
    pub(super) dev: u64,
    pub(super) ino: u64,
    pub(super) handle: Handle,
    path: Fd,
    /// See [`super::renew`].
    pub(super) names: Mutex<KnownNames<LocalNode>>,
    pub(super) seen: Mutex<Option<LastSeen>>,
    /// When its record was created.
    pub(super) made: Moment,
    pub(super) data: Mutex<Option<DataFd>>,
    /// Data was written that no sync has covered.
    pub(super) unsynced: AtomicBool,
    /// Callers waiting for durability.
    pub(super) syncs: Arc<SyncQueue>,
    /// See [`Node::losses`].
    pub(super) losses: AtomicU64,
    /// Writes that wait for threads.
    pub(super) writes: Arc<JobQueue>,
    pub(super) listing: Mutex<Option<Listing>>,
    /// When it was last found below the share, on the volume's clock; 0: never.
    inside_at: AtomicU64,
    /// When it was last known to have a name; 0 after the last one is gone.
    alive_at: AtomicU64,
    /// Last known size: a hint for the size of buffers.
    pub(super) size: AtomicU64,
    /// The file was fully allocated, without set-id bits, at the last check.
    pub(super) plain: AtomicBool,
    /// Immutable or append-only at the last check.
    pub(super) fixed: AtomicBool,
    /// Whether it has a POSIX list, and the change time for which that is valid.
    pub(super) listed: Mutex<Option<(Time, bool)>>,
    /// The lists, and the change time for which they are valid.
    pub(super) lists: Mutex<Option<(Time, StoredLists)>>,
    /// Attributes set by Windows clients, and the change time for which they are valid.
    pub(super) beside: Mutex<Option<Beside>>,
    /// Sweeps since its last use; the next field is its slot in the clock.
    pub(super) age: AtomicU8,
    pub(super) slot: AtomicUsize,
}

fn bytes(data: &[Buf]) -> usize {
    data.iter().map(Buf::len).sum()
}

impl LocalNode {
    pub(super) fn new(
        volume: Arc<Volume>,
        fd: OwnedFd,
        stat: &Stat,
        (handle, shared): (Handle, Arc<SharedFile>),
    ) -> Arc<Self> {
        let (now, made) = (volume.now(), volume.cache.count());
        Arc::new_cyclic(|me| Self {
            volume,
            made,
            me: me.clone(),
            shared,
            kind: stat.attr.kind,
            dev: stat.dev,
            ino: stat.ino,
            handle,
            path: Fd::new(fd),
            names: Mutex::default(),
            seen: Mutex::default(),
            data: Mutex::new(None),
            unsynced: AtomicBool::new(false),
            syncs: Arc::default(),
            losses: AtomicU64::new(0),
            writes: Arc::default(),
            listing: Mutex::new(None),
            inside_at: AtomicU64::new(0),
            alive_at: AtomicU64::new(now),
            size: AtomicU64::new(stat.attr.size),
            plain: AtomicBool::new(false),
            fixed: AtomicBool::new(stat.attr.sealed),
            listed: Mutex::new(None),
            lists: Mutex::new(None),
            beside: Mutex::new(None),
            age: AtomicU8::new(0),
            slot: AtomicUsize::new(NO_SLOT),
        })
    }

    /// Returns true if both are records of one file.
    pub(super) fn is_file_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// The descriptor that holds the inode: usable for `statx`, as a directory to start from, and for reopening.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.path.as_fd()
    }

    pub(super) fn strong(&self) -> VfsResult<Arc<Self>> {
        // A method is being called, so a reference exists.
        self.me.upgrade().ok_or(VfsError::Stale)
    }

    pub(super) fn is_root(&self) -> bool {
        (self.dev, self.ino) == (self.volume.root_dev, self.volume.root_ino)
    }

    /// True if its last name is gone, so only holders need it.
    pub(super) fn is_nameless(&self) -> bool {
        self.alive_at.load(Ordering::Relaxed) == 0
    }

    /// The descriptor, for an operation on names in this directory.
    pub(super) fn dir_fd(&self) -> VfsResult<BorrowedFd<'_>> {
        if self.kind != Kind::Dir {
            return Err(if self.kind == Kind::Symlink {
                VfsError::Symlink
            } else {
                VfsError::NotDir
            });
        }
        self.inside()?;
        Ok(self.fd())
    }

    /// [`VfsError::Stale`] for a directory that is no longer below the share.
    fn inside(&self) -> VfsResult<()> {
        if self.is_root() && self.volume.covers.is_none() {
            return Ok(());
        }
        let (now, last) = (self.volume.now(), self.inside_at.load(Ordering::Relaxed));
        let recheck = u64::try_from(self.volume.recheck.as_millis()).unwrap_or(u64::MAX);
        if last != 0 && now.saturating_sub(last) < recheck {
            return Ok(());
        }
        if !self.volume.is_inside(self.fd())? {
            return Err(VfsError::Stale);
        }
        self.inside_at.store(now, Ordering::Relaxed);
        Ok(())
    }

    /// For a record found by a handle: true if the file still has a name, or another holder has it open.
    pub(super) fn has_a_name(&self) -> bool {
        // One reference belongs to the caller, one to the clock.
        let known = 1 + usize::from(self.slot.load(Ordering::Relaxed) != NO_SLOT);
        if self.me.strong_count() > known {
            return true;
        }
        let last = self.alive_at.load(Ordering::Relaxed);
        last != 0 && self.volume.now().saturating_sub(last) < ALIVE_MS
            || self.stat().is_ok_and(|s| self.take(&s).nlink > 0)
    }

    /// Reads the current attributes.
    pub(super) fn attr(&self) -> VfsResult<Attr> {
        let attr = self.take(&self.stat()?);
        if attr.nlink == 0 && self.kind == Kind::Dir {
            if self.is_root() {
                self.volume.has_vanished();
            }
            return Err(VfsError::Stale);
        }
        Ok(attr)
    }

    /// Converts the attributes of a `statx` of this inode, made just now, for clients.
    pub(super) fn take(&self, stat: &Stat) -> Attr {
        let mut attr = stat.attr;
        attr.fsid = if stat.dev == self.volume.root_dev {
            self.volume.fsid
        } else {
            self.volume.fsid ^ fnv(&stat.dev.to_be_bytes())
        };
        self.size.store(attr.size, Ordering::Relaxed);
        let plain = attr.used >= attr.size && !sheds_set_id(attr.mode);
        self.plain.store(plain, Ordering::Relaxed);
        self.fixed.store(attr.sealed, Ordering::Relaxed);
        attr.change = self.shared.change_number(attr.change);
        if self.shared.is_waste() {
            // For clients it is removed.
            attr.nlink = 0;
        }
        if self.volume.is_removed(&attr) {
            self.alive_at.store(0, Ordering::Relaxed);
            self.volume.cache.forget(self);
            return attr;
        }
        let counts = &self.volume.counts_links;
        if attr.nlink > 0 && self.kind != Kind::Dir && !counts.load(Ordering::Relaxed) {
            counts.store(true, Ordering::Relaxed);
        }
        if self.volume.inode_per_name {
            *locked(&self.seen) = Some(LastSeen::new(&attr, counts.load(Ordering::Relaxed)));
        }
        attr.nlink = attr.nlink.max(1);
        self.alive_at.store(self.volume.now(), Ordering::Relaxed);
        attr
    }

    /// Counts a change made here. Called after the change and before the attributes are read.
    pub(super) fn changed(&self) {
        self.shared.changed();
    }

    /// Takes the descriptors that can be opened again.
    pub(super) fn take_descriptors(&self) -> (Option<DataFd>, Option<Listing>) {
        let idle = |d: &mut DataFd| d.is_unused() && !self.unsynced.load(Ordering::Acquire);
        let data = self.data.try_lock().ok().and_then(|mut d| d.take_if(idle));
        let listing = self.listing.try_lock().ok().and_then(|mut l| l.take());
        (data, listing)
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

impl Drop for LocalNode {
    fn drop(&mut self) {
        self.volume.cache.gone(self);
        self.volume.close_apart(&mut self.data);
        if let Some(time) = handle::young_for(&self.handle, Time::now) {
            self.volume.cache.keep(self.fd(), time);
        }
    }
}

impl Node for LocalNode {
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
        let other = other.as_any();
        let other = match (other.downcast_ref::<PastNode>(), other.downcast_ref::<Versions>()) {
            (Some(past), _) => Some(&**past.live()),
            (_, Some(versions)) => Some(&**versions.live()),
            _ => other.downcast_ref::<Self>(),
        };
        other.is_some_and(|other| Arc::ptr_eq(&other.volume.border, &self.volume.border))
    }

    fn mounted_on(&self) -> Option<u64> {
        self.volume.covers.filter(|_| self.is_root())
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
        match self.apart_if_it_frees_much(&set) {
            None => self.volume.patient(move || self.do_setattr(cred, &set, open_write)),
            Some(me) => {
                let cred = cred.clone();
                let cut = move || me.do_setattr(&cred, &set, open_write);
                self.volume.steps(self.volume.patient_apart(cut))
            }
        }
    }

    fn access<'a>(
        &'a self,
        cred: &'a Cred,
        wanted: Access,
        attr: &'a Attr,
    ) -> BoxFuture<'a, VfsResult<Access>> {
        self.volume.at_once(move || self.do_access(cred, wanted, attr))
    }

    fn may_date<'a>(&'a self, cred: &'a Cred, attr: &'a Attr) -> BoxFuture<'a, VfsResult<bool>> {
        self.volume.patient(move || self.do_may_date(cred, attr))
    }

    fn may<'a>(&'a self, cred: &'a Cred, intent: Intent<'a>) -> BoxFuture<'a, VfsResult<()>> {
        self.volume.patient(move || self.do_may(cred, intent))
    }

    fn lookup<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(NodeRef, Attr)>> {
        if name == past::NAME && self.volume.border.snapshots.is_on() {
            return self.versions(cred);
        }
        let find = move || self.do_lookup(cred, name).map(|(n, a)| (n as NodeRef, a));
        self.volume.patient(find)
    }

    fn lookup_or_folder<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<FoundOrFolder>> {
        if name == past::NAME || name == b".." {
            return Box::pin(backend::lookup_or_folder(self, cred, name));
        }
        self.volume.patient(move || self.do_lookup_or_folder(cred, name))
    }

    fn readdir<'a>(
        &'a self,
        cred: &'a Cred,
        cookie: u64,
        entries_max: usize,
    ) -> BoxFuture<'a, VfsResult<(Vec<DirEntry>, bool)>> {
        match self.apart_if_large() {
            None => self.volume.patient(move || self.do_readdir(cred, cookie, entries_max)),
            Some(me) => {
                let cred = cred.clone();
                let list = move || me.do_readdir(&cred, cookie, entries_max);
                self.volume.steps(self.volume.patient_apart(list))
            }
        }
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
        self.volume.patient(move || self.do_symlink(&by, name, target, set))
    }

    fn mknod<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
        what: Special,
        set: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>> {
        let by = Acting::caller(cred);
        self.volume.patient(move || self.do_mknod(&by, name, what, set))
    }

    fn create<'a>(
        &'a self,
        by: Acting<'a>,
        name: &'a [u8],
        how: CreateHow,
        set: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>> {
        let seen = self.seen_once(by.folder());
        self.volume.patient(move || self.do_create(&by, (name, seen()?), how, set))
    }

    fn mkdir<'a>(
        &'a self,
        by: Acting<'a>,
        name: &'a [u8],
        set: SetAttr,
    ) -> BoxFuture<'a, VfsResult<Made>> {
        let seen = self.seen_once(by.folder());
        self.volume.patient(move || self.do_mkdir(&by, (name, seen()?), set))
    }

    fn remove<'a>(
        &'a self,
        by: Acting<'a>,
        name: &'a [u8],
        dir: bool,
    ) -> BoxFuture<'a, VfsResult<DirChange>> {
        match dir {
            true => self.volume.steps(self.do_rmdir(by, name)),
            false => self.volume.steps(self.do_unlink(by, name)),
        }
    }

    fn rename<'a>(
        &'a self,
        by: Acting<'a>,
        from: &'a [u8],
        to_dir: &'a dyn Node,
        to: &'a [u8],
        replace: bool,
    ) -> BoxFuture<'a, VfsResult<(DirChange, DirChange)>> {
        self.volume.steps(self.do_rename_in_turn(by, from, (to_dir, to), replace))
    }

    fn unlink_kept<'a>(
        &'a self,
        by: Acting<'a>,
        name: &'a [u8],
        waste: &'a Waste,
    ) -> BoxFuture<'a, VfsResult<Outcome<DirChange>>> {
        self.volume.steps(self.do_unlink_kept(by, name, waste))
    }

    fn rename_kept<'a>(
        &'a self,
        by: Acting<'a>,
        from: &'a [u8],
        to_dir: &'a dyn Node,
        to: &'a [u8],
        waste: &'a Waste,
    ) -> BoxFuture<'a, VfsResult<Outcome<(DirChange, DirChange)>>> {
        self.volume.steps(self.do_rename_kept(by, from, (to_dir, to), waste))
    }

    fn exchange<'a>(
        &'a self,
        by: Acting<'a>,
        here: &'a [u8],
        other: &'a dyn Node,
        there: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(DirChange, DirChange)>> {
        self.volume.patient(move || self.do_exchange(&by, here, other, there))
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
        match self.read_at_hand(cred, at, count, into) {
            Some(read) => ready(read),
            // The read takes its turns itself: never while it waits for its client or for memory.
            None => Box::pin(self.do_read(cred, at, count, into)),
        }
    }

    fn write<'a>(
        &'a self,
        by: WriteBy<'a>,
        at: u64,
        data: Vec<Buf>,
        stable: Stable,
    ) -> BoxFuture<'a, VfsResult<Written>> {
        self.volume
            .steps_with(bytes(&data), move |room| self.do_write(by, at, (data, room), stable))
    }

    fn append<'a>(
        &'a self,
        opener: Option<&'a Cred>,
        at: AppendAt,
        data: Vec<Buf>,
        stable: Stable,
    ) -> BoxFuture<'a, VfsResult<Appended>> {
        self.volume
            .steps_with(bytes(&data), move |room| self.do_append(opener, at, (data, room), stable))
    }

    fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    fn verifier(&self) -> u64 {
        self.volume.ledger.verifier()
    }

    fn sync(&self) -> BoxFuture<'_, VfsResult<()>> {
        if self.volume.in_memory {
            return ready(Ok(()));
        }
        self.volume.steps(sync_queue::told(self.ask_sync(true)))
    }

    fn commit(&self, at: u64, count: u64) -> BoxFuture<'_, VfsResult<Attr>> {
        self.volume.steps(self.do_commit(at, count))
    }

    fn seek(&self, at: u64, what: Seek) -> BoxFuture<'_, VfsResult<u64>> {
        self.volume.patient(move || self.do_seek(at, what))
    }

    fn allocate<'a>(
        &'a self,
        opener: Option<&'a Cred>,
        at: u64,
        count: u64,
    ) -> BoxFuture<'a, VfsResult<()>> {
        self.volume.steps(self.do_allocate(opener, at, count))
    }

    fn deallocate<'a>(
        &'a self,
        opener: Option<&'a Cred>,
        at: u64,
        count: u64,
    ) -> BoxFuture<'a, VfsResult<()>> {
        self.volume.steps(self.do_deallocate(opener, at, count))
    }

    fn copy_range<'a>(
        &'a self,
        opener: Option<&'a Cred>,
        from: &'a dyn Node,
        from_at: u64,
        at: u64,
        count: u64,
    ) -> BoxFuture<'a, VfsResult<u64>> {
        self.volume.steps(self.do_copy_range(opener, from, from_at, at, count))
    }

    fn clone_range<'a>(
        &'a self,
        opener: Option<&'a Cred>,
        from: &'a dyn Node,
        from_at: u64,
        at: u64,
        count: u64,
    ) -> BoxFuture<'a, VfsResult<()>> {
        self.volume.steps(self.do_clone_range(opener, from, from_at, at, count))
    }

    fn xattr_get<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<Vec<u8>>> {
        self.volume.patient(move || self.do_xattr_get(cred, name))
    }

    fn xattr_set<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
        value: &'a [u8],
        how: XattrHow,
    ) -> BoxFuture<'a, VfsResult<(Attr, Attr)>> {
        self.volume.patient(move || self.do_xattr_set(cred, name, value, how))
    }

    fn xattr_remove<'a>(
        &'a self,
        cred: &'a Cred,
        name: &'a [u8],
    ) -> BoxFuture<'a, VfsResult<(Attr, Attr)>> {
        self.volume.patient(move || self.do_xattr_remove(cred, name))
    }

    fn xattr_list<'a>(&'a self, cred: &'a Cred) -> BoxFuture<'a, VfsResult<Vec<Vec<u8>>>> {
        self.volume.patient(move || self.do_xattr_list(cred))
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

    fn acl_access<'a>(
        &'a self,
        cred: &'a Cred,
        wanted: Access,
        attr: &'a Attr,
    ) -> BoxFuture<'a, VfsResult<(Option<Arc<Acl>>, Access)>> {
        self.volume.at_once(move || self.do_acl_access(cred, wanted, attr))
    }

    fn passed_on<'a>(
        &'a self,
        attr: &'a Attr,
    ) -> BoxFuture<'a, VfsResult<(Option<Arc<Acl>>, bool)>> {
        self.volume.at_once(move || self.do_passed_on(attr))
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
        self.volume.at_once(move || self.beside(attr).map(|b| b.xattrs))
    }

    fn snapshot_at<'a>(
        &'a self,
        cred: &'a Cred,
        sec: i64,
    ) -> BoxFuture<'a, VfsResult<Option<NodeRef>>> {
        self.in_snapshot(cred, sec)
    }

    fn snapshot_times<'a>(
        &'a self,
        cred: &'a Cred,
        name: Option<&'a [u8]>,
    ) -> BoxFuture<'a, VfsResult<BTreeSet<i64>>> {
        self.in_snapshots(cred, name)
    }

    fn path(&self) -> BoxFuture<'_, VfsResult<Vec<u8>>> {
        self.volume.at_once(move || self.do_path())
    }

    fn watch_external(
        &self,
        listener: external_change::Listener,
    ) -> Option<external_change::Watched> {
        let watch = || external::watch(self.fd(), self.kind == Kind::Dir, &listener);
        external::join(self.fd(), &listener).or_else(|| {
            self.volume.cache.with_room(watch).unwrap_or_else(|why| {
                external::refused(&why.to_string());
                None
            })
        })
    }
}
