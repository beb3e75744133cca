//! The keeper of the door: asks `state`, has rights taken back that are in the way, and waits a little for them.
//!
//! *Operation.* [`Keeper::before`] is one load when nobody restricts the node. Otherwise the verdict is obeyed: those who must
//! give something back are told through [`Recall`], clients whose lease has lapsed are released, and the request waits for
//! at most [`WAIT_MS`] before its caller is told to come back.
//!
//! *Memory.* At most [`WAITING_MAX`] requests wait at once; more are told at once to come back.
//!
//! *Errors.* [`VfsError::Delay`] while a recall is under way, [`VfsError::Locked`] for an access that a share mode or a mandatory
//! lock forbids, [`VfsError::ShareDenied`] for such an open, [`VfsError::Resources`] when a node has all the holders it may have.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use state::{
    Break, Caching, ClientId, Deadlines, HolderId, Limits, Millis, NodeId, Operation, Party, Range,
    Share, Stage, Table, Verdict, Who,
};
use tokio::sync::Notify;

use crate::backend::BoxFuture;
use crate::error::{VfsError, VfsResult};

/// A request waits this long for rights to come back before its client is told to try again. A healthy client on the same
/// network gives a delegation back within a few milliseconds.
pub const WAIT_MS: u64 = 100;
/// Requests that may wait at once.
pub const WAITING_MAX: usize = 256;
/// A holder must give back what is recalled within this time (`acknowledge`), and whoever wants it may keep trying for the longer
/// one: at its end the rights have been revoked.
const ACKNOWLEDGE_MS: u64 = 30_000;
const GIVE_UP_MS: u64 = 45_000;
/// No caching is granted for a node this soon after it was broken there.
const COOL_MS: u64 = 30_000;
/// Verdicts asked for in one request before it is told to try again, so that a crowd of lapsed clients cannot hold it.
const ROUNDS_MAX: usize = 16;

/// What a front end does when `state` wants something back from one of its clients. Called without any lock.
pub trait Recall: Send + Sync {
    /// Tells the holder to give rights back. Must not wait: the holder answers by [`Keeper::acknowledge`].
    fn recall(&self, what: &Break);
    /// The holder's time is over: takes the rights away and tells `state` so.
    fn revoke(&self, what: &Break);
    /// The client's lease has lapsed and others want what it holds: releases all of its state, durably. A client that has come
    /// back meanwhile is left alone.
    fn release(&self, client: ClientId) -> BoxFuture<'_, ()>;
}

struct FrontEnd {
    recall: Arc<dyn Recall>,
    clock: Box<dyn Fn() -> Millis + Send + Sync>,
}

/// How often somebody had to wait, and how it ended.
#[derive(Debug, Default)]
pub struct Counters {
    /// Breaks that were started.
    pub recalls: AtomicU64,
    /// Holders whose time was over.
    pub revocations: AtomicU64,
    /// Requests that waited for rights to come back.
    pub waits: AtomicU64,
    /// Requests that were told to come back.
    pub delays: AtomicU64,
    /// Accesses and opens refused by a share mode or lock.
    pub denials: AtomicU64,
}

/// `state`, and how its verdicts are carried out.
pub struct Keeper {
    state: Table,
    front: OnceLock<FrontEnd>,
    returned: Notify,
    waiting: AtomicUsize,
    start: Instant,
    /// How often somebody had to wait.
    pub counters: Counters,
}

impl Default for Keeper {
    fn default() -> Self {
        // Invariant: the constants above are in the right order.
        #[allow(clippy::expect_used)]
        let deadlines = Deadlines::new(ACKNOWLEDGE_MS, GIVE_UP_MS).expect("waiting is longer");
        Self::new(Table::new(deadlines, Limits::default(), COOL_MS))
    }
}

/// Why something could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Denied(HolderId),
    Delay,
    Full,
}

impl Keeper {
    /// Over this table.
    pub fn new(state: Table) -> Self {
        Self {
            state,
            front: OnceLock::new(),
            returned: Notify::new(),
            waiting: AtomicUsize::new(0),
            start: Instant::now(),
            counters: Counters::default(),
        }
    }

    /// The table.
    pub fn state(&self) -> &Table {
        &self.state
    }

    /// Joins the front end whose clients hold things, and the clock by which their leases run. False when one has joined already.
    pub fn attach(
        &self,
        recall: Arc<dyn Recall>,
        clock: impl Fn() -> Millis + Send + Sync + 'static,
    ) -> bool {
        self.front.set(FrontEnd { recall, clock: Box::new(clock) }).is_ok()
    }

    /// Milliseconds on the clock by which leases run.
    pub fn now(&self) -> Millis {
        match self.front.get() {
            Some(front) => (front.clock)(),
            None => u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Asks before an access, and waits a little for rights that must come back first.
    pub async fn before(
        &self,
        node: NodeId,
        who: Option<Who>,
        op: Operation,
        range: Range,
    ) -> VfsResult<()> {
        if !self.state.is_used() {
            return Ok(());
        }
        self.settle(|now| self.state.before(node, who, op, range, now)).await.map_err(|why| {
            match why {
                Refusal::Denied(_) => VfsError::Locked,
                Refusal::Delay => VfsError::Delay,
                Refusal::Full => VfsError::Resources,
            }
        })
    }

    /// Opens a node for a holder, or widens what it has open.
    pub async fn open(&self, node: NodeId, party: &Party, share: Share) -> VfsResult<()> {
        self.settle(|now| self.state.open(node, party, share, now)).await.map_err(|why| match why {
            Refusal::Denied(_) => VfsError::ShareDenied,
            Refusal::Delay => VfsError::Delay,
            Refusal::Full => VfsError::Resources,
        })
    }

    /// A holder keeps `to` and gives the rest of its caching back. False when it has none.
    pub fn acknowledge(&self, node: NodeId, holder: HolderId, to: Caching) -> bool {
        let held = self.state.acknowledge(node, holder, to);
        self.returned.notify_waiters();
        held
    }

    /// Something was released by other ways than an acknowledgement: whoever waits asks again.
    pub fn released(&self) {
        self.returned.notify_waiters();
    }

    /// Releases clients whose lease has lapsed, for a caller that asks `state` itself.
    pub async fn release(&self, clients: &[ClientId]) {
        if let Some(front) = self.front.get() {
            for client in clients {
                front.recall.release(*client).await;
            }
        }
    }

    /// A node was changed by somebody who did not come through this door: whoever caches it is told, and nobody waits.
    pub fn changed_outside(&self, node: NodeId) {
        let verdict = self.state.before(node, None, Operation::Attributes, Range::ALL, self.now());
        if let Verdict::WaitFor(breaks) = verdict {
            self.pursue(&breaks);
        }
    }

    async fn settle(&self, mut ask: impl FnMut(Millis) -> Verdict) -> Result<(), Refusal> {
        let mut until = None;
        for _ in 0..ROUNDS_MAX {
            // Enabled before the question, so that an answer between the two is not missed.
            let mut returned = std::pin::pin!(self.returned.notified());
            returned.as_mut().enable();
            match ask(self.now()) {
                Verdict::Go => return Ok(()),
                Verdict::Denied { by } => {
                    self.counters.denials.fetch_add(1, Ordering::Relaxed);
                    return Err(Refusal::Denied(by));
                }
                Verdict::Full(_) => return Err(Refusal::Full),
                Verdict::Lapsed(clients) => self.release(&clients).await,
                Verdict::WaitFor(breaks) => {
                    if self.pursue(&breaks) {
                        continue;
                    }
                    let until = *until
                        .get_or_insert_with(|| Instant::now() + Duration::from_millis(WAIT_MS));
                    if !self.wait(returned, until).await {
                        break;
                    }
                }
            }
        }
        self.counters.delays.fetch_add(1, Ordering::Relaxed);
        Err(Refusal::Delay)
    }

    /// Tells those who must be told. True when something was taken by force, so that asking again makes sense at once.
    fn pursue(&self, breaks: &[Break]) -> bool {
        let Some(front) = self.front.get() else { return false };
        let mut forced = false;
        for b in breaks {
            match b.stage {
                Stage::Started => {
                    self.counters.recalls.fetch_add(1, Ordering::Relaxed);
                    front.recall.recall(b);
                }
                Stage::UnderWay => {}
                Stage::Overdue => {
                    self.counters.revocations.fetch_add(1, Ordering::Relaxed);
                    front.recall.revoke(b);
                    forced = true;
                }
            }
        }
        forced
    }

    /// Waits until something came back. False when it is time to give up.
    async fn wait(&self, returned: impl Future<Output = ()>, until: Instant) -> bool {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        let _place = Place(&self.waiting);
        self.counters.waits.fetch_add(1, Ordering::Relaxed);
        tokio::time::timeout_at(until.into(), returned).await.is_ok()
    }
}

/// A place among those who wait, given back also when the request is dropped.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use state::{Kind, Lease, Rights, Terms};

    use super::*;

    const N: NodeId = NodeId(3);

    /// A front end that notes what it was told and answers at once, late, or never.
    #[derive(Default)]
    struct Front {
        told: Mutex<Vec<Break>>,
        revoked: Mutex<Vec<Break>>,
        released: Mutex<Vec<ClientId>>,
        keeper: OnceLock<Arc<Keeper>>,
        now: Arc<AtomicU64>,
    }

    impl Recall for Front {
        fn recall(&self, what: &Break) {
            self.told.lock().unwrap().push(*what);
        }

        fn revoke(&self, what: &Break) {
            self.revoked.lock().unwrap().push(*what);
            self.keeper.get().unwrap().acknowledge(what.node, what.holder, Caching::NONE);
        }

        fn release(&self, client: ClientId) -> BoxFuture<'_, ()> {
            Box::pin(async move {
                self.released.lock().unwrap().push(client);
                // The test has one holder per client, of the same number.
                self.keeper.get().unwrap().state().release(N, HolderId(client.0));
            })
        }
    }

    fn keeper() -> (Arc<Keeper>, Arc<Front>) {
        let deadlines = Deadlines::new(10_000, 20_000).unwrap();
        let k = Arc::new(Keeper::new(Table::new(deadlines, Limits::default(), 0)));
        let f = Arc::new(Front::default());
        let now = f.now.clone();
        assert!(f.keeper.set(k.clone()).is_ok());
        assert!(k.attach(f.clone(), move || now.load(Ordering::Relaxed)));
        (k, f)
    }

    fn party(client: u64) -> Party {
        let terms = Terms { lease_ms: 1_000, courtesy_ms: 1_000 };
        Party { holder: HolderId(client), lease: Arc::new(Lease::new(ClientId(client), terms, 0)) }
    }

    fn block_on<T>(f: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(f)
    }

    #[test]
    fn a_write_waits_for_a_delegation_that_comes_back_in_time() {
        let (k, f) = keeper();
        let a = party(1);
        assert!(k.state().grant(N, &a, Kind::Delegation, Caching::READ_HANDLE, 0));
        block_on(async {
            let write = k.before(N, None, Operation::Write, Range::ALL);
            let give_back = async {
                while f.told.lock().unwrap().is_empty() {
                    tokio::task::yield_now().await;
                }
                assert!(k.acknowledge(N, a.holder, Caching::NONE));
            };
            assert_eq!(futures(write, give_back).await, Ok(()));
        });
        assert_eq!(f.told.lock().unwrap().len(), 1);
        assert_eq!(k.counters.waits.load(Ordering::Relaxed), 1);
    }

    async fn futures<T>(a: impl Future<Output = T>, b: impl Future<Output = ()>) -> T {
        let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
        let mut b_done = false;
        std::future::poll_fn(move |cx| {
            b_done = b_done || b.as_mut().poll(cx).is_ready();
            a.as_mut().poll(cx)
        })
        .await
    }

    #[test]
    fn a_write_is_told_to_come_back_and_at_last_the_delegation_is_revoked() {
        let (k, f) = keeper();
        let a = party(1);
        assert!(k.state().grant(N, &a, Kind::Delegation, Caching::READ_HANDLE, 0));
        let write = || block_on(k.before(N, None, Operation::Write, Range::ALL));
        assert_eq!(write(), Err(VfsError::Delay));
        assert_eq!(write(), Err(VfsError::Delay));
        assert_eq!(f.told.lock().unwrap().len(), 1, "told once");
        a.lease.renew(10_000);
        f.now.store(10_000, Ordering::Relaxed);
        assert_eq!(write(), Ok(()));
        assert_eq!(f.revoked.lock().unwrap().len(), 1);
        assert_eq!(k.state().nodes(), 0);
    }

    #[test]
    fn a_lapsed_client_is_released_for_the_first_who_wants_its_file() {
        let (k, f) = keeper();
        let (a, b) = (party(1), party(2));
        let all = Share::new(Rights::BOTH, Rights::BOTH);
        assert_eq!(block_on(k.open(N, &a, all)), Ok(()));
        assert_eq!(block_on(k.open(N, &b, all)), Err(VfsError::ShareDenied));
        assert_eq!(block_on(k.before(N, None, Operation::Read, Range::ALL)), Err(VfsError::Locked));
        f.now.store(1_001, Ordering::Relaxed);
        b.lease.renew(1_001);
        assert_eq!(block_on(k.open(N, &b, all)), Ok(()));
        assert_eq!(*f.released.lock().unwrap(), [ClientId(1)]);
    }
}
