//! Byte-range locks and their record in the handle.
//!
//! *Operation.* A lock is taken, then written, then answered; if it cannot be written it is released again. An unlock is written,
//! then done, then answered: until then no other client gets the range, so a restart never finds two owners of it. An unlock that
//! cannot be written has no effect.
//!
//! *Memory.* Ranges of the requests that wait for the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use state::{LockKind, SmbLockRange};
use vfs::NodeId;

use super::{LOCKS_MAX, save};
use crate::open::{LOCK_SEQUENCES, Open};
use crate::open_durable::Saving;
use crate::server_state::ServerState;
use crate::status::Status;

type Lock = (SmbLockRange, LockKind);
/// Slot in `Open.LockSequenceArray`, and number.
type Sequence = (usize, u8);

/// The effects of one LOCK request.
#[derive(Debug)]
pub(crate) struct LockChange {
    node: NodeId,
    /// Ranges that it locked.
    locked: Vec<Lock>,
    /// Ranges of a persistent handle to unlock once the record is written.
    unlocks: Vec<SmbLockRange>,
    /// Slot and number that identify the request if it is sent again.
    sequence: Option<Sequence>,
}

impl LockChange {
    pub(crate) fn new(node: NodeId) -> Self {
        Self { node, locked: Vec::new(), unlocks: Vec::new(), sequence: None }
    }

    /// Adds a lock that was taken.
    pub(crate) fn locked(&mut self, open: &Open, lock: Lock) {
        open.locks.fetch_add(1, Ordering::Relaxed);
        self.locked.push(lock);
    }

    /// Releases the locks taken so far. A record with them may have been written in the meantime, so the handle is written again.
    pub(crate) fn undo(&mut self, core: &Arc<ServerState>, open: &Arc<Open>) {
        let any = !self.locked.is_empty();
        self.give_up(core, open);
        if any {
            super::note(core, vec![open.clone()]);
        }
    }

    fn give_up(&mut self, core: &ServerState, open: &Open) {
        for (lock_range, kind) in self.locked.drain(..) {
            if core.namespace.arbiter().undo_lock(self.node, &open.party, lock_range, kind) {
                open.locks.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Unlocks the ranges of `ranges` in order, up to an error or a range that is not locked. Ranges of a persistent handle remain
    /// locked until [`LockChange::settle`].
    pub(crate) fn unlock(
        &mut self,
        core: &ServerState,
        open: &Open,
        mut ranges: impl Iterator<Item = Result<SmbLockRange, Status>>,
    ) -> Result<(), Status> {
        if !open.durable.is_persistent() {
            return ranges.try_for_each(|lock_range| {
                let done = release(core, open, self.node, lock_range?);
                if done { Ok(()) } else { Err(Status::RANGE_NOT_LOCKED) }
            });
        }
        let mut saving = open.durable.saving();
        let mut held = recorded(core, open, self.node, &saving.releasing);
        ranges.try_for_each(|lock_range| {
            let lock_range = lock_range?;
            if !clear(&mut held, lock_range) {
                return Err(Status::RANGE_NOT_LOCKED);
            }
            saving.releasing.push(lock_range);
            self.unlocks.push(lock_range);
            Ok(())
        })
    }

    /// Marks the request as complete: if it is sent again after [`LockChange::settle`], it has no effect.
    pub(crate) fn is_all(&mut self, sequence: Option<Sequence>) {
        self.sequence = sequence;
    }

    /// Completes the change, for a persistent handle once it is written. After an error the change has no effect.
    pub(crate) async fn settle(
        self,
        core: &Arc<ServerState>,
        open: &Arc<Open>,
    ) -> Result<(), Status> {
        if !open.durable.is_persistent() {
            self.sequence.iter().for_each(|s| open.lock_sequences.done(s.0, s.1));
            return Ok(());
        }
        if self.locked.is_empty() && self.unlocks.is_empty() {
            return Ok(());
        }
        open.durable.saving().sequences.extend(self.sequence);
        let (core, open) = (core.clone(), open.clone());
        // Run to the end even if the requesting connection is lost.
        let settling = tokio::spawn(async move {
            let saved = save(&core, &open).await;
            self.end(&core, &open, saved.is_ok());
            saved
        });
        // Fails only if the program is ending.
        settling.await.unwrap_or(Err(Status::INSUFFICIENT_RESOURCES))
    }

    fn end(mut self, core: &ServerState, open: &Arc<Open>, is_written: bool) {
        // Hold the lock so that no record is made between the two.
        let mut saving = open.durable.saving();
        for lock_range in &self.unlocks {
            let at = saving.releasing.iter().position(|r| r == lock_range);
            at.map(|at| saving.releasing.swap_remove(at));
            if is_written {
                release(core, open, self.node, *lock_range);
            }
        }
        if let Some(sequence) = self.sequence {
            let at = saving.sequences.iter().position(|s| *s == sequence);
            at.map(|at| saving.sequences.swap_remove(at));
            if is_written {
                open.lock_sequences.done(sequence.0, sequence.1);
            }
        }
        if !is_written {
            self.give_up(core, open);
        }
        drop(saving);
        open.durable.settled.notify_waiters();
        if !is_written {
            // A record written since the error still has the lock.
            core.unwritten.owe(open);
        }
    }
}

/// Returns whether this LOCK was done before and is written. Waits for the store while it is being written.
pub(crate) async fn is_done(open: &Open, sequence: Sequence) -> bool {
    loop {
        let mut settled = std::pin::pin!(open.durable.settled.notified());
        settled.as_mut().enable();
        let waits = open.durable.saving().sequences.contains(&sequence);
        if !waits {
            return open.lock_sequences.is_done(sequence.0, sequence.1);
        }
        settled.await;
    }
}

/// Returns the lock sequence numbers as they will be once the pending changes are written.
pub(super) fn sequences(open: &Open, saving: &Saving) -> [Option<u8>; LOCK_SEQUENCES] {
    let mut all = open.lock_sequences.all();
    saving.sequences.iter().for_each(|(slot, number)| all[*slot] = Some(*number));
    all
}

/// Returns whether a handle may lock this many more ranges.
pub(crate) fn has_room(open: &Open, more: usize) -> bool {
    !open.durable.is_persistent() || open.locks.load(Ordering::Relaxed) + more <= LOCKS_MAX
}

/// Releases one lock of exactly this range. Returns false if there is none.
fn release(core: &ServerState, open: &Open, node: NodeId, lock_range: SmbLockRange) -> bool {
    let held = core.namespace.arbiter().unlock(node, &open.party, lock_range);
    if held {
        open.locks.fetch_sub(1, Ordering::Relaxed);
    }
    held
}

/// Returns the locks of a handle as they will be once its pending unlocks are done.
pub(super) fn recorded(
    core: &ServerState,
    open: &Open,
    node: NodeId,
    releasing: &[SmbLockRange],
) -> Vec<Lock> {
    let mut locks = core.namespace.arbiter().state().smb_locks_of(node, open.party.holder);
    for lock_range in releasing {
        clear(&mut locks, *lock_range);
    }
    locks
}

/// Removes the locks that an unlock of this range removes ([`state::SmbLocks::clear`]).
fn clear(locks: &mut Vec<Lock>, lock_range: SmbLockRange) -> bool {
    let exclusive = locks.iter().position(|l| *l == (lock_range, LockKind::Exclusive));
    let at = exclusive.or_else(|| locks.iter().position(|l| l.0 == lock_range));
    at.map(|at| locks.remove(at)).is_some()
}
