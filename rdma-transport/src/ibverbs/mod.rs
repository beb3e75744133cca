//! RDMA cards through libibverbs and librdmacm: InfiniBand, RoCE, iWARP.
//!
//! *Operation.* [`Verbs`] is a [`Provider`](crate::verbs::Provider). `cm` wraps librdmacm, `device` is the state shared by all
//! connections of a card, and `pair` is one connection: work is posted and completions are taken in batches, only during polls.
//! Both libraries are loaded on first use; [`available`] tells whether that worked.
//!
//! *Memory.* The slabs of the pools are registered once per device, when one of their buffers is first used, for local access only:
//! no peer ever gets a key to them. On iWARP cards each connection registers them in a domain of its own ([`device`]). Small pieces
//! outside of slabs are gathered in a slab of the device; large ones are registered for one work request. When a connection ends,
//! its queue pair is destroyed first, and then every buffer is returned, even without a completion from the card.
//!
//! *Errors.* The first error ends the connection. A removed card ends its connections; listeners wait for its return. The fabric
//! decides which side learns of a peer's violation: InfiniBand informs the violating side.

mod cm;
mod device;
mod dial;
mod events;
pub mod failures;
mod hardware;
mod keys;
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
mod vectors;
mod windows;

use std::time::Duration;

pub use device::GATHER;
pub use listen::Verbs;
pub use pair::RULES;

use crate::traffic_class::TrafficClass;

/// 0.54 s, as Linux chooses on RoCE since 6.2. With 7 retries, a path that loses every packet ends a connection after 4.3 s, or
/// after 17 s on a card that waits four times as long, as InfiniBand allows (architecture section 9.7.6.1.3). A link that moves to
/// another switch (LACP, 3 s) keeps its connections; a dead peer holds memory for less than
/// [`crate::limits::STALL_SECONDS_PRESSED`].
const ACK_TIMEOUT: u8 = 17;

/// Settings for RDMA cards, shared by all connections of a provider.
#[derive(Clone, Debug)]
pub struct VerbsConfig {
    /// Longest time to poll for completions before arming the card's event. Zero on machines with few processors.
    pub spin_max: Duration,
    /// Register memory with relaxed ordering if the device supports it.
    pub relaxed_ordering: bool,
    /// Give every connection a protection domain of its own, on devices that do not need it as well.
    pub separate_domains: bool,
    /// Limit on the peer's answer during connection setup.
    pub handshake_time_max: Duration,
    /// Time until a RoCE or InfiniBand card retransmits an unacknowledged packet: 4.096 us times two to the power of this.
    pub ack_timeout: u8,
    /// The traffic class of new listeners and connections.
    pub class: TrafficClass,
    /// Limit on completing posted work at a disconnect, and on the peer's disconnect.
    pub close_time_max: Duration,
}

impl Default for VerbsConfig {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
        Self {
            spin_max: Duration::from_micros(if processors > 4 { 20 } else { 0 }),
            relaxed_ordering: true,
            separate_domains: false,
            handshake_time_max: Duration::from_secs(10),
            ack_timeout: ACK_TIMEOUT,
            class: TrafficClass::default(),
            close_time_max: Duration::from_secs(2),
        }
    }
}

/// Checks that the libraries are installed; otherwise says in one line which one is missing and the remedy.
pub fn available() -> Result<(), String> {
    rdma_sys::loaded().map_err(|why| {
        format!("{why}: install Debian's libibverbs1, librdmacm1 and ibverbs-providers, or rdma-core elsewhere")
    })
}
