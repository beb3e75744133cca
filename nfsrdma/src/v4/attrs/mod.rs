//! Attributes: sets of them ([`Bitmap`]), values that a client requests ([`ObjectAttrs`]), and values that it sets ([`ToSet`]).

mod absent;
mod acl;
mod get;
mod set;

pub(super) use absent::asks_where;
pub use get::{ObjectAttrs, SUPPORTED_BY_EXCLUSIVE, supported};
pub(super) use get::{is_write_only, supported_on};
pub use nfs_proto::nfs4::attrs::Bitmap4 as Bitmap;
pub(super) use set::time_of;
pub use set::{Purpose, ToSet};
