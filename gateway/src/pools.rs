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

/// Memory for what comes over TCP: a sixteenth.
fn tcp_receives(settings: &Settings) -> usize {
    usize::try_from(settings.memory / 16).unwrap_or(usize::MAX)
}

/// Memory for payload: the rest.
pub(crate) fn payload_limits(settings: &Settings) -> PoolLimits {
    let memory = usize::try_from(settings.memory).unwrap_or(0);
    let beside = kept_replies(settings)
        .saturating_add(heap_limits(settings).0)
        .saturating_add(names(settings))
        .saturating_add(tcp_receives(settings))
        .saturating_add(rdma_receives(settings));
    PoolLimits::of_bytes(memory.saturating_sub(beside))
}

/// What one client may have of it. Below so many buffers of a size, nothing is kept for the others unless it is asked for.
pub(crate) fn payload_share(settings: &Settings) -> PoolLimits {
    if let Some(bytes) = settings.limits.client_memory {
        return PoolLimits::of_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
    three_quarters(payload_limits(settings))
}

/// What one address may have of a pool of these limits.
fn three_quarters(all: PoolLimits) -> PoolLimits {
    const FEW: usize = 16;
    PoolLimits { buffers_max: all.buffers_max.map(|n| (n / 4 * 3).max(n.min(FEW))) }
}

/// The pool for payload, with its limits.
pub(crate) fn payload(settings: &Settings) -> Pool {
    let pool = Pool::new(payload_limits(settings));
    pool.set_share(payload_share(settings));
    let (all, of_client) = heap_limits(settings);
    pool.set_heap(all, of_client);
    pool
}

/// Receive buffers of connections over TCP: two small ones for each, as far as half of a sixteenth of the memory goes, and large
/// ones
/// for busy ones with the rest. A connection without a large one reads into small ones; one without any reads when another has
/// given one back.
pub(crate) fn recv_limits(settings: &Settings) -> PoolLimits {
    let (bytes, wanted) = (tcp_receives(settings), settings.connections.saturating_mul(2));
    let small = (bytes / 2 / CLASS_SIZES[0]).clamp(1, wanted.saturating_add(4));
    let left = bytes.saturating_sub(small * CLASS_SIZES[0]);
    let large = (left / CLASS_SIZES[1]).clamp(1, wanted.max(1));
    PoolLimits { buffers_max: [small, large, 0] }
}

/// What one address may have of them.
pub(crate) fn recv_share(settings: &Settings) -> PoolLimits {
    three_quarters(recv_limits(settings))
}

/// The pool for what comes over TCP, with its limits.
pub(crate) fn recvs(settings: &Settings) -> Pool {
    let pool = Pool::new(recv_limits(settings));
    pool.set_share(recv_share(settings));
    pool
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
    let first = settings.connections.saturating_mul(FIRST_RECEIVES);
    let beyond = all.saturating_sub(first).max(all / 2);
    [beyond, beyond / 2]
}

/// Receives that each RDMA connection has from its beginning: those of its first credits, and that of the negotiation.
pub(crate) const FIRST_RECEIVES: usize = SMBD_CREDITS_MIN as usize + 1;

/// What connections over RDMA may have of those.
pub(crate) fn rdma_first(settings: &Settings) -> Arc<Parts> {
    let [of_all, of_address] = rdma_first_most(settings);
    receives::first_parts(of_all, of_address)
}

/// How much that is: of all addresses, and of one.
pub(crate) fn rdma_first_most(settings: &Settings) -> [usize; 2] {
    const FEW: usize = 64 * FIRST_RECEIVES;
    let all = rdma_receives(settings) / CLASS_SIZES[0];
    let first = all.saturating_sub(rdma_parts_most(settings)[0]).max(FIRST_RECEIVES);
    [first, (first / 4 * 3).max(first.min(FEW))]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that is given out at once, of settings of every size, is within `memory`.
    #[test]
    fn pools_fit_into_memory() {
        let bytes = |limits: PoolLimits| -> u64 {
            let sizes = limits.buffers_max.iter().zip(CLASS_SIZES);
            sizes.map(|(n, size)| (n * size) as u64).sum()
        };
        for memory in [64 << 20, 256 << 20, 1 << 30, 8 << 30_u64] {
            for connections in [4, 100, 2048, 20_000] {
                let settings = Settings { memory, connections, ..Settings::default() };
                let [first, of_address] = rdma_first_most(&settings);
                let [beyond, _] = rdma_parts_most(&settings);
                let rdma = rdma_recv_limits(&settings);
                assert!(first + beyond <= rdma.buffers_max[0], "{memory} {connections}");
                assert!(of_address <= first && of_address >= FIRST_RECEIVES);
                let buffers = [payload_limits(&settings), recv_limits(&settings), rdma];
                let beside = kept_replies(&settings) + heap_limits(&settings).0 + names(&settings);
                let all = buffers.map(bytes).iter().sum::<u64>() + beside as u64;
                // A buffer of the largest size is there however little there is.
                assert!(all <= memory + (1 << 20) + (64 << 10), "{all} of {memory}, {connections}");
            }
        }
    }
}
