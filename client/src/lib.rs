//! NFS clients: version 3 and version 4.1, over TCP and over RPC-over-RDMA, for `demo`, `bench` and the tests.
//!
//! They speak the protocol as it is on the wire and know nothing of a server's inside: their encoders and decoders are
//! their own, so that a mistake of the server's is not repaired by the same mistake here.

pub mod connect;
mod error;
pub mod mount;
pub mod nfs3;
pub mod nfs4;
mod rpc;
pub mod target;
mod volume;

pub use error::{Error, Result};
pub use rpc::{Callbacks, Credential, NoCallbacks, ResultPlace, Rpc};
pub use target::Target;
pub use volume::{File, Volume, dial};
