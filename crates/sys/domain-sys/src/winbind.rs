//! Samba's `libwbclient.so.0`, which asks winbindd.

mod context;
mod ffi;
mod logon;
mod names;

pub(crate) use context::Context;
pub use logon::{LoggedOn, Refused, Response};
