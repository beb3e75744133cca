//! NFS and SMB clients, over TCP and over RDMA, for `demo`, `bench` and the tests.
//!
//! They speak the protocols as they are on the wire and know nothing of a server's inside. The encoders and decoders of NFS are
//! their own, so that a mistake of the server's is not repaired by the same mistake here; those of SMB are the server's, and are
//! proved against other people's clients.

pub mod connect;
mod error;
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
pub use rpc::{Callbacks, Credential, NoCallbacks, ResultPlace, Rpc};
pub use target::Target;
pub use volume::{File, Volume, dial};
