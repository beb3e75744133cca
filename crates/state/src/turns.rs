//! Retry fairness: after NFS4ERR_DELAY or NFS3ERR_JUKEBOX no new caching is granted that would delay the client's retry again.
//!
//! *Operation.* An SMB request waits inside the gateway and proceeds when the break is acknowledged. An NFS client must retry later
//! (NFS3ERR_JUKEBOX, NFS4ERR_DELAY), and by then another client may have opened the file again with a new key. The table therefore
//! records which client was sent away from which node, and for which operation. Until that client has been served, other clients
//! get no caching right on the node that would make it wait again; they do get rights that can be broken without an
//! acknowledgement.
//!
//! A known client has been served when the same operation proceeds. Requests without a client (NFS version 3) may come from any
//! number of clients: after the first of them is served, the others have [`UNKNOWN_MS`] to retry.
//!
//! *Memory.* At most [`NODES_MAX`] nodes with [`PER_NODE_MAX`] entries each; beyond that the entry that expires first is dropped.
//! Time is an argument.

use std::collections::HashMap;

use crate::caching::{Caching, Kind, Operation, effect};
use crate::id::{ClientId, Millis, NodeId};

/// Time within which a client is expected to retry, in milliseconds: longer than clients pause (Linux: 5 seconds with version 3, up
/// to 15 with version 4).
pub const TURN_MS: u64 = 20_000;
/// Time for further retries after a request without a client was served, in milliseconds: longer than version 3 clients pause.
pub const UNKNOWN_MS: u64 = 6_000;
/// Maximum number of nodes with such clients.
pub const NODES_MAX: usize = 1024;
/// Maximum number of entries per node.
pub const PER_NODE_MAX: usize = 16;

/// Checks whether a grant of `rights` makes another client's `op` wait until the holder has returned rights. `is_smb`: the other
/// client speaks SMB.
pub(crate) fn waits(kind: Kind, rights: Caching, op: Operation, is_smb: bool) -> bool {
    effect(kind, rights, op).is_some_and(|e| {
        // SMB clients proceed against each other as on Windows. NFS clients must wait: one that wrote and unlocked a file relies on
        // no client reading an older cached copy afterwards.
        let loses_read = rights.without(e.keep).has(Caching::READ);
        e.wait || !is_smb && e.acknowledge && loses_read
    })
}

/// A client that was sent away to retry.
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

/// Returns the largest part of `may` that makes no waiting client wait again.
pub(crate) fn spared(waiting: &[Waiter], kind: Kind, may: Caching) -> Caching {
    let fewer =
        [may, may.without(Caching::WRITE), may.without(Caching::HANDLE), may.and(Caching::READ)];
    let fits = |rights: &Caching| !waiting.iter().any(|w| w.hinders(kind, *rights));
    fewer.into_iter().find(fits).unwrap_or(Caching::NONE)
}

/// All clients that were sent away and have not been served since.
#[derive(Debug, Default)]
pub(crate) struct Turns(HashMap<NodeId, Vec<Waiter>>);

impl Turns {
    /// Records that this client must retry `op`. Returns the nodes whose entries are all gone, because they expired or had to be
    /// evicted.
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

    /// Records that this client's operation proceeds. Returns true if no client waits for the node any more.
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

    /// Checks whether a client was sent away from this node.
    pub(crate) fn has(&self, node: NodeId) -> bool {
        self.0.contains_key(&node)
    }

    /// Returns the clients other than `client` that are expected to retry on a node.
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
        Holder { via: 0, holder, lease: Arc::new(Lease::new(client, terms, 0)) }
    }

    /// Opens with a new key and requests all caching, as an SMB client does.
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
        let requester = client.map(|client| Requester { client, via: 0, holder: None });
        t.check_conflicts(N, requester, Operation::Write, Range::ALL, now)
    }

    #[test]
    fn retry_meets_no_new_caching() {
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
    fn absent_client_expires_after_turn() {
        let t = table();
        t.sent_away(N, None, Operation::Write, 10);
        let (p, rights) = open(&t, Kind::Lease, 10 + TURN_MS - 1);
        assert_eq!(rights, Caching::READ);
        t.release(N, p.holder);
        assert_eq!(open(&t, Kind::Lease, 10 + TURN_MS).1, Caching::ALL);
    }

    #[test]
    fn turn_allows_own_and_harmless_grants() {
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
    fn turns_evict_earliest_expiry_when_full() {
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

    /// SMB clients open with new keys, return rights and close at random; two NFS clients, one of them unknown, want to write and
    /// retry as requested. The slow rule: no grant made after a client was sent away makes that client wait.
    #[test]
    #[allow(clippy::cast_possible_truncation)] // Numbers of a few things.
    fn random_histories_never_overtake_a_retry() {
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
                                // Breaks that are already complete are only reported.
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
