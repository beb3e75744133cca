//! Attributes: sets of them ([`Bitmap`]), their values as a client asks for them ([`Facts`]), and those that a client sets
//! ([`ToSet`]).

mod acl;
mod get;
mod set;

pub(super) use get::is_write_only;
pub use get::{Facts, SUPPORTED_BY_EXCLUSIVE, supported};
pub use nfs_proto::nfs4::attrs::Bitmap4 as Bitmap;
pub(super) use set::time_of;
pub use set::{Purpose, ToSet};
