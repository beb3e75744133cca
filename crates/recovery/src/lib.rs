//! What must survive a restart of the gateway: records in one transactional file of the state folder.
//!
//! This crate knows sorts of records, keys and values, and no protocol: what the bytes mean is the business of who keeps them.

mod error;
pub mod faults;
mod file;
mod folder;
mod format;
mod header;
mod health;
pub mod limits;
mod names;
mod record;
mod store;
mod writer;

pub use error::Error;
pub use folder::Folder;
pub use health::StoreTrouble;
pub use record::{Change, Counters, Kind, Record};
pub use store::{Pending, Store};

pub use header::COPY;
pub use names::{FILE, MADE};
/// What a [`Folder`] gives of each file.
pub use redb::StorageBackend;
