//! Whether a client answers breaks of its caching in time.
//!
//! A holder has a long time to return rights that another client wants, because it may have much to write back. A client that let
//! this time run out once has only a short time for its further breaks: others would otherwise wait the long time for each of its
//! files, one file after the other. The same is true of the other clients of its address that never answered a break, because one
//! host can be many clients; but a break that takes WRITE has the long time, for which such a client may have data.
//!
//! A client that has written meanwhile to any file that it returns did not let its time run out: it keeps the long time for its
//! other files, for which it may have as much to write back, and which it may write one after the other. A client with the short
//! time gets the long time by such a write, for the breaks under way that take WRITE.
//!
//! # States of a client
//!
//! ```text
//!              missed                answered, at least the long time after the last miss
//!   ANSWERS -----------> SILENT ------------------------------------------------------------> ANSWERS
//! ```
//!
//! A client that closes the file whose rights it should return has answered as well.
//!
//! A client stays SILENT for the long time at least. It could otherwise answer breaks of one file, which it causes itself, and let
//! those of all its other files run out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::id::Millis;

/// Value of `missed_ms` while the client answers.
const ANSWERS: u64 = u64::MAX;

/// Whether one client answers, shared by all its holders; or whether all clients of one address do.
#[derive(Debug)]
pub struct Answers {
    /// Time of the last missed break.
    missed_ms: AtomicU64,
    /// The client has answered a break.
    is_proven: AtomicBool,
    /// Writes to files whose rights it returns.
    writes: AtomicU64,
    /// All clients of the same address.
    of_address: Option<Arc<Self>>,
}

impl Default for Answers {
    fn default() -> Self {
        let missed_ms = AtomicU64::new(ANSWERS);
        Self { missed_ms, is_proven: false.into(), writes: 0.into(), of_address: None }
    }
}

impl Answers {
    /// Builds the state of a new client of this address.
    pub fn of(address: Arc<Self>) -> Self {
        Self { of_address: Some(address), ..Self::default() }
    }

    /// Checks whether the client let a break run out and has not answered one since, or has never answered one and a client of its
    /// address let one run out.
    pub fn is_silent(&self) -> bool {
        self.has_missed()
            || !self.is_proven.load(Ordering::Relaxed)
                && self.of_address.as_deref().is_some_and(Self::has_missed)
    }

    /// Checks whether the client itself let a break run out and has not answered one since.
    pub fn has_missed(&self) -> bool {
        self.missed_ms.load(Ordering::Relaxed) != ANSWERS
    }

    /// Notes that the client wrote to a file whose rights it returns.
    pub(crate) fn wrote(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts such writes.
    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Notes that the client let a break run out.
    pub fn missed(&self, now: Millis) {
        self.missed_ms.store(now.min(ANSWERS - 1), Ordering::Relaxed);
        if let Some(all) = &self.of_address {
            all.missed(now);
        }
    }

    /// Notes that the client answered a break. Ends its silence if the last miss was at least `least` milliseconds ago.
    pub fn answered(&self, now: Millis, least: Millis) {
        self.is_proven.store(true, Ordering::Relaxed);
        self.reached(now, least);
    }

    /// Like [`Answers::answered`], after the client answered a question of the server that was no break.
    pub fn reached(&self, now: Millis, least: Millis) {
        let _ = self.missed_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |missed| {
            (missed != ANSWERS && now.saturating_sub(missed) >= least).then_some(ANSWERS)
        });
        if let Some(all) = &self.of_address {
            all.reached(now, least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caching::{Caching, Operation};
    use crate::expiry::Lease;
    use crate::holder::{Holder, Requester};
    use crate::id::{ClientId, NodeId};
    use crate::node::{Limits, Verdict};
    use crate::range::Range;
    use crate::recall::{Break, Deadlines, Stage};
    use crate::table::Table;

    #[test]
    fn silence_ends_with_answer_after_long_time() {
        let answers = Answers::default();
        answers.answered(5, 10);
        assert!(!answers.is_silent());
        answers.missed(100);
        answers.answered(109, 10);
        assert!(answers.is_silent(), "too soon");
        answers.missed(105);
        answers.answered(114, 10);
        assert!(answers.is_silent(), "too soon after the last one");
        answers.reached(115, 10);
        assert!(!answers.is_silent());
    }

    /// A host that poses as many clients gains nothing, and a client that answers loses nothing by its neighbor.
    #[test]
    fn silence_is_of_new_clients_of_the_address() {
        let address = Arc::<Answers>::default();
        let of = || Answers::of(address.clone());
        let (proven, silent) = (of(), of());
        proven.answered(1, 10);
        assert!(!of().is_silent());
        silent.missed(100);
        assert!(silent.is_silent() && of().is_silent() && !proven.is_silent());
        let new = of();
        new.answered(101, 10);
        assert!(!new.is_silent() && of().is_silent());
        let reached = of();
        reached.reached(109, 10);
        assert!(reached.is_silent(), "that proves nothing");
        reached.reached(110, 10);
        assert!(!of().is_silent() && silent.is_silent());
        assert!(!Answers::of(Arc::default()).is_silent(), "another address");
    }

    /// Each of many files costs others the long time only if their holder answered the break before it.
    #[test]
    fn silent_client_has_short_time_for_further_breaks() {
        let t = Table::new(Deadlines::new(10_000, 20_000).unwrap(), Limits::default(), 0);
        let lease = Arc::new(Lease::held(ClientId(1)));
        // Holders of one client, as its delegations or leases are.
        let mut nodes = (1..).map(NodeId);
        let mut start = |now| {
            let node = nodes.next().unwrap();
            let one = Holder { holder: t.holder(), lease: lease.clone(), via: 0 };
            assert!(t.delegate(node, &one, Caching::READ_HANDLE, now));
            let verdict = t.check_conflicts(node, None, Operation::Write, Range::ALL, now);
            let Verdict::WaitFor(b) = verdict else { panic!("{verdict:?}") };
            (b[0], b[0].deadline - now)
        };
        let answer =
            |(b, _): (Break, u64), now| t.acknowledge(b.node, b.holder, Caching::NONE, now).held;
        let (first, second, third) = (start(0), start(1_000), start(2_000));
        assert_eq!([first.1, second.1, third.1], [10_000; 3]);
        assert!(answer(second, 9_000), "in time");
        assert!(t.revoke(&first.0, 10_000));
        assert!(!t.revoke(&first.0, 10_000), "it is gone");
        let fourth = start(11_000);
        assert_eq!(fourth.1, 625);
        assert!(answer(third, 11_000) && answer(fourth, 11_100));
        let fifth = start(19_000);
        assert_eq!(fifth.1, 625, "answers do not count so soon");
        assert!(answer(fifth, 20_000));
        let sixth = start(21_000);
        assert_eq!(sixth.1, 10_000);
        assert!(t.revoke(&sixth.0, 31_000));
        assert_eq!(start(31_000).1, 625);
    }

    /// A client with more to write back than the time allows keeps the long time for its other files, whose data it would lose.
    #[test]
    fn client_that_writes_back_keeps_long_time() {
        let t = Table::new(Deadlines::new(10_000, 20_000).unwrap(), Limits::default(), 0);
        let lease = Arc::new(Lease::held(ClientId(1)));
        let other = Arc::new(Lease::held(ClientId(2)));
        for (n, op, by, is_silent) in [
            (1, Operation::Write, &lease, false),
            (2, Operation::Resize, &lease, false),
            (3, Operation::Read, &lease, true),
            (4, Operation::Write, &other, true),
        ] {
            let (node, now) = (NodeId(n), 100_000 * n);
            let one = Holder { holder: t.holder(), lease: lease.clone(), via: 0 };
            assert!(t.delegate(node, &one, Caching::ALL, now));
            let verdict = t.check_conflicts(node, None, Operation::Read, Range::ALL, now);
            let Verdict::WaitFor(b) = verdict else { panic!("{verdict:?}") };
            let by = Requester { client: by.client(), via: 0, holder: None };
            let _ = t.check_conflicts(node, Some(by), op, Range::ALL, now + 1);
            assert!(t.revoke(&b[0], b[0].deadline));
            assert_eq!(lease.answers().is_silent(), is_silent, "{n}");
            lease.answers().answered(now + 50_000, 10_000);
        }
    }

    /// A client that let a break run out, and is back, keeps its rights while it writes back; its time ends when that of others
    /// does.
    #[test]
    fn silent_client_that_writes_back_has_long_time() {
        let t = Table::new(Deadlines::new(10_000, 20_000).unwrap(), Limits::default(), 0);
        let lease = Arc::new(Lease::held(ClientId(1)));
        lease.answers().missed(0);
        let start = |n, rights, op| {
            let one = Holder { holder: t.holder(), lease: lease.clone(), via: 0 };
            assert!(t.delegate(NodeId(n), &one, rights, 0));
            match t.check_conflicts(NodeId(n), None, op, Range::ALL, 0) {
                Verdict::WaitFor(b) => b[0],
                verdict => panic!("{verdict:?}"),
            }
        };
        let breaks = [
            start(1, Caching::ALL, Operation::Read),
            start(2, Caching::ALL, Operation::Read),
            start(3, Caching::READ_HANDLE, Operation::Write),
        ];
        let deadlines = || breaks.map(|b| t.deadline(&b));
        assert_eq!((breaks.map(|b| b.deadline), deadlines()), ([625; 3], [625; 3]));
        for now in [600, 9_000] {
            let by = Requester { client: lease.client(), via: 0, holder: None };
            let _ = t.check_conflicts(NodeId(1), Some(by), Operation::Write, Range::ALL, now);
            let latest = [10_000, 10_000, 625];
            assert_eq!(deadlines(), latest, "the last has nothing to write back");
        }
        let stage = |now| match t.check_conflicts(NodeId(2), None, Operation::Read, Range::ALL, now)
        {
            Verdict::WaitFor(b) => (b[0].stage, b[0].deadline),
            verdict => panic!("{verdict:?}"),
        };
        assert_eq!(t.overdue(9_999), [Break { stage: Stage::Overdue, ..breaks[2] }]);
        assert_eq!(stage(9_999), (Stage::UnderWay, 625), "by its name");
        assert_eq!((stage(10_000), t.overdue(10_000).len()), ((Stage::Overdue, 625), 3));
        assert!(t.revoke(&breaks[1], 10_000));
        assert!(!lease.answers().is_silent());
    }

    /// Clients of SMB answer a break by the close of a file that they keep open only for their cache.
    #[test]
    fn close_by_client_is_an_answer() {
        let t = Table::new(Deadlines::new(10_000, 20_000).unwrap(), Limits::default(), 0);
        let lease = Arc::new(Lease::held(ClientId(1)));
        lease.answers().missed(0);
        for (n, (breaks, by_client, now, is_silent)) in (1..).zip([
            (true, false, 20_100, true),
            (false, true, 20_100, true),
            (true, true, 20_625, true),
            (true, true, 20_624, false),
        ]) {
            let one = Holder { holder: t.holder(), lease: lease.clone(), via: 0 };
            assert!(t.delegate(NodeId(n), &one, Caching::ALL, 20_000));
            if breaks {
                let op = Operation::Read;
                let _ = t.check_conflicts(NodeId(n), None, op, Range::ALL, 20_000);
            }
            match by_client {
                true => t.give_back(NodeId(n), one.holder, now),
                false => t.release(NodeId(n), one.holder),
            }
            assert_eq!(lease.answers().is_silent(), is_silent, "{n}");
        }
        assert_eq!(t.nodes(), 0);
    }

    /// Files are written back one after the other: writes to one are an answer for all.
    #[test]
    fn client_that_writes_one_file_keeps_long_time_for_others() {
        let t = Table::new(Deadlines::new(10_000, 20_000).unwrap(), Limits::default(), 0);
        let lease = Arc::new(Lease::held(ClientId(1)));
        let start = |n, now| {
            let one = Holder { holder: t.holder(), lease: lease.clone(), via: 0 };
            assert!(t.delegate(NodeId(n), &one, Caching::ALL, now));
            match t.check_conflicts(NodeId(n), None, Operation::Read, Range::ALL, now) {
                Verdict::WaitFor(b) => b[0],
                verdict => panic!("{verdict:?}"),
            }
        };
        let (first, second) = (start(1, 0), start(2, 0));
        let by = Requester { client: lease.client(), via: 0, holder: None };
        let _ = t.check_conflicts(NodeId(1), Some(by), Operation::Write, Range::ALL, 5);
        assert!(t.revoke(&second, 10_000) && t.revoke(&first, 10_000));
        assert!(!lease.answers().is_silent());
        assert_eq!(start(3, 11_000).deadline, 21_000);
    }

    /// A neighbor of a silent client has no short time for breaks that would lose data.
    #[test]
    fn silence_of_address_takes_no_write_caching() {
        let t = Table::new(Deadlines::new(10_000, 20_000).unwrap(), Limits::default(), 0);
        let address = Arc::<Answers>::default();
        address.missed(1);
        let answers = Arc::new(Answers::of(address));
        let lease = Arc::new(Lease::held(ClientId(1)).answered_by(answers.clone()));
        let time = |n, rights, op| {
            let one = Holder { holder: t.holder(), lease: lease.clone(), via: 0 };
            assert!(t.delegate(NodeId(n), &one, rights, 0));
            match t.check_conflicts(NodeId(n), None, op, Range::ALL, 0) {
                Verdict::WaitFor(b) => b[0].deadline,
                verdict => panic!("{verdict:?}"),
            }
        };
        assert_eq!(time(1, Caching::ALL, Operation::Read), 10_000);
        assert_eq!(time(2, Caching::READ_HANDLE, Operation::Write), 625);
        answers.missed(2);
        assert_eq!(time(3, Caching::ALL, Operation::Read), 625);
    }

    /// The time of a break is not that of an earlier one of the same holder, which ended.
    #[test]
    fn later_break_has_its_own_deadline() {
        let t = Table::new(Deadlines::new(10, 20).unwrap(), Limits::default(), 0);
        let lease = Arc::new(Lease::held(ClientId(1)));
        let one = Holder { holder: t.holder(), lease, via: 0 };
        let start = |now| {
            assert!(t.delegate(NodeId(1), &one, Caching::READ_HANDLE, now));
            match t.check_conflicts(NodeId(1), None, Operation::Write, Range::ALL, now) {
                Verdict::WaitFor(b) => b[0],
                verdict => panic!("{verdict:?}"),
            }
        };
        let first = start(0);
        assert!(t.acknowledge(NodeId(1), one.holder, Caching::NONE, 1).held);
        let second = start(2);
        assert!(!t.revoke(&first, 10) && !one.lease.answers().is_silent());
        assert!(t.revoke(&second, 12) && one.lease.answers().is_silent());
    }
}
