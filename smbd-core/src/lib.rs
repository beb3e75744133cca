//! The SMB 2 and 3 server: dialects 2.0.2 to 3.1.1, independent of the transport.
//!
//! *Operation.* [`smb_proto`] holds the formats, pure. [`server::Connection`] takes each message, reads its chain and answers its
//! commands one after the other (`compound`, `dispatch`). All code that waits is in `ops`, one file per command; only these files,
//! and `teardown`, which removes names, use `FileOps` of [`vfs::namespace`]. A command reaches the rest of the server through its
//! [`request_context::RequestContext`].
//!
//! A file uses the files above it in this list, never those below:
//!
//! ```text
//! conn session tree open caching open_durable creates     state of clients, as data
//! server_state                                            all tables, and the settings
//! answer slot request_context                             one message and its commands
//! persist lease notice path_tracking security             operations on opens and leases
//! teardown                                                how opens, sessions and connections end
//! share_access reauthorize durable restore                grants, durability and new checks of grants
//! ops                                                     the commands
//! compression                                             operations on whole messages
//! dispatch compound recall disconnect_client server       callers of all of these
//! ```
#![allow(missing_docs, reason = "comments that only repeat a name are left out")]

mod answer;
pub mod caching;
mod compound;
pub mod compression;
pub mod conn;
pub mod creates;
pub mod directory_logon;
pub mod disconnect_client;
mod dispatch;
pub mod domain_engine;
pub mod domain_logon;
mod domain_user;
pub mod dtyp;
pub mod durable;
pub mod file_info;
pub mod folders;
#[cfg(test)]
mod harness;
pub mod holdings;
mod in_flight;
mod in_rates;
pub mod interfaces;
mod kerberos;
pub mod lease;
pub mod limits;
mod links;
pub mod locate;
mod lock_sequences;
pub mod logons;
mod mac;
pub mod membership;
mod node_replacement;
mod notice;
pub mod notify;
pub mod open;
pub mod open_durable;
mod open_quotas;
pub mod open_state;
mod ops;
pub mod owners;
mod pace;
pub mod parts;
pub mod path;
mod path_in_share;
mod path_tracking;
pub mod pattern;
pub mod persist;
pub mod pipe;
mod privilege_use;
pub mod privileges;
mod random_ids;
pub mod reauthorize;
mod recall;
pub mod refusal;
pub mod request_context;
pub mod restore;
mod sealed;
pub mod security;
mod seen;
mod sequence;
pub mod server;
pub mod server_state;
pub mod session;
mod session_places;
pub mod settings;
mod share_access;
mod share_descriptor;
mod slot;
pub mod status;
mod symlinks;
mod teardown;
pub mod time_machine;
pub mod tree;
mod unwritten;
pub mod users;
pub mod violation;

pub use kerberos::{Unknown, user_of};
use smb_auth as auth;
use smb_crypto as crypto;
use smb_proto::fscc;
use smb_proto::smb2 as wire;
