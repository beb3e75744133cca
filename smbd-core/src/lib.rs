//! The SMB 2 and 3 server: dialects 2.0.2 to 3.1.1, over whatever moves bytes.
//!
//! *Operation.* [`smb_proto`] holds the formats, pure. A message that comes is taken through [`server::Connection`]: its chain is
//! read and its commands are answered one after the other (`compound`, `dispatch`). Everything that waits is in `ops`, one file
//! per command, which are the only files that go through `FileOps` of [`vfs::namespace`], but for `teardown`, which removes names.
//! What a command can reach is its [`request_context::RequestContext`].
//!
//! A file knows those above it in this list, and none below:
//!
//! ```text
//! conn session tree open caching open_durable creates     what clients have, as data
//! server_state                                            the tables of all of it, the settings
//! answer slot request_context                             one message and its commands
//! persist lease notice path_tracking security             what is done with opens and leases
//! teardown                                                how opens, sessions and connections end
//! share_access reauthorize durable restore                what is granted, kept, and granted again
//! ops                                                     the commands
//! compression                                             what is done with whole messages
//! dispatch compound recall disconnect_client server       what calls all of these
//! ```

mod answer;
pub mod caching;
mod compound;
pub mod compression;
pub mod conn;
pub mod creates;
pub mod disconnect_client;
mod dispatch;
pub mod dtyp;
pub mod durable;
pub mod file_info;
pub mod folders;
#[cfg(test)]
mod harness;
pub mod holdings;
mod in_flight;
pub mod interfaces;
mod kerberos;
pub mod lease;
pub mod limits;
pub mod locate;
pub mod logons;
mod node_replacement;
mod notice;
pub mod notify;
pub mod open;
pub mod open_durable;
pub mod open_state;
mod ops;
mod pace;
pub mod parts;
pub mod path;
mod path_tracking;
pub mod pattern;
pub mod persist;
pub mod pipe;
pub mod reauthorize;
mod recall;
pub mod refusal;
pub mod request_context;
pub mod restore;
mod sealed;
pub mod security;
mod sequence;
pub mod server;
pub mod server_state;
pub mod session;
mod session_places;
pub mod settings;
mod share_access;
mod slot;
pub mod status;
mod symlinks;
mod teardown;
pub mod tree;
mod turns;
mod unwritten;
pub mod users;
pub mod violation;

pub use kerberos::{Unknown, user_of};
use smb_auth as auth;
use smb_crypto as crypto;
use smb_proto::fscc;
use smb_proto::smb2 as wire;
