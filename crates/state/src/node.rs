//! The record of one node: its opens, locks and caching grants. The table does the locking.

use crate::access::{Rights, Share};
use crate::caching::{CacheRequest, Caching, Operation};
use crate::expiry::LeaseState;
use crate::grants::{Acknowledged, Grants, Held, LockPresence};
use crate::holder::{Holder, Requester};
use crate::id::{CacheKey, ClientId, HolderId, Millis, NodeId};
use crate::pending::{Name, PendingDeletes};
use crate::range::{Enforce, Lock, LockKind, Range, RangeSet};
use crate::recall::{Break, Deadlines, Stage};
use crate::smb_lock::{SmbLock, SmbLockRange, SmbLocks};
use crate::turns::Waiter;

/// Limits on the holders of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub opens_per_node: usize,
    /// Opens of one client, so that one client cannot use up the node's limit.
    pub opens_per_client: usize,
    /// Opens of all clients of one host ([`Lease::of_host`](crate::Lease::of_host)).
    pub opens_per_host: usize,
    /// Byte-range locks of all clients, NFS and SMB each.
    pub locks_per_node: usize,
    /// Byte-range locks of one client, NFS and SMB each. Each SMB open counts separately, because `state` does not know its client.
    pub locks_per_client: usize,
    /// NFS byte-range locks of all clients of one host.
    pub locks_per_host: usize,
    pub grants_per_node: usize,
}

impl Limits {
    /// The limits of a server.
    pub const DEFAULT: Self = Self {
        opens_per_node: 131_072,
        opens_per_client: 16_384,
        opens_per_host: 32_768,
        locks_per_node: 131_072,
        locks_per_client: 16_384,
        locks_per_host: 32_768,
        grants_per_node: 1_024,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The decision about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request may proceed.
    Go,
    /// The request may proceed, and the front ends must send these break notices.
    Tell(Vec<Break>),
    /// These rights must be returned first. The front ends send the notices of breaks that have just started, and retry the request
    /// later.
    WaitFor(Vec<Break>),
    /// Clients with lapsed leases conflict: release them and retry.
    Lapsed(Vec<ClientId>),
    /// This holder's share mode or lock conflicts.
    Denied { by: HolderId },
    /// This limit of the node is reached.
    Full(&'static str),
}

impl Verdict {
    /// Checks that the request may proceed.
    pub fn is_go(&self) -> bool {
        matches!(self, Self::Go | Self::Tell(_))
    }
}

/// A request to open a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    pub share: Share,
    /// The open truncates the file (FILE_SUPERSEDE, FILE_OVERWRITE, FILE_OVERWRITE_IF).
    pub overwrites: bool,
    /// The open only reads attributes and the security descriptor, so no check applies to it (MS-FSA section 2.1.4.12, Case OPEN).
    pub attributes_only: bool,
    /// The open reads the security descriptor, which breaks oplocks and prevents WRITE caching by other clients while it lasts.
    pub control: bool,
}

impl Opening {
    /// Returns the operation that decides which caching of other clients breaks.
    pub fn operation(&self) -> Operation {
        match self {
            Self { overwrites: true, .. } => Operation::Write,
            Self { attributes_only: true, .. } => Operation::Look,
            _ => Operation::Open(self.share),
        }
    }
}

impl From<Share> for Opening {
    fn from(share: Share) -> Self {
        Self { share, ..Self::default() }
    }
}

/// The decision about a lock request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockVerdict {
    /// The lock was granted.
    Go,
    /// This lock conflicts.
    Denied(Lock<Holder>),
    /// See [`Verdict::Lapsed`].
    Lapsed(Vec<ClientId>),
    /// See [`Verdict::Full`].
    Full(&'static str),
}

#[derive(Clone, Debug)]
struct OpenRecord {
    party: Holder,
    share: Share,
}

/// Everything that clients hold on one node.
#[derive(Debug, Default)]
pub(crate) struct Record {
    opens: Vec<OpenRecord>,
    /// NFS locks.
    locks: RangeSet<Holder>,
    /// SMB locks.
    smb_locks: SmbLocks<Holder>,
    /// `locks` contains, or once contained, a mandatory lock. Reset when `locks` is empty.
    mandatory: bool,
    grants: Grants,
    pending: PendingDeletes,
}

/// The holders that conflict with a request.
#[derive(Default)]
struct Obstacles {
    lapsed: Vec<ClientId>,
    denied: Option<HolderId>,
}

impl Obstacles {
    /// Checks whether the client's lease has lapsed, and records the client for release if so.
    fn is_lapsed(&mut self, party: &Holder, now: Millis) -> bool {
        let lapsed = party.lease.state(now) != LeaseState::Live;
        if lapsed && !self.lapsed.contains(&party.client()) {
            self.lapsed.push(party.client());
        }
        lapsed
    }

    fn deny(&mut self, party: &Holder, now: Millis) {
        if !self.is_lapsed(party, now) && self.denied.is_none() {
            self.denied = Some(party.holder);
        }
    }

    fn verdict(self) -> Option<Verdict> {
        if let Some(by) = self.denied {
            Some(Verdict::Denied { by })
        } else if !self.lapsed.is_empty() {
            Some(Verdict::Lapsed(self.lapsed))
        } else {
            None
        }
    }
}

impl Record {
    pub(crate) fn is_empty(&self) -> bool {
        self.opens.is_empty()
            && self.locks.is_empty()
            && self.smb_locks.is_empty()
            && self.grants.is_empty()
            && self.pending.is_empty()
    }

    /// Checks whether anything here can conflict with a read, a write or a change of names.
    pub(crate) fn is_restrictive(&self) -> bool {
        !self.grants.is_empty()
            || !self.smb_locks.is_empty()
            || self.opens.iter().any(|o| !o.share.deny.is_none())
            || !self.locks.is_empty()
                && (self.mandatory || self.opens.iter().any(|o| o.party.client().is_key()))
    }

    /// Checks whether names of this node are marked for deletion.
    pub(crate) fn has_pending_deletes(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(crate) fn set_pending_deletes(&mut self, names: Vec<Name>) {
        self.pending.set(names);
    }

    /// See [`PendingDeletes::dooms`].
    pub(crate) fn is_delete_pending(&self, name: Option<(NodeId, &[u8])>, links: u32) -> bool {
        self.pending.dooms(name, links)
    }

    pub(crate) fn has_grants(&self) -> bool {
        !self.grants.is_empty()
    }

    /// Checks whether the operation would break a client's caching.
    pub(crate) fn would_break(&self, by: Option<CacheKey>, op: Operation) -> bool {
        self.grants.note_writing(by, op);
        self.grants.touched(by, op).next().is_some()
    }

    /// Counts the opens of keys other than `but`.
    pub(crate) fn opens(&self, but: Option<CacheKey>) -> usize {
        self.opens.iter().filter(|o| Some(o.party.key()) != but).count()
    }

    /// Opens the node, or widens the open of `party`.
    pub(crate) fn open(
        &mut self,
        node: NodeId,
        party: &Holder,
        how: Opening,
        now: Millis,
        deadlines: Deadlines,
        limits: &Limits,
    ) -> Verdict {
        if how.attributes_only && !how.overwrites && !how.control {
            return Verdict::Go;
        }
        let share = how.share;
        let mut found = Obstacles::default();
        for o in self.opens.iter().filter(|o| o.party != *party && o.share.conflicts(share)) {
            found.deny(&o.party, now);
        }
        let (client, key) = (Some(party.client()), Some(party.key()));
        if found.denied.is_some() && found.lapsed.is_empty() {
            // MS-FSA 2.1.5.1.2: the conflicting open may be a handle that its client only keeps cached.
            let handles = self.breaks(node, key, Operation::Handles, now, deadlines);
            if matches!(handles, Verdict::WaitFor(_) | Verdict::Lapsed(_)) {
                return handles;
            }
        }
        if let Some(refused) = found.verdict() {
            return refused;
        }
        let verdict = self.breaks(node, key, how.operation(), now, deadlines);
        if !verdict.is_go() {
            return verdict;
        }
        if let Some(mine) = self.opens.iter_mut().find(|o| o.party == *party) {
            mine.share = mine.share.union(share);
        } else if how.attributes_only && !how.control {
            // It overwrote the file and from now on conflicts with no other open.
        } else if self.opens.len() >= limits.opens_per_node {
            return Verdict::Full("opens_per_node");
        } else if self.opens.len() >= limits.opens_per_client
            && self.opens.iter().filter(|o| Some(o.party.client()) == client).count()
                >= limits.opens_per_client
        {
            return Verdict::Full("opens_per_client");
        } else if self.has_opens(party, limits.opens_per_host) {
            return Verdict::Full("opens_per_host");
        } else {
            self.opens.push(OpenRecord { party: party.clone(), share });
        }
        verdict
    }

    /// Sets the exact share mode of a holder's open; closes it if the access is empty. A narrower mode cannot conflict.
    pub(crate) fn narrow(&mut self, holder: HolderId, share: Share) -> bool {
        let Some(at) = self.opens.iter().position(|o| o.party.holder == holder) else {
            return false;
        };
        if share.access.is_none() {
            self.opens.swap_remove(at);
        } else {
            self.opens[at].share = share;
        }
        true
    }

    /// Checks an operation before it runs. `range` applies to reads and writes.
    pub(crate) fn check_conflicts(
        &mut self,
        node: NodeId,
        requester: Option<Requester>,
        op: Operation,
        range: Range,
        now: Millis,
        deadlines: Deadlines,
    ) -> Verdict {
        let refused = self.refused(requester, op, range, now);
        refused.unwrap_or_else(|| self.breaks(node, requester.map(|w| w.key()), op, now, deadlines))
    }

    /// Returns the share mode or lock that forbids an operation, regardless of caching.
    pub(crate) fn refused(
        &self,
        requester: Option<Requester>,
        op: Operation,
        range: Range,
        now: Millis,
    ) -> Option<Verdict> {
        let mut found = Obstacles::default();
        let wants = match op {
            Operation::Read => Rights::READ,
            Operation::Write => Rights::WRITE,
            Operation::Names => Rights::DELETE,
            _ => Rights::NONE,
        };
        let through = requester.and_then(|w| w.holder);
        if through.is_none() && !wants.is_none() {
            for o in self.opens.iter().filter(|o| !(o.share.deny & wants).is_none()) {
                found.deny(&o.party, now);
            }
        }
        if wants == Rights::READ || wants == Rights::WRITE {
            self.locks_forbid(requester, wants == Rights::WRITE, range, now, &mut found);
        }
        found.verdict()
    }

    fn locks_forbid(
        &self,
        requester: Option<Requester>,
        write: bool,
        range: Range,
        now: Millis,
        found: &mut Obstacles,
    ) {
        let through = requester.and_then(|w| w.holder);
        let me = self.smb_locks.iter().map(|l| &l.owner).find(|p| Some(p.holder) == through);
        for l in self.smb_locks.blocks_io(me, range, write) {
            found.deny(&l.owner, now);
        }
        // A lock that is advisory among NFS clients may be binding for SMB clients.
        let is_smb = requester.is_some_and(|w| w.client.is_key());
        if self.mandatory || is_smb {
            let binding = if is_smb { Enforce::Smb } else { Enforce::Mandatory };
            let me = self.locks.iter().map(|l| &l.owner).find(|p| Some(p.holder) == through);
            for l in self.locks.blocks_io(me, range, write, binding) {
                found.deny(&l.owner, now);
            }
        }
    }

    /// Returns the breaks that start because the node was already changed without a check.
    pub(crate) fn changed(
        &mut self,
        node: NodeId,
        op: Operation,
        now: Millis,
        deadlines: Deadlines,
    ) -> Vec<Break> {
        let mut breaks = self.grants.breaks(node, None, op, now, deadlines).breaks;
        breaks.retain(|b| matches!(b.stage, Stage::Started | Stage::Done));
        breaks
    }

    /// Starts or finds the breaks that `op` needs.
    fn breaks(
        &mut self,
        node: NodeId,
        by: Option<CacheKey>,
        op: Operation,
        now: Millis,
        deadlines: Deadlines,
    ) -> Verdict {
        let mut found = Obstacles::default();
        for party in self.grants.touched(by, op) {
            found.is_lapsed(party, now);
        }
        // Start no break before the lapsed clients are released: the caller sees only one verdict, and would not send the notices.
        if let Some(lapsed) = found.verdict() {
            return lapsed;
        }
        let broken = self.grants.breaks(node, by, op, now, deadlines);
        if broken.wait {
            Verdict::WaitFor(broken.breaks)
        } else if broken.breaks.is_empty() {
            Verdict::Go
        } else {
            Verdict::Tell(broken.breaks)
        }
    }

    /// Grants a delegation. Returns false if opens, locks or grants on the node do not allow it.
    pub(crate) fn delegate(&mut self, party: &Holder, rights: Caching, limits: &Limits) -> bool {
        let exclusive = rights.has(Caching::WRITE);
        let opens_agree = self.opens.iter().all(|o| {
            let other = o.party.key() != party.key();
            let writes = o.share.access.has(Rights::WRITE);
            let denies = o.share.deny.has(Rights::READ);
            if exclusive { !other } else { !(writes || other && denies) }
        });
        // A client with a write delegation may lock files without the server (RFC 8881 section 10.4), so no other client may have a
        // lock.
        let locked = || {
            let others = |p: &Holder| p.key() != party.key();
            self.locks.iter().any(|l| others(&l.owner)) || !self.smb_locks.is_empty()
        };
        let max = limits.grants_per_node;
        opens_agree && !(exclusive && locked()) && self.grants.delegate(party, rights, max)
    }

    pub(crate) fn delegation(&self, key: CacheKey) -> Option<HolderId> {
        self.grants.delegation(key)
    }

    pub(crate) fn keeps_back(&self, by: Option<CacheKey>) -> Option<(ClientId, HolderId)> {
        self.grants.keeps_back(by)
    }

    /// Grants the part of an oplock or lease that is possible.
    pub(crate) fn cache(
        &mut self,
        party: &Holder,
        want: CacheRequest,
        waiting: &[Waiter],
        limits: &Limits,
    ) -> Held {
        let alone = self.opens(Some(party.key())) == 0;
        let smb_locks = self.smb_locks.iter().map(|l| l.lock_range.offset);
        let first = smb_locks.chain(self.locks.iter().map(|l| l.range.first)).min();
        let locked = match first {
            None => LockPresence::Nothing,
            Some(first) if first >= want.allocated => LockPresence::Nowhere,
            Some(_) => LockPresence::Data,
        };
        let max = limits.grants_per_node;
        self.grants.cache(party, (want.kind, want.rights), (alone, locked), waiting, max)
    }

    pub(crate) fn held(&self, holder: HolderId) -> Option<Held> {
        self.grants.held(holder)
    }

    /// Reduces the holder's rights to `to`, whether or not a break asked for it.
    pub(crate) fn acknowledge(
        &mut self,
        node: NodeId,
        holder: HolderId,
        to: Caching,
        now: Millis,
        deadlines: Deadlines,
    ) -> Acknowledged {
        self.grants.acknowledge(node, holder, to, now, deadlines)
    }

    /// See [`Grants::deadline`].
    pub(crate) fn deadline(&self, holder: HolderId, deadline: Millis) -> Millis {
        self.grants.deadline(holder, deadline)
    }

    /// See [`Grants::revoke`].
    pub(crate) fn revoke(
        &mut self,
        holder: HolderId,
        deadline: Millis,
        now: Millis,
        deadlines: Deadlines,
    ) -> bool {
        self.grants.revoke(holder, deadline, now, deadlines)
    }

    /// Grants a lock, or returns the conflict.
    pub(crate) fn lock(
        &mut self,
        party: &Holder,
        range: Range,
        kind: LockKind,
        enforce: Enforce,
        now: Millis,
        limits: &Limits,
    ) -> LockVerdict {
        let verdict = self.test(party.holder, range, kind, now);
        if verdict != LockVerdict::Go {
            return verdict;
        }
        // A lock inside an existing lock of the other kind splits it, which adds at most two locks.
        if self.locks.len() + 2 > limits.locks_per_node {
            return LockVerdict::Full("locks_per_node");
        }
        if self.has_ranges(party.client(), limits.locks_per_client.saturating_sub(1)) {
            return LockVerdict::Full("locks_per_client");
        }
        if self.has_ranges_of_host(party, limits.locks_per_host.saturating_sub(1)) {
            return LockVerdict::Full("locks_per_host");
        }
        self.mandatory = enforce == Enforce::Mandatory || self.mandatory && !self.locks.is_empty();
        self.locks.set(party, range, kind, enforce);
        LockVerdict::Go
    }

    /// Grants an SMB lock, or returns the conflict.
    pub(crate) fn lock_smb(
        &mut self,
        party: &Holder,
        lock_range: SmbLockRange,
        kind: LockKind,
        now: Millis,
        limits: &Limits,
    ) -> LockVerdict {
        let smb_locks = self.smb_locks.conflicts(Some(party), lock_range, kind).map(as_lock);
        let ranges = self.locks.iter().filter(|l| {
            lock_range.overlaps(SmbLockRange::of(l.range))
                && (kind == LockKind::Exclusive || l.kind == LockKind::Exclusive)
        });
        let verdict = judge(smb_locks.chain(ranges.cloned()), now);
        if verdict != LockVerdict::Go {
            return verdict;
        }
        if self.smb_locks.len() >= limits.locks_per_node {
            return LockVerdict::Full("locks_per_node");
        }
        let client = party.client();
        if self.smb_locks.len() >= limits.locks_per_client
            && self.smb_locks.iter().filter(|l| l.owner.client() == client).count()
                >= limits.locks_per_client
        {
            return LockVerdict::Full("locks_per_client");
        }
        self.smb_locks.set(party, lock_range, kind);
        LockVerdict::Go
    }

    /// Checks whether a client has at least `many` byte-range locks. Scans only if the whole node has that many.
    fn has_ranges(&self, client: ClientId, many: usize) -> bool {
        self.locks.len() >= many
            && self.locks.iter().filter(|l| l.owner.client() == client).count() >= many
    }

    /// Checks the same for all clients on the host of `party`.
    fn has_ranges_of_host(&self, party: &Holder, many: usize) -> bool {
        self.locks.len() >= many
            && self.locks.iter().filter(|l| l.owner.is_beside(party)).count() >= many
    }

    fn has_opens(&self, party: &Holder, many: usize) -> bool {
        self.opens.len() >= many
            && self.opens.iter().filter(|o| o.party.is_beside(party)).count() >= many
    }

    /// Removes an SMB lock. Returns false if no lock has exactly this range.
    pub(crate) fn unlock_smb(&mut self, party: &Holder, lock_range: SmbLockRange) -> bool {
        self.smb_locks.clear(party, lock_range)
    }

    /// Removes the newest SMB lock of this range and kind. Returns false if there is none.
    pub(crate) fn undo_smb(
        &mut self,
        party: &Holder,
        lock_range: SmbLockRange,
        kind: LockKind,
    ) -> bool {
        self.smb_locks.undo(party, lock_range, kind)
    }

    /// Counts the byte-range locks.
    pub(crate) fn locks(&self) -> usize {
        self.locks.len() + self.smb_locks.len()
    }

    /// Returns the SMB locks of a holder.
    pub(crate) fn smb_locks_of(&self, holder: HolderId) -> Vec<(SmbLockRange, LockKind)> {
        let mine = self.smb_locks.iter().filter(|l| l.owner.holder == holder);
        mine.map(|l| (l.lock_range, l.kind)).collect()
    }

    /// Returns the conflict that a lock request would meet.
    pub(crate) fn test(
        &self,
        holder: HolderId,
        range: Range,
        kind: LockKind,
        now: Millis,
    ) -> LockVerdict {
        let others = self.locks.iter().filter(|l| {
            l.owner.holder != holder
                && l.range.overlaps(range)
                && (kind == LockKind::Exclusive || l.kind == LockKind::Exclusive)
        });
        judge(others.cloned().chain(self.smb_locks.conflicts_range(range, kind).map(as_lock)), now)
    }

    /// Removes a lock. Returns false if splitting an existing lock would exceed a limit.
    pub(crate) fn unlock(&mut self, party: &Holder, range: Range, limits: &Limits) -> bool {
        let is_full = self.locks.len() >= limits.locks_per_node
            || self.has_ranges(party.client(), limits.locks_per_client)
            || self.has_ranges_of_host(party, limits.locks_per_host);
        if is_full
            && self.locks.iter().any(|l| {
                l.owner == *party && l.range.first < range.first && l.range.last > range.last
            })
        {
            return false;
        }
        self.locks.clear(party, range);
        true
    }

    pub(crate) fn holds_lock(&self, holder: HolderId) -> bool {
        self.locks.iter().any(|l| l.owner.holder == holder)
            || self.smb_locks.iter().any(|l| l.owner.holder == holder)
    }

    /// Removes everything that this holder has on the node.
    pub(crate) fn release(&mut self, holder: HolderId) {
        self.opens.retain(|o| o.party.holder != holder);
        self.locks.release(|p| p.holder == holder);
        self.smb_locks.release(|p| p.holder == holder);
        self.grants.release(holder);
    }

    /// As [`Record::release`], by the holder's own client.
    pub(crate) fn give_back(&mut self, holder: HolderId, now: Millis, deadlines: Deadlines) {
        self.grants.give_back(holder, now, deadlines);
        self.release(holder);
    }

    /// Copies a holder's opens and grants for the record of another node.
    pub(crate) fn part(&self, holder: HolderId) -> Self {
        let mut part = Self::default();
        part.opens.extend(self.opens.iter().filter(|o| o.party.holder == holder).cloned());
        part.grants.follow(&self.grants, holder);
        part
    }

    /// Replaces this holder's opens and grants by those from [`Record::part`].
    pub(crate) fn take_in(&mut self, part: Self, holder: HolderId) {
        self.opens.retain(|o| o.party.holder != holder);
        self.opens.extend(part.opens);
        self.grants.follow(&part.grants, holder);
    }

    /// Collects the breaks whose deadline has passed.
    pub(crate) fn overdue(&self, node: NodeId, now: Millis, out: &mut Vec<Break>) {
        self.grants.overdue(node, now, out);
    }
}

/// Converts an SMB lock to the form that NFS reports.
fn as_lock(l: &SmbLock<Holder>) -> Lock<Holder> {
    Lock {
        owner: l.owner.clone(),
        range: l.lock_range.range(),
        kind: l.kind,
        enforce: Enforce::Mandatory,
    }
}

fn judge(conflicts: impl Iterator<Item = Lock<Holder>>, now: Millis) -> LockVerdict {
    let mut found = Obstacles::default();
    for l in conflicts {
        if !found.is_lapsed(&l.owner, now) {
            return LockVerdict::Denied(l);
        }
    }
    if found.lapsed.is_empty() { LockVerdict::Go } else { LockVerdict::Lapsed(found.lapsed) }
}
