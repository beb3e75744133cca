//! Quotas per address ([`rdma_transport::parts`]) with errors of SMB.
//!
//! *Errors.* STATUS_INSUFFICIENT_RESOURCES; each limit is counted under its name.

use std::net::SocketAddr;
use std::sync::Arc;

use rdma_transport::count;
use rdma_transport::parts::{self, Limit};

use crate::status::Status;

/// A total amount and its users.
pub struct Parts(Arc<parts::Parts>);

impl Parts {
    /// Builds a quota with a total limit and a limit per address.
    pub fn new(limits: [Limit; 2]) -> Self {
        Self(parts::Parts::new(limits))
    }

    /// Returns an empty part for the client at this address.
    pub fn of(&self, peer: SocketAddr) -> Part {
        Part { own: self.0.of(peer.ip()), peer }
    }
}

/// The amount that one client uses, until dropped.
pub struct Part {
    own: parts::Part,
    peer: SocketAddr,
}

impl Part {
    /// Returns the amount.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.own.count()
    }

    /// Returns how much of `most` the address could still use in addition.
    #[cfg(test)]
    pub(crate) fn room(mut self, most: usize) -> usize {
        (0..=most).rev().find(|n| self.set(*n).is_ok()).unwrap_or(0)
    }

    /// Sets the amount; keeps the earlier one if the new one exceeds a limit.
    pub fn set(&mut self, count: usize) -> Result<(), Status> {
        self.own.set(count).map_err(|Limit { name, most }| {
            count::limited(name, most, self.peer);
            Status::INSUFFICIENT_RESOURCES
        })
    }
}
