//! What a message being answered shares with the one who polls it, and with what its commands cause.
//!
//! *Operation.* A [`Slot`] gathers the answers of one message, the interim one among them. The [`Work`] of the message is known to
//! its thread while it is polled: so a break notice that a command causes finds the answer that it goes behind
//! ([`behind_answer`]).
//!
//! *Memory.* Answers are gathered in [`Out`]; bulk data is passed through as it came from the pool.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll};

use mutex::locked;
use rdma_transport::channel::Reply;
use tokio::sync::OwnedSemaphorePermit;

use crate::answer::{Joined, Message, Out};
use crate::conn::{ChainQueue, Conn};
use crate::crypto::Failed;
use crate::in_flight::{Guard, InFlight};
use crate::session::Session;
use crate::wire::Header;

/// What a message being answered shares with the one who polls it.
#[derive(Default)]
pub(crate) struct Slot {
    shared: Mutex<Shared>,
    /// [`Shared::first`] holds something: most messages have nothing there, and the poll looks without a lock.
    has_first: AtomicBool,
    /// Of a chain of several commands.
    queue: OnceLock<Arc<ChainQueue>>,
}

#[derive(Default)]
struct Shared {
    out: Out,
    /// The work leaves the serve loop, or has left it, and goes on in a task.
    apart: Option<OwnedSemaphorePermit>,
    /// What leaves before that, the interim answer last.
    first: Vec<Reply>,
    /// The last notice that goes behind the answer.
    notice: Arc<InFlight>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        locked(&self.shared)
    }

    /// One more answer.
    pub(crate) fn push(&self, message: Message) {
        self.lock().out.push(message);
    }

    /// The answers are encrypted with the keys of this session.
    pub(crate) fn seal_for(&self, session: Arc<Session>) {
        self.lock().out.sealed_for = Some(session);
    }

    /// Keeps `guard` until the answers have left.
    pub(crate) fn until_left(&self, guard: Guard) {
        self.lock().out.until_left.push(guard);
    }

    /// All answers since the last call as one message, not encrypted so far.
    pub(crate) fn join(&self, conn: &Conn) -> Result<Option<Joined>, Failed> {
        self.lock().out.join(conn)
    }

    /// What leaves with an interim answer: the answers before it, and then itself.
    pub(crate) fn finish_with(&self, conn: &Conn, interim: Message) -> Result<Vec<Reply>, Failed> {
        let out = &mut self.lock().out;
        let before = out.finish(conn)?;
        out.push(interim);
        let interim = out.finish(conn)?;
        Ok(before.into_iter().chain(interim).collect())
    }

    /// The work has left the serve loop.
    pub(crate) fn is_apart(&self) -> bool {
        self.lock().apart.is_some()
    }

    /// The work leaves the serve loop.
    pub(crate) fn go_apart(&self, permit: OwnedSemaphorePermit) {
        self.lock().apart = Some(permit);
    }

    /// What leaves before the rest of the work is done.
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

    /// Commands with these message ids come behind the first one.
    pub(crate) fn queue(&self, later: Vec<u64>) {
        if !later.is_empty() {
            // A message is one chain.
            let _ = self.queue.set(Arc::new(ChainQueue::new(later)));
        }
    }

    /// Commands that wait behind the one whose turn it is, if there are any.
    pub(crate) fn waiting(&self) -> Option<&Arc<ChainQueue>> {
        self.queue.get().filter(|queue| !queue.is_empty())
    }

    /// The turn of this command has come: whether it was given up before.
    pub(crate) fn begins(&self, header: &Header) -> bool {
        let begins = |queue: &Arc<ChainQueue>| queue.begins(header.message_id, header.session_id);
        self.queue.get().is_some_and(begins)
    }
}

thread_local! {
    /// The message that is being answered here now, and its connection.
    static NOW: RefCell<Option<(Arc<Slot>, u64)>> = const { RefCell::new(None) };
}

/// The work of one message: what it causes finds its [`Slot`], also where the work goes on in a task of its own.
pub(crate) struct Work<F> {
    /// Its own, but for the time of a poll.
    of: Option<(Arc<Slot>, u64)>,
    work: Pin<Box<F>>,
}

impl<F> Work<F> {
    /// Of a message of this connection.
    pub(crate) fn new(slot: Arc<Slot>, conn: &Conn, work: F) -> Self {
        Self { of: Some((slot, conn.id)), work: Box::pin(work) }
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

/// A notice that goes behind the answer to the command that caused it.
pub(crate) struct Behind {
    /// Settled when the answer has left.
    pub(crate) answer: Arc<InFlight>,
    /// Settled when the notice that was caused before it has its place.
    pub(crate) before: Arc<InFlight>,
    /// The notice has none yet.
    pub(crate) placing: Guard,
}

/// For whoever is called by a command of this connection; `None` outside of one.
pub(crate) fn behind_answer(conn: &Conn) -> Option<Behind> {
    NOW.with_borrow(|now| {
        let (slot, _) = now.as_ref().filter(|(_, id)| *id == conn.id)?;
        let (answer, own) = (Arc::new(InFlight::default()), Arc::new(InFlight::default()));
        let placing = own.begin();
        let mut shared = slot.lock();
        shared.out.until_left.push(answer.begin());
        Some(Behind { answer, before: std::mem::replace(&mut shared.notice, own), placing })
    })
}
