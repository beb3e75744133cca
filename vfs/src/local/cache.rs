//! The records of nodes in memory, and the descriptors that they hold.
//!
//! *Operation.* An inode has one record while it is referred to; the record holds the inode by an `O_PATH` descriptor, so its inode
//! number cannot be reused. Two maps find it, by inode number and by handle. A clock (second-chance list) keeps recently used
//! records and is swept when descriptors run short, and periodically to release idle ones: the storage of a file removed on the
//! host is freed after a while.
//!
//! *Durability.* A record with unsynced data keeps its descriptors; when it would be closed its sync is started, and it is closed
//! at a later sweep.
//!
//! *Memory.* Records with references stay; the clock only drops its own references. References are never dropped under a lock of
//! this module, because the last one removes the record from the maps.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use ahash::RandomState;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use mutex::locked;

use crate::error::{VfsError, VfsResult};
use crate::types::Handle;

use super::descriptors::{self, Fd, descriptors_max};
use super::held::{Moment, NO_SLOT};
use super::node::LocalNode;

/// A record's data descriptors are closed after this many sweeps without use.
const AGE_CLOSE: u8 = 2;
/// A record is dropped after this many sweeps without use.
const AGE_DROP: u8 = 6;
/// Slots examined for each descriptor to free.
const STEP: usize = 16;

/// True if it has a name and unsynced data: if closed now, a failure could not be reported.
fn is_unsynced(node: &LocalNode) -> bool {
    node.unsynced.load(Ordering::Acquire) && !node.is_nameless()
}

#[derive(Default)]
struct Clock {
    slots: Vec<Option<Arc<LocalNode>>>,
    free: Vec<usize>,
    hand: usize,
}

/// The records of one backend.
#[derive(Default)]
pub(crate) struct Cache {
    by_inode: DashMap<(u64, u64), Weak<LocalNode>, RandomState>,
    by_handle: DashMap<Handle, Weak<LocalNode>, RandomState>,
    clock: Mutex<Clock>,
    /// Number of records created so far.
    made: AtomicU64,
    /// Descriptors that keep inode numbers from being reused too early, with their expiry: see [`Cache::keep`].
    young: Mutex<VecDeque<(Instant, Fd)>>,
}

impl Cache {
    /// Numbers a record whose descriptor is open already.
    pub(super) fn count(&self) -> Moment {
        Moment(self.made.fetch_add(1, Ordering::SeqCst).saturating_add(1))
    }

    /// The current moment. An inode number read after it refers to the inode of an existing record made before it, because that
    /// record held the inode all the time. A younger record may hold another inode that got the number after the observed one was
    /// removed.
    pub(super) fn moment(&self) -> Moment {
        Moment(self.made.load(Ordering::SeqCst))
    }

    /// The record of the inode whose number was read after `moment`.
    pub(super) fn held_since(&self, moment: Moment, dev: u64, ino: u64) -> Option<Arc<LocalNode>> {
        self.by_inode(dev, ino).filter(|node| node.made <= moment)
    }

    /// Keeps the inode of a dropped record open `for_long`, so that its number is not reused.
    pub(super) fn keep(&self, inode: BorrowedFd<'_>, for_long: Duration) {
        let Ok(fd) = inode.try_clone_to_owned() else {
            // No descriptor is available, so the present one must stay open.
            std::thread::sleep(for_long);
            return;
        };
        let until = Instant::now() + for_long;
        let old = self.grown();
        locked(&self.young).push_back((until, Fd::new(fd)));
        drop(old);
    }

    /// Removes the expired ones.
    fn grown(&self) -> Vec<(Instant, Fd)> {
        let mut young = locked(&self.young);
        let now = Instant::now();
        let count = young.iter().take_while(|(until, _)| *until <= now).count();
        young.drain(..count).collect()
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        locked(&self.clock)
    }

    pub(super) fn by_inode(&self, dev: u64, ino: u64) -> Option<Arc<LocalNode>> {
        let found = self.by_inode.get(&(dev, ino)).and_then(|w| w.upgrade())?;
        self.touch(&found);
        Some(found)
    }

    /// The record of this inode, without marking it as used.
    #[cfg(test)]
    pub(super) fn by_inode_untouched(&self, ino: (u64, u64)) -> Option<Arc<LocalNode>> {
        self.by_inode.get(&ino).and_then(|w| w.upgrade())
    }

    pub(super) fn by_handle(&self, handle: &Handle) -> Option<Arc<LocalNode>> {
        let found = self.by_handle.get(handle).and_then(|w| w.upgrade())?;
        self.touch(&found);
        Some(found)
    }

    /// Enters a new record, or returns the one that another thread entered first. A record of another file that had the number is
    /// displaced.
    pub(super) fn enter(&self, node: Arc<LocalNode>) -> Arc<LocalNode> {
        let known = match self.by_inode.entry((node.dev, node.ino)) {
            Entry::Occupied(mut e) => {
                let known = e.get().upgrade();
                if !known.as_ref().is_some_and(|first| first.is_file_of(&node)) {
                    e.insert(Arc::downgrade(&node));
                }
                known
            }
            Entry::Vacant(e) => {
                e.insert(Arc::downgrade(&node));
                None
            }
        };
        let node = match known {
            Some(first) if first.is_file_of(&node) => first,
            displaced => {
                self.by_handle.insert(node.handle.clone(), Arc::downgrade(&node));
                if let Some(displaced) = displaced {
                    self.unlist(&displaced);
                }
                node
            }
        };
        self.touch(&node);
        self.fit();
        node
    }

    /// Removes a dropped record from the maps, unless a newer one has replaced it.
    pub(super) fn gone(&self, node: &LocalNode) {
        self.by_inode.remove_if(&(node.dev, node.ino), |_, w| w.strong_count() == 0);
        self.by_handle.remove_if(&node.handle, |_, w| w.strong_count() == 0);
    }

    /// Removes a held record from the maps: its number and handle now belong to another file.
    pub(super) fn displace(&self, node: &Arc<LocalNode>) {
        self.unlist(node);
        node.shared.displace();
    }

    fn unlist(&self, node: &Arc<LocalNode>) {
        let is_it = |known: &Weak<LocalNode>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(node));
        self.by_inode.remove_if(&(node.dev, node.ino), |_, known| is_it(known));
        self.by_handle.remove_if(&node.handle, |_, known| is_it(known));
        self.forget(node);
    }

    /// Marks a record as used.
    pub(super) fn touch(&self, node: &Arc<LocalNode>) {
        node.age.store(0, Ordering::Relaxed);
        if node.slot.load(Ordering::Relaxed) != NO_SLOT || node.is_nameless() {
            return;
        }
        let mut c = self.clock();
        if node.slot.load(Ordering::Relaxed) != NO_SLOT {
            return;
        }
        let slot = c.free.pop().unwrap_or(c.slots.len());
        if slot == c.slots.len() {
            c.slots.push(None);
        }
        c.slots[slot] = Some(node.clone());
        node.slot.store(slot, Ordering::Relaxed);
    }

    /// Drops the clock's reference to a file without a name.
    pub(super) fn forget(&self, node: &LocalNode) {
        let kept = {
            let mut c = self.clock();
            let slot = node.slot.swap(NO_SLOT, Ordering::Relaxed);
            let kept = c.slots.get_mut(slot).and_then(Option::take);
            if kept.is_some() {
                c.free.push(slot);
            }
            kept
        };
        drop(kept);
    }

    /// Frees descriptors while there are more than the budget allows, a few steps at a time.
    pub(super) fn fit(&self) {
        if descriptors::descriptors_held() <= descriptors_max().min(descriptors::bound() / 4 * 3) {
            return;
        }
        let (mut dropped, mut unsynced) = (Vec::new(), Vec::new());
        let mut c = self.clock();
        for _ in 0..STEP.min(c.slots.len()) {
            let slot = c.hand % c.slots.len();
            c.hand = slot + 1;
            let Some(node) = &c.slots[slot] else { continue };
            if node.age.fetch_add(1, Ordering::Relaxed) == 0 {
                continue;
            }
            if is_unsynced(node) {
                unsynced.push(node.clone());
            } else if Arc::strong_count(node) == 1 {
                node.slot.store(NO_SLOT, Ordering::Relaxed);
                let node = c.slots[slot].take();
                c.free.push(slot);
                dropped.push((node, None));
            } else {
                dropped.push((None, Some(node.take_descriptors())));
            }
        }
        drop(c);
        drop(dropped);
        unsynced.iter().for_each(|node: &Arc<LocalNode>| node.sync_in_background());
    }

    /// Releases records that were not used since the last sweeps.
    pub(super) fn sweep(&self) {
        drop(self.grown());
        let unsynced = self.drop_aged(|node| node.age.load(Ordering::Relaxed).saturating_add(1));
        unsynced.iter().for_each(|node| node.sync_in_background());
    }

    /// Releases all unused records when no descriptor is available. Records with unsynced data stay: their syncs are started, and
    /// callers that can wait for them wait ([`super::Volume::patient`]).
    fn squeeze(&self) {
        let unsynced = self.drop_aged(|_| AGE_DROP);
        if let Some(volume) = unsynced.first().map(|node| node.volume.clone()) {
            volume.press(unsynced);
        }
    }

    /// Runs a call that opens a file; if descriptors have run out, makes room and tries once more.
    pub(super) fn with_room<T>(&self, f: impl Fn() -> VfsResult<T>) -> VfsResult<T> {
        let is_full = || descriptors::descriptors_held() >= descriptors::bound();
        if is_full() {
            self.squeeze();
            if is_full() {
                return Err(VfsError::Resources);
            }
        }
        match f() {
            Err(VfsError::Resources) => {
                self.squeeze();
                f()
            }
            other => other,
        }
    }

    /// Returns records that must be synced before they can be dropped.
    fn drop_aged(&self, age: impl Fn(&LocalNode) -> u8) -> Vec<Arc<LocalNode>> {
        let (mut dropped, mut unsynced) = (Vec::new(), Vec::new());
        let mut c = self.clock();
        for slot in 0..c.slots.len() {
            let Some(node) = &c.slots[slot] else { continue };
            let age = age(node);
            node.age.store(age, Ordering::Relaxed);
            if age >= AGE_CLOSE && is_unsynced(node) {
                unsynced.push(node.clone());
            } else if age >= AGE_DROP && Arc::strong_count(node) == 1 {
                node.slot.store(NO_SLOT, Ordering::Relaxed);
                let node = c.slots[slot].take();
                c.free.push(slot);
                dropped.push((node, None));
            } else if age >= AGE_CLOSE {
                dropped.push((None, Some(node.take_descriptors())));
            }
        }
        drop(c);
        drop(dropped);
        unsynced
    }

    /// Releases all records without other references.
    pub(super) fn clear(&self) {
        let slots = {
            let mut c = self.clock();
            c.free.clear();
            std::mem::take(&mut c.slots)
        };
        for node in slots.iter().flatten() {
            node.slot.store(NO_SLOT, Ordering::Relaxed);
        }
    }
}
