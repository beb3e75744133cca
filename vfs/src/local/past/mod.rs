//! Snapshots of a share: folders of the host with its files of a time past.
//!
//! *Operation.* [`Snapshots`] lists the folders that match the pattern and opens one when a client first enters it: it is a
//! read-only [`Volume`] with an own boundary, `fsid` and tag. A file in it is a [`node::PastNode`]; [`folder::Versions`] is the
//! folder [`NAME`] that clients find by its name in each folder, and that no listing has.
//!
//! *Permission.* A caller needs the right in the snapshot, and for the same name in the share today as long as there is one
//! ([`way::Way::today`]).
//!
//! *Trust.* Who can add a folder there can show clients any files as those of a time past. So a folder of snapshots that others
//! than root and the gateway's user own or may write is not used. No link and no mount leads out of a snapshot.
//!
//! *Handles.* Those of the volume with a mark ([`PAST`], [`FOLDER`]); in place of the tag is that of the share combined with the
//! time, so that a snapshot is found again after a restart. They are [`VfsError::Stale`] once the folder is gone.
//!
//! *Memory.* [`TOLD_MAX`] times and open snapshots at most, with four descriptors for each that is open. Of those that no client
//! uses, [`IDLE_MAX`] stay open, for about a minute, so that the host can unmount or destroy them.

mod folder;
mod list;
mod node;
mod way;

use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};
use std::time::{Duration, Instant};

use mutex::{locked, reading, writing};
use policy::SnapshotPattern;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::backend::{BoxFuture, NodeRef, SnapshotsTold, ready};
use crate::error::{VfsError, VfsResult};
use crate::fnv::fnv;
use crate::perm;
use crate::types::{Attr, Cred, Handle, Kind};

use super::cross::Border;
use super::descriptors::HeldDescriptors;
use super::node::LocalNode;
use super::stat;
use super::{LocalConfig, Volume, handle};

pub(super) use folder::Versions;
use list::{Base, Listed};
pub(super) use node::PastNode;

/// The name under which each folder has its snapshots.
pub(super) const NAME: &[u8] = b".snapshot";

/// Snapshots told of one share, the latest ones.
pub(super) const TOLD_MAX: usize = 1024;
/// Snapshots of one share that stay open while no client uses them.
const IDLE_MAX: usize = 128;
/// How long a list of snapshots, and the folder of one, count as unchanged.
const FRESH: Duration = Duration::from_secs(1);
/// How long an unused snapshot stays open.
const IDLE: Duration = Duration::from_secs(60);

/// Set in the first byte of the handle of a file in a snapshot.
const PAST: u8 = 0x80;
/// Set in the first byte of the handle of a folder of snapshots.
const FOLDER: u8 = 0x40;

/// The snapshots of a share.
#[derive(Default)]
pub(super) struct Snapshots {
    is_on: AtomicBool,
    base: RwLock<Option<Arc<Base>>>,
    listed: Mutex<Option<(Instant, Arc<Listed>)>>,
    /// Held while the folder is read.
    reads: Mutex<()>,
    open: Mutex<HashMap<i64, Held>>,
    /// The root of the share.
    root: OnceLock<Weak<LocalNode>>,
    distrusted: Mutex<Option<&'static str>>,
}

struct Held {
    past: Arc<Past>,
    /// When its folder was last found to be the same.
    checked: Instant,
    used: Instant,
}

/// A snapshot that is open.
pub(super) struct Past {
    sec: i64,
    volume: Arc<Volume>,
    root: Arc<LocalNode>,
    /// The folder of the share.
    live: Arc<LocalNode>,
}

impl Drop for Past {
    fn drop(&mut self) {
        // Records refer to the volume, and its clock refers to records.
        self.volume.cache.clear();
    }
}

/// A handle that leads to snapshots.
enum Marked {
    /// A file in the snapshot of this time.
    Past(i64, Handle),
    /// The snapshots of the folder with this handle.
    Folder(Handle),
}

fn unmarked(handle: &Handle, mark: u8) -> VfsResult<Handle> {
    let mut bytes = handle.as_bytes().to_vec();
    if let Some(first) = bytes.first_mut() {
        *first &= !mark;
    }
    Handle::new(&bytes).ok_or(VfsError::BadHandle)
}

fn marked(handle: &Handle, mark: u8) -> Handle {
    let mut bytes = handle.as_bytes().to_vec();
    if let Some(first) = bytes.first_mut() {
        *first |= mark;
    }
    // The length does not change.
    Handle::new(&bytes).unwrap_or_else(|| handle.clone())
}

/// True if the handle leads to snapshots.
pub(super) fn is_marked(handle: &Handle) -> bool {
    handle.as_bytes().first().is_some_and(|first| first & (PAST | FOLDER) != 0)
}

/// The tag of the snapshot of this time.
fn tag_at(share: [u8; 4], sec: i64) -> Option<[u8; 4]> {
    let sec = u32::try_from(sec).ok()?;
    Some((u32::from_be_bytes(share) ^ sec).to_be_bytes())
}

/// Interprets a handle with a mark, of the share with this tag.
fn parse(handle: &Handle, share: [u8; 4]) -> VfsResult<Marked> {
    let first = *handle.as_bytes().first().ok_or(VfsError::BadHandle)?;
    if first & PAST != 0 {
        let tag = handle::tag_of(handle).ok_or(VfsError::BadHandle)?;
        let sec = u32::from_be_bytes(tag) ^ u32::from_be_bytes(share);
        return Ok(Marked::Past(i64::from(sec), unmarked(handle, PAST)?));
    }
    Ok(Marked::Folder(unmarked(handle, FOLDER)?))
}

impl Snapshots {
    /// True if the share has snapshots.
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Sets the pattern of the folders. Snapshots of another one are closed once no client uses them.
    pub(super) fn set(&self, root: &[u8], pattern: Option<&SnapshotPattern>) {
        let base = pattern.map(|pattern| Arc::new(Base::of(root, pattern)));
        let mut now = writing(&self.base);
        if now.as_deref() == base.as_deref() {
            return;
        }
        self.is_on.store(base.is_some(), Ordering::Relaxed);
        *now = base;
        drop(now);
        // A thread that is reading the list may still use the previous pattern.
        let read = locked(&self.reads);
        *locked(&self.listed) = None;
        drop(read);
        self.close_all();
    }

    /// Closes all; a client that uses one keeps it.
    pub(super) fn close_all(&self) {
        let all = std::mem::take(&mut *locked(&self.open));
        drop(all);
    }

    fn base(&self) -> Option<Arc<Base>> {
        reading(&self.base).clone()
    }

    /// True for the name of the folder of snapshots, if that is inside the share: clients reach it by [`NAME`] only.
    pub(super) fn is_base(&self, name: &[u8]) -> bool {
        self.base().is_some_and(|base| base.is_first(name))
    }

    /// Returns the list, if it was read a moment ago.
    fn listed(&self) -> Option<Arc<Listed>> {
        let kept = locked(&self.listed);
        kept.as_ref().filter(|(read, _)| read.elapsed() < FRESH).map(|(_, list)| list.clone())
    }

    /// Returns the snapshots that there are, the latest first. Callers on a worker ask [`Self::listed`] first, because this
    /// may read the file `info.xml` of each.
    pub(super) fn list(&self, live: &Volume) -> VfsResult<Arc<Listed>> {
        if let Some(list) = self.listed() {
            return Ok(list);
        }
        let read = locked(&self.reads);
        // Another caller may have read it meanwhile.
        if let Some(list) = self.listed() {
            return Ok(list);
        }
        let Some(base) = self.base() else { return Ok(Arc::default()) };
        let list = Arc::new(live.cache.with_room(|| base.list(live))?);
        *locked(&self.listed) = Some((Instant::now(), list.clone()));
        drop(read);
        Ok(list)
    }

    /// Returns the snapshot of this time: [`VfsError::NotFound`] if there is none.
    pub(super) fn open(&self, live: &Arc<LocalNode>, sec: i64) -> VfsResult<Arc<Past>> {
        let base = self.base().ok_or(VfsError::NotFound)?;
        if let Some(past) = self.fresh(sec) {
            return Ok(past);
        }
        let known = locked(&self.open).get(&sec).map(|held| held.past.clone());
        let list = self.list(&live.volume)?;
        let Some(name) = list.name(sec) else {
            self.forget(sec);
            return Err(VfsError::NotFound);
        };
        let volume = &live.volume;
        let folder = volume.cache.with_room(|| base.open(volume, name))?;
        let seen = stat::of_fd(folder.as_fd())?;
        let past = match known {
            Some(past) if (past.root.dev, past.root.ino) == (seen.dev, seen.ino) => past,
            _ => Past::open(live, sec, base.path(name), folder)?,
        };
        Ok(self.keep(sec, past))
    }

    fn forget(&self, sec: i64) {
        let gone = locked(&self.open).remove(&sec);
        drop(gone);
    }

    /// Keeps a snapshot, in place of the one that has been unused for longest.
    fn keep(&self, sec: i64, past: Arc<Past>) -> Arc<Past> {
        let now = Instant::now();
        let mut open = locked(&self.open);
        let mut dropped = None;
        if !open.contains_key(&sec) && open.len() >= IDLE_MAX {
            let idle = open.iter().filter(|(_, held)| held.is_unused());
            let oldest = idle.min_by_key(|(_, held)| held.used).map(|(sec, _)| *sec);
            dropped = oldest.and_then(|oldest| open.remove(&oldest));
        }
        let before = open.insert(sec, Held { past: past.clone(), checked: now, used: now });
        drop(open);
        drop((before, dropped));
        past
    }

    /// Sets the root of the share.
    pub(super) fn set_root(&self, root: &Arc<LocalNode>) {
        let _ = self.root.set(Arc::downgrade(root));
    }

    /// The open snapshot of this time, if its folder was the same a moment ago.
    fn fresh(&self, sec: i64) -> Option<Arc<Past>> {
        let mut open = locked(&self.open);
        let held = open.get_mut(&sec).filter(|held| held.checked.elapsed() < FRESH)?;
        held.used = Instant::now();
        Some(held.past.clone())
    }

    /// Warns once that a folder of snapshots is not used.
    fn distrust(&self, path: &Path, why: &'static str) {
        if locked(&self.distrusted).replace(why) != Some(why) {
            tracing::warn!(folder = %path.display(), "no snapshot is told: {why}");
        }
    }

    /// True if a path below the share is in the folder of snapshots, which has no other name for clients.
    pub(super) fn hold(&self, path: &[u8]) -> bool {
        self.is_on() && self.base().is_some_and(|base| base.holds(path))
    }

    fn trust(&self) {
        *locked(&self.distrusted) = None;
    }

    /// What there is.
    pub(super) fn told(&self, live: &Volume) -> VfsResult<SnapshotsTold> {
        let list = self.list(live)?;
        Ok(SnapshotsTold {
            told: list.times().count(),
            first: list.times().last(),
            last: list.times().next(),
            open: locked(&self.open).len(),
            distrusted: *locked(&self.distrusted),
        })
    }

    /// Releases idle records, and closes snapshots that were not used for a while.
    pub(super) fn sweep(&self) {
        let mut idle = Vec::new();
        let mut open = locked(&self.open);
        let old = |held: &Held| held.is_unused() && held.used.elapsed() > IDLE;
        let gone: Vec<i64> = open.iter().filter(|(_, held)| old(held)).map(|(s, _)| *s).collect();
        idle.extend(gone.iter().filter_map(|sec| open.remove(sec)));
        let kept: Vec<Arc<Past>> = open.values().map(|held| held.past.clone()).collect();
        drop(open);
        drop(idle);
        kept.iter().for_each(|past| past.volume.cache.sweep());
    }
}

impl Held {
    fn is_unused(&self) -> bool {
        Arc::strong_count(&self.past) == 1
    }
}

impl Past {
    fn open(
        live: &Arc<LocalNode>,
        sec: i64,
        path: PathBuf,
        folder: OwnedFd,
    ) -> VfsResult<Arc<Self>> {
        let share = &live.volume;
        let tag = tag_at(share.tag, sec).ok_or(VfsError::NotFound)?;
        let config = share.border.config();
        let config = LocalConfig { root: path, read_only: true, cross: false, ..config };
        let stat = stat::of_fd(folder.as_fd())?;
        let border = Arc::new(Border::new(folder.as_fd(), &stat, &config)?);
        // Differs from that of the share, which clients must not take the files for.
        let salt = fnv(&sec.to_be_bytes());
        let volume = Volume::open(config, folder, (border.clone(), None), |found| {
            found.fsid ^= salt;
            // A test would have to write. The snapshot keeps lists in the same place as the share.
            found.trusted = share.trusted;
        })?;
        let mut volume = volume;
        let own = Arc::get_mut(&mut volume).ok_or(VfsError::Io)?;
        own.tag = tag;
        own._held = Some(HeldDescriptors::count(3));
        border.set_top(&volume);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::openat(&volume.root, c".", flags, Mode::empty())?;
        let root = volume.adopt(top, &stat)?;
        Ok(Arc::new(Self { sec, volume, root, live: live.clone() }))
    }

    /// Opens the directory of this path, as the caller.
    fn dir(self: &Arc<Self>, cred: &Cred, path: &[u8]) -> VfsResult<Arc<PastNode>> {
        let mut node = PastNode::root(self);
        for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            node = node.find(cred, name)?.0;
        }
        Ok(node)
    }
}

/// Opens a path below a folder, without leaving it.
fn open_below(folder: impl AsFd, path: &Path, flags: OFlags) -> VfsResult<OwnedFd> {
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(folder, path, flags | OFlags::CLOEXEC, Mode::empty(), within)?)
}

impl Volume {
    /// Resolves a handle that leads to snapshots, of the share with this root.
    pub(super) fn resolve_marked<'a>(
        self: &'a Arc<Self>,
        root: &Arc<LocalNode>,
        handle: &Handle,
    ) -> BoxFuture<'a, VfsResult<NodeRef>> {
        let marked = match parse(handle, self.tag) {
            Ok(marked) => marked,
            Err(e) => return ready(Err(e)),
        };
        let is_fresh = |sec: i64| self.border.snapshots.fresh(sec).is_some();
        let root = root.clone();
        match marked {
            Marked::Past(sec, inner) if is_fresh(sec) => {
                let known = self.border.snapshots.fresh(sec).and_then(|past| {
                    let node = past.volume.cache.by_handle(&inner)?;
                    if !node.has_a_name() || node.do_path().is_err() {
                        return None;
                    }
                    PastNode::of(&past, node).ok()
                });
                if let Some(known) = known {
                    return ready(Ok(known));
                }
                self.resolve_apart(root, Marked::Past(sec, inner))
            }
            marked => self.resolve_apart(root, marked),
        }
    }

    /// Runs an operation that needs the list of snapshots: on a thread, if the list must be read first.
    fn with_list<'a, T: Send + 'static>(
        self: &'a Arc<Self>,
        f: impl Fn() -> VfsResult<T> + Clone + Send + Sync + 'static,
    ) -> BoxFuture<'a, VfsResult<T>> {
        match self.border.snapshots.listed() {
            Some(_) => self.patient(f),
            None => self.steps(self.patient_apart(f)),
        }
    }

    /// This may open a snapshot and search for a file in it.
    fn resolve_apart<'a>(
        self: &'a Arc<Self>,
        root: Arc<LocalNode>,
        marked: Marked,
    ) -> BoxFuture<'a, VfsResult<NodeRef>> {
        let (volume, marked) = (self.clone(), Arc::new(marked));
        let find = move || volume.find_marked(&root, &marked);
        self.steps(self.patient_apart(find))
    }

    fn find_marked(&self, root: &Arc<LocalNode>, marked: &Marked) -> VfsResult<NodeRef> {
        let snapshots = &self.border.snapshots;
        let found = |volume: &Arc<Self>, handle: &Handle| {
            let known = volume.cache.by_handle(handle).filter(|node| node.has_a_name());
            known.map_or_else(|| volume.cache.with_room(|| volume.open_handle(handle)), Ok)
        };
        match marked {
            Marked::Past(sec, inner) => {
                let past = match snapshots.open(root, *sec) {
                    Err(VfsError::NotFound) => return Err(VfsError::Stale),
                    past => past?,
                };
                let node = found(&past.volume, inner)?;
                Ok(PastNode::of(&past, node)?)
            }
            Marked::Folder(_) if !snapshots.is_on() => Err(VfsError::Stale),
            Marked::Folder(inner) => {
                let dir = found(&root.volume, inner)?;
                if dir.kind == Kind::Dir {
                    Ok(Versions::of(root, dir))
                } else {
                    Err(VfsError::Stale)
                }
            }
        }
    }
}

impl LocalNode {
    /// The folder of the share, if it has snapshots and this is in the share's own file system.
    fn top(&self) -> VfsResult<Option<Arc<Self>>> {
        let snapshots = &self.volume.border.snapshots;
        if !snapshots.is_on() {
            return Ok(None);
        }
        let top = snapshots.root.get().and_then(Weak::upgrade).ok_or(VfsError::Stale)?;
        Ok(Some(top).filter(|top| Arc::ptr_eq(&top.volume, &self.volume)))
    }

    /// Finds the folder of snapshots of this folder.
    pub(super) fn versions<'a>(
        &'a self,
        cred: &'a Cred,
    ) -> BoxFuture<'a, VfsResult<(NodeRef, Attr)>> {
        let (me, cred) = match self.strong() {
            Ok(me) => (me, cred.clone()),
            Err(e) => return ready(Err(e)),
        };
        self.volume.with_list(move || {
            me.dir_fd()?;
            me.permitted_now(&cred, perm::EXECUTE)?;
            let top = me.top()?.ok_or(VfsError::NotFound)?;
            let versions = Versions::of(&top, me.clone());
            let attr = versions.attr()?;
            Ok((versions as NodeRef, attr))
        })
    }

    /// See [`Node::snapshot_at`](crate::Node::snapshot_at).
    pub(super) fn in_snapshot<'a>(
        &'a self,
        cred: &'a Cred,
        sec: i64,
    ) -> BoxFuture<'a, VfsResult<Option<NodeRef>>> {
        let start = || Ok((self.top()?.filter(|_| self.kind == Kind::Dir), self.strong()?));
        let (top, me) = match start() {
            Ok((Some(top), me)) => (top, me),
            Ok((None, _)) => return ready(Ok(None)),
            Err(e) => return ready(Err(e)),
        };
        // This may open the snapshot, and looks up each name of the path there and today.
        let cred = cred.clone();
        let find = move || {
            me.permitted_now(&cred, perm::EXECUTE)?;
            let found = me.past(&top, &cred, sec)?;
            Ok(found.map(|node| node as NodeRef))
        };
        self.volume.steps(self.volume.patient_apart(find))
    }

    /// See [`Node::snapshot_times`](crate::Node::snapshot_times).
    pub(super) fn in_snapshots<'a>(
        &'a self,
        cred: &'a Cred,
        name: Option<&'a [u8]>,
    ) -> BoxFuture<'a, VfsResult<BTreeSet<i64>>> {
        let start = || {
            let Some(top) = self.top()? else { return Ok(None) };
            self.permitted_now(cred, perm::EXECUTE)?;
            Ok(Some((top, self.strong()?)))
        };
        let (top, me) = match start() {
            Ok(Some(both)) => both,
            Ok(None) => return ready(Ok(BTreeSet::new())),
            Err(e) => return ready(Err(e)),
        };
        let (cred, name) = (cred.clone(), name.map(<[u8]>::to_vec));
        let look = move || Ok(me.times(&top, &cred, name.as_deref())?.into_iter().collect());
        self.volume.steps(self.volume.patient_apart(look))
    }
}

#[cfg(test)]
mod tests {
    use policy::gmt_name;

    use super::*;
    use crate::backend::Backend;
    use crate::local::LocalBackend;

    /// The host reads a file of each snapshot for the list, and many folders for a path.
    #[tokio::test]
    async fn snapshots_are_listed_and_opened_on_a_thread() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join(".snapshots");
        std::fs::create_dir_all(base.join("1/snapshot")).unwrap();
        std::fs::write(base.join("1/info.xml"), "<date>2023-11-27 08:00:00</date>").unwrap();
        rustix::fs::chmod(&base, Mode::from_raw_mode(0o755)).unwrap();
        let backend = LocalBackend::open_with(LocalConfig::new(dir.path()), |found| {
            // A share on FUSE gets a separate engine, whose jobs can be counted.
            found.magic = 0x6573_5546;
        })
        .unwrap();
        backend.set_snapshots(Some(&".snapshots/{number}/snapshot".parse().unwrap()));
        let (root, cred, all) = (backend.root(), Cred::root(), &backend.volume.border.snapshots);
        let jobs = || backend.volume.engine.long_stats().done;
        let age = || *locked(&all.listed) = None;
        let mut before = jobs();
        let mut more = || jobs() - std::mem::replace(&mut before, jobs());

        let (versions, _) = root.lookup(&cred, NAME).await.unwrap();
        assert_eq!(more(), 1, "reads the list");
        versions.getattr().await.unwrap();
        root.lookup(&cred, NAME).await.unwrap();
        assert_eq!(more(), 0, "the list is known");
        age();
        versions.getattr().await.unwrap();
        assert_eq!(more(), 1, "reads the list again");

        let sec = all.listed().unwrap().times().next().unwrap();
        assert!(root.snapshot_at(&cred, sec).await.unwrap().is_some());
        let name = gmt_name(sec).unwrap();
        let (then, _) = versions.lookup(&cred, name.as_bytes()).await.unwrap();
        assert_eq!(more(), 2, "may open it");
        let apart = then.as_any().downcast_ref::<PastNode>().unwrap().volume().engine.clone();
        let there = apart.long_stats().done;
        age();
        then.lookup(&cred, b"..").await.unwrap();
        assert!(apart.long_stats().done > there);
    }
}
