//! What the store is called, and which format this program writes.

/// Name of the store in the state folder.
pub const FILE: &str = "recovery.redb";
/// Name of the file that says that the folder has a store.
pub const MADE: &str = "recovery.made";

/// The format of the store.
pub(crate) const FORMAT_NOW: u64 = 1;
