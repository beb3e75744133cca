//! Values of MS-DTYP and of the Windows security model that several formats share, pure: times, security identifiers, access
//! masks, security descriptors, and the check of a descriptor against a user.
//!
//! *Errors.* [`Malformed`](crate::wire::Malformed) names the field that does not fit; nothing here takes memory by a number
//! that a peer sent, only by bytes that are there.

pub mod acl;
pub mod check;
pub mod descriptor;
pub mod sid;
pub mod time;

pub use descriptor::{Ace, Acl, SecurityDescriptor};
pub use sid::Sid;
pub use time::FileTime;
pub use vfs::acl::mask;
