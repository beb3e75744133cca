//! The record of one node: who has it open, who has locked what, who caches what. No lock in here; the table has it.

use crate::access::{Rights, Share};
use crate::caching::{CacheRequest, Caching, Operation};
use crate::expiry::LeaseState;
use crate::grants::{Acknowledged, Grants, Held, Locked};
use crate::holder::{Holder, Requester};
use crate::id::{ClientId, HolderId, Millis, NodeId};
use crate::pending::{Name, PendingDeletes};
use crate::range::{Enforce, Lock, LockKind, Range, RangeSet};
use crate::recall::{Break, Deadlines, Stage};
use crate::smb_lock::{SmbLock, SmbLockRange, SmbLocks};
use crate::turns::Waiter;

/// Most holders of each sort that one node may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Opens of all clients.
    pub opens_per_node: usize,
    /// Opens of one client, so that no client fills the node for the others.
    pub opens_per_client: usize,
    /// Opens of all clients of one host ([`Lease::of_host`](crate::Lease::of_host)).
    pub opens_per_host: usize,
    /// Byte-range locks of all clients, of either sort.
    pub locks_per_node: usize,
    /// Byte-range locks of one client, of either sort. Without a client of their own, opens of SMB count one by one.
    pub locks_per_client: usize,
    /// Byte-range locks of NFS of all clients of one host.
    pub locks_per_host: usize,
    /// Caching grants.
    pub grants_per_node: usize,
}

impl Limits {
    /// Those of a server.
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

/// What is to be done with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may go on.
    Go,
    /// It may go on, and these holders are to be told what they have lost or have to give back.
    Tell(Vec<Break>),
    /// These rights must come back first. The front ends are told of those that have just started, and the request asks again.
    WaitFor(Vec<Break>),
    /// The leases of these clients have lapsed, and they stand in the way: release them and ask again.
    Lapsed(Vec<ClientId>),
    /// This holder stands in the way by its share mode or its lock.
    Denied {
        /// It.
        by: HolderId,
    },
    /// The node has as many holders as it may have.
    Full(&'static str),
}

impl Verdict {
    /// It may go on.
    pub fn is_go(&self) -> bool {
        matches!(self, Self::Go | Self::Tell(_))
    }
}

/// How a node is to be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// What the open does and forbids.
    pub share: Share,
    /// It empties the file (FILE_SUPERSEDE, FILE_OVERWRITE, FILE_OVERWRITE_IF).
    pub overwrites: bool,
    /// It asks for attributes and the security descriptor only: it takes part in no check (MS-FSA section 2.1.4.12, Case OPEN).
    pub attributes_only: bool,
    /// It asks for the security descriptor, which breaks oplocks, and keeps others from WRITE caching while it stands.
    pub control: bool,
}

impl Opening {
    /// What it does to the caching of others.
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

/// Why a lock was not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockVerdict {
    /// It was given.
    Go,
    /// This lock stands in the way.
    Denied(Lock<Holder>),
    /// As [`Verdict::Lapsed`].
    Lapsed(Vec<ClientId>),
    /// As [`Verdict::Full`].
    Full(&'static str),
}

#[derive(Clone, Debug)]
struct Opened {
    party: Holder,
    share: Share,
}

/// Everything that is held of one node.
#[derive(Debug, Default)]
pub(crate) struct Record {
    opens: Vec<Opened>,
    /// Locks of NFS.
    locks: RangeSet<Holder>,
    /// Locks of SMB.
    smb_locks: SmbLocks<Holder>,
    /// A mandatory lock is or was among `locks`; forgotten when none is left.
    mandatory: bool,
    grants: Grants,
    pending: PendingDeletes,
}

/// What stands in the way of something.
#[derive(Default)]
struct Obstacles {
    lapsed: Vec<ClientId>,
    denied: Option<HolderId>,
}

impl Obstacles {
    /// The client's lease has lapsed, so it is no obstacle but something to be cleared away.
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

    /// Something in here can stand in the way of a read, write or change of names.
    pub(crate) fn is_restrictive(&self) -> bool {
        !self.grants.is_empty()
            || !self.smb_locks.is_empty()
            || self.opens.iter().any(|o| !o.share.deny.is_none())
            || !self.locks.is_empty()
                && (self.mandatory || self.opens.iter().any(|o| o.party.client().is_key()))
    }

    /// Names of it wait to be removed.
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

    /// The operation touches somebody's caching.
    pub(crate) fn would_break(&self, client: Option<ClientId>, op: Operation) -> bool {
        self.grants.touched(client, op).next().is_some()
    }

    /// Opens that other keys than this have.
    pub(crate) fn opens(&self, but: Option<ClientId>) -> usize {
        self.opens.iter().filter(|o| Some(o.party.client()) != but).count()
    }

    /// Opens the node, or widens what `party` has open already.
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
        let client = Some(party.client());
        if found.denied.is_some() && found.lapsed.is_empty() {
            // MS-FSA 2.1.5.1.2: what stands in the way may be an open that its client keeps without need.
            let handles = self.breaks(node, client, Operation::Handles, now, deadlines);
            if matches!(handles, Verdict::WaitFor(_) | Verdict::Lapsed(_)) {
                return handles;
            }
        }
        if let Some(refused) = found.verdict() {
            return refused;
        }
        let verdict = self.breaks(node, client, how.operation(), now, deadlines);
        if !verdict.is_go() {
            return verdict;
        }
        if let Some(mine) = self.opens.iter_mut().find(|o| o.party == *party) {
            mine.share = mine.share.union(share);
        } else if how.attributes_only && !how.control {
            // It overwrote, and is in nobody's way from now on.
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
            self.opens.push(Opened { party: party.clone(), share });
        }
        verdict
    }

    /// Sets exactly what a holder has open; none of both closes it. A narrower mode conflicts with nobody.
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

    /// Something is about to be done to the node. `range` is of reads and writes.
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
        refused
            .unwrap_or_else(|| self.breaks(node, requester.map(|w| w.client), op, now, deadlines))
    }

    /// Why something may not be done to the node, whatever anybody caches: a share mode or a lock.
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
        // What is advice among clients of NFS may bind those of SMB.
        let is_smb = requester.is_some_and(|w| w.client.is_key());
        if self.mandatory || is_smb {
            let binding = if is_smb { Enforce::Smb } else { Enforce::Mandatory };
            let me = self.locks.iter().map(|l| &l.owner).find(|p| Some(p.holder) == through);
            for l in self.locks.blocks_io(me, range, write, binding) {
                found.deny(&l.owner, now);
            }
        }
    }

    /// It was changed by somebody whom nobody asked: the breaks that this starts.
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

    /// Starts or finds the breaks that `op` by `client` needs.
    fn breaks(
        &mut self,
        node: NodeId,
        client: Option<ClientId>,
        op: Operation,
        now: Millis,
        deadlines: Deadlines,
    ) -> Verdict {
        let mut found = Obstacles::default();
        for party in self.grants.touched(client, op) {
            found.is_lapsed(party, now);
        }
        // Nothing is started before these are gone, because whoever starts a break must also tell of it.
        if let Some(lapsed) = found.verdict() {
            return lapsed;
        }
        let broken = self.grants.breaks(node, client, op, now, deadlines);
        if broken.wait {
            Verdict::WaitFor(broken.breaks)
        } else if broken.breaks.is_empty() {
            Verdict::Go
        } else {
            Verdict::Tell(broken.breaks)
        }
    }

    /// Grants a delegation. False when what others hold, or what this client holds already, does not allow it.
    pub(crate) fn delegate(&mut self, party: &Holder, rights: Caching, limits: &Limits) -> bool {
        let exclusive = rights.has(Caching::WRITE);
        let opens_agree = self.opens.iter().all(|o| {
            let other = o.party.client() != party.client();
            let writes = o.share.access.has(Rights::WRITE);
            let denies = o.share.deny.has(Rights::READ);
            if exclusive { !other } else { !(writes || other && denies) }
        });
        // Who may write by itself may lock by itself (RFC 8881 section 10.4), so nobody else has a lock already.
        let locked = || {
            let others = |p: &Holder| p.client() != party.client();
            self.locks.iter().any(|l| others(&l.owner)) || !self.smb_locks.is_empty()
        };
        let max = limits.grants_per_node;
        opens_agree && !(exclusive && locked()) && self.grants.delegate(party, rights, max)
    }

    pub(crate) fn delegation(&self, client: ClientId) -> Option<HolderId> {
        self.grants.delegation(client)
    }

    pub(crate) fn keeps_back(&self, client: Option<ClientId>) -> Option<(ClientId, HolderId)> {
        self.grants.keeps_back(client)
    }

    /// Grants an oplock or lease as far as it can be had.
    pub(crate) fn cache(
        &mut self,
        party: &Holder,
        want: CacheRequest,
        waiting: &[Waiter],
        limits: &Limits,
    ) -> Held {
        let alone = self.opens(Some(party.client())) == 0;
        let smb_locks = self.smb_locks.iter().map(|l| l.lock_range.offset);
        let first = smb_locks.chain(self.locks.iter().map(|l| l.range.first)).min();
        let locked = match first {
            None => Locked::Nothing,
            Some(first) if first >= want.allocated => Locked::Nowhere,
            Some(_) => Locked::Data,
        };
        let max = limits.grants_per_node;
        self.grants.cache(party, (want.kind, want.rights), (alone, locked), waiting, max)
    }

    pub(crate) fn held(&self, holder: HolderId) -> Option<Held> {
        self.grants.held(holder)
    }

    /// The holder keeps `to` and gives the rest back, asked or not.
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

    /// Gives a lock, or says what stands in the way.
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
        // A new lock in the middle of an old one of the other kind makes two more at most.
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

    /// Gives a lock of SMB, or says what stands in the way.
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

    /// A client has so many byte ranges locked, or more; counted only where all clients together have.
    fn has_ranges(&self, client: ClientId, many: usize) -> bool {
        self.locks.len() >= many
            && self.locks.iter().filter(|l| l.owner.client() == client).count() >= many
    }

    /// The same for all clients of the host of this one.
    fn has_ranges_of_host(&self, party: &Holder, many: usize) -> bool {
        self.locks.len() >= many
            && self.locks.iter().filter(|l| l.owner.is_beside(party)).count() >= many
    }

    fn has_opens(&self, party: &Holder, many: usize) -> bool {
        self.opens.len() >= many
            && self.opens.iter().filter(|o| o.party.is_beside(party)).count() >= many
    }

    /// Takes a lock of SMB away. False when no lock of exactly this range is held.
    pub(crate) fn unlock_smb(&mut self, party: &Holder, lock_range: SmbLockRange) -> bool {
        self.smb_locks.clear(party, lock_range)
    }

    /// Takes the last lock of SMB away of this range and kind. False when there is none.
    pub(crate) fn undo_smb(
        &mut self,
        party: &Holder,
        lock_range: SmbLockRange,
        kind: LockKind,
    ) -> bool {
        self.smb_locks.undo(party, lock_range, kind)
    }

    /// How many byte ranges are locked.
    pub(crate) fn locks(&self) -> usize {
        self.locks.len() + self.smb_locks.len()
    }

    /// The locks of SMB that a holder has.
    pub(crate) fn smb_locks_of(&self, holder: HolderId) -> Vec<(SmbLockRange, LockKind)> {
        let mine = self.smb_locks.iter().filter(|l| l.owner.holder == holder);
        mine.map(|l| (l.lock_range, l.kind)).collect()
    }

    /// What would stand in the way of a lock.
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

    /// Takes a lock away. False when the hole would make more locks than may be.
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

    /// Takes away everything this holder has here.
    pub(crate) fn release(&mut self, holder: HolderId) {
        self.opens.retain(|o| o.party.holder != holder);
        self.locks.release(|p| p.holder == holder);
        self.smb_locks.release(|p| p.holder == holder);
        self.grants.release(holder);
    }

    /// What a holder has open and caches, for the record of another node.
    pub(crate) fn part(&self, holder: HolderId) -> Self {
        let mut part = Self::default();
        part.opens.extend(self.opens.iter().filter(|o| o.party.holder == holder).cloned());
        part.grants.follow(&self.grants, holder);
        part
    }

    /// Takes in what [`Record::part`] gave of this holder.
    pub(crate) fn take_in(&mut self, part: Self, holder: HolderId) {
        self.opens.retain(|o| o.party.holder != holder);
        self.opens.extend(part.opens);
        self.grants.follow(&part.grants, holder);
    }

    /// Breaks whose time is over.
    pub(crate) fn overdue(&self, node: NodeId, now: Millis, out: &mut Vec<Break>) {
        self.grants.overdue(node, now, out);
    }
}

/// A lock of SMB as NFS reports it.
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
