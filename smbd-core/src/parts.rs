//! What the clients of an address may have ([`rdma_transport::parts`]), as SMB refuses more.
//!
//! *Errors.* STATUS_INSUFFICIENT_RESOURCES; the limit is counted by its name.

use std::net::SocketAddr;
use std::sync::Arc;

use rdma_transport::count;
use rdma_transport::parts::{self, Limit};

use crate::status::Status;

/// All there is, and who has it.
pub struct Parts(Arc<parts::Parts>);

impl Parts {
    /// With these limits: of all, and of one address.
    pub fn new(limits: [Limit; 2]) -> Self {
        Self(parts::Parts::new(limits))
    }

    /// The part of one who is at this address; nothing so far.
    pub fn of(&self, peer: SocketAddr) -> Part {
        Part { own: self.0.of(peer.ip()), peer }
    }
}

/// What somebody has, until it is dropped.
pub struct Part {
    own: parts::Part,
    peer: SocketAddr,
}

impl Part {
    /// How much it is.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.own.count()
    }

    /// How much of so much its address could have beside what it has.
    #[cfg(test)]
    pub(crate) fn room(mut self, most: usize) -> usize {
        (0..=most).rev().find(|n| self.set(*n).is_ok()).unwrap_or(0)
    }

    /// Has so much from now on; where that would be too much it has what it had.
    pub fn set(&mut self, count: usize) -> Result<(), Status> {
        self.own.set(count).map_err(|Limit { name, most }| {
            count::limited(name, most, self.peer);
            Status::INSUFFICIENT_RESOURCES
        })
    }
}
