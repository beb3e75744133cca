//! The records of all nodes in use, in shards, with a fast path for nodes that no client restricts.
//!
//! *Operation.* Nearly every read and write concerns a file without locks, grants or deny modes. [`Table::check_conflicts`] then
//! costs one load from a small array of counters ([`Slot`]). Nodes share a slot by hash, and a nonzero slot only leads to a look-up
//! in the shard. Writers register in the slot ([`Table::writing`]) before they check, and a new grant of read caching checks for
//! writers after it was entered. One of the two therefore always sees the other, and no client is promised a cache while an unseen
//! write is in progress.
//!
//! *Memory.* One record per node in use; 64 KiB of slots.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use mutex::locked;

use crate::access::Share;
use crate::caching::{CacheRequest, Caching, Kind, Operation};
use crate::grants::{Acknowledged, Held};
use crate::holder::{Holder, Requester};
use crate::id::{CacheKey, ClientId, HolderId, Millis, NodeHasher, NodeId, mix};
use crate::node::{Limits, LockVerdict, Opening, Record, Verdict};
use crate::pending::Name;
use crate::range::{Enforce, LockKind, Range};
use crate::recall::{Break, Deadlines};
use crate::smb_lock::SmbLockRange;
use crate::turns::{self, Turns, Waiter};

const SHARDS: usize = 64;
const SLOTS: usize = 4096;

type Shard = HashMap<NodeId, Record, BuildHasherDefault<NodeHasher>>;

/// Facts about all nodes of one hash, readable without a lock.
#[derive(Debug, Default)]
struct Slot {
    /// Number of records that can conflict with an operation.
    restrictive: AtomicU32,
    /// Number of writes in progress.
    writers: AtomicU32,
    /// Node and time of the last break, packed by [`broken`]; no new grant is given on that node for a while.
    broken: AtomicU64,
    /// Number of nodes from which a client was sent away to retry.
    turns: AtomicU32,
}

/// Bits of the node number in [`Slot::broken`]: enough to distinguish it from most others in the slot.
const TAG_BITS: u32 = 20;

/// Packs a time and part of a node number into one word.
fn broken(node: NodeId, ms: Millis) -> u64 {
    ms << TAG_BITS | mix(node.0) & ((1 << TAG_BITS) - 1)
}

/// Registers a write until it is dropped.
#[must_use = "the write is announced only while this lives"]
#[derive(Debug)]
pub struct Writing<'a> {
    slot: &'a Slot,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.slot.writers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Counts a node that now has what it had not before, or the reverse.
fn count(nodes: &AtomicUsize, before: bool, after: bool) {
    match (before, after) {
        (false, true) => nodes.fetch_add(1, Ordering::SeqCst),
        (true, false) => nodes.fetch_sub(1, Ordering::SeqCst),
        _ => 0,
    };
}

/// All state of all nodes.
#[derive(Debug)]
pub struct Table {
    shards: Box<[Mutex<Shard>]>,
    slots: Box<[Slot]>,
    grants: AtomicUsize,
    /// Number of nodes whose records can conflict with an operation.
    restrictive: AtomicUsize,
    /// Number of nodes with names marked for removal.
    pending: AtomicUsize,
    /// Number of nodes from which clients were sent away; `turns` has the clients.
    waiting: AtomicUsize,
    turns: Mutex<Turns>,
    next_holder: AtomicU64,
    next_key: AtomicU32,
    deadlines: Deadlines,
    limits: Limits,
    /// Time after a break during which the node gets no new grant.
    cool_ms: u64,
}

impl Table {
    pub fn new(deadlines: Deadlines, limits: Limits, cool_ms: u64) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            grants: AtomicUsize::new(0),
            restrictive: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            turns: Mutex::default(),
            next_holder: AtomicU64::new(1),
            next_key: AtomicU32::new(0),
            deadlines,
            limits,
            cool_ms,
        }
    }

    /// Returns a new, unique holder number.
    pub fn holder(&self) -> HolderId {
        HolderId(self.next_holder.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns a key for a new SMB open or lease.
    pub fn key(&self) -> ClientId {
        ClientId::key(self.next_key.fetch_add(1, Ordering::Relaxed))
    }

    pub fn deadlines(&self) -> Deadlines {
        self.deadlines
    }

    /// Counts the nodes with caching grants.
    pub fn grants(&self) -> usize {
        self.grants.load(Ordering::Relaxed)
    }

    /// Checks whether any node has a record that can conflict with an operation. Ordered like the slots, so a writer may check this
    /// first.
    pub fn is_used(&self) -> bool {
        self.restrictive.load(Ordering::SeqCst) > 0
    }

    /// Counts the nodes in use. Locks every shard, so use it for `status`, not on the data path.
    pub fn nodes(&self) -> usize {
        self.shards.iter().map(|s| locked(s).len()).sum()
    }

    /// Counts the byte-range locks. Visits every node, so use it for `status`, not on the data path.
    pub fn locks(&self) -> usize {
        let of = |s: &Mutex<Shard>| locked(s).values().map(|r| r.locks()).sum::<usize>();
        self.shards.iter().map(of).sum()
    }

    fn slot(&self, node: NodeId) -> &Slot {
        // Invariant: the remainder is below SLOTS, so it fits and is in bounds.
        #[allow(clippy::cast_possible_truncation)]
        let at = (mix(node.0) >> 40) as usize % SLOTS;
        &self.slots[at]
    }

    fn shard(&self, node: NodeId) -> MutexGuard<'_, Shard> {
        // Invariant: see `slot`.
        #[allow(clippy::cast_possible_truncation)]
        let at = (mix(node.0) >> 20) as usize % SHARDS;
        // A panic under the lock leaves a consistent record, because every change is one step.
        locked(&self.shards[at])
    }

    /// Changes a node's record, updates the counters, and removes the record if it becomes empty.
    fn change<T>(&self, node: NodeId, change: impl FnOnce(&mut Record) -> T) -> T {
        let mut shard = self.shard(node);
        let record = shard.entry(node).or_default();
        let of = |r: &Record| (r.is_restrictive(), r.has_grants(), r.has_pending_deletes());
        let before = of(record);
        let out = change(record);
        let after = of(record);
        if record.is_empty() {
            shard.remove(&node);
        }
        match (before.0, after.0) {
            (false, true) => {
                self.slot(node).restrictive.fetch_add(1, Ordering::SeqCst);
                self.restrictive.fetch_add(1, Ordering::SeqCst);
            }
            (true, false) => {
                self.slot(node).restrictive.fetch_sub(1, Ordering::SeqCst);
                self.restrictive.fetch_sub(1, Ordering::SeqCst);
            }
            _ => {}
        }
        count(&self.grants, before.1, after.1);
        count(&self.pending, before.2, after.2);
        out
    }

    /// Registers a write; drop the result when the write has finished. Must precede [`Table::check_conflicts`].
    pub fn writing(&self, node: NodeId) -> Writing<'_> {
        let slot = self.slot(node);
        slot.writers.fetch_add(1, Ordering::SeqCst);
        Writing { slot }
    }

    /// Decides whether an operation may proceed now. Costs one load when no client restricts a node of this hash.
    pub fn check_conflicts(
        &self,
        node: NodeId,
        requester: Option<Requester>,
        op: Operation,
        range: Range,
        now: Millis,
    ) -> Verdict {
        if self.slot(node).restrictive.load(Ordering::SeqCst) == 0 {
            return Verdict::Go;
        }
        let shard = self.shard(node);
        let Some(record) = shard.get(&node) else {
            return Verdict::Go;
        };
        // A break without acknowledgement may empty the record at once, which changes the counters.
        if !record.would_break(requester.map(|w| w.key()), op) {
            return record.refused(requester, op, range, now).unwrap_or(Verdict::Go);
        }
        drop(shard);
        let verdict = self
            .change(node, |r| r.check_conflicts(node, requester, op, range, now, self.deadlines));
        self.note_break(node, &verdict, now);
        verdict
    }

    /// Checks that no holder conflicts with an operation, at any time: [`Table::check_conflicts`] would return [`Verdict::Go`].
    /// Costs one load when no client restricts a node of this hash.
    pub fn is_free(
        &self,
        node: NodeId,
        requester: Option<Requester>,
        op: Operation,
        range: Range,
    ) -> bool {
        if self.slot(node).restrictive.load(Ordering::SeqCst) == 0 {
            return true;
        }
        self.shard(node).get(&node).is_none_or(|record| {
            // Time decides whether a conflicting holder denies or has lapsed, not whether it conflicts.
            !record.would_break(requester.map(|w| w.key()), op)
                && record.refused(requester, op, range, 0).is_none()
        })
    }

    /// Checks whether an operation would break a client's caching. Costs one load when no client restricts a node of this hash.
    pub fn would_break(&self, node: NodeId, by: Option<CacheKey>, op: Operation) -> bool {
        self.slot(node).restrictive.load(Ordering::SeqCst) != 0
            && self.shard(node).get(&node).is_some_and(|r| r.would_break(by, op))
    }

    /// Opens a node for a holder, or widens its open.
    pub fn open(
        &self,
        node: NodeId,
        party: &Holder,
        how: impl Into<Opening>,
        now: Millis,
    ) -> Verdict {
        let how = how.into();
        let verdict =
            self.change(node, |r| r.open(node, party, how, now, self.deadlines, &self.limits));
        self.note_break(node, &verdict, now);
        verdict
    }

    fn note_break(&self, node: NodeId, verdict: &Verdict, now: Millis) {
        if matches!(verdict, Verdict::WaitFor(_)) {
            self.slot(node).broken.store(broken(node, now.max(1)), Ordering::Relaxed);
        }
    }

    /// Checks whether caching of this node was broken so recently that a new grant would soon be broken as well.
    fn is_contended(&self, node: NodeId, now: Millis) -> bool {
        let last = self.slot(node).broken.load(Ordering::Relaxed);
        let when = last >> TAG_BITS;
        last != 0 && last == broken(node, when) && now.saturating_sub(when) < self.cool_ms
    }

    /// Reduces a holder's open to exactly this share mode. Returns false if it has no open.
    pub fn narrow(&self, node: NodeId, holder: HolderId, share: Share) -> bool {
        self.change(node, |r| r.narrow(holder, share))
    }

    /// Removes everything that this holder has on the node: opens, locks, caching.
    pub fn release(&self, node: NodeId, holder: HolderId) {
        self.change(node, |r| r.release(holder));
    }

    /// As [`Table::release`], by the holder's own client: an answer to a break of its caching.
    pub fn give_back(&self, node: NodeId, holder: HolderId, now: Millis) {
        self.change(node, |r| r.give_back(holder, now, self.deadlines));
    }

    /// Copies a holder's opens and grants from one node to another that is about to replace it. No other client knows the new node
    /// yet, so no conflict is possible.
    pub fn follow(&self, from: NodeId, to: NodeId, holder: HolderId) {
        let part = self.shard(from).get(&from).map(|r| r.part(holder));
        if let Some(part) = part.filter(|p| !p.is_empty()) {
            self.change(to, |r| r.take_in(part, holder));
        }
    }

    /// Grants a delegation or widens the holder's delegation. Refuses if another client's state conflicts, a write is in progress,
    /// or caching of the node was just broken.
    pub fn delegate(&self, node: NodeId, party: &Holder, rights: Caching, now: Millis) -> bool {
        let slot = self.slot(node);
        if self.is_contended(node, now) {
            return false;
        }
        let waiting = self.before_whom(node, party.client(), now);
        if turns::spared(&waiting, Kind::Delegation, rights) != rights {
            return false;
        }
        let before = self.held(node, party.holder).unwrap_or_default().rights;
        if !self.change(node, |r| r.delegate(party, rights, &self.limits)) {
            return false;
        }
        // A writer that checked before the grant was entered is still registered; one that checks from now on sees the grant.
        if slot.writers.load(Ordering::SeqCst) != 0 {
            self.acknowledge(node, party.holder, before, now);
            return false;
        }
        true
    }

    /// Returns the holder of the delegation with this key on a node.
    pub fn delegation(&self, node: NodeId, key: impl Into<CacheKey>) -> Option<HolderId> {
        let key = key.into();
        self.shard(node).get(&node).and_then(|r| r.delegation(key))
    }

    /// Returns another client with a write delegation, or the same with one through another share, which may have a newer size and
    /// newer times than the server. Costs one load when no client restricts a node of this hash.
    pub fn keeps_back(&self, node: NodeId, by: Option<CacheKey>) -> Option<(ClientId, HolderId)> {
        if self.slot(node).restrictive.load(Ordering::SeqCst) == 0 {
            return None;
        }
        self.shard(node).get(&node).and_then(|r| r.keeps_back(by))
    }

    /// Grants the possible part of an oplock or a lease, or widens the holder's grant, and returns the resulting rights. Call it
    /// after the open so that no other open can intervene.
    pub fn cache(&self, node: NodeId, party: &Holder, want: CacheRequest, now: Millis) -> Held {
        let before = self.held(node, party.holder).unwrap_or_default();
        let waiting = self.before_whom(node, party.client(), now);
        let held = self.change(node, |r| r.cache(party, want, &waiting, &self.limits));
        // Same race as in `delegate`: a write that checked before this grant was entered may still be in progress.
        if held.rights != before.rights && self.slot(node).writers.load(Ordering::SeqCst) != 0 {
            self.acknowledge(node, party.holder, before.rights, now);
            return before;
        }
        held
    }

    /// Returns the caching rights of this holder.
    pub fn held(&self, node: NodeId, holder: HolderId) -> Option<Held> {
        self.shard(node).get(&node).and_then(|r| r.held(holder))
    }

    /// Returns the breaks that start because the node was already changed without a check.
    pub fn changed(&self, node: NodeId, op: Operation, now: Millis) -> Vec<Break> {
        if self.slot(node).restrictive.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        self.change(node, |r| r.changed(node, op, now, self.deadlines))
    }

    /// Checks whether a client may cache this node.
    pub fn is_cached(&self, node: NodeId) -> bool {
        self.shard(node).get(&node).is_some_and(Record::has_grants)
    }

    /// Counts the opens of a node with keys other than `but`.
    pub fn opens(&self, node: NodeId, but: Option<CacheKey>) -> usize {
        self.shard(node).get(&node).map_or(0, |r| r.opens(but))
    }

    /// Reduces the caching rights of the holder to `to`.
    pub fn acknowledge(
        &self,
        node: NodeId,
        holder: HolderId,
        to: Caching,
        now: Millis,
    ) -> Acknowledged {
        self.change(node, |r| r.acknowledge(node, holder, to, now, self.deadlines))
    }

    /// Returns the time by which the holder must acknowledge this break: later than [`Break::deadline`] if its client has written
    /// back meanwhile.
    pub fn deadline(&self, what: &Break) -> Millis {
        let (shard, first) = (self.shard(what.node), what.deadline);
        shard.get(&what.node).map_or(first, |r| r.deadline(what.holder, first))
    }

    /// Removes the caching rights of a holder that did not acknowledge this break in time. Its client has less time for its further
    /// breaks, until it answers one. Returns false if the break is over.
    pub fn revoke(&self, what: &Break, now: Millis) -> bool {
        self.change(what.node, |r| r.revoke(what.holder, what.deadline, now, self.deadlines))
    }

    /// Grants a lock, or returns the conflict.
    pub fn lock(
        &self,
        node: NodeId,
        party: &Holder,
        range: Range,
        kind: LockKind,
        enforce: Enforce,
        now: Millis,
    ) -> LockVerdict {
        self.change(node, |r| r.lock(party, range, kind, enforce, now, &self.limits))
    }

    /// Returns the conflict that a lock request would meet. For a holder that does not exist yet, pass a fresh number.
    pub fn test(
        &self,
        node: NodeId,
        holder: HolderId,
        range: Range,
        kind: LockKind,
        now: Millis,
    ) -> LockVerdict {
        let shard = self.shard(node);
        shard.get(&node).map_or(LockVerdict::Go, |r| r.test(holder, range, kind, now))
    }

    /// Removes a lock. Returns false if splitting an existing lock would exceed a limit.
    pub fn unlock(&self, node: NodeId, party: &Holder, range: Range) -> bool {
        self.change(node, |r| r.unlock(party, range, &self.limits))
    }

    /// Grants an SMB lock, or returns the conflict.
    pub fn lock_smb(
        &self,
        node: NodeId,
        party: &Holder,
        lock_range: SmbLockRange,
        kind: LockKind,
        now: Millis,
    ) -> LockVerdict {
        self.change(node, |r| r.lock_smb(party, lock_range, kind, now, &self.limits))
    }

    /// Removes an SMB lock. Returns false if no lock has exactly this range.
    pub fn unlock_smb(&self, node: NodeId, party: &Holder, lock_range: SmbLockRange) -> bool {
        self.change(node, |r| r.unlock_smb(party, lock_range))
    }

    /// Removes the newest SMB lock of this range and kind. Returns false if there is none.
    pub fn undo_smb(
        &self,
        node: NodeId,
        party: &Holder,
        lock_range: SmbLockRange,
        kind: LockKind,
    ) -> bool {
        self.change(node, |r| r.undo_smb(party, lock_range, kind))
    }

    /// Returns the SMB locks of a holder.
    pub fn smb_locks_of(&self, node: NodeId, holder: HolderId) -> Vec<(SmbLockRange, LockKind)> {
        self.shard(node).get(&node).map_or_else(Vec::new, |r| r.smb_locks_of(holder))
    }

    /// Counts the byte-range locks of this node.
    pub fn locks_on(&self, node: NodeId) -> usize {
        self.shard(node).get(&node).map_or(0, |r| r.locks())
    }

    /// Checks whether the holder has a lock on this node.
    pub fn holds_lock(&self, node: NodeId, holder: HolderId) -> bool {
        self.shard(node).get(&node).is_some_and(|r| r.holds_lock(holder))
    }

    /// Checks whether a client was sent away from this node and may still be due to retry. Costs one load while no client is.
    pub fn has_turns(&self, node: NodeId) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
            && self.slot(node).turns.load(Ordering::Relaxed) > 0
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        // A panic under the lock is harmless: every change is one step, as in a shard.
        locked(&self.turns)
    }

    /// Records that a client (if known) must retry `op` later. Until it has retried, no other client gets caching that would make
    /// it wait again ([`crate::turns`]).
    pub fn sent_away(&self, node: NodeId, client: Option<ClientId>, op: Operation, now: Millis) {
        let mut turns = self.turns();
        let is_new = !turns.has(node);
        for gone in turns.sent_away(node, client, op, now) {
            self.slot(gone).turns.fetch_sub(1, Ordering::Relaxed);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        if is_new {
            self.slot(node).turns.fetch_add(1, Ordering::Relaxed);
            self.waiting.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records that this client's operation proceeds, so that its retry is done. Call it where [`Table::has_turns`].
    pub fn had_turn(&self, node: NodeId, client: Option<ClientId>, op: Operation, now: Millis) {
        let mut turns = self.turns();
        if turns.served(node, client, op, now) {
            self.slot(node).turns.fetch_sub(1, Ordering::Relaxed);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns the clients other than `client` that must be served before it.
    pub(crate) fn before_whom(&self, node: NodeId, client: ClientId, now: Millis) -> Vec<Waiter> {
        if !self.has_turns(node) {
            return Vec::new();
        }
        self.turns().check_conflicts(node, client, now)
    }

    /// Counts the nodes with names marked for removal.
    pub fn pending_deletes(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// Replaces the names of a node that are marked for removal.
    pub fn set_pending_deletes(&self, node: NodeId, names: Vec<Name>) {
        self.change(node, |r| r.set_pending_deletes(names));
    }

    /// Checks whether names of this node are marked for removal. Costs one load while no such node exists.
    pub fn has_pending_deletes(&self, node: NodeId) -> bool {
        self.pending_deletes() > 0
            && self.shard(node).get(&node).is_some_and(Record::has_pending_deletes)
    }

    /// Checks whether an open or change through this name concerns a file about to be deleted: the name is marked, or all `links`
    /// names of the node are. `name` may be `None`. Costs one load while no name of any node is marked.
    pub fn is_delete_pending(
        &self,
        node: NodeId,
        name: Option<(NodeId, &[u8])>,
        links: u32,
    ) -> bool {
        self.pending_deletes() > 0
            && self.shard(node).get(&node).is_some_and(|r| r.is_delete_pending(name, links))
    }

    /// Returns the breaks of all nodes whose deadline has passed. Locks every shard, so call it from a timer.
    pub fn overdue(&self, now: Millis) -> Vec<Break> {
        let mut out = Vec::new();
        if self.grants() > 0 {
            for shard in &self.shards {
                let shard = locked(shard);
                shard.iter().for_each(|(node, r)| r.overdue(*node, now, &mut out));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::access::Rights;
    use crate::expiry::{Lease, Terms};
    use crate::id::ClientId;
    use crate::recall::Stage;

    const N: NodeId = NodeId(7);
    const TERMS: Terms = Terms { lease_ms: 100, courtesy_ms: 1_000 };

    fn table() -> Table {
        Table::new(Deadlines::new(10, 20).unwrap(), Limits::default(), 30)
    }

    fn party(t: &Table, client: u64) -> Holder {
        let lease = Arc::new(Lease::new(ClientId(client), TERMS, 0));
        Holder { holder: t.holder(), lease, via: 0 }
    }

    fn share(access: Rights, deny: Rights) -> Share {
        Share::new(access, deny)
    }

    const READ: Share = Share { access: Rights::READ, deny: Rights::NONE };
    const WRITE: Share = Share { access: Rights::WRITE, deny: Rights::NONE };

    #[test]
    fn denied_write_names_the_denying_holder() {
        let t = table();
        let a = party(&t, 1);
        assert!(t.check_conflicts(N, None, Operation::Write, Range::ALL, 0).is_go());
        assert!(t.open(N, &a, share(Rights::READ, Rights::WRITE), 0).is_go());
        let denied = Verdict::Denied { by: a.holder };
        assert_eq!(t.check_conflicts(N, None, Operation::Write, Range::ALL, 0), denied);
        assert!(t.check_conflicts(N, None, Operation::Read, Range::ALL, 0).is_go());
        let b = party(&t, 2);
        assert_eq!(t.open(N, &b, WRITE, 0), denied);
        t.release(N, a.holder);
        assert!(t.open(N, &b, WRITE, 0).is_go());
        assert!(t.check_conflicts(N, None, Operation::Write, Range::ALL, 0).is_go());
        t.release(N, b.holder);
        assert_eq!(t.nodes(), 0, "an empty record vanishes");
    }

    #[test]
    fn is_free_does_not_depend_on_time() {
        let t = table();
        let (a, b) = (party(&t, 1), party(&t, 2));
        let is_free = |p: &Holder, op| {
            t.is_free(
                N,
                Some(Requester { client: p.client(), via: 0, holder: None }),
                op,
                Range::ALL,
            )
        };
        assert!(is_free(&b, Operation::Write), "nobody holds anything");
        assert!(t.open(N, &a, READ, 0).is_go());
        assert!(t.delegate(N, &a, Caching::READ_HANDLE, 0));
        assert!(is_free(&a, Operation::Write) && is_free(&b, Operation::Read));
        assert!(!is_free(&b, Operation::Write), "it takes a delegation from another");
        t.release(N, a.holder);
        assert!(t.open(N, &a, share(Rights::READ, Rights::WRITE), 0).is_go());
        assert!(!is_free(&b, Operation::Write) && is_free(&b, Operation::Read));
        a.lease.end();
        assert!(!is_free(&b, Operation::Write), "what has lapsed has to be cleared away");
    }

    #[test]
    fn break_passes_from_started_to_overdue() {
        let t = table();
        let a = party(&t, 1);
        assert!(t.open(N, &a, READ, 0).is_go());
        assert!(t.delegate(N, &a, Caching::READ_HANDLE, 0));
        let stage = |now| match t.check_conflicts(N, None, Operation::Write, Range::ALL, now) {
            Verdict::WaitFor(b) => Some(b[0].stage),
            _ => None,
        };
        assert_eq!(stage(1), Some(Stage::Started));
        assert_eq!(stage(2), Some(Stage::UnderWay));
        assert!(t.overdue(10).is_empty());
        assert_eq!(stage(11), Some(Stage::Overdue));
        assert_eq!(t.overdue(11).len(), 1);
        assert!(t.acknowledge(N, a.holder, Caching::NONE, 12).held);
        assert_eq!(stage(12), None);
        assert_eq!(t.grants(), 0);
    }

    #[test]
    fn grant_refused_during_write_or_cooldown() {
        let t = table();
        let (a, b) = (party(&t, 1), party(&t, 2));
        let grant = |p: &Holder, now| t.delegate(N, p, Caching::READ_HANDLE, now);
        let writing = t.writing(N);
        assert!(!grant(&a, 0), "a write is under way");
        assert_eq!(t.grants(), 0);
        drop(writing);
        assert!(t.open(N, &b, WRITE, 0).is_go());
        assert!(!grant(&a, 0), "somebody has it open for writing");
        t.release(N, b.holder);
        assert!(grant(&a, 0));
        assert!(!grant(&a, 0), "once per client");
        assert!(grant(&b, 0), "readers share");
        assert!(!t.check_conflicts(N, None, Operation::Names, Range::ALL, 5).is_go());
        t.release(N, a.holder);
        t.release(N, b.holder);
        assert!(!grant(&a, 34), "broken at 5, cool until 35");
        assert!(grant(&a, 35));
    }

    #[test]
    fn caching_with_locks_is_not_widened() {
        let t = table();
        let key = t.key();
        let party = || Holder { holder: t.holder(), lease: Arc::new(Lease::held(key)), via: 0 };
        let (open, lease) = (party(), party());
        let bytes = SmbLockRange::new(0, 10).unwrap();
        let ask = |want| t.cache(N, &lease, CacheRequest::new(Kind::Lease, want), 0).rights;
        assert!(t.open(N, &open, READ, 0).is_go());
        assert_eq!(ask(Caching::READ_HANDLE), Caching::READ_HANDLE);
        assert_eq!(t.lock_smb(N, &open, bytes, LockKind::Exclusive, 0), LockVerdict::Go);
        assert_eq!(ask(Caching::ALL), Caching::READ_HANDLE);
        t.acknowledge(N, lease.holder, Caching::NONE, 0);
        assert_eq!(ask(Caching::ALL), Caching::NONE);
        assert!(t.unlock_smb(N, &open, bytes));
        assert_eq!(ask(Caching::ALL), Caching::ALL);
    }

    /// MS-FSA section 2.1.5.18.2; bytes past the allocation size cannot be cached.
    #[test]
    fn locks_past_allocation_forbid_exclusive_caching() {
        let t = table();
        let (open, lease) = (party(&t, 1), party(&t, 2));
        let ask = |allocated| {
            let want = CacheRequest { kind: Kind::Lease, rights: Caching::ALL, allocated };
            let held = t.cache(N, &lease, want, 0).rights;
            t.acknowledge(N, lease.holder, Caching::NONE, 0);
            held
        };
        let bytes = SmbLockRange::new(10, 1).unwrap();
        assert_eq!(t.lock_smb(N, &open, bytes, LockKind::Exclusive, 0), LockVerdict::Go);
        assert_eq!(
            [ask(0), ask(10), ask(11)],
            [Caching::READ_HANDLE, Caching::READ_HANDLE, Caching::NONE]
        );
        assert!(t.unlock_smb(N, &open, bytes));
        assert_eq!(ask(11), Caching::ALL);
    }

    /// MS-FSA section 2.1.5.18.1: an open of more than attributes counts, though it breaks no lease.
    #[test]
    fn security_descriptor_open_forbids_exclusive_caching() {
        let t = table();
        let (lease, other) = (party(&t, 1), party(&t, 2));
        let ask = || {
            let want = CacheRequest::new(Kind::Lease, Caching::ALL);
            t.cache(N, &lease, want, 0).rights
        };
        let attributes = Opening { attributes_only: true, ..Opening::default() };
        let control = Opening { control: true, ..attributes };
        assert!(t.open(N, &other, attributes, 0).is_go());
        assert_eq!(ask(), Caching::ALL);
        assert!(t.open(N, &other, control, 0).is_go(), "it stands");
        assert_eq!(ask(), Caching::ALL);
        t.acknowledge(N, lease.holder, Caching::NONE, 0);
        assert_eq!(ask(), Caching::READ_HANDLE);
        assert!(
            t.open(N, &party(&t, 3), share(Rights::BOTH, Rights::ALL), 0).is_go(),
            "it denies nothing"
        );
        t.release(N, other.holder);
    }

    #[test]
    fn write_delegation_requires_sole_opener() {
        let t = table();
        let (a, b, open) = (party(&t, 1), party(&t, 2), party(&t, 1));
        let grant = |p: &Holder| t.delegate(N, p, Caching::ALL, 0);
        assert!(t.open(N, &b, READ, 0).is_go());
        assert!(!grant(&a), "another has it open");
        t.release(N, b.holder);
        let r = Range { first: 0, last: 9 };
        assert_eq!(t.lock(N, &b, r, LockKind::Shared, Enforce::Advisory, 0), LockVerdict::Go);
        assert!(!grant(&a), "another has locked it");
        t.release(N, b.holder);
        assert!(
            t.lock_smb(N, &b, SmbLockRange::new(0, 9).unwrap(), LockKind::Shared, 0)
                == LockVerdict::Go
        );
        assert!(!grant(&a), "another has locked it, by SMB");
        t.release(N, b.holder);
        assert!(t.open(N, &open, share(Rights::BOTH, Rights::NONE), 0).is_go());
        assert!(grant(&a), "its own opens are not in the way");
        assert_eq!(t.keeps_back(N, Some(ClientId(1).into())), None, "not from itself");
        assert_eq!(t.keeps_back(N, Some(ClientId(2).into())), Some((ClientId(1), a.holder)));
        assert_eq!(t.keeps_back(N, None), Some((ClientId(1), a.holder)));
        assert!(!grant(&b) && !t.delegate(N, &b, Caching::READ_HANDLE, 0));
        assert!(!t.open(N, &b, READ, 0).is_go(), "it is recalled first");
        assert!(t.acknowledge(N, a.holder, Caching::NONE, 0).held);
        assert_eq!(t.keeps_back(N, None), None);
        assert!(t.open(N, &b, READ, 0).is_go());
    }

    #[test]
    fn sole_read_delegation_widens_to_write() {
        let t = table();
        let (a, b) = (party(&t, 1), party(&t, 2));
        assert!(t.delegate(N, &a, Caching::READ_HANDLE, 0));
        assert_eq!(t.delegation(N, ClientId(1)), Some(a.holder));
        assert_eq!(t.delegation(N, ClientId(2)), None);
        assert!(t.delegate(N, &b, Caching::READ_HANDLE, 0));
        assert!(!t.delegate(N, &a, Caching::ALL, 0), "another reads by its own");
        t.release(N, b.holder);
        let writing = t.writing(N);
        assert!(!t.delegate(N, &a, Caching::ALL, 0), "a write is under way");
        assert_eq!(t.held(N, a.holder).unwrap().rights, Caching::READ_HANDLE, "as before");
        drop(writing);
        assert!(t.delegate(N, &a, Caching::ALL, 0));
        assert!(!t.delegate(N, &a, Caching::ALL, 0), "there is nothing more");
        assert!(!t.delegate(N, &a, Caching::READ_HANDLE, 0), "nor less");
        assert_eq!(t.held(N, a.holder).unwrap().rights, Caching::ALL);
    }

    #[test]
    fn replacing_node_inherits_opens_and_grants() {
        let t = table();
        let (open, lease, other) = (party(&t, 1), party(&t, 1), party(&t, 2));
        let new = NodeId(N.0 + 1);
        assert!(t.open(N, &open, share(Rights::BOTH, Rights::BOTH), 0).is_go());
        assert_eq!(
            t.cache(N, &lease, CacheRequest::new(Kind::Lease, Caching::ALL), 0).rights,
            Caching::ALL
        );
        for holder in [open.holder, lease.holder, other.holder] {
            t.follow(N, new, holder);
        }
        for node in [N, new] {
            assert_eq!(t.held(node, lease.holder).unwrap().rights, Caching::ALL);
            assert_eq!(t.opens(node, None), 1);
            assert!(!t.open(node, &other, READ, 0).is_go(), "denied, or first taken back");
        }
        let broken = t.held(new, lease.holder).unwrap();
        t.follow(new, N, lease.holder);
        assert_eq!(t.held(N, lease.holder), Some(broken), "as it is now, once");
        for holder in [open.holder, lease.holder] {
            t.release(N, holder);
            t.release(new, holder);
        }
        assert!((t.nodes(), t.grants(), t.is_used()) == (0, 0, false), "nothing is left");
    }

    #[test]
    fn client_never_conflicts_with_itself() {
        let t = table();
        let a = party(&t, 1);
        assert!(t.delegate(N, &a, Caching::READ_HANDLE, 0));
        let own = Some(Requester { client: ClientId(1), via: 0, holder: None });
        assert!(t.check_conflicts(N, own, Operation::Names, Range::ALL, 0).is_go());
        let other = Some(Requester { client: ClientId(2), via: 0, holder: None });
        assert!(!t.check_conflicts(N, other, Operation::Names, Range::ALL, 0).is_go());
    }

    #[test]
    fn lapsed_client_is_reported_for_release() {
        let t = table();
        let (a, b) = (party(&t, 1), party(&t, 2));
        assert!(t.open(N, &a, share(Rights::BOTH, Rights::BOTH), 0).is_go());
        assert_eq!(t.open(N, &b, READ, 100), Verdict::Denied { by: a.holder });
        assert_eq!(t.open(N, &b, READ, 101), Verdict::Lapsed(vec![ClientId(1)]));
        let r = Range { first: 0, last: 9 };
        let lock = |p: &Holder, now| t.lock(N, p, r, LockKind::Exclusive, Enforce::Advisory, now);
        assert_eq!(lock(&a, 0), LockVerdict::Go);
        assert!(matches!(lock(&b, 100), LockVerdict::Denied(l) if l.owner == a));
        assert_eq!(lock(&b, 101), LockVerdict::Lapsed(vec![ClientId(1)]));
        a.lease.renew(101);
        assert!(matches!(lock(&b, 101), LockVerdict::Denied(_)));
    }

    #[test]
    fn every_list_has_a_limit() {
        let limits = Limits {
            opens_per_node: 2,
            opens_per_client: 2,
            opens_per_host: 2,
            locks_per_node: 4,
            locks_per_client: 4,
            locks_per_host: 4,
            grants_per_node: 1,
        };
        let t = Table::new(Deadlines::new(10, 20).unwrap(), limits, 0);
        let p: Vec<_> = (0..4).map(|n| party(&t, n)).collect();
        assert!(t.delegate(N, &p[0], Caching::READ_HANDLE, 0));
        assert!(!t.delegate(N, &p[1], Caching::READ_HANDLE, 0));
        assert!(t.open(N, &p[0], READ, 0).is_go() && t.open(N, &p[1], READ, 0).is_go());
        assert_eq!(t.open(N, &p[2], READ, 0), Verdict::Full("opens_per_node"));
        assert!(t.open(N, &p[0], READ, 0).is_go(), "one that is there already may widen");
        let at = |n: u64| Range { first: n * 10, last: n * 10 + 5 };
        let lock = |n| t.lock(N, &p[0], at(n), LockKind::Shared, Enforce::Advisory, 0);
        assert_eq!(
            (lock(0), lock(1), lock(2)),
            (LockVerdict::Go, LockVerdict::Go, LockVerdict::Go)
        );
        assert_eq!(lock(3), LockVerdict::Full("locks_per_node"));
        assert!(t.unlock(N, &p[0], Range { first: 2, last: 2 }));
        assert!(!t.unlock(N, &p[0], Range { first: 13, last: 13 }), "a fifth piece");
        assert!(t.unlock(N, &p[0], Range::ALL));
        assert!(!t.holds_lock(N, p[0].holder));
    }

    #[test]
    fn opens_per_client_are_limited() {
        let limits = Limits {
            opens_per_node: 6,
            opens_per_client: 3,
            locks_per_node: 12,
            locks_per_client: 4,
            ..Limits::default()
        };
        let t = Table::new(Deadlines::new(10, 20).unwrap(), limits, 0);
        let of = |client| Holder {
            holder: t.holder(),
            lease: Arc::new(Lease::held(ClientId(client))),
            via: 0,
        };
        let greedy: Vec<_> = (0..4).map(|_| of(1)).collect();
        for party in &greedy[..3] {
            assert!(t.open(N, party, READ, 0).is_go());
        }
        assert_eq!(t.open(N, &greedy[3], READ, 0), Verdict::Full("opens_per_client"));
        let other = of(2);
        assert!(t.open(N, &other, READ, 0).is_go(), "there is room for others");
        let at = |n: u64| Range { first: n * 10, last: n * 10 + 5 };
        let lock =
            |party: &Holder, n| t.lock(N, party, at(n), LockKind::Shared, Enforce::Advisory, 0);
        for n in 0..3 {
            assert_eq!(lock(&greedy[0], n), LockVerdict::Go);
        }
        assert_eq!(lock(&greedy[1], 3), LockVerdict::Full("locks_per_client"));
        assert_eq!(lock(&other, 3), LockVerdict::Go);
        let exact = |party: &Holder, n: u64| {
            t.lock_smb(N, party, SmbLockRange::new(100 + n, 1).unwrap(), LockKind::Shared, 0)
        };
        for n in 0..4 {
            assert_eq!(exact(&greedy[0], n), LockVerdict::Go);
        }
        assert_eq!(exact(&greedy[1], 4), LockVerdict::Full("locks_per_client"));
        assert_eq!(exact(&other, 4), LockVerdict::Go);
    }

    #[test]
    fn opens_per_host_are_limited() {
        let limits = Limits { opens_per_host: 3, locks_per_host: 4, ..Limits::default() };
        let t = Table::new(Deadlines::new(10, 20).unwrap(), limits, 0);
        let of = |client, host: &str| {
            let lease = Lease::held(ClientId(client)).of_host(host.parse().unwrap());
            Holder { holder: t.holder(), lease: Arc::new(lease), via: 0 }
        };
        let greedy: Vec<_> = (0..4).map(|client| of(client, "192.0.2.1")).collect();
        for party in &greedy[..3] {
            assert!(t.open(N, party, READ, 0).is_go());
        }
        assert_eq!(t.open(N, &greedy[3], READ, 0), Verdict::Full("opens_per_host"));
        let (other, unknown) = (of(4, "192.0.2.2"), party(&t, 5));
        assert!(t.open(N, &other, READ, 0).is_go() && t.open(N, &unknown, READ, 0).is_go());
        let at = |n: u64| Range { first: n * 10, last: n * 10 + 5 };
        let lock =
            |party: &Holder, n| t.lock(N, party, at(n), LockKind::Shared, Enforce::Advisory, 0);
        for (n, party) in (0..).zip(&greedy[..3]) {
            assert_eq!(lock(party, n), LockVerdict::Go);
        }
        assert_eq!(lock(&greedy[3], 3), LockVerdict::Full("locks_per_host"));
        assert_eq!((lock(&other, 3), lock(&unknown, 3)), (LockVerdict::Go, LockVerdict::Go));
        let hole = |n: u64| Range { first: n * 10 + 2, last: n * 10 + 2 };
        assert!(t.unlock(N, &greedy[0], hole(0)));
        assert!(!t.unlock(N, &greedy[1], hole(1)), "a fifth piece");
        assert!(t.unlock(N, &greedy[1], at(1)) && t.unlock(N, &greedy[1], hole(1)));
    }

    /// Checks that cached data never changes while the grant lasts. Writes and grants race on two threads; the holder verifies that
    /// the value it read when the grant was given is unchanged when it returns the grant.
    #[test]
    fn racing_write_never_bypasses_grant() {
        let t = Table::new(Deadlines::new(10, 20).unwrap(), Limits::default(), 0);
        let a = party(&t, 1);
        let data = AtomicU64::new(0);
        let (mut granted, mut written) = (0, 0);
        std::thread::scope(|s| {
            let writer = s.spawn(|| {
                let mut written = 0;
                for _ in 0..100_000 {
                    let _announced = t.writing(N);
                    if t.check_conflicts(N, None, Operation::Write, Range::ALL, 0).is_go() {
                        data.fetch_add(1, Ordering::Relaxed);
                        written += 1;
                    }
                }
                written
            });
            for _ in 0..100_000 {
                if t.delegate(N, &a, Caching::READ_HANDLE, 0) {
                    let cached = data.load(Ordering::Relaxed);
                    std::hint::spin_loop();
                    assert_eq!(data.load(Ordering::Relaxed), cached);
                    t.acknowledge(N, a.holder, Caching::NONE, 0);
                    granted += 1;
                }
            }
            written = writer.join().unwrap();
        });
        assert_eq!(data.into_inner(), written);
        assert!(granted > 0 && written > 0);
        assert_eq!(t.nodes(), 0);
    }
}
