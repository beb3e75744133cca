//! RDMA cards through libibverbs and librdmacm: InfiniBand, RoCE, iWARP.
//!
//! *Operation.* [`Verbs`] is a [`Provider`](crate::verbs::Provider). `cm` speaks with librdmacm, `device` keeps what all
//! connections of a card share, and `pair` is one connection: work goes to the card in batches, completions are taken in
//! batches, and between polls nothing happens. Both libraries are loaded when they are first needed; [`available`] says
//! whether that worked.
//!
//! *Memory.* The slabs of the pools are registered once per device, when a buffer of theirs is first used, for the card's
//! own use alone: no peer ever gets a key to them. Small pieces that lie elsewhere are gathered in a slab of the device's
//! own; large ones are registered for one work request. When a connection ends, its queue pair is destroyed first, and
//! then every buffer comes back, whether or not the card said a word about it.
//!
//! *Errors.* The first error ends the connection. A card that goes ends its connections; listeners wait for it to come
//! back. What a card tells about a peer that broke a rule differs: InfiniBand tells the side that broke it.

mod cm;
mod device;
mod dial;
mod hardware;
mod listen;
mod mappings;
mod memory;
mod pair;
mod queue;
mod quirks;
mod receives;
mod requests;
mod spin;
mod unconnected;
mod windows;

use std::time::Duration;

pub use device::GATHER;
pub use listen::Verbs;
pub use pair::RULES;

/// How this side uses RDMA cards. The same for all connections of a provider.
#[derive(Clone, Debug)]
pub struct VerbsConfig {
    /// Longest time to look for completions before the card is asked to wake us. Zero where processors are scarce.
    pub spin_max: Duration,
    /// Memory is registered with relaxed ordering where the device takes that.
    pub relaxed_ordering: bool,
    /// Time for an answer of the peer when a connection is made.
    pub handshake_time_max: Duration,
    /// Time for what was posted before a disconnect, and for the peer's end.
    pub close_time_max: Duration,
}

impl Default for VerbsConfig {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
        Self {
            spin_max: Duration::from_micros(if processors > 4 { 20 } else { 0 }),
            relaxed_ordering: true,
            handshake_time_max: Duration::from_secs(10),
            close_time_max: Duration::from_secs(2),
        }
    }
}

/// Whether the libraries are here; otherwise which one is not and what to do, in one line.
pub fn available() -> Result<(), String> {
    rdma_sys::loaded().map_err(|why| {
        format!("{why}: install Debian's libibverbs1, librdmacm1 and ibverbs-providers, or rdma-core elsewhere")
    })
}
