//! The file namespace: backends, and the only interface to them.
//!
//! A [`Backend`] is a store of files (a directory of the host, memory); its [`Node`]s are the files. Protocols hold no backend:
//! they use [`namespace`], which asks `state` before data or names are touched.

// The crate is not published; only `backend`, the trait that a new backend implements, documents every item.
#![allow(missing_docs)]

pub mod accounts;
pub mod acl;
mod actor;
pub mod allowance;
mod append;
pub mod arbiter;
pub mod audited;
pub mod authority;
#[warn(missing_docs)]
pub mod backend;
pub mod callers;
pub mod ceph;
pub mod client_names;
pub mod clients_remedy;
mod conflicts;
mod creation;
pub mod dos;
pub mod durability;
pub mod engine;
pub mod error;
pub mod external_change;
mod external_watch;
mod fnv;
mod folder;
mod homes;
pub mod hosts;
mod inherited_acl;
mod inheriting;
pub mod judge;
mod link_guard;
mod link_notices;
pub mod links;
pub mod local;
pub mod mem;
mod memory_return;
mod name_index;
pub mod names;
pub mod namespace;
pub mod overlap;
mod pending;
mod perm;
pub mod place;
pub mod quota;
pub mod refer;
mod refusal;
pub mod reparse;
pub mod replace;
mod rights;
mod set_reparse;
pub mod share;
mod share_access;
mod shared_file;
pub mod streams;
pub mod token;
pub mod types;
pub mod waste_due;
pub mod waste_keep;
pub mod waste_record;
pub mod wastebasket;
pub mod watch;
mod watch_access;
mod watch_event;
mod watch_index;
mod xattrs;

pub use authority::Acting;
pub use backend::{Backend, BoxFuture, Node, NodeRef};
pub use callers::{AskService, CallerNumber};
pub use dos::Dos;
pub use error::{VfsError, VfsResult};
pub use token::{Domain, DomainIdentity, Token};
pub use types::*;
