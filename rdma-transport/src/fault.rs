//! Injects faults into any queue pair, derived from a seed: the same seed gives the same faults.
//!
//! *Operation.* Delays completions, those of Receives independently of all others, each kind in order. Refuses posts and
//! registrations although there is room. Loses the connection at some point. Flips a bit in data fetched by RDMA Read, or written
//! by the peer's RDMA Write.
//!
//! *Memory.* A delayed completion keeps its buffer, as on a slow device.
//!
//! *Errors.* After a loss, delayed completions are returned as flushed, with their memory.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use crate::verbs::{
    Completion, Counters, Down, Limits, QueuePair, Refused, Region, Rejected, RemoteSeg, Work,
    WorkError, WorkKind,
};

/// Probabilities of faults, in 1,000 chances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A completion is delayed to another poll.
    pub delay: u32,
    /// A post or a registration is refused as [`Refused::Full`].
    pub refuse: u32,
    /// The connection is lost during a poll.
    pub lose: u32,
    /// One bit is flipped in the data of an RDMA Read, or in the first [`FLIPPED_WITHIN`] bytes of memory that the peer could write
    /// to, before its owner sees it.
    pub flip: u32,
}

/// The provider does not know how much the peer wrote; this many bytes are likely.
pub const FLIPPED_WITHIN: usize = 64;

/// A queue pair with faults.
pub struct Faulty {
    inner: Box<dyn QueuePair>,
    faults: Faults,
    dice: Dice,
    recvs: VecDeque<Completion>,
    others: VecDeque<Completion>,
    polled: bool,
    lost: bool,
    down: Option<Down>,
    /// The queue must wake its owner itself, because the inner queue pair will not do so for refused or delayed work.
    again: bool,
}

/// SplitMix64: small, and random enough for faults.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn hits(&mut self, in_1000: u32) -> bool {
        self.next() % 1000 < u64::from(in_1000)
    }
}

impl Faulty {
    /// Wraps `inner` with faults.
    pub fn new(inner: Box<dyn QueuePair>, seed: u64, faults: Faults) -> Self {
        Self {
            inner,
            faults,
            dice: Dice(seed),
            recvs: VecDeque::new(),
            others: VecDeque::new(),
            polled: false,
            lost: false,
            down: None,
            again: false,
        }
    }

    /// Releases delayed completions of one kind in order, until a new delay is drawn.
    fn let_go(&mut self, kind: WorkKind, out: &mut Vec<Completion>) {
        loop {
            let held = if kind == WorkKind::Recv { &self.recvs } else { &self.others };
            if held.is_empty() {
                return;
            }
            if self.down.is_none() && self.dice.hits(self.faults.delay) {
                self.again = true;
                return;
            }
            let held = if kind == WorkKind::Recv { &mut self.recvs } else { &mut self.others };
            out.extend(held.pop_front());
        }
    }

    fn take_in(&mut self, done: Completion) {
        let mut done = match self.lost {
            true => Completion { result: Err(WorkError::Flushed), invalidated: None, ..done },
            false => done,
        };
        if done.kind == WorkKind::Read
            && let Some(fetched) = &mut done.buf
        {
            self.flip_in(fetched.filled_mut());
        }
        match done.kind {
            WorkKind::Recv => self.recvs.push_back(done),
            _ => self.others.push_back(done),
        }
    }

    /// Flips a bit with the configured probability.
    fn flip_in(&mut self, data: &mut [u8]) {
        if self.faults.flip == 0 || data.is_empty() || !self.dice.hits(self.faults.flip) {
            return;
        }
        let roll = self.dice.next();
        let at = usize::try_from(roll >> 3).unwrap_or(0) % data.len();
        data[at] ^= 1 << (roll & 7);
    }

    fn lose(&mut self) {
        self.lost = true;
        self.inner.disconnect();
        for done in self.recvs.iter_mut().chain(&mut self.others) {
            done.result = Err(WorkError::Flushed);
            done.invalidated = None;
        }
    }
}

impl QueuePair for Faulty {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn post(&mut self, chain: Vec<Work>) -> Result<(), Rejected> {
        if self.lost {
            return Err(Rejected { why: Refused::Down, chain });
        }
        // Before the first poll the queue cannot be full, and the Receives for the peer's first message are posted.
        if self.polled && self.dice.hits(self.faults.refuse) {
            self.again = true;
            return Err(Rejected { why: Refused::Full, chain });
        }
        self.inner.post(chain)
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Vec<Completion>) -> Poll<Result<(), Down>> {
        self.polled = true;
        if !self.lost && self.dice.hits(self.faults.lose) {
            self.lose();
        }
        let mut fresh = Vec::new();
        if self.down.is_none()
            && let Poll::Ready(Err(down)) = self.inner.poll(cx, &mut fresh)
        {
            let reason = if self.lost { "lost".into() } else { down.reason };
            self.down = Some(Down { reason, violation: down.violation });
        }
        fresh.into_iter().for_each(|done| self.take_in(done));
        let before = out.len();
        let first = if self.dice.hits(500) { WorkKind::Recv } else { WorkKind::Send };
        let second = if first == WorkKind::Recv { WorkKind::Send } else { WorkKind::Recv };
        self.let_go(first, out);
        self.let_go(second, out);
        if out.len() > before {
            return Poll::Ready(Ok(()));
        }
        if let Some(down) = &self.down {
            return Poll::Ready(Err(down.clone()));
        }
        if std::mem::take(&mut self.again) {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    fn register(&mut self, region: Region) -> Result<RemoteSeg, (Refused, Region)> {
        if self.dice.hits(self.faults.refuse) {
            return Err((Refused::Full, region));
        }
        self.inner.register(region)
    }

    fn release(&mut self, handle: u32) -> Option<Region> {
        let mut region = self.inner.release(handle);
        if let Some(Region::Writable(into)) = &mut region {
            let whole = into.whole_mut();
            let within = whole.len().min(FLIPPED_WITHIN);
            self.flip_in(&mut whole[..within]);
        }
        region
    }

    fn disconnect(&mut self) {
        self.inner.disconnect();
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
