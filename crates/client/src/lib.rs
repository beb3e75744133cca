//! NFS and SMB clients over TCP and RDMA, for `demo`, `bench` and the tests.
//!
//! Start with [`target::Target`] and [`volume`]. The clients know only the wire protocol. They use the formats of `nfs-proto` and
//! `smb-proto`, which are tested with other implementations.

#![allow(missing_docs, reason = "comments that only repeat a name are left out")]

pub mod connect;
mod context;
mod error;
pub mod gss;
pub mod mount;
pub mod nfs3;
pub mod nfs4;
pub mod nlm;
mod portmap;
mod rpc;
pub mod smb;
pub mod target;
mod volume;

pub use error::{Error, Result};
pub use rpc::{CallArgs, Callbacks, Credential, NoCallbacks, ResultPlace, Rpc};
pub use target::Target;
pub use volume::{File, Volume, dial};
