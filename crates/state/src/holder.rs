//! Holders of state, and the requesters of operations.

use std::sync::Arc;

use crate::expiry::Lease;
use crate::id::{CacheKey, ClientId, HolderId};

/// The client and open behind an operation. Calls that take `Option<Requester>` get `None` for an access without a known client
/// (NFSv3, a local process).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// The client, whose own caching never conflicts with its operations through the same share.
    pub client: ClientId,
    /// See [`CacheKey::via`].
    pub via: u32,
    /// The open that the access uses; its share mode was checked when the file was opened.
    pub holder: Option<HolderId>,
}

impl Requester {
    /// Returns the key of its caching.
    pub fn key(&self) -> CacheKey {
        CacheKey { client: self.client, via: self.via }
    }
}

/// A holder with its client's lease.
#[derive(Clone, Debug)]
pub struct Holder {
    pub holder: HolderId,
    pub lease: Arc<Lease>,
    /// See [`CacheKey::via`].
    pub via: u32,
}

impl Holder {
    pub fn client(&self) -> ClientId {
        self.lease.client()
    }

    /// Returns the key of its caching.
    pub fn key(&self) -> CacheKey {
        CacheKey { client: self.client(), via: self.via }
    }

    /// Checks that both clients are known to come from the same host.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        self.lease.host().is_some_and(|host| other.lease.host() == Some(host))
    }

    /// Returns this holder as the requester of an operation.
    pub fn requester(&self) -> Requester {
        Requester { client: self.client(), via: self.via, holder: Some(self.holder) }
    }
}

impl PartialEq for Holder {
    fn eq(&self, other: &Self) -> bool {
        self.holder == other.holder
    }
}

impl Eq for Holder {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Rights, Share};
    use crate::caching::{Caching, Operation};
    use crate::id::NodeId;
    use crate::node::{Limits, Verdict};
    use crate::range::Range;
    use crate::recall::Deadlines;
    use crate::table::Table;

    const N: NodeId = NodeId(1);

    /// All pairs of two clients on two shares: only the holder's own key spares its caching.
    #[test]
    fn caching_is_by_client_and_share() {
        let leases = [1, 2].map(|n| Arc::new(Lease::held(ClientId(n))));
        let keys = || (0..2).flat_map(|c| (0..2_u32).map(move |via| (c, via)));
        for (c, via) in keys() {
            for (d, other) in keys() {
                let t = Table::new(Deadlines::new(10, 20).unwrap(), Limits::default(), 0);
                let party =
                    |c: usize, via| Holder { holder: t.holder(), lease: leases[c].clone(), via };
                let (mine, theirs) = (party(c, via), party(d, other));
                let same = (c, via) == (d, other);
                let read = Share::new(Rights::READ, Rights::NONE);
                // An open with another key rules out a write delegation.
                assert_eq!(t.open(N, &theirs, read, 0), Verdict::Go);
                assert_eq!(t.delegate(N, &mine, Caching::ALL, 0), same, "{via} {other}");
                t.release(N, theirs.holder);
                t.release(N, mine.holder);
                assert!(t.delegate(N, &mine, Caching::ALL, 0));
                let held = t.delegation(N, theirs.key());
                assert_eq!(held, same.then_some(mine.holder), "{via} {other}");
                assert_eq!(t.keeps_back(N, Some(theirs.key())).is_none(), same);
                let who = Some(Requester { holder: None, ..theirs.requester() });
                assert_eq!(t.is_free(N, who, Operation::Read, Range::ALL), same);
                let verdict = t.check_conflicts(N, who, Operation::Write, Range::ALL, 1);
                assert_eq!(verdict == Verdict::Go, same, "{verdict:?}");
                assert_eq!(matches!(verdict, Verdict::WaitFor(_)), !same, "{verdict:?}");
            }
        }
    }
}
