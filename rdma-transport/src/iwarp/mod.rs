//! iWARP in user space: RDMA over an ordinary TCP socket (RFC 5040, 5041, 5044, 6581).
//!
//! *Operation.* [`Iwarp`] is a [`Provider`]. [`connect`] settles the terms with the peer; then a pure core (`pair`, made
//! of `rx`, `tx`, `memory` and `reads`) turns work requests into frames and frames into completions, and `driver` moves
//! bytes between the core and the socket whenever the queue pair is polled.
//!
//! *Memory.* Payload is written to the socket from the buffers it was posted in and read from the socket into the buffers
//! it belongs to. A connection itself costs a few KiB.
//!
//! *Errors.* A peer that breaks a rule gets a Terminate message and the connection ends; [`Violation`] names the rule, and
//! [`violations`] counts it. What is not done: markers (refused), several streams over one connection.

mod connect;
mod driver;
mod memory;
mod pair;
mod reads;
mod rx;
mod setup;
#[cfg(test)]
mod tests;
mod tx;
mod violation;
pub mod wire;

use std::time::Duration;

#[doc(hidden)]
pub use connect::fuzz_start;
#[doc(hidden)]
pub use pair::fuzz;
pub use setup::Iwarp;
pub use violation::{Violation, violations};

/// How this side does iWARP. The same for all connections of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IwarpConfig {
    /// Ask for a CRC32C in every FPDU. It is used when either side asks.
    pub crc: bool,
    /// Offer and accept FPDUs that are larger than a TCP segment (siw's experimental bit).
    pub large_fpdus: bool,
    /// As initiator, ask for enhanced mode (RFC 6581). As responder both modes are served.
    pub enhanced: bool,
    /// As initiator, ask for peer-to-peer mode and begin with the RTR frame that the responder wants.
    pub peer_to_peer: bool,
    /// Time for the start frames of one connection.
    pub handshake_time_max: Duration,
    /// As initiator, wait this long before the first FPDU. Linux siw 6.12 loses an FPDU that arrives while it still
    /// accepts; half a second helps it.
    pub first_fpdu_delay: Duration,
    /// Time for the last bytes of a connection that ends: a Terminate, or what was posted before a disconnect.
    pub close_time_max: Duration,
}

impl Default for IwarpConfig {
    fn default() -> Self {
        Self {
            crc: true,
            large_fpdus: true,
            enhanced: true,
            peer_to_peer: false,
            handshake_time_max: Duration::from_secs(10),
            first_fpdu_delay: Duration::ZERO,
            close_time_max: Duration::from_secs(2),
        }
    }
}
