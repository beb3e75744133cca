//! Holders of state, and the requesters of operations.

use std::sync::Arc;

use crate::expiry::Lease;
use crate::id::{ClientId, HolderId};

/// The client and open behind an operation. Calls that take `Option<Requester>` get `None` for an access without a known client
/// (NFSv3, a local process).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// The client, whose own caching never conflicts with its operations.
    pub client: ClientId,
    /// The open that the access uses; its share mode was checked when the file was opened.
    pub holder: Option<HolderId>,
}

/// A holder with its client's lease.
#[derive(Clone, Debug)]
pub struct Holder {
    pub holder: HolderId,
    pub lease: Arc<Lease>,
}

impl Holder {
    pub fn client(&self) -> ClientId {
        self.lease.client()
    }

    /// Checks that both clients are known to come from the same host.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        self.lease.host().is_some_and(|host| other.lease.host() == Some(host))
    }

    /// Returns this holder as the requester of an operation.
    pub fn requester(&self) -> Requester {
        Requester { client: self.client(), holder: Some(self.holder) }
    }
}

impl PartialEq for Holder {
    fn eq(&self, other: &Self) -> bool {
        self.holder == other.holder
    }
}

impl Eq for Holder {}
