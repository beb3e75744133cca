//! The table of all that is held: records in shards, and a cheap way to know that nobody is in the way.
//!
//! *Operation.* Nearly every read and write is of a file that nobody restricts. For those [`Table::check_conflicts`] is one load
//! from a small array of counters ([`Slot`]): nodes share a slot by hash, and a slot that is not zero only means a look into the
//! shard. Writers announce themselves in the same slot ([`Table::writing`]) before they look, and grants of read caching look for
//! writers after they are entered, so one of the two always sees the other: no cache is promised while an unseen write is
//! under way.
//!
//! *Memory.* A record per held node; 64 KiB of slots.
//!
//! *Errors.* None.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use mutex::locked;

use crate::access::Share;
use crate::caching::{CacheRequest, Caching, Kind, Operation};
use crate::grants::{Acknowledged, Held};
use crate::holder::{Holder, Requester};
use crate::id::{ClientId, HolderId, Millis, NodeId};
use crate::node::{Limits, LockVerdict, Opening, Record, Verdict};
use crate::pending::Name;
use crate::range::{Enforce, LockKind, Range};
use crate::recall::{Break, Deadlines};
use crate::smb_lock::SmbLockRange;
use crate::turns::{self, Turns, Waiter};

const SHARDS: usize = 64;
const SLOTS: usize = 4096;

/// For numbers that are counters of ours, not chosen by a peer: mixing is enough.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeHasher(u64);

impl Hasher for NodeHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = mix(self.0 ^ n);
    }
}

fn mix(n: u64) -> u64 {
    let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    n ^ (n >> 29)
}

type Shard = HashMap<NodeId, Record, BuildHasherDefault<NodeHasher>>;

/// What is known of all nodes of one hash without a lock.
#[derive(Debug, Default)]
struct Slot {
    /// Records that can stand in somebody's way.
    restrictive: AtomicU32,
    /// Writes under way.
    writers: AtomicU32,
    /// Where and when caching was last broken here, as [`broken`] packs it; grants of that node wait a while after it.
    broken: AtomicU64,
    /// Nodes from which somebody was sent away.
    turns: AtomicU32,
}

/// Bits of a node in [`Slot::broken`]: enough to tell it from most others of its slot.
const TAG_BITS: u32 = 20;

/// A time and something of a node in one word.
fn broken(node: NodeId, ms: Millis) -> u64 {
    ms << TAG_BITS | mix(node.0) & ((1 << TAG_BITS) - 1)
}

/// Announces a write until it is dropped.
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

/// All that is held.
#[derive(Debug)]
pub struct Table {
    shards: Box<[Mutex<Shard>]>,
    slots: Box<[Slot]>,
    /// Nodes with caching grants.
    grants: AtomicUsize,
    /// Nodes whose records are restrictive.
    restrictive: AtomicUsize,
    /// Nodes with names that wait to be removed.
    pending: AtomicUsize,
    /// Nodes from which somebody was sent away, and who.
    waiting: AtomicUsize,
    turns: Mutex<Turns>,
    next_holder: AtomicU64,
    next_key: AtomicU32,
    deadlines: Deadlines,
    limits: Limits,
    /// For this long after a break no new grant is given for the same node.
    cool_ms: u64,
}

impl Table {
    /// An empty table.
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

    /// A number for a new holder, never given before.
    pub fn holder(&self) -> HolderId {
        HolderId(self.next_holder.fetch_add(1, Ordering::Relaxed))
    }

    /// A key for a new open or lease of SMB.
    pub fn key(&self) -> ClientId {
        ClientId::key(self.next_key.fetch_add(1, Ordering::Relaxed))
    }

    /// Times of a break.
    pub fn deadlines(&self) -> Deadlines {
        self.deadlines
    }

    /// Nodes that somebody may cache.
    pub fn grants(&self) -> usize {
        self.grants.load(Ordering::Relaxed)
    }

    /// Somebody holds something that can stand in another's way. Ordered like the slots, so a writer may ask this first.
    pub fn is_used(&self) -> bool {
        self.restrictive.load(Ordering::SeqCst) > 0
    }

    /// Nodes that somebody holds. Looks into every shard: for `status`, not for the data path.
    pub fn nodes(&self) -> usize {
        self.shards.iter().map(|s| locked(s).len()).sum()
    }

    /// Byte ranges that are locked. Looks at every node: for `status`, not for the data path.
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
        // Invariant: as in `slot`.
        #[allow(clippy::cast_possible_truncation)]
        let at = (mix(node.0) >> 20) as usize % SHARDS;
        // A panic under the lock leaves a record that is whole: every change is one step.
        locked(&self.shards[at])
    }

    /// Changes a node's record, keeps the counters right, and forgets the record when it is empty.
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
        match (before.1, after.1) {
            (false, true) => {
                self.grants.fetch_add(1, Ordering::SeqCst);
            }
            (true, false) => {
                self.grants.fetch_sub(1, Ordering::SeqCst);
            }
            _ => {}
        }
        match (before.2, after.2) {
            (false, true) => {
                self.pending.fetch_add(1, Ordering::SeqCst);
            }
            (true, false) => {
                self.pending.fetch_sub(1, Ordering::SeqCst);
            }
            _ => {}
        }
        out
    }

    /// Announces a write, to be dropped when it has been done. Comes before [`Table::check_conflicts`].
    pub fn writing(&self, node: NodeId) -> Writing<'_> {
        let slot = self.slot(node);
        slot.writers.fetch_add(1, Ordering::SeqCst);
        Writing { slot }
    }

    /// May this be done now? One load when nobody restricts a node of this hash.
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
        // A break that nobody has to acknowledge may empty the record at once, and then the counters change.
        if !record.would_break(requester.map(|w| w.client), op) {
            return record.refused(requester, op, range, now).unwrap_or(Verdict::Go);
        }
        drop(shard);
        let verdict = self
            .change(node, |r| r.check_conflicts(node, requester, op, range, now, self.deadlines));
        self.note_break(node, &verdict, now);
        verdict
    }

    /// Nobody is in the way of this, whatever time it is: [`Table::check_conflicts`] would say to go. One load when nobody
    /// restricts a node of this hash.
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
            // Time decides whether an obstacle denies or has lapsed, not whether it is one.
            !record.would_break(requester.map(|w| w.client), op)
                && record.refused(requester, op, range, 0).is_none()
        })
    }

    /// This would take caching from somebody. One load when nobody restricts a node of this hash.
    pub fn would_break(&self, node: NodeId, client: Option<ClientId>, op: Operation) -> bool {
        self.slot(node).restrictive.load(Ordering::SeqCst) != 0
            && self.shard(node).get(&node).is_some_and(|r| r.would_break(client, op))
    }

    /// Opens a node for a holder, or widens what it has open.
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

    /// Caching was broken here so lately that another grant would be broken as well.
    fn is_contended(&self, node: NodeId, now: Millis) -> bool {
        let last = self.slot(node).broken.load(Ordering::Relaxed);
        let when = last >> TAG_BITS;
        last != 0 && last == broken(node, when) && now.saturating_sub(when) < self.cool_ms
    }

    /// Narrows what a holder has open to exactly this. False when it has nothing open.
    pub fn narrow(&self, node: NodeId, holder: HolderId, share: Share) -> bool {
        self.change(node, |r| r.narrow(holder, share))
    }

    /// Takes away everything this holder has of the node: opens, locks, caching.
    pub fn release(&self, node: NodeId, holder: HolderId) {
        self.change(node, |r| r.release(holder));
    }

    /// A node is about to take the place of another: the holder has of it, too, what it has open and caches of the other. Nobody
    /// else may know the new one yet, so nobody is in the way.
    pub fn follow(&self, from: NodeId, to: NodeId, holder: HolderId) {
        let part = self.shard(from).get(&from).map(|r| r.part(holder));
        if let Some(part) = part.filter(|p| !p.is_empty()) {
            self.change(to, |r| r.take_in(part, holder));
        }
    }

    /// Grants a delegation or widens that of the same holder, unless others are in the way, a write is under way, or caching was
    /// broken here just now.
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
        // A writer that had looked before the grant was entered is still announced; one that looks from now on sees the grant.
        if slot.writers.load(Ordering::SeqCst) != 0 {
            self.acknowledge(node, party.holder, before, now);
            return false;
        }
        true
    }

    /// The delegation that this client has of a node.
    pub fn delegation(&self, node: NodeId, client: ClientId) -> Option<HolderId> {
        self.shard(node).get(&node).and_then(|r| r.delegation(client))
    }

    /// Another than `client` may know the size and times of the file better than its server: it has a write delegation. One
    /// load when nobody restricts a node of this hash.
    pub fn keeps_back(
        &self,
        node: NodeId,
        client: Option<ClientId>,
    ) -> Option<(ClientId, HolderId)> {
        if self.slot(node).restrictive.load(Ordering::SeqCst) == 0 {
            return None;
        }
        self.shard(node).get(&node).and_then(|r| r.keeps_back(client))
    }

    /// Grants an oplock or a lease as far as it can be had, or widens what the holder has; says what it has then. Asked for after
    /// the open, so that no other open comes between.
    pub fn cache(&self, node: NodeId, party: &Holder, want: CacheRequest, now: Millis) -> Held {
        let before = self.held(node, party.holder).unwrap_or_default();
        let waiting = self.before_whom(node, party.client(), now);
        let held = self.change(node, |r| r.cache(party, want, &waiting, &self.limits));
        // As for a delegation: a write that looked before this was entered may still be under way.
        if held.rights != before.rights && self.slot(node).writers.load(Ordering::SeqCst) != 0 {
            self.acknowledge(node, party.holder, before.rights, now);
            return before;
        }
        held
    }

    /// What this holder may cache, if anything.
    pub fn held(&self, node: NodeId, holder: HolderId) -> Option<Held> {
        self.shard(node).get(&node).and_then(|r| r.held(holder))
    }

    /// The node was changed already, past every check: the breaks that this starts.
    pub fn changed(&self, node: NodeId, op: Operation, now: Millis) -> Vec<Break> {
        if self.slot(node).restrictive.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        self.change(node, |r| r.changed(node, op, now, self.deadlines))
    }

    /// Somebody may cache this node.
    pub fn is_cached(&self, node: NodeId) -> bool {
        self.shard(node).get(&node).is_some_and(Record::has_grants)
    }

    /// Opens of a node by others than `but`.
    pub fn opens(&self, node: NodeId, but: Option<ClientId>) -> usize {
        self.shard(node).get(&node).map_or(0, |r| r.opens(but))
    }

    /// The holder keeps `to` and gives the rest of its caching back.
    pub fn acknowledge(
        &self,
        node: NodeId,
        holder: HolderId,
        to: Caching,
        now: Millis,
    ) -> Acknowledged {
        self.change(node, |r| r.acknowledge(node, holder, to, now, self.deadlines))
    }

    /// Gives a lock, or says what stands in the way.
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

    /// What would stand in the way of a lock. A holder that does not exist yet is given as a fresh number.
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

    /// Takes a lock away. False when the hole would make more locks than may be.
    pub fn unlock(&self, node: NodeId, party: &Holder, range: Range) -> bool {
        self.change(node, |r| r.unlock(party, range, &self.limits))
    }

    /// Gives a lock of SMB, or says what stands in the way.
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

    /// Takes a lock of SMB away. False when no lock of exactly this range is held.
    pub fn unlock_smb(&self, node: NodeId, party: &Holder, lock_range: SmbLockRange) -> bool {
        self.change(node, |r| r.unlock_smb(party, lock_range))
    }

    /// Takes the lock of SMB away that was given last of this range and kind. False when there is none.
    pub fn undo_smb(
        &self,
        node: NodeId,
        party: &Holder,
        lock_range: SmbLockRange,
        kind: LockKind,
    ) -> bool {
        self.change(node, |r| r.undo_smb(party, lock_range, kind))
    }

    /// The locks of SMB that a holder has.
    pub fn smb_locks_of(&self, node: NodeId, holder: HolderId) -> Vec<(SmbLockRange, LockKind)> {
        self.shard(node).get(&node).map_or_else(Vec::new, |r| r.smb_locks_of(holder))
    }

    /// How many byte ranges of this node are locked.
    pub fn locks_on(&self, node: NodeId) -> usize {
        self.shard(node).get(&node).map_or(0, |r| r.locks())
    }

    /// The holder has a lock on this node.
    pub fn holds_lock(&self, node: NodeId, holder: HolderId) -> bool {
        self.shard(node).get(&node).is_some_and(|r| r.holds_lock(holder))
    }

    /// Somebody was sent away from this node and may not have had a turn since. One load while nobody waits.
    pub fn has_turns(&self, node: NodeId) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
            && self.slot(node).turns.load(Ordering::Relaxed) > 0
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        // Every change is one step, as of a shard.
        locked(&self.turns)
    }

    /// A client, if it is known, was told to come back for `op`: until it had its turn no caching is granted to others that would
    /// make it wait again ([`crate::turns`]).
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

    /// The operation of this client goes on, so that it has had its turn. To be called where [`Table::has_turns`].
    pub fn had_turn(&self, node: NodeId, client: Option<ClientId>, op: Operation, now: Millis) {
        let mut turns = self.turns();
        if turns.served(node, client, op, now) {
            self.slot(node).turns.fetch_sub(1, Ordering::Relaxed);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Those others than `client` who have a turn before it.
    pub(crate) fn before_whom(&self, node: NodeId, client: ClientId, now: Millis) -> Vec<Waiter> {
        if !self.has_turns(node) {
            return Vec::new();
        }
        self.turns().check_conflicts(node, client, now)
    }

    /// Nodes with names that wait to be removed.
    pub fn pending_deletes(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// These names of a node wait to be removed from now on, and no others.
    pub fn set_pending_deletes(&self, node: NodeId, names: Vec<Name>) {
        self.change(node, |r| r.set_pending_deletes(names));
    }

    /// Names of this node wait to be removed. One load while there is no such node.
    pub fn has_pending_deletes(&self, node: NodeId) -> bool {
        self.pending_deletes() > 0
            && self.shard(node).get(&node).is_some_and(Record::has_pending_deletes)
    }

    /// What is opened or changed by this name, or without a name, goes with the last open: the name is marked, or all `links` names
    /// of the node are. One load while no name of any node is marked.
    pub fn is_delete_pending(
        &self,
        node: NodeId,
        name: Option<(NodeId, &[u8])>,
        links: u32,
    ) -> bool {
        self.pending_deletes() > 0
            && self.shard(node).get(&node).is_some_and(|r| r.is_delete_pending(name, links))
    }

    /// Breaks whose time is over, of all nodes. Looks into every shard, so for a timer.
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
        Holder { holder: t.holder(), lease }
    }

    fn share(access: Rights, deny: Rights) -> Share {
        Share::new(access, deny)
    }

    const READ: Share = Share { access: Rights::READ, deny: Rights::NONE };
    const WRITE: Share = Share { access: Rights::WRITE, deny: Rights::NONE };

    #[test]
    fn a_denied_write_names_the_one_who_denies_and_ends_with_it() {
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
    fn who_is_free_is_known_without_the_time() {
        let t = table();
        let (a, b) = (party(&t, 1), party(&t, 2));
        let is_free = |p: &Holder, op| {
            t.is_free(N, Some(Requester { client: p.client(), holder: None }), op, Range::ALL)
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
    fn a_break_starts_once_is_under_way_and_becomes_overdue() {
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
    fn no_grant_beside_a_writer_nor_soon_after_a_break() {
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
    fn caching_is_not_widened_beside_locks() {
        let t = table();
        let key = t.key();
        let party = || Holder { holder: t.holder(), lease: Arc::new(Lease::held(key)) };
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

    /// MS-FSA section 2.1.5.18.2; nothing can be cached of what is not allocated.
    #[test]
    fn locks_behind_the_allocated_bytes_keep_only_exclusive_caching_away() {
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

    /// MS-FSA section 2.1.5.18.1: an open for more than attributes is one, though it breaks no lease.
    #[test]
    fn an_open_for_the_security_descriptor_keeps_exclusive_caching_away() {
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
    fn a_write_delegation_is_for_who_is_alone() {
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
        assert_eq!(t.keeps_back(N, Some(ClientId(1))), None, "not from itself");
        assert_eq!(t.keeps_back(N, Some(ClientId(2))), Some((ClientId(1), a.holder)));
        assert_eq!(t.keeps_back(N, None), Some((ClientId(1), a.holder)));
        assert!(!grant(&b) && !t.delegate(N, &b, Caching::READ_HANDLE, 0));
        assert!(!t.open(N, &b, READ, 0).is_go(), "it is recalled first");
        assert!(t.acknowledge(N, a.holder, Caching::NONE, 0).held);
        assert_eq!(t.keeps_back(N, None), None);
        assert!(t.open(N, &b, READ, 0).is_go());
    }

    #[test]
    fn a_read_delegation_becomes_one_for_writing_when_nobody_else_has_one() {
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
    fn a_node_that_takes_the_place_of_another_is_held_as_that_was() {
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
    fn a_client_is_not_in_its_own_way() {
        let t = table();
        let a = party(&t, 1);
        assert!(t.delegate(N, &a, Caching::READ_HANDLE, 0));
        let own = Some(Requester { client: ClientId(1), holder: None });
        assert!(t.check_conflicts(N, own, Operation::Names, Range::ALL, 0).is_go());
        let other = Some(Requester { client: ClientId(2), holder: None });
        assert!(!t.check_conflicts(N, other, Operation::Names, Range::ALL, 0).is_go());
    }

    #[test]
    fn a_lapsed_client_gives_way() {
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
    fn every_list_has_its_limit() {
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
    fn one_client_fills_its_own_share_of_a_node_only() {
        let limits = Limits {
            opens_per_node: 6,
            opens_per_client: 3,
            locks_per_node: 12,
            locks_per_client: 4,
            ..Limits::default()
        };
        let t = Table::new(Deadlines::new(10, 20).unwrap(), limits, 0);
        let of =
            |client| Holder { holder: t.holder(), lease: Arc::new(Lease::held(ClientId(client))) };
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
    fn one_host_fills_its_own_share_of_a_node_only_by_whatever_clients() {
        let limits = Limits { opens_per_host: 3, locks_per_host: 4, ..Limits::default() };
        let t = Table::new(Deadlines::new(10, 20).unwrap(), limits, 0);
        let of = |client, host: &str| {
            let lease = Lease::held(ClientId(client)).of_host(host.parse().unwrap());
            Holder { holder: t.holder(), lease: Arc::new(lease) }
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

    /// Nothing that is cached under a grant changes while the grant stands: writers and grants race on two threads, and the
    /// holder checks that what it read when it was granted is still there when it gives the grant back.
    #[test]
    fn no_write_slips_past_a_grant() {
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
