//! State that a message being answered shares with the task that polls it and with side effects of its commands.
//!
//! *Operation.* A [`Slot`] gathers the answers of one message, including the interim one. While the [`Work`] of the message is
//! polled, its thread knows the slot: so a break notification caused by a command finds the answer that it must follow
//! ([`behind_answer`]).
//!
//! *Memory.* Answers are gathered in [`Out`]; bulk data remains in its pool buffers.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll};

use mutex::locked;
use rdma_transport::channel::{Reply, boxed};
use tokio::sync::OwnedSemaphorePermit;

use crate::answer::{Joined, Message, Out};
use crate::conn::{ChainQueue, Conn};
use crate::crypto::Failed;
use crate::in_flight::{Guard, InFlight};
use crate::session::Session;
use crate::wire::Header;

/// State that a message being answered shares with the task that polls it.
#[derive(Default)]
pub(crate) struct Slot {
    shared: Mutex<Shared>,
    /// True if [`Shared::first`] is not empty. It is empty for most messages, and this check avoids the lock.
    has_first: AtomicBool,
    /// Set for a chain of several commands.
    queue: OnceLock<Arc<ChainQueue>>,
}

#[derive(Default)]
struct Shared {
    out: Out,
    /// Set once the work leaves the serve loop and continues in its own task.
    apart: Option<OwnedSemaphorePermit>,
    /// Replies to send before the rest of the work is done, the interim answer last.
    first: Vec<Reply>,
    /// The last notification that must follow the answer. Most answers cause none.
    notice: Option<Arc<InFlight>>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        locked(&self.shared)
    }

    /// Adds an answer.
    pub(crate) fn push(&self, message: Message) {
        self.lock().out.push(message);
    }

    /// Encrypts the answers with the keys of this session.
    pub(crate) fn seal_for(&self, session: Arc<Session>) {
        self.lock().out.sealed_for = Some(session);
    }

    /// Keeps `guard` until the answers have left.
    pub(crate) fn until_left(&self, guard: Guard) {
        self.lock().out.until_left.push(guard);
    }

    /// Joins all answers since the last call to one message, not yet encrypted.
    pub(crate) fn join(&self, conn: &Conn) -> Result<Option<Joined>, Failed> {
        self.lock().out.join(conn)
    }

    /// Returns the replies that leave with an interim answer: the answers before it, then the interim answer.
    pub(crate) fn finish_with(&self, conn: &Conn, interim: Message) -> Result<Vec<Reply>, Failed> {
        let out = &mut self.lock().out;
        let before = out.finish(conn)?;
        out.push(interim);
        let interim = out.finish(conn)?;
        Ok(before.into_iter().chain(interim).collect())
    }

    /// Returns whether the work has left the serve loop.
    pub(crate) fn is_apart(&self) -> bool {
        self.lock().apart.is_some()
    }

    /// Moves the work out of the serve loop.
    pub(crate) fn go_apart(&self, permit: OwnedSemaphorePermit) {
        self.lock().apart = Some(permit);
    }

    /// Sets the replies to send before the rest of the work is done.
    pub(crate) fn leave_first(&self, replies: Vec<Reply>) {
        self.lock().first = replies;
        self.has_first.store(true, Ordering::Release);
    }

    /// See [`Slot::leave_first`].
    pub(crate) fn take_first(&self) -> Vec<Reply> {
        match self.has_first.swap(false, Ordering::AcqRel) {
            true => std::mem::take(&mut self.lock().first),
            false => Vec::new(),
        }
    }

    /// Registers the message ids of the commands after the first one.
    pub(crate) fn queue(&self, later: Vec<u64>) {
        if !later.is_empty() {
            // Called once, because a message is one chain.
            let _ = self.queue.set(Arc::new(ChainQueue::new(later)));
        }
    }

    /// Returns the queue if commands wait behind the current one.
    pub(crate) fn waiting(&self) -> Option<&Arc<ChainQueue>> {
        self.queue.get().filter(|queue| !queue.is_empty())
    }

    /// Notes that this command begins, and returns whether it was cancelled before.
    pub(crate) fn begins(&self, header: &Header) -> bool {
        let begins = |queue: &Arc<ChainQueue>| queue.begins(header.message_id, header.session_id);
        self.queue.get().is_some_and(begins)
    }
}

thread_local! {
    /// The message that this thread is answering now, and its connection.
    static NOW: RefCell<Option<(Arc<Slot>, u64)>> = const { RefCell::new(None) };
}

/// The work of one message; makes its [`Slot`] known to the code it calls, even after it has moved to its own task.
pub(crate) struct Work<F> {
    /// Swapped into [`NOW`] during a poll.
    of: Option<(Arc<Slot>, u64)>,
    work: Pin<Box<F>>,
}

impl<F> Work<F> {
    /// Builds the work of a message of this connection.
    pub(crate) fn new(slot: Arc<Slot>, conn: &Conn, work: impl FnOnce() -> F) -> Self {
        Self { of: Some((slot, conn.id)), work: boxed(work) }
    }
}

impl<F: Future> Future for Work<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let of = self.of.take();
        let outside = NOW.with_borrow_mut(|now| std::mem::replace(now, of));
        let polled = self.work.as_mut().poll(cx);
        self.of = NOW.with_borrow_mut(|now| std::mem::replace(now, outside));
        polled
    }
}

/// The order of a notification that must follow the answer to the command that caused it.
pub(crate) struct Behind {
    /// Settled when the answer has left.
    pub(crate) answer: Arc<InFlight>,
    /// Settled when the previous notification is queued, if there is one.
    pub(crate) before: Option<Arc<InFlight>>,
    /// Held until this notification is queued.
    pub(crate) placing: Guard,
}

/// Returns the order for a notification caused by a command of this connection; `None` outside of such a command.
pub(crate) fn behind_answer(conn: &Conn) -> Option<Behind> {
    NOW.with_borrow(|now| {
        let (slot, _) = now.as_ref().filter(|(_, id)| *id == conn.id)?;
        let (answer, own) = (Arc::new(InFlight::default()), Arc::new(InFlight::default()));
        let placing = own.begin();
        let mut shared = slot.lock();
        shared.out.until_left.push(answer.begin());
        Some(Behind { answer, before: shared.notice.replace(own), placing })
    })
}
