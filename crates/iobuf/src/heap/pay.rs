//! Requests for room on the heap.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use mutex::locked;

use super::{HeapStats, Waiter, client_fits};
use crate::BufMut;
use crate::client_quota::ClientQuota;
use crate::pool::{Pool, PoolInner};

impl Pool {
    /// Sets the limit of heap memory and of one client's part, in bytes. A client above a lowered limit keeps its memory.
    pub fn set_heap(&self, most: usize, most_of_client: usize) {
        let heap = &self.inner().heap;
        heap.change(|state| {
            state.most = most;
            heap.most_of_client.store(most_of_client, Ordering::Relaxed);
        });
    }

    /// Waits until this client may have so many bytes on the heap. Dropping the future leaves the queue.
    pub fn pay(&self, bytes: usize) -> Pay {
        Pay { pool: self.clone(), bytes, waiter: None }
    }

    /// Takes the bytes at once, even above the limit.
    pub fn pay_now(&self, bytes: usize) -> Paid {
        self.inner().heap.change(|state| state.take(self.share(), bytes));
        Paid { pool: self.inner().clone(), share: self.share().cloned(), bytes }
    }

    /// Checks whether more is on the heap than allowed, for all clients or for this one.
    pub fn is_overdrawn(&self) -> bool {
        let heap = &self.inner().heap;
        heap.overdrawn.load(Ordering::Relaxed)
            || self.share().is_some_and(|share| share.heap() > heap.most_of_client())
    }

    /// Returns figures about the heap.
    pub fn heap_stats(&self) -> HeapStats {
        let state = locked(&self.inner().heap.state);
        HeapStats {
            bytes_max: state.most,
            in_use: state.used,
            waiting: state.waiting.len(),
            waits: state.waits,
        }
    }
}

/// Waits for room on the heap; see [`Pool::pay`].
pub struct Pay {
    pool: Pool,
    bytes: usize,
    waiter: Option<Arc<Waiter>>,
}

impl Pay {
    /// Checks whether the request was polled and had to wait.
    pub fn is_waiting(&self) -> bool {
        self.waiter.is_some()
    }

    fn paid(&self) -> Paid {
        let (pool, share) = (self.pool.inner().clone(), self.pool.share().cloned());
        Paid { pool, share, bytes: self.bytes }
    }
}

impl Future for Pay {
    type Output = Paid;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Paid> {
        if let Some(waiter) = &self.waiter {
            let mut waker = locked(&waiter.waker);
            // Store the waker before checking the flag again, so that either the waker or the flag is seen.
            if !waiter.is_served.load(Ordering::Acquire) {
                *waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            drop(waker);
            self.waiter = None;
            return Poll::Ready(self.paid());
        }
        let waiter = Arc::new(Waiter {
            bytes: self.bytes,
            share: self.pool.share().cloned(),
            is_served: AtomicBool::new(false),
            waker: Mutex::default(),
        });
        let heap = &self.pool.inner().heap;
        let others = heap.change(|state| {
            state.waiting.push_back(waiter.clone());
            // Serve at once, so that only a real wait is counted.
            let others = state.serve(heap.most_of_client());
            if !waiter.is_served.load(Ordering::Acquire) {
                *locked(&waiter.waker) = Some(cx.waker().clone());
                state.waits += 1;
                if let Some(share) = self.pool.share()
                    && !client_fits(Some(share), self.bytes, heap.most_of_client())
                {
                    share.note_heap_wait();
                }
            }
            others
        });
        // Wake without the lock: a woken task may drop memory and take the lock.
        others.into_iter().for_each(Waker::wake);
        if waiter.is_served.load(Ordering::Acquire) {
            return Poll::Ready(self.paid());
        }
        self.waiter = Some(waiter);
        Poll::Pending
    }
}

impl Drop for Pay {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        let share = self.pool.share();
        self.pool.inner().heap.change(|state| {
            if waiter.is_served.load(Ordering::Acquire) {
                state.used -= self.bytes;
                if let Some(share) = share {
                    share.take_heap(self.bytes);
                }
            } else {
                state.waiting.retain(|other| !Arc::ptr_eq(other, &waiter));
            }
        });
    }
}

/// Bytes on the heap that are counted until this is dropped.
pub struct Paid {
    pool: Arc<PoolInner>,
    share: Option<Arc<ClientQuota>>,
    bytes: usize,
}

impl Paid {
    /// Returns the number of bytes counted.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes above this number.
    pub fn shrink_to(&mut self, bytes: usize) {
        let over = self.bytes.saturating_sub(bytes);
        if over > 0 {
            self.bytes -= over;
            self.pool.heap.give_back(self.share.as_ref(), over);
        }
    }

    /// Attaches the payment to these bytes until their last view is dropped.
    pub fn hold(mut self, bytes: Vec<u8>) -> BufMut {
        self.shrink_to(bytes.len());
        BufMut::kept(bytes, Box::new(self))
    }
}

impl Drop for Paid {
    fn drop(&mut self) {
        self.pool.heap.give_back(self.share.as_ref(), self.bytes);
    }
}

impl std::fmt::Debug for Paid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Paid({})", self.bytes)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::PoolLimits;

    fn pool() -> Pool {
        let pool = Pool::new(PoolLimits { buffers_max: [1; 3] });
        pool.set_heap(1000, 700);
        pool
    }

    fn poll(pay: &mut Pay) -> Option<Paid> {
        match Pin::new(pay).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(paid) => Some(paid),
            Poll::Pending => None,
        }
    }

    fn paid(pool: &Pool, bytes: usize) -> Paid {
        poll(&mut pool.pay(bytes)).unwrap()
    }

    fn used(pool: &Pool) -> usize {
        pool.heap_stats().in_use
    }

    #[test]
    fn bytes_count_until_last_view() {
        let pool = pool();
        let buf = paid(&pool, 600).hold(vec![7; 400]).freeze();
        assert_eq!(used(&pool), 400, "as many as there are");
        let part = buf.slice(3..5);
        drop(buf);
        assert_eq!((used(&pool), &part[..]), (400, &[7, 7][..]));
        drop(part);
        assert_eq!(used(&pool), 0);
        let mut again = paid(&pool, 4).hold(vec![1; 4]).freeze().try_mut().unwrap();
        again.filled_mut()[0] = 2;
        assert_eq!(used(&pool), 4, "it may be written, and counts as before");
        drop(again);
        assert_eq!(used(&pool), 0);
    }

    #[test]
    fn waiting_request_is_never_overtaken() {
        let pool = pool();
        let first = paid(&pool, 600);
        let (mut large, mut small) = (pool.pay(500), pool.pay(100));
        assert!(poll(&mut large).is_none() && poll(&mut small).is_none());
        assert_eq!((pool.heap_stats().waiting, pool.heap_stats().waits), (2, 2));
        assert!(pool.is_waited_for());
        drop(first);
        let (large, small) = (poll(&mut large).unwrap(), poll(&mut small).unwrap());
        assert_eq!((large.bytes(), small.bytes(), used(&pool)), (500, 100, 600));
        assert!(!pool.is_waited_for());
    }

    #[test]
    fn full_client_never_delays_others() {
        let pool = pool();
        let (greedy, modest) = (pool.of_one_client(), pool.of_one_client());
        let held = paid(&greedy, 700);
        let mut more = greedy.clone().pay(1);
        assert!(poll(&mut more).is_none());
        assert_eq!(greedy.held_back(), 1);
        assert!(greedy.is_waited_for() && !modest.is_waited_for());
        let other = paid(&modest, 300);
        assert_eq!(modest.held_back(), 0);
        drop(held);
        assert_eq!(poll(&mut more).unwrap().bytes(), 1);
        drop(other);
        assert_eq!(used(&pool), 0);
    }

    #[test]
    fn oversized_request_waits_for_empty_heap() {
        let pool = pool();
        let held = paid(&pool, 5000);
        let mut next = pool.pay(1);
        assert!(poll(&mut next).is_none());
        drop(held);
        assert!(poll(&mut next).is_some());
    }

    #[test]
    fn dropped_request_leaves_no_trace() {
        let pool = pool();
        let held = paid(&pool, 900);
        let (mut waits, mut behind) = (pool.pay(200), pool.pay(100));
        assert!(poll(&mut waits).is_none() && poll(&mut behind).is_none());
        drop(waits);
        assert!(poll(&mut behind).is_some(), "what was before it has gone");
        let mut served = pool.pay(200);
        assert!(poll(&mut served).is_none());
        drop(held);
        assert_eq!(used(&pool), 200, "given, and not taken");
        drop(served);
        assert_eq!((used(&pool), pool.heap_stats().waiting), (0, 0));
    }

    #[test]
    fn immediate_payment_delays_later_requests() {
        let pool = pool();
        let client = pool.of_one_client();
        let (held, debt) = (paid(&pool, 900), client.pay_now(500));
        assert!(pool.is_overdrawn() && client.is_overdrawn());
        let mut none = client.pay(0);
        assert!(poll(&mut none).is_none());
        drop(held);
        assert!(poll(&mut none).is_some() && !client.is_overdrawn());
        let more = client.pay_now(300);
        assert!(client.is_overdrawn() && !pool.is_overdrawn(), "its own part");
        drop((debt, more));
        assert_eq!(used(&pool), 0);
    }

    #[test]
    fn raised_limit_serves_waiting_requests() {
        let pool = pool();
        let _held = paid(&pool, 900);
        let mut waits = pool.pay(200);
        assert!(poll(&mut waits).is_none());
        pool.set_heap(2000, 2000);
        assert!(poll(&mut waits).is_some());
    }
}
