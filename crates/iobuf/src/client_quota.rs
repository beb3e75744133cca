//! What all connections of one client may have of a pool together, so that no client takes what the others need.
//!
//! *Operation.* A handle of [`Pool::of_one_client`] asks its share for room before it asks the pool for memory, and a buffer
//! gives its room back when it gives its memory back. Who finds no room waits here, in its account's turn, and stands in nobody's
//! way: the pool's own queue holds only those who may have what they wait for.
//!
//! *Memory.* A share counts; it reserves nothing. How much it allows is the pool's to say ([`Pool::set_share`]), and may change
//! at any time: who is over a lowered bound keeps what it has.
//!
//! *Errors.* Who wants more at once than its share allows gets it when it has nothing else.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use mutex::locked;

use crate::CLASS_SIZES;
use crate::account::Account;
use crate::fair_queue::FairQueue;

const CLASSES: usize = CLASS_SIZES.len();

/// What one client of a pool may have of each size, and how many requests wait for that.
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
    /// From now on a client may have so many of each size.
    pub(crate) fn set(&self, most: [usize; CLASSES]) {
        for (bound, most) in self.most.iter().zip(most) {
            bound.store(most, Ordering::Relaxed);
        }
    }

    fn most(&self, class: usize) -> usize {
        self.most[class].load(Ordering::Relaxed)
    }

    /// Requests that wait now for room in the share of their client.
    pub(crate) fn held_back(&self, class: usize) -> usize {
        self.held_back[class].load(Ordering::Relaxed)
    }
}

/// What one client has of each size.
pub(crate) struct ClientQuota {
    parts: [Mutex<Part>; CLASSES],
    /// Requests that wait for room now.
    waiting: AtomicUsize,
    /// Requests that ever had to.
    waits: AtomicU64,
    /// When a connection of this client was last ended because it did not take its answers.
    stalled: Mutex<Option<Instant>>,
    /// Bytes on the heap; changed under the lock of the pool's heap.
    heap: AtomicUsize,
}

struct Part {
    used: usize,
    waiting: FairQueue<Arc<Mutex<Waiter>>>,
}

enum Waiter {
    /// For so many buffers.
    Waiting(usize, Option<Waker>),
    Given,
    /// The room was taken over, or the one who waited has gone.
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

    /// One more waits for room on the heap.
    pub(crate) fn note_heap_wait(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// One more waits.
    fn note_wait(&self, bounds: &Bounds, class: usize) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.waits.fetch_add(1, Ordering::Relaxed);
        bounds.held_back[class].fetch_add(1, Ordering::Relaxed);
    }

    /// One waits no longer.
    fn note_end(&self, bounds: &Bounds, class: usize) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        bounds.held_back[class].fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Room for one buffer, if nobody of this client waits for some.
    pub(crate) fn try_take(&self, bounds: &Bounds, class: usize) -> bool {
        let mut part = locked(&self.parts[class]);
        let fits = part.waiting.front().is_none() && part.fits(1, bounds.most(class));
        part.used += usize::from(fits);
        fits
    }

    /// Gives room back, and passes it on to those who wait for it.
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

/// Room for buffers of one size: waited for, held until they are there, and given back if they are not wanted any more.
pub(crate) struct Permit {
    bounds: Arc<Bounds>,
    /// `None`: nothing is counted.
    share: Option<Arc<ClientQuota>>,
    class: usize,
    count: usize,
    state: State,
}

enum State {
    New,
    Waiting(Arc<Mutex<Waiter>>),
    Held,
    /// Passed on to buffers.
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

    /// The buffers are there and give the room back themselves, each with the share that is returned.
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
                    // Somebody behind it may want less.
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

    /// Of eight buffers one client may have six.
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
    fn one_client_cannot_take_what_the_others_need() {
        let pool = pool();
        let (greedy, modest) = (pool.of_one_client(), pool.of_one_client());
        let again = greedy.clone();
        let held: Vec<BufMut> =
            (0..6).map(|i| [&greedy, &again][i % 2].try_get(1).unwrap()).collect();
        assert!(greedy.try_get(1).is_none(), "its clones count together");
        let mut more: Vec<_> = (0..10).map(|_| again.acquire(1, Account::new())).collect();
        more.iter_mut().for_each(|m| assert!(poll(m).is_pending()));
        assert_eq!((waiting(&pool), greedy.held_back()), (10, 10));
        // What waits for its own share stands in nobody's way.
        assert!(greedy.is_waited_for() && !modest.is_waited_for());
        let one = modest.try_get(1).unwrap();
        let two = got(&mut modest.acquire(1, Account::new()));
        assert!(modest.try_get(1).is_none(), "the pool has no more");
        drop((one, two));
        // Another size is counted for itself.
        assert!(greedy.try_get(LARGEST).is_some());
        drop(held);
        let mut taken: Vec<_> = more.iter_mut().take(6).map(got).collect();
        assert!(poll(&mut more[6]).is_pending());
        taken.pop();
        drop(got(&mut more[6]));
        assert_eq!(waiting(&pool), 2, "the next has room, and two have not");
    }

    #[test]
    fn room_comes_back_from_whoever_gives_up() {
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
        // Given, and never taken.
        let mut all = client.acquire_all(2 * LARGEST, account);
        assert!(poll(&mut all).is_pending());
        drop(held);
        drop(all);
        let all: Vec<_> = (0..6).map(|_| client.try_get(LARGEST).unwrap()).collect();
        drop(all);
        assert_eq!((waiting(&pool), pool.stats()[2].in_use), (0, 0));
    }

    #[test]
    fn who_has_nothing_may_have_more_than_the_share_at_once() {
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
    fn the_bound_changes_while_buffers_are_out() {
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
