//! Divides the configured memory among pools.

use std::sync::Arc;

use config::{Rdma, Settings};
use iobuf::{CLASS_SIZES, Pool, PoolLimits};
use rdma_transport::limits::SMBD_CREDITS_MIN;
use rdma_transport::parts::Parts;
use rdma_transport::receives;

/// Memory for the replies that NFS keeps for retransmissions: an eighth.
pub(crate) fn kept_replies(settings: &Settings) -> usize {
    usize::try_from(settings.memory / 8).unwrap_or(usize::MAX)
}

/// Memory in bytes for messages on the heap: an eighth, and the part of it that one client may use.
pub(crate) fn heap_limits(settings: &Settings) -> (usize, usize) {
    let bytes = |n| usize::try_from(n).unwrap_or(usize::MAX);
    let all = bytes(settings.memory / 8);
    let of_client = settings.limits.client_memory.map_or(all / 4 * 3, |n| bytes(n / 8));
    (all, of_client)
}

/// Memory for directory listings that SMB clients search without regard to case: a sixteenth.
pub(crate) fn names(settings: &Settings) -> usize {
    usize::try_from(settings.memory / 16).unwrap_or(usize::MAX)
}

/// Memory for Receives of RDMA connections: an eighth if RDMA is served.
fn rdma_receives(settings: &Settings) -> usize {
    match settings.rdma {
        Rdma::Off => 0,
        Rdma::Auto | Rdma::Iwarp | Rdma::Verbs => kept_replies(settings),
    }
}

/// Memory for data received over TCP: a sixteenth.
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

/// Returns the bytes of the large buffers for payload, which data of more than 64 KiB takes.
pub(crate) fn large_payload(settings: &Settings) -> u64 {
    let large = CLASS_SIZES.iter().zip(payload_limits(settings).buffers_max).next_back();
    large.map_or(0, |(size, count)| size.saturating_mul(count) as u64)
}

/// Part of the payload memory that one client may use. If a pool has only a few buffers of a size, none is reserved for other
/// clients unless configured.
pub(crate) fn payload_share(settings: &Settings) -> PoolLimits {
    if let Some(bytes) = settings.limits.client_memory {
        return PoolLimits::of_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
    three_quarters(payload_limits(settings))
}

/// Returns the part of a pool with these limits that one address may use.
fn three_quarters(all: PoolLimits) -> PoolLimits {
    const FEW: usize = 16;
    PoolLimits { buffers_max: all.buffers_max.map(|n| (n / 4 * 3).max(n.min(FEW))) }
}

/// Returns the pool for payload, with its limits.
pub(crate) fn payload(settings: &Settings) -> Pool {
    let pool = Pool::new(payload_limits(settings));
    pool.set_share(payload_share(settings));
    let (all, of_client) = heap_limits(settings);
    pool.set_heap(all, of_client);
    pool
}

/// Receive buffers of connections over TCP: two small ones for each connection, limited to half of a sixteenth of the memory,
/// and large ones for busy connections from the rest. A connection without a large buffer reads into small ones; a connection
/// without any waits until another returns one.
pub(crate) fn recv_limits(settings: &Settings) -> PoolLimits {
    let (bytes, wanted) = (tcp_receives(settings), settings.connections.saturating_mul(2));
    let small = (bytes / 2 / CLASS_SIZES[0]).clamp(1, wanted.saturating_add(4));
    let left = bytes.saturating_sub(small * CLASS_SIZES[0]);
    let large = (left / CLASS_SIZES[1]).clamp(1, wanted.max(1));
    PoolLimits { buffers_max: [small, large, 0] }
}

/// Part of the receive buffers that one address may use.
pub(crate) fn recv_share(settings: &Settings) -> PoolLimits {
    three_quarters(recv_limits(settings))
}

/// Returns the pool for data received over TCP, with its limits.
pub(crate) fn recvs(settings: &Settings) -> Pool {
    let pool = Pool::new(recv_limits(settings));
    pool.set_share(recv_share(settings));
    pool
}

/// Receive buffers of connections over RDMA.
pub(crate) fn rdma_recv_limits(settings: &Settings) -> PoolLimits {
    PoolLimits { buffers_max: [(rdma_receives(settings) / CLASS_SIZES[0]).max(1), 1, 1] }
}

/// Receives that RDMA connections may post beyond the first few of each: the number that remains if all connections have
/// those, but at least a quarter. One address may use half of it.
pub(crate) fn rdma_parts(settings: &Settings) -> Arc<Parts> {
    let [of_all, of_address] = rdma_parts_most(settings);
    receives::parts(of_all, of_address)
}

/// Returns the limits of [`rdma_parts`]: for all addresses, and for one.
pub(crate) fn rdma_parts_most(settings: &Settings) -> [usize; 2] {
    let all = rdma_receives(settings) / CLASS_SIZES[0];
    let first = settings.connections.saturating_mul(FIRST_RECEIVES);
    let beyond = all.saturating_sub(first).max(all / 4);
    [beyond, beyond / 2]
}

/// Receives that each RDMA connection has from its start: those of its first credits, and one for the negotiation.
pub(crate) const FIRST_RECEIVES: usize = SMBD_CREDITS_MIN as usize + 1;

/// Returns the limits on the first Receives of RDMA connections.
pub(crate) fn rdma_first(settings: &Settings) -> Arc<Parts> {
    let [of_all, of_address] = rdma_first_most(settings);
    receives::first_parts(of_all, of_address)
}

/// Returns the limits of [`rdma_first`]: for all addresses, and for one.
pub(crate) fn rdma_first_most(settings: &Settings) -> [usize; 2] {
    const FEW: usize = 64 * FIRST_RECEIVES;
    let all = rdma_receives(settings) / CLASS_SIZES[0];
    let first = all.saturating_sub(rdma_parts_most(settings)[0]).max(FIRST_RECEIVES);
    [first, (first / 8 * 7).max(first.min(FEW))]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For settings of every size, all pools together stay within `memory`.
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
                // One buffer of the largest size exists even if the memory is smaller.
                assert!(all <= memory + (1 << 20) + (64 << 10), "{all} of {memory}, {connections}");
            }
        }
    }
}
