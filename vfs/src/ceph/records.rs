//! The records of nodes in memory.
//!
//! *Operation.* An inode has one record while it is referred to. Recently used records are kept, so that a request by handle finds
//! their cached state; a sweep releases idle open files first, then idle records.
//!
//! *Memory.* At most [`KEPT_MAX`] records are kept without other references: each holds a capability of the cluster to cache its
//! inode, which an MDS recalls when its memory is short.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ceph_sys::Vino;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use mutex::locked;

use super::node::CephNode;

const KEPT_MAX: usize = 8192;
/// A record's files are closed after this many milliseconds without use.
const CLOSE_MS: u64 = 20_000;
/// A record is dropped after this many milliseconds without use.
const DROP_MS: u64 = 60_000;

/// The records of one backend.
#[derive(Default)]
pub(super) struct Records {
    by_vino: DashMap<Vino, Weak<CephNode>>,
    kept: Mutex<HashMap<Vino, Arc<CephNode>>>,
    /// No records are kept any more: a record refers to its volume, and would keep the mount open.
    is_cleared: AtomicBool,
}

impl Records {
    /// Finds the record of an inode.
    pub(super) fn find(&self, vino: Vino, now: u64) -> Option<Arc<CephNode>> {
        let found = self.by_vino.get(&vino).and_then(|w| w.upgrade())?;
        self.touch(&found, now);
        Some(found)
    }

    /// Enters a new record, or returns the one that another thread entered first.
    pub(super) fn enter(&self, node: Arc<CephNode>, now: u64) -> Arc<CephNode> {
        let first = match self.by_vino.entry(node.vino) {
            Entry::Occupied(mut e) => match e.get().upgrade() {
                Some(first) => Some(first),
                None => {
                    e.insert(Arc::downgrade(&node));
                    None
                }
            },
            Entry::Vacant(e) => {
                e.insert(Arc::downgrade(&node));
                None
            }
        };
        // The other record is dropped here, without holding a lock.
        let node = first.unwrap_or(node);
        self.touch(&node, now);
        node
    }

    /// Removes a dropped record from the map, unless a newer one has replaced it.
    pub(super) fn gone(&self, vino: Vino) {
        self.by_vino.remove_if(&vino, |_, w| w.strong_count() == 0);
    }

    fn touch(&self, node: &Arc<CephNode>, now: u64) {
        node.used.store(now, Ordering::Relaxed);
        if node.is_kept.load(Ordering::Relaxed) || node.is_nameless() {
            return;
        }
        let mut kept = locked(&self.kept);
        if self.is_cleared.load(Ordering::Relaxed) {
            return;
        }
        node.is_kept.store(true, Ordering::Relaxed);
        kept.insert(node.vino, node.clone());
        let dropped = if kept.len() > KEPT_MAX { spared(&mut kept) } else { Vec::new() };
        drop(kept);
        drop(dropped);
    }

    /// Releases the record of an inode without a name.
    pub(super) fn forget(&self, node: &CephNode) {
        let mut kept = locked(&self.kept);
        node.is_kept.store(false, Ordering::Relaxed);
        let dropped = kept.remove(&node.vino);
        drop(kept);
        drop(dropped);
    }

    /// Releases records that were not used recently.
    pub(super) fn sweep(&self, now: u64) {
        let mut dropped = Vec::new();
        let mut kept = locked(&self.kept);
        kept.retain(|_, node| {
            let idle = now.saturating_sub(node.used.load(Ordering::Relaxed));
            let goes = idle >= DROP_MS && Arc::strong_count(node) == 1;
            if goes {
                node.is_kept.store(false, Ordering::Relaxed);
                dropped.push((Some(node.clone()), None));
            } else if idle >= CLOSE_MS {
                dropped.push((None, Some(node.take_open())));
            }
            !goes
        });
        drop(kept);
        drop(dropped);
    }

    /// Releases all records without other references, and stops keeping records.
    pub(super) fn clear(&self) {
        let kept = {
            // The lock makes sure that all records entered before are included.
            let mut kept = locked(&self.kept);
            self.is_cleared.store(true, Ordering::Relaxed);
            std::mem::take(&mut *kept)
        };
        kept.values().for_each(|node| node.is_kept.store(false, Ordering::Relaxed));
    }
}

/// Removes the least recently used half of the records without other references.
fn spared(kept: &mut HashMap<Vino, Arc<CephNode>>) -> Vec<Arc<CephNode>> {
    let mut used: Vec<u64> = kept.values().map(|n| n.used.load(Ordering::Relaxed)).collect();
    let middle = used.len() / 2;
    let (_, middle, _) = used.select_nth_unstable(middle);
    let middle = *middle;
    let mut dropped = Vec::new();
    kept.retain(|_, node| {
        let goes = node.used.load(Ordering::Relaxed) <= middle && Arc::strong_count(node) == 1;
        if goes {
            node.is_kept.store(false, Ordering::Relaxed);
            dropped.push(node.clone());
        }
        !goes
    });
    dropped
}
