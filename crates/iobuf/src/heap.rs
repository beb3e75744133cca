//! Heap memory that counts as payload: messages that do not fit into one buffer of the pool.
//!
//! *Operation.* [`Pool::pay`] waits until the bytes may be taken, and returns a [`Paid`]. [`Paid::hold`] attaches it to the bytes,
//! so that the message counts until its last view is dropped. Requests are served in order of arrival; a connection assembles one
//! message at a time, so this is fair between connections. A request over its client's part does not delay others.
//!
//! *Memory.* This limit is separate from the pool's buffers. A request that waits here holds no pool buffer, while one that has
//! paid may wait for a buffer, so the two cannot deadlock. [`Pool::pay_now`] does not wait: it is for bytes whose buffers are freed
//! as soon as they are copied. If it exceeds the limit, subsequent messages have to wait ([`Pool::is_overdrawn`]).
//!
//! *Errors.* A request above the limit is granted once no other bytes are held.
//!
//! [`Pool::pay`]: crate::Pool::pay [`Pool::pay_now`]: crate::Pool::pay_now [`Pool::is_overdrawn`]: crate::Pool::is_overdrawn

mod pay;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use mutex::locked;

use crate::client_quota::ClientQuota;

pub use pay::{Paid, Pay};

/// The limit and use of heap memory.
pub(crate) struct Heap {
    state: Mutex<State>,
    /// Number of waiting requests.
    waiting: AtomicUsize,
    overdrawn: AtomicBool,
    /// Changed under the lock of the state.
    most_of_client: AtomicUsize,
}

struct State {
    most: usize,
    used: usize,
    waits: u64,
    waiting: VecDeque<Arc<Waiter>>,
}

struct Waiter {
    bytes: usize,
    share: Option<Arc<ClientQuota>>,
    /// Set under the lock of the state when the request leaves the queue.
    is_served: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// Figures about the heap of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapStats {
    /// The limit, in bytes.
    pub bytes_max: usize,
    /// Bytes in use.
    pub in_use: usize,
    /// Number of waiting requests.
    pub waiting: usize,
    /// Number of requests that ever had to wait.
    pub waits: u64,
}

impl State {
    fn take(&mut self, share: Option<&Arc<ClientQuota>>, bytes: usize) {
        self.used += bytes;
        if let Some(share) = share {
            share.add_heap(bytes);
        }
    }

    /// Grants waiting requests that fit, and returns their wakers.
    fn serve(&mut self, most_of_client: usize) -> Vec<Waker> {
        let (mut wake, mut at) = (Vec::new(), 0);
        while let Some(next) = self.waiting.get(at).cloned() {
            if !client_fits(next.share.as_ref(), next.bytes, most_of_client) {
                at += 1;
                continue;
            }
            // Stop here: otherwise smaller requests could overtake this one forever.
            if !fits(self.used, next.bytes, self.most) {
                break;
            }
            self.take(next.share.as_ref(), next.bytes);
            next.is_served.store(true, Ordering::Release);
            wake.extend(locked(&next.waker).take());
            self.waiting.remove(at);
        }
        wake
    }
}

fn client_fits(share: Option<&Arc<ClientQuota>>, bytes: usize, most: usize) -> bool {
    share.is_none_or(|share| fits(share.heap(), bytes, most))
}

fn fits(used: usize, bytes: usize, most: usize) -> bool {
    used == 0 || used.saturating_add(bytes) <= most
}

impl Heap {
    pub(crate) fn new(most: usize) -> Self {
        let state = State { most, used: 0, waits: 0, waiting: VecDeque::new() };
        Self {
            state: Mutex::new(state),
            waiting: AtomicUsize::new(0),
            overdrawn: AtomicBool::new(false),
            most_of_client: AtomicUsize::new(usize::MAX),
        }
    }

    /// Changes the state, then serves waiting requests.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = locked(&self.state);
        let done = change(&mut state);
        let wake = state.serve(self.most_of_client());
        self.waiting.store(state.waiting.len(), Ordering::Relaxed);
        self.overdrawn.store(state.used > state.most, Ordering::Relaxed);
        drop(state);
        wake.into_iter().for_each(Waker::wake);
        done
    }

    fn most_of_client(&self) -> usize {
        self.most_of_client.load(Ordering::Relaxed)
    }

    fn give_back(&self, share: Option<&Arc<ClientQuota>>, bytes: usize) {
        self.change(|state| {
            state.used -= bytes;
            if let Some(share) = share {
                share.take_heap(bytes);
            }
        });
    }

    /// Checks whether a request waits for memory that this client holds: any request for the total, or the client's own for its
    /// part.
    pub(crate) fn is_waited_for(&self, client: Option<&Arc<ClientQuota>>) -> bool {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let state = locked(&self.state);
        state.waiting.iter().any(|waiter| {
            let is_own = waiter.share.as_ref().zip(client).is_some_and(|(a, b)| Arc::ptr_eq(a, b));
            is_own || client_fits(waiter.share.as_ref(), waiter.bytes, self.most_of_client())
        })
    }
}
