//! Random histories of several clients: after the clients are gone, the server holds no state.

use nfs_proto::nfs4::Nfsstat4;
use nfsrdma::v4::Options;
use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::{Stateid, op};
use proptest::prelude::*;
use rdma_transport::xdr::Writer;

use crate::client::{
    Client, Opened, READ_LT, WRITE_LT, close, first_lock, locku, next_lock, read_stateid,
};
use crate::harness::Harness;

#[derive(Clone, Debug)]
enum Step {
    Open { file: u8, owner: u8, access: u32, deny: u32 },
    Close(usize),
    Downgrade(usize, u32),
    Lock { open: usize, owner: u8, write: bool, at: u64, length: u64 },
    Relock { lock: usize, write: bool, at: u64, length: u64 },
    Unlock { lock: usize, at: u64, length: u64 },
    Free(usize),
    Write(usize),
    Remove(u8),
    Silence(u64),
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let (at, length) = (0..50u64, prop_oneof![1..20u64, Just(u64::MAX)]);
    let one = 0..64usize;
    let step = prop_oneof![
        4 => (0..3u8, 0..2u8, 1..4u32, prop_oneof![4 => Just(0u32), 1 => 1..4u32])
            .prop_map(|(file, owner, access, deny)| Step::Open { file, owner, access, deny }),
        2 => one.clone().prop_map(Step::Close),
        1 => (one.clone(), 1..4u32).prop_map(|(o, access)| Step::Downgrade(o, access)),
        3 => (one.clone(), 0..2u8, any::<bool>(), at.clone(), length.clone())
            .prop_map(|(open, owner, write, at, length)| Step::Lock { open, owner, write, at, length }),
        2 => (one.clone(), any::<bool>(), at.clone(), length.clone())
            .prop_map(|(lock, write, at, length)| Step::Relock { lock, write, at, length }),
        2 => (one.clone(), at, length).prop_map(|(lock, at, length)| Step::Unlock { lock, at, length }),
        1 => one.clone().prop_map(Step::Free),
        2 => one.prop_map(Step::Write),
        1 => (0..3u8).prop_map(Step::Remove),
        1 => (1..60_000u64).prop_map(Step::Silence),
    ];
    (0..2usize, step)
}

/// A client's view of its state.
#[derive(Default)]
struct Belief {
    opens: Vec<Opened>,
    locks: Vec<(Vec<u8>, Stateid)>,
}

fn pick<T>(list: &[T], n: usize) -> Option<&T> {
    (!list.is_empty()).then(|| &list[n % list.len()])
}

fn newest(stateid: Stateid) -> Stateid {
    Stateid { seqid: 0, ..stateid }
}

fn check(step: &Step, status: Status, allowed: &[Nfsstat4]) {
    assert!(status == Status::Ok || allowed.contains(&status.0), "{step:?}: {status:?}");
}

/// Executes one step, and checks that the status is one that the step allows.
async fn act(c: &Client<'_>, belief: &mut Belief, step: &Step) {
    let may = |status, allowed: &[Nfsstat4]| check(step, status, allowed);
    use Nfsstat4::{BadStateId, Inval, LocksHeld, NoEnt, OpenMode, ShareDenied};
    match step {
        Step::Open { file, owner, access, deny } => {
            let name = [b'f', b'0' + file];
            match c.open(&[b'o', *owner], &name, (*access, *deny)).await {
                Ok(o) => {
                    belief.opens.retain(|b| b.stateid.other != o.stateid.other);
                    belief.opens.push(o);
                }
                Err(status) => may(status, &[ShareDenied]),
            }
        }
        Step::Close(n) => {
            let Some(o) = pick(&belief.opens, *n).cloned() else { return };
            let (status, _) = c.on(&o.fh, op::CLOSE, close(0, newest(o.stateid))).await;
            may(status, &[]);
            belief.opens.retain(|b| b.stateid.other != o.stateid.other);
            if !belief.opens.iter().any(|b| b.fh == o.fh) {
                // The file may have been removed, so that its handle is stale.
                belief.locks.retain(|(fh, _)| *fh != o.fh);
            }
        }
        Step::Downgrade(n, access) => {
            let Some(o) = pick(&belief.opens, *n) else { return };
            let args = |w: &mut Writer| {
                w.value(&newest(o.stateid));
                [0, *access, 0].iter().for_each(|v| w.u32(*v));
            };
            may(c.on(&o.fh, op::OPEN_DOWNGRADE, args).await.0, &[Inval]);
        }
        Step::Lock { .. } | Step::Relock { .. } | Step::Unlock { .. } => {
            act_on_locks(c, belief, step).await;
        }
        Step::Free(n) => {
            let Some((_, id)) = pick(&belief.locks, *n) else { return };
            let r = c.run(|a| a.op(op::FREE_STATEID, |w| w.value(&newest(*id)))).await;
            may(r.status, &[LocksHeld, BadStateId]);
        }
        Step::Write(n) => {
            let Some(o) = pick(&belief.opens, *n) else { return };
            may(c.write(&o.fh, newest(o.stateid), b"data").await, &[OpenMode]);
        }
        Step::Remove(file) => {
            let name = [b'f', b'0' + file];
            let r = c.run(|a| a.data().op(op::REMOVE, |w| w.opaque(&name))).await;
            may(r.status, &[NoEnt]);
        }
        // Keeps both clients' leases alive.
        Step::Silence(_) => {}
    }
}

/// A step that takes a lock or gives it back.
async fn act_on_locks(c: &Client<'_>, belief: &mut Belief, step: &Step) {
    use Nfsstat4::{BadStateId, Denied, OpenMode};
    let may = |status, allowed: &[Nfsstat4]| check(step, status, allowed);
    match step {
        Step::Lock { open, owner, write, at, length } => {
            let Some(o) = pick(&belief.opens, *open) else { return };
            let kind = if *write { WRITE_LT } else { READ_LT };
            let name = [b'l', *owner];
            let args = first_lock(kind, (*at, *length), newest(o.stateid), &name, false);
            let (status, mut r) = c.on(&o.fh, op::LOCK, args).await;
            may(status, &[Denied, OpenMode]);
            if status == Status::Ok {
                belief.locks.push((o.fh.clone(), read_stateid(&mut r)));
            }
        }
        Step::Relock { lock, write, at, length } => {
            let Some((fh, id)) = pick(&belief.locks, *lock) else { return };
            let kind = if *write { WRITE_LT } else { READ_LT };
            let args = next_lock(kind, (*at, *length), newest(*id));
            may(c.on(fh, op::LOCK, args).await.0, &[Denied, OpenMode, BadStateId]);
        }
        Step::Unlock { lock, at, length } => {
            let Some((fh, id)) = pick(&belief.locks, *lock) else { return };
            let args = locku((*at, *length), newest(*id));
            may(c.on(fh, op::LOCKU, args).await.0, &[BadStateId]);
        }
        _ => {}
    }
}

async fn run(steps: &[(usize, Step)]) {
    let harness = Harness::with(Options { delegations: false, ..Options::default() });
    let clients = [Client::new(&harness, b"x").await, Client::new(&harness, b"y").await];
    let mut beliefs = [Belief::default(), Belief::default()];
    let mut now = 0;
    for (who, step) in steps {
        if let Step::Silence(ms) = step {
            now += ms;
            harness.at_ms(now);
            for c in &clients {
                c.run(|a| a.root()).await;
            }
        }
        act(&clients[*who], &mut beliefs[*who], step).await;
    }
    let state = harness.nfs.core.namespace.arbiter().state();
    let (c, belief) = (&clients[0], &beliefs[0]);
    for o in &belief.opens {
        let (status, _) = c.on(&o.fh, op::CLOSE, close(0, newest(o.stateid))).await;
        assert_eq!(status, Status::Ok);
    }
    drop(clients);
    harness.at_ms(now + 25 * 60 * 60 * 1000);
    harness.nfs.clients.tick().await;
    assert_eq!((harness.nfs.clients.len(), state.nodes(), state.is_used()), (0, 0, false));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn ended_clients_leave_no_state(steps in proptest::collection::vec(step(), 1..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(&steps));
    }
}
