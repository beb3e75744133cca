//! A slow, obvious model of the delegation rules, and a proof that the table agrees with it over every short history.
//!
//! The model stores only facts: the opens and the delegations of each client. It derives each answer directly from the rules,
//! without counters, slots or shards.

use std::sync::Arc;

use crate::access::{Rights, Share};
use crate::caching::{Caching, Operation};
use crate::expiry::{Lease, Terms};
use crate::holder::{Holder, Requester};
use crate::id::{ClientId, NodeId};
use crate::node::{Limits, Verdict};
use crate::range::Range;
use crate::recall::Deadlines;
use crate::table::Table;

/// The client of each holder: two holders of client 0, one of client 1.
const HOLDERS: [usize; 3] = [0, 0, 1];

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(usize, Share),
    Close(usize),
    /// Grants a read delegation to the client of this holder.
    Grant(usize),
    /// Returns the delegation of this holder.
    Return(usize),
    Anonymous(Operation),
    /// Performs an operation by the client of this holder, not through an open.
    By(usize, Operation),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Done,
    Denied,
    Wait,
}

#[derive(Clone, Default)]
struct Model {
    open: [Option<(bool, bool, bool, bool)>; 3],
    delegated: [bool; 3],
    recalled: [bool; 3],
}

fn bits(s: Share) -> (bool, bool, bool, bool) {
    let has = |r: Rights, b| r.has(b);
    (
        has(s.access, Rights::READ),
        has(s.access, Rights::WRITE),
        has(s.deny, Rights::READ),
        has(s.deny, Rights::WRITE),
    )
}

impl Model {
    /// Recalls delegations from all clients except `client`; returns true if one existed.
    fn recall(&mut self, client: Option<usize>) -> bool {
        let mut any = false;
        for (h, owner) in HOLDERS.iter().enumerate() {
            if self.delegated[h] && Some(*owner) != client {
                self.recalled[h] = true;
                any = true;
            }
        }
        any
    }

    fn step(&mut self, step: Step) -> Answer {
        match step {
            Step::Open(h, share) => {
                let (r, w, dr, dw) = bits(share);
                for o in (0..3).filter(|o| *o != h).filter_map(|o| self.open[o]) {
                    let (or, ow, odr, odw) = o;
                    if r && odr || w && odw || dr && or || dw && ow {
                        return Answer::Denied;
                    }
                }
                if (w || dr) && self.recall(Some(HOLDERS[h])) {
                    return Answer::Wait;
                }
                let was = self.open[h].unwrap_or_default();
                self.open[h] = Some((was.0 || r, was.1 || w, was.2 || dr, was.3 || dw));
                Answer::Done
            }
            Step::Close(h) => {
                self.open[h] = None;
                Answer::Done
            }
            Step::Grant(h) => {
                let writer = self.open.iter().flatten().any(|o| o.1);
                let denier =
                    (0..3).any(|o| HOLDERS[o] != HOLDERS[h] && self.open[o].is_some_and(|o| o.2));
                let again = (0..3).any(|o| HOLDERS[o] == HOLDERS[h] && self.delegated[o]);
                let breaking = self.recalled.contains(&true);
                if writer || denier || again || breaking {
                    return Answer::Denied;
                }
                self.delegated[h] = true;
                Answer::Done
            }
            Step::Return(h) => {
                self.delegated[h] = false;
                self.recalled[h] = false;
                Answer::Done
            }
            Step::Anonymous(op) => self.access(None, op),
            Step::By(h, op) => self.access(Some(HOLDERS[h]), op),
        }
    }

    fn access(&mut self, client: Option<usize>, op: Operation) -> Answer {
        let denied = self.open.iter().flatten().any(|o| match op {
            Operation::Read => o.2,
            Operation::Write => o.3,
            _ => false,
        });
        if denied {
            Answer::Denied
        } else if op != Operation::Read && self.recall(client) {
            Answer::Wait
        } else {
            Answer::Done
        }
    }
}

struct Real {
    table: Table,
    /// The open and the delegation of each holder.
    parties: Vec<(Holder, Holder)>,
}

const NODE: NodeId = NodeId(1);

impl Real {
    fn new() -> Self {
        let table = Table::new(Deadlines::new(1_000, 2_000).unwrap(), Limits::default(), 0);
        let terms = Terms { lease_ms: 1_000, courtesy_ms: 0 };
        let leases: Vec<_> = (0..2).map(|c| Arc::new(Lease::new(ClientId(c), terms, 0))).collect();
        let party =
            |c: usize| Holder { holder: table.holder(), lease: Arc::clone(&leases[c]), via: 0 };
        let parties = HOLDERS.iter().map(|c| (party(*c), party(*c))).collect();
        Self { table, parties }
    }

    fn step(&self, step: Step) -> Answer {
        let verdict = match step {
            Step::Open(h, share) => self.table.open(NODE, &self.parties[h].0, share, 0),
            Step::Close(h) => {
                self.table.release(NODE, self.parties[h].0.holder);
                Verdict::Go
            }
            Step::Grant(h) => {
                let (party, rights) = (&self.parties[h].1, Caching::READ_HANDLE);
                if !self.table.delegate(NODE, party, rights, 0) {
                    return Answer::Denied;
                }
                Verdict::Go
            }
            Step::Return(h) => {
                self.table.acknowledge(NODE, self.parties[h].1.holder, Caching::NONE, 0);
                Verdict::Go
            }
            Step::Anonymous(op) => self.table.check_conflicts(NODE, None, op, Range::ALL, 0),
            Step::By(h, op) => {
                let who = Requester { client: self.parties[h].0.client(), via: 0, holder: None };
                self.table.check_conflicts(NODE, Some(who), op, Range::ALL, 0)
            }
        };
        match verdict {
            Verdict::Go | Verdict::Tell(_) => Answer::Done,
            Verdict::Denied { .. } => Answer::Denied,
            Verdict::WaitFor(_) => Answer::Wait,
            Verdict::Lapsed(_) | Verdict::Full(_) => panic!("no lease lapses here: {verdict:?}"),
        }
    }
}

fn steps() -> Vec<Step> {
    let shares = [
        Share::new(Rights::READ, Rights::NONE),
        Share::new(Rights::WRITE, Rights::NONE),
        Share::new(Rights::READ, Rights::WRITE),
        Share::new(Rights::BOTH, Rights::BOTH),
    ];
    let mut out = Vec::new();
    for h in 0..3 {
        out.extend(shares.iter().map(|s| Step::Open(h, *s)));
        out.extend([Step::Close(h), Step::Grant(h), Step::Return(h)]);
    }
    let ops = [Operation::Read, Operation::Write, Operation::Names];
    out.extend(ops.iter().map(|op| Step::Anonymous(*op)));
    out.extend(ops.iter().flat_map(|op| [Step::By(0, *op), Step::By(2, *op)]));
    out
}

/// Tries all histories of three steps.
#[test]
fn table_matches_model_over_short_histories() {
    let steps = steps();
    let mut tried = 0_u32;
    for a in &steps {
        for b in &steps {
            for c in &steps {
                let (real, mut model) = (Real::new(), Model::default());
                for s in [a, b, c] {
                    assert_eq!(real.step(*s), model.step(*s), "{a:?} {b:?} {c:?}");
                }
                tried += 1;
            }
        }
    }
    assert_eq!(tried as usize, steps.len().pow(3));
}

proptest::proptest! {
    /// Tries longer, random histories.
    #[test]
    fn table_matches_model_over_long_histories(
        picks in proptest::collection::vec(0..1_000_usize, 1..60)) {
        let steps = steps();
        let (real, mut model) = (Real::new(), Model::default());
        for (at, pick) in picks.iter().enumerate() {
            let step = steps[pick % steps.len()];
            let (is, should) = (real.step(step), model.step(step));
            proptest::prop_assert_eq!(is, should, "step {} {:?}", at, step);
        }
        for (open, deleg) in &real.parties {
            real.table.release(NODE, open.holder);
            real.table.release(NODE, deleg.holder);
        }
        proptest::prop_assert_eq!((real.table.nodes(), real.table.grants()), (0, 0));
    }
}
