//! Who may open, lock and cache what. Pure: no input or output, no clock, no task, no protocol.
//!
//! *Operation.* A [`Table`] holds, for every node that somebody holds, its opens with their share modes ([`access`]), its
//! byte-range locks (of NFS: [`range`], of SMB: [`smb_lock`]), its caching grants ([`caching`], [`grants`]): delegations of NFS,
//! oplocks and leases of SMB; and its names for which a delete is pending ([`pending`]). A front end asks before it acts and obeys
//! the [`Verdict`]: go on, take caching rights back first ([`recall`]), release a client whose lease has lapsed ([`expiry`]), or
//! refuse. Clients that were sent away meanwhile have a turn ([`turns`]). [`grace`] decides who may reclaim after a restart.
//!
//! *Memory.* One record per node that is held; it vanishes with its last holder. Every list in it has a limit ([`Limits`]).
//!
//! *Errors.* None: a refusal is a [`Verdict`] that says who stands in the way.

pub mod access;
pub mod caching;
pub mod expiry;
pub mod grace;
pub mod grants;
pub mod holder;
pub mod id;
#[cfg(test)]
mod model;
#[cfg(test)]
mod model_lease;
#[cfg(test)]
mod model_mixed;
pub mod node;
pub mod pending;
pub mod range;
pub mod recall;
pub mod smb_lock;
pub mod table;
pub mod turns;

pub use access::{Rights, Share};
pub use caching::{CacheRequest, Caching, Kind, Operation};
pub use expiry::{Lease, LeaseState, Terms};
pub use grace::Grace;
pub use grants::{Acknowledged, Held};
pub use holder::{Holder, Requester};
pub use id::{ClientId, HolderId, Millis, NodeId};
pub use node::{Limits, LockVerdict, Opening, Verdict};
pub use pending::Name;
pub use range::{Enforce, Lock, LockKind, Range, RangeSet};
pub use recall::{Break, Deadlines, Stage};
pub use smb_lock::SmbLockRange;
pub use table::{NodeHasher, Table, Writing};
