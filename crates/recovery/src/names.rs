//! File names of the store, and the format that this program writes.

/// Name of the store in the state folder.
pub const FILE: &str = "recovery.redb";
/// Name of the marker file of a folder that has a store.
pub const MADE: &str = "recovery.made";

pub(crate) const FORMAT_NOW: u64 = 1;
