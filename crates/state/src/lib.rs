//! Decides which clients may open, lock and cache a file. Performs no I/O, reads no clock, spawns no task and knows no wire format.
//!
//! Start with [`Table`] and [`Verdict`]. For every node in use, the table stores the opens with their share modes ([`access`]), the
//! byte-range locks ([`range`] for NFS, [`smb_lock`] for SMB), the caching grants ([`caching`], [`grants`]: NFS delegations, SMB
//! oplocks and leases), and the names with a pending delete ([`pending`]). A front end asks the table before it acts and follows
//! the [`Verdict`]: proceed, recall caching rights first ([`recall`]), release a client whose lease has lapsed ([`expiry`]), or
//! refuse. [`turns`] keeps clients that must retry from being overtaken, and [`answers`] notes which clients answer no breaks.
//! [`grace`] decides which clients may reclaim state after a restart.
//!
//! *Memory.* One record per node in use, freed with its last holder. Every list in it has a limit ([`Limits`]).
//!
//! *Errors.* A refusal is a [`Verdict`] that names the conflicting holder.

#![allow(missing_docs, reason = "comments that only repeat a name are left out")]

pub mod access;
pub mod answers;
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
pub use answers::Answers;
pub use caching::{CacheRequest, Caching, Kind, Operation};
pub use expiry::{Lease, LeaseState, Terms};
pub use grace::Grace;
pub use grants::{Acknowledged, Held};
pub use holder::{Holder, Requester};
pub use id::{CacheKey, ClientId, HolderId, Millis, NodeHasher, NodeId};
pub use node::{Limits, LockVerdict, Opening, Verdict};
pub use pending::Name;
pub use range::{Enforce, Lock, LockKind, Range, RangeSet};
pub use recall::{Break, Deadlines, Stage};
pub use smb_lock::SmbLockRange;
pub use table::{Table, Writing};
