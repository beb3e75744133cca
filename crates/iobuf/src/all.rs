//! Several buffers at once, for payload that is larger than the largest of them.
//!
//! *Operation.* Who needs several takes them together if they are there. If not, those who need several stand in a line of
//! their own, and only the first of it gathers, one buffer after the other, in its account's turn. So two of them can
//! never hold what the other needs, and none of them is passed over for ever by those who need one.
//!
//! *Memory.* Whoever gathers holds what it has got so far; everyone else in the line holds nothing.
//!
//! *Errors.* More than the pool has at all is [`TooLarge`] at once.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use mutex::locked;

use crate::account::Account;
use crate::client_quota::Permit;
use crate::pool::{Acquire, Pool, TooLarge};
use crate::{BufMut, CLASS_SIZES};

const LARGEST: usize = CLASS_SIZES[CLASS_SIZES.len() - 1];

/// Waits for buffers that hold so many bytes together; see [`Pool::acquire_all`].
pub struct AcquireAll {
    pool: Pool,
    account: Account,
    bytes: usize,
    got: Vec<BufMut>,
    /// Waits for the next one.
    one: Option<Acquire>,
    ticket: Option<u64>,
    /// In the share of its client, for all buffers of the size that most of them have.
    room: Permit,
    class: usize,
}

impl Pool {
    /// Buffers that hold `bytes` together: as many of the largest size as it takes, and one for what is left over. All of
    /// them at once; see [`AcquireAll`] for how that is waited for.
    pub fn acquire_all(&self, bytes: usize, account: Account) -> AcquireAll {
        AcquireAll::new(self.clone(), bytes, account)
    }
}

impl AcquireAll {
    fn new(pool: Pool, bytes: usize, account: Account) -> Self {
        let class = Pool::class_of(bytes.min(LARGEST)).unwrap_or_default();
        // A last one of a smaller size is not counted.
        let is_counted = |rest: usize| Pool::class_of(rest).is_ok_and(|c| c == class);
        let rest = bytes % LARGEST;
        let count = bytes / LARGEST + usize::from(rest > 0 && is_counted(rest));
        let room = pool.room(class, count);
        let pool = pool.of_nobody();
        Self { pool, account, bytes, got: Vec::new(), one: None, ticket: None, room, class }
    }

    /// What was got, as the client's own from now on.
    fn all(&mut self) -> Vec<BufMut> {
        let share = self.room.pass_on();
        let mut got = std::mem::take(&mut self.got);
        for buffer in got.iter_mut().filter(|b| b.capacity() == CLASS_SIZES[self.class]) {
            buffer.count_for(share.clone());
        }
        got
    }

    /// Bytes that the next buffer has to hold.
    fn next_len(&self) -> usize {
        (self.bytes - (self.got.len() * LARGEST).min(self.bytes)).min(LARGEST)
    }

    fn count(&self) -> usize {
        self.bytes.div_ceil(LARGEST)
    }

    /// All of them, if all are free now.
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
    fn the_last_buffer_is_no_larger_than_it_must_be() {
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
    fn more_than_there_is_at_all_is_refused() {
        let p = pool(3);
        assert!(matches!(
            poll(&mut p.acquire_all(3 * LARGEST + 1, Account::new())),
            Poll::Ready(Err(TooLarge { .. }))
        ));
        assert!(poll(&mut p.acquire_all(3 * LARGEST, Account::new())).is_ready());
    }

    #[test]
    fn two_that_need_all_do_not_hold_each_other_up() {
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
    fn one_that_gives_up_lets_the_next_in() {
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
    fn those_who_need_one_are_served_before_and_behind_it() {
        let p = pool(2);
        let held: Vec<_> = (0..2).map(|_| p.try_get(LARGEST).unwrap()).collect();
        let mut all = p.acquire_all(2 * LARGEST, Account::new());
        assert!(poll(&mut all).is_pending());
        let mut one = p.acquire_all(LARGEST, Account::new());
        assert!(poll(&mut one).is_pending());
        drop(held);
        // In turn: the gatherer's first, then the one, then the gatherer's second.
        assert!(poll(&mut all).is_pending());
        assert!(poll(&mut one).is_ready());
        assert!(poll(&mut all).is_ready());
    }
}
