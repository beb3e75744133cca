//! Turns: clients that were told to come back, because caching of others was in their way, find no new caching in it.
//!
//! *Operation.* A client of SMB waits inside the gateway and is served when a break is acknowledged. One of NFS is told to come
//! back (NFS3ERR_JUKEBOX, NFS4ERR_DELAY), and comes back later than another may open the file again with a new key. So the table
//! remembers who was sent away from which node, and for which operation. Until it had its turn, others get no caching right of the
//! node that would make it wait again; rights that are lost without an acknowledgement they get.
//!
//! A client that is known has had its turn when the same operation goes on. Requests without a client (NFS version 3) stand for an
//! unknown number of clients: after the first of them is served the others have [`UNKNOWN_MS`] to come back.
//!
//! *Memory.* At most [`NODES_MAX`] nodes with [`PER_NODE_MAX`] entries each; beyond that what ends first is forgotten. Time is an
//! argument.

use std::collections::HashMap;

use crate::caching::{Caching, Kind, Operation, effect};
use crate::id::{ClientId, Millis, NodeId};

/// A client that was sent away is waited for so long, in milliseconds: longer than clients wait before they ask again (Linux: 5
/// seconds by version 3, up to 15 by version 4).
pub const TURN_MS: u64 = 20_000;
/// The same after a request without a client was served, in milliseconds: longer than clients of version 3 wait.
pub const UNKNOWN_MS: u64 = 6_000;
/// Nodes with such clients that are remembered.
pub const NODES_MAX: usize = 1024;
/// Entries of one node that are remembered.
pub const PER_NODE_MAX: usize = 16;

/// A grant of `rights` makes `op` of another wait until its holder has given something back. `is_smb`: that one is a client of
/// SMB.
pub(crate) fn waits(kind: Kind, rights: Caching, op: Operation, is_smb: bool) -> bool {
    effect(kind, rights, op).is_some_and(|e| {
        // Among themselves clients of SMB go on as Windows lets them. Others must not: whoever has unlocked what it wrote by NFS
        // counts on it that nobody reads an older cache after that.
        let loses_read = rights.without(e.keep).has(Caching::READ);
        e.wait || !is_smb && e.acknowledge && loses_read
    })
}

/// Somebody who was sent away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    client: Option<ClientId>,
    op: Operation,
    until: Millis,
}

impl Waiter {
    fn hinders(&self, kind: Kind, rights: Caching) -> bool {
        waits(kind, rights, self.op, self.client.is_some_and(ClientId::is_key))
    }
}

/// The largest part of `may` that makes none of these wait again.
pub(crate) fn spared(waiting: &[Waiter], kind: Kind, may: Caching) -> Caching {
    let fewer =
        [may, may.without(Caching::WRITE), may.without(Caching::HANDLE), may.and(Caching::READ)];
    let fits = |rights: &Caching| !waiting.iter().any(|w| w.hinders(kind, *rights));
    fewer.into_iter().find(fits).unwrap_or(Caching::NONE)
}

/// Everybody who was sent away and has not been served since.
#[derive(Debug, Default)]
pub(crate) struct Turns(HashMap<NodeId, Vec<Waiter>>);

impl Turns {
    /// This client was told to come back for `op`. Says which nodes have nobody any more, because there was no room or their time
    /// is over.
    pub(crate) fn sent_away(
        &mut self,
        node: NodeId,
        client: Option<ClientId>,
        op: Operation,
        now: Millis,
    ) -> Vec<NodeId> {
        let until = now.saturating_add(TURN_MS);
        let mut gone = Vec::new();
        if !self.0.contains_key(&node) && self.0.len() >= NODES_MAX {
            gone = self.make_room(now);
        }
        let all = self.0.entry(node).or_default();
        all.retain(|w| w.until > now && (w.client, w.op) != (client, op));
        if all.len() >= PER_NODE_MAX
            && let Some(first) = (0..all.len()).min_by_key(|at| all[*at].until)
        {
            all.swap_remove(first);
        }
        all.push(Waiter { client, op, until });
        gone
    }

    fn make_room(&mut self, now: Millis) -> Vec<NodeId> {
        let end = |all: &[Waiter]| all.iter().map(|w| w.until).max().unwrap_or(0);
        let over = self.0.iter().filter(|(_, all)| end(all) <= now).map(|(node, _)| *node);
        let mut gone: Vec<NodeId> = over.collect();
        if gone.is_empty() {
            gone.extend(self.0.iter().min_by_key(|(_, all)| end(all)).map(|(node, _)| *node));
        }
        gone.iter().for_each(|node| drop(self.0.remove(node)));
        gone
    }

    /// This operation goes on: it was this client's turn. True when the node has nobody who waits any more.
    pub(crate) fn served(
        &mut self,
        node: NodeId,
        client: Option<ClientId>,
        op: Operation,
        now: Millis,
    ) -> bool {
        let Some(all) = self.0.get_mut(&node) else { return false };
        all.retain_mut(|w| {
            let its_turn = (w.client, w.op) == (client, op);
            if its_turn && client.is_none() {
                w.until = w.until.min(now.saturating_add(UNKNOWN_MS));
            }
            w.until > now && !(its_turn && client.is_some())
        });
        let none = all.is_empty();
        if none {
            self.0.remove(&node);
        }
        none
    }

    /// Somebody was sent away from this node.
    pub(crate) fn has(&self, node: NodeId) -> bool {
        self.0.contains_key(&node)
    }

    /// Those others than `client` who wait for their turn at a node.
    pub(crate) fn check_conflicts(
        &self,
        node: NodeId,
        client: ClientId,
        now: Millis,
    ) -> Vec<Waiter> {
        let all = self.0.get(&node).map_or(&[][..], Vec::as_slice);
        all.iter().filter(|w| w.until > now && w.client != Some(client)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::access::{Rights, Share};
    use crate::caching::CacheRequest;
    use crate::expiry::{Lease, Terms};
    use crate::holder::{Holder, Requester};
    use crate::id::HolderId;
    use crate::node::{Limits, Verdict};
    use crate::range::Range;
    use crate::recall::{Deadlines, Stage};
    use crate::table::Table;

    const N: NodeId = NodeId(7);
    const LATER: Millis = 1_000_000;

    fn table() -> Table {
        Table::new(Deadlines::new(LATER, 2 * LATER).unwrap(), Limits::default(), 0)
    }

    fn party(holder: HolderId, client: ClientId) -> Holder {
        let terms = Terms { lease_ms: 100 * LATER, courtesy_ms: 1 };
        Holder { holder, lease: Arc::new(Lease::new(client, terms, 0)) }
    }

    /// Opens by a new key and asks for all caching, as a client of SMB does.
    fn open(t: &Table, kind: Kind, now: Millis) -> (Holder, Caching) {
        let p = party(t.holder(), t.key());
        let all = Share::new(Rights::BOTH, Rights::NONE);
        match t.open(N, &p, all, now) {
            Verdict::WaitFor(_) | Verdict::Denied { .. } => return (p, Caching::NONE),
            _ => {}
        }
        let rights = t.cache(N, &p, CacheRequest::new(kind, Caching::ALL), now).rights;
        (p, rights)
    }

    fn write(t: &Table, client: Option<ClientId>, now: Millis) -> Verdict {
        let requester = client.map(|client| Requester { client, holder: None });
        t.check_conflicts(N, requester, Operation::Write, Range::ALL, now)
    }

    #[test]
    fn who_was_sent_away_finds_no_new_caching_before_its_turn() {
        for (kind, client) in [
            (Kind::Lease, None),
            (Kind::Lease, Some(ClientId(1))),
            (Kind::Oplock, None),
            (Kind::Oplock, Some(ClientId(1))),
        ] {
            let t = table();
            let (first, rights) = open(&t, kind, 0);
            assert_eq!(rights, Caching::ALL);
            assert!(matches!(write(&t, client, 1), Verdict::WaitFor(_)));
            t.sent_away(N, client, Operation::Write, 1);
            t.release(N, first.holder);
            let (second, rights) = open(&t, kind, 2);
            assert_eq!(rights, Caching::READ, "{kind:?}: what goes without a word");
            assert!(matches!(write(&t, client, 5_000), Verdict::Go | Verdict::Tell(_)));
            t.had_turn(N, client, Operation::Write, 5_000);
            t.release(N, second.holder);
            let then = 5_000 + if client.is_some() { 0 } else { UNKNOWN_MS };
            let (_, rights) = open(&t, kind, then);
            assert_eq!(rights, Caching::ALL, "{kind:?}, {client:?}");
            t.had_turn(N, client, Operation::Write, then);
            assert!(!t.has_turns(N));
        }
    }

    #[test]
    fn who_never_comes_back_is_waited_for_so_long() {
        let t = table();
        t.sent_away(N, None, Operation::Write, 10);
        let (p, rights) = open(&t, Kind::Lease, 10 + TURN_MS - 1);
        assert_eq!(rights, Caching::READ);
        t.release(N, p.holder);
        assert_eq!(open(&t, Kind::Lease, 10 + TURN_MS).1, Caching::ALL);
    }

    #[test]
    fn a_turn_forbids_nothing_to_its_own_client_and_no_delegation_that_stands_aside() {
        let t = table();
        let own = party(t.holder(), ClientId(1));
        t.sent_away(
            N,
            Some(ClientId(1)),
            Operation::Open(Share::new(Rights::READ, Rights::NONE)),
            0,
        );
        assert!(t.delegate(N, &own, Caching::ALL, 1));
        t.release(N, own.holder);
        let other = party(t.holder(), ClientId(2));
        assert!(!t.delegate(N, &other, Caching::ALL, 1), "a reader would have to wait");
        assert!(t.delegate(N, &other, Caching::READ_HANDLE, 1), "a reader would not");
    }

    #[test]
    fn memory_is_bounded_and_what_ends_first_goes() {
        let t = table();
        for n in 0..2 * NODES_MAX as u64 {
            for c in 0..2 * PER_NODE_MAX as u64 {
                t.sent_away(NodeId(n), Some(ClientId(c)), Operation::Write, n);
            }
        }
        let remembers =
            |n: u64| !t.before_whom(NodeId(n), ClientId(u64::from(u32::MAX)), 0).is_empty();
        let nodes = (0..2 * NODES_MAX as u64).filter(|n| remembers(*n));
        assert!(nodes.eq(NODES_MAX as u64..2 * NODES_MAX as u64));
        let of_last = t.before_whom(NodeId(NODES_MAX as u64), ClientId(u64::from(u32::MAX)), 0);
        assert_eq!(of_last.len(), PER_NODE_MAX);
    }

    /// Clients of SMB open with new keys, give back and close at random; two clients of NFS, one of them unknown, want to write and
    /// come back when they are told to. The slow rule: no grant that was made after a client was sent away makes it wait.
    #[test]
    #[allow(clippy::cast_possible_truncation)] // Numbers of a few things.
    fn nobody_is_overtaken_in_any_random_history() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut roll = |n: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 33) % n
        };
        let (mut sent, mut whole) = (0, 0);
        for _ in 0..300 {
            let t = table();
            let mut open_now: Vec<(Holder, u64)> = Vec::new();
            let mut away: [Option<u64>; 2] = [None; 2];
            let mut now = 0;
            for _ in 0..60 {
                now += roll(400);
                match roll(5) {
                    0 | 1 => {
                        let kind = if roll(2) == 0 { Kind::Lease } else { Kind::Oplock };
                        let (p, rights) = open(&t, kind, now);
                        whole += u32::from(rights == Caching::ALL);
                        open_now.push((p, now));
                    }
                    2 if !open_now.is_empty() => {
                        let at = roll(open_now.len() as u64) as usize;
                        t.release(N, open_now.swap_remove(at).0.holder);
                    }
                    3 if !open_now.is_empty() => {
                        let at = roll(open_now.len() as u64) as usize;
                        t.acknowledge(N, open_now[at].0.holder, Caching::NONE, now);
                    }
                    _ => {
                        let which = roll(2) as usize;
                        let client = [None, Some(ClientId(1))][which];
                        match write(&t, client, now) {
                            Verdict::WaitFor(breaks) => {
                                let since = *away[which].get_or_insert(now);
                                // What is gone already is told beside, and not waited for.
                                for b in breaks.iter().filter(|b| b.stage != Stage::Done) {
                                    let of = open_now.iter().find(|(p, _)| p.holder == b.holder);
                                    let granted = of.map_or(0, |(_, at)| *at);
                                    assert!(granted <= since, "overtaken: {granted} after {since}");
                                }
                                t.sent_away(N, client, Operation::Write, now);
                                sent += 1;
                            }
                            Verdict::Go | Verdict::Tell(_) => {
                                t.had_turn(N, client, Operation::Write, now);
                                away[which] = None;
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                }
            }
        }
        assert!(sent > 500 && whole > 500, "{sent} {whole}");
    }
}
