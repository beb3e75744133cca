//! The send queue: posted work, work that waits for room, and the requests that ask for a completion. No I/O.
//!
//! Only some requests ask for a completion, which proves all requests before it except RDMA Reads: siw completes a Send while an
//! earlier Read is in progress. A completion of a Read proves that Read and earlier Reads, so the last of the Reads posted together
//! asks. A slot is free when a completion proves it, so completions are requested often enough that the queue never fills up
//! without one.

use std::collections::VecDeque;

use iobuf::Slab;

use crate::verbs::Work;

/// At least every this many requests, one asks for a completion.
const SIGNAL_EVERY: u64 = 16;

/// A memory window that opens with the request: work posted after it may rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opening {
    /// The key for the peer.
    pub(super) key: u32,
}

/// An entry that waits for room.
#[derive(Debug)]
pub(super) enum Waiting {
    Work(Work),
    Opening(Opening),
}

/// The send queue. `W` is posted work with its memory.
#[derive(Debug)]
pub(super) struct SendQueue<W> {
    /// Entries to post, and the number of posted segments of the first.
    waiting: VecDeque<Waiting>,
    openings: usize,
    pub(super) segments_done: usize,
    /// Posted work with the number of its last request.
    posted: VecDeque<(u64, W)>,
    depth: u64,
    /// Limit on outstanding Reads.
    reads_max: usize,
    /// Number of the next request.
    next: u64,
    /// Upper end of the requests with a reported completion.
    told: u64,
    /// All requests below this number are complete.
    done: u64,
    /// Numbers of outstanding Reads.
    reads: VecDeque<u64>,
    unsignalled: u64,
    /// True after a failed request: later completions do not prove that earlier requests completed.
    broken: bool,
}

impl<W> SendQueue<W> {
    pub(super) fn new(depth: u32, reads_max: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            openings: 0,
            segments_done: 0,
            posted: VecDeque::new(),
            depth: depth.into(),
            reads_max: reads_max.max(1),
            next: 0,
            told: 0,
            done: 0,
            reads: VecDeque::new(),
            unsignalled: 0,
            broken: false,
        }
    }

    /// Amount of work not returned yet.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() - self.openings + self.posted.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Posted work that was not returned yet.
    pub(super) fn under_way(&self) -> impl ExactSizeIterator<Item = &W> {
        self.posted.iter().map(|(_, what)| what)
    }

    pub(super) fn has_reads(&self) -> bool {
        !self.reads.is_empty()
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, work: Work) {
        self.waiting.push_back(Waiting::Work(work));
    }

    /// Queues the opening of a window before later work.
    pub(super) fn open(&mut self, opening: Opening) {
        self.openings += 1;
        self.waiting.push_back(Waiting::Opening(opening));
    }

    /// Cancels the opening of a window if it still waits.
    pub(super) fn give_up(&mut self, key: u32) {
        let is_it = |w: &Waiting| matches!(w, Waiting::Opening(o) if o.key == key);
        let before = self.waiting.len();
        self.waiting.retain(|w| !is_it(w));
        self.openings -= before - self.waiting.len();
    }

    pub(super) fn first(&self) -> Option<&Waiting> {
        self.waiting.front()
    }

    /// If the first entry is a Read: its target address, and the slab of the target.
    pub(super) fn read_target(&mut self) -> Option<(usize, Option<Slab>)> {
        match self.waiting.front_mut() {
            Some(Waiting::Work(Work::Read { into, .. })) => {
                Some((into.spare_mut().as_mut_ptr().expose_provenance(), into.slab()))
            }
            _ => None,
        }
    }

    /// Takes the first entry after all its requests were posted; [`SendQueue::posted`] must keep its memory.
    pub(super) fn take_first(&mut self) -> Option<Waiting> {
        self.segments_done = 0;
        let first = self.waiting.pop_front();
        self.openings -= usize::from(matches!(first, Some(Waiting::Opening(_))));
        first
    }

    /// Records posted work, whose last request has the latest number.
    pub(super) fn posted(&mut self, what: W) {
        self.posted.push_back((self.next, what));
    }

    /// Number of requests that fit now.
    pub(super) fn room(&self) -> usize {
        usize::try_from(self.depth - (self.next - self.done)).unwrap_or(0)
    }

    /// Number of Reads that fit now. Reads beyond the negotiated depth wait here, because devices treat an excess differently.
    pub(super) fn reads_room(&self) -> usize {
        self.room().min(self.reads_max.saturating_sub(self.reads.len()))
    }

    /// Assigns a number to a request; `true` if it must ask for a completion.
    pub(super) fn number(&mut self, ask: bool) -> (u64, bool) {
        let number = self.next;
        self.next += 1;
        self.unsignalled += 1;
        let asks = ask || self.unsignalled >= SIGNAL_EVERY.min(self.depth);
        if asks {
            self.unsignalled = 0;
        }
        (number, asks)
    }

    /// Like [`SendQueue::number`], for a Read; the last of those posted together must ask.
    pub(super) fn number_read(&mut self, ask: bool) -> (u64, bool) {
        let (number, asks) = self.number(ask);
        self.reads.push_back(number);
        (number, asks)
    }

    /// Makes the last request ask for a completion, because no further one follows for now.
    pub(super) fn ask_last(&mut self) {
        self.unsignalled = 0;
    }

    /// Handles a successful completion; [`SendQueue::pop_done`] then returns the completed work.
    pub(super) fn done(&mut self, number: u64) {
        if self.broken {
            return;
        }
        if self.reads.contains(&number) {
            self.reads.retain(|read| *read > number);
        }
        self.proven((number + 1).min(self.next));
    }

    /// Handles a failed completion. The first failure proves all requests before it except Reads: siw fails a Send while an earlier
    /// Read is in progress, and fails that Read later. Later failures do not prove that earlier requests completed.
    pub(super) fn failed(&mut self, number: u64) {
        if !std::mem::replace(&mut self.broken, true) {
            self.proven(number.min(self.next));
        }
    }

    /// Marks all requests below this number as complete, except outstanding Reads.
    fn proven(&mut self, end: u64) {
        self.told = self.told.max(end);
        let first_read = self.reads.front().copied().unwrap_or(u64::MAX);
        self.done = self.told.min(first_read);
    }

    /// Takes the oldest completed work.
    pub(super) fn pop_done(&mut self) -> Option<W> {
        match self.posted.front() {
            Some((end, _)) if *end <= self.done => self.posted.pop_front().map(|(_, what)| what),
            _ => None,
        }
    }

    /// Takes the oldest posted work, completed or not.
    pub(super) fn pop_posted(&mut self) -> Option<W> {
        self.posted.pop_front().map(|(_, what)| what)
    }

    /// Takes the oldest waiting work.
    pub(super) fn pop_waiting(&mut self) -> Option<Work> {
        loop {
            if let Waiting::Work(work) = self.take_first()? {
                return Some(work);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::WorkId;

    fn post(q: &mut SendQueue<u32>, what: u32, requests: usize) -> Vec<(u64, bool)> {
        let numbers = (0..requests).map(|_| q.number(false)).collect();
        q.posted(what);
        numbers
    }

    #[test]
    fn one_completion_proves_all_before_it() {
        let mut q = SendQueue::new(8, 8);
        post(&mut q, 1, 2);
        post(&mut q, 2, 1);
        post(&mut q, 3, 1);
        assert_eq!(q.room(), 4);
        assert_eq!(q.pop_done(), None);
        q.done(2);
        assert_eq!((q.pop_done(), q.pop_done(), q.pop_done()), (Some(1), Some(2), None));
        assert_eq!(q.room(), 7);
        q.failed(3);
        assert_eq!(q.pop_done(), None, "the failed one is not done");
        assert_eq!(q.pop_posted(), Some(3));
    }

    #[test]
    fn empty_work_completes_with_predecessor() {
        let mut q = SendQueue::new(8, 8);
        post(&mut q, 1, 0);
        assert_eq!(q.pop_done(), Some(1));
        post(&mut q, 2, 1);
        post(&mut q, 3, 0);
        assert_eq!(q.pop_done(), None);
        q.done(0);
        assert_eq!((q.pop_done(), q.pop_done()), (Some(2), Some(3)));
    }

    #[test]
    fn full_queue_has_requested_completion() {
        for depth in [1, 2, 15, 16, 17, 100] {
            let mut q = SendQueue::<()>::new(depth, 8);
            let asked = (0..depth).filter(|_| q.number(false).1).count();
            assert!(asked > 0, "{depth}");
            assert_eq!(q.room(), 0);
        }
    }

    #[test]
    fn read_needs_own_completion() {
        let mut q = SendQueue::new(8, 8);
        post(&mut q, 1, 1);
        let (first, second) = (q.number_read(true).0, q.number_read(true).0);
        q.posted(2);
        post(&mut q, 3, 1);
        q.done(3);
        assert_eq!((q.pop_done(), q.pop_done()), (Some(1), None));
        assert_eq!(q.room(), 5);
        q.done(first);
        assert_eq!(q.pop_done(), None, "one segment is still under way");
        q.done(second);
        assert_eq!((q.pop_done(), q.pop_done()), (Some(2), Some(3)));
        assert_eq!(q.room(), 8);
    }

    #[test]
    fn read_completion_proves_earlier_reads() {
        let mut q = SendQueue::new(8, 8);
        let asked = [false, false, true].map(|ask| q.number_read(ask));
        assert_eq!(asked.map(|(_, asks)| asks), [false, false, true]);
        q.posted(1);
        let sent = post(&mut q, 2, 1)[0].0;
        q.done(sent);
        assert!(q.has_reads() && q.pop_done().is_none(), "a Send says nothing of Reads");
        q.done(asked[2].0);
        assert!(!q.has_reads());
        assert_eq!((q.pop_done(), q.pop_done(), q.room()), (Some(1), Some(2), 8));
    }

    #[test]
    fn probing_read_returns_no_work() {
        let mut q = SendQueue::new(8, 1);
        let nothing = q.number_read(true).0;
        assert_eq!((q.is_empty(), q.reads_room()), (true, 0));
        let sent = post(&mut q, 1, 1)[0].0;
        q.done(nothing);
        assert_eq!((q.pop_done(), q.room(), q.reads_room()), (None, 7, 1));
        q.done(sent);
        assert_eq!((q.pop_done(), q.room()), (Some(1), 8));
    }

    #[test]
    fn reads_beyond_depth_wait() {
        let mut q = SendQueue::<()>::new(8, 2);
        assert_eq!(q.reads_room(), 2);
        let (first, _) = (q.number_read(true).0, q.number_read(true).0);
        assert_eq!((q.room(), q.reads_room()), (6, 0));
        q.done(first);
        assert_eq!(q.reads_room(), 1);
        assert_eq!(SendQueue::<()>::new(8, 0).reads_room(), 1, "one is always tried");
    }

    #[test]
    fn window_is_queued_in_order() {
        let mut q = SendQueue::<()>::new(4, 4);
        let read = |id| Work::Send { id: WorkId(id), from: vec![], invalidate: None };
        q.push(read(1));
        q.open(Opening { key: 7 });
        q.open(Opening { key: 8 });
        q.push(read(2));
        assert_eq!(q.len(), 2);
        q.give_up(7);
        assert!(matches!(q.take_first(), Some(Waiting::Work(_))));
        assert!(matches!(q.take_first(), Some(Waiting::Opening(Opening { key: 8 }))));
        assert_eq!(q.len(), 1);
        q.open(Opening { key: 9 });
        assert_eq!(q.pop_waiting().map(|w| w.id()), Some(WorkId(2)));
        assert!(q.pop_waiting().is_none() && q.is_empty());
    }

    #[test]
    fn later_completion_proves_no_read() {
        // After a loss of the connection, each request fails separately, in order.
        let mut q = SendQueue::new(8, 8);
        for what in 1..=3 {
            q.number_read(true);
            q.posted(what);
        }
        for number in 0..3 {
            q.failed(number);
            assert_eq!(q.pop_done(), None, "{number}");
        }
        assert_eq!((q.pop_posted(), q.pop_posted(), q.pop_posted()), (Some(1), Some(2), Some(3)));
        // siw: a Send fails while earlier Reads are in progress; one of them may still succeed.
        let mut q = SendQueue::new(8, 8);
        post(&mut q, 1, 1);
        let read = q.number_read(true).0;
        q.posted(2);
        let sent = post(&mut q, 3, 1)[0].0;
        q.failed(sent);
        assert_eq!((q.pop_done(), q.pop_done()), (Some(1), None));
        q.done(read);
        assert_eq!(q.pop_done(), None, "after a failure nothing is proven");
    }

    #[test]
    fn unknown_number_is_ignored() {
        let mut q = SendQueue::<()>::new(4, 4);
        q.number(true);
        q.done(99);
        assert_eq!(q.room(), 4);
    }
}
