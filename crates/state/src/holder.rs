//! Who holds something, and who asks.

use std::sync::Arc;

use crate::expiry::Lease;
use crate::id::{ClientId, HolderId};

/// Who acts. An access with no known client (NFSv3, a local process) is `None` in the calls that take an `Option<Requester>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// The client: its own caching is never in its own way.
    pub client: ClientId,
    /// The open that the access goes through; its share mode was checked when it was opened.
    pub holder: Option<HolderId>,
}

/// A holder with the client it belongs to and that client's lease.
#[derive(Clone, Debug)]
pub struct Holder {
    /// The holder.
    pub holder: HolderId,
    /// Its client's lease.
    pub lease: Arc<Lease>,
}

impl Holder {
    /// The client.
    pub fn client(&self) -> ClientId {
        self.lease.client()
    }

    /// Its client is known to come from the same host as that of the other.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        self.lease.host().is_some_and(|host| other.lease.host() == Some(host))
    }

    /// As the one who acts.
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
