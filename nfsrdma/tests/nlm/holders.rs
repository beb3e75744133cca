//! Waiting requests whose owners have unlocked or failed meanwhile.

use std::task::Poll;

use rdma_transport::channel::{BoxFuture, Reply, Transport};

use super::*;

/// Starts a call that waits for this reader's delegation, with the task that drives it.
fn behind_a_delegation(
    bed: &Bed,
    procedure: u32,
    args: &[u8],
) -> (state::Holder, tokio::runtime::Runtime, BoxFuture<'static, Option<Reply>>) {
    let reader = party(bed.table(), state::ClientId(7));
    assert!(bed.table().delegate(bed.node(), &reader, state::Caching::READ_HANDLE, 0));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let session = session_from(&bed.client.server, "127.0.0.1:700", Transport::Tcp);
    let mut waits = session.call(message(NLM, 4, procedure, 0, args).into(), vec![]);
    let at_once = std::future::poll_fn(|cx| Poll::Ready(waits.as_mut().poll(cx).is_ready()));
    assert!(!runtime.block_on(at_once), "it waits for the delegation");
    (reader, runtime, waits)
}

/// Two SHAREs of one owner have one holder: if one waits and fails, the reservation granted to the other stays.
#[test]
fn failed_share_keeps_earlier_reservation() {
    const WRITE: u32 = 2;
    let bed = Bed::new();
    let (table, node) = (bed.table(), bed.node());
    let writes = share_args(A, &bed.fh, 0, WRITE);
    let (reader, runtime, waits) = behind_a_delegation(&bed, p::SHARE, &writes);
    assert_eq!(stat(&bed.nlm(p::SHARE, &share_args(A, &bed.fh, 0, 1))), GRANTED);
    assert_eq!(stat(&bed.nlm(p::SHARE, &share_args(B, &bed.fh, WRITE, 1))), GRANTED);
    table.release(node, reader.holder);
    bed.client.server.core().namespace.arbiter().released();
    runtime.block_on(waits).expect("an answer");
    for who in [A, B] {
        assert_eq!(stat(&bed.nlm(p::UNSHARE, &share_args(who, &bed.fh, 0, 1))), GRANTED);
    }
    assert_eq!(table.nodes(), 0, "nothing is left");
}

/// The owner has no lock while its LOCK waits for a recall, so UNLOCK removes the holder: a lock that the LOCK then enters for that
/// holder would stay forever.
#[test]
fn removed_holder_leaves_no_lock() {
    for (asked, given_back) in [(p::LOCK, p::UNLOCK), (p::SHARE, p::UNSHARE)] {
        let bed = Bed::new();
        let (table, node) = (bed.table(), bed.node());
        let args_of = |procedure| match procedure {
            p::LOCK => lock_args(A, &bed.fh, (0, 1), true, (false, false)),
            p::UNLOCK => unlock_args(A, &bed.fh, (0, 1)),
            _ => share_args(A, &bed.fh, 0, 3),
        };
        let (args, back) = (args_of(asked), args_of(given_back));
        let (reader, runtime, waits) = behind_a_delegation(&bed, asked, &args);
        assert_eq!(stat(&bed.nlm(given_back, &back)), GRANTED);
        table.release(node, reader.holder);
        bed.client.server.core().namespace.arbiter().released();
        runtime.block_on(waits).expect("an answer");
        assert_eq!(stat(&bed.nlm(given_back, &back)), GRANTED);
        assert_eq!(table.nodes(), 0, "nothing is left of procedure {asked}");
    }
}

/// Polls a request once in this runtime.
fn polled<T>(
    runtime: &tokio::runtime::Runtime,
    waits: &mut std::pin::Pin<Box<dyn Future<Output = T> + Send + '_>>,
) -> Poll<T> {
    runtime.block_on(std::future::poll_fn(|cx| Poll::Ready(waits.as_mut().poll(cx))))
}

/// When all waiting places of the arbiter were taken, a LOCK used to retry in a loop for three seconds without yielding the thread,
/// even to the timers of the waiting requests.
#[test]
fn waiting_lock_yields_thread() {
    let bed = Bed::new();
    let (table, node) = (bed.table(), bed.node());
    let reader = party(table, state::ClientId(7));
    assert!(table.delegate(node, &reader, state::Caching::READ_HANDLE, 0));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let arbiter = bed.client.server.core().namespace.arbiter();
    let mut writes: Vec<_> = (0..vfs::arbiter::WAITING_MAX)
        .map(|_| {
            let write = arbiter.check_conflicts(node, None, state::Operation::Write, Range::ALL);
            Box::pin(write) as std::pin::Pin<Box<dyn Future<Output = _> + Send + '_>>
        })
        .collect();
    assert!(writes.iter_mut().all(|write| polled(&runtime, write).is_pending()));
    let lock = |peer: &str, svid| {
        let args = lock_args(Who { svid, ..A }, &bed.fh, (0, 1), true, (false, false));
        let session = session_from(&bed.client.server, peer, Transport::Tcp);
        session.call(message(NLM, 4, p::LOCK, 0, &args).into(), vec![])
    };
    let many = nlm::limits::PATIENT_OF_ADDRESS_MAX as i32;
    let mut locks: Vec<_> = (0..many).map(|svid| lock("127.0.0.7:700", svid)).collect();
    assert!(locks.iter_mut().all(|lock| polled(&runtime, lock).is_pending()), "they wait");
    match polled(&runtime, &mut lock("127.0.0.7:700", many)) {
        Poll::Ready(reply) => assert_eq!(stat(&results(reply)), GRACE, "its client comes back"),
        Poll::Pending => panic!("one address has more than its part of the places"),
    }
    let mut other = lock("127.0.0.8:700", 0);
    assert!(polled(&runtime, &mut other).is_pending(), "another address waits");
    drop((locks, writes));
    table.release(node, reader.holder);
    arbiter.released();
    assert_eq!(stat(&results(runtime.block_on(other))), GRANTED);
}
