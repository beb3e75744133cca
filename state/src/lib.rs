//! Who may open, lock and cache what. Pure: no input or output, no clock, no task, no protocol.
//!
//! *Operation.* A [`Table`] holds, for every node that somebody holds, its opens with their share modes ([`access`]), its
//! byte-range locks ([`range`]) and its caching grants ([`caching`]): delegations of NFS today, leases of SMB later. A front
//! end asks before it acts and obeys the [`Verdict`]: go on, take caching rights back first ([`recall`]), release a client
//! whose lease has lapsed ([`expiry`]), or refuse. [`grace`] decides who may reclaim after a restart.
//!
//! *Memory.* One record per node that is held; it vanishes with its last holder. Every list in it has a limit ([`Limits`]).
//!
//! *Errors.* None: a refusal is a [`Verdict`] that says who stands in the way.

pub mod access;
pub mod caching;
pub mod expiry;
pub mod grace;
pub mod holder;
#[cfg(test)]
mod model;
pub mod node;
pub mod range;
pub mod recall;
pub mod table;

pub use access::{Rights, Share};
pub use caching::{Caching, Kind, Operation};
pub use expiry::{Lease, Standing, Terms};
pub use grace::Grace;
pub use holder::{ClientId, HolderId, Millis, NodeId, Party, Who};
pub use node::{Limits, LockVerdict, Verdict};
pub use range::{Enforce, Lock, LockKind, Range, RangeSet};
pub use recall::{Break, Deadlines, Stage};
pub use table::{NodeHasher, Table, Writing};
