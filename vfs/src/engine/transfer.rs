//! Buffers of reads and writes, and their parts as vectors for system calls.
//!
//! *Memory.* All buffers of a read are taken before it starts, and it never waits while it holds one: if the pool has only the
//! first, the read is shortened. A read has a turn among those of its connection ([`iobuf::Backpressure`]) for the duration of a
//! copy; one that waits longer for storage continues without it.
//!
//! *Errors.* [`VfsError::Resources`] if the pool was closed, or had no memory for [`MEMORY_WAIT_MAX`].

use std::future::poll_fn;
use std::io::{IoSlice, IoSliceMut};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use iobuf::{Admitted, Buf, BufMut, CLASS_SIZES};

use crate::backend::ReadInto;
use crate::engine::limits::{MEMORY_WAIT_MAX, TURN_MAX};
use crate::error::{VfsError, VfsResult};

/// Vectors in one system call (`IOV_MAX`).
pub(crate) const VECTORS_MAX: usize = 1024;

static WAITED_IN_VAIN: AtomicU64 = AtomicU64::new(0);

/// Number of reads that got no payload memory within [`MEMORY_WAIT_MAX`], since the start.
pub fn waited_in_vain() -> u64 {
    WAITED_IN_VAIN.load(Ordering::Relaxed)
}

/// Waits for the data of a read, which gives up its turn after [`TURN_MAX`]: slow or hanging storage then does not delay reads from
/// other devices.
pub(crate) async fn in_turn<T>(
    turn: &mut Option<Admitted<'_>>,
    read: impl Future<Output = T>,
) -> T {
    let mut read = pin!(read);
    // Most data is cached, and needs no timer.
    let at_once = poll_fn(|task| Poll::Ready(read.as_mut().poll(task))).await;
    if let Poll::Ready(data) = at_once {
        return data;
    }
    if turn.is_some() {
        if let Ok(data) = tokio::time::timeout(TURN_MAX, read.as_mut()).await {
            return data;
        }
        *turn = None;
    }
    read.await
}

/// Takes the first buffer of a read in its turn.
async fn first_buffer(
    count: usize,
    size: usize,
    into: &ReadInto,
) -> VfsResult<(Option<Admitted<'_>>, BufMut)> {
    loop {
        let admitted = match &into.backpressure {
            Some(to) => Some(to.admit(count).await),
            None => None,
        };
        if let Some(buffer) = into.pool.try_get(size) {
            return Ok((admitted, buffer));
        }
        let wait = tokio::time::timeout(MEMORY_WAIT_MAX, into.pool.acquire(size, into.account));
        let Ok(waited) = Box::pin(wait).await else {
            WAITED_IN_VAIN.fetch_add(1, Ordering::Relaxed);
            return Err(VfsError::Resources);
        };
        let buffer = waited.map_err(|_| VfsError::Resources)?;
        if !admitted.as_ref().is_some_and(Admitted::is_outdated) {
            return Ok((admitted, buffer));
        }
        // The buffer is returned: it would be unused while its peer takes no replies and other reads wait for memory.
    }
}

/// Takes buffers for `count` bytes, or for as many as are available without waiting for more than one.
pub(crate) async fn buffers(
    count: usize,
    into: &ReadInto,
) -> VfsResult<(Option<Admitted<'_>>, Vec<BufMut>)> {
    let largest = CLASS_SIZES[CLASS_SIZES.len() - 1];
    let size = |left: usize| left.min(largest);
    let (admitted, first) = first_buffer(count, size(count), into).await?;
    let mut left = count.saturating_sub(first.capacity());
    let mut bufs = Vec::with_capacity(count.div_ceil(largest).max(1));
    bufs.push(first);
    while left > 0 && bufs.len() < VECTORS_MAX {
        let Some(b) = into.pool.try_get(size(left)) else { break };
        left = left.saturating_sub(b.capacity());
        bufs.push(b);
    }
    Ok((admitted, bufs))
}

/// The first `n` bytes of the buffers.
pub(crate) fn views(bufs: Vec<BufMut>, n: usize) -> Vec<Buf> {
    let mut left = n;
    let mut data = Vec::with_capacity(bufs.len());
    for mut buf in bufs {
        let here = left.min(buf.capacity());
        if here == 0 {
            break;
        }
        buf.set_filled(here);
        left -= here;
        data.push(buf.freeze());
    }
    data
}

/// The bytes `from..count` of the buffers.
pub(crate) fn vectors_mut(bufs: &mut [BufMut], from: usize, count: usize) -> Vec<IoSliceMut<'_>> {
    let (mut skip, mut left) = (from, count - from);
    let mut out = Vec::with_capacity(bufs.len());
    for b in bufs {
        let whole = b.whole_mut();
        let start = skip.min(whole.len());
        skip -= start;
        let end = whole.len().min(start.saturating_add(left));
        left -= end - start;
        if end > start {
            out.push(IoSliceMut::new(&mut whole[start..end]));
        }
    }
    out
}

/// The data after its first `skip` bytes, as much as fits in one call.
pub(crate) fn vectors(data: &[Buf], mut skip: usize) -> Vec<IoSlice<'_>> {
    let mut out = Vec::with_capacity(data.len().min(VECTORS_MAX));
    for b in data {
        let start = skip.min(b.len());
        skip -= start;
        if b.len() > start && out.len() < VECTORS_MAX {
            out.push(IoSlice::new(&b.as_slice()[start..]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use iobuf::{Account, Pool, PoolLimits};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn read_without_memory_times_out() {
        let pool = Pool::new(PoolLimits { buffers_max: [2; 3] });
        let mut all = Vec::new();
        for size in CLASS_SIZES.into_iter().rev() {
            all.extend(std::iter::from_fn(|| pool.try_get(size)));
        }
        let account = Account::new();
        let into = ReadInto { pool, account, backpressure: None, pages: false, attributes: false };
        let (began, before) = (tokio::time::Instant::now(), waited_in_vain());
        assert_eq!(buffers(4096, &into).await.map(drop), Err(VfsError::Resources));
        assert!(began.elapsed() >= MEMORY_WAIT_MAX && waited_in_vain() > before);
        // Memory returned in time is used.
        let soon = tokio::time::timeout(Duration::from_secs(60), buffers(4096, &into));
        let give = async {
            tokio::time::sleep(MEMORY_WAIT_MAX / 2).await;
            all.clear();
        };
        let (got, ()) = tokio::join!(soon, give);
        assert_eq!(got.unwrap().unwrap().1.len(), 1);
    }
}
