//! A slow, obvious model of leases and share modes among SMB opens, and a proof that the table agrees with it.
//!
//! Rights are strings such as "RWH" from which an operation removes letters. The model has three keys with one open and one lease
//! each, and one client without a key. It uses no shards, grants or verdicts.

use std::sync::Arc;

use crate::access::{Rights, Share};
use crate::caching::{CacheRequest, Caching, Kind, Operation};
use crate::expiry::Lease;
use crate::holder::{Holder, Requester};
use crate::id::{ClientId, NodeId};
use crate::node::{Limits, Opening, Verdict};
use crate::range::Range;
use crate::recall::{Break, Deadlines, Stage};
use crate::table::Table;

const KEYS: usize = 3;
const NODE: NodeId = NodeId(1);

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Opens for reading and writing; shares all access, or no access if `alone`.
    Open {
        key: usize,
        alone: bool,
        overwrites: bool,
    },
    Close(usize),
    Ask(usize, &'static str),
    /// Acknowledges the last notice.
    Acknowledge(usize),
    Do(Option<usize>, Operation),
}

/// A break notice: the key, the rights that it keeps, and whether it must acknowledge.
type Notice = (usize, String, bool);

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Done(Vec<Notice>),
    Wait(Vec<Notice>),
    Denied,
    Has(String),
}

#[derive(Clone, Default)]
struct Key {
    open: Option<bool>,
    has: String,
    /// The rights after the current step, after the last step, and before the first.
    breaking: Option<(String, String, String)>,
}

#[derive(Default)]
struct Model([Key; KEYS]);

fn without(word: &str, letters: &str) -> String {
    let left: String = word.chars().filter(|c| !letters.contains(*c)).collect();
    if left.contains('R') { left } else { String::new() }
}

fn both(a: &str, b: &str) -> String {
    a.chars().filter(|c| b.contains(*c)).collect()
}

fn takes(op: Operation) -> &'static str {
    match op {
        Operation::Open(_) | Operation::Read => "W",
        Operation::Write => "RW",
        _ => "H",
    }
}

impl Model {
    fn breaks(&mut self, by: Option<usize>, letters: &str) -> (bool, Vec<Notice>) {
        let (mut wait, mut told) = (false, Vec::new());
        for k in (0..KEYS).filter(|k| Some(*k) != by) {
            let key = &mut self.0[k];
            let origin = key.breaking.as_ref().map_or(&key.has, |b| &b.2).clone();
            let keeps = without(&origin, letters);
            if both(&origin, letters).is_empty() {
                continue;
            }
            let reads_on = key.breaking.as_ref().is_some_and(|b| b.0.contains('R'));
            let reads_on = reads_on && !keeps.contains('R');
            wait |= origin.contains('W') || letters.contains('H') || reads_on;
            // Clients other than SMB wait for every holder that must acknowledge.
            wait |= by.is_none() && origin != "R" && origin.contains('R') && !keeps.contains('R');
            match &mut key.breaking {
                Some(b) => b.1 = both(&b.1, &keeps),
                None if origin == "R" => {
                    key.has = keeps.clone();
                    told.push((k, keeps, false));
                }
                None => {
                    key.breaking = Some((keeps.clone(), keeps.clone(), origin));
                    told.push((k, keeps, true));
                }
            }
        }
        (wait, told)
    }

    fn answer(&mut self, by: Option<usize>, letters: &str) -> Answer {
        match self.breaks(by, letters) {
            (true, told) => Answer::Wait(told),
            (false, told) => Answer::Done(told),
        }
    }

    fn step(&mut self, step: Step) -> Answer {
        match step {
            Step::Open { key, alone, overwrites } => {
                let others = (0..KEYS).filter(|k| *k != key);
                if others.filter_map(|k| self.0[k].open).any(|a| a || alone) {
                    return match self.breaks(Some(key), "H") {
                        (true, told) => Answer::Wait(told),
                        _ => Answer::Denied,
                    };
                }
                let answer = self.answer(Some(key), if overwrites { "RW" } else { "W" });
                if let Answer::Done(_) = answer {
                    self.0[key].open = Some(alone || self.0[key].open == Some(true));
                }
                answer
            }
            Step::Close(k) => {
                self.0[k] = Key::default();
                Answer::Done(Vec::new())
            }
            Step::Ask(k, want) => {
                let mut may = want.to_owned();
                for (o, other) in self.0.iter().enumerate().filter(|(o, _)| *o != k) {
                    let had = other.breaking.as_ref().map_or(&other.has, |b| &b.2);
                    if !had.is_empty() || self.0[o].open.is_some() {
                        may = without(&may, "W");
                    }
                    if had.contains('W') {
                        may = String::new();
                    }
                }
                let key = &mut self.0[k];
                if key.has.is_empty()
                    || key.breaking.is_none() && may == want && both(&key.has, &may) == key.has
                {
                    key.has = may;
                }
                Answer::Has(key.has.clone())
            }
            Step::Acknowledge(k) => {
                let key = &mut self.0[k];
                let Some((to, end, origin)) = key.breaking.take() else {
                    return Answer::Done(Vec::new());
                };
                key.has = to;
                let rest = both(&key.has, &end);
                let next = if rest == key.has {
                    return Answer::Done(Vec::new());
                } else if key.has == "RH" {
                    "R".to_owned()
                } else {
                    rest
                };
                if key.has == "R" {
                    key.has = next.clone();
                    return Answer::Done(vec![(k, next, false)]);
                }
                key.breaking = Some((next.clone(), end, origin));
                Answer::Done(vec![(k, next, true)])
            }
            Step::Do(who, op) => {
                let denied = |k: &Key| k.open == Some(true);
                if who.is_none() && self.0.iter().any(denied) {
                    return Answer::Denied;
                }
                self.answer(who, takes(op))
            }
        }
    }
}

struct Real {
    table: Table,
    /// The open and the lease of each key.
    parties: Vec<(Holder, Holder)>,
}

fn word(c: Caching) -> String {
    let letters = [(Caching::READ, 'R'), (Caching::WRITE, 'W'), (Caching::HANDLE, 'H')];
    letters.iter().filter(|(bit, _)| c.has(*bit)).map(|(_, l)| *l).collect()
}

fn rights(word: &str) -> Caching {
    [(Caching::READ, 'R'), (Caching::WRITE, 'W'), (Caching::HANDLE, 'H')]
        .iter()
        .filter(|(_, l)| word.contains(*l))
        .fold(Caching::NONE, |all, (bit, _)| all.or(*bit))
}

impl Real {
    fn new() -> Self {
        let table = Table::new(Deadlines::new(1_000, 2_000).unwrap(), Limits::default(), 0);
        let keys: Vec<ClientId> = (0..KEYS).map(|_| table.key()).collect();
        let party = |c: ClientId| Holder {
            holder: table.holder(),
            lease: Arc::new(Lease::held(c)),
            via: 0,
        };
        let parties = keys.iter().map(|c| (party(*c), party(*c))).collect();
        Self { table, parties }
    }

    fn told(&self, breaks: &[Break]) -> Vec<Notice> {
        let fresh = breaks.iter().filter(|b| matches!(b.stage, Stage::Started | Stage::Done));
        let mut told: Vec<Notice> = fresh
            .map(|b| {
                let key = self.parties.iter().position(|p| p.1.holder == b.holder).unwrap();
                (key, word(b.to), b.stage == Stage::Started)
            })
            .collect();
        told.sort();
        told
    }

    fn answer(&self, verdict: Verdict) -> Answer {
        match verdict {
            Verdict::Go => Answer::Done(Vec::new()),
            Verdict::Tell(b) => Answer::Done(self.told(&b)),
            Verdict::WaitFor(b) => Answer::Wait(self.told(&b)),
            Verdict::Denied { .. } => Answer::Denied,
            other => panic!("nothing lapses and nothing is full: {other:?}"),
        }
    }

    fn step(&self, step: Step) -> Answer {
        match step {
            Step::Open { key, alone, overwrites } => {
                let deny = if alone { Rights::ALL } else { Rights::NONE };
                let share = Share::new(Rights::ALL, deny);
                let how = Opening { share, overwrites, ..Opening::default() };
                self.answer(self.table.open(NODE, &self.parties[key].0, how, 0))
            }
            Step::Close(k) => {
                self.table.release(NODE, self.parties[k].0.holder);
                self.table.release(NODE, self.parties[k].1.holder);
                Answer::Done(Vec::new())
            }
            Step::Ask(k, want) => {
                let party = &self.parties[k].1;
                let held =
                    self.table.cache(NODE, party, CacheRequest::new(Kind::Lease, rights(want)), 0);
                Answer::Has(word(held.rights))
            }
            Step::Acknowledge(k) => {
                let holder = self.parties[k].1.holder;
                let held = self.table.held(NODE, holder).unwrap_or_default();
                let Some(to) = held.breaking_to else { return Answer::Done(Vec::new()) };
                let next = self.table.acknowledge(NODE, holder, to, 0).next;
                Answer::Done(self.told(next.as_slice()))
            }
            Step::Do(who, op) => {
                let who = who.map(|k| self.parties[k].0.requester());
                let who: Option<Requester> = who;
                self.answer(self.table.check_conflicts(NODE, who, op, Range::ALL, 0))
            }
        }
    }
}

fn steps() -> Vec<Step> {
    let mut out = Vec::new();
    for key in 0..KEYS {
        for (alone, overwrites) in [(false, false), (true, false), (false, true)] {
            out.push(Step::Open { key, alone, overwrites });
        }
        out.extend([Step::Close(key), Step::Acknowledge(key)]);
        out.extend(["R", "RH", "RW", "RWH"].map(|want| Step::Ask(key, want)));
    }
    let ops = [Operation::Read, Operation::Write, Operation::Names];
    out.extend(ops.map(|op| Step::Do(None, op)));
    out.extend(ops.map(|op| Step::Do(Some(0), op)));
    out
}

/// Tries all histories of three steps after an open with a lease.
#[test]
fn leases_match_model_over_short_histories() {
    let steps = steps();
    let real = Real::new();
    for want in ["R", "RH", "RW", "RWH"] {
        let begin = [Step::Open { key: 1, alone: false, overwrites: false }, Step::Ask(1, want)];
        for a in &steps {
            for b in &steps {
                for c in &steps {
                    let mut model = Model::default();
                    for s in begin.iter().chain([a, b, c]) {
                        assert_eq!(real.step(*s), model.step(*s), "{want} {a:?} {b:?} {c:?}");
                    }
                    (0..KEYS).for_each(|k| drop(real.step(Step::Close(k))));
                }
            }
        }
    }
}

proptest::proptest! {
    /// Tries longer, random histories; the table is empty once every open is closed.
    #[test]
    fn leases_match_model_over_long_histories(
        picks in proptest::collection::vec(0..1_000_usize, 1..80)) {
        let steps = steps();
        let (real, mut model) = (Real::new(), Model::default());
        for (at, pick) in picks.iter().enumerate() {
            let step = steps[pick % steps.len()];
            let (is, should) = (real.step(step), model.step(step));
            proptest::prop_assert_eq!(is, should, "step {} {:?}", at, step);
        }
        (0..KEYS).for_each(|k| drop(real.step(Step::Close(k))));
        proptest::prop_assert_eq!((real.table.nodes(), real.table.grants()), (0, 0));
    }
}
