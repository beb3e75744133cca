//! How the configured memory is divided among pools.

use config::Settings;
use iobuf::{Pool, PoolLimits};
use rdma_transport::limits::{RPCRDMA_CREDITS, RPCRDMA_CREDITS_REVERSE};

/// Memory for the replies that NFS keeps for repetitions: an eighth.
pub(crate) fn kept_replies(settings: &Settings) -> usize {
    usize::try_from(settings.memory / 8).unwrap_or(usize::MAX)
}

/// Memory for messages that lie on the heap: an eighth, and what one client may have of it, in bytes.
pub(crate) fn heap_limits(settings: &Settings) -> (usize, usize) {
    let bytes = |n| usize::try_from(n).unwrap_or(usize::MAX);
    let all = bytes(settings.memory / 8);
    let of_client = settings.limits.client_memory.map_or(all / 4 * 3, |n| bytes(n / 8));
    (all, of_client)
}

/// Memory for the names of directories in which clients of SMB look in another case: a sixteenth.
pub(crate) fn names(settings: &Settings) -> usize {
    usize::try_from(settings.memory / 16).unwrap_or(usize::MAX)
}

/// Memory for payload: the rest.
pub(crate) fn payload_limits(settings: &Settings) -> PoolLimits {
    let memory = usize::try_from(settings.memory).unwrap_or(0);
    let beside = kept_replies(settings)
        .saturating_add(heap_limits(settings).0)
        .saturating_add(names(settings));
    PoolLimits::of_bytes(memory.saturating_sub(beside))
}

/// What one client may have of it. Below so many buffers of a size, nothing is kept for the others unless it is asked for.
pub(crate) fn payload_share(settings: &Settings) -> PoolLimits {
    const FEW: usize = 16;
    if let Some(bytes) = settings.limits.client_memory {
        return PoolLimits::of_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
    let all = payload_limits(settings).buffers_max;
    PoolLimits { buffers_max: all.map(|n| (n / 4 * 3).max(n.min(FEW))) }
}

/// The pool for payload, with its limits.
pub(crate) fn payload(settings: &Settings) -> Pool {
    let pool = Pool::new(payload_limits(settings));
    pool.set_share(payload_share(settings));
    let (all, of_client) = heap_limits(settings);
    pool.set_heap(all, of_client);
    pool
}

/// Receives of every connection that may be open, over RDMA or TCP, and some reserve.
pub(crate) fn recv_limits(connections: usize) -> PoolLimits {
    let small = usize::from(RPCRDMA_CREDITS + RPCRDMA_CREDITS_REVERSE) + 4;
    PoolLimits { buffers_max: [connections * small, connections * 2, 1] }
}
