//! Settings of a share that configuration, namespace and both servers share: protocols, squash, RPC flavors, address ranges, rates.
//! Pure; each type converts from and to its configuration text.
//!
//! *Errors.* An unknown word is refused with one line that lists the valid words.

#![allow(missing_docs, reason = "comments that only repeat a name are left out")]

mod cidr;
mod rates;
mod share;
mod snapshots;
mod words;

pub use cidr::Cidr;
pub use rates::{Measure, Rates};
pub use share::{Flavor, Protocols, Squash};
pub use snapshots::{SnapshotPattern, gmt_name, gmt_time, snapper_time};
pub use words::listed;
