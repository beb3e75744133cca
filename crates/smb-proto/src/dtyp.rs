//! Values of MS-DTYP that several formats share: times, security identifiers, security descriptors.
//!
//! *Errors.* [`wire::Fault`]. Memory is allocated only for bytes that were received, never by a number that a peer sent.

pub mod descriptor;
pub mod time;

pub use descriptor::{Ace, Acl, SecurityDescriptor};
pub use time::{FileTime, civil, gmt};
pub use wire::Sid;

#[cfg(test)]
pub(crate) mod test_harness;
