//! iWARP in user space: RDMA over an ordinary TCP socket (RFC 5040, 5041, 5044, 6581).
//!
//! *Operation.* [`Iwarp`] is a [`Provider`]. [`connect`] negotiates with the peer; then a core without I/O (`pair`, consisting of
//! `rx`, `tx`, `memory` and `reads`) converts work requests to frames and frames to completions, and `driver` moves bytes between
//! the core and the socket during polls.
//!
//! *Memory.* Payload is written to the socket from its buffers, and read from the socket into its destination. A connection takes a
//! few KiB.
//!
//! *Errors.* A peer that violates a rule gets a Terminate message and the connection ends; [`Violation`] names the rule, and
//! [`violations`] counts it. Markers are sent to peers that want them, and never requested. Not supported: several streams over
//! one connection.

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

use crate::traffic_class::TrafficClass;

/// Settings for iWARP, shared by all connections of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IwarpConfig {
    /// Request a CRC32C in every FPDU. It is used if either side requests it.
    pub crc: bool,
    /// Offer and accept FPDUs larger than a TCP segment (siw's experimental bit).
    pub large_fpdus: bool,
    /// True if an initiator requests enhanced mode (RFC 6581). The responder supports both modes.
    pub enhanced: bool,
    /// True if an initiator requests peer-to-peer mode and begins with the RTR frame that the responder chooses.
    pub peer_to_peer: bool,
    /// Limit on the exchange of start frames.
    pub handshake_time_max: Duration,
    /// How long an initiator waits before the first FPDU. Linux siw 6.12 loses an FPDU that arrives during its accept; half a
    /// second avoids that.
    pub first_fpdu_delay: Duration,
    /// Limit on sending the last bytes of a connection: a Terminate, or work posted before a disconnect.
    pub close_time_max: Duration,
    /// The traffic class of new connections.
    pub class: TrafficClass,
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
            class: TrafficClass::default(),
        }
    }
}
