//! Stores the records that must survive a restart of the gateway in one transactional file of the state folder.
//!
//! Start with [`Store`], [`Change`] and [`Kind`]. This crate knows kinds of records, keys and values, but no protocol: the callers
//! define the contents.

#![allow(missing_docs, reason = "comments that only repeat a name are left out")]

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
/// The interface of the files that a [`Folder`] opens.
pub use redb::StorageBackend;
