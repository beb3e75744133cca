//! mDNS with DNS-SD: the responder of one link (RFC 6762, RFC 6763).
//!
//! *Operation.* [`Responder`] is a state machine without sockets and clock. It probes for its names, announces its records, and
//! answers questions. A name that another host has gets a number.
//!
//! *Memory.* Answers that wait are numbers of the host's own records, so that no storm of questions makes them more.

mod answer;
mod records;
mod responder;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(crate) use records::Record;
pub use responder::Responder;

/// Port of mDNS.
pub const PORT: u16 = 5353;
/// Groups of mDNS (RFC 6762 section 3).
pub const GROUP4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
/// See [`GROUP4`].
pub const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both versions.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// Returns true if the address has this version.
    pub fn has(self, ip: IpAddr) -> bool {
        ip.is_ipv4() == (self == Self::V4)
    }

    /// Returns the version of an address.
    pub fn of(at: SocketAddr) -> Self {
        if at.ip().to_canonical().is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Out {
    /// Receiver.
    pub to: To,
    /// The message.
    pub bytes: Vec<u8>,
}

/// Receiver of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// The group, by one version of IP.
    Group(Family),
    /// One host.
    Host(SocketAddr),
}

impl To {
    /// Returns true if the receiver is this host.
    pub(crate) fn is_host(self, ip: IpAddr) -> bool {
        matches!(self, Self::Host(host) if host.ip() == ip)
    }
}
