//! Notifies clients that watch a directory of changes.
//!
//! *Operation.* `FileOps` posts every change of a name or a file, by whatever protocol it came; if no share has a watch, that costs
//! one load. A [`Watch`] belongs to one open directory and collects events that match its filter, for this directory or for its
//! whole subtree. Directories are compared by their paths from the share's root, in each share that shows the change, and a change
//! costs no more for watches of other folders ([`crate::watch_index`]); a watched directory that is renamed through `FileOps` keeps
//! its watch. [`crate::external_change`] reports changes by other processes of
//! the host; for a watch with its subtree this covers the first [`COVERED_MAX`] directories, and no more than its client has
//! [`Room`] for.
//!
//! *Rights.* A watcher sees only changes that it could have listed ([`crate::watch_access`]). That is checked as soon as the change
//! is posted, while its folder exists; for changes by other processes, or with many watchers, when the watcher asks. An event that
//! can no longer be checked becomes an overflow.
//!
//! *Memory.* [`EVENTS_MAX`] events of [`EVENT_BYTES_MAX`] bytes for each watch, and no more for all watches of a client than it has
//! [`Room`] for; a further event makes a watch overflow, which tells the watcher to list the directory again. [`WATCHES_MAX`]
//! watches in total.
//!
//! *Errors.* [`VfsError::Resources`] for a watch beyond the limit.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use mutex::{locked, reading, writing};
use tokio::sync::Notify;

use crate::backend::NodeRef;
use crate::error::{VfsError, VfsResult};
use crate::external_change::{Change, Listener, Watched};
use crate::overlap::{Overlaps, path_in};
use crate::share::Share;
use crate::types::{Action, Cred, Kind};
use crate::watch_access::{Judgement, WatchAccess};
pub use crate::watch_event::{Event, what};
use crate::watch_index::WatchIndex;

/// Events that wait for one watcher.
pub const EVENTS_MAX: usize = 1024;
/// Bytes of them: more than any name, and the limit of Windows.
pub const EVENT_BYTES_MAX: usize = 64 << 10;
/// Directories below one watch in which changes by other processes are seen.
pub const COVERED_MAX: usize = 4096;
/// Largest number of watches.
pub const WATCHES_MAX: usize = 1 << 16;
/// Largest number of watchers for which one change is checked at once.
const JUDGED_AT_ONCE: usize = 16;
/// Directories that a walk covers before it yields.
const COVERED_AT_ONCE: usize = 16;

/// Reserves an amount for the client of a watch, in place of its previous amount. False when its client may have no more; a smaller
/// amount than before is always granted.
pub type Room = Box<dyn FnMut(usize) -> bool + Send>;

/// The limits of the client of a watch.
pub struct Rooms {
    /// Directories in which changes by other processes are seen.
    pub covered: Room,
    /// Bytes of waiting events.
    pub events: Room,
}

impl Rooms {
    /// Builds room without limits.
    pub fn unlimited() -> Self {
        Self { covered: Box::new(|_| true), events: Box::new(|_| true) }
    }
}

/// The events since the last call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// In the order in which they happened.
    pub events: Vec<Event>,
    /// True if there were more events than the limits permit: the directory must be listed again.
    pub overflow: bool,
    /// True if the watched directory was removed.
    pub gone: bool,
}

impl Taken {
    /// Returns true if there is no event to report.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && !self.overflow && !self.gone
    }
}

struct State {
    /// Its place in the index; changes only while the index is locked.
    path: Vec<u8>,
    /// Events that the watcher may see.
    events: VecDeque<Event>,
    /// Later events, which must still be checked.
    unjudged: VecDeque<Event>,
    kept: Kept,
    overflow: bool,
    gone: bool,
}

/// Bytes of the events that wait for one watcher; they count for its client until it ends.
struct Kept {
    room: Room,
    bytes: usize,
}

impl Kept {
    /// Adds an event, if the limits permit.
    fn add(&mut self, event: &Event) -> bool {
        let bytes = self.bytes + event.bytes();
        let fits = bytes <= EVENT_BYTES_MAX && (self.room)(bytes);
        if fits {
            self.bytes = bytes;
        }
        fits
    }

    fn remove(&mut self, bytes: usize) {
        self.bytes -= bytes;
        (self.room)(self.bytes);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.remove(self.bytes);
    }
}

impl State {
    /// Drops all events and marks an overflow.
    fn overflow(&mut self, overflows: &AtomicU64) {
        self.events = VecDeque::new();
        self.unjudged = VecDeque::new();
        self.kept.remove(self.kept.bytes);
        self.overflow = true;
        overflows.fetch_add(1, Ordering::Relaxed);
    }

    fn has_something(&self) -> bool {
        !self.events.is_empty() || self.overflow || self.gone
    }
}

struct Watcher {
    share: u32,
    dir: NodeRef,
    filter: u32,
    recursive: bool,
    access: WatchAccess,
    state: Mutex<State>,
    came: Notify,
    /// True if directories below were added, removed or moved since the last walk.
    stale: AtomicBool,
}

impl Watcher {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent at every step.
        locked(&self.state)
    }

    /// Returns true if a change of this kind may matter to the watcher. `below`: its path from the watched directory.
    fn is_concerned(&self, below: &[u8], action: Action, kind: u32) -> bool {
        match below {
            [] => action == Action::Removed,
            _ => {
                // Whatever the filter: folders that come and rights that change make other events visible.
                let kinds = self.filter | what::DIR_NAME | what::SECURITY;
                kind & kinds != 0 && (self.recursive || !below.contains(&b'/'))
            }
        }
    }

    /// Stores a change if it matches this watcher.
    fn see(&self, path: &[u8], action: Action, kind: u32, overflows: &AtomicU64) {
        let mut s = self.lock();
        if action == Action::Removed && s.path == path {
            s.gone = true;
            self.came.notify_waiters();
            return;
        }
        let Some(below) = below(&s.path, path) else { return };
        self.access.note(action, kind);
        if kind == what::DIR_NAME {
            self.stale.store(true, Ordering::Relaxed);
        }
        if s.overflow || self.filter & kind == 0 || !self.recursive && below.contains(&b'/') {
            return;
        }
        let event = Event { action, path: below.to_vec() };
        let last = s.unjudged.back().or(s.events.back());
        if action == Action::Modified && last == Some(&event) {
            // An identical event already waits.
            return;
        }
        if s.events.len() + s.unjudged.len() >= EVENTS_MAX || !s.kept.add(&event) {
            s.overflow(overflows);
        } else if s.unjudged.is_empty() && self.access.is_open(&event.path) {
            s.events.push_back(event);
        } else {
            s.unjudged.push_back(event);
        }
        self.came.notify_waiters();
    }

    /// Marks an overflow.
    fn overflow(&self, overflows: &AtomicU64) {
        self.lock().overflow(overflows);
        self.came.notify_waiters();
    }

    fn has_unjudged(&self) -> bool {
        !self.lock().unjudged.is_empty()
    }

    /// Checks the first event, and all others that the same check of its folder decides. Several tasks may do this at once, and it
    /// may be cancelled.
    async fn judge(&self, overflows: &AtomicU64) {
        let Some(first) = self.lock().unjudged.front().cloned() else { return };
        let judged = match self.access.is_open(&first.path) {
            true => Judgement::Shown,
            false => self.access.judge(&self.dir, &first).await,
        };
        let mut s = self.lock();
        while s.unjudged.front().is_some_and(|next| self.access.is_same(next, &first)) {
            match (judged, s.unjudged.pop_front()) {
                (Judgement::Shown, Some(next)) => s.events.push_back(next),
                (Judgement::Unknown, _) => s.overflow(overflows),
                (_, Some(hidden)) => {
                    s.kept.remove(hidden.bytes());
                    continue;
                }
                (_, None) => continue,
            }
            self.came.notify_waiters();
        }
    }
}

/// Returns the rest of the path after the directory, if the path is below it.
fn below<'a>(dir: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(dir)?;
    let rest = if dir.is_empty() { rest } else { rest.strip_prefix(b"/")? };
    (!rest.is_empty()).then_some(rest)
}

/// Joins a directory's path and a name.
fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

/// Lists the directories in a directory, with their paths.
async fn directories(dir: &NodeRef, path: &[u8], into: &mut VecDeque<(NodeRef, Vec<u8>)>) {
    const PART: usize = 256;
    let (root, mut cookie) = (Cred::root(), 0);
    // A directory that cannot be listed is not covered.
    while let Ok((entries, end)) = dir.readdir(&root, cookie, PART).await {
        let Some(last) = entries.last() else { return };
        cookie = last.cookie;
        for entry in &entries {
            if entry.kind.is_none_or(|kind| kind == Kind::Dir)
                && let Ok((node, _)) = dir.lookup(&root, &entry.name).await
                && node.kind() == Kind::Dir
            {
                into.push_back((node, join(path, &entry.name)));
            }
        }
        if end || into.len() >= COVERED_MAX {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Counts of posted events and overflows.
#[derive(Debug, Default)]
pub struct Counters {
    /// Changes that were posted while their share had a watch.
    pub posted: AtomicU64,
    /// Watches that overflowed.
    pub overflows: AtomicU64,
}

/// The watches of all clients.
#[derive(Default)]
pub struct Hub {
    watchers: RwLock<WatchIndex<Watcher>>,
    count: AtomicUsize,
    /// Shares in which one change has several paths.
    overlaps: Arc<Overlaps>,
    /// Counts of posted events and overflows.
    pub counters: Counters,
}

/// One watched directory. Dropping it ends the watch.
pub struct Watch {
    hub: Arc<Hub>,
    me: Arc<Watcher>,
    room: Mutex<Room>,
    covered: Mutex<Vec<Watched>>,
}

impl Hub {
    /// Creates a set without watches, of shares that overlap as in this list.
    pub(crate) fn of(overlaps: Arc<Overlaps>) -> Arc<Self> {
        Arc::new(Self { overlaps, ..Self::default() })
    }

    /// Returns which shares overlap.
    pub(crate) fn overlaps(&self) -> &Overlaps {
        &self.overlaps
    }

    /// Watches a directory of a share for changes of the kinds in `filter` ([`what`]); this user sees only changes that it may
    /// list.
    pub async fn watch(
        self: &Arc<Self>,
        by: (&Arc<Share>, &Cred),
        dir: NodeRef,
        filter: u32,
        recursive: bool,
    ) -> VfsResult<Watch> {
        self.watch_within(by, dir, filter, recursive, Rooms::unlimited()).await
    }

    /// Like [`Hub::watch`], for a client that has only so much room.
    pub async fn watch_within(
        self: &Arc<Self>,
        (share, cred): (&Arc<Share>, &Cred),
        dir: NodeRef,
        filter: u32,
        recursive: bool,
        rooms: Rooms,
    ) -> VfsResult<Watch> {
        let path = dir.path().await?;
        let state = State {
            path,
            events: VecDeque::new(),
            unjudged: VecDeque::new(),
            kept: Kept { room: rooms.events, bytes: 0 },
            overflow: false,
            gone: false,
        };
        let me = Arc::new(Watcher {
            share: share.id,
            dir,
            filter,
            recursive,
            access: WatchAccess::new(share.clone(), cred.clone()),
            state: Mutex::new(state),
            came: Notify::new(),
            stale: AtomicBool::new(true),
        });
        self.enter(me.clone())?;
        let (room, covered) = (Mutex::new(rooms.covered), Mutex::default());
        let watch = Watch { hub: self.clone(), me, room, covered };
        watch.cover().await;
        Ok(watch)
    }

    fn enter(&self, watcher: Arc<Watcher>) -> VfsResult<()> {
        let mut all = writing(&self.watchers);
        if all.len() >= WATCHES_MAX {
            return Err(VfsError::Resources);
        }
        let path = watcher.lock().path.clone();
        all.add(watcher.share, path, watcher);
        self.count.store(all.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Returns true if this share, or one that overlaps it, has a watch.
    pub fn is_watched(&self, share: u32) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let watched = reading(&self.watchers);
        watched.has(share) || self.overlaps.any(share, |other| watched.has(other))
    }

    /// Returns the watched shares that overlap this one.
    fn others(&self, share: u32) -> Vec<Arc<Share>> {
        let mut others = self.overlaps.of(share);
        if !others.is_empty() {
            let watched = reading(&self.watchers);
            others.retain(|other| watched.has(other.id));
        }
        others
    }

    /// Returns the watches that a change at this path may concern.
    fn around(&self, share: u32, path: &[u8], action: Action, kind: u32) -> Vec<Arc<Watcher>> {
        let watchers = reading(&self.watchers);
        let around = watchers.up_from(share, path);
        let concerned = around.filter(|(below, w)| w.is_concerned(below, action, kind));
        concerned.map(|(_, watcher)| watcher.clone()).collect()
    }

    /// Updates the watched paths after a directory was moved.
    fn moves(&self, share: u32, from: &[u8], to: &[u8]) {
        let mut all = writing(&self.watchers);
        for (watcher, path) in all.moves(share, from, to) {
            watcher.lock().path = path;
        }
    }

    async fn tell(&self, share: u32, path: &[u8], action: Action, kind: u32) {
        self.counters.posted.fetch_add(1, Ordering::Relaxed);
        let overflows = &self.counters.overflows;
        let mut judging = Vec::new();
        for watcher in self.around(share, path, action, kind) {
            watcher.see(path, action, kind, overflows);
            if judging.len() < JUDGED_AT_ONCE && watcher.has_unjudged() {
                judging.push(watcher);
            }
        }
        for watcher in judging {
            watcher.judge(overflows).await;
        }
    }

    /// Reports a change of a stream: `shown` makes its path of the file's.
    pub(crate) async fn post_stream(
        &self,
        share: u32,
        file: &NodeRef,
        shown: impl Fn(&[u8]) -> Vec<u8>,
        (action, kind): (Action, u32),
    ) {
        if !self.is_watched(share) {
            return;
        }
        if let Ok(path) = file.path().await {
            self.tell(share, &shown(&path), action, kind).await;
        }
        for other in self.others(share) {
            if let Some(path) = path_in(&other, file).await {
                self.tell(other.id, &shown(&path), action, kind).await;
            }
        }
    }

    /// Reports that a name of a directory was added, removed or changed.
    pub async fn post(&self, share: u32, dir: &NodeRef, name: &[u8], action: Action, kind: u32) {
        if !self.is_watched(share) {
            return;
        }
        // A directory that has no path any more has no watchers either.
        if let Ok(dir) = dir.path().await {
            self.tell(share, &join(&dir, name), action, kind).await;
        }
        for other in self.others(share) {
            if let Some(dir) = path_in(&other, dir).await {
                self.tell(other.id, &join(&dir, name), action, kind).await;
            }
        }
    }

    /// Reports a change of a file that is known by its node. `kind`: all kinds of change.
    pub async fn post_node(&self, share: u32, node: &NodeRef, kind: u32) {
        if !self.is_watched(share) {
            return;
        }
        if let Ok(path) = node.path().await {
            self.tell(share, &path, Action::Modified, kind).await;
        }
        for other in self.others(share) {
            if let Some(path) = path_in(&other, node).await {
                self.tell(other.id, &path, Action::Modified, kind).await;
            }
        }
    }

    /// Reports that a name was moved: within a directory as a rename, otherwise as a removal and an addition.
    pub async fn post_rename(
        &self,
        share: u32,
        (from_dir, from): (&NodeRef, &[u8]),
        (to_dir, to): (&NodeRef, &[u8]),
        is_dir: bool,
    ) {
        if !self.is_watched(share) {
            return;
        }
        let same_dir = from_dir.id() == to_dir.id();
        let own = (from_dir.path().await.ok(), to_dir.path().await.ok());
        self.tell_rename(share, own, (from, to), (same_dir, is_dir)).await;
        for other in self.others(share) {
            // The name may have crossed the border of the other share.
            let paths = (path_in(&other, from_dir).await, path_in(&other, to_dir).await);
            self.tell_rename(other.id, paths, (from, to), (same_dir, is_dir)).await;
        }
    }

    /// Reports a rename to the watchers of one share, with the paths of both directories in it.
    async fn tell_rename(
        &self,
        share: u32,
        (from_dir, to_dir): (Option<Vec<u8>>, Option<Vec<u8>>),
        (from, to): (&[u8], &[u8]),
        (same_dir, is_dir): (bool, bool),
    ) {
        let (old, new) = (from_dir.map(|dir| join(&dir, from)), to_dir.map(|dir| join(&dir, to)));
        let kind = if is_dir { what::DIR_NAME } else { what::FILE_NAME };
        let (gone, come) = match same_dir {
            true => (Action::RenamedOld, Action::RenamedNew),
            false => (Action::Removed, Action::Added),
        };
        if is_dir && let (Some(old), Some(new)) = (&old, &new) {
            self.moves(share, old, new);
        }
        if let Some(old) = old {
            self.tell(share, &old, gone, kind).await;
        }
        if let Some(new) = new {
            self.tell(share, &new, come, kind).await;
        }
    }
}

impl Watch {
    /// Returns the checked events since the last call.
    pub fn take(&self) -> Taken {
        let mut s = self.me.lock();
        let events: Vec<Event> = s.events.drain(..).collect();
        s.kept.remove(events.iter().map(Event::bytes).sum());
        Taken { events, overflow: std::mem::take(&mut s.overflow), gone: s.gone }
    }

    /// Returns the number of directories in which changes by other processes of this host are seen.
    pub fn covered(&self) -> usize {
        locked(&self.covered).len()
    }

    fn has_room(&self, directories: usize) -> bool {
        locked(&self.room)(directories)
    }

    /// Watches all directories of this watch for changes by other processes. If its caller cancels a walk, the next call repeats
    /// it.
    async fn cover(&self) {
        if !self.me.stale.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut walk = Walk { watch: self, is_finished: false };
        let recursive = self.me.recursive;
        let (mut covered, before) = (Vec::new(), self.covered());
        let mut todo = VecDeque::from([(self.me.dir.clone(), Vec::new())]);
        while let Some((dir, path)) = todo.pop_front() {
            // The watches of the last walk are kept until this one ends.
            if covered.len() >= before && !self.has_room(covered.len() + 1) {
                break;
            }
            let listener = self.listener(path.clone());
            let Some(watched) = dir.watch_external(listener) else { break };
            covered.push(watched);
            if recursive && covered.len() + todo.len() < COVERED_MAX {
                directories(&dir, &path, &mut todo).await;
            }
            if covered.len().is_multiple_of(COVERED_AT_ONCE) {
                tokio::task::yield_now().await;
            }
        }
        self.has_room(covered.len());
        *locked(&self.covered) = covered;
        walk.is_finished = true;
    }

    /// Returns a listener for changes by other processes in the directory at this path from the watched one.
    fn listener(&self, from: Vec<u8>) -> Listener {
        let (hub, me) = (Arc::downgrade(&self.hub), Arc::downgrade(&self.me));
        Arc::new(move |change| {
            let (Some(hub), Some(me)) = (hub.upgrade(), me.upgrade()) else { return };
            let Change::Name { action, name, is_dir, data } = change else {
                if *change == Change::Overflow {
                    me.overflow(&hub.counters.overflows);
                }
                return;
            };
            let kind = match (action, is_dir, data) {
                (Action::Modified, _, true) => what::SIZE | what::LAST_WRITE,
                (Action::Modified, _, false) => what::ATTRIBUTES | what::SECURITY,
                (_, true, _) => what::DIR_NAME,
                (_, false, _) => what::FILE_NAME,
            };
            let dir = me.lock().path.clone();
            let dir = if from.is_empty() { dir } else { join(&dir, &from) };
            hub.counters.posted.fetch_add(1, Ordering::Relaxed);
            me.see(&join(&dir, name), *action, kind, &hub.counters.overflows);
        })
    }

    /// Waits until an event can be taken. Waits for ever if there is no change: the caller ends it.
    pub async fn ready(&self) {
        self.cover().await;
        self.something().await;
    }

    /// Like [`Watch::ready`], without a walk to new folders: only for events that already wait.
    pub async fn something(&self) {
        loop {
            // Enabled before the check, so that an event between the two is not missed.
            let mut came = std::pin::pin!(self.me.came.notified());
            came.as_mut().enable();
            while self.me.has_unjudged() {
                self.me.judge(&self.hub.counters.overflows).await;
            }
            if self.me.lock().has_something() {
                return;
            }
            came.await;
        }
    }
}

/// A walk to all directories of a watch.
struct Walk<'a> {
    watch: &'a Watch,
    is_finished: bool,
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.watch.has_room(self.watch.covered());
            self.watch.me.stale.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut all = writing(&self.hub.watchers);
        let path = self.me.lock().path.clone();
        all.remove(self.me.share, &path, &self.me);
        self.hub.count.store(all.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Acting;
    use crate::mem::MemBackend;
    use crate::namespace::{Enforce, Protocols, Rules, Squash};
    use crate::types::{Cred, SetAttr};
    use crate::{Backend, VfsResult};

    const SHARE: u32 = 7;
    const ALL: u32 = 0xfff;

    fn share(id: u32) -> Arc<Share> {
        Arc::new(Share {
            name: "team".into(),
            id,
            backend: MemBackend::new(1 << 20).unwrap(),
            protocols: Protocols::Both,
            read_only: false,
            squash: Squash::Root,
            nfs_locks: Enforce::Smb,
            clients: None,
            rules: Rules::default(),
        })
    }

    fn block_on<T>(f: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(f)
    }

    async fn tree() -> VfsResult<(NodeRef, NodeRef, NodeRef)> {
        let root = MemBackend::new(1 << 20)?.root();
        let c = Cred::root();
        let d = root.mkdir(Acting::caller(&c), b"d", SetAttr::default()).await?.node;
        let e = d.mkdir(Acting::caller(&c), b"e", SetAttr::default()).await?.node;
        Ok((root, d, e))
    }

    fn shown(t: Taken) -> Vec<(Action, String)> {
        assert!(!t.overflow && !t.gone);
        t.events.into_iter().map(|e| (e.action, String::from_utf8(e.path).unwrap())).collect()
    }

    #[test]
    fn events_limited_by_room_of_client() {
        block_on(async {
            let (root, ..) = tree().await.unwrap();
            let hub = Arc::new(Hub::default());
            let share = share(SHARE);
            let me = Cred::root();
            // The two watches of one client.
            let kept = Arc::new(Mutex::new([0, 0]));
            let most = Arc::new(AtomicUsize::new(usize::MAX));
            let watch = |at: usize| {
                let (kept, most) = (kept.clone(), most.clone());
                let events = move |bytes| {
                    let mut kept = locked(&kept);
                    let fits =
                        bytes <= kept[at] || bytes + kept[1 - at] <= most.load(Ordering::Relaxed);
                    kept[at] = if fits { bytes } else { kept[at] };
                    fits
                };
                let rooms = Rooms { events: Box::new(events), ..Rooms::unlimited() };
                hub.watch_within((&share, &me), root.clone(), ALL, true, rooms)
            };
            let (first, second) = (watch(0).await.unwrap(), watch(1).await.unwrap());
            let other = hub.watch((&share, &me), root.clone(), ALL, true).await.unwrap();
            let name = |n: usize| format!("{n:0255}").into_bytes();
            let post =
                async |n| hub.post(SHARE, &root, &name(n), Action::Added, what::FILE_NAME).await;
            let kept = || *locked(&kept);
            let bytes = Event { action: Action::Added, path: name(0) }.bytes();
            let full = EVENT_BYTES_MAX / bytes;
            for n in 0..full {
                post(n).await;
            }
            assert_eq!(kept(), [full * bytes; 2]);
            assert_eq!(shown(first.take()).len(), full);
            assert_eq!(kept(), [0, full * bytes], "what was told is gone");
            post(full).await;
            assert!(second.take().overflow);
            assert_eq!(kept(), [bytes, 0]);
            assert!(other.take().overflow, "it has no room of its own for more");
            assert_eq!(shown(first.take()).len(), 1);
            most.store(bytes, Ordering::Relaxed);
            post(0).await;
            let took = (first.take(), second.take());
            assert!(took.0.overflow != took.1.overflow, "one of the two has room");
            assert_eq!(shown(other.take()).len(), 1, "another client has its own");
            drop((first, second));
            assert_eq!(kept(), [0, 0]);
        });
    }

    #[test]
    fn watchers_see_requested_changes() {
        block_on(async {
            let (root, d, e) = tree().await.unwrap();
            let hub = Arc::new(Hub::default());
            hub.post(SHARE, &root, b"x", Action::Added, what::FILE_NAME).await;
            assert_eq!(hub.counters.posted.load(Ordering::Relaxed), 0);
            let below =
                hub.watch((&share(SHARE), &Cred::root()), root.clone(), ALL, true).await.unwrap();
            let here = hub
                .watch((&share(SHARE), &Cred::root()), d.clone(), what::FILE_NAME, false)
                .await
                .unwrap();
            let elsewhere = hub
                .watch((&share(SHARE + 1), &Cred::root()), root.clone(), ALL, true)
                .await
                .unwrap();
            hub.post(SHARE, &root, b"x", Action::Added, what::FILE_NAME).await;
            hub.post(SHARE, &d, b"y", Action::Added, what::FILE_NAME).await;
            hub.post(SHARE, &d, b"sub", Action::Added, what::DIR_NAME).await;
            hub.post(SHARE, &e, b"z", Action::Removed, what::FILE_NAME).await;
            hub.post_node(SHARE, &e, what::ATTRIBUTES).await;
            hub.post_node(SHARE, &e, what::ATTRIBUTES).await;
            let want = [
                (Action::Added, "x"),
                (Action::Added, "d/y"),
                (Action::Added, "d/sub"),
                (Action::Removed, "d/e/z"),
                (Action::Modified, "d/e"),
            ];
            assert_eq!(shown(below.take()), want.map(|(a, p)| (a, p.to_owned())));
            assert_eq!(shown(here.take()), [(Action::Added, "y".to_owned())]);
            assert!(elsewhere.take().is_empty() && below.take().is_empty());
            drop((below, here, elsewhere));
            assert!(!hub.is_watched(SHARE));
        });
    }

    #[test]
    fn renames_are_pairs_and_keep_watches() {
        block_on(async {
            let (root, d, e) = tree().await.unwrap();
            let hub = Arc::new(Hub::default());
            let c = Cred::root();
            let top =
                hub.watch((&share(SHARE), &Cred::root()), root.clone(), ALL, true).await.unwrap();
            let inner =
                hub.watch((&share(SHARE), &Cred::root()), e.clone(), ALL, false).await.unwrap();
            root.rename(Acting::caller(&c), b"d", root.as_ref(), b"moved", true).await.unwrap();
            hub.post_rename(SHARE, (&root, b"d"), (&root, b"moved"), true).await;
            hub.post(SHARE, &e, b"f", Action::Added, what::FILE_NAME).await;
            hub.post_rename(SHARE, (&e, b"f"), (&d, b"g"), false).await;
            let want = [
                (Action::RenamedOld, "d"),
                (Action::RenamedNew, "moved"),
                (Action::Added, "moved/e/f"),
                (Action::Removed, "moved/e/f"),
                (Action::Added, "moved/g"),
            ];
            assert_eq!(shown(top.take()), want.map(|(a, p)| (a, p.to_owned())));
            assert_eq!(inner.take().events.len(), 2);
            hub.post(SHARE, &d, b"e", Action::Removed, what::DIR_NAME).await;
            assert!(inner.take().gone);
        });
    }

    #[test]
    fn too_many_events_overflow_and_wake() {
        block_on(async {
            let (root, ..) = tree().await.unwrap();
            let hub = Arc::new(Hub::default());
            let watch =
                hub.watch((&share(SHARE), &Cred::root()), root.clone(), ALL, false).await.unwrap();
            for n in 0..=EVENTS_MAX {
                let name = n.to_string();
                hub.post(SHARE, &root, name.as_bytes(), Action::Added, what::FILE_NAME).await;
            }
            watch.ready().await;
            let taken = watch.take();
            assert!(taken.overflow && taken.events.is_empty());
            assert!(watch.take().is_empty());
            let late = async {
                tokio::task::yield_now().await;
                hub.post(SHARE, &root, b"n", Action::Added, what::FILE_NAME).await;
            };
            tokio::join!(watch.ready(), late);
            assert_eq!(watch.take().events.len(), 1);
        });
    }

    /// A user who owns no file here.
    fn eve() -> Cred {
        Cred { uid: 1003, gid: 1003, groups: [].into(), token: crate::Token::NONE }
    }

    async fn folder(at: &NodeRef, name: &[u8], mode: u32) -> NodeRef {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        at.mkdir(Acting::caller(&Cred::root()), name, set).await.unwrap().node
    }

    async fn chmod(hub: &Hub, node: &NodeRef, mode: u32) {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        node.setattr(&Cred::root(), set, false).await.unwrap();
        hub.post_node(SHARE, node, what::SECURITY).await;
    }

    /// Returns true if no event can be taken.
    async fn is_silent(watch: &Watch) -> bool {
        let mut ready = std::pin::pin!(watch.ready());
        std::future::poll_fn(|cx| std::task::Poll::Ready(ready.as_mut().poll(cx).is_pending()))
            .await
    }

    #[test]
    fn watcher_sees_only_listable_names() {
        block_on(async {
            let team = share(SHARE);
            let root = team.backend.root();
            let open = folder(&root, b"open", 0o755).await;
            let secret = folder(&root, b"secret", 0o700).await;
            let passed = folder(&root, b"passed", 0o711).await;
            let inner = folder(&secret, b"inner", 0o777).await;
            let shown_again = folder(&passed, b"inner", 0o755).await;
            let hub = Arc::new(Hub::default());
            let watch = hub.watch((&team, &eve()), root.clone(), ALL, true).await.unwrap();
            let by_root = hub.watch((&team, &Cred::root()), root.clone(), ALL, true).await.unwrap();
            for dir in [&secret, &inner, &passed] {
                hub.post(SHARE, dir, b"x", Action::Added, what::FILE_NAME).await;
                hub.post_rename(SHARE, (dir, b"x"), (dir, b"y"), false).await;
                let shown = |dir: &[u8]| [dir, b"/f:s"].concat();
                hub.post_stream(SHARE, dir, shown, (Action::AddedStream, what::STREAM_NAME)).await;
                assert!(is_silent(&watch).await && watch.take().is_empty());
            }
            assert_eq!(by_root.take().events.len(), 12);
            hub.post_rename(SHARE, (&secret, b"x"), (&open, b"x"), false).await;
            for dir in [&root, &open, &shown_again] {
                hub.post(SHARE, dir, b"n", Action::Added, what::FILE_NAME).await;
            }
            let want = ["open/x", "n", "open/n", "passed/inner/n"];
            assert!(!is_silent(&watch).await);
            let told = shown(watch.take());
            assert_eq!(told, want.map(|path| (Action::Added, path.to_owned())));
        });
    }

    /// Many watches that a change does not concern must not delay it.
    #[test]
    fn change_visits_concerned_watches_only() {
        block_on(async {
            let team = share(SHARE);
            let root = team.backend.root();
            let d = folder(&root, b"d", 0o755).await;
            let hub = Arc::new(Hub::default());
            let mut held = Vec::new();
            for (dir, filter, recursive) in
                [(&root, ALL, false), (&root, ALL, true), (&root, 8, true), (&d, ALL, false)]
            {
                let watch = hub.watch((&team, &eve()), dir.clone(), filter, recursive).await;
                held.push(watch.unwrap());
            }
            let visits = |path: &[u8], action, kind| hub.around(SHARE, path, action, kind).len();
            assert_eq!(visits(b"d/f", Action::Added, what::FILE_NAME), 2);
            assert_eq!(visits(b"d/f", Action::Modified, what::SIZE), 3);
            assert_eq!(visits(b"f", Action::Added, what::FILE_NAME), 2);
            assert_eq!(visits(b"d", Action::Modified, what::ATTRIBUTES), 2);
            // Watches of other kinds learn which folders there are, and what they may see.
            assert_eq!(visits(b"d", Action::Removed, what::DIR_NAME), 4);
            assert_eq!(visits(b"d/e", Action::Modified, what::SECURITY), 3);
        });
    }

    #[test]
    fn changed_rights_apply_at_once() {
        block_on(async {
            let team = share(SHARE);
            let root = team.backend.root();
            let d = folder(&root, b"d", 0o755).await;
            let e = folder(&d, b"e", 0o755).await;
            let hub = Arc::new(Hub::default());
            let watch = hub.watch((&team, &eve()), root.clone(), 1, true).await.unwrap();
            let told = async || {
                hub.post(SHARE, &e, b"n", Action::Added, what::FILE_NAME).await;
                watch.take().events.len()
            };
            assert_eq!(told().await, 1);
            for dir in [&d, &e] {
                chmod(&hub, dir, 0o700).await;
                assert_eq!(told().await, 0);
                chmod(&hub, dir, 0o755).await;
                assert_eq!(told().await, 1);
            }
            // A different folder with the same name.
            let c = Cred::root();
            d.rename(Acting::caller(&c), b"e", root.as_ref(), b"e", true).await.unwrap();
            hub.post_rename(SHARE, (&d, b"e"), (&root, b"e"), true).await;
            let e = folder(&d, b"e", 0o700).await;
            hub.post(SHARE, &d, b"e", Action::Added, what::DIR_NAME).await;
            hub.post(SHARE, &e, b"n", Action::Added, what::FILE_NAME).await;
            assert_eq!(watch.take(), Taken::default());
        });
    }

    #[test]
    fn uncheckable_event_becomes_overflow() {
        block_on(async {
            let team = share(SHARE);
            let root = team.backend.root();
            let d = folder(&root, b"d", 0o755).await;
            let hub = Arc::new(Hub::default());
            let watch = hub.watch((&team, &eve()), root.clone(), ALL, true).await.unwrap();
            // Like a change by another process of the host, which does not wait for the check.
            let told = |path: &[u8], action, kind| {
                watch.me.see(path, action, kind, &hub.counters.overflows);
            };
            told(b"d/n", Action::Added, what::FILE_NAME);
            assert!(!is_silent(&watch).await);
            assert_eq!(shown(watch.take()), [(Action::Added, "d/n".to_owned())]);
            // The folder was checked a moment ago.
            root.rmdir(Acting::caller(&Cred::root()), b"d").await.unwrap();
            told(b"d/n", Action::Removed, what::FILE_NAME);
            told(b"d", Action::Removed, what::DIR_NAME);
            assert!(!is_silent(&watch).await);
            assert_eq!(watch.take().events.len(), 2);
            told(b"gone/n", Action::Added, what::FILE_NAME);
            told(b"n", Action::Added, what::FILE_NAME);
            assert!(watch.take().is_empty(), "nobody has looked");
            assert!(!is_silent(&watch).await);
            assert_eq!(watch.take(), Taken { overflow: true, ..Taken::default() });
            for n in 0..=EVENTS_MAX {
                told(format!("d/{n}").as_bytes(), Action::Added, what::FILE_NAME);
            }
            assert_eq!(watch.take(), Taken { overflow: true, ..Taken::default() });
            drop(d);
        });
    }

    #[test]
    fn hidden_names_are_not_reported() {
        block_on(async {
            let old = share(SHARE);
            let rules = Rules { only_visible: true, ..Rules::default() };
            let (name, backend) = (old.name.clone(), old.backend.clone());
            let team = Arc::new(Share { name, backend, clients: None, rules, ..*old });
            let root = team.backend.root();
            let hub = Arc::new(Hub::default());
            let watch = hub.watch((&team, &eve()), root.clone(), ALL, false).await.unwrap();
            folder(&root, b"secret", 0o700).await;
            folder(&root, b"open", 0o755).await;
            for name in [&b"secret"[..], b"open"] {
                hub.post(SHARE, &root, name, Action::Added, what::DIR_NAME).await;
            }
            assert!(!is_silent(&watch).await);
            assert_eq!(shown(watch.take()), [(Action::Added, "open".to_owned())]);
            root.rmdir(Acting::caller(&Cred::root()), b"secret").await.unwrap();
            hub.post(SHARE, &root, b"secret", Action::Removed, what::DIR_NAME).await;
            assert!(!is_silent(&watch).await);
            assert_eq!(watch.take(), Taken { overflow: true, ..Taken::default() });
        });
    }
}
