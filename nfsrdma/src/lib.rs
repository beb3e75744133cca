//! ONC RPC and the NFS server: version 3 with MOUNT, NLM and NSM, versions 4.0 to 4.2, and RQUOTA.
//!
//! Each file may use the modules on its own line or above in this list, never those below; [`v4`] has its own list:
//!
//! ```text
//! clients clock fh limits offer rpc::auth rpc::callee         what needs no connection
//! context violation                                           a connection, a call, and rules that a peer breaks
//! rpc::gss source_port mounted unopened nlm::reservations     the tables of callers and of what they did
//! server_state                                                what all connections share
//! v3 v4 mount portmap                                         programs by themselves
//! nlm                                                         locks of version 3, in the grace period of version 4
//! nsm claim tls rquota                                        what concerns several programs
//! server                                                      what calls all of these
//! ```

// The crate is not published; a doc comment that repeats a name helps no reader.
#![allow(missing_docs)]

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
pub mod operation;
mod pace;
pub mod portmap;
pub mod replay;
pub mod rpc;
pub mod rquota;
pub mod served_programs;
pub mod server;
pub mod server_state;
pub mod source_port;
pub mod status;
mod tls;
mod unopened;
pub mod v3;
pub mod v4;
pub mod violation;
