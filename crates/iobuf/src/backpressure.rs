//! Limits how far the reads of a connection run ahead of its peer.
//!
//! *Operation.* A read must be admitted before it takes a payload buffer ([`Backpressure::admit`]). It stays admitted until its
//! data is available ([`Admitted`]), or until the caller gives up the admission because storage is slow, so that reads waiting for
//! one device do not block reads of another. While the peer does not take its replies ([`Backpressure::moved`]) no read is
//! admitted. Admitted reads hold buffers: together they are limited to the window, which starts at one large read, grows by an
//! eighth of the bytes that the peer takes up to [`WINDOW_MAX`], and is reset when the peer took no bytes for [`DEAF`]. A
//! connection that takes no replies thus holds about one reply, or the window that it has earned. Reads are admitted in order.
//!
//! *Memory.* One entry per waiting read; the channel bounds them by the requests that it delivers.
//!
//! *Errors.* The end of the connection ([`Backpressure::end`]) admits every read, because requests in progress must finish.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use mutex::locked;

use crate::CLASS_SIZES;

/// Window of a new connection in bytes: one large NFS READ.
const WINDOW_MIN: usize = CLASS_SIZES[CLASS_SIZES.len() - 1];
/// Maximum window in bytes: more than is copied from memory at a time. A peer that stops taking replies holds at most this much in
/// addition to its replies. Reads that wait for slow storage do not count.
const WINDOW_MAX: usize = 8 << 20;
/// The window grows by this fraction of the bytes sent. A socket accepts a few MiB even if the peer reads no data, which must not
/// double the window.
const GROWTH: usize = 8;
/// Time without progress after which the window is reset.
const DEAF: Duration = Duration::from_secs(1);

/// Admission of one connection's reads.
#[derive(Debug)]
pub struct Backpressure(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Start of the time in which the peer has not taken its replies.
    blocked: Option<Instant>,
    /// Reads were held back since then.
    held_back: bool,
    /// The connection has ended.
    ended: bool,
    /// Total size of the admitted reads, in bytes.
    reading: usize,
    window: usize,
    next: u64,
    /// Waiting reads in order; each is woken when it is first and may be admitted.
    waiting: VecDeque<(u64, Waker)>,
}

impl Default for Backpressure {
    fn default() -> Self {
        Self(Mutex::new(State {
            blocked: None,
            held_back: false,
            ended: false,
            reading: 0,
            window: WINDOW_MIN,
            next: 0,
            waiting: VecDeque::new(),
        }))
    }
}

impl State {
    /// Checks whether the first waiting read of this size may be admitted. One read is always admitted, whatever its size.
    fn has_room(&self, bytes: usize) -> bool {
        let fits = self.reading == 0 || self.reading.saturating_add(bytes) <= self.window;
        self.ended || self.blocked.is_none() && fits
    }

    /// Returns the waker of the first waiting read if it may now be admitted.
    fn first(&self) -> Option<Waker> {
        let may_go = self.has_room(0);
        self.waiting.front().filter(|_| may_go).map(|(_, waker)| waker.clone())
    }

    /// Ends the blocked state. Returns whether the peer held back reads for [`DEAF`] or longer.
    fn unblock(&mut self, now: Instant) -> bool {
        let held_back = std::mem::take(&mut self.held_back);
        let Some(since) = self.blocked.take() else { return false };
        let was_deaf = now.saturating_duration_since(since) >= DEAF;
        if was_deaf {
            self.window = WINDOW_MIN;
        }
        was_deaf && held_back
    }
}

impl Backpressure {
    /// Records that the peer took `left` bytes, and whether it is blocked because too many reply bytes remain. Returns whether this
    /// ends a pause of [`DEAF`] or longer in which reads were held back.
    pub fn moved(&self, left: usize, is_blocked: bool, now: Instant) -> bool {
        let mut state = locked(&self.0);
        // A further pause counts from here; bytes sent while the rest is stuck count as progress.
        let was_deaf = (!is_blocked || left > 0) && state.unblock(now);
        state.window = state.window.saturating_add(left / GROWTH).min(WINDOW_MAX);
        if is_blocked {
            state.blocked.get_or_insert(now);
            state.held_back |= !state.waiting.is_empty();
        }
        let wake = state.first();
        drop(state);
        if let Some(waker) = wake {
            waker.wake();
        }
        was_deaf
    }

    /// Checks whether the peer leaves its replies untaken.
    pub fn is_blocked(&self) -> bool {
        let state = locked(&self.0);
        state.blocked.is_some() && !state.ended
    }

    /// Records the end of the connection, after which no read waits for the peer. Returns the same as [`Backpressure::moved`].
    pub fn end(&self, now: Instant) -> bool {
        let mut state = locked(&self.0);
        let was_deaf = state.unblock(now);
        state.ended = true;
        let wake = state.first();
        drop(state);
        if let Some(waker) = wake {
            waker.wake();
        }
        was_deaf
    }

    /// Admits a read of this size if it need not wait.
    pub fn try_admit(&self, bytes: usize) -> Option<Admitted<'_>> {
        let mut state = locked(&self.0);
        if !state.waiting.is_empty() || !state.has_room(bytes) {
            return None;
        }
        state.reading += bytes;
        Some(Admitted { to: self, bytes })
    }

    /// Waits until a read of this size may take buffers. Dropping the future leaves the queue.
    pub fn admit(&self, bytes: usize) -> Admit<'_> {
        Admit { to: self, bytes, ticket: None }
    }
}

/// Waits for the admission of a read; see [`Backpressure::admit`].
#[derive(Debug)]
pub struct Admit<'a> {
    to: &'a Backpressure,
    bytes: usize,
    ticket: Option<u64>,
}

impl<'a> Future for Admit<'a> {
    type Output = Admitted<'a>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Admitted<'a>> {
        let (to, ticket, bytes) = (self.to, self.ticket, self.bytes);
        let mut state = locked(&to.0);
        let is_first = state.waiting.front().is_none_or(|(first, _)| Some(*first) == ticket);
        if is_first && state.has_room(bytes) {
            if ticket.is_some() {
                state.waiting.pop_front();
            }
            state.reading += bytes;
            let next = state.first();
            drop(state);
            if let Some(waker) = next {
                waker.wake();
            }
            self.ticket = None;
            return Poll::Ready(Admitted { to, bytes });
        }
        state.held_back |= state.blocked.is_some();
        let ticket = ticket.unwrap_or(state.next);
        if let Some((_, waker)) = state.waiting.iter_mut().find(|(t, _)| *t == ticket) {
            waker.clone_from(cx.waker());
        } else {
            state.next += 1;
            state.waiting.push_back((ticket, cx.waker().clone()));
        }
        drop(state);
        self.ticket = Some(ticket);
        Poll::Pending
    }
}

impl Drop for Admit<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut state = locked(&self.to.0);
        state.waiting.retain(|(t, _)| *t != ticket);
        let next = state.first();
        drop(state);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

/// An admitted read. Drop it when the data is available or waits for slow storage.
#[derive(Debug)]
pub struct Admitted<'a> {
    to: &'a Backpressure,
    bytes: usize,
}

impl Admitted<'_> {
    /// Checks whether the peer has stopped taking replies since; the read should then return its buffers and wait for admission
    /// again.
    pub fn is_outdated(&self) -> bool {
        self.to.is_blocked()
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let mut state = locked(&self.to.0);
        state.reading -= self.bytes;
        let next = state.first();
        drop(state);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    const MIB: usize = 1 << 20;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A read and the number of times that it was woken.
    struct Read<'a>(Admit<'a>, Arc<Woken>);

    impl<'a> Read<'a> {
        fn of(to: &'a Backpressure, bytes: usize) -> Self {
            Self(to.admit(bytes), Arc::default())
        }

        fn poll(&mut self) -> Option<Admitted<'a>> {
            let waker = Waker::from(self.1.clone());
            match Pin::new(&mut self.0).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(admitted) => Some(admitted),
                Poll::Pending => None,
            }
        }

        fn woken(&self) -> usize {
            self.1.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn blocked_peer_admits_no_reads() {
        let to = Backpressure::default();
        let now = Instant::now();
        let early = Read::of(&to, MIB).poll();
        assert!(early.is_some());
        assert!(!to.moved(0, true, now));
        assert!(early.is_some_and(|e| e.is_outdated()));
        assert!(to.try_admit(1).is_none());
        let (mut one, mut two) = (Read::of(&to, MIB), Read::of(&to, MIB));
        assert!(one.poll().is_none() && two.poll().is_none());
        // Some bytes are sent, but too many remain.
        assert!(!to.moved(100, true, now));
        assert_eq!((one.woken(), two.woken()), (0, 0));
        assert!(!to.moved(MIB, false, now));
        assert_eq!((one.woken(), two.woken()), (1, 0), "one at a time, in order");
        assert!(two.poll().is_none(), "not before who came first");
        let reading = one.poll();
        assert!(reading.is_some() && two.poll().is_none());
        assert!(to.try_admit(0).is_none(), "not before who waits");
        drop(reading);
        assert_eq!(two.woken(), 2, "when the first was admitted, and when it was done");
        assert!(two.poll().is_some());
        let alone = to.try_admit(2 * MIB);
        assert!(alone.is_some() && to.try_admit(1).is_none(), "one is admitted, however large");
        drop(alone);
        assert!(to.try_admit(1).is_some());
    }

    #[test]
    fn window_grows_with_progress_and_resets() {
        let to = Backpressure::default();
        let now = Instant::now();
        let at_once = || {
            let mut reads = Vec::new();
            while let Some(read) = Read::of(&to, MIB).poll() {
                reads.push(read);
            }
            reads.len()
        };
        assert_eq!(at_once(), 1);
        to.moved(4 * MIB, false, now);
        assert_eq!(at_once(), 1, "a socket takes as much from everybody");
        to.moved(28 * MIB, false, now);
        assert_eq!(at_once(), 5);
        to.moved(1 << 40, false, now);
        assert_eq!(at_once(), 8, "who has worked and takes nothing holds so much");
        to.moved(0, true, now);
        to.moved(1, false, now + DEAF / 2);
        assert_eq!(at_once(), 8);
        to.moved(0, true, now);
        to.moved(1, false, now + DEAF);
        assert_eq!(at_once(), 1);
        // A single read is admitted whatever its size.
        let large = Read::of(&to, 9 * MIB).poll();
        assert!(large.is_some() && Read::of(&to, 1).poll().is_none());
    }

    #[test]
    fn deaf_time_counts_only_held_reads() {
        let to = Backpressure::default();
        let now = Instant::now();
        to.moved(0, true, now);
        assert!(!to.moved(0, false, now + DEAF), "nothing was asked for");
        let mut read = Read::of(&to, MIB);
        to.moved(0, true, now);
        assert!(read.poll().is_none());
        assert!(!to.moved(0, true, now + DEAF), "it goes on");
        assert!(to.moved(1, true, now + DEAF * 2));
        assert!(!to.moved(1, false, now + DEAF * 2), "it was counted");
        to.moved(0, true, now);
        assert!(to.end(now + DEAF), "the one that waits was held back again");
        assert!(!to.is_blocked() && read.poll().is_some());
    }

    #[test]
    fn dropped_read_admits_the_next() {
        let to = Backpressure::default();
        let reading = Read::of(&to, MIB).poll();
        let mut reads: Vec<Read> = (0..3).map(|_| Read::of(&to, MIB / 2)).collect();
        assert!(reads.iter_mut().all(|r| r.poll().is_none()));
        let first = reads.remove(0);
        drop(reading);
        assert_eq!(first.woken(), 1);
        drop(first);
        assert_eq!(reads[0].woken(), 1);
        let one = reads[0].poll();
        assert!(one.is_some());
        assert_eq!(reads[1].woken(), 1, "there is room for both");
        assert!(reads[1].poll().is_some());
        // The end of the connection admits all reads.
        let mut large: Vec<Read> = (0..3).map(|_| Read::of(&to, MIB)).collect();
        assert!(large.iter_mut().all(|r| r.poll().is_none()));
        to.end(Instant::now());
        let mut admitted = Vec::new();
        for read in &mut large {
            assert_eq!(read.woken(), 1);
            admitted.extend(read.poll());
        }
        assert_eq!(admitted.len(), 3);
    }
}
