//! Memory on the heap that counts as payload does: messages that no buffer of the pool holds in one piece.
//!
//! *Operation.* [`Pool::pay`] waits until so many bytes may be taken, and gives a [`Paid`]. [`Paid::hold`] ties it to the bytes, so
//! that what a message weighs counts until its last view is gone, whoever has it. Requests are served in the order in which they
//! came: a connection puts one message together at a time, so that this serves connections in turn. One whose client has its
//! part stands in nobody's way.
//!
//! *Memory.* This bound is beside the pool's buffers. Whoever waits here holds no buffer of the pool, and whoever has paid may wait
//! for one, so that the two cannot wait for each other. [`Pool::pay_now`] does not wait: it is for bytes whose buffers go as
//! soon as they are copied. What it takes too much keeps others from their next messages ([`Pool::is_overdrawn`]).
//!
//! *Errors.* None: who wants more than the bound gets it when nobody else has anything.
//!
//! [`Pool::pay`]: crate::Pool::pay
//! [`Pool::pay_now`]: crate::Pool::pay_now
//! [`Pool::is_overdrawn`]: crate::Pool::is_overdrawn

mod pay;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use mutex::locked;

use crate::client_quota::ClientQuota;

pub use pay::{Paid, Pay};

/// What may be on the heap, and what is.
pub(crate) struct Heap {
    state: Mutex<State>,
    /// Requests that wait.
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
    /// Set under the lock of the state, as it leaves the queue.
    is_served: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// What the heap of a pool is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapStats {
    /// The bound, in bytes.
    pub bytes_max: usize,
    /// Bytes that are held now.
    pub in_use: usize,
    /// Requests that wait now.
    pub waiting: usize,
    /// Requests that ever had to wait.
    pub waits: u64,
}

impl State {
    fn take(&mut self, share: Option<&Arc<ClientQuota>>, bytes: usize) {
        self.used += bytes;
        if let Some(share) = share {
            share.add_heap(bytes);
        }
    }

    /// Serves those for whom there is room, and says whom to wake.
    fn serve(&mut self, most_of_client: usize) -> Vec<Waker> {
        let (mut wake, mut at) = (Vec::new(), 0);
        while let Some(next) = self.waiting.get(at).cloned() {
            if !client_fits(next.share.as_ref(), next.bytes, most_of_client) {
                at += 1;
                continue;
            }
            // Those behind it would pass it over for ever.
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

    /// Changes something, then serves those who wait.
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

    /// Somebody waits for what this client holds: for the whole, or the client itself for its part.
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
