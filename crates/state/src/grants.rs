//! The caching grants of one node, and the breaks under way among them.
//!
//! *Operation.* [`Grants::breaks`] starts or finds the breaks that an operation needs. While a holder gives something back, a
//! further operation may need more: that deepens the break, and the rest is asked for when the step under way has been
//! acknowledged (MS-FSA section 2.1.5.19), one step after the other as Windows does it: first WRITE, then HANDLE, then READ. Who
//! waits for a break of WRITE caching waits for all of its steps.

use crate::caching::{Caching, Effect, Kind, Operation, effect};
use crate::holder::Holder;
use crate::id::{ClientId, HolderId, Millis, NodeId};
use crate::recall::{Break, Deadlines, Stage};
use crate::turns::{self, Waiter};

/// A break that waits for its acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Breaking {
    /// What the holder was told that it may keep.
    to: Caching,
    /// What it may keep in the end.
    deeper: Caching,
    /// What it had when the first step began: by this others see whether they wait.
    origin: Caching,
    deadline: Millis,
}

#[derive(Clone, Debug)]
struct Granted {
    party: Holder,
    kind: Kind,
    rights: Caching,
    breaking: Option<Breaking>,
}

/// What a holder has, as its front end tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// What it has; during a break still all of it.
    pub rights: Caching,
    /// What it was told to keep, while that is not acknowledged.
    pub breaking_to: Option<Caching>,
}

/// What came of an acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// The holder had something.
    pub held: bool,
    /// The next step: the holder must be told of it.
    pub next: Option<Break>,
}

/// What an operation has to do with the grants of others.
#[derive(Debug, Default)]
pub(crate) struct Broken {
    /// All breaks that concern it, those that just started among them.
    pub breaks: Vec<Break>,
    /// It has to wait.
    pub wait: bool,
}

/// All grants of one node.
#[derive(Debug, Default)]
pub(crate) struct Grants(Vec<Granted>);

impl Granted {
    /// A level II oplock does not survive even its holder's own writes and locks (MS-FSA section 2.1.4.12, BreakToNone).
    fn spares(&self, client: Option<ClientId>, op: Operation) -> bool {
        let level_two = self.kind == Kind::Oplock && self.rights == Caching::READ;
        Some(self.party.client()) == client
            && !(level_two && matches!(op, Operation::Write | Operation::Resize | Operation::Lock))
    }

    /// What `op` does to it, seen from where a break under way began.
    fn effect(&self, op: Operation) -> Option<Effect> {
        let origin = self.breaking.map_or(self.rights, |b| b.origin);
        effect(self.kind, origin, op)
    }

    fn told(&self, node: NodeId, to: Caching, stage: Stage, deadline: Millis) -> Break {
        let (holder, client) = (self.party.holder, self.party.client());
        Break { node, holder, client, kind: self.kind, from: self.rights, to, stage, deadline }
    }

    /// Begins a step that must be acknowledged.
    fn begin(&mut self, node: NodeId, b: Breaking) -> Break {
        let told = self.told(node, b.to, Stage::Started, b.deadline);
        self.breaking = Some(b);
        told
    }

    /// Takes rights that need no acknowledgement.
    fn take(&mut self, node: NodeId, keep: Caching, now: Millis) -> Break {
        let told = self.told(node, keep, Stage::Done, now);
        self.rights = keep;
        self.breaking = None;
        told
    }
}

/// What byte-range locks there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locked {
    /// None.
    Nothing,
    /// Some, all behind what is allocated for the file.
    Nowhere,
    /// Some of data.
    Data,
}

impl Grants {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Holders that `op` by `client` would break.
    pub(crate) fn touched(
        &self,
        client: Option<ClientId>,
        op: Operation,
    ) -> impl Iterator<Item = &Holder> {
        self.0
            .iter()
            .filter(move |g| !g.spares(client, op) && g.effect(op).is_some())
            .map(|g| &g.party)
    }

    /// Starts or finds the breaks that `op` by `client` needs.
    pub(crate) fn breaks(
        &mut self,
        node: NodeId,
        client: Option<ClientId>,
        op: Operation,
        now: Millis,
        deadlines: Deadlines,
    ) -> Broken {
        let mut out = Broken::default();
        for g in self.0.iter_mut().filter(|g| !g.spares(client, op)) {
            let Some(e) = g.effect(op) else { continue };
            // Nothing more is told before the step under way is acknowledged, so what it leaves may be read from the cache until
            // then.
            let reads_on = g.breaking.is_some_and(|b| b.to.without(e.keep).has(Caching::READ));
            // As in `turns::waits`, from where the break under way began.
            let is_smb = client.is_some_and(ClientId::is_key);
            let loses_read = g.rights.without(e.keep).has(Caching::READ);
            let wait = e.wait || reads_on || !is_smb && e.acknowledge && loses_read;
            out.wait |= wait;
            let told = match &mut g.breaking {
                None if !e.acknowledge => g.take(node, e.keep, now),
                None => {
                    let deadline = now.saturating_add(deadlines.acknowledge_ms());
                    let (to, origin) = (e.keep, g.rights);
                    g.begin(node, Breaking { to, deeper: to, origin, deadline })
                }
                Some(b) => {
                    b.deeper = b.deeper.and(e.keep);
                    let (to, deadline) = (b.to, b.deadline);
                    if !wait {
                        continue;
                    }
                    let stage = if now >= deadline { Stage::Overdue } else { Stage::UnderWay };
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

    /// Grants an NFS delegation, which is whole or not at all, and one per client: only its holder can have more of it, a write
    /// delegation in the place of its read delegation.
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
                && g.party.client() != party.client()
                && !rights.has(Caching::WRITE)
                && !g.rights.has(Caching::WRITE)
        });
        if !agree || self.0.len() >= max {
            return false;
        }
        let (party, kind) = (party.clone(), Kind::Delegation);
        self.0.push(Granted { party, kind, rights, breaking: None });
        true
    }

    /// Grants what can be had of `want` (MS-FSA sections 2.1.5.18.1 and 2.1.5.18.2). What this holder has already is widened to
    /// all of `want` or stays as it is. `alone`: no open with another key, `waiting`: who has a turn before.
    pub(crate) fn cache(
        &mut self,
        party: &Holder,
        (kind, want): (Kind, Caching),
        (alone, locked): (bool, Locked),
        waiting: &[Waiter],
        max: usize,
    ) -> Held {
        let mut may = want;
        for g in self.0.iter().filter(|g| g.party.client() != party.client()) {
            may = may.without(Caching::WRITE);
            let origin = g.breaking.map_or(g.rights, |b| b.origin);
            if origin.has(Caching::WRITE) {
                may = Caching::NONE;
            }
            // The two families share READ only: a level II oplock says nothing of handles.
            match (kind, g.kind) {
                (Kind::Oplock, _) if origin.has(Caching::HANDLE) => may = Caching::NONE,
                (Kind::Lease, Kind::Oplock) => may = may.without(Caching::HANDLE),
                _ => {}
            }
        }
        if !alone || locked != Locked::Nothing {
            // Exclusive caching beside locks of its own would tempt its holder to keep further locks to itself. Linux, asked to
            // give it back, sends all that it has, also those that are here already, and loses what stands beside a refused one.
            may = may.without(Caching::WRITE);
        }
        if locked == Locked::Data {
            // MS-FSA section 2.1.5.18.2: no shared caching.
            may = Caching::NONE;
        }
        may = turns::spared(waiting, kind, may);
        may = match kind {
            // A batch oplock that cannot be had is not worth more than level II.
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
                self.0.push(Granted { party: party.clone(), kind, rights: may, breaking: None });
                Held { rights: may, breaking_to: None }
            }
        }
    }

    pub(crate) fn held(&self, holder: HolderId) -> Option<Held> {
        let g = self.0.iter().find(|g| g.party.holder == holder)?;
        Some(Held { rights: g.rights, breaking_to: g.breaking.map(|b| b.to) })
    }

    /// Who has the delegation of this client, if it has one.
    pub(crate) fn delegation(&self, client: ClientId) -> Option<HolderId> {
        let mut delegations = self.0.iter().filter(|g| g.kind == Kind::Delegation);
        delegations.find(|g| g.party.client() == client).map(|g| g.party.holder)
    }

    /// Another than `client` has a write delegation, and may know the size and times of the file better than its server.
    pub(crate) fn keeps_back(&self, client: Option<ClientId>) -> Option<(ClientId, HolderId)> {
        let mut others = self.0.iter().filter(|g| Some(g.party.client()) != client);
        let found = others.find(|g| g.kind == Kind::Delegation && g.rights.has(Caching::WRITE))?;
        Some((found.party.client(), found.party.holder))
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
        let Some(g) = self.0.iter_mut().find(|g| g.party.holder == holder) else {
            return Acknowledged::default();
        };
        g.rights = g.rights.and(to);
        let mut next = None;
        if let Some(b) = g.breaking.filter(|b| g.rights.without(b.to).is_none()) {
            let deadline = now.saturating_add(deadlines.acknowledge_ms());
            let rest = g.rights.and(b.deeper).grantable();
            if rest == g.rights {
                g.breaking = None;
            } else if g.rights == Caching::READ {
                next = Some(g.take(node, rest, now));
            } else if g.kind == Kind::Lease && g.rights == Caching::READ_HANDLE {
                next = Some(g.begin(node, Breaking { to: Caching::READ, deadline, ..b }));
            } else {
                next = Some(g.begin(node, Breaking { to: rest, deadline, ..b }));
            }
        }
        self.forget_empty();
        Acknowledged { held: true, next }
    }

    /// Takes away what this holder has.
    pub(crate) fn release(&mut self, holder: HolderId) {
        self.0.retain(|g| g.party.holder != holder);
    }

    /// A holder has the same of another node: what it may cache, and breaks of that under way.
    pub(crate) fn follow(&mut self, other: &Self, holder: HolderId) {
        self.release(holder);
        self.0.extend(other.0.iter().filter(|g| g.party.holder == holder).cloned());
    }

    /// Breaks whose time is over.
    pub(crate) fn overdue(&self, node: NodeId, now: Millis, out: &mut Vec<Break>) {
        out.extend(self.0.iter().filter_map(|g| {
            let b = g.breaking.filter(|b| now >= b.deadline)?;
            Some(g.told(node, b.to, Stage::Overdue, b.deadline))
        }));
    }
}
