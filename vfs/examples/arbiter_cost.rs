//! Measures on this machine what it costs a READ to ask for conflicting locks and opens: `cargo run --release -p vfs --example
//! arbiter_cost`.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use state::{
    CacheRequest, Caching, Holder, Kind, Lease, LockKind, NodeId, Operation, Range, Requester,
    Rights, Share, SmbLockRange,
};
use vfs::arbiter::Arbiter;

const ROUNDS: u32 = 2_000_000;
const FILE: NodeId = NodeId(1);
/// Range of a read of 4 KiB.
const RANGE: Range = Range { first: 0, last: 4095 };

/// Returns the nanoseconds of one question. No conflict exists, so the answer comes without waiting.
fn cost(arbiter: &Arbiter, who: Option<Requester>) -> f64 {
    let mut cx = Context::from_waker(Waker::noop());
    let before = on_cpu();
    for _ in 0..ROUNDS {
        let asked = pin!(arbiter.check_conflicts(black_box(FILE), who, Operation::Read, RANGE));
        assert_eq!(black_box(asked.poll(&mut cx)), Poll::Ready(Ok(())));
    }
    (on_cpu() - before) / f64::from(ROUNDS)
}

/// Returns the nanoseconds of CPU time of this thread, so that other load on the machine does not count.
fn on_cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0.0)
}

/// Opens the file for reading on behalf of a client.
fn open(arbiter: &Arbiter, node: NodeId) -> Holder {
    let table = arbiter.state();
    let party =
        Holder { holder: table.holder(), lease: Arc::new(Lease::held(table.key())), via: 0 };
    assert!(table.open(node, &party, Share::new(Rights::READ, Rights::NONE), 0).is_go());
    party
}

/// Like [`open`], with a lease to cache the data.
fn open_cached(arbiter: &Arbiter, node: NodeId) -> Holder {
    let party = open(arbiter, node);
    let lease = Holder { holder: arbiter.state().holder(), lease: party.lease.clone(), via: 0 };
    let held = arbiter.state().cache(
        node,
        &lease,
        CacheRequest::new(Kind::Lease, Caching::READ_HANDLE),
        0,
    );
    assert_eq!(held.rights, Caching::READ_HANDLE);
    party
}

fn show(what: &str, ns: f64) {
    println!("{what:56} {ns:7.1} ns");
}

fn main() {
    let arbiter = Arbiter::default();
    cost(&arbiter, None);
    show("nobody has the file open (NFS 3)", cost(&arbiter, None));
    let mine = open(&arbiter, FILE);
    let who = |p: &Holder| Some(Requester { client: p.client(), via: 0, holder: Some(p.holder) });
    show("open by its reader", cost(&arbiter, who(&mine)));
    (0..10_000).for_each(|n| drop(open_cached(&arbiter, NodeId(100 + n))));
    show("and 10,000 other files cached by others", cost(&arbiter, who(&mine)));
    let cached = open_cached(&arbiter, FILE);
    show("and cached by a lease of its reader", cost(&arbiter, who(&cached)));
    (0..15).for_each(|_| drop(open_cached(&arbiter, FILE)));
    show("and by 15 others", cost(&arbiter, who(&cached)));
    let bytes = SmbLockRange::new(1 << 20, 100).unwrap();
    arbiter.state().lock_smb(FILE, &cached, bytes, LockKind::Exclusive, 0);
    show("and with other bytes of it locked", cost(&arbiter, who(&cached)));
}
