//! How the configured memory is divided among pools.

use std::sync::Arc;

use config::{Rdma, Settings};
use iobuf::{CLASS_SIZES, Pool, PoolLimits};
use rdma_transport::limits::SMBD_CREDITS_MIN;
use rdma_transport::parts::Parts;
use rdma_transport::receives;

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

/// Memory for Receives of RDMA connections: an eighth, where RDMA is served.
fn rdma_receives(settings: &Settings) -> usize {
    match settings.rdma {
        Rdma::Off => 0,
        Rdma::Auto | Rdma::Iwarp | Rdma::Verbs => kept_replies(settings),
    }
}

/// Memory for payload: the rest.
pub(crate) fn payload_limits(settings: &Settings) -> PoolLimits {
    let memory = usize::try_from(settings.memory).unwrap_or(0);
    let beside = kept_replies(settings)
        .saturating_add(heap_limits(settings).0)
        .saturating_add(names(settings))
        .saturating_add(rdma_receives(settings));
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

/// Receive buffers of connections over TCP: two small ones for each, and a large one for busy ones, as far as a sixteenth of the
/// memory goes. A connection without a large one reads into small ones.
pub(crate) fn recv_limits(settings: &Settings) -> PoolLimits {
    let memory = usize::try_from(settings.memory).unwrap_or(usize::MAX);
    let large = (memory / 16 / CLASS_SIZES[1]).clamp(1, settings.connections.max(1) * 2);
    PoolLimits { buffers_max: [settings.connections * 2 + 4, large, 1] }
}

/// Receive buffers of connections over RDMA.
pub(crate) fn rdma_recv_limits(settings: &Settings) -> PoolLimits {
    PoolLimits { buffers_max: [(rdma_receives(settings) / CLASS_SIZES[0]).max(1), 1, 1] }
}

/// What connections over RDMA may have posted beyond the first few Receives of each: as many as are left where all have those, and
/// half at least. One address may have half of it.
pub(crate) fn rdma_parts(settings: &Settings) -> Arc<Parts> {
    let [of_all, of_address] = rdma_parts_most(settings);
    receives::parts(of_all, of_address)
}

/// How much that is: of all addresses, and of one.
pub(crate) fn rdma_parts_most(settings: &Settings) -> [usize; 2] {
    let all = rdma_receives(settings) / CLASS_SIZES[0];
    let first = settings.connections.saturating_mul(usize::from(SMBD_CREDITS_MIN) + 1);
    let beyond = all.saturating_sub(first).max(all / 2);
    [beyond, beyond / 2]
}
