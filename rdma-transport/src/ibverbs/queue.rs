//! What is posted to the card's send queue, what waits for room in it, and who tells of it. Pure.
//!
//! Only some requests ask for a completion: it proves all before it, except RDMA Reads: siw tells of a Send while a Read before
//! it is still under way. A completion of a Read proves that and the Reads before it, so the last of those that are posted
//! together asks. A place in the queue is free again when a completion says so, so one is asked for often enough that the
//! queue never fills without.

use std::collections::VecDeque;

use iobuf::Slab;

use crate::verbs::Work;

/// Requests after which a completion is asked for at the latest.
const SIGNAL_EVERY: u64 = 16;

/// A window onto a region of this side that opens with the request: everything posted after it finds it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opening {
    /// The key that the peer is given.
    pub(super) key: u32,
}

/// What waits for room.
#[derive(Debug)]
pub(super) enum Waiting {
    Work(Work),
    Opening(Opening),
}

/// The send queue. `W` is what was posted, with its memory.
#[derive(Debug)]
pub(super) struct SendQueue<W> {
    /// Not posted yet, and how many segments of the first were.
    waiting: VecDeque<Waiting>,
    openings: usize,
    pub(super) segments_done: usize,
    /// With the number of the last request of each.
    posted: VecDeque<(u64, W)>,
    depth: u64,
    /// Reads that may be under way at once.
    reads_max: usize,
    /// The number of the next request.
    next: u64,
    /// A completion came of the one before this.
    told: u64,
    /// All before this one are done.
    done: u64,
    /// Reads that are not done.
    reads: VecDeque<u64>,
    unsignalled: u64,
    /// One failed: what is told after that proves nothing.
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

    /// Work that has not come back.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() - self.openings + self.posted.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was posted and has not come back.
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

    /// Opens a window before whatever is pushed after this.
    pub(super) fn open(&mut self, opening: Opening) {
        self.openings += 1;
        self.waiting.push_back(Waiting::Opening(opening));
    }

    /// The window is not to be opened any more, if that still waits.
    pub(super) fn give_up(&mut self, key: u32) {
        let is_it = |w: &Waiting| matches!(w, Waiting::Opening(o) if o.key == key);
        let before = self.waiting.len();
        self.waiting.retain(|w| !is_it(w));
        self.openings -= before - self.waiting.len();
    }

    pub(super) fn first(&self) -> Option<&Waiting> {
        self.waiting.front()
    }

    /// Where the first one, a Read, puts what it fetches: an address, and the slab that it lies in.
    pub(super) fn read_target(&mut self) -> Option<(usize, Option<Slab>)> {
        match self.waiting.front_mut() {
            Some(Waiting::Work(Work::Read { into, .. })) => {
                Some((into.spare_mut().as_mut_ptr().expose_provenance(), into.slab()))
            }
            _ => None,
        }
    }

    /// All of the first one was posted: it is to be kept with its memory by [`SendQueue::posted`].
    pub(super) fn take_first(&mut self) -> Option<Waiting> {
        self.segments_done = 0;
        let first = self.waiting.pop_front();
        self.openings -= usize::from(matches!(first, Some(Waiting::Opening(_))));
        first
    }

    /// What belongs to the requests up to the last number given.
    pub(super) fn posted(&mut self, what: W) {
        self.posted.push_back((self.next, what));
    }

    /// Requests that fit now.
    pub(super) fn room(&self) -> usize {
        usize::try_from(self.depth - (self.next - self.done)).unwrap_or(0)
    }

    /// Reads that fit now. What is beyond the depth that the peers agreed on waits here: devices differ in what they make of it.
    pub(super) fn reads_room(&self) -> usize {
        self.room().min(self.reads_max.saturating_sub(self.reads.len()))
    }

    /// The number of one more request, and whether it has to ask for a completion.
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

    /// The same for a Read; the last of those that are posted together has to ask.
    pub(super) fn number_read(&mut self, ask: bool) -> (u64, bool) {
        let (number, asks) = self.number(ask);
        self.reads.push_back(number);
        (number, asks)
    }

    /// The last number given asks for a completion after all: nothing follows for now.
    pub(super) fn ask_last(&mut self) {
        self.unsignalled = 0;
    }

    /// The completion of this number came: what is done by that is taken by [`SendQueue::pop_done`].
    pub(super) fn done(&mut self, number: u64) {
        if self.broken {
            return;
        }
        if self.reads.contains(&number) {
            self.reads.retain(|read| *read > number);
        }
        self.proven((number + 1).min(self.next));
    }

    /// This one failed. If it is the first, all before it are done but the Reads: siw fails a Send while a Read before it is under
    /// way, and gives up on that later. What fails after it says only that it is over.
    pub(super) fn failed(&mut self, number: u64) {
        if !std::mem::replace(&mut self.broken, true) {
            self.proven(number.min(self.next));
        }
    }

    /// All before this one are done, but Reads that are under way.
    fn proven(&mut self, end: u64) {
        self.told = self.told.max(end);
        let first_read = self.reads.front().copied().unwrap_or(u64::MAX);
        self.done = self.told.min(first_read);
    }

    /// The oldest that is done.
    pub(super) fn pop_done(&mut self) -> Option<W> {
        match self.posted.front() {
            Some((end, _)) if *end <= self.done => self.posted.pop_front().map(|(_, what)| what),
            _ => None,
        }
    }

    /// The oldest that is posted, done or not.
    pub(super) fn pop_posted(&mut self) -> Option<W> {
        self.posted.pop_front().map(|(_, what)| what)
    }

    /// The oldest work that waits.
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
    fn work_without_a_request_is_done_with_what_is_before_it() {
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
    fn the_queue_never_fills_without_asking() {
        for depth in [1, 2, 15, 16, 17, 100] {
            let mut q = SendQueue::<()>::new(depth, 8);
            let asked = (0..depth).filter(|_| q.number(false).1).count();
            assert!(asked > 0, "{depth}");
            assert_eq!(q.room(), 0);
        }
    }

    #[test]
    fn a_read_is_done_by_its_own_completion() {
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
    fn the_last_read_proves_those_before_it_and_nothing_else_does() {
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
    fn a_read_that_is_nobodys_comes_back_to_nobody() {
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
    fn reads_beyond_the_depth_agreed_on_wait() {
        let mut q = SendQueue::<()>::new(8, 2);
        assert_eq!(q.reads_room(), 2);
        let (first, _) = (q.number_read(true).0, q.number_read(true).0);
        assert_eq!((q.room(), q.reads_room()), (6, 0));
        q.done(first);
        assert_eq!(q.reads_room(), 1);
        assert_eq!(SendQueue::<()>::new(8, 0).reads_room(), 1, "one is always tried");
    }

    #[test]
    fn a_window_waits_in_turn_and_is_no_work() {
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
    fn no_read_is_done_by_the_end_of_what_comes_after_it() {
        // The connection is lost: each one comes back as failed, one after the other.
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
        // siw: a Send fails while Reads before it are under way; one of them may still say that it is done.
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
    fn a_number_that_was_never_given_frees_nothing() {
        let mut q = SendQueue::<()>::new(4, 4);
        q.number(true);
        q.done(99);
        assert_eq!(q.room(), 4);
    }
}
