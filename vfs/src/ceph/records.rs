//! Which nodes are in memory.
//!
//! *Operation.* A record exists once for each inode while anybody refers to it. Those that were used lately are kept, so that a
//! request that names its file by handle finds what is known of it; a sweep lets go of what is idle, first of open files, then of
//! records.
//!
//! *Memory.* [`KEPT_MAX`] records are kept at most beside those that someone refers to: each holds a right of the cluster to cache
//! its inode, which an MDS asks back where its own memory is short.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ceph_sys::Vino;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use mutex::locked;

use super::node::CephNode;

/// Records that are kept.
const KEPT_MAX: usize = 8192;
/// After so many milliseconds without use a record's files are closed ...
const CLOSE_MS: u64 = 20_000;
/// ... and after so many the record goes.
const DROP_MS: u64 = 60_000;

/// The records of one backend.
#[derive(Default)]
pub(super) struct Records {
    by_vino: DashMap<Vino, Weak<CephNode>>,
    kept: Mutex<HashMap<Vino, Arc<CephNode>>>,
    /// Nothing is kept any more: a record holds its volume, and would keep the mount for ever.
    is_cleared: AtomicBool,
}

impl Records {
    /// The record of an inode.
    pub(super) fn find(&self, vino: Vino, now: u64) -> Option<Arc<CephNode>> {
        let found = self.by_vino.get(&vino).and_then(|w| w.upgrade())?;
        self.touch(&found, now);
        Some(found)
    }

    /// Enters a new record, or gives the one that another thread entered first.
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
        // The other record is dropped here, where no lock is held.
        let node = first.unwrap_or(node);
        self.touch(&node, now);
        node
    }

    /// Takes a record that is going out of the map, unless a newer one has its place.
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

    /// Lets a record go: its inode has no name any more.
    pub(super) fn forget(&self, node: &CephNode) {
        let mut kept = locked(&self.kept);
        node.is_kept.store(false, Ordering::Relaxed);
        let dropped = kept.remove(&node.vino);
        drop(kept);
        drop(dropped);
    }

    /// Lets go of what was not used lately.
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

    /// Lets go of everything that nobody else refers to, and keeps nothing from now on.
    pub(super) fn clear(&self) {
        let kept = {
            // Under the lock: whoever looked before has entered what is taken here.
            let mut kept = locked(&self.kept);
            self.is_cleared.store(true, Ordering::Relaxed);
            std::mem::take(&mut *kept)
        };
        kept.values().for_each(|node| node.is_kept.store(false, Ordering::Relaxed));
    }
}

/// The half of the records that was not used for the longest time, as far as nobody refers to them.
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
