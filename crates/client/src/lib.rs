//! NFS and SMB clients, over TCP and over RDMA, for `demo`, `bench` and the tests.
//!
//! They speak the protocols as they are on the wire and know nothing of a server's inside. The formats are those of `nfs-proto` and
//! `smb-proto`, which clients and servers of others prove.

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
