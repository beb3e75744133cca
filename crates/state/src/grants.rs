//! The caching grants of one node and their pending breaks.
//!
//! *Operation.* [`Grants::breaks`] starts or finds the breaks that an operation needs. While a holder is acknowledging one step,
//! another operation may require it to give up more. The break is then deepened, and the next step starts when the current one is
//! acknowledged (MS-FSA section 2.1.5.19). Like Windows, the steps take WRITE first, then HANDLE, then READ. An operation that
//! waits for WRITE caching to be broken waits for every step.
//!
//! # States of a grant
//!
//! ```text
//!            cache, delegate            breaks (acknowledge)
//!   no grant ---------------> GRANTED ---------------------> BREAKING { to, deeper, deadline }
//!      ^                       |   ^                           |   |  ^
//!      |  breaks (no           |   +---------------------------+   |  | breaks: `deeper` shrinks
//!      |  acknowledgement)     |       acknowledge                 |  | acknowledge: next step
//!      +-----------------------+                                   +--+
//! ```
//!
//! | from | function | to |
//! |---|---|---|
//! | no grant | [`Grants::cache`], [`Grants::delegate`] | GRANTED with the possible part (a delegation: all), or no grant |
//! | GRANTED | the same for the same holder | GRANTED, widened or unchanged |
//! | GRANTED | [`Grants::acknowledge`], unasked | GRANTED with fewer rights, or no grant |
//! | GRANTED | [`Grants::breaks`], effect without acknowledgement: the holder has only READ | no grant |
//! | GRANTED | [`Grants::breaks`], effect with acknowledgement | BREAKING; the holder keeps its rights until it answers |
//! | BREAKING | [`Grants::breaks`] | BREAKING; `deeper` shrinks, the notice is not repeated |
//! | BREAKING | [`Grants::acknowledge`] with at most `to`, and `deeper` reached | GRANTED, or no grant |
//! | BREAKING | the same, and `deeper` is less | the next step: BREAKING, or done at once if only READ remained |
//! | BREAKING | [`Grants::acknowledge`] with more than `to` | BREAKING |
//! | BREAKING | [`Grants::note_writing`], by its client | BREAKING; the whole time, if it loses WRITE and had the short one |
//! | BREAKING | [`Grants::overdue`], [`Grants::breaks`] after the deadline | BREAKING; the front end revokes the rights |
//! | BREAKING | [`Grants::revoke`], at the deadline | no grant; less time for the client's other breaks ([`crate::answers`]) |
//! | any | [`Grants::give_back`], [`Grants::release`] | no grant |

use crate::caching::{Caching, Effect, Kind, Operation, effect};
use crate::holder::Holder;
use crate::id::{CacheKey, ClientId, HolderId, Millis, NodeId};
use crate::recall::{Break, Deadlines, Stage};
use crate::turns::{self, Waiter};

/// A break that waits for the holder's acknowledgement.
#[derive(Clone, Copy, Debug)]
struct PendingBreak {
    /// The rights that the holder keeps after the current step, as the notice says.
    to: Caching,
    /// The rights that the holder keeps after the last step.
    deeper: Caching,
    /// The rights before the first step; they decide whether other operations wait.
    origin: Caching,
    /// The deadline as the step began, by which front ends name it.
    deadline: Millis,
    /// The deadline if the client writes to files that it returns.
    latest: Millis,
    /// Writes of the client to files that it returns, as the break began ([`crate::Answers::writes`]).
    writes: u64,
}

#[derive(Clone, Debug)]
struct Grant {
    party: Holder,
    kind: Kind,
    rights: Caching,
    breaking: Option<PendingBreak>,
}

/// The rights of a holder, as reported to its front end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// All rights, including those that a pending break will remove.
    pub rights: Caching,
    /// The rights that the pending break leaves; `None` if no break is pending.
    pub breaking_to: Option<Caching>,
}

/// The result of an acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// Whether the holder had a grant.
    pub held: bool,
    /// The next step of the break, which the front end must send to the holder.
    pub next: Option<Break>,
}

/// The breaks that an operation causes.
#[derive(Debug, Default)]
pub(crate) struct BreakOutcome {
    /// All breaks that concern the operation, including those that have just started.
    pub breaks: Vec<Break>,
    /// Whether the operation must wait.
    pub wait: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Grants(Vec<Grant>);

impl Grant {
    fn new(party: Holder, kind: Kind, rights: Caching) -> Self {
        Self { party, kind, rights, breaking: None }
    }

    /// Checks that `op` by the holder's own client leaves this grant alone. A level II oplock is broken even by the holder's own
    /// writes and locks (MS-FSA section 2.1.4.12, BreakToNone).
    fn spares(&self, by: Option<CacheKey>, op: Operation) -> bool {
        let level_two = self.kind == Kind::Oplock && self.rights == Caching::READ;
        Some(self.party.key()) == by
            && !(level_two && matches!(op, Operation::Write | Operation::Resize | Operation::Lock))
    }

    /// Returns the effect of `op`, computed from the rights before the pending break.
    fn effect(&self, op: Operation) -> Option<Effect> {
        let origin = self.breaking.map_or(self.rights, |b| b.origin);
        effect(self.kind, origin, op)
    }

    /// Returns the time by which the holder must acknowledge. A client that has a short time because it was silent, and that writes
    /// meanwhile, has the whole time, from the begin of the step.
    fn deadline(&self, b: &PendingBreak) -> Millis {
        let writes = self.party.lease.answers().writes();
        if writes == b.writes { b.deadline } else { b.latest }
    }

    fn told(&self, node: NodeId, to: Caching, stage: Stage, deadline: Millis) -> Break {
        let (holder, client) = (self.party.holder, self.party.client());
        Break { node, holder, client, kind: self.kind, from: self.rights, to, stage, deadline }
    }

    /// Starts a step that the holder must acknowledge.
    fn begin(&mut self, node: NodeId, b: PendingBreak) -> Break {
        let told = self.told(node, b.to, Stage::Started, b.deadline);
        self.breaking = Some(b);
        told
    }

    /// Removes rights that need no acknowledgement.
    fn take(&mut self, node: NodeId, keep: Caching, now: Millis) -> Break {
        let told = self.told(node, keep, Stage::Done, now);
        self.rights = keep;
        self.breaking = None;
        told
    }
}

/// The kind of byte-range locks that exist on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockPresence {
    Nothing,
    /// All locks are past the allocation size.
    Nowhere,
    /// At least one lock covers allocated data.
    Data,
}

impl Grants {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes that a holder writes to a file whose rights it returns: a client that has much to write back answers all its breaks,
    /// however long that takes.
    pub(crate) fn note_writing(&self, by: Option<CacheKey>, op: Operation) {
        if matches!(op, Operation::Write | Operation::Resize) {
            let its = self.0.iter().filter(|g| g.breaking.is_some() && Some(g.party.key()) == by);
            its.for_each(|g| g.party.lease.answers().wrote());
        }
    }

    /// Returns the holders whose grants `op` would break.
    pub(crate) fn touched(
        &self,
        by: Option<CacheKey>,
        op: Operation,
    ) -> impl Iterator<Item = &Holder> {
        self.0.iter().filter(move |g| !g.spares(by, op) && g.effect(op).is_some()).map(|g| &g.party)
    }

    /// Starts or finds the breaks that `op` needs.
    pub(crate) fn breaks(
        &mut self,
        node: NodeId,
        by: Option<CacheKey>,
        op: Operation,
        now: Millis,
        deadlines: Deadlines,
    ) -> BreakOutcome {
        let mut out = BreakOutcome::default();
        for g in self.0.iter_mut().filter(|g| !g.spares(by, op)) {
            let Some(e) = g.effect(op) else { continue };
            // The holder gets the next notice only after it acknowledges the current step, so it may read from its cache until then
            // if the current step leaves it READ.
            let reads_on = g.breaking.is_some_and(|b| b.to.without(e.keep).has(Caching::READ));
            // Same rule as `turns::waits`, applied to the rights before the pending break.
            let is_smb = by.is_some_and(|key| key.client.is_key());
            let loses_read = g.rights.without(e.keep).has(Caching::READ);
            let wait = e.wait || reads_on || !is_smb && e.acknowledge && loses_read;
            out.wait |= wait;
            let is_overdue = g.breaking.is_some_and(|b| now >= g.deadline(&b));
            let told = match &mut g.breaking {
                None if !e.acknowledge => g.take(node, e.keep, now),
                None => {
                    let client = g.party.lease.answers();
                    let loses_write = g.rights.without(e.keep).has(Caching::WRITE);
                    let deadline = deadlines.of(client, loses_write, now);
                    // Only a holder that loses WRITE may have data to write back.
                    let latest = if loses_write { deadlines.whole(now) } else { deadline };
                    let (to, origin, writes) = (e.keep, g.rights, client.writes());
                    g.begin(node, PendingBreak { to, deeper: to, origin, deadline, latest, writes })
                }
                Some(b) => {
                    b.deeper = b.deeper.and(e.keep);
                    let (to, deadline) = (b.to, b.deadline);
                    if !wait {
                        continue;
                    }
                    let stage = if is_overdue { Stage::Overdue } else { Stage::UnderWay };
                    g.told(node, to, stage, deadline)
                }
            };
            out.breaks.push(told);
        }
        self.forget_empty();
        out
    }

    fn forget_empty(&mut self) {
        self.0.retain(|g| !g.rights.is_none());
    }

    /// Grants an NFS delegation, whole or not at all, one per client. Only the current holder can widen its grant: a write
    /// delegation replaces its read delegation.
    pub(crate) fn delegate(&mut self, party: &Holder, rights: Caching, max: usize) -> bool {
        if let [only] = &mut self.0[..]
            && only.party.holder == party.holder
        {
            let widens =
                only.breaking.is_none() && rights.has(only.rights) && rights != only.rights;
            if widens {
                only.rights = rights;
            }
            return widens;
        }
        let agree = self.0.iter().all(|g| {
            g.breaking.is_none()
                && g.party.key() != party.key()
                && !rights.has(Caching::WRITE)
                && !g.rights.has(Caching::WRITE)
        });
        if !agree || self.0.len() >= max {
            return false;
        }
        let (party, kind) = (party.clone(), Kind::Delegation);
        self.0.push(Grant::new(party, kind, rights));
        true
    }

    /// Grants the part of `want` that is possible (MS-FSA sections 2.1.5.18.1 and 2.1.5.18.2). An existing grant of this holder is
    /// widened to all of `want` or left unchanged. `alone`: no open with another key exists. `waiting`: clients that are served
    /// first.
    pub(crate) fn cache(
        &mut self,
        party: &Holder,
        (kind, want): (Kind, Caching),
        (alone, locked): (bool, LockPresence),
        waiting: &[Waiter],
        max: usize,
    ) -> Held {
        let mut may = want;
        for g in self.0.iter().filter(|g| g.party.key() != party.key()) {
            may = may.without(Caching::WRITE);
            let origin = g.breaking.map_or(g.rights, |b| b.origin);
            if origin.has(Caching::WRITE) {
                may = Caching::NONE;
            }
            // Oplocks and leases can share only READ: a level II oplock does not cover handles.
            match (kind, g.kind) {
                (Kind::Oplock, _) if origin.has(Caching::HANDLE) => may = Caching::NONE,
                (Kind::Lease, Kind::Oplock) => may = may.without(Caching::HANDLE),
                _ => {}
            }
        }
        if !alone || locked != LockPresence::Nothing {
            // Do not grant exclusive caching to a holder that has locks: it would keep further locks to itself. When Linux must
            // return such a grant it sends all its locks, including those that the server already has, and loses the neighbours of
            // one that is refused.
            may = may.without(Caching::WRITE);
        }
        if locked == LockPresence::Data {
            // MS-FSA section 2.1.5.18.2: a lock on data rules out shared caching.
            may = Caching::NONE;
        }
        may = turns::spared(waiting, kind, may);
        may = match kind {
            // If a batch oplock is impossible, grant level II.
            Kind::Oplock if may != want => may.and(Caching::READ),
            _ => may.grantable(),
        };
        let full = self.0.len() >= max;
        match self.0.iter_mut().find(|g| g.party.holder == party.holder) {
            Some(mine) => {
                if mine.breaking.is_none() && may == want && may.has(mine.rights) {
                    mine.rights = may;
                }
                Held { rights: mine.rights, breaking_to: mine.breaking.map(|b| b.to) }
            }
            None if may.is_none() || full => Held::default(),
            None => {
                self.0.push(Grant::new(party.clone(), kind, may));
                Held { rights: may, breaking_to: None }
            }
        }
    }

    pub(crate) fn held(&self, holder: HolderId) -> Option<Held> {
        let g = self.0.iter().find(|g| g.party.holder == holder)?;
        Some(Held { rights: g.rights, breaking_to: g.breaking.map(|b| b.to) })
    }

    /// Returns the holder of the delegation with this key.
    pub(crate) fn delegation(&self, key: CacheKey) -> Option<HolderId> {
        let mut delegations = self.0.iter().filter(|g| g.kind == Kind::Delegation);
        delegations.find(|g| g.party.key() == key).map(|g| g.party.holder)
    }

    /// Returns another client with a write delegation, which may have a newer size and newer times than the server.
    pub(crate) fn keeps_back(&self, by: Option<CacheKey>) -> Option<(ClientId, HolderId)> {
        let mut others = self.0.iter().filter(|g| Some(g.party.key()) != by);
        let found = others.find(|g| g.kind == Kind::Delegation && g.rights.has(Caching::WRITE))?;
        Some((found.party.client(), found.party.holder))
    }

    /// Reduces the holder's rights to `to`, whether or not a break asked for it. The answer to a break shows that its client
    /// answers.
    pub(crate) fn acknowledge(
        &mut self,
        node: NodeId,
        holder: HolderId,
        to: Caching,
        now: Millis,
        deadlines: Deadlines,
    ) -> Acknowledged {
        let Some(g) = self.0.iter_mut().find(|g| g.party.holder == holder) else {
            return Acknowledged::default();
        };
        g.rights = g.rights.and(to);
        let mut next = None;
        if let Some(b) = g.breaking.filter(|b| g.rights.without(b.to).is_none()) {
            g.party.lease.answers().answered(now, deadlines.acknowledge_ms());
            // Only the first step may take WRITE.
            let deadline = deadlines.of(g.party.lease.answers(), false, now);
            let b = PendingBreak { deadline, latest: deadline, ..b };
            let rest = g.rights.and(b.deeper).grantable();
            if rest == g.rights {
                g.breaking = None;
            } else if g.rights == Caching::READ {
                next = Some(g.take(node, rest, now));
            } else if g.kind == Kind::Lease && g.rights == Caching::READ_HANDLE {
                next = Some(g.begin(node, PendingBreak { to: Caching::READ, ..b }));
            } else {
                next = Some(g.begin(node, PendingBreak { to: rest, ..b }));
            }
        }
        self.forget_empty();
        Acknowledged { held: true, next }
    }

    /// Returns the time by which the holder must acknowledge the break with this deadline: later if its client has written back.
    pub(crate) fn deadline(&self, holder: HolderId, deadline: Millis) -> Millis {
        let mut its = self.0.iter().filter(|g| g.party.holder == holder);
        let now =
            its.find_map(|g| g.breaking.filter(|b| b.deadline == deadline).map(|b| g.deadline(&b)));
        now.unwrap_or(deadline)
    }

    /// Removes the rights of a holder that did not acknowledge the break with this deadline, and notes that its client does not
    /// answer, unless it has written to files that it returns meanwhile. Returns false if that break is over; a later one has
    /// another deadline.
    pub(crate) fn revoke(
        &mut self,
        holder: HolderId,
        deadline: Millis,
        now: Millis,
        deadlines: Deadlines,
    ) -> bool {
        let is_meant = |g: &Grant| g.breaking.is_some_and(|b| b.deadline == deadline);
        let found = self.0.iter().position(|g| g.party.holder == holder && is_meant(g));
        if let Some(at) = found {
            let gone = self.0.remove(at);
            let client = gone.party.lease.answers();
            match gone.breaking.is_some_and(|b| b.writes != client.writes()) {
                true => client.reached(now, deadlines.acknowledge_ms()),
                false => client.missed(now),
            }
        }
        found.is_some()
    }

    /// Removes the grants of this holder.
    pub(crate) fn release(&mut self, holder: HolderId) {
        self.0.retain(|g| g.party.holder != holder);
    }

    /// As [`Grants::release`], by the holder's own client: its answer to a break whose time has not run out.
    pub(crate) fn give_back(&mut self, holder: HolderId, now: Millis, deadlines: Deadlines) {
        let in_time = |g: &&Grant| g.breaking.is_some_and(|b| now < g.deadline(&b));
        let its = self.0.iter().filter(|g| g.party.holder == holder);
        its.filter(in_time).for_each(|g| {
            g.party.lease.answers().answered(now, deadlines.acknowledge_ms());
        });
        self.release(holder);
    }

    /// Copies a holder's grants and pending breaks from another node.
    pub(crate) fn follow(&mut self, other: &Self, holder: HolderId) {
        self.release(holder);
        self.0.extend(other.0.iter().filter(|g| g.party.holder == holder).cloned());
    }

    /// Collects the breaks whose deadline has passed.
    pub(crate) fn overdue(&self, node: NodeId, now: Millis, out: &mut Vec<Break>) {
        out.extend(self.0.iter().filter_map(|g| {
            let b = g.breaking.filter(|b| now >= g.deadline(b))?;
            Some(g.told(node, b.to, Stage::Overdue, b.deadline))
        }));
    }
}
