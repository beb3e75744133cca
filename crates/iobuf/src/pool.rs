//! The pool: three buffer sizes with a limit each, and a queue that is fair between accounts when a limit is reached.
#![allow(unsafe_code)]

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use mutex::locked;

use crate::account::Account;
use crate::client_quota::{Bounds, ClientQuota, Permit};
use crate::fair_queue::FairQueue;
use crate::heap::Heap;
use crate::slab::{SLAB, Slab};
use crate::wait_queue::WaitQueue;
use crate::{BufMut, CLASS_SIZES};

const CLASSES: usize = CLASS_SIZES.len();

/// Maximum number of buffers of each of [`CLASS_SIZES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Buffers of 4 KiB, 64 KiB and 1 MiB, in this order.
    pub buffers_max: [usize; CLASSES],
}

impl PoolLimits {
    /// Divides `bytes`: half for 1 MiB buffers, a quarter for each of the others, at least one of each.
    pub fn of_bytes(bytes: usize) -> Self {
        let share = [bytes / 4, bytes / 4, bytes / 2];
        Self { buffers_max: std::array::from_fn(|i| (share[i] / CLASS_SIZES[i]).max(1)) }
    }

    fn bytes(&self) -> usize {
        let of_class =
            self.buffers_max.iter().zip(CLASS_SIZES).map(|(n, size)| n.saturating_mul(size));
        of_class.fold(0, usize::saturating_add)
    }
}

/// The pool and the client to which a buffer is returned.
pub(crate) struct Origin {
    pool: Arc<PoolInner>,
    class: usize,
    /// The client whose share includes the buffer.
    share: Option<Arc<ClientQuota>>,
}

impl Origin {
    pub(crate) fn give_back(&self, base: NonNull<u8>) {
        self.pool.give_back(self.class, base);
        if let Some(share) = &self.share {
            share.give_back(&self.pool.bounds, self.class, 1);
        }
    }

    /// Counts the buffer for this client, whose share has room for it.
    pub(crate) fn count_for(&mut self, share: Option<Arc<ClientQuota>>) {
        self.share = share;
    }
}

/// The error for a request larger than the largest buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// Requested size in bytes.
    pub wanted: usize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no buffer holds {} bytes; the largest has {}",
            self.wanted,
            CLASS_SIZES[CLASSES - 1]
        )
    }
}

impl std::error::Error for TooLarge {}

/// Figures about one buffer size of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Size of one buffer, in bytes.
    pub size: usize,
    /// The limit, in buffers.
    pub buffers_max: usize,
    /// Buffers in use.
    pub in_use: usize,
    /// Requests waiting for memory or for room in their client's share.
    pub waiting: usize,
    /// Requests that ever had to wait.
    pub waits: u64,
}

/// A bounded pool of payload buffers. Clones share it, and count for the same client.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<PoolInner>,
    share: Option<Arc<ClientQuota>>,
}

pub(crate) struct PoolInner {
    classes: [Mutex<Class>; CLASSES],
    line: Mutex<WaitQueue>,
    bounds: Arc<Bounds>,
    pub(crate) heap: Heap,
}

struct Class {
    size: usize,
    limit: usize,
    free: Vec<NonNull<u8>>,
    slabs: Vec<NonNull<u8>>,
    in_use: usize,
    waits: u64,
    waiting: usize,
    turns: FairQueue<Arc<Mutex<Waiter>>>,
}

// SAFETY: the pointers are owned memory; the mutex around the class gives one thread at a time access to them.
unsafe impl Send for Class {}

enum Waiter {
    Waiting(Option<Waker>),
    Given(NonNull<u8>),
    /// The memory was taken, or the request was dropped.
    Done,
}

// SAFETY: a given buffer is owned by this waiter only until it is taken.
unsafe impl Send for Waiter {}

impl Class {
    /// Takes a free buffer; adds a slab if no buffer is free and the limit allows.
    fn take(&mut self) -> Option<NonNull<u8>> {
        if self.in_use >= self.limit {
            return None;
        }
        if self.free.is_empty() {
            let base = Slab::take()?;
            self.slabs.push(base);
            for i in (0..SLAB / self.size).rev() {
                // SAFETY: `i * size` is inside the slab.
                self.free.push(unsafe { base.add(i * self.size) });
            }
        }
        let b = self.free.pop()?;
        self.in_use += 1;
        Some(b)
    }

    /// Gives a buffer, which counts as in use, to the next waiting request, and returns its waker. `None` if no request waits.
    fn give(&mut self, base: NonNull<u8>) -> Option<Option<Waker>> {
        while let Some(waiter) = self.turns.pop() {
            self.waiting -= 1;
            let mut waiter = locked(&waiter);
            if let Waiter::Waiting(waker) = &mut *waiter {
                let waker = waker.take();
                *waiter = Waiter::Given(base);
                return Some(waker);
            }
        }
        None
    }

    /// Serves waiting requests within a raised limit, and returns their wakers.
    fn serve_waiting(&mut self) -> Vec<Waker> {
        let mut wake = Vec::new();
        while self.waiting > 0
            && let Some(base) = self.take()
        {
            match self.give(base) {
                Some(waker) => wake.extend(waker),
                // The waiting requests were dropped.
                None => {
                    self.in_use -= 1;
                    self.free.push(base);
                }
            }
        }
        wake
    }

    fn enqueue(&mut self, account: Account, waiter: Arc<Mutex<Waiter>>) {
        self.waits += 1;
        self.waiting += 1;
        self.turns.push(account, waiter);
    }
}

impl Drop for Class {
    fn drop(&mut self) {
        for slab in &self.slabs {
            Slab::around(*slab).tell_freed();
            // SAFETY: each slab came from `take`, and no buffer is in use: every buffer holds the pool's `Arc`.
            unsafe { Slab::give_back(*slab) };
        }
    }
}

impl PoolInner {
    /// Gives the memory to the next waiting request, or puts it on the free list.
    fn give_back(&self, class: usize, base: NonNull<u8>) {
        if cfg!(debug_assertions) {
            // Poison: a reader of memory that was given back sees this instead of plausible data.
            // SAFETY: the caller owned these `size` bytes and has just given them up.
            unsafe { std::ptr::write_bytes(base.as_ptr(), 0xa5, CLASS_SIZES[class]) };
        }
        let mut c = locked(&self.classes[class]);
        // If a lowered limit is exceeded, waiting requests are served only after enough buffers are returned.
        let over = c.in_use > c.limit;
        if !over && let Some(waker) = c.give(base) {
            drop(c);
            if let Some(waker) = waker {
                waker.wake();
            }
            return;
        }
        c.in_use -= 1;
        c.free.push(base);
    }
}

impl Pool {
    /// Creates a pool that takes memory on demand up to `limits`, and an eighth as much on the heap ([`Pool::set_heap`]).
    pub fn new(limits: PoolLimits) -> Self {
        let classes = std::array::from_fn(|i| {
            Mutex::new(Class {
                size: CLASS_SIZES[i],
                limit: limits.buffers_max[i],
                free: Vec::new(),
                slabs: Vec::new(),
                in_use: 0,
                waits: 0,
                waiting: 0,
                turns: FairQueue::new(),
            })
        });
        let inner = PoolInner {
            classes,
            line: Mutex::default(),
            bounds: Arc::default(),
            heap: Heap::new(limits.bytes() / 8),
        };
        Self { inner: Arc::new(inner), share: None }
    }

    /// Creates a handle for one client: buffers taken through it and its clones count together, up to the limit of
    /// [`Pool::set_share`].
    pub fn of_one_client(&self) -> Self {
        Self { inner: self.inner.clone(), share: Some(Arc::new(ClientQuota::new())) }
    }

    /// Creates a handle without a client.
    pub(crate) fn of_nobody(&self) -> Self {
        Self { inner: self.inner.clone(), share: None }
    }

    /// Sets the limit per client; until then there is no limit. A client above the limit keeps its buffers.
    pub fn set_share(&self, most: PoolLimits) {
        self.inner.bounds.set(most.buffers_max);
    }

    /// Returns how often a request of this client had to wait because the client had used up its share.
    pub fn held_back(&self) -> u64 {
        self.share.as_ref().map_or(0, |share| share.waits())
    }

    /// Checks whether a request waits for memory that this client holds: any request for memory, or its own for room in its share.
    pub fn is_waited_for(&self) -> bool {
        let is_short = self.inner.classes.iter().any(|class| locked(class).waiting > 0);
        is_short
            || self.share.as_ref().is_some_and(|share| share.is_waited_for())
            || self.inner.heap.is_waited_for(self.share.as_ref())
    }

    /// Records that a connection of this client was closed because it took no replies while others waited for the memory.
    pub fn note_stalled(&self, at: Instant) {
        if let Some(share) = &self.share {
            share.note_stalled(at);
        }
    }

    /// Returns the time of the last such event; it is forgotten with the client's last connection.
    pub fn last_stalled(&self) -> Option<Instant> {
        self.share.as_ref().and_then(|share| share.last_stalled())
    }

    pub(crate) fn inner(&self) -> &Arc<PoolInner> {
        &self.inner
    }

    pub(crate) fn share(&self) -> Option<&Arc<ClientQuota>> {
        self.share.as_ref()
    }

    pub(crate) fn room(&self, class: usize, count: usize) -> Permit {
        Permit::new(self.inner.bounds.clone(), self.share.clone(), class, count)
    }

    /// Changes the limits while the pool is in use. Buffers above a lowered limit are collected as they are returned, and their
    /// memory stays with the pool. No request may need more buffers at once than the new limits allow.
    pub fn set_limits(&self, limits: PoolLimits) {
        for (class, limit) in self.inner.classes.iter().zip(limits.buffers_max) {
            let wake = {
                let mut class = locked(class);
                class.limit = limit;
                class.serve_waiting()
            };
            wake.into_iter().for_each(Waker::wake);
        }
    }

    pub(crate) fn class_of(bytes: usize) -> Result<usize, TooLarge> {
        CLASS_SIZES.iter().position(|&s| s >= bytes).ok_or(TooLarge { wanted: bytes })
    }

    fn buffer(&self, class: usize, base: NonNull<u8>, share: Option<Arc<ClientQuota>>) -> BufMut {
        BufMut::pooled(base, CLASS_SIZES[class], Origin { pool: self.inner.clone(), class, share })
    }

    /// Takes a buffer of at least `bytes` if one is free now, no request is waiting, the size exists, and the client has room.
    pub fn try_get(&self, bytes: usize) -> Option<BufMut> {
        let class = Self::class_of(bytes).ok()?;
        if let Some(share) = &self.share
            && !share.try_take(&self.inner.bounds, class)
        {
            return None;
        }
        let Some(base) = self.try_memory(class) else {
            if let Some(share) = &self.share {
                share.give_back(&self.inner.bounds, class, 1);
            }
            return None;
        };
        Some(self.buffer(class, base, self.share.clone()))
    }

    fn try_memory(&self, class: usize) -> Option<NonNull<u8>> {
        let mut c = locked(&self.inner.classes[class]);
        if c.waiting > 0 { None } else { c.take() }
    }

    /// Waits for a buffer of at least `bytes` if the limit or the client's share is used up, fairly by `account`. Dropping the
    /// future leaves the queue.
    pub fn acquire(&self, bytes: usize, account: Account) -> Acquire {
        let class = Self::class_of(bytes);
        let room = self.room(class.unwrap_or_default(), 1);
        Acquire { pool: self.clone(), room, class, account, waiter: None }
    }

    /// Returns the limit for buffers of the largest size.
    pub(crate) fn largest_max(&self) -> usize {
        locked(&self.inner.classes[CLASSES - 1]).limit
    }

    pub(crate) fn line(&self) -> &Mutex<WaitQueue> {
        &self.inner.line
    }

    /// Returns the figures of each size, in the order of [`CLASS_SIZES`].
    pub fn stats(&self) -> [ClassStats; CLASSES] {
        std::array::from_fn(|i| {
            let c = locked(&self.inner.classes[i]);
            ClassStats {
                size: c.size,
                buffers_max: c.limit,
                in_use: c.in_use,
                waiting: c.waiting + self.inner.bounds.held_back(i),
                waits: c.waits,
            }
        })
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.stats()).finish()
    }
}

/// Waits for a buffer; see [`Pool::acquire`].
pub struct Acquire {
    pool: Pool,
    room: Permit,
    class: Result<usize, TooLarge>,
    account: Account,
    waiter: Option<Arc<Mutex<Waiter>>>,
}

impl Acquire {
    /// Waits for memory after the client's share has granted room.
    fn poll_memory(&mut self, class: usize, cx: &mut Context<'_>) -> Poll<NonNull<u8>> {
        if let Some(waiter) = &self.waiter {
            let mut w = locked(waiter);
            return match &*w {
                Waiter::Given(base) => {
                    let base = *base;
                    *w = Waiter::Done;
                    drop(w);
                    self.waiter = None;
                    Poll::Ready(base)
                }
                _ => {
                    *w = Waiter::Waiting(Some(cx.waker().clone()));
                    Poll::Pending
                }
            };
        }
        let mut c = locked(&self.pool.inner.classes[class]);
        if c.waiting == 0
            && let Some(base) = c.take()
        {
            return Poll::Ready(base);
        }
        let waiter = Arc::new(Mutex::new(Waiter::Waiting(Some(cx.waker().clone()))));
        c.enqueue(self.account, waiter.clone());
        drop(c);
        self.waiter = Some(waiter);
        Poll::Pending
    }
}

impl Future for Acquire {
    type Output = Result<BufMut, TooLarge>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let class = match self.class {
            Ok(c) => c,
            Err(e) => return Poll::Ready(Err(e)),
        };
        let account = self.account;
        ready!(self.room.poll(account, cx));
        let base = ready!(self.poll_memory(class, cx));
        let share = self.room.pass_on();
        Poll::Ready(Ok(self.pool.buffer(class, base, share)))
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let (Some(waiter), Ok(class)) = (self.waiter.take(), self.class) else { return };
        let given = {
            let mut w = locked(&waiter);
            match std::mem::replace(&mut *w, Waiter::Done) {
                Waiter::Given(base) => Some(base),
                _ => None,
            }
        };
        // A granted buffer that was never taken goes to the next request. If still waiting, `give_back` skips this waiter as done.
        if let Some(base) = given {
            self.pool.inner.give_back(class, base);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(a: &mut Acquire) -> Poll<Result<BufMut, TooLarge>> {
        Pin::new(a).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn pool(n: usize) -> Pool {
        Pool::new(PoolLimits { buffers_max: [n; 3] })
    }

    #[test]
    fn limit_holds_and_memory_returns() {
        let p = pool(2);
        let a = p.try_get(1).unwrap();
        let b = p.try_get(4096).unwrap();
        assert!(p.try_get(1).is_none());
        let view = a.freeze();
        let other = view.clone();
        drop(view);
        assert!(p.try_get(1).is_none());
        drop(other);
        assert!(p.try_get(1).is_some());
        drop(b);
        assert_eq!(p.stats()[0].in_use, 0);
    }

    #[test]
    fn oversized_buffer_is_refused() {
        let p = pool(1);
        assert!(p.try_get((1 << 20) + 1).is_none());
        let mut a = p.acquire((1 << 20) + 1, Account::new());
        assert!(matches!(poll(&mut a), Poll::Ready(Err(TooLarge { .. }))));
    }

    #[test]
    fn accounts_are_served_round_robin() {
        let p = pool(1);
        let (greedy, modest) = (Account::new(), Account::new());
        let held = p.try_get(1).unwrap();
        let mut g: Vec<_> = (0..3).map(|_| p.acquire(1, greedy)).collect();
        let mut m = p.acquire(1, modest);
        for a in &mut g {
            assert!(poll(a).is_pending());
        }
        assert!(poll(&mut m).is_pending());
        assert_eq!(p.stats()[0].waiting, 4);
        drop(held);
        let Poll::Ready(Ok(first)) = poll(&mut g[0]) else { panic!("greedy came first") };
        drop(first);
        // The modest account is second, although the greedy one has two more requests queued.
        assert!(poll(&mut g[1]).is_pending());
        assert!(poll(&mut m).is_ready());
    }

    #[test]
    fn limits_change_while_buffers_in_use() {
        let p = pool(2);
        let limits = |n| PoolLimits { buffers_max: [n; 3] };
        let (a, b) = (p.try_get(1).unwrap(), p.try_get(1).unwrap());
        let mut waits: Vec<_> = (0..3).map(|_| p.acquire(1, Account::new())).collect();
        waits.iter_mut().for_each(|w| assert!(poll(w).is_pending()));
        // One waiting request was dropped; the raised limit serves the two others.
        drop(waits.remove(0));
        p.set_limits(limits(4));
        let served: Vec<_> = waits.iter_mut().map(poll).collect();
        assert!(served.iter().all(Poll::is_ready));
        assert_eq!((p.stats()[0].in_use, p.stats()[0].waiting), (4, 0));
        // The limit drops below the number in use: no request is served until only one buffer is in use.
        p.set_limits(limits(1));
        let mut late = p.acquire(1, Account::new());
        assert!(poll(&mut late).is_pending());
        drop((a, b));
        assert!(poll(&mut late).is_pending());
        drop(served);
        assert!(poll(&mut late).is_ready());
        assert_eq!((p.stats()[0].buffers_max, p.stats()[0].in_use), (1, 0));
    }

    #[test]
    fn dropped_wait_passes_buffer_on() {
        let p = pool(1);
        let held = p.try_get(1).unwrap();
        let mut a = p.acquire(1, Account::new());
        let mut b = p.acquire(1, Account::new());
        assert!(poll(&mut a).is_pending());
        assert!(poll(&mut b).is_pending());
        drop(held);
        drop(a);
        assert!(poll(&mut b).is_ready());
        assert_eq!(p.stats()[0].in_use, 0);
        assert_eq!(p.stats()[0].waiting, 0);
    }
}
