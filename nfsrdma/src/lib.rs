//! ONC RPC and the NFS server: version 3 with MOUNT, NLM and NSM, versions 4.0 to 4.2.

mod claim;
pub mod clients;
pub mod clock;
pub mod context;
mod exclusive;
pub mod fh;
pub mod limits;
pub mod locate;
pub mod mount;
mod mounted;
pub mod nlm;
pub mod nsm;
pub mod offer;
pub mod operation;
pub mod portmap;
pub mod replay;
pub mod rpc;
pub mod server;
pub mod server_state;
pub mod source_port;
pub mod status;
mod tls;
mod unopened;
pub mod v3;
pub mod v4;
pub mod violation;
