//! Acquires several buffers at once, for payload larger than the largest buffer.
//!
//! *Operation.* If enough buffers are free, a request takes all of them at once. Otherwise requests for several buffers form a
//! separate queue, and only the first in it collects buffers, one after the other, competing fairly by account. Two such requests
//! therefore never hold what the other needs, and requests for single buffers cannot starve them.
//!
//! *Memory.* The collecting request holds the buffers it already has; all others in the queue hold no buffers.
//!
//! *Errors.* A request for more than the whole pool fails at once with [`TooLarge`].

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use mutex::locked;

use crate::account::Account;
use crate::client_quota::Permit;
use crate::pool::{Acquire, Pool, TooLarge};
use crate::{BufMut, CLASS_SIZES};

const LARGEST: usize = CLASS_SIZES[CLASS_SIZES.len() - 1];

/// Waits for buffers with the given total size; see [`Pool::acquire_all`].
pub struct AcquireAll {
    pool: Pool,
    account: Account,
    bytes: usize,
    got: Vec<BufMut>,
    /// Waits for the next buffer.
    one: Option<Acquire>,
    ticket: Option<u64>,
    /// Room in the client's share for all buffers of the size that most of them have.
    room: Permit,
    class: usize,
}

impl Pool {
    /// Acquires buffers with a total of `bytes`: as many of the largest size as necessary, and one for the rest. Returns all of
    /// them at once; see [`AcquireAll`] for the queuing.
    pub fn acquire_all(&self, bytes: usize, account: Account) -> AcquireAll {
        AcquireAll::new(self.clone(), bytes, account)
    }
}

impl AcquireAll {
    fn new(pool: Pool, bytes: usize, account: Account) -> Self {
        let class = Pool::class_of(bytes.min(LARGEST)).unwrap_or_default();
        // A smaller last buffer is not counted.
        let is_counted = |rest: usize| Pool::class_of(rest).is_ok_and(|c| c == class);
        let rest = bytes % LARGEST;
        let count = bytes / LARGEST + usize::from(rest > 0 && is_counted(rest));
        let room = pool.room(class, count);
        let pool = pool.of_nobody();
        Self { pool, account, bytes, got: Vec::new(), one: None, ticket: None, room, class }
    }

    /// Returns the collected buffers, which from now on count for the client.
    fn all(&mut self) -> Vec<BufMut> {
        let share = self.room.pass_on();
        let mut got = std::mem::take(&mut self.got);
        for buffer in got.iter_mut().filter(|b| b.capacity() == CLASS_SIZES[self.class]) {
            buffer.count_for(share.clone());
        }
        got
    }

    /// Returns the size that the next buffer must have.
    fn next_len(&self) -> usize {
        (self.bytes - (self.got.len() * LARGEST).min(self.bytes)).min(LARGEST)
    }

    fn count(&self) -> usize {
        self.bytes.div_ceil(LARGEST)
    }

    /// Takes all buffers if enough are free now.
    fn try_all(&mut self) -> bool {
        while self.got.len() < self.count() {
            match self.pool.try_get(self.next_len()) {
                Some(buffer) => self.got.push(buffer),
                None => {
                    self.got.clear();
                    return false;
                }
            }
        }
        true
    }

    fn leave(&mut self) {
        if let Some(ticket) = self.ticket.take()
            && let Some(next) = locked(self.pool.line()).leave(ticket)
        {
            next.wake();
        }
    }

    fn poll_one(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TooLarge>> {
        let (len, account) = (self.next_len(), self.account);
        let one = self.one.get_or_insert_with(|| self.pool.acquire(len, account));
        let buffer = ready!(Pin::new(one).poll(cx));
        self.one = None;
        self.got.push(buffer?);
        Poll::Ready(Ok(()))
    }
}

impl Future for AcquireAll {
    type Output = Result<Vec<BufMut>, TooLarge>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (count, account) = (self.count(), self.account);
        if count > 1 && count > self.pool.largest_max() {
            return Poll::Ready(Err(TooLarge { wanted: self.bytes }));
        }
        if count > 0 {
            ready!(self.room.poll(account, cx));
        }
        if count > 1 {
            if self.ticket.is_none() {
                if self.try_all() {
                    return Poll::Ready(Ok(self.all()));
                }
                let ticket = locked(self.pool.line()).join(cx.waker());
                self.ticket = Some(ticket);
            }
            if !self.ticket.is_none_or(|t| locked(self.pool.line()).is_first(t, cx.waker())) {
                return Poll::Pending;
            }
        }
        while self.got.len() < count {
            ready!(self.poll_one(cx))?;
        }
        self.leave();
        Poll::Ready(Ok(self.all()))
    }
}

impl Drop for AcquireAll {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::PoolLimits;

    fn poll(a: &mut AcquireAll) -> Poll<Result<Vec<BufMut>, TooLarge>> {
        Pin::new(a).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn pool(n: usize) -> Pool {
        Pool::new(PoolLimits { buffers_max: [n; 3] })
    }

    #[test]
    fn last_buffer_has_smallest_size() {
        let p = pool(4);
        let Poll::Ready(Ok(bufs)) = poll(&mut p.acquire_all(2 * LARGEST + 5000, Account::new()))
        else {
            panic!("there are enough")
        };
        let sizes: Vec<usize> = bufs.iter().map(BufMut::capacity).collect();
        assert_eq!(sizes, [LARGEST, LARGEST, 64 << 10]);
        let Poll::Ready(Ok(none)) = poll(&mut p.acquire_all(0, Account::new())) else {
            panic!("nothing is always there")
        };
        assert!(none.is_empty());
    }

    #[test]
    fn request_beyond_pool_is_refused() {
        let p = pool(3);
        assert!(matches!(
            poll(&mut p.acquire_all(3 * LARGEST + 1, Account::new())),
            Poll::Ready(Err(TooLarge { .. }))
        ));
        assert!(poll(&mut p.acquire_all(3 * LARGEST, Account::new())).is_ready());
    }

    #[test]
    fn two_large_requests_never_deadlock() {
        let p = pool(4);
        let held: Vec<_> = (0..4).map(|_| p.try_get(LARGEST).unwrap()).collect();
        let mut a = p.acquire_all(4 * LARGEST, Account::new());
        let mut b = p.acquire_all(3 * LARGEST, Account::new());
        assert!(poll(&mut a).is_pending());
        assert!(poll(&mut b).is_pending());
        drop(held);
        assert!(poll(&mut b).is_pending(), "the second holds nothing while the first gathers");
        let Poll::Ready(Ok(all)) = poll(&mut a) else { panic!("the first has all") };
        assert!(poll(&mut b).is_pending());
        drop(all);
        assert!(poll(&mut b).is_ready());
        assert_eq!(p.stats()[2].in_use, 0);
    }

    #[test]
    fn dropped_request_admits_the_next() {
        let p = pool(2);
        let held = p.try_get(LARGEST).unwrap();
        let mut a = p.acquire_all(2 * LARGEST, Account::new());
        let mut b = p.acquire_all(2 * LARGEST, Account::new());
        assert!(poll(&mut a).is_pending());
        assert!(poll(&mut b).is_pending());
        drop(a);
        assert!(poll(&mut b).is_pending());
        drop(held);
        assert!(poll(&mut b).is_ready());
        assert_eq!((p.stats()[2].in_use, p.stats()[2].waiting), (0, 0));
    }

    #[test]
    fn single_requests_interleave_with_collector() {
        let p = pool(2);
        let held: Vec<_> = (0..2).map(|_| p.try_get(LARGEST).unwrap()).collect();
        let mut all = p.acquire_all(2 * LARGEST, Account::new());
        assert!(poll(&mut all).is_pending());
        let mut one = p.acquire_all(LARGEST, Account::new());
        assert!(poll(&mut one).is_pending());
        drop(held);
        // Round-robin order: the collector's first buffer, the single request, the collector's second buffer.
        assert!(poll(&mut all).is_pending());
        assert!(poll(&mut one).is_ready());
        assert!(poll(&mut all).is_ready());
    }
}
