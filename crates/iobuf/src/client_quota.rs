//! Limits the pool memory of all connections of one client, so that no client takes memory that the others need.
//!
//! *Operation.* A handle of [`Pool::of_one_client`] reserves room in the client's share before it requests memory from the pool; a
//! buffer returns its room together with its memory. Requests over the client's quota queue here, fairly by account, and not in the
//! pool's queue, so they cannot delay other clients.
//!
//! *Memory.* A share only counts; it reserves no memory. The pool sets its size ([`Pool::set_share`]) and may change it at any
//! time: a client above a lowered limit keeps its buffers.
//!
//! *Errors.* A single request larger than the share is granted once the client holds no other buffers.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use mutex::locked;

use crate::CLASS_SIZES;
use crate::account::Account;
use crate::fair_queue::FairQueue;

const CLASSES: usize = CLASS_SIZES.len();

/// The limits per client for each size, and the number of requests waiting for room.
pub(crate) struct Bounds {
    most: [AtomicUsize; CLASSES],
    held_back: [AtomicUsize; CLASSES],
}

impl Default for Bounds {
    fn default() -> Self {
        let most = std::array::from_fn(|_| AtomicUsize::new(usize::MAX));
        Self { most, held_back: Default::default() }
    }
}

impl Bounds {
    /// Sets the number of buffers of each size that a client may have.
    pub(crate) fn set(&self, most: [usize; CLASSES]) {
        for (bound, most) in self.most.iter().zip(most) {
            bound.store(most, Ordering::Relaxed);
        }
    }

    fn most(&self, class: usize) -> usize {
        self.most[class].load(Ordering::Relaxed)
    }

    /// Returns the number of requests waiting for room in their client's share.
    pub(crate) fn held_back(&self, class: usize) -> usize {
        self.held_back[class].load(Ordering::Relaxed)
    }
}

/// The buffers that one client holds, by size.
pub(crate) struct ClientQuota {
    parts: [Mutex<Part>; CLASSES],
    /// Number of requests waiting for room.
    waiting: AtomicUsize,
    /// Number of requests that ever had to wait.
    waits: AtomicU64,
    /// Time at which a connection of this client was last closed because it did not take its replies.
    stalled: Mutex<Option<Instant>>,
    /// Bytes on the heap; changed under the lock of the pool's heap.
    heap: AtomicUsize,
}

struct Part {
    used: usize,
    waiting: FairQueue<Arc<Mutex<Waiter>>>,
}

enum Waiter {
    /// Waits for this many buffers.
    Waiting(usize, Option<Waker>),
    Given,
    /// The room was taken, or the request was dropped.
    Done,
}

impl Part {
    fn fits(&self, count: usize, most: usize) -> bool {
        self.used == 0 || self.used + count <= most
    }
}

impl ClientQuota {
    pub(crate) fn new() -> Self {
        let part = |_| Mutex::new(Part { used: 0, waiting: FairQueue::new() });
        let parts = std::array::from_fn(part);
        Self {
            parts,
            waiting: AtomicUsize::new(0),
            waits: AtomicU64::new(0),
            stalled: Mutex::new(None),
            heap: AtomicUsize::new(0),
        }
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn note_stalled(&self, at: Instant) {
        *locked(&self.stalled) = Some(at);
    }

    pub(crate) fn last_stalled(&self) -> Option<Instant> {
        *locked(&self.stalled)
    }

    pub(crate) fn heap(&self) -> usize {
        self.heap.load(Ordering::Relaxed)
    }

    pub(crate) fn add_heap(&self, bytes: usize) {
        self.heap.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn take_heap(&self, bytes: usize) {
        self.heap.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts a request that waits for room on the heap.
    pub(crate) fn note_heap_wait(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that starts to wait.
    fn note_wait(&self, bounds: &Bounds, class: usize) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.waits.fetch_add(1, Ordering::Relaxed);
        bounds.held_back[class].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that no longer waits.
    fn note_end(&self, bounds: &Bounds, class: usize) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        bounds.held_back[class].fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Takes room for one buffer unless other requests of this client are waiting.
    pub(crate) fn try_take(&self, bounds: &Bounds, class: usize) -> bool {
        let mut part = locked(&self.parts[class]);
        let fits = part.waiting.front().is_none() && part.fits(1, bounds.most(class));
        part.used += usize::from(fits);
        fits
    }

    /// Returns room and grants it to waiting requests.
    pub(crate) fn give_back(&self, bounds: &Bounds, class: usize, count: usize) {
        let mut wake = Vec::new();
        let mut part = locked(&self.parts[class]);
        part.used -= count;
        while let Some(next) = part.waiting.front().cloned() {
            let mut waiter = locked(&next);
            match &mut *waiter {
                Waiter::Waiting(count, waker) => {
                    if !part.fits(*count, bounds.most(class)) {
                        break;
                    }
                    part.used += *count;
                    wake.extend(waker.take());
                    *waiter = Waiter::Given;
                    self.note_end(bounds, class);
                }
                Waiter::Given | Waiter::Done => {}
            }
            part.waiting.pop();
        }
        drop(part);
        wake.into_iter().for_each(Waker::wake);
    }
}

/// Room for buffers of one size: requested, held until the buffers exist, and returned if they are no longer wanted.
pub(crate) struct Permit {
    bounds: Arc<Bounds>,
    /// `None` for an unlimited handle.
    share: Option<Arc<ClientQuota>>,
    class: usize,
    count: usize,
    state: State,
}

enum State {
    New,
    Waiting(Arc<Mutex<Waiter>>),
    Held,
    /// The buffers have taken over the room.
    Gone,
}

impl Permit {
    pub(crate) fn new(
        bounds: Arc<Bounds>,
        share: Option<Arc<ClientQuota>>,
        class: usize,
        count: usize,
    ) -> Self {
        Self { bounds, share, class, count, state: State::New }
    }

    pub(crate) fn poll(&mut self, account: Account, cx: &mut Context<'_>) -> Poll<()> {
        let Some(share) = &self.share else { return Poll::Ready(()) };
        match &self.state {
            State::Held | State::Gone => return Poll::Ready(()),
            State::Waiting(waiter) => {
                let mut w = locked(waiter);
                if let Waiter::Waiting(_, waker) = &mut *w {
                    *waker = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                *w = Waiter::Done;
                drop(w);
                self.state = State::Held;
                return Poll::Ready(());
            }
            State::New => {}
        }
        let mut part = locked(&share.parts[self.class]);
        if part.waiting.front().is_none() && part.fits(self.count, self.bounds.most(self.class)) {
            part.used += self.count;
            self.state = State::Held;
            return Poll::Ready(());
        }
        let waiting = Waiter::Waiting(self.count, Some(cx.waker().clone()));
        let waiter = Arc::new(Mutex::new(waiting));
        share.note_wait(&self.bounds, self.class);
        part.waiting.push(account, waiter.clone());
        self.state = State::Waiting(waiter);
        Poll::Pending
    }

    /// Hands the room over to the buffers, each of which returns its part with the share that this method returns.
    pub(crate) fn pass_on(&mut self) -> Option<Arc<ClientQuota>> {
        self.state = State::Gone;
        self.share.clone()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(share) = &self.share else { return };
        let is_held = match std::mem::replace(&mut self.state, State::Gone) {
            State::Held => true,
            State::New | State::Gone => false,
            State::Waiting(waiter) => {
                let was = std::mem::replace(&mut *locked(&waiter), Waiter::Done);
                if let Waiter::Waiting(..) = was {
                    share.note_end(&self.bounds, self.class);
                    // A smaller request behind this one may fit.
                    share.give_back(&self.bounds, self.class, 0);
                }
                matches!(was, Waiter::Given)
            }
        };
        if is_held {
            share.give_back(&self.bounds, self.class, self.count);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;

    use crate::{Account, BufMut, CLASS_SIZES, Pool, PoolLimits};
    use std::task::{Context, Poll, Waker};

    const LARGEST: usize = CLASS_SIZES[2];

    fn poll<F: Future + Unpin>(f: &mut F) -> Poll<F::Output> {
        Pin::new(f).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn got<F: Future<Output = Result<T, crate::TooLarge>> + Unpin, T>(f: &mut F) -> T {
        match poll(f) {
            Poll::Ready(Ok(got)) => got,
            _ => panic!("it waits, or is too large"),
        }
    }

    /// A pool of eight buffers, of which one client may have six.
    fn pool() -> Pool {
        let limits = |n| PoolLimits { buffers_max: [n; 3] };
        let pool = Pool::new(limits(8));
        pool.set_share(limits(6));
        pool
    }

    fn waiting(pool: &Pool) -> usize {
        pool.stats().iter().map(|c| c.waiting).sum()
    }

    #[test]
    fn client_cannot_exceed_its_share() {
        let pool = pool();
        let (greedy, modest) = (pool.of_one_client(), pool.of_one_client());
        let again = greedy.clone();
        let held: Vec<BufMut> =
            (0..6).map(|i| [&greedy, &again][i % 2].try_get(1).unwrap()).collect();
        assert!(greedy.try_get(1).is_none(), "its clones count together");
        let mut more: Vec<_> = (0..10).map(|_| again.acquire(1, Account::new())).collect();
        more.iter_mut().for_each(|m| assert!(poll(m).is_pending()));
        assert_eq!((waiting(&pool), greedy.held_back()), (10, 10));
        // Requests waiting for their own share do not delay other clients.
        assert!(greedy.is_waited_for() && !modest.is_waited_for());
        let one = modest.try_get(1).unwrap();
        let two = got(&mut modest.acquire(1, Account::new()));
        assert!(modest.try_get(1).is_none(), "the pool has no more");
        drop((one, two));
        // Each size is counted separately.
        assert!(greedy.try_get(LARGEST).is_some());
        drop(held);
        let mut taken: Vec<_> = more.iter_mut().take(6).map(got).collect();
        assert!(poll(&mut more[6]).is_pending());
        taken.pop();
        drop(got(&mut more[6]));
        assert_eq!(waiting(&pool), 2, "the next has room, and two have not");
    }

    #[test]
    fn dropped_request_returns_room() {
        let pool = pool();
        let client = pool.of_one_client();
        let held: Vec<BufMut> = (0..5).map(|_| client.try_get(LARGEST).unwrap()).collect();
        let account = Account::new();
        let mut two = client.acquire_all(2 * LARGEST, account);
        assert!(poll(&mut two).is_pending(), "room for one is left");
        let mut one = client.acquire(LARGEST, account);
        assert!(poll(&mut one).is_pending(), "not before who came first");
        drop(two);
        drop(got(&mut one));
        // The room is granted but never taken.
        let mut all = client.acquire_all(2 * LARGEST, account);
        assert!(poll(&mut all).is_pending());
        drop(held);
        drop(all);
        let all: Vec<_> = (0..6).map(|_| client.try_get(LARGEST).unwrap()).collect();
        drop(all);
        assert_eq!((waiting(&pool), pool.stats()[2].in_use), (0, 0));
    }

    #[test]
    fn idle_client_may_exceed_share_once() {
        let pool = pool();
        let client = pool.of_one_client();
        let seven = got(&mut client.acquire_all(6 * LARGEST + 5000, Account::new()));
        assert_eq!(seven.len(), 7);
        assert!(client.try_get(LARGEST).is_none());
        assert!(client.try_get(1).is_some());
        drop(seven);
        let eight = got(&mut client.acquire_all(8 * LARGEST, Account::new()));
        assert!(client.try_get(LARGEST).is_none());
        drop(eight);
        assert!(client.try_get(LARGEST).is_some());
    }

    #[test]
    fn share_changes_while_buffers_in_use() {
        let pool = pool();
        let client = pool.of_one_client();
        let mut held: Vec<BufMut> = (0..4).map(|_| client.try_get(1).unwrap()).collect();
        pool.set_share(PoolLimits { buffers_max: [2; 3] });
        assert!(client.try_get(1).is_none());
        held.truncate(2);
        assert!(client.try_get(1).is_none());
        held.pop();
        held.push(client.try_get(1).unwrap());
        pool.set_share(PoolLimits { buffers_max: [8; 3] });
        assert!(client.try_get(1).is_some());
    }
}
