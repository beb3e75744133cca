//! The record of one node: who has it open, who has locked what, who caches what. No lock in here; the table has it.

use crate::access::{Rights, Share};
use crate::caching::{Caching, Kind, Operation, left};
use crate::expiry::Standing;
use crate::holder::{ClientId, HolderId, Millis, NodeId, Party, Who};
use crate::range::{Enforce, Lock, LockKind, Range, RangeSet};
use crate::recall::{Break, Deadlines, Stage};

/// Most holders of each sort that one node may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Opens.
    pub opens_per_node: usize,
    /// Byte-range locks.
    pub locks_per_node: usize,
    /// Caching grants.
    pub grants_per_node: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { opens_per_node: 16_384, locks_per_node: 16_384, grants_per_node: 1_024 }
    }
}

/// What is to be done with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may go on.
    Go,
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
        matches!(self, Self::Go)
    }
}

/// Why a lock was not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockVerdict {
    /// It was given.
    Go,
    /// This lock stands in the way.
    Denied(Lock<Party>),
    /// As [`Verdict::Lapsed`].
    Lapsed(Vec<ClientId>),
    /// As [`Verdict::Full`].
    Full(&'static str),
}

#[derive(Debug)]
struct Opened {
    party: Party,
    share: Share,
}

#[derive(Debug)]
struct Granted {
    party: Party,
    kind: Kind,
    rights: Caching,
    /// What it may keep, and until when it must have given the rest back.
    breaking: Option<(Caching, Millis)>,
}

/// Everything that is held of one node.
#[derive(Debug, Default)]
pub(crate) struct Record {
    opens: Vec<Opened>,
    locks: RangeSet<Party>,
    /// A mandatory lock is or was among `locks`; forgotten when none is left.
    mandatory: bool,
    grants: Vec<Granted>,
}

/// What stands in the way of something.
#[derive(Default)]
struct Obstacles {
    breaks: Vec<Break>,
    lapsed: Vec<ClientId>,
    denied: Option<HolderId>,
}

impl Obstacles {
    /// The client's lease has lapsed, so it is no obstacle but something to be cleared away.
    fn is_lapsed(&mut self, party: &Party, now: Millis) -> bool {
        let lapsed = party.lease.standing(now) != Standing::Live;
        if lapsed && !self.lapsed.contains(&party.client()) {
            self.lapsed.push(party.client());
        }
        lapsed
    }

    fn verdict(self) -> Verdict {
        if let Some(by) = self.denied {
            Verdict::Denied { by }
        } else if !self.lapsed.is_empty() {
            Verdict::Lapsed(self.lapsed)
        } else if !self.breaks.is_empty() {
            Verdict::WaitFor(self.breaks)
        } else {
            Verdict::Go
        }
    }
}

impl Record {
    pub(crate) fn is_empty(&self) -> bool {
        self.opens.is_empty() && self.locks.is_empty() && self.grants.is_empty()
    }

    /// Something in here can stand in the way of a read, write or change of names.
    pub(crate) fn is_restrictive(&self) -> bool {
        !self.grants.is_empty()
            || self.opens.iter().any(|o| !o.share.deny.is_none())
            || self.mandatory && !self.locks.is_empty()
    }

    pub(crate) fn has_grants(&self) -> bool {
        !self.grants.is_empty()
    }

    /// Opens the node, or widens what `party` has open already.
    pub(crate) fn open(
        &mut self,
        node: NodeId,
        party: &Party,
        share: Share,
        now: Millis,
        deadlines: Deadlines,
        limits: &Limits,
    ) -> Verdict {
        let mut found = Obstacles::default();
        for o in self.opens.iter().filter(|o| o.party != *party && o.share.conflicts(share)) {
            if !found.is_lapsed(&o.party, now) && found.denied.is_none() {
                found.denied = Some(o.party.holder);
            }
        }
        if found.denied.is_none() {
            self.breaks(
                node,
                Some(party.client()),
                Operation::Open(share),
                now,
                deadlines,
                &mut found,
            );
        }
        let verdict = found.verdict();
        if verdict != Verdict::Go {
            return verdict;
        }
        if let Some(mine) = self.opens.iter_mut().find(|o| o.party == *party) {
            mine.share = mine.share.union(share);
        } else if self.opens.len() >= limits.opens_per_node {
            return Verdict::Full("opens_per_node");
        } else {
            self.opens.push(Opened { party: party.clone(), share });
        }
        Verdict::Go
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
    pub(crate) fn before(
        &mut self,
        node: NodeId,
        who: Option<Who>,
        op: Operation,
        range: Range,
        now: Millis,
        deadlines: Deadlines,
    ) -> Verdict {
        let mut found = Obstacles::default();
        let wants = match op {
            Operation::Read => Rights::READ,
            Operation::Write => Rights::WRITE,
            _ => Rights::NONE,
        };
        let through = who.and_then(|w| w.holder);
        if through.is_none() && !wants.is_none() {
            for o in self.opens.iter().filter(|o| !(o.share.deny & wants).is_none()) {
                if !found.is_lapsed(&o.party, now) && found.denied.is_none() {
                    found.denied = Some(o.party.holder);
                }
            }
        }
        if !wants.is_none() && self.mandatory {
            let me = self.locks.iter().map(|l| &l.owner).find(|p| Some(p.holder) == through);
            let write = wants == Rights::WRITE;
            if let Some(l) = self.locks.blocks_io(me, range, write)
                && !found.is_lapsed(&l.owner, now)
                && found.denied.is_none()
            {
                found.denied = Some(l.owner.holder);
            }
        }
        if found.denied.is_none() {
            self.breaks(node, who.map(|w| w.client), op, now, deadlines, &mut found);
        }
        found.verdict()
    }

    /// Starts or finds the breaks that `op` by `client` needs.
    fn breaks(
        &mut self,
        node: NodeId,
        client: Option<ClientId>,
        op: Operation,
        now: Millis,
        deadlines: Deadlines,
        found: &mut Obstacles,
    ) {
        for g in self.grants.iter_mut().filter(|g| Some(g.party.client()) != client) {
            let keep = left(g.kind, g.rights, op);
            if keep == g.rights || found.is_lapsed(&g.party, now) {
                continue;
            }
            let (to, deadline, stage) = match g.breaking {
                None => {
                    let deadline = now.saturating_add(deadlines.acknowledge_ms());
                    g.breaking = Some((keep, deadline));
                    (keep, deadline, Stage::Started)
                }
                Some((to, deadline)) => {
                    // A deeper break joins the one under way; its remainder is asked for when that one has ended.
                    let stage = if now >= deadline { Stage::Overdue } else { Stage::UnderWay };
                    (to, deadline, stage)
                }
            };
            found.breaks.push(Break {
                node,
                holder: g.party.holder,
                client: g.party.client(),
                from: g.rights,
                to,
                stage,
                deadline,
            });
        }
    }

    /// Grants caching. False when what others hold, or what this client holds already, does not allow it.
    pub(crate) fn grant(
        &mut self,
        party: &Party,
        kind: Kind,
        rights: Caching,
        limits: &Limits,
    ) -> bool {
        let exclusive = rights.has(Caching::WRITE);
        let opens_agree = self.opens.iter().all(|o| {
            let other = o.party.client() != party.client();
            let writes = o.share.access.has(Rights::WRITE);
            let denies = o.share.deny.has(Rights::READ);
            if exclusive { !other } else { !(writes || other && denies) }
        });
        let grants_agree = self.grants.iter().all(|g| {
            g.breaking.is_none()
                && g.party.client() != party.client()
                && !exclusive
                && !g.rights.has(Caching::WRITE)
        });
        if !opens_agree || !grants_agree || self.grants.len() >= limits.grants_per_node {
            return false;
        }
        self.grants.push(Granted { party: party.clone(), kind, rights, breaking: None });
        true
    }

    /// The holder keeps `to` and gives the rest back, asked or not. False when it holds nothing.
    pub(crate) fn acknowledge(&mut self, holder: HolderId, to: Caching) -> bool {
        let Some(at) = self.grants.iter().position(|g| g.party.holder == holder) else {
            return false;
        };
        let g = &mut self.grants[at];
        g.rights = g.rights.and(to);
        if g.breaking.is_some_and(|(want, _)| g.rights.without(want).is_none()) {
            g.breaking = None;
        }
        if g.rights.is_none() {
            self.grants.swap_remove(at);
        }
        true
    }

    /// Gives a lock, or says what stands in the way.
    pub(crate) fn lock(
        &mut self,
        party: &Party,
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
        self.mandatory = enforce == Enforce::Mandatory || self.mandatory && !self.locks.is_empty();
        self.locks.set(party, range, kind, enforce);
        LockVerdict::Go
    }

    /// What would stand in the way of a lock.
    pub(crate) fn test(
        &self,
        holder: HolderId,
        range: Range,
        kind: LockKind,
        now: Millis,
    ) -> LockVerdict {
        let mut found = Obstacles::default();
        let others = self.locks.iter().filter(|l| {
            l.owner.holder != holder
                && l.range.overlaps(range)
                && (kind == LockKind::Exclusive || l.kind == LockKind::Exclusive)
        });
        for l in others {
            if !found.is_lapsed(&l.owner, now) {
                return LockVerdict::Denied(l.clone());
            }
        }
        if found.lapsed.is_empty() { LockVerdict::Go } else { LockVerdict::Lapsed(found.lapsed) }
    }

    /// Takes a lock away. False when the hole would make more locks than may be.
    pub(crate) fn unlock(&mut self, party: &Party, range: Range, limits: &Limits) -> bool {
        if self.locks.len() >= limits.locks_per_node
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
    }

    /// Takes away everything this holder has here.
    pub(crate) fn release(&mut self, holder: HolderId) {
        self.opens.retain(|o| o.party.holder != holder);
        self.locks.release(|p| p.holder == holder);
        self.grants.retain(|g| g.party.holder != holder);
    }

    /// Breaks whose time is over.
    pub(crate) fn overdue(&self, node: NodeId, now: Millis, out: &mut Vec<Break>) {
        out.extend(self.grants.iter().filter_map(|g| {
            let (to, deadline) = g.breaking.filter(|(_, deadline)| now >= *deadline)?;
            Some(Break {
                node,
                holder: g.party.holder,
                client: g.party.client(),
                from: g.rights,
                to,
                stage: Stage::Overdue,
                deadline,
            })
        }));
    }
}
