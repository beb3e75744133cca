//! RDMA Reads requested by the protocol: their memory and results.
//!
//! *Operation.* In order of request, each fetch takes all its buffers at once, and then becomes one RDMA Read for each buffer.
//!
//! *Memory.* Buffers of the connection's payload pool; a waiting fetch holds none. At most [`limits::SMBD_FETCHING_MAX`] bytes are
//! fetched concurrently.
//!
//! *Errors.* A fetch beyond a limit is refused, and so is one that waits for memory for [`limits::MEMORY_WAIT_MAX`]. A failed Read
//! ends the connection, and all waiting fetches.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::task::{Context, Poll};

use iobuf::{AcquireAll, Buf, BufMut};
use tokio::sync::oneshot;

use crate::channel::{ChannelError, Info, PullError, RemoteSeg, Traffic};
use crate::limits;
use crate::memory_wait::MemoryWait;
use crate::verbs::{Completion, Work, WorkId};

type Fetched = oneshot::Sender<Result<Vec<Buf>, PullError>>;

struct Waiting {
    from: Vec<RemoteSeg>,
    len: usize,
    fetched: Fetched,
}

struct InFlight {
    parts: Vec<Buf>,
    missing: usize,
    fetched: Fetched,
}

#[derive(Default)]
pub(super) struct Pulls {
    waiting: VecDeque<Waiting>,
    wait: Option<AcquireAll>,
    memory_wait: MemoryWait,
    under_way: HashMap<u64, InFlight>,
    next: u64,
    /// Bytes that RDMA Reads are fetching now.
    fetching: usize,
}

impl Pulls {
    /// True if another fetch may be queued.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < limits::SMBD_PULLS_WAITING_MAX
    }

    /// Queues a fetch of all of `from`. The caller may give up at any time.
    pub(super) fn ask(&mut self, mut from: Vec<RemoteSeg>, fetched: Fetched) {
        from.retain(|seg| seg.len > 0);
        let len: u64 = from.iter().map(|seg| u64::from(seg.len)).sum();
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > limits::SMB_PAYLOAD_MAX || from.len() > limits::SMBD_DESCRIPTORS_MAX {
            let why = format!("{len} bytes in {} regions are too much to fetch", from.len());
            let _ = fetched.send(Err(ChannelError::Closed(why).into()));
        } else if len == 0 {
            let _ = fetched.send(Ok(Vec::new()));
        } else {
            self.waiting.push_back(Waiting { from, len, fetched });
        }
    }

    /// Assigns buffers to waiting fetches, in order, as far as available.
    pub(super) fn start(&mut self, info: &Info, reads: &mut VecDeque<Work>, cx: &mut Context<'_>) {
        while let Some(first) = self.waiting.front() {
            let len = first.len;
            if first.fetched.is_closed() {
                self.waiting.pop_front();
                self.pause();
                continue;
            }
            if self.fetching > 0 && self.fetching + len > limits::SMBD_FETCHING_MAX {
                return;
            }
            let wait = self.wait.get_or_insert_with(|| info.pool.acquire_all(len, info.account));
            let Poll::Ready(buffers) = Pin::new(wait).poll(cx) else {
                if self.memory_wait.poll_over(cx).is_pending() {
                    return;
                }
                self.wait = None;
                if let Some(refused) = self.waiting.pop_front() {
                    let _ = refused.fetched.send(Err(PullError::NoMemory));
                }
                continue;
            };
            self.wait = None;
            self.memory_wait.end();
            let Some(Waiting { from, fetched, .. }) = self.waiting.pop_front() else { return };
            match buffers {
                Ok(buffers) => {
                    self.fetching += len;
                    self.next += 1;
                    let missing = buffers.len();
                    let parts = vec![Buf::empty(); missing];
                    self.under_way.insert(self.next, InFlight { parts, missing, fetched });
                    reads.extend(plan(self.next, from, buffers));
                }
                Err(e) => {
                    let _ = fetched.send(Err(ChannelError::Closed(e.to_string()).into()));
                }
            }
        }
    }

    /// Leaves the pool's queue while no fetch may start.
    pub(super) fn pause(&mut self) {
        self.wait = None;
        self.memory_wait.end();
    }

    /// Handles a completed RDMA Read.
    pub(super) fn done(&mut self, info: &Info, done: Completion) {
        let (Ok(n), Some(buf)) = (done.result, done.buf) else { return };
        Traffic::add(&info.traffic.rdma_read, n as u64);
        self.fetching = self.fetching.saturating_sub(n);
        let (id, part) = (done.id.0 >> 8, usize::from(done.id.0.to_be_bytes()[7]));
        let Some(pull) = self.under_way.get_mut(&id) else { return };
        let Some(place) = pull.parts.get_mut(part) else { return };
        *place = buf.freeze();
        pull.missing = pull.missing.saturating_sub(1);
        if pull.missing == 0
            && let Some(pull) = self.under_way.remove(&id)
        {
            let _ = pull.fetched.send(Ok(pull.parts));
        }
    }
}

/// Plans one Read for each buffer. The buffers are fewer than 256 and together hold all of `from`.
fn plan(id: u64, from: Vec<RemoteSeg>, buffers: Vec<BufMut>) -> Vec<Work> {
    let mut from = from.into_iter();
    let mut segment = from.next();
    let mut reads = Vec::with_capacity(buffers.len());
    for (part, into) in buffers.into_iter().enumerate() {
        let mut room = into.capacity();
        let mut segments = Vec::new();
        while let Some(seg) = &mut segment
            && room > 0
        {
            let len = seg.len.min(u32::try_from(room).unwrap_or(u32::MAX));
            segments.push(RemoteSeg { len, ..*seg });
            room -= usize::try_from(len).unwrap_or(room);
            seg.len -= len;
            seg.offset = seg.offset.wrapping_add(u64::from(len));
            if seg.len == 0 {
                segment = from.next();
            }
        }
        reads.push(Work::Read { id: WorkId(id << 8 | part as u64), from: segments, into });
    }
    reads
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// For all sizes of regions and buffers: each byte is read once, in order, and no buffer overflows.
        #[test]
        fn reads_cover_all_of_the_regions(
            lens in proptest::collection::vec(1u32..5000, 1..40),
            capacity in 1usize..4000,
        ) {
            let total: usize = lens.iter().map(|n| *n as usize).sum();
            let buffers: Vec<BufMut> =
                (0..total.div_ceil(capacity)).map(|_| BufMut::heap(capacity)).collect();
            prop_assume!(buffers.len() < 256);
            let seg = |(i, len): (usize, &u32)| RemoteSeg {
                handle: u32::try_from(i).unwrap(),
                len: *len,
                offset: u64::MAX - 2000 + i as u64,
            };
            let from: Vec<RemoteSeg> = lens.iter().enumerate().map(seg).collect();
            let mut expected = from.iter().flat_map(|s| {
                (0..u64::from(s.len)).map(|i| (s.handle, s.offset.wrapping_add(i)))
            });
            for (part, work) in plan(3, from.clone(), buffers).into_iter().enumerate() {
                let Work::Read { id, from, .. } = work else { panic!("only Reads") };
                prop_assert_eq!(id.0, 3 << 8 | part as u64);
                prop_assert!(from.iter().map(|s| s.len as usize).sum::<usize>() <= capacity);
                for s in from {
                    for i in 0..u64::from(s.len) {
                        let there = Some((s.handle, s.offset.wrapping_add(i)));
                        prop_assert_eq!(expected.next(), there);
                    }
                }
            }
            prop_assert_eq!(expected.next(), None);
        }
    }
}
